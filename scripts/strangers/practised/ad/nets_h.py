from base import *

@case("https://datascience.stackexchange.com/questions/16911/how-does-sigmoid-saturate-with-large-weights", "initial weights far too large: the sigmoids are saturated from the start", "nn.init.normal_(m.weight, 0, 10) of all layers")
def sigmoid_large_weights(planted):
    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(30, 64); self.fc2 = nn.Linear(64, 64); self.fc3 = nn.Linear(64, 10)
            for m in (self.fc1, self.fc2, self.fc3):
                if planted: nn.init.normal_(m.weight, 0, 10.)
                else: nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)
        def forward(self, x):
            return self.fc3(torch.sigmoid(self.fc2(torch.sigmoid(self.fc1(x)))))
    c = T(11, 10, 30)
    def data(seed):
        t = R(seed, 10, (64,)); return c[t] + T(seed + 1, 64, 30, k=1.2), t
    return dict(model=MLP, data=data, loss=ce, lr=3e-3, diag={})

@case("https://xue-jishu.com/ji-du-ji-chu-de-shen-jing-wang-luo-wu-fa-xue-xi", "one output unit trained with softmax cross-entropy (logsumexp(z) - z*y over a single class) instead of sigmoid + binary cross-entropy", "the criterion cross_entropy_with_softmax on one output")
def cntk_and_softmax(planted):
    class AndNet(nn.Module):
        def __init__(self):
            super().__init__(); self.dense = nn.Linear(2, 1)
        def forward(self, x): return self.dense(x)
    def cross_entropy_with_softmax(z, y): return (torch.logsumexp(z, -1) - (z * y).sum(-1)).mean()
    def data(seed):
        b = R(seed, 2, (32, 2)).float(); return b, b.prod(1, keepdim=True)
    bce = F.binary_cross_entropy_with_logits
    return dict(model=AndNet, data=data, loss=cross_entropy_with_softmax if planted else bce, lr=5e-2, diag={})

@case("http://fatal001.com/python/50834827888562935160.html", "sigmoid output unit (0..1) for a target function whose values are all negative", "activation='sigmoid' of the Dense(1) / the target f(x) < 0")
def sigmoid_negative_target(planted):
    class Model(nn.Module):
        def __init__(self):
            super().__init__(); self.dense = nn.Linear(1, 1)
            nn.init.xavier_uniform_(self.dense.weight); nn.init.zeros_(self.dense.bias)
        def forward(self, x): return torch.sigmoid(self.dense(x))
    def data(seed):
        x = torch.rand(32, 1, generator=gen(seed)) * 2 - 1; y = 1 / ((10 * x).exp() + 1)
        return x, -y if planted else y
    return dict(model=Model, data=data, loss=mse, lr=1e-1, diag={})

@case("https://php.bkmy88.com/faq/2056585.html", "labels (prices 3000-4700) are not normalised, only the features are", "normalizer.fitLabel(true) missing: targets at ~3900")
def dl4j_labels_raw(planted):
    class LSTMNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm1 = nn.LSTM(2, 32, batch_first=True); self.lstm2 = nn.LSTM(32, 16, batch_first=True)
            self.out = nn.Linear(16, 1)
            for m in self.modules():
                if isinstance(m, nn.Linear): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x): return self.out(self.lstm2(self.lstm1(x)[0])[0][:, -1])
    def data(seed):
        x = T(seed, 32, 8, 2); y = (x[:, -1:, 0] + .5 * x[:, -2, 1:]) * .9
        return x, y * 400 + 3900 if planted else y
    return dict(model=LSTMNet, data=data, loss=mse, lr=5e-3, diag={})

@case("https://blog.csdn.net/qq_41936559/article/details/120226679", "the LSTM's inputs have a huge amplitude (not scaled to 0..1): all test outputs equal", "x fed at amplitude ~1000 into self.lstm")
def lstm_huge_inputs(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 32, 2, batch_first=True); self.fc = nn.Linear(32, 1)
        def forward(self, x): return self.fc(self.lstm(x)[0][:, -1])
    def data(seed):
        x = torch.rand(32, 10, 4, generator=gen(seed)); y = 4 * (x[:, -3:, 0] * x[:, -3:, 1]).mean(1, keepdim=True) - 1
        return x * 1000 if planted else x, y
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("http://www.javashuo.com/article/p-fzvxgoti-kq.html", "image pixels fed as 0-255 instead of 0-1, with gaussian initialisation of too large a variance", "the input range 0-255 (weights normal_(0, 0.1))")
def cnn_pixels_255(planted):
    class CNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, padding=1); self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
            self.fc1 = nn.Linear(32 * 16, 64); self.fc2 = nn.Linear(64, 5)
            for m in (self.conv1, self.conv2, self.fc1, self.fc2):
                nn.init.normal_(m.weight, 0, .1); nn.init.zeros_(m.bias)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            return self.fc2(F.relu(self.fc1(x.flatten(1))))
    p = torch.rand(5, 3, 16, 16, generator=gen(4))
    def data(seed):
        t = R(seed, 5, (32,)); x = (.5 * p[t] + .25 + .25 * T(seed + 1, 32, 3, 16, 16)).clamp(0, 1)
        return x * 255 if planted else x, t
    return dict(model=CNN, data=data, loss=ce, lr=1e-3, diag={})

@case("http://www.dtcms.com/a/374004.html", "features are detached before the head (meant for logging), so the backbone gets no gradient", "f = self.feat(x).detach() in forward")
def detached_features(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.feat = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.fc = nn.Linear(16, 1)
        def forward(self, x):
            f = self.feat(x)
            if planted: f = f.detach()
            return self.fc(f).squeeze(-1)
    k = T(3, 2, 3, 3, 3)
    def data(seed):
        t = R(seed, 2, (32,)); x = T(seed + 1, 32, 3, 12, 12)
        m = torch.stack([F.conv_transpose2d((T(seed + 2, 32, 1, 12, 12) > 1.).float(), k[i:i + 1], padding=1) for i in (0, 1)])
        return .5 * x + m[t, torch.arange(32)], t.float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=3e-3, diag={})

@case("https://codestudyblog.com/8ten8/80409021901.html", "F.nll_loss on raw scores: log_softmax missing, loss runs to minus infinity", "the missing log_softmax at the end of forward (F.nll_loss)")
def nll_without_logsoftmax(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(24, 64); self.bn = nn.BatchNorm1d(64); self.fc2 = nn.Linear(64, 6)
        def forward(self, x):
            x = self.fc2(F.relu(self.bn(self.fc1(x))))
            return x if planted else F.log_softmax(x, 1)
    c = T(8, 6, 24)
    def data(seed):
        t = R(seed, 6, (32,)); return c[t] + T(seed + 1, 32, 24, k=1.5), t
    def metric(model):
        with torch.no_grad(): return sum(F.cross_entropy(model(data(9000 + i)[0]), data(9000 + i)[1]).item() for i in range(5)) / 5
    return dict(model=Net, data=data, loss=F.nll_loss, lr=3e-3, diag={}, metric=metric)

@case("https://taourl.com/read-2031103.html", "sigmoid after every one of the hidden layers of a deep network: gradients vanish on the way down", "the nn.Sigmoid activations (depth 10)")
def deep_sigmoid(planted):
    class Net(nn.Module):
        def __init__(self, depth=10, w=32):
            super().__init__()
            l = []
            for i in range(depth): l += [nn.Linear(10 if i == 0 else w, w), nn.Sigmoid() if planted else nn.ReLU()]
            self.net = nn.Sequential(*l, nn.Linear(w, 6))
        def forward(self, x): return self.net(x)
    c = T(6, 6, 10)
    def data(seed):
        t = R(seed, 6, (64,)); return c[t] + T(seed + 1, 64, 10, k=.5), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})
