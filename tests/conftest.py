"""What all tests share: devices, seeds, and how many processes run them. Every test that takes `device` runs on each
one named in HESSDIAG_TEST_DEVICE (default: cpu, and cuda if present).
"""

import gc
import os
import re

import pytest
import torch
from hypothesis import settings

from hessdiag.network.torch_state import seed_torch

gc.disable()  # until all is imported, none of which is ever garbage
torch.set_num_threads(1)  # tensors in tests are small: threads would only wait for one another
settings.register_profile("default", max_examples=15, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=500, deadline=None, database=None, print_blob=True)
settings.load_profile("default")

MAX_WORKERS = 4  # each holds PyTorch in memory
UNSTABLE_ID = re.compile(r" at 0x[0-9a-f]+|(?:tensor|array)\([\[\d-]")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Share the whole suite among the processors; what was picked by hand runs here, where one can debug it."""
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    return min(MAX_WORKERS, os.cpu_count() or 1) if whole else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unstable = [item.nodeid for item in items if UNSTABLE_ID.search(item.nodeid)]
    if unstable:
        raise pytest.UsageError(f"give the parameters of these tests ids of their own: {unstable}")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        default = "cpu,cuda" if torch.cuda.is_available() else "cpu"
        metafunc.parametrize("device", os.environ.get("HESSDIAG_TEST_DEVICE", default).split(","))


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as they are in a file, whatever the tests run in."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    seed_torch(0)
