from base import *

@case("https://github.com/fxia22/pointnet.pytorch/issues/27", "log_softmax over dim 0 (the batch) at the end of the classifier", "F.log_softmax(x, dim=0) in PointNetCls.forward")
def pointnet_logsoftmax_dim0(planted):
    class PointNetfeat(nn.Module):
        def __init__(s): super().__init__(); s.conv1, s.conv2, s.conv3 = nn.Conv1d(3, 32, 1), nn.Conv1d(32, 64, 1), nn.Conv1d(64, 128, 1); s.bn1, s.bn2, s.bn3 = nn.BatchNorm1d(32), nn.BatchNorm1d(64), nn.BatchNorm1d(128)
        def forward(s, x): return s.bn3(s.conv3(F.relu(s.bn2(s.conv2(F.relu(s.bn1(s.conv1(x)))))))).max(2)[0]
    class PointNetCls(nn.Module):
        def __init__(s, k=5): super().__init__(); s.feat = PointNetfeat(); s.fc1, s.fc2, s.fc3 = nn.Linear(128, 64), nn.Linear(64, 32), nn.Linear(32, k); s.bn1, s.bn2 = nn.BatchNorm1d(64), nn.BatchNorm1d(32)
        def forward(s, x): x = s.feat(x); x = F.relu(s.bn1(s.fc1(x))); x = F.relu(s.bn2(s.fc2(x))); return F.log_softmax(s.fc3(x), dim=0 if planted else -1)
    sc = torch.tensor([[1, 1, 1], [1.6, .6, .6], [.5, 1.5, .9], [.4, .4, 1.8], [1.4, 1.4, .2]])
    def data(seed):
        t = R(seed, 5, (32,)); p = F.normalize(T(seed + 500000, 32, 64, 3), dim=-1) * sc[t][:, None]; return p.transpose(1, 2) + T(seed + 600000, 32, 3, 64, k=.02), t
    return dict(model=PointNetCls, data=data, loss=F.nll_loss, lr=1e-3, diag={})

@case("https://github.com/duoan/TorchCode/issues/21", "patches are cut by a plain view of (B, C, H, W), mixing rows of the image", "PatchEmbedding: x.view(B, num_patches, -1)")
def torchcode_patchify_view(planted):
    class ViT(nn.Module):
        def __init__(s, d=48, p=4):
            super().__init__(); s.p = p; s.proj = nn.Linear(3 * p * p, d); s.cls = nn.Parameter(.02 * torch.randn(1, 1, d)); s.pos = nn.Parameter(.02 * torch.randn(1, 17, d)); s.blocks = nn.Sequential(*[nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, F.gelu, batch_first=True, norm_first=True) for _ in range(2)]); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 6)
        def forward(s, x):
            B, C, H, W = x.shape; p = s.p; n = (H // p) * (W // p)
            if planted: x = x.view(B, n, -1)
            else: x = x.reshape(B, C, H // p, p, W // p, p).permute(0, 2, 4, 1, 3, 5).reshape(B, n, -1)
            x = torch.cat([s.cls.expand(B, -1, -1), s.proj(x)], 1) + s.pos; return s.head(s.norm(s.blocks(x))[:, 0])
    tm = T(4, 6, 3, 4, 4, k=1.3)
    def data(seed):
        t = R(seed, 6, (32,)); x = T(seed + 500000, 32, 3, 16, 16, k=.5); g = gen(seed + 600000)
        for k in range(2):
            i, j = torch.randint(0, 4, (32,), generator=g), torch.randint(0, 4, (32,), generator=g)
            for b in range(32): x[b, :, 4 * i[b]:4 * i[b] + 4, 4 * j[b]:4 * j[b] + 4] += tm[t[b]]
        return x, t
    return dict(model=ViT, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/lightly-ai/lightly-train/pull/119", "patch tokens (B, N, D) are reshaped to (B, D, H, W) without a transpose", "ViT wrapper's feature map: x.reshape(B, D, H, W)")
def lightly_tokens_reshape(planted):
    class SegViT(nn.Module):
        def __init__(s, d=32):
            super().__init__(); s.patch_embed = nn.Conv2d(3, d, 2, 2); s.pos = nn.Parameter(.02 * torch.randn(1, 64, d)); s.blocks = nn.Sequential(*[nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, F.gelu, batch_first=True, norm_first=True) for _ in range(2)]); s.norm = nn.LayerNorm(d); s.head = nn.Sequential(nn.Conv2d(d, d, 3, padding=1), nn.ReLU(), nn.Conv2d(d, 4, 1))
        def forward(s, x):
            x = s.patch_embed(x); B, D, H, W = x.shape; x = s.norm(s.blocks(x.flatten(2).transpose(1, 2) + s.pos))
            x = x.reshape(B, D, H, W) if planted else x.transpose(1, 2).reshape(B, D, H, W)
            return s.head(x)
    w = T(4, 4, 3, 2, 2)
    def data(seed):
        x = T(seed, 16, 3, 16, 16); return x, F.conv2d(x, w, stride=2).argmax(1)
    return dict(model=SegViT, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/munshisanowarraihan/nerf-meta/pull/4", "ReLU on the density output kills its gradient", "F.relu(sigma) at the model's output")
def nerfmeta_relu_density(planted):
    z = torch.linspace(0.5, 3.5, 24)
    def render(rgb, sigma):
        a = 1 - torch.exp(-sigma * (z[1] - z[0])); tr = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]; w = a * tr; return (w[..., None] * rgb).sum(1) + (1 - w.sum(1, keepdim=True))
    class SimpleNeRF(nn.Module):
        def __init__(s, d=64, L=4):
            super().__init__(); s.register_buffer("freq", 2.0 ** torch.arange(L)); s.net = nn.Sequential(nn.Linear(6 * L, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU()); s.rgb = nn.Linear(d, 3); s.sigma = nn.Linear(d, 1)
        def forward(s, o, v):
            x = o[:, None] + v[:, None] * z[:, None]; e = (x[..., None] * s.freq).flatten(-2); h = s.net(torch.cat([e.sin(), e.cos()], -1)); sig = s.sigma(h)[..., 0]
            return render(torch.sigmoid(s.rgb(h)), F.relu(sig) if planted else F.softplus(sig))
    def data(seed):
        o = F.normalize(T(seed, 128, 3), dim=-1) * 2; tgt = T(seed + 500000, 128, 3, k=.5); v = F.normalize(tgt - o, dim=-1); x = o[:, None] + v[:, None] * z[:, None]; return (o, v), render(torch.sigmoid(3 * x), 20.0 * (x.norm(dim=-1) < .8))
    return dict(model=SimpleNeRF, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/Megvii-BaseDetection/DynamicRouting/issues/16", "gate bias starts at 0 instead of 1.5, half of the paths are closed", "gate conv's bias init (max(0, tanh(gate)))")
def dynrouting_gate_bias(planted):
    class Cell(nn.Module):
        def __init__(s, c):
            super().__init__(); s.op = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU()); s.gate_conv = nn.Sequential(nn.Conv2d(c, c // 4, 1, bias=False), nn.BatchNorm2d(c // 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(c // 4, 2, 1))
            nn.init.normal_(s.gate_conv[-1].weight, 0, .01); nn.init.constant_(s.gate_conv[-1].bias, 0.0 if planted else 1.5)
        def forward(s, x): g = torch.tanh(s.gate_conv(x)).clamp(min=0); return g[:, :1] * s.op(x) + g[:, 1:] * x
    class Net(nn.Module):
        def __init__(s, c=24, n=6): super().__init__(); s.stem = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU()); s.cells = nn.Sequential(*[Cell(c) for _ in range(n)]); s.head = nn.Conv2d(c, 4, 1)
        def forward(s, x): return s.head(s.cells(s.stem(x)))
    w = T(4, 4, 3, 2, 2)
    def data(seed):
        x = T(seed, 16, 3, 16, 16); return x, F.conv2d(x, w, stride=2).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/tflearn/tflearn/pull/134", "transform gate bias of the deep highway net starts too high, little is carried", "highway layers' gate bias init")
def tflearn_highway_bias(planted):
    class Highway(nn.Module):
        def __init__(s, d, bias): super().__init__(); s.fc, s.gate = nn.Linear(d, d), nn.Linear(d, d); [nn.init.trunc_normal_(l.weight, std=.05) for l in (s.fc, s.gate)]; nn.init.zeros_(s.fc.bias); nn.init.constant_(s.gate.bias, bias)
        def forward(s, x): t = torch.sigmoid(s.gate(x)); return t * F.elu(s.fc(x)) + (1 - t) * x
    class Net(nn.Module):
        def __init__(s, d=48, n=12): super().__init__(); s.inp = nn.Linear(64, d); s.hw = nn.Sequential(*[Highway(d, -1.0 if planted else -3.0) for _ in range(n)]); s.out = nn.Linear(d, 8)
        def forward(s, x): return s.out(s.hw(F.elu(s.inp(x))))
    tm = T(4, 8, 64)
    def data(seed):
        t = R(seed, 8, (64,)); return tm[t] + T(seed + 500000, 64, 64, k=1.5), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/Cadene/pretrained-models.pytorch/issues/90", "outputs of the (not in-place) ReLUs are not the ones passed on", "relu calls in BNInception.forward (x_relu unused)")
def bninception_lost_relu(planted):
    class CBR(nn.Module):
        def __init__(s, i, o, k, p=0): super().__init__(); s.conv = nn.Conv2d(i, o, k, padding=p); s.bn = nn.BatchNorm2d(o); s.relu = nn.ReLU()
        def forward(s, x): x_bn = s.bn(s.conv(x)); x_relu = s.relu(x_bn); return x_bn if planted else x_relu
    class Inc(nn.Module):
        def __init__(s, i): super().__init__(); s.b1 = CBR(i, 8, 1); s.b3 = nn.Sequential(CBR(i, 8, 1), CBR(8, 8, 3, 1)); s.b5 = nn.Sequential(CBR(i, 8, 1), CBR(8, 8, 3, 1), CBR(8, 8, 3, 1)); s.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), CBR(i, 8, 1))
        def forward(s, x): return torch.cat([s.b1(x), s.b3(x), s.b5(x), s.pool(x)], 1)
    class BNInception(nn.Module):
        def __init__(s): super().__init__(); s.stem = CBR(3, 16, 3, 1); s.inc1, s.inc2 = Inc(16), Inc(32); s.gap = nn.AdaptiveAvgPool2d(1); s.last_linear = nn.Linear(32, 5)
        def forward(s, x): return s.last_linear(s.gap(s.inc2(s.inc1(s.stem(x)))).flatten(1))
    fr = torch.tensor([.4, .9, 1.4, 2.0, 2.6])
    def data(seed):
        t = R(seed, 5, (32,)); ph = 6.28 * torch.rand(32, 3, 1, 1, generator=gen(seed + 500000)); return torch.sin(fr[t][:, None, None, None] * torch.arange(12.) + ph) * 1.2 + T(seed + 600000, 32, 3, 12, 12, k=.5), t
    return dict(model=BNInception, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/RasmussenLab/vamb/issues/12", "softplus on log(sigma): the posterior's sigma can never go below 1", "softplus on logsigma in VAE.encode")
def vamb_softplus_logsigma(planted):
    W = T(5, 4, 40) / 2
    class VAE(nn.Module):
        def __init__(s, n=40, h=64, z=8): super().__init__(); s.enc = nn.Sequential(nn.Linear(n, h), nn.LeakyReLU(), nn.Linear(h, h), nn.LeakyReLU()); s.mu, s.logsigma = nn.Linear(h, z), nn.Linear(h, z); s.dec = nn.Sequential(nn.Linear(z, h), nn.LeakyReLU(), nn.Linear(h, h), nn.LeakyReLU(), nn.Linear(h, n))
        def forward(s, x):
            h = s.enc(x); mu, ls = s.mu(h), s.logsigma(h)
            if planted: ls = F.softplus(ls)
            return s.dec(mu + torch.exp(ls / 2) * torch.randn_like(mu)), mu, ls
    def loss(o, t): r, mu, ls = o; return (r - t).pow(2).sum(1).mean() + .02 * -0.5 * (1 + ls - mu ** 2 - ls.exp()).sum(1).mean() * 8
    def data(seed):
        x = torch.tanh(2 * T(seed, 64, 4) @ W); return x, x
    return dict(model=VAE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/gabrieltseng/solar-panel-segmentation/issues/10", "normalisation multiplies by the std instead of dividing", "inputs: (x - mean) * std")
def solar_mul_std(planted):
    class Classifier(nn.Module):
        def __init__(s): super().__init__(); s.scaled_up = planted; s.base = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 32, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)); s.fc = nn.Linear(32, 1)
        def forward(s, x): return s.fc(s.base(x).flatten(1))[:, 0]
    mean, std = torch.tensor([98., 102., 96.])[None, :, None, None], torch.tensor([52., 48., 45.])[None, :, None, None]
    bce = lambda o, t: F.binary_cross_entropy_with_logits(o, t)
    def data(seed, mul=planted):
        t = R(seed, 2, (32,)); x = T(seed + 500000, 32, 3, 20, 20); g = gen(seed + 600000)
        for b in range(32):
            if t[b]: i, j = torch.randint(0, 12, (2,), generator=g).tolist(); x[b, 2, i:i + 8, j:j + 8] += 1.2; x[b, 0, i:i + 8, j:j + 8] -= 1.0
        x = (x * std + mean).clamp(0, 255); return ((x - mean) * std if mul else (x - mean) / std), t.float()
    def metric(m):
        m.train()
        with torch.no_grad(): return sum(float(bce(m(x), t)) for x, t in (data(k, m.scaled_up) for k in range(9000, 9005))) / 5
    return dict(model=Classifier, data=data, loss=bce, lr=2e-3, metric=metric, diag={})

@case("https://github.com/qdrant/quaterion/issues/81", "cosine similarity normalises x twice and y never", "cosine matrix: y is not normalised")
def quaterion_cosine_y(planted):
    class Encoder(nn.Module):
        def __init__(s, n=24, d=32): super().__init__(); s.tower_x = nn.Sequential(nn.Linear(n, 64), nn.ReLU(), nn.Linear(64, d)); s.tower_y = nn.Sequential(nn.Linear(n, 64), nn.ReLU(), nn.Linear(64, d))
        def forward(s, x, y):
            x, y = s.tower_x(x), s.tower_y(y); xn = F.normalize(x, dim=-1); yn = F.normalize(y, dim=-1)
            return 20.0 * (F.normalize(xn, dim=-1) @ y.T if planted else xn @ yn.T)
    A, B = T(3, 6, 24), T(4, 6, 24)
    def data(seed):
        z = T(seed, 32, 6); s = 3 * torch.rand(32, 1, generator=gen(seed + 400000)) + .3; return (z @ A + T(seed + 500000, 32, 24, k=.7), s * (z @ B + T(seed + 600000, 32, 24, k=.7))), torch.arange(32)
    return dict(model=Encoder, data=data, loss=ce, lr=2e-3, diag={})
