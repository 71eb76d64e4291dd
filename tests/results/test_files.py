"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.results.records import make_folder, write_bytes, write_text


def test_text_is_written_as_utf_8_and_replaces_what_was_there(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a.txt", "γ/σ²\n") == tmp_path / "a.txt"
    assert (tmp_path / "a.txt").read_bytes() == "γ/σ²\n".encode()
    (tmp_path / "b.txt").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode
    (tmp_path / "b.txt").unlink()
    for content in (b"long and old", b"new", b""):
        write_bytes(str(tmp_path / "a.txt"), content)
        assert (tmp_path / "a.txt").read_bytes() == content
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("step", ["pathlib.Path.write_bytes", "os.replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_midway_leaves_the_old_file_and_nothing_else(
    step: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def fail(*args: object, **options: object) -> None:
        raise failure

    monkeypatch.setattr(step, fail)
    wanted = HessdiagError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(wanted) as caught:
        write_text(tmp_path / "a", "new")
    monkeypatch.undo()
    if wanted is HessdiagError:
        assert "No space left on device" in str(caught.value)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("path", ["missing/a", "file/a", "folder", "x" * 300])
def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    with pytest.raises(HessdiagError, match="name a file in an existing, writable folder") as caught:
        write_text(tmp_path / path, "text")
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert not list((tmp_path / "folder").iterdir())


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "real")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "real").read_text() == "text"
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "link"]
    # So is /dev/null, which a replacement by a file would break for the whole machine.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HessdiagError, match=r"^cannot make the folder '.*file/below' \(Not a directory\)$"):
        make_folder(tmp_path / "file" / "below")
    assert make_folder(tmp_path / "a" / "b").is_dir()
