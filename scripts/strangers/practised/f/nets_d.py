import copy, math, torch, torch.nn as nn, torch.nn.functional as F
from harness import case, main
from nets_b import blobs
G = lambda i: torch.Generator().manual_seed(i)
mse = lambda o, t: F.mse_loss(o, t)
_M = torch.randn(8, 32, generator=G(11))
def feats(i, B=64, K=6, noise=.5, scale=1.):
    g = G(i); c = torch.randn(K, 8, generator=G(12)) * 1.2; y = torch.randint(0, K, (B,), generator=g); return (c[y] + noise * torch.randn(B, 8, generator=g)) @ _M / 2.8 * scale, y
class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u): ctx.save_for_backward(u); return (u > 0).float()
    @staticmethod
    def backward(ctx, g): u, = ctx.saved_tensors; return g / (1 + 25 * u.abs()) ** 2
class SNN(nn.Module):
    def __init__(self, bug, steps=12): super().__init__(); self.fc1, self.fc2, self.fc3 = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 6); self.beta, self.thr, self.steps = .9, 1. if not bug else 20., steps; self.rates = {}
    def forward(self, x):
        m1 = m2 = m3 = 0; out = []; r1 = 0
        for _ in range(self.steps):
            m1 = self.beta * m1 + self.fc1(x); s1 = Spike.apply(m1 - self.thr); m1 = m1 - s1.detach() * self.thr; m2 = self.beta * m2 + self.fc2(s1); s2 = Spike.apply(m2 - self.thr); m2 = m2 - s2.detach() * self.thr; m3 = self.beta * m3 + self.fc3(s2); out.append(m3); r1 = r1 + s1.detach().mean()
        self.rates["l1"] = r1 / self.steps; return torch.stack(out).mean(0)
ce = lambda o, y: F.cross_entropy(o, y)
@case("threshold 20 far above the membrane: no spike", "fc2/fc3 silent")
def spiking(bug): return dict(model=lambda: SNN(bug), data=feats, loss=ce)

class KANLayer(nn.Module):
    def __init__(self, i, o, grid=5, k=3, rng=(-1, 1)):
        super().__init__(); h = (rng[1] - rng[0]) / grid; self.register_buffer("grid", (torch.arange(-k, grid + k + 1) * h + rng[0]).expand(i, -1).contiguous()); self.k = k; self.base_weight = nn.Parameter(torch.empty(o, i)); nn.init.kaiming_uniform_(self.base_weight, a=math.sqrt(5)); self.spline_weight = nn.Parameter(torch.randn(o, i, grid + k) * .1); self.base = True
    def b(self, x):
        x = x[..., None]; g = self.grid; B = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
        for k in range(1, self.k + 1): B = (x - g[:, :-(k + 1)]) / (g[:, k:-1] - g[:, :-(k + 1)]) * B[..., :-1] + (g[:, k + 1:] - x) / (g[:, k + 1:] - g[:, 1:-k]) * B[..., 1:]
        return B
    def forward(self, x): y = torch.einsum("bik,oik->bo", self.b(x), self.spline_weight); return y + F.linear(F.silu(x), self.base_weight) if self.base else y
class KAN(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; self.layers = nn.ModuleList([KANLayer(4, 8), KANLayer(8, 1)])
    def forward(self, x):
        x = x * 20 if self.bug else x
        for l in self.layers: x = l(x)
        return x.squeeze(-1)
def kand(i): x = torch.rand(128, 4, generator=G(i)) * 2 - 1; return x, torch.exp(torch.sin(math.pi * x[:, 0]) * .5 + x[:, 1] ** 2) + torch.cos(3 * x[:, 2]) * x[:, 3]
@case("features outside of the spline grid [-1,1]", "layers.0.spline_weight")
def kan(bug): return dict(model=lambda: KAN(bug), data=kand, loss=mse)

class BinSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return torch.where(x >= 0, 1., -1.)
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; return g * (x.abs() <= 1)
class BinLinear(nn.Linear):
    bug = False
    def forward(self, x): w = torch.sign(self.weight) if self.bug else BinStE(self.weight); return F.linear(x, w * self.weight.abs().mean().detach(), self.bias)
BinStE = BinSTE.apply
class BNN(nn.Module):
    def __init__(self, bug): super().__init__(); self.l1 = nn.Linear(32, 128); self.b1 = nn.BatchNorm1d(128); self.l2 = BinLinear(128, 128); self.b2 = nn.BatchNorm1d(128); self.l3 = BinLinear(128, 128); self.b3 = nn.BatchNorm1d(128); self.out = nn.Linear(128, 6); self.bug = bug
    def forward(self, x): s = torch.sign if self.bug else BinStE; h = s(self.b1(self.l1(x))); h = s(self.b2(self.l2(h))); h = s(self.b3(self.l3(h))); return self.out(h)
def feats_hard(i, B=64): x, y = feats(i, B, noise=1.); z = (x[:, :6] * x[:, 6:12]).argmax(1); return x, z
@case("torch.sign activations without straight-through estimator", "sign after b1..b3")
def binarised(bug): return dict(model=lambda: BNN(bug), data=feats_hard, loss=ce)

def squash(s, dim=-1): n = s.square().sum(dim, keepdim=True); return n / (1 + n) * s / (n + 1e-8).sqrt()
class Caps(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; self.conv = nn.Conv2d(1, 16, 5, 2); self.prim = nn.Conv2d(16, 32, 3); self.W = nn.Parameter(.1 * torch.randn(1, 4 * 16, 4, 12, 8)); self.dec = nn.Linear(48, 256)
    def forward(self, x):
        h = F.relu(self.conv(x)); p = self.prim(h).view(len(x), -1, 8); p = squash(p, 0 if self.bug else -1); u = (self.W @ p[:, :, None, :, None]).squeeze(-1); ud = u.detach(); b = torch.zeros(u.shape[:3])
        for r in range(3):
            c = b.softmax(2)[..., None]; uu = u if r == 2 else ud; v = squash((c * uu).sum(1), -1)
            if r < 2: b = b + (uu * v[:, None]).sum(-1)
        return v.norm(dim=-1), v
def margin(o, y): t = F.one_hot(y, 4).float(); l = o[0]; return (t * F.relu(.9 - l) ** 2 + .5 * (1 - t) * F.relu(l - .1) ** 2).sum(1).mean()
@case("squash normalises over the batch instead of the capsule", "prim")
def capsule(bug): return dict(model=lambda: Caps(bug), data=lambda i: blobs(i), loss=margin)

class DEQ(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; self.inj = nn.Linear(32, 64); self.W = nn.Linear(64, 64); self.head = nn.Linear(64, 6); nn.init.orthogonal_(self.W.weight, .7); self.ln = nn.LayerNorm(64); self.res = None
    def f(self, z, x): return torch.tanh(self.W(z) + x)
    def forward(self, x):
        x = self.inj(x)
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(30): z = self.f(z, x)
        z = z if self.bug else self.f(z, x); self.res = (z - self.f(z, x)).detach().norm()
        return self.head(z)
@case("fixed point under no_grad without the attached last step", "inj/W no gradient")
def deq(bug): return dict(model=lambda: DEQ(bug), data=feats_hard, loss=ce)

class Sine(nn.Module):
    def __init__(self, i, o, first=False, w0=30., bug=False):
        super().__init__(); self.lin = nn.Linear(i, o); self.w0 = w0
        with torch.no_grad(): b = 1 / i if first else (6 / i) ** .5 / (1 if bug else w0); self.lin.weight.uniform_(-b, b)
    def forward(self, x): return torch.sin(self.w0 * self.lin(x))
class Siren(nn.Module):
    def __init__(self, bug): super().__init__(); self.net = nn.Sequential(Sine(2, 64, True), Sine(64, 64, bug=bug), Sine(64, 64, bug=bug), nn.Linear(64, 1)); nn.init.uniform_(self.net[3].weight, -(6 / 64) ** .5 / 30, (6 / 64) ** .5 / 30)
    def forward(self, c): return self.net(c)
def img(i): x = torch.rand(256, 2, generator=G(i)) * 2 - 1; return x, (torch.sin(6 * x[:, :1]) * torch.cos(5 * x[:, 1:]) + .3 * torch.sign(x[:, :1]))
@case("hidden SIREN weights not divided by omega_0", "net.1/net.2")
def siren(bug): return dict(model=lambda: Siren(bug), data=img, loss=mse)

class NeRF(nn.Module):
    def __init__(self, bug, L=4): super().__init__(); self.L, self.bug = L, bug; self.l1 = nn.ModuleList([nn.Linear(3 + 6 * L, 64), nn.Linear(64, 64), nn.Linear(64 + 3 + 6 * L, 64)]); self.sigma = nn.Linear(64, 1); self.rgb = nn.Sequential(nn.Linear(64 + 3, 32), nn.ReLU(), nn.Linear(32, 3), nn.Sigmoid()); self.near, self.far, self.n = 1., 3., 16
    def pe(self, x): return torch.cat([x] + [f(2 ** k * math.pi * x / 3) for k in range(self.L) for f in (torch.sin, torch.cos)], -1)
    def forward(self, o, d):
        t = torch.linspace(self.near, self.far, self.n); p = o[:, None] + d[:, None] * t[:, None]; e = self.pe(p); h = F.relu(self.l1[0](e)); h = F.relu(self.l1[1](h)); h = F.relu(self.l1[2](torch.cat([h, e], -1))); s = self.sigma(h).squeeze(-1); s = F.relu(s - (50 if self.bug else 0)) if self.bug else F.softplus(s + 1.); c = self.rgb(torch.cat([h, d[:, None].expand(-1, self.n, -1)], -1)); a = 1 - torch.exp(-s * 2 / self.n); T = torch.cumprod(torch.cat([torch.ones(len(o), 1), 1 - a + 1e-10], 1), 1)[:, :-1]; w = a * T; return dict(rgb=(w[..., None] * c).sum(1), acc=w.sum(1), depth=(w * t).sum(1).detach())
def rays(i):
    g = G(i); o = torch.tensor([0., 0, -2]).expand(128, 3) + .1 * torch.randn(128, 3, generator=g); d = F.normalize(torch.cat([torch.rand(128, 2, generator=g) - .5, torch.ones(128, 1)], 1), dim=1); b = (o * d).sum(1); disc = b ** 2 - (o.square().sum(1) - .36); hit = disc > 0; p = o + d * (-b - disc.clamp(min=0).sqrt())[:, None]; return (o.contiguous(), d), torch.where(hit[:, None], (p / .6 + 1) / 2, torch.zeros(3))
@case("density ReLU fed far below zero (bias -50): empty space, black", "sigma")
def nerf(bug): return dict(model=lambda: NeRF(bug), data=rays, loss=lambda o, t: F.mse_loss(o["rgb"], t))

class MDN(nn.Module):
    def __init__(self, bug, K=5):
        super().__init__(); self.h = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh()); self.pi, self.mu, self.ls = nn.Linear(48, K), nn.Linear(48, K), nn.Linear(48, K)
        if bug:
            for l in (self.pi, self.mu, self.ls): nn.init.constant_(l.weight, .0); nn.init.zeros_(l.bias)
        else: self.mu.bias.data = torch.linspace(-1, 1, K)
    def forward(self, x): h = self.h(x); return dict(logpi=self.pi(h).log_softmax(-1), mu=self.mu(h), sigma=self.ls(h).exp())
def mdn_loss(o, y): return -(o["logpi"] + torch.distributions.Normal(o["mu"], o["sigma"]).log_prob(y)).logsumexp(-1).mean()
def inv(i): g = G(i); y = torch.rand(256, 1, generator=g) * 2 - 1; return (y + .3 * torch.sin(6.28 * y) + .05 * torch.randn(256, 1, generator=g)), y
@case("all mixture heads initialised to zero: components identical forever", "mu/ls/pi")
def mdn(bug): return dict(model=lambda: MDN(bug), data=inv, loss=mdn_loss)

class Coral(nn.Module):
    def __init__(self, bug): super().__init__(); self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(.1), nn.Linear(64, 32), nn.ReLU()); self.fc = nn.Linear(32, 1, bias=False); self.bias = nn.Parameter(torch.arange(4, 0, -1).float() / 4); self.bug = bug
    def forward(self, x): s = self.fc(self.body(x)) + self.bias; return torch.sigmoid(s) if self.bug else s
def ordn(i): g = G(i); x = torch.randn(64, 32, generator=g); s = x[:, :4].sum(1); y = (s[:, None] > torch.tensor([-2.5, -.8, .8, 2.5])).float(); return x, y
@case("sigmoid outputs given to BCE-with-logits", "forward end / fc")
def ordinal(bug): return dict(model=lambda: Coral(bug), data=ordn, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

def cox(risk, t):
    time, ev = t[:, 0], t[:, 1]; i = time.argsort(descending=True); r = risk.squeeze(-1)[i]; return -((r - torch.logcumsumexp(r, 0)) * ev[i]).sum() / ev.sum()
def cox_bug(risk, t):
    time, ev = t[:, 0], t[:, 1]; i = time.argsort(descending=True); r = risk[i]; return -((r - torch.logcumsumexp(r, 0)) * ev[i]).sum() / ev.sum() / len(r)
def surv(i): g = G(i); x = torch.randn(64, 12, generator=g) * torch.tensor([1, 1, 1, 10, 1, 1, 1, 1, 5, 1, 1, 1.]); h = x[:, 0] - x[:, 1] + .1 * x[:, 3] + .5 * x[:, 2] ** 2; T = -torch.log(torch.rand(64, generator=g)) * torch.exp(-h) * 10; C = torch.rand(64, generator=g) * 60; return x / torch.tensor([1, 1, 1, 10, 1, 1, 1, 1, 5, 1, 1, 1.]), torch.stack([torch.minimum(T, C), (T <= C).float()], 1)
@case("risk (B,1) times events (B,): B×B broadcast in the partial likelihood", "loss broadcasting")
def cox_survival(bug): return dict(model=lambda: nn.Sequential(nn.Linear(12, 32), nn.SELU(), nn.Linear(32, 16), nn.SELU(), nn.Linear(16, 1, bias=False)), data=surv, loss=cox_bug if bug else cox, diag=dict(per="batch"))

class MTL(nn.Module):
    def __init__(self, bug): super().__init__(); self.trunk = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); self.cls, self.reg = nn.Linear(64, 6), nn.Linear(64, 2); self.log_var = nn.Parameter(torch.zeros(2)); self.bug = bug
    def forward(self, x): h = self.trunk(x); return dict(cls=self.cls(h), reg=self.reg(F.relu(-h) if self.bug else h), s=self.log_var)
def mtd(i): x, y = feats(i); return x, (y, torch.stack([(x[:, :3] ** 2).sum(1), x[:, 3] * x[:, 4]], 1))
def mtl(o, t): return torch.exp(-o["s"][0]) * F.cross_entropy(o["cls"], t[0]) + .5 * torch.exp(-o["s"][1]) * F.mse_loss(o["reg"], t[1]) + .5 * o["s"].sum()
@case("regression head gets relu(-h) of post-ReLU trunk: always zero", "reg")
def multitask(bug): return dict(model=lambda: MTL(bug), data=mtd, loss=mtl)

class Triplet(nn.Module):
    def __init__(self, bug): super().__init__(); self.emb = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 32)); self.bug = bug
    def forward(self, anchor, positive, negative): e = lambda z: F.normalize(self.emb(z), dim=0 if self.bug else 1); return e(anchor), e(positive), e(negative)
def trip(i):
    x, y = blobs(i, 96); g = G(i); x = x + .5 * torch.randn(x.shape, generator=g); A, P, N = [], [], []
    for k in range(32): s = (y == y[k]).nonzero()[:, 0]; d = (y != y[k]).nonzero()[:, 0]; A.append(k); P.append(int(s[torch.randint(len(s), (1,), generator=g)])); N.append(int(d[torch.randint(len(d), (1,), generator=g)]))
    return dict(anchor=x[A], positive=x[P], negative=x[N]), torch.zeros(32)
tl = nn.TripletMarginLoss(margin=.5)
@case("embedding normalised over the batch (dim=0)", "emb.8 / normalize")
def triplet(bug): return dict(model=lambda: Triplet(bug), data=trip, loss=lambda o, t: tl(*o))

class ArcFace(nn.Module):
    def __init__(self, bug): super().__init__(); self.body = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.PReLU(), nn.Linear(64, 32)); self.W = nn.Parameter(torch.randn(6, 32) * .01); self.s, self.m = (1. if bug else 16.), .2
    def forward(self, x, label): c = F.linear(F.normalize(self.body(x)), F.normalize(self.W)).clamp(-1 + 1e-6, 1 - 1e-6); t = torch.cos(torch.acos(c) + self.m); oh = F.one_hot(label, 6).float(); return self.s * (oh * t + (1 - oh) * c)
@case("scale s=1: softmax over cosines", "W / logits scale")
def arcface(bug): return dict(model=lambda: ArcFace(bug), data=lambda i: ((feats(i)), feats(i)[1]), loss=ce)

class TwoView(nn.Module):
    def __init__(self, bug=False): super().__init__(); self.backbone = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64)); self.projector = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32)); self.bn = nn.BatchNorm1d(32, affine=False); self.bug = bug
    def forward(self, a, b): za, zb = self.projector(self.backbone(a)), self.projector(self.backbone(b)); return (F.layer_norm(za, (32,)), F.layer_norm(zb, (32,))) if self.bug else (self.bn(za), self.bn(zb))
def views(i, B=64): x, _ = feats(i, B, noise=1.); g = G(i + 7); return (x + .3 * torch.randn(x.shape, generator=g), x + .3 * torch.randn(x.shape, generator=g)), torch.zeros(B)
def bt(o, _): c = o[0].T @ o[1] / len(o[0]); return (((torch.diagonal(c) - 1) ** 2).sum() + .01 * (c ** 2).sum() - .01 * (torch.diagonal(c) ** 2).sum()) / 10
def bt_eval(o, _): n = lambda z: (z - z.mean(0)) / (z.std(0) + 1e-5); return bt((n(o[0]), n(o[1])), _)
@case("normalised over features (LayerNorm) instead of the batch", "projector end / bn")
def barlow(bug): return dict(model=lambda: TwoView(bug), data=views, loss=bt, own_eval=bt_eval, diag=dict(per="batch"))
class VIC(nn.Module):
    def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    def forward(self, a, b): return self.net(a), self.net(b)
def vic(o, _):
    a, b = o; v = sum(F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() for z in o); cv = 0
    for z in o: z = z - z.mean(0); c = z.T @ z / (len(z) - 1); cv = cv + (c.square().sum() - c.diagonal().square().sum()) / 32
    return 25 * F.mse_loss(a, b) + 25 * v + cv
@case()
def vicreg(bug): return dict(model=VIC, data=views, loss=vic, diag=dict(per="batch"))
class BYOL(nn.Module):
    def __init__(self): super().__init__(); self.online = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32)); self.predictor = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32)); self.target = copy.deepcopy(self.online).requires_grad_(False)
    @torch.no_grad()
    def update(self, m=.99):
        for a, b in zip(self.online.parameters(), self.target.parameters()): b.mul_(m).add_(a, alpha=1 - m)
    def forward(self, a, b):
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad(): ta, tb = self.target(a), self.target(b)
        return (2 - 2 * F.cosine_similarity(pa, tb)) + (2 - 2 * F.cosine_similarity(pb, ta))
@case()
def byol(bug): return dict(model=BYOL, data=views, loss=lambda o, _: o.mean(), after=lambda m: m.update())
class MAE(nn.Module):
    def __init__(self, bug):
        super().__init__(); d = 48; self.bug = bug; self.patch = nn.Linear(16, d); self.register_buffer("pos", torch.randn(1, 16, d, generator=G(9)) * .5); self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 96, 0., batch_first=True, norm_first=True), 2, enable_nested_tensor=False); self.mask_token = nn.Parameter(torch.zeros(1, 1, d)); nn.init.normal_(self.mask_token, std=.02); self.dec = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 96, 0., batch_first=True, norm_first=True), 1, enable_nested_tensor=False); self.pred = nn.Linear(d, 16)
    def forward(self, x, noise):
        p = x.unfold(2, 4, 4).unfold(3, 4, 4).reshape(len(x), 16, 16); h = self.patch(p) + self.pos; sh = noise.argsort(1); rs = sh.argsort(1); keep = sh[:, :8]; h = self.enc(h.gather(1, keep[..., None].expand(-1, -1, h.size(-1)))); f = torch.cat([h, self.mask_token.expand(len(x), 8, -1)], 1); idx = sh if self.bug else rs; f = f.gather(1, idx[..., None].expand(-1, -1, f.size(-1))) + self.pos; m = torch.ones(len(x), 16); m[:, :8] = 0; return self.pred(self.dec(f)), p, m.gather(1, rs)
def mae_loss(o, _): return (((o[0] - o[1]) ** 2).mean(-1) * o[2]).sum() / o[2].sum()
@case("tokens unshuffled with ids_shuffle instead of ids_restore", "mask_token/dec index")
def mae(bug): return dict(model=lambda: MAE(bug), data=lambda i: ((blobs(i)[0], torch.rand(32, 16, generator=G(i))), torch.zeros(32)), loss=mae_loss)
class JEPA(nn.Module):
    def __init__(self, bug):
        super().__init__(); d = 32; self.bug = bug; self.patch = nn.Linear(16, d); self.pos = nn.Parameter(torch.randn(1, 16, d) * .1); self.ctx = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, 0., batch_first=True, norm_first=True), 2, enable_nested_tensor=False); self.tgt = copy.deepcopy(nn.ModuleList([self.patch, self.ctx])).requires_grad_(False); self.pred = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d)); self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
    @torch.no_grad()
    def ema(self, m=.996):
        for a, b in zip(nn.ModuleList([self.patch, self.ctx]).parameters(), self.tgt.parameters()): b.lerp_(a, 1 - m)
    def forward(self, x):
        p = x.unfold(2, 4, 4).unfold(3, 4, 4).reshape(len(x), 16, 16); c = self.ctx(self.patch(p[:, :8]) + self.pos[:, :8])
        with torch.no_grad(): t = F.layer_norm(self.tgt[1](self.tgt[0](p) + self.pos), (32,))[:, 8:]
        q = self.pos[:, 8:].expand(len(x), -1, -1); q = q * 0 if self.bug else q; return q.shape[1] and self.pred(self.attn(q, c, c)[0] + q), t
@case("positions of the targets are lost (queries zeroed): the same prediction for each", "attn queries/pos")
def jepa(bug): return dict(model=lambda: JEPA(bug), data=lambda i: (blobs(i)[0], torch.zeros(32)), loss=lambda o, _: F.smooth_l1_loss(o[0], o[1]), after=lambda m: m.ema())
if __name__ == "__main__": main()
