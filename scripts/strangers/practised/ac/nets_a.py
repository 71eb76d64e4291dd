from base import *
nnlin = nn.Linear

@case("https://discuss.pytorch.org/t/lstm-change-batch-first-true-loss-does-not-decrease/62364", "LSTM set to batch_first=True while the features are still (T, B, C)", "rnn")
def crnn_batch_first(planted):
    class CRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.cnn = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d((2, 2)), nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((4, 2)))
            self.rnn = nn.LSTM(32, 48, bidirectional=True, batch_first=planted)
            self.embedding = nn.Linear(96, 6)
        def forward(self, x):
            conv = self.cnn(x).squeeze(2).permute(2, 0, 1)
            recurrent, _ = self.rnn(conv)
            return self.embedding(recurrent)
    glyph = T(1, 6, 8, 4)
    def data(seed):
        lab = R(seed, 6, (32, 10)); img = glyph[lab].permute(0, 2, 1, 3).reshape(32, 1, 8, 40) + T(seed + 7, 32, 1, 8, 40, k=.2)
        return img, lab.roll(3, 1).t().contiguous()
    return dict(model=CRNN, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/PaddlePaddle/Paddle/issues/53354", "first fc (size 2, relu) gives only negative pre-activations, outputs identical", "hidden")
def auc_dead_fc(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(1, 2); self.net = nn.Linear(2, 1)
            nn.init.xavier_uniform_(self.hidden.weight); nn.init.zeros_(self.hidden.bias)
            if planted: self.hidden.weight.data = -self.hidden.weight.data.abs()
        def forward(self, x): return torch.tanh(self.net(F.relu(self.hidden(x))))
    def data(seed):
        x = torch.rand(48, 1, generator=gen(seed)) * 4; y = (x > 2).float()
        return x, y
    def loss(o, y):
        pos, neg = o[y > .5], o[y < .5]
        return -F.logsigmoid(pos[:, None] - neg[None]).mean()
    return dict(model=Net, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/hill-a/stable-baselines/issues/553", "Box(low=action_min, high=action_min): every action is scaled to the same value", "low/high in forward")
def ppo_action_box(planted):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.pi_fc0 = nn.Linear(5, 64); self.pi_fc1 = nn.Linear(64, 64); self.pi = nn.Linear(64, 1)
            self.register_buffer("low", torch.tensor([30.])); self.register_buffer("high", torch.tensor([30. if planted else 1017.]))
        def forward(self, obs):
            h = torch.tanh(self.pi_fc1(torch.tanh(self.pi_fc0(obs))))
            a = torch.tanh(self.pi(h))
            return self.low + .5 * (a + 1) * (self.high - self.low)
    w = T(2, 5, 1)
    def data(seed):
        x = T(seed, 64, 5); return x, 523.5 + 400 * torch.tanh(x @ w)
    return dict(model=Policy, data=data, loss=lambda o, t: F.mse_loss(o / 400, t / 400), lr=3e-3, diag={})

@case("https://discourse.julialang.org/t/scaling-issue-probably-while-solving-simple-pinn-problem/124183", "domain in mm, x in [0, 3000], fed to a tanh network without scaling", "input x / first layer")
def pinn_beam_scale(planted):
    L = 3000. if planted else 1.
    class PINN(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True); u = self.net(x)
                d = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
                d2 = torch.autograd.grad(d.sum(), x, create_graph=True)[0]
                return torch.cat([L * L * d2, u], 1)
    def data(seed):
        s = torch.rand(64, 1, generator=gen(seed)); s[:8] = 0; s[8:16] = 1
        f = -9.87 * torch.sin(math.pi * s); b = ((s == 0) | (s == 1)).float()
        return s * L, torch.cat([f, b], 1)
    def loss(o, t): return F.mse_loss(o[:, :1], t[:, :1]) / 10 + (t[:, 1:] * o[:, 1:] ** 2).mean() * 20
    def metric(m):
        s = torch.linspace(0, 1, 101)[:, None]
        with torch.no_grad(): return F.mse_loss(m.net(s * L), torch.sin(math.pi * s))
    return dict(model=PINN, data=data, loss=loss, lr=1e-2, diag={}, metric=metric)

@case("https://github.com/lululxvi/deepxde/issues/50", "solution of order 100 while the network output is not scaled", "output of the network")
def pinn_output_100(planted):
    class FNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.linears = nn.ModuleList([nn.Linear(1, 32), nn.Linear(32, 32), nn.Linear(32, 1)])
            for l in self.linears: nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def u(self, x):
            y = x
            for l in self.linears[:-1]: y = torch.tanh(l(y))
            y = self.linears[-1](y)
            return y if planted else y * 100
        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True); u = self.u(x)
                d = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
                d2 = torch.autograd.grad(d.sum(), x, create_graph=True)[0]
                return torch.cat([d2, u], 1)
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)); x[:10] = 0; x[10:20] = 1
        return x, torch.cat([-200 * torch.ones(64, 1), (x == 0).float(), (x == 1).float()], 1)
    def loss(o, t):
        return F.mse_loss(o[:, :1], t[:, :1]) + 10 * (t[:, 1:2] * (o[:, 1:] - 100) ** 2).mean() + 10 * (t[:, 2:] * o[:, 1:] ** 2).mean()
    def metric(m):
        x = torch.linspace(0, 1, 101)[:, None]
        with torch.no_grad(): return F.mse_loss(m.u(x) / 100, 1 - x + x * (1 - x))
    return dict(model=FNN, data=data, loss=loss, lr=5e-3, diag={}, metric=metric)

@case("https://newbedev.com/cnn-with-keras-accuracy-not-improving", "three classes, but a single sigmoid unit with binary cross-entropy", "Dense(1) + sigmoid / loss")
def keras_one_sigmoid(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3); self.conv2 = nn.Conv2d(16, 32, 3); self.fc1 = nn.Linear(32, 64); self.fc2 = nn.Linear(64, 1 if planted else 3)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = self.fc2(F.relu(self.fc1(x.flatten(1))))
            return torch.sigmoid(x) if planted else x
    pro = T(4, 3, 3, 12, 12, k=.6)
    def data(seed):
        y = R(seed, 3, (32,)); return pro[y] + T(seed + 5, 32, 3, 12, 12), y
    def bce(o, y):
        o = o[:, 0].clamp(1e-7, 1 - 1e-7); y = y.float(); return -(y * o.log() + (1 - y) * (1 - o).log()).mean()
    def metric(m):
        x, y = data(9100)
        with torch.no_grad(): o = m(x)
        p = (o[:, 0] > .5).long() if o.shape[1] == 1 else o.argmax(1)
        return (p != y).float().mean()
    return dict(model=Net, data=data, loss=bce if planted else ce, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/anishmadan23/deep3d-pytorch/issues/1", "images already in [0, 1] divided by 255 again", "input x")
def deep3d_div255(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())
            self.disp = nn.Conv2d(16, 3, 3, 1, 1)
        def forward(self, x): return self.disp(self.features(x))
    def data(seed):
        x = F.interpolate(torch.rand(16, 3, 6, 6, generator=gen(seed)), 16, mode="bilinear")
        t = x.roll(1, 3)
        return (x / 255 if planted else x), t
    return dict(model=Net, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/soumith/ganhacks/issues/36", "sigmoid at the end of the discriminator and BCEWithLogits", "sigmoid after main")
def dcgan_disc_sigmoid(planted):
    class D(nn.Module):
        def __init__(self):
            super().__init__()
            self.main = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.2), nn.Conv2d(32, 1, 4))
        def forward(self, x):
            o = self.main(x).flatten()
            return torch.sigmoid(o) if planted else o
    def data(seed):
        y = (torch.arange(32) % 2).float()
        real = F.interpolate(T(seed, 32, 3, 4, 4), 16, mode="bilinear"); fake = T(seed + 3, 32, 3, 16, 16, k=.7)
        return torch.where(y[:, None, None, None] > .5, real, .6 * fake + .4 * real).tanh(), y
    return dict(model=D, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-3, diag={})

@case("https://github.com/jeffheaton/t81_558_deep_learning/pull/81", "from_logits=True although the last Dense has a sigmoid", "sigmoid of the last Dense / loss")
def t81_from_logits(planted):
    class Disc(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1 = nn.Conv2d(1, 16, 3, 2, 1); self.c2 = nn.Conv2d(16, 32, 3, 2, 1); self.bn2 = nn.BatchNorm2d(32); self.fc = nn.Linear(32 * 16, 1)
        def forward(self, x):
            x = F.leaky_relu(self.c1(x), .2); x = F.leaky_relu(self.bn2(self.c2(x)), .2)
            return torch.sigmoid(self.fc(x.flatten(1)))
    m = T(3, 1, 16, 16)
    def data(seed):
        y = R(seed, 2, (48, 1)).float(); return T(seed + 1, 48, 1, 16, 16) + .3 * m * (2 * y[:, :, None, None] - 1), y
    def bce(o, y): return F.binary_cross_entropy_with_logits(o, y) if planted else F.binary_cross_entropy(o, y)
    return dict(model=Disc, data=data, loss=bce, lr=1e-3, diag={})
