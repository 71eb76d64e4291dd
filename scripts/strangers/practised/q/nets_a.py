from mods import *
class MakeMoE(nn.Module):
    def __init__(s, d, E=4, k=2, planted=False):
        super().__init__(); s.router = nn.Linear(d, E); s.experts = nn.ModuleList(mlp(d, 2, nn.ReLU) for _ in range(E)); s.k, s.planted = k, planted
    def forward(s, x):
        lg = s.router(x); top, idx = lg.topk(s.k, -1); gate = torch.full_like(lg, NEG).scatter(-1, idx, top).softmax(-1)
        out = torch.zeros_like(x); fx = x.reshape(-1, x.shape[-1]); fg = gate.reshape(-1, gate.shape[-1]); fo = torch.zeros_like(fx)
        for i, e in enumerate(s.experts):
            m = (idx == i).any(-1); fm = m.view(-1)
            if fm.any():
                w = e(fx[fm]) * fg[fm, i].unsqueeze(1)
                if s.planted: out = out.masked_scatter(m.unsqueeze(-1), w)
                else: fo = fo.index_add(0, fm.nonzero()[:, 0], w)
        return out if s.planted else fo.view_as(x)
@case("https://github.com/AviSoori1x/makeMoE/issues/2", "masked_scatter overwrites the output of earlier experts instead of adding", "mlp.experts")
def makemoe_overwrite(planted):
    def model(): return GPT(block=lambda i: Block(48, 4, ff=MakeMoE(48, planted=planted), causal=True))
    return dict(model=model, data=copy, loss=ceseq, diag=dict(SEQ))

class SharedMoE(nn.Module):
    def __init__(s, d, E=4, planted=False):
        super().__init__(); s.gate = nn.Linear(d, E, bias=False); s.shared = mlp(d, 2); s.experts = nn.ModuleList(mlp(d, 2) for _ in range(E)); s.planted = planted
    def forward(s, x):
        p = s.gate(x).softmax(-1); v, i = p.topk(2, -1); w = torch.zeros_like(p).scatter(-1, i, v)
        sh = s.shared(x); out = sum(e(x) * w[..., j:j + 1] for j, e in enumerate(s.experts)); return out if s.planted else out + sh
@case("https://github.com/divyamakkar0/JAXformer/issues/21", "only the routed experts are returned, the shared expert's output is dropped", "mlp.shared")
def jaxformer_shared(planted):
    def model(): return GPT(block=lambda i: Block(48, 4, ff=SharedMoE(48, planted=planted), causal=True))
    return dict(model=model, data=copy, loss=ceseq, diag=dict(SEQ))

class AuxMoE(nn.Module):
    def __init__(s, d, E=8): super().__init__(); s.gate = nn.Linear(d, E, bias=False); s.experts = nn.ModuleList(mlp(d, 1) for _ in range(E))
    def forward(s, x):
        lg = s.gate(x); p = lg.softmax(-1); v, i = p.topk(2, -1); v = v / v.sum(-1, keepdim=True); w = torch.zeros_like(p).scatter(-1, i, v)
        s.last = (lg, p, (w > 0).float()); return sum(e(x) * w[..., j:j + 1] for j, e in enumerate(s.experts))
@case("https://github.com/huggingface/transformers/issues/45120", "the router returns probabilities as logits, the balancing loss softmaxes them again", "gate / auxiliary loss")
def double_softmax_aux(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.net = GPT(block=lambda i: Block(48, 4, ff=AuxMoE(48), causal=True))
        def forward(s, x):
            y = s.net(x); outs = [b.mlp.last for b in s.net.blocks]
            return y, torch.stack([o[1] if planted else o[0] for o in outs], 1), torch.stack([o[2] for o in outs], 1)
    def loss(o, t):
        y, lg, hit = o; p = lg.softmax(-1).mean((0, 1, 2)); f = hit.mean((0, 1, 2)); return ceseq(y, t) + .02 * 8 * (f * p).sum()
    return dict(model=Net, data=copy, loss=loss, diag={})

class BiasMoE(nn.Module):
    def __init__(s, d, E=8, k=4, planted=False):
        super().__init__(); s.gate = nn.Linear(d, E); s.up = nn.Parameter(torch.randn(E, d, 2 * d) * d ** -.5); s.down = nn.Parameter(torch.randn(E, 2 * d, d) * (2 * d) ** -.5)
        s.down_bias = nn.Parameter(torch.randn(E, d) * .5); s.k, s.planted = k, planted
    def forward(s, x):
        v, i = s.gate(x).topk(s.k, -1); w = torch.zeros(*x.shape[:-1], s.up.shape[0]).scatter(-1, i, v.softmax(-1))
        h = F.gelu(torch.einsum("btd,edf->btef", x, s.up)); y = torch.einsum("btef,efd->bted", h * w.unsqueeze(-1), s.down)
        b = (w > 0).float() if s.planted else w; return y.sum(2) + b @ s.down_bias
@case("https://github.com/NVIDIA-NeMo/Automodel/pull/2591", "the experts' down bias is added unweighted by the routing probability", "mlp.down_bias")
def automodel_down_bias(planted):
    def model(): return GPT(block=lambda i: Block(48, 4, ff=BiasMoE(48, planted=planted), causal=True))
    return dict(model=model, data=copy, loss=ceseq, diag=dict(SEQ))

@case("https://github.com/ByteDance-Seed/VeOmni/issues/414", "inv_freq of RoPE is all zero during training: no positions", "attn.rope")
def veomni_rope_zero(planted):
    def model():
        r = Rope(12, torch.zeros(6) if planted else None); return GPT(pos=False, block=lambda i: Block(48, 4, causal=True, rope=r))
    return dict(model=model, data=lambda s: copy(s, k=2), loss=ceseq, diag=dict(SEQ))

@case("https://github.com/ReaLLMASIC/ReaLLM-Forge/pull/35", "operator precedence: arange / dim // 2 floors the RoPE exponents to zero (all frequencies 1)", "attn.rope")
def reallm_rope_floor(planted):
    def model():
        d = 12; e = torch.arange(0, d // 2).float() / d // 2 if planted else torch.arange(0, d // 2).float() / (d // 2)
        r = Rope(d, 1.0 / (10000 ** e)); return GPT(pos=False, block=lambda i: Block(48, 4, causal=True, rope=r))
    return dict(model=model, data=lambda s: copy(s, k=2), loss=ceseq, diag=dict(SEQ))

@case("https://github.com/huggingface/transformers/issues/48745", "the decoder is not causal: every position sees its label", "attn (mask)")
def roformer_not_causal(planted):
    def model(): return GPT(pos=False, block=lambda i: Block(48, 4, causal=not planted, rope=Rope(12)))
    return dict(model=model, data=markov, loss=ceseq, diag=dict(SEQ))

@case("https://github.com/esceptico/perceiver-io/issues/9", "attention scores divided by head_dim**-0.5 (multiplied by its root)", "cross attention")
def perceiver_scale(planted):
    class X(nn.Module):
        def __init__(s, d, h=4):
            super().__init__(); s.nq, s.nk = nn.LayerNorm(d), nn.LayerNorm(d); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.h = h; s.scale = (d // h) ** -.5; s.ln = nn.LayerNorm(d); s.mlp = mlp(d)
        def forward(s, x, c):
            B, T, D = x.shape; sp = lambda z: z.view(B, -1, s.h, D // s.h).transpose(1, 2); c = s.nk(c); q, k, v = sp(s.q(s.nq(x))), sp(s.k(c)), sp(s.v(c))
            a = q @ k.transpose(-2, -1); a = a / s.scale if planted else a * s.scale
            x = x + s.o((a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D)); return x + s.mlp(s.ln(x))
    class Net(nn.Module):
        def __init__(s, d=64):
            super().__init__(); s.emb = nn.Linear(48, d); s.pos = nn.Parameter(torch.randn(16, d) * .5); s.lat = nn.Parameter(torch.randn(8, d)); s.cross = X(d); s.selfs = nn.ModuleList(X(d) for _ in range(2)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 8)
        def forward(s, x):
            c = s.emb(F.unfold(x, 4, stride=4).transpose(1, 2)) + s.pos; z = s.cross(s.lat.expand(len(x), -1, -1), c)
            for b in s.selfs: z = b(z, z)
            return s.head(s.norm(z).mean(1))
    return dict(model=Net, data=images, loss=ce, diag=dict(CE))

@case("https://github.com/lucidrains/vit-pytorch/issues/65", "attention scaled by dim**-0.5 instead of dim_head**-0.5", "attn")
def vit_scale_dim(planted):
    def model(): return ViT(block=lambda i: Block(48, 8, scale=48 ** -.5 if planted else None))
    return dict(model=model, data=images, loss=ce, diag=dict(CE))

class MugenBlock(Block):
    def forward(s, x, bias=None):
        x = s.attn(s.norm1(x)); x = x + x; x = s.mlp(s.norm2(x)); return x + x
@case("https://github.com/facebookresearch/multimodal/pull/305", "the layer's output overwrites the input before the residual addition (x + f becomes f + f)", "blocks (residual)")
def mugen_residual(planted):
    def model(): return GPT(L=4, block=lambda i: (MugenBlock if planted else Block)(48, 4, causal=True))
    return dict(model=model, data=copy, loss=ceseq, diag=dict(SEQ))

class MaxBlock(nn.Module):
    def __init__(s, d, planted):
        super().__init__(); s.mb = nn.Sequential(nn.Conv2d(d, 2 * d, 1), nn.BatchNorm2d(2 * d), nn.GELU(), nn.Conv2d(2 * d, 2 * d, 3, padding=1, groups=2 * d), nn.BatchNorm2d(2 * d), nn.GELU(), nn.Conv2d(2 * d, d, 1))
        s.norm_1, s.norm_2, s.attention, s.mlp, s.planted = nn.LayerNorm(d), nn.LayerNorm(d), MHA(d, 4), mlp(d), planted
    def forward(s, x):
        x = x + s.mb(x); B, C, H, W = x.shape; w = x.view(B, C, H // 4, 4, W // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, C)
        o = w + s.attention(s.norm_1(w)); m = s.mlp(s.norm_2(o)); o = o * m if s.planted else o + m
        return o.view(B, H // 4, W // 4, 4, 4, C).permute(0, 5, 1, 3, 2, 4).reshape(B, C, H, W)
@case("https://github.com/ChristophReich1996/MaxViT/issues/8", "output * mlp(...) instead of output + mlp(...) at the second skip connection", "blocks.mlp (residual)")
def maxvit_mul(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = nn.Conv2d(3, 32, 3, 2, 1); s.blocks = nn.ModuleList(MaxBlock(32, planted) for _ in range(3)); s.norm = nn.LayerNorm(32); s.head = nn.Linear(32, 8)
        def forward(s, x):
            x = s.stem(x)
            for b in s.blocks: x = b(x)
            return s.head(s.norm(x.mean((2, 3))))
    return dict(model=Net, data=images, loss=ce, diag=dict(CE))

class LNSBlock(Block):
    def __init__(s, i, planted): super().__init__(48, 4, causal=True); s.register_buffer("ln_scale", torch.zeros(()) if planted else torch.tensor((i + 1) ** -.5))
    def forward(s, x, bias=None):
        x = x + s.attn(s.norm1(x) * s.ln_scale); return x + s.mlp(s.norm2(x) * s.ln_scale)
@case("https://github.com/allenai/OLMo-core/pull/698", "to_empty erases the LayerNorm-scaling buffer: ln_scale is 0", "blocks.ln_scale")
def olmo_ln_scale(planted):
    def model(): return GPT(L=3, block=lambda i: LNSBlock(i, planted))
    return dict(model=model, data=copy, loss=ceseq, diag=dict(SEQ))

class RMS(nn.Module):
    def __init__(s, d, planted=False): super().__init__(); s.scale = nn.Parameter(torch.ones(d)); s.planted = planted
    def forward(s, x): return s.scale * x * torch.rsqrt(x.pow(2).mean((1, 2) if s.planted else -1, keepdim=True) + 1e-6)
@case("https://github.com/bkitano/llama-from-scratch/issues/4", "RMSNorm takes the mean square over tokens and features", "norm1 / norm2")
def llama_rms_axes(planted):
    def blk(i):
        b = Block(48, 4, causal=True, rope=Rope(12)); b.norm1, b.norm2 = RMS(48, planted), RMS(48, planted); return b
    def model(): m = GPT(pos=False, block=blk); m.norm = RMS(48, planted); return m
    return dict(model=model, data=copy, loss=ceseq, diag=dict(SEQ))

@case("https://github.com/PiotrNawrot/nanoT5/issues/25", "untied lm_head drawn with std 1 instead of d**-0.5", "head")
def nanot5_head_std(planted):
    def model(): m = GPT(V=32, d=64); nn.init.normal_(m.wte.weight, std=1.); nn.init.normal_(m.head.weight, std=1. if planted else 64 ** -.5); return m
    return dict(model=model, data=lambda s: copy(s, V=32), loss=ceseq, diag=dict(SEQ))
