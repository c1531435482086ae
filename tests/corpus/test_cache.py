from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from limbeck.corpus.cache import build_once, read_manifest
from limbeck.errors import CorpusError


def test_of_two_builders_at_once_one_waits(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    begun, waits = threading.Event(), threading.Event()
    manifests, built = [], []

    def make(aside: Path) -> dict[str, Any]:
        begun.set()
        assert waits.wait(10)
        (aside / "content").write_text("the same")
        built.append(threading.get_ident())
        return {"by": threading.get_ident()}

    def second() -> None:
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
def test_what_a_failed_build_leaves(tmp_path: Path, goes_on: bool) -> None:
    found: list[list[str]] = []

    def make(aside: Path) -> dict[str, Any]:
        found.append([path.name for path in aside.iterdir()])
        (aside / "half").write_text("done")
        if len(found) == 1:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "x", make, goes_on=goes_on)
    build_once(tmp_path / "x", make, goes_on=goes_on)
    assert found == [[], ["half"] if goes_on else []]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    def make(aside: Path) -> dict[str, Any]:
        (aside / "piece").write_text("kept")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CorpusError, match=r"Cannot write the corpus cache '.*': No space left on device\.$"):
        build_once(tmp_path / "x", make, goes_on=True)
    assert (tmp_path / ".building-x" / "piece").exists()


def test_leftovers_of_killed_builders_are_removed_after_a_week(tmp_path: Path) -> None:
    old, new = tmp_path / ".building-y", tmp_path / ".building-z"
    old.mkdir()
    new.mkdir()
    (tmp_path / ".building-y.lock").touch()
    for path in (old, tmp_path / ".building-y.lock"):
        os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    build_once(tmp_path / "x", lambda _: {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".building-z", "x"]
