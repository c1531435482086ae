"""Recipes load, are overridden, and say what they hold."""

import copy
import json

import pytest
import yaml
from pydantic import Field

from limbeck.core.strict import Strict, descriptions
from limbeck.core.yaml import dump_yaml, parse_yaml
from limbeck.corpus.sources.file_sources import check_files
from limbeck.errors import CorpusError, RecipeError
from limbeck.recipe import Recipe, dump_recipe, load_recipe
from limbeck.recipe.json_schema import recipe_schema
from limbeck.recipe.shipped import read_shipped


def test_overrides_reach_lists_and_new_keys_and_leave_their_input(tiny_recipe):
    overrides = ["stages.0.training.learning_rate=1e-4", "student.initialise.layers=[1, 3]", "seed=8", "seed=7"]
    before = copy.deepcopy(tiny_recipe)
    for recipe in (load_recipe(tiny_recipe, overrides), load_recipe(load_recipe(tiny_recipe), overrides)):
        assert isinstance(recipe, Recipe)
        assert recipe.stages[0].training["learning_rate"] == pytest.approx(1e-4)
        assert (recipe.student.initialise.layers, recipe.seed) == ([1, 3], 7)
    assert tiny_recipe == before


def test_paths_that_are_not_in_the_current_folder_are_looked_for_beside_the_recipe(tiny_recipe, tmp_path, monkeypatch):
    beside, here = tmp_path / "recipes", tmp_path / "here"
    for folder in (beside / "texts", here / "texts", beside / "only"):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("A text.\n")
    monkeypatch.chdir(here)
    sources = ["texts", "only/*.txt", "gone/", "installed-docs"]
    (beside / "recipe.yaml").write_text(dump_yaml(tiny_recipe | {"corpus": {"sources": sources}}))
    recipe = load_recipe("../recipes/recipe.yaml")
    assert recipe.corpus.sources == ["texts", "../recipes/only/*.txt", "gone/", "installed-docs"]
    message = r"'gone/' does not exist \(nor does '../recipes/gone', in the folder of the recipe\)"
    with pytest.raises(CorpusError, match=message):
        check_files("gone/")


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
    for name in ("example_text", "example_task", "quickstart"):
        data = parse_yaml(read_shipped(name), name)
        assert load_recipe(data).stages
        jsonschema.validate(data, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"teacher": {"modle": "x"}}, schema)


def test_a_task_file_is_no_recipe(tmp_path):
    path = tmp_path / "reviews.yaml"
    path.write_text("name: reviews\ntype: classification\nlabels: [bad, good]\nfiles: {train: reviews.csv}\n")
    message = (
        rf"is a task file, not a recipe\. .*limbeck distill --corpus {path}.*limbeck evaluate MODEL --tasks {path}"
    )
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)


def test_mistakes_are_told_together(tiny_recipe):
    tiny_recipe["nme"] = "x"
    tiny_recipe["corpus"] |= {"lenght": 3, "unit": "page"}
    tiny_recipe["stages"][0] |= {"method": "minilmv", "freeze": True}
    with pytest.raises(RecipeError) as caught:
        load_recipe(tiny_recipe)
    assert str(caught.value) == (
        "recipe: unknown key 'nme'. Did you mean 'name'?; corpus: unknown key 'lenght'. Did you mean 'length'?; "
        "corpus.unit is 'page'; give 'document', 'paragraph' or 'sentence'; "
        "stages.0: freeze is true, which has no meaning here: give a list such as [embeddings]; "
        "stages.0.method: Unknown method 'minilmv'. Did you mean 'minilmv2'? "
        "Register your own methods with --plugin FILE, or import that file."
    )


@pytest.mark.parametrize(
    ("wrong", "described"),
    [
        ({"stages": True}, "stages is true, which has no meaning here: give a list"),
        ({"teacher": {"name": True}}, "name is true, which has no meaning here: give text, in quotation marks"),
        ({"corpus": True}, "corpus is true, which has no meaning here: give a mapping such as {unit: …}"),
    ],
    ids=["list", "text", "mapping"],
)
def test_the_type_of_a_key_is_described(tiny_recipe, wrong, described):
    with pytest.raises(RecipeError) as caught:
        load_recipe(tiny_recipe | wrong)
    assert described in str(caught.value)


def test_what_follows_from_a_mistake_is_not_told_and_many_are_counted(tiny_recipe):
    tiny_recipe["corpus"] = {"sorces": ["a.txt"]}
    with pytest.raises(RecipeError) as caught:
        load_recipe(tiny_recipe)
    assert str(caught.value).startswith("corpus: unknown key 'sorces'. Did you mean 'sources'? Known: augment, ")
    assert "missing" not in str(caught.value)
    with pytest.raises(RecipeError, match=r"unknown key 'key5'\. .* \(and 3 more\)\.$"):
        load_recipe(tiny_recipe | {f"key{number}": number for number in range(8)})


class _Part(Strict):
    size: int = 1
    """Below
    the field."""
    own: int = Field(1, description="Of its own.")
    """Not read."""
    bare: int = 1


class _Longer(_Part):
    more: _Part = Field(default_factory=_Part)
    """Another part."""
    bare: int = 2
    """Said later."""


def test_a_field_is_described_by_the_docstring_below_it():
    said = {"size": "Below\nthe field.", "own": "Of its own.", "bare": ""}
    assert descriptions(_Part) == said
    assert descriptions(_Longer) == said | {"more": "Another part.", "bare": "Said later."}
    described = _Longer.model_json_schema()["properties"]
    assert {name: field["description"] for name, field in described.items()} == descriptions(_Longer)
    unread = type("Unread", (Strict,), {"__annotations__": {"size": int}, "__module__": "nowhere"})
    assert descriptions(unread) == {"size": ""}


def test_a_stage_may_be_the_name_of_its_method(tiny_recipe):
    loaded = load_recipe(tiny_recipe | {"stages": ["minilmv2"]}, "stages.0.training.max_steps=3")
    assert (loaded.stages[0].method, loaded.stages[0].training) == ({"name": "minilmv2"}, {"max_steps": 3})
    with pytest.raises(RecipeError, match=r"^stages\.0 is 3; give a mapping\.$"):
        load_recipe(tiny_recipe | {"stages": [3]})


def test_escapes_of_json_that_are_halves_of_one_character_are_joined():
    text = json.dumps({"labels": ["pos😀", "plain"], "😀": "é"})
    assert parse_yaml(text, "the file") == {"labels": ["pos😀", "plain"], "😀": "é"}
    assert parse_yaml(json.dumps(["half \ud83d"]), "the file") == ["half \ud83d"]
