from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from limbeck.corpus.cache import build_once, read_manifest


def test_two_builders_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    barrier = threading.Barrier(2)
    manifests = []

    def make(aside: Path) -> dict[str, Any]:
        (aside / "content").write_text("the same")
        barrier.wait(10)
        return {"by": threading.get_ident()}

    threads = [threading.Thread(target=lambda: manifests.append(build_once(folder, make))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert manifests[0] == manifests[1] == read_manifest(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_leftovers_of_killed_builders_are_removed_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / ".building-x-1", tmp_path / ".building-x-2"
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 90_000,) * 2)
    build_once(tmp_path / "x", lambda _: {})
    assert not old.exists()
    assert new.exists()
