"""CIFAR-10's binary layout: written here, read from a folder and from a downloaded archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from hessdiag.datasets import cifar10
from hessdiag.datasets.cifar10 import FOLDER, PARTS, RECORD, fetch_cifar10, load_cifar10
from hessdiag.errors import HessdiagError
from tests.datasets.server import serving


def records(seed: int, count: int = 3) -> bytes:
    drawn = np.random.default_rng(seed).integers(0, 256, (count, RECORD), dtype=np.uint8)
    drawn[:, 0] %= 10
    return drawn.tobytes()


FILES = {name: records(number) for number, name in enumerate([*PARTS["train"], *PARTS["test"]])}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_images_and_classes_are_those_written(folder: Path) -> None:
    images = load_cifar10(data_dir=folder)
    assert images.pixels.shape == (15, 3, 32, 32)
    assert images.pixels.dtype == torch.uint8
    raw = np.frombuffer(FILES["data_batch_2.bin"], dtype=np.uint8).reshape(3, RECORD)
    assert images.targets[3:6].tolist() == raw[:, 0].tolist()
    # The green value of column 5 in row 7 of an image stands behind 1 + 1024 + 7 · 32 + 5 bytes.
    assert images.pixels[4, 1, 7, 5] == raw[1, 1 + 1024 + 7 * 32 + 5]
    assert len(load_cifar10(part="test", data_dir=folder)) == 3


def test_the_archive_is_downloaded_and_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    monkeypatch.setenv("HESSDIAG_CACHE", str(tmp_path))
    with serving({"/cifar.tar.gz": packed.getvalue(), "/broken.tar.gz": b"no archive"}) as site:
        for _ in range(2):
            fetch_cifar10(tmp_path / "cifar10", url=f"{site.url}/cifar.tar.gz", known=None)
        assert site.asked == ["/cifar.tar.gz"]
        with pytest.raises(HessdiagError, match="checksum differs"):
            fetch_cifar10(tmp_path / "other", url=f"{site.url}/cifar.tar.gz")
        with pytest.raises(HessdiagError, match="cannot unpack"):
            fetch_cifar10(tmp_path / "broken", url=f"{site.url}/broken.tar.gz", known=None)
    monkeypatch.setattr(cifar10, "fetch_cifar10", lambda cache: cache)
    assert len(load_cifar10()) == 15


def test_what_is_no_such_layout_is_refused(folder: Path) -> None:
    with pytest.raises(HessdiagError, match="use train or test"):
        load_cifar10(part="valid", data_dir=folder)
    (folder / "data_batch_3.bin").write_bytes(b"\x0b" + bytes(RECORD - 1))  # class 11
    with pytest.raises(HessdiagError, match="not CIFAR-10's binary layout"):
        load_cifar10(data_dir=folder)
    (folder / "data_batch_3.bin").write_bytes(bytes(RECORD - 1))
    with pytest.raises(HessdiagError, match="not CIFAR-10's binary layout"):
        load_cifar10(data_dir=folder)
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(HessdiagError, match="name a folder with data_batch"):
        load_cifar10(data_dir=folder)
