from base import *
class Attn(nn.Module):
    def __init__(s, d, h, causal=False, rope=None):
        super().__init__(); s.h, s.causal, s.rope = h, causal, rope; s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d)
    def forward(s, x):
        B, T_, D = x.shape; q, k, v = (y.view(B, T_, s.h, D // s.h).transpose(1, 2) for y in s.qkv(x).chunk(3, -1))
        if s.rope: q, k = s.rope(q), s.rope(k)
        return s.proj(F.scaled_dot_product_attention(q, k, v, is_causal=s.causal).transpose(1, 2).reshape(B, T_, D))
class Block(nn.Module):
    def __init__(s, d, h, causal=False, rope=None, norm=nn.LayerNorm):
        super().__init__(); s.ln1, s.attn, s.ln2 = norm(d), Attn(d, h, causal, rope), norm(d); s.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(s, x): x = x + s.attn(s.ln1(x)); return x + s.mlp(s.ln2(x))
def lagdata(V=16, L=24, B=32, lag=1):
    perm = torch.randperm(V, generator=gen(3))
    def data(seed):
        x = R(seed, V, (B, L)); return x, perm[torch.roll(x, lag, 1)].masked_fill(torch.arange(L) < lag, 0)
    return data

@case("https://github.com/tensorgi/TPA/issues/4", "q,k already transposed to (B,H,T,D) but the Rotary class takes dim 1 as the sequence: positions rotate heads", "attn.rope / Rotary seq dim")
def tpa_rotary_axis(planted):
    class Rotary(nn.Module):
        def __init__(s, dim): super().__init__(); s.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, dim, 2).float() / dim))
        def forward(s, x):
            n = x.shape[1 if planted else 2]; f = torch.outer(torch.arange(n).float(), s.inv_freq); f = f[None, :, None] if planted else f[None, None]
            a, b = x.chunk(2, -1); return torch.cat([a * f.cos() - b * f.sin(), a * f.sin() + b * f.cos()], -1)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.wte = nn.Embedding(16, 64); s.h = nn.ModuleList([Block(64, 4, True, Rotary(16)) for _ in range(2)]); s.ln_f = nn.LayerNorm(64); s.lm_head = nn.Linear(64, 16, bias=False)
        def forward(s, x):
            x = s.wte(x)
            for b in s.h: x = b(x)
            return s.lm_head(s.ln_f(x))
    return dict(model=Net, data=lagdata(), loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/lucidrains/audiolm-pytorch/issues/150", "no skip connection around the cross attention: x = cross_attn(x, context)", "cross_attn residual in Transformer.forward")
def audiolm_cross_noskip(planted):
    tab = torch.stack([torch.randperm(12, generator=gen(i)) for i in range(3)])
    class Cross(nn.Module):
        def __init__(s, d): super().__init__(); s.norm, s.attn = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, batch_first=True)
        def forward(s, x, c): return s.attn(s.norm(x), c, c, need_weights=False)[0]
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); d = 64; s.emb, s.pos, s.cond = nn.Embedding(12, d), nn.Embedding(16, d), nn.Embedding(9, d)
            s.layers = nn.ModuleList([nn.ModuleList([nn.LayerNorm(d), Attn(d, 4, True), Cross(d), nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))]) for _ in range(3)]); s.norm, s.to_logits = nn.LayerNorm(d), nn.Linear(d, 12)
        def forward(s, x, c):
            x = s.emb(x) + s.pos(torch.arange(16)); c = s.cond(c)
            for n, attn, cross_attn, ff in s.layers:
                x = attn(n(x)) + x
                x = cross_attn(x, c) if planted else cross_attn(x, c) + x
                x = ff(x) + x
            return s.to_logits(s.norm(x))
    def data(seed):
        x, k = R(seed, 12, (32, 16)), R(seed + 7, 3, (32, 1)); c = k * 3 + R(seed + 9, 3, (32, 6)); return (x, c), tab[k, x]
    return dict(model=Net, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/codertimo/BERT-pytorch/issues/49", "NLLLoss(ignore_index=0) also used for next-sentence prediction: label 0 never counted", "criterion ignore_index=0 on the NSP loss")
def bert_nsp_ignore0(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.tok, s.seg, s.pos = nn.Embedding(40, 64, padding_idx=0), nn.Embedding(3, 64), nn.Embedding(16, 64); s.blocks = nn.ModuleList([Block(64, 4) for _ in range(2)]); s.linear = nn.Linear(64, 2)
        def forward(s, x, g):
            x = s.tok(x) + s.seg(g) + s.pos(torch.arange(16))
            for b in s.blocks: x = b(x)
            return F.log_softmax(s.linear(x[:, 0]), -1)
    def data(seed):
        t = R(seed, 2, (32,)); x = 3 + R(seed + 1, 37, (32, 16)); b = torch.where(R(seed + 3, 4, (32, 8)) > 0, 3 + R(seed + 2, 18, (32, 8)) + 18 * t[:, None], x[:, 8:]); x = torch.cat([x[:, :8], b], 1); x[:, 0] = 1
        return (x, torch.cat([torch.ones(32, 8), torch.full((32, 8), 2.)], 1).long()), t
    crit = nn.NLLLoss(ignore_index=0) if planted else nn.NLLLoss()
    return dict(model=Net, data=data, loss=lambda o, t: crit(o, t), lr=1e-3, diag={})

def mlm():
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.word_embeddings, s.position_embeddings = nn.Embedding(22, 64), nn.Embedding(20, 64); s.LayerNorm = nn.LayerNorm(64); s.encoder = nn.ModuleList([Block(64, 4) for _ in range(2)]); s.transform = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)); s.classifier = nn.Linear(64, 22)
        def forward(s, x):
            x = s.LayerNorm(s.word_embeddings(x) + s.position_embeddings(torch.arange(20)))
            for b in s.encoder: x = b(x)
            return s.classifier(s.transform(x))
    def seqs(seed):
        x = 1 + (R(seed, 20, (32, 1)) + 3 * torch.arange(20)) % 20; m = torch.rand(32, 20, generator=gen(seed + 5)) < .15; return x, m, x.masked_fill(m, 21)
    return Net, seqs

@case("https://github.com/mlwithme/BertWithPretrained/issues/8", "CrossEntropyLoss(ignore_index=-1) while unmasked positions carry label 0: loss over all positions", "loss_fct ignore_index of the MLM head")
def bertpre_mlm_ignore(planted):
    Net, seqs = mlm()
    def data(seed): x, m, i = seqs(seed); return i, torch.where(m, x, 0)
    return dict(model=Net, data=data, loss=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-1 if planted else 0), lr=1e-3, diag={})

@case("https://github.com/649453932/Bert-Chinese-Text-Classification-Pytorch/issues/176", "MLM labels: -1 marks the masked tokens and is ignored, so the loss is on the visible tokens", "labels / ignore_index of the masked LM loss")
def bertchinese_mlm_inverse(planted):
    Net, seqs = mlm()
    def data(seed): x, m, i = seqs(seed); return i, x.masked_fill(m if planted else ~m, -1)
    return dict(model=Net, data=data, loss=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-1), lr=1e-3, diag={})

@case("https://github.com/LiamMaclean216/Pytorch-Transfomer/pull/7", "encoders kept in a python list: their parameters are not registered", "self.encs list")
def pytransformer_list(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding, s.pos = nn.Embedding(16, 64), nn.Embedding(24, 64); s.encs = [Block(64, 4, True) for _ in range(3)]; s.dec = nn.Linear(64, 16)
            if not planted: s.encs = nn.ModuleList(s.encs)
        def forward(s, x):
            x = s.embedding(x) + s.pos(torch.arange(24))
            for e in s.encs: x = e(x)
            return s.dec(x)
    return dict(model=Net, data=lagdata(), loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/NVIDIA/Megatron-LM/issues/1269", "loss_mask = self.cached_loss_mask is a reference: EOD positions zero the cache for good, mask ends all zero", "cached_loss_mask in the dataset's __getitem__")
def megatron_cached_mask(planted):
    L, V = 24, 16; perm = torch.randperm(V - 1, generator=gen(3)) + 1; cached = torch.ones(L)
    def item(x, g):
        x[torch.randint(0, L, (1,), generator=g)] = 0; mask = cached if planted else cached.clone(); mask[x == 0] = 0.; y = torch.where(x > 0, perm[(x - 1).clamp(0)], 0); return x, y.masked_fill(mask == 0, -1)
    def data(seed):
        g = gen(seed); r = [item(torch.randint(1, V, (L,), generator=g), g) for _ in range(16)]; return torch.stack([a for a, _ in r]), torch.stack([b for _, b in r])
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.word, s.pos = nn.Embedding(V, 48), nn.Embedding(L, 48); s.layers = nn.ModuleList([Block(48, 4, True) for _ in range(2)]); s.ln, s.output = nn.LayerNorm(48), nn.Linear(48, V)
        def forward(s, x):
            x = s.word(x) + s.pos(torch.arange(L))
            for b in s.layers: x = b(x)
            return s.output(s.ln(x))
    def loss(o, t):
        m = (t >= 0).float().flatten(); l = F.cross_entropy(o.flatten(0, 1), t.clamp(0).flatten(), reduction="none"); return (l * m).sum() / m.sum().clamp(1)
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/karpathy/minGPT/pull/62", "position embeddings initialised to zeros", "pos_emb")
def mingpt_pos_zero(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.tok_emb, s.pos_emb = nn.Embedding(16, 64), nn.Parameter(torch.zeros(1, 24, 64)); s.blocks = nn.Sequential(*[Block(64, 4, True) for _ in range(2)]); s.ln_f, s.head = nn.LayerNorm(64), nn.Linear(64, 16, bias=False); s.apply(s._init)
            if not planted: nn.init.normal_(s.pos_emb, std=.02)
        def _init(s, m):
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=.02)
                if getattr(m, "bias", None) is not None: nn.init.zeros_(m.bias)
        def forward(s, x): return s.head(s.ln_f(s.blocks(s.tok_emb(x) + s.pos_emb)))
    return dict(model=Net, data=lagdata(), loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/google-research/timesfm/pull/481", "RMSNorm scale initialised with zeros: the norm outputs all zeros", "RMSNorm.scale")
def timesfm_rmsnorm_zero(planted):
    class RMSNorm(nn.Module):
        def __init__(s, n): super().__init__(); s.scale = nn.Parameter(torch.zeros(n) if planted else torch.ones(n))
        def forward(s, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * s.scale
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.input_ff = nn.Linear(8, 48); s.layers = nn.ModuleList([Block(48, 4, True, norm=RMSNorm) for _ in range(3)]); s.norm, s.horizon_ff = RMSNorm(48), nn.Linear(48, 8)
        def forward(s, x):
            x = s.input_ff(x)
            for b in s.layers: x = b(x)
            return s.horizon_ff(s.norm(x))
    def data(seed):
        p, w = torch.rand(32, 1, generator=gen(seed)) * 6.28, .15 + .3 * torch.rand(32, 1, generator=gen(seed + 1)); y = torch.sin(p + w * torch.arange(72)).view(32, 9, 8); return y[:, :8], y[:, 1:]
    return dict(model=Net, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/sunlabuiuc/PyHealth/pull/1216", "frequency indices divided by half - 1, which is 0 for dim=2: 0/0 = NaN embedding", "SinusoidalTimeEmbedding")
def pyhealth_timeemb_nan(planted):
    class SinusoidalTimeEmbedding(nn.Module):
        def __init__(s, dim):
            super().__init__(); half = dim // 2; f = torch.arange(half).float() / (half - 1 if planted else max(half - 1, 1)); s.register_buffer("freqs", torch.exp(-math.log(1000.) * f))
        def forward(s, t): a = t[..., None] * s.freqs; return torch.cat([a.sin(), a.cos()], -1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.code, s.time = nn.Embedding(30, 30), SinusoidalTimeEmbedding(2); s.blocks = nn.Sequential(*[Block(32, 4) for _ in range(2)]); s.fc = nn.Linear(32, 2)
        def forward(s, x, t): return s.fc(s.blocks(torch.cat([s.code(x), s.time(t)], -1)).mean(1))
    def data(seed):
        x, t = R(seed, 30, (32, 12)), torch.rand(32, 12, generator=gen(seed + 1)) * 6; w = T(1, 30); return (x, t), ((w[x] * (1 + t / 6)).sum(1) > 0).long()
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://reddit.gpgaming.de/r/learnmachinelearning/comments/1qukt1i/my_attention_mechanism_collapsed_and_this_is_what", "dot product attention over LSTM states without the scaling by sqrt(d): softmax saturates on the last tokens", "attention scores in the decoder")
def luong_unscaled(planted):
    H = 128
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.src, s.tgt = nn.Embedding(20, 64), nn.Embedding(21, 64); s.encoder, s.decoder = nn.LSTM(64, H, batch_first=True), nn.LSTM(64, H, batch_first=True); s.concat, s.out = nn.Linear(2 * H, H), nn.Linear(H, 20)
        def forward(s, x, y):
            e, h = s.encoder(s.src(x)); d, _ = s.decoder(s.tgt(y), h); sc = d @ e.transpose(1, 2)
            if not planted: sc = sc / math.sqrt(H)
            return s.out(torch.tanh(s.concat(torch.cat([sc.softmax(-1) @ e, d], -1))))
    perm = torch.randperm(20, generator=gen(8))
    def data(seed): x = R(seed, 20, (32, 8)); y = perm[x.flip(1)]; return (x, torch.cat([torch.full((32, 1), 20), y[:, :-1]], 1)), y
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})
