import copy, math, torch, torch.nn as nn, torch.nn.functional as F
from harness import case, main
G = lambda i: torch.Generator().manual_seed(i)
def blobs(i, B=32, S=16, C=1):
    g = G(i); y = torch.randint(0, 4, (B,), generator=g); cx = torch.tensor([4., 12, 4, 12])[y] + torch.randn(B, generator=g); cy = torch.tensor([4., 4, 12, 12])[y] + torch.randn(B, generator=g); r = torch.arange(S).float()
    im = torch.exp(-((r[None, :, None] - cy[:, None, None]) ** 2 + (r[None, None] - cx[:, None, None]) ** 2) / 8); return (im[:, None] * 2 - 1).expand(B, C, S, S).clone(), y
def temb(t, d, mx=10000):
    h = d // 2; f = torch.exp(-math.log(mx) * torch.arange(h).float() / h); a = t.float()[:, None] * f; return torch.cat([a.sin(), a.cos()], -1)
AB = torch.cumprod(1 - torch.linspace(1e-4, .02, 1000), 0)

class ResBlock(nn.Module):
    def __init__(self, i, o, e): super().__init__(); self.n1 = nn.GroupNorm(4, i); self.c1 = nn.Conv2d(i, o, 3, padding=1); self.emb = nn.Linear(e, o); self.n2 = nn.GroupNorm(4, o); self.c2 = nn.Conv2d(o, o, 3, padding=1); self.sk = nn.Conv2d(i, o, 1) if i != o else nn.Identity(); nn.init.zeros_(self.c2.weight); nn.init.zeros_(self.c2.bias)
    def forward(self, x, e): h = self.c1(F.silu(self.n1(x))) + self.emb(F.silu(e))[..., None, None]; return self.sk(x) + self.c2(F.silu(self.n2(h)))
class UNet(nn.Module):
    def __init__(self, bug=False):
        super().__init__(); c, e = 16, 64; self.bug = bug; self.time = nn.Sequential(nn.Linear(32, e), nn.SiLU(), nn.Linear(e, e)); self.label = nn.Embedding(5, e); self.inp = nn.Conv2d(1, c, 3, padding=1); self.d1 = ResBlock(c, c, e); self.down = nn.Conv2d(c, 2 * c, 3, 2, 1); self.d2 = ResBlock(2 * c, 2 * c, e); self.mid = ResBlock(2 * c, 2 * c, e); self.u2 = ResBlock(4 * c, 2 * c, e); self.up = nn.ConvTranspose2d(2 * c, c, 4, 2, 1); self.u1 = ResBlock(2 * c, c, e); self.out = nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv2d(c, 1, 3, padding=1))
    def forward(self, x, t, y, p_drop=.1):
        if self.training and p_drop: y = torch.where(torch.rand(y.shape) < p_drop, torch.full_like(y, 4), y)
        e = self.time(temb(t, 32)) + self.label(y); h1 = self.d1(self.inp(x), e); h2 = self.d2(self.down(h1), e); h = self.mid(h2, e); h = self.up(self.u2(torch.cat([h, h2], 1), e)); o = self.out(self.u1(torch.cat([h, h1], 1), e)); return torch.sigmoid(o) if self.bug else o
    @torch.no_grad()
    def guided(self, x, t, y, w=3.): return (1 + w) * self(x, t, y, 0) - w * self(x, t, torch.full_like(y, 4), 0)
def noised(i, B=32):
    x, y = blobs(i, B); g = G(i + 1); t = torch.randint(0, 1000, (B,), generator=g); e = torch.randn(x.shape, generator=g); a = AB[t][:, None, None, None]; return (a.sqrt() * x + (1 - a).sqrt() * e, t, y), e
@case("final sigmoid on the predicted noise", "out")
def ddpm_unet(bug): return dict(model=lambda: UNet(bug), data=noised, loss=lambda o, e: F.mse_loss(o, e))

class KLAE(nn.Module):
    def __init__(self, bug=False): super().__init__(); self.bug = bug; self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 8, 1)); self.decoder = nn.Sequential(nn.Conv2d(4, 32, 3, 1, 1), nn.SiLU(), nn.Upsample(scale_factor=2), nn.Conv2d(32, 16, 3, 1, 1), nn.SiLU(), nn.Upsample(scale_factor=2), nn.Conv2d(16, 1, 3, 1, 1))
    def forward(self, x):
        m, lv = self.encoder(x).chunk(2, 1); lv = lv.clamp(-30, 20); z = m + torch.exp(.5 * lv) * torch.randn_like(m); r = self.decoder(z); return dict(recon=r, mean=m, logvar=lv)
def klae_loss(w):
    def f(o, x): kl = .5 * (o["mean"] ** 2 + o["logvar"].exp() - 1 - o["logvar"]).sum((1, 2, 3)).mean(); return F.mse_loss(o["recon"], x) + w * kl
    return f
@case("KL summed with weight 1 against a mean-reduced reconstruction (posterior collapse)", "loss / encoder.6")
def latent_ae(bug): return dict(model=lambda: KLAE(bug), data=lambda i: (blobs(i)[0], blobs(i)[0]), loss=klae_loss(1. if bug else 1e-5))

class DiTBlock(nn.Module):
    def __init__(self, d, bug): super().__init__(); self.bug = bug; self.norm1 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6); self.attn = nn.MultiheadAttention(d, 4, batch_first=True); self.norm2 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6); self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d)); self.adaLN = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))
    def mod(self, x, sh, sc): return x * sc[:, None] + sh[:, None] if self.bug else x * (1 + sc[:, None]) + sh[:, None]
    def forward(self, x, c):
        a, b, g, e, f, k = self.adaLN(c).chunk(6, 1); h = self.mod(self.norm1(x), a, b); x = x + g[:, None] * self.attn(h, h, h)[0]; return x + k[:, None] * self.mlp(self.mod(self.norm2(x), e, f))
class DiT(nn.Module):
    def __init__(self, bug=False):
        super().__init__(); d = 64; self.patch = nn.Conv2d(1, d, 4, 4); self.pos = nn.Parameter(torch.randn(1, 16, d) * .02); self.t = nn.Sequential(nn.Linear(64, d), nn.SiLU(), nn.Linear(d, d)); self.y = nn.Embedding(5, d); self.blocks = nn.ModuleList(DiTBlock(d, bug) for _ in range(3)); self.norm = nn.LayerNorm(d, elementwise_affine=False); self.fmod = nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d)); self.final = nn.Linear(d, 16); self.bug = bug
        for l in [b.adaLN[1] for b in self.blocks] + [self.fmod[1], self.final]: nn.init.zeros_(l.weight); nn.init.zeros_(l.bias)
    def forward(self, x, t, y):
        h = self.patch(x).flatten(2).transpose(1, 2) + self.pos; c = self.t(temb(t, 64)) + self.y(y)
        for b in self.blocks: h = b(h, c)
        sh, sc = self.fmod(c).chunk(2, 1); h = self.norm(h); h = h * sc[:, None] + sh[:, None] if self.bug else h * (1 + sc[:, None]) + sh[:, None]; o = self.final(h).view(-1, 4, 4, 4, 4); return o.permute(0, 1, 3, 2, 4).reshape(-1, 1, 16, 16)
@case("modulate x*scale+shift without the 1+, zero-initialised", "adaLN/fmod/final")
def dit(bug): return dict(model=lambda: DiT(bug), data=noised, loss=lambda o, e: F.mse_loss(o, e))

class VelField(nn.Module):
    def __init__(self, bug=False): super().__init__(); self.bug = bug; self.net = nn.Sequential(nn.Linear(3, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2))
    def forward(self, xt, t):
        if t.dim() == 1: t = t[:, None]
        return self.net(torch.cat([xt, t * 1000 if self.bug else t], 1))
def fm(i, B=256):
    g = G(i); th = torch.rand(B, generator=g) * 6.283; x1 = torch.stack([th.cos(), th.sin()], 1) * 2 + torch.randn(B, 2, generator=g) * .1; x0 = torch.randn(B, 2, generator=g); t = torch.rand(B, generator=g); return ((1 - t[:, None]) * x0 + t[:, None] * x1, t), x1 - x0
@case("time 0..1000 raw into the first linear layer next to x~1", "net.0")
def flow_matching(bug): return dict(model=lambda: VelField(bug), data=fm, loss=lambda v, u: ((v - u) ** 2).sum(1).mean())

class Consistency(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(2 + 16, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2)); self.ema = copy.deepcopy(self.f).requires_grad_(False); self.sd, self.eps = .5, .002
    def head(self, net, x, s): cs = self.sd ** 2 / ((s - self.eps) ** 2 + self.sd ** 2); co = self.sd * (s - self.eps) / (s ** 2 + self.sd ** 2).sqrt(); ci = 1 / (s ** 2 + self.sd ** 2).sqrt(); return cs * x + co * net(torch.cat([ci * x, temb(s[:, 0].log() * 250, 16)], 1))
    def forward(self, x, z, s, s2):
        a = self.head(self.f, x + z * s2, s2)
        with torch.no_grad(): b = self.head(self.ema, x + z * s, s)
        return a, b
def cons(i, B=128):
    g = G(i); x = torch.randn(B, 2, generator=g).sign() * .5 + .05 * torch.randn(B, 2, generator=g); n = torch.randint(0, 17, (B, 1), generator=g).float(); sg = lambda n: (.002 ** (1 / 7) + n / 17 * (80 ** (1 / 7) - .002 ** (1 / 7))) ** 7; return (x, torch.randn(B, 2, generator=g), sg(n), sg(n + 1)), x
@case()
def consistency(bug): return dict(model=Consistency, data=cons, loss=lambda o, x: ((o[0] - o[1]) ** 2 + .03 ** 2).sqrt().mean())

class RealNVP(nn.Module):
    def __init__(self, D=6, L=6, bug=False):
        super().__init__(); self.nets = nn.ModuleList(nn.Sequential(nn.Linear(D, 64), nn.LeakyReLU(.01), nn.Linear(64, 64), nn.LeakyReLU(.01), nn.Linear(64, 2 * D)) for _ in range(L)); m = torch.arange(D) % 2; self.register_buffer("masks", torch.stack([(m if (k % 2 == 0 or bug) else 1 - m).float() for k in range(L)])); self.scale = nn.Parameter(torch.ones(L, D))
    def forward(self, x):
        ld = x.new_zeros(len(x))
        for m, n, sc in zip(self.masks, self.nets, self.scale): s, t = n(x * m).chunk(2, 1); s = torch.tanh(s) * sc * (1 - m); x = x * m + (1 - m) * (x * s.exp() + t); ld = ld + s.sum(1)
        return x, ld
def tab(i, B=128): g = G(i); z = torch.randn(B, 6, generator=g); M = torch.randn(6, 6, generator=G(3)); x = z @ M * .5 + 1; x = torch.cat([x[:, :5], x[:, :1] ** 2 * .5 + .2 * z[:, 5:]], 1); return x * torch.tensor([.2, 1, 3, 1, .3, 1]) , torch.zeros(B)
def nll(o, _): z, ld = o; return (.5 * (z ** 2).sum(1) + .9189 * z.shape[1] - ld).mean()
@case("coupling masks do not alternate: half of the dims are never transformed", "nets/masks")
def realnvp(bug): return dict(model=lambda: RealNVP(bug=bug), data=tab, loss=nll)

class MLin(nn.Linear):
    def __init__(self, i, o, mask): super().__init__(i, o); self.register_buffer("mask", mask)
    def forward(self, x): return F.linear(x, self.weight * self.mask, self.bias)
class MAF(nn.Module):
    def __init__(self, D=6, H=64, L=3, bug=False):
        super().__init__(); din = torch.arange(1, D + 1); dh = torch.arange(H) % (D - 1) + 1
        if bug: dh = torch.full((H,), D)
        do = din.repeat(2); self.mades = nn.ModuleList(nn.Sequential(MLin(D, H, (dh[:, None] >= din[None]).float()), nn.ReLU(), MLin(H, H, (dh[:, None] >= dh[None]).float()), nn.ReLU(), MLin(H, 2 * D, (do[:, None] > dh[None]).float())) for _ in range(L))
    def forward(self, x):
        ld = 0
        for m in self.mades: mu, a = m(x).chunk(2, 1); a = torch.tanh(a / 3) * 3; x = (x - mu) * (-a).exp(); ld = ld - a.sum(1); x = x.flip(1)
        return x, ld
@case("hidden degrees all D: no hidden unit reaches an output", "mades.*")
def maf(bug): return dict(model=lambda: MAF(bug=bug), data=tab, loss=nll)

class EBM(nn.Module):
    def __init__(self, bug=False): super().__init__(); self.e = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)); self.bug = bug
    def forward(self, real, noise): return self.e(real).squeeze(1), self.e(noise).squeeze(1)
def ebd(i): (x, t), _ = fm(i); g = G(i); th = torch.rand(128, generator=g) * 6.283; return (torch.stack([th.cos(), th.sin()], 1) * 2 + .1 * torch.randn(128, 2, generator=g), torch.randn(128, 2, generator=g) * 2), torch.zeros(128)
@case("hinge/contrastive energies: mean(E(real)) - mean(E(real)) wired same (noise branch gets real)", "forward")
def ebm(bug):
    class E2(EBM):
        def forward(self, real, noise): return super().forward(real, real if bug else noise)
    return dict(model=E2, data=ebd, loss=lambda o, _: F.softplus(o[0]).mean() + F.softplus(-o[1]).mean() + 1e-3 * (o[0] ** 2 + o[1] ** 2).mean(), own_eval=(lambda o, _: F.softplus(o[0]).mean() + F.softplus(-o[1]).mean()))

_D = {}
def disc():
    if not _D:
      with torch.random.fork_rng():
        torch.manual_seed(5); d = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(512, 1)); o = torch.optim.Adam(d.parameters(), 1e-3)
        for i in range(30):
            l = F.softplus(-d(blobs(i)[0])).mean() + F.softplus(d(torch.randn(32, 1, 16, 16) * .7)).mean(); o.zero_grad(); l.backward(); o.step()
        _D["d"] = d
    return copy.deepcopy(_D["d"])
class GANStep(nn.Module):
    def __init__(self, bug): super().__init__(); self.D = disc().requires_grad_(False); self.G = nn.Sequential(nn.Linear(32, 32 * 16), nn.Unflatten(1, (32, 4, 4)), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.ReLU() if bug else nn.Tanh())
    def forward(self, z): fake = self.G(z); return self.D(fake).squeeze(1)
@case("generator ends in ReLU though images are in [-1,1]", "G.7/G.8")
def gan_generator(bug): return dict(model=lambda: GANStep(bug), data=lambda i: (torch.randn(32, 32, generator=G(i)), torch.ones(32)), loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

class VQ(nn.Module):
    def __init__(self, K, d, bug): super().__init__(); self.register_buffer("emb", torch.randn(K, d) * .3); self.register_buffer("n", torch.ones(K)); self.register_buffer("s", self.emb.clone()); self.bug = bug
    def forward(self, z):
        f = z.permute(0, 2, 3, 1).reshape(-1, z.size(1)); i = torch.cdist(f, self.emb).argmin(1); q = self.emb[i]
        if self.training:
            with torch.no_grad(): oh = F.one_hot(i, len(self.n)).float(); self.n.mul_(.95).add_(oh.sum(0), alpha=.05); self.s.mul_(.95).add_(oh.T @ f, alpha=.05); self.emb.copy_(self.s / self.n.clamp(min=1e-2)[:, None])
        q = q.view(z.size(0), z.size(2), z.size(3), -1).permute(0, 3, 1, 2); com = F.mse_loss(z, q.detach()); return (q if self.bug else z + (q - z).detach()), com, i
class VQVAE(nn.Module):
    def __init__(self, bug): super().__init__(); self.enc = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 8, 1)); self.vq = VQ(32, 8, bug); self.dec = nn.Sequential(nn.Conv2d(8, 32, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))
    def forward(self, x): q, c, i = self.vq(self.enc(x)); return self.dec(q), c
@case("straight-through estimator forgotten: encoder gets the commitment loss only", "vq / enc")
def vqvae(bug): return dict(model=lambda: VQVAE(bug), data=lambda i: (blobs(i)[0], blobs(i)[0]), loss=lambda o, x: F.mse_loss(o[0], x) + .25 * o[1], own_eval=lambda o, x: F.mse_loss(o[0], x))

class MConv(nn.Conv2d):
    def __init__(self, t, *a, **k): super().__init__(*a, **k); m = torch.ones_like(self.weight); h = m.size(2) // 2; m[:, :, h, h + (t == "B"):] = 0; m[:, :, h + 1:] = 0; self.register_buffer("mask", m)
    def forward(self, x): return self._conv_forward(x, self.weight * self.mask, self.bias)
class PixelCNN(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; self.inp = MConv("A", 1, 32, 7, padding=3); self.body = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(32) if False else nn.Identity(), nn.ReLU(), MConv("B", 32, 32, 3, padding=1)) for _ in range(4)); self.head = nn.Sequential(nn.ReLU(), nn.Conv2d(32, 8, 1))
    def forward(self, x):
        h = self.inp(x.float() * (100 if self.bug else 1))
        for b in self.body: h = h + b(h)
        return self.head(h)
def pix(i): x, y = blobs(i); q = ((x[:, 0] + 1) / 2 * 7.99).long(); return (q[:, None].float() / 7 - .5), q
@case("pixels left at ±50 instead of ±0.5", "inp")
def pixelcnn(bug): return dict(model=lambda: PixelCNN(bug), data=pix, loss=lambda o, y: F.cross_entropy(o, y))

class WaveNet(nn.Module):
    def __init__(self, bug): super().__init__(); c = 32; self.bug = bug; self.emb = nn.Conv1d(32, c, 1); self.filt, self.gate = [nn.ModuleList(nn.Conv1d(c, c, 2, dilation=2 ** k) for k in range(5)) for _ in range(2)]; self.res, self.skip = [nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(5)) for _ in range(2)]; self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, 32, 1))
    def forward(self, x):
        h = self.emb(F.one_hot(x, 32).float().transpose(1, 2)); sk = 0
        for k in range(5):
            p = F.pad(h, (2 ** k, 0)); z = torch.tanh(self.filt[k](p)) * torch.sigmoid(self.gate[k](p)); sk = sk + self.skip[k](z); h = self.res[k](z) if self.bug else h + self.res[k](z)
        return self.end(sk)
def wave(i, B=24): g = G(i); f = .1 + .3 * torch.rand(B, 1, generator=g); t = torch.arange(65).float()[None]; s = torch.sin(f * t + 6.28 * torch.rand(B, 1, generator=g)) * .9; q = ((s + 1) / 2 * 31).round().long(); return q[:, :-1], q[:, 1:]
@case("residual connection forgotten: h = res(z)", "res.*")
def wavenet(bug): return dict(model=lambda: WaveNet(bug), data=wave, loss=lambda o, y: F.cross_entropy(o, y))
if __name__ == "__main__": main()
