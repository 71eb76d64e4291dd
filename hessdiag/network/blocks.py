"""Which parameters of a model are blocks, and what they look like to the theory.

A block is one weight matrix or kernel, one bias vector, or one learnable scalar. A parameter that several modules share
is one block with several owners. Everything else is listed with the reason why it is not a block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.network.layers import fans_of, has_rule, initialised_layers, is_linear, looks_up
from hessdiag.results.blocks import BlockRecord, Kind


@dataclass(frozen=True, kw_only=True)
class Block(BlockRecord):
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


def find_blocks(model: nn.Module) -> tuple[tuple[Block, ...], tuple[tuple[str, str], ...]]:
    """The blocks of a model and `(name, reason)` of every parameter that is none.

    >>> blocks, skipped = find_blocks(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))
    >>> [(block.name, block.kind, block.fan_in, block.fan_out) for block in blocks]
    [('0.weight', 'weight', 3, 2), ('0.bias', 'bias', 3, 2)]
    >>> skipped
    (('1.weight', 'vector of 2 in LayerNorm: neither a weight matrix, a bias nor a scalar'), ('1.bias', ...))

    Raises:
        HessdiagError: modules with parameters were compiled by `torch.jit`.
    """
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and any(True for _ in module.parameters()):
            what = f"module {path!r}" if path else "the model"
            raise HessdiagError(f"{what} was compiled by torch.jit, which hides its layers: pass the module it is of")
    blocks, skipped = [], []
    for name, slots in parameter_slots(model).items():
        found = _classify(model, name, slots)
        if isinstance(found, Block):
            blocks.append(found)
        else:
            skipped.append((name, found))
    return tuple(blocks), tuple(skipped)


def parameter_slots(model: nn.Module) -> dict[str, list[tuple[str, str]]]:
    """Each distinct parameter's name, with every distinct place `(module path, attribute)` that holds it.

    A module that can be reached by two paths counts once: swapping its parameter twice would make torch's
    `functional_call` write the swapped value into the user's model (pytorch#164759).
    """
    slots: dict[int, list[tuple[str, str]]] = defaultdict(list)
    names: dict[int, str] = {}
    for path, module in model.named_modules():  # distinct modules only
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                slots[id(parameter)].append((path, attribute))
                names.setdefault(id(parameter), f"{path}.{attribute}" if path else attribute)
    return {names[key]: places for key, places in slots.items()}


def owners_of(blocks: Iterable[Block]) -> list[str]:
    """Paths of all modules that own one of the blocks, each once."""
    return list(dict.fromkeys(owner for block in blocks for owner in block.owners))


def measured_layers(model: nn.Module, blocks: Sequence[Block]) -> list[str]:
    """Paths of the layers whose surroundings are measured: also of those whose weight has no rule but is a matrix."""
    ruled = owners_of(block for block in blocks if block.structured)
    matrices = {path for path, _ in initialised_layers(model)}
    others = owners_of(block for block in blocks if not block.structured and block.kind == "weight")
    return [*ruled, *(owner for owner in others if owner in matrices and owner not in ruled)]


def looked_up_in_common(blocks: Iterable[Block]) -> frozenset[str]:
    """Paths of all embeddings that look rows up for all examples together."""
    return frozenset(owner for block in blocks for owner in block.in_common)


def block_parameter(model: nn.Module, block: Block) -> nn.Parameter:
    """The parameter itself."""
    return parameter_at(model.get_submodule(block.owners[0]), block.attribute)


def parameter_at(module: nn.Module, attribute: str) -> nn.Parameter:
    """The parameter that a module holds under a name of `parameter_slots`."""
    parameter = module._parameters[attribute]
    assert parameter is not None
    return parameter


def _classify(model: nn.Module, name: str, slots: list[tuple[str, str]]) -> Block | str:
    """The block at these slots, or the reason why there is none."""
    path, attribute = slots[0]
    module = model.get_submodule(path)
    parameter = parameter_at(module, attribute)
    layer = type(module).__name__
    if not parameter.requires_grad:
        return f"frozen (requires_grad=False) in {layer}"
    if not parameter.is_floating_point():
        return f"{str(parameter.dtype).removeprefix('torch.')} numbers in {layer}: the theory is of real ones"
    if nn.parameter.is_lazy(parameter):
        return f"not initialised yet in {layer}: run the model once before measuring it"
    kind = _kind(module, attribute, parameter)
    if kind == "bias" and (applied := [(p, a) for p, a in slots if has_rule(model.get_submodule(p))]):
        slots, module = applied, model.get_submodule(applied[0][0])  # others hold it too, as BERT's head does
    if kind is None:
        shape = tuple(parameter.shape)
        what = f"vector of {shape[0]}" if len(shape) == 1 else f"{'x'.join(map(str, shape))} tensor"
        return f"{what} in {layer}: neither a weight matrix, a bias nor a scalar"
    holders = [model.get_submodule(p) for p, _ in slots]
    attribute = slots[0][1]
    same_name = all(a == attribute for _, a in slots)
    fan_in, fan_out, kernel = fans_of(module, attribute, parameter)
    return Block(
        name=name,
        kind=kind,
        owners=tuple(p for p, _ in slots),
        attribute=attribute,
        layer=type(module).__name__,
        shape=tuple(parameter.shape),
        numel=parameter.numel(),
        fan_in=fan_in,
        fan_out=fan_out,
        kernel=kernel,
        groups=int(getattr(module, "groups", 1)) if hasattr(module, "kernel_size") else 1,
        structured=kind == "scalar" or (same_name and attribute in ("weight", "bias") and _share_rule(holders)),
        looked_up=kind == "weight" and any(map(looks_up, holders)),
    )


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
    normalises = "Norm" in type(module).__name__
    return "bias" if "bias" in attribute and not normalises and parameter.dim() == 1 else None
