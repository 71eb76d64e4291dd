from base import *

@case("https://github.com/podgorskiy/ALAE/issues/44", "mapping MLP has no activations between its linear layers", "MappingToLatent: layers 1-3 are a stack of linears")
def alae_mapping_no_act(planted):
    class MappingToLatent(nn.Module):
        def __init__(s, latent=4, dlatent=64, inp=8, layers=3):
            super().__init__()
            dims = [inp] + [dlatent] * (layers - 1) + [latent]
            s.blocks = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:])])
        def forward(s, x):
            for i, b in enumerate(s.blocks):
                x = b(x)
                if not planted and i < len(s.blocks) - 1: x = F.leaky_relu(x, 0.2)
            return x
    def data(seed):
        x = T(seed, 64, 8)
        return x, torch.stack([x[:, 0] * x[:, 1], x[:, 2].pow(2) - 1, x[:, 3].abs() * 2 - 1.6, x[:, 4] * x[:, 5].sign()], 1)
    return dict(model=MappingToLatent, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/qianguih/voxelnet/issues/3", "probability map convolution keeps its BN + ReLU before the sigmoid", "p_map_conv (BN and ReLU on the logits)")
def voxelnet_relu_pmap(planted):
    class ConvMD(nn.Module):
        def __init__(s, i, o, k, activation=True, bn=True):
            super().__init__(); s.conv = nn.Conv2d(i, o, k, padding=k // 2); s.bn = nn.BatchNorm2d(o) if bn else None; s.activation = activation
        def forward(s, x):
            x = s.conv(x)
            if s.bn is not None: x = s.bn(x)
            return F.relu(x) if s.activation else x
    class RPN(nn.Module):
        def __init__(s):
            super().__init__(); s.block1 = ConvMD(4, 24, 3); s.block2 = ConvMD(24, 24, 3); s.block3 = ConvMD(24, 24, 3)
            s.p_map_conv = ConvMD(24, 2, 1, activation=planted, bn=planted)
        def forward(s, x): return torch.sigmoid(s.p_map_conv(s.block3(s.block2(s.block1(x)))))
    w = T(5, 2, 4, 3, 3)
    def data(seed):
        x = T(seed, 16, 4, 14, 14); z = F.conv2d(x, w, padding=1)
        return x, (z > 8).float()
    return dict(model=RPN, data=data, loss=lambda o, t: F.binary_cross_entropy(o.clamp(1e-6, 1 - 1e-6), t), lr=3e-3, diag={})

@case("https://github.com/NVlabs/GA3C/issues/17", "dense layer of the policy logits goes through its default ReLU before the softmax", "logits_p dense layer (ReLU)")
def ga3c_relu_logits(planted):
    class NetworkVP(nn.Module):
        def __init__(s, actions=6):
            super().__init__(); s.n1 = nn.Conv2d(4, 16, 8, 4); s.n2 = nn.Conv2d(16, 32, 4, 2); s.d1 = nn.Linear(32 * 9, 128); s.logits_p = nn.Linear(128, actions)
            for m in s.modules():
                if isinstance(m, (nn.Linear, nn.Conv2d)):
                    d = 1 / math.sqrt(m.weight[0].numel()); nn.init.uniform_(m.weight, -d, d); nn.init.uniform_(m.bias, -d, d)
        def forward(s, x):
            x = F.relu(s.n2(F.relu(s.n1(x)))).flatten(1); x = s.logits_p(F.relu(s.d1(x)))
            return F.relu(x) if planted else x
    pats = torch.rand(6, 4, 42, 42, generator=gen(3))
    def data(seed):
        t = R(seed, 6, (32,)); return 0.5 * pats[t] + 0.5 * torch.rand(32, 4, 42, 42, generator=gen(seed + 1)), t
    return dict(model=NetworkVP, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/davidmascharka/MyNN/pull/70", "dense layers' weights start as constants", "dense1.weight / dense2.weight (all equal)")
def mynn_constant_init(planted):
    class Dense(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.weight = nn.Parameter(torch.full((i, o), 0.1) if planted else torch.randn(i, o) * math.sqrt(2 / i)); s.bias = nn.Parameter(torch.zeros(1, o))
        def forward(s, x): return x @ s.weight + s.bias
    class Model(nn.Module):
        def __init__(s):
            super().__init__(); s.dense1 = Dense(20, 64); s.dense2 = Dense(64, 64); s.dense3 = Dense(64, 5)
        def forward(s, x): return s.dense3(F.relu(s.dense2(F.relu(s.dense1(x)))))
    c = T(2, 5, 20)
    def data(seed):
        t = R(seed, 5, (48,)); return c[t] + 0.7 * T(seed + 1, 48, 20), t
    return dict(model=Model, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/rasbt/python-machine-learning-book-2nd-edition/issues/68", "pixels fed as 0..255 instead of -1..1", "input scale (pixels 0..255 into the tanh layers)")
def rasbt_raw_pixels(planted):
    class MLP(nn.Module):
        def __init__(s):
            super().__init__(); s.raw = planted; s.fc1 = nn.Linear(784, 50); s.fc2 = nn.Linear(50, 50); s.out = nn.Linear(50, 10)
            for m in (s.fc1, s.fc2, s.out): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x): return s.out(torch.tanh(s.fc2(torch.tanh(s.fc1(x)))))
    common = (torch.rand(1, 784, generator=gen(4)) > 0.8).float(); tmpl = torch.where(torch.rand(10, 784, generator=gen(5)) < 0.06, 1 - common, common) * 255
    def batch(seed, raw):
        t = R(seed, 10, (64,)); x = (tmpl[t] * torch.rand(64, 784, generator=gen(seed + 1)) + 60 * torch.rand(64, 784, generator=gen(seed + 2)) * (torch.rand(64, 784, generator=gen(seed + 3)) > 0.7)).clamp(0, 255)
        return (x if raw else (x / 255 - 0.5) * 2), t
    def metric(m):
        with torch.no_grad(): return sum(float(ce(m(batch(9000 + k, m.raw)[0]), batch(9000 + k, m.raw)[1])) for k in range(5)) / 5
    return dict(model=MLP, data=lambda seed: batch(seed, planted), loss=ce, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/naoto0804/chainer-cyclegan/pull/2", "last convolution of the generator is normalised before its tanh", "norm in front of the final tanh")
def cyclegan_norm_before_tanh(planted):
    class CBR(nn.Module):
        def __init__(s, i, o, k=3, norm=True, act=F.relu):
            super().__init__(); s.c = nn.Conv2d(i, o, k, padding=k // 2); s.norm = nn.InstanceNorm2d(o, affine=True) if norm else None; s.act = act
        def forward(s, x):
            x = s.c(x); x = s.norm(x) if s.norm is not None else x
            return s.act(x)
    class Generator(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = CBR(3, 32, 7, norm=False); s.c2 = CBR(32, 32, norm=False); s.c3 = CBR(32, 32, norm=False); s.c4 = CBR(32, 3, 7, norm=planted, act=torch.tanh)
        def forward(s, x): return s.c4(s.c3(s.c2(s.c1(x))))
    mix = T(6, 3, 3, k=0.6)
    def data(seed):
        col = torch.rand(16, 3, 1, 1, generator=gen(seed)) * 1.8 - 0.9; x = (col + 0.1 * T(seed + 1, 16, 3, 16, 16)).clamp(-1, 1)
        return x, torch.tanh(torch.einsum("ij,bjhw->bihw", mix, x))
    return dict(model=Generator, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=2e-3, diag={})

@case("https://github.com/hunkim/DeepLearningZeroToAll/issues/204", "keep probability 0.7 passed as the drop rate", "dropout1..4 (rate 0.7)")
def hunkim_dropout_rate(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); r = 0.7 if planted else 0.3
            s.conv1 = nn.Conv2d(1, 16, 3, padding=1); s.conv2 = nn.Conv2d(16, 32, 3, padding=1); s.conv3 = nn.Conv2d(32, 32, 3, padding=1)
            s.dropout1, s.dropout2, s.dropout3, s.dropout4 = (nn.Dropout(r) for _ in range(4)); s.dense4 = nn.Linear(128, 64); s.logits = nn.Linear(64, 10)
        def forward(s, x):
            x = s.dropout1(F.max_pool2d(F.relu(s.conv1(x)), 2)); x = s.dropout2(F.max_pool2d(F.relu(s.conv2(x)), 2)); x = s.dropout3(F.max_pool2d(F.relu(s.conv3(x)), 2))
            return s.logits(s.dropout4(F.relu(s.dense4(x.flatten(1)))))
    tm = T(8, 10, 1, 16, 16)
    def data(seed):
        t = R(seed, 10, (48,)); return tm[t] + 0.7 * T(seed + 1, 48, 1, 16, 16), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/nyk510/bayesian-neural-network/issues/10", "all weights drawn with standard deviation 1 whatever the fan-in", "linears' init (std 1 instead of sqrt(2/fan_in))")
def bnn_unscaled_init(planted):
    class Regressor(nn.Module):
        def __init__(s, n_hidden=256, length_scale=1.0):
            super().__init__(); s.l1 = nn.Linear(4, n_hidden); s.l2 = nn.Linear(n_hidden, n_hidden); s.l3 = nn.Linear(n_hidden, n_hidden); s.l4 = nn.Linear(n_hidden, 1)
            for l in (s.l1, s.l2, s.l3, s.l4):
                nn.init.normal_(l.weight, 0, math.sqrt(1 / length_scale) if planted else math.sqrt(1 / l.in_features)); nn.init.zeros_(l.bias)
            s.drop = nn.Dropout(0.02)
        def forward(s, x): return s.l4(s.drop(torch.relu(s.l3(s.drop(torch.relu(s.l2(s.drop(torch.relu(s.l1(x))))))))))
    def data(seed):
        x = T(seed, 48, 4); return x, (torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3])
    return dict(model=Regressor, data=data, loss=mse, lr=1e-3, diag={})
