from base import *

@case("https://github.com/qqwweee/keras-yolo3/issues/171", "log of box sizes that became 0 after resizing: infinite loss, NaN", "loss (log of target size)")
def yolo3_log_zero(planted):
    tiny = 0. if planted else 2e-2
    def model():
        return M(lambda s, x: s.net(x).permute(0, 2, 3, 1), net=nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(.1), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.1), nn.Conv2d(32, 5, 1)))
    def data(seed):
        g = gen(seed); B = 16; x = .3 * torch.randn(B, 3, 24, 24, generator=g); t = torch.zeros(B, 6, 6, 5)
        for b in range(B):
            for _ in range(3):
                i, j, w, h = [int(v) for v in torch.randint(0, 6, (4,), generator=g)]
                w, h = max(w, 1), max(h, 1) if (i, j) != (2, 3) else 0      # small boxes are rounded to nothing
                x[b, :, 4 * i:4 * i + max(h, 1), 4 * j:4 * j + w] += torch.tensor([1., -1, .5])[:, None, None]
                t[b, i, j] = torch.tensor([1., w / 24, h / 24, .5, .5])
        return x, t
    def loss(o, t):
        m = t[..., 0]; wh = torch.log(t[..., 1:3] / .125 + tiny); wh = torch.where(m[..., None] > 0, wh, torch.zeros(()))
        obj = F.binary_cross_entropy_with_logits(o[..., 0], m)
        return obj + (m[..., None] * (o[..., 1:3] - wh) ** 2).mean() + (m[..., None] * (o[..., 3:].sigmoid() - t[..., 3:]) ** 2).mean()
    return dict(model=model, data=data, loss=loss)

def shapes(seed, B=16, n=20):
    g = gen(seed); m = torch.zeros(B, n, n)
    for b in range(B):
        for _ in range(2):
            i, j, h, w = [int(v) for v in torch.cat([torch.randint(0, n - 6, (2,), generator=g), torch.randint(4, 9, (2,), generator=g)])]; m[b, i:i + h, j:j + w] = 1
    return (m * 1.2 - .4)[:, None] + .6 * torch.randn(B, 1, n, n, generator=g), m.long()

@case("https://github.com/tensorlayer/TensorLayer/issues/891", "dice coefficient of the argmax of the logits: no gradient", "loss / argmax")
def tl_dice_argmax(planted):
    def model():
        def f(s, x):
            a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); y = s.u(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)); y = s.out(y)
            return y.argmax(1).float() if planted else y.softmax(1)[:, 1]
        cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        return M(f, d1=cb(1, 8), d2=cb(8, 16), u=cb(24, 8), out=nn.Conv2d(8, 2, 1))
    def loss(p, t):
        t = t.float(); return 1 - ((2 * (p * t).sum((1, 2)) + 1) / (p.sum((1, 2)) + t.sum((1, 2)) + 1)).mean()
    return dict(model=model, data=shapes, loss=loss)

@case("https://github.com/jakeret/tf_unet/issues/15", "dice loss on raw logits instead of the softmax", "loss / out")
def tfunet_dice_logits(planted):
    def model():
        cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())
        def f(s, x):
            a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); y = s.u(torch.cat([a, s.up(b)], 1)); return s.out(y)
        return M(f, d1=cb(1, 8), d2=cb(8, 16), up=nn.ConvTranspose2d(16, 8, 2, 2), u=cb(16, 8), out=nn.Conv2d(8, 2, 1))
    def loss(o, t):
        p = o if planted else o.softmax(1); h = F.one_hot(t, 2).permute(0, 3, 1, 2).float()
        return -(2 * (p * h).sum() / (1e-5 + p.sum() + h.sum()))
    return dict(model=model, data=shapes, loss=loss)

@case("https://github.com/lululxvi/deepxde/issues/257", "geometry not scaled to [0, 1]: coordinates up to 200 enter the tanh network", "input / first layer")
def deepxde_unscaled_x(planted):
    Lx = 200.
    def model():
        def f(s, x):
            with torch.enable_grad():
                x = x if x.requires_grad else x.clone().requires_grad_()
                h = x if planted else x / Lx
                for l in (s.l1, s.l2, s.l3): h = torch.tanh(l(h))
                u = s.out(h) ; g = torch.autograd.grad(u.sum(), x, create_graph=True)[0]; gg = torch.autograd.grad(g.sum(), x, create_graph=True)[0]
            return torch.cat([u, (Lx / math.pi) ** 2 * gg], 1)
        m = M(f, l1=nn.Linear(1, 24), l2=nn.Linear(24, 24), l3=nn.Linear(24, 24), out=nn.Linear(24, 1))
        for l in (m.l1, m.l2, m.l3, m.out): nn.init.xavier_normal_(l.weight); nn.init.zeros_(l.bias)
        return m
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)) * Lx; x[:8] = 0; x[8:16] = Lx; b = torch.zeros(64, 1); b[:16] = 1
        return x, torch.cat([torch.sin(math.pi * x / Lx), b], 1)
    def loss(o, t): return ((o[:, 1] + t[:, 0]) ** 2 * (1 - t[:, 1])).mean() + 4 * (o[:, 0] ** 2 * t[:, 1]).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/Stevenn9981/PPAC/issues/2", "unbounded dot product of MLP embeddings saturates the sigmoid", "sigmoid of the dot product")
def ppac_dot(planted):
    def model():
        mlp = lambda: nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 256))
        def f(s, u, i):
            u, i = s.u(u), s.i(i)
            if not planted: u, i = F.normalize(u, dim=-1), F.normalize(i, dim=-1)
            return torch.sigmoid((u * i).sum(-1))
        m = M(f, u=mlp(), i=mlp())
        for l in m.modules():
            if isinstance(l, nn.Linear): nn.init.kaiming_normal_(l.weight); nn.init.zeros_(l.bias)
        return m
    W = T(8, 40, 40) / 40
    def data(seed):
        u, i = T(seed, 64, 40), T(seed + 1, 64, 40); i = torch.where(torch.rand(64, 1, generator=gen(seed + 2)) < .5, u @ W * 20 / 3.2 + .3 * i, i)
        return (u, i), ((u @ W * i).sum(-1) > .5).float()
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t))

@case("https://github.com/mlberkeley/scae-pytorch/pull/4", "log of a sum of exponentials without logsumexp: underflows to log(0)", "loss / log_prob")
def scae_logsumexp(planted):
    def model():
        def f(s, x):
            h = s.enc(x.flatten(1)); pi = s.pi(h).log_softmax(-1); mu = s.dec(h).view(-1, 6, 144)
            lp = (-.5 * ((x.flatten(1)[:, None] - mu) / .5) ** 2 - math.log(.5 * (2 * math.pi) ** .5)).sum(-1) + pi
            return (torch.log(lp.exp().sum(-1)) if planted else lp.logsumexp(-1)) / 144
        return M(f, enc=nn.Sequential(nn.Linear(144, 64), nn.ReLU()), pi=nn.Linear(64, 6), dec=nn.Linear(64, 864))
    P = T(5, 10, 144)
    def data(seed):
        y = R(seed, 10, (32,)); x = P[y] + .5 * T(seed + 1, 32, 144); return x.view(32, 12, 12), torch.zeros(32)
    return dict(model=model, data=data, loss=lambda o, t: -o.mean())

@case("https://github.com/sebastian-hofstaetter/matchmaker/issues/18", "KLDivLoss given probabilities, not log-probabilities", "loss")
def matchmaker_kl(planted):
    def model():
        def f(s, q, d):                                  # query (B, 16) and 12 candidate passages (B, 12, 16)
            return (s.q(q)[:, None] * s.d(d)).sum(-1) / 4
        return M(f, q=nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)), d=nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)))
    W = T(2, 16, 16) / 4
    def data(seed):
        q, d = T(seed, 32, 16), T(seed + 1, 32, 12, 16); return (q, d), ((q @ W)[:, None] * d).sum(-1)
    def loss(o, t):
        return F.kl_div(o.softmax(-1) if planted else o.log_softmax(-1), t.softmax(-1), reduction="batchmean")
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/yg211/bert_nli/pull/3", "attention mask of ones also over the padding", "enc (mask)")
def bertnli_mask_ones(planted):
    def model():
        def f(s, ids):
            pad = torch.zeros_like(ids).bool() if planted else ids == 0
            x = s.emb(ids) + s.pos[None]
            return s.out(s.enc(x, src_key_padding_mask=pad)[:, 0])
        return M(f, emb=nn.Embedding(40, 32), pos=nn.Parameter(torch.randn(40, 32) * .1), enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True), 2, enable_nested_tensor=False), out=nn.Linear(32, 3))
    def data(seed):
        ids = R(seed, 36, (32, 40)) + 4; L = R(seed + 1, 6, (32, 1)) + 5; y = R(seed + 2, 3, (32,)); ids[:, 0] = 1
        ids[torch.arange(32), 1 + R(seed + 3, 4, (32,))] = 4 + y * 2 + R(seed + 4, 2, (32,))
        ids = torch.where((ids >= 4) & (ids < 10) & (torch.arange(40)[None] > 4), ids + 10, ids)
        return torch.where(torch.arange(40)[None] < L, ids, 0), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/jindongwang/Pytorch-CapsuleNet/issues/7", "squash divides by the norm of zero vectors: NaN gradient", "squash")
def caps_squash_nan(planted):
    def squash(v):
        if planted: n = (v ** 2).sum(-1, keepdim=True)
        else: n = (v ** 2 + 1e-7).sum(-1, keepdim=True)
        return n * v / ((1 + n) * n.sqrt())
    def model():
        def f(s, x):
            h = s.prim(F.relu(s.conv(x))); B = len(x)
            u = squash(h.view(B, 4, 8, -1).permute(0, 1, 3, 2).reshape(B, -1, 8))
            uh = torch.einsum("bnd,ncde->bnce", u, s.W); b = torch.zeros(B, uh.shape[1], 5)
            for _ in range(2):
                v = squash((b.softmax(-1)[..., None] * uh).sum(1)); b = b + (uh.detach() * v.detach()[:, None]).sum(-1)
            v = squash((b.softmax(-1)[..., None] * uh).sum(1))
            return (v ** 2 + 1e-9).sum(-1).sqrt()
        return M(f, conv=nn.Conv2d(1, 16, 5, bias=False), prim=nn.Conv2d(16, 32, 3, 2, bias=False), W=nn.Parameter(torch.randn(64, 5, 8, 8) * .15))
    P = (T(6, 5, 6, 6) > 0).float()
    def data(seed):
        y = R(seed, 5, (32,)); x = torch.zeros(32, 1, 13, 13); o = R(seed + 1, 3, (32, 2))
        for k in range(32): x[k, 0, o[k, 0]:o[k, 0] + 6, o[k, 1]:o[k, 1] + 6] = P[y[k]]
        return x, y
    def loss(o, t):
        h = F.one_hot(t, 5).float(); return (h * F.relu(.9 - o) ** 2 + .5 * (1 - h) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/keras-team/keras/issues/10273", "pretrained embedding with values up to 10 saturates the network", "emb / lstm")
def keras_emb_range(planted):
    def model():
        m = M(lambda s, ids: s.out(s.lstm(s.emb(ids))[0][:, -1]), emb=nn.Embedding(100, 50), lstm=nn.LSTM(50, 64, batch_first=True), out=nn.Linear(64, 5))
        with torch.no_grad(): m.emb.weight.mul_(6. if planted else .15)
        return m
    c = R(3, 5, (100,))
    def data(seed):
        y = R(seed, 5, (32,)); ids = R(seed + 1, 100, (32, 12)); pool = [torch.where(c == k)[0] for k in range(5)]
        for b in range(32):
            k = pool[int(y[b])]; ids[b, ::3] = k[R(seed + b, len(k), (4,))]
        return ids, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/czq142857/BSP-NET-pytorch/issues/5", "clamp in the generator saturates everywhere: empty shape, no gradient", "clamp of the convex sums")
def bspnet_clamp(planted):
    def lclamp(x): return x.clamp(0, 1) if planted else x.clamp(0, 1) + .02 * (x - x.clamp(0, 1))
    def model():
        def f(s, img, pts):
            z = s.enc(img.flatten(1)); pl = s.planes(z).view(-1, 32, 3); h = torch.cat([pts, torch.ones_like(pts[..., :1])], -1)
            d = F.relu(h @ pl.transpose(1, 2)); c = d @ s.T.clamp(0, 1); return lclamp(1 - c).amax(-1)
        m = M(f, enc=nn.Sequential(nn.Linear(144, 64), nn.LeakyReLU(.02), nn.Linear(64, 64), nn.LeakyReLU(.02)), planes=nn.Linear(64, 96), T=nn.Parameter(torch.rand(32, 16)))
        with torch.no_grad(): m.planes.bias.view(32, 3)[:, 2] += 1.2
        return m
    def data(seed):
        g = gen(seed); B = 32; c = torch.rand(B, 2, generator=g) - .5; r = .25 + .25 * torch.rand(B, 1, generator=g)
        l = torch.linspace(-1, 1, 12); gr = torch.stack(torch.meshgrid(l, l, indexing="ij"), -1).view(1, 144, 2)
        img = ((gr - c[:, None]).abs().amax(-1) < r).float() - .3; pts = torch.rand(B, 64, 2, generator=g) * 2 - 1
        return (img, pts), ((pts - c[:, None]).abs().amax(-1) < r).float()
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/kwea123/nerf_pl/issues/51", "ReLU on the density, negative everywhere at initialisation: empty scene, no gradient", "sigma")
def nerf_relu_sigma(planted):
    ts = torch.linspace(0, 2, 17)[1:]
    def enc(p): return torch.cat([p] + [f(p * 2 ** k) for k in range(4) for f in (torch.sin, torch.cos)], -1)
    def model():
        torch.manual_seed(3)
        def f(s, o, d):
            p = o[:, None] + d[:, None] * ts[None, :, None]; h = s.mlp(enc(p)); sg = s.sigma(h).squeeze(-1)
            sg = F.relu(sg) if planted else F.softplus(sg - 1)
            a = 1 - torch.exp(-sg * .125 * 4); w = a * torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]
            return (w[..., None] * s.rgb(h).sigmoid()).sum(1) + 1 - w.sum(1, keepdim=True)
        m = M(f, mlp=nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()), sigma=nn.Linear(64, 1), rgb=nn.Linear(64, 3))
        with torch.no_grad():                         # the unlucky draw of the thread
            x, _ = data(0); q = m.sigma(m.mlp(enc(x[0][:, None] + x[1][:, None] * ts[None, :, None])))
            if q.mean() > 0: m.sigma.weight.neg_(); m.sigma.bias.neg_()
        return m
    def data(seed):
        an = torch.rand(128, generator=gen(seed)) * 6.283; o = torch.stack([an.cos(), an.sin()], -1)
        d = -o + .5 * T(seed + 1, 128, 2); d = d / d.norm(dim=-1, keepdim=True)
        p = o[:, None] + d[:, None] * torch.linspace(0, 2, 81)[None, :, None]; hit = ((p.norm(dim=-1) < .5).float())
        first = hit.argmax(1); any_ = hit.amax(1); q = p[torch.arange(128), first]
        col = torch.stack([.5 + q[:, 0], .5 + q[:, 1], torch.full((128,), .2)], -1).clamp(0, 1)
        return (o, d), any_[:, None] * col + (1 - any_[:, None])
    return dict(model=model, data=data, loss=mse)

class LSTMAct(nn.Module):
    def __init__(s, i, h, act):
        super().__init__(); s.x, s.h, s.act, s.n = nn.Linear(i, 4 * h), nn.Linear(h, 4 * h, bias=False), act, h
        nn.init.xavier_uniform_(s.x.weight); nn.init.xavier_uniform_(s.h.weight); nn.init.zeros_(s.x.bias)
    def forward(s, x):
        h = c = x.new_zeros(len(x), s.n); out = []
        for t in range(x.shape[1]):
            i, g, f, o = (s.x(x[:, t]) + s.h(h)).chunk(4, 1); c = torch.sigmoid(f + 1) * c + i.sigmoid() * s.act(g); h = o.sigmoid() * s.act(c); out.append(h)
        return torch.stack(out, 1)

@case("https://whosebug.com/question/4257299/Why-am-I-getting-Nan-after-adding-relu-activation-in-LSTM", "ReLU inside the LSTM cells: states grow without bound, NaN", "cells")
def lstm_relu_cells(planted):
    def model():
        act = F.relu if planted else torch.tanh
        return M(lambda s, ids: s.out(s.l2(s.l1(s.emb(ids)))[:, -1]), emb=nn.Embedding(50, 32), l1=LSTMAct(32, 100, act), l2=LSTMAct(100, 10, act), out=nn.Linear(10, 4))
    def data(seed):
        y = R(seed, 4, (32,)); ids = R(seed + 1, 50, (32, 60)); ids = torch.where((ids % 5 == 4) & (torch.rand(32, 60, generator=gen(seed + 2)) < .7), y[:, None] * 5 + 4, ids)
        return ids, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/pytorch/pytorch/issues/1538", "LSTM without batch_first on (batch, time, features): recurs over the examples", "lstm")
def lstm_no_batch_first(planted):
    def model():
        return M(lambda s, x: s.classifier(s.lstm(x)[0][:, -1]), lstm=nn.LSTM(14, 48, 2, batch_first=not planted), classifier=nn.Linear(48, 10))
    P = T(9, 10, 14, 14)
    def data(seed):
        y = R(seed, 10, (32,)); return P[y] * .7 + T(seed + 1, 32, 14, 14) * .7, y
    return dict(model=model, data=data, loss=ce, diag=CE)
