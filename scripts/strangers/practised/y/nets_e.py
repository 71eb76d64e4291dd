from base import *
from nets_a import imgcls

@case("https://github.com/gradientinstitute/aboleth/issues/185", "MAP layers' weights drawn N(0,1) whatever the fan-in (glorot in the fix)", "DenseMAP W init")
def aboleth_map(planted):
    class D(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.W = nn.Parameter(torch.randn(i, o)); s.b = nn.Parameter(torch.zeros(o))
            if not planted: nn.init.xavier_uniform_(s.W)
        def forward(s, x): return x @ s.W + s.b
    def model(): return nn.Sequential(D(13, 64), nn.Tanh(), D(64, 64), nn.Tanh(), D(64, 32), nn.Tanh(), D(32, 1))
    def data(seed): x = T(seed, 64, 13); return x, (x @ T(411, 13, 4)).tanh() @ T(412, 4, 1) * .5
    return dict(model=model, data=data, loss=mse, diag={})

@case("https://github.com/reczoo/FuxiCTR/issues/30", "heads split by view(batch*heads, -1, dim) without a transpose", "MultiHeadAttention view")
def fuxi_heads(planted):
    class Att(nn.Module):
        def __init__(s, i, dim=8, heads=4): super().__init__(); s.q, s.k, s.v = (nn.Linear(i, dim * heads, bias=False) for _ in range(3)); s.r = nn.Linear(i, dim * heads, bias=False); s.h, s.dim = heads, dim
        def forward(s, x):
            B, L, _ = x.shape
            if planted: q, k, v = (t(x).view(B * s.h, -1, s.dim) for t in (s.q, s.k, s.v)); o = ((q @ k.transpose(1, 2) / s.dim ** .5).softmax(-1) @ v).view(B, -1, s.h * s.dim)
            else: q, k, v = (t(x).view(B, L, s.h, s.dim).transpose(1, 2) for t in (s.q, s.k, s.v)); o = ((q @ k.transpose(-1, -2) / s.dim ** .5).softmax(-1) @ v).transpose(1, 2).reshape(B, L, -1)
            return (o + s.r(x)).relu()
    class Net(nn.Module):
        def __init__(s, m=8, V=10): super().__init__(); s.e = nn.Embedding(m * V, 16); nn.init.normal_(s.e.weight, std=.3); s.register_buffer("off", torch.arange(m) * V); s.a = nn.Sequential(Att(16), Att(32)); s.o = nn.Linear(32 * m, 1)
        def forward(s, x): return s.o(s.a(s.e(x + s.off)).flatten(1))
    def data(seed): x = R(seed, 10, (64, 8)); z = (T(431, 10, 3)[x[:, 0]] * T(432, 10, 3)[x[:, 5]]).sum(1) + T(433, 10)[x[:, 3]]; return x, (z > 0).float()[:, None]
    return dict(model=Net, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case("https://github.com/higgsfield/Capsule-Network-Tutorial/issues/7", "routing softmax over the input capsules instead of the output capsules", "routing softmax")
def capsule_softmax(planted):
    class Caps(nn.Module):
        def __init__(s, nc=6, nr=8 * 16, i=8, o=8):
            super().__init__(); s.conv = nn.Conv2d(3, 32, 5, 2); s.prim = nn.Conv2d(32, 64, 3, 1, 0); s.W = nn.Parameter(torch.randn(nr, nc, o, i) * .25); s.nc, s.nr = nc, nr
        def squash(s, v, d=-1): q = v.square().sum(d, keepdim=True); return q / (1 + q) * v / (q + 1e-8).sqrt()
        def forward(s, x):
            B = len(x); u = s.prim(s.conv(x).relu()); u = s.squash(u.view(B, 8, 8, -1).permute(0, 1, 3, 2).reshape(B, -1, 8)); uh = torch.einsum("rcoi,bri->brco", s.W[:u.size(1)], u); b = torch.zeros(1, u.size(1), s.nc, 1)
            for it in range(3):
                c = b.softmax(1 if planted else 2); v = s.squash((c * uh).sum(1, keepdim=True))
                if it < 2: b = b + (uh * v).sum(-1, keepdim=True).mean(0, keepdim=True)
            return (v[:, 0].square().sum(-1) + 1e-8).sqrt()
    def loss(v, t):
        y = F.one_hot(t, 6).float(); return (y * (.9 - v).clamp(min=0) ** 2 + .5 * (1 - y) * (v - .1).clamp(min=0) ** 2).sum(1).mean()
    return dict(model=Caps, data=imgcls, loss=loss, diag={})

@case("https://github.com/krasserm/super-resolution/pull/26", "residual scaling applied after the element-wise sum: (x + h) * 0.1", "EDSR res blocks")
def edsr_scaling(planted):
    class RB(nn.Module):
        def __init__(s, c, k=.1): super().__init__(); s.a = nn.Conv2d(c, c, 3, 1, 1); s.b = nn.Conv2d(c, c, 3, 1, 1); s.k = k
        def forward(s, x): h = s.b(s.a(x).relu()); return (x + h) * s.k if planted else x + h * s.k
    class Net(nn.Module):
        def __init__(s, c=24, n=6): super().__init__(); s.i = nn.Conv2d(3, c, 3, 1, 1); s.r = nn.Sequential(*[RB(c) for _ in range(n)], nn.Conv2d(c, c, 3, 1, 1)); s.up = nn.Sequential(nn.Conv2d(c, 4 * c, 3, 1, 1), nn.PixelShuffle(2)); s.o = nn.Conv2d(c, 3, 3, 1, 1)
        def forward(s, x): x = s.i(x); return s.o(s.up(x + s.r(x)))
    def data(seed): z = T(seed, 12, 3, 6, 6); y = F.interpolate(z, 24, mode="bicubic").tanh(); return F.interpolate(y, 12, mode="bilinear") + T(seed + 1, 12, 3, 12, 12) * .02, y
    return dict(model=Net, data=data, loss=lambda o, t: F.l1_loss(o, t), diag={})

