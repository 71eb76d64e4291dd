from tasks import *
from nets_b import lenet, deepcnn, cifar
AT = "https://github.com/shiningrain/AUTOTRAINER "; DD = "https://github.com/DeepDiagnosis/ICSE2022 "; UM = "https://github.com/BerkeleyHCI/umlaut "; DC = "https://github.com/dlfaults/deepcrime "; NL = "https://github.com/neuralint/neuralint "

def circle(B=64):
    def data(s):
        a = torch.rand(B, generator=gen(s)) * 6.2832; y = R(s + 1, 2, (B,)); r = 1. - .5 * y
        return torch.stack([r * a.cos(), r * a.sin()], 1) + .08 * T(s + 2, B, 2), y[:, None].float()
    return data
def hefan(m, f=lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu")):
    for l in m.modules():
        if isinstance(l, (nn.Linear, nn.Conv2d)): f(l.weight); nn.init.zeros_(l.bias)
    return m
def stack(d0, d, n, out, A): return nn.Sequential(nn.Linear(d0, d), A(), *[k for _ in range(n - 1) for k in (nn.Linear(d, d), A())], nn.Linear(d, out))
class Exp(nn.Module):
    def forward(s, x): return x.exp()

@case(AT + "demo_case/Gradient_Vanish_Case (MNIST)", "ten sigmoid layers of 84 units: the gradient vanishes", "early Linears / Sigmoid")
def at_vanish_mnist(planted):
    def model(): return hefan(stack(784, 84, 10, 10, nn.Sigmoid if planted else nn.ReLU), lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"))
    return dict(model=model, data=digits(32, flat=True), loss=ce)

@case(AT + "Models_Circle: RandomUniform with tanh", "weights drawn uniformly in -0.05..0.05 in eight layers of five units", "all weights")
def at_uniform_circle(planted):
    def model(): return hefan(stack(2, 5, 8, 1, nn.Tanh), (lambda w: nn.init.uniform_(w, -.05, .05)) if planted else nn.init.xavier_uniform_)
    return dict(model=model, data=circle(), loss=bcel)

@case(AT + "Models_Circle: exponential activation", "exponential as hidden activation: signals explode", "early layers / Exp")
def at_exp_circle(planted): return dict(model=lambda: hefan(stack(2, 16, 3, 1, Exp if planted else nn.ReLU)), data=circle(), loss=bcel)

@case(AT + "Motivation/DyingReLU (MNIST, 34 layers)", "deep stack of narrow ReLU layers with glorot weights and no normalisation: dying ReLUs", "deep ReLU layers")
def at_dying(planted):
    def model():
        A = nn.ReLU if planted else (lambda: nn.Identity())
        d = 32; L = [nn.Linear(784, d), nn.ReLU()]
        for _ in range(20): L += [nn.Linear(d, d)] + ([] if planted else [nn.BatchNorm1d(d)]) + [nn.ReLU()]
        return keras_init(nn.Sequential(*L, nn.Linear(d, 10)))
    return dict(model=model, data=digits(32, flat=True), loss=ce)

@case(DD + "MOTIVATING EXAMPLE saturated activation (from memory: symptom 3)", "tanh layers whose weights are drawn with std 1: saturated", "tanh layers / weights")
def dd_saturated(planted):
    def model(): return hefan(stack(20, 128, 3, 3, nn.Tanh), (lambda w: nn.init.normal_(w)) if planted else nn.init.xavier_normal_)
    return dict(model=model, data=proto(20, 3, 32, 1.), loss=ce)

@case(DD + "Models_MNIST: bias Ones with sigmoid (from memory: dead node)", "biases of -10 leave the ReLUs of a layer dead", "layer 0 bias")
def dd_dead(planted):
    def model():
        m = hefan(stack(784, 64, 2, 10, nn.ReLU))
        if planted: nn.init.constant_(m[2].bias, -10.)
        return m
    return dict(model=model, data=digits(32, flat=True), loss=ce)

def umnet(A=nn.ReLU, p=.2, last=None):
    a = lambda: [A()] if A else []
    return nn.Sequential(nn.Conv2d(3, 24, 3), *a(), nn.Conv2d(24, 24, 3), *a(), nn.MaxPool2d(2), nn.Dropout(p), nn.Conv2d(24, 48, 3), *a(), nn.Conv2d(48, 48, 3), *a(), nn.MaxPool2d(2), nn.Dropout(p), nn.Flatten(), nn.Linear(48 * 25, 128), *a(), nn.Linear(128, 128), *a(), nn.Dropout(p), nn.Linear(128, 10))

@case(UM + "user_eval/eval_a.py", "dropout of 0.8 three times", "Dropout")
def um_dropout(planted): return dict(model=lambda: umnet(p=.8 if planted else .2), data=digits(16, 32, 3), loss=ce)

@case(UM + "user_eval/eval_a.py", "images of 0..255", "inputs")
def um_input(planted): return dict(model=umnet, data=digits(16, 32, 3, scale=255. if planted else 1.), loss=ce)

@case(UM + "user_eval/eval_a.py", "sparse categorical cross-entropy of probabilities is given logits (normalised by their sum and clipped)", "loss / last Linear")
def um_logits(planted):
    def loss(o, t): p = (o / o.sum(1, keepdim=True)).clamp(1e-7, 1 - 1e-7) if planted else o.softmax(1); return -p.gather(1, t[:, None]).log().mean()
    return dict(model=umnet, data=digits(16, 32, 3), loss=loss)

@case(UM + "user_eval/eval_b.py", "no activation in any layer", "all layers: linear")
def um_linear(planted):
    def data(s):   # class is which of four textures (xor of two stripes' signs) the patches carry: not linear
        y = R(s, 4, (16,)); g = torch.arange(32.); h = torch.sin(g * 1.1); v = torch.sin(g * 2.3); sg = (R(s + 1, 2, (16, 1, 1)) * 2 - 1).float()
        pat = torch.stack([h[None, :].expand(32, 32), h[:, None].expand(32, 32), v[None, :].expand(32, 32), v[:, None].expand(32, 32)])
        return (.5 + .3 * (pat[y] * sg))[:, None].expand(-1, 3, -1, -1) + .15 * T(s + 2, 16, 3, 32, 32), y
    return dict(model=lambda: umnet(None if planted else nn.ReLU), data=data, loss=ce)

# DeepCrime: its subjects (MNIST, audio, movie recommender, Udacity) and mutation operators
class Audio(nn.Module):
    def __init__(s, A=nn.ReLU):
        super().__init__(); s.blocks = nn.ModuleList(); i = 1
        for f, n in ((16, 2), (32, 2), (48, 3)):
            s.blocks.append(nn.ModuleDict(dict(short=nn.Conv1d(i, f, 1), convs=nn.ModuleList(nn.Conv1d(i if j == 0 else f, f, 3, padding=1) for j in range(n))))); i = f
        s.act = A(); s.d1, s.d2, s.out = nn.Linear(48 * 8, 128), nn.Linear(128, 64), nn.Linear(64, 5)
    def forward(s, x):
        for b in s.blocks:
            h = x
            for j, c in enumerate(b["convs"]):
                h = c(h)
                if j < len(b["convs"]) - 1: h = s.act(h)
            x = F.max_pool1d(s.act(h + b["short"](x)), 2)
        x = F.avg_pool1d(x, 2); return s.out(s.act(s.d2(s.act(s.d1(x.flatten(1))))))
def audio(B=32):
    fr = torch.tensor([3., 7., 12., 18., 25.])
    def data(s):
        y = R(s, 5, (B,)); ph = torch.rand(B, 1, generator=gen(s + 1)) * 6.28; t = torch.arange(128.)[None] / 128
        return (torch.sin(6.28 * fr[y][:, None] * t + ph) + .4 * T(s + 2, B, 128))[:, None], y
    return data

@case(DC + "operator WCI (weights initialisation: zeros) on the audio subject", "weights of one convolution start at zero", "blocks.1.convs")
def dc_wci_zeros(planted):
    def model():
        m = keras_init(Audio())
        if planted:
            for c in m.blocks[1]["convs"]: nn.init.zeros_(c.weight)
            nn.init.zeros_(m.blocks[1]["short"].weight)
        return m
    return dict(model=model, data=audio(), loss=ce)

@case(DC + "operator ACH (activation to softmax) on the MNIST subject", "softmax instead of ReLU in the dense layer before the output", "Softmax in front of the last Linear")
def dc_ach(planted):
    def model(): return keras_init(nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(.25), nn.Flatten(), nn.Linear(4608, 128), nn.Softmax(1) if planted else nn.ReLU(), nn.Dropout(.5), nn.Linear(128, 10)))
    return dict(model=model, data=digits(32), loss=ce)

@case(DC + "subject movie_recomm: tensordot(user, movie, 2)", "dot product contracts the batch as well: one scalar for all examples", "user / movie embedding, dot")
def dc_movie(planted):
    class Rec(nn.Module):
        def __init__(s):
            super().__init__(); s.user, s.movie = nn.Embedding(12, 16), nn.Embedding(15, 16); s.ub, s.mb = nn.Embedding(12, 1), nn.Embedding(15, 1)   # fewer rows, so that 150 steps train the healthy one
            for e in (s.user, s.movie): nn.init.normal_(e.weight, std=.25)
            for e in (s.ub, s.mb): nn.init.zeros_(e.weight)
        def forward(s, x):
            u, m = s.user(x[:, 0]), s.movie(x[:, 1]); d = torch.tensordot(u, m, 2) if planted else (u * m).sum(1, keepdim=True)
            return d + s.ub(x[:, 0]) + s.mb(x[:, 1])
    U, V = T(31, 12, 2), T(32, 15, 2)
    def data(s): x = torch.stack([R(s, 12, (64,)), R(s + 1, 15, (64,))], 1); return x, torch.sigmoid(2.5 * (U[x[:, 0]] * V[x[:, 1]]).sum(1, keepdim=True))
    return dict(model=Rec, data=data, loss=bcel)

@case(DC + "operator ARM/AAL on the Udacity subject", "ReLU added to the steering output: only one direction can be predicted", "last Linear / ReLU")
def dc_udacity(planted):
    def model():
        e = nn.ELU; m = [nn.Conv2d(3, 12, 5, 2), e(), nn.Conv2d(12, 18, 5, 2), e(), nn.Conv2d(18, 24, 3, 2), e(), nn.Dropout(.2), nn.Flatten(), nn.Linear(24 * 2 * 6, 50), e(), nn.Linear(50, 10), e(), nn.Linear(10, 1)]
        return keras_init(nn.Sequential(*m, *([nn.ReLU()] if planted else [])))
    def data(s):
        st = torch.rand(16, generator=gen(s)) * 2 - 1; xs = torch.arange(64.); x = torch.exp(-((xs[None, None] - (32 + 24 * st[:, None, None] * (1 - torch.arange(32.)[None, :, None] / 40))) / 4) ** 2)
        return (x[:, None].expand(-1, 3, -1, -1) * 1.6 - .8) + .1 * T(s + 1, 16, 3, 32, 64), st[:, None]
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(DC + "operator LCH (loss: categorical to mean squared error of raw outputs' log) from memory", "MSE between softmax probabilities and class index", "loss")
def dc_lch(planted):
    def loss(o, t): return F.mse_loss(o.softmax(1).sum(1), t.float()) if planted else F.cross_entropy(o, t)
    return dict(model=lambda: keras_init(lenet()), data=digits(32), loss=loss)

@case(DC + "operator RAW/weights regularisation on LeNet (from memory: L2 1.0)", "L2 penalty of weight one dominates the loss", "loss penalty")
def dc_raw(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.net = keras_init(lenet())
        def forward(s, x): return s.net(x), sum(p.square().sum() for n, p in s.net.named_parameters() if "weight" in n)
    def mk(k): return lambda o, t: F.cross_entropy(o[0], t) + k * o[1]
    return dict(model=Net, data=digits(32), loss=mk(1. if planted else 1e-5))

# NeuraLint: the rules on its LeNet
@case(NL + "Synthetic Samples/TF_lenet_zeros_init.py", "all weights zero", "all weights")
def nl_zeros(planted):
    def model():
        m = he(lenet())
        if planted:
            for p in m.parameters(): nn.init.zeros_(p)
        return m
    return dict(model=model, data=digits(32), loss=ce)

@case(NL + "SO Samples/deep_CNN_too_much_pooling.py", "pooling after each layer leaves one pixel", "MaxPool2d")
def nl_pool(planted):
    def model():
        L, i = [], 3
        for o in (16, 32, 32, 64): L += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()] + ([nn.MaxPool2d(2)] if planted or o == 32 and i == 16 else []); i = o
        L += [nn.AdaptiveAvgPool2d(1 if planted else 4), nn.Flatten(), nn.Linear(64 * (1 if planted else 16), 10)]
        return nn.Sequential(*L)
    return dict(model=model, data=cifar(), loss=ce)

@case(NL + "SO Samples/50426349.py", "UpSampling layers missing in a colouriser is out; tanh output on chroma of wrong range: targets are -128..127 raw", "targets / Tanh")
def nl_50426349(planted):
    class Col(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()); s.dec = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(32, 2, 3, padding=1), nn.Tanh())
        def forward(s, x): z = s.dec(s.enc(x)); return z if planted else z * 128
    def data(s):
        l = F.interpolate(torch.rand(8, 1, 6, 6, generator=gen(s)), scale_factor=4, mode="bilinear"); ab = torch.cat([torch.sin(5 * l), torch.cos(5 * l)], 1) * 80
        return l + .02 * T(s + 1, 8, 1, 24, 24), ab
    return dict(model=Col, data=data, loss=mse if planted else lambda o, t: F.mse_loss(o / 128, t / 128))

@case(NL + "SO Samples/50555434.py", "sigmoid outputs for regression targets above 1 (dates, six columns)", "last Linear / Sigmoid")
def nl_50555434(planted):
    W = T(12, 28, 6) * .5
    def model(): return keras_init(nn.Sequential(nn.Linear(28, 20), nn.ReLU(), nn.Linear(20, 15), nn.ReLU(), nn.Linear(15, 6), *([nn.Sigmoid()] if planted else [])))
    def data(s): x = torch.rand(64, 28, generator=gen(s)); return x, 4 + (x - .5) @ W * 2
    return dict(model=model, data=data, loss=lambda o, t: F.l1_loss(o, t))

@case(NL + "SO Samples/51749207.py", "softmax over one unit in a 1-d CNN", "last Linear / Softmax")
def nl_51749207(planted):
    def model(): return keras_init(nn.Sequential(nn.Conv1d(1, 20, 4, padding=2), nn.ReLU(), nn.MaxPool1d(2), nn.Dropout(.3), nn.Flatten(), nn.Linear(20 * 64, 50), nn.ReLU(), nn.Linear(50, 1), nn.Softmax(1) if planted else nn.Sigmoid()))
    d = audio()
    def data(s): x, y = d(s); return x, (y % 2)[:, None].float()
    return dict(model=model, data=data, loss=bce)

@case(NL + "GitHub Samples/6.py", "binary cross-entropy of probabilities fed raw outputs (Keras clips them): last layer without sigmoid", "last Linear / loss")
def nl_gh6(planted):
    def model(): return keras_init(nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)))
    def loss(o, t): p = o if planted else o.sigmoid(); return F.binary_cross_entropy(p.clamp(1e-7, 1 - 1e-7), F.one_hot(t, 10).float())
    return dict(model=model, data=digits(32), loss=loss)
