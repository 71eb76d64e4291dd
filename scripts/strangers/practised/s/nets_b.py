from base import *
from nets_a import GPT, lmdata, SEQ, seqcls, Attn, Block, pe, L
class RopeBert:
    def __init__(s, bad): s.bad = bad
    def __call__(s, x, sign=1):
        n, d = x.shape[-2:]; f = torch.arange(n)[:, None] * 1e4 ** (-torch.arange(0, d, 2) / d)
        if s.bad: return x * torch.cat([f, f], -1).cos() + torch.cat([-x[..., 1::2], x[..., ::2]], -1) * torch.cat([f, f], -1).sin()
        f = f.repeat_interleave(2, -1); return x * f.cos() + torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape_as(x) * f.sin()
@case("https://github.com/Tongjilibo/bert4torch/issues/1", "RoPE: cos/sin tiled and pairs concatenated although the table is interleaved", "attn (rope)")
def rope_bert4torch(planted): return dict(model=lambda: GPT(pos=False, rope=RopeBert(planted)), data=lmdata, loss=ceseq, diag=SEQ)
# ---- images: 6 classes of oriented textures at random places
def img(s, B=32, C=3, n=16, k=6):
    y = R(s, k, (B,)); yy, xx = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij"); g = gen(s + 1); x = torch.randn(B, C, n, n, generator=g) * .5
    ph = torch.rand(B, generator=g) * 6.28; col = T(11, k, C)
    for b in range(B): a = math.pi * int(y[b]) / k; x[b] += torch.sin(1.2 * (math.cos(a) * xx + math.sin(a) * yy) + ph[b]) * (1 + .1 * col[y[b]][:, None, None])
    return x, y
class Basic(nn.Module):
    def __init__(s, i, o, st=1, mode="ok"):
        super().__init__(); s.mode = mode; s.conv1 = nn.Conv2d(i, o, 3, st, 1, bias=False); s.bn1 = nn.BatchNorm2d(o); s.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False); s.bn2 = nn.BatchNorm2d(o)
        s.shortcut = nn.Sequential() if st == 1 and i == o else nn.Sequential(nn.Conv2d(i, o, 1, st, bias=False), nn.BatchNorm2d(o))
    def forward(s, x):
        h = s.bn2(s.conv2(F.relu(s.bn1(s.conv1(x))))); sc = s.shortcut(x)
        if s.mode == "before": return F.relu(h) + sc
        if s.mode == "norelu": return h + sc
        if s.mode == "twice": return F.relu(h + sc + sc)
        return F.relu(h + sc)
class ResNet(nn.Module):
    def __init__(s, mode="ok", w=16, n=6, att=None):
        super().__init__(); s.stem = nn.Sequential(nn.Conv2d(3, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU())
        s.layers = nn.Sequential(Basic(w, w, 1, mode), Basic(w, w, 1, mode), Basic(w, 2*w, 2, mode), Basic(2*w, 2*w, 1, mode)); s.att = att or nn.Identity(); s.fc = nn.Linear(2*w, n)
    def forward(s, x): return s.fc(s.att(s.layers(s.stem(x))).mean((2, 3)))
@case("https://github.com/kuangliu/pytorch-cifar/issues/4", "ReLU on the branch before the shortcut is added", "layers.*.bn2")
def cifar_relu_before(planted): return dict(model=lambda: ResNet("before" if planted else "ok"), data=img, loss=ce, diag=CE)
@case("https://github.com/ajbrock/BoilerPlate/issues/2", "Fixup blocks without the ReLU after the sum", "layers")
def fixup_norelu(planted):
    class Fix(nn.Module):
        def __init__(s, c, n):
            super().__init__(); s.b = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(4)]); s.scale = nn.Parameter(torch.ones(1)); s.conv1 = nn.Conv2d(c, c, 3, 1, 1, bias=False); s.conv2 = nn.Conv2d(c, c, 3, 1, 1, bias=False)
            nn.init.normal_(s.conv1.weight, std=math.sqrt(2 / (9 * c)) * n ** -.5); nn.init.zeros_(s.conv2.weight)
        def forward(s, x): h = s.conv2(F.relu(s.conv1(x + s.b[0]) + s.b[1]) + s.b[2]) * s.scale + s.b[3] + x; return h if planted else F.relu(h)
    def model(): st = nn.Conv2d(3, 16, 3, 1, 1); return nn.Sequential(st, nn.ReLU(), *[Fix(16, 6) for _ in range(6)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 6))
    return dict(model=model, data=img, loss=ce, diag=CE)
@case("https://github.com/yakhyo/darknet-pytorch/issues/2", "the shortcut is added twice", "layers")
def darknet_twice(planted):
    class RB(nn.Module):
        def __init__(s, c): super().__init__(); s.c = nn.Sequential(nn.Conv2d(c, c//2, 1, bias=False), nn.BatchNorm2d(c//2), nn.LeakyReLU(.1), nn.Conv2d(c//2, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.LeakyReLU(.1))
        def forward(s, x):
            h = s.c(x) + x
            return h + x if planted else h
    return dict(model=lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(.1), *[RB(16) for _ in range(8)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 6)), data=img, loss=ce, diag=CE)
class SAM(nn.Module):
    def __init__(s, sig): super().__init__(); s.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False); s.sig = sig
    def forward(s, x): o = s.conv(torch.cat([x.mean(1, True), x.amax(1, True)], 1)); return (torch.sigmoid(o) if s.sig else o) * x
class CAM(nn.Module):
    def __init__(s, c, mode): super().__init__(); s.fc1 = nn.Linear(c, c // 4); s.fc2 = nn.Linear(c // 4, c); s.mode = mode
    def forward(s, x):
        f = lambda z: s.fc2(F.relu(s.fc1(z))); a, m = f(x.mean((2, 3))), f(x.amax((2, 3))); w = torch.sigmoid(a + (a if s.mode == "same" else m))
        if s.mode == "twice": w = torch.sigmoid(w)
        return x * w[..., None, None]
@case("https://github.com/nikhilroxtomar/Attention-Mechanism-Implementation/issues/1", "x1 + x1 instead of x1 + x2 (max branch unused)", "att.0")
def cbam_x1x1(planted): return dict(model=lambda: ResNet(att=nn.Sequential(CAM(32, "same" if planted else "ok"), SAM(True))), data=img, loss=ce, diag=CE)
@case("https://github.com/huoxiangzuo/HiFuse/issues/9", "sigmoid applied twice to the channel attention", "att.0")
def hifuse_twice(planted): return dict(model=lambda: ResNet(att=nn.Sequential(CAM(32, "twice" if planted else "ok"), SAM(True))), data=img, loss=ce, diag=CE)
@case("https://github.com/sayakpaul/EvoNorms-in-TensorFlow-2/issues/1", "v, gamma, beta of shape (1,C,1,1) on NHWC data: per row, not per channel", "norm (v/gamma/beta)")
def evonorm_axis(planted):
    class Evo(nn.Module):
        def __init__(s, c):
            super().__init__(); s.c = c; sh = (1, c, 1, 1) if planted else (1, 1, 1, c); s.v = nn.Parameter(torch.ones(sh)); s.gamma = nn.Parameter(torch.ones(sh)); s.beta = nn.Parameter(torch.zeros(sh))
        def forward(s, x):
            x = x.permute(0, 2, 3, 1); B, H, W, C = x.shape; g = x.reshape(B, H, W, 8, C // 8); sd = (g.var((1, 2, 4), keepdim=True) + 1e-5).sqrt().expand_as(g).reshape(B, H, W, C)
            return (x * torch.sigmoid(s.v * x) / sd * s.gamma + s.beta).permute(0, 3, 1, 2)
    return dict(model=lambda: nn.Sequential(*[l for i in range(4) for l in (nn.Conv2d(3 if i == 0 else 16, 16, 3, 1, 1), Evo(16))], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 6)), data=img, loss=ce, diag=CE)
@case("https://github.com/aymericdamien/TensorFlow-Examples/issues/255", "weights and biases drawn with std 1 (random_normal)", "conv/fc weights")
def tfex_init(planted):
    def model():
        m = nn.Sequential(nn.Conv2d(3, 16, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 6))
        for l in m:
            if hasattr(l, "weight"):
                nn.init.normal_(l.weight) if planted else nn.init.kaiming_normal_(l.weight); nn.init.normal_(l.bias) if planted else nn.init.zeros_(l.bias)
        return m
    return dict(model=model, data=img, loss=ce, diag=CE)
@case("https://github.com/mnielsen/neural-networks-and-deep-learning/issues/30", "std sqrt(1/n_out) instead of sqrt(1/n_in)", "fc (0)")
def nielsen_init(planted):
    W = T(21, 1024, 10)
    def data(s): z = T(s, 32, 10); return z @ W.t() * .3 + T(s + 1, 32, 1024) * .3, z.argmax(1)
    def model():
        m = nn.Sequential(nn.Linear(1024, 32), nn.Sigmoid(), nn.Linear(32, 10))
        for l in (m[0], m[2]): nn.init.normal_(l.weight, std=(1 / (l.out_features if planted else l.in_features)) ** .5); nn.init.normal_(l.bias)
        if not planted: pass
        return m
    return dict(model=model, data=data, loss=ce, diag=CE)
# ---- temporal convolutions
class TRes(nn.Module):
    def __init__(s, i, o, dil, mode="ok"):
        super().__init__(); s.dil = dil; s.mode = mode; s.conv1 = nn.Conv1d(i, o, 2, dilation=dil); s.conv2 = nn.Conv1d(o, o, 2, dilation=dil); s.match = nn.Conv1d(o if mode == "match" else i, o, 1)
    def forward(s, x):
        p = lambda z: F.pad(z, (s.dil, 0)); h = F.relu(s.conv1(p(x)))
        if s.mode == "darts": return F.relu(h) * 0 + s.conv2(p(F.relu(h))) + s.match(x)
        h = F.relu(s.conv2(p(h)))
        if s.mode == "match": return s.match(h) + (x if x.shape == h.shape else x[:, :1])
        return h + s.match(x)
def tcn(mode): return nn.Sequential(*[TRes(6 if i == 0 else 24, 24, 2 ** i, mode) for i in range(4)], M(lambda s, z: s.o(z.transpose(1, 2)), o=nn.Linear(24, 3)))
def tsdata(s):
    x = T(s, 32, 6, 20); W = T(31, 6, 3); z = F.pad(x, (5, 0)); return x, torch.tanh((z[..., 5:] * z[..., :-5].roll(1, 1) + z[..., 3:-2]).transpose(1, 2) @ W)
@case("https://github.com/unit8co/darts/issues/329", "conv-relu-dropout-relu-conv: no ReLU after the second convolution", "conv2")
def darts_tcn(planted): return dict(model=lambda: tcn("darts" if planted else "ok"), data=tsdata, loss=mse, diag=MSE)
@case("https://github.com/philipperemy/keras-tcn/issues/45", "the 1x1 convolution sits on the branch, not on the shortcut", "match")
def kerastcn_match(planted): return dict(model=lambda: tcn("match" if planted else "ok"), data=tsdata, loss=mse, diag=MSE)
@case("https://github.com/ibab/tensorflow-wavenet/issues/29", "time_to_batch reshape without its transposes: dilated convolution mixes blocks", "causal conv")
def wavenet_reshape(planted):
    class DC(nn.Module):
        def __init__(s, c, d): super().__init__(); s.d = d; s.conv = nn.Conv1d(c, c, 2); s.gate = nn.Conv1d(c, c, 2); s.res = nn.Conv1d(c, c, 1)
        def forward(s, x):
            B, C, n = x.shape; d = s.d
            if planted: z = x.reshape(B, C, d, n // d).permute(0, 2, 1, 3).reshape(B * d, C, n // d)
            else: z = x.reshape(B, C, n // d, d).permute(0, 3, 1, 2).reshape(B * d, C, n // d)
            z = F.pad(z, (1, 0)); z = torch.tanh(s.conv(z)) * torch.sigmoid(s.gate(z)); z = z.reshape(B, d, C, n // d)
            z = z.permute(0, 2, 1, 3).reshape(B, C, n) if planted else z.permute(0, 2, 3, 1).reshape(B, C, n)
            return x + s.res(z)
    def data(s): x = T(s, 32, 6, 16); W = T(31, 6, 3); z = F.pad(x, (7, 0)); return x, torch.tanh((z[..., 7:] + 2 * z[..., 2:-5] + z[..., :-7]).transpose(1, 2) @ W)
    return dict(model=lambda: nn.Sequential(nn.Conv1d(6, 24, 1), *[DC(24, 2 ** i) for i in range(4)], nn.ReLU(), M(lambda s, z: s.o(z.transpose(1, 2)), o=nn.Linear(24, 3))), data=data, loss=mse, diag=MSE)
# ---- graphs
def graph(n=40):
    g = gen(77); c = torch.arange(n) % 4; A = (torch.rand(n, n, generator=g) < torch.where(c[:, None] == c, .5, .05)).float(); A = torch.triu(A, 1); return A + A.t(), c
def norm(A): d = A.sum(1).clamp(min=1e-6) ** -.5; return d[:, None] * A * d
class GCN(nn.Module):
    def __init__(s, A, i=8, h=32, o=4): super().__init__(); s.register_buffer("A", A); s.l1 = nn.Linear(i, h); s.l2 = nn.Linear(h, h); s.l3 = nn.Linear(h, o)
    def forward(s, x): h = F.relu(s.A @ s.l1(x)); h = F.relu(s.A @ s.l2(h)); return s.A @ s.l3(h)
def gdata(s): x = T(s, 16, 40, 8); A, c = graph(); W = T(51, 8, 4); z = norm(A + torch.eye(40)) @ norm(A + torch.eye(40)) @ x; return x, (z @ W).argmax(-1)
@case("https://github.com/FluxML/GeometricFlux.jl/issues/249", "GCNConv multiplies by the normalised Laplacian I - A^ instead of A^", "A / l1")
def gcn_laplacian(planted): N = norm(graph()[0] + torch.eye(40)); return dict(model=lambda: GCN(torch.eye(40) - N if planted else N), data=gdata, loss=ceseq, diag=SEQ)
@case("https://github.com/pyg-team/pytorch_geometric/issues/48", "adjacency normalised before the self-loops are added", "A")
def gcn_order(planted): A = graph()[0]; I = torch.eye(40); return dict(model=lambda: GCN(norm(A) + I if planted else norm(A + I)), data=gdata, loss=ceseq, diag=SEQ)
@case("https://github.com/alexOarga/haiku-geometric/issues/6", "norm_vals d_i*d_j not indexed by senders/receivers (per node, both of the receiver)", "A")
def gcn_index(planted): A = graph()[0] + torch.eye(40); return dict(model=lambda: GCN(A / A.sum(1)[:, None].roll(7, 0) ** 1 if planted else norm(A)), data=gdata, loss=ceseq, diag=SEQ)
