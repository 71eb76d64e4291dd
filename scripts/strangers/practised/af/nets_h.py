from base import *

@case("https://github.com/xingyizhou/CenterNet/issues/18", "gaussian drawn at the unrounded centre: no heatmap pixel is exactly 1, so the focal loss has no positives", "target heatmap / gt.eq(1)")
def centernet_subpixel_peak(planted):
    yy, xx = torch.meshgrid(torch.arange(12.), torch.arange(12.), indexing="ij")
    def draw(c): return torch.exp(-((xx - c[:, 0, None, None]) ** 2 + (yy - c[:, 1, None, None]) ** 2) / (2 * 1.2 ** 2))
    def mk(bad):
        def data(seed):
            hm, img = torch.zeros(16, 12, 12), T(seed + 9, 16, 3, 24, 24, k=.2); Y, X = torch.meshgrid(torch.arange(24.), torch.arange(24.), indexing="ij")
            for j in range(2):
                c = 1 + torch.rand(16, 2, generator=gen(seed * 3 + j)) * 9.9; hm = torch.maximum(hm, draw(c if bad else c.floor()))
                img[:, j] += 2 * ((X - 2 * c[:, 0, None, None]).abs() < 2.5).float() * ((Y - 2 * c[:, 1, None, None]).abs() < 2.5)
            return img, hm.unsqueeze(1)
        return data
    class CenterNet(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o, st=1: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()); s.backbone = nn.Sequential(c(3, 16), c(16, 32, 2), c(32, 32))
            s.hm = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1)); s.hm[-1].bias.data.fill_(-2.19)
        def forward(s, x): return s.hm(s.backbone(x))
    def loss(o, gt):
        p = torch.clamp(o.sigmoid(), 1e-4, 1 - 1e-4); pos = gt.eq(1).float(); neg = gt.lt(1).float()
        pl = (torch.log(p) * (1 - p) ** 2 * pos).sum(); nl = (torch.log(1 - p) * p ** 2 * (1 - gt) ** 4 * neg).sum(); n = pos.sum(); return -nl if n == 0 else -(pl + nl) / n
    return dict(model=CenterNet, data=mk(planted), loss=loss, lr=2e-3, diag={})

@case("https://github.com/experiencor/keras-yolo2/issues/353", "object and no-object confidence losses share one normaliser (negatives drown the positives)", "custom_loss: loss_conf / nb_conf_box")
def yolo2_conf_norm(planted):
    P = T(11, 5, 3, 8, 8, k=1.5)
    def data(seed):
        g = gen(seed); c = torch.randint(0, 8, (8, 2), generator=g); k = torch.randint(0, 5, (8,), generator=g); o = torch.rand(8, generator=g); img = torch.randn(8, 3, 64, 64, generator=g) * .6; t = torch.zeros(8, 5, 2, 8, 8)
        for i in range(8):
            y, x = c[i]; img[i, :, y * 8:(y + 1) * 8, x * 8:(x + 1) * 8] += P[k[i]] * (.5 + o[i]); t[i, k[i], 1, y, x] = 1; t[i, k[i], 0, y, x] = o[i]
        return img, t
    class TinyYolo(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.1)]
            s.features = nn.Sequential(*c(3, 16), nn.MaxPool2d(2), *c(16, 32), nn.MaxPool2d(2), *c(32, 64), nn.MaxPool2d(2)); s.detect = nn.Conv2d(64, 10, 1)
        def forward(s, x): return s.detect(s.features(x)).unflatten(1, (5, 2))
    def mk(bad):
        def f(o, t):
            m = t[:, :, 1]; conf = torch.sigmoid(o[:, :, 1]); n = m.sum(); xy = ((o[:, :, 0].sigmoid() - t[:, :, 0]).square() * m).sum() / n / 2; sq = (m - conf).square(); pos, neg = (sq * m * 5).sum(), (sq * (1 - m)).sum()
            return xy + ((pos + neg) / m.numel() / 2 if bad else pos / n / 2 + neg / (1 - m).sum() / 2)
        return f
    def ref(m):
        with torch.no_grad(): return sum(float(mk(False)(m(data(9000 + k)[0]), data(9000 + k)[1])) for k in range(3)) / 3
    return dict(model=TinyYolo, data=data, loss=mk(planted), lr=2e-3, diag={}, metric=ref)

def shapes(s, n, hw=16):
    yy, xx = torch.meshgrid(torch.arange(hw), torch.arange(hw), indexing="ij"); lab = torch.zeros(n, hw, hw, dtype=torch.long)
    for j in range(3):
        c = R(s * 7 + j, hw, (n, 2)); r = 2 + R(s * 7 + 3 + j, 3, (n,)); m = ((yy - c[:, 0, None, None]).abs() <= r[:, None, None]) & ((xx - c[:, 1, None, None]).abs() <= r[:, None, None]); lab[m] = j + 1
    pal = torch.tensor([[0., 0, 0], [1, 0, .3], [0, 1, .3], [.3, .3, 1]]); return pal[lab].permute(0, 3, 1, 2) + T(s + 1, n, 3, hw, hw, k=.3), lab

@case("https://github.com/Project-MONAI/MONAI/issues/4650", "alpha_extended (B,1,S) times wasserstein map (B,S) broadcasts to (B,B,S)", "GeneralizedWassersteinDiceLoss: alpha * (1 - wasserstein_distance_map)")
def gwdl_broadcast(planted):
    Mx = torch.tensor([[0., 1, 1, 1], [1, 0, .5, .5], [1, .5, 0, .5], [1, .5, .5, 0]])
    class UNet(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.InstanceNorm2d(o), nn.PReLU()); s.e1, s.e2, s.up, s.d1, s.out = c(3, 16), c(16, 32), nn.ConvTranspose2d(32, 16, 2, 2), c(32, 16), nn.Conv2d(16, 4, 1)
        def forward(s, x): a = s.e1(x); b = s.e2(F.max_pool2d(a, 2)); return s.out(s.d1(torch.cat([a, s.up(b)], 1)))
    def mk(bad):
        def f(o, t):
            p = o.softmax(1).flatten(2); lab = t.flatten(1); wd = (Mx[lab] * p.transpose(1, 2)).sum(-1)
            alpha = torch.tensor([0., 1, 1, 1])[lab].unsqueeze(1); a = alpha if bad else alpha.squeeze(1)
            tp = (a * (1 - wd)).sum(dim=list(range(1, 3 if bad else 2))); denom = (a * (2 - wd) + (1 - a) * wd).sum(dim=list(range(1, 3 if bad else 2)))
            return (1 - (2 * tp + 1e-5) / (denom + 1e-5)).mean()
        return f
    def ref(m):
        with torch.no_grad(): return sum(float(mk(False)(m(shapes(9000 + k, 16)[0]), shapes(9000 + k, 16)[1])) for k in range(3)) / 3
    return dict(model=UNet, data=lambda seed: shapes(seed, 16), loss=mk(planted), lr=3e-3, diag={}, metric=ref)

@case("https://github.com/kaiidams/soundstream-pytorch/pull/9", "quantizer dropout samples n in [1, num_quantizers): the last quantizer is never trained", "ResidualVectorQuantizer: last codebook unused in training")
def rvq_dropout_range(planted):
    Q, K, D = 3, 16, 8
    class RVQAE(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Conv1d(1, 32, 7, 2, 3), nn.ELU(), nn.Conv1d(32, D, 4, 4)); s.codebooks = nn.ParameterList([nn.Parameter(torch.randn(K, D) * .5) for _ in range(Q)])
            s.decoder = nn.Sequential(nn.ConvTranspose1d(D, 32, 4, 4), nn.ELU(), nn.ConvTranspose1d(32, 1, 8, 2, 3))
        def forward(s, x, n=None):
            z = s.encoder(x).transpose(1, 2); r, out, commit = z, 0, 0; n = n or int(torch.randint(1, Q if planted else Q + 1, ()))
            for e in s.codebooks[:n]:
                q = e[torch.cdist(r.detach().flatten(0, 1), e).argmin(1)].view_as(r); commit = commit + F.mse_loss(q, r.detach()) + .25 * F.mse_loss(r, q.detach()); r, out = r - q.detach(), out + q
            return s.decoder((z + (out - z).detach()).transpose(1, 2)), commit
    def data(seed):
        t = torch.arange(64.) / 64; f = 1 + 3 * torch.rand(32, 2, 1, generator=gen(seed)); p = 6.3 * torch.rand(32, 2, 1, generator=gen(seed + 1)); x = torch.sin(6.283 * f * t + p).sum(1, keepdim=True); return x, x
    def ref(m):
        with torch.no_grad(): return sum(float(F.mse_loss(m(data(9000 + k)[0], Q)[0], data(9000 + k)[1])) for k in range(4)) / 4
    return dict(model=RVQAE, data=data, loss=lambda o, t: F.mse_loss(o[0], t) + .3 * o[1], lr=3e-3, diag={}, metric=ref)

@case("https://github.com/Project-MONAI/GenerativeModels/issues/146", "cross-attention scores not multiplied by the scale", "CrossAttention: missing scale")
def monai_attn_scale(planted):
    class CrossAttention(nn.Module):
        def __init__(s, d, cd, h=2, hd=32): super().__init__(); s.h, s.scale = h, hd ** -.5; s.to_q, s.to_k, s.to_v = nn.Linear(d, h * hd, bias=False), nn.Linear(cd, h * hd, bias=False), nn.Linear(cd, h * hd, bias=False); s.to_out = nn.Linear(h * hd, d)
        def forward(s, x, c):
            sp = lambda z: z.view(*z.shape[:2], s.h, -1).transpose(1, 2); q, k, v = sp(s.to_q(x)), sp(s.to_k(c)), sp(s.to_v(c)); a = q @ k.transpose(-1, -2)
            if not planted: a = a * s.scale
            return s.to_out((a.softmax(-1) @ v).transpose(1, 2).flatten(2))
    class SpatialTransformer(nn.Module):
        def __init__(s, d, cd): super().__init__(); s.norm = nn.LayerNorm(d); s.attn1 = CrossAttention(d, d); s.norm2 = nn.LayerNorm(d); s.attn2 = CrossAttention(d, cd); s.norm3 = nn.LayerNorm(d); s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        def forward(s, x, c): y = s.norm(x); x = x + s.attn1(y, y); x = x + s.attn2(s.norm2(x), c); return x + s.ff(s.norm3(x))
    class Unet(nn.Module):
        def __init__(s, d=48): super().__init__(); s.inp = nn.Linear(6, d); s.temb = nn.Sequential(nn.Linear(1, d), nn.SiLU(), nn.Linear(d, d)); s.blocks = nn.ModuleList([SpatialTransformer(d, 16) for _ in range(2)]); s.norm, s.out = nn.LayerNorm(d), nn.Linear(d, 6)
        def forward(s, x, t, c):
            x = s.inp(x) + s.temb(t[:, None]).unsqueeze(1)
            for b in s.blocks: x = b(x, c)
            return s.out(s.norm(x))
    P = T(82, 4, 8, 6); C = T(83, 4, 3, 16)
    def data(seed):
        k = R(seed, 4, (32,)); e = T(seed + 1, 32, 8, 6); t = torch.rand(32, generator=gen(seed + 2)); a = torch.cos(t * 1.57)[:, None, None]; return (a * P[k] + (1 - a ** 2).sqrt() * e, t, C[k] + T(seed + 3, 32, 3, 16, k=.1)), e
    return dict(model=Unet, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/KarenUllrich/Tutorial_BayesianCompressionForDL/issues/1", "conv KL treats weight_logvar as the log std (-logvar + .5(exp(logvar)^2 + mu^2) - .5)", "_ConvNdGroupNJ.kl_divergence")
def bayes_conv_kl(planted):
    class ConvGroupNJ(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.weight_mu = nn.Parameter(torch.empty(o, i, 3, 3)); nn.init.kaiming_normal_(s.weight_mu); s.weight_logvar = nn.Parameter(torch.randn(o, i, 3, 3) * .01 - 9); s.bias = nn.Parameter(torch.zeros(o)); s.z_mu = nn.Parameter(torch.randn(o) * .01 + 1); s.z_logvar = nn.Parameter(torch.randn(o) * .01 - 9)
        def forward(s, x):
            mu = F.conv2d(x, s.weight_mu, s.bias, padding=1); var = F.conv2d(x ** 2, s.weight_logvar.exp(), padding=1); z = s.z_mu + torch.randn_like(s.z_mu) * (.5 * s.z_logvar).exp(); return (mu + torch.randn_like(mu) * (var + 1e-8).sqrt()) * z[None, :, None, None]
        def kl(s):
            la = s.z_logvar - torch.log(s.z_mu ** 2 + 1e-8); kz = -(.63576 * torch.sigmoid(1.8732 + 1.48695 * la) - .5 * F.softplus(-la) - .63576).sum(); lv, mu = s.weight_logvar, s.weight_mu
            e = -lv + .5 * (lv.exp().pow(2) + mu.pow(2)) - .5 if planted else -.5 * lv + .5 * (lv.exp() + mu.pow(2)) - .5; return kz + e.sum()
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.conv1, s.conv2, s.fc = ConvGroupNJ(3, 16), ConvGroupNJ(16, 16), nn.Linear(16 * 9, 4)
        def forward(s, x): x = F.max_pool2d(F.relu(s.conv1(x)), 2); return s.fc(F.max_pool2d(F.relu(s.conv2(x)), 2).flatten(1)), s.conv1.kl() + s.conv2.kl()
    P = T(84, 4, 3, 12, 12)
    def data(seed): t = R(seed, 4, (32,)); return P[t] * .5 + T(seed + 1, 32, 3, 12, 12), t
    def ref(m):
        with torch.no_grad(): return sum(float(ce(m(data(9000 + k)[0])[0], data(9000 + k)[1])) for k in range(4)) / 4
    return dict(model=Net, data=data, loss=lambda o, t: ce(o[0], t) + o[1] / 50000, lr=2e-3, diag={}, metric=ref)

@case("https://github.com/lightly-ai/lightly/pull/1823", "DINO projection head initialised with trunc_normal std=0.2 instead of 0.02", "DINOProjectionHead._init_weights std")
def dino_head_std(planted):
    class DINOHead(nn.Module):
        def __init__(s, i=64, h=128, b=32, o=24):
            super().__init__(); s.layers = nn.Sequential(nn.Linear(i, h), nn.GELU(), nn.Linear(h, h), nn.GELU(), nn.Linear(h, b))
            for m in s.layers:
                if isinstance(m, nn.Linear): nn.init.trunc_normal_(m.weight, std=.2 if planted else .02); nn.init.zeros_(m.bias)
            s.last_layer = nn.utils.parametrizations.weight_norm(nn.Linear(b, o, bias=False)); s.last_layer.parametrizations.weight.original0.data.fill_(1); s.last_layer.parametrizations.weight.original0.requires_grad = False
        def forward(s, x): return s.last_layer(F.normalize(s.layers(x), dim=-1))
    class Student(nn.Module):
        def __init__(s): super().__init__(); s.backbone = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()); s.head = DINOHead()
        def forward(s, x): return s.head(s.backbone(x)) / .1
    torch.manual_seed(3); P = T(85, 6, 3, 12, 12); tp = F.softmax(T(86, 6, 24, k=2.), -1)
    def data(seed): t = R(seed, 6, (32,)); return P[t] * .7 + T(seed + 1, 32, 3, 12, 12, k=.7), tp[t]
    return dict(model=Student, data=data, loss=lambda o, t: -(t * F.log_softmax(o, -1)).sum(-1).mean(), lr=1e-3, diag={})
