from base import *
def dense(i, o, init="glorot"):
    l = nn.Linear(i, o); nn.init.zeros_(l.bias)
    if init == "glorot": nn.init.xavier_uniform_(l.weight)
    elif init == "uniform": nn.init.uniform_(l.weight, -.05, .05)
    elif init == "normal": nn.init.normal_(l.weight, std=.05)
    else: nn.init.normal_(l.weight, std=init); nn.init.normal_(l.bias, std=init)
    return l
def kbce(p, t): p = p.clamp(1e-7, 1 - 1e-7); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
def kcce(p, t): p = (p / p.sum(-1, keepdim=True)).clamp(1e-7, 1 - 1e-7); return F.nll_loss(p.log(), t)
def blobs(s, n, side, k, noise=.3):
    t = R(s, k, (n,)); proto = T(77, k, side * side).abs().clamp(0, 1.5) / 1.5
    return (proto[t] + noise * T(s + 1, n, side * side).abs()).clamp(0, 1.2) / 1.2, t

@case("https://stackoverflow.com/questions/31880720", "softmax on a single output unit with binary_crossentropy", "last Activation softmax(1)")
def so_31880720(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.dense1 = dense(128, 50); s.drop = nn.Dropout(.2); s.dense2 = dense(50, 50); s.dense3 = dense(50, 1)
        def forward(s, x):
            x = s.drop(F.relu(s.dense1(x))); x = s.drop(F.relu(s.dense2(x))); x = s.dense3(x)
            return F.softmax(x, -1) if planted else torch.sigmoid(x)
    def data(seed):
        t = R(seed, 2, (32, 1)).float(); return t.expand(-1, 128) + .05 * T(seed + 1, 32, 128), t
    return dict(model=Net, data=data, loss=kbce, lr=1e-3, diag={})

@case("https://stackoverflow.com/questions/45442843", "softmax on one unit trained with mean absolute error", "last Dense(1) softmax and the MAE loss")
def so_45442843(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.hidden = dense(1, 1); s.out = dense(1, 1, "normal")
        def forward(s, x):
            x = s.out(torch.sigmoid(s.hidden(x))); return F.softmax(x, -1) if planted else torch.sigmoid(x)
    def data(seed): x = T(seed, 64, 1); return x, (x > .2).float()
    return dict(model=Net, data=data, loss=(lambda o, t: (o - t).abs().mean()) if planted else kbce, lr=5e-2, diag={})

@case("https://stackoverflow.com/questions/44066044", "relu as the last activation under binary_crossentropy, packet features unscaled", "last activation relu (and input scaling)")
def so_44066044(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = dense(11, 12, "normal"); s.d2 = dense(12, 12, "normal"); s.d3 = dense(12, 1, "normal")
        def forward(s, x):
            if not planted: x = (x - mean) / std
            x = s.d3(F.relu(s.d2(F.relu(s.d1(x))))); return F.relu(x) if planted else torch.sigmoid(x)
    w = T(5, 11, 1); std = 10 ** (T(6, 11) + 1); mean = 2 * std
    def data(seed): x = T(seed, 32, 11); return x * std + mean, (x @ w > 0).float()
    return dict(model=Net, data=data, loss=kbce, lr=1e-2, diag={})

@case("https://stackoverflow.com/questions/48251943", "relu on the output of a regression whose targets are also negative", "second relu (output)")
def so_48251943(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.model = nn.Sequential(dense(2, 4), nn.ReLU(), dense(4, 1), nn.ReLU() if planted else nn.Identity())
        def forward(s, x): return s.model(x)
    def data(seed): x = T(seed, 32, 2); return x, x @ torch.tensor([[1.], [-.7]]) - .5
    return dict(model=Net, data=data, loss=mse, lr=2e-2, diag={})

@case("https://stackoverflow.com/questions/48221692", "sigmoid on the output of a linear regression with targets beyond 1", "output Activation sigmoid")
def so_48221692(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.hidden = dense(1, 5); s.output = dense(5, 1)
        def forward(s, x):
            x = s.output(torch.sigmoid(s.hidden(x))); return torch.sigmoid(x) if planted else x
    def data(seed): x = T(seed, 64, 1); return x, 2.5 * x + 3 + .1 * T(seed + 1, 64, 1)
    return dict(model=Net, data=data, loss=mse, lr=5e-2, diag={})

@case("https://stackoverflow.com/questions/39525358", "features of very different size go in unscaled (StandardScaler missing)", "input / first Dense")
def so_39525358(planted):
    mean, std = torch.tensor([45., 52000., 1.2e6]), torch.tensor([12., 18000., 4e5])
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = dense(3, 12, "uniform"); s.d2 = dense(12, 8, "uniform"); s.d3 = dense(8, 1, "uniform")
        def forward(s, x):
            if not planted: x = (x - mean) / std
            return torch.sigmoid(s.d3(F.relu(s.d2(F.relu(s.d1(x))))))
    def data(seed):
        z = T(seed, 32, 3); return z * std + mean, (z @ torch.tensor([[1.], [1.], [-1.]]) > 0).float()
    return dict(model=Net, data=data, loss=kbce, lr=1e-2, diag={})

@case("https://stackoverflow.com/questions/55328966", "pixels 0..255 not divided by 255, sigmoid outputs under categorical_crossentropy", "input scaling / output sigmoid")
def so_55328966(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d0 = dense(196, 196); s.d1 = dense(196, 64); s.d2 = dense(64, 10)
        def forward(s, x):
            if not planted: x = x / 255
            x = s.d2(F.relu(s.d1(s.d0(x)))); return torch.sigmoid(x) if planted else F.softmax(x, -1)
    def data(seed): x, t = blobs(seed, 32, 14, 10); return (x * 255).floor(), t
    return dict(model=Net, data=data, loss=kcce, lr=1e-3, diag={})

@case("https://stackoverflow.com/questions/48385830", "no activations in the two Dense layers, mean_squared_error on raw outputs with RandomNormal(stddev=1)", "layer1/layer2 activation and loss")
def so_48385830(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.layer1 = dense(196, 30, 1.); s.layer2 = dense(30, 10, 1.)
        def forward(s, x): return s.layer2(s.layer1(x)) if planted else F.softmax(s.layer2(torch.sigmoid(s.layer1(x))), -1)
    def data(seed): return blobs(seed, 32, 14, 10)
    ml = lambda o, t: F.mse_loss(o, F.one_hot(t, 10).float())
    def metric(m):
        m.eval(); x, t = blobs(9000, 256, 14, 10); return float((m(x).argmax(-1) != t).float().mean())
    return dict(model=Net, data=data, loss=ml if planted else kcce, lr=1e-2, diag={}, metric=metric)

@case("https://stackoverflow.com/questions/38648195", "softmax and mean squared error for a multi-label target", "last Activation softmax")
def so_38648195(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = dense(20, 20); s.d2 = dense(20, 20); s.d3 = dense(20, 3); s.drop = nn.Dropout(.1)
        def forward(s, x):
            x = s.d3(s.drop(F.relu(s.d2(s.drop(F.relu(s.d1(x))))))); return F.softmax(x, -1) if planted else torch.sigmoid(x)
    w = T(8, 20, 3)
    def data(seed): x = T(seed, 32, 20); return x, (x @ w > -2.).float()
    return dict(model=Net, data=data, loss=mse if planted else kbce, lr=5e-3, diag={})

@case("https://stackoverflow.com/questions/50079585", "three classes 0,1,2 fed to Dense(1) sigmoid with binary_crossentropy", "last Dense(1) / loss")
def so_50079585(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(3, 16, 3); s.conv2 = nn.Conv2d(16, 16, 3); s.fc1 = dense(16 * 16, 64); s.drop = nn.Dropout(.5); s.fc2 = dense(64, 1 if planted else 3)
        def forward(s, x):
            x = F.max_pool2d(F.relu(s.conv1(x)), 2); x = F.max_pool2d(F.relu(s.conv2(x)), 2)
            x = s.fc2(s.drop(F.relu(s.fc1(x.flatten(1))))); return torch.sigmoid(x) if planted else x
    proto = T(31, 3, 3, 22, 22)
    def data(seed, n=16): t = R(seed, 3, (n,)); return .5 + .3 * proto[t] + .3 * T(seed + 1, n, 3, 22, 22), t
    def bl(p, t): p = p.clamp(1e-7, 1 - 1e-7)[:, 0]; t = t.float(); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    def metric(m):
        m.eval(); x, t = data(9000, 128); o = m(x); return float(((o.argmax(-1) if o.shape[-1] > 1 else o[:, 0].round().long()) != t).float().mean())
    return dict(model=Net, data=data, loss=bl if planted else ce, lr=1e-3, diag={}, metric=metric)

@case("https://stackoverflow.com/questions/59325381", "y_train divided by 255 together with the images: every label becomes 0", "labels / 255")
def so_59325381(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 16, 3, padding=1); s.conv2 = nn.Conv2d(16, 8, 3, padding=1); s.fc1 = nn.Linear(72, 64); s.fc2 = nn.Linear(64, 10)
        def forward(s, x): x = F.max_pool2d(s.conv1(x), 2); x = F.max_pool2d(s.conv2(x), 2); return s.fc2(F.relu(s.fc1(x.flatten(1))))
    def data(seed):
        x, t = blobs(seed, 32, 14, 10); return x.view(-1, 1, 14, 14), (t / 255).long() if planted else t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://stackoverflow.com/questions/33969059", "Dropout(0.5) behind a hidden layer of three units in a regression", "Dropout(0.5)")
def so_33969059(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = dense(3, 3, "uniform"); s.drop = nn.Dropout(.5 if planted else 0.); s.d2 = dense(3, 2, "uniform")
        def forward(s, x): return torch.tanh(s.d2(s.drop(torch.tanh(s.d1(x)))))
    w = torch.tensor([[.9, .2], [.4, -.5], [.2, .6]])
    def data(seed): x = torch.rand(64, 3, generator=gen(seed)) * 2 - 1; return x, x @ w * .6
    return dict(model=Net, data=data, loss=mse, lr=2e-2, diag={})

@case("https://stackoverflow.com/questions/39217567", "three sigmoid layers started from normal(0.05) for integers far outside (0,1)", "sigmoid activations")
def so_39217567(planted):
    act = torch.sigmoid if planted else F.relu
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = dense(8, 32, "normal"); s.d2 = dense(32, 32, "normal"); s.d3 = dense(32, 8, "normal")
        def forward(s, x): return act(s.d3(act(s.d2(act(s.d1(x))))))
    def data(seed): x = R(seed, 10, (32, 8)).float(); return x, x.flip(-1)
    return dict(model=Net, data=data, loss=mse, lr=1e-2, diag={})

@case("https://stackoverflow.com/questions/59278771", "sigmoid outputs and unscaled iris features under categorical_crossentropy, relu(4) from normal(0.05)", "Dense(3) sigmoid / input scaling")
def so_59278771(planted):
    mu = torch.tensor([[5., 3.4, 1.5, .25], [5.9, 2.8, 4.3, 1.3], [6.6, 3., 5.5, 2.]]); m, sd = mu.mean(0), mu.std(0)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = dense(4, 4 if planted else 8, "normal"); s.d2 = dense(4 if planted else 8, 3, "normal")
        def forward(s, x):
            if planted: return torch.sigmoid(s.d2(F.relu(s.d1(x))))
            return F.softmax(s.d2(F.relu(s.d1((x - m) / sd))), -1)
    def data(seed): t = R(seed, 3, (32,)); return mu[t] + .25 * T(seed + 1, 32, 4), t
    return dict(model=Net, data=data, loss=kcce, lr=1e-2, diag={})
