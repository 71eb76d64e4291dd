from base import *

# ---- 1 graphs / polymers
@case("https://github.com/Ramprasad-Group/polygnn/pull/14", "graph_feats is handed to forward but never used there", "graph_feats (input) / the readout MLP that should take it")
def polygnn_graph_feats(planted):
    F_, G, H = 6, 4, 32
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.embed = nn.Linear(F_, H); s.msg1 = nn.Linear(2 * H, H); s.msg2 = nn.Linear(2 * H, H)
            s.mlp = nn.Sequential(nn.Linear(H if planted else H + G, H), nn.LeakyReLU(), nn.Linear(H, 1))
        def forward(s, x, adj, graph_feats):
            h = F.leaky_relu(s.embed(x)); deg = adj.sum(-1, keepdim=True).clamp(min=1)
            for m in (s.msg1, s.msg2): h = F.leaky_relu(m(torch.cat([h, adj @ h / deg], -1)))
            z = h.mean(1)
            if not planted: z = torch.cat([z, graph_feats], -1)
            return s.mlp(z).squeeze(-1)
    w = T(1, F_); v = T(2, G) * .8
    def data(s):
        x = T(s, 32, 8, F_); a = (torch.rand(32, 8, 8, generator=gen(s + 1)) < .3).float(); a = ((a + a.transpose(1, 2)) > 0).float() * (1 - torch.eye(8))
        g = T(s + 2, 32, G); y = (x @ w).mean(1) * 1.2 + g @ v
        return (x, a, g), y / 1.9
    return dict(model=Net, data=data, loss=mse, lr=3e-3)

# ---- 2 genomics VAE
@case("https://github.com/dmis-lab/VAECox/issues/6", "the decoder is given mu, the sampled z is computed and thrown away", "self.decode(mu) / z / encode_si (logvar)")
def vaecox_decode_mu(planted):
    D, H, Z = 40, 32, 8
    class VAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.encode = nn.Sequential(nn.Linear(D, H), nn.Tanh()); s.encode_mu = nn.Linear(H, Z); s.encode_si = nn.Linear(H, Z)
            s.decode = nn.Sequential(nn.Linear(Z, H), nn.Tanh(), nn.Linear(H, D))
        def _reparameterize(s, mu, logvar): return mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        def forward(s, x):
            h = s.encode(x); mu = s.encode_mu(h); logvar = s.encode_si(h)
            z = s._reparameterize(mu, logvar)
            recon = s.decode(mu) if planted else s.decode(z)
            return recon, mu, logvar
    A = T(5, 6, D) / 6 ** .5
    def data(s):
        x = T(s, 64, 6) @ A + .3 * T(s + 1, 64, D); return x, x.clone()
    def loss(o, t):
        r, mu, lv = o
        return (.5 * (r - t).pow(2).sum(-1) * 4).mean() + (-.5 * (1 + lv - mu.pow(2) - lv.exp()).sum(-1)).mean()
    def judge(m, x, t):
        h = m.encode(x); mu, lv = m.encode_mu(h), m.encode_si(h); torch.manual_seed(1)
        return float(sum(loss((m.decode(m._reparameterize(mu, lv)), mu, lv), t) for _ in range(4)) / 4)
    return dict(model=VAE, data=data, loss=loss, judge=judge, lr=5e-3)

# ---- 3 attention pooling
@case("https://github.com/ml-explore/mlx/issues/1041", "softmax without axis: the attention weights are normalised over batch and time together", "softmax of the attention scores (pooling)")
def mlx_softmax_all(planted):
    D, H, C = 8, 32, 4
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.proj = nn.Linear(D, H); s.norm = nn.LayerNorm(H); s.score = nn.Sequential(nn.Linear(H, H), nn.Tanh(), nn.Linear(H, 1)); s.out = nn.Linear(H, C)
        def forward(s, x):
            h = F.relu(s.norm(s.proj(x)))
            a = s.score(h).squeeze(-1)
            a = torch.softmax(a.flatten(), 0).view_as(a) if planted else torch.softmax(a, -1)
            return s.out((a.unsqueeze(-1) * h).sum(1))
    P = T(3, C, D)
    def data(s):
        t = R(s, C, (32,)); x = T(s + 1, 32, 12, D, k=.7); pos = R(s + 2, 12, (32,))
        x[torch.arange(32), pos] += 2 * P[t]; return x, t
    return dict(model=Net, data=data, loss=ce, lr=5e-3)

# ---- 4 video
@case("https://github.com/HHTseng/video-classification/issues/42", "the LSTM is not batch_first although it is fed (batch, time, features)", "DecoderRNN.LSTM")
def crnn_batch_first(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8, momentum=.01), nn.ReLU()); s.conv2 = nn.Sequential(nn.Conv2d(8, 16, 3, 2), nn.BatchNorm2d(16, momentum=.01), nn.ReLU())
            s.fc1 = nn.Linear(16 * 4, 48); s.fc2 = nn.Linear(48, 32)
            s.LSTM = nn.LSTM(32, 48, num_layers=2) if planted else nn.LSTM(32, 48, num_layers=2, batch_first=True)
            s.fc3 = nn.Linear(48, 32); s.fc4 = nn.Linear(32, 4)
        def forward(s, v):
            seq = []
            for i in range(v.size(1)):
                x = s.conv2(s.conv1(v[:, i])); x = x.flatten(1); seq.append(s.fc2(F.relu(s.fc1(x))))
            e = torch.stack(seq, 0).transpose(0, 1)
            o, _ = s.LSTM(e, None)
            x = F.relu(s.fc3(o[:, -1, :])); x = F.dropout(x, .1, s.training)
            return s.fc4(x)
    def data(s):
        t = R(s, 4, (32,)); v = .3 * T(s + 1, 32, 8, 3, 12, 12); pos = R(s + 2, 12, (32, 8))
        for b in range(32):
            for k in range(8):
                if (t[b] // 2 if k < 4 else t[b] % 2): v[b, k, :, :, pos[b, k]] += 2
                else: v[b, k, :, pos[b, k], :] += 2
        return v, t
    return dict(model=Net, data=data, loss=ce, lr=4e-3)

# ---- 5 board game RL
@case("https://github.com/werner-duvaud/muzero-general/issues/89", "residual block adds x to itself (x += x): no skip connection", "ResidualBlock")
def muzero_residual(planted):
    C = 16
    class Block(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(C, C, 3, padding=1, bias=False); s.bn1 = nn.BatchNorm2d(C); s.conv2 = nn.Conv2d(C, C, 3, padding=1, bias=False); s.bn2 = nn.BatchNorm2d(C)
        def forward(s, x):
            if planted:
                x = F.relu(s.bn1(s.conv1(x))); x = s.bn2(s.conv2(x)); x = x + x
                return F.relu(x)
            o = F.relu(s.bn1(s.conv1(x))); o = s.bn2(s.conv2(o)); o = o + x
            return F.relu(o)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Conv2d(3, C, 3, padding=1, bias=False); s.bn = nn.BatchNorm2d(C); s.resblocks = nn.ModuleList([Block() for _ in range(4)])
            s.conv1x1 = nn.Conv2d(C, 2, 1); s.fc = nn.Sequential(nn.Linear(2 * 36, 32), nn.ELU(), nn.Linear(32, 36))
        def forward(s, x):
            x = F.relu(s.bn(s.conv(x)))
            for b in s.resblocks: x = b(x)
            return s.fc(s.conv1x1(x).flatten(1))
    K = T(7, 1, 3, 3, 3)
    def data(s):
        own = (torch.rand(48, 6, 6, generator=gen(s)) < .3).float(); opp = (torch.rand(48, 6, 6, generator=gen(s + 1)) < .3).float() * (1 - own)
        x = torch.stack([own, opp, torch.ones_like(own)], 1); y = F.conv2d(x, K, padding=1)[:, 0] - 10 * (own + opp)
        return x, y.flatten(1).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=5e-3)

# ---- 6 continuous control policy
@case("https://github.com/sweetice/Deep-reinforcement-learning-with-pytorch/issues/35", "the policy's sigma is a raw linear output and can be negative: log_prob is nan", "sigma_head")
def ppo_sigma(planted):
    class Actor(nn.Module):
        def __init__(s): super().__init__(); s.fc = nn.Linear(3, 64); s.mu_head = nn.Linear(64, 1); s.sigma_head = nn.Linear(64, 1)
        def forward(s, x):
            x = F.leaky_relu(s.fc(x)); sig = s.sigma_head(x)
            return s.mu_head(x), sig if planted else F.softplus(sig) + 1e-3
    w = T(11, 3)
    def data(s):
        x = T(s, 64, 3); a = torch.tanh(x @ w)[:, None] + .3 * T(s + 1, 64, 1); return x, (a, torch.rand(64, 1, generator=gen(s + 2)) + .5)
    def loss(o, t):
        d = torch.distributions.Normal(o[0], o[1], validate_args=False); return -(d.log_prob(t[0]) * t[1]).mean()
    return dict(model=Actor, data=data, loss=loss, lr=5e-3)

# ---- 7 CTR, DeepFM
@case("https://github.com/jc-LeeHub/Recommend-System-tf2.0/issues/11", "the FM layer embeds the embeddings again with its own v", "FM layer (v)")
def deepfm_double_v(planted):
    N, V, k = 6, 12, 8
    class FMlayer(nn.Module):
        def __init__(s, d):
            super().__init__(); s.w0 = nn.Parameter(torch.zeros(1)); s.w1 = nn.Parameter(torch.randn(d, 1) * .05); s.v = nn.Parameter(torch.randn(k, d) * .05)
        def forward(s, x):
            inter = x @ s.v.T
            return s.w0 + x @ s.w1 + .5 * (inter.pow(2) - x.pow(2) @ s.v.pow(2).T).sum(-1, keepdim=True)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.ModuleList([nn.Embedding(V, k) for _ in range(N)])
            for e in s.embed: nn.init.uniform_(e.weight, -.05, .05)
            if planted: s.FM = FMlayer(N * k)
            else: s.lin = nn.ModuleList([nn.Embedding(V, 1) for _ in range(N)]); s.bias = nn.Parameter(torch.zeros(1)); [nn.init.uniform_(m.weight, -.05, .05) for m in s.lin]
            s.Dense = nn.Sequential(nn.Linear(N * k, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        def forward(s, ids):
            e = torch.stack([m(ids[:, i]) for i, m in enumerate(s.embed)], 1); f = e.flatten(1)
            if planted: fm = s.FM(f)
            else: fm = s.bias + sum(m(ids[:, i]) for i, m in enumerate(s.lin)) + .5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(-1, keepdim=True)
            return torch.sigmoid(fm + s.Dense(f)).squeeze(-1)
    A = T(21, N, V); B = T(22, N, V, 3)
    def data(s):
        ids = R(s, V, (64, N)); i = torch.arange(N); b = B[i, ids]; z = A[i, ids].sum(1) + .5 * (b.sum(1).pow(2) - b.pow(2).sum(1)).sum(-1) * .4
        return ids, (z > 0).float()
    return dict(model=Net, data=data, loss=nn.BCELoss(), lr=1e-2)
