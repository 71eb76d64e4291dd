"""Networks that hessdiag brings along."""

from hessdiag.models.lenet import StridedLeNet
from hessdiag.models.mlp import mlp
from hessdiag.models.specification import ModelSource, resolve_model

__all__ = ["ModelSource", "StridedLeNet", "mlp", "resolve_model"]
