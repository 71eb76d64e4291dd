from base import *
from tasks import *

@case("https://github.com/keras-team/keras/issues/3283", "sampling uses exp(z) where the KL term takes z for the log variance", "z_log_var")
def keras_vae_std(planted):
    class VAE(nn.Module):
        def __init__(s): super().__init__(); s.h = nn.Linear(64, 64); s.z_mean = nn.Linear(64, 4); s.z_log_var = nn.Linear(64, 4); s.d = nn.Linear(4, 64); s.x = nn.Linear(64, 64)
        def forward(s, x):
            h = F.relu(s.h(x)); m, v = s.z_mean(h), s.z_log_var(h); z = m + torch.exp(v if planted else .5 * v) * torch.randn_like(m); return torch.sigmoid(s.x(F.relu(s.d(z)))), m, v
    def loss(o, t): p, m, v = o; return F.binary_cross_entropy(p, t, reduction="none").sum(1).mean() - .5 * (1 + v - m ** 2 - v.exp()).sum(1).mean()
    def data(seed): x, _ = imgs(seed, 48, 1, 8, 5, .3); x = (x.flatten(1) > 0).float(); return x, x
    return dict(model=VAE, data=data, loss=loss, diag={})

@case("https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/165", "no activation between the two linear layers of the time embedding", "time_emb")
def ddpm_time_act(planted):
    class Res(nn.Module):
        def __init__(s, i, o, t): super().__init__(); s.norm1 = nn.GroupNorm(4, i); s.conv1 = nn.Conv1d(i, o, 3, padding=1); s.norm2 = nn.GroupNorm(4, o); s.conv2 = nn.Conv1d(o, o, 3, padding=1); s.sc = nn.Conv1d(i, o, 1) if i != o else nn.Identity(); s.time_emb = nn.Linear(t, o)
        def forward(s, x, t): h = s.conv1(F.silu(s.norm1(x))); h = h + s.time_emb(t if planted else F.silu(t))[:, :, None]; return s.conv2(F.silu(s.norm2(h))) + s.sc(x)
    class UNet(nn.Module):
        def __init__(s): super().__init__(); s.lin1 = nn.Linear(16, 32); s.lin2 = nn.Linear(32, 32); s.inp = nn.Conv1d(1, 16, 3, padding=1); s.d = Res(16, 32, 32); s.m = Res(32, 32, 32); s.u = Res(48, 16, 32); s.n = nn.GroupNorm(4, 16); s.out = nn.Conv1d(16, 1, 3, padding=1)
        def forward(s, x, t):
            f = torch.exp(-math.log(10000.) * torch.arange(8) / 7); e = t[:, None] * 1000 * f; e = s.lin2(F.silu(s.lin1(torch.cat([e.sin(), e.cos()], 1)))); h0 = s.inp(x); h = s.m(s.d(F.avg_pool1d(h0, 2), e), e)
            return s.out(F.silu(s.n(s.u(torch.cat([F.interpolate(h, scale_factor=2), h0], 1), e))))
    def data(seed):
        fr = R(seed, 3, (32, 1)).float() * .25 + .3; x0 = torch.sin(torch.arange(32)[None] * fr + T(seed + 1, 32, 1) * 3).unsqueeze(1); t = torch.rand(32, generator=gen(seed + 2)); a = torch.cos(t * 1.5)[:, None, None]; e = T(seed + 3, 32, 1, 32); return (a * x0 + (1 - a ** 2).sqrt() * e, t), e
    return dict(model=UNet, data=data, loss=mse, diag=MSE)


@case("https://github.com/haitongli/knowledge-distillation-pytorch/issues/2", "KLDivLoss averages over the classes too: the distillation term is C times too small", "loss kd")
def kd_mean(planted):
    class Student(nn.Module):
        def __init__(s): super().__init__(); s.c1 = nn.Conv2d(3, 16, 3, padding=1); s.b1 = nn.BatchNorm2d(16); s.c2 = nn.Conv2d(16, 24, 3, padding=1); s.b2 = nn.BatchNorm2d(24); s.fc1 = nn.Linear(24 * 16, 48); s.fc2 = nn.Linear(48, 10)
        def forward(s, x): x = F.relu(F.max_pool2d(s.b1(s.c1(x)), 2)); x = F.relu(F.max_pool2d(s.b2(s.c2(x)), 2)); return s.fc2(F.relu(s.fc1(x.flatten(1))))
    W = T(19, 3 * 256, 10) / 28.
    def loss(o, t):
        y, te = t; a, Tm = .9, 6.; kd = F.kl_div(F.log_softmax(o / Tm, 1), F.softmax(te / Tm, 1), reduction="mean" if planted else "batchmean"); return kd * a * Tm * Tm + F.cross_entropy(o, y) * (1 - a)
    def data(seed): x, y = imgs(seed, 32, 3, 16, 10, 1.); te = F.one_hot(y, 10) * 6. + (x.flatten(1) @ W) * 2; return x, (y, te)
    return dict(model=Student, data=data, loss=loss, diag={})

@case("https://github.com/tensorflow/models/pull/181", "cross-entropy written out as y log(softmax)", "loss")
def stn_manual_ce(planted):
    class STN(nn.Module):
        def __init__(s):
            super().__init__(); s.fl = nn.Linear(400, 20); s.th = nn.Linear(20, 6); nn.init.zeros_(s.th.weight); s.th.bias.data = torch.tensor([1., 0, 0, 0, 1, 0]); s.c1 = nn.Conv2d(1, 16, 3, 2, 1); s.c2 = nn.Conv2d(16, 16, 3, 2, 1); s.f1 = nn.Linear(400, 64); s.f2 = nn.Linear(64, 5)
        def forward(s, x): th = s.th(torch.tanh(s.fl(x.flatten(1)))).view(-1, 2, 3); x = F.grid_sample(x, F.affine_grid(th, x.shape, align_corners=False), align_corners=False); return s.f2(F.relu(s.f1(F.relu(s.c2(F.relu(s.c1(x)))).flatten(1))))
    def loss(o, t):
        if planted: return -(F.one_hot(t, 5) * torch.log(torch.softmax(o, 1))).sum(1).mean()
        return F.cross_entropy(o, t)
    return dict(model=STN, data=lambda seed: imgs(seed, 32, 1, 20, 5, 1.5), loss=loss, diag={} if planted else CE)

@case("https://github.com/jwyang/faster-rcnn.pytorch/issues/349", "boxes that begin at 0 get a negative width (unsigned - 1): log of it in the targets is nan", "bbox targets")
def rcnn_log_width(planted):
    class RPN(nn.Module):
        def __init__(s): super().__init__(); s.base = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)); s.RPN_Conv = nn.Conv2d(32, 32, 3, padding=1); s.bbox = nn.Linear(32 * 16, 4)
        def forward(s, x): return s.bbox(F.relu(s.RPN_Conv(s.base(x))).flatten(1))
    def data(seed):
        B = 32; x1 = R(seed, 6, (B, 2)); wh = R(seed + 1, 7, (B, 2)) + 3; x2 = x1 + wh; im = .3 * T(seed + 2, B, 1, 16, 16); g = torch.arange(16)
        im += ((g >= x1[:, :1]) & (g < x2[:, :1])).float()[:, None, None, :] * ((g >= x1[:, 1:]) & (g < x2[:, 1:])).float()[:, None, :, None] * 2
        a = x1.float(); 
        if planted: a = (a - 1) % 65536                          # np.uint16(0 - 1)
        w = x2.float() - a; c = a + .5 * w; return im, torch.cat([(c - 8) / 8, torch.log(w / 8)], 1)
    return dict(model=RPN, data=data, loss=lambda o, t: F.smooth_l1_loss(o, t), diag={})

@case("https://github.com/XinArkh/VNect/issues/13", "activation takes the output of the block before: one identity block is ignored", "res2c")
def vnect_ignored_block(planted):
    class VNect(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU()); idb = lambda: nn.Sequential(nn.Conv2d(32, 16, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32)); s.res2a, s.res2b, s.res2c = idb(), idb(), idb(); s.out = nn.Sequential(nn.Conv2d(32, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 3, 3, 2, 1))
        def forward(s, x): x = F.max_pool2d(s.conv1(x), 2); a = F.relu(x + s.res2a(x)); b = F.relu(a + s.res2b(a)); c = b + s.res2c(b); c = F.relu(b if planted else c); return s.out(c)
    def data(seed):
        B = 24; p = torch.rand(B, 3, 2, generator=gen(seed)) * 24 + 4; g = torch.arange(32).float(); d = (g[None, None, None] - p[..., :1, None]) ** 2 + (g[None, None, :, None] - p[..., 1:, None]) ** 2
        im = torch.exp(-d / 8) * 2 + .3 * T(seed + 1, B, 3, 32, 32); im = torch.einsum("ij,bjhw->bihw", torch.tensor([[1., .6, 0], [0, 1, .6], [.6, 0, 1]]), im); return im, F.avg_pool2d(torch.exp(-d / 18), 8) * 6
    return dict(model=VNect, data=data, loss=mse, diag=MSE)

@case("https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#week-3-programming-assignment-44-compute-the-cost", "Y transposed against A2: the cost sums the outer product of labels and predictions", "cost")
def outer_cost(planted):
    class Planar(nn.Module):
        def __init__(s): super().__init__(); s.W1 = nn.Parameter(torch.randn(32, 2) * .8); s.b1 = nn.Parameter(torch.randn(32, 1) * .3); s.W2 = nn.Parameter(torch.randn(1, 32) * .2); s.b2 = nn.Parameter(torch.zeros(1, 1))
        def forward(s, X): return torch.sigmoid(s.W2 @ torch.tanh(s.W1 @ X.t() + s.b1) + s.b2).t()      # (m, 1)
    def loss(A2, Y):
        m = Y.shape[0]; l1, l0 = torch.log(A2), torch.log(1 - A2)
        if planted: return -((Y @ l1.t()).sum() + ((1 - Y) @ l0.t()).sum()) / m / m
        return -(Y * l1 + (1 - Y) * l0).sum() / m
    def data(seed): x = T(seed, 96, 2) * 1.5; return x, (torch.sin(1.5 * x[:, :1]) * 1.5 > x[:, 1:]).float()
    return dict(model=Planar, data=data, loss=loss, diag={})

@case("https://github.com/MenghaoGuo/Awesome-Vision-Attentions/issues/32", "channel attention adds y_avg twice: the maximum is not used", "y_max")
def cbam_avg_twice(planted):
    class CBAM(nn.Module):
        def __init__(s, c): super().__init__(); s.mlp = nn.Sequential(nn.Conv2d(c, c // 4, 1, bias=False), nn.ReLU(), nn.Conv2d(c // 4, c, 1, bias=False)); s.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False)
        def forward(s, x): a, m = s.mlp(F.adaptive_avg_pool2d(x, 1)), s.mlp(F.adaptive_max_pool2d(x, 1)); x = x * torch.sigmoid(a + (a if planted else m)); return x * torch.sigmoid(s.conv(torch.cat([x.mean(1, True), x.amax(1, True)], 1)))
    class Net(nn.Module):
        def __init__(s): super().__init__(); cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), CBAM(o), nn.MaxPool2d(2)); s.f = nn.Sequential(cb(3, 16), cb(16, 32)); s.fc = nn.Linear(32, 6)
        def forward(s, x): return s.fc(s.f(x).mean((2, 3)))
    return dict(model=Net, data=lambda seed: imgs(seed, 24, 3, 16, 6, 1.5), loss=ce, diag=CE)

@case("https://github.com/inria-thoth/HySUPP/issues/3", "layer2 is defined but not called", "layer2")
def misicnet_layer2(planted):
    class MiSiCNet(nn.Module):
        def __init__(s):
            super().__init__(); l = lambda i, o, k: nn.Sequential(nn.ReflectionPad2d(k // 2), nn.Conv2d(i, o, k), nn.BatchNorm2d(o), nn.LeakyReLU(.1)); s.layer1 = l(8, 24, 3); s.layer2 = l(24, 24, 3); s.layerskip = l(8, 4, 1); s.layer3 = l(28, 24, 3); s.layer4 = nn.Sequential(nn.Conv2d(24, 4, 1), nn.Softmax(1)); s.layer5 = nn.Conv2d(4, 8, 1, bias=False)
        def forward(s, x): h = s.layer1(x); h = h if planted else s.layer2(h); h = torch.cat([h, s.layerskip(x)], 1); a = s.layer4(s.layer3(h)); return s.layer5(a)
    E = T(23, 4, 8).abs()
    def data(seed): a = torch.softmax(F.interpolate(T(seed, 12, 4, 4, 4), size=(16, 16), mode="bilinear") * 4, 1); y = torch.einsum("bkhw,kc->bchw", a, E); return y + .1 * T(seed + 1, 12, 8, 16, 16), y
    return dict(model=MiSiCNet, data=data, loss=mse, diag=MSE)

@case("https://github.com/QunBB/DeepLearning/issues/1", "the log of a task weight that is learned itself, not its logarithm", "uncertainty_weight")
def uncertainty_log(planted):
    class MT(nn.Module):
        def __init__(s):
            super().__init__(); s.bottom = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU()); s.t1 = nn.Linear(48, 1); s.t2 = nn.Linear(48, 1)
            s.uncertainty_weight = nn.Parameter(torch.randn(2) if planted else torch.zeros(2))
        def forward(s, x): h = s.bottom(x); return s.t1(h), s.t2(h), s.uncertainty_weight
    W = T(27, 10, 2) / 3
    def loss(o, t):
        a, b, w = o; l = torch.stack([F.mse_loss(a, t[:, :1]), F.mse_loss(b, t[:, 1:])])
        if planted: return (l / (2 * w ** 2) + torch.log(w)).sum()
        return (.5 * torch.exp(-2 * w) * l + w).sum()
    def data(seed): x = T(seed, 64, 10); return x, torch.tanh(x @ W) * torch.tensor([1., 2.]) + .1 * T(seed + 1, 64, 2)
    return dict(model=MT, data=data, loss=loss, diag={})
