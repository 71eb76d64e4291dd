"""Places in a network that all gradients flow through: the way back can rest at these.

Gradients in what every layer writes take far more memory than those that are passing. Where a single gradient leads to
all that is left, as at the sums of a residual network, the graph is cut: what arrived on the way is used, its memory is
free again, and the next pass goes on from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from hessdiag.network.trace import backpropagate

LEAST = 2**26  # bytes of gradients between two cuts
LEAF = "AccumulateGrad"  # of a parameter: made at no time of its own


@dataclass(frozen=True)
class Stretch:
    """A part of the network between two cuts.

    Attributes:
        start: where the pass begins.
        places: of the edges at which gradients are asked for, numbers of those that are reached.
        stop: where the next one begins; None for the last.
    """

    start: Tensor | GradientEdge
    places: tuple[int, ...]
    stop: GradientEdge | None


def gradients_by_cut(
    y: Tensor | GradientEdge,
    edges: Mapping[int, GradientEdge],
    sizes: Mapping[int, int],
    cotangents: Tensor,
    *,
    at_once: int | None = None,
) -> Iterator[dict[int, Tensor | None]]:
    """What `hessdiag.network.trace.backpropagate` returns, of one stretch after the other if not all are sent at once.

    Args:
        y, cotangents, at_once: as there.
        edges: places to differentiate at, by number.
        sizes: elements of what arrives at some of them; at others it is no memory worth counting.
    """
    if isinstance(y, Tensor) and not y.requires_grad:
        yield dict.fromkeys(edges)
        return
    arrived: Tensor | None = cotangents
    numbers, every = [*edges], [*edges.values()]
    stretches = [Stretch(y, tuple(range(len(every))), None)]
    if at_once is not None:
        counted = [sizes.get(number, 0) for number in numbers]
        stretches = cut(y, every, counted, least=max(1, LEAST // cotangents.element_size()))
    for stretch in stretches:
        asked = [every[place] for place in stretch.places] + ([stretch.stop] if stretch.stop else [])
        found: list[Tensor | None] = [None] * len(asked)
        if arrived is not None:
            found = backpropagate(stretch.start, asked, arrived, at_once=at_once)
        arrived = found.pop() if stretch.stop is not None else None
        here = {numbers[place]: gradient for place, gradient in zip(stretch.places, found, strict=True)}
        del found
        yield here


def cut(
    y: Tensor | GradientEdge, edges: Sequence[GradientEdge], sizes: Sequence[int], *, least: int = 1
) -> list[Stretch]:
    """Stretches from the outputs on, in the order of the way back; an edge that is not reached is in the last.

    Args:
        y: outputs of a forward pass, or a place before them.
        edges: places to differentiate at; where a parameter is read, no more is cut.
        sizes: of what is differentiated there.
        least: size of a stretch, but of the last.
    """
    origin = y if isinstance(y, GradientEdge) else get_gradient_edge(y)
    asked: dict[Node, list[int]] = defaultdict(list)
    for place, edge in enumerate(edges):
        asked[edge.node].append(place)
    found: list[Stretch] = []
    start, here, left = y, [], set(range(len(edges)))
    for node, stop in _way_back(origin, asked):
        here += asked.get(node, [])
        left -= {*asked.get(node, [])}
        if stop is not None and left and sum(sizes[place] for place in here) >= least:
            found.append(Stretch(start, tuple(here), stop))
            start, here = stop, []
    return [*found, Stretch(start, (*here, *sorted(left)), None)]


def _way_back(origin: GradientEdge, asked: Collection[Node]) -> list[tuple[Node, GradientEdge | None]]:
    """Nodes that lead to one that is asked for, those of later operations first.

    Returns:
        With each its only output that is read, if all that comes after it is reached through this alone.
    """
    below: dict[Node, list[tuple[Node, int]]] = {}
    stack = [origin.node]
    while stack:
        node = stack.pop()
        if node not in below:
            below[node] = [(one, number) for one, number in node.next_functions if one is not None]
            stack += [one for one, _ in below[node]]
    order = sorted(below, key=lambda node: (LEAF in node.name(), -node._sequence_nr()))
    rank = {node: number for number, node in enumerate(order)}
    if any(rank[node] > rank[one] for node in order for one, _ in below[node]):  # numbers of other threads tell nothing
        return []
    leads: set[Node] = set()
    for node in reversed(order):
        if node in asked or any(one in leads for one, _ in below[node]):
            leads.add(node)
    found: list[tuple[Node, GradientEdge | None]] = []
    reached: dict[Node, set[int]] = {origin.node: {origin.output_nr}}
    for node in order:
        if node not in reached:
            continue
        numbers = reached.pop(node)
        alone = not reached and len(numbers) == 1 and node != origin.node
        found.append((node, GradientEdge(node, next(iter(numbers))) if alone else None))
        for one, number in below[node]:
            if one in leads:
                reached.setdefault(one, set()).add(number)
    return found
