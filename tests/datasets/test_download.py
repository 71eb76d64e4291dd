"""Real downloads, from a server on this machine: kept once, checked, and one clear line when something is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hessdiag.__main__ import main
from hessdiag.datasets.download import CHECKSUMS, cache_folder, fetch, recorded_checksums
from hessdiag.datasets.libsvm import load_libsvm
from hessdiag.errors import HessdiagError
from tests.datasets.server import Site, serving

IRIS = "".join(f"{1 + n % 3} 1:{n} 4:0.5\n" for n in range(150)).encode()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"/iris.scale": IRIS, "/wine.scale": b"1 1:2 13:1\n"}) as found:
        yield found


def test_a_file_is_downloaded_once_and_its_checksum_recorded(site: Site, tmp_path: Path) -> None:
    for _ in range(2):
        assert fetch(f"{site.url}/iris.scale", tmp_path / "new").read_bytes() == IRIS
    assert site.asked == ["/iris.scale"]
    assert recorded_checksums(tmp_path / "new") == {"iris.scale": hashlib.sha256(IRIS).hexdigest()}
    fetch(f"{site.url}/wine.scale", tmp_path / "new")
    assert set(recorded_checksums(tmp_path / "new")) == {"iris.scale", "wine.scale"}


def test_a_file_damaged_in_the_cache_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    path = fetch(f"{site.url}/iris.scale", tmp_path)
    path.write_bytes(IRIS[:-5])
    assert fetch(f"{site.url}/iris.scale", tmp_path).read_bytes() == IRIS
    assert len(site.asked) == 2


def test_progress_is_told(site: Site, tmp_path: Path) -> None:
    told: list[int] = []

    class Bar:
        total = 0

        def update(self, count: int) -> None:
            told.append(self.total)

        def reset(self) -> None: ...

        def close(self) -> None: ...

    fetch(f"{site.url}/iris.scale", tmp_path, bar=Bar())
    assert told[-1] == len(IRIS)


def refuse(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that the command refuses with."""
    assert main(["data", "fetch", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


def test_the_command_prints_where_the_files_are(site: Site, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("HESSDIAG_CACHE", str(tmp_path))
    assert main(["data", "fetch", "iris", "wine", "--mirror", site.url]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [Path(line).read_bytes() for line in printed.out.split()] == [IRIS, site.files["/wine.scale"]]
    assert len(load_libsvm("iris", mirror="http://127.0.0.1:9")) == 150  # nothing is asked for
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("yes")] == ["iris", "wine"]
    assert len(lines) == 26


def test_a_missing_file_is_one_line(site: Site, tmp_path: Path, capsys) -> None:
    said = refuse(capsys, "glass", "--mirror", site.url, "--cache", str(tmp_path))
    assert f"cannot download {site.url}/glass.scale (the server answers 404 Not Found)" in said
    assert [path.name for path in (tmp_path / "libsvm").iterdir()] == []


def test_an_unreachable_server_is_one_line(tmp_path: Path, capsys) -> None:
    said = refuse(capsys, "glass", "--mirror", "http://127.0.0.1:9", "--cache", str(tmp_path))
    assert "cannot download http://127.0.0.1:9/glass.scale (ConnectionError" in said


def test_an_interrupted_download_is_one_line_and_leaves_nothing(site: Site, tmp_path: Path, capsys) -> None:
    site.cut.add("/iris.scale")
    said = refuse(capsys, "iris", "--mirror", site.url, "--cache", str(tmp_path))
    assert f"cannot download {site.url}/iris.scale (" in said
    assert [path.name for path in (tmp_path / "libsvm").iterdir()] == []
    site.cut.clear()
    assert main(["data", "fetch", "iris", "--mirror", site.url, "--cache", str(tmp_path)]) == 0


def test_another_checksum_is_one_line_and_nothing_is_kept(site: Site, tmp_path: Path, capsys) -> None:
    options = ("iris", "--mirror", site.url, "--cache", str(tmp_path))
    assert main(["data", "fetch", *options]) == 0
    capsys.readouterr()
    (tmp_path / "libsvm" / "iris.scale").unlink()
    site.files["/iris.scale"] = IRIS + b"1 1:1\n"
    said = refuse(capsys, *options)
    assert f"{site.url}/iris.scale is not what was expected, its checksum differs" in said
    assert [path.name for path in (tmp_path / "libsvm").iterdir()] == [CHECKSUMS]


def test_an_unknown_name_is_refused_before_any_download(site: Site, tmp_path: Path, capsys) -> None:
    said = refuse(capsys, "wine", "irsi", "--mirror", site.url, "--cache", str(tmp_path))
    assert said == "hessdiag: unknown data set 'irsi': did you mean iris?\n"
    assert site.asked == []


def test_a_folder_that_cannot_be_made_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HessdiagError, match="name another folder"):
        fetch(f"{site.url}/iris.scale", tmp_path / "file" / "cache")


def test_the_cache_is_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESSDIAG_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    assert cache_folder("/here") == Path("/here")
    monkeypatch.delenv("HESSDIAG_CACHE")
    assert cache_folder().name == "hessdiag"
