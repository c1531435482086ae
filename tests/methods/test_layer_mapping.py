"""Layer mappings: by hand, strategies by formula at every depth, and any value, which maps or is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from limbeck.core.yaml import dump_yaml, parse_yaml
from limbeck.errors import RecipeError
from limbeck.methods import Pairing
from limbeck.methods.layer_mapping import STRATEGIES, LayerMapping, resolve_mapping, without_last
from limbeck.methods.options import MappingChoice
from limbeck.models.families import Shape
from limbeck.models.layer_selection import selected_layers
from limbeck.models.teaching_facts import facts_of_shape

quick = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
depths = st.integers(1, 64)
ADAPTER: TypeAdapter[Any] = TypeAdapter(MappingChoice)


def pairing(student: int, teacher: int, cosines: tuple[float, ...] | None = None) -> Pairing:
    def shape(layers: int) -> Shape:
        return Shape("bert", layers, 24, 2, 2, 12, 48, 100, 24, 128)

    return Pairing(shape(student), facts_of_shape(shape(teacher)), layer_cosines=cosines)


MAPPINGS, REFUSALS = (
    yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("mappings.yaml", "refusals.yaml")
)


@pytest.mark.parametrize(("choice", "shape", "found"), MAPPINGS, ids=str)
def test_mappings_are_those_by_hand(choice, shape, found):
    layers = resolve_mapping(ADAPTER.validate_python(choice), pairing(*shape))
    assert {layer: list(targets) for layer, targets in layers.items()} == found


@pytest.mark.parametrize(("message", "choice"), REFUSALS["mappings"], ids=str)
def test_layers_that_do_not_exist_are_refused(message, choice):
    with pytest.raises(RecipeError) as caught:
        resolve_mapping(choice, pairing(4, 12))
    assert message in str(caught.value)


def by_formula(name: str, student: int, teacher: int) -> Mapping[int, tuple[int, ...]]:
    """The formulas, layer by layer and by search over all teacher layers instead of by slices."""
    step = -(-teacher // student)
    every = range(1, teacher + 1)

    def targets(layer: int) -> set[int]:
        within = {
            "single": lambda other: layer == student and other == teacher,
            "last": lambda other: other - teacher == layer - student,
            "uniform": lambda other: other == min(step * layer, teacher),
            "uniform_consecutive": lambda other: step * (layer - 1) <= other <= step * layer,
            "ends": lambda other: (
                other == math.floor(1 + Fraction((layer - 1) * (teacher - 1), max(student - 1, 1)))
                if student > 1
                else other == teacher
            ),
        }
        names = ("uniform", "last") if name == "uniform_last" else (name,)
        return {other for one in names for other in every if within[one](other)}

    found = {layer: tuple(sorted(targets(layer))) for layer in range(1, student + 1)}
    return {layer: layers for layer, layers in found.items() if layers}


@quick
@given(st.sampled_from(sorted(STRATEGIES)), depths, depths)
def test_named_strategies_obey_their_formulas(name: str, student: int, teacher: int) -> None:
    if student > teacher and name in ("last", "uniform_last"):
        with pytest.raises(RecipeError, match="shallower student"):
            resolve_mapping(name, pairing(student, teacher))
        return
    found = resolve_mapping(name, pairing(student, teacher))
    assert found == by_formula(name, student, teacher)
    assert list(found) == sorted(found)
    lasts = [layers[-1] for layers in found.values()]
    assert lasts == sorted(lasts), "deeper student layers learn from no shallower ones"
    assert teacher in found[max(found)], "the last teacher layer is always learned from"


@quick
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.data())
def test_contribution_takes_the_lowest_cosines(cosines: list[float], data: st.DataObject) -> None:
    student = data.draw(st.integers(1, len(cosines)))
    found = resolve_mapping("contribution", pairing(student, len(cosines), tuple(cosines)))
    chosen = [layers[0] for layers in found.values()]
    assert list(found) == list(range(1, student + 1))
    assert chosen == sorted(set(chosen))
    left = [cosine for layer, cosine in enumerate(cosines, start=1) if layer not in chosen]
    assert max(cosines[layer - 1] for layer in chosen) <= min(left, default=math.inf)


@quick
@given(depths, depths, st.data())
def test_lists_and_mappings_say_the_same(student: int, teacher: int, data: st.DataObject) -> None:
    layers = data.draw(st.lists(st.integers(0, teacher), min_size=student, max_size=student))
    if not any(layers):
        with pytest.raises(RecipeError, match="maps no layer"):
            resolve_mapping(layers, pairing(student, teacher))
        return
    as_list = resolve_mapping(layers, pairing(student, teacher))
    written: dict[int, int | list[int]] = {layer: target for layer, target in enumerate(layers, start=1) if target}
    shuffled = data.draw(st.permutations(list(written.items())))
    assert resolve_mapping(dict(shuffled), pairing(student, teacher)) == as_list
    assert list(as_list) == sorted(as_list)
    assert {layer: targets for layer, targets in as_list.items() if layer != student} == without_last(as_list, student)


leaves = (
    st.integers(-2, 8)
    | st.integers()
    | st.floats()
    | st.none()
    | st.booleans()
    | st.sampled_from(
        ["", "last", "uniform", "unifrom", "single", "contribution", "1", "[1, 2]", "\n", "\x1b[2J", "a" * 500]
    )
    | st.text(max_size=6)
)
any_value = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.integers(-1, 6) | leaves, inner, max_size=4),
    max_leaves=6,
)


def resolved(value: Any, student: int, teacher: int) -> LayerMapping | str:
    """What a recipe's option comes to, or the refusal."""
    try:
        return resolve_mapping(ADAPTER.validate_python(value), pairing(student, teacher))
    except RecipeError as error:
        return str(error)
    except ValidationError as error:
        return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


@quick
@given(any_value, st.integers(1, 6), st.integers(1, 8))
def test_any_value_is_a_mapping_in_range_or_refused(value: Any, student: int, teacher: int) -> None:
    found = resolved(value, student, teacher)
    if isinstance(found, str):
        assert found.isprintable()
        assert 0 < len(found) < 7000
        return
    assert found
    for layer, targets in found.items():
        assert 1 <= layer <= student
        assert targets
        assert len(set(targets)) == len(targets)
        assert all(1 <= target <= teacher for target in targets)
    # What it came to can be written into a recipe, and comes to itself.
    written = parse_yaml(dump_yaml({layer: list(targets) for layer, targets in found.items()}), "a dump")
    assert resolved(written, student, teacher) == found


@quick
@given(st.text("0123456789[]{}:, abc'\"-\n", max_size=20), st.integers(1, 6), st.integers(1, 8))
def test_any_text_is_read_as_yaml_reads_it_or_refused(text: str, student: int, teacher: int) -> None:
    try:
        value = parse_yaml(text, "--set")
    except RecipeError:
        return
    found = resolved(value, student, teacher)
    if not isinstance(found, str) and not isinstance(value, str):
        again = parse_yaml(dump_yaml(value), "a dump")
        assert resolved(again, student, teacher) == found


@quick
@given(st.integers(1, 6), st.integers(1, 8), st.integers())
def test_layers_beyond_the_depths_are_refused(student: int, teacher: int, layer: int) -> None:
    inside_student, inside_teacher = 1 <= layer <= student, 1 <= layer <= teacher
    assert isinstance(resolved({layer: 1}, student, teacher), str) is not inside_student
    assert isinstance(resolved({1: layer}, student, teacher), str) is not inside_teacher


def test_ends_is_the_mapping_onto_the_layers_that_the_start_of_this_name_copies():
    for student, teacher in ((1, 6), (2, 6), (3, 6), (4, 12), (6, 6)):
        expected = {}
        for layer, source in enumerate(selected_layers("ends", student, teacher), start=1):
            expected[layer] = (source,)
        assert STRATEGIES["ends"](student, teacher) == expected
