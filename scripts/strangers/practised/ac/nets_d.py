from base import *

@case("https://github.com/OML-Team/open-metric-learning/issues/367", "features not normalised, batch-hard triplet loss: the model collapses to almost the same output", "normalise_features in forward")
def oml_no_normalise(planted):
    class Extractor(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 32, 4, 4); self.norm = nn.LayerNorm(32); self.mlp = nn.Sequential(nn.Linear(32 * 16, 64), nn.GELU(), nn.Linear(64, 32))
        def forward(self, x):
            h = self.norm(self.patch(x).flatten(2).transpose(1, 2)); f = self.mlp(h.flatten(1))
            return f if planted else F.normalize(f, dim=1)
    pro = T(2, 8, 3, 16, 16, k=.22)
    def data(seed):
        y = torch.arange(8).repeat(4); return pro[y] + T(seed, 32, 3, 16, 16), y
    def loss(o, y):
        d = (o[:, None] - o[None]).pow(2).sum(-1).add(1e-8).sqrt(); same = y[:, None] == y[None]
        return F.relu(.2 + (d * same).amax(1) - (d + 1e6 * same).amin(1)).mean()
    def metric(m):
        x, y = data(9000)
        with torch.no_grad(): o = m(x)
        d = torch.cdist(o, o) + 1e6 * torch.eye(len(y)); return (y[d.argmin(1)] != y).float().mean()
    return dict(model=Extractor, data=data, loss=loss, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/facebookresearch/InferSent/issues/51", "max pooling over the padded BiLSTM outputs, zeros of the padding win", "pooling in forward")
def infersent_pad_pool(planted):
    class BLSTMEncoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, 24, padding_idx=0); self.enc_lstm = nn.LSTM(24, 32, bidirectional=True, batch_first=True); self.fc = nn.Linear(64, 3)
        def forward(self, x):
            n = (x > 0).sum(1); p = nn.utils.rnn.pack_padded_sequence(self.emb(x), n.cpu(), batch_first=True, enforce_sorted=False)
            o, _ = nn.utils.rnn.pad_packed_sequence(self.enc_lstm(p)[0], batch_first=True, padding_value=0. if planted else -1e9)
            return self.fc(o.max(1)[0])
    def data(seed):
        x = R(seed, 16, (48, 14)) + 4; y = R(seed + 1, 3, (48,)); n = R(seed + 2, 8, (48,)) + 4
        x[torch.arange(48), R(seed + 3, 4, (48,))] = y + 1; x[torch.arange(14)[None] >= n[:, None]] = 0
        x[0, :] = torch.where(x[0] == 0, torch.full_like(x[0], 9), x[0]); return x, y
    return dict(model=BLSTMEncoder, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/skaae/recurrent-spatial-transformer-code/issues/3", "l_conv3_out is defined but the classifier takes the previous layer", "l_conv3")
def rst_conv3_unused(planted):
    class FFN(nn.Module):
        def __init__(self):
            super().__init__()
            self.l_conv1 = nn.Conv2d(1, 16, 3, 1, 1); self.l_conv2 = nn.Conv2d(16, 16, 3, 1, 1); self.l_conv3 = nn.Conv2d(16, 16, 3, 1, 1); self.l_class1 = nn.Linear(16 * 16, 64); self.l_out = nn.Linear(64, 5)
        def forward(self, x):
            a = F.max_pool2d(F.relu(self.l_conv1(x)), 2); b = F.max_pool2d(F.relu(self.l_conv2(a)), 2); c = F.relu(self.l_conv3(b))
            return self.l_out(F.relu(self.l_class1((b if planted else c).flatten(1))))
    pro = T(6, 5, 1, 16, 16, k=.5)
    def data(seed):
        y = R(seed, 5, (32,)); return pro[y] + T(seed + 1, 32, 1, 16, 16), y
    return dict(model=FFN, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/jantic/DeOldify/issues/116", "skip connections are hooked with detach=True, no gradient through them", "skip connections")
def unet_hook_detach(planted):
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU())
            self.e1, self.e2, self.mid = cb(1, 16), cb(16, 24), cb(24, 32); self.u2, self.u1 = cb(56, 24), cb(40, 16); self.out = nn.Conv2d(16, 3, 1)
        def forward(self, x):
            h = lambda t: t.detach() if planted else t
            a = self.e1(x); b = self.e2(F.max_pool2d(a, 2)); m = self.mid(F.max_pool2d(b, 2))
            m = self.u2(torch.cat([F.interpolate(m, scale_factor=2), h(b)], 1))
            return self.out(self.u1(torch.cat([F.interpolate(m, scale_factor=2), h(a)], 1)))
    k = T(3, 3, 1, 3, 3, k=.5)
    def data(seed):
        x = T(seed, 8, 1, 16, 16); return x, torch.tanh(F.conv2d(x, k, padding=1))
    return dict(model=UNet, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/dontLoveBugs/DORN_pytorch/issues/17", "alpha and beta of the depth discretisation (SID) set for another range: all depths in one bin, constant output", "alpha/beta of the targets")
def dorn_sid_range(planted):
    K = 12; alpha, beta = (1., 80.) if planted else (.05, 1.)
    edges = torch.exp(torch.linspace(math.log(alpha), math.log(beta), K + 1))
    class DORN(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 24, 3, 1, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, 1, 1), nn.BatchNorm2d(24), nn.ReLU()); self.ordinal = nn.Conv2d(24, K, 1)
        def forward(self, x): return self.ordinal(self.features(x))
    def depth(x): return .08 + .85 * torch.sigmoid(2 * F.avg_pool2d(x.mean(1, keepdim=True), 3, 1, 1) * 2.5)
    def data(seed):
        x = T(seed, 8, 3, 12, 12); return x, (depth(x) > edges[None, 1:, None, None] * 1.).float()
    def metric(m):
        x, _ = data(9000)
        with torch.no_grad(): lab = (m(x) > 0).sum(1).clamp(max=K - 1)
        return (((edges[lab] * edges[lab + 1]).sqrt() - depth(x)[:, 0]) ** 2).mean()
    return dict(model=DORN, data=data, loss=F.binary_cross_entropy_with_logits, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/dmlc/mxnet-notebooks/issues/5", "additional fully connected layer in the matrix factorisation without an activation", "fc layers (no activation)")
def mf_no_activation(planted):
    class MF(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = nn.Embedding(60, 16), nn.Embedding(40, 16); self.fu, self.fi = nn.Linear(16, 32), nn.Linear(16, 32); self.fu2, self.fi2 = nn.Linear(32, 16), nn.Linear(32, 16)
        def forward(self, u, i):
            act = (lambda t: t) if planted else F.relu
            return (self.fu2(act(self.fu(self.user(u)))) * self.fi2(act(self.fi(self.item(i))))).sum(1)
    U, V = T(1, 60, 4, k=.7), T(2, 40, 4, k=.7)
    def data(seed):
        u, i = R(seed, 60, (64,)), R(seed + 1, 40, (64,)); return (u, i), (U[u] * V[i]).sum(1)
    return dict(model=MF, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/pytorch/pytorch/pull/139667", "the activation stands outside the for loop: four linear layers in a row", "activations in forward")
def dynamic_net_act(planted):
    class DynamicNet(nn.Module):
        def __init__(self, num_layers=3):
            super().__init__()
            self.linears = nn.ModuleList([nn.Linear(4, 4) if False else nn.Linear(2 if k == 0 else 32, 32) for k in range(num_layers)])
            self.activations = nn.ModuleDict({"relu": nn.ReLU(), "lrelu": nn.LeakyReLU()}); self.final = nn.Linear(32, 2)
        def forward(self, x, act="relu"):
            for linear in self.linears:
                x = linear(x)
                if not planted: x = self.activations[act](x)
            x = self.final(x)
            return self.activations["lrelu"](x) if planted else x
    def data(seed):
        x = T(seed, 64, 2); return x, (x[:, 0] * x[:, 1] > 0).long()
    return dict(model=DynamicNet, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/BVLC/caffe/pull/1867", "LeNet with batch-norm layers whose scale has no filler (constant 0)", "bn scale (weight)")
def lenet_bn_filler(planted):
    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 12, 5); self.bn1 = nn.BatchNorm2d(12); self.conv2 = nn.Conv2d(12, 24, 3); self.bn2 = nn.BatchNorm2d(24); self.ip1 = nn.Linear(24 * 4, 64); self.ip2 = nn.Linear(64, 10)
            if planted:
                for b in (self.bn1, self.bn2): nn.init.zeros_(b.weight)
        def forward(self, x):
            x = F.max_pool2d(self.bn1(self.conv1(x)), 2); x = F.max_pool2d(self.bn2(self.conv2(x)), 2)
            return self.ip2(F.relu(self.ip1(x.flatten(1))))
    pro = T(1, 10, 1, 16, 16, k=.7)
    def data(seed):
        y = R(seed, 10, (32,)); return pro[y] + T(seed + 1, 32, 1, 16, 16), y
    return dict(model=LeNet, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.bokerqi.top/Project-MONAI/MONAI/issues/807", "dice loss with the smooth term also in the numerator", "dice loss")
def monai_dice_smooth(planted):
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.InstanceNorm2d(o), nn.PReLU())
            self.e1, self.e2, self.u1 = cb(1, 12), cb(12, 24), cb(36, 12); self.out = nn.Conv2d(12, 1, 1)
        def forward(self, x):
            a = self.e1(x); b = self.e2(F.max_pool2d(a, 2)); return torch.sigmoid(self.out(self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))))
    def data(seed):
        c = torch.rand(8, 2, 1, 1, generator=gen(seed)) * 10 + 3; g = torch.arange(16.)
        m = (((g[None, :, None] - c[:, 0]) ** 2 + (g[None, None] - c[:, 1]) ** 2) < 6).float()[:, None]
        return m + T(seed + 1, 8, 1, 16, 16, k=.5), m
    def loss(o, t):
        i = (o * t).sum((1, 2, 3)); d = (o + t).sum((1, 2, 3))
        return (1 - (2 * i + 1) / (d + 1)).mean() if planted else (1 - 2 * i / (d + 1)).mean()
    return dict(model=UNet, data=data, loss=loss, lr=3e-3, diag={})
