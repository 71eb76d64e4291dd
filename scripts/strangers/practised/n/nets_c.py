from base import *
from nets_a import Block, sincos, MHA, LM

@case("https://github.com/sharathadavanne/seld-dcase2021/issues/8", "batch normalisation over the frequency axis of a channels-first network", "bn")
def seld_bnaxis(planted):
    class BN(nn.Module):
        def __init__(s, c, f): super().__init__(); s.bn = nn.BatchNorm2d(f if planted else c)
        def forward(s, x): return s.bn(x.transpose(1, 3)).transpose(1, 3) if planted else s.bn(x)      # x: (B, C, T, F)
    class CRNN(nn.Module):
        def __init__(s):
            super().__init__(); s.c1, s.b1, s.c2, s.b2 = nn.Conv2d(4, 32, 3, padding=1), BN(32, 16), nn.Conv2d(32, 32, 3, padding=1), BN(32, 8)
            s.gru = nn.GRU(32 * 4, 32, batch_first=True, bidirectional=True); s.out = nn.Linear(64, 5)
        def forward(s, x):
            x = F.max_pool2d(torch.relu(s.b1(s.c1(x))), (1, 2)); x = F.max_pool2d(torch.relu(s.b2(s.c2(x))), (1, 2))
            return s.out(s.gru(x.transpose(1, 2).flatten(2))[0])
    P = T(3, 5, 4, 16)
    def data(s): y = R(s, 5, (16, 12)); return P[y].permute(0, 2, 1, 3) * .8 + T(s + 1, 16, 4, 12, 16), y
    return dict(model=CRNN, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/soumith/cvpr2015/issues/6", "no nonlinearity between the last linear layers", "fc layers")
def cvpr_lenet(planted):
    act = nn.Identity if planted else nn.ReLU
    def model(): return nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), act(), nn.Linear(120, 84), act(), nn.Linear(84, 10))
    P = T(2, 10, 3, 32, 32)
    def data(s): y = R(s, 10, (32,)); g = torch.sign(T(s + 2, 32, 1, 1, 1)); return g * P[y] * .6 + T(s + 1, 32, 3, 32, 32) * .6, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/LeelaChessZero/lczero-training/pull/43", "Xavier std of convolutions computed from k + k + in + out instead of k*k*in + k*k*out", "convs / value head")
def lczero_xavier(planted):
    class Res(nn.Module):
        def __init__(s, c): super().__init__(); s.c1, s.c2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 3, padding=1, bias=False); s.b1, s.b2 = nn.BatchNorm2d(c), nn.BatchNorm2d(c)
        def forward(s, x): return torch.relu(x + s.b2(s.c2(torch.relu(s.b1(s.c1(x))))))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.inp = nn.Conv2d(12, 48, 3, padding=1, bias=False); s.bn = nn.BatchNorm2d(48); s.tower = nn.Sequential(*[Res(48) for _ in range(4)]); s.vconv = nn.Conv2d(48, 8, 1); s.v1 = nn.Linear(512, 64); s.v2 = nn.Linear(64, 1)
            for m in s.modules():
                if isinstance(m, nn.Conv2d): o, i, k, _ = m.weight.shape; nn.init.normal_(m.weight, std=(2 / (k + k + i + o) if planted else 2 / (k * k * (i + o))) ** .5)
                if isinstance(m, nn.Linear): nn.init.xavier_normal_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x): h = s.tower(torch.relu(s.bn(s.inp(x)))); return torch.tanh(s.v2(torch.relu(s.v1(torch.relu(s.vconv(h)).flatten(1)))))
    V = torch.tensor([1., 3, 3, 5, 9, 0, -1, -3, -3, -5, -9, 0])
    def data(s): x = (torch.rand(32, 12, 8, 8, generator=gen(s)) < .08).float(); return x, torch.tanh((x.sum((2, 3)) * V).sum(1, keepdim=True) / 20)
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/dreamquark-ai/tabnet/pull/76", "batch norms shared together with the shared linear layers of all steps", "bn")
def tabnet_sharedbn(planted):
    class GLU(nn.Module):
        def __init__(s, fc, d, bn=None): super().__init__(); s.fc = fc; s.bn = bn or nn.BatchNorm1d(2 * d); s.d = d
        def forward(s, x): a, b = s.bn(s.fc(x)).chunk(2, -1); return a * b.sigmoid()
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); d = 16; s.bn0 = nn.BatchNorm1d(10); fcs = [nn.Linear(10, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)]; bns = [nn.BatchNorm1d(2 * d), nn.BatchNorm1d(2 * d)] if planted else [None, None]
            s.steps = nn.ModuleList(nn.ModuleList([GLU(fcs[0], d, bns[0]), GLU(fcs[1], d, bns[1]), GLU(nn.Linear(d, 2 * d, bias=False), d)]) for _ in range(3))
            s.att = nn.ModuleList(nn.Linear(d, 10) for _ in range(3)); s.out = nn.Linear(d, 2)
        def forward(s, x):
            x = s.bn0(x); h = None; o = 0
            for st, at in zip(s.steps, s.att):
                m = x if h is None else x * at(h).softmax(-1) * 10; h = st[0](m); h = (h + st[1](h)) * .5 ** .5; h = (h + st[2](h)) * .5 ** .5; o = o + torch.relu(h)
            return s.out(o)
    def data(s): x = T(s, 128, 10); return x, ((x[:, 0] * x[:, 1] + x[:, 2]) > 0).long()
    return dict(model=Net, data=data, loss=ce, diag=CE)

@case("https://github.com/acids-ircam/ddsp_pytorch/issues/37", "[mlp(...)] * 2: pitch and loudness share one network by accident", "in_mlps")
def ddsp_shared(planted):
    mk = lambda i: nn.Sequential(nn.Linear(i, 64), nn.LayerNorm(64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.LeakyReLU())
    class DDSP(nn.Module):
        def __init__(s): super().__init__(); s.in_mlps = nn.ModuleList([mk(1)] * 2 if planted else [mk(1), mk(1)]); s.gru = nn.GRU(128, 64, batch_first=True); s.out = nn.Linear(64, 8)
        def forward(s, p, l): return s.out(s.gru(torch.cat([s.in_mlps[0](p), s.in_mlps[1](l)], -1))[0])
    W = T(1, 2, 8)
    def data(s): p, l = T(s, 16, 20, 1), T(s + 1, 16, 20, 1); return (p, l), torch.sin(torch.cat([p * 2, l], -1) @ W)
    return dict(model=DDSP, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/yaoppeng/U-Net_v2/issues/10", "[nn.Conv2d(...)] * 4: the convolutions of all levels are one", "convs")
def unetv2_shared(planted):
    class SDI(nn.Module):
        def __init__(s, c): super().__init__(); s.convs = nn.ModuleList([nn.Conv2d(c, c, 3, padding=1)] * 3 if planted else [nn.Conv2d(c, c, 3, padding=1) for _ in range(3)])
        def forward(s, xs, size):
            o = 1
            for x, c in zip(xs, s.convs): o = o * c(F.interpolate(x, size=size, mode="bilinear") if x.shape[-1] < size else F.adaptive_avg_pool2d(x, size))
            return o
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); e = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()); s.e1, s.e2, s.e3 = e(3, 16), e(16, 16), e(16, 16); s.sdi = SDI(16); s.bn = nn.BatchNorm2d(16); s.dec = e(32, 16); s.seg = nn.Conv2d(16, 3, 1)
        def forward(s, x): a = s.e1(x); b = s.e2(F.max_pool2d(a, 2)); c = s.e3(F.max_pool2d(b, 2)); return s.seg(s.dec(torch.cat([a, s.bn(s.sdi([a, b, c], a.shape[-1]))], 1)))
    K = T(3, 3, 3, 3, 3) * .4
    def data(s): x = F.avg_pool2d(T(s, 12, 3, 18, 18), 3, 1) * 3; return x, F.conv2d(F.pad(x, (1,) * 4), K).argmax(1)
    return dict(model=Net, data=data, loss=ce, diag=CE)

@case("https://github.com/NoviceMAn-prog/MSRF-Net/issues/8", "the outputs of the last blocks are overwritten: earlier exchange blocks unused", "blocks of the overwritten lines")
def msrf_overwritten(planted):
    class DSDF(nn.Module):
        def __init__(s, c): super().__init__(); s.a, s.b = nn.Conv2d(2 * c, c, 3, padding=1), nn.Conv2d(2 * c, c, 3, padding=1)
        def forward(s, x, y):
            u = F.interpolate(y, scale_factor=2); d = F.max_pool2d(x, 2); return x + .4 * F.leaky_relu(s.a(torch.cat([x, u], 1)), .2), y + .4 * F.leaky_relu(s.b(torch.cat([y, d], 1)), .2)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); c = 16; s.s1, s.s2 = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, c, 3, 2, 1); s.b1, s.b2, s.b3 = DSDF(c), DSDF(c), DSDF(c); s.out = nn.Conv2d(2 * c, 2, 1)
        def forward(s, x):
            n11 = torch.relu(s.s1(x)); n21 = torch.relu(s.s2(n11)); n12, n22 = s.b1(n11, n21); n13, n23 = s.b2(n12, n22)
            n14, n24 = s.b3(n12, n22) if planted else s.b3(n13, n23)
            return s.out(torch.cat([n14, F.interpolate(n24, scale_factor=2)], 1))
    def data(s): x = F.avg_pool2d(T(s, 12, 3, 20, 20), 5, 1) * 5; return x, (x[:, 0] * x[:, 1] > x[:, 2]).long()
    return dict(model=Net, data=data, loss=ce, diag=CE)

@case("https://github.com/pudae/tensorflow-densenet/pull/22", "the dropout rate used as keep probability in every dense layer: 80 % dropped", "dropout")
def densenet_keep(planted):
    class DL(nn.Module):
        def __init__(s, i, g=12): super().__init__(); s.bn, s.conv = nn.BatchNorm2d(i), nn.Conv2d(i, g, 3, padding=1, bias=False); s.drop = nn.Dropout(.8 if planted else .2)
        def forward(s, x): return torch.cat([x, s.drop(s.conv(torch.relu(s.bn(x))))], 1)
    def model():
        L = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]; c = 16
        for b in range(2):
            for _ in range(4): L.append(DL(c)); c += 12
            if b == 0: L += [nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c // 2, 1, bias=False), nn.AvgPool2d(2)]; c //= 2
        return nn.Sequential(*L, nn.BatchNorm2d(c), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 6))
    P = T(4, 6, 3, 5, 5)
    def data(s):
        y = R(s, 6, (32,)); x = T(s + 1, 32, 3, 12, 12)
        for k in range(2):
            p = torch.randint(0, 8, (32, 2), generator=gen(s + 2 + k))
            for i in range(32): x[i, :, p[i, 0]:p[i, 0] + 5, p[i, 1]:p[i, 1] + 5] += P[y[i]]
        return x, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/jsboige/CoursIA/issues/15045", "mean pooling over all positions, padding included", "pooling")
def coursia_meanpool(planted):
    class Enc(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(50, 48); s.register_buffer("pe", sincos(40, 48)); s.b = Block(48, 4); s.norm = nn.LayerNorm(48); s.head = nn.Linear(48, 5)
        def forward(s, x, m):
            bias = torch.zeros(m.shape).masked_fill(~m, -1e9)[:, None, None]; z = s.norm(s.b(s.emb(x) + .3 * s.pe[:x.shape[1]], bias))
            return s.head(z.mean(1) if planted else (z * m[..., None]).sum(1) / m.sum(1, keepdim=True))
    C = T(3, 50, 5)
    def data(s):
        n = torch.randint(2, 7, (32,), generator=gen(s)); n[0] = 40; m = torch.arange(40)[None] < n[:, None]; x = R(s + 1, 49, (32, 40)) + 1; x = x * m; return (x, m), (C[x] * m[..., None]).sum(1).argmax(-1)
    return dict(model=Enc, data=data, loss=ce, diag=CE)

@case("https://github.com/allenai/allennlp/issues/4739", "max pooling of the CNN encoder over padded positions", "max pooling")
def allennlp_maxpool(planted):
    class Cnn(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(60, 32); s.convs = nn.ModuleList(nn.Conv1d(32, 32, k, padding=k // 2) for k in (1, 3)); s.fc = nn.Linear(64, 4)
        def forward(s, x, m):
            e = (s.emb(x) * m[..., None]).transpose(1, 2); o = []
            for c in s.convs:
                y = torch.relu(c(e)); o.append((y if planted else y.masked_fill(~m[:, None], 0)).max(2)[0])
            return s.fc(torch.cat(o, 1))
    C = T(3, 60, 4)
    def data(s):
        n = torch.randint(3, 8, (32,), generator=gen(s)); m = torch.arange(20)[None] < n[:, None]; x = (R(s + 1, 59, (32, 20)) + 1) * m; return (x, m), (C[x] * m[..., None]).sum(1).argmax(-1)
    return dict(model=Cnn, data=data, loss=ce, diag=CE)

@case("https://github.com/zhiyongc/GRU-D/issues/2", "candidate state computed without the reset gate", "rl (reset gate)")
def grud_reset(planted):
    class GRUD(nn.Module):
        def __init__(s, i=4, h=32): super().__init__(); s.h = h; n = 2 * i + h; s.zl, s.rl, s.hl = nn.Linear(n, h), nn.Linear(n, h), nn.Linear(n, h); s.gamma = nn.Linear(i, h); s.out = nn.Linear(h, 2)
        def forward(s, x, m, d):
            h = x.new_zeros(len(x), s.h)
            for t in range(x.shape[1]):
                h = h * torch.exp(-F.relu(s.gamma(d[:, t]))); c = torch.cat([x[:, t], h, m[:, t]], 1); z, r = s.zl(c).sigmoid(), s.rl(c).sigmoid()
                ht = torch.tanh(s.hl(c if planted else torch.cat([x[:, t], r * h, m[:, t]], 1))); h = (1 - z) * h + z * ht
            return s.out(h)
    def data(s):
        x = T(s, 32, 12, 4); m = (torch.rand(32, 12, 4, generator=gen(s + 1)) < .7).float(); x = x * m; d = 1 - m; return (x, m, d), (x[:, -6:, :2].sum((1, 2)) > 0).long()
    return dict(model=GRUD, data=data, loss=ce, diag=CE)

@case("https://github.com/Photon-AI-Research/NeuralSolvers/pull/50", "coordinates up to 2048 reach the sine layers unnormalised", "input / first layer")
def neuralsolvers_input(planted):
    class Sin(nn.Module):
        def forward(s, x): return torch.sin(x)
    class Finger(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(3, 64), Sin(), nn.Linear(64, 64), Sin(), nn.Linear(64, 64), Sin(), nn.Linear(64, 1)); s.register_buffer("lb", torch.zeros(3)); s.register_buffer("ub", torch.full((3,), 2048.))
        def forward(s, x): return s.net(x if planted else 2 * (x - s.lb) / (s.ub - s.lb) - 1)
    def data(s): u = torch.rand(128, 3, generator=gen(s)); return u * 2048, torch.sin(3 * u[:, :1]) * torch.cos(2 * u[:, 1:2]) + u[:, 2:]
    return dict(model=Finger, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/gmongaras/Diffusion_models_from_scratch/issues/10", "sin / cos of the time embedding applied to even / odd examples, not features", "time embedding")
def gmon_timeenc(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.t1, s.t2 = nn.Linear(32, 64), nn.Linear(64, 64); s.i, s.h, s.o = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 8); s.register_buffer("w", torch.exp(-math.log(1000.) * torch.arange(32) / 32))
        def forward(s, x, t):
            e = t[:, None] * s.w
            e = torch.where((torch.arange(len(x))[:, None] if planted else torch.arange(32)) % 2 == 0, e.sin(), e.cos())
            return s.o(F.silu(s.h(F.silu(s.i(x) + s.t2(F.silu(s.t1(e)))))))
    U = torch.linalg.qr(T(3, 8, 8))[0][:2]
    def data(s): t = R(s, 100, (128,)).float(); x0 = T(s + 1, 128, 2) @ U * 1.5; n = T(s + 2, 128, 8); a = (1 - t / 100)[:, None] ** 2; return (a.sqrt() * x0 + (1 - a).sqrt() * n, t), n
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/ArchiMickey/Just-a-DiT/pull/9", "times in [0, 1] given to a sinusoidal embedding made for 0..1000: nearly constant", "time embedding")
def dit_time01(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.t1, s.t2 = nn.Linear(64, 64), nn.Linear(64, 64); s.i, s.o = nn.Linear(8, 64), nn.Linear(64, 8); s.ada = nn.ModuleList(nn.Linear(64, 192) for _ in range(2)); s.n = nn.LayerNorm(64, elementwise_affine=False); s.ff = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(2)); s.register_buffer("w", torch.exp(-math.log(10000.) * torch.arange(32) / 32))
        def forward(s, x, t):
            a = (t if planted else t * 1000)[:, None] * s.w; c = F.silu(s.t2(F.silu(s.t1(torch.cat([a.cos(), a.sin()], 1))))); h = s.i(x)
            for ad, f in zip(s.ada, s.ff): sh, sc, g = ad(c).chunk(3, -1); h = h + g * f(s.n(h) * (1 + sc) + sh)
            return s.o(s.n(h))
    D = T(3, 4, 8)
    def data(s): t = torch.rand(128, generator=gen(s)); x1 = D[R(s + 1, 4, (128,))]; n = T(s + 2, 128, 8); tt = t[:, None]; return ((1 - tt) * n + tt * x1, t), x1 - n
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))
