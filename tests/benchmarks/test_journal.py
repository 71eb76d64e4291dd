"""Items are kept one by one, and their table and figures say what they hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from alternating import Times, alternate
from benchmark_figure import beside, draw_growth, draw_peers, title_of
from benchmark_growth import Exponent, line_of
from benchmark_growth import table_of as growth_table
from benchmark_journal import BenchmarkJournal, run_items, table_of

CPU = torch.device("cpu")
MACHINE = {
    "device": "a processor",
    "cores": 2,
    "threads": 1,
    "torch": "2",
    "clock": "wall",
    "peak operations": 5e10,
    "peak bytes": 1e10,
}


def item() -> dict[str, Any]:
    times = Times({"gradient": [0.1, 0.2], "hessdiag": [0.6, 1.0], "BackPACK": [7.2, 13.0]})
    methods: dict[str, Any] = times.record()
    methods["hessdiag"]["error"] = {"median": 0.041, "worst": 0.1, "most": 0.2}
    methods["hessdiag"]["products"] = 32
    methods["torch.func"] = {"skipped": "skipped: it is not installed (pip install it)"}
    ratio = {"median": 12.5, "least": 12.0, "most": 13.0}
    return {
        "title": "exact map, LeNet",
        "machine": MACHINE,
        "methods": methods,
        "times hessdiag's": {"BackPACK": ratio},
        "floor": {"of": "exact map", "operations": 1.0, "bytes": 1.0, "seconds": 0.2},
        "memory": {"at rest": 2**30, "gradient": 2**31, "hessdiag": 2**33},
    }


def family() -> dict[str, Any]:
    medians, exponent = {"map": [2.0, 2.1, 2.2, 2.3], "whole": [9.0, 9.0, 9.0, 9.1]}, {"value": 0.41, "stderr": 0.02}
    both = {"map": exponent, "whole": {"value": 0.0, "stderr": 0.1}}
    seconds = {"medians": medians, "exponents": both | {"gradient": exponent}}
    gradients = {"medians": medians, "exponents": both}
    sizes = [4, 8, 16, 32]
    return {"title": "blocks", "machine": MACHINE, "sizes": sizes, "seconds": seconds, "gradients": gradients}


def test_the_table_of_a_journal() -> None:
    lines = [" ".join(line.split()) for line in table_of({"one": item()}).splitlines()]
    assert lines == [
        "work, by seconds gradients range hessdiag's error worst",
        "exact map, LeNet",
        "gradient 0.15 1 1-1 0.188×",
        "hessdiag 0.8 5.5 5-6 1× 4.1 % 10 %",
        "BackPACK 10.1 68.5 65-72 12.6×",
        "torch.func skipped: it is not installed",
        "floor: exact map 0.2 1.33 0.25×",
        "",
        "memory, GiB at rest gradient hessdiag ratio",
        "exact map, LeNet 1.00 2.00 8.00 4.00×",
    ]


def test_what_stands_beside_the_dots() -> None:
    assert beside(item(), "hessdiag") == "5.5 · 4 floors · 4.1 %, worst 10 % · 8 GiB, 4×"
    assert beside(item(), "BackPACK") == "68.5 · 12.5× hessdiag's"
    assert title_of({"one": item()}) == "The fastest peer takes 12.5 times as long as hessdiag for the same numbers"


def test_figures_are_drawn() -> None:
    assert len(draw_peers({"one": item()}).axes[0].get_yticks()) == 2  # what was skipped has no row
    assert len(draw_growth({"blocks": family()}, "a line").axes[0].get_lines()) == 2


def test_growth_is_said_in_one_line() -> None:
    line = line_of({"blocks": family()})
    assert line.endswith("L to the power +0.41 ± 0.02 (blocks); more than 0.2: blocks")
    for value, stderr, said in ((0.1, 0.3, "at most 0.2"), (0.3, 0.1, "undecided: blocks")):
        item = family()
        item["gradients"]["exponents"]["map"] = {"value": value, "stderr": stderr}
        assert line_of({"blocks": item}).endswith(f"; {said}")
    assert line_of({}) == "Growth with the number of blocks was not measured."
    assert "+0.41 ± 0.02" in growth_table({"blocks": family()}).splitlines()[1]


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    journal, asked = BenchmarkJournal(tmp_path / "new" / "kept.json", "a schema"), []

    def measure(name: str) -> dict[str, Any]:
        asked.append(name)
        if name == "b" and asked.count("b") == 1:
            raise KeyboardInterrupt
        return {"of": name}

    items = {name: lambda name=name: measure(name) for name in "abc"}  # type: ignore[misc]
    with pytest.raises(KeyboardInterrupt):
        run_items(journal, items, lambda name: None)
    assert journal.items() == {"a": {"of": "a"}}
    assert run_items(journal, items, lambda name: None) == {name: {"of": name} for name in "abc"}
    assert asked == ["a", "b", "b", "c"]
    journal.forget(["b", "unknown"])
    assert journal.missing(list("abc")) == ["b"]


def test_an_item_whose_process_fails_is_said_and_left_out(tmp_path: Path) -> None:
    def fail() -> dict[str, Any]:
        subprocess.run([sys.executable, "-c", "raise SystemExit('no memory')"], check=True, stderr=-1, text=True)
        return {}

    journal, said = BenchmarkJournal(tmp_path / "kept.json", "a schema"), []
    assert run_items(journal, {"a": fail, "b": lambda: {"of": "b"}}, said.append) == {"b": {"of": "b"}}
    assert said == ["a", "a failed with exit status 1: no memory", "b"]
    assert journal.missing(["a", "b"]) == ["a"]


def test_functions_take_turns_between_gradients() -> None:
    called = []
    functions = {name: lambda name=name: called.append(name) for name in ("gradient", "a", "b")}  # type: ignore[misc]
    times = alternate(functions, turns=2, device=CPU)
    assert called == ["gradient", "a", "b", *["gradient", "a", "gradient", "b", "gradient"] * 2]
    assert {len(values) for values in times.seconds.values()} == {2}


def test_ratios_are_turn_by_turn() -> None:
    times = Times({"gradient": [1.0, 2.0, 4.0], "a": [3.0, 2.0, 8.0]})
    spread = times.gradients("a")
    assert (spread.median, spread.least, spread.most) == (2.0, 1.0, 3.0)


def test_an_exponent_and_its_error_are_those_of_least_squares() -> None:
    sizes, values = [2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 2.3, 3.9, 8.8, 15.0]
    x, y = (torch.tensor(each, dtype=torch.float64).log() for each in (sizes, values))
    A = torch.stack([x, torch.ones(5, dtype=torch.float64)], dim=1)
    slope = torch.linalg.lstsq(A, y.unsqueeze(1)).solution.squeeze(1)
    variance = (y - A @ slope).square().sum() / 3 * torch.linalg.inv(A.T @ A)[0, 0]
    found = Exponent.fit(sizes, values)
    assert found.value == pytest.approx(float(slope[0]), abs=1e-10)
    assert found.stderr == pytest.approx(float(variance.sqrt()), abs=1e-10)
