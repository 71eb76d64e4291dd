from base import *

@case("https://github.com/lululxvi/deepxde/issues/80", "ReLU in a physics-informed network: the second derivatives are zero", "activation in the FNN / the PDE residual")
def pinn_relu(planted):
    act = F.relu if planted else torch.tanh
    class FNN(nn.Module):
        def __init__(s):
            super().__init__(); s.linears = nn.ModuleList([nn.Linear(a, b) for a, b in ((1, 32), (32, 32), (32, 32), (32, 1))])
            for l in s.linears: nn.init.xavier_normal_(l.weight); nn.init.zeros_(l.bias)
        def net(s, x):
            for l in s.linears[:-1]: x = act(l(x))
            return s.linears[-1](x)
        def forward(s, x, xb):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True); u = s.net(x); u_x = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
                u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0] if u_x.requires_grad else torch.zeros_like(u_x)
            return u_xx, s.net(xb)
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)) * 2 - 1; xb = torch.tensor([[-1.], [1.]]).repeat(32, 1)
        return (x, xb), torch.cat([-math.pi ** 2 * torch.sin(math.pi * x), torch.zeros(64, 1)], 1)
    def loss(o, t): return F.mse_loss(o[0], t[:, :1]) + F.mse_loss(o[1], t[:, 1:])
    def metric(m):
        x = torch.linspace(-1, 1, 65)[:, None]
        with torch.no_grad(): return float(((m.net(x) - torch.sin(math.pi * x)) ** 2).mean())
    return dict(model=FNN, data=data, loss=loss, lr=5e-3, diag={}, metric=metric)

@case("https://github.com/akirasosa/mobile-semantic-segmentation/issues/24", "the loss is the dice coefficient itself instead of 1 - dice", "loss function (sign of dice)")
def dice_sign(planted):
    def cbr(i, o, k=1): return nn.Sequential(nn.Conv2d(i, o, 3, k, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU6())
    class MobileUNet(nn.Module):
        def __init__(s):
            super().__init__(); s.c1, s.c2, s.c3 = cbr(3, 12), cbr(12, 24, 2), cbr(24, 24)
            s.up = nn.ConvTranspose2d(24, 12, 2, 2); s.c4 = cbr(24, 12); s.score = nn.Conv2d(12, 1, 1)
        def forward(s, x):
            a = s.c1(x); b = s.c3(s.c2(a)); return torch.sigmoid(s.score(s.c4(torch.cat([a, s.up(b)], 1))))
    def data(seed):
        x = T(seed, 16, 3, 16, 16, k=.5); m = torch.zeros(16, 1, 16, 16); c = R(seed + 1, 9, (16, 2))
        for i in range(16): m[i, :, c[i, 0]:c[i, 0] + 7, c[i, 1]:c[i, 1] + 7] = 1
        return x + m * torch.tensor([.8, -.5, .3]).view(1, 3, 1, 1), m
    def dice_coef(p, t):
        p, t = p.flatten(), t.flatten(); return (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
    def loss(o, t): return dice_coef(o, t) if planted else 1 - dice_coef(o, t)
    return dict(model=MobileUNet, data=data, loss=loss, lr=3e-3, diag={})
