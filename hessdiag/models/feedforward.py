"""The networks of the paper without skip connections: perceptrons, the strided LeNet and the strided AlexNet."""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.arguments import check_kind, check_number, check_whole


def scaled(width: float, *sizes: int) -> list[int]:
    """Channels of layers times a factor, at least one."""
    check_number("width", width, "pass a factor above 0, such as 0.5", above=0)
    return [max(1, round(width * size)) for size in sizes]


def mlp(widths: Sequence[int], *, bias: bool = True) -> nn.Sequential:
    """Linear layers of the given widths with ReLU between them; the first width is that of the flattened input.

    >>> [tuple(p.shape) for p in mlp([4, 3, 2]).parameters()]
    [(3, 4), (3,), (2, 3), (2,)]
    """
    check_kind("widths", widths, (list, tuple), "pass a list of widths, such as [784, 384, 64, 10]")
    for width in widths:
        check_whole("width", width, least=1)
    model = nn.Sequential(nn.Flatten())
    for number, (fan_in, fan_out) in enumerate(pairwise(widths), start=1):
        model.add_module(f"fc{number}", nn.Linear(fan_in, fan_out, bias=bias))
        if number < len(widths) - 1:
            model.add_module(f"relu{number}", nn.ReLU())
    return model


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
        a, b, c, d = scaled(width, 6, 16, 120, 84)
        self.conv1 = nn.Conv2d(in_channels, a, 5, stride=2, bias=False)
        self.conv2 = nn.Conv2d(a, b, 5, stride=2, bias=False)
        self.fc1 = nn.Linear(b * 5 * 5, c, bias=False)
        self.fc2 = nn.Linear(c, d, bias=False)
        self.fc3 = nn.Linear(d, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_channels, 32, 32) to outputs (B, classes)."""
        x = F.relu(self.conv1(x))  # (B, 6, 14, 14)
        x = F.relu(self.conv2(x)).flatten(1)  # (B, 16, 5, 5), (B, 400)
        x = F.relu(self.fc1(x))  # (B, 120)
        x = F.relu(self.fc2(x))  # (B, 84)
        return self.fc3(x)  # type: ignore[no-any-return]  # (B, classes)


class StridedAlexNet(nn.Module):
    """AlexNet for 32 x 32 images: five convolutions and three linear layers, ReLU between them.

    The first convolution keeps its stride of 4. The stride of each of the three max poolings is taken over by a
    convolution: by the second and the third one, which follow the first two poolings, and by the fifth, which precedes
    the last. "Max-pooling is not well-scaled by our theory" (Section 10 of arXiv 1906.04267). The paper leaves the
    padding and the widths open; these are those of the usual AlexNet for CIFAR, with the original's classifier.

    Args:
        in_channels, classes, width: as of `StridedLeNet`.
        bias: whether layers have biases.
    """

    def __init__(self, in_channels: int = 3, classes: int = 10, width: float = 1.0, bias: bool = True) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        a, b, c, d, hidden = scaled(width, 64, 192, 384, 256, 4096)
        self.conv1 = nn.Conv2d(in_channels, a, 11, stride=4, padding=5, bias=bias)
        self.conv2 = nn.Conv2d(a, b, 5, stride=2, padding=2, bias=bias)
        self.conv3 = nn.Conv2d(b, c, 3, stride=2, padding=1, bias=bias)
        self.conv4 = nn.Conv2d(c, d, 3, padding=1, bias=bias)
        self.conv5 = nn.Conv2d(d, d, 3, stride=2, padding=1, bias=bias)
        self.fc1 = nn.Linear(d, hidden, bias=bias)
        self.fc2 = nn.Linear(hidden, hidden, bias=bias)
        self.fc3 = nn.Linear(hidden, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_channels, 32, 32) to outputs (B, classes)."""
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4, self.conv5):
            x = F.relu(layer(x))  # (B, 64, 8, 8), (B, 192, 4, 4), (B, 384, 2, 2), (B, 256, 2, 2), (B, 256, 1, 1)
        x = F.relu(self.fc1(x.flatten(1)))  # (B, 256), (B, 4096)
        x = F.relu(self.fc2(x))  # (B, 4096)
        return self.fc3(x)  # type: ignore[no-any-return]  # (B, classes)
