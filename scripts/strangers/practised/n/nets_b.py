from base import *
from nets_a import Block, sincos, MHA

def mlp(i, h, o, n=2, act=nn.ReLU):
    L = []; d = i
    for _ in range(n): L += [nn.Linear(d, h), act()]; d = h
    return nn.Sequential(*L, nn.Linear(d, o))

@case("https://github.com/mosaicml/llm-foundry/issues/371", "RMSNorm divides by rsqrt of the mean square: multiplies by the rms", "norms")
def foundry_rmsnorm(planted):
    class RMS(nn.Module):
        def __init__(s, d): super().__init__(); s.weight = nn.Parameter(torch.ones(d))
        def forward(s, x):
            r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5); return (x / r if planted else x * r) * s.weight
    class B(nn.Module):
        def __init__(s, d): super().__init__(); s.norm1, s.norm2 = RMS(d), RMS(d); s.attn = MHA(d, 4); s.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        def forward(s, x, b): x = x + s.attn(s.norm1(x), b); return x + s.ff(s.norm2(x))
    class MPT(nn.Module):
        def __init__(s):
            super().__init__(); s.wte = nn.Embedding(20, 64); s.wpe = nn.Embedding(12, 64); s.blocks = nn.ModuleList(B(64) for _ in range(4)); s.norm_f = RMS(64); s.head = nn.Linear(64, 20, bias=False)
            for m in s.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.1)
        def forward(s, x):
            z = s.wte(x) + s.wpe.weight[:x.shape[1]]; b = torch.full((x.shape[1],) * 2, float("-inf")).triu(1)
            for k in s.blocks: z = k(z, b)
            return s.head(s.norm_f(z))
    P = torch.randperm(20, generator=gen(4))
    def data(s):
        x = [R(s, 20, (32,))]
        for i in range(12): n = P[x[-1]]; e = R(s * 31 + i, 20, (32,)); m = R(s * 37 + i, 10, (32,)) == 0; x.append(torch.where(m, e, n))
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=MPT, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/Zasder3/train-CLIP/pull/3", "embeddings not normalised before the scaled dot product", "encoders")
def trainclip_norm(planted):
    class CLIP(nn.Module):
        def __init__(s):
            super().__init__(); s.image = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 128))
            s.tok = nn.Embedding(24, 64); s.text = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128)); s.logit_scale = nn.Parameter(torch.tensor(math.log(1 / .07)))
        def forward(s, img, txt):
            a, b = s.image(img), s.text(s.tok(txt).mean(1))
            if not planted: a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
            return s.logit_scale.exp() * a @ b.t()
    C = T(6, 24, 3, 1, 1)
    def data(s): t = R(s, 24, (32, 4)); img = C[t].sum(1) * .7 + T(s + 1, 32, 3, 12, 12) * .5; return (img, t), torch.arange(32)
    def loss(o, t): return (F.cross_entropy(o, t) + F.cross_entropy(o.t(), t)) / 2
    return dict(model=CLIP, data=data, loss=loss)

@case("https://github.com/microsoft/ProDA/issues/20", "kl_div is given the student's softmax instead of log_softmax", "loss")
def proda_kd(planted):
    W1, W2 = T(1, 16, 32) * .4, T(2, 32, 6)
    def data(s): x = T(s, 64, 16); return x, (torch.relu(x @ W1) @ W2).softmax(-1)
    def loss(o, t):
        if planted: return F.kl_div(F.softmax(o, 1), t, reduction="none").mean()
        return F.kl_div(F.log_softmax(o, 1), t, reduction="none").mean()
    return dict(model=lambda: mlp(16, 64, 6), data=data, loss=loss)

@case("https://github.com/jinnnju/PaAno/issues/1", "the diagonal, filled with -inf in similarities, becomes the hardest negative: loss always 0", "loss")
def paano_triplet(planted):
    class Enc(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Conv1d(1, 32, 5, 2), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 32, 5, 2), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 32))
        def forward(s, x): return F.normalize(s.net(x.flatten(0, 1)), dim=-1).view(x.shape[0], 2, -1)
    def data(s):
        f = torch.rand(32, 1, 1, generator=gen(s)) * 3 + .5; p = torch.rand(32, 2, 1, generator=gen(s + 1)) * 6
        return torch.sin(f * torch.arange(40) * .5 + p)[:, :, None] + T(s + 2, 32, 2, 1, 40) * .1, torch.zeros(32)
    def loss(z, t):
        a, p = z[:, 0], z[:, 1]; pos = 1 - (a * p).sum(-1); sim = a @ p.t(); eye = torch.eye(len(a), dtype=torch.bool)
        neg = (1 - sim.masked_fill(eye, -math.inf if planted else math.inf)).max(1)[0]
        return F.relu(pos - neg + .5).mean()
    return dict(model=Enc, data=data, loss=loss)

@case("https://github.com/benfred/implicit/pull/105", "factors drawn from [0,1) without centring or scaling by their number", "embeddings")
def implicit_init(planted):
    class MF(nn.Module):
        def __init__(s):
            super().__init__(); s.u, s.i = nn.Embedding(40, 64), nn.Embedding(60, 64)
            for e in (s.u, s.i):
                with torch.no_grad(): e.weight.copy_(torch.rand_like(e.weight) if planted else (torch.rand_like(e.weight) - .5) * 2 / 64 ** .5)
        def forward(s, u, i, j): e = s.u(u); return (e * (s.i(i) - s.i(j))).sum(-1)
    U, I = T(1, 40, 4), T(2, 60, 4)
    def data(s):
        u = R(s, 40, (256,)); i, j = R(s + 1, 60, (256,)), R(s + 2, 60, (256,)); sw = (U[u] * (I[i] - I[j])).sum(-1) < 0
        return (u, torch.where(sw, j, i), torch.where(sw, i, j)), torch.ones(256)
    return dict(model=MF, data=data, loss=lambda o, t: -F.logsigmoid(o).mean())

@case("https://github.com/facebookresearch/fairseq2/pull/731", "targets detached in the contrastive loss: the quantiser never learns", "quantizer")
def wav2vec_target(planted):
    class W2V(nn.Module):
        def __init__(s):
            super().__init__(); s.feat = nn.Sequential(nn.Conv1d(1, 32, 8, 4, 2), nn.GroupNorm(1, 32), nn.GELU(), nn.Conv1d(32, 48, 4, 2, 1), nn.GELU()); s.norm = nn.LayerNorm(48)
            s.mask = nn.Parameter(torch.rand(48)); s.enc = nn.ModuleList(Block(48, 4) for _ in range(2)); s.register_buffer("pe", sincos(32, 48)); s.final = nn.Linear(48, 32)
            s.qproj = nn.Linear(48, 24); s.vars = nn.Parameter(torch.rand(24, 32)); s.project_q = nn.Linear(32, 32)
        def forward(s, x):
            f = s.norm(s.feat(x).transpose(1, 2)); q = s.project_q(F.softmax(s.qproj(f) * 2, -1) @ s.vars)
            if planted: q = q.detach()
            m = torch.zeros(f.shape[1], dtype=torch.bool); m[3::4] = True; m[4::4] = True
            z = torch.where(m[:, None], s.mask, f) + s.pe[:f.shape[1]]
            for b in s.enc: z = b(z)
            c = s.final(z)[:, m]; return F.cosine_similarity(c[:, :, None], q[:, m][:, None], dim=-1) / .1
    def data(s):
        t = torch.arange(128) / 128.; f = torch.rand(24, 3, 1, generator=gen(s)) * 18 + 2; ph = torch.rand(24, 3, 1, generator=gen(s + 1)) * 6.3
        x = torch.sin(6.28 * (f * t + 4 * (f / 18) * t ** 2) + ph).sum(1, keepdim=True); return x, torch.arange(7).expand(24, 7)
    return dict(model=W2V, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/ChengBinJin/V-GAN-tensorflow/issues/16", "a sigmoid before the cross entropy that takes logits", "output sigmoid")
def vgan_sigmoid(planted):
    class Gen(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            s.d1, s.d2, s.mid, s.u1 = c(1, 16), c(16, 32), c(32, 32), c(48, 16); s.out = nn.Conv2d(16, 1, 1)
        def forward(s, x):
            a = s.d1(x); b = s.mid(s.d2(F.max_pool2d(a, 2))); y = s.out(s.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1)))
            return y.sigmoid() if planted else y
    def data(s):
        w = T(s, 16, 1, 24, 24); v = F.avg_pool2d(w, 5, 1, 2) * 5; t = (v > 1.2).float(); return v + T(s + 1, 16, 1, 24, 24) * .5, t
    return dict(model=Gen, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

@case("https://github.com/mlelarge/graph_neural_net/pull/37", "a softmax before the cross entropy (alignment of nodes)", "softmax")
def gnn_doublesoftmax(planted):
    class Siam(nn.Module):
        def __init__(s): super().__init__(); s.l1, s.l2, s.l3 = nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, 64)
        def enc(s, A, x):
            A = A + torch.eye(A.shape[1]); A = A / A.sum(-1, keepdim=True); h = torch.relu(s.l1(A @ x)); h = torch.relu(s.l2(A @ h)) + h; return s.l3(h)
        def forward(s, A1, x1, A2, x2): sc = s.enc(A1, x1) @ s.enc(A2, x2).transpose(1, 2) / 8; return sc.softmax(-1) if planted else sc
    def data(s):
        A = (torch.rand(16, 12, 12, generator=gen(s)) < .3).float().triu(1); A = A + A.transpose(1, 2); x = T(s + 1, 16, 12, 4)
        p = torch.stack([torch.randperm(12, generator=gen(s * 7 + i)) for i in range(16)]); q = p.argsort(1)
        A2 = A.gather(1, p[:, :, None].expand(-1, -1, 12)).gather(2, p[:, None].expand(-1, 12, -1)); x2 = x.gather(1, p[:, :, None].expand(-1, -1, 4)) + T(s + 2, 16, 12, 4) * .1
        return (A, x, A2, x2), q
    return dict(model=Siam, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/paiml/aprender/issues/3034", "SmoothL1 computed from the raw data: the loss is cut off from the graph", "loss")
def aprender_detached(planted):
    class Prophet(nn.Module):
        def __init__(s): super().__init__(); s.trend = nn.Linear(1, 1); s.ar = nn.Linear(12, 3); s.season = nn.Linear(6, 3)
        def forward(s, lags, t, four): return s.ar(lags) + s.trend(t) + s.season(four)
    W = T(3, 12, 3) * .4; V = T(4, 6, 3)
    def data(s): l, t, f = T(s, 64, 12), T(s + 1, 64, 1), T(s + 2, 64, 6); return (l, t, f), l @ W + f @ V + .7 * t
    def loss(o, t):
        d = o - t
        if planted: d = torch.tensor(d.tolist())
        a = d.abs(); return torch.where(a < 1, .5 * d ** 2, a - .5).mean()
    return dict(model=Prophet, data=data, loss=loss)

@case("https://github.com/VCasecnikovs/Yet-Another-YOLOv4-Pytorch/issues/16", "box sizes exp(w) * anchor in pixels enter the loss: values overflow", "head")
def yolo_exp(planted):
    anchors = torch.tensor([[12., 16.], [36., 75.], [142., 110.]])
    class Yolo(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o, st: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.1)); s.back = nn.Sequential(c(3, 16, 2), c(16, 32, 2), c(32, 64, 2)); s.head = nn.Conv2d(64, 6, 1)
        def forward(s, x):
            return s.head(s.back(x)).permute(0, 2, 3, 1).unflatten(-1, (3, 2))
    K = T(5, 6, 3, 8, 8) * .06
    def data(s):
        x = T(s, 16, 3, 32, 32) + T(s + 1, 16, 3, 1, 1); t = F.conv2d(x, K, stride=8).permute(0, 2, 3, 1).unflatten(-1, (3, 2)); return x, t.exp() * anchors
    def loss(o, t): return F.mse_loss(o.exp() * anchors, t) if planted else F.mse_loss(o, (t / anchors).log())
    return dict(model=Yolo, data=data, loss=loss)

@case("https://github.com/neosr-project/neosr/issues/102", "output clamped to [0, 1] in training while the initial values lie far outside", "clamp")
def neosr_clamp(planted):
    class RRDBlite(nn.Module):
        def __init__(s):
            super().__init__(); s.first = nn.Conv2d(3, 32, 3, padding=1); s.body = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(4)); s.up = nn.Conv2d(32, 48, 3, padding=1); s.last = nn.Conv2d(12, 3, 3, padding=1)
            for m in s.modules():
                if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight, a=.2); nn.init.zeros_(m.bias)
        def forward(s, x):
            h = f = s.first(x)
            for c in s.body: h = h + .2 * F.leaky_relu(c(h), .2)
            y = s.last(F.leaky_relu(F.pixel_shuffle(s.up(h + f), 2), .2)); return y.clamp(0, 1) if planted else y
    def data(s): w = T(s, 8, 3, 24, 24); hr = torch.sigmoid(F.avg_pool2d(w, 5, 1, 2) * 6); return F.avg_pool2d(hr, 2), hr
    return dict(model=RRDBlite, data=data, loss=lambda o, t: F.l1_loss(o, t))

@case("https://github.com/biomed-AI/Hist2ST/pull/7", "mean over neighbours divides by zero for isolated nodes", "aggregation")
def hist2st_isolated(planted):
    class Sage(nn.Module):
        def __init__(s, i, o): super().__init__(); s.lin = nn.Linear(2 * i, o)
        def forward(s, x, A):
            n = A.sum(-1, keepdim=True); n = n if planted else n.clamp(min=1.); return s.lin(torch.cat([x, A @ x / n], -1))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c1, s.c2 = Sage(8, 48), Sage(48, 48); s.head = nn.Linear(48, 3)
        def forward(s, x, A): return s.head(torch.relu(s.c2(torch.relu(s.c1(x, A)), A)))
    W = T(3, 8, 3)
    def data(s): A = (torch.rand(8, 20, 20, generator=gen(s)) < .12).float(); x = T(s + 1, 8, 20, 8); return (x, A), (x @ W + (A @ x) @ W.flip(0) * .6).argmax(-1)
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/FluxML/GeometricFlux.jl/pull/131", "GAT coefficients normalised over all edges of the graph, not over each node's neighbours", "attention")
def flux_gatsoftmax(planted):
    class GAT(nn.Module):
        def __init__(s, i, o): super().__init__(); s.w = nn.Linear(i, o, bias=False); s.a1, s.a2 = nn.Linear(o, 1, bias=False), nn.Linear(o, 1, bias=False); s.b = nn.Parameter(torch.zeros(o))
        def forward(s, x, A):
            h = s.w(x); e = F.leaky_relu(s.a1(h) + s.a2(h).transpose(1, 2), .2).masked_fill(A == 0, -1e9)
            a = e.flatten(1).softmax(-1).view_as(e) if planted else e.softmax(-1); return a @ h + s.b
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.g1, s.g2 = GAT(8, 64), GAT(64, 64); s.head = nn.Linear(64, 4)
        def forward(s, x, A): return s.head(F.elu(s.g2(F.elu(s.g1(x, A)), A)))
    P = T(3, 4, 8)
    def data(s):
        y = R(s, 4, (8, 24)); same = y[:, :, None] == y[:, None]; A = (torch.rand(8, 24, 24, generator=gen(s + 1)) < torch.where(same, .5, .05)).float(); A = ((A + A.transpose(1, 2) + torch.eye(24)) > 0).float()
        return (P[y] * .6 + T(s + 2, 8, 24, 8), A), y
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)
