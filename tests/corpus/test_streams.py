import json
from collections import Counter
from itertools import islice

import datasets
import fsspec
import pytest

from limbeck.corpus import Corpus, CorpusSettings, Document, Lane, Mix, build_corpus, open_stream, readers
from limbeck.errors import CorpusError
from tests.support.corpora import decode
from tests.support.streams import KINDS, make_texts, stream, take, write_texts


def texts_of(batches, tokenizer):
    return [decode(tokenizer, list(ids)) for blocks, _ in batches for ids in blocks]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lane", [Lane(0, 1), Lane(1, 3)], ids=["alone", "of three"])
def test_a_stream_goes_on_behind_any_batch(tmp_path, cache, bert_tokenizer, kind, lane, monkeypatch):
    monkeypatch.setattr(readers, "PROBED_LINES", 20)
    files = 31 if kind == ".md" else 2
    for number in range(files):
        write_texts(tmp_path / "text" / f"{number}{kind}", make_texts(f"shard {number}", 120 // files))
    corpus = stream(cache, bert_tokenizer, tmp_path / "text")
    whole = take(corpus, 45, lane)  # Several windows and, for a lane of three, passes.
    for behind in (0, 4, 9, 10, 11, 23, 38):
        again = take(stream(cache, bert_tokenizer, tmp_path / "text"), 6, lane, state=whole[behind][1])
        assert again == whole[behind + 1 : behind + 7], behind
    assert len(whole[0][1]) < 1000


@pytest.mark.parametrize("unit", ["document", "paragraph", "sentence"])
def test_joined_blocks_go_on_in_the_middle(tmp_path, cache, plain_tokenizer, unit):
    source = write_texts(tmp_path / "a.jsonl", [f"{text}. And more.\nAgain." for text in make_texts("a", 30)])
    corpus = stream(cache, plain_tokenizer, source, join=True, unit=unit)
    whole = take(corpus, 60)
    assert {len(ids) for blocks, _ in whole for ids in blocks} == {24}
    for behind in (3, 17, 41):
        assert take(corpus, 5, state=whole[behind][1]) == whole[behind + 1 : behind + 6]


def test_a_pass_has_every_document_once_over_all_lanes(tmp_path, cache, bert_tokenizer):
    texts = make_texts("text", 120)
    for number in range(6):
        write_texts(tmp_path / "six" / f"{number}.jsonl", texts[number::6])
    corpus = stream(cache, bert_tokenizer, tmp_path / "six", length=400, held_out=0.0, shuffle_buffer=1)
    for lanes in (1, 2, 3, 4):  # Six files are dealt to three lanes; of four every one reads all.
        found = Counter()
        for index in range(lanes):
            for blocks, _ in corpus.batches(Lane(index, lanes), batch_size=1, seed=0):
                if blocks[0].number:
                    break
                found.update(decode(bert_tokenizer, block.ids.tolist()) for block in blocks)
        assert found == Counter(texts), lanes


def test_every_pass_and_every_seed_has_another_order(tmp_path, cache, bert_tokenizer):
    for number in range(4):
        write_texts(tmp_path / "four" / f"{number}.jsonl", make_texts(f"shard {number}", 10))
    corpus = stream(cache, bert_tokenizer, tmp_path / "four", length=400, held_out=0.0, shuffle_buffer=40)

    def order(seed, number):
        batches = islice(corpus.batches(Lane(0, 1), batch_size=4, seed=seed), 10 * (number + 1))
        return [tuple(block.ids.tolist()) for blocks, _ in batches for block in blocks if block.number == number]

    orders = [order(0, 0), order(0, 1), order(1, 0)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert len({tuple(found) for found in orders}) == 3
    assert orders[0] != sorted(orders[0])


def test_batches_have_blocks_of_similar_length(tmp_path, cache, bert_tokenizer):
    source = write_texts(tmp_path / "a.jsonl", make_texts("text", 200))
    corpus = stream(cache, bert_tokenizer, source, length=400, shuffle_buffer=160)
    spreads = [max(map(len, blocks)) - min(map(len, blocks)) for blocks, _ in take(corpus, 40, batch_size=8)]
    lengths = [len(ids) for blocks, _ in take(corpus, 20, batch_size=8) for ids in blocks]
    assert sum(spreads) / len(spreads) < (max(lengths) - min(lengths)) / 5


def test_what_is_held_out_is_the_same_as_of_a_built_corpus_and_never_met(tmp_path, cache, bert_tokenizer):
    source = write_texts(tmp_path / "a.jsonl", make_texts("text", 200))
    corpus = stream(cache, bert_tokenizer, source, length=400, held_out=0.2)
    settings = CorpusSettings(str(source), length=400, minimum_tokens=1, held_out=0.2)
    built = build_corpus(settings, bert_tokenizer, cache_dir=cache, workers=1)
    held_out = corpus.held_out_documents()
    assert held_out == built.held_out_documents()
    assert corpus.held_out["input_ids"][:] == built.held_out["input_ids"][:]
    assert len(held_out) > 20
    met = set(texts_of(take(corpus, 60), bert_tokenizer))
    assert len(met) == 200 - len(held_out)
    assert not met & {document.text for document in held_out}
    assert isinstance(corpus, Corpus)
    assert len(corpus.train) == 200 - len(held_out)


def test_the_beginning_is_read_once(tmp_path, cache, bert_tokenizer, monkeypatch):
    source = write_texts(tmp_path / "a.jsonl", make_texts("text", 20))
    first = stream(cache, bert_tokenizer, source)
    monkeypatch.setattr("limbeck.corpus.streaming.store_beginning", lambda *_: pytest.fail("read again"))
    assert stream(cache, bert_tokenizer, source, shuffle_buffer=3).path == first.path


def test_sources_are_mixed_by_their_shares(tmp_path, cache, bert_tokenizer):
    sources = [
        write_texts(tmp_path / f"{name}.jsonl", make_texts(name, count)) for name, count in (("en", 400), ("sw", 25))
    ]

    def drawn(**settings):
        corpus = stream(cache, bert_tokenizer, *sources, length=400, shuffle_buffer=100, **settings)
        state = json.loads(take(corpus, 100)[-1][1])
        assert sum(state["drawn"]) == 400
        return list(state["drawn"])

    assert drawn(mix=Mix(weights=(3, 1))) == [300, 100]
    assert drawn(mix=Mix(exponent=0)) == [200, 200]
    sizes = [source.stat().st_size for source in sources]
    expected = 400 * sizes[0] ** 0.3 / (sizes[0] ** 0.3 + sizes[1] ** 0.3)
    assert abs(drawn(mix=Mix(exponent=0.3))[0] - expected) <= 4
    assert abs(drawn()[0] - 400 * sizes[0] / sum(sizes)) <= 4


def test_a_hub_data_set_is_streamed_shard_by_shard(tmp_path, cache, bert_tokenizer, monkeypatch):
    files = [str(write_texts(tmp_path / f"{n}.jsonl", make_texts(f"shard {n}", 30))) for n in range(4)]
    original = datasets.load_dataset

    def load(name, config, **options):
        assert (name, config, options["revision"]) == ("some/data", "en", "abc")
        return original("json", data_files=files, split=options["split"], streaming=options["streaming"])

    monkeypatch.setattr(datasets, "load_dataset", load)
    for lanes in (1, 2, 3):
        corpus = stream(cache, bert_tokenizer, "hub:some/data:en#abc")
        assert corpus.sources[0].source.shards() == 4
        whole = take(corpus, 40, Lane(0, lanes))
        for behind in (2, 9, 10, 33):
            assert take(corpus, 5, Lane(0, lanes), state=whole[behind][1]) == whole[behind + 1 : behind + 6]
    two = stream(cache, bert_tokenizer, "hub:some/data:en#abc", files[0], mix=Mix(weights=(1, 1)))
    assert [source.share for source in two.sources] == [0.5, 0.5]
    with pytest.raises(CorpusError, match="size of a source is not known.*give the mix weights"):
        stream(cache, bert_tokenizer, "hub:some/data:en#abc", files[0])


def test_remote_shards(tmp_path, cache, bert_tokenizer):
    local = [write_texts(tmp_path / f"{n}.jsonl.zst", make_texts(f"shard {n}", 30)) for n in range(2)]
    remote = fsspec.filesystem("memory")
    for path in local:
        remote.pipe_file(f"/bucket/{path.name}", path.read_bytes())
    corpus = stream(cache, bert_tokenizer, "memory://bucket/*.jsonl.zst")
    expected = take(stream(cache, bert_tokenizer, tmp_path / "*.jsonl.zst"), 20)
    assert [blocks for blocks, _ in take(corpus, 20)] == [blocks for blocks, _ in expected]
    assert take(corpus, 3, state=expected[4][1]) == expected[5:8]
    for address, message in [
        ("memory://bucket/none.jsonl", "There is no file at"),
        ("memory://bucket/*.csv", "There is no file at"),
        ("nonsense://bucket/a.jsonl", "Cannot reach 'nonsense://bucket/a.jsonl'"),
    ]:
        with pytest.raises(CorpusError, match=message) as caught:
            stream(cache, bert_tokenizer, address)
        assert "\n" not in str(caught.value)
    remote.rm("/bucket", recursive=True)


def test_bad_text_is_counted_while_it_is_streamed(tmp_path, cache, bert_tokenizer):
    lines = [json.dumps({"text": text}) for text in make_texts("text", 40)]
    lines[10:10] = ["{", "[]"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    corpus = stream(cache, bert_tokenizer, tmp_path / "a.jsonl", length=400, held_out=0.0)
    whole = take(corpus, 10)
    assert json.loads(whole[-1][1])["report"]["counts"] == {
        "line of invalid JSON": 1,
        "JSON line that is not an object": 1,
    }
    assert take(corpus, 5, state=whole[4][1])[-1] == whole[9]


def test_what_cannot_be_streamed(tmp_path, cache, bert_tokenizer):
    source = write_texts(tmp_path / "a.jsonl", ["one text alone"])
    corpus = stream(cache, bert_tokenizer, source, held_out=0.0)
    lanes = 64
    starved = (Document("one text alone").key + 1) % lanes
    with pytest.raises(CorpusError, match=f"has no block of text for process {starved + 1} of the 64 that read it"):
        take(corpus, 1, Lane(starved, lanes))
    with pytest.raises(CorpusError, match="is read as a whole, so it cannot be streamed"):
        open_stream(CorpusSettings("installed-docs", streaming=True), bert_tokenizer, cache_dir=cache)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(CorpusError, match=r"holds no text: 1 x empty file"):
        stream(cache, bert_tokenizer, tmp_path / "empty.txt")
    with pytest.raises(CorpusError, match="gives no block of text to train on"):
        stream(cache, bert_tokenizer, source, minimum_tokens=20)
    with pytest.raises(CorpusError, match="max_documents is for a corpus that is built"):
        CorpusSettings("a", streaming=True, max_documents=3)
    with pytest.raises(CorpusError, match="2 weights for 1 sources"):
        CorpusSettings("a", mix=Mix(weights=(1, 2)))
    with pytest.raises(CorpusError, match="shuffle_buffer is 0"):
        CorpusSettings("a", shuffle_buffer=0)
