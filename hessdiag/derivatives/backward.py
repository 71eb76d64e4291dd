"""Per-example Jacobians of all blocks by passes back through a network, with the layers traced that have a rule.

A layer's input and the gradients in its output make the Jacobian of its weight; what other parameters have is
differentiated as it is, with the model as a pure function of chosen blocks, for torch.func.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, cast

import torch
import torch._decomp.decompositions
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, vjp, vmap
from torch.overrides import TorchFunctionMode

from hessdiag.data.batch import Batch
from hessdiag.derivatives.jacobians import DenseJacobian, Jacobian, LookupJacobian, LowRankJacobian, fitting, merge
from hessdiag.derivatives.losses import Loss
from hessdiag.errors import CoupledError
from hessdiag.network.blocks import CONVOLUTIONS, Block, block_parameter, parameter_slots
from hessdiag.network.preserve import caches_of, emptied
from hessdiag.network.torch_state import jvp
from hessdiag.network.trace import LayerCall, Trace, backpropagate, gradients_of

Values = dict[str, Tensor]

CONVOLVED = 2**20  # elements of an example that convolutions write, from which cotangents are sent back one by one
PIECE = 2**22  # bytes of the factors that are multiplied at once, where J is formed from them


def block_vjps(
    model: nn.Module, part: Batch, blocks: Sequence[Block], traced: Trace, cotangents: Tensor, *,
    at_once: int | None = None,
) -> Iterator[Jacobian | None]:  # fmt: skip
    """For each block, cotangent^T ∂y/∂W of C cotangents (C, B, *out) for B examples; None where y does not depend on W.
    Layers with a structural rule share the backward passes, `at_once` cotangents at a time. So do other blocks of one
    example, whose gradients are Jacobians; those of several examples go through `functional_jacobians`.
    """
    unruled = [block for block in blocks if _has_no_rule(block)] if part.size == 1 else []
    edges = [call.output_edge for call in traced.calls]
    edges += [get_gradient_edge(block_parameter(model, block)) for block in unruled]
    convolved = [call for call in traced.calls if isinstance(model.get_submodule(call.owner), CONVOLUTIONS)]
    if sum(call.output_shape.numel() for call in convolved) >= CONVOLVED * part.size:
        at_once = 1  # several are slower: PyTorch loops over them for a convolution, and copies them
    found = backpropagate(traced.y, edges, cotangents, at_once=at_once)
    count = len(traced.calls)
    pairs = zip(unruled, found[count:], strict=True)
    own = {block.name: None if g is None else g.detach().reshape(1, len(g), -1) for block, g in pairs}
    yield from jacobians_of(model, part, blocks, traced.calls, found[:count], cotangents, own)


def jacobians_of(
    model: nn.Module, part: Batch, blocks: Sequence[Block], calls: Sequence[LayerCall],
    phis: Sequence[Tensor | None], cotangents: Tensor,
    own: Mapping[str, Tensor | None] | None = None,
) -> Iterator[Jacobian | None]:  # fmt: skip
    """As `block_vjps`, with gradients at hand: `phis` in the outputs of the traced `calls`, `own` in parameters."""
    dense = dict(own or {})
    unrolled = dict[str, Jacobian]()
    if others := [block for block in blocks if _has_no_rule(block) and block.name not in dense]:
        unrolled = recurrent_jacobians(model, others, part, cotangents)
        if others := [block for block in others if block.name not in unrolled]:
            dense |= functional_jacobians(model, others, part, cotangents)
    for block in blocks:
        if block.name in unrolled:
            yield unrolled.pop(block.name)
        elif _has_no_rule(block):
            J = dense.pop(block.name)
            yield None if J is None else DenseJacobian.of(J)
        else:
            yield block_jacobian(model, block, calls, phis, examples=part.size)


def _has_no_rule(block: Block) -> bool:
    """Whether a block is measured by gradients in the parameter itself."""
    return not block.structured or block.kind == "scalar"


def block_jacobian(
    model: nn.Module, block: Block, calls: Sequence[LayerCall], phis: Sequence[Tensor | None], *,
    examples: int,
) -> Jacobian | None:  # fmt: skip
    """Jacobian of a weight or bias block from the calls of its layers; None where nothing depends on it. `phis` are for
    each call the (C, *output shape) gradients of C outputs in its output, or None.
    """
    parts: list[Jacobian] = []
    for call, phi in zip(calls, phis, strict=True):
        if phi is None or call.owner not in block.owners:
            continue
        module = model.get_submodule(call.owner)
        if block.kind == "bias":
            parts.append(DenseJacobian.of(by_site(module, phi, examples=examples).sum(dim=3)))
        elif isinstance(module, nn.Embedding):
            parts.append(lookup_jacobian(module, call.x, phi, examples=examples))
        else:
            parts.append(weight_jacobian(module, call.x, phi, examples=examples))
    return merge(parts) if parts else None


def rule_fits(module: nn.Module, block: Block, call: LayerCall) -> bool:
    """Whether a call has the shapes of a layer that does what its class says. A subclass may have a forward pass of its
    own, as one that pads. Elsewhere its gradient must be autograd's.
    """
    x, y = call.x.shape, call.output_shape
    if isinstance(module, nn.Embedding):
        return (*x, block.shape[1]) == y
    if not isinstance(module, CONVOLUTIONS):
        n, d = y[-1], x[-1]
        if block.kind == "bias":
            return n == block.numel
        return x[:-1] == y[:-1] and block.shape == ((n, d) if isinstance(module, nn.Linear) else (d, n))
    dims = 2 + len(module.kernel_size)
    if len(y) != dims or (block.kind == "weight" and len(x) != dims):  # (channels, ...) of a single example
        return False
    if block.kind == "bias":
        return y[1] == block.numel
    return x[0] == y[0] and block.shape[:2] == (y[1], x[1] // module.groups) and y[2:] == _sites(module, x[2:])


def _sites(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, reads: Sequence[int]) -> tuple[int, ...]:
    """Positions at which a convolution writes, for the positions that it reads."""
    pads = module._reversed_padding_repeated_twice[::-1]
    padded = [size + pads[2 * axis] + pads[2 * axis + 1] for axis, size in enumerate(reads)]
    reach = [(k - 1) * d + 1 for k, d in zip(module.kernel_size, module.dilation, strict=True)]
    # A stride of one number for several dimensions, which torch takes too, leaves sites out: no rule fits then.
    return tuple((size - r) // step + 1 for size, r, step in zip(padded, reach, module.stride, strict=False))


def weight_jacobian(module: nn.Module, x: Tensor, phi: Tensor, *, examples: int) -> Jacobian:
    """Jacobian of a linear or convolutional layer's weight, from its input x and gradients phi (C, *output shape). The
    first dimension of x is `examples`, or a multiple of it where each example holds several rows.
    """
    rows = by_site(module, phi, examples=examples)  # (B, C, n, T)
    if not isinstance(module, CONVOLUTIONS):
        u = x.reshape(examples, -1, x.shape[-1]).mT  # (B, d, T)
        return LowRankJacobian.of(u, rows, transposed=not isinstance(module, nn.Linear))
    if module.groups == 1 and module.in_channels * math.prod(module.kernel_size) < rows.shape[3]:
        return _formed_in_pieces(module, x, rows)
    u = _patches(module, x, examples=examples)
    if module.groups == 1:
        return LowRankJacobian.of(u, rows)
    groups = (module.groups, -1)
    J = torch.einsum("bcgnt,bgdt->bcgnd", torch.unflatten(rows, 2, groups), torch.unflatten(u, 1, groups))
    return DenseJacobian.of(J.flatten(2))


def _patches(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, *, examples: int) -> Tensor:
    """What the sites of each example read, (B, d groups, T)."""
    return torch.unflatten(unfold(module, x), 0, (examples, -1)).transpose(1, 2).flatten(2)


def _formed_in_pieces(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, phi: Tensor) -> DenseJacobian:
    """J of a layer with more sites than inputs of each, which is smaller than the factors it is made of. A few examples
    at a time: what is unfolded stays in a processor's inner cache, and is never held for all.
    """
    (x, x_size), (phi, phi_size) = fitting(x), fitting(phi)
    B, C, n, T = phi.shape
    d = module.in_channels * math.prod(module.kernel_size)
    J = phi.new_empty(B, C * n, d)
    piece = max(1, PIECE // (T * (d + C * n) * phi.element_size()))
    pieces = (torch.split(x, piece * (len(x) // B)), torch.split(phi, piece), torch.split(J, piece))
    for some, back, formed in zip(*pieces, strict=True):
        torch.bmm(back.reshape(-1, C * n, T), _patches(module, some, examples=len(back)).mT, out=formed)
    return DenseJacobian(J.view(B, C, n * d), size=x_size * phi_size)


def lookup_jacobian(module: nn.Embedding, x: Tensor, phi: Tensor, *, examples: int) -> LookupJacobian:
    """Jacobian of an embedding's weight, from the rows x that it looked up and gradients phi (C, *x.shape, n)."""
    rows = phi.reshape(len(phi), examples, -1, phi.shape[-1]).transpose(0, 1)  # (B, C, T, n)
    height = len(module.weight)
    padding = None if module.padding_idx is None else module.padding_idx % height
    return LookupJacobian.of(x.reshape(examples, -1), rows, height, padding=padding)


def by_site(module: nn.Module, phi: Tensor, *, examples: int) -> Tensor:
    """Gradients (C, *output shape) in a layer's outputs as (B, C, channels, sites)."""
    if not isinstance(module, CONVOLUTIONS):
        return phi.reshape(len(phi), examples, -1, phi.shape[-1]).permute(1, 0, 3, 2)
    rows = torch.unflatten(phi.flatten(3), 1, (examples, -1))  # (C, B, R / B, n, S)
    return rows.permute(1, 0, 3, 2, 4).flatten(3)


def unfold(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """The inputs that each output site of a convolution reads, (N, in_channels * prod(kernel), sites).

    >>> unfold(nn.Conv1d(1, 1, 2), torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[1., 2.],
             [2., 3.]]])
    """
    # Strided views and one copy: three times faster than F.unfold, and right for 1-d and 3-d and every padding mode.
    if any(module._reversed_padding_repeated_twice):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = F.pad(x, list(module._reversed_padding_repeated_twice), mode=mode)
    spatial = x.dim() - 2
    for axis in range(spatial):
        reach = (module.kernel_size[axis] - 1) * module.dilation[axis] + 1
        x = x.unfold(2 + axis, reach, module.stride[axis])[..., :: module.dilation[axis]]
    sites, kernel = tuple(range(2, 2 + spatial)), tuple(range(2 + spatial, 2 + 2 * spatial))
    return x.permute(0, 1, *kernel, *sites).flatten(2 + spatial).flatten(1, 1 + spatial)  # (N, in k, T)


APART: Any = torch._decomp.decompositions  # recurrent layers and cells as torch computes them without a kernel
UNROLLED = {
    torch.lstm: APART.lstm_impl, torch.gru: APART.gru_impl,
    torch.rnn_tanh: APART.rnn_tanh_input, torch.rnn_relu: APART.rnn_relu_input,
    torch.lstm_cell: lambda x, h, w, v, b, c: APART.lstm_cell(F.linear(x, w, b), *h, v, c, None, 1),
    torch.gru_cell: lambda x, h, w, v, b, c: APART.gru_cell(F.linear(x, w, b), h[None], w, b, v, c)[0],
}  # fmt: skip


class _Unrolled(TorchFunctionMode):
    """Take recurrent layers apart into linear maps; of those with one of the parameters what each reads, what it holds,
    and where it writes."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.wanted = {*map(id, parameters)}
        self.maps: list[tuple[Tensor, tuple[Tensor | None, ...], GradientEdge]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in UNROLLED and not isinstance(args[3], list):  # else its sequences are packed
            with self:  # of inputs that need no gradient PyTorch would call a kernel
                return UNROLLED[func](args[0] if args[0].requires_grad else args[0].clone().requires_grad_(), *args[1:])
        written = func(*args, **(kwargs or {}))
        if func is F.linear and written.requires_grad and self.wanted & {*map(id, args[1:])}:
            self.maps.append((args[0].detach(), args[1:], get_gradient_edge(written)))
        return written


def recurrent_jacobians(
    model: nn.Module, blocks: Sequence[Block], part: Batch, cotangents: Tensor
) -> dict[str, Jacobian]:
    """As `block_vjps`, of blocks that recurrent layers alone hold, where these read (steps, examples, features)."""
    recurrent = (nn.RNNBase, nn.RNNCellBase)
    own = [b for b in blocks if all(isinstance(model.get_submodule(owner), recurrent) for owner in b.owners)]
    if not own or part.size == 1:
        return {}
    parameters = [block_parameter(model, block) for block in own]
    with _Unrolled(parameters) as unrolled:
        y = part.call(model)
    phis = backpropagate(y, [edge for *_, edge in unrolled.maps], cotangents)
    maps = [(x, held, phi) for (x, held, _), phi in zip(unrolled.maps, phis, strict=True) if phi is not None]
    found = dict[str, Jacobian]()
    for block, parameter in zip(own, parameters, strict=True):
        sent = [(x, phi) for x, held, phi in maps if any(each is parameter for each in held)]
        if sent and all(x.shape[-2] == part.size for x, _ in sent):
            u = torch.cat([x.reshape(-1, *x.shape[-2:]) for x, _ in sent]).permute(1, 2, 0)
            rows = torch.cat([phi.reshape(len(phi), -1, *phi.shape[-2:]) for _, phi in sent], dim=1).permute(2, 0, 3, 1)
            J: Any = LowRankJacobian.of(u, rows) if block.kind == "weight" else DenseJacobian.of(rows.sum(dim=3))
            found[block.name] = J
    return found


# --- The model as a pure function of chosen blocks; every other parameter is a constant ------------------------------


class FunctionalModel:
    """Call a model with some parameters replaced. Each distinct place that holds a parameter is replaced exactly once
    (`tie_weights=False`): torch's own handling of shared modules writes into the user's weights (pytorch#164759).
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._caches = caches_of(model)
        self._slots = {name: [f"{p}.{a}" if p else a for p, a in s] for name, s in parameter_slots(model).items()}
        held = dict(model.named_parameters(remove_duplicate=False))
        self._constants = {slot: held[slot].detach() for slots in self._slots.values() for slot in slots}
        self._counters: Values = {}  # a transform refuses to count in what was made outside of it
        # Buffers too: a forward pass that binds a new tensor to one would leave a dead functorch wrapper behind.
        for path, module in model.named_modules():
            for name, buffer in module.named_buffers(path, recurse=False, remove_duplicate=False):
                (self._counters if buffer.dim() == 0 else self._constants)[name] = buffer.detach().clone()

    def differentiable(self) -> None:
        """Let the model differentiate in its forward pass, by weights that are constants too."""
        for slot in chain.from_iterable(self._slots.values()):
            self._constants[slot].requires_grad_(self._constants[slot].is_floating_point())

    def __call__(self, values: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Outputs (B, *out) with the named parameters set to `values`."""
        held = self._constants | {slot: value for name, value in values.items() for slot in self._slots[name]}
        held |= {name: counter.clone() for name, counter in self._counters.items()}
        with emptied(self._caches):
            return batch.call(lambda *args, **how: functional_call(self.model, held, args, how, tie_weights=False))

    def leaves_and_outputs(self, at: Mapping[str, Tensor], batch: Batch) -> tuple[Values, Tensor]:
        """Copies of values that gradients are taken in, and the outputs there."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in at.items()}
        return leaves, self(leaves, batch)


def functional_jacobians(model: nn.Module, blocks: Sequence[Block], part: Batch, cotangents: Tensor) -> Values:
    """cotangent^T ∂y/∂W for blocks of any kind, (B, C, P) each, by reverse mode, of cotangents (C, B, *out). Vmapped
    over examples and cotangents where every operation of the model allows it, else one by one.
    """
    network = FunctionalModel(model)
    at = {block.name: block_parameter(model, block).detach() for block in blocks}

    def one(leaves: list[Tensor], v: Tensor) -> Values:
        _, pull, *_ = vjp(lambda values: network(values, part.single(leaves)), at)
        return cast(Values, vmap(lambda w: pull(w.unsqueeze(0))[0], randomness="same")(v))

    if part.apart:
        with suppress(RuntimeError, TypeError, ValueError, AttributeError):  # something that cannot be vmapped
            rows = vmap(one, in_dims=(0, 1), randomness="same")(part.leaves, cotangents)
            # Detached: a parameter that the model reads from elsewhere has a gradient still.
            return {name: rows[name].detach().unsqueeze(-1).flatten(2) for name in at}
    found = []
    network.differentiable()
    for b in range(part.size):
        leaves, y = network.leaves_and_outputs(at, part.narrow(b, b + 1))
        if y.shape[1:] != cotangents.shape[2:]:  # as long as the longest of them
            raise CoupledError("outputs are of another shape for one example: pad them to the same (`total_length`)")
        each = [reverse_gradient(y, leaves, v) for v in cotangents[:, b : b + 1]]
        found.append({name: torch.stack([row[name].to_dense().flatten() for row in each]) for name in at})
    return {name: torch.stack([rows[name] for rows in found]) for name in at}


def outputs_and_tangent(
    network: FunctionalModel, at: Mapping[str, Tensor], r: Mapping[str, Tensor], batch: Batch, *, forward_mode: bool
) -> tuple[Tensor, Tensor]:
    """Outputs y and J r, (B, *out), detached, for a tangent r of the parameters named in `at`. Reverse mode twice, the
    gradient of ⟨Jᵀv, r⟩ in v, is for operations without a forward-mode rule, and models that differentiate inside.
    """
    if forward_mode:
        with suppress(RuntimeError, NotImplementedError), torch.no_grad():  # only the tangent is wanted, no graph
            y, moved, *_ = jvp(lambda values: network(values, batch), (dict(at),), (dict(r),))
            return y.detach(), moved.to(y).detach()  # torch's tangent of a scaled mean squared error is in float64
    network.differentiable()
    leaves, y = network.leaves_and_outputs(at, batch)
    v = torch.zeros_like(y, requires_grad=True)
    back = reverse_gradient(y, leaves, v, create_graph=True)
    return y.detach(), reverse_gradient(inner_product(back, r), {"v": v})["v"].detach()


def inner_product(u: Mapping[str, Tensor], v: Mapping[str, Tensor]) -> Tensor:
    """⟨u, v⟩ over the parameters of v."""
    return torch.stack([(u[name] * v[name]).sum() for name in v]).sum()


def reverse_gradient(y: Tensor, at: Values, v: Tensor | None = None, *, create_graph: bool = False) -> Values:
    """vᵀ ∂y/∂W for each W by plain reverse mode; 0 where y does not depend on it."""
    if not y.requires_grad:
        return {name: torch.zeros_like(value) for name, value in at.items()}
    found = gradients_of(y, [*at.values()], v, create_graph=create_graph, materialize_grads=True)
    return dict(zip(at, found, strict=True))


def mean_gradient(network: FunctionalModel, loss: Loss, leaves: Values, batch: Batch) -> tuple[Tensor, Values]:
    """Outputs y, detached, and the gradient of the batch's mean loss in each leaf; 0 where y does not depend on it."""
    y = network(leaves, batch)
    own = loss.of_batch(batch.targets, y).gradient(y.detach(), batch.targets).detach() / batch.size
    return y.detach(), {name: g.to_dense() for name, g in reverse_gradient(y, leaves, own.to(y)).items()}
