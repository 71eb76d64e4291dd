from base import *

@case("https://github.com/huggingface/lerobot/pull/106", "action targets are not normalised for training (inputs are)", "data feeding: raw action targets")
def lerobot_targets(planted):
    mean, std = torch.tensor([250., 310., -40., 90.]), torch.tensor([80., 95., 25., 40.])
    class ACT(nn.Module):
        def __init__(self):
            super().__init__()
            self.raw_actions = planted; self.proj = nn.Linear(10, 48); self.encoder = nn.TransformerEncoderLayer(48, 4, 96, 0., batch_first=True); self.queries = nn.Parameter(torch.randn(5, 48) * .1)
            self.decoder = nn.TransformerDecoderLayer(48, 4, 96, 0., batch_first=True); self.action_head = nn.Linear(48, 4)
        def forward(self, obs):
            m = self.encoder(self.proj(obs)); return self.action_head(self.decoder(self.queries.expand(len(obs), -1, -1), m))
    def data(seed):
        x = T(seed, 32, 2, 10); w = T(7, 20, 20, k=.22); a = torch.tanh(x.flatten(1) @ w).view(32, 5, 4)
        return x, (a * std + mean if planted else a)
    def metric(model):
        x = T(9001, 128, 2, 10); a = torch.tanh(x.flatten(1) @ T(7, 20, 20, k=.22)).view(128, 5, 4)
        with torch.no_grad(): o = model(x)
        return F.l1_loss((o - mean) / std if model.raw_actions else o, a)
    return dict(model=ACT, data=data, loss=F.l1_loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/ray-project/ray/issues/21392", "recurrent state of the padded last step instead of the step seq_lens - 1", "LSTM output state")
def rllib_lstm(planted):
    class LSTMWrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 32); self.lstm = nn.LSTM(32, 48, batch_first=True); self.logits = nn.Linear(48, 4)
        def forward(self, obs, seq_lens):
            o, _ = self.lstm(F.relu(self.fc(obs))); i = torch.full_like(seq_lens, obs.shape[1]) if planted else seq_lens
            return self.logits(o[torch.arange(len(o)), i - 1])
    def data(seed):
        n = R(seed + 1, 18, (32,)) + 2; x = T(seed, 32, 20, 6) * (torch.arange(20)[None] < n[:, None])[..., None]
        return (x, n), (x[torch.arange(32), n - 1] @ T(6, 6, 4)).argmax(1)
    return dict(model=LSTMWrapper, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/benedekrozemberczki/pytorch_geometric_temporal/pull/58", "diffusion convolution follows edge_index in the wrong direction", "DConv edge direction")
def dconv_direction(planted):
    N = 12; src, dst = torch.arange(N), torch.randperm(N, generator=gen(3))
    class DConv(nn.Module):
        def __init__(self, i, o, K=2): super().__init__(); self.weight = nn.Parameter(torch.empty(K, i, o)); nn.init.xavier_uniform_(self.weight); self.bias = nn.Parameter(torch.zeros(o))
        def forward(self, x):
            a, b = (dst, src) if planted else (src, dst); p = torch.zeros_like(x).index_add(1, b, x[:, a])
            return x @ self.weight[0] + p @ self.weight[1] + self.bias
    class DCRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv_x_z, self.conv_x_h = DConv(4 + 32, 32), DConv(4 + 32, 32); self.lin = nn.Linear(32, 1)
        def forward(self, x):
            h = torch.zeros(x.shape[0], N, 32)
            for t in range(x.shape[1]):
                xh = torch.cat([x[:, t], h], -1); z = torch.sigmoid(self.conv_x_z(xh)); h = z * h + (1 - z) * torch.tanh(self.conv_x_h(xh))
            return self.lin(h).squeeze(-1)
    def data(seed): x = T(seed, 32, 4, N, 4); s = x[:, -1] @ T(5, 4, 1)[:, 0]; return x, torch.zeros(32, N).index_add(1, dst, s[:, src]) 
    return dict(model=DCRNN, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/lucidrains/dreamer4/issues/2", "time attention of the tokenizer never receives causal=True: sees the future", "attention without causal mask")
def dreamer_causal(planted):
    V = 12
    class Attention(nn.Module):
        def __init__(self, d=48, h=4): super().__init__(); self.h = h; self.norm = nn.RMSNorm(d); self.to_qkv = nn.Linear(d, 3 * d, bias=False); self.to_out = nn.Linear(d, d, bias=False)
        def forward(self, x, causal=False):
            B, N, D = x.shape; q, k, v = [t.view(B, N, self.h, -1).transpose(1, 2) for t in self.to_qkv(self.norm(x)).chunk(3, -1)]
            return self.to_out(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(B, N, D))
    class Dynamics(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.pos = nn.Embedding(V, 48), nn.Embedding(16, 48); self.attns = nn.ModuleList([Attention(), Attention()])
            self.ffs = nn.ModuleList([nn.Sequential(nn.RMSNorm(48), nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)) for _ in range(2)]); self.out = nn.Sequential(nn.RMSNorm(48), nn.Linear(48, V))
        def forward(self, ids):
            x = self.emb(ids) + self.pos(torch.arange(ids.shape[1]))
            for a, f in zip(self.attns, self.ffs): x = x + a(x, causal=not planted); x = x + f(x)
            return self.out(x)
    def seq(seed):
        g = gen(seed); x = [torch.randint(0, V, (32,), generator=g)]
        for _ in range(11): r = torch.randint(0, V, (32,), generator=g); x.append(torch.where(torch.rand(32, generator=g) < .6, (x[-1] * 5 + 1) % V, r))
        return torch.stack(x, 1)
    def data(seed): x = seq(seed); return x[:, :-1], x[:, 1:]
    def metric(model):
        x = seq(9001); tot = 0
        with torch.no_grad():
            for i in (3, 6, 9): y = torch.zeros_like(x[:, :-1]); y[:, :i] = x[:, :i]; tot += F.cross_entropy(model(y)[:, i - 1], x[:, i]) / 3
        return tot
    return dict(model=Dynamics, data=data, loss=ceseq, lr=5e-3, metric=metric, diag={})
