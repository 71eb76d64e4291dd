"""Which parameters of a model are blocks, and what they look like to the theory.

A block is one weight matrix or kernel, one bias vector, or one learnable scalar. A parameter that several modules share
is one block with several owners. Everything else is listed with the reason why it is not a block.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from hessdiag.errors import HessdiagError
from hessdiag.results.blocks import BlockRecord, Kind
from hessdiag.results.records import Record

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
STRUCTURED = (nn.Linear, *CONVOLUTIONS)


@dataclass(frozen=True, kw_only=True)
class Block(BlockRecord, Record):
    """A block of parameters in a model.

    Attributes:
        name, kind, layer, shape, numel, fan_in, fan_out, kernel, groups: what it is, see `BlockRecord`.
        owners: paths of the modules that hold the parameter; more than one when it is shared.
        attribute: the parameter's name inside its owners.
        structured: whether a rule gives its Jacobian from the layer's input and output gradients; the others are
            differentiated as they are, and the theory has no γ for them.
        looked_up: whether one of the owners is an embedding, which multiplies nothing; no γ for these either.
        in_common: owners that look (T,) rows up for all examples together, as positions.
    """

    owners: tuple[str, ...]
    attribute: str
    structured: bool = True
    looked_up: bool = False
    in_common: tuple[str, ...] = ()

    @property
    def multiplies(self) -> bool:
        """Whether the theory of layers that multiply by their parameter, or add it, speaks of this one."""
        return self.structured and not self.looked_up


def find_blocks(model: nn.Module, *, vectors: bool = False) -> tuple[tuple[Block, ...], tuple[tuple[str, str], ...]]:
    """The blocks of a model and `(name, reason)` of every parameter that is none.

    With `vectors`, so are the vectors of normalisation layers and the like: all that is trained.

    >>> blocks, skipped = find_blocks(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))
    >>> [(block.name, block.kind, block.fan_in, block.fan_out) for block in blocks]
    [('0.weight', 'weight', 3, 2), ('0.bias', 'bias', 3, 2)]
    >>> skipped
    (('1.weight', 'vector of 2 in LayerNorm: neither a weight matrix, a bias nor a scalar'), ('1.bias', ...))
    """
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and any(True for _ in module.parameters()):
            what = f"module {path!r}" if path else "the model"
            raise HessdiagError(f"{what} was compiled by torch.jit, which hides its layers: pass the module it is of")
    found = {name: _classify(model, name, slots, vectors=vectors) for name, slots in parameter_slots(model).items()}
    blocks = tuple(each for each in found.values() if isinstance(each, Block))
    return blocks, tuple((name, each) for name, each in found.items() if not isinstance(each, Block))


def parameter_slots(model: nn.Module) -> dict[str, list[tuple[str, str]]]:
    """Each distinct parameter's name, with every distinct place `(module path, attribute)` that holds it. A module that
    can be reached by two paths counts once: swapping its parameter twice would make torch's `functional_call` write the
    swapped value into the user's model (pytorch#164759).
    """
    slots: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for path, module in model.named_modules():  # distinct modules only
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                slots[id(parameter)].append((path, attribute))
    return {".".join(filter(None, places[0])): places for places in slots.values()}


def block_parameter(model: nn.Module, block: Block) -> nn.Parameter:
    """The parameter itself."""
    return cast("nn.Parameter", model.get_submodule(block.owners[0])._parameters[block.attribute])


def _classify(model: nn.Module, name: str, slots: list[tuple[str, str]], *, vectors: bool) -> Block | str:
    """The block at these slots, or the reason why there is none."""
    path, attribute = slots[0]
    module = model.get_submodule(path)
    parameter = cast("nn.Parameter", module._parameters[attribute])  # the class may make something else of the name
    layer = type(module).__name__
    if not parameter.numel():
        return f"{'x'.join(map(str, parameter.shape))} tensor in {layer}: it has no entries"
    if not parameter.requires_grad:
        return f"frozen (requires_grad=False) in {layer}"
    if not parameter.is_floating_point():
        return f"{str(parameter.dtype).removeprefix('torch.')} numbers in {layer}: the theory is of real ones"
    kind = _kind(module, attribute, parameter)
    if kind == "bias" and (applied := [(p, a) for p, a in slots if has_rule(model.get_submodule(p))]):
        slots, module = applied, model.get_submodule(applied[0][0])  # others hold it too, as BERT's head does
    other, kind = kind is None, "bias" if kind is None and vectors else kind
    if kind is None:
        shape = tuple(parameter.shape)
        what = f"vector of {shape[0]}" if len(shape) == 1 else f"{'x'.join(map(str, shape))} tensor"
        return f"{what} in {layer}: neither a weight matrix, a bias nor a scalar"
    holders = [model.get_submodule(p) for p, _ in slots]
    attribute = slots[0][1]
    ruled = not other and {a for _, a in slots} in ({"weight"}, {"bias"}) and _share_rule(holders)
    fan_in, fan_out, kernel = fans_of(module, attribute, parameter)
    return Block(
        name=name, kind=kind, owners=tuple(p for p, _ in slots), attribute=attribute, layer=type(module).__name__,
        shape=tuple(parameter.shape), numel=parameter.numel(), fan_in=fan_in, fan_out=fan_out, kernel=kernel,
        groups=int(getattr(module, "groups", 1)) if hasattr(module, "kernel_size") else 1,
        structured=kind == "scalar" or ruled, looked_up=kind == "weight" and any(map(looks_up, holders)),
    )  # fmt: skip


def _share_rule(holders: Sequence[nn.Module]) -> bool:
    """Whether there is a rule for every module that holds a parameter, and for its sharing."""
    others = [module for module in holders if not looks_up(module)]
    if len({type(module) for module in others}) > 1 or not all(map(has_rule, others)):
        return False
    return len(others) in (0, len(holders)) or is_linear(others[0])  # an embedding's may be tied to a head


def _kind(module: nn.Module, attribute: str, parameter: nn.Parameter) -> Kind | None:
    """Matrices and kernels are weights; vectors are biases if they are called so outside a normalisation layer."""
    if parameter.numel() == 1 and not has_rule(module):
        return "scalar"
    if parameter.dim() > 1:
        return "weight"
    return "bias" if "bias" in attribute and "Norm" not in type(module).__name__ and parameter.dim() == 1 else None


# Kinds of layers: how many channels their weights join, and how the weights are stored.


def is_linear(module: nn.Module) -> bool:
    """A layer y = W x + b on the last dimension; transformers' `Conv1D` is one, with W stored as (inputs, outputs)."""
    of_transformers = type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers.")
    return of_transformers or isinstance(module, nn.Linear)


def has_rule(module: nn.Module) -> bool:
    """Whether the Jacobian of the module's weight follows from its input and its output gradients."""
    return is_linear(module) or isinstance(module, CONVOLUTIONS)


def looks_up(module: nn.Module) -> bool:
    """An embedding: rows of its weight, by number; one that weighs its gradient otherwise is none here."""
    if not isinstance(module, nn.Embedding) or type(module).forward is not nn.Embedding.forward:
        return False
    plain = module.max_norm is None and not module.scale_grad_by_freq and "weight" in module._parameters
    return plain and module.weight.numel() > 1


def initialised_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Path and module of every layer whose weight an initialisation sets: linear and convolutional, transposed or not.

    >>> [path for path, _ in initialised_layers(nn.Sequential(nn.ConvTranspose1d(2, 3, 2), nn.ReLU()))]
    ['0']
    """
    for path, module in model.named_modules():
        if is_linear(module) or isinstance(module, (*CONVOLUTIONS, *TRANSPOSED)):
            yield path, module


def settable_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """As `initialised_layers`, to set their weights."""
    for path, module in initialised_layers(model):
        if "weight" not in module._parameters:
            message = f"layer {path!r} computes its weight from other parameters, as with weight norm: initialise the"
            raise HessdiagError(f"{message} network first and parametrise it after")
        yield path, module


def stores_inputs_first(module: nn.Module) -> bool:
    """Whether the weight is (in, out / groups, *kernel) rather than (out, in / groups, *kernel)."""
    return isinstance(module, TRANSPOSED) or (is_linear(module) and not isinstance(module, nn.Linear))


def swap_inputs_and_outputs(weight: Tensor, *, groups: int) -> Tensor:
    """(a, b / groups, *kernel) as (b, a / groups, *kernel), a copy; it is its own inverse.

    >>> swap_inputs_and_outputs(torch.empty(4, 3, 5), groups=2).shape
    torch.Size([6, 2, 5])
    """
    return torch.unflatten(weight.detach(), 0, (groups, -1)).transpose(1, 2).flatten(0, 1).clone()


def fans(weight: Tensor, *, groups: int = 1, transposed: bool = False) -> tuple[float, float, float]:
    """(n, n', k) of a weight: channels that one output reads, channels that one input feeds, root of the kernel's size.

    A weight is (out, in / groups, *kernel) or, with `transposed`, (in, out / groups, *kernel), as in transposed
    convolutions and in the `Conv1D` of transformers.

    >>> fans(torch.empty(6, 3, 5, 5))
    (3.0, 6.0, 5.0)
    >>> fans(torch.empty(6, 3, 5, 5), transposed=True)
    (6.0, 3.0, 5.0)
    """
    if weight.dim() < 2:
        raise HessdiagError(f"a weight of shape {tuple(weight.shape)} has no fan-in: pass at least two dimensions")
    if groups < 1 or weight.shape[0] % groups:
        what = f"a weight of shape {tuple(weight.shape)} has no {groups} groups"
        raise HessdiagError(f"{what}: its first dimension must be a multiple")
    first, second = weight.shape[0] / groups, float(weight.shape[1])
    n, m = (first, second) if transposed else (second, first)
    return n, m, math.sqrt(math.prod(weight.shape[2:]))


def fans_of(module: nn.Module, attribute: str, parameter: nn.Parameter) -> tuple[int, int, tuple[int, ...]]:
    """Find fan-in, fan-out and kernel of a layer; for an unknown one those of a matrix (outputs, inputs)."""
    weight = _weight(module) if attribute == "bias" else parameter
    shape = tuple(weight.shape) if isinstance(weight, torch.Tensor) else tuple(parameter.shape)
    if len(shape) < 2:
        return 1, shape[0] if shape else 1, ()
    if stores_inputs_first(module):
        groups = int(getattr(module, "groups", 1))
        return shape[0] // groups, shape[1] * groups, shape[2:]
    return shape[1], shape[0], shape[2:]


def _weight(module: nn.Module) -> object:
    """The module's weight; of a parametrized one what it is computed from, for to compute it may change buffers."""
    if is_parametrized(module, "weight"):
        return max(module.parametrizations["weight"].parameters(), key=torch.Tensor.numel)  # type: ignore[union-attr, index]
    return getattr(module, "weight", None)
