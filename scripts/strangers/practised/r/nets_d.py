from mods import *
@case("https://github.com/vwxyzjn/cleanrl/issues/196", "actor's tanh output is not scaled to the action bounds", "actor (output)")
def cleanrl_action_scale(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.actor = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3), nn.Tanh()); s.register_buffer("action_scale", torch.tensor(1. if planted else 3.))
        def forward(s, x): return s.actor(x) * s.action_scale
    def data(s, B=64): x = T(s, B, 8); return x, 3 * torch.tanh(x @ T(51, 8, 3) * .5)
    return dict(model=Net, data=data, loss=lambda a, t: ((a - t) ** 2).sum(-1).mean(), diag={})      # -Q of a critic with its optimum inside the bounds

def ident(seed, B=48, P=12):           # identities in 3 views each
    c = T(52, 200, 20); i = torch.randperm(200, generator=gen(seed))[:B // 3].repeat_interleave(3); W = T(53, 20, 40) / 4.5; return torch.tanh(c[i] @ W) + .8 * T(seed + 1, B, 40), i
class Emb(nn.Module):
    def __init__(s): super().__init__(); s.m = nn.Sequential(nn.Linear(40, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32))
    def forward(s, x): return F.normalize(s.m(x), dim=-1)
def hard(e, y):
    d = torch.cdist(e.detach(), e.detach()); same = y[:, None] == y[None]; p = (d - 9 * (~same).float()).argmax(1); n = (d + 9 * same.float()).argmin(1); return p, n
@case("https://github.com/liorshk/facenet_pytorch/issues/6", "the selected triplets are rebuilt from numpy copies: no gradient", "loss (numpy)")
def facenet_numpy(planted):
    def loss(e, y):
        p, n = hard(e, y)
        a, q, m = (torch.from_numpy(z.detach().numpy()) for z in (e, e[p], e[n])) if planted else (e, e[p], e[n])
        return F.relu((a - q).pow(2).sum(1) - (a - m).pow(2).sum(1) + .5).mean()
    return dict(model=Emb, data=ident, loss=loss, diag={})
@case("https://github.com/KevinMusgrave/pytorch-metric-learning/issues/173", "CircleLoss with m=0.25 and gamma=256: exponentials of the logits summed in float overflow", "loss")
def pml_circle(planted):
    def loss(e, y):
        s_ = e @ e.T; eye = torch.eye(len(e)).bool(); same = (y[:, None] == y[None]) & ~eye; df = y[:, None] != y[None]; m, g = .25, 256
        lp = -g * F.relu(1 + m - s_.detach()) * (s_ - 1 + m); ln = g * F.relu(s_.detach() + m) * (s_ - m)
        if planted: return torch.log(1 + (lp.exp() * same).sum(1) * (ln.exp() * df).sum(1)).mean()
        return F.softplus(lp.masked_fill(~same, -1e9).logsumexp(1) + ln.masked_fill(~df, -1e9).logsumexp(1)).mean()
    return dict(model=Emb, data=ident, loss=loss, diag={})

def surv(seed, B=64):
    x = T(seed, B, 10); h = x @ T(54, 10) * .5 + (x[:, 0] * x[:, 1]); g = gen(seed + 1); t = torch.distributions.Exponential(1.).icdf(torch.rand(B, generator=g).clamp(1e-4, .999)) * (-h).exp(); c = torch.rand(B, generator=g) * 3; return x, torch.stack([torch.minimum(t, c), (t <= c).float()], 1)
class Risk(nn.Module):
    def __init__(s, o=1): super().__init__(); s.m = nn.Sequential(nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, o, bias=o > 1))
    def forward(s, x): return s.m(x)
def cox(o, t): o = o[:, 0]; i = t[:, 0].argsort(descending=True); o, e = o[i], t[i, 1]; return -((o - o.logcumsumexp(0)) * e).sum() / e.sum()
@case("https://github.com/Novartis/torchsurv/issues/35", "Cox loss evaluated on batches of one: the risk set is the patient himself, the loss is 0", "loss (batch of one)")
def torchsurv_one(planted):
    def one(o, t): return torch.stack([cox(a[None], torch.stack([b[0], b[1] * 0 + 1])[None]) * b[1] for a, b in zip(o, t)]).mean()
    return dict(model=Risk, data=surv, loss=one if planted else cox, diag={})
@case("https://github.com/mahmoodlab/PathomicFusion/pull/9", "censor of shape (B,1) broadcast against (B): every patient weighted alike", "loss")
def pathomic_cox(planted):
    def loss(o, t):
        th = o.reshape(-1); Rm = (t[:, 0][None] >= t[:, 0][:, None]).float(); c = t[:, 1:] if planted else t[:, 1]; return -torch.mean((th - torch.log((th.exp() * Rm).sum(1))) * c)
    return dict(model=Risk, data=surv, loss=loss, diag={})
@case("https://github.com/chl8856/DeepHit/issues/9", "the censored term uses the mask of the event term: censored patients count as events", "loss")
def deephit_mask(planted):
    edges = torch.tensor([.1, .25, .5, .8, 1.2, 1.8])
    def loss(o, t):
        k = torch.bucketize(t[:, 0], edges); p = o.softmax(-1); m1 = F.one_hot(k, 7).float(); m2 = (torch.arange(7)[None] > k[:, None]).float(); e = t[:, 1]
        a, b = ((m1 * p).sum(1) + 1e-8).log(), (((m1 if planted else m2 + m1 * (k == 6).float()[:, None]) * p).sum(1) + 1e-8).log(); return -(e * a + (1 - e) * b).mean()
    return dict(model=lambda: Risk(7), data=surv, loss=loss, diag={})

@case("https://github.com/cornellius-gp/gpytorch/issues/1359", "inputs of the kernel are not normalised (thousands against a lengthscale of 0.69)", "raw_lengthscale / inputs")
def gp_inputs(planted):
    class GP(nn.Module):
        def __init__(s): super().__init__(); s.raw_lengthscale, s.raw_scale, s.raw_noise, s.mean = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        def forward(s, x):
            if not planted: x = (x - x.mean(0)) / x.std(0)
            z = x / F.softplus(s.raw_lengthscale); K = F.softplus(s.raw_scale) * (-.5 * torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist") ** 2).exp(); return s.mean.expand(len(x)), K + (F.softplus(s.raw_noise) + 1e-4) * torch.eye(len(x))
    def data(s, B=48): x = T(s, B, 2); return x * torch.tensor([800., 3000.]) + 5000, torch.sin(1.5 * x[:, 0]) + .5 * x[:, 1] + .1 * T(s + 1, B)
    def nll(o, y): m, K = o; L = torch.linalg.cholesky(K); r = (y - m)[:, None]; return (.5 * (r * torch.cholesky_solve(r, L)).sum() + L.diagonal().log().sum()) / len(y) + .5 * math.log(2 * math.pi)
    return dict(model=GP, data=data, loss=nll, diag={})

class Hyper(nn.Module):
    def __init__(s, G=6, i=12, w=48, o=4, hy=48, init="ok", gate=False):
        super().__init__(); s.h = nn.Sequential(nn.Linear(G, hy), nn.ReLU()); s.w1, s.w2 = nn.Linear(hy, i * w, bias=False), nn.Linear(hy, w * o, bias=False); s.b1, s.b2 = nn.Parameter(torch.zeros(w)), nn.Parameter(torch.zeros(o)); s.d = (i, w, o)
        if init == "ok":    # generated weights of the variance of a fan-in initialisation
            with torch.no_grad(): v = s.h(torch.eye(G)).pow(2).sum(1).mean(); nn.init.normal_(s.w1.weight, std=float((2 / i / v) ** .5)); nn.init.normal_(s.w2.weight, std=float((1 / w / v) ** .5))
        else: nn.init.kaiming_normal_(s.w1.weight); nn.init.kaiming_normal_(s.w2.weight)
    def forward(s, x, g): i, w, o = s.d; z = s.h(g); x = F.relu(torch.einsum("bi,biw->bw", x, s.w1(z).view(-1, i, w)) + s.b1); return torch.einsum("bw,bwo->bo", x, s.w2(z).view(-1, w, o)) + s.b2
def goals(seed, B=64): x = T(seed, B, 12); g = R(seed + 1, 6, (B,)); W = T(55, 6, 12, 4) / 3.5; return (x, F.one_hot(g, 6).float()), torch.einsum("bi,bio->bo", x, W[g]) + .3 * x[:, :4].abs()
@case("https://github.com/Unity-Technologies/ml-agents/pull/4990", "hypernetwork's last layers have the default initialisation: generated weights of the wrong scale", "w1/w2")
def mlagents_hyper(planted): return dict(model=lambda: Hyper(init="bad" if planted else "ok"), data=goals, loss=mse, diag=dict(MSE))
@case("https://github.com/wandb/senpai/pull/2385", "hypernetwork produces zero corrections: both factors of the correction start at zero", "down/up (hypernetwork)")
def senpai_zero_hyper(planted):
    class Net(nn.Module):
        def __init__(s, r=8): super().__init__(); s.i, s.o = nn.Linear(12, 64), nn.Linear(64, 4); s.h = nn.Sequential(nn.Linear(6, 32), nn.ReLU()); s.down, s.up = nn.Linear(32, 12 * r), nn.Linear(32, r * 64); s.r = r; nn.init.zeros_(s.up.weight); nn.init.zeros_(s.up.bias); (nn.init.zeros_(s.down.weight), nn.init.zeros_(s.down.bias)) if planted else None
        def forward(s, x, g): z = s.h(g); c = torch.einsum("bi,bir->br", x, s.down(z).view(-1, 12, s.r)); return s.o(F.relu(s.i(x) + torch.einsum("br,brw->bw", c, s.up(z).view(-1, s.r, 64))))
    return dict(model=Net, data=goals, loss=mse, diag=dict(MSE))

@case("https://github.com/lu-group/sbinn/issues/4", "outputs whose orders of magnitude differ a thousandfold without an output transform", "out (scale)")
def sbinn_scale(planted):
    sc = torch.tensor([1., 30., 1000.])
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.m = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)); s.register_buffer("sc", torch.ones(3) if planted else sc)
        def forward(s, t): return s.m(t) * s.sc
    def data(s, B=64): t = torch.rand(B, 1, generator=gen(s)) * 2 - 1; return t, torch.cat([1 + .5 * (3 * t).sin(), 1 + .4 * (4 * t).cos(), 1 + .3 * (2 * t).sin()], 1) * sc
    return dict(model=Net, data=data, loss=lambda o, t: F.mse_loss(o / sc, t / sc), diag={})

class TF(nn.Module):
    def __init__(s, V=20, d=48, L=2, K=6, zero=False, scale=None, gp=False):
        super().__init__(); s.emb = nn.Embedding(V, d); nn.init.normal_(s.emb.weight, std=d ** -.5); s.pos = nn.Parameter(torch.randn(12, d) * .02); s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 2 * d, 0., batch_first=True, norm_first=True), L, norm=nn.LayerNorm(d), enable_nested_tensor=False); s.head = nn.Linear(d, K); s.d = d
        if zero: nn.init.zeros_(s.emb.weight)
    def forward(s, x): return s.head(s.enc(s.emb(x) * s.d ** .5 + s.pos[:x.shape[1]]))
@case("https://github.com/facebookresearch/fairseq/issues/4076", "padding_idx None: constant_(weight[None], 0) zeroes the whole embedding", "emb")
def fairseq_zero_emb(planted):
    def data(s, B=32, Tn=12): x = R(s, 20, (B, Tn)); k = R(56, 6, (20,)); return x, (k[x] + k[x.roll(1, 1)]) % 6
    return dict(model=lambda: TF(zero=planted), data=data, loss=ceseq, diag=dict(SEQ))
@case("https://github.com/gaohongkui/GlobalPointer_pytorch/pull/5", "span logits divided by sqrt(ent_type_size) instead of sqrt(inner_dim)", "dense (logit scale)")
def globalpointer_scale(planted):
    class Net(nn.Module):
        def __init__(s, V=20, d=48, E=2, D=64): super().__init__(); s.tf = TF(V, d, 2, d); s.dense = nn.Linear(d, E * D * 2); s.E, s.D = E, D
        def forward(s, x):
            h = s.tf(x); q, k = s.dense(F.gelu(h)).view(*x.shape, s.E, 2 * s.D).chunk(2, -1); return torch.einsum("bmed,bned->bemn", q, k) / (s.E if planted else s.D) ** .5
    def data(s, B=32, n=12): x = R(s, 20, (B, n)); up = torch.ones(n, n).triu(); k = x % 5; a = ((k == 0)[:, :, None] & (k == 1)[:, None]).float() * up; b = ((k == 2)[:, :, None] & (k == 3)[:, None]).float() * up; return x, torch.stack([a, b], 1)
    def loss(o, t): o, t = o.flatten(2).flatten(0, 1), t.flatten(2).flatten(0, 1); o = (1 - 2 * t) * o; z = torch.zeros_like(o[:, :1]); return (torch.cat([o - t * 1e12, z], 1).logsumexp(1) + torch.cat([o - (1 - t) * 1e12, z], 1).logsumexp(1)).mean()
    return dict(model=Net, data=data, loss=loss, diag={})
