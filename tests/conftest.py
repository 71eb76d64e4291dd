"""Every test that takes `device` runs on each one named in HESSDIAG_TEST_DEVICE (default: cpu, and cuda if present)."""

import os

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)  # tensors in tests are small: threads would only wait for one another
settings.register_profile("default", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=500, deadline=None, database=None, print_blob=True)
settings.load_profile("default")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        default = "cpu,cuda" if torch.cuda.is_available() else "cpu"
        metafunc.parametrize("device", os.environ.get("HESSDIAG_TEST_DEVICE", default).split(","))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
