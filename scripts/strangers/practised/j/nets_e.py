from base import *
from nets_a import mlp, vec, imgs, bce, bcel
@case("https://coderoad.ru/58050105", "ReLU after the last linear layer before cross-entropy", "fc2/relu")
def relu_fc2(bug):
    def mk():
        n = [nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 100)]
        return nn.Sequential(*n, *([nn.ReLU()] if bug else []), nn.Linear(100, 10), *([nn.ReLU()] if bug else []))
    return dict(model=mk, data=imgs(32, noise=1.2), loss=ce, diag=CE)

@case("https://stats.stackexchange.com/questions/286424", "weights and biases from Math.random() in [0, 1): sigmoids saturate", "both layers")
def rand01(bug):
    d0 = imgs(32, H=16, noise=.6)
    def data(s): x, t = d0(s); return x.flatten(1).clamp(max=1), F.one_hot(t, 10).float()
    def mk():
        n = nn.Sequential(nn.Linear(256, 15), nn.Sigmoid(), nn.Linear(15, 10), nn.Sigmoid())
        for p in n.parameters(): nn.init.uniform_(p, 0 if bug else -.5, 1 if bug else .5)
        return n
    return dict(model=mk, data=data, loss=mse)

@case("https://intellipaat.com/community/11039", "product of two raw numbers, nothing scaled: hidden units saturate at once", "first layer/input, target")
def mult_raw(bug):
    def data(s): x = torch.rand(64, 2, generator=gen(s)) * 100; return x, (x[:, :1] * x[:, 1:])
    return dict(model=lambda: M(lambda m, x: m.n(x) if bug else m.n(x / 50 - 1) * 2500, n=nn.Sequential(nn.Linear(2, 30), nn.Sigmoid(), nn.Linear(30, 1))), data=data, loss=mse)

@case("https://markaicode.com/custom-gradients-non-differentiable-losses", "loss on thresholded predictions: no gradient", "loss/threshold")
def thresh(bug):
    W = T(3, 20, 1)
    def data(s): x = T(s, 64, 20); return x, (x @ W > 0).float()
    def loss(o, t): return ((t - (o > .5).float()).square().mean() + 0 * o.sum()) if bug else (t - o).square().mean()
    return dict(model=lambda: M(lambda m, x: m.n(x).sigmoid(), n=mlp(20, 32, 1)), data=data, loss=loss)

@case("https://datascience.stackexchange.com/questions/30298", "hard limit as activation: no gradient", "hardlim")
def hardlim(bug):
    def f(m, x): h = m.a(x); h = (h > 0).float() if bug else h.sigmoid(); return m.b(h)
    def data(s): x = T(s, 64, 4); return x, (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] + x[:, 3] > 0).long()
    return dict(model=lambda: M(f, a=nn.Linear(4, 32), b=nn.Linear(32, 4)), data=data, loss=ce, diag=CE)

@case("https://taourl.com/read-2675780.html", "all kernels zero: ReLU network predicts one number", "layers 1-3")
def zeros4(bug):
    def data(s): x = torch.rand(32, 10, generator=gen(s)); return x, x.sum(1, keepdim=True) + .1 * T(s + 1, 32, 1)
    def mk():
        n = mlp(10, 64, 64, 64, 1)
        for i, l in enumerate(n):
            if isinstance(l, nn.Linear): nn.init.zeros_(l.bias); nn.init.zeros_(l.weight) if bug and i < 6 else nn.init.xavier_uniform_(l.weight)
        return n
    return dict(model=mk, data=data, loss=mse)

@case("https://whosebug.com/question/2796462", "Dense(1) and softmax in a CNN: always predicts 1", "softmax")
def cnn_softmax1(bug):
    def data(s): x = T(s, 64, 4, 10); return x, (x[:, 0].sum(1) > 0).float()[:, None]
    def mk():
        n = nn.Sequential(nn.Conv1d(4, 16, 4, padding="same"), nn.BatchNorm1d(16), nn.LeakyReLU(), nn.Conv1d(16, 8, 4, padding="same"), nn.BatchNorm1d(8), nn.LeakyReLU(), nn.Flatten(), nn.Linear(80, 64), nn.BatchNorm1d(64), nn.LeakyReLU(), nn.Linear(64, 1), nn.Softmax(-1) if bug else nn.Sigmoid())
        return n
    return dict(model=mk, data=data, loss=bce)

@case("https://discuss.pytorch.org/t/cross-entropy-loss-is-not-decreasing/43814/16", "softmax handed to CrossEntropyLoss, behind ReLUs", "softmax")
def softmax_ce2(bug):
    return dict(model=lambda: M(lambda m, x: m.n(x.flatten(1)).softmax(-1) if bug else m.n(x.flatten(1)), n=mlp(144, 100, 50, 10)), data=imgs(32, noise=1.2), loss=ce, diag=CE)

@case("https://taourl.com/read-2483151.html", "contrastive log of exp(sim - max) that underflows: log 0", "loss/log")
def contrast_nan(bug):
    tm = T(3, 64, 20); P = T(9, 20, 20) * .3
    def data(s): k = torch.randperm(64, generator=gen(s))[:32]; return (tm[k] + .4 * T(s + 1, 32, 20), tm[k] @ P + .4 * T(s + 2, 32, 20)), torch.arange(32)
    def f(m, a, b): u, v = m.a(a), m.b(b); return u @ v.T / .1 if bug else F.normalize(u, dim=-1) @ F.normalize(v, dim=-1).T / .1
    def loss(o, t): e = torch.exp(o - o.max().detach()); return -torch.log(e.diagonal() / e.sum(1)).mean() if bug else -torch.log(e.diagonal() / (e.sum(1) + 1e-8) + 1e-8).mean()
    def net(): n = mlp(20, 64, 64); nn.init.kaiming_normal_(n[0].weight); nn.init.kaiming_normal_(n[2].weight); return n
    return dict(model=lambda: M(f, a=net(), b=net()), data=data, loss=loss)

@case("https://quaterion.qdrant.tech/tutorials/triplet_loss_trick.html", "batch-hard triplet loss collapses to one point (loss = margin)", "loss")
def triplet_hard(bug):
    tm = T(3, 12, 20)
    def data(s): t = torch.arange(8).repeat(4); k = torch.randperm(12, generator=gen(s))[:8]; return tm[k].repeat(4, 1) + 1.0 * T(s + 1, 32, 20), t
    def mk_loss(trick):
        def loss(o, t):
            d = (torch.cdist(o, o) ** 2 + 1e-9).sqrt(); same = t[:, None] == t; p = d.masked_fill(~same, 0).max(1)[0]; n = d.masked_fill(same, 1e9).min(1)[0]
            return F.relu((p - n) / n.mean() + .5).mean() if trick else F.relu(p - n + 5.).mean()
        return loss
    return dict(model=lambda: mlp(20, 64, 64, 32), data=data, loss=mk_loss(not bug))

@case("https://stats.stackexchange.com/questions/126994", "sigmoid output for a Q value, rewards between -1 and 1", "out/sigmoid")
def q1_sigmoid(bug):
    W = T(3, 4, 3)
    def data(s): x = torch.rand(64, 4, generator=gen(s)); a = R(s + 1, 3, (64,)); r = torch.tanh(3 * ((x - .5) @ W).gather(1, a[:, None]) - .5); return torch.cat([x, F.one_hot(a, 3).float()], 1), r
    def f(m, x): o = m.c(m.b(m.a(x).sigmoid()).sigmoid()); return o.sigmoid() if bug else o
    def mk():
        m = M(f, a=nn.Linear(7, 32), b=nn.Linear(32, 32), c=nn.Linear(32, 1))
        for l in (m.a, m.b): nn.init.normal_(l.weight, std=1.)
        return m
    return dict(model=mk, data=data, loss=mse)
