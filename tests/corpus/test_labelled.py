"""Labelled corpora: tokens and labels, what is held out, the cache, and the shape of the result."""

import json
from itertools import product

import pytest
import torch
from transformers import ByT5Tokenizer

from limbeck.corpus import (
    Corpus,
    CorpusSettings,
    LabelledCorpus,
    LabelledSettings,
    PadCollator,
    build_corpus,
    build_labelled_corpus,
    sources,
    store,
)
from limbeck.corpus.labelled import longest_first
from limbeck.errors import CorpusError
from tests.support.models import tiny_tokenizer

CLASSES = ("no", "yes")


def write_rows(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def pairs(tmp_path):
    """60 pairs on 20 texts, three each."""
    rows = [
        {
            "text": f"the text of {number // 3}",
            "pair": f"word {number}",
            "label": CLASSES[number % 2],
            "value": number / 4,
        }
        for number in range(60)
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


def build(source, cache, tokenizer=None, **settings):
    options = {"task": "classification", "labels": CLASSES, "held_out": 0.2, "length": 40, **settings}
    return build_labelled_corpus(
        LabelledSettings(sources=(str(source),), **options), tokenizer or tiny_tokenizer(), cache_dir=cache, workers=1
    )


def test_classes_of_pairs(pairs, cache):
    tokenizer = tiny_tokenizer()
    corpus = build(pairs, cache, pair_column="pair")
    assert corpus.train.column_names == ["input_ids", "length", "labels", "token_type_ids"]
    seen = {}
    for split in (corpus.train, corpus.held_out):
        for row in split:
            first, second = tokenizer.decode(row["input_ids"]).removeprefix("[CLS] ").split(" [SEP]")[:2]
            seen[int(second.split()[1])] = (first, row["labels"])
            whole = tokenizer(first, second.strip())
            assert (row["input_ids"], row["token_type_ids"]) == (whole["input_ids"], whole["token_type_ids"])
            assert row["length"] == len(row["input_ids"])
    assert seen == {number: (f"the text of {number // 3}", number % 2) for number in range(60)}
    manifest = corpus.manifest
    assert manifest["documents"] == 60
    assert manifest["held_out_documents"] == len(corpus.held_out) > 0
    assert manifest["texts"] == 20
    assert manifest["sources"] == {str(pairs): 60}
    assert manifest["splits"]["train"]["blocks"] == len(corpus.train)
    assert manifest["splits"]["train"]["tokens"] == sum(corpus.train["length"]) == corpus.tokens
    assert corpus.report.lines() == []
    assert "classification" in repr(corpus)


def test_rows_on_one_text_are_held_out_together_whatever_the_tokens(pairs, cache):
    def held(corpus):
        return {document.text for document in corpus.held_out_documents()}

    corpora = [
        build(pairs, cache, pair_column="pair"),
        build(pairs, cache, tiny_tokenizer("roberta"), pair_column="pair", length=12),
        build(pairs, cache, pair_column="pair", task="regression", label_column="value"),
    ]
    assert held(corpora[0]) == held(corpora[1]) == held(corpora[2])
    for corpus in corpora:
        assert len(corpus.held_out) == 3 * corpus.manifest["held_out_texts"] == 3 * len(held(corpus))
    for text in held(corpora[0]):
        first, *seconds = text.split("\n")
        number = int(first.rpartition(" ")[2])
        assert seconds == [f"word {3 * number + k}" for k in range(3)]
    assert held(corpora[0]) < held(build(pairs, cache, pair_column="pair", held_out=0.6))
    none = build(pairs, cache, pair_column="pair", held_out=0)
    assert (len(none.held_out), none.held_out_documents(), len(none.train)) == (0, [], 60)


def test_values_and_models_without_segments(pairs, cache):
    corpus = build(pairs, cache, tiny_tokenizer("roberta"), task="regression", label_column="value", held_out=0)
    assert corpus.train.column_names == ["input_ids", "length", "labels"]
    assert corpus.train["labels"][:] == [number / 4 for number in range(60)]


def test_long_pairs_lose_the_end_of_the_longer_text_first(tmp_path, cache):
    tokenizer = tiny_tokenizer()
    texts = [("the " * 30, "of " * 30), ("the " * 30, "of of of"), ("the the", "of " * 30)]
    rows = [{"text": a, "pair": b, "label": 1} for a, b in texts]
    corpus = build(write_rows(tmp_path / "a.jsonl", rows), cache, pair_column="pair", length=20, held_out=0)
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
    corpus = build(questions, cache, task="question_answering", stride=10)
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
    ("task", "kind", "column", "shape"),
    [
        ("classification", "class", "label", (4,)),
        ("regression", "value", "value", (4,)),
        ("question_answering", "span", None, (4, 2)),
    ],
)
def test_rows_make_batches(pairs, questions, cache, task, kind, column, shape):
    tokenizer = tiny_tokenizer()
    settings = {"label_column": column} if column else {"stride": 8}
    corpus = build(pairs if column else questions, cache, task=task, **settings)
    loader = torch.utils.data.DataLoader(
        corpus.train, batch_size=4, collate_fn=PadCollator(tokenizer.pad_token_id, labels=kind)
    )
    batch = next(iter(loader))
    assert batch["labels"].shape == shape
    assert batch["token_type_ids"].shape == batch["input_ids"].shape


def test_a_second_build_reads_nothing_and_other_tokens_read_the_rows_once(pairs, cache, monkeypatch):
    first = build(pairs, cache)
    monkeypatch.setattr(sources.Files, "rows", lambda *_: pytest.fail("read again"))
    assert build(pairs, cache).path == first.path
    paths = {first.path, build(pairs, cache, length=20).path, build(pairs, cache, tiny_tokenizer("roberta")).path}
    paths.add(build(pairs, cache, held_out=0.5).path)
    assert len(paths) == 4
    # A question's window does not depend on the stride of a task that has none.
    assert build(pairs, cache, stride=3).path == first.path


def test_whatever_decides_the_rows_gives_another_folder(pairs, cache):
    paths = [build(pairs, cache).path, build(pairs, cache, pair_column="pair").path]
    paths += [build(pairs, cache, labels=("yes", "no")).path, build(pairs, cache, max_rows=30).path]
    paths += [build(pairs, cache, task="regression", label_column="value").path]
    with pairs.open("a") as file:
        file.write('\n{"text": "one more", "label": "yes"}')
    paths += [build(pairs, cache).path]
    assert len(set(paths)) == len(paths)


def test_max_rows_and_the_report_of_a_source_left_in_the_middle(tmp_path, cache):
    rows = [{"text": " ", "label": 1}, *({"text": f"text {number}", "label": 1} for number in range(9))]
    corpus = build(write_rows(tmp_path / "a.jsonl", rows), cache, max_rows=5)
    assert corpus.manifest["documents"] == 5
    assert corpus.report.counts == {"row whose column 'text' is empty": 1}


def test_many_shards_in_many_processes_give_the_same(questions, tmp_path, monkeypatch):
    whole = build(questions, tmp_path / "one", task="question_answering", stride=8)
    monkeypatch.setattr(store, "ROW_SHARD_CHARACTERS", 2000)
    monkeypatch.setattr(store, "_BATCH_ITEMS", 3)
    steps = []
    settings = LabelledSettings("question_answering", str(questions), length=40, stride=8, held_out=0.2)
    parts = build_labelled_corpus(
        settings, tiny_tokenizer(), cache_dir=tmp_path / "two", workers=2, progress=lambda *step: steps.append(step)
    )
    assert len(list(parts.path.glob("train-*.arrow"))) > 4
    for name in ("input_ids", "labels", "token_type_ids"):
        assert parts.train[name][:] == whole.train[name][:]
        assert parts.held_out[name][:] == whole.held_out[name][:]
    assert parts.held_out_documents() == whole.held_out_documents()
    assert steps[:2] == [(f"reading {questions}", done, 1, "files") for done in (0, 1)]
    rows = whole.manifest["documents"]
    assert steps[-1] == ("tokenising", rows, rows, "rows")


def test_a_slow_tokenizer_is_enough_for_classes(pairs, cache, caplog):
    tokenizer = ByT5Tokenizer()
    corpus = build(pairs, cache, tokenizer, pair_column="pair", held_out=0, length=15)
    rows = [tokenizer.decode(ids) for ids in corpus.train["input_ids"]]
    assert rows[0] == "the tex</s>word 0</s>"
    assert rows[-1] == "the tex</s>word 5</s>"
    assert corpus.report.counts == {"row cut to 15 tokens": 60}
    assert not caplog.records
    with pytest.raises(CorpusError, match="slow tokenizer"):
        build(pairs, cache, tokenizer, task="question_answering")


def test_refusals(pairs, tmp_path, cache):
    with pytest.raises(CorpusError, match="no class names"):
        build(pairs, cache, labels=())
    with pytest.raises(CorpusError, match="puts 3 special tokens in a row"):
        build(pairs, cache, pair_column="pair", length=4)
    with pytest.raises(CorpusError, match=r"a\.jsonl' holds no labelled row: 1 x row whose column 'text' is empty"):
        build(write_rows(tmp_path / "a.jsonl", [{"text": "", "label": 1}]), cache)
    no_token = {"question": "q", "context": "the  model", "answers": {"text": ["  "], "answer_start": [3]}}
    with pytest.raises(CorpusError, match="has 1 rows, but none to train on"):
        build(write_rows(tmp_path / "b.jsonl", [no_token]), cache, task="question_answering", stride=8)
    assert not [path for path in (cache / "labelled").iterdir() if path.is_dir()]


def test_corpora_of_the_two_kinds_are_told_apart(pairs, tmp_path, cache):
    corpus = build(pairs, cache)
    assert isinstance(corpus, Corpus)
    assert LabelledCorpus(corpus.path).task == "classification"
    text = build_corpus(CorpusSettings(str(pairs)), tiny_tokenizer(), cache_dir=cache, workers=1)
    with pytest.raises(CorpusError, match="without labels"):
        LabelledCorpus(text.path)
    with pytest.raises(CorpusError, match="not a complete corpus"):
        LabelledCorpus(tmp_path)


def test_the_tokenizer_is_not_changed(pairs, cache):
    tokenizer = tiny_tokenizer()
    before = tokenizer.backend_tokenizer.to_str()
    build(pairs, cache, tokenizer, length=9)
    assert tokenizer.backend_tokenizer.to_str() == before
