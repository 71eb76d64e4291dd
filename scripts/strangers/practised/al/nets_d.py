from base import *

@case("https://github.com/stanford-cs336/assignment1-basics/issues/93", "RMSNorm divides by sqrt(std + eps) instead of the root mean square", "RMSNorm denominator")
def cs336_rmsnorm_sqrt_std(planted):
    V, E_, Hd = 12, 32, 4
    class RMS(nn.Module):
        def __init__(s): super().__init__(); s.weight = nn.Parameter(torch.ones(E_))
        def forward(s, x):
            r = torch.sqrt(x.std(-1, keepdim=True) + 1e-5) if planted else torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
            return x / r * s.weight
    def lin(i, o): l = nn.Linear(i, o, bias=False); sd = (2 / (i + o)) ** .5; nn.init.trunc_normal_(l.weight, std=sd, a=-3 * sd, b=3 * sd); return l
    class Blk(nn.Module):
        def __init__(s): super().__init__(); s.ln1, s.ln2, s.qkv, s.o, s.w1, s.w3, s.w2 = RMS(), RMS(), lin(E_, 3 * E_), lin(E_, E_), lin(E_, 88), lin(E_, 88), lin(88, E_)
        def forward(s, x):
            B, n, _ = x.shape; q, k, v = [rope(t) if i < 2 else t for i, t in enumerate(s.qkv(s.ln1(x)).view(B, n, 3, Hd, -1).permute(2, 0, 3, 1, 4))]
            x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, n, E_)); h = s.ln2(x); return x + s.w2(F.silu(s.w1(h)) * s.w3(h))
    def rope(t):
        d = t.shape[-1]; a = torch.arange(t.shape[-2])[:, None] * 1e4 ** (-torch.arange(0, d, 2) / d); c, n = a.cos(), a.sin(); p, q = t[..., ::2], t[..., 1::2]; return torch.stack([p * c - q * n, p * n + q * c], -1).flatten(-2)
    class LM(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(V, E_); nn.init.trunc_normal_(s.emb.weight, std=1, a=-3, b=3); s.b = nn.Sequential(Blk(), Blk()); s.ln_final, s.head = RMS(), lin(E_, V)
        def forward(s, x): return s.head(s.ln_final(s.b(s.emb(x))))
    def data(seed):
        s = R(seed, V, (32, 16))
        for t in range(2, 16): s[:, t] = (s[:, t - 1] + s[:, t - 2] * 2 + 1) % V
        return s[:, :-1], s[:, 1:]
    return dict(model=LM, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/leofansq/CPCL/issues/1", "torch.max(softmax) has no dim: one global maximum weighs the whole consistency loss instead of the per-pixel confidence", "the unsupervised loss weight")
def cpcl_global_max_weight(planted):
    C = 4
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.f = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, C, 1))
        def forward(s, xl, xu, xu2):
            with torch.no_grad(): tea = s.f(xu2)
            return s.f(xl), s.f(xu), tea
    def lossf(o, t, bad):
        l, u, tea = o; p = F.softmax(tea, 1); w = torch.max(p) if bad else p.max(1)[0]; return F.cross_entropy(l, t) + .5 * (w * F.cross_entropy(u, p.argmax(1), reduction="none")).mean()
    P = torch.randn(C, 2, generator=gen(14)) * 1.5
    def img(seed): y = F.interpolate(R(seed, C, (16, 1, 4, 4)).float(), scale_factor=4)[:, 0].long(); return P[y].permute(0, 3, 1, 2), y
    def data(seed):
        a, y = img(seed); b, _ = img(seed + 1); n = lambda k: T(seed + k, 16, 2, 16, 16) * .8; return (a + n(2), b + n(3), b + n(4)), y
    return dict(model=Net, data=data, loss=lambda o, t: lossf(o, t, planted), lr=2e-3, diag={}, judge=lambda m, x, t: lossf(m(*x), t, False))

@case("https://github.com/dreamquark-ai/tabnet/issues/305", "the input passes two initial BatchNorm1d layers (TabNetNoEmbedding and its encoder)", "the second initial_bn")
def tabnet_two_initial_bn(planted):
    Dn, nd, na = 12, 8, 8
    def sparsemax(z):
        s, _ = z.sort(-1, descending=True); c = s.cumsum(-1) - 1; k = torch.arange(1, z.shape[-1] + 1); kz = (s > c / k).sum(-1, keepdim=True); return F.relu(z - c.gather(-1, kz - 1) / kz)
    class GLU(nn.Module):
        def __init__(s, i, o, fc=None): super().__init__(); s.fc = fc or nn.Linear(i, 2 * o, bias=False); s.bn = nn.BatchNorm1d(2 * o); s.o = o
        def forward(s, x): x = s.bn(s.fc(x)); return x[:, :s.o] * torch.sigmoid(x[:, s.o:])
    class FT(nn.Module):
        def __init__(s, sh): super().__init__(); s.a, s.b = GLU(Dn, nd + na, sh), GLU(nd + na, nd + na)
        def forward(s, x): x = s.a(x); return (x + s.b(x)) * .5 ** .5
    class Enc(nn.Module):
        def __init__(s):
            super().__init__(); s.initial_bn = nn.BatchNorm1d(Dn); sh = nn.Linear(Dn, 2 * (nd + na), bias=False); s.init, s.ft = FT(sh), nn.ModuleList(FT(sh) for _ in range(2)); s.att = nn.ModuleList(nn.Sequential(nn.Linear(na, Dn, bias=False), nn.BatchNorm1d(Dn)) for _ in range(2))
        def forward(s, x):
            x = s.initial_bn(x); pr = torch.ones_like(x); a = s.init(x)[:, nd:]; out = 0
            for i in range(2): m = sparsemax(pr * s.att[i](a)); pr = pr * (1.3 - m); o = s.ft[i](m * x); out = out + F.relu(o[:, :nd]); a = o[:, nd:]
            return out
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder, s.final = Enc(), nn.Linear(nd, 3, bias=False)
            if planted: s.initial_bn = nn.BatchNorm1d(Dn)
        def forward(s, x): return s.final(s.encoder(s.initial_bn(x) if planted else x))
    W = torch.randn(4, 3, generator=gen(15)) * 1.5
    def data(seed): x = T(seed, 64, Dn); return x, (x[:, :4] @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/vballoli/nfnets-pytorch/issues/30", "convolutions are initialised with kaiming fan_out/relu instead of fan_in/linear", "nn.init.kaiming_normal_(mode='fan_out', nonlinearity='relu')")
def nfnet_fan_out_init(planted):
    class WS(nn.Conv2d):
        def __init__(s, *a, **k): super().__init__(*a, **k); s.gain = nn.Parameter(torch.ones(s.out_channels, 1, 1, 1))
        def forward(s, x):
            w = s.weight; v, m = torch.var_mean(w, (1, 2, 3), keepdim=True); f = w[0].numel(); sc = torch.rsqrt(torch.clamp(v * f, min=1e-4)) * s.gain; return F.conv2d(x, (w - m) * sc, s.bias, s.stride, s.padding)
    class Blk(nn.Module):
        def __init__(s, c, beta): super().__init__(); s.c1, s.c2, s.beta = WS(c, c, 3, padding=1), WS(c, c, 3, padding=1), beta; s.skip_gain = nn.Parameter(torch.zeros(()))
        def forward(s, x): o = F.relu(x) * 1.7139588594436646 * s.beta; return x + .2 * s.skip_gain * s.c2(F.relu(s.c1(o)) * 1.7139588594436646)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.stem = WS(3, 16, 3, padding=1); s.b1, s.tr, s.b2 = Blk(16, 1.), WS(16, 32, 3, stride=2, padding=1), Blk(32, 1.); s.fc = nn.Linear(32, 5)
            for m in s.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu") if planted else nn.init.kaiming_normal_(m.weight, mode="fan_in", nonlinearity="linear"); nn.init.zeros_(m.bias)
        def forward(s, x): h = s.b2(s.tr(F.relu(s.b1(s.stem(x))) * 1.7139588594436646)); return s.fc((F.relu(h) * 1.7139588594436646).mean((2, 3)))
    P = torch.randn(5, 3, 8, 8, generator=gen(16))
    def data(seed): y = R(seed, 5, (32,)); return P[y] * .7 + T(seed + 1, 32, 3, 8, 8) * .7, y
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/tryonlabs/opentryon/issues/24", "U-Net skip connections are added element-wise instead of concatenated", "the decoder's skip connections")
def tryon_unet_skip_added(planted):
    class RB(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.n1, s.c1, s.n2, s.c2, s.te = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, padding=1), nn.Linear(32, o); s.sk = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
        def forward(s, x, t): h = s.c1(F.silu(s.n1(x))) + s.te(F.silu(t))[:, :, None, None]; return s.sk(x) + s.c2(F.silu(s.n2(h)))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); k = 1 if planted else 2; s.te = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32)); s.i = nn.Conv2d(1, 16, 3, padding=1); s.d1, s.d2, s.m, s.u2, s.u1 = RB(16, 16), RB(16, 16), RB(16, 16), RB(16 * k, 16), RB(16 * k, 16); s.no, s.o = nn.GroupNorm(4, 16), nn.Conv2d(16, 1, 3, padding=1)
        def forward(s, x, t):
            f = torch.exp(-torch.arange(8) / 8 * math.log(1000.)); t = s.te(torch.cat([(t[:, None] * 100 * f).sin(), (t[:, None] * 100 * f).cos()], 1)); j = (lambda a, b: a + b) if planted else (lambda a, b: torch.cat([a, b], 1))
            a = s.d1(s.i(x), t); b = s.d2(F.avg_pool2d(a, 2), t); h = s.m(F.avg_pool2d(b, 2), t); up = lambda h: F.interpolate(h, scale_factor=2)
            return s.o(F.silu(s.no(s.u1(j(up(s.u2(j(up(h), b), t)), a), t))))
    def data(seed):
        z = F.interpolate(T(seed, 16, 1, 4, 4), scale_factor=4).sign(); t = torch.rand(16, generator=gen(seed + 1)); e = T(seed + 2, 16, 1, 16, 16); a = torch.cos(t * math.pi / 2)[:, None, None, None]; return (a * z + (1 - a * a).sqrt() * e, t), e
    return dict(model=Net, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/Johnson0722/CTR_Prediction/issues/8", "the second FM term is X @ v^2 instead of X^2 @ v^2", "FM interaction term: X not squared")
def ctr_fm_x_not_squared(planted):
    n, k = 12, 6
    class FM(nn.Module):
        def __init__(s): super().__init__(); s.b, s.w1, s.v = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.randn(n, 1) * .02), nn.Parameter(torch.randn(n, k) * .1)
        def forward(s, X): return (s.b + X @ s.w1 + .5 * ((X @ s.v).pow(2) - (X if planted else X.pow(2)) @ s.v.pow(2)).sum(1, keepdim=True)).squeeze(-1)
    V = torch.randn(n, 3, generator=gen(17)) * .5
    def data(seed): X = T(seed, 64, n); return X, (.5 * ((X @ V).pow(2) - X.pow(2) @ V.pow(2)).sum(1) + X[:, 0] > 0).float()
    return dict(model=FM, data=data, loss=nn.BCEWithLogitsLoss(), lr=2e-2, diag={})
