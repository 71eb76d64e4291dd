from base import *

@case("https://github.com/instadeepai/Mava/pull/805", "value clipping compares normalised new values with de-normalised old values", "loss: old_values in clip")
def mava_valueclip(planted):
    W = T(5, 20, 1, k=.22)
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.obs = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); self.value = nn.Linear(64, 1)
        def forward(self, o): return self.value(self.obs(o)).squeeze(-1)
    def loss(v, t):
        target, old = t; clipped = old + (v - old).clamp(-.2, .2)
        return torch.maximum((v - target) ** 2, (clipped - target) ** 2).mean()
    def data(seed):
        x = T(seed, 64, 20); t = torch.tanh((x @ W)[:, 0]) * 1.3; old = t + .4 * T(seed + 1, 64)
        return x, (t, old * 20 + 50 if planted else old)
    return dict(model=Critic, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/thu-ml/tianshou/pull/155", "returns [N] minus value [N, 1] broadcast to [N, N] in A2C", "loss: r - v")
def tianshou_a2c(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.preprocess = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); self.actor = nn.Linear(64, 4); self.critic = nn.Linear(64, 1)
        def forward(self, obs): h = self.preprocess(obs); return self.actor(h), self.critic(h)
    def loss(o, t):
        logits, v = o; a, r = t; logp = torch.distributions.Categorical(logits=logits).log_prob(a)
        if not planted: v = v.flatten()
        adv = r - v
        return -(logp * adv.detach()).mean() + .5 * adv.pow(2).mean() - .01 * torch.distributions.Categorical(logits=logits).entropy().mean()
    W = T(6, 12, 4)
    def data(seed):
        x = T(seed, 64, 12); best = (x @ W).argmax(1); a = R(seed + 1, 4, (64,))
        return x, (a, (a == best).float() * 2 + torch.tanh(x[:, 0]) * 2)
    def metric(model):
        x = T(9999, 256, 12)
        with torch.no_grad(): return F.mse_loss(model(x)[1].flatten(), .5 + torch.tanh(x[:, 0]) * 2)
    return dict(model=Net, data=data, loss=loss, lr=1e-3, metric=metric, diag={})

@case("https://github.com/LucasAlegre/morl-baselines/issues/88", "actions [N, 1]: log_prob broadcasts to [N, N]", "loss: log_prob(actions)")
def eupg_logprob(planted):
    W = T(9, 10, 3)
    class PolicyNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(12, 50), nn.Tanh(), nn.Linear(50, 3))
        def forward(self, obs, acc_reward): return self.net(torch.cat([obs, acc_reward], 1))
    def loss(logits, t):
        actions, ret = t; d = torch.distributions.Categorical(logits=logits)
        logp = d.log_prob(actions) if planted else d.log_prob(actions.squeeze(-1))
        return -torch.mean(logp * ret)
    def data(seed):
        x = T(seed, 64, 10); a = R(seed + 1, 3, (64, 1))
        return (x, T(seed + 2, 64, 2)), (a, ((x @ W).argmax(1) == a[:, 0]).float())
    def metric(model):
        x = T(9999, 256, 10)
        with torch.no_grad(): return F.cross_entropy(model(x, T(9998, 256, 2)), (x @ W).argmax(1))
    return dict(model=PolicyNet, data=data, loss=loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/Turoad/lanedet/issues/32", "sigmoid in the exist head and again in BCEWithLogitsLoss", "ExistHead sigmoid")
def lanedet_exist(planted):
    class ExistHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
            self.conv8 = nn.Conv2d(32, 6, 1); self.fc9 = nn.Linear(6 * 16, 64); self.fc10 = nn.Linear(64, 4)
        def forward(self, x):
            x = F.softmax(self.conv8(self.backbone(x)), 1); x = F.avg_pool2d(x, 2, 1, 1)[:, :, :4, :4].flatten(1)
            x = self.fc10(F.relu(self.fc9(x)))
            return torch.sigmoid(x) if planted else x
    B = T(21, 4, 3, 16, 16)
    def data(seed): t = R(seed, 2, (32, 4)); return torch.einsum("bk,kchw->bchw", t.float(), B) + .5 * T(seed + 1, 32, 3, 16, 16), t.float()
    return dict(model=ExistHead, data=data, loss=F.binary_cross_entropy_with_logits, lr=3e-3, diag={})

@case("https://github.com/DLTK/DLTK/pull/10", "multi-class Dice (softmax over channels) on a single output channel", "loss: softmax over one channel")
def dltk_dice(planted):
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            self.d1, self.d2, self.u1 = c(1, 8), c(8, 16), c(24, 8); self.last = nn.Conv2d(8, 1 if planted else 2, 1)
        def forward(self, x):
            a = self.d1(x); b = self.d2(F.max_pool2d(a, 2)); return self.last(self.u1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))
    def loss(o, t):
        p = F.softmax(o, 1); t = t[:, None].float()
        y = t if o.shape[1] == 1 else torch.cat([1 - t, t], 1)
        inter = (p * y).sum((2, 3)); return 1 - ((2 * inter + 1e-5) / (p.sum((2, 3)) + y.sum((2, 3)) + 1e-5)).mean()
    def data(seed):
        g = gen(seed); c = torch.rand(16, 2, 1, 1, generator=g) * 16 + 4; yy, xx = torch.meshgrid(torch.arange(24.), torch.arange(24.), indexing="ij")
        t = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2 < 20).long(); return t[:, None] * 1. + .6 * T(seed + 1, 16, 1, 24, 24), t
    def metric(model):
        x, t = data(9001); model.train()
        with torch.no_grad(): o = model(x)
        p = (F.softmax(o, 1)[:, 1] if o.shape[1] == 2 else F.softmax(o, 1)[:, 0]); t = t.float()
        return 1 - (2 * (p * t).sum() / (p.sum() + t.sum()))
    return dict(model=UNet, data=data, loss=loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/Deci-AI/super-gradients/issues/416", "loader not shuffled: each batch holds one class only", "data feeding (shuffle=False)")
def supergrad_shuffle(planted):
    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False); self.bn1 = nn.BatchNorm2d(16)
            self.c2 = nn.Conv2d(16, 16, 3, padding=1, bias=False); self.bn2 = nn.BatchNorm2d(16); self.linear = nn.Linear(16, 10)
        def forward(self, x):
            h = F.relu(self.bn1(self.conv1(x))); h = F.relu(h + self.bn2(self.c2(h))); return self.linear(h.mean((2, 3)))
    P = T(31, 10, 3, 3, 3)
    def data(seed):
        t = torch.full((32,), (seed // 15) % 10) if planted else R(seed, 10, (32,))
        x = T(seed + 1, 32, 3, 8, 8) * .5 + P[t].repeat(1, 1, 3, 3)[:, :, :8, :8]; return x, t
    return dict(model=ResNet, data=data, loss=ce, lr=3e-3, diag={})
