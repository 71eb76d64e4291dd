"""The scaling calculus offline: second moments through a traced graph, from shapes and E[W²] alone.

graph (what is traced) ─► rules (one an operation) ─► propagation ─► prediction
"""

from hessdiag.calculus.prediction import predict
from hessdiag.calculus.rules import RULES, Rule
from hessdiag.results.prediction import BlockPrediction, PredictedVsMeasured, Prediction

__all__ = ["RULES", "BlockPrediction", "PredictedVsMeasured", "Prediction", "Rule", "predict"]
