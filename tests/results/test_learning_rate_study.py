"""The study's scores in closed form, and its JSON."""

import math

import pytest

from hessdiag.results.learning_rate_study import BlockRow, RateRow, RateStudy, score


def row(**changes: object) -> RateRow:
    known = {"network": "a", "family": "mlp", "optimizer": "sgd", "fitting": True, "best": 1.0, "low": 0.5, "high": 2.0}
    return RateRow(**(known | {"initial": 3.0, "loss": 1.0, "seeds": 1} | changes))


def test_errors_are_octaves() -> None:
    assert row().error(8.0) == 3.0
    assert row().outside(8.0) == 2.0
    assert row().outside(1.9) == 0.0
    assert row().error(math.nan) == row().outside(-1.0) == math.inf


def test_scores() -> None:
    rows = [row(steps={"fresh": rate}) for rate in (0.5, 4.0, 8.0)]
    found = score(rows, "steps", "fresh")
    assert (found.median, found.near, found.window, found.offset, found.count) == (2.0, 2 / 3, 1.0, 2.0, 3)


def test_a_rate_that_is_missing_counts_as_wrong() -> None:
    assert score([row(), row(steps={"fresh": 1.0})], "steps", "fresh").near == 0.5


@pytest.mark.parametrize(
    ("best", "predicted", "expected"),
    [((1, 2, 3), (10, 20, 30), 1.0), ((1, 2, 3), (3, 2, 1), -1.0), ((1, 2, 3, 3), (1, 3, 2, 2), 1.0 / 3.0)],
)
def test_rank_correlation(best: tuple[float, ...], predicted: tuple[float, ...], expected: float) -> None:
    names = "abcd"[: len(best)]
    blocks = BlockRow(
        network="a",
        optimizer="sgd",
        best=dict(zip(names, best, strict=True)),
        predicted=dict(zip(names, predicted, strict=True)),
    )
    assert blocks.spearman == pytest.approx(expected)


def test_it_travels_as_json() -> None:
    blocks = BlockRow(network="a", optimizer="sgd", best={"w": 1.0}, predicted={"w": 2.0})
    rows = (row(steps={"64": 0.1}),)
    study = RateStudy(factors={"sgd": 2.0}, rows=rows, block_rows=(blocks,), costs={"a": 30.0})
    assert RateStudy.from_json(study.to_json()) == study
