"""Transformers on patches, segmentation, generative and contrastive models of images, and fields of coordinates."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.case import Task, stranger
from strangers.convolutional import classifier, plain
from strangers.data import digits, text


class VisionLayer(nn.Module):
    """Pre-normalised attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2, self.over = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), -1

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attention = (q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)).softmax(self.over)
        x = x + self.proj((attention @ v).transpose(1, 2).reshape(b, n, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """8×8 patches and a class token."""

    def __init__(self, width: int = 64, layers: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 8, 8)
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 17, width))
        self.blocks = nn.Sequential(*(VisionLayer(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.normal_(self.cls_token, std=1e-6)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


@stranger("ViT", "class token and positions as free parameters", fault="softmax of one layer over the queries",
          guilty=r"blocks\.1\.(qkv|proj)", says="softmax|attention")  # fmt: skip
def vit(planted: bool) -> Task:
    model = ViT()
    if planted:
        model.blocks[1].over = -2
    return classifier(model)


class Mae(nn.Module):
    """Reads a random quarter of the patches and returns its own loss, its prediction and the mask."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patch_embed, self.mask_token = nn.Linear(48, width), nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 64, width), requires_grad=False)
        self.encoder = nn.Sequential(*(VisionLayer(width, 4) for _ in range(2)), nn.LayerNorm(width))
        self.decoder = nn.Sequential(VisionLayer(width, 4), nn.LayerNorm(width), nn.Linear(width, 48))
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        patches = F.unfold(images, 4, stride=4).transpose(1, 2)  # (B, 64, 48)
        b, n, _ = patches.shape
        order = torch.rand(b, n, device=images.device).argsort(1)
        kept, back = order[:, : n // 4], order.argsort(1)
        x = self.patch_embed(patches) + self.pos_embed
        x = self.encoder(x.gather(1, kept.unsqueeze(-1).expand(-1, -1, x.shape[-1])))
        x = torch.cat([x, self.mask_token.expand(b, n - n // 4, -1)], 1)
        y = self.decoder(x.gather(1, back.unsqueeze(-1).expand(-1, -1, x.shape[-1])) + self.pos_embed)
        mask = (back >= n // 4).float()
        loss = ((y - patches).square().mean(-1) * mask).sum() / mask.sum()
        return loss, y, mask


@stranger(
    "MAE",
    "random mask in forward; returns (loss, prediction, mask)",
    fault="pixels 0–255",
    says="input|target|output|initial loss",
)
def mae(planted: bool) -> Task:
    model, (x, _) = Mae(), digits(32, 3, count=16, bytes_=planted)
    patches = F.unfold(x, 4, stride=4).transpose(1, 2)

    def masked(outputs: tuple[Tensor, Tensor, Tensor], patches: Tensor) -> Tensor:
        _, y, mask = outputs
        return ((y - patches).square().mean(-1) * mask).sum() / mask.sum()

    return Task(model, (x, patches), lambda: model(x)[0], {"loss": masked})


class DoubleConv(nn.Sequential):
    """Convolution, batch normalisation, ReLU, twice."""

    def __init__(self, n: int, m: int) -> None:
        layers: list[nn.Module] = []
        for width in (n, m):
            layers += [nn.Conv2d(width, m, 3, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class UNet(nn.Module):
    """Three steps down, three up."""

    def __init__(self, classes: int = 1, width: int = 8) -> None:
        super().__init__()
        self.inc, self.sigmoid = DoubleConv(3, width), False
        self.down = nn.ModuleList(DoubleConv(width << i, width << (i + 1)) for i in range(3))
        self.up = nn.ModuleList(nn.ConvTranspose2d(width << (i + 1), width << i, 2, 2) for i in (2, 1, 0))
        self.after = nn.ModuleList(DoubleConv(width << (i + 1), width << i) for i in (2, 1, 0))
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        passed = [self.inc(x)]
        for down in self.down:
            passed.append(down(F.max_pool2d(passed[-1], 2)))
        y = passed.pop()
        for up, after in zip(self.up, self.after, strict=True):
            y = after(torch.cat([passed.pop(), up(y)], 1))
        y = self.outc(y)
        return torch.sigmoid(y) if self.sigmoid else y


@stranger("U-Net", "two examples, a class at each pixel, BCE with logits", fault="sigmoid before BCE with logits",
          guilty="outc", says="sigmoid|probabilit")  # fmt: skip
def unet(planted: bool) -> Task:
    model, (x, _) = UNet(), digits(32, 3, count=2)
    model.sigmoid = planted
    t = (x.mean(1, keepdim=True) > x.mean()).float()
    step = nn.BCEWithLogitsLoss()
    return Task(model, (x, t), lambda: step(model(x), t), {"loss": step})


class Vae(nn.Module):
    """Noise in forward; returns the reconstruction, mean and log variance."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 200), nn.Linear(200, 20), nn.Linear(200, 20)
        self.fc3, self.fc4 = nn.Linear(20, 200), nn.Linear(200, 784)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.relu(self.fc1(x.view(-1, 784)))
        mean, log_variance = self.fc21(h), self.fc22(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mean, log_variance


def elbo(outputs: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    """Binary cross-entropy of the reconstruction and the divergence from N(0, 1), a mean over the examples."""
    y, mean, log_variance = outputs
    reconstruction = F.binary_cross_entropy(y, x.view(-1, 784), reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.square() - log_variance.exp())
    return (reconstruction + divergence) / len(x)


@stranger("VAE", "noise in forward; a loss of three outputs", fault="log variances' weights × 100", guilty="fc22")
def vae(planted: bool) -> Task:
    model, (x, _) = Vae(), digits(28, bytes_=True)
    x = x / 255
    if planted:
        model.fc22.weight.data *= 100
    return Task(model, (x, x), lambda: elbo(model(x), x), {"loss": elbo})


class Clip(nn.Module):
    """Two encoders; returns the logits of images and of texts, coupled through the batch."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.visual, self.token_embedding = ViT(48, 2, classes=width), nn.Embedding(256, 48)
        self.positional_embedding = nn.Parameter(0.01 * torch.randn(16, 48))
        self.transformer, self.ln_final = VisionLayer(48, 4), nn.LayerNorm(48)
        self.text_projection = nn.Parameter(48**-0.5 * torch.randn(48, width))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.visual.head.weight, std=48**-0.5)

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        images = F.normalize(self.visual(image), dim=-1)
        words = self.transformer(self.token_embedding(text) + self.positional_embedding)
        texts = F.normalize(self.ln_final(words)[:, -1] @ self.text_projection, dim=-1)
        logits = self.logit_scale.exp() * images @ texts.t()
        return logits, logits.t()


def contrast(outputs: tuple[Tensor, Tensor], labels: Tensor) -> Tensor:
    """Each image finds its text, each text its image."""
    return (F.cross_entropy(outputs[0], labels) + F.cross_entropy(outputs[1], labels)) / 2


@stranger("CLIP", "contrastive loss of the whole batch; logit_scale", fault="logit_scale 1/0.07, not its logarithm",
          guilty="logit_scale")  # fmt: skip
def clip(planted: bool) -> Task:
    model, (x, _), (words, _) = Clip(), digits(32, 3, count=16), text(16, 16)
    if planted:
        nn.init.constant_(model.logit_scale, 1 / 0.07)
    labels = torch.arange(16)
    options = {"loss": contrast, "per": "batch"}
    return Task(model, ((x, words), labels), lambda: contrast(model(x, words), labels), options)


class SimClr(nn.Module):
    """Features of both views of every image, stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.normalised = plain(nn.GroupNorm), True
        self.backbone[14] = nn.Identity()
        self.projection = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x: Tensor) -> Tensor:
        z = self.projection(self.backbone(x))
        return F.normalize(z, dim=1) if self.normalised else 300 * z


def info_nce(z: Tensor, _: Tensor | None = None) -> Tensor:
    """NT-Xent: the other view among all other rows."""
    n = len(z) // 2
    similarity = z @ z.t() / 0.5 - 1e9 * torch.eye(2 * n)
    return F.cross_entropy(similarity, (torch.arange(2 * n) + n) % (2 * n))


@stranger("SimCLR", "a loss without targets, of both views of the batch", fault="features × 300, not normalised",
          guilty="projection", says="output|initial loss")  # fmt: skip
def simclr(planted: bool) -> Task:
    model, (x, _) = SimClr(), digits(32, 3, count=16)
    model.normalised = not planted
    x = torch.cat([x, x.flip(3) + 0.1 * torch.randn_like(x)])
    return Task(model, (x,), lambda: info_nce(model(x)), {"loss": info_nce, "per": "batch"})


class Siamese(nn.Module):
    """One network, three images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU())
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(self.fc(self.features(x)) for x in (anchor, positive, negative))  # type: ignore[return-value]


def triplet(outputs: tuple[Tensor, Tensor, Tensor], _: Tensor | None = None) -> Tensor:
    return F.triplet_margin_loss(*outputs, margin=1.0)


@stranger("Siamese network", "three inputs, shared weights, triplet loss", fault="bias −5 before a ReLU: all dead",
          guilty=r"fc\.1")  # fmt: skip
def siamese(planted: bool) -> Task:
    model, (x, t) = Siamese(), digits(28, count=96)
    if planted:
        nn.init.constant_(model.fc[1].bias, -5.0)
    x = x[t.argsort(stable=True)]  # neighbours are alike
    views = (x[0::3], x[1::3], x[1::3].roll(12, 0))
    return Task(model, (views,), lambda: triplet(model(*views)), {"loss": triplet})


def timestep_embedding(t: Tensor, width: int) -> Tensor:
    frequencies = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    angles = t.float().unsqueeze(1) * frequencies
    return torch.cat([angles.cos(), angles.sin()], 1)


class TimedBlock(nn.Module):
    """A residual block that adds the time between its convolutions."""

    def __init__(self, n: int, m: int, width: int) -> None:
        super().__init__()
        self.norm1, self.conv1, self.emb = nn.GroupNorm(4, n), nn.Conv2d(n, m, 3, padding=1), nn.Linear(width, m)
        self.norm2, self.conv2 = nn.GroupNorm(4, m), nn.Conv2d(m, m, 3, padding=1)
        self.skip = nn.Identity() if n == m else nn.Conv2d(n, m, 1)
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.emb(F.silu(emb))[..., None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class DiffusionUNet(nn.Module):
    """Predicts noise from an image and a time; last convolutions of blocks and of the network are zero."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width, self.raw = width, False
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down = TimedBlock(width, width, 4 * width)
        self.middle = TimedBlock(width, 2 * width, 4 * width)
        self.up = TimedBlock(3 * width, width, 4 * width)
        self.norm = nn.GroupNorm(4, width)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        emb = t.float().unsqueeze(1).expand(-1, self.width) if self.raw else timestep_embedding(t, self.width)
        emb = self.time(emb)
        h = self.down(self.first(x), emb)
        y = self.middle(F.avg_pool2d(h, 2), emb)
        y = self.up(torch.cat([F.interpolate(y, scale_factor=2.0), h], 1), emb)
        return self.last(F.silu(self.norm(y)))


@stranger("Diffusion U-Net", "image and time step; zero-initialised last convolutions; noise as target",
          fault="raw time steps, 0–1000, in place of sines", guilty="time", says="input")  # fmt: skip
def diffusion(planted: bool) -> Task:
    model, (x, _) = DiffusionUNet(), digits(32, 3, count=8)
    model.raw = planted
    t, noise = torch.randint(1000, (8,)), torch.randn_like(x)
    keep = (torch.cos(t / 1000 * math.pi / 2) ** 2).view(-1, 1, 1, 1)
    noisy = keep.sqrt() * x + (1 - keep).sqrt() * noise
    return Task(model, ((noisy, t), noise), lambda: F.mse_loss(model(noisy, t), noise), {"loss": "mse"})


class Sine(nn.Module):
    """sin(ω (W x + b))."""

    def __init__(self, n: int, m: int, *, first: bool = False, omega: float = 30.0) -> None:
        super().__init__()
        self.linear, self.omega = nn.Linear(n, m), omega
        bound = 1 / n if first else math.sqrt(6 / n) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.omega * self.linear(x))


@stranger("SIREN", "coordinates in, pixels out; returns outputs and coordinates", fault="hidden weights without 1/ω",
          guilty=r"[123]\.linear")  # fmt: skip
def siren(planted: bool) -> Task:
    body = nn.Sequential(Sine(2, 64, first=True), Sine(64, 64), Sine(64, 64), nn.Linear(64, 3))
    nn.init.uniform_(body[3].weight, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30)
    for place in (1, 2):
        body[place].linear.weight.data *= 30 if planted else 1
    image, _ = digits(32, 3, count=1)
    grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij"), -1)
    x, t = grid.view(-1, 2), image[0].flatten(1).t()
    t = (t - t.mean(0)) / t.std(0)
    return Task(body, (x, t), lambda: F.mse_loss(body(x), t), {"loss": "mse"})


class Nerf(nn.Module):
    """Points along rays to colour and density, rendered into one colour a ray."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.points = nn.ModuleList([nn.Linear(39, width), nn.Linear(width, width), nn.Linear(width + 39, width)])
        self.alpha, self.rgb = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, rays: Tensor) -> Tensor:
        depth = torch.linspace(2.0, 6.0, 16)
        points = rays[:, None, :3] + depth[:, None] * rays[:, None, 3:]
        angles = points.unsqueeze(-1) * 2.0 ** torch.arange(6)
        x = torch.cat([points, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)
        h = F.relu(self.points[1](F.relu(self.points[0](x))))
        h = F.relu(self.points[2](torch.cat([h, x], -1)))
        opaque = 1 - torch.exp(-F.relu(self.alpha(h)).squeeze(-1) * 0.25)
        left = torch.cumprod(torch.cat([torch.ones(len(x), 1), 1 - opaque + 1e-10], 1), 1)[:, :-1]
        return ((opaque * left).unsqueeze(-1) * torch.sigmoid(self.rgb(h))).sum(1)


@stranger("NeRF", "a ray of points is an example; rendering in forward", fault="density's bias −5: dead ReLU",
          guilty="alpha",
          says="output|dead")  # fmt: skip
def nerf(planted: bool) -> Task:
    model, rays = Nerf(), torch.randn(128, 6)
    nn.init.constant_(model.alpha.bias, -5.0 if planted else 0.1)
    t = torch.sigmoid(rays[:, :3])
    return Task(model, (rays, t), lambda: F.mse_loss(model(rays), t), {"loss": "mse"})
