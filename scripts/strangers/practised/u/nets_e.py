from base import *
def E(a): return "experience: " + a
def mlp(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in (nn.Linear(d[i], d[i + 1]), act())][:-1])

@case(E("tabular"), "periodic embedding of numbers with frequencies of sigma 10: neighbouring values become unrelated", "periodic coefficients")
def plr_sigma(planted):
    class P(nn.Module):
        def __init__(s): super().__init__(); s.c = nn.Parameter(torch.randn(6, 16) * (10. if planted else .2)); s.lin = nn.Parameter(torch.randn(6, 32, 12) * 32 ** -.5); s.b = nn.Parameter(torch.zeros(6, 12)); s.net = mlp(72, 96, 96, 1)
        def forward(s, x): v = 2 * math.pi * s.c * x[..., None]; e = F.relu(torch.einsum("nfk,fkd->nfd", torch.cat([v.cos(), v.sin()], -1), s.lin) + s.b); return s.net(e.flatten(1)).squeeze(-1)
    w = T(2, 6)
    def data(seed): x = T(seed, 128, 6); return x, torch.sin(1.5 * x[:, 0]) + x @ w * .3 + (x[:, 1] * x[:, 2]) * .4
    return dict(model=P, data=data, loss=mse, diag=MSE)

@case(E("survival"), "Cox loss takes the cumulative sum without sorting by time: the risk sets are random", "loss / risk set")
def cox_unsorted(planted):
    w = T(2, 12)
    def data(seed):
        g = gen(seed); x = torch.randn(128, 12, generator=g); t = -torch.rand(128, generator=g).log() / (x @ w * .7).exp(); c = -torch.rand(128, generator=g).log() * 3; return x, (torch.min(t, c), (t <= c).float())
    def cox(o, t):
        tm, ev = t; i = torch.arange(len(tm)) if planted else tm.argsort(descending=True); o, ev = o[i], ev[i]; return -((o - o.logcumsumexp(0)) * ev).sum() / ev.sum()
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.net = mlp(12, 64, 64, 1)
        def forward(s, x): return s.net(x).squeeze(-1)
    return dict(model=Net, data=data, loss=cox, diag={})

@case(E("ordinal regression"), "cut points all start at zero: the inner classes have probability 0, clamped, without gradient", "cutpoints")
def ordinal_cutpoints_equal(planted):
    class O(nn.Module):
        def __init__(s): super().__init__(); s.f = mlp(10, 64, 64, 1); s.cut = nn.Parameter(torch.zeros(5) if planted else torch.linspace(-2, 2, 5))
        def forward(s, x): c = (s.cut - s.f(x)).sigmoid(); c = torch.cat([torch.zeros_like(c[:, :1]), c, torch.ones_like(c[:, :1])], 1); return (c[:, 1:] - c[:, :-1]).clamp(min=1e-6).log()
    w = T(2, 10)
    def data(seed): x = T(seed, 96, 10); y = torch.tanh(x) @ w + .3 * T(seed + 1, 96); return x, torch.bucketize(y, torch.tensor([-2.2, -1., 0., 1., 2.2]))
    return dict(model=O, data=data, loss=lambda o, t: F.nll_loss(o, t), diag={})

@case(E("quantile regression"), "increments are summed over the batch (dim 0), not over the quantiles", "cumsum")
def quantile_cumsum_batch(planted):
    q = torch.linspace(.05, .95, 10)
    class Q(nn.Module):
        def __init__(s): super().__init__(); s.body = mlp(6, 64, 64); s.base, s.inc = nn.Linear(64, 1), nn.Linear(64, 10)
        def forward(s, x): h = s.body(x).relu(); return s.base(h) + torch.cumsum(F.softplus(s.inc(h) - 2), 0 if planted else 1)
    w, v = T(1, 6), T(3, 6)
    def data(seed): x = T(seed, 64, 6); return x, x @ w + torch.exp(x @ v * .3) * T(seed + 1, 64)
    def pin(o, t): e = t[:, None] - o; return torch.max(q * e, (q - 1) * e).mean()
    return dict(model=Q, data=data, loss=pin, diag={})

@case(E("count heads"), "softplus on the output and PoissonNLLLoss(log_input=True): the rate cannot fall below 1", "output softplus")
def poisson_double_link(planted):
    class P(nn.Module):
        def __init__(s): super().__init__(); s.net = mlp(10, 64, 64, 1)
        def forward(s, x): y = s.net(x).squeeze(-1); return F.softplus(y) if planted else y
    w = T(1, 10)
    def data(seed): x = T(seed, 128, 10); return x, torch.poisson(torch.exp(x @ w * .5 - 2.2).clamp(max=8), generator=gen(seed + 1))
    return dict(model=P, data=data, loss=lambda o, t: F.poisson_nll_loss(o, t), diag={})

@case(E("uncertainty (RBF heads)"), "length scale 0.1 (as for 2-D features) on 64 features: every kernel value underflows to 0", "length scale / centroids")
def duq_length_scale(planted):
    class D(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Linear(16, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 64), nn.BatchNorm1d(64)); s.W = nn.Parameter(torch.randn(64, 5, 64) * .05); s.register_buffer("m", torch.randn(64, 5) * .05); s.l = .1 if planted else 1.; s.sum = planted
        def forward(s, x): z = torch.einsum("ij,mnj->imn", s.f(x), s.W) ; d = (z - s.m) ** 2; return (-(d.sum(1) if planted else d.mean(1)) / (2 * s.l ** 2)).exp()
    W = T(2, 16, 5)
    def data(seed): x = T(seed, 96, 16); return x, F.one_hot((torch.tanh(x) @ W).argmax(1), 5).float()
    return dict(model=D, data=data, loss=lambda o, t: F.binary_cross_entropy(o.clamp(1e-6, 1 - 1e-6), t), diag={})

@case(E("multiple instance learning"), "attention softmax over its last dimension of size 1: every instance has weight 1", "attention softmax")
def mil_softmax_singleton(planted):
    class A(nn.Module):
        def __init__(s): super().__init__(); s.emb = mlp(20, 64, 48); s.V, s.U, s.w = nn.Linear(48, 32), nn.Linear(48, 32), nn.Linear(32, 1); s.c = nn.Linear(48, 4)
        def forward(s, x): h = s.emb(x).relu(); a = s.w(torch.tanh(s.V(h)) * s.U(h).sigmoid()); a = a.softmax(-1 if planted else 1); return s.c((a * h).sum(1))
    k, c = T(2, 20), T(3, 4, 20)
    def data(seed): g = gen(seed); y = torch.randint(0, 4, (32,), generator=g); x = torch.randn(32, 60, 20, generator=g) * 1.2; i = torch.randint(0, 60, (32,), generator=g); x[torch.arange(32), i] = k * 1.5 + c[y] + .3 * torch.randn(32, 20, generator=g); return x, y
    return dict(model=A, data=data, loss=ce, diag=CE)

@case(E("audio"), "power spectrogram goes in without the logarithm: a few bins are everything", "input")
def audio_no_log(planted):
    class A(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("win", torch.hann_window(64)); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.ReLU()); s.net = nn.Sequential(c(1, 24), c(24, 48), c(48, 48)); s.fc = nn.Linear(48 * 5, 4)
        def forward(s, x):
            p = torch.stft(x, 64, 32, window=s.win, return_complex=True).abs() ** 2
            if not planted: p = (torch.log(p + 1e-5) + 5) / 4
            return s.fc(s.net(p[:, None]).mean(-1).flatten(1))
    def data(seed):
        g = gen(seed); y = torch.randint(0, 4, (32,), generator=g); t = torch.arange(512.)[None]; amp = torch.exp(torch.randn(32, 1, generator=g) * 2); f = torch.tensor([.6, .9, 1.2, 1.5])[y][:, None]
        return amp * (torch.sin(.15 * t + 6 * torch.rand(32, 1, generator=g)) + .03 * torch.sin(f * t) + .003 * torch.randn(32, 512, generator=g)), y
    return dict(model=A, data=data, loss=ce, diag=CE)

@case(E("highway networks"), "gate and carry swapped while the bias stays at -2: the input is dropped at every layer", "gate")
def highway_swapped(planted):
    class L(nn.Module):
        def __init__(s, d): super().__init__(); s.h, s.t = nn.Linear(d, d), nn.Linear(d, d); nn.init.constant_(s.t.bias, -2.)
        def forward(s, x): t, h = s.t(x).sigmoid(), s.h(x).relu(); return t * x + (1 - t) * h if planted else t * h + (1 - t) * x
    class N(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(20, 64); s.l = nn.Sequential(*[L(64) for _ in range(16)]); s.out = nn.Linear(64, 5)
        def forward(s, x): return s.out(s.l(s.inp(x)))
    W, V = T(1, 20, 24), T(2, 24, 5)
    def data(seed): x = T(seed, 64, 20); return x, (torch.tanh(x @ W * .3) @ V).argmax(1)
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(E("sequence classification"), "the last position of the padded output is read, not the last valid one", "rnn output index")
def rnn_last_padded(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(20, 32, padding_idx=0); s.rnn = nn.LSTM(32, 64, batch_first=True); s.c = nn.Linear(64, 6)
        def forward(s, x, n): o = s.rnn(s.e(x))[0]; return s.c(o[:, -1] if planted else o[torch.arange(len(x)), n - 1])
    def data(seed):
        g = gen(seed); n = torch.randint(3, 12, (48,), generator=g); x = torch.randint(7, 20, (48, 60), generator=g); y = torch.randint(0, 6, (48,), generator=g); x[torch.arange(48), n - 2] = y + 1; return ((x * (torch.arange(60)[None] < n[:, None])), n), y
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(E("attention"), "(B, T, D) is viewed as (B, H, T, d) without the transpose: heads mix positions", "qkv view")
def mha_view_no_transpose(planted):
    class A(nn.Module):
        def __init__(s, d=64): super().__init__(); s.n, s.m = nn.LayerNorm(d), nn.LayerNorm(d); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.f = mlp(d, 2 * d, d, act=nn.GELU)
        def sp(s, x): n, t, d = x.shape; return x.view(n, 4, t, d // 4) if planted else x.view(n, t, 4, d // 4).transpose(1, 2)
        def forward(s, x): h = s.n(x); y = F.scaled_dot_product_attention(s.sp(s.q(h)), s.sp(s.k(h)), s.sp(s.v(h))); y = y.reshape(x.shape) if planted else y.transpose(1, 2).reshape(x.shape); x = x + s.o(y); return x + s.f(s.m(x))
    class N(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(24, 64); s.b = nn.Sequential(A(), A()); s.c = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 24)); s.p = nn.Parameter(torch.randn(12, 64))
        def forward(s, x): return s.c(s.b(s.e(x) + s.p))
    def data(seed): x = R(seed, 24, (48, 12)); return x, x.flip(1)
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(E("time features"), "raw unix time stamps go in as float32", "input")
def unix_timestamp(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = mlp(5 if planted else 6, 64, 64, 1)
        def forward(s, x, t):
            f = t.float()[:, None] if planted else torch.stack([torch.sin(2 * math.pi * (t % 86400) / 86400), torch.cos(2 * math.pi * (t % 86400) / 86400)], 1).float()
            return s.net(torch.cat([x, f], 1)).squeeze(-1)
    w = T(1, 4)
    def data(seed): x = T(seed, 96, 4); t = R(seed + 1, 3 * 10 ** 7, (96,)) + 1_700_000_000; h = 2 * math.pi * (t % 86400).float() / 86400; return (x, t), x @ w * .5 + torch.sin(h) + .5 * torch.cos(h) * x[:, 0]
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(E("hyperbolic embeddings"), "tangent vectors N(0, 1) of 32 dimensions go through the exponential map: all points lie on the border of the ball", "embedding")
def poincare_border(planted):
    class H(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(64, 32); nn.init.normal_(s.e.weight, std=1. if planted else .05); s.r, s.t = nn.Parameter(torch.tensor(2.)), nn.Parameter(torch.tensor(1.))
        def forward(s, i, j):
            def ex(v): n = v.norm(dim=-1, keepdim=True).clamp(min=1e-6); p = torch.tanh(n) * v / n; m = p.norm(dim=-1, keepdim=True); return torch.where(m > 1 - 1e-3, p / m * (1 - 1e-3), p)
            u, v = ex(s.e(i)), ex(s.e(j)); d = torch.acosh(1 + 2 * ((u - v) ** 2).sum(-1) / ((1 - (u ** 2).sum(-1)) * (1 - (v ** 2).sum(-1))) + 1e-6); return (s.r - d) / s.t
    def data(seed):
        i = R(seed, 64, (256,)); j = torch.where(R(seed + 2, 2, (256,)) > 0, i // 8 * 8 + R(seed + 1, 8, (256,)), R(seed + 3, 64, (256,))); j = torch.where(j == i, (i + 1) % 64, j); return (i, j), (i // 8 == j // 8).float()
    return dict(model=H, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case(E("spiking networks"), "default initialisation never reaches the threshold of 1: no neuron fires", "lif threshold / fc")
def snn_silent(planted):
    def spike(v): c = torch.clamp((v + .5), 0, 1); return c + ((v > 0).float() - c).detach()
    class S(nn.Module):
        def __init__(s):
            super().__init__(); s.f1, s.f2, s.out = nn.Linear(32, 96), nn.Linear(96, 96), nn.Linear(96, 5)
            if not planted:
                for l in (s.f1, s.f2): nn.init.normal_(l.weight, std=1.6 * l.in_features ** -.5)
        def forward(s, x):
            a = torch.zeros(len(x), 96); b = torch.zeros(len(x), 96); o = 0
            for t in range(8): a = .8 * a + s.f1(x[:, t]); p = spike(a - 1); a = a - p.detach(); b = .8 * b + s.f2(p); q = spike(b - 1); b = b - q.detach(); o = o + s.out(q)
            return o / 8
    W = T(2, 32, 5)
    def data(seed): r = torch.rand(64, 1, 32, generator=gen(seed)) * .5; return (torch.rand(64, 8, 32, generator=gen(seed + 1)) < r).float(), ((r[:, 0] - .25) @ W).argmax(1)
    return dict(model=S, data=data, loss=ce, diag=CE)

# ---- more kinds
@case(E("memory networks"), "no temporal encoding of the facts: first and last statement cannot be told apart", "memory embedding")
def memnet_no_time(planted):
    class Mn(nn.Module):
        def __init__(s):
            super().__init__(); s.A, s.C, s.B = nn.Embedding(16, 48), nn.Embedding(16, 48), nn.Embedding(8, 48); s.H = nn.Linear(48, 48); s.W = nn.Linear(48, 8)
            for e in (s.A, s.B, s.C): nn.init.normal_(e.weight, std=.3)
            if not planted: s.TA, s.TC = nn.Parameter(torch.randn(10, 48) * .3), nn.Parameter(torch.randn(10, 48) * .3)
        def forward(s, f, q):
            m, c, u = s.A(f).sum(2), s.C(f).sum(2), s.B(q)
            if not planted: m, c = m + s.TA, c + s.TC
            for _ in range(2): p = torch.einsum("nkd,nd->nk", m, u).softmax(-1); u = s.H(u) + torch.einsum("nk,nkd->nd", p, c)
            return s.W(u)
    def data(seed):
        who, pl, q = R(seed, 2, (96, 10)), R(seed + 1, 8, (96, 10)), R(seed + 2, 2, (96,)); who[:, 0] = 0; who[:, 1] = 1; last = torch.where(who == q[:, None], torch.arange(10), -1).argmax(1)
        return (torch.stack([who, 8 + pl], -1), q), pl[torch.arange(96), last]
    return dict(model=Mn, data=data, loss=ce, diag=CE)

@case(E("sequence labelling (CRF)"), "transition constraints are written [to, from] into a matrix read as [from, to]: the gold paths are forbidden", "transitions")
def crf_transposed(planted):
    class C(nn.Module):
        def __init__(s):
            super().__init__(); s.e = nn.Embedding(30, 32); s.rnn = nn.LSTM(32, 32, bidirectional=True, batch_first=True); s.fc = nn.Linear(64, 5); tr = torch.randn(5, 5) * .1      # O B1 I1 B2 I2
            ok = torch.ones(5, 5); ok[0, 2] = ok[0, 4] = ok[1, 4] = ok[2, 4] = ok[3, 2] = ok[4, 2] = 0; ok = ok.T if planted else ok; s.transitions = nn.Parameter(torch.where(ok > 0, tr, torch.tensor(-1e4)))
        def forward(s, x): return s.fc(s.rnn(s.e(x))[0]), s.transitions.expand(len(x), 5, 5)
    def nll(o, t):
        em, tr = o; tr = tr[0]; a = em[:, 0]; g = em[:, 0].gather(1, t[:, :1]).squeeze(1)
        for k in range(1, em.shape[1]): a = (a[:, :, None] + tr).logsumexp(1) + em[:, k]; g = g + em[:, k].gather(1, t[:, k:k + 1]).squeeze(1) + tr[t[:, k - 1], t[:, k]]
        return (a.logsumexp(1) - g).mean() / em.shape[1]
    def data(seed):
        g = gen(seed); x = torch.zeros(32, 12, dtype=torch.long); y = torch.zeros(32, 12, dtype=torch.long); r = torch.randint(0, 10, (32, 12), generator=g); c = torch.randint(0, 3, (32, 12), generator=g); u = torch.rand(32, 12, generator=g)
        prev = torch.zeros(32, dtype=torch.long)
        for k in range(12): cont = (prev > 0) & (u[:, k] < .5); lab = torch.where(cont, (prev + 1) // 2 * 2, torch.tensor([0, 1, 3])[c[:, k]]); y[:, k] = lab; x[:, k] = r[:, k] + torch.where(lab == 0, 0, torch.where(lab <= 2, 10, 20)); prev = lab
        return x, y
    return dict(model=C, data=data, loss=nll, diag={})

@case(E("time series (convolution)"), "Conv1d on (B, T, C) without the transpose, T == C: it slides over the features", "conv1 input axes")
def conv_axis_swap(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Conv1d(24, 48, 5, padding=2), nn.BatchNorm1d(48), nn.ReLU(), nn.Conv1d(48, 48, 5, padding=2), nn.BatchNorm1d(48), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(48, 5))
        def forward(s, x): return s.net(x if planted else x.transpose(1, 2))
    tp = T(1, 5, 5, 24)
    def data(seed):
        g = gen(seed); x = torch.randn(48, 24, 24, generator=g); y = torch.randint(0, 5, (48,), generator=g); p = torch.randint(0, 20, (48,), generator=g)
        for i in range(48): x[i, p[i]:p[i] + 5] += .9 * tp[y[i]]
        return x, y
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(E("graph recommenders"), "symmetric normalisation by the in-degree of both ends in a one-way user->item graph: all messages are 0", "norm / conv")
def bipartite_gcn_norm(planted):
    class G(nn.Module):
        def __init__(s): super().__init__(); s.user = mlp(8, 64, 32); s.item = mlp(8, 64, 32); s.conv = nn.Linear(32, 32); s.c = mlp(32, 64, 4)
        def forward(s, x, ei):
            n = len(x); src, dst = ei; h = torch.cat([s.user(x[:100]), s.item(x[100:])]); one = torch.ones(ei.shape[1]); di = torch.zeros(n).index_add(0, dst, one); do = di if planted else torch.zeros(n).index_add(0, src, one)
            iv = lambda d: torch.where(d > 0, d.clamp(min=1) ** -.5, torch.zeros_like(d)); w = iv(do)[src] * iv(di)[dst]; m = torch.zeros_like(h).index_add(0, dst, s.conv(h)[src] * w[:, None]); return s.c((h + m).relu())[100:]
    W = T(1, 8, 4)
    def data(seed):
        g = gen(seed); x = torch.randn(180, 8, generator=g); ei = torch.stack([torch.randint(0, 100, (320,), generator=g), torch.arange(80).repeat(4) + 100]); m = torch.zeros(180, 8).index_add(0, ei[1], x[ei[0]])[100:]; return (x, ei), (m @ W + .3 * x[100:] @ W.flip(1)).argmax(1)
    return dict(model=G, data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case(E("center-point detection"), "feature map is viewed as (B, HW, C) without the permute before gathering at the centres", "gather / view")
def centernet_gather(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()); s.body = nn.Sequential(c(2, 24), c(24, 32)); s.wh = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 4, 1))
        def forward(s, x, ind): f = s.wh(s.body(x)); n, c = f.shape[:2]; f = f.reshape(n, -1, c) if planted else f.permute(0, 2, 3, 1).reshape(n, -1, c); return f.gather(1, ind[..., None].expand(-1, -1, c))
    K = T(2, 4, 2, 5, 5) / 5
    def data(seed): x = T(seed, 16, 2, 16, 16); ind = R(seed + 1, 256, (16, 8)); f = F.conv2d(x, K, padding=2).flatten(2).transpose(1, 2); return (x, ind), f.gather(1, ind[..., None].expand(-1, -1, 4))
    return dict(model=N, data=data, loss=lambda o, t: F.l1_loss(o, t), diag={})

@case(E("text towers"), "end token found as the argmax of the ids, though it is not the largest id of this vocabulary", "pooling index")
def clip_eot_argmax(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.e = nn.Embedding(40, 64); s.p = nn.Parameter(torch.randn(16, 64) * .1); L = nn.TransformerEncoderLayer(64, 4, 128, dropout=0., batch_first=True, norm_first=True); s.t = nn.TransformerEncoder(L, 2, enable_nested_tensor=False); s.n = nn.LayerNorm(64); s.proj = nn.Linear(64, 32, bias=False); s.img = mlp(24, 64, 32); s.ls = nn.Parameter(torch.tensor(math.log(1 / .07)))
        def forward(s, i, v):
            m = torch.ones(16, 16).triu(1).bool(); h = s.n(s.t(s.e(i) + s.p, mask=m)); k = i.argmax(-1) if planted else (i == 2).int().argmax(-1); return F.normalize(s.img(v), dim=-1) @ F.normalize(s.proj(h[torch.arange(len(i)), k]), dim=-1).T * s.ls.exp()
    A = T(4, 40, 24) / 3
    def data(seed):
        i = R(seed, 36, (48, 16)) + 3; i[:, 0] = 1; n = R(seed + 1, 6, (48,)) + 9; pos = torch.arange(16)[None]; i = torch.where(pos == n[:, None], 2, torch.where(pos > n[:, None], 0, i)); return (i, (A[i] * ((pos > 0) & (pos < n[:, None]))[..., None]).sum(1)), torch.arange(48)
    return dict(model=N, data=data, loss=ce, diag={})

@case(E("masked autoencoders"), "unpatchify is a view, without the permutation of patch rows: pixels land elsewhere", "unpatchify")
def unpatchify_view(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Conv2d(1, 64, 4, 4); s.p = nn.Parameter(torch.randn(25, 64) * .1); L = nn.TransformerEncoderLayer(64, 4, 128, dropout=0., batch_first=True, norm_first=True); s.t = nn.TransformerEncoder(L, 2, enable_nested_tensor=False); s.o = nn.Linear(64, 16)
        def forward(s, x): y = s.o(s.t(s.e(x).flatten(2).transpose(1, 2) + s.p)); n = len(x); return y.reshape(n, 1, 20, 20) if planted else y.view(n, 5, 5, 4, 4).permute(0, 1, 3, 2, 4).reshape(n, 1, 20, 20)
    def data(seed): y = F.interpolate(T(seed, 32, 1, 10, 10), size=20, mode="bilinear"); return y + .3 * T(seed + 1, 32, 1, 20, 20), y
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(E("point-queried features"), "points are (row, column), grid_sample reads (x, y): sampled at the transposed place", "grid_sample")
def grid_xy_swap(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()); s.body = nn.Sequential(c(2, 24), c(24, 32)); s.h = mlp(32, 48, 5)
        def forward(s, x, p): f = s.body(x); g = p if planted else p.flip(-1); return s.h(F.grid_sample(f, g[:, None], align_corners=True)[:, :, 0].transpose(1, 2))
    K = T(2, 5, 2, 3, 3)
    def data(seed): x = T(seed, 16, 2, 16, 16); p = R(seed + 1, 16, (16, 24, 2)); y = F.conv2d(x, K, padding=1).argmax(1); return (x, p.float() / 7.5 - 1), y[torch.arange(16)[:, None], p[..., 0], p[..., 1]]
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(E("transformers"), "nn.TransformerEncoderLayer without batch_first on (B, T, D): attention runs across the batch", "batch_first")
def encoder_batch_first(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(12, 64); s.p = nn.Parameter(torch.randn(10, 64)); s.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, dropout=0., batch_first=not planted), 2, enable_nested_tensor=False); s.c = nn.Linear(64, 12)
        def forward(s, x): return s.c(s.t(s.e(x) + s.p))
    def data(seed): x = R(seed, 12, (32, 10)); return x, x.flip(1)
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)
