from com import *

@case("paper: VICReg", "standard deviations taken over the features of each example (dim 1) instead of over the batch: collapse costs nothing", "variance loss")
def vicreg_std_dim(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 32, 3, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 64)); s.expander = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        def forward(s, a, b): return torch.stack([s.expander(s.f(x)) for x in (a, b)], 1)
    def mk(pl):
        def loss(z, t=None):
            a, b = z[:, 0], z[:, 1]; d = 1 if pl else 0; v = sum(F.relu(1 - (x.var(d) + 1e-4).sqrt()).mean() for x in (a, b)) / 2; c = 0
            for x in (a, b): x = x - x.mean(0); q = x.T @ x / (len(x) - 1); c = c + (q.pow(2).sum() - q.diagonal().pow(2).sum()) / 32
            return 25 * F.mse_loss(a, b) + 25 * v + c
        return loss
    def data(seed):
        x = F.interpolate(T(seed, 32, 3, 4, 4), size=16); return (x + .8 * T(seed + 1, 32, 3, 16, 16), x + .8 * T(seed + 2, 32, 3, 16, 16)), torch.zeros(32)
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: VAE", "reconstruction averaged over the pixels, KL summed over the latents: posterior collapse", "loss / encoder")
def vae_kl_scale(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(144, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()); s.mu = nn.Linear(64, 8); s.logvar = nn.Linear(64, 8); s.dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 144))
        def forward(s, x): h = s.enc(x.flatten(1)); m, lv = s.mu(h), s.logvar(h); z = m + torch.randn_like(m) * (lv / 2).exp(); return s.dec(z), m, lv
    def mk(pl):
        def loss(o, t): r, m, lv = o; b = F.binary_cross_entropy_with_logits(r, t, reduction="none"); kl = -.5 * (1 + lv - m ** 2 - lv.exp()).sum(1); return ((b.mean(1) if pl else b.sum(1)) + kl).mean()
        return loss
    def data(seed): y = R(seed, 12, (64,)); x = (F.interpolate(T(7, 12, 1, 6, 6), size=12)[y] + .3 * T(seed + 1, 64, 1, 12, 12) > 0).float(); return x, x.flatten(1)
    return dict(model=Net, data=data, loss=mk(planted), diag={})

@case("paper: VQ-VAE", "quantised code fed to the decoder without the straight-through estimator", "encoder / quantiser")
def vqvae_no_ste(planted):
    class Net(nn.Module):
        def __init__(s, d=8, K=64):
            super().__init__(); s.enc = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, d, 1)); s.codebook = nn.Embedding(K, d); nn.init.normal_(s.codebook.weight); s.norm = nn.LayerNorm(d, elementwise_affine=False); s.dec = nn.Sequential(nn.Conv2d(d, 32, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))
        def forward(s, x):
            z = s.norm(s.enc(x).permute(0, 2, 3, 1)); d = (z ** 2).sum(-1, keepdim=True) - 2 * z @ s.codebook.weight.T + (s.codebook.weight ** 2).sum(1); q = s.codebook(d.argmin(-1))
            vq = ((q - z.detach()) ** 2).mean((1, 2, 3)) + .25 * ((z - q.detach()) ** 2).mean((1, 2, 3)); q = q if planted else z + (q - z).detach(); return s.dec(q.permute(0, 3, 1, 2)), vq
    def loss(o, t): return F.mse_loss(o[0], t) + o[1].mean()
    def data(seed): x = F.interpolate(T(seed, 16, 1, 4, 4), size=16, mode="bilinear") * 1.5; return x, x
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: RealNVP", "the same mask in every coupling layer: half of the dimensions is never transformed", "coupling masks")
def realnvp_same_mask(planted):
    class Cpl(nn.Module):
        def __init__(s, i, d=6):
            super().__init__(); s.register_buffer("m", ((torch.arange(d) + (0 if planted else i)) % 2).float()); s.net = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2 * d)); nn.init.zeros_(s.net[4].weight); nn.init.zeros_(s.net[4].bias)
        def forward(s, x): k = s.net(x * s.m); a, b = k.chunk(2, 1); a = torch.tanh(a) * 2 * (1 - s.m); return x * a.exp() + b * (1 - s.m), a.sum(1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.layers = nn.ModuleList(Cpl(i) for i in range(6))
        def forward(s, x):
            ld = 0
            for l in s.layers: x, d = l(x); ld = ld + d
            return torch.cat([x, ld[:, None]], 1)
    def nll(o, t): return (.5 * (o[:, :-1] ** 2).sum(1) + 3 * math.log(2 * math.pi) - o[:, -1]).mean()
    def data(seed):
        g = gen(seed); z = torch.randn(128, 6, generator=g); th = torch.rand(128, 3, generator=g) * 6.28; x = torch.stack([th.cos(), th.sin()], 2).flatten(1) * 1.2 + .1 * z; return x, torch.zeros(128)
    return dict(model=Net, data=data, loss=nll, diag={})

@case("paper: StyleGAN (AdaIN)", "style scale used as y_s * x with zero-initialised affine, without the 1 +: feature maps start at nought", "AdaIN affine layers")
def stylegan_adain_one(planted):
    class SB(nn.Module):
        def __init__(s, i, o): super().__init__(); s.conv = nn.Conv2d(i, o, 3, padding=1); s.style = nn.Linear(32, 2 * o); nn.init.zeros_(s.style.weight); nn.init.zeros_(s.style.bias); s.inorm = nn.InstanceNorm2d(o)
        def forward(s, x, w): a, b = s.style(w)[:, :, None, None].chunk(2, 1); x = s.inorm(F.leaky_relu(s.conv(x), .2)); return x * (a if planted else 1 + a) + b
    class G(nn.Module):
        def __init__(s): super().__init__(); s.mapping = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(.2), nn.Linear(32, 32), nn.LeakyReLU(.2)); s.const = nn.Parameter(torch.randn(1, 32, 4, 4)); s.b1 = SB(32, 32); s.b2 = SB(32, 24); s.b3 = SB(24, 16); s.rgb = nn.Conv2d(16, 3, 1)
        def forward(s, z): w = s.mapping(z); x = s.b1(s.const.expand(len(z), -1, -1, -1), w); x = s.b2(F.interpolate(x, scale_factor=2), w); return s.rgb(s.b3(F.interpolate(x, scale_factor=2), w))
    def data(seed): z = T(seed, 32, 16); W = T(4, 16, 3 * 16) / 4; return z, F.interpolate((z @ W).view(32, 3, 4, 4), size=16, mode="bilinear")
    return dict(model=G, data=data, loss=mse, diag={})

def temb(t, d=32): f = torch.exp(-math.log(1e4) * torch.arange(d // 2) / (d // 2)); a = t[:, None].float() * f; return torch.cat([a.sin(), a.cos()], 1)
@case("paper: DDPM", "timestep divided by T (0..1) before a sinusoidal embedding made for integers 0..999", "time embedding")
def ddpm_time_scale(planted):
    ab = torch.cumprod(1 - torch.linspace(1e-4, .02, 1000), 0)
    class Res(nn.Module):
        def __init__(s, i, o): super().__init__(); s.n1 = nn.GroupNorm(4, i); s.c1 = nn.Conv2d(i, o, 3, padding=1); s.t = nn.Linear(64, o); s.n2 = nn.GroupNorm(4, o); s.c2 = nn.Conv2d(o, o, 3, padding=1); nn.init.zeros_(s.c2.weight); nn.init.zeros_(s.c2.bias); s.sk = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
        def forward(s, x, e): h = s.c1(F.silu(s.n1(x))) + s.t(F.silu(e))[:, :, None, None]; return s.sk(x) + s.c2(F.silu(s.n2(h)))
    class U(nn.Module):
        def __init__(s): super().__init__(); s.te = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64)); s.i = nn.Conv2d(1, 24, 3, padding=1); s.d1 = Res(24, 24); s.d2 = Res(24, 48); s.mid = Res(48, 48); s.u1 = Res(72, 24); s.n = nn.GroupNorm(4, 24); s.o = nn.Conv2d(24, 1, 3, padding=1)
        def forward(s, x, t): e = s.te(temb(t / 1000 if planted else t)); a = s.d1(s.i(x), e); b = s.mid(s.d2(F.avg_pool2d(a, 2), e), e); return s.o(F.silu(s.n(s.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1), e))))
    def data(seed):
        y = R(seed, 4, (32,)); x0 = T(7, 4, 1, 8, 8)[y]; t = R(seed + 1, 1000, (32,)); e = T(seed + 2, 32, 1, 8, 8); a = ab[t][:, None, None, None]; return (a.sqrt() * x0 + (1 - a).sqrt() * e, t), e
    return dict(model=U, data=data, loss=mse, diag={})

@case("paper: EDM (Karras)", "loss weight inverted: c_out^2 instead of 1/c_out^2, the largest noise levels drown the others", "loss weight")
def edm_weight_inverted(planted):
    class D(nn.Module):
        def __init__(s): super().__init__(); s.te = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64)); s.i = nn.Linear(32, 128); s.b = nn.ModuleList(nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 128)) for _ in range(3)); s.e = nn.ModuleList(nn.Linear(64, 128) for _ in range(3)); s.o = nn.Linear(128, 32)
        def forward(s, x, sig):
            q = sig[:, None]; sd = .5; cs = sd ** 2 / (q ** 2 + sd ** 2); co = q * sd / (q ** 2 + sd ** 2).sqrt(); ci = 1 / (q ** 2 + sd ** 2).sqrt(); e = s.te(temb(sig.log() / 4 * 100)); h = s.i(ci * x)
            for b, l in zip(s.b, s.e): h = h + b(h + l(e))
            return cs * x + co * s.o(h)
    def mk(pl):
        def loss(o, t): q = t[:, -1:]; w = (q ** 2 + .25) / (q * .5) ** 2; return (((o - t[:, :-1]) ** 2) * (1 / w if pl else w)).mean()
        return loss
    def data(seed): y = R(seed, 8, (64,)); x = .5 * T(7, 8, 32)[y]; sig = (T(seed + 1, 64) * 1.2 - 1.2).exp(); return (x + sig[:, None] * T(seed + 2, 64, 32), sig), torch.cat([x, sig[:, None]], 1)
    return dict(model=D, data=data, loss=mk(planted), diag={})

@case("paper: WaveNet", "mu-law codes 0..255 fed as one float channel instead of one-hot: tanh/sigmoid gates saturate", "input / first causal conv")
def wavenet_raw_codes(planted):
    Q = 256
    class Net(nn.Module):
        def __init__(s, c=32):
            super().__init__(); s.causal = nn.Conv1d(1 if planted else Q, c, 2); s.f = nn.ModuleList(nn.Conv1d(c, c, 2, dilation=2 ** i) for i in range(5)); s.g = nn.ModuleList(nn.Conv1d(c, c, 2, dilation=2 ** i) for i in range(5)); s.r = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(5)); s.k = nn.ModuleList(nn.Conv1d(c, 64, 1) for _ in range(5)); s.o1 = nn.Conv1d(64, 64, 1); s.o2 = nn.Conv1d(64, Q, 1)
        def forward(s, x):
            x = x[:, None].float() if planted else F.one_hot(x, Q).float().transpose(1, 2); x = s.causal(F.pad(x, (1, 0))); sk = 0
            for i in range(5): p = F.pad(x, (2 ** i, 0)); h = torch.tanh(s.f[i](p)) * torch.sigmoid(s.g[i](p)); sk = sk + s.k[i](h); x = x + s.r[i](h)
            return s.o2(F.relu(s.o1(F.relu(sk))))
    def data(seed):
        g = gen(seed); ph = torch.rand(16, 1, generator=g) * 6.28; t = torch.arange(65.)[None]; fr = torch.tensor([.2, .31, .45])[torch.randint(0, 3, (16, 1), generator=g)]; w = .8 * torch.sin(fr * t + ph); q = ((torch.sign(w) * torch.log1p(255 * w.abs()) / math.log(256) + 1) / 2 * 255).round().long(); return q[:, :-1], q[:, 1:]
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: Tacotron", "r frames per step unfolded with view(B, n_mels, T).transpose: frames and mel channels are scrambled", "decoder projection / reshape")
def tacotron_reshape(planted):
    class Net(nn.Module):
        def __init__(s, d=64, mel=10, r=3):
            super().__init__(); s.mel, s.r = mel, r; s.emb = nn.Embedding(16, d); s.prenet = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU()); s.enc = nn.GRU(d, d // 2, batch_first=True, bidirectional=True); s.att = nn.GRUCell(d + mel, d); s.q = nn.Linear(d, d, bias=False); s.key = nn.Linear(d, d); s.v = nn.Linear(d, 1, bias=False); s.dec = nn.GRUCell(2 * d, d); s.proj = nn.Linear(2 * d, mel * r)
        def forward(s, tx, prev):
            H, _ = s.enc(s.prenet(s.emb(tx))); K = s.key(H); B = len(tx); h = H.new_zeros(B, 64); g = h; c = H[:, 0]; o = []
            for t in range(prev.shape[1]):
                h = s.att(torch.cat([c, prev[:, t]], 1), h); a = s.v(torch.tanh(K + s.q(h)[:, None])).softmax(1); c = (a * H).sum(1); g = s.dec(torch.cat([h, c], 1), g); o.append(s.proj(torch.cat([g, c], 1)))
            o = torch.stack(o, 1); T_ = o.shape[1] * s.r; return o.reshape(B, s.mel, T_).transpose(1, 2) if planted else o.reshape(B, T_, s.mel)
    def data(seed):
        tx = R(seed, 16, (32, 8)); P = T(5, 16, 3, 10); y = P[tx].view(32, 24, 10); prev = torch.cat([torch.zeros(32, 1, 10), y[:, 2::3][:, :-1]], 1); return (tx, prev), y
    return dict(model=Net, data=data, loss=mse, diag={})

def speech(seed, K=6):
    y = R(seed, K, (32, 4)); y[:, 1:] = torch.where(y[:, 1:] == y[:, :-1], (y[:, 1:] + 1) % K, y[:, 1:]); y[:, 2] = torch.where(y[:, 2] == y[:, 1], (y[:, 1] + 2) % K, y[:, 2]); y[:, 3] = torch.where(y[:, 3] == y[:, 2], (y[:, 2] + 2) % K, y[:, 3]); P = T(6, K, 12); g = F.one_hot(torch.arange(4), 4).float()
    x = torch.zeros(32, 16, 12); j = R(seed + 1, 2, (32, 4))
    for i in range(4): x[torch.arange(32), 4 * i + j[:, i]] = P[y[:, i]]; x[torch.arange(32), 4 * i + j[:, i] + 1] = P[y[:, i]]
    return x * 1.5 + .2 * T(seed + 2, 32, 16, 12), y
def mkctc(blank, raw=False):
    def loss(o, y): n = len(o); lp = (o if raw else o.log_softmax(-1)).transpose(0, 1); return F.ctc_loss(lp, y, torch.full((n,), o.shape[1]), torch.full((n,), 4), blank=blank)
    return loss
@case("paper: CTC", "labels 0..K-1 with the blank left at 0: label 0 is the blank (the network's spare class is last)", "loss / blank")
def ctc_blank_clash(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.rnn = nn.LSTM(12, 48, batch_first=True, bidirectional=True); s.out = nn.Linear(96, 7)
        def forward(s, x): return s.out(s.rnn(x)[0])
    return dict(model=Net, data=speech, loss=mkctc(0 if planted else 6), diag={})

@case("paper: Deep Speech", "raw logits given to ctc_loss, which wants log-probabilities", "loss / output")
def deepspeech_raw_logits(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f1 = nn.Linear(36, 64); s.f2 = nn.Linear(64, 64); s.f3 = nn.Linear(64, 64); s.birnn = nn.RNN(64, 64, batch_first=True, bidirectional=True, nonlinearity="relu"); s.f5 = nn.Linear(128, 64); s.f6 = nn.Linear(64, 7)
        def forward(s, x):
            c = lambda v: F.hardtanh(v, 0, 20); p = F.pad(x, (0, 0, 1, 1)); x = torch.cat([p[:, :-2], p[:, 1:-1], p[:, 2:]], 2)
            x = c(s.f3(c(s.f2(c(s.f1(x)))))); return s.f6(c(s.f5(s.birnn(x)[0])))
    return dict(model=Net, data=speech, loss=mkctc(6, raw=planted), diag={})

@case("paper: LSTM", "nn.LSTM without batch_first on (B, T, C): time runs over the examples of the batch", "lstm")
def lstm_batch_first(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(10, 32); s.lstm = nn.LSTM(32, 64, num_layers=2, batch_first=not planted); s.fc = nn.Linear(64, 10)
        def forward(s, x): return s.fc(s.lstm(s.emb(x))[0][:, -1])
    def data(seed): x = R(seed, 10, (64, 8)); return x, x[:, 3]
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: GRU (encoder-decoder)", "hidden state detached at every step (meant for chunks): no gradient reaches earlier tokens", "cell / recurrent weights")
def gru_detach(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(10, 32); s.cell = nn.GRUCell(32, 64); s.fc = nn.Linear(64, 10)
        def forward(s, x):
            e = s.emb(x); h = e.new_zeros(len(x), 64)
            for t in range(x.shape[1]): h = s.cell(e[:, t], h.detach() if planted else h)
            return s.fc(h)
    def data(seed): x = R(seed, 10, (64, 8)); return x, x[:, 2]
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: TCN", "symmetric padding chomped on the left: every output sees the future and never the past", "chomp")
def tcn_chomp_side(planted):
    class B(nn.Module):
        def __init__(s, i, o, d): super().__init__(); s.p = 2 * d; s.c1 = nn.utils.parametrizations.weight_norm(nn.Conv1d(i, o, 3, padding=s.p, dilation=d)); s.c2 = nn.utils.parametrizations.weight_norm(nn.Conv1d(o, o, 3, padding=s.p, dilation=d)); s.down = nn.Conv1d(i, o, 1) if i != o else nn.Identity()
        def forward(s, x): ch = (lambda v: v[:, :, s.p:]) if planted else (lambda v: v[:, :, :-s.p]); return F.relu(F.relu(ch(s.c2(F.relu(ch(s.c1(x)))))) + s.down(x))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.tcn = nn.Sequential(B(2, 32, 1), B(32, 32, 2), B(32, 32, 4)); s.out = nn.Conv1d(32, 1, 1)
        def forward(s, x): return s.out(s.tcn(x))
    def data(seed): x = T(seed, 32, 2, 40); p = F.pad(x, (6, 0)); return x, (p[:, :1, 5:45] * p[:, 1:, 4:44] + p[:, :1, 0:40])
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: N-BEATS", "trend basis with t = 0..H-1 not divided by H: cubes up to 10^4 in the forecast", "trend basis / theta")
def nbeats_trend_grid(planted):
    class Blk(nn.Module):
        def __init__(s, kind):
            super().__init__(); s.fc = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); H, L = 12, 24
            if kind == "t": tb, tf = (torch.arange(float(L)), torch.arange(float(H))) if planted else (torch.arange(float(L)) / L, torch.arange(float(H)) / H); B = lambda t: torch.stack([t ** i for i in range(4)])
            else: tb, tf = torch.arange(float(L)) / L, torch.arange(float(H)) / H; B = lambda t: torch.cat([torch.stack([torch.cos(6.2832 * i * t), torch.sin(6.2832 * i * t)]) for i in range(5)])
            s.register_buffer("Bb", B(tb)); s.register_buffer("Bf", B(tf)); s.tb = nn.Linear(64, len(s.Bb), bias=False); s.tf = nn.Linear(64, len(s.Bf), bias=False)
        def forward(s, x): h = s.fc(x); return s.tb(h) @ s.Bb, s.tf(h) @ s.Bf
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.blocks = nn.ModuleList([Blk("t"), Blk("t"), Blk("s"), Blk("s")])
        def forward(s, x):
            f = 0
            for b in s.blocks: bc, fc = b(x); x = x - bc; f = f + fc
            return f
    def data(seed):
        g = gen(seed); a, b, ph, am = torch.randn(4, 64, 1, generator=g); t = torch.arange(36.)[None] / 24; w = a + b * t + am * torch.sin(6.28 * 1.5 * t + ph * 3) + .05 * torch.randn(64, 36, generator=g); return w[:, :24], w[:, 24:]
    return dict(model=Net, data=data, loss=mse, diag={})

@case("paper: WGAN-GP", "gradient norm taken over the whole batch tensor instead of per example: the critic is flattened", "loss / gradient penalty")
def wgangp_batch_norm(planted):
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Linear(64, 1))
        def forward(s, real, fake, u):
            x = (u * real + (1 - u) * fake).requires_grad_(True); g = torch.autograd.grad(s.net(x).sum(), x, create_graph=True)[0]; return torch.cat([s.net(real), s.net(fake), g], 1)
    def mk(pl):
        def loss(o, t): g = o[:, 2:]; n = g.norm() if pl else g.norm(dim=1); return o[:, 1].mean() - o[:, 0].mean() + 10 * ((n - 1) ** 2).mean()
        return loss
    def data(seed): r = T(seed, 64, 8) * .5 + 2 * T(3, 4, 8)[R(seed + 1, 4, (64,))]; return (r, T(seed + 2, 64, 8), torch.rand(64, 1, generator=gen(seed + 3))), torch.zeros(64)
    return dict(model=Critic, data=data, loss=mk(planted), diag={})
