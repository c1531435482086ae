"""Files and folders that are replaced are the old or the new ones, whatever happens meanwhile."""

import os
import socket
import subprocess
import sys

import pytest

from limbeck.core.files import atomic_file, atomic_folder, atomic_text
from limbeck.errors import OutputError


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("before", [{}, {"old": "1"}])
def test_a_folder_is_replaced_as_a_whole(before, shared, tmp_path):
    folder = tmp_path / "below" / "folder"
    if before:
        folder.mkdir(parents=True)
        (folder / "old").write_text("1")
    with pytest.raises(KeyError), atomic_folder(folder, shared=shared) as partial:
        (partial / "new").write_text("2")
        raise KeyError
    assert contents(tmp_path / "below") == {f"folder/{name}": text for name, text in before.items()}
    with atomic_folder(folder, shared=shared) as partial:
        (partial / "new").write_text("2")
        assert contents(folder) == before
    assert contents(tmp_path / "below") == {"folder/new": "2"}


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_link_in_the_place_of_a_folder_goes_and_its_target_stays(tmp_path, target):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "old").write_text("1")
    (tmp_path / "folder").symlink_to(tmp_path / target)
    with atomic_folder(tmp_path / "folder") as partial:
        (partial / "new").write_text("2")
    assert contents(tmp_path) == {"elsewhere/old": "1", "folder/new": "2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "folder"]


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path):
    (tmp_path / "file").write_text("1")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="file' is a file, but a folder"), atomic_folder(tmp_path / "file"):
        pass
    with pytest.raises(OutputError, match="folder' is a folder, but a file"):
        atomic_text(tmp_path / "folder", "2")
    assert contents(tmp_path) == {"file": "1"} and len(list(tmp_path.iterdir())) == 2


def test_what_killed_processes_wrote_aside_is_removed_and_what_others_write_stays(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine = socket.gethostname()
    names = {
        f"x.{machine}.{ended.pid}.partial": False,
        f"x.{machine}.{os.getppid()}.partial": True,
        f"x.elsewhere.{ended.pid}.partial": True,
        f"y.{machine}.{ended.pid}.partial": True,
    }
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text("1")
    with atomic_folder(tmp_path / "x", shared=True) as partial:
        assert partial.name == f"x.{machine}.{os.getpid()}.partial"
    assert {path.name for path in tmp_path.iterdir()} == {"x", *(name for name, stays in names.items() if stays)}


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_is_replaced_as_a_whole(shared, tmp_path):
    path = tmp_path / "file.json"
    atomic_text(path, "old", shared=shared)
    with pytest.raises(KeyError), atomic_file(path, shared=shared) as partial:
        partial.write_text("ne")
        raise KeyError
    assert contents(tmp_path) == {"file.json": "old"}, "no part keeps room on a full disk"
    atomic_text(path, "new", shared=shared)
    assert contents(tmp_path) == {"file.json": "new"}


def test_processes_that_share_a_folder_write_aside_under_names_of_their_own(tmp_path, monkeypatch):
    with atomic_folder(tmp_path / "x", shared=True) as first:
        monkeypatch.setattr("os.getpid", lambda: -1)
        with atomic_folder(tmp_path / "x", shared=True) as second:
            assert first != second
            (second / "a").write_text("second")
        (first / "a").write_text("first")
    assert contents(tmp_path) == {"x/a": "first"}, "the last to end replaces the other"
