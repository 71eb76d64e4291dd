"""The networks of the paper."""

from hessdiag import find_in_models as __getattr__  # noqa: F401
from hessdiag.models.feedforward import StridedAlexNet, StridedLeNet, mlp
from hessdiag.models.residual import PreconditionedResNet, RescaleNet

__all__ = ["PreconditionedResNet", "RescaleNet", "StridedAlexNet", "StridedLeNet", "mlp"]
