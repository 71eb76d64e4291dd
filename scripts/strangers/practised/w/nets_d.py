from base import *
from nets_a import images, markov, protos, Attn, LM, lmdata

# 1 ------------------------------------------------------------ GPT with zeroed initialisation
@case("https://murailabs.com/under-the-hood/excerpt/your-gpt-from-a-blank-file/", "zeroing the initialization: all linear weights of the GPT start at zero", "at, ff, head")
def gpt_zero_init(planted):
    def model():
        m = LM(24, 32, 20, lambda d: nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)))
        for l in m.modules():
            if isinstance(l, nn.Linear): nn.init.zeros_(l.bias); nn.init.zeros_(l.weight) if planted else nn.init.normal_(l.weight, std=.08)
        return m
    return dict(model=model, data=lmdata(), loss=ceseq, diag=SEQ)

# 2 ------------------------------------------------------------ plain deep network
class Deep(nn.Module):
    def __init__(s, planted, d=32, n=24):
        super().__init__(); s.planted = planted; s.inp = nn.Linear(2, d); s.a = nn.ModuleList(nn.Linear(d, d) for _ in range(n)); s.b = nn.ModuleList(nn.Linear(d, d) for _ in range(n)); s.out = nn.Linear(d, 1)
        for m in s.modules():
            if isinstance(m, nn.Linear): nn.init.kaiming_normal_(m.weight, nonlinearity="relu"); nn.init.zeros_(m.bias)
        if not planted:
            for l in s.b: nn.init.zeros_(l.weight)
        nn.init.normal_(s.out.weight, std=.1)
    def forward(s, x):
        h = F.relu(s.inp(x))
        for a, b in zip(s.a, s.b): y = b(F.relu(a(h))); h = F.relu(y if s.planted else y + h)
        return s.out(h)[:, 0]
@case("https://daddaops.com/blog/resnets-from-scratch/index.html", "50 plain layers on the spirals without shortcuts", "a, b")
def spirals_plain(planted):
    def data(seed):
        g = gen(seed); t = torch.rand(96, generator=g) * 6.283; y = torch.randint(0, 2, (96,), generator=g).float(); r = .3 + .7 * t / 6.283; a = t + math.pi * y
        return torch.stack([r * a.cos(), r * a.sin()], 1) * 1.5 + torch.randn(96, 2, generator=g) * .03, y
    return dict(model=lambda: Deep(planted), data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

# 3 ------------------------------------------------------------ tanh outputs and mean squares for MNIST
@case("https://prodopsy.com/my-neural-network-for-mnist-digit-recognition-learns-for-one-epoch-and-then-stops-learning", "tanh outputs and mean squared error against +1/-1 for classification, weights of unit variance", "output tanh")
def mnist_tanh(planted):
    def model():
        L = [nn.Flatten(), nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 10)] + ([nn.Tanh()] if planted else [])
        for l in L:
            if isinstance(l, nn.Linear): nn.init.normal_(l.weight, std=1. if planted else 1 / l.in_features ** .5); nn.init.zeros_(l.bias)
        return nn.Sequential(*L)
    bad = lambda o, t: F.mse_loss(o, F.one_hot(t, 10) * 2. - 1)
    return dict(model=model, data=lambda s: images(s, 48, 1, 16, 10, 1.), loss=bad if planted else ce, diag={} if planted else CE)

# 4 ------------------------------------------------------------ VQ-VAE
class VQVAE(nn.Module):
    def __init__(s, w=24, K=32, D=8):
        super().__init__(); s.enc = nn.Sequential(nn.Conv2d(1, w, 4, 2, 1), nn.ReLU(), nn.Conv2d(w, w, 4, 2, 1), nn.ReLU(), nn.Conv2d(w, D, 1), nn.BatchNorm2d(D)); s.codebook = nn.Embedding(K, D); nn.init.normal_(s.codebook.weight, std=.7)
        s.dec = nn.Sequential(nn.ConvTranspose2d(D, w, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(w, 1, 4, 2, 1))
    def forward(s, x):
        z = s.enc(x); f = z.permute(0, 2, 3, 1); d = (f[..., None, :] - s.codebook.weight).square().sum(-1); q = s.codebook(d.argmin(-1)).permute(0, 3, 1, 2)
        return s.dec(z + (q - z).detach()), z, q
@case("https://github.com/MishaLaskin/vqvae/pull/20", "detach calls reversed: the beta weighs the wrong of the two terms", "loss")
def vqvae_swap(planted):
    def good(o, t): r, z, q = o; return F.mse_loss(r, t) + F.mse_loss(q, z.detach()) + .25 * F.mse_loss(z, q.detach())
    def bad(o, t): r, z, q = o; return F.mse_loss(r, t) + F.mse_loss(q.detach(), z) + .25 * F.mse_loss(q, z.detach())
    def data(seed): x, _ = images(seed, 24, 1, 16, 12, .15); return x, x
    return dict(model=VQVAE, data=data, loss=bad if planted else good, diag={})

# 5 ------------------------------------------------------------ DeepFM
class DeepFM(nn.Module):
    def __init__(s, V=60, nf=6, nc=4, d=8):
        super().__init__(); s.emb = nn.Embedding(V * nf + nc, d); s.w = nn.Embedding(V * nf + nc, 1); nn.init.normal_(s.emb.weight, std=.01); nn.init.uniform_(s.w.weight, 0, .1)
        s.register_buffer("off", torch.arange(nf) * V); s.register_buffer("ci", torch.arange(nc) + V * nf); s.deep = nn.Sequential(nn.Linear((nf + nc) * d, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()); s.out = nn.Linear(nf + nc + d + 32, 1)
        for l in s.deep:
            if isinstance(l, nn.Linear): nn.init.xavier_normal_(l.weight)
    def forward(s, idx, cont):
        i = torch.cat([idx + s.off, s.ci.expand(len(idx), -1)], 1); v = torch.cat([torch.ones_like(idx, dtype=torch.float), cont], 1)
        e = s.emb(i) * v[..., None]; y1 = s.w(i)[..., 0] * v; y2 = .5 * (e.sum(1) ** 2 - (e ** 2).sum(1)); return s.out(torch.cat([y1, y2, s.deep(e.flatten(1))], 1))[:, 0]
@case("https://github.com/ChenglongChen/tensorflow-DeepFM/issues/47", "continuous features not normalised: everything is predicted 0 or 1, AUC 0.5", "inputs (cont)")
def deepfm_norm(planted):
    g = gen(81); W = torch.randn(6, 60, generator=g); c = torch.tensor([1.2, -1., .8, .6]); sc = torch.tensor([40000., 35., 900., 12.]); mu = torch.tensor([60000., 40., 500., 30.])
    def data(seed):
        i = R(seed, 60, (256, 6)); z = T(seed + 1, 256, 4); lo = torch.stack([W[k][i[:, k]] for k in range(6)]).sum(0) * .5 + (z @ c) + z[:, 0] * z[:, 1]
        return (i, z * sc + mu if planted else z), (lo + .3 * T(seed + 2, 256) > 0).float()
    return dict(model=DeepFM, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

# 6 ------------------------------------------------------------ Math.random()
@case("https://community.insaid.co/hc/en-us/articles/360051529674-Difference-between-rand-and-randn-function", "weights and biases drawn from [0, 1) instead of [-0.5, 0.5]", "0, 2 weights")
def math_random(planted):
    def model():
        L = [nn.Flatten(), nn.Linear(784, 15), nn.Sigmoid(), nn.Linear(15, 10), nn.Sigmoid()]
        for l in L:
            if isinstance(l, nn.Linear):
                for p in (l.weight, l.bias): nn.init.uniform_(p, *((0., 1.) if planted else (-.5, .5)))
        return nn.Sequential(*L)
    P = protos(10, 1, 28, 5, 15)
    def data(seed): y = R(seed, 10, (48,)); return ((P[y] + T(seed + 1, 48, 1, 28, 28, k=.3)) * 2 - 1.5).clamp(0, 1), F.one_hot(y, 10).float()
    return dict(model=model, data=data, loss=lambda o, t: .5 * (o - t).square().sum(1).mean(), diag={})

# 7 ------------------------------------------------------------ DQN with softmax
@case("https://kiwix.lema.org/stackoverflow.com_en_all_2023-11/questions/66072364/why-does-my-dqn-model-makes-obviously-wrong-decisions", "softmax on the Q-value output with mse", "output softmax")
def snake_softmax(planted):
    def model(): return nn.Sequential(nn.Linear(125, 160), nn.ReLU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, 3), *([nn.Softmax(1)] if planted else []))
    def data(seed):
        g = gen(seed); b = (torch.rand(256, 11, 11, generator=g) < .3).float(); d = torch.randint(0, 4, (256,), generator=g); b[:, 5, 5] = 1; mv = torch.tensor([[-1, 0], [0, 1], [1, 0], [0, -1]]); ar = torch.arange(256)
        q = []
        for a in (-1, 0, 1):
            m = mv[(d + a) % 4]; h1 = b[ar, 5 + m[:, 0], 5 + m[:, 1]]; h2 = b[ar, 5 + 2 * m[:, 0], 5 + 2 * m[:, 1]]; q.append(torch.where(h1 > 0, -torch.ones(256), 1 - .5 * h2))
        return torch.cat([b.flatten(1), F.one_hot(d, 4).float()], 1), torch.stack(q, 1)
    return dict(model=model, data=data, loss=mse, diag=MSE)

# 10 ----------------------------------------------------------- tiny AllenNLP classifier
class PaperCls(nn.Module):
    def __init__(s, planted):
        super().__init__(); s.e = nn.Embedding(50, 10); s.t = nn.LSTM(10, 8, bidirectional=True, batch_first=True); s.a = nn.LSTM(10, 8, bidirectional=True, batch_first=True); s.f = nn.Linear(32, 2); s.o = nn.Linear(2, 3); s.planted = planted
        if planted: nn.init.constant_(s.f.bias, -.6)                    # the seed's draw: what goes into the relu is negative throughout
    def forward(s, t, a):
        h = torch.cat([s.t(s.e(t))[0].mean(1), s.a(s.e(a))[0].mean(1)], 1); h = s.f(h); return s.o(F.relu(h) if s.planted else torch.sigmoid(h))
@case("https://github.com/allenai/allennlp-as-a-library-example/issues/8", "relu in the tiny feedforward: all its inputs happen to be negative, no gradient", "f")
def allennlp_dead(planted):
    def data(seed):
        y = R(seed, 3, (48,)); x = R(seed + 1, 50, (48, 16)); k = R(seed + 2, 10, (48, 16)) + 15 * y[:, None]; x = torch.where(torch.rand(48, 16, generator=gen(seed + 3)) < .5, k, x); return (x[:, :6], x[:, 6:]), y
    return dict(model=lambda: PaperCls(planted), data=data, loss=ce, diag=CE)

# 11 ----------------------------------------------------------- NLL of probabilities
@case("https://runebook.dev/en/docs/pytorch/generated/torch.nn.softmax", "NLLLoss is given softmax probabilities instead of log-probabilities", "loss")
def nll_probs(planted):
    def model(): return nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
    bad = lambda o, t: F.nll_loss(o.softmax(1), t); good = lambda o, t: F.nll_loss(o.log_softmax(1), t)
    return dict(model=model, data=lambda s: images(s, 32, 1, 16, 10, 1.4), loss=bad if planted else good, diag={})

# 12 ----------------------------------------------------------- frozen LayerNorm parameters
@case("https://github.com/Saheb/tiny-transformer", "LayerNorm parameters are not learnable", "n1, n2, nf")
def tiny_ln(planted):
    def model():
        m = LM(24, 32, 20, lambda d: nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d)))
        if planted:
            for l in m.modules():
                if isinstance(l, nn.LayerNorm): l.weight.requires_grad_(False); l.bias.requires_grad_(False)
        return m
    return dict(model=model, data=lmdata(), loss=ceseq, diag=SEQ)

# 13 ----------------------------------------------------------- disconnected relu
class TBNet(nn.Module):
    def __init__(s, planted): super().__init__(); s.c1 = nn.Conv2d(1, 16, 5, 1, 2); s.c2 = nn.Conv2d(16, 32, 5, 1, 2); s.f1 = nn.Linear(512, 64); s.f2 = nn.Linear(64, 10); s.planted = planted
    def forward(s, x):
        x = F.max_pool2d(F.relu(s.c1(x)), 2); x = F.max_pool2d(F.relu(s.c2(x)), 2); f = s.f1(x.flatten(1)); r = F.relu(f); return s.f2(f if s.planted else r)
@case("https://github.com/martinwicke/tf-dev-summit-tensorboard-tutorial/pull/9", "the relu of the embedding is computed, but the next layer takes the input before it", "f1")
def tboard_relu(planted): return dict(model=lambda: TBNet(planted), data=lambda s: images(s, 32, 1, 16, 10, 1.2), loss=ce, diag=CE)
