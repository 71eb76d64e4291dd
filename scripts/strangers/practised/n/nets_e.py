from base import *
from nets_a import Block, sincos, MHA, LM

class LinAttn(nn.Module):
    def __init__(s, d, h, how=None): super().__init__(); s.h, s.dk, s.how = h, d // h, how; s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4))
    def forward(s, x):
        B, T_, d = x.shape; q, k, v = (f(x).view(B, T_, s.h, s.dk) for f in (s.q, s.k, s.v)); q, k = F.elu(q) + 1, F.elu(k) + 1
        ctx = torch.einsum("bthk,bthv->bthkv", k, v).cumsum(1); y = torch.einsum("bthk,bthkv->bthv", q, ctx)
        z = (q * k.cumsum(2 if s.how == "heads" else 1)).sum(-1, keepdim=True)
        return s.o((y * z if s.how == "noinv" else y / (z + 1e-6)).reshape(B, T_, d))

class LinNet(nn.Module):
    def __init__(s, how, T_=16, L=2, d=64):
        super().__init__(); s.emb = nn.Embedding(12, d); nn.init.normal_(s.emb.weight, std=.5); s.register_buffer("pe", sincos(T_, d)); s.att = nn.ModuleList(LinAttn(d, 4, how) for _ in range(L)); s.n1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(L)); s.n2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(L)); s.ff = nn.ModuleList(nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(L)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 6)
    def forward(s, x):
        z = s.emb(x) + s.pe[:x.shape[1]]
        for a, n, m, f in zip(s.att, s.n1, s.n2, s.ff): z = z + a(n(z)); z = z + f(m(z))
        return s.head(s.norm(z))
def cummode(s):                       # per position: which of six groups has the largest weighted count so far
    x = R(s, 12, (32, 16)); w = T(5, 12, 6); return x, (w[x].cumsum(1)).argmax(-1)

@case("https://github.com/lucidrains/performer-pytorch/issues/40", "the normaliser of linear attention multiplies: 1 / is missing", "attention")
def performer_noinv(planted): return dict(model=lambda: LinNet("noinv" if planted else None), data=cummode, loss=ceseq, diag=SEQ)

@case("https://github.com/fla-org/flash-linear-attention/pull/594", "the normaliser sums the keys over the heads instead of time", "attention")
def fla_cumsum(planted): return dict(model=lambda: LinNet("heads" if planted else None), data=cummode, loss=ceseq, diag=SEQ)

@case("https://github.com/Amshaker/SwiftFormer/issues/2", "softmax over the last dimension of (B, N, 1): additive attention weights are all one", "w_g / attention")
def swiftformer_softmax(planted):
    class EAA(nn.Module):
        def __init__(s, d): super().__init__(); s.to_query, s.to_key = nn.Linear(d, d), nn.Linear(d, d); s.w_g = nn.Parameter(torch.randn(d, 1)); s.proj = nn.Linear(d, d); s.final = nn.Linear(d, d); s.sc = d ** -.5
        def forward(s, x):
            q, k = F.normalize(s.to_query(x), dim=-1), F.normalize(s.to_key(x), dim=-1); A = q @ s.w_g * s.sc
            A = A.softmax(-1) if planted else F.normalize(A, dim=1); G = (A * q).sum(1, keepdim=True); return s.final(s.proj(G * k) + q)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = nn.Conv2d(3, 48, 4, 4); s.n1, s.n2 = nn.LayerNorm(48), nn.LayerNorm(48); s.a1, s.a2 = EAA(48), EAA(48); s.ff = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)); s.head = nn.Linear(48, 4)
        def forward(s, x): z = s.stem(x).flatten(2).transpose(1, 2); z = z + s.a1(s.n1(z)); z = z + s.ff(z); z = z + s.a2(s.n2(z)); return s.head(z.mean(1))
    P = T(9, 4, 3, 4, 4)
    def data(s):
        y = R(s, 4, (32,)); x = T(s + 1, 32, 3, 16, 16) * .7; p = torch.randint(0, 4, (32, 2), generator=gen(s + 2)) * 4
        for i in range(32): x[i, :, p[i, 0]:p[i, 0] + 4, p[i, 1]:p[i, 1] + 4] += 1.5 * P[y[i]]
        return x, y
    return dict(model=Net, data=data, loss=ce, diag=CE)

@case("https://github.com/MrSyee/pg-is-all-you-need/issues/37", "the entropy term of A2C has the wrong sign: entropy is minimised", "loss")
def pg_entropysign(planted):
    class Actor(nn.Module):
        def __init__(s): super().__init__(); s.h = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.mu, s.ls = nn.Linear(64, 2), nn.Linear(64, 2)
        def forward(s, x): h = s.h(x); return torch.cat([torch.tanh(s.mu(h)) * 2, F.softplus(s.ls(h)) + 1e-2], 1)
    W = T(1, 6, 2) * .6
    def data(s): x = T(s, 128, 6); a = T(s + 1, 128, 2) * 1.2; r = -((a - torch.tanh(x @ W)) ** 2).sum(1); return x, (a, ((r - r.mean()) / r.std()).clamp(min=0))
    def loss(o, t):
        a, adv = t; d = torch.distributions.Normal(*o.chunk(2, 1)); lp = d.log_prob(a).sum(1); ent = -lp.detach() * 0 + d.entropy().sum(1)
        return (-lp * adv).mean() - (-1 if planted else 1) * .3 * ent.mean()
    return dict(model=Actor, data=data, loss=loss)

@case("https://github.com/kornia/kornia/issues/4007", "acos clamped to [-1, 1] in the quaternion logarithm: NaN gradient at the identity, where it starts", "head / loss")
def kornia_acos(planted):
    class Pose(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.head = nn.Linear(64, 4); nn.init.zeros_(s.head.weight)
            with torch.no_grad(): s.head.bias.copy_(torch.tensor([1., 0, 0, 0]))
        def forward(s, x):
            q = F.normalize(s.head(s.net(x)), dim=-1); w, v = q[:, :1], q[:, 1:]
            if planted: n = v.norm(dim=-1, keepdim=True).clamp(min=1e-8); return v * torch.acos(w.clamp(-1, 1)) / n
            n2 = (v * v).sum(-1, keepdim=True); sm = n2 < 1e-10; n = torch.where(sm, torch.ones_like(n2), n2).sqrt(); return torch.where(sm, v, v * torch.atan2(n, w) / n)
    C = T(3, 3, 3)
    def data(s):
        r = T(s, 64, 3) * .4; th = r.norm(dim=1)[:, None, None] + 1e-9; K = torch.zeros(64, 3, 3); a = r / th[:, 0]
        K[:, 0, 1], K[:, 0, 2], K[:, 1, 0], K[:, 1, 2], K[:, 2, 0], K[:, 2, 1] = -a[:, 2], a[:, 1], a[:, 2], -a[:, 0], -a[:, 1], a[:, 0]
        Rm = torch.eye(3) + th.sin() * K + (1 - th.cos()) * K @ K; return (Rm @ C).flatten(1), r / 2
    return dict(model=Pose, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/chemprop/chemprop/pull/87", "atom vectors averaged, not summed, for a property which grows with the molecule", "readout")
def chemprop_mean(planted):
    class MPN(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(6, 64); s.h = nn.Linear(64, 64); s.o = nn.Linear(70, 64); s.ffn = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, x, A, m):
            h0 = torch.relu(s.inp(x)); h = h0
            for _ in range(2): h = torch.relu(h0 + s.h(A @ h))
            v = torch.relu(s.o(torch.cat([x, A @ h], -1))) * m[..., None]; return s.ffn(v.sum(1) / (m.sum(1, keepdim=True) if planted else 12.))
    e = T(2, 6, 1)
    def data(s):
        n = torch.randint(4, 21, (32,), generator=gen(s)); m = (torch.arange(20)[None] < n[:, None]).float(); x = F.one_hot(R(s + 1, 6, (32, 20)), 6).float() * m[..., None]
        A = torch.zeros(32, 20, 20); i = torch.arange(19); A[:, i, i + 1] = 1; A = (A + A.transpose(1, 2)) * m[:, None] * m[..., None]; return (x, A, m), ((x @ e)[..., 0].sum(1, keepdim=True) + .5 * n[:, None] - 6) / 4
    return dict(model=MPN, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/speechbrain/speechbrain/pull/184", "square root of a spectral magnitude which is exactly zero: NaN gradients", "magnitude / loss")
def speechbrain_sqrt(planted):
    class Enh(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Conv1d(1, 32, 9, padding=4), nn.ReLU(), nn.Conv1d(32, 32, 9, padding=4), nn.ReLU(), nn.Conv1d(32, 1, 9, padding=4)); s.register_buffer("w", torch.hann_window(32))
        def forward(s, x, vad): y = (s.net(x)[:, 0]) * vad; z = torch.view_as_real(torch.stft(y, 32, 16, window=s.w, return_complex=True)); p = z.pow(2).sum(-1); return p.sqrt() if planted else (p + 1e-8).sqrt()
    w = torch.hann_window(32)
    def data(s):
        t = torch.arange(256.) / 256; f = torch.rand(16, 1, generator=gen(s)) * 60 + 5; vad = torch.ones(16, 256); vad[:, 160:] = 0; c = torch.sin(6.28 * f * t) * vad
        return ((c + T(s + 1, 16, 256) * .4)[:, None], vad), torch.stft(c, 32, 16, window=w, return_complex=True).abs()
    return dict(model=Enh, data=data, loss=lambda o, t: F.l1_loss(o, t))

@case("https://github.com/orybkin/sigma-vae-pytorch/pull/12", "squared errors averaged over the pixels while the KL is summed: posterior collapse", "loss")
def sigmavae_mean(planted):
    class VAE(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(144, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()); s.mu, s.lv = nn.Linear(64, 8), nn.Linear(64, 8); s.dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 144))
        def forward(s, x): h = s.enc(x); mu, lv = s.mu(h), s.lv(h); return torch.cat([s.dec(mu + torch.randn_like(mu) * (lv / 2).exp()), mu, lv], 1)
    B = T(3, 4, 144)
    def data(s): x = torch.tanh(T(s, 64, 4) @ B * .7); return x, x
    def loss(o, t):
        r, mu, lv = o.split([144, 8, 8], 1); kl = -.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean(); rec = F.mse_loss(r, t) if planted else ((r - t) ** 2).sum(1).mean(); return rec + kl
    return dict(model=VAE, data=data, loss=loss)

@case("https://github.com/fabio-deep/Distributed-Pytorch-Boilerplate/issues/1", "ReZero gate on the skip instead of the branch: x = alpha * x + F(x) with alpha 0", "alpha")
def rezero_skip(planted):
    class Blk(nn.Module):
        def __init__(s, d): super().__init__(); s.f = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)); s.alpha = nn.Parameter(torch.zeros(1))
        def forward(s, x): return s.alpha * x + s.f(x) if planted else x + s.alpha * s.f(x)
    def model(): return nn.Sequential(nn.Linear(12, 64), *[Blk(64) for _ in range(10)], nn.Linear(64, 4))
    W = T(1, 12, 4)
    def data(s): x = T(s, 64, 12); return x, (torch.tanh(x) @ W).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/jakeret/tf_unet/issues/7", "the crop of the skip connections lets no gradient through", "skip")
def tfunet_nograd(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU()); s.d1, s.d2, s.d3 = c(1, 16), c(16, 32), c(32, 32); s.up2, s.u2 = nn.ConvTranspose2d(32, 32, 2, 2), c(64, 16); s.up1, s.u1 = nn.ConvTranspose2d(16, 16, 2, 2), c(32, 16); s.out = nn.Conv2d(16, 2, 1)
        def crop(s, a): return a.detach() if planted else a
        def forward(s, x):
            a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); c = s.d3(F.max_pool2d(b, 2)); u = s.u2(torch.cat([s.crop(b), s.up2(c)], 1)); return s.out(s.u1(torch.cat([s.crop(a), s.up1(u)], 1)))
    def data(s): w = T(s, 8, 1, 24, 24); v = F.avg_pool2d(w, 5, 1, 2) * 5; return v + T(s + 1, 8, 1, 24, 24) * .5, (v[:, 0] > .8).long()
    return dict(model=Net, data=data, loss=ce, diag=CE)

@case("https://github.com/tensorforce/tensorforce/pull/111", "output_keep_prob = dropout: 95 % of the LSTM's outputs dropped", "dropout")
def tensorforce_keep(planted):
    class Pol(nn.Module):
        def __init__(s): super().__init__(); s.fc = nn.Linear(6, 32); s.lstm = nn.LSTM(32, 48, batch_first=True); s.drop = nn.Dropout(.95 if planted else .05); s.out = nn.Linear(48, 4)
        def forward(s, x): return s.out(s.drop(s.lstm(torch.tanh(s.fc(x)))[0]))
    W = T(1, 6, 4)
    def data(s): x = T(s, 24, 10, 6); return x, ((x + torch.cat([x[:, :1], x[:, :-1]], 1)) @ W).argmax(-1)
    return dict(model=Pol, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/KanishJebaMathewM/Truxify/pull/11885", "actor loss q.mean() without the minus: the return is minimised", "loss")
def truxify_sign(planted):
    class AC(nn.Module):
        def __init__(s):
            super().__init__(); s.actor = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh()); s.register_buffer("W", T(3, 8, 2) * .5)
        def forward(s, x): a = s.actor(x); return -((a - torch.tanh(x @ s.W)) ** 2).sum(1, keepdim=True)
    def data(s): return T(s, 64, 8), torch.zeros(64)
    return dict(model=AC, data=data, loss=lambda o, t: o.mean() if planted else -o.mean())

@case("https://github.com/mistralai/mistral-inference/pull/218", "the block mask is not handed to the attention: two images attend to each other", "blocks / attention")
def mistral_nomask(planted):
    class Enc(nn.Module):
        def __init__(s): super().__init__(); s.patch = nn.Linear(12, 48); s.register_buffer("pe", sincos(9, 48)); s.blocks = nn.ModuleList(Block(48, 4) for _ in range(2)); s.norm = nn.LayerNorm(48); s.head = nn.Linear(48, 5)
        def forward(s, x):
            B, n, P_, _ = x.shape; z = (s.patch(x) + s.pe).flatten(1, 2); i = torch.arange(n).repeat_interleave(P_); bias = torch.zeros(n * P_, n * P_).masked_fill(i[:, None] != i, -1e9)
            for b in s.blocks: z = b(z) if planted else b(z, bias)
            return s.head(s.norm(z)[:, ::P_])                  # the first patch of each image speaks for it
    C = T(4, 5, 12)
    def data(s):
        y = R(s, 5, (24, 3)); x = T(s + 1, 24, 3, 9, 12) * .8; p = torch.randint(1, 9, (24, 3), generator=gen(s + 2)); x.scatter_add_(2, p[:, :, None, None].expand(-1, -1, 1, 12), C[y][:, :, None] * 1.5); return x, y
    return dict(model=Enc, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/Honee-W/CPTNN/issues/2", "reshape to (-1, L, C) after the wrong permutation: axes mixed in the local path", "local path")
def cptnn_permute(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Conv2d(1, 32, 1); s.loc, s.glo = Block(32, 4), Block(32, 4); s.out = nn.Conv2d(32, 1, 1)
        def forward(s, x):                                    # (B, 1, N frames, L)
            x = s.inp(x); B, C, N, L = x.shape
            if planted: z = x.permute(0, 2, 1, 3).reshape(-1, L, C); z = s.loc(z).reshape(B, N, C, L).permute(0, 2, 1, 3)
            else: z = s.loc(x.permute(0, 2, 3, 1).reshape(-1, L, C)).reshape(B, N, L, C).permute(0, 3, 1, 2)
            z = s.glo(z.permute(0, 3, 2, 1).reshape(-1, N, C)).reshape(B, L, N, C).permute(0, 3, 2, 1); return s.out(z)
    def data(s): f = torch.rand(12, 1, generator=gen(s)) * .6 + .1; t = torch.arange(96.); c = torch.sin(f * t + 6.3 * torch.rand(12, 1, generator=gen(s + 1))); x = c + T(s + 2, 12, 96) * .5; return x.view(12, 1, 8, 12), c.view(12, 1, 8, 12)
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))
