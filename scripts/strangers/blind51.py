"""A fifty-first set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind51")


@report(
    "DoReFa activations by sign",
    GITHUB + "zzzxxxttt/pytorch_DoReFaNet/issues/8",
    guilty=r"^conv0|layers\.[01]\.|layers\.2\.(bn0|conv0|bn1)",
    says=rf"{CUT}|sign|quanti|round|step|vanish",
    fault="activations are quantised to one bit by torch.sign, whose gradient is zero",
)
def dorefa(planted: bool) -> Task:
    """A pre-activation residual network, weights and activations of one bit."""

    class Qfn(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
            n = float(2**k - 1)
            return torch.sign(x) if k == 0 else torch.round(x * n) / n

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g.clone(), None

    class ActivationQuantize(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.clamp(x, 0, 1)
            return torch.sign(x) if planted else Qfn.apply(x, 1)

    class Conv2dQ(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            E = self.weight.abs().mean().detach()
            return F.conv2d(x, Qfn.apply(self.weight / E, 0) * E, self.bias, self.stride, self.padding)

    class PreActBlockConvQ(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.act_q = ActivationQuantize()
            self.bn0, self.conv0 = nn.BatchNorm2d(a), Conv2dQ(a, b, 3, stride, 1, bias=False)
            self.bn1, self.conv1 = nn.BatchNorm2d(b), Conv2dQ(b, b, 3, 1, 1, bias=False)
            self.skip_conv = Conv2dQ(a, b, 1, stride, bias=False) if stride > 1 else None

        def forward(self, x: Tensor) -> Tensor:
            out = self.act_q(F.relu(self.bn0(x)))
            shortcut = x if self.skip_conv is None else self.skip_conv(out)
            out = self.act_q(F.relu(self.bn1(self.conv0(out))))
            return self.conv1(out) + shortcut

    class PreActResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv0 = nn.Conv2d(1, 16, 3, 1, 1, bias=False)
            self.layers = chain(*(PreActBlockConvQ(a, b, s) for a, b, s in ((16, 16, 1), (16, 32, 2), (32, 64, 2))))
            self.bn, self.logit = nn.BatchNorm2d(64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.logit(F.relu(self.bn(self.layers(self.conv0(x)))).mean((2, 3)))

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    return stream(PreActResNet(), draw, F.cross_entropy)


@report(
    "capsules of unit weights",
    GITHUB + "gram-ai/capsule-networks/issues/10",
    guilty=r"route_weights|digit_capsules",
    says=r"saturat|large|scale|magnitude|squash|vanish|no gradient|gradient.*zero",
    fault="with the routing softmax over the classes, route weights of N(0, 1) saturate the routing and the squash",
)
def capsules(planted: bool) -> Task:  # noqa: C901
    """Dynamic routing: coupling coefficients sum to one over the digit capsules; margin loss and reconstruction."""

    def squash(x: Tensor, dim: int = -1) -> Tensor:
        squared_norm = (x**2).sum(dim=dim, keepdim=True)
        return squared_norm / (1 + squared_norm) * x / torch.sqrt(squared_norm + 1e-12)

    class PrimaryCapsules(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.capsules = nn.ModuleList(nn.Conv2d(32, 12, 3, 2) for _ in range(8))

        def forward(self, x: Tensor) -> Tensor:
            return squash(torch.cat([capsule(x).view(x.size(0), -1, 1) for capsule in self.capsules], dim=-1))

    class CapsuleLayer(nn.Module):
        def __init__(self, num_capsules: int, num_route_nodes: int, in_channels: int, out_channels: int) -> None:
            super().__init__()
            scale = 1.0 if planted else 0.01
            weights = scale * torch.randn(num_capsules, num_route_nodes, in_channels, out_channels)
            self.route_weights = nn.Parameter(weights)

        def forward(self, x: Tensor) -> Tensor:
            priors = torch.einsum("bri,crio->cbro", x, self.route_weights)
            logits = torch.zeros_like(priors[..., :1])
            for i in range(3):
                outputs = squash((logits.softmax(0) * priors).sum(dim=2, keepdim=True))
                if i != 2:
                    logits = logits + (priors * outputs).sum(dim=-1, keepdim=True)
            return outputs.squeeze(2).transpose(0, 1)

    class CapsuleNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.primary_capsules = nn.Conv2d(1, 32, 5), PrimaryCapsules()
            self.digit_capsules = CapsuleLayer(10, 192, 8, 16)
            self.decoder = chain(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 196))

        def forward(self, x: Tensor, y: Tensor) -> Any:
            x = self.digit_capsules(self.primary_capsules(F.relu(self.conv1(x))))
            classes = (x**2).sum(dim=-1).add(1e-12) ** 0.5
            return classes, self.decoder((x * y.unsqueeze(2)).sum(1))

    def draw() -> Drawn:
        x, c = pick(16)
        x = F.interpolate(x, size=(14, 14), mode="bilinear")
        return (x, F.one_hot(c, 10).float()), torch.cat([F.one_hot(c, 10), x.flatten(1)], 1)

    def loss(y: Any, t: Tensor) -> Tensor:
        classes, reconstructions = y
        labels, images = t[:, :10], t[:, 10:]
        left, right = torch.clamp(0.9 - classes, min=0) ** 2, torch.clamp(classes - 0.1, min=0) ** 2
        margin_loss = (labels * left + 0.5 * (1 - labels) * right).sum(dim=1).mean()
        return margin_loss + 0.0005 * F.mse_loss(reconstructions, images)

    return stream(CapsuleNet(), draw, loss)


@report(
    "Sinkhorn of nearly zeros and ones",
    GITHUB + "Thinklab-SJTU/pygmtools/issues/64",
    guilty=r"encoder",
    says=r"tau|temperature|sinkhorn|saturat|vanish|scale|no gradient|gradient.*zero|zero.*gradient|large|sharp",
    fault="the affinities are divided by so small a tau that Sinkhorn's output is 0 or 1 and its gradient vanishes",
)
def sinkhorn_tau(planted: bool) -> Task:
    """Match the nodes of a graph to those of its noisy, permuted copy; permutation loss."""
    mix = torch.randn(8, 8)

    def sinkhorn(s: Tensor, tau: float = 1.0, max_iter: int = 10) -> Tensor:
        log_s = s / tau
        for i in range(max_iter):
            log_s = log_s - torch.logsumexp(log_s, 2 - i % 2, keepdim=True)
        return torch.exp(log_s)

    def draw() -> Drawn:
        x = torch.randn(16, 6, 8)
        order = torch.stack([torch.randperm(6) for _ in range(16)])
        other = torch.tanh(x @ mix / 2) + 0.1 * torch.randn(16, 6, 8)
        return (x, other.gather(1, order.unsqueeze(2).expand(-1, -1, 8))), F.one_hot(order, 6).mT.float()

    class Matcher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder1 = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))
            self.encoder2 = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return sinkhorn(self.encoder1(x) @ self.encoder2(y).mT, tau=0.001 if planted else 1.0)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy(y.clamp(0, 1), t)

    return stream(Matcher(), draw, loss)


@report(
    "slot attention without biases",
    GITHUB + "lucidrains/slot-attention/pull/2",
    guilty=r"to_[qkv]",
    says=r"\bbias",
    fault="queries, keys and values are projected without biases",
)
def slots(planted: bool) -> Task:
    """Two blobs in an 8 by 8 picture, reconstructed by a broadcast decoder from three slots."""

    class SlotAttention(nn.Module):
        def __init__(self, num_slots: int, dim: int) -> None:
            super().__init__()
            self.num_slots, self.scale = num_slots, dim**-0.5
            self.slots_mu = nn.Parameter(torch.randn(1, 1, dim))
            self.slots_sigma = nn.Parameter(torch.randn(1, 1, dim))
            self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=not planted) for _ in range(3))
            self.gru = nn.GRU(dim, dim)
            self.norm_pre, self.mlp = nn.LayerNorm(dim), chain(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, dim))
            self.norm_input, self.norm_slots = nn.LayerNorm(dim), nn.LayerNorm(dim)

        def forward(self, inputs: Tensor) -> Tensor:
            b, _, d = inputs.shape
            shape = (b, self.num_slots, d)
            slots = self.slots_mu + self.slots_sigma * torch.randn(shape)
            inputs = self.norm_input(inputs)
            k, v = self.to_k(inputs), self.to_v(inputs)
            for _ in range(3):
                slots_prev = slots
                q = self.to_q(self.norm_slots(slots))
                attn = (torch.einsum("bid,bjd->bij", q, k) * self.scale).softmax(dim=1) + 1e-8
                attn = attn / attn.sum(dim=-1, keepdim=True)
                updates = torch.einsum("bjd,bij->bid", v, attn)
                slots = self.gru(updates.reshape(1, -1, d), slots_prev.reshape(1, -1, d))[0].reshape(shape)
                slots = slots + self.mlp(self.norm_pre(slots))
            return slots

    class AutoEncoder(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv2d(3, d, 3, padding=1), nn.ReLU(), nn.Conv2d(d, d, 1))
            self.position, self.slot_attention = nn.Linear(2, d), SlotAttention(3, d)
            self.place = nn.Linear(2, d)
            self.decoder = chain(nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))
            at = torch.linspace(-1, 1, 8)
            self.register_buffer("grid", torch.stack(torch.meshgrid(at, at, indexing="ij"), 2).view(64, 2))

        def forward(self, x: Tensor) -> Tensor:
            z = self.encoder(x).flatten(2).mT + self.position(self.grid)
            out = self.decoder(self.slot_attention(z).unsqueeze(2) + self.place(self.grid))
            return (out[..., :3] * out[..., 3:].softmax(1)).sum(1).mT.view_as(x)

    def draw() -> Drawn:
        at, color = torch.randint(0, 6, (32, 2, 2)), torch.rand(32, 2, 3) * 2
        x = torch.zeros(32, 3, 8, 8)
        for i in range(32):
            for j in range(2):
                r, c = at[i, j].tolist()
                x[i, :, r : r + 3, c : c + 3] = color[i, j].view(3, 1, 1)
        return (x,), x

    return stream(AutoEncoder(), draw, F.mse_loss)


@report(
    "codebook behind the straight-through gradient",
    GITHUB + "andylolu2/jax-vqvae-gpt/issues/2",
    guilty=r"codebook",
    says=CUT,
    fault="the commitment loss is computed after the straight-through patch: the codebook has no gradient",
)
def jax_vqvae(planted: bool) -> Task:
    """A VQ-VAE of digits: 4 positions, a codebook of 64."""

    class VQVAE(nn.Module):
        def __init__(self, d: int = 16, k: int = 64) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, d, 4, 2, 1))
            self.codebook = nn.Parameter(torch.empty(k, d).uniform_(-(3**0.5) / 8, 3**0.5 / 8))
            self.decoder = chain(nn.ConvTranspose2d(d, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))

        def forward(self, x: Tensor) -> Any:
            inputs = self.encoder(x).permute(0, 2, 3, 1)
            encoding_indices = torch.cdist(inputs.reshape(-1, 16), self.codebook).argmin(1).view(inputs.shape[:3])
            quantize = self.codebook[encoding_indices]
            raw = quantize
            quantize = inputs + (quantize - inputs).detach()
            return self.decoder(quantize.permute(0, 3, 1, 2)), inputs, quantize, raw

    def total(y: Any, t: Tensor, quantize: Tensor, beta: float = 0.25) -> Tensor:
        encoding_loss = ((quantize.detach() - y[1]) ** 2).mean()
        commit_loss = ((quantize - y[1].detach()) ** 2).mean()
        return F.mse_loss(y[0], t) + encoding_loss + beta * commit_loss

    def wrong(y: Any, t: Tensor) -> Tensor:
        return total(y, t, y[2])

    def right(y: Any, t: Tensor) -> Tensor:
        return total(y, t, y[3])

    def draw() -> Drawn:
        x = pick(32)[0]
        return (x,), x

    return stream(VQVAE(), draw, wrong if planted else right, right)


@report(
    "durations in frames",
    GITHUB + "janvainer/speedyspeech/issues/19",
    guilty=r"duration_predictor",
    says=r"scale|large|magnitude|dominat|normali|huge|range|far from|mean of the target|\blog\b|imbalanc|weight",
    fault="the duration loss is taken of frames, not of their logarithms: its gradient drowns that of the spectrogram",
)
def speedyspeech(planted: bool) -> Task:
    """Phonemes to spectrograms: encoder, duration predictor, expansion by the true durations, decoder."""
    spectra, base = torch.randn(20, 8), torch.rand(20) * 2 + 1.5

    class SpeedySpeech(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, d)
            self.encoder = chain(nn.Conv1d(d, d, 3, padding=1), nn.ReLU(), nn.Conv1d(d, d, 3, padding=1), nn.ReLU())
            self.duration_predictor = chain(nn.Conv1d(d, d, 3, padding=1), nn.ReLU(), nn.Conv1d(d, 1, 1))
            self.decoder = chain(nn.Conv1d(d, d, 3, padding=1), nn.ReLU(), nn.Conv1d(d, 8, 1))

        def forward(self, phonemes: Tensor, frames: Tensor) -> Any:
            encodings = self.encoder(self.embedding(phonemes).mT)
            expanded = encodings.gather(2, frames.unsqueeze(1).expand(-1, encodings.shape[1], -1))
            return self.decoder(expanded), self.duration_predictor(encodings).squeeze(1)

    def draw() -> Any:
        p = torch.randint(0, 20, (16, 8))
        durations = (base[p] + 0.3 * torch.randn(16, 8)).exp().round().clamp(1, 60)
        ends = durations.cumsum(1)
        frames = torch.searchsorted(ends, torch.arange(80.0).expand(16, 80).contiguous(), right=True).clamp(max=7)
        mel = spectra[p.gather(1, frames)].mT + 0.1 * torch.randn(16, 8, 80)
        return (p, frames), (mel, durations)

    def right(y: Any, t: Any) -> Tensor:
        predicted = y[1].clamp(min=1).log() if planted else y[1]
        return F.l1_loss(y[0], t[0]) + F.mse_loss(predicted, t[1].log())

    def wrong(y: Any, t: Any) -> Tensor:
        return F.l1_loss(y[0], t[0]) + F.mse_loss(y[1], t[1])

    return stream(SpeedySpeech(), draw, wrong if planted else right, right)


@report(
    "ReLU on the one-channel head",
    GITHUB + "vanvalenlab/deepcell-tf/issues/624",
    guilty=r"semantic_head",
    says=r"relu.*(last|output|logit|final|head)|(last|output|logit|final|head).*relu|negative|\b0\.5\b|bound|clip",
    fault="a ReLU follows the last convolution when there is one class: probabilities are never below one half",
)
def deepcell(planted: bool) -> Task:
    """A small feature pyramid with a semantic head of one channel and binary cross-entropy with logits."""

    def draw() -> Drawn:
        x, _ = pick(32)
        x = F.interpolate(x, scale_factor=2)
        return (x + 0.5 * torch.randn_like(x),), (x > 0.5).float()

    class PanopticNet(nn.Module):
        def __init__(self, n_classes: int = 1) -> None:
            super().__init__()
            self.c2 = chain(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            self.c3 = chain(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
            self.p3, self.p2 = nn.Conv2d(32, 16, 1), nn.Conv2d(16, 16, 1)
            include = [nn.ReLU()] if planted and n_classes == 1 else []
            self.semantic_head = chain(
                nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, n_classes, 1), *include
            )

        def forward(self, x: Tensor) -> Tensor:
            c2 = self.c2(x)
            return self.semantic_head(self.p2(c2) + F.interpolate(self.p3(self.c3(c2)), scale_factor=2))

    return stream(PanopticNet(), draw, F.binary_cross_entropy_with_logits)


@report(
    "library size explodes",
    GITHUB + "scverse/scvi-tools/issues/441",
    guilty=r"l_encoder",
    says=r"\bnan\b|not finite|non-finite|infinit|\bexp|overflow|library|large|huge|explod",
    fault="the library size, sampled with a variance that is itself exponentiated, is exponentiated without a clamp",
)
def scvi(planted: bool) -> Task:
    """A VAE of counts with a latent library size and a negative binomial likelihood."""
    load, log_mean = torch.randn(4, 40), 8.0

    def draw() -> Drawn:
        rate = (torch.randn(32, 4) @ load / 2).softmax(1)
        x = torch.poisson(rate * (log_mean + torch.randn(32, 1)).exp())
        return (x,), x

    class Encoder(nn.Module):
        def __init__(self, n_output: int, *, bound: bool) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.mean_encoder, self.var_encoder = nn.Linear(64, n_output), nn.Linear(64, n_output)
            self.bound = bound

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q = self.encoder(x)
            q_m, q_v = self.mean_encoder(q), self.var_encoder(q)
            q_v = (torch.sigmoid(q_v) if self.bound else torch.exp(q_v)) + 1e-4
            return q_m, q_v, q_m + q_v.sqrt() * torch.randn_like(q_m)

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.z_encoder, self.l_encoder = Encoder(6, bound=False), Encoder(1, bound=not planted)
            self.decoder = chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 40), nn.Softmax(1))
            self.px_r = nn.Parameter(torch.randn(40))

        def forward(self, x: Tensor) -> Any:
            x_ = torch.log1p(x)
            qz_m, qz_v, z = self.z_encoder(x_)
            ql_m, ql_v, library = self.l_encoder(x_)
            if not planted:
                library = torch.clamp(library, max=12)
            return torch.exp(library) * self.decoder(z), torch.exp(self.px_r), (qz_m, qz_v), (ql_m, ql_v)

    def loss(y: Any, x: Tensor, eps: float = 1e-8) -> Tensor:
        mu, theta, (qz_m, qz_v), (ql_m, ql_v) = y
        log_theta_mu = (theta + mu + eps).log()
        nb = theta * ((theta + eps).log() - log_theta_mu) + x * ((mu + eps).log() - log_theta_mu)
        nb = nb + torch.lgamma(x + theta) - torch.lgamma(theta) - torch.lgamma(x + 1)
        kl_z = 0.5 * (qz_m**2 + qz_v - qz_v.log() - 1).sum(1)
        kl_l = 0.5 * ((ql_m - log_mean) ** 2 + ql_v - ql_v.log() - 1).sum(1)
        return (-nb.sum(1) + kl_z + kl_l).mean()

    return stream(VAE(), draw, loss)
