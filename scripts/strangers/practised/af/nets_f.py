from base import *

def shapes(s, n, hw=16):
    yy, xx = torch.meshgrid(torch.arange(hw), torch.arange(hw), indexing="ij"); lab = torch.zeros(n, hw, hw, dtype=torch.long)
    for j in range(3):
        c = R(s * 7 + j, hw, (n, 2)); r = 2 + R(s * 7 + 3 + j, 3, (n,)); m = ((yy - c[:, 0, None, None]).abs() <= r[:, None, None]) & ((xx - c[:, 1, None, None]).abs() <= r[:, None, None]); lab[m] = j + 1
    pal = torch.tensor([[0., 0, 0], [1, 0, .3], [0, 1, .3], [.3, .3, 1]]); return pal[lab].permute(0, 3, 1, 2) + T(s + 1, n, 3, hw, hw, k=.3), lab

class DenseLayer(nn.Module):
    def __init__(s, i, g): super().__init__(); s.bn = nn.BatchNorm2d(i); s.conv = nn.Conv2d(i, g, 3, padding=1); nn.init.kaiming_uniform_(s.conv.weight, nonlinearity="relu")
    def forward(s, x): return s.conv(F.relu(s.bn(x)))
class DenseBlock(nn.Module):
    def __init__(s, i, g, n, new_only=False): super().__init__(); s.layers = nn.ModuleList([DenseLayer(i + k * g, g) for k in range(n)]); s.new_only = new_only
    def forward(s, x):
        new = []
        for l in s.layers: y = l(x); new.append(y); x = torch.cat([x, y], 1)
        return torch.cat(new, 1) if s.new_only else x

@case("https://github.com/0bserver07/One-Hundred-Layers-Tiramisu/issues/6", "encoder skip connections are missing in the up path (Merge/Concat removed)", "up path: missing concat of the skip")
def tiramisu_no_skip(planted):
    class Tiramisu(nn.Module):
        def __init__(s, g=8):
            super().__init__(); s.conv1 = nn.Conv2d(3, 16, 3, padding=1); s.d1 = DenseBlock(16, g, 2); s.td1 = nn.Sequential(nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.MaxPool2d(2))
            s.d2 = DenseBlock(32, g, 2); s.td2 = nn.Sequential(nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 48, 1), nn.MaxPool2d(2)); s.bottle = DenseBlock(48, g, 2, True)
            k = 0 if planted else 1
            s.tu1 = nn.ConvTranspose2d(16, 16, 3, 2, 1, 1); s.u1 = DenseBlock(16 + 48 * k, g, 2, True); s.tu2 = nn.ConvTranspose2d(16, 16, 3, 2, 1, 1); s.u2 = DenseBlock(16 + 32 * k, g, 2); s.out = nn.Conv2d(32 + 32 * k, 4, 1)
        def forward(s, x):
            a = s.d1(s.conv1(x)); b = s.d2(s.td1(a)); c = s.tu1(s.bottle(s.td2(b)))
            if not planted: c = torch.cat([c, b], 1)
            c = s.tu2(s.u1(c))
            if not planted: c = torch.cat([c, a], 1)
            return s.out(s.u2(c))
    return dict(model=Tiramisu, data=lambda seed: shapes(seed, 16), loss=ce, lr=1e-3, diag={})

@case("https://github.com/titu1994/DenseNet/issues/14", "final conv reads the transition-up/skip concat instead of the output of the last dense block", "last up dense block unused (output conv input)")
def densefcn_last_block(planted):
    class DenseNetFCN(nn.Module):
        def __init__(s, g=8):
            super().__init__(); s.init_conv = nn.Conv2d(3, 16, 3, padding=1); s.db1 = DenseBlock(16, g, 2); s.td = nn.Sequential(nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.AvgPool2d(2))
            s.bottleneck = DenseBlock(32, g, 3, True); s.up = nn.ConvTranspose2d(24, 24, 3, 2, 1, 1); s.db_up = DenseBlock(56, g, 3); s.top = nn.Conv2d(56 if planted else 80, 4, 1)
        def forward(s, x):
            skip = s.db1(s.init_conv(x)); x = s.up(s.bottleneck(s.td(skip))); x = torch.cat([x, skip], 1); x_up = s.db_up(x)
            return s.top(x if planted else x_up)
    return dict(model=DenseNetFCN, data=lambda seed: shapes(seed, 16), loss=ce, lr=1e-3, diag={})

@case("https://github.com/MasazI/cnn_depth_tensorflow/issues/3", "missing parentheses: sum / 55.0 * 74.0 instead of sum / (55.0 * 74.0)", "loss: scale of the squared term")
def eigen_depth_parentheses(planted):
    H = W = 10.
    class Coarse(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 128), nn.ReLU(), nn.Linear(128, 100)); s.fine = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
        def forward(s, x): c = s.conv(x).view(-1, 1, 10, 10); return s.fine(torch.cat([F.avg_pool2d(x, 2), c], 1)).flatten(1)
    P = T(9, 4, 100); Q = T(10, 4, 1200)
    def data(seed): z = T(seed, 32, 4); return (z @ Q).view(32, 3, 20, 20) * .5 + T(seed + 1, 32, 3, 20, 20, k=.2), 1.5 + .5 * z @ P
    def mk(bad):
        def f(o, t):
            d = o - t; sq, sm = d.square().sum(1), d.sum(1).square(); return ((sq / H * W if bad else sq / (H * W)) - .5 * sm / (H * W) ** 2).mean()
        return f
    def ref(m): return sum(float(mk(False)(m(data(9000 + k)[0]), data(9000 + k)[1])) for k in range(4)) / 4
    return dict(model=Coarse, data=data, loss=mk(planted), lr=1e-3, diag={}, metric=ref)

@case("https://github.com/dev4488/VAE_gumble_softmax/issues/1", "redundant minus before the KLD (the KL is maximised)", "loss: sign of the KL term")
def gumbel_kld_sign(planted):
    N, K = 6, 6
    class VAE_gumbel(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(64, 128); s.fc2 = nn.Linear(128, 64); s.fc3 = nn.Linear(64, N * K); s.fc4 = nn.Linear(N * K, 64); s.fc5 = nn.Linear(64, 128); s.fc6 = nn.Linear(128, 64)
        def forward(s, x):
            q = s.fc3(F.relu(s.fc2(F.relu(s.fc1(x))))).view(-1, N, K); z = F.gumbel_softmax(q, 1.).flatten(1)
            return torch.sigmoid(s.fc6(F.relu(s.fc5(F.relu(s.fc4(z)))))), F.softmax(q, -1)
    W = T(21, 8, 64, k=8.)
    def data(seed): x = torch.sigmoid(W[R(seed, 8, (64,))] + T(seed + 1, 64, 64, k=.3)); return x, x
    def mk(bad):
        def f(o, t):
            r, qy = o; kld = (qy * (torch.log(qy + 1e-20) - math.log(1 / K))).sum((1, 2)).mean(); bce = F.binary_cross_entropy(r.clamp(1e-6, 1 - 1e-6), t, reduction="none").sum(1).mean(); return bce - kld if bad else bce + kld
        return f
    def ref(m):
        torch.manual_seed(5)
        with torch.no_grad(): return sum(float(mk(False)(m(data(9000 + k)[0]), data(9000 + k)[1])) for k in range(5)) / 5
    return dict(model=VAE_gumbel, data=data, loss=mk(planted), lr=3e-3, diag={}, metric=ref)

@case("https://github.com/p0p4k/vits2_pytorch/issues/45", "coupling layer returns x instead of the transformed x_ (with logdet)", "ResidualCouplingLayer.forward return value")
def vits_coupling_returns_x(planted):
    class CouplingLayer(nn.Module):
        def __init__(s, c=6, h=48):
            super().__init__(); s.half = c // 2; s.pre = nn.Conv1d(s.half, h, 1); s.enc = nn.Sequential(nn.Conv1d(h, h, 5, padding=2), nn.ReLU(), nn.Conv1d(h, h, 5, padding=2), nn.ReLU()); s.post = nn.Conv1d(h, c, 1); nn.init.zeros_(s.post.weight); nn.init.zeros_(s.post.bias)
        def forward(s, x, bug=planted):
            x0, x1 = x.chunk(2, 1); m, logs = s.post(s.enc(s.pre(x0))).chunk(2, 1); logs = 2 * torch.tanh(logs)
            x1 = m + x1 * torch.exp(logs); x_ = torch.cat([x0, x1], 1); return x if bug else x_, logs.sum([1, 2])
    class Flow(nn.Module):
        def __init__(s): super().__init__(); s.flows = nn.ModuleList([CouplingLayer() for _ in range(4)])
        def forward(s, x, bug=planted):
            tot = 0
            for f in s.flows: x, ld = f(x, bug); tot = tot + ld; x = x.flip(1)
            return x, tot
    A = T(31, 6, 6)
    def data(seed): x = (T(seed, 32, 12, 6) @ A * .5).tanh().transpose(1, 2) * .8 + T(seed + 1, 32, 6, 12, k=.1) + .5; return x, x
    def loss(o, t): z, ld = o; return ((.5 * z ** 2 + .5 * math.log(2 * math.pi)).sum([1, 2]) - ld).mean() / 72
    def ref(m):
        with torch.no_grad(): return sum(float(loss(m(data(9000 + k)[0], False), None)) for k in range(5)) / 5
    return dict(model=Flow, data=data, loss=loss, lr=1e-3, diag={}, metric=ref)

@case("https://github.com/SHI-Labs/Compact-Transformers/issues/25", "residual of the MLP is taken after norm1 (src = norm1(src))", "TransformerEncoderLayer: residual after norm1")
def cct_residual_after_norm(planted):
    class TransformerEncoderLayer(nn.Module):
        def __init__(s, d, h, ff):
            super().__init__(); s.pre_norm = nn.LayerNorm(d); s.self_attn = nn.MultiheadAttention(d, h, batch_first=True); s.norm1 = nn.LayerNorm(d); s.linear1 = nn.Linear(d, ff); s.linear2 = nn.Linear(ff, d)
        def forward(s, src):
            y = s.pre_norm(src); src = src + s.self_attn(y, y, y, need_weights=False)[0]
            if planted: src = s.norm1(src); src2 = src
            else: src2 = s.norm1(src)
            return src + s.linear2(F.gelu(s.linear1(src2)))
    class CCT(nn.Module):
        def __init__(s, d=48):
            super().__init__(); s.tokenizer = nn.Sequential(nn.Conv2d(3, d, 3, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1)); s.pos = nn.Parameter(torch.zeros(1, 64, d)); nn.init.trunc_normal_(s.pos, std=.2)
            s.blocks = nn.ModuleList([TransformerEncoderLayer(d, 4, 96) for _ in range(3)]); s.norm = nn.LayerNorm(d); s.attention_pool = nn.Linear(d, 1); s.fc = nn.Linear(d, 4)
            for m in s.modules():
                if isinstance(m, nn.Linear): nn.init.trunc_normal_(m.weight, std=.02); nn.init.zeros_(m.bias)
                if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight)
        def forward(s, x):
            x = s.tokenizer(x).flatten(2).transpose(1, 2) + s.pos
            for b in s.blocks: x = b(x)
            x = s.norm(x); return s.fc((F.softmax(s.attention_pool(x), 1).transpose(1, 2) @ x).squeeze(1))
    P = T(41, 4, 3, 16, 16)
    def data(seed): t = R(seed, 4, (16,)); return P[t] * .6 + T(seed + 1, 16, 3, 16, 16), t
    return dict(model=CCT, data=data, loss=ce, lr=1e-3, diag={})
