"""Keys of texts: one for a whole text whatever the tokenizer, another for whatever a teacher reads apart."""

import json

import pytest

from limbeck.corpus import CorpusSettings, LabelledSettings, PadCollator, build_corpus, build_labelled_corpus
from limbeck.corpus.batches.batch import read_batch
from limbeck.corpus.text.text_keys import text_key
from limbeck.errors import CorpusError
from limbeck.kinds.registry import KINDS
from tests.support.corpora import TOKENIZER, decode
from tests.support.streams import write_texts

SHORT = [f"Short text number {number}." for number in range(12)]


def build(folder, cache, tokenizer=TOKENIZER, **settings):
    settings = {"held_out": 0.2, "text_keys": True} | settings
    return build_corpus(CorpusSettings(sources=[str(folder)], **settings), tokenizer, cache_dir=cache)


def keys_of(corpus):
    return sorted([*corpus.train["text_key"], *corpus.held_out["text_key"]])


@pytest.fixture
def short(tmp_path):
    return write_texts(tmp_path / "short" / "all.txt", SHORT).parent


def test_every_part_of_what_is_read_changes_the_key():
    keys = [
        text_key("a b"),
        text_key("a b", prompt="a"),
        text_key(" b", prompt="a"),
        text_key("b", prompt="a "),
        text_key("a b", pair=""),
        text_key("a", pair=" b"),
        text_key("a b", cut_to=[1, 2]),
        text_key("a b", cut_to=[1, 3]),
        text_key("a b", cut_to=[]),
    ]
    # A part without tokens is the whole text.
    assert len(set(keys)) == len(keys) - 1
    assert keys[-1] == keys[0]
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_a_whole_text_has_one_key_for_every_tokenizer_and_length(short, cache, plain_tokenizer):
    expected = sorted(text_key(text) for text in SHORT)
    assert keys_of(build(short, cache, length=64)) == expected
    assert keys_of(build(short, cache, length=128)) == expected
    assert keys_of(build(short, cache, plain_tokenizer, length=64)) == expected


def test_the_parts_of_a_cut_text_have_keys_of_their_own(short, cache):
    whole = keys_of(build(short, cache, length=64))
    cut = keys_of(build(short, cache, length=16))
    shorter = keys_of(build(short, cache, length=12))
    assert len(set(cut)) == len(cut) > len(whole)
    assert not set(cut) & set(whole)
    assert not set(cut) & set(shorter)


def test_prompts_change_keys_and_reach_the_batch(short, cache):
    prompts = {"": "query: "}
    corpus = build(short, cache, length=64, prompts=prompts)
    assert keys_of(corpus) == sorted(text_key(text, prompt="query: ") for text in SHORT)
    apart = build(short, cache, length=64, prompts=prompts, student_prompts="none")
    assert keys_of(apart) == keys_of(corpus)
    batch = read_batch(PadCollator(0)([corpus.train[index] for index in range(3)]))
    assert batch.text_keys.tolist() == list(corpus.train["text_key"])[:3]
    assert "text_key" not in batch.student
    assert "text_key" not in batch.teacher


LONG = [f"Long text number {number}: " + "and so on and on " * 6 for number in range(12)]


@pytest.mark.parametrize("reads", ["alike", "apart", "two tokenizers"])
def test_a_whole_text_longer_than_a_block_has_one_row_of_its_beginning(tmp_path, cache, plain_tokenizer, reads):
    folder = write_texts(tmp_path / "long" / "all.txt", LONG).parent
    settings = {"length": 48, "text_keys": True, "whole_texts": True, "held_out": 0.2, "prompts": {"": "query: "}}
    options = {"teacher_tokenizer": plain_tokenizer} if reads == "two tokenizers" else {}
    if reads == "apart":
        settings["student_prompts"] = "none"
    corpus = build_corpus(CorpusSettings(sources=[str(folder)], **settings), TOKENIZER, cache_dir=cache, **options)
    assert keys_of(corpus) == sorted(text_key(text.strip(), prompt="query: ") for text in LONG)
    assert corpus.report.counts == {"text of which the student reads only the beginning": 12}
    for row in corpus.train:
        text = decode(TOKENIZER, row["input_ids"])
        assert any(("query: " + long).removeprefix("query: " * (reads == "apart")).startswith(text) for long in LONG)
        if reads == "apart":
            # The two sides read the same text.
            assert decode(TOKENIZER, row["teacher_input_ids"]) == f"query: {text}"


@pytest.mark.parametrize("option", ["join", "pairs"])
def test_blocks_of_several_texts_have_no_key_and_no_second_tokenizer(short, cache, plain_tokenizer, option):
    settings = CorpusSettings(sources=[str(short)], **{option: True})
    with pytest.raises(CorpusError, match=f"{option} joins texts into blocks"):
        build_corpus(settings.model_copy(update={"text_keys": True}), TOKENIZER, cache_dir=cache)
    with pytest.raises(CorpusError, match=f"{option} cuts text by the tokens of one model"):
        build_corpus(settings, TOKENIZER, teacher_tokenizer=plain_tokenizer, cache_dir=cache)


def test_corpora_without_keys_stay_as_they_were(short, cache):
    plain = build(short, cache, length=64, text_keys=False)
    keyed = build(short, cache, length=64)
    assert plain.train.column_names == ["input_ids", "length"]
    assert plain.path != keyed.path
    assert list(plain.train["input_ids"]) == list(keyed.train["input_ids"])


def test_labelled_rows_have_the_key_of_both_texts(tmp_path, cache):
    rows = [{"text": f"first {number}", "pair": "second", "label": number / 10} for number in range(30)]
    path = write_texts(tmp_path / "rows.jsonl", [])
    path.write_text("\n".join(map(json.dumps, rows)))
    settings = LabelledSettings(
        sources=[str(path)], kind="regression", pair_column="pair", label_column="label", length=64, text_keys=True
    )
    corpus = build_labelled_corpus(settings, TOKENIZER, KINDS["regression"], cache_dir=cache)
    expected = {text_key(row["text"], pair=row["pair"]) for row in rows}
    assert set(corpus.train["text_key"]) | set(corpus.held_out["text_key"]) == expected
    # A row as long as the limit may have been cut, so its key depends on its tokens.
    cut = build_labelled_corpus(
        settings.model_copy(update={"length": 12}), TOKENIZER, KINDS["regression"], cache_dir=cache
    )
    assert not expected & set(cut.train["text_key"])


def test_rows_that_are_cut_into_windows_have_no_key(tmp_path, cache):
    settings = LabelledSettings(sources=["x.json"], kind="question_answering", length=64, stride=8, text_keys=True)
    with pytest.raises(CorpusError, match="rows of question_answering are cut into windows"):
        build_labelled_corpus(settings, TOKENIZER, KINDS["question_answering"], cache_dir=cache)
