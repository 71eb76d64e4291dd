from base import *

@case("https://github.com/alexlee-gk/video_prediction/issues/3", "latent (used as log-variance) computed with the default ReLU activation", "latent_std convolution with ReLU in the SV2P encoder tower")
def sv2p_relu_latent(planted):
    class SV2P(nn.Module):
        def __init__(self, C=16):
            super().__init__(); self.tower = nn.Sequential(nn.Conv2d(4, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU()); self.latent_mean, self.latent_std = nn.Conv2d(32, 4, 3, 1, 1), nn.Conv2d(32, 4, 3, 1, 1)
            self.c1 = nn.Conv2d(1, C, 3, 1, 1); self.c2 = nn.Conv2d(C + 4, 32, 3, 1, 1); self.c3 = nn.Conv2d(32, 32, 3, 1, 1); self.out = nn.Conv2d(32, 3, 3, 1, 1)
        def forward(self, frames):
            h = self.tower(frames); mu, lv = self.latent_mean(h), self.latent_std(h)
            if planted: lv = F.relu(lv)
            z = mu + torch.randn_like(mu) * (.5 * lv).exp()
            g = torch.cat([F.relu(self.c1(frames[:, :1])), F.interpolate(z, scale_factor=4)], 1)
            return self.out(F.relu(self.c3(F.relu(self.c2(g))))), mu, lv
    def data(seed):
        x = F.interpolate(T(seed, 16, 1, 4, 4), size=16, mode="bilinear"); v = R(seed + 1, 3, (16,)) - 1
        f = torch.stack([torch.stack([torch.roll(x[i, 0], int(v[i]) * 2 * k, 1) for k in range(4)]) for i in range(16)])
        return f, f[:, 1:]
    def loss(o, t): y, mu, lv = o; return F.mse_loss(y, t) + 1e-4 * (-.5 * (1 + lv - mu ** 2 - lv.exp())).mean()
    return dict(model=SV2P, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/samet-akcay/skip-ganomaly/issues/5", "latent loss is computed on the features of a detached fake image", "err_g_lat with x_fake.detach()")
def skip_ganomaly_latent(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e1, self.e2 = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2)), nn.Sequential(nn.Conv2d(16, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.2))
            self.d2, self.d1 = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU()), nn.Sequential(nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh())
            self.netd = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2))
            for p in self.netd.parameters(): p.requires_grad_(False)
        def forward(self, x):
            a = self.e1(x); fake = self.d1(torch.cat([self.d2(self.e2(a)), a], 1))
            return fake, self.netd(x), self.netd(fake.detach() if planted else fake)
    def data(seed): x = torch.tanh(F.interpolate(T(seed, 16, 1, 4, 4), size=16, mode="bilinear") * 2); return x, x
    def loss(o, x): fake, fr, ff = o; return 10 * F.l1_loss(fake, x) + F.mse_loss(ff, fr)
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/asdf2kr/BAM-CBAM-pytorch/issues/1", "BAM returns x + x * Mf although Mf already is 1 + sigmoid", "return x + (x * Mf)")
def bam_double(planted):
    class BAM(nn.Module):
        def __init__(self, C, r=4):
            super().__init__(); self.mlp = nn.Sequential(nn.Linear(C, C // r), nn.ReLU(), nn.Linear(C // r, C)); self.sp = nn.Sequential(nn.Conv2d(C, C // r, 1), nn.ReLU(), nn.Conv2d(C // r, C // r, 3, padding=4, dilation=4), nn.ReLU(), nn.Conv2d(C // r, 1, 1)); self.sigmoid = nn.Sigmoid()
        def forward(self, x):
            Mf = 1 + self.sigmoid(self.mlp(x.mean((2, 3)))[:, :, None, None] * self.sp(x)); return x + x * Mf if planted else x * Mf
    class Net(nn.Module):
        def __init__(self, C=16):
            super().__init__(); self.stem = nn.Conv2d(1, C, 3, 2, 1); self.stages = nn.ModuleList([nn.Sequential(nn.Conv2d(C, C, 3, 1, 1, bias=False), nn.BatchNorm2d(C), nn.ReLU()) for _ in range(4)]); self.bams = nn.ModuleList([BAM(C) for _ in range(4)]); self.fc = nn.Linear(C, 6)
        def forward(self, x):
            x = self.stem(x)
            for s, b in zip(self.stages, self.bams): x = b(x + s(x))
            return self.fc(x.mean((2, 3)))
    proto = T(3, 6, 1, 16, 16)
    def data(seed): y = R(seed, 6, (32,)); return proto[y] + T(seed + 1, 32, 1, 16, 16) * .5, y
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/frank-xwang/RIDE-LongTailRecognition/issues/2", "sign of the diversity loss: the experts' divergence is minimised instead of maximised", "diversity term of the RIDE loss")
def ride_diversity(planted):
    class RIDE(nn.Module):
        def __init__(self):
            super().__init__(); self.backbone = nn.Sequential(nn.Linear(32, 64), nn.ReLU()); self.experts = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)) for _ in range(3)])
        def forward(self, x): h = self.backbone(x); return torch.stack([e(h) for e in self.experts], 1)
    proto = T(1, 10, 32)
    def data(seed): y = (torch.rand(64, generator=gen(seed)) ** 2 * 10).long(); return proto[y] + T(seed + 1, 64, 32) * .7, y
    def loss(o, y):
        l = sum(F.cross_entropy(o[:, k], y) for k in range(3)); m = o.mean(1).detach()
        div = sum(F.kl_div(F.log_softmax(o[:, k], 1), F.softmax(m, 1), reduction="batchmean") for k in range(3))
        return l + (.2 if planted else -.2) * div
    return dict(model=RIDE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/alibaba/graph-learn/issues/153", "GCN aggregation sums neighbour features without the degree coefficients", "GCN layer: missing normalisation of the adjacency")
def graphlearn_gcn_norm(planted):
    class GCN(nn.Module):
        def __init__(self):
            super().__init__(); self.w = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)])
        def forward(self, x, adj):
            A = adj + torch.eye(adj.size(-1)); d = A.sum(-1).pow(-.5)
            if not planted: A = d.unsqueeze(-1) * A * d.unsqueeze(-2)
            for k, l in enumerate(self.w): x = l(A @ x); x = F.relu(x) if k < 2 else x
            return x
    proto = T(4, 4, 16)
    def data(seed):
        y = R(seed, 4, (4, 64)); same = (y.unsqueeze(1) == y.unsqueeze(2)).float(); act = torch.rand(4, 64, 1, generator=gen(seed + 1)) ** 2 * 1.6
        p = (.5 * same + .03) * act * act.transpose(1, 2); u = torch.rand(4, 64, 64, generator=gen(seed + 2)).triu(1); adj = ((u < p.triu(1)) & (u > 0)).float()
        return (proto[y] * .5 + T(seed + 3, 4, 64, 16) * 2, adj + adj.transpose(1, 2)), y
    return dict(model=GCN, data=data, loss=ceseq, lr=1e-2, diag={})
