from base import *

@case("https://stackoverflow.com/questions/44164749/how-does-keras-handle-multilabel-classification", "softmax + categorical cross-entropy on multi-hot labels", "loss (softmax/categorical_crossentropy)")
def multilabel_softmax(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(20, 96); s.d1 = nn.Dropout(.1); s.fc2 = nn.Linear(96, 48); s.d2 = nn.Dropout(.1); s.out = nn.Linear(48, 8)
        def forward(s, x): return s.out(s.d2(F.relu(s.fc2(s.d1(F.relu(s.fc1(x)))))))
    W = T(17, 20, 8)
    def data(seed):
        x = T(seed, 64, 20); return x, (x @ W > 2).float()
    return dict(model=Net, data=data, loss=(lambda o, t: -(t * F.log_softmax(o, 1)).sum(1).mean()) if planted else (lambda o, t: F.binary_cross_entropy_with_logits(o, t)), lr=3e-3, diag={})

@case("https://github.com/pytorch/pytorch/issues/45687", "instance norm on a 1x1 feature map: its output is silently zero", "norm (InstanceNorm2d after pooling)")
def inorm_1x1(planted):
    class InstanceNorm2d(nn.Module):
        def __init__(s, c): super().__init__(); s.weight = nn.Parameter(torch.ones(c, 1, 1)); s.bias = nn.Parameter(torch.zeros(c, 1, 1))
        def forward(s, x):
            v, m = torch.var_mean(x, (2, 3), unbiased=False, keepdim=True); return (x - m) / (v + 1e-5).sqrt() * s.weight + s.bias
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Conv2d(1, 12, 3, padding=1); s.in1 = InstanceNorm2d(12); s.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
            s.squeeze = nn.Conv2d(24, 24, 4); s.norm = InstanceNorm2d(24) if planted else nn.BatchNorm2d(24); s.classifier = nn.Conv2d(24, 5, 1)
        def forward(s, x):
            x = F.relu(s.conv2(F.relu(s.in1(s.conv1(x))))); return s.classifier(F.relu(s.norm(s.squeeze(x)))).flatten(1)
    P = T(18, 5, 1, 8, 8)
    def data(seed):
        y = R(seed, 5, (32,)); return P[y] + T(seed + 1, 32, 1, 8, 8), y
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://community.deeplearning.ai/t/why-dont-weights-get-adjusted-when-initialized-to-0/431799", "all weights initialised to zero", "weights of all layers (zeros)")
def zero_init_relu(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.l1 = nn.Linear(2, 10); s.l2 = nn.Linear(10, 5); s.l3 = nn.Linear(5, 1)
            for l in (s.l1, s.l2, s.l3):
                nn.init.zeros_(l.bias); nn.init.zeros_(l.weight) if planted else nn.init.kaiming_normal_(l.weight)
        def forward(s, x): return s.l3(F.relu(s.l2(F.relu(s.l1(x))))).squeeze(1)
    def data(seed):
        y = R(seed, 2, (64,)).float(); a = torch.rand(64, generator=gen(seed + 1)) * 6.28; r = 1 - .6 * y
        return torch.stack([a.cos() * r, a.sin() * r], 1) * 1.5 + T(seed + 2, 64, 2, k=.08), y
    return dict(model=Net, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=2e-2, diag={})

@case("http://3.13.36.195:9999/f/deeplearning/39183/-/comment/734688", "every weight initialised to the same constant, only the biases random", "weights (constant init)")
def const_init_plateau(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(16, 32); s.fc2 = nn.Linear(32, 32); s.fc3 = nn.Linear(32, 6)
            if planted:
                for l in (s.fc1, s.fc2, s.fc3): nn.init.constant_(l.weight, .05)
        def forward(s, x): return s.fc3(F.relu(s.fc2(F.relu(s.fc1(x)))))
    C = T(19, 6, 16)
    def data(seed):
        y = R(seed, 6, (48,)); return C[y] + T(seed + 1, 48, 16), y
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://community.deeplearning.ai/t/output-normalisation-in-multi-output-regression-nn/243077", "outputs of very different ranges not normalised: the biggest rules the loss", "targets (scales 300 : 1 : 0.01)")
def multiout_scale(planted):
    sc = torch.tensor([300., 1., .01])
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(8, 48); s.fc2 = nn.Linear(48, 48); s.out = nn.Linear(48, 3)
        def forward(s, x): return s.out(F.relu(s.fc2(F.relu(s.fc1(x)))))
    W = T(20, 8, 3, k=.5)
    def raw(seed): x = T(seed, 64, 8); return x, torch.sin(x @ W)
    def data(seed):
        x, y = raw(seed); return x, y * sc if planted else y
    def metric(m):
        x, y = raw(9000)
        with torch.no_grad(): o = m(x)
        return float(((o / sc if raw_scale(m) else o) - y).pow(2).mean())
    def raw_scale(m):
        with torch.no_grad(): o = m(raw(9001)[0])
        return bool(o[:, 0].abs().mean() > 10)
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={}, metric=metric)

@case("https://github.com/vsitzmann/siren/issues/4", "first SIREN layer initialised as in the paper, sqrt(6/fan_in): too large at omega_0 = 30", "net.0.linear (init of the first layer)")
def siren_first_layer(planted):
    class SineLayer(nn.Module):
        def __init__(s, i, o, first=False):
            super().__init__(); s.linear = nn.Linear(i, o); b = (6 / i) ** .5 / 30
            if first: b = (6 / i) ** .5 if planted else 1 / i
            nn.init.uniform_(s.linear.weight, -b, b)
        def forward(s, x): return torch.sin(30 * s.linear(x))
    class Siren(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(SineLayer(2, 64, True), SineLayer(64, 64), SineLayer(64, 64)); s.final = nn.Linear(64, 1)
            nn.init.uniform_(s.final.weight, -(6 / 64) ** .5 / 30, (6 / 64) ** .5 / 30)
        def forward(s, x): return s.final(s.net(x))
    def data(seed):
        x = torch.rand(256, 2, generator=gen(seed)) * 2 - 1
        return x, torch.sin(6 * x[:, :1] + 2 * x[:, 1:]) * .5 + .5 * torch.cos(7 * x[:, 1:] - 3 * x[:, :1])
    return dict(model=Siren, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/DaoyuanLi2816/Molecule-Generator/pull/23", "token embeddings fed to the transformer encoder without positional encoding", "encode: no positional encoding")
def molvae_no_pe(planted):
    L, V, D = 6, 6, 48
    class TransformerVAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.embedding = nn.Embedding(V, D); pos = torch.arange(L)[:, None]; f = torch.exp(torch.arange(0, D, 2) * -(math.log(1e4) / D))
            s.register_buffer("pe", torch.stack([torch.sin(pos * f), torch.cos(pos * f)], -1).flatten(1))
            s.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 96, 0., batch_first=True), 2)
            s.fc_mu = nn.Linear(D, 24); s.fc_logvar = nn.Linear(D, 24); s.dec1 = nn.Linear(24, 96); s.dec2 = nn.Linear(96, L * V)
        def forward(s, x):
            e = s.embedding(x); e = e if planted else e + s.pe
            h = s.encoder(e).mean(1); mu, lv = s.fc_mu(h), s.fc_logvar(h) - 3
            return s.dec2(F.relu(s.dec1(mu + torch.exp(.5 * lv) * torch.randn_like(mu)))).view(-1, L, V)
    def data(seed):
        a, b = R(seed, V, (48, 1)), R(seed + 1, V, (48, 1)); x = torch.where(torch.arange(L) < 3, a, b); return x, x
    return dict(model=TransformerVAE, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/qubvel-org/segmentation_models.pytorch/issues/1263", "FocalLoss applies softmax to outputs that are already probabilities (activation='softmax')", "activation softmax + FocalLoss")
def smp_focal_probs(planted):
    class Seg(nn.Module):
        def __init__(s):
            super().__init__()
            s.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            s.segmentation_head = nn.Conv2d(16, 5, 3, padding=1)
        def forward(s, x):
            x = s.segmentation_head(s.encoder(x)); return torch.softmax(x, 1) if planted else x
    def data(seed):
        y = F.interpolate(R(seed, 5, (8, 1, 3, 3)).float(), scale_factor=4).long()[:, 0]; return (y.float() - 2)[:, None] + T(seed + 1, 8, 1, 12, 12, k=.5), y
    def focal(o, t):
        lp = F.cross_entropy(o, t, reduction="none"); return ((1 - torch.exp(-lp)) ** 2 * lp).mean()
    return dict(model=Seg, data=data, loss=focal, lr=1e-2, diag={})

@case("https://github.com/keras-team/keras-io/pull/2304", "messages summed without degree normalisation and without self-loops", "GraphConvLayer aggregation (sum)")
def gnn_sum_no_degree(planted):
    N = 64
    class GraphConvLayer(nn.Module):
        def __init__(s, i, o): super().__init__(); s.ffn_prepare = nn.Linear(i, o); s.update_fn = nn.Linear(o, o)
        def forward(s, x, A):
            if not planted: A = A + torch.eye(N); A = A / A.sum(1, keepdim=True)
            return F.gelu(s.update_fn(A @ F.gelu(s.ffn_prepare(x))))
    class GNN(nn.Module):
        def __init__(s):
            super().__init__(); s.preprocess = nn.Linear(12, 24); s.conv1, s.conv2, s.conv3 = GraphConvLayer(24, 24), GraphConvLayer(24, 24), GraphConvLayer(24, 24); s.compute_logits = nn.Linear(24, 4)
        def forward(s, x, A):
            x = F.gelu(s.preprocess(x)); return s.compute_logits(s.conv3(s.conv2(s.conv1(x, A), A), A))
    C = T(22, 4, 12)
    def data(seed):
        y = R(seed, 4, (N,)); hub = torch.rand(N, generator=gen(seed + 1)) ** 2
        p = torch.where(y[:, None] == y, .9, .05) * (.2 + hub[:, None]).clamp(max=1) ; A = (torch.rand(N, N, generator=gen(seed + 2)) < p).float()
        return (C[y] + T(seed + 3, N, 12, k=1.5), A), y
    return dict(model=GNN, data=data, loss=ce, lr=2e-3, diag={})

@case("https://library.kiwix.org/datascience.stackexchange.com_en_all_2021-04/A/question/10703.html", "sigmoid output unit for targets far outside (0, 1)", "output activation (sigmoid)")
def poly_sigmoid_out(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.theta1 = nn.Linear(1, 25); s.theta2 = nn.Linear(25, 25); s.theta3 = nn.Linear(25, 1)
        def forward(s, x):
            h = s.theta3(torch.tanh(s.theta2(torch.tanh(s.theta1(x))))); return torch.sigmoid(h) if planted else h
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)) * 5 - 2.5; return x, x ** 2
    return dict(model=Net, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/titu1994/Inception-v4/issues/5", "Dropout(0.8) where 80 % of the units should be kept", "dropout before the classifier")
def inception_dropout(planted):
    class Mixed(nn.Module):
        def __init__(s, i):
            super().__init__(); s.b1 = nn.Conv2d(i, 8, 1); s.b3 = nn.Conv2d(i, 8, 3, padding=1); s.bn = nn.BatchNorm2d(16)
        def forward(s, x): return F.relu(s.bn(torch.cat([s.b1(x), s.b3(x)], 1)))
    class InceptionV4(nn.Module):
        def __init__(s):
            super().__init__(); s.m1, s.m2 = Mixed(1), Mixed(16); s.dropout = nn.Dropout(.8 if planted else .2); s.fc = nn.Linear(64, 5)
        def forward(s, x): return s.fc(s.dropout(F.max_pool2d(s.m2(F.max_pool2d(s.m1(x), 2)), 2).flatten(1)))
    P = T(23, 5, 1, 8, 8)
    def data(seed):
        y = R(seed, 5, (32,)); return P[y] * .6 + T(seed + 1, 32, 1, 8, 8), y
    return dict(model=InceptionV4, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/AntixK/PyTorch-VAE/issues/56", "KL term weighted 1 against a mean-squared error averaged over the pixels", "kld_weight in the loss")
def antixk_kld1(planted):
    class VanillaVAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.encoder = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.LeakyReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.LeakyReLU())
            s.fc_mu, s.fc_var, s.decoder_input = nn.Linear(96, 8), nn.Linear(96, 8), nn.Linear(8, 96)
            s.decoder = nn.Sequential(nn.ConvTranspose2d(24, 12, 4, 2, 1), nn.BatchNorm2d(12), nn.LeakyReLU(), nn.ConvTranspose2d(12, 12, 4, 2, 1), nn.BatchNorm2d(12), nn.LeakyReLU(), nn.Conv2d(12, 1, 3, padding=1), nn.Tanh())
        def forward(s, x):
            h = s.encoder(x).flatten(1); mu, lv = s.fc_mu(h), s.fc_var(h); z = mu + torch.exp(.5 * lv) * torch.randn_like(mu)
            return s.decoder(s.decoder_input(z).view(-1, 24, 2, 2)), mu, lv
    B = T(24, 3, 8, 8)
    def data(seed):
        x = torch.tanh(torch.einsum("bk,khw->bhw", T(seed, 32, 3), B))[:, None]; return x, x
    def loss(o, t):
        kld = (-.5 * (1 + o[2] - o[1] ** 2 - o[2].exp()).sum(1)).mean(); return F.mse_loss(o[0], t) + (1. if planted else .00025) * kld
    def metric(m):
        with torch.no_grad(): return float(sum(F.mse_loss(m(data(k)[0])[0], data(k)[0]) for k in range(9000, 9003)))
    return dict(model=VanillaVAE, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)
