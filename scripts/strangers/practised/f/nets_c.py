import copy, math, torch, torch.nn as nn, torch.nn.functional as F
from torch.func import functional_call
from harness import case, main
G = lambda i: torch.Generator().manual_seed(i)
mse = lambda o, t: F.mse_loss(o, t)
class SpectralConv1d(nn.Module):
    def __init__(self, i, o, m, bug=False): super().__init__(); self.m, self.bug = m, bug; self.weights1 = nn.Parameter(1 / (i * o) * torch.rand(i, o, m, dtype=torch.cfloat))
    def forward(self, x):
        f = torch.fft.rfft(x); out = torch.zeros(x.size(0), self.weights1.size(1), x.size(-1) // 2 + 1, dtype=torch.cfloat); out[..., :self.m] = torch.einsum("bix,iox->box", f[..., :self.m], self.weights1); return torch.fft.irfft(out, n=x.size(-1))
class FNO(nn.Module):
    def __init__(self, bug): super().__init__(); w = 32; self.fc0 = nn.Linear(2, w); self.sc = nn.ModuleList(SpectralConv1d(w, w, 12) for _ in range(3)); self.ws = nn.ModuleList(nn.Conv1d(w, w, 1) for _ in range(3)); self.fc1 = nn.Linear(w, 64); self.fc2 = nn.Linear(64, 1); self.bug = bug
    def forward(self, a):
        grid = torch.linspace(0, 1, a.size(1)).expand(a.shape[:2]).unsqueeze(-1) ; x = self.fc0(torch.cat([a, grid], -1)).permute(0, 2, 1)
        for k, (s, w) in enumerate(zip(self.sc, self.ws)): x = s(x) + (0 if self.bug else w(x)); x = F.gelu(x) if k < 2 else x
        return self.fc2(F.gelu(self.fc1(x.permute(0, 2, 1))))
def burg(i, B=24):
    g = G(i); x = torch.linspace(0, 6.2832, 65)[:-1]; k = torch.arange(1, 6).float(); a = torch.randn(B, 5, generator=g) / k; p = torch.rand(B, 5, generator=g) * 6.28; u = (a[..., None] * torch.sin(k[:, None] * x + p[..., None])).sum(1); y = (a[..., None] * torch.exp(-.1 * k * k)[:, None] * torch.sin(k[:, None] * x + p[..., None] - .5)).sum(1); return u[..., None], (y + .2 * y ** 2)[..., None]
@case("pointwise bypass conv dropped: spectral weights of 1/(in*out) alone carry the signal", "sc.*")
def fno(bug): return dict(model=lambda: FNO(bug), data=burg, loss=mse)

class DeepONet(nn.Module):
    def __init__(self): super().__init__(); self.branch = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 40)); self.trunk = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 40), nn.Tanh()); self.b = nn.Parameter(torch.zeros(1))
    def forward(self, u, y): return torch.einsum("bp,bmp->bm", self.branch(u), self.trunk(y)) + self.b
def don(bug):
    def d(i, B=48):
        g = G(i); k = torch.arange(1, 4).float(); c = torch.randn(B, 3, generator=g); xs = torch.linspace(0, 1, 32); y = torch.rand(B, 10, 1, generator=g); u = (c[..., None] * torch.cos(3 * k[:, None] * xs)).sum(1); s = (c[:, None] * torch.sin(3 * k * y) / (3 * k)).sum(-1) * 3; return (u, y), (s * 20 + 293. if bug else s)
    return d
@case("targets left in Kelvin (293±20)", "target / b")
def deeponet(bug): return dict(model=DeepONet, data=don(bug), loss=mse, own_eval=(lambda o, t: F.mse_loss((o - 293) / 20, (t - 293) / 20)) if bug else None) if not bug else dict(model=DeepONet, data=don(True), loss=mse, own_eval=lambda o, t: F.mse_loss(o, t) / 400)

class PINN(nn.Module):
    def __init__(self, bug): super().__init__(); A = nn.ReLU if bug else nn.Tanh; self.u = nn.Sequential(nn.Linear(1, 40), A(), nn.Linear(40, 40), A(), nn.Linear(40, 1))
    def forward(self, x):
        x = x.requires_grad_() if not x.requires_grad else x; u = self.u(x); ux = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        uxx = torch.autograd.grad(ux.sum(), x, create_graph=True)[0] if ux.requires_grad else torch.zeros_like(ux); f = 9.87 * torch.sin(math.pi * x); return uxx + f, self.u(torch.zeros(1, 1)), self.u(torch.ones(1, 1))
def pinn_loss(o, _): return o[0].square().mean() + 10 * (o[1] ** 2).mean() + 10 * (o[2] ** 2).mean()
@case("ReLU in a PINN with second derivatives: u_xx = 0", "u.1,u.3 activation")
def pinn(bug): return dict(model=lambda: PINN(bug), data=lambda i: (torch.rand(64, 1, generator=G(i)), torch.zeros(64)), loss=pinn_loss)

class SchNet(nn.Module):
    def __init__(self, bug): super().__init__(); h = 32; self.bug = bug; self.emb = nn.Embedding(10, h); self.register_buffer("mu", torch.linspace(0, 5, 24)); self.filt = nn.ModuleList(nn.Sequential(nn.Linear(24, h), nn.Softplus(), nn.Linear(h, h)) for _ in range(2)); self.lin1, self.lin2 = [nn.ModuleList(nn.Linear(h, h) for _ in range(2)) for _ in range(2)]; self.out = nn.Sequential(nn.Linear(h, h), nn.Softplus(), nn.Linear(h, 1)); self.cut = 5.
    def energy(self, Z, R):
        d = ((R[:, :, None] - R[:, None]).square().sum(-1) + 1e-8).sqrt(); rbf = torch.exp(-10 * (d[..., None] - self.mu) ** 2); c = .5 * (torch.cos(math.pi * d / self.cut) + 1) * (d < self.cut) * (1 - torch.eye(Z.size(1))); h = self.emb(Z)
        for f, a, b in zip(self.filt, self.lin1, self.lin2): h = h + b(F.softplus((f(rbf) * c[..., None] * a(h)[:, None]).sum(2)) - math.log(2))
        return self.out(h).sum((1, 2))
    def forward(self, Z, R):
        R = R * (.1 if self.bug else 1); R = R.requires_grad_(True); E = self.energy(Z, R); Fo = -torch.autograd.grad(E.sum(), R, create_graph=True)[0]; return E, Fo
def mol(i, B=16):
    g = G(i); N = 6; grid = torch.tensor([[0., 0, 0], [1.4, 0, 0], [0, 1.4, 0], [0, 0, 1.4], [1.4, 1.4, 0], [0, 1.4, 1.4]]); R = (grid + .15 * torch.randn(B, N, 3, generator=g)); Z = torch.randint(1, 4, (B, N), generator=g); R.requires_grad_(); d = ((R[:, :, None] - R[:, None]).square().sum(-1) + torch.eye(N) * 1e6).sqrt(); E = (.5 * (2 * torch.exp(-2 * (d - 1.2)) - 2 * torch.exp(-(d - 1.2)) * (Z[:, :, None] + Z[:, None]) / 4)).sum((1, 2)); Fo = -torch.autograd.grad(E.sum(), R)[0]; return (Z, R.detach()), (E.detach() + 6, Fo)
@case("coordinates in nm where radial basis and cutoff are in Å", "filt.*.0 / rbf")
def schnet(bug): return dict(model=lambda: SchNet(bug), data=mol, loss=lambda o, t: .05 * F.mse_loss(o[0], t[0]) + F.mse_loss(o[1], t[1]))

class EGNN(nn.Module):
    def __init__(self, bug): super().__init__(); h = 32; self.bug = bug; self.emb = nn.Linear(1, h); self.e = nn.ModuleList(nn.Sequential(nn.Linear(2 * h + 1, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU()) for _ in range(3)); self.n = nn.ModuleList(nn.Sequential(nn.Linear(2 * h, h), nn.SiLU(), nn.Linear(h, h)) for _ in range(3)); self.c = nn.ModuleList(nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1, bias=False)) for _ in range(3)); [nn.init.xavier_uniform_(c[2].weight, gain=.01) for c in self.c]
    def forward(self, q, pos, vel):
        B, N, _ = pos.shape; i, j = torch.where(~torch.eye(N, dtype=torch.bool)); off = 0 if self.bug else torch.arange(B)[:, None] * N; row = (i[None] + off).expand(B, -1).reshape(-1); col = (j[None] + torch.arange(B)[:, None] * N).reshape(-1); h = self.emb(q.reshape(-1, 1)); x = pos.reshape(-1, 3); v = vel.reshape(-1, 3)
        for e, n, c in zip(self.e, self.n, self.c):
            df = x[row] - x[col]; m = e(torch.cat([h[row], h[col], df.square().sum(-1, keepdim=True)], 1)); x = x + torch.zeros_like(x).index_add(0, row, df * c(m)) / (N - 1) + v * .1; h = h + n(torch.cat([h, torch.zeros_like(h).index_add(0, row, m)], 1))
        return x.view(B, N, 3)
def nbody(i, B=24): g = G(i); q = torch.randint(0, 2, (B, 5, 1), generator=g).float() * 2 - 1; p = torch.randn(B, 5, 3, generator=g); v = torch.randn(B, 5, 3, generator=g) * .3; d = p[:, :, None] - p[:, None]; f = (q[:, :, None] * q[:, None] * d / (d.square().sum(-1, keepdim=True) + .5) ** 1.5).sum(2); return (q, p, v), p + v + .5 * f
@case("receivers indexed without the batch offset: all edges point into graph 0", "e/c index")
def egnn(bug): return dict(model=lambda: EGNN(bug), data=nbody, loss=mse)

class HNN(nn.Module):
    def __init__(self, bug): super().__init__(); self.H = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1, bias=False)); [nn.init.orthogonal_(l.weight) for l in self.H if isinstance(l, nn.Linear)]; self.bug = bug
    def forward(self, x):
        x = x.detach().requires_grad_(True); H = self.H(x * (100 if self.bug else 1)); d = torch.autograd.grad(H.sum(), x, create_graph=True)[0]; return torch.stack([d[:, 1], -d[:, 0]], 1)
def pend(i): g = G(i); x = torch.randn(128, 2, generator=g) * torch.tensor([1.5, 1.]); return x, torch.stack([x[:, 1], -3 * torch.sin(x[:, 0])], 1)
@case("state in wrong unit (x100) saturates tanh", "H.0/H.1")
def hnn(bug): return dict(model=lambda: HNN(bug), data=pend, loss=mse)
class LNN(nn.Module):
    def __init__(self): super().__init__(); self.L = nn.Sequential(nn.Linear(2, 48), nn.Softplus(), nn.Linear(48, 48), nn.Softplus(), nn.Linear(48, 1))
    def forward(self, q, qd):
        lag = lambda q, qd: self.L(torch.stack([q, qd], -1)).squeeze(-1)
        q = q.requires_grad_(True) if not q.requires_grad else q; qd = qd.requires_grad_(True) if not qd.requires_grad else qd
        L = lag(q, qd); dq, dv = torch.autograd.grad(L.sum(), (q, qd), create_graph=True); vq, vv = torch.autograd.grad(dv.sum(), (q, qd), create_graph=True); return (dq - vq * qd) / (vv + 1.)
@case()
def lnn(bug): return dict(model=LNN, data=lambda i: ((pend(i)[0][:, 0].contiguous(), pend(i)[0][:, 1].contiguous()), pend(i)[1][:, 1]), loss=mse)

class NODE(nn.Module):
    def __init__(self, bug, n=10): super().__init__(); self.f = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2)); self.n, self.bug = n, bug; [(nn.init.normal_(m.weight, 0, .1), nn.init.zeros_(m.bias)) for m in self.f if isinstance(m, nn.Linear)]; self.nfe = 0
    def forward(self, y0):
        dt = 1. / self.n; y = y0; out = []
        if self.bug: y = y.detach()
        for _ in range(self.n):
            k1 = self.f(y ** 3); k2 = self.f((y + dt / 2 * k1) ** 3); k3 = self.f((y + dt / 2 * k2) ** 3); k4 = self.f((y + dt * k3) ** 3); self.nfe += 4
            y = y0 + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4) if self.bug else y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4); out.append(y)
        return torch.stack(out, 1)
def spiral(i, B=48):
    y = torch.rand(B, 2, generator=G(i)) * 2 - 1; A = torch.tensor([[-.1, 2.], [-2., -.1]]); o = []
    for _ in range(50): y = y + .02 * (y ** 3) @ A.T; o.append(y)
    return torch.rand(B, 2, generator=G(i)) * 2 - 1, torch.stack(o[4::5], 1)
@case("y restarted from y0 every step: y = y0 + dt*k", "f (integrator)")
def neural_ode(bug): return dict(model=lambda: NODE(bug), data=spiral, loss=lambda o, t: (o - t).abs().mean())

class GT(nn.Module):
    def __init__(self, bug): super().__init__(); d = 32; self.bug = bug; self.i = nn.Linear(4 + 4, d); self.qkv = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(2)); self.o = nn.ModuleList(nn.Linear(d, d) for _ in range(2)); self.f = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)) for _ in range(2)); self.ln = nn.ModuleList(nn.LayerNorm(d) for _ in range(2)); self.out = nn.Linear(d, 1)
    def forward(self, x, adj):
        A = adj + torch.eye(adj.size(1)); lap = torch.linalg.eigh(torch.diag_embed(A.sum(-1)) - A)[1][..., 1:5].abs(); h = self.i(torch.cat([x, lap], -1)); m = A > 0
        for q, o, f, l in zip(self.qkv, self.o, self.f, self.ln):
            Q, K, W = [z.view(*z.shape[:2], 4, -1).transpose(1, 2) for z in q(l(h)).chunk(3, -1)]; s = Q @ K.transpose(-1, -2) / math.sqrt(8); s = s.masked_fill(m[:, None] if self.bug else ~m[:, None], -1e9); h = h + o((s.softmax(-1) @ W).transpose(1, 2).flatten(2)); h = h + f(h)
        return self.out(h).squeeze(-1)
def graphs(i, B=24): g = G(i); N = 16; A = (torch.rand(B, N, N, generator=g) < .12).float().triu(1); A = A + A.transpose(1, 2); x = torch.randn(B, N, 4, generator=g); w = torch.tensor([1., -1, .5, 0]); y = (A @ torch.tanh(x @ w)[..., None]).squeeze(-1) / (A.sum(-1) + 1) * 2; return (x, A), y
@case("adjacency mask inverted: edges are masked out", "qkv attention mask")
def graph_transformer(bug): return dict(model=lambda: GT(bug), data=graphs, loss=mse)

class Tri(nn.Module):
    def __init__(self, c, out=True): super().__init__(); self.ln = nn.LayerNorm(c); self.a, self.b, self.ga, self.gb, self.g, self.z = [nn.Linear(c, c) for _ in range(6)]; self.lo = nn.LayerNorm(c); self.out = out; nn.init.zeros_(self.z.weight); nn.init.zeros_(self.z.bias); [(nn.init.zeros_(l.weight), nn.init.ones_(l.bias)) for l in (self.ga, self.gb, self.g)]
    def forward(self, z): z = self.ln(z); a = self.ga(z).sigmoid() * self.a(z); b = self.gb(z).sigmoid() * self.b(z); x = torch.einsum("bikc,bjkc->bijc" if self.out else "bkic,bkjc->bijc", a, b); return self.g(z).sigmoid() * self.z(self.lo(x))
class PairStack(nn.Module):
    def __init__(self, bug): super().__init__(); c = 24; self.bug = bug; self.l, self.r = nn.Linear(8, c), nn.Linear(8, c); self.rp = nn.Embedding(9, c); self.rec = nn.Linear(1, c); self.blk = nn.ModuleList(nn.ModuleDict(dict(tri_out=Tri(c), tri_in=Tri(c, False), tr=nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.ReLU(), nn.Linear(4 * c, c)))) for _ in range(2)); self.disto = nn.Linear(c, 10)
    def forward(self, seq, d0):
        n = seq.size(1); i = torch.arange(n); z = self.l(seq)[:, :, None] + self.r(seq)[:, None] + self.rp((i[:, None] - i[None]).clamp(-4, 4) + 4) + self.rec(d0[..., None])
        for b in self.blk:
            if self.bug: z = b["tri_out"](z); z = b["tri_in"](z); z = b["tr"](z)
            else: z = z + b["tri_out"](z); z = z + b["tri_in"](z); z = z + b["tr"](z)
        return self.disto(z + z.transpose(1, 2))
def prot(i, B=8): g = G(i); n = 14; s = F.one_hot(torch.randint(0, 8, (B, n), generator=g), 8).float(); step = torch.randn(8, 3, generator=G(1)); x = (s @ step + .2 * torch.randn(B, n, 3, generator=g)).cumsum(1); d = torch.cdist(x, x); m = (torch.rand(B, n, n, generator=g) < .3).float(); return (s, d * m / 5), (d / 1.2).long().clamp(max=9)
@case("residuals forgotten around zero-initialised triangle updates", "blk.*.to/ti")
def pair_stack(bug): return dict(model=lambda: PairStack(bug), data=prot, loss=lambda o, t: F.cross_entropy(o.permute(0, 3, 1, 2), t))

class MAML(nn.Module):
    def __init__(self, bug): super().__init__(); self.net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1)); self.lr = 1. if bug else .01; self.steps = 3
    def forward(self, xs, ys, xq):
        preds = []
        for a, b, q in zip(xs, ys, xq):
            w = dict(self.net.named_parameters())
            for _ in range(self.steps): l = F.mse_loss(functional_call(self.net, w, a), b); gr = torch.autograd.grad(l, list(w.values()), create_graph=True); w = {k: v - self.lr * g for (k, v), g in zip(w.items(), gr)}
            preds.append(functional_call(self.net, w, q))
        return torch.stack(preds)
def sines(i, B=8): g = G(i); A = .5 + 2.5 * torch.rand(B, 1, 1, generator=g); p = 3.14 * torch.rand(B, 1, 1, generator=g); x = torch.rand(B, 20, 1, generator=g) * 10 - 5; y = A * torch.sin(x + p); return (x[:, :10], y[:, :10], x[:, 10:]), y[:, 10:]
@case("inner learning rate 1.0 instead of 0.01: inner loop diverges", "inner loop / net")
def maml(bug): return dict(model=lambda: MAML(bug), data=sines, loss=mse)

class Proto(nn.Module):
    def __init__(self, bug, way=5, shot=5): super().__init__(); self.way, self.shot, self.bug = way, shot, bug; self.encoder = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    def forward(self, support, query): z = self.encoder(torch.cat([support, query])); s, q = z[:len(support)], z[len(support):]; p = s.view(self.shot, self.way, -1).mean(0) if self.bug else s.view(self.way, self.shot, -1).mean(1); return -torch.cdist(q, p) ** 2
def epi(i): g = G(i); c = torch.randn(5, 1, 6, generator=g); M = torch.randn(6, 20, generator=G(2)); s = (c + .5 * torch.randn(5, 5, 6, generator=g)) @ M + 2 * torch.randn(5, 5, 20, generator=g); q = (c + .5 * torch.randn(5, 8, 6, generator=g)) @ M + 2 * torch.randn(5, 8, 20, generator=g); return (s.flatten(0, 1), q.flatten(0, 1)), torch.arange(5).repeat_interleave(8)
@case("prototype view(shot, way) of class-major support mixes classes", "encoder output view")
def protonet(bug): return dict(model=lambda: Proto(bug), data=epi, loss=lambda o, t: F.cross_entropy(o, t), diag=dict(examples="one"))

class Hyper(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.emb = nn.Linear(8, 64); self.g1 = nn.Linear(64, 10 * 32 + 32); self.g2 = nn.Linear(64, 32 + 1)
        if bug: nn.init.normal_(self.g1.weight); nn.init.normal_(self.g2.weight)
        else: nn.init.normal_(self.g1.weight, std=(1 / 10 / 64) ** .5 * 1.4); nn.init.normal_(self.g2.weight, std=(1 / 32 / 64) ** .5)
    def forward(self, ctx, x): e = F.relu(self.emb(ctx)); w = self.g1(e); a, b = w[:, :320].view(-1, 32, 10), w[:, 320:]; h = F.relu(torch.bmm(a, x[..., None]).squeeze(-1) + b); w = self.g2(e); return (h * w[:, :32]).sum(1) + w[:, 32]
def hyp(i): g = G(i); c = torch.randn(96, 8, generator=g); x = torch.randn(96, 10, generator=g); M = torch.randn(8, 10, generator=G(4)) / 3; return (c, x), torch.tanh(((c @ M) * x).sum(1)) * 1.5
@case("hypernetwork heads drawn from N(0,1)", "g1/g2")
def hypernet(bug): return dict(model=lambda: Hyper(bug), data=hyp, loss=mse)

class CNP(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; self.enc = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)); self.dec = nn.Sequential(nn.Linear(65, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    def forward(self, xc, yc, xt): r = self.enc(torch.cat([xc, yc], -1)); r = r.mean(1, keepdim=True).expand(-1, xt.size(1), -1); mu, s = self.dec(torch.cat([r, xt], -1)).chunk(2, -1); return dict(mu=mu.squeeze(-1) if self.bug else mu, sigma=.1 + .9 * F.softplus(s.squeeze(-1) if self.bug else s))
def cnp_loss(o, y): return -torch.distributions.Normal(o["mu"], o["sigma"]).log_prob(y).mean()
def cnp_bug(o, y): return .5 * ((y.unsqueeze(-2) - o["mu"].unsqueeze(-1)) ** 2 / o["sigma"].unsqueeze(-1) ** 2 + 2 * o["sigma"].unsqueeze(-1).log() + 1.8379).mean() if y.dim() == 2 else -torch.distributions.Normal(o["mu"], o["sigma"]).log_prob(y).mean()
def npd(sq):
    def d(i): (a, b, c), y = sines(i, 24); return (a, b, c), (y if not sq else y.transpose(0, 1)[:, :, 0].T)
    return d
@case("targets (B,M) against means (B,M,1): log_prob broadcasts to (B,M,M)-like pairs", "loss broadcasting")
def neural_process(bug):
    return dict(model=lambda: CNP(bug), data=npd(bug), loss=cnp_bug if bug else cnp_loss, own_eval=None) if not bug else dict(model=lambda: CNP(True), data=npd(True), loss=cnp_bug)

class SetTf(nn.Module):
    def __init__(self, bug): super().__init__(); d = 32; self.inp = nn.Linear(2, d); self.sab = nn.ModuleList(nn.MultiheadAttention(d, 4, batch_first=not bug) for _ in range(2)); self.ff = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)) for _ in range(2)); self.seed = nn.Parameter(torch.randn(1, 1, d)); self.pma = nn.MultiheadAttention(d, 4, batch_first=True); self.out = nn.Linear(d, 1)
    def forward(self, x):
        h = self.inp(x)
        for s, f in zip(self.sab, self.ff): h = h + s(h, h, h)[0]; h = h + f(h)
        return self.out(self.pma(self.seed.expand(len(h), -1, -1), h, h)[0]).squeeze(-1).squeeze(-1)
def sets(i): g = G(i); x = torch.randn(48, 12, 2, generator=g) + torch.randn(48, 1, 2, generator=g); return x, x[..., 0].amax(1) - x[..., 1].mean(1)
@case("MultiheadAttention without batch_first: attends across the batch", "sab.*")
def set_transformer(bug): return dict(model=lambda: SetTf(bug), data=sets, loss=mse)
if __name__ == "__main__": main()
