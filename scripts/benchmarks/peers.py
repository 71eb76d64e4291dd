"""The same norms of blocks by other libraries, each as its users would have them; imported only when they are there.

Per example, BackPACK's square roots. Per batch, Hutchinson's estimator ‖G_ij‖² = E‖G_ij r‖² with random signs r, which
is what curvlinops offers, with products by each library's own way. Products are taken some at a time where a library
can, as many as were fastest here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp, vmap

INSTALL = (
    "pip install --no-deps backpack-for-pytorch curvlinops-for-pytorch pyhessian"
    " einops einconv unfoldNd linear_operator jaxtyping wadler-lindig opt-einsum"
)
AT_ONCE = (1, 8)  # products of one vmapped call that are tried; the faster number is taken


def skipped(package: str | None) -> str:
    """Why a peer cannot take part, in a word; empty where it can."""
    if package is None or find_spec(package) is not None:
        return ""
    return f"skipped: {package} is not installed ({INSTALL})"


@dataclass(frozen=True)
class Task:
    """A chain of modules on a batch, under the mean cross-entropy; its weights are the blocks."""

    model: nn.Module
    x: Tensor
    targets: Tensor

    @property
    def weights(self) -> list[nn.Parameter]:
        """In the order of the layers."""
        return list(self.model.parameters())

    def loss(self) -> Tensor:
        """Of the whole batch."""
        return F.cross_entropy(self.model(self.x), self.targets)

    def gradient(self) -> object:
        """The unit of time."""
        return torch.autograd.grad(self.loss(), self.weights)


Estimate = Callable[[Task, Sequence[int], int, int], Tensor]


@dataclass(frozen=True)
class Peer:
    """One way to the blocks of a batch.

    Attributes:
        name: as printed.
        package: that it needs, beside torch.
        estimate: (task, products of each block, seed, products at once) to (L,) or (L, L) squared norms.
    """

    name: str
    package: str | None
    estimate: Estimate


def backpack_map(extended: nn.Module, loss: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """(L, L) mean over examples of ‖G_ij‖², from BackPACK's square roots V (C, B, *weight).

    tr(V_iᵀ V_i V_jᵀ V_j) is an inner product of two (C, C) Gram matrices of each example.

    Args:
        extended, loss: the model and a summed loss, both through `backpack.extend`.
        x, targets: the batch.
    """
    from backpack import backpack, extensions

    with backpack(extensions.SqrtGGNExact()):
        loss(extended(x), targets).backward()
    grams = []
    for parameter in extended.parameters():
        V = parameter.sqrt_ggn_exact.flatten(2).transpose(0, 1)  # (B, C, P)
        grams.append(torch.bmm(V, V.transpose(1, 2)).flatten(1))  # (B, C C)
        del parameter.sqrt_ggn_exact, V
    stacked = torch.stack(grams, dim=1)  # (B, L, C C)
    extended.zero_grad(set_to_none=True)
    return torch.bmm(stacked, stacked.transpose(1, 2)).double().mean(dim=0)


def curvlinops_diagonal(operator: str) -> Estimate:
    """`hutchinson_squared_fro` of the operator of that name on one weight after the other."""

    def estimate(task: Task, products: Sequence[int], seed: int, at_once: int) -> Tensor:
        import curvlinops

        torch.manual_seed(seed)
        make = getattr(curvlinops, operator)
        values = []
        for weight, count in zip(task.weights, products, strict=True):
            data = [(task.x, task.targets)]
            block = make(task.model, nn.CrossEntropyLoss(), [weight], data, check_deterministic=False)
            parts = _parts(count, at_once)
            values.append(sum(curvlinops.hutchinson_squared_fro(block, part) * part for part in parts) / count)
        return torch.stack(values).double().detach()

    return estimate


def curvlinops_map(task: Task, products: Sequence[int], seed: int, at_once: int) -> Tensor:
    """(L, L): one operator on all weights, times vectors that are zero but for one block."""
    import curvlinops

    weights, data = task.weights, [(task.x, task.targets)]
    whole = curvlinops.GGNLinearOperator(task.model, nn.CrossEntropyLoss(), weights, data, check_deterministic=False)

    def column(number: int, r: Tensor) -> list[Tensor]:
        zeros = [torch.zeros(*w.shape, len(r), dtype=w.dtype, device=w.device) for w in weights]
        zeros[number] = r.movedim(0, -1)
        return [part.movedim(-1, 0) for part in whole @ zeros]

    return _columns(task, products, (seed, at_once), column)


def pyhessian_diagonal(task: Task, products: Sequence[int], seed: int, at_once: int) -> Tensor:
    """A gradient with its graph, differentiated again along r; block by block.

    A block of the Hessian is that of the Gauss-Newton matrix where the network is linear in its weight, piece by piece,
    as all networks of ReLUs are.
    """
    from pyhessian.utils import hessian_vector_product

    generator, values = _generator(task, seed), []
    for weight, count in zip(task.weights, products, strict=True):
        gradient = torch.autograd.grad(task.loss(), [weight], create_graph=True)
        total = torch.zeros((), dtype=torch.float64, device=weight.device)
        for _ in range(count):
            (product,) = hessian_vector_product(gradient, [weight], [_signs((), weight, generator)])
            total += product.double().square().sum()
        values.append(total / count)
    return torch.stack(values)


def double_backward_map(task: Task, products: Sequence[int], seed: int, at_once: int) -> Tensor:
    """J r as the derivative of Jᵀ u in u, then S, then Jᵀ; no forward mode, one product at a time."""
    weights = task.weights
    y = task.model(task.x)
    u = torch.zeros_like(y, requires_grad=True)
    back = torch.autograd.grad(y, weights, u, create_graph=True)
    S = _softmax_hessian(y.detach())

    def column(number: int, r: Tensor) -> list[Tensor]:
        rows = []
        for each in r:
            (moved,) = torch.autograd.grad(back[number], u, each, retain_graph=True)
            rows.append(torch.autograd.grad(y, weights, S(moved), retain_graph=True))
        return [torch.stack(part) for part in zip(*rows, strict=True)]

    return _columns(task, products, (seed, at_once), column)


def torch_func_map(task: Task, products: Sequence[int], seed: int, at_once: int) -> Tensor:
    """Forward mode, S, reverse mode, by torch.func; vmapped over some products."""
    weights, outputs = _functional(task)
    y, back = vjp(lambda *now: outputs(now), *weights)
    S = _softmax_hessian(y)

    def column(number: int, r: Tensor) -> list[Tensor]:
        def product(v: Tensor) -> Any:
            def moving(w: Tensor) -> Tensor:
                return outputs((*weights[:number], w, *weights[number + 1 :]))

            return back(S(jvp(moving, (weights[number],), (v,))[1]))

        return list(vmap(product)(r))

    return _columns(task, products, (seed, at_once), column)


def torch_func_diagonal(task: Task, products: Sequence[int], seed: int, at_once: int) -> Tensor:
    """As `torch_func_map`, with one weight alone."""
    weights, outputs = _functional(task)
    generator, values = _generator(task, seed), []
    for number, weight in enumerate(weights):

        def moving(w: Tensor, number: int = number) -> Tensor:
            return outputs((*weights[:number], w, *weights[number + 1 :]))

        y, back = vjp(moving, weight)
        S = _softmax_hessian(y)

        def product(v: Tensor, w: Tensor = weight, f: Any = moving, back: Any = back, S: Any = S) -> Tensor:
            (found,) = back(S(jvp(f, (w,), (v,))[1]))
            return found.double().square().sum()

        total = torch.zeros((), dtype=torch.float64, device=weight.device)
        for part in _parts(products[number], at_once):
            total += vmap(product)(_signs((part,), weight, generator)).sum()
        values.append(total / products[number])
    return torch.stack(values)


def _columns(
    task: Task, products: Sequence[int], drawn: tuple[int, int], column: Callable[[int, Tensor], Sequence[Tensor]]
) -> Tensor:
    """(L, L) from `column(j, r)`, the products G_ij r of every block i with some r of block j; both of a pair count.

    Args:
        task: has the blocks.
        products: of each block; the mean over a pair weighs them alike.
        drawn: the seed, and how many products are taken at once.
        column: as above.
    """
    seed, at_once = drawn
    generator = _generator(task, seed)
    values = torch.zeros(len(task.weights), len(task.weights), dtype=torch.float64)
    for number, weight in enumerate(task.weights):
        for part in _parts(products[number], at_once):
            found = column(number, _signs((part,), weight, generator))
            values[:, number] += torch.stack([each.double().square().sum() for each in found]).detach().cpu()
    counts = torch.tensor(products, dtype=torch.float64)
    return (values + values.T) / (counts + counts.unsqueeze(1))


def _parts(products: int, at_once: int) -> list[int]:
    return [min(at_once, products - start) for start in range(0, products, at_once)]


def _functional(task: Task) -> tuple[tuple[Tensor, ...], Callable[[Sequence[Tensor]], Tensor]]:
    names = [name for name, _ in task.model.named_parameters()]

    def outputs(weights: Sequence[Tensor]) -> Tensor:
        return functional_call(task.model, dict(zip(names, weights, strict=True)), (task.x,))

    return tuple(weight.detach() for weight in task.weights), outputs


def _softmax_hessian(y: Tensor) -> Callable[[Tensor], Tensor]:
    """V to S V with S = (diag(p) − p pᵀ) / B, that of the mean cross-entropy in outputs (B, C)."""
    p = torch.softmax(y, dim=-1)
    return lambda v: (p * v - p * (p * v).sum(dim=-1, keepdim=True)) / len(y)


def _generator(task: Task, seed: int) -> torch.Generator:
    return torch.Generator(task.x.device).manual_seed(seed)


def _signs(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(0, 2, (*shape, *like.shape), generator=generator, device=like.device, dtype=torch.int8)
    return drawn.to(like.dtype).mul_(2).sub_(1)


DIAGONALS = (
    Peer("curvlinops GGN", "curvlinops", curvlinops_diagonal("GGNLinearOperator")),
    Peer("curvlinops Hessian", "curvlinops", curvlinops_diagonal("HessianLinearOperator")),
    Peer("PyHessian, block by block", "pyhessian", pyhessian_diagonal),
    Peer("torch.func", None, torch_func_diagonal),
)
MAPS = (
    Peer("curvlinops GGN", "curvlinops", curvlinops_map),
    Peer("double backward", None, double_backward_map),
    Peer("torch.func", None, torch_func_map),
)
