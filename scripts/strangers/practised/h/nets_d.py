from base import *

class Siren(nn.Module):
    def __init__(s, bug):
        super().__init__(); ls = [nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 64)]; s.w = [30., 1., 1.] 
        for i, l in enumerate(ls):
            n = l.in_features; b = 1 / n if i == 0 and not bug else math.sqrt(6 / n) / s.w[i]; nn.init.uniform_(l.weight, -b, b); nn.init.uniform_(l.bias, -b, b)
        s.net = nn.ModuleList(ls); s.last = nn.Linear(64, 1)
    def forward(s, x):
        for l, w in zip(s.net, s.w): x = torch.sin(w * l(x))
        return s.last(x)
@case("https://github.com/lucidrains/siren-pytorch/issues/1", "SIREN: first layer initialised like the hidden ones (sqrt(6/n)/w0), not 1/n: fits slowly", "net.0 init")
def siren_first(bug):
    def data(s): x = torch.rand(256, 2, generator=gen(s)) * 2 - 1; return x, torch.sin(9 * x[:, :1]) * torch.cos(7 * x[:, 1:])
    return dict(model=lambda: Siren(bug), data=data, loss=mse, diag=MSE)

@case("https://github.com/JWFanggit/LOTVS-CAP/issues/9", "GRU called frame by frame with the initial hh = 0 each time: the hidden state is never updated", "gru")
def lotvs_gru(bug):
    def data(s): x = T(s, 32, 12, 4); return x, (x[:, :, 0].cumsum(1)[:, -1] > 0).long()
    def f(m, x):
        h = hh = torch.zeros(1, len(x), 32)
        for i in range(x.shape[1]): o, h = m.gru(m.features(x[:, i:i + 1]).relu(), hh if bug else h)
        return m.dense(o[:, 0])
    return dict(model=lambda: M(f, features=nn.Linear(4, 32), gru=nn.GRU(32, 32, batch_first=True), dense=nn.Linear(32, 2)), data=data, loss=ce, diag=CE)

def posnet(mode):
    V = 12
    def f(m, x):
        B, L = x.shape; e = m.emb(x)
        if mode == "ok": p = m.pos(torch.arange(L))[None]
        elif mode == "batch": p = m.pos(torch.arange(B))[:, None]
        else: p = m.pos(torch.tensor([L]))[None]
        return m.head(m.enc(e + p).mean(1))
    def data(s):  # which of token 0 and token 1 comes first
        x = R(s, V - 2, (64, 14)) + 2; i = torch.rand(64, 14, generator=gen(s + 1)).argsort(1); r = torch.arange(64); x[r, i[:, 0]] = 0; x[r, i[:, 1]] = 1; return x, (i[:, 0] < i[:, 1]).long()
    def mk():
        p = nn.Embedding(64, 48)
        return M(f, emb=nn.Embedding(V, 48), pos=p, enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, 0., batch_first=True, norm_first=True), 2, enable_nested_tensor=False), head=nn.Linear(48, 2))
    return dict(model=mk, data=data, loss=ce, diag=CE)
@case("https://github.com/cmu-l3/anlp-fall2025-code/issues/1", "pos = arange(x.size(0)).unsqueeze(1): positions run over the batch, one encoding for all tokens", "pos")
def anlp_pos(bug): return posnet("batch" if bug else "ok")
@case("https://github.com/DiffPoseTalk/DiffPoseTalk/issues/20", "pe[:, x.shape[1]] without the slice colon: one encoding for all positions", "pos")
def diffpose_pe(bug): return posnet("one" if bug else "ok")

@case("https://github.com/google/compare_gan/issues/54", "conditional batch norm without 1 + gamma: features multiplied by about zero", "cbn.gamma")
def comparegan_cbn(bug):
    P = T(5, 8, 64)
    def data(s): y = R(s, 8, (64,)); z = T(s + 1, 64, 8); return (z, F.one_hot(y, 8).float()), P[y] + z.repeat(1, 8) * .5
    class CBN(nn.Module):
        def __init__(s, d): super().__init__(); s.bn = nn.BatchNorm1d(d, affine=False); s.gamma, s.beta = nn.Linear(16, d, bias=False), nn.Linear(16, d, bias=False); [nn.init.normal_(l.weight, std=.02) for l in (s.gamma, s.beta)]
        def forward(s, x, y): g = s.gamma(y); return s.bn(x) * (g if bug else 1 + g) + s.beta(y)
    def f(m, z, y):
        y = torch.cat([m.embed(y), z], 1); h = m.inp(z)
        for n, l in zip(m.cbn, m.fc): h = l(n(h, y).relu())
        return h
    return dict(model=lambda: M(f, embed=nn.Linear(8, 8, bias=False), inp=nn.Linear(8, 64), cbn=nn.ModuleList([CBN(64) for _ in range(3)]), fc=nn.ModuleList([nn.Linear(64, 64) for _ in range(3)])), data=data, loss=mse, diag=MSE)

@case("https://github.com/SSinyu/RED-CNN/issues/8", "one conv and one conv_t reused: all layers share weights", "conv, conv_t")
def redcnn_share(bug):
    def data(s): y = F.avg_pool2d(T(s, 16, 1, 20, 20), 5, 1, 2) * 4; return y + T(s + 1, 16, 1, 20, 20, k=.6), y
    def f(m, x):
        r1 = x; o = m.first(x).relu(); o = m.c[0](o).relu(); r2 = o
        for i in (1, 2): o = m.c[i if not bug else 0](o).relu()
        for i in (0, 1): o = m.t[i if not bug else 0](o).relu()
        return m.last((o + r2).relu()) + r1
    n = 1 if bug else 3
    return dict(model=lambda: M(f, first=nn.Conv2d(1, 16, 3, padding=1), c=nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in range(n)]), t=nn.ModuleList([nn.ConvTranspose2d(16, 16, 3, padding=1) for _ in range(1 if bug else 2)]), last=nn.Conv2d(16, 1, 3, padding=1)), data=data, loss=mse, diag=MSE)

@case("https://github.com/eriklindernoren/PyTorch-YOLOv3/issues/112", "sigmoid on the class scores, then CrossEntropyLoss (YOLO head)", "head / sigmoid of classes")
def yolo_sigmoid_ce(bug):
    P = T(5, 8, 3, 4, 4) * 1.5
    def data(s):
        k = R(s, 8, (32,)); c = R(s + 1, 4, (32, 2)); x = T(s + 2, 32, 3, 16, 16, k=.7); t = torch.zeros(32, 3)
        for b in range(32): x[b, :, 4 * c[b, 0]:4 * c[b, 0] + 4, 4 * c[b, 1]:4 * c[b, 1] + 4] += P[k[b]]
        return x, torch.stack([c[:, 0] * 4 + c[:, 1], k], 1)
    def f(m, x):
        h = m.head(m.body(x)).flatten(2); conf, cls = h[:, 0], h[:, 1:]; return torch.cat([conf[:, None], cls.sigmoid() if bug else cls], 1)
    def loss(o, t):
        obj = F.one_hot(t[:, 0], 16).float(); c = o[torch.arange(len(o)), 1:, t[:, 0]]; return F.binary_cross_entropy_with_logits(o[:, 0], obj) + F.cross_entropy(c, t[:, 1])
    return dict(model=lambda: M(f, body=nn.Sequential(nn.Conv2d(3, 32, 4, 4), nn.BatchNorm2d(32), nn.LeakyReLU(.1), nn.Conv2d(32, 48, 1), nn.LeakyReLU(.1)), head=nn.Conv2d(48, 9, 1)), data=data, loss=loss)

@case("https://github.com/wohlert/semi-supervised-pytorch/issues/21", "log det summed over the batch as well: it outweighs the prior by the batch size", "loss (log_det)")
def flow_logdet(bug):
    W = T(6, 4, 4) + 2 * torch.eye(4)
    def data(s): x = torch.tanh(T(s, 64, 4) @ W * .4) * 2 + T(s + 1, 64, 4, k=.2); return x, torch.zeros(64)
    class Cpl(nn.Module):
        def __init__(s, flip): super().__init__(); s.flip = flip; s.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4))
        def forward(s, x):
            a, b = x.chunk(2, 1)
            if s.flip: a, b = b, a
            sc, t = s.net(a).chunk(2, 1); sc = 2 * torch.tanh(sc / 2); b = b * sc.exp() + t; return torch.cat([b, a] if s.flip else [a, b], 1), sc.sum(1)
    def f(m, x):
        ld = 0
        for l in m.flows: x, d = l(x); ld = ld + d
        return x, ld
    def loss(o, t): z, ld = o; return (.5 * (z ** 2).sum(1) - (ld.sum() if bug else ld)).mean()
    return dict(model=lambda: M(f, flows=nn.ModuleList([Cpl(i % 2) for i in range(4)])), data=data, loss=loss)

@case("https://github.com/graviraja/pytorch-sample-codes/issues/6", "sign of the KL term flipped in the VAE loss", "loss (KL)")
def vae_kl_sign(bug):
    P = (T(3, 10, 64) > 0).float()
    def data(s): k = R(s, 10, (64,)); x = P[k]; n = (torch.rand(64, 64, generator=gen(s + 1)) < .05).float(); x = (x - n).abs(); return x, x
    def f(m, x): h = m.enc(x); mu, lv = m.mu(h), m.logvar(h); return m.dec(mu + torch.randn_like(mu) * (lv / 2).exp()), mu, lv
    def loss(o, t): y, mu, lv = o; k = -.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1); return (F.binary_cross_entropy_with_logits(y, t, reduction="none").sum(1) + (-k if bug else k)).mean()
    return dict(model=lambda: M(f, enc=nn.Sequential(nn.Linear(64, 64), nn.ReLU()), mu=nn.Linear(64, 4), logvar=nn.Linear(64, 4), dec=nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64))), data=data, loss=loss)

@case("https://github.com/songyangco/GETNext/issues/2", "TransformerEncoder over (batch, seq, d) without batch_first: attention over the batch, positions too", "enc")
def getnext_batch(bug):
    perm = torch.randperm(20, generator=gen(2))
    def data(s): x = R(s, 20, (32, 12)); return x, perm[x.roll(1, 1)]
    def f(m, x): e = m.emb(x) + (m.pos[:x.shape[0], None] if bug else m.pos[None, :x.shape[1]]); return m.head(m.enc(e))
    return dict(model=lambda: M(f, emb=nn.Embedding(20, 64), pos=nn.Parameter(torch.randn(64, 64)), enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0., batch_first=not bug), 1, enable_nested_tensor=False), head=nn.Linear(64, 20)), data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/4uiiurz1/pytorch-nested-unet/issues/62", "image divided by 255 twice, before convolution and batch norm: variance of the order of its eps", "conv0 / bn input")
def nested_255(bug):
    def data(s):
        t = torch.zeros(16, 16, 16, dtype=torch.long)
        for b in range(16): r = R(s * 31 + b, 10, (2,)); t[b, r[0]:r[0] + 5, r[1]:r[1] + 5] = 1
        x = (127 + 60 * t[:, None] + 40 * T(s + 1, 16, 1, 16, 16)).clamp(0, 255); return x.expand(16, 3, 16, 16).contiguous() / 255, t
    c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
    return dict(model=lambda: M(lambda m, x: m.final(m.c2(m.c1(((x - .5) / .25) if not bug else ((x / 255 - .5) / .25)))), c1=c(3, 24), c2=c(24, 24), final=nn.Conv2d(24, 2, 1)), data=data, loss=ce, diag=CE)
