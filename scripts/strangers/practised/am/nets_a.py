from base import *

@case("https://github.com/jindongwang/Deep-learning-activity-recognition/issues/10", "softmax at the end of forward, then CrossEntropyLoss", "the softmax output / loss")
def har_softmax(planted):
    class Network(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Sequential(nn.Conv2d(9, 32, (1, 9)), nn.ReLU(), nn.MaxPool2d((1, 2), 2))
            s.conv2 = nn.Sequential(nn.Conv2d(32, 64, (1, 9)), nn.ReLU(), nn.MaxPool2d((1, 2), 2))
            s.fc1 = nn.Sequential(nn.Linear(64 * 10, 100), nn.ReLU())
            s.fc2 = nn.Sequential(nn.Linear(100, 50), nn.ReLU())
            s.fc3 = nn.Linear(50, 6)
        def forward(s, x):
            o = s.conv2(s.conv1(x)).reshape(-1, 640)
            o = s.fc3(s.fc2(s.fc1(o)))
            return F.softmax(o, dim=1) if planted else o
    def data(s):
        g = gen(s); y = torch.randint(0, 6, (64,), generator=g)
        f = (1 + y.float()) * .12; a = T(77, 6, 9)[y]
        t = torch.arange(64.)
        ph = torch.rand(64, 1, generator=g) * 6.28
        x = a[:, :, None] * torch.sin(f[:, None] * t + ph)[:, None] * 1.2 + torch.randn(64, 9, 64, generator=g) * .7
        return x[:, :, None], y
    return dict(model=Network, data=data, loss=ce, lr=1e-3)

@case("https://github.com/simoninithomas/Deep_reinforcement_learning_Course/issues/68", "Q = reduce_sum(output*actions) without axis: one number for the whole batch", "the Q output (sum over the batch) / loss broadcasting")
def dqn_sum_all(planted):
    class DQN(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Conv2d(4, 16, 6, 3); s.conv2 = nn.Conv2d(16, 32, 3, 1); s.fc = nn.Linear(32 * 9, 128); s.out = nn.Linear(128, 3)
            for m in s.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x, a):
            q = s.out(F.elu(s.fc(F.elu(s.conv2(F.elu(s.conv1(x)))).flatten(1))))
            return (q * a).sum() if planted else (q * a).sum(1)
    W = T(5, 3, 4, 4, 4)
    def data(s):
        x = F.interpolate(T(s, 32, 4, 4, 4), size=20, mode="nearest") + .3 * T(s + 1, 32, 4, 20, 20)
        a = F.one_hot(R(s + 2, 3, (32,)), 3).float()
        low = F.adaptive_avg_pool2d(x, 4)
        q = torch.einsum("bchw,achw->ba", low, W) / 8 + 1
        return (x / 1.04, a), (q * a).sum(1)
    return dict(model=DQN, data=data, loss=lambda o, t: ((t - o) ** 2).mean(), lr=1e-3)

def unet2d(cin, cout, c=8):
    class U(nn.Module):
        def __init__(s):
            super().__init__()
            blk = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.GroupNorm(4, b), nn.LeakyReLU(.01), nn.Conv2d(b, b, 3, padding=1, bias=False), nn.GroupNorm(4, b), nn.LeakyReLU(.01))
            s.e1, s.e2, s.up, s.d1, s.head = blk(cin, c), blk(c, 2 * c), nn.ConvTranspose2d(2 * c, c, 2, 2), blk(2 * c, c), nn.Conv2d(c, cout, 1)
        def forward(s, x):
            a = s.e1(x); b = s.e2(F.max_pool2d(a, 2))
            return s.head(s.d1(torch.cat([a, s.up(b)], 1)))
    return U

@case("https://github.com/ProjectNeura/MIPCandy/issues/123", "soft dice flattens batch entry and all channels into one vector, background included", "the dice loss")
def dice_flat(planted):
    def loss(o, t):
        y = F.one_hot(t, 4).permute(0, 3, 1, 2).float()
        bce = F.binary_cross_entropy_with_logits(o, y); p = o.sigmoid(); sm = 1.
        if planted:
            n = p.shape[0]; p, y = p.view(n, -1), y.reshape(n, -1)
            d = (2 * (p * y).sum(1) + sm) / (p.sum(1) + y.sum(1) + sm)
        else:
            p, y = p[:, 1:], y[:, 1:]
            d = (2 * (p * y).sum((0, 2, 3)) + sm) / (p.sum((0, 2, 3)) + y.sum((0, 2, 3)) + sm)
        return .5 * bce + 1 - d.mean()
    def data(s):
        g = gen(s); t = torch.zeros(16, 24, 24, dtype=torch.long)
        for b in range(16):
            for k in (1, 2, 3):
                i, j = torch.randint(0, 21, (2,), generator=g).tolist(); t[b, i:i + 3, j:j + 3] = k
        x = torch.randn(16, 1, 24, 24, generator=g) * .6 + torch.tensor([0., 1.5, -1.5, 3.])[t][:, None]
        return x, t
    def judge(m, x, t):
        p = m(x).argmax(1); r = []
        for k in (1, 2, 3): r.append(2 * ((p == k) & (t == k)).sum() / ((p == k).sum() + (t == k).sum()))
        return 1 - float(sum(r) / 3)
    return dict(model=unet2d(1, 4), data=data, loss=loss, lr=2e-3, judge=judge)

@case("https://github.com/Project-MONAI/MONAI/issues/2509", "focal loss drops the background and takes log_softmax over the one channel left: always 0", "the focal loss (softmax over one channel)")
def focal_onechannel(planted):
    def loss(o, t):
        y = torch.cat([1 - t, t], 1); p = o.softmax(1)
        inter = (p[:, 1:] * y[:, 1:]).sum((2, 3, 4))
        dice = 1 - (2 * inter + 1e-5) / (p[:, 1:].sum((2, 3, 4)) + y[:, 1:].sum((2, 3, 4)) + 1e-5)
        i, yy = (o[:, 1:], y[:, 1:]) if planted else (o, y)
        logpt = F.log_softmax(i, dim=1); pt = logpt.exp()
        focal = (-(1 - pt) ** 2 * logpt * yy).mean()
        return dice.mean() + focal
    def model():
        c = lambda a, b: nn.Sequential(nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b), nn.PReLU())
        return nn.Sequential(c(1, 8), c(8, 16), c(16, 8), nn.Conv3d(8, 2, 1))
    def data(s):
        g = gen(s); t = torch.zeros(16, 1, 8, 8, 8)
        for b in range(16):
            i, j, k = torch.randint(0, 5, (3,), generator=g).tolist(); t[b, 0, i:i + 4, j:j + 4, k:k + 4] = 1
        return (torch.randn(16, 1, 8, 8, 8, generator=g) + 1.2 * t - .15) / 1.05, t
    def judge(m, x, t):
        p = m(x).argmax(1, keepdim=True).float()
        return 1 - float(2 * (p * t).sum() / (p.sum() + t.sum()))
    return dict(model=model, data=data, loss=loss, lr=2e-3, judge=judge)

@case("https://github.com/materialyzeai/matgl/pull/755", "messages made from the source nodes are aggregated into the source nodes (edge_index[0]) instead of the destinations", "the interaction layers' aggregation")
def tensornet_agg(planted):
    class Inter(nn.Module):
        def __init__(s, d):
            super().__init__(); s.rbf = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d)); s.lin1 = nn.Linear(d, d); s.norm = nn.LayerNorm(d); s.lin2 = nn.Linear(d, d)
        def forward(s, x, src, dst, e):
            msg = s.lin1(x)[src] * s.rbf(e)
            out = torch.zeros_like(x).index_add(0, src if planted else dst, msg)
            return x + s.lin2(F.silu(s.norm(out)))
    class Net(nn.Module):
        def __init__(s, d=32):
            super().__init__(); s.emb = nn.Embedding(5, d); s.layers = nn.ModuleList([Inter(d), Inter(d)]); s.out = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))
        def forward(s, z, pos):
            B, N = z.shape; d = torch.cdist(pos, pos)
            b, i, j = ((d < 2.5) & ~torch.eye(N, dtype=torch.bool)).nonzero(as_tuple=True)
            e = torch.exp(-((d[b, i, j][:, None] - torch.linspace(0, 2.5, 16)) ** 2) * 20)
            x = s.emb(z.flatten())
            for l in s.layers: x = l(x, b * N + i, b * N + j, e)
            return s.out(x).view(B, N).sum(1) / N ** .5
    def data(s):
        g = gen(s); z = torch.randint(0, 5, (64, 7), generator=g); pos = torch.randn(64, 7, 3, generator=g)
        q = torch.tensor([-1.5, -.7, 0., .7, 1.5])[z]; d = torch.cdist(pos, pos)
        w = torch.exp(-d) * (d < 2.5) * (1 - torch.eye(7))
        return (z, pos), (q[:, :, None] * q[:, None] * w).sum((1, 2)) / 1.6
    return dict(model=Net, data=data, loss=mse, lr=3e-3)

@case("https://github.com/forresti/SqueezeNet/issues/10", "ReLU after the classifier convolution conv10", "the ReLU on the logits (after conv10)")
def squeeze_relu(planted):
    class Fire(nn.Module):
        def __init__(s, i, q, e):
            super().__init__(); s.s, s.e1, s.e3 = nn.Conv2d(i, q, 1), nn.Conv2d(q, e, 1), nn.Conv2d(q, e, 3, padding=1)
            for m in (s.s, s.e1, s.e3): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x): x = F.relu(s.s(x)); return torch.cat([F.relu(s.e1(x)), F.relu(s.e3(x))], 1)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(3, 24, 3, 2); nn.init.xavier_uniform_(s.conv1.weight); nn.init.zeros_(s.conv1.bias)
            s.f2, s.f3, s.f4 = Fire(24, 8, 16), Fire(32, 8, 16), Fire(32, 12, 24)
            s.drop = nn.Dropout(.5); s.conv10 = nn.Conv2d(48, 10, 1); nn.init.normal_(s.conv10.weight, std=.01); nn.init.zeros_(s.conv10.bias)
        def forward(s, x):
            x = s.f3(s.f2(F.max_pool2d(F.relu(s.conv1(x)), 2))); x = s.conv10(s.drop(s.f4(F.max_pool2d(x, 2))))
            if planted: x = F.relu(x)
            return F.adaptive_avg_pool2d(x, 1).flatten(1)
    P = F.interpolate(T(3, 10, 3, 6, 6), size=24, mode="bilinear")
    def data(s):
        y = R(s, 10, (64,)); return (P[y] + .8 * T(s + 1, 64, 3, 24, 24)) / 1.0, y
    return dict(model=Net, data=data, loss=ce, lr=3e-3)

@case("https://github.com/pytorch/pytorch/issues/29546", "look-ahead mask flipped: each position sees itself and the future, not the past", "the attention mask")
def lm_flipmask(planted):
    V, L, D = 12, 16, 32
    class LM(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Embedding(V, D)
            p = torch.arange(L)[:, None]; f = torch.exp(torch.arange(0, D, 2) * (-math.log(10000.) / D)); pe = torch.zeros(L, D); pe[:, ::2] = (p * f).sin(); pe[:, 1::2] = (p * f).cos()
            s.register_buffer("pe", pe)
            s.tf = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 64, dropout=0., batch_first=True), 2, enable_nested_tensor=False)
            s.decoder = nn.Linear(D, V); nn.init.uniform_(s.encoder.weight, -.1, .1); nn.init.uniform_(s.decoder.weight, -.1, .1); nn.init.zeros_(s.decoder.bias)
        def forward(s, x):
            m = torch.full((L, L), float("-inf")); m = torch.tril(m, -1) if planted else torch.triu(m, 1)
            return s.decoder(s.tf(s.encoder(x) * math.sqrt(D) + s.pe, mask=m))
    P = torch.randperm(V, generator=gen(9))
    def data(s):
        g = gen(s); z = torch.randint(0, V, (64, L + 1), generator=g)
        for i in range(2, L + 1): z[:, i] = P[z[:, i - 2]]
        return z[:, :-1], z[:, 1:]
    def judge(m, x, t): return float(F.cross_entropy(m(x)[:, -1], t[:, -1]))  # next word after a given text
    return dict(model=LM, data=data, loss=ceseq, lr=3e-3, judge=judge)

@case("https://github.com/duanyiqun/DiffusionDepth/issues/15", "the network that predicts Gaussian noise ends in a ReLU", "the last ReLU")
def diffdepth_relu(planted):
    class Net(nn.Module):
        def __init__(s, c=4):
            super().__init__(); s.noise_embedding = nn.Conv2d(c, 16, 3, padding=1); s.time_embedding = nn.Embedding(1000, 16); s.cond = nn.Conv2d(c, 16, 3, padding=1)
            p = [nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.Conv2d(32, c, 3, padding=1)]
            s.pred = nn.Sequential(*p, nn.ReLU()) if planted else nn.Sequential(*p)
        def forward(s, noisy, t, feat): return s.pred(s.noise_embedding(noisy) + s.time_embedding(t)[..., None, None] + s.cond(feat))
    ab = torch.cumprod(1 - torch.linspace(1e-4, .02, 1000), 0); W = T(4, 4, 4) / 2
    def data(s):
        f = F.avg_pool2d(T(s, 32, 4, 10, 10), 3, 1) * 3; x0 = torch.einsum("dc,bchw->bdhw", W, f); e = T(s + 1, 32, 4, 8, 8); t = R(s + 2, 1000, (32,)); a = ab[t][:, None, None, None]
        return (a.sqrt() * x0 + (1 - a).sqrt() * e, t, f), e
    return dict(model=Net, data=data, loss=mse, lr=2e-3)

@case("https://github.com/Novartis/torchsurv/issues/117", "the event indicator (0/1 integers) is used as an index: only the first two subjects enter the loss", "the Cox loss (indexing by event)")
def cox_index(planted):
    def nll(o, t, bad):
        ev, tm = t[:, 0], t[:, 1]; idx = tm.argsort(); h = o.flatten()[idx]; ev = ev[idx]
        den = torch.logcumsumexp(h.flip(0), 0).flip(0)
        return -(h - den)[ev.long() if bad else ev.bool()].mean()
    def data(s):
        g = gen(s); x = torch.randn(64, 10, generator=g); r = 1.2 * x[:, 0] - x[:, 1] + x[:, 2] * x[:, 3]
        tm = -torch.log(torch.rand(64, generator=g)) * torch.exp(-r); c = -torch.log(torch.rand(64, generator=g)) * 3
        return x, torch.stack([(tm <= c).float(), torch.minimum(tm, c)], 1)
    def model(): return nn.Sequential(nn.BatchNorm1d(10), nn.Linear(10, 32), nn.ReLU(), nn.Dropout(.1), nn.Linear(32, 64), nn.ReLU(), nn.Dropout(.1), nn.Linear(64, 1))
    return dict(model=model, data=data, loss=lambda o, t: nll(o, t, planted), lr=3e-3, judge=lambda m, x, t: float(nll(m(x), t, False)))
