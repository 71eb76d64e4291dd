from kbase import *
# ---------- DeepAR
class AR(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.lstm = nn.LSTM(2, 32, 2, batch_first=v != "timeaxis"); s.mu, s.sig = nn.Linear(32, 1), nn.Linear(32, 1)
    def forward(s, x):
        nu = x[:, :, :1].abs().mean(1, keepdim=True) + 1; u = x[:, :, :1]
        if s.v != "unscaled": u = u / nu
        h, _ = s.lstm(torch.cat([u, x[:, :, 1:]], -1)); m, g = s.mu(h), s.sig(h)
        if s.v == "hzero": h = h * 0; m, g = s.mu(h), s.sig(h)
        g = g if s.v == "rawsig" else F.softplus(g) + 1e-3
        if s.v == "tanhmu": m = torch.tanh(m) * .5
        if s.v == "unscaled": return m, g
        return m * nu, g * nu
@net(unscaled=("series (10..1000) not divided by their scale", "lstm/mu"), rawsig=("sigma without softplus: log of negatives", "sig"), timeaxis=("LSTM without batch_first", "lstm"),
     sign=("log sigma subtracted in the NLL", "loss/sig"), tanhmu=("mean bounded to ±.5 of scale", "mu"))
def deepar(v):
    def data(s):
        g = gen(s); n = 32; t = torch.arange(25.)[None]; p = 4 + U(g, n, 1) * 4; ph = U(g, n, 1) * 6.28; sc = 10 ** (1 + 2 * U(g, n, 1)); y = sc * (1 + .8 * torch.sin(6.28 * t / p + ph) + .05 * N(g, n, 25))
        return torch.stack([y[:, :-1], (t[:, :-1] / 25).expand(n, -1)], -1), y[:, 1:, None]
    def loss(o, t):
        m, s = o; l = torch.log(s); return ((-l if v == "sign" else l) + .5 * ((t - m) / s) ** 2).mean()
    return dict(model=lambda: AR(v), data=data, loss=loss)
# ---------- spiking
class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k): ctx.save_for_backward(x); ctx.k = k; return (x > 0).float()
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; return g / (1 + ctx.k * x.abs()) ** 2, None
class SNN(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.fc1, s.fc2, s.fc3 = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 4); s.beta = .9; s.thr = 30. if v == "thr" else 1.
    def sp(s, x): return (x > 0).float() if s.v == "hard" else Spike.apply(x, 1e6 if s.v == "slope" else 10.)
    def forward(s, x):
        a = b = c = torch.zeros(()); o = 0
        for t in range(x.shape[1]):
            a = s.beta * a + s.fc1(x[:, t]); p = s.sp(a - s.thr); a = a - p.detach() * s.thr
            b = s.beta * b + s.fc2(p); q = s.sp(b - s.thr); b = b - q.detach() * s.thr
            c = s.beta * c + s.fc3(q.detach() if s.v == "detach" else q)
        return c
@net(hard=("hard threshold without surrogate", "fc1/fc2"), thr=("threshold 30: no neuron spikes", "fc1/fc2"), slope=("surrogate slope 1e6: no gradient", "fc1/fc2"))
def spiking(v):
    def data(s):
        g = gen(s); a, b = I(g, 2, 64), I(g, 2, 64); r = torch.full((64, 20), .3); r[:, :10] += .4 * (2 * a[:, None] - 1) * torch.tensor([.5, -.5]).repeat(5); r[:, 10:] += .4 * (2 * (a ^ b)[:, None] - 1) * torch.tensor([.5, -.5]).repeat(5)
        return (U(g, 64, 12, 20) < r[:, None]).float(), a + 2 * b
    return dict(model=lambda: SNN(v), data=data, loss=lambda o, t: F.cross_entropy(o, t))
# ---------- LoRA
class LoRA(nn.Module):
    def __init__(s, d, o, v):
        super().__init__(); s.base = nn.Linear(d, o); s.base.requires_grad_(False); s.v = v; s.scale = 2.
        s.A, s.B = nn.Parameter(torch.randn(4, d) / d ** .5), nn.Parameter(torch.zeros(o, 4))
        if v == "bothzero": nn.init.zeros_(s.A)
        if v == "scale": s.scale = 1e-5
    def forward(s, x):
        y = s.base(x); d = (x @ s.A.t()) @ s.B.t() * s.scale
        return y + (d.detach() if s.v == "detach" else d)
class LoraT(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.emb = nn.Embedding(20, 32); s.emb.requires_grad_(False); s.pos = nn.Parameter(torch.randn(8, 32) * .5, requires_grad=False)
        s.q, s.k, s.val, s.o = (LoRA(32, 32, v) for _ in range(4)); s.f1, s.f2 = LoRA(32, 64, v), LoRA(64, 32, v); s.n1, s.n2, s.n3 = (nn.LayerNorm(32).requires_grad_(False) for _ in range(3)); s.head = LoRA(32, 4, v)
    def feats(s, x):
        h = s.emb(x) + s.pos; n = s.n1(h); a = torch.softmax(s.q(n) @ s.k(n).transpose(1, 2) / 32 ** .5, -1); h = h + s.o(a @ s.val(n)); return h + s.f2(F.gelu(s.f1(s.n2(h))))
    def forward(s, x):
        if s.v == "nograd":
            with torch.no_grad(): h = s.feats(x)
        else: h = s.feats(x)
        h = s.n3(h).mean(1 if s.v != "meanbatch" else (0, 1)); y = s.head(h)
        return y if s.v != "meanbatch" else y.expand(x.shape[0], -1)
@net(bothzero=("A and B both zero", "A/B"), scale=("alpha/r 1e-5", "scale"), nograd=("backbone with its adapters under no_grad", "q/k/f1"), meanbatch=("pooled over batch and time", "head/mean"))
def lora(v):
    def data(s):
        g = gen(s); x = I(g, 20, 64, 8); w = torch.randn(20, 4, generator=gen(5)); e = w[x].mean(1); e = torch.stack([e[:, 0], e[:, 1].abs(), e[:, 2] * 1.5, e[:, 3].abs()], 1); return x, e.argmax(1)
    return dict(model=lambda: LoraT(v), data=data, loss=lambda o, t: F.cross_entropy(o, t))
# ---------- PINN (Burgers)
class Pinn(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; A = nn.ReLU if v == "relu" else nn.Tanh; s.net = nn.Sequential(nn.Linear(2, 32), A(), nn.Linear(32, 32), A(), nn.Linear(32, 32), A(), nn.Linear(32, 1))
        if v == "sat":
            for m in s.net:
                if isinstance(m, nn.Linear): nn.init.normal_(m.weight, std=8.)
    def u(s, x): return s.net(x)[..., 0]
    def forward(s, xf, xb):
        xf = xf.detach().clone().requires_grad_(True); u = s.u(xf); cg = s.v != "nocreate"
        g = torch.autograd.grad(u.sum(), xf, create_graph=True)[0]; ux, ut = g[:, 0], g[:, 1]; uxx = torch.autograd.grad(ux.sum(), xf, create_graph=True, allow_unused=True)[0]
        uxx = uxx[:, 0] if uxx is not None else 0 * ux
        if s.v == "swap": ux, ut = ut, ux
        r = ut + u * ux - .1 * uxx
        if s.v == "nocreate": r = r.detach()
        b = s.u(xb)
        if s.v == "abs": b = F.relu(b)
        return r, b
@net(relu=("ReLU: second derivatives zero", "net"), nocreate=("residual detached (no create_graph)", "loss/residual"), sat=("weights N(0, 8²): tanh saturated", "net"), abs=("boundary output ReLU'd", "net.6"))
def pinn(v):
    def data(s):
        g = gen(s); xf = torch.stack([U(g, 64) * 2 - 1, U(g, 64)], 1); x0 = U(g, 32) * 2 - 1; tb = U(g, 32); xb = torch.cat([torch.stack([x0, 0 * x0], 1), torch.stack([(I(g, 2, 32) * 2. - 1), tb], 1)])
        return (xf, xb), torch.cat([-torch.sin(math.pi * x0), 0 * x0])
    return dict(model=lambda: Pinn(v), data=data, loss=lambda o, t: (o[0] ** 2).mean() + F.mse_loss(o[1], t))
# ---------- FNO 1d
class Spec(nn.Module):
    def __init__(s, c, m, v):
        super().__init__(); s.m, s.v = m, v; s.w = nn.Parameter(torch.view_as_real(torch.rand(c, c, m, dtype=torch.cfloat) / (c * c if v != "scale" else 1e-4)))
    def forward(s, x):
        w = torch.view_as_complex(s.w)
        f = torch.fft.rfft(x)
        if s.v == "phase": f = f.abs().to(torch.cfloat)
        o = torch.zeros_like(f)
        y = torch.einsum("bix,iox->box", f[..., :s.m], w)
        o = torch.cat([y if s.v != "dead" else torch.zeros_like(y), o[..., s.m:]], -1)
        return torch.fft.irfft(o, n=x.shape[-1])
class FNO(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.lift = nn.Linear(2, 24); s.sp = nn.ModuleList(Spec(24, 8, v) for _ in range(3)); s.w = nn.ModuleList(nn.Conv1d(24, 24, 1) for _ in range(3)); s.p1, s.p2 = nn.Linear(24, 48), nn.Linear(48, 1)
    def forward(s, a):
        grid = torch.linspace(0, 1, a.shape[1]).expand(a.shape[0], -1); h = s.lift(torch.stack([a, grid], -1)).permute(0, 2, 1)
        for i, (k, w) in enumerate(zip(s.sp, s.w)): h = k(h) + w(h); h = F.gelu(h) if i < 2 else h
        y = s.p2(F.gelu(s.p1(h.permute(0, 2, 1))))
        return F.relu(y[..., 0] - 2) if s.v == "relu" else y[..., 0]
@net(dead=("spectral product not written back: branch is zero", "sp"), scale=("spectral weights scaled x 1e4", "sp"), relu=("ReLU at the end, shifted: dead", "p2"), phase=("modulus of the spectrum only: phase lost", "sp"))
def fno(v):
    def data(s):
        g = gen(s); c = N(g, 24, 4, 2); x = torch.linspace(0, 1, 33)[:32]; k = torch.arange(1, 5.)[:, None] * 6.2832 * x; a = torch.einsum("bk,kx->bx", c[..., 0], torch.sin(k)) + torch.einsum("bk,kx->bx", c[..., 1], torch.cos(k))
        u = torch.cumsum(a, 1) / 32 * 6; u = u - u.mean(1, keepdim=True); return a, u
    return dict(model=lambda: FNO(v), data=data, loss=lambda o, t: F.mse_loss(o, t))
# ---------- prototypical network
class Proto(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.f = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32))
    def forward(s, sup, q):
        w, k = sup.shape[:2]; z = s.f(torch.cat([sup.flatten(0, 1), q.flatten(0, 1)])); zs, zq = z[:w * k], z[w * k:]
        p = zs.reshape(k, w, -1).mean(0) if s.v == "view" else zs.reshape(w, k, -1).mean(1)
        d = ((zq[:, None] - p[None]) ** 2).sum(-1)
        if s.v == "sign": return d
        return F.softmax(-d, 1) if s.v == "probs" else -d
@net(sign=("distances as logits, not their negatives", "logits"), view=("support reshaped (shot, way): classes mixed", "view"), probs=("softmax before cross-entropy", "logits"))
def protonet(v):
    def data(s):
        g = gen(s); a = N(g, 5, 1, 1, 8, 8); mk = lambda n: a * .8 + N(g, 5, n, 1, 8, 8) + 2 * torch.randn(1, 1, 1, 8, 8, generator=gen(3)) * N(g, 5, n, 1, 1, 1); return (mk(5), mk(5)), torch.arange(5).repeat_interleave(5)
    return dict(model=lambda: Proto(v), data=data, loss=lambda o, t: F.cross_entropy(o, t), diag=dict(examples="one"))
