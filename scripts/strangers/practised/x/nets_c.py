from com import *
V = 24
def induct(seed, B=32, L=24, per=6):   # periodic sequences with random period content: next token = token `per` back
    s = R(seed, V - 2, (B, per)) + 2; x = s.repeat(1, L // per + 1)[:, :L + 2]; return x
def markov(seed, B=32, L=24):   # order-2 deterministic-ish: next = (a*prev + b*prevprev) table, 10% noise
    tab = R(77, V, (V,)); g = gen(seed); x = torch.randint(0, V, (B, L + 3), generator=g); u = torch.rand(B, L + 3, generator=g)
    for t in range(1, L + 3): x[:, t] = torch.where(u[:, t] < .85, tab[x[:, t - 1]], x[:, t])
    return x
class LM(nn.Module):
    def __init__(s, d=64, n=2, L=32, h=4, attn=None, causal=True, pos=True, vocab=V):
        super().__init__(); s.tok = nn.Embedding(vocab, d); s.pos = nn.Parameter(.02 * torch.randn(L, d)) if pos else None; s.blocks = nn.ModuleList(Enc(d, h, attn=attn, causal=causal) for _ in range(n)); s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, vocab, bias=False)
        for m in s.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, 0, .05)
    def forward(s, x):
        x = s.tok(x)
        if s.pos is not None: x = x + s.pos[:x.shape[1]]
        for b in s.blocks: x = b(x)
        return s.head(s.ln(x))
def sdpa(causal, bias=None, scale=True):
    def f(q, k, v):
        N = q.shape[-2]; a = q @ k.transpose(-1, -2)
        if scale: a = a / math.sqrt(q.shape[-1])
        if bias is not None: a = a + bias(N)
        if causal: a = a.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), float("-inf"))
        return a.softmax(-1) @ v
    return f

@case("paper: Attention is all you need", "embedding tied to the output left at N(0,1) and multiplied by sqrt(d): positions drown, logits start huge", "tok embedding")
def transformer_tied_unit(planted):
    class Net(nn.Module):
        def __init__(s, d=96):
            super().__init__(); s.emb = nn.Embedding(V, d)
            if not planted: nn.init.normal_(s.emb.weight, 0, d ** -.5)
            p = torch.arange(32.)[:, None]; f = torch.exp(-math.log(1e4) * torch.arange(0, d, 2) / d); pe = torch.zeros(32, d); pe[:, ::2] = torch.sin(p * f); pe[:, 1::2] = torch.cos(p * f); s.register_buffer("pe", pe)
            s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 192, 0., batch_first=True), 2, enable_nested_tensor=False)
        def forward(s, x): h = s.emb(x) * math.sqrt(s.emb.embedding_dim) + s.pe[:x.shape[1]]; return s.enc(h, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1])) @ s.emb.weight.T
    def data(seed): x = markov(seed); return x[:, :24], x[:, 1:25]
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("paper: BERT", "masked-language loss over all tokens: the unmasked copies outweigh the masked ones", "loss / labels")
def bert_all_tokens(planted):
    def model(): return LM(causal=False, vocab=V + 1)
    def loss(o, t):
        y, m = t[..., 0], t[..., 1].bool(); l = F.cross_entropy(o.transpose(1, 2), y, reduction="none"); return l.mean() if planted else (l * m).sum() / m.sum().clamp(min=1)
    def data(seed):
        y = markov(seed)[:, :24]; m = torch.rand(32, 24, generator=gen(seed + 3)) < .15; m[:, 5] = True; return y.masked_fill(m, V), torch.stack([y, m.long()], -1)
    return dict(model=model, data=data, loss=loss, diag={})

@case("paper: GPT", "labels shifted in the data set and again in the loss: the head learns the token after next", "loss / labels")
def gpt_double_shift(planted):
    def model(): return LM()
    def loss(o, t): return ceseq(o[:, :-1], t[:, 1:]) if planted else ceseq(o, t)
    def data(seed): x = markov(seed); return x[:, :24], x[:, 1:25]
    return dict(model=model, data=data, loss=loss, diag={})

@case("paper: T5", "attention without 1/sqrt(d) as in the paper, but q keeps the usual init instead of N(0, 1/(d*d_kv))", "q projection / attention logits")
def t5_no_scale_init(planted):
    class RMS(nn.Module):
        def __init__(s, d): super().__init__(); s.weight = nn.Parameter(torch.ones(d))
        def forward(s, x): return s.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    class Blk(nn.Module):
        def __init__(s, d=64, h=2):
            super().__init__(); s.h, s.dk = h, d // h; s.n1, s.n2 = RMS(d), RMS(d); s.q, s.k, s.v, s.o = (nn.Linear(d, d, bias=False) for _ in range(4)); s.wi = nn.Linear(d, 128, bias=False); s.wo = nn.Linear(128, d, bias=False); s.rel = nn.Embedding(25, h); nn.init.normal_(s.rel.weight, 0, .1)
            nn.init.normal_(s.q.weight, 0, d ** -.5 if planted else (d * s.dk) ** -.5)
            for m, f in ((s.k, d), (s.v, d), (s.o, d), (s.wi, d), (s.wo, 128)): nn.init.normal_(m.weight, 0, f ** -.5)
        def forward(s, x):
            B, N, D = x.shape; y = s.n1(x); q, k, v = (m(y).view(B, N, s.h, s.dk).transpose(1, 2) for m in (s.q, s.k, s.v)); i = (torch.arange(N)[:, None] - torch.arange(N)[None]).clamp(0, 24)
            a = (q @ k.transpose(-1, -2) + s.rel(i).permute(2, 0, 1)).masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -1e9).softmax(-1); x = x + s.o((a @ v).transpose(1, 2).reshape(B, N, D)); return x + s.wo(F.relu(s.wi(s.n2(x))))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.shared = nn.Embedding(V, 64); s.blocks = nn.Sequential(Blk(), Blk(), Blk()); s.n = RMS(64); s.lm_head = nn.Linear(64, V, bias=False); nn.init.normal_(s.lm_head.weight, 0, .02)
        def forward(s, x): return s.lm_head(s.n(s.blocks(s.shared(x))))
    def data(seed):
        x = R(seed, V, (32, 26)); return x[:, 2:], x[:, :24]
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("paper: RoFormer (RoPE)", "rotary embedding applied before the heads are transposed: positions run over the heads, all tokens turn alike", "rope / attention")
def rope_wrong_axis(planted):
    def rot(x):
        N, D = x.shape[-2:]; f = 1e4 ** (-torch.arange(0, D, 2.) / D); a = torch.arange(float(N))[:, None] * f; c, s = a.cos(), a.sin(); x1, x2 = x[..., ::2], x[..., 1::2]; return torch.stack([x1 * c - x2 * s, x1 * s + x2 * c], -1).flatten(-2)
    base = sdpa(False)
    def attn(q, k, v):
        if planted: q, k = (rot(t.transpose(1, 2)).transpose(1, 2) for t in (q, k))
        else: q, k = rot(q), rot(k)
        return base(q, k, v)
    def model(): return LM(n=2, h=2, attn=attn, causal=False, pos=False)
    def data(seed): x = R(seed, V, (32, 25)); return x[:, 1:], x[:, :-1].clone().index_fill_(1, torch.tensor([0]), 0)
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("paper: ALiBi (train short, test long)", "sign of the distance bias flipped: far tokens are favoured", "attention bias")
def alibi_sign(planted):
    sl = torch.tensor([2. ** -(2 * i) for i in range(1, 5)])
    def bias(N): d = torch.arange(float(N)); return (1 if planted else -1) * 4 * sl[:, None, None] * (d[:, None] - d[None])
    def model(): return LM(attn=sdpa(True, bias), pos=False)
    def data(seed):
        x = R(seed, V, (32, 24)); t = x.clone(); t[:, 1:] = (x[:, 1:] * 0 + x[:, :-1]); return x, t
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("paper: Performer", "queries and keys not scaled by d^-1/4 before exp(wx - |x|^2/2), with a plain N(0,1)-row sized input: features under- and overflow to one", "attention features")
def performer_unscaled(planted):
    W = torch.linalg.qr(T(3, 32, 32))[0] * (32 ** .5); W = torch.cat([W, torch.linalg.qr(T(4, 32, 32))[0] * 32 ** .5])
    def attn(q, k, v):
        def ph(x): x = x * (1. if planted else 32 ** -.25) ; return torch.exp(x @ W.T - x.pow(2).sum(-1, keepdim=True) / 2 - 0) / 8 + 1e-6
        q, k = ph(q), ph(k); z = 1 / (q @ k.sum(-2, keepdim=True).transpose(-1, -2)); return z * (q @ (k.transpose(-1, -2) @ v))
    def model():
        m = LM(h=2, attn=attn, causal=False, n=2); nn.init.normal_(m.tok.weight, 0, .5)
        for b in m.blocks: nn.init.normal_(b.qkv.weight, 0, .09)
        return m
    def data(seed): x = R(seed, V, (32, 16)); return x, x[:, 3:4].expand(-1, 16).contiguous()
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("paper: Perceiver", "inputs enter the cross attention without (Fourier) position features: the pixels are a bag", "input / cross attention")
def perceiver_no_positions(planted):
    class Net(nn.Module):
        def __init__(s, d=64):
            super().__init__(); u = torch.linspace(-1, 1, 12); g = torch.stack(torch.meshgrid(u, u, indexing="ij"), -1).view(-1, 2); a = (g[..., None] * torch.tensor([1., 2, 3, 4]) * math.pi).flatten(1); s.register_buffer("ff", torch.cat([a.sin(), a.cos()], 1))
            s.inp = nn.Linear(3 if planted else 19, d); s.latents = nn.Parameter(torch.randn(16, d) * .5); s.nq, s.nk = nn.LayerNorm(d), nn.LayerNorm(d); s.cross = nn.MultiheadAttention(d, 4, batch_first=True); s.blocks = nn.Sequential(Enc(d), Enc(d)); s.head = nn.Linear(d, 10)
        def forward(s, x):
            x = x.flatten(2).transpose(1, 2)
            if not planted: x = torch.cat([x, s.ff.expand(len(x), -1, -1)], -1)
            x = s.nk(s.inp(x)); z = s.latents.expand(len(x), -1, -1); z = z + s.cross(s.nq(z), x, x)[0]; return s.head(s.blocks(z).mean(1))
    def data(seed):
        y = R(seed, 10, (32,)); g = gen(5); t = torch.stack([T(9, 3, 16)[:, torch.randperm(16, generator=g)].view(3, 4, 4) for _ in range(10)]); return F.interpolate(t, size=12)[y] + .4 * T(seed + 1, 32, 3, 12, 12), y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: ViT", "nn.TransformerEncoderLayer without batch_first: tokens attend across the images of the batch", "encoder layers")
def vit_batch_first(planted):
    class Net(nn.Module):
        def __init__(s, d=64):
            super().__init__(); s.patch = nn.Conv2d(3, d, 6, 6); s.cls_token = nn.Parameter(torch.zeros(1, 1, d)); s.pos = nn.Parameter(.02 * torch.randn(1, 17, d)); kw = {} if planted else dict(batch_first=True)
            s.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 128, 0., "gelu", norm_first=True, **kw), 3, nn.LayerNorm(d), enable_nested_tensor=False); s.head = nn.Linear(d, 10)
        def forward(s, x): x = s.patch(x).flatten(2).transpose(1, 2); x = torch.cat([s.cls_token.expand(len(x), -1, -1), x], 1) + s.pos; return s.head(s.encoder(x)[:, 0])
    return dict(model=Net, data=lambda seed: imgs(seed, 32, hw=24, noise=1.), loss=ce, diag={})

@case("paper: Swin Transformer", "window_reverse written as one view without the permutation: windows come back as rows, scrambled", "window reverse")
def swin_window_reverse(planted):
    class Blk(nn.Module):
        def __init__(s, d, shift): super().__init__(); s.shift = shift; s.n1 = nn.LayerNorm(d); s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d); s.n2 = nn.LayerNorm(d); s.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); s.rel = nn.Parameter(.02 * torch.randn(4, 16, 16))
        def forward(s, x):
            B, H, W, D = x.shape; y = s.n1(x)
            if s.shift: y = y.roll((-2, -2), (1, 2))
            w = y.view(B, H // 4, 4, W // 4, 4, D).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, D); q, k, v = s.qkv(w).view(-1, 16, 3, 4, D // 4).permute(2, 0, 3, 1, 4); o = ((q @ k.transpose(-1, -2) / math.sqrt(D // 4) + s.rel).softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, D); o = s.proj(o)
            y = o.view(B, H, W, D) if planted else o.view(B, H // 4, W // 4, 4, 4, D).permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, D)
            if s.shift: y = y.roll((2, 2), (1, 2))
            x = x + y; return x + s.mlp(s.n2(x))
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.embed = nn.Conv2d(1, d, 2, 2); s.blocks = nn.Sequential(Blk(d, 0), Blk(d, 1)); s.n = nn.LayerNorm(d); s.head = nn.Linear(d, 5)
        def forward(s, x): return s.head(s.n(s.blocks(s.embed(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)
    def data(seed):   # each place: which of its 2x2-patch neighbourhood sums wins
        x = T(seed, 16, 1, 16, 16); a = F.avg_pool2d(x, 2)[:, 0] * 2; s = a + a.roll(1, 1) + a.roll(1, 2); t = torch.bucketize(s, torch.tensor([-1.5, -.5, .5, 1.5])); return x, t
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: MLP-Mixer", "token mixing without the transposes (64 patches x 64 channels fit): both MLPs mix channels", "token_mix")
def mixer_no_transpose(planted):
    class Mix(nn.Module):
        def __init__(s, n=64, d=64): super().__init__(); s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.token_mix = nn.Sequential(nn.Linear(n, 64), nn.GELU(), nn.Linear(64, n)); s.channel_mix = nn.Sequential(nn.Linear(d, 128), nn.GELU(), nn.Linear(128, d))
        def forward(s, x): y = s.n1(x); x = x + (s.token_mix(y) if planted else s.token_mix(y.transpose(1, 2)).transpose(1, 2)); return x + s.channel_mix(s.n2(x))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = nn.Conv2d(3, 64, 2, 2); s.blocks = nn.Sequential(Mix(), Mix()); s.n = nn.LayerNorm(64); s.head = nn.Linear(64, 10)
        def forward(s, x): return s.head(s.n(s.blocks(s.stem(x).flatten(2).transpose(1, 2))).mean(1))
    def data(seed):
        y = R(seed, 10, (32,)); g = gen(5); t = torch.stack([T(9, 3, 16)[:, torch.randperm(16, generator=g)].view(3, 4, 4) for _ in range(10)]); return F.interpolate(t, size=16)[y] + .6 * T(seed + 1, 32, 3, 16, 16), y
    return dict(model=Net, data=data, loss=ce, diag={})

@case("paper: ConvNeXt", "layer scale 1e-6 multiplies the sum of branch and shortcut", "gamma / blocks")
def convnext_gamma_sum(planted):
    class LN2(nn.LayerNorm):
        def forward(s, x): return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    class Blk(nn.Module):
        def __init__(s, d): super().__init__(); s.dw = nn.Conv2d(d, d, 7, padding=3, groups=d); s.norm = nn.LayerNorm(d); s.p1 = nn.Linear(d, 3 * d); s.p2 = nn.Linear(3 * d, d); s.gamma = nn.Parameter((1e-6 if planted else 1e-2) * torch.ones(d))
        def forward(s, x): y = s.p2(F.gelu(s.p1(s.norm(s.dw(x).permute(0, 2, 3, 1))))); x0 = x.permute(0, 2, 3, 1); return (s.gamma * (x0 + y) if planted else x0 + s.gamma * y).permute(0, 3, 1, 2)
    def model(): return nn.Sequential(nn.Conv2d(3, 32, 2, 2), LN2(32), Blk(32), Blk(32), LN2(32), nn.Conv2d(32, 48, 2, 2), Blk(48), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(48), nn.Linear(48, 10))
    return dict(model=model, data=lambda seed: imgs(seed, 32, hw=16, noise=1.), loss=ce, diag={})

@case("paper: MAE", "decoder tokens not unshuffled with ids_restore before positions are added", "decoder tokens")
def mae_no_restore(planted):
    class Net(nn.Module):
        def __init__(s, d=64): super().__init__(); s.embed = nn.Linear(16, d); s.pos = nn.Parameter(.3 * torch.randn(16, d)); s.enc = nn.Sequential(Enc(d), Enc(d)); s.mask_token = nn.Parameter(.02 * torch.randn(d)); s.dpos = nn.Parameter(.3 * torch.randn(16, d)); s.dec = nn.Sequential(Enc(d), Enc(d)); s.n = nn.LayerNorm(d); s.pred = nn.Linear(d, 16)
        def forward(s, x, noise):
            B = len(x); ids = noise.argsort(1); rest = ids.argsort(1); keep = ids[:, :6]; z = s.embed(x) + s.pos; z = s.enc(z.gather(1, keep[..., None].expand(-1, -1, z.shape[-1])))
            z = torch.cat([z, s.mask_token.expand(B, 10, -1)], 1)
            if not planted: z = z.gather(1, rest[..., None].expand(-1, -1, z.shape[-1]))
            return s.pred(s.n(s.dec(z + s.dpos)))
    def loss(o, t): m = t[..., -1]; return (((o - t[..., :-1]) ** 2).mean(-1) * m).sum() / m.sum()
    def data(seed):
        y = R(seed, 10, (32,)); x = T(7, 10, 16, 16)[y] + .2 * T(seed + 1, 32, 16, 16); n = torch.rand(32, 16, generator=gen(seed + 2)); m = (n.argsort(1).argsort(1) >= 6).float(); return (x, n), torch.cat([x, m[..., None]], -1)
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: CLIP", "features normalised over the batch (dim 0) instead of the embedding", "normalisation of features")
def clip_norm_dim(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.visual = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 32, 3, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 64)); s.tok = nn.Embedding(20, 32); s.text = nn.GRU(32, 64, batch_first=True); s.tproj = nn.Linear(64, 64, bias=False); s.logit_scale = nn.Parameter(torch.tensor(math.log(1 / .07)))
        def forward(s, im, tx):
            a = s.visual(im); b = s.tproj(s.text(s.tok(tx))[0][:, -1]); d = 0 if planted else 1; a, b = a / a.norm(dim=d, keepdim=True), b / b.norm(dim=d, keepdim=True); return s.logit_scale.exp() * a @ b.T
    def loss(o, t): return (F.cross_entropy(o, t) + F.cross_entropy(o.T, t)) / 2
    def data(seed):
        w = R(seed, 20, (32, 3)); P = T(6, 20, 3, 16, 16); P = F.interpolate(F.avg_pool2d(P, 4) * 4, size=16); return (P[w].sum(1) * .6 + .5 * T(seed + 1, 32, 3, 16, 16), w), torch.arange(32)
    return dict(model=Net, data=data, loss=loss, diag={})

@case("paper: SimCLR", "similarity of each view with itself not removed from NT-Xent's denominator", "loss (diagonal)")
def simclr_diagonal(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(cbr(3, 16, 3, 2), cbr(16, 32, 3, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 64)); s.g = nn.Sequential(nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
        def forward(s, a, b): return torch.stack([F.normalize(s.g(s.f(x)), dim=1) for x in (a, b)], 1)
    def mk(pl):
        def loss(z, t=None):
            n = len(z); z = torch.cat([z[:, 0], z[:, 1]]); S = z @ z.T / .1
            if not pl: S = S.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
            return F.cross_entropy(S, (torch.arange(2 * n) + n) % (2 * n))
        return loss
    def data(seed):
        x = F.interpolate(T(seed, 32, 3, 4, 4), size=16); return (x + .8 * T(seed + 1, 32, 3, 16, 16), x + .8 * T(seed + 2, 32, 3, 16, 16)), torch.zeros(32)
    return dict(model=Net, data=data, loss=mk(planted), diag={})
