"""Teacher beside student as they are, on development rows: counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.evaluation.development_scores import compare_outputs
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from tests.support.tasks import make_rows, make_task


def logits(*rows):
    """The outputs of a head whose probabilities are these."""
    return [[np.log(np.array(row, dtype=np.float32)) for row in rows]]


def rows_of(*labels):
    return [LabelledRow(str(number), f"text {number}", f"pair {number}", label) for number, label in enumerate(labels)]


def test_classes():
    prepared = PreparedTask(make_task("classification"), {"validation": rows_of(0, 0, 1, 1, 1)})
    student = logits((0.9, 0.1), (0.2, 0.8), (0.3, 0.7), (0.6, 0.4), (0.1, 0.9))
    teacher = logits((0.8, 0.2), (0.9, 0.1), (0.4, 0.6), (0.4, 0.6), (0.2, 0.8))
    found = compare_outputs(prepared, "validation", student, teacher)
    assert (found.task, found.kind, found.rows) == ("tiny_classification", "classification", 5)
    assert found.student == pytest.approx({"accuracy": 3 / 5, "f1": 2 / 3})
    assert found.teacher == {"accuracy": 1.0, "f1": 1.0}
    assert (found.labels, found.confusion) == (["no", "yes"], [[1, 1], [1, 2]])
    by_label = [(one.label, one.rows, one.student, one.teacher) for one in found.by_label]
    assert by_label == [("no", 2, 0.5, 1.0), ("yes", 3, pytest.approx(2 / 3), 1.0)]
    assert found.disagreements == 2
    first, second = found.examples
    assert (first.text, first.pair, first.label) == ("text 1", "pair 1", "no")
    assert (first.teacher, first.student) == ("no (90%)", "yes (80%)")
    assert (first.distance, second.distance) == (pytest.approx(0.7), pytest.approx(0.2))
    alone = compare_outputs(prepared, "validation", student)
    assert alone.teacher == {} and alone.disagreements is None and alone.examples == []
    assert alone.student == found.student and alone.by_label[0].teacher is None


def test_ten_rows_at_most_the_furthest_apart_first():
    count = 14
    prepared = PreparedTask(make_task("classification"), {"validation": rows_of(*[0, 1] * (count // 2))})
    shares = [0.51 + 0.03 * (5 * number % count) for number in range(count)]
    student = logits(*((1 - share, share) for share in shares))
    found = compare_outputs(prepared, "validation", student, logits(*[(0.9, 0.1)] * count))
    assert found.disagreements == count and len(found.examples) == 10
    wanted = sorted(range(count), key=lambda number: -shares[number])[:10]
    assert [example.text for example in found.examples] == [f"text {number}" for number in wanted]


def test_several_classes():
    """Student: the; the and model; none. Teacher: all as they are labelled."""
    prepared = PreparedTask(make_task("multi_label"), {"validation": rows_of((1, 0, 0), (0, 1, 0), (0, 0, 0))})
    student, teacher = (
        [[np.array(row) for row in rows]]
        for rows in (((2.0, -2, -2), (1.0, 1.0, -9), (-1.0, -1, -1)), ((3.0, -3, -3), (-2.0, 4.0, -9), (-1.0, -1, -1)))
    )
    found = compare_outputs(prepared, "validation", student, teacher)
    assert found.student["micro_f1"] == pytest.approx(4 / 5) and found.teacher["accuracy"] == 1
    by_label = [(one.label, one.rows, one.student, one.teacher) for one in found.by_label]
    assert by_label == [("the", 1, pytest.approx(2 / 3), 1.0), ("model", 1, 1.0, 1.0), ("teacher", 0, 0.0, 0.0)]
    assert found.confusion == [] and found.disagreements == 1
    (example,) = found.examples
    assert (example.label, example.student, example.teacher) == ("model", "the (73%), model (73%)", "model (98%)")
    assert example.distance == pytest.approx(1 / (1 + np.exp(-1)) - 1 / (1 + np.exp(2)), abs=1e-6)


def test_values():
    prepared = PreparedTask(make_task("regression"), {"validation": rows_of(1.0, 2.0, 3.5)})
    found = compare_outputs(prepared, "validation", [[np.array([x]) for x in (1.0, 4.0, 3.0)]],
                            [[np.array([x]) for x in (1.5, 2.0, 3.0)]])  # fmt: skip
    assert found.student["spearman"] == pytest.approx(0.5) and found.teacher["spearman"] == pytest.approx(1.0)
    assert found.confusion == [] == found.by_label and found.disagreements is None
    told = [(example.label, example.teacher, example.student, example.distance) for example in found.examples]
    assert told == [("2", "2", "4", 2.0), ("1", "1.5", "1", 0.5)]


@pytest.mark.parametrize("answerable", [True, False])
def test_answers(answerable, monkeypatch):
    task = make_task("question_answering", answerable_only=answerable)
    rows = [LabelledRow("a", "the red fox runs", "who ?", answers=("red fox",)), LabelledRow("b", "x " * 300, "what ?",
            answers=("x",)), LabelledRow("c", "no one", "who ?", answers=("one",))]  # fmt: skip
    from limbeck.kinds.task import AnswerPrediction as Answer

    student = {"a": Answer("fox"), "b": Answer("x"), "c": Answer("one", null_odds=3.0)}
    teacher = {"a": Answer("red fox"), "b": Answer("the x"), "c": Answer("one", null_odds=-1.0)}
    monkeypatch.setattr(PreparedTask, "decode", lambda prepared, split, outputs: outputs[0])
    prepared = PreparedTask(task, {"validation": rows})
    found = compare_outputs(prepared, "validation", (student, ()), (teacher, ()))
    # "the" is no part of an answer, and "x" is the same as "the x".
    told = [(example.label, example.teacher, example.student, example.distance) for example in found.examples]
    lost = [] if answerable else [("one", "one", "no answer", 1.0)]
    assert told == [*lost, ("red fox", "red fox", "fox", pytest.approx(1 / 3, abs=1e-6))]
    assert found.disagreements == len(told)
    assert found.teacher["exact_match"] == 1 and found.student["exact_match"] == pytest.approx(
        len(told) and 1 - len(told) / 3
    )


def test_long_texts_are_cut():
    row = LabelledRow("0", "word " * 200, None, 1)
    prepared = PreparedTask(make_task("classification"), {"validation": [row, *make_rows("classification", 1, 0)]})
    found = compare_outputs(prepared, "validation", logits((0.9, 0.1), (0.9, 0.1)), logits((0.1, 0.9), (0.9, 0.1)))
    assert len(found.examples[0].text) == 301 and found.examples[0].text.endswith("…") and found.examples[0].pair == ""


def test_sentences_of_tagged_words_show_their_entities_and_where_they_differ():
    """By hand: of two entities the student finds one, the teacher both; the sentences differ in one word of two."""
    task = replace(make_task("token_classification"), labels=("O", "B-X", "I-X"))
    rows = [LabelledRow("0", WORD_GAP.join(["the", "model"]), label=(0, 1)), LabelledRow("1", "text", label=(1,))]
    prepared = PreparedTask(task, {"validation": rows})
    predictions = {"student": [[0, 0], [1]], "teacher": [[0, 1], [1]]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedTask, "decode", lambda _, split, outputs: predictions[outputs[0]])
        found = compare_outputs(prepared, "validation", ("student",), ("teacher",))
    assert [(one.label, one.rows, one.student, one.teacher) for one in found.by_label] == [("X", 2, 2 / 3, 1.0)]
    assert (found.student["f1_entity"], found.teacher["f1_entity"], found.confusion) == (2 / 3, 1.0, [])
    (example,) = found.examples
    assert (found.disagreements, example.distance, example.text, example.label) == (1, 0.5, "the model", "model/B-X")
    assert (example.student, example.teacher) == ("no entity", "model/B-X")
