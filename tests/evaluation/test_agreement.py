"""Agreement over sentence pairs, and summaries that find their bodies."""

from collections import Counter

import numpy as np
import pytest
import torch

from limbeck.core.records.run_evaluation import FEWEST_DOCUMENTS
from limbeck.corpus import split_paragraphs, split_sentences
from limbeck.errors import CorpusError
from limbeck.evaluation import build_pairs, build_retrieval_pairs, measure_agreement, measure_retrieval
from limbeck.evaluation.agreement import furthest_pairs
from limbeck.evaluation.retrieval import ranks_of_matches, retrieval_scores
from limbeck.evaluation.sentence_pairs import normalised
from limbeck.evaluation.similarities import spearman_agreement
from tests.support.corpora import documents
from tests.support.word_models import tiny_bert, tiny_tokenizer


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


def test_pairs_depend_on_the_seed_alone_and_are_of_different_sentences():
    texts = documents()
    assert build_pairs(texts, 60, seed=1) == build_pairs(list(texts), 60, seed=1) != build_pairs(texts, 60, seed=2)
    assert normalised(" The `Old`  Bridge. ") == "the old bridge"
    assert all(normalised(pair.first) != normalised(pair.second) for pair in build_pairs([*texts, *texts], 100))


@pytest.mark.parametrize(
    ("build", "texts", "message"),
    [
        (build_pairs, ["One sentence that is long enough to be used."], "raise corpus.held_out, or give more text"),
        (build_pairs, [], "0 held-out documents"),
        (build_retrieval_pairs, documents(3), "raise corpus.held_out, or give more text"),
    ],
    ids=["a sentence", "nothing", "retrieval"],
)
def test_too_little_text_says_what_to_do(build, texts, message):
    with pytest.raises(CorpusError, match=message):
        build(texts, 100)


def test_one_document_gives_pairs_of_one_document():
    (text,) = documents(1, sentences=60)
    pairs = build_pairs([text], 90)
    assert len(pairs) == 90 and {pair.kind for pair in pairs} == {"neighbouring", "same_document"}
    agreement = measure_agreement(pairs, np.arange(90), np.arange(90))
    assert agreement.spearman == pytest.approx(1.0)
    assert np.isnan(agreement.by_kind["different_documents"]) and agreement.interval is None
    for count in (FEWEST_DOCUMENTS - 1, FEWEST_DOCUMENTS):
        few = build_pairs(documents(count), 90)
        found = measure_agreement(few, np.arange(len(few)), np.arange(len(few)))
        assert found.documents == count and (found.interval is None) == (count < FEWEST_DOCUMENTS)


def test_agreement_with_itself_is_one_and_the_interval_surrounds_the_value():
    pairs, generator = build_pairs(documents(), 120), np.random.default_rng(0)
    teacher = generator.normal(size=120)
    itself = measure_agreement(pairs, teacher, teacher)
    assert (itself.spearman, itself.interval) == (pytest.approx(1.0), pytest.approx((1.0, 1.0)))
    student = teacher + generator.normal(size=120)
    noisy = measure_agreement(pairs, student, teacher, seed=5)
    low, high = noisy.interval
    assert low < noisy.spearman < high and 0.05 < high - low < 0.5
    assert noisy == measure_agreement(pairs, student, teacher, seed=5)
    constant = measure_agreement(pairs, np.zeros(120), teacher)
    assert np.isnan(constant.spearman) and np.isnan(constant.interval).all()


def test_the_ranges_that_give_the_mean_are_counted():
    pairs, generator = build_pairs(documents(), 120), np.random.default_rng(0)
    teacher = np.sort(generator.normal(size=120))
    student = teacher + generator.normal(size=120)
    # One pair has no correlation.
    strata = np.repeat([0, 1, 2], [59, 60, 1])
    found = measure_agreement(pairs, student, teacher, strata=strata)
    parts = [spearman_agreement(student[strata == stratum], teacher[strata == stratum]) for stratum in range(2)]
    assert (found.spearman, found.ranges) == (pytest.approx(np.mean(parts)), 2)
    assert measure_agreement(pairs, student, teacher).ranges is None


NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "ranks"),
    [
        ([[3, 1, 2], [5, 4, 1], [9, 8, 7]], [1, 2, 3]),
        ([[1, 1, 0], [0, 2, 2], [4, 4, 4]], [2, 2, 3]),  # a tie counts against the model
        ([[0, 0], [0, 0]], [2, 2]),
        ([[NAN, 1], [NAN, 5]], [2, 2]),
    ],
)
def test_ranks_by_hand(scores, ranks):
    assert ranks_of_matches(torch.tensor(scores, dtype=torch.float32)).tolist() == ranks


def test_scores_by_hand():
    found = retrieval_scores(torch.tensor([1, 2, 4, 10, 11, 1]))
    assert found.mrr_at_10 == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 10 + 0 + 1) / 6)
    assert found.recall_at_1 == pytest.approx(2 / 6)
    assert found.pool == 6
    assert 0 <= found.interval[0] < found.mrr_at_10 < found.interval[1] <= 1


def test_pairs_come_from_titles_summary_lines_or_first_sentences():
    body = "It has a body that is long enough to be searched for among others, with several words in it."
    texts = [
        ("A title that the corpus knows", body + " One."),
        f"Return the bridge of a river.\n\n{body} Two.\n\nAnd more of it.",
        f"A paragraph of an article begins. {body} Three.",
    ]
    pairs = build_retrieval_pairs(texts, 3)
    assert sorted(pairs) == [
        ("A paragraph of an article begins.", f"{body} Three."),
        ("A title that the corpus knows", f"{body} One."),
        ("Return the bridge of a river.", f"{body} Two. And more of it."),
    ]


def test_bodies_that_give_the_summary_away_and_repetitions_are_dropped():
    body = "This body is certainly long enough to be used, and it goes on for a while after that."
    texts = [
        f"Return the old bridge.\n\n{body} `return the OLD bridge`!",
        *(f"Summary number one is here.\n\n{body}" for _ in range(3)),
        f"Another summary of the same.\n\n{body}",
        "Too short to use.\n\nNo.",
    ]
    (pair,) = build_retrieval_pairs(texts, 1)
    assert pair[1] == body
    with pytest.raises(CorpusError, match=r"Only 1 \(summary, body\) pair can"):
        build_retrieval_pairs(texts, 5)


def test_pairs_are_distinct_spread_out_and_seeded():
    texts = documents(30)
    pairs = build_retrieval_pairs(texts, 30, seed=1)
    assert len({normalised(part) for pair in pairs for part in pair}) == 60
    firsts = {text.split("\n\n")[0] for text in texts}
    assert {summary for summary, _ in pairs} == firsts
    assert pairs == build_retrieval_pairs(texts, 30, seed=1) != build_retrieval_pairs(texts, 30, seed=2)


def test_a_model_finds_equal_texts_and_a_constant_one_finds_nothing():
    sentences = [text.split("\n\n")[0] for text in documents(25)]
    found = measure_retrieval(tiny_bert(), tiny_tokenizer(), [(s, s) for s in sentences])
    assert found.recall_at_1 > 0.9 and found.pool == 25
    constant = tiny_bert()
    for parameter in constant.parameters():
        torch.nn.init.ones_(parameter)
    assert measure_retrieval(constant, tiny_tokenizer(), [(s, s) for s in sentences]).mrr_at_10 == 0


def test_a_similarity_is_shown_with_its_place_among_all_pairs():
    pairs = build_pairs(documents(), 90, seed=3)
    numbers = np.arange(len(pairs)) / 100
    # The student swaps the lowest pair with the highest, and the second pair with one in the middle.
    student = numbers.copy()
    student[[0, -1, 1, 44]] = student[[-1, 0, 44, 1]]
    lowest, highest, second, middle = furthest_pairs(pairs, student, numbers)
    assert lowest.teacher == highest.student == "similarity 0.00, the lowest of all pairs"
    assert highest.teacher == lowest.student == "similarity 0.89, the highest of all pairs"
    assert second.teacher == middle.student == "similarity 0.01, higher than 1 % of the pairs"
    assert middle.teacher == second.student == "similarity 0.44, higher than 49 % of the pairs"


def test_only_the_lowest_and_the_highest_pair_are_called_so():
    pairs = build_pairs(documents(), 90, seed=3) * 10
    numbers = np.arange(len(pairs)) / 1000
    student = numbers.copy()
    student[[1, -2]] = student[[-2, 1]]
    first, last = furthest_pairs(pairs, student, numbers)
    assert first.teacher == last.student == "similarity 0.00, higher than 1 % of the pairs"
    assert last.teacher == first.student == "similarity 0.90, higher than 99 % of the pairs"
