"""Built corpora, of text and of labelled rows: their blocks, what is held out, the cache, and the refusals."""

import json
import os
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import ByT5Tokenizer

from limbeck.core.files import MANIFEST, default_cache_dir
from limbeck.corpus import (
    Corpus,
    CorpusSettings,
    LabelledCorpus,
    LabelledSettings,
    PadCollator,
    build_corpus,
    build_labelled_corpus,
    store,
)
from limbeck.corpus.build import held_out_threshold
from limbeck.corpus.labelled import longest_first
from limbeck.corpus.sources import Files
from limbeck.errors import CorpusError
from tests.support.corpora import bert_byte_tokenizer, byte_tokenizer, decode
from tests.support.models import tiny_tokenizer

LENGTH = 32
CLASSES = ("no", "yes")


def text_settings(source, **settings):
    return CorpusSettings(str(source), **{"length": LENGTH, "minimum_tokens": 1, "held_out": 0.2, **settings})


def row_settings(source, **settings):
    options = {"task": "classification", "labels": CLASSES, "held_out": 0.2, "length": 40, **settings}
    return LabelledSettings(sources=str(source), **options)


def build_text(source, cache, tokenizer=None, **settings):
    tokenizer = tokenizer or bert_byte_tokenizer()
    return build_corpus(text_settings(source, **settings), tokenizer, cache_dir=cache, workers=1)


def build_rows(source, cache, tokenizer=None, **settings):
    tokenizer = tokenizer or tiny_tokenizer()
    return build_labelled_corpus(row_settings(source, **settings), tokenizer, cache_dir=cache, workers=1)


def write_rows(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def pairs(tmp_path):
    """60 pairs on 20 texts, three each."""
    rows = [
        {"text": f"the text of {n // 3}", "pair": f"word {n}", "label": CLASSES[n % 2], "value": n / 4}
        for n in range(60)
    ]
    return write_rows(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def questions(tmp_path):
    """40 questions on 20 contexts of some 70 tokens."""
    rows = []
    for number in range(40):
        context = f"context {number // 2} " + "the model of a teacher " * 15
        answers = {"text": ["teacher"], "answer_start": [context.index("teacher")]}
        rows.append({"question": f"who {number}", "context": context, "answers": answers})
    return write_rows(tmp_path / "questions.jsonl", rows)


@pytest.fixture(params=["text", "labelled"])
def kind(request, articles, questions, pairs):
    """A kind of corpus: a source of it, other settings, and what they decide."""
    if request.param == "text":
        other = byte_tokenizer("[CLS] $A [SEP]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")
        changes = [{"length": 16}, {"unit": "sentence"}, {"join": True}, {"held_out": 0.5}, {"tokenizer": other}]
        return SimpleNamespace(
            build=build_text,
            source=articles / "all.txt",
            more="\n\nOne more article.",
            reads="documents",
            tokens=[*changes, {"unit": "paragraph"}],
            texts=[{"max_documents": 5}],
            same={"shuffle_buffer": 7},
            many=(build_corpus, text_settings(articles), bert_byte_tokenizer(), articles),
            size=(sum(path.stat().st_size for path in articles.iterdir()), "bytes", "characters", "characters"),
        )
    return SimpleNamespace(
        build=build_rows,
        source=pairs,
        more='\n{"text": "one more", "label": "yes"}',
        reads="rows",
        tokens=[{"length": 20}, {"held_out": 0.5}, {"tokenizer": tiny_tokenizer("roberta")}],
        texts=[
            {"pair_column": "pair"}, {"labels": ("yes", "no")}, {"max_rows": 30},
            {"task": "regression", "label_column": "value"},
        ],
        same={"stride": 3},  # A row does not depend on the stride of a task that has none.
        many=(
            build_labelled_corpus,
            row_settings(questions, task="question_answering", stride=8), tiny_tokenizer(), questions,
        ),
        size=(1, "files", "documents", "rows"),
    )  # fmt: skip


def test_a_second_build_reads_nothing_and_other_tokens_read_the_sources_once(kind, cache, monkeypatch):
    first = kind.build(kind.source, cache)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    monkeypatch.setattr(Files, kind.reads, lambda *_: pytest.fail("read again"))
    for settings in ({}, kind.same):
        assert kind.build(kind.source, cache, **settings).path == first.path
        assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before
    paths = [first.path, *(kind.build(kind.source, cache, **settings).path for settings in kind.tokens)]
    assert len(set(paths)) == len(paths)


def test_whatever_decides_the_texts_gives_another_folder(kind, cache):
    paths = [kind.build(kind.source, cache, **settings).path for settings in ({}, *kind.texts)]
    with kind.source.open("a") as file:
        file.write(kind.more)
    paths.append(kind.build(kind.source, cache).path)
    assert len(set(paths)) == len(paths)


def test_many_shards_in_many_processes_give_the_same(kind, tmp_path, monkeypatch):
    make, settings, tokenizer, source = kind.many
    whole = make(settings, tokenizer, cache_dir=tmp_path / "one", workers=1)
    monkeypatch.setattr(store, "SHARD_CHARACTERS", 500)
    monkeypatch.setattr(store, "ROW_SHARD_CHARACTERS", 2000)
    monkeypatch.setattr(store, "_BATCH_ITEMS", 3)
    steps = []
    parts = make(settings, tokenizer, cache_dir=tmp_path / "two", workers=2, progress=lambda *step: steps.append(step))
    assert len(list(parts.path.glob("train-*.arrow"))) > 4
    assert parts.train[:] == whole.train[:]
    assert parts.held_out[:] == whole.held_out[:]
    assert parts.held_out_documents() == whole.held_out_documents()
    size, unit, counted, tokenised = kind.size
    assert steps[:2] == [(f"reading {source}", done, size, unit) for done in (0, size)]
    assert steps[-1] == ("tokenising", whole.manifest[counted], whole.manifest[counted], tokenised)


def test_the_tokenizer_is_not_changed(kind, cache):
    tokenizer = kind.many[2]
    before = tokenizer.backend_tokenizer.to_str()
    kind.build(kind.source, cache, tokenizer, length=9)
    assert tokenizer.backend_tokenizer.to_str() == before


@pytest.mark.parametrize("unit", ["document", "paragraph", "sentence"])
def test_a_corpus_holds_all_the_text_in_blocks(articles, cache, bert_tokenizer, unit):
    corpus = build_text(articles, cache, unit=unit)
    for split in (corpus.train, corpus.held_out):
        assert split.column_names == ["input_ids", "length"]
        for row in split:
            assert row["length"] == len(row["input_ids"]) <= LENGTH
            assert row["input_ids"][0] == bert_tokenizer.cls_token_id
            assert row["input_ids"][-1] == bert_tokenizer.sep_token_id
    whole = (articles / "all.txt").read_text().split("\n\n")
    held = [document.text for document in corpus.held_out_documents()]
    kept = "".join("".join(text.split()) for text in whole if text not in held)
    packed = "".join(decode(bert_tokenizer, row) for row in corpus.train["input_ids"])
    assert "".join(packed.split()) == kept
    counts = corpus.manifest["splits"]
    assert counts["train"]["blocks"] == len(corpus.train)
    assert counts["train"]["tokens"] == sum(corpus.train["length"]) == corpus.tokens
    assert counts["held_out"]["blocks"] == len(corpus.held_out)
    assert (corpus.manifest["documents"], corpus.manifest["held_out_documents"]) == (40, len(held))
    assert held


def test_joined_blocks_are_full(articles, cache, plain_tokenizer):
    corpus = build_text(articles, cache, plain_tokenizer, join=True)
    assert set(corpus.train["length"]) == {LENGTH}
    stream = [token for row in corpus.train["input_ids"] for token in row]
    documents = 40 - len(corpus.held_out_documents())
    assert stream.count(plain_tokenizer.eos_token_id) in (documents - 1, documents - 2)


def test_held_out_documents_are_the_same_for_any_unit_length_and_tokenizer(articles, cache, plain_tokenizer):
    corpora = [
        build_text(articles, cache),
        build_text(articles, cache, unit="sentence", length=12),
        build_text(articles, cache / "elsewhere", plain_tokenizer, join=True),
    ]
    held = [corpus.held_out_documents() for corpus in corpora]
    assert held[0] == held[1] == held[2]
    fewer = build_text(articles, cache, held_out_documents=2).held_out_documents()
    assert len(fewer) == 2
    assert set(fewer) < set(held[0]) < set(build_text(articles, cache, held_out=0.5).held_out_documents())
    nothing = build_text(articles, cache, held_out=0)
    assert (len(nothing.held_out), nothing.held_out_documents()) == (0, [])
    assert len(build_text(articles, cache, held_out=1e-9).held_out_documents()) == 1


def test_rows_on_one_text_are_held_out_together_whatever_the_tokens(pairs, cache):
    corpora = [
        build_rows(pairs, cache, pair_column="pair"),
        build_rows(pairs, cache, tiny_tokenizer("roberta"), pair_column="pair", length=12),
        build_rows(pairs, cache, pair_column="pair", task="regression", label_column="value"),
    ]
    held = [{document.text for document in corpus.held_out_documents()} for corpus in corpora]
    assert held[0] == held[1] == held[2]
    for corpus in corpora:
        assert len(corpus.held_out) == 3 * corpus.manifest["held_out_texts"] == 3 * len(held[0])
    for text in held[0]:
        first, *seconds = text.split("\n")
        number = int(first.rpartition(" ")[2])
        assert seconds == [f"word {3 * number + k}" for k in range(3)]
    none = build_rows(pairs, cache, pair_column="pair", held_out=0)
    assert (len(none.held_out), none.held_out_documents(), len(none.train)) == (0, [], 60)


def test_held_out_threshold():
    keys = (np.arange(100, dtype=np.uint64) * np.uint64(2**64 // 100))[::-1] + np.uint64(9**9)
    for share, most, expected in [(0.25, 99, 25), (0.25, 7, 7), (1e-12, 9, 1), (0.9999, 1000, 99)]:
        assert int((keys < np.uint64(held_out_threshold(keys, share, most))).sum()) == expected
    assert held_out_threshold(keys, 0, 9) == held_out_threshold(keys[:1], 0.5, 9) == 0


def test_repeated_documents_are_counted_and_kept_once(tmp_path, cache):
    source = tmp_path / "a.txt"
    source.write_text("\n\n".join(["the same", "another", "the same", "a third"] * 3))
    corpus = build_text(source, cache)
    assert corpus.manifest["documents"] == 3
    assert corpus.report.counts == {"document that repeats another": 9}
    assert build_text(source, cache, max_documents=2).manifest["documents"] == 2


def test_names_of_files_that_are_not_utf8(tmp_path, cache):
    source = tmp_path / "folder"
    source.mkdir()
    (source / os.fsdecode(b"na\xefve.txt")).write_bytes(b"bad \xff byte\n\nmore text")
    corpus = build_text(source, cache)
    assert corpus.report.lines() == [f"1 x line with bytes that are not UTF-8 (such as {source}/na\\udcefve.txt:1)"]
    assert build_text(source, cache).path == corpus.path


@pytest.mark.parametrize("damage", ["manifest", "file", "rubbish"])
def test_a_damaged_corpus_is_built_again(articles, cache, damage):
    """Folders as a kill or a full disk may leave them: without a manifest, or with a file cut short."""
    corpus = build_text(articles, cache)
    tokens = corpus.tokens
    if damage == "manifest":
        (corpus.path / MANIFEST).unlink()
    elif damage == "file":
        os.truncate(corpus.path / "train-00000.arrow", 100)
    else:
        (corpus.path / MANIFEST).write_text("[1")
    with pytest.raises(CorpusError, match="is not a complete corpus"):
        Corpus(corpus.path)
    assert build_text(articles, cache).tokens == tokens


def test_the_cache_goes_where_it_is_named(articles, tmp_path, bert_tokenizer, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LIMBECK_CACHE", raising=False)
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "limbeck"
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "named"))
    corpus = build_corpus(CorpusSettings((str(articles),)), bert_tokenizer)
    assert corpus.path.parent == tmp_path / "named" / "blocks"
    assert not (tmp_path / "home").exists()
    assert "tokens" in repr(corpus)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CorpusError, match="Cannot write the corpus cache"):
        build_text(articles, tmp_path / "file")


def test_installed_docs_keep_their_titles(tmp_path, cache, bert_tokenizer):
    packages = tmp_path / "packages"
    packages.mkdir()
    for number in range(20):
        text = f'"""Summary of the module number {number}.\n\nIts body is module {number} itself."""\n'
        (packages / f"m{number}.py").write_text(text)
    source = f"installed-docs:{packages}"
    corpus = build_corpus(CorpusSettings(source, held_out=0.3), bert_tokenizer, cache_dir=cache)
    documents = corpus.held_out_documents()
    assert documents
    assert all(document.title and document.body.startswith("Its body is module") for document in documents)
    assert json.loads((corpus.path / MANIFEST).read_text())["sources"] == {source: 20}


def test_classes_of_pairs(pairs, cache):
    tokenizer = tiny_tokenizer()
    corpus = build_rows(pairs, cache, pair_column="pair")
    assert corpus.train.column_names == ["input_ids", "length", "labels", "token_type_ids"]
    seen = {}
    for row in (*corpus.train, *corpus.held_out):
        first, second = tokenizer.decode(row["input_ids"]).removeprefix("[CLS] ").split(" [SEP]")[:2]
        seen[int(second.split()[1])] = (first, row["labels"])
        whole = tokenizer(first, second.strip())
        assert (row["input_ids"], row["token_type_ids"]) == (whole["input_ids"], whole["token_type_ids"])
        assert row["length"] == len(row["input_ids"])
    assert seen == {number: (f"the text of {number // 3}", number % 2) for number in range(60)}
    manifest = corpus.manifest
    assert (manifest["documents"], manifest["texts"], manifest["sources"]) == (60, 20, {str(pairs): 60})
    assert manifest["held_out_documents"] == len(corpus.held_out) > 0
    assert manifest["splits"]["train"]["blocks"] == len(corpus.train)
    assert manifest["splits"]["train"]["tokens"] == sum(corpus.train["length"]) == corpus.tokens
    assert corpus.report.lines() == []
    assert "classification" in repr(corpus)


def test_values_and_models_without_segments(pairs, cache):
    roberta = tiny_tokenizer("roberta")
    corpus = build_rows(pairs, cache, roberta, task="regression", label_column="value", held_out=0)
    assert corpus.train.column_names == ["input_ids", "length", "labels"]
    assert corpus.train["labels"][:] == [number / 4 for number in range(60)]


def test_long_pairs_lose_the_end_of_the_longer_text_first(tmp_path, cache):
    tokenizer = tiny_tokenizer()
    texts = [("the " * 30, "of " * 30), ("the " * 30, "of of of"), ("the the", "of " * 30)]
    rows = [{"text": a, "pair": b, "label": 1} for a, b in texts]
    corpus = build_rows(write_rows(tmp_path / "a.jsonl", rows), cache, pair_column="pair", length=20, held_out=0)
    counts = []
    for ids in corpus.train["input_ids"]:
        tokens = tokenizer.convert_ids_to_tokens(ids)
        counts.append((tokens.count("the"), tokens.count("of")))
        assert tokens == ["[CLS]", *["the"] * counts[-1][0], "[SEP]", *["of"] * counts[-1][1], "[SEP]"]
    assert counts[0] in ((8, 9), (9, 8))
    assert counts[1:] == [(14, 3), (2, 15)]
    assert corpus.report.counts == {"row cut to 20 tokens": 3}


def test_slow_tokenizers_cut_as_fast_ones_do():
    tokenizer = tiny_tokenizer()
    for first, second, room in product(range(1, 8), range(1, 8), range(2, 9)):
        ids = tokenizer("the " * first, "of " * second, truncation="longest_first", max_length=room + 3)["input_ids"]
        tokens = tokenizer.convert_ids_to_tokens(ids)
        assert longest_first([first, second], room) == [tokens.count("the"), tokens.count("of")], (first, second, room)
    assert [longest_first([length], 4) for length in (3, 4, 5)] == [[3], [4], [4]]


def test_questions(questions, cache):
    tokenizer = tiny_tokenizer()
    corpus = build_rows(questions, cache, task="question_answering", stride=10)
    counts = corpus.manifest
    assert (counts["documents"], counts["texts"]) == (40, 20)
    assert len(corpus.train) + len(corpus.held_out) > 80
    answered = {}
    for split, name in ((corpus.train, "train"), (corpus.held_out, "held_out")):
        for row in split:
            start, end = row["labels"]
            question = f"{name} {tokenizer.decode(row['input_ids']).split(' [SEP]')[0]}"
            answered[question] = answered.get(question, 0) + (start > 0)
            assert (start, end) == (0, 0) or tokenizer.decode(row["input_ids"][start : end + 1]) == "teacher"
    # Each question is on one side only, with all of its windows, and its answer stands in the first.
    assert len(answered) == 40
    assert set(answered.values()) == {1}
    assert counts["held_out_documents"] == 2 * len(corpus.held_out_documents()) > 0
    assert all(document.text.count("\nwho ") == 2 for document in corpus.held_out_documents())


@pytest.mark.parametrize(
    ("task", "labels", "settings", "shape"),
    [
        ("classification", "class", {"label_column": "label"}, (4,)),
        ("regression", "value", {"label_column": "value"}, (4,)),
        ("question_answering", "span", {"stride": 8}, (4, 2)),
    ],
)
def test_rows_make_batches(pairs, questions, cache, task, labels, settings, shape):
    corpus = build_rows(questions if task == "question_answering" else pairs, cache, task=task, **settings)
    collate = PadCollator(tiny_tokenizer().pad_token_id, labels=labels)
    batch = next(iter(torch.utils.data.DataLoader(corpus.train, batch_size=4, collate_fn=collate)))
    assert batch["labels"].shape == shape
    assert batch["token_type_ids"].shape == batch["input_ids"].shape


def test_max_rows_and_the_report_of_a_source_left_in_the_middle(tmp_path, cache):
    rows = [{"text": " ", "label": 1}, *({"text": f"text {number}", "label": 1} for number in range(9))]
    corpus = build_rows(write_rows(tmp_path / "a.jsonl", rows), cache, max_rows=5)
    assert corpus.manifest["documents"] == 5
    assert corpus.report.counts == {"row whose column 'text' is empty": 1}


def test_a_slow_tokenizer_is_enough_for_classes(pairs, cache, caplog):
    tokenizer = ByT5Tokenizer()
    corpus = build_rows(pairs, cache, tokenizer, pair_column="pair", held_out=0, length=15)
    rows = [tokenizer.decode(ids) for ids in corpus.train["input_ids"]]
    assert (rows[0], rows[-1]) == ("the tex</s>word 0</s>", "the tex</s>word 5</s>")
    assert corpus.report.counts == {"row cut to 15 tokens": 60}
    assert not caplog.records
    with pytest.raises(CorpusError, match="slow tokenizer"):
        build_rows(pairs, cache, tokenizer, task="question_answering")


def test_corpora_of_the_two_kinds_are_kept_apart(pairs, tmp_path, cache):
    corpus = build_rows(pairs, cache)
    assert isinstance(corpus, Corpus)
    assert LabelledCorpus(corpus.path).task == "classification"
    with pytest.raises(CorpusError, match="without labels"):
        LabelledCorpus(build_text(pairs, cache).path)
    with pytest.raises(CorpusError, match="not a complete corpus"):
        LabelledCorpus(tmp_path)


NO_TOKEN = {"question": "q", "context": "the  model", "answers": {"text": ["  "], "answer_start": [3]}}


@pytest.mark.parametrize(
    ("build", "content", "settings", "message"),
    [
        (build_text, "", {}, r"The source '.*a\.txt' holds no text: 1 x empty file \(such as .*a\.txt\)\."),
        (build_text, "\0\n\n\0", {}, r"holds no text: 2 x empty document \(such as"),
        (build_text, "word", {"minimum_tokens": 9}, "has 1 documents, but no block of text to train on"),
        (build_text, "short", {"join": True}, "no block of text to train on"),
        (build_rows, '{"text": "a", "label": 1}', {"labels": ()}, "no class names"),
        (build_rows, "{}", {"pair_column": "pair", "length": 4}, "puts 3 special tokens in a row"),
        (build_rows, '{"text": "", "label": 1}', {}, "holds no labelled row: 1 x row whose column 'text' is empty"),
        (
            build_rows,
            json.dumps(NO_TOKEN),
            {"task": "question_answering", "stride": 8},
            "has 1 rows, but none to train",
        ),
    ],
)
def test_empty_corpora_are_refused_and_leave_nothing(tmp_path, cache, build, content, settings, message):
    source = tmp_path / ("a.txt" if build is build_text else "a.jsonl")
    source.write_text(content)
    with pytest.raises(CorpusError, match=message):
        build(source, cache, **settings)
    assert not [path for path in cache.glob("[bl]*/*") if path.is_dir()]


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (text_settings, {"unit": "sentense"}, "Unknown corpus unit 'sentense'. Did you mean 'sentence'"),
        (text_settings, {"held_out_documents": -1}, "held_out_documents is -1"),
        (text_settings, {"max_documents": 0}, "max_documents is 0"),
        (text_settings, {"minimum_tokens": 0}, "minimum_tokens is 0"),
        (row_settings, {"task": "clasification"}, "Unknown task 'clasification'. Did you mean 'classification'"),
        (row_settings, {"labels": ("a", "a")}, "same name"),
        (row_settings, {"stride": -1}, "stride is -1"),
        (row_settings, {"max_rows": 0}, "max_rows is 0"),
        *[
            (make, settings, message)
            for make in (text_settings, row_settings)
            for settings, message in (({"length": 0}, "length is 0"), ({"held_out": 1.0}, "held_out is 1.0"))
        ],
    ],
)
def test_settings_that_cannot_be_meant(make, settings, message):
    with pytest.raises(CorpusError, match=message):
        make("a", **settings)


def test_settings_take_one_source_or_a_list():
    assert CorpusSettings("a").sources == ("a",)
    assert CorpusSettings(["a", "b"]) == CorpusSettings(("a", "b"))
    for none in (lambda: CorpusSettings(()), lambda: LabelledSettings("classification", ())):
        with pytest.raises(CorpusError, match="no source"):
            none()
