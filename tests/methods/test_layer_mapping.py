"""Layer mappings against their definitions, written out by hand."""

import math

import pytest
from pydantic import TypeAdapter

from limbeck.errors import RecipeError
from limbeck.methods import Pairing
from limbeck.methods.composition import MappingChoice
from limbeck.methods.layer_mapping import NAMES, resolve_mapping
from limbeck.models.families import shape_of
from tests.support.models import tiny_config


def pairing(student, teacher, cosines=None):
    shapes = [shape_of(tiny_config("bert", layers=layers)) for layers in (student, teacher)]
    return Pairing(*shapes, layer_cosines=cosines)


PAPER = {
    ("single", 4, 12): {4: (12,)},
    ("last", 4, 12): {1: (9,), 2: (10,), 3: (11,), 4: (12,)},
    ("uniform", 4, 12): {1: (3,), 2: (6,), 3: (9,), 4: (12,)},
    ("uniform", 6, 12): {1: (2,), 2: (4,), 3: (6,), 4: (8,), 5: (10,), 6: (12,)},
    ("uniform_consecutive", 4, 12): {1: (1, 2, 3), 2: (3, 4, 5, 6), 3: (6, 7, 8, 9), 4: (9, 10, 11, 12)},
    ("uniform_last", 4, 12): {1: (3, 9), 2: (6, 10), 3: (9, 11), 4: (12,)},
    ("uniform", 5, 12): {1: (3,), 2: (6,), 3: (9,), 4: (12,), 5: (12,)},
    ("uniform_consecutive", 8, 12): {i: tuple(range(max(1, 2 * i - 2), min(2 * i, 12) + 1)) for i in range(1, 8)},
}


@pytest.mark.parametrize("case", PAPER, ids=str)
def test_strategies_are_the_papers(case):
    name, student, teacher = case
    assert resolve_mapping(name, pairing(student, teacher)) == PAPER[case]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "contribution"])
def test_strategies_of_every_depth_stay_within_the_teacher(name):
    for teacher in range(1, 13):
        for student in range(1, teacher + 1):
            step = math.ceil(teacher / student)
            mapping = resolve_mapping(name, pairing(student, teacher))
            for layer, targets in mapping.items():
                assert 1 <= layer <= student
                assert list(targets) == sorted(set(targets))
                assert all(1 <= target <= teacher for target in targets)
                if name == "uniform":
                    assert targets == (min(step * layer, teacher),)


def test_contribution_takes_the_layers_that_change_their_input_most():
    cosines = [0.9, 0.2, 0.8, 0.1, 0.3, 0.95]
    assert resolve_mapping("contribution", pairing(3, 6, tuple(cosines))) == {1: (2,), 2: (4,), 3: (5,)}
    assert resolve_mapping("contribution", pairing(3, 6)) == {1: (4,), 2: (5,), 3: (6,)}


def test_explicit_mappings():
    assert resolve_mapping([0, 0, 5, 10], pairing(4, 12)) == {3: (5,), 4: (10,)}
    assert resolve_mapping({3: 5, 4: [9, 10]}, pairing(4, 12)) == {3: (5,), 4: (9, 10)}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("unifrom", "Did you mean 'uniform'"),
        ([0, 5], "2 entries, but the student has 4 layers"),
        ([0, 0, 0, 13], "teacher layer 13, but the teacher has layers 1 to 12"),
        ([0, 0, 0, -1], "teacher layer -1"),
        ([0, 0, 0, 0], "maps no layer"),
        ({5: 1}, "student layer 5, but the student has layers 1 to 4"),
        ({0: 1}, "student layer 0"),
        ({1: [3, 3]}, "twice"),
        ({}, "maps no layer"),
    ],
)
def test_layers_that_do_not_exist_are_refused(choice, message):
    with pytest.raises(RecipeError, match=message) as caught:
        resolve_mapping(choice, pairing(4, 12))
    assert "\n" not in str(caught.value)


def test_a_deeper_student_has_no_layers_of_its_own():
    with pytest.raises(RecipeError, match="use 'uniform' or a shallower student"):
        resolve_mapping("last", pairing(6, 4))
    assert resolve_mapping("uniform", pairing(6, 4)) == {i: (min(i, 4),) for i in range(1, 7)}


def test_yaml_gives_each_kind_of_choice():
    adapter = TypeAdapter(MappingChoice)
    for written in ("uniform", [0, 0, 5, 10], {3: 5, 4: [9, 10]}):
        assert adapter.validate_python(written) == written
