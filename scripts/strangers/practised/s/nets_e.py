from base import *
from nets_b import img, Basic, ResNet
from nets_c import VAE, KL, elbo, vdata, blobs, seg, UNet
from nets_d import mlp, AC, acdata, ppo, reg
from nets_a import Block, L
@case("https://github.com/YujiaBao/ls/issues/1", "no ReLU between the layers of the MLP", "layers")
def ls_noact(planted):
    def data(s): x = T(s, 64, 6); W = T(101, 6, 12); return x, torch.relu(x @ W).matmul(T(102, 12, 4) - 0).sub(0).abs().argmax(1)
    return dict(model=lambda: nn.Sequential(*[l for j in range(3) for l in ((nn.Linear(6 if j == 0 else 64, 64),) if planted else (nn.Linear(6 if j == 0 else 64, 64), nn.ReLU()))], nn.Linear(64, 4)), data=data, loss=ce, diag=CE)
@case("https://github.com/somepago/saint/issues/23", "per-feature embedding MLPs without a nonlinearity", "mlps")
def saint_mlp(planted):
    class Saint(nn.Module):
        def __init__(s):
            super().__init__(); a = nn.Identity if planted else nn.ReLU; s.mlps = nn.ModuleList(nn.Sequential(nn.Linear(1, 32), a(), nn.Linear(32, 16)) for _ in range(8)); s.blk = Block(16, 4, causal=False); s.head = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 64), a(), nn.Linear(64, 1))
        def forward(s, x): h = torch.stack([m(x[:, i:i+1]) for i, m in enumerate(s.mlps)], 1); return s.head(s.blk(h).flatten(1))
    def data(s): x = T(s, 64, 8); return x, (torch.sin(3 * x[:, :1]) + x[:, 1:2] ** 2 + (x[:, 2:3] * 2).cos())
    return dict(model=Saint, data=data, loss=mse, diag=MSE)
@case("https://github.com/aymericdamien/TensorFlow-Examples/issues/209", "multilayer perceptron with std-1 weights has no activation", "h1 / h2")
def tfex_mlp(planted):
    def data(s): z = T(s, 64, 4); W = T(103, 4, 100); return torch.tanh(z @ W), (z[:, 0] * z[:, 1] > 0).long() + 2 * (z[:, 2] * z[:, 3] > 0).long()
    def model():
        a = [] if planted else [nn.ReLU()]; return nn.Sequential(nn.Linear(100, 256), *a, nn.Linear(256, 256), *a, nn.Linear(256, 4))
    return dict(model=model, data=data, loss=ce, diag=CE)
@case("https://github.com/NVIDIA/DeepRecommender/pull/4", "the activation (sigmoid) is applied to the last decoding layer too; targets are ratings 1..5", "decode.last")
def deeprec_last(planted):
    def data(s): z = T(s, 32, 4); r = (3 + (z @ T(104, 4, 64)) * .7).clamp(1, 5).round(); m = (torch.rand(32, 64, generator=gen(s + 1)) < .5).float(); return r * m, r
    class AE(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 32)]); s.d = nn.ModuleList([nn.Linear(32, 64), nn.Linear(64, 64)])
        def forward(s, x):
            for l in s.e: x = torch.sigmoid(l(x))
            x = torch.sigmoid(s.d[0](x)); x = s.d[1](x); return torch.sigmoid(x) if planted else x
    return dict(model=AE, data=data, loss=mse, diag=MSE)
@case("https://github.com/twitter/the-algorithm-ml/pull/136", "all layers of the MLP in a python list; only the head is registered", "layers")
def twitter_list(planted):
    class MLP(nn.Module):
        def __init__(s): super().__init__(); l = [nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]; s.layers = l if planted else nn.ModuleList(l); s.head = nn.Linear(64, 1)
        def forward(s, x):
            for l in s.layers: x = l(x)
            return s.head(x)
    return dict(model=MLP, data=lambda s: (reg(s)[0], reg(s)[1][:, None]), loss=mse, diag=MSE)
@case("https://github.com/FluxML/model-zoo/issues/73", "KL with logsigma^2 (elementwise square) instead of 2 logsigma", "loss / logsigma")
def zoo_kl(planted):
    kl = lambda m, v: .5 * ((2 * v).exp() + m ** 2 - 1 + (v ** 2 if planted else -2 * v)).sum(1).mean()
    return dict(model=lambda: VAE(1.), data=vdata, loss=elbo(kl))
@case("https://github.com/rstudio/keras3/issues/359", "KL lacks the factor 2 of log sigma (log_var taken as log_std)", "loss")
def keras3_kl(planted):
    kl = lambda m, v: -.5 * (1 + (v if planted else 2 * v) - m ** 2 - (v.exp() if planted else (2 * v).exp())).mean(1).mean() * 8
    return dict(model=lambda: VAE(1.), data=vdata, loss=elbo(kl))
@case("https://github.com/Farama-Foundation/Gymnasium/issues/1494", "the advantage is not detached in the actor's loss (and critic bootstraps through it)", "loss / v")
def a2c_detach(planted):
    def loss(o, t):
        lp = o[0].log_softmax(-1).gather(1, t["a"][:, None]).squeeze(1); adv = t["ret"] + t["adv"] - o[1]; return -(lp * (adv if planted else adv.detach())).mean() + (t["ret"] - o[1]).pow(2).mean()
    return dict(model=AC, data=acdata, loss=loss)
@case("https://github.com/hwalsuklee/tensorflow-generative-model-collections/issues/14", "gradient penalty on the sigmoid output of the critic instead of the logits", "loss / discriminator output")
def wgan_gp(planted):
    class D(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Linear(64, 1))
        def forward(s, r, f):
            e = .5 * r + .5 * f; e = e.detach().requires_grad_(); d = s.net(e); d = torch.sigmoid(d) if planted else d; g, = torch.autograd.grad(d.sum(), e, create_graph=True); return s.net(r), s.net(f), g
    def data(s): r = torch.tanh(T(s, 32, 8)) + 1; f = T(s + 1, 32, 8); return (r, f), torch.zeros(32)
    return dict(model=D, data=data, loss=lambda o, t: o[1].mean() - o[0].mean() + 10 * (o[2].norm(dim=1) - 1).pow(2).mean())
@case("https://github.com/open-edge-platform/anomalib/issues/2137", "adversarial loss on the discriminator's probabilities instead of its features", "loss")
def ganomaly_adv(planted):
    class G(nn.Module):
        def __init__(s):
            super().__init__(); s.g = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.2), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())
            s.df = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2)); s.dc = nn.Sequential(nn.Conv2d(32, 1, 4), nn.Sigmoid())
            for p in list(s.df.parameters()) + list(s.dc.parameters()): p.requires_grad_(False)
        def forward(s, x): y = s.g(x); a, b = s.df(x), s.df(y); return y, *((s.dc(a), s.dc(b)) if planted else (a, b))
    def data(s): x = torch.tanh(img(s, 16)[0]); return x, x
    return dict(model=G, data=data, loss=lambda o, t: F.l1_loss(o[0], t) + F.mse_loss(o[2], o[1]))
@case("https://github.com/michuanhaohao/reid-strong-baseline/issues/4", "no ReLU after the stem's batch norm", "bn1")
def reid_relu(planted):
    def model():
        m = ResNet()
        if planted: m.stem[2] = nn.Identity()
        return m
    return dict(model=model, data=img, loss=ce, diag=CE)
@case("https://github.com/tensorflow/addons/pull/2142", "LayerNormalization over axis 1 (rows) of NHWC instead of the channels", "norm")
def addons_axis(planted):
    class LN(nn.Module):
        def __init__(s, c): super().__init__(); s.g = nn.Parameter(torch.ones(c)); s.b = nn.Parameter(torch.zeros(c))
        def forward(s, x):
            x = x.permute(0, 2, 3, 1); ax = 1 if planted else 3; m = x.mean(ax, True); v = x.var(ax, keepdim=True, unbiased=False); sh = [1, 1, 1, 1]; sh[ax] = x.shape[ax]; return ((x - m) / (v + 1e-3).sqrt() * s.g.view(sh) + s.b.view(sh)).permute(0, 3, 1, 2)
    return dict(model=lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), LN(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), LN(16), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 6)), data=img, loss=ce, diag=CE)
@case("https://github.com/Cocofeat/TBraTS/issues/6", "softmax_dice fed with alpha = evidence + 1 (unbounded) instead of probabilities", "loss / alpha")
def tbrats_alpha(planted):
    def loss(o, t):
        a = F.softplus(torch.cat([-o, o], 1)) + 1; p = a if planted else a / a.sum(1, True); t2 = torch.cat([1 - t, t], 1); d = lambda p, t: 2 * (p * t).sum() / ((p ** 2).sum() + (t ** 2).sum() + 1e-5)
        return 1 - (d(p[:, :1], t2[:, :1]) + d(p[:, 1:], t2[:, 1:])) / 2
    return dict(model=UNet, data=seg, loss=loss)
