"""Networks that look rows of a weight up: for each example, for all of them together, and tied to other layers."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EXAMPLES = 3
WORDS = 6


def tokens(length: int = 3) -> Callable[[], Tensor]:
    return lambda: torch.randint(WORDS, (EXAMPLES, length))


class Words(nn.Module):
    """Tokens to outputs, through what varies below."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 3, **options)
        self.mix, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.mix(self.embed(words)).tanh().mean(1))


class Positions(Words):
    """Positions are looked up once for all examples."""

    def __init__(self, used: Callable[[Tensor, int], Tensor] = lambda p, _: p, *, rows: bool = True) -> None:
        super().__init__()
        self.positions = nn.Embedding(8, 3)
        self.used, self.rows = used, rows

    def forward(self, words: Tensor) -> Tensor:
        numbers = torch.arange(words.shape[1])
        found = self.positions(numbers.unsqueeze(0) if self.rows else numbers)
        h = (self.embed(words) + self.used(found, len(words))).tanh()
        return self.last(self.mix(h).tanh().mean(1))


class Distances(Words):
    """As T5: a bias by distance, the same for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(4, 1)

    def forward(self, words: Tensor) -> Tensor:
        steps = torch.arange(words.shape[1])
        scores = self.bias((steps - steps.unsqueeze(1)).abs().clamp(max=3)).squeeze(2)  # (T, T)
        return self.last(self.mix(scores.softmax(1) @ self.embed(words)).tanh().mean(1))


class Tied(Words):
    """The head is the embedding; the padding's row gets gradients from the head alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.last = nn.Linear(3, WORDS, bias=False)
        self.last.weight = self.embed.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.mix(self.embed(words)).tanh())


class Recurrent(Tied):
    """Every step reads a word and writes scores, with one weight for both."""

    def forward(self, words: Tensor) -> Tensor:
        h, scores = torch.zeros(len(words), 3, dtype=self.mix.weight.dtype), []
        for step in range(words.shape[1]):
            h = self.mix(h + self.embed(words[:, step])).tanh()
            scores.append(self.last(h))
        return torch.stack(scores, dim=1)


class Shared(Tied):
    """As T5: two embeddings and the head are one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Embedding(WORDS, 3)
        self.decoder.weight = self.embed.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.mix(self.embed(words).mean(1, keepdim=True)).tanh() + self.decoder(words).tanh())


class ReadTwice(Words):
    """Once by calling the layer, once by its weight."""

    def forward(self, words: Tensor) -> Tensor:
        h = self.embed(words) + F.embedding(words.flip(1), self.embed.weight).tanh()
        return self.last(self.mix(h).tanh().mean(1))


class Scaled(nn.Embedding):
    """As Gemma's: with a forward pass of its own."""

    def forward(self, words: Tensor) -> Tensor:
        return 2 * super().forward(words)


class OwnForward(Words):
    def __init__(self) -> None:
        super().__init__()
        self.embed = Scaled(WORDS, 3)


class Conditional(Words):
    """One class an example."""

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.mix(self.embed(words[:, 0])).tanh())


class Flattened(Words):
    """All tokens of all examples in one row."""

    def forward(self, words: Tensor) -> Tensor:
        h = self.embed(words.flatten()).view(*words.shape, -1)
        return self.last(self.mix(h).tanh().mean(1))


Made = tuple[Callable[[], nn.Module], Callable[[], Any]]

EMBEDDINGS: dict[str, Made] = {
    "words": (Words, tokens()),
    "positions": (Positions, tokens()),
    "positions in one row": (lambda: Positions(rows=False), tokens(4)),
    "positions in one row, as many as examples": (lambda: Positions(rows=False), tokens()),
    "positions expanded": (lambda: Positions(lambda p, B: p.expand(B, -1, -1)), tokens()),
    "positions repeated": (lambda: Positions(lambda p, B: p.repeat(B, 1, 1)), tokens()),
    "positions, first row": (lambda: Positions(lambda p, _: p[0]), tokens()),
    "positions, sum over rows": (lambda: Positions(lambda p, _: p.sum(0)), tokens()),
    "positions, mean over rows": (lambda: Positions(lambda p, _: p.mean(0)), tokens()),
    "distances": (Distances, tokens()),
    "tied": (Tied, tokens()),
    "tied, recurrent": (Recurrent, tokens(2)),
    "tied to two embeddings": (Shared, tokens()),
    "words read twice": (ReadTwice, tokens()),
    "words, own forward": (OwnForward, tokens()),
    "one class an example": (Conditional, tokens()),
    "words in one row": (Flattened, tokens()),
}

# Of which torch has no Hessian (sparse gradients), or one of which the padding's row is seen in forward mode alone.
GAUSS_NEWTON_ONLY: dict[str, Made] = {
    "words, padding": (lambda: Words(padding_idx=1), tokens(5)),
    "words, sparse": (lambda: Words(sparse=True), tokens(5)),
    "tied, padding": (lambda: Tied(padding_idx=1), tokens()),
}
