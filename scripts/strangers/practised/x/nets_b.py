from com import *

@case("paper: HRNet / simple baselines pose", "ReLU after the last heatmap convolution (heatmaps are >= 0)", "final relu")
def hrnet_final_relu(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.stem = cbr(3, 24, 3, 2); s.hi1 = cbr(24, 24); s.lo1 = cbr(24, 48, 3, 2); s.hi2 = cbr(24, 24); s.lo2 = cbr(48, 48)
            s.up = nn.Sequential(nn.Conv2d(48, 24, 1, bias=False), nn.BatchNorm2d(24)); s.dn = nn.Sequential(nn.Conv2d(24, 48, 3, 2, 1, bias=False), nn.BatchNorm2d(48)); s.hi3 = cbr(24, 24); s.lo3 = cbr(48, 48); s.up2 = nn.Sequential(nn.Conv2d(48, 24, 1, bias=False), nn.BatchNorm2d(24)); s.final = nn.Conv2d(24, 6, 1)
            nn.init.normal_(s.final.weight, 0, .001); nn.init.zeros_(s.final.bias)
            if planted: s.final = nn.Sequential(s.final, nn.ReLU())
        def forward(s, x):
            x = s.stem(x); h = s.hi2(s.hi1(x)); l = s.lo2(s.lo1(x)); h, l = F.relu(h + F.interpolate(s.up(l), scale_factor=2)), F.relu(l + s.dn(h))
            h, l = s.hi3(h), s.lo3(l); return s.final(F.relu(h + F.interpolate(s.up2(l), scale_factor=2)))
    def loss(o, t): return 100 * F.mse_loss(o, t)
    def data(seed):
        x = .3 * T(seed, 8, 3, 32, 32); t = torch.zeros(8, 6, 16, 16); pat = T(5, 6, 3, 6, 6); pos = R(seed + 2, 26, (8, 6, 2)); u = torch.arange(16.)
        for b in range(8):
            for j in range(6): i, l = pos[b, j].tolist(); x[b, :, i:i+6, l:l+6] += 1.5 * pat[j]; t[b, j] = torch.exp(-((u[:, None] - (i + 3) / 2) ** 2 + (u[None] - (l + 3) / 2) ** 2) / 4)
        return x, t
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: Dynamic routing between capsules", "squash normalises over the capsule axis instead of the capsule's vector", "squash")
def capsnet_squash_axis(planted):
    def squash(v, dim): n2 = (v ** 2).sum(dim, keepdim=True); return n2 / (1 + n2) * v / (n2 + 1e-8).sqrt()
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.conv1 = nn.Conv2d(1, 32, 5); s.prim = nn.Conv2d(32, 8 * 8, 5, 2); s.W = nn.Parameter(.05 * torch.randn(8 * 64, 10, 12, 8))
        def forward(s, x):
            B = x.shape[0]; u = s.prim(F.relu(s.conv1(x))).view(B, 8, 8, -1).transpose(2, 3).reshape(B, -1, 8); u = squash(u, 1 if planted else 2)
            uh = torch.einsum("niop,bnp->bnio", s.W[:u.shape[1]].contiguous(), u); b = torch.zeros(B, uh.shape[1], 10)
            for r in range(3):
                c = b.softmax(2); v = squash((c[..., None] * uh).sum(1), 1 if planted else 2)
                if r < 2: b = b + (uh.detach() * v.detach()[:, None]).sum(-1)
            return (v ** 2).sum(-1).add(1e-8).sqrt()
    def margin(o, y): t = F.one_hot(y, 10).float(); return (t * F.relu(.9 - o) ** 2 + .5 * (1 - t) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=Net, data=lambda seed: imgs(seed, 16, 1, 24, noise=.7), loss=margin, diag={})

@case("paper: PointNet", "(B, N, 3) points brought to (B, 3, N) with view instead of transpose", "input / mlp1")
def pointnet_view(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()); s.mlp1 = nn.Sequential(c(3, 32), c(32, 64), c(64, 128)); s.head = nn.Sequential(nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 6))
        def forward(s, x): x = x.view(x.shape[0], 3, -1) if planted else x.transpose(1, 2); return s.head(s.mlp1(x).max(2).values)
    def data(seed):
        y = R(seed, 6, (32,)); g = gen(seed + 1); p = torch.randn(32, 64, 3, generator=g); p = p / p.norm(dim=-1, keepdim=True); A = T(4, 6, 3, 3) * .5 + torch.eye(3); p = p @ A[y]
        return p - p.mean(1, keepdim=True) + .02 * T(seed + 2, 32, 64, 3), y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: NeRF", "transmittance by an inclusive cumprod: an opaque sample hides itself", "compositing")
def nerf_inclusive_cumprod(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l = nn.Sequential(nn.Linear(26, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.sig = nn.Linear(64, 1); s.rgb = nn.Linear(64, 3)
        def forward(s, o, d):
            t = torch.linspace(0, 2, 24); p = o[:, None] + d[:, None] * t[None, :, None]; f = 2. ** torch.arange(6) * math.pi / 2; e = (p[..., None] * f).flatten(2)
            h = s.l(torch.cat([p, e.sin(), e.cos()], -1)); a = 1 - torch.exp(-F.softplus(s.sig(h)[..., 0] - 1) * 2 / 24 * 25); T_ = torch.cumprod(1 - a + 1e-10, 1)
            if not planted: T_ = torch.cat([torch.ones_like(T_[:, :1]), T_[:, :-1]], 1)
            return ((a * T_)[..., None] * s.rgb(h).sigmoid()).sum(1)
    def data(seed):   # 2-D scene: a disc, coloured by angle, seen from outside; bright
        g = gen(seed); th = torch.rand(256, generator=g) * 6.283; o = torch.stack([th.cos(), th.sin()], 1); q = (torch.rand(256, 2, generator=g) - .5) * .8; d = F.normalize(q - o, dim=1)
        b = (o * d).sum(1); disc = b ** 2 - (1 - .25); hit = disc > 0; s_ = -b - disc.clamp(min=0).sqrt(); p = o + d * s_[:, None]; a = torch.atan2(p[:, 1], p[:, 0])
        return (o, d), hit[:, None] * torch.stack([.5 + .5 * a.sin(), .5 + .5 * a.cos(), .5 + .5 * (2 * a).sin()], 1)
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: SIREN", "hidden layers' init without the division by w0 = 30", "hidden layers")
def siren_init(planted):
    class Sine(nn.Module):
        def __init__(s, i, o, first=False):
            super().__init__(); s.linear = nn.Linear(i, o); b = 1 / i if first else math.sqrt(6 / i) / (1 if planted else 30); nn.init.uniform_(s.linear.weight, -b, b)
        def forward(s, x): return torch.sin(30 * s.linear(x))
    def model():
        out = nn.Linear(64, 1); nn.init.uniform_(out.weight, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30); return nn.Sequential(Sine(2, 64, True), Sine(64, 64), Sine(64, 64), out)
    def data(seed): x = torch.rand(256, 2, generator=gen(seed)) * 2 - 1; return x, torch.sin(8 * x[:, :1] + 3) * torch.cos(6 * x[:, 1:]) + .5 * torch.sin(14 * x[:, :1] * x[:, 1:])
    return dict(model=model, data=data, loss=mse, diag={})

def cora(seed=0, n=240, k=6, f=40, pi=.12, po=.008):
    g = gen(11 + seed); y = torch.randint(0, k, (n,), generator=g); p = torch.where(y[:, None] == y[None], pi, po); A = (torch.rand(n, n, generator=g) < p).float().triu(1); A = A + A.T
    C = torch.randn(k, f, generator=gen(1)); return y, A, .35 * C[y] + torch.randn(n, f, generator=g)

@case("paper: GCN", "log_softmax over the nodes (dim 0) in front of nll_loss", "log_softmax / output")
def gcn_logsoftmax_dim(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.w1 = nn.Linear(40, 32, bias=False); s.b1 = nn.Parameter(torch.zeros(32)); s.w2 = nn.Linear(32, 6, bias=False); s.b2 = nn.Parameter(torch.zeros(6)); nn.init.xavier_uniform_(s.w1.weight); nn.init.xavier_uniform_(s.w2.weight)
        def forward(s, x, A):
            A = A + torch.eye(len(A)); d = A.sum(1).rsqrt(); A = d[:, None] * A * d; h = F.relu(A @ s.w1(x) + s.b1); return F.log_softmax(A @ s.w2(h) + s.b2, dim=0 if planted else 1)
    def nll(o, t): return F.nll_loss(o, t)
    def ev(o, t): return F.nll_loss(o.log_softmax(1), t)
    def data(seed): y, A, x = cora(seed); return (x, A), y
    return dict(model=Net, data=data, loss=nll if planted else ev, diag=dict(examples="one"))

@case("paper: GAT", "non-neighbours' scores multiplied by adjacency (0) instead of masked with -inf: attends everybody", "attention mask")
def gat_mask_zero(planted):
    class Head(nn.Module):
        def __init__(s, i, o): super().__init__(); s.W = nn.Linear(i, o, bias=False); s.a = nn.Parameter(torch.empty(2, o)); nn.init.xavier_uniform_(s.a, 1.414); nn.init.xavier_uniform_(s.W.weight, 1.414)
        def forward(s, x, A):
            h = s.W(x); e = F.leaky_relu((h @ s.a[0])[:, None] + (h @ s.a[1])[None], .2); e = e * A if planted else e.masked_fill(A == 0, -9e15); return e.softmax(1) @ h
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1 = nn.ModuleList(Head(40, 16) for _ in range(4)); s.l2 = Head(64, 6)
        def forward(s, x, A): A = A + torch.eye(len(A)); return s.l2(F.elu(torch.cat([h(x, A) for h in s.l1], 1)), A)
    def data(seed): y, A, x = cora(seed); return (x, A), y
    return dict(model=Net, data=data, loss=ce, diag=dict(examples="one"))

@case("paper: GIN (how powerful are GNNs)", "mean aggregation and mean readout on graphs without node features (all ones): every graph looks alike", "aggregation / layers")
def gin_mean_constant(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); m = lambda i: nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()); s.mlps = nn.ModuleList([m(1), m(32), m(32)]); s.eps = nn.Parameter(torch.zeros(3)); s.out = nn.Sequential(nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 3))
        def forward(s, x, A):
            a = A / A.sum(-1, keepdim=True).clamp(min=1) if planted else A; hs = []
            for i, m in enumerate(s.mlps): x = m((1 + s.eps[i]) * x + (a @ x) / (1 if planted else 4)); hs.append(x.mean(1))
            return s.out(torch.cat(hs, 1))
    def data(seed):
        y = R(seed, 3, (32,)); g = gen(seed + 1); p = torch.tensor([.15, .25, .38])[y]; A = (torch.rand(32, 16, 16, generator=g) < p[:, None, None]).float().triu(1); A = A + A.transpose(1, 2); A[:, torch.arange(15), torch.arange(1, 16)] = 1; A[:, torch.arange(1, 16), torch.arange(15)] = 1
        return (torch.ones(32, 16, 1), A), y
    return dict(model=Net, data=data, loss=ce, diag={})

class Ssp(nn.Module):
    def forward(s, x): return F.softplus(x) - math.log(2)
@case("paper: SchNet", "cosine cutoff of 5 (Angstrom) on distances given in picometre-like units: every filter is cut to zero", "cutoff / filter")
def schnet_cutoff_units(planted):
    class Inter(nn.Module):
        def __init__(s, d): super().__init__(); s.filt = nn.Sequential(nn.Linear(20, d), Ssp(), nn.Linear(d, d)); s.in2f = nn.Linear(d, d, bias=False); s.f2out = nn.Sequential(nn.Linear(d, d), Ssp(), nn.Linear(d, d))
        def forward(s, x, r, e, cut): W = s.filt(e) * cut[..., None]; return x + s.f2out((W * s.in2f(x)[:, None]).sum(2))
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.emb = nn.Embedding(4, d); s.inter = nn.ModuleList(Inter(d) for _ in range(2)); s.out = nn.Sequential(nn.Linear(d, 16), Ssp(), nn.Linear(16, 1)); s.register_buffer("mu", torch.linspace(0, 5, 20))
        def forward(s, z, pos):
            if planted: pos = pos * 52.9
            r = ((pos[:, :, None] - pos[:, None]) ** 2).sum(-1).add(1e-12).sqrt(); e = torch.exp(-8 * (r[..., None] - s.mu) ** 2); cut = .5 * (torch.cos(r * math.pi / 5) + 1) * (r < 5) * (1 - torch.eye(r.shape[1])); x = s.emb(z)
            for i in s.inter: x = i(x, r, e, cut)
            return s.out(x).sum(1)
    def data(seed):
        pos = 1.5 * T(seed, 32, 8, 3); z = R(seed + 1, 4, (32, 8)); q = torch.tensor([1., -1, .5, -.5])[z]; r = (pos[:, :, None] - pos[:, None]).norm(dim=-1); E = (q[:, :, None] * q[:, None] * torch.exp(-r / 1.5) * (1 - torch.eye(8))).sum((1, 2))
        return (z, pos), E[:, None]
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: EGNN", "coordinate update summed with a plain last layer (xavier gain 0.001 forgotten) over all neighbours: coordinates explode layer by layer", "coord_mlp")
def egnn_coord_blowup(planted):
    class L(nn.Module):
        def __init__(s, d):
            super().__init__(); s.edge = nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU()); s.node = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d)); s.coord_mlp = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1, bias=False))
            if not planted: nn.init.xavier_uniform_(s.coord_mlp[2].weight, gain=.001)
        def forward(s, h, x):
            B, N, D = h.shape; df = x[:, :, None] - x[:, None]; r = (df ** 2).sum(-1, keepdim=True); m = s.edge(torch.cat([h[:, :, None].expand(B, N, N, D), h[:, None].expand(B, N, N, D), r], -1)); m = m * (1 - torch.eye(N))[..., None]
            x = x + (df * s.coord_mlp(m)).sum(2); return h + s.node(torch.cat([h, m.sum(2)], -1)), x
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.emb = nn.Linear(1, d); s.layers = nn.ModuleList(L(d) for _ in range(4))
        def forward(s, q, x):
            h = s.emb(q)
            for l in s.layers: h, x = l(h, x)
            return x
    def data(seed):
        x = T(seed, 16, 8, 3) * 1.5; q = R(seed + 1, 2, (16, 8)).float() * 2 - 1; df = x[:, :, None] - x[:, None]; r = df.norm(dim=-1, keepdim=True); f = (q[:, :, None] * q[:, None])[..., None] * df / (r ** 2 + 1)
        return (q[..., None], x), x + f.sum(2)
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: word2vec (skip-gram, negative sampling)", "both embedding tables start at zero (only the output table does in the original)", "in_embed / out_embed")
def word2vec_zero_tables(planted):
    class Net(nn.Module):
        def __init__(s, V=60, d=32):
            super().__init__(); s.in_embed = nn.Embedding(V, d); s.out_embed = nn.Embedding(V, d); nn.init.zeros_(s.out_embed.weight)
            if planted: nn.init.zeros_(s.in_embed.weight)
            else: nn.init.uniform_(s.in_embed.weight, -.5 / d * 8, .5 / d * 8)
        def forward(s, c, o): return (s.in_embed(c)[:, None] * s.out_embed(o)).sum(-1)
    def bce(o, t): return F.binary_cross_entropy_with_logits(o, t)
    def data(seed):
        c = R(seed, 60, (256,)); pos = (c // 6 * 6 + R(seed + 1, 6, (256,))) ; neg = R(seed + 2, 60, (256, 3)); return (c, torch.cat([pos[:, None], neg], 1)), torch.cat([torch.ones(256, 1), torch.zeros(256, 3)], 1)
    return dict(model=Net, data=data, loss=bce, diag={})

@case("paper: Bahdanau attention", "padding mask inverted: scores of real tokens are masked, pads attended", "attention mask")
def bahdanau_mask_inverted(planted):
    class Net(nn.Module):
        def __init__(s, V=12, d=48):
            super().__init__(); s.emb = nn.Embedding(V, d, padding_idx=0); s.demb = nn.Embedding(V, d); s.enc = nn.GRU(d, d // 2, batch_first=True, bidirectional=True); s.cell = nn.GRUCell(2 * d, d); s.Wa = nn.Linear(d, d, bias=False); s.Ua = nn.Linear(d, d); s.va = nn.Linear(d, 1, bias=False); s.init = nn.Linear(d, d); s.out = nn.Linear(2 * d, V)
        def forward(s, src, prev):
            m = src != 0; H, _ = s.enc(s.emb(src)); h = torch.tanh(s.init((H * m[..., None]).sum(1) / m.sum(1, keepdim=True))); K = s.Ua(H); o = []; m = ~m if planted else m; e = s.demb(prev)
            for t in range(prev.shape[1]): a = s.va(torch.tanh(s.Wa(h)[:, None] + K))[..., 0].masked_fill(~m, -1e9).softmax(1); c = (a[..., None] * H).sum(1); h = s.cell(torch.cat([e[:, t], c], 1), h); o.append(s.out(torch.cat([h, c], 1)))
            return torch.stack(o, 1)
    def data(seed):
        src = R(seed, 10, (64, 8)) + 2; L = R(seed + 1, 2, (64,)) + 6; src = src.masked_fill(torch.arange(8)[None] >= L[:, None], 0); t = (src[:, :5] - 2 + 3) % 10 + 2; return (src, torch.cat([torch.ones(64, 1, dtype=torch.long), t[:, :-1]], 1)), t
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("paper: Pointer networks / Bello et al.", "tanh clipping of the pointer's logits without the factor C = 10: scores within [-1, 1]", "pointer logits")
def pointer_tanh_no_c(planted):
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Linear(1, d); s.enc = nn.LSTM(d, d, batch_first=True); s.cell = nn.LSTMCell(d, d); s.start = nn.Parameter(torch.randn(d) * .1); s.W1 = nn.Linear(d, d, bias=False); s.W2 = nn.Linear(d, d); s.v = nn.Linear(d, 1, bias=False)
        def forward(s, x, tgt):
            e = s.emb(x[..., None]); H, (h, c) = s.enc(e); h, c = h[0], c[0]; inp = s.start.expand(x.shape[0], -1); m = torch.zeros_like(x, dtype=torch.bool); o = []; K = s.W1(H + e)
            for t in range(x.shape[1]):
                h, c = s.cell(inp, (h, c)); u = s.v(torch.tanh(K + s.W2(h)[:, None]))[..., 0]; u = (1 if planted else 10) * torch.tanh(u); o.append(u.masked_fill(m, -1e9)); i = tgt[:, t]; m = m.scatter(1, i[:, None], True); inp = e[torch.arange(len(x)), i]
            return torch.stack(o, 1)
    def data(seed): x = torch.rand(64, 8, generator=gen(seed)); t = x.argsort(1); return (x * 4 - 2, t), t
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("paper: Deformable convolution", "pixel offsets added to the [-1, 1] sampling grid undivided, offset layer not zero-initialised", "offset conv / sampling")
def deformable_units(planted):
    class DConv(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.offset = nn.Conv2d(i, 18, 3, padding=1); s.w = nn.Conv2d(9 * i, o, 1, bias=False); s.bn = nn.BatchNorm2d(o)
            if not planted: nn.init.zeros_(s.offset.weight); nn.init.zeros_(s.offset.bias)
        def forward(s, x):
            B, C, H, W = x.shape; off = s.offset(x).view(B, 9, 2, H, W); u = (torch.arange(float(H)) + .5) * 2 / H - 1; base = torch.stack(torch.meshgrid(u, u, indexing="ij")[::-1], -1); o = []
            for k in range(9):
                kd = torch.tensor([k % 3 - 1., k // 3 - 1.]); d = off[:, k].permute(0, 2, 3, 1); g = base + (kd * 2 / H + d if planted else (kd + d) * 2 / H); o.append(F.grid_sample(x, g, align_corners=False))
            return F.relu(s.bn(s.w(torch.cat(o, 1))))
    def model(): return nn.Sequential(cbr(3, 16, 3, 2), DConv(16, 24), DConv(24, 24), nn.Conv2d(24, 5, 1))
    def data(seed):
        x = .3 * T(seed, 8, 3, 32, 32); t = torch.zeros(8, 16, 16, dtype=torch.long); pat = T(5, 4, 3, 6, 6); k = R(seed + 1, 4, (8, 6)); pos = R(seed + 2, 13, (8, 6, 2))
        for b in range(8):
            for j in range(6): i, l = pos[b, j].tolist(); x[b, :, 2*i:2*i+6, 2*l:2*l+6] = 1.2 * pat[k[b, j]]; t[b, i:i+3, l:l+3] = k[b, j] + 1
        return x, t
    return dict(model=model, data=data, loss=ce, diag={})
