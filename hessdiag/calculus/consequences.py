"""What follows from the calculus in closed form (Sections 6 to 8 and the appendix of arXiv 1906.04267)."""

from __future__ import annotations

import math

from hessdiag.errors import HessdiagError


def telescoped_output_sq(channels_in: int, channels_out: int, *, input_sq: float = 1.0) -> float:
    """E[x_L²] = √(n_0 / n_L) E[x_0²]: the output of a ReLU network under geometric-mean initialisation, c = 2/k.

    For layers of one kernel size, each followed by a ReLU, without pooling (Section 7); the widths between cancel.

    >>> telescoped_output_sq(64, 16)
    2.0
    """
    _check_positive(channels_in=channels_in, channels_out=channels_out, input_sq=input_sq)
    return math.sqrt(channels_in / channels_out) * input_sq


def balancing_input_scale(channels: int, kernel: int = 1) -> float:
    """(1 / (n_0 k²))^(1/4): multiply unit-variance inputs by it and γ of first weight and bias agree (Section 8.1).

    Args:
        channels: n_0.
        kernel: entries of the first kernel, k².

    >>> balancing_input_scale(16, 1)
    0.5
    """
    _check_positive(channels=channels, kernel=kernel)
    return 1 / math.sqrt(math.sqrt(channels * kernel))


def gamma_of_bias(activation_scaling: float, *, channels: int, out_sq: float) -> float:
    """γᵇ = ς / (n E[x²]²), with ς, n and E[x²] of the activation that the bias is added to (Section 8).

    It is the extrinsic ρ² E[Δx²] / E[x²], see `hessdiag.scaling.gamma_bias`. Under geometric-mean initialisation with
    c = 2/k the product n E[x²]² is the same in every layer, and so is γᵇ.

    >>> gamma_of_bias(8.0, channels=2, out_sq=2.0)
    1.0
    """
    _check_positive(channels=channels, out_sq=out_sq)
    return activation_scaling / (channels * out_sq**2)


def gamma_of_scalar(activation_scaling: float, u_sq: float) -> float:
    """γ = ς / E[u²]² of a learnable multiplier x_{l+1} = u x_l (appendix, scaling of scalar multipliers).

    >>> gamma_of_scalar(8.0, 2.0)
    2.0
    """
    _check_positive(u_sq=u_sq)
    return activation_scaling / u_sq**2


def matching_multiplier(c: float) -> float:
    """u = √c: a learnable multiplier with it has the γ of the convolutions under geometric-mean initialisation, ς / c².

    >>> matching_multiplier(4.0)
    2.0
    """
    _check_positive(c=c)
    return math.sqrt(c)


def gamma_under_geometric(activation_scaling: float, c: float) -> float:
    """γ = ς / c² of every layer initialised with E[W²] = c / (k √(n n')) (Eq. 3), whatever its size.

    >>> gamma_under_geometric(8.0, 2.0)
    2.0
    """
    _check_positive(c=c)
    return activation_scaling / c**2


def kernel_correction(kernel: float, typical: float = 1.0) -> float:
    """α = √(k_typical / k): the fixed multiplier before a layer of another kernel side than the usual (Section 6.2).

    >>> kernel_correction(4.0)
    0.5
    """
    _check_positive(kernel=kernel, typical=typical)
    return math.sqrt(typical / kernel)


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise HessdiagError(f"{name} {value!r}: pass a number above 0")
