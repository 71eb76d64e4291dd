"""Equal values have equal digests in every process; whatever a function's result hangs on changes its digest."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hessdiag.execution.digests import digest_of

FILE = """
import functools, math
import torch
from torch import nn
from torch.nn import functional as F
import beside

SCALE = 2.0
TABLE = {{"b": (1, 2), "a": torch.ones(2)}}
NAMES = {{"x", "y", "zebra", "q"}}

class Settings:
    power = 2
    def __init__(self): self.slope = 0.5

SETTINGS = Settings()

def gain(x):
    return x * SCALE

@functools.lru_cache
def cached(n):
    return n + 1

@torch.no_grad()
def decorated(x):
    return x

class Base(nn.Module):
    limit = 3
    def shift(self, x):
        return x + 1

class Net(Base):
    def __init__(self):
        super().__init__()
        self.steps = 4
        self.act = lambda x: x
    def forward(self, x, depth=1):
        if x in {{"a", "b", "c"}}: return x
        y = gain(x) + TABLE["a"] + len(NAMES) + cached(2) + beside.helper(x) + decorated(x)
        return [SETTINGS.slope * each for each in self.shift(y)]

def build():
    return Net()
"""
BESIDE = """
EXTRA = 7
def helper(x):
    return x * EXTRA
"""
PROGRAM = """
import nets
from hessdiag.execution.digests import digest_of
from hessdiag.execution.identity import digest_of_attributes, digest_of_code
print(digest_of([nets.build]), digest_of_code(nets.Net()), digest_of_attributes(nets.Net()))
"""


def digests(folder: Path, *, salt: str = "0", file: str = FILE, beside: str = BESIDE) -> list[str]:
    """Of a function, of a network's code and of its attributes, in a process of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "nets.py").write_text(file.format())
    (folder / "beside.py").write_text(beside)
    package = str(Path(sys.modules["hessdiag"].__file__ or "").parents[1])
    environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.split()


def test_equal_in_every_process_wherever_the_file_lies_and_however_it_is_commented(tmp_path: Path) -> None:
    first = digests(tmp_path / "first", salt="1")
    again = digests(tmp_path / "second", salt="2", file="# a comment\n\n" + FILE)
    assert first == again


GLOBAL = 1.0


def reads_a_global() -> float:
    return GLOBAL


def calls_one_that_does() -> float:
    return reads_a_global()


@pytest.mark.parametrize("function", [reads_a_global, calls_one_that_does, functools.partial(calls_one_that_does)])
def test_values_of_globals_count(function, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of([function])
    monkeypatch.setattr(sys.modules[__name__], "GLOBAL", 2.0)
    assert digest_of([function]) != before


def loaded(file: str, beside: str = BESIDE) -> type:
    """The network's class, from source in this process."""
    held = {"__name__": "nets_of_a_test"}
    other = type(sys)("beside_of_a_test")
    exec(compile(beside, "beside", "exec"), vars(other))
    exec(compile(file.format().replace("import beside\n", ""), "nets", "exec"), held)
    held["beside"] = other
    return held["Net"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 2.0", "SCALE = 3.0"),
        ("return x * SCALE", "return x / SCALE"),
        ("torch.ones(2)", "torch.zeros(2)"),
        ('"b": (1, 2)', '"b": (1, 3)'),
        ('"zebra"', '"horse"'),
        ("self.slope = 0.5", "self.slope = 0.25"),
        ("power = 2", "power = 3"),
        ("return n + 1", "return n + 2"),
        ("    return x\n\nclass Base", "    return -x\n\nclass Base"),
        ("limit = 3", "limit = 4"),
        ("return x + 1", "return x + 2"),
        ("depth=1", "depth=2"),
        ('{{"a", "b", "c"}}', '{{"a", "b", "d"}}'),
        ("cached(2)", "cached(3)"),
        ("EXTRA = 7", "EXTRA = 8"),
        ("x * EXTRA", "x + EXTRA"),
        ("SETTINGS.slope", "SETTINGS.power"),
    ],
)
def test_every_edit_shows(old: str, new: str) -> None:
    assert FILE.count(old) + BESIDE.count(old) == 1
    edited = loaded(FILE.replace(old, new), BESIDE.replace(old, new))
    assert digest_of([edited]) != digest_of([loaded(FILE)]) == digest_of([loaded(FILE)])


class Colour(Enum):
    RED = 1
    BLUE = 2


class Slotted:
    __slots__ = ("width",)

    def __init__(self, width: int) -> None:
        self.width = width


class Held:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.itself = self

    def method(self) -> Any:
        return self.value


def closing_over(value: Any) -> Callable[[], Any]:
    return lambda: value


VALUES: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (0.0, -0.0),
    ("a", b"a"),
    ([1, 2], (1, 2)),
    ([1, [2]], [[1], 2]),
    ({"a": 1}, {"a": 2}),
    ({1, 2}, {1, 3}),
    (torch.zeros(2), torch.zeros(2, 1)),
    (torch.zeros(2), torch.zeros(2).double()),
    (torch.tensor([1.0]), torch.tensor([2.0])),
    (torch.float32, torch.float64),
    (np.zeros(2), np.ones(2)),
    (np.float32(1), np.float64(1)),
    (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    (Colour.RED, Colour.BLUE),
    (Slotted(1), Slotted(2)),
    (Held(1), Held(2)),
    (Held(1).method, Held(2).method),
    (closing_over(1), closing_over(2)),
    (functools.partial(max, 1), functools.partial(max, 2)),
    (torch.relu, torch.tanh),
    (torch.nn.functional.relu, torch.nn.functional.silu),
    (nn.Linear, nn.Conv1d),
    (nn.Dropout(0.1), nn.Dropout(0.2)),
    ({"k": closing_over(1)}, {"k": closing_over(2)}),
]


@pytest.mark.parametrize(("one", "other"), VALUES)
def test_values_differ_from_others(one: Any, other: Any) -> None:
    assert digest_of([one]) == digest_of([one])
    assert digest_of([one]) != digest_of([other])
    assert digest_of([one, other]) != digest_of([other, one])


def test_circles_end_and_depth_is_bounded() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert len({digest_of([circle]), digest_of([deep]), digest_of([[]])}) == 3


def test_what_cannot_be_read_counts_by_its_type() -> None:
    import threading

    assert digest_of([threading.Lock()]) == digest_of([threading.Lock()]) != digest_of([object()])
    assert digest_of([Held(threading.local())]) == digest_of([Held(threading.local())])
