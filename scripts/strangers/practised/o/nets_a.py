from tasks import *

@case(DFD + SO + "31880720", "softmax over a single output unit with binary cross-entropy", "4 (last Linear) / Softmax")
def dfd_31880720(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(128, 50), nn.ReLU(), nn.Dropout(.2), nn.Linear(50, 50), nn.ReLU(), nn.Dropout(.2), nn.Linear(50, 1), nn.Softmax(1) if planted else nn.Sigmoid()))
    return dict(model=model, data=binary(128, 64), loss=bce)

@case(DFD + SO + "33969059", "softmax over the single output of a regression", "last Linear / Softmax")
def dfd_33969059(planted):
    def model():
        m = [nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1)]  # widened, without dropout .5 of two units: the healthy one did not train
        if planted: m.append(nn.Softmax(1))
        return keras_init(nn.Sequential(*m))
    w = torch.tensor([[.6], [-.8], [1.2], [2.]])
    def data(s): x = torch.rand(64, 4, generator=gen(s)); return x, x @ w + .1 * T(s + 1, 64, 1)
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(DFD + SO + "44164749", "multi-label targets with softmax and categorical cross-entropy instead of sigmoid and binary", "loss")
def dfd_44164749(planted):
    W = T(3, 300, 20) * .35
    def data(s): x = (torch.rand(64, 300, generator=gen(s)) < .08).float() * torch.rand(64, 300, generator=gen(s + 1)); return x, (x @ W > .35).float()
    def model(): return keras_init(nn.Sequential(nn.Linear(300, 500), nn.ReLU(), nn.Dropout(.1), nn.Linear(500, 120), nn.ReLU(), nn.Dropout(.1), nn.Linear(120, 20)))
    return dict(model=model, data=data, loss=ce if planted else bcel)

@case(DFD + SO + "48251943", "ReLU on the output of a regression whose targets are of both signs (answer: tanh)", "2 / last ReLU")
def dfd_48251943(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.ReLU() if planted else nn.Tanh()))
    def data(s): x = T(s, 64, 2); return x, torch.tanh(.7 * x[:, :1] - .6 * x[:, 1:])
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(DFD + SO + "38648195", "softmax with mean squared error where sigmoid and binary cross-entropy belong", "loss")
def dfd_38648195(planted):
    d = proto(20, 3, 20, .8)
    def data(s): x, y = d(s); return x, F.one_hot(y, 3).float()
    def model(): return keras_init(nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Dropout(.5), nn.Linear(20, 20), nn.ReLU(), nn.Dropout(.5), nn.Linear(20, 3), nn.Softmax(1) if planted else nn.Sigmoid()))
    return dict(model=model, data=data, loss=mse if planted else bce)

@case(DFD + SO + "55328966", "pixels 0..255 not divided by 255", "0 / inputs")
def dfd_55328966(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(784, 64), nn.Sigmoid(), nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 10)))
    return dict(model=model, data=digits(64, scale=255. if planted else 1., flat=True), loss=ce)

@case(DFD + SO + "39525358", "features of a table unscaled (no StandardScaler)", "0 / inputs")
def dfd_39525358(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()))
    b = binary(3, 64); m, k = torch.tensor([5000., 40., 2.]), torch.tensor([1500., 12., .5])
    def data(s): x, y = b(s); return (x * k + m if planted else x), y
    return dict(model=model, data=data, loss=bce)

@case(DFD + SO + "39217567", "sigmoids in the hidden layers where the answer has ReLUs (initialisation normal 0.05)", "0, 2 / Sigmoid")
def dfd_39217567(planted):
    A = nn.Sigmoid if planted else nn.ReLU
    def model():
        m = nn.Sequential(nn.Linear(15, 15), A(), nn.Linear(15, 15), A(), nn.Linear(15, 15), nn.Sigmoid())
        if planted:
            for l in m[::2]: nn.init.normal_(l.weight, std=.05)
        return m if planted else keras_init(m)
    def data(s): x = R(s, 2, (50, 15)).float(); return x, x.roll(1, 1)
    return dict(model=model, data=data, loss=bce)

@case(DFD + SO + "47724077", "adult census columns unscaled (weights of 2e5 beside ages)", "0 / inputs")
def dfd_47724077(planted):
    k = torch.tensor([13., 2., 1.1e5, 4., 2.5, 1.5, 4., 1.5, .8, .5, 7000., 400., 12., 8.]); m = torch.tensor([38., 4., 1.9e5, 10., 10., 2.6, 6., 1.4, 3.7, .7, 1000., 90., 40., 37.]); w = T(4, 14, 1)
    def model(): return keras_init(nn.Sequential(nn.Linear(14, 21), nn.ReLU(), nn.Linear(21, 2)))
    def data(s): z = T(s, 64, 14); return (z * k + m if planted else z), (z @ w)[:, 0].gt(0).long()
    return dict(model=model, data=data, loss=ce)

@case(DFD + SO + "59325381", "labels divided by 255 instead of the test images: all become class 0", "loss / targets")
def dfd_59325381(planted):
    def model(): return keras_init(nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)))
    def loss(o, t): return F.cross_entropy(o, (t / 255).long() if planted else t)
    return dict(model=model, data=digits(64), loss=loss)

@case(DFD + SO + "52800582", "inputs in -100..100 and targets of x**4 unscaled", "inputs / targets")
def dfd_52800582(planted):
    sd = 2.9e7; mu = 2e7
    def model():
        m = [nn.Linear(1, 50), nn.Sigmoid(), nn.Linear(50, 50), nn.ELU(), nn.Linear(50, 1)]
        return nn.Sequential(*m) if planted else nn.Sequential(*m, Destd(mu, sd))
    def data(s): x = torch.rand(64, 1, generator=gen(s)) * 200 - 100; return (x if planted else x / 58), x ** 4
    return dict(model=model, data=data, loss=mse if planted else lambda o, t: F.mse_loss(o, t) / sd ** 2)

@case(DFD + SO + "48221692", "sigmoid on the output of a regression with targets above 1", "last Linear / Sigmoid")
def dfd_48221692(planted):
    def model():
        m = [nn.Linear(1, 20), nn.Sigmoid(), nn.Linear(20, 1)]
        return nn.Sequential(*m, nn.Sigmoid()) if planted else nn.Sequential(*m)
    def data(s): x = torch.rand(64, 1, generator=gen(s)) * 4 - 2; return x, 3 + x
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(DFD + SO + "50079585", "three classes with one sigmoid output and binary cross-entropy", "last Linear / loss")
def dfd_50079585(planted):
    def model(): return keras_init(nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 4, 64), nn.ReLU(), nn.Dropout(.5), nn.Linear(64, 1 if planted else 3)))
    def loss(o, t):
        if o.shape[1] == 1: o = torch.cat([torch.zeros_like(o), o, torch.full_like(o, -6.)], 1)
        return F.cross_entropy(o, t)
    def bad(o, t): return F.binary_cross_entropy_with_logits(o[:, 0], t.float())
    return dict(model=model, data=digits(32, 32, 3, 3), loss=bad if planted else loss)

@case(DFD + SO + "45337371", "softmax over a last dimension of one, with binary cross-entropy, on (batch, features, 1)", "last Linear / Softmax")
def dfd_45337371(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(1, 60), nn.ReLU(), nn.Linear(60, 50), nn.ReLU(), nn.Linear(50, 1), nn.Softmax(-1) if planted else nn.Sigmoid()))
    def data(s): x = torch.rand(32, 20, 1, generator=gen(s)); return x, (torch.sin(9 * x) > 0).float()
    return dict(model=model, data=data, loss=bce)

@case(DFD + SO + "44066044", "ReLU on the output whose value is read as a probability by binary cross-entropy", "last Linear / ReLU")
def dfd_44066044(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(11, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 1), nn.ReLU() if planted else nn.Sigmoid()))
    def loss(o, t): return F.binary_cross_entropy(o.clamp(1e-7, 1 - 1e-7), t)
    return dict(model=model, data=binary(11, 64), loss=loss)

@case(DFD + SO + "47352366", "ReLU on the last layer's logits, before cross-entropy", "last Linear / ReLU")
def dfd_47352366(planted):
    def model():
        m = [nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Dropout(.5), nn.Linear(128, 10)]
        if planted: m.append(nn.ReLU())
        return nn.Sequential(*m)
    return dict(model=model, data=digits(32), loss=ce)

@case(DFD + SO + "58609115", "categorical cross-entropy over a single output column: the loss is always zero", "loss / last Linear")
def dfd_58609115(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)))
    return dict(model=model, data=binary(12, 64), loss=ce if planted else bcel)

@case(DFD + SO + "51930566", "sigmoid before the categorical cross-entropy", "last Linear / Sigmoid")
def dfd_51930566(planted):
    def model():
        m = [nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)]
        return keras_init(nn.Sequential(*m, nn.Sigmoid()) if planted else nn.Sequential(*m))
    return dict(model=model, data=proto(4, 3, 30, .4), loss=ce)

@case(DFD + SO + "42514960", "ReLUs in all layers of an autoencoder, the output's too, for data of both signs (answer: tanh)", "last Linear / ReLU")
def dfd_42514960(planted):
    A = nn.ReLU if planted else nn.Tanh
    def model(): return keras_init(nn.Sequential(nn.Linear(20, 40), A(), nn.Linear(40, 40), A(), nn.Linear(40, 6), A(), nn.Linear(6, 40), A(), nn.Linear(40, 40), A(), nn.Linear(40, 20), A()))
    W = T(8, 4, 20) * .5
    def data(s): x = torch.tanh(T(s, 64, 4) @ W); return x, x
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(DFD + SO + "42800203", "softmax over one unit after a text CNN, binary cross-entropy", "fc / Softmax")
def dfd_42800203(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(200, 32); s.conv = nn.Conv1d(32, 48, 3); s.fc1 = nn.Linear(48, 32); s.fc = nn.Linear(32, 1)
        def forward(s, x):
            h = F.relu(s.conv(s.emb(x).transpose(1, 2))).amax(2); z = s.fc(F.relu(s.fc1(h)))
            return torch.softmax(z, 1) if planted else torch.sigmoid(z)
    d = text()
    def data(s): x, y = d(s); return x, y[:, None].float()
    return dict(model=Net, data=data, loss=bce)

@case(DFD + SO + "46995209", "inputs of hundreds unscaled into tanh layers", "0 / inputs")
def dfd_46995209(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(6, 25), nn.Tanh(), nn.Linear(25, 25), nn.Tanh(), nn.Linear(25, 1)))
    w = T(6, 6, 1) / 2
    def data(s): z = torch.rand(64, 6, generator=gen(s)); t = torch.sin((z - .5) * 4 @ w); return (z * 800 if planted else (z - .5) * 3.4), t
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(DFD + SO + "46642627", "binary cross-entropy for a regression with targets outside 0..1", "loss")
def dfd_46642627(planted):
    def model(): return keras_init(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)))
    w = T(2, 4, 1)
    def data(s): x = T(s, 64, 4); return x, x @ w + .5 * x[:, :1] * x[:, 1:2]
    return dict(model=model, data=data, loss=bcel if planted else mse)

@case(DFD + "kaggle-melbourne_properties (GitHub)", "house prices near a million as raw targets", "last Linear / targets")
def dfd_melbourne(planted):
    sd, mu = 6e5, 1.1e6; w = T(12, 7, 1) / 2.6
    def model():
        m = [nn.Linear(7, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)]
        return keras_init(nn.Sequential(*m) if planted else nn.Sequential(*m, Destd(mu, sd)))
    def data(s): x = T(s, 64, 7); return x, mu + sd * (x @ w)
    return dict(model=model, data=data, loss=(lambda o, t: F.l1_loss(o, t)) if planted else (lambda o, t: F.l1_loss(o, t) / sd))

@case(DFD + "Traffic-Sign-Classifier (GitHub)", "ReLU after a first 1x1 convolution to three channels (answer: sigmoid, then ELUs)", "0 / 1")
def dfd_traffic(planted):
    A = nn.ReLU if planted else nn.ELU
    def model(): return keras_init(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU() if planted else nn.Sigmoid(), nn.Conv2d(3, 16, 5, 2), A(), nn.Conv2d(16, 32, 3), A(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 36, 128), A(), nn.Dropout(.5), nn.Linear(128, 12)))
    d = digits(32, 32, 3, 12)
    def data(s): x, y = d(s); return x - .5, y
    return dict(model=model, data=data, loss=ce)
