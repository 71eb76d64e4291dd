"""The strided AlexNet for CIFAR-10 of the paper's Section 10: kernels of 11, 5 and 3, strides for max pooling."""

import torch.nn.functional as F
from torch import Tensor, nn


class StridedAlexNet(nn.Module):
    """AlexNet for 32 x 32 images: five convolutions and three linear layers, ReLU between them.

    The first convolution keeps its stride of 4. The stride of each of the three max poolings is taken over by a
    convolution: by the second and the third one, which follow the first two poolings, and by the fifth, which precedes
    the last. "Max-pooling is not well-scaled by our theory" (Section 10 of arXiv 1906.04267). The paper leaves the
    padding and the widths open; these are those of the usual AlexNet for CIFAR, with the original's classifier.

    Args:
        in_channels: channels of the images.
        classes: number of outputs.
        width: factor on the channels and features of all hidden layers.
        bias: whether layers have biases.
    """

    def __init__(self, in_channels: int = 3, classes: int = 10, width: float = 1.0, bias: bool = True) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        a, b, c, d, hidden = (max(1, round(width * size)) for size in (64, 192, 384, 256, 4096))
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
        x = F.relu(self.conv1(x))  # (B, 64, 8, 8)
        x = F.relu(self.conv2(x))  # (B, 192, 4, 4)
        x = F.relu(self.conv3(x))  # (B, 384, 2, 2)
        x = F.relu(self.conv4(x))  # (B, 256, 2, 2)
        x = F.relu(self.conv5(x))  # (B, 256, 1, 1)
        x = x.flatten(1)  # (B, 256)
        x = F.relu(self.fc1(x))  # (B, 4096)
        x = F.relu(self.fc2(x))  # (B, 4096)
        return self.fc3(x)  # type: ignore[no-any-return]  # (B, classes)
