"""Traces, norms and eigenvalues of diagonal blocks of a batch's curvature, each with its error.

* All eigenvalues, exactly: of a Gauss-Newton matrix with few outputs by Gram matrices in output space, where
  A^T J_l J_l^T A, with S = A σ A^T the Hessian of the loss in the outputs, has the non-zero eigenvalues of block l; of
  any small block by its dense matrix.
* Of others extreme eigenvalues by Lanczos' algorithm, with the residual of their Ritz vectors, within which an
  eigenvalue lies. Traces and norms come from the same vectors V and from random signs g orthogonal to them,
  tr(VᵀHV) + E gᵀHg and ‖HV‖² + E‖Hg‖² (Chen and Hallman, arXiv 2205.01736): what V has caught adds no noise.
* Densities of others by stochastic Lanczos quadrature (Golub and Meurant 1994): eigenvalues and squared first entries
  of eigenvectors of the tridiagonal matrix are nodes and weights, of a few random starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import widening
from hessdiag.curvature.operator import CurvatureOperator, Part
from hessdiag.data.seeds import stream
from hessdiag.derivatives.backward import block_vjps, trace_blocks, unit_cotangents
from hessdiag.derivatives.jacobians import DenseJacobian, Jacobian
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import block_parameter
from hessdiag.results.numbers import Array
from hessdiag.results.sharpness import BlockSharpness

DENSE = 256  # entries of a block whose matrix is formed
PROBES = 32  # random signs of a trace
STEPS, DENSITY_STEPS, STARTS = 60, 40, 8  # of Lanczos' algorithm, and random starts of a density
FEW_STEPS = 10  # after which it mostly ends
SAME = {torch.float32: 1e-3, torch.float64: 1e-8}  # squared norms of gradients, by Gram matrix and by autograd
TAILS = 2.0  # how many times fewer degrees of freedom than of Gaussians
ROUNDING = 64  # of one number, that eigenvalues are off by at most, relative to the largest
ZERO = 1e4  # squared roundings, relative to the whole, that a block is at least


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
        trace=float(kept.sum()),
        frobenius_sq=float((kept**2).sum()),
        largest=float(nodes.max()),
        smallest=float(nodes.min()),
        nodes=nodes[None],
        weights=counts[None] / of["numel"],
        exact=True,
        **of,
    )


def products_of(numel: int, *, density: bool) -> int:
    """About how many products the spectrum of a block takes; one of Lanczos' algorithm costs as much as three others.

    >>> products_of(100, density=False), products_of(1000, density=False), products_of(1000, density=True)
    (100, 62, 352)
    """
    return numel if numel <= DENSE else PROBES + (STARTS * DENSITY_STEPS if density else 3 * FEW_STEPS)


def dense_spectrum(operator: CurvatureOperator, **of: Any) -> BlockSharpness:
    """By all of the matrix."""
    matrix = operator.torch_matmat(torch.eye(operator.shape[0]).to(operator.like)).double()
    return exact_spectrum(torch.linalg.eigvalsh((matrix + matrix.T) / 2).cpu().numpy(), eps=operator.eps, **of)


# Gram matrices in output space.


def gram_spectra(problem: Problem, parts: Sequence[Part], *, chunk: int) -> list[BlockSharpness] | None:
    """Exact spectra of the Gauss-Newton blocks of parts, and of all together; None where hooks misread a layer."""
    pieces, roots, signs = list(problem.batch.chunks(chunk)), [], []
    known: list[list[Jacobian | None]] = []
    blocks = problem.blocks
    for number, piece in enumerate(pieces):
        traced = trace_blocks(problem.model, piece, blocks)
        y = traced.y.detach()
        S = problem.loss.hessian_matrix(y, piece.targets).double() / problem.batch.size
        values, vectors = torch.linalg.eigh(S)
        roots.append(vectors * values.abs().sqrt().unsqueeze(1))  # (B, N, N)
        signs.append(values.sign() * (values.abs() > 1e-12 * values.abs().max()))
        found = list(block_vjps(problem.model, piece, blocks, traced, unit_cotangents(y)))
        u = torch.randn(y.shape, generator=stream(number, "check of Gram matrices")).to(y)
        if not _are_autograds(problem, found, traced.y, u):
            return None
        by_name = dict(zip((block.name for block in blocks), found, strict=True))
        known.append([_narrowed(by_name[part.block.name], part) for part in parts])
    eps = torch.finfo(u.dtype).eps
    sign, total, spectra = torch.cat([each.flatten() for each in signs]), torch.zeros(()), []
    for number, part in enumerate(parts):
        rows: list[list[Tensor]] = []
        for p, (here, A) in enumerate(zip(known, roots, strict=True)):
            row = [_rooted(here[number], A, there[number], B) for there, B in zip(known[p:], roots[p:], strict=True)]
            rows.append([rows[q][p].mT for q in range(p)] + row)
        gram = torch.cat([torch.cat(row, dim=1) for row in rows])
        total = total.to(gram) + gram
        spectra.append(exact_spectrum(_eigenvalues(gram, sign), eps=eps, **described([part])))
    return [*spectra, exact_spectrum(_eigenvalues(total, sign), eps=eps, **described(parts))]


def _are_autograds(problem: Problem, found: Sequence[Jacobian | None], y: Tensor, u: Tensor) -> bool:
    """Whether ‖J_lᵀu‖² of a random u (B, *out) is that of autograd's gradient for each block, but for rounding."""
    parameters = [block_parameter(problem.model, block) for block in problem.blocks]
    exact = torch.autograd.grad(y, parameters, u, retain_graph=True, materialize_grads=True)
    sizes = [float(each.to_dense().double().square().sum()) for each in exact]
    flat, least = u.flatten().double(), ZERO * torch.finfo(u.dtype).eps ** 2 * max(sizes)
    own = [0.0 if J is None else float(flat @ J.cross(J).double().view(len(flat), -1) @ flat) for J in found]
    return all(abs(a - b) <= SAME[u.dtype] * max(a, b) + least for a, b in zip(own, sizes, strict=True))


def _narrowed(jacobian: Jacobian | None, part: Part) -> Jacobian | None:
    """The Jacobian of a part of the block."""
    if jacobian is None or part.stop is None:
        return jacobian
    dense = jacobian.dense()
    entries = part.of(dense.J.reshape(-1, *part.block.shape))
    return DenseJacobian(entries.reshape(*dense.shape, -1), size=dense.size)


def _rooted(here: Jacobian | None, A: Tensor, there: Jacobian | None, B: Tensor) -> Tensor:
    """A^T J_here J_there^T B, (b N, b' N)."""
    if here is None or there is None:
        return A.new_zeros(A.shape[0] * A.shape[1], B.shape[0] * B.shape[1])
    cross = here.cross(there).double()
    return torch.einsum("bni,bncm,cmj->bicj", A, cross, B).reshape(A.shape[0] * A.shape[1], -1)


def _eigenvalues(gram: Tensor, sign: Tensor) -> Array:
    """Of G σ with G positive: those of its root R, in R^T σ R."""
    if bool((sign < 0).any()):
        values, vectors = torch.linalg.eigh(gram)
        root = vectors * values.clamp(min=0).sqrt()
        gram = root.T @ (sign.unsqueeze(1) * root)
    return np.asarray(torch.linalg.eigvalsh(gram).cpu().numpy())


def described(parts: Sequence[Part]) -> dict[str, Any]:
    """Name, shape and number of entries of a part, or of several together."""
    numel = sum(part.numel for part in parts)
    alone = len(parts) == 1
    return {"name": parts[0].name if alone else "", "shape": parts[0].shape if alone else (numel,), "numel": numel}


# Lanczos' algorithm.


def lanczos(
    product: Callable[[Tensor], Tensor],
    starts: Tensor,
    steps: int,
    settled: Callable[[Tensor, Tensor], bool] = lambda alpha, beta: False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Tridiagonal matrices of R starts (P, R) at once: diagonals and the entries below (k, R), and bases (R, k, P).

    It ends after `steps`, where the starts are all that the matrix moves, or where `settled` says so.

    >>> alpha, beta, _ = lanczos(lambda v: torch.tensor([[1.0], [2.0]]) * v, torch.ones(2, 1).double(), 2)
    >>> alpha.flatten().numpy().round(9), beta.flatten()[:1].numpy().round(9)
    (array([1.5, 1.5]), array([0.5]))
    """
    (P, R), alphas, betas = starts.shape, [], []
    bases = starts.new_empty(R, min(steps, P), P)
    bases[:, 0] = (starts / starts.norm(dim=0)).T
    for k in range(1, bases.shape[1] + 1):
        known = bases[:, :k]
        w = product(known[:, -1].T).T.unsqueeze(2)  # (R, P, 1)
        size = w.norm(dim=(1, 2))
        alphas.append(torch.bmm(known[:, -1:], w).flatten().double().cpu())
        for _ in range(2):
            w = w - torch.bmm(known.mT, torch.bmm(known, w))
        beta = w.norm(dim=(1, 2))
        beta = torch.where(beta > 8 * torch.finfo(w.dtype).eps * size, beta, 0.0)
        betas.append(beta.double().cpu())
        found = torch.stack(alphas), torch.stack(betas)
        if k == bases.shape[1] or not bool(beta.any()) or settled(*found):
            break
        bases[:, k] = torch.where(beta.unsqueeze(1) > 0, w.squeeze(2) / beta.unsqueeze(1), 0.0)
    return *found, known


def _ritz(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values (k,), the residuals of their vectors, and squares of the first entries of these."""
    off = torch.diag(beta[:-1], 1)
    values, vectors = torch.linalg.eigh(torch.diag(alpha) + off + off.T)
    return values, beta[-1] * vectors[-1].abs(), vectors[0].square()


def sampled_spectrum(
    operator: CurvatureOperator, *, density: bool, rtol: float, memory: int, seed: int, **of: Any
) -> BlockSharpness:
    """Extreme eigenvalues until their residuals are `rtol` of the largest in size, trace and norm; or a density.

    A density takes `DENSITY_STEPS` from `STARTS` starts; all vectors together take no more than `memory` bytes.
    """
    size, like, both = operator.shape[0], operator.like, operator.matrix == "hessian"
    generator = stream(seed, f"spectrum of {of['name']}")
    starts = STARTS if density else 1
    steps = min(DENSITY_STEPS if density else STEPS, max(2, memory // (size * like.element_size() * starts)))

    def settled(alpha: Tensor, beta: Tensor) -> bool:
        values, residuals, _ = _ritz(alpha[:, 0], beta[:, 0])
        enough = rtol * float(values.abs().max())
        return not density and float(residuals[-1]) <= enough and not (both and float(residuals[0]) > enough)

    drawn = torch.randn(size, starts, generator=generator, dtype=torch.float64).to(like)
    alpha, beta, bases = lanczos(operator.torch_matmat, drawn, steps, settled)
    each = [_ritz(alpha[:, r], beta[:, r]) for r in range(starts)]
    high = max(each, key=lambda ritz: float(ritz[0][-1]))
    low = min(each, key=lambda ritz: float(ritz[0][0]))
    rounding = 8 * operator.eps * max(float(values.abs().max()) for values, *_ in each)
    signs = torch.randint(0, 2, (size, min(PROBES, size)), generator=generator, dtype=torch.int8)
    traces, norms = [], []
    for some in torch.split(signs, max(1, memory // (32 * size)), dim=1):
        g = (2 * some - 1).to(like)
        for _ in range(2):
            g = g - bases[0].T @ (bases[0] @ g)
        moved = operator.torch_matmat(g).double()
        traces.append((g.double() * moved).sum(dim=0))
        norms.append(moved.square().sum(dim=0))
    (trace, trace_stderr), (frobenius_sq, norm_stderr) = _mean(torch.cat(traces)), _mean(torch.cat(norms))
    caught = alpha[:, 0].square().sum() + 2 * beta[:-1, 0].square().sum() + beta[-1, 0].square()
    return BlockSharpness(
        trace=float(alpha[:, 0].sum()) + trace,
        trace_stderr=trace_stderr,
        frobenius_sq=float(caught) + frobenius_sq,
        frobenius_sq_stderr=norm_stderr,
        largest=float(high[0][-1]),
        largest_error=max(float(high[1][-1]), rounding),
        smallest=float(low[0][0]) if both else np.nan,
        smallest_error=max(float(low[1][0]), rounding) if both else 0.0,
        nodes=np.stack([values.numpy() for values, *_ in each]),
        weights=np.stack([weights.numpy() for *_, weights in each]),
        **of,
    )


def _mean(values: Tensor) -> tuple[float, float]:
    """Mean and standard error, as wide as few heavy-tailed values make it."""
    count = len(values)
    error = float(values.std()) / count**0.5 if count > 1 else np.inf
    return float(values.mean()), error * float(widening(max((count - 1) / TAILS, 1.0)))


def told_from_rounding(spectra: Sequence[BlockSharpness], eps: float) -> list[BlockSharpness]:
    """The spectra with blocks marked that are nothing beside the whole, the last one: factors of the size of rounding.

    That of a bias before batch normalisation is, which is zero by symmetry.
    """
    least = ZERO * eps**2 * abs(spectra[-1].nodes).max()
    return [replace(each, informative=bool(abs(each.nodes).max() > least)) for each in spectra]
