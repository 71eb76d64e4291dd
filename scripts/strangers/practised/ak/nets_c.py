from base import *

# ---- 15 molecules
@case("https://github.com/chainer/chainer-chemistry/pull/217", "the attention's softmax runs over axis 1 of (heads, minibatch, atom, atom): the minibatch", "softmax of the graph attention (alpha)")
def gat_softmax_batch(planted):
    Fi, H, NH = 6, 8, 2
    class GAT(nn.Module):
        def __init__(s, i): super().__init__(); s.w = nn.Linear(i, NH * H); s.att = nn.Linear(2 * H, 1)
        def forward(s, x, adj):
            B, A, _ = x.shape; h = s.w(x).view(B, A, NH, H).permute(2, 0, 1, 3)
            e = torch.cat([h[:, :, :, None].expand(-1, -1, -1, A, -1), h[:, :, None].expand(-1, -1, A, -1, -1)], -1)
            e = F.leaky_relu(s.att(e).squeeze(-1), .2)
            e = torch.where(adj[None].bool(), e, torch.full_like(e, -10000.))
            alpha = torch.softmax(e, 1 if planted else -1)
            return (alpha @ h).permute(1, 2, 0, 3).reshape(B, A, NH * H)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.embed = nn.Linear(Fi, 16); s.l1 = GAT(16); s.l2 = GAT(16); s.i = nn.Linear(NH * H + 16, 1); s.j = nn.Linear(NH * H, 16); s.out = nn.Linear(16, 1)
        def forward(s, x, adj):
            h0 = s.embed(x); h = F.elu(s.l1(h0, adj)); h = F.elu(s.l2(h, adj))
            g = (torch.sigmoid(s.i(torch.cat([h, h0], -1))) * s.j(h)).sum(1)
            return s.out(F.relu(g)).squeeze(-1)
    w = T(71, Fi)
    def data(s):
        x = F.one_hot(R(s, Fi, (32, 8)), Fi).float(); a = (torch.rand(32, 8, 8, generator=gen(s + 1)) < .25).float(); a = ((a + a.transpose(1, 2) + torch.eye(8)) > 0).float()
        y = (torch.tanh((a @ (x @ w[:, None])) / a.sum(-1, keepdim=True) * 2)).squeeze(-1).sum(1); return (x, a), (y - .83) / 1.76
    return dict(model=Net, data=data, loss=mse, lr=5e-3)

# ---- 16 continual learning
@case("https://github.com/aimagelab/mammoth/issues/3", "the feature extractor has no relu between bn1 and layer1", "_features (bn1 -> layer1)")
def mammoth_features_relu(planted):
    C = 12
    class Block(nn.Module):
        def __init__(s, i, o, st):
            super().__init__(); s.conv1 = nn.Conv2d(i, o, 3, st, 1, bias=False); s.bn1 = nn.BatchNorm2d(o); s.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False); s.bn2 = nn.BatchNorm2d(o)
            s.shortcut = nn.Sequential(nn.Conv2d(i, o, 1, st, bias=False), nn.BatchNorm2d(o)) if st != 1 or i != o else nn.Sequential()
        def forward(s, x): return F.relu(s.bn2(s.conv2(F.relu(s.bn1(s.conv1(x))))) + s.shortcut(x))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(3, C, 3, 1, 1, bias=False); s.bn1 = nn.BatchNorm2d(C); s.layer1 = Block(C, C, 1); s.layer2 = Block(C, 2 * C, 2); s.layer3 = Block(2 * C, 2 * C, 2); s.classifier = nn.Linear(2 * C, 5)
            mid = [s.conv1, s.bn1] + ([] if planted else [nn.ReLU()]); s._features = nn.Sequential(*mid, s.layer1, s.layer2, s.layer3)
        def forward(s, x): return s.classifier(F.adaptive_avg_pool2d(s._features(x), 1).flatten(1))
    P = F.interpolate(T(81, 5, 3, 4, 4), size=12, mode="bilinear")
    def data(s):
        t = R(s, 5, (32,)); return P[t] + .8 * T(s + 1, 32, 3, 12, 12), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3)

# ---- 17 metric learning
@case("https://github.com/adambielski/siamese-triplet/issues/3", "hard negative pairs are the ones with the largest distances (should be the closest)", "the loss: HardNegativePairSelector")
def siamese_hard_negatives(planted):
    margin = 1.
    def pairs_loss(e, t, hardest_far):
        i, j = torch.triu_indices(len(t), len(t), 1); d2 = (e[i] - e[j]).pow(2).sum(1); same = t[i] == t[j]
        pos, neg = d2[same], d2[~same]; neg = neg.topk(min(len(pos), len(neg)), largest=hardest_far).values
        return torch.cat([pos, F.relu(margin - (neg + 1e-9).sqrt()).pow(2)]).mean()
    P = T(91, 5, 12)
    def data(s):
        t = R(s, 5, (40,)); return P[t] * .8 + .7 * T(s + 1, 40, 12), t
    return dict(model=lambda: nn.Sequential(nn.Linear(12, 48), nn.PReLU(), nn.Linear(48, 32), nn.PReLU(), nn.Linear(32, 4)), data=data, loss=lambda o, t: pairs_loss(o, t, planted), judge=lambda m, x, t: float(pairs_loss(m(x), t, False)), lr=3e-3)

# ---- 18 images as sequences
@case("https://github.com/yunjey/pytorch-tutorial/pull/174", "bidirectional LSTM is read at out[:, -1]: the backward half has seen one step only", "out[:, -1, :] after the LSTM (backward direction)")
def birnn_last_step(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.lstm = nn.LSTM(12, 24, 2, batch_first=True, bidirectional=True); s.fc = nn.Linear(48, 6)
        def forward(s, x):
            o, _ = s.lstm(x)
            return s.fc(o[:, -1, :] if planted else torch.cat([o[:, -1, :24], o[:, 0, 24:]], -1))
    P = F.interpolate(T(101, 6, 1, 5, 5), size=12, mode="bilinear")[:, 0]
    def data(s):
        t = R(s, 6, (40,)); return P[t] + .8 * T(s + 1, 40, 12, 12), t
    return dict(model=Net, data=data, loss=ce, lr=5e-3)

# ---- 19 CTR, MaskNet
@case("https://github.com/reczoo/FuxiCTR/issues/23", "LayerNorm([num_fields, embedding_dim]): the norm runs over all fields, not over each embedding", "emb_norm (LayerNorm)")
def masknet_layernorm(planted):
    N, V, k = 6, 12, 8
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.ModuleList([nn.Embedding(V, k) for _ in range(N)]); [nn.init.normal_(e.weight, std=.1) for e in s.emb]
            s.emb_norm = nn.LayerNorm([N, k]) if planted else nn.LayerNorm(k); D = N * k
            s.mask1 = nn.Sequential(nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, D)); s.hid1 = nn.Sequential(nn.Linear(D, 32, bias=False), nn.LayerNorm(32), nn.ReLU())
            s.mask2 = nn.Sequential(nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, 32)); s.hid2 = nn.Sequential(nn.Linear(32, 32, bias=False), nn.LayerNorm(32), nn.ReLU()); s.fc = nn.Linear(32, 1)
        def forward(s, ids):
            e = torch.stack([m(ids[:, i]) for i, m in enumerate(s.emb)], 1); f = e.flatten(1); n = s.emb_norm(e).flatten(1)
            h = s.hid1(s.mask1(f) * n); h = s.hid2(s.mask2(f) * h); return torch.sigmoid(s.fc(h)).squeeze(-1)
    A = T(111, N, V)
    def data(s):
        ids = R(s, V, (64, N)); return ids, (A[torch.arange(N), ids].sum(1) > 0).float()
    return dict(model=Net, data=data, loss=nn.BCELoss(), lr=5e-3)

# ---- 20 knowledge graph
@case("https://github.com/ttrouill/complex/issues/14", "the negatives are reshape(batch, neg_ratio)d although they lie neg_ratio-major: corruptions of other triples are compared", "the loss: reshape of the negatives' scores")
def transe_reshape(planted):
    E_, Rr, D, B, K = 40, 3, 16, 32, 4
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(E_, D); s.r = nn.Embedding(Rr, D); nn.init.normal_(s.e.weight, std=.3); nn.init.normal_(s.r.weight, std=.3)
        def forward(s, hrt): return -(s.e(hrt[:, 0]) + s.r(hrt[:, 1]) - s.e(hrt[:, 2])).abs().sum(-1)
    def make(sc, bad):
        pos, neg = sc[:B], sc[B:]
        n = neg.reshape(B, K).sum(1) if bad else neg.reshape(K, B).sum(0)
        return F.relu(4. - K * pos + n).mean() / K
    def data(s):
        h = R(s, E_, (B,)); r = R(s + 1, Rr, (B,)); t = (h + torch.tensor([1, 3, 7])[r]) % E_; tr = torch.stack([h, r, t], 1); n = tr.repeat(K, 1); n[:, 2] = R(s + 2, E_, (B * K,)); return torch.cat([tr, n]), (torch.arange(B * (K + 1)) < B).float()
    return dict(model=Net, data=data, loss=lambda o, t: make(o, planted), judge=lambda m, x, t: float(make(m(x), False)), lr=1e-2)
