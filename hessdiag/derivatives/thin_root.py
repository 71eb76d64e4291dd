"""A root of the softmax's Hessian with a column less than there are classes, the loss's gradient among them.

diag(p) − p pᵀ = A Aᵀ with A = diag(q) Q, where q = √p has norm 1 and Q is an orthonormal basis of what is orthogonal
to it. Where an example has one label c, the gradient p − e_c = diag(q) (q − e_c / q_c) is the first column but for a
factor; the others are such a root of the probabilities of all classes but c.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ThinRoot:
    """Columns that are sent back, in float64, and what A and the gradient of the loss are in terms of them.

    Attributes:
        columns: (B, C, r).
        weights: (B, r): A is each column times its weight.
        slope: (B, r): the gradient of the loss is the columns times these; None where it is not in terms of them.
    """

    columns: Tensor
    weights: Tensor
    slope: Tensor | None

    @classmethod
    def of_any(cls, p: Tensor, scale: Tensor) -> ThinRoot:
        """Of `scale` (B, 1) times the Hessian of probabilities (B, C), whatever the targets."""
        columns = _root(p.sqrt()) * scale.sqrt().unsqueeze(2)
        return cls(columns, columns.new_ones(columns.shape[0], columns.shape[2]), None)

    @classmethod
    def of_labels(cls, p: Tensor, scale: Tensor, labels: Tensor) -> ThinRoot:
        """The same, where the gradient of an example's loss is `scale` (p − e_c), c the class in `labels` (B,)."""
        order = torch.arange(p.shape[1], device=p.device).repeat(len(p), 1)
        order.scatter_(1, labels.unsqueeze(1), 0)[:, 0] = labels
        ordered = p.gather(1, order)
        own, others = ordered[:, :1], ordered[:, 1:]
        rest = others.sum(dim=1, keepdim=True)  # 1 − p_c, without cancellation
        as_root = scale.sqrt() * torch.where(rest > 0, own.sqrt() / rest.sqrt(), 0)
        larger = torch.maximum(as_root, scale)  # so that neither underflows where the other does not
        first = torch.cat([-rest, others], dim=1) * larger
        behind = _root(others.sqrt()) * scale.sqrt().unsqueeze(2)
        made = torch.cat([first.unsqueeze(2), torch.nn.functional.pad(behind, (0, 0, 1, 0))], dim=2)
        columns = torch.empty_like(made).scatter_(1, order.unsqueeze(2).expand_as(made), made)
        weights, slope = columns.new_ones(2, len(p), columns.shape[2])
        size = torch.where(larger > 0, larger, 1)
        weights[:, :1], slope[:, :1], slope[:, 1:] = as_root / size, scale / size, 0
        return cls(columns, weights, slope)


def _root(q: Tensor) -> Tensor:
    """diag(q) times an orthonormal basis of what is orthogonal to q, (B, n, n − 1).

    All columns but the first of the Householder reflection I − v vᵀ / (1 + u_1), v = u + e_1, which turns e_1 into −u,
    with u the direction of q.
    """
    norm = q.square().sum(dim=1, keepdim=True).sqrt()
    v = q / torch.where(norm > 0, norm, 1)
    v[:, 0] += 1
    reflected = torch.eye(q.shape[1], dtype=q.dtype, device=q.device) - v.unsqueeze(2) * (v / v[:, :1]).unsqueeze(1)
    return q.unsqueeze(2) * reflected[:, :, 1:]
