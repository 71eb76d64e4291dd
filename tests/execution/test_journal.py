"""Units are kept bit for bit, and no other file is taken for a journal."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hessdiag.errors import HessdiagError
from hessdiag.execution.journal import Journal, journal

IDENTITY = {"seed": "0", "weights": "abc"}


def test_numbers_are_kept_bit_for_bit(tmp_path: Path) -> None:
    values = {
        "wild": np.array([[np.nan, np.inf, -0.0, 5e-324, 1 / 3]]),
        "whole": np.arange(3),
        "text": np.array("γ/σ²"),
        "none": np.zeros((0, 4)),
    }
    first = Journal(tmp_path / "run", IDENTITY)
    first.put("unit", values)
    first.close()
    again = Journal(tmp_path / "run", IDENTITY).get("unit")
    assert again is not None
    for key, value in values.items():
        assert again[key].dtype == value.dtype
        assert again[key].tobytes() == value.tobytes()
    assert Journal(tmp_path / "run", IDENTITY).get("another") is None


@pytest.mark.parametrize("other", [{"seed": "1"}, {"weights": "abd"}, {"loss": "mse"}])
def test_another_measurement_is_refused_by_name(other: dict[str, str], tmp_path: Path) -> None:
    Journal(tmp_path / "run", IDENTITY).close()
    before = (tmp_path / "run").read_bytes()
    with pytest.raises(HessdiagError, match=f"it is of another measurement, {next(iter(other))} was"):
        Journal(tmp_path / "run", IDENTITY | other)
    assert (tmp_path / "run").read_bytes() == before


def test_no_file_is_no_journal() -> None:
    with journal(None, IDENTITY) as none:
        assert none is None


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE album (title TEXT)")


def truncated(path: Path) -> None:
    Journal(path, IDENTITY).close()
    path.write_bytes(path.read_bytes()[:5000])


def scribbled(path: Path) -> None:
    Journal(path, IDENTITY).close()
    content = bytearray(path.read_bytes())
    content[30:3000] = b"\x5a" * 2970
    path.write_bytes(content)


MAKERS = [
    foreign_database,
    truncated,
    scribbled,
    lambda path: path.write_text('{"schema": "hessdiag.report/1"}'),
    lambda path: path.write_bytes(os.urandom(4096)),
    lambda path: path.mkdir(),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_was(make, tmp_path: Path) -> None:
    path = tmp_path / "run"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(HessdiagError, match="cannot resume from"):
        Journal(path, IDENTITY)
    assert before is None or path.read_bytes() == before


def test_a_damaged_unit_is_refused(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "run", IDENTITY)
    kept.put("unit", {"a": np.ones(3)})
    kept.connection.execute("UPDATE unit SET result = ?", (b"PK\x03\x04 not an array",))
    with pytest.raises(HessdiagError, match="cannot resume from"):
        kept.get("unit")


WRITER = """
import sys, numpy as np
from hessdiag.execution.journal import Journal
journal = Journal(sys.argv[1], {})
for n in range(10**6):
    journal.put(f"unit {n}", {"n": np.full(2000, n)})
    print(n, flush=True)
"""


def test_a_kill_leaves_whole_units(tmp_path: Path) -> None:
    path = tmp_path / "run"
    told = -1
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for line in writer.stdout:
            told = max(told, int(line))
            if int(line) >= 5:
                writer.send_signal(signal.SIGKILL)
                break
        writer.wait()
        writer.stdout.close()
        kept = Journal(path, {})
        for n in range(told + 1):
            unit = kept.get(f"unit {n}")
            assert unit is not None
            assert (unit["n"] == n).all()
        kept.close()
