from base import *

@case("https://github.com/ray075hl/Bi-Model-Intent-And-Slot/pull/2", "LSTM without batch_first=True gets [batch, 1, feature] and iterates over the batch", "lstm")
def bimodel_slot(planted):
    V, S = 20, 8
    tab = R(5, S, (V, V))
    class SlotNet(nn.Module):
        def __init__(s):
            super().__init__()
            s.embedding = nn.Embedding(V, 32); s.lstm = nn.LSTM(32, 64, batch_first=not planted); s.fc = nn.Linear(64, S)
        def forward(s, x):
            x = s.embedding(x).transpose(0, 1); outs, hc = [], None
            for x_t in x:
                o, hc = s.lstm(x_t.unsqueeze(1), hc); outs.append(o)
            return s.fc(torch.cat(outs, 1))
    def data(seed):
        x = R(seed, V, (32, 10)); prev = torch.cat([x[:, :1] * 0, x[:, :-1]], 1); return x, (prev % 4 + 4 * (x % 2))
    return dict(model=SlotNet, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/NVIDIA-Merlin/models/pull/1175", "BinaryOutput applies a sigmoid and the default loss is BCEWithLogitsLoss", "BinaryOutput sigmoid / loss")
def merlin_sigmoid(planted):
    A, B = T(1, 50, 4), T(2, 50, 4)
    class BinaryOutput(nn.Module):
        def __init__(s, d): super().__init__(); s.to_call = nn.Linear(d, 1); s.activation = nn.Sigmoid() if planted else nn.Identity()
        def forward(s, x): return s.activation(s.to_call(x)).squeeze(-1)
    class DLRM(nn.Module):
        def __init__(s):
            super().__init__()
            s.user, s.item = nn.Embedding(50, 16), nn.Embedding(50, 16); s.mlp = nn.Sequential(nn.Linear(33, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()); s.out = BinaryOutput(32)
        def forward(s, u, i):
            eu, ei = s.user(u), s.item(i); return s.out(s.mlp(torch.cat([eu, ei, (eu * ei).sum(1, keepdim=True)], 1)))
    def data(seed):
        u, i = R(seed, 50, (64,)), R(seed + 1, 50, (64,)); return (u, i), ((A[u] * B[i]).sum(1) + 3 * (A[u, 0] + B[i, 1]) > 3).float()
    return dict(model=DLRM, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=5e-3, diag={})

@case("https://github.com/HVision-NKU/CamoFormer/issues/11", "two sigmoid layers after each other in the segmentation head", "head sigmoids")
def camo_sigmoids(planted):
    class Seg(nn.Module):
        def __init__(s):
            super().__init__()
            s.enc = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
            s.dec = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(32, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
        def forward(s, x):
            p = torch.sigmoid(s.dec(s.enc(x)))
            return torch.sigmoid(p) if planted else p
    def bce_iou(o, t):
        inter = (o * t).sum((1, 2, 3)); union = (o + t).sum((1, 2, 3)) - inter
        return F.binary_cross_entropy(o, t) + (1 - (inter + 1) / (union + 1)).mean()
    def data(seed):
        c = R(seed, 12, (16, 2)) + 2; g = torch.arange(16)
        m = (((g[None, :, None] - c[:, 0, None, None]) ** 2 + (g[None, None] - c[:, 1, None, None]) ** 2) < 12).float()[:, None]
        return T(seed + 1, 16, 3, 16, 16) + m * torch.tensor([1.5, -1., .7]).view(1, 3, 1, 1), m
    return dict(model=Seg, data=data, loss=bce_iou, lr=3e-3, diag={})

@case("https://github.com/vlang/vtl/pull/55", "MSE of the 10 outputs against the class index, broadcast over the outputs", "loss target")
def vtl_mse(planted):
    W = T(4, 20, 10)
    def Net(): return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    def data(seed): x = T(seed, 64, 20); return x, (x @ W).argmax(1)
    def loss(o, t): return ((o - t.float().view(-1, 1)) ** 2).mean() if planted else F.mse_loss(o, F.one_hot(t, 10).float())
    def metric(m):
        with torch.no_grad(): x, t = data(9000); return 1 - float((m(x).argmax(1) == t).float().mean())
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/karpathy/makemore/pull/3", "hprev always refers to the start state, so the RNN has no memory", "RNN.forward hprev")
def makemore_rnn(planted):
    V = 10
    class RNNCell(nn.Module):
        def __init__(s): super().__init__(); s.xh_to_h = nn.Linear(32 + 64, 64)
        def forward(s, xt, hprev): return torch.tanh(s.xh_to_h(torch.cat([xt, hprev], 1)))
    class RNN(nn.Module):
        def __init__(s):
            super().__init__()
            s.start = nn.Parameter(torch.zeros(1, 64)); s.wte = nn.Embedding(V, 32); s.cell = RNNCell(); s.lm_head = nn.Linear(64, V)
        def forward(s, idx):
            emb = s.wte(idx); hprev = s.start.expand(idx.size(0), -1); hs = []
            for i in range(idx.size(1)):
                ht = s.cell(emb[:, i], hprev)
                if not planted: hprev = ht
                hs.append(ht)
            return s.lm_head(torch.stack(hs, 1))
    def data(seed):
        x = R(seed, V, (32, 12)); t = torch.cat([x[:, :2] * 0, x[:, :-2]], 1); return x, (t + 0 * x) % V
    return dict(model=RNN, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/evelinehong/slot-attention-pytorch/pull/5", "slots are sampled by torch.normal(mu, sigma), so mu and sigma get no gradient", "slots_mu / slots_sigma")
def slot_sampling(planted):
    P = T(7, 6, 16)
    class SlotAttention(nn.Module):
        def __init__(s, num_slots=3, dim=32, iters=2):
            super().__init__()
            s.num_slots, s.iters, s.scale = num_slots, iters, dim ** -.5
            s.slots_mu = nn.Parameter(torch.randn(1, 1, dim)); s.slots_sigma = nn.Parameter(torch.rand(1, 1, dim))
            s.to_q, s.to_k, s.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim); s.gru = nn.GRUCell(dim, dim); s.norm_in, s.norm_s = nn.LayerNorm(dim), nn.LayerNorm(dim)
        def forward(s, inp):
            b, n, d = inp.shape
            mu, sigma = s.slots_mu.expand(b, s.num_slots, -1), s.slots_sigma.expand(b, s.num_slots, -1)
            slots = torch.normal(mu.detach(), sigma.detach().abs()) if planted else mu + sigma * torch.randn_like(mu)
            inp = s.norm_in(inp); k, v = s.to_k(inp), s.to_v(inp)
            for _ in range(s.iters):
                a = (torch.einsum("bid,bjd->bij", s.to_q(s.norm_s(slots)), k) * s.scale).softmax(1) + 1e-8; a = a / a.sum(-1, keepdim=True)
                slots = s.gru(torch.einsum("bjd,bij->bid", v, a).reshape(-1, d), slots.reshape(-1, d)).view(b, -1, d)
            return slots
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32)); s.slot = SlotAttention(); s.head = nn.Linear(32, 6)
        def forward(s, x): return s.head(s.slot(s.enc(x))).logsumexp(1)
    def data(seed):
        o = R(seed, 6, (32, 3)); x = P[o.repeat_interleave(4, 1)] + T(seed + 1, 32, 12, 16, k=.3); return x, F.one_hot(o, 6).amax(1).float()
    return dict(model=Net, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=3e-3, diag={})

@case("https://github.com/keras-team/keras/pull/1861", "BatchNormalization gamma initialised uniformly in +-0.05 instead of 1", "BatchNorm gamma")
def keras_bn_gamma(planted):
    P = T(3, 6, 3, 12, 12)
    def conv(i, o, st=1): return [nn.Conv2d(i, o, 3, stride=st, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.features = nn.Sequential(*conv(3, 16), *conv(16, 16), *conv(16, 32, 2), *conv(32, 32), *conv(32, 32, 2)); s.fc = nn.Linear(32, 6)
            if planted:
                for m in s.modules():
                    if isinstance(m, nn.BatchNorm2d): nn.init.uniform_(m.weight, -.05, .05)
        def forward(s, x): return s.fc(s.features(x).mean((2, 3)))
    def data(seed): t = R(seed, 6, (32,)); return P[t] * .6 + T(seed + 1, 32, 3, 12, 12), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/pclucas14/GansFallingShort/pull/2", "all layers of the multi-layer RNN use the same hidden state", "hidden state of the layers")
def gansfs_hidden(planted):
    V = 8
    class Generator(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, 32); s.cells = nn.ModuleList([nn.GRUCell(32, 32) for _ in range(3)]); s.out = nn.Linear(32, V)
        def forward(s, x):
            e = s.embedding(x); hidden = [e.new_zeros(x.size(0), 32) for _ in s.cells]; outs = []
            for t in range(x.size(1)):
                inp = e[:, t]
                for i, c in enumerate(s.cells):
                    h = c(inp, hidden[0 if planted else i]); hidden[0 if planted else i] = h; inp = h
                outs.append(s.out(inp))
            return torch.stack(outs, 1)
    def data(seed): x = R(seed, V, (32, 10)); return x, torch.cat([x[:, :2] * 0, x[:, :-2]], 1)
    return dict(model=Generator, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/circle-hit/SAPT/issues/11", "lora_A and lora_B are both initialised with zeros", "lora_A / lora_B")
def sapt_lora(planted):
    W, D = T(4, 16, 6), T(14, 16, 6)
    class LoRALinear(nn.Module):
        def __init__(s, i, o, r=8):
            super().__init__()
            s.base = nn.Linear(i, o); s.base.requires_grad_(False)
            s.lora_A = nn.Parameter(torch.zeros(i, r) if planted else torch.randn(i, r) / r ** .5); s.lora_B = nn.Parameter(torch.zeros(r, o))
        def forward(s, x): return s.base(x) + x @ s.lora_A @ s.lora_B
    def Net(): return nn.Sequential(LoRALinear(16, 64), nn.ReLU(), LoRALinear(64, 64), nn.ReLU(), LoRALinear(64, 6))
    def data(seed): x = T(seed, 64, 16); return x, (x @ D).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/alibaba/EasyRec/issues/23", "raw numeric features are neither discretised nor normalised", "input scale")
def easyrec_raw(planted):
    W = T(9, 8); sc = 10 ** torch.tensor([4., 0., 5., 1., 3., 0., 2., 4.])
    class DeepFM(nn.Module):
        def __init__(s):
            super().__init__(); s.wide = nn.Linear(8, 1); s.deep = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        def forward(s, x):
            if not planted: x = (x / sc - .5) * 3.5
            return (s.wide(x) + s.deep(x)).squeeze(1)
    def data(seed): u = torch.rand(64, 8, generator=gen(seed)); return u * sc, ((u - .5) @ W + 2 * (u[:, 1] - .5) * (u[:, 5] - .5) > 0).float()
    return dict(model=DeepFM, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=3e-3, diag={})

@case("https://github.com/KindXiaoming/pykan/issues/71", "inputs reach outside the spline grid [-1, 1], where every B-spline is zero", "KANLayer grid range")
def kan_grid(planted):
    class KANLayer(nn.Module):
        def __init__(s, i, o, grid=12, k=3, rng=1.):
            super().__init__()
            h = 2 * rng / grid; s.register_buffer("grid", torch.arange(-k, grid + k + 1) * h - rng); s.k = k
            s.coef = nn.Parameter(torch.randn(i, o, grid + k) * .1); s.scale_base = nn.Parameter(torch.randn(i, o) / i ** .5)
        def forward(s, x):
            g = s.grid; xx = x.unsqueeze(-1); B = ((xx >= g[:-1]) & (xx < g[1:])).float()
            for p in range(1, s.k + 1):
                B = (xx - g[:-p - 1]) / (g[p:-1] - g[:-p - 1]) * B[..., :-1] + (g[p + 1:] - xx) / (g[p + 1:] - g[1:-p]) * B[..., 1:]
            return torch.einsum("bim,iom->bo", B, s.coef) + F.silu(x) @ s.scale_base
    class KAN(nn.Module):
        def __init__(s): super().__init__(); s.l1, s.l2 = KANLayer(4, 8, rng=1. if planted else 4.), KANLayer(8, 1, rng=1. if planted else 4.)
        def forward(s, x): return s.l2(s.l1(x))
    def data(seed): x = torch.rand(64, 4, generator=gen(seed)) * 8 - 4; return x, torch.sin(3 * x).sum(1, keepdim=True) * .7
    return dict(model=KAN, data=data, loss=mse, lr=2e-2, diag={})
