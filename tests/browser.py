"""A headless Chromium that tests drive: by the DevTools protocol over two pipes, which needs no other package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
LAUNCHER = "import os, sys; os.dup2({read}, 3); os.dup2({write}, 4); os.execv(sys.argv[1], sys.argv[1:])"


def find_browser() -> str | None:
    """Return the path of an installed Chromium or Chrome; `HESSDIAG_TEST_BROWSER` names another."""
    return next(filter(None, map(shutil.which, (os.environ.get("HESSDIAG_TEST_BROWSER", ""), *NAMES))), None)


@dataclass
class Browser:
    """One tab.

    Attributes:
        commands, answers: descriptors of the pipes, for messages that end with a zero byte.
        session: of the tab, once it is open.
        complaints: what pages wrote to the console, and what their policy refused.
    """

    commands: int
    answers: int
    session: str = ""
    complaints: list[str] = field(default_factory=list)
    _number: int = 0
    _buffer: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; fail if the browser refuses it."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self.commands, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode())
        os.write(self.commands, b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self._note(answer)

    def open(self, path: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Show a file on a screen of so many pixels."""
        if not self.session:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.call("Log.enable")
            self.call("Runtime.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + 20
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") == "about:blank":
            assert time.monotonic() < end, "the page did not load"
            time.sleep(0.02)

    def evaluate(self, script: str) -> Any:
        """Run a script in the page and return its value."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, such as `"Tab"` or `"Enter"`."""
        codes = {"Enter": {"windowsVirtualKeyCode": 13, "text": "\r"}, "Tab": {"windowsVirtualKeyCode": 9}}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **codes[key])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save what is on the screen, or the whole page, as PNG."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(taken["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self.answers, 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Log.entryAdded":
            self.complaints.append(event["params"]["entry"]["text"])
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(event["params"]["exceptionDetails"]))


@contextmanager
def launched(folder: Path) -> Iterator[Browser]:
    """Run a browser with its profile in a folder; skip the test where none is installed."""
    path = find_browser()
    if path is None or sys.platform == "win32":
        pytest.skip("no Chromium or Chrome is installed: set HESSDIAG_TEST_BROWSER to the path of one")
    read_commands, write_commands = os.pipe()
    read_answers, write_answers = os.pipe()
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}")
    launcher = LAUNCHER.format(read=read_commands, write=write_answers)
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, path, *options],
        pass_fds=(read_commands, write_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        yield Browser(write_commands, read_answers)
    finally:
        os.close(write_commands)
        os.close(read_answers)
        process.terminate()
        process.wait(timeout=20)
