"""The searches and pairs of a run's evaluation: their pools grow, their pairs are spread, and the start is beside."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from limbeck.core.records import UntrainedStart
from limbeck.core.records.run_evaluation import SENTENCE_IN_PASSAGES, SUMMARY_IN_BODIES
from limbeck.errors import CorpusError
from limbeck.evaluation import Amounts, Side, Start, compare_models
from limbeck.evaluation.passages import (
    FIRST_POOL,
    SearchPairs,
    build_passage_pairs,
    build_search_pairs,
    grow_pool,
    score_passages,
)
from limbeck.evaluation.similarity_strata import STRATA, choose_sentences, stratify_pairs
from tests.support.corpora import documents
from tests.support.word_models import tiny_bert, tiny_tokenizer

TEXTS = documents(40)


def test_a_query_is_a_sentence_that_was_taken_out_of_its_passage():
    pairs = build_passage_pairs(TEXTS)
    assert len({query for query, _ in pairs}) == len({passage for _, passage in pairs}) == len(pairs) > 40
    for query, passage in pairs:
        [text] = [text for text in TEXTS if query in text]
        assert query not in passage
        assert all(f"{sentence}." in text for sentence in passage.rstrip(".").split(". "))


def test_a_smaller_pool_begins_the_larger_one_and_neighbours_stand_beside_each_other():
    pairs = build_passage_pairs(TEXTS, seed=3)
    assert pairs[:30] == build_passage_pairs(TEXTS, 30, seed=3)
    assert pairs != build_passage_pairs(TEXTS, seed=4)
    sources = [next(n for n, text in enumerate(TEXTS) if query in text) for query, _ in pairs]
    assert sources[0] == sources[1], "passages of one document are the hardest to tell apart"


def test_text_of_single_sentences_gives_summaries_and_bodies():
    titled = [
        (
            f"The pipe of number {n} is here.",
            f"Copper condenses vapour in the {n}th still of the great house, and cools it.",
        )
        for n in range(30)
    ]
    found = build_search_pairs(titled)
    assert (sorted(found.pairs), found.measure) == (sorted(titled), SUMMARY_IN_BODIES)
    vectors = torch.eye(len(titled))
    assert grow_pool(found, lambda _: (vectors, vectors)).figures.measure == SUMMARY_IN_BODIES
    assert score_passages(vectors, vectors, found.measure).measure == SUMMARY_IN_BODIES
    assert build_search_pairs(TEXTS) == (build_passage_pairs(TEXTS), SENTENCE_IN_PASSAGES)
    with pytest.raises(CorpusError, match=r"\(sentence, passage\).*raise corpus.held_out"):
        build_search_pairs(["One sentence."])


@pytest.mark.parametrize(("shift", "size"), [(0, 1700), (1, FIRST_POOL)])
def test_the_pool_grows_until_the_teacher_fails(shift, size):
    """A teacher that finds everything gets all texts; one that finds nothing gets the first pool."""
    pairs = [(f"query {n}", f"passage {n}") for n in range(1700)]
    encoded = []

    def encode(new):
        encoded.extend(new)
        numbers = torch.tensor([int(query.split()[1]) for query, _ in new])
        angles = numbers / 1700 * 3.0
        return torch.stack([angles.cos(), angles.sin()], 1), torch.stack(
            [(angles + shift).cos(), (angles + shift).sin()], 1
        )

    pool = grow_pool(SearchPairs(pairs, SENTENCE_IN_PASSAGES), encode)
    assert len(pool.pairs) == len(pool.queries) == pool.figures.pool == size
    assert encoded == pairs[:size], "each text is encoded once"
    assert pool.figures.measure == SENTENCE_IN_PASSAGES


def test_near_pairs_count_as_much_as_far_ones():
    sentences = choose_sentences(TEXTS, 200)
    assert len(sentences) == 200
    angles = torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    vectors = torch.stack([angles.cos(), angles.sin()], 1)
    chosen = stratify_pairs(sentences, vectors, 500)
    counts = np.bincount(chosen.strata, minlength=STRATA)
    assert counts.tolist() == [100] * STRATA
    cosines = chosen.cosines(vectors)
    edges = [(cosines[chosen.strata == n].min(), cosines[chosen.strata == n].max()) for n in range(STRATA)]
    assert all(below[1] <= above[0] for below, above in pairwise(edges))
    assert (stratify_pairs(sentences, vectors, 500).first == chosen.first).all()
    alike = stratify_pairs(sentences, torch.ones(200, 1), 500)
    assert len(alike.pairs) == 500 and set(alike.strata) == {0}


def test_agreement_is_the_mean_within_the_ranges_and_an_untrained_start_stands_beside():
    teacher, student = tiny_bert(3), tiny_bert(1)
    tokenizer = tiny_tokenizer()
    amounts = Amounts(pairs=300, retrieval_pairs=60, latency_seconds=0)
    start = Start([Side(student, tokenizer)], UntrainedStart(summary="Starts from here."))
    figures = compare_models(Side(teacher, tokenizer), Side(student, tokenizer), TEXTS, amounts, start=start)
    assert figures.start.agreement.spearman == figures.agreement.spearman
    assert figures.start.retrieval == figures.student.retrieval and figures.start.summary == "Starts from here."

    # The teacher itself is the better one of two starts, in whatever order they are measured.
    for models in ((student, teacher), (teacher, student)):
        starts = Start([Side(model, tokenizer) for model in models], UntrainedStart())
        beside = compare_models(Side(teacher, tokenizer), Side(student, tokenizer), TEXTS, amounts, start=starts)
        assert beside.start.agreement.spearman == pytest.approx(1) and figures.agreement.spearman < 1
        assert beside.start.retrieval.mrr_at_10 == max(
            figures.teacher.retrieval.mrr_at_10, figures.student.retrieval.mrr_at_10
        )

    sentences = choose_sentences(TEXTS, 300)
    sides = [
        Side(model, tokenizer).encode([(s.text, s.text) for s in sentences], lambda *_: None)[0]
        for model in (teacher, student)
    ]
    chosen = stratify_pairs(sentences, sides[0], 300)
    by_teacher, by_student = (chosen.cosines(vectors) for vectors in sides)
    inside = [chosen.strata == n for n in range(STRATA)]
    expected = np.mean([spearmanr(by_student[n], by_teacher[n]).statistic for n in inside if n.sum() > 1])
    assert figures.agreement.spearman == pytest.approx(expected, abs=1e-6)
