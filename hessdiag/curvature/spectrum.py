"""Eigenvalues, traces and norms of the curvature matrix of the batch-mean loss, and of its diagonal blocks.

* All eigenvalues, exactly: of a Gauss-Newton matrix with few outputs by Gram matrices in output space, where
  A^T J_l J_l^T A, with S = A σ A^T the loss's Hessian, has the non-zero eigenvalues of block l; or by the dense matrix.
* Of others extreme eigenvalues by Lanczos' algorithm, of all blocks in lockstep: a step of all is one batch of
  products. An eigenvalue lies within the residual of a Ritz vector, and a block with a small one takes no more of them.
* Traces and norms come from the same vectors V and, of P = I − VVᵀ, from random signs (Chen and Hallman, arXiv
  2205.01736): what V has caught adds no noise. For a Hessian these are weights g, tr(PHP) = E gᵀPHPg and
  ‖PHP‖² = E‖PHPg‖². For a Gauss-Newton matrix they are outputs z, whose gradients c = PJᵀz and d = PJᵀSz are those of
  all blocks at once: tr(PGP) = E cᵀd and ‖PGP‖² = E (c_iᵀd_j)(c_jᵀd_i) of pairs; where S = AAᵀ, c = d = PJᵀAz.
* Densities of others by stochastic Lanczos quadrature (Golub and Meurant 1994): eigenvalues and squared first entries
  of eigenvectors of the tridiagonal matrix are nodes and weights, of a few random starts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, zip_longest
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor, nn

from hessdiag.curvature.measurement import EXACT_BATCH_OUTPUTS
from hessdiag.curvature.norms import degrees_of_freedom, pair_statistics, widening
from hessdiag.data.memory import MemoryBudget
from hessdiag.data.seeds import stream
from hessdiag.derivatives.backward import functional_jacobians
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import CurvatureOperator, Matrix, Part
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.parallel.progress import advance, announce
from hessdiag.results.numbers import Array
from hessdiag.results.sharpness import BlockSharpness

DENSE = 1024  # entries in all of which the matrix is formed
PROBES, GRADIENTS = 32, 64  # random signs of a trace: weights of a block, or outputs, whose gradients are all blocks'
STEPS, DENSITY_STEPS, STARTS = 60, 40, 8  # of Lanczos' algorithm, and random starts of a density
FEW_STEPS, PRODUCT = 12, 2.0  # after which it mostly ends; gradients that a product of many at once costs
TAILS = 2.0  # how many times fewer degrees of freedom than of Gaussians
ROUNDING = 64  # of one number, that eigenvalues are off by at most, relative to the largest
ZERO = 1e4  # squared roundings, relative to the whole, that a block is at least
Estimates = tuple[tuple[float, float], tuple[float, float]]  # trace and norm, each with its standard error
Group = tuple[slice, dict[str, Any]]  # rows of a block, and its name, shape and numel


def parts_of(model: nn.Module, blocks: Sequence[Block], split: str | None) -> list[Part]:
    """Blocks as parts of their own, or, where certain, the pieces that `split` names; refused where no block has it."""
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


def spectra(
    problem: Problem, matrix: Matrix, parts: list[Part], memory: MemoryBudget, *, density: bool, rtol: float, seed: int
) -> tuple[list[BlockSharpness], str]:
    """Spectra of parts, and of all together as the last, and which way was taken to them.

    Blocks that are nothing beside the whole, factors of the size of rounding, are marked: that of a bias before batch
    normalisation is, which is zero by symmetry. `rtol` is the residual of an extreme eigenvalue over the largest.
    """
    *starts, P = accumulate((part.numel for part in parts), initial=0)
    named: list[dict[str, Any]] = [{"name": each.name, "shape": each.shape, "numel": each.numel} for each in parts]
    groups: list[Group] = [(slice(at, at + of["numel"]), of) for at, of in zip(starts, named, strict=True)]
    groups.append((slice(0, P), {"name": "", "shape": (P,), "numel": P}))
    eps = torch.finfo(block_parameter(problem.model, parts[0].block).dtype).eps
    outputs, values = problem.batch.size * problem.shape.outputs, list[Tensor]()
    if matrix == "ggn" and outputs <= EXACT_BATCH_OUTPUTS:
        values = gram_eigenvalues(problem, parts, starts, memory)
        how = f"{outputs} outputs of all examples: all eigenvalues, by Gram matrices in output space"
    else:
        operator = CurvatureOperator(problem, matrix, parts=parts, memory=memory.chunk, seed=seed)
        how = f"{f'all {P} rows' if P <= DENSE else 'sampled'} by products, {operator.ways.reason}"
        if P <= DENSE:
            dense = operator.torch_matmat(torch.eye(P)).double()
            values = [torch.linalg.eigvalsh((dense[rows, rows] + dense[rows, rows].T) / 2) for rows, _ in groups]
    found = [exact_spectrum(v.cpu().numpy(), eps=eps, **of) for v, (_, of) in zip(values, groups, strict=bool(values))]
    if not found:
        found += sampled_spectra(operator, groups, density=density, rtol=rtol, memory=memory.total // 2, seed=seed)
    least = ZERO * eps**2 * abs(found[-1].nodes).max()
    shown: dict[str, Any] = {} if density else {"nodes": np.zeros((0, 0)), "weights": np.zeros((0, 0))}
    return [replace(each, informative=bool(abs(each.nodes).max() > least), **shown) for each in found], how


def exact_spectrum(eigenvalues: Array, *, eps: float = 0.0, **of: Any) -> BlockSharpness:
    """Of all eigenvalues but for zeros; what may be rounding, in numbers of `eps`, is zero.

    >>> found = exact_spectrum(np.array([3.0, 1.0]), name="w", shape=(2, 2), numel=4)
    >>> found.trace, found.frobenius_sq, found.largest, found.smallest
    (4.0, 10.0, 3.0, 0.0)
    """
    kept = np.sort(eigenvalues[np.argsort(-np.abs(eigenvalues))[: of["numel"]]])
    kept[np.abs(kept) <= ROUNDING * eps * np.abs(kept).max(initial=0.0)] = 0.0
    zeros = of["numel"] - len(kept)
    nodes, counts = np.append(kept, [0.0] * (zeros > 0)), np.append(np.ones(len(kept)), [zeros] * (zeros > 0))
    return BlockSharpness(
        trace=float(kept.sum()), frobenius_sq=float((kept**2).sum()), largest=float(nodes.max()),
        smallest=float(nodes.min()), nodes=nodes[None], weights=counts[None] / of["numel"], exact=True, **of,
    )  # fmt: skip


def gram_eigenvalues(problem: Problem, parts: Sequence[Part], starts: list[int], memory: MemoryBudget) -> list[Tensor]:
    """Non-zero eigenvalues of the Gauss-Newton blocks of parts, and of all together."""
    examples, outputs = problem.batch.size, problem.shape.outputs
    row = outputs * problem.shape.element_size  # bytes of an entry's derivatives, of one example
    most = max(1, memory.total // (4 * row * examples))  # entries whose Jacobians are held
    total, found, sign = torch.zeros(()), [], torch.zeros(())
    for _, some in groupby(zip(starts, parts, strict=True), key=lambda each: each[0] // most):
        here = [part for _, part in some]
        blocks, signs, rows = list({part.block.name: part.block for part in here}.values()), [], []
        held = row * sum(block.numel for block in blocks) + problem.shape.bytes_per_example(outputs)
        for piece in problem.batch.chunks(max(1, memory.chunk // held)):
            y = piece.call(problem.model).detach()
            values, vectors = torch.linalg.eigh(problem.loss.hessian_matrix(y, piece.targets).double() / examples)
            root = vectors * values.abs().sqrt().unsqueeze(1)  # (B, N, N)
            signs.append(values.sign() * (values.abs() > 1e-12 * values.abs().max()))
            J = functional_jacobians(problem.model, blocks, piece, root.permute(2, 0, 1).reshape(-1, *y.shape).to(y))
            rows.append([_entries(part, J) for part in here])
        sign = torch.cat([each.flatten() for each in signs])
        for columns in zip(*rows, strict=True):
            R = torch.cat(columns).double()  # (B N, P)
            found.append(_eigenvalues(gram := R @ R.T, sign))
            total = total.to(gram) + gram
    return [*found, _eigenvalues(total, sign)]


def _entries(part: Part, jacobians: dict[str, Tensor]) -> Tensor:
    """Rows (B N, P) of a part's Jacobian."""
    return part.of(jacobians[part.block.name].reshape(-1, *part.block.shape)).unsqueeze(-1).flatten(1)


def _eigenvalues(gram: Tensor, sign: Tensor) -> Tensor:
    """Of G σ with G positive: those of its root R, in R^T σ R."""
    if bool((sign < 0).any()):
        values, vectors = torch.linalg.eigh(gram)
        root = vectors * values.clamp(min=0).sqrt()
        gram = root.T @ (sign.unsqueeze(1) * root)
    return torch.linalg.eigvalsh(gram)  # type: ignore[no-any-return]


class Lanczos:
    """Lanczos' algorithm from one start: orthonormal vectors V (k, P), and the tridiagonal V H Vᵀ, `alpha` and `beta`.

    It ends after `most` steps, or where H moves no more than these.

    >>> run, H = Lanczos(slice(2), torch.ones(2).double(), most=2), torch.tensor([1.0, 2.0]).double()
    >>> while not run.ended:
    ...     run.take(H * run.basis[len(run.alpha)])
    >>> np.round(run.alpha, 9), np.round(run.beta, 9), run.ritz()[0].round(9)
    (array([1.5, 1.5]), array([0.5, 0. ]), array([1., 2.]))
    """

    def __init__(self, rows: slice, first: Tensor, most: int) -> None:
        self.rows, self.ended, self.alpha, self.beta = rows, False, list[float](), list[float]()
        self.basis = first.new_empty(min(most, len(first)), len(first))
        self.basis[0] = first / first.norm()

    def take(self, moved: Tensor) -> None:
        """H times the vector that was found last."""
        least = 8 * torch.finfo(moved.dtype).eps * float(moved.norm())
        self.alpha.append(float(self.basis[len(self.alpha)] @ moved))
        left = self.beyond(moved.unsqueeze(0))[0]
        beta = float(left.norm())
        self.beta.append(beta if beta > least else 0.0)
        self.ended = self.beta[-1] == 0 or len(self.alpha) == len(self.basis)
        if not self.ended:
            self.basis[len(self.alpha)] = left / beta

    def beyond(self, rows: Tensor) -> Tensor:
        """Rows (K, P) without what V holds."""
        known = self.basis[: len(self.alpha)]
        for _ in range(2):
            rows = rows - (rows @ known.T) @ known
        return rows

    def ritz(self) -> tuple[Array, Array, Array]:
        """Ritz values (k,), the residuals of their vectors, and squares of the first entries of these."""
        values, vectors = eigh_tridiagonal(self.alpha, self.beta[:-1])
        return values, self.beta[-1] * np.abs(vectors[-1]), vectors[0] ** 2


def sampled_spectra(
    operator: CurvatureOperator, groups: Sequence[Group], *, density: bool, rtol: float, memory: int, seed: int
) -> Iterator[BlockSharpness]:
    """Extreme eigenvalues until their residuals are `rtol` of the largest in size, trace and norm; or a density.

    A density takes `DENSITY_STEPS` from `STARTS` starts; all vectors together take no more than `memory` bytes.
    """
    both, like = operator.matrix == "hessian", operator.like
    starts, most = (STARTS, DENSITY_STEPS) if density else (1, STEPS)
    most = min(most, max(2, memory // (2 * operator.shape[0] * like.element_size() * starts)))
    runs: list[list[Lanczos]] = []
    for rows, of in groups:
        drawn = torch.randn(starts, of["numel"], generator=stream(seed, f"spectrum of {of['name']}")).to(like)
        runs.append([Lanczos(rows, first, most) for first in drawn])

    def goes_on(run: Lanczos) -> bool:
        values, residuals, _ = run.ritz()
        enough = rtol * np.abs(values).max()
        return not run.ended and (density or residuals[-1] > enough or (both and residuals[0] > enough))

    active, step = [run for some in runs for run in some], "steps of Lanczos' algorithm"
    cost, further = PRODUCT * len(active), (most if density else FEW_STEPS) - 1
    announce(step, 1, gradients=cost)  # which tells how long the others take
    for number in range(most):
        moved = operator.products([(run.rows.start, run.basis[number]) for run in active])
        for run, w in zip(active, moved, strict=True):
            run.take(w)
        active = [run for run in active if goes_on(run)]
        advance(step)
        if not active:
            break
        if number == 0:
            announce(step, further, gradients=cost * (further + both * PROBES))
    left = remainders(operator, [run for run, *_ in runs], memory, seed)
    for some, ((trace, trace_stderr), (norm, norm_stderr)), (_, of) in zip(runs, left, groups, strict=True):
        each = [run.ritz() for run in some]
        high, low = max(each, key=lambda ritz: ritz[0][-1]), min(each, key=lambda ritz: ritz[0][0])
        values, _, weights = (np.array([*zip_longest(*rows, fillvalue=0.0)]).T for rows in zip(*each, strict=True))
        rounding = 8 * torch.finfo(like.dtype).eps * np.abs(values).max()
        alpha, beta = np.array(some[0].alpha), np.array(some[0].beta)
        yield BlockSharpness(
            trace=alpha.sum() + trace, trace_stderr=trace_stderr,
            frobenius_sq=(alpha**2).sum() + 2 * (beta**2).sum() + norm, frobenius_sq_stderr=norm_stderr,
            largest=high[0][-1], largest_error=max(high[1][-1], rounding),
            smallest=low[0][0] if both else np.nan, smallest_error=max(low[1][0], rounding) if both else 0.0,
            nodes=values, weights=weights, **of,  # zeros of no weight where a run ended sooner
        )  # fmt: skip


def remainders(operator: CurvatureOperator, runs: Sequence[Lanczos], memory: int, seed: int) -> Iterator[Estimates]:
    """Trace and norm, each with its standard error, of what the vectors V of each run leave of its block."""
    if operator.matrix == "ggn":
        count = min(GRADIENTS, max(4, memory // (2 * operator.shape[0] * operator.like.element_size())))
        C, D = output_gradients(operator, count, stream(seed, "signs of outputs"))
        wide = float(widening(degrees_of_freedom(count, 1.0)))
        for run in runs:
            X = (run.beyond(C[:, run.rows]) @ run.beyond(D[:, run.rows]).T).double()
            pairs = pair_statistics(X[None, None], 0)
            yield _mean(X.diagonal()), (float(pairs["value"]), wide * float(pairs["variance"]) ** 0.5)
        return
    for number, run in enumerate(runs):
        generator, size = stream(seed, f"signs of block {number}"), run.basis.shape[1]
        traces, norms = [], []
        for some in torch.split(_signs((PROBES, size), generator), max(1, memory // (32 * size))):
            g = run.beyond(some.to(run.basis))
            moved = run.beyond(torch.stack(operator.products([(run.rows.start, each) for each in g])))
            traces.append((g * moved).double().sum(dim=1))
            norms.append(moved.double().square().sum(dim=1))
        yield _mean(torch.cat(traces)), _mean(torch.cat(norms))


def output_gradients(operator: CurvatureOperator, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Jᵀz and JᵀSz of random signs z in output space, (count, P) both; where S = AAᵀ is known, JᵀAz twice."""
    problem, rows = operator.problem, []
    most = max(1, min(count, operator.memory // (16 * problem.shape.element_size * problem.shape.outputs)))
    for at_once in [most] * (count // most) + [count % most] * (count % most > 0):
        total: Any = 0
        for piece, loss, share in operator.pieces():
            y = piece.call(problem.model).detach()
            z = _signs((at_once, *y.shape), generator).to(y)
            if loss.has_root:
                sent = loss.root_products(y, piece.targets, z) * share**0.5
            else:
                sent = torch.cat([z, loss.hessian_products(y, piece.targets, z) * share])
            if not piece.as_one:  # all examples' gradients together
                piece, sent = replace(piece, as_one=True, size=1), sent.unsqueeze(1)
            J = functional_jacobians(problem.model, problem.blocks, piece, sent)
            total = total + torch.cat([_entries(part, J) for part in operator.parts], dim=1)
        rows.append(total.view(-1, at_once, total.shape[1]))
    found = torch.cat(rows, dim=1)
    return found[0], found[-1]


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 2 * torch.randint(0, 2, shape, generator=generator, dtype=torch.int8) - 1


def _mean(values: Tensor) -> tuple[float, float]:
    """Mean and standard error, as wide as few heavy-tailed values make it."""
    count = len(values)
    error = float(values.std()) / count**0.5 if count > 1 else np.inf
    return float(values.mean()), error * float(widening(max((count - 1) / TAILS, 1.0)))
