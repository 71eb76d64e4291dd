from base import *
from nets_a import imgcls
from nets_b import RMS, markov

@case("https://huggingface.co/GODELEV/Exp-1 (README, fast.hugflare.com/GODELEV/Exp-1)", "one residual connection missing in the decoder blocks (x = ffn(norm(x)))", "blocks: residual around the ffn")
def exp1_missing_residual(planted):
    class Blk(nn.Module):
        def __init__(s, d=48, h=4, kv=2):
            super().__init__(); s.h, s.kv = h, kv; s.n1 = RMS(d); s.n2 = RMS(d); e = d // h; s.q = nn.Linear(d, d, bias=False); s.k = nn.Linear(d, kv * e, bias=False); s.v = nn.Linear(d, kv * e, bias=False); s.o = nn.Linear(d, d, bias=False)
            s.w1 = nn.Linear(d, 2 * d, bias=False); s.w3 = nn.Linear(d, 2 * d, bias=False); s.w2 = nn.Linear(2 * d, d, bias=False)
        def rope(s, x):
            L, e = x.shape[-2:]; a = torch.arange(L)[:, None] / 10000 ** (torch.arange(0, e, 2) / e); p, q = x[..., 0::2], x[..., 1::2]; return torch.stack([p * a.cos() - q * a.sin(), p * a.sin() + q * a.cos()], -1).flatten(-2)
        def forward(s, x):
            B, L, d = x.shape; y = s.n1(x); sp = lambda t, h: t.view(B, L, h, -1).transpose(1, 2); q, k, v = s.rope(sp(s.q(y), s.h)), s.rope(sp(s.k(y), s.kv)), sp(s.v(y), s.kv); k, v = (t.repeat_interleave(s.h // s.kv, 1) for t in (k, v))
            a = (q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))).masked_fill(torch.ones(L, L).triu(1).bool(), float("-inf")).softmax(-1); x = x + s.o((a @ v).transpose(1, 2).reshape(B, L, d))
            y = s.n2(x); f = s.w2(F.silu(s.w1(y)) * s.w3(y)); return f if planted else x + f
    class Net(nn.Module):
        def __init__(s, V=24, d=48, n=6):
            super().__init__(); s.t = nn.Embedding(V, d); s.b = nn.ModuleList(Blk(d) for _ in range(n)); s.n = RMS(d); s.h = nn.Linear(d, V, bias=False)
            for p in s.parameters():
                if p.dim() > 1: nn.init.normal_(p, std=.02 if p.shape == (V, d) else .08)
        def forward(s, x):
            h = s.t(x)
            for b in s.b: h = b(h)
            return s.h(s.n(h))
    return dict(model=Net, data=markov, loss=ceseq, diag=SEQ)

@case("https://ttsugriy.github.io/llm-first-principles/stages/stage-03/common-mistakes", "weights initialised randn * 0.0001", "W1, W2, W3 init")
def tts_small_init(planted):
    class Net(nn.Module):
        def __init__(s, V=24, e=16, c=3, H=96):
            super().__init__(); k = lambda i, o: nn.Parameter(torch.randn(i, o) * (1e-4 if planted else (2 / i) ** .5)); s.E = nn.Parameter(torch.randn(V, e) * (1e-4 if planted else .5)); s.W1, s.W2, s.W3 = k(e * c, H), k(H, H), k(H, V); s.b1 = nn.Parameter(torch.zeros(H)); s.b2 = nn.Parameter(torch.zeros(H)); s.b3 = nn.Parameter(torch.zeros(V))
        def forward(s, x): h = (s.E[x].flatten(1) @ s.W1 + s.b1).relu(); h = (h @ s.W2 + s.b2).relu(); return h @ s.W3 + s.b3
    def data(seed): x = R(seed, 24, (64, 3)); return x, R(81, 24, (24,))[x[:, 2]]
    return dict(model=Net, data=data, loss=ce, diag={})

@case("https://runebook.dev/ru/docs/pytorch/generated/torch.nn.parameter.parameter", "self.weights = [nn.Parameter(...)]: a plain list, not registered", "weights list")
def param_list(planted):
    class Net(nn.Module):
        def __init__(s, i=12, d=32, n=4):
            super().__init__(); w = [nn.Parameter(torch.randn(d, i if j == 0 else d) * (2 / (i if j == 0 else d)) ** .5) for j in range(n)]; b = [nn.Parameter(torch.zeros(d)) for _ in range(n)]
            s.weights, s.biases = (w, b) if planted else (nn.ParameterList(w), nn.ParameterList(b)); s.out = nn.Linear(d, 1)
        def forward(s, x):
            for w, b in zip(s.weights, s.biases): x = F.elu(F.linear(x, w, b))
            return s.out(x)
    def data(seed): x = T(seed, 64, 12); return x, ((x @ T(301, 12, 8)).sin() @ T(302, 8, 1)) * .3 + x[:, :1] * x[:, 1:2]
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://www.mohdvasim.com/blog/deep-learning/03-activations", "five hidden sigmoid layers: the loss barely moves", "sigmoid hidden layers")
def sigmoid5(planted):
    def model():
        ls = []
        for j in range(5): l = nn.Linear(16 if j == 0 else 48, 48); (nn.init.xavier_normal_ if planted else nn.init.kaiming_normal_)(l.weight); nn.init.zeros_(l.bias); ls += [l, nn.Sigmoid() if planted else nn.ReLU()]
        return nn.Sequential(*ls, nn.Linear(48, 5))
    def data(seed): x = T(seed, 64, 16); return x, (x @ T(311, 16, 5)).argmax(1)
    return dict(model=model, data=data, loss=ce, diag={})

@case("https://thecodeforge.io/ml-ai/what-is-neural-network/", "features on wildly different scales fed without normalisation", "inputs / first Linear")
def raw_features(planted):
    def model(): return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    def data(seed):
        z = T(seed, 64, 6); y = ((z @ T(321, 6, 4)).tanh() @ T(322, 4, 1) > 0).float(); x = z * torch.tensor([12., 25000., .1, 3., 90., 400.]) + torch.tensor([40., 60000., .5, 5., 650., 1000.]); return (x if planted else z), y
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case("https://github.com/jovitabhasin/Architecting-LLMs-WiDS", "all weights and biases initialised to zero (notebook E01)", "W1, W2 init")
def zero_char_mlp(planted):
    class Net(nn.Module):
        def __init__(s, V=24, n=10, bs=3, H=100):
            super().__init__(); s.C = nn.Parameter(torch.randn(V, n)); i = n * bs; z = 0. if planted else 1.
            s.W1 = nn.Parameter(torch.randn(i, H) * (5 / 3) / i ** .5 * z); s.b1 = nn.Parameter(torch.zeros(H)); s.W2 = nn.Parameter(torch.randn(H, V) * .1 * z); s.b2 = nn.Parameter(torch.zeros(V))
        def forward(s, x): return (s.C[x].flatten(1) @ s.W1 + s.b1).tanh() @ s.W2 + s.b2
    def data(seed): x = R(seed, 24, (64, 3)); return x, R(81, 24, (24,))[x[:, 1]]
    return dict(model=Net, data=data, loss=ce, diag={})

@case("https://github.com/aliasvishnu/EEGNet/issues/5", "MaxPool2d(2, 4) (kernel 2, stride 4) instead of MaxPool2d((2, 4))", "pooling2 / pooling3")
def eegnet_pool(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 16, (1, 16)); s.bn1 = nn.BatchNorm2d(16, affine=False); s.pad1 = nn.ZeroPad2d((16, 17, 0, 1)); s.conv2 = nn.Conv2d(1, 4, (2, 32)); s.bn2 = nn.BatchNorm2d(4, affine=False)
            mp = (lambda: nn.MaxPool2d(2, 4)) if planted else (lambda: nn.MaxPool2d((2, 4))); s.pool2 = mp(); s.pad2 = nn.ZeroPad2d((2, 1, 4, 3)); s.conv3 = nn.Conv2d(4, 4, (8, 4)); s.bn3 = nn.BatchNorm2d(4, affine=False); s.pool3 = mp(); s.fc1 = nn.LazyLinear(2)
            with torch.no_grad(): s.eval(); s(torch.zeros(2, 1, 96, 16)); s.train()
        def forward(s, x):
            x = s.bn1(F.elu(s.conv1(x))).permute(0, 3, 1, 2); x = s.pool2(s.bn2(F.elu(s.conv2(s.pad1(x))))); x = s.pool3(s.bn3(F.elu(s.conv3(s.pad2(x))))); return s.fc1(x.flatten(1))
    def data(seed):
        t = R(seed, 2, (32,)); g = torch.arange(96); f = torch.where(t == 1, .35, .6); ph = torch.rand(32, 1, generator=gen(seed + 1)) * 6.28; s = (g[None] * f[:, None] + ph).sin(); w = T(331, 16); return (s[:, :, None] * w + T(seed + 2, 32, 96, 16) * .8)[:, None], t
    return dict(model=Net, data=data, loss=ce, diag={})

@case("https://github.com/lucidrains/lightweight-gan/issues/17", "pixel norm after the initial conv taken over dim -1 (width) instead of channels", "initial_conv normalize")
def lwgan_pixelnorm(planted):
    class G(nn.Module):
        def __init__(s, z=16, c=48):
            super().__init__(); s.ini = nn.Sequential(nn.ConvTranspose2d(z, c * 2, 4), nn.BatchNorm2d(c * 2), nn.GLU(1)); ub = lambda i, o: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(i, o * 2, 3, 1, 1), nn.BatchNorm2d(o * 2), nn.GLU(1)); s.u1 = ub(c, 32); s.u2 = ub(32, 16); s.o = nn.Conv2d(16, 3, 3, 1, 1)
        def forward(s, z): x = s.ini(F.normalize(z, dim=1)[:, :, None, None]); x = F.normalize(x, dim=-1 if planted else 1); return s.o(s.u2(s.u1(x)))
    def data(seed): z = T(seed, 24, 16); b = F.interpolate(T(341, 16, 3, 4, 4), 16, mode="bilinear"); return z, torch.einsum("bk,kchw->bchw", F.normalize(z, dim=1), b) * 2
    return dict(model=G, data=data, loss=mse, diag={})
