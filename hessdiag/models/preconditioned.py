"""The unnormalised pre-activation ResNet of the paper's case study (Section 11.1 of arXiv 1906.04267).

Every convolution has geometric-mean initialisation. Inside a block whose branches are weighted by α and β its constant
c is α on the shortcut and β on the main branch, because the activation scaling there is α² and β² times that outside;
with γ = ς / c² (Eq. 2) all γ are then equal, also to those of the first and last layers, which have c = 1. Fixed
multipliers undo what this does to the size of the signal.

The printed formulas contradict one another in three places. What stands here by default is what the text derives:

* "F is multiplied by √(m / (β n))": then E[F²] = √(m/n) E[x²]. E[F²] = E[x²], which the text asks for, needs
  (m/n)^¼ / √β.
* "y / √α" on the shortcut: then E[S²] = √(n/m) E[x²], so that branches are weighted otherwise than by α and β. Here the
  shortcut has the same (m/n)^¼.
* After the average pooling of a downsampling shortcut "c = α/4" in the formula, "numerator c = α" in the sentence. With
  c = α/4 the convolution's γ is 16 times that of the others, since the pooling of a centred signal conserves ς; so
  c = α, and the 4 is in the multiplier √(4/α) alone, where it undoes the pooling.

`printed=True` builds the formulas as they are printed.

γ is not the whole of it. A weight on a branch of weight β has the gradient J_lᵀ S y of the whole output y, of which the
branch makes β² of the second moment: σ² is β² γ there, not γ (measured on residual perceptrons to within 5 %).
`curvature=True` takes c = α² and β² in place of α and β, which levels σ² and makes γ uneven.

The calculus takes signals for centred. Behind a ReLU they are not, and average pooling then keeps more than its share:
with biases of zero E[x²] grows from stage to stage, and the last layer reads far too much. The biases stand where
RescaleNet has them, whose authors set them to minus the mean of what they read; `hessdiag.models.channel_bias.centre`
does that here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hessdiag.init import geometric_mean_
from hessdiag.models.bottlenecks import Bottleneck, bottlenecks, channels
from hessdiag.models.channel_bias import ChannelBias
from hessdiag.scale import Scale

OUTPUT_SCALE = 0.05  # "a 0.05 final scalar gives the best results" (Section 11.2)
DOWNSAMPLING = 4.0


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
        c = block.beta**power
        self.shortcut: nn.Module = nn.Identity()
        if block.projects:
            self.shortcut = _shortcut(block, c=block.alpha**power, printed=printed)
        growth = math.sqrt(m / n) if printed else (m / n) ** 0.25
        self.main = nn.Sequential(
            Scale(math.sqrt(c)),
            nn.ReLU(),
            Scale(math.sqrt(2 / c)),
            ChannelBias(n),
            convolution(n, w, 1, c=c),
            nn.ReLU(),
            Scale(math.sqrt(2 / (3 * c))),
            ChannelBias(w),
            convolution(w, w, 3, c=c, stride=block.stride),
            nn.ReLU(),
            Scale(math.sqrt(2 / c)),
            ChannelBias(w),
            convolution(w, m, 1, c=c),
            Scale(1 / math.sqrt(c)),
            LearnableScale(math.sqrt(c)),
            Scale(growth / math.sqrt(c)),
        )

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
        self,
        depth: int = 50,
        classes: int = 1000,
        side: int = 224,
        width: float = 1.0,
        dropout: float = 0.25,
        printed: bool = False,
        curvature: bool = False,
    ) -> None:
        super().__init__()
        self.input_size = (3, side, side)
        base = channels(width, side)
        kernel, stride = (3, 1) if base < channels(width, 224) else (7, 4)
        self.input_scale = Scale((3 * kernel**2) ** -0.25)  # weights and biases of the stem balance (Section 8.1)
        self.stem = convolution(3, base, kernel, c=1.0, stride=stride, bias=True)
        self.stem_scale = Scale(kernel**-0.5)  # the stem's kernel is not the typical one (Section 6.2)
        plan = bottlenecks(depth, base=base)
        self.blocks = nn.Sequential(
            *[PreconditionedBlock(block, printed=printed, curvature=curvature) for block in plan]
        )
        self.last_scale = Scale(math.sqrt(2))  # undoes the ReLU
        self.last_bias = ChannelBias(plan[-1].fan_out)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(plan[-1].fan_out, classes)
        geometric_mean_(self.fc.weight, c=1.0)
        nn.init.zeros_(self.fc.bias)
        self.output = Scale(OUTPUT_SCALE)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, side, side) to outputs (B, classes)."""
        x = self.stem_scale(self.stem(self.input_scale(x)))  # (B, 64, side / 4, side / 4)
        x = self.blocks(x)  # (B, 2048, side / 32, side / 32)
        x = self.last_bias(self.last_scale(x.relu()))
        x = x.mean(dim=(2, 3))  # (B, 2048)
        return self.output(self.fc(self.dropout(x)))  # type: ignore[no-any-return]  # (B, classes)


def convolution(fan_in: int, fan_out: int, kernel: int, *, c: float, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """A padded convolution with geometric-mean initialisation of constant c."""
    layer = nn.Conv2d(fan_in, fan_out, kernel, stride=stride, padding=kernel // 2, bias=bias)
    geometric_mean_(layer.weight, c=c)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _shortcut(block: Bottleneck, *, c: float, printed: bool) -> nn.Sequential:
    pooled = DOWNSAMPLING if block.stride > 1 else 1.0
    growth = 1.0 if printed else (block.fan_out / block.fan_in) ** 0.25
    return nn.Sequential(
        nn.AvgPool2d(block.stride) if block.stride > 1 else nn.Identity(),
        ChannelBias(block.fan_in),
        convolution(block.fan_in, block.fan_out, 1, c=c / pooled if printed else c),
        Scale(growth * math.sqrt(pooled / c)),
    )
