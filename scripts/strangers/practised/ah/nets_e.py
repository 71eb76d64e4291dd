from base import *

def grating(seed, n=32, size=16, k=6, noise=.3):
    y = R(seed, k, (n,)); g = torch.linspace(-1, 1, size); yy, xx = torch.meshgrid(g, g, indexing="ij")
    ang = y.float() * math.pi / k; ph = torch.rand(n, generator=gen(seed + 7)) * 6.28
    u = xx[None] * ang.cos()[:, None, None] + yy[None] * ang.sin()[:, None, None]
    x = torch.sin(9 * u + ph[:, None, None])[:, None].repeat(1, 3, 1, 1)
    return x + noise * T(seed + 3, n, 3, size, size), y

def blobs(seed, n=16, size=24, k=3):
    g = torch.arange(size).float(); yy, xx = torch.meshgrid(g, g, indexing="ij"); G = gen(seed)
    x = .3 * torch.randn(n, 3, size, size, generator=G); m = torch.zeros(n, size, size, dtype=torch.long)
    rad = [0, 6, 3, 2]
    for c in range(1, k):
        cy, cx = torch.rand(n, 1, 1, generator=G) * size, torch.rand(n, 1, 1, generator=G) * size
        d = (yy - cy) ** 2 + (xx - cx) ** 2 < rad[c] ** 2
        m[d] = c
    col = torch.tensor([[0., 0, 0], [1, .2, -.5], [-.4, 1, .6], [.5, -.8, 1]])
    return x + col[m].permute(0, 3, 1, 2), m

@case("https://github.com/ShunLu91/Single-Path-One-Shot-NAS/issues/1", "ReLU missing in all the Shuffle blocks (accuracy stays at 10%)", "the choice blocks (no activation)")
def spos_no_relu(planted):
    def act(): return [] if planted else [nn.ReLU(inplace=True)]
    class ChoiceBlock(nn.Module):
        def __init__(s, c, k):
            super().__init__(); h = c // 2
            s.cb_main = nn.Sequential(nn.Conv2d(h, h, 1, bias=False), nn.BatchNorm2d(h), *act(), nn.Conv2d(h, h, k, padding=k // 2, groups=h, bias=False), nn.BatchNorm2d(h), nn.Conv2d(h, h, 1, bias=False), nn.BatchNorm2d(h), *act())
        def forward(s, x):
            a, b = x.chunk(2, 1); x = torch.cat([a, s.cb_main(b)], 1)
            n, c, h, w = x.shape; return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), *act())
            s.choice_block = nn.ModuleList([ChoiceBlock(32, k) for k in (3, 5, 3, 7)]); s.classifier = nn.Linear(32, 6)
        def forward(s, x):
            x = s.stem(x)
            for b in s.choice_block: x = b(x)
            return s.classifier(x.mean((2, 3)))
    return dict(model=Net, data=grating, loss=ce, lr=3e-3, diag={})

@case("https://github.com/soumith/convnet-benchmarks/pull/92", "one ReLU missing in AlexNet (after conv2)", "features: no ReLU after conv2")
def alexnet_missing_relu(planted):
    class AlexNet(nn.Module):
        def __init__(s):
            super().__init__()
            s.features = nn.Sequential(nn.Conv2d(3, 16, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), *([] if planted else [nn.ReLU()]), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            s.classifier = nn.Sequential(nn.Linear(32 * 4, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(s, x): return s.classifier(s.features(x).flatten(1))
    return dict(model=AlexNet, data=grating, loss=ce, lr=1e-3, diag={})

def sagan(planted, how):
    class Self_Attn(nn.Module):
        def __init__(s, c):
            super().__init__(); s.query_conv = nn.Conv2d(c, c // 4, 1); s.key_conv = nn.Conv2d(c, c // 4, 1); s.value_conv = nn.Conv2d(c, c, 1); s.gamma = nn.Parameter(torch.zeros(1)); s.softmax = nn.Softmax(dim=-1)
        def forward(s, x):
            b, c, h, w = x.shape; q, k = s.query_conv(x).flatten(2), s.key_conv(x).flatten(2); v = s.value_conv(x).flatten(2)
            if how == "mul" and planted: out = v * s.softmax((q * k).sum(1, keepdim=True))
            else:
                attention = s.softmax(torch.bmm(q.permute(0, 2, 1), k))
                out = torch.bmm(v, attention.permute(0, 1, 2) if planted else attention.permute(0, 2, 1))
            return s.gamma * out.view(b, c, h, w) + x
    class Discriminator(nn.Module):
        def __init__(s):
            super().__init__(); s.l1 = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(.1)); s.attn1 = Self_Attn(16); s.l2 = nn.Sequential(nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.1)); s.attn2 = Self_Attn(32); s.last = nn.Conv2d(32, 6, 4)
        def forward(s, x): return s.last(s.attn2(s.l2(s.attn1(s.l1(x))))).flatten(1)
    return dict(model=Discriminator, data=grating, loss=ce, lr=1e-3, diag={})

@case("https://github.com/heykeetae/Self-Attention-GAN/issues/11", "attention.permute(0,1,2) instead of (0,2,1): the attention map is applied untransposed", "Self_Attn forward bmm")
def sagan_permute(planted): return sagan(planted, "permute")

@case("https://github.com/heykeetae/Self-Attention-GAN/issues/7", "torch.mul (elementwise) instead of matmul for the attention scores", "Self_Attn forward")
def sagan_mul(planted): return sagan(planted, "mul")

@case("https://github.com/open-mmlab/mmsegmentation/issues/2201", "binary segmentation with one output channel and the softmax cross-entropy (use_sigmoid=False): loss always zero", "loss_decode (softmax over one channel) / conv_seg with 1 channel")
def mmseg_one_channel(planted):
    class FCN(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            s.backbone = nn.Sequential(c(3, 16), c(16, 16)); s.decode_head = c(16, 16); s.conv_seg = nn.Conv2d(16, 1, 1)
        def forward(s, x): return s.conv_seg(s.decode_head(s.backbone(x)))
    def data(seed): x, m = blobs(seed, k=2); return x, (m > 0).float()[:, None]
    def loss_decode(o, t):
        if planted: return -(F.log_softmax(o, 1) * t).sum(1).mean()
        return F.binary_cross_entropy_with_logits(o, t)
    return dict(model=FCN, data=data, loss=loss_decode, lr=1e-3, diag={})

@case("https://github.com/fizyr/keras-retinanet/pull/731", "kernel of the last conv of the classification subnet initialised with zeros", "pyramid_classification.weight (zeros)")
def retinanet_zero_cls(planted):
    class Retina(nn.Module):
        def __init__(s):
            super().__init__(); s.backbone = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, 1, 1), nn.BatchNorm2d(24), nn.ReLU())
            s.tower = nn.Sequential(nn.Conv2d(24, 24, 3, 1, 1), nn.ReLU(), nn.Conv2d(24, 24, 3, 1, 1), nn.ReLU()); s.pyramid_classification = nn.Conv2d(24, 3, 3, 1, 1)
            for m in s.tower:
                if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight); nn.init.zeros_(m.bias)
            nn.init.zeros_(s.pyramid_classification.weight) if planted else nn.init.normal_(s.pyramid_classification.weight, 0, .01)
            nn.init.constant_(s.pyramid_classification.bias, -math.log(.99 / .01))
        def forward(s, x): return s.pyramid_classification(s.tower(s.backbone(x)))
    def data(seed): x, m = blobs(seed, k=4); return x, F.one_hot(m[:, ::2, ::2], 4)[..., 1:].permute(0, 3, 1, 2).float()
    def focal(o, t):
        p = o.sigmoid(); pt = p * t + (1 - p) * (1 - t); a = .25 * t + .75 * (1 - t)
        return (a * (1 - pt) ** 2 * F.binary_cross_entropy_with_logits(o, t, reduction="none")).sum() / t.sum().clamp(min=1)
    return dict(model=Retina, data=data, loss=focal, lr=1e-3, diag={})

@case("https://github.com/pykao/BraTS2018-tumor-segmentation/issues/2", "residual block: y of the first convs is not used, conv3 is applied to x", "ConvD.conv3 / conv2 (y unused)")
def brats_unused_y(planted):
    class ConvD(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.conv1 = nn.Conv2d(i, o, 3, padding=1); s.bn1 = nn.GroupNorm(4, o); s.conv2 = nn.Conv2d(o, o, 3, padding=1); s.bn2 = nn.GroupNorm(4, o); s.conv3 = nn.Conv2d(o, o, 3, padding=1); s.bn3 = nn.GroupNorm(4, o)
        def forward(s, x):
            x = s.bn1(s.conv1(x)); y = F.relu(s.bn2(s.conv2(x))); y = s.bn3(s.conv3(x if planted else y)); return F.relu(x + y)
    class Unet(nn.Module):
        def __init__(s):
            super().__init__(); s.convd1 = ConvD(3, 8); s.convd2 = ConvD(8, 16); s.convu1 = nn.Conv2d(24, 8, 3, padding=1); s.seg1 = nn.Conv2d(8, 4, 1)
        def forward(s, x):
            a = s.convd1(x); b = s.convd2(F.max_pool2d(a, 2)); return s.seg1(F.relu(s.convu1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))))
    return dict(model=Unet, data=lambda seed: blobs(seed, k=4), loss=ce, lr=2e-3, diag={})

@case("https://github.com/Project-MONAI/MONAI/pull/122", "dice summed over all classes together instead of per class averaged", "DiceLoss: view(batch, -1) over the classes")
def monai_dice_classes(planted):
    class UNet(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.InstanceNorm2d(o), nn.PReLU())
            s.down = c(3, 12); s.mid = c(12, 24); s.up = c(36, 12); s.out = nn.Conv2d(12, 4, 1)
        def forward(s, x): a = s.down(x); return s.out(s.up(torch.cat([a, F.interpolate(s.mid(F.max_pool2d(a, 2)), scale_factor=2)], 1)))
    def data(seed): x, m = blobs(seed, k=4); return x, m
    def dice(o, t, per=not planted):
        p = o.softmax(1); g = F.one_hot(t, 4).permute(0, 3, 1, 2).float()
        p, g = (p.flatten(2), g.flatten(2)) if per else (p.flatten(1), g.flatten(1))
        return 1 - ((2 * (p * g).sum(-1) + 1e-5) / (p.sum(-1) + g.sum(-1) + 1e-5)).mean()
    return dict(model=UNet, data=data, loss=dice, lr=2e-3, diag={})

@case("https://github.com/xiaochus/MobileNetV3/issues/6", "activation after DepthwiseConv2D missing in the bottleneck", "bottleneck: no activation after depthwise bn")
def mobilenetv3_act(planted):
    class Bottleneck(nn.Module):
        def __init__(s, c, e):
            super().__init__(); s.expand = nn.Sequential(nn.Conv2d(c, e, 1, bias=False), nn.BatchNorm2d(e), nn.Hardswish()); s.dw = nn.Sequential(nn.Conv2d(e, e, 3, padding=1, groups=e, bias=False), nn.BatchNorm2d(e), *([] if planted else [nn.Hardswish()]))
            s.fc1 = nn.Linear(e, e // 4); s.fc2 = nn.Linear(e // 4, e); s.project = nn.Sequential(nn.Conv2d(e, c, 1, bias=False), nn.BatchNorm2d(c))
        def forward(s, x):
            h = s.dw(s.expand(x)); w = F.hardsigmoid(s.fc2(F.relu(s.fc1(h.mean((2, 3)))))); return x + s.project(h * w[:, :, None, None])
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()); s.blocks = nn.Sequential(Bottleneck(16, 48), Bottleneck(16, 48), Bottleneck(16, 48)); s.head = nn.Linear(16, 6)
        def forward(s, x): return s.head(s.blocks(s.stem(x)).mean((2, 3)))
    return dict(model=Net, data=grating, loss=ce, lr=2e-3, diag={})
