"""`hessdiag.learning_rates`: what it is made of, what it leaves alone, and what it refuses."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import hessdiag
from hessdiag import HessdiagError, learning_rates
from hessdiag.diagnosis.learning_rate_estimate import FACTORS
from hessdiag.results.learning_rate_study import RateStudy, score
from tests.unchanged import unchanged


def small(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def data(count: int = 80, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Classes that can be learned."""
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(2), dtype=dtype)
    return x, x[:, :3].argmax(1)


class Texts(nn.Module):
    """Keyword arguments in, scores of the next token out; the head is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids: Tensor, scale: Tensor) -> Tensor:
        return self.head(self.embedding(input_ids) * scale[:, :, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_model_is_left_bit_for_bit(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3)).to(dtype)
    x, t = data(dtype=dtype)
    functional.cross_entropy(model(x), t).backward()
    with unchanged(model, x, t):
        rates = learning_rates(model, x, t)
    assert all(rate.value > 0 and rate.stderr > 0 and len(rate.steps) == 12 for rate in rates.values())


def test_both_precisions_agree() -> None:
    (x, t), steps = data(), 3
    single = learning_rates(small(torch.float32), x.float(), t, steps=steps)
    double = learning_rates(small(), x, t, steps=steps)
    for name, rate in double.items():
        assert single[name].value == pytest.approx(rate.value, rel=1e-3)


def test_a_loss_times_ten() -> None:
    """SGD's rate is a tenth, Adam's is the same: its direction does not see the loss's scale."""
    x, t = data()
    plain = learning_rates(small(), x, t, loss=functional.cross_entropy, optimizers=list(FACTORS))
    tenfold = learning_rates(
        small(), x, t, loss=lambda y, t: 10 * functional.cross_entropy(y, t), optimizers=["sgd", "adam"]
    )
    assert tenfold["sgd"].value == pytest.approx(plain["sgd"].value / 10, rel=1e-5)
    assert tenfold["adam"].value == pytest.approx(plain["adam"].value, rel=1e-5)
    assert plain["momentum"].value == pytest.approx(plain["sgd"].value * FACTORS["momentum"] / FACTORS["sgd"])


def test_ones_own_loss_is_the_named_one() -> None:
    x, t = data()
    own = learning_rates(small(), x, t, loss=lambda y, t: functional.cross_entropy(y, t), steps=4)
    named = learning_rates(small(), x, t, steps=4)
    assert own["adam"].value == pytest.approx(named["adam"].value, rel=1e-9)
    assert (own.loss, named.loss) == ("<lambda>", "cross-entropy")


def test_batches_of_a_loader_take_turns() -> None:
    x, t = data()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, t), batch_size=10)
    rates = learning_rates(small(), loader, steps=4)
    listed = learning_rates(small(), [(x[10 * i : 10 * i + 10], t[10 * i : 10 * i + 10]) for i in range(8)], steps=4)
    assert rates == listed
    assert (rates.batch_size, rates.fresh) == (10, True)


def test_keyword_arguments_and_shared_weights() -> None:
    torch.manual_seed(0)
    ids = torch.randint(7, (40, 6))
    rates = learning_rates(Texts(), {"input_ids": ids, "scale": torch.ones(40, 6)}, ids, class_dim=-1, steps=3)
    assert 0 < rates["adam"].value < 1


def test_frozen_parameters_are_not_moved() -> None:
    """A frozen first layer is the same as features that it has made."""
    x, t = data()
    model = small()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    features = model[:2](x).detach()
    whole, head = learning_rates(model, x, t), learning_rates(model[2:], features, t)
    assert whole["sgd"].value == pytest.approx(head["sgd"].value, rel=1e-10)
    assert whole["adam"].value == pytest.approx(head["adam"].value, rel=1e-10)


def test_no_gradient_is_no_rate_and_said() -> None:
    model = small()
    model[2].weight.data.zero_()
    model[2].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    rates = learning_rates(model, *data(), steps=2)
    assert all(math.isnan(rate.value) for rate in rates.values())
    assert "! No rate for SGD and Adam" in repr(rates)


def test_the_seed_says_which_examples_are_drawn() -> None:
    x, t = data()
    assert learning_rates(small(), x, t, steps=2, batch_size=8) == learning_rates(small(), x, t, steps=2, batch_size=8)
    assert (
        learning_rates(small(), x, t, steps=2, batch_size=8, seed=1)["sgd"]
        != learning_rates(small(), x, t, steps=2, batch_size=8)["sgd"]
    )


def test_it_travels_as_json_and_reads_as_a_table() -> None:
    rates = learning_rates(small(), *data(), optimizers=["sgd", "momentum", "adam"])
    assert hessdiag.LearningRates.from_json(rates.to_json()) == rates
    for words in ("12 virtual steps on the same 80 examples", "SGD, momentum 0.9", "Adam"):
        assert words in repr(rates)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizers": ["lamb"]}, "optimizer 'lamb': use sgd, momentum, adam"),
        ({"optimizers": ["Adam"]}, "did you mean adam"),
        ({"optimizers": "adam"}, "pass a list"),
        ({"steps": 0}, "steps 0: pass at least 1"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"loss": "entropy"}, "unknown loss"),
        ({"loss": lambda y, t: functional.cross_entropy(y, t, reduction="sum")}, "not the mean"),
    ],
)
def test_refusals(changes: dict[str, object], words: str) -> None:
    with pytest.raises(HessdiagError, match=words):
        learning_rates(small(), *data(), **changes)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(HessdiagError, match="all parameters are frozen"):
        learning_rates(small().requires_grad_(False), *data())


def test_later_batches_that_do_not_fit_are_refused() -> None:
    x, t = data()
    with pytest.raises(HessdiagError, match="targets"):
        learning_rates(small(), [(x, t), (x, None)])


def test_the_factors_are_those_of_the_study() -> None:
    study = RateStudy.from_json(Path(__file__).parents[2] / "figures" / "learning_rates.json")
    assert pytest.approx(study.factors, rel=0.02) == FACTORS
    for optimizer in FACTORS:
        held_out = [row for row in study.rows if row.optimizer == optimizer and not row.fitting]
        found = score(held_out, "steps", "fresh")
        assert found.count >= 20
        assert found.median <= 0.75
        assert found.near >= 0.9
