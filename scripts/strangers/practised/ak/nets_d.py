from base import *

# ---- 22 speech synthesis
@case("https://github.com/deepvk/emospeech/issues/6", "prediction is overwritten by its first column, so every further egemap feature reads the first one", "get_egemap_embedding (prediction = prediction[:, 0]...)")
def emospeech_overwrite(planted):
    P, Em, H, NF, L, NB, Mel = 20, 5, 32, 3, 10, 12, 8
    class Conv(nn.Module):
        def __init__(s, i, o): super().__init__(); s.conv = nn.Conv1d(i, o, 3, padding=1)
        def forward(s, x): return s.conv(x.transpose(1, 2)).transpose(1, 2)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.phon = nn.Embedding(P, H); s.emo = nn.Embedding(Em, H); p = torch.arange(L)[:, None]; i = torch.arange(H)[None]; a = p / 10000 ** ((i // 2 * 2) / H)
            s.register_buffer("pe", torch.where(i % 2 == 0, a.sin(), a.cos())); s.enc = nn.Sequential(Conv(H, H), nn.ReLU(), nn.LayerNorm(H))
            s.egemap_predictor = nn.Sequential(Conv(H, H), nn.ReLU(), nn.LayerNorm(H), nn.Dropout(.1), Conv(H, H), nn.ReLU(), nn.LayerNorm(H), nn.Dropout(.1), nn.Linear(H, 1))
            s.register_buffer("egemap_bins", torch.linspace(-2.5, 2.5, NB - 1)); s.egemap_embeddings = nn.ModuleList([nn.Embedding(NB, H) for _ in range(NF)]); s.dec = nn.Sequential(Conv(H, H), nn.ReLU(), nn.Linear(H, Mel))
        def get_egemap_embedding(s, x):
            prediction = s.egemap_predictor(x).squeeze(-1); bs, n = prediction.shape
            first = prediction[:, 0].unsqueeze(1).expand(bs, n).contiguous()
            if planted: prediction = first
            e = s.egemap_embeddings[0](torch.bucketize(first, s.egemap_bins))
            for i in range(1, NF):
                e = e + s.egemap_embeddings[i](torch.bucketize(prediction[:, i].unsqueeze(1).expand(bs, n).contiguous(), s.egemap_bins))
            return prediction[:, :NF], e
        def forward(s, ph, em):
            x = s.enc(s.phon(ph) + s.emo(em)[:, None] + s.pe); p, e = s.get_egemap_embedding(x); return s.dec(x + e), p
    A, Bm, Q = T(121, P, Mel), T(122, Em, Mel), T(123, Em, NF); Q = (Q - Q.mean(0)) / Q.std(0)
    def data(s):
        ph = R(s, P, (32, L)); em = R(s + 1, Em, (32,)); return (ph, em), ((A[ph] + Bm[em][:, None]) / 1.4 + .1 * T(s + 2, 32, L, Mel), Q[em] + .05 * T(s + 3, 32, NF))
    return dict(model=Net, data=data, loss=lambda o, t: F.mse_loss(o[0], t[0]) + F.mse_loss(o[1], t[1]), lr=4e-3)

# ---- 23 vision from scratch
@case("https://github.com/HIPS/autograd/pull/245", "max pool reshapes the wrong way round: it pools pixels half an image apart instead of neighbours", "maxpool_layer (reshape)")
def maxpool_reshape(planted):
    class Pool(nn.Module):
        def forward(s, x):
            B, C, H, W = x.shape
            return x.reshape(B, C, 2, H // 2, 2, W // 2).amax((2, 4)) if planted else x.reshape(B, C, H // 2, 2, W // 2, 2).amax((3, 5))
    P = F.interpolate(T(131, 6, 1, 5, 5), size=16, mode="bilinear")
    def data(s):
        t = R(s, 6, (40,)); return P[t] + .8 * T(s + 1, 40, 1, 16, 16), t
    return dict(model=lambda: nn.Sequential(nn.Conv2d(1, 6, 5), Pool(), nn.Conv2d(6, 16, 3), Pool(), nn.Flatten(), nn.Linear(16 * 4, 40), nn.Tanh(), nn.Linear(40, 24), nn.Tanh(), nn.Linear(24, 6)), data=data, loss=ce, lr=3e-3)

# ---- 24 time series
@case("https://github.com/KDD-OpenSource/DeepADoTS/pull/179", "only the encoder's hidden state is given to the decoder, the cell state starts at zero", "decoder LSTM (initial cell state)")
def lstm_ed_cell_state(planted):
    H, D, L = 24, 3, 16
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.encoder = nn.LSTM(D, H, batch_first=True); s.decoder = nn.LSTM(D, H, batch_first=True); s.hidden2output = nn.Linear(H, D)
        def forward(s, x):
            B = x.size(0); z = (torch.zeros(1, B, H), torch.zeros(1, B, H)); _, enc = s.encoder(x, z)
            dec = (enc[0], torch.zeros(1, B, H)) if planted else enc
            out = [None] * L
            for i in reversed(range(L)):
                out[i] = s.hidden2output(dec[0][0])
                _, dec = s.decoder(x[:, i].unsqueeze(1), dec)
            return torch.stack(out, 1)
    def data(s):
        g = gen(s); f = torch.rand(32, 1, D, generator=g) * .4 + .2; ph = torch.rand(32, 1, D, generator=g) * 6.28; x = 1.4 * torch.sin(f * torch.arange(L)[None, :, None] + ph) + .1 * T(s + 1, 32, L, D); return x, x.clone()
    return dict(model=Net, data=data, loss=mse, lr=1e-2)

# ---- 25 anomaly detection
@case("https://github.com/yzhao062/pyod/issues/314", "sigmoid output, but the data to reconstruct are standardised (StandardScaler)", "output activation (sigmoid)")
def pyod_sigmoid(planted):
    D = 20
    def model():
        l, i = [], D
        for h in (16, 8, 8, 16): l += [nn.Linear(i, h), nn.ReLU(), nn.Dropout(.05)]; i = h
        return nn.Sequential(*l, nn.Linear(i, D), *([nn.Sigmoid()] if planted else []))
    A = T(141, 3, D)
    A = A / A.pow(2).sum(0, keepdim=True).sqrt()
    def data(s):
        x = (T(s, 64, 3) @ A) * .95 + .3 * T(s + 1, 64, D); return x, x.clone()
    return dict(model=model, data=data, loss=mse, lr=5e-3)

# ---- 26 REINFORCE
@case("https://github.com/huggingface/deep-rl-class/pull/70", "every log-probability is multiplied by the return of the whole episode G_0, not by its own G_t", "the loss (R instead of G_t)")
def reinforce_g0(planted):
    Ac, L, ga = 4, 8, .99
    class Policy(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(6, 32); s.fc2 = nn.Linear(32, Ac)
        def forward(s, x): return F.softmax(s.fc2(F.relu(s.fc1(x))), dim=-1)
    w = T(151, 6, Ac)
    def data(s):
        x = T(s, 32, L, 6); return x, (x @ w).argmax(-1)
    def loss(p, t):
        d = torch.distributions.Categorical(p, validate_args=False); a = d.sample(); r = (a == t).float(); g = torch.zeros(len(r)); G = []
        for i in reversed(range(L)): g = r[:, i] + ga * g; G.insert(0, g)
        G = torch.stack(G, 1); G = G[:, :1].expand(-1, L) if planted else G
        return -(d.log_prob(a) * G).sum(1).mean()
    return dict(model=Policy, data=data, loss=loss, judge=lambda m, x, t: float(1 - m(x).gather(-1, t[..., None]).mean()), lr=1e-2)

# ---- 27 generative, VQ-VAE
