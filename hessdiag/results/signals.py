"""The size of everything that runs through a network on one batch, and of its weights: plain numbers for the rules.

E[·] is the mean over elements and examples, Δ the gradient of each example's own loss. A share that *varies* is that
of the second moment which differs from one example to the other; it is NaN for a single example.
"""

import math
from dataclasses import dataclass
from typing import Literal

from hessdiag.results.findings import Finding
from hessdiag.results.records import Record

Gradient = Literal["some", "later", "zero", "left", "cut", "targets", "unread", "none"]
FIXED = " (random)"  # ends the names of tensors that are not registered and require no gradient
ALIKE = 1e-9  # share of E[W²] by which the rows of a weight that are all alike differ


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerSignals(Record):
    """What one module with parameters of its own read and wrote in its first call.

    Attributes:
        path, kind: where it is in the model, and the name of its class.
        labels: where its output goes, read off the autograd graph: `"output"`, `"add"` (the end of a residual branch),
            `"self-add"` (a skip connection starts here), `"norm"`, `"gate"`, `"attention"` (the makings of queries or
            keys), `"one key"`, `"astray"`, `"padding"` (of these into a softmax of one number, whose weights do not sum
            to 1 over what they mix, or are for padding alone), `"mixed"` (into a view that mixes axes), `"root"`
            (into the square root of what is nearly zero), `"idle"` (into a nonlinearity that does nothing), `"raw"` (it
            reads inputs as they are, beside what others wrote), `"padded"` (most examples are read at their padding
            alone), `"bottleneck"` (all is read off its one number), nonlinearities, and `"batch"` (normalisation).
        sources: paths of the layers that wrote what it reads, with operations between at most.
        normalises: whether it is a normalisation that uses statistics of this batch.
        samples: values of each unit, over examples and positions.
        x_sq, x_varies: E[x²] of what it reads, and the share of it that varies.
        x_places, out_places: the share of what it reads, and writes, that varies between positions of an example.
        x_sq_last: E[x²] of what it reads in the last of several calls.
        out_sq, out_varies: E[x²] of what it writes, and the share of it that varies.
        x_gradient_sq: E[Δx²] of what it reads, through all of its readers; NaN where x has no gradient, and 0 where x
            is zero and no gradient gets from there to the layers that wrote it.
        out_gradient_sq: E[Δx²] where it writes.
        out_gradient_total: Σ Δx² over an example where it writes: free of how many positions there are.
        on_share: share of values above 0.
        saturated: share of the units of a following tanh or sigmoid that are flat, above .99 of their range.
        phase_rms: rms of the argument of a following sine, in radians.
        peaked: largest share of the rows of an attention that it makes queries or keys of, with .99 on one key.
    """

    path: str
    kind: str
    labels: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    normalises: bool = False
    samples: int = 0
    x_sq: float = math.nan
    x_varies: float = math.nan
    x_places: float = math.nan
    out_places: float = math.nan
    x_sq_last: float = math.nan
    out_sq: float = 0.0
    out_varies: float = math.nan
    x_gradient_sq: float = math.nan
    out_gradient_sq: float = 0.0
    out_gradient_total: float = 0.0
    on_share: float = 1.0
    saturated: float = math.nan
    phase_rms: float = math.nan
    peaked: float = math.nan

    @property
    def varying(self) -> tuple[float, float]:
        """Second moments of what varies in what it reads and writes; all of it where that is not known."""
        known = [1.0 if math.isnan(share) else share for share in (self.x_varies, self.out_varies)]
        return self.x_sq * known[0], self.out_sq * known[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class ParameterSignals(Record):
    """One parameter: its statistics, and whether a gradient reaches it.

    Attributes:
        name, owners, attribute, kind: its name, the modules that hold it, as what, and the class of the first of them.
        shape, numel: its shape, and P.
        fan_in, fan_out, kernel, groups: channels a unit reads, channels an input reaches, entries of the kernel, and
            groups of a convolution; 0 and 1 for vectors.
        trainable: whether it is to learn.
        weight_sq, mean, median_sq: E[W²] and E[W]; of a vector, the median of W².
        unlike: share of E[W²] by which output units differ; where that is 0, of their gradients.
        kurtosis: E[(W − E[W])⁴] over the variance squared; 3 for a Gaussian.
        largest: largest entry over the rms.
        zeros: share of entries that are exactly zero.
        gradient: `"some"`, `"later"` (once others have moved, or at other draws), `"zero"` (exactly), `"left"`
            (it makes outputs that the loss leaves out), `"cut"` (the outputs depend on it, but autograd does not know),
            `"targets"` (the same where some are a copy of what learns), `"unread"` (its layer runs, and nothing that
            the model returns depends on it) or `"none"` (the outputs do not depend on it).
        gradient_sq: E[Δ²] of the gradient of the batch's mean loss.
        cancelled: share of its rows or columns, where there are many, whose gradient is rounding alone.
        rows: of a table, how many get a gradient.
        radial: the largest of P ⟨W, g⟩² / (‖W‖² ‖g‖²) over a few random vectors sent back from the outputs as g: about
            1 in general, 0 where the network does not change with the scale of W. NaN where no normalisation follows.
        along: the same of the gradient of the batch's mean loss, wherever there is one.
        uses: what the network does with a parameter, read off the autograd graph: `"product"` (a matrix product or
            convolution with it), `"convolution"` (for the latter, too), `"output"` (one that writes the outputs),
            `"lookup"` (of its rows), `"branch"` (a gain of a residual branch), `"sum"` (with what is no parameter, as
            of positions), `"one key"` (into attention to one key alone); empty for others, such as a class token.
    """

    name: str
    owners: tuple[str, ...]
    attribute: str
    kind: str
    shape: tuple[int, ...]
    numel: int
    fan_in: int = 0
    fan_out: int = 0
    kernel: int = 1
    groups: int = 1
    trainable: bool = True
    weight_sq: float = 0.0
    mean: float = 0.0
    median_sq: float = math.nan
    unlike: float = 1.0
    kurtosis: float = math.nan
    largest: float = 0.0
    zeros: float = 0.0
    gradient: Gradient = "some"
    gradient_sq: float = 0.0
    cancelled: float = 0.0
    rows: int = 0
    radial: float = math.nan
    along: float = math.nan
    uses: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Signals(Record):
    """Signals of a network on some examples of a batch.

    Attributes:
        examples: how many there were.
        initial_loss, initial_loss_stderr, typical_loss: mean loss, its standard error over the examples, their median.
        chance_loss: loss of the best constant guess from the targets alone; or of the mean output; NaN without.
        loss_kind: `"cross-entropy"`, `"mse"` or `"other"`.
        scaled_loss: of a cross-entropy or mean squared error, the least at the outputs, their half, quarter and so on,
            where the gradient leaves room for much less than a constant guess.
        output_sq, output_variance, output_varies: E[y²], E[y²] − E[y]², and the share of E[y²] that varies.
        even: whether outputs (B, T, ...) are the same at all positions, whose targets are not, also after a step.
        unplaced: whether they are the same where all that is read of a place is, whose targets are not.
        orderless: whether those of pictures are the same when parts of these change places.
        bounded, floor: the operation that ends the network, or those one after the other that bound its outputs, and by
            how much of the chance loss they keep the loss above what free outputs could reach.
        broadcast, would_broadcast: shapes of outputs and targets, or what is made of them, that the loss joins; that
            `nn.MSELoss` would, where `loss="mse"` reads each output with its own target.
        logits: the operation in the loss that takes the outputs for logits of yes or no.
        takes, remedy: what is told of an operation in the loss, as of probabilities for logits, and what to do.
        felt, stalled: shares of examples that get a gradient, and that get none where their loss is high.
        padded: share of the places that the loss counts, and that read and have to tell one token.
        outweighs: what a nat of Gaussian codes costs over what it can gain; infinite if a term without targets falls.
        summed: gradient in tensors of whose examples the loss is the sum over that in others, of which it is the mean.
        dropped, dropped_share: dropouts of nearly everything, or of the outputs, and the share that they drop.
        level: share of the loss that the mean of each example would take away, which outputs do not follow; else 0.
        pull: how far small outputs are to go: rms of an example's loss gradient in a piece, or the loss over its slope.
        fitted_loss: the least loss that steps of training on this batch led to, where they were taken.
        fitted: the gravest finding about the network after those steps, if that loss is about the first one.
        stuck: whether another loss sends the outputs no gradient, though it is lower for others.
        settled: by how much of itself the loss rises once layers at an end of tanh or sigmoid write numbers of size 1.
        solved: whether the loss is zero, with no gradient that Adam would follow, and not so at other weights.
        swing: the largest change of another loss, relative to itself, as outputs are random, large or fitted.
        learnable: by how much of its size the loss falls below that of constant outputs, once each example has its own.
        agrees: correlation of the targets with how outputs move as such a loss falls.
        chance_sq: E[y²] of that constant, for other losses.
        unbounded, plunges: whether it falls without end as outputs rise, or along its gradient, ever faster.
        beyond: share of the targets outside of the range of the operation that bounds the outputs.
        apart: how far outputs are from targets, root mean square, where the loss is the mean distance; else 0.
        undefined: chance of a batch of such examples alone as have no finite loss of their own.
        shown: of a sequence model, which token the loss wants of each output: "ahead", the next one, which it sees
            ("next" of numbers), "own", the last one that it sees, "kept", its own where few are to be guessed, "skips",
            the one after the next, or "past", of targets that are inputs, the one before.
        unmoved: how many outputs, of few or alike for all examples, depend on no parameter, though the loss pulls them.
        unregistered: names of tensors that the outputs depend on and that are no parameters.
        sources: paths of the layers that wrote the outputs.
        one_frequency: name of a buffer (..., T, d) that changes along T and has two different columns at most.
        unseen: a part of the inputs that does not reach the outputs, in words, and the table that looks it up, if any.
        meeting: the layer behind which examples meet outside of normalisations, and whether in their order.
        all_change, by_place: whether all examples of a few have other outputs when alone; whether their places in the
            batch matter, and not what the other examples are.
        poured: shapes of a view of the inputs that mixes their axes.
        repeated: share of the examples with exactly the outputs of another one, whose inputs are others.
        sent_back: what the gradients are of: `"loss"`, or `"noise"` where the loss has none (all outputs are 0).
        fixed_norms: batch normalisations that use running statistics, and so normalise nothing.
        fresh_norms: those of them that have never seen a batch.
        layers: modules with parameters, in the order of their first calls.
        parameters: all of them, by the model's order.
    """

    examples: int
    initial_loss: float
    initial_loss_stderr: float
    chance_loss: float
    loss_kind: str
    output_sq: float
    output_variance: float
    output_varies: float = math.nan
    even: bool = False
    unplaced: bool = False
    orderless: bool = False
    scaled_loss: float = math.nan
    bounded: str = ""
    floor: float = math.nan
    broadcast: str = ""
    would_broadcast: str = ""
    logits: str = ""
    takes: str = ""
    remedy: str = ""
    felt: float = 1.0
    stalled: float = 0.0
    padded: float = 0.0
    outweighs: float = math.nan
    summed: float = 0.0
    dropped: str = ""
    dropped_share: float = 0.0
    level: float = 0.0
    pull: float = math.nan
    apart: float = 0.0
    fitted_loss: float = math.nan
    fitted: Finding | None = None
    stuck: bool = False
    solved: bool = False
    settled: float = 0.0
    swing: float = math.nan
    learnable: float = math.nan
    agrees: float = math.nan
    chance_sq: float = math.nan
    unbounded: bool = False
    plunges: bool = False
    beyond: float = 0.0
    undefined: float = 0.0
    shown: str = ""
    unmoved: int = 0
    unregistered: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    one_frequency: str = ""
    unseen: tuple[str, ...] = ()
    meeting: tuple[str, bool] | None = None
    typical_loss: float = 0.0
    all_change: bool = False
    by_place: bool = False
    poured: str = ""
    repeated: float = 0.0
    sent_back: str
    fixed_norms: int
    fresh_norms: int
    layers: tuple[LayerSignals, ...]
    parameters: tuple[ParameterSignals, ...]
