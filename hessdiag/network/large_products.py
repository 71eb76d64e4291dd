"""Products of large matrices by oneDNN, where the BLAS that PyTorch was built with leaves half of a processor idle.

MKL takes AVX-512 on its own maker's processors alone, oneDNN wherever there is any: on one of AMD, products of two
float32 matrices took 0.4 to 0.6 times as long, in sums that are rounded otherwise but as precise.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

LARGE = 2**26  # multiplications of a product: what oneDNN allocates for smaller ones takes longer than it saves
WIDE = 256  # columns of a product from which it pays that oneDNN first writes a transposed first factor anew
MANY = 2**10  # entries of a parameter, without which a network has next to no large products


@contextmanager
def large_products(model: nn.Module) -> Iterator[None]:
    """Multiply large float32 matrices on the CPU by oneDNN inside this context, where that is faster.

    Every way to multiply them takes it: forward and backward passes, in forward mode, and of several at once. The
    kernels are the process's, so that other threads take it, too, for as long.
    """
    if pays() and torch.backends.mkldnn.enabled and any(parameter.numel() >= MANY for parameter in model.parameters()):
        with _in_place:
            yield
    else:
        yield


@cache
def pays() -> bool:
    """Whether there is oneDNN, and MKL leaves AVX-512 idle."""
    libraries: bool = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    replaceable = hasattr(torch.library, "get_kernel") and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # from 2.9 on
    if not (libraries and replaceable and torch.backends.cpu.get_cpu_capability() == "AVX512"):
        return False
    processor = Path("/proc/cpuinfo")
    return processor.exists() and "AuthenticAMD" in processor.read_text()


class _InPlace:
    """Kernels in the place of PyTorch's own, which the last of several users takes out again."""

    def __init__(self) -> None:
        self.lock, self.users, self.kernels = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                self.kernels.enter_context(_kernels())
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.kernels.close()


_in_place = _InPlace()


@contextmanager
def _kernels() -> Iterator[None]:
    """Products of PyTorch that call oneDNN for what is large, and its own kernels for all else."""
    own_mm, own_addmm = (torch.library.get_kernel(f"aten::{name}", "CPU") for name in ("mm", "addmm"))
    linear = torch.ops.mkldnn._linear_pointwise.default  # a bᵀ + c

    def mm(keys: Any, a: Tensor, b: Tensor) -> Any:
        return linear(a, b.t(), None, "none", [], "") if _is_large(a, b) else own_mm.call_boxed(keys, a, b)

    def addmm(keys: Any, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
        plain = beta == alpha == 1 and c.dtype == a.dtype and c.shape == b.shape[1:]
        if plain and _is_large(a, b):
            return linear(a, b.t(), c, "none", [], "")
        return own_addmm.call_boxed(keys, c, a, b, beta=beta, alpha=alpha)

    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced
            library.impl("mm", mm, "CPU", with_keyset=True)
            library.impl("addmm", addmm, "CPU", with_keyset=True)
        yield


def _is_large(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN is to multiply them; what does not fit together is refused in PyTorch's own words."""
    if not a.dtype == b.dtype == torch.float32 or not a.dim() == b.dim() == 2 or a.shape[1] != b.shape[0]:
        return False
    if a.numel() * b.shape[1] < LARGE or 0 in (*a.stride(), *b.stride()):
        return False
    return a.stride(1) == 1 or b.shape[1] >= WIDE
