from harness import *
import torch.nn as nn, torch.nn.functional as F
def G(seed): return torch.Generator().manual_seed(seed)

# ---------------------------------------------------------------- Deep & Cross
@net(x0="cross layer multiplies x_l by itself, not x0", offs="field offsets not added: all fields look up the same rows of the shared embedding", sig="sigmoid output and BCEWithLogitsLoss", cat="deep tower reads x0 after cross layers overwrote it; final concat takes cross twice (deep output unused)")
def dcn(s):
    NF, V, D = 6, 10, 8; I = NF*D
    class Cross(nn.Module):
        def __init__(self): super().__init__(); self.w = nn.ModuleList([nn.Linear(I, 1, bias=False) for _ in range(3)]); self.b = nn.ParameterList([nn.Parameter(torch.zeros(I)) for _ in range(3)])
        def forward(self, x):
            x0 = x
            for w, b in zip(self.w, self.b): x = (x if s == "x0" else x0)*w(x) + b + x
            return x
    class DCN(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(NF*V, D); nn.init.xavier_uniform_(self.embedding.weight); self.register_buffer("offsets", torch.arange(NF)*V); self.cross = Cross(); self.mlp = nn.Sequential(nn.Linear(I, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()); self.linear = nn.Linear(I+32, 1)
            if s == "cat": self.linear = nn.Linear(2*I, 1)
        def forward(self, x):
            e = self.embedding(x if s == "offs" else x + self.offsets).view(-1, I); c = self.cross(e); d = self.mlp(e)
            y = self.linear(torch.cat([c, c if s == "cat" else d], 1)).squeeze(1); return y.sigmoid() if s == "sig" else y
    W = torch.randn(NF, V, generator=G(1))*1.5; Z = torch.randn(V, V, generator=G(2))*1.5
    def data(seed):
        g = G(seed); x = torch.randint(V, (64, NF), generator=g); z = W[torch.arange(NF), x].sum(1) + Z[x[:, 0], x[:, 1]]*2
        return x, (torch.rand(64, generator=g) < z.sigmoid()).float()
    return dict(model=DCN, data=data, loss=F.binary_cross_entropy_with_logits)

# ---------------------------------------------------------------- NeRF
@net(freq="frequencies 2**-k instead of 2**k", skip="skip connection: layer 3 fed cat([h, h[:, :n]]) not cat([pts, h])", trans="transmittance = cumprod(1-alpha) inclusive (not shifted by one)", sigma="sign: alpha = 1 - exp(+sigma*delta) clamped to [0,1]")
def nerf(s):
    L, Wd, S = 5, 64, 12; I = 2*(1+2*L)
    def pe(x): return torch.cat([x] + [f(x*2.**(-k if s == "freq" else k)) for k in range(L) for f in (torch.sin, torch.cos)], -1)
    class NeRF(nn.Module):
        def __init__(self):
            super().__init__(); self.pts_linears = nn.ModuleList([nn.Linear(I, Wd)] + [nn.Linear(Wd + (I if i == 2 else 0), Wd) for i in range(1, 4)]); self.alpha_linear = nn.Linear(Wd, 1); self.feature_linear = nn.Linear(Wd, Wd); self.views_linear = nn.Linear(Wd+4, 32); self.rgb_linear = nn.Linear(32, 3)
        def forward(self, o, d):
            z = torch.linspace(0, 2, S); p = o[:, None] + d[:, None]*z[None, :, None]; e = pe(p); h = e
            for i, l in enumerate(self.pts_linears):
                if i == 2: h = torch.cat([h[..., :I] if s == "skip" else e, h], -1)
                h = F.relu(l(h))
            sig = F.relu(self.alpha_linear(h) + .0)[..., 0]; v = torch.cat([d, d.flip(-1)*d], -1)[:, None].expand(-1, S, -1); rgb = self.rgb_linear(F.relu(self.views_linear(torch.cat([self.feature_linear(h), v], -1)))).sigmoid()
            dl = torch.full_like(sig, 2/S*4); a = (1 - torch.exp((1 if s == "sigma" else -1)*sig*dl)).clamp(0, 1)
            tr = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1-a+1e-10], 1), 1); w = a*(tr[:, 1:] if s == "trans" else tr[:, :-1]); return (w[..., None]*rgb).sum(1)
    def scene(p):
        c = torch.stack([.5+.5*torch.sin(6*p[..., 0]), .5+.5*torch.cos(5*p[..., 1]), .5+.5*torch.sin(4*(p[..., 0]-p[..., 1]))], -1)
        return ((p.norm(dim=-1)-.6).abs() < .2).float()*6 + (((p-torch.tensor([.2, -.1])).norm(dim=-1)) < .2).float()*8, c
    def data(seed):
        g = G(seed); B = 64; a = 6.28*torch.rand(B, generator=g); d = torch.stack([a.cos(), a.sin()], -1); o = -d + torch.stack([-a.sin(), a.cos()], -1)*(torch.rand(B, 1, generator=g)*1.6-.8)
        z = torch.linspace(0, 2, 64); sg, c = scene(o[:, None] + d[:, None]*z[None, :, None]); al = 1-torch.exp(-sg*2/64); tr = torch.cumprod(torch.cat([torch.ones(B, 1), 1-al], 1), 1)[:, :-1]
        return (o, d), ((al*tr)[..., None]*c).sum(1)
    return dict(model=NeRF, data=data, loss=F.mse_loss)

# ---------------------------------------------------------------- VQ-VAE
@net(sign="A = +exp(A_log): the state grows", causal="conv1d output not cut to [:L] from the left but [-L:] (looks 3 ahead)", gate="gate z unused: y not multiplied by silu(z)", dt="dt bias initialised to softplus^-1 forgotten and dt not passed through softplus")
def mamba(s):
    V, C, E, NS, T = 12, 32, 64, 8, 20
    class Mix(nn.Module):
        def __init__(self):
            super().__init__(); self.in_proj = nn.Linear(C, 2*E, bias=False); self.conv1d = nn.Conv1d(E, E, 4, groups=E, padding=3); self.x_proj = nn.Linear(E, 4+2*NS, bias=False); self.dt_proj = nn.Linear(4, E); self.A_log = nn.Parameter(torch.log(torch.arange(1., NS+1).repeat(E, 1))); self.D = nn.Parameter(torch.ones(E)); self.out_proj = nn.Linear(E, C, bias=False)
            dt = torch.exp(torch.rand(E)*(math.log(.1)-math.log(.001)) + math.log(.001))
            with torch.no_grad(): self.dt_proj.weight.uniform_(-.5, .5); (self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt))) if s != "dt" else None)
        def forward(self, u):
            B, L, _ = u.shape; x, z = self.in_proj(u).chunk(2, -1); c = self.conv1d(x.transpose(1, 2)); x = F.silu(c[..., -L:] if s == "causal" else c[..., :L]).transpose(1, 2)
            dt, Bm, Cm = self.x_proj(x).split([4, NS, NS], -1); dt = self.dt_proj(dt); dt = dt if s == "dt" else F.softplus(dt); A = (1 if s == "sign" else -1)*torch.exp(self.A_log)
            dA = torch.exp(dt[..., None]*A); dBx = dt[..., None]*Bm[:, :, None]*x[..., None]; h = torch.zeros_like(dBx[:, 0]); ys = []
            for i in range(L): h = dA[:, i]*h + dBx[:, i]; ys.append((h*Cm[:, i, None]).sum(-1))
            y = torch.stack(ys, 1) + self.D*x; return self.out_proj(y if s == "gate" else y*F.silu(z))
    class Mamba(nn.Module):
        def __init__(self): super().__init__(); self.embedding = nn.Embedding(V, C); self.layers = nn.ModuleList([Mix() for _ in range(2)]); self.norms = nn.ModuleList([nn.RMSNorm(C) for _ in range(2)]); self.norm_f = nn.RMSNorm(C); self.lm_head = nn.Linear(C, V, bias=False)
        def forward(self, x):
            x = self.embedding(x)
            for n, l in zip(self.norms, self.layers): x = x + l(n(x))
            return self.lm_head(self.norm_f(x))
    def data(seed):  # selective: tokens 0..7 noise/content; next = f(prev, last "key" token 8..11 seen)
        g = G(seed); B = 16; key = torch.zeros(B, dtype=torch.long); x = [torch.randint(8, 12, (B,), generator=g)]; prev = torch.zeros(B, dtype=torch.long); key = x[0]-8
        for t in range(T):
            nxt = torch.where(torch.rand(B, generator=g) < .85, (prev + 1 + key*2) % 8, torch.randint(8, (B,), generator=g)); isk = torch.rand(B, generator=g) < .06; nk = torch.randint(4, (B,), generator=g); x.append(torch.where(isk, nk+8, nxt)); key = torch.where(isk, nk, key); prev = torch.where(isk, prev, nxt)
        x = torch.stack(x, 1); return x[:, :-1].contiguous(), x[:, 1:].contiguous()
    return dict(model=Mamba, data=data, loss=lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))

# ---------------------------------------------------------------- SimCLR
@net(temp="logits multiplied by the temperature", diag_="self-similarity not masked out", norm="features not normalised", pos="positives labelled (i+1) instead of (i+B) mod 2B")
def simclr(s):
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.backbone = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()); self.projector = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
        def forward(self, a, b):
            z = self.projector(self.backbone(torch.cat([a, b], 0))); return z
    def ntx(o, t, s):
        z = o if s == "norm" else F.normalize(o, dim=1); n = z.shape[0]; l = z @ z.t(); l = l*.2 if s == "temp" else l/.2
        if s != "diag_": l = l.masked_fill(torch.eye(n, dtype=torch.bool), -1e9)
        y = (torch.arange(n) + (1 if s == "pos" else n//2)) % n; return F.cross_entropy(l, y)
    def data(seed):
        g = G(seed); B = 32; yy, xx = torch.meshgrid(torch.arange(12.), torch.arange(12.), indexing="ij"); f = torch.rand(B, 2, 1, 1, generator=g)*2.4
        def view(): r = torch.rand(B, 2, 1, 1, generator=g); return (torch.sin(f[:, 0]*xx + f[:, 1]*yy + 6.28*r[:, 0])*(.7+.6*r[:, 1]) + .2*torch.randn(B, 12, 12, generator=g)).unsqueeze(1)
        return (view(), view()), None
    return dict(model=Net, data=data, loss=lambda o, t: ntx(o, t, s), diag={})
