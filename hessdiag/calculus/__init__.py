"""The scaling calculus offline: second moments through a traced graph, from shapes and E[W²] alone.

graph (what is traced) ─► rules (one an operation) ─► propagation ─► prediction
"""

from hessdiag.calculus.predicted_vs_measured import Beside
from hessdiag.calculus.prediction import BlockPrediction, Prediction, predict
from hessdiag.calculus.rules import RULES, Rule

__all__ = [
    "RULES",
    "Beside",
    "BlockPrediction",
    "Prediction",
    "Rule",
    "predict",
]
