"""Residual networks of the paper's case study: preconditioned, and RescaleNet.

The unnormalised pre-activation ResNet of the paper's case study (Section 11.1 of arXiv 1906.04267):

Every convolution has geometric-mean initialisation. Inside a block whose branches are weighted by α and β its constant
c is α on the shortcut and β on the main branch, because the activation scaling there is α² and β² times that outside;
with γ = ς / c² (Eq. 2) all γ are then equal, also to those of the first and last layers, which have c = 1. Fixed
multipliers undo what this does to the size of the signal.

The printed formulas contradict one another in three places. What stands here by default is what the text derives:

* "F is multiplied by √(m / (β n))": then E[F²] = √(m/n) E[x²]; E[F²] = E[x²], as the text asks, needs (m/n)^¼ / √β.
* "y / √α" on the shortcut: then E[S²] = √(n/m) E[x²], and α and β weigh no more. Here the shortcut has (m/n)^¼, too.
* After the average pooling of a downsampling shortcut "c = α/4" in the formula, "numerator c = α" in the sentence. With
  c = α/4 the convolution's γ is 16 times that of the others, since the pooling of a centred signal conserves ς; so
  c = α, and the 4 is in the multiplier √(4/α) alone, where it undoes the pooling.

`printed=True` builds the formulas as they are printed.

γ is not the whole of it. A weight on a branch of weight β has the gradient J_lᵀ S y of the whole output y, of which the
branch makes β² of the second moment: σ² is β² γ there, not γ (measured on residual perceptrons to within 5 %).
`curvature=True` takes c = α² and β² in place of α and β, which levels σ² and makes γ uneven.

The calculus takes signals for centred. Behind a ReLU they are not, and average pooling then keeps more than its share:
with biases of zero E[x²] grows from stage to stage, and the last layer reads far too much. The biases stand where
RescaleNet has them, whose authors set them to minus the mean of what they read; `centre` does that here.
"""

import math
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hessdiag import init
from hessdiag.errors import HessdiagError
from hessdiag.models.feedforward import scaled
from hessdiag.surgery import Scale

DEPTHS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # weight layers: blocks of each stage
EXPANSION = 4
SMALL_SIDE = 64  # pixels, below which the stem neither strides nor pools
OUTPUT_SCALE = 0.05  # "a 0.05 final scalar gives the best results" (Section 11.2)


@dataclass(frozen=True)
class Bottleneck:
    """One block: channels in, inside and out, its stride, and its place among the L blocks of the network."""

    fan_in: int  # channels n
    inner: int  # w
    fan_out: int  # m
    stride: int  # 1, or 2 where the block halves the resolution
    number: int  # 0 for the first block
    count: int  # L

    @property
    def projects(self) -> bool:
        """Whether the shortcut needs a convolution."""
        return self.stride > 1 or self.fan_in != self.fan_out

    @property
    def alpha(self) -> float:
        """Weight of the shortcut, √(k / (k + 1)) with k = L − 1, ..., 2L − 2 over the blocks (RescaleNet's)."""
        k = self.count - 1 + self.number
        return math.sqrt(k / (k + 1))

    @property
    def beta(self) -> float:
        """Weight of the main branch: α² + β² = 1."""
        return math.sqrt(1 / (self.count + self.number))


def bottlenecks(depth: int, *, base: int) -> tuple[Bottleneck, ...]:
    """The blocks of a network of a given depth, with `base` channels inside those of the first stage.

    >>> [(block.fan_in, block.inner, block.fan_out, block.stride) for block in bottlenecks(14, base=16)]
    [(16, 16, 64, 1), (64, 32, 128, 2), (128, 64, 256, 2), (256, 128, 512, 2)]
    """
    if depth not in DEPTHS:
        raise HessdiagError(f"depth {depth}: there are residual networks of depth {', '.join(map(str, DEPTHS))}")
    places = [(stage, repeat) for stage, repeats in enumerate(DEPTHS[depth]) for repeat in range(repeats)]
    blocks: list[Bottleneck] = []
    for number, (stage, repeat) in enumerate(places):
        fan_in, inner = blocks[-1].fan_out if blocks else base, base * 2**stage
        stride = 2 if stage > 0 and repeat == 0 else 1
        blocks.append(Bottleneck(fan_in, inner, EXPANSION * inner, stride, number, len(places)))
    return tuple(blocks)


def channels(width: float, side: int) -> int:
    """Channels of the stem: 64 for photographs, 16 for small images, times a factor."""
    return scaled(width, 16 if side <= SMALL_SIDE else 64)[0]


class ChannelBias(nn.Module):
    """x -> x + b with one b a channel, zero at first.

    Unnormalised residual networks add biases *before* their convolutions, after the ReLU and its multiplier.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, *positions) in, the same out."""
        return x + self.bias.view(-1, *[1] * (x.dim() - 2))


def centre(model: nn.Module, x: Tensor) -> None:
    """Set every `ChannelBias` to minus the mean of what it reads on a batch, one after the other as they run.

    Signals then have mean zero in every channel, as RescaleNet's code does it over its first batches.

    >>> model = nn.Sequential(ChannelBias(2))
    >>> centre(model, torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    >>> model[0].bias.tolist()
    [-2.0, -2.0]
    """

    def subtract_mean(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        assert isinstance(module, ChannelBias)
        module.bias.copy_(-args[0].mean(dim=[d for d in range(args[0].dim()) if d != 1]))

    with torch.no_grad(), ExitStack() as hooks:
        for module in (each for each in model.modules() if isinstance(each, ChannelBias)):
            hooks.enter_context(module.register_forward_pre_hook(subtract_mean))
        model(x)


class LearnableScale(nn.Module):
    """x -> v x with one learnable v."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same out."""
        return self.v * x


class PreconditionedBlock(nn.Module):
    """B(x) = α S(x) + β F(x), a bottleneck with all its multipliers."""

    def __init__(self, block: Bottleneck, *, printed: bool = False, curvature: bool = False) -> None:
        super().__init__()
        n, w, m = block.fan_in, block.inner, block.fan_out
        self.alpha, self.beta = block.alpha, block.beta
        power = 2 if curvature else 1
        c, constant = block.beta**power, block.alpha**power
        self.shortcut: nn.Module = nn.Identity()
        if block.projects:
            pooled = block.stride**2  # entries of which the shortcut takes the mean
            projection = convolution(n, m, 1, c=constant / pooled if printed else constant)
            scale = Scale((1.0 if printed else (m / n) ** 0.25) * math.sqrt(pooled / constant))
            self.shortcut = nn.Sequential(_pool(block), ChannelBias(n), projection, scale)
        growth = math.sqrt(m / n) if printed else (m / n) ** 0.25
        self.main = nn.Sequential(
            Scale(math.sqrt(c)), nn.ReLU(), Scale(math.sqrt(2 / c)), ChannelBias(n), convolution(n, w, 1, c=c),
            nn.ReLU(), Scale(math.sqrt(2 / (3 * c))), ChannelBias(w), convolution(w, w, 3, c=c, stride=block.stride),
            nn.ReLU(), Scale(math.sqrt(2 / c)), ChannelBias(w), convolution(w, m, 1, c=c), Scale(1 / math.sqrt(c)),
            LearnableScale(math.sqrt(c)), Scale(growth / math.sqrt(c)),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, h, w) to (B, m, h / stride, w / stride)."""
        return self.alpha * self.shortcut(x) + self.beta * self.main(x)  # type: ignore[no-any-return]


class PreconditionedResNet(nn.Module):
    """The network: input scaling, a stem, the blocks, and a linear layer on the average over positions.

    E[x²] after every block is by design what it is after the stem. The max pooling of the usual stem is not well scaled
    by the theory: its stride is the first convolution's here.

    Args:
        depth: weight layers on the longest path: 14, 26 or 50.
        classes: number of outputs.
        side: of the images, in pixels; up to 64 the stem is a 3 x 3 convolution of stride 1 with 16 channels.
        width: factor on all channels.
        dropout: rate before the last layer; the paper uses dropout and does not give it.
        printed: build the formulas as printed, see above.
        curvature: balance σ² in place of γ, with c = α² and β².
    """

    def __init__(
        self, depth: int = 50, classes: int = 1000, side: int = 224, width: float = 1.0, dropout: float = 0.25,
        printed: bool = False, curvature: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size = (3, side, side)
        base = channels(width, side)
        kernel, stride = (3, 1) if side <= SMALL_SIDE else (7, 4)
        self.input_scale = Scale((3 * kernel**2) ** -0.25)  # weights and biases of the stem balance (Section 8.1)
        self.stem = convolution(3, base, kernel, c=1.0, stride=stride, bias=True)
        self.stem_scale = Scale(kernel**-0.5)  # the stem's kernel is not the typical one (Section 6.2)
        plan = bottlenecks(depth, base=base)
        self.blocks = nn.Sequential(*[PreconditionedBlock(b, printed=printed, curvature=curvature) for b in plan])
        self.last_scale = Scale(math.sqrt(2))  # undoes the ReLU
        self.last_bias = ChannelBias(plan[-1].fan_out)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(plan[-1].fan_out, classes)
        init.apply(self.fc, "geometric", c=1.0)
        self.output = Scale(OUTPUT_SCALE)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, side, side) to outputs (B, classes)."""
        x = self.stem_scale(self.stem(self.input_scale(x)))  # (B, 64, side / 4, side / 4)
        x = self.blocks(x)  # (B, 2048, side / 32, side / 32)
        x = self.last_bias(self.last_scale(x.relu())).mean(dim=(2, 3))  # (B, 2048)
        return self.output(self.fc(self.dropout(x)))  # type: ignore[no-any-return]  # (B, classes)


def convolution(fan_in: int, fan_out: int, kernel: int, *, c: float, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """A padded convolution with geometric-mean initialisation of constant c."""
    layer = nn.Conv2d(fan_in, fan_out, kernel, stride=stride, padding=kernel // 2, bias=bias)
    init.apply(layer, "geometric", c=c)
    return layer


def _pool(block: Bottleneck) -> nn.Module:
    return nn.AvgPool2d(block.stride) if block.stride > 1 else nn.Identity()


class RescaledBlock(nn.Module):
    """relu(α S(x) + v L^(−1/2) F(x)), a bottleneck; v is a learnable scalar, 1 at first.

    The convolutions of F have the standard deviation of fan-in initialisation times ((k + 1) / L)^(−1/6), with the
    block index k = L − 1, ..., 2L − 2, so that the three of them and L^(−1/2) make β = (k + 1)^(−1/2).
    """

    def __init__(self, block: Bottleneck) -> None:
        super().__init__()
        n, w, m = block.fan_in, block.inner, block.fan_out
        self.alpha, self.residual = block.alpha, block.count**-0.5
        self.main = nn.Sequential(
            ChannelBias(n), nn.Conv2d(n, w, 1, bias=False), nn.ReLU(),
            ChannelBias(w), nn.Conv2d(w, w, 3, stride=block.stride, padding=1, bias=False), nn.ReLU(),
            ChannelBias(w), nn.Conv2d(w, m, 1, bias=False), LearnableScale(1.0),
        )  # fmt: skip
        factor = ((block.count + block.number) / block.count) ** (-1 / 6)
        for layer in (each for each in self.main if isinstance(each, nn.Conv2d)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layer.weight.data.mul_(factor)
        self.shortcut: nn.Module = nn.Identity()
        if block.projects:
            projection = nn.Conv2d(n, m, 1, bias=False)
            nn.init.kaiming_normal_(projection.weight, nonlinearity="linear")
            self.shortcut = nn.Sequential(_pool(block), ChannelBias(n), projection)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, h, w) to (B, m, h / stride, w / stride)."""
        return (self.alpha * self.shortcut(x) + self.residual * self.main(x)).relu()  # type: ignore[no-any-return]


class RescaleNet(nn.Module):
    """The network: stem with max pooling, the blocks, and a linear layer on the average over positions.

    Biases are zero as built; `hessdiag.models.residual.centre` gives them the data-dependent values of the authors.

    Args:
        depth, classes, width: as of `PreconditionedResNet`.
        side: of the images, in pixels; up to 64 the stem is a 3 x 3 convolution of stride 1, 16 channels, not pooled.
        dropout: rate before the last layer.
    """

    def __init__(
        self, depth: int = 50, classes: int = 1000, side: int = 224, width: float = 1.0, dropout: float = 0.25
    ) -> None:
        super().__init__()
        self.input_size = (3, side, side)
        base, small = channels(width, side), side <= SMALL_SIDE
        kernel, stride = (3, 1) if small else (7, 2)
        self.stem = nn.Conv2d(3, base, kernel, stride=stride, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(self.stem.weight)
        self.stem_bias = ChannelBias(base)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        plan = bottlenecks(depth, base=base)
        self.blocks = nn.Sequential(*[RescaledBlock(block) for block in plan])
        self.last_bias = ChannelBias(plan[-1].fan_out)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(plan[-1].fan_out, classes)
        nn.init.kaiming_normal_(self.fc.weight, nonlinearity="linear")
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, side, side) to outputs (B, classes)."""
        x = self.pool(self.stem_bias(self.stem(x)).relu())  # (B, 64, side / 4, side / 4)
        x = self.blocks(x)  # (B, 2048, side / 32, side / 32)
        x = self.last_bias(x).mean(dim=(2, 3))  # (B, 2048)
        return self.fc(self.dropout(x))  # type: ignore[no-any-return]  # (B, classes)
