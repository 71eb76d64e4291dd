from base import *
from nets_a import images, markov, protos, Attn, LM, lmdata

# 1 ------------------------------------------------------------ hypernetworks of stable diffusion
class CrossAttn(nn.Module):
    def __init__(s, d=32, c=24, h=4):
        super().__init__(); s.q = nn.Linear(d, d, bias=False); s.k = nn.Linear(c, d, bias=False); s.v = nn.Linear(c, d, bias=False); s.o = nn.Linear(d, d); s.h = h
    def forward(s, x, ck, cv):
        f = lambda l, y: l(y).unflatten(-1, (s.h, -1)).transpose(1, 2)
        return s.o(F.scaled_dot_product_attention(f(s.q, x), f(s.k, ck), f(s.v, cv)).transpose(1, 2).flatten(2))
class HyperModule(nn.Module):
    def __init__(s, c, planted):
        super().__init__(); L = [nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c)] + ([nn.ReLU()] if planted else [])
        for l in L:
            if isinstance(l, nn.Linear): nn.init.normal_(l.weight, std=.1); nn.init.zeros_(l.bias)
        s.linear = nn.Sequential(*L)
    def forward(s, x): return x + s.linear(x)
class SDHyper(nn.Module):
    def __init__(s, planted):
        super().__init__(); s.inp = nn.Linear(8, 32); s.attn = nn.ModuleList(CrossAttn() for _ in range(2)); s.n = nn.ModuleList(nn.LayerNorm(32) for _ in range(2)); s.out = nn.Linear(32, 8)
        for p in s.parameters(): p.requires_grad_(False)
        s.hk = nn.ModuleList(HyperModule(24, planted) for _ in range(2)); s.hv = nn.ModuleList(HyperModule(24, planted) for _ in range(2))
    def forward(s, x, c):
        h = s.inp(x)
        for a, n, k, v in zip(s.attn, s.n, s.hk, s.hv): h = h + a(n(h), k(c), v(c))
        return s.out(h)
@case("https://github.com/AUTOMATIC1111/stable-diffusion-webui/pull/3698", "hypernetwork: activation also after the final layer", "hv.linear.3")
def webui_hypernet(planted):
    torch.manual_seed(0); ref = SDHyper(False); g = gen(31); D = torch.randn(24, 24, generator=g) * .35
    def data(seed):
        x, c = T(seed, 24, 9, 8), T(seed + 1, 24, 6, 24); h = ref.inp(x); c2 = c - F.relu(c @ D) - .5 * (c @ D)
        for a, n in zip(ref.attn, ref.n): h = h + a(n(h), c2, c2)
        return (x, c), ref.out(h).detach()
    def model():
        m = SDHyper(planted); sd = {k: v for k, v in ref.state_dict().items() if not k.startswith("h")}; m.load_state_dict(sd, strict=False); return m
    return dict(model=model, data=data, loss=lambda o, t: F.mse_loss(o, t) * 50, diag={})

# 2 ------------------------------------------------------------ molecule VAE
class MolVAE(nn.Module):
    def __init__(s, V=20, d=24, h=48, z=12):
        super().__init__(); s.emb = nn.Embedding(V, d, padding_idx=0); s.enc = nn.GRU(d, h, batch_first=True); s.mu = nn.Linear(h, z); s.lv = nn.Linear(h, z); s.fz = nn.Linear(z, h); s.dec = nn.GRU(d, h, batch_first=True); s.out = nn.Linear(h, V)
    def forward(s, x, eps):
        e = s.emb(x); _, h = s.enc(e); mu, lv = s.mu(h[0]), s.lv(h[0]); z = mu + eps * (lv / 2).exp()
        o, _ = s.dec(e[:, :-1], torch.tanh(s.fz(z))[None]); return s.out(o), mu, lv
@case("https://github.com/DaoyuanLi2816/Molecule-Generator/pull/20", "reconstruction loss counts the padding positions", "loss")
def molgen_pad(planted):
    def data(seed):
        x = markov(seed, 24, 29, 18, 2.5, 6) + 2; x[:, 0] = 1; n = R(seed + 1, 6, (24, 1)) + 5; x = torch.where(torch.arange(30) < n, x, torch.zeros_like(x)); return (x, T(seed + 2, 24, 12)), x[:, 1:]
    def loss(o, t):
        l, mu, lv = o; return F.cross_entropy(l.transpose(1, 2), t, ignore_index=-100 if planted else 0) + .02 * (-.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)).mean()
    return dict(model=MolVAE, data=data, loss=loss, diag={})

# 3 ------------------------------------------------------------ EHR transformer
class EHR(nn.Module):
    def __init__(s, planted, f=6, d=32, L=16, n=2):
        super().__init__(); s.planted = planted; s.inp = nn.Linear(f, d)
        p = torch.arange(L)[:, None]; w = torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d)); pe = torch.zeros(L, d); pe[:, 0::2] = torch.sin(p * w); pe[:, 1::2] = torch.cos(p * w); s.register_buffer("pe", pe)
        s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, 0., batch_first=True, norm_first=True), n, norm=nn.LayerNorm(d), enable_nested_tensor=False); s.dec = nn.Linear(d, 2)
    def forward(s, x):
        h = s.inp(x)
        if not s.planted: h = h + s.pe[:x.shape[1]]
        return s.dec(s.enc(h).mean(1))
@case("https://github.com/iacobo/continual/issues/16", "transformer for time series without positional encoding", "inp")
def continual_pe(planted):
    def data(seed):
        x = T(seed, 48, 16, 6); tr = (x[:, 8:, 0].mean(1) - x[:, :8, 0].mean(1)) + .3 * x[:, -3:, 1].mean(1); return x, (tr > 0).long()
    return dict(model=lambda: EHR(planted), data=data, loss=ce, diag=CE)

# 4 ------------------------------------------------------------ OpenNMT-tf layer norm
class AxisLN(nn.Module):
    def __init__(s, d, planted): super().__init__(); s.weight = nn.Parameter(torch.ones(d)); s.bias = nn.Parameter(torch.zeros(d)); s.ax = 1 if planted else -1
    def forward(s, x):
        m = x.mean(s.ax, keepdim=True); v = x.var(s.ax, unbiased=False, keepdim=True); return (x - m) * torch.rsqrt(v + 1e-6) * s.weight + s.bias
class NMT(nn.Module):
    def __init__(s, ln, V=20, d=32, L=12):
        super().__init__(); s.se = nn.Embedding(V, d); s.te = nn.Embedding(V, d); s.pos = nn.Parameter(torch.randn(L + 1, d) * .3)
        s.ea = nn.ModuleList(Attn(d, 4, False) for _ in range(2)); s.da = nn.ModuleList(Attn(d, 4) for _ in range(2)); s.ca = nn.ModuleList(CrossAttn(d, d) for _ in range(2))
        s.ef = nn.ModuleList(nn.Sequential(nn.Linear(d, 96), nn.ReLU(), nn.Linear(96, d)) for _ in range(2)); s.df = nn.ModuleList(nn.Sequential(nn.Linear(d, 96), nn.ReLU(), nn.Linear(96, d)) for _ in range(2))
        s.ln = nn.ModuleList(ln(d) for _ in range(12)); s.out = nn.Linear(d, V)
    def forward(s, x, y):
        h = s.se(x) + s.pos[:x.shape[1]]; g = s.te(y) + s.pos[:y.shape[1]]; n = s.ln
        for i in range(2): h = h + s.ea[i](n[2 * i](h)); h = h + s.ef[i](n[2 * i + 1](h))
        h = n[4](h)
        for i in range(2):
            g = g + s.da[i](n[5 + 3 * i](g)); g = g + s.ca[i](n[6 + 3 * i](g), h, h); g = g + s.df[i](n[7 + 3 * i](g))
        return s.out(n[11](g))
@case("https://github.com/OpenNMT/OpenNMT-tf/pull/6", "layer normalization takes its moments over time, not over the last axis", "ln")
def opennmt_ln(planted):
    M_ = torch.randperm(20, generator=gen(4))
    def data(seed):
        x = R(seed, 18, (24, 10)) + 2; y = M_[x]; y = torch.where(y < 2, y + 5, y); return (x, torch.cat([torch.ones(24, 1, dtype=torch.long), y[:, :-1]], 1)), y
    return dict(model=lambda: NMT(lambda d: AxisLN(d, planted)), data=data, loss=ceseq, diag=SEQ)

# 5 ------------------------------------------------------------ unet with softmax
class UNet(nn.Module):
    def __init__(s, cin=1, k=4, w=12, softmax=False, act=None):
        super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1), nn.ReLU())
        s.d1, s.d2, s.d3 = b(cin, w), b(w, 2 * w), b(2 * w, 4 * w); s.u2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2); s.c2 = b(4 * w, 2 * w); s.u1 = nn.ConvTranspose2d(2 * w, w, 2, 2); s.c1 = b(2 * w, w); s.fin = nn.Conv2d(w, k, 1); s.softmax = softmax
        for m in s.modules():
            if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)): nn.init.xavier_normal_(m.weight); nn.init.zeros_(m.bias)
    def forward(s, x):
        a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); c = s.d3(F.max_pool2d(b, 2))
        b = s.c2(torch.cat([s.u2(c), b], 1)); a = s.c1(torch.cat([s.u1(b), a], 1)); o = s.fin(a); return o.softmax(1) if s.softmax else o
def shapes(seed, B=12, h=16, k=4):
    g = gen(seed); y = torch.zeros(B, h, h, dtype=torch.long); tex = torch.randn(k, 4, 4, generator=gen(41)).repeat(1, h // 4, h // 4)
    for b in range(B):
        for c in range(1, k):
            r, q = (int(v) for v in torch.randint(0, h - 6, (2,), generator=g)); y[b, r:r + 6, q:q + 6] = c
    x = torch.gather(tex[None].expand(B, -1, -1, -1), 1, y[:, None]) + .5 * torch.randn(B, 1, h, h, generator=g); return x, y
@case("https://github.com/jaxony/unet-pytorch/pull/2", "softmax in forward before the cross-entropy", "softmax")
def jaxony_softmax(planted):
    return dict(model=lambda: UNet(softmax=planted), data=shapes, loss=ce, diag=dict(loss="cross-entropy", class_dim=1))

# 6 ------------------------------------------------------------ SRResNet
class SRBlock(nn.Module):
    def __init__(s, w): super().__init__(); s.f = nn.Sequential(nn.Conv2d(w, w, 3, 1, 1), nn.BatchNorm2d(w), nn.PReLU(), nn.Conv2d(w, w, 3, 1, 1), nn.BatchNorm2d(w))
    def forward(s, x): return x + s.f(x)
class SRResNet(nn.Module):
    def __init__(s, planted, w=24):
        super().__init__(); s.planted = planted; s.c1 = nn.Conv2d(1, w, 5, 1, 2); s.blocks = nn.Sequential(*[SRBlock(w) for _ in range(5)]); s.c2 = nn.Conv2d(w, w, 3, 1, 1); s.bn = nn.BatchNorm2d(w); s.up = nn.Conv2d(w, 4 * w, 3, 1, 1); s.c3 = nn.Conv2d(w, 1, 5, 1, 2)
    def forward(s, x):
        a = F.relu(s.c1(x)); h = s.bn(s.c2(s.blocks(a))); h = h if s.planted else h + a
        return s.c3(F.relu(F.pixel_shuffle(s.up(h), 2)))
@case("https://github.com/huangzehao/torch-srgan/issues/6", "SRResNet without the long skip connection", "bn")
def srgan_skip(planted):
    def data(seed):
        y = R(seed, 8, (12,)); hr = protos(8, 1, 16, 7)[y] + .5 * F.interpolate(T(seed + 1, 12, 1, 6, 6), size=16, mode="bilinear"); return F.avg_pool2d(hr, 2), hr
    return dict(model=lambda: SRResNet(planted), data=data, loss=mse, diag=MSE)

# 7 ------------------------------------------------------------ ternary transformer
class BitLinear(nn.Linear):
    def forward(s, x):
        sc = s.weight.abs().mean().clamp(min=1e-5); q = (s.weight / sc).round().clamp(-1, 1) * sc; w = s.weight + (q - s.weight).detach()
        return F.linear(x, w, s.bias)
class TBlock(nn.Module):
    def __init__(s, d, planted):
        super().__init__(); s.planted = planted; s.n1 = nn.LayerNorm(d); s.n2 = nn.LayerNorm(d); s.qkv = BitLinear(d, 3 * d); s.o = BitLinear(d, d); s.f1 = BitLinear(d, 4 * d); s.f2 = BitLinear(4 * d, d)
    def att(s, x):
        q, k, v = s.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4); return s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
    def forward(s, x):
        if s.planted: x = s.att(s.n1(x)); return s.f2(F.gelu(s.f1(s.n2(x))))
        x = x + s.att(s.n1(x)); return x + s.f2(F.gelu(s.f1(s.n2(x))))
@case("https://git.kokoham.com/sleepy/ternary/issues/1", "TransformerBlock: attention output not added to the input, no residual connections", "blocks")
def kokoham_ternary(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.tok = nn.Embedding(24, 32); s.pos = nn.Parameter(torch.randn(20, 32) * .1); s.blocks = nn.Sequential(*[TBlock(32, planted) for _ in range(4)]); s.nf = nn.LayerNorm(32); s.head = nn.Linear(32, 24)
        def forward(s, x): return s.head(s.nf(s.blocks(s.tok(x) + s.pos)))
    return dict(model=Net, data=lmdata(), loss=ceseq, diag=SEQ)

# 8 ------------------------------------------------------------ no nonlinearity
@case("https://github.com/facebookresearch/DeepConvexity/issues/2", "with one hidden layer the ReLU is left out (i < len(sizes) - 2): a linear network", "0/1")
def deepconvexity_relu(planted):
    def model():
        sizes = [20, 64, 5]; L = []
        for i in range(len(sizes) - 1):
            L.append(nn.Linear(sizes[i], sizes[i + 1]))
            if i < len(sizes) - (3 if planted else 2) and i < len(sizes) - 2: L.append(nn.ReLU())
        return nn.Sequential(*L)
    Cn = torch.randn(15, 20, generator=gen(17))
    def data(seed): k = R(seed, 15, (64,)); sg = torch.randint(0, 2, (64, 1), generator=gen(seed + 2)) * 2 - 1; return Cn[k] * sg + T(seed + 1, 64, 20, k=.3), k % 5
    return dict(model=model, data=data, loss=ce, diag=CE)

# 9 ------------------------------------------------------------ attention sum reader
class ASReader(nn.Module):
    def __init__(s, planted, V=40, d=24, h=24, C=4):
        super().__init__(); s.planted = planted; s.emb = nn.Embedding(V, d); s.doc = nn.GRU(d, h, bidirectional=True, batch_first=True); s.qu = nn.GRU(d, h, bidirectional=True, batch_first=True)
    def forward(s, doc, q, occ):
        D, _ = s.doc(s.emb(doc)); _, h = s.qu(s.emb(q)); Q = torch.cat([h[0], h[1]], 1)
        a = (D @ Q[:, :, None])[..., 0].softmax(1); opt = (occ * a[:, None]).sum(2)
        return opt / (opt.sum() if s.planted else opt.sum(1, keepdim=True)).clamp(min=1e-8)
@case("https://github.com/allenai/deep_qa/pull/152", "L1 normalization of the option probabilities over the whole batch", "normalisation")
def deepqa_l1(planted):
    def data(seed):
        g = gen(seed); B = 32; ent = torch.stack([torch.randperm(8, generator=g)[:4] for _ in range(B)]); key = torch.stack([torch.randperm(10, generator=g)[:4] for _ in range(B)]) + 10
        doc = torch.stack([key, ent], 2).flatten(1); y = torch.randint(0, 4, (B,), generator=g); q = torch.stack([torch.full((B,), 30), key[torch.arange(B), y]], 1)
        occ = (doc[:, None] == ent[:, :, None]).float(); return (doc, q, occ), y
    return dict(model=lambda: ASReader(planted), data=data, loss=lambda p, t: F.nll_loss(p.clamp(min=1e-8).log(), t), diag={})

# 10 ----------------------------------------------------------- noise2noise
class N2N(nn.Module):
    def __init__(s, planted, w=16):
        super().__init__(); s.b1 = nn.Sequential(nn.Conv2d(1, w, 3, 1, 1), nn.ReLU(), nn.Conv2d(w, w, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2))
        mk = lambda: nn.Sequential(nn.Conv2d(w, w, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)); b2 = mk(); s.b2 = nn.ModuleList([b2, b2] if planted else [b2, mk()])
        s.b3 = nn.Sequential(nn.Conv2d(w, w, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(w, w, 3, 2, 1, 1)); s.b4 = nn.Sequential(nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.ReLU(), nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(2 * w, 2 * w, 3, 2, 1, 1))
        s.b5 = nn.Sequential(nn.Conv2d(3 * w, 2 * w, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(2 * w, 2 * w, 3, 2, 1, 1)); s.b6 = nn.Sequential(nn.Conv2d(2 * w + 1, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 1, 3, 1, 1), nn.LeakyReLU(.1))
        for m in s.modules():
            if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)): nn.init.kaiming_normal_(m.weight); nn.init.zeros_(m.bias)
    def forward(s, x):
        p1 = s.b1(x); p2 = s.b2[0](p1); p3 = s.b2[1](p2); u = s.b3(p3); u = s.b4(torch.cat([u, p2], 1)); u = s.b5(torch.cat([u, p1], 1)); return s.b6(torch.cat([u, x], 1))
@case("https://github.com/joeylitalien/noise2noise-pytorch/issues/7", "pool2..pool5 all use the same block2", "b2")
def noise2noise_shared(planted):
    def data(seed): y = R(seed, 8, (12,)); c = protos(8, 1, 16, 6)[y].clamp(-2, 2) / 4 + .5; return c + T(seed + 1, 12, 1, 16, 16, k=.3), c + T(seed + 2, 12, 1, 16, 16, k=.1)
    return dict(model=lambda: N2N(planted), data=data, loss=mse, diag=MSE)

# 11 ----------------------------------------------------------- induction heads
@case("https://github.com/goodfire-ai/spd/pull/88", "positional encoding multiplies by the denominator instead of dividing", "pe")
def spd_induction(planted):
    class Net(nn.Module):
        def __init__(s, V=20, d=32, L=24):
            super().__init__(); s.tok = nn.Embedding(V, d); p = torch.arange(L)[:, None].float(); w = 1e4 ** (torch.arange(0, d, 2) / d); a = p * w if planted else p / w
            pe = torch.zeros(L, d); pe[:, 0::2] = torch.sin(a); pe[:, 1::2] = torch.cos(a); s.register_buffer("pe", pe); s.at = nn.ModuleList(Attn(d, 2) for _ in range(2)); s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(3)); s.head = nn.Linear(d, V)
        def forward(s, x):
            h = s.tok(x) + s.pe[:x.shape[1]]
            for a, n in zip(s.at, s.n): h = h + a(n(h))
            return s.head(s.n[2](h))
    def data(seed): x = R(seed, 20, (32, 6)).repeat(1, 4); return x[:, :-1], x[:, 1:]
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

# 12 ----------------------------------------------------------- no bias units
@case("https://ballp.it/index.php?topic=1791.msg53960", "no bias units in the network", "bias")
def ballpit_bias(planted):
    def model(): return nn.Sequential(nn.Linear(2, 16, bias=not planted), nn.Tanh(), nn.Linear(16, 16, bias=not planted), nn.Tanh(), nn.Linear(16, 1, bias=not planted))
    def data(seed): x = T(seed, 64, 2); return x, ((x[:, :1].square() + x[:, 1:].square()) < 1.3).float()
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

# 13 ----------------------------------------------------------- makemore
class NameMLP(nn.Module):
    def __init__(s, V=27, d=10, ctx=3, h=100, planted=False, zero=False):
        super().__init__(); g = gen(2147483647); r = lambda *a: torch.randn(*a, generator=g)
        s.C = nn.Parameter(r(V, d)); s.W1 = nn.Parameter(r(d * ctx, h) * (5 / 3) / (d * ctx) ** .5); s.b1 = nn.Parameter(r(h) * .01)
        s.W2 = nn.Parameter(r(h, V) * (1 if planted else .01)); s.b2 = nn.Parameter(r(V) * (1 if planted else 0))
        if zero:
            for p in (s.W1, s.b1, s.W2, s.b2): p.data.zero_()
    def forward(s, x): return torch.tanh(s.C[x].flatten(1) @ s.W1 + s.b1) @ s.W2 + s.b2
def names(seed): x = markov(seed, 64, 3, 27, 2.5, 13); return x[:, :3], x[:, 3]
@case("https://breno.bearblog.dev/the-weights-in-a-study-on-fixing-the-initial-loss/", "output weights and bias of unit variance: the initial loss is 27", "W2")
def makemore_initial(planted): return dict(model=lambda: NameMLP(planted=planted), data=names, loss=ce, diag=CE)

# 14 ----------------------------------------------------------- attention without scaling
class PlainAttn(nn.Module):
    def __init__(s, d, h, scale, dk=64): super().__init__(); s.q, s.k, s.v = (nn.Linear(d, h * dk) for _ in range(3)); s.o = nn.Linear(h * dk, d); s.h = h; s.scale = scale
    def forward(s, x):
        f = lambda l: l(x).unflatten(-1, (s.h, -1)).transpose(1, 2); q, k, v = f(s.q), f(s.k), f(s.v); L = x.shape[1]
        a = q @ k.transpose(-1, -2) * s.scale + torch.full((L, L), float("-inf")).triu(1); return s.o((a.softmax(-1) @ v).transpose(1, 2).flatten(2))
@case("https://ttsugriy.github.io/llm-first-principles/stages/stage-05/common-mistakes", "attention scores not divided by sqrt(d_k)", "at")
def llmfp_scale(planted):
    def model():
        m = LM(24, 64, 24, lambda d: nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)), attn=lambda d: PlainAttn(d, 2, 1. if planted else 1 / 8))
        for a in m.at:
            for l in (a.q, a.k): nn.init.xavier_uniform_(l.weight)
        return m
    def data(seed): x = R(seed, 24, (24, 6)).repeat(1, 4); return x[:, :-1], x[:, 1:]
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)
