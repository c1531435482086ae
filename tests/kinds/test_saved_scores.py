"""Every kind gives the tokens, scores, intervals and disagreements of synthetic outputs that were saved once."""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from limbeck.corpus.rows.labelled_rows import NO_ANSWER, LabelledRow
from limbeck.evaluation.development_scores import compare_outputs
from limbeck.evaluation.evaluators.document_search import Search
from limbeck.evaluation.evaluators.token_files import open_columns
from limbeck.evaluation.plan.identity import data_fingerprint, training_set_fingerprint
from limbeck.kinds.scoring import intervals_of, only_answer, score
from limbeck.kinds.task import SplitFacts, Task, TaskData
from limbeck.kinds.thresholds import choose_thresholds
from limbeck.models.tokenizers import load_tokenizer
from tests.support.tasks import KEYS, POINT, QUESTION_POINT, WORDS, make_data, prepare, tiny_folder

SAVED = json.loads((Path(__file__).parent / "saved_scores.json").read_text())
TRAINED = [name for name in SAVED if name != "retrieval"]


def ranking_rows(count, seed):
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        query = " ".join(draw.choices(WORDS, k=4)) + f" {number}"
        for place in range(draw.randint(2, 5)):
            document = " ".join(draw.choices(WORDS, k=6))
            rows.append(LabelledRow(f"{number}.{place}", query, document, float(draw.choice([0, 0, 1, 2]))))
    return rows


def data_of(kind):
    if kind == "ranking":
        task = Task(
            name="tiny_ranking", title="Ranking", group="own", kind="ranking", metrics=("ndcg_at_10", "mrr_at_10"),
            train="train", select="validation", scored=("validation",),
            splits={"train": SplitFacts(), "validation": SplitFacts()},
        )  # fmt: skip
        return TaskData(task, {"train": ranking_rows(6, 0), "validation": ranking_rows(5, 1)})
    if kind != "question_answering":
        return make_data(kind)
    data = make_data(kind, answerable_only=False)
    rows = list(data.splits["validation"])
    rows[3] = replace(rows[3], answers=(), answer_starts=(), label=NO_ANSWER)
    return replace(data, splits={**data.splits, "validation": rows})


def assert_equal_to_saved(found, saved):
    """Compare values of JSON: all are equal, numbers up to the last digits, which depend on the processor."""
    assert type(found) is type(saved)
    if isinstance(saved, dict):
        assert found.keys() == saved.keys()
        for name, value in saved.items():
            assert_equal_to_saved(found[name], value)
    elif isinstance(saved, list):
        assert len(found) == len(saved)
        for one, other in zip(found, saved, strict=True):
            assert_equal_to_saved(one, other)
    elif isinstance(saved, float):
        assert found == pytest.approx(saved, rel=1e-13, abs=1e-15)
    else:
        assert found == saved


def outputs_of(kind, task, lengths, seed):
    draw = np.random.default_rng(seed)
    if kind == "question_answering":
        return [[draw.normal(size=length).astype(np.float32) for length in lengths] for _ in range(2)]
    if kind == "token_classification":
        return [[draw.normal(size=(length, len(task.labels))).astype(np.float32) for length in lengths]]
    return [[draw.normal(size=len(task.labels) or 1).astype(np.float32) for _ in lengths]]


@pytest.mark.parametrize("kind", TRAINED)
def test_a_kind_with_a_head(kind, tmp_path):
    data = data_of(kind)
    tokenizer = load_tokenizer(str(tiny_folder(tmp_path / "model")))
    point = QUESTION_POINT if kind == "question_answering" else POINT
    prepared = prepare(data, point, tokenizer, keys=KEYS, cache_dir=tmp_path / "cache")
    task, rows = prepared.task, prepared.rows["validation"]
    queries = (6, {"validation": 5}) if kind == "ranking" else (None, None)
    assert (prepared.train_queries, prepared.queries(["validation"])) == queries
    trained = open_columns(prepared.tokens("train"))[:]
    content = [[np.asarray(value).tolist() for value in trained[name]] for name in ("input_ids", "labels")]
    lengths = [len(ids) for ids in open_columns(prepared.tokens("validation"))["input_ids"]]
    student, teacher = (outputs_of(kind, task, lengths, seed) for seed in (1, 2))
    predictions = prepared.decode("validation", student)
    scores = score(task, "validation", rows, predictions)
    figures = {
        "tokens": hashlib.blake2b(json.dumps(content).encode(), digest_size=12).hexdigest(),
        "data": data_fingerprint(data),
        "training_set": training_set_fingerprint(data),
        "scores": scores,
        "intervals": intervals_of(scores, task, rows, predictions),
        "only_answer": only_answer(task, predictions),
        "development": compare_outputs(prepared, "validation", student, teacher).to_dict(),
    }
    if kind == "multi_label":
        figures["thresholds"] = choose_thresholds(predictions, rows)
    assert_equal_to_saved(json.loads(json.dumps(figures)), SAVED[kind])


def test_a_retrieval():
    rows = []
    for number in range(12):
        query = f"query {number % 4}" if number < 9 else ""
        rows.append(LabelledRow(str(number), query, f"document {number}", float(number % 3 > 0) * (number < 9)))
    search = Search.of(rows, "here")
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(len(search.queries), 8, generator=generator)
    documents = torch.randn(len(search.documents), 8, generator=generator)
    scores = search.score(queries, documents)
    # The saved scores are older than this metric.
    assert 0 <= scores.pop("accuracy_at_1") <= 1
    assert scores == SAVED["retrieval"]["scores"]
