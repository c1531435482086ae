"""Scores of teacher and student as they are on development rows, and the rows on which they disagree."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from limbeck.core import records
from limbeck.core.kinds import KINDS
from limbeck.corpus.labelled import WORD_GAP
from limbeck.corpus.tags import OUTSIDE, marks_entities
from limbeck.evaluation import as_is, certainty
from limbeck.evaluation.encoding import PreparedTask
from limbeck.evaluation.metrics import (
    THRESHOLD,
    EntityCounts,
    count_entities,
    given_classes,
    per_word,
    score,
    score_answers,
)
from limbeck.evaluation.tasks import AnswerPrediction, Predictions, Task, TaskRow

_EXAMPLES, _MOST_LETTERS = 10, 300


def compare_outputs(
    prepared: PreparedTask, split: str, student: as_is.Outputs, teacher: as_is.Outputs | None = None
) -> records.DevelopmentFigures:
    """Score a student and its teacher on a split by what their heads gave, and find where they disagree.

    Args:
        prepared: The task.
        split: A labelled split of it.
        student: As `as_is.read_outputs` returns it, classes in the task's order.
        teacher: Likewise; None scores the student alone.

    Returns:
        The figures; without the models' names and the stage.
    """
    task, rows = prepared.task, prepared.rows[split]
    ours = as_is.decode(prepared, split, student)
    scores = score(task, split, rows, ours)
    found = records.DevelopmentFigures(task=task.name, kind=task.kind, split=split, rows=len(rows), student={**scores})
    found.intervals = {**certainty.intervals_of(scores, task, rows, ours)}
    found.only_answer = certainty.only_answer(task, ours)
    theirs = None if teacher is None else as_is.decode(prepared, split, teacher)
    if theirs is not None:
        found.teacher = {**score(task, split, rows, theirs)}
    kind = KINDS[task.kind]
    if kind.of_words and marks_entities(task.labels):
        found.by_label = _by_type(rows, ours, theirs, task)
    elif kind.has_classes:
        both = [given for given in (ours, theirs) if given is not None]
        if kind.has_several:
            gold = np.array([row.label for row in rows])
            flags = [given_classes(cast(Any, given), task) for given in both]
            sums = [((one & (gold == 1)).sum(0), one.sum(0), gold.sum(0)) for one in flags]
        else:
            gold = per_word([row.label for row in rows])
            counts = [_confusion(gold, per_word(given), len(task.labels)) for given in both]
            sums = [(counts_of.diagonal(), counts_of.sum(0), counts_of.sum(1)) for counts_of in counts]
            found.labels, found.confusion = list(task.labels), counts[0].tolist()
        shares = [list(map(_f1, *one)) for one in sums]
        found.by_label = [
            records.LabelFigures(
                label=label,
                rows=int(sums[0][2][number]),
                student=shares[0][number],
                teacher=shares[1][number] if teacher is not None else None,
            )
            for number, label in enumerate(task.labels)
        ]
    if teacher is not None and theirs is not None:
        _add_disagreements(found, prepared, split, (ours, theirs), (student, teacher))
    return found


def _by_type(
    rows: Sequence[TaskRow], ours: Predictions, theirs: Predictions | None, task: Task
) -> list[records.LabelFigures]:
    """Return the F1 of each type of entity."""
    both = [count_entities(cast(Any, given), rows, task) for given in (ours, theirs) if given is not None]
    none = EntityCounts(0, 0, 0)
    return [
        records.LabelFigures(
            label=label,
            rows=max(counts.get(label, none).gold for counts in both),
            student=both[0].get(label, none).figures()["f1_entity"],
            teacher=both[1].get(label, none).figures()["f1_entity"] if theirs is not None else None,
        )
        for label in sorted(set().union(*both))
    ]


def _confusion(gold: NDArray[Any], predictions: Any, classes: int) -> NDArray[np.int64]:
    """Count the rows of each class by the class that they are given, `[classes, classes]`."""
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (gold, np.asarray(predictions)), 1)
    return counts


def _f1(hits: float, predicted: float, wanted: float) -> float:
    return float(2 * hits / (predicted + wanted)) if predicted + wanted else 0.0


def _add_disagreements(
    found: records.DevelopmentFigures,
    prepared: PreparedTask,
    split: str,
    predictions: tuple[Predictions, Predictions],
    outputs: tuple[as_is.Outputs, as_is.Outputs],
) -> None:
    """Add the rows on which student and teacher give different answers, those that are the furthest apart first."""
    task, rows, kind = prepared.task, prepared.rows[split], KINDS[prepared.task.kind]
    ours, theirs = predictions
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        texts = [[_answer(given.get(row.id), task) for row in rows] for given in (ours, theirs)]
        wanted = [
            replace(row, answers=(text,) if text or task.answerable_only else ())
            for row, text in zip(rows, texts[1], strict=True)
        ]
        scores = score_answers(
            {row.id: AnswerPrediction(text) for row, text in zip(rows, texts[0], strict=True)}, wanted, task
        )
        apart, differ = 1 - scores.f1, scores.exact < 1
        words = [[text or "no answer" for text in given] for given in texts]
    elif kind.has_several:
        probabilities = [np.asarray(given, dtype=np.float64) for given in (ours, theirs)]
        flags = [given_classes(given, task) for given in probabilities]
        apart, differ = np.abs(probabilities[0] - probabilities[1]).max(-1), (flags[0] != flags[1]).any(-1)
        words = [list(map(partial(_several_in_words, task), *both)) for both in zip(flags, probabilities, strict=True)]
    elif kind.of_words:
        apart = np.array([np.mean(np.asarray(one) != np.asarray(two)) for one, two in zip(ours, theirs, strict=True)])
        differ = apart > 0
        words = [
            [_tagged(row, numbers, task) for row, numbers in zip(rows, cast(Any, given), strict=True)]
            for given in predictions
        ]
    elif kind.has_classes:
        shares = [softmax(np.stack(given[0]).astype(np.float64), axis=-1) for given in outputs]
        apart, differ = np.abs(shares[0] - shares[1]).sum(-1) / 2, np.asarray(ours) != np.asarray(theirs)
        words = [
            [f"{task.labels[number]} ({share[number]:.0%})" for number, share in zip(cast(Any, given), of, strict=True)]
            for given, of in zip(predictions, shares, strict=True)
        ]
    elif kind.has_value:
        values = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
        apart, differ = np.abs(values[0] - values[1]), values[0] != values[1]
        words = [[f"{value:.3g}" for value in given] for given in values]
    else:
        return
    if not kind.has_value:  # Values always differ a little.
        found.disagreements = int(differ.sum())
    furthest = [int(index) for index in np.argsort(-apart, kind="stable") if differ[index]]
    found.examples = [
        records.Disagreement(
            text=_cut(" ".join(rows[index].text.split(WORD_GAP)) if kind.of_words else rows[index].text),
            pair=_cut(rows[index].pair or ""),
            label=_label_in_words(rows[index], task),
            student=_cut(words[0][index]),
            teacher=_cut(words[1][index]),
            distance=round(float(apart[index]), 6),
        )
        for index in furthest[:_EXAMPLES]
    ]


def _answer(found: AnswerPrediction | None, task: Task) -> str:
    """The text of an answer; empty where there is none."""
    if found is None or (found.null_odds > THRESHOLD and not task.answerable_only):
        return ""
    return found.text


def _tagged(row: TaskRow, numbers: Sequence[int], task: Task) -> str:
    """The words of a sentence that have a tag other than O, each with it."""
    named = ((word, task.labels[number]) for word, number in zip(row.text.split(WORD_GAP), numbers, strict=True))
    return " ".join(f"{word}/{tag}" for word, tag in named if tag != OUTSIDE) or "no entity"


def _label_in_words(row: TaskRow, task: Task) -> str:
    if row.label is None:
        return _cut(" / ".join(dict.fromkeys(row.answers)) or "no answer")
    if isinstance(row.label, tuple):
        return _cut(_tagged(row, row.label, task)) if KINDS[task.kind].of_words else _several_in_words(task, row.label)
    return task.labels[int(row.label)] if task.labels else f"{row.label:g}"


def _several_in_words(task: Task, flags: Sequence[Any], probabilities: Sequence[float] | None = None) -> str:
    """Name the classes that a row has or is given, with their probabilities where there are any."""
    names = task.labels if probabilities is None else map("{} ({:.0%})".format, task.labels, probabilities)
    return ", ".join(name for name, flag in zip(names, flags, strict=True) if flag) or "no class"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
