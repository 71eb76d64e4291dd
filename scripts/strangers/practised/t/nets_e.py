from base import *
from tasks import *

@case("https://github.com/winterant/DeepCoNN/issues/1", "factors v of the factorisation machine start at zero: the pair term and its gradient are always 0", "fm.v")
def deepconn_fm_zero(planted):
    class CNN(nn.Module):
        def __init__(s, d, k=24, rc=3, o=12): super().__init__(); s.k, s.rc = k, rc; s.conv = nn.Conv1d(d, k, 3, padding=1); s.linear = nn.Sequential(nn.Linear(k * rc, o), nn.ReLU())
        def forward(s, v): return s.linear(F.relu(s.conv(v.permute(0, 2, 1))).amax(-1).reshape(-1, s.k * s.rc))
    class FM(nn.Module):
        def __init__(s, p, k): super().__init__(); s.v = nn.Parameter(torch.zeros(p, k) if planted else torch.randn(p, k) * .1); s.linear = nn.Linear(p, 1)
        def forward(s, x): return s.linear(x) + .5 * ((x @ s.v) ** 2 - (x ** 2) @ (s.v ** 2)).sum(1, keepdim=True)
    class DeepCoNN(nn.Module):
        def __init__(s): super().__init__(); s.embedding = nn.Embedding.from_pretrained(T(61, 50, 16)); s.cnn_u = CNN(16); s.cnn_i = CNN(16); s.fm = FM(24, 10)
        def forward(s, u, i): f = lambda c, r: c(s.embedding(r.flatten(0, 1))); return s.fm(torch.cat([f(s.cnn_u, u), f(s.cnn_i, i)], 1))
    def data(seed):
        B = 64; a = torch.where(R(seed, 2, (B,)) > 0, 1, -1); b = torch.where(R(seed + 1, 2, (B,)) > 0, 1, -1); tok = lambda z, q: torch.where(torch.rand(B, 3, 8, generator=gen(seed + q)) < .3, R(seed + q + 1, 5, (B, 3, 8)) + torch.where(z > 0, 0, 5)[:, None, None], R(seed + q + 2, 40, (B, 3, 8)) + 10)
        return (tok(a, 3), tok(b, 6)), ((a * b).float() + .5 * a)[:, None]
    return dict(model=DeepCoNN, data=data, loss=mse, diag=MSE)

@case("https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/6", "dueling head subtracts the mean advantage of the whole batch", "adv.mean")
def dueling_batch_mean(planted):
    class DuelingDQN(nn.Module):
        def __init__(s): super().__init__(); s.conv = nn.Sequential(nn.Conv2d(2, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 24, 3), nn.ReLU()); s.fc_adv = nn.Sequential(nn.Linear(24 * 25, 48), nn.ReLU(), nn.Linear(48, 4)); s.fc_val = nn.Sequential(nn.Linear(24 * 25, 48), nn.ReLU(), nn.Linear(48, 1))
        def forward(s, x): h = s.conv(x).flatten(1); v, a = s.fc_val(h), s.fc_adv(h); return v + a - (a.mean() if planted else a.mean(1, keepdim=True))
    Q = T(71, 5, 4)
    def loss(o, t): a, q = t; return F.mse_loss(o.gather(1, a[:, None])[:, 0], q)
    def data(seed): x, y = imgs(seed, 32, 2, 16, 5, .7); a = R(seed + 1, 4, (32,)); return x, (a, Q[y, a])
    return dict(model=DuelingDQN, data=data, loss=loss, diag={})

@case("https://github.com/carpedm20/deep-rl-tensorflow/issues/6", "the advantage stream is built on the end of the value stream, not on the features", "adv stream")
def dueling_chained(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Linear(12, 64), nn.ReLU()); s.v1 = nn.Linear(64, 32); s.v2 = nn.Linear(32, 1); s.a1 = nn.Linear(1 if planted else 64, 32); s.a2 = nn.Linear(32, 4)
        def forward(s, x): h = s.f(x); v = s.v2(F.relu(s.v1(h))); a = s.a2(F.relu(s.a1(v if planted else h))); return v + a - a.mean(1, keepdim=True)
    W = T(72, 12, 4) / 12 ** .5
    def loss(o, t): a, q = t; return F.smooth_l1_loss(o.gather(1, a[:, None])[:, 0], q)
    def data(seed): x = T(seed, 128, 12); a = R(seed + 1, 4, (128,)); q = torch.tanh(x @ W) * 2; return x, (a, q.gather(1, a[:, None])[:, 0])
    return dict(model=Net, data=data, loss=loss, diag={})


@case("https://github.com/Atomu2014/product-nets/issues/6", "product unit sums over the embedding before the fields, and over the batch", "product unit")
def product_unit_axes(planted):
    class DeepFM(nn.Module):
        def __init__(s): super().__init__(); s.w = nn.Embedding(48, 1); s.v = nn.Embedding(48, 8); nn.init.normal_(s.w.weight, 0, .05); nn.init.normal_(s.v.weight, 0, .3); s.d = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1))
        def forward(s, x):
            x = x + torch.arange(6) * 8; xv = s.v(x); ax = 2 if planted else 1; p = xv.sum(ax) ** 2 - (xv ** 2).sum(ax); p = .5 * (p.sum() if planted else p.sum(1)); return s.w(x).sum((1, 2)) + p + s.d(xv.flatten(1))[:, 0]
    V = T(75, 48, 3)
    def data(seed): x = R(seed, 8, (256, 6)); z = V[x + torch.arange(6) * 8]; y = (z.sum(1) ** 2 - (z ** 2).sum(1)).sum(1) > 0; return x, y.float()
    return dict(model=DeepFM, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case("https://github.com/AntreasAntoniou/MatchingNetworks/issues/3", "predictions are attention-weighted labels, and the loss takes another softmax of them", "loss softmax")
def matching_double_softmax(planted):
    class Matching(nn.Module):
        def __init__(s): super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)); s.g = nn.Sequential(c(1, 16), c(16, 24), nn.Flatten())
        def forward(s, sup, lab, q):                              # (B, N, 1, H, W), (B, N), (B, 1, H, W)
            B, N = lab.shape; e = s.g(torch.cat([sup.flatten(0, 1), q])); es, eq = e[: B * N].view(B, N, -1), e[B * N:]; sim = F.cosine_similarity(es, eq[:, None], -1) * 10
            return torch.einsum("bn,bnk->bk", sim.softmax(1), F.one_hot(lab, N).float())
    def loss(o, t): return F.cross_entropy(o, t) if planted else F.nll_loss(torch.log(o + 1e-8), t)
    tpl = F.interpolate(T(76, 40, 1, 4, 4), size=(12, 12), mode="bilinear")
    def data(seed):
        B, N = 12, 5; c = torch.rand(B, 40, generator=gen(seed)).argsort(1)[:, :N]; lab = torch.rand(B, N, generator=gen(seed + 1)).argsort(1); j = R(seed + 2, N, (B,)); r = torch.arange(B); return (tpl[c] + .7 * T(seed + 3, B, N, 1, 12, 12), lab, tpl[c[r, j]] + .7 * T(seed + 4, B, 1, 12, 12)), lab[r, j]
    return dict(model=Matching, data=data, loss=loss, diag={})

@case("https://github.com/ktjonsson/keras-ArcFace/issues/2", "square root of 1 - cos^2 is not clipped: infinite slope at cos = 1", "arcface sqrt")
def arcface_sqrt(planted):
    class ArcFace(nn.Module):
        def __init__(s): super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)); s.b = nn.Sequential(c(3, 16), c(16, 32), nn.Flatten(), nn.Linear(512, 2)); s.W = nn.Parameter(torch.randn(5, 2)); s.m, s.s = .3, 8.
        def forward(s, x, y):
            cos = F.linear(F.normalize(s.b(x)), F.normalize(s.W)); q = 1 - cos ** 2; sin = torch.sqrt(q if planted else q.clamp(1e-6, 1)); phi = cos * math.cos(s.m) - sin * math.sin(s.m)
            phi = torch.where(cos > math.cos(math.pi - s.m), phi, cos - math.sin(math.pi - s.m) * s.m); oh = F.one_hot(y, 5).float(); return s.s * (oh * phi + (1 - oh) * cos)
    def data(seed): x, y = imgs(seed, 32, 3, 16, 5, 1.); return (x, y), y
    return dict(model=ArcFace, data=data, loss=ce, diag=CE)

@case("https://github.com/qubvel-org/segmentation_models.pytorch/pull/113", "spatial squeeze and excitation has one gate per channel, not one per pixel", "sSE")
def scse_gate(planted):
    class SCSE(nn.Module):
        def __init__(s, c): super().__init__(); s.cSE = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c // 4, 1), nn.ReLU(), nn.Conv2d(c // 4, c, 1), nn.Sigmoid()); s.sSE = nn.Sequential(nn.Conv2d(c, c if planted else 1, 1), nn.Sigmoid())
        def forward(s, x): return x * s.cSE(x) + x * s.sSE(x)
    class Unet(nn.Module):
        def __init__(s): super().__init__(); cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()); s.e1, s.e2 = cb(1, 16), cb(16, 32); s.d = cb(48, 16); s.at = SCSE(16); s.h = nn.Conv2d(16, 3, 1)
        def forward(s, x): a = s.e1(x); b = s.e2(F.max_pool2d(a, 2)); return s.h(s.at(s.d(torch.cat([F.interpolate(b, scale_factor=2), a], 1))))
    def data(seed): z = F.interpolate(T(seed, 12, 3, 4, 4), size=(16, 16), mode="bilinear").argmax(1); return (z.unsqueeze(1).float() - 1) + .8 * T(seed + 1, 12, 1, 16, 16), z
    return dict(model=Unet, data=data, loss=ce, diag=CE)
