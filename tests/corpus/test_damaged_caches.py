"""Caches whose bytes have changed: found by their hashes, named, and built anew; unchanged ones are read once."""

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limbeck.core import cache, files, seals
from limbeck.core.cache import build_once, finish_piece, read_manifest, read_piece
from limbeck.core.paths import MANIFEST
from limbeck.core.seals import HashedFile
from limbeck.corpus import Corpus
from limbeck.errors import CorpusError
from tests.support.corpora import TOKENIZER
from tests.support.streams import build_text, make_texts, write_texts


def contents(folder: Path) -> dict[str, bytes]:
    """The files that were built; notes of the states of sources are no part of them."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.parent.name != "sources"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def flip(path: Path, place: int = -20, bit: int = 1) -> None:
    """Change a bit and put the date back."""
    stat, content = path.stat(), bytearray(path.read_bytes())
    content[place] ^= bit
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.fixture
def built(tmp_path: Path) -> Callable[[], Any]:
    source = write_texts(tmp_path / "a.txt", make_texts("text", 30))
    return lambda: build_text(tmp_path / "cache", TOKENIZER, str(source), held_out=0.1)


def a_number_of_the_manifest(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_text(path.read_text().replace('"blocks": ', '"blocks": 1'))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "token ids": lambda folder: flip(folder / "train-00000.arrow", -2000),
    "offsets": lambda folder: flip(folder / "train-00000.arrow", 600, 64),
    "the end cut": lambda folder: os.truncate(folder / "held_out-00000.arrow", 100),
    "files swapped": lambda folder: swap(folder / "train-00000.arrow", folder / "held_out-00000.arrow"),
    "a file more": lambda folder: (folder / "train-00001.arrow").write_bytes(
        (folder / "train-00000.arrow").read_bytes()
    ),
    "a file less": lambda folder: (folder / "documents-00000.arrow").unlink(),
    "a number": a_number_of_the_manifest,
    "the manifest": lambda folder: flip(folder / MANIFEST, 5),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_blocks_are_named_and_built_anew(built, tmp_path, damage, caplog):
    corpus = built()
    whole = contents(tmp_path / "cache")
    damage(corpus.path)
    with pytest.raises(CorpusError, match="damaged"):
        Corpus(corpus.path)
    again = built()
    [line] = caplog.messages
    assert f"'{corpus.path}' is damaged and is rebuilt" in line
    assert again.path == corpus.path and contents(tmp_path / "cache") == whole


def test_damaged_documents_make_no_other_blocks(built, tmp_path, caplog):
    built()
    whole = contents(tmp_path / "cache")
    [documents] = (tmp_path / "cache/documents").iterdir()
    flip(documents / "documents-00000.arrow", 700)
    built()
    assert caplog.messages and contents(tmp_path / "cache") == whole


def test_a_cache_of_an_earlier_version_is_built_anew(built, tmp_path, caplog):
    corpus = built()
    whole = contents(tmp_path / "cache")
    manifest = json.loads((corpus.path / MANIFEST).read_text())
    del manifest["xxh3"]
    manifest["files"] = {name: facts["bytes"] for name, facts in manifest["files"].items()}
    (corpus.path / MANIFEST).write_text(json.dumps(manifest))
    built()
    assert "earlier version" in caplog.text and contents(tmp_path / "cache") == whole


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished folder of two files, old enough to be known by their times."""

    def build(aside: Path) -> dict[str, Any]:
        for name in ("a", "b"):
            (aside / name).write_bytes(name.encode() * 1000)
        return {"by": "me"}

    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(files, "CLOCK_TICK_NS", 0)
    build_once(tmp_path / "x", build)
    return tmp_path / "x"


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read from now on, as in a new process."""
    read_hash, found = seals.hash_file, []

    def count(path: Path) -> str:
        found.append(path.name)
        return read_hash(path)

    monkeypatch.setattr(seals, "_hashes_read", {})
    monkeypatch.setattr(seals, "hash_file", count)
    return found


def test_an_unchanged_file_is_read_once(folder, monkeypatch):
    read = reads(monkeypatch)
    assert read_manifest(folder) is not None
    assert read == [], "the process that built it has looked at it"
    [memory] = (folder.parent / "own").rglob("*.json")
    memory.unlink()
    assert read_manifest(folder) is not None and read == ["a", "b"]
    assert read_manifest(folder) is not None and read == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "read_again"),
    [
        (lambda folder, memory: flip(folder / "a"), ["a"]),
        (lambda folder, memory: os.utime(folder / "a"), ["a"]),
        (lambda folder, memory: memory.write_text('{"time_ns": 1, "files": {}}'), ["a", "b"]),
        (lambda folder, memory: memory.write_text("[1"), ["a", "b"]),
        (lambda folder, memory: memory.write_text(f'{{"time_ns": {time.time_ns()}, "files": {{"a": 3}}}}'), ["a", "b"]),
    ],
    ids=["a bit", "the date", "an old memory", "a damaged memory", "a strange memory"],
)
def test_the_memory_of_what_is_whole_is_no_more_than_that(folder, monkeypatch, change, read_again):
    [memory] = (folder.parent / "own").rglob("*.json")
    time.sleep(0.01)  # Times of files go by ticks.
    change(folder, memory)
    read = reads(monkeypatch)
    found = read_manifest(folder)
    assert read == read_again
    assert (found is None) == ((folder / "a").read_bytes() != b"a" * 1000)


def test_a_cache_that_can_only_be_read_is_used(folder, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cache, "FileLock", refuse)
    monkeypatch.setattr(seals, "atomic_text", refuse)
    monkeypatch.setenv("LIMBECK_CACHE", str(folder.parent / "none"))
    read = reads(monkeypatch)
    assert build_once(folder, lambda _: {})["by"] == "me" and set(read) == {"a", "b"}
    flip(folder / "b")
    with pytest.raises(CorpusError, match="Cannot write the corpus cache"):
        build_once(folder, lambda _: {})


def test_a_finished_piece_is_compared_too(tmp_path):
    with HashedFile(tmp_path / "a.arrow") as file:
        file.write(b"12345")
    finish_piece(tmp_path, "a", ["a.arrow"], {"rows": 3})
    (tmp_path / "b").write_bytes(b"12345")
    finish_piece(tmp_path, "b", ["b"], {"rows": 4})
    hashes = [json.loads((tmp_path / f"{name}.piece.json").read_text())["files"] for name in ("a", "b")]
    assert hashes[0]["a.arrow"] == hashes[1]["b"], "hashed while it is written, or afterwards"
    flip(tmp_path / "a.arrow", 2)
    note = tmp_path / "b.piece.json"
    note.write_text(note.read_text().replace('"rows": 4', '"rows": 5'))
    assert read_piece(tmp_path, "a") is None and read_piece(tmp_path, "b") is None


def test_a_disk_that_keeps_something_else_is_named(tmp_path):
    def build(aside: Path) -> dict[str, Any]:
        with HashedFile(aside / "a") as file:
            file.write(b"12345")
        flip(aside / "a", 2)
        return {}

    with pytest.raises(CorpusError, match="Cannot write the corpus cache '.*': 'a' has changed since it was written"):
        build_once(tmp_path / "x", build)
