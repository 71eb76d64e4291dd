from base import *
import copy

@case("https://github.com/hwalsuklee/tensorflow-mnist-VAE/issues/4", "marginal likelihood by hand with log of a clipped sigmoid (1-1e-8 is 1 in float32): log(0)", "loss (log(1 - y))")
def mnist_vae_log0(planted):
    def strokes(seed, n=64, s=14):
        g = gen(seed); c = torch.rand(n, 2, 1, 1, generator=g) * 5 + 4.5; yy, xx = torch.meshgrid(torch.arange(s * 1.), torch.arange(s * 1.), indexing="ij")
        return (((yy - c[:, 0]).abs() < 3) | ((xx - c[:, 1]).abs() < 3)).float().flatten(1)
    class VAE(nn.Module):
        def __init__(self, d=196, n_hidden=500, dim_z=8):
            super().__init__(); self.encoder = nn.Sequential(nn.Linear(d, n_hidden), nn.ELU(), nn.Linear(n_hidden, n_hidden), nn.Tanh(), nn.Linear(n_hidden, 2 * dim_z))
            self.decoder = nn.Sequential(nn.Linear(dim_z, n_hidden), nn.Tanh(), nn.Linear(n_hidden, n_hidden), nn.ELU(), nn.Linear(n_hidden, d))
        def forward(self, x):
            mu, s = self.encoder(x).chunk(2, 1); sigma = 1e-6 + F.softplus(s); return self.decoder(mu + sigma * torch.randn_like(mu)), mu, sigma
    def data(seed): x = strokes(seed); return x, x
    def loss(o, x):
        logits, mu, sigma = o
        kl = .5 * (mu ** 2 + sigma ** 2 - torch.log(1e-8 + sigma ** 2) - 1).sum(1).mean()
        if planted:
            y = torch.sigmoid(logits).clamp(1e-8, 1 - 1e-8); ml = (x * torch.log(y) + (1 - x) * torch.log(1 - y)).sum(1).mean()
        else: ml = -F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
        return kl - ml
    return dict(model=VAE, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/i008/pytorch-deepfashion/issues/1", "conv5_pose and conv5_global are the same module", "conv5_pose / conv5_global")
def deepfashion_shared_conv5(planted):
    class FashionNet(nn.Module):
        def __init__(self):
            super().__init__(); self.vgg = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            conv5 = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
            self.conv5_pose = conv5; self.conv5_global = conv5 if planted else copy.deepcopy(conv5)
            self.fc_pose = nn.Linear(32 * 16, 2); self.fc_global = nn.Sequential(nn.Linear(32 * 16, 64), nn.ReLU()); self.fc_category = nn.Linear(64, 4)
        def forward(self, x):
            b = self.vgg(x); pose = self.conv5_pose(b).flatten(1); glob = self.conv5_global(b).flatten(1); return self.fc_category(self.fc_global(glob)), self.fc_pose(pose)
    pat = T(3, 4, 5, 5)
    def data(seed):
        y = R(seed, 4, (32,)); p = R(seed + 5000, 12, (32, 2)); x = .2 * T(seed + 9000, 32, 1, 16, 16)
        for i in range(32): x[i, 0, p[i, 0]:p[i, 0] + 5, p[i, 1]:p[i, 1] + 5] += pat[y[i]]
        return x, (y, p.float() / 6 - 1)
    def loss(o, t): return F.cross_entropy(o[0], t[0]) + F.mse_loss(o[1], t[1])
    return dict(model=FashionNet, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/edreisMD/ConVIRT-pytorch/issues/7", "text encoder and its projection head wrapped in torch.no_grad()", "text_encoder (no_grad)")
def convirt_text_no_grad(planted):
    V = 24
    class ModelCLR(nn.Module):
        def __init__(self, out_dim=32):
            super().__init__(); self.text_emb = nn.Embedding(V, 32); self.text_rnn = nn.GRU(32, 32, batch_first=True); self.bert_l1 = nn.Linear(32, 32); self.bert_l2 = nn.Linear(32, out_dim)
            self.res_features = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()); self.res_l1 = nn.Linear(32 * 9, 64); self.res_l2 = nn.Linear(64, out_dim)
        def text_encoder(self, t): return self.bert_l2(F.relu(self.bert_l1(self.text_rnn(self.text_emb(t))[0].mean(1))))
        def forward(self, xis, encoded_inputs):
            zis = self.res_l2(F.relu(self.res_l1(self.res_features(xis))))
            if planted:
                with torch.no_grad(): zls = self.text_encoder(encoded_inputs)
            else: zls = self.text_encoder(encoded_inputs)
            return F.normalize(zis, dim=-1) @ F.normalize(zls, dim=-1).t() / .1
    pat = T(13, V, 12, 12)
    def data(seed):
        t = R(seed, V, (32, 3)); return (pat[t].sum(1, keepdim=True) * .6 + .3 * T(seed + 1, 32, 1, 12, 12), t), torch.arange(32)
    def loss(o, t): return .75 * F.cross_entropy(o, t) + .25 * F.cross_entropy(o.t(), t)
    return dict(model=ModelCLR, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/fastai/fastai/pull/882", "average and max pooling of the RNN output include the padding", "PoolingLinearClassifier.pool")
def fastai_pool_padding(planted):
    V, L = 50, 24
    class PoolingLinearClassifier(nn.Module):
        def __init__(self, nf): super().__init__(); self.layers = nn.Sequential(nn.BatchNorm1d(3 * nf), nn.Linear(3 * nf, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 2))
        def forward(self, o, lengths):
            if planted: return self.layers(torch.cat([o[:, -1], o.max(1)[0], o.mean(1)], 1))
            m = (torch.arange(o.shape[1])[None] < lengths[:, None])[..., None]
            last = o[torch.arange(len(o)), lengths - 1]
            return self.layers(torch.cat([last, o.masked_fill(~m, -1e4).max(1)[0], (o * m).sum(1) / lengths[:, None]], 1))
    class TextClassifier(nn.Module):
        def __init__(self, h=40): super().__init__(); self.encoder = nn.Embedding(V, 32, padding_idx=0); self.rnn = nn.LSTM(32, h, batch_first=True); self.pool = PoolingLinearClassifier(h)
        def forward(self, x, lengths): return self.pool(self.rnn(self.encoder(x))[0], lengths)
    pol = T(19, V)
    def data(seed):
        n = R(seed + 3, L - 3, (64,)) + 3; x = (R(seed, V - 1, (64, L)) + 1) * (torch.arange(L)[None] < n[:, None]); y = ((pol[x] * (x > 0)).sum(1) > 0).long(); return (x, n), y
    return dict(model=TextClassifier, data=data, loss=ce, lr=3e-3, diag={})

P10 = T(55, 10, 144).clamp(min=0)
def mnist10(seed, n=64):
    y = R(seed, 10, (n,)); return (P10[y] * .5 + .35 * T(seed + 777, n, 144)).clamp(0, 1), y

@case("https://github.com/tensorflow/tensorflow/issues/1284", "relu applied to the logits of the logistic regression (no hidden layer added)", "relu on logits")
def udacity_relu_logits(planted):
    class Model(nn.Module):
        def __init__(self):
            super().__init__(); self.weights = nn.Parameter(torch.fmod(torch.randn(144, 10), 2)); self.biases = nn.Parameter(torch.zeros(10))
        def forward(self, x):
            logits = x @ self.weights + self.biases; return F.relu(logits) if planted else logits
    return dict(model=Model, data=mnist10, loss=ce, lr=3e-2, diag={})

@case("https://github.com/pytorch/tutorials/pull/1644", "ReLU as last module of linear_relu_stack, right before CrossEntropyLoss", "linear_relu_stack last ReLU")
def quickstart_last_relu(planted):
    class NeuralNetwork(nn.Module):
        def __init__(self):
            super().__init__(); self.flatten = nn.Flatten()
            self.linear_relu_stack = nn.Sequential(nn.Linear(12 * 12, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10), *([nn.ReLU()] if planted else []))
        def forward(self, x): return self.linear_relu_stack(self.flatten(x))
    def data(seed): x, y = mnist10(seed); return x.view(-1, 1, 12, 12), y
    return dict(model=NeuralNetwork, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/VainF/DeepLabV3Plus-Pytorch/issues/98", "softmax on the segmentation output before the cross entropy", "softmax before loss")
def deeplab_softmax_before_ce(planted):
    K = 5
    class ASPP(nn.Module):
        def __init__(self, i, o=16):
            super().__init__(); self.convs = nn.ModuleList([nn.Sequential(nn.Conv2d(i, o, 1 if d == 0 else 3, padding=d, dilation=max(d, 1), bias=False), nn.BatchNorm2d(o), nn.ReLU()) for d in (0, 1, 2)])
            self.project = nn.Sequential(nn.Conv2d(3 * o, o, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        def forward(self, x): return self.project(torch.cat([c(x) for c in self.convs], 1))
    class DeepLab(nn.Module):
        def __init__(self):
            super().__init__(); b = lambda i, o, s: nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            self.low = b(3, 16, 1); self.high = nn.Sequential(b(16, 32, 2), b(32, 32, 1)); self.aspp = ASPP(32); self.classifier = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, K, 1))
        def forward(self, x):
            l = self.low(x); h = F.interpolate(self.aspp(self.high(l)), size=l.shape[-2:], mode="bilinear", align_corners=False)
            o = self.classifier(torch.cat([l, h], 1)); return F.softmax(o, 1) if planted else o
    col = T(2, K, 3)
    def data(seed):
        y = F.interpolate(R(seed, K, (8, 1, 4, 4)).float(), scale_factor=5)[:, 0].long(); return col[y].permute(0, 3, 1, 2) + .4 * T(seed + 1, 8, 3, 20, 20), y
    return dict(model=DeepLab, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/OsciiArt/Freesound-Audio-Tagging-2019/issues/1", "sigmoid on the noisy head's output before BCEWithLogits", "loss (sigmoid(output_noisy))")
def freesound_noisy_sigmoid(planted):
    class ResNet(nn.Module):
        def __init__(self, n=8):
            super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            self.features = nn.Sequential(b(1, 16), b(16, 32), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU()); self.fc = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, n)); self.fc_noisy = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, n))
        def f(self, x): return self.features(x).amax((2, 3))
        def noisy(self, x): return self.fc_noisy(self.f(x))
        def forward(self, x, x_noisy): return self.fc(self.f(x)), self.noisy(x_noisy)
    pat = T(21, 8, 16, 16)
    def one(seed, p):
        t = (torch.rand(32, 8, generator=gen(seed)) < .25).float(); x = torch.einsum("bk,khw->bhw", t, pat)[:, None] + .3 * T(seed + 1, 32, 1, 16, 16)
        fl = (torch.rand(32, 8, generator=gen(seed + 2)) < p).float(); return x, (t - fl).abs()
    def data(seed): (a, ta), (b, tb) = one(seed, 0.), one(seed + 40000, .03); return (a, b), (ta, tb)
    bce = nn.BCEWithLogitsLoss()
    def loss(o, t): return bce(o[0], t[0]) + bce(torch.sigmoid(o[1]) if planted else o[1], t[1])
    return dict(model=ResNet, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/leehanchung/cs224n/issues/14", "missing relu between the character convolution and the max pool", "CNN.forward (no relu)")
def cs224n_charcnn_no_relu(planted):
    class CNN(nn.Module):
        def __init__(self, e_char, f, k=3): super().__init__(); self.conv1d = nn.Conv1d(e_char, f, k, padding=1)
        def forward(self, x):
            x = self.conv1d(x); return (x if planted else F.relu(x)).max(-1)[0]
    class Highway(nn.Module):
        def __init__(self, e): super().__init__(); self.proj = nn.Linear(e, e); self.gate = nn.Linear(e, e)
        def forward(self, x): g = torch.sigmoid(self.gate(x)); return g * F.relu(self.proj(x)) + (1 - g) * x
    class ModelEmbeddings(nn.Module):
        def __init__(self): super().__init__(); self.embeddings = nn.Embedding(20, 24); self.cnn = CNN(24, 48); self.highway = Highway(48); self.dropout = nn.Dropout(.1); self.out = nn.Linear(48, 6)
        def forward(self, w): return self.out(self.dropout(self.highway(self.cnn(self.embeddings(w).transpose(1, 2)))))
    tri = R(31, 20, (6, 3))
    def data(seed):
        y = R(seed, 6, (64,)); w = R(seed + 1, 20, (64, 9)); p = R(seed + 2, 7, (64,))
        for k in range(3): w[torch.arange(64), p + k] = tri[y, k]
        return w, y
    return dict(model=ModelEmbeddings, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/aladdinpersson/Machine-Learning-Collection/issues/65", "attention energy divided by sqrt(embed_size) instead of sqrt(head_dim)", "SelfAttention.forward scale")
def aladdin_embed_scale(planted):
    V, E, L = 12, 64, 8
    class SelfAttention(nn.Module):
        def __init__(self, embed_size=E, heads=8):
            super().__init__(); self.embed_size, self.heads, self.head_dim = embed_size, heads, embed_size // heads
            self.values, self.keys, self.queries = [nn.Linear(embed_size, embed_size) for _ in range(3)]; self.fc_out = nn.Linear(embed_size, embed_size)
        def forward(self, x):
            N, n, _ = x.shape; v, k, q = [l(x).reshape(N, n, self.heads, self.head_dim) for l in (self.values, self.keys, self.queries)]
            energy = torch.einsum("nqhd,nkhd->nhqk", [q, k]); attention = torch.softmax(energy / ((self.embed_size if planted else self.head_dim) ** (1 / 2)), dim=3)
            return self.fc_out(torch.einsum("nhql,nlhd->nqhd", [attention, v]).reshape(N, n, -1))
    class TransformerBlock(nn.Module):
        def __init__(self): super().__init__(); self.attention = SelfAttention(); self.norm1, self.norm2 = nn.LayerNorm(E), nn.LayerNorm(E); self.feed_forward = nn.Sequential(nn.Linear(E, 2 * E), nn.ReLU(), nn.Linear(2 * E, E))
        def forward(self, x): x = self.norm1(self.attention(x) + x); return self.norm2(self.feed_forward(x) + x)
    class Encoder(nn.Module):
        def __init__(self): super().__init__(); self.word_embedding = nn.Embedding(V, E); self.position_embedding = nn.Embedding(L, E); self.layers = nn.ModuleList([TransformerBlock() for _ in range(2)]); self.fc_out = nn.Linear(E, V)
        def forward(self, x):
            o = self.word_embedding(x) + self.position_embedding(torch.arange(x.shape[1]))
            for l in self.layers: o = l(o)
            return self.fc_out(o)
    def data(seed): x = R(seed, V, (32, L)); return x, x.roll(1, 1)
    return dict(model=Encoder, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/iusaspb/deep_learning_Nikolenko_and_Co/issues/1", "1e-10 added inside the log: vanishes in float32, log(1e-10 + 1 - x_reconstr_mean) = log(0)", "loss (1e-10 epsilon)")
def vae_eps_1e10(planted):
    def digits(seed, n=64, s=14):
        g = gen(seed); c = torch.rand(n, 3, 1, 1, generator=g) * 5 + 4.5; yy, xx = torch.meshgrid(torch.arange(s * 1.), torch.arange(s * 1.), indexing="ij")
        ring = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2).sqrt(); return ((ring < c[:, 2] * .6) | ((xx - 7).abs() < 2)).float().flatten(1)
    class VariationalAutoencoder(nn.Module):
        def __init__(self, n_input=196, h1=500, h2=500, n_z=10):
            super().__init__(); self.h1, self.h2 = nn.Linear(n_input, h1), nn.Linear(h1, h2); self.out_mean, self.out_log_sigma = nn.Linear(h2, n_z), nn.Linear(h2, n_z)
            self.g1, self.g2, self.g_out = nn.Linear(n_z, h1), nn.Linear(h1, h2), nn.Linear(h2, n_input)
            for m in self.modules():
                if isinstance(m, nn.Linear): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x):
            h = F.softplus(self.h2(F.softplus(self.h1(x)))); mean, lss = self.out_mean(h), self.out_log_sigma(h)
            z = mean + torch.randn_like(mean) * torch.exp(.5 * lss); return torch.sigmoid(self.g_out(F.softplus(self.g2(F.softplus(self.g1(z)))))), mean, lss
    def data(seed): x = digits(seed); return x, x
    eps = 1e-10 if planted else 1e-7
    def loss(o, x):
        xr, mean, lss = o
        reconstr_loss = -(x * torch.log(eps + xr) + (1 - x) * torch.log(eps + 1 - xr)).sum(1)
        return (reconstr_loss - .5 * (1 + lss - mean ** 2 - lss.exp()).sum(1)).mean()
    return dict(model=VariationalAutoencoder, data=data, loss=loss, lr=1e-3, diag={})
