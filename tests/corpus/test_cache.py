import errno
import os
import threading
import time

import pytest

from limbeck.core import files as cache
from limbeck.core.files import NothingToBuildError, build_once, finish_piece, read_manifest
from limbeck.errors import CorpusError


def test_of_two_builders_at_once_one_waits(tmp_path):
    folder = tmp_path / "result"
    begun, waits = threading.Event(), threading.Event()
    manifests, built = [], []

    def make(aside):
        begun.set()
        assert waits.wait(10)
        (aside / "content").write_text("the same")
        built.append(threading.get_ident())
        return {"by": threading.get_ident()}

    def second():
        assert begun.wait(10)
        manifests.append(build_once(folder, make, waiting=waits.set))

    threads = [threading.Thread(target=lambda: manifests.append(build_once(folder, make)))]
    threads.append(threading.Thread(target=second))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(built) == 1
    assert manifests[0] == manifests[1] == read_manifest(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_a_failed_build_leaves(tmp_path, goes_on):
    found = []

    def make(aside):
        found.append([path.name for path in aside.iterdir()])
        (aside / "half").write_text("done")
        if len(found) == 1:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "x", make, goes_on=goes_on)
    build_once(tmp_path / "x", make, goes_on=goes_on)
    assert found == [[], ["half"] if goes_on else []]


@pytest.mark.parametrize(
    ("error", "with_piece", "is_kept"),
    [(CorpusError, True, True), (CorpusError, False, False), (NothingToBuildError, True, False)],
)
def test_pieces_are_kept_unless_they_are_of_no_use(tmp_path, error, with_piece, is_kept):
    def make(aside):
        (aside / "content").write_text("done")
        if with_piece:
            finish_piece(aside, "first", ["content"], {})
        raise error("It went wrong.")

    with pytest.raises(CorpusError, match="It went wrong"):
        build_once(tmp_path / "x", make, goes_on=True)
    assert (tmp_path / ".building-x").exists() == is_kept


def test_a_builder_killed_at_its_last_step_has_finished(tmp_path, monkeypatch):
    built = []

    def make(aside):
        built.append(aside)
        for name in ("a", "b"):
            (aside / name).write_text(name)
            finish_piece(aside, name, [name], {})
        return {"by": "me"}

    def die_half_way(folder):
        next(folder.glob("*.piece.json")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache, "remove_pieces", die_half_way)
        with pytest.raises(KeyboardInterrupt):
            build_once(tmp_path / "x", make, goes_on=True)
    manifest = build_once(tmp_path / "x", make, goes_on=True)
    assert manifest == {"by": "me", "files": {"a": 1, "b": 1}}
    assert len(built) == 1
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["a", "b", "manifest.json"]


def test_a_full_disk_is_one_line(tmp_path):
    def make(aside):
        (aside / "piece").write_text("kept")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        CorpusError, match=r"Cannot write the corpus cache '.*': No space left on device; set LIMBECK_CACHE"
    ):
        build_once(tmp_path / "x", make, goes_on=True)
    assert (tmp_path / ".building-x" / "piece").exists()


def test_leftovers_of_killed_builders_are_removed_after_a_week(tmp_path):
    old, new = tmp_path / ".building-y", tmp_path / ".building-z"
    old.mkdir()
    new.mkdir()
    (tmp_path / ".building-y.lock").touch()
    for path in (old, tmp_path / ".building-y.lock"):
        os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    build_once(tmp_path / "x", lambda _: {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".building-z", "x"]
