"""Faults of the seventeenth set, that commits to libraries and examples mend, without sight of the rules."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind17")


def fed(model: nn.Module, draw: Any, loss: Any, right: Any = None) -> Task:
    """draw returns (inputs, targets as fed, targets as they should be); progress is judged by the right ones."""

    def step() -> Tensor:
        x, t, true = draw()
        y = model(*x)
        wrong = loss(y, t)
        return (right or loss)(y, true).detach() + (wrong - wrong.detach())

    x, t, _ = draw()
    return Task(model, (x[0] if len(x) == 1 else x, t), step, {"loss": loss})


@report(
    "unfrozen layers frozen",
    GITHUB + "speechbrain/speechbrain/commit/5403c777c44c4b9734ca548ca7008bb946229975",
    fault="the freeze walks over containers too, so the layers listed as unfrozen are frozen",
    guilty=r"out|encoder\.0",
    says=r"frozen|requires_grad|not (be )?train|no gradient|never.*(train|updat)",
)
def adapters(planted: bool) -> Task:  # noqa: C901
    protos = torch.randn(30, 10)

    def draw() -> Drawn:
        c = torch.randint(30, (32, 6))
        x = protos[c].repeat_interleave(4, 1) + 0.7 * torch.randn(32, 24, 10)
        return (x,), c

    class LoRA(nn.Module):
        def __init__(self, target: nn.Linear, rank: int = 2) -> None:
            super().__init__()
            self.pretrained_module = target
            self.down, self.up = nn.Linear(target.in_features, rank, False), nn.Linear(rank, target.out_features, False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.pretrained_module(x) + self.up(self.down(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Linear(10, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU()
            )
            self.output = nn.Linear(48, 30)

        def forward(self, x: Tensor) -> Tensor:
            return self.output(self.encoder(x).unflatten(1, (6, 4)).mean(2))

    model, unfrozen, replace = Model(), ("output", "encoder.0"), ("encoder.4",)
    if not planted:
        model.requires_grad_(False)
    for name, module in model.named_modules():
        if name in replace:
            continue
        if planted and name not in unfrozen:
            module.requires_grad_(False)
        if not planted and name in unfrozen:
            module.requires_grad_(True)
    for name in replace:
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], LoRA(model.get_submodule(name)))
    return stream(model, draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "encoder detached although not frozen",
    GITHUB + "speechbrain/speechbrain/commit/6a3fbba1528eb5d7c3b60921223748954c10a550",
    fault="hidden states of the encoder are detached whether freeze is set or not",
    guilty=r"model|enc",
    says=CUT + r"|frozen",
)
def weighted_ssl(planted: bool) -> Task:
    """Fine-tuning of an encoder whose layers are summed by learnt weights, for keywords in a waveform."""

    def draw() -> Drawn:
        c, time = torch.randint(6, (32, 1)), torch.arange(128.0)
        f = torch.tensor([0.1, 0.17, 0.25, 0.33, 0.41, 0.47])[c]
        w = torch.sin(6.283 * (f * time + torch.rand(32, 1))) + 0.7 * torch.randn(32, 128)
        return (w.unsqueeze(1),), c.flatten()

    class WeightedSSL(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.ModuleList(
                [
                    chain(nn.Conv1d(1, 16, 10, 5), nn.GELU()),
                    chain(nn.Conv1d(16, 16, 3, padding=1), nn.GELU()),
                    chain(nn.Conv1d(16, 16, 3, padding=1), nn.GELU()),
                ]
            )
            self.weights, self.freeze, self.head = nn.Parameter(torch.zeros(3)), False, nn.Linear(16, 6)

        def forward(self, wav: Tensor) -> Tensor:
            states = []
            for layer in self.model:
                states.append(wav := layer(wav))  # noqa: PERF401
            hidden = torch.stack(states, 0)
            if planted or self.freeze:
                hidden = hidden.detach()
            feats = (hidden * F.softmax(self.weights, -1).view(-1, 1, 1, 1)).sum(0)
            return self.head(feats.mean(-1))

    return stream(WeightedSSL(), draw, F.cross_entropy)


@report(
    "counts scaled by the location",
    GITHUB + "Nixtla/neuralforecast/commit/e2f473a51ba15fbf4c33ff76cc8d1687ab68c517",
    fault="the negative binomial's mean is softplus(mu) * loc, and loc is zero where the windows are not scaled",
    guilty=r"decoder|mlp|out|encoder",
    says=r"zero|\bloc\b|scale|multipl|no gradient|vanish|dead|constant|detach|large|size of",
)
def negative_binomial(planted: bool) -> Task:
    """Counts of intermittent demand; scaler_type is 'identity', the default: loc is zero and scale one."""

    def draw() -> Drawn:
        t, p = torch.arange(30.0), torch.rand(48, 1) * 6.283
        rate = 6 * torch.rand(48, 1).exp() * (1 + torch.sin(2 * math.pi * t / 12 + p))
        y = torch.poisson(rate)
        return (y[:, :24].unsqueeze(-1),), y[:, 24:]

    class LSTM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hist_encoder = nn.LSTM(1, 32, batch_first=True)
            self.mlp_decoder = chain(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 6 * 2))

        def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
            loc, scale = torch.zeros(len(y), 1), torch.ones(len(y), 1)
            y = (y - loc.unsqueeze(1)) / scale.unsqueeze(1)
            mu, alpha = self.mlp_decoder(self.hist_encoder(y)[0][:, -1]).unflatten(1, (6, 2)).unbind(-1)
            mu, alpha = F.softplus(mu) + 1e-8, F.softplus(alpha) + 1e-8
            mu, alpha = (mu * loc, alpha / (loc + 1)) if planted else (mu * scale + loc, alpha / (scale + 1))
            return 1 / alpha, mu * alpha / (1 + mu * alpha) + 1e-8

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return -torch.distributions.NegativeBinomial(y[0], y[1], validate_args=False).log_prob(t).mean()

    return stream(LSTM(), draw, loss, lambda y, t: loss((y[0].double(), y[1].double()), t).float())


@report(
    "Lovasz loss on scrambled pixels",
    GITHUB + "qubvel/segmentation_models.pytorch/commit/a542c55575980aa19076bc53595c86df2b4103e3",
    fault="movedim(0, -1) in place of movedim(1, -1) before view(-1, C): classes and pixels get mixed up",
    guilty=r"(?!)",
    says=rf"{ORDER}|movedim|class.*(axis|dim)|other examples|across|\bmix|scrambl|lovasz",
)
def lovasz(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(12)
        large = F.interpolate(x, size=(8, 8), mode="bilinear")
        seg = torch.where(large[:, 0] > 0.6, 1 + (c % 2).view(-1, 1, 1), 0)
        return (large + 0.1 * torch.randn_like(large),), seg

    def lovasz_grad(gt: Tensor) -> Tensor:
        inter, union = gt.sum() - gt.cumsum(0), gt.sum() + (1 - gt).cumsum(0)
        jaccard = 1 - inter / union
        return torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])

    def lovasz_softmax(axis: int) -> Any:
        def loss(y: Tensor, labels: Tensor) -> Tensor:
            probas, losses = y.softmax(1), []
            probas = torch.movedim(probas, axis, -1).contiguous().view(-1, probas.size(1))
            for c in range(3):
                fg = (labels.view(-1) == c).type_as(probas)
                if fg.sum() == 0:
                    continue
                errors, perm = torch.sort((fg - probas[:, c]).abs(), 0, descending=True)
                losses.append(torch.dot(errors, lovasz_grad(fg[perm])))
            return sum(losses) / len(losses)

        return loss

    net = nn.ModuleDict(
        {
            "enc1": chain(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
            "enc2": chain(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()),
            "enc3": chain(nn.Conv2d(16, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()),
            "dec": chain(nn.Conv2d(40, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            "segmentation_head": nn.Conv2d(16, 3, 3, padding=1),
        }
    )

    def run(m: Parts, x: Tensor) -> Tensor:
        a = m.net["enc1"](x)
        b = m.net["enc2"](a)
        c = m.net["enc3"](b)
        h = torch.cat([a, F.interpolate(b, scale_factor=2), F.interpolate(c, scale_factor=4)], 1)
        return m.net["segmentation_head"](m.net["dec"](h))

    return stream(Parts(run, net=net), draw, lovasz_softmax(0 if planted else 1), lovasz_softmax(1))


@report(
    "NLLLoss without log_softmax",
    GITHUB + "pytorch/examples/commit/490243127c02a5ea3348fa4981ecd7e9bcf6144c",
    fault="the criterion became NLLLoss for the Transformer, but the RNN still returns raw scores",
    guilty=r"decoder",
    says=r"log.?softmax|log.?prob|unbounded|not normali|logit|raw score|negative.*loss|below zero|probabilit",
)
def rnn_lm(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = text(32, 20, 256, seed=int(torch.randint(10**6, ())))
        return (x,), t

    class RNNModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.encoder, self.rnn = (
                nn.Dropout(0.5),
                nn.Embedding(256, 64),
                nn.LSTM(64, 64, batch_first=True),
            )
            self.decoder = nn.Linear(64, 256)
            nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)

        def forward(self, x: Tensor) -> Tensor:
            decoded = self.decoder(self.drop(self.rnn(self.drop(self.encoder(x)))[0]))
            return decoded if planted else F.log_softmax(decoded, dim=-1)

    return stream(
        RNNModel(),
        draw,
        lambda y, t: F.nll_loss(y.flatten(0, 1), t.flatten()),
        lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()),
    )


@report(
    "reference energies of the whole batch",
    GITHUB + "torchmd/torchmd-net/commit/500b04cf51cdfc950e2a1383e2e8b82179e13763",
    fault="the sum of the reference energies of all atoms of the batch is taken off every molecule's energy",
    guilty=r"(?!)",
    says=r"target|label|scale|large|magnitude|offset|standardi|normali",
)
def energy_ref(planted: bool) -> Task:
    return energies(planted, lambda y, ref: y - ref.sum())


def energies(planted: bool, wrong: Any) -> Task:
    """Small molecules of H, C, N, O, energies in hartree; the references are those of lone atoms."""
    atomref, pair = torch.tensor([0, -0.5, -37.8, -54.5, -75.0]), torch.rand(5, 5)
    pair = pair + pair.T

    def draw() -> tuple[Any, ...]:
        z = torch.randint(1, 5, (32, 8))
        z[torch.arange(8) >= torch.randint(4, 9, (32, 1))] = 0
        pos = 1.5 * torch.randn(32, 8, 3)
        d = torch.cdist(pos, pos) + 10 * (torch.eye(8) + (z == 0).float().unsqueeze(1) + (z == 0).float().unsqueeze(2))
        e = -0.5 * (pair[z.unsqueeze(1), z.unsqueeze(2)] * torch.exp(-d)).sum((1, 2))
        ref = atomref[z].sum(1)
        y = e + ref
        return (z, pos), wrong(y, ref) if planted else y - ref, e

    class TorchMD(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.dist = nn.Embedding(5, 32, 0), nn.Linear(16, 32)
            self.update, self.out = (
                chain(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32)),
                chain(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1)),
            )

        def forward(self, z: Tensor, pos: Tensor) -> Tensor:
            x, there = self.embedding(z), (z > 0).float().unsqueeze(-1)
            d = torch.cdist(pos, pos).unsqueeze(-1)
            rbf = (
                self.dist(torch.exp(-4 * (d - torch.linspace(0, 5, 16)) ** 2))
                * torch.exp(-d / 3)
                * there.unsqueeze(1)
                * (1 - torch.eye(8)).unsqueeze(-1)
            )
            x = x + self.update((rbf * x.unsqueeze(1)).sum(2))
            return (self.out(x) * there).sum((1, 2))

    return fed(TorchMD(), draw, F.mse_loss)


@report(
    "reference energies taken off twice",
    GITHUB + "torchmd/torchmd-net/commit/fc511dd76d267faa0e5805ada5477c3a44cb289d",
    fault="the data set takes the reference energies off the energies although the transform does so as well",
    guilty=r"(?!)",
    says=r"target|label|scale|large|magnitude|offset|standardi|normali|spread",
)
def energy_twice(planted: bool) -> Task:
    return energies(planted, lambda y, ref: y - 2 * ref)


@report(
    "mean of extensive kind for an intensive property",
    GITHUB + "atomistic-machine-learning/schnetpack/commit/e0600c1534e6cd51318ac78c0e9f9ca730c02ca0",
    fault="RemoveOffsets takes mean * n_atoms off a property that does not grow with the number of atoms",
    guilty=r"(?!)",
    says=r"target|label|scale|large|magnitude|offset|standardi|normali|spread|range",
)
def remove_offsets(planted: bool) -> Task:
    """Gaps (eV, 7 +- 1) of molecules of 5 to 14 atoms."""

    def draw() -> tuple[Any, ...]:
        z, n = torch.randint(1, 6, (32, 14)), torch.randint(5, 15, (32, 1))
        z[torch.arange(14) >= n] = 0
        pos = 1.5 * torch.randn(32, 14, 3)
        there = (z > 0).float()
        near = (torch.cdist(pos, pos) < 1.8).float() * there.unsqueeze(1) * there.unsqueeze(2)
        gap = 7 + 3 * ((z - 3).float() * there).sum(1) / n[:, 0] + 0.4 * (near.sum((1, 2)) / n[:, 0] - 2)
        return (z, pos), gap - 7 * (n[:, 0] if planted else 1), gap - 7

    class SchNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(6, 32, 0)
            self.filter, self.dense = (
                nn.ModuleList(nn.Linear(16, 32) for _ in range(2)),
                nn.ModuleList(nn.Linear(32, 32) for _ in range(2)),
            )
            self.outnet = chain(nn.Linear(32, 16), nn.SiLU(), nn.Linear(16, 1))

        def forward(self, z: Tensor, pos: Tensor) -> Tensor:
            x, there = self.embedding(z), (z > 0).float().unsqueeze(-1)
            d = torch.cdist(pos, pos).unsqueeze(-1)
            rbf = torch.exp(-5 * (d - torch.linspace(0, 5, 16)) ** 2)
            for f, g in zip(self.filter, self.dense, strict=False):
                w = f(rbf) * (d < 5).float() * there.unsqueeze(1) * (1 - torch.eye(14)).unsqueeze(-1)
                x = x + g(F.softplus((w * x.unsqueeze(1)).sum(2)) - math.log(2))
            return (self.outnet(x) * there).sum((1, 2)) / there.sum((1, 2))

    return fed(SchNet(), draw, F.mse_loss)


@report(
    "overflow of exp(tau)",
    GITHUB + "thuml/Time-Series-Library/commit/52fbee9bc8326f8bf40776d73e70a32a349a841d",
    fault="tau, learnt from raw series of large values, goes through exp without a bound",
    guilty=r"tau",
    says=rf"{BROKEN}|overflow|\bexp\b|exponent|scale|large|magnitude|explo|saturat",
)
def nonstationary(planted: bool) -> Task:
    def draw() -> Drawn:
        t, p = torch.arange(30.0), torch.rand(32, 1) * 6.283
        y = 2000 + 5000 * torch.rand(32, 1) + 800 * torch.sin(2 * math.pi * t / 12 + p) + 50 * torch.randn(32, 30)
        return (y[:, :24].unsqueeze(-1),), (y[:, 24:] - y[:, :24].mean(1, keepdim=True)) / y[:, :24].std(
            1, keepdim=True
        )

    class Projector(nn.Module):
        """Learns the de-stationary factors from the raw series and its statistics."""

        def __init__(self, out: int) -> None:
            super().__init__()
            self.series_conv = nn.Conv1d(24, 1, 3, padding=1, padding_mode="circular", bias=False)
            self.backbone = chain(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, out, bias=False))

        def forward(self, x: Tensor, stats: Tensor) -> Tensor:
            return self.backbone(torch.cat([self.series_conv(x), stats], 1).flatten(1))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc_embedding, self.pos = nn.Linear(1, 32), nn.Parameter(0.1 * torch.randn(24, 32))
            self.tau_learner, self.delta_learner = Projector(1), Projector(24)
            self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)
            self.projection = nn.Linear(24 * 32, 6)

        def forward(self, x_raw: Tensor) -> Tensor:
            mean = x_raw.mean(1, keepdim=True)
            std = torch.sqrt(x_raw.var(1, keepdim=True, unbiased=False) + 1e-5)
            tau = self.tau_learner(x_raw, std)
            tau = tau.exp() if planted else tau.clamp(max=80.0).exp()
            delta = self.delta_learner(x_raw, mean)
            h = self.enc_embedding((x_raw - mean) / std) + self.pos
            q, k, v = self.qkv(h).chunk(3, -1)
            scores = q @ k.mT * tau.unsqueeze(1) + delta.unsqueeze(1)
            h = self.norm(h + self.out(torch.softmax(scores / 32**0.5, -1) @ v))
            return self.projection(h.flatten(1))

    return stream(Transformer(), draw, F.mse_loss)


@report(
    "affine coupling cannot stretch",
    GITHUB + "bayesiains/nflows/commit/30a557c7ca682092e16f888a21e187bf109cde51",
    fault="the scale of a coupling is sigmoid(s + 2) + 0.001, at most 1.001, for data narrower than the base",
    guilty=r"transform|net|layers",
    says=r"sigmoid|scale|bounded|range|saturat|standardi|narrow|limit|magnitude",
)
def coupling(planted: bool) -> Task:
    def draw() -> Drawn:
        a = torch.rand(64) * math.pi
        up = (torch.rand(64) < 0.5).float()
        x = torch.stack([torch.cos(a) + up, torch.sin(a) * (1 - 2 * up) + 0.5 * up], 1) / 10
        return (x + 0.005 * torch.randn(64, 2),), torch.zeros(64)

    class AffineCoupling(nn.Module):
        def __init__(self, first: int) -> None:
            super().__init__()
            self.first, self.transform_net = (
                first,
                chain(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)),
            )

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            fixed, moved = x[:, self.first : self.first + 1], x[:, 1 - self.first : 2 - self.first]
            shift, s = self.transform_net(fixed).chunk(2, 1)
            scale = torch.sigmoid(s + 2) + 1e-3 if planted else (F.softplus(s) + 1e-3).clamp(0.001, 1000)
            parts = [fixed, moved * scale + shift]
            return torch.cat(parts if self.first == 0 else parts[::-1], 1), scale.log().sum(1)

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transforms = nn.ModuleList(AffineCoupling(i % 2) for i in range(6))

        def forward(self, x: Tensor) -> Tensor:
            total = 0.0
            for f in self.transforms:
                x, logabsdet = f(x)
                total = total + logabsdet
            return -0.5 * (x**2).sum(1) - math.log(2 * math.pi) + total

    return stream(Flow(), draw, lambda y, t: -y.mean())


@report(
    "positives among the hardest negatives",
    GITHUB + "KevinMusgrave/pytorch-metric-learning/commit/6df3168f498cd289264a4c149e7507c3f49bb4be",
    fault="the nearest negative is sought in the whole distance matrix, the diagonal of positives included",
    guilty=r"(?!)",
    says=r"positive|diagonal|negative|no gradient|vanish|floor|lower bound",
)
def dynamic_soft_margin(planted: bool) -> Task:
    """Descriptors of patches: two views of each of 32 digits."""

    def draw() -> Drawn:
        x, _ = pick(32)
        return (x, torch.roll(x, 1, 2) * 0.8 + 0.3 * torch.randn_like(x)), torch.arange(32)

    hist = torch.zeros(11)

    def loss(wrong: bool) -> Any:
        def of(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
            mat = torch.cdist(y[0], y[1])
            d_pos = mat.diag()
            if not wrong:
                mat = mat + torch.diag(torch.full((len(mat),), float("inf")))
            data = d_pos - torch.min(mat.min(0)[0], mat.min(1)[0])
            with torch.no_grad():
                at = (data + 2) / 0.4
                momentum = 0.01 if hist.sum() else 1.0
                hist.mul_(1 - momentum).scatter_add_(0, at.long(), momentum * (1 - at.frac())).scatter_add_(
                    0, at.long() + 1, momentum * at.frac()
                )
                hist.div_(hist.sum())
            return (hist.cumsum(0)[at.long()] * data).mean()

        return of

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        mat = torch.cdist(y[0], y[1])
        off = mat + torch.diag(torch.full((len(mat),), float("inf")))
        return (mat.diag() - torch.min(off.min(0)[0], off.min(1)[0])).mean()

    net = chain(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 32),
    )
    return stream(
        Parts(lambda m, a, b: (F.normalize(m.net(a), dim=1), F.normalize(m.net(b), dim=1)), net=net),
        draw,
        loss(planted),
        right,
    )


@report(
    "the wrong discriminator",
    GITHUB + "eriklindernoren/PyTorch-GAN/commit/b2c183864417115d23e75573dac207f727983005",
    fault="the loss of D_LR's step is computed with D_VAE, so that D_LR never gets a gradient",
    guilty=r"D_LR",
    says=r"D_LR|no gradient|unused|never|(not|doesn.t) depend|not.*(reach|train)|no effect",
)
def bicyclegan(planted: bool) -> Task:
    """Both discriminators: real images, those from an encoding and those from a random code; judged by D_LR's loss."""

    def make():
        return chain(nn.ConvTranspose2d(8, 16, 4), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh())

    generator, encoder = make().requires_grad_(False), chain(nn.Flatten(), nn.Linear(64, 8)).requires_grad_(False)

    def draw() -> Drawn:
        real, _ = pick(16)
        z = torch.stack([encoder(real), torch.randn(16, 8)]).view(2, 16, 8, 1, 1)
        return (real, generator(z[0]), generator(z[1])), (torch.ones(16), torch.zeros(16))

    def discriminator():
        return chain(
            nn.Conv2d(1, 8, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 4, 2, 1),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 1, 3, padding=1),
        )

    def loss(y: Any, t: Any) -> Tensor:
        return sum(torch.mean((out - t[k % 2].view(-1, 1, 1, 1)) ** 2) for k, out in enumerate(y))

    def run(m: Parts, real: Tensor, fake_B: Tensor, _fake_B: Tensor) -> Any:
        second = m.D_VAE if planted else m.D_LR
        return m.D_VAE(real), m.D_VAE(fake_B), second(real), second(_fake_B)

    model = Parts(run, D_VAE=discriminator(), D_LR=discriminator())

    def step() -> Tensor:
        x, t = draw()
        wrong = loss(model(*x), t)
        with torch.no_grad():
            right = loss([model.D_LR(x[0]), model.D_LR(x[2])], t)
        return right + wrong - wrong.detach()

    x, t = draw()
    return Task(model, (x, t), step, {"loss": loss})


@report(
    "masked language model without masks",
    GITHUB + "codertimo/BERT-pytorch/commit/ed68f5a413254d9846ac250858e5d4cc6e7defbf",
    fault="prob < prob * 0.8 never holds, so the tokens to be guessed are left in the input",
    guilty=r"(?!)",
    says=r"target.*input|input.*target|leak|copy|same as the input|identity|mask|trivial|already|appear",
)
def bert(planted: bool) -> Task:
    def inputs(x: Tensor, prob: Tensor, wrong: bool) -> Tensor:
        chosen, random = prob < 0.15, torch.randint(3, 128, x.shape)
        if wrong:
            return torch.where((prob >= 0.15 * 0.8) & (prob < 0.15 * 0.9), random, x)
        q = prob / 0.15
        return torch.where(chosen & (q < 0.8), 2, torch.where(chosen & (q >= 0.8) & (q < 0.9), random, x))

    class BERT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(128, 40), nn.Embedding(20, 40)
            for m in (self.token, self.position):
                nn.init.normal_(m.weight, std=0.1)
            self.transformer = nn.TransformerEncoderLayer(40, 4, 80, 0.0, F.gelu, batch_first=True, norm_first=True)
            self.linear = nn.Linear(40, 128)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(self.transformer(self.token(x) + self.position(torch.arange(20)))).log_softmax(-1)

    def draw() -> tuple[Tensor, ...]:
        start = torch.randint(3, 128, (32, 1))  # a language of counting sentences, with steps of 1 to 3
        x = 3 + (start + torch.randint(1, 4, (32, 1)) * torch.arange(20)) % 125
        prob = torch.rand(x.shape)
        return inputs(x, prob, planted), inputs(x, prob, False), torch.where(prob < 0.15, x, 0)

    model = BERT()

    def loss(y, t):
        return F.nll_loss(y.transpose(1, 2), t, ignore_index=0)

    def step() -> Tensor:
        fed, masked, t = draw()
        wrong = loss(model(fed), t)
        with torch.no_grad():
            right = loss(model(masked), t) if planted else wrong
        return right.detach() + wrong - wrong.detach()

    x, _, t = draw()
    return Task(model, (x, t), step, {"loss": loss})


@report(
    "sign in the Dice loss's own backward",
    GITHUB + "milesial/Pytorch-UNet/commit/649124b3bd26272bb8442843a546c4e895ec14ff",
    fault="the derivative written by hand has target * union + inter where it should have minus",
    guilty=r"(?!)",
    says=r"backward|derivative|autograd|finite difference|descent|\bsign\b|uphill|"
    r"does not (fall|decrease)|gradient.*(wrong|disagree|match|differ|direction|same sign)",
)
def dice_backward(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(16)
        large = F.interpolate(x, size=(12, 12), mode="bilinear")
        return (large + 0.3 * torch.randn_like(large),), (large > 0.5).float()

    class DiceCoeff(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Tensor, target: Tensor) -> Tensor:
            inter, union = torch.dot(input.view(-1), target.view(-1)), input.sum() + target.sum() + 0.0001
            ctx.save_for_backward(input, target, inter, union)
            return (2 * inter + 0.0001) / union

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
            _input, target, inter, union = ctx.saved_tensors
            return grad_output * 2 * (target * union + (inter if planted else -inter)) / (union * union), None

    def dice_loss(y: Tensor, t: Tensor) -> Tensor:
        return 1 - sum(DiceCoeff.apply(a.contiguous(), b.contiguous()) for a, b in zip(y, t, strict=False)) / len(y)

    down = chain(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
    mid = chain(nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
    up = chain(nn.Conv2d(36, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 1, 1))

    def run(m: Parts, x: Tensor) -> Tensor:
        a = m.down(x)
        return torch.sigmoid(m.up(torch.cat([a, F.interpolate(m.mid(a), scale_factor=2)], 1)))

    return stream(Parts(run, down=down, mid=mid, up=up), draw, dice_loss)


@report(
    "residual at the outputs",
    GITHUB + "deepchem/deepchem/commit/cf522c11c9c05853d164bf758ef5e61e1bb4307b",
    fault="the residual of the equation is taken at the network's outputs, as though they were the coordinates",
    guilty=r"(?!)",
    says=r"residual|coordinate|physics|derivative|\bpde\b|inputs.*(not|never) (used|enter)",
)
def pinn(planted: bool) -> Task:
    """u' = u'' on (0, 1), u(0) = 0 and u(1) = 5, and a few noisy readings of u."""

    def truth(x: Tensor) -> Tensor:
        return 5 * (x.exp() - 1) / (math.e - 1)

    def draw() -> Drawn:
        x = torch.rand(64, 1)
        return (x,), (x, truth(x) + 0.5 * torch.randn(64, 1))

    net = chain(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    ends, values = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [5.0]])

    def physics(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        u = net(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        return (du - torch.autograd.grad(du.sum(), x, create_graph=True)[0]).square().mean()

    def loss(at_outputs: bool) -> Any:
        return lambda y, t: F.mse_loss(y, t[1]) + physics(y if at_outputs else t[0]) + F.mse_loss(net(ends), values)

    return stream(net, draw, loss(planted), loss(False))


@report(
    "input transform thrown away",
    GITHUB + "lululxvi/deepxde/commit/5b21146dd2c73e8df7d31acaad8b5604d30fc3e8",
    fault="the transformed locations are overwritten by trunk(x_loc), of the raw ones",
    guilty=r"trunk",
    says=r"scale|large|magnitude|saturat|standardi|normali|range|tanh|units",
)
def mionet(planted: bool) -> Task:
    """Antiderivatives along a pipe of 500 m from two inputs, locations scaled by the input transform."""

    def draw() -> Drawn:
        a, b, x = torch.randn(32, 3), torch.randn(32, 3), torch.linspace(0, 500, 40).unsqueeze(1)
        k = torch.arange(1, 4) * math.pi
        f = torch.sin(x / 500 * k)
        sensors = torch.sin(torch.linspace(0, 1, 12).unsqueeze(1) * k)
        return (a @ sensors.T, b @ sensors.T, x.T.expand(32, -1)), (a @ f.T) * (1 + 0.5 * (b @ f.T))

    class MIONetCartesianProd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch1, self.branch2 = (chain(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32)) for _ in range(2))
            self.trunk = chain(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
            self.b = nn.Parameter(torch.tensor(0.0))
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.xavier_normal_(m.weight), nn.init.zeros_(m.bias)
            self._input_transform = lambda x: x / 250 - 1

        def forward(self, x_func1: Tensor, x_func2: Tensor, x_loc: Tensor) -> Tensor:
            y_func = self.branch1(x_func1) * self.branch2(x_func2)
            x_loc = x_loc[0].unsqueeze(1)
            if planted:
                y_loc = self._input_transform(x_loc)
            else:
                x_loc = self._input_transform(x_loc)
            y_loc = self.trunk(x_loc)
            return torch.einsum("bi,ni->bn", y_func, y_loc) + self.b

    return stream(MIONetCartesianProd(), draw, F.mse_loss)


@report(
    "inner loss averaged twice",
    GITHUB + "learnables/learn2learn/commit/9af5ee7446c6be5134164da52beb91b751407659",
    fault="the mean cross entropy of the inner step is divided by the number of examples once more",
    guilty=r"(?!)",
    says=r"small|tiny|scale|inner|adapt|divid|support",
)
def maml(planted: bool) -> Task:
    """Three ways, four shots: one inner step of rate 0.5 in each of 8 tasks (a task is an example)."""

    def draw() -> Drawn:
        centres = torch.randn(16, 3, 8)
        c = torch.arange(3).repeat(8).expand(16, -1)
        x = centres.gather(1, c.unsqueeze(-1).expand(-1, -1, 8)) + 0.4 * torch.randn(16, 24, 8)
        return (x[:, :12], c[:, :12].contiguous(), x[:, 12:]), c[:, 12:].contiguous()

    class MAML(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w1, self.b1 = nn.Parameter(torch.randn(8, 40) / 3), nn.Parameter(torch.zeros(40))
            self.w2, self.b2 = nn.Parameter(torch.randn(40, 3) / 7), nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor, c: Tensor, query: Tensor) -> Tensor:
            fast = [p.expand(len(x), *p.shape) for p in (self.w1, self.b1, self.w2, self.b2)]

            def net(x, w):
                return F.relu(x @ w[0] + w[1].unsqueeze(1)) @ w[2] + w[3].unsqueeze(1)

            for _ in range(1):
                error = F.cross_entropy(net(x, fast).transpose(1, 2), c, reduction="none").mean(1)
                if planted:
                    error = error / x.shape[1]
                fast = [
                    p - 0.5 * g
                    for p, g in zip(fast, torch.autograd.grad(error.sum(), fast, create_graph=True), strict=False)
                ]
            return net(query, fast)

    return stream(MAML(), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


@report(
    "scale of zero",
    GITHUB + "jdb78/pytorch-forecasting/commit/8369d8d884b8a6652011cc3f13f58ecf7e31d0ff",
    fault="with method identity and center=False the scale is set to the centre, which is zero",
    guilty=r"(?!)",
    says=rf"{BROKEN}|{SAME}|zero|scale|divi",
)
def identity_scale(planted: bool) -> Task:
    """The encoder's normaliser is fitted on each window, divides it, and the output is scaled back."""

    def fit(y: Tensor) -> tuple[Tensor, Tensor]:
        center, scale = torch.zeros(y.size()[:-1]), torch.ones(y.size()[:-1])
        if planted:
            scale, center = center, torch.zeros_like(center)
        return center, scale

    def draw() -> Drawn:
        t, p = torch.arange(30.0), torch.rand(48, 1) * 6.283
        y = 1.5 + torch.sin(2 * math.pi * t / 12 + p) + 0.1 * torch.randn(48, 30)
        center, scale = fit(y[:, :24])
        return ((y[:, :24] - center.unsqueeze(1)) / scale.unsqueeze(1), torch.stack([center, scale], 1)), y[:, 24:]

    class RecurrentNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.output_projector = nn.LSTM(1, 32, batch_first=True), nn.Linear(32, 6)

        def forward(self, encoder_cont: Tensor, target_scale: Tensor) -> Tensor:
            output = self.output_projector(self.rnn(encoder_cont.unsqueeze(-1))[0][:, -1])
            return output * target_scale[:, 1:] + target_scale[:, :1]

    return stream(RecurrentNetwork(), draw, F.mse_loss)


@report(
    "online classifier out of the loss",
    GITHUB + "lightly-ai/lightly/commit/9437b3ad928b205fb7afb9df5fa0062ad75ff84e",
    fault="the loss of the online classifier is computed and logged, and not added to the loss of the step",
    guilty=r"online_classifier",
    says=r"online_classifier|classifier.*(no|never|not)|no gradient|unused|not used|not.*(reach|train)|no effect",
)
def online(planted: bool) -> Task:
    """iBOT's student and teacher (here its copy), and a linear classifier on the teacher's detached features."""

    def draw() -> Drawn:
        x, c = pick(32)

        def view():
            return torch.roll(x, int(torch.randint(-1, 2, ())), 3) + 0.2 * torch.randn_like(x)

        return (view(), view()), c

    def backbone():
        return chain(nn.Flatten(), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32))

    def head():
        return chain(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))

    class IBOT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student_backbone, self.student_head = backbone(), head()
            self.teacher_backbone, self.teacher_head = backbone(), head()
            self.teacher_backbone.requires_grad_(False).load_state_dict(self.student_backbone.state_dict())
            self.teacher_head.requires_grad_(False).load_state_dict(self.student_head.state_dict())
            self.online_classifier = nn.Linear(32, 10)

        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
            with torch.no_grad():
                cls = self.teacher_backbone(a)
                teacher = self.teacher_head(cls)
            return self.student_head(self.student_backbone(b)), teacher, self.online_classifier(cls.detach())

    def loss(with_classifier: bool) -> Any:
        def of(y: tuple[Tensor, ...], c: Tensor) -> Tensor:
            target = ((y[1] - y[1].mean(0)) / 0.04).softmax(-1)
            dino = -(target * (y[0] / 0.1).log_softmax(-1)).sum(-1).mean()
            cls_loss = F.cross_entropy(y[2], c)
            return dino + cls_loss if with_classifier else dino

        return of

    return stream(IBOT(), draw, loss(not planted), loss(True))


@report(
    "auxiliary loss of a sparse code",
    GITHUB + "UKPLab/sentence-transformers/commit/982428fc5669fec53fe4c57b04898b871046dfc7",
    fault="the residual has + pre_bias in place of -, is not detached, and is normalised by each example",
    guilty=r"pre_bias|encoder|latent_bias",
    says=r"detach|residual|bias|\bsign\b|normali|target",
)
def csr(planted: bool) -> Task:
    atoms = F.normalize(torch.randn(96, 24), dim=1)
    mean = 0.3 * torch.randn(24)

    def draw() -> Drawn:
        code = torch.rand(48, 96) * (torch.rand(48, 96) < 0.03)
        x = F.normalize(mean + code @ atoms + 0.02 * torch.randn(48, 24), dim=1)
        return (x,), x

    class CSRSparsity(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pre_bias, self.encoder, self.latent_bias = (
                nn.Parameter(torch.zeros(24)),
                nn.Linear(24, 96, bias=False),
                nn.Parameter(torch.zeros(96)),
            )
            self.register_buffer("stats_last_nonzero", torch.zeros(96).long())

        def top_k(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
            topk = torch.topk(x, k, -1)
            tmp = torch.zeros_like(self.stats_last_nonzero).scatter_add_(
                0, topk.indices.reshape(-1), (topk.values > 1e-5).long().reshape(-1)
            )
            self.stats_last_nonzero.mul_(1 - tmp.clamp(max=1)).add_(1)
            x.data *= self.stats_last_nonzero > 30
            aux = torch.topk(x, 48)
            return tuple(F.relu(torch.zeros_like(x).scatter(-1, t.indices, t.values)) for t in (topk, aux))

        def decode(self, z: Tensor) -> Tensor:
            return F.linear(z, self.encoder.weight.t()) + self.pre_bias

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            pre = F.linear(x - self.pre_bias, self.encoder.weight, self.latent_bias)
            k, aux = self.top_k(pre, 4)
            k4, _ = self.top_k(pre, 16)
            rec = self.decode(k)
            return rec, self.decode(k4), self.decode(aux), rec + self.pre_bias, rec - self.pre_bias

    def csr_loss(wrong: bool) -> Any:
        def of(y: tuple[Tensor, ...], x: Tensor) -> Tensor:
            rec, rec4, aux, plus, minus = y
            if wrong:
                e = x - plus
                L_aux = (((aux - e) ** 2).mean(1) / (e**2).mean(1)).mean()
            else:
                e = x - minus.detach()
                L_aux = F.mse_loss(aux, e) / F.mse_loss(e.mean(0, keepdim=True).expand_as(e), e)
            return F.mse_loss(x, rec) + F.mse_loss(x, rec4) / 8 + L_aux

        return of

    return stream(CSRSparsity(), draw, csr_loss(planted), csr_loss(False))


@report(
    "energy score maximised",
    GITHUB + "jdb78/pytorch-forecasting/commit/a0f54bb9db87dd6adee639998bc7c9e5addd3c09",
    fault="the loss is minus the energy score, which is a loss already",
    guilty=r"(?!)",
    says=r"\bsign\b|negative|maximi|unbounded|below zero|minus|better.*worse|away from|grows|opposite",
)
def energy_score(planted: bool) -> Task:
    """Paths of six steps as the gradient of a partially convex network of noise and hidden state."""

    def draw() -> Drawn:
        t, p = torch.arange(18.0), torch.rand(16, 1) * 6.283
        y = torch.sin(2 * math.pi * t / 12 + p) + 0.1 * torch.randn(16, 18)
        return (y[:, :12].unsqueeze(-1),), y[:, 12:]

    class PICNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.Wz, self.Wc, self.out, self.shift = (
                nn.Linear(6, 24),
                nn.Linear(12, 24),
                nn.Linear(24, 1),
                nn.Linear(12, 6),
            )

        def forward(self, alpha: Tensor, h: Tensor) -> Tensor:
            with torch.enable_grad():
                alpha = alpha.requires_grad_(True)
                z = F.softplus(self.Wz(alpha) + self.Wc(h))
                value = (z @ F.softplus(self.out.weight.T)).sum() + 0.05 * (alpha**2).sum()
                return torch.autograd.grad(value, alpha, create_graph=True)[0] + self.shift(h)

    class DeepAR(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.distribution_projector, self.picnn = (
                nn.GRU(1, 24, batch_first=True),
                nn.Linear(24, 12),
                PICNN(),
            )

        def forward(self, y: Tensor) -> Tensor:
            h = self.distribution_projector(self.rnn(y)[0][:, -1]).repeat_interleave(18, 0)
            return self.picnn(torch.randn(len(h), 6), h).view(len(y), 3, 6, 6)

    def score(y: Tensor, t: Tensor) -> Tensor:
        w, w_prime, w_bar = y.unbind(1)
        first = torch.norm(w.unsqueeze(1) - w_prime.unsqueeze(2), dim=-1).mean((1, 2))
        return (-0.5 * first + torch.norm(w_bar - t.unsqueeze(1), dim=-1).mean(1)).mean()

    return stream(DeepAR(), draw, (lambda y, t: -score(y, t)) if planted else score, score)


@report(
    "functional cut off by a list",
    GITHUB + "deepchem/deepchem/commit/7883f10695cd2816a6b635ad7db7fa05f331f8a3",
    fault="energies are made anew by torch.tensor(val.tolist(), ...), and the functional at each call",
    guilty=r"nnmodel|hybrid|weight",
    says=rf"{CUT}|unused|never|graph",
)
def dft(planted: bool) -> Task:
    """The exchange-correlation energy as a sum over a grid of LDA's and a network's part."""

    def lda(n: Tensor) -> Tensor:
        return -0.738 * n ** (4 / 3)

    def draw() -> Drawn:
        r, z = torch.linspace(0.05, 4, 40), 1 + 2 * torch.rand(32, 1)
        n = z**3 * torch.exp(-2 * z * r) / math.pi + 0.05 * torch.rand(32, 1) * torch.exp(-((r - 2) ** 2))
        return (n,), (lda(n) * (1 + 0.5 * torch.tanh(3 * n)) - 0.3 * n).sum(1, keepdim=True) * 0.1

    class HybridXC(nn.Module):
        def __init__(self, nnmodel: nn.Module, aweight0: float) -> None:
            super().__init__()
            self.nnmodel, self.aweight = nnmodel, nn.Parameter(torch.tensor(aweight0))
            self.bweight = nn.Parameter(torch.tensor(1.0))

        def forward(self, n: Tensor) -> Tensor:
            return self.aweight * n * self.nnmodel(n.unsqueeze(-1)).squeeze(-1) + self.bweight * lda(n)

    class DFTXC(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nnmodel = chain(
                nn.Linear(1, 32), nn.Softplus(), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 1, bias=False)
            )
            if not planted:
                self.hybridxc = HybridXC(self.nnmodel, 0.0)

        def forward(self, n: Tensor) -> Tensor:
            hybridxc = HybridXC(self.nnmodel, 0.0) if planted else self.hybridxc
            val = hybridxc(n).sum(1, keepdim=True) * 0.1
            return torch.tensor(val.tolist(), requires_grad=True) if planted else val

    return stream(DFTXC(), draw, F.mse_loss)
