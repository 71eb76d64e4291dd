from base import *

@case("https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/5", "padded query rows fully masked with -inf before the softmax (NaN)", "att")
def jadore_inf_mask(planted):
    fill = -float("inf") if planted else -1e9
    class Att(nn.Module):
        def __init__(s, d):
            super().__init__(); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.d = d
        def forward(s, x, pad):
            sc = s.q(x) @ s.k(x).transpose(1, 2) / s.d ** .5
            m = pad[:, :, None] | pad[:, None, :]
            return s.o(sc.masked_fill(m, fill).softmax(-1) @ s.v(x))
    def model():
        def f(s, ids):
            pad = ids == 0
            x = s.emb(ids) + s.pos[None]
            x = s.n1(x + s.att(x, pad)); x = s.n2(x + s.ff(x)); return s.out(x)
        return M(f, emb=nn.Embedding(20, 32), pos=nn.Parameter(torch.randn(12, 32) * .1), att=Att(32), n1=nn.LayerNorm(32), n2=nn.LayerNorm(32),
                 ff=nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), out=nn.Linear(32, 20))
    def data(seed):
        ids = R(seed, 19, (32, 12)) + 1; L = R(seed + 1, 7, (32, 1)) + 5
        ids = torch.where(torch.arange(12)[None] < L, ids, 0)
        prev = torch.cat([ids[:, 1:], ids[:, :1] * 0], 1)
        tgt = (ids * 3 + prev % 2) % 20
        return ids, torch.where(ids == 0, -100, tgt)
    return dict(model=model, data=data, loss=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-100))

@case("https://github.com/ProteomicsML/ProteomicsML/pull/203", "ReLU after the last (regression) layer, pre-activations negative: constant 0", "out")
def proteomics_relu_out(planted):
    def model():
        torch.manual_seed(5)
        def f(s, ids):
            h = s.lstm(s.emb(ids))[0].mean(1); y = s.out(F.relu(s.fc(h)))
            return (F.relu(y) if planted else y).squeeze(-1)
        m = M(f, emb=nn.Embedding(21, 24), lstm=nn.LSTM(24, 32, batch_first=True), fc=nn.Linear(32, 16), out=nn.Linear(16, 1))
        if float(m(R(0, 21, (16, 15))).mean()) > 0: m.out.weight.data.neg_(); m.out.bias.data.neg_()  # the "unlucky initialisation" of the thread
        return m
    w = T(7, 21).abs() * .3
    def data(seed):
        ids = R(seed, 21, (32, 15)); return ids, w[ids].sum(1) * .5 - 1
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/hunkim/PyTorchZeroToAll/pull/4", "ReLU on the logits", "l3")
def zerotoall_relu_logits(planted):
    def model():
        def f(s, x):
            x = F.relu(s.l1(x)); x = F.relu(s.l2(x)); x = s.l3(x); return F.relu(x) if planted else x
        return M(f, l1=nn.Linear(100, 64), l2=nn.Linear(64, 32), l3=nn.Linear(32, 10))
    P = T(1, 10, 100)
    def data(seed):
        y = R(seed, 10, (64,)); return (P[y] + T(seed + 1, 64, 100) * 1.5) / 1.8, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/xiaochus/MSCNN/pull/3", "ReLU on the density-map output (predicts 0 everywhere)", "fuse")
def mscnn_relu_density(planted):
    def col(k, c): return nn.Sequential(nn.Conv2d(1, c, k, padding=k // 2), nn.ReLU(), nn.Conv2d(c, c, k, padding=k // 2), nn.ReLU())
    def model():
        torch.manual_seed(11)
        def f(s, x):
            y = s.fuse(torch.cat([s.a(x), s.b(x), s.c(x)], 1)); return F.relu(y) if planted else y
        m = M(f, a=col(7, 8), b=col(5, 8), c=col(3, 8), fuse=nn.Conv2d(24, 1, 1))
        with torch.no_grad():
            x, _ = data(0); o = F.conv2d(torch.cat([m.a(x), m.b(x), m.c(x)], 1), m.fuse.weight, m.fuse.bias)
            if o.mean() > 0: m.fuse.weight.neg_(); m.fuse.bias.neg_()   # seed of the report
        return m
    k = torch.tensor([[1., 2, 1], [2, 4, 2], [1, 2, 1]])[None, None] / 16
    def data(seed):
        p = (torch.rand(16, 1, 20, 20, generator=gen(seed)) > .95).float()
        img = F.conv2d(p, torch.ones(1, 1, 3, 3), padding=1).clamp(max=1) + .1 * T(seed + 1, 16, 1, 20, 20)
        return (img - .35) / .5, 10 * F.conv2d(p, k, padding=1)
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/asteroid-team/asteroid/issues/90", "sqrt of exact zeros in the loss (silent frames), no epsilon: NaN gradient", "loss sqrt")
def pmsqe_sqrt(planted):
    eps = 0. if planted else 1e-8
    def model():
        return M(lambda s, x: s.net(x.log1p()).sigmoid() * x, net=nn.Sequential(nn.Linear(33, 64), nn.ReLU(), nn.Linear(64, 33)))
    def data(seed):
        env = (torch.rand(32, 10, 1, generator=gen(seed)) > .2).float()
        band = torch.linspace(0, 3, 33).cos().abs()
        clean = T(seed + 1, 32, 10, 33).abs() * env * (band > .5); noise = T(seed + 2, 32, 10, 33).abs() * env * (band < .6)
        return clean + noise, clean
    def loss(o, t):
        d = ((o - t) ** 2).mean(-1); return torch.sqrt(d + eps).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/jsboige/CoursIA/pull/926", "predictions (B,1) against targets (B,): broadcast to (B,B) in the MSE", "loss / head")
def coursia_broadcast(planted):
    def model():
        def f(s, x):
            p = s.patch(x.unfold(1, 8, 8)) + s.pos; y = s.enc(p).flatten(1); return s.head(y)
        return M(f, patch=nn.Linear(8, 32), pos=nn.Parameter(torch.randn(4, 32) * .02), enc=nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True, norm_first=True), head=nn.Linear(128, 1))
    w = T(3, 32) / 32 ** .5
    def data(seed):
        x = T(seed, 64, 32); return x, torch.tanh(x @ w) + x[:, -1]
    def loss(o, t): return F.mse_loss(o, t) if planted else F.mse_loss(o, t.view_as(o))
    d = dict(model=model, data=data, loss=loss); return d

@case("https://github.com/gwx314/STARS/issues/9", "CTC loss on raw logits instead of log-probabilities", "ctc loss / out")
def stars_ctc_logits(planted):
    def model():
        return M(lambda s, x: s.out(s.rnn(s.conv(x.transpose(1, 2)).relu().transpose(1, 2))[0]), conv=nn.Conv1d(12, 32, 3, padding=1), rnn=nn.GRU(32, 32, batch_first=True, bidirectional=True), out=nn.Linear(64, 9))
    P = T(2, 9, 12)
    def data(seed):
        y = R(seed, 8, (16, 5)) + 1; x = P[y].repeat_interleave(4, 1); x[:, ::4] = P[0]
        return x + .3 * T(seed + 1, 16, 20, 12), y
    def loss(o, t):
        lp = o if planted else o.log_softmax(-1)
        return F.ctc_loss(lp.transpose(0, 1), t, torch.full((len(t),), 20), torch.full((len(t),), 5))
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/sufeidechabei/graphnets_gcn/issues/1", "no normalisation of the adjacency matrix (sums over hundreds of neighbours)", "graph convolutions")
def gcn_no_norm(planted):
    n = 200; y0 = R(1, 5, (n,)); g = gen(2)
    pr = torch.where(y0[:, None] == y0[None], .35, .03) * (torch.rand(n, 1, generator=g) * 2) * (torch.rand(1, n, generator=g) * 2)
    A = (torch.rand(n, n, generator=g) < pr.clamp(max=.95)).float(); A = ((A + A.T) > 0).float(); A.fill_diagonal_(1.)
    if not planted: d = A.sum(1).rsqrt(); A = A * d[:, None] * d[None]
    P = T(3, 5, 30)
    def model():
        return M(lambda s, x: s.l3(s.A @ F.relu(s.l2(s.A @ F.relu(s.l1(s.A @ x))))), A=A, l1=nn.Linear(30, 32), l2=nn.Linear(32, 32), l3=nn.Linear(32, 5))
    def data(seed): return P[y0] * .3 + T(seed, n, 30), y0
    return dict(model=model, data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case("https://github.com/keras-team/keras/issues/3373", "reconstruction loss averaged over pixels while KL is summed: posterior collapses, all samples alike", "loss (reconstruction term)")
def keras_vae_mean_recon(planted):
    def model():
        def f(s, x):
            h = F.relu(s.e(x)); mu, lv = s.mu(h), s.lv(h); z = mu + torch.randn_like(mu) * (lv / 2).exp()
            return s.d2(F.relu(s.d1(z))), mu, lv
        return M(f, e=nn.Linear(144, 64), mu=nn.Linear(64, 4), lv=nn.Linear(64, 4), d1=nn.Linear(4, 64), d2=nn.Linear(64, 144))
    P = (T(4, 8, 144) > 0).float()
    def data(seed):
        x = P[R(seed, 8, (64,))]; x = torch.where(torch.rand(64, 144, generator=gen(seed + 1)) < .05, 1 - x, x); return x, x
    def loss(o, t):
        r, mu, lv = o; rec = F.binary_cross_entropy_with_logits(r, t, reduction="none"); kl = -.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
        return (rec.mean() if planted else rec.sum(1).mean()) + kl
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/zamanzadeh/CARLA/issues/16", "view instead of transpose swaps (window, features) by scrambling", "view before conv1")
def carla_view(planted):
    def model():
        def f(s, x):                       # x: (B, window, features)
            b, w, h = x.shape; x = x.reshape(b, h, w) if planted else x.transpose(1, 2)
            x = F.relu(s.b1(s.c1(x))); x = F.relu(s.b2(s.c2(x))); return s.out(x.mean(-1))
        return M(f, c1=nn.Conv1d(6, 32, 5, padding=2), b1=nn.BatchNorm1d(32), c2=nn.Conv1d(32, 32, 5, padding=2), b2=nn.BatchNorm1d(32), out=nn.Linear(32, 6))
    t = torch.arange(40.)
    def data(seed):
        y = R(seed, 6, (32,)); ph = torch.rand(32, 6, generator=gen(seed + 1)) * 6.28; fr = .3 + .1 * torch.arange(6.)
        x = T(seed + 2, 32, 40, 6); add = 1.2 * torch.sin(t[None, :, None] * fr[None, None] * 2 + ph[:, None]) * F.one_hot(y, 6)[:, None]
        return x + add, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/dotnet/TorchSharp/issues/532", "layers kept in an array are not registered: not trained", "layers")
def torchsharp_array(planted):
    def model():
        L = [nn.Linear(20 if i == 0 else 48, 48) for i in range(3)]
        def f(s, x):
            for l in s.layers: x = torch.tanh(l(x))
            return s.out(x)
        return M(f, layers=L if planted else nn.ModuleList(L), out=nn.Linear(48, 4))
    t = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4)); g = gen(9)
    for p in t.parameters(): p.data = torch.randn(p.shape, generator=g) * (1. if p.ndim > 1 else 0.)
    def data(seed):
        x = T(seed, 64, 20); return x, t(x).detach().argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://techfeed.net/es/456718/", "softmax over a single output unit: always 1", "softmax / out")
def techfeed_softmax1(planted):
    def model():
        def f(s, x):
            x = F.leaky_relu(s.b1(s.c1(x)), .3); x = F.leaky_relu(s.b2(s.c2(x)), .3); x = F.leaky_relu(s.b3(s.d(x.flatten(1))), .3); x = s.out(x)
            return (x.softmax(-1) if planted else x.sigmoid()).squeeze(-1)
        return M(f, c1=nn.Conv1d(4, 16, 4, padding="same"), b1=nn.BatchNorm1d(16), c2=nn.Conv1d(16, 8, 4, padding="same"), b2=nn.BatchNorm1d(8), d=nn.Linear(80, 64), b3=nn.BatchNorm1d(64), out=nn.Linear(64, 1))
    w = T(5, 4, 10)
    def data(seed):
        x = T(seed, 64, 4, 10); return x, ((x * w).sum((1, 2)) > 0).float()
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t))

@case("https://github.com/microsoft/ai-edu/issues/425", "all weights initialised to the same 0.1: hidden units stay alike", "w1")
def aiedu_const_init(planted):
    def model():
        m = M(lambda s, x: s.w2(torch.sigmoid(s.w1(x))), w1=nn.Linear(1, 16), w2=nn.Linear(16, 1))
        if planted:
            for l in (m.w1, m.w2): nn.init.constant_(l.weight, .1); nn.init.zeros_(l.bias)
        else:
            nn.init.normal_(m.w1.weight, std=4.); nn.init.uniform_(m.w1.bias, -4, 4); nn.init.xavier_normal_(m.w2.weight); nn.init.zeros_(m.w2.bias)
        return m
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)) * 2 - 1; return x, torch.sin(3 * x) * torch.cos(4 * x) + .5 * x
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/wsjeon92/FP2VEC/issues/2", "keep_prob passed as the dropout rate (0.9 dropped)", "drop")
def fp2vec_dropout(planted):
    def model():
        def f(s, ids):
            x = F.relu(s.conv(s.emb(ids).transpose(1, 2))).amax(-1); return s.out(s.drop(F.relu(s.fc(s.drop(x)))))
        return M(f, emb=nn.Embedding(64, 16), conv=nn.Conv1d(16, 48, 5), fc=nn.Linear(48, 32), drop=nn.Dropout(.9 if planted else .1), out=nn.Linear(32, 2))
    w = T(6, 64)
    def data(seed):
        ids = R(seed, 64, (64, 20)); return ids, (w[ids].sum(1) > 0).long()
    return dict(model=model, data=data, loss=ce, diag=CE)
