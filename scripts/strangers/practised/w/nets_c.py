from base import *
from nets_a import images, markov, protos, Attn, LM, lmdata
from nets_b import AxisLN, NameMLP, names, UNet

# 1 ------------------------------------------------------------ GPT: layer norm over the batch axis
class BatchAxisLN(nn.Module):
    def __init__(s, d, planted): super().__init__(); s.g = nn.Parameter(torch.ones(d)); s.b = nn.Parameter(torch.zeros(d)); s.ax = 0 if planted else -1
    def forward(s, x):
        m = x.mean(s.ax, keepdim=True); sd = x.std(s.ax, keepdim=True, unbiased=False); return s.g * (x - m) / (sd + 1e-5) + s.b
@case("https://ttsugriy.github.io/llm-first-principles/stages/stage-06/common-mistakes", "layer norm over axis 0 (the batch) instead of the features", "n1, n2, nf")
def llmfp_lnaxis(planted):
    def model():
        m = LM(24, 32, 20, lambda d: nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)))
        for i in range(2): m.n1[i] = BatchAxisLN(32, planted); m.n2[i] = BatchAxisLN(32, planted)
        m.nf = BatchAxisLN(32, planted); return m
    return dict(model=model, data=lmdata(), loss=ceseq, diag=SEQ)

# 2 ------------------------------------------------------------ character animation
@case("https://theorangeduck.com/page/neural-network-not-working", "wrong activation on the final layer: a ReLU, where half of the normalised poses are negative", "final ReLU")
def orangeduck_final(planted):
    W = torch.randn(20, 36, generator=gen(51)) / 4
    def data(seed):
        ph = torch.rand(48, 1, generator=gen(seed)) * 6.283; v = T(seed + 1, 48, 8); x = torch.cat([v, torch.sin(ph), torch.cos(ph)], 1)
        f = torch.cat([torch.sin(ph + v), torch.tanh(v) * torch.cos(ph), torch.sin(ph) * v[:, :4]], 1); return x, (f @ W)
    def model():
        L = [nn.Linear(10, 64), nn.ELU(), nn.Dropout(.0), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 36)] + ([nn.ReLU()] if planted else []); return nn.Sequential(*L)
    return dict(model=model, data=data, loss=mse, diag=MSE)

# 3 ------------------------------------------------------------ diffusion
class DDPM(nn.Module):
    def __init__(s, w=16):
        super().__init__(); s.t = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, w)); s.lab = nn.Embedding(6, w); s.c0 = nn.Conv2d(1, w, 3, 1, 1); s.n1 = nn.GroupNorm(4, w); s.c1 = nn.Conv2d(w, w, 3, 1, 1); s.dn = nn.Conv2d(w, 2 * w, 3, 2, 1); s.n2 = nn.GroupNorm(4, 2 * w); s.c2 = nn.Conv2d(2 * w, 2 * w, 3, 1, 1); s.up = nn.ConvTranspose2d(2 * w, w, 2, 2); s.n3 = nn.GroupNorm(4, 2 * w); s.c3 = nn.Conv2d(2 * w, w, 3, 1, 1); s.n4 = nn.GroupNorm(4, w); s.out = nn.Conv2d(w, 1, 3, 1, 1)
    def forward(s, x, t, y):
        f = torch.exp(torch.arange(8) * -.9) * t[:, None] * 100; e = (s.t(torch.cat([f.sin(), f.cos()], 1)) + s.lab(y))[:, :, None, None]
        h = s.c0(x); a = h + s.c1(F.silu(s.n1(h + e))); b = s.dn(a); b = b + s.c2(F.silu(s.n2(b))); return s.out(F.silu(s.n4(s.c3(F.silu(s.n3(torch.cat([s.up(b), a], 1)))))))
@case("https://github.com/akshaysatyam2/diffusion-model", "images in [0, 1] while the noise runs from -3 to 3: data not centred", "inputs")
def ddpm_range(planted):
    P = protos(6, 1, 12, 4, 3).sigmoid()
    def data(seed):
        y = R(seed, 6, (32,)); x0 = (P[y] + T(seed + 3, 32, 1, 12, 12, k=.03)).clamp(0, 1); x0 = x0 if planted else 2 * x0 - 1
        t = torch.rand(32, generator=gen(seed + 1)); ab = torch.cos(t * 1.5) ** 2; e = T(seed + 2, 32, 1, 12, 12); return (ab[:, None, None, None].sqrt() * x0 + (1 - ab)[:, None, None, None].sqrt() * e, t, y), e
    return dict(model=DDPM, data=data, loss=mse, diag=MSE)

# 4 ------------------------------------------------------------ reward predictor from preferences
class RewardNet(nn.Module):
    def __init__(s):
        super().__init__(); s.f = nn.Sequential(nn.Conv2d(4, 16, 5, 3), nn.BatchNorm2d(16), nn.LeakyReLU(.01), nn.Conv2d(16, 16, 3, 1), nn.BatchNorm2d(16), nn.LeakyReLU(.01), nn.Flatten(), nn.Linear(16 * 16, 64), nn.LeakyReLU(.01), nn.Linear(64, 1))
    def forward(s, a, b):
        B, K = a.shape[:2]; r = s.f(torch.cat([a, b]).flatten(0, 1)).view(2, B, K).sum(2); return r.T
class RewardNet2(RewardNet):
    def __init__(s):
        super().__init__(); s.f = nn.Sequential(nn.Conv2d(4, 16, 5, 3), nn.LeakyReLU(.01), nn.Conv2d(16, 16, 3, 1), nn.LeakyReLU(.01), nn.Flatten(), nn.Linear(16 * 16, 64), nn.LeakyReLU(.01), nn.Linear(64, 1))
@case("http://amid.fish/reproducing-deep-rl", "pixels go into the reward predictor as 0..255, not normalised", "inputs")
def amidfish_pixels(planted):
    def clip(g, n, k):
        f = torch.full((n, k, 4, 22, 22), 52.); pos = torch.randint(0, 20, (n, k, 2), generator=g)
        for i in range(n):
            for j in range(k):
                r, c = pos[i, j].tolist(); f[i, j, :, r:r + 3, c:c + 3] = 236.
        return f, (pos[..., 0].float() / 20 - .5).sum(1)
    def data(seed):
        g = gen(seed); a, ra = clip(g, 12, 4); b, rb = clip(g, 12, 4); k = 1. if planted else 1 / 255.; return (a * k, b * k), (rb > ra).long()
    return dict(model=RewardNet2, data=data, loss=ce, diag=CE)

# 5 ------------------------------------------------------------ sine with sigmoids
@case("https://geeksmental.com/question/multilayer-perceptron-does-not-converge", "sigmoid on the output, the targets are sin(x) in [-1, 1]", "output sigmoid")
def mlp_sine(planted):
    def model():
        L = [nn.Linear(1, 24), nn.Sigmoid(), nn.Linear(24, 24), nn.Sigmoid(), nn.Linear(24, 1)]
        for l in L:
            if isinstance(l, nn.Linear): nn.init.uniform_(l.weight, -1, 1); nn.init.uniform_(l.bias, -1, 1)
        L[0].weight.data *= 4
        return nn.Sequential(*L, *([nn.Sigmoid()] if planted else []))
    def data(seed): x = torch.rand(64, 1, generator=gen(seed)) * 360; return (x - 180) / 104, torch.sin(x * math.pi / 180)
    return dict(model=model, data=data, loss=mse, diag=MSE)

# 6 ------------------------------------------------------------ BPR on a graph
class RecGNN(nn.Module):
    def __init__(s, U, I, A, d=16): super().__init__(); s.emb = nn.Parameter(torch.randn(U + I, d) * .1); s.register_buffer("A", A); s.U = U; s.w = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
    def forward(s, u, p, n):
        e = s.emb; o = e
        for w in s.w: e = F.leaky_relu(w(s.A @ e), .2); o = o + e
        return (o[u] * o[s.U + p]).sum(1), (o[u] * o[s.U + n]).sum(1)
@case("https://discuss.pytorch.org/t/feature-embeddings-for-each-user-and-item-are-identical/111510", "BPR: sum over the whole batch before the logsigmoid", "loss")
def bpr_sum(planted):
    g = gen(71); U, I = 60, 80; cu = torch.randint(0, 6, (U,), generator=g); ci = torch.randint(0, 6, (I,), generator=g); like = (cu[:, None] == ci[None]); obs = like & (torch.rand(U, I, generator=g) < .6)
    A = torch.zeros(U + I, U + I); A[:U, U:] = obs.float(); A[U:, :U] = obs.float().T; dg = A.sum(1).clamp(min=1).rsqrt(); A = dg[:, None] * A * dg[None]
    def data(seed):
        g = gen(seed); e = obs.nonzero(); k = torch.randint(0, len(e), (256,), generator=g); u, p = e[k].T; n = torch.randint(0, I, (256,), generator=g); n2 = torch.randint(0, I, (256,), generator=g); n = torch.where(like[u, n], n2, n); return (u, p, n), torch.zeros(256)
    good = lambda o, t: -F.logsigmoid(o[0] - o[1]).mean(); bad = lambda o, t: -F.logsigmoid((o[0] - o[1]).sum())
    return dict(model=lambda: RecGNN(U, I, A), data=data, loss=bad if planted else good, diag={})

# 7 ------------------------------------------------------------ BCE fed with logits
@case("https://teach-meaning.tistory.com/1336", "BCE takes the linear output for a probability (sigmoid missing)", "output / loss")
def tistory_bce(planted):
    def model(): return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1), *([] if planted else [nn.Sigmoid()]))
    def data(seed): x = R(seed, 2, (64, 2)).float(); return 4 * x - 2 + T(seed + 1, 64, 2, k=.1), (x.sum(1, keepdim=True) == 1).float()
    def bce(o, t): p = o.clamp(1e-7, 1 - 1e-7); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    return dict(model=model, data=data, loss=bce, diag={})

# 8 ------------------------------------------------------------ detached features
class FeatNet(nn.Module):
    def __init__(s, planted): super().__init__(); s.planted = planted; s.feat = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()); s.fc = nn.Linear(64, 1)
    def forward(s, x):
        f = s.feat(x)
        if s.planted: f = f.detach()
        return s.fc(f / (f.norm(dim=1, keepdim=True) + 1e-6) * 4)[:, 0]
@case("https://cloud.tencent.com.cn/developer/article/2565768", "features detached for the log, and the head reads the detached ones", "feat")
def tencent_detach(planted):
    def data(seed): x, y = images(seed, 48, 3, 16, 8, .8); return x, (y % 2).float()
    return dict(model=lambda: FeatNet(planted), data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

# 9 ------------------------------------------------------------ sign of the loss
@case("https://hacking-with-hamlet.com/2023-07-08/", "the loss has its sign upside-down", "loss")
def hamlet_sign(planted):
    class Det(nn.Module):                       # sequence classifier: a small transformer encoder with mean pooling
        def __init__(s): super().__init__(); s.e = nn.Embedding(16, 24); s.pos = nn.Parameter(torch.randn(14, 24) * .1); s.t = nn.TransformerEncoderLayer(24, 4, 48, 0., batch_first=True, norm_first=True); s.n = nn.LayerNorm(24); s.o = nn.Linear(24, 3)
        def forward(s, x): return s.o(s.n(s.t(s.e(x) + s.pos)).mean(1))
    def data(seed):
        y = R(seed, 3, (48,)); return torch.stack([markov(seed + 1, 48, 13, 16, 1.5, k) for k in (1, 2, 3)])[y, torch.arange(48)], y
    return dict(model=Det, data=data, loss=(lambda o, t: -F.cross_entropy(o, t)) if planted else ce, diag={})

# 10 ----------------------------------------------------------- attention that writes into its input
class Block(nn.Module):
    def __init__(s, d, planted): super().__init__(); s.at = Attn(d, 4); s.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d)); s.n1 = nn.LayerNorm(d); s.n2 = nn.LayerNorm(d); s.planted = planted
    def forward(s, x):
        a = s.at(s.n1(x))
        x = a + a if s.planted else x + a       # planted: forward() wrote its output into the matrix x before the residual was added
        return x + s.ff(s.n2(x))
@case("https://henry-the-frog.github.io/2026/04/16/seven-bugs-in-seven-backward-passes/", "SelfAttention.forward overwrites its input with its output: the residual adds the output twice", "at")
def frog_mutate(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.tok = nn.Embedding(24, 32); s.pos = nn.Parameter(torch.randn(20, 32) * .1); s.b = nn.Sequential(*[Block(32, planted) for _ in range(3)]); s.nf = nn.LayerNorm(32); s.head = nn.Linear(32, 24)
        def forward(s, x): return s.head(s.nf(s.b(s.tok(x) + s.pos)))
    return dict(model=Net, data=lmdata(), loss=ceseq, diag=SEQ)

# 11 ----------------------------------------------------------- exercise E01
@case("https://watch-this.online/v/P6sfmUTpUmc", "all weights and biases initialised to zero: trains only partially", "W1, W2")
def makemore_zero(planted): return dict(model=lambda: NameMLP(zero=planted), data=names, loss=ce, diag=CE)

# 12 ----------------------------------------------------------- multi-label
class TextCNN(nn.Module):
    def __init__(s, V=40, d=24, K=10): super().__init__(); s.e = nn.Embedding(V, d); s.c = nn.ModuleList(nn.Conv1d(d, 24, k) for k in (1, 2, 3)); s.o = nn.Linear(72, K)
    def forward(s, x): h = s.e(x).transpose(1, 2); return s.o(torch.cat([F.relu(c(h)).amax(2) for c in s.c], 1))
@case("https://errorhandle.ai/multilabel-classification-converges-to-all-zeroes", "categorical cross-entropy (softmax) for multi-label targets instead of sigmoid BCE", "loss")
def multilabel_softmax(planted):
    def data(seed):
        x = R(seed, 40, (64, 12)); y = torch.stack([((x == k) | (x == k + 15)).any(1) for k in range(10)], 1).float(); return x, y
    bad = lambda o, t: -(t * o.log_softmax(1)).sum(1).mean(); good = lambda o, t: F.binary_cross_entropy_with_logits(o, t)
    return dict(model=TextCNN, data=data, loss=bad if planted else good, diag={})

# 13 ----------------------------------------------------------- padding as a word
class RNNLM(nn.Module):
    def __init__(s, V=22, d=24, h=48): super().__init__(); s.e = nn.Embedding(V, d); s.r = nn.LSTM(d, h, batch_first=True); s.o = nn.Linear(h, V)
    def forward(s, x): return s.o(s.r(s.e(x))[0])
@case("http://mehdi.ghanimifard.com/blog/2016/11/20/padding-in-RNN-chain.html", "padding encoded as a word: the loss is mostly about predicting the padding", "loss")
def padding_word(planted):
    def data(seed): x = markov(seed, 24, 40, 21, 2.5, 8) + 1; n = R(seed + 1, 5, (24, 1)) + 3; x = torch.where(torch.arange(41) < n, x, torch.zeros_like(x)); return x[:, :-1], x[:, 1:]
    return dict(model=RNNLM, data=data, loss=(lambda o, t: ceseq(o, t)) if planted else (lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=0)), diag={})

# 14 ----------------------------------------------------------- autoencoder with half of the cross entropy
@case("https://stats.stackexchange.com/questions/245448/loss-function-for-autoencoders", "cross entropy -x log y alone for independent pixels: every output goes to one", "loss")
def ae_half_ce(planted):
    P = protos(10, 1, 14, 5, 9)
    def data(seed): y = R(seed, 10, (32,)); x = ((P[y] + T(seed + 1, 32, 1, 14, 14, k=.4)) * 3).sigmoid().flatten(1); return x, x
    def model(): return nn.Sequential(nn.Linear(196, 64), nn.Sigmoid(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 64), nn.Sigmoid(), nn.Linear(64, 196), nn.Sigmoid())
    good = lambda o, t: F.binary_cross_entropy(o, t); bad = lambda o, t: -(t * o.clamp(min=1e-7).log()).mean()
    return dict(model=model, data=data, loss=bad if planted else good, diag={})
