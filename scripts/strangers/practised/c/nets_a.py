from base import *

@case("https://github.com/tinygrad/tinygrad/pull/566", "MLP weights drawn from uniform(-1,1) without scaling by fan-in", "l1/l2 weight init")
def tiny_mlp_uniform(planted):
    P = T(7, 10, 784)
    class TinyBobNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = nn.Parameter(torch.rand(784, 128) * 2 - 1); self.l2 = nn.Parameter(torch.rand(128, 10) * 2 - 1)
            if not planted:
                self.l1.data /= math.sqrt(784); self.l2.data /= math.sqrt(128)
        def forward(self, x): return F.log_softmax((x @ self.l1).relu() @ self.l2, dim=-1)
    def data(s):
        y = R(s, 10, (64,)); return torch.sigmoid(.6 * P[y] + T(s + 1, 64, 784)), y
    return dict(model=TinyBobNet, data=data, loss=F.nll_loss, lr=1e-3, diag={})

@case("https://github.com/johnb30/py_crepe/issues/8", "char CNN left at default Glorot init stays at 25%, RandomNormal init trains", "conv/dense kernel init")
def crepe_init(planted):
    class CharCNN(nn.Module):
        def __init__(self, vocab=40, nf=48):
            super().__init__()
            ks = [7, 7, 3, 3, 3, 3]
            self.convs = nn.ModuleList([nn.Conv1d(vocab if i == 0 else nf, nf, k) for i, k in enumerate(ks)])
            self.fc1, self.fc2, self.out = nn.Linear(nf * 3, 64), nn.Linear(64, 64), nn.Linear(64, 4)
            for m in self.modules():
                if isinstance(m, (nn.Conv1d, nn.Linear)):
                    nn.init.zeros_(m.bias)
                    if planted: nn.init.xavier_uniform_(m.weight)
                    else: nn.init.normal_(m.weight, std=1.6 / math.sqrt(m.weight[0].numel()))
        def forward(self, t):
            x = F.one_hot(t, 40).float().transpose(1, 2)
            for i, c in enumerate(self.convs):
                x = F.relu(c(x))
                if i in (0, 1, 5): x = F.max_pool1d(x, 3)
            x = x[:, :, :3].flatten(1)
            return self.out(F.relu(self.fc2(F.relu(self.fc1(x)))))
    def data(s):
        y = R(s, 4, (32,)); t = R(s + 50000, 40, (32, 180))
        m = torch.rand(32, 180, generator=gen(s + 90000)) < .3
        return torch.where(m, y[:, None] * 10 + t % 10, t), y
    return dict(model=CharCNN, data=data, loss=ce, lr=5e-4, diag={})

@case("https://github.com/mrchor/HiNet/issues/1", "gate logits go through ReLU before softmax; with zero-initialised domain embedding the gate gets no gradient", "gate (relu before softmax) / domain_emb")
def hinet_gate(planted):
    A = T(3, 4, 12)
    class HiNet(nn.Module):
        def __init__(self, n=4):
            super().__init__()
            self.domain_emb = nn.Embedding(4, 8); nn.init.zeros_(self.domain_emb.weight)
            self.gate = nn.Linear(8, n); nn.init.zeros_(self.gate.bias)
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()) for _ in range(n)])
            self.tower = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        def forward(self, x, d):
            g = self.gate(self.domain_emb(d))
            if planted: g = F.relu(g)
            g = torch.softmax(g, dim=1)
            e = torch.stack([m(x) for m in self.experts], 1)
            return self.tower((g.unsqueeze(-1) * e).sum(1)).squeeze(1)
    def data(s):
        x, d = T(s, 64, 12), R(s + 1, 4, (64,)); return (x, d), ((x * A[d]).sum(1) > 0).float()
    return dict(model=HiNet, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-2, diag={})

@case("https://github.com/pytorch/examples/pull/117", "ReLU on the last layer before log_softmax", "relu after fc2")
def mnist_relu_out(planted):
    P = T(5, 10, 1, 28, 28)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 10, 5); self.conv2 = nn.Conv2d(10, 20, 5); self.conv2_drop = nn.Dropout2d()
            self.fc1 = nn.Linear(320, 50); self.fc2 = nn.Linear(50, 10)
        def forward(self, x):
            x = F.relu(F.max_pool2d(self.conv1(x), 2))
            x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2)).view(-1, 320)
            x = F.dropout(F.relu(self.fc1(x)), training=self.training)
            x = self.fc2(x)
            if planted: x = F.relu(x)
            return F.log_softmax(x, dim=1)
    def data(s):
        y = R(s, 10, (64,)); return P[y] + .7 * T(s + 1, 64, 1, 28, 28), y
    return dict(model=Net, data=data, loss=F.nll_loss, lr=2e-3, diag={})

@case("https://github.com/cbovar/ConvNetSharp/issues/154", "output reduced to a softmax over a single unit, output is always 1", "softmax over one unit (out)")
def single_softmax(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.fc1 = nn.Linear(8, 20); self.fc2 = nn.Linear(20, 20); self.out = nn.Linear(20, 1 if planted else 2)
        def forward(self, x):
            x = torch.tanh(self.fc2(torch.tanh(self.fc1(x))))
            return torch.softmax(self.out(x), dim=1)[:, -1]
    def data(s):
        x = R(s, 2, (32, 8)).float(); return x, x[:, 0]
    return dict(model=Net, data=data, loss=F.binary_cross_entropy, lr=1e-2, diag={})

@case("https://stackoverflow.com/questions/51919621", "weights and biases drawn from uniform(0,1), output sigmoid saturates", "w/w2 uniform_(0,1)")
def bmm_uniform(planted):
    v = T(11, 20)
    class MyModel(nn.Module):
        def __init__(self, i=20, o=1, h=20):
            super().__init__()
            self.w = nn.Parameter(torch.empty(i, h).uniform_(0, 1)); self.b = nn.Parameter(torch.empty(h).uniform_(0, 1))
            self.w2 = nn.Parameter(torch.empty(h, o).uniform_(0, 1)); self.b2 = nn.Parameter(torch.empty(o).uniform_(0, 1))
            if not planted:
                nn.init.xavier_uniform_(self.w); nn.init.xavier_uniform_(self.w2); nn.init.zeros_(self.b); nn.init.zeros_(self.b2)
        def forward(self, x):
            x = x.view(x.shape[0], 1, -1)
            out = torch.add(torch.bmm(x, self.w.expand(x.shape[0], -1, -1)), self.b)
            out = torch.add(torch.bmm(out, self.w2.expand(x.shape[0], -1, -1)), self.b2)
            return torch.sigmoid(out).view(x.shape[0])
    def data(s):
        x = torch.rand(64, 20, generator=gen(s)); return x, ((x - .5) @ v > 0).float()
    return dict(model=MyModel, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/zhixuhao/unet/issues/148", "conv9 squeezes to 2 filters with ReLU before the 1x1 sigmoid output, output uniformly grey/black", "last conv9 (2 filters, relu)")
def unet_two_relu(planted):
    def he(m):
        if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight); nn.init.zeros_(m.bias)
    class UNet(nn.Module):
        def __init__(self, c=20):
            super().__init__()
            self.conv1 = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.ReLU())
            self.conv2 = nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.Conv2d(2 * c, 2 * c, 3, padding=1), nn.ReLU())
            self.up = nn.Conv2d(2 * c, c, 3, padding=1)
            self.conv8 = nn.Sequential(nn.Conv2d(2 * c, c, 3, padding=1), nn.ReLU())
            self.conv9 = nn.Conv2d(c, 2, 3, padding=1) if planted else nn.Identity()
            self.conv10 = nn.Conv2d(2 if planted else c, 1, 1); self.apply(he)
        def forward(self, x):
            a = self.conv1(x); b = self.conv2(F.max_pool2d(a, 2))
            u = F.relu(self.up(F.interpolate(b, scale_factor=2)))
            h = F.relu(self.conv9(self.conv8(torch.cat([a, u], 1))))
            return torch.sigmoid(self.conv10(h))
    def data(s):
        z = F.avg_pool2d(T(s, 8, 1, 32, 32), 7, 1, 3) * 7; return torch.sigmoid(z + .5 * T(s + 1, 8, 1, 32, 32)), (z > 0).float()
    return dict(model=UNet, data=data, loss=F.binary_cross_entropy, lr=1e-3, diag={})

@case("https://datascience.stackexchange.com/questions/38604/too-low-accuracy-on-mnist-dataset-using-a-neural-network", "10 classes with one sigmoid output and binary cross-entropy on labels 0..9", "output_nodes=1 sigmoid + binary_crossentropy")
def mnist_one_sigmoid(planted):
    P = T(9, 10, 784)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.hl1 = nn.Linear(784, 64); self.out = nn.Linear(64, 1 if planted else 10)
        def forward(self, x):
            x = self.out(F.relu(self.hl1(x))); return torch.sigmoid(x).squeeze(1) if planted else x
    def data(s):
        y = R(s, 10, (64,)); return torch.sigmoid(P[y] + T(s + 1, 64, 784)), y
    def bce(o, t): t = t.float(); return -(t * torch.log(o.clamp(1e-7, 1)) + (1 - t) * torch.log((1 - o).clamp(1e-7, 1))).mean()
    def metric(m):
        x, y = data(99999)
        with torch.no_grad(): o = m(x)
        return float(((o.argmax(1) if o.dim() == 2 else o.round()) != y).float().mean())
    return dict(model=Net, data=data, loss=bce if planted else ce, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/waxz/sfm_net/issues/1", "depth activation clips to [1,100], below 1 there is no gradient and depth stays 1", "clip_relu(x,1,100) in depth_net")
def sfm_clip(planted):
    class DepthNet(nn.Module):
        def __init__(self, c=16):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(3, c, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU())
            self.deconv = nn.Sequential(nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.ReLU()); self.top = nn.Conv2d(c, 1, 1)
            nn.init.xavier_normal_(self.top.weight); nn.init.constant_(self.top.bias, 0. if planted else 1.)
        def forward(self, x):
            d = self.top(self.deconv(self.conv(x)))
            return torch.clamp(d, 1, 100) if planted else torch.clamp(F.relu(d), 0, 100)
    def data(s):
        z = 2 + F.avg_pool2d(T(s, 8, 1, 24, 24), 5, 1, 2) * 4; z = z.clamp(.2, 8)
        return torch.cat([1 / z, z / 8, .3 * T(s + 1, 8, 1, 24, 24)], 1), z
    return dict(model=DepthNet, data=data, loss=F.l1_loss, lr=2e-3, diag={})

@case("https://github.com/NicolasHug/Surprise/issues/22", "all user and item factors initialised to the same constant 0.1, factors stay identical", "pu/qi init")
def svd_const(planted):
    U, V = T(1, 60, 6), T(2, 50, 6)
    class SVD(nn.Module):
        def __init__(self, k=12):
            super().__init__()
            self.bu, self.bi, self.pu, self.qi = nn.Embedding(60, 1), nn.Embedding(50, 1), nn.Embedding(60, k), nn.Embedding(50, k)
            self.mu = nn.Parameter(torch.tensor(3.))
            for e in (self.bu, self.bi): nn.init.zeros_(e.weight)
            for e in (self.pu, self.qi): nn.init.constant_(e.weight, .1) if planted else nn.init.normal_(e.weight, 0, .1)
        def forward(self, u, i):
            return self.mu + self.bu(u).squeeze(1) + self.bi(i).squeeze(1) + (self.pu(u) * self.qi(i)).sum(1)
    def data(s):
        u, i = R(s, 60, (512,)), R(s + 1, 50, (512,)); return (u, i), 3 + (U[u] * V[i]).sum(1) * .6
    return dict(model=SVD, data=data, loss=mse, lr=2e-2, diag={})

@case("https://github.com/thu-ml/tianshou/issues/564", "one observation component is huge and dominates, actions are always at the bound", "observation scale (obs[:,0])")
def sac_obs_scale(planted):
    w = T(4, 8, 2)
    class Actor(nn.Module):
        def __init__(self, h=64):
            super().__init__(); self.preprocess = nn.Sequential(nn.Linear(8, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU()); self.mu = nn.Linear(h, 2)
        def forward(self, obs): return torch.tanh(self.mu(self.preprocess(obs)))
    def data(s):
        x = T(s, 64, 8); t = torch.tanh(x[:, 1:] @ w[1:] * .4)
        if planted: x = x.clone(); x[:, 0] = 5e4 + 1e4 * x[:, 0]
        return x, t
    return dict(model=Actor, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/tensorflow/agents/issues/622", "unnormalised observations feed exp() std head of the SAC actor, std overflows and loss is NaN", "observations unnormalised / std exp head")
def sac_std_exp(planted):
    w = T(8, 6, 3)
    class TanhNormalProjection(nn.Module):
        def __init__(self, h=64):
            super().__init__(); self.enc = nn.Sequential(nn.Linear(6, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU()); self.means = nn.Linear(h, 3); self.stds = nn.Linear(h, 3)
        def forward(self, x): h = self.enc(x); return torch.stack([self.means(h), torch.exp(self.stds(h))], -1)
    def nll(o, t): mu, sd = o.unbind(-1); return (.5 * ((t - mu) / sd) ** 2 + torch.log(sd)).mean()
    def data(s):
        x = T(s, 64, 6); t = x @ w * .5 + .2 * T(s + 1, 64, 3)
        return (x * torch.tensor([1e3, 3e3, 1e2, 5e3, 1., 1e3]) if planted else x), t
    return dict(model=TanhNormalProjection, data=data, loss=nll, lr=1e-3, diag={})

@case("https://github.com/gram-ai/capsule-networks/issues/10", "routing over the right dim but route_weights ~ randn without the 0.01 factor: random guess", "route_weights init")
def caps_route(planted):
    P = T(6, 5, 1, 16, 16)
    def squash(x): n = (x ** 2).sum(-1, keepdim=True); return n / (1 + n) * x / torch.sqrt(n + 1e-9)
    class CapsuleNet(nn.Module):
        def __init__(self):
            super().__init__(); self.conv1 = nn.Conv2d(1, 32, 5); self.primary = nn.Conv2d(32, 64, 5, stride=2)
            self.route_weights = nn.Parameter((1. if planted else .01) * torch.randn(5, 8 * 16, 8, 16))
        def forward(self, x):
            x = self.primary(F.relu(self.conv1(x))); u = squash(x.view(x.size(0), 8, 8, 16).permute(0, 1, 3, 2).reshape(x.size(0), -1, 8))
            p = torch.einsum("bri,crio->cbro", u, self.route_weights); b = torch.zeros_like(p[..., :1])
            for i in range(3):
                v = squash((torch.softmax(b, dim=0) * p).sum(2, keepdim=True))
                if i < 2: b = b + (p * v).sum(-1, keepdim=True)
            return (v.squeeze(2) ** 2).sum(-1).clamp_min(1e-12).sqrt().t()
    def margin(o, t):
        y = F.one_hot(t, 5).float(); return (y * F.relu(.9 - o) ** 2 + .5 * (1 - y) * F.relu(o - .1) ** 2).sum(1).mean()
    def data(s):
        y = R(s, 5, (32,)); return torch.sigmoid(P[y] + 1.5 * T(s + 1, 32, 1, 16, 16)), y
    return dict(model=CapsuleNet, data=data, loss=margin, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/issues/741", "multi-label classifier with softmax output instead of sigmoid", "softmax on output layer")
def multilabel_softmax(planted):
    W = T(12, 20, 7)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 7))
        def forward(self, x): z = self.net(x); return torch.softmax(z, -1) if planted else torch.sigmoid(z)
    def data(s): x = T(s, 64, 20); return x, (x @ W > 0).float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy, lr=3e-3, diag={})

@case("https://github.com/tensorflow/probability/issues/651", "KL of the Bayesian layers added unscaled to every minibatch loss instead of kl/num_examples", "kl weight in loss")
def bnn_kl(planted):
    W = T(13, 10, 3)
    class DenseReparameterization(nn.Module):
        def __init__(self, i, o):
            super().__init__(); self.mu = nn.Parameter(torch.randn(o, i) * .1); self.rho = nn.Parameter(torch.full((o, i), -4.)); self.bias = nn.Parameter(torch.zeros(o))
        def forward(self, x):
            sd = F.softplus(self.rho); self.kl = (-torch.log(sd) + (sd ** 2 + self.mu ** 2) / 2 - .5).sum()
            return F.linear(x, self.mu + sd * torch.randn_like(sd), self.bias)
    class BNN(nn.Module):
        def __init__(self):
            super().__init__(); self.l1 = DenseReparameterization(10, 64); self.l2 = DenseReparameterization(64, 3)
        def forward(self, x):
            y = self.l2(F.relu(self.l1(x))); return y, self.l1.kl + self.l2.kl
    def loss(o, t): return F.cross_entropy(o[0], t) + o[1] / (1 if planted else 50000)
    def data(s): x = T(s, 64, 10); return x, (x @ W).argmax(1)
    def metric(m): x, t = data(99999); return float(F.cross_entropy(m(x)[0], t))
    return dict(model=BNN, data=data, loss=loss, lr=1e-2, diag={}, metric=metric)

@case("https://github.com/dmlc/gluon-nlp/issues/480", "word embeddings averaged over padding tokens too", "mean pooling without mask")
def fasttext_pad(planted):
    V = T(14, 100)
    class MeanPool(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(100, 32); self.output = nn.Linear(32, 2)
        def forward(self, t, n):
            e = self.embedding(t)
            if planted: return self.output(e.mean(1))
            m = (torch.arange(t.size(1)) < n[:, None]).float().unsqueeze(-1)
            return self.output((e * m).sum(1) / n[:, None])
    def data(s):
        n = R(s, 10, (64,)) + 2; t = R(s + 1, 99, (64, 60)) + 1; m = torch.arange(60) < n[:, None]; t = t * m
        return (t, n), ((V[t] * m).sum(1) > 0).long()
    return dict(model=MeanPool, data=data, loss=ce, lr=2e-2, diag={})
