from base import *

def gmm_img(s, n, hw=8):
    P = T(55, 4, 3, hw, hw); return torch.tanh(P[R(s, 4, (n,))] + T(s + 1, n, 3, hw, hw, k=.3))

class Disc(nn.Module):
    def __init__(s, planted=False, sn=False, out=1):
        super().__init__(); s.main = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(256, out))
    def forward(s, real, fake): return s.main(real), s.main(fake)

def realfake(seed): return (gmm_img(seed, 32), torch.tanh(T(seed + 5, 32, 3, 8, 8))), torch.zeros(1)

@case("https://github.com/SerezD/vqvae-vqgan-pytorch-lightning/issues/3", "non-saturating D loss: fake logits trained towards ones_like instead of zeros_like", "discriminator loss: target of logits_fake")
def vqgan_d_fake_ones(planted):
    bce = F.binary_cross_entropy_with_logits
    def mk(bad):
        def f(o, t): r, k = o; return .5 * (bce(r, torch.ones_like(r)) + bce(k, torch.ones_like(k) if bad else torch.zeros_like(k)))
        return f
    def ref(m):
        with torch.no_grad(): return sum(float(mk(False)(m(*realfake(9000 + k)[0]), None)) for k in range(5)) / 5
    return dict(model=Disc, data=realfake, loss=mk(planted), lr=1e-3, diag={}, metric=ref)

@case("https://github.com/mtics/deep-photo-enhancer/issues/7", "the paper's critic objective (to be maximised) is minimised", "discriminator loss: sign of E[D(x)] - E[D(x')]")
def dpe_critic_sign(planted):
    class Critic(Disc):
        def forward(s, real, fake, eps):
            with torch.enable_grad():
                x = (eps * real + (1 - eps) * fake).detach().requires_grad_(True); g = torch.autograd.grad(s.main(x).sum(), x, create_graph=True)[0]
            return s.main(real), s.main(fake), (g.flatten(1).norm(dim=1) - 1).square().mean()
    def data(seed): (r, k), t = realfake(seed); return (r, k, torch.rand(32, 1, 1, 1, generator=gen(seed))), t
    def mk(bad):
        def f(o, t): r, k, gp = o; ad = r.mean() - k.mean(); return (ad if bad else -ad) + 10 * gp
        return f
    def ref(m):
        with torch.no_grad(): return sum(float(mk(False)(m(*data(9000 + k)[0]), None)) for k in range(5)) / 5
    return dict(model=Critic, data=data, loss=mk(planted), lr=1e-3, diag={}, metric=ref)

@case("https://github.com/j-min/PixelCNN/pull/4", "mask 'B' zeroes the whole centre row and leaves the rows below visible", "MaskedConv2d mask for mask_type B")
def pixelcnn_mask_b(planted):
    class MaskedConv2d(nn.Conv2d):
        def __init__(s, mask_type, *a, **k):
            super().__init__(*a, **k); _, _, h, w = s.weight.shape; mask = torch.ones_like(s.weight)
            if mask_type == "A": mask[:, :, h // 2, w // 2:] = 0; mask[:, :, h // 2 + 1:] = 0
            else:
                mask[:, :, h // 2, w // 2 + 1:] = 0
                if planted: mask[:, :, h // 2] = 0
                else: mask[:, :, h // 2 + 1:] = 0
            s.register_buffer("mask", mask)
        def forward(s, x): return F.conv2d(x, s.weight * s.mask, s.bias, s.stride, s.padding)
    class PixelCNN(nn.Module):
        def __init__(s, d=32):
            super().__init__(); s.net = nn.Sequential(MaskedConv2d("A", 1, d, 7, padding=3), nn.BatchNorm2d(d), nn.ReLU(), *[l for _ in range(3) for l in (MaskedConv2d("B", d, d, 3, padding=1), nn.BatchNorm2d(d), nn.ReLU())], nn.Conv2d(d, 4, 1))
        def forward(s, x): return s.net(x.unsqueeze(1).float() / 3)
    def data(seed):
        r = [R(seed, 4, (32, 8))]
        for i in range(7): r.append((r[-1] + (torch.rand(32, 8, generator=gen(seed * 9 + i)) < .15)).remainder(4))
        x = torch.stack(r, 1); return x, x
    def ref(m):
        tot = 0
        with torch.no_grad():
            x, _ = data(9000)
            for n in range(3, 64, 6):
                y = x.flatten(1).clone(); y[:, n:] = R(n, 4, y[:, n:].shape); tot += float(F.cross_entropy(m(y.view_as(x)).flatten(2)[:, :, n], x.flatten(1)[:, n])) / 11
        return tot
    return dict(model=PixelCNN, data=data, loss=ce, lr=3e-3, diag={}, metric=ref)

@case("https://github.com/HobbitLong/SupContrast/issues/10", "features normalised over the views dimension (dim=1) instead of the feature dimension", "F.normalize(features, dim=1)")
def supcon_normalize_dim(planted):
    class SupConNet(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()); s.head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
        def forward(s, x):
            f = s.head(s.encoder(x.flatten(0, 1))).view(x.shape[0], 2, -1); return F.normalize(f, dim=1 if planted else 2)
    P = T(61, 4, 3, 12, 12)
    def data(seed): t = R(seed, 4, (32,)); return P[t].unsqueeze(1) * .7 + T(seed + 1, 32, 2, 3, 12, 12), t
    def loss(f, t):
        f = torch.cat(f.unbind(1), 0); t = t.repeat(2); l = f @ f.T / .07; l = l - l.max(1, keepdim=True)[0].detach(); eye = torch.eye(len(f)); mask = (t[:, None] == t[None]).float() * (1 - eye)
        lp = l - torch.log((l.exp() * (1 - eye)).sum(1, keepdim=True)); return -((mask * lp).sum(1) / mask.sum(1)).mean()
    return dict(model=SupConNet, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/willisma/SiT/issues/24", "sinusoidal timestep embedding (max_period 10000) fed with t in [0,1] unscaled", "TimestepEmbedder: t not scaled")
def sit_timestep(planted):
    class TimestepEmbedder(nn.Module):
        def __init__(s, h, f=64): super().__init__(); s.f = f; s.mlp = nn.Sequential(nn.Linear(f, h), nn.SiLU(), nn.Linear(h, h))
        def forward(s, t):
            fr = torch.exp(-math.log(10000) * torch.arange(s.f // 2) / (s.f // 2)); a = (t if planted else t * 1000)[:, None] * fr; return s.mlp(torch.cat([a.cos(), a.sin()], -1))
    class Block(nn.Module):
        def __init__(s, d):
            super().__init__(); s.norm1 = nn.LayerNorm(d, elementwise_affine=False); s.attn = nn.MultiheadAttention(d, 4, batch_first=True); s.norm2 = nn.LayerNorm(d, elementwise_affine=False); s.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); s.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d)); nn.init.zeros_(s.ada[1].weight); nn.init.zeros_(s.ada[1].bias)
        def forward(s, x, c):
            a, b, g, d, e, h = s.ada(c).unsqueeze(1).chunk(6, -1); y = s.norm1(x) * (1 + b) + a; x = x + g * s.attn(y, y, y, need_weights=False)[0]; return x + h * s.mlp(s.norm2(x) * (1 + e) + d)
    class SiT(nn.Module):
        def __init__(s, d=48):
            super().__init__(); s.x_embedder = nn.Linear(6, d); s.t_embedder = TimestepEmbedder(d); s.pos = nn.Parameter(T(1, 1, 8, d, k=.02)); s.blocks = nn.ModuleList([Block(d) for _ in range(3)]); s.norm = nn.LayerNorm(d); s.final = nn.Linear(d, 6); nn.init.zeros_(s.final.weight); nn.init.zeros_(s.final.bias)
        def forward(s, x, t):
            c = s.t_embedder(t); x = s.x_embedder(x) + s.pos
            for b in s.blocks: x = b(x, c)
            return s.final(s.norm(x))
    P = T(81, 4, 8, 6)
    def data(seed):
        x1 = P[R(seed, 4, (64,))]; x0 = T(seed + 1, 64, 8, 6); t = torch.rand(64, generator=gen(seed + 2)); tt = t[:, None, None]; return ((1 - tt) * x1 + tt * x0, t), x0 - x1
    return dict(model=SiT, data=data, loss=mse, lr=3e-3, diag={})
