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
LABELS = {
    "classification": ("class", lambda n: n % 3),
    "regression": ("value", lambda n: n / 7),
    "question_answering": ("span", lambda n: [n % 4, n % 4 + 1]),
    "token_classification": (
        "token",
        lambda n: [-100, *(m % 3 if m % 2 else -100 for m in range(len(ROWS[n]["input_ids"]) - 1))],
    ),
}


def predictions(model, task):
    found = []
    for row in ROWS:
        with torch.no_grad():
            output = model(torch.tensor([row["input_ids"]]))
        if task == "token_classification":
            marked = [label != -100 for label in LABELS[task][1](len(found))]
            found.append(tuple(output.logits.argmax(-1)[0][marked].tolist()))
        elif task == "question_answering":
            found.append((int(output.start_logits.argmax()), int(output.end_logits.argmax())))
        else:
            found.append(int(output.logits.argmax()) if task == "classification" else float(output.logits))
    return found


@pytest.mark.parametrize("task", LABELS)
def test_scores(task):
    kind, label = LABELS[task]
    rows = [{**row, "labels": label(n)} for n, row in enumerate(ROWS)]
    teacher, student = (tiny_model("bert", seed=seed, head=task, layers=2, **OUTPUTS[task]) for seed in (0, 5))
    found = measure_task(teacher, student, rows, PadCollator(0, labels=kind), task, batch_size=4)
    wanted_of = {"token_classification": lambda n: [x for x in label(n) if x != -100]}.get(task, label)
    wanted, of_teacher, of_student = (
        [wanted_of(n) for n in range(23)],
        *(predictions(m, task) for m in (teacher, student)),
    )

    def score(own, other):
        if task == "regression":
            return spearmanr(own, other).statistic
        if task == "token_classification":
            own, other = ([tag for row in rows for tag in row] for rows in (own, other))
        return sum(tuple_of(x) == tuple_of(y) for x, y in zip(own, other, strict=True)) / len(own)

    assert found.rows == 23
    assert found.teacher == pytest.approx(score(of_teacher, wanted), abs=1e-6)
    assert found.student == pytest.approx(score(of_student, wanted), abs=1e-6)
    assert found.agreement == pytest.approx(score(of_student, of_teacher), abs=1e-6)
    same = measure_task(teacher, teacher, rows, PadCollator(0, labels=kind), task)
    assert same.agreement == pytest.approx(1)
    alone = measure_task(None, student, rows, PadCollator(0, labels=kind), task)
    assert (alone.teacher, alone.student, alone.agreement) == (None, found.student, None)


def tuple_of(value):
    return tuple(value) if isinstance(value, (list, tuple)) else value


def test_too_few_rows_are_refused():
    model = tiny_model("bert", head="classification", layers=1)
    with pytest.raises(CorpusError, match="a larger held_out"):
        measure_task(model, model, [], PadCollator(0, labels="class"), "classification")
