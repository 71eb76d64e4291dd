from base import *
HF = "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#"
def blobs(s, n=64, d=64, c=10, k=1.0, off=0.0):
    y = R(s, c, (n,)); x = T(7, c, d)[y] * .5 + T(s + 1, n, d)
    return x * k + off, y
def digits(s, n=64, side=14, c=10):          # non-negative "images" in [0,1]
    y = R(s, c, (n,)); p = (T(3, c, side * side) * .8).sigmoid()
    return (p[y] + .25 * T(s + 1, n, side * side)).clamp(0, 1), y
def xor(s, n=64):
    b = R(s, 2, (n, 2)); return b.float(), (b[:, 0] ^ b[:, 1]).float()[:, None]
def bce(o, t): return F.binary_cross_entropy_with_logits(o, t)
def reinit(m, f, bias=0.):
    for l in m.modules():
        if isinstance(l, nn.Linear):
            with torch.no_grad(): l.weight.copy_(f(l.weight)); l.bias.fill_(bias)
    return m

@case(HF + "neural-network-xor-gate-classification", "weights randn*0.01 in a sigmoid network for XOR", "first layer weight (0)")
def a_xor_small(planted):
    def model():
        m = nn.Sequential(nn.Linear(2, 32), nn.Sigmoid(), nn.Linear(32, 1))
        with torch.no_grad():
            m[0].weight.normal_(0, .01 if planted else 3.); m[0].bias.zero_() if planted else m[0].bias.normal_(0, 2.)
            m[2].weight.normal_(0, .01 if planted else .25); m[2].bias.zero_()
        return m
    return dict(model=model, data=xor, loss=bce)

@case("https://stackoverflow.com/questions/59399842/xor-gate-with-backpropagation", "XOR network with all biases omitted", "0 / 2 (bias)")
def a_xor_nobias(planted):
    def model():
        m = nn.Sequential(nn.Linear(2, 32, bias=not planted), nn.Sigmoid(), nn.Linear(32, 1, bias=not planted))
        with torch.no_grad():
            m[0].weight.normal_(0, 3.); m[2].weight.normal_(0, .25)
            if not planted: m[0].bias.normal_(0, 2.); m[2].bias.zero_()
        return m
    return dict(model=model, data=xor, loss=bce)

@case(HF + "troubleshooting-neural-network-implementation", "theta = tiny random numbers, two sigmoid hidden layers (course network)", "hidden weights")
def a_course_tiny(planted):
    def model():
        m = nn.Sequential(nn.Linear(64, 40), nn.Sigmoid(), nn.Linear(40, 40), nn.Sigmoid(), nn.Linear(40, 10))
        return reinit(m, lambda w: torch.rand_like(w) * .002 - .001 if planted else torch.randn_like(w) * (2.5 / w.shape[1] ** .5))
    return dict(model=model, data=blobs, loss=ce)

@case("https://mlog.club/article/5559512", "np.random.rand (all positive) instead of randn for the weights", "0")
def a_rand_positive(planted):
    def model():
        m = nn.Sequential(nn.Linear(196, 64), nn.Sigmoid(), nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 10))
        return reinit(m, lambda w: (torch.rand_like(w) if planted else torch.randn_like(w)) * (1 / w.shape[1]) ** .5)
    return dict(model=model, data=digits, loss=ce)

@case("https://skeptric.com/building-layered-api-with-fashion-mnist/", "init_params: randn with std 1 for 784-100-10", "w1")
def a_fashion_std1(planted):
    def model():
        d = 196; s1, s2 = (1., 1.) if planted else ((2 / d) ** .5, (2 / 100) ** .5)
        def f(s, x): a = x @ s.w1 + s.b1; a = a * (a > 0); return a @ s.w2 + s.b2
        return M(f, w1=nn.Parameter(torch.randn(d, 100) * s1), b1=nn.Parameter(torch.randn(100) * s1 if planted else torch.zeros(100)),
                 w2=nn.Parameter(torch.randn(100, 10) * s2), b2=nn.Parameter(torch.randn(10) if planted else torch.zeros(10)))
    return dict(model=model, data=digits, loss=ce)

@case("https://newbedev.com/tensorflow-weight-initialization", "tf.truncated_normal (stddev 1) for all layers of a sigmoid network", "hidden weights")
def a_truncated_normal(planted):
    def model():
        m = nn.Sequential(nn.Linear(64, 128), nn.Sigmoid(), nn.Linear(128, 128), nn.Sigmoid(), nn.Linear(128, 128), nn.Sigmoid(), nn.Linear(128, 10))
        return reinit(m, lambda w: nn.init.trunc_normal_(torch.empty_like(w), 0, 1., -2, 2) if planted else torch.randn_like(w) * (2.5 / w.shape[1] ** .5))
    return dict(model=model, data=blobs, loss=ce)

@case(HF + "tensorflow-regression-model-giving-same-prediction-every-time", "raw hours through a sigmoid layer with N(0,1) weights, marks out of 50", "hid / input")
def a_marks(planted):
    W = T(11, 4) * .5
    def data(s):
        h = torch.rand(64, 4, generator=gen(s)) * 12; z = ((h - 6) / 3.46) @ W
        return h, (50 * z.sigmoid())[:, None]
    def model():
        def f(s, x): return 50 * s.out(s.hid(x if planted else (x - 6.) / 3.46).sigmoid()).sigmoid()
        m = M(f, hid=nn.Linear(4, 16), out=nn.Linear(16, 1))
        for l in (m.hid, m.out): nn.init.normal_(l.weight, 0, 1. if planted or l is m.hid else .3); nn.init.zeros_(l.bias)
        return m
    return dict(model=model, data=data, loss=mse)

@case("https://discuss.pytorch.org/t/400-higher-error-with-pytorch-compared-with-identical-keras-model-with-adam-optimizer/160720", "MSELoss of (N,1) outputs with (N,) targets broadcasts", "loss shapes / output")
def a_sumsin(planted):
    def data(s):
        x = T(s, 64, 10); y = x.sin().sum(1) / 2; return x, (y if planted else y[:, None])
    return dict(model=lambda: nn.Sequential(nn.Linear(10, 256), nn.ReLU(), nn.Linear(256, 1)), data=data, loss=lambda o, t: ((o - t) ** 2).mean())

@case(HF + "simple-linear-regression-in-pytorch", "out (N,1) minus y (N,) broadcasts to (N,N)", "loss shapes")
def a_linreg(planted):
    def data(s):
        x = torch.cat([torch.ones(64, 1), T(s, 64, 4)], 1); return x, x @ torch.tensor([.2, .4, -.3, .35, -.25])
    def model():
        def f(s, x): o = x.mm(s.weights) + s.bias; return o if planted else o.view(-1)
        return M(f, weights=nn.Parameter(torch.randn(5, 1) * .1), bias=nn.Parameter(torch.zeros(1)))
    return dict(model=model, data=data, loss=lambda o, t: torch.mean((o - t) ** 2))

@case("https://ai.stackexchange.com/questions/8491/does-it-make-sense-to-apply-softmax-on-top-of-relu", "ReLU on the logits before log_softmax", "fc1 / relu after fc1")
def a_relu_logits(planted):
    def data(s): x, y = digits(s); return x.view(-1, 1, 14, 14) - .5, y
    def model():
        def f(s, x):
            x = s.pool(F.relu(s.conv1(x))); x = s.pool(F.relu(s.conv2(x))); x = s.fc1(x.flatten(1))
            return F.log_softmax(F.relu(x) if planted else x, dim=1)
        return M(f, conv1=nn.Conv2d(1, 10, 3, padding=1), conv2=nn.Conv2d(10, 20, 3, padding=1), pool=nn.MaxPool2d(2, 2), fc1=nn.Linear(180, 10))
    return dict(model=model, data=data, loss=lambda o, t: F.nll_loss(o, t))

@case(HF + "a-single-neuron-perceptron-with-sigmoid-activation-function", "raw pixels 0..255 into a sigmoid MLP", "0 / input")
def a_raw_pixels(planted):
    def data(s): x, y = digits(s); return (x * 255 if planted else (x - .5) / .3), y
    return dict(model=lambda: nn.Sequential(nn.Linear(196, 70), nn.Sigmoid(), nn.Linear(70, 30), nn.Sigmoid(), nn.Linear(30, 10)), data=data, loss=ce)

@case(HF + "policy-gradients-and-reinforce-with-baseline-loss-function", "policy head ends in ReLU before log_softmax", "fc3 / relu")
def a_policy_relu(planted):
    W = T(21, 4, 4)
    def data(s):
        x = T(s, 64, 4); best = (x @ W).argmax(1); a = R(s + 5, 4, (64,)); return x, (a, (a == best).float())
    def model():
        def f(s, x):
            q = s.fc3(F.relu(s.fc2(F.relu(s.fc1(x))))); return F.log_softmax(F.relu(q) if planted else q, dim=-1)
        return M(f, fc1=nn.Linear(4, 128), fc2=nn.Linear(128, 128), fc3=nn.Linear(128, 4))
    def loss(o, t): return -(t[1] * o.gather(1, t[0].view(-1, 1)).squeeze(1)).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://stats.stackexchange.com/questions/450100/understanding-relu-does-this-unlucky-intialized-network-assign-all-instances", "positive features, hidden ReLU weights initialised negative: dead layer", "0")
def a_dead_hidden(planted):
    def data(s):
        x = torch.rand(64, 2, generator=gen(s)) * 4; return x, (x[:, :1] > x[:, 1:]).float()
    def model():
        m = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        if planted:
            with torch.no_grad(): m[0].weight.uniform_(-.05, 0.); m[0].bias.zero_(); m[2].weight.uniform_(-.05, .05); m[2].bias.zero_()
        return m
    return dict(model=model, data=data, loss=bce)

@case("https://www.engineermaxxing.com/micro/lessons/pytorch-internals.html", "hidden layers kept in a Python list: not registered", "layers (unregistered)")
def a_list_layers(planted):
    W1, W2 = T(31, 12, 24), T(32, 24, 4)
    def data(s): x = T(s, 64, 12); return x, ((x @ W1 / 3).tanh() @ W2).argmax(1)
    def model():
        ls = [nn.Linear(12, 48)] + [nn.Linear(48, 48) for _ in range(2)]
        def f(s, x):
            for l in s.layers: x = F.relu(l(x))
            return s.head(x)
        return M(f, layers=ls if planted else nn.ModuleList(ls), head=nn.Linear(48, 4))
    return dict(model=model, data=data, loss=ce)
