from base import *

# ---------------------------------------------------------------- 21 recommenders (LightGCN)
@case("https://github.com/PreferredAI/cornac/pull/606", "LightGCN: the degree normalisation is applied twice in the first layer", "first propagation layer (norm)")
def lightgcn_double_norm(planted):
    U, I, D = 30, 40, 16; g = gen(161)
    cu, ci = torch.arange(U) % 5, torch.arange(I) % 5
    B = (torch.rand(U, I, generator=g) < torch.where(cu[:, None] == ci[None], .7, .04)).float(); B[torch.arange(U), cu] = 1; B[torch.arange(I) % U, torch.arange(I)] = 1
    A = torch.zeros(U + I, U + I); A[:U, U:] = B; A[U:, :U] = B.t()
    class LightGCN(nn.Module):
        def __init__(s):
            super().__init__(); s.feature = nn.Embedding(U + I, D); nn.init.xavier_normal_(s.feature.weight); s.register_buffer("A", A); s.register_buffer("norm", A.sum(1).pow(-.5)[:, None])
        def layer(s, x, first):
            if planted and first: return s.norm * s.norm * (s.A @ (s.norm * s.norm * x))
            return s.norm * (s.A @ (s.norm * x))
        def forward(s, u, i, j):
            x = s.feature.weight; acc = x
            for l in range(3): x = s.layer(x, l == 0); acc = acc + x
            acc = acc / 4; return (acc[u] * (acc[U + i] - acc[U + j])).sum(-1)
    pos = B.nonzero()
    def data(seed):
        p = pos[R(seed, len(pos), (64,))]; w = torch.where(B[p[:, 0]] > 0, 0., 1.)
        return (p[:, 0], p[:, 1], torch.multinomial(w, 1, generator=gen(seed + 1))[:, 0]), torch.ones(64)
    return dict(model=LightGCN, data=data, loss=lambda o, t: F.softplus(-o).mean(), lr=1e-2, diag={})

# ---------------------------------------------------------------- 22 tabular (recourse)
@case("https://github.com/carla-recourse/CARLA/issues/117", "the ANN ends in a softmax and is trained with BCELoss on one-hot labels", "output softmax / BCELoss")
def carla_softmax_bce(planted):
    D = 12; w = T(171, D)
    class ANN(nn.Module):
        def __init__(s): super().__init__(); s.input1 = nn.Linear(D, 18); s.input2 = nn.Linear(18, 9); s.input3 = nn.Linear(9, 3); s.output = nn.Linear(3, 2); s.softmax = nn.Softmax(dim=1) if planted else nn.Identity()
        def forward(s, x): return s.softmax(s.output(F.relu(s.input3(F.relu(s.input2(F.relu(s.input1(x))))))))
    def data(seed): x = T(seed, 64, D); return x, F.one_hot((x @ w + .5 * x[:, 0] * x[:, 1] > 0).long(), 2).float()
    loss = (lambda o, t: F.binary_cross_entropy(o, t)) if planted else (lambda o, t: F.cross_entropy(o, t))
    def judge(m, x, t): o = m(x); p = o if planted else o.softmax(1); return float(-(p.clamp(1e-9).log() * t).sum(1).mean())
    return dict(model=ANN, data=data, loss=loss, judge=judge, lr=1e-2, diag={})

# ---------------------------------------------------------------- 23 drug pairs
@case("https://github.com/AstraZeneca/chemicalx/issues/78", "DeepDDS ends in a softmax over its single output, which is always one", "final softmax")
def deepdds_softmax(planted):
    N, FE, CE_, H = 8, 6, 16, 24; w = T(181, CE_); v = T(182, FE)
    class DeepDDS(nn.Module):
        def __init__(s):
            super().__init__(); s.cell_mlp = nn.Sequential(nn.Linear(CE_, 32), nn.ReLU(), nn.Linear(32, H)); s.g1, s.g2 = nn.Linear(FE, H), nn.Linear(H, H); s.drug_mlp = nn.Sequential(nn.Linear(H, 32), nn.ReLU(), nn.Linear(32, H))
            s.final = nn.Sequential(nn.Linear(3 * H, 32), nn.ReLU(), nn.Linear(32, 1)); s.act = nn.Softmax(dim=1) if planted else nn.Sigmoid()
        def enc(s, x, a): h = F.relu(a @ s.g1(x)); h = F.relu(a @ s.g2(h)); return s.drug_mlp(h.max(1).values)
        def forward(s, c, xl, al, xr, ar): return s.act(s.final(torch.cat([s.cell_mlp(F.normalize(c, dim=1) * 4), s.enc(xl, al), s.enc(xr, ar)], 1)))
    def adj(seed):
        a = (torch.rand(64, N, N, generator=gen(seed)) < .3).float(); a = ((a + a.transpose(1, 2)) > 0).float(); a = ((a + torch.eye(N)) > 0).float(); d = a.sum(2).pow(-.5); return d[:, :, None] * a * d[:, None]
    def data(seed):
        c, xl, xr = T(seed, 64, CE_), T(seed + 1, 64, N, FE), T(seed + 2, 64, N, FE)
        t = (c @ w / 4 + (xl.mean(1) + xr.mean(1)) @ v * .7 > 0).float()[:, None]; return (c, xl, adj(seed + 3), xr, adj(seed + 4)), t
    return dict(model=DeepDDS, data=data, loss=nn.BCELoss(), lr=5e-3, diag={})

# ---------------------------------------------------------------- 24 spiking networks
@case("https://github.com/jeshraghian/snntorch/pull/363", "Synaptic neuron: the synaptic current is overwritten by the membrane potential (self.syn = self.mem)", "Synaptic neuron state (syn)")
def snn_synaptic(planted):
    D, H, C, TT = 20, 48, 5, 12; proto = torch.rand(C, D, generator=gen(191))
    class FastSigmoid(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): ctx.save_for_backward(x); return (x > 0).float()
        @staticmethod
        def backward(ctx, g): x, = ctx.saved_tensors; return g / (1 + 5 * x.abs()) ** 2
    class Synaptic(nn.Module):
        def __init__(s): super().__init__(); s.alpha, s.beta, s.thr = .8, .8, 1.
        def forward(s, x, syn, mem):
            reset = (mem > s.thr).float().detach()
            if planted: syn = mem
            syn = s.alpha * syn + x; mem = s.beta * mem + syn - reset * s.thr
            return FastSigmoid.apply(mem - s.thr), syn, mem
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.fc1, s.lif1, s.fc2, s.lif2 = nn.Linear(D, H), Synaptic(), nn.Linear(H, C), Synaptic()
        def forward(s, x):
            s1 = m1 = x.new_zeros(x.size(0), H); s2 = m2 = x.new_zeros(x.size(0), C); out = 0
            for t in range(TT):
                k, s1, m1 = s.lif1(s.fc1(x[:, t]), s1, m1); _, s2, m2 = s.lif2(s.fc2(k), s2, m2); out = out + m2
            return out / TT
    def data(seed):
        y = R(seed, C, (32,)); p = proto[y][:, None].expand(-1, TT, -1); return (torch.rand(32, TT, D, generator=gen(seed + 1)) < p).float(), y
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

# ---------------------------------------------------------------- 25 time series (LSTNet)
@case("https://github.com/awslabs/gluonts/issues/765", "LSTNet: the scaler, meant for (N,T,C), is fed (N,C,T), so each time step is scaled over the channels", "scaler (axis of the mean)")
def lstnet_scaling(planted):
    C, L, P, AR = 6, 20, 1, 6
    class LSTNet(nn.Module):
        def __init__(s):
            super().__init__(); s.cnn = nn.Conv2d(1, 24, (C, 4)); s.rnn = nn.GRU(24, 24, batch_first=True); s.skip = nn.GRU(24, 8, batch_first=True); s.fc = nn.Linear(24 + 8, C); s.ar = nn.Linear(AR, P)
        def forward(s, x):
            scale = x.abs().mean(1 if planted else 2, keepdim=True) + 1e-5; z = x / scale
            c = F.relu(s.cnn(z[:, None]))[:, :, 0].transpose(1, 2); _, r = s.rnn(c); _, k = s.skip(c[:, ::4])
            return s.fc(torch.cat([r[0], k[0]], 1)) + s.ar(x[:, :, -AR:])[..., 0]
    M_ = T(201, C, C) / math.sqrt(C)
    def data(seed):
        ph = torch.rand(32, C, 1, generator=gen(seed)) * 6.283; f = .5 + .25 * torch.arange(C)[None, :, None]; am = .5 + torch.rand(32, C, 1, generator=gen(seed + 1)); t = torch.arange(L + P)[None, None].float()
        s = am * torch.sin(f * t + ph); s = s + .3 * torch.einsum("dc,bct->bdt", M_, torch.tanh(2 * s)); s = s + T(seed + 2, 32, C, L + P, k=.05)
        return s[:, :, :L], s[:, :, L]
    return dict(model=LSTNet, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=5e-3, diag={})

# ---------------------------------------------------------------- 26 weather (flow matching on residuals)
@case("https://github.com/INRIA/geoarches/issues/23", "the generative model is trained on the raw residual x - f(x), not on the residual divided by its standard deviation", "residual normalisation (targets far smaller than the noise)")
def geoarches_residual(planted):
    D, CD = 12, 12; sig = .05 * (.5 + torch.rand(D, generator=gen(211))); Wt = T(212, CD, D) / math.sqrt(CD); mix = T(213, 3, D)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("sigma", sig); s.net = nn.Sequential(nn.Linear(D + CD + 1, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, D))
        def norm(s, r): return r if planted else r / s.sigma
        def forward(s, r, cond, noise, t):
            r = s.norm(r); xt = (1 - t) * r + t * noise
            return F.mse_loss(s.net(torch.cat([xt, cond, t], 1)), noise - r)
    def data(seed):
        c = T(seed, 64, CD); r = (torch.tanh(c @ Wt * 1.5) * 1.2 + T(seed + 1, 64, 3) @ mix * .3) * sig
        return (r, c, T(seed + 2, 64, D), torch.rand(64, 1, generator=gen(seed + 3))), torch.zeros(1)
    def judge(m, x, _):
        r, c, n, t = x; rn = m.norm(r); xt = (1 - t) * rn + t * n; rh = xt - t * m.net(torch.cat([xt, c, t], 1))
        return float(((rh - rn) ** 2 / (sig ** 2 if planted else 1.)).mean())
    return dict(model=Net, data=data, loss="model", judge=judge, lr=3e-3, diag={"loss": "model", "targets_none": 1})

# ---------------------------------------------------------------- 27 reinforcement learning
@case("https://github.com/hwang-ua/inac_pytorch/issues/1", "the tanh change-of-variables correction is subtracted from log_prob although tanh is on the mean, not on the sampled action", "policy log_prob (tanh correction)")
def inac_logprob(planted):
    S, A = 10, 3; w = T(221, S, A) / math.sqrt(S)
    class Policy(nn.Module):
        def __init__(s): super().__init__(); s.base = nn.Sequential(nn.Linear(S, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.mean = nn.Linear(64, A); s.log_std = nn.Parameter(torch.full((A,), -.5))
        def forward(s, x):
            mu = torch.tanh(s.mean(s.base(x))); d = torch.distributions.Normal(mu, s.log_std.clamp(-6, 0).exp()); a = d.rsample(); logp = d.log_prob(a).sum(-1)
            if planted: logp = logp - (2 * (math.log(2) - a - F.softplus(-2 * a))).sum(-1)
            return a, logp
    def loss(o, t): return (.1 * o[1] + 2 * ((o[0] - t) ** 2).sum(-1)).mean()
    def judge(m, x, t):
        torch.manual_seed(7); a, lp = m(x)
        if planted: lp = lp + (2 * (math.log(2) - a - F.softplus(-2 * a))).sum(-1)
        return float(loss((a, lp), t))
    def data(seed): x = T(seed, 64, S); return x, torch.tanh(1.5 * x @ w)
    return dict(model=Policy, data=data, loss=loss, judge=judge, lr=3e-3, diag={})
