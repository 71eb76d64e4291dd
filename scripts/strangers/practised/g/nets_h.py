from base import *
from nets_f import dense, blobs, kbce

@case("https://github.com/suolyer/PyTorch_BERT_Biaffine_NER/pull/3", "biaffine weight is torch.Tensor(...), uninitialised memory with huge values: logits overflow", "biaffine U")
def biaffine_uninit(planted):
    class Biaffine(nn.Module):
        def __init__(s, d, o):
            super().__init__(); u = torch.randn(d + 1, o, d + 1) * .1
            if planted: u[torch.rand(u.shape) < .01] = 1e31
            s.U = nn.Parameter(u)
        def forward(s, x, y): x = F.pad(x, (0, 1), value=1.); y = F.pad(y, (0, 1), value=1.); return torch.einsum("bxi,ioj,byj->bxyo", x, s.U, y)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(30, 24); s.lstm = nn.LSTM(24, 16, bidirectional=True, batch_first=True); s.start = nn.Sequential(nn.Linear(32, 24), nn.ReLU()); s.end = nn.Sequential(nn.Linear(32, 24), nn.ReLU()); s.biaffine = Biaffine(24, 3)
        def forward(s, x): h = s.lstm(s.emb(x))[0]; return s.biaffine(s.start(h), s.end(h))
    def data(seed): x = R(seed, 30, (8, 8)); return x, ((x < 10)[:, :, None].long() + (x >= 20)[:, None].long())
    return dict(model=Net, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/kaijieshi7/Dynamic-convolution-Pytorch/pull/17", "bias = nn.Parameter(torch.Tensor(K, out)): uninitialised, values around 1e34", "self.bias of Dynamic_conv2d")
def dynconv_bias(planted):
    class Dynamic_conv2d(nn.Module):
        def __init__(s, i, o, K=4):
            super().__init__(); s.att = nn.Sequential(nn.Linear(i, 4), nn.ReLU(), nn.Linear(4, K)); s.weight = nn.Parameter(torch.randn(K, o, i, 3, 3)); [nn.init.kaiming_uniform_(w) for w in s.weight.data]
            b = torch.zeros(K, o)
            if planted: b[0, ::5] = 1e34
            s.bias = nn.Parameter(b)
        def forward(s, x):
            B, C, H, W = x.shape; a = s.att(x.mean((2, 3))).div(3).softmax(-1); w = torch.einsum("bk,koihw->boihw", a, s.weight).flatten(0, 1); b = (a @ s.bias).flatten()
            return F.conv2d(x.reshape(1, B * C, H, W), w, b, padding=1, groups=B).view(B, -1, H, W)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c1 = Dynamic_conv2d(1, 10); s.c2 = Dynamic_conv2d(10, 20); s.fc = nn.Linear(180, 10)
        def forward(s, x): x = F.max_pool2d(F.relu(s.c1(x)), 2); x = F.max_pool2d(F.relu(s.c2(x)), 2); return s.fc(x.flatten(1))
    def data(seed): x, t = blobs(seed, 16, 14, 10); return x.view(-1, 1, 14, 14), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/YeonwooSung/GAN_Implementation/issues/5", "loss_D = -mean(D(real) + mean(D(fake))): a parenthesis gives both scores the same sign", "critic loss")
def wgan_paren(planted):
    class Disc(nn.Module):
        def __init__(s): super().__init__(); s.model = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Linear(64, 32), nn.LeakyReLU(.2), nn.Linear(32, 1))
        def forward(s, x): return s.model(x)
    mu, mu2 = T(41, 64) * .3, T(42, 64) * .3
    def data(seed): real, fake = torch.tanh(mu + .5 * T(seed, 32, 64)), torch.tanh(mu2 + .5 * T(seed + 1, 32, 64)); return torch.cat([real, fake]), torch.cat([torch.ones(32), torch.zeros(32)])
    def loss(o, t):
        r, f = o[t == 1], o[t == 0]
        return -torch.mean(r + torch.mean(f)) if planted else -torch.mean(r) + torch.mean(f)
    def metric(m): x, t = data(9000); o = m(x)[:, 0]; return float((o[t == 1][:, None] < o[t == 0][None]).float().mean())
    return dict(model=Disc, data=data, loss=loss, lr=5e-4, diag={}, metric=metric)

@case("https://stackoverflow.com/questions/33712178", "cross entropy as -sum(y * log(softmax)): log(0) gives NaN", "cross_entropy with tf.log")
def tf_log0(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Conv2d(1, 16, 5, padding=2); s.fc1 = nn.Linear(784, 128); s.fc2 = nn.Linear(128, 10)
            for m in (s.conv, s.fc1, s.fc2): nn.init.trunc_normal_(m.weight, std=.1, a=-.2, b=.2); nn.init.constant_(m.bias, .1)
        def forward(s, x): x = F.max_pool2d(F.relu(s.conv(x)), 2); x = s.fc2(F.relu(s.fc1(x.flatten(1)))); return F.softmax(x, -1) if planted else x
    def data(seed): x, t = blobs(seed, 32, 14, 10); return (x.view(-1, 1, 14, 14) * 255).floor(), t
    def nl(p, t): return -(F.one_hot(t, 10).float() * torch.log(p)).sum() / len(t)
    return dict(model=Net, data=data, loss=nl if planted else ce, lr=1e-3, diag={})

@case("https://github.com/tsunrise/everybody-compose/pull/53", "attention weights normalised along the wrong dimension (over the batch)", "softmax dim in the attention decoder")
def compose_attn(planted):
    class AttentionRNN(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(16, 24); s.pos = nn.Parameter(torch.randn(10, 24) * .3); s.enc = nn.GRU(24, 24, batch_first=True, bidirectional=True); s.q = nn.Embedding(10, 48); s.attn = nn.Linear(96, 32); s.v = nn.Linear(32, 1); s.out = nn.Linear(96, 16)
        def forward(s, x, i):
            h = s.enc(s.emb(x) + s.pos)[0]; q = s.q(i); e = s.v(torch.tanh(s.attn(torch.cat([h, q[:, None].expand_as(h)], -1))))
            a = F.softmax(e, dim=0 if planted else 1); return s.out(torch.cat([(a * h).sum(1), q], -1))
    def data(seed): x = R(seed, 16, (64, 10)); i = R(seed + 1, 10, (64,)); return (x, i), x[torch.arange(64), i]
    return dict(model=AttentionRNN, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/DongjunLee/dqn-tensorflow/pull/1", "the target of terminal states still contains gamma * max Q(s')", "y_j for terminal states")
def dqn_terminal(planted):
    class Q(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(4, 64); s.fc2 = nn.Linear(64, 64); s.out = nn.Linear(64, 2)
        def forward(s, x): return s.out(F.relu(s.fc2(F.relu(s.fc1(x)))))
    w = T(19, 4, 2)
    def data(seed):
        x = T(seed, 64, 4); a = R(seed + 1, 2, (64,)); done = x[:, 0] > 0; r = torch.tanh(x @ w).gather(1, a[:, None])[:, 0]; nq = 5 + x[:, 1]
        return x, torch.stack([a.float(), r, done.float(), nq], 1)
    def loss(q, t): y = t[:, 1] + .99 * t[:, 3] * (1 if planted else 1 - t[:, 2]); return F.mse_loss(q.gather(1, t[:, :1].long())[:, 0], y)
    return dict(model=Q, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/Jingkang50/OpenPSG/issues/56", "(batch, queries, ...) turned into (queries, batch, ...) with view instead of transpose", "view in the head")
def psg_view(planted):
    class Head(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(6, 32); s.att = nn.MultiheadAttention(32, 4); s.norm = nn.LayerNorm(32); s.cls = nn.Linear(32, 4)
        def forward(s, x):
            B, N, C = x.shape; h = s.inp(x); h = h.view(N, B, -1) if planted else h.transpose(0, 1)
            h = s.norm(h + s.att(h, h, h)[0]); return s.cls(h.mean(0))
    def data(seed): t = R(seed, 4, (32,)); return T(43, 4, 6)[t][:, None] * .6 + T(seed + 1, 32, 12, 6), t
    return dict(model=Head, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/NVIDIA-Merlin/models/pull/1175", "BinaryOutput applies a sigmoid but its default loss is BCEWithLogitsLoss: sigmoid twice", "BinaryOutput default loss / sigmoid")
def merlin_binary(planted):
    class DLRM(nn.Module):
        def __init__(s):
            super().__init__(); s.ug = nn.Embedding(30, 16); s.ig = nn.Embedding(40, 16); s.um = nn.Embedding(30, 16); s.im = nn.Embedding(40, 16); s.mlp = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()); s.predict = nn.Linear(32, 1)
            for e in (s.ug, s.ig, s.um, s.im): nn.init.normal_(e.weight, std=.01)
        def forward(s, u, i): p = s.predict(torch.cat([s.ug(u) * s.ig(i), s.mlp(torch.cat([s.um(u), s.im(i)], -1))], -1)).view(-1); return torch.sigmoid(p) if planted else p
    U, I = T(51, 30, 3), T(52, 40, 3)
    def data(seed): u, i = R(seed, 30, (64,)), R(seed + 1, 40, (64,)); return (u, i), ((U[u] * I[i]).sum(-1) > .8).float()
    return dict(model=DLRM, data=data, loss=F.binary_cross_entropy_with_logits, lr=2e-2, diag={})

@case("https://github.com/dblN/stochastic_depth_keras/issues/1", "BatchNormalization on the last axis (width) of channels-first images", "BatchNorm axis")
def stochdepth_bn(planted):
    class BN(nn.Module):
        def __init__(s, c, w): super().__init__(); s.bn = nn.BatchNorm2d(w if planted else c)
        def forward(s, x): return s.bn(x.transpose(1, 3)).transpose(1, 3) if planted else s.bn(x)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Conv2d(3, 16, 3, padding=1); s.bn = BN(16, 16); s.blocks = nn.ModuleList([nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1), BN(16, 16), nn.Conv2d(16, 16, 3, padding=1), BN(16, 16)]) for _ in range(3)]); s.fc = nn.Linear(16, 4)
        def forward(s, x):
            x = F.relu(s.bn(s.conv(x)))
            for c1, b1, c2, b2 in s.blocks: x = F.relu(x + b2(c2(F.relu(b1(c1(x))))))
            return s.fc(x.mean((2, 3)))
    k = T(61, 4, 3, 3, 3)
    def data(seed):
        t = R(seed, 4, (16,)); n = T(seed + 1, 16, 3, 16, 16); return torch.stack([F.conv2d(n[i:i + 1], k[t[i]][:, None] / 3, padding=1, groups=3)[0] for i in range(16)]), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/Atcold/NYU-DLSP20/pull/19", "sequences are pre-padded but the output is picked at length - 1, inside the zero padding", "output[arange, lengths - 1]")
def dlsp_prepad(planted):
    class SimpleLSTM(nn.Module):
        def __init__(s): super().__init__(); s.lstm = nn.LSTM(8, 32, batch_first=True); s.linear = nn.Linear(32, 4)
        def forward(s, x, n): h = s.lstm(x)[0]; return s.linear(h[torch.arange(len(x)), n - 1] if planted else h[:, -1])
    def data(seed):
        n = R(seed, 6, (32,)) + 4; tok = R(seed + 1, 6, (32, 20)) + 2; a, b = R(seed + 2, 2, (32,)), R(seed + 3, 2, (32,)); ar = torch.arange(32)
        tok[ar, 20 - n] = a; tok[ar, 21 - n + (n - 3) // 2] = b; x = F.one_hot(tok, 8).float() * (torch.arange(20) >= 20 - n[:, None]).float()[..., None]; return (x, n), 2 * a + b
    return dict(model=SimpleLSTM, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/Li-Chongyi/Zero-DCE_extension/issues/2", "colour loss takes pow(..., 0.5) of exactly zero on gray or black images: NaN gradient", "L_color")
def zerodce_color(planted):
    class DCE(nn.Module):
        def __init__(s): super().__init__(); s.e1 = nn.Conv2d(3, 16, 3, padding=1); s.e2 = nn.Conv2d(16, 16, 3, padding=1); s.e3 = nn.Conv2d(16, 3, 3, padding=1)
        def forward(s, x):
            r = torch.tanh(s.e3(F.relu(s.e2(F.relu(s.e1(x))))))
            for _ in range(4): x = x + r * (x ** 2 - x)
            return x
    def loss(y, t):
        m = y.mean((2, 3)); k = (m[:, 0] - m[:, 1]) ** 2 ** 2 + (m[:, 0] - m[:, 2]) ** 4 + (m[:, 1] - m[:, 2]) ** 4
        return torch.pow(k if planted else k + 1e-5, .5).mean() + 10 * (F.avg_pool2d(y.mean(1, keepdim=True), 4) - .6).pow(2).mean()
    def data(seed): x = torch.rand(8, 3, 16, 16, generator=gen(seed)) * .4; x[0] = 0; return x, torch.zeros(1)
    return dict(model=DCE, data=data, loss=loss, lr=2e-3, diag={})

@case("https://doi.org/10.1109/ICSE43902.2021.00043#gradient-vanish", "ten sigmoid layers from a narrow random_uniform initialiser: the gradient vanishes", "sigmoid hidden layers / initialiser")
def autotrainer_vanish(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.layers = nn.ModuleList([dense(2 if i == 0 else 32, 32, "uniform" if planted else "glorot") for i in range(8)]); s.out = dense(32, 3)
        def forward(s, x):
            for l in s.layers: x = torch.sigmoid(l(x)) if planted else F.relu(l(x))
            return s.out(x)
    def data(seed): t = R(seed, 3, (32,)); c = torch.tensor([[0., 1.5], [1.3, -.8], [-1.3, -.8]]); return c[t] + .4 * T(seed + 1, 32, 2), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://doi.org/10.1109/ICSE43902.2021.00043#dying-relu", "weights from a random_uniform below zero: the ReLU units are dead on the positive inputs", "kernel_initializer of the hidden layers")
def autotrainer_dead(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.d1 = dense(196, 64); s.d2 = dense(64, 64); s.out = dense(64, 10)
            if planted: [nn.init.uniform_(l.weight, -.5, .02) for l in (s.d1, s.d2)]
        def forward(s, x): return s.out(F.relu(s.d2(F.relu(s.d1(x)))))
    def data(seed): return blobs(seed, 32, 14, 10)
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://doi.org/10.1109/ICSE43902.2021.00043#gradient-explode", "random_normal(stddev=1) weights in a deep ReLU regression: activations and gradients explode", "kernel_initializer of the hidden layers")
def autotrainer_explode(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.layers = nn.ModuleList([dense(13 if i == 0 else 64, 64, 1. if planted else "glorot") for i in range(6)]); s.out = dense(64, 1, 1. if planted else "glorot")
        def forward(s, x):
            for l in s.layers: x = F.relu(l(x))
            return s.out(x)
    w = T(81, 13, 1) * .4
    def data(seed): x = T(seed, 32, 13); return x, torch.tanh(x @ w)
    return dict(model=Net, data=data, loss=mse, lr=2e-3, diag={})
