"""Scores of task-specific models, against counting by hand."""

import pytest
import seqeval.metrics as seqeval
import torch
from pytrec_eval import RelevanceEvaluator
from scipy.stats import spearmanr

from limbeck.corpus import PadCollator
from limbeck.errors import CorpusError
from limbeck.evaluation import measure_task
from tests.support.models import tiny_model

ROWS = [{"input_ids": [2, *range(6 + n % 5, 12 + n % 9), 3]} for n in range(23)]
OUTPUTS = {
    "classification": {"num_labels": 3},
    "regression": {"num_labels": 1},
    "question_answering": {},
    "token_classification": {"num_labels": 3},
}
UNLABELLED = -100
"""The label of a token that has none."""


def word_tags(number):
    """Return a label for every other token of a row."""
    count = len(ROWS[number]["input_ids"])
    return [UNLABELLED, *(n % 3 if n % 2 else UNLABELLED for n in range(count - 1))]


KINDS_OF_LABELS = {
    "classification": "class",
    "regression": "value",
    "question_answering": "span",
    "token_classification": "token",
}
LABEL_OF_ROW = {
    "classification": lambda number: number % 3,
    "regression": lambda number: number / 7,
    "question_answering": lambda number: (number % 4, number % 4 + 1),
    "token_classification": word_tags,
}


def scored_labels(task):
    """Return the labels of all rows, of tagged words those of the labelled tokens."""
    labels = [LABEL_OF_ROW[task](number) for number in range(len(ROWS))]
    if task == "token_classification":
        return [[tag for tag in tags if tag != UNLABELLED] for tags in labels]
    return labels


@torch.no_grad()
def predictions(model, task):
    """Return the answer to each row, read one by one."""
    answers = []
    for number, row in enumerate(ROWS):
        output = model(torch.tensor([row["input_ids"]]))
        if task == "token_classification":
            is_labelled = [tag != UNLABELLED for tag in word_tags(number)]
            answers.append(output.logits.argmax(-1)[0][is_labelled].tolist())
        elif task == "question_answering":
            answers.append((int(output.start_logits.argmax()), int(output.end_logits.argmax())))
        elif task == "classification":
            answers.append(int(output.logits.argmax()))
        else:
            answers.append(float(output.logits))
    return answers


def score(answers, labels, task):
    """Return the share of answers that are right, of values the correlation."""
    if task == "regression":
        return spearmanr(answers, labels).statistic
    if task == "token_classification":
        answers = [tag for tags in answers for tag in tags]
        labels = [tag for tags in labels for tag in tags]
    right = [answer == label for answer, label in zip(answers, labels, strict=True)]
    return sum(right) / len(right)


@pytest.mark.parametrize("task", OUTPUTS)
def test_scores(task):
    rows = [{**row, "labels": LABEL_OF_ROW[task](number)} for number, row in enumerate(ROWS)]
    teacher = tiny_model("bert", seed=0, head=task, layers=2, **OUTPUTS[task])
    student = tiny_model("bert", seed=5, head=task, layers=2, **OUTPUTS[task])
    collate = PadCollator(0, labels=KINDS_OF_LABELS[task])
    labels = scored_labels(task)
    teacher_answers = predictions(teacher, task)
    student_answers = predictions(student, task)

    figures = measure_task(teacher, student, rows, collate, task, batch_size=4)
    assert figures.rows == 23
    assert figures.teacher == pytest.approx(score(teacher_answers, labels, task), abs=1e-6)
    assert figures.student == pytest.approx(score(student_answers, labels, task), abs=1e-6)
    assert figures.agreement == pytest.approx(score(student_answers, teacher_answers, task), abs=1e-6)

    same = measure_task(teacher, teacher, rows, collate, task)
    assert same.agreement == pytest.approx(1)

    alone = measure_task(None, student, rows, collate, task)
    assert alone.student == figures.student
    assert alone.teacher is None
    assert alone.agreement is None


def test_each_model_is_a_part_of_the_progress():
    rows = [{**row, "labels": number % 3} for number, row in enumerate(ROWS)]
    models = [tiny_model("bert", seed=seed, head="classification", layers=1, num_labels=3) for seed in range(3)]
    told = []
    measure_task(
        *models[:2],
        rows,
        PadCollator(0, labels="class"),
        "classification",
        starts=models[2:],
        batch_size=10,
        report=lambda share, what, count=None: told.append((what, count.done, count.total, share)),
    )
    parts = ("the student", "the teacher", "the untrained start")
    expected = [(f"scoring held-out rows, {part}", done, 23, done / 23) for part in parts for done in (10, 20, 23)]
    assert told == expected


def test_too_few_rows_are_refused():
    model = tiny_model("bert", head="classification", layers=1)
    with pytest.raises(CorpusError, match="raise corpus.held_out"):
        measure_task(model, model, [], PadCollator(0, labels="class"), "classification")


def tagger(seed):
    model = tiny_model("bert", seed=seed, head="token_classification", layers=2, num_labels=3)
    model.config.id2label = {0: "O", 1: "B-PER", 2: "I-PER"}
    return model


def test_tags_of_entities_are_scored_by_their_entities():
    rows = [{**row, "labels": word_tags(number)} for number, row in enumerate(ROWS)]
    teacher = tagger(seed=0)
    student = tagger(seed=5)
    names = teacher.config.id2label

    def named(answers):
        return [[names[number] for number in numbers] for numbers in answers]

    gold = named(scored_labels("token_classification"))
    teacher_tags = named(predictions(teacher, "token_classification"))
    student_tags = named(predictions(student, "token_classification"))

    figures = measure_task(teacher, student, rows, PadCollator(0, labels="token"), "token_classification", batch_size=4)
    assert figures.metric == "f1_entity"
    assert figures.agreement_metric is None
    assert figures.student == pytest.approx(seqeval.f1_score(gold, student_tags))
    assert figures.teacher == pytest.approx(seqeval.f1_score(gold, teacher_tags))
    assert figures.agreement == pytest.approx(seqeval.f1_score(teacher_tags, student_tags))
    further = {scores.metric: (scores.student, scores.teacher) for scores in figures.further}
    assert further == {
        "precision_entity": pytest.approx(
            (seqeval.precision_score(gold, student_tags), seqeval.precision_score(gold, teacher_tags))
        ),
        "recall_entity": pytest.approx(
            (seqeval.recall_score(gold, student_tags), seqeval.recall_score(gold, teacher_tags))
        ),
        "accuracy": pytest.approx(
            (seqeval.accuracy_score(gold, student_tags), seqeval.accuracy_score(gold, teacher_tags)), abs=1e-6
        ),
    }

    unlabelled = measure_task(
        teacher, student, rows, PadCollator(0, labels="token"), "token_classification", labelled=False
    )
    assert unlabelled.metric == "f1_entity"
    assert unlabelled.agreement == figures.agreement
    assert unlabelled.student is None


def test_rankings_are_scored_by_query():
    # Queries of four documents, the last one of three; a batch of five rows cuts through them.
    query_of_row = [number // 4 for number in range(len(ROWS))]
    relevance = [float((number * 7) % 3) for number in range(len(ROWS))]
    rows = []
    for row, query, label in zip(ROWS, query_of_row, relevance, strict=True):
        rows.append({**row, "labels": label, "query": query})
    teacher = tiny_model("bert", seed=0, head="ranking", layers=2, num_labels=1)
    student = tiny_model("bert", seed=5, head="ranking", layers=2, num_labels=1)
    scores = {"teacher": predictions(teacher, "ranking"), "student": predictions(student, "ranking")}
    collate = PadCollator(0, labels="relevance")

    judged = {}
    for number, (query, label) in enumerate(zip(query_of_row, relevance, strict=True)):
        judged.setdefault(str(query), {})[str(number)] = int(label)
    expected = {}
    for model, values in scores.items():
        ranked = {query: {number: values[int(number)] for number in documents} for query, documents in judged.items()}
        of_queries = RelevanceEvaluator(judged, {"ndcg_cut_10", "recip_rank"}).evaluate(ranked).values()
        for metric in ("ndcg_cut_10", "recip_rank"):
            expected[model, metric] = sum(figures[metric] for figures in of_queries) / len(of_queries)

    figures = measure_task(teacher, student, rows, collate, "ranking", batch_size=5)
    assert figures.metric == "ndcg_at_10"
    assert figures.student == pytest.approx(expected["student", "ndcg_cut_10"], abs=1e-6)
    assert figures.teacher == pytest.approx(expected["teacher", "ndcg_cut_10"], abs=1e-6)
    (reciprocal_rank,) = figures.further
    assert reciprocal_rank.metric == "mrr_at_10"
    assert reciprocal_rank.student == pytest.approx(expected["student", "recip_rank"], abs=1e-6)
    assert reciprocal_rank.teacher == pytest.approx(expected["teacher", "recip_rank"], abs=1e-6)
    # The teacher's scores are no relevance, so that the agreement has a measure of its own.
    assert figures.agreement_metric == "spearman"
    assert figures.agreement == pytest.approx(spearmanr(scores["student"], scores["teacher"]).statistic)

    rows[0]["labels"] = float("nan")
    without = measure_task(teacher, student, rows, collate, "ranking")
    assert without.student is None
    assert without.agreement == pytest.approx(figures.agreement)
