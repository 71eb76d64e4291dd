"""Healthy networks of public repositories, a second set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from strangers.apart import GITHUB, Parts, body, classes, padded, words
from strangers.blind2 import bce, each, pick, stream
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import digits, text
from strangers.reports import regress

healthy = partial(any_report, blind="blind")


def residual(m: Any, x: Tensor) -> Tensor:
    return x + m.net(x)


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def drawn(model: nn.Module) -> Task:
    return stream(model, lambda: ((x := pick())[:1], x[1]), F.cross_entropy)


@healthy("DCGAN discriminator", GITHUB + "pytorch/examples/tree/main/dcgan")
def dcgan(_: bool) -> Task:
    """N(0, 0.02²), gains of N(1, 0.02²), no biases, a sigmoid and BCE; real digits against noise in their place."""
    layers: list[nn.Module] = [nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for n in (16, 32):
        layers += [nn.Conv2d(n, 2 * n, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * n), nn.LeakyReLU(0.2)]
    model = chain(*layers, nn.Conv2d(64, 1, 2, bias=False), nn.Sigmoid(), nn.Flatten())
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0 if isinstance(layer, nn.BatchNorm2d) else 0.0, 0.02)
    x = digits(16, count=32)[0]
    x = torch.cat([x, x.flatten(1)[:, torch.randperm(256)].view_as(x) + 0.1 * torch.randn_like(x)])
    t = (torch.arange(64) < 32).float().unsqueeze(1)
    return Task(model, (x, t), lambda: F.binary_cross_entropy(model(x), t), {"loss": F.binary_cross_entropy})


@healthy("SNGAN discriminator", GITHUB + "christiancosgrove/pytorch-spectral-normalization-gan")
def sngan(_: bool) -> Task:
    """Spectral normalisation and the hinge loss."""
    convs = (nn.Conv2d(1, 16, 3, 1, 1), nn.Conv2d(16, 32, 4, 2, 1), nn.Conv2d(32, 32, 3, 1, 1),
             nn.Conv2d(32, 64, 4, 2, 1))  # fmt: skip
    layers = [layer for conv in convs for layer in (spectral_norm(conv), nn.LeakyReLU(0.1))]
    model = chain(*layers, nn.Flatten(), spectral_norm(nn.Linear(1024, 1)))

    def hinge(y: Tensor, t: Tensor) -> Tensor:
        return F.relu(1 - t * y).mean()

    x = digits(16, count=32)[0]
    x = torch.cat([x, torch.randn_like(x)])
    t = torch.where(torch.arange(64) < 32, 1.0, -1.0).unsqueeze(1)
    return Task(model, (x, t), lambda: hinge(model(x), t), {"loss": hinge})


@healthy("StyleGAN2 mapping", GITHUB + "rosinality/stylegan2-pytorch")
def stylegan(_: bool) -> Task:
    """Weights of N(0, 1) / 0.01, scaled at run time; pixel norm; a modulated and demodulated convolution."""

    class Equal(nn.Module):
        def __init__(self, n: int, m: int, rate: float = 1.0, bias: float = 0.0) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(m, n) / rate), nn.Parameter(torch.full((m,), bias))
            self.scale, self.rate = rate / math.sqrt(n), rate

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.scale * self.weight, self.rate * self.bias)

    def run(m: Any, z: Tensor) -> Tensor:
        w = m.style(z / (z.square().mean(1, keepdim=True) + 1e-8).sqrt())
        x = m.constant.expand(len(z), -1, -1, -1)
        for kernel, affine in zip(m.kernels, m.affines, strict=True):
            weight = kernel * affine(w)[:, None, :, None, None] / math.sqrt(9 * 32)
            weight = weight / (weight.square().sum((2, 3, 4), keepdim=True) + 1e-8).sqrt()
            x = F.interpolate(x, scale_factor=2).reshape(1, -1, 2 * x.shape[2], 2 * x.shape[3])
            x = F.leaky_relu(F.conv2d(x, weight.flatten(0, 1), None, 1, 1, 1, len(z)).unflatten(1, (-1, 32))[0], 0.2)
            x = math.sqrt(2) * x
        return m.rgb(x)

    style = chain(*(layer for _ in range(4) for layer in (Equal(32, 32, 0.01), nn.LeakyReLU(0.2))))
    kernels = nn.ParameterList(nn.Parameter(torch.randn(32, 32, 3, 3)) for _ in range(2))
    model = Parts(run, style=style, constant=nn.Parameter(torch.randn(1, 32, 2, 2)), kernels=kernels,
                  affines=each(2, lambda: Equal(32, 32, 1.0, 1.0)), rgb=nn.Conv2d(32, 1, 1))  # fmt: skip
    z, t = torch.randn(32, 32), digits(8, count=32)[0]
    return Task(model, (z, t), lambda: F.mse_loss(model(z), t), {"loss": "mse"})


@healthy("pix2pix generator", GITHUB + "junyanz/pytorch-CycleGAN-and-pix2pix")
def pix2pix(_: bool) -> Task:
    """Nested U-Net blocks, N(0, 0.02²), instance normalisation without parameters, tanh and the absolute error."""

    def join(m: Any, x: Tensor) -> Tensor:
        return torch.cat([x, m.net(x)], 1)

    inner = Parts(join, net=chain(nn.LeakyReLU(0.2), nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU(),
                                  nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.InstanceNorm2d(32)))  # fmt: skip
    middle = Parts(join, net=chain(nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.InstanceNorm2d(32), inner,
                                   nn.ReLU(), nn.ConvTranspose2d(64, 16, 4, 2, 1), nn.InstanceNorm2d(16)))  # fmt: skip
    model = chain(nn.Conv2d(1, 16, 4, 2, 1), middle, nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh())
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(module.weight, 0.0, 0.02)
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]
    x = digits(16, count=16)[0].clamp(-1, 1)
    edges = (x - F.avg_pool2d(x, 3, 1, 1)).abs()
    return Task(model, (edges, x), lambda: F.l1_loss(model(edges), x), {"loss": F.l1_loss})


@healthy("VQ-VAE", GITHUB + "zalandoresearch/pytorch-vq-vae")
def vqvae(_: bool) -> Task:
    """Codes of U(±1/32); gradients go straight through the choice of the nearest."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.encoder(x).permute(0, 2, 3, 1)
        code = m.codes(torch.cdist(z.flatten(0, 2), m.codes.weight).argmin(1)).view(z.shape)
        commit = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        return m.decoder((z + (code - z).detach()).permute(0, 3, 1, 2)), commit

    codes = nn.Embedding(32, 16)
    nn.init.uniform_(codes.weight, -1 / 32, 1 / 32)
    model = Parts(run, encoder=chain(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 16, 3, 1, 1)), codes=codes,
                  decoder=chain(nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1)))  # fmt: skip

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + y[1]

    return stream(model, lambda: (((x := pick(32)[0]),), x), loss)


@healthy("MADE", GITHUB + "karpathy/pytorch-made")
def made(_: bool) -> Task:
    """Linear layers under masks: no pixel sees itself or those after it."""

    class Masked(nn.Linear):
        def __init__(self, n: Tensor, m: Tensor, *, strict: bool = False) -> None:
            super().__init__(len(n), len(m))
            self.register_buffer("mask", (m.unsqueeze(1) > n if strict else m.unsqueeze(1) >= n).float())

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.mask * self.weight, self.bias)

    pixels = torch.arange(64)
    hidden = [torch.randint(63, (128,)) for _ in range(2)]
    model = chain(Masked(pixels, hidden[0]), nn.ReLU(), Masked(hidden[0], hidden[1]), nn.ReLU(),
                  Masked(hidden[1], pixels, strict=True))  # fmt: skip

    def draw() -> tuple[tuple[Tensor], Tensor]:
        x = (pick()[0].flatten(1) > 0).float()
        return (x,), x

    return stream(model, draw, bce)


@healthy("neural ODE", GITHUB + "rtqichen/torchdiffeq")
def neural_ode(_: bool) -> Task:
    """One block of convolutions with time as a channel, integrated by Runge's and Kutta's rule in four steps."""

    def field(m: Any, t: float, x: Tensor) -> Tensor:
        for norm, conv in zip(m.norms, m.convs, strict=True):
            x = F.relu(norm(x))
            x = conv(torch.cat([torch.full_like(x[:, :1], t), x], 1))
        return m.last(x)

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.down(x)
        for i in range(4):
            t, h = i / 4, 1 / 4
            a = field(m, t, x)
            b = field(m, t + h / 2, x + h / 2 * a)
            c = field(m, t + h / 2, x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + field(m, t + h, x + h * c))
        return m.fc(F.relu(x).mean((2, 3)))

    return drawn(Parts(run, down=nn.Conv2d(1, 24, 3, 2, 1), norms=each(2, lambda: nn.GroupNorm(8, 24)),
                       convs=each(2, lambda: nn.Conv2d(25, 24, 3, 1, 1)), last=nn.GroupNorm(8, 24),
                       fc=nn.Linear(24, 10)))  # fmt: skip


@healthy("deep equilibrium", GITHUB + "locuslab/deq")
def deq(_: bool) -> Task:
    """Thirty iterations without gradient, then a few with it; weights of N(0, 0.01²)."""

    def run(m: Any, x: Tensor) -> Tensor:
        u, z = m.inject(x.flatten(1)), torch.zeros(len(x), 64)
        with torch.no_grad():
            for _ in range(30):
                z = m.norm(z + F.relu(m.inner(z) + u))
        for _ in range(3):
            z = m.norm(z + F.relu(m.inner(z) + u))
        return m.out(z)

    model = Parts(run, inject=nn.Linear(64, 64), inner=nn.Linear(64, 64), norm=nn.LayerNorm(64), out=nn.Linear(64, 10))
    nn.init.normal_(model.inner.weight, std=0.01)
    return drawn(model)


@healthy("GIN", GITHUB + "weihua916/powerful-gnns")
def gin(_: bool, nodes: int = 12) -> Task:
    """Sums over neighbours, batch normalisation over all nodes, and a readout of every layer."""

    def run(m: Any, graph: Tensor) -> Tensor:
        x = F.one_hot(graph.sum(2).long().clamp(max=7), 8).float()
        y = m.outs[0](x.sum(1))
        for eps, net, norm, out in zip(m.eps, m.nets, m.norms, m.outs[1:], strict=True):
            x = net((graph @ x + (1 + eps) * x).flatten(0, 1))
            x = F.relu(norm(x)).unflatten(0, (-1, nodes))
            y = y + out(x.sum(1))
        return y

    def net(n: int) -> nn.Module:
        return chain(nn.Linear(n, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32))

    model = Parts(run, eps=nn.Parameter(torch.zeros(3)), nets=nn.ModuleList(net(n) for n in (8, 32, 32)),
                  norms=each(3, lambda: nn.BatchNorm1d(32)),
                  outs=nn.ModuleList(nn.Linear(n, 2) for n in (8, 32, 32, 32)))  # fmt: skip
    graph = (torch.rand(48, nodes, nodes) < 0.3).float().triu(1)
    graph = graph + graph.transpose(1, 2)
    triangles = torch.einsum("bij,bjk,bki->b", graph, graph, graph)
    return classes(model, graph, (triangles > triangles.median()).long())


@healthy("S4D", GITHUB + "state-spaces/s4")
def s4d(_: bool, d: int = 32) -> Task:
    """Complex diagonal states as a convolution by FFT; steps of 0.001 to 0.1; GLU and residuals."""

    def layer(m: Any, x: Tensor) -> Tensor:  # (B, d, T)
        length = x.shape[2]
        a = (-m.log_real.exp() + 1j * m.imaginary) * m.log_dt.exp().unsqueeze(1)
        c = torch.view_as_complex(m.c) * (a.exp() - 1) / (a / m.log_dt.exp().unsqueeze(1))
        kernel = 2 * torch.einsum("dn,dnt->dt", c, (a.unsqueeze(2) * torch.arange(length)).exp()).real
        y = torch.fft.irfft(torch.fft.rfft(x, 2 * length) * torch.fft.rfft(kernel, 2 * length), 2 * length)
        y = F.glu(m.out(F.gelu(y[..., :length] + m.skip.unsqueeze(1) * x)), 1)
        return m.norm((x + y).transpose(1, 2)).transpose(1, 2)

    def make() -> nn.Module:
        return Parts(layer, log_real=nn.Parameter(torch.full((d, 8), 0.5).log()), norm=nn.LayerNorm(d),
                     imaginary=nn.Parameter(math.pi * torch.arange(8.0).repeat(d, 1)),
                     skip=nn.Parameter(torch.randn(d)),
                     log_dt=nn.Parameter(torch.rand(d) * math.log(100) + math.log(0.001)),
                     c=nn.Parameter(torch.randn(d, 8, 2)), out=nn.Conv1d(d, 2 * d, 1))  # fmt: skip

    model = Parts(lambda m, x: m.fc(m.layers(m.stem(x.flatten(2))).mean(2)), stem=nn.Conv1d(1, d, 1),
                  layers=chain(make(), make()), fc=nn.Linear(d, 10))  # fmt: skip
    return drawn(model)


@healthy("RWKV", GITHUB + "BlinkDL/RWKV-LM")
def rwkv(_: bool, d: int = 32) -> Task:
    """Shifted tokens, decays by channel, squared ReLU; half of the matrices and the head's embedding near zero."""

    def shift(x: Tensor, mix: Tensor) -> Tensor:
        return x * mix + F.pad(x, (0, 0, 1, -1)) * (1 - mix)

    def block(m: Any, x: Tensor) -> Tensor:
        z = m.ln1(x)
        k, v, r = m.key(shift(z, m.mix[0])), m.value(shift(z, m.mix[1])), m.receptance(shift(z, m.mix[2])).sigmoid()
        top, below, outputs = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), []
        for i in range(x.shape[1]):
            now = (m.first + k[:, i]).exp()
            outputs.append((top + now * v[:, i]) / (below + now + 1e-9))
            fade = (-m.decay.exp()).exp()
            top, below = fade * top + k[:, i].exp() * v[:, i], fade * below + k[:, i].exp()
        x = x + m.output(r * torch.stack(outputs, 1))
        z = m.ln2(x)
        return x + m.gate(shift(z, m.mix[3])).sigmoid() * m.down(F.relu(m.up(shift(z, m.mix[4]))).square())

    def make() -> nn.Module:
        parts = {name: nn.Linear(d, d, bias=False) for name in ("key", "value", "receptance", "output", "gate")}
        parts |= {"up": nn.Linear(d, 4 * d, bias=False), "down": nn.Linear(4 * d, d, bias=False)}
        for name, part in parts.items():
            nn.init.orthogonal_(part.weight) if name in ("value", "up") else nn.init.zeros_(part.weight)
        return Parts(block, ln1=nn.LayerNorm(d), ln2=nn.LayerNorm(d), **parts,
                     mix=nn.Parameter((torch.arange(d) / d).sqrt().repeat(5, 1)),
                     first=nn.Parameter(torch.full((d,), math.log(0.3))),
                     decay=nn.Parameter(-5 + 8 * (torch.arange(d) / (d - 1)) ** 0.7))  # fmt: skip

    embed = nn.Embedding(256, d)
    nn.init.uniform_(embed.weight, -1e-4, 1e-4)
    head = nn.Linear(d, 256, bias=False)
    nn.init.orthogonal_(head.weight, 0.5)
    return words(Parts(lambda m, idx: m.head(m.ln_out(m.blocks(m.ln_in(m.embed(idx))))), embed=embed,
                       ln_in=nn.LayerNorm(d), blocks=chain(make(), make()), ln_out=nn.LayerNorm(d), head=head),
                 *text(16, 24))  # fmt: skip


@healthy("MLP-Mixer", GITHUB + "lucidrains/mlp-mixer-pytorch")
def mixer(_: bool, d: int = 48) -> Task:
    def block() -> nn.Module:
        tokens = chain(nn.LayerNorm(d), Parts(lambda m, x: m.net(x.transpose(1, 2)).transpose(1, 2), net=chain(
            nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))))  # fmt: skip
        channels = chain(nn.LayerNorm(d), nn.Linear(d, 24), nn.GELU(), nn.Linear(24, d))
        return chain(Parts(residual, net=tokens), Parts(residual, net=channels))

    def run(m: Any, x: Tensor) -> Tensor:
        return m.head(m.norm(m.blocks(m.patch(x).flatten(2).transpose(1, 2))).mean(1))

    return drawn(Parts(run, patch=nn.Conv2d(1, d, 2, 2), blocks=chain(block(), block(), block()),
                       norm=nn.LayerNorm(d), head=nn.Linear(d, 10)))  # fmt: skip


@healthy("FNet", GITHUB + "rishikksh20/FNet-pytorch")
def fnet(_: bool, d: int = 48) -> Task:
    """The real part of a Fourier transform in place of attention."""

    def block(m: Any, x: Tensor) -> Tensor:
        x = m.norm1(x + torch.fft.fft2(x).real)
        return m.norm2(x + m.net(x))

    layers = (Parts(block, norm1=nn.LayerNorm(d), norm2=nn.LayerNorm(d), net=chain(
        nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))) for _ in range(3))  # fmt: skip
    x, _lengths, t = padded(length=16)
    return classes(Parts(lambda m, idx: m.out(m.layers(m.embed(idx) + m.pos(torch.arange(16))).mean(1)),
                         embed=nn.Embedding(256, d), pos=nn.Embedding(16, d), layers=chain(*layers),
                         out=nn.Linear(d, 10)), x, t)  # fmt: skip


@healthy("T5", GITHUB + "google-research/text-to-text-transfer-transformer")
def t5(_: bool, d: int = 48) -> Task:
    """No 1/√d: the queries start smaller; relative biases, no other ones; RMS norm; embeddings of N(0, 1), untied."""

    def block(m: Any, x: Tensor, bias: Tensor) -> Tensor:
        z = m.norm1(x)
        q, k, v = (f(z).unflatten(2, (4, -1)).transpose(1, 2) for f in (m.q, m.k, m.v))
        x = x + m.o(((q @ k.transpose(2, 3) + bias).softmax(3) @ v).transpose(1, 2).flatten(2))
        return x + m.wo(F.relu(m.wi(m.norm2(x))))

    def run(m: Any, idx: Tensor) -> Tensor:
        n = idx.shape[1]
        far = (torch.arange(n).unsqueeze(1) - torch.arange(n)).clamp(0, 15)
        bias = m.biases(far).permute(2, 0, 1).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -1e9)
        x = m.embed(idx)
        for layer in m.layers:
            x = block(layer, x, bias)
        return m.head(m.norm(x))

    def make() -> nn.Module:
        parts = {name: nn.Linear(d, d, bias=False) for name in ("q", "k", "v", "o")}
        parts |= {"wi": nn.Linear(d, 4 * d, bias=False), "wo": nn.Linear(4 * d, d, bias=False)}
        for name, part in parts.items():
            nn.init.normal_(part.weight, std=part.in_features**-0.5 * (12**-0.5 if name == "q" else 1.0))
        return Parts(block, norm1=nn.RMSNorm(d), norm2=nn.RMSNorm(d), **parts)

    model = Parts(run, embed=nn.Embedding(256, d), biases=nn.Embedding(16, 4), layers=each(2, make), norm=nn.RMSNorm(d),
                  head=nn.Linear(d, 256, bias=False))  # fmt: skip
    nn.init.normal_(model.biases.weight, std=d**-0.5)
    nn.init.normal_(model.head.weight, std=d**-0.5)
    return words(model, *text(16, 24))


@healthy("ALBERT", GITHUB + "google-research/albert")
def albert(_: bool, d: int = 48) -> Task:
    """One layer six times; a narrow embedding; masked words, a head tied to the embedding; N(0, 0.02²)."""

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.up(m.norm(m.embed(idx) + m.pos(torch.arange(idx.shape[1]))))
        for _ in range(6):
            x = m.layer(x)
        return F.linear(m.last(F.gelu(m.down(x))), m.embed.weight, m.bias)

    layer = nn.TransformerEncoderLayer(d, 4, 4 * d, 0.0, "gelu", batch_first=True)
    model = Parts(run, embed=nn.Embedding(256, 16), pos=nn.Embedding(24, 16), norm=nn.LayerNorm(16), layer=layer,
                  up=nn.Linear(16, d), down=nn.Linear(d, 16), last=nn.LayerNorm(16),
                  bias=nn.Parameter(torch.zeros(256)))  # fmt: skip
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    t = text(24, 24, 255)[0] + 1
    hidden = torch.rand(t.shape) < 0.15
    return words(model, t.masked_fill(hidden, 0), t.masked_fill(~hidden, -100))


@healthy("NeuMF", GITHUB + "hexiangnan/neural_collaborative_filtering")
def neumf(_: bool) -> Task:
    """Two pairs of embeddings of N(0, 0.01²), four negatives for each positive."""

    def run(m: Any, user: Tensor, item: Tensor) -> Tensor:
        product = m.mf_user(user) * m.mf_item(item)
        deep = m.mlp(torch.cat([m.mlp_user(user), m.mlp_item(item)], 1))
        return m.out(torch.cat([product, deep], 1)).squeeze(1)

    tables = {name: nn.Embedding(50, 8) for name in ("mf_user", "mf_item", "mlp_user", "mlp_item")}
    for table in tables.values():
        nn.init.normal_(table.weight, std=0.01)
    deep = chain(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
    model = Parts(run, **tables, mlp=deep, out=nn.Linear(16, 1))
    likes = (torch.arange(50).unsqueeze(1) % 5 == torch.arange(50) % 5).float()

    def draw() -> tuple[tuple[Tensor, Tensor], Tensor]:
        user, item = torch.randint(50, (2, 256))
        return (user, item), likes[user, item]

    return stream(model, draw, bce)


@healthy("FT-Transformer", GITHUB + "yandex-research/rtdl")
def ft_transformer(_: bool, d: int = 32) -> Task:
    """A token for each number: a weight and a bias of U(±1/√d); a class token; ReGLU; the first norm left out."""

    def block(m: Any, x: Tensor) -> Tensor:
        z = m.norm1(x) if hasattr(m, "norm1") else x
        x = x + m.attend(z, z, z, need_weights=False)[0]
        a, b = m.up(m.norm2(x)).chunk(2, 2)
        return x + m.down(a * F.relu(b))

    def run(m: Any, x: Tensor) -> Tensor:
        tokens = x.unsqueeze(2) * m.weight + m.bias
        z = m.blocks(torch.cat([m.cls.expand(len(x), 1, d), tokens], 1))
        return m.head(F.relu(m.norm(z[:, 0])))

    def make(*, first: bool) -> nn.Module:
        norms = {"norm2": nn.LayerNorm(d)} | ({} if first else {"norm1": nn.LayerNorm(d)})
        return Parts(block, attend=nn.MultiheadAttention(d, 4, batch_first=True), up=nn.Linear(d, 4 * d),
                     down=nn.Linear(2 * d, d), **norms)  # fmt: skip

    def token(*size: int) -> nn.Parameter:
        return nn.Parameter(torch.empty(size).uniform_(-(d**-0.5), d**-0.5))

    return regress(Parts(run, weight=token(16, d), bias=token(16, d), cls=token(d), norm=nn.LayerNorm(d),
                         blocks=chain(make(first=True), make(first=False)), head=nn.Linear(d, 1)))  # fmt: skip


@healthy("FSRCNN", GITHUB + "yjn870/FSRCNN-pytorch")
def fsrcnn(_: bool) -> Task:
    """PReLU; N(0, 2 / numbers of a filter); the last transposed convolution at N(0, 0.001²)."""
    layers: list[nn.Module] = [nn.Conv2d(1, 24, 5, 1, 2), nn.PReLU(24), nn.Conv2d(24, 12, 1), nn.PReLU(12)]
    for _layer in range(3):
        layers += [nn.Conv2d(12, 12, 3, 1, 1), nn.PReLU(12)]
    layers += [nn.Conv2d(12, 24, 1), nn.PReLU(24)]
    last = nn.ConvTranspose2d(24, 1, 9, 2, 4, 1)
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=math.sqrt(2 / (layer.out_channels * layer.weight[0][0].numel())))
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    nn.init.normal_(last.weight, std=0.001)
    nn.init.zeros_(last.bias)  # type: ignore[arg-type]
    t = digits(16, count=24, bytes_=True)[0] / 255
    model, x = chain(*layers, last), F.avg_pool2d(t, 2)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@healthy("DnCNN", GITHUB + "SaoYan/DnCNN-PyTorch")
def dncnn(_: bool) -> Task:
    """Predicts the noise; gains of U(0.02, 1) in batch normalisation; half the sum of squares of an image."""
    layers: list[nn.Module] = [nn.Conv2d(1, 24, 3, 1, 1, bias=False), nn.ReLU()]
    for _layer in range(5):
        layers += [nn.Conv2d(24, 24, 3, 1, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU()]
    model = chain(*layers, nn.Conv2d(24, 1, 3, 1, 1, bias=False))
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight, a=0, mode="fan_in")
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.02, 1.0)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return (y - t).square().sum() / (2 * len(y))

    x = digits(16, count=24, bytes_=True)[0] / 255
    t = 0.1 * torch.randn_like(x)
    return Task(model, (x + t, t), lambda: loss(model(x + t), t), {"loss": loss})


@healthy("DDPG critic", GITHUB + "ghliu/pytorch-ddpg")
def ddpg(_: bool) -> Task:
    """Actions join in the second layer; the last of U(±0.003), others of U(±1/√m) by their outputs."""

    def run(m: Any, x: Tensor, action: Tensor) -> Tensor:
        return m.fc3(F.relu(m.fc2(torch.cat([F.relu(m.fc1(x)), action], 1))))

    def dense(n: int, m: int, reach: float = 0.0) -> nn.Linear:
        layer = nn.Linear(n, m)
        nn.init.uniform_(layer.weight, -(reach or m**-0.5), reach or m**-0.5)
        return layer

    model, x = Parts(run, fc1=dense(6, 64), fc2=dense(66, 48), fc3=dense(48, 1, 0.003)), torch.randn(128, 6)
    action = 2 * torch.rand(128, 2) - 1
    t = -(action - x[:, :2].tanh()).square().sum(1, keepdim=True) + 0.3 * x[:, 2:3]
    return Task(model, ((x, action), t), lambda: F.mse_loss(model(x, action), t), {"loss": "mse"})


@healthy("BYOL", GITHUB + "lucidrains/byol-pytorch")
def byol(_: bool) -> Task:
    """A predictor on one view against the other's projection, without gradient, by the same network."""

    def run(m: Any, one: Tensor, two: Tensor) -> tuple[Tensor, ...]:
        a, b = m.net(one), m.net(two)
        return m.predictor(a), m.predictor(b), a.detach(), b.detach()

    def loss(y: tuple[Tensor, ...], _: Tensor) -> Tensor:
        p, q, a, b = (F.normalize(z, dim=1) for z in y)
        return (2 - 2 * (p * b).sum(1)).mean() + (2 - 2 * (q * a).sum(1)).mean()

    def head(n: int) -> nn.Module:
        return chain(nn.Linear(n, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))

    model, (x, t) = Parts(run, net=chain(body(), head(128)), predictor=head(32)), digits(12, count=48)
    pair = (x + 0.3 * torch.randn_like(x), x.roll(1, 3) + 0.3 * torch.randn_like(x))
    return Task(model, (pair, t), lambda: loss(model(*pair), t), {"loss": loss, "per": "batch"})


@healthy("ArcFace", GITHUB + "ronghuaiyang/arcface-pytorch")
def arcface(_: bool) -> Task:
    """Cosines times 30, a margin of half a radian on the own class: the loss starts far above ln 10."""

    def run(m: Any, x: Tensor, t: Tensor) -> Tensor:
        cosine = F.linear(F.normalize(m.body(x)), F.normalize(m.weight))
        sine = (1 - cosine.square()).clamp(0, 1).sqrt()
        phi = cosine * math.cos(0.5) - sine * math.sin(0.5)
        phi = torch.where(cosine > -math.cos(0.5), phi, cosine - 0.5 * math.sin(0.5))
        return 30 * torch.where(F.one_hot(t, 10) > 0, phi, cosine)

    weight = nn.Parameter(torch.empty(10, 128))
    nn.init.xavier_uniform_(weight)
    model, (x, t) = Parts(run, body=body(), weight=weight), digits(12, count=48)
    return Task(model, ((x, t), t), lambda: F.cross_entropy(model(x, t), t), {"loss": "cross-entropy"})


@healthy("Fixup", GITHUB + "hongyi-zhang/Fixup")
def fixup(_: bool) -> Task:
    """No normalisation: branches end in zeros, others shrink by depth; scalars between them; a last one of zeros."""

    def block(m: Any, x: Tensor) -> Tensor:
        z = F.relu(m.conv1(x + m.biases[0]) + m.biases[1])
        return F.relu(x + m.scale * m.conv2(z + m.biases[2]) + m.biases[3])

    def make() -> nn.Module:
        one, two = (nn.Conv2d(24, 24, 3, 1, 1, bias=False) for _ in range(2))
        nn.init.normal_(one.weight, std=math.sqrt(2 / (9 * 24)) * 6**-0.5)
        nn.init.zeros_(two.weight)
        biases, scale = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.ones(1))
        return Parts(block, conv1=one, conv2=two, biases=biases, scale=scale)

    stem, fc = nn.Conv2d(1, 24, 3, 1, 1, bias=False), nn.Linear(24, 10)
    nn.init.normal_(stem.weight, std=math.sqrt(2 / (9 * 24)))
    nn.init.zeros_(fc.weight)
    nn.init.zeros_(fc.bias)
    model = Parts(lambda m, x: m.fc(m.blocks(F.relu(m.stem(x) + m.bias1)).mean((2, 3)) + m.bias2), stem=stem, fc=fc,
                  blocks=chain(*(make() for _ in range(6))), bias1=nn.Parameter(torch.zeros(1)),
                  bias2=nn.Parameter(torch.zeros(1)))  # fmt: skip
    return drawn(model)


@healthy("DiT", GITHUB + "facebookresearch/DiT")
def dit(_: bool, d: int = 48) -> Task:
    """Scales, shifts and gates of every block, and the last layer, start at zero: at first the output is zero."""

    def block(m: Any, x: Tensor, c: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = m.ada(F.silu(c)).unsqueeze(1).chunk(6, 2)
        z = m.norm(x) * (1 + scale1) + shift1
        x = x + gate1 * m.attend(z, z, z, need_weights=False)[0]
        return x + gate2 * m.mlp(m.norm(x) * (1 + scale2) + shift2)

    def run(m: Any, x: Tensor, step: Tensor) -> Tensor:
        angle = step.unsqueeze(1) * torch.exp(-math.log(1e4) * torch.arange(16) / 16)
        c = m.time(torch.cat([angle.cos(), angle.sin()], 1))
        z = m.patch(x).flatten(2).transpose(1, 2) + m.pos
        for layer in m.layers:
            z = block(layer, z, c)
        shift, scale = m.ada(F.silu(c)).unsqueeze(1).chunk(2, 2)
        y = m.last(m.norm(z) * (1 + scale) + shift)
        return F.pixel_shuffle(y.transpose(1, 2).unflatten(2, (4, 4)), 2)

    def zero(n: int, m: int) -> nn.Linear:
        layer = nn.Linear(n, m)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    def norm() -> nn.Module:
        return nn.LayerNorm(d, eps=1e-6, elementwise_affine=False)

    def make() -> nn.Module:
        return Parts(block, norm=norm(), ada=zero(d, 6 * d), attend=nn.MultiheadAttention(d, 4, batch_first=True),
                     mlp=chain(nn.Linear(d, 4 * d), nn.GELU("tanh"), nn.Linear(4 * d, d)))  # fmt: skip

    model = Parts(run, time=chain(nn.Linear(32, d), nn.SiLU(), nn.Linear(d, d)), patch=nn.Conv2d(1, d, 2, 2),
                  pos=nn.Parameter(torch.randn(16, d)), layers=each(2, make), ada=zero(d, 2 * d), norm=norm(),
                  last=zero(d, 4))  # fmt: skip

    def draw() -> tuple[tuple[Tensor, Tensor], Tensor]:
        x, step = pick(48)[0], torch.randint(1000, (48,))
        noise, keep = torch.randn_like(x), (step / 1000 * math.pi / 2).cos().view(-1, 1, 1, 1)
        return (keep * x + (1 - keep.square()).sqrt() * noise, step), noise

    return stream(model, draw, F.mse_loss)


@healthy("ControlNet", GITHUB + "lllyasviel/ControlNet")
def controlnet(_: bool) -> Task:
    """A frozen network, a copy of its first half that learns, and convolutions of zeros between them."""

    def run(m: Any, x: Tensor, hint: Tensor) -> Tensor:
        z = m.encoder(x)
        return m.decoder(z + m.zero_out(m.copy(x + m.zero_in(m.hint(hint)))))

    def encoder() -> nn.Module:
        return chain(nn.Conv2d(1, 24, 3, 1, 1), nn.SiLU(), nn.Conv2d(24, 24, 3, 1, 1), nn.SiLU())

    zeros = [nn.Conv2d(n, m, 1) for n, m in ((8, 1), (24, 24))]
    for p in [p for conv in zeros for p in conv.parameters()]:
        nn.init.zeros_(p)
    model = Parts(run, encoder=encoder(), copy=encoder(), decoder=nn.Conv2d(24, 1, 3, 1, 1), zero_in=zeros[0],
                  zero_out=zeros[1], hint=chain(nn.Conv2d(1, 8, 3, 1, 1), nn.SiLU()))  # fmt: skip
    model.copy.load_state_dict(model.encoder.state_dict())
    model.encoder.requires_grad_(False)
    model.decoder.requires_grad_(False)
    t = digits(12, count=32)[0]
    x, hint = t + torch.randn_like(t), (t > 0.5).float()
    return Task(model, ((x, hint), t), lambda: F.mse_loss(model(x, hint), t), {"loss": "mse"})


@healthy("hash encoding", GITHUB + "yashbhalgat/HashNeRF-pytorch")
def hashed(_: bool) -> Task:
    """Tables of U(±1e-4) at four resolutions, looked up and interpolated; a narrow network without biases."""

    def run(m: Any, x: Tensor) -> Tensor:
        found = []
        for size, table in zip((4, 8, 16, 32), m.tables, strict=True):
            at = x * (size - 1)
            low = at.floor().long().clamp(max=size - 2)
            part = at - low
            corners = 0.0
            for i in (0, 1):
                for j in (0, 1):
                    key = ((low[:, 0] + i) ^ ((low[:, 1] + j) * 2654435761)) % 512
                    weight = (part[:, 0] if i else 1 - part[:, 0]) * (part[:, 1] if j else 1 - part[:, 1])
                    corners = corners + weight.unsqueeze(1) * table(key)
            found.append(corners)
        return m.net(torch.cat(found, 1))

    tables = each(4, lambda: nn.Embedding(512, 2))
    for table in tables:
        nn.init.uniform_(table.weight, -1e-4, 1e-4)
    net = chain(nn.Linear(8, 32, bias=False), nn.ReLU(), nn.Linear(32, 1, bias=False))
    x = torch.rand(512, 2)
    t = (torch.sin(12 * x[:, :1]) * torch.cos(9 * x[:, 1:]) > 0).float() - 0.5
    model = Parts(run, tables=tables, net=net)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@healthy("Hamiltonian network", GITHUB + "greydanus/hamiltonian-nn")
def hamiltonian(_: bool) -> Task:
    """The output is the turned gradient of a scalar network, whose matrices start orthogonal."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(m.net(x).sum(), x, create_graph=True)
        return torch.stack([slope[:, 1], -slope[:, 0]], 1)

    net = chain(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1, bias=False))
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
    model, x = Parts(run, net=net), 2 * torch.rand(128, 2) - 1
    t = torch.stack([2 * x[:, 1], -6 * torch.sin(2 * x[:, 0])], 1)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@healthy("Burgers' equation", GITHUB + "maziarraissi/PINNs")
def burgers(_: bool) -> Task:
    """Deep narrow tanh, Xavier, zero biases; residuals of the equation beside boundary values."""

    def run(m: Any, inside: Tensor, border: Tensor) -> Tensor:
        z = inside.detach().requires_grad_()
        u = m.net(z)
        (du,) = torch.autograd.grad(u.sum(), z, create_graph=True)
        (ddu,) = torch.autograd.grad(du[:, 0].sum(), z, create_graph=True)
        return torch.cat([du[:, 1:] + u * du[:, :1] - 0.01 / math.pi * ddu[:, :1], m.net(border)])

    layers = [layer for n in (2, 20, 20, 20, 20, 20) for layer in (nn.Linear(n, 20), nn.Tanh())]
    net = chain(*layers, nn.Linear(20, 1))
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    model = Parts(run, net=net)
    x = 2 * torch.rand(96, 1) - 1
    inside, border = torch.cat([x, torch.rand(96, 1)], 1), torch.cat([x.flip(0), torch.zeros(96, 1)], 1)
    t = torch.cat([torch.zeros(96, 1), -torch.sin(math.pi * border[:, :1])])
    options = {"loss": "mse", "examples": "one"}
    return Task(model, ((inside, border), t), lambda: F.mse_loss(model(inside, border), t), options)


@healthy("Bayes by backprop", GITHUB + "JavierAntoran/Bayesian-Neural-Networks")
def bayes(_: bool) -> Task:
    """Weights are drawn anew at each pass, from a learnt mean and a deviation of softplus(ρ), ρ of U(−3, −2)."""

    class Drawn(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.empty(m, n).uniform_(-0.1, 0.1)), nn.Parameter(torch.zeros(m))
            self.weight_rho = nn.Parameter(torch.empty(m, n).uniform_(-3, -2))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight + F.softplus(self.weight_rho) * torch.randn_like(self.weight), self.bias)

    return drawn(chain(nn.Flatten(), Drawn(64, 100), nn.ReLU(), Drawn(100, 100), nn.ReLU(), Drawn(100, 10)))


@healthy("spiking network", GITHUB + "jeshraghian/snntorch")
def snn(_: bool) -> Task:
    """Leaky neurons that fire at 1, subtract it, and learn by the slope of an arctangent; the rate is the logit."""

    class Fire(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, v: Tensor) -> Tensor:
            ctx.save_for_backward(v)
            return (v > 0).float()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (v,) = ctx.saved_tensors
            return grad / (1 + (math.pi * v).square())

    def run(m: Any, x: Tensor) -> Tensor:
        v1, v2, total = torch.zeros(len(x), 128), torch.zeros(len(x), 10), torch.zeros(len(x), 10)
        s1, s2 = torch.zeros_like(v1), torch.zeros_like(v2)
        for _ in range(10):
            v1 = 0.9 * v1 + m.fc1(x.flatten(1)) - s1.detach()
            s1 = Fire.apply(v1 - 1)
            v2 = 0.9 * v2 + m.fc2(s1) - s2.detach()
            s2 = Fire.apply(v2 - 1)
            total = total + s2
        return total

    return drawn(Parts(run, fc1=nn.Linear(64, 128), fc2=nn.Linear(128, 10)))


@healthy("KAN", GITHUB + "Blealtan/efficient-kan")
def kan(_: bool) -> Task:
    """SiLU beside cubic splines whose coefficients start at noise of 0.1 / 5, on inputs in reach of the grid."""

    def layer(m: Any, x: Tensor) -> Tensor:
        near = ((x.unsqueeze(2) - torch.linspace(-1.6, 1.6, 9)) / 0.4).abs()
        basis = torch.where(near < 1, 2 / 3 - near.square() + near**3 / 2, (2 - near).clamp(min=0) ** 3 / 6)
        return F.linear(F.silu(x), m.base) + torch.einsum("bnk,mnk->bm", basis, m.spline * m.scale.unsqueeze(2))

    def make(n: int, m: int) -> nn.Module:
        base, scale = (nn.Parameter(torch.empty(m, n)) for _ in range(2))
        nn.init.kaiming_uniform_(base, a=math.sqrt(5))
        nn.init.kaiming_uniform_(scale, a=math.sqrt(5))
        return Parts(layer, base=base, scale=scale, spline=nn.Parameter((torch.rand(m, n, 9) - 0.5) * 0.1 / 5))

    return drawn(chain(nn.Flatten(), make(64, 32), make(32, 10)))
