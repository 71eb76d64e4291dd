from base import *
from tasks import *
G = "https://github.com/"
def graph(seed, n=40, deg=4, directed=True):
    g = gen(seed); src = torch.randint(0, n, (n * deg,), generator=g); dst = torch.arange(n).repeat_interleave(deg); loop = torch.arange(n); return torch.stack([torch.cat([src, loop]), torch.cat([dst, loop])])
def seg_softmax(e, idx, n):
    m = torch.full((n, e.shape[1]), -1e9).scatter_reduce(0, idx[:, None].expand_as(e), e.detach(), "amax"); x = (e - m[idx]).exp(); return x / (torch.zeros(n, e.shape[1]).index_add(0, idx, x)[idx] + 1e-16)

@case(G + "gordicaleksa/pytorch-GAT/issues/4", "attention is normalised and aggregated over the outgoing edges: messages run target -> source", "aggregation of the GAT layer")
def gat_direction(planted):
    class GAT(nn.Module):
        def __init__(s, i, o, h=4, concat=True):
            super().__init__(); s.h, s.o = h, o; s.lin = nn.Linear(i, h * o, bias=False); s.a_src, s.a_tgt = nn.Parameter(torch.empty(1, h, o)), nn.Parameter(torch.empty(1, h, o)); s.skip = nn.Linear(i, h * o, bias=False); s.bias = nn.Parameter(torch.zeros(h * o))
            for p in (s.lin.weight, s.a_src, s.a_tgt, s.skip.weight): nn.init.xavier_uniform_(p)
        def forward(s, x, e):
            n = len(x); z = s.lin(x).view(n, s.h, s.o); a, b = (e[1], e[0]) if planted else (e[0], e[1])
            w = seg_softmax(F.leaky_relu((z * s.a_src).sum(-1)[e[0]] + (z * s.a_tgt).sum(-1)[e[1]], .2), b, n); y = torch.zeros(n, s.h, s.o).index_add(0, b, z[a] * w[..., None]); return y.flatten(1) + s.skip(x) + s.bias
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1, s.l2, s.out = GAT(12, 12), GAT(48, 12), nn.Linear(48, 5)
        def forward(s, x, e): return s.out(F.elu(s.l2(F.elu(s.l1(x, e)), e)))
    W = T(111, 12, 5)
    def data(seed):
        e = graph(seed, 120); x = T(seed + 1, 120, 12); m = torch.zeros(120, 12).index_add(0, e[1], x[e[0]]); return (x, e), (m @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, diag=dict(examples="one"))

@case(G + "LibCity/Bigscity-LibCity/issues/302", "GTS: the learned adjacency is not handed to the encoder, which keeps the given one", "graph learner / adjacency")
def gts_adj_unused(planted):
    N = 10
    perm = torch.randperm(N, generator=gen(5))
    class GTS(nn.Module):
        def __init__(s, d=24):
            super().__init__(); s.node = nn.Parameter(torch.randn(N, 16)); s.fc_out, s.fc_cat = nn.Linear(32, 32), nn.Linear(32, 1); s.gates, s.cand = nn.Linear(2 * (1 + d), 2 * d), nn.Linear(2 * (1 + d), d); s.proj = nn.Linear(d, 1); s.d = d; s.register_buffer("adj0", torch.eye(N).roll(1, 0) * .5 + torch.eye(N) * .5)
        def adj(s): i, j = torch.meshgrid(torch.arange(N), torch.arange(N), indexing="ij"); z = torch.cat([s.node[i], s.node[j]], -1); return torch.sigmoid(s.fc_cat(F.relu(s.fc_out(z)))[..., 0])
        def forward(s, x):
            A = s.adj(); A = s.adj0 if planted else A; A = A / (A.sum(1, keepdim=True) + 1e-6); h = x.new_zeros(len(x), N, s.d); gc = lambda z: torch.cat([z, A @ z], -1)
            for t in range(x.shape[1]):
                xt = x[:, t, :, None]; r, u = torch.sigmoid(s.gates(gc(torch.cat([xt, h], -1)))).chunk(2, -1); c = torch.tanh(s.cand(gc(torch.cat([xt, r * h], -1)))); h = u * h + (1 - u) * c
            return s.proj(h)[..., 0]
    def data(seed): x = T(seed, 32, 6, N); return x, torch.tanh(1.5 * x[:, -1, perm]) + .3 * x[:, -1]
    return dict(model=GTS, data=data, loss=mse, diag={})

@case(G + "chnsh/DCRNN_PyTorch/issues/12", "DCGRU gates go through the sigmoid twice", "reset and update gates")
def dcrnn_double_sigmoid(planted):
    N = 8; A = torch.softmax(T(121, N, N), 1)
    class Cell(nn.Module):
        def __init__(s, i, d): super().__init__(); s.fc, s.cand, s.d = nn.Linear(2 * (i + d), 2 * d), nn.Linear(2 * (i + d), d), d; nn.init.ones_(s.fc.bias)
        def forward(s, x, h):
            gc = lambda z: torch.cat([z, A @ z], -1); v = torch.sigmoid(s.fc(gc(torch.cat([x, h], -1)))); v = torch.sigmoid(v) if planted else v; r, u = v.chunk(2, -1); c = torch.tanh(s.cand(gc(torch.cat([x, r * h], -1)))); return u * h + (1 - u) * c
    class D(nn.Module):
        def __init__(s, d=24): super().__init__(); s.c1, s.c2, s.out, s.d = Cell(1, d), Cell(d, d), nn.Linear(d, 1), d
        def forward(s, x):
            h1 = h2 = x.new_zeros(len(x), N, s.d)
            for t in range(x.shape[1]): h1 = s.c1(x[:, t, :, None], h1); h2 = s.c2(h1, h2)
            return s.out(h2)[..., 0]
    def data(seed): x = T(seed, 32, 10, N); return x, x[:, :3].sum(1) @ A.T * .7 + x[:, -1] * .5
    return dict(model=D, data=data, loss=mse, diag={})

@case(G + "reczoo/FuxiCTR/issues/29", "EDCN's cross layer lacks the residual x_l", "cross layers")
def edcn_cross_no_residual(planted):
    class EDCN(nn.Module):
        def __init__(s, f=6, d=10, L=3):
            super().__init__(); s.emb = nn.ModuleList([nn.Embedding(20, d) for _ in range(f)]); D = f * d; s.w = nn.ModuleList([nn.Linear(D, 1, bias=False) for _ in range(L)]); s.b = nn.ParameterList([nn.Parameter(torch.zeros(D)) for _ in range(L)]); s.deep = nn.ModuleList([nn.Linear(D, D) for _ in range(L)]); s.fc = nn.Linear(3 * D, 1)
            for e in s.emb: nn.init.normal_(e.weight, std=.1)
        def forward(s, x):
            x0 = torch.cat([e(x[:, i]) for i, e in enumerate(s.emb)], -1); c = h = x0
            for w, b, l in zip(s.w, s.b, s.deep): c = w(c) * x0 + b + (0 if planted else c); h = F.relu(l(h)); k = c * h
            return s.fc(torch.cat([c, h, k], -1))[:, 0]
    A = T(131, 6, 20)
    def data(seed): x = R(seed, 20, (128, 6)); v = A[torch.arange(6), x]; return x, (v[:, 0] * v[:, 1] + v[:, 2] + v[:, 3] - v[:, 4] * v[:, 5] > 0).float()
    return dict(model=EDCN, data=data, loss=bce, diag={})

@case(G + "KanishJebaMathewM/Truxify/issues/13116", "time is flattened into the nodes but edge_index covers the first graph alone: all others are isolated", "GAT layers / edge_index")
def truxify_edges_first_graph(planted):
    N = 12; E = graph(7, N, 2)
    class GATc(nn.Module):
        def __init__(s, i, o, h=4): super().__init__(); s.h, s.o = h, o // h; s.lin = nn.Linear(i, o, bias=False); s.a, s.b = nn.Parameter(torch.randn(1, h, o // h) * .3), nn.Parameter(torch.randn(1, h, o // h) * .3); s.bias = nn.Parameter(torch.zeros(o))
        def forward(s, x, e):
            n = len(x); z = s.lin(x).view(n, s.h, s.o); w = seg_softmax(F.leaky_relu((z * s.a).sum(-1)[e[0]] + (z * s.b).sum(-1)[e[1]], .2), e[1], n); return torch.zeros(n, s.h, s.o).index_add(0, e[1], z[e[0]] * w[..., None]).flatten(1) + s.bias
    class ST(nn.Module):
        def __init__(s, d=32): super().__init__(); s.s1, s.s2 = GATc(3, d), GATc(d, d); s.gru = nn.GRU(d, d, batch_first=True); s.head = nn.Linear(d, 2)
        def forward(s, x):
            b, n, t, f = x.shape; z = x.permute(0, 2, 1, 3).reshape(b * t * n, f); e = E if planted else (E[:, None] + (torch.arange(b * t) * n)[None, :, None]).flatten(1)
            z = F.relu(s.s2(F.relu(s.s1(z, e)), e)); z = z.view(b, t, n, -1).permute(0, 2, 1, 3).reshape(b * n, t, -1); return s.head(s.gru(z)[0][:, -1]).view(b, n, 2)
    P = torch.zeros(N, N).index_put((E[1], E[0]), torch.ones(E.shape[1]), accumulate=True); P = P / P.sum(1, keepdim=True); W = T(141, 3, 2)
    def data(seed): x = T(seed, 16, N, 5, 3); return x, torch.einsum("nm,bmf->bnf", P, x[:, :, -1] + .5 * x[:, :, -2]) @ W
    return dict(model=ST, data=data, loss=mse, diag={})

@case(G + "openclimatefix/graph_weather/issues/3", "decoder's observation nodes are seeded with zeros, the encoder's per-observation features are dropped", "decoder node features")
def graphweather_zero_nodes(planted):
    class GW(nn.Module):
        def __init__(s, f=4, d=32, cells=6):
            super().__init__(); mlp = lambda i, o: nn.Sequential(nn.Linear(i, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, o)); s.enc, s.e1, s.proc, s.e2, s.dec = mlp(f, d), mlp(d, d), mlp(d, d), mlp(2 * d, d), nn.Sequential(nn.LayerNorm(d), nn.Linear(d, f)); s.cells = cells; s.nz = nn.LayerNorm(d)
        def forward(s, x, cell):
            h = s.enc(x); b, n, d = h.shape; oh = F.one_hot(cell, s.cells).float(); c = oh.transpose(1, 2) @ s.e1(h) / (oh.sum(1)[..., None] + 1e-6); c = s.nz(c + s.proc(c)); obs = torch.zeros_like(h) if planted else h
            obs = obs + s.e2(torch.cat([obs, oh @ c], -1)); return x + s.dec(obs)
    W, V = T(151, 4, 4), T(152, 4, 4, k=.5)
    def data(seed): g = gen(seed); x = torch.randn(16, 24, 4, generator=g); cell = torch.randint(0, 6, (16, 24), generator=g); oh = F.one_hot(cell, 6).float(); m = oh @ (oh.transpose(1, 2) @ x / (oh.sum(1)[..., None] + 1e-6)); return (x, cell), x + torch.tanh(x @ W) + m @ V
    return dict(model=GW, data=data, loss=mse, diag={})

@case(G + "sktime/sktime/issues/10931", "network gives (batch, 1), targets are (batch,): MSE broadcasts to (batch, batch)", "output shape / loss")
def sktime_broadcast(planted):
    class FCN(nn.Module):
        def __init__(s): super().__init__(); c = lambda i, o, k: nn.Sequential(nn.Conv1d(i, o, k, padding=k // 2), nn.BatchNorm1d(o), nn.ReLU()); s.net = nn.Sequential(c(2, 24, 7), c(24, 32, 5), c(32, 24, 3)); s.fc = nn.Linear(24, 1)
        def forward(s, x): y = s.fc(s.net(x).mean(-1)); return y if planted else y[:, 0]
    def data(seed): g = gen(seed); a = torch.randn(48, generator=g); f = torch.rand(48, 1, generator=g) * .6 + .2; t = torch.arange(40.)[None]; x = torch.stack([torch.sin(f * t), torch.randn(48, 40, generator=g) * .3], 1); return x, (f[:, 0] - .5) * 6
    def loss(o, t): return F.mse_loss(o, t)
    return dict(model=FCN, data=data, loss=loss if planted else (lambda o, t: F.mse_loss(o.view(-1), t)), diag={})

class Mamba(nn.Module):
    def __init__(s, d, n=8, r=4, soft=True, keep=True):
        super().__init__(); i = 2 * d; s.in_proj = nn.Linear(d, 2 * i, bias=False); s.conv = nn.Conv1d(i, i, 4, padding=3, groups=i); s.x_proj = nn.Linear(i, r + 2 * n, bias=False); s.dt_proj = nn.Linear(r, i); s.A_log = nn.Parameter(torch.log(torch.arange(1., n + 1)).repeat(i, 1)); s.D = nn.Parameter(torch.ones(i)); s.out = nn.Linear(i, d, bias=False); s.r, s.n, s.soft = r, n, soft
        if keep: nn.init.uniform_(s.dt_proj.weight, -r ** -.5, r ** -.5); dt = torch.exp(torch.rand(i) * (math.log(.1) - math.log(.001)) + math.log(.001)); s.dt_proj.bias.data = dt + torch.log(-torch.expm1(-dt))
        else:
            for m in (s.in_proj, s.x_proj, s.dt_proj, s.out):
                nn.init.trunc_normal_(m.weight, std=.02)
                if m.bias is not None: nn.init.zeros_(m.bias)
    def forward(s, x):
        b, l, _ = x.shape; u, z = s.in_proj(x).chunk(2, -1); u = F.silu(s.conv(u.transpose(1, 2))[..., :l].transpose(1, 2)); dt, B, C = s.x_proj(u).split([s.r, s.n, s.n], -1); dt = s.dt_proj(dt); dt = F.softplus(dt) if s.soft else dt
        dA = torch.exp(dt[..., None] * -torch.exp(s.A_log)); dB = (dt * u)[..., None] * B[:, :, None]; h, ys = 0, []
        for t in range(l): h = dA[:, t] * h + dB[:, t]; ys.append((h * C[:, t, None]).sum(-1))
        return s.out((torch.stack(ys, 1) + u * s.D) * F.silu(z))
class MLM(nn.Module):
    def __init__(s, d=24, **kw): super().__init__(); s.emb = nn.Embedding(12, d); s.l = nn.ModuleList([Mamba(d, **kw) for _ in range(2)]); s.n = nn.ModuleList([nn.LayerNorm(d) for _ in range(3)]); s.head = nn.Linear(d, 12)
    def forward(s, x):
        h = s.emb(x)
        for l, n in zip(s.l, s.n): h = h + l(n(h))
        return s.head(s.n[2](h))
def prevdata(seed): x = R(seed, 12, (24, 12)); p = F.pad(x, (5, 0)); return x, (p[:, :12] + 2 * x) % 12
@case(G + "alxndrTL/mamba.py/issues/53", "softplus of delta forgotten: exp(delta A) > 1 and the state grows", "delta / dt_proj")
def mamba_no_softplus(planted): return dict(model=lambda: MLM(soft=not planted), data=prevdata, loss=ceseq, diag=SEQ)
@case(G + "zymissy/CCViM/issues/6", "global init overwrites the special dt_proj bias (and weights) with 0 and std .02", "dt_proj bias")
def ccvim_dt_bias_overwritten(planted): return dict(model=lambda: MLM(keep=not planted), data=prevdata, loss=ceseq, diag=SEQ)

@case(G + "Novartis/torchsurv/pull/141", "Cox likelihood indexes with the 0/1 event tensor instead of masking with it", "event indexing in the loss")
def torchsurv_event_index(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(12, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
        def forward(s, x): return s.net(x)[:, 0]
    w = T(161, 12)
    def cox(o, t, bad):
        time, ev = t; i = time.argsort(); h, e = o[i], ev[i]; den = h.flip(0).logcumsumexp(0).flip(0); pl = h - den; return -(pl[e.long()].mean() if bad else (pl * e).sum() / e.sum())
    def data(seed): g = gen(seed); x = torch.randn(64, 12, generator=g); u = torch.rand(64, generator=g); T0 = -torch.log(u) / torch.exp(x @ w * .7); c = torch.rand(64, generator=g) * 4; return x, (torch.minimum(T0, c), (T0 < c).float())
    return dict(model=Net, data=data, loss=lambda o, t: cox(o, t, planted), diag=dict(per="batch"))

@case(G + "bowang-lab/BLEEP/issues/5", "soft targets multiply the similarities by the temperature instead of dividing", "target softmax in the loss")
def bleep_target_temperature(planted):
    tau = .2
    class BL(nn.Module):
        def __init__(s):
            super().__init__(); s.ie = nn.Sequential(cbr(3, 24, 2), cbr(24, 32), nn.AdaptiveAvgPool2d(2), nn.Flatten()); P = lambda i: nn.ModuleDict(dict(p=nn.Linear(i, 32), f=nn.Linear(32, 32), n=nn.LayerNorm(32))); s.ip, s.sp = P(128), P(40)
        def proj(s, m, x): p = m["p"](x); return m["n"](m["f"](F.gelu(p)) + p)
        def forward(s, x, e): return s.proj(s.ip, s.ie(x)), s.proj(s.sp, e)
    def loss(o, bad):
        I, S = o; I, S = I / 32 ** .5, S / 32 ** .5; l = S @ I.T / tau; sim = (I @ I.T + S @ S.T) / 2; t = F.softmax(sim * tau if bad else sim / tau, -1); return ((-t * l.log_softmax(-1)).sum(1) + (-t.T * l.T.log_softmax(-1)).sum(1)).mean() / 2
    K, Gx = T(171, 8, 3, 12, 12), T(172, 8, 40, k=.5)
    def data(seed): g = gen(seed); z = torch.randn(24, 8, generator=g); return (torch.einsum("nz,zchw->nchw", z, K) * .5, z @ Gx + .1 * torch.randn(24, 40, generator=g)), torch.zeros(24)
    return dict(model=BL, data=data, loss=lambda o, t: loss(o, planted), diag=dict(per="batch"))

@case(G + "huiserwang/ContrastMask/issues/4", "pixel contrast: similarities are not divided by the temperature", "temperature in the InfoNCE loss")
def contrastmask_no_tau(planted):
    class CM(nn.Module):
        def __init__(s): super().__init__(); s.fe = nn.Sequential(cbr(3, 24), cbr(24, 32)); s.proj = nn.Sequential(nn.Conv2d(32, 32, 1), nn.ReLU(), nn.Conv2d(32, 24, 1))
        def forward(s, x): return F.normalize(s.proj(s.fe(x)), dim=1)
    def nce(o, m, tau):
        f = o.permute(0, 2, 3, 1).flatten(1, 2); l = 0
        for i in range(len(f)): p, n = f[i][m[i].flatten() == 1], f[i][m[i].flatten() == 0]; q = F.normalize(p.mean(0), dim=0); l = l + F.cross_entropy(torch.cat([(p @ q)[:, None], (n @ q).expand(len(p), -1)], 1) / tau, torch.zeros(len(p), dtype=torch.long))
        return l / len(f)
    W = T(181, 1, 3, 3, 3)
    def data(seed): x = smooth(seed, 12, 3, 14, 4) + .3 * T(seed + 1, 12, 3, 14, 14); return x, (F.conv2d(x, W, padding=1) > 0).long()[:, 0]
    return dict(model=CM, data=data, loss=lambda o, t: nce(o, t, 1. if planted else .1), diag=dict(per="batch"))

@case(G + "ibalazevic/TuckER/issues/17", "padding_idx=0: the first entity and relation, which are real, never get a gradient", "E, R embeddings")
def tucker_padding_idx(planted):
    kw = dict(padding_idx=0) if planted else {}
    class Tucker(nn.Module):
        def __init__(s, ne=30, nr=6, d=24, r=12):
            super().__init__(); s.E, s.R = nn.Embedding(ne, d, **kw), nn.Embedding(nr, r, **kw); s.W = nn.Parameter(torch.empty(r, d, d).uniform_(-1, 1)); s.bn0, s.bn1 = nn.BatchNorm1d(d), nn.BatchNorm1d(d); nn.init.xavier_normal_(s.E.weight); nn.init.xavier_normal_(s.R.weight)
        def forward(s, e, r): h = s.bn0(s.E(e)); M = torch.einsum("nr,rij->nij", s.R(r), s.W); return s.bn1(torch.einsum("ni,nij->nj", h, M)) @ s.E.weight.T
    tab = torch.randint(0, 30, (30, 6), generator=gen(3))
    def data(seed): e, r = R(seed, 30, (128,)), R(seed + 1, 6, (128,)); return (e, r), tab[e, r]
    return dict(model=Tucker, data=data, loss=ce, diag={})
