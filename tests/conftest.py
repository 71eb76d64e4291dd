"""Every test that takes `device` runs on each one named in HESSDIAG_TEST_DEVICE (default: cpu, and cuda if present)."""

import os

import pytest
import torch

torch.set_num_threads(1)  # tensors in tests are small: threads would only wait for one another


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        default = "cpu,cuda" if torch.cuda.is_available() else "cpu"
        metafunc.parametrize("device", os.environ.get("HESSDIAG_TEST_DEVICE", default).split(","))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
