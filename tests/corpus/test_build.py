"""Built corpora, of text and of labelled rows: their blocks, what is held out, and the cache."""

import json
import os
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import ByT5Tokenizer

from limbeck.core import files
from limbeck.core.paths import MANIFEST, default_cache_dir
from limbeck.corpus import Corpus, CorpusSettings, LabelledCorpus, build_corpus, open_stream
from limbeck.corpus.building import block_encoding
from limbeck.corpus.building.splitting import held_out_threshold
from limbeck.corpus.settings import CorpusSpec, TaskSpec
from limbeck.corpus.sources.file_sources import Files
from limbeck.corpus.stored import arrow_files, stored_documents
from limbeck.corpus.tokens.sequences import longest_first
from limbeck.errors import CorpusError
from limbeck.recipe.labelled_rows import described_development
from tests.support.corpora import TOKENIZER, byte_tokenizer, decode
from tests.support.models import tiny_tokenizer
from tests.support.streams import build_rows, build_text, write_packed, write_texts

WORDS = tiny_tokenizer()
PAIRS = {"pair_column": "pair"}
VALUES = {"task": "regression", "label_column": "value"}
UNANSWERED = {"text": [], "answer_start": []}
QUESTIONS = {"task": "question_answering", "stride": 10}


def write_rows(path, rows):
    return write_packed(path, "\n".join(map(json.dumps, rows)))


@pytest.fixture
def pairs(tmp_path):
    """60 pairs on 20 texts, three each."""
    rows = [{"text": f"the text of {n // 3}", "pair": f"word {n}", "label": n % 2, "value": n / 4} for n in range(60)]
    return write_rows(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def questions(tmp_path):
    """40 questions on 20 contexts of some 70 tokens, every fourth without an answer."""
    contexts = [f"context {number} " + "the model of a teacher " * 15 for number in range(20)]
    rows = [
        {
            "question": f"who {n}",
            "context": text,
            "answers": {"text": ["teacher"], "answer_start": [text.index("teac")]} if n % 4 else UNANSWERED,
        }
        for n, text in enumerate(context for context in contexts for _ in range(2))
    ]
    return write_rows(tmp_path / "questions.jsonl", rows)


@pytest.fixture(params=["text", "labelled"])
def kind(request, articles, questions, pairs, cache):
    """A kind of corpus: a source of it, settings that decide the texts, the tokens and nothing, and progress."""
    is_text = request.param == "text"
    build, source, usual = (build_text, articles / "all.txt", TOKENIZER) if is_text else (build_rows, pairs, WORDS)

    def make(*, source=source, tokenizer=usual, cache=cache, **settings):
        return build(cache, tokenizer, source, **settings)

    if is_text:
        other = byte_tokenizer("[CLS] $A [SEP]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")
        changes = [{"length": 16}, {"unit": "sentence"}, {"join": True}, {"held_out": 0.5}, {"tokenizer": other}]
        return SimpleNamespace(
            make=make,
            source=source,
            tokenizer=usual,
            more="\n\nOne more article.",
            reads="documents",
            tokens=[*changes, {"unit": "paragraph"}],
            texts=[{"max_documents": 5}],
            same={"mix": {"exponent": 0.5}},
            many={"source": articles},
            size=(source.stat().st_size, "bytes", "characters", "characters"),
        )
    return SimpleNamespace(
        make=make,
        source=source,
        tokenizer=usual,
        more='\n{"text": "one more", "label": "positive"}',
        reads="rows",
        tokens=[{"length": 20}, {"held_out": 0.5}, {"tokenizer": tiny_tokenizer("roberta")}],
        texts=[PAIRS, {"labels": ("positive", "negative")}, {"max_rows": 30}, VALUES],
        same={"class_weights": "balanced"},
        many={"source": questions, **QUESTIONS},
        size=(1, "files", "documents", "rows"),
    )


def test_a_second_build_reads_nothing_and_other_tokens_read_the_sources_once(kind, cache, monkeypatch):
    tokenizer = kind.tokenizer.backend_tokenizer.to_str()
    first = kind.make()
    # Of sources that were written a moment before, the state is noted in the second build.
    folders = [path for path in cache.iterdir() if path.name != "sources"]
    before = {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")}
    monkeypatch.setattr(Files, kind.reads, lambda *_: pytest.fail("read again"))
    for settings in ({}, kind.same):
        assert kind.make(**settings).path == first.path
        assert {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")} == before
    assert len({first.path, *(kind.make(**settings).path for settings in kind.tokens)}) == 1 + len(kind.tokens)
    assert kind.tokenizer.backend_tokenizer.to_str() == tokenizer


def test_whatever_decides_the_texts_gives_another_folder(kind):
    paths = {kind.make(**settings).path for settings in ({}, *kind.texts)}
    with kind.source.open("a") as file:
        file.write(kind.more)
    assert len({*paths, kind.make().path}) == len(kind.texts) + 2


def replace_keeping_size_and_time(path, content):
    """Replace a file as `cp -p` and `rsync -t` do."""
    stat = path.stat()
    assert len(content) == stat.st_size
    aside = path.with_name("aside")
    aside.write_bytes(content)
    os.utime(aside, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    aside.replace(path)


@pytest.mark.parametrize("settled", [False, True])
def test_a_source_that_was_replaced_with_equal_size_and_time_is_read_again(kind, settled, monkeypatch):
    if settled:
        # All files count as unchanged for long, so that their states are noted.
        monkeypatch.setattr(files, "CLOCK_TICK_NS", -(10**18))
    first = kind.make()
    before = kind.source.read_bytes()
    after = before.replace(b"the text of", b"one word in") if kind.reads == "rows" else before.swapcase()
    replace_keeping_size_and_time(kind.source, after)
    second = kind.make()
    assert second.path != first.path
    assert second.identity != first.identity
    assert second.train[:] != first.train[:] or second.held_out_documents() != first.held_out_documents()
    # Both are known from now on, and a file that was only copied is not read again.
    monkeypatch.setattr(Files, kind.reads, lambda *_: pytest.fail("read again"))
    assert kind.make().path == second.path
    replace_keeping_size_and_time(kind.source, before)
    assert kind.make().path == first.path
    kind.source.chmod(0o600)
    assert kind.make().path == first.path


def test_a_build_that_was_killed_does_not_go_on_with_another_text(articles, cache, monkeypatch):
    source = articles / "all.txt"
    monkeypatch.setattr(arrow_files, "SHARD_CHARACTERS", 500)
    monkeypatch.setattr(arrow_files, "BATCH_ITEMS", 3)
    before = source.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stored_documents, "finish_piece", interrupted_after(stored_documents.finish_piece, 2))
        build_text(cache, TOKENIZER, source)
    replace_keeping_size_and_time(source, before.swapcase())
    corpus = build_text(cache, TOKENIZER, source)
    text = "".join("".join(decode(TOKENIZER, ids) for ids in corpus.train["input_ids"]).split())
    assert set(text) <= set("".join(before.decode().swapcase().split()))
    fresh = build_text(cache / "fresh", TOKENIZER, source)
    assert fresh.content == corpus.content


def interrupted_after(function, calls):
    """Return a function that works so many times."""
    left = iter(range(calls))

    def call(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


def test_the_beginning_of_a_stream_that_was_replaced_is_read_again(articles, cache):
    settings = CorpusSettings(sources=[str(articles)], length=24, streaming=True)
    first = open_stream(settings, TOKENIZER, cache_dir=cache)
    source = articles / "all.txt"
    replace_keeping_size_and_time(source, source.read_bytes().swapcase())
    second = open_stream(settings, TOKENIZER, cache_dir=cache)
    assert second.content != first.content
    assert open_stream(settings, TOKENIZER, cache_dir=cache).path == second.path


def test_development_rows_that_were_replaced_are_read_again(tmp_path, cache):
    rows = [{"text": f"text number {n}", "label": n % 2} for n in range(20)]
    train = write_rows(tmp_path / "train.jsonl", rows)
    development = write_rows(tmp_path / "dev.jsonl", [{"text": "another text", "label": 0}, {"text": "b", "label": 1}])
    task = TaskSpec(kind="classification")
    corpus = CorpusSpec(sources=[str(train)], task=task, development=[str(development)])

    def held_out():
        labels = ("negative", "positive")
        return build_rows(cache, WORDS, train, development=described_development(corpus, task, labels))

    first = held_out()
    replace_keeping_size_and_time(development, development.read_bytes().replace(b"another text", b"replaced one"))
    second = held_out()
    assert {document.text for document in second.held_out_documents()} == {"replaced one", "b"}
    assert second.identity != first.identity


def test_another_reading_of_lists_reads_the_rows_again(tmp_path, cache):
    rows = [{"text": f"text {n}", "label": [0, 1]} for n in range(12)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    settings = {"task": "multi_label", "labels": ("a", "b"), "held_out": 0}
    labels = {}
    for lists in ("numbers", "flags"):
        labels[lists] = build_rows(cache, WORDS, path, label_lists=lists, **settings).train["labels"][0]
    assert labels == {"numbers": [1, 1], "flags": [0, 1]}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"first": 1, "contents": {}}', '{"contents": []}'])
def test_a_damaged_note_of_sources_is_written_anew(articles, cache, text):
    first = build_text(cache, TOKENIZER, articles)
    [note] = (cache / "sources").iterdir()
    good = note.read_text()
    note.write_text(text)
    assert build_text(cache, TOKENIZER, articles).path == first.path
    assert json.loads(note.read_text())["first"] == json.loads(good)["first"]


def test_many_shards_in_many_processes_give_the_same(kind, tmp_path, monkeypatch):
    whole = kind.make(cache=tmp_path / "one", **kind.many)
    monkeypatch.setattr(arrow_files, "SHARD_CHARACTERS", 500)
    monkeypatch.setattr(arrow_files, "ROW_SHARD_CHARACTERS", 2000)
    monkeypatch.setattr(arrow_files, "BATCH_ITEMS", 3)
    steps = []
    parts = kind.make(cache=tmp_path / "two", workers=2, progress=lambda *step: steps.append(step), **kind.many)
    assert len(list(parts.path.glob("train-*.arrow"))) > 4
    assert parts.train[:] == whole.train[:]
    assert parts.held_out[:] == whole.held_out[:]
    assert parts.held_out_documents() == whole.held_out_documents()
    size, unit, counted, tokenised = kind.size
    assert steps[:2] == [(f"reading {kind.many['source']}", done, size, unit) for done in (0, size)]
    assert steps[-1] == ("tokenising", whole.manifest[counted], whole.manifest[counted], tokenised)


@pytest.mark.parametrize("unit", ["document", "paragraph", "sentence"])
def test_a_corpus_holds_all_the_text_in_blocks(articles, cache, unit):
    corpus = build_text(cache, TOKENIZER, articles, unit=unit)
    first, last = TOKENIZER.cls_token_id, TOKENIZER.sep_token_id
    for split in (corpus.train, corpus.held_out):
        assert split.column_names == ["input_ids", "length"]
        assert all((ids[0], ids[-1]) == (first, last) and len(ids) <= 24 for ids in split["input_ids"])
        assert split["length"][:] == [*map(len, split["input_ids"])]
    held = [document.text for document in corpus.held_out_documents()]
    kept = [text for text in (articles / "all.txt").read_text().split("\n\n") if text not in held]
    packed = "".join(decode(TOKENIZER, ids) for ids in corpus.train["input_ids"])
    assert "".join(packed.split()) == "".join("".join(kept).split())
    assert (corpus.manifest["documents"], corpus.manifest["held_out_documents"]) == (40, len(held))
    assert 0 < len(held) < 40
    check_counts(corpus)


def check_counts(corpus):
    splits = {"train": corpus.train, "held_out": corpus.held_out}
    counts = {name: (count["blocks"], count["tokens"]) for name, count in corpus.manifest["splits"].items()}
    assert counts == {name: (len(split), sum(split["length"])) for name, split in splits.items()}
    assert corpus.tokens == counts["train"][1]


@pytest.mark.parametrize("settings", [{}, {"pairs": True}, {"unit": "sentence"}, {"text_keys": True}])
def test_documents_without_a_block_are_counted_and_noted(tmp_path, cache, settings):
    long_texts = [f"the model of a teacher reads the text of number {number}" for number in range(20)]
    short_texts = [f"model {number}" for number in range(30)]
    path = write_packed(tmp_path / "all.txt", "\n\n".join([*long_texts, *short_texts]))
    settings = settings | {"length": 32, "minimum_tokens": 4}
    corpus = build_text(cache, WORDS, path, held_out=0, **settings)
    counts = corpus.manifest["splits"]["train"]
    assert (corpus.manifest["documents"], len(corpus.train), counts["dropped_documents"]) == (50, 20, 30)
    assert corpus.report.counts == {"document without a text of 4 tokens or more, left out": 30}
    assert "'model 0'" in corpus.report.lines()[0]
    # With a smaller minimum no document is left out, and held-out documents are not counted as left out.
    smaller = build_text(cache, WORDS, path, **settings | {"held_out": 0, "minimum_tokens": 1})
    assert (len(smaller.train), smaller.report.counts) == (50, {})
    divided = build_text(cache, WORDS, path, held_out=0.3, **settings)
    trained = 50 - divided.manifest["held_out_documents"] - divided.manifest["splits"]["train"]["dropped_documents"]
    assert 0 < trained == len(divided.train) < 20
    assert divided.manifest["splits"]["held_out"]["dropped_documents"] == 0


def test_joined_documents_are_all_trained_on(tmp_path, cache, plain_tokenizer):
    path = write_packed(tmp_path / "all.txt", "\n\n".join(f"a{number}" for number in range(60)))
    corpus = build_text(cache, plain_tokenizer, path, join=True, held_out=0)
    assert corpus.manifest["splits"]["train"]["dropped_documents"] == 0 and corpus.report.counts == {}


def test_joined_blocks_are_full(articles, cache, plain_tokenizer):
    corpus = build_text(cache, plain_tokenizer, articles, join=True)
    assert set(corpus.train["length"]) == {24}
    ends = sum(ids.count(plain_tokenizer.eos_token_id) for ids in corpus.train["input_ids"])
    assert 40 - len(corpus.held_out_documents()) - ends in (1, 2)


def test_held_out_documents_are_the_same_for_any_unit_length_and_tokenizer(articles, cache, plain_tokenizer):
    def held(cache=cache, tokenizer=TOKENIZER, **settings):
        return build_text(cache, tokenizer, articles, **settings).held_out_documents()

    usual = held()
    assert usual == held(unit="sentence", length=12) == held(cache / "elsewhere", plain_tokenizer, join=True)
    fewer = held(held_out_documents=2)
    assert len(fewer) == 2
    assert set(fewer) < set(usual) < set(held(held_out=0.5))
    assert (len(held(held_out=0)), len(held(held_out=1e-9))) == (0, 1)


def test_rows_on_one_text_are_held_out_together_whatever_the_tokens(pairs, cache):
    corpora = [
        build_rows(cache, WORDS, pairs, **PAIRS),
        build_rows(cache, tiny_tokenizer("roberta"), pairs, **PAIRS, length=12),
        build_rows(cache, WORDS, pairs, **PAIRS, **VALUES),
    ]
    held = [{document.text for document in corpus.held_out_documents()} for corpus in corpora]
    assert held[0] == held[1] == held[2]
    assert all(len(c.held_out) == 3 * c.manifest["held_out_texts"] == 3 * len(held[0]) > 0 for c in corpora)
    for text in held[0]:
        first, *seconds = text.split("\n")
        number = int(first.rpartition(" ")[2])
        assert seconds == [f"word {3 * number + k}" for k in range(3)]
    none = build_rows(cache, WORDS, pairs, **PAIRS, held_out=0)
    assert (len(none.held_out), none.held_out_documents(), len(none.train)) == (0, [], 60)


def test_held_out_threshold():
    keys = (np.arange(100, dtype=np.uint64) * np.uint64(2**64 // 100))[::-1] + np.uint64(9**9)
    for share, most, expected in [(0.25, 99, 25), (0.25, 7, 7), (1e-12, 9, 1), (0.9999, 1000, 99)]:
        assert int((keys < np.uint64(held_out_threshold(keys, share, most))).sum()) == expected
    assert held_out_threshold(keys, 0, 9) == held_out_threshold(keys[:1], 0.5, 9) == 0


def test_repeated_documents_are_counted_and_kept_once(tmp_path, cache):
    source = write_texts(tmp_path / "a.txt", ["the same", "another", "the same", "a third"] * 3)
    corpus = build_text(cache, TOKENIZER, source)
    assert corpus.manifest["documents"] == 3
    assert corpus.report.counts == {"document that repeats another": 9}
    assert build_text(cache, TOKENIZER, source, max_documents=2).manifest["documents"] == 2


def test_names_of_files_that_are_not_utf8(tmp_path, cache):
    source = write_packed(tmp_path / "folder" / os.fsdecode(b"na\xefve.txt"), b"bad \xff byte\n\nmore text").parent
    corpus = build_text(cache, TOKENIZER, source)
    assert corpus.report.lines() == [f"1 x line with bytes that are not UTF-8 (such as {source}/na\\udcefve.txt:1)"]
    assert build_text(cache, TOKENIZER, source).path == corpus.path


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / MANIFEST).unlink(),
        lambda folder: (folder / MANIFEST).write_text("[1"),
        lambda folder: os.truncate(folder / "train-00000.arrow", 100),
    ],
    ids=["no manifest", "rubbish", "a file cut short"],
)
def test_a_damaged_corpus_is_built_again(articles, cache, damage):
    """Folders as a kill or a full disk may leave them."""
    corpus = build_text(cache, TOKENIZER, articles)
    damage(corpus.path)
    with pytest.raises(CorpusError, match="holds no complete corpus"):
        Corpus(corpus.path)
    assert build_text(cache, TOKENIZER, articles).tokens == corpus.tokens


def test_the_cache_goes_where_it_is_named(articles, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LIMBECK_CACHE", raising=False)
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "limbeck"
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "named"))
    corpus = build_corpus(CorpusSettings(sources=str(articles)), TOKENIZER)
    assert corpus.path.parent == tmp_path / "named" / "blocks"
    assert not (tmp_path / "home").exists()
    assert "tokens" in repr(corpus)
    with pytest.raises(CorpusError, match="Cannot write the corpus cache"):
        build_text(write_packed(tmp_path / "file", "in the way"), TOKENIZER, articles)


def test_installed_docs_keep_their_titles(tmp_path, cache):
    for number in range(20):
        text = f'"""Summary of the module number {number}.\n\nIts body is module {number} itself."""\n'
        write_packed(tmp_path / "packages" / f"m{number}.py", text)
    source = f"installed-docs:{tmp_path}/packages"
    corpus = build_text(cache, TOKENIZER, source, held_out=0.3, workers=None)
    documents = corpus.held_out_documents()
    assert documents
    assert all(document.title and document.body.startswith("Its body is module") for document in documents)
    assert json.loads((corpus.path / MANIFEST).read_text())["sources"] == {source: 20}


def test_classes_of_pairs(pairs, cache):
    corpus = build_rows(cache, WORDS, pairs, **PAIRS)
    assert corpus.train.column_names == ["input_ids", "length", "labels", "token_type_ids"]
    seen = {}
    for row in (*corpus.train, *corpus.held_out):
        first, second = WORDS.decode(row["input_ids"]).removeprefix("[CLS] ").split(" [SEP]")[:2]
        seen[int(second.split()[1])] = (first, row["labels"])
        whole = WORDS(first, second.strip())
        assert (row["input_ids"], row["token_type_ids"]) == (whole["input_ids"], whole["token_type_ids"])
    assert seen == {number: (f"the text of {number // 3}", number % 2) for number in range(60)}
    expected = {"documents": 60, "texts": 20, "sources": {str(pairs): 60}, "held_out_documents": len(corpus.held_out)}
    assert {key: corpus.manifest[key] for key in expected} == expected
    assert corpus.report.lines() == []
    assert "classification" in repr(corpus)
    check_counts(corpus)


def test_values_and_models_without_segments(pairs, cache):
    corpus = build_rows(cache, tiny_tokenizer("roberta"), pairs, **VALUES, held_out=0)
    assert corpus.train.column_names == ["input_ids", "length", "labels"]
    assert corpus.train["labels"][:] == [number / 4 for number in range(60)]


def test_long_pairs_lose_the_end_of_the_longer_text_first(tmp_path, cache):
    texts = [("the " * 30, "of " * 30), ("the " * 30, "of of of"), ("the the", "of " * 30)]
    rows = write_rows(tmp_path / "a.jsonl", [{"text": first, "pair": second, "label": 1} for first, second in texts])
    corpus = build_rows(cache, WORDS, rows, **PAIRS, length=20, held_out=0)
    for ids, kept in zip(corpus.train["input_ids"], (((8, 9), (9, 8)), ((14, 3),), ((2, 15),)), strict=True):
        expected = [["[CLS]", *["the"] * first, "[SEP]", *["of"] * second, "[SEP]"] for first, second in kept]
        assert WORDS.convert_ids_to_tokens(ids) in expected
    assert corpus.report.counts == {"row cut to 20 tokens (training)": 3}


@pytest.mark.parametrize("has_development_rows", [True, False])
def test_rows_that_are_cut_are_counted_by_their_part(tmp_path, cache, has_development_rows):
    def long_rows(word, count):
        return [{"text": f"{word} {number} " * 20, "label": number % 2} for number in range(count)]

    train = write_rows(tmp_path / "train.jsonl", long_rows("the", 8))
    settings = {"held_out": 0.5}
    held_out = "held out"
    if has_development_rows:
        development = write_rows(tmp_path / "dev.jsonl", long_rows("of", 3))
        task = TaskSpec(kind="classification")
        corpus = CorpusSpec(sources=[str(train)], task=task, development=[str(development)])
        settings = {"development": described_development(corpus, task, ("negative", "positive"))}
        held_out = "development"

    corpus = build_rows(cache, WORDS, train, length=10, **settings)
    assert corpus.report.counts == {
        "row cut to 10 tokens (training)": len(corpus.train),
        f"row cut to 10 tokens ({held_out})": len(corpus.held_out),
    }
    assert f"{len(corpus.train)} rows cut to 10 tokens (training) (such as" in "\n".join(corpus.report.lines())


def test_slow_tokenizers_cut_as_fast_ones_do():
    for first, second, room in product(range(1, 8), range(1, 8), range(2, 9)):
        ids = WORDS("the " * first, "of " * second, truncation="longest_first", max_length=room + 3)["input_ids"]
        tokens = WORDS.convert_ids_to_tokens(ids)
        assert longest_first([first, second], room) == [tokens.count("the"), tokens.count("of")], (first, second, room)
    assert [longest_first([length], 4) for length in (3, 4, 5)] == [[3], [4], [4]]


def test_questions(questions, cache):
    corpus = build_rows(cache, WORDS, questions, **QUESTIONS)
    counts = corpus.manifest
    assert (counts["documents"], counts["texts"]) == (40, 20)
    assert len(corpus.train) + len(corpus.held_out) > 80
    answered = {}
    for name, split in (("train", corpus.train), ("held_out", corpus.held_out)):
        for row in split:
            start, end = row["labels"]
            question = f"{name} {WORDS.decode(row['input_ids']).split(' [SEP]')[0]}"
            answered[question] = answered.get(question, 0) + (start > 0)
            assert (start, end) == (0, 0) or WORDS.decode(row["input_ids"][start : end + 1]) == "teacher"
    # Each question is on one side only, with all of its windows, and its answer, where it has one, stands in the first.
    assert sorted(answered.values()) == [0] * 10 + [1] * 30
    assert counts["held_out_documents"] == 2 * len(corpus.held_out_documents()) > 0
    assert all(document.text.count("\nwho ") == 2 for document in corpus.held_out_documents())


def test_max_rows_and_the_report_of_a_source_left_in_the_middle(tmp_path, cache):
    rows = [{"text": " ", "label": 1}, *({"text": f"text {number}", "label": 1} for number in range(9))]
    corpus = build_rows(cache, WORDS, write_rows(tmp_path / "a.jsonl", rows), max_rows=5)
    assert corpus.manifest["documents"] == 5
    assert corpus.report.counts == {"row whose column 'text' is empty": 1}


def test_a_slow_tokenizer_is_enough_for_classes(pairs, cache, caplog):
    tokenizer = ByT5Tokenizer()
    corpus = build_rows(cache, tokenizer, pairs, **PAIRS, held_out=0, length=15)
    rows = [tokenizer.decode(ids) for ids in corpus.train["input_ids"]]
    assert (rows[0], rows[-1]) == ("the tex</s>word 0</s>", "the tex</s>word 5</s>")
    assert corpus.report.counts == {"row cut to 15 tokens (training)": 60}
    assert not caplog.records


def test_corpora_of_the_two_kinds_are_kept_apart(pairs, tmp_path, cache):
    corpus = build_rows(cache, WORDS, pairs)
    assert isinstance(corpus, Corpus)
    assert LabelledCorpus(corpus.path).task == "classification"
    with pytest.raises(CorpusError, match="without labels"):
        LabelledCorpus(build_text(cache, TOKENIZER, pairs).path)
    with pytest.raises(CorpusError, match="holds no complete corpus"):
        LabelledCorpus(tmp_path)


def test_settings_take_one_source_or_a_list():
    assert CorpusSettings(sources="a").sources == ["a"]
    assert CorpusSettings(sources=["a", "b"]) == CorpusSettings(sources=("a", "b"))


@pytest.mark.parametrize(("settings", "is_new"), [({}, False), ({"pairs": True}, True), ({"unit": "sentence"}, True)])
def test_other_rules_of_sentences_make_blocks_anew_where_sentences_count(
    articles, cache, monkeypatch, settings, is_new
):
    first = build_text(cache, TOKENIZER, articles, **settings)
    monkeypatch.setattr(block_encoding, "SENTENCE_RULES", block_encoding.SENTENCE_RULES + 1)
    assert (build_text(cache, TOKENIZER, articles, **settings).path != first.path) == is_new
