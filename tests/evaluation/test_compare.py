import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import ndcg_score
from torch.nn import functional

from limbeck.core.records import RunEvaluation
from limbeck.core.records.run_evaluation import FEWEST_DOCUMENTS
from limbeck.evaluation import Amounts, Side, compare_models, encode, latency
from limbeck.evaluation.compare import _why_left_out
from limbeck.evaluation.passages import build_passage_pairs
from limbeck.evaluation.retrieval import retrieval_scores
from tests.support.corpora import documents
from tests.support.word_models import tiny_bert, tiny_tokenizer

SMALL = Amounts(pairs=60, retrieval_pairs=25, latency_seconds=0.05, latency_length=16)
QUALITY = replace(SMALL, latency_seconds=0)


def compare(teacher, student, texts, amounts=SMALL, *, folder=None, vectors="mean", **options):
    """Compare two models with one tokenizer."""
    tokenizer = tiny_tokenizer()
    student_side = Side(student, tokenizer, vectors, folder=folder)
    return compare_models(Side(teacher, tokenizer), student_side, texts, amounts, **options)


def test_the_whole_table(tmp_path: Path):
    teacher, student = tiny_bert(3), tiny_bert(1)
    student.save_pretrained(tmp_path)
    found = compare(teacher, student, documents(), folder=tmp_path)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert found.unavailable == {}
    assert plain["teacher"]["parameters"]["transformer"] == 3 * plain["student"]["parameters"]["transformer"]
    assert plain["teacher"]["parameters"]["total"] == found.teacher.parameters.total
    assert (plain["teacher"]["megabytes_of"], plain["student"]["megabytes_of"]) == ("tensors", "files")
    assert plain["agreement"]["pairs"] == 60 and -1 <= plain["agreement"]["spearman"] <= 1
    assert plain["student"]["retrieval"]["pool"] == 25
    assert [batch["batch_size"] for batch in plain["latency"]["batches"]] == [1, 32]
    assert set(found.seconds) == {"agreement", "retrieval", "latency"}
    assert found.settings.seed == 0


def test_a_model_beside_itself():
    model = tiny_bert()
    found = compare(model, model, documents(), QUALITY)
    assert found.agreement is not None and found.agreement.spearman == pytest.approx(1.0)
    assert found.teacher == found.student
    assert found.latency is None and found.unavailable == {}


@pytest.mark.parametrize(("count", "sentences"), [(60, 1), (30, 2), (FEWEST_DOCUMENTS, 40), (3, 40)])
def test_an_agreement_counts_the_documents_of_all_of_its_sentences(count, sentences):
    texts = []
    for text in documents(count, sentences=sentences):
        _, first_paragraph, _ = text.split("\n\n")
        texts.append(first_paragraph)
    amounts = Amounts(pairs=60, retrieval_pairs=0, latency_seconds=0)
    agreement = compare(tiny_bert(2), tiny_bert(1), texts, amounts).agreement
    assert (agreement.sentences, agreement.documents, agreement.pairs) == (60, count, 60)
    assert (agreement.interval is None) == (count < FEWEST_DOCUMENTS)


@pytest.mark.parametrize("held_out", [[], ["One short text."]])
def test_too_little_text_leaves_the_rest_of_the_table(held_out):
    found = compare(tiny_bert(2), tiny_bert(1), held_out)
    assert found.agreement is None and found.teacher.retrieval is None and found.student.retrieval is None
    assert set(found.unavailable) == {"agreement", "retrieval"}
    assert "raise corpus.held_out, or give more text" in found.unavailable["agreement"]
    several = "give text whose paragraphs have several sentences, or raise corpus.held_out"
    assert several in found.unavailable["retrieval"]
    assert found.latency is not None
    json.dumps(found.to_dict(), allow_nan=False)


def test_titles_may_be_known():
    held_out = [tuple(text.split("\n\n", 1)) for text in documents()]
    titled = compare(tiny_bert(2), tiny_bert(1), held_out, QUALITY)
    assert titled.agreement is not None and titled.student.retrieval is not None


def test_each_part_of_the_work_has_a_progress_of_its_own_from_0_to_1():
    told = []
    compare(tiny_bert(2), tiny_bert(1), documents(), report=lambda *now: told.append(now))
    shares_of_part: dict[str, list[float]] = {}
    for share, part, count in told:
        shares_of_part.setdefault(part, []).append(share)
        if count.unit == "tokens":
            assert share == count.done / count.total
    *reading, first_latency, last_latency = shares_of_part
    assert reading == [
        "agreement, vectors of the teacher",
        "agreement, vectors of the student",
        "passage retrieval, vectors of the teacher",
        "passage retrieval, vectors of the student",
    ]
    assert first_latency.startswith("latency, ") and last_latency.startswith("latency, ")
    assert all(shares == sorted(shares) for shares in shares_of_part.values())
    assert all(shares_of_part[part][0] == 0 and shares_of_part[part][-1] == 1 for part in reading)
    assert shares_of_part[first_latency][0] == 0 and 0.6 < shares_of_part[last_latency][-1] <= 1


def test_a_batch_size_that_is_too_slow_is_left_out_with_the_way_to_measure_it(monkeypatch):
    monkeypatch.setattr(latency, "_ALLOWED_SECONDS", 0.0)
    monkeypatch.setattr(latency, "_MOST_TIMES", 1e-9)
    found = compare(tiny_bert(1), tiny_bert(1), None)
    assert [batch.batch_size for batch in found.latency.batches] == [1]
    [(name, reason)] = found.unavailable.items()
    assert name == "latency with a batch of 32"
    assert reason.startswith("5 passes of each model would have taken about 0 s here, and no more than 0 s is allowed")


def test_the_setting_that_measures_a_slow_batch_size_is_named_beside_the_time_that_it_allows():
    assert _why_left_out(75.0, latency_seconds=12.0) == (
        "5 passes of each model would have taken about 75 s here, and no more than 60 s is allowed with "
        "evaluation.latency_seconds 12; to measure it, raise evaluation.latency_seconds to 19 or more, which allows "
        "95 s."
    )
    assert latency.longest_rounds(latency.least_setting(61.0)) >= 1.25 * 61.0


@pytest.mark.parametrize("found_among_ten", [24, 23, 12])
def test_a_share_of_few_queries_has_the_interval_of_a_share(found_among_ten):
    ranks = torch.tensor([1] * found_among_ten + [11] * (24 - found_among_ten))
    figures = retrieval_scores(ranks)
    wilson = binomtest(found_among_ten, 24).proportion_ci(method="wilson")
    assert figures.intervals["recall_at_10"] == pytest.approx([wilson.low, wilson.high])
    assert figures.interval == pytest.approx([wilson.low, wilson.high]), "each reciprocal rank is 0 or 1"


def test_queries_of_the_student_in_the_teachers_documents():
    """Each figure by its definition, from vectors that are encoded here; of a copy of the teacher all are the same."""
    texts, tokenizer, teacher, student = documents(), tiny_tokenizer(), tiny_bert(2), tiny_bert(1)
    found = compare(teacher, student, texts, QUALITY, asymmetric=True, widths=[16, 4, 8])
    assert [cut.width for cut in found.cut] == [8, 4], "of 16 components there are no more to leave out"
    pairs = build_passage_pairs(texts, 25)
    queries = encode(student, tokenizer, [query for query, _ in pairs], max_length=128).double()
    bodies = encode(teacher, tokenizer, [passage for _, passage in pairs], max_length=128).double()
    for width, figures in ((16, found.asymmetric), *((cut.width, cut.asymmetric) for cut in found.cut)):
        scores = functional.cosine_similarity(queries[:, None, :width], bodies[None, :, :width], dim=-1).numpy()
        assert figures.ndcg_at_10 == pytest.approx(ndcg_score(np.eye(len(pairs)), scores, k=10))
        assert figures.recall_at_10 == pytest.approx(
            np.mean([own in order[-10:] for own, order in enumerate(scores.argsort())])
        )
        low, high = figures.intervals["ndcg_at_10"]
        assert low < figures.ndcg_at_10 < high
    itself = compare(teacher, teacher, texts, QUALITY, asymmetric=True, widths=[4])
    assert itself.asymmetric == itself.teacher.retrieval == itself.student.retrieval
    assert itself.cut[0].asymmetric == itself.cut[0].teacher and itself.cut[0].agreement.spearman < 1
    assert RunEvaluation.read(found.to_dict()) == found


def test_vectors_of_other_widths_have_no_common_documents():
    teacher, student = tiny_bert(2), tiny_bert(1)
    asked = {"asymmetric": True, "widths": [20, 8]}
    found = compare(teacher, student, documents(), QUALITY, **asked, vectors="mean+cls")
    assert (
        found.asymmetric is None
        and "32 components and the teacher's have 16" in found.unavailable["asymmetric retrieval"]
    )
    assert [(cut.width, cut.asymmetric) for cut in found.cut] == [(8, None)]
    assert (found.settings.pooling, found.settings.student_pooling) == ("mean", "mean+cls")
    same = compare(teacher, student, documents(), QUALITY)
    assert not {"asymmetric", "cut"} & set(same.to_dict()) and "student_pooling" not in same.settings.to_dict()
