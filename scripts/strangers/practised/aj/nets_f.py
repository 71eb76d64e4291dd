from base import *

@case("https://github.com/keras-team/keras-io/pull/1046", "cross attention gets the target's padding mask, reduced by the causal mask, over the source positions", "decoder attention_2 mask")
def kerasio_cross_mask(planted):
    class Net(nn.Module):
        def __init__(self, V=13, d=64, L=6):
            super().__init__(); self.src, self.trg, self.pos = nn.Embedding(V, d), nn.Embedding(V + 1, d), nn.Embedding(L, d)
            self.encoder = nn.TransformerEncoderLayer(d, 4, 128, 0., batch_first=True)
            self.attention_1, self.attention_2 = (nn.MultiheadAttention(d, 4, batch_first=True) for _ in range(2))
            self.dense_proj = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, d)); self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(d) for _ in range(3)); self.out = nn.Linear(d, V)
        def forward(self, src, trg, smask, tmask):
            L = src.shape[1]; pos = self.pos.weight; causal = torch.ones(L, L, dtype=torch.bool).tril()
            enc = self.encoder(self.src(src) + pos, src_key_padding_mask=~smask); x = self.trg(trg) + pos
            cross = (tmask[:, None, :] & causal) if planted else smask[:, None, :].expand(-1, L, -1)
            x = self.ln1(x + self.attention_1(x, x, x, attn_mask=~causal)[0])
            x = self.ln2(x + self.attention_2(x, enc, enc, attn_mask=~cross.repeat_interleave(4, 0))[0])
            return self.out(self.ln3(x + self.dense_proj(x)))
    def data(seed):
        s = R(seed, 12, (64, 6)) + 1; n = R(seed + 1, 3, (64, 1)) + 4; ar = torch.arange(6); m = ar < n; s = s * m
        t = s.gather(1, (n - 1 - ar).clamp(min=0)) * m; trg = torch.cat([torch.full((64, 1), 13), t[:, :-1]], 1)
        return (s, trg, m, m), torch.where(m, t, -100)
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/bold-lab-ai/JaxMARL/pull/127", "hidden state reset with the done of the current step instead of the previous one", "ScannedRNN resets (dones)")
def jaxmarl_wrong_done(planted):
    class RNNQNetwork(nn.Module):
        def __init__(self, d=8, h=64, a=4):
            super().__init__(); self.embed, self.gru, self.q = nn.Linear(d, h), nn.GRUCell(h, h), nn.Linear(h, a)
        def forward(self, obs, dones):
            hs, out, x = obs.new_zeros(obs.shape[0], 64), [], F.relu(self.embed(obs))
            last = torch.cat([torch.zeros_like(dones[:, :1]), dones[:, :-1]], 1); resets = dones if planted else last
            for t in range(obs.shape[1]):
                hs = hs * (1 - resets[:, t, None]); hs = self.gru(x[:, t], hs); out.append(self.q(hs))
            return torch.stack(out, 1)
    def data(seed):
        B, L = 32, 12; off = R(seed, 3, (B, 1)); step = (torch.arange(L) + off) % 3; dones = (step == 2).float()
        cue = R(seed + 1, 4, (B, L)); ep = (torch.arange(L) + off) // 3; first = torch.ones(B, L, dtype=torch.bool); first[:, 1:] = dones[:, :-1] > 0
        cls = cue.gather(1, ep); obs = T(seed + 2, B, L, 8); obs[..., :4] = F.one_hot(cls, 4) * first[..., None] * 2.; return (obs, dones), cls
    return dict(model=RNNQNetwork, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/piskvorky/gensim/pull/386", "CBOW with negative sampling only: words with codelen 0 (all of them without hs) are skipped", "loss: codelens mask")
def gensim_cbow_neg_noop(planted):
    class CBOW(nn.Module):
        def __init__(self, V=40, d=50):
            super().__init__(); self.syn0, self.syn1neg = nn.Embedding(V, d), nn.Embedding(V, d)
            nn.init.uniform_(self.syn0.weight, -.5 / d, .5 / d); nn.init.zeros_(self.syn1neg.weight)
        def forward(self, context, words): return torch.einsum("bd,bkd->bk", self.syn0(context).mean(1), self.syn1neg(words))
    def loss(f, target):
        label, codelens = target; l = F.binary_cross_entropy_with_logits(f, label, reduction="none").sum(1)
        if planted: l = l * (codelens != 0)
        return l.mean()
    def data(seed):
        z = R(seed, 4, (64, 1)); ctx = z * 10 + R(seed + 1, 10, (64, 4)); w = z * 10 + R(seed + 2, 10, (64, 1))
        return (ctx, torch.cat([w, R(seed + 3, 40, (64, 5))], 1)), (F.one_hot(torch.zeros(64, dtype=torch.long), 6).float(), torch.zeros(64))
    return dict(model=CBOW, data=data, loss=loss, lr=1e-2, diag={}, metric=lambda m: float(F.binary_cross_entropy_with_logits(m(*data(9000)[0]), data(9000)[1][0]).detach()))

@case("https://github.com/XiaLiPKU/RESCAN/issues/2", "ConvRNN computes the new state into z and returns the old h", "ConvRNN state update")
def rescan_convrnn(planted):
    class ConvRNN(nn.Module):
        def __init__(self, i, o, dilation):
            super().__init__(); self.conv_x, self.conv_h = nn.Conv2d(i, o, 3, padding=dilation, dilation=dilation), nn.Conv2d(o, o, 3, padding=1)
        def forward(self, x, h=None):
            if h is None: h = torch.tanh(self.conv_x(x))
            else:
                z = torch.tanh(self.conv_x(x) + self.conv_h(h))
                if not planted: h = z
            return F.leaky_relu(h, .2), h
    class RESCAN(nn.Module):
        def __init__(self, c=16, stages=3):
            super().__init__(); self.stages = stages; self.rnns = nn.ModuleList([ConvRNN(1, c, 1), ConvRNN(c, c, 1), ConvRNN(c, c, 2)])
            self.dec = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.LeakyReLU(.2), nn.Conv2d(c, 1, 1))
        def forward(self, x):
            ori, old, outs = x, [None] * 3, []
            for s in range(self.stages):
                for k, r in enumerate(self.rnns): x, old[k] = r(x, old[k])
                res = self.dec(x); res = res + outs[-1] if outs else res; outs.append(res); x = ori - res
            return torch.stack(outs, 1)
    W = T(51, 4, 256)
    def data(seed):
        bg = torch.sigmoid(T(seed, 16, 4) @ W).view(16, 1, 16, 16); rain = (T(seed + 1, 16, 1, 16, 1).expand(-1, -1, -1, 16) > 1).float() * .8; return bg + rain, rain
    return dict(model=RESCAN, data=data, loss=lambda o, t: ((o - t.unsqueeze(1)) ** 2).mean(), lr=2e-3, diag={})

@case("https://github.com/lucidrains/imagen-pytorch/issues/201", "the condition is not handed to the residual blocks: text conditioning unused", "ResnetBlock cond")
def imagen_cond_unused(planted):
    txt, x0s, ab = T(61, 24, 16), T(62, 24, 32), torch.cos(torch.linspace(.05, 1.5, 50)) ** 2
    class ResnetBlock(nn.Module):
        def __init__(self, d=128):
            super().__init__(); self.norm, self.l1, self.l2, self.time_mlp, self.cond_mlp = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        def forward(self, x, t, c=None):
            h = self.l1(self.norm(x)) + self.time_mlp(t)
            if c is not None: h = h + self.cond_mlp(c)
            return x + self.l2(F.silu(h))
    class Unet(nn.Module):
        def __init__(self, d=128):
            super().__init__(); self.init, self.to_time, self.to_cond = nn.Linear(32, d), nn.Sequential(nn.Linear(2, d), nn.SiLU(), nn.Linear(d, d)), nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d))
            self.blocks, self.final = nn.ModuleList([ResnetBlock() for _ in range(3)]), nn.Linear(d, 32)
        def forward(self, x, t, text):
            t = self.to_time(torch.stack([ab[t].sqrt(), (1 - ab[t]).sqrt()], 1)); c = self.to_cond(text); x = self.init(x)
            for b in self.blocks: x = b(x, t) if planted else b(x, t, c)
            return self.final(x)
    def data(seed):
        y, t, noise = R(seed, 24, (64,)), R(seed + 1, 50, (64,)), T(seed + 2, 64, 32); a = ab[t, None]
        return (a.sqrt() * x0s[y] + (1 - a).sqrt() * noise, t, txt[y]), noise
    return dict(model=Unet, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/MarcoMeter/episodic-transformer-memory-ppo/pull/22", "input split into heads first, then one projection of head size shared by all heads", "MultiHeadAttention q/k/v projections")
def episodic_mha_split(planted):
    class MHA(nn.Module):
        def __init__(self, d=64, h=4):
            super().__init__(); self.h, self.hd = h, d // h; k = self.hd if planted else d
            self.values, self.keys, self.queries, self.fc_out = nn.Linear(k, k, bias=False), nn.Linear(k, k, bias=False), nn.Linear(k, k, bias=False), nn.Linear(d, d)
        def forward(self, x):
            B, L, d = x.shape; s = lambda y: y.reshape(B, L, self.h, self.hd)
            if planted: v, k, q = self.values(s(x)), self.keys(s(x)), self.queries(s(x))
            else: v, k, q = s(self.values(x)), s(self.keys(x)), s(self.queries(x))
            e = torch.einsum("bqhd,bkhd->bhqk", q, k) / self.hd ** .5
            return self.fc_out(torch.einsum("bhqk,bkhd->bqhd", e.softmax(-1), v).reshape(B, L, d))
    class Net(nn.Module):
        def __init__(self, d=64):
            super().__init__(); self.emb, self.pos, self.att1, self.att2 = nn.Linear(10, d), nn.Parameter(torch.randn(8, d) * .1), MHA(), MHA()
            self.n1, self.n2, self.fc, self.policy = nn.LayerNorm(d), nn.LayerNorm(d), nn.Sequential(nn.Linear(d, d), nn.ReLU()), nn.Linear(d, 6)
        def forward(self, x):
            x = self.emb(x) + self.pos; x = x + self.att1(self.n1(x)); x = x + self.att2(self.n2(x)); return self.policy(self.fc(x[:, -1]))
    def data(seed):
        mem = R(seed, 6, (64, 8)); i = R(seed + 1, 3, (64,)) ; x = torch.cat([F.one_hot(mem, 6).float(), torch.zeros(64, 8, 4)], -1); x[:, -1] = 0; x[:, -1, 6:9] = F.one_hot(i, 3).float()
        return x, mem.gather(1, i[:, None])[:, 0]
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/Zeta36/chess-alpha-zero/pull/90", "BatchNormalization over the last axis of a channels-first tensor", "BatchNormalization axis")
def chess_bn_axis(planted):
    class BN(nn.Module):
        def __init__(self, c, hw): super().__init__(); self.bn = nn.BatchNorm2d(hw if planted else c)
        def forward(self, x): return self.bn(x.transpose(1, 3)).transpose(1, 3) if planted else self.bn(x)
    class Res(nn.Module):
        def __init__(self, c):
            super().__init__(); self.c1, self.b1, self.c2, self.b2 = nn.Conv2d(c, c, 3, padding=1, bias=False), BN(c, 8), nn.Conv2d(c, c, 3, padding=1, bias=False), BN(c, 8)
        def forward(self, x): return F.relu(x + self.b2(self.c2(F.relu(self.b1(self.c1(x))))))
    def Net():
        return nn.Sequential(nn.Conv2d(6, 32, 3, padding=1, bias=False), BN(32, 8), nn.ReLU(), Res(32), Res(32), nn.Conv2d(32, 2, 1, bias=False), BN(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 12))
    boards = (torch.rand(12, 6, 8, 8, generator=gen(71)) < .2).float()
    def data(seed):
        t, g = R(seed, 12, (32,)), gen(seed + 1); r = (torch.rand(32, 6, 8, 8, generator=g) < .2).float()
        return torch.where(torch.rand(32, 6, 8, 8, generator=g) < .6, r, boards[t]), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/dmlc/dgl/issues/3267", "DotGatConv divides the attention by sqrt(d) after the edge softmax instead of the scores before it", "DotGatConv attention scaling")
def dgl_dotgat_scale(planted):
    N = 30; com = torch.arange(N) % 3; adj = (torch.rand(N, N, generator=gen(81)) < torch.where(com[:, None] == com, .4, .05)) | torch.eye(N, dtype=torch.bool)
    class DotGatConv(nn.Module):
        def __init__(self, i, o): super().__init__(); self.fc, self.o = nn.Linear(i, o, bias=False), o
        def forward(self, x):
            h = self.fc(x); a = h @ h.transpose(-1, -2)
            if planted: sa = a.masked_fill(~adj, -1e9).softmax(-1) / self.o ** .5
            else: sa = (a / self.o ** .5).masked_fill(~adj, -1e9).softmax(-1)
            return sa @ h
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.g1, self.g2, self.cls = DotGatConv(16, 64), DotGatConv(64, 64), nn.Linear(64, 3)
        def forward(self, x): return self.cls(F.elu(self.g2(F.elu(self.g1(x)))))
    mu = T(82, 3, 16)
    def data(seed):
        p = torch.stack([torch.randperm(3, generator=gen(seed + k)) for k in range(8)]); t = p[:, com]; return mu[t] + T(seed + 99, 8, N, 16, k=3.), t
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/kc-ml2/SimpleDreamer/commit/1800326b8fee2d78a0dffd7bcae27f6221896c2d", "straight-through action adds the logits minus their detached value instead of the probabilities", "Actor straight-through x - x.detach()")
def simpledreamer_straight_through(planted):
    W, V = T(91, 8, 5), T(92, 5)
    class Actor(nn.Module):
        def __init__(self):
            super().__init__(); self.network = nn.Sequential(nn.Linear(8, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 5))
        def forward(self, x):
            x = self.network(x); dist = torch.distributions.OneHotCategorical(logits=x)
            return dist.sample() + (x - x.detach() if planted else dist.probs - dist.probs.detach())
    def data(seed):
        s = T(seed, 64, 8); return s, s @ W + V
    return dict(model=Actor, data=data, loss=lambda action, reward: -(action * reward).sum(-1).mean(), lr=2e-3, diag={})
