"""svmlight files from a folder: values, classes, stand-ins, and what is refused."""

from __future__ import annotations

import bz2
import lzma
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hessdiag.datasets.dataset import Dataset
from hessdiag.datasets.libsvm import load_libsvm
from hessdiag.datasets.libsvm_catalogue import CATALOGUE
from hessdiag.errors import HessdiagError

ROWS = b"5 1:0.25 4:-1\n-2 2:3 # a comment\n5 4:1\n"


def test_rows_and_classes(tmp_path: Path) -> None:
    (tmp_path / "iris.scale").write_bytes(ROWS)
    found = load_libsvm("iris", data_dir=tmp_path)
    assert found.targets.tolist() == [1, 0, 1]
    assert (len(found), found.features, found.classes) == (3, 4, 2)
    assert found.rows.nnz == 4  # stays sparse
    expected = torch.tensor([[0.25, 0, 0, -1], [0, 3, 0, 0], [0, 0, 0, 1]])
    assert torch.equal(found.take(torch.arange(3)), expected)
    assert torch.equal(found.take(torch.tensor([[2, 0], [1, 1]])), expected[torch.tensor([[2, 0], [1, 1]])])
    assert found.note == "3 rows, LIBSVM has 150"


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_or_not(ending: str, pack, tmp_path: Path) -> None:
    (tmp_path / f"dna.scale{ending}").write_bytes(pack(ROWS))
    assert load_libsvm("dna", data_dir=tmp_path).targets.tolist() == [1, 0, 1]


def test_stand_ins_are_read_only_where_the_file_is_missing_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "covtype.first20k.bz2").write_bytes(bz2.compress(ROWS))
    assert load_libsvm("covtype", data_dir=tmp_path).note.startswith("the first rows, unscaled; 3 rows, LIBSVM has 581")
    (tmp_path / "covtype.scale").write_bytes(ROWS * 2)
    assert load_libsvm("covtype", data_dir=tmp_path).note.startswith("6 rows, LIBSVM has 581")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("iris.scale", b"1 1:2\nnonsense\n", "should hold lines of class index:value"),
        ("iris.scale", b"", "holds no examples"),
        ("iris.scale.bz2", bz2.compress(ROWS * 99)[:-9], "should hold lines"),
        ("iris.scale.xz", b"\xfd7zXZ broken", "should hold lines"),
        ("wine.scale", ROWS, "has no iris: it should hold iris.scale.bz2$"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HessdiagError, match=said) as refused:
        load_libsvm("iris", data_dir=tmp_path)
    assert "\n" not in str(refused.value)


def test_a_missing_folder_or_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HessdiagError, match="there is no such folder"):
        load_libsvm("iris", data_dir=tmp_path / "none")
    (tmp_path / "iris.scale").write_bytes(ROWS)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        HessdiagError, match=r"need scikit-learn, which is not installed: pip install 'hessdiag\[data\]"
    ):
        load_libsvm("iris", data_dir=tmp_path)


def dataset(count: int = 20) -> Dataset:
    from scipy.sparse import csr_matrix

    return Dataset("d", csr_matrix(np.arange(count * 2.0).reshape(count, 2)), np.arange(count) % 3, 3)


def test_a_subset_is_of_rows_with_their_targets() -> None:
    part = dataset().subset(7)
    rows = part.take(torch.arange(7))
    assert [int(row[0]) // 2 % 3 for row in rows] == part.targets.tolist()
    assert len({int(row[0]) for row in rows}) == 7
    assert part.note == "7 of 20 rows"
    assert dataset().subset(20).note == ""
    with pytest.raises(HessdiagError, match="at least 1"):
        dataset().subset(0)


def test_digests_tell_data_apart() -> None:
    assert dataset().digest() == dataset().digest() != dataset(19).digest()


def test_names_of_the_catalogue_are_in_lower_case() -> None:
    assert all(name == name.lower() for name in CATALOGUE)
    assert len(CATALOGUE) == 25
