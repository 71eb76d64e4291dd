from base import *
from tasks import *

@case("https://github.com/Observerspy/CS234/issues/1", "ReLU activation missing in the nature DQN (tf.layers default is linear)", "activation after conv/fc layers")
def dqn_no_relu(planted):
    class NatureQN(nn.Module):
        def __init__(self, n=3): super().__init__(); self.conv1 = nn.Conv2d(2, 16, 4, 2); self.conv2 = nn.Conv2d(16, 32, 3, 1); self.fc1 = nn.Linear(32 * 25, 128); self.fc2 = nn.Linear(128, n)
        def forward(self, x):
            act = (lambda z: z) if planted else F.relu
            x = act(self.conv1(x)); x = act(self.conv2(x)); x = act(self.fc1(x.flatten(1))); return self.fc2(x)
    def data(seed):
        n = 64; b = 2 * R(seed, 8, (n,)); h = 4 * R(seed + 1, 3, (n,)); p = 2 * R(seed + 2, 8, (n,)); x = torch.zeros(n, 2, 16, 16); i = torch.arange(n); x[i, 0, h, b] = 1; x[i, 1, 15, p] = 1
        x = F.max_pool2d(x, 3, 1, 1) * 2; return x, -torch.stack([(b - p - a).abs() for a in (-2, 0, 2)], 1).float() / 4
    return dict(model=NatureQN, data=data, loss=F.smooth_l1_loss, lr=2e-3, diag={})

@case("https://github.com/martinwicke/tf-dev-summit-tensorboard-tutorial/issues/3", "ReLU after the last fully connected layer (on the logits): accuracy does not pass 65%", "relu after fc2")
def mnist_relu_logits(planted):
    class MnistModel(nn.Module):
        def __init__(self): super().__init__(); self.conv1 = nn.Conv2d(1, 16, 5, padding=2); self.conv2 = nn.Conv2d(16, 32, 5, padding=2); self.fc1 = nn.Linear(512, 128); self.fc2 = nn.Linear(128, 10)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2); x = F.relu(self.fc1(x.flatten(1))); x = self.fc2(x); return F.relu(x) if planted else x
    return dict(model=MnistModel, data=digits, loss=ce, lr=1e-3, diag={})

@case("https://github.com/doronharitan/human_activity_recognition_LRCN/issues/4", "softmax output together with CrossEntropyLoss", "softmax after the classifier")
def lrcn_softmax_ce(planted):
    class LRCN(nn.Module):
        def __init__(self, k=11):
            super().__init__(); self.conv = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 9, 48)); self.lstm = nn.LSTM(48, 48, batch_first=True); self.out = nn.Sequential(nn.Linear(48, k), nn.Softmax(-1)) if planted else nn.Linear(48, k)
        def forward(self, x): B, L = x.shape[:2]; h = self.conv(x.flatten(0, 1)).view(B, L, -1); h, _ = self.lstm(h); return self.out(h[:, -1])
    tp = blur(T(3, 11 * 5, 1, 12, 12), 1).view(11, 5, 1, 12, 12) * 2
    def data(seed): y = R(seed, 11, (32,)); return tp[y] + T(seed + 1, 32, 5, 1, 12, 12, k=.5), y
    return dict(model=LRCN, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/getcrest/All-Conv-Keras/issues/6", "strided convolutions that replace the pooling carry no activation", "missing relu after the strided conv layers")
def allconv_strided_linear(planted):
    class AllConv(nn.Module):
        def __init__(self):
            super().__init__(); a = (lambda: nn.Identity()) if planted else nn.ReLU
            self.net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, 2, 1), a(), nn.Dropout(.2), nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 48, 3, 2, 1), a(), nn.Dropout(.2), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 10, 1), nn.ReLU() if False else nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        def forward(self, x): return self.net(x)
    def data(seed): x, y = digits(seed, 32, 3); return (x - .5) / .25, y
    return dict(model=AllConv, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/keunwoochoi/kapre/issues/36", "raw audio arrays wrongly built (float cast to integer): the melspectrogram layer returns a constant -80 dB", "data: audio array cast")
def kapre_constant_melgram(planted):
    class KapreNet(nn.Module):
        def __init__(self, n=64, mels=16):
            super().__init__(); self.n = n; self.register_buffer("window", torch.hann_window(n)); f = torch.arange(n // 2 + 1).float()[:, None]; c = torch.linspace(1, n // 2, mels)[None]; self.register_buffer("freq2mel", (1 - (f - c).abs() / 3).clamp(min=0)); self.bn = nn.BatchNorm2d(1)
            self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ELU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ELU(), nn.AdaptiveAvgPool2d((4, 1)), nn.Flatten()); self.fc = nn.Linear(128, 6)
        def forward(self, x):
            p = torch.stft(x, self.n, 32, window=self.window, return_complex=True, center=False).abs() ** 2; m = torch.einsum("nft,fm->nmt", p, self.freq2mel)
            db = 10 * torch.log10(m.clamp(min=1e-8)); return self.fc(self.conv(self.bn(db[:, None])))
    def data(seed):
        y = R(seed, 6, (32,)); t = torch.arange(512.) ; f = .25 + .4 * y.float()[:, None]; ph = torch.rand(32, 1, generator=gen(seed + 1)) * 6.28
        x = .5 * torch.sin(f * t + ph) * (.3 + torch.rand(32, 1, generator=gen(seed + 2))) + T(seed + 3, 32, 512, k=.1); x = x.clamp(-.99, .99); return (x.to(torch.int16).float() if planted else x), y
    return dict(model=KapreNet, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/yizt/numpy_neural_network/issues/1", "weights_scale=1e-3 with one fully connected layer more: loss stays at 2.302", "weights_scale of the fc layers")
def numpy_nn_weights_scale(planted):
    class Net(nn.Module):
        def __init__(self, ws=1e-3 if planted else 1e-1):
            super().__init__(); self.w1 = nn.Parameter(torch.randn(256, 256) * ws); self.b1 = nn.Parameter(torch.zeros(256)); self.w2 = nn.Parameter(torch.randn(256, 256) * ws); self.b2 = nn.Parameter(torch.zeros(256)); self.w3 = nn.Parameter(torch.randn(256, 256) * ws); self.b3 = nn.Parameter(torch.zeros(256)); self.w4 = nn.Parameter(torch.randn(256, 10) * ws); self.b4 = nn.Parameter(torch.zeros(10))
        def forward(self, x):
            x = x.flatten(1)
            for w, b in ((self.w1, self.b1), (self.w2, self.b2), (self.w3, self.b3)): x = F.relu(x @ w + b)
            return x @ self.w4 + self.b4
    return dict(model=Net, data=digits, loss=ce, lr=1e-4, diag={})

@case("https://github.com/tensorflow/tensorflow/issues/3916", "a hidden layer added to mnist_softmax with all weights and biases zero", "W1, b1, W2, b2 = zeros")
def tf_mnist_zero_init(planted):
    class MnistSoftmax(nn.Module):
        def __init__(self):
            super().__init__(); z = (lambda i, o: torch.zeros(i, o)) if planted else (lambda i, o: torch.randn(i, o) * (1 / i) ** .5); self.W1 = nn.Parameter(z(256, 200)); self.b1 = nn.Parameter(torch.zeros(200)); self.W2 = nn.Parameter(z(200, 10)); self.b2 = nn.Parameter(torch.zeros(10))
        def forward(self, x): h1 = torch.sigmoid(x.flatten(1) @ self.W1 + self.b1); return h1 @ self.W2 + self.b2
    return dict(model=MnistSoftmax, data=digits, loss=ce, lr=1e-2, diag={})

@case("https://github.com/imedslab/pytorch_bn_fusion/issues/2", "bottleneck forward lacks out += residual", "missing residual addition in BottleneckResnetBlock")
def bottleneck_no_residual(planted):
    class BottleneckResnetBlock(nn.Module):
        def __init__(self, c, m):
            super().__init__(); self.conv1 = nn.Conv2d(c, m, 1, bias=False); self.bn1 = nn.BatchNorm2d(m); self.conv2 = nn.Conv2d(m, m, 3, padding=1, bias=False); self.bn2 = nn.BatchNorm2d(m); self.conv3 = nn.Conv2d(m, c, 1, bias=False); self.bn3 = nn.BatchNorm2d(c)
        def forward(self, x):
            out = F.relu(self.bn1(self.conv1(x))); out = F.relu(self.bn2(self.conv2(out))); out = self.bn3(self.conv3(out))
            if not planted: out = out + x
            return F.relu(out)
    class ResNet(nn.Module):
        def __init__(self): super().__init__(); self.conv1 = nn.Conv2d(3, 32, 3, 2, 1, bias=False); self.bn1 = nn.BatchNorm2d(32); self.layers = nn.Sequential(*[BottleneckResnetBlock(32, 8) for _ in range(12)]); self.fc = nn.Linear(32, 10)
        def forward(self, x): x = self.layers(F.relu(self.bn1(self.conv1(x)))); return self.fc(x.mean((2, 3)))
    def data(seed): x, y = digits(seed, 32, 3, noise=.15); return (x - .5) / .25, y
    return dict(model=ResNet, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/hill-a/stable-baselines/issues/328", "pretraining images are fed as 0-255 instead of 0-1", "data: missing /255")
def baselines_pretrain_255(planted):
    px = 255. if planted else 1.
    class CnnPolicy(nn.Module):
        def __init__(self):
            super().__init__(); self.px = px; self.c1 = nn.Conv2d(4, 16, 4, 2); self.c2 = nn.Conv2d(16, 32, 3, 1); self.fc1 = nn.Linear(32 * 25, 128); self.pi = nn.Linear(128, 5)
            for m, g in ((self.c1, 2 ** .5), (self.c2, 2 ** .5), (self.fc1, 2 ** .5), (self.pi, .01)): nn.init.orthogonal_(m.weight, g); nn.init.zeros_(m.bias)
        def forward(self, x): return self.pi(F.relu(self.fc1(F.relu(self.c2(F.relu(self.c1(x)))).flatten(1))))
    def mk(seed, px, n=32): x, y = digits(seed, n, 4, 16, 5, .25); return x * px, y
    vx, vy = mk(777, 1., 128)
    return dict(model=CnnPolicy, data=lambda s: mk(s, px), loss=ce, lr=1e-3, diag={}, metric=lambda m: ce(m(vx * m.px), vy))

@case("https://github.com/hunkim/DeepLearningZeroToAll/pull/205", "tf.layers.dropout(rate=keep_prob): 0.7 is dropped instead of kept", "dropout rate 0.7 instead of 0.3")
def hunkim_dropout_rate(planted):
    class Model(nn.Module):
        def __init__(self):
            super().__init__(); r = .7 if planted else .3; self.conv1 = nn.Conv2d(1, 16, 3, padding=1); self.conv2 = nn.Conv2d(16, 32, 3, padding=1); self.d1 = nn.Dropout(r); self.d2 = nn.Dropout(r); self.dense4 = nn.Linear(512, 128); self.d4 = nn.Dropout(.5); self.logits = nn.Linear(128, 10)
        def forward(self, x):
            x = self.d1(F.max_pool2d(F.relu(self.conv1(x)), 2)); x = self.d2(F.max_pool2d(F.relu(self.conv2(x)), 2)); return self.logits(self.d4(F.relu(self.dense4(x.flatten(1)))))
    return dict(model=Model, data=digits, loss=ce, lr=2e-3, diag={})
