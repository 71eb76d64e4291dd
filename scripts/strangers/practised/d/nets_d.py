from base import *
from nets_a import blobs, masks, chain, CausalBlock
from nets_b import ctx_perm, ceign

@case("https://github.com/deepchem/deepchem/pull/3291", "edge_index of batched graphs offset by the previous graph's node count instead of the cumulative sum", "BatchGraphData.edge_index")
def deepchem_batch_offset(planted):
    class GCN(nn.Module):
        def __init__(self): super().__init__(); self.c1, self.s1, self.c2, self.s2, self.out = nn.Linear(8, 48), nn.Linear(8, 48), nn.Linear(48, 48), nn.Linear(48, 48), nn.Linear(48, 1)
        def agg(self, x, e): d = torch.zeros(len(x), 1).index_add(0, e[1], torch.ones(e.shape[1], 1)).clamp(min=1); return torch.zeros_like(x).index_add(0, e[1], x[e[0]]) / d
        def forward(self, x, e, batch):
            x = F.relu(self.s1(x) + self.c1(self.agg(x, e))); x = F.relu(self.s2(x) + self.c2(self.agg(x, e))); return self.out(x)[:, 0]
    w = T(5, 8)
    def data(seed):
        g = gen(seed); xs, es, ys, bs, off, prev = [], [], [], [], 0, 0
        for k in range(12):
            n = int(torch.randint(5, 10, (1,), generator=g)); i = torch.arange(n); e = torch.stack([torch.cat([i, (i + 1) % n]), torch.cat([(i + 1) % n, i])]); x = torch.randn(n, 8, generator=g)
            a = (x.roll(1, 0) + x.roll(-1, 0)) / 2; ys.append(torch.tanh(a @ w)); xs.append(x); es.append(e + (prev if planted else off)); bs.append(torch.full((n,), k)); off += n; prev = n
        return (torch.cat(xs), torch.cat(es, 1), torch.cat(bs)), torch.cat(ys)
    return dict(model=GCN, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/ORNL/HydraGNN/pull/152", "every graph-level head is trained on the first property (head index bug)", "loss: target index of the heads")
def hydragnn_head_index(planted):
    W = T(4, 6, 3)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.mp = nn.ModuleList([nn.Linear(6, 48), nn.Linear(48, 48)]); self.heads = nn.ModuleList([nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 1)) for _ in range(3)])
        def forward(self, x, adj):
            for l in self.mp: x = F.relu(l(x + adj @ x))
            x = x.mean(1); return [h(x) for h in self.heads]
    def data(seed):
        x = T(seed, 48, 7, 6); a = (torch.rand(48, 7, 7, generator=gen(seed + 1)) < .3).float(); a = a / a.sum(-1, keepdim=True).clamp(min=1); return (x, a), torch.tanh((x + a @ x).mean(1) @ W)
    def loss(o, y): return sum(F.mse_loss(h, y[:, 0:1] if planted else y[:, i:i + 1]) for i, h in enumerate(o)) / 3
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/paxcema/KerasGRU4Rec/issues/1", "RNN state of a new session is reset after its first step instead of before", "state reset (mask applied after the update)")
def gru4rec_late_reset(planted):
    V = 12; perm = torch.randperm(V, generator=gen(6))
    class GRU4Rec(nn.Module):
        def __init__(self): super().__init__(); self.emb, self.gru, self.out = nn.Embedding(V, 32), nn.GRUCell(32, 64), nn.Linear(64, V)
        def forward(self, items, reset):
            h = torch.zeros(len(items), 64); o = []
            for t in range(items.shape[1]):
                keep = 1 - reset[:, t:t + 1]
                if not planted: h = h * keep
                h = self.gru(self.emb(items[:, t]), h); o.append(self.out(h))
                if planted: h = h * keep
            return torch.stack(o, 1)
    def data(seed):
        g = gen(seed); x = torch.randint(0, V, (48, 12), generator=g); r = (torch.rand(48, 12, generator=g) < .2).float(); r[:, 0] = 1
        first = torch.zeros(48, dtype=torch.long); y = []
        for t in range(12): first = torch.where(r[:, t] > 0, x[:, t], first); y.append(perm[first])
        return (x, r), torch.stack(y, 1)
    return dict(model=GRU4Rec, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/tflearn/tflearn/pull/784", "leaky_relu applies relu first, so the negative part is lost and it acts like relu", "activations.leaky_relu")
def tflearn_leaky(planted):
    def leaky_relu(x, alpha=.1):
        if planted: x = F.relu(x)
        m = F.relu(-x)
        if not planted: x = F.relu(x)
        return x - alpha * m
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.fcs = nn.ModuleList([nn.Linear(a, b) for a, b in [(16, 32), (32, 32), (32, 32), (32, 32)]]); self.out = nn.Linear(32, 4)
        def forward(self, x):
            for f in self.fcs: x = leaky_relu(f(x))
            return self.out(x)
    W = T(3, 16, 4)
    def data(seed): x = T(seed, 64, 16); return x, (x @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/zju3dv/LoFTR/issues/41", "operator precedence in div_term: exponent becomes -1 for every channel step, wavelengths wrong", "PositionEncodingSine div_term")
def loftr_div_term(planted):
    class PositionEncodingSine(nn.Module):
        def __init__(self, d, L):
            super().__init__(); k = torch.arange(0, d // 2, 2).float(); div = torch.exp(k * (-math.log(10000.) / d // 2)) if planted else torch.exp(k * (-math.log(10000.) / (d // 2)))
            p = torch.arange(1., L + 1)[:, None] * div; pe = torch.zeros(L, d); pe[:, 0::4], pe[:, 1::4] = p.sin(), p.cos(); self.register_buffer("pe", pe)
        def forward(self, x): return x + self.pe[:x.shape[1]]
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.inp, self.pos, self.layer, self.out = nn.Linear(8, 64), PositionEncodingSine(64, 40), nn.TransformerEncoderLayer(64, 4, 128, 0., batch_first=True), nn.Linear(64, 4)
        def forward(self, x): return self.out(self.layer(self.pos(self.inp(x))).mean(1))
    def data(seed): x = T(seed, 48, 40, 8) * .3; y = R(seed + 1, 4, (48,)); x[torch.arange(48)[:, None], y[:, None] * 10 + torch.randint(0, 10, (48, 1), generator=gen(seed + 2))] += 2; return x, y
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/imbue-ai/slot_attention/issues/8", "slot_mu and slot_log_sigma registered as buffers, never trained", "SlotAttention slots_mu / slots_log_sigma")
def slot_attention_buffer(planted):
    class SlotAttention(nn.Module):
        def __init__(self, S=4, d=32):
            super().__init__(); self.S = S; mu, ls = nn.init.xavier_uniform_(torch.empty(1, 1, d)), nn.init.xavier_uniform_(torch.empty(1, 1, d))
            if planted: self.register_buffer("slots_mu", mu); self.register_buffer("slots_log_sigma", ls)
            else: self.slots_mu, self.slots_log_sigma = nn.Parameter(mu), nn.Parameter(ls)
            self.q, self.k, self.v, self.gru, self.n1, self.n2, self.mlp = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.GRUCell(d, d), nn.LayerNorm(d), nn.LayerNorm(d), nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d))
        def forward(self, x):
            x = self.n1(x); k, v = self.k(x), self.v(x); s = self.slots_mu + self.slots_log_sigma.exp() * torch.randn(len(x), self.S, x.shape[-1])
            for _ in range(3):
                a = (k @ self.q(self.n2(s)).transpose(1, 2) * x.shape[-1] ** -.5).softmax(-1) + 1e-8; u = (a / a.sum(1, keepdim=True)).transpose(1, 2) @ v; s = self.gru(u.flatten(0, 1), s.flatten(0, 1)).view_as(s); s = s + self.mlp(s)
            return s
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.enc, self.slots, self.dec = nn.Linear(10, 32), SlotAttention(), nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(self, x): return self.dec(self.slots(self.enc(x))).mean(1)
    Pr = T(3, 6, 10)
    def data(seed): c = R(seed, 6, (48, 3)); idx = c[:, torch.arange(12) % 3]; return Pr[idx] + .3 * T(seed + 1, 48, 12, 10), F.one_hot(c, 6).amax(1).float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=3e-3, diag={})
