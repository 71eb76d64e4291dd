from tasks import *
from nets_b import lenet, deepcnn, cifar, auto_mpg
from nets_c import hefan
ZH = "https://github.com/ForeverZyh/TensorFlow-Program-Bugs "; NL = "https://github.com/neuralint/neuralint "

@case(ZH + "Github/IPS-4 (DCGAN generator)", "second layer reads z again instead of h0: the first layer is unused", "h0")
def zh_ips4(planted):
    class G(nn.Module):
        def __init__(s):
            super().__init__(); s.h0, s.b0 = nn.Linear(12, 128), nn.BatchNorm1d(128); s.h1, s.b1 = nn.Linear(12 if planted else 128, 32 * 16), nn.BatchNorm1d(512); s.h2, s.b2 = nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16); s.h3 = nn.ConvTranspose2d(16, 1, 4, 2, 1)
        def forward(s, z):
            h0 = F.relu(s.b0(s.h0(z))); h1 = F.relu(s.b1(s.h1(z if planted else h0))).view(-1, 32, 4, 4)
            return torch.sigmoid(s.h3(F.relu(s.b2(s.h2(h1)))))
    g = torch.arange(16.)
    def data(s):
        z = T(s, 32, 12); cx, cy = 8 + 3 * torch.tanh(z[:, 0]), 8 + 3 * torch.tanh(z[:, 1] * z[:, 2]); r = 2 + torch.sigmoid(z[:, 3])
        return z, torch.exp(-((g[None, :, None] - cy[:, None, None]) ** 2 + (g[None, None] - cx[:, None, None]) ** 2) / r[:, None, None] ** 2)[:, None]
    return dict(model=G, data=data, loss=mse, diag=MSE)

@case(ZH + "Github/IPS-10 (facenet)", "the fully connected layers lack the batch normalisation and initialisation of the convolutions' scope (std 0.1 of 1 only)", "fc")
def zh_ips10(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o, st: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            s.body = nn.Sequential(c(3, 16, 1), c(16, 32, 2), c(32, 48, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten()); s.fc1 = nn.Linear(192, 64, bias=planted); s.bn1 = nn.Identity() if planted else nn.BatchNorm1d(64); s.out = nn.Linear(64, 10)
            if planted: nn.init.trunc_normal_(s.fc1.weight, std=.001)
        def forward(s, x): return s.out(F.relu(s.bn1(s.fc1(s.body(x)))))
    return dict(model=Net, data=cifar(32), loss=ce)

@case(ZH + "Github/UT-1 (variational autoencoder)", "images standardised where the Bernoulli likelihood takes 0..1 (answer: min-max scaling)", "targets / loss")
def zh_ut1(planted):
    # second build: the data are the same for both twins, so that both are measured by the healthy loss; the first build standardised them in data()
    st = lambda x: (x - .35) / .38 if planted else x
    class VAE(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Sequential(nn.Linear(784, 64), nn.Softplus()); s.mu, s.lv = nn.Linear(64, 8), nn.Linear(64, 8); s.d = nn.Sequential(nn.Linear(8, 64), nn.Softplus(), nn.Linear(64, 784))
        def forward(s, x): h = s.e(st(x)); mu, lv = s.mu(h), s.lv(h); z = mu + torch.randn_like(mu) * (.5 * lv).exp(); return s.d(z), mu, lv
    d = digits(32, flat=True)
    def data(s): x, _ = d(s); return x, x
    def loss(o, t):
        r, mu, lv = o; return (bcel(r, st(t)) * 784 - .5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()) / 784
    return dict(model=VAE, data=data, loss=loss)

@case(ZH + "StackOverflow/UT-15 (38447935)", "targets (B,) against predictions (B, 1) in a squared error: broadcast", "loss")
def zh_ut15(planted):
    d = auto_mpg()
    def data(s): x, t = d(s); return x, t[:, 0]
    def loss(o, t): return ((o - (t if planted else t[:, None])) ** 2).mean()
    return dict(model=lambda: nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), data=data, loss=loss)

@case(ZH + "StackOverflow/APIM-11 (43601526)", "arguments of the cross-entropy swapped: one-hot labels as logits, outputs as labels", "loss")
def zh_apim11(planted):
    def loss(o, t): y = F.one_hot(t, 10).float(); return F.cross_entropy(y, o) if planted else F.cross_entropy(o, y)
    return dict(model=lambda: he(lenet()), data=digits(32), loss=loss)

@case(NL + "Synthetic Samples/TF_lenet_missing_relus.py", "no activation behind any layer of LeNet", "all layers")
def nl_missing_relu(planted):
    def data(s):
        y = R(s, 4, (32,)); g = torch.arange(28.); w = torch.tensor([.6, 1.1, 1.7, 2.4])[y][:, None, None]; ph = 6.28 * torch.rand(32, 1, 1, generator=gen(s + 1))
        return (.5 + .4 * torch.sin(w * g[None, None] + ph)).expand(-1, 28, -1)[:, None] + .2 * T(s + 2, 32, 1, 28, 28), y
    A = nn.Identity if planted else nn.ReLU
    def model(): return nn.Sequential(nn.Conv2d(1, 6, 5), A(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), A(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(256, 120), A(), nn.Linear(120, 84), A(), nn.Linear(84, 4))
    return dict(model=model, data=data, loss=ce)

@case(NL + "Synthetic Samples/TF_lenet_double_activation.py", "a sigmoid behind each ReLU", "Sigmoid behind ReLU")
def nl_double_act(planted):
    A = (lambda: nn.Sequential(nn.ReLU(), nn.Sigmoid())) if planted else nn.ReLU
    return dict(model=lambda: keras_init(lenet(A)), data=digits(32), loss=ce)

@case(NL + "Synthetic Samples/TF_lenet_dropout_before_batchnorm.py", "dropout in front of batch normalisation", "Dropout / BatchNorm")
def nl_dropout_bn(planted):
    def model():
        L, i = [], 1
        for o in (16, 32):
            c = nn.Conv2d(i, o, 5, bias=False); L += [c] + ([nn.Dropout(.5), nn.BatchNorm2d(o), nn.ReLU()] if planted else [nn.BatchNorm2d(o), nn.ReLU(), nn.Dropout(.2)]) + [nn.MaxPool2d(2)]; i = o
        return nn.Sequential(*L, nn.Flatten(), nn.Linear(512, 84), nn.ReLU(), nn.Linear(84, 10))
    return dict(model=model, data=digits(32), loss=ce)

@case(DLZ + "GitHub/kerasma (moving average)", "hidden dense layers missing: a single linear layer for a nonlinear indicator", "whole model")
def dlz_kerasma(planted):
    def model(): return nn.Linear(20, 1) if planted else nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    def data(s): x = T(s, 64, 20).cumsum(1) / 4; return x, (x[:, :10].mean(1, keepdim=True) - x[:, 10:].mean(1, keepdim=True)).abs()
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(D4M + "bug 045 (Keras_ODENet fb6576e)", "residual blocks built as inner models whose weights the outer model does not hold", "blocks")
def d4m_045(planted):
    class Res(nn.Module):
        def __init__(s, f): super().__init__(); s.a, s.b = nn.Conv2d(f, f, 3, padding=1), nn.Conv2d(f, f, 3, padding=1)
        def forward(s, x): return F.relu(s.b(F.relu(s.a(x)))) + x
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.stem = nn.Conv2d(1, 12, 5, 2); b = [Res(12), Res(12)]; s.__dict__["blocks"] = b
            if not planted: s.res = nn.ModuleList(b)
            s.fc = nn.Linear(12, 10)
        def forward(s, x):
            x = F.relu(s.stem(x))
            for b in s.__dict__["blocks"]: x = b(x)
            return s.fc(x.mean((2, 3)))
    return dict(model=Net, data=digits(32), loss=ce)

@case(D4M + "bug 092 (stackoverflow 58844149)", "softmax over one unit in an image classifier", "last Linear / Softmax")
def d4m_092(planted):
    def model(): return nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 36, 64), nn.ReLU(), nn.Dropout(.5), nn.Linear(64, 1), nn.Softmax(dim=1) if planted else nn.Sigmoid())
    d = digits(32, 32, 3, 6)
    def data(s): x, y = d(s); return x, (y < 3).float()[:, None]
    return dict(model=model, data=data, loss=nn.BCELoss())

@case(DLZ + "GitHub/FacialKeypointsDetection", "key points in pixels (0..96) as targets of a tanh-free linear output, unscaled, SGD in the original", "targets")
def dlz_facial(planted):
    def model():
        m = [nn.Flatten(), nn.Linear(576, 100), nn.ReLU(), nn.Linear(100, 6)]
        return nn.Sequential(*m) if planted else nn.Sequential(*m, Destd(48, 48))
    g = torch.arange(24.)
    def data(s):
        c = torch.rand(48, 2, generator=gen(s)) * 12 + 6; x = torch.exp(-((g[None, :, None] - c[:, 1, None, None]) ** 2 + (g[None, None] - c[:, 0, None, None]) ** 2) / 12) + .05 * T(s + 1, 48, 24, 24)
        return x[:, None], torch.cat([c * 4, c * 4 + 8, c * 4 - 8], 1)
    return dict(model=model, data=data, loss=mse if planted else lambda o, t: F.mse_loss(o / 48, t / 48))
