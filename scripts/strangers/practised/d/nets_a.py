from base import *

def blobs(seed, n=32, size=12, classes=10, noise=.6):
    protos = T(7, classes, 1, size, size); y = R(seed, classes, (n,))
    return protos[y] + noise * T(seed + 5, n, 1, size, size), y

def masks(seed, n=16, size=16):
    g = gen(seed); c = torch.randint(4, size - 4, (n, 2), generator=g); r = torch.randint(2, 4, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    m = ((yy - c[:, 0, None, None]) ** 2 + (xx - c[:, 1, None, None]) ** 2 <= (r ** 2)[:, None, None]).float()[:, None]
    return m + .4 * torch.randn(n, 1, size, size, generator=g), m

def chain(seed, n=32, length=12, V=16, noise=.1):
    g = gen(seed); perm = torch.randperm(V, generator=gen(3)); x = [torch.randint(0, V, (n,), generator=g)]
    for _ in range(length):
        r = torch.randint(0, V, (n,), generator=g); x.append(torch.where(torch.rand(n, generator=g) < noise, r, perm[x[-1]]))
    return torch.stack(x, 1)

@case("https://github.com/jaehong31/CGES/issues/1", "model returns softmax, loss applies softmax cross entropy again", "softmax at the end of mnist_conv")
def cges_double_softmax(planted):
    class MnistConv(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 32, 5, padding=2)
            self.fc1, self.fc2 = nn.Linear(32 * 9, 64), nn.Linear(64, 10)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = self.fc2(F.relu(self.fc1(x.flatten(1))))
            return F.softmax(x, -1) if planted else x
    return dict(model=MnistConv, data=blobs, loss=ce, lr=1e-3, diag={})

class CausalBlock(nn.Module):
    def __init__(self, d, h=4):
        super().__init__(); self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d); self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x):
        B, L, D = x.shape; q, k, v = (t.view(B, L, self.h, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, D)
        x = x + self.proj(y)
        return x + self.mlp(self.ln2(x))

@case("https://github.com/huggingface/transformers/pull/44642", "labels shifted by the user although the model shifts them again in its loss", "lm_labels in the data feeding / loss (second shift)")
def rocstories_double_shift(planted):
    V = 16
    class OpenAIGPTLMHead(nn.Module):
        def __init__(self):
            super().__init__(); self.tokens_embed, self.positions_embed = nn.Embedding(V, 48), nn.Embedding(16, 48)
            self.h = nn.ModuleList([CausalBlock(48) for _ in range(2)]); self.ln, self.lm_head = nn.LayerNorm(48), nn.Linear(48, V)
        def forward(self, ids):
            x = self.tokens_embed(ids) + self.positions_embed(torch.arange(ids.shape[1]))
            for l in self.h: x = l(x)
            return self.lm_head(self.ln(x))
    def data(seed):
        ids = chain(seed); labels = ids
        if planted: labels = torch.full_like(ids, -100); labels[:, :-1] = ids[:, 1:]
        return ids, labels
    def loss(o, t): return F.cross_entropy(o[:, :-1].flatten(0, 1), t[:, 1:].flatten(), ignore_index=-100)
    return dict(model=OpenAIGPTLMHead, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/huggingface/transformers/issues/3711", "LM loss computed against the unshifted labels", "loss (labels not shifted)")
def transfoxl_no_shift(planted):
    V = 16
    class TransfoXLLMHeadModel(nn.Module):
        def __init__(self):
            super().__init__(); self.word_emb, self.pos = nn.Embedding(V, 48), nn.Embedding(16, 48)
            self.layers = nn.ModuleList([CausalBlock(48) for _ in range(2)]); self.ln, self.crit = nn.LayerNorm(48), nn.Linear(48, V)
        def forward(self, ids):
            x = self.word_emb(ids) + self.pos(torch.arange(ids.shape[1]))
            for l in self.layers: x = l(x)
            return self.crit(self.ln(x))
    def data(seed): ids = chain(seed); return ids, ids
    def loss(o, t): return ceseq(o, t) if planted else ceseq(o[:, :-1], t[:, 1:])
    return dict(model=TransfoXLLMHeadModel, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/unit8co/darts/pull/1162", "standard deviation handed to GaussianNLLLoss as the variance", "loss (GaussianLikelihood: sigma used as var)")
def darts_sigma_as_var(planted):
    w = T(2, 24, 1)
    class RNNModule(nn.Module):
        def __init__(self):
            super().__init__(); self.rnn = nn.LSTM(1, 32, batch_first=True); self.V = nn.Linear(32, 2); self.softplus = nn.Softplus()
        def forward(self, x):
            o, _ = self.rnn(x); o = self.V(o)
            return torch.stack([o[..., 0], self.softplus(o[..., 1])], -1)
    def data(seed):
        ph = 6.28 * torch.rand(32, 1, generator=gen(seed)); t = torch.arange(25)[None] * .5
        y = torch.sin(t + ph) * .4 + .05 * T(seed + 1, 32, 25); return y[:, :-1, None], y[:, 1:]
    def loss(o, t): return F.gaussian_nll_loss(o[..., 0], t, o[..., 1] if planted else o[..., 1] ** 2)
    return dict(model=RNNModule, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/code-gen/cscg/issues/4", "decoder is fed the token of step t that it must output at step t", "decoder input feeding (target token not delayed)")
def cscg_decoder_input(planted):
    V = 16
    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__(); self.emb, self.enc_emb = nn.Embedding(V, 32), nn.Embedding(V, 32)
            self.enc, self.dec, self.lin = nn.LSTM(32, 48, batch_first=True), nn.LSTM(32, 48, batch_first=True), nn.Linear(48, V)
        def forward(self, src, tgt): _, h = self.enc(self.enc_emb(src)); o, _ = self.dec(self.emb(tgt), h); return self.lin(o)
    def data(seed):
        y = chain(seed, length=8); return (y[:, :1].repeat(1, 3), y[:, 1:] if planted else y[:, :-1]), y[:, 1:]
    return dict(model=Seq2Seq, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/facebookincubator/flowtorch/pull/100", "log abs det Jacobian of the inverse has the wrong sign", "sign of log_detJ in inverse")
def flowtorch_logdet_sign(planted):
    class Coupling(nn.Module):
        def __init__(self, flip):
            super().__init__(); self.flip = flip; self.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4)); nn.init.normal_(self.net[2].weight, std=.01)
        def inverse(self, y):
            a, b = y.chunk(2, -1); a, b = (b, a) if self.flip else (a, b)
            s, m = self.net(a).chunk(2, -1); s = torch.tanh(s) * 2; b = (b - m) * torch.exp(-s)
            ldj = -s.sum(-1); ldj = -ldj if planted else ldj
            return torch.cat((b, a) if self.flip else (a, b), -1), ldj
    class Flow(nn.Module):
        def __init__(self): super().__init__(); self.bijectors = nn.ModuleList([Coupling(k % 2) for k in range(4)])
        def forward(self, y):
            ld = 0
            for b in self.bijectors: y, l = b.inverse(y); ld = ld + l
            return -.5 * (y ** 2).sum(-1) - 2 * math.log(2 * math.pi) + ld
    def data(seed):
        z = T(seed, 64, 4); x = torch.cat([z[:, :2] * .4, z[:, 2:] * .3 + torch.sin(3 * z[:, :2] * .4) + 1], 1); return x, x
    def metric(m):
        tot = 0
        with torch.no_grad():
            for k in range(5):
                y = data(9000 + k)[0]; ld = 0
                for b in m.bijectors: a = y.chunk(2, -1)[1 if b.flip else 0]; ld = ld - (torch.tanh(b.net(a).chunk(2, -1)[0]) * 2).sum(-1); y = b.inverse(y)[0]
                tot += float((.5 * (y ** 2).sum(-1) + 2 * math.log(2 * math.pi) - ld).mean()) / 5
        return tot
    return dict(model=Flow, data=data, loss=lambda o, t: -o.mean(), lr=5e-3, diag={}, metric=metric)

@case("https://github.com/qiancheng0/ToolRL/issues/52", "KL penalty enters the policy loss with the wrong sign", "loss (minus kl_loss * kl_loss_coef)")
def toolrl_kl_sign(planted):
    V = 12; ref_w = T(5, 16, V)
    class Actor(nn.Module):
        def __init__(self): super().__init__(); self.body, self.lm_head = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()), nn.Linear(64, V)
        def forward(self, s): return self.lm_head(self.body(s))
    def data(seed):
        s = T(seed, 64, 16); ref = (s @ ref_w) / 2; a = torch.multinomial(ref.softmax(-1), 1, generator=gen(seed + 1))[:, 0]
        r = (a % 3 == 0).float(); return s, (a, r - r.mean(), ref.log_softmax(-1))
    def loss(o, t):
        a, adv, ref = t; lp = o.log_softmax(-1); pg = -(adv * (lp - ref).gather(1, a[:, None])[:, 0].clamp(max=5).exp()).mean()
        kl = (lp.exp() * (lp - ref)).sum(-1).mean()
        return pg - .5 * kl if planted else pg + .5 * kl
    def hl(o, t): lp = o.log_softmax(-1); return -(t[1] * (lp - t[2]).gather(1, t[0][:, None])[:, 0].clamp(max=5).exp()).mean() + .5 * (lp.exp() * (lp - t[2])).sum(-1).mean()
    def metric(m):
        with torch.no_grad(): return float(sum(hl(m(data(9000 + k)[0]), data(9000 + k)[1]) for k in range(5)) / 5)
    return dict(model=Actor, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/NTU-AIoT-Lab/EfficientFi/issues/4", "straight-through step and latent losses written without detach", "Quantize: quantized = inputs + (quantized - inputs)")
def efficientfi_no_detach(planted):
    proto = T(6, 16, 24)
    class Quantize(nn.Module):
        def __init__(self, n, d):
            super().__init__(); self.embedding = nn.Embedding(n, d); nn.init.normal_(self.embedding.weight)
        def forward(self, x):
            idx = torch.cdist(x, self.embedding.weight).argmin(-1); q = self.embedding(idx)
            if planted: e = q_l = F.mse_loss(q, x); q = x + (q - x)
            else: e, q_l = F.mse_loss(q.detach(), x), F.mse_loss(q, x.detach()); q = x + (q - x).detach()
            return q, q_l + .25 * e
    class EfficientFi(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder, self.vq = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 8)), Quantize(32, 8)
            self.decoder = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 24))
        def forward(self, x): q, l = self.vq(self.encoder(x)); return self.decoder(q), l
    def data(seed): x = proto[R(seed, 16, (64,))] + .1 * T(seed + 1, 64, 24); return x, x
    def metric(m):
        with torch.no_grad(): return sum(float(F.mse_loss(m(data(9000 + k)[0])[0], data(9000 + k)[1])) for k in range(5)) / 5
    return dict(model=EfficientFi, data=data, loss=lambda o, t: F.mse_loss(o[0], t) + o[1], lr=5e-3, diag={}, metric=metric)

@case("https://github.com/navneet-nmk/pytorch-rl/issues/2", "terminal flag not used in the Q targets", "loss (target r + gamma * Q' without (1 - done))")
def dqn_no_done(planted):
    W = T(4, 8, 3)
    class QNet(nn.Module):
        def __init__(self): super().__init__(); self.linear1, self.linear2, self.out = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 3)
        def forward(self, s): return self.out(F.relu(self.linear2(F.relu(self.linear1(s)))))
    def data(seed):
        s = T(seed, 64, 8); s2 = s + .3 * T(seed + 1, 64, 8); a = R(seed + 2, 3, (64,)); done = (s[:, 0] > .2).float()
        return s, (a, (s @ W).gather(1, a[:, None])[:, 0] * .3, (s2 @ W).max(1).values + 5, done)
    def loss(o, t, p=planted):
        a, r, nq, done = t; y = r + .99 * nq * (1 if p else 1 - done)
        return F.smooth_l1_loss(o.gather(1, a[:, None])[:, 0], y)
    return dict(model=QNet, data=data, loss=loss, lr=3e-3, diag={})
