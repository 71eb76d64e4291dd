from base import *

@case("https://github.com/openai/baselines/pull/632", "observations are divided by 255 twice (wrapper and network)", "input scaling")
def baselines_scale2(planted):
    class DQN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(4, 16, 4, 2); self.conv2 = nn.Conv2d(16, 32, 3, 2); self.conv3 = nn.Conv2d(32, 32, 3)
            self.fc1 = nn.Linear(32 * 4, 128); self.q = nn.Linear(128, 4)
            for m in (self.conv1, self.conv2, self.conv3, self.fc1, self.q): nn.init.orthogonal_(m.weight, 2 ** .5); nn.init.zeros_(m.bias)
        def forward(self, obs):
            x = obs.float() / 255.
            if planted: x = x / 255.
            for c in (self.conv1, self.conv2, self.conv3): x = F.relu(c(x))
            return self.q(F.relu(self.fc1(x.flatten(1))))
    def data(seed):
        g = gen(seed); k = torch.randint(0, 4, (32,), generator=g); x = torch.randint(0, 120, (32, 4, 20, 20), generator=g).float()
        i = torch.arange(32); r, c = (k // 2) * 10 + 2, (k % 2) * 10 + 2
        for b in range(32): x[b, :, r[b]:r[b] + 6, c[b]:c[b] + 6] += 110
        a = R(seed + 1, 4, (32,)); y = torch.where(a == k, 1., -.3)
        return x, (a, y)
    def loss(q, t): a, y = t; return F.smooth_l1_loss(q.gather(1, a[:, None])[:, 0], y)
    return dict(model=DQN, data=data, loss=loss, lr=5e-4, diag={})

@case("https://github.com/tonyduan/mixture-density-network/pull/4", "sigma = exp(.) and log of the softmax probabilities: NaN", "sigma exp / torch.log(pi)")
def mdn_exp(planted):
    K = 5
    class MDN(nn.Module):
        def __init__(self):
            super().__init__()
            self.pi_network = nn.Sequential(nn.Linear(6, 32), nn.ELU(), nn.Linear(32, K)); self.normal_network = nn.Sequential(nn.Linear(6, 32), nn.ELU(), nn.Linear(32, 2 * K))
        def forward(self, x):
            mu, s = self.normal_network(x).chunk(2, -1); logits = self.pi_network(x)
            return logits, mu, torch.exp(s) if planted else F.elu(s) + 1 + 1e-3
    def loss(o, y):
        logits, mu, sd = o; ll = torch.distributions.Normal(mu, sd, validate_args=False).log_prob(y[:, None])
        logpi = torch.log(torch.softmax(logits, -1)) if planted else torch.log_softmax(logits, -1)
        return -torch.logsumexp(logpi + ll, 1).mean()
    def data(seed):
        x = T(seed, 64, 6) * torch.tensor([1., 2., 4., 8., 15., 30.]); z = x[:, :3] @ torch.tensor([.6, .2, .03]); s = R(seed + 1, 2, (64,)) * 2 - 1
        return x, 6 * torch.tanh(z) + 5 * s + .3 * T(seed + 2, 64)
    return dict(model=MDN, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/Pointcept/Pointcept/pull/530", "colour auto-contrast divides by hi - lo = 0 for colourless clouds: NaN input", "data feeding: (color - lo) / (hi - lo)")
def pointcept_color(planted):
    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv1d(6, 32, 1), nn.BatchNorm1d(32); self.conv2, self.bn2 = nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64)
            self.seg = nn.Sequential(nn.Conv1d(128, 32, 1), nn.ReLU(), nn.Conv1d(32, 4, 1))
        def forward(self, coord, color):
            h = F.relu(self.bn1(self.conv1(torch.cat([coord, color], -1).transpose(1, 2)))); h = F.relu(self.bn2(self.conv2(h)))
            return self.seg(torch.cat([h, h.amax(2, keepdim=True).expand_as(h)], 1)).transpose(1, 2)
    def data(seed):
        xyz = T(seed, 16, 64, 3); c = torch.rand(16, 64, 3, generator=gen(seed + 1)) * 255; c[R(seed + 2, 16, (3,))] = 0.
        lo, hi = c.amin(1, keepdim=True), c.amax(1, keepdim=True); d = hi - lo
        if not planted: d = torch.where(d == 0, torch.ones_like(d), d)
        return (xyz, (c - lo) / d), (xyz @ T(4, 3, 4)).argmax(-1)
    return dict(model=PointNet, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/geoelements/gns/pull/94", "processed edge features are lost: the residual only doubles the edge features in every layer", "InteractionNetwork edge update")
def gns_edges(planted):
    def mlp(i, o): return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o), nn.LayerNorm(o))
    class InteractionNetwork(nn.Module):
        def __init__(self, d=32): super().__init__(); self.edge_fn, self.node_fn = mlp(3 * d, d), mlp(2 * d, d)
        def forward(self, x, src, dst, e):
            m = self.edge_fn(torch.cat([x[:, dst], x[:, src], e], -1)); agg = torch.zeros_like(x).index_add(1, dst, m)
            xn = self.node_fn(torch.cat([agg, x], -1))
            return x + xn, e + (e if planted else m)
    class EncodeProcessDecode(nn.Module):
        def __init__(self):
            super().__init__()
            self.node_in, self.edge_in = mlp(2, 32), mlp(3, 32); self.proc = nn.ModuleList([InteractionNetwork() for _ in range(5)])
            self.decoder = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        def forward(self, pos, vel):
            n = pos.shape[1]; src, dst = [i.flatten() for i in torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")]; k = src != dst; src, dst = src[k], dst[k]
            d = pos[:, src] - pos[:, dst]; e = self.edge_in(torch.cat([d, d.norm(dim=-1, keepdim=True)], -1)); x = self.node_in(vel)
            for p in self.proc: x, e = p(x, src, dst, e)
            return self.decoder(x)
    def data(seed):
        pos, vel = T(seed, 16, 6, 2), T(seed + 1, 16, 6, 2); d = pos[:, None] - pos[:, :, None]
        f = (d * torch.exp(-d.norm(dim=-1, keepdim=True))).sum(2)
        return (pos, vel), f - .5 * vel
    return dict(model=EncodeProcessDecode, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/ai4co/rl4co/issues/227", "edge_index of one graph used for the whole batch: messages only in the first graph", "GCN edge_index")
def rl4co_gcn(planted):
    n = 8
    class GCNConv(nn.Module):
        def __init__(self, d): super().__init__(); self.lin = nn.Linear(d, d)
        def forward(self, x, ei):
            src, dst = ei; deg = torch.ones(len(x)).index_add(0, dst, torch.ones(len(dst))); h = self.lin(x); w = (deg[src] * deg[dst]).rsqrt()
            return torch.zeros_like(h).index_add(0, dst, h[src] * w[:, None]) + h / deg[:, None]
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.init_embedding = nn.Linear(3, 32); self.layers = nn.ModuleList([GCNConv(32), GCNConv(32)]); self.proj = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        def forward(self, td):
            B = len(td); ei = (1 - torch.eye(n)).nonzero().t()
            if not planted: ei = torch.cat([ei + n * b for b in range(B)], 1)
            h = h0 = self.init_embedding(td).reshape(B * n, -1)
            for l in self.layers: h = h + F.relu(l(h, ei))
            return self.proj(torch.cat([h, h0], -1)).view(B, n)
    def data(seed): x = T(seed, 32, n, 3); return x, x @ T(5, 3, 1)[:, 0] - 4 * (x @ T(6, 3, 1)[:, 0]).mean(1, keepdim=True)
    return dict(model=Encoder, data=data, loss=mse, lr=3e-3, diag={})
