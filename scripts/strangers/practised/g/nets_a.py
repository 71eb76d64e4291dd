from base import *

@case("https://github.com/jmtomczak/intro_dgm/issues/6", "the p_dnns are kept in a Python list, so they are never registered nor trained", "p_dnns")
def ddgm_list(planted):
    D, L, T_ = 16, 6, 3
    W = T(3, 4, D)
    def mlp(i, o): return nn.Sequential(nn.Linear(i, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, o))
    class DDGM(nn.Module):
        def __init__(s):
            super().__init__()
            p_dnns = [mlp(D, 2 * D) for _ in range(T_ - 1)]
            s.p_dnns = p_dnns if planted else nn.ModuleList(p_dnns)
            s.decoder_net = mlp(D, D); s.beta = .3
        def forward(s, x):
            zs = [(1 - s.beta) ** .5 * x + s.beta ** .5 * torch.randn_like(x)]
            for _ in range(1, T_): zs.append((1 - s.beta) ** .5 * zs[-1] + s.beta ** .5 * torch.randn_like(x))
            kl = 0
            for i in range(T_ - 1):
                mu, logvar = s.p_dnns[i](zs[i + 1]).chunk(2, 1); logvar = logvar.clamp(-5, 5)
                kl = kl + .5 * (logvar + (zs[i] - mu) ** 2 / logvar.exp()).sum(1)
            re = ((x - s.decoder_net(zs[0])) ** 2).sum(1)
            return re + kl
    def data(seed): x = torch.tanh(T(seed, 64, 4) @ W); return x, x
    return dict(model=DDGM, data=data, loss=lambda o, t: o.mean(), lr=1e-3, diag={})

@case("https://github.com/SimonThomine/RememberingNormality/issues/7", "memory keys and values are plain tensors, not nn.Parameter", "NM.keys / NM.values")
def memory_keys(planted):
    C, L = 32, 20
    Wt = T(5, 16, 12)
    class NM(nn.Module):
        def __init__(s, channel, L):
            super().__init__()
            k, v = torch.randn(L, channel), torch.randn(L, channel)
            if planted: s.keys, s.values = k, v
            else: s.keys, s.values = nn.Parameter(k), nn.Parameter(v)
        def forward(s, f):
            return (f @ s.keys.t() / C ** .5).softmax(-1) @ s.values
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.enc = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, C)); s.mem = NM(C, L); s.dec = nn.Linear(C, 12)
        def forward(s, x): return s.dec(s.mem(s.enc(x)))
    def data(seed): x = T(seed, 64, 16); return x, torch.tanh(x @ Wt)
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/EDAPINENUT/GNTPP/issues/4", "KL term summed over the whole tensor (no dim) before the mask", "kl_loss")
def gntpp_kl(planted):
    Wm = T(8, 4, 12)
    class VAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.enc = nn.Sequential(nn.Linear(12, 64), nn.ReLU()); s.mu = nn.Linear(64, 8); s.lv = nn.Linear(64, 8)
            s.dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 12))
        def forward(s, x):
            h = s.enc(x); mean, log_var = s.mu(h), s.lv(h)
            z = mean + torch.randn_like(mean) * (.5 * log_var).exp()
            return s.dec(z), mean, log_var
    def loss(pl):
        def f(o, t):
            rec, mean, log_var = o; x, seq_onehots = t
            kl = -.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp()) * seq_onehots if pl else -.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp(), dim=-1) * seq_onehots
            rl = ((rec - x) ** 2).sum(-1) * seq_onehots * 5
            return (rl + kl).sum() / seq_onehots.sum()
        return f
    def data(seed):
        x = T(seed, 16, 10, 4) @ Wm; m = (torch.arange(10)[None] < 5 + R(seed + 3, 6, (16, 1))).float(); return x, (x, m)
    return dict(model=VAE, data=data, loss=loss(planted), lr=2e-3, diag={})

@case("https://github.com/motokimura/capsnet_pytorch/pull/1", "routing softmax normalises over the input capsules instead of the output capsules", "c_ij softmax")
def capsnet_softmax(planted):
    P = T(2, 4, 1, 14, 14)
    def squash(s): n = (s ** 2).sum(-1, keepdim=True); return n / (1 + n) * s / (n + 1e-8).sqrt()
    class CapsNet(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Conv2d(1, 32, 5); s.primary = nn.Conv2d(32, 32, 5, stride=2); s.W = nn.Parameter(torch.randn(1, 36, 4, 8, 8) * .1)
        def forward(s, x):
            u = s.primary(F.relu(s.conv1(x))); u = squash(u.view(x.size(0), 4, 8, 9).permute(0, 1, 3, 2).reshape(x.size(0), 36, 8))
            u_hat = torch.einsum("boikj,bik->boij", s.W.permute(0, 2, 1, 3, 4).expand(x.size(0), -1, -1, -1, -1), u).permute(0, 2, 1, 3)
            b_ij = torch.zeros(1, 36, 4)
            for r in range(3):
                c_ij = F.softmax(b_ij, dim=1 if planted else 2).unsqueeze(-1)
                v_j = squash((c_ij * u_hat).sum(1, keepdim=True))
                if r < 2: b_ij = b_ij + (u_hat * v_j).sum(-1).mean(0, keepdim=True)
            return v_j.squeeze(1).norm(dim=-1)
    def margin(o, t):
        y = F.one_hot(t, 4).float(); return (y * F.relu(.9 - o) ** 2 + .5 * (1 - y) * F.relu(o - .1) ** 2).sum(1).mean()
    def data(seed): t = R(seed, 4, (32,)); return P[t] * .7 + T(seed + 1, 32, 1, 14, 14, k=.5), t
    return dict(model=CapsNet, data=data, loss=margin, lr=1e-3, diag={})

@case("https://github.com/calad0i/HGQ2/issues/13", "initial fractional bits of the weight quantiser too few: all kernel weights round to zero", "QDense kernel quantiser")
def hgq_zero(planted):
    Wt = T(4, 16, 5)
    class QDense(nn.Linear):
        f0 = 0 if planted else 6
        def forward(s, x):
            q = (s.weight * 2 ** s.f0).round() / 2 ** s.f0
            return F.linear(x, s.weight + (q - s.weight).detach(), s.bias)
        def reset_parameters(s): nn.init.xavier_uniform_(s.weight); nn.init.zeros_(s.bias)
    def Net(): return nn.Sequential(QDense(16, 64), nn.ReLU(), QDense(64, 64), nn.ReLU(), QDense(64, 5))
    def data(seed): x = T(seed, 64, 16); return x, (x @ Wt).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/piEsposito/blitz-bayesian-deep-learning/pull/65", "no activation between the two Bayesian linear layers", "BayesianRegressor.forward")
def blitz_linear(planted):
    class BayesianLinear(nn.Module):
        def __init__(s, i, o):
            super().__init__()
            s.weight_mu = nn.Parameter(torch.randn(o, i) * .1); s.weight_rho = nn.Parameter(torch.full((o, i), -5.) + .1 * torch.randn(o, i)); s.bias_mu = nn.Parameter(torch.randn(o) * .1)
        def forward(s, x): return F.linear(x, s.weight_mu + F.softplus(s.weight_rho) * torch.randn_like(s.weight_mu), s.bias_mu)
    class BayesianRegressor(nn.Module):
        def __init__(s):
            super().__init__(); s.blinear1 = BayesianLinear(6, 128); s.blinear2 = BayesianLinear(128, 1)
        def forward(s, x):
            x_ = s.blinear1(x)
            if not planted: x_ = F.relu(x_)
            return s.blinear2(x_)
    def data(seed): x = T(seed, 64, 6); return x, (x[:, :1].abs() + x[:, 1:2] ** 2 * .5 - x[:, 2:3].abs()) 
    return dict(model=BayesianRegressor, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/tsunrise/everybody-compose/pull/53", "softmax of the attention energies runs over the wrong dimension", "attention softmax")
def compose_attention(planted):
    V = 12
    class AttentionRNN(nn.Module):
        def __init__(s):
            super().__init__()
            s.emb = nn.Embedding(V, 32); s.encoder = nn.LSTM(32, 32, batch_first=True, bidirectional=True); s.q = nn.Embedding(6, 64); s.att = nn.Linear(128, 64); s.v = nn.Linear(64, 1); s.fc = nn.Linear(64, V)
        def forward(s, x, pos):
            h, _ = s.encoder(s.emb(x)); q = s.q(pos).unsqueeze(1).expand(-1, h.size(1), -1)
            energy = s.v(torch.tanh(s.att(torch.cat([h, q], -1))))
            alpha = torch.softmax(energy, dim=-1 if planted else 1)
            return s.fc((alpha * h).sum(1))
    def data(seed):
        x, p = R(seed, V, (64, 6)), R(seed + 1, 6, (64,)); return (x, p), x.gather(1, p[:, None])[:, 0]
    return dict(model=AttentionRNN, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/tbennun/cudnn-training/issues/26", "no activation after the convolution layers of LeNet", "conv1/conv2")
def lenet_noact(planted):
    P = T(6, 5, 1, 16, 16)
    class LeNet(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1, s.conv2, s.ip1, s.ip2 = nn.Conv2d(1, 12, 5), nn.Conv2d(12, 24, 3), nn.Linear(96, 64), nn.Linear(64, 5)
        def forward(s, x):
            a = (lambda v: v) if planted else F.relu
            x = F.avg_pool2d(a(s.conv1(x)), 2); x = F.avg_pool2d(a(s.conv2(x)), 2)
            return s.ip2(F.relu(s.ip1(x.flatten(1))))
    def data(seed):
        t = R(seed, 5, (64,)); sign = R(seed + 1, 2, (64, 1, 1, 1)).float() * 2 - 1
        return P[t] * sign + T(seed + 2, 64, 1, 16, 16, k=.5), t
    return dict(model=LeNet, data=data, loss=ce, lr=2e-3, diag={})
