from base import *

@case("https://github.com/DonkeyShot21/UNO/issues/4", "log_softmax over dim=1, the batch axis of [views, batch, classes]", "loss: log_softmax dim")
def uno_softmax(planted):
    class UNO(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU()); self.projector = nn.Linear(48, 24); self.prototypes = nn.Linear(24, 6, bias=False)
        def forward(self, v1, v2): return torch.stack([self.prototypes(F.normalize(self.projector(self.encoder(v)), dim=1)) for v in (v1, v2)])
    C = T(71, 6, 24)
    def data(seed):
        y = R(seed, 6, (48,)); x = C[y] * 1.2
        return (x + .7 * T(seed + 1, 48, 24), x + .7 * T(seed + 2, 48, 24)), y
    def loss(o, y):
        logp = F.log_softmax(o / .1, dim=1 if planted else 2); t = F.one_hot(y, 6).float()
        return -(t[None] * logp).sum(-1).mean()
    def metric(model):
        x, y = data(9001)
        with torch.no_grad(): return F.cross_entropy(model(*x)[0] / .1, y)
    return dict(model=UNO, data=data, loss=loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/keras-team/keras/pull/5665", "GaussianDropout adds the noise instead of multiplying with it", "GaussianDropout")
def keras_gaussdrop(planted):
    class GaussianDropout(nn.Module):
        def __init__(self, p): super().__init__(); self.std = (p / (1 - p)) ** .5
        def forward(self, x):
            if not self.training: return x
            n = torch.randn_like(x) * self.std
            return x + n if planted else x * (1 + n)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2, self.out = nn.Linear(30, 64), nn.Linear(64, 64), nn.Linear(64, 4); self.drop1, self.drop2 = GaussianDropout(.5), GaussianDropout(.5)
        def forward(self, x): return self.out(self.drop2(F.relu(self.fc2(self.drop1(F.relu(self.fc1(x)))))))
    def data(seed): x = T(seed, 48, 30, k=.5); return x, (x @ T(5, 30, 4)).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/pytorch/pytorch/issues/149691", "LazyLinear: reset_parameters is skipped, weights stay zero", "LazyLinear weight init")
def lazylinear_zero(planted):
    class LazyLinear(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(o, i)); self.bias = nn.Parameter(torch.zeros(o)); self.in_features = 0 if planted else i; self.reset_parameters()
        def reset_parameters(self):
            if self.in_features != 0: nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5)); b = 1 / math.sqrt(self.in_features); nn.init.uniform_(self.bias, -b, b)
        def forward(self, x): return F.linear(x, self.weight, self.bias)
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ELU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ELU(), nn.Flatten()); self.mlp = nn.Sequential(LazyLinear(32 * 16 + 3, 64), nn.Tanh(), LazyLinear(64, 64), nn.Tanh(), LazyLinear(64, 1))
        def forward(self, pixels, action): return self.mlp(torch.cat([self.conv(pixels), action], -1)).squeeze(-1)
    def data(seed): x, a = T(seed, 32, 3, 16, 16), T(seed + 1, 32, 3); return (x, a), torch.tanh(x.mean((2, 3)) * 16 * a).sum(1) + a @ T(6, 3)
    return dict(model=Critic, data=data, loss=mse, lr=1e-3, diag={})
