from base import *

def lin_task(seed, n=32, d=16, k=4, ts=7):
    x = T(seed, n, d); W = T(ts, d, k); return x, (x @ W).argmax(-1)
def reg_task(seed, n=32, d=8, ts=7):
    x = T(seed, n, d); w, v = T(ts, d, 1) / d ** .5, T(ts + 1, d, 1) / d ** .5; return x, torch.sin(2 * x @ w) + x @ v
def img_task(seed, n=32, c=1, h=12, k=4, noise=.7, ts=5):
    P = T(ts, k, c, h, h); t = R(seed + 50000, k, (n,)); return P[t] + noise * T(seed, n, c, h, h), t

@case("https://github.com/keras-team/keras-io/issues/1876", "GlobalAveragePooling1D averages over the time axis (channels_last) instead of the channels", "global average pooling")
def pooling_wrong_axis(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.norm = nn.ModuleList([nn.LayerNorm(4) for _ in range(4)]); self.att = nn.ModuleList([nn.MultiheadAttention(4, 2, batch_first=True) for _ in range(2)])
            self.ff = nn.ModuleList([nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(2)]); self.mlp = nn.Sequential(nn.Linear(4 if planted else 24, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(self, x):
            for i in range(2): x = x + self.norm[2 * i](self.att[i](x, x, x, need_weights=False)[0]); x = x + self.norm[2 * i + 1](self.ff[i](x))
            return self.mlp(x.mean(1) if planted else x.mean(2))
    def data(seed):
        t = R(seed + 1, 4, (48,)); u = torch.linspace(0, 2 * math.pi, 25)[:-1]; s = torch.sin(u[None] + t[:, None] * math.pi / 2); return s.unsqueeze(2).expand(-1, -1, 4) + .8 * T(seed, 48, 24, 4), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/jw1912/bullet/pull/363", "Kaiming init lacks the factor 2: every ReLU layer halves the variance", "weight init")
def kaiming_without_2(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.layers = nn.ModuleList([nn.Linear(16 if i == 0 else 64, 64) for i in range(8)]); self.out = nn.Linear(64, 4)
            for l in self.layers: nn.init.normal_(l.weight, 0, ((1 if planted else 2) / l.in_features) ** .5); nn.init.zeros_(l.bias)
        def forward(self, x):
            for l in self.layers: x = F.relu(l(x))
            return self.out(x)
    return dict(model=Net, data=lin_task, loss=ce, lr=1e-3, diag={})

class EGNN(nn.Module):
    def __init__(self, f=8, norm=True, eps=True, swap=False):
        super().__init__(); self.edge = nn.Sequential(nn.Linear(2 * f + 1, 16), nn.SiLU(), nn.Linear(16, 16), nn.SiLU()); self.coors_mlp = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 1)); self.node = nn.Sequential(nn.Linear(f + 16, 16), nn.SiLU(), nn.Linear(16, f)); self.norm, self.eps, self.swap, self.f = norm, eps, swap, f
    def forward(self, z):
        x, h = z[..., :3], z[..., 3:]; B, n, _ = x.shape; rel = x.unsqueeze(2) - x.unsqueeze(1); d2 = (rel ** 2).sum(-1, keepdim=True)
        m = self.edge(torch.cat([h.unsqueeze(2).expand(-1, -1, n, -1), h.unsqueeze(1).expand(-1, n, -1, -1), d2], -1)); w = self.coors_mlp(m)
        if self.norm: rel = rel / ((d2 + (1e-8 if self.eps else 0)).sqrt() + 1); x = x + (w * rel).mean(2)
        else: x = x + (w * rel).sum(2)
        h = h + self.node(torch.cat([h, m.mean(2)], -1)); return torch.cat([h, x] if self.swap else [x, h], -1)
class EGNNNet(nn.Module):
    def __init__(self, n=4, **k): super().__init__(); self.emb = nn.Linear(1, 8); self.layers = nn.ModuleList([EGNN(**k) for _ in range(n)]); self.head = nn.Linear(8, 1); self.swap = k.get("swap", False)
    def forward(self, x, q):
        z = torch.cat([x, self.emb(q)], -1)
        for l in self.layers: z = l(z)
        return self.head(z[..., 3:].mean(1))
def egnn_data(seed, n=40, B=12, zero=False):
    s = torch.rand(B, 1, 1, generator=gen(seed + 3)) * 1.5 + .5; x = T(seed, B, n, 3) * s; q = T(seed + 1, B, n, 1)
    if zero: x[:, 1] = x[:, 0]
    return (x, q), s[:, 0] * 2 - 2.5

@case("https://github.com/lucidrains/egnn-pytorch/issues/7", "coordinates are updated with an unnormalised sum over all neighbours: explodes for larger graphs", "coordinate update (coors_mlp)")
def egnn_unnormalised_sum(planted): return dict(model=lambda: EGNNNet(n=3, norm=not planted), data=lambda s: egnn_data(s, n=24), loss=mse, lr=2e-3, diag={})

@case("https://github.com/lucidrains/egnn-pytorch/issues/10", "update returns features and coordinates in exchanged order for the next layer", "EGNN layer output order")
def egnn_swapped_order(planted): return dict(model=lambda: EGNNNet(swap=planted), data=lambda s: egnn_data(s, n=20), loss=mse, lr=2e-3, diag={})

@case("https://github.com/dmlc/dgl/issues/7271", "identical coordinates: square root of a zero distance gives NaN gradients", "EGNNConv radial sqrt")
def egnn_identical_nan(planted): return dict(model=lambda: EGNNNet(eps=not planted), data=lambda s: egnn_data(s, n=16, zero=True), loss=mse, lr=2e-3, diag={})

@case("https://github.com/AntixK/PyTorch-VAE/issues/108", "decoder ends in Tanh while the images are in [0, 1]", "final Tanh")
def vae_tanh_range(planted):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU()); self.mu, self.logvar = nn.Linear(64, 6), nn.Linear(64, 6); self.decoder = nn.Sequential(nn.Linear(6, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.Tanh() if planted else nn.Sigmoid())
        def forward(self, x):
            h = self.encoder(x); mu, lv = self.mu(h), self.logvar(h); z = mu + torch.randn_like(mu) * (lv / 2).exp()
            return torch.cat([self.decoder(z), mu, lv], 1)
    def loss(o, t): mu, lv = o[:, 64:70], o[:, 70:]; return F.mse_loss(o[:, :64], t) - .00025 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean() / 2
    def data(seed): x = torch.sigmoid(2 * T(seed, 48, 4) @ T(3, 4, 64)); return x, x
    return dict(model=VAE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/deepchem/deepchem/pull/5100", "PoissonLoss takes log of the raw output: log(0) for a ReLU output of zero", "loss: log(output)")
def poisson_log_zero(planted):
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1), nn.ReLU())
        def forward(self, x): return self.net(x)
    def poisson(o, t): return (o - t * (o if planted else o.clamp(min=1e-3)).log()).mean()
    def data(seed): x = T(seed, 48, 8); rate = F.softplus(x @ T(3, 8, 1)) + .2; return x, torch.poisson(rate, generator=gen(seed + 4))
    return dict(model=Net, data=data, loss=poisson, lr=3e-3, diag={})

@case("https://github.com/chaowentao/OccCasNet/issues/3", "transpose augmentation turns the images but not the labels", "data: augmentation of labels")
def transpose_without_label(planted):
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
        def forward(self, x): return self.net(x)
    def data(seed):
        d = F.interpolate(T(seed, 24, 1, 4, 4), size=12, mode="bilinear"); x = torch.cat([d.sin() + .1 * T(seed + 1, 24, 1, 12, 12), d.cos() + .1 * T(seed + 2, 24, 1, 12, 12)], 1); m = R(seed + 3, 2, (24,)).bool()
        x = torch.where(m[:, None, None, None], x.transpose(2, 3), x)
        if not planted: d = torch.where(m[:, None, None, None], d.transpose(2, 3), d)
        return x, d
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/jiny2001/deeply-recursive-cnn-tf/issues/6", "inference network's recursive convolutions have no ReLU", "H_conv recursion")
def drcn_no_relu(planted):
    class DRCN(nn.Module):
        def __init__(self): super().__init__(); self.e0, self.e1 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1); self.W_conv = nn.Conv2d(16, 16, 3, padding=1); self.d1, self.d2 = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1); self.w = nn.Parameter(torch.ones(5) / 5)
        def forward(self, x):
            h = self.e1(F.relu(self.e0(x))).relu(); ys = []
            for i in range(5):
                h = self.W_conv(h); h = h if planted else F.relu(h); ys.append(self.d2(self.d1(h)) + x)
            return (torch.stack(ys, -1) * self.w).sum(-1)
    def data(seed): z = F.interpolate(T(seed, 16, 1, 5, 5), size=12, mode="bicubic"); hr = torch.tanh(3 * z); return F.interpolate(F.avg_pool2d(hr, 2), size=12, mode="bilinear"), hr
    return dict(model=DRCN, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/ssw-nlp-study-group/nlp_study/pull/2", "attention softmax runs over the batch axis instead of the sequence axis", "attention softmax dim")
def attention_softmax_over_batch(planted):
    class BiLSTMAttention(nn.Module):
        def __init__(self): super().__init__(); self.emb = nn.Embedding(12, 16); self.lstm = nn.LSTM(16, 32, bidirectional=True); self.w = nn.Linear(64, 1); self.fc = nn.Linear(64, 4)
        def forward(self, x):
            H = self.lstm(self.emb(x.T))[0]; a = F.softmax(self.w(torch.tanh(H)), dim=1 if planted else 0); return self.fc((H * a).sum(0))
    def data(seed): x = R(seed, 12, (32, 10)); p = R(seed + 1, 10, (32,)); y = R(seed + 2, 4, (32,)); x = x % 8; x[torch.arange(32), p] = 8 + y; return x, y
    return dict(model=BiLSTMAttention, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/timomernick/pytorch-capsule/issues/12", "routing softmax over the input capsules (dim 1) instead of the output capsules (dim 2)", "routing softmax dim")
def capsule_routing_dim(planted):
    class CapsNet(nn.Module):
        def __init__(self): super().__init__(); self.conv = nn.Conv2d(1, 32, 5, 2); self.primary = nn.Conv2d(32, 32, 3); self.W = nn.Parameter(torch.randn(1, 16, 4, 8, 8) * .3)
        def squash(self, s): n = (s ** 2).sum(-1, keepdim=True); return n / (1 + n) * s / (n + 1e-8).sqrt()
        def forward(self, x):
            u = self.squash(self.primary(F.relu(self.conv(x))).view(x.size(0), 4, 8, -1).permute(0, 1, 3, 2).reshape(x.size(0), -1, 8)); u_hat = (self.W @ u[:, :, None, :, None]).squeeze(-1); b = torch.zeros(x.size(0), u.size(1), 4, 1)
            for _ in range(3):
                v = self.squash((F.softmax(b, 1 if planted else 2) * u_hat).sum(1, keepdim=True)); b = b + (u_hat * v).sum(-1, keepdim=True)
            return v.squeeze(1).norm(dim=-1)
    def margin(o, t): T_ = F.one_hot(t, 4).float(); return (T_ * F.relu(.9 - o) ** 2 + .5 * (1 - T_) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=CapsNet, data=lambda s: img_task(s), loss=margin, lr=3e-3, diag={})

@case("https://github.com/GeekLiB/caffe-model/pull/4", "filler key misspelled (weight_std): gaussian weights get the default std of 1 instead of 0.01", "weight init")
def caffe_std_typo(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1); self.ip1, self.ip2 = nn.Linear(144, 64), nn.Linear(64, 4)
            for m in (self.conv1, self.conv2, self.ip1, self.ip2): nn.init.normal_(m.weight, std=1. if planted else .05); nn.init.zeros_(m.bias)
        def forward(self, x): x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2); return self.ip2(F.relu(self.ip1(x.flatten(1))))
    return dict(model=Net, data=lambda s: img_task(s, noise=2.), loss=ce, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/pull/8047", "feature map is reshaped for the RNN without the permute: time steps mix rows and columns", "reshape before the RNN")
def ocr_reshape_without_permute(planted):
    class OCR(nn.Module):
        def __init__(self): super().__init__(); self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 2)), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1))); self.rnn = nn.GRU(16, 32, batch_first=True, bidirectional=True); self.fc = nn.Linear(64, 6)
        def forward(self, x):
            f = self.conv(x); B, C, H, W = f.shape; f = f.reshape(B, W, H * C) if planted else f.permute(0, 3, 1, 2).reshape(B, W, C * H); return self.fc(self.rnn(f)[0])
    def data(seed): t = R(seed + 1, 6, (32, 6)); G = T(9, 6, 8, 4); x = G[t].permute(0, 2, 1, 3).reshape(32, 1, 8, 24); t2 = t.repeat_interleave(2, 1); return x + .3 * T(seed, *x.shape), t2
    return dict(model=OCR, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/deepchem/deepchem/pull/4888", "VAE KL term takes logvar ** 2 as the variance (treats logvar as sigma)", "loss: KL divergence")
def vae_kl_logvar_squared(planted):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU()); self.mu, self.logvar = nn.Linear(64, 6), nn.Linear(64, 6); self.decoder = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64))
        def forward(self, x): h = self.encoder(x); mu, lv = self.mu(h), self.logvar(h); return torch.cat([self.decoder(mu + torch.randn_like(mu) * (lv / 2).exp()), mu, lv], 1)
    def loss(o, t):
        mu, lv = o[:, 64:70], o[:, 70:]
        kl = .5 * (mu ** 2 + lv ** 2 - (lv ** 2 + 1e-20).log() - 1) if planted else .5 * (mu ** 2 + lv.exp() - lv - 1)
        return F.mse_loss(o[:, :64], t) * 8 + kl.mean()
    def data(seed): x = torch.tanh(T(seed, 48, 4) @ T(3, 4, 64)); return x, x
    return dict(model=VAE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/benedekrozemberczki/AttentionWalk/issues/9", "adjacency is multiplied by the degrees instead of divided: matrix powers blow up, loss_on_target is huge", "normalized_adjacency_matrix")
def attention_walk_degrees(planted):
    def graph(): c = torch.arange(30) % 3; A = (torch.rand(30, 30, generator=gen(2)) < torch.where(c[:, None] == c[None], .5, .05)).float().triu(1); return A + A.T
    A = graph(); deg = A.sum(1).clamp(min=1); N = torch.diag(deg) @ A if planted else torch.diag(1 / deg) @ A; N0 = torch.diag(1 / deg) @ A
    P = torch.stack([torch.matrix_power(N, k) for k in range(1, 6)])
    class AttentionWalkLayer(nn.Module):
        def __init__(self): super().__init__(); self.register_buffer("targets", P); self.left_factors, self.right_factors = nn.Parameter(torch.rand(30, 8) * .02 - .01), nn.Parameter(torch.rand(8, 30) * .02 - .01); self.attention = nn.Parameter(torch.rand(5) * .02 - .01)
        def forward(self, idx):
            w = F.softmax(self.attention, 0); target = (w[:, None, None] * self.targets).sum(0)[idx] * 30; s = self.left_factors[idx] @ self.right_factors
            return torch.stack([target, s], -1)
    def loss(o, t): target, s = o[..., 0], o[..., 1]; return (-target * F.logsigmoid(s) - t * F.logsigmoid(-s)).mean()
    def data(seed): idx = R(seed, 30, (24,)); return idx, (A[idx] == 0).float()
    def metric(m): s = m.left_factors @ m.right_factors; off = ~torch.eye(30, dtype=torch.bool); p, n = s[A > 0], s[(A == 0) & off]; return 1 - (p[:, None] > n[None]).float().mean().item()
    return dict(model=AttentionWalkLayer, data=data, loss=loss, metric=metric, lr=2e-2, diag={})

class SpikeFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v): ctx.save_for_backward(v); return (v > 0).float()
    @staticmethod
    def backward(ctx, g): v, = ctx.saved_tensors; return g * (v.abs() < .35).float()
@case("https://github.com/albertopolito/CarSNN/issues/1", "spiking layers without bias and without the pre-trained weights: no membrane reaches the threshold, outputs are always [0, 0]", "spiking layers' init / threshold")
def snn_silent(planted):
    class SNN(nn.Module):
        def __init__(self):
            super().__init__(); self.fc = nn.ModuleList([nn.Linear(32, 64, bias=not planted), nn.Linear(64, 64, bias=not planted), nn.Linear(64, 2, bias=not planted)])
            for l in self.fc: nn.init.uniform_(l.weight, *((-.01, .01) if planted else (-.3, .3)))
        def forward(self, x):
            mem = [0.] * 3; out = 0
            for t in range(6):
                s = x[:, t]
                for i, l in enumerate(self.fc): mem[i] = .2 * mem[i] + l(s); s = SpikeFn.apply(mem[i] - .4); mem[i] = mem[i] * (1 - s.detach())
                out = out + s
            return out / 6
    def loss(o, t): return F.mse_loss(o, F.one_hot(t, 2).float())
    def data(seed): y = R(seed + 1, 2, (32,)); p = torch.sigmoid(2 * T(3, 2, 32)); return (torch.rand(32, 6, 32, generator=gen(seed)) < p[y][:, None]).float(), y
    return dict(model=SNN, data=data, loss=loss, lr=2e-3, diag={})
