from base import *

def enc_parts(D):
    return dict(n1=nn.LayerNorm(D), n2=nn.LayerNorm(D), ff=nn.Sequential(nn.Linear(D, 2 * D), nn.ReLU(), nn.Linear(2 * D, D)))

# ---- 8 transformer, relative positions
@case("https://github.com/gazelle93/Transformer-Various-Positional-Encoding/issues/1", "heads are put together with view(heads, batch, ...) of a (batch*heads) tensor: samples are mixed", "the view/reshape_to_concat after the attention (out projection input)")
def mha_view_heads(planted):
    D, NH, V, C = 32, 4, 12, 4
    class Layer(nn.Module):
        def __init__(s):
            super().__init__(); s.q = nn.Linear(D, D); s.k = nn.Linear(D, D); s.v = nn.Linear(D, D); s.o = nn.Linear(D, D)
            for n, m in enc_parts(D).items(): setattr(s, n, m)
        def split(s, t, B): return t.view(B, -1, NH, D // NH).permute(0, 2, 1, 3).reshape(B * NH, -1, D // NH)
        def forward(s, x):
            B = x.size(0); q, k, v = s.split(s.q(x), B), s.split(s.k(x), B), s.split(s.v(x), B)
            o = torch.softmax(q @ k.transpose(1, 2) / (D // NH) ** .5, -1) @ v
            o = o.view(NH, B, -1, D // NH) if planted else o.view(B, NH, -1, D // NH)
            o = o.permute(0, 2, 1, 3).contiguous().view(B, -1, D)
            x = s.n1(x + s.o(o)); return s.n2(x + s.ff(x))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(V, D); s.pos = nn.Parameter(torch.randn(10, D) * .1); s.layers = nn.ModuleList([Layer(), Layer()]); s.out = nn.Linear(D, C)
        def forward(s, x):
            h = s.emb(x) + s.pos
            for l in s.layers: h = l(h)
            return s.out(h)
    def data(s):
        x = R(s, V, (32, 10)); t = (x % 2) * 2 + (x[:, :1] >= V // 2).long(); return x, t
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3)

# ---- 9 text classification
@case("https://github.com/649453932/Chinese-Text-Classification-Pytorch/issues/53", "Q, K, V are view(batch*heads, -1, dim_head) without a transpose: a 'head' is a stretch of the sentence", "Multi_Head_Attention (the views of Q, K, V)")
def text_mha_view(planted):
    D, NH, V, C, L = 20, 5, 60, 4, 15
    class MHA(nn.Module):
        def __init__(s): super().__init__(); s.fc_Q = nn.Linear(D, D); s.fc_K = nn.Linear(D, D); s.fc_V = nn.Linear(D, D); s.fc = nn.Linear(D, D); s.dropout = nn.Dropout(.1); s.layer_norm = nn.LayerNorm(D)
        def forward(s, x):
            B = x.size(0); d = D // NH
            if planted: Q, K, W = (f(x).view(B * NH, -1, d) for f in (s.fc_Q, s.fc_K, s.fc_V))
            else: Q, K, W = (f(x).view(B, -1, NH, d).transpose(1, 2).reshape(B * NH, -1, d) for f in (s.fc_Q, s.fc_K, s.fc_V))
            c = torch.softmax(Q @ K.transpose(1, 2) * d ** -.5, -1) @ W
            c = c.view(B, -1, D) if planted else c.view(B, NH, -1, d).transpose(1, 2).reshape(B, -1, D)
            return s.layer_norm(s.dropout(s.fc(c)) + x)
    class FFN(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(D, 40); s.fc2 = nn.Linear(40, D); s.dropout = nn.Dropout(.1); s.layer_norm = nn.LayerNorm(D)
        def forward(s, x): return s.layer_norm(s.dropout(s.fc2(F.relu(s.fc1(x)))) + x)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, D); pe = torch.zeros(L, D); p = torch.arange(L)[:, None]; i = torch.arange(D)[None]
            a = p / 10000 ** ((i // 2 * 2) / D); s.register_buffer("pe", torch.where(i % 2 == 0, a.sin(), a.cos())); s.encoders = nn.ModuleList([nn.Sequential(MHA(), FFN()) for _ in range(2)]); s.fc1 = nn.Linear(L * D, C)
        def forward(s, x):
            h = s.embedding(x) + s.pe
            for e in s.encoders: h = e(h)
            return s.fc1(h.view(h.size(0), -1))
    def data(s):
        t = R(s, C, (48,)); x = R(s + 1, V, (48, L)); topical = torch.rand(48, L, generator=gen(s + 2)) < .35
        return torch.where(topical, t[:, None] * (V // C) + R(s + 3, V // C, (48, L)), x), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3)

# ---- 10 capsules
@case("https://github.com/higgsfield/Capsule-Network-Tutorial/issues/18", "capsules are stacked on dim 1 and then view()ed: vectors are made of neighbouring pixels, not of the capsules' outputs", "PrimaryCaps (stack/view)")
def primarycaps_stack(planted):
    NC, O, C, D = 8, 4, 4, 8
    def squash(x, dim):
        n = (x ** 2).sum(dim, keepdim=True); return n * x / ((1. + n) * torch.sqrt(n + 1e-9))
    class Primary(nn.Module):
        def __init__(s): super().__init__(); s.capsules = nn.ModuleList([nn.Conv2d(24, O, 4, stride=2) for _ in range(NC)])
        def forward(s, x):
            u = torch.stack([c(x) for c in s.capsules], dim=1 if planted else -1)
            return squash(u.reshape(x.size(0), O * 9, -1), -1)
    class Digit(nn.Module):
        def __init__(s): super().__init__(); s.W = nn.Parameter(torch.randn(1, O * 9, C, D, NC))
        def forward(s, x):
            u = (s.W @ x[:, :, None, :, None].expand(-1, -1, C, -1, -1)); b = torch.zeros(1, O * 9, C, 1, device=x.device)
            for i in range(3):
                c = torch.softmax(b, 2).unsqueeze(-1); v = squash((c * u).sum(1, keepdim=True), -2)
                if i < 2: b = b + (u * v).sum(-2).mean(0, keepdim=True)
            return v.squeeze(1).squeeze(-1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.conv = nn.Conv2d(1, 24, 5); s.primary = Primary(); s.digit = Digit()
        def forward(s, x): return s.digit(s.primary(F.relu(s.conv(x)))).norm(dim=-1)
    P = F.interpolate(T(31, C, 1, 4, 4), size=12, mode="bilinear")
    def data(s):
        t = R(s, C, (32,)); x = P[t] + .6 * T(s + 1, 32, 1, 12, 12); return x, t
    def loss(o, t):
        y = F.one_hot(t, C).float(); return (y * F.relu(.9 - o) ** 2 + .5 * (1 - y) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=Net, data=data, loss=loss, lr=2e-3)

# ---- 11 neuroscience
@case("https://github.com/open-retina/open-retina/issues/136", "temporal padding on both sides in the second convolution: the response model sees future frames", "second conv (temporal padding)")
def retina_padding(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c1 = nn.Conv1d(4, 16, 5); s.b1 = nn.BatchNorm1d(16); s.c2 = nn.Conv1d(16, 16, 5, padding=2 if planted else 0); s.b2 = nn.BatchNorm1d(16); s.gru = nn.GRU(16, 16, batch_first=True); s.readout = nn.Linear(16, 6)
        def forward(s, x):
            h = F.elu(s.b1(s.c1(F.pad(x, (4, 0))))); h = s.c2(h if planted else F.pad(h, (4, 0))); h = F.elu(s.b2(h)).transpose(1, 2)
            return F.softplus(s.readout(s.gru(h)[0]))
    k = T(41, 6, 4, 6)
    def data(s):
        x = T(s, 24, 4, 40); r = F.softplus(F.conv1d(F.pad(x, (5, 0)), k) / 3); return x, torch.poisson(r, generator=gen(s + 1)).transpose(1, 2)
    return dict(model=Net, data=data, loss=nn.PoissonNLLLoss(log_input=False), lr=5e-3)

# ---- 12 imbalanced tabular
@case("https://github.com/fudannlp16/focal-loss/issues/6", "focal loss multiplies (1-p) by gamma instead of raising it to gamma (positives only)", "the loss: (1-y_pred)*gamma")
def focal_times_gamma(planted):
    al, ga = .25, 2.
    def right(p, t): return (-t * (1 - al) * ((1 - p) ** ga) * p.log() - (1 - t) * al * (p ** ga) * (1 - p).log()).mean()
    def wrong(p, t): return (-t * (1 - al) * ((1 - p) * ga) * p.log() - (1 - t) * al * (p ** ga) * (1 - p).log()).mean()
    clip = lambda p: p.clamp(1e-7, 1 - 1e-7)
    w = T(51, 10)
    def data(s):
        x = T(s, 64, 10); return x, ((x @ w + .5 * T(s + 1, 64)) > 4).float()
    return dict(model=lambda: nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid(), nn.Flatten(0)), data=data,
                loss=lambda o, t: (wrong if planted else right)(clip(o), t), judge=lambda m, x, t: float(right(clip(m(x)), t)), lr=3e-3)

# ---- 13 neural operator
@case("https://github.com/neuraloperator/neuraloperator/issues/108", "spectral weights are taken at index layer+i, not 2*layer+i: layers share weights, the last ones are never used", "spectral weights (weight[indices + i])")
def fno_weight_index(planted):
    W, Mo, NL = 12, 4, 3
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.lift = nn.Conv2d(1, W, 1); s.weight = nn.ParameterList([nn.Parameter(torch.randn(W, W, Mo, Mo, dtype=torch.cfloat) * (1 / W) ** .5 * .7) for _ in range(2 * NL)])
            s.skips = nn.ModuleList([nn.Conv2d(W, W, 1) for _ in range(NL)]); s.proj = nn.Sequential(nn.Conv2d(W, 24, 1), nn.GELU(), nn.Conv2d(24, 1, 1))
        def get_weight(s, i): return s.weight[i]
        def spectral(s, x, l):
            f = torch.fft.rfft2(x, norm="forward"); o = torch.zeros_like(f); b = l if planted else 2 * l
            o[:, :, :Mo, :Mo] = torch.einsum("bixy,ioxy->boxy", f[:, :, :Mo, :Mo], s.get_weight(b)); o[:, :, -Mo:, :Mo] = torch.einsum("bixy,ioxy->boxy", f[:, :, -Mo:, :Mo], s.get_weight(b + 1))
            return torch.fft.irfft2(o, s=x.shape[-2:], norm="forward")
        def forward(s, x):
            x = s.lift(x)
            for l in range(NL):
                x = s.spectral(x, l) + s.skips[l](x)
                if l < NL - 1: x = F.gelu(x)
            return s.proj(x)
    def data(s):
        n = 16; k = torch.fft.fftfreq(n) * n; k2 = k[:, None] ** 2 + k[None, :n // 2 + 1].abs() ** 2
        a = torch.fft.irfft2(torch.fft.rfft2(T(s, 24, 1, n, n)) / (1 + .1 * k2), s=(n, n)); a = a / a.std()
        u = torch.fft.irfft2(torch.fft.rfft2(a + .5 * a ** 2) / (1 + k2), s=(n, n)); u = u - u.mean((2, 3), keepdim=True)
        return a, u / .24
    return dict(model=Net, data=data, loss=mse, lr=4e-3)

# ---- 14 mixture of experts
@case("https://github.com/yfzhang114/SliME/issues/3", "the gate's noise is computed from w_gate, w_noise is never used", "w_noise / raw_noise_stddev in the gate")
def moe_w_noise(planted):
    D, H, E_ = 12, 32, 2
    class MoE(nn.Module):
        def __init__(s):
            super().__init__(); s.w_gate = nn.Parameter(torch.zeros(D, E_)); s.w_noise = nn.Parameter(torch.zeros(D, E_)); s.experts = nn.ModuleList([nn.Sequential(nn.Linear(D, H), nn.GELU(), nn.Linear(H, H)) for _ in range(E_)]); s.head = nn.Linear(H, 5)
        def forward(s, x):
            logits = x @ s.w_gate
            if s.training:
                raw = x @ s.w_gate if planted else x @ s.w_noise
                logits = logits + torch.randn_like(logits) * (F.softplus(raw) + 1e-2)
            g = torch.softmax(logits, -1)
            return s.head(sum(g[:, i:i + 1] * e(x) for i, e in enumerate(s.experts)))
    w = T(61, D, 5); v = T(62, D, 5)
    def data(s):
        x = T(s, 48, D); return x, torch.where(x[:, :1] > 0, x @ w, x @ v).argmax(-1)
    return dict(model=MoE, data=data, loss=ce, lr=5e-3)
