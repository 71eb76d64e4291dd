"""Language models measured along drawn classes: the same numbers, whatever the form of the directions."""

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

import hessdiag
import hessdiag.curvature.classes as classes
from hessdiag.curvature.classes import draw_classes, may_draw_classes
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import trace_blocks
from hessdiag.derivatives.losses import resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import find_blocks
from hessdiag.network.shapes import measure_shapes

TOKENS, VOCABULARY = 16, 1100


class Language(nn.Module):
    """An embedding, a layer, and a head, tied or with a bias; what it writes may be scaled afterwards."""

    def __init__(self, *, tied: bool = False, scaled: float | None = None, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 6)
        self.middle = nn.Linear(6, 6)
        self.head = nn.Linear(6, vocabulary, bias=not tied)
        self.scaled = scaled
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.head(self.middle(self.embedding(tokens)).tanh())
        return y if self.scaled is None else y * self.scaled


def problem_of(model: nn.Module, *, tokens: int = TOKENS, examples: int = 2, vocabulary: int = VOCABULARY) -> Problem:
    words = torch.randint(vocabulary, (examples, tokens + 1))
    batch = Batch.of(words[:, :-1].contiguous(), words[:, 1:].contiguous())
    y = batch.call(model).detach()
    loss = resolve_loss("cross-entropy", y=y, targets=batch.targets, seed=0)
    return Problem(model, batch, loss, find_blocks(model)[0])


@pytest.mark.parametrize(
    ("model", "tokens", "drawn"),
    [
        (Language(), TOKENS, True),
        (Language(tied=True), TOKENS, True),
        (Language(), 15, False),
        (Language(vocabulary=1000), TOKENS, False),
        (Language(scaled=2.0), TOKENS, False),  # the head does not write the outputs
        (nn.Sequential(nn.Embedding(VOCABULARY, 6), nn.LayerNorm(6), nn.Linear(6, VOCABULARY)), TOKENS, True),
    ],
)
def test_classes_are_drawn_of_many_at_many_positions(model: nn.Module, tokens: int, drawn: bool) -> None:
    vocabulary = next(model.parameters()).shape[0]
    problem = problem_of(model, tokens=tokens, vocabulary=vocabulary)
    seen = trace_blocks(model, problem.batch, problem.blocks)
    found = draw_classes(problem, problem.batch, seen, count=3, seed=0, name="test", examples=problem.batch.numbers)
    assert (found is not None) == drawn
    assert may_draw_classes(problem, measure_shapes(model, problem.batch, problem.blocks)) == drawn


def test_a_tied_transformer_is_measured_as_along_gaussian_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and map, within their errors over a few seeds."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_embd=64, n_head=2, vocab_size=VOCABULARY, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    words = torch.randint(VOCABULARY, (3, TOKENS + 1))
    data = {"input_ids": words[:, :-1].contiguous()}, words[:, 1:].contiguous()

    def reports() -> list[hessdiag.Report]:
        seeds = range(4)
        return [hessdiag.diagnose(model, *data, loss="cross-entropy", seed=s, rtol=0.1, class_dim=-1) for s in seeds]

    drawn = reports()
    monkeypatch.setattr(classes, "MANY_CLASSES", VOCABULARY + 1)
    gaussian = reports()
    assert drawn[0].blocks[0].avg_sq_singular_value != gaussian[0].blocks[0].avg_sq_singular_value
    for number, block in enumerate(drawn[0].blocks):
        both = [[each.blocks[number] for each in some] for some in (drawn, gaussian)]
        values = [np.mean([b.avg_sq_singular_value for b in some]) for some in both]
        errors = [np.sqrt(np.mean([b.stderr**2 for b in some]) / len(some)) for some in both]
        assert abs(values[0] - values[1]) <= 4 * np.hypot(*errors), block.name
        assert both[0][0].nu == pytest.approx(both[1][0].nu, rel=1e-4, nan_ok=True), block.name  # no draws in it
