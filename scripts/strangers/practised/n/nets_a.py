from base import *

def sincos(T_, d):
    p = torch.arange(T_)[:, None].float(); w = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.) / d))
    pe = torch.zeros(T_, d); pe[:, 0::2] = torch.sin(p * w); pe[:, 1::2] = torch.cos(p * w); return pe

class MHA(nn.Module):
    """Multi-head self attention; the keyword `how` says which line of the reports is planted."""
    def __init__(s, d, h, how=None, rope=None):
        super().__init__(); s.h, s.dk, s.how, s.rope = h, d // h, how, rope
        s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4))
    def forward(s, x, bias=None):
        B, T_, d = x.shape
        q, k, v = (f(x).view(B, T_, s.h, s.dk) for f in (s.q, s.k, s.v))
        if s.rope: q, k = s.rope(q), s.rope(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        a = q @ k.transpose(-1, -2)
        if s.how != "noscale": a = a / math.sqrt(s.dk)
        if bias is not None: a = a + bias
        a = a.softmax(-2 if s.how == "softmax_q" else -1)
        y = a @ v
        if s.how != "nopermute": y = y.transpose(1, 2)
        return s.o(y.reshape(B, T_, d))

class Block(nn.Module):
    def __init__(s, d, h, how=None, rope=None):
        super().__init__(); s.how = how
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.attn = MHA(d, h, how, rope)
        s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    def forward(s, x, bias=None):
        if s.how == "norm_residual":
            x = s.n1(x); x = x + s.attn(x, bias); x = s.n2(x); return x + s.ff(x)
        x = x + s.attn(s.n1(x), bias); return x + s.ff(s.n2(x))

class LM(nn.Module):
    def __init__(s, V=10, d=64, T_=8, h=4, L=2, how=None, pe="tokens", rope=None, finalnorm=True, causal=False, tied=False):
        super().__init__(); s.pe_mode = pe; s.causal = causal
        s.emb = nn.Embedding(V, d); nn.init.normal_(s.emb.weight, std=.02 if tied else .5)
        s.register_buffer("pe", sincos(64, d)); s.blocks = nn.ModuleList(Block(d, h, how, rope) for _ in range(L))
        s.norm = nn.LayerNorm(d) if finalnorm else nn.Identity(); s.head = nn.Linear(d, V, bias=False)
        if tied: s.head.weight = s.emb.weight
    def forward(s, x):
        B, T_ = x.shape; z = s.emb(x)
        if s.pe_mode == "tokens": z = z + s.pe[:T_]
        elif s.pe_mode == "batch": z = z + s.pe[:B, None]
        bias = torch.full((T_, T_), float("-inf")).triu(1) if s.causal else None
        for b in s.blocks: z = b(z, bias)
        return s.head(s.norm(z))

def reverse(V=10, T_=8, B=32):
    def data(s): x = R(s, V, (B, T_)); return x, x.flip(1)
    return data

def prevtok(V=10, T_=12, B=32):
    def data(s):
        x = R(s, V, (B, T_)); return x, torch.cat([x[:, :1], x[:, :-1]], 1)
    return data

@case("https://github.com/neuro-galaxy/torch_brain/pull/74", "mask turned into its opposite when made a bias: only padding is attended", "attn")
def brain_invmask(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.inp = nn.Linear(16, 48); s.cls = nn.Parameter(torch.randn(1, 1, 48) * .5); s.blocks = nn.ModuleList(Block(48, 4) for _ in range(2)); s.norm = nn.LayerNorm(48); s.head = nn.Linear(48, 2)
        def forward(s, x, mask):
            B = x.shape[0]; z = torch.cat([s.cls.expand(B, -1, -1), s.inp(x)], 1)
            m = torch.cat([torch.ones(B, 1, dtype=torch.bool), mask], 1)
            if planted: m = ~m
            bias = torch.zeros(m.shape).masked_fill(~m, -1e9)[:, None, None]
            for b in s.blocks: z = b(z, bias)
            return s.head(s.norm(z[:, 0]))
    W = T(5, 16, 2) * .5
    def data(s):
        n = torch.randint(3, 10, (32,), generator=gen(s)); m = torch.arange(12)[None] < n[:, None]
        x = T(s + 1, 32, 12, 16) + T(s + 2, 32, 1, 16); x = x * m[..., None]
        return (x, m), torch.tanh((x * m[..., None]).sum(1) / n[:, None] @ W)
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/RITCHIEHuang/DeepRL_Algorithms/issues/13", "advantages (B,1) times ratio (B,) broadcast to (B,B) in the surrogate", "loss")
def ppo_broadcast(planted):
    def model(): return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    W = T(1, 8, 4)
    def data(s):
        x = T(s, 64, 8); a = R(s + 1, 4, (64,)); adv = (x @ W).gather(1, a[:, None]); adv = (adv - adv.mean()) / adv.std()
        return x, (a, adv, torch.full((64,), -math.log(4.)))
    def loss(o, t):
        a, adv, lp0 = t; lp = F.log_softmax(o, -1).gather(1, a[:, None])[:, 0]; r = (lp - lp0).exp()
        if not planted: adv = adv[:, 0]
        return -torch.min(r * adv, r.clamp(.5, 1.5) * adv).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/RLinf/RLinf/issues/1568", "critic values [B] against returns [B,1]: broadcast to [B,B]", "loss")
def rlinf_critic(planted):
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
        def forward(s, x): v = s.net(x); return v.squeeze(-1) if planted else v
    W = T(2, 12, 1) * .4
    def data(s): x = T(s, 64, 12); return x, torch.tanh(x @ W) + .3 * (x[:, :1] * x[:, 1:2])
    def loss(v, ret):
        e = ret - v; return torch.where(e.abs() < 1, .5 * e ** 2, e.abs() - .5).mean()
    return dict(model=Critic, data=data, loss=loss)

@case("https://github.com/AkiRusProd/numpy-transformer/issues/1", "positional encoding indexed by the batch: all tokens of a sequence get the same", "pe / emb")
def numpy_pe(planted): return dict(model=lambda: LM(pe="batch" if planted else "tokens"), data=reverse(), loss=ceseq, diag=SEQ)

@case("https://github.com/Howuhh/faster-trajectory-transformer/issues/3", "pre-norm block adds the attention to the normalised input, not the raw one", "blocks")
def traj_prenorm(planted): return dict(model=lambda: LM(L=6, how="norm_residual" if planted else None), data=reverse(), loss=ceseq, diag=SEQ)

@case("https://github.com/PaddlePaddle/PaddleNLP/pull/571", "pre-norm encoder without the last LayerNorm", "norm / head")
def paddle_lastnorm(planted): return dict(model=lambda: LM(L=6, finalnorm=not planted), data=reverse(), loss=ceseq, diag=SEQ)

def rope_on(dim, mix=False):
    def f(x):                       # x: (B, T, h, dk)
        n = x.shape[dim]; dk = x.shape[-1]; w = 1. / (100 ** (torch.arange(0, dk, 2).float() / dk)); fr = torch.arange(n).float()[:, None] * w
        c = fr.repeat_interleave(2, -1) if mix else torch.cat([fr, fr], -1)
        c = c[:, None, :] if dim == 1 else c[None]
        x1, x2 = x.chunk(2, -1); return x * c.cos() + torch.cat([-x2, x1], -1) * c.sin()
    return f

@case("https://github.com/mlfoundations/open_lm/issues/4", "rotary embedding applied along the heads instead of the sequence", "attn")
def openlm_rope(planted): return dict(model=lambda: LM(pe="none", causal=False, rope=rope_on(2 if planted else 1)), data=prevtok(), loss=ceseq, diag=SEQ)

@case("https://github.com/raiyanyahya/how-to-train-your-gpt/issues/6", "rotate_half splits halves while frequencies are interleaved", "attn")
def gpt_ropemix(planted): return dict(model=lambda: LM(pe="none", rope=rope_on(1, mix=planted)), data=prevtok(), loss=ceseq, diag=SEQ)

@case("https://github.com/jsbaan/transformer-from-scratch/pull/6", "heads merged by reshape without permuting back: tokens mixed", "attn.o")
def scratch_nopermute(planted): return dict(model=lambda: LM(how="nopermute" if planted else None), data=reverse(), loss=ceseq, diag=SEQ)

@case("https://github.com/nerminnuraydogan/vision-transformer/issues/1", "attention softmax along the queries instead of the keys", "attn")
def vit_softmaxdim(planted):
    class ViT(nn.Module):
        def __init__(s):
            super().__init__(); s.patch = nn.Conv2d(3, 48, 4, 4); s.cls = nn.Parameter(torch.zeros(1, 1, 48)); s.pos = nn.Parameter(torch.randn(1, 17, 48) * .02)
            s.blocks = nn.ModuleList(Block(48, 4, "softmax_q" if planted else None) for _ in range(3)); s.norm = nn.LayerNorm(48); s.head = nn.Linear(48, 4)
        def forward(s, x):
            z = s.patch(x).flatten(2).transpose(1, 2); z = torch.cat([s.cls.expand(len(z), -1, -1), z], 1) + s.pos
            for b in s.blocks: z = b(z)
            return s.head(s.norm(z[:, 0]))
    P = T(9, 4, 3, 4, 4)
    def data(s):
        y = R(s, 4, (32,)); x = T(s + 1, 32, 3, 16, 16) * .7; pos = torch.randint(0, 4, (32, 2), generator=gen(s + 2)) * 4
        for i in range(32): x[i, :, pos[i, 0]:pos[i, 0] + 4, pos[i, 1]:pos[i, 1] + 4] += 1.5 * P[y[i]]
        return x, y
    return dict(model=ViT, data=data, loss=ce, diag=CE)

@case("https://github.com/lucidrains/Mega-pytorch/issues/2", "gated update mixes with the transformed x instead of the residual", "update gate")
def mega_residual(planted):
    class MegaLayer(nn.Module):
        def __init__(s, d):
            super().__init__(); s.ema = nn.Conv1d(d, d, 5, padding=4, groups=d); s.qk = nn.Linear(d, 16); s.v = nn.Linear(d, d); s.upd = nn.Linear(d, d); s.hid = nn.Linear(d, d); s.hx = nn.Linear(d, d, bias=False); s.norm = nn.LayerNorm(d)
        def forward(s, x):
            res = x; x = s.norm(x)
            x = F.silu(s.ema(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)); q = s.qk(x)
            a = (q @ q.transpose(1, 2) / 4).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e9).softmax(-1)
            att = a @ F.silu(s.v(x)); u = torch.sigmoid(s.upd(x)); h = F.silu(s.hid(x) + s.hx(att))
            return u * h + (1 - u) * (x if planted else res)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(10, 64); s.layers = nn.ModuleList(MegaLayer(64) for _ in range(6)); s.norm = nn.LayerNorm(64); s.head = nn.Linear(64, 10)
        def forward(s, x):
            z = s.emb(x)
            for l in s.layers: z = l(z)
            return s.head(s.norm(z))
    def data(s): x = R(s, 10, (32, 12)); return x, (x + torch.cat([x[:, :1], x[:, :-1]], 1)) % 10
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/mlc-ai/mlc-llm/pull/3426", "attention without 1/sqrt(head_dim)", "attn")
def mlc_noscale(planted): return dict(model=lambda: LM(d=128, h=1, how="noscale" if planted else None), data=reverse(), loss=ceseq, diag=SEQ)

@case("https://github.com/espnet/espnet/pull/465", "positional encoding module under no_grad: subsampling and input layers get no gradient", "sub")
def espnet_pe_nograd(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.sub = nn.Sequential(nn.Conv1d(20, 64, 3, 2, 1), nn.ReLU(), nn.Conv1d(64, 64, 3, 2, 1), nn.ReLU()); s.proj = nn.Linear(64, 64)
            s.register_buffer("pe", sincos(32, 64)); s.blocks = nn.ModuleList(Block(64, 4) for _ in range(2)); s.norm = nn.LayerNorm(64); s.head = nn.Linear(64, 6)
        def posenc(s, z):
            if planted:
                with torch.no_grad(): return z * 8 + s.pe[:z.shape[1]]
            return z * 8 + s.pe[:z.shape[1]]
        def forward(s, x):
            z = s.posenc(s.proj(s.sub(x).transpose(1, 2)))
            for b in s.blocks: z = b(z)
            return s.head(s.norm(z))
    P = T(7, 6, 20, 4)
    def data(s): y = R(s, 6, (24, 8)); x = P[y].permute(0, 2, 1, 3).reshape(24, 20, 32) + T(s + 1, 24, 20, 32) * 1.5; return x, y
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/leaderj1001/Attention-Augmented-Conv2d/issues/21", "attention output reshaped from (HW, dv) to (dv, H, W) without permuting", "attn output")
def aaconv_reshape(planted):
    class AA(nn.Module):
        def __init__(s, i, o, dk=8, dv=8, h=2): super().__init__(); s.dk, s.dv, s.h = dk, dv, h; s.conv = nn.Conv2d(i, o - dv, 3, padding=1); s.qkv = nn.Conv2d(i, 2 * dk + dv, 1); s.out = nn.Conv2d(dv, dv, 1)
        def forward(s, x):
            B, _, H, W = x.shape; q, k, v = s.qkv(x).flatten(2).split([s.dk, s.dk, s.dv], 1)
            q, k, v = (t.view(B, s.h, -1, H * W) for t in (q, k, v))
            a = (q.transpose(2, 3) @ k * (s.dk // s.h) ** -.5).softmax(-1); y = a @ v.transpose(2, 3)     # B h HW dv
            y = y.reshape(B, s.dv, H, W) if planted else y.transpose(2, 3).reshape(B, s.dv, H, W)
            return torch.cat([s.conv(x), s.out(y)], 1)
    def model(): return nn.Sequential(AA(3, 24), nn.BatchNorm2d(24), nn.ReLU(), AA(24, 24), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 3, 1))
    K = T(3, 3, 3, 3, 3) * .4
    def data(s): x = T(s, 16, 3, 10, 10); z = F.conv2d(x, K, padding=1) + x.mean((2, 3), keepdim=True) * 6; return x, z.argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)
