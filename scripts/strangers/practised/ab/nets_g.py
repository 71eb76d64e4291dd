from base import *
P10 = T(5, 6, 1, 12, 12)
def images(seed, n=32, noise=1.0):
    t = R(seed + 77, 6, (n,)); return P10[t] + noise * T(seed, n, 1, 12, 12), t
def tab(seed, n=64, d=10, c=4):
    x = T(seed, n, d); return x, (x @ T(7, d, c)).argmax(1)

@case("https://github.com/FluxML/Flux.jl/issues/1029", "softmax in the hidden layers and a hard 0/1 threshold function as output activation under MSE", "output activation (fixer) / hidden softmax")
def flux_fixer(planted):
    def fixer(v): return (v > 0.75).float() + 0 * v
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.l1, s.l2, s.l3 = nn.Linear(3, 16), nn.Linear(16, 8), nn.Linear(8, 1)
        def forward(s, x):
            if planted: return fixer(s.l3(torch.softmax(s.l2(torch.softmax(s.l1(x), 1)), 1)))
            return torch.sigmoid(s.l3(torch.relu(s.l2(torch.relu(s.l1(x))))))
    def data(seed):
        x = T(seed, 64, 3); return x, (x[:, :1] + x[:, 1:2] * .7 - x[:, 2:] > 0).float()
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("https://exchangetuts.com/why-adding-one-more-layer-to-the-tensorflow-simple-neural-net-example-breaks-it-1641643924769364", "hidden layer and output layer both initialised with zeros", "fc1/fc2 weights (zero init)")
def tf_second_layer_zeros(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1, s.fc2 = nn.Linear(144, 100), nn.Linear(100, 6)
            for l in (s.fc1, s.fc2):
                nn.init.zeros_(l.bias)
                if planted: nn.init.zeros_(l.weight)
                else: nn.init.xavier_uniform_(l.weight)
        def forward(s, x): return s.fc2(torch.relu(s.fc1(x.flatten(1))))
    return dict(model=Net, data=images, loss=ce, lr=1e-3, diag={})

@case("https://github.com/open-jarvis/OpenJarvis/pull/521", "padding positions are not masked in the labels: most loss terms are 'predict the pad token'", "labels / loss over padding")
def sft_pad_labels(planted):
    V, L = 20, 24
    perm = torch.randperm(V - 1, generator=gen(3)) + 1
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.wte, s.wpe = nn.Embedding(V, 32), nn.Embedding(L, 32)
            s.h = nn.TransformerEncoderLayer(32, 4, 64, 0., batch_first=True, norm_first=True); s.ln_f, s.lm_head = nn.LayerNorm(32), nn.Linear(32, V)
        def forward(s, x):
            m = torch.triu(torch.ones(L, L, dtype=torch.bool), 1)
            return s.lm_head(s.ln_f(s.h(s.wte(x) + s.wpe(torch.arange(L)), src_mask=m)))
    def data(seed):
        x = R(seed, V - 1, (32, L)) + 1; ln = 3 + R(seed + 5, 3, (32, 1)); pad = torch.arange(L) >= ln
        t = perm[x - 1]; x = x.masked_fill(pad, 0)
        return x, t.masked_fill(pad, 0 if planted else -100)
    def loss(o, t): return F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-100)
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/jocicmarko/ultrasound-nerve-segmentation/issues/18", "softmax activation on an output with a single channel", "final softmax over the one channel")
def unet_softmax_one_channel(planted):
    def blk(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1, s.conv2, s.conv9, s.conv10 = blk(1, 8), blk(8, 16), blk(24, 8), nn.Conv2d(8, 1, 1)
        def forward(s, x):
            a = s.conv1(x); b = s.conv2(F.max_pool2d(a, 2)); y = s.conv10(s.conv9(torch.cat([F.interpolate(b, scale_factor=2), a], 1)))
            return torch.softmax(y, 1) if planted else torch.sigmoid(y)
    def data(seed):
        z = F.avg_pool2d(T(seed, 16, 1, 20, 20), 5, 1, 2) * 5; m = (z > .8).float(); return m + .4 * T(seed + 1, 16, 1, 20, 20), m
    def loss(p, t): return F.binary_cross_entropy(p, t)
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/Lightning-AI/pytorch-lightning/issues/20344", "nn.Softmax at the end of the model combined with nn.CrossEntropyLoss", "output Softmax before CrossEntropyLoss")
def pl_softmax_ce(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
            s.fc = nn.Sequential(nn.Linear(200, 32), nn.ReLU(), nn.Linear(32, 6)); s.softmax = nn.Softmax(1)
        def forward(s, x):
            y = s.fc(s.features(x)); return s.softmax(y) if planted else y
    return dict(model=Net, data=images, loss=ce, lr=1e-3, diag={})

@case("https://github.com/simoninithomas/Deep_reinforcement_learning_Course/issues/51", "reduce_sum of output*actions without an axis: Q is one scalar for the whole batch", "loss: Q = sum(output * actions_)")
def dqn_reduce_sum(planted):
    W = T(9, 8, 4)
    class DQNetwork(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1, s.fc2, s.output = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 4)
        def forward(s, x): return s.output(F.elu(s.fc2(F.elu(s.fc1(x)))))
    def data(seed):
        x = T(seed, 32, 8); a = F.one_hot(R(seed + 1, 4, (32,)), 4).float(); return x, (a, (torch.tanh(x @ W) * a).sum(1))
    def loss(o, t):
        a, target = t; Q = (o * a).sum() if planted else (o * a).sum(1)
        return ((target - Q) ** 2).mean()
    def metric(m):
        with torch.no_grad(): return sum(float((((m(x) * a).sum(1) - q) ** 2).mean()) for x, (a, q) in map(data, range(9000, 9005))) / 5
    return dict(model=DQNetwork, data=data, loss=loss, metric=metric, lr=2e-3, diag={})

@case("https://github.com/tensorflow/models/pull/2878", "[cell] * num_layers: the same LSTM cell object is used for both layers", "cells (shared weights)")
def ptb_shared_cells(planted):
    V, L = 12, 16
    Q = T(4, V, V, k=2.5)
    class PTBModel(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, 32)
            s.cells = nn.ModuleList([nn.LSTMCell(32, 32)] * 2 if planted else [nn.LSTMCell(32, 32) for _ in range(2)]); s.softmax_w = nn.Linear(32, V)
        def forward(s, x):
            h = [(torch.zeros(len(x), 32), torch.zeros(len(x), 32)) for _ in s.cells]; out = []
            for t in range(L):
                y = s.embedding(x[:, t])
                for i, c in enumerate(s.cells): h[i] = c(y, h[i]); y = h[i][0]
                out.append(s.softmax_w(y))
            return torch.stack(out, 1)
    def data(seed):
        g = gen(seed); x = [torch.randint(0, V, (32,), generator=g)]
        for _ in range(L): x.append(torch.multinomial(Q[x[-1]].softmax(1), 1, generator=g)[:, 0])
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=PTBModel, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/galsang/BiDAF-pytorch/issues/17", "x.view() instead of a transpose brings char_dim before word_len", "char_emb_layer view")
def bidaf_char_view(planted):
    V, W, S = 15, 8, 4
    class CharCNN(nn.Module):
        def __init__(s):
            super().__init__(); s.char_emb = nn.Embedding(V, 8); s.char_conv = nn.Conv1d(8, 32, 3); s.out = nn.Linear(32, 5)
        def forward(s, x):
            b = x.size(0); x = s.char_emb(x)
            x = x.view(b * S, 8, W) if planted else x.view(b * S, W, 8).transpose(1, 2)
            x = torch.relu(s.char_conv(x)).amax(2); return s.out(x).view(b, S, 5)
    def data(seed):
        x = R(seed, V - 5, (16, S, W)) + 5; t = R(seed + 1, 5, (16, S)); p = R(seed + 2, W - 1, (16, S, 1))
        x.scatter_(2, p, t[..., None]); x.scatter_(2, p + 1, (t[..., None] + 2) % 5); return x, t
    return dict(model=CharCNN, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/speechbrain/speechbrain/issues/926", "NormalizedEmbedding multiplies by sqrt(dim) although nn.Embedding is initialised with std 1", "embedding (std 1 times sqrt(d))")
def normalized_embedding(planted):
    V, L, d = 16, 12, 64
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, d)
            if not planted: nn.init.normal_(s.emb.weight, std=d ** -.5)
            pos = torch.arange(L)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
            s.register_buffer("pe", torch.stack([pos.sin(), pos.cos()], 2).flatten(1))
            s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 128, 0., batch_first=True, norm_first=True), 2, enable_nested_tensor=False); s.out = nn.Linear(d, V)
        def forward(s, x): return s.out(s.enc(s.emb(x) * math.sqrt(d) + s.pe))
    def data(seed):
        x = R(seed, V, (32, L)); return x, x.roll(1, 1)
    return dict(model=Net, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/tensorflow/tensor2tensor/issues/1718", "embeddings initialised with std d^-0.5 are not multiplied by sqrt(d) before the positional encoding is added", "embedding scale")
def t2t_no_emb_scale(planted):
    V, L, d = 40, 12, 64
    perm = torch.randperm(V, generator=gen(3))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, d); nn.init.normal_(s.emb.weight, std=d ** -.5)
            pos = torch.arange(L)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
            s.register_buffer("pe", torch.stack([pos.sin(), pos.cos()], 2).flatten(1))
            s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 128, 0., batch_first=True), 2); s.out = nn.Linear(d, V)
        def forward(s, x): return s.out(s.enc(s.emb(x) * (1 if planted else math.sqrt(d)) + s.pe))
    def data(seed):
        x = R(seed, V, (32, L)); return x, perm[x]
    return dict(model=Net, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/facebookresearch/detr/issues/96", "the padding mask is True for all pixels of every image, so the encoder ignores everything", "mask / src_key_padding_mask")
def detr_mask_true(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.backbone = nn.Conv2d(1, 32, 3, 3); s.pos = nn.Parameter(torch.randn(16, 32) * .1)
            s.self_attn = nn.MultiheadAttention(32, 4, batch_first=True); s.norm = nn.LayerNorm(32); s.class_embed = nn.Linear(32, 6)
        def forward(s, x, mask):
            src = s.backbone(x).flatten(2).transpose(1, 2); q = src + s.pos
            src = s.norm(src + s.self_attn(q, q, src, key_padding_mask=mask)[0]); return s.class_embed(src.mean(1))
    def data(seed):
        x, t = images(seed); m = torch.zeros(len(x), 16, dtype=torch.bool)
        return (x, ~m if planted else m), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/DLR-RM/stable-baselines3/issues/563", "observations of a custom env are fed without normalisation (prices, volumes in the thousands)", "input observations")
def sb3_raw_obs(planted):
    mu, sd = torch.tensor([5000., 120., 0.5, 30000., 2., 900.]), torch.tensor([800., 40., .2, 9000., 1., 300.]); W = T(2, 6, 3)
    class MlpPolicy(nn.Module):
        def __init__(s):
            super().__init__(); s.policy_net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()); s.action_net = nn.Linear(32, 3)
        def forward(s, obs): return s.action_net(s.policy_net(obs))
    def data(seed):
        z = T(seed, 64, 6); return (z * sd + mu if planted else z), (z @ W).argmax(1)
    r = dict(model=MlpPolicy, data=data, loss=ce, lr=3e-3, diag={})
    if not planted:
        def metric(m):
            tot = 0
            with torch.no_grad():
                for k in range(5):
                    z, t = data(9000 + k); tot += min(float(ce(m(z), t)), float(ce(m(z * sd + mu), t))) / 5
            return tot
        r["metric"] = metric
    return r

@case("https://github.com/keras-team/keras/issues/6914", "MNIST pixels are not divided by 255", "input scale (0..255)")
def mnist_not_scaled(planted):
    Pm = (T(5, 6, 144) > .5).float()
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.d1, s.d2, s.d3 = nn.Linear(144, 128), nn.Linear(128, 128), nn.Linear(128, 6)
            for l in (s.d1, s.d2, s.d3): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def forward(s, x): return s.d3(F.dropout(torch.relu(s.d2(F.dropout(torch.relu(s.d1(x)), .2, s.training))), .2, s.training))
    def raw(seed):
        t = R(seed + 1, 6, (64,)); x = ((Pm[t] + 1.5 * T(seed, 64, 144)).clamp(0, 1) * 255).round(); return x, t
    def data(seed):
        x, t = raw(seed); return (x if planted else x / 255), t
    r = dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})
    if not planted:
        def metric(m):
            with torch.no_grad(): return sum(min(float(ce(m(x), t)), float(ce(m(x / 255), t))) for x, t in map(raw, range(9000, 9005))) / 5
        r["metric"] = metric
    return r
