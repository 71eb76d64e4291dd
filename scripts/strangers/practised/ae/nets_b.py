from base import *
@case("https://github.com/carpedm20/NAF-tensorflow/issues/8", "mu comes straight out of tanh, so actions outside [-1, 1] can never be produced", "tanh on mu")
def naf_mu_tanh(planted):
    class NAF(nn.Module):
        def __init__(s): super().__init__(); s.h1 = nn.Linear(8, 64); s.h2 = nn.Linear(64, 64); s.mu = nn.Linear(64, 2)
        def forward(s, x): mu = torch.tanh(s.mu(F.relu(s.h2(F.relu(s.h1(x)))))); return mu if planted else mu * 5.
    W = T(1, 8, 2, k=.4)
    def data(seed): x = T(seed, 32, 8); return x, 5 * torch.tanh(x @ W)
    return dict(model=NAF, data=data, loss=mse, lr=2e-3, diag={})
@case("https://github.com/charlesq34/pointnet/issues/37", "batch size 2 with batch normalisation in every layer", "data feeding (batch size) / BatchNorm in fc layers")
def pointnet_batch2(planted):
    B = 2 if planted else 32
    class PointNet(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()); s.feat = nn.Sequential(c(3, 32), c(32, 64), c(64, 128)); f = lambda i, o: nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU()); s.fc1, s.fc2, s.fc3 = f(128, 64), f(64, 32), nn.Linear(32, 8)
        def forward(s, x): return s.fc3(s.fc2(s.fc1(s.feat(x).max(2)[0])))
    P = T(5, 8, 3, 1).abs() + .2
    def data(seed, B=B): t = R(seed, 8, (B,)); return F.normalize(T(seed, B, 3, 64), dim=1) * P[t] + T(seed + 1, B, 3, 64) * .03, t
    return dict(model=PointNet, data=data, loss=ce, lr=1e-3, diag={})
@case("https://github.com/aymericdamien/TensorFlow-Examples/issues/270", "no activation function between the layers of the MLP", "layer_1 / layer_2 in neural_net")
def mlp_no_activation(planted):
    class NeuralNet(nn.Module):
        def __init__(s): super().__init__(); s.layer_1 = nn.Linear(10, 128); s.layer_2 = nn.Linear(128, 128); s.out = nn.Linear(128, 3)
        def forward(s, x):
            if planted: return s.out(s.layer_2(s.layer_1(x)))
            return s.out(F.relu(s.layer_2(F.relu(s.layer_1(x)))))
    def data(seed): x = T(seed, 64, 10); x[:, :2] *= 1.5; return x, ((x[:, 0] * x[:, 1] > 0).long() + (x[:, 0].abs() > 1.2).long())
    return dict(model=NeuralNet, data=data, loss=ce, lr=3e-3, diag={})
@case("https://github.com/bold-lab-ai/JaxMARL/issues/126", "two Dense layers back to back without a non-linearity in between", "Dense layers of QNetwork head")
def vdn_qnet_dense(planted):
    class QNetwork(nn.Module):
        def __init__(s): super().__init__(); s.c1, s.c2 = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1); s.d1, s.d2, s.q = nn.Linear(16 * 36, 64), nn.Linear(64, 64), nn.Linear(64, 6)
        def forward(s, x):
            x = F.relu(s.d1(F.relu(s.c2(F.relu(s.c1(x)))).flatten(1))); x = s.d2(x); return s.q(x if planted else F.relu(x))
    W, V = T(1, 144, 24, k=.25), T(2, 24, 6, k=.4)
    def data(seed): x = (torch.rand(32, 4, 6, 6, generator=gen(seed)) < .3).float(); return x, torch.tanh((x - .3).flatten(1) @ W) @ V
    return dict(model=QNetwork, data=data, loss=mse, lr=1e-3, diag={})
@case("https://github.com/mmr12/MGP-AttTCN/issues/4", "dilated convolution stack without the residual connections", "residual block in TCN")
def tcn_no_residual(planted):
    class TCN(nn.Module):
        def __init__(s, h=24, L=10):
            super().__init__(); s.inp = nn.Conv1d(6, h, 1); s.convs = nn.ModuleList(nn.Conv1d(h, h, 3, dilation=2 ** (i % 5)) for i in range(L)); s.alpha = nn.Linear(h, 1); s.out = nn.Linear(h, 2)
            for m in s.modules():
                if isinstance(m, nn.Conv1d): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x):
            h = s.inp(x)
            for c in s.convs:
                y = F.relu(c(F.pad(h, (2 * c.dilation[0], 0)))); h = y if planted else h + y * .3
            h = h.transpose(1, 2); a = F.softmax(s.alpha(h), 1); return s.out((a * h).sum(1))
    W = T(1, 6, 1)
    def data(seed): x = T(seed, 32, 6, 40); d = (x[:, :, 5:] - .6 * x[:, :, :-5]); t = ((d.transpose(1, 2) @ W)[:, -12:, 0].mean(1) > 0).long(); return x, t
    return dict(model=TCN, data=data, loss=ce, lr=2e-3, diag={})
@case("https://github.com/awslabs/gluonts/pull/1784", "pinball loss with over- and under-prediction swapped", "quantile_loss of the implicit quantile network")
def iqn_quantile_loss(planted):
    class IQN(nn.Module):
        def __init__(s): super().__init__(); s.rnn = nn.GRU(1, 32, batch_first=True); s.tau = nn.Sequential(nn.Linear(16, 32), nn.PReLU()); s.out = nn.Sequential(nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 1)); s.register_buffer("i", torch.arange(16.))
        def forward(s, x, taus): h = s.rnn(x)[0][:, -1]; return torch.cat([s.out(h * (1 + s.tau(torch.cos(math.pi * s.i * taus)))), taus], 1)
    def data(seed):
        ph = torch.rand(64, 1, generator=gen(seed)) * 6.28; k = torch.arange(13.) * .5; y = torch.sin(ph + k) + T(seed, 64, 13) * .05; eps = T(seed + 1, 64, 1) * (1.5 + 0 * ph)
        return (y[:, :12, None], torch.rand(64, 1, generator=gen(seed + 2))), y[:, 12:] * 1.5 + eps
    def loss(o, v):
        outputs, taus = o[:, :1], o[:, 1:]
        if planted: return ((taus - (outputs < v).float()) * (outputs - v)).mean()
        return ((taus - (v < outputs).float()) * (v - outputs)).mean()
    return dict(model=IQN, data=data, loss=loss, lr=5e-3, diag={})
@case("https://github.com/LibCity/Bigscity-LibCity/pull/311", "dense Gaussian-kernel adjacency with large row sums in place of the inverse distances", "adjacency matrix A of the graph convolutions")
def stsgcn_adjacency(planted):
    N = 20; xy = torch.rand(N, 2, generator=gen(1)); D = torch.cdist(xy, xy) * 30
    A = torch.exp(-(D / D.std()) ** 2) if planted else torch.where((D > 0) & (D < 9), 1 / D.clamp(min=2.), torch.eye(N)) * .8
    A3 = torch.zeros(3 * N, 3 * N)
    for k in range(3):
        A3[k * N:(k + 1) * N, k * N:(k + 1) * N] = A
        if k < 2: A3[k * N:(k + 1) * N, (k + 1) * N:(k + 2) * N] = A3[(k + 1) * N:(k + 2) * N, k * N:(k + 1) * N] = torch.eye(N)
    class GCN(nn.Module):
        def __init__(s, h): super().__init__(); s.FC = nn.Linear(h, 2 * h)
        def forward(s, x, A): l, r = s.FC(A @ x).chunk(2, -1); return l * torch.sigmoid(r)
    class STSGCM(nn.Module):
        def __init__(s, h): super().__init__(); s.gcn_operation = nn.ModuleList(GCN(h) for _ in range(3))
        def forward(s, x, A):
            outs = []
            for g in s.gcn_operation: x = g(x, A); outs.append(x[:, N:2 * N])
            return torch.stack(outs).max(0)[0]
    class STSGCN(nn.Module):
        def __init__(s, h=24): super().__init__(); s.First_FC = nn.Linear(1, h); s.layers = nn.ModuleList(STSGCM(h) for _ in range(4)); s.fc = nn.Sequential(nn.Linear(4 * h, 48), nn.ReLU(), nn.Linear(48, 1)); s.register_buffer("adj", A3)
        def forward(s, x):
            x = F.relu(s.First_FC(x))
            for l in s.layers: x = torch.stack([l(x[:, i:i + 3].flatten(1, 2), s.adj) for i in range(x.shape[1] - 2)], 1)
            return s.fc(x.transpose(1, 2).flatten(2))[..., 0]
    S = torch.softmax(-D / 4, 1)
    def data(seed): y = T(seed, 16, 1, N) + torch.sin(torch.rand(16, 1, 1, generator=gen(seed)) * 6 + torch.arange(12.)[:, None] * .5); return y[..., None] + 2., y[:, -1] @ S.T + 2.
    return dict(model=STSGCN, data=data, loss=lambda o, t: F.smooth_l1_loss(o, t), lr=2e-3, diag={})
@case("https://github.com/sooftware/conformer/pull/46", "the fully connected output layer is declared but never called", "self.fc in Conformer.forward")
def conformer_fc_unused(planted):
    class Block(nn.Module):
        def __init__(s, d):
            super().__init__(); s.ff1 = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)); s.ln = nn.LayerNorm(d); s.mha = nn.MultiheadAttention(d, 4, batch_first=True); s.cn = nn.LayerNorm(d); s.pw = nn.Conv1d(d, 2 * d, 1); s.dw = nn.Conv1d(d, d, 7, padding=3, groups=d); s.bn = nn.BatchNorm1d(d); s.norm = nn.LayerNorm(d)
        def forward(s, x):
            x = x + .5 * s.ff1(x); h = s.ln(x); x = x + s.mha(h, h, h)[0]; x = x + F.silu(s.bn(s.dw(F.glu(s.pw(s.cn(x).transpose(1, 2)), 1)))).transpose(1, 2); return s.norm(x)
    class Conformer(nn.Module):
        def __init__(s, d=32): super().__init__(); s.inp = nn.Linear(16, d); s.layers = nn.ModuleList(Block(d) for _ in range(2)); s.fc = nn.Linear(d, 12, bias=False)
        def forward(s, x):
            x = s.inp(x)
            for l in s.layers: x = l(x)
            return F.log_softmax(x if planted else s.fc(x), -1)
    P = T(1, 12, 16)
    def data(seed): t = R(seed, 12, (16, 20)); return P[t] + T(seed, 16, 20, 16) * .7 + P[t].roll(1, 1) * .5, t
    return dict(model=Conformer, data=data, loss=ceseq, lr=2e-3, diag={})
@case("https://github.com/pytorch/rl/pull/3236", "the rollout never advances state and belief: every step starts from the initial ones", "state/belief update in RSSMRollout.forward")
def rssm_rollout_stale(planted):
    class RSSM(nn.Module):
        def __init__(s): super().__init__(); s.embed = nn.Linear(6, 32); s.pre = nn.Sequential(nn.Linear(16 + 2, 32), nn.ELU()); s.rnn = nn.GRUCell(32, 32); s.post = nn.Sequential(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 16)); s.reward = nn.Sequential(nn.Linear(48, 32), nn.ELU(), nn.Linear(32, 1))
        def forward(s, obs, act):
            belief, state, out = obs.new_zeros(len(obs), 32), obs.new_zeros(len(obs), 16), []
            for t in range(obs.shape[1]):
                nb = s.rnn(s.pre(torch.cat([state, act[:, t]], -1)), belief); ns = s.post(torch.cat([nb, torch.tanh(s.embed(obs[:, t]))], -1)); out.append(s.reward(torch.cat([nb, ns], -1)))
                if not planted: belief, state = nb, ns
            return torch.cat(out, 1)
    W = T(1, 6, 1, k=.4)
    def data(seed): o, a = T(seed, 32, 10, 6), T(seed + 1, 32, 10, 2); v = (o @ W)[..., 0]; return (o, a), v * .3 + v.roll(1, 1) * (torch.arange(10) > 0) + .5 * a[..., 0].cumsum(1)
    return dict(model=RSSM, data=data, loss=mse, lr=5e-3, diag={})
@case("https://github.com/rtqichen/torchdiffeq/issues/79", "hidden state detached before the GRU cell, so the ODE function is never updated", "hx.detach() in the GRU-ODE loop")
def gru_ode_detach(planted):
    class GRUODE(nn.Module):
        def __init__(s): super().__init__(); s.ode_func = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 24)); s.grucell = nn.GRUCell(4, 24); s.fc = nn.Linear(24, 1)
        def forward(s, x):
            hx = x.new_zeros(len(x), 24)
            for t in range(x.shape[1]):
                for _ in range(2): hx = hx + .1 * s.ode_func(hx)
                hx = s.grucell(x[:, t], hx.detach() if planted else hx)
            return s.fc(hx)[:, 0]
    W = T(1, 4, 1)
    def data(seed): x = T(seed, 64, 8, 4); return x, ((x @ W)[:, :5, 0].sum(1) > 0).float()
    return dict(model=GRUODE, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=5e-3, diag={})
