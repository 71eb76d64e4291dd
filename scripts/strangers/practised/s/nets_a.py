from base import *
V, L = 8, 12
def lmdata(s, B=32):                      # target: a fixed table of this token and the previous one
    x = R(s, V, (B, L)); tab = R(7, V, (V, V)); p = torch.cat([torch.zeros(B, 1, dtype=torch.long), x[:, :-1]], 1); return x, tab[x % 3, p]
class Attn(nn.Module):
    def __init__(s, d, h, causal=True, scale=True, sdim=-1, view=False, rope=None, vpe=0):
        super().__init__(); s.d, s.h, s.causal, s.scale, s.sdim, s.view, s.rope, s.vpe = d, h, causal, scale, sdim, view, rope, vpe
        s.q = nn.Linear(d, d); s.k = nn.Linear(d, d); s.v = nn.Linear(d, d); s.o = nn.Linear(d, d)
    def split(s, t):
        B, n, _ = t.shape
        return t.view(B, s.h, n, -1) if s.view else t.view(B, n, s.h, -1).transpose(1, 2)
    def forward(s, x, mask=None, mem=None):
        B, n, _ = x.shape; m = x if mem is None else mem
        q, k, v = s.split(s.q(x)), s.split(s.k(m)), s.split(s.v(m))
        if s.rope: q, k = s.rope(q), s.rope(k)
        for _ in range(s.vpe): v = s.rope(v)
        a = q @ k.transpose(-1, -2)
        if s.scale: a = a / math.sqrt(s.d // s.h)
        if s.causal: a = a.masked_fill(~torch.ones(n, m.shape[1], dtype=torch.bool).tril(), -1e9)
        if mask is not None: a = a.masked_fill(mask == 0, -1e10)
        o = a.softmax(s.sdim) @ v
        if s.vpe: o = s.rope(o, -1)
        return s.o(o.reshape(B, n, -1) if s.view else o.transpose(1, 2).reshape(B, n, -1))
class Block(nn.Module):
    def __init__(s, d, h, ff=None, **k):
        super().__init__(); s.ln1 = nn.LayerNorm(d); s.attn = Attn(d, h, **k); s.ln2 = nn.LayerNorm(d)
        s.mlp = ff if ff is not None else nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(s, x, mask=None): x = x + s.attn(s.ln1(x), mask); return x + s.mlp(s.ln2(x))
class GPT(nn.Module):
    def __init__(s, d=32, h=4, n=2, pos=True, shared=False, v=V, **k):
        super().__init__(); s.tok = nn.Embedding(v, d); s.pos = nn.Parameter(torch.randn(1, 64, d) * .02) if pos else None
        nn.init.normal_(s.tok.weight, std=.5)
        s.blocks = nn.ModuleList([Block(d, h, **k) for _ in range(1 if shared else n)]); s.n = n; s.shared = shared
        s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, v)
    def forward(s, x):
        h = s.tok(x)
        if s.pos is not None: h = h + s.pos[:, :x.shape[1]]
        for i in range(s.n): h = s.blocks[0 if s.shared else i](h)
        return s.head(s.ln(h))
@case("https://github.com/delzac/cntkx/issues/10", "scores not divided by sqrt(d_k)", "attn")
def cntkx_scale(planted):
    return dict(model=lambda: GPT(64, 1, scale=not planted), data=lmdata, loss=ceseq, diag=SEQ)
@case("https://github.com/nerdai/llms-from-scratch-rs/pull/30", "attention softmax over the query dimension", "attn")
def rs_softmax(planted):
    return dict(model=lambda: GPT(sdim=-2 if planted else -1), data=lmdata, loss=ceseq, diag=SEQ)
def pe(n, d):
    p = torch.arange(n)[:, None]; w = torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d)); o = torch.zeros(n, d); o[:, 0::2] = torch.sin(p * w); o[:, 1::2] = torch.cos(p * w); return o
class Rope:
    def __init__(s, kind): s.kind = kind
    def __call__(s, x, sign=1):
        n, d = x.shape[-2:]; th = 1e4 ** (-torch.arange(0, d, 2) / d); f = torch.arange(n)[:, None] * th * sign
        if s.kind == "mix": f = f.repeat_interleave(2, -1)
        else: f = torch.cat([f, f], -1)
        a, b = x.chunk(2, -1); return x * f.cos() + torch.cat([-b, a], -1) * f.sin()
@case("https://github.com/NVIDIA/ngpt/issues/10", "sin, cos taken as halves of an interleaved table; never rotated pairs", "attn (rope)")
def rope_ngpt(planted):
    class Bad:
        def __call__(s, x, sign=1):
            n, d = x.shape[-2:]; sin, cos = pe(n, d).chunk(2, -1); a, b = x.chunk(2, -1); return torch.cat([a * cos, b * sin], -1)
    return dict(model=lambda: GPT(pos=False, rope=Bad() if planted else Rope("half")), data=lmdata, loss=ceseq, diag=SEQ)
@case("https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/251", "values rotated twice (value_pe)", "attn.v")
def rope_value(planted):
    return dict(model=lambda: GPT(pos=False, rope=Rope("half"), vpe=2 if planted else 1), data=lmdata, loss=ceseq, diag=SEQ)
@case("https://github.com/espnet/espnet/issues/1278", "one encoder layer applied 12 times instead of 12 layers", "blocks.0")
def espnet_loop(planted):
    return dict(model=lambda: GPT(n=8, shared=planted), data=lmdata, loss=ceseq, diag=SEQ)
@case("https://github.com/habla-liaa/encodecmae/issues/3", "one feed-forward instance shared by all layers", "blocks.*.mlp")
def encodecmae_ff(planted):
    def model():
        m = GPT(n=4)
        if planted:
            for b in m.blocks: b.mlp = m.blocks[0].mlp
        return m
    return dict(model=model, data=lmdata, loss=ceseq, diag=SEQ)
def padseq(s, B=32):
    g = gen(s); n = torch.randint(4, L + 1, (B, 1), generator=g); x = R(s + 1, V - 1, (B, L)) + 1; x = torch.where(torch.arange(L) < n, x, 0); tab = R(7, V - 1, (V, V)) + 1
    p = torch.cat([torch.ones(B, 1, dtype=torch.long), x[:, :-1]], 1); return x, torch.where(x > 0, tab[x % 3, p], 0)
@case("https://github.com/bentrevett/pytorch-seq2seq/issues/96", "trg_pad_mask unsqueeze(3): masks padded queries, not keys", "attn (mask)")
def seq2seq_trgmask(planted):
    class Net(GPT):
        def forward(s, x):
            m = (x != 0)[:, None]; m = m.unsqueeze(3) if planted else m.unsqueeze(2)
            h = s.tok(x) + s.pos[:, :x.shape[1]]
            for b in s.blocks: h = b(h, m & torch.ones(L, L, dtype=torch.bool).tril())
            return s.head(s.ln(h))
    loss = lambda o, t: F.cross_entropy(o.flatten(0, -2), t.flatten(), ignore_index=0)
    return dict(model=lambda: Net(causal=False), data=padseq, loss=loss, diag={})
# ---- vision transformers: the class is WHERE the bright pattern lies
def vit_data(s, B=32):
    y = R(s, 16, (B,)); x = T(s + 1, B, 1, 16, 16) * .3; pat = T(9, 4, 4) + .5
    for b in range(B): i, j = divmod(int(y[b]), 4); x[b, 0, 4*i:4*i+4, 4*j:4*j+4] += pat
    return x, y
class ViT(nn.Module):
    def __init__(s, mode="ok", B=32, d=32):
        super().__init__(); s.mode = mode; s.patch = nn.Conv2d(1, d, 4, 4); s.cls = nn.Parameter(torch.randn(1 if mode != "batch" else B, 1, d) * .02)
        s.pos = nn.Parameter(torch.randn(B, 1, d) if mode == "batch" else torch.randn(1, 17, d) * .2)
        s.blocks = nn.ModuleList(Block(d, 4, causal=False) for _ in range(2)); s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, 16)
    def forward(s, x):
        h = s.patch(x).flatten(2).transpose(1, 2); h = torch.cat([s.cls.expand(len(x), -1, -1), h], 1)
        h = h + (s.pos[:, h.shape[1] - 1: h.shape[1]] if s.mode == "index" else s.pos)
        for b in s.blocks: h = b(h)
        return s.head(s.ln(h)[:, 0])
@case("https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/133", "positional_encodings[n] instead of [:n]: one vector for all patches", "pos")
def labml_pos(planted): return dict(model=lambda: ViT("index" if planted else "ok"), data=vit_data, loss=ce, diag=CE)
@case("https://github.com/pytorch/examples/issues/1178", "pos_embedding (batch, 1, d): per sample, not per patch", "pos")
def examples_pos(planted): return dict(model=lambda: ViT("batch" if planted else "ok"), data=vit_data, loss=ce, diag=CE)
# ---- recurrent cells
class LSTM(nn.Module):
    def __init__(s, i, h, o, mode="ok"):
        super().__init__(); s.h = h; s.mode = mode; s.W = nn.ModuleDict({k: nn.Linear(i + h, h, bias=False) for k in "fuco"})
        s.b = nn.ParameterDict({k: nn.Parameter(torch.ones(h) if k == "f" else torch.zeros(h)) for k in "fuco"}); s.peep = nn.Parameter(torch.randn(h) * .1); s.out = nn.Linear(h, o)
    def forward(s, x):
        h = c = x.new_zeros(len(x), s.h)
        for t in range(x.shape[1]):
            z = torch.cat([x[:, t], h], -1); b = s.b; bo = b["o"]
            f = torch.sigmoid(s.W["f"](z) + (bo if s.mode == "bias" else b["f"])); u = torch.sigmoid(s.W["u"](z) + (bo if s.mode == "bias" else b["u"])); g = torch.tanh(s.W["c"](z) + b["c"])
            if s.mode == "add": c = f * c + (u + g)
            else: c = f * c + u * g
            o = s.W["o"](z) + bo
            o = torch.sigmoid(o) + c * s.peep if s.mode == "peep" else torch.sigmoid(o + c * s.peep)
            h = o * (c if s.mode == "notanh" else torch.tanh(c))
        return s.out(h)
def seqcls(s, B=32, n=16):
    x = T(s, B, n, 6); W = T(5, 6, 4); return x, (x[:, 2:10].mean(1) @ W).argmax(-1)
@case("https://github.com/MartinuzziFrancesco/torchrecurrent/issues/22", "input gate + tanh(cell) instead of a product", "W.u / W.c")
def lstm_add(planted): return dict(model=lambda: LSTM(6, 32, 4, "add" if planted else "ok"), data=seqcls, loss=ce, diag=CE)
@case("https://github.com/Lasagne/Lasagne/issues/448", "peephole added to the output gate after its sigmoid", "peep")
def lstm_peep(planted): return dict(model=lambda: LSTM(6, 32, 4, "peep" if planted else "ok"), data=seqcls, loss=ce, diag=CE)
@case("https://github.com/nicodjimenez/lstm/issues/47", "h = s * o without tanh", "h")
def lstm_notanh(planted): return dict(model=lambda: LSTM(6, 32, 4, "notanh" if planted else "ok"), data=seqcls, loss=ce, diag=CE)
