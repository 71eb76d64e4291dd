from base import *
GH = "https://github.com/"
def smooth(s, b, c, n):  # smooth random images
    return F.interpolate(T(s, b, c, n // 4, n // 4), size=(n, n), mode="bilinear", align_corners=False)

@case(GH + "lsdefine/attention-is-all-you-need-keras/issues/12", "softmax on the output and again in the loss", "head / softmax")
def kattn_double_softmax(planted):
    perm = torch.randperm(24, generator=gen(1))
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(24, 48); s.pos = nn.Parameter(torch.randn(12, 48) * .02)
            s.enc = nn.TransformerEncoderLayer(48, 4, 96, dropout=0., batch_first=True, norm_first=True); s.norm = nn.LayerNorm(48); s.head = nn.Linear(48, 24, bias=False)
        def forward(s, x):
            y = s.head(s.norm(s.enc(s.emb(x) + s.pos)))
            return y.softmax(-1) if planted else y
    def data(seed): x = R(seed, 24, (32, 12)); return x, perm[x]
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "tsunrise/everybody-compose/pull/53", "attention weights softmaxed over the queries, not the keys", "attention softmax (wq, wk)")
def compose_attn_dim(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.gru = nn.GRU(20, 32, batch_first=True); s.wq = nn.Linear(12, 32); s.wk = nn.Linear(44, 32); s.out = nn.Sequential(nn.Linear(44, 64), nn.ReLU(), nn.Linear(64, 8))
        def forward(s, q, m):
            h, _ = s.gru(m); h = torch.cat([h, m[..., :12]], -1)
            a = s.wq(q) @ s.wk(h).transpose(1, 2) / 32 ** .5
            a = a.softmax(1 if planted else -1)
            return s.out(a @ torch.cat([h[..., :24], m], -1))
    K = F.normalize(T(2, 10, 12), dim=-1) * 3.5
    def data(seed):
        g = gen(seed); idx = torch.stack([torch.randperm(10, generator=g)[:6] for _ in range(32)]); val = torch.randint(0, 8, (32, 6), generator=g)
        m = torch.cat([K[idx], F.one_hot(val, 8).float() * 2], -1); which = torch.randint(0, 6, (32, 5), generator=g)
        return (K[idx.gather(1, which)], m), val.gather(1, which)
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "SimonThomine/RememberingNormality/issues/7", "memory keys and values are plain tensors, not parameters", "keys, values")
def memory_not_param(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
            k, v = torch.randn(20, 16), torch.randn(20, 16)
            s.keys, s.values = (k, v) if planted else (nn.Parameter(k), nn.Parameter(v))
        def forward(s, x):
            q = s.conv(x).flatten(2).transpose(1, 2)
            a = (q @ s.keys.t() / 4).softmax(-1)
            return a @ s.values
    W = T(3, 3, 16, k=.6)
    def data(seed):
        x = smooth(seed, 16, 3, 12); return x, torch.tanh(x.flatten(2).transpose(1, 2) @ W)
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "denfed/leaf-audio-pytorch/issues/3", "Gabor constraint runs under torch.no_grad: filters never learn", "center, width")
def leaf_nograd(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.center = nn.Parameter(torch.linspace(.4, 1.6, 12)); s.width = nn.Parameter(torch.full((12,), 12.)); s.head = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 10))
            s.register_buffer("t", torch.arange(-32, 33).float())
        def constraint(s): return s.center.clamp(0, math.pi), s.width.clamp(2, 40)
        def forward(s, x):
            if planted:
                with torch.no_grad(): c, w = s.constraint()
            else: c, w = s.constraint()
            env = torch.exp(-.5 * (s.t / w[:, None]) ** 2) / (w[:, None] * 2.5)
            re, im = (env * torch.cos(c[:, None] * s.t))[:, None], (env * torch.sin(c[:, None] * s.t))[:, None]
            e = F.conv1d(x, re) ** 2 + F.conv1d(x, im) ** 2
            return s.head(torch.log(e.mean(-1) * 20 + .02))
    fr = torch.linspace(.3, 2.9, 10)
    def data(seed):
        g = gen(seed); y = torch.randint(0, 10, (32,), generator=g); ph = torch.rand(32, 1, generator=g) * 6.3
        return (torch.sin(fr[y][:, None] * torch.arange(200) + ph) + .3 * torch.randn(32, 200, generator=g))[:, None], y
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "bguisard/SuperResolution/issues/2", "residual and upsampling blocks in plain lists: not registered", "rs, up")
def sr_unregistered(planted):
    class RB(nn.Module):
        def __init__(s, c): super().__init__(); s.a = nn.Conv2d(c, c, 3, padding=1); s.b = nn.Conv2d(c, c, 3, padding=1)
        def forward(s, x): return x + s.b(F.relu(s.a(x)))
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.inp = nn.Conv2d(3, 16, 3, padding=1)
            wrap = list if planted else nn.ModuleList
            s.rs = wrap([RB(16) for _ in range(4)]); s.up = wrap([nn.Conv2d(16, 64, 3, padding=1)]); s.out = nn.Conv2d(16, 3, 3, padding=1)
        def forward(s, x):
            h = F.relu(s.inp(x))
            for r in s.rs: h = r(h)
            for u in s.up: h = F.relu(F.pixel_shuffle(u(h), 2))
            return s.out(h)
    def data(seed):
        y = torch.tanh(smooth(seed, 16, 3, 16) * 1.5); return F.avg_pool2d(y, 2), y
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "MorvanZhou/Reinforcement-learning-with-tensorflow/issues/107", "action goes through tanh and then a sigmoid", "output squashing (a)")
def ddpg_tanh_sigmoid(planted):
    W, V = T(4, 10, 16, k=.5), T(5, 16, 2, k=1.2)
    def model():
        return nn.Sequential(nn.Linear(10, 100), nn.ReLU(), nn.Linear(100, 2), *([nn.Tanh()] if planted else []), nn.Sigmoid())
    def data(seed): x = T(seed, 64, 10); return x, torch.sigmoid(2 * torch.tanh(x @ W) @ V)
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(GH + "ZhihanLee/DDPG_Learning/issues/2", "state not normalised: tanh actor saturates", "inputs / first layer")
def ddpg_state_raw(planted):
    mu, sd = torch.tensor([1500., 60, 0, 20, 3, 400, 0, 1]), torch.tensor([900., 30, 40, 15, 2, 300, 1, .5])
    W, V = T(6, 8, 12, k=.5), T(7, 12, 2, k=.6)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.register_buffer("mu", mu); s.register_buffer("sd", sd); s.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        def forward(s, x): return torch.tanh(s.net(x if planted else ((x - s.mu) / s.sd).clamp(-5, 5)))
    def data(seed): z = T(seed, 64, 8); return z * sd + mu, torch.tanh(torch.tanh(z @ W) @ V)
    return dict(model=N, data=data, loss=mse, diag=MSE)

def hard_triplet(e, y, m=.5):
    d = ((e[:, None] - e[None]) ** 2).sum(-1).add(1e-8).sqrt(); same = y[:, None] == y[None]
    return (m + (d * same).amax(1) - (d + 1e4 * same).amin(1)).clamp(min=0).mean()
@case(GH + "OML-Team/open-metric-learning/issues/367", "features not normalised: batch-hard triplet loss collapses", "embedding output")
def oml_not_normalised(planted):
    C = T(8, 8, 32)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()); s.emb = nn.Linear(128, 16)
        def forward(s, x): e = s.emb(s.net(x)); return e if planted else F.normalize(e, dim=-1)
    def data(seed): y = torch.arange(8).repeat_interleave(4); return C[y] * .8 + T(seed, 32, 32), y
    return dict(model=N, data=data, loss=hard_triplet, diag=dict(per="batch"))

@case(GH + "open-mmlab/mmdetection/pull/5181", "objectness bias of the YOLO head starts at 0", "pred bias")
def yolo_bias(planted):
    tmpl = T(9, 3, 4, 4, k=2.)
    def model():
        head = nn.Conv2d(32, 3, 1)
        if not planted:
            with torch.no_grad(): head.bias[0] = math.log(.01 / .99)
        else: nn.init.zeros_(head.bias)
        return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(.1), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.1), nn.Conv2d(32, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.1), head)
    def data(seed):
        g = gen(seed); x = torch.randn(16, 3, 48, 48, generator=g) * .5; t = torch.zeros(16, 3, 12, 12)
        for b in range(16):
            i, j = torch.randint(0, 12, (2,), generator=g).tolist(); x[b, :, 4 * i:4 * i + 4, 4 * j:4 * j + 4] += tmpl; t[b, 0, i, j] = 1
            o = torch.rand(2, generator=g); t[b, 1:, i, j] = o; x[b, 0, 4 * i:4 * i + 4, 4 * j:4 * j + 4] += 3 * o[0]; x[b, 1, 4 * i:4 * i + 4, 4 * j:4 * j + 4] += 3 * o[1]
        return x, t
    def loss(o, t):
        obj = F.binary_cross_entropy_with_logits(o[:, 0], t[:, 0], reduction="sum") / len(o)
        return obj + 2 * (((o[:, 1:] - t[:, 1:]) ** 2) * t[:, :1]).sum() / len(o)
    return dict(model=model, data=data, loss=loss)

@case(GH + "queenie88/A-GCN/issues/4", "learned adjacency is detached: theta and phi get no gradient", "theta, phi")
def agcn_detach(planted):
    Q = T(10, 6, 6, k=.8); H = T(11, 6, 5)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.theta = nn.Linear(6, 16); s.phi = nn.Linear(6, 16); s.g = nn.Linear(6, 32); s.h = nn.Sequential(nn.ReLU(), nn.Linear(38, 32), nn.ReLU()); s.out = nn.Linear(32, 5)
        def forward(s, x):
            a = (s.theta(x) @ s.phi(x).transpose(1, 2) / 4).softmax(-1)
            if planted: a = a.detach()
            return s.out(s.h(torch.cat([a @ s.g(x), x], -1)))
    def data(seed):
        x = T(seed, 32, 12, 6); a = (x @ Q @ x.transpose(1, 2) * 1.5).softmax(-1); return x, (a @ x @ H).argmax(-1)
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "LAMDA-Tabular/TALENT/pull/92", "predictions (n,) against targets (n, 1): loss broadcasts", "loss / output shape")
def talent_broadcast(planted):
    W, V = T(12, 12, 16, k=.5), T(13, 16, 1, k=.5)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, x): y = s.net(x); return y.squeeze(-1) if planted else y
    def data(seed): x = T(seed, 64, 12); return x, torch.tanh(x @ W) @ V
    return dict(model=N, data=data, loss=mse)

@case(GH + "mlwithme/TransformerTranslation/issues/6", "key padding mask inverted: the real tokens are masked out", "attention mask")
def mask_inverted(planted):
    w = T(14, 30, 6, k=1.)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(30, 32, padding_idx=0); s.pos = nn.Parameter(torch.randn(16, 32) * .02); s.norm1 = nn.LayerNorm(32); s.qkv = nn.Linear(32, 96); s.proj = nn.Linear(32, 32); s.norm2 = nn.LayerNorm(32); s.ff = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)); s.cls = nn.Parameter(torch.randn(32) * .02); s.out = nn.Linear(32, 6)
        def forward(s, x):
            keep = torch.cat([torch.ones_like(x[:, :1], dtype=torch.bool), x != 0], 1)
            h = torch.cat([s.cls.expand(len(x), 1, 32), s.emb(x) + s.pos], 1); b, t, d = h.shape
            q, k, v = s.qkv(s.norm1(h)).view(b, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
            a = (q @ k.transpose(-1, -2) / 8 ** .5).masked_fill(keep[:, None, None] if planted else ~keep[:, None, None], -1e9).softmax(-1)
            h = h + s.proj((a @ v).transpose(1, 2).reshape(b, t, d)); h = h + s.ff(s.norm2(h)); return s.out(h[:, 0])
    def data(seed):
        g = gen(seed); x = torch.randint(1, 30, (32, 16), generator=g); n = torch.randint(4, 13, (32, 1), generator=g); m = torch.arange(16) < n
        x = x * m; return x, (w[x] * m[..., None]).sum(1).argmax(-1)
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "znxlwm/UGATIT-pytorch/issues/32", "residual block returns out without adding x", "ResBlocks")
def ugatit_noskip(planted):
    class RB(nn.Module):
        def __init__(s, c): super().__init__(); s.c = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3, bias=False), nn.InstanceNorm2d(c, affine=True), nn.ReLU(), nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3, bias=False), nn.InstanceNorm2d(c, affine=True))
        def forward(s, x): return s.c(x) if planted else x + s.c(x)
    def model(): return nn.Sequential(nn.Conv2d(3, 16, 7, padding=3), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU(), *[RB(24) for _ in range(6)], nn.Upsample(scale_factor=2), nn.Conv2d(24, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 7, padding=3), nn.Tanh())
    Wc = T(15, 3, 3, 1, 1)
    def data(seed): x = torch.tanh(smooth(seed, 8, 3, 16)); return x, torch.tanh(F.conv2d(x, Wc) + .5 * x.roll(1, 1))
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(GH + "pmixer/SASRec.pytorch/issues/9", "embeddings left at N(0,1), tied with the output", "item_emb")
def sasrec_init(planted):
    nxt = torch.randperm(200, generator=gen(16))
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.item_emb = nn.Embedding(200, 50); s.pos_emb = nn.Embedding(16, 50)
            s.blocks = nn.ModuleList([nn.TransformerEncoderLayer(50, 2, 50, dropout=0., batch_first=True, norm_first=True) for _ in range(2)]); s.norm = nn.LayerNorm(50)
            if not planted:
                for p in (s.item_emb.weight, s.pos_emb.weight): nn.init.xavier_normal_(p)
            s.register_buffer("mask", torch.triu(torch.full((16, 16), float("-inf")), 1))
        def forward(s, x):
            h = s.item_emb(x) * 50 ** .5 + s.pos_emb.weight
            for b in s.blocks: h = b(h, src_mask=s.mask)
            return s.norm(h) @ s.item_emb.weight.t()
    def data(seed):
        g = gen(seed); x = [torch.randint(0, 200, (32,), generator=g)]
        for _ in range(16): x.append(torch.where(torch.rand(32, generator=g) < .9, nxt[x[-1]], torch.randint(0, 200, (32,), generator=g)))
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "shenweichen/DeepCTR-Torch/pull/61", "weight of the linear part is a plain tensor, not registered", "weight (dense linear)")
def deepctr_unregistered(planted):
    w = T(17, 10); U = T(18, 3, 40, k=.8)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.lin = nn.ModuleList([nn.Embedding(40, 1) for _ in range(3)]); s.fm = nn.ModuleList([nn.Embedding(40, 8) for _ in range(3)])
            for e in [*s.lin, *s.fm]: nn.init.normal_(e.weight, std=.05)
            wt = torch.randn(10, 1) * .05; s.weight = wt.requires_grad_() if planted else nn.Parameter(wt); s.bias = nn.Parameter(torch.zeros(1))
        def forward(s, dense, sparse):
            l = sum(e(sparse[:, i]) for i, e in enumerate(s.lin)); v = torch.stack([e(sparse[:, i]) for i, e in enumerate(s.fm)], 1)
            fm = .5 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(-1, keepdim=True)
            return (l + dense @ s.weight + fm + s.bias).squeeze(-1)
    def data(seed):
        d = T(seed, 128, 10); c = R(seed + 1, 40, (128, 3)); z = d @ w * 1.5 + U[torch.arange(3), c].sum(-1)
        return (d, c), (z > 0).float()
    return dict(model=N, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))
