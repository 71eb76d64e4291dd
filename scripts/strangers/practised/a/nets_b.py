from base import *

@case("https://github.com/PaddlePaddle/PaddleSeg/issues/1022", "seg_edge_out already went through Sigmoid, the BCE loss applies sigmoid again", "edge head sigmoid / BCELoss")
def decoupled_segnet_edge(planted):
    K = T(1, 1, 3, 3, 3)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.stem = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU()); s.edge_out = nn.Conv2d(24, 1, 1)
        def forward(s, x):
            seg_edge_out = s.edge_out(s.stem(x))
            return torch.sigmoid(seg_edge_out) if planted else seg_edge_out
    def data(seed):
        x = T(seed, 12, 3, 14, 14); return x, (F.conv2d(x, K, padding=1).abs() > 7.).float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=5e-3, diag={})

@case("https://github.com/tensorflow/docs/pull/2102", "SparseCategoricalCrossentropy(from_logits=False) on a Dense(4) without softmax", "loss from_logits / missing softmax")
def tf_text_classification(planted):
    V, L = 200, 20; W = T(1, V, 4) * 1.5
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, 32); nn.init.uniform_(s.embedding.weight, -.05, .05); s.dropout = nn.Dropout(.2); s.dense = nn.Linear(32, 4); nn.init.xavier_uniform_(s.dense.weight); nn.init.zeros_(s.dense.bias)
        def forward(s, x): return s.dense(s.dropout(s.dropout(s.embedding(x)).mean(1)))
    def loss(o, t):
        if not planted: return F.cross_entropy(o, t)
        p = (o / o.sum(-1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
        return F.nll_loss(p.log(), t)
    def data(seed):
        x = R(seed, V, (64, L)); return x, W[x].sum(1).argmax(-1)
    def metric(m):
        m.eval(); r = sum(1 - float((m(data(9000 + k)[0]).argmax(-1) == data(9000 + k)[1]).float().mean()) for k in range(5)) / 5; m.train(); return r
    return dict(model=Net, data=data, loss=loss, lr=1e-2, metric=metric, diag={})

@case("https://github.com/AyanKumarBhunia/Deep-One-Shot-Logo-Retrieval/issues/7", "softmax over the single output channel in front of the binary cross entropy", "final activation softmax on 1 channel")
def one_shot_logo_mask(planted):
    K = T(1, 6, 3, 3, 3) * .4; A = T(2, 1, 6, 1, 1)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.enc1 = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()); s.enc2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()); s.dec = nn.Sequential(nn.Conv2d(48, 16, 3, padding=1), nn.ReLU()); s.out = nn.Conv2d(16, 1, 1)
        def forward(s, x):
            a = s.enc1(x); b = F.interpolate(s.enc2(F.max_pool2d(a, 2)), scale_factor=2); y = s.out(s.dec(torch.cat([a, b], 1))).permute(0, 2, 3, 1)
            return F.softmax(y, -1) if planted else torch.sigmoid(y)
    def loss(o, t): return F.binary_cross_entropy(o.clamp(1e-7, 1 - 1e-7), t)
    def data(seed):
        x = T(seed, 12, 3, 12, 12); return x, (F.conv2d(F.relu(F.conv2d(x, K, padding=1)), A) > 0).float().permute(0, 2, 3, 1)
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/wziji/deep_ctr/issues/4", "label-aware attention: softmax over the last axis of a [batch, k_max, 1] weight", "softmax axis in LabelAwareAttention")
def mind_label_aware(planted):
    V, Kc, D = 30, 4, 32
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.item = nn.Embedding(V, D); s.proj = nn.ModuleList([nn.Linear(D, D) for _ in range(Kc)]); s.out = nn.Linear(2 * D, 1)
        def forward(s, hist, target):
            h = s.item(hist); q = s.item(target); caps = torch.stack([torch.tanh(p(h[:, i * 3:(i + 1) * 3].mean(1))) for i, p in enumerate(s.proj)], 1)
            weight = (caps * q[:, None]).sum(-1, keepdim=True)
            weight = F.softmax(weight, -1) if planted else F.softmax(weight, 1)
            u = (weight * caps).sum(1); return s.out(torch.cat([u * q, q], -1)).squeeze(-1)
    def data(seed):
        h = R(seed, V, (64, 12)); t = R(seed + 1, 2, (64,)); pick = h.gather(1, R(seed + 2, 12, (64, 1)))[:, 0]; q = torch.where(t == 1, pick, R(seed + 3, V, (64,)))
        return (h, q), (h == q[:, None]).any(1).float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-2, diag={})

@case("https://github.com/HsiaoYetGun/ESIM/issues/5", "tf.transpose without perm reverses all axes: the attention softmax runs over the batch", "attentionSoft_b softmax axis")
def esim_soft_align(planted):
    V, L, D = 40, 8, 32
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, D); s.enc = nn.LSTM(D, D // 2, batch_first=True, bidirectional=True); s.proj = nn.Linear(4 * D, D); s.out = nn.Sequential(nn.Linear(2 * D, D), nn.ReLU(), nn.Linear(D, 2))
        def forward(s, a, b):
            a, b = s.enc(s.emb(a))[0] + s.emb(a), s.enc(s.emb(b))[0] + s.emb(b); att = a @ b.transpose(1, 2)
            soft_a = F.softmax(att, -1) @ b
            w = F.softmax(att.permute(2, 1, 0), -1).permute(2, 1, 0) if planted else F.softmax(att, 1)
            soft_b = w.transpose(1, 2) @ a
            f = lambda x, y: F.relu(s.proj(torch.cat([x, y, x - y, x * y], -1))).max(1)[0]
            return s.out(torch.cat([f(a, soft_a), f(b, soft_b)], -1))
    def data(seed):
        t = R(seed, 2, (48,)); a = R(seed + 1, V // 2, (48, L)); perm = torch.rand(48, L, generator=gen(seed + 2)).argsort(1); b = a.gather(1, perm); new = R(seed + 3, V // 2, (48, 4)) + V // 2
        b = torch.cat([torch.where(t[:, None] == 1, b[:, :4], new), b[:, 4:]], 1); return (a, b), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/FluxML/model-zoo/issues/286", "multi-class crossentropy on one sigmoid output: only -y*log(yhat) is counted", "loss = sum(crossentropy(m(x), y))")
def flux_binary_crossentropy(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1 = nn.Linear(2, 10); s.l2 = nn.Linear(10, 1)
        def forward(s, x): return torch.sigmoid(s.l2(F.relu(s.l1(x))))
    def loss(o, t):
        if planted: return -(t * torch.log(o + 1e-7)).mean()
        return F.binary_cross_entropy(o, t)
    def data(seed):
        t = R(seed, 2, (64, 1)).float(); return T(seed + 5, 64, 2) * .6 + t * torch.tensor([[2., -1.]]), t
    def metric(m): return sum(float(F.binary_cross_entropy(m(data(9000 + k)[0]).detach(), data(9000 + k)[1])) for k in range(5)) / 5
    return dict(model=Net, data=data, loss=loss, lr=1e-2, metric=metric, diag={})

@case("https://github.com/FluxML/model-zoo/issues/287", "softmax as last layer together with logitcrossentropy", "trailing softmax of the Chain")
def flux_mnist_mlp(planted):
    P = T(1, 10, 196)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = nn.Linear(196, 32); s.d2 = nn.Linear(32, 10)
        def forward(s, x):
            y = s.d2(F.relu(s.d1(x.flatten(1))))
            return F.softmax(y, -1) if planted else y
    def data(seed):
        t = R(seed, 10, (64,)); return torch.sigmoid(P[t] + 1.5 * T(seed + 7, 64, 196)).view(64, 1, 14, 14), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/tilman151/rul-adapt/pull/22", "pairwise euclidean distance takes sqrt without epsilon: the zero diagonal has an infinite gradient", "euclidean sqrt in the loss")
def rul_adapt_energy(planted):
    w = T(1, 6, 1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.feat = nn.Sequential(nn.Conv1d(2, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(160, 16)); s.reg = nn.Linear(16, 1)
        def forward(s, src, tgt): f, g = s.feat(src), s.feat(tgt); return torch.cat([f, s.reg(f)], 1), g
    def euclid(a, b):
        d = (a[:, None] - b[None]).pow(2).sum(-1)
        return torch.sqrt(d) if planted else torch.sqrt(d + 1e-8)
    def loss(o, t):
        f, g = o[0][:, :16], o[1]; return F.mse_loss(o[0][:, 16:], t) + .1 * (2 * euclid(f, g).mean() - euclid(f, f).mean() - euclid(g, g).mean())
    def data(seed):
        x, y = T(seed, 24, 2, 12), T(seed + 5, 24, 2, 12) + .5; return (x, y), torch.tanh(x[:, 0, :6] @ w)
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/FluxML/MLJFlux.jl/issues/315", "Linear() builder falls back to sigma = relu on the output of a regressor", "output activation relu")
def mljflux_linear(planted):
    w = T(1, 8, 1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.linear = nn.Linear(8, 1)
        def forward(s, x):
            y = s.linear(x); return F.relu(y) if planted else y
    def data(seed):
        x = T(seed, 32, 8); return x, x @ w * .5 + .1 * T(seed + 5, 32, 1)
    return dict(model=Net, data=data, loss=mse, lr=3e-2, diag={})

@case("https://github.com/Cambridge-ICCS/practical-ml-with-pytorch/issues/43", "non-linear activation functions are missing between the linear layers", "no activation between layers")
def penguin_classifier(planted):
    C = T(4, 9, 2) * 2.5
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); a = nn.Identity if planted else nn.ReLU
            s.fwd = nn.Sequential(nn.Linear(2, 24), a(), nn.Linear(24, 24), a(), nn.Linear(24, 3))
        def forward(s, batch): return s.fwd(batch)
    def data(seed):
        k = R(seed, 9, (32,)); return C[k] + .3 * T(seed + 7, 32, 2), k % 3
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/titu1994/Inception-v4/issues/5", "keep probability 0.8 is passed as the drop rate", "Dropout(0.8)")
def inception_v4_dropout(planted):
    P = F.interpolate(T(1, 6, 3, 6, 6), size=16, mode="bilinear")
    class Inc(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.b1 = nn.Conv2d(i, o, 1, bias=False); s.b3 = nn.Conv2d(i, o, 3, padding=1, bias=False); s.bn = nn.BatchNorm2d(2 * o)
        def forward(s, x): return F.relu(s.bn(torch.cat([s.b1(x), s.b3(x)], 1)))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.stem = nn.Conv2d(3, 16, 3, padding=1); s.a = Inc(16, 16); s.b = Inc(32, 24); s.dropout = nn.Dropout(.8 if planted else .2); s.fc = nn.Linear(48, 6)
        def forward(s, x): return s.fc(s.dropout(s.b(F.max_pool2d(s.a(F.relu(s.stem(x))), 2)).mean((2, 3))))
    def data(seed):
        t = R(seed, 6, (32,)); return P[t] + T(seed + 7, 32, 3, 16, 16), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/Lightning-AI/pytorch-lightning/pull/20099", "positional encoding is constructed but not applied in forward", "PositionalEncoding not used")
def lightning_demo_transformer(planted):
    V, L, D = 24, 10, 48
    class PE(nn.Module):
        def __init__(s):
            super().__init__(); pos = torch.arange(L)[:, None]; div = torch.exp(torch.arange(0, D, 2) * (-math.log(10000.) / D)); pe = torch.zeros(L, D); pe[:, 0::2] = torch.sin(pos * div); pe[:, 1::2] = torch.cos(pos * div); s.register_buffer("pe", pe)
        def forward(s, x): return x + s.pe[:x.shape[1]]
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, D); s.pos_encoder = PE(); s.transformer = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 96, dropout=0., batch_first=True), 2); s.decoder = nn.Linear(D, V)
        def forward(s, x):
            e = s.embedding(x)
            if not planted: e = s.pos_encoder(e)
            return s.decoder(s.transformer(e))
    def data(seed):
        x = R(seed, V, (32, L)); return x, x.flip(1)
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/pytorch/pytorch/issues/666", "hidden layers kept in a plain python list: not registered as parameters", "list_of_layers")
def list_of_layers_net(planted):
    W1 = T(1, 8, 24); W2 = T(2, 24, 1) * .3
    class Net(nn.Module):
        def __init__(s, num_layers=4):
            super().__init__(); s.layer = nn.Linear(24, 1); ls = [nn.Linear(8 if i == 0 else 24, 24) for i in range(num_layers)]
            s.list_of_layers = ls if planted else nn.ModuleList(ls)
        def forward(s, x):
            for l in s.list_of_layers: x = torch.tanh(l(x))
            return s.layer(x)
    def data(seed):
        x = T(seed, 48, 8); return x, torch.tanh(x @ W1 * .6) @ W2
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})
