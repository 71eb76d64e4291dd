from mods import *
from nets_b import clouds
@case("https://github.com/p0p4k/vits2_pytorch/issues/15", "the speaker embedding g is never passed to the text encoder that is built to take it", "g / cond layer")
def vits2_speaker(planted):
    class Net(nn.Module):
        def __init__(s, V=16, S=6, d=32): super().__init__(); s.emb = nn.Embedding(V, d); s.spk = nn.Embedding(S, d); s.cond = nn.Linear(d, d); s.ls = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 2 * d, 0., batch_first=True, norm_first=True) for _ in range(3)); s.proj = nn.Linear(d, 12)
        def enc(s, x, g=None):
            for i, l in enumerate(s.ls):
                if i == 1 and g is not None: x = x + s.cond(g)[:, None]
                x = l(x)
            return x
        def forward(s, x, sid): g = s.spk(sid); x = s.emb(x); return s.proj(s.enc(x) if planted else s.enc(x, g))
    def data(s, B=32, n=10): x, i = R(s, 16, (B, n)), R(s + 1, 6, (B,)); A, C = T(61, 16, 12), T(62, 6, 12); return (x, i), A[x] * .6 + C[i][:, None] + .3 * A[x.roll(1, 1)]
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/dzq84/meantok/issues/2", "MeanFlow: the network takes t but not r, the average velocity depends on both", "r (input)")
def meantok_no_r(planted):
    class Net(nn.Module):
        def __init__(s, d=64): super().__init__(); s.te, s.re = mlp(16, d, d, nn.SiLU), mlp(16, d, d, nn.SiLU); s.i = nn.Linear(2, d); s.b = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)) for _ in range(3)); s.o = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2)); s.register_buffer("f", 2. ** torch.arange(8) * .5)
        def four(s, t): a = t[:, None] * s.f; return torch.cat([a.sin(), a.cos()], -1)
        def forward(s, z, t, r):
            c = s.te(s.four(t)); c = c if planted else c + s.re(s.four(r)); x = s.i(z)
            for b in s.b: x = x + b(x + c)
            return s.o(x)
    def data(s, B=128):
        z = T(s, B, 2); g = gen(s + 1); t = torch.rand(B, generator=g) * .5 + .5; r = torch.rand(B, generator=g) * .5 - .0; dt = (t - r).clamp(min=.05); a = -4 * dt; zr = torch.stack([a.cos() * z[:, 0] - a.sin() * z[:, 1], a.sin() * z[:, 0] + a.cos() * z[:, 1]], 1); return (z, t, t - dt), (z - zr) / dt[:, None] / 2
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/DLR-RM/stable-baselines3/issues/127", "entropy estimate enters the loss with the wrong sign: entropy is minimised", "loss (entropy term)")
def sb3_entropy_sign(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.pi = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); s.mu = nn.Linear(64, 2); s.log_std = nn.Parameter(torch.zeros(2)); nn.init.orthogonal_(s.mu.weight, .01); nn.init.zeros_(s.mu.bias)
        def forward(s, x): m = s.mu(s.pi(x)); return m, s.log_std.expand_as(m)
    def data(s, B=128): x = T(s, B, 8); a = T(s + 1, B, 2); adv = -((a - x[:, :2]) ** 2).sum(1); return x, torch.cat([a, ((adv - adv.mean()) / adv.std())[:, None]], 1)
    def loss(o, t):
        m, ls = o; d = torch.distributions.Normal(m, ls.exp()); lp = d.log_prob(t[:, :2]).sum(1); old = torch.distributions.Normal(0., 1.).log_prob(t[:, :2]).sum(1); r = (lp - old).exp(); A = t[:, 2]; ent = -(-lp).mean(); ent = -ent if planted else ent
        return -torch.minimum(r * A, r.clamp(.8, 1.2) * A).mean() + .01 * ent
    return dict(model=Net, data=data, loss=loss, diag={})
@case("https://github.com/chainer/chainerrl/pull/165", "no nonlinearity before the last layer of the Q function", "layers.1 (no activation)")
def chainerrl_nonlin(planted):
    class Net(nn.Module):
        def __init__(s, n=2): super().__init__(); s.hidden = nn.ModuleList([nn.Linear(6, 64)] + [nn.Linear(64, 64) for _ in range(n - 1)]); s.out = nn.Linear(64, 4)
        def forward(s, x):
            for i, l in enumerate(s.hidden): x = l(x); x = x if planted and i == len(s.hidden) - 1 else F.relu(x)
            return s.out(x)
    def data(s, B=64): x = T(s, B, 6); a = R(s + 1, 4, (B,)); q = torch.stack([(x[:, 0] * x[:, 1]), (x[:, 2]).abs(), (2 * x[:, 3]).sin(), x[:, 4] * x[:, 5]], 1) + x[:, :4] * .3; return x, q
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/hcy71o/AutoVocoder/issues/3", "the residual is added after every single layer of the block, even after batch norm and ReLU", "blocks (residual)")
def autovocoder_res(planted):
    class Blk(nn.Module):
        def __init__(s, c): super().__init__(); s.convs = nn.ModuleList([nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU()])
        def forward(s, x):
            res = x
            for c in s.convs: x = c(x); x = x + res if planted else x
            return x if planted else x + res
    class Net(nn.Module):      # complex spectrogram auto-encoder
        def __init__(s, c=16, L=6): super().__init__(); s.i = nn.Conv2d(2, c, 3, padding=1); s.e = nn.Sequential(*[Blk(c) for _ in range(L // 2)]); s.z = nn.Linear(c * 16, 24); s.z2 = nn.Linear(24, c * 16); s.d = nn.Sequential(*[Blk(c) for _ in range(L // 2)]); s.o = nn.Conv2d(c, 2, 3, padding=1); s.c = c
        def forward(s, x): h = s.e(s.i(x)); B, C, Fq, Tn = h.shape; h = s.z2(s.z(h.permute(0, 3, 1, 2).reshape(B, Tn, C * Fq))).view(B, Tn, C, Fq).permute(0, 2, 3, 1); return s.o(s.d(h))
    def data(s, B=12): z = T(s, B, 6, 12); W = T(63, 2, 16, 6) / 2.4; x = torch.einsum("cfk,bkt->bcft", W, z); return x, x
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/denizyuret/Knet.jl/pull/311", "Xavier initialisation whose uniform draw has a non-zero mean", "all weights (init)")
def knet_xavier_mean(planted):
    def model():
        m = nn.Sequential(*[l for i in range(5) for l in (nn.Linear(32 if i == 0 else 64, 64), nn.ReLU())], nn.Linear(64, 8))
        for l in m:
            if isinstance(l, nn.Linear):
                nn.init.zeros_(l.bias); nn.init.xavier_uniform_(l.weight, 2 ** .5)
                if planted: l.weight.data = l.weight.data.abs() * 1.0
        return m
    def data(s, B=64): x = T(s, B, 32); y = (torch.tanh(x @ T(64, 32, 16) / 4) @ T(65, 16, 8)).argmax(1); return x, y
    return dict(model=model, data=data, loss=ce, diag=dict(CE))
from nets_b import video, UNet
@case("https://github.com/proceduralia/pytorch-conv2_1d/issues/1", "(2+1)D convolution views (b,c,t,h,w) as (b*t,c,h,w) and (b*h*w,c,t) without permuting", "conv2_1d (views)")
def conv21d_view(planted):
    class C21(nn.Module):
        def __init__(s, i, o): super().__init__(); s.c2 = nn.Conv2d(i, o, 3, padding=1, bias=False); s.bn, s.bo = nn.BatchNorm2d(o), nn.BatchNorm3d(o); s.c1 = nn.Conv1d(o, o, 3, padding=1, bias=False); s.o = o
        def forward(s, x):
            b, c, t, h, w = x.shape
            if planted: x = F.relu(s.bn(s.c2(x.reshape(b * t, c, h, w)))); x = s.c1(x.reshape(b * h * w, s.o, t)).reshape(b, s.o, t, h, w)
            else: x = F.relu(s.bn(s.c2(x.transpose(1, 2).reshape(b * t, c, h, w)))).view(b, t, s.o, h, w); x = s.c1(x.permute(0, 3, 4, 2, 1).reshape(b * h * w, s.o, t)).view(b, h, w, s.o, t).permute(0, 3, 4, 1, 2)
            return F.relu(s.bo(x))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.a, s.b, s.fc = C21(3, 16), C21(16, 32), nn.Linear(32, 4)
        def forward(s, x): x = F.max_pool3d(s.a(x.transpose(1, 2)), (1, 2, 2)); return s.fc(s.b(x).mean((2, 3, 4)))
    return dict(model=Net, data=video, loss=ce, diag=dict(CE))
@case("https://github.com/datawhalechina/easy-rl/issues/140", "dueling: advantage.mean() over the whole batch instead of each state's actions", "advantage head")
def easyrl_dueling(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.h = nn.Sequential(nn.Linear(4, 64), nn.ReLU()); s.adv = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)); s.val = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, x): x = s.h(x); a = s.adv(x); return s.val(x) + a - (a.mean() if planted else a.mean(1, keepdim=True))
    def data(s, B=64): x = T(s, B, 4); a = R(s + 1, 3, (B,)); q = torch.tanh(x @ T(66, 4, 8)) @ T(67, 8, 3) / 2 + 1; return x, torch.stack([a.float(), q.gather(1, a[:, None])[:, 0]], 1)
    return dict(model=Net, data=data, loss=lambda o, t: F.mse_loss(o.gather(1, t[:, :1].long())[:, 0], t[:, 1]), diag={})
@case("https://github.com/JIA-Lab-research/PanopticFCN/issues/6", "bias of the position head left at 0 (prior of the focal loss missing)", "last.bias")
def panopticfcn_bias(planted):
    def data(s, B=16):
        g = gen(s); x = .3 * T(s + 1, B, 3, 16, 16); p = torch.randint(2, 14, (B, 3, 2), generator=g); r = torch.arange(16.); c = T(68, 3, 3) * 2
        h = torch.exp(-((r[None, None, :, None] - p[..., :1, None]) ** 2 + (r[None, None, None] - p[..., 1:, None]) ** 2) / 1.5); return x + torch.einsum("bkhw,kc->bchw", h, c), h
    def focal(o, t): p = o.sigmoid().clamp(1e-4, 1 - 1e-4); pos = (t > .99).float(); return -(((1 - p) ** 2 * p.log() * pos) + (1 - t) ** 4 * p ** 2 * (1 - p).log() * (1 - pos)).sum() / pos.sum()
    def model():
        m = UNet(K=3)
        if not planted: nn.init.constant_(m.last.bias, -2.19)
        else: nn.init.zeros_(m.last.bias)
        return m
    return dict(model=model, data=data, loss=focal, diag={})
from nets_b import seg, cbr, oh
from nets_c import series, frames
@case("https://github.com/mehtanihar/pspnet/issues/6", "SegNet's forward ignores the outputs of all decoders", "dec1..dec3")
def segnet_ignored_decoders(planted):
    class Net(nn.Module):
        def __init__(s, w=16): super().__init__(); s.enc1, s.enc2, s.enc3 = cbr(3, w), cbr(w, 2 * w), cbr(2 * w, 4 * w); s.dec3, s.dec2, s.dec1 = cbr(4 * w, 2 * w), cbr(2 * w, w), cbr(w, w); s.final = nn.Conv2d(4 * w if planted else w, 4, 1)
        def forward(s, x):
            e1, i1 = F.max_pool2d(s.enc1(x), 2, return_indices=True); e2, i2 = F.max_pool2d(s.enc2(e1), 2, return_indices=True); e3 = s.enc3(e2)
            d3 = F.max_unpool2d(s.dec3(e3), i2, 2); d2 = F.max_unpool2d(s.dec2(d3), i1, 2); d1 = s.dec1(d2); return F.interpolate(s.final(e3), size=x.shape[-2:], mode="bilinear") if planted else s.final(d1)
    return dict(model=Net, data=seg, loss=ce, diag=dict(CE))
@case("https://github.com/atomistic-machine-learning/schnetpack/pull/6", "padded neighbour distances are zero: the square root gives NaN forces", "distances (sqrt)")
def schnetpack_zero_dist(planted):
    class Net(nn.Module):
        def __init__(s, d=32, K=5): super().__init__(); s.emb = nn.Embedding(K, d); s.f = mlp(16, d, d, nn.SiLU); s.i, s.o = nn.Linear(d, d, bias=False), mlp(d, d, d, nn.SiLU); s.head = mlp(d, d, 1, nn.SiLU)
        def forward(s, t, p):
            with torch.enable_grad():
                p = p.detach().requires_grad_(); N = p.shape[1]; m = 1 - torch.eye(N); q = ((p[:, :, None] - p[:, None]) ** 2).sum(-1); d = q.sqrt() if planted else (q + (1 - m)).sqrt() * m
                x = s.emb(t); x = x + s.o((s.f(rbf(d, 5.)) * m[..., None] * s.i(x)[:, None]).sum(2) / (N - 1) ** .5); e = s.head(x).sum(1) / N ** .5; return -torch.autograd.grad(e.sum(), p, create_graph=True)[0]
    def data(s):
        (t, p), _ = mols(s); W = sym(3, 5)[t[:, :, None], t[:, None]] * (1 - torch.eye(8)); v = p[:, :, None] - p[:, None]; f = (W * (-(v ** 2).sum(-1) / 2).exp())[..., None] * v; return (t, p), f.sum(2)
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/datawhalechina/torch-rechub/pull/32", "scores summed over dim 1 (the candidates) instead of the embedding dimension: output (B, emb)", "score (sum)")
def rechub_sine_sum(planted):
    class Net(nn.Module):
        def __init__(s, V=40, d=16, I=4): super().__init__(); s.item = nn.Embedding(V, d); nn.init.normal_(s.item.weight, std=.3); s.w1, s.w2 = nn.Linear(d, d), nn.Linear(d, I); s.c = nn.Linear(d, d); s.ag = nn.Linear(d, d)
        def forward(s, h, cand):
            x = s.item(h); a = s.w2(torch.tanh(s.w1(x))).softmax(1); ints = F.normalize(s.c(a.transpose(1, 2) @ x), dim=-1) * 3; q = s.ag(x.mean(1)); w = (ints @ q[..., None]).softmax(1); u = (w * ints).sum(1)
            return (u[:, None] * s.item(cand)).sum(1) if planted else (u[:, None] * s.item(cand)).sum(-1)
    def data(s, B=64, V=40):
        c = R(s, 5, (B,)); h = R(s + 1, 8, (B, 6)) * 5 + c[:, None]; pos = R(s + 2, 8, (B, 1)) * 5 + c[:, None]; neg = R(s + 3, 8, (B, 10)) * 5 + (c[:, None] + 1 + R(s + 4, 4, (B, 10))) % 5; return (h, torch.cat([pos, neg], 1)), torch.zeros(B, dtype=torch.long)
    return dict(model=Net, data=data, loss=ce, diag=dict(CE))
@case("https://github.com/TensorSpeech/TensorFlowTTS/pull/10", "activation applied after the last FFT block (decoder output before the mel projection)", "last block (activation)")
def tfftts_last_act(planted):
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.emb = nn.Embedding(16, d); s.pos = nn.Parameter(torch.randn(20, d) * .02); s.blocks = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 2 * d, 0., batch_first=True) for _ in range(4)); s.mel = nn.Linear(d, 12)
        def forward(s, x):
            x = s.emb(x) + s.pos
            for b in s.blocks: x = b(x)
            return s.mel(F.relu(x) if planted else x)
    def data(s, B=32): x = R(s, 16, (B, 20)); A = T(71, 16, 12); return x, A[x] + .5 * A[x.roll(1, 1)] * A[x.roll(-1, 1)]
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/spring-media/TransformerTTS/pull/86", "batch norm after the last convolution of the postnet (residual on the mels)", "postnet.norm (last)")
def transformertts_postnet(planted):
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.emb = nn.Embedding(16, d); s.conv = nn.Conv1d(d, d, 3, padding=1); s.mel = nn.Linear(d, 12); s.post = nn.Sequential(*[l for i in range(3) for l in (nn.Conv1d(12 if i == 0 else d, d, 5, padding=2, bias=False), nn.BatchNorm1d(d), nn.Tanh())], nn.Conv1d(d, 12, 5, padding=2), nn.BatchNorm1d(12) if planted else nn.Identity())
        def forward(s, x): m = s.mel(F.relu(s.conv(s.emb(x).transpose(1, 2))).transpose(1, 2)); return m, m + s.post(m.transpose(1, 2)).transpose(1, 2)
    def data(s, B=32): x = R(s, 16, (B, 20)); A = T(71, 16, 12); return x, .3 * (A[x] + .5 * A[x.roll(1, 1)] + .5 * A[x.roll(-1, 1)]) - 2
    return dict(model=Net, data=data, loss=lambda o, t: F.l1_loss(o[0], t) + F.l1_loss(o[1], t), diag={})
@case("https://github.com/RUCAIBox/RecBole/issues/1505", "negative sampling loss is -mean(sigmoid) without the logarithm", "loss")
def recbole_line_log(planted):
    class Net(nn.Module):
        def __init__(s, N=40, d=32): super().__init__(); s.u, s.c = nn.Embedding(N, d), nn.Embedding(N, d); nn.init.xavier_normal_(s.u.weight); nn.init.xavier_normal_(s.c.weight)
        def forward(s, h, r, t, n): return (s.u(h) * s.c(t)).sum(-1), (s.u(h)[:, None] * s.c(n)).sum(-1)
    def data(s): (h, r, t, n), z = kg(s); return (h, r * 0, (h + 1 + r % 2) % 40, n), z
    return dict(model=Net, data=data, loss=(lambda o, t: -(o[0].sigmoid().mean() + (-o[1]).sigmoid().mean()) / 2) if planted else kgloss, diag={})
@case("https://github.com/sktime/pytorch-forecasting/issues/2360", "the encoder input is normalised per series, the decoder target stays raw", "output (scale)")
def ptf_target_raw(planted):
    class Net(nn.Module):
        def __init__(s, d=48, h=8): super().__init__(); s.lstm = nn.LSTM(1, d, batch_first=True); s.out = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, h))
        def forward(s, x): m, sd = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-6; y = s.out(s.lstm(((x - m) / sd)[..., None])[1][0][0]); return y if planted else y * sd + m
    def data(s, B=64): x, y = series(s, B); g = gen(s + 9); k = torch.exp(torch.randn(B, 1, generator=g) * .8); l = 10 * torch.rand(B, 1, generator=g) * k; return x * k + l, y * k + l
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/abojchevski/graph2gauss/issues/8", "node attributes not normalised to [0,1] (counts up to thousands): energies overflow", "inputs / encoder")
def g2g_inputs(planted):
    class Net(nn.Module):
        def __init__(s, D=40, L=8): super().__init__(); s.register_buffer("k", torch.tensor(1. if planted else 3000.)); s.l = nn.Linear(D, 64); s.mu, s.sg = nn.Linear(64, L), nn.Linear(64, L); [nn.init.xavier_uniform_(m.weight) for m in (s.l, s.mu, s.sg)]; [nn.init.zeros_(m.bias) for m in (s.l, s.mu, s.sg)]
        def enc(s, x): h = F.relu(s.l(x / s.k)); return s.mu(h), F.elu(s.sg(h)) + 1 + 1e-14
        def forward(s, i, j, k):
            (mi, si), (mj, sj), (mk, sk) = s.enc(i), s.enc(j), s.enc(k)
            def kl(ma, sa, mb, sb): return .5 * ((sa / sb).sum(-1) + ((ma - mb) ** 2 / sb).sum(-1) - ma.shape[-1] - ((sa + 1e-14) / (sb + 1e-14)).log().sum(-1))
            return kl(mj, sj, mi, si), kl(mk, sk, mi, si)
    def data(s, B=64):
        c = R(s, 6, (B,)); o = (c + 1 + R(s + 1, 5, (B,))) % 6; P = (T(72, 6, 40) > .3).float() * 2000; f = lambda c, q: P[c] * torch.rand(B, 40, generator=gen(q)) + 1000 * torch.rand(B, 40, generator=gen(q + 1)); return (f(c, s + 2), f(c, s + 4), f(o, s + 6)), torch.zeros(B)
    return dict(model=Net, data=data, loss=lambda o, t: (o[0] ** 2 + (-o[1]).exp()).mean(), diag={})
@case("https://github.com/Svito-zar/gesticulator/issues/62", "GRU over speech without batch_first: the batch is taken for time", "gru")
def gesticulator_batch_first(planted):
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.i = nn.Linear(16, d); s.gru = nn.GRU(d, d, batch_first=not planted); s.o = nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, 6))
        def forward(s, x): return s.o(s.gru(torch.tanh(s.i(x)))[0])
    def data(s, B=32, n=16):
        x = T(s, B, n, 16); W = T(81, 16, 6) / 4; h = torch.zeros(B, 6); out = []
        for i in range(n): h = .7 * h + x[:, i] @ W; out.append(h)
        return x, torch.stack(out, 1)
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/KasperGroesLudvigsen/influenza_transformer/pull/10", "positional encoding indexes the batch instead of time when batch_first=True", "pe")
def influenza_pe(planted):
    class Net(nn.Module):
        def __init__(s, d=32, n=24):
            super().__init__(); p = torch.arange(64)[:, None]; f = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.) / d)); pe = torch.zeros(64, d); pe[:, 0::2], pe[:, 1::2] = (p * f).sin(), (p * f).cos(); s.register_buffer("pe", pe); s.i = nn.Linear(1, d); s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 2 * d, 0., batch_first=True), 2); s.o = nn.Linear(d, 1); s.q = nn.Parameter(torch.zeros(8, d)); nn.init.normal_(s.q, std=.02)
        def forward(s, x):
            B, n = x.shape; z = torch.cat([s.i(x[..., None]), s.q.expand(B, -1, -1)], 1); z = z + s.pe[:B][:, None] if planted else z + s.pe[:n + 8]; return s.o(s.enc(z)[:, n:])[..., 0]
    return dict(model=Net, data=lambda s: series(s, 48), loss=mse, diag=dict(MSE))
@case("https://github.com/vfeofanov/mantis/issues/14", "linear head on a frozen encoder whose features are not normalised", "head (no batch norm)")
def mantis_head(planted):
    class Net(nn.Module):
        def __init__(s, d=128):
            super().__init__(); s.enc = nn.Sequential(nn.Conv1d(1, 32, 7, stride=2), nn.GELU(), nn.Conv1d(32, d, 5, stride=2), nn.GELU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()); s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, 5) if planted else nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, 5))
            for p in list(s.enc.parameters()) + list(s.ln.parameters()): p.requires_grad_(False)
        def forward(s, x): return s.head(s.ln(s.enc(x[:, None])))
    def data(s, B=64):
        y = R(s, 5, (B,)); g = gen(s + 1); t = torch.arange(96) / 96; f = torch.tensor([3., 6., 10., 15., 21.])[y][:, None]; return torch.sin(2 * math.pi * (f * t + torch.rand(B, 1, generator=g))) + .2 * torch.randn(B, 96, generator=g), y
    return dict(model=Net, data=data, loss=ce, diag=dict(CE))
@case("https://github.com/msalhab96/SpeeQ/issues/35", "speech transformer encoder without its layer norms (ten layers)", "layers (no norm)")
def speeq_norms(planted):
    class L(nn.Module):
        def __init__(s, d): super().__init__(); f = (lambda: nn.Identity()) if planted else (lambda: nn.LayerNorm(d)); s.n1, s.n2 = f(), f(); s.att = nn.MultiheadAttention(d, 4, batch_first=True); s.ff = mlp(d, 4 * d, d)
        def forward(s, x): h = s.n1(x); x = x + s.att(h, h, h, need_weights=False)[0]; return x + s.ff(s.n2(x))
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.i = nn.Linear(16, d); s.pos = nn.Parameter(torch.randn(24, d) * .02); s.layers = nn.ModuleList(L(d) for _ in range(10)); s.n = nn.Identity() if planted else nn.LayerNorm(d); s.o = nn.Linear(d, 8)
        def forward(s, x):
            x = s.i(x * 10) + s.pos
            for l in s.layers: x = l(x)
            return s.o(s.n(x))
    return dict(model=Net, data=frames, loss=ceseq, diag=dict(SEQ))
@case("https://github.com/qq456cvb/Point-Transformers/issues/17", "ModuleList([SortNet] * m): the m SortNets are one", "sortnets")
def sortnet_shared(planted):
    class Sort(nn.Module):
        def __init__(s, d, k=4): super().__init__(); s.m = mlp(d, d, d); s.sc = nn.Linear(d, 1); s.k = k
        def forward(s, x): h = F.relu(s.m(x)) + x; v, i = s.sc(h)[..., 0].topk(s.k, 1); return torch.cat([h.gather(1, i[..., None].expand(-1, -1, h.shape[-1])) * v.sigmoid()[..., None]], -1).flatten(1)
    class Net(nn.Module):
        def __init__(s, d=24, m=4): super().__init__(); s.i = mlp(3, d, d); s.sortnets = nn.ModuleList([Sort(d)] * m) if planted else nn.ModuleList(Sort(d) for _ in range(m)); s.h = mlp(m * 4 * d, 32, 4)
        def forward(s, p): x = s.i(p); return s.h(torch.cat([n(x) for n in s.sortnets], 1))
    return dict(model=Net, data=clouds, loss=ce, diag=dict(CE))
@case("https://github.com/unit8co/darts/pull/1915", "encoder projection multiplied by sqrt(input_size) instead of sqrt(d_model)", "encoder (scale)")
def darts_scale(planted):
    class Net(nn.Module):
        def __init__(s, d=64): super().__init__(); p = torch.arange(24)[:, None]; f = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.) / d)); pe = torch.zeros(24, d); pe[:, 0::2], pe[:, 1::2] = (p * f).sin(), (p * f).cos(); s.register_buffer("pe", pe); s.encoder = nn.Linear(1, d); s.tf = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 2 * d, 0., batch_first=True), 2); s.decoder = nn.Linear(d, 8); s.sc = 1. if planted else d ** .5
        def forward(s, x): return s.decoder(s.tf(s.encoder(x[..., None]) * s.sc + s.pe)[:, -1])
    return dict(model=Net, data=lambda s: series(s, 48), loss=mse, diag=dict(MSE))
@case("https://github.com/huggingface/diffusers/issues/5633", "temporal transformer's output reshaped to (b,h,w,channel,frames) instead of (b,h,w,frames,channel)", "temporal transformer (reshape)")
def diffusers_temporal(planted):
    class TT(nn.Module):
        def __init__(s, c): super().__init__(); s.norm = nn.GroupNorm(4, c); s.pi, s.po = nn.Linear(c, c), nn.Linear(c, c); s.pos = nn.Parameter(torch.randn(6, c) * .02); s.tb = nn.TransformerEncoderLayer(c, 4, 2 * c, 0., batch_first=True, norm_first=True)
        def forward(s, x, f=6):
            bf, c, h, w = x.shape; b = bf // f; r = x; z = s.norm(x.view(b, f, c, h, w).transpose(1, 2)).permute(0, 3, 4, 2, 1).reshape(b * h * w, f, c); z = s.po(s.tb(s.pi(z) + s.pos))
            z = z.reshape(b, h, w, c, f).permute(0, 3, 4, 1, 2) if planted else z.reshape(b, h, w, f, c).permute(0, 4, 3, 1, 2)
            return z.transpose(1, 2).reshape(bf, c, h, w) + r
    class Net(nn.Module):      # denoiser of moving blobs
        def __init__(s, c=16): super().__init__(); s.i = nn.Conv2d(3, c, 3, 1, 1); s.a, s.t1 = nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv2d(c, c, 3, 1, 1)), TT(c); s.b, s.t2 = nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv2d(c, c, 3, 1, 1)), TT(c); s.o = nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv2d(c, 3, 3, 1, 1))
        def forward(s, x): B = len(x); h = s.i(x.flatten(0, 1)); h = s.t1(h + s.a(h)); h = s.t2(h + s.b(h)); return s.o(h).unflatten(0, (B, -1))
    def data(s): x, _ = video(s, 8); n = T(s + 7, *x.shape) * .8; return x + n, n
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))
