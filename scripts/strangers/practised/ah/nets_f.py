from base import *
W1, W2 = T(11, 8, 32, k=.5), T(12, 32, 4, k=.5)
def rewards(s): return torch.tanh(s @ W1) @ W2

@case("https://github.com/thu-ml/tianshou/issues/440", "Atari frames fed into the CNN as 0..255, not divided by 255", "input scale of the conv net")
def tianshou_obs_scale(planted):
    class DQN(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Conv2d(4, 16, 4, stride=2), nn.ReLU(inplace=True), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(inplace=True), nn.Linear(64, 4))
        def forward(s, obs): return s.net(obs.float() if planted else obs.float() / 255.)
    def data(seed):
        G = gen(seed); n = 32; py, by = torch.randint(2, 18, (n,), generator=G), torch.randint(2, 18, (n,), generator=G); bx = torch.randint(2, 16, (n,), generator=G)
        f = torch.full((n, 4, 20, 20), 87, dtype=torch.uint8); i = torch.arange(n)
        for d in (-1, 0, 1):
            f[i, :, (py + d), 18] = 236
            for e in (-1, 0, 1): f[i, :, by + d, bx + e] = 236
        a = torch.randint(0, 4, (n,), generator=G); g = (py - by).float() / 8
        q = torch.stack([-g.abs(), g, -g, .5 - bx.float() / 16], 1)
        return f, (a, q[i, a])
    def loss(q, t): return F.smooth_l1_loss(q.gather(1, t[0][:, None]).squeeze(1), t[1])
    return dict(model=DQN, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/dennybritz/reinforcement-learning/pull/104", "fully_connected default activation (ReLU) on the Q output layer: no negative values", "predictions layer ReLU")
def dqn_relu_predictions(planted):
    class Estimator(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(8, 64); s.fc2 = nn.Linear(64, 64); s.predictions = nn.Linear(64, 4)
        def forward(s, x): h = s.predictions(F.relu(s.fc2(F.relu(s.fc1(x))))); return F.relu(h) if planted else h
    def data(seed): x = T(seed, 32, 8); a = R(seed + 1, 4, (32,)); q = rewards(x) * .5 - 1.; return x, (a, q.gather(1, a[:, None]).squeeze(1))
    def loss(q, t): return F.mse_loss(q.gather(1, t[0][:, None]).squeeze(1), t[1])
    return dict(model=Estimator, data=data, loss=loss, lr=2e-3, diag={})

def regret(model, wv):
    x = T(777, 512, 8); r = rewards(x)
    with torch.no_grad(): logits, v = model(x)[:2]
    return float((r.max(1)[0] - (logits.softmax(1) * r).sum(1)).mean() + wv * F.mse_loss(v.flatten(), r.mean(1)))

@case("https://github.com/keras-team/keras-io/issues/194", "actor loss uses ret - value without stop_gradient on value", "actor loss: diff = ret - value")
def keras_ac_stopgrad(planted):
    class ActorCritic(nn.Module):
        def __init__(s): super().__init__(); s.common = nn.Linear(8, 128); s.action = nn.Linear(128, 4); s.critic = nn.Linear(128, 1)
        def forward(s, x): h = F.relu(s.common(x)); return s.action(h), s.critic(h).squeeze(-1)
    def data(seed): x = T(seed, 64, 8); a = R(seed + 1, 4, (64,)); return x, (a, rewards(x).gather(1, a[:, None]).squeeze(1) + .1 * T(seed + 2, 64))
    def loss(o, t):
        logits, value = o; a, ret = t; logp = F.log_softmax(logits, 1).gather(1, a[:, None]).squeeze(1)
        diff = ret - (value if planted else value.detach())
        return (-logp * diff).mean() + F.huber_loss(value, ret)
    return dict(model=ActorCritic, data=data, loss=loss, lr=1e-3, diag={}, metric=lambda m: regret(m, 1.))

@case("https://github.com/jvmncs/safe-grid-agents/pull/28", "negative sign distributed through the min of the clipped PPO objective", "policy loss: min(-surr1, -surr2)")
def safegrid_ppo_min(planted):
    class PPO(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); s.pi = nn.Linear(64, 4); s.v = nn.Linear(64, 1)
        def forward(s, x): h = s.body(x); return s.pi(h), s.v(h).squeeze(-1)
    def data(seed): x = T(seed, 64, 8); a = R(seed + 1, 4, (64,)); r = rewards(x); return x, (a, r.gather(1, a[:, None]).squeeze(1), r.mean(1))
    def loss(o, t):
        logits, v = o; a, ret, base = t; ratio = (F.log_softmax(logits, 1).gather(1, a[:, None]).squeeze(1) + math.log(4)).exp(); adv = ret - base
        s1, s2 = ratio * adv, ratio.clamp(.8, 1.2) * adv
        pl = torch.min(-s1, -s2).mean() if planted else -torch.min(s1, s2).mean()
        return pl + .5 * F.mse_loss(v, ret)
    return dict(model=PPO, data=data, loss=loss, lr=1e-3, diag={}, metric=lambda m: regret(m, 1.))

@case("https://github.com/nlintz/TensorFlow-Tutorials/issues/83", "xavier_initializer with integer division stddev=1/shape[0] = 0: all weights zero, costs never change", "weights of the GAN MLPs (std 0)")
def nlintz_int_xavier(planted):
    class D(nn.Module):
        def __init__(s):
            super().__init__(); s.D_W1 = nn.Linear(64, 64); s.D_W2 = nn.Linear(64, 1)
            for m in (s.D_W1, s.D_W2): nn.init.normal_(m.weight, 0, 1 // m.in_features if planted else 1. / m.in_features); nn.init.zeros_(m.bias)
        def forward(s, x): return s.D_W2(F.relu(s.D_W1(x)))
    def data(seed):
        z = T(seed, 32, 6); real = torch.sigmoid(2 * z @ T(5, 6, 64)); fake = torch.full((32, 64), .5) + .3 * T(seed + 1, 32, 64)
        return torch.cat([real, fake.clamp(0, 1)]), torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])
    return dict(model=D, data=data, loss=F.binary_cross_entropy_with_logits, lr=3e-3, diag={})

@case("https://github.com/rll/deepul/issues/7", "MaskConv2d.forward never uses cond: the PixelCNN ignores the class", "MaskConv2d.forward (cond unused)")
def deepul_cond_ignored(planted):
    class MaskConv2d(nn.Conv2d):
        def __init__(s, typ, i, o, k, nc):
            super().__init__(i, o, k, padding=k // 2); m = torch.zeros(k, k); m[:k // 2] = 1; m[k // 2, :k // 2] = 1; m[k // 2, k // 2] = float(typ == "B"); s.register_buffer("mask", m); s.cond_op = nn.Linear(nc, o)
        def forward(s, x, cond=None):
            out = F.conv2d(x, s.weight * s.mask, s.bias, padding=s.padding)
            return out if planted or cond is None else out + s.cond_op(cond)[:, :, None, None]
    class PixelCNN(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.ModuleList([MaskConv2d("A", 1, 32, 7, 6), MaskConv2d("B", 32, 32, 5, 6), MaskConv2d("B", 32, 32, 5, 6), MaskConv2d("B", 32, 1, 1, 6)])
        def forward(s, x, y):
            c = F.one_hot(y, 6).float(); h = 2 * x - 1
            for k, l in enumerate(s.net): h = l(h if k == 0 else F.relu(h), c)
            return h
    P = (T(3, 6, 1, 8, 8) > 0).float()
    def data(seed):
        y = R(seed, 6, (32,)); flip = torch.rand(32, 1, 8, 8, generator=gen(seed + 1)) < .12; x = (P[y] - flip.float()).abs(); return (x, y), x
    return dict(model=PixelCNN, data=data, loss=F.binary_cross_entropy_with_logits, lr=2e-3, diag={})

@case("https://github.com/EvgenyKashin/gan-vis/issues/1", "self.bn2(x) called without assigning: second batchnorm has no effect", "bn2 (result discarded)")
def ganvis_bn2(planted):
    class Discriminator(nn.Module):
        def __init__(s): super().__init__(); s.conv1 = nn.Conv2d(1, 16, 4, 2, 1); s.bn1 = nn.BatchNorm2d(16); s.conv2 = nn.Conv2d(16, 32, 4, 2, 1); s.bn2 = nn.BatchNorm2d(32); s.fc = nn.Linear(32 * 16, 1)
        def forward(s, x):
            x = F.leaky_relu(s.bn1(s.conv1(x)), .2); x = s.conv2(x)
            if planted: s.bn2(x)
            else: x = s.bn2(x)
            return s.fc(F.leaky_relu(x, .2).flatten(1))
    def data(seed):
        k = torch.ones(1, 1, 3, 3) / 9; n = T(seed, 64, 1, 18, 18); real = F.conv2d(n[:32], k)[:, :, :16, :16] * 3; return torch.cat([real, n[32:, :, 1:17, 1:17]]), torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])
    return dict(model=Discriminator, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-3, diag={})
