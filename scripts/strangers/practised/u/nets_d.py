from base import *
def E(a): return "experience: " + a
def mlp(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in (nn.Linear(d[i], d[i + 1]), act())][:-1])

@case(E("multi-task / domain adversarial"), "the reversed features overwrite the features: the label head's gradient is reversed too", "grl / features")
def dann_grl_overwrites(planted):
    class D(nn.Module):
        def __init__(s): super().__init__(); s.f = mlp(24, 96, 96, 48); s.lab, s.dom = mlp(48, 48, 5), mlp(48, 48, 1)
        def grl(s, x): return 1.1 * x.detach() - .1 * x
        def forward(s, x):
            h = s.f(x).relu()
            if planted: h = s.grl(h); return s.lab(h), s.dom(h).squeeze(-1)
            return s.lab(h), s.dom(s.grl(h)).squeeze(-1)
    A = T(1, 16, 24); W = T(2, 16, 5); o = T(3, 24)
    def data(seed): z = T(seed, 96, 16); d = (torch.arange(96) % 2).float(); h = torch.tanh(z[:, :8]); return z @ A * .3 + d[:, None] * o * .5, ((torch.cat([h, z[:, 8:]], 1) @ W).argmax(1), d)
    return dict(model=D, data=data, loss=lambda o, t: F.cross_entropy(o[0], t[0]) + .3 * F.binary_cross_entropy_with_logits(o[1], t[1]), diag={})

@case(E("mixture of experts"), "the chosen expert's output is not multiplied with its gate: the router has no gradient", "router")
def moe_gate_unused(planted):
    class Mo(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(16, 48); s.router = nn.Linear(48, 4); s.ex = nn.ModuleList([mlp(48, 24, 48) for _ in range(4)]); s.n = nn.LayerNorm(48); s.out = nn.Linear(48, 6)
        def forward(s, x):
            x = s.inp(x); h = s.n(x); p = s.router(h).softmax(-1); g, i = p.topk(1, -1); m = F.one_hot(i[..., 0], 4).float()
            y = torch.stack([e(h) for e in s.ex], -1); return s.out(x + (y * (m if planted else m * g)[..., None, :]).sum(-1))
    C, W = T(1, 4, 16) * 1.5, T(2, 4, 16, 6)
    def data(seed): k = R(seed, 4, (128,)); e = T(seed + 1, 128, 16); return C[k] + e, torch.einsum("ni,nio->no", e, W[k]).argmax(1)
    return dict(model=Mo, data=data, loss=ce, diag=CE)

class LoRA(nn.Module):
    def __init__(s, l, r, alpha): super().__init__(); s.base = l; s.A, s.B = nn.Parameter(torch.empty(r, l.in_features)), nn.Parameter(torch.zeros(l.out_features, r)); nn.init.kaiming_uniform_(s.A, a=5 ** .5); s.sc = alpha / r
    def forward(s, x): return s.base(x) + F.linear(F.linear(x, s.A), s.B) * s.sc
class Backbone(nn.Module):
    def __init__(s, d=64, n=3):
        super().__init__(); s.emb = nn.Linear(16, d); s.ln = nn.ModuleList([nn.LayerNorm(d) for _ in range(n)]); s.fc = nn.ModuleList([nn.Linear(d, d) for _ in range(n)]); s.head = nn.Linear(d, 8)
    def forward(s, x):
        x = s.emb(x)
        for l, f in zip(s.ln, s.fc): x = x + F.gelu(f(l(x)))
        return s.head(x)
def pretrained():
    torch.random.manual_seed(77); b = Backbone()
    for f in b.fc: f.weight.data *= 2
    b.head.weight.data *= 3; return b
def seeded(f):
    st = torch.get_rng_state(); r = f(); torch.set_rng_state(st); return r
TEACH = seeded(pretrained)
for i, f in enumerate(TEACH.fc): f.weight.data += T(200 + i, 64, 4) @ T(300 + i, 4, 64) * .08
@case(E("LoRA"), "lora_alpha left at 1 with rank 64: the update is scaled by 1/64", "lora scaling")
def lora_alpha_one(planted):
    def model():
        b = seeded(pretrained); b.requires_grad_(False)
        for i in range(3): b.fc[i] = LoRA(b.fc[i], 64, 1 if planted else 64)
        return b
    def data(seed): x = T(seed, 128, 16); return x, TEACH(x).detach()
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(E("adapters"), "the near-zero adapter replaces the hidden state, its skip connection was forgotten", "adapter")
def adapter_no_residual(planted):
    class Ad(nn.Module):
        def __init__(s, f, d): super().__init__(); s.f = f; s.down, s.up = nn.Linear(d, 16), nn.Linear(16, d); nn.init.normal_(s.down.weight, std=.02); nn.init.normal_(s.up.weight, std=1e-3); nn.init.zeros_(s.down.bias); nn.init.zeros_(s.up.bias)
        def forward(s, x): h = s.f(x); a = s.up(F.gelu(s.down(h))); return a if planted else h + a
    def model():
        b = seeded(pretrained); b.requires_grad_(False)
        for i in range(3): b.fc[i] = Ad(b.fc[i], 64)
        b.head = nn.Linear(64, 8); return b
    def data(seed): x = T(seed, 128, 16); return x, TEACH(x).detach()
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(E("distillation"), "student features are L2-normalised, the teacher's are not: the norm is out of reach", "normalize / projector")
def distill_unit_norm(planted):
    class S(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(cb(3, 16), cb(16, 32, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten()); s.proj = nn.Linear(128, 64)
        def forward(s, x): y = s.proj(s.net(x)); return F.normalize(y, dim=-1) if planted else y
    def cb(i, o, st=1): return nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
    K, W = T(1, 16, 3, 3, 3) / 5, T(2, 64, 64) / 4
    def data(seed): x = T(seed, 32, 3, 12, 12) + T(seed + 1, 32, 3, 1, 1); f = F.adaptive_avg_pool2d(F.conv2d(x, K, padding=1).relu(), 2).flatten(1); return x, (f - .8) @ W
    return dict(model=S, data=data, loss=mse, diag=MSE)

class Rnd(torch.autograd.Function):
    @staticmethod
    def forward(x): return x.round()
    @staticmethod
    def setup_context(ctx, i, o): pass
    @staticmethod
    def backward(ctx, g): return g
    generate_vmap_rule = True
@case(E("quantisation-aware training"), "the learnt step size starts at 1: every weight rounds to zero", "step size / weight")
def lsq_step_one(planted):
    class Q(nn.Linear):
        def __init__(s, i, o): super().__init__(i, o); s.step = nn.Parameter(torch.tensor(1.) if planted else (2 * s.weight.abs().mean() / 7 ** .5).detach())
        def forward(s, x): v = s.weight / s.step; v = v.clamp(-8, 7); v = v + (v.round() - v).detach(); return F.linear(x, v * s.step, s.bias)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(24, 96), nn.BatchNorm1d(96), nn.ReLU(), Q(96, 96), nn.BatchNorm1d(96), nn.ReLU(), Q(96, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 6))
        def forward(s, x): return s.net(x)
    W, V = T(1, 24, 12), T(2, 12, 6)
    def data(seed): x = T(seed, 64, 24); return x, (torch.tanh(x @ W * .3) @ V).argmax(1)
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(E("binary networks"), "no normalisation before the binary activation: sums of ±1 lie outside the window of the straight-through gradient", "binary activation")
def bnn_no_norm(planted):
    class B(nn.Module):
        def __init__(s, i, o): super().__init__(); s.weight = nn.Parameter(torch.randn(o, i) * .1); s.n = nn.Identity() if planted else nn.BatchNorm1d(o)
        def ste(s, x): c = x.clamp(-1, 1); return c + (torch.where(x >= 0, 1., -1.) - c).detach()
        def forward(s, x): return s.ste(s.n(F.linear(x, s.ste(s.weight))))
    class N(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Sequential(nn.Linear(24, 128), nn.BatchNorm1d(128), nn.Hardtanh()); s.b = nn.Sequential(B(128, 128), B(128, 128), B(128, 128)); s.out = nn.Linear(128, 5)
        def forward(s, x): return s.out(s.b(s.inp(x)))
    W = T(1, 24, 5)
    def data(seed): x = T(seed, 128, 24); return x, (torch.tanh(x) @ W + (x[:, :5] * x[:, 5:10])).argmax(1)
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(E("neural ODE"), "Euler step without dt: x + f(x), forty times", "ode step")
def ode_no_dt(planted):
    class O(nn.Module):
        def __init__(s): super().__init__(); s.f = mlp(9, 64, 64, 8, act=nn.Tanh); s.inp, s.out = nn.Linear(4, 8), nn.Linear(8, 3)
        def forward(s, x):
            x = s.inp(x); n = 40
            for i in range(n): x = x + s.f(torch.cat([x, torch.full_like(x[:, :1], i / n)], 1)) * (1 if planted else 1 / n)
            return s.out(x)
    W, V = T(1, 4, 12), T(2, 12, 3)
    def data(seed): x = T(seed, 64, 4); return x, torch.sin(x @ W * .6) @ V * .4
    return dict(model=O, data=data, loss=mse, diag=MSE)

@case(E("PINN"), "ReLU network in a residual with a second derivative: u'' is zero everywhere", "relu")
def pinn_relu(planted):
    class P(nn.Module):
        def __init__(s): super().__init__(); s.u = mlp(1, 48, 48, 48, 1, act=nn.ReLU if planted else nn.Tanh)
        def forward(s, x):
            if not x.requires_grad: x = x.clone().requires_grad_(True)
            with torch.enable_grad():
                u = s.u(x) * x * (1 - x); d = torch.autograd.grad(u.sum(), x, create_graph=True)[0]; dd = torch.autograd.grad(d.sum(), x, create_graph=True)[0]
            return dd
    class P2(P):
        def forward(s, x):
            if not x.requires_grad: x = x.clone().requires_grad_(True)
            with torch.enable_grad(): u = s.u(x); d = torch.autograd.grad(u.sum(), x, create_graph=True)[0]; dd = torch.autograd.grad(d.sum(), x, create_graph=True)[0]
            return torch.cat([dd, s.u(torch.zeros_like(x)), s.u(torch.ones_like(x))], 1)
    def data(seed): x = torch.rand(128, 1, generator=gen(seed)); return x, torch.cat([-(2 * math.pi) ** 2 * torch.sin(2 * math.pi * x) / 10, 0 * x, 0 * x], 1)
    return dict(model=P2, data=data, loss=mse, diag=MSE)

@case(E("neural operators"), "the grid coordinate is not appended: the operator is translation-equivariant, the solution map is not", "lifting input")
def fno_no_grid(planted):
    class SC(nn.Module):
        def __init__(s, c, m): super().__init__(); s.w = nn.Parameter(torch.randn(c, c, m, 2) / c); s.m = m
        def forward(s, x):
            f = torch.fft.rfft(x); w = torch.view_as_complex(s.w); y = torch.einsum("bim,iom->bom", f[..., :s.m], w); return torch.fft.irfft(F.pad(y, (0, f.shape[-1] - s.m)), n=x.shape[-1])
    class FNO(nn.Module):
        def __init__(s, c=24): super().__init__(); s.lift = nn.Conv1d(1 if planted else 2, c, 1); s.sc = nn.ModuleList([SC(c, 8) for _ in range(3)]); s.w = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(3)]); s.out = nn.Sequential(nn.Conv1d(c, 48, 1), nn.GELU(), nn.Conv1d(48, 1, 1))
        def forward(s, x):
            if not planted: x = torch.cat([x, torch.linspace(-1, 1, x.shape[-1]).expand_as(x)], 1)
            x = s.lift(x)
            for a, b in zip(s.sc, s.w): x = F.gelu(a(x) + b(x))
            return s.out(x)
    def data(seed): a = F.interpolate(T(seed, 32, 1, 9), size=48, mode="linear"); g = torch.linspace(-1, 1, 48); return a, a * torch.sin(3 * g) * 1.5 + torch.roll(a, 4, -1) * .3
    return dict(model=FNO, data=data, loss=mse, diag=MSE)

@case(E("implicit representations"), "SIREN with omega 30 but PyTorch's default initialisation of the hidden layers", "siren weights")
def siren_default_init(planted):
    class Sn(nn.Module):
        def __init__(s, i, o, first=False):
            super().__init__(); s.l = nn.Linear(i, o)
            if not planted: nn.init.uniform_(s.l.weight, -(1 / i if first else (6 / i) ** .5 / 30), 1 / i if first else (6 / i) ** .5 / 30)
        def forward(s, x): return torch.sin(30 * s.l(x))
    class S(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(Sn(2, 64, True), Sn(64, 64), Sn(64, 64), nn.Linear(64, 1))
        def forward(s, x): return s.net(x)
    Fr = T(3, 2, 12) * 5; A = T(4, 12)
    def data(seed): x = torch.rand(512, 2, generator=gen(seed)) * 2 - 1; return x, torch.sin(x @ Fr) @ A[:, None] * .3
    return dict(model=S, data=data, loss=mse, diag=MSE)

@case(E("NeRF"), "transmittance is an inclusive product: a sample occludes itself, opaque surfaces are black", "compositing")
def nerf_inclusive(planted):
    ts = torch.linspace(.5, 3.5, 24)
    def comp(sig, rgb, inc):
        a = 1 - torch.exp(-sig * (3 / 23)); T_ = torch.cumprod(1 - a + 1e-10, -1); T_ = T_ if inc else torch.cat([torch.ones_like(T_[..., :1]), T_[..., :-1]], -1); return ((a * T_)[..., None] * rgb).sum(-2)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = mlp(2 + 2 * 2 * 5, 96, 96, 4); s.register_buffer("f", math.pi / 4 * 2. ** torch.arange(5))
        def forward(s, r):
            p = r[:, None, :2] + ts[:, None] * r[:, None, 2:]; e = (p[..., None] * s.f).flatten(-2); y = s.net(torch.cat([p, e.sin(), e.cos()], -1)); return comp(F.softplus(y[..., 0]), y[..., 1:].sigmoid(), planted)
    C = torch.tensor([[0., 0.], [.8, .6], [-.7, .7], [.3, -.9]]); col = torch.tensor([[.9, .2, .1], [.9, .9, .3], [.2, .9, .9], [.95, .5, .9]])
    def data(seed):
        g = gen(seed); th = 6.28 * torch.rand(96, generator=g); o = 2 * torch.stack([th.cos(), th.sin()], 1); ph = th + math.pi + .7 * (torch.rand(96, generator=g) - .5); d = torch.stack([ph.cos(), ph.sin()], 1); p = o[:, None] + ts[:, None] * d[:, None]
        q = torch.cdist(p, C.expand(96, -1, -1)); m, i = q.min(-1); return torch.cat([o, d], 1), comp((m < .45).float() * 40 + .1, col[i], False)
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(E("state-space models"), "bias of dt left at zero (dt = 0.69, not 0.001..0.1): the state forgets within a few steps", "dt bias")
def mamba_dt_bias(planted):
    class B(nn.Module):
        def __init__(s, d=48, n=8):
            super().__init__(); s.inp, s.out = nn.Linear(d, 2 * d), nn.Linear(d, d); s.conv = nn.Conv1d(d, d, 3, groups=d, padding=2); s.bc = nn.Linear(d, 2 * n, bias=False); s.dt = nn.Linear(d, d); nn.init.uniform_(s.dt.weight, -d ** -.5, d ** -.5)
            if planted: nn.init.zeros_(s.dt.bias)
            else: v = torch.exp(torch.rand(d) * math.log(100) + math.log(1e-3)); s.dt.bias.data.copy_(v + torch.log(-torch.expm1(-v)))
            s.A_log = nn.Parameter(torch.arange(1., n + 1).log().repeat(d, 1)); s.D = nn.Parameter(torch.ones(d)); s.n = nn.LayerNorm(d)
        def forward(s, x):
            u, z = s.inp(s.n(x)).chunk(2, -1); u = F.silu(s.conv(u.transpose(1, 2))[..., :u.shape[1]].transpose(1, 2)); b, c = s.bc(u).chunk(2, -1); dt = F.softplus(s.dt(u)); A = -s.A_log.exp(); h = 0; ys = []
            for t in range(u.shape[1]): h = h * torch.exp(dt[:, t, :, None] * A) + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]; ys.append((h * c[:, t, None]).sum(-1))
            return x + s.out((torch.stack(ys, 1) + s.D * u) * F.silu(z))
    class Mb(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(13, 48); s.b = nn.ModuleList([B(), B()]); s.o = nn.Linear(48, 6); s.n = nn.LayerNorm(48)
        def forward(s, i):
            x = s.e(i)
            for b in s.b: x = b(x)
            return s.o(s.n(x[:, -1]))
    def data(seed): y = R(seed, 6, (32,)); x = torch.where(torch.rand(32, 28, generator=gen(seed + 1)) < .6, y[:, None], R(seed + 2, 6, (32, 28))); x[:, 8:] = 12; return x, y
    return dict(model=Mb, data=data, loss=ce, diag=CE)
