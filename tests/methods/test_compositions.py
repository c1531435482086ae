"""What methods come to for given shapes, and what they refuse."""

from pathlib import Path

import pytest
import torch
import yaml
from pydantic import ValidationError

from limbeck.errors import LimbeckError
from limbeck.methods import METHODS, LearnedMap, Pairing
from limbeck.methods.layer_mapping import resolve_layer, stream_width
from limbeck.methods.transforms import HeadGroups
from limbeck.models.families import shape_of
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.objectives import OBJECTIVES
from limbeck.training.learned_maps import HeadMaps, make_learned_map
from tests.support.methods import EQUAL_WIDTHS
from tests.support.models import tiny_config

FOLDER = Path(__file__).parent
CHANGES, PAPERS, CASES = yaml.safe_load_all((FOLDER / "compositions.yaml").read_text(encoding="utf-8"))
REFUSALS = yaml.safe_load((FOLDER / "refusals.yaml").read_text(encoding="utf-8"))


def shape(family="bert", **changes):
    return shape_of(tiny_config(family, **changes))


def compose(method, student, teacher, task="text", **options):
    chosen = METHODS[method]
    return chosen.compose(chosen.options(**options), Pairing(student, facts_of_shape(teacher), task))


SHAPES = {name: shape(**changes) for name, changes in CHANGES.items()}


def describe(term):
    """A term in one line: name, weight, unit, objective with its options and streams, and what comes before it."""
    student, teacher = (" ".join(map(str, keys)) for keys in (term.student, term.teacher))
    options = "".join(f" {name}={value}" for name, value in term.options.items())
    found = (
        f"{term.name} {term.weight:g} x {term.objective}{options} of {student} by {teacher or 'labels'}, a {term.unit}"
    )
    if (maps := term.learned_map) is not None:
        found += f", map {maps.inputs} to {maps.outputs}" + (f" in {maps.heads}" if maps.heads else "")
    if (groups := term.teacher_heads) is not None:
        found += f", {groups.heads} heads to {groups.groups} {groups.chosen or 'averaged'}"
    return found + (", normalised" if term.normalise else "") + (", alone" if term.batch_coupled else "")


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case["case"])))
def test_terms_are_those_of_the_papers(case):
    method, student, teacher, task, options = case["case"]
    terms = compose(method, SHAPES[student], SHAPES[teacher], task, **options)
    assert list(map(describe, terms)) == case["terms"]


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_composes_with_its_defaults(name):
    method = METHODS[name]
    assert method.name == name
    terms = compose(name, SHAPES["wide" if name in EQUAL_WIDTHS else "small"], SHAPES["base"])
    assert terms and len({term.name for term in terms}) == len(terms)
    for term in terms:
        objective = OBJECTIVES[term.objective]
        if not objective.takes_layers:
            assert len(term.student) == objective.student_streams
            assert len(term.teacher) == (objective.student_streams if objective.takes_teacher else 0)
        assert term.weight > 0
    assert all(field.description for field in method.options.model_fields.values())
    with pytest.raises(ValidationError):
        method.options(no_such_option=1)


@pytest.mark.parametrize(("width", "hidden", "heads"), PAPERS["heads"])
def test_relation_heads_are_the_papers_or_lower(width, hidden, heads):
    student = shape(layers=2, hidden=hidden, heads=12 if hidden % 12 == 0 else 1, ffn=8)
    found = compose("minilmv2", student, shape(layers=12, hidden=width, heads=width // 64, ffn=8))
    assert found[0].options["heads"] == heads


@pytest.mark.parametrize(("family", "layers", "expected"), PAPERS["layers"])
def test_the_teacher_layer_is_the_papers(family, layers, expected):
    assert resolve_layer("auto", shape(family, layers=layers), "teacher") == expected


def test_layers_count_from_the_end_too():
    assert [resolve_layer(layer, SHAPES["base"], "teacher") for layer in (-1, -2)] == [4, 3]
    for wrong in (0, 5, -5):
        with pytest.raises(LimbeckError, match="4 layers"):
            resolve_layer(wrong, SHAPES["base"], "teacher")


def test_grouped_queries_have_narrower_keys():
    grouped = shape("llama")
    assert stream_width(grouped, "query") == grouped.heads * grouped.head_size
    assert stream_width(grouped, "key") == grouped.key_value_heads * grouped.head_size


def test_direct_minilm_with_one_head_has_a_map_of_heads_too():
    made = make_learned_map(LearnedMap(24, 48, 1))
    assert isinstance(made, HeadMaps)
    assert made.weight.shape == (1, 24, 48)


@pytest.mark.parametrize(("message", "method", "student", "task", "options"), REFUSALS["shapes"], ids=str)
def test_shapes_and_options_that_do_not_fit(message, method, student, task, options):
    with pytest.raises(LimbeckError) as caught:
        compose(method, SHAPES[student], SHAPES["twelve"], task, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(("message", "method", "options"), REFUSALS["options"], ids=str)
def test_options_out_of_range_are_refused(message, method, options):
    with pytest.raises(ValidationError) as caught:
        METHODS[method].options(**options)
    assert message in str(caught.value)


def test_heads_are_merged_group_by_group():
    stream, picks = torch.randn(2, 3, 6 * 4), (1, 0, 1)
    averaged, chosen = (HeadGroups(6, 3, each).merge(stream) for each in (None, picks))
    assert averaged.shape == chosen.shape == (2, 3, 12)
    for group, pick in enumerate(picks):
        own, place = stream.reshape(2, 3, 6, 4)[:, :, 2 * group : 2 * group + 2], slice(4 * group, 4 * group + 4)
        torch.testing.assert_close(averaged[..., place], own.mean(2))
        assert torch.equal(chosen[..., place], own[:, :, pick])
