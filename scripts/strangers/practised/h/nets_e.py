from base import *

@case("https://github.com/microsoft/ProDA/issues/43", "distillation: softmax, not log_softmax, of the student into F.kl_div", "loss (kl_div) / student softmax")
def kd_softmax(bug):
    torch.manual_seed(4); Te = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 6)).requires_grad_(False); Te[2].weight.mul_(4)
    def data(s): x = T(s, 64, 12); return x, Te(x).softmax(1)
    def loss(o, t): return F.kl_div(o.softmax(1) if bug else o.log_softmax(1), t, reduction="batchmean")
    return dict(model=lambda: M(lambda m, x: m.net(x), net=nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 6))), data=data, loss=loss)

class Moe(nn.Module):
    def __init__(s, mode, d=8, n=4): super().__init__(); s.mode = mode; s.gate = nn.Linear(d, n, bias=False); s.experts = nn.ModuleList([nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(n)])
    def forward(s, x):
        l = s.gate(x)
        if s.mode == "top1softmax": v, i = l.topk(1, 1); w = v.softmax(1)
        elif s.mode == "norm1": v, i = l.softmax(1).topk(1, 1); w = v / (v.sum(-1, keepdim=True) + 1e-20)
        else: v, i = l.softmax(1).topk(1, 1); w = v
        y = torch.stack([e(x) for e in s.experts], 1).squeeze(-1); return (y.gather(1, i) * w).sum(1)
def moedata(s): x = T(s, 128, 8); return x, torch.where(x[:, 0] > 0, 2 * x[:, 1], -2 * x[:, 1])
@case("https://github.com/davidmrau/mixture-of-experts/issues/27", "MoE with k=1: softmax over the single selected logit is 1, the gate gets zero gradient", "gate")
def moe_softmax1(bug): return dict(model=lambda: Moe("top1softmax" if bug else "ok"), data=moedata, loss=mse, diag=MSE)
@case("https://github.com/jingyaogong/minimind/pull/859", "MoE with k=1 and norm_topk_prob: weight / (weight.sum + 1e-20) is 1, gate gradient only rounding (1e-10)", "gate")
def moe_norm1(bug): return dict(model=lambda: Moe("norm1" if bug else "ok"), data=moedata, loss=mse, diag=MSE)

@case("https://github.com/fastai/fastai/pull/3439", "dice loss summed over batch, classes and pixels at once: background drowns the foreground", "loss")
def fastai_dice(bug):
    def data(s):
        t = torch.zeros(16, 16, 16, dtype=torch.long)
        for b in range(16): r = R(s * 31 + b, 12, (2,)); t[b, r[0]:r[0] + 3, r[1]:r[1] + 3] = 1 + b % 2
        return torch.stack([(t == 1).float(), (t == 2).float()], 1) * 1.5 + T(s + 1, 16, 2, 16, 16, k=.9), t
    def loss(o, t):
        p = o.softmax(1); y = F.one_hot(t, 3).permute(0, 3, 1, 2).float(); d = (0, 1, 2, 3) if bug else (2, 3)
        return (1 - (2 * (p * y).sum(d) + 1e-2) / ((p + y).sum(d) + 1e-2)).mean()
    return dict(model=lambda: M(lambda m, x: m.net(x), net=nn.Sequential(nn.Conv2d(2, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 3, 1))), data=data, loss=loss)

@case("https://github.com/Peachypie98/CBAM/issues/2", "spatial attention without the sigmoid: the raw map multiplies the features", "sam")
def cbam_nosigmoid(bug):
    P = T(5, 5, 1, 16, 16)
    def data(s): k = R(s, 5, (32,)); return P[k] + T(s + 1, 32, 1, 16, 16, k=1.5), k
    def sam(c, x): a = c(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)); return (a if bug else a.sigmoid()) * x
    def f(m, x):
        h = m.c1(x).relu()
        for c, s in zip(m.cs, m.sams): h = sam(s, c(h).relu())
        return m.fc(F.avg_pool2d(h, 4).flatten(1))
    return dict(model=lambda: M(f, c1=nn.Conv2d(1, 24, 3, padding=1), cs=nn.ModuleList([nn.Conv2d(24, 24, 3, padding=1) for _ in range(2)]), sams=nn.ModuleList([nn.Conv2d(2, 1, 7, padding=3) for _ in range(2)]), fc=nn.Linear(24 * 16, 5)), data=data, loss=ce, diag=CE)

@case("https://github.com/JuliaReinforcementLearning/ReinforcementLearningZoo.jl/pull/169", "PPO: log_p' of shape (N, 1) minus log_p of (N,): the ratio is an N x N matrix", "loss / log_prob shape")
def ppo_broadcast(bug):
    W = T(3, 6, 2) * .5
    def data(s): x = T(s, 64, 6); a = T(s + 1, 64, 2); adv = -((a - torch.tanh(x @ W)) ** 2).sum(1) + 2.3; return (x, a), torch.stack([adv, -.5 * (a ** 2).sum(1)], 1)
    def f(m, x, a): mu = m.net(x); return (-.5 * (a - mu) ** 2).sum(1, keepdim=True)
    def loss(o, t):
        r = ((o if bug else o.squeeze(1)) - t[:, 1]).exp(); return -torch.min(r * t[:, 0], r.clamp(.3, 1.7) * t[:, 0]).mean()
    def mk():
        n = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 2)); n[2].weight.data.mul_(.01); n[2].bias.data.zero_(); return M(f, net=n)
    return dict(model=mk, data=data, loss=loss)

@case("https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/66", "distillation: the large model's logits on both sides of the KL: the student's soft loss has no gradient", "loss (soft term)")
def labml_kd(bug):
    torch.manual_seed(4); Te = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 6)); Te[2].weight.data.mul_(4)
    def data(s): x = T(s, 64, 12); return x, Te(x).detach().argmax(1)
    def f(m, x):
        with torch.no_grad(): l = m.large(x)
        return m.net(x), l
    def loss(o, t): s, l = o; q = l if bug else s; return F.kl_div((q / 2).log_softmax(1), (l / 2).softmax(1), reduction="batchmean") * 50 * .9 + .1 * F.cross_entropy(s, t)
    import copy
    return dict(model=lambda: M(f, net=nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 6)), large=copy.deepcopy(Te).requires_grad_(False)), data=data, loss=loss)
