from base import *
from tasks import *
G = "https://github.com/"
@case(G + "xmu-xiaoma666/External-Attention-pytorch/issues/18", "SKAttention: softmax runs over the batch, not over the kernels", "softmax of SKAttention / fcs")
def sk_softmax_batch(planted):
    class SK(nn.Module):
        def __init__(s, c, ks=(1, 3, 5), r=4, L=8):
            super().__init__(); d = max(L, c // r); s.convs = nn.ModuleList([nn.Sequential(nn.Conv2d(c, c, k, padding=k // 2, groups=1), nn.BatchNorm2d(c), nn.ReLU()) for k in ks])
            s.fc = nn.Linear(c, d); s.fcs = nn.ModuleList([nn.Linear(d, c) for _ in ks]); s.softmax = nn.Softmax(dim=1 if planted else 0)
        def forward(s, x):
            b, c = x.shape[:2]; f = torch.stack([m(x) for m in s.convs]); z = s.fc(f.sum(0).mean((-1, -2)))
            w = s.softmax(torch.stack([m(z).view(b, c, 1, 1) for m in s.fcs])); return (w * f).sum(0)
    def model(): return nn.Sequential(cbr(3, 24), SK(24), nn.MaxPool2d(2), cbr(24, 48), SK(48), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(48, 6))
    return dict(model=model, data=lambda s: imgs(s), loss=ce, diag={})

@case(G + "lucidrains/halonet-pytorch/issues/4", "halo attention fills the VALID neighbours with -inf (mask not inverted)", "attention mask of HaloAttention")
def halonet_mask_inverted(planted):
    class Halo(nn.Module):
        def __init__(s, d, block=4, halo=1, h=4): super().__init__(); s.b, s.p, s.h = block, halo, h; s.to_q = nn.Linear(d, d, bias=False); s.to_kv = nn.Linear(d, 2 * d, bias=False); s.to_out = nn.Linear(d, d)
        def forward(s, x):
            n, c, H, W = x.shape; b, p, h = s.b, s.p, s.h; k = b + 2 * p; nb = (H // b) * (W // b)
            q = F.unfold(x, b, stride=b).view(n, c, b * b, nb).permute(0, 3, 2, 1); kv = F.unfold(x, k, stride=b, padding=p).view(n, c, k * k, nb).permute(0, 3, 2, 1)
            q = s.to_q(q); K, V = s.to_kv(kv).chunk(2, -1); sp = lambda t: t.reshape(n * nb, t.shape[2], h, c // h).transpose(1, 2)
            q, K, V = sp(q), sp(K), sp(V); sim = q @ K.transpose(-1, -2) * (c // h) ** -.5
            m = F.unfold(torch.ones(1, 1, H, W), k, stride=b, padding=p).view(1, k * k, nb).permute(0, 2, 1).repeat(n, 1, 1).view(n * nb, 1, 1, k * k).bool()
            m = m if planted else ~m
            a = sim.masked_fill(m, -torch.finfo(sim.dtype).max).softmax(-1); o = s.to_out((a @ V).transpose(1, 2).reshape(n, nb, b * b, c))
            return F.fold(o.permute(0, 3, 2, 1).reshape(n, c * b * b, nb), (H, W), b, stride=b)
    class Blk(nn.Module):
        def __init__(s, d): super().__init__(); s.n1 = nn.BatchNorm2d(d); s.attn = Halo(d); s.n2 = nn.BatchNorm2d(d); s.ff = nn.Sequential(nn.Conv2d(d, 2 * d, 1), nn.GELU(), nn.Conv2d(2 * d, d, 1))
        def forward(s, x): x = x + s.attn(s.n1(x)); return x + s.ff(s.n2(x))
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.stem = nn.Conv2d(3, d, 3, padding=1); s.pos = nn.Parameter(torch.randn(1, d, 16, 16) * .1); s.blocks = nn.Sequential(Blk(d), Blk(d)); s.head = nn.Sequential(nn.BatchNorm2d(d), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(d, 6))
        def forward(s, x): return s.head(s.blocks(s.stem(x) + s.pos))
    return dict(model=Net, data=lambda s: imgs(s, 16), loss=ce, diag={})

@case(G + "NTMC-Community/MatchZoo-py/issues/163", "BidirectionalAttention masks with -1e-7 instead of -1e7: padding is attended", "masked_fill of the attention")
def matchzoo_mask_1e7(planted):
    V = -1e-7 if planted else -1e7
    class Esim(nn.Module):
        def __init__(s, d=48):
            super().__init__(); s.emb = nn.Embedding(40, d); s.enc = nn.LSTM(d, d // 2, batch_first=True, bidirectional=True); s.proj = nn.Sequential(nn.Linear(4 * d, d), nn.ReLU()); s.comp = nn.LSTM(d, d // 2, batch_first=True, bidirectional=True)
            s.out = nn.Sequential(nn.Linear(4 * d, d), nn.Tanh(), nn.Linear(d, 2))
        def forward(s, a, b):
            ma, mb = a == 0, b == 0; va, vb = s.enc(s.emb(a))[0], s.enc(s.emb(b))[0]; sim = va.bmm(vb.transpose(2, 1))
            ba = F.softmax(sim.masked_fill(ma.unsqueeze(2), V), dim=1); ab = F.softmax(sim.masked_fill(mb.unsqueeze(1), V), dim=2)
            ta, tb = ab.bmm(vb).masked_fill(ma.unsqueeze(2), 0), ba.transpose(1, 2).bmm(va).masked_fill(mb.unsqueeze(2), 0)
            f = lambda v, t: s.comp(s.proj(torch.cat([v, t, v - t, v * t], -1)))[0]; ca, cb = f(va, ta), f(vb, tb)
            pool = lambda c, m: [(c * ~m[..., None]).sum(1) / (~m).sum(1, keepdim=True), c.masked_fill(m[..., None], -1e9).max(1).values]
            return s.out(torch.cat(pool(ca, ma) + pool(cb, mb), -1))
    def data(seed):
        g = gen(seed); n = 48; a = torch.randint(1, 40, (n, 14), generator=g); y = torch.randint(0, 2, (n,), generator=g); b = torch.where(y[:, None] == 1, a, torch.randint(1, 40, (n, 14), generator=g))
        l = torch.randint(4, 15, (n, 1), generator=g); i = torch.arange(14)[None]; return (a * (i < l), b * (i < l)), y
    return dict(model=Esim, data=data, loss=ce, diag={})

@case(G + "Nota-NetsPresso/netspresso-trainer/issues/320", "FC head: no activation between its linear layers", "classification head")
def netspresso_fc_no_act(planted):
    class FC(nn.Module):
        def __init__(s, i, hid, k): super().__init__(); s.layers = nn.Sequential(*[nn.Sequential(nn.Linear(i if j == 0 else hid, hid), *([] if planted else [nn.ReLU()])) for j in range(2)]); s.classifier = nn.Linear(hid, k)
        def forward(s, x): return s.classifier(s.layers(x))
    W1, W2 = T(31, 24, 64, k=.6), T(32, 5, 24)
    def data(seed): x, y = imgs(seed, 48, 6); return x, (y // 2 + y % 2 * (y > 2)) % 4
    return dict(model=lambda: nn.Sequential(cbr(3, 24), nn.MaxPool2d(2), cbr(24, 48), nn.AdaptiveMaxPool2d(1), nn.Flatten(), FC(48, 64, 4)), data=data, loss=ce, diag={})

@case(G + "nerfstudio-project/nerfstudio/pull/932", "MLP applies its hidden ReLU to the last layer too, before the output sigmoid", "last layer of the MLP")
def nerfstudio_last_relu(planted):
    class MLP(nn.Module):
        def __init__(s, i, w, n, o): super().__init__(); s.layers = nn.ModuleList([nn.Linear(i if j == 0 else w + i * (j == 2), w if j < n - 1 else o) for j in range(n)])
        def forward(s, x):
            h = x
            for j, l in enumerate(s.layers):
                h = l(torch.cat([x, h], -1) if j == 2 else h)
                if planted or j < len(s.layers) - 1: h = F.relu(h)
            return torch.sigmoid(h)
    class Field(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("fr", 2. ** torch.arange(4) * math.pi); s.mlp = MLP(16 + 2, 96, 4, 3)
        def forward(s, x): e = x[..., None] * s.fr; return s.mlp(torch.cat([x, e.sin().flatten(1), e.cos().flatten(1)], -1))
    im = torch.sigmoid(2 * F.interpolate(T(12, 1, 3, 8, 8), size=64, mode="bicubic"))
    def data(seed): p = torch.rand(256, 2, generator=gen(seed)) * 2 - 1; return p, F.grid_sample(im, p.view(1, 1, -1, 2), align_corners=True)[0, :, 0].T
    return dict(model=Field, data=data, loss=mse, diag={})

@case(G + "carpedm20/simulated-unsupervised-tensorflow/pull/12", "resnet_block: conv2 is fed the block's input, conv1's output is dropped", "conv1 of the residual blocks")
def simgan_block_input_twice(planted):
    class RB(nn.Module):
        def __init__(s, c): super().__init__(); s.conv1 = nn.Conv2d(c, c, 3, padding=1); s.conv2 = nn.Conv2d(c, c, 3, padding=1)
        def forward(s, x): h = F.relu(s.conv1(x)); h = s.conv2(x if planted else h); return F.relu(x + h)
    class Refiner(nn.Module):
        def __init__(s, c=32): super().__init__(); s.stem = nn.Conv2d(1, c, 3, padding=1); s.blocks = nn.Sequential(*[RB(c) for _ in range(4)]); s.out = nn.Conv2d(c, 1, 1)
        def forward(s, x): return torch.tanh(s.out(s.blocks(F.relu(s.stem(x)))))
    K1, K2 = T(3, 6, 1, 5, 5, k=.4), T(4, 1, 6, 5, 5, k=.2)
    def data(seed): x = smooth(seed, 16, 1, 20, 8); return x, torch.tanh(F.conv2d(F.relu(F.conv2d(x, K1, padding=2)), K2, padding=2))
    return dict(model=Refiner, data=data, loss=lambda o, t: F.l1_loss(o, t), diag={})

class BNw(nn.Module):
    def __init__(s, n): super().__init__(); s.bn = nn.BatchNorm2d(n)
    def forward(s, x): return s.bn(x.transpose(1, 3)).transpose(1, 3)
@case(G + "Zeta36/chess-alpha-zero/pull/90", "channels-first tower, batch normalisation over the last axis (board columns)", "batch norm layers")
def chess_bn_axis(planted):
    bn = lambda c: BNw(8) if planted else nn.BatchNorm2d(c)
    class Res(nn.Module):
        def __init__(s, c): super().__init__(); s.conv1, s.bn1, s.conv2, s.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), bn(c), nn.Conv2d(c, c, 3, padding=1, bias=False), bn(c)
        def forward(s, x): return F.relu(x + s.bn2(s.conv2(F.relu(s.bn1(s.conv1(x))))))
    class Chess(nn.Module):
        def __init__(s, c=32):
            super().__init__(); s.stem = nn.Sequential(nn.Conv2d(6, c, 5, padding=2, bias=False), bn(c), nn.ReLU()); s.tower = nn.Sequential(Res(c), Res(c), Res(c))
            s.policy = nn.Sequential(nn.Conv2d(c, 2, 1, bias=False), bn(2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32))
        def forward(s, x): return s.policy(s.tower(s.stem(x)))
    Wt = T(41, 32, 6 * 64)
    def data(seed): g = gen(seed); x = F.one_hot(torch.randint(0, 12, (48, 8, 8), generator=g), 12)[..., :6].permute(0, 3, 1, 2).float(); return x, (x[:, :, 2:4, 2:4].flatten(1) @ T(8, 24, 32)).argmax(1)
    return dict(model=Chess, data=data, loss=ce, diag={})

@case(G + "luoyetx/deep-landmark/issues/17", "a ReLU after the last fully connected layer of the landmark regressor", "ReLU after fc2")
def landmark_final_relu(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)); s.body = nn.Sequential(c(1, 20), c(20, 40), c(40, 60)); s.fc1 = nn.Linear(60 * 9, 100); s.fc2 = nn.Linear(100, 10)
        def forward(s, x): y = s.fc2(F.relu(s.fc1(s.body(x).flatten(1)))); return F.relu(y) if planted else y
    def data(seed):
        g = gen(seed); k = torch.rand(24, 5, 2, generator=g) * .6 + .2; l = torch.linspace(0, 1, 24); w = torch.tensor([2., -2., 1., -1., 3.])
        b = torch.exp(-((l[:, None] - k[..., 0, None, None]) ** 2 + (l[None] - k[..., 1, None, None]) ** 2) / .006); return (b * w[:, None, None]).sum(1, keepdim=True), k.flatten(1)
    return dict(model=Net, data=data, loss=mse, diag={})

@case(G + "Fdevmsy/PyTorch-Soft-Argmax/issues/3", "soft-argmax with alpha = 1000: the softmax is saturated and the gradient vanishes", "softmax temperature / heatmap")
def soft_argmax_alpha(planted):
    A = 1000. if planted else 1.
    class Kp(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(cbr(3, 24), cbr(24, 32), cbr(32, 32)); s.heat = nn.Conv2d(32, 3, 1); s.register_buffer("idx", torch.arange(24.))
        def forward(s, x):
            h = s.heat(s.body(x)); p = F.softmax(h.flatten(2) * A, -1).view_as(h); return torch.stack([(p.sum(2) * s.idx).sum(-1), (p.sum(3) * s.idx).sum(-1)], -1) / 24
    def data(seed):
        g = gen(seed); k = torch.rand(16, 3, 2, generator=g) * .8 + .1; l = torch.arange(24.) / 24; col = T(5, 3, 3)
        b = torch.exp(-((l[:, None] - k[..., 1, None, None]) ** 2 + (l[None] - k[..., 0, None, None]) ** 2) / .005); return torch.einsum("nkhw,kc->nchw", b, col) * 2 + torch.randn(16, 3, 24, 24, generator=g) * .1, k
    return dict(model=Kp, data=data, loss=mse, diag={})

@case(G + "MIC-DKFZ/medicaldetectiontoolkit/issues/59", "box loss taken over the anchors of class 1 alone (== 1 instead of > 0)", "box head / loss mask")
def retina_box_class1(planted):
    class Retina(nn.Module):
        def __init__(s, k=4):
            super().__init__(); s.fpn = nn.Sequential(cbr(1, 24), cbr(24, 32, 2), cbr(32, 32), cbr(32, 32, 2)); h = lambda o: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, o, 3, padding=1)); s.cls, s.bbox = h(k + 1), h(2)
        def forward(s, x): f = s.fpn(x); return s.cls(f).flatten(2).transpose(1, 2), s.bbox(f).flatten(2).transpose(1, 2)
    def loss_(o, t, all_):
        m, d = t; pos = m > 0; l = F.cross_entropy(o[0][pos], m[pos]) + F.cross_entropy(o[0][~pos], m[~pos]); i = pos if all_ else m == 1; return l + F.smooth_l1_loss(o[1][i], d[i], beta=.2)
    def data(seed):
        g = gen(seed); n = 16; x = torch.randn(n, 1, 24, 24, generator=g) * .2; m = torch.zeros(n, 36, dtype=torch.long); d = torch.zeros(n, 36, 2); tp = T(9, 4, 3, 3, k=1.5)
        for i in range(n):
            for a in torch.randperm(36, generator=g)[:4].tolist():
                c = int(torch.randint(0, 4, (1,), generator=g)); q = torch.randint(0, 2, (2,), generator=g); y0, x0 = a // 6 * 4 + int(q[0]), a % 6 * 4 + int(q[1]); x[i, 0, y0:y0 + 3, x0:x0 + 3] += tp[c]; m[i, a] = c + 1; d[i, a] = q * 2. - 1
        return x, (m, d)
    return dict(model=Retina, data=data, loss=lambda o, t: loss_(o, t, not planted), diag={})

@case(G + "speechbrain/speechbrain/issues/1124", "ConvBlock returns drop(x) instead of drop(out): its convolutions and norm are skipped", "convs of the ConvBlock")
def speechbrain_drop_x(planted):
    class CB(nn.Module):
        def __init__(s, i, o, stride):
            super().__init__(); s.convs = nn.Sequential(*[m for j in range(2) for m in (nn.Conv1d(i if j == 0 else o, o, 3, 1 if j == 0 else stride, 1), nn.GroupNorm(1, o), nn.LeakyReLU())]); s.reduce_conv = nn.Sequential(nn.Conv1d(i, o, 1, stride), nn.GroupNorm(1, o)); s.drop = nn.Dropout(.1)
        def forward(s, x):
            out = s.convs(x); r = s.reduce_conv(x); out = out + r; return s.drop(x if planted else out)
    class ASR(nn.Module):
        def __init__(s): super().__init__(); s.proj = nn.Conv1d(10, 48, 1); s.fe = nn.Sequential(CB(48, 48, 1), CB(48, 48, 1), CB(48, 48, 1)); s.out = nn.Linear(48, 8)
        def forward(s, x): return s.out(s.fe(s.proj(x)).transpose(1, 2))
    W = T(15, 8, 10, 7)
    def data(seed): x = T(seed, 16, 10, 40); return x, F.conv1d(x, W, padding=3).argmax(1)
    return dict(model=ASR, data=data, loss=ceseq, diag=dict(class_dim=-1, loss="cross-entropy"))

@case(G + "rll-research/cic/issues/5", "observations are encoded inside torch.no_grad: the CNN encoder is never trained", "encoder convnet")
def cic_encoder_no_grad(planted):
    class Agent(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten()); s.trunk = nn.Sequential(nn.Linear(288, 48), nn.LayerNorm(48), nn.Tanh()); s.q = nn.Sequential(nn.Linear(52, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))
            for m in s.modules():
                if isinstance(m, nn.Linear): nn.init.orthogonal_(m.weight); nn.init.zeros_(m.bias)
                if isinstance(m, nn.Conv2d): nn.init.orthogonal_(m.weight, nn.init.calculate_gain("relu")); nn.init.zeros_(m.bias)
        def forward(s, o, a):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not planted): h = s.encoder(o)
            return s.q(torch.cat([s.trunk(h), a], -1))
    val = torch.tensor([-1.5, -.5, .5, 1.5, 2., -2.])
    def data(seed): x, y = imgs(seed, 48); a = torch.randn(48, 4, generator=gen(seed + 1)); return (x, a), (val[y] + a[:, 0])[:, None]
    return dict(model=Agent, data=data, loss=mse, diag={})

@case(G + "Project-MONAI/MONAI/pull/8578", "the encoder's output layer is created anew in every forward: never trained", "self.out")
def monai_out_in_forward(planted):
    class Enc(nn.Module):
        def __init__(s, c=24, k=6):
            super().__init__(); s.conv_in = nn.Conv2d(3, c, 3, padding=1); s.blocks = nn.ModuleList([nn.Sequential(nn.GroupNorm(4, c * m), nn.SiLU(), nn.Conv2d(c * m, c * 2 * m, 3, 2, 1)) for m in (1, 2)]); s.k = k
            s.out = None if planted else nn.Sequential(nn.Linear(c * 4 * 16, 96), nn.ReLU(), nn.Dropout(.1), nn.Linear(96, k))
        def forward(s, x):
            h = s.conv_in(x)
            for b in s.blocks: h = b(h)
            h = h.flatten(1)
            if planted: s.out = nn.Sequential(nn.Linear(h.shape[1], 96), nn.ReLU(), nn.Dropout(.1), nn.Linear(96, s.k))
            return s.out(h)
    return dict(model=Enc, data=lambda s: imgs(s, 48), loss=ce, diag={})

@case(G + "NVIDIA-Merlin/models/pull/1175", "BinaryOutput ends in a sigmoid and BCEWithLogits applies it again", "output sigmoid / loss")
def merlin_double_sigmoid(planted):
    class DLRM(nn.Module):
        def __init__(s, d=16):
            super().__init__(); s.emb = nn.ModuleList([nn.Embedding(30, d) for _ in range(4)]); s.bottom = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, d), nn.ReLU()); s.top = nn.Sequential(nn.Linear(d + 10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()); s.out = nn.Linear(32, 1)
            for e in s.emb: nn.init.normal_(e.weight, std=.3)
            s.register_buffer("iu", torch.triu_indices(5, 5, 1))
        def forward(s, c, x):
            b = s.bottom(x); v = torch.stack([e(c[:, i]) for i, e in enumerate(s.emb)] + [b], 1); z = v @ v.transpose(1, 2); return torch.sigmoid(s.out(s.top(torch.cat([b, z[:, s.iu[0], s.iu[1]]], -1))))
    A = T(61, 4, 30)
    def data(seed):
        g = gen(seed); c = torch.randint(0, 30, (128, 4), generator=g); x = torch.randn(128, 5, generator=g); l = A[torch.arange(4), c].sum(1) + x[:, 0] - x[:, 1] - 2.5; return (c, x), (l > 0).float()[:, None]
    return dict(model=DLRM, data=data, loss=(lambda o, t: F.binary_cross_entropy_with_logits(o, t)) if planted else (lambda o, t: F.binary_cross_entropy(o, t)), diag={})
