"""The curvature matrix of the batch-mean loss as a linear operator: the door to SciPy's eigensolvers.

The mean over the batch is summed up in chunks of examples; where these meet, as in batch normalisation, all are one.
Each chunk is gone through once for all vectors that fit the memory, vmapped over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn
from torch.func import vmap

from hessdiag.curvature.measurement import as_one_example
from hessdiag.data.memory import is_out_of_memory
from hessdiag.derivatives.functional import FunctionalModel, Values
from hessdiag.derivatives.losses import CallableLoss, MeanLoss
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import AD_MODES, PRODUCTS, Matrix, Products
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, block_parameter

CHECKED = 4  # examples on which the ways to a product are compared
MIN_BYTES = 2**16  # of a chunk, which are never too many


@dataclass(frozen=True)
class Part:
    """Entries of a parameter that belong together: all of them, or a range along one dimension."""

    name: str
    block: Block
    dim: int = 0
    start: int = 0
    stop: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the entries."""
        if self.stop is None:
            return self.block.shape
        return (*self.block.shape[: self.dim], self.stop - self.start, *self.block.shape[self.dim + 1 :])

    @property
    def numel(self) -> int:
        """How many they are."""
        return math.prod(self.shape)

    def of(self, values: Tensor) -> Tensor:
        """Its entries (K, *self.shape) of those of several whole parameters (K, *block.shape)."""
        return values if self.stop is None else values.narrow(self.dim + 1, self.start, self.stop - self.start)


def parts_of(model: nn.Module, blocks: Sequence[Block], split: str | None) -> list[Part]:
    """Blocks as parts of their own, and those that pack what `split` names in pieces, where that is certain.

    Raises:
        HessdiagError: no block does, and `split` asks for one kind.
    """
    parts = [part for block in blocks for part in _pieces(model, block, split) or [Part(block.name, block)]]
    if split not in (None, "auto") and len(parts) == len(blocks):
        known = "nn.MultiheadAttention, GPT-2 and experts of transformers, qkv of timm"
        raise HessdiagError(f"split {split!r}: no block is packed in a way that is known ({known}); leave it out")
    return parts


def _pieces(model: nn.Module, block: Block, split: str | None) -> list[Part]:
    (above, _, leaf), module = block.owners[0].rpartition("."), model.get_submodule(block.owners[0])
    parent, dim, letters, heads = model.get_submodule(above), 0, "qkv", 1
    library = type(parent).__module__.partition(".")[0]
    if split is None:
        return []
    if split == "experts":
        known = len(block.shape) == 3 and getattr(module, "num_experts", None) == block.shape[0]
        return [Part(f"{block.name}[{n}]", block, 0, n, n + 1) for n in range(block.shape[0])] if known else []
    if isinstance(module, nn.MultiheadAttention) and block.attribute.startswith("in_proj_"):
        heads = module.num_heads
    elif leaf == "c_attn" and type(parent).__name__ == "GPT2Attention" and not parent.is_cross_attention:
        dim, heads = len(block.shape) - 1, int(parent.num_heads)  # type: ignore[arg-type]
    elif leaf == "qkv" and library == "timm" and block.shape[0] == 3 * block.fan_in:
        heads = int(parent.num_heads)  # type: ignore[arg-type]
    elif leaf in ("q_proj", "k_proj", "v_proj") and library == "transformers" and hasattr(parent, "head_dim"):
        letters, heads = leaf[0], block.shape[0] // int(parent.head_dim)  # type: ignore[arg-type]
    else:
        return []
    names = [f"{x}.{n}" for x in letters for n in range(heads)] if split == "heads" else list(letters)
    size = block.shape[dim] // len(names)
    ranges = [(name, n * size, (n + 1) * size) for n, name in enumerate(names)]
    return [Part(f"{block.name}[{name}]", block, dim, *ends) for name, *ends in ranges] if len(names) > 1 else []


class CurvatureOperator(LinearOperator):  # type: ignore[misc]
    """H of the batch-mean loss over parts of parameters, one after the other, each as `flatten` orders it.

    Products are taken `around` a context, in chunks of `memory` bytes. `names` are those of the parts; `reason` says
    which way to a product is taken, and why not a faster one; where none is right, a `HessdiagError` is raised.
    """

    def __init__(
        self,
        problem: Problem,
        matrix: Matrix,
        *,
        parts: Sequence[Part] = (),
        memory: int,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        seed: int = 0,
    ) -> None:
        self.problem, self.matrix, self.memory, self.around = problem, matrix, memory, around
        self.network = FunctionalModel(problem.model)
        few = problem if problem.batch.as_one else replace(problem, batch=problem.batch.narrow(0, CHECKED))
        products = Products(as_one_example(few), matrix, seed=seed)
        self.mode, self.reason = products.mode, products.reason
        self._restrict(parts or [Part(block.name, block) for block in problem.blocks])

    def _restrict(self, parts: Sequence[Part]) -> None:
        """Take these for rows and columns."""
        self.parts, self.names = tuple(parts), tuple(part.name for part in parts)
        blocks = {part.block.name: part.block for part in parts}
        self.at: Values = {name: block_parameter(self.problem.model, b).detach() for name, b in blocks.items()}
        self.like = next(iter(self.at.values()))
        size = sum(part.numel for part in parts)
        super().__init__(np.dtype(str(self.like.dtype).removeprefix("torch.")), (size, size))

    @property
    def eps(self) -> float:
        """Rounding of one number."""
        return torch.finfo(self.like.dtype).eps

    def only(self, parts: Sequence[Part]) -> CurvatureOperator:
        """The diagonal block of these parts."""
        new = copy(self)
        new._restrict(parts)
        return new

    def torch_matmat(self, V: Tensor) -> Tensor:
        """H V of vectors V (P, K), on the model's device: (P, K)."""
        with self.around():
            try:
                rows = [self._products(some) for some in torch.split(V.detach().to(self.like).T, self._at_once)]
                return torch.cat(rows).T if rows else torch.empty_like(V)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self.memory < MIN_BYTES:
                    raise
            torch.cuda.empty_cache()  # outside the handler, whose traceback holds on to tensors
            self.memory //= 4
            return self.torch_matmat(V)

    def _products(self, rows: Tensor) -> Tensor:
        """Of vectors (K, P), that fit the memory together."""
        tangents = {name: value.new_zeros(len(rows), *value.shape) for name, value in self.at.items()}
        for part, entries in zip(self.parts, torch.split(rows, [p.numel for p in self.parts], dim=1), strict=True):
            part.of(tangents[part.block.name]).copy_(entries.view(-1, *part.shape))
        batch, total = self.problem.batch, torch.zeros_like(rows)
        for chunk in batch.chunks(self._examples_at_once):
            loss, share = self.problem.loss, 1 / batch.size
            if isinstance(loss, CallableLoss):  # which calls its function for each example on its own
                loss, share, chunk = MeanLoss(loss), chunk.size / batch.size, replace(chunk, as_one=True, size=1)

            def one(r: Values, chunk: Any = chunk, loss: Any = loss) -> Tensor:
                found = PRODUCTS[self.matrix][self.mode](self.network, loss, self.at, r, chunk)
                # Detached: a model may read a parameter from elsewhere, which has a gradient still.
                own = [part.of(found[part.block.name].detach().unsqueeze(0)).flatten() for part in self.parts]
                return torch.cat(own)

            if self.mode == AD_MODES[0]:
                total += share * vmap(one, randomness="same")(tangents).detach()
            else:
                each = [one({name: r[k] for name, r in tangents.items()}) for k in range(len(rows))]
                total += share * torch.stack(each)
        return total

    @property
    def _examples_at_once(self) -> int:
        return self.problem.shape.chunk(1, memory=self.memory)

    @property
    def _at_once(self) -> int:
        """Vectors that fit the memory of one chunk, at least 1."""
        numbers = 3 * sum(value.nbytes for value in self.at.values())  # tangent, gradient, product
        examples = min(self.problem.batch.size, self._examples_at_once)
        return max(1, self.memory // (numbers + examples * self.problem.shape.bytes_per_example(1)))

    def _matmat(self, X: Any) -> Any:
        given = torch.from_numpy(np.array(X, dtype=self.dtype))
        return self.torch_matmat(given.to(self.like.device)).cpu().numpy()

    def _matvec(self, x: Any) -> Any:
        return self._matmat(np.reshape(x, (-1, 1)))

    def _adjoint(self) -> CurvatureOperator:
        return self

    _transpose = _adjoint
