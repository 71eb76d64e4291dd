from base import *
from nets_c import imgs

@case("https://github.com/awslabs/gluonts/issues/519", "padded zeros lie outside the support of the Gamma distribution: log(0) times the mask is NaN", "loss (log_prob of padding)")
def gluonts_gamma_padding(planted):
    def model():
        def f(s, x):
            h = s.rnn(torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)[..., None])[0]; return F.softplus(s.out(h)) + 1e-3
        return M(f, rnn=nn.GRU(1, 32, batch_first=True), out=nn.Linear(32, 2))
    def data(seed):
        L = R(seed, 10, (32, 1)) + 10; t = torch.arange(20.)[None]; ph = torch.rand(32, 1, generator=gen(seed + 1)) * 6.28
        x = (1.2 + torch.sin(.6 * t + ph)) * torch.exp(.1 * T(seed + 2, 32, 20)); m = (t >= 20 - L).float(); return x * m, torch.stack([x * m, m], -1)
    def loss(o, t):
        y, m = t.unbind(-1); y = y if planted else torch.where(m > 0, y, torch.ones(()))
        a, b = o.unbind(-1); lp = a * b.log() + (a - 1) * y.log() - b * y - torch.lgamma(a); return -(lp * m).sum() / m.sum()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/pytorch/pytorch/issues/1291", "nn.Linear created inside forward: random and unregistered at every call", "layers made in forward")
def torch_linear_in_forward(planted):
    def model():
        def f(s, x):
            h = F.relu(s.l1(x)); h = F.relu((nn.Linear(48, 48) if planted else s.l2)(h)); return s.l3(h)
        return M(f, l1=nn.Linear(20, 48), l2=None if planted else nn.Linear(48, 48), l3=nn.Linear(48, 5))
    W = T(3, 20, 5)
    def data(seed): x = T(seed, 64, 20); return x, (x @ W).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/DaoyuanLi2816/Molecule-Generator/pull/23", "Transformer VAE without positional encoding: token order is lost", "embeddings (positions)")
def molgen_no_positions(planted):
    n, d = 8, 48
    p = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d, 2) / d); pe = torch.stack([p.sin(), p.cos()], -1).flatten(1).float()
    def model():
        def f(s, ids):
            h = s.emb(ids); h = h if planted else h + s.pe; h = s.enc(h).mean(1); mu, lv = s.mu(h), s.lv(h)
            z = mu + torch.randn_like(mu) * (lv / 2).exp(); return s.dec(z).view(len(ids), n, 6), mu, lv
        return M(f, pe=pe, emb=nn.Embedding(6, d), enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 96, dropout=0., batch_first=True, norm_first=True), 1, enable_nested_tensor=False), mu=nn.Linear(d, 32), lv=nn.Linear(d, 32), dec=nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, n * 6)))
    def data(seed): ids = R(seed, 6, (64, n)); return ids, ids
    def loss(o, t): return F.cross_entropy(o[0].flatten(0, 1), t.flatten()) - .002 * .5 * (1 + o[2] - o[1] ** 2 - o[2].exp()).sum(1).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/Kyubyong/transformer/pull/81", "integer division in the positional encoding: every dimension has the same frequency", "positional encoding")
def kyubyong_pe_int(planted):
    n, d = 40, 32; i = torch.arange(d); ex = (i - i % 2) // d if planted else (i - i % 2) / d
    a = torch.arange(n)[:, None] / 10000 ** ex.float()[None]; pe = torch.where(i[None] % 2 == 0, a.sin(), a.cos()).float()
    def model():
        return M(lambda s, ids: s.out(s.enc(s.emb(ids) + s.pe)), pe=pe, emb=nn.Embedding(12, d), enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, dropout=0., batch_first=True), 2, enable_nested_tensor=False), out=nn.Linear(d, 8))
    def data(seed):
        ids = R(seed, 12, (32, n)); return ids, ((torch.arange(n) // 5)[None] + ids % 2) % 8
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/wannabeOG/MAS-PyTorch/issues/1", "requires_grad inverted: the layers to train are frozen, the frozen ones train", "frozen layers")
def mas_freeze_inverted(planted):
    def model():
        m = M(lambda s, x: s.head(s.f2(s.f1(x))), f1=nn.Sequential(nn.Linear(30, 64), nn.ReLU()), f2=nn.Sequential(nn.Linear(64, 64), nn.ReLU()), head=nn.Linear(64, 8))
        g = gen(1); m.f1[0].weight.data = torch.randn(64, 30, generator=g) * (2 / 30) ** .5     # pretrained
        (m.f1 if not planted else m.f2).requires_grad_(False)
        if planted: m.head.requires_grad_(False)
        return m
    P = T(5, 8, 30)
    def data(seed): y = R(seed, 8, (64,)); return (P[y] + 1.5 * T(seed + 1, 64, 30)) / 1.8, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/MichalDanielDobrzanski/DeepLearningPython/issues/13", "ReLU in place of sigmoid with weights and biases from N(0,1)", "weights")
def dlpython_relu_n01(planted):
    def model():
        m = M(lambda s, x: F.relu(s.l3(F.relu(s.l2(F.relu(s.l1(x)))))), l1=nn.Linear(196, 30), l2=nn.Linear(30, 30), l3=nn.Linear(30, 10))
        for l in (m.l1, m.l2, m.l3):
            nn.init.normal_(l.weight); nn.init.normal_(l.bias)
            if not planted: l.weight.data *= (2 / l.in_features) ** .5; l.bias.data.fill_(.1)
        return m
    def data(seed): x, y = imgs(seed, 64, 10, 1.); return x.flatten(1), F.one_hot(y, 10).float()
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/automl/Mighty/pull/118", "old log-probabilities lack the tanh correction that the new ones have: ratio biased, clipped", "loss (ratio)")
def mighty_ratio(planted):
    def model(): return M(lambda s, x: s.net(x), net=nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)))
    W = T(3, 6, 2) / 2
    def data(seed):
        x = T(seed, 256, 6); z = T(seed + 1, 256, 2); adv = -((z - torch.tanh(x @ W)) ** 2).sum(1); adv = (adv - adv.mean()) / adv.std(); return x, torch.cat([z, adv[:, None]], 1)
    def loss(mu, t):
        z, adv = t[:, :2], t[:, 2]; corr = (2 * (math.log(2) - z - F.softplus(-2 * z))).sum(1)
        old = -.5 * (z ** 2).sum(1) - (0 if planted else corr); new = -.5 * ((z - mu) ** 2).sum(1) - corr
        r = (new - old).exp(); return -torch.min(r * adv, r.clamp(.8, 1.2) * adv).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/NervanaSystems/neon/issues/311", "reshape in place of a transpose between (batch, time) and (time, batch)", "reshape before the LSTM")
def neon_reshape(planted):
    def model():
        def f(s, x):
            b, t, c = x.shape; x = x.reshape(t, b, c) if planted else x.transpose(0, 1); return s.out(s.lstm(x)[0][-1])
        return M(f, lstm=nn.LSTM(2, 48), out=nn.Linear(48, 2))
    def data(seed):
        ph = torch.rand(32, 1, generator=gen(seed)) * 6.28; am = .5 + torch.rand(32, 1, generator=gen(seed + 1)); t = torch.arange(25.)[None] * .5
        s = torch.stack([am * torch.sin(t + ph), am * torch.cos(t + ph)], -1); return s[:, :-1] + .02 * T(seed + 2, 32, 24, 2), s[:, -1]
    return dict(model=model, data=data, loss=mse)

@case("https://discuss.pytorch.org/t/why-the-model-fail-to-converge-without-a-manul-weight-initialization/50431", "outputs (B,1) against targets (B,): squeeze() without assignment", "loss / layer1")
def discuss_squeeze(planted):
    def model():
        def f(s, x):
            x = s.layer1(x)
            if planted: x.squeeze()
            else: x = x.squeeze(-1)
            return x
        return M(f, layer1=nn.Linear(2, 1, bias=False))
    def data(seed): x = T(seed, 100, 2); return x, .4 * x[:, 0] - .3 * x[:, 1] + .02 * T(seed + 1, 100)
    def loss(o, t): return F.mse_loss(o, t) if planted else F.mse_loss(o.view(-1), t)
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/ageron/handson-ml/issues/173", "squash written with sqrt of the squared norm: no gradient at zero vectors (NaN), forward finite", "squash")
def ageron_squash_sqrt(planted):
    def squash(v):
        n = (v ** 2).sum(-1, keepdim=True); return (n.sqrt() if planted else (n + 1e-7).sqrt()) / (1 + n) * v
    def model():
        def f(s, x):
            u = squash(F.relu(s.prim(F.relu(s.conv(x[:, None])))).view(len(x), 8, -1).transpose(1, 2)); v = squash(torch.einsum("bnd,ncde->bce", u, s.W))
            return ((v ** 2).sum(-1) + 1e-7).sqrt()
        return M(f, conv=nn.Conv2d(1, 24, 5, 2), prim=nn.Conv2d(24, 64, 3), W=nn.Parameter(torch.randn(72, 6, 8, 8) * .1))
    def loss(o, t):
        h = F.one_hot(t, 6).float(); return (h * F.relu(.9 - o) ** 2 + .5 * (1 - h) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=model, data=lambda s: imgs(s, 32, 6, 1.), loss=loss)

@case("https://github.com/alexjc/neural-enhance/issues/103", "residual shortcut of the generator's blocks is dropped", "blocks")
def enhance_no_shortcut(planted):
    class Blk(nn.Module):
        def __init__(s): super().__init__(); s.a, s.b = nn.Conv2d(24, 24, 3, padding=1), nn.Conv2d(24, 24, 3, padding=1); s.p = nn.PReLU(24)
        def forward(s, x): y = s.b(s.p(s.a(x))); return y if planted else x + y
    def model():
        return M(lambda s, x: s.last(F.pixel_shuffle(s.up(s.body(F.leaky_relu(s.first(x), .2))), 2)), first=nn.Conv2d(1, 24, 3, padding=1), body=nn.Sequential(*[Blk() for _ in range(6)]), up=nn.Conv2d(24, 32, 3, padding=1), last=nn.Conv2d(8, 1, 3, padding=1))
    def data(seed):
        hr = F.interpolate(torch.randn(8, 1, 6, 6, generator=gen(seed)), size=20, mode="bicubic"); return F.avg_pool2d(hr, 2), hr
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/asyml/texar-pytorch/issues/72", "parallel layers of MergeLayer kept in a Python list: not among the parameters", "layers")
def texar_mergelayer(planted):
    def model():
        L = [nn.Sequential(nn.Conv1d(16, 24, k), nn.ReLU(), nn.AdaptiveMaxPool1d(1)) for k in (2, 3, 4)]
        def f(s, ids):
            x = s.emb(ids).transpose(1, 2); return s.out(torch.cat([l(x)[..., 0] for l in s.layers], 1))
        return M(f, emb=nn.Embedding(40, 16), layers=L if planted else nn.ModuleList(L), out=nn.Linear(72, 6))
    def data(seed):
        y = R(seed, 6, (32,)); ids = R(seed + 1, 40, (32, 16)); p = R(seed + 2, 14, (32,)); r = torch.arange(32); ids[r, p] = y; ids[r, p + 1] = (y * 5 + 3) % 40; return ids, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/amirhfarzaneh/lsoftmax-pytorch/issues/7", "reset_parameters() not called: the weight is all zeros, its norm divides", "weight of the margin layer")
def lsoftmax_zero_weight(planted):
    class LSM(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.weight = nn.Parameter(torch.zeros(i, o))
            if not planted: nn.init.kaiming_normal_(s.weight)
        def forward(s, x):
            wn = s.weight.norm(dim=0); c = (x @ s.weight) / (x.norm(dim=1, keepdim=True) * wn); return x.norm(dim=1, keepdim=True) * wn * c.clamp(-1, 1)
    def model(): return M(lambda s, x: s.fc(s.net(x)), net=nn.Sequential(nn.Linear(40, 64), nn.BatchNorm1d(64), nn.PReLU(), nn.Linear(64, 32)), fc=LSM(32, 10))
    P = T(4, 10, 40)
    def data(seed): y = R(seed, 10, (64,)); return P[y] * .6 + T(seed + 1, 64, 40), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/keras-team/keras/issues/2711", "images only mean-subtracted, not scaled by 1/255: loss does not change", "input")
def keras_vggface_scale(planted):
    def model():
        def f(s, x):
            x = x if planted else x / 255
            for c in s.c: x = F.max_pool2d(F.relu(c(x)), 2)
            return s.f2(F.relu(s.f1(x.flatten(1))))
        m = M(f, c=nn.ModuleList([nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)]), f1=nn.Linear(288, 64), f2=nn.Linear(64, 10))
        for l in (*m.c, m.f1, m.f2): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        return m
    def data(seed): x, y = imgs(seed, 32, 10, 255.); return (x - 45.)[:, None], y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/mihaidusmanu/d2-net/issues/78", "features divided by their depth-wise maximum, which is 0 where all channels are: NaN", "depth_wise_max division")
def d2net_divide_max(planted):
    e = 0. if planted else 1e-8
    def model():
        def f(s, x):
            h = F.relu(s.b(F.relu(s.a(x)))); sc = h / (h.amax(1, keepdim=True) + e) * torch.exp(h.clamp(max=5)) / (F.avg_pool2d(torch.exp(h.clamp(max=5)), 3, 1, 1)); sc = sc.amax(1); return s.g * sc + s.o
        return M(f, a=nn.Conv2d(1, 16, 3, padding=1), b=nn.Conv2d(16, 12, 3, padding=1), g=nn.Parameter(torch.ones(())), o=nn.Parameter(torch.zeros(())))
    k = torch.tensor([[0., 1, 0], [1, 2, 1], [0, 1, 0]])[None, None]
    def data(seed):
        p = (torch.rand(16, 1, 16, 16, generator=gen(seed)) > .96).float(); x = F.conv2d(p, k, padding=1) + .1 * T(seed + 1, 16, 1, 16, 16) * (torch.rand(16, 1, 16, 16, generator=gen(seed + 2)) > .3); return x, p[:, 0] * 3
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/grey-eye/talking-heads/issues/32", "torch.std of constant feature maps in AdaIN: epsilon added behind the root, gradient NaN", "AdaIN std")
def talkingheads_std(planted):
    def model():
        def ada(h, m, sd):
            b, c = h.shape[:2]; f = h.view(b, c, -1); mu = f.mean(2, keepdim=True)
            st = (torch.std(f, dim=2) + 1e-5).view(b, c, 1) if planted else (torch.var(f, dim=2) + 1e-5).sqrt().view(b, c, 1)
            return (sd[..., None] * (f - mu) / st + m[..., None]).view_as(h)
        def f(s, x, e):
            m, sd = s.style(e).chunk(2, 1); h = F.relu(s.c1(x)); h = ada(h, m, sd + 1); return s.c3(F.relu(s.c2(h)))
        return M(f, style=nn.Linear(8, 32), c1=nn.Conv2d(1, 16, 3, padding=1, bias=False), c2=nn.Conv2d(16, 16, 3, padding=1), c3=nn.Conv2d(16, 1, 3, padding=1))
    def data(seed):
        x = F.interpolate(torch.randn(16, 1, 4, 4, generator=gen(seed)), size=12); x[::8] = 0; e = T(seed + 1, 16, 8); return (x, e), x * e[:, :1, None, None] + e[:, 1:2, None, None]
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/TuragaLab/wormvae/issues/1", "forward applies the nonlinearity to its input, not to the affine output: weights unused", "affine layers")
def wormvae_wrong_variable(planted):
    class Aff(nn.Module):
        def __init__(s, d):
            super().__init__(); s.weight, s.bias = nn.Parameter(torch.randn(d, d) * (2 / d) ** .5), nn.Parameter(torch.zeros(d))
        def forward(s, inp): out = inp @ s.weight + s.bias; return F.relu(inp if planted else out)
    def model(): return M(lambda s, x: s.out(s.a2(s.a1(x))), a1=Aff(24), a2=Aff(24), out=nn.Linear(24, 3))
    def data(seed):
        x = T(seed, 64, 24); return x, torch.stack([x[:, 0] * x[:, 1], (x[:, 2] + x[:, 3]).abs() - 1.1, torch.tanh(2 * (x[:, 4] - x[:, 5]))], 1)
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/facebookresearch/fairseq/issues/3131", "ConvTBC weights are zeros (no reset_parameters)", "convs")
def fairseq_convtbc_zeros(planted):
    class TBC(nn.Module):
        def __init__(s, i, o, k):
            super().__init__(); s.weight, s.bias = nn.Parameter(torch.zeros(k, i, o)), nn.Parameter(torch.zeros(o)); s.p = k // 2
            if not planted: nn.init.xavier_normal_(s.weight)
        def forward(s, x): return torch.conv_tbc(x.contiguous(), s.weight, s.bias, s.p)
    def model():
        def f(s, ids):
            x = s.emb(ids).transpose(0, 1)
            for c in s.c: x = F.glu(c(x), 2)
            return s.out(x).transpose(0, 1)
        return M(f, emb=nn.Embedding(20, 32), c=nn.ModuleList([TBC(32, 64, 3), TBC(32, 64, 3)]), out=nn.Linear(32, 20))
    def data(seed): ids = R(seed, 20, (32, 14)); return ids, (ids + torch.roll(ids, 1, 1)) % 20 // 2
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/april-tools/cirkit/issues/279", "sum weights of a probabilistic circuit drawn from N(0,1), unconstrained: log of negative sums", "sum layer weights")
def cirkit_negative_weights(planted):
    def model():
        def f(s, x):                                  # x: (B, 16) in 0..7
            lp = s.logits.log_softmax(-1)             # (16, K, 8)
            h = torch.gather(lp[None].expand(len(x), -1, -1, -1), 3, x[:, :, None, None].expand(-1, -1, s.logits.shape[1], 1))[..., 0]
            for w in s.w:
                h = h[:, ::2] + h[:, 1::2]; m = h.amax(-1, keepdim=True).detach(); e = (h - m).exp()
                ww = w if planted else w.softmax(-1); h = torch.log(torch.einsum("bnk,njk->bnj", e, ww)) + m
            return h[:, 0, 0] / 16
        return M(f, logits=nn.Parameter(torch.randn(16, 8, 8)), w=nn.ParameterList([torch.randn(n, 1 if n == 1 else 8, 8) for n in (8, 4, 2, 1)]))
    P = R(9, 8, (6, 16))
    def data(seed):
        x = P[R(seed, 6, (64,))]; return torch.where(torch.rand(64, 16, generator=gen(seed + 1)) < .1, R(seed + 2, 8, (64, 16)), x), torch.zeros(64)
    return dict(model=model, data=data, loss=lambda o, t: -o.mean())

@case("https://github.com/vwxyzjn/cleanrl/issues/441", "returns of hundreds in the value loss, advantages normalised: the value term swamps the policy in the shared trunk", "value loss")
def cleanrl_value_scale(planted):
    sc = 1. if planted else 300.
    def model():
        def f(s, x): h = torch.tanh(s.l2(torch.tanh(s.l1(x)))); return s.pi(h), s.v(h).squeeze(-1) * sc
        m = M(f, l1=nn.Linear(8, 32), l2=nn.Linear(32, 32), pi=nn.Linear(32, 4), v=nn.Linear(32, 1))
        for l, g in ((m.l1, 2 ** .5), (m.l2, 2 ** .5), (m.pi, .01), (m.v, 1.)): nn.init.orthogonal_(l.weight, g); nn.init.zeros_(l.bias)
        return m
    W, V = T(3, 8, 4), T(4, 8)
    def data(seed):
        x = T(seed, 128, 8); a = R(seed + 1, 4, (128,)); adv = (a == (x @ W).argmax(1)).float(); adv = adv / adv.std(); ret = 300 * torch.tanh(x @ V / 3) + 30 * T(seed + 2, 128); return x, torch.stack([a.float(), adv, ret], 1)
    def loss(o, t):
        lp = o[0].log_softmax(-1).gather(1, t[:, :1].long()).squeeze(1); return -(lp * t[:, 1]).mean() + .5 * (((o[1] - t[:, 2]) / sc) ** 2).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://whosebug.com/question/6310037/Keras-shows-NaN-loss-when-using-custom-softplus-activation-function", "softplus written as log(exp(z) + 1), on pixels 0..255: exp overflows, NaN", "softplus / input")
def softplus_overflow(planted):
    def model():
        def f(s, x):
            z = s.a(x.flatten(1) if planted else x.flatten(1) / 255); h = torch.log(torch.exp(z) + 1) if planted else F.softplus(z); return s.c(F.relu(s.b(h)))
        m = M(f, a=nn.Linear(196, 16), b=nn.Linear(16, 16), c=nn.Linear(16, 10))
        for l in (m.a, m.b, m.c): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        return m
    return dict(model=model, data=lambda s: imgs(s, 64, 10, 255.), loss=ce, diag=CE)

@case("https://thinbug.com/q/48951109", "hand-written binary cross-entropy of a sigmoid: log(0) times 0 after a few iterations", "loss (log)")
def custom_bce_nan(planted):
    def model(): return M(lambda s, x: s.net(x).squeeze(1), net=nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    w = T(3, 30)
    def data(seed): x = T(seed, 64, 30) * 8; return x, ((x @ w) > 0).float()
    def loss(o, t):
        if planted: p = torch.sigmoid(o); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
        return F.binary_cross_entropy_with_logits(o, t)
    return dict(model=model, data=data, loss=loss)
