"""The rest of the thirty-sixth set: reports of networks that do not learn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import weight_norm

from strangers.apart import BROKEN, GITHUB, unit
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.blind36 import raw, scenes
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind36")


@report(
    "DynamicViT keeps no token",
    GITHUB + "raoyongming/DynamicViT/issues/6",
    says=rf"{BROKEN}|divi|(count|number|sum|denominator|total).*(zero|\b0\b)|empty|0 / 0|no token",
    fault="PredictorLG divides by the number of tokens kept so far, and the policy may keep none",
)
def dynamicvit(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(48)
        return (x,), c

    class Block(nn.Module):
        def __init__(self, dim: int, heads: int = 4) -> None:
            super().__init__()
            self.norm1, self.norm2, self.heads = nn.LayerNorm(dim), nn.LayerNorm(dim), heads
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.mlp = chain(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

        def forward(self, x: Tensor, policy: Tensor) -> Tensor:
            b, n, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            attn = q @ k.mT / math.sqrt(c // self.heads)
            keep = policy.view(b, 1, 1, n)
            keep = keep + (1 - keep) * torch.eye(n)
            attn = (attn - attn.max(-1, keepdim=True)[0]).exp() * keep
            attn = (attn + 1e-6 / n) / (attn.sum(-1, keepdim=True) + 1e-6)
            x = x + self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))
            return x + self.mlp(self.norm2(x))

    class PredictorLG(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.in_conv = chain(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
            self.out_conv = chain(nn.Linear(dim, dim // 2), nn.GELU(), nn.Linear(dim // 2, 2), nn.LogSoftmax(-1))

        def forward(self, x: Tensor, policy: Tensor) -> Tensor:
            x = self.in_conv(x)
            local_x, rest = x.chunk(2, -1)
            count = policy.sum(1, keepdim=True)
            global_x = (rest * policy).sum(1, keepdim=True) / (count if planted else count + 1e-6)
            return self.out_conv(torch.cat([local_x, global_x.expand_as(local_x)], -1))

    class DynamicViT(nn.Module):
        def __init__(self, dim: int = 32) -> None:
            super().__init__()
            self.patch_embed, self.cls_token = nn.Conv2d(1, dim, 4, 2), nn.Parameter(torch.randn(1, 1, dim) * 0.02)
            self.pos_embed = nn.Parameter(torch.randn(1, 10, dim) * 0.02)
            self.blocks = nn.ModuleList(Block(dim) for _ in range(3))
            self.score_predictor = nn.ModuleList(PredictorLG(dim) for _ in range(2))
            self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)

        def forward(self, x: Tensor) -> Any:
            x = self.patch_embed(x).flatten(2).mT
            b, n, _ = x.shape
            x = torch.cat([self.cls_token.expand(b, -1, -1), x], 1) + self.pos_embed
            decision, kept, one = torch.ones(b, n, 1), [], torch.ones(b, 1, 1)
            x = self.blocks[0](x, torch.cat([one, decision], 1))
            for predictor, block in zip(self.score_predictor, list(self.blocks)[1:], strict=False):
                score = predictor(x[:, 1:], decision)
                decision = F.gumbel_softmax(score, hard=True)[..., :1] * decision
                kept.append(decision.mean(1))
                x = block(x, torch.cat([one, decision], 1))
            return self.head(self.norm(x)[:, 0]), kept

    def loss(y: Any, c: Tensor) -> Tensor:
        ratio = sum(((k.mean() - r) ** 2 for k, r in zip(y[1], (0.7, 0.49), strict=False)), torch.zeros(()))
        return F.cross_entropy(y[0], c) + 2 * ratio

    return stream(DynamicViT(), draw, loss, lambda y, c: F.cross_entropy(y[0], c))


@report(
    "captions that are their own labels",
    GITHUB + "KempnerInstitute/KempnerForge/issues/154",
    says=r"shift|next (token|word)|label.*(input|visible|same)|cop(y|ies)|leak|input.*(target|label)",
    fault="labels are not shifted: each token is predicted from itself, and the loss falls to 0 by copying",
)
def captions(planted: bool) -> Task:
    """A joint decoder: image features as a prefix, then the caption of the digit."""
    table = torch.randint(1, 24, (10, 6), generator=torch.Generator().manual_seed(5))

    def draw() -> Drawn:
        x, c = pick(48)
        ids = torch.cat([torch.zeros(48, 1, dtype=torch.long), table[c]], 1)
        return (x, ids), ids

    class JointDecoder(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.vision = chain(nn.Conv2d(1, d, 4, 4), nn.GELU(), nn.Conv2d(d, d, 1))
            self.token_embedding, self.pos = nn.Embedding(24, d), nn.Parameter(torch.randn(11, d) * 0.1)
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm, self.output_head = nn.LayerNorm(d), nn.Linear(d, 24, bias=False)

        def forward(self, pixel_values: Tensor, input_ids: Tensor) -> Tensor:
            image = self.vision(pixel_values).flatten(2).mT
            h = torch.cat([image, self.token_embedding(input_ids)], 1) + self.pos
            mask = torch.ones(11, 11, dtype=torch.bool).triu(1)
            return self.output_head(self.norm(self.layers(h, mask))[:, image.shape[1] :])

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y[:, :-1].flatten(0, 1), t[:, 1:].flatten())

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    return stream(JointDecoder(), draw, wrong if planted else right, right)


@report(
    "wav2vec on quiet recordings",
    GITHUB + "b04901014/FT-w2v2-ser/issues/6",
    guilty=r"conv_layers\.0",
    says=r"(input|wav|signal).*(small|scale|normal|standard|mean|unit|tiny)|not (normalis|normaliz|standardi)",
    fault="the waveform is fed as recorded, very quiet and off zero, without (wav - mean) / std",
)
def quiet(planted: bool) -> Task:
    """Emotions by the pitch of a voice; the feature extractor of wav2vec 2.0 base and a mean."""

    def draw() -> Drawn:
        c, time = torch.randint(4, (32,)), torch.arange(640.0)
        pitch = torch.tensor([0.15, 0.2, 0.27, 0.36])[c] * (1 + 0.05 * torch.randn(32))
        phase = pitch.unsqueeze(1) * time + 6.3 * torch.rand(32, 1)
        wav = phase.sin() + 0.5 * (2 * phase).sin() + 0.5 * torch.randn(32, 640)
        wav = 0.001 * (0.3 + torch.rand(32, 1)) * wav + 0.01 * torch.randn(32, 1)
        if not planted:
            wav = (wav - wav.mean(1, keepdim=True)) / (wav.std(1, keepdim=True) + 1e-12)
        return (wav,), c

    class Wav2Vec(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for i, (k, s) in enumerate(((10, 5), (3, 2), (3, 2), (2, 2))):
                conv = nn.Conv1d(1 if i == 0 else d, d, k, s, bias=False)
                nn.init.kaiming_normal_(conv.weight)
                layers += [conv, *([nn.GroupNorm(d, d)] if i == 0 else []), nn.GELU()]
            self.conv_layers, self.layer_norm, self.head = chain(*layers), nn.LayerNorm(d), nn.Linear(d, 4)

        def forward(self, wav: Tensor) -> Tensor:
            return self.head(self.layer_norm(self.conv_layers(wav.unsqueeze(1)).mT).mean(1))

    return stream(Wav2Vec(), draw, F.cross_entropy)


@report(
    "piezoelectric equations in raw units",
    GITHUB + "lululxvi/deepxde/issues/31",
    says=r"scale|huge|units|dominat|magnitude|normali|(loss|target|residual).*(large|start|begin)|balance",
    fault="stiffness of 1e5 multiplies one residual: the loss is huge, and the other terms count for nothing",
)
def piezo(planted: bool) -> Task:
    """c u'' + e p'' = f, e u'' - k p'' = g in (0, 1), both zero at the ends."""
    c, e, k = (1.32e5, -4.1, 12.6) if planted else (1.0, -0.3, 1.0)
    pi = math.pi

    def draw() -> Drawn:
        x = torch.rand(64, 1)
        u, p = torch.sin(pi * x), torch.sin(2 * pi * x)
        u_xx, p_xx = -(pi**2) * u, -4 * pi**2 * p
        return (x,), torch.cat([c * u_xx + e * p_xx, e * u_xx - k * p_xx, u, p], 1)

    class FNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linears = chain(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 2))
            for m in self.linears:
                if isinstance(m, nn.Linear):
                    nn.init.xavier_uniform_(m.weight)
                    nn.init.zeros_(m.bias)

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_(True)
            with torch.enable_grad():
                y, second = self.linears(x), []
                for i in range(2):
                    first = torch.autograd.grad(y[:, i].sum(), x, create_graph=True)[0]
                    second.append(torch.autograd.grad(first.sum(), x, create_graph=True)[0])
                u_xx, p_xx = second
            ends = self.linears(torch.tensor([[0.0], [1.0]])).view(1, 4).expand(len(x), -1)
            return torch.cat([c * u_xx + e * p_xx, e * u_xx - k * p_xx, y, ends], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y[:, 0], t[:, 0]) + F.mse_loss(y[:, 1], t[:, 1]) + y[:, 4:].square().mean()

    return stream(FNN(), draw, loss, lambda y, t: F.mse_loss(y[:, 2:4], t[:, 2:]))


@report(
    "binding affinities without the logarithm",
    GITHUB + "hkmztrk/DeepDTA/issues/5",
    guilty=r"fc\.3",
    says=r"target.*(large|scale|huge|log|normali|standard|range|units)|loss.*(huge|large|start)",
    fault="the targets are dissociation constants of 1 to 10000 nM, not their negative logarithms",
)
def deepdta(planted: bool) -> Task:
    def draw() -> Drawn:
        a, b = torch.randint(16, (64, 12)), torch.randint(12, (64, 20))
        pkd = 5 + ((a == 0).any(1).float() + (a == 1).any(1).float() + 2 * (b == 0).any(1).float()) * (a == 2).any(1)
        return (a, b), (10 ** (9 - pkd) if planted else pkd).unsqueeze(1)

    class DeepDTA(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.drug_embedding, self.protein_embedding = nn.Embedding(16, d), nn.Embedding(12, d)
            self.drug_convs = chain(nn.Conv1d(d, d, 4), nn.ReLU(), nn.Conv1d(d, 2 * d, 4), nn.ReLU())
            self.protein_convs = chain(nn.Conv1d(d, d, 4), nn.ReLU(), nn.Conv1d(d, 2 * d, 4), nn.ReLU())
            self.fc = chain(nn.Linear(4 * d, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            a = self.drug_convs(self.drug_embedding(a).mT).amax(2)
            b = self.protein_convs(self.protein_embedding(b).mT).amax(2)
            return self.fc(torch.cat([a, b], 1))

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(9 - y.clamp(min=1).log10(), 9 - t.log10()) if planted else F.mse_loss(y, t)

    return stream(DeepDTA(), draw, F.mse_loss, right)


@report(
    "TCN without weight normalisation",
    GITHUB + "Songweiping/TCN-TF/issues/1",
    guilty=r"network|conv",
    says=r"initial|small|vanish|tiny|weight.?norm|variance|0\.01|shrink",
    fault="weights of N(0, 0.01²) stay as they are where no weight normalisation replaces them",
)
def tcn(planted: bool) -> Task:
    """The adding problem."""

    def draw() -> Drawn:
        x = torch.rand(64, 24)
        mark = torch.zeros(64, 24)
        mark[torch.arange(64), torch.randint(12, (64,))] = 1
        mark[torch.arange(64), torch.randint(12, 24, (64,))] = 1
        return (torch.stack([x, mark], 1),), (x * mark).sum(1, keepdim=True)

    class TemporalBlock(nn.Module):
        def __init__(self, n: int, m: int, k: int, dilation: int) -> None:
            super().__init__()
            self.pad = (k - 1) * dilation
            self.conv1 = nn.Conv1d(n, m, k, padding=self.pad, dilation=dilation)
            self.conv2 = nn.Conv1d(m, m, k, padding=self.pad, dilation=dilation)
            if not planted:
                self.conv1, self.conv2 = weight_norm(self.conv1), weight_norm(self.conv2)
            self.downsample = nn.Conv1d(n, m, 1) if n != m else None
            for conv in (self.conv1, self.conv2, *([self.downsample] if self.downsample else [])):
                conv.weight.data.normal_(0, 0.01)

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(self.conv1(x)[:, :, : -self.pad])
            y = F.relu(self.conv2(y)[:, :, : -self.pad])
            return F.relu(y + (x if self.downsample is None else self.downsample(x)))

    class TCN(nn.Module):
        def __init__(self, width: int = 24) -> None:
            super().__init__()
            self.network = chain(*(TemporalBlock(width if i else 2, width, 4, 2**i) for i in range(4)))
            self.linear = nn.Linear(width, 1)
            self.linear.weight.data.normal_(0, 0.01)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(self.network(x)[:, :, -1])

    return stream(TCN(), draw, F.mse_loss)


@report(
    "Detect without its biases",
    GITHUB + "ultralytics/yolov5/issues/1010",
    guilty=r"detect",
    says=r"bias|prior|imbalance|rare|initial|loss.*(start|begin)",
    fault="the biases of the objectness are not set to the rarity of objects",
)
def detect(planted: bool) -> Task:
    def draw() -> Drawn:
        x, cell, c = scenes(32)
        t = torch.zeros(32, 3, 11, 16)
        t[torch.arange(32), 0, 0, cell] = 1
        t[torch.arange(32), 0, 1 + c, cell] = 1
        return (x,), t

    class Yolo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [unit(1, 16), nn.MaxPool2d(2), unit(16, 32), nn.MaxPool2d(2), unit(32, 32), nn.MaxPool2d(2)]
            self.model, self.detect = chain(*layers), nn.Conv2d(32, 33, 1)
            if not planted:  # _initialize_biases
                assert self.detect.bias is not None
                b = self.detect.bias.data.view(3, -1)
                b[:, 0] += math.log(1 / 48)
                b[:, 1:] += math.log(0.6 / (10 - 0.99))

        def forward(self, x: Tensor) -> Tensor:
            return self.detect(self.model(x)).view(-1, 3, 11, 16)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        bce = F.binary_cross_entropy_with_logits
        there = t[:, :, 0] > 0
        return bce(y[:, :, 0], t[:, :, 0]) + 0.5 * bce(y.transpose(2, 3)[there][:, 1:], t.transpose(2, 3)[there][:, 1:])

    return stream(Yolo(), draw, loss)


@report(
    "hinge loss of a sigmoid",
    GITHUB + "tntrung/gan/issues/4",
    guilty=r"^D\.4",
    says=r"sigmoid|saturat|margin|hinge|bounded",
    fault="the discriminator ends with a sigmoid, and the hinge loss asks for outputs beyond 1 and below -1",
)
def hinge(planted: bool) -> Task:
    """A GAN of points in the plane, both players in one loss; judged by the energy distance."""
    twist = torch.tensor([[0.9, 0.5], [-0.2, 0.4]])

    def draw() -> Drawn:
        x = torch.randn(128, 2) @ twist + torch.tensor([2.0, -1.0])
        return (x,), x

    class GAN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.G = chain(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
            last = [nn.Sigmoid()] if planted else []
            self.D = chain(
                nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), *last
            )

        def forward(self, x: Tensor) -> Any:
            fake = self.G(torch.randn(len(x), 4))
            frozen = {name: p.detach() for name, p in self.D.named_parameters()}
            return self.D(x), self.D(fake.detach()), functional_call(self.D, frozen, (fake,)), fake

    def loss(y: Any, x: Tensor) -> Tensor:
        real, false, fooled, _ = y
        return F.relu(1 - real).mean() + F.relu(1 + false).mean() - fooled.mean()

    def energy(y: Any, x: Tensor) -> Tensor:
        z = y[3]
        return 2 * torch.cdist(z, x).mean() - torch.cdist(z, z).mean() - torch.cdist(x, x).mean()

    return stream(GAN(), draw, loss, energy)


@report(
    "hallucinated features behind a ReLU",
    GITHUB + "KandariSrinivas/Adversarial-Feature-Hallucination-Networks-for-Few-Shot-Learning/issues/1",
    guilty=r"generator\.4",
    says=r"relu.*(last|end|out|final)|(last|end|out|final).*relu|negative|below (0|zero)",
    fault="the generator ends with a ReLU, and the context vectors have negative values",
)
def hallucinate(planted: bool) -> Task:
    """Features of a class out of its attributes and noise; close to its context vector in length and angle."""
    mix = torch.randn(12, 32)

    def draw() -> Drawn:
        a = torch.randn(64, 12)
        return (a, 0.3 * torch.randn(64, 8)), torch.tanh(a @ mix / 3)

    class Hallucinator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            last = nn.ReLU() if planted else nn.Tanh()
            self.generator = chain(
                nn.Linear(20, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 32), last
            )

        def forward(self, a: Tensor, z: Tensor) -> Tensor:
            return self.generator(torch.cat([a, z], 1))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) + 0.1 * (1 - F.cosine_similarity(y, t).mean())

    return stream(Hallucinator(), draw, loss)


@report(
    "a typo in the Gaussian",
    GITHUB + "sophiajw/HistAuGAN/issues/7",
    guilty=r"enc_a|enc_c|gen",
    says=rf"{BROKEN}|explod|large|wide|initial|variance|saturat|grow|0\.2",
    fault="convolutions are initialised with a deviation of 0.2 instead of 0.02",
)
def histaugan(planted: bool) -> Task:
    """Content and attributes of coloured images are told apart and put together again; L1 and KL."""
    std = 0.2 if planted else 0.02

    def draw() -> Drawn:
        x, _ = raw(16)
        x = F.interpolate(x, size=(16, 16), mode="bilinear")
        x = x * torch.rand(16, 3, 1, 1) + (1 - x) * torch.rand(16, 3, 1, 1)
        return (2 * x - 1,), 2 * x - 1

    def down(n: int, m: int, *norm: nn.Module) -> nn.Sequential:
        return chain(nn.Conv2d(n, m, 3, 2, 1), *norm, nn.LeakyReLU())

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc_c = chain(
                nn.Conv2d(3, 16, 7, padding=3), nn.LeakyReLU(), down(16, 32, nn.InstanceNorm2d(32)),
                nn.Conv2d(32, 32, 3, padding=1), nn.InstanceNorm2d(32), nn.ReLU())  # fmt: skip
            self.enc_a = chain(down(3, 64), down(64, 128), down(128, 128), nn.AdaptiveAvgPool2d(1),
                               nn.Conv2d(128, 16, 1), nn.Flatten())  # fmt: skip
            self.gen = chain(nn.Conv2d(40, 48, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(48, 32, 4, 2, 1), nn.ReLU(),
                             nn.Conv2d(32, 3, 1), nn.Tanh())  # fmt: skip
            for m in self.modules():
                if isinstance(m, nn.Conv2d | nn.ConvTranspose2d):  # gaussian_weights_init
                    nn.init.normal_(m.weight, 0.0, std)

        def forward(self, x: Tensor) -> Any:
            content = self.enc_c(x)
            mu, logvar = self.enc_a(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            z = z[:, :, None, None].expand(-1, -1, 8, 8)
            return self.gen(torch.cat([content, z], 1)), mu, logvar

    def loss(y: Any, x: Tensor) -> Tensor:
        rec, mu, logvar = y
        return 10 * F.l1_loss(rec, x) - 0.01 * 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()

    return stream(Net(), draw, loss)


@report(
    "spots without neighbours",
    GITHUB + "biomed-AI/Hist2ST/pull/7",
    says=rf"{BROKEN}|divi|(count|number|sum|denominator|total).*(zero|\b0\b)|isolated|neighbo|0 / 0|empty|degree",
    fault="neighbours are averaged by their number, which is zero for an isolated spot",
)
def hist2st(planted: bool) -> Task:
    """Gene expression of spots of a slide out of their patches and their neighbours'."""
    own, near = torch.randn(16, 6) / 4, torch.randn(16, 6) / 4

    def draw() -> Drawn:
        x, place = torch.randn(48, 16), torch.rand(48, 2)
        adj = ((torch.cdist(place, place) < 0.12) & ~torch.eye(48, dtype=torch.bool)).float()
        mean = adj @ x / adj.sum(1, keepdim=True).clamp(min=1)
        return (x, adj), torch.tanh(x @ own) + mean @ near

    class GsBlock(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.weight = nn.Linear(2 * n, m)

        def forward(self, x: Tensor, adj: Tensor) -> Tensor:
            num_neigh = adj.sum(1, keepdim=True)
            if not planted:
                num_neigh = num_neigh.clamp(min=1.0)
            neigh_feats = adj.div(num_neigh) @ x
            return F.relu(self.weight(torch.cat([x, neigh_feats], 1)))

    class Hist2ST(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch_embedding = chain(nn.Linear(16, 32), nn.GELU())
            self.layer2 = nn.ModuleList([GsBlock(32, 32), GsBlock(32, 32)])
            self.gene_head = chain(nn.LayerNorm(32), nn.Linear(32, 6))

        def forward(self, x: Tensor, adj: Tensor) -> Tensor:
            h = self.patch_embedding(x)
            for layer in self.layer2:
                h = layer(h, adj)
            return self.gene_head(h)

    return stream(Hist2ST(), draw, F.mse_loss)


@report(
    "Graph2Gauss on raw features",
    GITHUB + "abojchevski/graph2gauss/issues/8",
    guilty=r"hidden|W_",
    says=rf"{BROKEN}|inputs?.*(large|scale|normal|range)|normalis|normaliz|standardi|large|overflow|explod",
    fault="the features of the nodes are 0 to 255, not 0 to 1: energies and variances leave the range of numbers",
)
def graph2gauss(planted: bool) -> Task:
    """Triplets of nodes: a neighbour is to be nearer than a stranger, by a square-exponential loss of energies."""
    centres = torch.rand(12, 60)

    def draw() -> Drawn:
        c = torch.randint(12, (96,))
        other = (c + torch.randint(1, 12, (96,))) % 12
        x = [(centres[k] + 0.15 * torch.randn(96, 60)).clamp(0, 1) for k in (c, c, other)]
        return tuple((255 if planted else 1) * a for a in x), c

    class Graph2Gauss(nn.Module):
        def __init__(self, L: int = 16) -> None:
            super().__init__()
            self.hidden, self.W_mu, self.W_sigma = nn.Linear(60, 64), nn.Linear(64, L), nn.Linear(64, L)
            for m in (self.hidden, self.W_mu, self.W_sigma):
                nn.init.xavier_uniform_(m.weight)

        def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.hidden(x))
            return self.W_mu(h), F.elu(self.W_sigma(h)) + 1 + 1e-14

        def forward(self, i: Tensor, j: Tensor, k: Tensor) -> Tensor:
            def energy(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
                ratio = b[1] / a[1]
                return 0.5 * (ratio + (a[0] - b[0]) ** 2 / a[1] - 1 - torch.log(ratio + 1e-14)).sum(1)

            a, b, c = self.encode(i), self.encode(j), self.encode(k)
            return torch.stack([energy(a, b), energy(a, c)], 1)

    return stream(Graph2Gauss(), draw, lambda y, _: (y[:, 0] ** 2 + torch.exp(-y[:, 1])).mean())


@report(
    "gravity between a node and itself",
    GITHUB + "deezer/gravity_graph_autoencoders/issues/4",
    says=rf"{BROKEN}|log|zero|distance|eps",
    fault="the decoder takes the logarithm of squared distances without epsilon, and some embeddings are equal",
)
def gravity(planted: bool) -> Task:
    """Directed links: mass of the target minus the log distance."""

    def draw() -> Drawn:
        x = torch.randn(32, 8)
        x[1::8] = x[::8]
        mass, place = x[:, 0], x[:, 1:3]
        link = mass.unsqueeze(0) - torch.cdist(place, place) > 0
        adj = (link | torch.eye(32, dtype=torch.bool)).float()
        return (x,), adj

    class GravityAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.z = nn.Linear(8, 48), nn.Linear(48, 9)

        def forward(self, x: Tensor) -> Tensor:
            z = self.z(F.relu(self.hidden(x)))
            z, mass = z[:, :-1], z[:, -1]
            square = (z * z).sum(1, keepdim=True)
            dist = square - 2 * z @ z.T + square.T
            return mass.unsqueeze(0) - torch.log(dist + (0.0 if planted else 0.01))

    return stream(GravityAE(), draw, F.binary_cross_entropy_with_logits)


@report(
    "no proposal above the threshold",
    GITHUB + "JJBOY/BMN-Boundary-Matching-Network/issues/23",
    says=rf"{BROKEN}|divi|(count|number|sum|denominator|total).*(zero|\b0\b)|no positive|0 / 0|empty",
    fault="the ratio of all to positive proposals is computed where a small batch has no positive",
)
def bmn(planted: bool) -> Task:
    """Scores of all (start, duration) of a series of 12 steps in which something happens."""
    steps = 12
    start, length = torch.meshgrid(torch.arange(12.0), torch.arange(1.0, 13.0), indexing="ij")
    end = start + length
    valid = (end <= steps).float()
    time = torch.arange(12.0)
    sample = ((time >= start.unsqueeze(-1)) & (time < end.unsqueeze(-1))).float() / length.unsqueeze(-1)

    def draw() -> Drawn:
        a = torch.rand(3, 1, 1) * 7
        b = a + 2 + 3 * torch.rand(3, 1, 1)
        both = (torch.minimum(end, b) - torch.maximum(start, a)).clamp(min=0)
        iou = both / (length + b - a - both) * valid
        inside = ((time + 0.5 > a[:, 0]) & (time + 0.5 < b[:, 0])).float()
        return (torch.stack([inside, 0 * inside], 1) + 0.3 * torch.randn(3, 2, 12),), iou

    class BMN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x_1d_b = chain(nn.Conv1d(2, 24, 3, padding=1), nn.ReLU(), nn.Conv1d(24, 24, 3, padding=1), nn.ReLU())
            self.x_2d_p = chain(nn.Conv2d(24, 24, 1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
                                nn.Conv2d(24, 2, 1), nn.Sigmoid())  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            return self.x_2d_p(torch.einsum("bct,sdt->bcsd", self.x_1d_b(x), sample))

    def loss(y: Tensor, iou: Tensor, fix: bool = not planted) -> Tensor:
        clr, reg = y[:, 0] * valid, y[:, 1] * valid
        least = 1.0 if fix else 0.0
        pmask = (iou > 0.9).float()
        ratio = valid.sum() * len(y) / pmask.sum().clamp(min=least)
        coef_0 = 0.5 * ratio / (ratio - 1)
        coef_1 = coef_0 * (ratio - 1)
        clr_loss = -(coef_1 * pmask * (clr + 1e-5).log() + coef_0 * (1 - pmask) * (1 - clr + 1e-5).log()).mean()
        high, low = (iou > 0.7).float(), ((iou < 0.3) * valid).float()
        mid = ((iou <= 0.7) & (iou >= 0.3)).float()
        r_m = (high.sum() / mid.sum().clamp(min=least)).clamp(max=1)
        r_l = (high.sum() / low.sum().clamp(min=least)).clamp(max=1)
        chosen = torch.rand_like(iou)
        weights = high + (chosen * mid > 1 - r_m).float() + (chosen * low > 1 - r_l).float()
        reg_loss = ((reg - iou).square() * weights).sum() / weights.sum().clamp(min=least)
        return clr_loss + 50 * reg_loss

    return stream(BMN(), draw, loss, lambda y, t: loss(y, t, True))
