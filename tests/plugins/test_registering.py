"""Objectives and methods from outside: the facts read from a function, and one line where recipes could not use it."""

import dataclasses
import functools
import inspect

import pytest
import torch
import yaml
from pydantic import Field
from transformers import BertConfig

from limbeck.benchmark.loss import measure_losses
from limbeck.benchmark.loss_case import LossCase
from limbeck.benchmark.operations import loss_operations
from limbeck.core.registry import PluginPoint, Registry
from limbeck.errors import PluginError
from limbeck.methods import METHODS, Citation, Method, MethodOptions, Term, register_as_method, register_method
from limbeck.models.families import shape_of
from limbeck.models.streams import StreamKey
from limbeck.objectives import OBJECTIVES, Benchmark, LossTerm, Objective, register_as_objective, register_objective
from limbeck.recipe import load_recipe
from limbeck.recipe.json_schema import recipe_schema
from limbeck.recipe.method_recipe import compose_example, method_recipe

KEY = (StreamKey("hidden", 1),)


class Options(MethodOptions):
    share: float = Field(default=0.5, ge=0, le=1, description="A share.")


class Demanding(MethodOptions):
    share: float


class Named(MethodOptions):
    name: str = "x"


def compose(options, pairing):
    """Teach all there is,
    and more.

    Further words.
    """
    return [Term("mine", "absolute", KEY, KEY, options.share)]


def absolute(student, teacher, *, valid=None):
    return LossTerm((student - teacher).abs().sum(), torch.tensor(float(teacher.numel())))


METHOD = Method("mine", "What is mine.", Options, compose)
OBJECTIVE = Objective("absolute", absolute, 1, "token", takes_valid=True)
BY_FIELDS = (lambda: register_objective(OBJECTIVE), lambda: register_method(METHOD))
BY_DECORATORS = (
    lambda: register_as_objective(unit="token")(absolute),
    lambda: register_as_method(options=Options, name="mine", summary="What is mine.")(compose),
)


@pytest.mark.parametrize(
    ("register", "returned"), [(BY_FIELDS, [OBJECTIVE, METHOD]), (BY_DECORATORS, [absolute, compose])]
)
def test_a_method_takes_part_like_any_other(register, returned):
    assert [add() for add in register] == returned
    assert (OBJECTIVES["absolute"], METHODS["mine"]) == (OBJECTIVE, dataclasses.replace(METHOD))
    assert list(METHODS)[-1] == "mine"
    assert "name: mine" in method_recipe("mine")
    (stage, (term, *_)), *_ = compose_example("mine").stages
    assert (stage, term.name, term.objective, term.unit, term.weight) == ("mine", "mine", "absolute", "token", 0.5)
    methods = recipe_schema()["$defs"]["StageSpec"]["properties"]["method"]["anyOf"]
    assert "mine" in methods[0]["enum"]
    assert methods[-1]["properties"]["share"]["default"] == 0.5


def test_a_method_is_named_and_summed_up_by_its_function_unless_it_is_said():
    register_as_method()(compose)
    plain = METHODS["compose"]
    assert (plain.summary, plain.options) == ("Teach all there is, and more.", MethodOptions)
    assert (plain.citation, plain.tasks) == (None, METHODS["hidden_states"].tasks)
    citation = Citation("Words", "A. Uthor", 2020, "https://example.org", "Here", "@misc{words}")
    register_as_method(name="mine", summary="Another.", citation=citation, tasks=("classification",))(compose)
    method = METHODS["mine"]
    assert (method.summary, method.citation, method.tasks) == ("Another.", citation, ("classification",))


def test_the_recipe_of_a_method_of_two_stages_can_be_loaded():
    stages = ({"name": "mlkd_bert", "stage": 1}, {"name": "mlkd_bert", "stage": 2})
    register_as_method(name="mine", tasks=("classification",), stages=stages)(compose)
    recipe = load_recipe(yaml.safe_load(method_recipe("mine")))
    assert [(stage.title, stage.method["stage"]) for stage in recipe.stages] == [("stage-1", 1), ("stage-2", 2)]


def flags_of(objective):
    return {key for key, value in vars(objective).items() if value is True}


@pytest.mark.parametrize(
    ("function", "streams", "flags"),
    [
        (lambda student, teacher, scale=1.0: None, 1, {"is_divergence"}),
        (
            lambda student_query, student_key, teacher_query, teacher_key, *, valid=None, heads=None: None,
            2,
            {"is_divergence", "takes_valid", "takes_heads"},
        ),
        (lambda student, teacher, *, projection=None: None, 1, {"is_divergence", "takes_projection"}),
        (
            lambda student, teacher, *, heads, projections=None: None,
            1,
            {"is_divergence", "takes_heads", "takes_projection"},
        ),
        (lambda student, teacher, labels: None, 1, {"is_divergence", "takes_labels"}),
    ],
)
def test_the_arguments_of_a_function_say_how_it_is_called(function, streams, flags):
    assert register_as_objective(unit="pair", name="mine")(function) is function
    objective = OBJECTIVES["mine"]
    assert (objective.function, objective.unit, objective.student_streams) == (function, "pair", streams)
    assert flags_of(objective) == {"takes_teacher", *flags}


def test_an_objective_without_a_teacher_is_no_divergence_and_further_facts_are_given():
    register_as_objective(unit="label", name="labelled")(lambda student_logits, labels, *, valid=None: None)
    assert flags_of(OBJECTIVES["labelled"]) == {"takes_labels", "takes_valid"}
    register_as_objective(unit="sample", name="another", batch_coupled=True, is_divergence=False)(absolute)
    assert flags_of(OBJECTIVES["another"]) == {"takes_teacher", "takes_valid", "batch_coupled"}
    register_as_objective(unit="token", name="apart", by_token=True)(absolute)
    assert flags_of(OBJECTIVES["apart"]) == {"takes_teacher", "takes_valid", "is_divergence", "by_token"}
    assert "absolute" not in OBJECTIVES


def test_layers_in_lists_are_asked_for():
    def weighed(student_layers, teacher_layers, *, valid=None, student_weights=None):
        """Computes nothing."""

    register_as_objective(unit="token", layers=2, batch_coupled=True)(weighed)
    objective = OBJECTIVES["weighed"]
    assert (objective.student_streams, objective.takes_layers) == (2, True)
    offered = {"valid": 1, "projection": 2, "student_weights": 3, "across": 4}
    assert objective.arguments(offered) == {"valid": 1, "student_weights": 3}
    assert objective.gathers_rows  # It does not sum across processes.
    assert objective.by_layer("abcd") == [("a", "b"), ("c", "d")]


def refused(add, *arguments, **options):
    with pytest.raises(PluginError) as caught:
        add(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda s, t: None, id="other names"),
        pytest.param(lambda: None, id="nothing"),
        pytest.param(lambda teacher, student: None, id="teacher first"),
        pytest.param(lambda student_a, student_b, teacher: None, id="fewer teachers"),
        pytest.param(lambda student, labels, teacher: None, id="labels between"),
        pytest.param(lambda student, teacher, margin: None, id="option without default"),
        pytest.param(lambda *streams: None, id="any number"),
    ],
)
def test_arguments_of_other_names_are_refused(function):
    message = refused(register_as_objective(unit="token", name="mine"), function)
    takes = ", ".join(inspect.signature(function).parameters)
    assert message.startswith(f"The objective 'mine' cannot be added: it takes ({takes}); name the student's tensors")
    assert "mine" not in OBJECTIVES


@pytest.mark.parametrize(
    ("item", "changes", "said"),
    [
        (METHOD, {"name": "My Method"}, "lower-case letters"),
        (METHOD, {"options": dict}, "not a subclass of limbeck.methods.MethodOptions"),
        (METHOD, {"options": Demanding}, "option 'share' has no default"),
        (METHOD, {"options": Named}, "an option is called 'name'"),
        (METHOD, {"compose": None}, "compose is not a function"),
        (METHOD, {"tasks": ("text", "poetry")}, "'poetry'); choose from text, classification"),
        (METHOD, {"tasks": ()}, "choose from text"),
        (OBJECTIVE, {"name": "Absolute"}, "lower-case letters"),
        (OBJECTIVE, {"student_streams": 0}, "takes 0 streams"),
        (OBJECTIVE, {"unit": "word"}, "unit is 'word'; give one of token"),
        (OBJECTIVE, {"by_token": True, "batch_coupled": True}, "by_token; its unit has to be 'token', without labels"),
        (OBJECTIVE, {"by_token": True, "unit": "pair"}, "by_token; its unit has to be 'token', without labels"),
        (OBJECTIVE, {"student_streams": 2}, "cannot be called with 4 tensors"),
        (OBJECTIVE, {"takes_labels": True}, "cannot be called with 3 tensors"),
        (OBJECTIVE, {"takes_heads": True}, "2 tensors, valid, heads: got an unexpected keyword argument 'heads'"),
        (OBJECTIVE, {"takes_projection": True}, "projection"),
        (OBJECTIVE, {"function": None}, "not a callable"),
    ],
)
def test_items_that_recipes_could_not_name_or_training_not_call(item, changes, said):
    message = refused(register_method if item is METHOD else register_objective, dataclasses.replace(item, **changes))
    assert "cannot be added" in message and said in message
    assert "mine" not in METHODS and "absolute" not in OBJECTIVES


@pytest.mark.parametrize(
    ("add", "item", "said"),
    [
        (register_as_objective(unit="token", name="mine"), 3, "it is not a function"),
        (register_as_method(name="mine"), lambda options, pairing: [], "'mine' cannot be added: it has no summary"),
        (register_as_method(summary="Nameless."), functools.partial(compose), "lower-case letters"),
        (
            functools.partial(OBJECTIVES.add, "mine"),
            absolute,
            "not limbeck.objectives.registry.Objective. For a function, put",
        ),
        (
            functools.partial(METHODS.add, "mine"),
            compose,
            "not limbeck.methods.composition.Method. For a function, put @register_as",
        ),
        (
            functools.partial(METHODS.add, "mine"),
            {"name": "mine"},
            "'mine' is a dict, not limbeck.methods.composition.Method.",
        ),
        (functools.partial(Registry("thing").add, "mine"), 1, "A thing cannot be added from outside"),
    ],
)
def test_things_that_are_neither_a_function_nor_an_item(add, item, said):
    assert said in refused(add, item)


def test_names_are_not_taken_twice_and_only_items_from_outside_are_replaced():
    for add in BY_FIELDS:
        add()
        assert "already exists" in refused(add)
    for replace in (False, True):
        own = dataclasses.replace(METHOD, name="minilm")
        assert "'minilm' already" in refused(register_method, own, replace=replace)
        assert "'minilm' already" in refused(register_as_method(name="minilm", replace=replace), compose)
        decorator = register_as_objective(unit="token", name="relation_kl", replace=replace)
        assert "'relation_kl' already" in refused(decorator, absolute)
    newer = dataclasses.replace(METHOD, summary="Newer.")
    assert register_method(newer, replace=True) is METHODS["mine"] is newer
    register_as_objective(unit="row", replace=True)(absolute)
    assert OBJECTIVES["absolute"].unit == "row"


@pytest.mark.parametrize("point", [None, PluginPoint("limbeck.none", object, "", lambda item: None, type)])
def test_only_an_open_registry_speaks_of_plugins(point):
    registry = Registry("thing", plugins=point)
    registry.register("known", 1)
    with pytest.raises(Exception, match=r"Unknown thing 'knwon'\. Did you mean 'known'\? Known: known\.") as caught:
        registry["knwon"]
    assert ("Register your own things with --plugin FILE, or import that file." in str(caught.value)) == (
        point is not None
    )


def test_an_objective_is_counted_and_measured_by_its_hooks():
    def distance(student, other_student, teacher, other_teacher, *, valid, scale=1.0):
        total = (student - teacher).abs().sum() + (other_student - other_teacher).abs().sum()
        return LossTerm(total * scale, valid.sum())

    def inputs(case, normal):
        student, teacher = ([normal(case.batch, case.length, case.student_width) for _ in "ab"] for _ in "st")
        return student, teacher, {"scale": 2.0}

    hooks = {
        "operations": lambda work: 3 * sum(work.lengths) * work.student_width * work.student_streams,
        "benchmark": Benchmark({"plain": distance, "other": distance}, inputs, lambda case: case.batch, sizes=()),
    }
    register_as_objective(unit="token", name="mine", **hooks)(absolute)
    shape = shape_of(BertConfig(hidden_size=8, num_attention_heads=2))
    assert loss_operations(Term("t", "mine", KEY, KEY), shape, shape, [5, 2]) == 3 * 7 * 8
    rows = measure_losses([LossCase("mine", 2, 4, student_width=3)], seconds=0.01, memory=False)
    assert [row["backend"] for row in rows] == ["plain", "other"]
    assert {row[size] for row in rows for size in ("heads", "classes", "relation")} == {None}
    assert all(row["gradient_error"] == 0 for row in rows)
