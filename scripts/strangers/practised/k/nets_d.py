from kbase import *
# ---------- MAE
class MAE(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; L = lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0., "gelu", batch_first=True, norm_first=True), 1, enable_nested_tensor=False)
        s.emb, s.pos, s.enc, s.n1 = nn.Linear(16, 32), nn.Parameter(torch.randn(1, 16, 32) * .3), L(), nn.LayerNorm(32)
        s.de, s.mt, s.dpos, s.dec, s.n2, s.pred = nn.Linear(32, 32), nn.Parameter(torch.randn(1, 1, 32) * .02), nn.Parameter(torch.randn(1, 16, 32) * .3), L(), nn.LayerNorm(32), nn.Linear(32, 16)
    def forward(s, p):
        b = p.shape[0]; ids = torch.rand(b, 16).argsort(1); rs = ids.argsort(1); x = s.emb(p) + s.pos; ix = lambda h, i: torch.gather(h, 1, i[..., None].expand(-1, -1, h.shape[-1]))
        x = s.n1(s.enc(ix(x, ids[:, :5]))); x = s.de(x)
        if s.v == "detach": x = x.detach()
        if s.v == "onlymask": x = s.mt.expand(b, 5, -1)
        x = torch.cat([x, s.mt.expand(b, 11, -1)], 1)
        if s.v != "unshuffle": x = ix(x, rs)
        mask = torch.ones(b, 16); mask[:, :5] = 0; mask = torch.gather(mask, 1, rs)
        y = s.pred(s.n2(s.dec(x + s.dpos)))
        return (F.relu(y - 3) if s.v == "relu" else y), mask
@net(unshuffle=("decoder tokens not put back in order (ids_restore)", "dec"), visible=("loss over the visible patches (mask inverted)", "loss"), onlymask=("encoded tokens overwritten by the mask token", "enc/de/mt"),
     relu=("ReLU(y-3) on the predicted patches", "pred"))
def mae(v):
    def data(s):
        g = gen(s); n = 48; c = torch.linspace(-1, 1, 16); a = N(g, n, 3, 1, 1); x = a[:, 0] * c[None, :, None] + a[:, 1] * c[None, None] + .7 * a[:, 2] + .05 * N(g, n, 16, 16)
        p = x.unfold(1, 4, 4).unfold(2, 4, 4).reshape(n, 16, 16); return p, p
    def loss(o, t):
        y, m = o; m = 1 - m if v == "visible" else m; return (((y - t) ** 2).mean(-1) * m).sum() / m.sum()
    return dict(model=lambda: MAE(v), data=data, loss=loss)
# ---------- capsules
class Caps(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.conv = nn.Conv2d(1, 32, 5); s.prim = nn.Conv2d(32, 32, 4, 2); s.W = nn.Parameter(torch.randn(64, 4, 8, 8) * (1e-3 if v == "tiny" else .1))
    def sq(s, x, d): n = (x ** 2).sum(d, keepdim=True); return n / (1 + n) * x / (n + 1e-8).sqrt()
    def forward(s, x):
        h = s.prim(F.relu(s.conv(x))); u = h.view(x.shape[0], 4, 8, 16).permute(0, 1, 3, 2).reshape(x.shape[0], 64, 8); u = s.sq(u, -1)
        uh = torch.einsum("bie,ijef->bijf", u, s.W); b = torch.zeros(x.shape[0], 64, 4)
        for r in range(3):
            c = b.softmax(2); z = (c[..., None] * uh).sum(1); w = s.sq(z, 1 if s.v == "squashdim" else -1)
            if r < 2: b = b + (uh * w[:, None]).sum(-1).detach()
        if s.v == "sumclass": return w.norm(dim=1)[:, :4]
        y = (w ** 2).sum(-1).add(1e-9).sqrt()
        return y.detach() * 0 + y if s.v == "x" else F.softmax(y, 0) if s.v == "softbatch" else y
@net(tiny=("capsule weights N(0, 1e-3²): squash shuts them", "W"), swap=("m+ and m- terms of the margin loss swapped", "loss"), softbatch=("lengths softmaxed over the batch", "W/softmax"),
     sumclass=("norm over the classes, not the vector", "norm"))
def capsule(v):
    def data(s):
        g = gen(s); y = I(g, 4, 48); k = torch.arange(14.); o = [torch.eye(5), torch.eye(5).flip(0), torch.zeros(5, 5), torch.zeros(5, 5)]; o[2][2] = 1; o[3][:, 2] = 1; x = N(g, 48, 1, 14, 14) * .2
        for q in range(48): i, j = int(I(g, 9, 1)), int(I(g, 9, 1)); x[q, 0, i:i + 5, j:j + 5] += o[int(y[q])] * 1.5
        return x, y
    def loss(o, y):
        t = F.one_hot(y, 4).float(); t = 1 - t if v == "swap" else t; return (t * F.relu(.9 - o) ** 2 + .5 * (1 - t) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=lambda: Caps(v), data=data, loss=loss, twin=v in ("sumclass", "softbatch"))
# ---------- hypernetwork
class Hyper(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.h = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 49)); s.w1 = nn.Parameter(torch.zeros(1)); s.f = nn.Sequential(nn.Linear(16, 1))
        if v == "big": nn.init.normal_(s.h[-1].weight, std=30.)
        if v == "zero": nn.init.zeros_(s.h[-1].weight); nn.init.zeros_(s.h[-1].bias)
    def forward(s, c, x):
        p = s.h(c)
        if s.v == "detach": p = nn.Parameter(p.data)
        if s.v == "meanbatch": p = p.mean(0, keepdim=True).expand(c.shape[0], -1)
        w1, b1, w2, b2 = p[:, :16], p[:, 16:32], p[:, 32:48], p[:, 48:]; a = torch.tanh(x[..., None] * w1[:, None] + b1[:, None]); return (a * w2[:, None]).sum(-1) + b2 + 0 * s.w1
@net(detach=("generated weights wrapped in nn.Parameter(p.data)", "h"), big=("generator's last layer N(0, 30²)", "h.2"), zero=("generator's last layer all zero", "h.2"), meanbatch=("weights averaged over the batch", "h"))
def hypernet(v):
    def data(s):
        g = gen(s); c = N(g, 32, 4); x = U(g, 32, 24) * 4 - 2; return (c, x), c[:, :1] * x + c[:, 1:2] * torch.sin(2 * x) + c[:, 2:3]
    return dict(model=lambda: Hyper(v), data=data, loss=lambda o, t: F.mse_loss(o, t))
# ---------- distillation
def mlp(*d): return nn.Sequential(*[q for i in range(len(d) - 1) for q in ((nn.Linear(d[i], d[i + 1]), nn.ReLU()) if i < len(d) - 2 else (nn.Linear(d[i], d[i + 1]),))])
class Stu(nn.Module):
    def __init__(s, v): super().__init__(); s.v = v; s.net = mlp(16, 64, 64, 8)
    def forward(s, x): y = s.net(x); return F.relu(y - 1) if s.v == "relu" else y
@net(nolog=("kl_div of probabilities, not log-probabilities", "loss"), dim0=("softmax of both over the batch", "loss"), sign=("kl_div with student and teacher exchanged and probabilities given", "loss"), relu=("student ends in ReLU(y-1)", "net.4"))
def distill(v):
    W = torch.randn(16, 8, generator=gen(4)); W2 = torch.randn(16, 8, generator=gen(6))
    def data(s): x = N(gen(s), 64, 16); return x, (x @ W) * torch.tanh(x @ W2)
    def loss(o, t):
        d = 0 if v == "dim0" else 1; T = 2.; p = F.softmax(t / T, d)
        if v == "sign": return F.kl_div(p, F.softmax(o / T, d), reduction="batchmean") * 4
        return F.kl_div(F.softmax(o / T, d) if v == "nolog" else F.log_softmax(o / T, d), p, reduction="batchmean") * 4
    return dict(model=lambda: Stu(v), data=data, loss=loss)
# ---------- SASRec
class SAS(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.item = nn.Embedding(41, 32, padding_idx=0); s.pos = nn.Embedding(12, 32); s.q, s.n1, s.n2 = nn.LayerNorm(32), nn.LayerNorm(32), nn.LayerNorm(32)
        s.att = nn.MultiheadAttention(32, 1, batch_first=v != "attnbatch"); s.f1, s.f2 = nn.Linear(32, 32), nn.Linear(32, 32)
        for e in (s.item, s.pos): nn.init.normal_(e.weight, std=.1)
    def forward(s, x, p, n):
        pad = x == 0; h = s.item(x) * 32 ** .5 + s.pos.weight; keep = (pad if s.v == "padinv" else ~pad)[..., None]; h = h * keep
        m = None if s.v == "attnbatch" else torch.ones(12, 12, dtype=torch.bool).triu(1); h = h + s.att(s.q(h), h, h, attn_mask=m, need_weights=False)[0]; h = s.n1(h); h = h + s.f2(F.relu(s.f1(h))); h = s.n2(h * keep)
        ep, en = s.item(p), s.item(n); d = 1 if s.v == "sumdim" else -1
        lp, ln = (h * ep).sum(d), (h * en).sum(d)
        if s.v == "sumdim": lp, ln = lp[:, :12], ln[:, :12]
        if s.v == "sig": lp, ln = lp.sigmoid(), ln.sigmoid()
        return lp, ln
@net(padinv=("timeline mask inverted: real items zeroed", "item/mask"), sumdim=("scores summed over time, not features", "item/sum"), sig=("sigmoid before BCE with logits", "n2/loss"), swap=("positive and negative labels swapped", "loss"))
def sasrec(v):
    def data(s):
        g = gen(s); n = 64; c = I(g, 5, n, 1); q = 1 + c * 8 + I(g, 8, n, 13); L = 5 + I(g, 8, n, 1); q = q * (torch.arange(13) >= 12 - L); neg = 1 + I(g, 40, n, 12); return (q[:, :-1], q[:, 1:], neg), (q[:, 1:] > 0).float()
    def loss(o, t):
        a, b = o
        if v == "swap": a, b = b, a
        if v == "sumdim": t = torch.ones_like(a)
        return ((F.softplus(-a) + F.softplus(b)) * t).sum() / t.sum()
    return dict(model=lambda: SAS(v), data=data, loss=loss, twin=v in ("sumdim", "sig"))
# ---------- DeepONet
class DON(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.branch, s.trunk, s.b = mlp(16, 48, 24), mlp(1, 48, 48, 24), nn.Parameter(torch.zeros(1))
        if v == "bothzero":
            for m in (s.branch[-1], s.trunk[-1]): nn.init.zeros_(m.weight); nn.init.zeros_(m.bias)
    def forward(s, u, x):
        b, t = s.branch(u), s.trunk(x)
        if s.v == "relu": b, t = F.relu(b), F.relu(t)
        if s.v == "sumbatch": return torch.einsum("bp,bnp->n", b, t).expand(u.shape[0], -1) + s.b
        if s.v == "normdim": b = F.softmax(b, 0)
        return torch.einsum("bp,bnp->bn", b, t) + s.b
@net(bothzero=("last layers of branch and trunk both zero", "branch.2/trunk.4"), relu=("ReLU after the last layers of branch and trunk", "branch/trunk"), sumbatch=("product summed over the batch as well", "einsum"), normdim=("softmax of the branch over the batch", "branch"))
def deeponet(v):
    def data(s):
        g = gen(s); c = N(g, 32, 3); k = torch.linspace(0, 1, 16); f = lambda z: c[:, :1] + c[:, 1:2] * torch.cos(3 * z) * 1.5 + c[:, 2:] * torch.sin(5 * z) * 2.; x = U(g, 32, 20)
        F_ = lambda z: c[:, :1] * z + c[:, 1:2] * torch.sin(3 * z) / 2 + c[:, 2:] * (1 - torch.cos(5 * z)) * .4; return (f(k[None]), x[..., None]), F_(x) * 2
    return dict(model=lambda: DON(v), data=data, loss=lambda o, t: F.mse_loss(o, t))
# ---------- PointNet
class PN(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; cb = lambda i, o: (nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()); s.f = nn.Sequential(*cb(3, 32), *cb(32, 64), *cb(64, 64)); s.h = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))
    def forward(s, p):
        x = p.reshape(p.shape[0], 3, -1) if s.v == "view" else p.transpose(1, 2); x = s.f(x)
        x = x.max(1)[0] if s.v == "maxchan" else x.max(0)[0].t().expand(p.shape[0], -1, -1).mean(1) if s.v == "maxbatch" else x.max(2)[0]
        y = s.h(x); y = F.softmax(y, 1) if s.v == "probs" else y
        if s.v == "shuffle": y = y[torch.arange(y.shape[0] - 1, -1, -1)]
        return y
@net(view=("points (B,N,3) viewed as (B,3,N)", "f.0/view"), maxchan=("max over channels, not points", "max"), maxbatch=("max over the batch", "max"), shuffle=("predictions in another order than the labels", "order"))
def pointnet(v):
    def data(s):
        g = gen(s); n = 32; y = I(g, 5, n); p = N(g, n, 64, 3); sc = torch.tensor([[1, 1, 1], [1, 1, .2], [1, .2, 1], [.2, 1, 1], [.6, .6, .6]]); p = p * sc[y][:, None]; return p + .1 * N(g, n, 1, 3), y
    return dict(model=lambda: PN(v), data=data, loss=lambda o, t: F.cross_entropy(o, t))
