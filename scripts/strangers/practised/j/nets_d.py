from base import *
from nets_a import mlp, vec, imgs, bce, bcel
@case("https://github.com/huggingface/transformers/pull/42099", "sigma of low-variance series clamped to 1 instead of eps: instance normalisation lost", "normalisation")
def timesfm_sigma(bug):
    def data(s):
        ph = T(s, 32, 1) * 3; f = torch.rand(32, 1, generator=gen(s + 1)) * .3 + .2; n = torch.arange(40.); y = 1e-3 * torch.sin(f * n + ph) + .05 * T(s + 2, 32, 1); return y[:, :32], y[:, 32:]
    def f(m, x):
        mu = x.mean(1, keepdim=True); sd = x.std(1, keepdim=True); sd = torch.where(sd < 1e-2, torch.ones_like(sd), sd) if bug else sd.clamp(min=1e-6)
        return m.n((x - mu) / sd) * sd + mu
    return dict(model=lambda: M(f, n=mlp(32, 128, 8)), data=data, loss=lambda o, t: ((o - t) / 1e-3).square().mean())

@case("https://github.com/kwea123/nerf_pl/issues/75", "ReLU density that starts at zero everywhere: no gradient", "sigma head")
def nerf_relu(bug):
    def data(s):
        o = torch.rand(32, 2, generator=gen(s)) * 2 - 1; z = torch.linspace(-1, 1, 16); p = torch.cat([o[:, None].expand(-1, 16, -1), z[None, :, None].expand(32, -1, -1)], -1)
        hit = (o.norm(dim=-1, keepdim=True) < .6).float(); return p, 1 - hit * (1 - torch.sigmoid(o.sum(1, keepdim=True) + torch.tensor([[0., 1., -1.]])))
    def f(m, p):
        e = torch.cat([p] + [g(p * k) for k in (1, 2, 4) for g in (torch.sin, torch.cos)], -1); h = m.n(e); sg = m.s_(h)[..., 0]; sg = sg.relu() if bug else F.softplus(sg); c = m.c(h).sigmoid()
        a = 1 - torch.exp(-sg * .8); T_ = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]; w = a * T_; return (w[..., None] * c).sum(1) + 1 - w.sum(1, keepdim=True)
    def mk():
        sl = nn.Linear(64, 1); nn.init.normal_(sl.weight, std=.05); nn.init.constant_(sl.bias, -.7)
        return M(f, n=nn.Sequential(nn.Linear(21, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()), s_=sl, c=nn.Linear(64, 3))
    return dict(model=mk, data=data, loss=mse)

@case("https://github.com/RElbers/info-nce-pytorch/pull/17", "temperature not applied to the positive logit", "positive logit")
def nce_posT(bug):
    tm = T(3, 64, 20); P = T(9, 20, 20) * .3
    def data(s): k = torch.randperm(64, generator=gen(s))[:32]; return (tm[k] + .4 * T(s + 1, 32, 20), tm[k] @ P + .4 * T(s + 2, 32, 20)), torch.zeros(32, dtype=torch.long)
    def f(m, a, b):
        S = F.normalize(m.a(a), dim=-1) @ F.normalize(m.b(b), dim=-1).T; n = S.shape[0]; pos = S.diagonal()[:, None]; neg = S[~torch.eye(n, dtype=torch.bool)].view(n, n - 1) / .1
        return torch.cat([pos if bug else pos / .1, neg], 1)
    return dict(model=lambda: M(f, a=mlp(20, 64, 32), b=mlp(20, 64, 32)), data=data, loss=ce, diag=CE)

@case("https://github.com/HIPS/autograd/pull/247", "discriminator normalises its batch before the first non-linearity: mean and scale of the data are invisible", "first BatchNorm")
def gan_bn(bug):
    def data(s): return (1.2 + .5 * T(s, 32, 10), T(s + 1, 32, 10)), torch.zeros(32)
    def f(m, r, k): return torch.cat([m.n(r), m.n(k)], 1)
    def loss(o, t): return (F.softplus(-o[:, 0]) + F.softplus(o[:, 1])).mean()
    def mk(): return M(f, n=nn.Sequential(*([nn.BatchNorm1d(10)] if bug else []), nn.Linear(10, 32), nn.LeakyReLU(.2), nn.Linear(32, 1)))
    return dict(model=mk, data=data, loss=loss)

@case("https://github.com/sentinel-hub/field-delineation/issues/4", "softmax in the model, and again in the Tanimoto loss", "softmax")
def tanimoto2(bug):
    def data(s): x = T(s, 8, 1, 12, 12); k = F.avg_pool2d(x, 3, 1, 1); t = (k > .1).long() + (k > .5).long(); return x, t[:, 0]
    def loss(o, t):
        p = o.softmax(1); y = F.one_hot(t, 3).permute(0, 3, 1, 2).float(); a = (p * y).sum((0, 2, 3)); return (1 - a / ((p * p + y * y).sum((0, 2, 3)) - a + 1e-5)).mean()
    n = lambda: nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 1))
    return dict(model=lambda: M(lambda m, x: m.n(x).softmax(1) if bug else m.n(x), n=n()), data=data, loss=loss)
