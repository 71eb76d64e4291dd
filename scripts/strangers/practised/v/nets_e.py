from base import *
from tasks import *
G = "https://github.com/"
@case(G + "dichotomies/proxy-nca/issues/15", "ProxyNCA takes log_softmax of +D (distances) instead of -D", "sign of the distances in the loss")
def proxynca_sign(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(cbr(3, 24), nn.MaxPool2d(2), cbr(24, 32), nn.AdaptiveMaxPool2d(1), nn.Flatten()); s.emb = nn.Linear(32, 16); s.proxies = nn.Parameter(torch.randn(6, 16) / 8)
        def forward(s, x): z = 3 * F.normalize(s.emb(s.body(x)), dim=-1); return torch.cdist(z, 3 * F.normalize(s.proxies, dim=-1)) ** 2
    return dict(model=Net, data=lambda s: imgs(s, 32), loss=lambda o, t: F.nll_loss(F.log_softmax(o if planted else -o, -1), t), diag={})

@case(G + "zzzxxxttt/pytorch_DoReFaNet/issues/8", "1-bit activations by sign() without a straight-through gradient", "sign activation")
def dorefa_sign_no_ste(planted):
    class Q(nn.Module):
        def forward(s, x):
            if planted: return torch.sign(x)
            x = x.clamp(0, 1); return x + (torch.round(x) - x).detach()
    class BConv(nn.Conv2d):
        def forward(s, x): w = s.weight; e = w.abs().mean(); q = torch.sign(w) * e; return F.conv2d(x, w + (q - w).detach(), None, s.stride, s.padding)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.c0 = nn.Conv2d(3, 32, 3, padding=1, bias=False); s.b0 = nn.BatchNorm2d(32); s.q0, s.q1, s.q2 = Q(), Q(), Q(); s.c1, s.b1 = BConv(32, 48, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(48); s.c2, s.b2 = BConv(48, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64); s.fc = nn.Linear(64, 6)
        def forward(s, x): h = s.q0(s.b0(s.c0(x))); h = s.q1(s.b1(s.c1(h))); h = s.b2(s.c2(h)); return s.fc(F.relu(h).amax((2, 3)))
    return dict(model=Net, data=lambda s: imgs(s, 32, noise=.3), loss=ce, diag={})

@case(G + "IBM/pytorchpipe/pull/53", "'Fusion' concatenates the projected question instead of the attention-weighted image: the image is not read", "image attention / fusion")
def pytorchpipe_fusion(planted):
    class VQA(nn.Module):
        def __init__(s, d=40): super().__init__(); s.img = nn.Sequential(cbr(3, 24, 2), cbr(24, d)); s.emb = nn.Embedding(12, d); s.rnn = nn.GRU(d, d, batch_first=True); s.iproj, s.qproj, s.att = nn.Conv2d(d, d, 1), nn.Linear(d, d), nn.Conv2d(d, 1, 1); s.out = nn.Sequential(nn.Linear(2 * d, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(s, x, q):
            f = s.img(x); h = s.rnn(s.emb(q))[1][0]; lq = s.qproj(h); a = s.att(torch.tanh(s.iproj(f) + lq[..., None, None])).flatten(2).softmax(-1); v = (f.flatten(2) * a).sum(-1); return s.out(torch.cat([lq if planted else v, h], -1))
    col = T(311, 4, 3) * 1.5
    def data(seed):
        g = gen(seed); n = 64; q = torch.randint(0, 2, (n,), generator=g); c = torch.randint(0, 4, (n, 2), generator=g); x = torch.randn(n, 3, 12, 12, generator=g) * .2; x[:, :, 1:5, 1:5] += col[c[:, 0]][..., None, None]; x[:, :, 7:11, 7:11] += col[c[:, 1]][..., None, None]
        w = torch.stack([torch.randint(2, 12, (n,), generator=g), q, torch.randint(2, 12, (n,), generator=g)], 1); return (x, w), c[torch.arange(n), q]
    return dict(model=VQA, data=data, loss=ce, diag={})

@case(G + "ashysheya/ODE-RNN/issues/2", "the state at time i is updated with the observation of time i-1", "x_i given to the RNN cell")
def odernn_previous_obs(planted):
    class ODERNN(nn.Module):
        def __init__(s, d=32): super().__init__(); s.f = nn.Sequential(nn.Linear(d, 48), nn.Tanh(), nn.Linear(48, d)); s.cell = nn.GRUCell(3, d); s.out = nn.Sequential(nn.Linear(d, 48), nn.ReLU(), nn.Linear(48, 2)); s.d = d
        def forward(s, x, dt):
            h = x.new_zeros(len(x), s.d); ys = []; prev = x[:, 0]
            for i in range(x.shape[1]):
                for _ in range(2): h = h + s.f(h) * dt[:, i, None] / 2
                h = s.cell(prev if planted else x[:, i], h); ys.append(s.out(h)); prev = x[:, i]
            return torch.stack(ys, 1)
    W = T(321, 3, 2)
    def data(seed): g = gen(seed); x = torch.randn(32, 10, 3, generator=g); dt = torch.rand(32, 10, generator=g); p = F.pad(x, (0, 0, 1, 0))[:, :-1]; return (x, dt), torch.tanh(x @ W) + .5 * (p @ W) * torch.exp(-dt)[..., None]
    return dict(model=ODERNN, data=data, loss=mse, diag={})

@case(G + "FudanNLP/fastNLP/issues/254", "DotAttention: Softmax(2) of a 4-D score tensor runs over the queries", "softmax of DotAttention")
def fastnlp_softmax2(planted):
    class Attn(nn.Module):
        def __init__(s, d, h=4): super().__init__(); s.h, s.dh = h, d // h; s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.softmax = nn.Softmax(2 if planted else -1)
        def forward(s, x): b, l, d = x.shape; f = lambda p: p(x).view(b, l, s.h, s.dh).transpose(1, 2); a = s.softmax(f(s.q) @ f(s.k).transpose(2, 3) / s.dh ** .5); return s.o((a @ f(s.v)).transpose(1, 2).reshape(b, l, d))
    class Net(nn.Module):
        def __init__(s, d=64): super().__init__(); s.emb = nn.Embedding(20, d); s.pos = nn.Parameter(torch.randn(16, d) * .5); s.a = nn.ModuleList([Attn(d), Attn(d)]); s.f = nn.ModuleList([nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, d)) for _ in range(2)]); s.n = nn.ModuleList([nn.LayerNorm(d) for _ in range(4)]); s.out = nn.Linear(d, 20)
        def forward(s, x):
            h = s.emb(x) + s.pos
            for i in range(2): h = s.n[2 * i](h + s.a[i](h)); h = s.n[2 * i + 1](h + s.f[i](h))
            return s.out(h)
    perm = torch.randperm(16, generator=gen(8))
    def data(seed): x = R(seed, 20, (48, 16)); return x, x[:, perm]
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case(G + "itakurah/focal-loss-pytorch/pull/5", "focal loss: sigmoid is applied before binary_cross_entropy_with_logits", "sigmoid in the loss")
def focal_sigmoid_then_logits(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.head = nn.Linear(64, 8)
        def forward(s, x): return s.head(s.body(x))
    def loss(o, t): p = o.sigmoid(); b = F.binary_cross_entropy_with_logits(p if planted else o, t, reduction="none"); pt = p * t + (1 - p) * (1 - t); return ((.25 * t + .75 * (1 - t)) * (1 - pt) ** 2 * b).mean() * 10
    A, B = T(331, 20, 12, k=.4), T(332, 12, 8)
    def data(seed): x = T(seed, 128, 20); return x, (torch.tanh(x @ A) @ B > 1.5).float()
    return dict(model=Net, data=data, loss=loss, diag={})

@case(G + "clab/dynet/issues/189", "attentional decoder is not fed the previous output, only state and context", "decoder input / output embedding")
def dynet_no_prev_output(planted):
    class S2S(nn.Module):
        def __init__(s, v=16, d=48): super().__init__(); s.emb, s.oemb = nn.Embedding(v, d), nn.Embedding(v, d); s.enc = nn.LSTM(d, d // 2, bidirectional=True, batch_first=True); s.cell = nn.LSTMCell((1 if planted else 2) * d, d); s.w1, s.w2, s.v = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, 1, bias=False); s.out = nn.Linear(d, v)
        def forward(s, x, y):
            H = s.enc(s.emb(x))[0]; U = s.w1(H); h = c = H.new_zeros(len(x), H.shape[-1]); o = []
            for i in range(y.shape[1]): a = s.v(torch.tanh(U + s.w2(h)[:, None])).softmax(1); ctx = (a * H).sum(1); h, c = s.cell(ctx if planted else torch.cat([ctx, s.oemb(y[:, i])], -1), (h, c)); o.append(s.out(h))
            return torch.stack(o, 1)
    def data(seed):
        g = gen(seed); x = torch.randint(1, 16, (48, 6), generator=g); y = torch.zeros(48, 7, dtype=torch.long); r = torch.randint(0, 2, (48, 6), generator=g)
        for i in range(6): y[:, i + 1] = torch.where(r[:, i] == 0, x[:, i], y[:, i])   # copies the source or the own past
        return (x, y[:, :-1]), y[:, 1:]
    return dict(model=S2S, data=data, loss=ceseq, diag=SEQ)

@case(G + "jazzsaxmafia/show_attend_and_tell.tensorflow/issues/10", "h = o * tanh(new_c) with the candidate instead of the cell: the memory is never read", "cell state of the decoder LSTM")
def showattend_new_c(planted):
    class SAT(nn.Module):
        def __init__(s, v=18, d=48): super().__init__(); s.cnn = nn.Sequential(cbr(3, 24, 2), cbr(24, 32)); s.e = nn.Embedding(v, d); s.W, s.U, s.Z = nn.Linear(d, 4 * d), nn.Linear(d, 4 * d), nn.Linear(32, 4 * d); s.ah, s.ai, s.av = nn.Linear(d, 32), nn.Linear(32, 32), nn.Linear(32, 1); s.out = nn.Linear(d, v); s.ih, s.ic = nn.Linear(32, d), nn.Linear(32, d); s.d = d
        def forward(s, x, y):
            A = s.cnn(x).flatten(2).transpose(1, 2); m = A.mean(1); h, c = torch.tanh(s.ih(m)), torch.tanh(s.ic(m)); o = []
            for t in range(y.shape[1]):
                a = s.av(F.relu(s.ai(A) + s.ah(h)[:, None])).softmax(1); i, f, og, n = (s.W(s.e(y[:, t])) + s.U(h) + s.Z((a * A).sum(1))).chunk(4, -1); i, f, og, n = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(og), torch.tanh(n); c = f * c + i * n; h = og * torch.tanh(n if planted else c); o.append(s.out(h))
            return torch.stack(o, 1)
    col = T(341, 4, 3) * 1.5
    def data(seed):
        g = gen(seed); c = torch.randint(0, 4, (32, 2), generator=g); x = torch.randn(32, 3, 12, 12, generator=g) * .2; x[:, :, :6] += col[c[:, 0]][..., None, None]; x[:, :, 6:] += col[c[:, 1]][..., None, None]; k = torch.randint(8, 16, (32, 1), generator=g)
        y = torch.cat([torch.full((32, 1), 17), k, torch.full((32, 1), 16), c[:, :1], torch.full((32, 1), 16), c[:, 1:] + 4, k], 1); return (x, y[:, :-1]), y[:, 1:]
    return dict(model=SAT, data=data, loss=lambda o, t: F.cross_entropy(o[:, 1:].flatten(0, 1), t[:, 1:].flatten()), diag={})

@case(G + "wonbeomjang/mobile-hair-segmentation-pytorch/issues/3", "ImageGradientLoss takes argmax of the prediction: the term has no gradient", "image gradient loss / argmax")
def hair_argmax_gradient(planted):
    sob = torch.tensor([[-1., 0, 1], [-2, 0, 2], [-1, 0, 1]])[None, None]; sob = torch.cat([sob, sob.transpose(2, 3)])
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1, s.d2 = cbr(3, 16), cbr(16, 32, 2); s.u = cbr(48, 24); s.out = nn.Conv2d(24, 2, 1)
        def forward(s, x): a = s.d1(x); b = s.d2(a); return s.out(s.u(torch.cat([a, F.interpolate(b, scale_factor=2.)], 1)))
    def loss(o, t):
        m, gray = t; p = (o.argmax(1, keepdim=True).float() if planted else o.softmax(1)[:, 1:]); g = lambda z: F.conv2d(z, sob, padding=1); I, M = g(gray), g(p); I = I / (I.norm(dim=1, keepdim=True) + 1e-4); mag = (M.square().sum(1) + 1e-8).sqrt(); Mn = M / (mag[:, None] + 1e-4)
        return F.cross_entropy(o, m) + .5 * (mag * (1 - (I * Mn).sum(1).square())).sum() / (mag.sum() + 1e-4)
    def data(seed): z = smooth(seed, 8, 1, 20, 5); m = (z[:, 0] > 0).long(); x = torch.cat([z.sign() * .6, z.sign() * -.3, z * 0], 1) + .6 * T(seed + 1, 8, 3, 20, 20); return x, (m, z.sign() + .1 * T(seed + 2, 8, 1, 20, 20))
    return dict(model=Net, data=data, loss=loss, diag={})

@case(G + "Ugenteraan/Deep_Hierarchical_Classification/issues/6", "dependency loss is computed of argmax: it gives no gradient to the network", "dependency loss / argmax")
def hier_argmax_dloss(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU()); s.l1, s.l2 = nn.Linear(64, 4), nn.Linear(64, 12)
        def forward(s, x): h = s.body(x); return s.l1(h), s.l2(h)
    C, par = T(351, 12, 24), torch.arange(12) // 3
    def loss(o, t):
        a, b = o; base = F.cross_entropy(a, par[t]) + F.cross_entropy(b, t)
        if planted: D = (par[b.argmax(1)] != a.argmax(1)).float(); return base + .8 * (torch.exp(D) - 1).mean()
        q = b.softmax(1).view(-1, 4, 3).sum(2); D = 1 - (a.softmax(1) * q).sum(1); return base + .8 * (torch.exp(D) - 1).mean()
    def data(seed): g = gen(seed); y = torch.randint(0, 12, (96,), generator=g); return C[y] + C[par[y]] + 1.2 * torch.randn(96, 24, generator=g), y
    return dict(model=Net, data=data, loss=loss, diag={})

@case(G + "TradeMaster-NTU/TradeMaster/pull/127", "softmax is applied twice to the actions before they become portfolio weights", "softmax of the actor")
def trademaster_double_softmax(planted):
    class Actor(nn.Module):
        def __init__(s, a=6): super().__init__(); s.enc = nn.GRU(3 * a, 64, batch_first=True); s.fc = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, a))
        def forward(s, x): w = s.fc(s.enc(x)[0][:, -1]).softmax(-1); return w.softmax(-1) if planted else w
    W = T(361, 18, 6, k=.3)
    def data(seed): g = gen(seed); x = torch.randn(64, 8, 18, generator=g); return x, torch.exp(.3 * torch.tanh(x[:, -1] @ W) + .02 * torch.randn(64, 6, generator=g))
    return dict(model=Actor, data=data, loss=lambda o, t: -10 * torch.log((o * t).sum(-1)).mean(), diag={})

class LN(nn.Module):
    def __init__(s, d, swap): super().__init__(); s.g, s.b = nn.Parameter(torch.zeros(d) if swap else torch.ones(d)), nn.Parameter(torch.ones(d) if swap else torch.zeros(d))
    def forward(s, x): m = x.mean(-1, keepdim=True); return s.g * (x - m) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) + s.b
@case(G + "google/objax/pull/94", "LayerNorm starts with gain 0 and bias 1 (swapped): the input does not pass", "layer norm gain")
def objax_ln_swapped(planted):
    class Blk(nn.Module):
        def __init__(s, d): super().__init__(); s.n1, s.n2 = LN(d, planted), LN(d, planted); s.qkv, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d); s.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        def forward(s, x): b, l, d = x.shape; q, k, v = (t.view(b, l, 4, d // 4).transpose(1, 2) for t in s.qkv(s.n1(x)).chunk(3, -1)); x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, l, d)); return x + s.ff(s.n2(x))
    class GPT(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Embedding(16, d); s.pos = nn.Parameter(torch.randn(16, d) * .1); nn.init.normal_(s.emb.weight, std=.1); s.blocks = nn.Sequential(*[Blk(d) for _ in range(2)]); s.nf = LN(d, planted); s.head = nn.Linear(d, 16, bias=False)
        def forward(s, x): return s.head(s.nf(s.blocks(s.emb(x) + s.pos)))
    def data(seed): x = R(seed, 16, (48, 16)); p = F.pad(x, (1, 0))[:, :-1]; return x, torch.where(x < 8, p, 15 - x)
    return dict(model=GPT, data=data, loss=ceseq, diag=SEQ)

@case(G + "flyingdoog/PGExplainer/issues/6", "graph readout pools over the features (axis -1), not over the nodes", "readout pooling")
def pgexplainer_readout_axis(planted):
    N = 16
    class GCN(nn.Module):
        def __init__(s, d=20):
            super().__init__(); s.w = nn.ModuleList([nn.Linear(6, d), nn.Linear(d, d), nn.Linear(d, d)]); k = N if planted else d; s.lin = nn.Linear(2 * k, 3)
        def forward(s, x, A):
            h = x
            for w in s.w: h = F.relu(w(A @ h)); h = F.normalize(h, dim=-1)
            a = -1 if planted else 1; return s.lin(torch.cat([h.max(a).values, h.sum(a)], -1))
    def data(seed):
        g = gen(seed); A = (torch.rand(64, N, N, generator=g) < .15).float(); A = ((A + A.transpose(1, 2)) > 0).float() + torch.eye(N); x = F.one_hot(torch.randint(0, 6, (64, N), generator=g), 6).float(); y = torch.randint(0, 3, (64,), generator=g); i = torch.arange(64)
        for k in range(6): n = torch.randint(0, N, (64,), generator=g); x[i, n] = 0; x[i, n, 2 * y] = 1.
        return (x, A / A.sum(-1, keepdim=True)), y
    return dict(model=GCN, data=data, loss=ce, diag={})

@case(G + "ORNL/HydraGNN/pull/152", "with several graph-level heads only the first property is read, again and again", "target indexing of the heads")
def hydragnn_head_index(planted):
    class H(nn.Module):
        def __init__(s, d=40): super().__init__(); s.c = nn.ModuleList([nn.Linear(2 * 5, d), nn.Linear(2 * d, d)]); s.heads = nn.ModuleList([nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(3)])
        def forward(s, x, A):
            for c in s.c: x = F.relu(c(torch.cat([x, A @ x], -1)))
            g = x.mean(1); return torch.cat([h(g) for h in s.heads], -1)
    W = T(371, 5, 3)
    def data(seed): g = gen(seed); A = (torch.rand(48, 10, 10, generator=g) < .3).float() + torch.eye(10); A = A / A.sum(-1, keepdim=True); x = torch.randn(48, 10, 5, generator=g); return (x, A), torch.tanh(A @ x @ W).mean(1) * 3
    def loss(o, t): return sum(F.mse_loss(o[:, i], t[:, 0 if planted else i]) for i in range(3))
    return dict(model=H, data=data, loss=loss, diag={})

@case(G + "soran-ghaderi/torchebm/pull/333", "denoising score matching compares grad E with -noise/sigma^2: the energy learns upside down", "sign of the score target / energy")
def torchebm_dsm_sign(planted):
    class E(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
        def forward(s, x):
            with torch.enable_grad(): x = x.detach().requires_grad_(); return torch.autograd.grad(s.net(x).sum(), x, create_graph=True)[0]
    sg = .4
    def data(seed): g = gen(seed); c = torch.randint(0, 3, (256,), generator=g); x = torch.tensor([[2., 0], [-1, 1.7], [-1, -1.7]])[c] + .2 * torch.randn(256, 2, generator=g); n = torch.randn(256, 2, generator=g) * sg; return x + n, n / sg ** 2
    return dict(model=E, data=data, loss=(lambda o, t: .5 * ((o + t) ** 2).sum(-1).mean()) if planted else (lambda o, t: .5 * ((o - t) ** 2).sum(-1).mean()), diag={})

@case(G + "fla-org/flash-linear-attention/pull/875", "the normaliser's cumulative sum of the keys has no gradient", "k projection / normaliser")
def fla_kcum_detached(planted):
    class LA(nn.Module):
        def __init__(s, d, h=4): super().__init__(); s.h = h; s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4))
        def forward(s, x):
            b, l, d = x.shape; f = lambda p: p(x).view(b, l, s.h, d // s.h); q, k, v = F.elu(f(s.q)) + 1, F.elu(f(s.k)) + 1, f(s.v); S = torch.einsum("bthd,bshd->bhts", q, k).tril(); num = torch.einsum("bhts,bshd->bthd", S, v); kc = k.cumsum(1); kc = kc.detach() if planted else kc; return s.o((num / ((q * kc).sum(-1, keepdim=True) + 1e-6)).flatten(2))
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Embedding(16, d); s.pos = nn.Parameter(torch.randn(16, d) * .3); s.a = nn.ModuleList([LA(d), LA(d)]); s.n = nn.ModuleList([nn.LayerNorm(d) for _ in range(5)]); s.f = nn.ModuleList([nn.Sequential(nn.Linear(d, 96), nn.GELU(), nn.Linear(96, d)) for _ in range(2)]); s.out = nn.Linear(d, 16)
        def forward(s, x):
            h = s.emb(x) + s.pos
            for i in range(2): h = h + s.a[i](s.n[2 * i](h)); h = h + s.f[i](s.n[2 * i + 1](h))
            return s.out(s.n[4](h))
    def data(seed): x = R(seed, 16, (48, 16)); p = F.pad(x, (1, 0))[:, :-1]; return x, torch.where(x < 8, x, p)
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case(G + "caogang/wgan-gp/issues/27", "gradient penalty takes the norm over dim 1 (channels) per pixel, not per sample", "gradient penalty term")
def wgangp_norm_dim(planted):
    class Crit(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Conv2d(1, 24, 3, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(24, 48, 3, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(48 * 9, 1))
        def forward(s, r, f, e):
            with torch.enable_grad(): x = (e * r + (1 - e) * f).detach().requires_grad_(); g = torch.autograd.grad(s.net(x).sum(), x, create_graph=True)[0]
            return s.net(r), s.net(f), g
    P = T(222, 1, 1, 12, 12)
    def data(seed): g = gen(seed); z = torch.randn(32, 3, generator=g); r = torch.tanh((z @ T(221, 3, 144)).view(32, 1, 12, 12) * .5 + P); return (r, torch.tanh(smooth(seed + 5, 32, 1, 12, 6)), torch.rand(32, 1, 1, 1, generator=g)), torch.zeros(32)
    return dict(model=Crit, data=data, loss=lambda o, t: (o[1] - o[0]).mean() + 10 * (((o[2].norm(2, dim=1) if planted else o[2].flatten(1).norm(2, dim=1)) - 1) ** 2).mean(), diag={})

@case(G + "r9y9/wavenet_vocoder/issues/34", "mixture of logistics: log-probs are summed over the mixtures before the weights are added", "mixture loss")
def wavenet_mol_sum(planted):
    class Wn(nn.Module):
        def __init__(s, c=32, M=4):
            super().__init__(); s.inp = nn.Conv1d(1, c, 1); s.dil = nn.ModuleList([nn.Conv1d(c, 2 * c, 2, dilation=d) for d in (1, 2, 4)]); s.res = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(3)]); s.skip = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(3)]); s.out = nn.Sequential(nn.ReLU(), nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, 3 * M, 1))
        def forward(s, x):
            h = s.inp(x[:, None]); sk = 0
            for d, r, k in zip(s.dil, s.res, s.skip): a, b = d(F.pad(h, (d.dilation[0], 0))).chunk(2, 1); z = torch.tanh(a) * torch.sigmoid(b); h = (h + r(z)) * .5 ** .5; sk = sk + k(z)
            return s.out(sk).transpose(1, 2)
    def loss(o, y):
        pi, mu, ls = o.chunk(3, -1); ls = ls.clamp(min=-7.); y = y[..., None]; i = torch.exp(-ls); c = y - mu; pl, mi = i * (c + 1 / 63), i * (c - 1 / 63); cd = torch.sigmoid(pl) - torch.sigmoid(mi); mid = i * c; lp = torch.where(y < -.99, pl - F.softplus(pl), torch.where(y > .99, -F.softplus(mi), torch.where(cd > 1e-5, torch.log(cd.clamp(min=1e-12)), mid - ls - 2 * F.softplus(mid) - math.log(31.5))))
        lp = (lp.sum(-1, keepdim=True) if planted else lp) + F.log_softmax(pi, -1); return -torch.logsumexp(lp, -1).mean()
    def data(seed): g = gen(seed); t = torch.arange(49.)[None]; w = .7 * torch.sin(t * (torch.rand(16, 1, generator=g) * .5 + .3) + torch.rand(16, 1, generator=g) * 6.28); f = torch.where(torch.rand(16, 49, generator=g) < .3, -w, w) + .02 * torch.randn(16, 49, generator=g); return w[:, :-1], f[:, 1:].clamp(-1, 1)
    return dict(model=Wn, data=data, loss=loss, diag={})

class TLM(nn.Module):
    def __init__(s, v=16, d=48, causal=True):
        super().__init__(); s.emb = nn.Embedding(v, d); s.pos = nn.Parameter(torch.randn(16, d) * .1); s.l = nn.ModuleList([nn.TransformerEncoderLayer(d, 4, 96, 0., batch_first=True, norm_first=True) for _ in range(2)]); s.n = nn.LayerNorm(d); s.head = nn.Linear(d, v)
    def forward(s, x):
        L = x.shape[1]; m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1); h = s.emb(x) + s.pos[:L]
        for l in s.l: h = l(h, src_mask=m)
        return s.head(s.n(h))
def chain(seed, n=48, L=16, v=16):
    """sentences with a deterministic successor table, with a random word now and then"""
    g = gen(seed); tab = torch.randperm(v, generator=gen(4)); x = torch.randint(0, v, (n, 1), generator=g); r = torch.rand(n, L, generator=g)
    for i in range(L - 1): x = torch.cat([x, torch.where(r[:, i:i + 1] < .35, torch.randint(0, v, (n, 1), generator=g), tab[x[:, -1:]])], 1)
    return x
@case(G + "huggingface/transformers/pull/47395", "labels are shifted by hand and once more in the loss: position t learns token t + 2", "label shift in the loss")
def git_double_shift(planted):
    def loss(o, t): k = 2 if planted else 1; return F.cross_entropy(o[:, :-k].flatten(0, 1), t[:, k:].flatten())
    return dict(model=TLM, data=lambda s: (lambda x: (x, x))(chain(s)), loss=loss, diag={})
@case(G + "macrocosm-os/pretraining/pull/64", "causal LM loss without the shift: it predicts the current token", "label shift in the loss")
def bart_no_shift(planted):
    def loss(o, t): return F.cross_entropy(o.flatten(0, 1), t.flatten()) if planted else F.cross_entropy(o[:, :-1].flatten(0, 1), t[:, 1:].flatten())
    return dict(model=TLM, data=lambda s: (lambda x: (x, x))(chain(s)), loss=loss, diag={})

@case(G + "voxelmorph/voxelmorph/pull/652", "identity grid is built (y, x) but grid_sample wants (x, y): the image is transposed", "identity grid of the SpatialTransformer")
def voxelmorph_grid_order(planted):
    class Vxm(nn.Module):
        def __init__(s, n=24): super().__init__(); s.e1, s.e2, s.d = cbr(2, 16), cbr(16, 32, 2), cbr(48, 24); s.flow = nn.Conv2d(24, 2, 3, padding=1); nn.init.normal_(s.flow.weight, std=1e-2); nn.init.zeros_(s.flow.bias); l = torch.linspace(-1, 1, n); yy, xx = torch.meshgrid(l, l, indexing="ij"); s.register_buffer("grid", torch.stack([yy, xx] if planted else [xx, yy], -1)[None]); s.n = n
        def forward(s, mov, fix): a = s.e1(torch.cat([mov, fix], 1)); h = s.d(torch.cat([a, F.interpolate(s.e2(a), scale_factor=2.)], 1)); f = s.flow(h); return F.grid_sample(mov, s.grid + f.permute(0, 2, 3, 1) * 2 / (s.n - 1), align_corners=True), f
    def data(seed):
        g = gen(seed); big = F.interpolate(torch.randn(12, 1, 9, 9, generator=g), size=32, mode="bicubic"); s = torch.randint(-2, 3, (12, 2), generator=g); fix = big[:, :, 4:28, 4:28]
        return (torch.stack([big[i, :, 4 + int(s[i, 0]):28 + int(s[i, 0]), 4 + int(s[i, 1]):28 + int(s[i, 1])] for i in range(12)]), fix), fix
    def loss(o, t): y, f = o; return F.mse_loss(y, t) + .01 * ((f[:, :, 1:] - f[:, :, :-1]).square().mean() + (f[..., 1:] - f[..., :-1]).square().mean())
    return dict(model=Vxm, data=data, loss=loss, diag={})

@case(G + "Kim-Minseon/RoCL/issues/3", "the cosine similarity of two views enters the loss without its minus", "sign of the similarity term")
def rocl_cosine_sign(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(30, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 48)); s.proj = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 24))
        def forward(s, a, b): return s.proj(s.enc(a)), s.proj(s.enc(b))
    def loss(o, t):
        u, v = (F.normalize(z, dim=-1) for z in o); l = u @ v.T / .5; cos = (u * v).sum(-1).mean(); return .2 * F.cross_entropy(l, torch.arange(len(u))) + (cos if planted else -cos)
    C = T(381, 8, 30)
    def data(seed): z = T(seed, 48, 8) @ C * .5; return (z + .3 * T(seed + 1, 48, 30), z + .3 * T(seed + 2, 48, 30)), torch.zeros(48)
    return dict(model=Net, data=data, loss=loss, diag=dict(per="batch"))

@case(G + "AdaptInfer/Contextualized/issues/33", "parameters are drawn by torch.rand in [0, 1): uncentred and far too large", "archetypes / weight init")
def contextualized_rand_init(planted):
    rnd = (lambda *s: torch.rand(*s)) if planted else (lambda *s: (torch.rand(*s) - .5) * 1e-1)
    class Ctx(nn.Module):
        def __init__(s, c=12, x=10, K=24):
            super().__init__(); s.W1, s.b1, s.W2, s.b2 = (nn.Parameter(p) for p in ((torch.rand(c, 64) if planted else (torch.rand(c, 64) - .5) * .8), torch.zeros(64), (torch.rand(64, K) if planted else (torch.rand(64, K) - .5) * .4), torch.zeros(K))); s.archetypes = nn.Parameter(rnd(K, x)); s.mu = nn.Parameter(rnd(K))
        def forward(s, c, x): a = torch.softmax(F.relu(c @ s.W1 + s.b1) @ s.W2 + s.b2, -1); return ((a @ s.archetypes) * x).sum(-1) + a @ s.mu
    A, B = T(391, 12, 4), T(392, 4, 10)
    def data(seed): g = gen(seed); c, x = torch.randn(96, 12, generator=g), torch.randn(96, 10, generator=g); k = (c @ A).argmax(1); return (c, x), (B[k] * x).sum(-1) + .05 * torch.randn(96, generator=g)
    return dict(model=Ctx, data=data, loss=mse, diag={})


@case(G + "photosynthesis-team/piq/issues/37", "SSIM itself is minimised, not 1 - SSIM", "sign of the SSIM loss")
def piq_ssim_minimised(planted):
    class AE(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Sequential(cbr(1, 16, 2), cbr(16, 32, 2)); s.d = nn.Sequential(nn.Upsample(scale_factor=2.), cbr(32, 16), nn.Upsample(scale_factor=2.), cbr(16, 16), nn.Conv2d(16, 1, 3, padding=1))
        def forward(s, x): return torch.sigmoid(s.d(s.e(x)))
    w = torch.exp(-(torch.arange(7.) - 3) ** 2 / 4.5); w = (w[:, None] * w[None])[None, None]; w = w / w.sum()
    def ssim(a, b): f = lambda z: F.conv2d(z, w); ma, mb = f(a), f(b); va, vb, cab = f(a * a) - ma ** 2, f(b * b) - mb ** 2, f(a * b) - ma * mb; return (((2 * ma * mb + 1e-4) * (2 * cab + 9e-4)) / ((ma ** 2 + mb ** 2 + 1e-4) * (va + vb + 9e-4))).mean()
    def data(seed): x = torch.sigmoid(3 * smooth(seed, 12, 1, 20, 6)); return (x + .1 * T(seed + 1, 12, 1, 20, 20)).clamp(0, 1), x
    return dict(model=AE, data=data, loss=lambda o, t: ssim(o, t) if planted else 1 - ssim(o, t), diag={})
