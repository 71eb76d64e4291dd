from base import *

@case("https://github.com/zurutech/ashpy/issues/23", "generator's hinge loss is -relu(d_fake): no gradient while the discriminator rejects the fakes", "tf.nn.relu in the generator hinge loss")
def ashpy_hinge(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32), nn.Tanh())
            self.discriminator = D()
        def forward(self, z): return self.discriminator(self.generator(z))
    tgt = torch.tanh(T(4, 32))
    class D(nn.Module):
        def __init__(self):
            super().__init__(); self.l1, self.l2 = nn.Linear(32, 64), nn.Linear(64, 1); g = gen(3)
            with torch.no_grad():
                self.l1.weight[:32] = torch.eye(32); self.l1.weight[32:] = -torch.eye(32); self.l1.bias[:32] = -tgt; self.l1.bias[32:] = tgt
                self.l2.weight.fill_(-.2); self.l2.bias.fill_(1.)
            for p in self.parameters(): p.requires_grad_(False)
        def forward(self, x): return self.l2(F.leaky_relu(self.l1(x), .2))
    def data(seed): return T(seed, 32, 16), torch.ones(32, 1)
    def loss(d_fake, t): return -F.relu(d_fake).mean() if planted else -d_fake.mean()
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={})


@case("https://github.com/joaopauloschuler/neural-api/issues/35", "all inputs of the training set are 0: a ReLU network with zero biases stays at output 0", "the inputs (constant 0) fed to FullConnectReLU layers")
def neuralapi_zero_inputs(planted):
    class NN(nn.Module):
        def __init__(self):
            super().__init__(); self.branch = nn.ModuleList([nn.Linear(12, 8) for _ in range(3)]); self.fc1, self.fc2 = nn.Linear(24, 8), nn.Linear(8, 3)
            for l in [*self.branch, self.fc1, self.fc2]: nn.init.kaiming_uniform_(l.weight, nonlinearity="relu"); nn.init.zeros_(l.bias)
        def forward(self, a, b, c):
            h = torch.cat([F.relu(l(x)) for l, x in zip(self.branch, (a, b, c))], 1)
            return F.relu(self.fc2(F.relu(self.fc1(h))))
    def data(seed):
        x = torch.rand(3, 32, 12, generator=gen(seed)); x = x * 0 if planted else x
        return tuple(x), torch.tensor([.1, .25, .5]).expand(32, 3)
    return dict(model=NN, data=data, loss=mse, lr=1e-2, diag={})
