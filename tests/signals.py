"""Signals built by hand: a chain of linear layers with ReLUs that nothing can be said against."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hessdiag.results.signals import LayerSignals, ParameterSignals, Signals


def layer(path: str, *labels: str, **values: Any) -> LayerSignals:
    """A layer that reads and writes a second moment of 1, except for `values`."""
    usual: dict[str, Any] = {
        "kind": "Linear", "samples": 64, "x_sq": 1.0, "x_varies": 0.5, "out_sq": 1.0, "out_varies": 0.5,
        "out_gradient_total": 1e-2,
    }  # fmt: skip
    return LayerSignals(path=path, labels=labels, **(usual | values))


def weight(name: str, **values: Any) -> ParameterSignals:
    usual: dict[str, Any] = {
        "owners": (name.rpartition(".")[0],), "attribute": name.rpartition(".")[2], "kind": "Linear",
        "shape": (10, 10), "numel": 100, "fan_in": 10, "fan_out": 10, "weight_sq": 0.2, "kurtosis": 3.0, "largest": 3.0,
        "along": 1.0, "uses": ("product",),
    }  # fmt: skip
    return ParameterSignals(name=name, **(usual | values))


def vector(name: str, **values: Any) -> ParameterSignals:
    usual: dict[str, Any] = {"shape": (10,), "numel": 10, "fan_in": 0, "fan_out": 0, "kurtosis": math.nan, "uses": ()}
    return weight(name, **(usual | {"weight_sq": 0.0} | values))


def network(*, depth: int = 6, layers: Any = None, weights: Any = None, **values: Any) -> Signals:
    """A chain, with what differs in some layers and weights by path; `values` of the whole network."""
    paths = [f"l{i}" for i in range(depth)]
    given, before = layers or {}, {path: {"sources": (above,)} for above, path in pairwise([*paths, "head"])}
    rows = [layer(path, "relu", **before.get(path, {}) | given.get(path, {})) for path in paths]
    rows.append(layer("head", "output", **before["head"] | given.get("head", {})))
    parameters = [weight(f"{path}.weight", **(weights or {}).get(path, {})) for path in [*paths, "head"]]
    usual: dict[str, Any] = {
        "examples": 64, "initial_loss": 2.3, "initial_loss_stderr": 0.01, "chance_loss": 2.3,
        "loss_kind": "cross-entropy", "output_sq": 1.5, "output_variance": 1.0, "sent_back": "loss",
        "fixed_norms": 0, "fresh_norms": 0, "layers": tuple(rows), "parameters": tuple(parameters),
    }  # fmt: skip
    return Signals(**(usual | values))


def plus(signals: Signals, *, layers: tuple[Any, ...] = (), parameters: tuple[Any, ...] = ()) -> Signals:
    """A network with layers put before the others, and parameters added."""
    return replace(signals, layers=(*layers, *signals.layers), parameters=(*signals.parameters, *parameters))


def relabelled(signals: Signals, *labels: str, paths: tuple[str, ...] = ()) -> Signals:
    """The same network with other labels on some layers, by default all but the head."""
    rows = [
        replace(each, labels=labels) if (each.path in paths if paths else each.path != "head") else each
        for each in signals.layers
    ]
    return replace(signals, layers=tuple(rows))
