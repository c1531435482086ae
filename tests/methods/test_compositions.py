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


def compose(name, student, teacher, task="text", **options):
    method = METHODS[name]
    pairing = Pairing(student, facts_of_shape(teacher), task)
    return method.compose(method.options(**options), pairing)


SHAPES = {name: shape(**changes) for name, changes in CHANGES.items()}


def describe(term):
    """A term in one line, as `compositions.yaml` has it: weight, objective, streams, unit and their preparation."""
    student = " ".join(map(str, term.student))
    teacher = " ".join(map(str, term.teacher)) or "labels"
    options = "".join(f" {name}={value}" for name, value in term.options.items())
    line = f"{term.name} {term.weight:g} x {term.objective}{options} of {student} by {teacher}, a {term.unit}"
    learned_map = term.learned_map
    if learned_map is not None:
        line += f", map {learned_map.inputs} to {learned_map.outputs}"
        if learned_map.heads:
            line += f" in {learned_map.heads}"
    groups = term.teacher_heads
    if groups is not None:
        line += f", {groups.heads} heads to {groups.groups} {groups.chosen or 'averaged'}"
    if term.normalise:
        line += ", normalised"
    if term.batch_coupled:
        line += ", alone"
    return line


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case["case"])))
def test_terms_are_those_of_the_papers(case):
    method, student, teacher, task, options = case["case"]
    terms = compose(method, SHAPES[student], SHAPES[teacher], task, **options)
    assert list(map(describe, terms)) == case["terms"]


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_composes_with_its_defaults(name):
    method = METHODS[name]
    assert method.name == name
    student = SHAPES["wide"] if name in EQUAL_WIDTHS else SHAPES["small"]
    terms = compose(name, student, SHAPES["base"])
    assert terms
    assert len({term.name for term in terms}) == len(terms), "names are unique"
    for term in terms:
        assert term.weight > 0
        objective = OBJECTIVES[term.objective]
        if not objective.takes_layers:
            teacher_streams = objective.student_streams if objective.takes_teacher else 0
            assert len(term.student) == objective.student_streams
            assert len(term.teacher) == teacher_streams
    assert all(field.description for field in method.options.model_fields.values())
    with pytest.raises(ValidationError):
        method.options(no_such_option=1)


@pytest.mark.parametrize(("width", "hidden", "heads"), PAPERS["heads"])
def test_relation_heads_are_the_papers_or_lower(width, hidden, heads):
    attention_heads = 12 if hidden % 12 == 0 else 1
    student = shape(layers=2, hidden=hidden, heads=attention_heads, ffn=8)
    teacher = shape(layers=12, hidden=width, heads=width // 64, ffn=8)
    terms = compose("minilmv2", student, teacher)
    assert terms[0].options["heads"] == heads


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
    module = make_learned_map(LearnedMap(inputs=24, outputs=48, heads=1))
    assert isinstance(module, HeadMaps)
    assert module.weight.shape == (1, 24, 48)


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
    size = 4
    stream = torch.randn(2, 3, 6 * size)
    picks = (1, 0, 1)
    averaged = HeadGroups(heads=6, groups=3).merge(stream)
    chosen = HeadGroups(heads=6, groups=3, chosen=picks).merge(stream)
    assert averaged.shape == chosen.shape == (2, 3, 3 * size)
    heads = stream.reshape(2, 3, 6, size)
    for group, pick in enumerate(picks):
        heads_of_group = heads[:, :, 2 * group : 2 * group + 2]
        place = slice(size * group, size * (group + 1))
        torch.testing.assert_close(averaged[..., place], heads_of_group.mean(2))
        assert torch.equal(chosen[..., place], heads_of_group[:, :, pick])
