from com import *

@case("paper: Temporal fusion transformer (quantile loss)", "pinball loss with the error's sign swapped (prediction - target): the 0.9 and 0.1 heads learn each other's quantile", "loss")
def tft_pinball_sign(planted):
    class GRN(nn.Module):
        def __init__(s, d): super().__init__(); s.a = nn.Linear(d, d); s.b = nn.Linear(d, d); s.glu = nn.Linear(d, 2 * d); s.n = nn.LayerNorm(d)
        def forward(s, x): return s.n(x + F.glu(s.glu(s.b(F.elu(s.a(x)))), -1))
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.vars = nn.ModuleList(nn.Linear(1, d) for _ in range(3)); s.sel = nn.Linear(3 * d, 3); s.g1 = GRN(d); s.lstm = nn.LSTM(d, d, batch_first=True); s.n = nn.LayerNorm(d); s.att = Enc(d, 4, causal=True); s.g2 = GRN(d); s.out = nn.Linear(d, 3)
        def forward(s, x): e = torch.stack([v(x[..., i:i + 1]) for i, v in enumerate(s.vars)], -2); w = s.sel(e.flatten(-2)).softmax(-1); h = s.g1((w[..., None] * e).sum(-2)); h = s.n(h + s.lstm(h)[0]); return s.out(s.g2(s.att(h)))
    Q = torch.tensor([.02, .5, .98])
    def mk(pl):
        def loss(o, t): e = o - t[..., None] if pl else t[..., None] - o; return torch.maximum(Q * e, (Q - 1) * e).mean()
        return loss
    def data(seed): x = T(seed, 32, 16, 3); return x, x[..., 0] + (1 + x[..., 1].abs()) * T(seed + 1, 32, 16)
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: DeepAR", "inputs divided by the series' scale, but mean and deviation not multiplied back before the likelihood", "output scaling")
def deepar_no_rescale(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.lstm = nn.LSTM(2, 40, 2, batch_first=True); s.mu = nn.Linear(40, 1); s.sig = nn.Linear(40, 1)
        def forward(s, z, cov):
            nu = 1 + z.mean(1, keepdim=True); h, _ = s.lstm(torch.stack([z / nu, cov], -1)); m, sg = s.mu(h)[..., 0], F.softplus(s.sig(h)[..., 0]) + 1e-3
            if not planted: m, sg = m * nu, sg * nu
            return torch.stack([m, sg], -1)
    def nll(o, t): m, sg = o[..., 0], o[..., 1]; return (sg.log() + .5 * ((t - m) / sg) ** 2 + .919).mean()
    def data(seed): g = gen(seed); sc = (torch.randn(32, 1, generator=g) * 1.5 + 3).exp(); ph = torch.rand(32, 1, generator=g) * 6.28; t = torch.arange(25.)[None]; z = sc * (1 + .6 * torch.sin(t * .5 + ph) + .05 * torch.randn(32, 25, generator=g)); return (z[:, :-1], torch.sin(t[:, 1:] * .5).expand(32, -1)), z[:, 1:]
    return dict(model=Net, data=data, loss=nll, diag={})

class S4D(nn.Module):
    def __init__(s, d, log, N=16): super().__init__(); dt = torch.rand(d) * (math.log(.1) - math.log(.001)) + math.log(.001); s.log_dt = nn.Parameter(dt if log else dt.exp()); s.A_re = nn.Parameter(torch.full((d, N), math.log(.5))); s.A_im = nn.Parameter(math.pi * torch.arange(float(N)).repeat(d, 1)); s.C = nn.Parameter(torch.randn(d, N, 2) * .5 ** .5); s.D = nn.Parameter(torch.randn(d)); s.out = nn.Linear(d, 2 * d)
    def forward(s, x):
        L = x.shape[1]; dt = s.log_dt.exp()[:, None]; A = torch.complex(-s.A_re.exp(), s.A_im); C = torch.view_as_complex(s.C); dA = A * dt; K = (C * (dA.exp() - 1) / A)[..., None] * (dA[..., None] * torch.arange(L)).exp(); K = 2 * K.sum(1).real; u = x.transpose(1, 2)
        y = torch.fft.irfft(torch.fft.rfft(u, 2 * L) * torch.fft.rfft(K, 2 * L), 2 * L)[..., :L] + u * s.D[:, None]; return F.glu(s.out(F.gelu(y.transpose(1, 2))), -1)
@case("paper: S4D", "dt stored, but read as log dt: exp(0.001..0.1) ~ 1, the state forgets within a few steps", "log_dt")
def s4d_log_dt(planted):
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.i = nn.Linear(4, d); s.l = nn.ModuleList(S4D(d, not planted) for _ in range(2)); s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(2)); s.o = nn.Linear(d, 4)
        def forward(s, x):
            x = s.i(x)
            for l, n in zip(s.l, s.n): x = x + l(n(x))
            return s.o(x)
    def data(seed): x = T(seed, 16, 64, 4); m = (torch.rand(16, 64, 1, generator=gen(seed + 2)) < .15).float(); x = x * m; y = x.cumsum(1) / 3; return x, y
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: Mamba", "A_log initialised with 1..N instead of log(1..N): A = -exp(n), all states decay at once", "A_log")
def mamba_a_log(planted):
    class Mb(nn.Module):
        def __init__(s, d=32, N=8): super().__init__(); s.n = nn.LayerNorm(d); s.inp = nn.Linear(d, 4 * d, bias=False); s.conv = nn.Conv1d(2 * d, 2 * d, 3, padding=2, groups=2 * d); s.x = nn.Linear(2 * d, 4 + 2 * N, bias=False); s.dt = nn.Linear(4, 2 * d); a = torch.arange(1., N + 1).repeat(2 * d, 1); s.A_log = nn.Parameter(a if planted else a.log()); s.D = nn.Parameter(torch.ones(2 * d)); s.out = nn.Linear(2 * d, d, bias=False); t = (torch.rand(2 * d) * math.log(100) + math.log(.001)).exp(); s.dt.bias.data = t + torch.log(-torch.expm1(-t)); s.N = N
        def forward(s, x0):
            x, z = s.inp(s.n(x0)).chunk(2, -1); L = x.shape[1]; x = F.silu(s.conv(x.transpose(1, 2))[..., :L].transpose(1, 2)); r, B, C = s.x(x).split([4, s.N, s.N], -1); dt = F.softplus(s.dt(r)); A = -s.A_log.exp(); h = 0; o = []
            dA = (dt[..., None] * A).exp(); dB = (dt * x)[..., None] * B[:, :, None]
            for t in range(L): h = dA[:, t] * h + dB[:, t]; o.append((h * C[:, t, None]).sum(-1))
            return x0 + s.out((torch.stack(o, 1) + x * s.D) * F.silu(z))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(8, 32); s.l = nn.Sequential(Mb(), Mb()); s.o = nn.Linear(32, 8)
        def forward(s, x): return s.o(s.l(s.e(x)))
    def data(seed):   # recall the last marked token: marks (4..7) are sparse among fillers 0..3
        x = R(seed, 4, (16, 24)); m = torch.rand(16, 24, generator=gen(seed + 1)) < .1; m[:, 0] = True; x = torch.where(m, x + 4, x); t = torch.zeros_like(x); c = x[:, 0]
        for i in range(24): c = torch.where(m[:, i], x[:, i], c); t[:, i] = c
        return x, t
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("paper: DQN", "gathered Q of shape (B, 1) against targets of shape (B,): the loss compares all pairs", "loss / shapes")
def dqn_broadcast(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.conv = nn.Sequential(nn.Conv2d(4, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 64), nn.ReLU()); s.q = nn.Linear(64, 4)
        def forward(s, x, a): q = s.q(s.conv(x)).gather(1, a[:, None]); return q
    def mk(pl):
        def loss(o, t): return F.smooth_l1_loss(o if pl else o[:, 0], t)
        return loss
    def data(seed): g = R(seed, 9, (32, 2)); x = torch.zeros(32, 4, 16, 16); i = torch.arange(32); x[i, :, g[:, 0] + 2, g[:, 1] + 2] = 1; x = F.max_pool2d(x, 3, 1, 1); a = R(seed + 1, 4, (32,)); dx = torch.tensor([1., -1, 0, 0])[a]; dy = torch.tensor([0., 0, 1, -1])[a]; return (x, a), ((g[:, 0] - 4) * dx + (g[:, 1] - 4) * dy) / 1.5
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: Dueling DQN", "advantage centred with mean() over the batch and the actions of a (B, A) tensor transposed: advantage.mean(0)", "advantage stream")
def dueling_mean_dim(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Linear(8, 64), nn.ReLU()); s.val = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)); s.adv = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(s, x): h = s.f(x); a = s.adv(h); return s.val(h) + a - (a.mean(0, keepdim=True) if planted else a.mean(1, keepdim=True))
    W = T(3, 8, 4)
    def data(seed): x = T(seed, 64, 8); return x, torch.tanh(x @ W) * 2 + torch.tensor([4., 0, -4, 2])
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: C51", "projection when b is an integer: lower == upper, both weights are 0, the target's mass vanishes", "loss / projection")
def c51_integer_bin(planted):
    Z = torch.linspace(-10, 10, 21)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.o = nn.Linear(64, 3 * 21)
        def forward(s, x, a): return s.o(s.f(x)).view(-1, 3, 21).log_softmax(2)[torch.arange(len(x)), a]
    def mk(pl):
        def loss(o, t):
            b = (t.clamp(-10, 10) + 10) / 1.; l, u = b.floor().long(), b.ceil().long()
            if not pl: u = torch.where(l == u, (u + 1).clamp(max=20), u); l = torch.where(l == u, l - 1, l)
            m = torch.zeros_like(o); i = torch.arange(len(o)); m[i, l] += u.float() - b; m[i, u] += b - l.float(); return -(m * o).sum(1).mean()
        return loss
    W = T(3, 8, 3)
    def data(seed): x = T(seed, 64, 8); a = R(seed + 1, 3, (64,)); r = (2 * (x @ W))[torch.arange(64), a].round().clamp(-9, 9); fr = torch.rand(64, generator=gen(seed + 2)) < .1; return (x, a), torch.where(fr, r + .4, r)
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: SAC", "action drawn with sample() instead of rsample(): the critic's gradient does not reach the policy", "policy sampling")
def sac_sample(planted):
    class Pi(nn.Module):
        def __init__(s):
            super().__init__(); s.f = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.mu = nn.Linear(64, 2); s.ls = nn.Linear(64, 2); W = T(3, 8, 2) / 3; s.register_buffer("W", W)
        def forward(s, x):
            h = s.f(x); d = torch.distributions.Normal(s.mu(h), s.ls(h).clamp(-5, 2).exp()); u = d.sample() if planted else d.rsample(); a = torch.tanh(u); lp = (d.log_prob(u) - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(1); q = -5 * ((a - torch.tanh(x @ s.W)) ** 2).sum(1); return torch.stack([lp, q], 1)
    def loss(o, t): return (.1 * o[:, 0] - o[:, 1]).mean()
    return dict(model=Pi, data=lambda seed: (T(seed, 128, 8), torch.zeros(128)), loss=loss, diag={})

@case("paper: World models (MDN-RNN)", "mixture weights normalised over the features instead of the components", "pi softmax")
def mdnrnn_softmax_dim(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.rnn = nn.LSTM(6, 64, batch_first=True); s.o = nn.Linear(64, 3 * 5 * 4)
        def forward(s, x): p, m, l = s.o(s.rnn(x)[0]).view(*x.shape[:2], 3, 5, 4).unbind(2); return p.log_softmax(-1 if planted else -2), m, l
    def nll(o, t): p, m, l = o; return -torch.logsumexp(p - l - .919 - .5 * ((t[:, :, None] - m) * (-l).exp()) ** 2, 2).sum(-1).mean()
    def ev(o, t): p, m, l = o; return nll((p.log_softmax(-2), m, l), t)
    W = T(4, 6, 4) * .5
    def data(seed): x = T(seed, 16, 12, 6); g = gen(seed + 1); sgn = (torch.rand(16, 12, 4, generator=g) < .5).float() * 2 - 1; return x, torch.tanh(x @ W) + sgn + .05 * torch.randn(16, 12, 4, generator=g)
    return dict(model=Net, data=data, loss=nll if planted else ev, diag={})

@case("paper: Prototypical networks", "episode stored shot-major, but viewed as (way, shot): prototypes mix the classes", "prototypes / view")
def protonet_view(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(cbr(1, 32), nn.MaxPool2d(2), cbr(32, 32), nn.MaxPool2d(2), cbr(32, 32), nn.MaxPool2d(2), nn.Flatten())
        def forward(s, sup, q): n = len(sup); z = s.enc(torch.cat([sup, q])); p = z[:n].view(5, 4, -1).mean(1) if planted else z[:n].view(4, 5, -1).mean(0); return -((z[n:, None] - p[None]) ** 2).sum(-1) / 8
    def data(seed):
        P = F.interpolate(T(seed + 5, 5, 1, 4, 4), size=16); f = lambda s, n: P.repeat(n, 1, 1, 1) + .9 * T(s, 5 * n, 1, 16, 16); return (f(seed + 1, 4), f(seed + 2, 6)), torch.arange(5).repeat(6)
    return dict(model=Net, data=data, loss=ce, diag=dict(examples="one"))

@case("paper: LoRA", "both adapters zero-initialised (only B in the paper)", "lora_A / lora_B")
def lora_both_zero(planted):
    class Lo(nn.Module):
        def __init__(s, lin, r=8): super().__init__(); s.lin = lin; s.lora_A = nn.Parameter(torch.zeros(r, lin.in_features)); s.lora_B = nn.Parameter(torch.zeros(lin.out_features, r)); lin.requires_grad_(False); s.r = r; None if planted else nn.init.kaiming_uniform_(s.lora_A, math.sqrt(5))
        def forward(s, x): return s.lin(x) + x @ s.lora_A.T @ s.lora_B.T * (16 / s.r)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(30, 64); s.pos = nn.Parameter(.1 * torch.randn(12, 64)); s.blocks = nn.Sequential(Enc(), Enc()); s.ln = nn.LayerNorm(64); s.head = nn.Linear(64, 30); s.requires_grad_(False)
            for b in s.blocks: b.qkv = Lo(b.qkv); b.proj = Lo(b.proj); b.mlp[0] = Lo(b.mlp[0]); b.mlp[2] = Lo(b.mlp[2])
            s.ln.requires_grad_(True)
        def forward(s, x): return s.head(s.ln(s.blocks(s.emb(x) + s.pos)))
    def data(seed): x = R(seed, 30, (16, 12)); return x, R(9, 30, (30,))[x]
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("paper: Knowledge distillation", "student's probabilities instead of log-probabilities given to kl_div", "loss")
def kd_no_log(planted):
    def model(): return nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 32, 3, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    def mk(pl):
        def loss(o, t): q = (o / 4).softmax(1); return F.kl_div(q if pl else q.log(), (t / 4).softmax(1), reduction="batchmean") * 16
        return loss
    def data(seed): x, y = imgs(seed, 32, hw=16, noise=1.); return x, 8 * F.one_hot(y, 10).float() + 2 * T(8, 10, 10)[y]
    return dict(model=model, data=data, loss=mk(planted), diag={})

@case("paper: DeepFM", "embeddings left at nn.Embedding's N(0,1): 20 fields' pairwise sum swamps the logit", "embedding / fm")
def deepfm_embed_unit(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(20 * 30, 16); s.lin = nn.Embedding(20 * 30, 1); s.register_buffer("off", torch.arange(20) * 30); s.mlp = nn.Sequential(nn.Linear(320, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)); nn.init.zeros_(s.lin.weight); None if planted else nn.init.normal_(s.emb.weight, 0, .02)
        def forward(s, x): x = x + s.off; e = s.emb(x); fm = .5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1); return s.lin(x).sum((1, 2)) + fm + s.mlp(e.flatten(1))[:, 0]
    W = T(4, 20, 30) * .8
    def bce(o, t): return F.binary_cross_entropy_with_logits(o, t)
    def data(seed): x = R(seed, 30, (512, 20)); l = W[torch.arange(20), x].sum(1); return x, (l + .3 * T(seed + 1, 512) > 0).float()
    return dict(model=Net, data=data, loss=bce, diag={})

@case("paper: Neural collaborative filtering (NeuMF)", "sigmoid of the paper's output layer kept in front of BCEWithLogits", "output sigmoid")
def neumf_double_sigmoid(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.gu, s.gi, s.mu, s.mi = (nn.Embedding(n, 16) for n in (80, 60, 80, 60)); s.mlp = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()); s.out = nn.Linear(32, 1); [nn.init.normal_(e.weight, 0, .1) for e in (s.gu, s.gi, s.mu, s.mi)]
        def forward(s, u, i): o = s.out(torch.cat([s.gu(u) * s.gi(i), s.mlp(torch.cat([s.mu(u), s.mi(i)], 1))], 1))[:, 0]; return o.sigmoid() if planted else o
    P = (T(4, 80, 3) @ T(5, 60, 3).T > 1).float()
    def bce(o, t): return F.binary_cross_entropy_with_logits(o, t)
    def data(seed): u, i = R(seed, 80, (512,)), R(seed + 1, 60, (512,)); return (u, i), P[u, i]
    return dict(model=Net, data=data, loss=bce, diag={})

@case("paper: TabNet", "sparsemax of the attentive transformer over the batch (dim 0) instead of the features", "attentive / sparsemax")
def tabnet_sparsemax_dim(planted):
    def sparsemax(z, dim):
        z = z.transpose(dim, -1); s, _ = z.sort(-1, descending=True); c = s.cumsum(-1) - 1; k = torch.arange(1., z.shape[-1] + 1); n = (s * k > c).sum(-1, keepdim=True); t = c.gather(-1, n - 1) / n; return (z - t).clamp(min=0).transpose(dim, -1)
    class FT(nn.Module):
        def __init__(s, i, o): super().__init__(); s.l = nn.Linear(i, 2 * o, bias=False); s.b = nn.BatchNorm1d(2 * o)
        def forward(s, x): return F.glu(s.b(s.l(x)), 1)
    class Net(nn.Module):
        def __init__(s, f=20, d=16): super().__init__(); s.bn = nn.BatchNorm1d(f); s.shared = FT(f, 2 * d); s.ft = nn.ModuleList(FT(2 * d, 2 * d) for _ in range(4)); s.att = nn.ModuleList(nn.Sequential(nn.Linear(d, f, bias=False), nn.BatchNorm1d(f)) for _ in range(3)); s.out = nn.Linear(d, 4); s.d = d
        def forward(s, x):
            x = s.bn(x); h = s.shared(x); h = (h + s.ft[0](h)) * .5 ** .5; a = h[:, s.d:]; pr = 1; o = 0
            for i in range(3): m = sparsemax(s.att[i](a) * pr, 0 if planted else 1); pr = pr * (1.3 - m); h = s.shared(m * x); h = (h + s.ft[i + 1](h)) * .5 ** .5; o = o + F.relu(h[:, :s.d]); a = h[:, s.d:]
            return s.out(o)
    W = T(4, 20, 4); W[6:] = 0
    def data(seed): x = T(seed, 128, 20); return x, (x @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: Siamese networks (contrastive loss)", "label convention swapped: 1 means 'same' in the data, the loss pushes 1 apart", "loss / labels")
def siamese_label(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 16))
        def forward(s, a, b): return F.pairwise_distance(s.f(a), s.f(b))
    def mk(pl):
        def loss(d, y): y = 1 - y if pl else y; return (y * d ** 2 + (1 - y) * F.relu(2 - d) ** 2).mean()
        return loss
    def data(seed):
        P = F.interpolate(T(3, 8, 1, 4, 4), size=16); y = R(seed, 2, (64,)); i = R(seed + 1, 8, (64,)); j = torch.where(y == 1, i, (i + 1 + R(seed + 2, 7, (64,))) % 8); return (P[i] + .5 * T(seed + 3, 64, 1, 16, 16), P[j] + .5 * T(seed + 4, 64, 1, 16, 16)), y.float()
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: ArcFace", "margin of 28.6 degrees used as radians in cos(theta + m)", "margin / arcface head")
def arcface_degrees(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 32, 3, 2), nn.Flatten(), nn.Linear(512, 64), nn.BatchNorm1d(64)); s.weight = nn.Parameter(torch.empty(20, 64)); nn.init.xavier_uniform_(s.weight); s.m = 28.6 if planted else math.radians(28.6)
        def forward(s, x, y): c = F.linear(F.normalize(s.f(x)), F.normalize(s.weight)).clamp(-1 + 1e-6, 1 - 1e-6); t = torch.cos(c.acos() + s.m); h = F.one_hot(y, 20).float(); return 16 * torch.stack([h * t + (1 - h) * c, c], 1)
    def loss(o, t): return F.cross_entropy(o[:, 0], t)
    def plain(o, t): return F.cross_entropy(o[:, 0], t)
    def data(seed): x, y = imgs(seed, 32, hw=16, k=20, noise=1.); return (x, y), y
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: End-to-end memory networks", "attention over memories normalised along the embedding (softmax before the sum of the inner product)", "attention / A embedding")
def memn2n_softmax_dim(planted):
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.A = nn.Embedding(24, d); s.C = nn.Embedding(24, d); s.B = nn.Embedding(24, d); s.H = nn.Linear(d, d); s.W = nn.Linear(d, 24); [nn.init.normal_(e.weight, 0, .3) for e in (s.A, s.B, s.C)]
        def forward(s, m, q):
            u = s.B(q).sum(1); a, c = s.A(m).sum(2), s.C(m).sum(2)
            for _ in range(2): p = (a * u[:, None]).softmax(-1).sum(-1) if planted else (a * u[:, None]).sum(-1).softmax(1); u = s.H(u) + (p[..., None] * c).sum(1)
            return s.W(u)
    def data(seed): g = gen(seed); e = torch.stack([torch.randperm(10, generator=g)[:6] for _ in range(64)]); l = torch.randint(12, 24, (64, 6), generator=g); k = torch.randint(0, 6, (64,), generator=g); i = torch.arange(64); return (torch.stack([e, l], 2), e[i, k][:, None]), l[i, k]
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: DeepSurv (Cox partial likelihood)", "sorted by ascending time before the cumulative sum: the risk set is who has died already", "loss / risk set")
def deepsurv_sort(planted):
    def model(): return nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
    def mk(pl):
        def loss(o, t): i = t[:, 0].argsort(descending=not pl); h, e = o[i, 0], t[i, 1]; return -((h - h.logcumsumexp(0)) * e).sum() / e.sum()
        return loss
    w = T(3, 10)
    def data(seed): x = T(seed, 128, 10); u = torch.rand(128, generator=gen(seed + 1)); t = -u.log() * torch.exp(-(x @ w)); return x, torch.stack([t, (torch.rand(128, generator=gen(seed + 2)) < .8).float()], 1)
    return dict(model=model, data=data, loss=mk(planted), diag={})

@case("paper: PINN", "ReLU network for a second-order equation: u_xx is zero everywhere", "activation")
def pinn_relu(planted):
    A = nn.ReLU if planted else nn.Tanh
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(1, 32), A(), nn.Linear(32, 32), A(), nn.Linear(32, 32), A(), nn.Linear(32, 1))
        def forward(s, x): x = x.requires_grad_(True) if x.is_leaf else x; u = s.net(x); g = torch.autograd.grad(u.sum(), x, create_graph=True)[0]; h = torch.autograd.grad(g.sum(), x, create_graph=True)[0] if g.requires_grad else torch.zeros_like(x); return torch.cat([u, h], 1)
    def loss(o, t): return ((o[:, 1] - t[:, 0]) ** 2).mean() / 10 + ((o[:, 0] - t[:, 1]) ** 2 * t[:, 2]).mean() * 10
    def data(seed): x = torch.rand(128, 1, generator=gen(seed)) * 2 - 1; x[:16] = torch.sign(x[:16]); k = 3.1416; b = torch.zeros(128, 1); b[:16] = 1; return x, torch.cat([-k ** 2 * torch.sin(k * x), torch.zeros_like(x), b], 1)
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: Fourier neural operator", "kept modes taken from the end of rfft's spectrum (fftshift thinking): only the highest frequencies pass", "spectral conv modes")
def fno_high_modes(planted):
    class Sp(nn.Module):
        def __init__(s, c=24, m=8): super().__init__(); s.m = m; s.w = nn.Parameter(torch.rand(c, c, m, 2) / c ** 1); s.c = nn.Conv1d(c, c, 1)
        def forward(s, x):
            f = torch.fft.rfft(x); o = torch.zeros_like(f); sl = slice(-s.m, None) if planted else slice(0, s.m); o[..., sl] = torch.einsum("bim,iom->bom", f[..., sl], torch.view_as_complex(s.w)); return torch.fft.irfft(o, x.shape[-1]) + s.c(x)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.p = nn.Conv1d(2, 24, 1); s.l = nn.ModuleList(Sp() for _ in range(3)); s.q1 = nn.Conv1d(24, 48, 1); s.q2 = nn.Conv1d(48, 1, 1)
        def forward(s, x):
            x = s.p(x)
            for i, l in enumerate(s.l): x = l(x); x = F.gelu(x) if i < 2 else x
            return s.q2(F.gelu(s.q1(x)))
    def data(seed):
        c = T(seed, 32, 1, 6, 2) / torch.arange(1, 7).view(6, 1); t = torch.arange(64.) / 64; k = torch.arange(1., 7)[:, None]; B = torch.stack([torch.sin(6.2832 * k * t), torch.cos(6.2832 * k * t)], 1); a = torch.einsum("bckd,kdn->bcn", c, B); d = torch.stack([c[..., 1], -c[..., 0]], -1); y = torch.einsum("bckd,kdn->bcn", d, B); return torch.cat([a, t.expand(32, 1, 64)], 1), y
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: Mixture of experts (Shazeer)", "hard argmax routing whose gate value does not multiply the expert's output: the router gets no gradient", "router")
def moe_router_nograd(planted):
    class Net(nn.Module):
        def __init__(s, d=12, E=6): super().__init__(); s.router = nn.Linear(d, E); s.ex = nn.ModuleList(nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(E)); nn.init.zeros_(s.router.bias)
        def forward(s, x):
            g = s.router(x); v, i = g.topk(2, 1); w = torch.zeros_like(g).scatter(1, i, torch.full_like(v, .5) if planted else v.softmax(1)); return (torch.stack([e(x) for e in s.ex], 1) * w[..., None]).sum(1)
    C = T(4, 6, 12); Wt = T(5, 6, 12, 2)
    def data(seed): k = R(seed, 6, (256,)); x = 1.5 * C[k] + .7 * T(seed + 1, 256, 12); return x, torch.einsum("bi,bio->bo", x - 1.5 * C[k], Wt[k])
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: Neural ODE", "Euler steps without the step size: 20 full-size increments", "odefunc / integrator")
def neural_ode_no_dt(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.down = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.GroupNorm(4, 16), nn.ReLU()); s.c1 = nn.Conv2d(17, 16, 3, padding=1); s.c2 = nn.Conv2d(17, 16, 3, padding=1); s.n1 = nn.GroupNorm(4, 16); s.n2 = nn.GroupNorm(4, 16); s.n = nn.GroupNorm(4, 16); s.fc = nn.Linear(16 * 4, 10)
        def f(s, t, x): tt = torch.full_like(x[:, :1], t); x = F.relu(s.n1(x)); x = F.relu(s.n2(s.c1(torch.cat([tt, x], 1)))); return s.c2(torch.cat([tt, x], 1))
        def forward(s, x):
            x = s.down(x)
            for k in range(12): x = x + s.f(k / 12, x) * (1. if planted else 1 / 12)
            return s.fc(F.adaptive_avg_pool2d(F.relu(s.n(x)), 2).flatten(1))
    return dict(model=Net, data=lambda seed: imgs(seed, 32, 1, 12, noise=1., g=6), loss=ce, diag={})

@case("paper: DIN (deep interest network)", "attention weights over the history computed with softmax over the batch (dim 0)", "local activation unit")
def din_softmax_batch(planted):
    class Net(nn.Module):
        def __init__(s, d=16): super().__init__(); s.item = nn.Embedding(60, d); s.au = nn.Sequential(nn.Linear(4 * d, 32), nn.PReLU(), nn.Linear(32, 1)); s.mlp = nn.Sequential(nn.Linear(2 * d, 32), nn.PReLU(), nn.Linear(32, 1))
        def forward(s, h, c): e, t = s.item(h), s.item(c)[:, None].expand(-1, h.shape[1], -1); a = s.au(torch.cat([e, t, e - t, e * t], -1)).softmax(0 if planted else 1); u = (a * e).sum(1); return s.mlp(torch.cat([u, t[:, 0]], 1))[:, 0]
    def bce(o, t): return F.binary_cross_entropy_with_logits(o, t)
    def data(seed): h = R(seed, 60, (256, 10)); y = R(seed + 1, 2, (256,)); c = torch.where(y == 1, (h[:, 3] // 6) * 6 + R(seed + 2, 6, (256,)), R(seed + 3, 60, (256,))); y = ((h // 6) == (c // 6)[:, None]).any(1).float(); return (h, c), y
    return dict(model=Net, data=data, loss=bce, diag={})
