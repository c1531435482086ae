"""Held-out rows stand apart from those that are trained on, by whole groups of near duplicates."""

import random
from collections import Counter

import numpy as np
import pytest

from limbeck.corpus import LabelledSettings, build_labelled_corpus
from limbeck.corpus.building.held_out_rows import read_held_out_rows
from limbeck.corpus.building.near_duplicates import near_duplicates
from limbeck.corpus.building.splitting import LEAKED, NEAR, REPEATED
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds.registry import KINDS
from tests.support.corpora import TOKENIZER
from tests.support.task_files import write_table

WORDS = [f"w{number}" for number in range(400)]


def sentences(count, seed=0, length=12):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=length)) for _ in range(count)]


def phrases(sentence):
    words = sentence.split()
    return [sentence, " ".join(words[:6]), " ".join(words[6:]), " ".join(words[3:7])]


def build(folder, rows, cache, **settings):
    path = write_table(folder / "train.tsv", ("text", "label"), rows)
    given = {"kind": "classification", "sources": [str(path)], "labels": ("no", "yes"), "length": 16} | settings
    return build_labelled_corpus(
        LabelledSettings(**given),
        TOKENIZER,
        KINDS[given["kind"] if "kind" in given else given["task"]],
        cache_dir=cache,
        workers=1,
    )


def texts_of(corpus):
    return {document.text for document in corpus.held_out_documents()}


def test_phrases_of_a_sentence_are_one_group_whatever_their_order():
    whole = [phrase for sentence in sentences(50) for phrase in phrases(sentence)]
    found = near_duplicates([[text] for text in whole]).of_text.reshape(50, 4)
    assert (found == found[:, :1]).all()
    assert len(set(found[:, 0])) == 50
    order = random.Random(1).sample(range(200), 200)
    again = near_duplicates([[whole[number]] for number in order]).of_text
    assert {frozenset(np.flatnonzero(again == group)) for group in again} == {
        frozenset(order.index(4 * row + column) for column in range(4)) for row in range(50)
    }


def test_sequences_that_are_common_in_a_language_chain_nothing_together():
    texts = [
        [f"{sentence} one of the most {other}"] for sentence, other in zip(sentences(60), sentences(60, 9), strict=True)
    ]
    groups = near_duplicates([*texts, ["of the most"], ["w1 w2"], ["..."]])
    assert len(set(groups.of_text[:60])) == 60
    assert groups.common.tolist() == [False] * 60 + [True] * 3


def test_case_punctuation_and_characters_of_chinese_are_compared():
    same = near_duplicates(
        [["The model, on IT."], ["the model on it"], ["我们的模型很好"], ["我们的模型很好吗"], ["全然不同的句子"]]
    )
    assert same.of_text[0] == same.of_text[1]
    assert same.of_text[2] == same.of_text[3] != same.of_text[4]


@pytest.mark.parametrize(("count", "held"), [(12, 5), (200, 80), (1600, 500)])
def test_rows_are_held_out_by_whole_groups(tmp_path, count, held):
    rows = [(phrase, number % 2) for number, sentence in enumerate(sentences(count)) for phrase in phrases(sentence)]
    corpus = build(tmp_path, rows, tmp_path / "cache")
    assert held <= corpus.manifest["held_out_documents"] < held + 4
    apart = texts_of(corpus)
    assert all(len(apart.intersection(phrases(sentence))) in (0, 4) for sentence in sentences(count))
    assert corpus.report.counts.get(NEAR, 0) == 0
    # Groups depend on the rows alone.
    assert texts_of(build(tmp_path, rows, tmp_path / "again")) == apart


def test_short_texts_are_held_out_for_want_of_better_ones_and_told(tmp_path):
    corpus = build(
        tmp_path, [(f"{word} {other}", 0) for word in WORDS[:8] for other in WORDS[8:18]], tmp_path / "cache"
    )
    assert corpus.manifest["held_out_documents"] == corpus.report.counts[NEAR] == 8


def test_never_more_than_half_is_held_out(tmp_path):
    rows = [(phrase, 0) for phrase in phrases(sentences(1)[0])]
    assert build(tmp_path, rows, tmp_path / "cache").manifest["held_out_documents"] == 0
    two = [*rows, *((phrase, 0) for phrase in phrases(sentences(1, 3)[0]))]
    assert build(tmp_path, two, tmp_path / "cache").manifest["held_out_documents"] <= 4


def test_a_share_is_still_of_the_texts_by_their_hashes(tmp_path):
    rows = [(phrase, 0) for sentence in sentences(100) for phrase in phrases(sentence)]
    corpus = build(tmp_path, rows, tmp_path / "cache", held_out=0.1)
    by_sentence = Counter(len(texts_of(corpus).intersection(phrases(sentence))) for sentence in sentences(100))
    assert 0 < corpus.manifest["held_out_documents"] < 80
    assert by_sentence[1] > 0  # No groups.


class Rows:
    """Examples of a task."""

    def __init__(self, texts):
        self.texts = texts

    def fingerprint(self):
        return self.texts

    def read(self, report):
        for text in self.texts:
            yield LabelledRow("", text, None, 1)


def test_development_rows_are_held_out_and_none_of_them_is_trained_on(tmp_path):
    known = sentences(20)
    scored = [f"{known[0].upper()} !", " ".join([*known[1].split()[:9], "but", "not", "this"]), *sentences(5, 7)]
    rows = [(text, 0) for text in known]
    corpus = build(tmp_path, rows, tmp_path / "cache", length=64, development=Rows(scored))
    assert texts_of(corpus) == set(scored)
    assert len(corpus.train) == corpus.manifest["trained_documents"] == 19
    assert len(corpus.held_out) == 7
    assert set(corpus.held_out["labels"]) == {1}
    # The first is equal to a row that is left out, so that it resembles none that is trained on.
    assert corpus.report.counts == {REPEATED: 1, LEAKED: 1}
    first = TOKENIZER(known[0], truncation=True, max_length=64)["input_ids"]
    assert first not in corpus.train["input_ids"]
    assert (
        build(tmp_path, [(text, 0) for text in known], tmp_path / "cache", development=Rows(scored[1:])).path
        != corpus.path
    )


@pytest.mark.parametrize("settings", [{}, {"held_out": 0.2}, {"held_out": 0}, {"development": Rows(sentences(5, 7))}])
def test_the_held_out_rows_are_read_without_tokens(tmp_path, settings):
    rows = [(phrase, number % 2) for number, sentence in enumerate(sentences(30)) for phrase in phrases(sentence)]
    corpus = build(tmp_path, rows, tmp_path / "cache", **settings)
    given = {"kind": "classification", "sources": [str(tmp_path / "train.tsv")], "labels": ("no", "yes"), "length": 16}
    found = read_held_out_rows(LabelledSettings(**given, **settings), KINDS["classification"], cache_dir=tmp_path)
    assert found.content == corpus.content[:-1]
    assert [row.text for row in found.rows] == [document.text for document in corpus.held_out_documents()]
    assert [row.label for row in found.rows] == list(corpus.held_out["labels"])
