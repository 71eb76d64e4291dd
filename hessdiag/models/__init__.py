"""The networks of the paper."""

from hessdiag.models.alexnet import StridedAlexNet
from hessdiag.models.lenet import StridedLeNet
from hessdiag.models.mlp import mlp
from hessdiag.models.preconditioned import PreconditionedResNet
from hessdiag.models.rescalenet import RescaleNet
from hessdiag.models.resnet import ResNet

__all__ = [
    "PreconditionedResNet",
    "ResNet",
    "RescaleNet",
    "StridedAlexNet",
    "StridedLeNet",
    "mlp",
]
