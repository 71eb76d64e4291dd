from base import *
from nets_a import digits, HF
from nets_c import boxes

@case("https://www.javaroad.cn/questions/58769", "two raw regression targets (z about 560, a about 4.5) in one MSE", "out_z / targets")
def d_two_targets(planted):
    def data(s):
        x, b = boxes(s); z, a = (b[:, 1] - b[:, 0] - 5) / 1.41, (b[:, 0] - 3.5) / 2.29
        t = torch.stack([z, a], 1); return x, t * torch.tensor([150., 1.]) + torch.tensor([560., 4.5]) if planted else t
    def model():
        def f(s, x): h = s.body(x); return torch.cat([s.out_z(h), s.out_a(h)], 1)
        hd = lambda: nn.Sequential(nn.Linear(256, 10), nn.ReLU(), nn.Linear(10, 1))
        return M(f, body=nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()), out_z=hd(), out_a=hd())
    return dict(model=model, data=data, loss=mse)

@case("https://datascience.stackexchange.com/questions/62167/deep-q-network-disregards-input-giving-identical-output-no-matter-the-input-sta", "board coded by the numbers 0/5/8 instead of one-hot planes", "input coding")
def d_dqn_board(planted):
    def data(s):
        g = R(s, 6, (64,)); p = (g + 1 + R(s + 1, 5, (64,))) % 6
        b = torch.zeros(64, 6); b[range(64), g] = 5.; b[range(64), p] = 8.
        oh = torch.cat([(b == 5).float(), (b == 8).float()], 1); d = (g - p).float()
        q = torch.stack([.9 ** (d.abs() - d.sign().clamp(max=0).abs()) * 1., .9 ** (d.abs() - d.sign().clamp(min=0))], 1)
        q = torch.stack([torch.where(d < 0, .8 ** (-d - 1), .8 ** (d + 1)), torch.where(d > 0, .8 ** (d - 1), .8 ** (1 - d))], 1)
        q[(p == 0), 0] = -1.; q[(p == 5), 1] = -1.
        return (b if planted else oh), q
    return dict(model=lambda: nn.Sequential(nn.Linear(6 if planted else 12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2)), data=data, loss=mse)

@case("https://stats.stackexchange.com/questions/280318/deep-q-network-cannot-reduce-training-error", "1-D state fed raw in 0.35..0.65 (narrow, off centre)", "input")
def d_dqn_narrow(planted):
    def data(s):
        x = torch.rand(64, 1, generator=gen(s)) * .3 + .35; u = (x - .5) / .15
        q = torch.cat([(u - .4).abs(), u.abs(), (u + .4).abs()], 1) - .6
        return (x if planted else (x - .5) / .087), q
    return dict(model=lambda: nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)), data=data, loss=mse)

@case("https://ai.stackexchange.com/questions/34612/why-does-my-actor-critic-network-always-give-either-1-or-1-at-the-output-layer", "absolute pose (millimetres, degrees) fed raw to the actor: tanh saturates", "action_space / input")
def d_ddpg_actor(planted):
    W = T(81, 10, 4) * .3
    def data(s):
        u = T(s, 64, 10); sc = torch.tensor([.5] * 4 + [300.] * 3 + [60.] * 3)
        return (u * sc + torch.tensor([0.] * 4 + [400.] * 3 + [0.] * 3) if planted else u), (u @ W).tanh()
    def model():
        return nn.Sequential(nn.Linear(10, 300), nn.ReLU(), nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 4), nn.Tanh())
    return dict(model=model, data=data, loss=lambda a, best: ((a - best) ** 2).sum(1).mean())      # -Q(s, a) of a quadratic critic

@case("https://theneuralfeed.com/article/pinn-is-predicting-trivial-solution-for-stiff-ode-d/icfKmLcv", "stiff oscillator (k=400) in raw time: residual swamps the initial condition, trivial zero solution", "loss scaling / input")
def d_pinn_stiff(planted):
    w = 20.
    def data(s):
        t = torch.rand(64, 1, generator=gen(s)) * .1; return (t if planted else t * w), torch.zeros(64, 1)
    def model():
        def f(s, t):
            def d(y, x): return torch.autograd.grad(y.sum(), x, create_graph=True)[0]
            with torch.enable_grad():
                t = t if t.requires_grad else t.detach().requires_grad_(True)
                y = s.net(t); y1 = d(y, t); y2 = d(y1, t)
                r = y2 + 4. * y1 + w * w * y if planted else y2 + 4. / w * y1 + y
                t0 = torch.zeros_like(t).requires_grad_(True); y0 = s.net(t0); v0 = d(y0, t0)
            return torch.cat([r, y0 - 1, v0], 1)
        return M(f, net=nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)))
    return dict(model=model, data=data, loss=lambda o, t: (o ** 2).mean(0).sum())

@case("https://github.com/0bserver07/One-Hundred-Layers-Tiramisu/issues/11", "own dense block without the concatenations: each layer passes on only its growth", "DenseBlock")
def d_dense_noconcat(planted):
    def data(s):
        x, _ = boxes(s, 24); return x, (x[:, 0] > .5).long() * (1 + (x[:, 0].gt(.5).float().sum((1, 2)) > 24).long())[:, None, None]
    def model():
        def block(s, x, ls):
            for l in ls: y = l(x); x = y if planted else torch.cat([x, y], 1)
            return x
        def f(s, x):
            x = s.stem(x); x = block(s, x, s.b1); x = block(s, s.td(x), s.b2); return s.out(F.interpolate(x, scale_factor=2))
        g = 4
        def ls(c): return nn.ModuleList([nn.Sequential(nn.BatchNorm2d(k := (c if i == 0 or not planted else g) + (0 if planted else g * i)), nn.ReLU(), nn.Conv2d(k, g, 3, padding=1)) for i in range(4)])
        c1 = g if planted else 16 + 4 * g; c2 = g if planted else c1 + 4 * g
        return M(f, stem=nn.Conv2d(1, 16, 3, padding=1), b1=ls(16), td=nn.Sequential(nn.BatchNorm2d(c1), nn.ReLU(), nn.Conv2d(c1, c1, 1), nn.MaxPool2d(2)), b2=ls(c1), out=nn.Conv2d(c2, 3, 1))
    return dict(model=model, data=data, loss=ce)

@case("https://github.com/czq142857/IM-NET-pytorch/issues/5", "deep implicit decoder with sigmoid output and N(0,0.02) weights, skip connections removed", "hidden layers")
def d_imnet(planted):
    def data(s):
        z = T(s, 16, 8); p = torch.rand(16, 24, 3, generator=gen(s + 1)) * 2 - 1; r = .7 + .25 * z[:, :1].tanh()
        x = torch.cat([p, z[:, None].expand(-1, 24, -1)], 2); return x, ((p ** 2).sum(2).sqrt() < r).float()[..., None]
    def model():
        wd = [96, 96, 64, 64, 32]
        def f(s, x):
            h = x
            for l in s.ls: h = F.leaky_relu(l(h), .02); h = h if planted else torch.cat([h, x], 2)
            return s.out(h).sigmoid()
        ins = [11] + [a + (0 if planted else 11) for a in wd]
        m = M(f, ls=nn.ModuleList([nn.Linear(ins[i], wd[i]) for i in range(5)]), out=nn.Linear(ins[5], 1))
        for l in m.modules():
            if isinstance(l, nn.Linear): nn.init.normal_(l.weight, 0, .02); nn.init.zeros_(l.bias)
        return m
    return dict(model=model, data=data, loss=mse)

@case("https://discuss.pytorch.org/t/custom-conv2d-implementation-from-scratch-not-learning-correctly/174057", "hand-written conv filters from torch.randn (std 1), unscaled", "enc / dec weights")
def d_custom_conv(planted):
    def data(s): x, _ = digits(s, 32); x = x.view(-1, 1, 14, 14); return x, x
    def model():
        def f(s, x):
            B = x.shape[0]; u = F.unfold(x, 3)                                     # B, 9, 144
            e = torch.einsum('bdp,fd->bfp', u, s.enc).reshape(B, 10, 12, 12)
            return F.conv_transpose2d(e, s.dec)
        k = 1. if planted else 1 / 3
        return M(f, enc=nn.Parameter(torch.randn(10, 9) * k), dec=nn.Parameter(torch.randn(10, 1, 3, 3) * (k if planted else (1 / 90) ** .5)))
    return dict(model=model, data=data, loss=mse)

@case("http://hk.javashuo.com/article/p-mrjxlmph-gd.html", "squared_loss: y_hat (n,1) - y.view(-1)", "loss shapes")
def d_squared_loss(planted):
    W = T(82, 6, 3)
    def data(s): x = T(s, 32, 6); return x, (x @ W).tanh().sum(1)
    return dict(model=lambda: nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 1)), data=data,
                loss=lambda o, t: ((o - (t.view(-1) if planted else t.view(o.shape))) ** 2 / 2).mean())

