"""Streams: what their batches hold, that any batch can be gone on behind, shares of sources, and lanes."""

import json
import lzma
from collections import Counter
from itertools import islice

import fsspec
import pytest

from limbeck.corpus import Corpus, Document, Lane, MixSpec
from limbeck.corpus.files import text_files
from limbeck.errors import CorpusError
from limbeck.training.rows import training_rows
from tests.support.corpora import TOKENIZER, decode
from tests.support.models import tiny_tokenizer
from tests.support.streams import (
    ALONE,
    FILE_KINDS,
    build_text,
    hub_of,
    make_texts,
    stream,
    take,
    write_packed,
    write_texts,
)


def goes_on(corpus, whole, *places, lane=ALONE):
    """Whether a stream gives the same batches again behind some of them."""
    return all(take(corpus, 5, lane, state=whole[place][1]) == whole[place + 1 : place + 6] for place in places)


@pytest.mark.parametrize("kind", FILE_KINDS)
@pytest.mark.parametrize("lane", [ALONE, Lane(1, 3)], ids=["alone", "of three"])
def test_a_stream_goes_on_behind_any_batch(tmp_path, cache, kind, lane, monkeypatch):
    monkeypatch.setattr(text_files, "PROBED_LINES", 20)
    files = 31 if kind == ".md" else 2
    for number in range(files):
        write_texts(tmp_path / "text" / f"{number}{kind}", make_texts(f"shard {number}", 120 // files))
    whole = take(stream(cache, TOKENIZER, tmp_path / "text"), 45, lane)  # Several windows and, of three lanes, passes.
    assert goes_on(stream(cache, TOKENIZER, tmp_path / "text"), whole, 0, 4, 9, 10, 11, 23, 38, lane=lane)
    assert len(whole[0][1]) < 1000


@pytest.mark.parametrize("unit", ["document", "paragraph", "sentence"])
def test_joined_blocks_go_on_in_the_middle(tmp_path, cache, plain_tokenizer, unit):
    source = write_texts(tmp_path / "a.jsonl", [f"{text}. And more.\nAgain." for text in make_texts("a", 30)])
    corpus = stream(cache, plain_tokenizer, source, join=True, unit=unit)
    whole = take(corpus, 60)
    assert {len(ids) for blocks, _ in whole for ids in blocks} == {24}
    assert goes_on(corpus, whole, 3, 17, 41)


def test_texts_of_which_a_stream_reads_the_beginning_are_reported(tmp_path, cache):
    source = write_texts(tmp_path / "a.jsonl", make_texts("a", 30))
    corpus = stream(cache, TOKENIZER, source, text_keys=True, whole_texts=True, held_out=0.0, shuffle_buffer=1)
    cut = "text of which the student reads only the beginning"
    assert corpus.report.counts == {cut: 30}
    _, state = next(iter(corpus.batches(ALONE, batch_size=30, seed=0)))
    assert state["report"]["counts"] == {cut: 30}


@pytest.mark.parametrize("join", [False, True])
def test_pairs_are_the_same_streamed_and_built(tmp_path, cache, join):
    texts = [f"{text}. And more of {number}. Again." for number, text in enumerate(make_texts("a", 30))]
    source = write_texts(tmp_path / "a.jsonl", texts)
    tokenizer, options = tiny_tokenizer(), {"pairs": True, "join": join, "held_out": 0.2}
    built, streamed = build_text(cache, tokenizer, source, **options), stream(cache, tokenizer, source, **options)
    rows = {tuple(row["input_ids"]): row["token_type_ids"] for row in [*built.train, *built.held_out]}
    plain = build_text(cache, tokenizer, source, join=join, held_out=0.2)
    assert built.train.column_names == streamed.held_out.column_names == ["input_ids", "length", "token_type_ids"]
    assert plain.train.column_names == ["input_ids", "length"] and plain.path != built.path
    assert "pairs" not in plain.manifest["settings"] and built.manifest["settings"]["pairs"]

    whole = take(streamed, 60)
    assert goes_on(streamed, whole, 3, 17, 41)
    if not join:  # A stream that is joined goes on into its next pass.
        assert {ids for blocks, _ in whole for ids in blocks} == {tuple(row["input_ids"]) for row in built.train}
    masked = training_rows(streamed, tokenizer, replace_tokens=0.5, mask_tokens=0.5, seed=0)
    for block in islice((block for blocks, _ in streamed.batches(ALONE, batch_size=1, seed=0) for block in blocks), 60):
        ids, types = block.ids.tolist(), block.columns["token_type_ids"].tolist()
        assert join or types == rows[tuple(ids)]
        assert [ids.index(3), len(ids) - 1] == [place for place, token in enumerate(ids) if token == 3]
        assert types == [0] * (ids.index(3) + 1) + [1] * (len(ids) - ids.index(3) - 1)
        row = masked.make(block)
        special = [place for place, token in enumerate(ids) if token in tokenizer.all_special_ids]
        assert row["token_type_ids"].tolist() == types and (row["labels"][special] == -100).all()


def write_shards(folder, count, texts):
    for number in range(count):
        write_texts(folder / f"{number}.jsonl", texts[number::count])
    return folder


def test_a_pass_has_every_document_once_over_all_lanes(tmp_path, cache):
    texts = make_texts("text", 120)
    six = write_shards(tmp_path / "six", 6, texts)
    corpus = stream(cache, TOKENIZER, six, length=400, held_out=0.0, shuffle_buffer=1)
    for lanes in (1, 2, 3, 4):  # Six files are dealt to three lanes; of four every one reads all.
        found = Counter()
        for index in range(lanes):
            for blocks, _ in corpus.batches(Lane(index, lanes), batch_size=1, seed=0):
                if blocks[0].earlier_passes:
                    break
                found.update(decode(TOKENIZER, block.ids.tolist()) for block in blocks)
        assert found == Counter(texts), lanes


def test_every_pass_and_every_seed_has_another_order(tmp_path, cache):
    four = write_shards(tmp_path / "four", 4, make_texts("text", 40))
    corpus = stream(cache, TOKENIZER, four, length=400, held_out=0.0, shuffle_buffer=40)

    def order(seed, number):
        batches = islice(corpus.batches(ALONE, batch_size=4, seed=seed), 10 * (number + 1))
        return [
            tuple(block.ids.tolist()) for blocks, _ in batches for block in blocks if block.earlier_passes == number
        ]

    orders = [order(0, 0), order(0, 1), order(1, 0)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert len({*map(tuple, orders), tuple(sorted(orders[0]))}) == 4


def test_batches_have_blocks_of_similar_length(tmp_path, cache):
    source = write_texts(tmp_path / "a.jsonl", make_texts("text", 200))
    corpus = stream(cache, TOKENIZER, source, length=400, shuffle_buffer=160)
    lengths = [[*map(len, blocks)] for blocks, _ in take(corpus, 40, batch_size=8)]
    spreads = [max(batch) - min(batch) for batch in lengths]
    assert sum(spreads) / len(spreads) < (max(map(max, lengths)) - min(map(min, lengths))) / 5


def test_what_is_held_out_is_the_same_as_of_a_built_corpus_and_never_met(tmp_path, cache):
    source = write_texts(tmp_path / "a.jsonl", make_texts("text", 200))
    corpus = stream(cache, TOKENIZER, source, length=400, held_out=0.2)
    built = build_text(cache, TOKENIZER, source, length=400, held_out=0.2)
    held_out = corpus.held_out_documents()
    assert held_out == built.held_out_documents()
    assert corpus.held_out["input_ids"][:] == built.held_out["input_ids"][:]
    met = {decode(TOKENIZER, list(ids)) for blocks, _ in take(corpus, 60) for ids in blocks}
    assert isinstance(corpus, Corpus)
    assert len(met) == len(corpus.train) == 200 - len(held_out) < 180
    assert not met & {document.text for document in held_out}


def test_the_beginning_is_read_once(tmp_path, cache, monkeypatch):
    source = write_texts(tmp_path / "a.jsonl", make_texts("text", 20))
    first = stream(cache, TOKENIZER, source)
    monkeypatch.setattr("limbeck.corpus.streams.streamed_corpus.store_beginning", lambda *_: pytest.fail("read again"))
    assert stream(cache, TOKENIZER, source, shuffle_buffer=3).path == first.path


def test_sources_are_mixed_by_their_shares(tmp_path, cache):
    sources = [write_texts(tmp_path / f"{name}.jsonl", make_texts(name, n)) for name, n in (("en", 400), ("sw", 25))]

    def drawn(**settings):
        corpus = stream(cache, TOKENIZER, *sources, length=400, shuffle_buffer=100, **settings)
        return json.loads(take(corpus, 100)[-1][1])["drawn"]

    assert drawn(mix=MixSpec(weights=(3, 1))) == [300, 100]
    assert drawn(mix=MixSpec(exponent=0)) == [200, 200]
    english, swahili = (source.stat().st_size for source in sources)
    for power, found in ((0.3, drawn(mix=MixSpec(exponent=0.3))), (1, drawn())):
        assert sum(found) == 400
        assert abs(found[0] - 400 * english**power / (english**power + swahili**power)) <= 4


def test_sources_by_a_pattern_are_those_of_a_list(tmp_path, cache):
    for name, count in (("en", 90), ("sw", 12)):
        for number in range(2):
            write_texts(tmp_path / name / f"{number}.txt.xz", make_texts(f"{name} {number}", count))
    mix = MixSpec(exponent=0.3, by=f"{tmp_path}/{{language}}/*.txt.xz")
    listed = [tmp_path / name for name in ("en", "sw")]
    corpus, other = stream(cache, TOKENIZER, mix=mix), stream(cache, TOKENIZER, *listed, mix=MixSpec(exponent=0.3))
    whole = take(corpus, 30)
    assert whole == take(other, 30) and goes_on(corpus, whole, 3, 11, 24) and corpus.path == other.path
    # The sizes are those of the text: what an archive gains by repeated words is no matter.
    sizes = [sum(len(lzma.decompress(file.read_bytes())) for file in folder.iterdir()) for folder in listed]
    powers = [size**0.3 for size in sizes]
    expected = {name: pytest.approx(power / sum(powers)) for name, power in zip(("en", "sw"), powers, strict=True)}
    assert {source.name: source.share for source in corpus.sources} == expected
    built = build_text(cache, TOKENIZER, mix=mix)
    assert built.titles == ("en", "sw") and built.path == build_text(cache, TOKENIZER, *listed).path
    rows = built.manifest["source_rows"]
    assert built.row_mix(0).shares == pytest.approx([row**0.3 / sum(other**0.3 for other in rows) for row in rows])
    with pytest.raises(CorpusError, match="mix.by and 'sources' both name the files to read"):
        build_text(cache, TOKENIZER, listed[0], mix=mix)


def test_a_hub_data_set_is_streamed_shard_by_shard(tmp_path, cache, monkeypatch):
    files = [write_texts(tmp_path / f"{n}.jsonl", make_texts(f"shard {n}", 30)) for n in range(4)]
    asked = hub_of(monkeypatch, *files)
    for lanes in (1, 2, 3):
        corpus = stream(cache, TOKENIZER, "hub:some/data:en#abc")
        assert corpus.sources[0].source.shards() == 4
        assert goes_on(corpus, take(corpus, 40, Lane(0, lanes)), 2, 9, 10, 33, lane=Lane(0, lanes))
    two = stream(cache, TOKENIZER, "hub:some/data:en#abc", files[0], mix=MixSpec(weights=(1, 1)))
    assert [source.share for source in two.sources] == [0.5, 0.5]
    with pytest.raises(CorpusError, match="size of a source is not known.*give mix.weights"):
        stream(cache, TOKENIZER, "hub:some/data:en#abc", files[0])
    assert set(asked) == {("some/data", "en", "train", "abc")}


def test_remote_shards(tmp_path, cache):
    remote = fsspec.filesystem("memory")
    for number in range(2):
        path = write_texts(tmp_path / f"{number}.jsonl.zst", make_texts(f"shard {number}", 30))
        remote.pipe_file(f"/bucket/{path.name}", path.read_bytes())
    corpus = stream(cache, TOKENIZER, "memory://bucket/*.jsonl.zst")
    expected = take(stream(cache, TOKENIZER, tmp_path / "*.jsonl.zst"), 20)
    assert [blocks for blocks, _ in take(corpus, 20)] == [blocks for blocks, _ in expected]
    assert goes_on(corpus, expected, 4)
    remote.rm("/bucket", recursive=True)


def test_bad_text_is_counted_while_it_is_streamed(tmp_path, cache):
    lines = [json.dumps({"text": text}) for text in make_texts("text", 40)]
    lines[10:10] = ["{", "[]"]
    source = write_packed(tmp_path / "a.jsonl", "\n".join(lines))
    corpus = stream(cache, TOKENIZER, source, length=400, held_out=0.0)
    whole = take(corpus, 10)
    counted = json.loads(whole[-1][1])["report"]["counts"]
    assert counted == {"line of invalid JSON": 1, "JSON line that is not an object": 1}
    assert goes_on(corpus, whole, 4)


def test_a_lane_without_text_is_refused(tmp_path, cache):
    corpus = stream(cache, TOKENIZER, write_texts(tmp_path / "a.jsonl", ["one text alone"]), held_out=0.0)
    starved = (Document("one text alone").key + 1) % 64
    with pytest.raises(
        CorpusError, match=f"is too small for 64 processes: process {starved + 1} gets no block of text"
    ):
        take(corpus, 1, Lane(starved, 64))
