from base import *

@case("https://github.com/openclimatefix/graph_weather/pull/87", "NormalizedMSELoss divides by feature variances of 1e-12: one feature dominates, loss 1e10 and more", "/ feature_variance in NormalizedMSELoss")
def graph_weather_loss(planted):
    var = torch.tensor([1., 1., .5, 1e-3, 1e-4, 1e-6]) ** 2; A = T(41, 12, 6, k=.4)
    class Forecaster(nn.Module):
        def __init__(self, f=12, h=48):
            super().__init__(); self.enc = nn.Sequential(nn.Linear(f, h), nn.LayerNorm(h), nn.ReLU()); self.proc = nn.ModuleList([nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.LayerNorm(h)) for _ in range(2)]); self.dec = nn.Linear(h, 6)
        def forward(self, x):
            h = self.enc(x)
            for p in self.proc: h = h + p(.5 * (h.roll(1, 1) + h.roll(-1, 1)))
            return self.dec(h)
    def data(seed):
        x = T(seed, 16, 10, 12); return x, torch.tanh(.5 * (x + x.roll(1, 1)) @ A)
    def metric(m):
        x, t = data(1313)
        with torch.no_grad(): return float(F.mse_loss(m(x), t))
    return dict(model=Forecaster, data=data, loss=(lambda o, t: ((o - t) ** 2 / var).mean()) if planted else mse, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/summerlvsong/Aggregation-Cross-Entropy/issues/2", "log of the accumulated softmax score without epsilon: zero for absent classes gives NaN", "torch.log(input) in the ACE loss")
def ace_log(planted):
    class CRNN(nn.Module):
        def __init__(self, k=12):
            super().__init__(); self.conv = nn.Sequential(nn.Conv1d(8, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 128, 3, padding=1), nn.ReLU()); self.fc = nn.Linear(128, k)
        def forward(self, x): return torch.softmax(self.fc(self.conv(x).transpose(1, 2)), -1)
    P = T(60, 12, 8) * 4
    def data(seed):
        c = R(seed, 12, (32, 1)) .expand(-1, 10); c = torch.where(torch.rand(32, 10, generator=gen(seed + 9)) < .3, (c + 1) % 12, c); x = (P[c] + T(seed + 1, 32, 10, 8)).transpose(1, 2); return x, F.one_hot(c, 12).float().sum(1)
    def loss(p, n):
        y = p.sum(1) / p.shape[1]; y = y if planted else y + 1e-10; return -(torch.log(y) * n / p.shape[1]).sum(1).mean()
    return dict(model=CRNN, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/mlberkeley/scae-pytorch/pull/4", "mixture likelihood through exp and log instead of logsumexp: overflow / log(0)", "log(sum(exp(...))) in log_prob")
def scae_logprob(planted):
    class SCAE(nn.Module):
        def __init__(self, m=6, d=40):
            super().__init__(); self.enc = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, m * 3)); self.templates = nn.Parameter(torch.rand(m, d) * .5); self.m = m; self.log_scale = nn.Parameter(torch.tensor(-1.6))
        def forward(self, x):
            h = self.enc(x).view(len(x), self.m, 3); mu = self.templates[None] * (1 + h[..., :1]) + h[..., 1:2]; return mu, torch.log_softmax(h[..., 2], 1), self.log_scale
    C = (torch.rand(5, 40, generator=gen(61)) < .3).float()
    def data(seed):
        x = C[R(seed, 5, (48,))] * 1. + .2 * T(seed + 1, 48, 40); return x, x
    def loss(o, x):
        mu, lp, ls = o; ll = lp + (-.5 * ((x[:, None] - mu) / ls.exp()) ** 2 - ls - .919).sum(-1)
        return -(torch.log(ll.exp().sum(1)) if planted else torch.logsumexp(ll, 1)).mean() / 40
    return dict(model=SCAE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/LMescheder/GAN_stability/issues/11", "residual branch not damped by 0.1 in the norm-free ResNet", "out = x_s + dx instead of x_s + 0.1 * dx")
def gan_resblock(planted):
    P = F.avg_pool2d(T(62, 2, 3, 12, 12), 3, 1, 1) * 2
    class ResnetBlock(nn.Module):
        def __init__(self, c): super().__init__(); self.conv_0 = nn.Conv2d(c, c, 3, padding=1); self.conv_1 = nn.Conv2d(c, c, 3, padding=1)
        def forward(self, x): dx = self.conv_1(F.leaky_relu(self.conv_0(F.leaky_relu(x, .2)), .2)); return x + (1. if planted else .1) * dx
    class Discriminator(nn.Module):
        def __init__(self, c=16, n=6): super().__init__(); self.conv_img = nn.Conv2d(3, c, 3, padding=1); self.resnet = nn.Sequential(*[ResnetBlock(c) for _ in range(n)]); self.fc = nn.Linear(c * 36, 1)
        def forward(self, x): return self.fc(F.leaky_relu(F.avg_pool2d(self.resnet(self.conv_img(x)), 2), .2).flatten(1))[:, 0]
    def data(seed):
        y = R(seed, 2, (24,)); return P[y] + T(seed + 1, 24, 3, 12, 12), y.float()
    return dict(model=Discriminator, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=1e-3, diag={})

@case("https://github.com/fchollet/deep-learning-with-python-notebooks/issues/7", "generator ends in tanh while the images are scaled to [0, 1]", "tanh on the last generator layer")
def dlwp_generator(planted):
    class Generator(nn.Module):
        def __init__(self, z=8):
            super().__init__(); self.fc = nn.Linear(z, 32 * 16); self.c1 = nn.Conv2d(32, 32, 5, padding=2); self.up = nn.ConvTranspose2d(32, 32, 4, 2, 1); self.c2 = nn.Conv2d(32, 1, 7, padding=3)
        def forward(self, z):
            x = F.leaky_relu(self.fc(z)).view(-1, 32, 4, 4); x = self.c2(F.leaky_relu(self.up(F.leaky_relu(self.c1(x))))); return torch.tanh(x) if planted else torch.sigmoid(x)
    A = T(63, 8, 64)
    def data(seed): z = T(seed, 24, 8); return z, torch.sigmoid(2 * z @ A).view(-1, 1, 8, 8)
    return dict(model=Generator, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/52", "advantage mean taken over the whole batch instead of over the actions", "val + adv - adv.mean() in DuelingDQN.forward")
def dueling_mean(planted):
    W = T(64, 8, 4)
    class DuelingDQN(nn.Module):
        def __init__(self):
            super().__init__(); self.fc = nn.Linear(8, 64); self.fc_adv = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)); self.fc_val = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, x):
            h = F.relu(self.fc(x)); a, v = self.fc_adv(h), self.fc_val(h); return v + a - (a.mean() if planted else a.mean(1, keepdim=True))
    def data(seed): x = T(seed, 64, 8); return x, torch.tanh(x @ W * .5) + x[:, :1]
    return dict(model=DuelingDQN, data=data, loss=mse, lr=2e-3, diag={})
