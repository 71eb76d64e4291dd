"""The scaling calculus' formulas, from second moments to ς and γ, and what follows for a design (arXiv 1906.04267).

Plain functions of floats. n is a number of channels, sites a number of positions (rho squared), P a number of entries;
E[·] are second moments over elements and examples. The spatial factor of the extrinsic γ is that of the layer's
*output*, as in the paper's appendix; its main text has the input's.
"""

import math


def activation_scaling(elements: int, delta_sq: float, x_sq: float) -> float:
    """ς = n ρ² E[Δx²] E[x²] (Eq. 1), with n ρ² the number of elements of the activation, per example.

    >>> activation_scaling(6 * 14 * 14, delta_sq=2.0, x_sq=0.5)
    1176.0
    """
    return elements * delta_sq * x_sq


def gamma_intrinsic(*, scaling: float, numel: int, weight_sq: float) -> float:
    """γ = ς / (P E[W²]²) (Eq. 2, with P = n_{l+1} n_l k²): a weight's scaling factor from its own size.

    With P = 1 it is the scaling factor of a learnable scalar, ς / E[u²]².
    """
    return _divide(scaling, numel * weight_sq**2)


def gamma(kind: str, *, fan_in: int, kernel: int, sites_out: int, x_sq: float, delta_sq: float, out_sq: float) -> float:
    """γ of a block from its surroundings: n_l k² ρ_{l+1}² E[x_l²]² E[Δx_{l+1}²] / E[x_{l+1}²].

    A bias is added at the layer's output: γᵇ = ρ_{l+1}² E[Δx_{l+1}²] / E[x_{l+1}²].

    Args:
        kind: `"weight"`, `"bias"` or `"scalar"`.
        fan_in: input channels that one output channel reads; for a scalar, which multiplies every element as a 1x1
            convolution with one shared weight would, all channels of its input.
        kernel: entries of the kernel; 1 for a scalar.
        sites_out: ρ_{l+1}².
        x_sq, delta_sq, out_sq: E[x_l²], E[Δx_{l+1}²] and E[x_{l+1}²].

    >>> gamma("scalar", fan_in=3, kernel=1, sites_out=2, x_sq=2.0, delta_sq=1.0, out_sq=4.0)
    6.0
    >>> gamma("bias", fan_in=3, kernel=1, sites_out=2, x_sq=2.0, delta_sq=1.0, out_sq=4.0)
    0.5
    """
    return _divide((sites_out if kind == "bias" else fan_in * kernel * sites_out * x_sq**2) * delta_sq, out_sq)


def nu(*, gradient_sq: float, weight_sq: float) -> float:
    """Weight-gradient ratio ν = E[ΔW²] / E[W²] (Section 5); undefined for parameters that are all zero."""
    return _divide(gradient_sq, weight_sq)


def _divide(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator != 0 else math.nan
