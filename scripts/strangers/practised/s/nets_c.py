from base import *
from nets_b import img, Basic, ResNet
def blobs(s, B=32, d=64, k=6): z = T(s, B, k); W = T(61, k, d); return torch.sigmoid(2 * z @ W / math.sqrt(k)), z
# ---- VAEs: the model returns (reconstruction logits, mu, logvar)
class VAE(nn.Module):
    def __init__(s, fac=.5): super().__init__(); s.fac = fac; s.enc = nn.Sequential(nn.Linear(64, 128), nn.ReLU()); s.mu = nn.Linear(128, 8); s.logvar = nn.Linear(128, 8); s.dec = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 64))
    def forward(s, x): h = s.enc(x); m, v = s.mu(h), s.logvar(h); z = m + torch.exp(s.fac * v) * torch.randn_like(m); return s.dec(z), m, v
def elbo(kl): return lambda o, t: F.binary_cross_entropy_with_logits(o[0], t, reduction="none").sum(1).mean() + kl(o[1], o[2])
KL = lambda m, v: -.5 * (1 + v - m ** 2 - v.exp()).sum(1).mean()
def vdata(s): x, _ = blobs(s); x = (x > torch.rand(x.shape, generator=gen(s + 2))).float(); return x, x
@case("https://github.com/alecGraves/BVAE-tf/issues/7", "exp(logvar) used as the standard deviation", "logvar")
def bvae_std(planted): return dict(model=lambda: VAE(1. if planted else .5), data=vdata, loss=elbo(KL))
@case("https://github.com/DaehanKim/vgae_pytorch/issues/2", "KL with exp(logstd) not squared (VGAE)", "loss / logstd")
def vgae_kl(planted):
    kl = (lambda m, v: -.5 * (1 + 2 * v - m ** 2 - v.exp()).sum(1).mean()) if planted else (lambda m, v: -.5 * (1 + 2 * v - m ** 2 - (2 * v).exp()).sum(1).mean())
    return dict(model=lambda: VAE(1.), data=vdata, loss=elbo(kl))
@case("https://github.com/mkusner/grammarVAE/issues/2", "KL averaged over the latent dimensions against a reconstruction multiplied by MAX_LEN", "loss")
def gvae_mean(planted):
    kl = (lambda m, v: -.5 * (1 + v - m ** 2 - v.exp()).mean(1).mean()) if planted else KL
    return dict(model=VAE, data=vdata, loss=elbo(kl))
class VQ(nn.Module):                      # returns reconstruction and the VQ loss
    def __init__(s, mode="ok"):
        super().__init__(); s.mode = mode; s.enc = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)); s.codebook = nn.Embedding(32, 8); nn.init.uniform_(s.codebook.weight, -.5, .5); s.dec = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64))
    def forward(s, x):
        z = s.enc(x).view(-1, 4, 8); i = torch.cdist(z.detach().flatten(0, 1), s.codebook.weight.detach()).argmin(1); q = s.codebook(i).view_as(z)
        if s.mode == "after": q = z + (q - z).detach(); l = ((q.detach() - z) ** 2).mean() * .25 + ((q - z.detach()) ** 2).mean()
        elif s.mode == "swap": l = .25 * ((q - z.detach()) ** 2).mean() + ((q.detach() - z) ** 2).mean()
        else: l = ((q - z.detach()) ** 2).mean() + .25 * ((q.detach() - z) ** 2).mean()
        return s.dec((z + (q - z).detach()).flatten(1)), l
vql = lambda o, t: F.mse_loss(o[0], t) * 10 + o[1]
def bl(s): x, _ = blobs(s); return x, x
@case("https://github.com/karpathy/deep-vector-quantization/issues/2", "commitment cost multiplies the codebook term", "codebook / loss")
def vq_swap(planted): return dict(model=lambda: VQ("swap" if planted else "ok"), data=bl, loss=vql)
# ---- flows: the model returns (z, log_det)
class Flow(nn.Module):
    def __init__(s, mode="ok", d=6):
        super().__init__(); s.mode = mode; s.d = d; s.nets = nn.ModuleList(nn.Sequential(nn.Linear(d // 2, 48), nn.Tanh(), nn.Linear(48, d)) for _ in range(4))
        for n in s.nets: nn.init.normal_(n[2].weight, std=.02); nn.init.zeros_(n[2].bias)
    def forward(s, x):
        ld = x.new_zeros(len(x))
        for i, n in enumerate(s.nets):
            if s.mode == "parity": a, b = x[:, ::2], x[:, 1::2]
            else: a, b = x.chunk(2, 1)
            sc, t = n(a).chunk(2, 1); sc = torch.tanh(sc) * 2; b = b * sc.exp() + t; inc = sc.sum(1); ld = inc if s.mode == "over" else ld + inc; x = torch.cat([b, a], 1)
        return x, ld
nll = lambda o, t: (.5 * (o[0] ** 2).sum(1) - o[1]).mean()
def fl(s): z = T(s, 64, 6); x = z @ T(71, 6, 6) * .6; x = torch.cat([x[:, :3], x[:, 3:] + x[:, :3] ** 2], 1) + 1; return x, torch.zeros(64)
@case("https://github.com/tensorflow/models/issues/7465", "log_diff overwritten instead of accumulated", "log det")
def nvp_over(planted): return dict(model=lambda: Flow("over" if planted else "ok"), data=fl, loss=nll)
@case("https://github.com/VincentStimper/normalizing-flows/issues/27", "the log determinant enters with the wrong sign", "loss")
def flow_sign(planted): return dict(model=Flow, data=fl, loss=(lambda o, t: (.5 * (o[0] ** 2).sum(1) + o[1]).mean()) if planted else nll)
# ---- capsules
def squash(s, dim=-1): n = (s ** 2).sum(dim, True); return n / (1 + n) * s / (n + 1e-8).sqrt()
class Caps(nn.Module):
    def __init__(s, dim=2, sq=-1, std=.1, sqdig=-1):
        super().__init__(); s.dim, s.sq, s.sqdig = dim, sq, sqdig; s.conv = nn.Conv2d(3, 32, 5, 1, 2); s.prim = nn.Conv2d(32, 32, 5, 4, 2); s.W = nn.Parameter(torch.randn(1, 64, 6, 16, 8) * std)
    def forward(s, x):
        u = s.prim(F.relu(s.conv(x))); B = len(x); u = u.view(B, 4, 8, 16).permute(0, 1, 3, 2).reshape(B, 64, 8); u = squash(u, s.sq); uh = (s.W @ u[:, :, None, :, None]).squeeze(-1)
        b = uh.new_zeros(1 if s.dim == 0 else B, 64, 6, 1)
        for i in range(3):
            c = b.softmax(s.dim); v = squash((c * uh).sum(1, keepdim=True), s.sqdig)
            if i < 2: a = (uh * v).sum(-1, keepdim=True); b = b + (a.mean(0, keepdim=True) if s.dim == 0 else a)
        return v.squeeze(1).norm(dim=-1)
def margin(v, y): t = F.one_hot(y, 6); return (t * F.relu(.9 - v) ** 2 + .5 * (1 - t) * F.relu(v - .1) ** 2).sum(1).mean()
@case("https://github.com/cedrickchee/capsule-net-pytorch/issues/3", "routing softmax over the input capsules", "routing softmax")
def caps_dim1(planted): return dict(model=lambda: Caps(1 if planted else 2), data=img, loss=margin)
@case("https://github.com/benedekrozemberczki/CapsGNN/issues/13", "routing softmax over a dimension of size 1: all couplings are 1", "routing softmax")
def caps_dim0(planted): return dict(model=lambda: Caps(0 if planted else 2), data=img, loss=margin)
@case("https://github.com/timomernick/pytorch-capsule/issues/8", "squash over the wrong dimension of the primary capsules", "squash after prim")
def caps_squash(planted): return dict(model=lambda: Caps(sq=1 if planted else -1), data=img, loss=margin)
# ---- segmentation
class UNet(nn.Module):
    def __init__(s, mode="ok", act=None):
        super().__init__(); cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU()); s.mode = mode; s.act = act
        s.d1, s.d2, s.mid, s.u2, s.u1 = cb(1, 8), cb(8, 16), cb(16, 32), cb(48, 16), cb(24, 8); s.out = nn.Conv2d(8, 1, 1)
    def forward(s, x):
        a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); m = s.mid(F.max_pool2d(b, 2)); up = lambda z: F.interpolate(z, scale_factor=2)
        if s.mode == "pool": a, b = up(F.max_pool2d(a, 2)), up(F.max_pool2d(b, 2))
        if s.mode == "detach": a, b = a.detach(), b.detach()
        h = s.u2(torch.cat([b, up(m)], 1)); o = s.out(s.u1(torch.cat([a, up(h)], 1))); return s.act(o) if s.act else o
def seg(s, B=16):
    x = T(s, B, 1, 16, 16) * .4; y = torch.zeros(B, 1, 16, 16); r = R(s + 1, 9, (B, 2)); yy, xx = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    for b in range(B): y[b, 0] = ((yy - 3 - r[b, 0]) ** 2 + (xx - 3 - r[b, 1]) ** 2 < 10).float()
    return x + y, y
def dice(p, t): p, t = p.flatten(1), t.flatten(1); return ((2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()
@case("https://github.com/ScrollPrize/villa/pull/1644", "soft dice on raw logits (no sigmoid)", "out / loss")
def dice_logits(planted): return dict(model=UNet, data=seg, loss=(lambda o, t: 1 - dice(o, t)) if planted else lambda o, t: 1 - dice(o.sigmoid(), t))
@case("https://github.com/sraashis/easytorch/pull/38", "the dice coefficient is minimised, not 1 - dice", "loss")
def dice_sign(planted): return dict(model=UNet, data=seg, loss=(lambda o, t: dice(o.sigmoid(), t)) if planted else lambda o, t: 1 - dice(o.sigmoid(), t))
@case("https://github.com/Hsuxu/Loss_ToolBox-PyTorch/issues/11", "softmax, then sigmoid inside the binary dice", "loss")
def dice_double(planted):
    def loss(o, t): p = torch.cat([-o, o], 1).softmax(1); t2 = torch.cat([1 - t, t], 1); p = p.sigmoid() if planted else p; return 1 - (dice(p[:, :1], t2[:, :1]) + dice(p[:, 1:], t2[:, 1:])) / 2
    return dict(model=UNet, data=seg, loss=loss)
@case("https://github.com/jakeret/tf_unet/pull/9", "no backpropagation through the skip connections", "d1 / d2 skip")
def unet_detach(planted): return dict(model=lambda: UNet("detach" if planted else "ok"), data=seg, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))
@case("https://github.com/meetps/pytorch-semseg/issues/1", "the pooled maps are concatenated instead of the maps before pooling", "u1 / d1")
def unet_pool(planted): return dict(model=lambda: UNet("pool" if planted else "ok"), data=seg, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))
@case("https://github.com/fudannlp16/focal-loss/issues/8", "(1-p)*gamma instead of (1-p)**gamma", "loss")
def focal_mul(planted):
    def loss(o, t): p = o.sigmoid().clamp(1e-6, 1 - 1e-6); w = (lambda q: q * 2) if planted else (lambda q: q ** 2); return (-t * .25 * w(1 - p) * p.log() - (1 - t) * .75 * w(p) * (1 - p).log()).mean()
    return dict(model=UNet, data=seg, loss=loss)
@case("https://github.com/qubvel/segmentation_models/issues/258", "alpha and gamma swapped by position", "loss")
def focal_swap(planted):
    def loss(o, t): al, ga = (2., .25) if planted else (.25, 2.); p = o.sigmoid().clamp(1e-6, 1 - 1e-6); return (-t * al * (1 - p) ** ga * p.log() - (1 - t) * (1 - al) * p ** ga * (1 - p).log()).mean()
    return dict(model=UNet, data=seg, loss=loss)
