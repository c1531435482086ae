"""Recipes load, are overridden, and say what they hold."""

import copy

import pytest
import yaml

from limbeck.core.yaml import parse_yaml
from limbeck.errors import RecipeError
from limbeck.recipe import Recipe, dump_recipe, load_recipe
from limbeck.recipe.load import read_shipped
from limbeck.recipe.schema import recipe_schema


def test_overrides_reach_lists_and_new_keys_and_leave_their_input(tiny_recipe):
    overrides = ["stages.0.training.learning_rate=1e-4", "student.initialise.layers=[1, 3]", "seed=8", "seed=7"]
    before = copy.deepcopy(tiny_recipe)
    for recipe in (load_recipe(tiny_recipe, overrides), load_recipe(load_recipe(tiny_recipe), overrides)):
        assert isinstance(recipe, Recipe)
        assert recipe.stages[0].training["learning_rate"] == pytest.approx(1e-4)
        assert (recipe.student.initialise.layers, recipe.seed) == ([1, 3], 7)
    assert tiny_recipe == before


def test_options_of_a_bare_method_can_be_set(tiny_recipe):
    tiny_recipe["stages"][0]["method"] = "minilmv2"
    recipe = load_recipe(tiny_recipe, ["stages.0.method.relation_heads=12"])
    assert recipe.stages[0].method == {"name": "minilmv2", "relation_heads": 12}


def test_stages_of_one_name_are_refused(tiny_recipe):
    tiny_recipe["stages"] *= 2
    with pytest.raises(RecipeError, match="same name"):
        load_recipe(tiny_recipe)


def test_a_resolved_recipe_loads_to_itself(tiny_recipe):
    tiny_recipe["stages"] += [{"method": {"name": "tinybert", "mapping": {1: 3, 2: [3, 4]}}}]
    recipe = load_recipe(tiny_recipe)
    assert load_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe


def test_shipped_recipes_are_valid_also_by_the_schema():
    jsonschema = pytest.importorskip("jsonschema")
    schema = recipe_schema()
    for name in ("example", "quickstart"):
        data = parse_yaml(read_shipped(name), name)
        assert load_recipe(data).stages
        jsonschema.validate(data, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"teacher": {"modle": "x"}}, schema)
