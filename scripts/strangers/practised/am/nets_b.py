from base import *

@case("https://github.com/HeyLynne/FocalLoss_for_multiclass/issues/3", "pt = onehot * log_p: the focal weight uses the log probability, not the probability", "the focal loss (pt)")
def focal_logp(planted):
    def loss(o, t):
        y = F.one_hot(t, 9).transpose(1, 2).float(); lp = F.log_softmax(o, 1)
        pt = (y * lp if planted else y * lp.exp()).sum(1)
        return ((1 - pt) ** 2 * -(y * lp).sum(1)).mean()
    class Tagger(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(60, 24); s.lstm = nn.LSTM(24, 24, batch_first=True, bidirectional=True); s.fc = nn.Linear(48, 9)
        def forward(s, x): return s.fc(s.lstm(s.emb(x))[0]).transpose(1, 2)
    tag = R(1, 3, (60,))
    def data(s):
        x = R(s, 60, (32, 14)); k = tag[x]; prev = torch.cat([torch.zeros(32, 1, dtype=torch.long), k[:, :-1]], 1); return x, 3 * prev + k
    return dict(model=Tagger, data=data, loss=loss, lr=5e-3, judge=lambda m, x, t: float(F.cross_entropy(m(x), t)))

@case("https://github.com/r9y9/wavenet_vocoder/issues/34", "log_probs are summed over the mixture components before the log weights are added", "the mixture-of-logistics loss (sum over components; the weights' outputs are dead)")
def wavenet_molsum(planted):
    K = 4
    def mol(o, y, bad):
        o = o.transpose(1, 2); lo, mu, ls = o[..., :K], o[..., K:2 * K], o[..., 2 * K:].clamp(min=-7.)
        y = y.expand_as(mu); c = y - mu; iv = torch.exp(-ls); pin, mn = iv * (c + 1 / 255), iv * (c - 1 / 255); dl = pin.sigmoid() - mn.sigmoid(); mid = iv * c
        lpm = mid - ls - 2 * F.softplus(mid) - math.log(127.5)
        lp = torch.where(y < -.999, pin - F.softplus(pin), torch.where(y > .999, -F.softplus(mn), torch.where(dl > 1e-5, dl.clamp(min=1e-12).log(), lpm)))
        if bad: lp = lp.sum(-1, keepdim=True) + F.log_softmax(lo, -1)
        else: lp = lp + F.log_softmax(lo, -1)
        return -torch.logsumexp(lp, -1).mean()
    class Res(nn.Module):
        def __init__(s, c, d):
            super().__init__(); s.d = d; s.conv = nn.Conv1d(c, 2 * c, 3, dilation=d); s.out = nn.Conv1d(c, c, 1); s.skip = nn.Conv1d(c, c, 1)
        def forward(s, x):
            a, b = s.conv(F.pad(x, (2 * s.d, 0))).chunk(2, 1); h = a.tanh() * b.sigmoid(); return (x + s.out(h)) * .5 ** .5, s.skip(h)
    class WN(nn.Module):
        def __init__(s, c=24):
            super().__init__(); s.first = nn.Conv1d(1, c, 1); s.res = nn.ModuleList([Res(c, d) for d in (1, 2, 4)]); s.last = nn.Sequential(nn.ReLU(), nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, 3 * K, 1))
        def forward(s, x):
            x = s.first(x); sk = 0
            for r in s.res: x, h = r(x); sk = sk + h
            return s.last(sk * (1 / 3) ** .5)
    def data(s):
        g = gen(s); n = 65; y = torch.zeros(16, n); sg = (torch.rand(16, generator=g) > .5).float() * 2 - 1
        for i in range(n):
            flip = torch.rand(16, generator=g) < .3; sg = torch.where(flip, -sg, sg)
            y[:, i] = .6 * sg + .25 * (y[:, i - 1] if i else 0) * 0.3 + .03 * torch.randn(16, generator=g)
        return y[:, None, :-1], y[:, 1:, None]
    return dict(model=WN, data=data, loss=lambda o, t: mol(o, t, planted), lr=3e-3, judge=lambda m, x, t: float(mol(m(x), t, False)))

@case("https://github.com/tracel-ai/burn/issues/2701", "GRU: every step is computed from the initial hidden state, not from the previous step's", "the GRU recurrence (hidden weights get no input)")
def gru_nohidden(planted):
    H = 32
    class GRU(nn.Module):
        def __init__(s):
            super().__init__(); s.x = nn.Linear(6, 3 * H); s.h = nn.Linear(H, 3 * H); s.fc = nn.Linear(H, 4)
        def forward(s, x):
            h0 = x.new_zeros(x.shape[0], H); h = h0
            for t in range(x.shape[1]):
                p = h0 if planted else h
                xr, xz, xn = s.x(x[:, t]).chunk(3, 1); hr, hz, hn = s.h(p).chunk(3, 1)
                r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid(); n = (xn + r * hn).tanh(); h = (1 - z) * n + z * p
            return s.fc(h)
    W = T(8, 6, 4)
    def data(s):
        x = T(s, 64, 10, 6); return x, (x.mean(1) @ W).argmax(1)
    return dict(model=GRU, data=data, loss=ce, lr=5e-3)

@case("https://github.com/QikaiXu/Recommender-System-Pytorch/issues/1", "FM second-order term adds the sum of squares instead of subtracting it", "the FM interaction term")
def fm_plus(planted):
    nf, n = 5, 12
    class FM(nn.Module):
        def __init__(s):
            super().__init__(); s.e1, s.e2 = nn.Embedding(nf * n, 1), nn.Embedding(nf * n, 4); s.bias = nn.Parameter(torch.zeros(1)); s.register_buffer("off", torch.arange(nf) * n)
            nn.init.xavier_uniform_(s.e1.weight); nn.init.xavier_uniform_(s.e2.weight)
        def forward(s, x):
            x = x + s.off; e = s.e2(x); a, b = e.sum(1).pow(2).sum(1), e.pow(2).sum(1).sum(1)
            return torch.sigmoid(s.e1(x).squeeze(-1).sum(1) + s.bias + ((a + b) if planted else (a - b)) / 2).unsqueeze(-1)
    V = T(2, nf * n, 4) * .7; w = T(3, nf * n) * .5
    def data(s):
        x = R(s, n, (64, nf)); i = x + torch.arange(nf) * n; e = V[i]; z = w[i].sum(1) + (e.sum(1).pow(2).sum(1) - e.pow(2).sum((1, 2))) / 2
        return x, (z > 0).float()[:, None]
    return dict(model=FM, data=data, loss=nn.BCELoss(), lr=2e-2)

@case("https://github.com/XifengGuo/CapsNet-Pytorch/issues/2", "primary capsules: view(B,-1,8) of the conv output without permuting channels last, so capsules mix positions", "the view in the primary capsules")
def caps_view(planted):
    def squash(x):
        n = x.norm(dim=-1, keepdim=True); return n ** 2 / (1 + n ** 2) * x / (n + 1e-8)
    class Caps(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 32, 5); s.prim = nn.Conv2d(32, 32, 5, 2); s.W = nn.Parameter(.01 * torch.randn(5, 4 * 9, 8, 8))
        def forward(s, x):
            u = s.prim(F.relu(s.conv1(x)))
            u = squash(u.view(len(u), -1, 8) if planted else u.permute(0, 2, 3, 1).reshape(len(u), -1, 8))
            uh = torch.einsum("jiod,bid->bjio", s.W, u); ud = uh.detach(); b = uh.new_zeros(uh.shape[:3])
            for k in range(3):
                c = b.softmax(1)
                if k == 2: v = squash((c[..., None] * uh).sum(2))
                else: b = b + (squash((c[..., None] * ud).sum(2))[:, :, None] * ud).sum(-1)
            return v.norm(dim=-1)
    def loss(o, t):
        y = F.one_hot(t, 5).float(); return (y * (.9 - o).clamp(min=0) ** 2 + .5 * (1 - y) * (o - .1).clamp(min=0) ** 2).sum(1).mean()
    P = F.interpolate(T(6, 5, 1, 5, 5), size=14, mode="bilinear")
    def data(s): y = R(s, 5, (64,)); return P[y] * 1.2 + .6 * T(s + 1, 64, 1, 14, 14), y
    return dict(model=Caps, data=data, loss=loss, lr=3e-3)

@case("https://github.com/facebookresearch/WMReward/issues/11", "cosine similarity of [B,N,D] tokens taken over dim=1 (tokens) instead of the features", "the cosine loss (dim)")
def cos_dim(planted):
    def cl(o, t, d): return 1 - F.cosine_similarity(o, t, dim=d).mean()
    class Pred(nn.Module):
        def __init__(s, d=24):
            super().__init__(); s.inp = nn.Linear(24, d); s.pos = nn.Parameter(.02 * torch.randn(1, 12, d)); s.tf = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 48, dropout=0., batch_first=True, norm_first=True), 1, enable_nested_tensor=False); s.norm = nn.LayerNorm(d); s.out = nn.Linear(d, 24)
        def forward(s, x): return s.out(s.norm(s.tf(s.inp(x) + s.pos)))
    W = T(7, 24, 24) / 5
    def data(s):
        x = T(s, 32, 12, 24) ; h = torch.tanh(x @ W) * 1.5 + x.mean(1, keepdim=True); return x, F.layer_norm(h, (24,))
    return dict(model=Pred, data=data, loss=lambda o, t: cl(o, t, 1 if planted else -1), lr=2e-3, judge=lambda m, x, t: float(cl(m(x), t, -1)))

@case("https://github.com/dichotomies/proxy-nca/issues/15", "log_softmax of the distances D instead of -D", "the ProxyNCA loss (sign of the distances)")
def proxynca_sign(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.f = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 16)); s.proxies = nn.Parameter(torch.randn(8, 16) / 8)
        def emb(s, x): return F.normalize(s.f(x), dim=-1)
        def forward(s, x): return torch.cdist(s.emb(x), F.normalize(s.proxies, dim=-1) * 3) ** 2
    def loss(o, t):
        y = F.one_hot(t, 8).float() * .9; y = torch.where(y == 0, torch.full_like(y, .1 / 7), y)
        return (-y * F.log_softmax(o if planted else -o, -1)).sum(-1).mean()
    P = F.interpolate(T(12, 8, 3, 4, 4), size=12, mode="bilinear")
    def data(s): y = R(s, 8, (64,)); return P[y] + 1.2 * T(s + 1, 64, 3, 12, 12), y
    def judge(m, x, t):  # nearest neighbour retrieval error
        e = m.emb(x); d = torch.cdist(e, e) + 1e6 * torch.eye(len(x)); return 1 - float((t[d.argmin(1)] == t).float().mean())
    return dict(model=Net, data=data, loss=loss, lr=3e-3, judge=judge)

@case("https://github.com/harryhan618/LaneNet/issues/7", "discriminative loss: relu(dist - delta_d) instead of relu(delta_d - dist): lanes are pulled together, not pushed apart", "the dist (push) term of the loss")
def lanenet_push(planted):
    def dl(o, t, bad, dv=.5, dd=3.):
        L = 0
        for e, m in zip(o, t):
            mu, var = [], 0
            for k in (1, 2, 3):
                v = e[:, m == k]; c = v.mean(1); mu.append(c); var = var + F.relu((v - c[:, None]).norm(dim=0) - dv).pow(2).mean() / 3
            mu = torch.stack(mu); d = (mu[:, None] - mu[None] + 1e-12).norm(dim=-1); off = ~torch.eye(3, dtype=torch.bool)
            push = (F.relu(d - dd) if bad else F.relu(dd - d)) ** 2
            L = L + var + push[off].sum() / 6 / 2
        return L / len(o)
    def data(s):
        g = gen(s); X, Tt = [], []
        for b in range(16):
            m = torch.zeros(16, 16, dtype=torch.long); sl = (torch.rand(1, generator=g) - .5).item() * .4
            for k in (1, 2, 3):
                for r in range(16): m[r, max(0, min(15, int(2 + 5 * (k - 1) + 1.5 + sl * (r - 8))))] = k
            X.append(torch.randn(1, 16, 16, generator=g) * .4 + 2.5 * (m > 0).float() - .45); Tt.append(m)
        return torch.stack(X), torch.stack(Tt)
    def model():
        c = lambda a, b, st=1: nn.Sequential(nn.Conv2d(a, b, 3, st, 1), nn.BatchNorm2d(b), nn.ReLU())
        return nn.Sequential(c(1, 16), c(16, 32, 2), c(32, 32, 2), c(32, 32), nn.ConvTranspose2d(32, 32, 2, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 16, 2, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 1))
    return dict(model=model, data=data, loss=lambda o, t: dl(o, t, planted), lr=3e-3, judge=lambda m, x, t: float(dl(m(x), t, False)))

@case("https://github.com/Top34051/stargan-zsvc/issues/1", "conditional instance norm: beta is computed with the gamma layer; the beta layer is never used", "the CIN block (self.beta unused)")
def stargan_beta(planted):
    class CIN(nn.Module):
        def __init__(s, c, e): super().__init__(); s.gamma, s.beta = nn.Linear(e, c), nn.Linear(e, c)
        def forward(s, x, e):
            sg, mu = torch.std_mean(x, dim=2, keepdim=True); g = s.gamma(e)[..., None]; b = (s.gamma if planted else s.beta)(e)[..., None]
            return g * (x - mu) / sg.clamp(min=1e-7) + b
    class Blk(nn.Module):
        def __init__(s, i, o, e): super().__init__(); s.conv = nn.Conv1d(i, o, 5, padding=2); s.cin = CIN(o, e)
        def forward(s, x, e): return F.glu(s.cin(s.conv(x), e), 1)
    class G(nn.Module):
        def __init__(s):
            super().__init__(); s.down = nn.Conv1d(8, 24, 3, padding=1); s.b = nn.ModuleList([Blk(24, 48, 6) for _ in range(3)]); s.out = nn.Conv1d(24, 8, 7, padding=3)
        def forward(s, x, e):
            x = s.down(x)
            for b in s.b: x = b(x, e)
            return s.out(x)
    A, B = T(1, 6, 8), T(2, 6, 8)
    def data(s):
        x = T(s, 32, 8, 40); x = F.avg_pool1d(x, 3, 1, 1) * 1.7; e = T(s + 1, 32, 6); return (x, e), (1 + .4 * (e @ A))[..., None] * x + (e @ B)[..., None] * .5
    return dict(model=G, data=data, loss=nn.L1Loss(), lr=2e-3)
