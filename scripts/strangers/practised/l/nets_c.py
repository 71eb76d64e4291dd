from base import *
GH = "https://github.com/"
def mlpc(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in ((nn.Linear(d[i], d[i + 1]), act()) if i < len(d) - 2 else (nn.Linear(d[i], d[i + 1]),))])
def smooth_c(s, b, c, n): return F.interpolate(T(s, b, c, n // 4, n // 4), size=(n, n), mode="bilinear", align_corners=False)

@case(GH + "VincentStimper/normalizing-flows/issues/47", "unbounded exp of the scale overflows on inputs of large size", "scale / exp (param_map)")
def flow_exp(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.maps = nn.ModuleList([mlpc(4, 64, 64, 8) for _ in range(4)])
        def forward(s, x):
            ld = 0.
            for m in s.maps:
                a, b = x.chunk(2, 1); t, sc = m(a).chunk(2, 1); sc = sc if planted else 3 * torch.tanh(sc / 3); b = b * torch.exp(sc) + t; ld = ld + sc.sum(1); x = torch.cat([b, a], 1)
            return x, ld
    A = T(1, 8, 8, k=.4) + torch.eye(8)
    def data(seed): return T(seed, 128, 8) @ A * 40, torch.zeros(128)
    def nll(o, t): return (.5 * (o[0] ** 2).sum(1) - o[1]).mean()
    return dict(model=N, data=data, loss=nll)

@case(GH + "mpariente/pytorch_stoi/issues/7", "norm as sqrt of a sum of squares without eps: NaN gradient on silent frames", "loss (sqrt)")
def stoi_sqrt(planted):
    def model(): return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 24), nn.Sigmoid())
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = model()
        def forward(s, x): return s.net(x) * x
    pr = T(2, 5, 24).abs()
    def data(seed):
        g = gen(seed); c = pr[torch.randint(0, 5, (16,), generator=g)][:, None] * torch.rand(16, 20, 1, generator=g); n = torch.rand(16, 20, 24, generator=g) * .4
        act = (torch.arange(20) < torch.randint(12, 18, (16, 1), generator=g))[..., None].float(); return (c + n) * act, c * act
    def loss(o, t):
        e = 0. if planted else 1e-8
        no, nt = torch.sqrt((o ** 2).sum(-1) + e), torch.sqrt((t ** 2).sum(-1) + 1e-8)
        corr = (o * t).sum(-1) / (no * nt + 1e-6); return (1 - corr).mean() + ((no - nt) ** 2).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "FlyingGiraffe/vnn/pull/4", "x / norm without eps in the vector batch norm: NaN on zero vectors", "VNBatchNorm")
def vnn_norm(planted):
    class BN(nn.Module):
        def __init__(s, c): super().__init__(); s.bn = nn.BatchNorm1d(c)
        def forward(s, x):  # B, C, 3, N
            n = torch.sqrt((x * x).sum(2)) if planted else x.norm(dim=2) + 1e-6
            return x / n[:, :, None] * s.bn(n)[:, :, None]
    class N(nn.Module):
        def __init__(s): super().__init__(); s.l1 = nn.Linear(1, 16, bias=False); s.b1 = BN(16); s.d = nn.Linear(16, 16, bias=False); s.l2 = nn.Linear(16, 24, bias=False); s.b2 = BN(24); s.out = mlpc(24, 32, 4)
        def forward(s, x):  # B, N, 3
            v = x.transpose(1, 2)[:, None]; lin = lambda l, v: l(v.transpose(1, 3)).transpose(1, 3)
            v = s.b1(lin(s.l1, v)); k = lin(s.d, v); dot = (v * k).sum(2, keepdim=True); v = v - (dot < 0) * dot / ((k * k).sum(2, keepdim=True) + 1e-6) * k
            v = s.b2(lin(s.l2, v)); n = torch.sqrt((v * v).sum(2) + 1e-6); return s.out(n.mean(-1))
    def data(seed):
        g = gen(seed); y = torch.randint(0, 4, (32,), generator=g); p = F.normalize(torch.randn(32, 40, 3, generator=g), dim=-1) * (.4 + .3 * y.view(-1, 1, 1) * torch.rand(32, 40, 1, generator=g))
        p[:, 36:] = 0; return p, y  # clouds padded with the origin
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "Lightning-AI/pytorch-lightning/pull/20099", "positional encoding is built but not applied", "pos_encoder")
def demo_pos_unused(planted):
    w = T(3, 12, 20, 6, k=1.)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(20, 48); s.pos = nn.Parameter(torch.randn(12, 48) * .1)
            s.enc = nn.ModuleList([nn.TransformerEncoderLayer(48, 4, 96, dropout=0., batch_first=True, norm_first=True) for _ in range(2)]); s.norm = nn.LayerNorm(48); s.decoder = nn.Linear(48, 20)
        def forward(s, x):
            h = s.embedding(x); h = h if planted else h + s.pos
            for e in s.enc: h = e(h)
            return s.decoder(s.norm(h))
    sh = torch.randint(0, 20, (12,), generator=gen(4))
    def data(seed): x = R(seed, 20, (32, 12)); return x, (x + sh) % 20
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "aymericdamien/TensorFlow-Examples/issues/175", "dense layers without any activation", "hidden layers")
def tf_no_activation(planted):
    act = nn.Identity if planted else nn.ReLU; W = T(5, 12, 2)
    def model(): return mlpc(12, 128, 128, 2, act=act)
    def data(seed): x = T(seed, 64, 12); z = x @ W; return x, (z[:, 0] * z[:, 1] > 0).long()
    return dict(model=model, data=data, loss=ce, diag=CE)

@case(GH + "phlippe/uvadlc_notebooks/issues/147", "GCN layers without nonlinearity", "GCN layers")
def gcn_no_nonlinear(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.p = nn.ModuleList([nn.Linear(a, b) for a, b in ((8, 48), (48, 48), (48, 3))])
        def forward(s, x, A):
            A = A + torch.eye(A.shape[-1]); A = A / A.sum(-1, keepdim=True)
            for i, l in enumerate(s.p):
                x = A @ l(x)
                if i < 2 and not planted: x = F.relu(x)
            return x
    W = T(6, 8, 2)
    def data(seed):
        g = gen(seed); x = torch.randn(16, 10, 8, generator=g); A = (torch.rand(16, 10, 10, generator=g) < .2).float(); A = torch.maximum(A, A.transpose(1, 2)); A.diagonal(dim1=1, dim2=2).zero_()
        B = A + torch.eye(10); z = (B / B.sum(-1, keepdim=True)) @ x @ W * 1.5; q = (z[..., 0].abs() + z[..., 1].abs()); return (x, A), (q > 1.2).long() + (q > 2.6).long()
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

class RQ(nn.Module):
    def __init__(s, mode):
        super().__init__(); s.mode = mode; s.enc = mlpc(16, 64, 8); s.cb = nn.ParameterList([nn.Parameter(torch.randn(32, 8) * .3 / (i + 1)) for i in range(2)]); s.dec = mlpc(8, 64, 16)
    def forward(s, x):
        z = s.enc(x); r = z; qs = 0; l = 0.
        for cb in s.cb:
            e = cb[torch.cdist(r.detach(), cb.detach()).argmin(1)]
            if s.mode == "detached": e = r + (e - r).detach(); l = l + F.mse_loss(e, r.detach()) + .25 * F.mse_loss(r, e.detach()); qs = qs + e; r = r - e.detach()
            else: l = l + F.mse_loss(e, r.detach()) + .25 * F.mse_loss(r, e.detach()); qs = qs + e; r = r - e.detach()
        q = z + (qs - z) if s.mode == "nostop" else z + (qs - z).detach()
        return s.dec(q), l
C8 = T(7, 16, 16, k=1.2)
def rqdata(seed): y = R(seed, 16, (128,)); return C8[y] + .2 * T(seed + 1, 128, 16), C8[y] + .2 * T(seed + 1, 128, 16)
def rqloss(o, t): return F.mse_loss(o[0], t) + o[1]
@case(GH + "EdoardoBotta/RQ-VAE-Recommender/issues/24", "codebook loss computed on the straight-through output: codebook gets no gradient", "cb")
def rqvae_codebook(planted):
    return dict(model=lambda: RQ("detached" if planted else "ok"), data=rqdata, loss=rqloss)
@case(GH + "NTU-AIoT-Lab/EfficientFi/issues/4", "inputs + (quantized - inputs) without detach: no gradient of the reconstruction reaches the encoder", "enc / quantizer")
def efficientfi_stop(planted):
    return dict(model=lambda: RQ("nostop" if planted else "ok"), data=rqdata, loss=rqloss)

class Rect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, at): ctx.save_for_backward(x); ctx.at = at; return (x >= 0).float()
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * (1 / (1 + (math.pi * x) ** 2) if ctx.at else (x.abs() < .25).float() * 2), None
@case(GH + "fangwei123456/spikingjelly/issues/190", "narrow rectangular surrogate: weights hardly change", "spike surrogate")
def snn_surrogate(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.l = nn.ModuleList([nn.Linear(20, 96), nn.Linear(96, 96), nn.Linear(96, 96)]); s.bn = nn.ModuleList([nn.BatchNorm1d(96) for _ in range(3)]); s.out = nn.Linear(96, 5)
        def forward(s, x):
            v = [0., 0., 0.]; tot = 0.
            for t in range(4):
                h = x
                for i in range(3):
                    v[i] = v[i] + (s.bn[i](s.l[i](h)) - v[i]) / 2.; h = Rect.apply(v[i] - .5, not planted); v[i] = v[i] * (1 - h.detach())
                tot = tot + s.out(h)
            return tot / 4
    W = T(8, 20, 5)
    def data(seed): x = T(seed, 64, 20); return x, (x @ W).argmax(1)
    return dict(model=N, data=data, loss=ce, diag=CE)

@case("https://datafield.dev/aibook/part-03/chapter-12/case-study-01.html", "five sigmoid layers and a softmax before the cross-entropy", "sigmoid layers, softmax")
def doc_sigmoid_stack(planted):
    W = T(9, 40, 30); V = T(10, 30, 8)
    def model():
        m = mlpc(40, 128, 96, 64, 48, 32, 8, act=nn.Sigmoid if planted else nn.ReLU)
        for l in m:
            if isinstance(l, nn.Linear) and not planted: nn.init.kaiming_normal_(l.weight, nonlinearity="relu"); nn.init.zeros_(l.bias)
        if not planted:
            with torch.no_grad(): m[-1].weight.mul_(.3)
        return nn.Sequential(m, nn.Softmax(1)) if planted else m
    def data(seed): x = T(seed, 64, 40); return x, (torch.relu(x @ W) @ V).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case(GH + "keras-team/keras/issues/1061", "mixture likelihood through exp and log of the sum, not logsumexp: inf", "loss")
def mdn_exp(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.h = mlpc(1, 64, 64, 9)
        def forward(s, x): p, mu, ls = s.h(torch.tanh(x)).chunk(3, 1); return p.log_softmax(1), mu, ls
    def data(seed):
        g = gen(seed); x = torch.randn(128, 1, generator=g) * .7; c = torch.randint(0, 2, (128, 1), generator=g).float() * 2 - 1; return x, 4 * c * (1 + x ** 2) + 9 * x + 8 + .5 * torch.randn(128, 1, generator=g)
    def loss(o, t):
        lp, mu, ls = o; comp = -.5 * ((t - mu) / ls.exp()) ** 2 - ls - .919
        return -(torch.log((lp.exp() * comp.exp()).sum(1)) if planted else torch.logsumexp(lp + comp, 1)).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "eriklindernoren/Keras-GAN/issues/61", "argmax between the segmentation net and the discriminator", "gen / argmax")
def gan_argmax(planted):
    D = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4))
    class N(nn.Module):
        def __init__(s): super().__init__(); s.gen = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1)); s.dis = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4))
        def forward(s, x):
            g = s.gen(x); m = g.argmax(1, keepdim=True).float() if planted else g.softmax(1)[:, 1:]
            return s.dis(m)
    def data(seed):
        g = gen(seed); y = torch.randint(0, 4, (32,), generator=g); x = torch.randn(32, 3, 16, 16, generator=g) * .6; yy, xx = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        st = torch.stack([(yy // 2 % 2), (xx // 2 % 2), ((yy + xx) // 2 % 2), (yy // 4 % 2)]).float(); x += (st[y] * 2 - 1)[:, None] * torch.tensor([.6, -.6, .3]).view(1, 3, 1, 1); return x, y
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "fxia22/pointnet.pytorch/issues/27", "log_softmax over the batch instead of the classes", "log_softmax")
def pointnet_dim0(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.c = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 1), nn.BatchNorm1d(128)); s.f = nn.Sequential(nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))
        def forward(s, x): return F.log_softmax(s.f(s.c(x).amax(-1)), dim=0 if planted else -1)
    sc = torch.tensor([[1, 1, 1], [1.6, .5, .5], [.5, 1.6, .5], [.5, .5, 1.6], [1.3, 1.3, .3]])
    def data(seed): g = gen(seed); y = torch.randint(0, 5, (32,), generator=g); return (F.normalize(torch.randn(32, 3, 48, generator=g), dim=1) * sc[y][..., None]), y
    return dict(model=N, data=data, loss=lambda o, t: F.nll_loss(o, t))

@case(GH + "tiny-dnn/tiny-dnn/issues/961", "dropout drops with the keep probability: 99.9 % of the units are dropped", "dropout")
def tinydnn_dropout(planted):
    W = T(11, 20, 5)
    def model(): return nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Dropout(.999 if planted else .001), nn.Linear(128, 5))
    def data(seed): x = T(seed, 64, 20); return x, (x @ W).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case(GH + "bennyfri/TFMacCpp/issues/6", "own dropout divides by the drop rate: activations multiplied by 10 in every layer", "DropOut layers")
def tfmac_dropout(planted):
    class Drop(nn.Module):
        def __init__(s, rate): super().__init__(); s.rate = rate
        def forward(s, x):
            if not s.training: return x
            keep = (torch.rand_like(x) < 1 - s.rate).float()
            return x * keep / (s.rate if planted else 1 - s.rate)
    def model(): return nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), Drop(.1), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), Drop(.1), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), Drop(.1), nn.Linear(64, 6))
    P = smooth_c(12, 6, 1, 16) * 1.5
    def data(seed): y = R(seed, 6, (32,)); return P[y] + T(seed + 1, 32, 1, 16, 16), y
    return dict(model=model, data=data, loss=ce, diag=CE)
