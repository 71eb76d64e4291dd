"""The curvature matrix of the batch-mean loss as a linear operator: the door to SciPy's eigensolvers.

The mean over the batch is summed up in chunks of examples; where these meet, as in batch normalisation, all are one.
Each chunk is gone through once for all vectors that fit the memory, vmapped over them: a product alone is mostly
overhead, and twenty together cost about two. They may be of different blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn
from torch.func import vmap

from hessdiag.curvature.measurement import as_one_example
from hessdiag.data.batch import Batch
from hessdiag.data.memory import is_out_of_memory
from hessdiag.derivatives.functional import FunctionalModel, Values
from hessdiag.derivatives.losses import CallableLoss, Loss, MeanLoss
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import AD_MODES, PRODUCTS, Matrix, Products
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, block_parameter

CHECKED = 4  # examples on which the ways to a product are compared
MIN_BYTES = 2**16  # of a chunk, which are never too many


@dataclass(frozen=True)
class Part:
    """Entries of a parameter that belong together: all of them, or those of an index."""

    name: str
    block: Block
    index: tuple[slice, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the entries."""
        return tuple(torch.empty(self.block.shape, device="meta")[self.index].shape)

    @property
    def numel(self) -> int:
        """How many they are."""
        return math.prod(self.shape)

    def of(self, values: Tensor) -> Tensor:
        """Its entries (K, *self.shape) of those of several whole parameters (K, *block.shape)."""
        return values[(slice(None), *self.index)]


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
    parent: Any = model.get_submodule(above)
    dim, letters, library = 0, "qkv", type(parent).__module__.partition(".")[0]
    if split == "experts" and len(block.shape) == 3 and getattr(module, "num_experts", None) == block.shape[0]:
        heads = block.shape[0]
    elif split in (None, "experts"):
        return []
    elif isinstance(module, nn.MultiheadAttention) and block.attribute.startswith("in_proj_"):
        heads = module.num_heads
    elif leaf == "c_attn" and type(parent).__name__ == "GPT2Attention" and not parent.is_cross_attention:
        dim, heads = len(block.shape) - 1, int(parent.num_heads)
    elif leaf == "qkv" and library == "timm" and block.shape[0] == 3 * block.fan_in:
        heads = int(parent.num_heads)
    elif leaf in ("q_proj", "k_proj", "v_proj") and library == "transformers" and hasattr(parent, "head_dim"):
        letters, heads = leaf[0], block.shape[0] // int(parent.head_dim)
    else:
        return []
    names = {"experts": [str(n) for n in range(heads)], "heads": [f"{x}.{n}" for x in letters for n in range(heads)]}
    kinds = names.get(str(split), list(letters))
    size = block.shape[dim] // len(kinds)
    places = [(slice(None),) * dim + (slice(n * size, (n + 1) * size),) for n in range(len(kinds))]
    pieces = [Part(f"{block.name}[{kind}]", block, place) for kind, place in zip(kinds, places, strict=True)]
    return pieces if len(pieces) > 1 else []


Column = tuple[int, Tensor]  # a vector of consecutive entries, and the number of the first


class CurvatureOperator(LinearOperator):  # type: ignore[misc]
    """H of the batch-mean loss over parts of parameters, one after the other, each as `flatten` orders it.

    Products are taken `around` a context, in chunks of `memory` bytes. `names` are those of the parts; `reason` says
    which way to a product is taken, and why not a faster one; where none is right, a `HessdiagError` is raised.
    """

    def __init__(
        self, problem: Problem, matrix: Matrix, *, memory: int, parts: Sequence[Part] = (), seed: int = 0,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:  # fmt: skip
        self.problem, self.matrix, self.memory, self.around = problem, matrix, memory, around
        self.network = FunctionalModel(problem.model)
        few = problem if problem.batch.as_one else replace(problem, batch=problem.batch.narrow(0, CHECKED))
        products = Products(as_one_example(few), matrix, seed=seed)
        self.mode, self.reason = products.mode, products.reason
        self.parts = tuple(parts) or tuple(Part(block.name, block) for block in problem.blocks)
        self.names = tuple(part.name for part in self.parts)
        self.at: Values = {b.name: block_parameter(problem.model, b).detach() for b in problem.blocks}
        self.like = next(iter(self.at.values()))
        *self.starts, size = accumulate((part.numel for part in self.parts), initial=0)
        super().__init__(np.dtype(str(self.like.dtype).removeprefix("torch.")), (size, size))

    def torch_matmat(self, V: Tensor) -> Tensor:
        """H V of vectors V (P, K), on the model's device: (P, K)."""
        rows = self.products([(0, v) for v in V.detach().to(self.like).T])
        return torch.stack(rows, dim=1) if rows else torch.empty_like(V)

    def products(self, columns: Sequence[Column]) -> list[Tensor]:
        """Diagonal blocks of H times vectors: of each the same entries, at the cost of these."""
        with self.around():
            try:
                return [w for some in self._fitting(columns) for w in self._products(some)]
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self.memory < MIN_BYTES:
                    raise
            torch.cuda.empty_cache()  # outside the handler, whose traceback holds on to tensors
            self.memory //= 4
            return self.products(columns)

    def _fitting(self, columns: Sequence[Column]) -> Iterator[list[Column]]:
        """As many together as fit the memory of one chunk, at least 1."""
        some: list[Column] = []
        examples = min(self.problem.batch.size, self._examples_at_once) * self.problem.shape.bytes_per_example(1)
        low, high = self.shape[0], 0
        for start, v in columns:
            low, high = min(low, start), max(high, start + len(v))
            numbers = 3 * (high - low) * v.element_size()  # tangent, gradient, product
            if some and (len(some) + 1) * (examples + numbers) > self.memory:
                yield some
                some, low, high = [], start, start + len(v)
            some.append((start, v))
        if some:
            yield some

    def _products(self, columns: Sequence[Column]) -> list[Tensor]:
        low, high = min(start for start, _ in columns), max(start + len(v) for start, v in columns)
        places = [slice(start - low, start - low + len(v)) for start, v in columns]
        rows = self.like.new_zeros(len(columns), high - low)
        for row, place, (_, v) in zip(rows, places, columns, strict=True):
            row[place] = v
        parts = [part for part, start in zip(self.parts, self.starts, strict=True) if low <= start < high]
        at = {part.block.name: self.at[part.block.name] for part in parts}
        tangents = {name: value.new_zeros(len(rows), *value.shape) for name, value in at.items()}
        for part, entries in zip(parts, torch.split(rows, [p.numel for p in parts], dim=1), strict=True):
            part.of(tangents[part.block.name]).copy_(entries.view(-1, *part.shape))
        total = torch.zeros_like(rows)
        for piece, loss, share in self.pieces():

            def one(r: Values, piece: Batch = piece, loss: Loss = loss) -> Tensor:
                found = PRODUCTS[self.matrix][self.mode](self.network, loss, at, r, piece)
                # Detached: a model may read a parameter from elsewhere, which has a gradient still.
                return torch.cat([part.of(found[part.block.name].detach().unsqueeze(0)).flatten() for part in parts])

            if self.mode == AD_MODES[0]:
                total += share * vmap(one, randomness="same")(tangents).detach()
            else:
                each = [one({name: r[k] for name, r in tangents.items()}) for k in range(len(rows))]
                total += share * torch.stack(each)
        return [row[place] for row, place in zip(total, places, strict=True)]

    def pieces(self) -> Iterator[tuple[Batch, Loss, float]]:
        """Examples that fit the memory, and their loss, which counts so much in the batch's mean."""
        batch, loss = self.problem.batch, self.problem.loss
        for chunk in batch.chunks(self._examples_at_once):
            if isinstance(loss, CallableLoss):  # which calls its function for each example on its own
                yield replace(chunk, as_one=True, size=1), MeanLoss(loss), chunk.size / batch.size
            else:
                yield chunk, loss, 1 / batch.size

    @property
    def _examples_at_once(self) -> int:
        return self.problem.shape.chunk(1, memory=self.memory)

    def _matmat(self, X: Any) -> Any:
        given = torch.from_numpy(np.array(X, dtype=self.dtype))
        return self.torch_matmat(given.to(self.like.device)).cpu().numpy()

    def _matvec(self, x: Any) -> Any:
        return self._matmat(np.reshape(x, (-1, 1)))

    def _adjoint(self) -> CurvatureOperator:
        return self

    _transpose = _adjoint
