"""The signals of a network: the size of everything that runs through it on one batch, and of its weights.

They are noted in a pass in which moments are measured: hooks on every module with parameters of its own, normalisations
and embeddings too, look at what it reads and writes, and one backward pass gives the gradients there.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.modules.dropout import _DropoutNd

from hessdiag.data.batch import TARGETS, Batch, Layout, mapped, tensors_in
from hessdiag.data.stream import argument_names
from hessdiag.derivatives.losses import Loss, RandomQuadratic
from hessdiag.derivatives.magnitude import as_real, largest_entry, mean_sq
from hessdiag.diagnosis import checks, roles
from hessdiag.diagnosis.checks import FAR, Gradients, holding, moved, varies
from hessdiag.diagnosis.loss_fit import SEEN, fit_of
from hessdiag.diagnosis.loss_terms import NOISES, noise_like, pieces_of
from hessdiag.diagnosis.network_view import ADAM, DROPPED, SATURATED, listed
from hessdiag.diagnosis.unreached import COMPARED, unreached, where_read
from hessdiag.errors import REFUSALS
from hessdiag.network.blocks import parameter_slots, stores_inputs_first
from hessdiag.network.torch_state import fixed_statistics, seeded_rng
from hessdiag.network.trace import backpropagate, kept_aside, leaves_of
from hessdiag.results.signals import ALIKE, Gradient, LayerSignals, ParameterSignals, Signals

Parameters = Mapping[str, nn.Parameter]

MAX_EXAMPLES = 64
TINY = torch.finfo(torch.float32).tiny  # denormals count as zero
ROUNDINGS = 8  # by which equal numbers may differ
SLIGHTLY = 1 + 1e-6
STEPS, RATE = 3, 1e-2  # of Adam, at a rate large enough that zeros two deep are open by more than rounding
OPENED = 1e-6  # of the usual size of a gradient: less is rounding
SMALL = 1e-3  # of the weights
BEYOND = 30.0  # of what outputs the loss may read
MOST_COLUMNS = 32  # of whole numbers, looked at one by one
REPEATED = 0.1  # of the examples
SEVERAL = 16  # outputs that are compared first, and columns of a table
POOLED, USUALLY = 9, 0.6  # positions; dropped by a graph's attention, say
FEW = 4  # examples of `_radial_shares`, each with several random vectors: one alone is near 0 by chance


def second_moment(values: Tensor, examples: int) -> tuple[float, float]:
    """E[v²], and the share of it that differs from one example to the other; NaN for one, 0 where rounding makes it.

    >>> sq, varies = second_moment(torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64), 3)
    >>> round(sq, 12), round(varies * sq, 12)
    (13.666666666667, 7.0)
    """
    sq, dim = mean_sq(values), example_dim(values.shape, examples)
    if values.numel() and sq == 0:
        return sq, 0.0
    rows = values.shape[dim]
    if rows < 2 or not values.numel() or not sq < math.inf:
        return sq, math.nan
    scaled = values / math.sqrt(sq)
    mean = scaled.mean(dim, keepdim=True)  # var_mean over a first dimension takes fifty times as long
    share = float(scaled.sub_(mean).square_().sum(dtype=torch.float64)) / (rows - 1) / mean.numel()
    return sq, share if share > (ROUNDINGS * torch.finfo(values.dtype).eps) ** 2 else 0.0


def _between_places(values: Tensor, examples: int, channel: int) -> float:
    """The share of E[v²] that differs between positions of an example; NaN where one pooling may join them all."""
    if values.dim() < 3:
        return math.nan
    few = values.movedim(example_dim(values.shape, examples), 0)[:2]
    places = few.movedim(channel, 1).flatten(2).permute(2, 0, 1)
    if len(places) <= POOLED:
        return math.nan
    alike = all(bool((some == places[:1]).all()) for some in (places[:2], places))  # to the bit: small is not stuck
    return 0.0 if alike else max(second_moment(places, len(places))[1], TINY)


def example_dim(shape: torch.Size, examples: int) -> int:
    """Find the dimension that runs over the examples: the first, unless only the second can.

    Sequences that come first and are as long as there are examples cannot be told from examples; they are rare.

    >>> example_dim(torch.Size([6, 3, 8]), 6), example_dim(torch.Size([5, 6, 8]), 6)  # sequences first
    (0, 1)
    """
    first = shape[0] % examples == 0 if examples > 1 else shape[0] == 1
    return 1 if not first and len(shape) > 2 and shape[1] == examples else 0


@dataclass
class _Noted:
    """What is known of one layer: fields of `LayerSignals`, and where its gradients are to be had."""

    numbers: dict[str, Any]
    edge: GradientEdge | None = None
    x_edge: GradientEdge | None = None
    again: Tensor | None = None  # what it read in its last call, if that was not the first


class SignalPass:
    """What the hooks note of one forward pass of some examples, and places to differentiate at. What goes wrong here
    costs the measurement nothing: the model may do anything in its forward pass.
    """

    def __init__(self, model: nn.Module, part: Batch, *, balanced: bool = False, noted: Any = ()) -> None:
        self.model, self.part, self.noted = model, part, dict[str, Any](noted)  # what checks found
        self.balanced = balanced  # with what a balance of curvatures needs
        self.layers: dict[str, _Noted] = {}
        self.norms: set[Any] = set()  # nodes of what normalisations read
        self.entered: dict[str, Tensor | None] = {}
        self.parameters = {name: p for name, p in model.named_parameters() if p.is_floating_point() or p.is_complex()}
        self.gated: set[str] = set()  # paths of modules that read several tensors
        self.shares, self.kept = dict[str, float](), dict[Any, str]()  # dropped, by path; and paths, by what they wrote
        self.written = dict[Any, str]()  # paths of layers, by what each call wrote
        self.states: dict[str, list[Tensor]] = defaultdict(list)  # that cells and single steps read, in turn
        self.trainable = {name: p.requires_grad for name, p in model.named_parameters()}
        self.signals: Signals | None = None
        self.missing = ""  # why there are none

    @property
    def edges(self) -> list[GradientEdge]:
        """Where gradients are wanted: in what layers write and read, then in the parameters."""
        around = [e for layer in self.layers.values() for e in (layer.edge, layer.x_edge) if e is not None]
        return [*around, *map(get_gradient_edge, self.parameters.values())]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every module with parameters of its own, or that normalises; gradients flow into frozen ones, too."""
        frozen = [p for name, p in self.parameters.items() if not self.trainable[name]]
        with ExitStack() as hooks:
            for p in frozen:
                hooks.callback(p.requires_grad_, False)
                p.requires_grad_(True)
            hooks.enter_context(self.model.register_forward_pre_hook(lambda *_: self.states.clear()))  # of another call
            for path, module in self.model.named_modules():
                if _is_layer(module) and "parametrizations." not in path:  # these normalise weights
                    telling = self._telling()
                    before, after = telling(partial(self._enter, path)), telling(partial(self._note, path))
                    hooks.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
                    hooks.enter_context(module.register_forward_hook(after, with_kwargs=True, prepend=True))
                elif isinstance(module, _DropoutNd):
                    hooks.enter_context(module.register_forward_hook(partial(self._note_dropout, path)))
            yield

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.missing = self.missing or " ".join(f"{type(error).__name__}: {error}".split())[:200]

    def _enter(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what a module reads, before anything else hands it an alias of that."""
        x, *more = [*args, *kwargs.values()] or [None]
        self.entered[path] = x = x if isinstance(x, Tensor) else None
        self.gated |= {path} if any(isinstance(v, Tensor) for v in more) else set()
        shape = (0, 0) if x is None else x.shape
        alone = isinstance(module, nn.RNNBase) and len(shape) == 3 and shape[int(module.batch_first)] == 1
        if isinstance(module, nn.RNNCellBase) or alone:
            self.states[path].append(next(iter(tensors_in(more)), torch.empty(0)))
        if _is_norm(module) and x is not None and x.grad_fn is not None:
            self.norms.add(x.grad_fn)

    def _note(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Measure the first call of a layer; at once, since what it wrote may be overwritten in place."""
        out, x = output[0] if isinstance(output, tuple) and output else output, self.entered.get(path)
        if path in self.layers and x is not None and x.is_floating_point():
            self.layers[path].again = x.detach()
        real = isinstance(out, Tensor) and out.is_floating_point() and not is_functorch_wrapped_tensor(out)  # of vmap
        if real and out.requires_grad and out.grad_fn is not None:
            self.written[get_gradient_edge(out).node] = path
        if not real or not out.dim() or path in self.layers:
            return
        labels = ("batch",) if isinstance(module, nn.modules.batchnorm._BatchNorm) else ()
        noted = self.layers[path] = _Noted({"path": path, "kind": type(module).__name__, "labels": labels})
        if not out.numel():  # an expert to which nothing of this batch was sent
            return
        noted.numbers["out_sq"], noted.numbers["out_varies"] = second_moment(out.detach(), self.part.size)
        noted.numbers |= {
            "out_places": _between_places(out.detach(), self.part.size, _channel(module, out)),
            "normalises": _is_norm(module) and not _uses_running_statistics(module) and path not in self.gated,
            "samples": out.numel() // max(out.shape[_channel(module, out)], 1),
            "on_share": int((out.detach() > 0).count_nonzero()) / out.numel(),
        }
        if x is not None and x.is_floating_point():
            noted.numbers["x_sq"], noted.numbers["x_varies"] = second_moment(x.detach(), self.part.size)
            noted.numbers["x_places"] = _between_places(x.detach(), self.part.size, _channel(module, x))
            noted.x_edge = get_gradient_edge(x) if x.requires_grad and torch.is_grad_enabled() else None
            held = 0 < noted.numbers["x_sq"] == noted.numbers["out_sq"] != 1.0  # handed on as it is
            noted.numbers["normalises"] &= not held
            noted.numbers["labels"] += ("raw",) * any(checks.holds(x.detach(), v) for v in self.part.tensors)
        noted.edge = get_gradient_edge(out) if out.requires_grad and out.grad_fn is not None else None

    def _note_dropout(self, path: str, module: _DropoutNd, _: Any, out: Any) -> None:
        self.shares[path] = module.p
        self.kept[getattr(out, "grad_fn", None)] = path  # of one that returns more, too

    def _dropped(self, paths: Sequence[str]) -> float:
        return 1.0 - math.prod(1 - self.shares[path] for path in paths)

    def _assign_roles(self, y: Tensor) -> tuple[dict[str, set[str]], dict[str, Any]]:
        """Say of each layer where its output goes and its input comes from; what uses each matrix; and of outputs."""
        leaves = {name: get_gradient_edge(p).node for name, p in self.parameters.items()}
        graph = roles.Graph(y.grad_fn, self.norms, leaves.values())
        written = {node: o for node, o in self.written.items() if o in self.layers and self.layers[o].edge is not None}
        for layer in self.layers.values():
            if layer.edge is not None:
                goes, did = graph.role_of(layer.edge.node)
                layer.numbers |= {"labels": tuple(sorted({*goes, *layer.numbers["labels"]})), **did}
            if layer.x_edge is not None:
                layer.numbers["sources"] = sources = tuple(roles.written_by(layer.x_edge.node, written, {}))
                if layer.numbers["x_sq"] == 0:
                    edges = [edge for o in sources if (edge := self.layers[o].edge) is not None]
                    read = layer.x_edge.node._input_metadata[layer.x_edge.output_nr]
                    ones = torch.ones(1, *read.shape, dtype=read.dtype, device=read.device)
                    back = backpropagate(layer.x_edge, edges, ones)
                    layer.numbers["x_gradient_sq"] *= any(g is not None and bool(g.any()) for g in back)
        modules = [(path, self.model.get_submodule(path)) for path in self.layers]
        held = {id(p): path for path, m in modules for p in m._parameters.values() if p is not None and p.dim() > 1}
        inputs = replace(self.part, targets=None).leaves
        for paths, peaked, labels in roles.attentions(graph, written, held, inputs):
            for numbers in (self.layers[path].numbers for path in paths):
                numbers["peaked"] = max(numbers.get("peaked", peaked), peaked)
                numbers["labels"] += ("attention", *labels)
        rows = self.part.rows or next((len(v) for v in self.part.tensors if v.dim()), 1)  # of a graph
        noted = {"mixed": roles.mixing_views(graph, rows)} | {label: find(graph) for label, find in roles.NOTED.items()}
        for label, nodes in noted.items():
            for path in (path for node in nodes for path in roles.written_by(node, written, held)):
                self.layers[path].numbers["labels"] += (label,)
        uses = {name: graph.uses_of(leaf) for name, leaf in leaves.items()}
        uses = {name: each if self.parameters[name].dim() > 1 else each & {"branch"} for name, each in uses.items()}
        idle = graph.consumers.keys() - graph.counting()
        uses = {name: each | {"one key"} if leaves[name] in idle else each for name, each in uses.items()}
        known = {id(p) for p in (*self.model.parameters(), *self.part.tensors)}
        tensors = {id(node.variable): node.variable for node in graph.consumers if hasattr(node, "variable")}
        strangers = {key: leaf for key, leaf in tensors.items() if key not in known}
        kept = kept_aside(self.model) if strangers else {}  # a buffer of experience takes long to look through
        made = [p.shape for key, p in strangers.items() if isinstance(p, nn.Parameter) and key not in kept]
        loose = *(kept[key] for key in kept if key in strangers), *(f"Parameter{tuple(shape)}" for shape in made)
        loose += checks.fixed_weights(self.model, self.part)
        heavy = [path for path, share in self.shares.items() if share > USUALLY]
        if self._dropped(heavy) < DROPPED:
            ends = [self.kept[node] for node in roles.unchanged(y.grad_fn) if node in self.kept]
            heavy = [path for path in ends[:1] if self.part.targets is not None and self.shares[path]]
        return uses, {
            "dropped": listed(heavy) if heavy else "",
            "dropped_share": self._dropped(heavy),
            "unregistered": loose,
            "sources": tuple(roles.written_by(y.grad_fn, written, {})),
            "one_frequency": _one_frequency(self.model),
        }

    def measure(self, y: Tensor, gradients: Sequence[Tensor | None], own: Tensor, loss: Loss) -> None:
        """Make the signals, or note why there are none: of outputs (B, *out), whose graph is alive, and `gradients`
        (1, *shape) at `edges` of the cotangent `own` (1, B, *out), the gradients of the examples' losses.
        """
        with self._telling():
            self.signals = None if self.missing else self._signals(y, gradients, own, loss)

    def _signals(self, y: Tensor, gradients: Sequence[Tensor | None], own: Tensor, loss: Loss) -> Signals:
        model, part, outputs = self.model, self.part, y.detach().double()
        sent_back = "loss" if bool((own.abs() >= TINY).any()) else "noise"
        if sent_back == "noise":  # the loss has no gradient anywhere, as a quadratic one at y = 0
            gradients = backpropagate(y, self.edges, noise_like(y.detach(), part).unsqueeze(0))
        found = iter([None if g is None else g[0].detach() for g in gradients])
        for layer in self.layers.values():
            if layer.again is not None and layer.again.numel():
                layer.numbers["x_sq_last"] = mean_sq(layer.again)
            if layer.edge is not None and (gradient := next(found)) is not None:  # else there is no way to it
                sq = mean_sq(gradient)
                layer.numbers |= {"out_gradient_sq": sq, "out_gradient_total": sq * gradient.numel() / part.size}
                module, read = model.get_submodule(o := layer.numbers["path"]), self.entered.get(o)
                layer.numbers["labels"] += where_read(module, read, gradient, part.tensors)
            if layer.x_edge is not None:
                layer.numbers["x_gradient_sq"] = 0.0 if (gradient := next(found)) is None else mean_sq(gradient)
        uses, of_outputs = self._assign_roles(y)
        means = {name: None if g is None else g / part.size for name, g in zip(self.parameters, found, strict=True)}
        for path, (_, *later) in self.states.items():
            if later[1:] and not torch.equal(*later[:2]) and not any(state.requires_grad for state in later):
                self.layers[path].numbers["labels"] += ("let go",)
        inner = {o for layer in self.layers.values() for o in layer.numbers.get("sources", ())}
        hidden = inner.difference(of_outputs["sources"])
        marked = dict.fromkeys(filter(partial(self._is_bottleneck, y), hidden), "bottleneck")
        for path, label in (marked | dict.fromkeys(self._sampled(y, means, own[0], loss), "sampled")).items():
            self.layers[path].numbers["labels"] += (label,)
        layers = tuple(LayerSignals(**layer.numbers) for layer in self.layers.values())
        fixed: list[Any] = [module for module in model.modules() if _uses_running_statistics(module)]
        unseen = self.noted.get("unseen") or self._ignored(y, means)  # before another call is listened to
        of_mean, cancelled = checks.without_rounding(model, part, loss, means, of_outputs["sources"])
        for number in range(STEPS if cancelled else 0):
            with suppress(*REFUSALS), moved(model, number, FAR):
                sent = checks.summed_gradients(model, part, loss, self.parameters)
                again = checks.without_rounding(model, part, loss, sent)[1]
                cancelled = {name: min(share, again.get(name, 0.0)) for name, share in cancelled.items()}
        self.noted["unseen"] = unseen or checks.looks_ahead(model, part)
        of_loss = fit_of(model, part, y, own[0], loss)
        of_loss["settled"] = self._settled(layers, loss, now := of_loss["initial_loss"], y.detach() * own[0])
        of_loss["solved"] = sent_back == "loss" and not now and varies(y) and self._is_solved(of_mean, loss)
        return Signals(
            examples=part.size, output_sq=mean_sq(outputs), output_varies=second_moment(outputs, part.size)[1],
            output_variance=float(outputs.var(correction=0)), sent_back=sent_back,
            even=self._is_even(y, of_mean), unplaced=self._is_unplaced(y), orderless=checks.orderless(model, part, y),
            repeated=_repeated(model, y.detach(), part), fixed_norms=len(fixed),
            fresh_norms=sum(not n.running_mean.any() and bool((n.running_var == 1).all()) for n in fixed),
            layers=layers, **self.noted, **of_outputs,
            **of_loss, level=checks.level_left_out(model, part, y, loss),
            parameters=self._of_parameters(
                of_mean, uses, layers, loss, self._left_out(y, own[0], of_mean, loss), cancelled),
        )  # fmt: skip

    def _of_parameters(
        self, gradients: Gradients, uses: Mapping[str, set[str]], layers: Sequence[LayerSignals],
        loss: Loss, left: dict[str, Gradient], cancelled: dict[str, float],
    ) -> tuple[ParameterSignals, ...]:  # fmt: skip
        """Describe every floating-point parameter: `gradients` of the batch's mean loss are None for unused ones."""
        radial = self._radial_shares(layers) if self.balanced else {}
        opened, later, factors = self._opened(loss, gradients)
        states = opened | unreached(self.model, self.part, gradients) | left | self._started()
        rows, places = [], parameter_slots(self.model)
        for name, parameter in self.parameters.items():
            gradient, slots, w = as_real(gradients[name]), places[name], as_real(parameter.detach())
            module = self.model.get_submodule(slots[0][0])
            turned = "lookup" in uses[name]  # the units of a table are its columns
            numbers = _statistics(w.mT if turned else w)
            own, zero = as_real(later.get(name)) if name in opened else gradient, numbers["weight_sq"] == 0
            if own is not None and w.dim() and (zero or numbers["unlike"] < ALIKE) and mean_sq(own) > 0:
                ways = (own, own.mT) if zero and w.dim() == 2 else (own.mT if turned else own,)
                numbers["unlike"] = min(_statistics(each)["unlike"] for each in ways)
            rows.append(ParameterSignals(
                name=name, owners=tuple(path for path, _ in slots), attribute=slots[0][1], kind=type(module).__name__,
                shape=tuple(parameter.shape), numel=w.numel(), trainable=self.trainable[name],
                cancelled=cancelled.get(name, 0.0),
                uses=tuple(sorted(uses[name] | ({"factor"} if zero and name in factors else set()))),
                gradient="some" if name in loss.held else states.get(name) or _state(gradient),
                gradient_sq=0.0 if gradient is None else mean_sq(gradient), radial=radial.get(name, math.nan),
                along=math.nan if gradient is None else _radial_share(w, gradient),
                median_sq=float(w.square().median()) if w.dim() == 1 and w.numel() else math.nan,
                rows=0 if gradient is None else _rows(gradient), **numbers, **_fans(module, w),
            ))  # fmt: skip
        return tuple(rows)

    def _sampled(self, y: Tensor, gradients: Gradients, own: Tensor, loss: Loss) -> list[str]:
        """Layers that learn by other outputs alone, and yet change the first, as by what it draws or looks up."""
        pieces = pieces_of(self.part)
        leaves = [{*map(id, leaves_of(end))} for end in roles.joined_at(y.grad_fn, len(pieces)) or [None]]
        made_of, told = leaves[0], self.part.targets
        rest = {n: p for n, p in self.parameters.items() if id(p) not in made_of and _state(gradients[n]) == "some"}
        if not self.part.noise:  # the rows of a codebook learn so
            kinds = (nn.Linear, nn.modules.conv._ConvNd)
            layers = {id(p) for m in self.model.modules() if isinstance(m, kinds) for p in m.parameters(recurse=False)}
            rest = {name: p for name, p in rest.items() if id(p) in layers}
        if not rest or not made_of & {*map(id, self.parameters.values())}:
            return []

        def drawn(by: float) -> Tensor:
            with holding(self.model, {name: nn.Parameter(by * p) for name, p in rest.items()}), seeded_rng(0):
                return replace(self.part, noise=(), noise_at=()).call(self.model)[..., pieces[0]]

        with suppress(*REFUSALS):
            theirs = own if told is None else loss.gradient(y.detach(), told.roll(1, 0))
            ends = [piece for piece, each in zip(pieces, leaves, strict=False) if each & {*map(id, rest.values())}]
            predicted = any(not torch.equal(theirs[..., piece], own[..., piece]) for piece in ends)
            now = drawn(1.0)
            codes = predicted and torch.equal(now, drawn(SLIGHTLY))  # of what has targets, as pitches
            if not codes and not torch.equal(now, drawn(FAR)):
                return [path for path in self.layers if any(name.rpartition(".")[0] == path for name in rest)]
        return []

    def _radial_shares(self, layers: Sequence[LayerSignals]) -> dict[str, float]:
        """Measure how much the outputs change along each weight matrix that a normalisation follows, by name."""
        behind = {layer.path for layer in layers if "norm" in layer.labels}
        weights = {name: p for name, p in self.parameters.items() if p.dim() > 1 and name.rpartition(".")[0] in behind}
        if not weights or not any(layer.normalises for layer in layers):
            return {}
        few = self.part.narrow(0, FEW)
        y = few.call(self.model)
        sent = torch.stack([noise_like(y.detach(), few, number) for number in range(1, NOISES + 1)])
        found = backpropagate(y, [get_gradient_edge(p) for p in weights.values()], sent)
        shares = {}
        for (name, p), gradients in zip(weights.items(), found, strict=True):
            each = [] if gradients is None else [_radial_share(p.detach().double(), g.double()) for g in gradients]
            shares[name] = math.nan if not each or any(map(math.isnan, each)) else max(each)
        return shares

    def _opened(self, loss: Loss, gradients: Gradients) -> tuple[dict[str, Gradient], Gradients, set[str]]:
        """What has no gradient now, and gets one when others move, by steps of Adam; that; and what does elsewhere.
        What is next to nothing then may be small and no rounding: other weights close by tell.
        """
        model, part = self.model, self.part
        weights = {n: p for n, p in self.parameters.items() if self.trainable[n] and gradients[n] is not None}
        asleep, opened, elsewhere = {n for n in weights if _state(gradients[n]) == "zero"}, set[str](), set[str]()
        if all("bias" in n.rpartition(".")[2] and self.parameters[n].dim() < 2 for n in asleep):
            asleep = set()  # as ahead of a normalisation, which takes them away

        def within(others: AbstractContextManager[None]) -> Gradients:
            with others:
                sent = checks.summed_gradients(model, part, loss, weights)
                return checks.without_rounding(model, part, loss, sent)[0] if asleep else sent

        def awake(gradients: Gradients) -> set[str]:
            sizes = {name: 0.0 if g is None else largest_entry(g) for name, g in gradients.items()}
            usual = median([size for name, size in sizes.items() if name not in asleep] or [0.0])
            return {name for name in asleep & sizes.keys() if sizes[name] > OPENED * usual or not math.isfinite(usual)}

        try:
            for _ in range(STEPS):
                if opened == asleep:
                    break
                weights = _stepped(weights, gradients)
                gradients = within(holding(model, weights))
                opened |= awake(gradients)
            if any(_state(gradients.get(name)) == "some" for name in asleep - opened):
                opened |= awake(within(moved(model, 0)))
            if asleep - opened:
                elsewhere = awake(within(moved(model, 0, FAR)))
        except REFUSALS:  # nothing is known
            opened = asleep
        return dict.fromkeys(opened, "later"), gradients, elsewhere

    def _loss_with(self, others: Parameters, loss: Loss) -> float:
        with suppress(*REFUSALS), holding(self.model, others):
            return float(loss.of_all(self.part.call(self.model), self.part.targets).detach())
        return math.nan

    def _is_solved(self, gradients: Gradients, loss: Loss) -> bool:
        """Whether a loss of zero has no gradient, and is none of small weights."""
        flat = all(g is None or largest_entry(g) < ADAM for g in gradients.values())
        return flat and abs(self._loss_with({n: nn.Parameter(SMALL * p) for n, p in self.parameters.items()}, loss)) > 0

    def _settled(self, layers: Sequence[LayerSignals], loss: Loss, initial: float, felt: Tensor) -> float:
        """By how much of itself, or of what outputs do to it, the loss rises once layers at an end write size 1."""
        ends = {o.path: o.out_sq**-0.5 for o in layers if o.saturated > SATURATED and o.out_sq > 1}
        named = ((name, name.rpartition(".")[0], p) for name, p in self.parameters.items())
        small = {name: nn.Parameter(ends[o] * p) for name, o, p in named if o in ends}
        if not small or isinstance(loss, RandomQuadratic):  # which has a random sign
            return 0.0
        scale = float(felt.flatten(1).sum(1).abs().mean())  # the loss may be zero by its signs
        return (self._loss_with(small, loss) - initial) / max(abs(initial), scale, TINY)

    def _is_bottleneck(self, y: Tensor, path: str) -> bool:
        """Whether outputs stay as they are when examples exchange all but the one number of a layer."""
        numbers, wrote, found = self.layers[path].numbers, list[Any](), list[Tensor]()
        sq, total = (numbers.get(f"out_gradient_{of}", 0.0) for of in ("sq", "total"))
        if not (sq > 0 and math.isclose(sq, total) and ("relu" in numbers["labels"] or y[0].numel() > 1)):
            return False
        layer = self.model.get_submodule(path)
        hook = layer.register_forward_hook(
            lambda *called: wrote.pop(0) if found else wrote.append(mapped(called[2], Tensor.clone))
        )
        with suppress(*REFUSALS), fixed_statistics(), torch.no_grad(), hook:
            own = replace(self.part, noise=(), noise_at=())  # which is drawn again
            for part in (own, own.with_leaves([v.roll(1, 0) for v in own.leaves])):
                with seeded_rng(0):
                    found.append(part.call(self.model))
            now, then = found
            return varies(now) and bool(((now - then).abs() <= SEEN * (now - now[:1]).abs().amax(0)).all())
        return False

    def _is_even(self, y: Tensor, gradients: Gradients) -> bool:
        """Whether outputs (B, T, ...) are the same at all positions, whose targets are not, also after a step."""
        targets = self.part.targets
        if y.dim() < 3 or targets is None or targets.shape[:2] != y.shape[:2] or not varies(targets.transpose(0, 1)):
            return False

        def is_even(y: Tensor) -> bool:
            return second_moment(y.detach().transpose(0, 1), y.shape[1])[1] == 0

        if is_even(y):
            with suppress(*REFUSALS), holding(self.model, _stepped(self.parameters, gradients)):
                return is_even(self.part.call(self.model))
        return False

    def _is_unplaced(self, y: Tensor) -> bool:
        """Whether outputs (B, T, ...) are the same where all that is read of a place is, whose targets are not."""
        told, some = self.part.targets, (slice(COMPARED), slice(MAX_EXAMPLES))
        if y.dim() < 3 or told is None or told.shape != y.shape[:2] or told.is_floating_point():
            return False
        over = [v[some] for v in self.part.leaves[:-1] if v.shape[:2] == y.shape[:2] and not v.is_complex()]
        told, at = told[some], y.detach()[some]
        pairs = (told.unsqueeze(1) != told.unsqueeze(2)).triu(1) & (torch.minimum(told[:, None], told[..., None]) >= 0)
        for v in over:
            read = torch.unique(v.reshape(told.numel(), -1), dim=0, return_inverse=True)[1].view(told.shape)
            pairs &= read.unsqueeze(1) == read.unsqueeze(2)
        example, one, two = pairs.nonzero().unbind(1)
        if not over or len(example) < SEVERAL or not bool((at != at[:1, :1]).any()):  # as of a head of zeros
            return False
        return float((at[example, one] - at[example, two]).abs().amax()) < SEEN * float(at.abs().max())

    def _started(self) -> dict[str, Gradient]:
        """Weights of a state that is handed in as zeros, for one step: they learn from the second on."""
        first = [path for path, each in self.states.items() if len(each) == 1 and each[0].numel() and not each[0].any()]
        first = [path for path in first if any(torch.equal(self.states[path][0], v) for v in self.part.tensors)]
        return {name: "later" for name in self.parameters if any(name.startswith(f"{o}.weight_hh") for o in first)}

    def _left_out(self, y: Tensor, own: Tensor, gradients: Gradients, loss: Loss) -> dict[str, Gradient]:
        """Parameters without a gradient that reach outputs which the loss leaves out, or may take of other examples."""
        zero = {name: self.parameters[name] for name, g in gradients.items() if _state(g) == "zero"}
        felt = own != 0
        flat, some = ~felt.any(0), felt.any(0) & ~felt.all(0) & isinstance(self.part.output, Layout)
        if not (zero and bool(flat.any())):
            return {}
        at, targets = y.detach(), self.part.targets
        z, now, chosen = noise_like(at, self.part) * flat, loss.of_all(at, targets), torch.zeros_like(flat)
        shapes = [shape for shape, *_ in getattr(self.part.output, "parts", ()) if shape.numel()] or [flat.shape]
        for piece, shape in zip(pieces_of(self.part), shapes, strict=True):
            step, alike = torch.zeros_like(z), False
            step[..., piece] = z[..., piece]
            with suppress(*REFUSALS):  # of a loss that cannot be called with such
                others = [loss.of_all(at + each, targets) for each in (step, BEYOND * step.abs())]  # or free nats
                alike = all(bool(other == now) for other in others)  # else it reads what it has detached
            z[..., piece] *= alike
            felt = some[..., piece].reshape(-1, *(shape[-1:] or (1,))).any(0)  # by the example, as boxes that match are
            chosen[..., piece] = felt.repeat(chosen[..., piece].numel() // len(felt)).view_as(chosen[..., piece])
        edges, states = [get_gradient_edge(p) for p in zero.values()], dict[str, Gradient]()
        ways: dict[Gradient, Tensor] = {"later": z * chosen, "left": z * ~chosen}
        for state, sent in ways.items():
            found = backpropagate(y, edges, sent.unsqueeze(0)) if bool(sent.any()) else []
            reached = (n for n, g in zip(zero, found, strict=bool(found)) if g is not None and bool(g.any()))
            states |= dict.fromkeys(reached, state)
        return states

    def _ignored(self, y: Tensor, gradients: Gradients) -> tuple[str, ...]:
        """A state that is not carried on, or an input that no output depends on, and the first layer that reads it."""
        for path, (first, *later) in self.states.items():
            if len(later) > 1 and all(torch.equal(state, first) for state in later):
                return f"what {path} wrote at the step before", path
        slots = parameter_slots(self.model)  # of which a table that is tied to the head has two
        used = {path for name, g in gradients.items() if g is not None for path, _ in slots[name]}
        idle = [name for name, g in gradients.items() if g is None and self.parameters[name].dim() > 1]
        widths = {self.parameters[name].shape[-1:]: name.rpartition(".")[0] for name in idle}
        inputs = replace(self.part, noise=(), targets=None).leaves
        dims = {size for value in inputs for size in value.shape[1:]}
        plain = {p: x for p, x in self.entered.items() if p and x is not None and not is_functorch_wrapped_tensor(x)}
        taken, _ = argument_names(self.model)
        named = dict(zip(taken, self.part.args, strict=False)) | dict(self.part.kwargs)
        asked = [v for v in inputs if varies(v) and not _are_labels(v, self.part.targets)]
        found = list[tuple[bool, tuple[str, ...]]]()
        for number, value in ((number, value) for number, value in enumerate(inputs) if value.dim()):
            name = next((key for key, held in named.items() if held is value), "")
            readers = [path for path, x in plain.items() if x.dtype == value.dtype and torch.equal(x, value)]
            unasked = bool(name and taken and name not in taken)  # by `**kwargs`
            spare = unasked or _are_labels(value, self.part.targets) or name in TARGETS
            meant = "" if readers else widths.get(value[0].shape[-1:], None if spare else "")
            length = value.dim() == 1 and not value.is_floating_point() and value.min() > 0 and int(value.max()) in dims
            where = f"what {readers[0]} reads" if readers else f"input {number + 1}{name and f' ({name})'}"
            if columns := _columns(value, plain.values()):
                where, meant = f"column{'s'[: len(columns) > 1]} {', '.join(map(str, columns))} of {where}", ""
            elif used & {*readers} and (spare or not asked[1:]):  # else there may be another way
                continue
            edges = self.part.structure and value.dim() == len(value) == 2 and not readers
            asks = varies(y) or (self.part.as_one and (self.part.rows or edges))
            if meant is None or length or not (asks and varies(value)):
                continue
            parts: dict[str, Any] = {where: (slice(None), columns) if columns else ...}
            parts |= {f"row {n} of {where}": n for n in (0, 1) if edges}
            if part := next((o for o, at in parts.items() if self._is_unread(y, number, at, len(asked))), ""):
                twin = any(other is not value and other.shape == value.shape for other in inputs)
                loose = value.is_floating_point() and not (readers or meant or twin)
                found.append((loose, (part, *filter(None, readers[:1] or [meant]))))
        return next((each for loose, each in found if not (loose and found[1:])), ())  # several are as marks of time

    def _is_unread(self, y: Tensor, number: int, at: Any, inputs: int) -> bool:
        """Whether no output changes with a part of an input, such as one end of edges (2, E)."""
        values = self.part.leaves
        values[number] = value = values[number].clone()
        alone = inputs == 1 or self.part.structure  # a mean, and a sum over edges, is the same in any order
        turned = value[at][:1] if alone else value[at].flip(0)
        value[at] = 2 * turned + 1 if value.is_floating_point() else turned
        with suppress(*REFUSALS):  # of inputs that have to fit each other
            other = self.part.with_leaves(values)
            if torch.equal(other.call(self.model), y):
                with moved(self.model, 0, FAR):  # where rows of a table differ that are all the same at first
                    return torch.equal(other.call(self.model), self.part.call(self.model))
        return False


def _are_labels(values: Tensor, targets: Tensor | None) -> bool:
    """Whether an input is the targets, or those of the next position are."""
    if targets is None or values.shape != targets.shape:
        return False
    return torch.equal(values, targets) or (values.dim() > 1 and torch.equal(values[:, 1:], targets[:, :-1]))


def _columns(values: Tensor, read: Collection[Tensor]) -> list[int]:
    """Columns of whole numbers (B, columns) that no layer reads, where there are some that one does."""
    if values.dim() != 2 or values.is_floating_point() or values.shape[1] > MOST_COLUMNS:
        return []
    columns = [*values.unbind(1)]
    some = [x for x in read if x.dtype == values.dtype and len(x) == len(values) and 2 * x.numel() <= values.numel()]
    rows = [x.reshape(len(values), -1) for x in some]  # not all but the last of a sequence
    seen = [any(bool((x == each[:, None]).all(0).any()) for x in rows) for each in columns]
    return [n for n, one in enumerate(seen) if not one and varies(columns[n])] if any(seen) else []


def _is_layer(module: nn.Module) -> bool:
    bare_norm = _is_norm(module) and not any(True for _ in module.children())
    return bare_norm or any(p is not None for p in module._parameters.values())


def _is_norm(module: nn.Module) -> bool:
    """By its name, as that of T5 or LLaMA, which are written out."""
    return "Norm" in type(module).__name__


def _channel(module: nn.Module, out: Tensor) -> int:
    name = type(module).__name__
    first = hasattr(module, "kernel_size") or "BatchNorm" in name or "GroupNorm" in name
    return 1 if first and out.dim() > 2 else out.dim() - 1


def _uses_running_statistics(module: nn.Module) -> bool:
    """Whether a batch normalisation is one of fixed numbers, and so normalises nothing."""
    is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return is_norm and not module.training and module.running_mean is not None


def _one_frequency(model: nn.Module) -> str:
    """A buffer (..., T, d) that changes along T, and has two different columns at most."""
    for name, table in model.named_buffers():
        if table.is_floating_point() and table.dim() > 1 and table.shape[-1] >= SEVERAL:
            rows = table.flatten(0, -2)[:MAX_EXAMPLES]
            if torch.unique(rows, dim=1).shape[1] <= 2 and torch.unique(rows).numel() > FEW:  # no mask
                return name
    return ""


def _repeated(model: nn.Module, y: Tensor, batch: Batch) -> float:
    """The share of the examples with exactly the outputs (B, *out) of another one, whose inputs are others; of many
    those that have them at other weights as well: behind closed gates and dead ReLUs others do there. Of one example,
    the rows are meant, as the nodes of a graph. None of a model that draws, as of an actor's actions.
    """
    if batch.noise:
        return 0.0
    one = len(y) == 1 and (y.dim() > 2 or batch.structure) and not isinstance(batch.output, Layout)
    y = y.view(*y.shape[1:], -1) if one else y  # of graphs, no input has as many rows
    inputs = [v for v in batch.tensors if v.dim() and len(v) == len(y)]
    known, rows = dict[tuple[float, ...], int](), y.flatten(1)[:, :SEVERAL].tolist()
    pairs = [(number, known.setdefault(tuple(row), number)) for number, row in enumerate(rows)]
    pairs = [(a, b) for a, b in pairs if a != b and torch.equal(y[a], y[b])]
    pairs = [(a, b) for a, b in pairs if not inputs or any(not torch.equal(v[a], v[b]) for v in inputs)]
    for seed in range(STEPS if len(pairs) > REPEATED * len(y) else 0):
        with suppress(*REFUSALS), moved(model, seed, FAR):
            other = batch.call(model).detach().view_as(y)
            pairs = [(a, b) for a, b in pairs if torch.equal(other[a], other[b])]
    return len(pairs) / len(y)


def _radial_share(w: Tensor, g: Tensor) -> float:
    norms = float(w.square().sum() * g.square().sum())
    return w.numel() * float((w * g).sum()) ** 2 / norms if norms > 0 else math.nan


def _stepped(parameters: Parameters, gradients: Gradients) -> dict[str, nn.Parameter]:
    found = ((name, p, gradients[name]) for name, p in parameters.items())
    return {name: nn.Parameter(p.detach() - RATE * g.sgn()) for name, p, g in found if g is not None}


def _rows(gradient: Tensor) -> int:
    return int((gradient.flatten(0, -2).abs().amax(-1) >= TINY).sum()) if gradient.dim() > 1 and gradient.numel() else 0


def _state(gradient: Tensor | None) -> Gradient:
    return "none" if gradient is None else "zero" if largest_entry(gradient) < TINY else "some"


def _statistics(w: Tensor) -> dict[str, Any]:
    """Moments of the entries over the largest of them, so that none over- or underflows."""
    if not 0 < (top := largest_entry(w)) < math.inf:
        return {"weight_sq": top, "mean": 0.0, "unlike": 1.0, "kurtosis": math.nan, "largest": 0.0, "zeros": 1.0}
    scaled = w / top
    sq, mean = float(scaled.square().mean()), float(scaled.mean())
    squares = (scaled - mean).square_()
    variance = float(squares.mean())
    several = w.dim() > 0 and len(w) > 1
    return {
        "weight_sq": sq * top * top,
        "mean": mean * top,
        "unlike": float((scaled - scaled.mean(0)).square_().mean()) / sq if several else 1.0,
        "kurtosis": float(squares.square_().mean()) / variance**2 if variance > 1e-15 * sq else math.nan,
        "largest": 1 / math.sqrt(sq),
        "zeros": float((w == 0).to(w.dtype).mean()),
    }


def _fans(module: nn.Module, w: Tensor) -> dict[str, Any]:
    if w.dim() < 2:
        return {}
    groups = int(getattr(module, "groups", 1))
    n, m = (w.shape[0] // groups, w.shape[1]) if stores_inputs_first(module) else (w.shape[1], w.shape[0] // groups)
    return {"fan_in": n, "fan_out": m, "kernel": math.prod(w.shape[2:]), "groups": groups}
