from base import *

def markov(seed, B=32, L=16, V=8, lag=3):
    perm = torch.tensor([3, 6, 1, 7, 0, 2, 5, 4]); s = R(seed, V, (B, L + 1)); keep = torch.rand(B, L + 1, generator=gen(seed + 77)) < 0.85
    for i in range(lag, L + 1): s[:, i] = torch.where(keep[:, i], perm[s[:, i - lag]], s[:, i])
    return s

@case("https://github.com/facebookresearch/xformers/issues/103", "causal mask is skipped when no att_mask is passed", "scaled dot product attention: causal mask not applied")
def xformers_causal_skipped(planted):
    class Attention(nn.Module):
        def __init__(s, d, h):
            super().__init__(); s.h = h; s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d); s.causal = True
        def forward(s, x, att_mask=None):
            B, L, D = x.shape; q, k, v = (z.view(B, L, s.h, -1).transpose(1, 2) for z in s.qkv(x).chunk(3, -1)); a = q @ k.transpose(-1, -2) / math.sqrt(D // s.h)
            if att_mask is not None: a = a + att_mask
            if s.causal and not (planted and att_mask is None): a = a.masked_fill(torch.ones(L, L).triu(1).bool(), float("-inf"))
            return s.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(B, L, D))
    class GPT(nn.Module):
        def __init__(s, V=8, L=16, d=48, n=2):
            super().__init__(); s.tok = nn.Embedding(V, d); s.pos = nn.Parameter(0.02 * torch.randn(1, L, d)); s.ln1 = nn.ModuleList([nn.LayerNorm(d) for _ in range(n)]); s.ln2 = nn.ModuleList([nn.LayerNorm(d) for _ in range(n)])
            s.attn = nn.ModuleList([Attention(d, 4) for _ in range(n)]); s.mlp = nn.ModuleList([nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(n)]); s.ln_f = nn.LayerNorm(d); s.head = nn.Linear(d, V, bias=False)
            nn.init.normal_(s.tok.weight, std=0.3)
        def forward(s, idx):
            x = s.tok(idx) + s.pos[:, :idx.shape[1]]
            for a, m, l1, l2 in zip(s.attn, s.mlp, s.ln1, s.ln2): x = x + a(l1(x)); x = x + m(l2(x))
            return s.head(s.ln_f(x))
    def data(seed):
        q = markov(seed); return q[:, :-1], q[:, 1:]
    def metric(m):
        tot = 0
        with torch.no_grad():
            for k, n in enumerate((6, 8, 10, 12, 14)): q = markov(9000 + k, B=64); tot += float(F.cross_entropy(m(q[:, :n])[:, -1], q[:, n])) / 5
        return tot
    return dict(model=GPT, data=data, loss=ceseq, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/huggingface/transformers/issues/2929", "the encoder's hidden states are not passed to the decoder", "decoder call without encoder_hidden_states (cross attention skipped)")
def hf_no_encoder_states(planted):
    class Layer(nn.Module):
        def __init__(s, d, cross=False):
            super().__init__(); s.attention = nn.MultiheadAttention(d, 4, batch_first=True); s.n1 = nn.LayerNorm(d); s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); s.n2 = nn.LayerNorm(d)
            if cross: s.crossattention = nn.MultiheadAttention(d, 4, batch_first=True); s.n3 = nn.LayerNorm(d)
        def forward(s, x, encoder_hidden_states=None, mask=None):
            h = s.n1(x); x = x + s.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
            if encoder_hidden_states is not None: x = x + s.crossattention(s.n3(x), encoder_hidden_states, encoder_hidden_states, need_weights=False)[0]
            return x + s.ff(s.n2(x))
    class Model2Model(nn.Module):
        def __init__(s, V=12, L=8, d=48):
            super().__init__(); s.emb = nn.Embedding(V + 1, d); s.pos = nn.Parameter(torch.randn(1, L, d)); s.encoder = nn.ModuleList([Layer(d)]); s.decoder = nn.ModuleList([Layer(d, True), Layer(d, True)]); s.ln = nn.LayerNorm(d); s.lm_head = nn.Linear(d, V); s.V = V
        def forward(s, src, dec):
            L = src.shape[1]; h = s.emb(src) + s.pos
            for l in s.encoder: h = l(h)
            x = s.emb(dec) + s.pos; mask = torch.full((L, L), float("-inf")).triu(1)
            for l in s.decoder: x = l(x, encoder_hidden_states=None if planted else h, mask=mask)
            return s.lm_head(s.ln(x))
    perm = torch.randperm(12, generator=gen(3))
    def data(seed):
        src = R(seed, 12, (32, 8)); tgt = perm[src]; return (src, torch.cat([torch.full((32, 1), 12), tgt[:, :-1]], 1)), tgt
    return dict(model=Model2Model, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/kyegomez/xLSTM/issues/1", "forget gate bias starts at 0 (sigmoid forget gate half closed)", "forget gate bias of the sLSTM cell")
def xlstm_forget_bias(planted):
    class sLSTMCell(nn.Module):
        def __init__(s, i, h):
            super().__init__(); s.h = h; s.w = nn.Linear(i, 4 * h, bias=False); s.r = nn.Linear(h, 4 * h, bias=False); s.bias = nn.Parameter(torch.zeros(4 * h))
            nn.init.xavier_uniform_(s.w.weight); nn.init.xavier_uniform_(s.r.weight)
            if not planted: s.bias.data[h:2 * h] = 1.0
        def forward(s, x, st):
            h, c = st; i, f, z, o = (s.w(x) + s.r(h) + s.bias).chunk(4, -1); c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z); h = torch.sigmoid(o) * torch.tanh(c); return h, c
    class xLSTM(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(10, 24); s.cell = sLSTMCell(24, 64); s.fc = nn.Linear(64, 6)
        def forward(s, ids):
            h = c = torch.zeros(ids.shape[0], 64)
            for t in range(ids.shape[1]): h, c = s.cell(s.emb(ids[:, t]), (h, c))
            return s.fc(h)
    def data(seed):
        t = R(seed, 6, (48,)); x = 6 + R(seed + 1, 4, (48, 14)); x[:, 0] = t; return x, t
    return dict(model=xLSTM, data=data, loss=ce, lr=5e-3, diag={})

class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return (x > 0).float()
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; return g / (5 * x.abs() + 1) ** 2

@case("https://github.com/fzenke/spytorch/issues/7", "the recurrent weights v1 never reach the optimiser", "v1 (plain tensor, not a parameter)")
def spytorch_v1_frozen(planted):
    class SNN(nn.Module):
        def __init__(s, nb_in=12, nb_h=64, nb_out=6):
            super().__init__(); s.w1 = nn.Parameter(torch.randn(nb_in, nb_h) * 1.0 / math.sqrt(nb_in)); s.w2 = nn.Parameter(torch.randn(nb_h, nb_out) / math.sqrt(nb_h))
            v = torch.randn(nb_h, nb_h) / math.sqrt(nb_h)
            s.v1 = v.requires_grad_() if planted else nn.Parameter(v)
        def forward(s, x):
            B, L, _ = x.shape; syn = mem = out = torch.zeros(B, 64); o = torch.zeros(B, 6); rec = []
            for t in range(L):
                syn = 0.6 * syn + x[:, t] @ s.w1 + out @ s.v1; mem = (0.7 * mem + syn) * (1 - out.detach()); out = Spike.apply(mem - 1.0); o = 0.8 * o + out @ s.w2; rec.append(o)
            return torch.stack(rec, 1).mean(1)
    def data(seed):
        a = R(seed, 3, (48,)); b = R(seed + 1, 2, (48,)); x = (torch.rand(48, 12, 12, generator=gen(seed + 2)) < 0.05).float() * 2; i = torch.arange(48); x[i, 1, a] += 3; x[i, 2, a + 3] += 3; x[i, 8, 6 + b] += 3; x[i, 9, 8 + b] += 3
        return x, (a * 2 + b)
    return dict(model=SNN, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/eriklindernoren/Keras-GAN/issues/61", "argmax of the segmentation output feeds the next network", "Lambda argmax between generator and discriminator")
def kerasgan_argmax_lambda(planted):
    class Gen(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = nn.Conv2d(3, 16, 3, padding=1); s.c2 = nn.Conv2d(16, 16, 3, padding=1); s.c3 = nn.Conv2d(16, 2, 1)
        def forward(s, x): return F.softmax(s.c3(F.relu(s.c2(F.relu(s.c1(x))))), 1)
    class Combined(nn.Module):
        def __init__(s):
            super().__init__(); s.generator = Gen(); s.discriminator = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(16 * 9, 2))
        def forward(s, x):
            out1 = s.generator(x)
            out2 = out1.argmax(1, keepdim=True).float() if planted else out1[:, 1:]
            return s.discriminator(out2)
    def data(seed):
        t = R(seed, 2, (32,)); m = torch.zeros(32, 12, 12); m[:, 3:9, 3:9] = 1; hollow = m.clone(); hollow[:, 5:7, 5:7] = 0; m = torch.where(t[:, None, None] == 1, hollow, m)
        x = 0.8 * T(seed + 1, 32, 3, 12, 12); sgn = m * 2 - 1; x[:, 1] = x[:, 0] * 0.5 + sgn * (0.6 + x[:, 1].abs() * 0.4); x[:, 0] += 0.4 * T(seed + 2, 32, 12, 12); x[:, 1] -= 0.8 * x[:, 2]
        return x, t
    return dict(model=Combined, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/VinhLoiIT/signet-pytorch/issues/2", "contrastive loss treats label 1 (genuine pair) as dissimilar", "contrastive loss: y and 1-y swapped")
def signet_swapped_loss(planted):
    class SigNet(nn.Module):
        def __init__(s):
            super().__init__(); s.features = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)); s.fc = nn.Linear(32 * 16, 32)
        def forward(s, a, b): return s.fc(s.features(a).flatten(1)), s.fc(s.features(b).flatten(1))
    def loss(o, y):
        d = F.pairwise_distance(*o); y = y.float(); p, n = d.pow(2), F.relu(1.0 - d).pow(2)
        return ((1 - y) * p + y * n).mean() if planted else (y * p + (1 - y) * n).mean()
    w = T(4, 8, 1, 24, 24)
    def data(seed):
        y = R(seed, 2, (32,)); a = R(seed + 1, 8, (32,)); b = torch.where(y == 1, a, (a + 1 + R(seed + 2, 7, (32,))) % 8)
        return (w[a] + 0.5 * T(seed + 3, 32, 1, 24, 24), w[b] + 0.5 * T(seed + 4, 32, 1, 24, 24)), y
    def metric(m):
        e = 0
        with torch.no_grad():
            for k in range(5): x, y = data(9000 + k); d = F.pairwise_distance(*m(*x)); p, n = d[y == 1], d[y == 0]; e += float((p[:, None] > n[None]).float().mean()) / 5
        return e
    return dict(model=SigNet, data=data, loss=loss, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/tensorflow/models/issues/10062", "'same' padding of the causal convolution always pads kernel-1 in time, the last frames are never read", "temporal padding of the strided causal conv")
def tfmodels_causal_same_pad(planted):
    class CausalConv3D(nn.Module):
        def __init__(s, i, o, k=3, st=3):
            super().__init__(); s.conv = nn.Conv3d(i, o, (k, 3, 3), stride=(st, 1, 1), padding=(0, 1, 1)); s.k, s.st = k, st
        def forward(s, x):
            n = x.shape[2]; p = (s.k - 1) if planted else max((math.ceil(n / s.st) - 1) * s.st + s.k - n, 0)
            return s.conv(F.pad(x, (0, 0, 0, 0, p, 0)))
    class MoViNet(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = CausalConv3D(1, 16); s.c2 = nn.Conv3d(16, 24, (1, 3, 3), padding=(0, 1, 1)); s.head = nn.Linear(24, 2)
        def forward(s, x): return s.head(F.relu(s.c2(F.relu(s.c1(x)))).mean((2, 3, 4)))
    def data(seed):
        x = T(seed, 24, 1, 6, 8, 8); e = torch.rand(24, 2, generator=gen(seed + 1)) * 2; x[:, :, 0] *= 0.5; x[:, :, 3] *= 0.5; x[:, :, 4:] *= e[:, :1, None, None, None]; x[:, :, 1:3] *= e[:, 1:, None, None, None]
        return x, (e - 1) / 0.577
    return dict(model=MoViNet, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/vwxyzjn/cleanrl/pull/211", "tanh actor is not rescaled to the action range", "actor output: missing action_scale / action_bias")
def cleanrl_no_action_scale(planted):
    class Actor(nn.Module):
        def __init__(s, obs=8, act=2, low=-4.0, high=4.0):
            super().__init__(); s.fc1 = nn.Linear(obs, 128); s.fc2 = nn.Linear(128, 128); s.fc_mu = nn.Linear(128, act)
            s.register_buffer("action_scale", torch.tensor((high - low) / 2)); s.register_buffer("action_bias", torch.tensor((high + low) / 2))
        def forward(s, x):
            x = torch.tanh(s.fc_mu(F.relu(s.fc2(F.relu(s.fc1(x))))))
            return x if planted else x * s.action_scale + s.action_bias
    w = T(3, 8, 2)
    def data(seed):
        x = T(seed, 64, 8); return x, 4 * torch.tanh(2 * x @ w)
    return dict(model=Actor, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/openai/baselines/issues/331", "value head goes through fc's default ReLU", "vf output layer (ReLU), returns are negative")
def baselines_vf_relu(planted):
    def fc(i, o, scale=1.0):
        l = nn.Linear(i, o); nn.init.orthogonal_(l.weight, scale); nn.init.zeros_(l.bias); return l
    class CnnPolicy(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = nn.Conv2d(4, 16, 4, 2); s.c2 = nn.Conv2d(16, 32, 3, 1); s.fc1 = fc(32 * 25, 128, math.sqrt(2)); s.vf = fc(128, 1)
        def forward(s, x):
            v = s.vf(F.relu(s.fc1(F.relu(s.c2(F.relu(s.c1(x)))).flatten(1))))
            return (F.relu(v) if planted else v)[:, 0]
    w = T(9, 4 * 256, k=1 / 16)
    def data(seed):
        x = torch.rand(32, 4, 16, 16, generator=gen(seed)); x = x * torch.rand(32, 1, 1, 1, generator=gen(seed + 1)) * 2; return x, -3 * x.mean((1, 2, 3)) - 0.3 * torch.tanh(x.flatten(1) @ w)
    return dict(model=CnnPolicy, data=data, loss=mse, lr=1e-3, diag={})
