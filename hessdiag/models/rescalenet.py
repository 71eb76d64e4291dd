"""RescaleNet, the unnormalised ResNet that the paper's case study compares with.

J. Shao, K. Hu, C. Wang, X. Xue, B. Raj, "Is normalization indispensable for training deep neural networks?", NeurIPS
2020.
"""

from __future__ import annotations

from torch import Tensor, nn

from hessdiag.models.bottlenecks import Bottleneck, bottlenecks, channels
from hessdiag.models.channel_bias import ChannelBias
from hessdiag.models.preconditioned import LearnableScale


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
            ChannelBias(n),
            nn.Conv2d(n, w, 1, bias=False),
            nn.ReLU(),
            ChannelBias(w),
            nn.Conv2d(w, w, 3, stride=block.stride, padding=1, bias=False),
            nn.ReLU(),
            ChannelBias(w),
            nn.Conv2d(w, m, 1, bias=False),
            LearnableScale(1.0),
        )
        factor = ((block.count + block.number) / block.count) ** (-1 / 6)
        for module in self.main:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                module.weight.data.mul_(factor)
        self.shortcut: nn.Module = nn.Identity()
        if block.projects:
            projection = nn.Conv2d(n, m, 1, bias=False)
            nn.init.kaiming_normal_(projection.weight, nonlinearity="linear")
            pool = nn.AvgPool2d(block.stride) if block.stride > 1 else nn.Identity()
            self.shortcut = nn.Sequential(pool, ChannelBias(n), projection)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, h, w) to (B, m, h / stride, w / stride)."""
        return (self.alpha * self.shortcut(x) + self.residual * self.main(x)).relu()  # type: ignore[no-any-return]


class RescaleNet(nn.Module):
    """The network: stem with max pooling, the blocks, and a linear layer on the average over positions.

    Biases are zero as built; `hessdiag.models.channel_bias.centre` gives them the data-dependent values of the authors.

    Args:
        depth: weight layers on the longest path: 14, 26 or 50.
        classes: number of outputs.
        side: of the images, in pixels; up to 64 the stem is a 3 x 3 convolution of stride 1 with 16 channels, and
            there is no max pooling.
        width: factor on all channels.
        dropout: rate before the last layer.
    """

    def __init__(
        self, depth: int = 50, classes: int = 1000, side: int = 224, width: float = 1.0, dropout: float = 0.25
    ) -> None:
        super().__init__()
        self.input_size = (3, side, side)
        base = channels(width, side)
        small = base < channels(width, 224)
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
