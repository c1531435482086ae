"""Methods and objectives from outside are held to what recipes and training need, each with one line."""

import dataclasses
import re

import pytest
import torch
from pydantic import Field

from limbeck.core.registry import PluginPoint, Registry
from limbeck.errors import PluginError
from limbeck.methods import METHODS, Method, MethodOptions, Term, register_method
from limbeck.models.streams import StreamKey
from limbeck.objectives import OBJECTIVES, LossTerm, Objective, register_objective
from limbeck.recipe.method_recipe import method_recipe, method_terms
from limbeck.recipe.schema import recipe_schema


class Options(MethodOptions):
    share: float = Field(default=0.5, ge=0, le=1, description="A share.")


class Demanding(MethodOptions):
    share: float


class Named(MethodOptions):
    name: str = "x"


def compose(options, pairing):
    key = (StreamKey("hidden", 1),)
    return [Term("mine", "absolute", key, key, options.share)]


def absolute(student, teacher, *, valid=None):
    difference = (student - teacher).abs()
    return LossTerm(difference.sum(), torch.tensor(float(difference.numel())))


METHOD = Method("mine", "What is mine.", Options, compose)
OBJECTIVE = Objective("absolute", absolute, 1, "token", takes_valid=True)


def refused(add, item, **changes):
    with pytest.raises(PluginError) as caught:
        add(dataclasses.replace(item, **changes) if changes else item)
    return str(caught.value)


def test_a_method_takes_part_like_any_other():
    assert register_objective(OBJECTIVE) is OBJECTIVE
    assert register_method(METHOD) is METHOD
    assert METHODS["mine"] is METHOD
    assert list(METHODS)[-1] == "mine"
    assert "name: mine" in method_recipe("mine")
    (stage, terms), *_ = method_terms("mine")[1]
    assert (stage, terms[0].objective, terms[0].unit) == ("mine", "absolute", "token")
    methods = recipe_schema()["$defs"]["StageSpec"]["properties"]["method"]["anyOf"]
    assert "mine" in methods[0]["enum"]
    assert methods[-1]["properties"]["share"]["default"] == 0.5


def test_names_are_not_taken_twice():
    assert "'minilm' already" in refused(register_method, METHOD, name="minilm")
    register_method(METHOD)
    assert "'mine' already" in refused(register_method, METHOD)
    assert "'relation_kl' already" in refused(register_objective, OBJECTIVE, name="relation_kl")


def test_only_what_came_from_outside_is_replaced():
    register_method(METHOD)
    newer = dataclasses.replace(METHOD, summary="Newer.")
    assert register_method(newer, replace=True) is METHODS["mine"] is newer
    with pytest.raises(PluginError, match="'minilm' already"):
        register_method(dataclasses.replace(METHOD, name="minilm"), replace=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "My Method"}, "small letters"),
        ({"options": dict}, "no subclass of limbeck.methods.MethodOptions"),
        ({"options": Demanding}, "option 'share' has no default"),
        ({"options": Named}, "an option is called 'name'"),
        ({"compose": None}, "compose is no function"),
        ({"tasks": ("text", "poetry")}, "poetry.*give some of text, classification"),
        ({"tasks": ()}, "give some of text"),
    ],
)
def test_methods_that_recipes_could_not_name(changes, said):
    message = refused(register_method, METHOD, **changes)
    assert "cannot be added" in message
    assert re.search(said, message)
    assert not [name for name, method in METHODS.items() if method.summary == METHOD.summary]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "Absolute"}, "small letters"),
        ({"student_streams": 0}, "takes 0 streams"),
        ({"unit": "word"}, "unit is 'word'; give one of token"),
        ({"student_streams": 2}, "cannot be called with 4 tensors"),
        ({"takes_labels": True}, "cannot be called with 3 tensors"),
        ({"takes_heads": True}, "with 2 tensors, valid, heads: got an unexpected keyword argument 'heads'"),
        ({"takes_projection": True}, "projection"),
        ({"function": None}, "not a callable"),
    ],
)
def test_objectives_that_training_could_not_call(changes, said):
    message = refused(register_objective, OBJECTIVE, **changes)
    assert "cannot be added" in message
    assert said in message
    assert "absolute" not in OBJECTIVES


def test_a_registry_without_a_plugin_point_stays_closed():
    closed = Registry("thing")
    with pytest.raises(PluginError, match="Nothing can be added to the registry of things"):
        closed.add("mine", 1)


def test_only_an_open_registry_speaks_of_plugins():
    for registry, speaks in (
        (Registry("thing"), False),
        (Registry("thing", plugins=PluginPoint("limbeck.none", lambda name, item: item)), True),
    ):
        registry.register("known", 1)
        with pytest.raises(Exception, match=r"Unknown thing 'knwon'\. Did you mean 'known'\? Known: known\.") as caught:
            registry["knwon"]
        assert ("Your own things come with --plugin FILE." in str(caught.value)) == speaks
