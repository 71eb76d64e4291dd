"""The command line in a real terminal: width, colours, how much it says, help; Ctrl-C and runs that go on."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.text import Text

from hessdiag.__main__ import main
from hessdiag.cli.printing import coloured
from tests.processes import ended, start

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
RUN = """
from hessdiag.__main__ import main
status = main(sys.argv[1:])
assert "torch._dynamo" not in sys.modules  # PyTorch's compiler, whose import takes as long as a diagnosis
sys.exit(status)
"""
COMMAND = ("diagnose", "mlp:30-20-10-5", "--batch-size", "4")


def in_terminal(*arguments: str, columns: int) -> tuple[int, str]:
    """Exit status, and what a terminal of so many columns receives from both streams."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process, received = start(RUN, arguments, [os.ttyname(theirs)] * 3, TERM="xterm-256color"), b""
    while select.select([ours], [], [], 0)[0] or process.is_alive():
        if select.select([ours], [], [], 0.05)[0]:
            received += os.read(ours, 65536)
    os.close(ours), os.close(theirs)
    return process.exitcode, received.decode()


def test_lines_fit_and_the_verdict_is_first_and_coloured(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    status, received = in_terminal(*COMMAND, "--max-spread", "1", "--json", "r.json", columns=60)
    record = json.loads((tmp_path / "r.json").read_text(), parse_constant=lambda constant: pytest.fail(constant))
    assert (status, record["schema"], record["model"]) == (1, "hessdiag.report/2", COMMAND[1])
    assert "hessdiag: spread of σ² is " in received
    screen = received.rpartition("\x1b[2K")[2]  # a bar is gone when it is over
    assert max(map(len, CONTROL.sub("", screen).splitlines())) <= 60
    assert screen.startswith("wrote r.json\r\n\x1b[1;32mNo problem found\x1b[0m ")


def test_quiet_is_verdict_and_balance_and_pipes_get_the_whole_table_without_colour(run, tmp_path, monkeypatch) -> None:
    status, out, err = run(" ".join(COMMAND) + " --quiet --json report.json")
    assert (status, err) == (0, "")
    assert re.findall(r"^[A-Z]\S*", out, re.MULTILINE) == ["No", "Curvature"]
    assert "moments" not in out
    assert (tmp_path / "report.json").exists()
    status, out, err = run(" ".join(COMMAND))
    assert (status, err) == (0, "")
    assert not CONTROL.search(out)
    assert "  flat│steep\n" in out
    monkeypatch.setenv("COLUMNS", "30")
    out = run(" ".join(COMMAND)).out
    assert "not shown in 30 columns:\nflat│steep" in out
    assert max(map(len, out.splitlines())) <= 30
    monkeypatch.setenv("COLUMNS", "80")
    out = run("-h").out
    assert "..." not in out.partition("Commands:")[2]
    assert max(map(len, out.splitlines())) <= 80


def test_verbose_leaves_nothing_out(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    blocks = [nn.Linear(4, 4) if i % 2 else nn.LayerNorm(4) for i in range(8)]\n"
        "    return nn.Sequential(*blocks), 4\n"
    )
    monkeypatch.setenv("COLUMNS", "60")
    usual, whole = (run(f"diagnose ./net.py:build --batch-size 4 {option}") for option in ("", "-v"))
    assert "Not measured: 0.weight and 7 more parameters (-v says why)." in " ".join(usual.out.split())
    assert "not shown" not in whole.out
    told = whole.out.partition("not measured:\n")[2]
    expected = [f"{layer}.{part}" for layer in (0, 2, 4, 6) for part in ("weight", "bias")]
    assert re.findall(r"^  (\d\.\w+): ", told, re.MULTILINE) == expected


@pytest.mark.parametrize(("line", "told"), [
    ("check-init fan-in --model mlp:6-5-3 --setups 2 --batch-size 4 --against fan-out -q", "fan-in: "),
    ("predict mlp:6-5-3 -q", "spread over weight blocks, max/min:  γ "),
    ("lr mlp:6-5-3 --batch-size 8 --steps 3 --optimizer adam -q", "Adam: "),
    ("prescribe mlp:20-30-5 --batch-size 8 -q", "from hessdiag.surgery import"),
])  # fmt: skip
def test_quiet_of_other_commands_is_what_one_acts_on(line: str, told: str, run) -> None:
    status, out, err = run(line)
    assert (status, err) == (0, "")
    assert out.startswith(told)
    assert len(out.splitlines()) <= 6


@pytest.mark.parametrize(("text", "part", "style"), [
    ("1 fault: look", "1 fault", "bad"), ("./mine.py:init: unbalanced, σ² spreads", "unbalanced", "bad"),
    ("resolved: HD206 at a", "resolved", "good"),
])  # fmt: skip
def test_what_is_coloured(text: str, part: str, style: str) -> None:
    styled = coloured(text)
    assert isinstance(styled, Text)
    assert [(text[span.start : span.end], span.style) for span in styled.spans] == [(part, style)]


SLOW = """
import os, time
from torch import nn

class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)))
        return super().forward(x)

def build(): return Slow(4, 2), 4
"""
CHECK = ["check-init", "geometric", "--model", "./net.py:build", "--against", "fan-in", "--setups", "2"]
CHECK += ["--batch-size", "2", "--resume", "trials"]
SCRIPT = "from hessdiag.__main__ import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(SLOW)
    return tmp_path


def test_an_interrupt_while_libraries_are_imported(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    class Interrupting:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "hessdiag.cli":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.startswith("hessdiag.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main(["explain"]) == 130
    assert capsys.readouterr() == ("", "hessdiag: interrupted\n")


def test_a_check_that_is_interrupted_or_killed_ends_with_the_same_bytes(folder: Path, capsys) -> None:
    line = [*CHECK, "--json", "two.json"]
    process = start(SCRIPT, line, ("/dev/null", "out", "err"), SLOW="0.01")
    trials, started = folder / "trials", time.monotonic()
    while not trials.exists() or trials.read_bytes().count(b"\n") < 2:
        assert time.monotonic() - started < 120
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process, "out", "err") == (130, "", "hessdiag: interrupted\n")
    assert not (folder / "two.json").exists()
    assert main(line) == 0
    finished, whole = (folder / "two.json").read_bytes(), trials.read_bytes()
    trials.write_bytes(whole[: len(whole) * 2 // 3])  # killed while a line was written
    assert main(line) == 0
    assert ((folder / "two.json").read_bytes(), trials.read_bytes()) == (finished, whole)
    assert main([*CHECK[:-2], "--json", "one.json"]) == 0
    assert (folder / "one.json").read_bytes() == finished
    assert main([*CHECK, "--input-size", "4"]) == 2
    assert "it is of another measurement, input_size was None and is (4,)" in capsys.readouterr().err
    (folder / "net.py").write_text(SLOW + "# changed")
    assert main(CHECK) == 2
    assert "cannot resume from 'trials' (it is of another measurement, net.py was" in capsys.readouterr().err
