from base import *

@case("https://github.com/ZhihanLee/DDPG_Learning/issues/2", "observations not normalised: the actor's tanh output saturates at once", "input state / tanh output")
def ddpg_state_scale(planted):
    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(6, 64); self.fc2 = nn.Linear(64, 64); self.mu = nn.Linear(64, 2)
        def forward(self, s): return torch.tanh(self.mu(F.relu(self.fc2(F.relu(self.fc1(s))))))
    scale = torch.tensor([400., 300., 250., 500., 350., 200.]); W = T(3, 6, 2, k=.3)
    def data(seed):
        z = T(seed, 64, 6); return (z * scale if planted else z), torch.tanh(z @ W)
    return dict(model=Actor, data=data, loss=mse, lr=1e-3, diag={})

@case("https://mc.ai/beating-the-gan-game/", "generator ends in a sigmoid while images are normalised to [-1, 1]", "last activation of G")
def gan_sigmoid_range(planted):
    class G(nn.Module):
        def __init__(self):
            super().__init__()
            self.main = nn.Sequential(nn.ConvTranspose2d(8, 32, 4), nn.BatchNorm2d(32), nn.LeakyReLU(.2), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(.2), nn.ConvTranspose2d(16, 1, 4, 2, 1))
        def forward(self, z):
            o = self.main(z[:, :, None, None]); return torch.sigmoid(o) if planted else torch.tanh(o)
    B = T(4, 8, 256, k=.6)
    def data(seed):
        z = T(seed, 32, 8); return z, torch.tanh(z @ B - .8).view(32, 1, 16, 16)
    return dict(model=G, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/microsoft/CNTK/issues/372", "raw features (no per-dimension mean/variance normalisation), same prediction for every row", "features / first layer")
def cntk_no_meanvar(planted):
    class DNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.h1 = nn.Linear(13, 100); self.ol = nn.Linear(100, 1)
        def forward(self, x): return self.ol(torch.sigmoid(self.h1(x)))
    mu = torch.tensor([3.6, 11., 11., .1, .55, 6.3, 68., 3.8, 9.5, 408., 18., 356., 12.]); sd = torch.tensor([8.6, 23., 6.8, .25, .11, .7, 28., 2.1, 8.7, 168., 2.1, 91., 7.1]); W = T(5, 13, 1, k=.3)
    def data(seed):
        z = T(seed, 64, 13); return (z * sd + mu if planted else z), z @ W + .5 * torch.relu(z[:, 5:6])
    return dict(model=DNN, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/adalca/neurite/issues/8", "identity already in the predicted affine, the transformer layer adds it again", "theta in forward")
def stn_identity_twice(planted):
    class STN(nn.Module):
        def __init__(self):
            super().__init__()
            self.loc = nn.Sequential(nn.Conv2d(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU(), nn.Linear(32, 6))
            nn.init.zeros_(self.loc[-1].weight); self.loc[-1].bias.data = torch.tensor([1., 0, 0, 0, 1, 0])
            self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(16 * 16, 4))
        def forward(self, x):
            theta = self.loc(x).view(-1, 2, 3)
            if planted: theta = theta + torch.eye(2, 3)
            return self.conv(F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False))
    pro = F.interpolate(T(6, 4, 1, 8, 8), 16, mode="bilinear")
    def data(seed):
        y = R(seed, 4, (32,)); return pro[y] + T(seed + 1, 32, 1, 16, 16, k=.7), y
    return dict(model=STN, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/pyg-team/pytorch_geometric/pull/5332", "messages already weighted by a softmax are averaged over the neighbours (mean instead of add)", "aggr of the conv")
def pt_conv_mean(planted):
    class PointTransformerConv(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.lin, self.src, self.dst = nn.Linear(i, o, bias=False), nn.Linear(i, o, bias=False), nn.Linear(i, o, bias=False); self.pos = nn.Linear(3, o)
        def forward(self, x, p):
            d = self.pos(p[:, :, None] - p[:, None])
            a = F.softmax(self.dst(x)[:, :, None] - self.src(x)[:, None] + d, 2)
            m = a * (self.lin(x)[:, None] + d)
            return m.mean(2) if planted else m.sum(2)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2, self.c3 = PointTransformerConv(3, 32), PointTransformerConv(32, 32), PointTransformerConv(32, 32); self.out = nn.Linear(32, 3)
        def forward(self, p):
            x = F.relu(self.c1(p, p)); x = F.relu(self.c2(x, p)); x = F.relu(self.c3(x, p)); return self.out(x.mean(1))
    def data(seed):
        y = R(seed, 3, (24,)); s = torch.tensor([[1., 1, 1], [2., .6, .6], [1.5, 1.5, .2]])[y]; return T(seed + 1, 24, 16, 3) * s[:, None], y
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/dmlc/dgl/issues/1566", "GraphConv without self-loops: the features of isolated nodes are washed out", "adjacency (no self-loops)")
def gcn_no_self_loop(planted):
    n = 120; g = gen(11); A = (torch.rand(n, n, generator=g) < .02).float(); A = ((A + A.t()) > 0).float() * (1 - torch.eye(n)); A[:70] = 0; A[:, :70] = 0
    if not planted: A = A + torch.eye(n)
    d = A.sum(1).clamp(min=1) ** -.5; A = d[:, None] * A * d[None]
    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Linear(16, 32); self.conv2 = nn.Linear(32, 32); self.conv3 = nn.Linear(32, 4); self.register_buffer("adj", A)
        def forward(self, x):
            x = F.relu(self.adj @ self.conv1(x)); x = F.relu(self.adj @ self.conv2(x)); return self.adj @ self.conv3(x)
    C = T(1, 4, 16)
    def data(seed):
        y = R(seed, 4, (n,)); return C[y] + T(seed + 1, n, 16, k=.8), y
    return dict(model=GCN, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/apache/mxnet/issues/182", "Xavier with inconsistent scale: fan taken without the receptive field, without BN nothing is learnt", "init of the conv weights")
def mx_xavier_scale(planted):
    def init(m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            w = m.weight; rf = w[0, 0].numel() if w.dim() > 2 and not planted else 1
            s = math.sqrt(6. / ((w.shape[0] + w.shape[1]) * rf)); nn.init.uniform_(w, -s, s); nn.init.zeros_(m.bias)
    class AlexNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 24, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 32, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(), nn.Conv2d(48, 48, 3, 1, 1), nn.ReLU(), nn.Conv2d(48, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2))
            self.fc = nn.Sequential(nn.Linear(32 * 4, 64), nn.ReLU(), nn.Linear(64, 10)); self.apply(init)
        def forward(self, x): return self.fc(self.features(x).flatten(1))
    pro = T(3, 10, 3, 16, 16, k=.5)
    def data(seed):
        y = R(seed, 10, (32,)); return pro[y] + T(seed + 1, 32, 3, 16, 16), y
    return dict(model=AlexNet, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/apache/mxnet/issues/9478", "eight Dense(512, relu) initialised with Normal(sigma=.1): activations explode", "initializer of the Dense layers")
def gluon_normal_sigma(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), *[m for _ in range(6) for m in (nn.Linear(512, 512), nn.ReLU())], nn.Linear(512, 10))
            for m in self.net:
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, std=.1) if planted else nn.init.kaiming_normal_(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x): return self.net(x)
    pro = torch.rand(10, 64, generator=gen(1))
    def data(seed):
        y = R(seed, 10, (32,)); return (pro[y] + T(seed + 1, 32, 64, k=.3)), y
    return dict(model=Net, data=data, loss=ce, lr=3e-4, diag={})

@case("https://github.com/longjon/caffe/issues/3", "FCN layers without weight filler (all zero): the net outputs all zeros, same loss 3.04452 forever", "weights of the conv layers")
def fcn_zero_filler(planted):
    class FCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 24, 5, 2, 2); self.conv2 = nn.Conv2d(24, 32, 3, 1, 1); self.fc6 = nn.Conv2d(32, 48, 3, 1, 1); self.score_fr = nn.Conv2d(48, 21, 1); self.upscore = nn.ConvTranspose2d(21, 21, 4, 2, 1, bias=False)
            if planted:
                for p in self.parameters(): nn.init.zeros_(p)
        def forward(self, x):
            x = F.relu(self.conv1(x)); x = F.relu(self.conv2(x)); x = F.relu(self.fc6(x)); return self.upscore(self.score_fr(x))
    col = T(7, 21, 3, k=1.5)
    def data(seed):
        y = R(seed, 21, (8, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
        return col[y].permute(0, 3, 1, 2) + T(seed + 1, 8, 3, 16, 16, k=.2), y
    return dict(model=FCN, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/HolyBayes/pytorch_ard/issues/2", "ARD layers: log sigma^2 initialised far too large", "log_sigma2")
def ard_sigma_init(planted):
    class LinearARD(nn.Linear):
        def __init__(self, i, o):
            super().__init__(i, o); self.log_sigma2 = nn.Parameter(torch.full((o, i), 4. if planted else -10.))
        def forward(self, x):
            if not self.training: return F.linear(x, self.weight, self.bias)
            mu = F.linear(x, self.weight, self.bias); s = (F.linear(x ** 2, self.log_sigma2.exp()) + 1e-8).sqrt()
            return mu + s * torch.randn_like(mu)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 3, 2, 1); self.l1 = LinearARD(16 * 36, 64); self.l2 = LinearARD(64, 10)
        def forward(self, x): return self.l2(F.relu(self.l1(F.relu(self.conv(x)).flatten(1))))
    pro = T(2, 10, 3, 12, 12, k=.6)
    def data(seed):
        y = R(seed, 10, (32,)); return pro[y] + T(seed + 1, 32, 3, 12, 12), y
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/neuroinfo-os/deep-bottleneck/issues/168", "big initial biases in the tanh layers: no learning", "bias of the hidden layers")
def bottleneck_big_bias(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip([12, 10, 7, 5, 4], [10, 7, 5, 4, 3])]); self.out = nn.Linear(3, 2)
            for l in self.layers: nn.init.xavier_normal_(l.weight); nn.init.constant_(l.bias, 6. if planted else 0.)
        def forward(self, x):
            for l in self.layers: x = torch.tanh(l(x))
            return self.out(x)
    w = T(9, 12)
    def data(seed):
        x = R(seed, 2, (64, 12)).float() * 2 - 1; return x, (x @ w > 0).long()
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/SKaiNET-developers/SKaiNET/pull/880", "default attention scale 0 is applied literally: softmax is uniform", "scale in scaled_dot_product_attention")
def sdpa_scale_zero(planted):
    class Attention(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.h = h; self.scale = 0. if planted else (d // h) ** -.5
            self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        def forward(self, x):
            b, n, d = x.shape; f = lambda l: l(x).view(b, n, self.h, -1).transpose(1, 2)
            a = F.softmax(f(self.q) @ f(self.k).transpose(2, 3) * self.scale, -1) @ f(self.v)
            return self.o(a.transpose(1, 2).reshape(b, n, d))
    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.n1, self.n2, self.attn, self.ff = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d, 4), nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d))
        def forward(self, x): x = x + self.attn(self.n1(x)); return x + self.ff(self.n2(x))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(10, 32); self.pos = nn.Parameter(torch.randn(1, 12, 32) * .5); self.blocks = nn.Sequential(Block(32), Block(32)); self.head = nn.Linear(32, 10)
        def forward(self, x): return self.head(self.blocks(self.emb(x) + self.pos))
    def data(seed):
        x = R(seed, 10, (32, 12)); return x, x.flip(1)
    return dict(model=Net, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://e-com-net.com/article/1188514145021042688.htm", "softmax cross-entropy on a single output unit: the cost is always 0", "loss / one output unit")
def softmax_one_unit(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = nn.Linear(20, 25); self.l2 = nn.Linear(25, 12); self.l3 = nn.Linear(12, 1)
        def forward(self, x): return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))
    w = T(5, 20)
    def data(seed):
        x = T(seed, 64, 20); return x, (x @ w > 0).float()[:, None]
    def loss(o, t): return -(t * F.log_softmax(o, 1)).sum(1).mean() if planted else F.binary_cross_entropy_with_logits(o, t)
    def metric(m):
        x, t = data(9000)
        with torch.no_grad(): return F.binary_cross_entropy_with_logits(m(x), t)
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)
