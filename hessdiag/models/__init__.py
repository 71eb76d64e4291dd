"""Networks that hessdiag brings along, and those that a specification names."""

from hessdiag.models.lenet import StridedLeNet
from hessdiag.models.mlp import mlp
from hessdiag.models.source import ModelSource, Network
from hessdiag.models.specification import resolve_model

__all__ = ["ModelSource", "Network", "StridedLeNet", "mlp", "resolve_model"]
