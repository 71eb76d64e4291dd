from base import *
def mlp(*d, act=nn.ReLU):
    l = []
    for a, b in zip(d, d[1:]): l += [nn.Linear(a, b), act()]
    return nn.Sequential(*l[:-1])
def vec(B, D, C, s0=7):
    W = T(s0, D, C)
    def data(s): x = T(s, B, D); return x, (x @ W).argmax(1)
    return data
def imgs(B, C=10, H=12, ch=1, noise=.4, scale=1., pos=True, s0=5):
    tm = T(s0, C, ch, H, H)
    def data(s):
        t = R(s, C, (B,)); x = tm[t] + noise * T(s + 1, B, ch, H, H)
        return (x.sub(x.mean()).clamp(min=0) if pos else x) * scale, t
    return data
def bce(o, t): return F.binary_cross_entropy(o, t)
def bcel(o, t): return F.binary_cross_entropy_with_logits(o, t)

@case("https://stackoverflow.com/questions/47241622", "softmax on a single output unit is always 1", "out/softmax")
def so_softmax1(bug):
    def data(s): x = T(s, 32, 12, 6); return x, (x[..., 0].sum(1) > 0).float()[:, None]
    def f(m, x): o = m.out(m.lstm(x)[0][:, -1]); return o.softmax(-1) if bug else o.sigmoid()
    return dict(model=lambda: M(f, lstm=nn.LSTM(6, 32, batch_first=True), out=nn.Linear(32, 1)), data=data, loss=bce)

@case("https://coderapp.vercel.app/answer/41722336", "sigmoid on Q values although rewards are -1 and +1", "out/sigmoid")
def q_sigmoid(bug):
    def data(s): x = R(s, 3, (64, 9)).float() - 1; a = R(s + 1, 9, (64,)); r = torch.where(x.gather(1, a[:, None])[:, 0] == 0, 1., -1.); return x, (a, r)
    def loss(o, t): return F.mse_loss(o.gather(1, t[0][:, None])[:, 0], t[1])
    return dict(model=lambda: M(lambda m, x: m.n(x).sigmoid() if bug else m.n(x), n=mlp(9, 64, 64, 9)), data=data, loss=loss)

@case("http://ansaurus.com/question/3644795-neural-network-python", "tanh output where targets are 1..4", "out/tanh")
def tanh_1234(bug):
    def data(s): x = T(s, 64, 2); return x, (2.5 + 1.2 * torch.sin(x[:, :1]) + .5 * torch.tanh(x[:, 1:])).round().clamp(1, 4)
    return dict(model=lambda: M(lambda m, x: m.n(x).tanh() if bug else m.n(x), n=mlp(2, 32, 1, act=nn.Tanh)), data=data, loss=mse)

@case("http://stackoverflow.com.mevn.net/questions/52800582", "inputs of +-100 and targets of 1e8, neither scaled: first sigmoid saturates, output cannot reach", "first layer / output scale")
def x4(bug):
    def data(s): x = T(s, 64, 1).tanh() * 100; return x, x ** 4
    def f(m, x): return m.n(x) if bug else m.n(x / 100 * 3) * 1e8
    return dict(model=lambda: M(f, n=nn.Sequential(nn.Linear(1, 50), nn.Sigmoid(), nn.Linear(50, 50), nn.ELU(), nn.Linear(50, 1))), data=data, loss=mse)

@case("https://stats.stackexchange.com/questions/367057", "pixels 0..255 not normalised", "first layer/input")
def px255(bug):
    d0 = imgs(32, noise=1.2, scale=100.)
    def data(s): x, t = d0(s); return x.clamp(max=255.).round(), t
    def mk():
        n = mlp(144, 128, 128, 10)
        for l in n:
            if isinstance(l, nn.Linear): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        return M(lambda m, x: m.n(x.flatten(1) / (1 if bug else 255)), n=n)
    return dict(model=mk, data=data, loss=ce, diag=CE)

@case("https://imathworks.com/cv/solved-why-the-accuracy-of-the-neural-network-is-falling-when-epoch-increases", "no sigmoid before binary cross-entropy, which clips to [eps, 1-eps]", "out/loss")
def no_sigmoid(bug):
    def data(s): x = T(s, 32, 10, 3); return x, (x[..., 0].mean(1) > 0).float()[:, None]
    def loss(o, t): p = o.clamp(1e-7, 1 - 1e-7); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    def f(m, x): o = m.out(m.lstm(x)[0][:, -1]); return o if bug else o.sigmoid()
    return dict(model=lambda: M(f, lstm=nn.LSTM(3, 16, batch_first=True), out=nn.Linear(16, 1)), data=data, loss=loss)

@case("http://pullrequest.ru/11818227", "both layers zero, softmax between", "l1,l2")
def zeros_softmax(bug):
    def mk():
        a, b = nn.Linear(64, 10), nn.Linear(10, 10)
        for l in (a, b):
            for p in l.parameters(): nn.init.zeros_(p) if bug else nn.init.trunc_normal_(p, std=.1)
        return M(lambda m, x: m.b(m.a(x).softmax(-1) if bug else m.a(x).sigmoid()), a=a, b=b)
    return dict(model=mk, data=vec(64, 64, 10), loss=ce, diag=CE)

@case("https://stats.stackexchange.com/questions/316898", "both weight matrices zero: all hidden units stay alike", "l1,l2")
def zeros_sigmoid(bug):
    def mk():
        a, b = nn.Linear(64, 100), nn.Linear(100, 10)
        for l in (a, b):
            nn.init.zeros_(l.bias)
            nn.init.zeros_(l.weight) if bug else nn.init.normal_(l.weight, std=.1)
        return M(lambda m, x: m.b(m.a(x).sigmoid()), a=a, b=b)
    return dict(model=mk, data=vec(64, 64, 10), loss=ce, diag=CE)

@case("https://e-com-net.com/article/1281957349447188480.htm", "truncated normal of std 1 with ReLU", "all weights")
def std1_relu(bug):
    def mk():
        n = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 128), nn.ReLU(), nn.Linear(128, 10))
        for p in n.parameters(): nn.init.trunc_normal_(p, std=1. if bug else .1) if p.dim() > 1 else nn.init.constant_(p, .1)
        return n
    return dict(model=mk, data=imgs(32, noise=.8), loss=ce, diag=CE)

@case("https://blog.csdn.net/weixin_38314865/article/details/106174761", "weights and bias of a conv all negative: ReLU dead, output constant", "conv2")
def dead_conv(bug):
    def mk():
        c2 = nn.Conv2d(8, 16, 3, padding=1)
        if bug: nn.init.uniform_(c2.weight, -.1, 0); nn.init.uniform_(c2.bias, -.1, 0)
        return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), c2, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 10))
    return dict(model=mk, data=imgs(32, noise=.8), loss=ce, diag=CE)

@case("https://github.com/tensorflow/docs/pull/1034", "softmax before a loss that takes logits", "softmax")
def softmax_ce(bug):
    def mk():
        n = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 10))
        return nn.Sequential(n, nn.Softmax(-1)) if bug else nn.Sequential(n)
    return dict(model=mk, data=imgs(32, noise=.8), loss=ce, diag=CE)

@case("https://thecodeforge.io/ml-ai/pytorch-neural-network/", "a layer made anew in every forward", "hidden layer of forward")
def layer_in_forward(bug):
    def f(m, x):
        h = m.a(x).relu(); l = nn.Linear(64, 64) if bug else m.h
        return m.b(l(h).relu())
    def mk():
        k = dict(a=nn.Linear(20, 64), b=nn.Linear(64, 5))
        if not bug: k["h"] = nn.Linear(64, 64)
        return M(f, **k)
    return dict(model=mk, data=vec(32, 20, 5), loss=ce, diag=CE)

@case("https://taourl.com/read-2624309.html", "batch_first=False with (B, T, F) inputs: recurrence runs over the batch", "rnn")
def batch_first(bug):
    def data(s): x = T(s, 32, 10, 8); return x, (x[:, :5, 0].sum(1) > 0).long() * 2 + (x[:, 5:, 1].sum(1) > 0).long()
    return dict(model=lambda: M(lambda m, x: m.o(m.r(x)[0][:, -1]), r=nn.GRU(8, 48, batch_first=not bug), o=nn.Linear(48, 4)), data=data, loss=ce, diag=CE)

@case("http://ddrv.cn/?p=758668", "sqrt of a squared distance that is exactly 0: NaN gradient", "loss/sqrt")
def sqrt0(bug):
    W = T(3, 10, 2)
    def data(s): x = T(s, 32, 10); x[::8] = 0; return x, x @ W
    def loss(o, t): return ((o - t).square().sum(1) + (0 if bug else 1e-10)).sqrt().mean()
    return dict(model=lambda: M(lambda m, x: m.b(m.a(x).relu()), a=nn.Linear(10, 64, bias=False), b=nn.Linear(64, 2, bias=False)), data=data, loss=loss)

@case("https://whosebug.com/question/4715380", "acos of a cosine similarity of exactly 1: infinite gradient", "loss/acos")
def acos1(bug):
    P = T(3, 8, 12, 6)
    def data(s):
        k = R(s, 8, (32,)); j = R(s + 1, 8, (32,)); j[::2] = k[::2]; n = .3
        a = P[k] + n * T(s + 2, 32, 12, 6); b = P[j] + n * T(s + 3, 32, 12, 6); b[::4] = a[::4]
        return (a, b), (k != j).float()
    def f(m, a, b):
        u, v = (m.l(z)[0][:, -1] for z in (a, b)); c = F.cosine_similarity(u, v)
        c = c / c.detach().abs().clamp(min=1) if bug else c.clamp(-1 + 1e-4, 1 - 1e-4)
        return torch.acos(c) / math.pi
    def loss(o, t): return F.binary_cross_entropy(o.clamp(1e-4, 1 - 1e-4), t)
    return dict(model=lambda: M(f, l=nn.LSTM(6, 16, batch_first=True)), data=data, loss=loss)

@case("https://github.com/MicrosoftDocs/pytorchfundamentals/pull/21", "log_softmax over the batch (dim 0)", "log_softmax")
def logsoftmax_dim0(bug):
    return dict(model=lambda: M(lambda m, x: F.log_softmax(m.n(x.flatten(1)), 0 if bug else 1), n=mlp(144, 64, 10)), data=imgs(64, noise=1.), loss=lambda o, t: F.nll_loss(o, t))

@case("https://github.com/one-leaf/tensorflow/issues/6", "clipped value thrown away: log(0) in the cross-entropy", "loss/log")
def log0(bug):
    d0 = imgs(32, noise=.8, scale=60.)
    def loss(o, t):
        p = o if bug else o.clamp(1e-15, 1.)
        return -(F.one_hot(t, 10) * p.log()).sum(1).mean()
    return dict(model=lambda: M(lambda m, x: m.n(x.flatten(1)).softmax(1), n=mlp(144, 64, 10)), data=d0, loss=loss)
