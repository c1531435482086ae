"""Builds that are killed or fail, and go on to the same result; and the folders of the cache that they leave."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from functools import partial

import pytest

from limbeck.core import cache
from limbeck.core.cache import NothingToBuildError, build_once, finish_piece, read_manifest, read_piece, remove_pieces
from limbeck.corpus import MixSpec
from limbeck.corpus.building import tokenising
from limbeck.corpus.stored import arrow_files, stored_documents
from limbeck.corpus.stored.seen_keys import seen_keys
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.errors import CorpusError
from tests.support.corpora import TOKENIZER, decode
from tests.support.streams import build_text, make_texts, write_packed, write_texts


class KilledError(BaseException):
    """Stands for whatever ends a build."""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Three sources with bad lines, repeats, and small shards."""
    monkeypatch.setattr(arrow_files, "SHARD_CHARACTERS", 2500)
    monkeypatch.setattr(arrow_files, "BATCH_ITEMS", 10)
    texts = make_texts("text", 120)
    lines = [json.dumps({"text": text}) for text in texts[:60]]
    lines[7:7] = lines[40:40] = lines[55:55] = ["{", '{"text": " "}', lines[3]]
    write_packed(tmp_path / "a" / "1.jsonl", "\n".join(lines))
    (tmp_path / "a" / "other.png").touch()
    write_texts(tmp_path / "a" / "2.jsonl.gz", texts[50:80])
    write_texts(tmp_path / "b.parquet", texts[80:])
    for number in range(70):
        text = f"Module number {number} says what it does.\n\nThe same words in every module of this package."
        module = f'"""{text}"""\n' if number % 9 else "def ("
        write_packed(tmp_path / "packages" / f"m{number:02}.py", module)
    return [str(tmp_path / "a"), str(tmp_path / "b.parquet"), f"installed-docs:{tmp_path}/packages"]


def build(sources, cache, **settings):
    return build_text(cache, TOKENIZER, *sources, **{"held_out": 0.1, **settings})


def contents(cache):
    """The files that were built; notes of the states of sources are no part of them."""
    files = [path for path in sorted(cache.rglob("*")) if path.is_file() and path.parent.name != "sources"]
    return {str(path.relative_to(cache)): path.read_bytes() for path in files}


def finished_pieces(patch, last=None):
    """Return the list that receives the names of the pieces that builds finish; dies after the last."""
    finished = []

    def finish(folder, name, names, content):
        finish_piece(folder, name, names, content)
        finished.append(name)
        if len(finished) == last:
            raise KilledError

    for module in (stored_documents, tokenising):
        patch.setattr(module, "finish_piece", finish)
    return finished


def test_a_build_goes_on_wherever_it_was_stopped(sources, tmp_path, monkeypatch):
    build(sources, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    assert sum("documents-" in name for name in whole) > 6
    for number in range(1, 100, 3):
        cache = tmp_path / f"stopped-{number}"
        with monkeypatch.context() as patch:
            before = finished_pieces(patch, number)
            try:
                build(sources, cache)
                break
            except KilledError:
                after = finished_pieces(patch)
                build(sources, cache)
        assert not {*before} & {*after}, "a finished piece was made again"
        assert contents(cache) == whole, f"stopped after piece {number}"
    assert number > 12


def test_a_build_that_was_stopped_with_documents_enough_reports_on_its_last_source(sources, tmp_path, monkeypatch):
    build(sources, tmp_path / "whole", max_documents=20)
    whole = contents(tmp_path / "whole")
    last = sum("documents-" in name for name in whole)
    with monkeypatch.context() as patch:
        finished_pieces(patch, last)
        with pytest.raises(KilledError):
            build(sources, tmp_path / "stopped", max_documents=20)
    assert build(sources, tmp_path / "stopped", max_documents=20).report.counts["line of invalid JSON"] == 1
    assert contents(tmp_path / "stopped") == whole


def test_a_piece_that_was_not_finished_is_made_again(tmp_path):
    (tmp_path / "a.arrow").write_bytes(b"12345")
    finish_piece(tmp_path, "a", ["a.arrow"], {"rows": 3})
    assert read_piece(tmp_path, "a") == {"rows": 3}
    assert read_piece(tmp_path, "b") is None
    os.truncate(tmp_path / "a.arrow", 3)
    assert read_piece(tmp_path, "a") is None
    (tmp_path / "a.piece.json").write_text("[1")
    assert read_piece(tmp_path, "a") is None
    remove_pieces(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.arrow"]


def test_a_build_that_asks_for_the_impossible_leaves_nothing(sources, tmp_path):
    with pytest.raises(CorpusError, match="holds no text"):
        build([*sources, str(write_texts(tmp_path / "none.txt", []))], tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache" / "documents").iterdir() if path.is_dir()]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "shares", [[0.5], pytest.param([number / 20 for number in range(1, 20)], marks=pytest.mark.slow)], ids=len
)
def test_a_killed_build_goes_on(sources, tmp_path, workers, shares):
    """Killed after shares of the time of a whole one; a second build makes what the whole has."""
    build_killed = partial(multiprocessing.get_context("fork").Process, target=build, kwargs={"workers": workers})
    began = time.monotonic()
    build(sources, tmp_path / "whole", workers=workers)
    needed = time.monotonic() - began
    for share in shares:
        cache, delay = tmp_path / f"killed-{share}", share * needed
        while not _killed_after(delay, build_killed(args=(sources, cache))):
            delay /= 2  # This build was faster than the first one.
            shutil.rmtree(cache)
        build(sources, cache, workers=workers)
        assert contents(cache) == contents(tmp_path / "whole"), f"killed after {share:.0%} of the time"


def _killed_after(seconds, process):
    """Start a process and kill it; return whether it was still at work."""
    process.start()
    time.sleep(seconds)
    process.kill()
    process.join(60)
    return process.exitcode == -signal.SIGKILL


def test_a_dead_worker_takes_no_finished_piece_with_it(sources, tmp_path, monkeypatch):
    build(sources, tmp_path / "whole")
    encode = TokenEncoder.encode
    cache = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        done = finished_pieces(patch)  # Every worker has its copy.

        def encode_or_die(self, texts):
            if any(name.startswith("tokens") for name in done):
                os.kill(os.getpid(), signal.SIGKILL)
            return encode(self, texts)

        patch.setattr(TokenEncoder, "encode", encode_or_die)
        with pytest.raises(CorpusError, match="worker process died .* finished parts are kept"):
            build(sources, cache, workers=2)
    finished = {
        name: (piece.parent / name).stat().st_mtime_ns
        for piece in cache.glob("blocks/.building-*/*.piece.json")
        for name in json.loads(piece.read_text())["files"]
    }
    assert finished
    build(sources, cache, workers=2)
    [blocks] = (cache / "blocks").iterdir()
    assert {name: (blocks / name).stat().st_mtime_ns for name in finished} == finished
    assert contents(cache) == contents(tmp_path / "whole")


def test_seen_keys(tmp_path):
    with seen_keys(tmp_path / "keys") as add_keys:
        assert add_keys([1, 2**64 - 1, 1, 0]) == [True, True, False, True]
        assert add_keys([2**64 - 1, 2**63, 0, 10, 10]) == [False, True, False, True, False]
        assert (tmp_path / "keys").exists()
    assert not list(tmp_path.iterdir())


def test_rows_of_mixed_sources_stand_in_their_order(sources, tmp_path):
    corpus = build(sources, tmp_path / "cache", mix=MixSpec(exponent=0.0))
    rows = corpus.manifest["source_rows"]
    assert sum(rows) == len(corpus.train)
    assert all(rows)
    texts = ["".join(decode(TOKENIZER, ids).split()) for ids in corpus.train["input_ids"]]
    second, third = "".join(texts[rows[0] : -rows[2]]), "".join(texts[-rows[2] :])
    assert "textnumber80" in second
    assert "textnumber119" in second
    assert "Modulenumber" in third
    assert "Modulenumber" not in "".join(texts[: -rows[2]])


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
    assert manifest["by"] == "me"
    assert {name: facts["bytes"] for name, facts in manifest["files"].items()} == {"a": 1, "b": 1}
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


def test_the_lock_of_a_builder_that_was_killed_at_its_end_is_removed(tmp_path):
    build_once(tmp_path / "x", lambda _: {})
    (tmp_path / ".building-x.lock").touch()
    build_once(tmp_path / "x", lambda _: pytest.fail("it is built"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
