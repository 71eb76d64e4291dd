"""E[W²] of every parameter: from an initialisation's formula, PyTorch's defaults, or the weights themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from hessdiag import init as initialisations
from hessdiag.arguments import did_you_mean
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import parameter_at, parameter_slots
from hessdiag.network.layers import STRUCTURED, TRANSPOSED, initialised_layers, is_linear


@dataclass(frozen=True)
class WeightMoments:
    """Second moments of the parameters and buffers of a model.

    Attributes:
        sq: E[W²] by name.
        values: the numbers themselves, of parameters and buffers that have some and are small enough to matter one by
            one, such as a multiplier.
        shapes: of parameters and buffers.
        names: the one name of `hessdiag.network.blocks` for every name that a parameter goes by.
        source: where they come from, for the table.
    """

    sq: Mapping[str, float]
    values: Mapping[str, Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    names: Mapping[str, str]
    source: str


def weight_moments(model: nn.Module, *, init: str | None = None) -> WeightMoments:
    """Find E[W²] of all parameters.

    Args:
        model: on any device; on the meta device there are no weights, and formulas are used.
        init: a scheme of `hessdiag.init.SCHEMES` for linear and convolutional layers, with biases zero; None for the
            weights as they are.

    Raises:
        HessdiagError: there is no such scheme, or none in closed form.
    """
    scheme = scheme_moments(model, init) if init else {}
    sq: dict[str, float] = {}
    values: dict[str, Tensor] = {}
    meta = False
    for name, slots in parameter_slots(model).items():
        path, attribute = slots[0]
        module = model.get_submodule(path)
        parameter = parameter_at(module, attribute)
        if name in scheme:
            sq[name] = scheme[name]
        elif parameter.is_meta:
            meta = True
            sq[name] = _default(module, attribute, parameter)
        else:
            sq[name] = float(parameter.detach().double().square().mean()) if parameter.numel() else math.nan
            if parameter.numel() == 1:
                values[name] = parameter.detach()
    for name, buffer in model.named_buffers():
        if not buffer.is_meta:
            values[name] = buffer.detach()
    source = f"init {init}" if init else "PyTorch's defaults, by formula" if meta else "the weights as they are"
    # remove_duplicate: a tied weight goes by every one of its names in a traced graph
    both = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    shapes = {name: tuple(tensor.shape) for name, tensor in both}
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    names = {name: first[id(parameter)] for name, parameter in model.named_parameters(remove_duplicate=False)}
    return WeightMoments(sq, values, shapes, names, source)


def scheme_moments(model: nn.Module, scheme: str) -> dict[str, float]:
    """Find E[W²] by parameter name that a scheme of `hessdiag.init` gives to linear layers and convolutions.

    >>> scheme_moments(nn.Sequential(nn.Linear(8, 2)), "fan-in")
    {'0.weight': 0.25, '0.bias': 0.0}
    """
    check_scheme(scheme)
    c = 2 / initialisations.typical_kernel(model)
    layers = dict(initialised_layers(model))
    found: dict[str, float] = {}
    for name, slots in parameter_slots(model).items():
        path, attribute = slots[0]
        if path in layers and attribute in ("weight", "bias"):
            weight = attribute == "weight"
            found[name] = initialisations.second_moment(layers[path], scheme, c=c) if weight else 0.0
    return found


def check_scheme(scheme: str) -> None:
    """Refuse an initialisation without a closed form.

    Raises:
        HessdiagError: it is none of `hessdiag.init`.
    """
    known = (*initialisations.SCHEMES, *initialisations.VARIANTS)
    if scheme not in known:
        hint = did_you_mean(scheme, known, otherwise=f"use one of {', '.join(known)}")
        raise HessdiagError(f"no closed form for the initialisation {scheme!r}: {hint}")


def _default(module: nn.Module, attribute: str, parameter: Tensor) -> float:
    """What PyTorch's constructors draw: uniform with variance 1 / (3 fan-in) for weights and biases alike.

    Embeddings are N(0, 1), normalisation layers start at weight 1 and bias 0.
    """
    if isinstance(module, (*STRUCTURED, *TRANSPOSED)):
        weight = module.weight
        fan_in = weight.shape[1] * math.prod(weight.shape[2:])
        return 1 / (3 * fan_in)
    if is_linear(module):  # transformers' Conv1D
        return 0.02**2 if attribute == "weight" else 0.0
    if isinstance(module, nn.Embedding):
        return 1.0
    if "Norm" in type(module).__name__:
        return 1.0 if attribute == "weight" else 0.0
    if isinstance(module, nn.PReLU):
        return 0.25**2
    return math.nan
