"""Several classes a row, however they are written; counts of classes, and weights that make up for few rows."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from limbeck.core.kinds import KINDS
from limbeck.corpus.rows.class_numbers import ClassNumbers
from limbeck.corpus.rows.classes import balance, count_classes, read_weights
from limbeck.errors import CorpusError, RecipeError

NAMES = ("joy", "anger", "fear, panic")


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (["joy", "ANGER"], (1, 1, 0)),
        ([2, 0], (1, 0, 1)),
        (np.array([1]).tolist(), (0, 1, 0)),
        ([], (0, 0, 0)),
        ("", (0, 0, 0)),
        ("joy|fear, panic", (1, 0, 1)),
        ("fear, panic", (0, 0, 1)),
        ("anger, joy", (1, 1, 0)),
        ("0;2", (1, 0, 1)),
        ("['joy', 'anger']", (1, 1, 0)),
        ("[]", (0, 0, 0)),
        ("2", (0, 0, 1)),
        (1, (0, 1, 0)),
        ([0, 1, 0], (0, 1, 0)),
        ([1.0, 0.0, 1.0], (1, 0, 1)),
        ([True, False, False], (1, 0, 0)),
    ],
)
def test_classes_of_a_row(value, flags):
    assert ClassNumbers(NAMES).flags(value, "rows.tsv:3") == flags


def test_numbers_of_a_data_set_are_understood_by_its_names():
    assert ClassNumbers(NAMES[:2]).flags([0], "rows:1", ("anger", "joy")) == (0, 1)
    message = r"rows:1 has the label 'positive', which is not one of the teacher's classes \(neg, pos\): correct the"
    with pytest.raises(CorpusError, match=message):
        ClassNumbers(("neg", "pos")).number(0, "rows:1", ("positive", "negative"))


@pytest.mark.parametrize(
    ("classes", "names", "numbers"),
    [
        (("0", "1"), ("1", "0"), [1, 0]),
        (("1", "0"), ("0", "1"), [1, 0]),
        (("0", "1"), ("LABEL_1", "LABEL_0"), [1, 0]),
        (("LABEL_0", "LABEL_1"), ("LABEL_1", "LABEL_0"), [1, 0]),
        (("LABEL_1", "LABEL_0"), ("LABEL_0", "LABEL_1"), [1, 0]),
        (("LABEL_0", "LABEL_1"), ("1", "0"), [1, 0]),
        (("0", "1", "2"), ("2", "1"), [2, 1]),
        # Some names are no class of a teacher without names: numbers stand for themselves.
        (("LABEL_0", "LABEL_1", "LABEL_2"), ("1", "2", "3"), [0, 1, 2]),
        (("0", "1"), ("yes", "no"), [0, 1]),
        (("yes", "no"), ("LABEL_0", "LABEL_1"), [0, 1]),
    ],
)
def test_numbers_of_a_data_set_whose_names_are_numbers(classes, names, numbers):
    class_numbers = ClassNumbers(classes)
    places = range(len(names))
    assert [class_numbers.number(place, "rows:1", names) for place in places] == numbers
    assert [class_numbers.flags([place], "rows:1", names).index(1) for place in places] == numbers


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["joy", "hope"], r"rows.tsv:3 has the label 'hope', which is not one of the teacher's classes"),
        ("joy|hope", r"has the label 'hope'"),
        ([3], r"has the label 3, which is not one .* or a number from 0 to 2"),
        (
            [0, 1, 1, 0],
            r"has the label \[0, 1, 1, 0\], which names a class twice: name each class once, or give a column of 0",
        ),
        ("anger|anger", "names a class twice"),
        ([None], "has the label None"),
        ({"joy": 1}, "has the label {'joy': 1}"),
    ],
)
def test_classes_that_are_none_are_refused(value, message):
    with pytest.raises(CorpusError, match=message):
        ClassNumbers(NAMES).flags(value, "rows.tsv:3")


@pytest.mark.parametrize(
    ("names", "values", "flags"),
    [
        (("joy", "anger"), {"anger": "1", "joy": "0"}, (0, 1)),
        (("joy", "anger"), {"Anger": True, "joy": 1.0}, (1, 1)),
        (("joy", "anger"), {"anger": "False", "joy": "TRUE"}, (1, 0)),
        (("LABEL_0", "LABEL_1"), {"is_anger": 0, "is_joy": 1}, (0, 1)),
    ],
)
def test_a_column_for_each_class(names, values, flags):
    assert ClassNumbers(names).flags_of(values, "rows.csv:2") == flags


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"joy": 2, "anger": 0}, r"rows.csv:2, 'joy', has the label 2: give 1 where the row has the class, else 0"),
        ({"joy": -1, "anger": 0}, "has the label -1"),
        ({"joy": "yes", "anger": 0}, "has the label 'yes', which is not a finite number"),
        ({"joy": 1, "hope": 0}, "label_columns of rows.csv:2 has the label 'hope', which is not one"),
        ({"joy": 1}, "label_columns has no column for the class 'anger': give every class a column"),
    ],
)
def test_columns_that_are_not_of_the_classes_are_refused(values, message):
    with pytest.raises(CorpusError, match=message):
        ClassNumbers(("joy", "anger")).flags_of(values, "rows.csv:2")


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.array([0] * 7 + [1] * 2 + [2])
    counts = count_classes(labels, NAMES, KINDS["classification"])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert balance("balanced", counts) == pytest.approx(expected.tolist())
    assert sum(balance("balanced", counts)[label] for label in labels) == pytest.approx(len(labels))
    words = [-100, *labels[:4], -100, -100, *labels[4:]]
    assert balance("balanced", count_classes(words, NAMES, KINDS["token_classification"])) == balance(
        "balanced", counts
    )


def test_balanced_weights_of_several_classes_are_the_ratio_of_those_of_its_two_values():
    flags = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]])
    found = balance("balanced", count_classes(flags, NAMES, KINDS["multi_label"]))
    for column, weight in zip(flags.T, found, strict=True):
        absent, present = compute_class_weight("balanced", classes=np.arange(2), y=column)
        assert weight == pytest.approx(present / absent)


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        (
            [0, 1, 1],
            "classification",
            "cannot be computed from these 3 labels: none of them has the class 'fear, panic'; give the weight of",
        ),
        ([[1, 1, 0], [0, 1, 1]], "multi_label", "all of them have the class 'anger'"),
    ],
)
def test_a_class_that_cannot_be_balanced_is_refused(labels, kind, message):
    with pytest.raises(CorpusError, match=message):
        balance("balanced", count_classes(labels, NAMES, KINDS[kind]))


def test_weights_are_read_by_name_and_by_number():
    assert read_weights({"anger": 3}, NAMES, "class_weights") == (1.0, 3.0, 1.0)
    assert read_weights([1, 2, 0.5], NAMES, "class_weights") == (1.0, 2.0, 0.5)
    assert balance((1.0, 2.0, 0.5), count_classes([0], NAMES, KINDS["classification"])) == (1.0, 2.0, 0.5)


@pytest.mark.parametrize(
    ("given", "names", "message"),
    [
        ({"angr": 2}, NAMES, r"class_weights names 'angr', which is not a class\. Did you mean 'anger'\?"),
        ([1, 2], NAMES, "class_weights has 2 weights, but there are 3 classes"),
        ([1, 2, 0], NAMES, "has the weight 0; weights must be numbers above 0"),
        ([1, 2, float("nan")], NAMES, "has the weight nan"),
        ("even", NAMES, "class_weights is 'even'; give 'balanced'"),
        ("balanced", (), "gives weights to classes, but the labels of this task have no classes"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(given, names, message):
    with pytest.raises(RecipeError, match=message):
        read_weights(given, names, "class_weights")


@pytest.mark.parametrize(
    ("labels", "kind", "line"),
    [
        ([0] * 60 + [1] * 35 + [2] * 5, "classification", None),
        (
            [0] * 61 + [1] * 35 + [2] * 4,
            "classification",
            "Classes are uneven in 100 rows: fear, panic 4 (4.0%), anger 35 (35.0%), joy 61 (61.0%)",
        ),
        (
            [[1, 0, 0]] * 3 + [[1, 1, 0]],
            "multi_label",
            "Classes are uneven in 4 rows: fear, panic none, anger 1 (25.0%), joy 4 (100.0%)",
        ),
        ([0, 0, 0, 1], "token_classification", None),
        ([], "classification", None),
    ],
)
def test_rare_classes_are_told(labels, kind, line):
    assert count_classes(labels, NAMES, KINDS[kind]).describe_rare() == line


def test_many_classes_are_each_rare_and_not_told():
    names = [f"class {number}" for number in range(28)]
    assert count_classes(np.arange(28).repeat(10), names, KINDS["classification"]).describe_rare() is None
    told = count_classes(np.append(np.arange(27).repeat(10), 27), names, KINDS["classification"]).describe_rare()
    assert told.startswith("Classes are uneven in 271 rows: class 27 1 (0.4%), class 0 10 (3.7%)")
    assert told.endswith("and 16 classes with more")


@pytest.mark.parametrize(
    ("labels", "kind", "line"),
    [
        ([1, 1], "classification", "All 2 rows have the class 'anger'"),
        ([[1, 1, 0]], "multi_label", "All 1 rows have the class 'joy' and 'anger'"),
        ([[0, 0, 0]] * 3, "multi_label", "All 3 rows have no class"),
        ([0, 1], "classification", None),
        ([[0, 1, 0], [0, 0, 0]], "multi_label", None),
    ],
)
def test_rows_that_are_all_alike(labels, kind, line):
    counts = count_classes(labels, NAMES, KINDS[kind])
    assert counts.has_one == (line is not None)
    assert line is None or counts.describe_one() == line
