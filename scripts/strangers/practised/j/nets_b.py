from base import *
from nets_a import mlp, vec, imgs, bce, bcel
def seg(B=8, H=12, s0=3):
    def data(s):
        x = T(s, B, 1, H, H); k = F.avg_pool2d(x, 3, 1, 1); return x, (k > .25).float()
    return data
def convs(o, c=16): return nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, o, 1))

@case("https://github.com/yz93/LAVT-RIS/issues/25", "both layers of the language gate zero: gate and its gradient stay 0", "gate.0,gate.2")
def lavt_gate(bug):
    def data(s):
        x = T(s, 16, 1, 8, 8); l = T(s + 1, 16, 8); return (x, l), (x * l[:, 0].sign()[:, None, None, None] > 0).float()
    def f(m, x, l):
        v = m.v(x); r = m.l(l)[:, :, None, None] * v; r = r.permute(0, 2, 3, 1)
        g = torch.tanh(m.g2(m.g1(r).relu())) * r
        return m.h((v + g.permute(0, 3, 1, 2)).relu())
    def mk():
        g1, g2 = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False); nn.init.zeros_(g2.weight)
        if bug: nn.init.zeros_(g1.weight)
        return M(f, v=nn.Conv2d(1, 16, 3, padding=1), l=nn.Linear(8, 16), g1=g1, g2=g2, h=nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 1, 1)))
    return dict(model=mk, data=data, loss=bcel)

@case("https://github.com/vanvalenlab/deepcell-tf/issues/624", "ReLU on the single-channel logits: sigmoid never below 0.5", "out/relu")
def relu_bce(bug):
    return dict(model=lambda: M(lambda m, x: m.n(x).relu() if bug else m.n(x), n=convs(1)), data=seg(), loss=bcel)

@case("https://github.com/MrGiovanni/ModelsGenesis/pull/8", "softmax over the width instead of the channels", "softmax")
def softmax_W(bug):
    d0 = seg()
    def data(s): x, t = d0(s); return x, t[:, 0].long() + (x[:, 0] > 1).long()
    return dict(model=lambda: M(lambda m, x: m.n(x).softmax(-1 if bug else 1), n=convs(3)), data=data, loss=lambda o, t: F.nll_loss((o + 1e-7).log(), t))

@case("https://github.com/hustvl/YOLOP/issues/141", "sigmoid in the model and again in BCEWithLogits", "sigmoid")
def double_sigmoid(bug):
    return dict(model=lambda: M(lambda m, x: m.n(x).sigmoid() if bug else m.n(x), n=convs(1)), data=seg(), loss=bcel)

@case("https://github.com/gcr/torch-residual-networks/issues/1", "ReLU just before LogSoftMax", "relu on logits")
def relu_logits(bug):
    def mk():
        class Bl(nn.Module):
            def __init__(s): super().__init__(); s.a, s.b = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1); s.n, s.k = nn.BatchNorm2d(16), nn.BatchNorm2d(16)
            def forward(s, x): return (x + s.k(s.b(s.n(s.a(x)).relu()))).relu()
        n = [nn.Conv2d(1, 16, 3, padding=1), Bl(), Bl(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)]
        return nn.Sequential(*n, *([nn.ReLU()] if bug else []), nn.LogSoftmax(-1))
    return dict(model=mk, data=imgs(32, H=12, noise=.8), loss=lambda o, t: F.nll_loss(o, t))

@case("https://github.com/jackyko1991/vnet-tensorflow/issues/12", "residual adds x to x: the skip is lost", "bn")
def vnet_xx(bug):
    class Bl(nn.Module):
        def __init__(s): super().__init__(); s.c, s.n = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        def forward(s, x): h = s.c(x); return (h + s.n(h) if bug else s.n(h) + x).relu()
    return dict(model=lambda: nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), Bl(), Bl(), Bl(), nn.Conv2d(16, 1, 1)), data=seg(), loss=bcel)

@case("https://github.com/FluxML/model-zoo/pull/147", "sign of log sigma wrong in the KL: unbounded below", "KL/logvar head")
def vae_klsign(bug):
    W = T(2, 4, 30)
    def data(s): x = torch.tanh(T(s, 32, 4) @ W); return x, x
    def f(m, x):
        mu, ls = m.e(x).chunk(2, -1); z = mu + ls.exp() * torch.randn(mu.shape); return m.d(z), mu, ls
    def mkl(sg):
        def loss(o, t): r, mu, ls = o; return F.mse_loss(r, t, reduction="sum") / len(t) + .5 * ((2 * ls).exp() + mu ** 2 - 1 + sg * 2 * ls).sum(1).mean()
        return loss
    return dict(model=lambda: M(f, e=mlp(30, 64, 16), d=mlp(8, 64, 30)), data=data, loss=mkl(1 if bug else -1))

@case("https://github.com/mlpack/mlpack/pull/1813", "cross-entropy takes the log of unscaled logits: NaN", "out/loss")
def log_logits(bug):
    d0 = imgs(32, C=2, noise=1.5, pos=False)
    def data(s): x, t = d0(s); return x, t.float()[:, None]
    def loss(o, t):
        if not bug: return bcel(o, t)
        return -(t * o.log() + (1 - t) * (1 - o).log()).mean()
    return dict(model=lambda: nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 1)), data=data, loss=loss)

@case("https://github.com/AppliedDataSciencePartners/WorldModels/issues/12", "reconstruction is a mean over pixels, KL weighs too much: posterior collapses", "loss/encoder")
def vae_mean(bug):
    W = T(2, 4, 144)
    def data(s): x = torch.sigmoid(T(s, 32, 4) @ W); return x, x
    def f(m, x): mu, lv = m.e(x).chunk(2, -1); return m.d(mu + (.5 * lv).exp() * torch.randn(mu.shape)).sigmoid(), mu, lv
    def loss(o, t):
        r, mu, lv = o; kl = -.5 * (1 + lv - mu ** 2 - lv.exp())
        return (10 * F.mse_loss(r, t) + kl.mean()) if bug else ((r - t).square().sum(1) + .1 * kl.sum(1)).mean()
    return dict(model=lambda: M(f, e=mlp(144, 64, 16), d=mlp(8, 64, 144)), data=data, loss=loss)

@case("https://github.com/dragen1860/IntroVAE-Pytorch/issues/3", "fakes detached before the encoder: the decoder gets no gradient", "decoder")
def introvae(bug):
    W = T(2, 4, 20)
    def data(s): return T(s, 32, 6), torch.tanh(T(s + 1, 32, 4) @ W)
    def f(m, z): x = m.dec(z); x = x.detach() if bug else x; return m.enc(x).chunk(2, -1)
    def loss(o, t): mu, lv = o; return (-.5 * (1 + lv - mu ** 2 - lv.exp())).sum(1).mean()
    def mk():
        torch.manual_seed(1); e = mlp(20, 32, 12); nn.init.normal_(e[0].weight, std=.5); nn.init.normal_(e[2].weight, std=.5)
        for p in e.parameters(): p.requires_grad_(False)
        return M(f, dec=mlp(6, 32, 20), enc=e)
    return dict(model=mk, data=data, loss=loss)

@case("https://github.com/lucidrains/CoCa-pytorch/issues/6", "extractor detaches: image encoder never trained", "image encoder")
def coca_detach(bug):
    tm = T(3, 40, 1, 10, 10)
    def data(s):
        k = torch.stack([torch.randperm(40, generator=gen(s))[:24]])[0]
        return (tm[k] + 1.5 * T(s + 1, 24, 1, 10, 10), k), torch.arange(24)
    def f(m, x, k):
        a = m.img(x); a = a.detach() if bug else a
        return F.normalize(m.p(a), dim=-1) @ F.normalize(m.txt(k), dim=-1).T * 10
    def mk(): return M(f, img=nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), p=nn.Linear(32, 32, bias=False), txt=nn.Embedding(40, 32))
    return dict(model=mk, data=data, loss=ce)

@case("https://github.com/fawazsammani/knowing-when-to-look-adaptive-attention/issues/6", "feature map viewed as (B, pixels, channels) without a permute", "view before attention")
def view_noperm(bug):
    def data(s):
        x = T(s, 32, 3, 7, 7, k=.3); t = R(s + 1, 4, (32,)); q = R(s + 2, 49, (32,)); i = torch.arange(32)
        x[i, :, q // 7, q % 7] += 2.; x[i, 0, q // 7, q % 7] += 3 * (t % 2).float(); x[i, 1, q // 7, q % 7] += 3 * (t // 2).float()
        return x, t
    def f(m, x):
        h = m.c(x).relu(); h = h.view(len(x), 49, 32) if bug else h.flatten(2).transpose(1, 2)
        a = m.at(torch.tanh(m.p(h))).softmax(1); return m.o((a * h).sum(1))
    return dict(model=lambda: M(f, c=nn.Conv2d(3, 32, 1), p=nn.Linear(32, 32), at=nn.Linear(32, 1), o=nn.Linear(32, 4)), data=data, loss=ce, diag=CE)

@case("https://github.com/vsitzmann/siren/issues/19", "coordinates not normalised to (-1, 1) before sines of omega 30", "first layer/input")
def siren_in(bug):
    def data(s): x = torch.rand(128, 2, generator=gen(s)) * 64; u = x / 32 - 1; return x, torch.sin(4 * u[:, :1]) * torch.cos(3 * u[:, 1:])
    class S(nn.Module):
        def __init__(s, a, b, first=False):
            super().__init__(); s.l = nn.Linear(a, b); w = 1 / a if first else math.sqrt(6 / a) / 30; nn.init.uniform_(s.l.weight, -w, w)
        def forward(s, x): return torch.sin(30 * s.l(x))
    return dict(model=lambda: M(lambda m, x: m.n(x if bug else (x / 32 - 1) * .3), n=nn.Sequential(S(2, 64, True), S(64, 64), nn.Linear(64, 1))), data=data, loss=mse)

@case("https://github.com/sauradip/STALE/issues/16", "background embedding empty (zeros) and divided by its norm: NaN", "bg")
def stale_bg(bug):
    cl = T(9, 5, 32)
    def data(s): t = R(s, 6, (32,)); x = torch.cat([cl, T(10, 1, 32)])[t] + 1.0 * T(s + 1, 32, 32); return x, t
    def f(m, x):
        e = torch.cat([m.cl, m.bg]); e = e / e.norm(dim=-1, keepdim=True); h = m.v(x); return h / h.norm(dim=-1, keepdim=True) @ e.T * 10
    def mk():
        b = nn.Parameter(torch.zeros(1, 32))
        if not bug: nn.init.kaiming_uniform_(b)
        return M(f, v=mlp(32, 64, 32), bg=b, cl=nn.Parameter(T(11, 5, 32)))
    return dict(model=mk, data=data, loss=ce, diag=CE)

@case("https://github.com/mkocabas/focal-loss-keras/issues/17", "focal loss takes log of a saturated probability without eps", "loss/log")
def focal_nan(bug):
    d0 = seg()
    def data(s): x, t = d0(s); return x * 100, t
    def loss(p, t):
        e = 0 if bug else 1e-7; p1 = torch.where(t == 1, p, torch.ones_like(p)); p0 = torch.where(t == 0, p, torch.zeros_like(p))
        return -(.25 * (1 - p1) ** 2 * (p1 + e).log()).mean() - (.75 * p0 ** 2 * (1 - p0 + e).log()).mean()
    return dict(model=lambda: M(lambda m, x: m.n(x).sigmoid(), n=convs(1)), data=data, loss=loss)

@case("https://github.com/huggingface/diffusers/issues/13703", "time step never reaches the network", "time embedding")
def time_blind(bug):
    def data(s):
        x0 = T(s, 64, 1).sign() * torch.ones(1, 16) * (1 + .1 * T(s + 3, 64, 16)); n = T(s + 1, 64, 16); t = torch.rand(64, 1, generator=gen(s + 2))
        a = torch.cos(t * math.pi / 2); return ((a * x0 + (1 - a ** 2).sqrt() * n)[:, None], t), n[:, None]
    def f(m, x, t):
        e = m.te(torch.cat([t * 0 if bug else torch.sin(t * k) for k in (1, 2, 4, 8)], 1))
        h = m.a(x); h = h if bug else h + e[:, :, None]; h = m.b(h.relu()); return m.c((h if bug else h * (1 + e[:, :, None])).relu())
    return dict(model=lambda: M(f, te=mlp(4, 32, 32), a=nn.Conv1d(1, 32, 5, padding=2), b=nn.Conv1d(32, 32, 5, padding=2), c=nn.Conv1d(32, 1, 5, padding=2)), data=data, loss=mse)

@case("https://github.com/cxhernandez/molencoder/pull/4", "latent repeated along a new first dimension and reshaped: rows of other examples", "repeat")
def molrepeat(bug):
    W = T(4, 6, 8 * 5)
    def data(s): z = T(s, 32, 6); x = (z @ W).view(32, 8, 5); t = x.argmax(-1); return F.one_hot(t, 5).float().flatten(1), t
    def f(m, x):
        z = m.e(x)
        r = z.expand(8, *z.shape).reshape(len(z), 8, -1) if bug else z[:, None].expand(-1, 8, -1)
        return m.o(m.g(r)[0])
    return dict(model=lambda: M(f, e=mlp(40, 64, 24), g=nn.GRU(24, 64, batch_first=True), o=nn.Linear(64, 5)), data=data, loss=ceseq, diag=dict(loss="cross-entropy", class_dim=-1))

@case("https://github.com/VincentStimper/normalizing-flows/pull/28", "sign of log det wrong in forward: reverse KL unbounded", "log det")
def nf_sign(bug):
    def data(s): z = T(s, 64, 4); return z, z
    def f(m, z):
        ld = 0
        for n in m.ns:
            a, b = z.chunk(2, -1); sc, sh = n(a).chunk(2, -1); sc = torch.tanh(sc) * 2; z = torch.cat([b * sc.exp() + sh, a], -1); ld = ld + sc.sum(-1)
        return z, ld
    def loss(o, t):
        x, ld = o; lp = -.5 * ((x - 1.5) / .7).square().sum(-1); return ((ld if bug else -ld) - lp).mean()
    def mk():
        m = M(f, ns=nn.ModuleList(mlp(2, 32, 4) for _ in range(4)))
        for n in m.ns: nn.init.zeros_(n[2].weight); nn.init.zeros_(n[2].bias)
        return m
    return dict(model=mk, data=data, loss=loss)

@case("https://github.com/casperkaae/parmesan/pull/21", "prior evaluated at z0 instead of zK", "flow/loss")
def flow_z0(bug):
    W = T(2, 4, 30)
    def data(s): x = torch.tanh(T(s, 32, 4) @ W); return x, x
    def f(m, x):
        mu, lv = m.e(x).chunk(2, -1); z0 = z = mu + (.5 * lv).exp() * torch.randn(mu.shape); ld = 0
        for i in range(3): h = torch.tanh(z * m.w[i] + m.b[i]); ld = ld + (1 + m.u[i] * m.w[i] * (1 - h ** 2)).abs().clamp(min=1e-6).log().sum(1); z = z + m.u[i] * h
        return m.d(z), z0, z, mu, lv, ld
    def loss(o, t):
        r, z0, zk, mu, lv, ld = o; lq = (-.5 * lv - (z0 - mu) ** 2 / (2 * lv.exp())).sum(1) - ld; zp = z0 if bug else zk
        return ((r - t).square().sum(1) + lq + .5 * zp.square().sum(1)).mean()
    return dict(model=lambda: M(f, e=mlp(30, 64, 16), d=mlp(8, 64, 30), w=nn.Parameter(T(5, 3, 8, k=.5)), u=nn.Parameter(T(6, 3, 8, k=.5)), b=nn.Parameter(T(7, 3, 8))), data=data, loss=loss)
