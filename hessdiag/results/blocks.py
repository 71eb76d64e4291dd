"""One block of parameters and what was measured of it, and the map of all pairs of weight blocks."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from hessdiag.results.numbers import Array, normalize
from hessdiag.results.records import Record

Kind = Literal["weight", "bias", "scalar"]
MATRICES = {"hessian": "Hessian", "ggn": "Gauss-Newton"}
MODES = {"train": "as it trains", "eval": "in evaluation mode"}
Ended = Literal["exact", "sampled", "rtol", "budget", "unmeasured"]


@dataclass(frozen=True, kw_only=True)
class BlockRecord:
    """One block of parameters: a weight matrix or kernel, a bias vector, or a learnable scalar.

    Attributes:
        name: the parameter's name in the model, as in `model.named_parameters()`.
        kind: `"weight"` (a matrix or kernel), `"bias"` or `"scalar"` (a learnable multiplier).
        layer: class name of the module that owns the parameter.
        shape, numel: shape of the parameter and its number of entries P.
        fan_in: input channels that one output channel reads (in_channels / groups).
        fan_out: output channels.
        kernel: spatial size of the kernel, `()` for a linear layer.
        groups: groups of a convolution, else 1.
    """

    name: str
    kind: Kind
    layer: str
    shape: tuple[int, ...]
    numel: int
    fan_in: int
    fan_out: int
    kernel: tuple[int, ...]
    groups: int

    @property
    def described(self) -> dict[str, Any]:
        """Return these fields by name, to hand on to another record of the same block."""
        return {f.name: getattr(self, f.name) for f in fields(BlockRecord)}


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockScaling(BlockRecord):
    """One block, and the quantities of the theory, as they were measured or predicted; NaN where they are unknown.

    Attributes:
        name, kind, layer, shape, numel, fan_in, fan_out, kernel, groups: what it is, see `BlockRecord`.
        sites_in, sites_out: positions at which the layer reads and writes, per example (rho squared for an image).
        activation_scaling: n_l rho_l^2 E[dx_l^2] E[x_l^2] (Eq. 1 of arXiv 1906.04267).
        gamma: extrinsic scaling factor, of weights, biases and scalars alike.
        gamma_intrinsic: activation_scaling / (P E[W^2]^2), which needs no output of the layer.
        gamma_curvature: `gamma` with the gradient replaced by the back-propagated S u, with S the Hessian of the loss
            in the outputs and u ~ N(0, E[y^2]); free of the loss's own constant.
        nu: weight-gradient ratio E[dW^2] / E[W^2]; NaN for parameters that are all zero.
        weight_sq: E[W^2].
        avg_sq_singular_value: ||G||_F^2 / P of the diagonal block. Sampled values have no bias, so that one
            that is lost in noise may come out below 0. 0, as nu is, where the block's gradient is zero up to rounding:
            that of a bias which a normalisation subtracts.
        x_sq, out_sq, x_gradient_sq, out_gradient_sq: E[x_l^2], E[x_{l+1}^2], E[dx_l^2] and E[dx_{l+1}^2] of the layer
            that holds the block, the gradients being those of one example's loss; NaN where it is neither linear nor
            convolutional, or holds a block that several layers share.
    """

    sites_in: int = 0
    sites_out: int = 0
    activation_scaling: float = math.nan
    gamma: float = math.nan
    gamma_intrinsic: float = math.nan
    gamma_curvature: float = math.nan
    nu: float = math.nan
    weight_sq: float = math.nan
    avg_sq_singular_value: float = math.nan
    x_sq: float = math.nan
    out_sq: float = math.nan
    x_gradient_sq: float = math.nan
    out_gradient_sq: float = math.nan


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockReport(Record, BlockScaling):
    """One block of parameters: what it is, what the theory says of it, and what was measured.

    Attributes:
        name, kind, layer, shape, numel, fan_in, fan_out, kernel, groups: what it is, see `BlockRecord`.
        sites_in, sites_out, activation_scaling, gamma, gamma_intrinsic, gamma_curvature, nu, weight_sq,
            avg_sq_singular_value, x_sq, out_sq, x_gradient_sq, out_gradient_sq: see `BlockScaling`.
        stderr: standard error of `avg_sq_singular_value` as an estimate for this batch; 0 where it is exact. It is
            widened for few samples: the value +- 1.96 stderr is a 95 % interval.
        ratio: gamma / avg_sq_singular_value, theory over measurement.
        relative_ratio: ratio / geometric mean of the ratios of all weight blocks.
        products: matrix-vector products per example (or per batch) spent on the block; 0 for the closed form.
        ended: what came of the sampling: `"exact"` (nothing to sample), `"sampled"` (a fixed number of directions), and
            where an `rtol` was asked for `"rtol"` (reached) or `"budget"` (not); `"unmeasured"` in a quick one.
        trace: of the diagonal block, that of the mean loss; NaN where it is not exact: `hessdiag.sharpness` samples it.
    """

    derived: ClassVar[tuple[str, ...]] = ("relative_curvature",)

    stderr: float
    ratio: float
    relative_ratio: float
    products: int
    ended: Ended
    trace: float = math.nan

    @property
    def relative_curvature(self) -> float:
        """P sigma^2 E[W^2]^2: squared curvature for a *relative* change, free of where between layers a scale sits."""
        return self.numel * self.avg_sq_singular_value * self.weight_sq**2

    @property
    def relative_stderr(self) -> float:
        """stderr / avg_sq_singular_value; 0 where nothing was sampled, NaN where the estimate is not above 0."""
        if self.ended == "exact":
            return 0.0
        return self.stderr / self.avg_sq_singular_value if self.avg_sq_singular_value > 0 else math.nan

    @property
    def lost_in_noise(self) -> bool:
        """Whether a sampled sigma^2 is smaller than its standard error, or below 0: it tells but an upper bound."""
        return self.stderr > 0 and self.avg_sq_singular_value < self.stderr


@dataclass(frozen=True, kw_only=True, eq=False)
class Heatmap(Record):
    """Squared Frobenius norms of all L x L weight blocks of the Hessian or Gauss-Newton matrix.

    Attributes:
        names: the L weight blocks, in execution order.
        numel: their numbers of entries P.
        frobenius_sq: (L, L) array, ||H_ij||_F^2.
        stderr: (L, L) array, standard errors of `frobenius_sq` for this batch; 0 where exact.
    """

    names: tuple[str, ...]
    numel: tuple[int, ...]
    frobenius_sq: Array
    stderr: Array

    def normalized(self) -> Array:
        """||H_ij||_F^2 / sqrt(P_i P_j): symmetric, and the average squared singular value on the diagonal.

        >>> import numpy as np
        >>> Heatmap(names=("a",), numel=(4,), frobenius_sq=np.array([[8.0]]), stderr=np.zeros((1, 1))).normalized()
        array([[2.]])
        """
        return normalize(self.frobenius_sq, self.numel)
