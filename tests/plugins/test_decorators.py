"""The decorators: an objective is told from its function's arguments, a method from its function and its options."""

import functools
import importlib

import pytest
import torch
from pydantic import Field
from transformers import BertConfig

from limbeck.benchmark.loss import LossCase, measure_losses
from limbeck.benchmark.operations import loss_operations
from limbeck.core.registry import plugins_in_use
from limbeck.errors import PluginError
from limbeck.methods import METHODS, Citation, MethodOptions, Term, register_as_method
from limbeck.models.families import shape_of
from limbeck.models.streams import StreamKey
from limbeck.objectives import OBJECTIVES, Benchmark, LossTerm, register_as_objective
from limbeck.recipe.method_recipe import method_terms


class Options(MethodOptions):
    share: float = Field(default=0.5, ge=0, le=1, description="A share.")


def loss_of(*tensors):
    return LossTerm(sum(tensor.float().abs().sum() for tensor in tensors), torch.tensor(1.0))


def one_stream(student, teacher, scale=1.0):
    return loss_of(student, teacher)


def two_streams(student_query, student_key, teacher_query, teacher_key, *, valid=None, heads=None):
    return loss_of(student_query, student_key, teacher_query, teacher_key)


def mapped(student, teacher, *, projection=None):
    return loss_of(student, teacher)


def mapped_by_head(student, teacher, *, heads, projections=None):
    return loss_of(student, teacher)


def labelled(student_logits, labels, *, valid=None):
    return loss_of(student_logits)


def labelled_beside_a_teacher(student, teacher, labels):
    return loss_of(student, teacher)


def weighed_layers(student_layers, teacher_layers, *, valid=None, student_weights=None):
    return loss_of(*student_layers[0], *teacher_layers[0])


def compose(options, pairing):
    """Teach all there is,
    and more.

    Further words.
    """
    return [Term("mine", "hidden_mse", (StreamKey("hidden", 1),), (StreamKey("hidden", 1),), options.share)]


def said_of(objective):
    flags = {key for key, value in vars(objective).items() if value is True}
    return objective.student_streams, flags


@pytest.mark.parametrize(
    ("function", "streams", "flags"),
    [
        (one_stream, 1, {"takes_teacher", "is_divergence"}),
        (two_streams, 2, {"takes_teacher", "is_divergence", "takes_valid", "takes_heads"}),
        (mapped, 1, {"takes_teacher", "is_divergence", "takes_projection"}),
        (mapped_by_head, 1, {"takes_teacher", "is_divergence", "takes_heads", "takes_projection"}),
        (labelled, 1, {"takes_labels", "takes_valid"}),
        (labelled_beside_a_teacher, 1, {"takes_teacher", "is_divergence", "takes_labels"}),
    ],
)
def test_the_arguments_of_a_function_say_how_it_is_called(function, streams, flags):
    assert register_as_objective(unit="pair")(function) is function
    objective = OBJECTIVES[function.__name__]
    assert objective.function is function
    assert (objective.unit, *said_of(objective)) == ("pair", streams, flags)


def test_what_arguments_cannot_say_is_given():
    register_as_objective(unit="sample", name="another", batch_coupled=True, is_divergence=False)(one_stream)
    assert said_of(OBJECTIVES["another"]) == (1, {"takes_teacher", "batch_coupled"})
    assert "one_stream" not in OBJECTIVES


def test_layers_in_lists_are_asked_for():
    register_as_objective(unit="token", layers=2, batch_coupled=True)(weighed_layers)
    objective = OBJECTIVES["weighed_layers"]
    assert (objective.student_streams, objective.takes_layers) == (2, True)
    offered = {"valid": 1, "projection": 2, "student_weights": 3, "across": 4}
    assert objective.arguments(offered) == {"valid": 1, "student_weights": 3}
    assert objective.gathers_rows  # It does not sum across processes.
    assert objective.by_layer("abcd") == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        pytest.param(lambda s, t: None, "s, t", id="other names"),
        pytest.param(lambda: None, "", id="nothing"),
        pytest.param(lambda teacher, student: None, "teacher, student", id="teacher first"),
        pytest.param(lambda student_a, student_b, teacher: None, "student_a, student_b, teacher", id="fewer teachers"),
        pytest.param(lambda student, labels, teacher: None, "student, labels, teacher", id="labels between"),
        pytest.param(lambda student, teacher, margin: None, "student, teacher, margin", id="option without default"),
        pytest.param(lambda *streams: None, "streams", id="any number"),
    ],
)
def test_arguments_of_other_names_are_refused(function, takes):
    with pytest.raises(PluginError) as caught:
        register_as_objective(unit="token", name="mine")(function)
    message = str(caught.value)
    assert message.startswith(f"The objective 'mine' cannot be added: it takes ({takes}); call the student's streams")
    assert "\n" not in message
    assert "mine" not in OBJECTIVES


def test_refusals_and_replacements_are_those_of_registering():
    for given, function, said in (
        ({"unit": "word"}, one_stream, "unit is 'word'; give one of token"),
        ({}, lambda student, teacher: None, "small letters"),
        ({"name": "mine"}, 3, "its function is no function"),
        ({"name": "relation_kl"}, one_stream, "'relation_kl' already exists"),
    ):
        with pytest.raises(PluginError, match=said):
            register_as_objective(**{"unit": "token", **given})(function)
    for given, function, said in (
        ({"name": "minilm"}, compose, "'minilm' already exists"),
        ({"name": "mine"}, lambda options, pairing: [], "'mine' cannot be added: it has no summary"),
        ({"summary": "Nameless."}, functools.partial(compose), "small letters"),
    ):
        with pytest.raises(PluginError, match=said):
            register_as_method(options=Options, **given)(function)
    register_as_objective(unit="token")(one_stream)
    register_as_objective(unit="row", replace=True)(one_stream)
    assert OBJECTIVES["one_stream"].unit == "row"


def test_a_method_is_its_function_and_its_options():
    assert register_as_method(options=Options, name="mine")(compose) is compose
    method = METHODS["mine"]
    assert (method.summary, method.options, method.compose) == ("Teach all there is, and more.", Options, compose)
    assert method.citation is None
    assert method.tasks == METHODS["hidden_states"].tasks
    (_, terms), *_ = method_terms("mine")[1]
    assert (terms[0].name, terms[0].weight) == ("mine", 0.5)


def test_what_a_method_is_called_by_and_for():
    citation = Citation("Words", "A. Uthor", 2020, "https://example.org", "Here", "@misc{words}")
    register_as_method(summary="Another.", citation=citation, tasks=("classification",))(compose)
    method = METHODS["compose"]
    assert (method.summary, method.citation, method.tasks) == ("Another.", citation, ("classification",))
    assert method.options is MethodOptions


def test_functions_that_were_given_as_they_are_are_told_of_the_decorators():
    with pytest.raises(PluginError, match=r"no limbeck.objectives.Objective. For a function, .*@register_as_objective"):
        OBJECTIVES.add("mine", one_stream)
    with pytest.raises(PluginError, match=r"no limbeck.methods.Method. For a function, .*@register_as_method"):
        METHODS.add("mine", compose)
    with pytest.raises(PluginError, match=r"^'mine' is a dict, no limbeck.methods.Method\.$"):
        METHODS.add("mine", {"name": "mine"})


PACKAGE = """
from limbeck.methods import register_as_method
from limbeck.objectives import register_as_objective

@register_as_objective(unit="token")
def absolute(student, teacher):
    pass

@register_as_method()
def absolutely(options, pairing):
    "Absolutely."
    return []
"""
ENTRY_POINTS = """
[limbeck.objectives]
absolute = decorated:absolute
[limbeck.methods]
absolutely = decorated:absolutely
"""


@pytest.mark.parametrize("imported_first", [False, True], ids=["asked for", "imported first"])
def test_entry_points_may_name_what_decorators_register(install, imported_first):
    install("decorated", PACKAGE, ENTRY_POINTS)
    if imported_first:
        importlib.import_module("decorated")
    assert METHODS["absolutely"].summary == "Absolutely."
    assert OBJECTIVES["absolute"].unit == "token"
    assert plugins_in_use() == [{"distribution": "decorated", "version": "1.2"}]
    with pytest.raises(PluginError, match="'absolute' already exists"):
        register_as_objective(unit="token", name="absolute")(one_stream)


def absolute(student, other_student, teacher, other_teacher, *, valid, scale=1.0):
    distance = (student - teacher).abs().sum() + (other_student - other_teacher).abs().sum()
    return LossTerm(distance * scale, valid.sum())


def test_an_objective_says_what_it_costs_and_how_it_is_measured():
    def inputs(case, normal):
        student, teacher = ([normal(case.batch, case.length, case.student_width) for _ in "ab"] for _ in "st")
        return student, teacher, {"scale": 2.0}

    hooks = {
        "operations": lambda work: 3 * sum(work.lengths) * work.student_width * work.student_streams,
        "benchmark": Benchmark({"plain": absolute, "other": absolute}, inputs, lambda case: case.batch, sizes=()),
    }
    register_as_objective(unit="token", name="mine", **hooks)(one_stream)
    key = (StreamKey("hidden", 1),)
    shape = shape_of(BertConfig(hidden_size=8, num_attention_heads=2))
    assert loss_operations(Term("t", "mine", key, key), shape, shape, [5, 2]) == 3 * 7 * 8
    rows = measure_losses([LossCase("mine", 2, 4, student_width=3)], seconds=0.01, memory=False)
    assert [row["backend"] for row in rows] == ["plain", "other"]
    assert {row[size] for row in rows for size in ("heads", "classes", "relation")} == {None}
    assert all(row["gradient_error"] == 0 for row in rows)
