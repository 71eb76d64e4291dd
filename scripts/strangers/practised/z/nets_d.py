from base import *
from tasks import *

@case("https://github.com/facebookresearch/neuromorph/issues/2", "ResnetECPos pools over the feature dimension instead of the point dimension", "pool(net, dim=1)")
def neuromorph_pool_dim(planted):
    class ResnetBlockFC(nn.Module):
        def __init__(self, i, o): super().__init__(); h = min(i, o); self.fc_0 = nn.Linear(i, h); self.fc_1 = nn.Linear(h, o); self.shortcut = nn.Linear(i, o, bias=False); nn.init.zeros_(self.fc_1.weight)
        def forward(self, x): return self.shortcut(x) + self.fc_1(F.relu(self.fc_0(F.relu(x))))
    class ResnetECPos(nn.Module):
        def __init__(self, h=32): super().__init__(); self.fc_pos = nn.Linear(3, 2 * h); self.block_0 = ResnetBlockFC(2 * h, h); self.block_1 = ResnetBlockFC(2 * h + 3, h); self.block_2 = ResnetBlockFC(2 * h + 3, h); self.fc_c = nn.Linear(h, 3)
        def forward(self, p):
            dim = 2 if planted else 1
            net = self.block_0(self.fc_pos(p))
            for b in (self.block_1, self.block_2): pooled = net.max(dim, keepdim=True).values.expand(net.size()); net = b(torch.cat([net, pooled, p], -1))
            return self.fc_c(F.relu(net))
    def data(seed):
        n = 16; p = T(seed, n, 64, 3); s = .5 + torch.rand(n, 1, 1, generator=gen(seed + 1)); c = T(seed + 2, n, 1, 3); p = p * s + c; return p, (p - p.mean(1, keepdim=True)) / s
    return dict(model=ResnetECPos, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/kanezaki/pytorch-unsupervised-segmentation/pull/6", "conv2 and bn2 kept in a plain python list: their parameters are not collected", "self.conv2 / self.bn2 lists")
def unsup_seg_plain_list(planted):
    class MyNet(nn.Module):
        def __init__(self, d=16, nconv=4):
            super().__init__(); L = list if planted else nn.ModuleList
            self.conv1 = nn.Conv2d(3, d, 3, padding=1); self.bn1 = nn.BatchNorm2d(d); self.conv2 = L([nn.Conv2d(d, d, 3, padding=1) for _ in range(nconv)]); self.bn2 = L([nn.BatchNorm2d(d) for _ in range(nconv)]); self.conv3 = nn.Conv2d(d, 2, 1); self.bn3 = nn.BatchNorm2d(2)
        def forward(self, x):
            x = self.bn1(F.relu(self.conv1(x)))
            for c, b in zip(self.conv2, self.bn2): x = b(F.relu(c(x)))
            return self.bn3(self.conv3(x))
    def data(seed): x, m = blobs(seed, noise=.8); return x, m[:, 0].long()
    return dict(model=MyNet, data=data, loss=ce, lr=3e-3, diag={})

@case("https://medium.com/joelthchao/how-dead-neurons-hurt-training-5fc127d8db6a", "bias of the hidden ReLU Dense layer initialised extremely negative: dead neurons", "bias init of the hidden layer")
def dead_neurons_bias(planted):
    class Model(nn.Module):
        def __init__(self):
            super().__init__(); self.dense1 = nn.Linear(10, 32); self.dense2 = nn.Linear(32, 2); nn.init.xavier_uniform_(self.dense1.weight); nn.init.constant_(self.dense1.bias, -10. if planted else 0.01)
        def forward(self, x): return self.dense2(F.relu(self.dense1(x)))
    c = T(3, 4, 10) * 1.5
    def data(seed): k = R(seed, 4, (64,)); return c[k] + T(seed + 1, 64, 10, k=.5), k % 2
    return dict(model=Model, data=data, loss=ce, lr=1e-2, diag={})

@case("https://qna.habr.com/user/berng/answers", "threshold (step) activation in the XOR network: its derivative is zero almost everywhere", "step activation of the hidden layer")
def xor_step_activation(planted):
    class XorNet(nn.Module):
        def __init__(self): super().__init__(); self.hidden = nn.Linear(2, 4); self.output = nn.Linear(4, 1)
        def forward(self, x):
            z = self.hidden(x); h = torch.sign(z) if planted else torch.tanh(z); return torch.sigmoid(self.output(h))
    def data(seed): b = R(seed, 2, (32, 2)); return b.float(), (b[:, :1] ^ b[:, 1:]).float()
    return dict(model=XorNet, data=data, loss=mse, lr=5e-2, diag={})

@case("https://github.com/yuxumin/PoinTr/issues/142", "input cloud is normalised by its own centroid and scale, the ground truth by the ground truth's", "data: pc_norm of input and GT differ")
def pointr_norm_mismatch(planted):
    class PCN(nn.Module):
        def __init__(self, n=64): super().__init__(); self.n = n; self.first_conv = nn.Sequential(nn.Conv1d(3, 64, 1), nn.ReLU(), nn.Conv1d(64, 64, 1)); self.second_conv = nn.Sequential(nn.Conv1d(128, 128, 1), nn.ReLU(), nn.Conv1d(128, 128, 1)); self.mlp = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3 * n))
        def forward(self, x):
            f = self.first_conv(x.transpose(1, 2)); f = self.second_conv(torch.cat([f.max(2, keepdim=True).values.expand_as(f), f], 1)).max(2).values; return self.mlp(f).view(-1, self.n, 3)
    def data(seed):
        n = 32; g = gen(seed); u = F.normalize(torch.randn(n, 96, 3, generator=g), dim=-1); ax = .3 + torch.rand(n, 1, 3, generator=g) * 1.5; gt = u * ax + torch.randn(n, 1, 3, generator=g) * 2
        v = F.normalize(torch.randn(n, 1, 3, generator=g), dim=-1); idx = (u * v).sum(-1).argsort(1, descending=True)[:, :48]; part = torch.gather(gt, 1, idx[..., None].expand(-1, -1, 3))
        c = part.mean(1, keepdim=True); m = (part - c).norm(dim=-1).amax(1)[:, None, None]; x = (part - c) / m
        if planted: c = gt.mean(1, keepdim=True); m = (gt - c).norm(dim=-1).amax(1)[:, None, None]
        return x, (gt - c) / m
    def chamfer(o, t): d = torch.cdist(o, t) ** 2; return d.min(2).values.mean() + d.min(1).values.mean()
    return dict(model=PCN, data=data, loss=chamfer, lr=2e-3, diag={})

@case("https://github.com/Lab41/attalos/pull/89", "last layer of the regression network carries batch normalisation and a nonlinearity instead of being linear", "batch norm / relu on the last layer")
def attalos_last_layer_bn(planted):
    class NegSampling(nn.Module):
        def __init__(self, i=64, o=20):
            super().__init__(); self.fc1 = nn.Linear(i, 64); self.bn1 = nn.BatchNorm1d(64); self.fc2 = nn.Linear(64, 64); self.bn2 = nn.BatchNorm1d(64); self.fc3 = nn.Linear(64, o)
            if planted: self.bn3 = nn.BatchNorm1d(o)
        def forward(self, x):
            x = F.relu(self.bn1(self.fc1(x))); x = F.relu(self.bn2(self.fc2(x))); x = self.fc3(x); return F.relu(self.bn3(x)) if planted else x
    W = T(3, 8, 64); V = T(4, 8, 20)
    def data(seed): z = T(seed, 64, 8); return z @ W * .4 + T(seed + 1, 64, 64, k=.1), z @ V * .5
    return dict(model=NegSampling, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/fnzhan/EMLight/issues/18", "sigmoid on the output of the distribution head (128 anchors, targets sum to one): hard to converge", "sigmoid on fc_dist")
def emlight_sigmoid_dist(planted):
    class DenseNet(nn.Module):
        def __init__(self, k=96):
            super().__init__(); self.c0 = nn.Conv2d(3, 16, 3, 2, 1); self.layers = nn.ModuleList([nn.Sequential(nn.BatchNorm2d(16 + 12 * i), nn.ReLU(), nn.Conv2d(16 + 12 * i, 12, 3, padding=1)) for i in range(3)]); self.norm = nn.BatchNorm2d(52); self.fc = nn.Linear(52 * 4, 128); self.fc_dist = nn.Linear(128, k); self.fc_intensity = nn.Linear(128, 1)
        def forward(self, x):
            x = self.c0(x)
            for l in self.layers: x = torch.cat([x, l(x)], 1)
            x = F.relu(self.fc(F.adaptive_avg_pool2d(F.relu(self.norm(x)), 2).flatten(1))); d = self.fc_dist(x); return (torch.sigmoid(d) if planted else d), self.fc_intensity(x)
    P = F.normalize(T(9, 96, 3), dim=1); tp = templates(3, 3, 16, 21)
    def data(seed):
        v = F.normalize(T(seed, 32, 3), dim=1); i = torch.rand(32, 1, generator=gen(seed + 1)); x = torch.einsum("nk,kchw->nchw", v * 2, tp) * (.5 + i[:, :, None, None]) + T(seed + 2, 32, 3, 16, 16, k=.2); return x, (F.softmax(6 * v @ P.T, 1), i)
    return dict(model=DenseNet, data=data, loss=lambda o, t: 1000 * F.mse_loss(o[0], t[0]) + .1 * F.mse_loss(o[1], t[1]), lr=1e-3, diag={})
