"""Stretches of a network, between places that all gradients flow through: the way back can rest at these.

Gradients in what every layer writes take far more memory than those that are passing. Where a single gradient leads to
all that is left, as at the sums of a residual network, the pass ends; what arrived on the way is used, its memory is
free again, and the next pass goes on from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from hessdiag.network.hooks import Pieces, backpropagate

LEAST = 2**26  # bytes of gradients of a stretch
LEAF = "AccumulateGrad"  # of a parameter: made for all its readers, at no time of its own


@dataclass(frozen=True)
class Segment:
    """One stretch.

    Attributes:
        start: where the pass begins.
        places: of the edges at which gradients are asked for, numbers of those that are reached.
        stop: where the next one begins; None for the last.
    """

    start: Tensor | GradientEdge
    places: tuple[int, ...]
    stop: GradientEdge | None


def gradients_by_segment(
    y: Tensor | GradientEdge,
    edges: Sequence[GradientEdge],
    sizes: Sequence[int],
    cotangents: Tensor,
    *,
    pieces: Pieces | None = None,
) -> Iterator[dict[int, Tensor | None]]:
    """What `hessdiag.network.hooks.backpropagate` returns, by place, of one stretch after the other.

    Args:
        y, cotangents, pieces: as there.
        edges: places to differentiate at.
        sizes: elements of what arrives at the first of them; others arrive in no memory worth counting.

    Returns:
        Not to be used any more when the next is asked for, where `pieces` keep their memory.
    """
    if isinstance(y, Tensor) and not y.requires_grad:
        yield dict.fromkeys(range(len(edges)))
        return
    every = [*sizes[: len(edges)], *[0] * (len(edges) - len(sizes))]
    arrived: Tensor | None = cotangents
    for segment in segments(y, edges, every, least=max(1, LEAST // cotangents.element_size())):
        asked = [edges[place] for place in segment.places]
        asked += [] if segment.stop is None else [segment.stop]
        found = [None] * len(asked) if arrived is None else backpropagate(segment.start, asked, arrived, pieces=pieces)
        if segment.stop is not None:
            arrived = found.pop()
            if arrived is not None and pieces is not None and pieces.kept is not None:
                arrived = arrived.clone()  # its own memory is written to in the next stretch
        told = dict(zip(segment.places, found, strict=True))
        del found
        yield told


def segments(
    y: Tensor | GradientEdge, edges: Sequence[GradientEdge], sizes: Sequence[int], *, least: int = 1
) -> list[Segment]:
    """Stretches from the outputs on, in the order of the way back; an edge that is not reached is in the last.

    Args:
        y: outputs of a forward pass, or a place before them.
        edges: places to differentiate at; at a parameter there is no cutting the way to it.
        sizes: of what is differentiated there.
        least: size of a stretch, but of the last.
    """
    origin = y if isinstance(y, GradientEdge) else get_gradient_edge(y)
    asked: dict[Node, list[int]] = defaultdict(list)
    for place, edge in enumerate(edges):
        asked[edge.node].append(place)
    found: list[Segment] = []
    start, here, left = y, [], set(range(len(edges)))
    for node, numbers, alone in _way_back(origin, asked):
        told = asked.get(node, [])
        here += told
        left -= {*told}
        if (
            alone
            and len(numbers) == 1
            and sum(sizes[place] for place in here) >= least
            and left
            and node != origin.node
        ):
            stop = GradientEdge(node, next(iter(numbers)))
            found.append(Segment(start, tuple(here), stop))
            start, here = stop, []
    return [*found, Segment(start, (*here, *sorted(left)), None)]


def _way_back(origin: GradientEdge, asked: dict[Node, list[int]]) -> list[tuple[Node, set[int], bool]]:
    """Nodes that lead to an edge that is asked for, those of later operations first.

    Returns:
        With each, which of its outputs are read, and whether all that comes after it is reached through it alone.
    """
    below: dict[Node, list[tuple[Node, int]]] = {}
    stack = [origin.node]
    while stack:
        node = stack.pop()
        if node not in below:
            below[node] = [(one, number) for one, number in node.next_functions if one is not None]
            stack += [one for one, _ in below[node]]
    order = sorted((node for node in below if LEAF not in node.name()), key=lambda node: -node._sequence_nr())
    rank = {node: number for number, node in enumerate(order)}
    if any(LEAF in node.name() for node in asked) or not _sorted(below, rank):
        return []
    leads: set[Node] = set()
    for node in reversed(order):
        if node in asked or any(one in leads for one, _ in below[node]):
            leads.add(node)
    found: list[tuple[Node, set[int], bool]] = []
    reached: dict[Node, set[int]] = {origin.node: {origin.output_nr}}
    for node in order:
        if node not in reached:
            continue
        numbers = reached.pop(node)
        found.append((node, numbers, not reached))
        for one, number in below[node]:
            if one in leads:
                reached.setdefault(one, set()).add(number)
    return found


def _sorted(below: dict[Node, list[tuple[Node, int]]], rank: dict[Node, int]) -> bool:
    """Whether each node is of a later operation than those below; numbers of other threads tell nothing."""
    return all(rank[node] < rank.get(one, len(rank)) for node in rank for one, _ in below[node])
