"""Builds that are killed, and go on to the same result."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from limbeck.core.files import finish_piece, read_piece, remove_pieces
from limbeck.corpus import CorpusSettings, Mix, build_corpus, store
from limbeck.corpus import build as tokenising
from limbeck.corpus.packing import TokenEncoder
from limbeck.corpus.store import SeenKeys
from limbeck.errors import CorpusError
from tests.support.corpora import bert_byte_tokenizer
from tests.support.streams import make_texts, write_texts


class KilledError(BaseException):
    """Stands for whatever ends a build."""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Three sources with bad lines, repeats, and small shards."""
    monkeypatch.setattr(store, "SHARD_CHARACTERS", 2500)
    monkeypatch.setattr(store, "_BATCH_ITEMS", 10)
    texts = make_texts("text", 120)
    lines = [json.dumps({"text": text}) for text in texts[:60]]
    lines[7:7] = lines[40:40] = lines[55:55] = ["{", '{"text": " "}', lines[3]]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jsonl").write_text("\n".join(lines))
    (tmp_path / "a" / "other.png").touch()
    write_texts(tmp_path / "a" / "2.jsonl.gz", texts[50:80])
    write_texts(tmp_path / "b.parquet", texts[80:])
    packages = tmp_path / "packages"
    packages.mkdir()
    for number in range(70):
        same = "The same words in every module of this package."
        text = f"Module number {number} says what it does.\n\n{same}"
        (packages / f"m{number:02}.py").write_text(f'"""{text}"""\n' if number % 9 else "def (")
    return [str(tmp_path / "a"), str(tmp_path / "b.parquet"), f"installed-docs:{packages}"]


def build(sources, cache, workers=1):
    settings = CorpusSettings(sources, length=24, minimum_tokens=1, held_out=0.1)
    build_corpus(settings, bert_byte_tokenizer(), cache_dir=cache, workers=workers)


def contents(cache):
    return {str(path.relative_to(cache)): path.read_bytes() for path in sorted(cache.rglob("*")) if path.is_file()}


def test_a_build_goes_on_wherever_it_was_stopped(sources, tmp_path, monkeypatch):
    build(sources, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    assert sum("documents-" in name for name in whole) > 6
    finished = []

    def die_after(number):
        def finish(folder, name, files, content):
            finish_piece(folder, name, files, content)
            finished.append(name)
            if len(finished) == number:
                raise KilledError

        return finish

    pieces = 0
    for number in range(1, 100, 3):
        cache = tmp_path / f"stopped-{number}"
        finished.clear()
        with monkeypatch.context() as patch:
            for module in (store, tokenising):
                patch.setattr(module, "finish_piece", die_after(number))
            try:
                build(sources, cache)
                break
            except KilledError:
                pieces = number
        before = list(finished)
        with monkeypatch.context() as patch:
            for module in (store, tokenising):
                patch.setattr(module, "finish_piece", die_after(-1))
            build(sources, cache)
        assert len(set(finished)) == len(finished), "a finished piece was made again"
        assert finished[: len(before)] == before
        assert contents(cache) == whole, f"stopped after piece {number}"
    assert pieces > 9


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
    context = multiprocessing.get_context("fork")
    began = time.monotonic()
    build(sources, tmp_path / "whole", workers=workers)
    needed = time.monotonic() - began
    killed = 0
    for share in shares:
        cache = tmp_path / f"killed-{share}"
        process = context.Process(target=build, args=(sources, cache), kwargs={"workers": workers})
        process.start()
        time.sleep(share * needed)
        process.kill()
        process.join(60)
        killed += process.exitcode == -signal.SIGKILL
        build(sources, cache, workers=workers)
        assert contents(cache) == contents(tmp_path / "whole"), f"killed after {share:.0%} of the time"
    assert killed


def test_a_dead_worker_takes_no_finished_piece_with_it(sources, tmp_path, monkeypatch):
    build(sources, tmp_path / "whole")
    encode, done = TokenEncoder.encode, []

    def finish(folder, name, files, content):
        finish_piece(folder, name, files, content)
        done.append(name)

    def encode_or_die(self, texts):
        if done:  # In this worker: each has a list of its own.
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(self, texts)

    cache = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(tokenising, "finish_piece", finish)
        patch.setattr(TokenEncoder, "encode", encode_or_die)
        with pytest.raises(CorpusError, match="worker process died .* what is finished is kept"):
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
    with SeenKeys(tmp_path / "keys") as seen:
        assert seen.add([1, 2**64 - 1, 1, 0]) == [True, True, False, True]
        assert seen.add([2**64 - 1, 2**63, 0]) == [False, True, False]
        seen.fill([[7, 8], [9]])
        assert seen.add([8, 10, 10]) == [False, True, False]
        assert (tmp_path / "keys").exists()
    assert not list(tmp_path.iterdir())


def test_rows_of_mixed_sources_stand_in_their_order(sources, tmp_path, bert_tokenizer):
    settings = CorpusSettings(sources, length=24, minimum_tokens=1, held_out=0.1, mix=Mix(exponent=0.0))
    corpus = build_corpus(settings, bert_tokenizer, cache_dir=tmp_path / "cache", workers=1)
    rows = corpus.manifest["source_rows"]
    assert sum(rows) == len(corpus.train)
    assert all(rows)
    texts = ["".join(bert_tokenizer.decode(ids, skip_special_tokens=True).split()) for ids in corpus.train["input_ids"]]
    whole = "".join(texts[rows[0] : rows[0] + rows[1]])
    assert "textnumber80" in whole
    assert "textnumber119" in whole
    assert "Modulenumber" in "".join(texts[-rows[2] :])
    assert "Modulenumber" not in "".join(texts[: -rows[2]])
