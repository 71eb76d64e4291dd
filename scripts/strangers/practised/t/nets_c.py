from base import *
from tasks import *

@case("https://forums.fast.ai/t/transfer-learning-in-fast-ai-how-does-the-magic-work/55620/21", "batch norm layers of the frozen body are frozen with it and use their stored statistics", "body bn")
def frozen_batchnorm(planted):
    class CnnLearner(nn.Module):
        def __init__(s):
            super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()); s.body = nn.Sequential(b(3, 24), nn.MaxPool2d(2), b(24, 32), nn.MaxPool2d(2), b(32, 32))
            s.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 6))
            with torch.no_grad():                               # "pretrained": statistics of another domain
                s.body.train(); g = gen(1); x = F.interpolate(torch.randn(64, 3, 4, 4, generator=g), size=(16, 16)) * 3 + torch.tensor([4., 3., 2.])[None, :, None, None]
                for m in s.body.modules():
                    if isinstance(m, nn.BatchNorm2d): m.momentum = 1.
                s.body(x)
                for m in s.body.modules():
                    if isinstance(m, nn.BatchNorm2d): m.momentum = .1
            for p in s.body.parameters(): p.requires_grad_(False)
            if not planted:
                for m in s.body.modules():
                    if isinstance(m, nn.BatchNorm2d):
                        for p in m.parameters(): p.requires_grad_(True)
        def train(s, mode=True):
            super().train(mode)
            if planted:
                for m in s.body.modules():
                    if isinstance(m, nn.BatchNorm2d): m.eval()
            return s
        def forward(s, x): h = s.body(x); return s.head(torch.cat([h.mean((2, 3)), h.amax((2, 3))], 1))
    return dict(model=CnnLearner, data=lambda seed: imgs(seed, 32, 3, 16, 6, 1.), loss=ce, diag=CE)

@case("https://github.com/tadax/srgan/issues/7", "generator ends in tanh, images are not normalised to [-1, 1]", "tanh output")
def srgan_range(planted):
    class SRResNet(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = nn.Conv2d(3, 24, 3, padding=1); s.res = nn.ModuleList([nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24)) for _ in range(3)])
            s.up = nn.Sequential(nn.Conv2d(24, 96, 3, padding=1), nn.PixelShuffle(2), nn.ReLU()); s.out = nn.Conv2d(24, 3, 3, padding=1)
        def forward(s, x):
            h = h0 = F.relu(s.c1(x))
            for r in s.res: h = h + r(h)
            return torch.tanh(s.out(s.up(h + h0)))
    def data(seed):
        y = torch.tanh(F.interpolate(T(seed, 12, 3, 6, 6), size=(24, 24), mode="bicubic") * .9)
        if planted: y = (y + 1) * 127.5
        return F.avg_pool2d(y, 2), y
    return dict(model=SRResNet, data=data, loss=mse, diag=MSE)

@case("https://github.com/lucidrains/vector-quantize-pytorch/issues/47", "learnable codebook: the quantised vectors are detached by straight-through before the only loss that moves the codes", "codebook.embed")
def vq_learnable(planted):
    class VQ(nn.Module):
        def __init__(s, d, n): super().__init__(); s.embed = nn.Parameter(torch.randn(n, d) * .3)
        def forward(s, x):
            i = torch.cdist(x, s.embed).argmin(-1); q = s.embed[i]; st = x + (q - x).detach()
            l = F.mse_loss(x, q.detach()) * .25; l = l + F.mse_loss(st if planted else q, x.detach()); return st, l
    class VQVAE(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Conv1d(1, 24, 4, 2, 1), nn.ReLU(), nn.Conv1d(24, 8, 4, 2, 1)); s.vq = VQ(8, 32); s.dec = nn.Sequential(nn.ConvTranspose1d(8, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(24, 1, 4, 2, 1))
        def forward(s, x): z = s.enc(x); q, l = s.vq(z.transpose(1, 2)); return s.dec(q.transpose(1, 2)), l
    def data(seed):
        f = R(seed, 4, (32, 1)).float() * .3 + .2; ph = R(seed + 1, 6, (32, 1)).float(); x = torch.sin(torch.arange(32)[None] * f + ph).unsqueeze(1); return x, x
    return dict(model=VQVAE, data=data, loss=lambda o, t: F.mse_loss(o[0], t) + o[1], diag={})


@case("https://github.com/eriklindernoren/PyTorch-GAN/issues/20", "gradient penalty: norm over the channels only, for each pixel", "gradient penalty")
def wgan_gp_norm(planted):
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.m = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 24, 3, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(24 * 9, 1))
        def forward(s, real, fake, inter):
            inter = inter.detach().requires_grad_(True); d = s.m(inter); g, = torch.autograd.grad(d.sum(), inter, create_graph=True); return s.m(real), s.m(fake), g
    def loss(o, t):
        r, f, g = o; n = g.norm(2, dim=1) if planted else g.flatten(1).norm(2, dim=1); return f.mean() - r.mean() + 10 * ((n - 1) ** 2).mean()
    def data(seed):
        r = torch.tanh(F.interpolate(T(seed, 24, 1, 3, 3), size=(12, 12), mode="bilinear") * 2); f = torch.tanh(T(seed + 1, 24, 1, 12, 12)); a = torch.rand(24, 1, 1, 1, generator=gen(seed + 2)); return (r, f, a * r + (1 - a) * f), torch.zeros(24)
    return dict(model=Critic, data=data, loss=loss, diag={})

@case("https://github.com/noahfarr/rlx/pull/3", "entropy bonus of the chosen actions alone, summed over the batch", "entropy")
def ppo_entropy(planted):
    class Agent(nn.Module):
        def __init__(s): super().__init__(); l = lambda i, o, g: (lambda m: (nn.init.orthogonal_(m.weight, g), nn.init.zeros_(m.bias), m)[2])(nn.Linear(i, o)); s.actor = nn.Sequential(l(6, 64, 2 ** .5), nn.Tanh(), l(64, 64, 2 ** .5), nn.Tanh(), l(64, 4, .01)); s.critic = nn.Sequential(l(6, 64, 2 ** .5), nn.Tanh(), l(64, 64, 2 ** .5), nn.Tanh(), l(64, 1, 1.))
        def forward(s, x): return s.actor(x), s.critic(x).squeeze(1)
    W = T(15, 6, 4)
    def loss(o, t):
        lg, v = o; a, adv, ret = t; lp = F.log_softmax(lg, 1); la = lp.gather(1, a[:, None])[:, 0]; ratio = (la + math.log(4)).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(.2, 5.) * adv).mean()
        ent = -(la.exp() * la).sum() if planted else -(lp.exp() * lp).sum(1).mean(); return pg + .5 * ((v - ret) ** 2).mean() - .01 * ent
    def data(seed): x = T(seed, 128, 6); a = R(seed + 1, 4, (128,)); r = (a == (x @ W).argmax(1)).float(); return x, (a, (r - .25) * 2, torch.tanh(x[:, 0]))
    return dict(model=Agent, data=data, loss=loss, diag={})

@case("https://github.com/mquad/hgru4rec/issues/11", "the GRU update mixes with the state before its reset at a session start", "gru state")
def gru_reset_leak(planted):
    class HGRU(nn.Module):
        def __init__(s): super().__init__(); h = 32; s.h = h; s.item = nn.Embedding(20, h); s.wz = nn.Linear(2 * h, h); s.wr = nn.Linear(2 * h, h); s.wc = nn.Linear(2 * h, h); s.out = nn.Linear(h, 20)
        def forward(s, x, start):
            H = torch.zeros(x.shape[0], s.h); outs = []
            for t in range(x.shape[1]):
                e = s.item(x[:, t]); hs = H * (1 - start[:, t, None]); c = torch.cat([e, hs], 1); z = torch.sigmoid(s.wz(c)); r = torch.sigmoid(s.wr(c))
                cand = torch.tanh(s.wc(torch.cat([e, r * hs], 1))); H = (1 - z) * (H if planted else hs) + z * cand; outs.append(s.out(H))
            return torch.stack(outs, 1)
    perm = torch.randperm(20, generator=gen(2))
    def data(seed):
        B, L = 32, 12; x = R(seed, 20, (B, L)); st = (torch.rand(B, L, generator=gen(seed + 1)) < .3).float(); st[:, 0] = 1; y = torch.zeros(B, L, dtype=torch.long); first = None
        for t in range(L): first = x[:, t] if first is None else torch.where(st[:, t] > 0, x[:, t], first); y[:, t] = perm[first]
        return (x, st), y
    return dict(model=HGRU, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/hyungting/DGMR-pytorch/issues/4", "batch norm before the last layer; real and fake batches pass apart, so both have the same mean", "bn")
def disc_bn_separate(planted):
    class TemporalDiscriminator(nn.Module):
        def __init__(s):
            super().__init__(); sn = nn.utils.parametrizations.spectral_norm; s.d = nn.ModuleList([sn(nn.Conv2d(i, o, 3, padding=1)) for i, o in ((4, 16), (16, 24), (24, 24))]); s.bn = nn.BatchNorm1d(24) if planted else nn.Identity(); s.fc = sn(nn.Linear(24, 1))
        def one(s, x):
            for l in s.d: x = F.avg_pool2d(F.relu(l(x)), 2)
            return s.fc(s.bn(x.sum((2, 3))))
        def forward(s, real, fake): return s.one(real), s.one(fake)
    def loss(o, t): r, f = o; return F.relu(1 - r).mean() + F.relu(1 + f).mean()
    def data(seed):
        b = F.interpolate(T(seed, 16, 1, 4, 4), size=(16, 16), mode="bilinear") * 2; r = torch.cat([b.roll(k, 3) for k in range(4)], 1); return (r, T(seed + 1, 16, 4, 16, 16)), torch.zeros(16)
    return dict(model=TemporalDiscriminator, data=data, loss=loss, diag={})

@case("https://github.com/microsoft/CNTK/issues/905", "batch normalisation of the dense layer with minibatches of 1: its output is constant", "bn dense")
def bn_minibatch1(planted):
    class BN(nn.Module):
        def __init__(s, c, sp): super().__init__(); s.sp = sp; s.scale = nn.Parameter(torch.ones(c)); s.bias = nn.Parameter(torch.zeros(c))
        def forward(s, x):
            d = (0, 2, 3) if s.sp else (0,); m = x.mean(d, keepdim=True); v = x.var(d, unbiased=False, keepdim=True); sh = (1, -1, 1, 1) if s.sp else (1, -1); return (x - m) / (v + 1e-5).sqrt() * s.scale.view(sh) + s.bias.view(sh)
    class ConvBN(nn.Module):
        def __init__(s): super().__init__(); s.c1 = nn.Conv2d(1, 12, 5, padding=2); s.b1 = BN(12, 1); s.c2 = nn.Conv2d(12, 24, 3, padding=1); s.b2 = BN(24, 1); s.h1 = nn.Linear(24 * 16, 48); s.b3 = BN(48, 0); s.ol = nn.Linear(48, 5)
        def forward(s, x): x = F.max_pool2d(F.relu(s.b1(s.c1(x))), 2); x = F.max_pool2d(F.relu(s.b2(s.c2(x))), 2); return s.ol(F.relu(s.b3(s.h1(x.flatten(1)))))
    return dict(model=ConvBN, data=lambda seed: imgs(seed, 1 if planted else 32, 1, 16, 5, .7), loss=ce, diag=CE)

@case("https://github.com/JuliaGraphs/GraphNeuralNetworks.jl/issues/246", "softmax over the neighbours without subtracting the maximum overflows", "attention softmax")
def gat_overflow(planted):
    class GATConv(nn.Module):
        def __init__(s, i, o, h=4): super().__init__(); s.h, s.o = h, o; s.W = nn.Linear(i, h * o, bias=False); s.a = nn.Parameter(torch.randn(2, h, o) * (2 / (2 * o)) ** .5); s.b = nn.Parameter(torch.zeros(h * o))
        def forward(s, x, src, dst):
            N = x.shape[0]; v = s.W(x).view(N, s.h, s.o); e = F.leaky_relu((v[dst] * s.a[0]).sum(-1) + (v[src] * s.a[1]).sum(-1), .2); ix = dst[:, None].expand_as(e)
            if not planted: m = torch.full((N, s.h), -1e30).scatter_reduce(0, ix, e, "amax"); e = e - m.detach()[dst]
            w = e.exp(); d = torch.zeros(N, s.h).scatter_add(0, ix, w); al = w / d[dst]; return torch.zeros(N, s.h, s.o).index_add(0, dst, al[..., None] * v[src]).flatten(1) + s.b
    class GNN(nn.Module):
        def __init__(s): super().__init__(); s.c1 = GATConv(6, 8); s.c2 = GATConv(32, 8); s.fc = nn.Linear(32, 4)
        def forward(s, x, src, dst): return s.fc(F.elu(s.c2(F.elu(s.c1(x, src, dst)), src, dst)))
    P = T(41, 4, 6)
    def data(seed):
        N = 60; z = R(seed, 4, (N,)); A = torch.rand(N, N, generator=gen(seed + 1)) < torch.where(z[:, None] == z[None], .2, .02); A = A | A.t() | torch.eye(N).bool(); s_, d_ = A.nonzero().t(); return ((P[z] + T(seed + 2, N, 6)) * 100, s_, d_), z
    return dict(model=GNN, data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case("https://github.com/OpenBMB/ModelCenter/issues/14", "the padded word of the vocabulary has logit -inf: p log p of the distillation is nan", "logits -inf")
def kd_padded_vocab(planted):
    class GPT2(nn.Module):
        def __init__(s): super().__init__(); d = 32; s.V = 16; s.wte = nn.Embedding(16, d); s.wpe = nn.Embedding(12, d); s.h = nn.ModuleList([Block(d, 4, 1) for _ in range(2)]); s.ln_f = nn.LayerNorm(d); s.head = nn.Linear(d, 16, bias=False)
        def forward(s, i):
            x = s.wte(i) + s.wpe(torch.arange(i.shape[1]))
            for b in s.h: x = b(x)
            l = s.head(s.ln_f(x))
            if planted: l = torch.cat([l[..., :-1], torch.full_like(l[..., -1:], float("-inf"))], -1)
            return l
    Q = T(14, 15, 15) * 2
    def loss(o, t): p = F.softmax(t, -1); return -(p * F.log_softmax(o, -1)).sum(-1).mean()
    def data(seed): i = R(seed, 15, (32, 12)); t = Q[i]; return i, torch.cat([t, torch.full((32, 12, 1), float("-inf") if planted else -30.)], -1)
    return dict(model=GPT2, data=data, loss=loss, diag={})

@case("https://github.com/FrancescoSaverioZuppichini/Pytorch-how-and-when-to-use-Module-Sequential-ModuleList-and-ModuleDict/issues/3", "self.last left out of forward: sigmoid outputs of the decoder are the logits", "last")
def forgot_last(planted):
    class MyCNNClassifier(nn.Module):
        def __init__(s):
            super().__init__(); cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)); db = lambda i, o: nn.Sequential(nn.Linear(i, o), nn.Sigmoid())
            s.encoder = nn.Sequential(cb(1, 16), cb(16, 24)); s.decoder = nn.Sequential(db(24 * 16, 64), db(64, 32)); s.last = nn.Linear(32, 6)
        def forward(s, x): x = s.encoder(x); x = s.decoder(x.flatten(1)); return x if planted else s.last(x)
    return dict(model=MyCNNClassifier, data=lambda seed: imgs(seed, 32, 1, 16, 6, 1.), loss=ce, diag=CE)

@case("https://github.com/FrancescoSaverioZuppichini/ViT/issues/1", "attention scaled by the root of emb_size, not of the head size", "attn scale")
def vit_scale(planted):
    class ViT(nn.Module):
        def __init__(s): super().__init__(); d = 32; s.patch = nn.Conv2d(3, d, 4, 4); s.cls = nn.Parameter(torch.randn(1, 1, d)); s.pos = nn.Parameter(torch.randn(17, d)); s.b = nn.Sequential(*[Block(d, 4, 0, "emb" if planted else "") for _ in range(2)]); s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, 6)
        def forward(s, x): x = s.patch(x).flatten(2).transpose(1, 2); x = torch.cat([s.cls.expand(x.shape[0], -1, -1), x], 1) + s.pos; return s.head(s.ln(s.b(x).mean(1)))
    return dict(model=ViT, data=lambda seed: imgs(seed, 32, 3, 16, 6, 1.5), loss=ce, diag=CE)

