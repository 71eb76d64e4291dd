from base import *
import itertools
def E(a): return "experience: " + a
def cbr(i, o, s=1, k=3): return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU())
def scene(seed, n=16, obj=3):
    g = gen(seed); tpl = T(7, 4, 3, 4, 4); x = torch.randn(n, 3, 32, 32, generator=g) * .3
    cls = torch.randint(0, 4, (n, obj), generator=g)
    pos = torch.stack([torch.randperm(64, generator=g)[:obj] for _ in range(n)]); yy, xx = pos // 8, pos % 8
    for i in range(n):
        for j in range(obj): a, b = int(yy[i, j]) * 4, int(xx[i, j]) * 4; x[i, :, a:a + 4, b:b + 4] += tpl[cls[i, j]]
    return x, cls, yy, xx

def focal(o, t):
    p = o.sigmoid(); b = F.binary_cross_entropy_with_logits(o, t, reduction="none"); pt = p * t + (1 - p) * (1 - t)
    return ((.25 * t + .75 * (1 - t)) * (1 - pt) ** 2 * b).sum() / t.sum().clamp(min=1)
@case(E("detection"), "head applies sigmoid and the focal loss applies it again", "cls_score / output")
def focal_double_sigmoid(planted):
    class Head(nn.Module):
        def __init__(s):
            super().__init__(); s.backbone = nn.Sequential(cbr(3, 16), cbr(16, 32, 2), cbr(32, 32, 2)); s.tower = nn.Sequential(cbr(32, 32), cbr(32, 32))
            s.cls_score = nn.Conv2d(32, 4, 3, padding=1); nn.init.normal_(s.cls_score.weight, std=.01); nn.init.constant_(s.cls_score.bias, -math.log(99))
        def forward(s, x):
            y = s.cls_score(s.tower(s.backbone(x)))
            return y.sigmoid() if planted else y
    def data(seed):
        x, c, yy, xx = scene(seed); t = torch.zeros(len(x), 4, 8, 8); b = torch.arange(len(x))[:, None].expand_as(c); t[b, c, yy, xx] = 1; return x, t
    return dict(model=Head, data=data, loss=focal, diag={})

class UNet(nn.Module):
    def __init__(s, k, out=None, bad=False):
        super().__init__(); s.d1 = nn.Sequential(cbr(3, 16), cbr(16, 16)); s.d2 = nn.Sequential(cbr(16, 32), cbr(32, 32)); s.mid = cbr(32, 64)
        s.u2 = cbr(64 + 32, 32); s.u1 = cbr(32 + (32 if bad else 16), 16); s.head = nn.Conv2d(16, k, 1); s.out = out; s.bad = bad
    def forward(s, x):
        a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); m = s.mid(F.max_pool2d(b, 2))
        y = F.interpolate(m, scale_factor=2.); y = s.u2(torch.cat([y, b], 1)); y = F.interpolate(y, scale_factor=2.)
        y = s.head(s.u1(torch.cat([y, y if s.bad else a], 1)))
        return s.out(y) if s.out else y
@case(E("segmentation"), "softmax over the width, not over the classes", "output softmax")
def dice_softmax_width(planted):
    def data(seed):
        x, c, yy, xx = scene(seed); t = torch.zeros(len(x), 8, 8, dtype=torch.long); b = torch.arange(len(x))[:, None].expand_as(c); t[b, yy, xx] = c + 1
        return x, t.repeat_interleave(4, 1).repeat_interleave(4, 2)
    def dice(p, t):
        h = F.one_hot(t, 5).permute(0, 3, 1, 2).float(); i = (p * h).sum((0, 2, 3)); return 1 - (2 * i / (p.sum((0, 2, 3)) + h.sum((0, 2, 3)) + 1e-5)).mean()
    return dict(model=lambda: UNet(5, lambda y: y.softmax(-1 if planted else 1)), data=data, loss=dice, diag={})
@case(E("segmentation"), "decoder concatenates x with itself instead of the skip", "u1 / d1 skip")
def unet_cat_self(planted):
    W = T(3, 5, 3, 3, 3)
    def data(seed): x = T(seed, 8, 3, 24, 24); return x, F.conv2d(x, W, padding=1).argmax(1)
    return dict(model=lambda: UNet(5, None, planted), data=data, loss=ce, diag={})

PERM = torch.tensor(list(itertools.permutations(range(5), 3)))
def setloss(o, t):
    lg, bx = o; c, b = t[0], t[1]; lp = lg.log_softmax(-1)
    cost = -lp.gather(2, c[:, None].expand(-1, 5, -1)) + lp[..., 4:] + 5 * (bx[:, :, None] - b[:, None]).abs().sum(-1)
    tot = torch.stack([sum(cost[:, p[j], j] for j in range(3)) for p in PERM], 1).min(1).values
    return ((tot - lp[..., 4].sum(1)) / 5).mean()
@case(E("set prediction"), "object queries initialised to zeros, so that all queries stay identical", "query_embed")
def detr_zero_queries(planted):
    class Dec(nn.Module):
        def __init__(s, d):
            super().__init__(); s.sa = nn.MultiheadAttention(d, 4, batch_first=True); s.ca = nn.MultiheadAttention(d, 4, batch_first=True)
            s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)); s.n1, s.n2, s.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        def forward(s, y, q, m, pos):
            k = y + q; y = s.n1(y + s.sa(k, k, y, need_weights=False)[0]); y = s.n2(y + s.ca(y + q, m + pos, m, need_weights=False)[0]); return s.n3(y + s.ff(y))
    class DETR(nn.Module):
        def __init__(s, d=48):
            super().__init__(); s.backbone = nn.Sequential(cbr(3, 24), cbr(24, 48, 2), cbr(48, d, 2)); s.pos = nn.Parameter(torch.randn(1, 64, d) * .5)
            s.query_embed = nn.Parameter(torch.zeros(5, d) if planted else torch.randn(5, d)); s.dec = nn.ModuleList([Dec(d), Dec(d)]); s.cls = nn.Linear(d, 5); s.box = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 2))
        def forward(s, x):
            m = s.backbone(x).flatten(2).transpose(1, 2); q = s.query_embed.expand(len(x), -1, -1); y = torch.zeros_like(q)
            for l in s.dec: y = l(y, q, m, s.pos)
            return s.cls(y), s.box(y).sigmoid()
    def data(seed): x, c, yy, xx = scene(seed, 24); return x, (c, torch.stack([yy, xx], -1).float() / 8 + 1 / 16)
    return dict(model=DETR, data=data, loss=setloss, diag={})

@case(E("keypoints"), "soft-argmax over a heatmap that went through a sigmoid: nearly uniform", "heatmap head / softmax")
def softargmax_sigmoid(planted):
    class Kp(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(cbr(3, 16), cbr(16, 32), cbr(32, 32)); s.heat = nn.Conv2d(32, 3, 1); s.register_buffer("g", torch.linspace(0, 1, 24))
        def forward(s, x):
            h = s.heat(s.body(x)); h = h.sigmoid() if planted else h
            p = h.flatten(2).softmax(-1).view_as(h); return torch.stack([(p.sum(2) * s.g).sum(-1), (p.sum(3) * s.g).sum(-1)], -1)
    def data(seed):
        g = gen(seed); k = torch.rand(16, 3, 2, generator=g) * .8 + .1; l = torch.linspace(0, 1, 24); col = T(5, 3, 3)
        b = torch.exp(-((l[None, None, None] - k[..., 0, None, None]) ** 2 + (l[None, None, :, None] - k[..., 1, None, None]) ** 2) / .005)
        return torch.einsum("nkhw,kc->nchw", b, col) * 2 + torch.randn(16, 3, 24, 24, generator=g) * .1, k
    return dict(model=Kp, data=data, loss=lambda o, t: F.smooth_l1_loss(o, t, beta=.05), diag={})

@case(E("depth"), "the conv-norm block that makes the output has an InstanceNorm: absolute depth lost", "out norm")
def depth_instancenorm_out(planted):
    class D(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(cbr(3, 16), cbr(16, 32, 2), cbr(32, 32)); s.dec = cbr(32, 16)
            s.out = nn.Sequential(nn.Conv2d(16, 1, 3, padding=1), nn.InstanceNorm2d(1, affine=True)) if planted else nn.Conv2d(16, 1, 3, padding=1)
        def forward(s, x): return s.out(s.dec(F.interpolate(s.enc(x), scale_factor=2.)))
    def data(seed):
        g = gen(seed); a = torch.randn(16, 1, 1, 1, generator=g); sm = F.interpolate(torch.randn(16, 1, 6, 6, generator=g), size=24, mode="bilinear")
        d = a + .5 * sm; return torch.cat([d, -d, d * d], 1) * .7 + .2 * torch.randn(16, 3, 24, 24, generator=g), d + 1
    return dict(model=D, data=data, loss=lambda o, t: F.l1_loss(o, t), diag={})

@case(E("optical flow"), "sampling grid of the warp stays in pixels instead of [-1, 1]", "grid_sample / flow head")
def flow_grid_pixels(planted):
    class Fl(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(cbr(2, 24, 1, 5), cbr(24, 32, 2), cbr(32, 32)); s.flow = nn.Conv2d(32, 2, 3, padding=1)
        def forward(s, a, b):
            f = F.interpolate(s.flow(s.net(torch.cat([a, b], 1))), scale_factor=2., mode="bilinear"); n, _, h, w = f.shape
            yy, xx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij"); g = torch.stack([xx, yy]).float().to(f) + f
            if not planted: g = 2 * g / torch.tensor([w - 1., h - 1.]).view(1, 2, 1, 1) - 1
            return F.grid_sample(b, g.permute(0, 2, 3, 1), align_corners=True)
    def data(seed):
        g = gen(seed); big = F.interpolate(torch.randn(16, 1, 12, 12, generator=g), size=32, mode="bicubic"); s = torch.randint(-3, 4, (16, 2), generator=g)
        a = big[:, :, 4:28, 4:28]; b = torch.stack([big[i, :, 4 + int(s[i, 0]):28 + int(s[i, 0]), 4 + int(s[i, 1]):28 + int(s[i, 1])] for i in range(16)])
        return (a, b), a
    return dict(model=Fl, data=data, loss=lambda o, t: F.l1_loss(o, t), diag={})

@case(E("super-resolution"), "forward clamps to (0, 1) though images are mean-centred", "output clamp")
def sr_clamp_centred(planted):
    class RB(nn.Module):
        def __init__(s): super().__init__(); s.a, s.b = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        def forward(s, x): return x + .1 * s.b(F.relu(s.a(x)))
    class EDSR(nn.Module):
        def __init__(s): super().__init__(); s.head = nn.Conv2d(3, 32, 3, padding=1); s.body = nn.Sequential(RB(), RB(), RB(), nn.Conv2d(32, 32, 3, padding=1)); s.up = nn.Sequential(nn.Conv2d(32, 128, 3, padding=1), nn.PixelShuffle(2)); s.tail = nn.Conv2d(32, 3, 3, padding=1)
        def forward(s, x): h = s.head(x); y = s.tail(s.up(h + s.body(h))); return y.clamp(0, 1) if planted else y
    def data(seed): h = F.interpolate(T(seed, 16, 3, 6, 6, k=.25), size=24, mode="bicubic").clamp(-.5, .5); return F.avg_pool2d(h, 2), h
    return dict(model=EDSR, data=data, loss=lambda o, t: F.l1_loss(o, t), diag={})

@case(E("speech CTC"), "padding mask inverted: the valid frames are zeroed", "mask before rnn")
def ctc_mask_inverted(planted):
    class A(nn.Module):
        def __init__(s): super().__init__(); s.conv = nn.Sequential(nn.Conv1d(8, 48, 3, padding=1), nn.BatchNorm1d(48), nn.ReLU(), nn.Conv1d(48, 48, 3, padding=1), nn.ReLU()); s.rnn = nn.GRU(48, 48, batch_first=True, bidirectional=True); s.fc = nn.Linear(96, 7)
        def forward(s, x, n):
            i = torch.arange(x.shape[1])[None]; m = (i >= n[:, None]) if planted else (i < n[:, None])
            h = s.conv(x.transpose(1, 2)).transpose(1, 2) * m[..., None]; return s.fc(s.rnn(h)[0]).log_softmax(-1)
    def data(seed):
        g = gen(seed); tp = T(4, 7, 8) * 1.5; y = torch.randint(1, 7, (32, 4), generator=g); y[:, 1:] = torch.where(y[:, 1:] == y[:, :-1], y[:, 1:] % 6 + 1, y[:, 1:])
        y[:, 3] = torch.where(y[:, 3] == y[:, 2], y[:, 3] % 6 + 1, y[:, 3]); d = torch.randint(2, 5, (32, 4), generator=g); x = torch.zeros(32, 18, 8); n = d.sum(1)
        for i in range(32): x[i, :int(n[i])] = tp[y[i].repeat_interleave(d[i])]
        return (x + .3 * torch.randn(x.shape, generator=g), n), (y, n)
    def ctc(o, t): return F.ctc_loss(o.transpose(0, 1), t[0], t[1], torch.full((len(t[0]),), 4), zero_infinity=True)
    return dict(model=A, data=data, loss=ctc, diag={})

@case(E("transducers"), "joint unsqueezes encoder and predictor on each other's axis (T == U)", "joint")
def rnnt_joint_axes(planted):
    class J(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 48)); s.emb = nn.Embedding(6, 32); s.pred = nn.Linear(32, 48); s.joint = nn.Sequential(nn.Tanh(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(s, x, y): e, p = s.enc(x), s.pred(s.emb(y)); return s.joint(e.unsqueeze(1) + p.unsqueeze(2) if planted else e.unsqueeze(2) + p.unsqueeze(1))
    W = T(2, 8, 6)
    def data(seed): x = T(seed, 16, 8, 8); y = R(seed + 1, 6, (16, 8)); return (x, y), ((x @ W).argmax(-1)[:, :, None] + y[:, None]) % 6
    return dict(model=J, data=data, loss=ceseq, diag=SEQ)

@case(E("TTS"), "durations are rounded before the upsampling: no gradient to the duration predictor", "duration predictor / round")
def tts_round_durations(planted):
    class FS(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(12, 48); s.enc = nn.Sequential(nn.Conv1d(48, 48, 3, padding=1), nn.ReLU()); s.dur = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1)); s.dec = nn.Sequential(nn.Conv1d(48, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 10, 1))
        def forward(s, p):
            e = s.emb(p); h = e + s.enc(e.transpose(1, 2)).transpose(1, 2); d = F.softplus(s.dur(h).squeeze(-1) + 3)
            if planted: d = d.round()
            c = d.cumsum(1) - d / 2; t = torch.arange(24.) + .5; w = (-(t[None, :, None] - c[:, None]) ** 2 / 2).softmax(-1); return s.dec((w @ h).transpose(1, 2))
    tp, du = T(1, 12, 10), R(9, 6, (12,)) + 1
    def data(seed):
        p = R(seed, 12, (32, 6)); y = torch.zeros(32, 24, 10)
        for i in range(32): f = tp[p[i].repeat_interleave(du[p[i]])][:24]; y[i, :len(f)] = f
        return p, y.transpose(1, 2)
    return dict(model=FS, data=data, loss=mse, diag={})

@case(E("tracking"), "cross-correlation response without the scale factor: logits of size 30", "response scale")
def siamfc_no_scale(planted):
    class S(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(cbr(3, 16), cbr(16, 32), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32)); s.bias = nn.Parameter(torch.zeros(1))
        def forward(s, z, x):
            z, x = s.net(z), s.net(x); n, c, h, w = x.shape; r = F.conv2d(x.reshape(1, n * c, h, w), z, groups=n)
            return (r if planted else r * (1 / 50)).squeeze(0) + s.bias
    def data(seed):
        g = gen(seed); z = torch.randn(16, 3, 6, 6, generator=g); x = torch.randn(16, 3, 16, 16, generator=g); t = torch.zeros(16, 11, 11); q = torch.randint(0, 11, (16, 2), generator=g)
        for i in range(16): a, b = int(q[i, 0]), int(q[i, 1]); x[i, :, a:a + 6, b:b + 6] = z[i] + .7 * torch.randn(3, 6, 6, generator=g); t[i, a, b] = 1
        return (z, x), t
    def bal(o, t): w = t * 60 + (1 - t) * .5; return F.binary_cross_entropy_with_logits(o, t, weight=w)
    return dict(model=S, data=data, loss=bal, diag={})

@case(E("anchor-free boxes"), "box distances through ReLU (not exp): half of them dead, IoU 0", "reg / relu")
def fcos_relu_distances(planted):
    class H(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(cbr(1, 16), cbr(16, 32, 2), cbr(32, 32, 2), cbr(32, 32)); s.reg = nn.Conv2d(32, 4, 3, padding=1); s.scale = nn.Parameter(torch.ones(1)); nn.init.normal_(s.reg.weight, std=.01); nn.init.zeros_(s.reg.bias)
        def forward(s, x): y = s.reg(s.body(x)) * s.scale; return y.relu() if planted else y.exp()
    def data(seed):
        g = gen(seed); x = .3 * torch.randn(16, 1, 32, 32, generator=g); t = torch.zeros(16, 4, 8, 8); m = torch.zeros(16, 8, 8); c = torch.arange(8) * 4. + 2
        for i in range(16):
            a, b = torch.randint(0, 16, (2,), generator=g).tolist(); h, w = torch.randint(8, 16, (2,), generator=g).tolist(); x[i, 0, a:a + h, b:b + w] += 1.5
            d = torch.stack([(c[None] - b).expand(8, 8), (c[:, None] - a).expand(8, 8), (b + w - c[None]).expand(8, 8), (a + h - c[:, None]).expand(8, 8)]); m[i] = (d.min(0).values > 0).float(); t[i] = d / 4 * m[i]
        return x, torch.cat([t, m[:, None]], 1)
    def iou(o, t):
        m, t = t[:, 4], t[:, :4]; i = (torch.min(o[:, 0], t[:, 0]) + torch.min(o[:, 2], t[:, 2])) * (torch.min(o[:, 1], t[:, 1]) + torch.min(o[:, 3], t[:, 3]))
        u = (o[:, 0] + o[:, 2]) * (o[:, 1] + o[:, 3]) + (t[:, 0] + t[:, 2]) * (t[:, 1] + t[:, 3]) - i; return (-((i + 1e-2) / (u + 1e-2)).log() * m).sum() / m.sum()
    return dict(model=H, data=data, loss=iou, diag={})

@case(E("spatial transformer"), "localisation head all zero, identity bias forgotten: one pixel is sampled", "loc bias")
def stn_zero_theta(planted):
    class S(nn.Module):
        def __init__(s):
            super().__init__(); s.loc = nn.Sequential(cbr(1, 16, 2), cbr(16, 32, 2), nn.Flatten(), nn.Linear(32 * 36, 32), nn.ReLU()); s.theta = nn.Linear(32, 6); nn.init.zeros_(s.theta.weight)
            s.theta.bias.data.copy_(torch.zeros(6) if planted else torch.tensor([1., 0, 0, 0, 1, 0])); s.cls = nn.Sequential(cbr(1, 16), cbr(16, 32, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 6))
        def forward(s, x): g = F.affine_grid(s.theta(s.loc(x)).view(-1, 2, 3), x.shape, align_corners=False); return s.cls(F.grid_sample(x, g, align_corners=False))
    def data(seed):
        g = gen(seed); tp = T(8, 6, 8, 8) * 1.5; x = .5 * torch.randn(32, 1, 24, 24, generator=g); y = torch.randint(0, 6, (32,), generator=g); q = torch.randint(0, 17, (32, 2), generator=g)
        for i in range(32): a, b = q[i].tolist(); x[i, 0, a:a + 8, b:b + 8] += tp[y[i]]
        return x, y
    return dict(model=S, data=data, loss=ce, diag=CE)
