"""The one place that changes how PyTorch works while a model is measured.

What PyTorch keeps by thread is set by thread: grad, inference and autocast mode, and the formulas that stand for
operations whose derivatives PyTorch gets wrong. What it keeps for the whole process is set by the first measurement and
restored by the last: precision, cuDNN for recurrent layers, compilation, one warning filter. The global random state is
left alone, but for a model that draws random numbers when it is called: such models are measured one after the other.
"""

import pickle
import random
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hessdiag.data.seeds import calls_here, in_calls
from hessdiag.errors import HessdiagError

SLOW_VMAP = ("ignore", re.compile("There is a performance drop"), UserWarning, None, 0)  # users can do nothing about it


@contextmanager
def measuring(
    model: nn.Module, *losses: nn.Module, seed: int | None = None, call: Callable[[], object] | None = None,
    undo: Callable[[], None] = lambda: None,
) -> Iterator[None]:  # fmt: skip
    """Take derivatives inside this context: gradients on; TF32, autocast and compilation off.

    With a seed, the global random state is seeded, and restored afterwards; where `call` draws no random numbers, it is
    left alone. Where it does it is stopped there, and `undo` called: a model may have written half of what it writes.

    >>> with torch.no_grad(), measuring(nn.Linear(2, 2)):
    ...     torch.is_grad_enabled()
    True
    """
    if (default := torch.get_default_device().type) != "cpu":
        raise HessdiagError(f"torch's default device is {default}: measure inside `with torch.device('cpu'):`")
    plain = _without_cudnn if any(isinstance(module, nn.RNNBase) for module in model.modules()) else nullcontext()
    with _process_wide, plain, torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
        for device in sorted({"cpu", *(parameter.device.type for parameter in model.parameters())}):
            stack.enter_context(torch.autocast(device, enabled=False))
        calls = _Calls(nn.ModuleList([model, *losses]))
        stack.callback(calls.put_back)
        stack.enter_context(in_calls(_Formulas(FORMULAS, calls)))
        if seed is not None and (call is None or draws_random_numbers(call)):
            calls.put_back()
            undo()
            stack.enter_context(seeded_rng(seed))
        elif calls.draws:
            stack.enter_context(_drawing)
        try:
            yield
        except RuntimeError as error:  # of torch.func, which an interrupt leaves amid a transform
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise


class _Shared:
    """A setting of the whole process: the first who enters makes it, the last who leaves restores it."""

    def __init__(self, setting: Callable[[], AbstractContextManager[None]]) -> None:
        self.setting, self.lock, self.users, self.made = setting, threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                self.made.enter_context(self.setting())
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.made.close()


@contextmanager
def _settings() -> Iterator[None]:
    compiles = "torch._dynamo" in sys.modules  # else nothing is compiled yet, and importing it takes seconds
    with _full_precision(), torch.compiler.set_stance("force_eager") if compiles else nullcontext():
        filters: Any = warnings.filters
        filters.insert(0, SLOW_VMAP)
        try:
            yield
        finally:
            if SLOW_VMAP in warnings.filters:  # another thread may have set them all
                warnings.filters.remove(SLOW_VMAP)  # type: ignore[attr-defined]


_process_wide = _Shared(_settings)
# Its recurrent layers have no second derivatives.
_without_cudnn = _Shared(lambda: torch.backends.cudnn.flags(enabled=False))


@contextmanager
def _full_precision() -> Iterator[None]:
    """No TF32, in which CUDA's convolutions are by default and which costs three digits, and no bfloat16."""
    asked = "highest"  # or set backend by backend
    with suppress(RuntimeError):  # once the newer settings were used, torch refuses to read the older
        asked = torch.get_float32_matmul_precision()
    if lower := asked != "highest":
        torch.set_float32_matmul_precision("highest")
    on_cpu = [getattr(torch.backends.mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    holders = [torch.backends.cudnn, *([] if lower else [torch.backends.cuda.matmul])]
    holders += [each for each in on_cpu if hasattr(each, "fp32_precision")]
    saved = [_setting(holder) for holder in holders]
    for holder, (name, _) in zip(holders, saved, strict=True):
        setattr(holder, name, False if name == "allow_tf32" else "ieee")
    try:
        yield
    finally:
        for holder, (name, value) in zip(holders, saved, strict=True):
            setattr(holder, name, value)
        if lower:
            torch.set_float32_matmul_precision(asked)


def _setting(holder: Any) -> tuple[str, Any]:
    """Name and value of the setting; oneDNN's has the newer name alone."""
    with suppress(RuntimeError, AttributeError):
        return "allow_tf32", holder.allow_tf32
    return "fp32_precision", holder.fp32_precision


# --- Random state ----------------------------------------------------------------------------------------------------

_drawing, _here = threading.RLock(), threading.local()


@contextmanager
def seeded_rng(seed: int) -> Iterator[None]:
    """Seed the global generators, and restore them: of the CPU and of the CUDA devices in use."""
    with _drawing, torch.random.fork_rng(devices=_in_use()):
        before, _here.seeded = getattr(_here, "seeded", False), True
        try:
            seed_torch(seed)
            yield
        finally:
            _here.seeded = before


def seed_again(seed: int) -> None:
    """Seed the global generators inside `seeded_rng`; elsewhere they are not this thread's, and nothing draws."""
    if getattr(_here, "seeded", False):
        seed_torch(seed)


def seed_torch(seed: int) -> None:
    """Seed the CPU and the CUDA devices in use. `torch.manual_seed` asks for devices of every kind, and keeps a stack
    trace at each call for those not in use.
    """
    torch.default_generator.manual_seed(seed)
    for device in _in_use():
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _in_use() -> list[int]:
    return list(range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0))  # type: ignore[no-untyped-call]


def draws_random_numbers(call: Callable[[], object]) -> bool:
    """Whether a call reaches an operation that draws random numbers; none is drawn. Also where the call fails.

    >>> draws_random_numbers(lambda: torch.rand(2)), draws_random_numbers(lambda: torch.ones(2).exp())
    (True, False)
    """
    refuses = _RefusesToDraw()  # type: ignore[no-untyped-call]
    with suppress(Exception), refuses:  # raised by `refuses`, or by the user's code, which is called again anyway
        call()
        return refuses.asked
    return True


class _RefusesToDraw(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fail at the first operation that draws random numbers."""

    asked = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to be skipped by the compiler, the compiler would have to be imported: two seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and not (kwargs and kwargs.get("generator")):
            self.asked = True
            raise RuntimeError("random numbers are drawn")
        return func(*args, **(kwargs or {}))


# --- Forward mode ----------------------------------------------------------------------------------------------------

_forward_mode = threading.RLock()


def jvp(function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """`torch.func.jvp`, one thread at a time: torch counts the levels of forward mode for the whole process."""
    with _forward_mode:
        return torch.func.jvp(function, primals, tangents)


# --- Operations whose derivatives torch gets wrong -------------------------------------------------------------------


WATCHED = 8  # calls of a model or its loss, in which one draws that ever does


class _Calls:
    """What the calls of a model and its loss find, as they do again and again what training does once. Buffers are as
    the first call left them, as codes that follow what they are compared with, and weights whose `.data` it wrote, as
    norms that are kept below a largest one or a teacher that follows; and where calls draw from generators of Python or
    NumPy, as whether to force a teacher, or from the model's own, these are as the first one found them. So are tensors
    in plain attributes, as a hidden state that a recurrent network takes up again, ahead of each call of the model: its
    loss may read what that left there. Where the first call set others too, they say that it was one.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.draws, self.first, self.before = model, False, WATCHED, list[bytes]()
        self.weights = [(p, p.data, p.detach().clone()) for p in model.parameters() if not is_lazy(p)]
        self.versions = [(n.partition(".")[2], p, p._version) for n, p in model.named_parameters()]
        self.python = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
        self.plain = [(vars(module), dict(vars(module))) for module in self.python]
        self.held: list[tuple[dict[str, Any], set[str], dict[str, Any]]] = []
        self.named: list[tuple[dict[str, Tensor | None], dict[str, Tensor | None]]] = []
        self.kept: list[tuple[Tensor, Tensor]] | None = None
        self.states = [(read, write, pickle.dumps(read())) for read, write in _generators(model)]

    def start_over(self) -> None:
        for now, names, before in self.held:
            for name in names:
                now.pop(name, None)
            now.update({name: before[name] for name in names & before.keys()})

    def begin(self) -> None:
        for _, write, state in self.states if self.draws else ():
            write(pickle.loads(state))
        self.before = [pickle.dumps(read()) for read, _, _ in self.states if not self.draws and self.first]

    def end(self) -> None:
        pairs = zip(self.states, self.before, strict=False)
        self.draws = any(pickle.dumps(read()) != before for (read, *_), before in pairs) or self.draws
        self.first -= bool(self.first)
        changed = [name for name, p, version in self.versions if p.requires_grad and p._version != version]
        if self.kept is None:
            self.held = [(now, _state(now, before), before) for now, before in self.plain]
            self.weights = [each for each in self.weights if _differs(*each)]
            held = {id(p) for p in self.model.parameters()}
            changed += [name for name, p, _ in self.versions if id(p) not in held]
        if changed:
            message = f"the model's forward pass changes its own parameter {changed[0]!r}: measure a copy, call it"
            raise HessdiagError(f'{message} once before, if that initialises it, or pass mode="eval" (--eval)')
        if self.kept is None:
            self.named = [(module._buffers, dict(module._buffers)) for module in self.python]
            moving = [*self.model.buffers(), *(p for p, *_ in self.weights)]
            self.kept = [(tensor, tensor.detach().clone()) for tensor in moving]
        for buffers, names in self.named:
            buffers.update(names)
        refill(self.kept)

    def put_back(self) -> None:
        """Weights and generators as the first call found them."""
        for _, write, state in self.states if self.draws or self.kept is None else ():
            write(pickle.loads(state))
        for p, data, before in self.weights:
            if _differs(p, data, before):
                p.data = data
                data.copy_(before)


def refill(kept: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Put back what tensors held; also without `no_grad`, which an interrupt might leave on."""
    for tensor, before in kept:
        if tensor.shape != before.shape:
            tensor.resize_(before.shape)
        if not torch.equal(tensor, before):  # leave untouched ones' version counters alone
            tensor.data.copy_(before)


def _generators(model: nn.Module) -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """How to read and write the states of Python's and NumPy's generators, and of those that modules hold."""
    held = [value for module in model.modules() for value in vars(module).values()]
    numpys = [value.bit_generator for value in held if isinstance(value, np.random.Generator)]
    return [
        (random.getstate, random.setstate),
        (partial(np.random.get_state, legacy=False), np.random.set_state),
        *((each.getstate, each.setstate) for each in held if type(each) is random.Random),
        *((each.get_state, each.set_state) for each in held if isinstance(each, torch.Generator)),
        *((partial(getattr, each, "state"), partial(setattr, each, "state")) for each in numpys),
    ]


def _state(now: Mapping[str, Any], before: Mapping[str, Any]) -> set[str]:
    """Names of the attributes that a call has set, where all hold tensors now."""
    changed = {name for name, value in now.items() if name not in before or value is not before[name]}
    tensors = [any(isinstance(each, Tensor) for each in tree_leaves(now[name])) for name in changed]
    return changed if all(tensors) else set()


def _differs(p: Tensor, data: Tensor, before: Tensor) -> bool:
    alike = torch.equal(p, before) or torch.allclose(p, before, 0.0, 0.0, equal_nan=True)
    return p.data_ptr() != data.data_ptr() or not alike


class _Formulas(TorchFunctionMode):
    """Call formulas in place of some operations of torch, in this thread alone, while a model or a loss is called.
    Found with torch 2.13 on the CPU; each has a test that compares values and derivatives. While it is active,
    attention does without its kernels for inference, which have no derivatives, and activation checkpoints keep what
    they would compute again, by when the hooks of a measurement are gone. Dropout is off.
    """

    def __init__(self, formulas: Mapping[Any, Callable[..., Any]], calls: _Calls | None = None) -> None:
        super().__init__()
        self.formulas, self.calls = formulas, calls or calls_here()

    def __enter__(self) -> Any:
        if self.calls:
            self.calls.begin()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self.calls and error[0] is None:
            self.calls.end()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call, given, hooked = self.formulas.get(func, func), kwargs or {}, _saving_is_hooked()
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):  # by the model itself, which puts it back
                torch.set_autocast_enabled(device, False)
        indexing = torch.cuda.is_initialized() and INDEXING.search(func.__name__)  # type: ignore[no-untyped-call]
        if not hooked and not indexing:
            return call(*args, **given)
        hooks = saved_tensors_hooks(lambda saved: saved, lambda saved: saved) if hooked else nullcontext()
        with hooks, _WithinRange() if indexing else nullcontext():  # type: ignore[no-untyped-call]
            return call(*args, **given)


INDEXING = re.compile("__[gs]etitem__|gather|scatter|index|take|embedding|entropy|nll_loss|multinomial|bernoulli|hot")


class _WithinRange(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuse what is out of range, as a CPU does: a kernel that meets it ends all that the process computes on CUDA. A
    loss that indexes by the examples of its batch may do so, when it is called with fewer.
    """

    _should_skip_dynamo = _RefusesToDraw._should_skip_dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for numbers, least, most in _ranges(func._schema.name.removeprefix("aten::").rstrip("_"), args):
            if not numbers.is_meta and not bool(((numbers >= least) & (numbers <= most)).all()):
                raise IndexError(f"{func._schema.name}: all elements should be between {least} and {most}")
        return func(*args, **(kwargs or {}))


def _ranges(name: str, args: tuple[Any, ...]) -> Iterator[tuple[Tensor, float, float]]:
    """Numbers among the arguments of an operation, the least that it takes, and the largest."""
    x, *rest = args or (None,)
    if name in ("index", "index_put", "_index_put_impl"):
        dim = 0
        for each in rest[0]:
            mask = each is not None and each.dtype in (torch.bool, torch.uint8)
            if each is not None and not mask:
                yield each, -x.shape[dim], x.shape[dim] - 1
            dim += each.dim() if mask else 1
    elif name in ("binary_cross_entropy", "bernoulli"):
        yield from ((each, 0, 1) for each in args[:2] if isinstance(each, Tensor))
    elif name == "multinomial":
        kind = torch.finfo(x.dtype)
        yield from ((x, 0, kind.max), (x.sum(-1), kind.tiny, kind.max))
    elif name in ("embedding", "_embedding_bag"):
        yield rest[0], 0, len(x) - 1
    elif name in ("nll_loss_forward", "nll_loss2d_forward"):
        yield rest[0].where(rest[0] != rest[3], 0), 0, x.shape[min(1, x.dim() - 1)] - 1
    elif len(rest) > 1 and type(rest[0]) is int and isinstance(rest[1], Tensor) and x.dim():  # gather, scatter, ...
        yield rest[1], 0, x.shape[rest[0]] - 1


def _saving_is_hooked() -> bool:
    """Whether what operations save goes through hooks; older versions of torch do not say, but allow none here."""
    told = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return told(False) is not None if told else not torch._C._are_functorch_transforms_active()


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / ‖v‖, norms over every dimension but `dim`, or over all with -1. The second derivatives of torch's own
    kernel are wrong: its Hessian is not symmetric.
    """
    return v * (g / v.square().sum([axis for axis in range(v.dim()) if axis != dim], keepdim=True).sqrt())


def _prelu(input: Tensor, weight: Tensor) -> Tensor:  # named as torch has them
    """x where positive, else a x, with one a for all channels or one for each. Torch's own backward pass is wrong, or
    fails, inside two vmaps.
    """
    slope = weight.view(-1, *[1] * (input.dim() - 2)) if weight.numel() > 1 else weight.view(())
    return torch.where(input > 0, input, slope * input)


def _as_images(convolution: Callable[..., Tensor], **neutral: int) -> Callable[..., Tensor]:
    """A convolution of sequences as that of images one pixel high; `neutral` has its arguments, as they are there.
    Torch's own second derivatives fail in forward mode where it takes oneDNN's kernels, as for batches in float32. What
    it writes lies as torch's does, whatever the inputs: models take views of it.
    """

    def convolved(input: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        how = dict(zip(neutral, args, strict=False)) | kwargs
        for name in how.keys() - {"groups"}:
            given = how[name]
            how[name] = given if isinstance(given, str) else (neutral[name], *np.atleast_1d(given).tolist())
        return convolution(input.unsqueeze(-2), weight.unsqueeze(-2), bias, **how).squeeze(-2).contiguous()

    return convolved


def _batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Normalise a batch of one by the formula; running statistics are left as they are. There torch's own backward pass
    is wrong for gradients that come transposed, as from `flatten(2).transpose(1, 2)`.
    """
    given = _norm_arguments(args, kwargs)
    if len(input) != 1:
        fixed = {} if not given["training"] else {"running_mean": None, "running_var": None}
        return F.batch_norm(input, **given | fixed)
    return _normalised(input, given, own=given["training"])


def _instance_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Normalise a batch of one by the formula: it is torch's batch normalisation inside."""
    if len(input) != 1:
        return F.instance_norm(input, *args, **kwargs)
    given = _norm_arguments(args, kwargs, training=True)
    return _normalised(input, given, own=given.get("use_input_stats", given["training"]))


def _norm_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], *, training: bool = False) -> dict[str, Any]:
    """What a normalisation is called with, by the names of `F.batch_norm`; `training` is its default."""
    names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    usual = dict(zip(names, (None, None, None, None, training, 0.1, 1e-5), strict=True))
    return usual | dict(zip(names, args, strict=False)) | kwargs


@contextmanager
def fixed_statistics() -> Iterator[list[int]]:
    """Let batch normalisation take no statistics of the batch: what else makes examples meet can be told apart.

    What is given is for each normalisation that is called of how many numbers a channel it would take some.

    >>> from hessdiag.data.seeds import user_code
    >>> with fixed_statistics() as taken, user_code():
    ...     y = F.batch_norm(torch.ones(2, 3), None, None, training=True)
    >>> taken
    [2]
    """
    taken: list[int] = []

    def fixed(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = _norm_arguments(args, kwargs)
        taken.append(input.numel() // input.shape[1] if given["training"] else 0)
        if given["running_mean"] is None:
            given |= {"running_mean": input.new_zeros(input.shape[1]), "running_var": input.new_ones(input.shape[1])}
        return _normalised(input, given, own=False)

    with in_calls(_Formulas(FORMULAS | {F.batch_norm: fixed})):
        yield taken


@contextmanager
def statistics_of(model: nn.Module, call: Callable[[], object]) -> Iterator[None]:
    """Let batch normalisation take the statistics, as constants, that it takes in `call` of the model."""
    taken, left = list[tuple[Tensor, Tensor]](), list[tuple[Tensor, Tensor]]()

    def take(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if (given := _norm_arguments(args, kwargs))["training"]:
            x, axes = input.detach(), [0, *range(2, input.dim())]
            taken.append((x.mean(axes), x.var(axes, correction=0)))
        return _normalised(input, given, own=given["training"])

    def hold(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if (given := _norm_arguments(args, kwargs))["training"]:
            given["running_mean"], given["running_var"] = left.pop(0)
        return _normalised(input, given, own=False)

    with in_calls(_Formulas(FORMULAS | {F.batch_norm: take})):
        call()
    from_the_first = model.register_forward_pre_hook(lambda *_: left.__setitem__(slice(None), taken))
    with from_the_first, in_calls(_Formulas(FORMULAS | {F.batch_norm: hold})):
        yield


def _normalised(x: Tensor, given: dict[str, Any], *, own: bool) -> Tensor:
    """(x - mean) / sqrt(variance + eps) · weight + bias of x (B, C, ...), with its channels' own moments or fixed."""
    axes, names = [0, *range(2, x.dim())], ("running_mean", "running_var", "weight", "bias")
    shape = (-1, *[1] * (x.dim() - 2))
    mean, var, weight, bias = (None if given[name] is None else given[name].view(shape) for name in names)
    if own or mean is None or var is None:
        mean = x.mean(axes, keepdim=True)
        var = (x - mean).square().mean(axes, keepdim=True)
    y: Tensor = (x - mean) * (var + given["eps"]).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Attend by plain products: the fused kernels have no second derivatives."""
    names = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False)) | kwargs | {"dropout_p": 0.0}
    mask = given.get("attn_mask")
    if mask is not None and mask.dtype == torch.bool:  # which the plain products would add, as 0 and 1
        given["attn_mask"] = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
    y: Tensor = torch.ops.aten._scaled_dot_product_attention_math.default(query, key, value, **given)[0]
    as_given = query.dim() < 4 or query.is_contiguous()  # else it lies as queries do: models take views of it
    return y if as_given else y.transpose(1, 2).contiguous().transpose(1, 2)


_TORCHS = F.multi_head_attention_forward
# As torch has it, where rows of which all is masked attend to nothing, in plain products.
_NAMES = vars(F) | {"scaled_dot_product_attention": _attention, "has_torch_function": lambda _: False}
_attend_of_torch = FunctionType(_TORCHS.__code__, _NAMES, argdefs=_TORCHS.__defaults__)


def _bind(tensor: Tensor, value: Tensor) -> None:
    """Bind other data, as `module.to` does; but not amid a transform, where torch would crash: it is done without."""
    if torch._C._are_functorch_transforms_active():
        raise RuntimeError("a forward pass binds .data")
    tensor.data = value


DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout)
FORMULAS: dict[Any, Callable[..., Any]] = {
    torch._weight_norm: _weight_norm,
    torch.prelu: _prelu,
    F.conv1d: _as_images(F.conv2d, stride=1, padding=0, dilation=1, groups=1),
    F.conv_transpose1d: _as_images(F.conv_transpose2d, stride=1, padding=0, output_padding=0, groups=1, dilation=1),
    F.batch_norm: _batch_norm,
    # all of it, in another tensor: what is written to it later must not change what was read before
    **dict.fromkeys(DROPOUTS, lambda input, p=0.5, training=True, inplace=False: input if inplace else input.clone()),
    F.group_norm: torch.group_norm,  # of one example also groups of one number
    F.instance_norm: _instance_norm,
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: lambda *args, **kwargs: _attend_of_torch(*args, **kwargs | {"training": False}),
    torch.Tensor.data.__set__: _bind,  # type: ignore[attr-defined]
}
