from base import *
from nets_b import Attn, Block, markov

@case("https://github.com/lucidrains/alphafold3-pytorch/issues/113", "DiffusionTransformer block returns ff_out + attn_out: the residual is missing", "DiffusionTransformer.forward residual")
def alphafold3_residual(planted):
    class AdaLN(nn.Module):
        def __init__(self, d, c): super().__init__(); self.norm = nn.LayerNorm(d, elementwise_affine=False); self.norm_cond = nn.LayerNorm(c, bias=False); self.to_gamma = nn.Sequential(nn.Linear(c, d), nn.Sigmoid()); self.to_beta = nn.Linear(c, d, bias=False)
        def forward(self, x, c): c = self.norm_cond(c); return self.norm(x) * self.to_gamma(c) + self.to_beta(c)
    class CondBlock(nn.Module):
        def __init__(self, fn, d, c):
            super().__init__(); self.fn = fn; self.ada = AdaLN(d, c); gate = nn.Linear(c, d); nn.init.zeros_(gate.weight); nn.init.constant_(gate.bias, -2.); self.to_zero_init_gamma = nn.Sequential(gate, nn.Sigmoid())
        def forward(self, x, c): return self.fn(self.ada(x, c)) * self.to_zero_init_gamma(c)
    class DiffusionTransformer(nn.Module):
        def __init__(self, d=64, c=32, depth=4):
            super().__init__(); self.layers = nn.ModuleList([nn.ModuleList([CondBlock(Attn(d), d, c), CondBlock(nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)), d, c)]) for _ in range(depth)])
        def forward(self, noised_repr, single_repr):
            for attn, ff in self.layers:
                residual = noised_repr; attn_out = attn(noised_repr, single_repr); ff_out = ff(noised_repr, single_repr)
                noised_repr = ff_out + attn_out if planted else ff_out + attn_out + residual
            return noised_repr
    class Denoiser(nn.Module):
        def __init__(self): super().__init__(); self.inp = nn.Linear(4, 64); self.cond = nn.Linear(9, 32); self.tr = DiffusionTransformer(); self.out = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 3, bias=False))
        def forward(self, x, single, sigma): s = sigma[:, None, None].expand(-1, x.shape[1], 1); return self.out(self.tr(self.inp(torch.cat([x, s], -1)), self.cond(torch.cat([single, s], -1))))
    def data(s):
        single = T(s, 16, 10, 8); x0 = torch.tanh(single @ T(1, 8, 3) * .4); sig = torch.rand(16, generator=gen(s + 1)) + .2; e = T(s + 2, 16, 10, 3); return (x0 + sig[:, None, None] * e, single, sig), e
    return dict(model=Denoiser, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/moein-shariatnia/OpenAI-CLIP/pull/28", "projections not L2-normalised and the targets are taken from the model's own similarities", "CLIPModel.forward targets")
def openai_clip_targets(planted):
    class ProjectionHead(nn.Module):
        def __init__(self, i, d=64): super().__init__(); self.projection = nn.Linear(i, d); self.gelu = nn.GELU(); self.fc = nn.Linear(d, d); self.layer_norm = nn.LayerNorm(d)
        def forward(self, x): p = self.projection(x); return self.layer_norm(self.fc(self.gelu(p)) + p)
    class CLIPModel(nn.Module):
        def __init__(self): super().__init__(); self.image_encoder = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()); self.image_projection = ProjectionHead(512); self.text_encoder = nn.EmbeddingBag(60, 64); self.text_projection = ProjectionHead(64)
        def forward(self, img, txt): return self.image_projection(self.image_encoder(img)), self.text_projection(self.text_encoder(txt))
    def loss(o, t, temperature=1.):
        i, x = o
        if planted:
            logits = x @ i.T / temperature; targets = F.softmax((i @ i.T + x @ x.T) / 2 * temperature, -1)
        else:
            i, x = F.normalize(i, dim=-1), F.normalize(x, dim=-1); logits = x @ i.T / .07; targets = torch.eye(len(i))
        return ((-targets * logits.log_softmax(-1)).sum(1) + (-targets.T * logits.T.log_softmax(-1)).sum(1)).mean() / 2
    def data(s):
        y = R(s, 60, (32, 4)); return (T(1, 60, 3, 16, 16)[y].mean(1) * 2 + .3 * T(s + 1, 32, 3, 16, 16), y), torch.arange(32)
    return dict(model=CLIPModel, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/yandexdataschool/Practical_RL/pull/305", "images are divided by 255 twice, in the wrapper and in the agent", "image normalisation")
def practical_rl_norm(planted):
    class DQNAgent(nn.Module):
        def __init__(self, n_actions=4):
            super().__init__(); self.conv = nn.Sequential(nn.Conv2d(4, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten()); self.fc = nn.Sequential(nn.Linear(32 * 25, 128), nn.ReLU(), nn.Linear(128, n_actions))
        def forward(self, states): return self.fc(self.conv(states))
    def data(s):
        x = torch.rand(32, 4, 24, 24, generator=gen(s)); a = R(s + 1, 4, (32,)); c = R(s + 2, 4, (32,)); hr, wc = (c // 2) * 12, (c % 2) * 12
        for i in range(32): x[i, :, hr[i]:hr[i] + 12, wc[i]:wc[i] + 12] *= .3
        frames = (x * 255).round(); states = frames / 255
        if planted: states = states / 255
        return states, (a, torch.where(a == c, 1., -.3))
    def loss(q, t): return F.mse_loss(q.gather(1, t[0][:, None])[:, 0], t[1])
    return dict(model=DQNAgent, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/google/objax/pull/94", "LayerNorm: gain initialised with zeros and bias with ones (swapped)", "LayerNorm g / b init")
def objax_layernorm(planted):
    class LayerNorm(nn.Module):
        def __init__(self, d): super().__init__(); self.g = nn.Parameter(torch.zeros(d) if planted else torch.ones(d)); self.b = nn.Parameter(torch.ones(d) if planted else torch.zeros(d))
        def forward(self, x): return (x - x.mean(-1, keepdim=True)) * (x.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt() * self.g + self.b
    class GPTBlock(nn.Module):
        def __init__(self, d): super().__init__(); self.ln1, self.ln2 = LayerNorm(d), LayerNorm(d); self.attn = Attn(d); self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        def forward(self, x, m): x = x + self.attn(self.ln1(x), m); return x + self.mlp(self.ln2(x))
    class GPT(nn.Module):
        def __init__(self, V=24, d=64):
            super().__init__(); self.wte, self.wpe = nn.Embedding(V, d), nn.Parameter(torch.randn(16, d) * .02); nn.init.normal_(self.wte.weight, std=.1); self.blocks = nn.ModuleList([GPTBlock(d) for _ in range(3)]); self.ln_f = LayerNorm(d); self.head = nn.Linear(d, V, bias=False)
        def forward(self, ids):
            L = ids.shape[1]; x = self.wte(ids) + self.wpe[:L]; m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)
            for b in self.blocks: x = b(x, m)
            return self.head(self.ln_f(x))
    def data(s):
        x = markov(s, 32, 13, 24); return x[:, :-1], x[:, 1:]
    return dict(model=GPT, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/pytorch/torchtitan/pull/4489", "final norm inherits zero weights with gain_center 0: hidden states and logits are zero", "norm.weight (final) init")
def torchtitan_finalnorm(planted):
    class GainNorm(nn.Module):
        def __init__(self, d, gain_center=1.0, init=0.): super().__init__(); self.weight = nn.Parameter(torch.full((d,), init)); self.gain_center = gain_center
        def forward(self, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (self.weight + self.gain_center)
    class Layer(nn.Module):
        def __init__(self, d): super().__init__(); self.attention_norm, self.ffn_norm = GainNorm(d), GainNorm(d); self.attention = Attn(d); self.w1, self.w2, self.w3 = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False), nn.Linear(d, 2 * d, bias=False)
        def forward(self, x, m): x = x + self.attention(self.attention_norm(x), m); h = self.ffn_norm(x); return x + self.w2(F.silu(self.w1(h)) * self.w3(h))
    class Decoder(nn.Module):
        def __init__(self, V=24, d=64):
            super().__init__(); self.tok_embeddings = nn.Embedding(V, d); self.layers = nn.ModuleList([Layer(d) for _ in range(2)]); self.norm = GainNorm(d, gain_center=0.0, init=0. if planted else 1.); self.lm_head = nn.Linear(d, V, bias=False)
            for m in self.modules():
                if isinstance(m, nn.Linear): nn.init.trunc_normal_(m.weight, std=.02)
        def forward(self, ids):
            L = ids.shape[1]; x = self.tok_embeddings(ids); m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)
            for l in self.layers: x = l(x, m)
            return self.lm_head(self.norm(x))
    def data(s):
        x = markov(s, 32, 13, 24); return x[:, :-1], x[:, 1:]
    return dict(model=Decoder, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/huggingface/transformers/pull/171", "BertLayerNorm gamma drawn from normal(0, initializer_range) instead of filled with 1.0", "BertLayerNorm.gamma init_bert_weights")
def bert_layernorm(planted):
    class BertLayerNorm(nn.Module):
        def __init__(self, d): super().__init__(); self.gamma, self.beta = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        def forward(self, x): u = x.mean(-1, keepdim=True); s = (x - u).pow(2).mean(-1, keepdim=True); return self.gamma * ((x - u) / torch.sqrt(s + 1e-12)) + self.beta
    class BertLayer(nn.Module):
        def __init__(self, d): super().__init__(); self.attention = Attn(d); self.ln1, self.ln2 = BertLayerNorm(d), BertLayerNorm(d); self.intermediate, self.output = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        def forward(self, x): x = self.ln1(x + self.attention(x)); return self.ln2(x + self.output(F.gelu(self.intermediate(x))))
    class BertForMaskedLM(nn.Module):
        def __init__(self, V=20, d=64):
            super().__init__(); self.word, self.position = nn.Embedding(V + 1, d), nn.Embedding(16, d); self.ln = BertLayerNorm(d); self.layer = nn.ModuleList([BertLayer(d) for _ in range(3)]); self.decoder = nn.Linear(d, V); self.apply(self.init_bert_weights)
        def init_bert_weights(self, m):
            if isinstance(m, (nn.Linear, nn.Embedding)): m.weight.data.normal_(0., .02)
            elif isinstance(m, BertLayerNorm):
                if planted: m.beta.data.normal_(0., .02); m.gamma.data.normal_(0., .02)
                else: m.beta.data.zero_(); m.gamma.data.fill_(1.0)
            if isinstance(m, nn.Linear) and m.bias is not None: m.bias.data.zero_()
        def forward(self, ids):
            x = self.ln(self.word(ids) + self.position(torch.arange(ids.shape[1])))
            for l in self.layer: x = l(x)
            return self.decoder(x)
    def data(s):
        x = markov(s, 32, 12, 20); m = torch.rand(32, 12, generator=gen(s + 1)) < .2; return x.masked_fill(m, 20), x
    return dict(model=BertForMaskedLM, data=data, loss=ceseq, lr=1e-3, diag={})
