from base import *

@case("https://github.com/localminimum/R-net/issues/8", "softmax runs over a last axis of size one, every attention weight is 1", "pointer_net / attention pool: softmax after expand_dims")
def rnet_softmax_singleton(planted):
    class RNet(nn.Module):
        def __init__(s, V=40, d=32):
            super().__init__(); s.emb = nn.Embedding(V, d); s.passage = nn.GRU(d, d, batch_first=True, bidirectional=True); s.Wp, s.Wq, s.v = nn.Linear(2 * d, d), nn.Linear(d, d, bias=False), nn.Linear(d, 1, bias=False); s.q = nn.Linear(d, d); s.out = nn.Linear(2 * d, 8)
        def forward(s, p, q):
            h, _ = s.passage(s.emb(p)); q = torch.tanh(s.q(s.emb(q))); logits = s.v(torch.tanh(s.Wp(h) + s.Wq(q)[:, None]))[..., 0]
            a = logits[..., None].softmax(-1) if planted else logits.softmax(-1)[..., None]
            return s.out((a * h).sum(1))
    def data(seed):
        g = gen(seed); k = torch.stack([torch.randperm(8, generator=g) for _ in range(64)]); v = torch.randint(0, 8, (64, 8), generator=g); q = torch.randint(0, 8, (64,), generator=g)
        p = torch.stack([k, 8 + v], 2).flatten(1)[:, :12]; j = torch.randint(0, 6, (64,), generator=g); return (p, k.gather(1, j[:, None])[:, 0]), v.gather(1, j[:, None])[:, 0]
    return dict(model=RNet, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/PetarV-/GAT/issues/11", "residual is added to seq_fts after it was used, the layer returns ret without it", "attn_head's residual (seq_fts = ret + seq)")
def gat_residual_lost(planted):
    class AttnHead(nn.Module):
        def __init__(s, i, o): super().__init__(); s.seq_fts = nn.Conv1d(i, o, 1, bias=False); s.f_1, s.f_2 = nn.Conv1d(o, 1, 1), nn.Conv1d(o, 1, 1); s.bias = nn.Parameter(torch.zeros(o, 1)); s.res = nn.Conv1d(i, o, 1) if i != o else None
        def forward(s, seq, bias_mat):
            f = s.seq_fts(seq); lg = s.f_1(f).transpose(1, 2) + s.f_2(f); c = F.softmax(F.leaky_relu(lg, .2) + bias_mat, -1); ret = f @ c.transpose(1, 2) + s.bias
            if s.res is not None: ret = ret + s.res(seq)
            elif planted: f = ret + seq
            else: ret = ret + seq
            return F.elu(ret)
    class GAT(nn.Module):
        def __init__(s, d=32, n=5): super().__init__(); s.inp = AttnHead(12, d); s.layers = nn.ModuleList([AttnHead(d, d) for _ in range(n)]); s.out = nn.Conv1d(d, 4, 1)
        def forward(s, x, b):
            x = s.inp(x, b)
            for l in s.layers: x = l(x, b)
            return s.out(x)
    w = T(3, 4, 12)
    def data(seed):
        x = T(seed, 16, 12, 20); a = (torch.rand(16, 20, 20, generator=gen(seed + 500000)) < .2).float().triu(1); a = a + a.transpose(1, 2) + torch.eye(20); y = torch.einsum("co,bon->bcn", w, x); m = (a @ y.transpose(1, 2) / a.sum(-1, keepdim=True)).transpose(1, 2); return (x, (1 - a) * -1e9), (y + m).argmax(1)
    return dict(model=GAT, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/Sunnydreamrain/IndRNN_Theano_Lasagne/issues/1", "batch norm dropped from the deep IndRNN, more than three layers do not work", "IndRNN layers without BN between them")
def indrnn_no_bn(planted):
    class IndRNN(nn.Module):
        def __init__(s, i, h, bn): super().__init__(); s.W = nn.Linear(i, h); s.u = nn.Parameter(torch.rand(h)); s.bn = nn.BatchNorm1d(h) if bn else None; nn.init.normal_(s.W.weight, 0, .01); nn.init.zeros_(s.W.bias)
        def forward(s, x):
            h = torch.zeros(x.shape[0], s.u.numel()); out = []
            for p in s.W(x).unbind(1): h = F.relu(p + s.u * h); out.append(h)
            o = torch.stack(out, 1); return s.bn(o.transpose(1, 2)).transpose(1, 2) if s.bn is not None else o
    class Net(nn.Module):
        def __init__(s, n=8, h=48): super().__init__(); s.rnns = nn.Sequential(*[IndRNN(4 if k == 0 else h, h, not planted) for k in range(n)]); s.out = nn.Linear(h, 5)
        def forward(s, x): return s.out(s.rnns(x)[:, -1])
    tm = T(4, 5, 15, 4)
    def data(seed):
        t = R(seed, 5, (32,)); return tm[t] + T(seed + 500000, 32, 15, 4), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})
