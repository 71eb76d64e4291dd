from base import *

@case("https://github.com/wbhu/DnCNN-tensorflow/issues/9", "last conv layer (predicting the noise) is followed by BN and ReLU", "BN + ReLU on the output layer")
def dncnn_last_relu(planted):
    class DnCNN(nn.Module):
        def __init__(self, L=5, C=16):
            super().__init__()
            m = [nn.Conv2d(1, C, 3, 1, 1), nn.ReLU()]
            for _ in range(L - 2): m += [nn.Conv2d(C, C, 3, 1, 1, bias=False), nn.BatchNorm2d(C), nn.ReLU()]
            m += [nn.Conv2d(C, 1, 3, 1, 1)] + ([nn.BatchNorm2d(1), nn.ReLU()] if planted else [])
            self.block = nn.Sequential(*m)
        def forward(self, y): return self.block(y)
    def data(seed):
        x = F.interpolate(torch.rand(8, 1, 4, 4, generator=gen(seed)), size=24, mode="bilinear"); n = T(seed + 1, 8, 1, 24, 24) * .5
        return x + n, n
    return dict(model=DnCNN, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/omoindrot/tensorflow-triplet-loss/issues/51", "labels of shape (B, 1) given to the batch-all triplet loss: the mask broadcasts wrongly", "labels.unsqueeze / shape in batch_all_triplet_loss")
def triplet_label_shape(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()); self.fc = nn.Linear(32 * 16, 32)
        def forward(self, x): return F.normalize(self.fc(self.conv(x).flatten(1)), dim=1)
    def batch_all(labels, e, margin=.5):
        d = (2 - 2 * e @ e.t()).clamp(min=0); B = len(e)
        ne = ~torch.eye(B, dtype=torch.bool); distinct = ne.unsqueeze(2) & ne.unsqueeze(1) & ne.unsqueeze(0)
        eq = labels.unsqueeze(0) == labels.unsqueeze(1)
        mask = distinct & (eq.unsqueeze(2) & ~eq.unsqueeze(1))
        loss = F.relu((d.unsqueeze(2) - d.unsqueeze(1) + margin) * mask.float())
        return loss.sum() / ((loss > 1e-16).float().sum() + 1e-16)
    proto = T(3, 8, 1, 16, 16)
    def data(seed): y = R(seed, 8, (20,)); return proto[y] + T(seed + 1, 20, 1, 16, 16) * 1.5, (y.unsqueeze(1) if planted else y)
    def metric(m):
        m.eval(); y = R(77, 8, (64,)); e = m(proto[y] + T(78, 64, 1, 16, 16) * 1.5).detach(); m.train()
        d = torch.cdist(e, e) + 9 * torch.eye(64); return float((y[d.argmin(1)] != y).float().mean())
    return dict(model=Net, data=data, loss=lambda e, t: batch_all(t, e), lr=1e-3, diag={}, metric=metric)

@case("https://github.com/aiboxlab/nlp/issues/97", "LSTMRegressor outputs (B, 1) against targets (B,): MSELoss broadcasts", "shape of output vs target in MSELoss")
def lstm_regressor_broadcast(planted):
    class LSTMRegressor(nn.Module):
        def __init__(self):
            super().__init__(); self.lstm = nn.LSTM(16, 48, batch_first=True, bidirectional=True); self.linear = nn.Linear(96, 1)
        def forward(self, x):
            o, _ = self.lstm(x); y = self.linear(o.mean(1))
            return y if planted else y.squeeze(-1)
    w = T(4, 16)
    def data(seed): x = T(seed, 32, 12, 16); return x, torch.tanh(x @ w * .7).mean(1) * 3
    return dict(model=LSTMRegressor, data=data, loss=lambda o, t: F.mse_loss(o, t), lr=5e-3, diag={}, metric=lambda m: float(sum(F.mse_loss(m(data(9000 + k)[0]).flatten(), data(9000 + k)[1]) for k in range(4)) / 4))

@case("https://github.com/kmualim/CGAN-Pytorch/issues/1", "training code feeds the fixed condition 6 for every sample and epoch", "the conditional labels given to the generator")
def cgan_fixed_condition(planted):
    class Generator(nn.Module):
        def __init__(self):
            super().__init__(); self.label_emb = nn.Embedding(10, 10)
            self.model = nn.Sequential(nn.Linear(30, 128), nn.LeakyReLU(.2), nn.Linear(128, 256), nn.BatchNorm1d(256), nn.LeakyReLU(.2), nn.Linear(256, 196), nn.Tanh())
        def forward(self, z, c): return self.model(torch.cat([self.label_emb(c), z], 1))
    proto = torch.tanh(T(8, 10, 196)); Wd = T(9, 196, 64) / 14
    def data(seed):
        c = torch.full((64,), 6) if planted else R(seed, 10, (64,))
        return (T(seed + 1, 64, 20), c), proto[c]
    return dict(model=Generator, data=data, loss=lambda o, t: F.mse_loss(o @ Wd, t @ Wd), lr=2e-3, diag={})

@case("https://github.com/teddykoker/mpnn-for-quantum-chem/pull/1", "readout adds the sigmoid gate instead of multiplying by it", "readout: sigmoid(i) + j")
def mpnn_gate_add(planted):
    class MPNN(nn.Module):
        def __init__(self, H=32):
            super().__init__(); self.inp = nn.Linear(5, H); self.edge = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, H)); self.cell = nn.GRUCell(H, H)
            self.i = nn.Sequential(nn.Linear(2 * H, 64), nn.ReLU(), nn.Linear(64, 1)); self.j = nn.Sequential(nn.Linear(2 * H, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, x, e, adj):
            h0 = h = self.inp(x); w = self.edge(e) * adj.unsqueeze(-1)
            for _ in range(3): m = (w * h.unsqueeze(1)).sum(2); h = self.cell(m.flatten(0, 1), h.flatten(0, 1)).view_as(h)
            c = torch.cat([h, h0], -1); g = torch.sigmoid(self.i(c))
            return ((g + self.j(c)) if planted else g * self.j(c)).sum((1, 2))
    a = torch.tensor([1., -.5, .8, -1.2, .4])
    def data(seed):
        t = R(seed, 5, (32, 9)); x = F.one_hot(t, 5).float(); adj = (torch.rand(32, 9, 9, generator=gen(seed + 1)) < .25).float(); adj = ((adj + adj.transpose(1, 2)) > 0).float() * (1 - torch.eye(9))
        e = F.one_hot(R(seed + 2, 4, (32, 9, 9)), 4).float(); v = a[t]
        return (x, e, adj), (v + .5 * v * (adj @ v.unsqueeze(-1)).squeeze(-1)).sum(1) / 3
    return dict(model=MPNN, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/harvard-edge/cs249r_book/pull/1618", "XOR network initialised (RNG seed change) into a dead-ReLU saddle: stuck at 75 %", "initialisation of the 4 hidden ReLU units")
def tinytorch_xor(planted):
    class XORNetwork(nn.Module):
        def __init__(self):
            super().__init__(); self.hidden = nn.Linear(2, 4); self.activation = nn.ReLU(); self.output = nn.Linear(4, 1)
            import numpy as np; r = np.random.default_rng(SEEDS[1] if planted else SEEDS[0])
            with torch.no_grad():
                for l in (self.hidden, self.output): l.weight.copy_(torch.tensor(r.standard_normal((l.in_features, l.out_features)).T * (1 / l.in_features) ** .5)); l.bias.zero_()
        def forward(self, x): return torch.sigmoid(self.output(self.activation(self.hidden(x))))
    X = torch.tensor([[0., 0], [0, 1], [1, 0], [1, 1]]).repeat(8, 1); Y = ((X[:, :1] + X[:, 1:]) == 1).float()
    def data(seed): p = torch.randperm(32, generator=gen(seed)); return X[p], Y[p]
    return dict(model=XORNetwork, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t), lr=5e-2, diag={})
SEEDS = (0, 7)

@case("https://github.com/ratsgo/embedding/issues/51", "attention score softmax over the last axis of size 1: every weight is 1", "tf.nn.softmax of the (B, T, 1) score without axis=1")
def elmo_attention_axis(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(100, 32); self.lstm = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
            self.score = nn.Linear(64, 1); self.fc = nn.Linear(64, 64); self.logits = nn.Linear(64, 5)
        def forward(self, x):
            H, _ = self.lstm(self.embedding(x)); a = torch.softmax(self.score(H), -1 if planted else 1)
            return self.logits(F.relu(self.fc((H * a).sum(1))))
    def data(seed):
        x = R(seed, 85, (32, 40)) + 15; i = torch.arange(32); y = R(seed + 1, 5, (32,)); p = R(seed + 2, 40, (32,)); x[i, p] = y
        return x, y
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/weicmjincheng/Sentiment-Analysis-DL/issues/1", "textCNN attention scores have shape (B, 1): their softmax is always 1", "softmax in the attention over h_pool_flat")
def textcnn_attention_one(planted):
    class TextCNN(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(100, 32); self.convs = nn.ModuleList([nn.Conv1d(32, 32, k) for k in (2, 3, 4)])
            self.w = nn.Linear(32, 32); self.u = nn.Linear(32, 1, bias=False); self.wf = nn.Linear(96, 32); self.out = nn.Linear(96, 3)
        def forward(self, x):
            e = self.embedding(x).transpose(1, 2); p = torch.stack([F.relu(c(e)).amax(2) for c in self.convs], 1)
            if planted: h = p.flatten(1); a = torch.softmax(self.u(torch.tanh(self.wf(h))), 1); return self.out(h * a)
            a = torch.softmax(self.u(torch.tanh(self.w(p))), 1); return self.out((p * a * 3).flatten(1))
    def data(seed):
        x = R(seed, 90, (32, 30)) + 10; i = torch.arange(32); y = R(seed + 1, 3, (32,)); p = R(seed + 2, 28, (32,)); x[i, p] = y * 2; x[i, p + 1] = y * 2 + 1
        return x, y
    return dict(model=TextCNN, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/soapisnotfat/super-resolution/issues/28", "EDSR residual blocks use one shared BatchNorm (the paper removes it)", "self.bn in ResnetBlock")
def edsr_bn(planted):
    class ResnetBlock(nn.Module):
        def __init__(self, C):
            super().__init__(); self.conv1, self.conv2 = nn.Conv2d(C, C, 3, 1, 1), nn.Conv2d(C, C, 3, 1, 1); self.bn = nn.BatchNorm2d(C); self.activation = nn.ReLU(True)
        def forward(self, x):
            if planted: return self.bn(self.conv2(self.activation(self.bn(self.conv1(x))))) + x
            return self.conv2(self.activation(self.conv1(x))) * .1 + x
    class Net(nn.Module):
        def __init__(self, C=24):
            super().__init__(); self.input_conv = nn.Conv2d(1, C, 3, 1, 1); self.residual_layers = nn.Sequential(*[ResnetBlock(C) for _ in range(6)]); self.mid_conv = nn.Conv2d(C, C, 3, 1, 1)
            self.up = nn.Sequential(nn.Conv2d(C, 4 * C, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(C, 1, 3, 1, 1))
        def forward(self, x): h = self.input_conv(x); return self.up(self.mid_conv(self.residual_layers(h)) + h)
    def data(seed):
        hr = F.interpolate(torch.rand(8, 1, 8, 8, generator=gen(seed)), size=32, mode="bicubic"); return F.avg_pool2d(hr, 2), hr
    return dict(model=Net, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=1e-3, diag={})

@case("https://github.com/znxlwm/UGATIT-pytorch/issues/11", "no activation in the FC layers that compute gamma and beta", "self.FC without ReLU")
def ugatit_fc(planted):
    class ResnetAdaLIN(nn.Module):
        def __init__(self, C):
            super().__init__(); self.conv1, self.conv2 = nn.Conv2d(C, C, 3, 1, 1, bias=False), nn.Conv2d(C, C, 3, 1, 1, bias=False); self.rho = nn.Parameter(torch.full((1, C, 1, 1), .9))
        def norm(self, x, g, b):
            i = F.instance_norm(x); l = F.layer_norm(x, x.shape[1:]); return (self.rho * i + (1 - self.rho) * l) * g[:, :, None, None] + b[:, :, None, None]
        def forward(self, x, g, b): return x + self.norm(self.conv2(F.relu(self.norm(self.conv1(x), g, b))), g, b)
    class Generator(nn.Module):
        def __init__(self, C=16):
            super().__init__(); self.down = nn.Sequential(nn.Conv2d(3, C, 4, 2, 1), nn.InstanceNorm2d(C), nn.ReLU()); act = nn.Identity if planted else nn.ReLU
            self.FC = nn.Sequential(nn.Linear(C * 64, 64, bias=False), act(), nn.Linear(64, 64, bias=False), act()); self.gamma, self.beta = nn.Linear(64, C, bias=False), nn.Linear(64, C, bias=False)
            self.blocks = nn.ModuleList([ResnetAdaLIN(C) for _ in range(3)]); self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(C, 3, 3, 1, 1), nn.Tanh())
        def forward(self, x):
            h = self.down(x); f = self.FC(h.flatten(1)); g, b = self.gamma(f), self.beta(f)
            for k in self.blocks: h = k(h, g, b)
            return self.up(h)
    def data(seed):
        x = F.interpolate(torch.rand(8, 3, 4, 4, generator=gen(seed)) * 2 - 1, size=16, mode="bilinear"); return x, torch.tanh(2 * x.flip(1)) * .9
    return dict(model=Generator, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=2e-3, diag={})
