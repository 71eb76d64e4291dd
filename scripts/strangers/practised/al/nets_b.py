from base import *

@case("https://github.com/sczhou/CodeFormer/issues/427", "beta (0.25) weighs the codebook term instead of the commitment term", "VectorQuantizer loss: beta on the wrong term")
def codeformer_beta_swapped(planted):
    class VQ(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 1)); s.emb = nn.Embedding(32, 8); s.emb.weight.data.uniform_(-1 / 32, 1 / 32)
            s.dec = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1)); s.beta = .25
        def forward(s, x, rec=False):
            z = s.enc(x).permute(0, 2, 3, 1); f = z.reshape(-1, 8); d = f.pow(2).sum(1, keepdim=True) + s.emb.weight.pow(2).sum(1) - 2 * f @ s.emb.weight.t()
            zq = s.emb(d.argmin(1)).view(z.shape); e, c = (zq.detach() - z).pow(2).mean(), (zq - z.detach()).pow(2).mean()
            l = e + s.beta * c if planted else s.beta * e + c
            zq = z + (zq - z).detach(); r = F.mse_loss(s.dec(zq.permute(0, 3, 1, 2)), x); return r if rec else r + l
    P = torch.randn(6, 3, 4, 4, generator=gen(5))
    def data(seed): i = R(seed, 6, (32, 4, 4)); return P[i].permute(0, 3, 1, 4, 2, 5).reshape(32, 3, 16, 16), None
    return dict(model=VQ, data=data, loss="model", diag={"loss": "model"}, lr=3e-3, judge=lambda m, x, t: m(x, rec=True))

@case("https://github.com/kaidic/LDAM-DRW/issues/6", "focal loss is computed on the batch-mean cross-entropy (one number) instead of per sample", "FocalLoss: cross_entropy without reduction='none'")
def ldam_focal_on_mean(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.f = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()); s.o = nn.Linear(32, 6)
        def forward(s, x): return s.o(s.f(x).mean((2, 3)))
    def focal(values, gamma): p = torch.exp(-values); return ((1 - p) ** gamma * values).mean()
    def right(o, t): return focal(F.cross_entropy(o, t, reduction="none"), 1.)
    def loss(o, t): return focal(F.cross_entropy(o, t), 1.) if planted else right(o, t)
    P = torch.randn(6, 3, 8, 8, generator=gen(6)); pr = torch.tensor([.4, .25, .15, .1, .06, .04])
    def data(seed): y = torch.multinomial(pr, 48, True, generator=gen(seed)); return P[y] * .7 + T(seed + 1, 48, 3, 8, 8) * .7, y
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={}, judge=lambda m, x, t: right(m(x), t))

@case("https://github.com/chnsh/DCRNN_PyTorch/issues/12", "_fc applies a sigmoid and the gates r, u apply it again: sigmoid(sigmoid(Wx)+b)", "DCGRUCell gates")
def dcrnn_double_sigmoid(planted):
    N, U, Tn = 6, 16, 8
    A = torch.rand(N, N, generator=gen(7)); A = A / A.sum(1, keepdim=True)
    class Cell(nn.Module):
        def __init__(s, i):
            super().__init__(); s.register_buffer("A", A); s.fw = nn.Parameter(nn.init.xavier_normal_(torch.empty(i + U, 2 * U))); s.fb = nn.Parameter(torch.ones(2 * U))
            s.gw = nn.Parameter(nn.init.xavier_normal_(torch.empty(3 * (i + U), U))); s.gb = nn.Parameter(torch.zeros(U))
        def _fc(s, x, h):
            v = torch.cat([x, h], -1) @ s.fw
            if planted: v = torch.sigmoid(v)
            return v + s.fb
        def _gconv(s, x, h):
            x0 = torch.cat([x, h], -1); x1 = s.A @ x0; x2 = 2 * s.A @ x1 - x0; return torch.cat([x0, x1, x2], -1) @ s.gw + s.gb
        def forward(s, x, h): r, u = torch.sigmoid(s._fc(x, h)).chunk(2, -1); c = torch.tanh(s._gconv(x, r * h)); return u * h + (1 - u) * c
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c1, s.c2, s.proj = Cell(1), Cell(U), nn.Linear(U, 1)
        def forward(s, x):
            a = b = x.new_zeros(len(x), N, U)
            for t in range(Tn): a = s.c1(x[:, t], a); b = s.c2(a, b)
            return s.proj(b)
    def data(seed):
        x = [T(seed, 32, N, 1)]; e = T(seed + 1, Tn, 32, N, 1)
        for t in range(Tn): x.append(.5 * x[-1] + 1. * torch.tanh(A @ x[-1]) - .3 * (x[-2] if t else 0) + .5 * e[t])
        x = torch.stack(x, 1); return x[:, :-1], x[:, -1] - .5 * e[-1]
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/malmaud/TensorFlow.jl/pull/384", "an extra sigmoid inside the GRU candidate: tanh(sigmoid(...))", "the GRU candidate state")
def tfjl_gru_extra_sigmoid(planted):
    V, H = 12, 48
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb, s.g, s.c, s.o = nn.Embedding(V, 24), nn.Linear(24 + H, 2 * H), nn.Linear(24 + H, H), nn.Linear(H, V)
        def forward(s, x):
            h = torch.zeros(len(x), H); out = []
            for e in s.emb(x).unbind(1):
                r, u = torch.sigmoid(s.g(torch.cat([e, h], 1))).chunk(2, 1); c = s.c(torch.cat([e, r * h], 1))
                c = torch.tanh(torch.sigmoid(c)) if planted else torch.tanh(c); h = u * h + (1 - u) * c; out.append(s.o(h))
            return torch.stack(out, 1)
    def data(seed):
        g = gen(seed); s = torch.zeros(32, 14, dtype=torch.long); s[:, :2] = torch.randint(0, V, (32, 2), generator=g)
        for t in range(2, 14): s[:, t] = (s[:, t - 1] * 5 + (s[:, t - 2] > 5).long() * 3 + 1) % V
        return s[:, :-1], s[:, 1:]
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/jingw2/neural-combinatorial-optimization-rl/issues/1", "the critic's baseline is not detached in the advantage of the policy loss", "advantage = L - b.view(-1)")
def nco_baseline_not_detached(planted):
    H, n = 32, 6
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb, s.enc, s.cell, s.start = nn.Linear(2, H), nn.LSTM(H, H, batch_first=True), nn.LSTMCell(H, H), nn.Parameter(torch.randn(H) * .1)
            s.wq, s.wr, s.v = nn.Linear(H, H), nn.Linear(H, H), nn.Linear(H, 1, bias=False); s.critic = nn.Sequential(nn.Linear(2 * n, H), nn.ReLU(), nn.Linear(H, 1))
        def forward(s, x):
            B = len(x); e = s.emb(x); ref, (h, c) = s.enc(e); h, c = h[0], c[0]; d = s.start.expand(B, H); mask = torch.zeros(B, n, dtype=torch.bool); lp = 0; tour = []
            for _ in range(n):
                h, c = s.cell(d, (h, c)); u = 10 * torch.tanh(s.v(torch.tanh(s.wq(h).unsqueeze(1) + s.wr(ref))).squeeze(-1))
                p = torch.distributions.Categorical(logits=u.masked_fill(mask, -1e9)); i = p.sample(); lp = lp + p.log_prob(i)
                mask = mask.scatter(1, i[:, None], True); tour.append(i); d = e[torch.arange(B), i]
            q = x[torch.arange(B)[:, None], torch.stack(tour, 1)] / 1.7; L = (q - q.roll(-1, 1)).norm(dim=-1).sum(1)
            return lp, L, s.critic(x.flatten(1))
    def loss(o, t):
        lp, L, b = o; adv = L - (b.view(-1) if planted else b.view(-1).detach()); return (adv * lp).mean() + F.mse_loss(b.view(-1), L)
    def data(seed):
        x = T(seed, 64, n, 2); return x, torch.zeros(64)
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={}, judge=lambda m, x, t: sum(m(x)[1].mean() for _ in range(4)) / 4)

@case("https://github.com/aladdinpersson/Machine-Learning-Collection/issues/137", "the confidence target of the responsible box is 1, not its IoU with the ground truth", "YoloLoss: object loss target")
def yolo1_conf_target_one(planted):
    S, B, C = 4, 2, 3
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); cb = lambda i, o, st: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.1))
            s.d = nn.Sequential(cb(3, 16, 2), cb(16, 32, 2), cb(32, 32, 1)); s.f = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16, 128), nn.LeakyReLU(.1), nn.Linear(128, S * S * (C + 5 * B)))
        def forward(s, x): return s.f(s.d(x)).view(-1, S, S, C + 5 * B)
    def iou(a, b):
        lo = torch.max(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2); hi = torch.min(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2); i = (hi - lo).clamp(0).prod(-1)
        return i / (a[..., 2:].prod(-1).abs() + b[..., 2:].prod(-1).abs() - i + 1e-6)
    def yolo(o, t, one):
        ex = t[..., C:C + 1]; tb = t[..., C + 1:C + 5]; bx = torch.stack([o[..., C + 1:C + 5], o[..., C + 6:C + 10]]); cf = torch.stack([o[..., C:C + 1], o[..., C + 5:C + 6]])
        io = iou(bx, tb).detach(); best = io.argmax(0).unsqueeze(-1); p = torch.where(best == 1, bx[1], bx[0]); pc = torch.where(best == 1, cf[1], cf[0]); m = io.max(0)[0].unsqueeze(-1)
        wh = p[..., 2:].sign() * (p[..., 2:].abs() + 1e-6).sqrt(); sse = lambda a, b: ((a - b) ** 2).sum() / len(o)
        box = sse(ex * torch.cat([p[..., :2], wh], -1), ex * torch.cat([tb[..., :2], tb[..., 2:].sqrt()], -1)); obj = sse(ex * pc, ex * (1. if one else m))
        no = sum(sse((1 - ex) * c, 0 * c) for c in cf); return 5 * box + obj + .5 * no + sse(ex * o[..., :C], ex * t[..., :C])
    def data(seed):
        g = gen(seed); x = torch.randn(32, 3, 16, 16, generator=g) * .3; t = torch.zeros(32, S, S, C + 5)
        for b in range(32):
            i, j, k = torch.randint(1, 3, (1,), generator=g).item(), torch.randint(1, 3, (1,), generator=g).item(), torch.randint(0, 3, (1,), generator=g).item(); w, h = (torch.randint(1, 4, (2,), generator=g)).tolist()
            cy, cx = 4 * i + 2, 4 * j + 2; x[b, k, cy - h:cy + h, cx - w:cx + w] += 2.; t[b, i, j, k] = 1; t[b, i, j, C:] = torch.tensor([1., .5, .5, w / 2., h / 2.])
        return x, t
    return dict(model=Net, data=data, loss=lambda o, t: yolo(o, t, planted), lr=1e-3, diag={}, judge=lambda m, x, t: yolo(m(x), t, False))

@case("https://github.com/shenweichen/DeepCTR/issues/2", "the FM layer forgets to square the sum: 0.5*(sum(v) - sum(v^2))", "FMLayer: temp_a is not squared")
def deepctr_fm_no_square(planted):
    Fd, V, K = 6, 10, 8
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb, s.lin = nn.Embedding(Fd * V, K), nn.Embedding(Fd * V, 1); nn.init.normal_(s.emb.weight, std=.1); nn.init.normal_(s.lin.weight, std=.01)
            s.register_buffer("off", torch.arange(Fd) * V); s.dnn = nn.Sequential(nn.Linear(Fd * K, 32), nn.ReLU(), nn.Linear(32, 1)); s.b = nn.Parameter(torch.zeros(1))
        def forward(s, x):
            e = s.emb(x + s.off); a = e.sum(1, keepdim=True); a = a if planted else a * a
            fm = .5 * (a - (e * e).sum(1, keepdim=True)).sum(2); return (s.lin(x + s.off).sum(1) + fm + s.dnn(e.flatten(1)) + s.b).squeeze(-1)
    Vt = torch.randn(Fd * V, 3, generator=gen(8)) * .8
    def data(seed): x = R(seed, V, (64, Fd)); e = Vt[x + torch.arange(Fd) * V]; return x, (.5 * (e.sum(1) ** 2 - (e * e).sum(1)).sum(1) > 0).float()
    return dict(model=Net, data=data, loss=nn.BCEWithLogitsLoss(), lr=1e-2, diag={})
