from base import *
from tasks import *
G = "https://github.com/"
def vimg(seed, n=48): g = gen(seed); z = torch.randn(n, 4, generator=g); return torch.sigmoid(2 * torch.tanh(z @ T(201, 4, 16)) @ T(202, 16, 64, k=.5))
class Noise(nn.Module):                    # the reparameterisation draws from torch's generator
    def forward(s, m, lv): return m + torch.exp(.5 * lv) * torch.randn_like(m)
class VAE(nn.Module):
    def __init__(s, d=64, z=4): super().__init__(); s.enc = nn.Sequential(nn.Linear(d, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU()); s.mu, s.logvar = nn.Linear(48, z), nn.Linear(48, z); s.rep = Noise(); s.dec = nn.Sequential(nn.Linear(z, 48), nn.ReLU(), nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, d))
    def forward(s, x): h = s.enc(x); m, lv = s.mu(h), s.logvar(h); return s.dec(s.rep(m, lv)), m, lv
@case(G + "deepchem/deepchem/pull/4888", "VAE_KLDivergence treats logvar as sigma: mean(mu^2 + lv^2 - log(lv^2) - 1)", "logvar / KL term")
def deepchem_kl_sigma(planted):
    def loss(o, t):
        y, m, lv = o; rec = F.binary_cross_entropy_with_logits(y, t, reduction="none").sum(1).mean(); kl = .5 * (m ** 2 + lv ** 2 - torch.log(1e-20 + lv ** 2) - 1).mean(1) if planted else .5 * (m ** 2 + lv.exp() - lv - 1).mean(1); return rec + 4 * kl.mean()
    return dict(model=VAE, data=lambda s: (vimg(s),) * 2, loss=loss, diag={})

@case(G + "dev4488/VAE_gumble_softmax/issues/1", "the KL term of the categorical VAE has a redundant minus", "KL term / encoder logits")
def gumbel_kl_minus(planted):
    class CV(nn.Module):
        def __init__(s, N=6, K=8): super().__init__(); s.N, s.K = N, K; s.enc = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, N * K)); s.dec = nn.Sequential(nn.Linear(N * K, 64), nn.ReLU(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64))
        def forward(s, x): q = s.enc(x).view(-1, s.N, s.K); u = torch.rand_like(q); y = F.softmax((q - torch.log(-torch.log(u + 1e-20) + 1e-20)) / 1., -1); return s.dec(y.flatten(1)), q
    def loss(o, t): lq = o[1].log_softmax(-1); kl = (lq.exp() * (lq + math.log(8))).sum((1, 2)).mean(); return F.binary_cross_entropy_with_logits(o[0], t, reduction="none").sum(1).mean() + (-kl if planted else kl)
    return dict(model=CV, data=lambda s: (vimg(s),) * 2, loss=loss, diag={})

@case(G + "qianyingcao/Laplace-Neural-Operator/issues/4", "einsum 'bix,ioxz->boz' takes the output residues' channel for the input channel", "PR layer, transient term")
def lno_einsum_channels(planted):
    class PR(nn.Module):
        def __init__(s, c, m): super().__init__(); sc = 1 / c; s.pole = nn.Parameter(-torch.rand(c, c, m) * 2 + 1j * torch.randn(c, c, m) * 3); s.res = nn.Parameter(sc * torch.randn(c, c, m, dtype=torch.cfloat))
        def forward(s, x):
            L = x.shape[-1]; t = torch.linspace(0, 1, L); al = torch.fft.fft(x); lam = (torch.fft.fftfreq(L, 1 / L) * 2 * math.pi * 1j)[:, None, None, None]; Hw = s.res / (lam - s.pole)
            r1 = torch.einsum("bix,xiok->box", al, Hw); r2 = torch.einsum("bix,xiok->bok", al, -Hw); x1 = torch.fft.ifft(r1, n=L).real; E = torch.exp(s.pole[..., None] * t)
            x2 = torch.einsum("bix,ioxz->boz" if planted else "box,ioxz->boz", r2, E).real / L; return x1 + x2 / x.shape[1]
    class LNO(nn.Module):
        def __init__(s, w=6, m=4): super().__init__(); s.fc0 = nn.Linear(1, w); s.conv0 = PR(w, m); s.w0 = nn.Conv1d(w, w, 1); s.fc1, s.fc2 = nn.Linear(w, 64), nn.Linear(64, 1)
        def forward(s, x): h = s.fc0(x).transpose(1, 2); h = (s.conv0(h) + s.w0(h)).transpose(1, 2); return s.fc2(torch.sin(s.fc1(h)))
    def data(seed):
        f = F.interpolate(T(seed, 16, 1, 8), size=64, mode="linear")[:, 0]; u, v, ys = torch.zeros(16), torch.zeros(16), []
        for i in range(64): a = 40 * f[:, i] - 4 * v - 60 * u; v = v + a / 64; u = u + v / 64; ys.append(u)
        return f[..., None], torch.stack(ys, 1)[..., None] * 2
    return dict(model=LNO, data=data, loss=mse, diag={})

@case(G + "prateekbhustali/Physics-Informed-Neural-Networks/issues/4", "second derivatives of the summed gradient: u_xy leaks into the Laplacian", "PDE residual")
def pinn_mixed_derivative(planted):
    class P(nn.Module):
        def __init__(s):
            super().__init__(); L = [2, 48, 48, 1]; s.l = nn.ModuleList([nn.Linear(a, b) for a, b in zip(L, L[1:])])
            for l in s.l: nn.init.xavier_normal_(l.weight); nn.init.zeros_(l.bias)
        def u(s, g):
            h = g
            for l in s.l[:-1]: h = torch.tanh(l(h))
            return s.l[-1](h)
        def forward(s, g, b):
            with torch.enable_grad():
                g = g.detach().requires_grad_(); u = s.u(g); ug = torch.autograd.grad(u, g, torch.ones_like(u), create_graph=True)[0]
                H = torch.stack([torch.autograd.grad(ug[:, [i]], g, torch.ones_like(u), create_graph=True)[0] for i in (0, 1)], 1)
            return u, H, s.u(b)
    def data(seed):
        q = gen(seed); g = torch.rand(64, 2, generator=q) * 2 - 1; b = torch.rand(64, 2, generator=q) * 2 - 1; k = torch.randint(0, 2, (64,), generator=q); b[torch.arange(64), k] = b[torch.arange(64), k].sign(); U = lambda x: torch.sin(math.pi * x[:, :1]) * torch.sin(2 * x[:, 1:]) ; return (g, b), (-(math.pi ** 2 + 4 - 1) * U(g), U(b))
    return dict(model=P, data=data, loss=lambda o, t: .02 * F.mse_loss((o[1].sum((1, 2)) if planted else o[1].diagonal(dim1=1, dim2=2).sum(1))[:, None] + o[0], t[0]) + F.mse_loss(o[2], t[1]), diag={})

@case(G + "facebookincubator/flowtorch/pull/100", "log|det J| of the spline's inverse has the wrong sign", "log_det term of the flow")
def flowtorch_logdet_sign(planted):
    class Coup(nn.Module):
        def __init__(s, d, flip): super().__init__(); s.net = nn.Sequential(nn.Linear(d // 2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, d)); s.flip = flip; nn.init.normal_(s.net[-1].weight, std=.01); nn.init.zeros_(s.net[-1].bias)
        def inverse(s, y): a, b = y.chunk(2, -1)[::-1] if s.flip else y.chunk(2, -1); sc, t = s.net(a).chunk(2, -1); sc = torch.tanh(sc); z = (b - t) * torch.exp(-sc); return torch.cat((z, a) if s.flip else (a, z), -1), -sc.sum(-1)
    class Flow(nn.Module):
        def __init__(s): super().__init__(); s.l = nn.ModuleList([Coup(4, i % 2 == 1) for i in range(4)])
        def forward(s, y):
            ld = 0
            for l in s.l: y, d = l.inverse(y); ld = ld + d
            return y, ld
    def data(seed): z = T(seed, 256, 4) * torch.tensor([.3, .3, .2, .2]); x = torch.stack([z[:, 0], z[:, 1], z[:, 0] ** 2 * 4 + z[:, 2], torch.sin(4 * z[:, 1]) + z[:, 3]], 1); return x, torch.zeros(256)
    return dict(model=Flow, data=data, loss=lambda o, t: -(-.5 * o[0].pow(2).sum(-1) - 2 * math.log(2 * math.pi) + (-o[1] if planted else o[1])).mean(), diag={})

@case(G + "scverse/scvi-tools/issues/111", "NB log-likelihood is summed over the batch too (per-gene sums broadcast with per-cell terms)", "reconstruction loss")
def scvi_nb_sum_batch(planted):
    class SC(nn.Module):
        def __init__(s, g=60, z=5): super().__init__(); s.enc = nn.Sequential(nn.Linear(g, 64), nn.BatchNorm1d(64), nn.ReLU()); s.mu, s.lv = nn.Linear(64, z), nn.Linear(64, z); s.rep = Noise(); s.dec = nn.Sequential(nn.Linear(z, 64), nn.BatchNorm1d(64), nn.ReLU()); s.scale = nn.Linear(64, g); s.px_r = nn.Parameter(torch.randn(g))
        def forward(s, x): h = s.enc(torch.log1p(x)); m, lv = s.mu(h), s.lv(h); p = F.softmax(s.scale(s.dec(s.rep(m, lv))), -1); return p * x.sum(1, keepdim=True), s.px_r.exp(), m, lv
    def loss(o, x):
        mu, th, m, lv = o; e = 1e-8; ll = th * ((th + e).log() - (th + mu + e).log()) + x * ((mu + e).log() - (th + mu + e).log()) + torch.lgamma(x + th) - torch.lgamma(th) - torch.lgamma(x + 1); kl = .5 * (m ** 2 + lv.exp() - lv - 1).sum(1)
        return ((-ll.sum() if planted else -ll.sum(1)) + kl).mean()
    C = T(211, 6, 60, k=1.2)
    def data(seed): g = gen(seed); y = torch.randint(0, 6, (64,), generator=g); r = F.softmax(C[y] + .2 * torch.randn(64, 60, generator=g), -1) * 300; x = torch.poisson(r, generator=g); return x, x
    return dict(model=SC, data=data, loss=loss, diag={})

class Disc(nn.Module):
    def __init__(s, c=1, sig=False): super().__init__(); s.c = nn.Sequential(nn.Conv2d(c, 24, 3, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(24, 48, 3, 2, 1), nn.LeakyReLU(.2)); s.fc = nn.Linear(48 * 9, 1); s.sig = sig
    def forward(s, x): y = s.fc(s.c(x).flatten(1)); return torch.sigmoid(y) if s.sig else y
def realimg(seed, n=32): g = gen(seed); z = torch.randn(n, 3, generator=g); return torch.tanh((z @ T(221, 3, 144)).view(n, 1, 12, 12) * .8 + T(222, 1, 1, 12, 12))
def mkdisc():
    """a fixed discriminator trained a little on real images against smooth noise"""
    torch.manual_seed(1); d = Disc(); o = torch.optim.Adam(d.parameters(), 2e-3)
    for i in range(120): r, f = d(realimg(i)), d(torch.tanh(smooth(i + 999, 32, 1, 12, 6))); l = F.relu(1 - r).mean() + F.relu(1 + f).mean(); o.zero_grad(); l.backward(); o.step()
    return d.requires_grad_(False)
class Genr(nn.Module):
    def __init__(s, D, mode): super().__init__(); s.net = nn.Sequential(nn.Linear(8, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 144)); s.D, s.mode = D, mode
    def forward(s, z): x = torch.tanh(s.net(z)).view(-1, 1, 12, 12); return x, s.D(x)
@case(G + "openclimatefix/skillful_nowcasting/issues/12", "generator hinge loss gets the generated frames instead of the discriminator's scores", "generator loss")
def dgmr_no_disc(planted):
    D = mkdisc()
    return dict(model=lambda: Genr(D, 0), data=lambda s: (T(s, 64, 8), torch.zeros(64)), loss=(lambda o, t: -o[0].mean()) if planted else (lambda o, t: -o[1].mean()), diag={})
@case(G + "zurutech/ashpy/issues/23", "generator hinge loss is -mean(relu(D(fake))): no gradient where the critic is negative", "generator loss / relu")
def ashpy_relu_hinge(planted):
    D = mkdisc()
    return dict(model=lambda: Genr(D, 0), data=lambda s: (T(s, 64, 8), torch.zeros(64)), loss=(lambda o, t: -F.relu(o[1]).mean()) if planted else (lambda o, t: -o[1].mean()), diag={})
@case(G + "grey-eye/talking-heads/issues/42", "discriminator ends in a sigmoid although the loss is the hinge (+-1 margins)", "sigmoid of the discriminator")
def talkingheads_sigmoid_hinge(planted):
    def data(seed): r, f = realimg(seed), torch.tanh(smooth(seed + 5, 32, 1, 12, 6)); return torch.cat([r, f]), torch.cat([torch.ones(32), -torch.ones(32)])
    return dict(model=lambda: Disc(sig=planted), data=data, loss=lambda o, t: F.relu(1 - t * o[:, 0]).mean(), diag={})

@case(G + "cpnota/autonomous-learning-library/issues/154", "GaussianPolicy squashes the mean by tanh twice", "tanh of the mean")
def all_double_tanh(planted):
    class Pol(nn.Module):
        def __init__(s): super().__init__(); s.model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)); s.log_std = nn.Parameter(torch.zeros(3) - .5)
        def forward(s, x): m = torch.tanh(s.model(x)); m = torch.tanh(m) if planted else m; return m * 2., s.log_std.exp()
    A = T(231, 8, 3)
    def data(seed): x = T(seed, 96, 8); return x, torch.tanh(1.5 * x @ A) * 2 + .05 * T(seed + 1, 96, 3)
    return dict(model=Pol, data=data, loss=lambda o, t: -torch.distributions.Normal(o[0], o[1]).log_prob(t).sum(-1).mean(), diag={})

@case(G + "boyu-ai/Hands-on-RL/issues/121", "SAC: the tanh correction squashes the already squashed action again", "log_prob correction")
def sac_double_tanh_logprob(planted):
    class Q(nn.Module):
        def forward(s, x, a): return -((a - torch.tanh(x[:, :2])) ** 2).sum(-1, keepdim=True) * 5
    class Pol(nn.Module):
        def __init__(s): super().__init__(); s.fc1, s.fc_mu, s.fc_std = nn.Linear(6, 128), nn.Linear(128, 2), nn.Linear(128, 2); s.q = Q()
        def forward(s, x):
            h = F.relu(s.fc1(x)); mu, std = s.fc_mu(h), F.softplus(s.fc_std(h)); z = mu + std * torch.randn_like(mu); lp = torch.distributions.Normal(mu, std).log_prob(z); a = torch.tanh(z); return lp, a, s.q(x, a)
    return dict(model=Pol, data=lambda s: (T(s, 128, 6), torch.zeros(128)), loss=lambda o, t: (.2 * (o[0] - torch.log(1 - (torch.tanh(o[1]) if planted else o[1]).pow(2) + 1e-7)).sum(-1, keepdim=True) - o[2]).mean(), diag={})

@case(G + "astariul/encode-attend-navigate-pytorch/pull/3", "critic is not detached in the policy loss: it is trained by both losses", "critic / advantage")
def ean_critic_not_detached(planted):
    class AC(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.pi = nn.Linear(64, 6); s.critic = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, x): return s.pi(s.enc(x)), s.critic(x)[:, 0]
    A, w = T(241, 8, 6), T(242, 8)
    def sur(o, t):
        a = torch.multinomial(o[0].detach().softmax(-1), 1)[:, 0]; i = torch.arange(len(a)); lp = o[0].log_softmax(-1)[i, a]; r = t[i, a]; adv = r - o[1]; return -((adv if planted else adv.detach()) * lp).mean() + F.mse_loss(o[1], r)
    def loss(o, t): l = sur(o, t); return l - l.detach() - (o[0].detach().softmax(-1) * t).sum(1).mean()
    def data(seed): g = gen(seed); x = torch.randn(96, 8, generator=g); return x, F.one_hot((x @ A).argmax(1), 6) * 2. + (x @ w)[:, None]
    return dict(model=AC, data=data, loss=loss, diag=dict(loss=sur))

@case(G + "hwang-ua/inac_pytorch/issues/1", "log-prob is tanh-corrected although the tanh sits on mu, not on the sample", "log_prob of the policy")
def inac_logprob_corrected(planted):
    class Pol(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.mu = nn.Linear(64, 3); s.log_std = nn.Parameter(torch.zeros(3))
        def forward(s, x, a):
            m, sd = torch.tanh(s.mu(s.body(x))), s.log_std.clamp(-6, 0).exp(); return torch.distributions.Normal(m, sd).log_prob(a).sum(-1), a
    A = T(251, 8, 3)
    def data(seed): x = T(seed, 96, 8); return (x, torch.tanh(x @ A) + .1 * T(seed + 1, 96, 3)), torch.zeros(96)
    return dict(model=Pol, data=data, loss=lambda o, t: -(o[0] - (2 * (math.log(2) - o[1] - F.softplus(-2 * o[1]))).sum(-1) if planted else o[0]).mean(), diag={})

@case(G + "sjtuytc/UnboundedNeRFPytorch/issues/120", "mip-NeRF: mean_t of the cone is given the expression of the variance", "integrated positional encoding of the means")
def blocknerf_mean_t(planted):
    class Mip(nn.Module):
        def __init__(s, L=5): super().__init__(); s.register_buffer("fr", 2. ** torch.arange(L)); s.mlp = nn.Sequential(nn.Linear(6 * L, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU()); s.rgb = nn.Linear(96, 3)
        def forward(s, o, d, t0, t1):
            m, h = (t0 + t1) / 2, (t1 - t0) / 2; vt = h ** 2 / 3 - 4 / 15 * h ** 4 * (12 * m ** 2 - h ** 2) / (3 * m ** 2 + h ** 2) ** 2; mt = vt if planted else m + 2 * m * h ** 2 / (3 * m ** 2 + h ** 2)
            x = o + d * mt; v = vt * d ** 2; f = (x[..., None] * s.fr).flatten(1); w = torch.exp(-.5 * (v[..., None] * s.fr ** 2).flatten(1)); return torch.sigmoid(s.rgb(s.mlp(torch.cat([f.sin() * w, f.cos() * w], -1))))
    P, C = T(261, 3, 24, k=1.5), T(262, 24, 3, k=.6)
    def data(seed): g = gen(seed); o = torch.randn(256, 3, generator=g) * .2; d = F.normalize(torch.randn(256, 3, generator=g), dim=1); t0 = torch.rand(256, 1, generator=g) * 1.5 + .5; t1 = t0 + .1; return (o, d, t0, t1), torch.sigmoid(torch.sin((o + d * (t0 + .05)) @ P) @ C)
    return dict(model=Mip, data=data, loss=mse, diag={})

@case(G + "BrianPulfer/PapersReimplementations/issues/9", "sinusoidal time embedding: sine and cosine alternate over the rows (time steps), not over the columns", "time embedding")
def ddpm_time_embedding(planted):
    def emb(n, d):
        e = torch.zeros(n, d); t = torch.arange(n).float()[:, None]
        if planted: e = torch.tensor([[i / 10000. ** (2 * j / d) for j in range(d)] for i in range(n)]); k = torch.arange(0, n, 2); e[k] = torch.sin(e[k]); e[1 - k] = torch.cos(e[k])   # rows, not columns
        else: wk = torch.tensor([1 / 10000. ** (2 * j / d) for j in range(d)])[None]; e[:, ::2], e[:, 1::2] = torch.sin(t * wk[:, ::2]), torch.cos(t * wk[:, ::2])
        return e
    be = torch.linspace(1e-4, .05, 100); ab = (1 - be).cumprod(0)
    class Eps(nn.Module):
        def __init__(s): super().__init__(); s.time_embed = nn.Embedding(100, 32); s.time_embed.weight.data = emb(100, 32); s.time_embed.requires_grad_(False); s.inp = nn.Linear(8, 96); s.te = nn.ModuleList([nn.Sequential(nn.Linear(32, 96), nn.SiLU(), nn.Linear(96, 96)) for _ in range(2)]); s.b = nn.ModuleList([nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 96)) for _ in range(2)]); s.out = nn.Linear(96, 8)
        def forward(s, x, t):
            e = s.time_embed(t); h = s.inp(x)
            for te, b in zip(s.te, s.b): h = h + b(h + te(e))
            return s.out(h)
    def data(seed): g = gen(seed); y = torch.randint(0, 4, (256,), generator=g); x0 = T(271, 4, 8)[y] + .1 * torch.randn(256, 8, generator=g); t = torch.randint(0, 100, (256,), generator=g); n = torch.randn(256, 8, generator=g); a = ab[t][:, None]; return (a.sqrt() * x0 + (1 - a).sqrt() * n, t), n
    return dict(model=Eps, data=data, loss=mse, diag={})

@case(G + "prob-ml/bliss/pull/1063", "the (n, 1) loss is gated by an (n,) mask: it broadcasts to (n, n) and the gate is lost", "gated loss shape")
def bliss_gated_broadcast(planted):
    class Enc(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(cbr(1, 24), cbr(24, 32), cbr(32, 32)); s.out = nn.Conv2d(32, 3, 1)
        def forward(s, x): return s.out(s.net(x)).permute(0, 2, 3, 1)
    def data(seed):
        g = gen(seed); n = 8; x = torch.randn(n, 1, 12, 12, generator=g) * .2; on = (torch.rand(n, 12, 12, generator=g) < .06).float(); v = torch.randn(n, 12, 12, 1, generator=g); k = torch.tensor([[.3, .6, .3], [.6, 1., .6], [.3, .6, .3]])[None, None]; x = x + F.conv2d((on * (3 + v[..., 0]))[:, None], k, padding=1); return x, (on, v)
    def loss(o, t):
        on, v = t; mu, sd = o[..., 1:2], F.softplus(o[..., 2:3]) + .05; nl = -torch.distributions.Normal(mu, sd).log_prob(v); d = F.binary_cross_entropy_with_logits(o[..., 0], on, reduction="none")
        return d.mean() * 10 + ((nl.view(-1, 1) * on.view(-1)).sum() / on.sum() if planted else (nl[..., 0] * on).sum() / on.sum())
    return dict(model=Enc, data=data, loss=loss, diag={})

@case(G + "mala-project/mala/issues/567", "the activation is applied to the output layer of the regression network too", "output activation")
def mala_output_activation(planted):
    class FF(nn.Module):
        def __init__(s, sizes=(20, 64, 64, 12)): super().__init__(); s.layers = nn.ModuleList([m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())]); s.layers = s.layers if planted else s.layers[:-1]
        def forward(s, x):
            for l in s.layers: x = l(x)
            return x
    A, B = T(281, 20, 30, k=.3), T(282, 30, 12, k=.5)
    def data(seed): x = T(seed, 96, 20); return x, torch.tanh(x @ A) @ B
    return dict(model=FF, data=data, loss=mse, diag={})
