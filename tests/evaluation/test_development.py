"""Teacher beside student as they are, on development rows: counted by hand."""

from dataclasses import replace

import numpy as np
import pandas
import pytest

from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.evaluation.development_scores import compare_outputs
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import AnswerPrediction
from tests.support.tasks import make_rows, make_task


def prepare(kind, rows, **changes):
    """Return a task of a kind with development rows."""
    return PreparedTask(make_task(kind, **changes), {"validation": rows})


def rows_of(*labels):
    rows = []
    for number, label in enumerate(labels):
        rows.append(LabelledRow(str(number), text=f"text {number}", pair=f"pair {number}", label=label))
    return rows


def outputs_with(*probabilities):
    """Return the outputs of a head that gives these probabilities to the classes of each row."""
    return [[np.log(np.array(row, dtype=np.float32)) for row in probabilities]]


def outputs_of(*values):
    """Return the outputs of a head with these values for each row."""
    return [[np.array(row) for row in values]]


def class_figures(figures):
    return [(one_class.label, one_class.rows, one_class.student, one_class.teacher) for one_class in figures.by_label]


def test_classes():
    prepared = prepare("classification", rows_of(0, 0, 1, 1, 1))
    student = outputs_with((0.9, 0.1), (0.2, 0.8), (0.3, 0.7), (0.6, 0.4), (0.1, 0.9))
    teacher = outputs_with((0.8, 0.2), (0.9, 0.1), (0.4, 0.6), (0.4, 0.6), (0.2, 0.8))

    figures = compare_outputs(prepared, "validation", student, teacher)
    assert figures.task == "tiny_classification"
    assert figures.kind == "classification"
    assert figures.rows == 5
    assert figures.student == pytest.approx({"accuracy": 3 / 5, "f1": 2 / 3})
    assert figures.teacher == {"accuracy": 1.0, "f1": 1.0}

    assert figures.labels == ["no", "yes"]
    assert figures.confusion == [[1, 1], [1, 2]]
    assert class_figures(figures) == [("no", 2, 0.5, 1.0), ("yes", 3, pytest.approx(2 / 3), 1.0)]

    assert figures.disagreements == 2
    furthest, nearer = figures.examples
    assert (furthest.text, furthest.pair, furthest.label) == ("text 1", "pair 1", "no")
    assert furthest.teacher == "no (90%)"
    assert furthest.student == "yes (80%)"
    assert furthest.distance == pytest.approx(0.7)
    assert nearer.distance == pytest.approx(0.2)


def test_a_student_alone_has_its_scores_and_nothing_beside():
    prepared = prepare("classification", rows_of(0, 1))
    student = outputs_with((0.9, 0.1), (0.6, 0.4))
    alone = compare_outputs(prepared, "validation", student)
    beside = compare_outputs(prepared, "validation", student, outputs_with((0.9, 0.1), (0.1, 0.9)))
    assert alone.student == beside.student
    assert alone.teacher == {}
    assert alone.by_label[0].teacher is None
    assert alone.disagreements is None
    assert alone.examples == []


def test_ten_rows_at_most_the_furthest_apart_first():
    count = 14
    prepared = prepare("classification", rows_of(*[0, 1] * (count // 2)))
    # Different shares above a half, in no order.
    shares = [0.51 + 0.03 * (5 * number % count) for number in range(count)]
    student = outputs_with(*[(1 - share, share) for share in shares])
    teacher = outputs_with(*[(0.9, 0.1)] * count)

    figures = compare_outputs(prepared, "validation", student, teacher)
    assert figures.disagreements == count
    furthest = sorted(range(count), key=lambda number: -shares[number])[:10]
    assert [example.text for example in figures.examples] == [f"text {number}" for number in furthest]


def test_several_classes():
    """The student gives "the", then "the" and "model", then none; the teacher gives all as they are labelled."""
    prepared = prepare("multi_label", rows_of((1, 0, 0), (0, 1, 0), (0, 0, 0)))
    student = outputs_of((2.0, -2, -2), (1.0, 1.0, -9), (-1.0, -1, -1))
    teacher = outputs_of((3.0, -3, -3), (-2.0, 4.0, -9), (-1.0, -1, -1))

    figures = compare_outputs(prepared, "validation", student, teacher)
    assert figures.student["micro_f1"] == pytest.approx(4 / 5)
    assert figures.teacher["accuracy"] == 1
    assert figures.confusion == []
    assert class_figures(figures) == [
        ("the", 1, pytest.approx(2 / 3), 1.0),
        ("model", 1, 1.0, 1.0),
        ("teacher", 0, 0.0, 0.0),
    ]

    assert figures.disagreements == 1
    [example] = figures.examples
    assert example.label == "model"
    assert example.student == "the (73%), model (73%)"
    assert example.teacher == "model (98%)"
    # The probabilities of "the" are the furthest apart: sigmoid(1) and sigmoid(-2).
    assert example.distance == pytest.approx(1 / (1 + np.exp(-1)) - 1 / (1 + np.exp(2)), abs=1e-6)


def test_values():
    prepared = prepare("regression", rows_of(1.0, 2.0, 3.5))
    student = outputs_of([1.0], [4.0], [3.0])
    teacher = outputs_of([1.5], [2.0], [3.0])

    figures = compare_outputs(prepared, "validation", student, teacher)
    assert figures.student["spearman"] == pytest.approx(0.5)
    assert figures.teacher["spearman"] == pytest.approx(1.0)
    assert figures.by_label == []
    assert figures.confusion == []
    assert figures.disagreements is None
    examples = [(row.label, row.teacher, row.student, row.distance) for row in figures.examples]
    assert examples == [("2", "2", "4", 2.0), ("1", "1.5", "1", 0.5)]


def test_scores_of_a_ranking_are_compared_within_their_query():
    # Of the second query, the student has the teacher's order and differences, shifted by 3: the models agree.
    rows = [LabelledRow(str(place), query, f"document {place}", 0.0) for place, query in enumerate("aaabb")]
    student, teacher = [1.0, 5.0, 3.0, 4.0, 6.0], [2.0, 2.0, 2.0, 1.0, 3.0]
    found = KINDS["ranking"].disagreements(rows, (student, teacher), ([], []), None)
    table = pandas.DataFrame({"query": list("aaabb"), "student": student, "teacher": teacher})
    centred = table[["student", "teacher"]] - table.groupby("query").transform("mean")
    assert found.distances == pytest.approx((centred.student - centred.teacher).abs().to_numpy(), abs=1e-12)
    assert (found.student, found.teacher) == (["1", "5", "3", "4", "6"], ["2", "2", "2", "1", "3"])


@pytest.mark.parametrize("answerable", [True, False])
def test_answers(answerable, monkeypatch):
    rows = [
        LabelledRow("a", text="the red fox runs", pair="who ?", answers=("red fox",)),
        LabelledRow("b", text="x " * 300, pair="what ?", answers=("x",)),
        LabelledRow("c", text="no one", pair="who ?", answers=("one",)),
    ]
    student = {
        "a": AnswerPrediction("fox"),
        "b": AnswerPrediction("x"),
        "c": AnswerPrediction("one", null_odds=3.0),
    }
    teacher = {
        "a": AnswerPrediction("red fox"),
        "b": AnswerPrediction("the x"),
        "c": AnswerPrediction("one", null_odds=-1.0),
    }
    monkeypatch.setattr(PreparedTask, "decode", lambda prepared, split, outputs: outputs[0])
    prepared = prepare("question_answering", rows, answerable_only=answerable)

    figures = compare_outputs(prepared, "validation", (student, ()), (teacher, ()))
    # "the" is no part of an answer, so "x" is the same as "the x".
    examples = [(row.label, row.teacher, row.student, row.distance) for row in figures.examples]
    expected = [("red fox", "red fox", "fox", pytest.approx(1 / 3, abs=1e-6))]
    if not answerable:
        expected.insert(0, ("one", "one", "no answer", 1.0))
    assert examples == expected
    assert figures.disagreements == len(expected)
    assert figures.teacher["exact_match"] == 1
    assert figures.student["exact_match"] == pytest.approx(1 - len(expected) / 3)


def test_long_texts_are_cut():
    long_row = LabelledRow("0", text="word " * 200, pair=None, label=1)
    prepared = prepare("classification", [long_row, *make_rows("classification", 1, 0)])
    student = outputs_with((0.9, 0.1), (0.9, 0.1))
    teacher = outputs_with((0.1, 0.9), (0.9, 0.1))
    [example] = compare_outputs(prepared, "validation", student, teacher).examples
    assert len(example.text) == 301
    assert example.text.endswith("…")
    assert example.pair == ""


def test_sentences_of_tagged_words_show_their_entities_and_where_they_differ():
    """Of two entities the student finds one and the teacher both; the sentences differ in one word of two."""
    task = replace(make_task("token_classification"), labels=("O", "B-X", "I-X"))
    rows = [
        LabelledRow("0", text=WORD_GAP.join(["the", "model"]), label=(0, 1)),
        LabelledRow("1", text="text", label=(1,)),
    ]
    prepared = PreparedTask(task, {"validation": rows})
    predictions = {"student": [[0, 0], [1]], "teacher": [[0, 1], [1]]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedTask, "decode", lambda _, split, outputs: predictions[outputs[0]])
        figures = compare_outputs(prepared, "validation", ("student",), ("teacher",))

    assert class_figures(figures) == [("X", 2, 2 / 3, 1.0)]
    assert figures.student["f1_entity"] == 2 / 3
    assert figures.teacher["f1_entity"] == 1.0
    assert figures.confusion == []
    assert figures.disagreements == 1
    [example] = figures.examples
    assert (example.text, example.label) == ("the model", "model/B-X")
    assert (example.student, example.teacher) == ("no entity", "model/B-X")
    assert example.distance == 0.5
