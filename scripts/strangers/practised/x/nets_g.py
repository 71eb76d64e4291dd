from com import *

@case("paper: Integral human pose regression (soft-argmax)", "softmax over the last axis only before the expectation over H x W: coordinates are sums over rows", "soft-argmax")
def softargmax_dim(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(cbr(3, 24, 3, 2), cbr(24, 32), cbr(32, 32)); s.hm = nn.Conv2d(32, 4, 1)
        def forward(s, x):
            h = s.hm(s.body(x)); B, J, H, W = h.shape; p = h.softmax(-1) if planted else h.flatten(2).softmax(-1).view(B, J, H, W); u = torch.linspace(-1, 1, W); return torch.stack([(p.sum(2) * u).sum(-1), (p.sum(3) * u).sum(-1)], -1)
    def data(seed):
        x = .3 * T(seed, 16, 3, 32, 32); pat = T(5, 4, 3, 6, 6); pos = R(seed + 2, 26, (16, 4, 2))
        for b in range(16):
            for j in range(4): i, l = pos[b, j].tolist(); x[b, :, i:i+6, l:l+6] += 1.5 * pat[j]
        return x, torch.stack([pos[..., 1], pos[..., 0]], -1).float() / 13 - 1
    return dict(model=Net, data=data, loss=mse, diag={})

def cora(seed, n=240, k=6, f=40):
    g = gen(11 + seed); y = torch.randint(0, k, (n,), generator=g); A = (torch.rand(n, n, generator=g) < torch.where(y[:, None] == y[None], .12, .008)).float().triu(1); return y, A + A.T, .35 * T(1, k, f)[y] + torch.randn(n, f, generator=g)
@case("paper: GraphSAGE", "the L2 normalisation of every layer kept on the last one: logits of length one under cross entropy", "last layer's normalisation")
def graphsage_norm_logits(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1 = nn.Linear(80, 32); s.l2 = nn.Linear(64, 6)
        def forward(s, x, A):
            A = A / A.sum(1, keepdim=True).clamp(min=1)
            h = F.normalize(F.relu(s.l1(torch.cat([x, A @ x], 1))), dim=1); o = s.l2(torch.cat([h, A @ h], 1)); return F.normalize(o, dim=1) if planted else o
    def data(seed): y, A, x = cora(seed); return (x, A), y
    return dict(model=Net, data=data, loss=ce, diag=dict(examples="one"))

@case("paper: NoisyNet", "sigma initialised to 0.5 instead of 0.5 / sqrt(fan_in): weights are mostly noise", "sigma_w")
def noisynet_sigma(planted):
    class NL(nn.Module):
        def __init__(s, i, o): super().__init__(); b = i ** -.5; s.mu = nn.Parameter(torch.empty(o, i).uniform_(-b, b)); s.mub = nn.Parameter(torch.empty(o).uniform_(-b, b)); g = .5 if planted else .5 * b; s.sigma_w = nn.Parameter(torch.full((o, i), g)); s.sigma_b = nn.Parameter(torch.full((o,), g))
        def forward(s, x):
            f = lambda n: (lambda v: v.sign() * v.abs().sqrt())(torch.randn(n)); a, b = f(s.mu.shape[1]), f(s.mu.shape[0]); return F.linear(x, s.mu + s.sigma_w * b[:, None] * a, s.mub + s.sigma_b * b)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.n1 = NL(64, 64); s.n2 = NL(64, 4)
        def forward(s, x): return s.n2(F.relu(s.n1(s.f(x))))
    W = T(3, 8, 4)
    def data(seed): x = T(seed, 64, 8); return x, torch.tanh(x @ W) * 2
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: Bayes by backprop", "KL of all weights added to the batch-mean loss, not divided by the number of examples", "loss / KL")
def bbb_kl_scale(planted):
    class BL(nn.Module):
        def __init__(s, i, o): super().__init__(); s.mu = nn.Parameter(torch.randn(o, i) * (2 / i) ** .5); s.rho = nn.Parameter(torch.full((o, i), -4.)); s.b = nn.Parameter(torch.zeros(o))
        def forward(s, x): sg = F.softplus(s.rho); return F.linear(x, s.mu + sg * torch.randn_like(sg), s.b), (-sg.log() + (sg ** 2 + s.mu ** 2) / 2 - .5).sum()
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1, s.l2, s.l3 = BL(49, 64), BL(64, 64), BL(64, 10)
        def forward(s, x): x, a = s.l1(x.flatten(1)); x, b = s.l2(F.relu(x)); x, c = s.l3(F.relu(x)); return x, (a + b + c).expand(len(x))
    def mk(n):
        def loss(o, t): return F.cross_entropy(o[0], t) + o[1].mean() / n
        return loss
    return dict(model=Net, data=lambda seed: imgs(seed, 64, 1, 7, noise=.8, g=7), loss=mk(1 if planted else 60000), diag={})

@case("paper: Conditional neural processes", "context representations averaged over the batch (dim 0) instead of over the context points", "aggregation")
def cnp_mean_dim(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)); s.dec = nn.Sequential(nn.Linear(65, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        def forward(s, xc, yc, xt):
            r = s.enc(torch.cat([xc, yc], -1)); r = r.mean(0, keepdim=True).expand(len(xc), -1, -1) if planted else r.mean(1, keepdim=True).expand(-1, xt.shape[1], -1); o = s.dec(torch.cat([xt, r], -1)); return torch.stack([o[..., 0], .1 + .9 * F.softplus(o[..., 1])], -1)
    def nll(o, t): return (o[..., 1].log() + .5 * ((t - o[..., 0]) / o[..., 1]) ** 2).mean()
    def data(seed): g = gen(seed); a = torch.rand(32, 1, 1, generator=g) * 4 - 2; p = torch.rand(32, 1, 1, generator=g) * 3; x = torch.rand(32, 20, 1, generator=g) * 4 - 2; y = a * torch.sin(x + p); return (x[:, :10], y[:, :10], x[:, 10:]), y[:, 10:, 0]
    return dict(model=Net, data=data, loss=nll, diag={})

@case("paper: Relation networks", "both members of a pair built with repeat: every object is paired with itself alone", "pair construction / g")
def relation_repeat(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.g = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.f = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, o): n = o.shape[1]; a = o.repeat(1, n, 1); b = o.repeat(1, n, 1) if planted else o.repeat_interleave(n, 1); return s.f(s.g(torch.cat([a, b], -1)).mean(1))
    def data(seed):   # mean over ordered pairs of a relation of the two
        x = T(seed, 128, 6, 4); r = torch.tanh(2 * x[:, :, None, 0] * x[:, None, :, 1]) * (1 - torch.eye(6)); return x, r.mean((1, 2))[:, None] * 6
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: PPO (discrete actions)", "actions stored as (B, 1): log_prob broadcasts to (B, B) and advantages meet other states' actions", "log_prob / loss shapes")
def ppo_logprob_broadcast(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); s.pi = nn.Linear(64, 4); s.v = nn.Linear(64, 1); nn.init.orthogonal_(s.pi.weight, .01); nn.init.zeros_(s.pi.bias)
        def forward(s, x): h = s.body(x); return torch.cat([s.pi(h), s.v(h)], 1)
    W = T(3, 8, 4)
    def mk(pl):
        def loss(o, t):
            a, adv, ret = t[:, :1].long(), t[:, 1], t[:, 2]; d = torch.distributions.Categorical(logits=o[:, :4]); lp = d.log_prob(a if pl else a[:, 0]); r = (lp + math.log(4)).exp(); return -torch.min(r * adv, r.clamp(.2, 3.) * adv).mean() + .5 * ((o[:, 4] - ret) ** 2).mean() * .1 - .001 * d.entropy().mean()
        return loss
    def data(seed): x = T(seed, 128, 8); a = R(seed + 1, 4, (128,)); q = (x @ W) / 2; adv = (q - q.mean(1, keepdim=True))[torch.arange(128), a]; return x, torch.stack([a.float(), adv, q.mean(1)], 1)
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: TextCNN (Kim)", "(B, T, C) embeddings given to Conv1d without the transpose (32 tokens, 32 dims fit): convolves along the embedding", "convs")
def textcnn_no_transpose(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(200, 32); s.convs = nn.ModuleList(nn.Conv1d(32, 32, k) for k in (3, 4, 5)); s.fc = nn.Linear(96, 4)
        def forward(s, x): e = s.emb(x); e = e if planted else e.transpose(1, 2); return s.fc(F.dropout(torch.cat([F.relu(c(e)).max(2).values for c in s.convs], 1), .3, s.training))
    def data(seed):   # a class-specific bigram somewhere
        x = R(seed, 200, (64, 32)); y = R(seed + 1, 4, (64,)); p = R(seed + 2, 31, (64,)); i = torch.arange(64); K = R(5, 200, (4, 2)); x[i, p] = K[y, 0]; x[i, p + 1] = K[y, 1]; return x, y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: ESPCN (sub-pixel convolution)", "(B, r*r, H, W) viewed as (B, 1, rH, rW) instead of shuffled", "upsampling view")
def espcn_view(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c1 = nn.Conv2d(1, 32, 5, padding=2); s.c2 = nn.Conv2d(32, 24, 3, padding=1); s.c3 = nn.Conv2d(24, 4, 3, padding=1); s.ps = nn.PixelShuffle(2)
        def forward(s, x): y = s.c3(torch.tanh(s.c2(torch.tanh(s.c1(x))))); return y.view(len(x), 1, 2 * x.shape[2], 2 * x.shape[3]) if planted else s.ps(y)
    def data(seed): hr = F.interpolate(T(seed, 16, 1, 8, 8), size=24, mode="bicubic"); return F.avg_pool2d(hr, 2), hr
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: SincNet", "cutoffs kept in Hz (mel spaced) and not divided by the sample rate in the sinc filters: aliased noise", "low_hz / band_hz, sinc conv")
def sincnet_hz(planted):
    class Sinc(nn.Module):
        def __init__(s, o=24, k=65, sr=8000):
            super().__init__(); hz = 700 * (10 ** (torch.linspace(2595 * math.log10(1 + 30 / 700), 2595 * math.log10(1 + 3800 / 700), o + 1) / 2595) - 1); s.low = nn.Parameter(hz[:-1, None] / sr); s.band = nn.Parameter((hz[1:] - hz[:-1])[:, None] / sr); s.sr = sr; s.register_buffer("n", torch.arange(-(k // 2), k // 2 + 1.)); s.register_buffer("win", torch.hamming_window(k, False))
        def forward(s, x):
            lo = s.low.abs(); hi = lo + s.band.abs(); c = s.sr if planted else 1.; f = lambda q: 2 * q * torch.sinc(2 * q * s.n * c); w = (f(hi) - f(lo)) * s.win; w = w / w.abs().max(1, keepdim=True).values.clamp(min=1e-6); return F.conv1d(x, w[:, None], stride=4)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.sinc = Sinc(); s.n = nn.BatchNorm1d(24); s.c = nn.Sequential(nn.Conv1d(24, 32, 3), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 32, 3), nn.BatchNorm1d(32), nn.ReLU()); s.fc = nn.Linear(32, 6)
        def forward(s, x): return s.fc(s.c(F.max_pool1d(s.n(s.sinc(x)).abs(), 3)).mean(2))
    def data(seed): g = gen(seed); y = torch.randint(0, 6, (32,), generator=g); f = torch.tensor([200., 500, 900, 1400, 2200, 3100])[y] * (1 + .03 * torch.randn(32, generator=g)); t = torch.arange(800.) / 8000; return (torch.sin(6.2832 * f[:, None] * t + 6.28 * torch.rand(32, 1, generator=g)) + torch.randn(32, 800, generator=g))[:, None], y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: Slot attention", "slots start from mu alone (sigma * noise forgotten): all slots stay equal", "slots init")
def slot_identical(planted):
    import itertools; P = torch.tensor(list(itertools.permutations(range(3))))
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.enc = nn.Sequential(nn.Linear(6, d), nn.ReLU(), nn.Linear(d, d)); s.mu = nn.Parameter(torch.randn(1, 1, d) * .3); s.ls = nn.Parameter(torch.zeros(1, 1, d)); s.q, s.k, s.v = (nn.Linear(d, d, bias=False) for _ in range(3)); s.gru = nn.GRUCell(d, d); s.n1, s.n2, s.n3 = (nn.LayerNorm(d) for _ in range(3)); s.mlp = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)); s.out = nn.Linear(d, 4)
        def forward(s, x, noise):
            x = s.n1(s.enc(x)); k, v = s.k(x), s.v(x); z = s.mu.expand(len(x), 3, -1) if planted else s.mu + s.ls.exp() * noise; d = z.shape[-1]
            for _ in range(3): p = z; a = (s.q(s.n2(z)) @ k.transpose(1, 2) / d ** .5).softmax(1) + 1e-8; a = a / a.sum(2, keepdim=True); z = s.gru((a @ v).flatten(0, 1), p.flatten(0, 1)).view_as(p); z = z + s.mlp(s.n3(z))
            return s.out(z)
    def loss(o, t): d = ((o[:, :, None] - t[:, None]) ** 2).mean(-1); return torch.stack([d[:, torch.arange(3), p].mean(1) for p in P], 1).min(1).values.mean()
    def data(seed): c = T(seed, 32, 3, 4) * 2; i = R(seed + 1, 3, (32, 12)); i[:, :3] = torch.arange(3); f = c.gather(1, i[..., None].expand(-1, -1, 4)); return (torch.cat([f, f[..., :2] ** 2 / 4], -1) + .1 * T(seed + 2, 32, 12, 6), T(seed + 3, 32, 3, 48)), c
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: Hierarchical attention networks", "context vector and projection both zero-initialised: the attention stays uniform for ever", "word attention")
def han_ctx_zero(planted):
    class Att(nn.Module):
        def __init__(s, d): super().__init__(); s.proj = nn.Linear(d, d); s.ctx = nn.Parameter(torch.zeros(d) if planted else torch.randn(d) * .1); (nn.init.zeros_(s.proj.weight), nn.init.zeros_(s.proj.bias)) if planted else None
        def forward(s, h): a = (torch.tanh(s.proj(h)) @ s.ctx).softmax(1); return (a[..., None] * h).sum(1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(100, 32); s.w = nn.GRU(32, 32, batch_first=True, bidirectional=True); s.wa = Att(64); s.s = nn.GRU(64, 32, batch_first=True, bidirectional=True); s.sa = Att(64); s.fc = nn.Linear(64, 5)
        def forward(s, x): B, S, W = x.shape; h = s.wa(s.w(s.emb(x.view(B * S, W)))[0]).view(B, S, -1); return s.fc(s.sa(s.s(h)[0]))
    def data(seed): x = R(seed, 90, (32, 5, 10)); y = R(seed + 1, 5, (32,)); x[torch.arange(32), R(seed + 2, 5, (32,)), R(seed + 3, 10, (32,))] = 90 + y; return x, y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: Kendall & Gal (learned uncertainty)", "precision written exp(s) instead of exp(-s) while s is the log variance", "loss")
def kendall_sign(planted):
    def model(): return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    def mk(pl):
        def loss(o, t): m, s = o[:, 0], o[:, 1].clamp(-8, 8); return .5 * (torch.exp(s if pl else -s) * (t - m) ** 2 + s).mean()
        return loss
    W = T(3, 6)
    def data(seed): x = T(seed, 128, 6); return x, torch.sin(x @ W) + .1 * (1 + x[:, 0].abs()) * T(seed + 1, 128)
    return dict(model=model, data=data, loss=mk(planted), diag={})

@case("paper: Gumbel-softmax", "hard one-hot of argmax without the straight-through term", "gumbel sample / encoder")
def gumbel_hard(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 8 * 6)); s.dec = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 36))
        def forward(s, x): l = s.enc(x).view(-1, 8, 6); u = -torch.log(-torch.log(torch.rand_like(l).clamp(1e-9, 1 - 1e-7))); y = (l + u).softmax(-1); h = F.one_hot(y.argmax(-1), 6).float(); z = h if planted else h + y - y.detach(); return s.dec(z.flatten(1))
    def data(seed): x = T(7, 30, 36)[R(seed, 30, (64,))] + .1 * T(seed + 1, 64, 36); return x, x
    return dict(model=Net, data=data, loss=mse, diag={})
