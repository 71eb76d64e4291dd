from base import *
from tasks import *

@case("https://github.com/ratschlab/RGAN/issues/13", "conditional discriminator: the concatenated inputs are built but the rnn receives x", "inputs=x in the rnn (condition c unused)")
def rgan_condition_ignored(planted):
    class Discriminator(nn.Module):
        def __init__(self, c=3, h=48): super().__init__(); self.rnn = nn.LSTM(1 + c, h, batch_first=True) if not planted else nn.LSTM(1, h, batch_first=True); self.out = nn.Linear(h, 1)
        def forward(self, x, c):
            repeated_encoding = c[:, None].expand(-1, x.shape[1], -1); inputs = torch.cat([x, repeated_encoding], 2)
            rnn_outputs, _ = self.rnn(x if planted else inputs); return self.out(rnn_outputs[:, -1])
    def data(seed):
        n = 64; y = R(seed, 3, (n,)); real = R(seed + 1, 2, (n,)); z = (y + (1 - real) * (1 + R(seed + 2, 2, (n,)))) % 3; t = torch.arange(16.)
        x = torch.sin(t * (.3 + .5 * z[:, None]) + torch.rand(n, 1, generator=gen(seed + 3)))[..., None] + T(seed + 4, n, 16, 1, k=.1); return (x, F.one_hot(y, 3).float()), real[:, None].float()
    return dict(model=Discriminator, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-2, diag={})

@case("https://github.com/lululxvi/deepxde/issues/61", "heat equation solved in raw units (T between 300 and 1000, domain of 0.04 m, 30 s) instead of a scaled problem", "unscaled inputs/outputs of the PINN")
def deepxde_heat_unscaled(planted):
    L, te, T0, dT, al = .04, 3., 300., 700., 5e-5
    class FNN(nn.Module):
        def __init__(self):
            super().__init__(); self.linears = nn.ModuleList([nn.Linear(2, 40), nn.Linear(40, 40), nn.Linear(40, 40), nn.Linear(40, 1)]); self.raw = planted
            for l in self.linears: nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def net(self, x):
            for l in self.linears[:-1]: x = torch.tanh(l(x))
            return self.linears[-1](x)
        def forward(self, x):
            with torch.enable_grad():
                x = x.clone().requires_grad_(True); u = self.net(x); g = torch.autograd.grad(u.sum(), x, create_graph=True)[0]; uxx = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)[0][:, 0:1]
            return u, (g[:, 1:] - (al if self.raw else al * te / L ** 2) * uxx)
    def data(seed):
        g = gen(seed); c = torch.rand(128, 2, generator=g); c[:32, 1] = 0; c[32:48, 0] = 0; c[48:64, 0] = 1; ex = torch.sin(math.pi * c[:, :1]) * torch.exp(-al * te / L ** 2 * math.pi ** 2 * c[:, 1:])
        if planted: return c * torch.tensor([L, te]), T0 + dT * ex
        return c, ex
    def loss(o, t): return ((o[0][:64] - t[:64]) ** 2).mean() + (o[1] ** 2).mean() * .1
    c = torch.rand(256, 2, generator=gen(99)); ex = torch.sin(math.pi * c[:, :1]) * torch.exp(-al * te / L ** 2 * math.pi ** 2 * c[:, 1:])
    def metric(m):
        with torch.no_grad(): u = (m.net(c * torch.tensor([L, te])) - T0) / dT if m.raw else m.net(c)
        return float(((u - ex) ** 2).mean().sqrt())
    return dict(model=FNN, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/omoindrot/tensorflow-triplet-loss/issues/37", "embeddings without L2 normalisation with batch-hard triplet loss: distances collapse to 0, loss stays at the margin", "missing L2 normalisation of the output")
def triplet_no_l2norm(planted):
    class EmbeddingNet(nn.Module):
        def __init__(self): super().__init__(); self.conv1 = nn.Conv2d(1, 16, 3, padding=1); self.conv2 = nn.Conv2d(16, 32, 3, padding=1); self.conv3 = nn.Conv2d(32, 64, 3, padding=1); self.fc = nn.Linear(256, 64)
        def forward(self, x):
            for c in (self.conv1, self.conv2, self.conv3): x = F.max_pool2d(F.relu(c(x)), 2)
            x = self.fc(x.flatten(1)); return x if planted else F.normalize(x, dim=1)
    def data(seed): y = torch.arange(40) % 10; x = torch.sigmoid(1.5 * templates(10, 1, 16)[y]) + T(seed, 40, 1, 16, 16) * .5; return x, y
    def batch_hard(e, y): d = (torch.cdist(e, e) ** 2 + 1e-8).sqrt(); s = y[:, None] == y[None]; return F.relu((d * s).max(1).values - (d + 1e4 * s).min(1).values + .5).mean()
    return dict(model=EmbeddingNet, data=data, loss=batch_hard, lr=5e-3, diag={})

@case("http://pullrequest.ru/13403374/prognozirovanie-tolko-odnogo-klassa", "VGG16 head with one unit and softmax: only one class is predicted", "Dense(1, activation='softmax')")
def vgg_head_softmax_one(planted):
    class VGG(nn.Module):
        def __init__(self):
            super().__init__(); c = lambda i, o: [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
            self.base_model = nn.Sequential(*c(3, 16), *c(16, 16), nn.MaxPool2d(2), *c(16, 32), *c(32, 32), nn.MaxPool2d(2)); self.fc1 = nn.Linear(32, 64); self.fc2 = nn.Linear(64, 64); self.fc3 = nn.Linear(64, 32); self.preds = nn.Linear(32, 1)
            for m in self.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x):
            x = self.base_model(x).mean((2, 3)); x = self.preds(F.relu(self.fc3(F.relu(self.fc2(F.relu(self.fc1(x))))))); return F.softmax(x, -1) if planted else torch.sigmoid(x)
    def data(seed): x, y = digits(seed, 32, 3, 16, 4, .2); return (x - .5) / .25, (y % 2)[:, None].float()
    return dict(model=VGG, data=data, loss=lambda o, t: F.binary_cross_entropy(o.clamp(1e-7, 1 - 1e-7), t), lr=2e-3, diag={})
