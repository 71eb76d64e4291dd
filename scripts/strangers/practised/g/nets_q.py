from base import *

@case("https://github.com/layog/Accurate-Binary-Convolution-Network/issues/6", "tf.sign of the filters and activations without a straight-through gradient", "sign() in the ABC layers")
def abc_sign_nograd(planted):
    def sign(x):
        b = torch.sign(x); return b if planted else x.clamp(-1, 1) + (b - x.clamp(-1, 1)).detach()
    class ABCConv(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.weight = nn.Parameter(torch.randn(o, i, 3, 3) * .1); s.alpha = nn.Parameter(torch.full((o, 1, 1), .1)); s.bn = nn.BatchNorm2d(i)
        def forward(s, x): return F.conv2d(sign(s.bn(x)), sign(s.weight), padding=1) * s.alpha
    class ABCNet(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1, s.conv2, s.conv3 = ABCConv(1, 12), ABCConv(12, 16), ABCConv(16, 24); s.fc1 = nn.Linear(24, 24); s.fc2 = nn.Linear(24, 4)
        def forward(s, x):
            x = F.max_pool2d(s.conv1(x), 2); x = s.conv3(s.conv2(x)); return s.fc2(F.relu(s.fc1(F.avg_pool2d(x, 5).flatten(1))))
    P = T(31, 4, 1, 3, 3, k=2.)
    def data(seed):
        y = R(seed, 4, (48,)); x = T(seed + 1, 48, 1, 10, 10)
        for k in range(3):
            r, c = R(seed + 2 + k, 8, (48,)), R(seed + 9 + k, 8, (48,))
            for b in range(48): x[b, :, r[b]:r[b] + 3, c[b]:c[b] + 3] = P[y[b]]
        return x, y
    return dict(model=ABCNet, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/33", "advantage: (B,) returns minus unsqueezed (B, 1) values gives (B, B)", "adv_v = vals_ref_v - value_v")
def a3c_adv_broadcast(planted):
    class AtariA2C(nn.Module):
        def __init__(s):
            super().__init__(); s.body = nn.Sequential(nn.Linear(6, 64), nn.ReLU()); s.policy = nn.Linear(64, 4); s.value = nn.Linear(64, 1)
        def forward(s, x):
            h = s.body(x); return torch.cat([s.policy(h), s.value(h)], 1)
    W = T(34, 6, 4)
    def data(seed):
        x = T(seed, 128, 6); a = R(seed + 5, 4, (128,)); r = (a == (x @ W).argmax(1)).float() + 3 * x[:, 0]
        return x, torch.stack([a.float(), r], 1)
    def loss(o, t):
        logits, value_v = o[:, :4], o[:, 4:]; a, ref = t[:, 0].long(), t[:, 1]
        adv = ref - (value_v if planted else value_v.squeeze(-1)).detach()
        lp = F.log_softmax(logits, 1); p = lp.exp(); w = (lp[torch.arange(len(a)), a].exp() * 4).detach().clamp(max=4)
        return F.mse_loss(value_v.squeeze(-1), ref) - (adv * w * lp[torch.arange(len(a)), a]).mean() + .01 * (p * lp).sum(1).mean()
    def metric(m):
        x, _ = data(9000)
        with torch.no_grad(): p = torch.softmax(m(x)[:, :4], 1)
        return 1 - float(p.gather(1, (x @ W).argmax(1, keepdim=True)).mean())
    return dict(model=AtariA2C, data=data, loss=loss, lr=5e-3, diag={}, metric=metric)
