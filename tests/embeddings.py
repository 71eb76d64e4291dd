"""Networks that look rows of a weight up: for each example, for all of them together, and tied to other layers."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks import Net, having

EXAMPLES = 3
WORDS = 6


def tokens(length: int = 3) -> Callable[[], Tensor]:
    return lambda: torch.randint(WORDS, (EXAMPLES, length))


def words(
    hidden: Callable[[Any, Tensor], Tensor] = lambda m, words: m.embed(words), *, tied: bool = False,
    held: Callable[[], dict[str, Any]] = dict, **options: Any,
) -> Callable[[], nn.Module]:  # fmt: skip
    """Tokens to outputs: what is looked up, a layer, and the mean over positions or a head tied to the embedding."""

    def out(m: Any, h: Tensor) -> Tensor:
        h = m.mix(h).tanh()
        return m.last(h.mean(1) if h.dim() == 3 and not tied else h)

    def make() -> nn.Module:
        layers = {"embed": nn.Embedding(WORDS, 3, **options), "mix": nn.Linear(3, 3), "last": nn.Linear(3, 2)}
        if tied:  # the padding's row gets gradients from the head alone
            layers["last"] = having(nn.Linear(3, WORDS, bias=False), weight=layers["embed"].weight)
        return Net(lambda m, words: out(m, hidden(m, words)), **layers, **held())

    return make


def positions(used: Callable[[Tensor, int], Tensor] = lambda p, _: p, *, rows: bool = True) -> Callable[[], nn.Module]:
    """Positions are looked up once for all examples."""

    def hidden(m: Any, words: Tensor) -> Tensor:
        numbers = torch.arange(words.shape[1])
        found = m.positions(numbers.unsqueeze(0) if rows else numbers)
        return (m.embed(words) + used(found, len(words))).tanh()

    return words(hidden, held=lambda: {"positions": nn.Embedding(8, 3)})


def distances(m: Any, words: Tensor) -> Tensor:
    """As T5: a bias by distance, the same for all examples."""
    steps = torch.arange(words.shape[1])
    scores = m.bias((steps - steps.unsqueeze(1)).abs().clamp(max=3)).squeeze(2)  # (T, T)
    return scores.softmax(1) @ m.embed(words)


def recurrent() -> nn.Module:
    """Every step reads a word and writes scores, with one weight for both."""

    def forward(m: Any, words: Tensor) -> Tensor:
        h, scores = torch.zeros(len(words), 3, dtype=m.mix.weight.dtype), []
        for step in range(words.shape[1]):
            h = m.mix(h + m.embed(words[:, step])).tanh()
            scores.append(m.last(h))
        return torch.stack(scores, dim=1)

    return having(words(tied=True)(), rule=forward)


def shared() -> nn.Module:
    """As T5: two embeddings and the head are one weight."""

    def forward(m: Any, words: Tensor) -> Tensor:
        return m.last(m.mix(m.embed(words).mean(1, keepdim=True)).tanh() + m.decoder(words).tanh())

    model = having(words(tied=True)(), rule=forward)
    return having(model, decoder=having(nn.Embedding(WORDS, 3), weight=model.embed.weight))


class Scaled(nn.Embedding):
    """As Gemma's: with a forward pass of its own."""

    def forward(self, words: Tensor) -> Tensor:
        return 2 * super().forward(words)


Made = tuple[Callable[[], nn.Module], Callable[[], Any]]

EMBEDDINGS: dict[str, Made] = {
    "words": (words(), tokens()),
    "positions": (positions(), tokens()),
    "positions in one row": (positions(rows=False), tokens(4)),
    "positions in one row, as many as examples": (positions(rows=False), tokens()),
    "positions expanded": (positions(lambda p, B: p.expand(B, -1, -1)), tokens()),
    "positions repeated": (positions(lambda p, B: p.repeat(B, 1, 1)), tokens()),
    "positions, first row": (positions(lambda p, _: p[0]), tokens()),
    "positions, sum over rows": (positions(lambda p, _: p.sum(0)), tokens()),
    "positions, mean over rows": (positions(lambda p, _: p.mean(0)), tokens()),
    "distances": (words(distances, held=lambda: {"bias": nn.Embedding(4, 1)}), tokens()),
    "tied": (words(tied=True), tokens()),
    "tied, recurrent": (recurrent, tokens(2)),
    "tied to two embeddings": (shared, tokens()),
    "words read twice": (words(lambda m, w: m.embed(w) + F.embedding(w.flip(1), m.embed.weight).tanh()), tokens()),
    "words, own forward": (lambda: having(words()(), embed=Scaled(WORDS, 3)), tokens()),
    "one class an example": (words(lambda m, words: m.embed(words[:, 0])), tokens()),
    "words in one row": (words(lambda m, w: m.embed(w.flatten()).view(*w.shape, -1)), tokens()),
}

# Of which torch has no Hessian (sparse gradients), or one of which the padding's row is seen in forward mode alone.
GAUSS_NEWTON_ONLY: dict[str, Made] = {
    "words, padding": (words(padding_idx=1), tokens(5)),
    "words, sparse": (words(sparse=True), tokens(5)),
    "tied, padding": (words(tied=True, padding_idx=1), tokens()),
}
