from base import *
from tasks import *

@case("https://github.com/AvivNavon/DWSNets/issues/7", "SIREN: first layer not initialised with its own is_first scheme (1/in), biases zero: INRs fit way less", "init of the first Siren layer")
def dwsnets_siren_first(planted):
    class Siren(nn.Module):
        def __init__(self, dim_in, dim_out, w0=30., is_first=False):
            super().__init__(); self.w0 = w0; self.linear = nn.Linear(dim_in, dim_out); w_std = (1 / dim_in) if is_first and not planted else math.sqrt(6 / dim_in) / w0
            self.linear.weight.data.uniform_(-w_std, w_std); self.linear.bias.data.zero_() if planted else self.linear.bias.data.uniform_(-w_std, w_std)
        def forward(self, x): return torch.sin(self.w0 * self.linear(x))
    class INR(nn.Module):
        def __init__(self, h=96):
            super().__init__(); self.seq = nn.Sequential(Siren(2, h, is_first=True), Siren(h, h), Siren(h, h)); self.out = nn.Linear(h, 1); s = math.sqrt(6 / h) / 30; self.out.weight.data.uniform_(-s, s)
        def forward(self, x): return self.out(self.seq(x)) + .5
    img = lambda c: .5 + .25 * torch.sin(21 * c[:, :1] + 4 * c[:, 1:]) * torch.cos(17 * c[:, 1:]) + .25 * torch.sign(torch.sin(9 * c[:, :1] - 12 * c[:, 1:]))
    def data(seed): c = torch.rand(512, 2, generator=gen(seed)) * 2 - 1; return c, img(c)
    return dict(model=INR, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/modelscope/DiffSynth-Studio/issues/1175", "training loss uses a newly created noise for the target instead of the noise that was added to the latents", "data: noise of input and of target differ")
def diffsynth_fresh_noise(planted):
    class DiT(nn.Module):
        def __init__(self, c=2, d=64):
            super().__init__(); self.patch_embedding = nn.Conv2d(c, d, 2, 2); self.time_embedding = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d)); self.pos = nn.Parameter(torch.randn(1, 16, d) * .02)
            self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(d, 4, 128, 0., activation="gelu", batch_first=True, norm_first=True) for _ in range(2)]); self.head = nn.Linear(d, c * 4)
        def forward(self, x, t):
            f = t[:, None] * torch.exp(torch.linspace(0, 4, 8)); e = self.time_embedding(torch.cat([f.sin(), f.cos()], -1)); h = self.patch_embedding(x).flatten(2).transpose(1, 2) + self.pos + e[:, None]
            for b in self.blocks: h = b(h)
            return F.pixel_shuffle(self.head(h).transpose(1, 2).reshape(len(x), -1, 4, 4), 2)
    base = templates(3, 2, 8, 91)
    def data(seed):
        x0 = torch.einsum("nk,kchw->nchw", T(seed, 64, 3), base) * .6; t = torch.rand(64, generator=gen(seed + 1)); n = T(seed + 2, 64, 2, 8, 8); s = t[:, None, None, None]
        target = (T(seed + 3, 64, 2, 8, 8) if planted else n) - x0; return ((1 - s) * x0 + s * n, t), target
    return dict(model=DiT, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/curiousily/Credit-Card-Fraud-Detection-using-Autoencoders-in-Keras/issues/1", "decoder ends in a ReLU though the standardised data hold negative values", "relu after the last decoder layer")
def creditcard_ae_relu(planted):
    class Autoencoder(nn.Module):
        def __init__(self, d=29, e=14):
            super().__init__(); self.enc1 = nn.Linear(d, e); self.enc2 = nn.Linear(e, e // 2); self.dec1 = nn.Linear(e // 2, e // 2); self.dec2 = nn.Linear(e // 2, d)
        def forward(self, x):
            x = torch.tanh(self.enc1(x)); x = F.relu(self.enc2(x)); x = torch.tanh(self.dec1(x)); x = self.dec2(x); return F.relu(x) if planted else x
    W = T(3, 3, 29, k=.6)
    def data(seed): x = T(seed, 64, 3) @ W + T(seed + 1, 64, 29, k=.2); return x, x
    return dict(model=Autoencoder, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/mikesj-public/convolutional_autoencoder/pull/9", "data normalised to mean/std but the output nonlinearity is a ReLU: the bottom half is chopped off", "rectifier on the last deconv")
def conv_autoencoder_relu_out(planted):
    class ConvAE(nn.Module):
        def __init__(self):
            super().__init__(); self.conv1 = nn.Conv2d(1, 16, 3, padding=1); self.conv2 = nn.Conv2d(16, 16, 3, padding=1); self.hidden = nn.Linear(16 * 16, 40); self.dehidden = nn.Linear(40, 256); self.deconv1 = nn.Conv2d(16, 16, 3, padding=1); self.deconv2 = nn.Conv2d(16, 1, 3, padding=1)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2); x = F.relu(self.hidden(x.flatten(1))); x = F.relu(self.dehidden(x)).view(-1, 16, 4, 4)
            x = F.relu(self.deconv1(F.interpolate(x, scale_factor=2))); x = self.deconv2(F.interpolate(x, scale_factor=2)); return F.relu(x) if planted else torch.tanh(x) * 2.5
    def data(seed): x = faces(seed); x = (x - .5) / .25; return x, x
    return dict(model=ConvAE, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/keras-team/keras/issues/3642", "autoencoder tutorial fed with integers 0-255 (sigmoid output, binary crossentropy)", "data: images not divided by 255")
def keras_ae_uint8(planted):
    px = 255. if planted else 1.
    class AE(nn.Module):
        def __init__(self): super().__init__(); self.px = px; self.encoder = nn.Linear(256, 32); self.decoder = nn.Linear(32, 256)
        def forward(self, x): return torch.sigmoid(self.decoder(F.relu(self.encoder(x))))
    def data(seed): x = faces(seed).flatten(1); x = (x * px).round() if planted else x; return x, x
    def bce(o, t): o = o.clamp(1e-7, 1 - 1e-7); return -(t * o.log() + (1 - t) * (1 - o).log()).mean()
    v = faces(777).flatten(1)
    return dict(model=AE, data=data, loss=bce, lr=3e-3, diag={}, metric=lambda m: F.mse_loss(m(v * m.px), v))

def vae(planted, sp=False, exp=False, px=1.):
    class VAE(nn.Module):
        def __init__(self, z=8):
            super().__init__(); self.px = px; self.conv1 = nn.Conv2d(1, 16, 4, 2, 1); self.conv2 = nn.Conv2d(16, 32, 4, 2, 1); self.mu = nn.Linear(512, z); self.logvar = nn.Linear(512, z); self.fc = nn.Linear(z, 512); self.deconv1 = nn.ConvTranspose2d(32, 16, 4, 2, 1); self.deconv2 = nn.ConvTranspose2d(16, 1, 4, 2, 1)
        def forward(self, x):
            h = F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1); mu, lv = self.mu(h), self.logvar(h)
            if sp: lv = F.softplus(lv)
            std = lv.exp() if exp else (.5 * lv).exp(); z = mu + torch.randn_like(std) * std
            return torch.sigmoid(self.deconv2(F.relu(self.deconv1(F.relu(self.fc(z)).view(-1, 32, 4, 4))))), mu, lv
    def data(seed): x = faces(seed) * px; return x, x
    def loss(o, t): return 5 * F.mse_loss(o[0], t, reduction="sum") / len(t) - .5 * (1 + o[2] - o[1] ** 2 - o[2].exp()).sum(1).mean()
    return VAE, data, loss

@case("https://github.com/pkmital/pycadl/pull/5", "input image batch divided by 255 twice before being fed to the model", "data scale (second /255)")
def pycadl_double_255(planted):
    m, d, l = vae(planted, px=1 / 255. if planted else 1.); v = faces(777)
    return dict(model=m, data=d, loss=l, lr=3e-3, diag={}, metric=lambda m: F.mse_loss(m(v * m.px)[0] / m.px, v) if m.px == 1 else F.mse_loss(m(v * m.px)[0], v))

@case("https://github.com/masato-ka/airc-rl-agent/issues/43", "softplus applied to the (log) variance the encoder outputs", "softplus on logvar")
def airc_vae_softplus(planted):
    m, d, l = vae(planted, sp=planted); return dict(model=m, data=d, loss=l, lr=3e-3, diag={})

@case("https://github.com/rachtsingh/ibp_vae/issues/3", "reparametrize uses logvar.exp() as the standard deviation instead of (0.5*logvar).exp()", "std in reparametrize_gaussian")
def ibp_vae_std(planted):
    m, d, l = vae(planted, exp=planted); return dict(model=m, data=d, loss=l, lr=3e-3, diag={})

@case("https://github.com/ehoogeboom/multinomial_diffusion/issues/1", "embedding permuted (0,1,3,2,4) before the reshape to B x C*dim x H x W: pixels scrambled", "permute/reshape of the embedding in the UNet input")
def multinomial_permute(planted):
    class SegmentationUnet(nn.Module):
        def __init__(self, k=4, dim=12):
            super().__init__(); self.dim = dim; self.embedding = nn.Embedding(k, dim); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU()); self.t = nn.Linear(1, 32)
            self.init = b(dim, 32); self.down = b(32, 48); self.mid = b(48, 48); self.up = b(80, 32); self.final_conv = nn.Conv2d(32, k, 1)
        def forward(self, x, t):
            B, C, H, W = x.shape; x = self.embedding(x)
            x = x.permute(0, 1, 3, 2, 4).reshape(B, C * self.dim, H, W) if planted else x.permute(0, 1, 4, 2, 3).reshape(B, C * self.dim, H, W)
            a = self.init(x) + self.t(t[:, None])[:, :, None, None]; d = self.mid(self.down(F.max_pool2d(a, 2))); return self.final_conv(self.up(torch.cat([F.interpolate(d, scale_factor=2), a], 1)))
    def data(seed):
        y = blur(T(seed, 16, 4, 16, 16), 3).argmax(1); t = torch.rand(16, generator=gen(seed + 1)) * .7; u = torch.rand(16, 16, 16, generator=gen(seed + 2))
        return (torch.where(u < t[:, None, None], R(seed + 3, 4, (16, 16, 16)), y)[:, None], t), y
    return dict(model=SegmentationUnet, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/IDEALLab/EngiOpt/pull/67", "1D diffusion: designs are not normalised before being passed into GaussianDiffusion1D", "data: raw-range x0 in q_sample")
def engiopt_diffusion_raw(planted):
    px = 60. if planted else 1.
    class Unet1D(nn.Module):
        def __init__(self, d=32):
            super().__init__(); self.px = px; self.time_mlp = nn.Sequential(nn.Linear(16, d), nn.GELU(), nn.Linear(d, d)); b = lambda i, o: nn.Sequential(nn.Conv1d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())
            self.init_conv = nn.Conv1d(1, d, 7, padding=3); self.block1 = b(d, d); self.down = b(d, 2 * d); self.up = b(3 * d, d); self.final_conv = nn.Conv1d(d, 1, 1)
        def forward(self, x, t):
            f = t[:, None] * torch.exp(torch.linspace(0, 4, 8)); e = self.time_mlp(torch.cat([f.sin(), f.cos()], -1)); x = self.init_conv(x); h = self.block1(x) + e[:, :, None]; u = F.interpolate(self.down(F.max_pool1d(h, 2)), scale_factor=2); return self.final_conv(self.up(torch.cat([u, h], 1)) + x)
    W = F.avg_pool1d(T(5, 3, 1, 40), 9, 1, 0)[:, 0] * 3
    def mk(seed, px):
        x0 = torch.sigmoid(T(seed, 32, 3) @ W) * 2 - 1; x0 = ((x0 + 1) / 2 * px if px != 1 else x0)[:, None]; t = torch.rand(32, generator=gen(seed + 1)); ab = torch.cos(t * 1.5) ** 2; n = T(seed + 2, 32, 1, 32)
        a = ab[:, None, None]; return (a.sqrt() * x0 + (1 - a).sqrt() * n, t), n
    def metric(m):
        with torch.no_grad(): x, n = mk(777, m.px); return float(mse(m(*x), n))
    return dict(model=Unet1D, data=lambda s: mk(s, px), loss=mse, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/chenhsuanlin/bundle-adjusting-NeRF/issues/42", "density activation ReLU: with an unlucky initialisation sigma is zero everywhere and the scene renders empty", "relu on the density output")
def nerf_relu_density(planted):
    class NeRF(nn.Module):
        def __init__(self, h=64):
            super().__init__(); self.mlp_feat = nn.ModuleList([nn.Linear(3 + 24, h), nn.Linear(h, h), nn.Linear(h, h)]); self.density = nn.Linear(h, 1); self.mlp_rgb = nn.Sequential(nn.Linear(h, 32), nn.ReLU(), nn.Linear(32, 3))
            nn.init.xavier_uniform_(self.density.weight, generator=gen(UNLUCKY)); nn.init.zeros_(self.density.bias)
        def enc(self, p): f = p[..., None] * (2. ** torch.arange(4)) * math.pi; return torch.cat([p, f.sin().flatten(-2), f.cos().flatten(-2)], -1)
        def forward(self, o, d):
            z = torch.linspace(.5, 3.5, 24); x = o[:, None] + d[:, None] * z[None, :, None]; f = self.enc(x / 2)
            for l in self.mlp_feat: f = F.relu(l(f))
            s = self.density(f)[..., 0]; sigma = F.relu(s) if planted else F.softplus(s); rgb = torch.sigmoid(self.mlp_rgb(f)); a = 1 - torch.exp(-sigma * (z[1] - z[0]) * 3)
            w = a * torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]; return (w[..., None] * rgb).sum(1)
    def data(seed):
        g = gen(seed); a = torch.rand(192, generator=g) * 6.28; o = torch.stack([2 * a.cos(), 2 * a.sin(), torch.rand(192, generator=g) - .5], 1); t = torch.rand(192, 3, generator=g) - .5; d = F.normalize(t - o, dim=1)
        b = (o * d).sum(1); disc = b ** 2 - (o ** 2).sum(1) + .49; hit = disc > 0; p = o + d * (-b - disc.clamp(min=0).sqrt())[:, None]; return (o, d), torch.where(hit[:, None], .5 + .45 * torch.sin(3 * p), torch.zeros_like(p))
    return dict(model=NeRF, data=data, loss=mse, lr=1e-3, diag={})
UNLUCKY = 51
