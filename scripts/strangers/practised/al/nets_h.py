from base import *

# ---------- vision, tabular, 3D, Bayesian, RL, initialisation
class ChanLN(nn.Module):
    def __init__(s, d): super().__init__(); s.g = nn.Parameter(torch.ones(1, d, 1, 1)); s.b = nn.Parameter(torch.zeros(1, d, 1, 1))
    def forward(s, x): v = x.var(1, unbiased=False, keepdim=True); return (x - x.mean(1, keepdim=True)) / (v + 1e-5).sqrt() * s.g + s.b
class ESA(nn.Module):
    def __init__(s, d, H=2):
        super().__init__(); s.H = H; s.to_q = nn.Conv2d(d, d, 1, bias=False); s.to_kv = nn.Conv2d(d, 2 * d, 2, stride=2, bias=False); s.to_out = nn.Conv2d(d, d, 1, bias=False)
    def forward(s, x):
        B, d, h, w = x.shape; sp = lambda t: t.flatten(2).view(B, s.H, d // s.H, -1).transpose(2, 3)
        k, v = s.to_kv(x).chunk(2, 1); o = F.scaled_dot_product_attention(sp(s.to_q(x)), sp(k), sp(v)); return s.to_out(o.transpose(2, 3).reshape(B, d, h, w))
class SegF(nn.Module):
    def __init__(s, bad):
        super().__init__(); N = (lambda d: nn.InstanceNorm2d(d)) if bad else ChanLN
        s.emb = nn.ModuleList([nn.Conv2d(3, 24, 4, stride=2, padding=1), nn.Conv2d(24, 32, 2, stride=2)])
        s.na, s.nf, s.att, s.ff = (nn.ModuleList() for _ in range(4))
        for d in (24, 32):
            s.na.append(N(d)); s.nf.append(N(d)); s.att.append(ESA(d)); s.ff.append(nn.Sequential(nn.Conv2d(d, 2 * d, 1), nn.Conv2d(2 * d, 2 * d, 3, padding=1, groups=2 * d), nn.Conv2d(2 * d, 2 * d, 1), nn.GELU(), nn.Conv2d(2 * d, d, 1)))
        s.fuse = nn.ModuleList([nn.Conv2d(24, 32, 1), nn.Sequential(nn.Conv2d(32, 32, 1), nn.Upsample(scale_factor=2))]); s.seg = nn.Sequential(nn.Conv2d(64, 32, 1), nn.Conv2d(32, 4, 1))
    def forward(s, x):
        outs = []
        for i in range(2):
            x = s.emb[i](x); x = x + s.att[i](s.na[i](x)); x = x + s.ff[i](s.nf[i](x)); outs.append(s.fuse[i](x))
        return s.seg(torch.cat(outs, 1))
_col = T(91, 4, 3)
def segdata(s, B=16):
    y = R(s, 4, (B, 4, 4)).repeat_interleave(2, 1).repeat_interleave(2, 2); big = y.repeat_interleave(2, 1).repeat_interleave(2, 2)
    x = _col[big].permute(0, 3, 1, 2) + T(s + 1, B, 3, 16, 16, k=.6); return x / x.std(), y
@case("https://github.com/lucidrains/segformer-pytorch/issues/7", "InstanceNorm2d is used where the paper has LayerNorm", "the norms (na, nf)")
def segformer_instancenorm(planted): return dict(model=lambda: SegF(planted), data=segdata, loss=ce, lr=3e-3)

@case("https://github.com/kornia/kornia/pull/2393", "softmax focal loss multiplies every class by the same alpha (no 1-alpha for the background class)", "the loss (alpha)")
def kornia_focal_alpha(planted):
    mk = lambda: nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 3, 1))
    def data(s):
        g = gen(s); y = torch.randint(0, 3, (16, 4, 4), generator=g) * (torch.rand(16, 4, 4, generator=g) < .4); y = y.repeat_interleave(3, 1).repeat_interleave(3, 2)
        x = _col[y].permute(0, 3, 1, 2) + T(s + 1, 16, 3, 12, 12, k=.6); return x / x.std(), y
    def loss(o, t):
        lp = F.log_softmax(o, 1); a = torch.tensor([.25, .25, .25] if planted else [.75, .25, .25]).view(1, 3, 1, 1)
        return (-a * (1 - lp.exp()) ** 2 * lp * F.one_hot(t, 3).permute(0, 3, 1, 2)).sum(1).mean()
    return dict(model=mk, data=data, loss=loss, judge=lambda m, x, t: float(ce(m(x), t)), lr=3e-3)

@case("https://github.com/scikit-learn/scikit-learn/issues/6076", "quantile loss: for y <= pred the difference keeps its sign, so the loss rewards overshooting without limit", "the loss (quantile)")
def quantile_sign(planted):
    W = T(101, 10, 1)
    mk = lambda: nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
    def data(s): x = T(s, 64, 10); return x, torch.tanh(x @ W / 2) * 1.5 + T(s + 1, 64, 1, k=.4)
    def q(bad):
        def loss(o, t):
            d = t - o; m = t > o
            return (.9 * d[m].sum() + .1 * (d[~m].sum() if bad else -d[~m].sum())) / t.shape[0]
        return loss
    return dict(model=mk, data=data, loss=q(planted), judge=lambda m, x, t: float(q(False)(m(x), t)), lr=3e-3)

class MLP(nn.Module):
    def __init__(s, i, w, n, bad):
        super().__init__(); s.layers = nn.ModuleList([nn.Linear(i if k == 0 else w, w) for k in range(n)]); s.bad = bad
    def forward(s, x):
        for k, l in enumerate(s.layers):
            x = l(x)
            if k < len(s.layers) - 1 or not s.bad: x = F.relu(x)
        return x
class NeRF(nn.Module):
    def __init__(s, bad, w=48, n=12):
        super().__init__(); s.mlp_base = MLP(27, w, 3, bad); s.density = nn.Linear(w, 1); s.mlp_head = MLP(w + 15, w, 1, bad); s.rgb = nn.Linear(w, 3); s.register_buffer("t", torch.linspace(.5, 3.5, n))
    def enc(s, x, L): return torch.cat([x] + [f(2 ** k * x) for k in range(L) for f in (torch.sin, torch.cos)], -1)
    def forward(s, o, d):
        p = o[:, None] + d[:, None] * s.t[None, :, None]
        h = s.mlp_base(s.enc(p, 4)); sig = F.softplus(s.density(h))[..., 0]
        c = torch.sigmoid(s.rgb(s.mlp_head(torch.cat([h, s.enc(d, 2)[:, None].expand(-1, len(s.t), -1)], -1))))
        a = 1 - torch.exp(-sig * (s.t[1] - s.t[0])); T_ = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a[:, :-1] + 1e-10], 1), 1)
        return ((a * T_)[..., None] * c).sum(1)
@case("https://github.com/nerfstudio-project/nerfstudio/pull/930", "the MLP does not apply its output activation (ReLU)", "mlp_base / mlp_head output activation")
def nerf_mlp_out_activation(planted):
    def data(s):
        B = 64; o = F.normalize(T(s, B, 3), dim=-1) * 2; aim = T(s + 1, B, 3, k=.5); d = F.normalize(aim - o, dim=-1)
        b = (o * d).sum(-1); disc = b ** 2 - (o.pow(2).sum(-1) - .64); hit = disc > 0; t = -b - disc.clamp(min=0).sqrt(); p = o + d * t[:, None]
        return (o, d), torch.where(hit[:, None], .5 + .45 * torch.sin(3 * p), torch.zeros(B, 3))
    return dict(model=lambda: NeRF(planted), data=data, loss=mse, lr=3e-3)

class BayesLin(nn.Module):
    def __init__(s, i, o, bad):
        super().__init__(); k = i ** -.5; s.bad = bad
        s.mu = nn.Parameter(torch.empty(o, i + 1).uniform_(-k, k)); s.rho = nn.Parameter(torch.full((o, i + 1), -4.))
    def forward(s, x):
        sd = F.softplus(s.rho); w = s.mu + sd * torch.randn_like(sd)
        lq = torch.distributions.Normal(s.mu, sd).log_prob(w).sum(); n1, n2 = (torch.distributions.Normal(0., q).log_prob(w) for q in (.5, .1)); mx = torch.maximum(n1, n2)
        e1, e2 = torch.exp(n1 - mx), torch.exp(n2 - mx)
        like = .5 + e1 + .5 + e2 if s.bad else .5 * e1 + .5 * e2
        return F.linear(x, w[:, :-1], w[:, -1]), lq - (mx + torch.log(like)).sum()
class BNN(nn.Module):
    def __init__(s, bad): super().__init__(); s.l1, s.l2, s.l3 = BayesLin(10, 32, bad), BayesLin(32, 32, bad), BayesLin(32, 4, bad)
    def forward(s, x):
        h, a = s.l1(x); h, b = s.l2(F.relu(h)); o, c = s.l3(F.relu(h)); return o, a + b + c
@case("https://github.com/JavierAntoran/Bayesian-Neural-Networks/issues/15", "the spike-and-slab prior adds its mixture weights (pi + exp(..)) instead of multiplying them", "the prior's log-likelihood (mixture) in the loss")
def bnn_prior_plus(planted):
    W = T(111, 10, 4)
    def data(s): x = T(s, 64, 10); return x, (x @ W + .3 * T(s + 1, 64, 4)).argmax(-1)
    return dict(model=lambda: BNN(planted), data=data, loss=lambda o, t: ce(o[0], t) + o[1] / 20000, judge=lambda m, x, t: float(ce(m(x)[0], t)), lr=3e-3)

class DuelQR(nn.Module):
    def __init__(s, bad, A=3, N=11):
        super().__init__(); s.A, s.N = A, N; s.body = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU()); s.value = nn.Linear(48, N); s.adv = nn.Linear(48, A * N); s.bad = bad
    def forward(s, x):
        h = s.body(x); v = s.value(h)[:, None]; a = s.adv(h).view(-1, s.A, s.N)
        return v + a - a.mean(-1 if s.bad else 1, keepdim=True)
@case("https://github.com/facebookresearch/ReAgent/pull/256", "the dueling network averages the advantage over dim=-1 (the atoms) and not over dim=1 (the actions)", "dueling combination (adv mean)")
def dueling_qr_mean_dim(planted):
    W = T(121, 6, 3)
    def data(s):
        x = T(s, 64, 6); a = R(s + 1, 3, (64,)); r = torch.tanh((x @ W)[torch.arange(64), a] / 1.5) * 1.5 + .3 * T(s + 2, 64); return x, torch.stack([a.float(), r], -1)
    tau = (torch.arange(11.) + .5) / 11
    def loss(o, t):
        q = o[torch.arange(len(o)), t[:, 0].long()]; d = t[:, 1:] - q; h = torch.where(d.abs() < 1, .5 * d ** 2, d.abs() - .5)
        return ((tau - (d < 0).float()).abs() * h).sum(-1).mean()
    return dict(model=lambda: DuelQR(planted), data=data, loss=loss, lr=3e-3)

@case("https://github.com/LBANN/lbann/pull/316", "the He initialiser draws with variance 1/fan_in (LeCun's) and not 2/fan_in", "the weights' initialisation")
def he_is_lecun(planted):
    def mk():
        m = nn.Sequential(*[l for k in range(7) for l in (nn.Linear(16 if k == 0 else 64, 64), nn.ReLU())], nn.Linear(64, 5))
        for l in m:
            if isinstance(l, nn.Linear): nn.init.normal_(l.weight, std=((1. if planted else 2.) / l.in_features) ** .5); nn.init.zeros_(l.bias)
        return m
    W = T(131, 16, 5)
    def data(s): x = T(s, 64, 16); return x, (x @ W).argmax(-1)
    return dict(model=mk, data=data, loss=ce, lr=1e-3)
