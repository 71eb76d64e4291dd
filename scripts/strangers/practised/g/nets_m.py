from base import *

def lin_task(seed, n=32, d=16, k=4, ts=7):
    x = T(seed, n, d); W = T(ts, d, k); return x, (x @ W).argmax(-1)
def img_task(seed, n=32, c=1, h=12, k=4, noise=.7, ts=5):
    P = T(ts, k, c, h, h); t = R(seed + 50000, k, (n,)); return P[t] + noise * T(seed, n, c, h, h), t

@case("https://github.com/thu-ml/tianshou/issues/725", "DQN network ends in a softmax: Q values are confined to [0, 1]", "softmax_output")
def dqn_softmax_output(planted):
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(self, s): q = self.model(s); return F.softmax(q, -1) if planted else q
    def td(o, t): return F.mse_loss(o.gather(1, t[:, :1].long()).squeeze(1), t[:, 1])
    def data(seed): s = T(seed, 64, 6); a = R(seed + 1, 4, (64,)); q = 5 + 2 * torch.tanh(s @ T(3, 6, 4)); return s, torch.stack([a.float(), q.gather(1, a[:, None]).squeeze(1)], 1)
    return dict(model=Net, data=data, loss=td, lr=1e-3, diag={})

@case("https://www.hotmolts.com/post/i-built-a-neural-network-from-scratch-tonight-and--8c4cec85-be19-40f3-bf4d-7697de11ca1d", "weights drawn from N(0,1): tanh units are saturated at +-1, loss stays at chance", "weight init")
def normal_init_tanh(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); dims = [32, 128, 128, 128, 128, 1]; self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])
            for l in self.layers: nn.init.normal_(l.weight, std=1. if planted else (2 / (l.in_features + l.out_features)) ** .5); nn.init.zeros_(l.bias)
        def forward(self, x):
            for l in self.layers[:-1]: x = torch.tanh(l(x))
            return torch.sigmoid(self.layers[-1](x))
    def bce(o, t): return F.binary_cross_entropy(o, t)
    def data(seed): x = T(seed, 48, 32); return x, (x @ T(3, 32, 1) > 0).float()
    return dict(model=Net, data=data, loss=bce, lr=1e-3, diag={})

@case("https://github.com/BAAI-DCAI/M3D/issues/52", "logit_scale is stored as log(1/0.07) but multiplied without exp()", "logit_scale")
def clip_scale_without_exp(planted):
    class CLIP(nn.Module):
        def __init__(self): super().__init__(); self.vision = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)); self.text = nn.EmbeddingBag(20, 16); self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / .07))
        def forward(self, x, w): i, t = F.normalize(self.vision(x), dim=-1), F.normalize(self.text(w), dim=-1); return (self.logit_scale if planted else self.logit_scale.exp()) * i @ t.T
    def clip(o, t): return (F.cross_entropy(o, t) + F.cross_entropy(o.T, t)) / 2
    def data(seed): w = R(seed, 20, (32, 4)); return (T(3, 20, 32)[w].mean(1) + .2 * T(seed, 32, 32), w), torch.arange(32)
    return dict(model=CLIP, data=data, loss=clip, lr=5e-3, diag={})
