"""Which parameters of a model are blocks, and what they look like to the theory.

A block is one weight matrix or kernel, one bias vector, or one learnable scalar. A parameter that several modules share
is one block with several owners. Everything else is listed with the reason why it is not a block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from hessdiag.report import Kind

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
STRUCTURED = (nn.Linear, *CONVOLUTIONS)


@dataclass(frozen=True)
class Block:
    """One block of parameters.

    Attributes:
        name: as in `model.named_parameters()`.
        kind: `"weight"`, `"bias"` or `"scalar"`.
        owners: paths of the modules that hold the parameter; more than one when it is shared.
        attribute: the parameter's name inside its owners.
        layer: class name of the first owner.
        shape, numel, fan_in, fan_out, kernel, groups: as in `hessdiag.report.BlockReport`.
    """

    name: str
    kind: Kind
    owners: tuple[str, ...]
    attribute: str
    layer: str
    shape: tuple[int, ...]
    numel: int
    fan_in: int
    fan_out: int
    kernel: tuple[int, ...]
    groups: int


def find_blocks(model: nn.Module) -> tuple[tuple[Block, ...], tuple[tuple[str, str], ...]]:
    """The blocks of a model and `(name, reason)` of every parameter that is none.

    >>> blocks, skipped = find_blocks(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))
    >>> [(block.name, block.kind, block.fan_in, block.fan_out) for block in blocks]
    [('0.weight', 'weight', 3, 2), ('0.bias', 'bias', 3, 2)]
    >>> skipped
    (('1.weight', 'vector of 2 in LayerNorm: neither a weight matrix, a bias nor a scalar'), ('1.bias', ...))
    """
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


def block_parameter(model: nn.Module, block: Block) -> nn.Parameter:
    """The parameter itself."""
    parameter = model.get_submodule(block.owners[0])._parameters[block.attribute]
    assert parameter is not None
    return parameter


def _classify(model: nn.Module, name: str, slots: list[tuple[str, str]]) -> Block | str:
    """The block at these slots, or the reason why there is none."""
    path, attribute = slots[0]
    module = model.get_submodule(path)
    parameter = module._parameters[attribute]
    assert parameter is not None
    kind = type(module).__name__
    if not parameter.requires_grad:
        return f"frozen (requires_grad=False) in {kind}"
    if nn.parameter.is_lazy(parameter):
        return f"not initialised yet in {kind}: run the model once before measuring it"
    others = [model.get_submodule(p) for p, _ in slots[1:]]
    if any(type(other) is not type(module) or a != attribute for other, (_, a) in zip(others, slots[1:], strict=True)):
        return f"shared by modules of different kinds: {', '.join(f'{p}.{a}' for p, a in slots)}"
    shape = tuple(parameter.shape)
    owners = tuple(p for p, _ in slots)
    if isinstance(module, STRUCTURED) and attribute in ("weight", "bias"):
        weight_shape = tuple(module.weight.shape)  # (out, in / groups, *kernel)
        return Block(
            name=name,
            kind="weight" if attribute == "weight" else "bias",
            owners=owners,
            attribute=attribute,
            layer=kind,
            shape=shape,
            numel=parameter.numel(),
            fan_in=weight_shape[1],
            fan_out=weight_shape[0],
            kernel=weight_shape[2:],
            groups=module.groups if isinstance(module, CONVOLUTIONS) else 1,
        )
    if parameter.numel() == 1 and len(slots) == 1:
        return Block(name, "scalar", owners, attribute, kind, shape, 1, 1, 1, (), 1)
    what = f"vector of {shape[0]}" if len(shape) == 1 else f"{'x'.join(map(str, shape))} tensor"
    return f"{what} in {kind}: neither a weight matrix, a bias nor a scalar"
