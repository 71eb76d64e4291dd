from base import *
def sinus(n, d):
    pe = torch.zeros(n, d); pos = torch.arange(n).float()[:, None]; div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d)); pe[:, 0::2] = torch.sin(pos * div); pe[:, 1::2] = torch.cos(pos * div); return pe
def markov(s, n, L, V, seed=3, conc=3.):
    P = torch.softmax(T(seed, V, V) * conc, -1); g = gen(s); x = [torch.randint(0, V, (n,), generator=g)]
    for _ in range(L - 1): x.append(torch.multinomial(P[x[-1]], 1, generator=g)[:, 0])
    return torch.stack(x, 1)
def positional(s, n=32, L=12, V=16):
    x = R(s, V, (n, L)); return x, x.roll(1, 1)
class Attn(nn.Module):
    def __init__(self, d, h=4):
        super().__init__(); self.h = h; self.qkv = nn.Linear(d, 3 * d); self.proj = nn.Linear(d, d)
    def forward(self, x, mask=None):
        B, L, D = x.shape; q, k, v = self.qkv(x).view(B, L, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        a = q @ k.transpose(-2, -1) * (D // self.h) ** -.5
        if mask is not None: a = a.masked_fill(mask, -1e9)
        return self.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(B, L, D))
class Block(nn.Module):
    def __init__(self, d, h=4):
        super().__init__(); self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d); self.attn = Attn(d, h); self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x, mask=None): x = x + self.attn(self.norm1(x), mask); return x + self.mlp(self.norm2(x))

@case("https://github.com/NeuracoreAI/neuracore/pull/154", "PositionalEncoding unsqueezes the table on dim 0, the forward slices by x.size(0): position encodings run over the wrong dimension", "PositionalEncoding.pe")
def neuracore_pe(planted):
    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len=100):
            super().__init__(); pe = sinus(max_len, d_model); self.register_buffer("pe", pe.unsqueeze(0 if planted else 1))
        def forward(self, x): return x + (self.pe[:, : x.size(1)] if planted else self.pe[: x.size(0)])
    class Policy(nn.Module):
        def __init__(self, V=16, d=64):
            super().__init__(); self.emb = nn.Embedding(V, d); self.pos = PositionalEncoding(d); layer = nn.TransformerEncoderLayer(d, 4, 128, dropout=0., norm_first=True); self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False); self.head = nn.Linear(d, V)
        def forward(self, ids):
            x = self.pos(self.emb(ids).transpose(0, 1)); return self.head(self.encoder(x)).transpose(0, 1)
    return dict(model=Policy, data=positional, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/tanjimin/C.Origami/issues/42", "batch-first input to a PositionalEncoding that slices pe by x.size(0): every position of a sample gets the same encoding", "PositionalEncoding.forward")
def corigami_pe(planted):
    class PositionalEncoding(nn.Module):
        def __init__(self, hidden, max_len=256): super().__init__(); self.register_buffer("pe", sinus(max_len, hidden).unsqueeze(1))
        def forward(self, x): return x + (self.pe[: x.size(0)] if planted else self.pe[: x.size(1)].transpose(0, 1))
    class AttnModule(nn.Module):
        def __init__(self, hidden=64):
            super().__init__(); self.pos = PositionalEncoding(hidden); self.blocks = nn.ModuleList([Block(hidden) for _ in range(2)])
        def forward(self, x):
            x = self.pos(x)
            for b in self.blocks: x = b(x)
            return x
    class ConvTransModel(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Conv1d(4, 64, 3, padding=1), nn.BatchNorm1d(64), nn.ReLU()); self.attn = AttnModule(); self.decoder = nn.Conv1d(64, 1, 1)
        def forward(self, x):
            x = self.encoder(x).transpose(-1, -2).contiguous(); x = self.attn(x); return self.decoder(x.transpose(-1, -2)).squeeze(1)
    def data(s):
        x = T(s, 32, 4, 20); d = torch.arange(20.) / 20; return x, 2 * torch.sin(6.28 * d) + .5 * x[:, 0] + x[:, 1] * (d > .5)
    return dict(model=ConvTransModel, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/lucidrains/halonet-pytorch/pull/6", "the padding mask of the halo attention is inverted: valid pixels masked, padding attended", "HaloAttention mask")
def halonet_mask(planted):
    class HaloAttention(nn.Module):
        def __init__(self, dim, block=4, halo=2, heads=4, dim_head=16):
            super().__init__(); inner = heads * dim_head; self.b, self.halo, self.h, self.scale = block, halo, heads, dim_head ** -.5
            self.to_q = nn.Linear(dim, inner, bias=False); self.to_kv = nn.Linear(dim, 2 * inner, bias=False); self.to_out = nn.Linear(inner, dim); w = block + 2 * halo
            self.rel = nn.Parameter(torch.randn(block * block, w * w) * .02)
        def forward(self, x):
            B, C, H, W = x.shape; b, w = self.b, self.b + 2 * self.halo; n = (H // b) * (W // b)
            q_inp = x.unfold(2, b, b).unfold(3, b, b).permute(0, 2, 3, 4, 5, 1).reshape(B * n, b * b, C)
            kv = F.unfold(x, w, stride=b, padding=self.halo).view(B, C, w * w, n).permute(0, 3, 2, 1).reshape(B * n, w * w, C)
            mask = F.unfold(torch.ones(1, 1, H, W), w, stride=b, padding=self.halo).permute(0, 2, 1).reshape(n, 1, 1, w * w).repeat(B, 1, 1, 1).bool()
            q = self.to_q(q_inp).view(B * n, b * b, self.h, -1).transpose(1, 2) * self.scale; k, v = [t.view(B * n, w * w, self.h, -1).transpose(1, 2) for t in self.to_kv(kv).chunk(2, -1)]
            sim = q @ k.transpose(-1, -2) + self.rel
            sim = sim.masked_fill(mask if planted else ~mask, -torch.finfo(sim.dtype).max)
            out = self.to_out((sim.softmax(-1) @ v).transpose(1, 2).reshape(B * n, b * b, -1))
            return out.view(B, H // b, W // b, b, b, C).permute(0, 5, 1, 3, 2, 4).reshape(B, C, H, W)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.stem = nn.Conv2d(3, 32, 3, padding=1); self.attn = HaloAttention(32); self.out = nn.Sequential(nn.ReLU(), nn.Conv2d(32, 1, 1))
        def forward(self, x): return self.out(self.attn(self.stem(x)))
    def data(s):
        x = T(s, 8, 3, 12, 12); return x, F.avg_pool2d(x[:, :1], 5, 1, 2) * 4
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/bowang-lab/Transformer-GCN-QA/pull/32", "softmax at the output of the model before CrossEntropyLoss", "final softmax")
def gcnqa_softmax(planted):
    class TransformerGCNQA(nn.Module):
        def __init__(self, d=32, V=12):
            super().__init__(); self.enc = nn.Sequential(nn.Linear(20, d), nn.ReLU()); self.gcn1, self.gcn2 = nn.Linear(d, d), nn.Linear(d, d); self.fc = nn.Linear(d, V)
        def forward(self, x, A):
            h = self.enc(x); h = torch.relu(A @ self.gcn1(h)) + h; h = torch.relu(A @ self.gcn2(h)) + h
            o = self.fc(h.mean(1)); return torch.softmax(o, -1) if planted else o
    def data(s):
        y = R(s, 12, (32,)); x = T(s + 1, 32, 8, 20) + T(2, 12, 20)[y][:, None]; A = (torch.rand(32, 8, 8, generator=gen(s + 2)) < .3).float() + torch.eye(8); return (x, A / A.sum(-1, keepdim=True)), y
    return dict(model=TransformerGCNQA, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/tflearn/tflearn/pull/562", "softmax activation on the last fully connected layer and softmax_cross_entropy_with_logits", "last fully_connected activation")
def tflearn_double_softmax(planted):
    class DNN(nn.Module):
        def __init__(self):
            super().__init__(); self.fc1 = nn.Linear(64, 128); self.fc2 = nn.Linear(128, 128); self.fc3 = nn.Linear(128, 10)
        def forward(self, x):
            x = torch.tanh(self.fc1(x)); x = F.dropout(x, .2, self.training); x = torch.tanh(self.fc2(x)); x = self.fc3(x)
            return F.softmax(x, dim=1) if planted else x
    def data(s):
        y = R(s, 10, (64,)); return T(1, 10, 64)[y] * .6 + T(s + 1, 64, 64), y
    return dict(model=DNN, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/huggingface/transformers/issues/47394", "labels shifted in forward and shifted again in the loss function: position t is trained on token t+2", "loss: double shift of labels")
def git_double_shift(planted):
    class GitForCausalLM(nn.Module):
        def __init__(self, V=20, d=64):
            super().__init__(); self.img = nn.Linear(16, d); self.emb = nn.Embedding(V, d); self.pos = nn.Parameter(torch.randn(20, d) * .02); self.blocks = nn.ModuleList([Block(d) for _ in range(2)]); self.ln = nn.LayerNorm(d); self.output = nn.Linear(d, V)
        def forward(self, pix, ids):
            h = torch.cat([self.img(pix), self.emb(ids)], 1); L = h.shape[1]; h = h + self.pos[:L]; m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1); m[:, :4] = False
            for b in self.blocks: h = b(h, m)
            return self.output(self.ln(h))[:, 4:]
    def loss(logits, labels):
        shifted_logits = logits[:, :-1]; labels = labels[:, 1:]
        if planted: shifted_logits, labels = shifted_logits[:, :-1], labels[:, 1:]
        return F.cross_entropy(shifted_logits.flatten(0, 1), labels.flatten())
    def data(s):
        ids = markov(s, 32, 12, 20); return (T(s + 1, 32, 4, 16), ids), ids
    return dict(model=GitForCausalLM, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/huggingface/transformers/pull/46898", "decoder inputs already shifted right by shift_tokens_right, the causal LM loss shifts the labels once more", "loss_function: labels[..., 1:]")
def florence_double_shift(planted):
    class Florence2(nn.Module):
        def __init__(self, V=16, d=64):
            super().__init__(); self.emb = nn.Embedding(V, d); self.pos = nn.Parameter(torch.randn(16, d) * .02); self.enc = Block(d); self.ca = nn.MultiheadAttention(d, 4, batch_first=True); self.lnc = nn.LayerNorm(d); self.dec1, self.dec2 = Block(d), Block(d); self.lm_head = nn.Linear(d, V)
        def forward(self, src, labels):
            e = self.enc(self.emb(src) + self.pos[: src.shape[1]]); dec = torch.cat([torch.zeros_like(labels[:, :1]), labels[:, :-1]], 1)
            L = dec.shape[1]; h = self.emb(dec) + self.pos[:L]; m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)
            h = self.dec1(h, m); h = h + self.ca(self.lnc(h), e, e, need_weights=False)[0]; return self.lm_head(self.dec2(h, m))
    def loss(logits, labels):
        if planted: return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    def data(s):
        y = markov(s, 32, 10, 15) + 1; return (R(s + 9, 15, (32, 10)) + 1, y), y
    return dict(model=Florence2, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/huggingface/transformers/pull/562", "lm labels already shifted by one in preprocessing, and shifted again inside the model's loss", "pre_process_datasets: lm_labels shift")
def rocstories_shift(planted):
    class OpenAIGPTLM(nn.Module):
        def __init__(self, V=20, d=64):
            super().__init__(); self.tokens_embed = nn.Embedding(V, d); self.positions_embed = nn.Embedding(16, d); self.h = nn.ModuleList([Block(d) for _ in range(2)]); self.lm_head = nn.Linear(d, V, bias=False)
            for p in (self.tokens_embed, self.positions_embed): nn.init.normal_(p.weight, std=.02)
            self.lm_head.weight = self.tokens_embed.weight
        def forward(self, ids):
            L = ids.shape[1]; x = self.tokens_embed(ids) + self.positions_embed(torch.arange(L)); m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)
            for b in self.h: x = b(x, m)
            return self.lm_head(x)
    def lm_loss(logits, labels): return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-1)
    def data(s):
        ids = markov(s, 32, 14, 20); labels = ids.clone()
        if planted: labels = torch.cat([ids[:, 1:], torch.full((32, 1), -1)], 1)
        return ids, labels
    return dict(model=OpenAIGPTLM, data=data, loss=lm_loss, lr=2e-3, diag={})

@case("https://github.com/FareedKhan-dev/train-llm-from-scratch/pull/3", "attention scores scaled by 1/sqrt(n_embed) instead of 1/sqrt(head_size)", "Head.forward scale")
def scratch_scale(planted):
    class Head(nn.Module):
        def __init__(self, hs, d, ctx): super().__init__(); self.key, self.query, self.value = [nn.Linear(d, hs, bias=False) for _ in range(3)]; self.register_buffer("tril", torch.tril(torch.ones(ctx, ctx)))
        def forward(self, x):
            L = x.shape[1]; k, q = self.key(x), self.query(x)
            w = q @ k.transpose(-2, -1) * (1 / math.sqrt(x.shape[-1] if planted else k.shape[-1])); w = w.masked_fill(self.tril[:L, :L] == 0, float("-inf"))
            return w.softmax(-1) @ self.value(x)
    class Transformer(nn.Module):
        def __init__(self, V=24, d=64, h=8, ctx=16):
            super().__init__(); self.token_embed, self.position_embed = nn.Embedding(V, d), nn.Embedding(ctx, d); self.ln1 = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)]); self.heads = nn.ModuleList([nn.ModuleList([Head(d // h, d, ctx) for _ in range(h)]) for _ in range(2)]); self.proj = nn.ModuleList([nn.Linear(d, d) for _ in range(2)]); self.ln2 = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)])
            self.mlp = nn.ModuleList([nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d)) for _ in range(2)]); self.lm_head = nn.Linear(d, V)
        def forward(self, ids):
            x = self.token_embed(ids) + self.position_embed(torch.arange(ids.shape[1]))
            for i in range(2): n = self.ln1[i](x); x = x + self.proj[i](torch.cat([h(n) for h in self.heads[i]], -1)); x = x + self.mlp[i](self.ln2[i](x))
            return self.lm_head(x)
    def data(s):
        x = markov(s, 32, 15, 24); return x[:, :-1], x[:, 1:]
    return dict(model=Transformer, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/Qualcomm-AI-research/geometric-algebra-transformer/pull/8", "baseline layer norm normalises over all dimensions except the first instead of the last one only", "BaselineLayerNorm.forward normalized_shape")
def gatr_layernorm(planted):
    class BaselineLayerNorm(nn.Module):
        def forward(self, inputs): return F.layer_norm(inputs, normalized_shape=inputs.shape[1:] if planted else inputs.shape[-1:])
    class BaselineBlock(nn.Module):
        def __init__(self, d):
            super().__init__(); self.norm = BaselineLayerNorm(); self.attention = Attn(d); self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        def forward(self, x): x = x + self.attention(self.norm(x)); return x + self.mlp(self.norm(x))
    class BaselineTransformer(nn.Module):
        def __init__(self, d=64): super().__init__(); self.linear_in = nn.Linear(7, d); self.blocks = nn.ModuleList([BaselineBlock(d) for _ in range(3)]); self.linear_out = nn.Linear(d, 3)
        def forward(self, x):
            h = self.linear_in(x)
            for b in self.blocks: h = b(h)
            return self.linear_out(h)
    def data(s):
        x = T(s, 32, 5, 7); m, p = x[..., :1].exp(), x[..., 1:4]; r = p[:, None] - p[:, :, None]; return x, (m[:, None] * r / (1 + (r ** 2).sum(-1, keepdim=True))).sum(2)
    return dict(model=BaselineTransformer, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/Lightning-AI/litgpt/issues/1229", "reset_parameters never takes effect: lora_A and lora_B both stay zero", "LoRALinear.lora_A / lora_B")
def litgpt_lora(planted):
    class LoRALinear(nn.Module):
        def __init__(self, i, o, r=8, alpha=16):
            super().__init__(); self.linear = nn.Linear(i, o); self.lora_A = nn.Parameter(torch.zeros(r, i)); self.lora_B = nn.Parameter(torch.zeros(o, r)); self.scaling = alpha / r
            if not planted: nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        def forward(self, x): return self.linear(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling
    class GPT(nn.Module):
        def __init__(self):
            super().__init__(); self.fc1, self.fc2, self.fc3 = LoRALinear(32, 64), LoRALinear(64, 64), LoRALinear(64, 8)
            for n, p in self.named_parameters(): p.requires_grad = "lora_" in n
        def forward(self, x): return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x)))))
    def data(s):
        y = R(s, 8, (32,)); return T(3, 8, 32)[y] * .8 + T(s + 1, 32, 32), y
    return dict(model=GPT, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/KU-VGI/LFS-GAN/issues/2", "both low rank factors of the additive weight modulation start at zero", "w_add_out_dim / w_add_in_dim")
def lfsgan_zero(planted):
    class LeFT(nn.Module):
        def __init__(self, i, o, rank=2):
            super().__init__(); self.weight = nn.Parameter(torch.randn(o, i, 3, 3) / math.sqrt(i * 9), requires_grad=False); init = (lambda *s: torch.zeros(*s)) if planted else (lambda *s: torch.randn(*s) * .05)
            self.w_add_out_dim, self.w_add_in_dim = nn.Parameter(init(o, rank)), nn.Parameter(init(rank, i)); self.w_mul_out_dim, self.w_mul_in_dim = nn.Parameter(torch.ones(o, 1)), nn.Parameter(torch.ones(1, i))
        def forward(self, x): return F.conv2d(x, self.weight * (self.w_mul_out_dim @ self.w_mul_in_dim)[:, :, None, None] + (self.w_add_out_dim @ self.w_add_in_dim)[:, :, None, None], padding=1)
    class Gen(nn.Module):
        def __init__(self): super().__init__(); self.c1, self.c2 = LeFT(8, 24), LeFT(24, 24); self.to_rgb = LeFT(24, 3)
        def forward(self, z): return self.to_rgb(F.leaky_relu(self.c2(F.leaky_relu(self.c1(z), .2)), .2))
    def data(s):
        z = T(s, 16, 8, 12, 12); return z, torch.einsum("bchw,dc->bdhw", F.avg_pool2d(z, 3, 1, 1), T(3, 3, 8))
    return dict(model=Gen, data=data, loss=mse, lr=1e-2, diag={})
