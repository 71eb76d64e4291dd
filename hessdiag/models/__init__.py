"""Networks that hessdiag brings along, and those that a specification names."""

from hessdiag.models.alexnet import StridedAlexNet
from hessdiag.models.lenet import StridedLeNet
from hessdiag.models.mlp import mlp
from hessdiag.models.preconditioned import PreconditionedResNet
from hessdiag.models.rescalenet import RescaleNet
from hessdiag.models.resnet import ResNet
from hessdiag.models.source import ModelSource, Network
from hessdiag.models.specification import resolve_model

__all__ = [
    "ModelSource",
    "Network",
    "PreconditionedResNet",
    "ResNet",
    "RescaleNet",
    "StridedAlexNet",
    "StridedLeNet",
    "mlp",
    "resolve_model",
]
