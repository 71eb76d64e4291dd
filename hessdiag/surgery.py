"""Fixed multipliers put into a finished network without editing its code (Sections 6.2, 7, 8.1 of arXiv 1906.04267).

A multiplier is a `Scale` that becomes a child of the layer whose input (`input_scale`) or output (`output_scale`) it
multiplies, and a hook of that layer calls it; in an `nn.Sequential` it is the first or the last child. So it is saved
in the `state_dict`, moves and is copied with the network, and the names of all parameters stay as they were. `undo`
takes all of them out again. To load a `state_dict` that has multipliers, put them in first, with any factors.
"""

import math
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_kind, check_model, check_number, did_you_mean
from hessdiag.data.batch import Batch, Inputs
from hessdiag.errors import HessdiagError
from hessdiag.init import layout, typical_kernel
from hessdiag.network.blocks import CONVOLUTIONS, TRANSPOSED, fans, initialised_layers, is_linear, parameter_slots
from hessdiag.network.preserve import preserve_state

INPUT, OUTPUT = "input_scale", "output_scale"
STANDARD_DEVIATION = 0.05  # of the outputs, "gives the best results" (Section 11.2)


class Scale(nn.Module):
    """x -> factor · x. The factor is a buffer: saved in `state_dict`, moved with the module, never trained.

    Both the forward and the backward signal are multiplied by the factor, so that the activation scaling ς, and with it
    the balance of all layers, stays as it is (Table 1 of arXiv 1906.04267); the size of the signal changes.

    Args:
        factor: finite and not 0.

    Raises:
        HessdiagError: the factor is 0, infinite or NaN.

    >>> Scale(0.5)(torch.tensor([2.0, 4.0]))
    tensor([1., 2.])
    """

    factor: Tensor

    def __init__(self, factor: float) -> None:
        super().__init__()
        if not math.isfinite(factor) or factor == 0:
            raise HessdiagError(f"factor {factor!r}: a fixed multiplier is finite and not 0")
        self.register_buffer("factor", torch.tensor(float(factor)))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply; any shape in, the same out."""
        return x * self.factor

    def extra_repr(self) -> str:
        """Show the factor, in torch's way of printing a module."""
        return f"{float(self.factor):.6g}"


class InsertedScale(Scale):
    """A `Scale` that `undo` takes out; multipliers of the network's own stay."""


def insert_scale(model: nn.Module, factor: float, *, before: str | None = None, after: str | None = None) -> Scale:
    """Multiply what one module of a network reads, or what it writes, by a fixed factor.

    Args:
        model: changed in place; `undo` restores it.
        factor: finite and not 0.
        before: path of the module whose first argument is multiplied; `""` is the model itself.
        after: path of the module whose output is multiplied. Pass one of the two.

    Returns:
        The multiplier. Where there is one already, the same with its factor multiplied.

    Raises:
        HessdiagError: there is no such module, or something else in it has the multiplier's name.

    >>> model = nn.Sequential(nn.Linear(3, 2))
    >>> insert_scale(model, 0.5, before="0")
    InsertedScale(0.5)
    >>> sorted(model.state_dict())
    ['0.bias', '0.input_scale.factor', '0.weight']
    >>> undo(model)
    1
    """
    check_model(model)
    check_number("factor", factor, "pass a finite number, such as 0.5")
    for name, place in (("before", before), ("after", after)):
        check_kind(name, "" if place is None else place, str, "pass the path of a module, such as 'features.0'")
    if (before is None) == (after is None):
        raise HessdiagError("insert_scale: pass the path of a module as before= or as after=, one of them")
    path, name = (before, INPUT) if before is not None else (after, OUTPUT)
    module = _module_at(model, str(path))
    scale = InsertedScale(factor)  # refuses an impossible factor before anything changes
    if isinstance(present := getattr(module, name, None), InsertedScale):
        present.factor.mul_(factor)
        return present
    if present is not None:
        raise HessdiagError(f"module {path!r} has a {name} of its own, a {type(present).__name__}: scale elsewhere")
    reference = next((t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None)
    if reference is not None:
        scale.to(reference.device, reference.dtype).factor.fill_(factor)  # again: float64 has more digits
    module.add_module(name, scale)
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:  # which runs the new child
        if name == INPUT:
            for key in [key for key in module._modules if key != INPUT]:
                module._modules[key] = module._modules.pop(key)
    elif name == INPUT:
        module.register_forward_pre_hook(_scale_input, with_kwargs=True)
    else:
        module.register_forward_hook(_scale_output)
    return scale


def undo(model: nn.Module) -> int:
    """Take all inserted multipliers out; the network computes what it did before, and has the same `state_dict` keys.

    Weights are left as they are, trained or not.

    Returns:
        How many there were.
    """
    check_model(model)
    count = 0
    for module in list(model.modules()):
        for hook, hooks in ((_scale_input, module._forward_pre_hooks), (_scale_output, module._forward_hooks)):
            for key in [key for key, value in hooks.items() if value is hook]:
                del hooks[key]
                module._forward_pre_hooks_with_kwargs.pop(key, None)
        for name in (INPUT, OUTPUT):
            if isinstance(module._modules.get(name), InsertedScale):
                del module._modules[name]
                count += 1
    return count


def rescale_weight(model: nn.Module, name: str, factor: float) -> tuple[Scale, ...]:
    """Multiply a weight by s, and what its layers read by 1/s: the network computes the same.

    Its gradient becomes 1/s of what it was and its curvature 1/s², so that σ², γ and ν of this block are multiplied by
    s⁻⁴; P σ² E[W²]² and all other blocks stay. Trained from there, it moves as if its learning rate had been multiplied
    by s⁻² with SGD, by 1/s with Adam. An embedding reads no numbers: there the multiplier stands behind.

    Args:
        model: changed in place; `rescale_weight(model, name, 1 / factor)` takes it back, `undo` alone does not.
        name: of the weight, as in `model.named_parameters()`; where layers share it, all of them are scaled.
        factor: s, finite and above 0.

    Returns:
        The multipliers, one a layer that holds the weight.

    Raises:
        HessdiagError: there is no such weight, or no multiplier can make up for the factor.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> before = layer(torch.ones(1, 2))
    >>> rescale_weight(layer, "weight", 4.0)
    (InsertedScale(0.25),)
    >>> torch.equal(layer(torch.ones(1, 2)), before)
    True
    """
    check_model(model)
    check_number("factor", factor, "pass a finite number above 0, such as 2.0", above=0)
    if name not in (slots := parameter_slots(model)):
        hint = did_you_mean(name, slots, otherwise="model.named_parameters() lists them")
        raise HessdiagError(f"the model has no weight {name!r}: {hint}")
    places = [(path, _compensation(model, path, attribute)) for path, attribute in slots[name]]
    with torch.no_grad():
        model.get_parameter(name).mul_(factor)
    return tuple(insert_scale(model, 1 / factor, **{where: path}) for path, where in places)


def scale_input(model: nn.Module, inputs: Inputs) -> Scale:
    """Scale the network's input so that weights and biases of the first layer have the same γ (Section 8.1).

    E[x_0²], measured on the `inputs`, becomes 1 / √(n_0 k_0²). The multiplier stands before the first linear or
    convolutional layer that runs; `undo` takes it out.

    Raises:
        HessdiagError: no linear or convolutional layer runs, or it reads nothing but zeros.
    """
    check_model(model)
    paths, seen = {module: path for path, module in initialised_layers(model)}, list[tuple[Any, float]]()
    batch = Batch.of(inputs, None)

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else next(iter(kwargs.values()))
        seen.append((module, float(x.double().square().mean())))

    with preserve_state(model, seed=0, call=lambda: batch.run(model)), torch.no_grad(), ExitStack() as hooks:
        for module in paths:
            hooks.enter_context(module.register_forward_pre_hook(note, with_kwargs=True))
        batch.call(model)
    if not seen:
        raise HessdiagError("no linear or convolutional layer ran: nothing to scale")
    first, x_sq = seen[0]
    n, _, k = fans(first.weight, **layout(first))
    if x_sq == 0:
        raise HessdiagError(f"layer {paths[first]!r} reads nothing but zeros: pass inputs that are not all zero")
    return insert_scale(model, (n * k**2) ** -0.25 / math.sqrt(x_sq), before=paths[first])


def correct_kernels(model: nn.Module, *, typical: float | None = None) -> dict[str, Scale]:
    """Scale before every layer whose kernel has not the typical size, by √(typical k / k), by path (Section 6.2).

    Under geometric-mean initialisation with c = 2 / (typical k) second moments then follow √(n / n') from layer to
    layer (Eq. 6), also with groups. Balance does not change.

    Args:
        model: changed in place; `undo` restores it.
        typical: the kernel's side whose c was used; None is `hessdiag.init.typical_kernel(model)`.

    >>> correct_kernels(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)))
    {'1': InsertedScale(0.57735)}
    """
    check_model(model)
    usual = typical_kernel(model) if typical is None else typical
    check_number("typical kernel", usual, "pass the side of a kernel, such as 3", above=0)
    layers = {path: (fans(m.weight, **(how := layout(m)))[2], how["groups"]) for path, m in initialised_layers(model)}
    factors = {path: math.sqrt(usual / k * math.sqrt(groups)) for path, (k, groups) in layers.items()}
    return {path: insert_scale(model, factor, before=path) for path, factor in factors.items() if factor != 1}


def normalise_output(model: nn.Module, inputs: Inputs, *, std: float = STANDARD_DEVIATION) -> Scale:
    """Scale the network's output to a given standard deviation, over all outputs and examples of one batch (Section 7).

    Args:
        model: changed in place; `undo` restores it.
        inputs: the batch, as for `hessdiag.diagnose`; more than one number must come out.
        std: standard deviation wanted; the paper found 0.05 best for a log-softmax loss.

    Raises:
        HessdiagError: `std` is not positive, or the outputs do not vary.
    """
    check_model(model)
    check_number("std", std, f"pass a positive standard deviation, such as {STANDARD_DEVIATION}", above=0)
    batch = Batch.of(inputs, None)
    with preserve_state(model, seed=0, call=lambda: batch.run(model)), torch.no_grad():
        y = batch.call(model).double()
    found = float(y.std()) if y.numel() > 1 else 0.0
    if not (math.isfinite(found) and found > 0):
        raise HessdiagError(f"the outputs have standard deviation {found:g} on this batch: no factor makes it {std:g}")
    return insert_scale(model, std / found, after="")


def _scale_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hook before the forward pass: the first argument, or else the first keyword argument."""
    scale = module.get_submodule(INPUT)
    if args:
        return (scale(args[0]), *args[1:]), kwargs
    if (first := next(iter(kwargs), None)) is None:
        raise HessdiagError(f"{type(module).__name__} is called without arguments: there is nothing to multiply")
    return args, kwargs | {first: scale(kwargs[first])}


def _scale_output(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    if not isinstance(output, Tensor):
        raise HessdiagError(f"the module returned a {type(output).__name__}: only a tensor can be multiplied")
    return module.get_submodule(OUTPUT)(output)


def _module_at(model: nn.Module, path: str) -> nn.Module:
    known: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
    if path not in known:
        hint = did_you_mean(path, known, otherwise="model.named_modules() lists them")
        raise HessdiagError(f"the model has no module {path!r}: {hint}")
    if path and isinstance(known[path.rpartition(".")[0]], nn.MultiheadAttention):
        raise HessdiagError(f"{path!r} is never called, the attention around it reads its weights: scale around that")
    return known[path]


def _compensation(model: nn.Module, path: str, attribute: str) -> str:
    """Where a multiplier undoes a factor on a weight, before the layer or after it; refuse where it cannot be."""
    module = _module_at(model, path)
    kind = type(module).__name__
    reads_tokens = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
    linear = is_linear(module) or isinstance(module, (*CONVOLUTIONS, *TRANSPOSED))
    if attribute != "weight" or not (linear or reads_tokens):
        raise HessdiagError(f"no multiplier makes up for a factor on the {attribute} of a {kind}: choose another block")
    if not isinstance(getattr(module, OUTPUT if reads_tokens else INPUT, None), InsertedScale | None):
        raise HessdiagError(f"module {path!r} has a multiplier of its own: scale elsewhere")
    return "after" if reads_tokens else "before"
