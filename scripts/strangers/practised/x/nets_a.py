from com import *

@case("paper: LeNet (Gradient-based learning)", "pixels left at 0..255 before scaled-tanh units (paper: -0.1..1.175)", "c1 / input")
def lenet_raw_pixels(planted):
    class S(nn.Module):
        def forward(s, x): return 1.7159 * torch.tanh(2 / 3 * x)
    class LeNet(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = nn.Conv2d(1, 6, 5, padding=2); s.c3 = nn.Conv2d(6, 16, 5); s.c5 = nn.Conv2d(16, 120, 5)
            s.f6 = nn.Linear(120, 84); s.out = nn.Linear(84, 10); s.a = S(); s.p = nn.AvgPool2d(2)
        def forward(s, x):
            x = s.p(s.a(s.c1(x))); x = s.p(s.a(s.c3(x))); x = s.a(s.c5(x)).flatten(1); return s.out(s.a(s.f6(x)))
    def data(seed):
        x, y = imgs(seed, 32, 1, 28, noise=.8, g=7); x = (x * .2 + .4).clamp(0, 1).mul(255).round()
        return (x if planted else (x / 255 * 1.275 - .1 - .4)), y
    return dict(model=LeNet, data=data, loss=ce, diag={})

@case("paper: ResNet (+ zero-init of the last gamma)", "zero-init loop hits every BatchNorm without ReLU: also the downsample shortcut's", "layer2.0/layer3.0 down BN")
def resnet_zero_shortcut(planted):
    class Block(nn.Module):
        def __init__(s, i, o, st):
            super().__init__(); s.conv1 = nn.Conv2d(i, o, 3, st, 1, bias=False); s.bn1 = nn.BatchNorm2d(o)
            s.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False); s.bn2 = nn.BatchNorm2d(o)
            s.down = nn.Sequential(nn.Conv2d(i, o, 1, st, bias=False), nn.BatchNorm2d(o)) if st != 1 or i != o else nn.Identity()
        def forward(s, x): return F.relu(s.bn2(s.conv2(F.relu(s.bn1(s.conv1(x))))) + s.down(x))
    class ResNet(nn.Module):
        def __init__(s):
            super().__init__(); s.stem = cbr(3, 16); s.layer1 = nn.Sequential(Block(16, 16, 1), Block(16, 16, 1))
            s.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1)); s.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1)); s.fc = nn.Linear(64, 10)
            for m in s.modules():
                if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                if isinstance(m, Block):
                    nn.init.zeros_(m.bn2.weight)
                    if planted and isinstance(m.down, nn.Sequential): nn.init.zeros_(m.down[1].weight)
        def forward(s, x): return s.fc(s.layer3(s.layer2(s.layer1(s.stem(x)))).mean((2, 3)))
    return dict(model=ResNet, data=lambda seed: imgs(seed, 32, hw=16, noise=1.5), loss=ce, diag={})

@case("paper: DenseNet", "keep probability 0.8 passed as dropout's p in every dense layer", "dense layers' dropout")
def densenet_keep_prob(planted):
    class Layer(nn.Module):
        def __init__(s, i, k):
            super().__init__(); s.n1 = nn.BatchNorm2d(i); s.c1 = nn.Conv2d(i, 4 * k, 1, bias=False); s.n2 = nn.BatchNorm2d(4 * k); s.c2 = nn.Conv2d(4 * k, k, 3, padding=1, bias=False)
            s.drop = nn.Dropout(.8 if planted else .2)
        def forward(s, x): return torch.cat([x, s.drop(s.c2(F.relu(s.n2(s.c1(F.relu(s.n1(x)))))))], 1)
    class Dense(nn.Module):
        def __init__(s, k=8):
            super().__init__(); s.stem = nn.Conv2d(3, 16, 3, 2, 1, bias=False); c = 16; bl = []
            for b in range(3):
                for _ in range(3): bl.append(Layer(c, k)); c += k
                if b < 2: bl += [cbr(c, c // 2, 1), nn.AvgPool2d(2)]; c //= 2
            s.blocks = nn.Sequential(*bl); s.norm = nn.BatchNorm2d(c); s.fc = nn.Linear(c, 10)
            for m in s.modules():
                if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight)
        def forward(s, x): return s.fc(F.relu(s.norm(s.blocks(s.stem(x)))).mean((2, 3)))
    return dict(model=Dense, data=lambda seed: imgs(seed, 32, hw=32, noise=1.), loss=ce, diag={})

@case("paper: MobileNetV2", "global pooling averages the channels (flatten(2).mean(1)); 64 channels x 64 places, so shapes fit", "pool / classifier")
def mobilenet_pool_dim(planted):
    class IR(nn.Module):
        def __init__(s, i, o, st, t=4):
            super().__init__(); h = i * t; s.res = st == 1 and i == o
            s.net = nn.Sequential(cbr(i, h, 1, act=nn.ReLU6), cbr(h, h, 3, st, h, act=nn.ReLU6), nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))
        def forward(s, x): return x + s.net(x) if s.res else s.net(x)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.features = nn.Sequential(cbr(3, 16, 3, 2, act=nn.ReLU6), IR(16, 16, 1), IR(16, 24, 2), IR(24, 24, 1), cbr(24, 64, 1, act=nn.ReLU6)); s.classifier = nn.Linear(64, 10)
            for m in s.modules():
                if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight, mode="fan_out")
        def forward(s, x): x = s.features(x).flatten(2); return s.classifier(x.mean(1) if planted else x.mean(2))
    def data(seed):   # texture classes at random places
        y = R(seed, 10, (32,)); t = T(7, 10, 3, 8, 8).repeat(1, 1, 5, 5); o = R(seed + 3, 8, (32, 2)); x = torch.stack([t[int(k), :, int(a):int(a) + 32, int(b):int(b) + 32] for k, (a, b) in zip(y, o)])
        return x + .5 * T(seed + 1, 32, 3, 32, 32), y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: MobileNetV3 / SENet", "hard sigmoid written relu6(x)/6 without the +3, in the squeeze-and-excite gates", "se gates")
def mobilenetv3_hsigmoid(planted):
    class SE(nn.Module):
        def __init__(s, c): super().__init__(); s.fc1 = nn.Conv2d(c, c // 4, 1); s.fc2 = nn.Conv2d(c // 4, c, 1)
        def forward(s, x): z = s.fc2(F.relu(s.fc1(x.mean((2, 3), keepdim=True)))); return x * (F.relu6(z if planted else z + 3) / 6)
    class B(nn.Module):
        def __init__(s, i, o, st):
            super().__init__(); h = 3 * i; s.exp = cbr(i, h, 1, act=nn.Hardswish); s.dw = nn.Sequential(nn.Conv2d(h, h, 3, st, 1, groups=h, bias=False), nn.BatchNorm2d(h)); s.se = SE(h); s.proj = nn.Sequential(nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o)); s.res = st == 1 and i == o
        def forward(s, x): y = s.proj(F.hardswish(s.se(s.dw(s.exp(x))))); return x + y if s.res else y
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = cbr(3, 16, 3, 2, act=nn.Hardswish); s.blocks = nn.Sequential(B(16, 16, 1), B(16, 24, 2), B(24, 24, 1), B(24, 40, 2)); s.fc = nn.Linear(40, 10)
        def forward(s, x): return s.fc(s.blocks(s.stem(x)).mean((2, 3)))
    return dict(model=Net, data=lambda seed: imgs(seed, 32, hw=32, noise=1.), loss=ce, diag={})

@case("paper: NFNet / SkipInit", "SkipInit's zero scalar together with zero-initialised last convolution: product never moves", "blocks gain / conv3")
def nfnet_double_zero(planted):
    class WSConv(nn.Conv2d):
        def __init__(s, *a, **k): super().__init__(*a, **k); s.gain = nn.Parameter(torch.ones(s.out_channels, 1, 1, 1))
        def forward(s, x):
            w = s.weight; v, m = torch.var_mean(w, dim=(1, 2, 3), keepdim=True); f = w[0].numel(); w = (w - m) * torch.rsqrt((v * f).clamp(min=1e-4)) * s.gain
            return F.conv2d(x, w, s.bias, s.stride, s.padding)
    act = lambda x: F.gelu(x) * 1.7015
    class Blk(nn.Module):
        def __init__(s, i, o, st, beta):
            super().__init__(); s.beta = beta; s.down = WSConv(i, o, 1) if st > 1 or i != o else None; s.st = st
            s.conv1 = WSConv(i, o // 2, 1); s.conv2 = WSConv(o // 2, o // 2, 3, st, 1); s.conv3 = WSConv(o // 2, o, 1); s.skip_gain = nn.Parameter(torch.zeros(()))
            if planted: nn.init.zeros_(s.conv3.weight); nn.init.zeros_(s.conv3.gain)
        def forward(s, x):
            y = act(x) * s.beta; sc = x if s.down is None else s.down(F.avg_pool2d(y, 2) if s.st > 1 else y)
            return sc + .2 * s.skip_gain * s.conv3(act(s.conv2(act(s.conv1(y)))))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = WSConv(3, 32, 3, 2, 1); s.blocks = nn.Sequential(Blk(32, 64, 1, 1.), Blk(64, 64, 1, .98), Blk(64, 64, 1, .97)); s.fc = nn.Linear(64, 10); nn.init.normal_(s.fc.weight, 0, .01)
        def forward(s, x): return s.fc(act(s.blocks(s.stem(x))).mean((2, 3)))
    return dict(model=Net, data=lambda seed: mob(seed), loss=ce, diag={})

def mob(seed):
    y = R(seed, 10, (32,)); t = T(8, 10, 3, 8, 8).repeat(1, 1, 4, 4); o = R(seed + 3, 8, (32, 2)); x = torch.stack([t[int(k), :, int(a):int(a) + 24, int(b):int(b) + 24] for k, (a, b) in zip(y, o)])
    return x + .3 * T(seed + 1, 32, 3, 24, 24), y

@case("paper: VGG", "soft-max layer of the paper's table built into the network in front of cross entropy", "head softmax")
def vgg_softmax_head(planted):
    class VGG(nn.Module):
        def __init__(s):
            super().__init__(); L = []; c = 3
            for v in (16, 16, "M", 32, 32, "M", 64, 64, "M"):
                if v == "M": L.append(nn.MaxPool2d(2))
                else: L += [nn.Conv2d(c, v, 3, padding=1), nn.ReLU()]; c = v
            s.features = nn.Sequential(*L); s.classifier = nn.Sequential(nn.Linear(64 * 4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 20))
            if planted: s.classifier.append(nn.Softmax(1))
            for m in s.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)): nn.init.kaiming_normal_(m.weight); nn.init.zeros_(m.bias)
            nn.init.normal_(s.classifier[4].weight, 0, .05)
        def forward(s, x): return s.classifier(s.features(x).flatten(1))
    return dict(model=VGG, data=lambda seed: imgs(seed, 32, hw=16, k=20, noise=1.2), loss=ce, diag={})

@case("paper: U-Net", "decoder concatenates the upsampled map with itself: skip connections unused", "up blocks' concatenation")
def unet_no_skip(planted):
    def dc(i, o): return nn.Sequential(cbr(i, o), cbr(o, o))
    class UNet(nn.Module):
        def __init__(s):
            super().__init__(); s.d1 = dc(1, 16); s.d2 = dc(16, 32); s.d3 = dc(32, 64); s.mid = dc(64, 64)
            s.u3 = nn.ConvTranspose2d(64, 64, 2, 2); s.c3 = dc(128, 32); s.u2 = nn.ConvTranspose2d(32, 32, 2, 2); s.c2 = dc(64, 16); s.u1 = nn.ConvTranspose2d(16, 16, 2, 2); s.c1 = dc(32, 16); s.out = nn.Conv2d(16, 2, 1)
        def forward(s, x):
            a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); c = s.d3(F.max_pool2d(b, 2)); x = s.mid(F.max_pool2d(c, 2))
            for up, cv, sk in ((s.u3, s.c3, c), (s.u2, s.c2, b), (s.u1, s.c1, a)): x = up(x); x = cv(torch.cat([x if planted else sk, x], 1))
            return s.out(x)
    def data(seed):
        m = (F.conv2d(T(seed, 8, 1, 32, 32), torch.ones(1, 1, 3, 3) / 3, padding=1) > .6).long()[:, 0]; return m[:, None].float() + .5 * T(seed + 1, 8, 1, 32, 32), m
    return dict(model=UNet, data=data, loss=ce, diag={})

@case("paper: RetinaNet (focal loss, FPN)", "prior bias of the classification head with flipped sign: log((1-pi)/pi) = +4.6", "cls_head[-1].bias")
def retinanet_prior_sign(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.c3 = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 32)); s.c4 = cbr(32, 48, 3, 2); s.c5 = cbr(48, 64, 3, 2)
            s.l3 = nn.Conv2d(32, 32, 1); s.l4 = nn.Conv2d(48, 32, 1); s.l5 = nn.Conv2d(64, 32, 1); s.smooth = nn.Conv2d(32, 32, 3, padding=1)
            s.cls_head = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 4, 3, padding=1))
            for m in s.cls_head:
                if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight); nn.init.zeros_(m.bias)
            nn.init.normal_(s.cls_head[4].weight, 0, .01); nn.init.constant_(s.cls_head[4].bias, (1 if planted else -1) * math.log(.99 / .01))
        def forward(s, x):
            c3 = s.c3(x); c4 = s.c4(c3); c5 = s.c5(c4); p = s.l4(c4) + F.interpolate(s.l5(c5), scale_factor=2); p = s.l3(c3) + F.interpolate(p, scale_factor=2)
            return s.cls_head(s.smooth(p))
    def focal(o, t):
        p = o.sigmoid(); b = F.binary_cross_entropy_with_logits(o, t, reduction="none"); pt = p * t + (1 - p) * (1 - t); a = .25 * t + .75 * (1 - t); return (a * (1 - pt) ** 2 * b).sum() / o.shape[0] / 4
    def data(seed):
        x = .3 * T(seed, 8, 3, 32, 32); t = torch.zeros(8, 4, 16, 16); pat = T(5, 4, 3, 6, 6); k = R(seed + 1, 4, (8, 4)); pos = R(seed + 2, 13, (8, 4, 2))
        for b in range(8):
            for j in range(4): i, l = pos[b, j].tolist(); x[b, :, 2*i:2*i+6, 2 * l:2 * l + 6] += 1.5 * pat[k[b, j]]; t[b, k[b, j], i + 1, l + 1] = 1
        return x, t
    return dict(model=Net, data=data, loss=focal, diag={})

@case("paper: Fast R-CNN", "regions given in image pixels on the stride-4 feature map (spatial_scale forgotten)", "roi pooling / fc6")
def fastrcnn_spatial_scale(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 32, 3, 2), cbr(32, 32)); s.fc6 = nn.Linear(32 * 16, 64); s.fc7 = nn.Linear(64, 64); s.cls = nn.Linear(64, 6)
        def forward(s, x, boxes):
            f = s.body(x); H = f.shape[-1]; b = boxes * (1. if planted else .25); u = (torch.arange(4.) + .5) / 4
            px = b[:, 0:1] + (b[:, 2:3] - b[:, 0:1]) * u; py = b[:, 1:2] + (b[:, 3:4] - b[:, 1:2]) * u
            g = torch.stack([px[:, None, :].expand(-1, 4, 4), py[:, :, None].expand(-1, 4, 4)], -1) * 2 / H - 1
            r = F.grid_sample(f, g, align_corners=False); return s.cls(F.relu(s.fc7(F.relu(s.fc6(r.flatten(1))))))
    def data(seed):
        x = .5 * T(seed, 32, 3, 64, 64); y = R(seed + 1, 6, (32,)); p = R(seed + 2, 24, (32, 2)) + 20; pat = F.interpolate(T(3, 6, 3, 4, 4), size=16)
        for i in range(32): a, b = p[i].tolist(); x[i, :, b:b + 16, a:a + 16] += pat[y[i]]; 
        return (x, torch.cat([p, p + 16], 1).float()), y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: YOLO", "square root of width/height taken of clamp(min=1e-6): boxes with negative raw size get no gradient", "head / wh clamp")
def yolo_sqrt_clamp(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.body = nn.Sequential(*[nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.1)) for i, o in ((3, 16), (16, 32), (32, 64))]); s.fc = nn.Linear(64 * 16, 128); s.head = nn.Linear(128, 5)
        def forward(s, x):
            o = s.head(F.leaky_relu(s.fc(s.body(x).flatten(1)), .1)); wh = o[:, 2:4].clamp(min=1e-6) if planted else o[:, 2:4].sigmoid()
            return torch.cat([o[:, :2].sigmoid(), wh.sqrt(), o[:, 4:].sigmoid()], 1)
    def loss(o, t): return 5 * ((o[:, :2] - t[:, :2]) ** 2).sum(1).mean() + 5 * ((o[:, 2:4] - t[:, 2:4].sqrt()) ** 2).sum(1).mean() + ((o[:, 4] - t[:, 4]) ** 2).mean()
    def data(seed):
        g = gen(seed); c = torch.rand(32, 2, generator=g) * .5 + .25; wh = torch.rand(32, 2, generator=g) * .4 + .1; u = (torch.arange(32.) + .5) / 32
        m = ((u[None, None] - c[..., None]).abs() < wh[..., None] / 2).float(); im = m[:, 1, :, None] * m[:, 0, None, :]
        return im[:, None] * torch.tensor([1., .5, -.5])[None, :, None, None] + .2 * T(seed + 1, 32, 3, 32, 32), torch.cat([c, wh, torch.ones(32, 1)], 1)
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: SSD", "hard negative mining sorts ascending: the easiest background anchors are kept", "loss (mining)")
def ssd_easy_negatives(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.b1 = nn.Sequential(cbr(3, 24, 3, 2), cbr(24, 32)); s.b2 = cbr(32, 48, 3, 2); s.h1 = nn.Conv2d(32, 5, 3, padding=1); s.h2 = nn.Conv2d(48, 5, 3, padding=1)
        def forward(s, x): a = s.b1(x); b = s.b2(a); return torch.cat([s.h1(a).flatten(2), s.h2(b).flatten(2)], 2).transpose(1, 2)
    def mk(pl):
        def loss(o, t):
            l = F.cross_entropy(o.transpose(1, 2), t, reduction="none"); pos = t > 0; n = (3 * pos.sum(1)).clamp(max=t.shape[1] - 1)
            neg = l.detach().masked_fill(pos, float("inf") if pl else 0.); r = neg.argsort(1, descending=not pl).argsort(1); keep = (r < n[:, None]) & ~pos
            return (l * (pos | keep)).sum() / pos.sum()
        return loss
    def data(seed):
        x = .3 * T(seed, 8, 3, 32, 32); t = torch.zeros(8, 16 * 16 + 64, dtype=torch.long); pat = T(5, 4, 3, 6, 6); k = R(seed + 1, 4, (8, 3)); pos = R(seed + 2, 13, (8, 3, 2))
        for b in range(8):
            for j in range(3): i, l = pos[b, j].tolist(); x[b, :, 2*i:2*i+6, 2 * l:2 * l + 6] += 1.5 * pat[k[b, j]]; t[b, (i + 1) * 16 + l + 1] = k[b, j] + 1
        return x, t
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: CenterNet", "gaussians drawn at the unrounded centre: no pixel equals 1, so gt.eq(1) finds no positives", "loss / heatmap targets")
def centernet_no_peak(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(cbr(3, 24, 3, 2), cbr(24, 32), cbr(32, 32)); s.hm = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 1)); nn.init.constant_(s.hm[2].bias, -2.19)
        def forward(s, x): return s.hm(s.body(x)).sigmoid().clamp(1e-4, 1 - 1e-4)
    def loss(o, t):
        g = t[:, 1 if planted else 0]; pos = g.eq(1).float(); n = pos.sum().clamp(min=1)
        return -(((1 - o) ** 2 * o.log() * pos).sum() + ((1 - g) ** 4 * o ** 2 * (1 - o).log() * (1 - pos)).sum()) / (n if not planted else 24)
    def data(seed):
        x = .3 * T(seed, 8, 3, 32, 32); t = torch.zeros(8, 2, 3, 16, 16); pat = T(5, 3, 3, 6, 6); k = R(seed + 1, 3, (8, 3)); pos = R(seed + 2, 26, (8, 3, 2)); u = torch.arange(16.)
        for b in range(8):
            for j in range(3):
                i, l = pos[b, j].tolist(); x[b, :, i:i + 6, l:l + 6] += 1.5 * pat[k[b, j]]; cy, cx = (i + 3) / 2 + .2, (l + 3) / 2 + .2
                for q, (a, c) in enumerate(((int(cy), int(cx)), (cy, cx))): h = torch.exp(-((u[:, None] - a) ** 2 + (u[None] - c) ** 2) / 2); t[b, q, k[b, j]] = torch.maximum(t[b, q, k[b, j]], h)
        return x, t
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: DETR", "object queries never added in the decoder (tgt zeros alone): all slots the same", "decoder query_embed")
def detr_no_queries(planted):
    import itertools; P = torch.tensor(list(itertools.permutations(range(4))))
    class Net(nn.Module):
        def __init__(s, d=64):
            super().__init__(); s.body = nn.Sequential(cbr(3, 24, 3, 2), cbr(24, 32, 3, 2)); s.proj = nn.Conv2d(32, d, 1); s.pos = nn.Parameter(torch.randn(64, d) * .5); s.query_embed = nn.Embedding(4, d)
            s.enc = Enc(d, 4); s.self_attn = nn.MultiheadAttention(d, 4, batch_first=True); s.cross = nn.MultiheadAttention(d, 4, batch_first=True); s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(3)); s.ff = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, d)); s.box = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 2))
        def forward(s, x):
            m = s.enc(s.proj(s.body(x)).flatten(2).transpose(1, 2) + s.pos); t = torch.zeros(x.shape[0], 4, m.shape[-1]); qe = s.query_embed.weight[None].expand_as(t)
            q = t if planted else t + qe; t = s.n[0](t + s.self_attn(q, q, t)[0]); t = s.n[1](t + s.cross(t if planted else t + qe, m + s.pos, m)[0]); t = s.n[2](t + s.ff(t)); return s.box(t).sigmoid()
    def loss(o, t):
        d = (o[:, :, None] - t[:, None]).abs().sum(-1); c = torch.stack([d[:, torch.arange(4), p].sum(1) for p in P], 1); return c.min(1).values.mean()
    def data(seed):
        c = torch.rand(16, 4, 2, generator=gen(seed)) * .6 + .2; c[:, :, 0] = c[:, :, 0] * .25 / .6 + torch.arange(4.) * .25; c = c.clamp(0, .95); u = (torch.arange(32.) + .5) / 32
        im = torch.exp(-((u[None, None, :, None] - c[:, :, 1, None, None]) ** 2 + (u[None, None, None] - c[:, :, 0, None, None]) ** 2) / .004).sum(1); return im[:, None] * torch.tensor([2., 1., -1.])[None, :, None, None] + .1 * T(seed + 1, 16, 3, 32, 32), c
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: Spatial transformer networks", "localisation head zeroed, but its bias not set to the identity: every sample reads the centre pixel", "fc_loc[-1].bias")
def stn_no_identity(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.loc = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2), nn.ReLU()); s.fc_loc = nn.Sequential(nn.Linear(10 * 4, 32), nn.ReLU(), nn.Linear(32, 6))
            nn.init.zeros_(s.fc_loc[2].weight); nn.init.zeros_(s.fc_loc[2].bias)
            if not planted: s.fc_loc[2].bias.data.copy_(torch.tensor([1., 0, 0, 0, 1, 0]))
            s.c1 = nn.Conv2d(1, 16, 5); s.c2 = nn.Conv2d(16, 32, 5); s.f1 = nn.Linear(32 * 9, 64); s.f2 = nn.Linear(64, 10)
        def forward(s, x):
            th = s.fc_loc(s.loc(x).flatten(1)).view(-1, 2, 3); x = F.grid_sample(x, F.affine_grid(th, x.shape, align_corners=False), align_corners=False)
            x = F.relu(F.max_pool2d(s.c1(x), 2)); x = F.relu(F.max_pool2d(s.c2(x), 2)); return s.f2(F.relu(s.f1(x.flatten(1))))
    return dict(model=Net, data=lambda seed: imgs(seed, 32, 1, 24, noise=.7), loss=ce, diag={})
