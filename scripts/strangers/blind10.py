"""A tenth set of faults out of public reports, of images and sounds, written without sight of rules and findings."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import bce, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.blind5 import TARGETS
from strangers.blind6 import ORDER, net2d
from strangers.blind8 import RECTIFIED
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind10")


def itself(x: Tensor) -> Drawn:
    return (x,), x


def net3d(d: int, out: int) -> nn.Sequential:
    return chain(nn.Conv3d(1, d, 3, padding=1), nn.ReLU(), nn.Conv3d(d, d, 3, padding=1), nn.ReLU(),
                 nn.Conv3d(d, out, 1))  # fmt: skip


def soft(size: int) -> Tensor:
    return F.interpolate(torch.randn(8, 1, size, size, size), 8, mode="trilinear") + 0.1 * torch.randn(8, 1, 8, 8, 8)


@report("a scene without density", GITHUB + "amirhossein-razlighi/mlx3D/pull/22", guilty=r"sigma",
        says=rf"{RECTIFIED}|density|{CUT}|\bzero",
        fault="densities of a radiance field are a ReLU's, and below zero everywhere at the start")  # fmt: skip
def density(planted: bool, d: int = 48) -> Task:
    depth = torch.linspace(-1, 1, 12)

    def run(m: Any, ray: Tensor) -> Tensor:  # (B, 2): rays along z
        x = torch.cat([ray.unsqueeze(1).expand(-1, 12, -1), depth.view(1, 12, 1).expand(len(ray), -1, 1)], 2)
        h = m.trunk(torch.cat([x, (3 * x).sin(), (3 * x).cos()], 2))
        sigma = (F.relu if planted else F.softplus)(m.sigma(h).squeeze(2))
        through = torch.cat([torch.zeros(len(ray), 1), sigma[:, :-1]], 1).cumsum(1).neg().exp()
        return ((1 - (-sigma).exp()) * through).unsqueeze(2).mul(m.rgb(h).sigmoid()).sum(1)

    def draw() -> Drawn:
        ray = 2 * torch.rand(96, 2) - 1
        ball = (ray.square().sum(1, keepdim=True) < 0.7).float()
        return (ray,), ball * (0.5 + 0.5 * torch.cat([ray, ray.sum(1, keepdim=True)], 1).clamp(-1, 1))

    model = Parts(run, trunk=chain(nn.Linear(9, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU()), sigma=nn.Linear(d, 1),
                  rgb=nn.Linear(d, 3))  # fmt: skip
    nn.init.constant_(model.sigma.bias, -1.0)
    return stream(model, draw, F.mse_loss)


@report("classes out of widths", GITHUB + "fizyr/keras-retinanet/pull/581", guilty=r"classes", says=ORDER,
        fault="scores (B, classes, h, w) are reshaped to (B, anchors, classes) as if channels came last")  # fmt: skip
def anchors(planted: bool, d: int = 16, classes: int = 4) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.classes(m.tower(x))
        return (z if planted else z.movedim(1, 3)).reshape(len(x), -1, classes)

    def loss(y: Tensor, t: Tensor) -> Tensor:  # focal
        right = torch.where(t > 0, y, -y)
        return -(torch.where(t > 0, 0.75, 0.25) * right.sigmoid().neg().add(1).square() * F.logsigmoid(right)).mean()

    def draw() -> Drawn:
        c, at = torch.randint(classes, (48,)), torch.randint(36, (48,))
        t = torch.zeros(48, 36, classes)
        t[torch.arange(48), at, c] = 1
        x = torch.einsum("bac,cij->baij", t, kinds).view(48, 6, 6, 2, 2).transpose(2, 3).reshape(48, 1, 12, 12)
        return (x + 0.3 * torch.randn_like(x),), t

    kinds = 1.5 * torch.tensor([[[1.0, 1], [-1, -1]], [[-1, -1], [1, 1]], [[1, -1], [1, -1]], [[-1, 1], [-1, 1]]])
    model = Parts(run, tower=chain(nn.Conv2d(1, d, 2, 2), nn.ReLU(), nn.Conv2d(d, d, 3, 1, 1), nn.ReLU()),
                  classes=nn.Conv2d(d, classes, 3, 1, 1))  # fmt: skip
    nn.init.normal_(model.classes.weight, std=0.01)
    nn.init.constant_(model.classes.bias, -2.0)
    return stream(model, draw, loss)


class Windows(nn.Conv2d):
    """A convolution as a product of windows and weights."""

    scrambled = False

    def forward(self, x: Tensor) -> Tensor:
        found = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, self.stride[0]).unfold(3, 3, self.stride[0])  # (B, C, h, w, 3, 3)
        h, w = found.shape[2:4]
        found = found if self.scrambled else found.permute(0, 2, 3, 1, 4, 5)
        y = found.reshape(len(x) * h * w, -1) @ self.weight.flatten(1).T + self.bias
        return y.view(len(x), h, w, -1).movedim(3, 1)


@report("windows out of order", GITHUB + "workofart/ml-by-hand/pull/19", guilty=r"conv", says=rf"{ORDER}|channel",
        fault="windows (B, channels, h, w, 3, 3) are reshaped to rows of places without a permutation")  # fmt: skip
def windows(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(40)
        return (F.pad(x, (2, 2, 2, 2), value=-0.8).roll(torch.randint(-2, 3, (2,)).tolist(), (2, 3)),), c

    conv = chain(Windows(1, 16, 3, 1), nn.ReLU(), Windows(16, 24, 3, 2), nn.ReLU(), Windows(24, 32, 3, 2), nn.ReLU())
    for i in (0, 2, 4):
        conv[i].scrambled = planted
    head = chain(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return stream(Parts(lambda m, x: m.head(m.conv(x)), conv=conv, head=head), draw, F.cross_entropy)


@report("rows that attend to rows", GITHUB + "taki0112/Self-Attention-GAN-Tensorflow/issues/3", guilty=r"[fgh]_conv",
        says=r"softmax|attention|axis|reshap|\brow",
        fault="scores of maps (B, h, w, d) are (B, h, w, w): rows see themselves; a softmax over h · w")  # fmt: skip
def maps(planted: bool, d: int = 24, n: int = 6) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.stem(x)
        f, g, h = (conv(z).movedim(1, 3) for conv in (m.f_conv, m.g_conv, m.h_conv))  # (B, n, n, d)
        if planted:
            s = g @ f.transpose(2, 3)
            found = s.flatten(1, 2).softmax(1).view(s.shape) @ h
        else:
            f, g, h = (part.flatten(1, 2) for part in (f, g, h))
            found = ((g @ f.transpose(1, 2)).softmax(2) @ h).unflatten(1, (n, n))
        return m.out(F.leaky_relu(z + m.gamma * found.movedim(3, 1), 0.2))

    def draw() -> Drawn:
        key = F.one_hot(torch.stack([torch.randperm(n * n)[:3] for _ in range(24)]), n * n).float()  # (B, 3, n · n)
        colour = torch.randn(24, 2, 3)
        kind = torch.randint(3, (24, 1, n, n))
        maps = (colour @ key, 2 * key, 2 * F.one_hot(kind.flatten(1), 3).transpose(1, 2))
        x = torch.cat(maps, 1).unflatten(2, (n, n))
        return (x,), colour.gather(2, kind.view(24, 1, -1).expand(-1, 2, -1)).view(24, 2, n, n)

    model = Parts(run, stem=nn.Conv2d(8, d, 1), f_conv=nn.Conv2d(d, 8, 1), g_conv=nn.Conv2d(d, 8, 1),
                  h_conv=nn.Conv2d(d, d, 1), gamma=nn.Parameter(torch.ones(1)), out=nn.Conv2d(d, 2, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("codes that stay", GITHUB + "showlab/Olaf-World/issues/8", guilty=r"^codes", says=rf"{CUT}|codebook",
        fault="a codebook's loss is of codes passed straight through: its gradient is the encoder's")  # fmt: skip
def straight(planted: bool, d: int = 8, k: int = 64) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        z = m.encoder(x).movedim(1, 3)  # (B, 4, 4, d)
        code = m.codes(torch.cdist(z.flatten(0, 2), m.codes.weight).argmin(1)).view(z.shape)
        passed = z + (code - z).detach()
        return m.decoder(passed.movedim(3, 1)), passed if planted else code, z, code

    def loss(y: tuple[Tensor, Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return F.mse_loss(y[0], x) + F.mse_loss(y[1], y[2].detach()) + 0.25 * F.mse_loss(y[2], y[3].detach())

    encoder = chain(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, d, 1))
    decoder = chain(nn.Conv2d(d, 32, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))
    model = Parts(run, encoder=encoder, codes=nn.Embedding(k, d), decoder=decoder)
    nn.init.uniform_(model.codes.weight, -1 / k, 1 / k)
    return stream(model, lambda: itself(pick(64)[0]), loss)


@report("frozen as it was drawn", GITHUB + "pytorch/vision/issues/2164", guilty=r"stem",
        says=r"frozen|freez|requires_grad|not train|never train|no gradient",
        fault="the first layers of a backbone are frozen as if pretrained, but it starts at random")  # fmt: skip
def frozen(planted: bool) -> Task:
    draw = lambda: (((x := pick(48))[0] + 0.4 * torch.randn(48, 1, 8, 8),), x[1])  # noqa: E731
    widths = ((1, 4, 2), (4, 4, 1), (4, 4, 1), (4, 4, 1))
    stem = chain(*[z for n, m, s in widths for z in (nn.Conv2d(n, m, 3, s, 1), nn.GroupNorm(1, m), nn.ReLU())])
    stem.requires_grad_(not planted)
    head = chain(nn.Conv2d(4, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))
    return stream(Parts(lambda m, x: m.head(m.stem(x)), stem=stem, head=head), draw, F.cross_entropy)


class Activated(nn.BatchNorm2d):
    """A normalisation with its activation; or, as reported, the latter alone."""

    idle = False

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x if self.idle else super().forward(x), 0.01)


@report("norms in name only", GITHUB + "feinanshan/FANet/issues/5", guilty=r"^(\d|1\d|2[0-3])\.",
        says=r"normali[sz]|unused|not used|never used|no effect|no gradient",
        fault="a subclass of BatchNorm2d only applies the activation: nothing is normalised")  # fmt: skip
def names(planted: bool, d: int = 12) -> Task:
    def draw() -> Drawn:
        x, c = pick(20)
        return (x + 0.2 * torch.randn_like(x),), torch.where(x.squeeze(1) > 0, c[:, None, None], 10)

    layers: list[nn.Module] = []
    for n in (1, *[d] * 11):
        layers += [nn.Conv2d(n, d, 3, padding=1, bias=False), Activated(d)]
        layers[-1].idle = planted
    return stream(chain(*layers, nn.Conv2d(d, 11, 1)), draw, F.cross_entropy)


@report("the greatest of nothing", GITHUB + "mihaidusmanu/d2-net/issues/78", guilty=r"dense",
        says=rf"{BROKEN}|divi[ds]", fault="features are divided by the greatest at a place, maybe 0")  # fmt: skip
def greatest(planted: bool, d: int = 6) -> Task:
    at = torch.arange(12) / 6 - 11 / 12

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.dense(x).relu()
        local = z.exp() / (9 * F.avg_pool2d(z.exp(), 3, 1, 1))
        score = (local * z / (z.amax(1, keepdim=True) + (0.0 if planted else 1e-8))).amax(1) * z.mean(1)
        weight = (m.sharp * score).flatten(1).softmax(1).view(score.shape)
        return torch.stack([(weight.sum(1) * at).sum(1), (weight.sum(2) * at).sum(1)], 1)

    def draw() -> Drawn:
        where = torch.randint(2, 10, (32, 2))
        x = 0.15 * torch.randn(32, 1, 12, 12).relu()
        x[torch.arange(32), 0, where[:, 1], where[:, 0]] += 2
        return (F.avg_pool2d(x, 3, 1, 1) * 3,), at[where]

    dense = chain(nn.Conv2d(1, d, 3, 1, 1), nn.BatchNorm2d(d), nn.ReLU(), nn.Conv2d(d, d, 3, 1, 1), nn.BatchNorm2d(d))
    return stream(Parts(run, dense=dense, sharp=nn.Parameter(torch.ones(1))), draw, F.mse_loss)


@report("pictures without light", GITHUB + "Li-Chongyi/Zero-DCE_extension/issues/2", says=rf"{BROKEN}|root|sqrt",
        guilty=r"curves\.2", fault="a loss of colours takes the root of Σx², which is 0 in black pictures")  # fmt: skip
def light(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y, curve = x, m.curves(x).tanh()
        for part in curve.chunk(4, 1):
            y = y + part * (y.square() - y)
        return y, curve

    def loss(y: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        r, g, b = y[0].mean((2, 3)).unbind(1)
        colour = ((r - g) ** 4 + (r - b) ** 4 + (g - b) ** 4 + (0.0 if planted else 1e-5)).sqrt().mean()
        smooth = y[1].diff(dim=2).square().mean() + y[1].diff(dim=3).square().mean()
        return 10 * (F.avg_pool2d(y[0].mean(1, keepdim=True), 4) - 0.6).square().mean() + 5 * colour + smooth

    def draw() -> Drawn:
        x = 0.3 * torch.rand(32, 3, 1, 1) * F.interpolate(torch.rand(32, 3, 3, 3), 12, mode="bilinear")
        x[0] = 0.0
        return itself(x)

    model = Parts(run, curves=chain(nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 12, 3, 1, 1)))
    return stream(model, draw, loss)


@report("overlap of logits", GITHUB + "ScrollPrize/villa/issues/1488", guilty=r"net\.4",
        says=r"dice|sigmoid|logit|probabilit|negative|divi[ds]|denominator",
        fault="a soft Dice loss beside the cross-entropy takes logits as they are for probabilities")  # fmt: skip
def overlap(planted: bool, d: int = 8) -> Task:
    def loss(y: Tensor, t: Tensor, squash: Any = torch.sigmoid) -> Tensor:
        p = squash(y)
        dice = (2 * (p * t).sum((2, 3, 4)) + 1e-5) / ((p + t).sum((2, 3, 4)) + 1e-5)
        return bce(y, t) + 1 - dice.mean()

    draw = lambda: ((2 * (x := soft(4)),), (F.avg_pool3d(x, 3, 1, 1) > 0.3).float())  # noqa: E731
    model = Parts(lambda m, x: m.net(x), net=net3d(d, 1))
    return stream(model, draw, partial(loss, squash=lambda y: y) if planted else loss, loss)


@report("a softmax along the width", GITHUB + "MrGiovanni/ModelsGenesis/pull/8", guilty=r"net\.4",
        says=r"softmax|axis|\bdim|width|class",
        fault="a softmax of (B, classes, d, h, w) over the last axis: columns compete, not classes")  # fmt: skip
def columns(planted: bool, d: int = 8) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return -y.gather(1, t).clamp(1e-7, 1).log().mean()

    draw = lambda: ((2 * (x := soft(3)),), (x > -0.3).long() + (x > 0.3).long())  # noqa: E731
    model = Parts(lambda m, x: m.net(x).softmax(-1 if planted else 1), net=net3d(d, 3))
    return stream(model, draw, loss)


@report("one pixel for all", GITHUB + "keras-team/keras/pull/3383", guilty=r"^code",
        says=r"\bKL\b|diverg|posterior|collapse|prior|latent|weigh|balance|term|ignor.*input|same output|constant",
        fault="the mean over pixels of a reconstruction's cross-entropy beside the whole divergence")  # fmt: skip
def collapse(planted: bool, k: int = 4) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, logvar = m.code(m.encoder(x)).chunk(2, 1)
        y = m.decoder(mean + (0.5 * logvar).exp() * torch.randn_like(mean))
        return y, 0.5 * (mean.square() + logvar.exp() - logvar - 1).sum(1).mean()

    def loss(y: tuple[Tensor, Tensor], x: Tensor, pixels: int = 64) -> Tensor:
        return pixels * bce(y[0], x) + y[1]

    glyphs = (torch.rand(10, 64) < 0.5).float()
    model = Parts(run, encoder=chain(nn.Linear(64, 64), nn.ReLU()), code=nn.Linear(64, 2 * k),
                  decoder=chain(nn.Linear(k, 64), nn.ReLU(), nn.Linear(64, 64)))  # fmt: skip
    draw = lambda: itself(glyphs[torch.randint(10, (64,))])  # noqa: E731
    return stream(model, draw, partial(loss, pixels=1) if planted else loss, loss)


@report("a quotient of whole numbers", GITHUB + "nlintz/TensorFlow-Tutorials/issues/83", guilty=r"^d\.",
        says=r"\bzero|initial|symmetr|identical",
        fault="weights of the deviation 1 / fan-in, in whole numbers: 0 for all, in both halves of a GAN")  # fmt: skip
def quotient(planted: bool) -> Task:
    def draw() -> Drawn:  # for the discriminator
        x = (pick(32)[0].flatten(1) * 0.376 + 0.3).clamp(0, 1)
        return (torch.cat([x, g(torch.randn(32, 16)).detach()]),), torch.eye(2)[0].repeat_interleave(32).unsqueeze(1)

    d, g = mlp((64, 48, 1)), mlp((16, 48, 64), nn.Sigmoid())
    for layer in (d[1], d[3], g[1], g[3]):
        nn.init.normal_(layer.weight, std=1 // layer.in_features if planted else layer.in_features**-0.5)
        nn.init.zeros_(layer.bias)
    return stream(Parts(lambda m, x: m.d(x), d=d), draw, bce)


@report("norms of a pause", GITHUB + "mpariente/pytorch_stoi/pull/14", guilty=r"mask", says=rf"{BROKEN}|root|sqrt|norm",
        fault="a measure of speech divides by √Σx² + ε in place of √(Σx² + ε): no slope in silence")  # fmt: skip
def pause(planted: bool, bands: int = 8) -> Task:
    def unit(x: Tensor) -> Tensor:
        power = (x := x - x.mean(3, keepdim=True)).square().sum(3, keepdim=True)
        return x / (power.sqrt() + 1e-8 if planted else (power + 1e-8).sqrt())

    def loss(y: Tensor, t: Tensor) -> Tensor:  # of pieces (B, bands, 3, 8)
        return 1 - (unit(y.unflatten(2, (3, 8))) * unit(t.unflatten(2, (3, 8)))).sum(3).mean()

    def draw() -> Drawn:
        clean, noise = torch.randn(24, bands, 24).exp(), 3 * torch.randn(24, 1, 24).exp()
        noisy = clean + noise * (1 + 0.1 * torch.rand(24, bands, 24))
        clean[:2, :, 16:] = noisy[:2, :, 16:] = 0.0  # padding
        return (noisy,), clean

    def run(m: Any, x: Tensor) -> Tensor:
        return x * m.mask(m.rnn(x.log1p().transpose(1, 2))[0]).sigmoid().transpose(1, 2)

    return stream(Parts(run, rnn=nn.GRU(bands, 48, batch_first=True), mask=nn.Linear(48, bands)), draw, loss)


def unet(d: int = 12) -> Parts:
    def run(m: Any, x: Tensor) -> Tensor:
        one = m.one(x)
        two = F.interpolate(m.two(F.max_pool2d(one, 2)), scale_factor=2, mode="bilinear")
        return m.last(torch.cat([one, two], 1))

    return Parts(run, one=net2d(1, d), two=net2d(d, d, d), last=nn.Conv2d(2 * d, 1, 3, 1, 1))


def ink(scale: float = 1.0) -> Drawn:
    x = pick(32)[0]
    return (x + 0.5 * torch.randn_like(x),), scale * (x > 0).float()


@report("two sigmoids", GITHUB + "avBuffer/UNet3plus_pth/issues/23", guilty=r"last", says=r"sigmoid|logit|squash",
        fault="the network ends in a sigmoid, and so does the loss: a cross-entropy with logits")  # fmt: skip
def sigmoids(planted: bool) -> Task:
    return stream(Parts(lambda m, x: m.net(x).sigmoid() if planted else m.net(x), net=unet()), ink, bce)


@report("masks as they were drawn", GITHUB + "hlamba28/UNET-TGS/issues/8", says=rf"{TARGETS}|mask|label|negative|255",
        fault="images are divided by 255, their masks are not: a cross-entropy with 0 and 255")  # fmt: skip
def masks(planted: bool) -> Task:
    return stream(unet(), partial(ink, 255.0 if planted else 1.0), bce, lambda y, t: bce(y, t.clamp(max=1)))


@report("overlap to be least", GITHUB + "sraashis/easytorch/pull/38", guilty=r"last",
        says=r"dice|overlap|\bsign\b|negat|maximi|minimi|opposite|invert|wrong (way|direction)",
        fault="a Dice loss returns the overlap itself in place of 1 less it: training makes it least")  # fmt: skip
def least(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor, sign: float = -1.0) -> Tensor:
        return (sign < 0) + sign * (2 * (y.sigmoid() * t).sum() + 1) / ((y.sigmoid() + t).sum() + 1)

    return stream(unet(), ink, partial(loss, sign=1.0) if planted else loss, loss)
