from base import *
from tasks import *

@case("https://github.com/agrimgupta92/sgan/issues/56", "discriminator's real_classifier ends in a ReLU: outputs 0 at the beginning, gradient 0, losses stay at 1.386 / 0.693", "ReLU on the last layer of real_classifier")
def sgan_discriminator_relu(planted):
    def make_mlp(dims, last):
        layers = []
        for i, o in zip(dims[:-1], dims[1:]): layers += [nn.Linear(i, o), nn.ReLU()]
        return nn.Sequential(*(layers if last else layers[:-1]))
    class TrajectoryDiscriminator(nn.Module):
        def __init__(self, e=32, h=32):
            super().__init__(); self.spatial_embedding = nn.Linear(2, e); self.encoder = nn.LSTM(e, h); self.real_classifier = make_mlp([h, 64, 1], planted)
        def forward(self, traj_rel): _, (hn, _) = self.encoder(self.spatial_embedding(traj_rel)); return self.real_classifier(hn[0])
    def data(seed):
        n = 64; r = R(seed, 2, (n,)).float(); v = T(seed + 1, 1, n, 2, k=.4); f = (1 - r)[None, :, None]; x = v + T(seed + 2, 12, n, 2, k=.1); x = x + f * torch.tensor([.8, -.5]) * torch.linspace(-1, 1, 12)[:, None, None]; return x, r[:, None]
    return dict(model=TrajectoryDiscriminator, data=data, loss=F.binary_cross_entropy_with_logits, lr=3e-3, diag={})

@case("https://github.com/pytorch/pytorch/issues/16045", "loss between predicted [n, 1] and target [n]: broadcast to n x n, no error raised", "target shape in MSELoss")
def linreg_broadcast(planted):
    class LinearRegression(nn.Module):
        def __init__(self): super().__init__(); self.linear = nn.Linear(2, 1)
        def forward(self, x): return self.linear(x)
    def data(seed): x = T(seed, 64, 2); y = 1.0 + .9 * x[:, 0] - 2 * x[:, 1] + T(seed + 1, 64, k=.1); return x, (y if planted else y.reshape(64, 1))
    return dict(model=LinearRegression, data=data, loss=lambda o, t: nn.MSELoss()(o, t), lr=3e-2, diag={})

@case("https://github.com/akanimax/pro_gan_pytorch/issues/13", "LSGAN loss squares the mean of the error instead of averaging the squared error", "loss: (mean(dis) - 1)^2")
def progan_lsgan_square_of_mean(planted):
    class Discriminator(nn.Module):
        def __init__(self): super().__init__(); self.from_rgb = nn.Conv2d(1, 16, 1); self.conv_1 = nn.Conv2d(16, 32, 3, padding=1); self.conv_2 = nn.Conv2d(32, 32, 3, padding=1); self.conv_3 = nn.Linear(32 * 16, 1)
        def forward(self, x):
            x = F.leaky_relu(self.from_rgb(x), .2); x = F.avg_pool2d(F.leaky_relu(self.conv_1(x), .2), 2); x = F.avg_pool2d(F.leaky_relu(self.conv_2(x), .2), 2); return self.conv_3(x.flatten(1))[:, 0]
    def data(seed): a = faces(seed); b = torch.sigmoid(blur(T(seed + 9, 32, 1, 16, 16), 1) * 2.5); return torch.cat([a, b]), torch.cat([torch.ones(32), torch.zeros(32)])
    def loss(o, t):
        r, f = o[t == 1], o[t == 0]
        return .5 * ((r.mean() - 1) ** 2 + f.mean() ** 2) if planted else .5 * (((r - 1) ** 2).mean() + (f ** 2).mean())
    return dict(model=Discriminator, data=data, loss=loss, lr=1e-3, diag={})
