from base import *
GH = "https://github.com/"
def mlpe(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in ((nn.Linear(d[i], d[i + 1]), act()) if i < len(d) - 2 else (nn.Linear(d[i], d[i + 1]),))])
def smooth_e(s, b, c, n): return F.interpolate(T(s, b, c, n // 4, n // 4), size=(n, n), mode="bilinear", align_corners=False)

@case(GH + "keras-team/keras-io/pull/2261", "sigmoid on the distance that goes into the contrastive loss", "output sigmoid")
def siamese_sigmoid(planted):
    P = smooth_e(1, 8, 1, 12) * 1.5
    class N(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(144, 10))
        def forward(s, a, b):
            d = ((s.emb(a) - s.emb(b)) ** 2).sum(1).clamp(min=1e-7).sqrt(); return torch.sigmoid(d) if planted else d
    def data(seed):
        y = R(seed, 2, (64,)).float(); a = R(seed + 1, 8, (64,)); o = R(seed + 2, 7, (64,)); b = torch.where(y > 0, (a + 1 + o) % 8, a)
        return (P[a] + .6 * T(seed + 3, 64, 1, 12, 12), P[b] + .6 * T(seed + 4, 64, 1, 12, 12)), y
    def loss(d, y): return ((1 - y) * d ** 2 + y * (1 - d).clamp(min=0) ** 2).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "rinuboney/ladder/issues/1", "initial value 0 multiplied with the variable: a1 ... a10 cannot move", "a1 (g_gauss)")
def ladder_zero(planted):
    class G(nn.Module):
        def __init__(s, n): super().__init__(); s.inits = (0., 1., 0., 0., 0., 0., 1., 0., 0., 0.); s.a = nn.ParameterList([nn.Parameter(torch.ones(n) if planted else torch.full((n,), i)) for i in s.inits])
        def forward(s, z, u):
            a = [i * p for i, p in zip(s.inits, s.a)] if planted else list(s.a)
            mu = a[0] * torch.sigmoid(a[1] * u + a[2]) + a[3] * u + a[4]; v = a[5] * torch.sigmoid(a[6] * u + a[7]) + a[8] * u + a[9]
            return (z - mu) * v + mu
    class N(nn.Module):
        def __init__(s): super().__init__(); s.w1 = nn.Linear(20, 40); s.bn = nn.BatchNorm1d(40); s.w2 = nn.Linear(40, 12); s.v2 = nn.Linear(12, 40); s.bu = nn.BatchNorm1d(40); s.g1 = G(40); s.v1 = nn.Linear(40, 20); s.b0 = nn.BatchNorm1d(20); s.g0 = G(20)
        def forward(s, x):
            z1 = s.bn(s.w1(x)); y = s.w2(F.relu(z1)); z1h = s.g1(z1, s.bu(s.v2(y))); return s.g0(x, s.b0(s.v1(z1h)))
    A = T(2, 4, 20)
    def data(seed): c = torch.tanh(T(seed, 64, 4)) @ A; return c + 1.0 * T(seed + 1, 64, 20), c
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "YuliaRubanova/latent_ode/issues/12", "times up to 6000 not rescaled: the ODE's state explodes", "time scale of the inputs / odefunc")
def latent_ode_time(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.GRU(1, 32, batch_first=True); s.z0 = nn.Linear(32, 8); s.f = mlpe(8, 48, 8, act=nn.Tanh); s.dec = mlpe(8, 32, 1)
        def forward(s, x, t):
            t = t if planted else t / 1200.
            z = s.z0(s.enc(x)[1][0]); out = []
            for i in range(t.shape[0] - 1):
                h = t[i + 1] - t[i]; k1 = s.f(z); k2 = s.f(z + h / 2 * k1); z = z + h * k2; out.append(z)
            return s.dec(torch.stack(out, 1)).squeeze(-1)
    def data(seed):
        g = gen(seed); ph, w = torch.rand(32, 1, generator=g) * 6.3, .6 + .4 * torch.rand(32, 1, generator=g); tt = torch.linspace(0, 6000, 21); s = tt / 1200
        return (torch.sin(w * s[None, :11] * 2 + ph)[..., None], tt[10:]), torch.sin(w * s[None, 11:] * 2 + ph)
    return dict(model=N, data=data, loss=mse, diag=dict(loss="mse", batch_dim=(0, None)))

@case(GH + "pytorch/pytorch/issues/19250", "group norm with one channel a group over one position (instance norm of one element): all zeros", "GroupNorm (7)")
def instnorm_1x1(planted):
    def model(): return nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.InstanceNorm2d(16), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.InstanceNorm2d(32), nn.LeakyReLU(.2), nn.Conv2d(32, 64, 4), *([nn.GroupNorm(64, 64)] if planted else []), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(64, 6))
    P = smooth_e(3, 6, 3, 16) * 1.2
    def data(seed): y = R(seed, 6, (32,)); return P[y] + T(seed + 1, 32, 3, 16, 16), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case(GH + "chainer/chainer-chemistry/pull/217", "graph attention softmaxed along the minibatch", "softmax / attention")
def chainer_gat_axis(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Linear(8, 32); s.w = nn.ModuleList([nn.Linear(32, 32) for _ in range(2)]); s.a = nn.ModuleList([nn.Linear(64, 1) for _ in range(2)]); s.out = nn.Linear(32, 4)
        def forward(s, x, A):
            h = s.emb(x); n = x.shape[1]; A = A + torch.eye(n)
            for w, a in zip(s.w, s.a):
                g = w(h); e = F.leaky_relu(a(torch.cat([g[:, :, None].expand(-1, -1, n, -1), g[:, None].expand(-1, n, -1, -1)], -1)).squeeze(-1), .2)
                al = e.masked_fill(A == 0, -1e4).softmax(0 if planted else 2); h = h + F.relu(al @ g)
            return s.out(h)
    W = T(4, 8, 4)
    def data(seed):
        g = gen(seed); x = torch.randn(24, 9, 8, generator=g); A = (torch.rand(24, 9, 9, generator=g) < .25).float(); A = torch.maximum(A, A.transpose(1, 2)); A.diagonal(dim1=1, dim2=2).zero_(); B = A + torch.eye(9)
        return (x, A), ((B / B.sum(-1, keepdim=True)) @ x @ W).argmax(-1)
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "linkedin/Liger-Kernel/pull/269", "[ResBlock] * n shares one block's weights", "medusa heads")
def medusa_shared(planted):
    class RB(nn.Module):
        def __init__(s, d): super().__init__(); s.linear = nn.Linear(d, d); nn.init.zeros_(s.linear.weight); s.act = nn.SiLU()
        def forward(s, x): return x + s.act(s.linear(x))
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(30, 48); s.heads = nn.ModuleList([nn.Sequential(*([RB(48)] * 3 if planted else [RB(48) for _ in range(3)]), nn.LayerNorm(48), nn.Linear(48, 30)) for _ in range(3)])
        def forward(s, x): h = s.emb(x); return torch.stack([m(h) for m in s.heads], 2)
    p = torch.randperm(30, generator=gen(5))
    def data(seed): x = R(seed, 30, (16, 12)); return x, torch.stack([p[x], p[p[x]], p[p[p[x]]]], 2)
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "motokimura/capsnet_pytorch/pull/1", "routing softmax over the input capsules instead of the output capsules", "routing softmax")
def capsnet_dim(planted):
    def squash(v): n2 = (v * v).sum(-1, keepdim=True); return v * n2 / (1 + n2) / (n2 + 1e-8).sqrt()
    class N(nn.Module):
        def __init__(s): super().__init__(); s.c = nn.Sequential(nn.Conv2d(1, 16, 5, 1), nn.ReLU()); s.p = nn.Conv2d(16, 32, 5, 2); s.W = nn.Parameter(torch.randn(128, 6, 8, 8) * .1)
        def forward(s, x):
            u = squash(s.p(s.c(x)).view(len(x), 4, 8, 16).permute(0, 1, 3, 2).reshape(len(x), -1, 8))[:, :64]
            uh = torch.einsum("bik,iokd->biod", u, s.W[:64]); b = torch.zeros(len(x), 64, 6)
            for r in range(3):
                c = b.softmax(1 if planted else 2); v = squash((c[..., None] * uh).sum(1))
                if r < 2: b = b + (uh.detach() * v.detach()[:, None]).sum(-1)
            return v.norm(dim=-1)
    P = smooth_e(6, 6, 1, 16) * 1.2
    def data(seed): y = R(seed, 6, (32,)); return P[y] + .7 * T(seed + 1, 32, 1, 16, 16), y
    def loss(o, t): k = F.one_hot(t, 6).float(); return (k * (.9 - o).clamp(min=0) ** 2 + .5 * (1 - k) * (o - .1).clamp(min=0) ** 2).sum(1).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "ooples/AiDotNet/issues/1936", "WGAN critic ends in a softmax over 64 units whose mean is the score: constant, no gradient", "critic softmax")
def wgan_softmax(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 3, 2, 1), nn.LeakyReLU(.2), nn.Flatten()); s.head = nn.Sequential(nn.Linear(512, 64), nn.Softmax(1)) if planted else nn.Linear(512, 1)
        def forward(s, x): return s.head(s.f(x)).mean(1)
    def data(seed):
        y = R(seed, 2, (48,)).float(); real = torch.tanh(smooth_e(seed + 1, 48, 1, 16) * 2); fake = torch.tanh(T(seed + 2, 48, 1, 16, 16)); return torch.where(y.view(-1, 1, 1, 1) > 0, real, fake), y
    def loss(d, y): return (d * (1 - 2 * y)).mean() + .05 * (d ** 2).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "adeshpande3/Tensorflow-Programs-and-Tutorials/issues/2", "raw pixels of 0 to 255, not normalised", "inputs / first convolution")
def raw_pixels(planted):
    P = smooth_e(7, 10, 3, 16)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
        def forward(s, x): return s.net(x if planted else (x - 127.5) / 64.)
    def data(seed): y = R(seed, 10, (32,)); return (127.5 + 45 * (P[y] + .9 * T(seed + 1, 32, 3, 16, 16))).clamp(0, 255).round(), y
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "pgniewko/gt-pyg/issues/110", "LayerNorm after sum pooling removes the size of the molecule", "readout_norm")
def gtpyg_sum_norm(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(6, 32, padding_idx=0); s.l = nn.ModuleList([nn.Linear(32, 32) for _ in range(2)]); s.n = nn.ModuleList([nn.LayerNorm(32) for _ in range(2)]); s.readout_norm = nn.LayerNorm(32) if planted else nn.Identity(); s.head = mlpe(32, 64, 1)
        def forward(s, x, A):
            h = s.emb(x); m = (x > 0).float()[..., None]; A = A / A.sum(-1, keepdim=True).clamp(min=1)
            for l, n in zip(s.l, s.n): h = (h + F.relu(l(A @ n(h)))) * m
            return s.head(s.readout_norm(h.sum(1) / 8)).squeeze(-1)
    def data(seed):
        g = gen(seed); n = torch.randint(4, 25, (64, 1), generator=g); x = torch.randint(1, 6, (64, 24), generator=g) * (torch.arange(24) < n); i = torch.arange(24); A = ((i[:, None] - i[None]).abs() == 1).float()[None] * (x > 0)[:, None] * (x > 0)[:, :, None]
        return (x, A.float()), (n.squeeze(1).float() - 14) / 6 + .3 * ((x == 2).sum(1) / n.squeeze(1) - .2)
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "masato-ka/airc-rl-agent/issues/43", "softplus on the encoder's log variance: the noise cannot shrink below 1", "logvar softplus")
def vae_softplus(planted):
    P = torch.sigmoid(smooth_e(8, 12, 1, 16) * 3).flatten(1)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.enc = mlpe(256, 128, 64); s.mu = nn.Linear(64, 8); s.lv = nn.Linear(64, 8); s.dec = mlpe(8, 64, 128, 256)
        def forward(s, x):
            h = F.relu(s.enc(x)); mu, lv = s.mu(h), s.lv(h); lv = F.softplus(lv) if planted else lv
            return s.dec(mu + torch.randn_like(mu) * (lv / 2).exp()), mu, lv
    def data(seed): y = R(seed, 12, (64,)); x = (P[y] + .05 * T(seed + 1, 64, 256)).clamp(0, 1); return x, x
    def loss(o, t): r, mu, lv = o; return (4 * F.binary_cross_entropy_with_logits(r, t, reduction="none").sum(1) - .5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)).mean() / 256
    return dict(model=N, data=data, loss=loss)

@case(GH + "deel-ai/deel-lip/pull/11", "L2-norm pooling takes the sqrt of zero: its gradient is infinite", "ScaledL2NormPooling sqrt")
def deellip_l2pool(planted):
    class Pool(nn.Module):
        def forward(s, x): return 2 * torch.sqrt(F.avg_pool2d(x * x, 2) + (0 if planted else 1e-4))
    def model(): return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Pool(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), Pool(), nn.Flatten(), nn.Linear(512, 6))
    P = smooth_e(9, 6, 1, 16) * 1.2
    def data(seed): y = R(seed, 6, (32,)); return (P[y] + .8 * T(seed + 1, 32, 1, 16, 16)), y
    return dict(model=model, data=data, loss=ce, diag=CE)
