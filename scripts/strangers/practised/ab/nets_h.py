from base import *
P10 = T(5, 6, 1, 12, 12)
def images(seed, n=32, noise=1.0):
    t = R(seed + 77, 6, (n,)); return P10[t] + noise * T(seed, n, 1, 12, 12), t
def tab(seed, n=64, d=10, c=4):
    x = T(seed, n, d); return x, (x @ T(7, d, c)).argmax(1)

@case("https://github.com/catalyst-team/catalyst/pull/1278", "both embeddings are computed from the same augmentation (aug1 twice)", "handle_batch: emb2 = model(aug1)")
def simclr_aug1_twice(planted):
    A = T(3, 8, 40) / 8 ** .5
    class Encoder(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.projection = nn.Linear(64, 16)
        def forward(s, aug1, aug2):
            f = lambda v: F.normalize(s.projection(s.encoder(v)), dim=1)
            return f(aug1), f(aug2)
    def data(seed):
        z = T(seed, 32, 8) @ A; n1, n2 = 1.5 * T(seed + 1, 32, 40), 1.5 * T(seed + 2, 32, 40); a1, a2 = z * 2 + n1, z * 2 + n2
        return (a1, a1 if planted else a2), torch.arange(32)
    def loss(o, t):
        z1, z2 = o; return F.cross_entropy(z1 @ z2.T / .2, t)
    return dict(model=Encoder, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/issues/274", "float features are fed to an Embedding layer (cast to integer indices) in front of the LSTM", "Embedding(4, 64) on real-valued input")
def iris_embedding(planted):
    C = torch.tensor([[5.0, 3.4, 1.5, .2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.5, 2.0]]) / 8
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding, s.proj = nn.Embedding(4, 64), nn.Linear(1, 64)
            if planted: del s.proj
            else: del s.embedding
            s.lstm, s.dense = nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 3)
        def forward(s, x):
            y = s.embedding(x.long()) if planted else s.proj(x[..., None])
            return s.dense(s.lstm(y)[0][:, -1])
    def data(seed):
        t = R(seed, 3, (32,)); return (C[t] + .02 * T(seed + 1, 32, 4)).clamp(0, .99), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/Justin-Tan/generative-compression/issues/27", "tf.stop_gradient on the quantised code: no gradient reaches the encoder", "quantizer (stop_gradient / detach)")
def quantizer_stop_gradient(planted):
    A = T(3, 4, 30)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 8)); s.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 30))
            s.register_buffer("centers", torch.linspace(-2, 2, 5))
        def quantize(s, w):
            d = (w[..., None] - s.centers) ** 2; w_hard = s.centers[d.argmin(-1)]; w_bar = (torch.softmax(-d, -1) * s.centers).sum(-1)
            return w_hard.detach() if planted else (w_hard - w_bar).detach() + w_bar
        def forward(s, x): return s.decoder(s.quantize(s.encoder(x)))
    def data(seed):
        x = torch.tanh(T(seed, 64, 4) @ A); return x, x
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/pandeykartikey/Hierarchical-Attention-Network/issues/3", "softmax instead of log_softmax in front of NLLLoss", "output softmax with NLLLoss")
def han_softmax_nll(planted):
    V = 60
    class HAN(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, 32); s.gru = nn.GRU(32, 24, batch_first=True, bidirectional=True); s.word, s.ctx = nn.Linear(48, 48), nn.Linear(48, 1, bias=False); s.doc = nn.Linear(48, 5)
        def forward(s, x):
            h = s.gru(s.emb(x))[0]; a = torch.softmax(s.ctx(torch.tanh(s.word(h))), 1); y = s.doc((a * h).sum(1))
            return torch.softmax(y, 1) if planted else torch.log_softmax(y, 1)
    def data(seed):
        t = R(seed, 5, (32,)); x = R(seed + 1, V - 10, (32, 12)) + 10; x[:, 3:6] = torch.where(R(seed + 2, 10, (32, 3)) < 8, t[:, None] * 2 + R(seed + 3, 2, (32, 3)), x[:, 3:6]); return x, t
    def loss(o, t): return F.nll_loss(o, t)
    def metric(m):
        with torch.no_grad(): return sum(float((m(x).argmax(1) != t).float().mean()) for x, t in map(data, range(9000, 9005))) / 5
    return dict(model=HAN, data=data, loss=loss, metric=metric, lr=3e-3, diag={})

@case("https://github.com/hunkim/DeepLearningZeroToAll/issues/122", "tf.layers.dropout gets rate=0.7 where keep_prob 0.7 was meant", "dropout rate")
def layers_dropout_rate(planted):
    r = .7 if planted else .3
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(r)); s.conv2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(r))
            s.dense4 = nn.Sequential(nn.Linear(288, 64), nn.ReLU(), nn.Dropout(r)); s.logits = nn.Linear(64, 6)
        def forward(s, x): return s.logits(s.dense4(s.conv2(s.conv1(x)).flatten(1)))
    return dict(model=Net, data=images, loss=ce, lr=2e-3, diag={})

@case("https://github.com/apache/mxnet/issues/1546", "regression target (and 0/1 input) not normalised: the net predicts one value for everything", "target scale")
def mxnet_raw_target(planted):
    W = T(8, 30, 1)
    mu, sd = 240.0, 60.0
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1, s.fc2, s.fc3, s.fc4 = nn.Linear(30, 32), nn.Linear(32, 10), nn.Linear(10, 5), nn.Linear(5, 1)
        def forward(s, x): return s.fc4(torch.relu(s.fc3(torch.relu(s.fc2(torch.relu(s.fc1(x)))))))
    def std(seed):
        x = (T(seed, 64, 30) > 0).float(); return x, ((x - .5) @ W) / 2.7
    def data(seed):
        x, t = std(seed); return (x, t * sd + mu) if planted else (2 * x - 1, t)
    r = dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})
    if not planted:
        def metric(m):
            with torch.no_grad(): return sum(min(float(mse(m(2 * x - 1), t)), float(mse((m(x) - mu) / sd, t))) for x, t in map(std, range(9000, 9005))) / 5
        r["metric"] = metric
    return r

@case("https://github.com/maxjcohen/transformer/issues/49", "sigmoid on the transformer's output although the target series is not scaled to [0,1]", "output sigmoid vs. target range")
def tst_sigmoid_out(planted):
    class Transformer(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Linear(2, 32); s.enc = nn.TransformerEncoderLayer(32, 4, 64, 0., batch_first=True); s.linear = nn.Linear(32, 1)
        def forward(s, x):
            y = s.linear(s.enc(s.embedding(x))); return torch.sigmoid(y) if planted else y
    def data(seed):
        x = T(seed, 32, 10, 2); return x, 2 * x[..., :1] - x[..., 1:] + x[..., :1].mean(1, keepdim=True)
    return dict(model=Transformer, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/jsyoon0823/Time-series-prediction/issues/3", "the attention model's output goes through a sigmoid, but the regression label is given raw (20 to 30 degrees)", "output sigmoid vs. target range")
def attention_ts_sigmoid(planted):
    W = T(6, 4, 1)
    class Attention(nn.Module):
        def __init__(s):
            super().__init__(); s.rnn = nn.GRU(4, 32, batch_first=True); s.W1, s.W2, s.V = nn.Linear(32, 16), nn.Linear(32, 16), nn.Linear(16, 1); s.fc1, s.fc2 = nn.Linear(64, 32), nn.Linear(32, 1)
        def forward(s, x):
            h, q = s.rnn(x); q = q[0]; a = torch.softmax(s.V(torch.tanh(s.W1(h) + s.W2(q)[:, None])), 1); return torch.sigmoid(s.fc2(torch.relu(s.fc1(torch.cat([(a * h).sum(1), q], 1)))))
    def data(seed):
        x = T(seed, 32, 8, 4); y = torch.sigmoid((x[:, -2:] @ W).sum(1) / 2); return x, (20 + 10 * y if planted else y)
    return dict(model=Attention, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/keras-team/keras/issues/1740", "batch normalisation over the last (width) axis of channels-first feature maps", "BatchNormalization axis")
def keras_bn_axis(planted):
    class BN(nn.Module):
        def __init__(s, c): super().__init__(); s.bn = nn.BatchNorm2d(c)
        def forward(s, x): return s.bn(x.transpose(1, 3)).transpose(1, 3) if planted else s.bn(x)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1, s.bn1 = nn.Conv2d(1, 8, 3, padding=1), BN(12 if planted else 8); s.conv2, s.bn2 = nn.Conv2d(8, 16, 3, padding=1), BN(6 if planted else 16); s.fc = nn.Linear(144, 6)
        def forward(s, x):
            x = F.max_pool2d(torch.relu(s.bn1(s.conv1(x))), 2); return s.fc(F.max_pool2d(torch.relu(s.bn2(s.conv2(x))), 2).flatten(1))
    return dict(model=Net, data=images, loss=ce, lr=1e-3, diag={})

@case("https://github.com/allenai/olmoearth_pretrain/pull/560", "cross entropy gets targets in which the ignore label was already replaced by class 0", "targets_masked / ignore_index")
def olmo_ignore_index(planted):
    K = T(4, 3, 2, 3, 3)
    class Probe(nn.Module):
        def __init__(s): super().__init__(); s.enc, s.head = nn.Sequential(nn.Conv2d(2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()), nn.Conv2d(32, 3, 1)
        def forward(s, x): return s.head(s.enc(x))
    def data(seed):
        x = T(seed, 16, 2, 12, 12); t = F.conv2d(x, K, padding=1).argmax(1); return x, t.masked_fill(torch.rand(t.shape, generator=gen(seed + 3)) < .75, -1)
    def loss(o, t):
        targets_masked = t.masked_fill(t == -1, 0)
        return F.cross_entropy(o, targets_masked if planted else t, ignore_index=-1)
    return dict(model=Probe, data=data, loss=loss, metric=None, lr=3e-3, diag={})

@case("https://github.com/apache/mxnet/pull/13094", "relu as activation of the last Dense layer in front of softmax cross entropy", "Dense(10, activation='relu') output")
def gluon_relu_logits(planted):
    class MLP(nn.Module):
        def __init__(s):
            super().__init__(); s.d0, s.d1, s.d2 = nn.Linear(144, 128), nn.Linear(128, 64), nn.Linear(64, 6)
            for l in (s.d0, s.d1, s.d2): nn.init.uniform_(l.weight, -.07, .07); nn.init.zeros_(l.bias)
        def forward(s, x):
            y = s.d2(torch.relu(s.d1(torch.relu(s.d0(x.flatten(1)))))); return torch.relu(y) if planted else y
    return dict(model=MLP, data=images, loss=ce, lr=1e-3, diag={})

@case("https://github.com/WeidiXie/cell_counting_v2/issues/9", "density map targets are not multiplied by 100 (one dot among thousands of pixels): all-zero prediction", "target density scale")
def density_not_scaled(planted):
    k = torch.exp(-(torch.arange(-3, 4.)[:, None] ** 2 + torch.arange(-3, 4.) ** 2) / 3); k = (k / k.sum())[None, None]
    def blk(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
    class FCRN(nn.Module):
        def __init__(s): super().__init__(); s.d1, s.d2, s.u1, s.out = blk(1, 16), blk(16, 32), blk(32, 16), nn.Conv2d(16, 1, 3, padding=1)
        def forward(s, x): return s.out(s.u1(F.interpolate(s.d2(F.max_pool2d(s.d1(x), 2)), scale_factor=2)))
    def raw(seed):
        dots = (torch.rand(8, 1, 24, 24, generator=gen(seed)) < .01).float(); d = F.conv2d(dots, k, padding=3); return d * 15 + .2 * T(seed + 1, 8, 1, 24, 24), d
    def data(seed): x, d = raw(seed); return x, d * (.01 if planted else 1) * 100
    def metric(m):
        tot = 0
        with torch.no_grad():
            for s in range(9000, 9005):
                x, d = raw(s); y = m(x); a = (y * d).sum() / (y * y).sum(); tot += float(((y - y.mean()) * (d - d.mean())).mean() / (y.std() * d.std() + 1e-12)) / 5
        return 1 - tot
    return dict(model=FCRN, data=data, loss=mse, metric=metric, lr=1e-3, diag={})
