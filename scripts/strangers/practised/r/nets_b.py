from mods import *
def seg(seed, B=16, S=16, K=4):       # textured blobs: foreground classes rare
    y = torch.zeros(B, S, S, dtype=torch.long); g = gen(seed); c = T(31, K, 3)
    for i in range(B):
        for k in range(1, K):
            a, b = torch.randint(0, S - 5, (2,), generator=g).tolist(); y[i, a:a + 5, b:b + 5] = k
    return c[y].permute(0, 3, 1, 2) + .6 * T(seed + 1, B, 3, S, S), y
def oh(y, K=4): return F.one_hot(y, K).permute(0, 3, 1, 2).float()
def cbr(i, o, norm=nn.BatchNorm2d): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), norm(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1, bias=False), norm(o), nn.ReLU())
class UNet(nn.Module):
    def __init__(s, K=4, w=16, tail=None, gate=None, norm=nn.BatchNorm2d):
        super().__init__(); s.d1, s.d2, s.d3 = cbr(3, w, norm), cbr(w, 2 * w, norm), cbr(2 * w, 4 * w, norm); s.u2, s.u1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2); s.c2, s.c1 = cbr(4 * w, 2 * w, norm), cbr(2 * w, w, norm); s.last = nn.Conv2d(w, K, 1); s.tail = tail if tail is not None else nn.Identity(); s.gate = gate
    def forward(s, x):
        a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); c = s.d3(F.max_pool2d(b, 2)); sk = s.gate(b, c) if s.gate is not None else b
        b = s.c2(torch.cat([s.u2(c), sk], 1)); a = s.c1(torch.cat([s.u1(b), a], 1)); return s.tail(s.last(a))
def dice_per(p, t): i = (p * t).sum((0, 2, 3)); return 1 - ((2 * i + 1e-5) / (p.sum((0, 2, 3)) + t.sum((0, 2, 3)) + 1e-5)).mean()
@case("https://github.com/Hsuxu/Loss_ToolBox-PyTorch/issues/11", "multi-class dice: softmax in the loss, then the binary dice applies sigmoid again", "loss")
def toolbox_softmax_sigmoid(planted):
    def loss(o, y):
        p = o.softmax(1); p = torch.sigmoid(p) if planted else p; return dice_per(p, oh(y))
    return dict(model=UNet, data=seg, loss=loss, diag={})
@case("https://github.com/ProjectNeura/MIPCandy/pull/125", "soft dice flattens all classes together instead of one dice per class", "loss")
def mipcandy_dice_flat(planted):
    def loss(o, y):
        p, t = o.softmax(1), oh(y)
        if planted: return 1 - (2 * (p * t).sum() + 1e-5) / (p.sum() + t.sum() + 1e-5)
        return dice_per(p, t)
    return dict(model=UNet, data=seg, loss=loss, diag={})
@case("https://github.com/ellisdg/3DUnetCNN/pull/130", "instance norm + (leaky) ReLU after the final segmentation convolution", "tail")
def isensee_norm_out(planted):
    loss = lambda o, y: dice_per(o.sigmoid()[:, 1:], oh(y)[:, 1:])
    return dict(model=lambda: UNet(norm=lambda c: nn.InstanceNorm2d(c, affine=True), tail=nn.Sequential(nn.InstanceNorm2d(4), nn.PReLU()) if planted else None), data=seg, loss=loss, diag={})
@case("https://github.com/cosmic-cortex/pytorch-UNet/pull/16", "softmax applied by default to the output before the cross entropy", "tail (softmax)")
def cosmic_unet_softmax(planted): return dict(model=lambda: UNet(tail=nn.Softmax(1) if planted else None), data=seg, loss=ce, diag=dict(CE))
@case("https://github.com/Project-MONAI/MONAI/issues/7802", "one norm layer object used for both normalisations of each block", "norm")
def monai_shared_norm(planted):
    class Blk(nn.Module):
        def __init__(s, c): super().__init__(); n = nn.BatchNorm2d(c); s.c1, s.c2, s.n1, s.n2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 3, padding=1, bias=False), n, n if planted else nn.BatchNorm2d(c)
        def forward(s, x): return F.relu(x + s.n2(s.c2(F.relu(s.n1(s.c1(x))))))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()); s.b = nn.Sequential(*[Blk(24) for _ in range(3)]); s.last = nn.Conv2d(24, 4, 1)
        def forward(s, x): return s.last(s.b(s.stem(x)))
    return dict(model=Net, data=seg, loss=ce, diag=dict(CE))
@case("https://github.com/HXLH50K/U-Net-Transformer/issues/2", "cross attention weights of the skip are not rescaled by a sigmoid", "gate")
def utrans_no_sigmoid(planted):
    class MHCA(nn.Module):
        def __init__(s, cs=32, cy=64, d=32): super().__init__(); s.q, s.k, s.v = nn.Conv2d(cy, d, 1), nn.Conv2d(cy, d, 1), nn.Conv2d(cs, d, 1); s.up = nn.Sequential(nn.Conv2d(d, cs, 1), nn.BatchNorm2d(cs)); s.pos = nn.Parameter(torch.randn(1, d, 4, 4) * .02)
        def forward(s, b, c):
            B = len(b); v = s.v(F.max_pool2d(b, 2)).flatten(2); q, k = (s.q(c) + s.pos).flatten(2), (s.k(c) + s.pos).flatten(2)
            a = (q.transpose(1, 2) @ k / 32 ** .5).softmax(-1); z = s.up((v @ a.transpose(1, 2)).view(B, -1, 4, 4)); z = F.interpolate(z if planted else z.sigmoid(), scale_factor=2); return b * z
    return dict(model=lambda: UNet(gate=MHCA()), data=seg, loss=ce, diag=dict(CE))
@case("https://github.com/gjylt/DoubleAttentionNet/issues/5", "double attention block without the convolution back to C channels and without the skip", "a2 (residual)")
def doubleatt(planted):
    class A2(nn.Module):
        def __init__(s, c=32, m=32, n=8): super().__init__(); s.A, s.Bc, s.V = nn.Conv2d(c, m, 1), nn.Conv2d(c, n, 1), nn.Conv2d(c, n, 1); s.rec = None if planted else nn.Conv2d(m, c, 1)
        def forward(s, x):
            B, C, H, W = x.shape; a, b, v = s.A(x).flatten(2), s.Bc(x).flatten(2).softmax(-1), s.V(x).flatten(2).softmax(1); z = (a @ b.transpose(1, 2) @ v).view(B, -1, H, W)
            return z if planted else x + s.rec(z)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c1, s.a2, s.c2, s.last = cbr(3, 32), nn.ModuleList(A2() for _ in range(2)), cbr(32, 32), nn.Conv2d(32, 4, 1)
        def forward(s, x):
            x = s.c1(x)
            for a in s.a2: x = a(x)
            return s.last(s.c2(x))
    return dict(model=Net, data=seg, loss=ce, diag=dict(CE))

def det(seed, B=16, G=4):             # one coloured square per image: grid of (obj, dx, dy, class)
    g = gen(seed); x = .3 * T(seed + 1, B, 3, 32, 32); k = torch.randint(0, 3, (B,), generator=g); p = torch.randint(0, 26, (B, 2), generator=g); t = torch.zeros(B, G, G, 6)
    for i in range(B):
        a, b = p[i].tolist(); x[i, k[i], a:a + 6, b:b + 6] += 2; ca, cb = (a + 3) / 8, (b + 3) / 8; t[i, int(ca), int(cb), 0] = 1; t[i, int(ca), int(cb), 1:3] = torch.tensor([ca % 1, cb % 1]); t[i, int(ca), int(cb), 3 + k[i]] = 1
    return x, t
class Yolo(nn.Module):
    def __init__(s):
        super().__init__(); f = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.1)); s.body = nn.Sequential(f(3, 16), f(16, 32), f(32, 64)); s.neck = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.LeakyReLU(.1)); s.head = nn.Conv2d(64, 6, 1)
    def forward(s, x): return s.head(s.neck(s.body(x))).permute(0, 2, 3, 1)
def yloss(o, t, dup=False):
    m = t[..., 0]; sg = (lambda z: z.sigmoid()) if dup else (lambda z: z); b = F.binary_cross_entropy_with_logits
    return b(sg(o[..., 0]), m) + ((o[..., 1:3].sigmoid() - t[..., 1:3]) ** 2 * m[..., None]).sum() / m.sum() + (b(sg(o[..., 3:]), t[..., 3:], reduction="none") * m[..., None]).sum() / m.sum()
@case("https://github.com/argusswift/YOLOv4-pytorch/issues/89", "sigmoid in the head and again in BCEWithLogits", "loss / head")
def yolo_dup_sigmoid(planted): return dict(model=Yolo, data=det, loss=lambda o, t: yloss(o, t, planted), diag={})
@case("https://github.com/wbenbihi/hourglasstensorflow/issues/19", "sigmoid heatmaps trained by a mean squared error against 99% zeros", "loss")
def hourglass_mse(planted):
    def data(s, B=16):
        g = gen(s); x = .3 * T(s + 1, B, 3, 16, 16); p = torch.randint(3, 13, (B, 4, 2), generator=g); r = torch.arange(16.); c = T(33, 4, 3) * 2
        h = torch.exp(-((r[None, None, :, None] - p[..., :1, None]) ** 2 + (r[None, None, None] - p[..., 1:, None]) ** 2) / 2); return x + torch.einsum("bkhw,kc->bchw", h, c), h
    hb = lambda o, t: F.binary_cross_entropy_with_logits(o, t)
    return dict(model=UNet, data=data, loss=(lambda o, t: F.mse_loss(o.sigmoid(), t)) if planted else hb, diag={})

def depth(seed, B=16):
    z = F.interpolate(T(seed, B, 1, 4, 4), size=(16, 16), mode="bilinear"); return torch.cat([z + .1 * T(seed + 1, B, 1, 16, 16), (z * 2).sin(), .5 * T(seed + 2, B, 1, 16, 16)], 1), z
@case("https://github.com/isl-org/MultiObjectiveOptimization/issues/7", "the depth loss masks every entry below zero although depth is normalised", "loss (mask)")
def moo_depth_mask(planted):
    def loss(o, t): m = (t > 0 if planted else t != 0).float(); return ((o - t).abs() * m).sum() / m.sum()
    return dict(model=lambda: UNet(K=1), data=lambda s: (lambda x, z: (x, z - .3))(*depth(s)), loss=loss, diag={})
def silog(o, t): d = (o + 1e-3).log() - t.log(); return 10 * (d.var() + .15 * d.mean() ** 2 + 1e-6).sqrt()
@case("https://github.com/zhyever/Monocular-Depth-Estimation-Toolbox/issues/20", "direct regression: ReLU on the depth output with the scale-invariant log loss", "tail (ReLU)")
def depth_relu_silog(planted):
    class Tail(nn.Module):
        def forward(s, x): return F.relu(x) + 1e-3 if planted else 80 * x.sigmoid()
    return dict(model=lambda: UNet(K=1, tail=Tail()), data=lambda s: (lambda x, z: (x, 8 * (.7 * z).exp()))(*depth(s)), loss=silog, diag={})
@case("https://github.com/noahzn/Lite-Mono/issues/129", "disparity range of depths 1 to 1250 for scenes of 5 to 80: depth 1-2 everywhere", "tail (disp_to_depth)")
def litemono_range(planted):
    class Tail(nn.Module):
        def forward(s, x): lo, hi = 1 / (1250 if planted else 100), 1 / (1. if planted else 3.); return 1 / (lo + (hi - lo) * x.sigmoid())
    return dict(model=lambda: UNet(K=1, tail=Tail()), data=lambda s: (lambda x, z: (x, 20 * (.6 * z).exp()))(*depth(s)), loss=lambda o, t: ((o - t).abs() / t).mean(), diag={})

def clouds(seed, B=32, N=32, K=4):    # which of four shapes
    y = R(seed, K, (B,)); g = gen(seed + 1); u = torch.randn(B, N, 3, generator=g); sph = F.normalize(u, dim=-1); cube = u / u.abs().amax(-1, keepdim=True); disc = sph * torch.tensor([1, 1, .1]); line = sph * torch.tensor([1, .1, .1])
    x = torch.stack([sph, cube, disc, line], 1)[torch.arange(B), y]; return x + .05 * torch.randn(B, N, 3, generator=g), y
@case("https://github.com/charlesq34/pointnet/issues/300", "T-Net's last layer has zero weights and zero bias (no identity): inputs are multiplied by zero", "tnet.fc")
def pointnet_tnet_zero(planted):
    class TNet(nn.Module):
        def __init__(s): super().__init__(); s.m = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64), nn.ReLU()); s.f = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()); s.fc = nn.Linear(32, 9); nn.init.zeros_(s.fc.weight); s.fc.bias.data = torch.zeros(9) if planted else torch.eye(3).flatten()
        def forward(s, x): return s.fc(s.f(s.m(x).amax(-1))).view(-1, 3, 3)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.tnet = TNet(); s.m = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64), nn.ReLU()); s.h = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
        def forward(s, x): x = x.transpose(1, 2); x = (x.transpose(1, 2) @ s.tnet(x)).transpose(1, 2); return s.h(s.m(x).amax(-1))
    return dict(model=Net, data=clouds, loss=ce, diag=dict(CE))
@case("https://github.com/lucidrains/point-transformer-pytorch/pull/3", "vector attention: softmax over the feature dimension instead of the neighbours", "attn")
def point_transformer_dim(planted):
    class PT(nn.Module):
        def __init__(s, d): super().__init__(); s.ln = nn.LayerNorm(d); s.q, s.k, s.v = (nn.Linear(d, d, bias=False) for _ in range(3)); s.pos = mlp(3, d, d); s.attn = mlp(d, 2 * d, d); s.o = nn.Linear(d, d)
        def forward(s, x, p):
            h = s.ln(x); r = s.pos(p[:, :, None] - p[:, None]); a = s.attn(s.q(h)[:, :, None] - s.k(h)[:, None] + r); a = a.softmax(-1 if planted else 2); return x + s.o((a * (s.v(h)[:, None] + r)).sum(2))
    class Net(nn.Module):
        def __init__(s, d=24): super().__init__(); s.i = mlp(3, d, d); s.ls = nn.ModuleList(PT(d) for _ in range(2)); s.n = nn.LayerNorm(d); s.h = mlp(d, d, 4)
        def forward(s, p):
            x = s.i(p)
            for l in s.ls: x = l(x, p)
            return s.h(s.n(x).mean(1))
    return dict(model=Net, data=clouds, loss=ce, diag=dict(CE))

def video(seed, B=12, Tn=6, K=4):     # direction of a moving blob
    y = R(seed, K, (B,)); g = gen(seed + 1); p = torch.randint(4, 8, (B, 2), generator=g).float(); d = torch.tensor([[1., 0], [-1, 0], [0, 1], [0, -1]])[y]; t = torch.arange(Tn) - Tn / 2
    c = p[:, None] + d[:, None] * t[:, None] * 1.3; r = torch.arange(12.); h = torch.exp(-((r[None, None, :, None] - c[..., :1, None]) ** 2 + (r[None, None, None] - c[..., 1:, None]) ** 2) / 2)
    return torch.stack([h, h * 2, .3 * h], 2) + .2 * T(seed + 2, B, Tn, 3, 12, 12), y          # B T C H W
@case("https://github.com/dmenig/Pytorch-StNet/issues/2", "(BT,C,H,W) viewed as (B,C,T,H,W) instead of transposed", "temporal block")
def stnet_view(planted):
    class Net(nn.Module):
        def __init__(s, c=24):
            super().__init__(); s.c2 = nn.Sequential(nn.Conv2d(3, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(), nn.MaxPool2d(2)); s.t1 = nn.Sequential(nn.Conv3d(c, c, 3, padding=1, bias=False), nn.BatchNorm3d(c), nn.ReLU()); s.t2 = nn.Sequential(nn.Conv3d(c, c, 3, padding=1, bias=False), nn.BatchNorm3d(c), nn.ReLU()); s.fc = nn.Linear(c, 4)
        def forward(s, x):
            B, Tn = x.shape[:2]; z = s.c2(x.flatten(0, 1)); _, C, H, W = z.shape; z = z.view(B, C, Tn, H, W) if planted else z.view(B, Tn, C, H, W).transpose(1, 2); return s.fc(s.t2(s.t1(z)).mean((2, 3, 4)))
    return dict(model=Net, data=video, loss=ce, diag=dict(CE))
@case("https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/171", "AttnBlock3D: (b,c,t,h,w) reshaped to (b*t,c,hw) without permuting", "attn (reshape)")
def opensora_reshape(planted):
    class A(nn.Module):
        def __init__(s, c): super().__init__(); s.n = nn.GroupNorm(4, c); s.q, s.k, s.v, s.p = (nn.Conv3d(c, c, 1) for _ in range(4))
        def forward(s, x):
            h = s.n(x); q, k, v = s.q(h), s.k(h), s.v(h); b, c, t, H, W = q.shape
            f = (lambda z: z.reshape(b * t, c, H * W)) if planted else (lambda z: z.permute(0, 2, 1, 3, 4).reshape(b * t, c, H * W))
            w = (f(q).transpose(1, 2) @ f(k) * c ** -.5).softmax(-1); o = f(v) @ w.transpose(1, 2); o = o.reshape(b, c, t, H, W) if planted else o.reshape(b, t, c, H, W).permute(0, 2, 1, 3, 4); return x + s.p(o)
    class Net(nn.Module):     # video auto-encoder with a spatial attention at the bottleneck
        def __init__(s, c=16): super().__init__(); s.e = nn.Sequential(nn.Conv3d(3, c, 3, (1, 2, 2), 1), nn.SiLU(), nn.Conv3d(c, c, 3, (1, 2, 2), 1)); s.a = A(c); s.d = nn.Sequential(nn.SiLU(), nn.Upsample(scale_factor=(1, 2, 2)), nn.Conv3d(c, c, 3, 1, 1), nn.SiLU(), nn.Upsample(scale_factor=(1, 2, 2)), nn.Conv3d(c, 3, 3, 1, 1))
        def forward(s, x): return s.d(s.a(s.e(x.transpose(1, 2)))).transpose(1, 2)
    return dict(model=Net, data=lambda s: (lambda x, y: (x, x))(*video(s)), loss=mse, diag=dict(MSE))
