from tasks import *

def lenet(A=nn.ReLU, last=None, flat=256, softmax_mid=False):
    a = (lambda: A())
    m = [nn.Conv2d(1, 6, 5), a(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), a(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(flat, 120), a(), nn.Linear(120, 84), a(), nn.Linear(84, 10)]
    return nn.Sequential(*m, *([last] if last else []))

def auto_mpg(raw=False, B=64):
    """nine columns of cars: cylinders, displacement, horsepower, weight, acceleration, year, three origins; target miles per gallon."""
    m = torch.tensor([5.5, 195., 104., 2980., 15.5, 76., .2, .2, .6]); k = torch.tensor([1.7, 104., 38., 850., 2.8, 3.7, .4, .4, .5])
    w = torch.tensor([-.2, -.3, -.4, -.8, .1, .6, .1, .2, -.2])
    def data(s):
        c = T(s, B, 1); z = .8 * c * torch.tensor([1, 1, 1, 1, -.5, -.3, -.3, -.3, .6]) + .6 * T(s + 1, B, 9)
        t = (torch.tanh(z @ w) + .3 * torch.sin(2 * z[:, 3]))[:, None]
        return (z * k + m if raw else z), t
    return data

def regr(last=None, fix=None):
    m = [nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)]
    return nn.Sequential(*m, *([last] if last else []))

@case(D4M + "bug 001 (tensorflow/models d816971)", "hand-written cross-entropy -sum(y*log(softmax)) that overflows to nan", "loss")
def d4m_001(planted):
    d = digits(32)
    def data(s): x, y = d(s); return x * (1 if True else 1), y
    def model():
        m = lenet()
        for p in (m[0], m[3], m[7], m[9], m[11]): nn.init.trunc_normal_(p.weight, std=.1); nn.init.constant_(p.bias, .1)
        return m
    def bad(o, t): return -(F.one_hot(t, 10) * torch.log(torch.softmax(o, 1))).sum()
    return dict(model=model, data=data, loss=bad if planted else ce)

@case(D4M + "bug 005 (Deep-Learning-TensorFlow 1bcc1ef)", "softmax missing before a hand-written clipped cross-entropy", "loss / last Linear")
def d4m_005(planted):
    def loss(o, t):
        p = o if planted else torch.softmax(o, 1); y = F.one_hot(t, 10).float(); return -(y * torch.log(p.clamp(min=1e-10)) + (1 - y) * torch.log((1 - p).clamp(min=1e-10))).mean()
    return dict(model=lenet, data=digits(32), loss=loss)

@case(D4M + "bug 033 (DeepLabV3_Plus ce1a2ca)", "softmax in a segmentation network whose loss takes logits", "head / Softmax")
def d4m_033(planted):
    class Seg(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o, **k: nn.Sequential(nn.Conv2d(i, o, 3, padding=k.pop("d", 1), dilation=k.get("dilation", 1), stride=k.get("stride", 1), bias=False), nn.BatchNorm2d(o), nn.ReLU())
            s.stem = c(3, 16); s.down = c(16, 32, stride=2); s.aspp = nn.ModuleList([c(32, 16), c(32, 16, d=2, dilation=2), c(32, 16, d=4, dilation=4)]); s.proj = c(48, 32); s.low = c(16, 16); s.dec = c(48, 32); s.head = nn.Conv2d(32, 4, 1)
        def forward(s, x):
            l = s.stem(x); h = s.down(l); h = s.proj(torch.cat([a(h) for a in s.aspp], 1)); h = F.interpolate(h, scale_factor=2, mode="bilinear")
            z = s.head(s.dec(torch.cat([h, s.low(l)], 1))); return z.softmax(1) if planted else z
    def data(s):
        lab = F.interpolate(torch.randint(0, 4, (8, 1, 4, 4), generator=gen(s)).float(), scale_factor=6, mode="nearest")[:, 0].long()
        col = torch.tensor([[1., 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]); return col[lab].permute(0, 3, 1, 2) + .7 * T(s + 1, 8, 3, 24, 24), lab
    return dict(model=Seg, data=data, loss=ce)

@case(D4M + "bug 048 (Keras-tutorial-on-CNNs b5acb01)", "7x7 filters in both convolutions where 3x3 belong", "0, 2")
def d4m_048(planted):
    k = 7 if planted else 3
    def model(): return keras_init(nn.Sequential(nn.Conv2d(3, 32, k, padding=k // 2), nn.ReLU(), nn.Conv2d(32, 32, k, padding=k // 2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(.25), nn.Flatten(), nn.Linear(32 * 64, 128), nn.ReLU(), nn.Dropout(.5), nn.Linear(128, 10)))
    return dict(model=model, data=digits(16, 16, 3), loss=ce)

@case(D4M + "bug 086 (stackoverflow 45378493)", "softmax over one unit in a Titanic classifier", "last Linear / Softmax")
def d4m_086(planted):
    class Titanic(nn.Module):
        def __init__(s): super().__init__(); s.f1 = nn.Linear(7, 64); s.bn = nn.BatchNorm1d(64); s.f2 = nn.Linear(64, 32); s.out = nn.Linear(32, 1)
        def forward(s, x): h = F.relu(s.f2(F.relu(s.bn(s.f1(x))))); z = s.out(h); return F.softmax(z, -1) if planted else torch.sigmoid(z)
    return dict(model=Titanic, data=binary(7, 64), loss=nn.BCELoss())

@case(TDC + "SO_buggy_examples/IPS_4", "all weights and biases drawn from a standard normal", "0..6 init")
def tdc_ips4(planted):
    def model():
        m = he(nn.Sequential(nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10)))
        if planted:
            for p in m.parameters(): nn.init.normal_(p)
        return m
    return dict(model=model, data=digits(32, flat=True), loss=ce)

@case(TDC + "SO_buggy_examples/IPS_7", "hand-written binary cross-entropy takes log of raw outputs: the sigmoid is missing", "loss / last Linear")
def tdc_ips7(planted):
    def model(): return nn.Sequential(nn.Linear(784, 512, bias=False), nn.Sigmoid(), nn.Linear(512, 10, bias=False))
    def bad(o, t): y = F.one_hot(t, 10).float(); return (-y * torch.log(o) - (1 - y) * torch.log(1 - o)).sum(1).mean()
    def good(o, t): return F.binary_cross_entropy_with_logits(o, F.one_hot(t, 10).float(), reduction="none").sum(1).mean()
    return dict(model=model, data=digits(64, flat=True), loss=bad if planted else good)

@case(TDC + "GH_buggy_examples/TFE_368", "no activation between the layers of a multilayer perceptron", "0..2 no activation")
def tdc_tfe368(planted):
    def model(): return nn.Sequential(nn.Linear(16, 256), *([] if planted else [nn.ReLU()]), nn.Linear(256, 256), *([] if planted else [nn.ReLU()]), nn.Linear(256, 4))
    def data(s): x = T(s, 64, 16); return x, 2 * (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0).long()
    return dict(model=model, data=data, loss=ce)

@case(TDC + "synthetic wrong_activation/baseCNN", "softmax as the activation of the hidden layers", "1, 4, 8 / Softmax")
def tdc_softmax_hidden(planted): return dict(model=lambda: he(lenet((lambda: nn.Softmax(1)) if planted else nn.ReLU)), data=digits(32), loss=ce)

@case(TDC + "synthetic wrong_init/baseCNN_constant", "all weights the same constant", "all weights")
def tdc_constant(planted):
    def model():
        m = he(lenet())
        if planted:
            for l in m.modules():
                if hasattr(l, "weight"): nn.init.constant_(l.weight, .1)
        return m
    return dict(model=model, data=digits(32), loss=ce)

@case(TDC + "synthetic wrong_init/regrNN_random", "weights of std 0.25 beside He's: (first layers 9 and 64 inputs)", "weights")
def tdc_random_init(planted):
    def model():
        m = he(regr())
        if planted:
            for i in (0, 2): nn.init.normal_(m[i].weight, std=.25)
        return m
    return dict(model=model, data=auto_mpg(), loss=mse, diag=MSE)

@case(TDC + "synthetic double_normalization/baseCNN", "images divided by 255 twice", "inputs / 0")
def tdc_double_norm(planted): return dict(model=lambda: he(lenet()), data=digits(32, scale=1 / 255. if planted else 1.), loss=ce)

@case(TDC + "synthetic over_scaled_outputs/regrNN", "targets of a regression ten times too large and not scaled (mean 235, std 78)", "targets / last Linear")
def tdc_over_scaled(planted):
    d = auto_mpg()
    def data(s): x, t = d(s); return x, t * 78 + 235
    return dict(model=lambda: he(regr(None if planted else Destd(235, 78))), data=data, loss=mse if planted else lambda o, t: F.mse_loss(o, t) / 78 ** 2)

@case(TDC + "synthetic wrong_activation/regrNN_inapp_act", "sigmoid output for targets scaled to [-1, 1]", "last Linear / Sigmoid")
def tdc_inapp(planted):
    d = auto_mpg()
    def data(s): x, t = d(s); return x, (t / 1.3).clamp(-1, 1)
    return dict(model=lambda: he(regr(nn.Sigmoid() if planted else None)), data=data, loss=mse, diag=MSE)

def deepcnn(bn=True, last=None):
    def blk(i, o): return [nn.Conv2d(i, o, 3, padding=1, bias=not bn)] + ([nn.BatchNorm2d(o)] if bn else []) + [nn.ReLU()]
    m = blk(3, 16) + blk(16, 16) + [nn.MaxPool2d(2)] + blk(16, 32) + blk(32, 32) + [nn.MaxPool2d(2)] + blk(32, 64) + blk(64, 64) + [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 4, 128), nn.ReLU(), nn.Dropout(.3), nn.Linear(128, 10)]
    return nn.Sequential(*m, *([last] if last else []))
def cifar(B=16): 
    d = digits(B, 16, 3, noise=.3)
    def data(s): x, y = d(s); return (x - .45) / .3, y
    return data

@case(TDC + "synthetic redundant_softmax/deepCNN", "softmax layer before the cross-entropy that applies its own", "last / Softmax")
def tdc_red_soft(planted): return dict(model=lambda: deepcnn(True, nn.Softmax(1) if planted else None), data=cifar(), loss=ce)

@case(TDC + "synthetic missing_softmax/deepCNN", "hand-written cross-entropy applied to logits as if probabilities", "loss / last Linear")
def tdc_miss_soft(planted):
    def loss(o, t): p = o if planted else o.softmax(1); return -torch.log(p.clamp(1e-8, 1.)).gather(1, t[:, None]).mean()
    return dict(model=lambda: deepcnn(True), data=cifar(), loss=loss)

@case(TDC + "synthetic missing_batchnorm/deepCNN", "batch normalisations removed from the deep CNN", "all convolutions")
def tdc_miss_bn(planted): return dict(model=lambda: deepcnn(not planted), data=cifar(), loss=ce)

@case(TDC + "synthetic flipped_sign/baseCNN", "sign of the loss flipped: it is maximised", "loss")
def tdc_flip(planted): return dict(model=lambda: he(lenet()), data=digits(32), loss=(lambda o, t: -F.cross_entropy(o, t)) if planted else ce)

@case(TDC + "synthetic missing_normalization/regrNN", "car columns unscaled (weight of 3000 beside origin flags)", "inputs / 0")
def tdc_miss_norm(planted): return dict(model=lambda: he(regr()), data=auto_mpg(planted), loss=mse, diag=MSE)
