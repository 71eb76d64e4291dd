from base import *
def E(a): return "experience: " + a
def mlp(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in (nn.Linear(d[i], d[i + 1]), act())][:-1])

@case(E("VAE"), "Normal(mu, std).sample() instead of rsample(): no reconstruction gradient to the encoder", "encoder / mu / sample")
def vae_sample(planted):
    class V(nn.Module):
        def __init__(s): super().__init__(); s.enc = mlp(32, 96, 96); s.mu, s.logvar = nn.Linear(96, 6), nn.Linear(96, 6); s.dec = mlp(6, 96, 96, 32)
        def forward(s, x):
            h = s.enc(x).relu(); mu, lv = s.mu(h), s.logvar(h); q = torch.distributions.Normal(mu, (.5 * lv).exp(), validate_args=False)
            return s.dec(q.sample() if planted else q.rsample()), mu, lv
    A = T(1, 6, 32)
    def data(seed): x = torch.tanh(T(seed, 64, 6) @ A * .6) + .05 * T(seed + 1, 64, 32); return x, x
    def elbo(o, t): r, mu, lv = o; return ((r - t) ** 2).sum(1).mean() + .1 * (-.5 * (1 + lv - mu ** 2 - lv.exp())).sum(1).mean()
    return dict(model=V, data=data, loss=elbo, diag={})

@case(E("GAN"), "DCGAN initialisation N(0, 0.02) also set on the BatchNorm weights (mean 0, not 1)", "bn weight")
def gan_bn_init(planted):
    class D(nn.Module):
        def __init__(s):
            super().__init__(); f = lambda i, o, bn: [nn.Conv2d(i, o, 4, 2, 1, bias=False)] + ([nn.BatchNorm2d(o)] if bn else []) + [nn.LeakyReLU(.2)]
            s.main = nn.Sequential(*f(3, 32, 0), *f(32, 64, 1), *f(64, 96, 1), *f(96, 128, 1), nn.Conv2d(128, 1, 2, bias=False)); s.apply(s.init)
        def init(s, m):
            if isinstance(m, nn.Conv2d): nn.init.normal_(m.weight, 0, .02)
            if isinstance(m, nn.BatchNorm2d): nn.init.normal_(m.weight, 0. if planted else 1., .02); nn.init.zeros_(m.bias)
        def forward(s, x): return s.main(x).flatten()
    K = T(4, 3, 3, 5, 5) / 8
    def data(seed):
        y = (torch.arange(32) % 2).float(); r = F.conv2d(T(seed, 32, 3, 36, 36), K); f = F.conv2d(T(seed + 1, 32, 3, 36, 36), K.flip(-1)); return torch.where(y.view(-1, 1, 1, 1) > 0, r, f), y
    return dict(model=D, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case(E("normalising flows"), "the coupling mask never alternates: half the dimensions are never transformed", "coupling mask")
def flow_same_mask(planted):
    class C(nn.Module):
        def __init__(s, m): super().__init__(); s.register_buffer("m", m); s.net = mlp(8, 64, 64, 16); nn.init.normal_(s.net[-1].weight, std=.01)
        def forward(s, x): l, t = s.net(x * s.m).chunk(2, 1); l = torch.tanh(l) * (1 - s.m); return x * l.exp() + t * (1 - s.m), l.sum(1)
    class R(nn.Module):
        def __init__(s): super().__init__(); m = (torch.arange(8) < 4).float(); s.c = nn.ModuleList([C(m if planted or i % 2 == 0 else 1 - m) for i in range(6)])
        def forward(s, x):
            ld = 0
            for c in s.c: x, l = c(x); ld = ld + l
            return x, ld
    A = T(2, 4, 4)
    def data(seed): z = T(seed, 128, 8); b = z[:, 4:] * .2 + torch.sin(z[:, :4] @ A); a = z[:, :4] * 3.; return torch.cat([a, b], 1), torch.zeros(128)
    return dict(model=R, data=data, loss=lambda o, t: (.5 * (o[0] ** 2).sum(1) - o[1]).mean(), diag={})

@case(E("conditioning (FiLM)"), "FiLM scales by gamma, not by 1 + gamma, and its layer starts at zero: everything after it is dead", "film")
def film_no_one(planted):
    class B(nn.Module):
        def __init__(s, d, c): super().__init__(); s.lin, s.n = nn.Linear(d, d), nn.LayerNorm(d, elementwise_affine=False); s.film = nn.Linear(c, 2 * d); nn.init.zeros_(s.film.weight); nn.init.zeros_(s.film.bias)
        def forward(s, x, c): g, b = s.film(c).chunk(2, -1); h = s.n(s.lin(x)); return F.relu(h * (g if planted else 1 + g) + b)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(16, 64); s.cond = nn.Sequential(nn.Embedding(4, 32), nn.Linear(32, 32), nn.SiLU()); s.b = nn.ModuleList([B(64, 32) for _ in range(3)]); s.out = nn.Linear(64, 5)
        def forward(s, x, c):
            c = s.cond(c); x = s.inp(x)
            for b in s.b: x = b(x, c)
            return s.out(x)
    W = T(3, 4, 16, 5)
    def data(seed): x, c = T(seed, 64, 16), R(seed + 1, 4, (64,)); return (x, c), torch.einsum("ni,nio->no", x, W[c]).argmax(1)
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(E("diffusion transformers"), "adaLN-Zero gate is zero and the branch's output layer is zero as well: the product never moves", "gate / proj")
def dit_gate_and_proj_zero(planted):
    class B(nn.Module):
        def __init__(s, d):
            super().__init__(); s.n1, s.n2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False); s.attn = nn.MultiheadAttention(d, 4, batch_first=True); s.fc1, s.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d); s.ada = nn.Linear(d, 6 * d)
            nn.init.zeros_(s.ada.weight); nn.init.zeros_(s.ada.bias)
            if planted:
                for l in (s.attn.out_proj, s.fc2): nn.init.zeros_(l.weight); nn.init.zeros_(l.bias)
        def forward(s, x, c):
            a, b, g, a2, b2, g2 = s.ada(c)[:, None].chunk(6, -1); h = s.n1(x) * (1 + a) + b; x = x + g * s.attn(h, h, h, need_weights=False)[0]
            return x + g2 * s.fc2(F.gelu(s.fc1(s.n2(x) * (1 + a2) + b2)))
    class DiT(nn.Module):
        def __init__(s, d=64): super().__init__(); s.inp = nn.Linear(8, d); s.pos = nn.Parameter(torch.randn(9, d) * .3); s.t = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU()); s.b = nn.ModuleList([B(d), B(d)]); s.n = nn.LayerNorm(d); s.out = nn.Linear(d, 8)
        def forward(s, x, t):
            f = t[:, None] * torch.logspace(0, 2, 8); c = s.t(torch.cat([f.sin(), f.cos()], 1)); x = s.inp(x) + s.pos
            for b in s.b: x = b(x, c)
            return s.out(s.n(x))
    P = T(5, 9, 8)
    def data(seed):
        g = gen(seed); t = torch.rand(32, generator=g); z = torch.randn(32, 1, 8, generator=g); x0 = z * P.sign(); e = torch.randn(32, 9, 8, generator=g); w = t[:, None, None]; return ((1 - w) * x0 + w * e, t), e - x0
    return dict(model=DiT, data=data, loss=mse, diag=MSE)

@case(E("autoregressive (MADE)"), "strict inequality in the hidden masks as well: the inputs fade out layer by layer", "masks")
def made_strict(planted):
    class ML(nn.Linear):
        def __init__(s, i, o, mk): super().__init__(i, o); s.register_buffer("mask", mk.float())
        def forward(s, x): return F.linear(x, s.weight * s.mask, s.bias)
    class MADE(nn.Module):
        def __init__(s, D=8, h=84):
            super().__init__(); di = torch.arange(1, D + 1); dh = torch.arange(h) % (D - 1) + 1; c = (lambda o, i: o[:, None] > i[None]) if planted else (lambda o, i: o[:, None] >= i[None])
            s.net = nn.Sequential(ML(D, h, c(dh, di)), nn.ReLU(), ML(h, h, c(dh, dh)), nn.ReLU(), ML(h, h, c(dh, dh)), nn.ReLU(), ML(h, D, di[:, None] > dh[None]))
        def forward(s, x): return s.net(x)
    def data(seed):
        g = gen(seed); x = torch.zeros(128, 8); x[:, 0] = (torch.rand(128, generator=g) < .5).float(); u = (torch.rand(128, 8, generator=g) < .06).float()
        for i in range(1, 8): x[:, i] = (x[:, i - 1] + (i % 2) + u[:, i]) % 2
        return x, x
    return dict(model=MADE, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case(E("VQ-VAE"), "codebook is an nn.Embedding as initialised, N(0, 1): far from the codes, all take the same entry", "codebook")
def vq_codebook_default(planted):
    class VQ(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = mlp(12, 64, 64, 32); s.dec = mlp(32, 64, 64, 12); s.codebook = nn.Embedding(64, 32)
        def forward(s, x):
            z = s.enc(x); c = s.codebook.weight; i = (z.pow(2).sum(-1, keepdim=True) - 2 * z @ c.T + c.pow(2).sum(-1)).argmin(-1); q = s.codebook(i)
            l = F.mse_loss(q, z.detach()) + .25 * F.mse_loss(z, q.detach()); return s.dec(z + (q - z).detach()), l
    tp = T(2, 10, 12)
    def model():
        m = VQ()
        if not planted: m.codebook.weight.data.copy_(m.enc(data(999)[0]).detach().flatten(0, 1)[:64])   # from the encoder's first codes
        return m
    def data(seed): x = tp[R(seed, 10, (32, 8))] + .1 * T(seed + 1, 32, 8, 12); return x, x
    return dict(model=model, data=data, loss=lambda o, t: F.mse_loss(o[0], t) + o[1], diag={})

@case(E("policy gradient (PPO)"), "old log-probabilities recomputed by the current policy without detach: the ratio is constantly 1", "ratio / policy")
def ppo_old_same(planted):
    class P(nn.Module):
        def __init__(s): super().__init__(); s.pi = mlp(8, 64, 64, 4, act=nn.Tanh)
        def forward(s, x, a, old):
            lp = s.pi(x).log_softmax(-1).gather(1, a[:, None]).squeeze(1)
            if planted: old = s.pi(x).log_softmax(-1).gather(1, a[:, None]).squeeze(1)
            return (lp - old).exp()
    W = T(6, 8, 4)
    def data(seed): x, a = T(seed, 128, 8), R(seed + 1, 4, (128,)); q = torch.tanh(x @ W); adv = q - q.mean(1, keepdim=True); return (x, a, torch.full((128,), -math.log(4))), adv.gather(1, a[:, None]).squeeze(1)
    return dict(model=P, data=data, loss=lambda r, adv: -torch.min(r * adv, r.clamp(.5, 2.) * adv).mean(), diag={})

@case(E("value learning (NoisyNet)"), "sigma is set to 0.5 and not to 0.5/sqrt(fan-in): noise drowns the signal", "weight_sigma")
def noisy_sigma(planted):
    class NL(nn.Module):
        def __init__(s, i, o):
            super().__init__(); b = i ** -.5; sg = .5 if planted else .5 * b; s.weight_mu = nn.Parameter(torch.empty(o, i).uniform_(-b, b)); s.bias_mu = nn.Parameter(torch.empty(o).uniform_(-b, b)); s.weight_sigma, s.bias_sigma = nn.Parameter(torch.full((o, i), sg)), nn.Parameter(torch.full((o,), sg))
        def forward(s, x):
            f = lambda n: (lambda e: e.sign() * e.abs().sqrt())(torch.randn(n)); a, b = f(s.weight_mu.shape[1]), f(s.weight_mu.shape[0])
            return F.linear(x, s.weight_mu + s.weight_sigma * b[:, None] * a, s.bias_mu + s.bias_sigma * b)
    class Q(nn.Module):
        def __init__(s): super().__init__(); s.body = mlp(8, 64, 64); s.n1, s.n2 = NL(64, 64), NL(64, 4)
        def forward(s, x): return s.n2(s.n1(s.body(x).relu()).relu())
    W, V = T(6, 8, 16), T(7, 16, 4)
    def data(seed): x = T(seed, 64, 8); return x, torch.tanh(x @ W * .5) @ V * .5
    return dict(model=Q, data=data, loss=lambda o, t: F.smooth_l1_loss(o, t), diag={})

@case(E("world models"), "the recurrent cell gets the initial state at every step, not the last one", "gru hidden state")
def rssm_state_reset(planted):
    class W(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(6, 48); s.cell = nn.GRUCell(48, 64); s.post = nn.Linear(64, 16); s.dec = mlp(80, 64, 4)
        def forward(s, x):
            h0 = torch.zeros(len(x), 64); h = h0; out = []
            for t in range(x.shape[1]): e = F.elu(s.inp(x[:, t])); h = s.cell(e, h0 if planted else h); out.append(s.dec(torch.cat([h, torch.tanh(s.post(h))], -1)))
            return torch.stack(out, 1)
    A = T(3, 6, 4)
    def data(seed): x = T(seed, 32, 12, 6, k=.5); return x, torch.tanh(x.cumsum(1) @ A * .4)
    return dict(model=W, data=data, loss=mse, diag=MSE)

@case(E("few-shot learning"), "support features are viewed as (shot, way) though they are ordered (way, shot)", "prototypes")
def proto_view_order(planted):
    class P(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(24, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 32))
        def forward(s, sup, qry):
            n = len(sup); z = s.net(torch.cat([sup.flatten(0, 1), qry.flatten(0, 1)])); a, q = z[:n * 20].view(n, 20, -1), z[n * 20:].view(n, 10, -1)
            p = a.view(n, 4, 5, -1).mean(1) if planted else a.view(n, 5, 4, -1).mean(2); return -torch.cdist(q, p) ** 2 / 4
    A = T(2, 8, 24)
    def data(seed):
        g = gen(seed); c = torch.randn(8, 5, 8, generator=g); N = T(3, 6, 24) * 1.; f = lambda k: torch.tanh((c[:, :, None] + .2 * torch.randn(8, 5, k, 8, generator=g)) @ A * .5 + torch.randn(8, 5, k, 6, generator=g) @ N).flatten(1, 2)
        return (f(4), f(2)), torch.arange(5).repeat_interleave(2).expand(8, 10)
    return dict(model=P, data=data, loss=ceseq, diag=SEQ)

@case(E("hypernetworks"), "generated weights are used as they come, without 1/sqrt(fan-in)", "hyper / generated weights")
def hypernet_scale(planted):
    class H(nn.Module):
        def __init__(s, z=16, h=64): super().__init__(); s.code = nn.Embedding(8, z); s.g = nn.ModuleList([nn.Linear(z, a * b) for a, b in ((8, h), (h, h), (h, h), (h, 2))]); s.d = (8, h, h, h, 2)
        def forward(s, x, k):
            c = s.code(k)
            for i, g in enumerate(s.g):
                w = g(c).view(-1, s.d[i + 1], s.d[i]); w = w if planted else w / s.d[i] ** .5; x = torch.einsum("noi,ni->no", w, x); x = x.relu() if i < 3 else x
            return x
    W = T(3, 8, 8, 2)
    def data(seed): x, k = T(seed, 64, 8), R(seed + 1, 8, (64,)); return (x, k), torch.tanh(torch.einsum("ni,nio->no", x, W[k]) * .4)
    return dict(model=H, data=data, loss=mse, diag=MSE)

@case(E("meta-learning (MAML)"), "the query loss is computed with the slow weights, the adapted ones are never used", "inner loop / fast weights")
def maml_slow_weights(planted):
    class Mm(nn.Module):
        def __init__(s): super().__init__(); s.body = mlp(4, 48, 48); s.w, s.b = nn.Parameter(torch.randn(1, 48) * .1), nn.Parameter(torch.zeros(1)); s.alpha = nn.Parameter(torch.tensor(.5))
        def forward(s, xs, ys, xq):
            hs, hq = s.body(xs).relu(), s.body(xq).relu(); n = len(xs); w, b = s.w.expand(n, -1), s.b.expand(n)
            for _ in range(3): e = torch.einsum("nkh,nh->nk", hs, w) + b[:, None] - ys; w2 = w - s.alpha * torch.einsum("nk,nkh->nh", e, hs) / e.shape[1]; b2 = b - s.alpha * e.mean(1); w, b = w2, b2
            return torch.einsum("nkh,nh->nk", hq, s.w.expand(n, -1) if planted else w) + (s.b if planted else b[:, None])
    def data(seed): g = gen(seed); A = torch.randn(32, 4, generator=g); xs, xq = torch.randn(32, 10, 4, generator=g), torch.randn(32, 10, 4, generator=g); f = lambda x: torch.einsum("nki,ni->nk", x, A) * .5; return (xs, f(xs), xq), f(xq)
    return dict(model=Mm, data=data, loss=mse, diag=MSE)

@case(E("conditional generators"), "the class number itself is concatenated to the noise, not an embedding of it", "label input")
def cgan_label_scalar(planted):
    class G(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Linear(17 if planted else 48, 128), nn.LeakyReLU(.2), nn.Linear(128, 128), nn.BatchNorm1d(128), nn.LeakyReLU(.2), nn.Linear(128, 40), nn.Tanh())
            if not planted: s.emb = nn.Embedding(30, 32)
        def forward(s, z, y): return s.net(torch.cat([z, y[:, None].float() if planted else s.emb(y)], 1))
    tp, A = torch.tanh(T(1, 30, 40)), T(2, 16, 40)
    def data(seed): z, y = T(seed, 64, 16), R(seed + 1, 30, (64,)); return (z, y), torch.tanh(tp[y] + .05 * z @ A)
    return dict(model=G, data=data, loss=mse, diag=MSE)
