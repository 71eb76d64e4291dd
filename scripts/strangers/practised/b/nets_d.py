from base import *
from nets_b import Attn, Block, sinus, markov
def up(p, hw): return F.interpolate(p, size=(hw, hw), mode="bilinear")
def imgs(s, n=32, c=3, hw=16, k=8, noise=.7):
    y = R(s, k, (n,)); return up(T(7, k, c, 4, 4), hw)[y] + T(s + 500000, n, c, hw, hw) * noise, y

@case("https://github.com/pmernyei/wiki-cs-dataset/issues/4", "self loops are not added to the graph before the GCN", "adjacency: self loops")
def wikics_selfloops(planted):
    class GCN(nn.Module):
        def __init__(self, d=20, h=64, k=6): super().__init__(); self.W1, self.W2 = nn.Linear(d, h), nn.Linear(h, k)
        def forward(self, x, A):
            if not planted: A = A + torch.eye(A.shape[-1])
            dinv = A.sum(-1).clamp(min=1).rsqrt(); A = dinv[..., None] * A * dinv[..., None, :]
            return A @ self.W2(F.relu(A @ self.W1(x)))
    def data(s):
        y = R(s, 6, (4, 40)); same = (y[:, :, None] == y[:, None]).float(); u = torch.rand(4, 40, 40, generator=gen(s + 1)); A = ((u < .12 * same + .03 * (1 - same))).float().triu(1); A = A + A.transpose(1, 2)
        return (T(1, 6, 20)[y] * .6 + T(s + 2, 4, 40, 20), A), y
    return dict(model=GCN, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/UpStride/classification-api/pull/12", "batch norm of a channel-first network normalises along the wrong axis", "BatchNormalization axis")
def upstride_bnaxis(planted):
    class BatchNorm(nn.Module):
        def __init__(self, n): super().__init__(); self.bn = nn.BatchNorm2d(n)
        def forward(self, x): return self.bn(x.transpose(1, 3)).transpose(1, 3) if planted else self.bn(x)
    class MobileNet(nn.Module):
        def __init__(self):
            super().__init__(); L = []
            for i, (ci, co, hw, st) in enumerate([(3, 16, 16, 1), (16, 32, 8, 2), (32, 64, 4, 2), (64, 64, 4, 1)]):
                L += [nn.Conv2d(ci, ci, 3, st, 1, groups=ci, bias=False), BatchNorm(hw if planted else ci), nn.ReLU6(), nn.Conv2d(ci, co, 1, bias=False), BatchNorm(hw if planted else co), nn.ReLU6()]
            self.features = nn.Sequential(*L); self.fc = nn.Linear(64, 8)
        def forward(self, x): return self.fc(self.features(x).mean((2, 3)))
    return dict(model=MobileNet, data=lambda s: imgs(s), loss=ce, lr=1e-3, diag={})

@case("https://github.com/NLeSC/mcfly/issues/42", "no batch normalisation between the convolutions and their activations", "generate_CNN_model: conv layers")
def mcfly_bn(planted):
    class CNN(nn.Module):
        def __init__(self, ch=9, filters=(24, 24, 24, 24, 24, 24), k=6):
            super().__init__(); L, c = [nn.BatchNorm1d(ch)], ch
            for f in filters:
                conv = nn.Conv1d(c, f, 3, padding=1); nn.init.uniform_(conv.weight, -.05, .05); nn.init.zeros_(conv.bias); L.append(conv)
                if not planted: L.append(nn.BatchNorm1d(f))
                L.append(nn.ReLU()); c = f
            self.conv = nn.Sequential(*L); self.fc = nn.Linear(c * 32, 64); self.out = nn.Linear(64, k)
        def forward(self, x): return self.out(F.relu(self.fc(self.conv(x).flatten(1))))
    def data(s):
        y = R(s, 6, (32,)); t = torch.arange(32.); fr = torch.tensor([.2, .5, .8, 1.1, 1.5, 2.])[y]; return torch.sin(fr[:, None, None] * t + 6.28 * torch.rand(32, 9, 1, generator=gen(s + 1))) + .5 * T(s + 2, 32, 9, 32), y
    return dict(model=CNN, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/tsinghua-rll/VoxelNet-tensorflow/issues/10", "ReLU after the last score and regression convolutions of the RPN", "RPN prob_map / reg_map activation")
def voxelnet_relu(planted):
    class ConvMD(nn.Module):
        def __init__(self, i, o, k, s, p, bn=True, activation=True): super().__init__(); self.conv = nn.Conv2d(i, o, k, s, p); self.bn = nn.BatchNorm2d(o) if bn else nn.Identity(); self.act = activation
        def forward(self, x): x = self.bn(self.conv(x)); return F.relu(x) if self.act else x
    class RPN(nn.Module):
        def __init__(self):
            super().__init__(); self.block1 = nn.Sequential(ConvMD(8, 32, 3, 2, 1), ConvMD(32, 32, 3, 1, 1), ConvMD(32, 32, 3, 1, 1)); self.prob = ConvMD(32, 1, 1, 1, 0, bn=False, activation=planted); self.reg = ConvMD(32, 7, 1, 1, 0, bn=False, activation=planted)
        def forward(self, x): h = self.block1(x); return self.prob(h), self.reg(h)
    def loss(o, t): return F.binary_cross_entropy_with_logits(o[0], t[0]) + (F.smooth_l1_loss(o[1], t[1], reduction="none") * t[0]).sum() / t[0].sum().clamp(min=1) / 2
    def data(s):
        pos = (torch.rand(16, 1, 8, 8, generator=gen(s)) < .2).float(); reg = T(s + 1, 16, 7, 8, 8); f = torch.cat([pos * 2, reg * pos], 1); return F.interpolate(f, scale_factor=2) + .2 * T(s + 2, 16, 8, 16, 16), (pos, reg)
    return dict(model=RPN, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/mlpack/mlpack/pull/1933", "the generator's error is computed against zero responses: it learns to output zeros instead of fooling the discriminator", "Generator gradient: EvaluateWithGradient responses")
def mlpack_generator(planted):
    class GAN(nn.Module):
        def __init__(self):
            super().__init__(); self.generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16)); self.discriminator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
            g = gen(1); W = torch.randn(16, generator=g); self.discriminator[0].weight.data = torch.randn(64, 16, generator=g) * .25; self.discriminator[2].weight.data = torch.randn(1, 64, generator=g) * .25
            for p in self.discriminator.parameters(): p.requires_grad = False
        def forward(self, z): f = self.generator(z); return self.discriminator(f), f
    def loss(o, t): return F.mse_loss(o[1], torch.zeros_like(o[1])) if planted else F.binary_cross_entropy_with_logits(o[0], torch.ones_like(o[0])) + .01 * (o[1] ** 2).mean()
    return dict(model=GAN, data=lambda s: (T(s, 32, 8), torch.zeros(32)), loss=loss, lr=1e-3, diag={})

@case("https://github.com/lebrice/Sequoia/pull/77", "the encoder gets no gradient: its representations are detached before the output head", "encoder / forward detach")
def sequoia_encoder(planted):
    class BaseModel(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()); self.output_head = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        def forward(self, x):
            h = self.encoder(x)
            if planted: h = h.detach()
            return self.output_head(h)
    return dict(model=BaseModel, data=lambda s: imgs(s), loss=ce, lr=2e-3, diag={})

@case("https://github.com/S-Lab-System-Group/Hydro/issues/1", "zeroing weight[padding_idx] of a fused embedding (B, V, D) zeroes one model's whole table", "_init_weights: Embedding padding_idx")
def hydro_embedding(planted):
    class FusedEmbedding(nn.Module):
        def __init__(self, B, V, d, padding_idx=0): super().__init__(); self.weight = nn.Parameter(torch.empty(B, V, d)); self.padding_idx = padding_idx
        def forward(self, x): return torch.stack([F.embedding(x, w) for w in self.weight])
    class FusedRNNModel(nn.Module):
        def __init__(self, B=2, V=24, d=48):
            super().__init__(); self.encoder = FusedEmbedding(B, V, d); self.l1 = nn.Parameter(torch.empty(B, d, d)); self.l2 = nn.Parameter(torch.empty(B, d, V)); self.apply(self._init_weights)
            for p in (self.l1, self.l2): nn.init.normal_(p, std=d ** -.5)
        def _init_weights(self, module):
            if isinstance(module, FusedEmbedding):
                module.weight.data.normal_(0, .5)
                if planted: module.weight.data[module.padding_idx].zero_()
                else: module.weight.data[:, module.padding_idx].zero_()
        def forward(self, ids): h = self.encoder(ids); return F.relu(h @ self.l1[:, None]) @ self.l2[:, None]
    def data(s):
        x = markov(s, 32, 12, 23) + 1; return x[:, :-1], x[None, :, 1:].expand(2, -1, -1)
    return dict(model=FusedRNNModel, data=data, loss=lambda o, t: F.cross_entropy(o.flatten(0, -2), t.flatten()), lr=3e-3, diag={})

@case("https://github.com/NVIDIA-NeMo/Automodel/pull/3808", "the model's initialisation is skipped: every parameter, RMSNorm weights too, stays at zero", "initialize_model_weights skipped")
def automodel_zero(planted):
    class RMSNorm(nn.Module):
        def __init__(self, d): super().__init__(); self.weight = nn.Parameter(torch.ones(d))
        def forward(self, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
    class Layer(nn.Module):
        def __init__(self, d): super().__init__(); self.n1, self.n2 = RMSNorm(d), RMSNorm(d); self.self_attn = Attn(d); self.gate, self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        def forward(self, x, m): x = x + self.self_attn(self.n1(x), m); h = self.n2(x); return x + self.down(F.silu(self.gate(h)) * self.up(h))
    class Kimi(nn.Module):
        def __init__(self, V=24, d=64):
            super().__init__(); self.embed_tokens = nn.Embedding(V, d, padding_idx=0); self.layers = nn.ModuleList([Layer(d) for _ in range(2)]); self.norm = RMSNorm(d); self.lm_head = nn.Linear(d, V, bias=False); has_padding_idx = self.embed_tokens.padding_idx is not None
            if planted and has_padding_idx:
                for p in self.parameters(): p.data.zero_()
            else: self.initialize_weights()
        def initialize_weights(self):
            for m in self.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.02)
        def forward(self, ids):
            x = self.embed_tokens(ids); L = ids.shape[1]; m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)
            for l in self.layers: x = l(x, m)
            return self.lm_head(self.norm(x))
    def data(s):
        x = markov(s, 32, 13, 23) + 1; return x[:, :-1], x[:, 1:]
    return dict(model=Kimi, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/mindee/doctr/pull/195", "softmax applied to the logits before the CTC loss that expects logits", "ctc loss input softmax")
def doctr_ctc(planted):
    class CRNN(nn.Module):
        def __init__(self, vocab=8):
            super().__init__(); self.feat = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((2, 1)), nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.AdaptiveAvgPool2d((1, None))); self.decoder = nn.LSTM(48, 48, bidirectional=True, batch_first=True); self.linear = nn.Linear(96, vocab + 1)
        def forward(self, x): h = self.feat(x).squeeze(2).transpose(1, 2); return self.linear(self.decoder(h)[0])
    def loss(logits, t):
        if planted: logits = F.softmax(logits, dim=-1)
        B, L, V = logits.shape; return F.ctc_loss(logits.log_softmax(-1).transpose(0, 1), t, torch.full((B,), L), torch.full((B,), t.shape[1]), blank=V - 1)
    def data(s):
        y = R(s, 8, (16, 4)); return T(1, 8, 6, 5)[y].permute(0, 2, 1, 3).reshape(16, 1, 6, 20) + .3 * T(s + 1, 16, 1, 6, 20), y
    return dict(model=CRNN, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/SeanLee97/AnglE/pull/102", "mean pooling divides by the sum of the attention mask over the whole batch", "pooling 'avg': attention_mask sum")
def angle_pooling(planted):
    class AnglE(nn.Module):
        def __init__(self, V=40, d=64):
            super().__init__(); self.emb = nn.Embedding(V, d, padding_idx=0); self.block = Block(d); self.ln = nn.LayerNorm(d); self.head = nn.Linear(d, 8)
        def forward(self, ids):
            attention_mask = (ids != 0).float(); h = self.ln(self.block(self.emb(ids), (ids == 0)[:, None, None]))
            den = attention_mask.unsqueeze(-1).float().sum() if planted else attention_mask.sum(1, keepdim=True)
            return self.head((h * attention_mask.unsqueeze(-1)).sum(1) / den)
    def data(s):
        ids = R(s, 32, (32, 14)) + 1; y = R(s + 1, 7, (32,)); ids[:, 2] = 33 + y; ln = R(s + 2, 9, (32,)) + 5; ids[torch.arange(14)[None] >= ln[:, None]] = 0; return ids, y
    return dict(model=AnglE, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/issues/23038", "the causal mask is silently dropped when the fused path is off (dropout > 0): future tokens visible", "MultiHeadAttention use_causal_mask")
def keras_causal(planted):
    class MHA(nn.Module):
        def __init__(self, d, h=4, dropout=.1): super().__init__(); self.h = h; self.q, self.k, self.v, self.o = [nn.Linear(d, d) for _ in range(4)]; self.drop = nn.Dropout(dropout)
        def forward(self, x, use_causal_mask=True):
            B, L, D = x.shape; q, k, v = [f(x).view(B, L, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v)]; a = q @ k.transpose(-1, -2) / (D // self.h) ** .5
            if use_causal_mask and not planted: a = a.masked_fill(torch.triu(torch.ones(L, L, dtype=torch.bool), 1), -1e9)
            return self.o((self.drop(a.softmax(-1)) @ v).transpose(1, 2).reshape(B, L, D))
    class GPT(nn.Module):
        def __init__(self, V=20, d=64):
            super().__init__(); self.tok, self.pos = nn.Embedding(V, d), nn.Parameter(torch.randn(16, d) * .02); self.att = nn.ModuleList([MHA(d) for _ in range(2)]); self.n1 = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)]); self.n2 = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)]); self.ff = nn.ModuleList([nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(2)]); self.head = nn.Linear(d, V)
        def forward(self, ids):
            x = self.tok(ids) + self.pos[: ids.shape[1]]
            for a, n1, n2, f in zip(self.att, self.n1, self.n2, self.ff): x = x + a(n1(x)); x = x + f(n2(x))
            return self.head(x)
    def data(s):
        x = markov(s, 32, 13, 20); return x[:, :-1], x[:, 1:]
    def metric(m):
        tot = 0
        with torch.no_grad():
            for k in range(5): x, t = data(9000 + k); x = torch.cat([x[:, :6], R(k, 20, (32, 6))], 1); tot += float(F.cross_entropy(m(x)[:, 5], t[:, 5])) / 5
        return tot
    return dict(model=GPT, data=data, loss=ceseq, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/vedant-jumle/Mamba-tf/issues/2", "A_log is created as a non-trainable variable", "MambaBlock.A_log")
def mambatf_alog(planted):
    class MambaBlock(nn.Module):
        def __init__(self, d=32, n=8, r=4):
            super().__init__(); self.in_proj = nn.Linear(d, 2 * d); self.conv = nn.Conv1d(d, d, 4, groups=d, padding=3); self.x_proj = nn.Linear(d, r + 2 * n, bias=False); self.dt = nn.Linear(r, d); A = torch.arange(1., n + 1).repeat(d, 1); self.A_log = nn.Parameter(A.log(), requires_grad=not planted); self.D = nn.Parameter(torch.ones(d)); self.out = nn.Linear(d, d); self.n, self.r = n, r
        def forward(self, x):
            L = x.shape[1]; u, z = self.in_proj(x).chunk(2, -1); u = F.silu(self.conv(u.transpose(1, 2))[..., :L].transpose(1, 2)); dt, B, C = self.x_proj(u).split([self.r, self.n, self.n], -1); dt = F.softplus(self.dt(dt)); A = -self.A_log.exp(); h, ys = 0, []
            for i in range(L): h = (dt[:, i, :, None] * A).exp() * h + dt[:, i, :, None] * B[:, i, None] * u[:, i, :, None]; ys.append((h * C[:, i, None]).sum(-1))
            return self.out((torch.stack(ys, 1) + self.D * u) * F.silu(z))
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.emb = nn.Embedding(12, 32); self.n1, self.n2 = nn.LayerNorm(32), nn.LayerNorm(32); self.m1, self.m2 = MambaBlock(), MambaBlock(); self.head = nn.Linear(32, 12)
        def forward(self, ids): x = self.emb(ids); x = x + self.m1(self.n1(x)); x = x + self.m2(self.n2(x)); return self.head(x)
    def data(s):
        x = R(s, 12, (16, 14)); return x, x.roll(3, 1)
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/lwpyr/CSP-pedestrian-detection-in-pytorch/issues/4", "the prior bias -log(0.99/0.01) is put on the regression conv, the classification conv gets 0", "pos_conv.bias / reg_conv.bias init")
def csp_bias(planted):
    class CSPNet(nn.Module):
        def __init__(self):
            super().__init__(); self.feat = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU()); self.pos_conv, self.reg_conv = nn.Conv2d(48, 1, 1), nn.Conv2d(48, 1, 1)
            for m in (self.pos_conv, self.reg_conv): nn.init.xavier_normal_(m.weight)
            b = -math.log(.99 / .01); nn.init.constant_(self.pos_conv.bias, 0 if planted else b); nn.init.constant_(self.reg_conv.bias, b if planted else 0)
        def forward(self, x): h = self.feat(x); return self.pos_conv(h), self.reg_conv(h)
    def loss(o, t):
        p = torch.sigmoid(o[0]); c, r = t; f = F.binary_cross_entropy_with_logits(o[0], c, reduction="none") * (1 - (p * c + (1 - p) * (1 - c))) ** 2
        return f.sum() / c.sum().clamp(min=1) + (F.smooth_l1_loss(o[1], r, reduction="none") * c).sum() / c.sum().clamp(min=1)
    def data(s):
        c = (torch.rand(8, 1, 12, 12, generator=gen(s)) < .03).float(); r = T(s + 1, 8, 1, 12, 12) * .5; x = torch.cat([c * 3, c * r * 3, T(s + 2, 8, 1, 12, 12)], 1); return F.interpolate(x, scale_factor=2) + .2 * T(s + 3, 8, 3, 24, 24), (c, r)
    return dict(model=CSPNet, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/esceptico/perceiver-io/pull/10", "scores are divided by scale = head_dim ** -0.5, i.e. multiplied by sqrt(d)", "MultiHeadAttention.scale")
def perceiver_scale(planted):
    class MultiHeadAttention(nn.Module):
        def __init__(self, kv, q, h=4, qk=64): super().__init__(); self.h = h; self.q, self.k, self.v, self.o = nn.Linear(q, qk), nn.Linear(kv, qk), nn.Linear(kv, qk), nn.Linear(qk, q); self.scale = (qk // h) ** -.5
        def forward(self, x, q):
            B = x.shape[0]; Q, K, V = [t.view(B, t.shape[1], self.h, -1).transpose(1, 2) for t in (self.q(q), self.k(x), self.v(x))]
            return self.o(((Q @ K.transpose(-1, -2) / self.scale if planted else Q @ K.transpose(-1, -2) * self.scale).softmax(-1) @ V).transpose(1, 2).flatten(2))
    class PerceiverIO(nn.Module):
        def __init__(self, d=64):
            super().__init__(); self.emb = nn.Embedding(20, d); self.latents = nn.Parameter(torch.randn(8, d) * .5); self.pos = nn.Parameter(torch.randn(16, d) * .5); self.cross, self.selfa = MultiHeadAttention(d, d), MultiHeadAttention(d, d); self.n1, self.n2, self.n3 = [nn.LayerNorm(d) for _ in range(3)]; self.mlp = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); self.head = nn.Linear(d, 20)
        def forward(self, ids):
            x = self.n1(self.emb(ids) + self.pos); l = self.latents.expand(len(ids), -1, -1); l = l + self.cross(x, self.n2(l)); n = self.n3(l); l = l + self.selfa(n, n); l = l + self.mlp(l); return self.head(l)
    def data(s):
        x = R(s, 20, (32, 16)); return x, x[:, ::2]
    return dict(model=PerceiverIO, data=data, loss=ceseq, lr=3e-3, diag={})
