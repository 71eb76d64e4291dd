from base import *

def lin_task(seed, n=32, d=16, k=4, ts=7):
    x = T(seed, n, d); W = T(ts, d, k); return x, (x @ W).argmax(-1)
def img_task(seed, n=32, c=1, h=12, k=4, noise=.7, ts=5):
    P = T(ts, k, c, h, h); t = R(seed + 50000, k, (n,)); return P[t] + noise * T(seed, n, c, h, h), t

@case("https://github.com/bonlime/pytorch-tools/issues/81", "focal loss with alpha=None builds its weight with zeros_like instead of ones_like: loss is always 0", "loss: alpha weight")
def focal_weight_zeros(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)); self.head = nn.Linear(16 * 9, 1)
        def forward(self, x): return self.head(self.features(x).flatten(1)).squeeze(1)
    def focal(o, t):
        ce_ = F.binary_cross_entropy_with_logits(o, t, reduction="none"); pt = torch.exp(-ce_)
        alpha = torch.zeros_like(ce_) if planted else torch.ones_like(ce_)
        return (alpha * (1 - pt) ** 2 * ce_).mean()
    def data(seed): x, t = img_task(seed, k=2); return x, t.float()
    return dict(model=Net, data=data, loss=focal, lr=1e-3, diag={})

@case("https://github.com/tensorflow/similarity/issues/237", "l2_normalize without axis: embeddings normalised over batch and features together", "loss: normalisation of za, zb")
def simclr_norm_axis(planted):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__(); self.backbone = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); self.projector = nn.Linear(64, 16)
        def forward(self, a, b): return torch.stack([self.projector(self.backbone(a)), self.projector(self.backbone(b))], 1)
    def nt(o, t):
        za, zb = o[:, 0], o[:, 1]
        if planted: za, zb = za / za.norm(), zb / zb.norm()
        else: za, zb = F.normalize(za, dim=-1), F.normalize(zb, dim=-1)
        return F.cross_entropy(za @ zb.T / .5, t)
    def data(seed):
        s = T(seed, 32, 8) @ T(3, 8, 32) / 2.8; return (s + T(seed + 1 + 10**6, 32, 32), s + T(seed + 2 * 10**6, 32, 32)), torch.arange(32)
    return dict(model=Encoder, data=data, loss=nt, lr=1e-3, diag={})

@case("https://github.com/zcaicaros/L2D/issues/5", "advantages = rewards (N,) - vals (N,1) broadcasts to (N,N)", "loss: advantages")
def ppo_advantage_broadcast(planted):
    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__(); self.base = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); self.actor = nn.Linear(64, 3); self.critic = nn.Linear(64, 1)
        def forward(self, x): h = self.base(x); return torch.cat([self.actor(h), self.critic(h)], 1)
    def loss(o, t):
        logp = F.log_softmax(o[:, :3], 1).gather(1, t[:, :1].long()).squeeze(1); vals = o[:, 3:]; rewards = t[:, 1]
        if not planted: vals = vals.squeeze(1)
        adv = rewards - vals.detach(); ratio = torch.exp(logp - math.log(1 / 3))
        s1, s2 = ratio * adv, ratio.clamp(.2, 5) * adv
        return -torch.min(s1, s2).mean() + .5 * ((vals.view(-1) - rewards) ** 2).mean()
    def data(seed):
        x = T(seed, 64, 8); a = R(seed + 9, 3, (64,)); best = (x @ T(2, 8, 3)).argmax(1); return x, torch.stack([a.float(), (a == best).float() * 2], 1)
    return dict(model=ActorCritic, data=data, loss=loss, lr=1e-3, diag={})

class SeqNorm(nn.Module):
    def __init__(self, d, dim): super().__init__(); self.a = nn.Parameter(torch.ones(d)); self.b = nn.Parameter(torch.zeros(d)); self.dim = dim
    def forward(self, z):
        mu, sd = z.mean(self.dim, keepdim=True), z.std(self.dim, keepdim=True); return (z - mu) / (sd + 1e-3) * self.a + self.b

@case("https://github.com/jadore801120/attention-is-all-you-need-pytorch/pull/17", "LayerNormalization takes mean and std along the sequence instead of the features", "layer_norm")
def layernorm_over_sequence(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(12, 32); self.pos = nn.Parameter(torch.randn(10, 32) * .02); self.attn = nn.ModuleList([nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(2)])
            self.norm = nn.ModuleList([SeqNorm(32, 1 if planted else -1) for _ in range(4)]); self.ffn = nn.ModuleList([nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(2)]); self.fc = nn.Linear(32, 4)
        def forward(self, x):
            h = self.emb(x) + self.pos
            for i in range(2): h = self.norm[2 * i](h + self.attn[i](h, h, h)[0]); h = self.norm[2 * i + 1](h + self.ffn[i](h))
            return self.fc(h.mean(1))
    def data(seed): x = R(seed, 12, (48, 10)); E = T(11, 12, 4); return x, E[x].sum(1).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/GokuMohandas/fast-weights/issues/9", "layer norm in the fast-weights RNN averages over the batch axis (0) instead of the hidden units", "layer norm in the cell")
def rnn_ln_batch_axis(planted):
    class FastCell(nn.Module):
        def __init__(self):
            super().__init__(); self.W_h = nn.Linear(32, 32); self.W_x = nn.Linear(6, 32); self.gain = nn.Parameter(torch.ones(32)); self.bias = nn.Parameter(torch.zeros(32)); self.fc = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 6))
        def forward(self, x):
            h = torch.zeros(x.size(0), 32); A = torch.zeros(x.size(0), 32, 32); dim = 0 if planted else -1
            for i in range(x.size(1)):
                s0 = self.W_h(h) + self.W_x(x[:, i]); hs = torch.relu(s0)
                for _ in range(1):
                    hs = s0 + (hs.unsqueeze(1) @ A).squeeze(1); mu = hs.mean(dim, keepdim=True); sg = ((hs - mu) ** 2).mean(dim, keepdim=True).add(1e-5).sqrt(); hs = torch.relu((hs - mu) / sg * self.gain + self.bias)
                A = .9 * A + .1 * hs.unsqueeze(2) @ hs.unsqueeze(1); h = hs
            return self.fc(h)
    def data(seed): t = R(seed, 6, (32, 5)); return F.one_hot(t, 6).float(), t[:, -3]
    return dict(model=FastCell, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/Atcold/NYU-DLSP20/issues/270", "encoder loop calls every layer on the embedding: only the last layer's output is used", "Encoder.forward")
def encoder_only_last_layer(planted):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(10, 32); self.pos = nn.Parameter(torch.randn(8, 32) * .1)
            self.enc_layers = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True) for _ in range(3)]); self.fc = nn.Linear(32, 10)
        def forward(self, x):
            embedding = self.embedding(x) + self.pos
            for layer in self.enc_layers:
                if planted: x = layer(embedding)
                else: x = embedding = layer(embedding)
            return self.fc(x)
    def data(seed): x = R(seed, 10, (32, 8)); return x, (x + (x.float().mean(1, keepdim=True) > 4.5)) % 10
    return dict(model=Encoder, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/ematvey/tensorflow-seq2seq-tutorials/issues/1", "bidirectional encoder concatenates the forward output with itself", "encoder_outputs concat / backward LSTM unused")
def bidir_forward_twice(planted):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__(); self.embed = nn.Embedding(8, 16); self.fw = nn.LSTM(16, 32, batch_first=True); self.bw = nn.LSTM(16, 32, batch_first=True); self.out = nn.Linear(64, 8)
        def forward(self, x):
            e = self.embed(x); f = self.fw(e)[0]; b = self.bw(e.flip(1))[0].flip(1)
            return self.out(torch.cat([f, f] if planted else [f, b], -1))
    def data(seed): x = R(seed, 8, (32, 10)); return x, torch.cat([x[:, 1:], x[:, -1:]], 1)
    return dict(model=Encoder, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/patverga/bran/issues/5", "residual adds outputs to itself instead of the inputs (outputs += outputs)", "feed-forward residual")
def residual_adds_itself(planted):
    class FFN(nn.Module):
        def __init__(self, d): super().__init__(); self.conv1, self.conv2, self.norm = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(2 * d, d, 1), nn.LayerNorm(d)
        def forward(self, inputs):
            outputs = self.conv2(F.relu(self.conv1(inputs.transpose(1, 2)))).transpose(1, 2)
            return self.norm(outputs + (outputs if planted else inputs))
    class Attn(nn.Module):
        def __init__(self, d): super().__init__(); self.mha, self.norm = nn.MultiheadAttention(d, 4, batch_first=True), nn.LayerNorm(d)
        def forward(self, x): return self.norm(x + self.mha(x, x, x)[0])
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.emb = nn.Embedding(20, 32); self.blocks = nn.Sequential(*[m for _ in range(6) for m in (Attn(32), FFN(32))]); self.fc = nn.Linear(32, 20)
        def forward(self, x): return self.fc(self.blocks(self.emb(x)))
    def data(seed): x = R(seed, 20, (32, 10)); return x, torch.randperm(20, generator=gen(4))[x]
    return dict(model=Net, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/rll-research/cic/issues/5", "observations are encoded inside torch.no_grad: the CNN never gets a gradient", "encoder")
def encoder_in_no_grad(planted):
    class Agent(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()); self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        def forward(self, obs):
            with torch.set_grad_enabled(not planted and torch.is_grad_enabled()): h = self.encoder(obs)
            return self.trunk(h)
    def data(seed):
        t = R(seed + 5, 4, (48,)); k = T(8, 4, 1, 16, 16); return F.conv2d(k[t].transpose(0, 1), torch.ones(48, 1, 1, 1), groups=48).transpose(0, 1) + .4 * T(seed, 48, 1, 16, 16), t
    return dict(model=Agent, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/liamb315/CharacterGAN/issues/4", "characters are picked with argmax between generator and discriminator: no gradient for the generator", "generator / argmax")
def argmax_between(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 6 * 10)); self.embed = nn.Linear(10, 16, bias=False); self.discriminator = nn.Sequential(nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 4))
        def forward(self, z):
            logits = self.generator(z).view(-1, 6, 10)
            chars = F.one_hot(logits.argmax(-1), 10).float() if planted else F.softmax(logits, -1)
            return self.discriminator(self.embed(chars).flatten(1))
    return dict(model=Net, data=lambda s: lin_task(s, 48), loss=ce, lr=3e-3, diag={})

@case("https://github.com/lucidrains/DALLE-pytorch/issues/57", "ignore_index is defined but never passed to cross_entropy: padding counts in the loss", "loss: padding")
def pad_counts_in_loss(planted):
    class LM(nn.Module):
        def __init__(self): super().__init__(); self.emb = nn.Embedding(16, 32); self.rnn = nn.GRU(32, 64, batch_first=True); self.fc = nn.Linear(64, 16)
        def forward(self, x): return self.fc(self.rnn(self.emb(x))[0])
    def loss(o, t): return F.cross_entropy(o.flatten(0, 1), t.flatten(), **({} if planted else dict(ignore_index=0)))
    def data(seed):
        perm = torch.randperm(15, generator=gen(1)) + 1; x = [R(seed, 15, (32,)) + 1]
        for _ in range(24): x.append(perm[x[-1] - 1])
        x = torch.stack(x, 1); L = R(seed + 3, 5, (32, 1)) + 3; x[torch.arange(25)[None] >= L] = 0; return x[:, :-1], x[:, 1:]
    return dict(model=LM, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/sogou/SogouMRCToolkit/pull/8", "highway layer has its activations exchanged: relu on the transform gate, sigmoid on the transform", "Highway gate/trans activation")
def highway_activations_swapped(planted):
    class Highway(nn.Module):
        def __init__(self, d): super().__init__(); self.gate, self.trans = nn.Linear(d, d), nn.Linear(d, d)
        def forward(self, x):
            g, t = self.gate(x), self.trans(x)
            g, t = (F.relu(g), torch.sigmoid(t)) if planted else (torch.sigmoid(g), F.relu(t))
            return g * t + (1 - g) * x
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.inp = nn.Linear(16, 64); self.hw = nn.Sequential(*[Highway(64) for _ in range(4)]); self.out = nn.Linear(64, 4)
        def forward(self, x): return self.out(self.hw(self.inp(x)))
    return dict(model=Net, data=lin_task, loss=ce, lr=1e-3, diag={})

@case("https://github.com/thomlake/pytorch-attention/pull/2", "attention returns the raw scores w instead of the normalised ones", "attention normalisation")
def attention_scores_not_normalised(planted):
    class Attention(nn.Module):
        def __init__(self, d): super().__init__(); self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        def forward(self, x):
            w = self.q(x) @ self.k(x).transpose(1, 2); normalized = torch.sigmoid(w)
            return (w if planted else normalized) @ self.v(x) / x.size(1)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.emb = nn.Embedding(12, 64); self.att = nn.ModuleList([Attention(64) for _ in range(4)]); self.fc = nn.Linear(64, 4)
        def forward(self, x):
            h = self.emb(x)
            for a in self.att: h = h + a(h)
            return self.fc(h.mean(1))
    def data(seed): x = R(seed, 12, (48, 12)); return x, T(11, 12, 4)[x].sum(1).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})
