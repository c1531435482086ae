import pytest

from limbeck.errors import ModelError
from limbeck.models.initialise import selected_layers


@pytest.mark.parametrize(
    ("strategy", "student", "teacher", "expected"),
    [
        ("random", 3, 6, []),
        ("first", 3, 6, [1, 2, 3]),
        ("last", 3, 6, [4, 5, 6]),
        ("uniform", 3, 6, [2, 4, 6]),
        ("ends", 3, 6, [1, 3, 6]),
        ("uniform", 6, 12, [2, 4, 6, 8, 10, 12]),
        ("uniform", 4, 12, [3, 6, 9, 12]),
        ("uniform", 5, 12, [3, 6, 9, 12, 12]),
        ("ends", 4, 12, [1, 4, 8, 12]),
        ("ends", 2, 12, [1, 12]),
        ("ends", 1, 6, [6]),
        ("uniform", 1, 6, [6]),
        ("last", 6, 6, [1, 2, 3, 4, 5, 6]),
        ("ends", 6, 6, [1, 2, 3, 4, 5, 6]),
        ([6, 1, 1], 3, 6, [6, 1, 1]),
        ((1, 2, 2, 1), 4, 2, [1, 2, 2, 1]),
    ],
)
def test_strategies(strategy, student, teacher, expected):
    assert selected_layers(strategy, student, teacher) == expected


def test_named_strategies_stay_in_range_and_never_go_back():
    for teacher in range(1, 14):
        for student in range(1, teacher + 1):
            for name in ("first", "last", "uniform", "ends"):
                layers = selected_layers(name, student, teacher)
                assert len(layers) == student
                assert layers == sorted(layers)
                assert 1 <= layers[0] <= layers[-1] <= teacher
                if name == "ends" and student > 1:
                    assert (layers[0], layers[-1]) == (1, teacher)
                    assert len(set(layers)) == student


@pytest.mark.parametrize(
    ("strategy", "student", "teacher", "message"),
    [
        ("fist", 3, 6, r"Unknown layer strategy 'fist'\. Did you mean 'first'\?.*like \[1, 3, 6\]"),
        ("first", 7, 6, r"A student of 7 layers cannot start from the 'first' layers of a teacher of 6; list"),
        ("uniform", 7, 6, "cannot start"),
        ([1, 2], 3, 6, r"The student has 3 layers but 2 teacher layers are listed"),
        ([1, 2, 7], 3, 6, r"Teacher layer 7 does not exist: this teacher's layers are 1 to 6"),
        ([0, 1, 2], 3, 6, "Teacher layer 0 does not exist"),
        ([1, 2, True], 3, 6, "Teacher layer True does not exist"),
        ([1, 2, "3"], 3, 6, "Teacher layer '3' does not exist"),
        ([], 3, 6, "0 teacher layers are listed"),
    ],
)
def test_bad_layers_are_refused(strategy, student, teacher, message):
    with pytest.raises(ModelError, match=message):
        selected_layers(strategy, student, teacher)
