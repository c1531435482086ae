from collections import Counter

import numpy as np
import pytest

from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.errors import CorpusError
from limbeck.evaluation import build_pairs, measure_agreement
from limbeck.evaluation.agreement import normalised
from tests.support.corpora import documents


def test_duplicates_are_found_whatever_the_case_and_punctuation():
    assert normalised(" The `Old`  Bridge. ") == "the old bridge"


def test_pairs_are_what_their_kind_says():
    texts = documents()
    pairs = build_pairs(texts, 90, seed=3)
    assert Counter(pair.kind for pair in pairs) == dict.fromkeys(
        ("neighbouring", "same_document", "different_documents"), 30
    )
    assert len({(pair.first, pair.second) for pair in pairs}) == 90
    place = {
        sentence: (index, number)
        for index, text in enumerate(texts)
        for number, sentence in enumerate(s for p in split_paragraphs(text) for s in split_sentences(p))
    }
    for pair in pairs:
        (document, first), (other, second) = place[pair.first], place[pair.second]
        assert document == pair.document
        assert (document == other) == (pair.kind != "different_documents")
        if pair.kind != "different_documents":
            assert second - first == 1 if pair.kind == "neighbouring" else second - first > 1
    per_document = Counter(pair.document for pair in pairs if pair.kind == "neighbouring")
    assert set(per_document.values()) == {1}, "30 documents out of 40 give one pair each"


def test_pairs_depend_on_the_seed_alone():
    texts = documents()
    assert build_pairs(texts, 60, seed=1) == build_pairs(list(texts), 60, seed=1)
    assert build_pairs(texts, 60, seed=1) != build_pairs(texts, 60, seed=2)


def test_repeated_text_gives_no_pairs_of_equal_sentences():
    pairs = build_pairs([*documents(), *documents()], 100)
    assert all(normalised(pair.first) != normalised(pair.second) for pair in pairs)


def test_too_little_text_says_what_to_do():
    with pytest.raises(CorpusError, match="hold out more text"):
        build_pairs(["One sentence that is long enough to be used."], 100)
    with pytest.raises(CorpusError, match="0 held-out documents"):
        build_pairs([], 100)


def test_one_document_gives_pairs_of_one_document():
    (text,) = documents(1, sentences=60)
    pairs = build_pairs([text], 90)
    assert {pair.kind for pair in pairs} == {"neighbouring", "same_document"}
    agreement = measure_agreement(pairs, np.arange(60), np.arange(60))
    assert agreement.spearman == pytest.approx(1.0)
    assert np.isnan(agreement.by_kind["different_documents"])


def test_agreement_with_itself_is_one_and_the_interval_surrounds_the_value():
    pairs = build_pairs(documents(), 120)
    generator = np.random.default_rng(0)
    teacher = generator.normal(size=120)
    itself = measure_agreement(pairs, teacher, teacher)
    assert itself.spearman == pytest.approx(1.0)
    assert itself.interval == pytest.approx((1.0, 1.0))
    noisy = measure_agreement(pairs, teacher + generator.normal(size=120), teacher, seed=5)
    low, high = noisy.interval
    assert low < noisy.spearman < high and 0.05 < high - low < 0.5
    assert noisy == measure_agreement(pairs, *_again(0), seed=5)
    constant = measure_agreement(pairs, np.zeros(120), teacher)
    assert np.isnan(constant.spearman) and np.isnan(constant.interval).all()


def _again(seed):
    generator = np.random.default_rng(seed)
    teacher = generator.normal(size=120)
    return teacher + generator.normal(size=120), teacher
