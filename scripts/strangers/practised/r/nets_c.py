from mods import *
def frames(seed, B=16, Tn=24, K=8, D=16):      # noisy frames of a phone sequence; each phone depends on its neighbours
    y = R(seed, K, (B, Tn // 3)).repeat_interleave(3, 1); e = T(41, K, D); x = e[y] + .5 * e[y.roll(1, 1)] + .8 * T(seed + 1, B, Tn, D); return x, y
class FF(nn.Module):
    def __init__(s, d, norm=True): super().__init__(); s.ln = nn.LayerNorm(d) if norm else nn.Identity(); s.a, s.b = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(s, x): return s.b(F.silu(s.a(s.ln(x))))
class Conformer(nn.Module):
    def __init__(s, d, norm=True):
        super().__init__(); s.f1, s.f2 = FF(d, norm), FF(d, norm); s.la = nn.LayerNorm(d); s.att = nn.MultiheadAttention(d, 4, batch_first=True); s.lc = nn.LayerNorm(d); s.pw1, s.dw, s.bn, s.pw2 = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 5, padding=2, groups=d), nn.BatchNorm1d(d), nn.Conv1d(d, d, 1); s.ln = nn.LayerNorm(d)
    def forward(s, x):
        x = x + .5 * s.f1(x); h = s.la(x); x = x + s.att(h, h, h, need_weights=False)[0]; x = x + s.pw2(F.silu(s.bn(s.dw(F.glu(s.pw1(s.lc(x).transpose(1, 2)), 1))))).transpose(1, 2); return s.ln(x + .5 * s.f2(x))
class ASR(nn.Module):
    def __init__(s, d=32, L=3, norm=True, mid=None, K=8): super().__init__(); s.inp = nn.Linear(16, d); s.pos = nn.Parameter(torch.randn(24, d) * .02); s.blocks = nn.ModuleList(Conformer(d, norm) for _ in range(L)); s.mid = mid if mid is not None else nn.Identity(); s.head = nn.Linear(d, K)
    def forward(s, x):
        x = s.inp(x) + s.pos
        for b in s.blocks: x = b(x)
        return s.head(s.mid(x))
@case("https://github.com/openspeech-team/openspeech/issues/140", "no LayerNorm at the start of the conformer's feed forward module", "blocks.f1/f2")
def openspeech_ff_norm(planted): return dict(model=lambda: ASR(norm=not planted), data=frames, loss=ceseq, diag=dict(SEQ))
class Dec(nn.Module):
    def __init__(s, d=32, planted=False):
        super().__init__(); s.cif = nn.Linear(d, 1) if planted else nn.Identity(); s.up = nn.Linear(1, d) if planted else nn.Identity(); s.ln = nn.LayerNorm(d); s.att = nn.MultiheadAttention(d, 4, batch_first=True); s.l2 = nn.LayerNorm(d); s.ff = mlp(d, 2 * d, d, nn.GELU)
    def forward(s, x): x = s.up(s.cif(x)); h = s.ln(x); x = x + s.att(h, h, h, need_weights=False)[0]; return x + s.ff(s.l2(x))
@case("https://github.com/ooples/AiDotNet/pull/1421", "the CIF stub is a Dense(1) between encoder and decoder: the feature dimension collapses to one", "mid.cif")
def aidotnet_cif(planted): return dict(model=lambda: ASR(L=2, mid=Dec(planted=planted)), data=frames, loss=ceseq, diag=dict(SEQ))
@case("https://github.com/zhiqwang/sightseq/issues/10", "CTC loss is given raw outputs instead of log_softmax", "loss / output")
def sightseq_ctc(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c = nn.Sequential(nn.Conv1d(16, 48, 3, padding=1, bias=False), nn.BatchNorm1d(48), nn.ReLU()); s.r = nn.LSTM(48, 32, bidirectional=True, batch_first=True); s.fc = nn.Linear(64, 9)
        def forward(s, x): y = s.fc(s.r(s.c(x.transpose(1, 2)).transpose(1, 2))[0]); return y if planted else y.log_softmax(-1)
    def data(s): x, y = frames(s); return x, y[:, ::3] + 1
    def loss(o, t): B, Tn = o.shape[:2]; return F.ctc_loss(o.transpose(0, 1), t, torch.full((B,), Tn), torch.full((B,), 8))
    def ev(o, t): return loss(o.log_softmax(-1), t)
    return dict(model=Net, data=data, loss=loss if planted else ev, diag={})

class CRF(nn.Module):
    def __init__(s, K): super().__init__(); s.tr = nn.Parameter(torch.randn(K, K) * .1); s.st, s.en = nn.Parameter(torch.randn(K) * .1), nn.Parameter(torch.randn(K) * .1)
    def nll(s, e, y):
        g = s.st[y[:, 0]] + e.gather(2, y[..., None])[..., 0].sum(1) + s.tr[y[:, :-1], y[:, 1:]].sum(1) + s.en[y[:, -1]]; a = s.st + e[:, 0]
        for i in range(1, e.shape[1]): a = (a[:, :, None] + s.tr).logsumexp(1) + e[:, i]
        return ((a + s.en).logsumexp(1) - g) / e.shape[1]
@case("https://github.com/heshenghuan/LSTM-CRF/issues/4", "softmax applied to the emissions before the CRF", "fc / softmax")
def crf_softmax(planted):
    class Net(nn.Module):
        def __init__(s, V=30, d=32, K=6): super().__init__(); s.emb = nn.Embedding(V, d); s.lstm = nn.LSTM(d, d, bidirectional=True, batch_first=True); s.fc = nn.Linear(2 * d, K); s.crf = CRF(K)
        def forward(s, x, y): e = s.fc(s.lstm(s.emb(x))[0]); return s.crf.nll(e.softmax(-1) if planted else e, y)
    def data(s, B=32, Tn=12): x = R(s, 30, (B, Tn)); k = R(42, 6, (30,)); y = (k[x] + k[x.roll(1, 1)] * (x % 2)) % 6; return (x, y), torch.zeros(B)
    return dict(model=Net, data=data, loss=lambda o, t: o.mean(), diag={})

class NBlock(nn.Module):
    def __init__(s, i, h, w=48): super().__init__(); s.fc = nn.Sequential(nn.Linear(i, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU()); s.th = nn.Linear(w, i + h); s.i = i
    def forward(s, x): z = s.th(s.fc(x)); return z[:, :s.i], z[:, s.i:]
def series(seed, B=64, n=24, h=8):
    g = gen(seed); t = torch.arange(n + h) / 8.; a, ph, tr, f = (torch.rand(B, 1, generator=g) for _ in range(4)); y = (1 + a) * torch.sin(2 * math.pi * (t * (.5 + f) + ph)) + (tr - .5) * t + .05 * torch.randn(B, n + h, generator=g); return y[:, :n], y[:, n:]
@case("https://github.com/mrdbourke/tensorflow-deep-learning/issues/395", "N-BEATS: the first subtraction from the inputs is missing, block two gets the backcast", "blocks (backcast)")
def nbeats_subtract(planted):
    class Net(nn.Module):
        def __init__(s, n=24, h=8, L=4): super().__init__(); s.blocks = nn.ModuleList(NBlock(n, h) for _ in range(L))
        def forward(s, x):
            r, f = s.blocks[0](x); x = r if planted else x - r
            for b in s.blocks[1:]: r, g = b(x); x = x - r; f = f + g
            return f
    return dict(model=Net, data=series, loss=mse, diag=dict(MSE))

@case("https://github.com/scverse/scvi-tools/pull/663", "px_rate = library + px_scale (log library) instead of exp(library) * softmax", "scale decoder / px_rate")
def scvi_rate(planted):
    class Net(nn.Module):
        def __init__(s, G=40, d=64, z=8):
            super().__init__(); s.enc = nn.Sequential(nn.Linear(G, d), nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, z)); s.dec = nn.Sequential(nn.Linear(z, d), nn.LayerNorm(d), nn.ReLU()); s.scale = nn.Linear(d, G); s.theta = nn.Parameter(torch.zeros(G))
        def forward(s, x):
            lib = x.sum(1, keepdim=True).log(); p = s.scale(s.dec(s.enc(torch.log1p(x)))).softmax(-1); return (lib + p if planted else lib.exp() * p), s.theta.exp()
    def nb(o, x):
        m, th = o; e = 1e-8; l = th * ((th + e).log() - (th + m + e).log()) + x * ((m + e).log() - (th + m + e).log()) + torch.lgamma(x + th) - torch.lgamma(th) - torch.lgamma(x + 1); return -l.mean()
    def data(s, B=64, G=40):
        torch.manual_seed(s); c = R(s, 5, (B,)); prof = (T(43, 5, G) * 1.2).softmax(-1)[c]; lib = torch.exp(5.5 + .5 * T(s + 1, B, 1)); x = torch.poisson(prof * lib, generator=gen(s + 2)); return x, x
    return dict(model=Net, data=data, loss=nb, diag={})

def wav(seed, B=32, n=512, K=5):       # which band of noise + tone, amplitude varies over decades
    y = R(seed, K, (B,)); g = gen(seed + 1); t = torch.arange(n) / n; f = torch.tensor([20., 45., 70., 95., 120.])[y][:, None] + 4 * torch.randn(B, 1, generator=g); x = torch.sin(2 * math.pi * f * t) * .05 + .02 * torch.randn(B, n, generator=g); click = torch.zeros(B, n); click[torch.arange(B), torch.randint(0, n, (B,), generator=g)] = 3 + 10 * torch.rand(B, generator=g); return x + click, y
@case("https://github.com/UCSD-E4E/acoustic-multiclass-training/pull/81", "power spectrogram divided by its maximum instead of decibels and z-score", "spectrogram input")
def acoustic_db(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("win", torch.hann_window(64)); f = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)); s.c = nn.Sequential(f(1, 16), f(16, 32), f(32, 32)); s.fc = nn.Linear(32 * 4 * 4, 5)
        def forward(s, x):
            p = torch.stft(x, 64, 16, window=s.win, return_complex=True).abs().pow(2)[:, :32, :32]
            if planted: p = p / p.amax((1, 2), keepdim=True)
            else: p = 10 * (p + 1e-6).log10(); p = (p - p.mean((1, 2), keepdim=True)) / p.std((1, 2), keepdim=True)
            return s.fc(s.c(p[:, None]).flatten(1))
    return dict(model=Net, data=wav, loss=ce, diag=dict(CE))

def mix(seed, B=16, n=256):            # two sources in different bands, some silent
    g = gen(seed); t = torch.arange(n) / n; s1 = torch.sin(2 * math.pi * (8 + 4 * torch.rand(B, 1, generator=g)) * t + 6 * torch.rand(B, 1, generator=g)); s2 = torch.sin(2 * math.pi * (60 + 20 * torch.rand(B, 1, generator=g)) * t) * (.5 + torch.rand(B, 1, generator=g)); s = torch.stack([s1, s2], 1); return s.sum(1) + .05 * torch.randn(B, n, generator=g), s
class TasNet(nn.Module):
    def __init__(s, N=48, L=16, gated=False, act=True):
        super().__init__(); s.enc = nn.Conv1d(1, N, L, L // 2, bias=False); s.gate = nn.Conv1d(1, N, L, L // 2, bias=False) if gated else None; s.act = act; s.norm = nn.GroupNorm(1, N); s.bott = nn.Conv1d(N, 32, 1)
        s.tcn = nn.ModuleList(nn.Sequential(nn.Conv1d(32, 64, 1), nn.PReLU(), nn.GroupNorm(1, 64), nn.Conv1d(64, 64, 3, padding=2 ** i, dilation=2 ** i, groups=64), nn.PReLU(), nn.GroupNorm(1, 64), nn.Conv1d(64, 32, 1)) for i in range(3)); s.mask = nn.Conv1d(32, 2 * N, 1); s.dec = nn.ConvTranspose1d(N, 1, L, L // 2, bias=False)
    def forward(s, x):
        x = x[:, None]; w = s.enc(x)
        if s.gate is not None: w = F.relu(w) * s.gate(x).sigmoid() if s.act else w * s.gate(x)
        else: w = F.relu(w)
        h = s.bott(s.norm(w))
        for b in s.tcn: h = h + b(h)
        m = s.mask(h).sigmoid().unflatten(1, (2, -1)); return s.dec((m * w[:, None]).flatten(0, 1)).view(len(x), 2, -1)
def snr(o, t): return -10 * ((t ** 2).sum(-1) / (((o - t) ** 2).sum(-1) + 1e-8) + 1e-8).log10().mean()
def sisdr(o, t, eps=1e-8): a = (o * t).sum(-1, keepdim=True) / ((t ** 2).sum(-1, keepdim=True) + eps); p = a * t; return -10 * ((p ** 2).sum(-1) / (((o - p) ** 2).sum(-1) + eps) + eps).log10().mean()
@case("https://github.com/kaituoxu/Conv-TasNet/issues/33", "SI-SDR as loss leaves the magnitude of the waveform free (SNR loss wanted)", "loss (scale of the outputs)")
def tasnet_sisdr_scale(planted): return dict(model=TasNet, data=mix, loss=sisdr if planted else snr, diag={})
@case("https://github.com/tky823/DNN-based_source_separation/issues/103", "gated encoder without relu and sigmoid", "enc / gate")
def tasnet_gated_encoder(planted): return dict(model=lambda: TasNet(gated=True, act=not planted), data=mix, loss=snr, diag={})
@case("https://github.com/nussl/nussl/pull/169", "no eps inside the log10 of SI-SDR: silent references give infinite loss and gradients", "loss")
def nussl_eps(planted):
    def data(s): x, y = mix(s); k = (R(s + 3, 4, (16,)) > 0).float()[:, None]; y = torch.stack([y[:, 0], y[:, 1] * k], 1); return y.sum(1) + .02 * T(s + 4, 16, 256), y
    def bad(o, t): a = (o * t).sum(-1, keepdim=True) / ((t ** 2).sum(-1, keepdim=True) + 1e-10); p = a * t; return -10 * ((p ** 2).sum(-1) / ((o - p) ** 2).sum(-1)).log10().mean()
    good = lambda o, t: sisdr(o, t, 1e-3)
    return dict(model=TasNet, data=data, loss=bad if planted else good, diag={})

def audio_tok(seed, B=16, n=48, V=16): # sample_t depends on the samples 4 and 1 before
    g = gen(seed); x = [torch.randint(0, V, (B,), generator=g) for _ in range(4)]
    P = (T(44, V, V, V) * 3).softmax(-1)
    pm = torch.randperm(V, generator=gen(45))
    for i in range(n - 3): x.append(torch.where(torch.rand(B, generator=g) < .9, pm[x[-4]], torch.randint(0, V, (B,), generator=g)))
    x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
class Wave(nn.Module):
    def __init__(s, c=32, L=4, gate="ok", V=16, td=None):
        super().__init__(); s.emb = nn.Embedding(V, c); s.f = nn.ModuleList(nn.Conv1d(c, c, 2) for _ in range(L)); s.g = nn.ModuleList(nn.Conv1d(c, c, 2) for _ in range(L)); s.r = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(L)); s.k = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(L)); s.o = nn.Sequential(nn.ReLU(), nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, V, 1)); s.gate, s.td = gate, td
    def conv(s, m, x, d):
        if s.td is None: return F.conv1d(F.pad(x, (d, 0)), m.weight, m.bias, dilation=d)
        B, C, n = x.shape; x = F.pad(x, (d, (-n) % d))      # time to batch as the first tensorflow-wavenet: reshape without transposes
        m_ = x.shape[-1] // d; z = x.reshape(B, C, d, m_).permute(0, 2, 1, 3).reshape(B * d, C, m_); z = F.conv1d(F.pad(z, (1, 0)), m.weight, m.bias); return z.view(B, d, -1, m_).permute(0, 2, 1, 3).reshape(B, -1, d * m_)[..., d:d + n]
    def forward(s, x):
        x = s.emb(x).transpose(1, 2); sk = 0
        for i in range(len(s.f)):
            a, b = s.conv(s.f[i], x, 2 ** i), s.conv(s.g[i], x, 2 ** i); z = a.tanh() * b.sigmoid() if s.gate == "ok" else a * b.tanh(); sk = sk + s.k[i](z); x = x + s.r[i](z)
        return s.o(sk).transpose(1, 2)
@case("https://github.com/laiguokun/SWaveNet/pull/1", "gating x * tanh(x) instead of tanh * sigmoid", "f/g (gate)")
def swavenet_gate(planted): return dict(model=lambda: Wave(gate="bad" if planted else "ok"), data=audio_tok, loss=ceseq, diag=dict(SEQ))
@case("https://github.com/ibab/tensorflow-wavenet/issues/29", "dilated convolution by reshaping time to batch without the transposes", "f/g (dilated conv)")
def ibab_dilation(planted): return dict(model=lambda: Wave(td=True if planted else None), data=audio_tok, loss=ceseq, diag=dict(SEQ))

@case("https://github.com/tensorflow/tensorflow/issues/38248", "the decoder's GRU never receives the previous state", "gru")
def nmt_gru_state(planted):
    class Net(nn.Module):
        def __init__(s, V=14, d=48): super().__init__(); s.e1, s.e2 = nn.Embedding(V, d), nn.Embedding(V, d); s.enc = nn.GRU(d, d, batch_first=True); s.W1, s.W2, s.V = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 1); s.gru = nn.GRU(2 * d, d, batch_first=True); s.fc = nn.Linear(d, V)
        def forward(s, x, y):
            k, h = s.enc(s.e1(x)); hid = h[0]; kk = s.W1(k); ye = s.e2(y); out = []
            for i in range(y.shape[1]):
                a = s.V(torch.tanh(kk + s.W2(hid)[:, None])).softmax(1); c = (a * k).sum(1); o, st = s.gru(torch.cat([c, ye[:, i]], -1)[:, None], None if planted else hid[None]); hid = st[0]; out.append(s.fc(o[:, 0]))
            return torch.stack(out, 1)
    def data(s, B=32, n=6, V=14): x = R(s, V - 2, (B, n)); pm = torch.randperm(V - 2, generator=gen(46)); y = pm[x]; return (x, torch.cat([torch.full((B, 1), V - 1), y[:, :-1]], 1)), y
    return dict(model=Net, data=data, loss=ceseq, diag=dict(SEQ))
