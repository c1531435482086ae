"""Scores of task-specific models, against counting by hand."""

import pytest
import torch
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


def test_too_few_rows_are_refused():
    model = tiny_model("bert", head="classification", layers=1)
    with pytest.raises(CorpusError, match="a larger held_out"):
        measure_task(model, model, [], PadCollator(0, labels="class"), "classification")
