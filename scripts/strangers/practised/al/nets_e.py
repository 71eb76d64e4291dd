from base import *

# ---------- graphs, recommenders, time series, physics
def rand_adj(s, B, N, p=.3):
    A = (torch.rand(B, N, N, generator=gen(s)) < p).float(); A = torch.triu(A, 1)
    A[:, torch.arange(N - 1), torch.arange(1, N)] = 1.
    return A + A.transpose(1, 2)
def sym_norm(A):
    d = A.sum(-1).clamp(min=1e-6).rsqrt(); return d[..., :, None] * A * d[..., None, :]

class TAGConv(nn.Module):
    def __init__(s, i, o, K, loops):
        super().__init__(); s.lin = nn.Linear(i * (K + 1), o); s.K = K; s.loops = loops
    def forward(s, x, A):
        if s.loops: A = A + torch.eye(A.shape[-1])
        A = sym_norm(A); xs = [x]
        for _ in range(s.K): xs.append(A @ xs[-1])
        return s.lin(torch.cat(xs, -1))
class TAGNet(nn.Module):
    def __init__(s, loops):
        super().__init__(); s.c1 = TAGConv(8, 32, 3, loops); s.c2 = TAGConv(32, 4, 3, loops)
    def forward(s, x, A): return s.c2(F.relu(s.c1(x, A)), A)
@case("https://github.com/pyg-team/pytorch_geometric/issues/1104", "TAGConv normalises with GCNConv.norm, which adds self-loops that TAGConv's formula does not have", "the adjacency normalisation of c1, c2")
def tagconv_selfloops(planted):
    W = T(11, 8, 4)
    def data(s):
        x, A = T(s, 16, 12, 8), rand_adj(s + 1, 16, 12)
        return (x, A), ((sym_norm(A) @ x) @ W + .5 * x @ W.flip(0)).argmax(-1)
    return dict(model=lambda: TAGNet(planted), data=data, loss=ceseq, lr=5e-3)

U, I = 40, 40
_uz, _iz = T(21, U, 4), T(22, I, 4)
_aff = _uz @ _iz.T
_R = (_aff > _aff.quantile(.8, dim=1, keepdim=True)).float()
def bip():
    A = torch.zeros(U + I, U + I); A[:U, U:] = _R; A[U:, :U] = _R.T
    return sym_norm(A + 0)
def triples(s, n=64):
    g = gen(s); u = torch.randint(0, U, (n,), generator=g)
    i = torch.multinomial(_R[u] + 1e-9, 1, generator=g)[:, 0]; j = torch.multinomial(1 - _R[u] + 1e-9, 1, generator=g)[:, 0]
    return u, i, j
class LightGCN(nn.Module):
    def __init__(s, bad, L=3):
        super().__init__(); s.emb = nn.Embedding(U + I, 16); nn.init.xavier_uniform_(s.emb.weight); s.register_buffer("A", bip()); s.L = L; s.bad = bad
    def forward(s, u, i, j):
        h = s.emb.weight; out = h * (1. if s.bad else 1 / (s.L + 1))
        for l in range(1, s.L + 1):
            h = s.A @ h
            out = out + h * (1 / (l + 1) if s.bad else 1 / (s.L + 1))
        return torch.stack([(out[u] * out[U + i]).sum(-1), (out[u] * out[U + j]).sum(-1)], -1)
def bpr(o, t): return -F.logsigmoid(o[:, 0] - o[:, 1]).mean()
@case("https://github.com/PreferredAI/cornac/pull/602", "the layers are added with 1/(l+1) (the current layer's index) and not 1/(L+1)", "the layer combination of LightGCN (emb)")
def lightgcn_layerweights(planted):
    return dict(model=lambda: LightGCN(planted), data=lambda s: (triples(s), torch.zeros(64, dtype=torch.long)), loss=bpr, lr=1e-2)

class LightGCNReg(nn.Module):
    def __init__(s):
        super().__init__(); s.emb = nn.Embedding(U + I, 16); nn.init.xavier_uniform_(s.emb.weight); s.register_buffer("A", bip())
    def forward(s, u, i, j):
        h = s.emb.weight; out = h / 3
        for _ in range(2): h = s.A @ h; out = out + h / 3
        a, b, c = out[u], out[U + i], out[U + j]
        return (a * b).sum(-1), (a * c).sum(-1), s.emb(torch.cat([u, U + i, U + j]))
@case("https://github.com/pyg-team/pytorch_geometric/issues/7196", "BPRLoss divides the (already averaged) log-likelihood a second time by the number of pairs", "the loss (BPRLoss)")
def bpr_divided_twice(planted):
    def loss(o, t):
        pos, neg, e = o; n = pos.shape[0]; lp = F.logsigmoid(pos - neg).mean(); reg = 1e-4 * e.norm(p=2).pow(2)
        return (-lp + reg) / n if planted else -lp + reg / n
    def judge(m, x, t):
        o = m(*x); return float(-F.logsigmoid(o[0] - o[1]).mean())
    return dict(model=LightGCNReg, data=lambda s: (triples(s), torch.zeros(64, dtype=torch.long)), loss=loss, judge=judge, lr=1e-2)

def mlp(i, h, o, norm=True):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o), *([nn.LayerNorm(o)] if norm else []))
class GNBlock(nn.Module):
    def __init__(s, d, bad):
        super().__init__(); s.edge = mlp(3 * d, d, d); s.node = mlp(d if bad else 2 * d, d, d); s.bad = bad
    def forward(s, x, e, snd, rcv):
        ne = s.edge(torch.cat([x[:, snd], x[:, rcv], e], -1))
        agg = torch.zeros_like(x).index_add(1, rcv, ne)
        feats = [x] if s.bad else [x, agg]
        return s.node(torch.cat(feats, -1)) + x, ne + e
class MGN(nn.Module):
    def __init__(s, bad, d=32):
        super().__init__(); s.enc_n = mlp(4, d, d); s.enc_e = mlp(3, d, d); s.blocks = nn.ModuleList([GNBlock(d, bad) for _ in range(2)]); s.dec = mlp(d, d, 2, False)
        n = 10; a = torch.arange(n); b = (a + 1) % n; c = (a + 3) % n
        s.register_buffer("snd", torch.cat([a, b, a, c])); s.register_buffer("rcv", torch.cat([b, a, c, a]))
    def forward(s, x, e):
        h, g = s.enc_n(x), s.enc_e(e)
        for b in s.blocks: h, g = b(h, g, s.snd, s.rcv)
        return s.dec(h)
@case("https://github.com/wwMark/meshgraphnets/issues/3", "the summed edge messages are computed but never appended to the node features, so the node update sees no messages", "blocks' node update (message aggregation; the edge MLPs)")
def meshgraph_no_messages(planted):
    n = 10; a = torch.arange(n); b = (a + 1) % n; c = (a + 3) % n; snd, rcv = torch.cat([a, b, a, c]), torch.cat([b, a, c, a])
    def data(s):
        pos, vel = T(s, 32, n, 2), T(s + 1, 32, n, 2); rel = pos[:, snd] - pos[:, rcv]
        dist = rel.norm(dim=-1, keepdim=True)
        f = torch.zeros_like(pos).index_add(1, rcv, rel) * .3 - .3 * vel
        return (torch.cat([vel, pos], -1), torch.cat([rel / 1.4, (dist - 1.8) / .9], -1)), f
    return dict(model=lambda: MGN(planted), data=data, loss=mse, lr=2e-3)

class TCNBlock(nn.Module):
    def __init__(s, i, f, dil, bad):
        super().__init__(); s.d = dil; s.bad = bad
        s.c1 = nn.Conv1d(i, f, 4, dilation=dil); s.b1 = nn.BatchNorm1d(f); s.c2 = nn.Conv1d(f, f, 4, dilation=dil); s.b2 = nn.BatchNorm1d(f)
        s.drop = nn.Dropout(.3); s.reshape = nn.Conv1d(f if bad else i, f, 1)
    def forward(s, x):
        p = 3 * s.d
        o = s.drop(F.elu(s.b1(s.c1(F.pad(x, (p, 0)))))); o = s.drop(F.elu(s.b2(s.c2(F.pad(o, (p, 0))))))
        if s.bad: o = s.reshape(o)
        else: x = s.reshape(x)
        return F.elu(x + o)
class ATC(nn.Module):
    def __init__(s, bad):
        super().__init__(); s.temp = nn.Conv1d(8, 16, 8, padding=4, bias=False); s.bn = nn.BatchNorm1d(16); s.pool = nn.AvgPool1d(4)
        s.tcn = nn.Sequential(TCNBlock(16, 16, 1, bad), TCNBlock(16, 16, 2, bad)); s.fc = nn.Linear(16, 4)
    def forward(s, x): return s.fc(s.tcn(s.pool(F.elu(s.bn(s.temp(x)))))[..., -1])
@case("https://github.com/braindecode/braindecode/pull/782", "the residual path's 1x1 convolution is applied to the block's output and not to the skip tensor", "tcn blocks' reshape (residual path)")
def atcnet_residual_conv(planted):
    def data(s):
        y = R(s, 4, (64,)); t = torch.arange(64.) / 64; f = (4. + 3 * y)[:, None]
        ph = torch.rand(64, 1, generator=gen(s + 1)) * 6.28
        sig = torch.sin(2 * math.pi * f * t + ph); w = T(5, 8)
        return (sig[:, None] * w[:, None] + T(s + 2, 64, 8, 64)) / 1.4, y
    return dict(model=lambda: ATC(planted), data=data, loss=ce, lr=3e-3)
