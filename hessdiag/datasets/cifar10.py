"""CIFAR-10 in its standard binary layout, as one tensor: no data loader is needed for 180 MB."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hessdiag.datasets.download import Bar, cache_folder, fetch
from hessdiag.errors import HessdiagError

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CHECKSUM = "md5:c32a1d4ab5d03f1284b67883e8d87530"  # as the page of the data set says
FOLDER = "cifar-10-batches-bin"
SIDE, CHANNELS = 32, 3
RECORD = 1 + CHANNELS * SIDE * SIDE  # bytes: the class, then the pixels of each channel
PARTS = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}


@dataclass(frozen=True)
class Images:
    """Images with a class each.

    Attributes:
        pixels: (N, 3, 32, 32) in uint8.
        targets: (N,) classes.
    """

    pixels: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


def load_cifar10(*, part: str = "train", data_dir: Path | None = None, device: str = "cpu") -> Images:
    """Load the training or test part onto a device.

    Args:
        part: `train` or `test`.
        data_dir: folder with data_batch_1.bin … data_batch_5.bin and test_batch.bin, or one that holds
            `cifar-10-batches-bin`; None downloads to the cache.
        device: where the tensors are put.

    Raises:
        HessdiagError: a file is missing or damaged.
    """
    if part not in PARTS:
        raise HessdiagError(f"part {part!r} of CIFAR-10: use train or test")
    folder = fetch_cifar10(cache_folder() / "cifar10") if data_dir is None else data_dir
    if (folder / FOLDER).is_dir():
        folder = folder / FOLDER
    records = torch.cat([_read(folder / name) for name in PARTS[part]]).to(device)
    return Images(records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE), records[:, 0].long())


def fetch_cifar10(cache: Path, *, url: str = URL, known: str | None = CHECKSUM, bar: Bar = None) -> Path:
    """Return the folder of the binary files; download the archive to `cache` and unpack it if they are not there."""
    archive = fetch(url, cache, bar=bar, known=known)
    wanted = [name for names in PARTS.values() for name in names]
    if not all((cache / FOLDER / name).is_file() for name in wanted):
        try:
            with tarfile.open(archive) as packed:
                members = [member for member in packed if member.isfile() and Path(member.name).name in wanted]
                packed.extractall(cache, members, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise HessdiagError(f"cannot unpack {str(archive)!r} ({error}): delete it and try again") from error
    return cache / FOLDER


def _read(path: Path) -> Tensor:
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise HessdiagError(
            f"cannot read {str(path)!r} ({error.strerror}): name a folder with data_batch_1.bin … data_batch_5.bin and"
            " test_batch.bin"
        ) from error
    if not len(content) or len(content) % RECORD or content[::RECORD].max() > 9:
        raise HessdiagError(
            f"{str(path)!r} is not CIFAR-10's binary layout: records of {RECORD} bytes, the class first"
        )
    return torch.from_numpy(content).view(-1, RECORD)
