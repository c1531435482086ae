"""Recipes load, are overridden, and are refused in one clear line."""

import pytest
import yaml

from limbeck.core.yaml import parse_yaml
from limbeck.errors import LimbeckError, RecipeError
from limbeck.recipe import Recipe, dump_recipe, load_recipe
from limbeck.recipe.load import apply_overrides, read_shipped
from limbeck.recipe.schema import recipe_schema


def test_overrides_reach_lists_and_new_keys(tiny_recipe):
    recipe = load_recipe(
        tiny_recipe, ["stages.0.training.learning_rate=1e-4", "student.initialise.layers=[1, 3]", "seed=7"]
    )
    assert recipe.stages[0].training["learning_rate"] == pytest.approx(1e-4)
    assert recipe.student.initialise.layers == [1, 3]
    assert recipe.seed == 7
    assert tiny_recipe["seed"] == 1


def test_options_of_a_bare_method_can_be_set(tiny_recipe):
    tiny_recipe["stages"][0]["method"] = "minilmv2"
    recipe = load_recipe(tiny_recipe, ["stages.0.method.relation_heads=12"])
    assert recipe.stages[0].method == {"name": "minilmv2", "relation_heads": 12}


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "+1e4", "1.5e-4", "6e-4"])
def test_rates_are_numbers(text):
    assert parse_yaml(f"rate: {text}", "test")["rate"] == pytest.approx(float(text))


@pytest.mark.parametrize("text", ["e", "1e", "abc1e-4", "v1e4"])
def test_words_stay_words(text):
    assert parse_yaml(f"word: {text}", "test")["word"] == text


def test_stages_of_one_name_are_refused(tiny_recipe):
    tiny_recipe["stages"] *= 2
    with pytest.raises(RecipeError, match="same name"):
        load_recipe(tiny_recipe)


def test_a_resolved_recipe_loads_to_itself(tiny_recipe):
    tiny_recipe["stages"] += [{"method": {"name": "tinybert", "mapping": {1: 3, 2: [3, 4]}}}]
    recipe = load_recipe(tiny_recipe)
    assert load_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe


def test_a_recipe_object_takes_overrides(tiny_recipe):
    recipe = load_recipe(load_recipe(tiny_recipe), ["seed=3"])
    assert isinstance(recipe, Recipe)
    assert recipe.seed == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- a\n- b\n", "must be a mapping"),
        (b"a: [1\n", "not valid YAML at line"),
        (b"", "must be a mapping"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"a: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
        (b"a: &a [*a, *a]\nb: *a", "contains itself"),
    ],
)
def test_files_that_are_no_recipes(tmp_path, content, message):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(LimbeckError, match=message):
        load_recipe(path)


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(RecipeError, match="recipe --example"):
        load_recipe(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["example", "quickstart"])
def test_shipped_recipes_are_valid(name):
    recipe = load_recipe(parse_yaml(read_shipped(name), name))
    assert recipe.stages


def test_the_schema_accepts_the_shipped_recipes_and_names_every_method():
    jsonschema = pytest.importorskip("jsonschema")
    schema = recipe_schema()
    for name in ("example", "quickstart"):
        jsonschema.validate(parse_yaml(read_shipped(name), name), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"teacher": {"modle": "x"}}, schema)


def test_apply_overrides_leaves_its_input(tiny_recipe):
    before = yaml.safe_dump(tiny_recipe)
    apply_overrides(tiny_recipe, ["stages.0.name=other"])
    assert yaml.safe_dump(tiny_recipe) == before
