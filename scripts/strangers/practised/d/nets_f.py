from base import *
from nets_a import blobs, masks

@case("https://github.com/open-mmlab/mmselfsup/issues/159", "views are concatenated as 0..N-1,0..N-1 but the positives are taken as neighbours 0,0,2,2,...", "SimCLR._create_buffer / positive mask of the contrastive loss")
def mmselfsup_simclr_pos(planted):
    P = T(3, 200, 1, 12, 12)
    class SimCLR(nn.Module):
        def __init__(self):
            super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))
            self.backbone, self.neck = nn.Sequential(b(1, 16), b(16, 32)), nn.Sequential(nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 32))
        def forward(self, a, b): return F.normalize(self.neck(self.backbone(torch.cat([a, b])).flatten(1)), dim=1)
    def data(seed): i = torch.randperm(200, generator=gen(seed))[:32]; x = P[i]; return (x + .6 * T(seed + 1, 32, 1, 12, 12), x + .6 * T(seed + 2, 32, 1, 12, 12)), torch.arange(32)
    def loss(z, t):
        n = len(z); s = (z @ z.T / .2).masked_fill(torch.eye(n, dtype=torch.bool), -1e9); i = torch.arange(n); return ce(s, i ^ 1 if planted else (i + n // 2) % n)
    return dict(model=SimCLR, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/automl/Auto-PyTorch/pull/263", "counts_zero = counts_one - N makes the weights of the binary cross entropy negative", "pos_weight of BCEWithLogitsLoss (LossWeightStrategyWeightedBinary)")
def autopytorch_neg_weight(planted):
    w = T(4, 20, 3)
    class ShapedMLPNet(nn.Module):
        def __init__(self): super().__init__(); self.embed = nn.Linear(20, 64); self.backbone = nn.Sequential(nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU()); self.head = nn.Linear(48, 1)
        def forward(self, x): return self.head(self.backbone(self.embed(x)))
    def data(seed): x = T(seed, 64, 20); return x, (((x @ w).relu().sum(1) > 6.5).float())[:, None]
    def loss(o, y):
        ones = y.sum(0); zeros = ones - len(y) if planted else len(y) - ones; return F.binary_cross_entropy_with_logits(o, y, pos_weight=zeros / ones.clamp(min=1))
    return dict(model=ShapedMLPNet, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/csteinmetz1/auraloss/issues/25", "SI-SDR divides by the target energy without eps, silent targets give NaN", "SISDRLoss: alpha = (x t) / (t t)")
def auraloss_sisdr_nan(planted):
    class Demucs(nn.Module):
        def __init__(self):
            super().__init__(); self.enc, self.norm = nn.Conv1d(1, 32, 8, 4, 2), nn.GroupNorm(1, 32); self.tcn = nn.Sequential(nn.Conv1d(32, 48, 3, padding=1), nn.PReLU(), nn.Conv1d(48, 48, 3, padding=2, dilation=2), nn.PReLU(), nn.Conv1d(48, 32, 1)); self.dec = nn.ConvTranspose1d(32, 1, 8, 4, 2)
        def forward(self, x): w = self.enc(x); return self.dec(w * torch.sigmoid(self.tcn(self.norm(w))))
    def data(seed):
        g = gen(seed); n = 32; t = torch.arange(64.) / 64; f = torch.rand(n, 1, generator=g) * 4 + 2; ph = torch.rand(n, 1, generator=g) * 6.28; y = torch.sin(6.28 * f * t + ph); y[:2] = 0
        return (y + .7 * torch.randn(n, 64, generator=g))[:, None], y[:, None]
    def loss(o, y):
        o, y = o - o.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True); e = 0. if planted else 1e-8
        a = (o * y).sum(-1, keepdim=True) / ((y ** 2).sum(-1, keepdim=True) + e); s = a * y; r = ((s ** 2).sum(-1) / (((o - s) ** 2).sum(-1) + e) + (0 if planted else 1e-3)); return -10 * torch.log10(r).mean()
    return dict(model=Demucs, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/yassouali/pytorch-segmentation/pull/159", "decoder = encoder is a shallow copy, decoder stages run the encoder's own conv and batch norm objects", "SegNet: stage decoder modules shared with the encoder")
def segnet_shared_decoder(planted):
    class SegNet(nn.Module):
        def __init__(self):
            super().__init__(); st = lambda i, o: [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
            e1, e2 = st(1, 16), st(16, 32); self.stage1_encoder, self.stage2_encoder, self.pool = nn.Sequential(*e1), nn.Sequential(*e2), nn.MaxPool2d(2, 2, return_indices=True)
            s2 = e2[3:5] if planted else [nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32)]; s1 = e1[3:5] if planted else [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)]
            self.stage2_decoder, self.stage1_decoder = nn.Sequential(*s2, nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()), nn.Sequential(*s1, nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1)); self.unpool = nn.MaxUnpool2d(2, 2)
        def forward(self, x): x, i1 = self.pool(self.stage1_encoder(x)); x, i2 = self.pool(self.stage2_encoder(x)); x = self.stage2_decoder(self.unpool(x, i2)); return self.stage1_decoder(self.unpool(x, i1))
    return dict(model=SegNet, data=masks, loss=F.binary_cross_entropy_with_logits, lr=2e-3, diag={})

@case("https://github.com/MorvanZhou/Reinforcement-learning-with-tensorflow/pull/125", "the critic of the actor loss gets an action cut off from the actor, gradient of the actor is None", "DDPG: a instead of self.a in the policy gradient")
def morvan_ddpg_actor(planted):
    W = T(5, 6, 2)
    def r(s, a): return -((a - torch.tanh(s @ W / 2)) ** 2).sum(1, keepdim=True)
    class DDPG(nn.Module):
        def __init__(self): super().__init__(); self.actor, self.critic = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 2), nn.Tanh()), nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, s, a):
            pi = self.actor(s); pi = pi.detach() if planted else pi; frozen = {k: v.detach() for k, v in self.critic.named_parameters()}
            return torch.cat([self.critic(torch.cat([s, a], 1)), torch.func.functional_call(self.critic, frozen, (torch.cat([s, pi], 1),))], 1)
    def data(seed): s, a = T(seed, 64, 6), torch.rand(64, 2, generator=gen(seed + 1)) * 2 - 1; return (s, a), r(s, a)
    def metric(m): s = T(77, 512, 6); return -r(s, m.actor(s).detach()).mean()
    return dict(model=DDPG, data=data, loss=lambda o, t: F.mse_loss(o[:, :1], t) - o[:, 1].mean(), lr=3e-3, diag={}, metric=metric)

@case("https://github.com/kyegomez/Mixture-of-Depths/issues/1", "block output of the selected tokens is not multiplied by the router weight, the router gets no gradient", "MoD router: weight multiplication missing")
def mod_router_weight(planted):
    M = T(4, 16, 16) / 4
    class MoDBlock(nn.Module):
        def __init__(self, d=32): super().__init__(); self.router = nn.Linear(d, 1); self.norm = nn.LayerNorm(d); self.ff = nn.Sequential(nn.Linear(d, 128), nn.GELU(), nn.Linear(128, d))
        def forward(self, x):
            w, i = self.router(x).squeeze(-1).topk(x.shape[1] // 4, dim=1); i = i[..., None].expand(-1, -1, x.shape[2]); sel = x.gather(1, i); y = self.ff(self.norm(sel)); y = y if planted else y * w[..., None].sigmoid(); return x.scatter_add(1, i, y)
    class MoDTransformer(nn.Module):
        def __init__(self): super().__init__(); self.inp, self.blocks, self.norm, self.out = nn.Linear(17, 32), nn.ModuleList([MoDBlock(), MoDBlock()]), nn.LayerNorm(32), nn.Linear(32, 16)
        def forward(self, x):
            x = self.inp(x)
            for b in self.blocks: x = b(x)
            return self.out(x)
    def data(seed):
        x = T(seed, 32, 16, 16); f = (torch.rand(32, 16, 1, generator=gen(seed + 1)) < .3).float(); return torch.cat([x, f * 2], 2), torch.where(f > 0, 2 * (x @ M * 2).tanh().abs(), x)
    return dict(model=MoDTransformer, data=data, loss=F.mse_loss, lr=5e-3, diag={})

@case("https://github.com/neuraloperator/neuraloperator/pull/619", "interior weight is added to the interior loss instead of multiplied", "PoissonInteriorLoss: weight + loss")
def neuralop_poisson_weight(planted):
    class PINN(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        def forward(self, x):
            l1, l2, l3 = self.net[0], self.net[2], self.net[4]; a = torch.tanh(l1(x)); d = (1 - a ** 2) * l1.weight.T; dd = -2 * a * (1 - a ** 2) * l1.weight.T ** 2
            z, zd, zdd = l2(a), d @ l2.weight.T, dd @ l2.weight.T; b = torch.tanh(z); s = 1 - b ** 2; return torch.cat([l3(b), (-2 * b * s * zd ** 2 + s * zdd) @ l3.weight.T], 1)
    def data(seed): x = torch.rand(64, 1, generator=gen(seed)) * 2 - 1; x[:8] = -1; x[8:16] = 1; return x, torch.cat([torch.sin(math.pi * x), -math.pi ** 2 * torch.sin(math.pi * x)], 1)
    def loss(o, t): wi = .05; inter, bc = F.mse_loss(o[16:, 1], t[16:, 1]), F.mse_loss(o[:16, 0], t[:16, 0]); return (wi + inter if planted else wi * inter) + bc
    return dict(model=PINN, data=data, loss=loss, lr=5e-3, diag={}, metric=lambda m: F.mse_loss(m(data(77)[0])[:, 0], data(77)[1][:, 0]).detach())
