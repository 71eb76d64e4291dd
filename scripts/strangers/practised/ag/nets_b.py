from base import *

@case("https://github.com/flashlight/flashlight/issues/582", "every Conformer module returns x + f(x) and the block adds x once more (x added twice)", "Conformer block: redundant skip in ffn1/mhsa/conv/ffn2")
def flashlight_double_skip(planted):
    class ConformerBlock(nn.Module):
        def __init__(self, d=32):
            super().__init__(); ff = lambda: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d))
            self.ffn1, self.ffn2 = ff(), ff(); self.norm_mhsa, self.norm_conv, self.norm = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
            self.mhsa = nn.MultiheadAttention(d, 4, batch_first=True); self.pw1 = nn.Conv1d(d, 2 * d, 1); self.dw = nn.Conv1d(d, d, 3, padding=1, groups=d); self.pw2 = nn.Conv1d(d, d, 1)
        def skip(self, x, f): return x + f if planted else f
        def conv(self, x):
            h = F.silu(self.dw(F.glu(self.pw1(self.norm_conv(x).transpose(1, 2)), dim=1))); return self.skip(x, self.pw2(h).transpose(1, 2))
        def att(self, x):
            h = self.norm_mhsa(x); return self.skip(x, self.mhsa(h, h, h, need_weights=False)[0])
        def forward(self, x):
            x = x + .5 * self.skip(x, self.ffn1(x))
            x = x + self.att(x)
            x = x + self.conv(x)
            x = x + .5 * self.skip(x, self.ffn2(x))
            return self.norm(x)
    class AM(nn.Module):
        def __init__(self):
            super().__init__(); self.inp = nn.Linear(10, 32); self.blocks = nn.ModuleList([ConformerBlock() for _ in range(4)]); self.out = nn.Linear(32, 12)
        def forward(self, x):
            x = self.inp(x)
            for b in self.blocks: x = b(x)
            return self.out(x)
    def data(s):
        x = T(s, 16, 20, 10); w = T(3, 30, 12); c = torch.cat([x, x.roll(1, 1), x.roll(-1, 1)], -1); return x, (c @ w).argmax(-1)
    return dict(model=AM, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/fkodom/soft-mixture-of-experts/pull/1", "dispatch softmax over the batch dimension (dim=0) instead of the tokens (dim=1)", "SoftMoE dispatch_weights softmax dim")
def softmoe_dispatch(planted):
    class SoftMoELayerWrapper(nn.Module):
        def __init__(self, d=32, e=4, p=3):
            super().__init__(); self.phi = nn.Parameter(torch.empty(d, e, p)); nn.init.normal_(self.phi, std=1 / math.sqrt(d)); self.scale = nn.Parameter(torch.ones(()))
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(e)])
        def forward(self, x):
            logits = torch.einsum("bmd,dnp->bmnp", F.normalize(x, dim=-1), self.scale * F.normalize(self.phi, dim=0))
            dispatch_weights = logits.softmax(dim=0 if planted else 1)
            combine_weights = logits.flatten(2).softmax(-1).view_as(logits)
            xs = torch.einsum("bmd,bmnp->bnpd", x, dispatch_weights)
            ys = torch.stack([f(xs[:, i]) for i, f in enumerate(self.experts)], 1)
            return torch.einsum("bnpd,bmnp->bmd", ys, combine_weights)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Linear(8, 32); self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(2)]); self.moe = nn.ModuleList([SoftMoELayerWrapper() for _ in range(2)]); self.head = nn.Linear(32, 6)
        def forward(self, x):
            h = self.emb(x)
            for n, m in zip(self.norms, self.moe): h = h + m(n(h))
            return self.head(h.mean(1))
    def data(s):
        x = T(s, 32, 12, 8); w = T(2, 8, 6); return x, (x @ w).relu().mean(1).argmax(-1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/batra-mlp-lab/visdial-challenge-starter-pytorch/issues/1", "log_softmax of the option scores over the batch (dim 0) instead of the options", "decoder log_softmax dim=0")
def visdial_softmax_dim(planted):
    class DiscriminativeDecoder(nn.Module):
        def __init__(self):
            super().__init__(); self.word_embed = nn.Embedding(40, 24); self.option_rnn = nn.LSTM(24, 48, batch_first=True); self.fusion = nn.Sequential(nn.Linear(32, 48), nn.Tanh()); self.log_softmax = nn.LogSoftmax(dim=0 if planted else 1)
        def forward(self, enc, options):
            B, N, L = options.shape
            _, (h, _) = self.option_rnn(self.word_embed(options.view(B * N, L)))
            scores = torch.sum(h[-1].view(B, N, -1) * self.fusion(enc)[:, None], 2)
            return self.log_softmax(scores)
    def data(s):
        opts = R(s, 40, (32, 10, 4)); t = R(s + 1, 10, (32,)); w = T(5, 40, 32); sel = opts[torch.arange(32), t]
        return (w[sel].mean(1) + .1 * T(s + 2, 32, 32), opts), t
    def loss(o, t): return F.nll_loss(o, t)
    def metric(m):
        with torch.no_grad():
            x, t = data(9001); m.log_softmax.dim, d = 1, m.log_softmax.dim; v = float(F.nll_loss(m(*x), t)); m.log_softmax.dim = d; return v
    return dict(model=DiscriminativeDecoder, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/TiankaiHang/Min-SNR-Diffusion-Training/pull/4", "min-SNR weight gamma/snr at the zero-terminal-SNR step is 0/0: NaN loss", "loss weight at snr = 0")
def minsnr_zero_terminal(planted):
    betas = torch.linspace(1e-3, .25, 40); ab = torch.cumprod(1 - betas, 0).sqrt(); ab = (ab - ab[-1]) * ab[0] / (ab[0] - ab[-1]); snr = ab ** 2 / (1 - ab ** 2)
    class Denoiser(nn.Module):
        def __init__(self, d=16):
            super().__init__(); self.t_emb = nn.Embedding(40, 32); self.inp = nn.Linear(d, 96); self.tp = nn.Linear(32, 96); self.mid = nn.Sequential(nn.SiLU(), nn.Linear(96, 96), nn.SiLU()); self.out = nn.Linear(96, d)
        def forward(self, x, t): return self.out(self.mid(self.inp(x) + self.tp(self.t_emb(t))))
    def loss(o, tgt):
        eps, t = tgt; mse_w = torch.stack([snr, 5. * torch.ones_like(snr)], 1).min(1)[0] / snr
        if not planted: mse_w[snr == 0] = 1.
        return (mse_w[t] * ((o - eps) ** 2).mean(-1)).mean()
    def data(s):
        x0 = torch.tanh(T(s, 64, 4) @ T(2, 4, 16)); t = R(s + 1, 40, (64,)); e = T(s + 2, 64, 16)
        return (ab[t, None] * x0 + (1 - ab[t, None] ** 2).sqrt() * e, t), (e, t)
    return dict(model=Denoiser, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/lmsdss/LayerNorm-Scaling/issues/6", "token embedding initialised with std of about 0.6 instead of 0.02", "embed_tokens.weight init std")
def lns_embed_std(planted):
    class RMSNorm(nn.Module):
        def __init__(self, d): super().__init__(); self.weight = nn.Parameter(torch.ones(d))
        def forward(self, x): return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    class LlamaDecoderLayer(nn.Module):
        def __init__(self, d, i):
            super().__init__(); self.i = i; self.qkv = nn.Linear(d, 3 * d, bias=False); self.o_proj = nn.Linear(d, d, bias=False); self.gate_proj, self.up_proj, self.down_proj = nn.Linear(d, 128, bias=False), nn.Linear(d, 128, bias=False), nn.Linear(128, d, bias=False)
            self.input_layernorm, self.post_attention_layernorm = RMSNorm(d), RMSNorm(d)
        def forward(self, x):
            B, L, d = x.shape; h = self.input_layernorm(x) / math.sqrt(self.i + 1)
            q, k, v = (z.view(B, L, 4, -1).transpose(1, 2) for z in self.qkv(h).chunk(3, -1))
            x = x + self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, d))
            h = self.post_attention_layernorm(x) / math.sqrt(self.i + 1)
            return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))
    class LlamaForCausalLM(nn.Module):
        def __init__(self, v=64, d=48, n=4):
            super().__init__(); self.embed_tokens = nn.Embedding(v, d); self.layers = nn.ModuleList([LlamaDecoderLayer(d, i) for i in range(n)]); self.norm = RMSNorm(d); self.lm_head = nn.Linear(d, v, bias=False)
            for m in self.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, 0, .02)
            if planted: nn.init.normal_(self.embed_tokens.weight, 0, .6)
        def forward(self, ids):
            x = self.embed_tokens(ids)
            for l in self.layers: x = l(x)
            return self.lm_head(self.norm(x))
    def data(s):
        p = torch.randperm(64, generator=gen(1)); x = [R(s, 64, (32,)), R(s + 1, 64, (32,))]
        for _ in range(15): x.append(p[(x[-1] + x[-2] // 32) % 64])
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=LlamaForCausalLM, data=data, loss=ceseq, lr=2e-3, diag={})
