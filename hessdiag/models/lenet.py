"""The strided LeNet of the paper's figures: LeNet-5's spatial sizes, with strides in place of pooling."""

import torch.nn.functional as F
from torch import Tensor, nn


class StridedLeNet(nn.Module):
    """Two 5x5 convolutions of stride 2, three linear layers, ReLU between them, no biases.

    Max pooling is not well scaled by the theory (Table 1 of arXiv 1906.04267), so strides do its work.

    Args:
        in_channels: channels of the 32 x 32 input images.
        classes: number of outputs.
        width: factor on the channels and features of all hidden layers.
    """

    def __init__(self, in_channels: int = 3, classes: int = 10, width: float = 1.0) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        a, b, c, d = (max(1, round(width * size)) for size in (6, 16, 120, 84))
        self.conv1 = nn.Conv2d(in_channels, a, 5, stride=2, bias=False)
        self.conv2 = nn.Conv2d(a, b, 5, stride=2, bias=False)
        self.fc1 = nn.Linear(b * 5 * 5, c, bias=False)
        self.fc2 = nn.Linear(c, d, bias=False)
        self.fc3 = nn.Linear(d, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_channels, 32, 32) to outputs (B, classes)."""
        x = F.relu(self.conv1(x))  # (B, 6, 14, 14)
        x = F.relu(self.conv2(x))  # (B, 16, 5, 5)
        x = x.flatten(1)  # (B, 400)
        x = F.relu(self.fc1(x))  # (B, 120)
        x = F.relu(self.fc2(x))  # (B, 84)
        return self.fc3(x)  # type: ignore[no-any-return]  # (B, classes)
