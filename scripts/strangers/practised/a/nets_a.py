from base import *

@case("https://github.com/keras-team/keras/issues/12096", "two-class output layer uses relu instead of softmax in front of categorical_crossentropy", "final Dense activation (relu)")
def keras_cat_dog_cnn(planted):
    P = T(1, 2, 1, 40, 40)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Conv2d(1, 24, 11, stride=2); s.pool = nn.MaxPool2d(3, 2); s.dense = nn.Linear(24 * 7 * 7, 2)
            for m in (s.conv, s.dense): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x):
            x = s.dense(s.pool(F.relu(s.conv(x))).flatten(1))
            return F.relu(x) if planted else F.softmax(x, -1)
    def loss(o, t):
        p = (o / o.sum(-1, keepdim=True).clamp_min(1e-7)).clamp(1e-7, 1 - 1e-7)
        return F.nll_loss(p.log(), t)
    def data(seed):
        t = R(seed, 2, (24,)); return torch.sigmoid(P[t] + T(seed + 7, 24, 1, 40, 40)), t
    def metric(m):
        e = 0
        for k in range(5):
            x, t = data(9000 + k); o = m(x).detach(); p = ((o + 1e-7) / (o + 1e-7).sum(-1, keepdim=True)).clamp(1e-7, 1); e += float(F.nll_loss(p.log(), t)) / 5
        return e
    return dict(model=Net, data=data, loss=loss, lr=1e-3, metric=metric, diag={})

@case("https://github.com/znxlwm/UGATIT-pytorch/issues/32", "ResnetBlock.forward returns out instead of out + x", "resblocks (skip connection)")
def ugatit_resblock(planted):
    class Block(nn.Module):
        def __init__(s, c):
            super().__init__(); s.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False); s.in1 = nn.InstanceNorm2d(c); s.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False); s.in2 = nn.InstanceNorm2d(c)
        def forward(s, x):
            out = s.in2(s.conv2(F.relu(s.in1(s.conv1(x)))))
            return out if planted else out + x
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.down = nn.Conv2d(3, 24, 3, stride=2, padding=1); s.norm = nn.InstanceNorm2d(24); s.blocks = nn.Sequential(*[Block(24) for _ in range(6)]); s.up = nn.Upsample(scale_factor=2); s.out = nn.Conv2d(24, 3, 3, padding=1)
        def forward(s, x): return torch.tanh(s.out(s.up(s.blocks(F.relu(s.norm(s.down(x)))))))
    def data(seed):
        x = F.interpolate(T(seed, 16, 3, 6, 6), size=16, mode="bilinear").clamp(-1, 1); return x, x[:, [1, 2, 0]] * .8
    return dict(model=Net, data=data, loss=F.l1_loss, lr=2e-3, diag={})

@case("https://github.com/joelgrus/fizz-buzz-tensorflow/issues/3", "softmax applied in the output layer in front of softmax_cross_entropy_with_logits", "output layer softmax")
def fizz_buzz(planted):
    W1 = T(1, 10, 30); W2 = T(2, 30, 4)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.w_h = nn.Parameter(torch.randn(10, 100) * .01); s.w_o = nn.Parameter(torch.randn(100, 4) * .01)
        def forward(s, X):
            h = F.relu(X @ s.w_h); y = h @ s.w_o
            return F.softmax(y, -1) if planted else y
    def data(seed):
        x = R(seed, 2, (64, 10)).float(); return x, (F.relu(x @ W1 - 1.5) @ W2).argmax(-1)
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/TobiasLee/Chinese-Hip-pop-Generation/pull/8", "time-major transpose is kept although the encoder became a fully connected layer: reshape mixes the samples", "transpose before reshape of embedded inputs")
def hiphop_fc_encoder(planted):
    V, B, L = 20, 32, 8; W = T(1, L, V, 6)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, 16); s.fc = nn.Linear(L * 16, 64); s.out = nn.Linear(64, 6)
        def forward(s, inputs):
            e = s.embedding(inputs)
            if planted: e = e.transpose(0, 1)
            return s.out(torch.tanh(s.fc(e.reshape(inputs.shape[0], -1))))
    def data(seed):
        x = R(seed, V, (B, L)); return x, W[torch.arange(L), x].sum(1).argmax(-1)
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/abdur75648/Deep-Learning-Specialization-Coursera/issues/7", "images flattened by reshape(features, m) instead of reshape(m, -1).T", "train_set_x_flatten reshape")
def coursera_flatten(planted):
    P = T(1, 2, 12, 12, 3)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.hidden = nn.Linear(432, 7); s.out = nn.Linear(7, 1)
        def forward(s, x):
            m = x.shape[0]; X = x.reshape(432, m) if planted else x.reshape(m, -1).T
            return s.out(torch.relu(s.hidden(X.T))).squeeze(-1)
    def data(seed):
        t = R(seed, 2, (32,)); return torch.sigmoid(P[t] + T(seed + 7, 32, 12, 12, 3)), t.float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=5e-3, diag={})

@case("https://github.com/IcedDoggie/Micro-Expression-with-Deep-Learning/issues/7", "NHWC batch is brought to NCHW with reshape instead of transpose", "restructure_data reshape")
def micro_expression_reshape(planted):
    P = F.interpolate(T(1, 5, 3, 5, 5), size=20, mode="bilinear")
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.f = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2)); s.fc = nn.Linear(128, 5)
        def forward(s, x):
            n, r, w, c = x.shape
            x = x.reshape(n, c, r, w) if planted else x.permute(0, 3, 1, 2)
            return s.fc(s.f(x).flatten(1))
    def data(seed):
        t = R(seed, 5, (32,)); return (P[t] + .7 * T(seed + 7, 32, 3, 20, 20)).permute(0, 2, 3, 1).contiguous(), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/keras-team/keras/issues/126", "softmax activation on a single output unit", "last Dense(64, 1, softmax)")
def keras_mlp_softmax1(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.d1 = nn.Linear(2, 64); s.d2 = nn.Linear(64, 64); s.d3 = nn.Linear(64, 1); s.drop = nn.Dropout(.5)
            for m in (s.d1, s.d2, s.d3): nn.init.uniform_(m.weight, -.05, .05); nn.init.zeros_(m.bias)
        def forward(s, x):
            x = s.drop(torch.tanh(s.d1(x))); x = s.d3(s.drop(torch.tanh(s.d2(x))))
            return F.softmax(x, -1) if planted else torch.sigmoid(x)
    def data(seed):
        x = torch.rand(32, 2, generator=gen(seed)); return x, (x.sum(1, keepdim=True) > 1).float()
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/deepset-ai/FARM/issues/229", "regression head squeezes the logits to [B] while labels are [B, 1]: MSE broadcasts to [B, B]", "RegressionHead logits squeeze / MSELoss")
def farm_regression_head(planted):
    V, L = 60, 12; E = T(1, V)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, 48); s.pos = nn.Parameter(torch.randn(L, 48) * .02); s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, dropout=0., batch_first=True), 2); s.head = nn.Linear(48, 1)
        def forward(s, ids): return s.head(s.enc(s.emb(ids) + s.pos).mean(1))
    def loss(o, t): return F.mse_loss(o.squeeze(-1) if planted else o, t)
    def data(seed):
        x = R(seed, V, (32, L)); return x, E[x].mean(1, keepdim=True) * 4
    def metric(m): return sum(float(F.mse_loss(m(data(9000 + k)[0]).detach(), data(9000 + k)[1])) for k in range(5)) / 5
    return dict(model=Net, data=data, loss=loss, lr=2e-3, metric=metric, diag={})

@case("https://github.com/sktime/sktime/issues/10931", "network output (B, 1) against targets (B,): criterion broadcasts to (B, B)", "criterion(y_pred, outputs) shapes")
def sktime_fcn_regressor(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = nn.Conv1d(2, 24, 7, padding=3); s.b1 = nn.BatchNorm1d(24); s.c2 = nn.Conv1d(24, 48, 5, padding=2); s.b2 = nn.BatchNorm1d(48); s.c3 = nn.Conv1d(48, 24, 3, padding=1); s.b3 = nn.BatchNorm1d(24); s.fc = nn.Linear(24, 1)
        def forward(s, X):
            x = F.relu(s.b1(s.c1(X))); x = F.relu(s.b2(s.c2(x))); x = F.relu(s.b3(s.c3(x))).mean(-1)
            return s.fc(x) if planted else s.fc(x).squeeze(-1)
    def data(seed):
        a = torch.rand(32, 1, 1, generator=gen(seed)) * 3; ph = torch.rand(32, 1, 1, generator=gen(seed + 5)) * 6; g = torch.arange(20.)
        x = torch.cat([a * torch.sin(g * .8 + ph), T(seed + 7, 32, 1, 20)], 1); return x, a[:, 0, 0] - 1.5
    def metric(m): return sum(float(F.mse_loss(m(data(9000 + k)[0]).detach().reshape(-1), data(9000 + k)[1])) for k in range(5)) / 5
    return dict(model=Net, data=data, loss=F.mse_loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/tsinghua-rll/VoxelNet-tensorflow/issues/10", "RPN score and regression maps end in BN + ReLU", "final prob / reg conv activation")
def voxelnet_rpn(planted):
    K = T(1, 8, 8, 3, 3) * .3; A = T(2, 9, 8, 1, 1) * .6
    class ConvBN(nn.Module):
        def __init__(s, i, o, k, act=True, bn=True):
            super().__init__(); s.conv = nn.Conv2d(i, o, k, padding=k // 2); s.bn = nn.BatchNorm2d(o) if bn else nn.Identity(); s.act = act
        def forward(s, x):
            x = s.bn(s.conv(x)); return F.relu(x) if s.act else x
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.block1 = nn.Sequential(ConvBN(8, 32, 3), ConvBN(32, 32, 3)); s.block2 = nn.Sequential(ConvBN(32, 32, 3), ConvBN(32, 32, 3))
            s.prob = ConvBN(64, 2, 1, act=planted, bn=planted); s.reg = ConvBN(64, 7, 1, act=planted, bn=planted)
        def forward(s, x):
            a = s.block1(x); b = s.block2(a); y = torch.cat([a, b], 1); return torch.cat([s.prob(y), s.reg(y)], 1)
    def loss(o, t): return F.binary_cross_entropy_with_logits(o[:, :2], (t[:, :2] > 0).float()) + F.smooth_l1_loss(o[:, 2:], t[:, 2:])
    def data(seed):
        x = T(seed, 16, 8, 10, 10); return x, F.conv2d(torch.tanh(F.conv2d(x, K, padding=1)), A)
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/mikigom/large-scale-OT-mapping-TF/issues/1", "dual potential networks u, v end in a ReLU", "NN_DUAL last layer ReLU")
def large_scale_ot_dual(planted):
    def mlp(): return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.u = mlp(); s.v = mlp()
        def forward(s, x, y):
            a, b = s.u(x), s.v(y)
            if planted: a, b = F.relu(a), F.relu(b)
            return torch.cat([a, b], 1)
    def loss(o, c):
        u, v = o[:, :1], o[:, 1:]; return -(u.mean() + v.mean()) + (F.relu(u + v.T - c) ** 2).mean() / (4 * .05)
    sh = T(3, 1, 8) * 1.5
    def data(seed):
        x, y = T(seed, 48, 8), T(seed + 5, 48, 8) * .7 + sh; return (x, y), torch.cdist(x, y) ** 2 / 8
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/mindee/doctr/pull/195", "softmax is applied to the recognition logits that go into the CTC loss", "softmax before ctc_loss")
def doctr_crnn_ctc(planted):
    C, N, L = 12, 24, 4; P = T(1, C, 8, 3)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Conv1d(8, 48, 3, padding=1); s.lstm = nn.LSTM(48, 48, batch_first=True, bidirectional=True); s.fc = nn.Linear(96, C)
        def forward(s, x): return s.fc(s.lstm(F.relu(s.conv(x)).transpose(1, 2))[0])
    def loss(o, t):
        if planted: o = F.softmax(o, -1)
        return F.ctc_loss(o.log_softmax(-1).transpose(0, 1), t, torch.full((len(t),), o.shape[1]), torch.full((len(t),), L))
    def data(seed):
        t = R(seed, C - 1, (N, L)) + 1; x = torch.cat([P[t[:, i]] for i in range(L)], -1); return x + .3 * T(seed + 7, N, 8, 12), t
    def metric(m):
        return sum(float(F.ctc_loss(m(data(9000 + k)[0]).detach().log_softmax(-1).transpose(0, 1), data(9000 + k)[1], torch.full((N,), 12), torch.full((N,), L))) for k in range(3)) / 3
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={})
