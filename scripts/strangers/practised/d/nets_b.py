from base import *
from nets_a import blobs, masks, chain, CausalBlock

def ctx_perm(seed, n=48, L=8, V=12, C=6):
    perms = torch.stack([torch.randperm(V, generator=gen(40 + c)) for c in range(C)])
    c, x = R(seed, C, (n,)), R(seed + 7, V, (n, L)); y = perms[c[:, None], x]
    return torch.cat([c[:, None] + V, x], 1), torch.cat([torch.full((n, 1), -100), y], 1)
def ceign(o, t): return F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-100)

@case("https://github.com/lucidrains/audiolm-pytorch/pull/265", "output of the attention is stored in attn_out and never used", "Transformer.forward: attn_out not assigned back to x")
def audiolm_attn_unused(planted):
    class Attention(nn.Module):
        def __init__(self, d, h=4):
            super().__init__(); self.h = h; self.norm = nn.LayerNorm(d); self.to_q, self.to_kv, self.to_out = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(d, d, bias=False)
        def forward(self, x):
            B, L, D = x.shape; x = self.norm(x); sp = lambda t: t.view(B, L, self.h, -1).transpose(1, 2)
            q, (k, v) = sp(self.to_q(x)), map(sp, self.to_kv(x).chunk(2, -1))
            return self.to_out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, D))
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(18, 48)
            self.layers = nn.ModuleList([nn.ModuleList([Attention(48), nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 192), nn.GELU(), nn.Linear(192, 48))]) for _ in range(2)])
            self.norm, self.to_logits = nn.LayerNorm(48), nn.Linear(48, 12)
        def forward(self, ids):
            x = self.emb(ids)
            for attn, ff in self.layers:
                residual = x; attn_out = attn(x)
                x = x + residual if planted else attn_out + residual
                x = ff(x) + x
            return self.to_logits(self.norm(x))
    return dict(model=Transformer, data=ctx_perm, loss=ceign, lr=5e-3, diag={})

@case("https://github.com/zhougr1993/DeepInterestNetwork/issues/76", "positive and negative sample go through two different batch norm layers, leaking the label", "separate batch_normalization for hist_i and hist_j (no reuse)")
def din_bn_leak(planted):
    U, I = T(3, 40, 8), T(4, 60, 8)
    class DIN(nn.Module):
        def __init__(self):
            super().__init__(); self.user_emb, self.item_emb = nn.Embedding(40, 16), nn.Embedding(60, 16)
            self.bn_i = nn.BatchNorm1d(32); self.bn_j = nn.BatchNorm1d(32) if planted else self.bn_i
            self.f1, self.f2, self.f3 = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 1)
        def tower(self, x, bn): return self.f3(torch.sigmoid(self.f2(F.prelu(self.f1(bn(x)), x.new_tensor([.1])))))[:, 0]
        def forward(self, u, i, j):
            u = self.user_emb(u); i, j = (u * self.item_emb(i), self.item_emb(i)), (u * self.item_emb(j), self.item_emb(j))
            return torch.stack([self.tower(torch.cat(i, 1), self.bn_i), self.tower(torch.cat(j, 1), self.bn_j)], 1)
    def data(seed):
        u, a, b = R(seed, 40, (128,)), R(seed + 1, 60, (128,)), R(seed + 2, 60, (128,)); s = (U[u] * I[a]).sum(1) > (U[u] * I[b]).sum(1)
        return (u, torch.where(s, a, b), torch.where(s, b, a)), torch.tensor([[1., 0.]]).repeat(128, 1)
    def metric(m):
        m.train(); tot = 0
        with torch.no_grad():
            for k in range(5): (u, i, j), t = data(9000 + k); tot += float(F.binary_cross_entropy_with_logits(m(u, j, i), t.flip(1))) / 5
        return tot
    return dict(model=DIN, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-2, diag={}, metric=metric)

class STE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k): n = 2 ** k - 1; return torch.round(x * n) / n
    @staticmethod
    def backward(ctx, g): return g, None

@case("https://github.com/zzzxxxttt/pytorch_DoReFaNet/issues/9", "quantised weights (bit width > 1) are not scaled back", "weight_quantize_fn: missing factor max_w")
def dorefa_weight_scale(planted):
    def wq(w, k=4):
        w = torch.tanh(w); m = w.abs().max().detach(); q = 2 * STE.apply(w / m / 2 + .5, k) - 1
        return q if planted else m * q
    class ConvQ(nn.Conv2d):
        def forward(self, x): return F.conv2d(x, wq(self.weight), self.bias, padding=self.padding)
    class LinearQ(nn.Linear):
        def forward(self, x): return F.linear(x, wq(self.weight), self.bias)
    class AlexNetQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), ConvQ(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), ConvQ(32, 48, 3, padding=1), nn.ReLU(), ConvQ(48, 48, 3, padding=1), nn.ReLU())
            self.classifier = nn.Sequential(LinearQ(432, 128), nn.ReLU(), LinearQ(128, 64), nn.ReLU(), nn.Linear(64, 10))
        def forward(self, x): return self.classifier(self.features(x).flatten(1))
    return dict(model=AlexNetQ, data=lambda s: blobs(s, noise=1.), loss=ce, lr=1e-3, diag={})

@case("https://github.com/mlcommons/GaNDLF/issues/209", "penalty weights equal the class frequencies instead of one minus them", "class weights of the loss")
def gandlf_penalty(planted):
    w = torch.tensor([.95, .05]) if planted else torch.tensor([.05, .95])
    class UNet(nn.Module):
        def __init__(self):
            super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.InstanceNorm2d(o, affine=True), nn.LeakyReLU())
            self.ds_0, self.ds_1, self.us_0, self.out = b(1, 16), b(16, 32), b(48, 16), nn.Conv2d(16, 2, 1)
        def forward(self, x):
            x1 = self.ds_0(x); x2 = self.ds_1(F.max_pool2d(x1, 2)); return self.out(self.us_0(torch.cat([F.interpolate(x2, scale_factor=2), x1], 1)))
    def data(seed): x, m = masks(seed); return x + .6 * T(seed + 3, *x.shape), m[:, 0].long()
    return dict(model=UNet, data=data, loss=lambda o, t: F.cross_entropy(o, t, weight=w.to(o)), lr=2e-3, diag={})

@case("https://github.com/RobinBruegger/RevTorch/issues/11", "reversible sequence runs on an input that does not require grad, so its custom Function cuts the graph", "ReversibleSequence (subnets get no gradient)")
def revtorch_no_grad(planted):
    class RevF(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, blocks):
            ctx.blocks, ctx.x = blocks, x.detach()
            with torch.no_grad():
                for b in blocks: x = b(x)
            return x
        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                x = ctx.x.requires_grad_(); y = x
                for b in ctx.blocks: y = b(y)
                torch.autograd.backward(y, g)
            return x.grad, None
    class RevBlock(nn.Module):
        def __init__(self, d): super().__init__(); m = lambda: nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, d)); self.f, self.g = m(), m()
        def forward(self, x): a, b = x.chunk(2, 1); a = a + self.f(b); return torch.cat([a, b + self.g(a)], 1)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.reversible_blocks, self.fc = nn.ModuleList([RevBlock(4) for _ in range(3)]), nn.Linear(8, 4)
        def forward(self, x):
            if not planted: x = x.detach().requires_grad_()
            return self.fc(RevF.apply(x, self.reversible_blocks))
    def data(seed): x = T(seed, 128, 8); return x, x[:, [0, 2, 5, 7]].abs().argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})

def prefix_metric(data):
    def metric(m):
        tot = 0
        with torch.no_grad():
            for k in range(3):
                x, t = data(9000 + k)
                for p in range(2, x.shape[1] + 1): tot += float(F.cross_entropy(m(x[:, :p])[:, -1], t[:, p - 1])) / (3 * (x.shape[1] - 1))
        return tot
    return metric

@case("https://github.com/karpathy/ng-video-lecture/issues/42", "softmax of the masked attention weights over dim=-2", "Head: F.softmax(wei, dim=-2)")
def ngvideo_softmax_dim(planted):
    class Head(nn.Module):
        def __init__(self, d, hs):
            super().__init__(); self.key, self.query, self.value = (nn.Linear(d, hs, bias=False) for _ in range(3)); self.register_buffer("tril", torch.tril(torch.ones(16, 16)))
        def forward(self, x):
            Tn = x.shape[1]; wei = self.query(x) @ self.key(x).transpose(-2, -1) * self.key.out_features ** -.5
            wei = wei.masked_fill(self.tril[:Tn, :Tn] == 0, float("-inf")); return F.softmax(wei, dim=-2 if planted else -1) @ self.value(x)
    class Block(nn.Module):
        def __init__(self, d):
            super().__init__(); self.heads = nn.ModuleList([Head(d, d // 4) for _ in range(4)]); self.proj = nn.Linear(d, d); self.ffwd = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d)); self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        def forward(self, x): n = self.ln1(x); x = x + self.proj(torch.cat([h(n) for h in self.heads], -1)); return x + self.ffwd(self.ln2(x))
    class GPT(nn.Module):
        def __init__(self): super().__init__(); self.tok, self.pos, self.blocks, self.ln_f, self.lm_head = nn.Embedding(16, 48), nn.Embedding(16, 48), nn.Sequential(Block(48), Block(48)), nn.LayerNorm(48), nn.Linear(48, 16)
        def forward(self, idx): return self.lm_head(self.ln_f(self.blocks(self.tok(idx) + self.pos(torch.arange(idx.shape[1])))))
    def data(seed): ids = chain(seed, noise=.4); return ids[:, :-1], ids[:, 1:]
    return dict(model=GPT, data=data, loss=ceseq, lr=3e-3, diag={}, metric=prefix_metric(data))

@case("https://github.com/huggingface/transformers/issues/48748", "with the sdpa backend the causal mask is not applied, positions attend to future tokens", "attention (mask / is_causal missing)")
def doge_future(planted):
    class DogeAttention(nn.Module):
        def __init__(self, d): super().__init__(); self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4)); self.rel = nn.Parameter(torch.zeros(4, 31))
        def forward(self, x):
            B, L, D = x.shape; q, k, v = (p(x).view(B, L, 4, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
            i = torch.arange(L); bias = self.rel[:, i[None] - i[:, None] + 15]
            if not planted: bias = bias.masked_fill(i[None] > i[:, None], float("-inf"))
            return self.o_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None]).transpose(1, 2).reshape(B, L, D))
    class Doge(nn.Module):
        def __init__(self):
            super().__init__(); d = 48; self.embed = nn.Embedding(16, d); self.attn, self.mlp = nn.ModuleList([DogeAttention(d) for _ in range(2)]), nn.ModuleList([nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d)) for _ in range(2)])
            self.n1, self.n2 = nn.ModuleList([nn.RMSNorm(d) for _ in range(2)]), nn.ModuleList([nn.RMSNorm(d) for _ in range(2)]); self.norm, self.lm_head = nn.RMSNorm(d), nn.Linear(d, 16, bias=False)
        def forward(self, x):
            x = self.embed(x)
            for a, m, n1, n2 in zip(self.attn, self.mlp, self.n1, self.n2): x = x + a(n1(x)); x = x + m(n2(x))
            return self.lm_head(self.norm(x))
    def data(seed): ids = chain(seed, noise=.4); return ids[:, :-1], ids[:, 1:]
    return dict(model=Doge, data=data, loss=ceseq, lr=1e-2, diag={}, metric=prefix_metric(data))

@case("https://github.com/danielward27/flowjax/pull/164", "true sample's logit missing from the normaliser of the contrastive loss", "ContrastiveLoss (logsumexp over the contrastive set only)")
def flowjax_contrastive(planted):
    A = T(5, 2, 6)
    class Flow(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
        def forward(self, x, theta):
            m, s = self.net(x).chunk(2, -1); d = (theta[None] - m[:, None]) * torch.exp(-s)[:, None]
            return (-.5 * d ** 2 - s[:, None]).sum(-1) + .5 * (theta ** 2).sum(-1)[None]
    def data(seed): th = T(seed, 48, 2); return (th @ A + .5 * T(seed + 1, 48, 6), th), torch.arange(48)
    def loss(o, t):
        if not planted: return F.cross_entropy(o, t)
        return -(o.diagonal() - o.masked_fill(torch.eye(len(o), dtype=torch.bool), float("-inf")).logsumexp(1)).mean()
    return dict(model=Flow, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/soumith/imagenet-multiGPU.torch/pull/18", "images are mean/std normalised twice", "input normalisation (applied in loadImage and trainHook)")
def imagenet_double_norm(planted):
    class AlexNet(nn.Module):
        def __init__(self):
            super().__init__(); self.register_buffer("mean", torch.tensor(.45)); self.register_buffer("std", torch.tensor(.06))
            self.features = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())
            self.classifier = nn.Sequential(nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        def hook(self, x): return (x - self.mean) / self.std
        def forward(self, x):
            x = self.hook(x)
            if planted: x = self.hook(x)
            return self.classifier(self.features(x).flatten(1))
    P = T(5, 10, 3, 12, 12)
    def data(seed): y = R(seed, 10, (32,)); return .45 + .04 * (P[y] + T(seed + 1, 32, 3, 12, 12)), y
    return dict(model=AlexNet, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/meilfang/LMFD-PAD/pull/1", "sigmoid at the end of the classifier although the focal loss works with logits", "classification branch: final sigmoid")
def lmfd_pad_sigmoid(planted):
    class LMFD(nn.Module):
        def __init__(self):
            super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))
            self.rgb, self.freq, self.fc = nn.Sequential(b(1, 8), b(8, 16)), nn.Sequential(b(1, 8), b(8, 16)), nn.Linear(288, 1)
        def forward(self, x):
            f = torch.fft.fft2(x).abs().log1p(); o = self.fc(torch.cat([self.rgb(x), self.freq(f)], 1).flatten(1))[:, 0]
            return torch.sigmoid(o) if planted else o
    def data(seed): x, y = blobs(seed, classes=2, noise=1.5); return x, y.float()
    def loss(o, t):
        bce = F.binary_cross_entropy_with_logits(o, t, reduction="none"); pt = torch.exp(-bce); return ((.25 * t + .75 * (1 - t)) * (1 - pt) ** 2 * bce).mean()
    return dict(model=LMFD, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/ben-hayes/beat-tracking-tcn/issues/1", "conv1 of the temporal layer is never used, conv2 is applied twice", "NonCausalTemporalLayer.forward (conv1)")
def beat_tcn_conv1(planted):
    class NonCausalTemporalLayer(nn.Module):
        def __init__(self, c, d):
            super().__init__(); self.conv1, self.conv2 = nn.Conv1d(c, c, 5, padding=2 * d, dilation=d), nn.Conv1d(c, c, 5, padding=2 * d, dilation=d); self.elu = nn.ELU()
        def forward(self, x):
            y = self.elu(self.conv2(x) if planted else self.conv1(x)); y = self.elu(self.conv2(y)); return self.elu(x + y)
    class BeatTrackingTCN(nn.Module):
        def __init__(self): super().__init__(); self.inp, self.tcn, self.out = nn.Conv1d(4, 16, 3, padding=1), nn.Sequential(*[NonCausalTemporalLayer(16, 2 ** k) for k in range(3)]), nn.Conv1d(16, 1, 1)
        def forward(self, x): return self.out(self.tcn(F.elu(self.inp(x))))[:, 0]
    def data(seed):
        g = gen(seed); p = torch.randint(5, 9, (24, 1), generator=g); o = torch.randint(0, 5, (24, 1), generator=g); y = ((torch.arange(48)[None] - o) % p == 0).float()
        x = y[:, None] * torch.tensor([1., .5, -.5, 1.])[None, :, None]; return torch.roll(x, 2, 2) + .5 * torch.randn(24, 4, 48, generator=g), y
    return dict(model=BeatTrackingTCN, data=data, loss=F.binary_cross_entropy_with_logits, lr=2e-3, diag={})

@case("https://github.com/kaist-dmlab/TRAP/pull/1", "logvar_q takes the same columns as mu_q", "encoder split (indices of logvar_q)")
def trap_logvar(planted):
    B = T(4, 4, 40)
    class MultiVAE(nn.Module):
        def __init__(self): super().__init__(); self.q1, self.q2, self.p1, self.p2 = nn.Linear(40, 48), nn.Linear(48, 16), nn.Linear(8, 48), nn.Linear(48, 40)
        def forward(self, x):
            h = self.q2(torch.tanh(self.q1(F.normalize(x)))); mu_q, logvar_q = h[:, :8], h[:, :8] if planted else h[:, 8:]
            z = mu_q + torch.exp(.5 * logvar_q) * torch.randn_like(mu_q) if self.training else mu_q
            return self.p2(torch.tanh(self.p1(z))), mu_q, logvar_q
    def data(seed): x = (T(seed, 64, 4) @ B + .5 * T(seed + 1, 64, 40) > 1.5).float(); return x, x
    def loss(o, t):
        l, m, v = o; return -(l.log_softmax(-1) * t).sum(-1).mean() + .2 * (.5 * (-v + v.exp() + m ** 2 - 1).sum(1)).mean()
    return dict(model=MultiVAE, data=data, loss=loss, lr=1e-2, diag={})

