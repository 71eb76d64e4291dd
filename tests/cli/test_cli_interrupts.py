"""Ctrl-C at any moment: one line that says what is kept, and exit status 130."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hessdiag.__main__ import main

LONG = ["diagnose", "lenet", "--matrix", "hessian", "--batch-size", "64", "--rtol", "0.001", "--max-products", "100000"]


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "hessdiag", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment, preexec_fn=heed_interrupts
    )


def heed_interrupts() -> None:
    """Tests that run in the background of a shell ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return as_in_a_shell(process.returncode), out, err


def as_in_a_shell(status: int) -> int:
    """Python ends itself by SIGINT where the interrupt came inside `exec` of a text; shells call that 130 as well."""
    return 130 if status == -signal.SIGINT else status


def wait_for_units(path: Path) -> None:
    """Until the journal has grown beyond its empty tables."""
    started = time.monotonic()
    while not (path.exists() and path.stat().st_size > 20_000) and time.monotonic() - started < 60:
        time.sleep(0.05)


def test_without_one_the_option_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from pathlib import Path\nfrom torch import nn\n"
        "class Slow(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        Path('started').touch()\n"
        "        while True: pass\n"
        "def build(): return Slow(4, 2), 4\n"
    )
    process = start(tmp_path, "diagnose", "./net.py:build")
    while not (tmp_path / "started").exists() and process.poll() is None:
        time.sleep(0.02)
    said = "hessdiag: interrupted; a run with --resume FILE keeps finished units and goes on where it was\n"
    assert interrupt(process) == (130, "", said)


@pytest.mark.parametrize("moment", ["typer", "numpy", "torch", "torch._C", "torch.nn"])
def test_while_libraries_are_imported(moment: str, tmp_path: Path) -> None:
    """The interrupt comes when `moment` is about to be imported, in the midst of other imports."""
    code = f"""
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["hessdiag", "diagnose", "mlp:4-3-2"]
from hessdiag.__main__ import main
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, preexec_fn=heed_interrupts
    )
    assert (as_in_a_shell(done.returncode), done.stdout) == (130, "")
    assert done.stderr.startswith("hessdiag: interrupted; a run with --resume FILE")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("disguise", ["ImportError('initialisation of a C module failed')", "SystemError('?')"])
def test_an_interrupt_that_is_raised_as_something_else(
    disguise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    while True: pass\n"
        f"except KeyboardInterrupt:\n    raise {disguise}\n"
    )
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored in the background of a shell
    try:
        assert main(["describe", "./net.py:build"]) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, outside)
    assert capsys.readouterr() == ("", "hessdiag: interrupted\n")


def test_an_interrupt_of_a_finaliser_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python drops what is raised in a finaliser, and prints it as `Exception ignored in`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import os, signal, time\n"
        "class Finalised:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(5)\n"
        "def build():\n"
        "    Finalised()\n"
        "    while True: pass\n"
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["describe", "./net.py:build"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "hessdiag: interrupted\n")


@pytest.mark.parametrize(
    ("line", "hinted"),
    [
        ("diagnose lenet", True),
        ("check-init geometric --model lenet", True),
        ("predict lenet --compare", True),
        ("predict lenet", False),
        ("describe lenet", False),
    ],
)
def test_commands_that_keep_their_work_say_how(
    line: str, hinted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hessdiag.cli.app", interrupted)
    assert main(line.split()) == 130
    out, err = capsys.readouterr()
    assert (out, err.startswith("hessdiag: interrupted"), err.count("\n")) == ("", True, 1)
    assert ("--resume FILE" in err) == hinted
