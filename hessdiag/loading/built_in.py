"""The networks that go by a single word, ready to be measured: in evaluation mode, for images of a known size."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hessdiag.models.feedforward import StridedAlexNet, StridedLeNet
from hessdiag.models.residual import PreconditionedResNet, RescaleNet, ResNet, calibrate, centre

CALIBRATION_BATCH = 4  # random images from which statistics and biases are set
SMALL: dict[str, Any] = {"depth": 14, "classes": 10, "side": 32}


def alexnet(*, in_channels: int = 3, classes: int = 10, width: float = 1.0, bias: bool = True) -> nn.Module:
    """`StridedAlexNet`."""
    return StridedAlexNet(in_channels, classes, width, bias)


def preconditioned_resnet(
    *,
    depth: int = 50,
    classes: int = 1000,
    side: int = 224,
    width: float = 1.0,
    printed: bool = False,
    curvature: bool = False,
    centred: bool = True,
) -> nn.Module:
    """`PreconditionedResNet` without dropout, its biases centred on a random batch unless `centred` is false."""
    network = PreconditionedResNet(depth, classes, side, width, printed=printed, curvature=curvature).eval()
    return _centred(network) if centred else network


def rescalenet(
    *, depth: int = 50, classes: int = 1000, side: int = 224, width: float = 1.0, centred: bool = True
) -> nn.Module:
    """`RescaleNet` without dropout, its biases centred on a random batch unless `centred` is false."""
    network = RescaleNet(depth, classes, side, width).eval()
    return _centred(network) if centred else network


def resnet(*, depth: int = 50, classes: int = 1000, side: int = 224, width: float = 1.0) -> nn.Module:
    """`ResNet` in evaluation mode, with the batch statistics of a random batch."""
    network = ResNet(depth, classes, side, width)
    calibrate(network, _images(network))
    return network


def small(factory: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """The same network of depth 14 for 32 x 32 images and 10 classes, unless told otherwise."""

    def build(**options: Any) -> nn.Module:
        return factory(**(SMALL | options))

    build.__signature__ = _signature_with(factory, SMALL)  # type: ignore[attr-defined]
    return build


def _signature_with(factory: Callable[..., nn.Module], defaults: dict[str, Any]) -> inspect.Signature:
    """What `--arg` is checked against."""
    signature = inspect.signature(factory)
    parameters = [p.replace(default=defaults.get(p.name, p.default)) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters)


def _centred(network: nn.Module) -> nn.Module:
    centre(network, _images(network))
    return network


def _images(network: nn.Module) -> torch.Tensor:
    """From torch's global random state, like the weights."""
    size = network.input_size
    assert isinstance(size, tuple)
    return torch.randn(CALIBRATION_BATCH, *size)


BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    "lenet": StridedLeNet,
    "alexnet": alexnet,
    "preconditioned-resnet50": preconditioned_resnet,
    "preconditioned-resnet14": small(preconditioned_resnet),
    "rescalenet50": rescalenet,
    "rescalenet14": small(rescalenet),
    "resnet50": resnet,
    "resnet14": small(resnet),
}
