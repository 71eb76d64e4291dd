from base import *

def protos(n, c, h, k=4, seed=777):
    return F.interpolate(torch.randn(n, c, k, k, generator=gen(seed)), size=h, mode="bilinear", align_corners=False) * 1.3
def images(seed, B=32, c=1, h=16, n=6, noise=.6):
    y = R(seed, n, (B,)); return protos(n, c, h)[y] + T(seed + 1, B, c, h, h, k=noise), y
def markov(seed, B, L, V, sharp=2.5, pseed=5):
    P = (torch.randn(V, V, generator=gen(pseed)) * sharp).softmax(-1); g = gen(seed)
    x = [torch.randint(0, V, (B,), generator=g)]
    for _ in range(L): x.append(torch.multinomial(P[x[-1]], 1, generator=g)[:, 0])
    return torch.stack(x, 1)

# 1 ---------------------------------------------------------------- energy based model
class CondResBlock(nn.Module):
    def __init__(s, d, ncls, planted):
        super().__init__(); s.planted = planted
        s.conv1 = nn.Conv2d(d, d, 3, 1, 1); s.conv2 = nn.Conv2d(d, d, 3, 1, 1)
        s.latent_map = nn.Linear(ncls, 2 * d); s.latent_map_2 = nn.Linear(ncls, 2 * d)
        for l in (s.latent_map, s.latent_map_2): nn.init.zeros_(l.bias); nn.init.normal_(l.weight, std=.05)
    def forward(s, x, y):
        x_orig = x
        g, b = s.latent_map(y)[:, :, None, None].chunk(2, 1); g2, b2 = s.latent_map_2(y)[:, :, None, None].chunk(2, 1)
        x = F.silu((1 + g) * s.conv1(x) + b)
        x = F.silu((1 + g2) * s.conv2(x) + b2)
        return x if s.planted else x_orig + x
class EBM(nn.Module):
    def __init__(s, ncls, planted, d=24):
        super().__init__(); s.conv0 = nn.Conv2d(1, d, 3, 1, 1); s.ncls = ncls
        s.blocks = nn.ModuleList(CondResBlock(d, ncls, planted) for _ in range(6)); s.energy = nn.Linear(d, 1)
    def e(s, x, y):
        x = F.silu(s.conv0(x))
        for i, b in enumerate(s.blocks):
            x = b(x, y)
            if i % 2 == 1 and i < 5: x = F.avg_pool2d(x, 2)
        return s.energy(x.flatten(2).sum(2) / 8)[:, 0]
    def forward(s, x, y): return torch.stack([s.e(x[:, 0], y), s.e(x[:, 1], y)], 1)
@case("https://github.com/yilundu/improved_contrastive_divergence/issues/7", "CondResBlock never adds x_orig: no residual", "blocks")
def ebm_condres(planted):
    def data(seed):
        x, y = images(seed, 32, 1, 16, 5, .8); f, _ = images(seed + 7, 32, 1, 16, 5, .8)
        other = (y + 1 + R(seed + 3, 4, (32,))) % 5; f = protos(5, 1, 16)[other] + T(seed + 9, 32, 1, 16, 16, k=.8)
        return (torch.stack([x, f], 1), F.one_hot(y, 5).float()), torch.zeros(32, dtype=torch.long)
    return dict(model=lambda: EBM(5, planted), data=data, loss=lambda e, t: F.cross_entropy(-e, t), diag={})

# 2 ---------------------------------------------------------------- resnet
class Basic(nn.Module):
    def __init__(s, i, o, st, planted):
        super().__init__(); s.planted = planted
        s.conv1 = nn.Conv2d(i, o, 3, st, 1, bias=False); s.bn1 = nn.BatchNorm2d(o); s.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False); s.bn2 = nn.BatchNorm2d(o)
        s.short = nn.Sequential() if (i == o and st == 1) or planted else nn.Sequential(nn.Conv2d(i, o, 1, st, bias=False), nn.BatchNorm2d(o))
    def forward(s, x):
        y = s.bn2(s.conv2(F.relu(s.bn1(s.conv1(x)))))
        return F.relu(y if s.planted else y + s.short(x))
@case("https://github.com/delira-dev/delira/issues/91", "ResNet18 without its residual connections", "layers")
def delira_resnet(planted):
    def model():
        w = [12, 24, 36, 48]; L = [nn.Conv2d(3, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()]; i = 12
        for k, o in enumerate(w): L += [Basic(i, o, 1 + (k > 0), planted), Basic(o, o, 1, planted)]; i = o
        return nn.Sequential(*L, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 8))
    return dict(model=model, data=lambda s: images(s, 32, 3, 16, 8, 1.2), loss=ce, diag=CE)

# 3 ---------------------------------------------------------------- deep texture encoding
class Encoding(nn.Module):
    def __init__(s, D, K, planted):
        super().__init__(); s.planted = planted; std = 1 / (K * D) ** .5
        s.codewords = nn.Parameter(torch.empty(K, D).uniform_(-std, std)); s.scale = nn.Parameter(torch.empty(K).uniform_(-1, 0))
    def forward(s, X):
        X = X.flatten(2).transpose(1, 2)
        d = (X[:, :, None] - s.codewords).square().sum(3) * s.scale
        A = d.softmax(1 if s.planted else 2)
        return (A[..., None] * (X[:, :, None] - s.codewords)).sum(1)
@case("https://github.com/zhanghang1989/PyTorch-Encoding/pull/115", "Encoding assigns with a softmax over positions, not over codewords", "encoding")
def texture_encoding(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.body = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 16, 1), nn.BatchNorm2d(16))
            s.encoding = Encoding(16, 8, planted); s.fc = nn.Linear(128, 6)
        def forward(s, x): return s.fc(F.normalize(s.encoding(s.body(x)).flatten(1), dim=1) * 4)
    K = torch.randn(6, 1, 5, 5, generator=gen(3)) / 4
    def data(seed):
        y = R(seed, 6, (24,)); n = T(seed + 1, 24, 1, 16, 16)
        x = torch.stack([F.conv2d(n[i:i + 1], K[y[i]][None], padding=2)[0] for i in range(24)]); return x + T(seed + 2, 24, 1, 16, 16, k=.2), y
    return dict(model=Net, data=data, loss=ce, diag=CE)

# 4 ---------------------------------------------------------------- trajectory prediction
class MTP(nn.Module):
    def __init__(s, planted, modes=3, n=12):
        super().__init__(); s.planted = planted; s.modes = modes
        s.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        s.fc1 = nn.Linear(128 + 3, 96); s.fc2 = nn.Linear(96, modes * n + modes)
    def forward(s, img, asv):
        h = s.fc1(torch.cat([s.backbone(img), asv], 1)); h = h if s.planted else F.relu(h)
        return s.fc2(h)
def mtp_loss(o, t, modes=3):
    tr = o[:, :-modes].view(len(o), modes, -1); lp = o[:, -modes:].log_softmax(1)
    d = (tr - t[:, None]).square().mean(2); best = d.detach().argmin(1)
    return d.gather(1, best[:, None]).mean() - .1 * lp.gather(1, best[:, None]).mean()
@case("https://github.com/nutonomy/nuscenes-devkit/issues/728", "MTP head: no nonlinearity between its two linear layers", "fc1")
def nuscenes_mtp(planted):
    def data(seed):
        x, y = images(seed, 32, 3, 24, 4, .5); a = T(seed + 3, 32, 3); t = torch.linspace(.1, 1, 6)
        sp = 1 + a[:, :1].abs(); ang = a[:, 1:2] * (y[:, None] - 1.5)
        return (x, a), torch.stack([sp * t * torch.cos(ang * t), sp * t * torch.sin(ang * t)], 2).flatten(1)
    return dict(model=lambda: MTP(planted), data=data, loss=mtp_loss, diag={})

# 5 ---------------------------------------------------------------- switch transformer
class Attn(nn.Module):
    def __init__(s, d, h, causal=True): super().__init__(); s.qkv = nn.Linear(d, 3 * d); s.o = nn.Linear(d, d); s.h = h; s.causal = causal
    def forward(s, x):
        B, L, d = x.shape; q, k, v = s.qkv(x).view(B, L, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
        return s.o(F.scaled_dot_product_attention(q, k, v, is_causal=s.causal).transpose(1, 2).reshape(B, L, d))
class SwitchFF(nn.Module):
    def __init__(s, d, E, planted):
        super().__init__(); s.planted = planted; s.switch = nn.Linear(d, E)
        s.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)) for _ in range(E))
    def forward(s, x):
        p = s.switch(x).softmax(-1); m, r = p.max(-1)
        xi = x * m[..., None] if s.planted else x
        out = sum(e(xi) * (r == i)[..., None] for i, e in enumerate(s.experts))
        return out if s.planted else out * m[..., None]
class LM(nn.Module):
    def __init__(s, V, d, L, ff, n=2, attn=lambda d: Attn(d, 4)):
        super().__init__(); s.tok = nn.Embedding(V, d); s.pos = nn.Embedding(L, d); nn.init.normal_(s.tok.weight, std=.3); nn.init.normal_(s.pos.weight, std=.1)
        s.n1 = nn.ModuleList(nn.LayerNorm(d) for _ in range(n)); s.n2 = nn.ModuleList(nn.LayerNorm(d) for _ in range(n))
        s.at = nn.ModuleList(attn(d) for _ in range(n)); s.ff = nn.ModuleList(ff(d) for _ in range(n)); s.nf = nn.LayerNorm(d); s.head = nn.Linear(d, V)
    def forward(s, x):
        h = s.tok(x) + s.pos.weight[:x.shape[1]]
        for a, f, n1, n2 in zip(s.at, s.ff, s.n1, s.n2): h = h + a(n1(h)); h = h + f(n2(h))
        return s.head(s.nf(h))
def lmdata(V=24, L=20, B=16, sharp=2.5):
    def d(seed): x = markov(seed, B, L, V, sharp); return x[:, :-1], x[:, 1:]
    return d
@case("https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/95", "switch: the router's probability scales the expert's input, not its output", "ff")
def labml_switch(planted):
    return dict(model=lambda: LM(24, 32, 20, lambda d: SwitchFF(d, 4, planted)), data=lmdata(), loss=ceseq, diag=SEQ)

# 6 ---------------------------------------------------------------- molecules
class Envelope(nn.Module):
    def __init__(s, planted, p=5): super().__init__(); p += 1; s.p = p; s.a, s.b, s.c = -(p + 1) * (p + 2) / 2, p * (p + 2), -p * (p + 1) / 2; s.planted = planted
    def forward(s, x):
        e = 1 / x + s.a * x ** (s.p - 1) + s.b * x ** s.p + s.c * x ** (s.p + 1)
        return e if s.planted else torch.where(x < 1, e, torch.zeros_like(x))
class DimeLite(nn.Module):
    def __init__(s, planted, d=32, nr=6, cutoff=2.5):
        super().__init__(); s.cut = cutoff; s.env = Envelope(planted); s.freq = nn.Parameter(torch.arange(1, nr + 1) * math.pi)
        s.emb = nn.Embedding(4, d); s.lin_rbf = nn.Linear(nr, d); s.lin = nn.Linear(3 * d, d)
        s.rbf2 = nn.ModuleList(nn.Linear(nr, d, bias=False) for _ in range(2)); s.up = nn.ModuleList(nn.Linear(d, d) for _ in range(2)); s.post = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
        s.out = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))
    def forward(s, z, pos):
        B, N = z.shape; eye = torch.eye(N, dtype=torch.bool)
        dist = (pos[:, :, None] - pos[:, None]).square().sum(-1).masked_fill(eye, 1.).sqrt() / s.cut
        rbf = s.env(dist)[..., None] * torch.sin(s.freq * dist[..., None])
        off = (~eye)[None, ..., None].float()
        x = s.emb(z); e = F.silu(s.lin(torch.cat([x[:, :, None].expand(-1, -1, N, -1), x[:, None].expand(-1, N, -1, -1), F.silu(s.lin_rbf(rbf))], -1)))
        for r, u, p in zip(s.rbf2, s.up, s.post):
            m = (e * r(rbf) * off).sum(2) / 4
            e = e + F.silu(p(F.silu(u(e)) + m[:, None]))
        return s.out((e * s.rbf2[0](rbf) * off).sum(2) / 4).sum(1)[:, 0] / 3
@case("https://github.com/pyg-team/pytorch_geometric/pull/4506", "DimeNet envelope not clamped beyond the cutoff: explodes", "env")
def dimenet_envelope(planted):
    def data(seed):
        g = gen(seed); z = torch.randint(0, 4, (24, 8), generator=g)
        grid = torch.stack(torch.meshgrid(*[torch.arange(2.)] * 3, indexing="ij"), -1).view(8, 3) * 1.7
        pos = grid + torch.randn(24, 8, 3, generator=g) * .2
        d = (pos[:, :, None] - pos[:, None]).norm(dim=-1) + torch.eye(8) * 9; q = torch.tensor([-.6, -.2, .3, .7])[z]
        return (z, pos), (q[:, :, None] * q[:, None] * torch.exp(-d) * (d < 2.5)).sum((1, 2)) * 4
    return dict(model=lambda: DimeLite(planted), data=data, loss=mse, diag=MSE)

# 7 ---------------------------------------------------------------- spiking
class SNN(nn.Module):
    def __init__(s, planted, i=40, h=64, o=5, steps=12):
        super().__init__(); s.planted = planted; s.steps = steps; s.fc1 = nn.Linear(i, h); s.fc2 = nn.Linear(h, o); s.beta, s.th = .9, 1.
    def lif(s, inp, mem):
        u = mem - s.th; soft = torch.atan(math.pi * u) / math.pi; spk = soft + ((u > 0).float() - soft).detach()
        reset = (spk - s.th).detach() if s.planted else (spk * s.th).detach()
        return spk, s.beta * mem + inp - reset
    def forward(s, x):
        m1 = x.new_zeros(len(x), s.fc1.out_features); m2 = x.new_zeros(len(x), s.fc2.out_features); out = []
        for _ in range(s.steps):
            k1, m1 = s.lif(s.fc1(x), m1); k2, m2 = s.lif(s.fc2(k1), m2); out.append(k2)
        return torch.stack(out).sum(0)
@case("https://github.com/jeshraghian/snntorch/pull/413", "reset is spk - threshold instead of spk * threshold", "fc1")
def snntorch_reset(planted):
    Cn = torch.randn(5, 40, generator=gen(8))
    def data(seed): y = R(seed, 5, (32,)); return Cn[y] + T(seed + 1, 32, 40, k=.9), y
    return dict(model=lambda: SNN(planted), data=data, loss=ce, diag=CE)

# 8 ---------------------------------------------------------------- word2vec
class SkipGram(nn.Module):
    def __init__(s, V, d):
        super().__init__(); s.embedding_v = nn.Embedding(V, d); s.embedding_u = nn.Embedding(V, d)
        r = (2 / (V + d)) ** .5
        for e in (s.embedding_v, s.embedding_u): nn.init.uniform_(e.weight, -r, r)
    def forward(s, c, o, n):
        v = s.embedding_v(c)[:, :, None]; return torch.cat([s.embedding_u(o[:, None]) @ v, -(s.embedding_u(n) @ v)], 1)[:, :, 0]
@case("https://github.com/DSKSD/DeepNLP-models-Pytorch/issues/15", "negative scores are summed before the logsigmoid", "loss")
def skipgram_neg(planted):
    def data(seed):
        x = markov(seed, 128, 1, 60, 3.); return (x[:, 0], x[:, 1], R(seed + 5, 60, (128, 8))), torch.zeros(128)
    good = lambda o, t: -(F.logsigmoid(o[:, 0]) + F.logsigmoid(o[:, 1:]).sum(1)).mean()
    bad = lambda o, t: -(F.logsigmoid(o[:, 0]) + F.logsigmoid(o[:, 1:].sum(1))).mean()
    return dict(model=lambda: SkipGram(60, 24), data=data, loss=bad if planted else good, diag={})

# 9 ---------------------------------------------------------------- GRU of Keras
class KGRU(nn.Module):
    def __init__(s, i, h, planted):
        super().__init__(); s.planted = planted; s.W = nn.ModuleDict({k: nn.Linear(i, h) for k in "zrh"}); s.U = nn.ModuleDict({k: nn.Linear(h, h, bias=False) for k in "zrh"}); s.h = h
        for l in s.W.values(): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        for l in s.U.values(): nn.init.orthogonal_(l.weight)
    def forward(s, x):
        h = x.new_zeros(len(x), s.h); out = []; ia = F.hardsigmoid
        for t in range(x.shape[1]):
            xt = x[:, t]; z = ia(s.W["z"](xt) + s.U["z"](h)); r = ia(s.W["r"](xt) + s.U["r"](h))
            hh = s.W["h"](xt) + s.U["h"](r * h); hh = ia(hh) if s.planted else torch.tanh(hh)
            h = z * h + (1 - z) * hh; out.append(h)
        return torch.stack(out, 1)
@case("https://github.com/keras-team/keras/issues/1286", "GRU candidate uses inner_activation (hard sigmoid) instead of tanh", "gru")
def keras_gru_act(planted):
    def model(): return nn.Sequential(KGRU(4, 32, planted), nn.Linear(32, 1))
    def data(seed):
        x = T(seed, 24, 20, 4); s = torch.zeros(24); o = []
        for t in range(20): s = .8 * s + torch.tanh(x[:, t, 0] * x[:, t, 1].sign() + .5 * x[:, t, 2]); o.append(s)
        return x, torch.stack(o, 1)[..., None]
    return dict(model=model, data=data, loss=mse, diag=MSE)

# 10 --------------------------------------------------------------- poisson
@case("https://github.com/citoverse/cito/issues/58", "poisson: the log link is never assigned, raw outputs are taken for rates", "loss")
def cito_poisson(planted):
    W = torch.randn(8, 2, generator=gen(4)) * .5
    def data(seed): x = T(seed, 64, 8); return x, torch.poisson(torch.exp((torch.tanh(x) @ W)[:, :1] + .5), generator=gen(seed + 1))
    return dict(model=lambda: nn.Sequential(nn.Linear(8, 50), nn.SELU(), nn.Linear(50, 50), nn.SELU(), nn.Linear(50, 1)), data=data,
                loss=(lambda o, t: F.poisson_nll_loss(o, t, log_input=False)) if planted else (lambda o, t: F.poisson_nll_loss(o, t, log_input=True)), diag={})

# 11 --------------------------------------------------------------- LoRA on a DiT, frozen
class LoRALinear(nn.Module):
    def __init__(s, base, r=4, frozen=False, sever=False):
        super().__init__(); s.base = base; s.sever = sever
        for p in base.parameters(): p.requires_grad_(False)
        s.A = nn.Parameter(torch.empty(r, base.in_features)); s.B = nn.Parameter(torch.zeros(base.out_features, r)); nn.init.kaiming_uniform_(s.A, a=5 ** .5)
        if frozen: s.A.requires_grad_(False); s.B.requires_grad_(False)
    def forward(s, x):
        d = 2 * (x @ s.A.T @ s.B.T); return s.base(x) + (d.detach() if s.sever else d)
class DiT(nn.Module):
    def __init__(s, planted, d=32, n=3):
        super().__init__(); s.inp = nn.Linear(8, d); s.t = nn.Sequential(nn.Linear(1, d), nn.SiLU(), nn.Linear(d, d)); s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 * n))
        s.at = nn.ModuleList(Attn(d, 4, False) for _ in range(n)); s.ff = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(n)); s.out = nn.Linear(d, 8)
        for p in s.parameters(): p.requires_grad_(False)
        for a in s.at: a.qkv = LoRALinear(a.qkv, 4, planted); a.o = LoRALinear(a.o, 4, planted)
        for f in s.ff: f[0] = LoRALinear(f[0], 4, planted); f[2] = LoRALinear(f[2], 4, planted)
    def forward(s, x, t):
        h = s.inp(x) + s.t(t)[:, None]
        for i, (a, f) in enumerate(zip(s.at, s.ff)): h = h + a(s.n[2 * i](h)); h = h + f(s.n[2 * i + 1](h))
        return s.out(h)
@case("https://github.com/X-GenGroup/Flow-Factory/pull/56", "LoRA parameters stay frozen: apply_lora skips an existing adapter", "A, B (all)")
def flowfactory_lora(planted):
    Wm = torch.randn(8, 8, generator=gen(9)) / 2
    def data(seed):
        x1 = torch.tanh(T(seed, 24, 10, 8) @ Wm) + 1; e = T(seed + 1, 24, 10, 8); t = torch.rand(24, 1, generator=gen(seed + 2)); return ((1 - t[:, None]) * e + t[:, None] * x1, t), x1 - e
    return dict(model=lambda: DiT(planted), data=data, loss=mse, diag=MSE)

# 12 --------------------------------------------------------------- LoRA severed
@case("https://github.com/paiml/aprender/pull/2232", "LoRALayer.forward rebuilds the scaled branch as a new tensor: graph severed", "A, B")
def aprender_lora(planted):
    def model():
        m = nn.Sequential(LoRALinear(nn.Linear(16, 48), 4, False, planted), nn.ReLU(), LoRALinear(nn.Linear(48, 48), 4, False, planted), nn.ReLU(), LoRALinear(nn.Linear(48, 6), 4, False, planted)); return m
    W = torch.randn(16, 6, generator=gen(6))
    def data(seed): x = T(seed, 48, 16); return x, torch.tanh(x) @ W / 4
    return dict(model=model, data=data, loss=mse, diag=MSE)

# 13 --------------------------------------------------------------- voicebox
class VoiceBox(nn.Module):
    def __init__(s, d=32, n=2):
        super().__init__(); s.to_embed = nn.Linear(8 + 8 + 16, d); s.ph = nn.Embedding(12, 16); s.tm = nn.Sequential(nn.Linear(1, d), nn.SiLU(), nn.Linear(d, d)); s.conv = nn.Conv1d(d, d, 5, padding=2, groups=d)
        s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 * n)); s.at = nn.ModuleList(Attn(d, 4, False) for _ in range(n)); s.ff = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(n)); s.out = nn.Linear(d, 8)
    def forward(s, w, cond, ph, t):
        h = s.to_embed(torch.cat([w, cond, s.ph(ph)], -1)); h = h + F.gelu(s.conv(h.transpose(1, 2))).transpose(1, 2) + s.tm(t)[:, None]
        for i, (a, f) in enumerate(zip(s.at, s.ff)): h = h + a(s.n[2 * i](h)); h = h + f(s.n[2 * i + 1](h))
        return s.out(h)
@case("https://github.com/lucidrains/voicebox-pytorch/issues/6", "flow matching loss zeroes the masked frames instead of the visible ones", "loss")
def voicebox_mask(planted):
    E = torch.randn(12, 8, generator=gen(12))
    def data(seed):
        g = gen(seed); ph = torch.randint(0, 12, (16, 24), generator=g); x1 = E[ph] + .15 * torch.randn(16, 24, 8, generator=g)
        st = torch.randint(0, 8, (16, 1), generator=g); mask = ((torch.arange(24) >= st) & (torch.arange(24) < st + 14)).float()
        e = torch.randn(16, 24, 8, generator=g); t = torch.rand(16, 1, generator=g); w = (1 - t[:, None]) * e + t[:, None] * x1
        return (w, x1 * (1 - mask[..., None]), ph, t), (x1 - e, mask)
    def loss(o, t):
        f, m = t; l = (o - f).square().mean(-1); keep = 1 - m if planted else m
        return ((l * keep).sum(1) / m.sum(1).clamp(min=1e-5)).mean()
    return dict(model=VoiceBox, data=data, loss=loss, diag={})

# 14 --------------------------------------------------------------- DeepLabCut
@case("https://github.com/DeepLabCut/DeepLabCut/issues/2751", "heatmap weights masks are all zero: nothing contributes to the loss", "loss weights")
def dlc_weights(planted):
    def model():
        c = lambda i, o, st=1: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        return nn.Sequential(c(1, 16), c(16, 32, 2), c(32, 32), nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 3, 1))
    pt = torch.randn(3, 5, 5, generator=gen(2)) * 1.5; yy, xx = torch.meshgrid(torch.arange(16.), torch.arange(16.), indexing="ij")
    def data(seed):
        g = gen(seed); B = 16; im = torch.randn(B, 1, 16, 16, generator=g) * .3; hm = torch.zeros(B, 3, 16, 16)
        for b in range(B):
            for k in range(3):
                r, c = (int(v) for v in torch.randint(2, 14, (2,), generator=g)); im[b, 0, r - 2:r + 3, c - 2:c + 3] += pt[k]
                hm[b, k] = torch.exp(-((yy - r) ** 2 + (xx - c) ** 2) / 3)
        w = torch.zeros_like(hm) if planted else torch.ones_like(hm); return im, (hm, w)
    good = lambda o, t: (F.binary_cross_entropy_with_logits(o, t[0], reduction="none")).mean() * 5
    bad = lambda o, t: (F.binary_cross_entropy_with_logits(o, t[0], reduction="none") * t[1]).mean() * 5
    return dict(model=model, data=data, loss=bad if planted else good, diag={})
