"""Healthy networks of public repositories drawn by chance, a thirteenth set, written without sight of the rules."""

from __future__ import annotations

import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

healthy = partial(any_report, blind="blind13")


def pixels(count: int, size: int = 8, channels: int = 1) -> tuple[Tensor, Tensor]:
    """Digits with pixels 0 to 1, in random colours if there are channels, and their classes."""
    x, c = pick(count)
    x = (
        F.interpolate((x * 0.376 + 0.3).clamp(0, 1), size=(size, size), mode="bilinear")
        if size != 8
        else x * 0.376 + 0.3
    )
    if channels > 1:
        ink, paper = torch.rand(2, count, channels, 1, 1)
        x = x * ink + (1 - x) * paper
    return x, c


def scene(count: int, size: int, channels: int = 1, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Bright digits on darker noise, pixels 0 to 1, and the mask (count, 1, size, size) of the digit."""
    x, _ = pixels(count, size)
    tint = torch.rand(count, channels, 1, 1) * 0.5 + 0.5
    return (x * tint + noise * torch.rand(count, channels, size, size)).clamp(0, 1), (x > 0.5).float()


def waves(count: int, length: int, channels: int = 1) -> Tensor:
    """Series (count, length, channels) about 0 with a std near 1: sines of random phase and rate, and a little
    noise."""
    t = torch.arange(length).view(1, -1, 1)
    rate, phase = torch.rand(count, 1, channels) * 0.4 + 0.2, torch.rand(count, 1, channels) * 6.28
    return 1.3 * torch.sin(rate * t + phase) + 0.1 * torch.randn(count, length, channels)


@healthy(
    "classic ResUNet for caries", GITHUB + "DaiXiaoyun5/caries-segmentation/blob/main/src/train_classic_resunet_b0.py"
)
def caries(_: bool) -> Task:
    def bn(i, o, k):
        return nn.Conv2d(i, o, k, padding=k // 2, bias=False), nn.BatchNorm2d(o)

    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.conv1, self.bn1 = bn(i, o, 3)
            self.conv2, self.bn2 = bn(o, o, 3)
            self.relu, self.shortcut = nn.ReLU(inplace=True), chain(*bn(i, o, 1)) if i != o else nn.Identity()

        def forward(self, x):
            return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))

    class Net(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.pool = nn.MaxPool2d(2, 2)
            self.enc = nn.ModuleList([Res(3, c), Res(c, 2 * c), Res(2 * c, 4 * c)])
            self.bridge = Res(4 * c, 8 * c)
            self.up = nn.ModuleList([nn.ConvTranspose2d(k * 2 * c, k * c, 2, 2) for k in (4, 2, 1)])
            self.dec = nn.ModuleList([Res(2 * k * c, k * c) for k in (4, 2, 1)])
            self.head = nn.Conv2d(c, 1, 1)

        def forward(self, x):
            skips = []
            for e in self.enc:
                x = e(x)
                skips.append(x)
                x = self.pool(x)
            x = self.bridge(x)
            for up, dec, s in zip(self.up, self.dec, skips[::-1], strict=False):
                x = dec(torch.cat([up(x), s], 1))
            return self.head(x)

    def draw() -> Drawn:
        x, m = scene(16, 16, 3)
        return (x,), m

    def loss(y, t):
        p = y.sigmoid()
        dice = (2 * (p * t).sum((1, 2, 3)) + 1e-7) / (p.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1e-7)
        return F.binary_cross_entropy_with_logits(y, t) + 1 - dice.mean()

    return stream(Net(6), draw, loss)


@healthy("CAMUS U-Net 1", GITHUB + "salemsaurus/camus-segmentation-pytorch/blob/main/model.py")
def camus(_: bool) -> Task:
    def double(i, o):
        return chain(
            nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.ReLU(inplace=True)
        )

    class Net(nn.Module):
        def __init__(self, c=8, classes=4):
            super().__init__()
            self.pool = nn.MaxPool2d(2, 2)
            self.enc = nn.ModuleList([double(1, c), double(c, c), double(c, 2 * c), double(2 * c, 4 * c)])
            self.up = nn.ModuleList(
                [
                    chain(nn.UpsamplingBilinear2d(scale_factor=2), nn.Conv2d(i, o, 1))
                    for i, o in ((4 * c, 2 * c), (2 * c, c), (c, c))
                ]
            )
            self.dec = nn.ModuleList([double(4 * c, 2 * c), double(2 * c, c), double(2 * c, c // 2)])
            self.dropout, self.out = nn.Identity(), nn.Conv2d(c // 2, classes, 1)

        def forward(self, x):
            skips = []
            for e in self.enc:
                x = e(x if not skips else self.pool(x))
                skips.append(x)
            for up, dec, s in zip(self.up, self.dec, skips[-2::-1], strict=False):
                x = dec(torch.cat([s, up(x)], 1))
            return self.out(self.dropout(x))

    def draw() -> Drawn:
        x, m = scene(16, 16)
        half = (torch.arange(16) > 7).view(1, 1, 16).expand(16, 16, 16)
        return (x,), (m[:, 0] * (1 + half)).long() + (m[:, 0] * (x[:, 0] > 0.9)).long()

    return stream(Net(), draw, F.cross_entropy)


@healthy("FHR inception time", GITHUB + "Mahdi-Si/VAE-TEB/blob/main/model/inception_time.py")
def fhr(_: bool) -> Task:  # noqa: C901
    class Inception(nn.Module):
        def __init__(self, i, f, p):
            super().__init__()
            self.bottleneck1, self.bottleneck2 = (nn.Conv1d(i, f, 1, bias=False) for _ in range(2))
            self.convs = nn.ModuleList([nn.Conv1d(f, f, k, padding="same", bias=False) for k in (5, 15, 40)])
            self.max_pool, self.batch_norm, self.dropout = nn.MaxPool1d(3, 1, 1), nn.BatchNorm1d(4 * f), nn.Dropout1d(p)
            for m in self.modules():
                if isinstance(m, nn.Conv1d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x):
            y = self.bottleneck1(x)
            y = torch.cat([*(c(y) for c in self.convs), self.bottleneck2(self.max_pool(x))], 1)
            return self.dropout(F.relu(self.batch_norm(y)))

    class Residual(nn.Module):
        def __init__(self, i, f, p):
            super().__init__()
            self.bottleneck, self.batch_norm = nn.Conv1d(i, 4 * f, 1, bias=False), nn.BatchNorm1d(4 * f)
            self.dropout = nn.Dropout1d(p)
            nn.init.kaiming_normal_(self.bottleneck.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x, y):
            return self.dropout(F.relu(y + self.batch_norm(self.bottleneck(x))))

    class Net(nn.Module):
        def __init__(self, n=8, f=4, depth=6, p=0.2):
            super().__init__()
            self.input_projection = chain(nn.LayerNorm(n), nn.Linear(n, n), nn.GELU(), nn.Dropout(p / 2))
            self.inception = nn.ModuleList([Inception(n if d == 0 else 4 * f, f, p) for d in range(depth)])
            self.residual = nn.ModuleList([Residual(n if d == 0 else 4 * f, f, p) for d in range(depth // 3)])
            self.attention = nn.MultiheadAttention(4 * f, 4, dropout=p, batch_first=True)
            self.attention_norm, self.global_pool = nn.LayerNorm(4 * f), nn.AdaptiveAvgPool1d(1)
            self.classifier = chain(
                nn.Linear(4 * f, 2 * f),
                nn.LayerNorm(2 * f),
                nn.GELU(),
                nn.Dropout(p),
                nn.Linear(2 * f, f),
                nn.LayerNorm(f),
                nn.GELU(),
                nn.Dropout(p),
                nn.Linear(f, 2),
            )
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.xavier_uniform_(m.weight)
                    nn.init.zeros_(m.bias)

        def forward(self, x):
            x = y = self.input_projection(x).transpose(1, 2)
            for d, block in enumerate(self.inception):
                y = block(y)
                if d % 3 == 2:
                    x = y = self.residual[d // 3](x, y)
            y = y.transpose(1, 2)
            y = self.attention_norm(y + self.attention(y, y, y)[0]).transpose(1, 2)
            return self.classifier(self.global_pool(y).squeeze(-1))

    def draw() -> Drawn:
        c = torch.randint(2, (32,))
        x = torch.randn(32, 60, 8) * 0.5 + waves(32, 60, 8)
        return (x + c.view(-1, 1, 1) * torch.linspace(-1, 1, 8) * 1.5,), c

    return stream(Net(), draw, F.cross_entropy)


@healthy("LSTM name classifier", GITHUB + "claravania/lstm-pytorch/blob/main/model.py")
def names(_: bool) -> Task:
    """Characters in packed sequences, a random first state, the sum of the NLL over the batch."""

    class Net(nn.Module):
        def __init__(self, vocabulary=27, dim=32, hidden=32, out=4):
            super().__init__()
            self.hidden_dim, self.embedding = hidden, nn.Embedding(vocabulary, dim)
            self.lstm, self.hidden2out = nn.LSTM(dim, hidden, num_layers=1), nn.Linear(hidden, out)
            self.softmax, self.dropout_layer = nn.LogSoftmax(dim=1), nn.Dropout(p=0.2)

        def forward(self, batch, lengths):
            start = torch.randn(1, len(batch), self.hidden_dim), torch.randn(1, len(batch), self.hidden_dim)
            packed = nn.utils.rnn.pack_padded_sequence(self.embedding(batch.T), lengths)
            return self.softmax(self.hidden2out(self.dropout_layer(self.lstm(packed, start)[1][0][-1])))

    likes = torch.rand(4, 26, generator=torch.Generator().manual_seed(3)) ** 4

    def draw() -> Drawn:
        c, lengths = torch.randint(4, (32,)), torch.randint(4, 11, (32,)).sort(descending=True)[0]
        words = torch.multinomial(likes[c], 10, replacement=True) + 1
        return (words * (torch.arange(10) < lengths.view(-1, 1)), lengths), c

    return stream(Net(), draw, lambda y, t: F.nll_loss(y, t, reduction="sum"))


@healthy("DCGAN for faces, its discriminator", GITHUB + "joeylitalien/celeba-gan-pytorch/blob/master/src/dcgan.py")
def faces(_: bool) -> Task:
    """The step of the discriminator on a real and a generated batch; the generator as it is at first."""

    def G(*c):  # noqa: N802
        return chain(
            nn.ConvTranspose2d(10, c[0], 4, 1, 0),
            nn.BatchNorm2d(c[0]),
            nn.ReLU(),
            nn.ConvTranspose2d(*c, 4, 2, 1),
            nn.BatchNorm2d(c[1]),
            nn.ReLU(),
            nn.ConvTranspose2d(c[1], 3, 4, 2, 1),
            nn.Tanh(),
        )

    generator = G(32, 16)
    model = chain(
        nn.Conv2d(3, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4, 1, 0),
        nn.Sigmoid(),
    )

    def draw() -> Drawn:
        x = pixels(32, 16, 3)[0] * 2 - 1
        with torch.no_grad():
            fake = generator(torch.randn(32, 10, 1, 1))
        return (x, fake), (torch.ones(32), torch.zeros(32))

    return stream(
        Parts(lambda m, x, z: (m.features(x).squeeze(), m.features(z).squeeze()), features=model),
        draw,
        lambda y, t: F.binary_cross_entropy(y[0], t[0]) + F.binary_cross_entropy(y[1], t[1]),
    )


def funie_block(i, o, k=3, stride=2, padding=1, bn=True):
    return chain(nn.Conv2d(i, o, k, stride, padding), nn.ReLU(inplace=True), *[nn.BatchNorm2d(o, momentum=0.8)] * bn)


@healthy("FUnIE discriminator", GITHUB + "rowantseng/FUnIE-GAN-PyTorch/blob/master/models.py")
def funie(_: bool) -> Task:
    """Patches of (image, distorted image) judged real or generated by least squares."""

    class Net(nn.Module):
        def __init__(self, n=8):
            super().__init__()
            self.blocks = chain(
                funie_block(6, n, bn=False), funie_block(n, 2 * n), funie_block(2 * n, 4 * n), funie_block(4 * n, 8 * n)
            )
            self.validility = nn.Conv2d(8 * n, 1, 3, 1, 1)

        def judge(self, a, b):
            return self.validility(self.blocks(torch.cat([a, b], 1))).squeeze(1)

        def forward(self, good, fake, bad):
            return self.judge(good, bad), self.judge(fake, bad)

    def draw() -> Drawn:
        x = pixels(16, 32, 3)[0] * 2 - 1
        bad = 0.4 * x + torch.tensor([-0.3, 0.1, 0.3]).view(3, 1, 1)
        fake = torch.tanh(0.3 * F.avg_pool2d(bad, 3, 1, 1) + 0.1 * torch.randn(1, 3, 1, 1))
        return (x, fake, bad), (torch.ones(16, 2, 2), torch.zeros(16, 2, 2))

    return stream(Net(), draw, lambda y, t: (F.mse_loss(y[0], t[0]) + F.mse_loss(y[1], t[1])) / 2)


@healthy("convolutional VAE of CelebA", GITHUB + "julian-8897/Conv-VAE-PyTorch/blob/main/model/model.py")
def convvae(_: bool) -> Task:
    """Pixels 0 to 1 against a tanh; the sums of squares and of the KL over the batch."""

    class Net(nn.Module):
        def __init__(self, dims=(8, 16, 32), latent=8, i=3):
            super().__init__()
            layers = []
            for h in dims:
                layers.append(chain(nn.Conv2d(i, h, 3, 2, 1), nn.BatchNorm2d(h), nn.LeakyReLU()))
                i = h
            self.encoder, self.fc_mu, self.fc_var = chain(*layers), nn.Linear(4 * i, latent), nn.Linear(4 * i, latent)
            self.decoder_input, up = (
                nn.Linear(latent, 4 * i),
                lambda a, b: chain(nn.ConvTranspose2d(a, b, 3, 2, 1, 1), nn.BatchNorm2d(b), nn.LeakyReLU()),
            )
            self.decoder = chain(*(up(a, b) for a, b in zip(dims[::-1], dims[-2::-1], strict=False)))
            self.final_layer = chain(*up(dims[0], dims[0]), nn.Conv2d(dims[0], 3, 3, padding=1), nn.Tanh())

        def forward(self, x):
            h = self.encoder(x).flatten(1)
            mu, logvar = self.fc_mu(h), self.fc_var(h)
            std = torch.exp(0.5 * logvar)
            z = self.decoder_input(torch.randn_like(std).mul(std).add_(mu))
            return self.final_layer(self.decoder(z.view(len(z), -1, 2, 2))), mu, logvar

    def draw() -> Drawn:
        x = pixels(32, 16, 3)[0]
        return (x,), x

    def loss(y, t):
        recon, mu, logvar = y
        return F.mse_loss(recon, t, reduction="sum") - 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()

    return stream(Net(), draw, loss)


@healthy("dense VAE of MNIST", GITHUB + "jwkweon/vae-pytorch/blob/main/models/vae.py")
def densevae(_: bool) -> Task:
    class Net(nn.Module):
        def __init__(self, d=(64, 48, 32, 6)):
            super().__init__()
            self.encoder = chain(nn.Linear(d[0], d[1]), nn.ReLU(), nn.Linear(d[1], d[2]), nn.ReLU())
            self.mu_linear, self.var_linear = (chain(nn.Linear(d[2], d[3])) for _ in range(2))
            self.decoder = chain(
                nn.Linear(d[3], d[2]), nn.ReLU(), nn.Linear(d[2], d[1]), nn.ReLU(), nn.Linear(d[1], d[0]), nn.Sigmoid()
            )

        def forward(self, x):
            shape, x = x.shape, self.encoder(x.view(len(x), -1))
            mu, logvar = self.mu_linear(x), self.var_linear(x)
            return self.decoder(mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)).view(shape), mu, logvar

    def draw() -> Drawn:
        x = pixels(64)[0]
        return (x,), x

    def loss(y, t):
        return F.mse_loss(y[0], t, reduction="sum") - 0.5 * torch.sum(1 + y[2] - y[1].pow(2) - y[2].exp())

    return stream(Net(), draw, loss)


@healthy("snake DQN", GITHUB + "HengYe201314/snake-rl-pytorch/blob/main/agent.py")
def snake(_: bool) -> Task:
    """A board of 0, 1 (snake) and 2 (food); Q of the action taken against the reward and the discounted next Q,
    detached."""
    model = chain(
        nn.Conv2d(1, 8, 3, 1, 1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, 1, 1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 25, 64),
        nn.ReLU(),
        nn.Linear(64, 4),
    )
    moves = torch.tensor([[-1, 0], [0, 1], [1, 0], [0, -1]])

    def board(head, food):
        s = torch.zeros(len(head), 1, 20, 20)
        for at, value in ((head, 1.0), (food, 2.0)):
            inside = ((at >= 0) & (at < 20)).all(1).nonzero()[:, 0]
            s[inside, 0, at[inside, 0], at[inside, 1]] = value
        return s

    def draw() -> Drawn:
        head, food, a = torch.randint(20, (64, 2)), torch.randint(20, (64, 2)), torch.randint(4, (64,))
        edge = torch.rand(64) < 0.5
        head[edge, 0] = torch.randint(2, (int(edge.sum()),)) * 19
        new = head + moves[a]
        dead, fed = ((new < 0) | (new > 19)).any(1), (new == food).all(1)
        reward = torch.where(dead, -10.0, torch.where(fed, 10.0, 0.1))
        return (board(head, food),), (a, reward, board(new, food), dead.float())

    def loss(q, t):
        a, reward, following, done = t
        return F.mse_loss(
            q.gather(1, a.view(-1, 1)).squeeze(1), (reward + 0.95 * model(following).max(1)[0] * (1 - done)).detach()
        )

    return stream(model, draw, loss)


@healthy("cart-pole DQN", GITHUB + "lutaodai/gym-drl-pytorch/blob/master/agents/dqn.py")
def cartpole(_: bool) -> Task:
    """Raw states of a cart and pole; a target network of its own random weights, moved a little at each step."""

    class Q(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, 16)
            self.fc4 = nn.Linear(16, 2)

        def forward(self, s):
            return self.fc4(F.relu(self.fc3(F.relu(self.fc2(F.relu(self.fc1(s)))))))

    model, target = Q(), Q()

    def draw() -> Drawn:
        with torch.no_grad():
            for p, q in zip(target.parameters(), model.parameters(), strict=False):
                p.copy_(1e-3 * q + (1 - 1e-3) * p)
        s, a = torch.randn(64, 4) * torch.tensor([0.8, 0.6, 0.1, 0.7]), torch.randint(2, (64, 1))
        force = a * 2.0 - 1
        s2 = s + 0.02 * torch.cat([s[:, 1:2], 10 * force, s[:, 3:], 15 * s[:, 2:3] - 15 * force], 1)
        done = (s2[:, 2:3].abs() > 0.209).float()
        return (s,), (a, torch.ones(64, 1), s2, done)

    def loss(q, t):
        a, reward, following, done = t
        return F.mse_loss(
            q.gather(1, a), reward + 0.99 * target(following).detach().max(1)[0].unsqueeze(1) * (1 - done)
        )

    return stream(model, draw, loss)


@healthy("wind power LSTM", GITHUB + "Camilu-png/wind-forecasting-pytorch/blob/main/src/model.py")
def wind(_: bool) -> Task:
    """Standardised hours of weather; power from 0 to 1."""

    class Net(nn.Module):
        def __init__(self, i=15, h=24, layers=2, p=0.2):
            super().__init__()
            self.lstm = nn.LSTM(i, h, layers, batch_first=True, dropout=p)
            self.regressor = chain(nn.Linear(h, 32), nn.ReLU(), nn.Dropout(p), nn.Linear(32, 1))
            for name, w in self.lstm.named_parameters():
                (
                    nn.init.xavier_uniform_
                    if "weight_ih" in name
                    else nn.init.orthogonal_
                    if "weight_hh" in name
                    else nn.init.zeros_
                )(w.data)
            for m in self.regressor:
                if isinstance(m, nn.Linear):
                    nn.init.xavier_uniform_(m.weight)
                    nn.init.zeros_(m.bias)

        def forward(self, x):
            return self.regressor(self.lstm(x)[0][:, -1, :])

    def draw() -> Drawn:
        x = waves(64, 24, 15)
        return (x,), torch.sigmoid(1.5 * x[:, -1, 3:4] + x[:, -2, 4:5])

    return stream(Net(), draw, F.mse_loss)


@healthy("EV charging LSTM", GITHUB + "SantoshpHiremath/ev-charging-forecasting-pytorch/blob/main/forecast_lstm.py")
def ev(_: bool) -> Task:
    """Two weeks of demand scaled to 0 to 1, and the next day's."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(1, 32, 1, batch_first=True), nn.Linear(32, 1)

        def forward(self, x):
            return self.fc(self.lstm(x)[0][:, -1, :])

    def draw() -> Drawn:
        day = torch.randint(7, (64, 1)) + torch.arange(15)
        x = 0.45 + 0.25 * torch.rand(64, 1) + 0.2 * torch.sin(day * 6.28 / 7) + 0.03 * torch.randn(64, 15)
        return (x[:, :14, None],), x[:, 14:]

    return stream(Net(), draw, F.mse_loss)


@healthy("CAPTCHA CRNN with CTC", GITHUB + "KKaslana413/CAPTCHA-OCR-PyTorch/blob/main/model.py")
def captcha(_: bool) -> Task:  # noqa: C901
    """Two heads of log probabilities (time, batch, classes), a clamped temperature, masks in the features, a little
    entropy."""

    class SE(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.fc = chain(nn.Linear(c, c // 16), nn.ReLU(), nn.Linear(c // 16, c), nn.Sigmoid())

        def forward(self, x):
            return x * self.fc(self.pool(x).flatten(1)).view(*x.shape[:2], 1, 1).expand_as(x)

    class Net(nn.Module):
        def __init__(self, c=(3, 16, 32, 48), d=24, h=24, classes=11):
            super().__init__()

            def block(i, o):
                return (
                    nn.Conv2d(i, o, (3, 5), padding=(1, 2)),
                    nn.BatchNorm2d(o),
                    nn.ReLU(),
                    SE(o),
                    nn.MaxPool2d(2, 2),
                )

            self.Conv_Block = chain(*(m for i, o in itertools.pairwise(c) for m in block(i, o)))
            self.Linear = chain(nn.Linear(c[-1] * 2, d), nn.Dropout(0.2), nn.ReLU())
            self.RNN = nn.GRU(d, h, num_layers=3, bidirectional=True, dropout=0.3, batch_first=True)
            self.layer_norm, self.residual_proj = nn.LayerNorm(2 * h), nn.Linear(d, 2 * h)
            self.Classifier, self.aux_classifier = nn.Linear(2 * h, classes), nn.Linear(2 * h, classes)
            self.logit_temperature = nn.Parameter(torch.tensor(1.0))
            for m in self.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)):
                    nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
                    nn.init.zeros_(m.bias)
                if isinstance(m, nn.GRU):
                    for n, p in m.named_parameters():
                        nn.init.kaiming_normal_(p, nonlinearity="tanh") if "weight" in n else nn.init.zeros_(p)

        def forward(self, x):
            x = self.Conv_Block(x).permute(0, 3, 1, 2).contiguous()
            x = self.Linear(x.view(*x.shape[:2], -1))
            if self.training:
                x = x.clone()
                for size, width, axis in ((x.shape[1], 2, 1), (x.shape[2], 3, 2)):
                    n = int(torch.randint(0, width + 1, (1,)))
                    if n:
                        x.narrow(axis, int(torch.randint(0, size - n + 1, (1,))), n).zero_()
            y = self.layer_norm(self.RNN(x)[0] + self.residual_proj(x))
            t = torch.clamp(self.logit_temperature, min=0.5, max=5.0)
            return tuple(
                F.log_softmax(head(y) / t, dim=2).permute(1, 0, 2) for head in (self.Classifier, self.aux_classifier)
            )

    def draw() -> Drawn:
        (a, c), (b, d) = pixels(32, 16), pixels(32, 16)
        ink = torch.rand(32, 3, 1, 1) * 0.5 + 0.5
        x = F.pad(torch.cat([a, b], 3), (16, 16)) * ink
        return ((x - 0.5) / 0.5,), torch.stack([c, d], 1) + 1

    ctc = nn.CTCLoss(blank=0, zero_infinity=True)

    def loss(y, t):
        n = len(t)
        a, b = (ctc(p, t.flatten(), torch.full((n,), len(p)), torch.full((n,), 2)) for p in y)
        p = y[0].exp()
        return a + 0.3 * b - 0.005 * -(p * torch.log(p + 1e-8)).sum(2).mean()

    return stream(Net(), draw, loss)


@healthy(
    "two-tower movie recommender",
    GITHUB + "nickgreenquist/Movie-Recommender-System-PyTorch-TwoTower-Model/blob/main/src/model.py",
)
def twotower(_: bool) -> Task:  # noqa: C901
    """Gains of 0.1 (0.01 for the embeddings), sums of histories in layer norms, cosines / 0.1 against all movies,
    popularity added."""
    movies, genres, tags, genome, years, bins = 48, 6, 8, 20, 8, 6
    g = torch.Generator().manual_seed(1)
    kind = torch.arange(movies) % genres

    def pad(x):
        return torch.cat([x, torch.zeros_like(x[:1])])

    genre = F.one_hot(kind, genres).float()
    genomes = torch.rand(genres, genome, generator=g)[kind] * 0.8 + 0.2 * torch.rand(movies, genome, generator=g)
    tag = (torch.rand(movies, tags, generator=g) < 0.2).float()
    count = torch.randint(5, 200, (movies,), generator=g).float()

    def tower(i, o):
        return chain(nn.Linear(i, o), nn.ReLU())

    class Net(nn.Module):
        def __init__(self, d=16, hidden=64, out=32):
            super().__init__()
            self.pad_idx = movies
            self.register_buffer("genome_context_buffer", pad(genomes))
            self.register_buffer("genre_context_buffer", pad(genre), persistent=False)
            self.register_buffer("tag_context_buffer", pad(tag), persistent=False)
            self.register_buffer(
                "year_context_buffer", pad(torch.randint(years, (movies,), generator=g)), persistent=False
            )
            self.item_embedding_lookup = nn.Embedding(movies + 1, d, padding_idx=movies)
            self.item_embedding_tower = tower(d, d)
            self.item_genre_tower, self.item_tag_tower = tower(genres, 4), tower(tags, 8)
            self.item_genome_tag_tower = tower(genome, 16)
            self.year_embedding_lookup, self.year_embedding_tower = nn.Embedding(years, 4), tower(4, 4)
            self.user_genre_tower, self.user_genome_context_tower = tower(2 * genres, 16), tower(genome, 16)
            self.timestamp_embedding_lookup, self.timestamp_embedding_tower = nn.Embedding(bins, 4), tower(4, 4)
            self.full, self.liked, self.disliked, self.weighted = (nn.LayerNorm(d) for _ in range(4))
            self.user_projection = chain(nn.Linear(4 * d + 36, hidden), nn.ReLU(), nn.Linear(hidden, out))
            self.item_projection = chain(nn.Linear(4 + 8 + 16 + d + 4, hidden), nn.ReLU(), nn.Linear(hidden, out))
            projections = {*self.user_projection, *self.item_projection}
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.xavier_uniform_(m.weight, 1.0 if m in projections else 0.1)
                    nn.init.zeros_(m.bias)
                if isinstance(m, nn.Embedding):
                    nn.init.xavier_uniform_(m.weight, gain=0.01)

        def user_embedding(self, context, history, liked, disliked, ratings, stamps):
            e, look = self.item_embedding_lookup(history), self.item_embedding_lookup
            w = ratings.unsqueeze(-1) * (history != self.pad_idx).float().unsqueeze(-1)
            raw = (self.genome_context_buffer[history] * w).sum(1) / w.abs().sum(1).clamp(min=1e-6)
            parts = [
                self.full(e.sum(1)),
                self.liked(look(liked).sum(1)),
                self.disliked(look(disliked).sum(1)),
                self.weighted((e * ratings.unsqueeze(-1)).sum(1)),
                self.user_genome_context_tower(raw),
                self.user_genre_tower(context),
                self.timestamp_embedding_tower(self.timestamp_embedding_lookup(stamps)),
            ]
            return F.normalize(self.user_projection(torch.cat(parts, 1)), p=2, dim=1)

        def item_embedding(self, i):
            parts = [
                self.item_genre_tower(self.genre_context_buffer[i]),
                self.item_tag_tower(self.tag_context_buffer[i]),
                self.item_genome_tag_tower(self.genome_context_buffer[i]),
                self.item_embedding_tower(self.item_embedding_lookup(i)),
                self.year_embedding_tower(self.year_embedding_lookup(self.year_context_buffer[i])),
            ]
            return F.normalize(self.item_projection(torch.cat(parts, 1)), p=2, dim=1)

        def forward(self, *user):
            scores = self.user_embedding(*user) @ self.item_embedding(torch.arange(self.pad_idx)).T
            return scores / 0.1 + 0.5 * torch.log1p(count)

    def draw() -> Drawn:
        n, length = 64, 10
        taste = torch.randint(genres, (n,))
        near = torch.rand(n, length) < 0.7
        history = torch.where(
            near,
            taste.view(-1, 1) + genres * torch.randint(movies // genres, (n, length)),
            torch.randint(movies, (n, length)),
        )
        ratings = torch.where(kind[history] == taste.view(-1, 1), 1.0, -1.0) * (0.5 + torch.rand(n, length))
        empty = torch.arange(length) >= torch.randint(4, length + 1, (n, 1))
        history, ratings = history.masked_fill(empty, movies), ratings.masked_fill(empty, 0)
        seen = F.one_hot(kind[history.clamp(max=movies - 1)], genres) * (~empty).unsqueeze(-1)
        context = torch.cat(
            [
                (seen * ratings.unsqueeze(-1)).sum(1) / seen.sum(1).clamp(min=1),
                seen.sum(1) / seen.sum((1, 2)).view(-1, 1),
            ],
            1,
        )
        liked, disliked = history.masked_fill(ratings <= 0, movies), history.masked_fill(ratings >= 0, movies)
        target = taste + genres * torch.randint(movies // genres, (n,))
        return (context, history, liked, disliked, ratings, torch.randint(bins, (n,))), target

    return stream(Net(), draw, F.cross_entropy)


@healthy("UniChess policy and value", GITHUB + "jeefies/UniChessResNet/blob/main/model/net.py")
def unichess(_: bool) -> Task:
    """Planes of 0 and 1; soft policy over 4096 moves, promotion where there is one (else -100), win / draw / loss."""

    class SE(nn.Module):
        def __init__(self, c, hidden):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(c, hidden), nn.Linear(hidden, 2 * c)

        def forward(self, x):
            scale, bias = self.fc2(F.relu(self.fc1(x.mean((2, 3))), inplace=True)).view(len(x), -1, 1, 1).chunk(2, 1)
            return x * torch.sigmoid(scale) + bias

    class Res(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
            self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
            self.se = SE(c, max(c // 4, 8))

        def forward(self, x):
            return F.relu(
                x + self.se(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))), inplace=True
            )

    class Net(nn.Module):
        def __init__(self, c=16, blocks=2, planes=19):
            super().__init__()
            self.stem = chain(nn.Conv2d(planes, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(inplace=True))
            self.tower, self.policy_conv = chain(*(Res(c) for _ in range(blocks))), nn.Conv2d(c, 64, 1)
            self.promo_head = chain(nn.Conv2d(c, 4, 1), nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(256, 4))
            self.value_conv = chain(nn.Conv2d(c, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten())
            self.value_fc = chain(nn.Linear(256, 32), nn.ReLU(inplace=True), nn.Linear(32, 3))

        def forward(self, x):
            h = self.tower(self.stem(x))
            return self.policy_conv(h).reshape(len(x), 4096), self.promo_head(h), self.value_fc(self.value_conv(h))

    def draw() -> Drawn:
        n = 48
        x = torch.zeros(n, 19, 8, 8)
        x[:, :12] = (torch.rand(n, 12, 8, 8) < 0.04).float()
        to, side = torch.randint(64, (n,)), torch.randint(4, (n,))
        x[:, 5] = 0
        x[torch.arange(n), 5, to // 8, to % 8] = 1
        x[torch.arange(n), 12 + side] = 1
        policy = torch.zeros(n, 4096)
        policy[torch.arange(n), side * 64 + to] = 0.8
        policy[torch.arange(n), side * 64 + (to + 1) % 64] += 0.2
        promo = torch.where(to < 8, (side == 3).long(), -100)
        ahead = x[:, :3].sum((1, 2, 3)) - x[:, 6:9].sum((1, 2, 3))
        wdl = torch.stack([ahead, torch.ones(n), -ahead], 1).softmax(1)
        return (x,), (policy, promo, wdl)

    def soft(y, t):
        return -(t * F.log_softmax(y, dim=1)).sum(1)

    def loss(y, t):
        has = (t[0].sum(1) > 1e-6).float()
        promo = F.cross_entropy(y[1], t[1], ignore_index=-100)
        return (
            (soft(y[0], t[0]) * has).sum() / has.sum()
            + soft(y[2], t[2]).mean()
            + 0.1 * (torch.zeros(()) if promo.isnan() else promo)
        )

    return stream(Net(), draw, loss)


@healthy("calculator transformer", GITHUB + "ahlearn/calc-transformer-pytorch/blob/main/model.py")
def calculator(_: bool) -> Task:  # noqa: C901
    """RMS norms, rotary positions, SwiGLU, tied embeddings, a causal mask; only the digits of the answer, reversed,
    count."""

    class RMS(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    class Layer(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads = heads
            self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
            self.w1, self.w2 = nn.Linear(d, 4 * d, bias=False), nn.Linear(d, 4 * d, bias=False)
            self.w3 = nn.Linear(4 * d, d, bias=False)
            self.attention_norm, self.ffn_norm = RMS(d), RMS(d)

        def forward(self, x, freqs, mask):
            h = self.attention_norm(x)
            q, k, v = (w(h).view(*h.shape[:2], self.heads, -1) for w in (self.wq, self.wk, self.wv))

            def turn(a):
                return torch.view_as_real(
                    torch.view_as_complex(a.reshape(*a.shape[:-1], -1, 2)) * freqs[None, : a.shape[1], None]
                ).flatten(3)

            a = F.scaled_dot_product_attention(
                turn(q).transpose(1, 2), turn(k).transpose(1, 2), v.transpose(1, 2), attn_mask=mask
            )
            x = x + self.wo(a.transpose(1, 2).flatten(2))
            h = self.ffn_norm(x)
            return x + self.w3(F.silu(self.w1(h)) * self.w2(h))

    class Net(nn.Module):
        def __init__(self, vocabulary=14, d=32, heads=4, layers=2):
            super().__init__()
            self.embedding, self.norm = nn.Embedding(vocabulary, d), RMS(d)
            self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
            self.fc_out = nn.Linear(d, vocabulary, bias=False)
            self.embedding.weight = self.fc_out.weight
            half = d // heads
            angles = torch.outer(torch.arange(64.0), 1 / 10000 ** (torch.arange(0, half, 2).float() / half))
            self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles))

        def forward(self, x):
            h, n = self.embedding(x), x.shape[1]
            mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
            for layer in self.layers:
                h = layer(h, self.freqs_cis, mask)
            return self.fc_out(self.norm(h))

    words = "0123456789+-="

    def draw() -> Drawn:
        rows = torch.full((64, 13), 13)
        for row in rows:
            a, b, plus = int(torch.randint(20, ())), int(torch.randint(20, ())), bool(torch.rand(()) < 0.5)
            s = f"{a}{'+' if plus else '-'}{b}=" + str(a + b if plus else a - b)[::-1]
            row[: len(s)] = torch.tensor([words.index(c) for c in s])
        y = rows[:, 1:].clone()
        y[torch.arange(12) < (rows == 12).float().argmax(1).view(-1, 1)] = 13
        return (rows[:, :-1].clone(),), y

    return stream(Net(), draw, lambda y, t: F.cross_entropy(y.reshape(-1, 14), t.reshape(-1), ignore_index=13))


@healthy("network intrusion MLP", GITHUB + "unknownWeaver/network-intrusion-detection-pytorch/blob/main/src/model.py")
def intrusion(_: bool) -> Task:
    """Standardised numbers, among them heavy-tailed and nearly constant ones, beside one-hot categories."""

    class MLP(nn.Module):
        def __init__(self, i, h=64):
            super().__init__()
            self.fc1, self.relu, self.fc2 = nn.Linear(i, h), nn.ReLU(), nn.Linear(h, 1)

        def forward(self, x):
            return self.fc2(self.relu(self.fc1(x)))

    def draw() -> Drawn:
        n = 64
        rates, counts = torch.randn(n, 20), (torch.exp(2 * torch.randn(n, 10)) - 7.4) / 54
        rare = torch.where(torch.rand(n, 7) < 0.01, 10.0, -0.1)
        protocol, service, flag = torch.randint(3, (n,)), torch.randint(40, (n,)), torch.randint(11, (n,))
        x = torch.cat([rates, counts, rare, F.one_hot(protocol, 3), F.one_hot(service, 40), F.one_hot(flag, 11)], 1)
        return (x,), ((rates[:, 0] + rates[:, 1] * (protocol - 1) + (flag > 5) * 2 - 1) > 0).float().unsqueeze(1)

    return stream(MLP(91), draw, F.binary_cross_entropy_with_logits)


@healthy("gated genomic ResNet", GITHUB + "hoso-jpn/genomic-prediction-resnet-hybrid/blob/main/model.py")
def genomic(_: bool) -> Task:
    """A line of markers by a linear path and, gated by tanh(0.3), by convolutions with dropout 0.4."""

    class Res(nn.Module):
        def __init__(self, c, k=7, p=0.4):
            super().__init__()
            self.block = chain(
                nn.Conv1d(c, c, k, padding=k // 2),
                nn.BatchNorm1d(c),
                nn.GELU(),
                nn.Dropout(p),
                nn.Conv1d(c, c, k, padding=k // 2),
                nn.BatchNorm1d(c),
            )

        def forward(self, x):
            return x + self.block(x)

    class Net(nn.Module):
        def __init__(self, i=60, h=16, blocks=3):
            super().__init__()
            self.linear_path = nn.Linear(i, 1)
            self.cnn_path = chain(nn.Conv1d(1, h, 1), nn.BatchNorm1d(h), nn.GELU(), *(Res(h) for _ in range(blocks)))
            self.global_avg_pool, self.nonlinear_output = nn.AdaptiveAvgPool1d(1), nn.Linear(h, 1, bias=False)
            self.gate = nn.Parameter(torch.tensor([0.3]))

        def forward(self, x):
            pooled = self.global_avg_pool(self.cnn_path(x.unsqueeze(1))).squeeze(-1)
            return self.linear_path(x) + self.nonlinear_output(pooled) * torch.tanh(self.gate)

    effect = torch.randn(60, 1, generator=torch.Generator().manual_seed(2)) / 60**0.5

    def draw() -> Drawn:
        x = torch.randn(32, 60)
        return (x,), x @ effect + 0.3 * torch.randn(32, 1)

    return stream(Net(), draw, F.mse_loss)


@healthy(
    "credit default transformer", GITHUB + "abailey81/credit-default-tabular-transformer/blob/main/src/models/model.py"
)
def credit(_: bool) -> Task:  # noqa: C901
    """[CLS], 3 categories, 6 payment states with severities and 14 numbers as tokens; focal loss, gamma 2, balanced
    alphas."""

    class Attention(nn.Module):
        def __init__(self, d, heads, p):
            super().__init__()
            self.heads, self.dropout = heads, nn.Dropout(p)
            self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d, d) for _ in range(4))
            for w in (self.W_Q, self.W_K, self.W_V, self.W_O):
                nn.init.xavier_normal_(w.weight)
                nn.init.zeros_(w.bias)

        def forward(self, x):
            q, k, v = (w(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for w in (self.W_Q, self.W_K, self.W_V))
            a = self.dropout(F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1))
            return self.W_O((a @ v).transpose(1, 2).contiguous().view(x.shape))

    class Block(nn.Module):
        def __init__(self, d, heads, p):
            super().__init__()
            self.ln1, self.attention, self.ln2 = nn.LayerNorm(d), Attention(d, heads, p), nn.LayerNorm(d)
            self.residual_dropout = nn.Dropout(p)
            self.ffn = chain(nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(p), nn.Linear(4 * d, d))
            nn.init.kaiming_normal_(self.ffn[0].weight, nonlinearity="relu")
            nn.init.zeros_(self.ffn[0].bias)
            nn.init.xavier_normal_(self.ffn[3].weight)
            nn.init.zeros_(self.ffn[3].bias)

        def forward(self, x):
            x = x + self.residual_dropout(self.attention(self.ln1(x)))
            return x + self.residual_dropout(self.ffn(self.ln2(x)))

    class Net(nn.Module):
        def __init__(self, d=32, heads=4, layers=2, p=0.1, vocabularies=(2, 4, 3)):
            super().__init__()
            self.cat_embeddings = nn.ModuleList(nn.Embedding(v, d) for v in vocabularies)
            self.pay_state_embedding, self.pay_severity_proj = nn.Embedding(4, d), nn.Linear(1, d)
            self.num_feature_embedding, self.value_proj = nn.Embedding(14, d), nn.Linear(1, d)
            self.pos_embedding = nn.Embedding(24, d)
            self.cls_token, self.norm = nn.Parameter(torch.randn(1, 1, d) * 0.02), nn.LayerNorm(d)
            self.dropout = nn.Dropout(p)
            for m in self.modules():
                if isinstance(m, nn.Embedding):
                    nn.init.normal_(m.weight, std=0.02)
                if isinstance(m, nn.Linear):
                    nn.init.xavier_normal_(m.weight)
                    nn.init.zeros_(m.bias)
            self.blocks, self.head_norm = nn.ModuleList(Block(d, heads, p) for _ in range(layers)), nn.LayerNorm(d)
            self.classifier = chain(nn.Linear(d, d), nn.GELU(), nn.Dropout(p), nn.Linear(d, 1))
            nn.init.kaiming_normal_(self.classifier[0].weight, nonlinearity="relu")
            nn.init.zeros_(self.classifier[0].bias)
            nn.init.xavier_normal_(self.classifier[3].weight)
            nn.init.zeros_(self.classifier[3].bias)

        def forward(self, cat, state, severity, number):
            tokens = [
                torch.stack([e(cat[:, i]) for i, e in enumerate(self.cat_embeddings)], 1),
                self.pay_state_embedding(state) + self.pay_severity_proj(severity.unsqueeze(-1)),
                self.value_proj(number.unsqueeze(-1)) + self.num_feature_embedding.weight,
            ]
            x = torch.cat([self.cls_token.expand(len(cat), -1, -1), *tokens], 1) + self.pos_embedding.weight
            x = self.dropout(self.norm(x))
            for block in self.blocks:
                x = block(x)
            return {"logit": self.classifier(self.head_norm(x[:, 0])).squeeze(-1)}

    def draw() -> Drawn:
        n = 64
        cat = torch.stack([torch.randint(v, (n,)) for v in (2, 4, 3)], 1)
        state = torch.multinomial(torch.tensor([0.1, 0.2, 0.5, 0.2]), 6 * n, True).view(n, 6)
        number = torch.randn(n, 14)
        severity = torch.where(state == 3, torch.rand(n, 6), 0.0)
        score = 4 * severity[:, 0] + (state[:, 1] == 3).float() * 2 - number[:, 0] - 0.5 * number[:, 5]
        return (cat, state, severity, number), (score > 1.6).float()

    def loss(y, t):
        bce = F.binary_cross_entropy_with_logits(y["logit"], t, reduction="none")
        return ((0.779 * t + 0.221 * (1 - t)) * (1 - torch.exp(-bce)) ** 2 * bce).mean()

    return stream(Net(), draw, loss)


@healthy("shallow ANN with a sigmoid", GITHUB + "RohitXJ/deep-tabular-interpretability/blob/main/ANN_architecture.py")
def shallow(_: bool) -> Task:
    class Net(nn.Module):
        def __init__(self, i):
            super().__init__()
            self.layer1, self.relu1, self.layer2, self.relu2 = nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()
            self.output, self.sigmoid = nn.Linear(16, 1), nn.Sigmoid()

        def forward(self, x):
            return self.sigmoid(self.output(self.relu2(self.layer2(self.relu1(self.layer1(x))))))

    def draw() -> Drawn:
        x = torch.randn(32, 12)
        return (x,), (x[:, 0] + x[:, 1] - x[:, 2].abs() + 0.7 > 0).float().view(-1, 1)

    return stream(Net(12), draw, F.binary_cross_entropy)


@healthy("vanilla GCN for ZINC", GITHUB + "ayankashyap/GNN-pytorch/blob/main/gnn_pytorch/models.py")
def zinc(_: bool) -> Task:
    """Atoms, adjacencies of 0 and 1 without self-loops or norms, padding; a sum over atoms into a sigmoid, then a
    tanh."""

    class Conv(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Linear(d, d)

        def forward(self, x, adj):
            return F.relu(adj @ self.weight(x))

    class Net(nn.Module):
        def __init__(self, d=32, r=64, layers=4):
            super().__init__()
            self.gcn_stack = nn.ModuleList(Conv(d) for _ in range(layers))
            self.node_embd = nn.Embedding(29, d, padding_idx=28)
            self.w1, self.w2, self.w3, self.w4 = nn.Linear(d, r), nn.Linear(r, r), nn.Linear(r, r), nn.Linear(r, 1)
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.xavier_normal_(m.weight)
                    nn.init.zeros_(m.bias)

        def forward(self, atoms, adj):
            x = self.node_embd(atoms)
            for conv in self.gcn_stack:
                x = conv(x, adj)
            x = torch.sigmoid(F.relu(self.w1(x)).sum(1))
            return self.w4(torch.tanh(self.w3(F.relu(self.w2(x)))))

    def draw() -> Drawn:
        n, size = 64, 20
        count = torch.randint(9, size + 1, (n, 1))
        there = torch.arange(size) < count
        atoms = torch.multinomial(0.6 ** torch.arange(28.0), n * size, True).view(n, size).masked_fill(~there, 28)
        adj = torch.zeros(n, size, size)
        before = (torch.arange(size) - 1 - (torch.rand(n, size) < 0.25).long()).clamp(min=0)
        for i in range(1, size):
            adj[torch.arange(n), i, before[:, i]] = 1
        ring = torch.rand(n) < 0.5
        adj[ring, 5, 0] = 1
        adj = ((adj + adj.transpose(1, 2)) > 0).float() * there.unsqueeze(1) * there.unsqueeze(2)
        y = ((atoms == 0) & there).float().sum(1) * 0.25 - ((atoms == 1) & there).float().sum(1) * 0.4 - 0.5
        return (atoms, adj), y.view(-1, 1)

    return stream(Net(), draw, F.mse_loss)


@healthy("2D to 3D pose baseline", GITHUB + "InhoChang/simple-baseline-3d-pose-pytorch/blob/master/src/model.py")
def lifting(_: bool) -> Task:
    """Standardised joints in two and three dimensions; Kaiming, batch norms, dropout 0.5."""

    class Linear(nn.Module):
        def __init__(self, n, p):
            super().__init__()
            self.relu, self.dropout = nn.ReLU(inplace=True), nn.Dropout(p)
            self.w1, self.batch_norm1, self.w2 = nn.Linear(n, n), nn.BatchNorm1d(n), nn.Linear(n, n)
            self.batch_norm2 = nn.BatchNorm1d(n)

        def forward(self, x):
            y = self.dropout(self.relu(self.batch_norm1(self.w1(x))))
            return x + self.dropout(self.relu(self.batch_norm2(self.w2(y))))

    class Net(nn.Module):
        def __init__(self, n=96, p=0.5):
            super().__init__()
            self.w1, self.batch_norm1, self.w2 = nn.Linear(32, n), nn.BatchNorm1d(n), nn.Linear(n, 48)
            self.linear_stages, self.relu = nn.ModuleList(Linear(n, p) for _ in range(2)), nn.ReLU(inplace=True)
            self.dropout = nn.Dropout(p)
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.kaiming_normal_(m.weight)

        def forward(self, x):
            y = self.dropout(self.relu(self.batch_norm1(self.w1(x))))
            for stage in self.linear_stages:
                y = stage(y)
            return self.w2(y)

    basis = torch.randn(5, 48, generator=torch.Generator().manual_seed(4)) / 5**0.5

    def draw() -> Drawn:
        pose = torch.randn(64, 5) @ basis
        x = pose.view(64, 16, 3)
        flat = x[..., :2] * (1 + 0.1 * x[..., 2:])
        return (flat.reshape(64, 32),), pose

    return stream(Net(), draw, F.mse_loss)


@healthy("music genre CNN", GITHUB + "arshiakamyabian/pytorch-audio-project/blob/main/model.py")
def genre(_: bool) -> Task:
    """Mel spectrograms in decibels, unscaled, with masked bands."""

    class Net(nn.Module):
        def __init__(self, out, c=(8, 16, 32)):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, c[0], 3, padding=1), nn.BatchNorm2d(c[0])
            self.conv2, self.bn2 = nn.Conv2d(c[0], c[1], 3, padding=1), nn.BatchNorm2d(c[1])
            self.conv3, self.bn3 = nn.Conv2d(c[1], c[2], 3, padding=1), nn.BatchNorm2d(c[2])
            self.pool, self.gap, self.relu = nn.MaxPool2d(2, 2), nn.AdaptiveAvgPool2d((4, 4)), nn.ReLU()
            self.dropout = nn.Dropout(0.4)
            self.fc1, self.bn4, self.fc2 = nn.Linear(c[2] * 16, 64), nn.BatchNorm1d(64), nn.Linear(64, out)

        def forward(self, x):
            for conv, bn in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
                x = self.pool(self.relu(bn(conv(x))))
            x = self.dropout(self.gap(x).view(len(x), -1))
            return self.fc2(self.dropout(self.relu(self.bn4(self.fc1(x)))))

    def draw() -> Drawn:
        n, c = 32, torch.randint(10, (32,))
        mel, time = torch.arange(32.0).view(1, -1, 1), torch.arange(48.0).view(1, 1, -1)
        k = c.view(-1, 1, 1)
        power = torch.exp(-((mel - 4 - 5 * (k % 5)) ** 2) / 20) * (
            1 + torch.sin(time * (0.3 + 0.5 * (k // 5)) + 6 * torch.rand(n, 1, 1))
        )
        x = (
            (10 * torch.log10(30 * (power + 0.02 * torch.rand(n, 32, 48) ** 4) * torch.exp(-mel / 10)))
            .clamp(min=-80)
            .unsqueeze(1)
        )
        for i in range(n):
            a, b = int(torch.randint(40, ())), int(torch.randint(28, ()))
            x[i, :, :, a : a + int(torch.randint(8, ()))] = 0
            x[i, :, b : b + int(torch.randint(4, ()))] = 0
        return (x,), c

    return stream(Net(10), draw, F.cross_entropy)


@healthy(
    "audio emotion pyramid with mixup", GITHUB + "suicao/Pytorch-Audio-Emotion-Recognition/blob/master/model_m1.py"
)
def emotion(_: bool) -> Task:
    """Mel spectrograms as images, pixels 0 to 1; averages and maxima of three depths; targets are both classes and
    the share."""

    class Block(nn.Module):
        def __init__(self, i, o, pool=True):
            super().__init__()
            self.pool = pool
            self.conv1 = chain(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            self.conv2 = chain(nn.Conv2d(o + i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight)
                    nn.init.zeros_(m.bias)

        def forward(self, x):
            x = self.conv2(torch.cat([x, self.conv1(x)], 1))
            return F.avg_pool2d(x, 2) if self.pool else x

    class Net(nn.Module):
        def __init__(self, classes=6, c=8):
            super().__init__()
            self.conv1, self.conv2, self.conv3 = Block(1, c), Block(c, 2 * c), Block(2 * c, 4 * c)
            self.conv4 = Block(4 * c, 4 * c, pool=False)
            self.fc = chain(
                nn.BatchNorm1d(20 * c), nn.Linear(20 * c, 64), nn.PReLU(), nn.BatchNorm1d(64), nn.Linear(64, classes)
            )

        def forward(self, x):
            x2 = self.conv2(self.conv1(x))
            x3 = self.conv3(x2)

            def both(a):
                return torch.cat([F.adaptive_avg_pool2d(a, 1).flatten(1), F.adaptive_max_pool2d(a, 1).flatten(1)], 1)

            return self.fc(torch.cat([both(x2), both(x3), both(self.conv4(x3))], 1))

    beta = torch.distributions.Beta(0.4, 0.4)

    def draw() -> Drawn:
        c, n = torch.randint(6, (32,)), 32
        mel, time = torch.arange(24.0).view(1, -1, 1) / 24, torch.arange(24.0).view(1, 1, -1) / 24
        x = (
            0.5
            + 0.4 * torch.sin(20 * mel + (c.view(-1, 1, 1) - 2.5) * 6 * time + 6 * torch.rand(n, 1, 1))
            + 0.1 * torch.rand(n, 24, 24)
        )
        x = (x.clamp(0, 1) * 255).round().unsqueeze(1) / 255
        lam, order = beta.sample(), torch.randperm(n)
        return (lam * x + (1 - lam) * x[order],), (c, c[order], lam.expand(n))

    def loss(y, t):
        a, b, lam = t
        return lam[0] * F.cross_entropy(y, a) + (1 - lam[0]) * F.cross_entropy(y, b)

    return stream(Net(), draw, loss)


@healthy("music VAE of piano rolls", GITHUB + "Yurnero58/music-generation-unsupervised/blob/main/src/models/vae.py")
def musicvae(_: bool) -> Task:
    """Rolls of 0 and 1, teacher forcing at 0.8 step by step, a sigmoid with BCE summed over all but the batch; beta
    starts at 0."""

    class Net(nn.Module):
        def __init__(self, i=24, h=32, z=16):
            super().__init__()
            self.encoder, self.fc_mu = nn.LSTM(i, h, batch_first=True, bidirectional=True), nn.Linear(2 * h, z)
            self.fc_logvar = nn.Linear(2 * h, z)
            self.fc_dec_init, self.decoder = nn.Linear(z, h), nn.LSTM(i, h, batch_first=True)
            self.fc_out = nn.Linear(h, i)

        def forward(self, x):
            h = self.encoder(x)[1][0]
            h = torch.cat((h[-2], h[-1]), 1)
            mu, logvar = self.fc_mu(h), self.fc_logvar(h)
            h = self.fc_dec_init(mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)).unsqueeze(0)
            c, y, found = torch.zeros_like(h), torch.zeros_like(x[:, :1]), torch.zeros_like(x)
            for t in range(x.shape[1]):
                out, (h, c) = self.decoder(y, (h, c))
                p = torch.sigmoid(self.fc_out(out))
                found[:, t : t + 1] = p
                y = x[:, t : t + 1] if self.training and torch.rand(1).item() < 0.8 else p
            return found, mu, logvar

    def draw() -> Drawn:
        n, length = 48, 16
        root, step = torch.randint(12, (n, 1)), torch.randint(1, 4, (n, 1))
        low = (root + step * (torch.arange(length) // 4)) % 12
        x = torch.zeros(n, length, 24).scatter_(2, low.unsqueeze(-1), 1.0)
        x.scatter_(2, (low + 4 + 3 * (torch.arange(length) % 2)).clamp(max=23).unsqueeze(-1), 1.0)
        return (x,), x

    def loss(y, t, beta=0.0):
        recon = F.binary_cross_entropy(y[0], t.clamp(0, 1), reduction="sum")
        return (recon + beta * -0.5 * torch.sum(1 + y[2] - y[1].pow(2) - y[2].exp())) / len(t)

    return stream(Net(), draw, loss)


@healthy("factor transformer for returns", GITHUB + "initial-d/ml-quant-trading/blob/main/src/mlquant/models/nets.py")
def factors(_: bool) -> Task:
    """Each standardised factor a token; daily returns near 0.02 as they are; squares count 1.1 where the sign is
    wrong, else 0.1."""

    class Net(nn.Module):
        def __init__(self, i=16, d=32, heads=4, depth=2):
            super().__init__()
            self.proj, self.pos = nn.Linear(1, d), nn.Parameter(torch.randn(i, d) * 0.02)
            self.cls = nn.Parameter(torch.randn(1, d) * 0.02)
            layer = nn.TransformerEncoderLayer(d, heads, 4 * d, 0.1, batch_first=True, activation="gelu")
            self.encoder, self.head = nn.TransformerEncoder(layer, depth), nn.Linear(d, 1)

        def forward(self, x):
            tokens = self.proj(x.unsqueeze(-1)) + self.pos
            return self.head(self.encoder(torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1))[:, 0]).squeeze(-1)

    def draw() -> Drawn:
        x = torch.randn(64, 16)
        return (x,), 0.015 * x[:, 0] - 0.01 * x[:, 3] + 0.01 * torch.randn(64)

    def loss(y, t):
        return ((y - t) ** 2 * torch.where(y * t > 0, 0.1, 1.1)).mean()

    return stream(Net(), draw, loss)


@healthy(
    "PINN of a damped oscillation",
    GITHUB + "hungtrannam/Physics-Informed-Neural-for-damped-oscillation/blob/main/models/PINN.py",
)
def pinn(_: bool) -> Task:
    """Times 0 to 15 as they are, six layers of swish; the equation's residual, the start, and ten noisy
    measurements."""

    class Net(nn.Module):
        def __init__(self, n=32, hidden=6):
            super().__init__()
            self.input_layer, self.output_layer, self.dropout = nn.Linear(1, n), nn.Linear(n, 1), nn.Dropout(0.0)
            self.hidden_layers = nn.ModuleList(nn.Linear(n, n) for _ in range(hidden))

        def u(self, t):
            x = self.dropout(F.silu(self.input_layer(t)))
            for layer in self.hidden_layers:
                x = self.dropout(F.silu(layer(x)))
            return self.output_layer(x)

        def forward(self, t):
            with torch.enable_grad():
                t = t if t.requires_grad else t.detach().requires_grad_()
                u = self.u(t)
                u1 = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
                return u, u1, torch.autograd.grad(u1, t, torch.ones_like(u1), create_graph=True)[0]

    model, gamma, omega = Net(), 0.3, 3.0

    def exact(t):
        return torch.exp(-gamma * t) * torch.cos(omega * t)

    known = torch.tensor([0, 2.5, 1.25, 3.75, 0.625, 3.125, 1.875, 4.375, 0.3125, 2.8125]).view(-1, 1)
    seen = exact(known) + 0.05 * torch.randn(known.shape, generator=torch.Generator().manual_seed(1))

    def draw() -> Drawn:
        t = torch.linspace(0, 15, 64).view(-1, 1)
        return (t,), torch.zeros(64, 1)

    def loss(y, t):
        u, u1, u2 = y
        start = model(torch.zeros(1, 1))
        return (
            ((u2 + 2 * gamma * u1 + omega**2 * u - t) ** 2).mean()
            + ((start[0] - 1) ** 2).mean()
            + (start[1] ** 2).mean()
            + F.mse_loss(model.u(known), seen)
        )

    return stream(model, draw, loss)


@healthy("FSRCNN of another author", GITHUB + "vkhoi/Super-Resolution-PyTorch/blob/master/FSRCNN/model.py")
def fsrcnn(_: bool) -> Task:
    def conv(i, o, k):
        return (nn.Conv2d(i, o, k, padding=k // 2), nn.PReLU())

    model = nn.Sequential()
    model.extraction, model.shrink = chain(*conv(1, 56, 5)), chain(*conv(56, 12, 1))
    model.nonlinear_map, model.expand = chain(*(m for _ in range(4) for m in conv(12, 12, 3))), chain(*conv(12, 56, 1))
    model.deconv = nn.ConvTranspose2d(56, 1, 9, padding=4, stride=2, output_padding=1)

    def draw() -> Drawn:
        x = pixels(16, 16)[0]
        return (F.avg_pool2d(x, 2),), x

    return stream(model, draw, F.mse_loss)


@healthy("PTB LSTM with tied weights", GITHUB + "kaiwinut/nlp-pytorch/blob/main/pytorch_ptb.py")
def ptb(_: bool) -> Task:
    class Net(nn.Module):
        def __init__(self, vocabulary, d=48, p=0.5):
            super().__init__()
            self.embeddings, self.drop1 = nn.Embedding(vocabulary, d), nn.Dropout(p)
            self.lstm1 = nn.LSTM(d, d, batch_first=True)
            self.drop2, self.lstm2 = nn.Dropout(p), nn.LSTM(d, d, batch_first=True)
            self.drop3, self.fc = nn.Dropout(p), nn.Linear(d, vocabulary)
            nn.init.normal_(self.embeddings.weight, std=0.01)
            for lstm in (self.lstm1, self.lstm2):
                for w in (lstm.weight_ih_l0, lstm.weight_hh_l0):
                    nn.init.normal_(w, std=1 / math.sqrt(d))
                for b in (lstm.bias_ih_l0, lstm.bias_hh_l0):
                    nn.init.zeros_(b)
            self.fc.weight = self.embeddings.weight
            nn.init.zeros_(self.fc.bias)

        def forward(self, x, hidden1=None, hidden2=None):
            out, hidden1 = self.lstm1(self.drop1(self.embeddings(x)), hidden1)
            out, hidden2 = self.lstm2(self.drop2(out), hidden2)
            return self.fc(self.drop3(out)), hidden1, hidden2

    seeds = iter(range(10**9))

    def draw() -> Drawn:
        x, y = text(20, 35, 128, seed=next(seeds))
        return (x,), y

    return stream(Net(128), draw, lambda y, t: F.cross_entropy(y[0].reshape(-1, 128), t.reshape(-1)))


@healthy("continuous bag of words", GITHUB + "kaiwinut/nlp-pytorch/blob/main/cbow.py")
def cbow(_: bool) -> Task:
    class CBOW(nn.Module):
        def __init__(self, vocabulary, d, context):
            super().__init__()
            self.embeddings, self.linear1 = nn.Embedding(vocabulary, d), nn.Linear(d * context * 2, 128)
            self.linear2 = nn.Linear(128, vocabulary)

        def forward(self, x):
            return F.log_softmax(self.linear2(F.relu(self.linear1(self.embeddings(x).view(len(x), -1)))), dim=1)

    whole = torch.cat(text(3, 24, 50, seed=5), 1).view(-1)

    def draw() -> Drawn:
        i = torch.randint(2, len(whole) - 2, (32,))
        return (torch.stack([whole[i - 1], whole[i - 2], whole[i + 1], whole[i + 2]], 1),), whole[i]

    return stream(CBOW(50, 10, 2), draw, F.nll_loss)


@healthy("diffusion U-Net of MNIST", GITHUB + "alex-vesel/diffusion-mnist/blob/main/models/unet.py")
def diffusion(_: bool) -> Task:
    """ReLU before the batch norms; steps 1 to 1000 in sines; the noise to be found is N(0, 1)."""

    class Block(nn.Module):
        def __init__(self, i, o, t, up=False):
            super().__init__()
            self.time_mlp, self.conv1 = nn.Linear(t, o), nn.Conv2d(2 * i if up else i, o, 3, padding=1)
            self.transform = (nn.ConvTranspose2d if up else nn.Conv2d)(o, o, 4, 2, 1)
            self.conv2, self.bnorm1, self.bnorm2 = nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.BatchNorm2d(o)
            self.relu = nn.ReLU()

        def forward(self, x, t):
            h = self.bnorm1(self.relu(self.conv1(x))) + self.relu(self.time_mlp(t))[..., None, None]
            return self.transform(self.bnorm2(self.relu(self.conv2(h))))

    class Sines(nn.Module):
        def forward(self, time, half=16):
            e = time[:, None] * torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))[None]
            return torch.cat((e.sin(), e.cos()), -1)

    class Net(nn.Module):
        def __init__(self, c=(8, 16, 24, 32)):
            super().__init__()
            self.time_mlp, self.conv0 = chain(Sines(), nn.Linear(32, 32), nn.ReLU()), nn.Conv2d(1, c[0], 3, padding=1)
            self.downs = nn.ModuleList(Block(a, b, 32) for a, b in itertools.pairwise(c))
            self.ups = nn.ModuleList(Block(a, b, 32, up=True) for a, b in zip(c[::-1], c[-2::-1], strict=False))
            self.output = nn.Conv2d(c[0], 1, 1)

        def forward(self, x, timestep):
            t, x, kept = self.time_mlp(timestep), self.conv0(x), []
            for down in self.downs:
                x = down(x, t)
                kept.append(x)
            for up in self.ups:
                x = up(torch.cat((x, kept.pop()), 1), t)
            return self.output(x)

    bar = torch.cumprod(1 - (1e-3 + (0.02 - 1e-3) * torch.arange(1, 1001) / 1000), 0)

    def draw() -> Drawn:
        x, t = pixels(32, 16)[0] * 2 - 1, torch.randint(1, 1001, (32,))
        a, noise = bar[t - 1].view(-1, 1, 1, 1), torch.randn(32, 1, 16, 16)
        return (a.sqrt() * x + (1 - a).sqrt() * noise, t.float()), noise

    return stream(Net(), draw, F.mse_loss)


@healthy("ResNet-18 of CIFAR", GITHUB + "kaejong2/ResNet-pytorch/blob/main/model/resnet.py")
def resnet18(_: bool) -> Task:
    class Basic(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.shortcut = (
                chain(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s != 1 or i != o else nn.Sequential()
            )

        def forward(self, x):
            out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            out += self.shortcut(x)
            return F.relu(out)

    class Net(nn.Module):
        def __init__(self, c=4, classes=10):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c)

            def make(i, o, s):
                return chain(Basic(i, o, s), Basic(o, o, 1))

            self.layer1, self.layer2, self.layer3 = make(c, c, 1), make(c, 2 * c, 2), make(2 * c, 4 * c, 2)
            self.layer4 = make(4 * c, 8 * c, 2)
            self.linear = nn.Linear(8 * c, classes)

        def forward(self, x):
            out = self.layer4(self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))))
            return self.linear(F.avg_pool2d(out, 4).view(len(x), -1))

    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

    def draw() -> Drawn:
        x, c = pixels(32, 32, 3)
        return ((x - mean) / std,), c

    return stream(Net(), draw, F.cross_entropy)


@healthy(
    "translation with nn.Transformer",
    GITHUB + "abderrahmenex86/Machine-Translation-PyTorch/blob/main/src/transformer.py",
)
def translation(_: bool) -> Task:
    """Both sides padded; embeddings times sqrt(d), sines, masks; labels smoothed by 0.1, padding ignored."""

    class Net(nn.Module):
        def __init__(self, vocabulary, d=32, heads=4):
            super().__init__()
            self.d_model, self.src_embedding = d, nn.Embedding(vocabulary, d)
            self.tgt_embedding = nn.Embedding(vocabulary, d)
            at = torch.arange(50.0).unsqueeze(1) * torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
            self.register_buffer("pe", torch.stack([at.sin(), at.cos()], -1).flatten(1))
            self.transformer = nn.Transformer(d, heads, 2, 2, 64, 0.1, batch_first=True)
            self.fc_out = nn.Linear(d, vocabulary)

        def forward(self, src, tgt):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), dtype=torch.bool)
            a, b = (
                e(x) * math.sqrt(self.d_model) + self.pe[: x.size(1)]
                for e, x in ((self.src_embedding, src), (self.tgt_embedding, tgt))
            )
            return self.fc_out(
                self.transformer(
                    a,
                    b,
                    tgt_mask=mask,
                    src_key_padding_mask=src == 0,
                    tgt_key_padding_mask=tgt == 0,
                    memory_key_padding_mask=src == 0,
                )
            )

    def draw() -> Drawn:
        n, length = 48, 8
        end = torch.randint(4, length + 1, (n, 1))
        src = torch.randint(3, 20, (n, length)).masked_fill(torch.arange(length) >= end, 0)
        tgt = torch.cat([torch.ones(n, 1).long(), 22 - src, torch.zeros(n, 1).long()], 1)
        tgt[:, 1:-1][src == 0] = 0
        tgt.scatter_(1, end + 1, 2)
        return (src, tgt[:, :-1].contiguous()), tgt[:, 1:].contiguous()

    def loss(y, t):
        return F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1), ignore_index=0, label_smoothing=0.1)

    return stream(Net(20), draw, loss)


@healthy("AlphaZero of sugar gliders", GITHUB + "leonardkuech/AlphaZero/blob/main/src/alpha_zero/CNN.py")
def gliders(_: bool) -> Task:
    """A softmax whose logarithm the loss takes, and a tanh; the squared errors (n, 1) are added to the entropies
    (n)."""

    class Basic(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
            self.activation = nn.SiLU(inplace=True)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
            self.downsample = nn.Conv2d(i, o, 1, bias=False) if i != o else None

        def forward(self, x):
            out = self.bn2(self.conv2(self.activation(self.bn1(self.conv1(x)))))
            out += x if self.downsample is None else self.downsample(x)
            return self.activation(out)

    class Net(nn.Module):
        def __init__(self, c=12, moves=40, features=5):
            super().__init__()
            self.cnn1 = chain(nn.Conv2d(8, c, 3, padding=1), nn.BatchNorm2d(c), nn.SiLU())
            self.blocks = nn.ModuleList([Basic(c, c), Basic(c, 2 * c), Basic(2 * c, 2 * c)])
            self.avg_pool, self.flatten = nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()
            self.in_projection = chain(
                nn.BatchNorm1d(2 * features), nn.Linear(2 * features, 2 * c), nn.BatchNorm1d(2 * c), nn.SiLU()
            )
            self.fc_shared = chain(nn.Linear(2 * c, 100), nn.BatchNorm1d(100), nn.SiLU(), nn.Dropout(0.1))
            self.value_head = chain(nn.Linear(100, 1), nn.Tanh())
            self.policy_head = chain(nn.Linear(100, moves), nn.Softmax(dim=1))

        def forward(self, board, one, two):
            x = self.cnn1(board)
            for block in self.blocks:
                x = block(x)
            x = self.fc_shared(self.flatten(self.avg_pool(x)) + self.in_projection(torch.cat((one, two), 1)))
            return self.policy_head(x), self.value_head(x)

    def draw() -> Drawn:
        n = 32
        board = torch.zeros(n, 8, 9, 9)
        board[:, :6] = (torch.rand(n, 6, 9, 9) < 0.12).float()
        turn = torch.randint(2, (n,))
        board[torch.arange(n), 6 + turn] = 1
        one, two = torch.randint(6, (n, 5)).float(), torch.randint(6, (n, 5)).float()
        ahead = one.sum(1) - two.sum(1)
        prefer = torch.cat([one, two, board[:, :6].sum((2, 3)) / 3, torch.zeros(n, 24)], 1) + 3 * F.one_hot(
            turn + 20, 40
        )
        return (board, one, two), ((1.5 * prefer).softmax(1), ahead.sign().unsqueeze(1))

    def loss(y, t):
        policy = -(t[0] * torch.log(y[0] + 1e-7)).sum(dim=1)
        return ((y[1] - t[1]).pow(2) + policy).mean()

    return stream(Net(), draw, loss)


@healthy(
    "light PointNet of lidar",
    GITHUB + "marionacaros/3D-object-segmentation-light-PointNet/blob/main/pointNet/model/light_pointnet.py",
)
def lidar(_: bool) -> Task:  # noqa: C901
    """A T-net turns x and y only, another the features; weighted NLL of each point and 0.001 of a norm that keeps
    them orthogonal."""

    class TNet(nn.Module):
        def __init__(self, i, o, c=(16, 24, 32)):
            super().__init__()
            self.output_dim, sizes = o, (i, *c)
            self.convs = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in zip(sizes, c, strict=False))
            self.bns = nn.ModuleList(nn.BatchNorm1d(b) for b in c)
            self.fc_1, self.fc_2, self.fc_3 = nn.Linear(32, 32), nn.Linear(32, 24), nn.Linear(24, o * o)
            self.bn_4, self.bn_5 = nn.BatchNorm1d(32), nn.BatchNorm1d(24)

        def forward(self, x):
            x = x.transpose(2, 1)
            for conv, bn in zip(self.convs, self.bns, strict=False):
                x = F.relu(bn(conv(x)))
            x = F.relu(self.bn_5(self.fc_2(F.relu(self.bn_4(self.fc_1(x.max(2)[0]))))))
            return self.fc_3(x).view(-1, self.output_dim, self.output_dim) + torch.eye(self.output_dim)

    class Net(nn.Module):
        def __init__(self, c=16):
            super().__init__()
            self.input_transform, self.feature_transform = TNet(2, 2), TNet(c, c)

            def make(*s):
                return nn.ModuleList(
                    chain(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()) for a, b in itertools.pairwise(s)
                )

            self.first, self.second, self.head = make(7, c, c), make(c, c, 32, 48), make(48 + c, 48, 32, 16)
            self.last = nn.Conv1d(16, 2, 1)

        def forward(self, x):
            x = torch.cat([torch.bmm(x[:, :, :2], self.input_transform(x[:, :, :2])), x[:, :, 2:]], 2).transpose(2, 1)
            for f in self.first:
                x = f(x)
            turn = self.feature_transform(x.transpose(2, 1))
            local = x = torch.bmm(x.transpose(2, 1), turn).transpose(2, 1)
            for f in self.second:
                x = f(x)
            x = torch.cat([x.max(2, keepdim=True)[0].expand(-1, -1, local.shape[2]), local], 1)
            for f in self.head:
                x = f(x)
            return F.log_softmax(self.last(x).transpose(2, 1), dim=-1), turn

    def draw() -> Drawn:
        n, points = 16, 64
        place = torch.rand(n, 1, 2)
        tower = torch.rand(n, points) < 0.25
        xy = torch.where(tower.unsqueeze(-1), place + 0.03 * torch.randn(n, points, 2), torch.rand(n, points, 2))
        z = torch.where(tower, torch.rand(n, points), 0.3 * torch.rand(n, points) ** 2).unsqueeze(-1)
        return (torch.cat([xy, z, torch.rand(n, points, 4)], 2),), tower.long()

    def loss(y, t):
        weight = 1 / torch.bincount(t.flatten(), minlength=2).clamp(min=1)
        norm = torch.norm(torch.eye(y[1].shape[-1]) - torch.bmm(y[1], y[1].transpose(2, 1)))
        return F.nll_loss(y[0].reshape(-1, 2), t.flatten(), weight=weight / weight.sum() * 2) + 0.001 * norm

    return stream(Net(), draw, loss)


@healthy("biomedical U-Net without padding", GITHUB + "alexionby/Biomedical-Pytorch/blob/master/model.py")
def biomedical(_: bool) -> Task:
    """Batch norms after the ReLUs, average pools, transposed convolutions, cropped bridges; the output is smaller
    than the image."""

    def conv(i, o):
        return (nn.Conv2d(i, o, 3), nn.ReLU(), nn.BatchNorm2d(o))

    class Net(nn.Module):
        def __init__(self, depth=3, wf=3):
            super().__init__()
            sizes = [3, *(2 ** (wf + i) for i in range(depth))]
            self.down_path = nn.ModuleList(chain(*conv(a, b), *conv(b, b)) for a, b in itertools.pairwise(sizes))
            self.up = nn.ModuleList(
                nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes[-2:0:-1], sizes[:1:-1], strict=False)
            )
            self.up_path = nn.ModuleList(
                chain(*conv(b, a), *conv(a, a)) for a, b in zip(sizes[-2:0:-1], sizes[:1:-1], strict=False)
            )
            self.last = nn.Conv2d(sizes[1], 1, 1)

        def forward(self, x):
            kept = []
            for i, down in enumerate(self.down_path):
                x = down(x if i == 0 else F.avg_pool2d(x, 2))
                kept.append(x)
            for up, block, bridge in zip(self.up, self.up_path, kept[-2::-1], strict=False):
                x = up(x)
                at = (bridge.shape[2] - x.shape[2]) // 2
                x = block(torch.cat([x, bridge[:, :, at : at + x.shape[2], at : at + x.shape[2]]], 1))
            return self.last(x)

    def draw() -> Drawn:
        x, m = scene(16, 24, 3)
        return (F.pad(x, (18, 18, 18, 18)) + 0.1 * torch.rand(16, 3, 60, 60),), m[:, :, 2:22, 2:22].contiguous()

    return stream(Net(), draw, F.binary_cross_entropy_with_logits)


@healthy("stacked hourglass", GITHUB + "vpromise/2d-pose-pytorch/blob/master/network/StackedHourGlass.py")
def hourglass(_: bool) -> Task:  # noqa: C901
    """Batch norm and ReLU come first, on the pixels too; heatmaps of each stack against Gaussians of peak 1."""

    class BRC(nn.Module):
        def __init__(self, i, o, k=1, s=1, p=0):
            super().__init__()
            self.bn, self.conv, self.relu = nn.BatchNorm2d(i), nn.Conv2d(i, o, k, s, p), nn.ReLU()

        def forward(self, x):
            return self.conv(self.relu(self.bn(x)))

    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.cb = chain(BRC(i, o // 2), BRC(o // 2, o // 2, 3, 1, 1), BRC(o // 2, o))
            self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x):
            return self.cb(x) + self.skip(x)

    class Glass(nn.Module):
        def __init__(self, n, depth):
            super().__init__()
            self.skip, self.mp, self.afterpool, self.lowres = Res(n, n), nn.MaxPool2d(2, 2), Res(n, n), Res(n, n)
            self.hg = Glass(n, depth - 1) if depth > 1 else Res(n, n)

        def forward(self, x):
            y = self.lowres(self.hg(self.afterpool(self.mp(x))))
            return y.repeat_interleave(2, 2).repeat_interleave(2, 3) + self.skip(x)

    class Net(nn.Module):
        def __init__(self, n=16, stacks=2, joints=3):
            super().__init__()
            self.start, self.res = BRC(1, 8, 7, 1, 3), chain(Res(8, 16), Res(16, 16), Res(16, n))

            def make(f):
                return nn.ModuleList(f() for _ in range(stacks))

            self.hourglass, self.Residual = make(lambda: Glass(n, 2)), make(lambda: Res(n, n))
            self.lin1 = make(lambda: BRC(n, n))
            self.chantojoints, self.lin2 = make(lambda: nn.Conv2d(n, joints, 1)), make(lambda: nn.Conv2d(n, n, 1))
            self.jointstochan = make(lambda: nn.Conv2d(joints, n, 1))

        def forward(self, x):
            x, out = self.res(self.start(x)), []
            for hg, res, lin1, joints, lin2, back in zip(
                self.hourglass, self.Residual, self.lin1, self.chantojoints, self.lin2, self.jointstochan, strict=False
            ):
                y = lin1(res(hg(x)))
                out.append(joints(y))
                x = x + lin2(y) + back(out[-1])
            return out

    def draw() -> Drawn:
        n, at = 16, torch.randint(3, 13, (16, 3, 2))
        grid = torch.stack(torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij"), -1)
        far = ((grid - at.view(n, 3, 1, 1, 2)) ** 2).sum(-1)
        flat = (grid - at.view(n, 3, 1, 1, 2)).abs()
        image = torch.where(
            torch.stack(
                [far[:, 0] < 5, flat[:, 1].amax(-1) < 2, (flat[:, 2, ..., 0] < 1) & (flat[:, 2, ..., 1] < 3)], 1
            ),
            0.9,
            0.0,
        )
        return (image.amax(1, keepdim=True) + 0.1 * torch.rand(n, 1, 16, 16),), torch.exp(-far / (2 * 1.5**2))

    return stream(Net(), draw, lambda y, t: sum(F.mse_loss(s, t) for s in y))


@healthy("TimeVAE", GITHUB + "wangyz1999/timeVAE-pytorch/blob/main/src/vae/timevae.py")
def timevae(_: bool) -> Task:
    """Series scaled to 0 to 1; a level and residuals; 3 times the squared errors, summed, and those of the means over
    features."""

    class Net(nn.Module):
        def __init__(self, length=24, features=3, sizes=(8, 16, 24), latent=6):
            super().__init__()
            io = list(zip((features, *sizes), sizes, strict=False))
            self.encoder = chain(*(m for i, o in io for m in (nn.Conv1d(i, o, 3, 2, 1), nn.ReLU())), nn.Flatten())
            self.sizes, self.shape, last = sizes, (length, features), sizes[-1] * (length // 8)
            self.z_mean, self.z_log_var = nn.Linear(last, latent), nn.Linear(last, latent)
            self.level_dense1, self.level_dense2 = nn.Linear(latent, features), nn.Linear(features, features)
            self.dense = nn.Linear(latent, last)
            self.deconv_layers = nn.ModuleList(nn.ConvTranspose1d(o, i, 3, 2, 1, 1) for i, o in io[::-1])
            self.final_dense = nn.Linear(features * length, length * features)
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.xavier_uniform_(m.weight)
                    nn.init.zeros_(m.bias)

        def forward(self, x):
            h = self.encoder(x.transpose(1, 2))
            mean, log_var = self.z_mean(h), self.z_log_var(h)
            z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
            y = F.relu(self.dense(z)).view(len(z), -1, self.sizes[-1]).transpose(1, 2)
            for deconv in self.deconv_layers:
                y = F.relu(deconv(y))
            level = self.level_dense2(F.relu(self.level_dense1(z))).unsqueeze(1)
            return level + self.final_dense(y.flatten(1)).view(-1, *self.shape), mean, log_var

    def draw() -> Drawn:
        t = torch.arange(24.0).view(1, -1, 1)
        x = (
            0.5
            + 0.3 * torch.sin(6.28 * t / 12 + 6 * torch.rand(32, 1, 1) + torch.arange(3)) * torch.rand(32, 1, 1)
            + 0.2 * (torch.rand(32, 1, 1) - 0.5)
        )
        return (x,), x

    def loss(y, t):
        recon = ((t - y[0]) ** 2).sum() + ((t.mean(2) - y[0].mean(2)) ** 2).sum()
        return 3 * recon - 0.5 * torch.sum(1 + y[2] - y[1].pow(2) - y[2].exp())

    return stream(Net(), draw, loss)


@healthy(
    "stock price LSTM",
    GITHUB + "jinglescode/time-series-forecasting-pytorch/blob/main/step_by_step_code_blocks/define_lstm_model.py",
)
def stock(_: bool) -> Task:
    """Windows of 20 standardised prices, the last states of both layers, and the next price."""

    class Net(nn.Module):
        def __init__(self, h=32, layers=2, p=0.2):
            super().__init__()
            self.linear_1, self.relu, self.lstm = nn.Linear(1, h), nn.ReLU(), nn.LSTM(h, h, layers, batch_first=True)
            self.dropout, self.linear_2 = nn.Dropout(p), nn.Linear(layers * h, 1)
            for n, w in self.lstm.named_parameters():
                (
                    nn.init.zeros_
                    if "bias" in n
                    else nn.init.kaiming_normal_
                    if "weight_ih" in n
                    else nn.init.orthogonal_
                )(w)

        def forward(self, x):
            h = self.lstm(self.relu(self.linear_1(x)))[1][0]
            return self.linear_2(self.dropout(h.permute(1, 0, 2).reshape(len(x), -1)))[:, -1]

    def draw() -> Drawn:
        x = 1.2 * torch.randn(64, 1) + (0.06 * torch.randn(64, 21)).cumsum(1)
        return (x[:, :20, None],), x[:, 20]

    return stream(Net(), draw, F.mse_loss)


@healthy("context encoder generator", GITHUB + "GodWriter/GAN-Pytorch/blob/master/context-encoder/model.py")
def context(_: bool) -> Task:
    """N(0, 0.02^2), batch norms with an eps of 0.8; 0.999 of L1 and 0.001 of a discriminator that this step leaves as
    it is."""

    def down(i, o, bn=True):
        return nn.Conv2d(i, o, 4, 2, 1), *[nn.BatchNorm2d(o, 0.8)] * bn, nn.LeakyReLU(0.2)

    def up(i, o):
        return nn.ConvTranspose2d(i, o, 4, 2, 1), nn.BatchNorm2d(o, 0.8), nn.ReLU()

    def block(i, o, s, norm=True):
        return nn.Conv2d(i, o, 3, s, 1), *[nn.InstanceNorm2d(o)] * norm, nn.LeakyReLU(0.2, inplace=True)

    model = chain(
        *down(3, 8, False),
        *down(8, 16),
        *down(16, 24),
        nn.Conv2d(24, 64, 1),
        *up(64, 24),
        *up(24, 16),
        nn.Conv2d(16, 3, 3, 1, 1),
        nn.Tanh(),
    )
    judge = chain(*block(3, 8, 2, False), *block(8, 16, 2), *block(16, 32, 1), nn.Conv2d(32, 1, 3, 1, 1))
    for m in (*model, *judge):
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(m.weight, 0.0, 0.02)
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.weight, 1.0, 0.02)
            nn.init.zeros_(m.bias)

    def draw() -> Drawn:
        x = (torch.randn(32, 3, 1, 1).sign() * (0.6 + 0.4 * torch.rand(32, 3, 1, 1))).expand(32, 3, 16, 16)
        masked = x.clone()
        masked[:, :, 4:12, 4:12] = 1
        return (masked,), x[:, :, 4:12, 4:12].contiguous()

    def loss(y, t):
        p = judge(y)
        return 0.001 * F.mse_loss(p, torch.ones_like(p)) + 0.999 * F.l1_loss(y, t)

    return stream(model, draw, loss)


@healthy(
    "speech commands LSTM",
    GITHUB + "felixchenfy/Speech-Commands-Classification-by-LSTM-PyTorch/blob/master/utils/lib_rnn.py",
)
def commands(_: bool) -> Task:
    """Twelve MFCCs as they are, the first near -300, with -200 before the word; the last of three LSTM layers
    decides."""

    class RNN(nn.Module):
        def __init__(self, i=12, h=40, layers=3, classes=5):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(i, h, layers, batch_first=True), nn.Linear(h, classes)

        def forward(self, x):
            start = torch.zeros(3, len(x), 40)
            return self.fc(self.lstm(x, (start, start.clone()))[0][:, -1, :])

    g = torch.Generator().manual_seed(6)
    scale = torch.tensor([80, 50, 30, 25, 20, 18, 15, 14, 12, 11, 10, 9.0])
    centre, voices = torch.tensor([-300, 90, 5, 25, -5, 10, -8, 4, -5, 2, -3, 1.0]), torch.randn(5, 3, 12, generator=g)

    def draw() -> Drawn:
        c, n, length = torch.randint(5, (16,)), 16, 40
        shape = voices[c].repeat_interleave(14, 1)[:, :length]
        x = centre + scale * (shape + 0.4 * torch.randn(n, length, 12))
        x[torch.arange(length) < torch.randint(0, 12, (n, 1))] = -200
        return (x,), c

    return stream(RNN(), draw, F.cross_entropy)


@healthy("SR-GNN of sessions", GITHUB + "fgriver/SR-GNN-pytorch/blob/main/model.py")
def srgnn(_: bool) -> Task:
    """Gated graph steps over each session's items, attention without a softmax; all parameters uniform, embeddings
    scored as weights."""

    class GNN(nn.Module):
        def __init__(self, h, step=2):
            super().__init__()

            def P(*s):  # noqa: N802
                return nn.Parameter(torch.empty(*s))

            self.step, self.wi, self.bi, self.wh, self.bh = step, P(3 * h, 2 * h), P(3 * h), P(3 * h, h), P(3 * h)
            self.b_iah, self.b_oah = P(h), P(h)
            self.linear_edge_in, self.linear_edge_out = nn.Linear(h, h), nn.Linear(h, h)

        def forward(self, A, x):
            for _ in range(self.step):
                n = A.shape[1]
                a = torch.cat(
                    [
                        A[:, :, :n] @ self.linear_edge_in(x) + self.b_iah,
                        A[:, :, n:] @ self.linear_edge_out(x) + self.b_oah,
                    ],
                    2,
                )
                ir, ii, inn = F.linear(a, self.wi, self.bi).chunk(3, 2)
                hr, hi, hn = F.linear(x, self.wh, self.bh).chunk(3, 2)
                gate = torch.sigmoid(ii + hi)
                x = (1 - gate) * x + gate * torch.tanh(torch.sigmoid(ir + hr) * hn + inn)
            return x

    class Net(nn.Module):
        def __init__(self, nodes, h=40):
            super().__init__()
            self.node_embedding, self.gnn = nn.Embedding(nodes + 1, h, padding_idx=0), GNN(h)
            self.q, self.w_1, self.w_2 = nn.Linear(h, 1, bias=False), nn.Linear(h, h), nn.Linear(h, h)
            self.w_3 = nn.Linear(2 * h, h)
            for w in self.parameters():
                w.data.uniform_(-1 / math.sqrt(h), 1 / math.sqrt(h))

        def forward(self, A, items, mask, alias):
            hidden = self.gnn(A, self.node_embedding(items))
            seq = hidden.gather(1, alias.unsqueeze(-1).expand(-1, -1, hidden.shape[2]))
            local = seq[torch.arange(len(mask)), mask.sum(1) - 1]
            alpha = self.q(torch.sigmoid(self.w_1(local).unsqueeze(1) + self.w_2(seq)))
            final = self.w_3(torch.cat([local, (alpha * seq * mask.unsqueeze(-1).float()).sum(1)], 1))
            return final @ self.node_embedding.weight[1:].T

    def draw() -> Drawn:
        n, longest, nodes = 48, 6, 30
        steps = torch.tensor([1, 1, 1, 7])[torch.randint(4, (n, longest))]
        walk = (torch.randint(nodes, (n, 1)) + F.pad(steps, (1, 0)).cumsum(1)) % nodes + 1
        size = torch.randint(2, longest + 1, (n,))
        A, items = torch.zeros(n, longest, 2 * longest), torch.zeros(n, longest).long()
        mask, alias = torch.zeros(n, longest).long(), torch.zeros(n, longest).long()
        target = walk[torch.arange(n), size] - 1
        for i, k in enumerate(size.tolist()):
            unique, place = walk[i, :k].unique(return_inverse=True)
            items[i, : len(unique)], mask[i, :k], alias[i, :k] = unique, 1, place
            u = torch.zeros(longest, longest)
            u[place[:-1], place[1:]] = 1
            A[i] = torch.cat([(u / u.sum(0).clamp(min=1)).T, u / u.sum(1, keepdim=True).clamp(min=1)], 1)
        return (A, items, mask, alias), target

    return stream(Net(30), draw, F.cross_entropy)


@healthy(
    "surface defects, the decision on a frozen segmentation",
    GITHUB
    + "shengode503/Segmentation-Based-Deep-Learning-Approach-for-Surface-Defect-Detection-Pytorch/blob/"
    + "master/lib/models/model.py",
)
def defects(_: bool) -> Task:  # noqa: C901
    """The segmentation net has been trained and is frozen; its map joins the features and, by its mean and maximum,
    the last layer."""

    def conv(i, o, k):
        return chain(nn.Conv2d(i, o, k, padding=k // 2), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    class Seg(nn.Module):
        def __init__(self, c=8, wide=24):
            super().__init__()
            self.layer0 = chain(conv(1, c, 5), conv(c, c, 5), nn.MaxPool2d(2, 2))
            self.layer1 = chain(conv(c, 2 * c, 5), conv(2 * c, 2 * c, 5), nn.MaxPool2d(2, 2))
            self.layer3, self.layer4 = conv(2 * c, wide, 7), conv(wide, 1, 1)

        def forward(self, x):
            feature = self.layer3(self.layer1(self.layer0(x)))
            return self.layer4(feature), feature

    class Dec(nn.Module):
        def __init__(self, wide=24):
            super().__init__()
            self.pool0, self.conv1, self.pool1 = nn.MaxPool2d(2, 2), conv(wide + 1, 8, 5), nn.MaxPool2d(2, 2)
            self.conv2 = conv(8, 16, 5)
            self.fc_layer = nn.Linear(34, 1)

        def forward(self, seg, feature):
            x = self.conv2(self.pool1(self.conv1(self.pool0(torch.cat((feature, torch.sigmoid(seg)), 1)))))
            return self.fc_layer(torch.cat([x.amax((2, 3)), x.mean((2, 3)), seg.mean((2, 3)), seg.amax((2, 3))], 1))

    def make():
        n, bad = 24, torch.rand(24, 1) < 0.5
        x = 0.5 + 0.15 * torch.randn(n, 1, 32, 32)
        row, col = torch.arange(32).view(1, 1, 32, 1), torch.arange(32).view(1, 1, 1, 32)
        a, b = torch.randint(6, 26, (2, n, 1, 1, 1))
        crack = ((row - a - (col - b) // 3).abs() < 1.5) & ((col - b).abs() < 6) & bad.view(n, 1, 1, 1)
        return (x - 0.4 * crack.float()).clamp(0, 1), F.max_pool2d(crack.float(), 4)[:, 0], bad.float()

    seg, dec = Seg(), Dec()
    first = torch.optim.Adam(seg.parameters(), lr=1e-2)
    for _ in range(40):
        x, m, _c = make()
        first.zero_grad()
        F.binary_cross_entropy_with_logits(seg(x)[0].squeeze(1), m).backward()
        first.step()
    for w in seg.parameters():
        w.requires_grad, w.grad = False, None

    def run(m, x):
        out, feature = m.segnet(x)
        return out.squeeze(1), m.decnet(out, feature)

    def draw() -> Drawn:
        x, _m, c = make()
        return (x,), c

    return stream(Parts(run, segnet=seg, decnet=dec), draw, lambda y, t: F.binary_cross_entropy_with_logits(y[1], t))


@healthy("raw audio CNN", GITHUB + "elvin-mark/pytorch-audio/blob/main/models.py")
def rawaudio(_: bool) -> Task:
    """16-bit samples / 4000 with silence after them; strides, batch norms, pools of 4, and a linear layer."""

    def block(i, o, k, stride=1, padding=0):
        return chain(
            nn.Conv1d(i, o, k, stride, padding, bias=False), nn.BatchNorm1d(o), nn.ReLU(inplace=True), nn.MaxPool1d(4)
        )

    model = chain(
        block(1, 16, 40, 10, 15), block(16, 32, 3, 1, 1), block(32, 64, 3, 1, 1), nn.Flatten(), nn.Linear(64 * 3, 10)
    )

    def draw() -> Drawn:
        n, c, length = 32, torch.randint(10, (32,)), 1920
        t = torch.arange(length).view(1, -1)
        pitch = 0.05 + 0.02 * c.view(-1, 1) * (1 + 0.02 * torch.randn(n, 1))
        loud, stop = 500 + 6000 * torch.rand(n, 1), torch.randint(900, length, (n, 1))
        sound = (
            torch.sin(pitch * t + 6 * torch.rand(n, 1)) + 0.4 * torch.sin(2 * pitch * t) + 0.1 * torch.randn(n, length)
        )
        return (((loud * sound).round() * (t < stop) / 4000).unsqueeze(1),), c

    return stream(model, draw, F.cross_entropy)


@healthy("VQ-VAE of CelebA", GITHUB + "xyfJASON/vqvae-pytorch/blob/main/models/vqvae.py")
def vqvae(_: bool) -> Task:
    """Pixels -1 to 1, a codebook uniform in +-1/K, gradients straight through, a commitment of 0.25."""

    class Res(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.blocks = chain(
                nn.ReLU(inplace=True),
                nn.Conv2d(c, c, 3, 1, 1, bias=False),
                nn.ReLU(inplace=True),
                nn.Conv2d(c, c, 1, bias=False),
            )

        def forward(self, x):
            return x + self.blocks(x)

    class Net(nn.Module):
        def __init__(self, h=24, codes=32, d=8):
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(3, h // 2, 4, 2, 1),
                nn.LeakyReLU(),
                nn.Conv2d(h // 2, h, 4, 2, 1),
                nn.LeakyReLU(),
                nn.Conv2d(h, h, 3, 1, 1),
                Res(h),
                Res(h),
                nn.LeakyReLU(),
                nn.Conv2d(h, d, 1),
            )
            self.decoder = chain(
                nn.Conv2d(d, h, 1),
                Res(h),
                Res(h),
                nn.LeakyReLU(),
                nn.Conv2d(h, h, 3, 1, 1),
                nn.LeakyReLU(),
                nn.ConvTranspose2d(h, h // 2, 4, 2, 1),
                nn.LeakyReLU(),
                nn.ConvTranspose2d(h // 2, 3, 4, 2, 1),
                nn.Tanh(),
            )
            self.codebook = nn.Embedding(codes, d)
            nn.init.uniform_(self.codebook.weight, -1 / codes, 1 / codes)

        def forward(self, x):
            z = self.encoder(x)
            flat, w = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1]), self.codebook.weight
            i = torch.argmin((flat**2).sum(1, keepdim=True) + (w**2).sum(1) - 2 * flat @ w.T, 1)
            q = self.codebook(i).reshape(len(z), *z.shape[2:], -1).permute(0, 3, 1, 2)
            return {"decx": self.decoder(z + (q - z).detach()), "z": z, "quantized_z": q, "indices": i}

    def draw() -> Drawn:
        x = pixels(32, 16, 3)[0] * 2 - 1
        return (x,), x

    def loss(y, t):
        return (
            F.mse_loss(y["decx"], t)
            + F.mse_loss(y["z"].detach(), y["quantized_z"])
            + 0.25 * F.mse_loss(y["z"], y["quantized_z"].detach())
        )

    return stream(Net(), draw, loss)


@healthy("fraud autoencoder", GITHUB + "tgalijasev1/fraud-detection-pytorch/blob/main/src/model.py")
def fraud(_: bool) -> Task:
    """Four standardised amounts and two flags as they are, rebuilt under mean squared error."""
    model = chain(
        nn.Linear(6, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 8),
        nn.ReLU(),
        nn.Linear(8, 4),
        nn.Linear(4, 8),
        nn.ReLU(),
        nn.Linear(8, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 6),
    )

    def draw() -> Drawn:
        used, limit = torch.rand(64), torch.randint(1, 8, (64,)) * 2500.0
        balance, amount = used * limit, torch.empty(64).exponential_(1 / 140)
        money = [
            (amount - 140) / 140,
            ((limit - balance) - 5000) / 4400,
            (balance - 5000) / 4400,
            (limit - 10000) / 5000,
        ]
        flags = [(torch.rand(64) < 0.45).float(), (torch.rand(64) < 0.99).float()]
        x = torch.stack(money + flags, 1)
        return (x,), x

    return stream(model, draw, F.mse_loss)


@healthy(
    "mask detection with MobileNetV3", GITHUB + "liguiyuan/FaceMaskDetection-pytorch/blob/master/models/mobilenetv3.py"
)
def masks(_: bool) -> Task:  # noqa: C901
    """Hard swishes, squeeze and excitation, ten pooled features, dropout of 0.8 before the last layer."""

    class Hsigmoid(nn.Module):
        def forward(self, x):
            return F.relu6(x + 3.0, inplace=True) / 6.0

    class Hswish(nn.Module):
        def __init__(self, inplace=True):
            super().__init__()
            self.inplace = inplace

        def forward(self, x):
            return x * F.relu6(x + 3.0, inplace=self.inplace) / 6.0

    class Excite(nn.Module):
        def __init__(self, c, r=4):
            super().__init__()
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Sequential(nn.Linear(c, c // r), nn.ReLU(inplace=True), nn.Linear(c // r, c), Hsigmoid())

        def forward(self, x):
            return x * self.fc(self.pool(x).flatten(1))[:, :, None, None]

    def bn(i, o, k=1, s=1, g=1):
        return nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o)

    class Bottleneck(nn.Module):
        def __init__(self, i, o, k, s, e, se, nl):
            super().__init__()
            self.add = s == 1 and i == o
            self.conv = chain(
                *bn(i, e), nl(inplace=True), *bn(e, e, k, s, e), *[Excite(e)] * se, nl(inplace=True), *bn(e, o)
            )

        def forward(self, x):
            return x + self.conv(x) if self.add else self.conv(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            R, H = nn.ReLU, Hswish
            self.features = chain(
                *bn(3, 16, 3, 2),
                H(inplace=True),
                Bottleneck(16, 16, 3, 2, 16, True, R),
                Bottleneck(16, 24, 3, 1, 40, False, R),
                Bottleneck(24, 24, 3, 1, 48, False, R),
                Bottleneck(24, 32, 5, 2, 64, True, H),
                Bottleneck(32, 32, 5, 1, 64, True, H),
                *bn(32, 96),
                H(inplace=True),
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(96, 10, 1),
                H(inplace=True),
            )
            self.classifier = nn.Sequential(nn.Dropout(0.8), nn.Linear(10, 2))
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out")
                    if m.bias is not None:
                        nn.init.zeros_(m.bias)
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, 0, 0.01)
                    if m.bias is not None:
                        nn.init.zeros_(m.bias)

        def forward(self, x):
            return self.classifier(self.features(x).mean(3).mean(2))

    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def draw() -> Drawn:
        c = torch.randint(2, (32,))
        x = torch.rand(32, 3, 1, 1) * 0.4 + 0.4 + 0.08 * torch.randn(32, 3, 32, 32)
        x[:, :, 10:13, 8:12] *= 0.3
        x[:, :, 10:13, 20:24] *= 0.3
        cover = torch.rand(32, 3, 1, 1) * 0.2 + 0.8
        x[:, :, 17:28, 6:26] = torch.where(
            c.view(-1, 1, 1, 1) == 1, cover + 0 * x[:, :, 17:28, 6:26], x[:, :, 17:28, 6:26]
        )
        return ((x.clamp(0, 1) - mean.view(3, 1, 1)) / std.view(3, 1, 1),), c

    return stream(Net(), draw, F.cross_entropy)


@healthy(
    "MLP scorer of memories for a task",
    GITHUB + "ldx825/learned-relevance-scorer-agent-retrieval/blob/main/src/GraphOfSkills_NCF/gos/ncf/models.py",
)
def scorer(_: bool) -> Task:
    """Two text embeddings of norm 1 projected without biases into a tower, all N(0, 0.01^2); graded relevance,
    weights."""

    class MLP(nn.Module):
        def __init__(self, i=96, sizes=(64, 32, 16)):
            super().__init__()
            self.task_projection = nn.Linear(i, sizes[0] // 2, bias=False)
            self.skill_projection = nn.Linear(i, sizes[0] // 2, bias=False)
            self.tower = chain(*[m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())])
            self.output = nn.Linear(sizes[-1], 1)
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, 0.0, 0.01)
                    if m.bias is not None:
                        nn.init.zeros_(m.bias)

        def forward(self, task, skill):
            return self.output(
                self.tower(torch.cat([self.task_projection(task), self.skill_projection(skill)], -1))
            ).squeeze(-1)

    g = torch.Generator().manual_seed(8)
    topics = torch.randn(4, 96, generator=g)

    def draw() -> Drawn:
        a, b, useful = torch.randint(4, (64,)), torch.randint(4, (64,)), torch.rand(64)
        task = F.normalize(topics[a] + 0.6 * torch.randn(64, 96), dim=1)
        skill = F.normalize(topics[b] + 0.6 * torch.randn(64, 96), dim=1)
        grade = torch.where(a == b, 1 + (useful < 0.8).long(), (useful < 0.1).long())
        return (task, skill), {"relevance": grade / 2, "weight": torch.where(grade > 0, 1.5, 0.8)}

    def loss(y, t):
        raw = F.binary_cross_entropy_with_logits(y, t["relevance"], reduction="none")
        return (raw * t["weight"]).sum() / t["weight"].sum().clamp_min(1e-12)

    return stream(MLP(), draw, loss)


@healthy(
    "face embeddings with semi-hard triplets",
    GITHUB + "HoangPham10/face-recognition-semi-hard-triplet-pytorch/blob/main/model.py",
)
def embeddings(_: bool) -> Task:  # noqa: C901
    """A MobileNetV2 trained on classes before (here 60 steps), embeddings of norm 1, squared distances, a margin of
    0.5."""

    def bn(i, o, k=1, s=1, g=1, act=True):
        return nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), *[nn.ReLU6(inplace=True)] * act

    class Inverted(nn.Module):
        def __init__(self, i, o, s, t):
            super().__init__()
            self.use_res_connect = s == 1 and i == o
            expand = bn(i, i * t) if t != 1 else ()
            self.conv = chain(*expand, *bn(i * t, i * t, 3, s, i * t), *bn(i * t, o, act=False))

        def forward(self, x):
            return x + self.conv(x) if self.use_res_connect else self.conv(x)

    class MobileNetV2(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.features = chain(
                *bn(3, 16, 3, 2),
                Inverted(16, 8, 1, 1),
                Inverted(8, 12, 2, 6),
                Inverted(12, 12, 1, 6),
                Inverted(12, 16, 2, 6),
                Inverted(16, 16, 1, 6),
                *bn(16, 96),
            )
            self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(96, classes))
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out")
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, 0, 0.01)
                    nn.init.zeros_(m.bias)

        def forward(self, x):
            return self.classifier(F.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))

    class Embedding(nn.Module):
        def __init__(self, net, o=24):
            super().__init__()
            net.classifier = nn.Sequential(nn.Dropout(p=0.2), nn.Linear(96, o))
            self.feature_extractor = net

        def forward(self, x):
            return F.normalize(self.feature_extractor(x), p=2, dim=1)

    g = torch.Generator().manual_seed(3)
    people = F.interpolate(torch.rand(20, 3, 6, 6, generator=g), size=(24, 24), mode="bilinear")
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def draw() -> Drawn:
        c = torch.randperm(20)[:8].repeat_interleave(6)
        light = 0.75 + 0.5 * torch.rand(48, 1, 1, 1)
        x = people[c] * light + 0.25 * F.interpolate(torch.randn(48, 3, 6, 6), size=(24, 24), mode="bilinear")
        x = torch.where(torch.rand(48, 1, 1, 1) < 0.5, x, x.flip(3))
        return ((x.clamp(0, 1) - mean) / std,), c.float()

    def loss(y, t, margin=0.5):
        n, same = len(t), t.view(-1, 1) == t.view(1, -1)
        d = ((y**2).sum(-1, keepdim=True) + (y**2).sum(-1) - 2.0 * y @ y.T).clamp(min=0) * (1 - torch.eye(n))
        tile, other = d.repeat(n, 1), (~same).repeat(n, 1)
        mask = other & (tile > d.T.reshape(-1, 1))
        most, least = tile.max(1, keepdim=True)[0], d.min(1, keepdim=True)[0]
        outside = (((tile - most) * mask.float()).min(1, keepdim=True)[0] + most).reshape(n, n).T
        inside = (((d - least) * (~same).float()).max(1, keepdim=True)[0] + least).repeat(1, n)
        negatives = torch.where((mask.float().sum(1) > 0).reshape(n, n).T, outside, inside)
        positives = same.float() - torch.eye(n)
        return ((margin + d - negatives) * positives).clamp(min=0).sum() / positives.sum()

    net = MobileNetV2(20)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(60):
        (x,), c = draw()
        opt.zero_grad()
        F.cross_entropy(net(x), c.long()).backward()
        opt.step()
    net.zero_grad()
    return stream(Embedding(net), draw, loss)
