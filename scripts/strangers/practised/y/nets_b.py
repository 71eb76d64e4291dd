from base import *
from nets_a import Enc, MHA, imgcls

class RMS(nn.Module):
    def __init__(s, d): super().__init__(); s.g = nn.Parameter(torch.ones(d))
    def forward(s, x): return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * s.g

@case("https://lynx-cortex.pages.dev/phase-10-init-norm-residuals/break/00-break-remove-residual/", "50-block MLP: residual removed (return h instead of x + h)", "blocks (missing x +)")
def lynx_noresidual(planted):
    class Blk(nn.Module):
        def __init__(s, d): super().__init__(); s.norm = RMS(d); s.fc1 = nn.Linear(d, 4 * d); s.fc2 = nn.Linear(4 * d, d)
        def forward(s, x): h = s.fc2(F.gelu(s.fc1(s.norm(x)))); return h if planted else x + h
    def model(): d = 24; return nn.Sequential(nn.Linear(20, d), *[Blk(d) for _ in range(50)], RMS(d), nn.Linear(d, 6))
    def data(seed): x = T(seed, 64, 20); return x, ((x @ T(11, 20, 40)).tanh() @ T(12, 40, 6)).argmax(1)
    return dict(model=model, data=data, loss=ce, diag={})

class GPT(nn.Module):
    def __init__(s, V=24, d=48, L=16, n=2, pos=True):
        super().__init__(); s.tok = nn.Embedding(V, d); s.pos = nn.Embedding(L, d) if pos else None; s.blocks = nn.ModuleList(Enc(d) for _ in range(n)); s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, V, bias=False)
        for m in s.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.02 if isinstance(m, nn.Embedding) else m.weight.shape[1] ** -.5 * .7)
            if isinstance(m, nn.Linear) and m.bias is not None: nn.init.zeros_(m.bias)
    def forward(s, x):
        L = x.size(1); h = s.tok(x)
        if s.pos is not None: h = h + s.pos(torch.arange(L))
        m = torch.ones(L, L).triu(1).bool()
        for b in s.blocks: h = b(h, m)
        return s.head(s.ln(h))
def markov(seed, B=24, L=16, V=24, k=2):
    P = R(21, V, (V, V)); g = gen(seed); x = torch.randint(0, V, (B, L + 1), generator=g)
    for i in range(1, L + 1):
        nx = P[x[:, i - 1], 0]; keep = torch.rand(B, generator=g) < .85; x[:, i] = torch.where(keep, nx, x[:, i])
    return x[:, :-1], x[:, 1:]

@case("https://lynx-cortex.pages.dev/phase-19-training-dynamics/theory/03-three-failure-modes/", "all Linear and Embedding weights initialised 100x too large", "init of every Linear/Embedding")
def lynx_init100(planted):
    def model():
        m = GPT()
        if planted:
            with torch.no_grad():
                for k in m.modules():
                    if isinstance(k, (nn.Linear, nn.Embedding)): k.weight.mul_(100)
        return m
    return dict(model=model, data=markov, loss=ceseq, diag=SEQ)

@case("https://spaces.ac.cn/archives/8620", "attention scores not divided by sqrt(d)", "att q k scores")
def su_sqrt_d(planted):
    class Att(nn.Module):
        def __init__(s, d, h):
            super().__init__(); s.h = h; s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4))
            for l in (s.q, s.k, s.v, s.o): nn.init.normal_(l.weight, std=d ** -.5); nn.init.zeros_(l.bias)
        def forward(s, x, mask=None):
            sp = lambda t: t.view(t.size(0), t.size(1), s.h, -1).transpose(1, 2); q, k, v = sp(s.q(x)), sp(s.k(x)), sp(s.v(x)); a = q @ k.transpose(-1, -2)
            if not planted: a = a / math.sqrt(q.size(-1))
            return s.o((a.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
    class Net(nn.Module):
        def __init__(s, V=30, d=128, L=12):
            super().__init__(); s.e = nn.Embedding(V, d); s.p = nn.Embedding(L, d); s.n = nn.LayerNorm(d); s.l = nn.ModuleList(nn.ModuleDict(dict(a=Att(d, 1), n1=nn.LayerNorm(d), f=nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)), n2=nn.LayerNorm(d))) for _ in range(2)); s.h = nn.Linear(d, V)
        def forward(s, x):
            h = s.n(s.e(x) + s.p(torch.arange(x.size(1))))
            for l in s.l: h = l["n1"](h + l["a"](h)); h = l["n2"](h + l["f"](h))
            return s.h(h)
    def data(seed):
        x = R(seed, 29, (24, 12)) + 1; x[:, 6:] = x[:, :6]; t = x.clone(); m = torch.rand(24, 12, generator=gen(seed + 1)) < .2; t[~m] = -100; x = x.masked_fill(m, 0); return x, t
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://www.developerload.com/differentiable-round-function-in-tensorflow", "code rounded with round(): no gradient reaches the encoder", "enc / round")
def round_audio_ae(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Conv1d(1, 16, 9, 2, 4), nn.ReLU(), nn.Conv1d(16, 24, 9, 2, 4), nn.ReLU(), nn.Conv1d(24, 8, 5, 2, 2))
            s.dec = nn.Sequential(nn.ConvTranspose1d(8, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(24, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(16, 1, 4, 2, 1))
        def forward(s, x):
            z = s.enc(x).sigmoid() * 7; r = z.round(); z = r if planted else z - (z - r).detach(); return s.dec(z - 3.5)
    def data(seed):
        f = torch.rand(24, 2, generator=gen(seed)) * .3 + .05; ph = torch.rand(24, 2, generator=gen(seed + 1)) * 6.28; x = (torch.arange(64)[None, None] * f[..., None] + ph[..., None]).sin().sum(1, keepdim=True); return x, x
    return dict(model=Net, data=data, loss=mse, diag={})

@case("http://stackoverflow.com/questions/9048031/neural-network-output-scaling-the-output-range", "sigmoid output layer, targets up to a thousand", "output sigmoid")
def so_sigmoid_thousand(planted):
    def model():
        net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)); 
        return nn.Sequential(*net, nn.Sigmoid()) if planted else net
    def data(seed):
        x = torch.rand(64, 4, generator=gen(seed)) * 2 - 1; y = ((x @ T(31, 4, 3)).sin() @ T(32, 3, 1)) + 1.5
        return x, y * 300 if planted else y
    def loss(o, t): return F.mse_loss(o, t) / (300 ** 2 if planted else 1)
    return dict(model=model, data=data, loss=loss, diag={})

@case("https://laganvalleydup.co.uk/post/neural-network-to-approximate-the-square-function-gives-0", "inputs of +-10 and targets up to 100 fed raw", "inputs/targets scale")
def square_raw(planted):
    def model(): return nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)) * 20 - 10; return (x, x * x) if planted else (x / 5.8, (x * x - 33) / 30)
    return dict(model=model, data=data, loss=mse, diag={})

@case("https://soveshmohapatra.com/projects/nerf-kernel-benchmark/", "coordinate MLP without Fourier features", "input encoding / first layer")
def nerf_no_pe(planted):
    class Net(nn.Module):
        def __init__(s, L=5, w=96):
            super().__init__(); s.register_buffer("f", 2. ** torch.arange(L) * math.pi); i = 2 if planted else 4 * L
            s.mlp = nn.Sequential(nn.Linear(i, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 3), nn.Sigmoid())
        def forward(s, p):
            if not planted: a = p[..., None] * s.f; p = torch.cat([a.sin(), a.cos()], -1).flatten(1)
            return s.mlp(p)
    def data(seed):
        p = torch.rand(256, 2, generator=gen(seed)); x, y = p[:, 0], p[:, 1]; ck = (((x * 8).floor() + (y * 8).floor()) % 2); c = ((x - .25) ** 2 + (y - .25) ** 2 < .03).float()
        top = ck[:, None].expand(-1, 3); bot = torch.stack([c, torch.zeros_like(c), ((x > .6) & (y < .4)).float()], 1); return p, torch.where((y > .5)[:, None], top, bot)
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://openillumi.com/?p=120695", "custom layer's weight a plain tensor, not nn.Parameter", "my_weights of the custom layers")
def plain_tensor(planted):
    class Lin(nn.Module):
        def __init__(s, i, o):
            super().__init__(); w = torch.randn(i, o) * (2 / i) ** .5; b = torch.zeros(o)
            s.w, s.b = (w, b) if planted else (nn.Parameter(w), nn.Parameter(b))
        def forward(s, x): return x @ s.w + s.b
    def model(): return nn.Sequential(Lin(16, 48), nn.ReLU(), Lin(48, 48), nn.ReLU(), Lin(48, 12), nn.ReLU(), nn.Linear(12, 5))
    def data(seed): x = T(seed, 64, 16); return x, ((x @ T(41, 16, 30)).relu() @ T(42, 30, 5)).argmax(1)
    return dict(model=model, data=data, loss=ce, diag={})

@case("https://taourl.com/read-2420765.html", "Dense layers with kernel_initializer='zeros'", "hidden Linear weights")
def dense_zeros(planted):
    def model():
        m = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        for l in m:
            if isinstance(l, nn.Linear): (nn.init.zeros_ if planted else nn.init.kaiming_normal_)(l.weight); nn.init.zeros_(l.bias)
        return m
    def data(seed): x = T(seed, 64, 10); return x, (x @ T(51, 10, 6)).tanh() @ T(52, 6, 1) * .5
    return dict(model=model, data=data, loss=mse, diag={})

@case("https://runebook.dev/en/docs/pytorch/generated/torch.nn.functional.sigmoid", "sigmoid on the logits before CrossEntropyLoss", "output sigmoid")
def sigmoid_then_ce(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)); s.f = nn.Sequential(cb(3, 16), cb(16, 32), cb(32, 48)); s.fc = nn.Sequential(nn.Flatten(), nn.Linear(48 * 4, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(s, x): o = s.fc(s.f(x)); return o.sigmoid() if planted else o
    return dict(model=Net, data=imgcls, loss=ce, diag={})

@case("https://forum.devtalk.com/t/programming-machine-learning-a-tip-and-a-gotcha/89716/7", "softmax subtracts the maximum of the whole batch: rows underflow", "softmax")
def softmax_batchmax(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.h = nn.Linear(64, 100); s.o = nn.Linear(100, 10)
        def forward(s, x): z = s.o(s.h(x).sigmoid()); e = (z - (z.max() if planted else z.max(1, keepdim=True)[0])).exp(); return e / e.sum(1, keepdim=True)
    def data(seed): t = R(seed, 10, (60,)); return T(61, 10, 64)[t].clamp(0) * .5 + T(seed + 1, 60, 64) * .3, t
    def loss(p, t): return -p.gather(1, t[:, None]).log().mean()
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#proper-shape-of-lstm-dataset-for-keras", "each number its own sequence of length 1: the LSTM sees no past", "lstm input shape (1,1)")
def lstm_len1(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.lstm = nn.LSTM(1, 32, batch_first=True); s.fc = nn.Linear(32, 1)
        def forward(s, x): return s.fc(s.lstm(x)[0][:, -1])
    def data(seed):
        s = (R(seed, 10, (66,)).float() - 4.5) / 2.9; w = s.unfold(0, 3, 1); y = w.mean(1, keepdim=True) * 1.7; x = w[:, -1:, None] if planted else w[..., None]; return x, y
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://thecodeforge.io/ml-ai/transformers-attention-mechanism/", "no positional encoding added", "embedding (missing position)")
def forge_no_pos(planted):
    class Net(nn.Module):
        def __init__(s, V=12, d=48, L=10):
            super().__init__(); s.e = nn.Embedding(V, d); nn.init.normal_(s.e.weight, std=d ** -.5); s.d = d; p = torch.arange(L)[:, None] / 10000 ** (torch.arange(0, d, 2) / d); pe = torch.zeros(L, d); pe[:, 0::2] = p.sin(); pe[:, 1::2] = p.cos(); s.register_buffer("pe", pe)
            s.b = nn.ModuleList(Enc(d) for _ in range(2)); s.n = nn.LayerNorm(d); s.h = nn.Linear(d, V)
        def forward(s, x):
            h = s.e(x) * math.sqrt(s.d); h = h if planted else h + s.pe[:x.size(1)]
            for b in s.b: h = b(h)
            return s.h(s.n(h))
    def data(seed): x = R(seed, 12, (48, 10)); return x, x.flip(1)
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://community.deeplearning.ai/t/random-initialization/86952", "weights initialised randn * 10", "all Linear init")
def dlai_init10(planted):
    def model():
        m = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1), nn.Sigmoid())
        for l in m:
            if isinstance(l, nn.Linear): nn.init.zeros_(l.bias); nn.init.normal_(l.weight, std=10. if planted else (2 / l.in_features) ** .5)
        return m
    def data(seed):
        r = torch.rand(64, generator=gen(seed)) * 6.28; t = R(seed + 1, 2, (64,)); x = torch.stack([r.cos(), r.sin()], 1) * (2.2 - 1.6 * t[:, None]) + T(seed + 2, 64, 2) * .1; return x, t[:, None].float()
    def loss(p, t): return F.binary_cross_entropy(p, t)
    return dict(model=model, data=data, loss=loss, diag={})

@case("https://example-a.com/answer/76473561", "softmax divides by the sum over the batch (axis 0), not over the classes", "softmax of the output")
def mnist_softmax_axis0(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1 = nn.Linear(100, 20); s.l2 = nn.Linear(20, 10)
        def forward(s, x): z = s.l2(s.l1(x).relu()); e = z.exp(); return e / (e.sum(0) if planted else e.sum(1, keepdim=True))
    def data(seed): t = R(seed, 10, (64,)); return T(71, 10, 100)[t].clamp(0) * .6 + T(seed + 1, 64, 100) * .3, t
    def loss(p, t): return -p.gather(1, t[:, None]).log().mean()
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://tdody.github.io//deep_dive_into_model_initialization", "tanh hidden layer saturated: W1 randn without the (5/3)/sqrt(fan_in) gain; last layer randn", "W1, W2 init")
def tdody_mlp(planted):
    class Net(nn.Module):
        def __init__(s, V=24, n=10, bs=3, H=200):
            super().__init__(); i = n * bs; s.C = nn.Parameter(torch.randn(V, n)); k1, k2 = (1., 1.) if planted else ((5 / 3) / i ** .5, .01)
            s.W1 = nn.Parameter(torch.randn(i, H) * k1); s.b1 = nn.Parameter(torch.randn(H) * (1. if planted else .01)); s.W2 = nn.Parameter(torch.randn(H, V) * k2); s.b2 = nn.Parameter(torch.randn(V) * (1. if planted else 0))
        def forward(s, x): return (s.C[x].flatten(1) @ s.W1 + s.b1).tanh() @ s.W2 + s.b2
    def data(seed): x = R(seed, 24, (64, 3)); return x, (R(81, 24, (24, 3))[x, torch.arange(3)].sum(1) // 3) % 24
    return dict(model=Net, data=data, loss=ce, diag={})
