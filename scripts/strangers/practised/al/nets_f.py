from base import *

# ---------- time series, speech, audio, music
class Sub(nn.Module):
    def __init__(s): super().__init__(); s.dropout = nn.Dropout(.1); s.a = nn.Parameter(torch.tensor(.5))
    def forward(s, x, o): return x + s.dropout(s.a * o)
class CTNLayer(nn.Module):
    def __init__(s, k, d, ff, bad):
        super().__init__(); s.bad = bad
        s.DW_conv_large = nn.Conv1d(d, d, k, padding="same", groups=d); s.DW_conv_small = nn.Conv1d(d, d, 3, padding="same", groups=d)
        s.dw_act = nn.GELU(); s.sublayerconnect1 = Sub(); s.dw_norm = nn.BatchNorm1d(d)
        s.ff = nn.Sequential(nn.Conv1d(d, ff, 1), nn.GELU(), nn.Dropout(.1), nn.Conv1d(ff, d, 1)); s.sublayerconnect2 = Sub(); s.norm_ffn = nn.BatchNorm1d(d)
    def forward(s, src):
        src = s.dw_norm(s.sublayerconnect1(src, s.dw_act(s.DW_conv_large(src) + s.DW_conv_small(src))))
        src2 = s.norm_ffn(s.sublayerconnect2(src, s.ff(src)))
        return src if s.bad else src2
class CTN(nn.Module):
    def __init__(s, bad):
        super().__init__(); s.W_P = nn.Linear(12, 24); s.encoder = nn.ModuleList([CTNLayer(k, 24, 48, bad) for k in (7, 9, 11)]); s.head = nn.Linear(24 * 16, 8)
    def forward(s, x):
        u = s.W_P(x.unfold(1, 12, 4)).transpose(1, 2)
        for l in s.encoder: u = l(u)
        return s.head(F.gelu(u).flatten(1))
def waves(s, B, n):
    g = gen(s); t = torch.arange(float(n)); f = .04 + .08 * torch.rand(B, 2, 1, generator=g); p = 6.28 * torch.rand(B, 2, 1, generator=g)
    return torch.sin(6.2832 * f * t + p).sum(1) + .1 * torch.randn(B, n, generator=g)
@case("https://github.com/ustc-time-series/ConvTimeNet/issues/4", "the encoder layer returns src and not src2: the feed-forward, its residual and its norm are computed and thrown away", "encoder layers' ff / norm_ffn / sublayerconnect2 (return value)")
def convtimenet_returns_src(planted):
    def data(s): w = waves(s, 64, 80); return w[:, :72], w[:, 72:]
    return dict(model=lambda: CTN(planted), data=data, loss=mse, lr=2e-3)

class ConfBlock(nn.Module):
    def __init__(s, d, flip=False, mods=None):
        super().__init__(); s.flip = flip
        mk = lambda: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Dropout(.1), nn.Linear(2 * d, d))
        if mods is None: mods = (mk(), mk(), nn.MultiheadAttention(d, 4, batch_first=True), nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 5, padding=2, groups=d), nn.BatchNorm1d(d), nn.Conv1d(d, d, 1))
        s.ff1, s.ff2, s.att, s.pw1, s.dw, s.bn, s.pw2 = mods
        s.n_att, s.n_conv, s.n_out = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
    def san(s, x): h = s.n_att(x); return x + s.att(h, h, h, need_weights=False)[0]
    def conv(s, x): h = s.n_conv(x).transpose(1, 2); return x + s.pw2(F.silu(s.bn(s.dw(F.glu(s.pw1(h), 1))))).transpose(1, 2)
    def forward(s, x):
        x = x + .5 * s.ff1(x)
        x = s.san(s.conv(x)) if s.flip else s.conv(s.san(x))
        return s.n_out(x + .5 * s.ff2(x))
def sinus(n, d):
    p = torch.arange(float(n))[:, None]; w = 10000. ** (-torch.arange(0, d, 2) / d); e = torch.zeros(n, d); e[:, 0::2] = torch.sin(p * w); e[:, 1::2] = torch.cos(p * w); return e
class Conformer(nn.Module):
    def __init__(s, shared=False, flip=False, d=32):
        super().__init__(); s.inp = nn.Linear(16, d); s.register_buffer("pe", sinus(24, d))
        if shared:
            b = ConfBlock(d); mods = (b.ff1, b.ff2, b.att, b.pw1, b.dw, b.bn, b.pw2)
            s.blocks = nn.ModuleList([b] + [ConfBlock(d, mods=mods) for _ in range(2)])
        else: s.blocks = nn.ModuleList([ConfBlock(d, flip) for _ in range(3)])
        s.out = nn.Linear(d, 8)
    def forward(s, x):
        h = s.inp(x) + s.pe
        for b in s.blocks: h = b(h)
        return s.out(h)
_ph = T(31, 8, 16)
def speech(s):
    y = R(s, 8, (32, 12)).repeat_interleave(2, 1)
    x = _ph[y] + .4 * _ph[y.roll(2, 1)] + .5 * _ph[y[:, :1]] + T(s + 1, 32, 24, 16, k=1.); return x / 1.55, y
@case("https://github.com/espnet/espnet/pull/4020", "the modules of a conformer block are built outside the lambda, so every block shares the same parameters", "blocks (shared ff, attention, convolution modules)")
def conformer_blocks_shared(planted): return dict(model=lambda: Conformer(shared=planted), data=speech, loss=ceseq, lr=1e-3)
@case("https://github.com/hirofumi0810/neural_sp/pull/146", "convolution and self-attention modules are flipped in the conformer block", "blocks' order of conv and self-attention")
def conformer_flipped(planted): return dict(model=lambda: Conformer(flip=planted), data=speech, loss=ceseq, lr=1e-3)

class WBlock(nn.Module):
    def __init__(s, c, dil, bad):
        super().__init__(); s.bad = bad; s.dil = dil
        s.dilated = nn.Conv1d(c, c, 2, dilation=dil); s.gate = nn.Identity() if bad else nn.Conv1d(c, c, 2, dilation=dil)
        s.res = nn.Conv1d(c, c, 1); s.skip = nn.Conv1d(c, c, 1)
    def forward(s, x):
        p = F.pad(x, (s.dil, 0)); f = s.dilated(p); g = f if s.bad else s.gate(p)
        z = torch.tanh(f) * torch.sigmoid(g)
        return s.res(z) + x, s.skip(z)
class WaveNet(nn.Module):
    def __init__(s, bad, c=24, q=16):
        super().__init__(); s.causal = nn.Conv1d(q, c, 2); s.blocks = nn.ModuleList([WBlock(c, d, bad) for d in (1, 2, 4, 8)]); s.c1 = nn.Conv1d(c, c, 1); s.c2 = nn.Conv1d(c, q, 1)
    def forward(s, x):
        h = s.causal(F.pad(F.one_hot(x, 16).float().transpose(1, 2), (1, 0))); out = 0
        for b in s.blocks: h, k = b(h); out = out + k
        return s.c2(F.relu(s.c1(F.relu(out)))).transpose(1, 2)
@case("https://github.com/golbin/WaveNet/issues/3", "tanh and sigmoid are given the same convolution's output instead of a filter and a gate", "blocks' gated activation (dilated)")
def wavenet_same_gate(planted):
    def data(s): q = ((waves(s, 16, 65) / 2.2).clamp(-1, .999) * 8 + 8).long(); return q[:, :-1], q[:, 1:]
    return dict(model=lambda: WaveNet(planted), data=data, loss=ceseq, lr=3e-3)

class DurAttn(nn.Module):
    def __init__(s, bad, d=32, n=20):
        super().__init__(); s.emb = nn.Embedding(12, d); s.mel = nn.Linear(8, d); s.q = nn.Linear(d, d); s.k = nn.Linear(d, d); s.v = nn.Linear(d, d); s.out = nn.Linear(d, 8)
        e = torch.zeros(n, d); r = torch.arange(float(n))[:, None]; c = 2 * torch.arange(float(d // 2)) / d
        den = 10. ** 4 ** c if bad else (10. ** 4) ** c
        e[:, 0::2] = torch.sin(r / den); e[:, 1::2] = torch.cos(r / den); s.register_buffer("pe", e)
    def forward(s, txt, mel):
        h = s.emb(txt); k = s.k(h + s.pe[:txt.shape[1]]); q = s.q(torch.relu(s.mel(mel)) + s.pe[:mel.shape[1]])
        w = torch.softmax(q @ k.transpose(1, 2) / 32 ** .5, -1); return s.out(w @ s.v(h))
@case("https://github.com/janvainer/speedyspeech/issues/23", "positional encoding: 10.0**4 ** (cols/channels) is 10**(4**c) and not (10**4)**c, so all the high frequencies are missing", "pe (positional encoding)")
def speedyspeech_pe(planted):
    W = T(41, 12, 8)
    def data(s):
        txt = R(s, 12, (32, 20)); tgt = W[txt]
        mel = torch.cat([torch.zeros(32, 1, 8), tgt[:, :-1]], 1)
        return (txt, mel), tgt
    return dict(model=lambda: DurAttn(planted), data=data, loss=mse, lr=3e-3)

def rope(x):                                     # rotates over dimension -2
    n, d = x.shape[-2:]; f = torch.outer(torch.arange(float(n)), 100. ** (-torch.arange(0, d, 2) / d)); c, s_ = f.cos(), f.sin()
    a, b = x[..., 0::2], x[..., 1::2]; return torch.stack([a * c - b * s_, a * s_ + b * c], -1).flatten(-2)
class LMBlock(nn.Module):
    def __init__(s, d, H, rot=None, double=False, causal=True):
        super().__init__(); s.H = H; s.rot = rot; s.double = double; s.causal = causal
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.q_proj, s.k_proj, s.v_proj, s.out_proj = (nn.Linear(d, d) for _ in range(4))
        s.fc1, s.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(s, x):
        B, n, d = x.shape; h = s.n1(x); hd = d // s.H
        q, k, v = (f(h).view(B, n, s.H, hd) for f in (s.q_proj, s.k_proj, s.v_proj))
        if s.rot == "wrong": q, k = rope(q), rope(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if s.rot == "right": q, k = rope(q), rope(k)
        if s.double: q = q * hd ** -.5
        o = F.scaled_dot_product_attention(q, k, v, is_causal=s.causal)
        x = x + s.out_proj(o.transpose(1, 2).reshape(B, n, d)); return x + s.fc2(F.gelu(s.fc1(s.n2(x))))
class LM(nn.Module):
    def __init__(s, V=16, d=32, n=24, pos=True, **k):
        super().__init__(); s.tok = nn.Embedding(V, d); s.pos = nn.Embedding(n, d) if pos else None
        s.blocks = nn.ModuleList([LMBlock(d, 4, **k) for _ in range(2)]); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, V, bias=False)
        for m in s.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.02 if not isinstance(m, nn.Linear) else .08)
            if isinstance(m, nn.Linear) and m.bias is not None: nn.init.zeros_(m.bias)
    def forward(s, x):
        h = s.tok(x)
        if s.pos is not None: h = h + s.pos.weight[:x.shape[1]]
        for b in s.blocks: h = b(h)
        return s.head(s.norm(h))
def motif(s, B=32, n=24, V=16, lag=3):              # the next note = the note `lag` ago + 1 (mod V), sometimes a random one
    g = gen(s); x = torch.randint(0, V, (B, n + 1), generator=g)
    keep = torch.rand(B, n + 1, generator=g) < .85
    for i in range(lag, n + 1): x[:, i] = torch.where(keep[:, i], (x[:, i - lag] + 1) % V, x[:, i])
    return x[:, :-1], x[:, 1:]
@case("https://github.com/EleutherAI/aria/pull/30", "rotary embedding is applied before the transpose of xq and xk, so it rotates by head and not by position", "blocks' rotary embedding of q_proj / k_proj")
def aria_rope_heads(planted): return dict(model=lambda: LM(pos=False, rot="wrong" if planted else "right"), data=motif, loss=ceseq, lr=3e-3)
@case("https://github.com/huggingface/transformers/pull/38290", "OPT: the queries are scaled by head_dim**-0.5 and the attention function scales them a second time", "blocks' attention scaling (q_proj)")
def opt_double_scaling(planted): return dict(model=lambda: LM(double=planted), data=motif, loss=ceseq, lr=3e-3)
def prefix_judge(m, x, t):
    tot = 0.
    for i in range(6, x.shape[1]): tot += float(F.cross_entropy(m(x[:, :i + 1])[:, -1], t[:, i]))
    return tot / (x.shape[1] - 6)
@case("https://github.com/huggingface/transformers/pull/48770", "Doge: no causal mask is made when there is no padding, so every position attends to future tokens", "blocks' attention (no causal mask)")
def doge_not_causal(planted): return dict(model=lambda: LM(causal=not planted), data=motif, loss=ceseq, judge=prefix_judge, lr=3e-3)
