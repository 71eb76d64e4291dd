"""The networks of the paper, and from a name to a network."""

from hessdiag.models.feedforward import StridedAlexNet, StridedLeNet, mlp
from hessdiag.models.residual import PreconditionedResNet, RescaleNet
from hessdiag.models.sources import ModelSource, Network, resolve_model

__all__ = [
    "ModelSource", "Network", "PreconditionedResNet", "RescaleNet", "StridedAlexNet", "StridedLeNet", "mlp",
    "resolve_model",
]  # fmt: skip
