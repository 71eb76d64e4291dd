"""What tests of the command line share: running a line in a folder of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hessdiag.__main__ import main


class Outcome(NamedTuple):
    """What a command left behind: exit status, stdout and stderr."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Outcome]:
    monkeypatch.chdir(tmp_path)
    return lambda line: Outcome(main(line.split()), *capsys.readouterr())
