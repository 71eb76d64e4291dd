"""The diagnostic: capture, moments, curvature, report."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from torch import Tensor, nn

from hessdiag.arguments import check_whole, one_line
from hessdiag.curvature.measurement import Settings
from hessdiag.data.batch import BatchDim, Inputs
from hessdiag.data.memory import MemoryBudget
from hessdiag.data.stream import Tally, batches_for
from hessdiag.derivatives.losses import LossFunction
from hessdiag.diagnosis.loss_calls import judged
from hessdiag.diagnosis.measure import bounded, measure, report_of
from hessdiag.errors import REFUSALS, CoupledError, HessdiagError
from hessdiag.loading.first_call import first_call
from hessdiag.loading.prepare import Prepared
from hessdiag.models.sources import ModelSource
from hessdiag.network.preserve import preserve_state
from hessdiag.parallel.processes import ALONE, default_group
from hessdiag.parallel.progress import Progress, showing
from hessdiag.results.report import Report

QUICK_EXAMPLES = 64
"""Of an iterable a quick diagnosis reads batches until it has seen so many examples."""


def diagnose(
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None = None, *,
    loss: str | LossFunction | None = None, class_dim: int | None = None, output: str | int | None = None,
    batch_dim: BatchDim = 0, examples: str = "batch", matrix: str = "ggn", per: str = "example", mode: str = "train",
    method: str = "auto", rtol: float | None = None, seed: int = 0, max_products: int = 400,
    max_memory: int | str | None = None, batches: int | None = None, blocks: str | Sequence[str] | None = None,
    quick: bool = False, fit: bool = False, signals: bool = True, distributed: bool = False, progress: Progress = None,
) -> Report:  # fmt: skip
    """Measure curvature, scaling factor and weight-gradient ratio of every block of a model on its data.

    The model is left exactly as it was: weights, buffers, `.grad`, modes, hooks and random state, also after an error.

    Args:
        model: any module that maps a batch to one tensor (B, *outputs).
        inputs: a tensor (B, ...), a tuple of positional or a dict of keyword arguments, which may be nested; or an
            iterable of batches, such as a `DataLoader`, each of which is one of these or `(inputs, targets)`. It is
            read once, batch by batch, and examples weigh alike; only the batch view holds them all at once. Batches of
            other sizes than the first are left out. Of a dict the model gets what it takes; labels are the targets.
        targets: what the loss compares with; the first dimension runs over examples. Of several tensors in a tuple,
            list or dict the loss is a function of the outputs and of such a structure.
        loss: `"random-quadratic"` (yᵀRy, the paper's), `"cross-entropy"`, `"mse"`, `"model"` (which the model returns),
            or a callable `(outputs, targets) -> scalar` of the outputs, or of whatever the model returns, in all of
            whose tensors it is differentiated then. By default cross-entropy where targets are integers, mean squared
            error where they are floating-point numbers, and without targets the random quadratic; where the inputs hold
            labels, and the model returns one of the two of them, that.
        class_dim: dimension of the outputs that runs over the classes of `"cross-entropy"`, for where the targets fit
            two: 1 as in torch, or -1 for sequences (B, T, V).
        output: name or position of the output to measure, where the model returns several.
        batch_dim: dimension of the inputs that runs over the examples, such as 1 of sequences (T, B, ...); or that of
            each tensor, None where all examples share it, as `in_dims` of `torch.vmap`: `(0, (1, 1))`.
        examples: `"one"` where all inputs together are one example, as a graph or a set is; sparse tensors are of all.
        matrix: `"ggn"` (generalised Gauss-Newton) or `"hessian"`.
        per: `"example"` averages ‖G^(b)‖²/P over each example's own matrix, as the theory has it; `"batch"` takes the
            matrix and the gradient of the batch-mean loss, and γ/B.
        mode: `"train"` measures the network as it trains, whatever mode it is in: nothing is dropped, and batch
            normalisation takes the statistics of the batch, through which derivatives go; `"eval"` as for inference.
        method: `"exact"`, `"sketch"`, `"probe"`, or `"auto"` to pick; the report says which ran and why.
        rtol: relative standard error of the diagonal that random sampling is to reach; None takes a fixed number of
            directions, and the report has their standard error.
        seed: of the loss and of all random directions.
        max_products: matrix-vector products that sampling may spend on one block (per example).
        max_memory: memory to take beside model and data, in bytes or as `"4GiB"`; by default half of what is free.
        batches: how many batches of an iterable to read; None reads all, or with `quick` as many as hold 64 examples.
        blocks: patterns of the names of parameters, such as `"layers.0.*"`: measure the curvature and moments of these
            alone, at the cost of these. The signals are those of the whole network.
        quick: measure signals and moments alone, and no curvature: every finding that needs none, in a few gradients.
            Without `matrix`, `method` and `rtol` it is so where there is no curvature; `method_reason` says why.
            A loss that compares examples is then read per batch, a model that runs only on the whole batch as one
            example, and a loss that draws random numbers with the same ones at each call.
        fit: also train copies of the weights on the first examples of the batch, for 40 steps of Adam at each of two
            learning rates, and find it out (HD121) where the loss hardly falls.
        signals: also measure the signals that run through the network, and apply the rules to them; without them, no
            finding is made and the verdict is undecided.
        distributed: share the examples with the other processes of torch.distributed's default group. All call this
            with the same model and all of the data, and all return the same report. The batch view is not shared.
        progress: None shows a line in a terminal after a second, and elsewhere on stderr one after ten seconds and then
            every thirty; True one for every step; False is silent; a function is called with the name of each step.

    Returns:
        A `Report`; printing it shows the table.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be measured right; one sentence says why.

    >>> import torch
    >>> report = diagnose(nn.Linear(2, 1, bias=False), torch.ones(1, 2), loss=lambda y, t: y.square().sum())
    >>> report.blocks[0].avg_sq_singular_value  # G = 2 x x^T, so that ‖G‖² / P = 4 · 2² / 2
    8.0
    """
    settings = Settings(
        matrix=matrix, per=per, mode=mode, method=method, rtol=rtol, max_products=max_products, seed=seed,
        class_dim=class_dim, output=output, quick=quick,
    )  # fmt: skip
    if batches is not None:
        check_whole("batches", batches, least=1)
    held, lost = list[Any](), list[bool]()  # of an iterator's batches those that are there again, and whether others

    def measured(settings: Settings, model: nn.Module = model, targets: Any = targets, loss: Any = loss) -> Report:
        tally, group = Tally(), default_group() if distributed else ALONE
        one_or_more = "either" if settings.quick and examples == "batch" else examples
        enough = QUICK_EXAMPLES if settings.quick and batches is None else None
        read: dict[str, Any] = {"batch_dim": batch_dim, "examples": one_or_more, "output": output}
        read |= {"most": batches, "enough": enough}
        whole = inputs
        if isinstance(inputs, Iterator):
            whole = chain([*held], _kept(inputs, held, lost, every=per == "batch"))
        given = batches_for(model, whole, targets, loss=loss, **read, tally=tally, whole=per == "batch")
        first, title = next(given), f"measuring {type(model).__name__}"
        state = preserve_state(model, seed=seed, mode=mode, call=partial(first.look, model, per), loss=loss)
        with state, showing(progress, title=title):
            ready = first_call(model, first, given, loss, settings)
            problem, settings, weight = ready.problem, ready.settings, next(iter(model.parameters()))
            if distributed:
                group.check_alike({"weights": [*model.parameters()], "data": problem.batch.tensors})
            problem = problem.only(blocks)
            shared = settings.per == "example" and not problem.coupled
            ran = {"per": settings.per, "device": weight.device.type, "dtype": str(weight.dtype).removeprefix("torch.")}
            settings = replace(settings, per="example") if problem.batch.as_one else settings
            memory = MemoryBudget.of(max_memory, weight.device)
            memory = memory if max_memory is None else bounded(memory, problem)
            mine = (group if shared else ALONE).shares(ready.stream)
            how: dict[str, Any] = {"signals": signals, "fit": fit, "whole": not shared or group.size == 1}
            gathered = group.gather(lambda: measure(problem, mine, settings, memory, like=ready.y, **how))
            found = [each for there in gathered for each in there] if shared else gathered[0]
            return report_of(settings, problem, found, tally, **ran)

    try:
        return measured(settings)
    except REFUSALS as error:
        asked = not signals or distributed or (matrix, method, rtol) != ("ggn", "auto", None)
        if asked or lost:
            raise
        first, part, named = error, replace(settings, quick=True), getattr(loss, "__name__", type(loss).__name__)
    tries: list[Attempt] = [] if quick else [(Exception, lambda: measured(part))]
    if per == "example":  # of what belongs together, as outputs that are as long as the longest of them
        tries.append((CoupledError, lambda: measured(replace(part, per="batch"))))
    differentiates = re.search("does not require grad|in the graph", str(first))  # in what its outputs are made of
    if differentiates and callable(loss) and isinstance(inputs, Tensor | tuple | Mapping):
        judge = judged(model, loss, targets)
        tries.append((Exception, lambda: replace(measured(part, judge, None, "model"), loss=named)))
    return _instead(first, tries)


def _kept(given: Iterator[Any], held: list[Any], lost: list[bool], *, every: bool) -> Iterator[Any]:
    """The batches, of which the first or `every` one is noted, and else that there were others."""
    for each in given:
        if every or not held:
            held.append(each)
        else:
            lost.append(True)
        yield each


Attempt = tuple[type[Exception], Callable[[], Report]]  # after which error to measure what


def _instead(first: Exception, tries: Sequence[Attempt]) -> Report:
    """What can be measured, with the first reason why not all can; else that, or where examples meet the next one."""
    reason, raised = str(first) if isinstance(first, HessdiagError) else one_line(first), [first]
    for after, attempt in tries:
        try:
            if isinstance(raised[-1], after):
                return replace(attempt(), method_reason=reason)
        except REFUSALS as error:  # noqa: PERF203, of which there are two
            if after is Exception:
                raised.append(error)
    told = raised[1] if isinstance(first, CoupledError) and len(raised) > 1 else first
    if isinstance(told, HessdiagError):
        raise told
    raise HessdiagError(f"the model cannot be measured ({reason})") from first


def diagnose_prepared(prepared: Prepared, source: ModelSource, **options: Any) -> Report:
    """Diagnose what `prepare` made of a source; the report says where weights and data came from."""
    report = diagnose(prepared.module, prepared.batches(), **prepared.how, **options)
    return replace(
        report, model=source.name, init=prepared.init, data=prepared.data, batches_read=prepared.tally.read,
        batches_given=prepared.tally.given,
    )  # fmt: skip
