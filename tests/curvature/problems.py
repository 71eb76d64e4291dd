"""Small problems for the algorithms that measure curvature."""

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget
from hessdiag.derivatives.losses import resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import find_blocks
from hessdiag.network.trace import run_dry

PLENTY = MemoryBudget(2**32, 2**26)


def log_cosh(y: Tensor, t: Tensor | None) -> Tensor:
    return (y - t).cosh().log().mean()


def problem_of(model: nn.Module, x: Tensor, loss: str) -> Problem:
    y, generator, t = model(x).detach(), torch.Generator().manual_seed(2), None
    if loss == "cross-entropy":
        t = torch.randint(y.shape[1], (len(y),), generator=generator)
    elif loss != "random-quadratic":
        t = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    resolved = resolve_loss(log_cosh if loss == "callable" else loss, y=y, targets=t, seed=0)
    batch, (blocks, _) = Batch.of(x, t), find_blocks(model)
    return Problem(model, batch, resolved, blocks, run_dry(model, batch.narrow(0, 2), blocks).shape)
