"""The networks of the paper."""

from hessdiag import find_in_models as __getattr__  # noqa: F401
from hessdiag.models.feedforward import StridedAlexNet, StridedLeNet, mlp
from hessdiag.models.residual import PreconditionedResNet, RescaleNet, ResNet

__all__ = [
    "PreconditionedResNet",
    "ResNet",
    "RescaleNet",
    "StridedAlexNet",
    "StridedLeNet",
    "mlp",
]
