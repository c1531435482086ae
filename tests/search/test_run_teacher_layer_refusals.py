"""What a search of teacher layers refuses: one line each, before anything is trained."""

import pytest
from optuna.study import get_all_study_names

from limbeck.errors import CorpusError, LimbeckError, OutputError, RecipeError
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.search.engine import methods_with
from limbeck.search.study import open_storage
from limbeck.search.teacher_layer import search_teacher_layer
from tests.support import teacher_layer_search
from tests.support.teacher_layer_search import make_request

recipe, raced = teacher_layer_search.recipe, teacher_layer_search.raced


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": (3, 5)}, "--layers names layer 5, but this teacher has layers 1 to 4"),
        ({"layers": (0, 1)}, "--layers names layer 0, but this teacher has layers 1 to 4"),
        ({"layers": (2, 2)}, "1 candidate leaves nothing to choose; give --layers two or more of 1 to 4"),
        ({"halving": 1}, "A halving factor of 1 drops no candidate"),
        ({"steps": 1}, "1 steps are too few for 2 rounds of 4 candidates"),
        ({"steps": 0}, "--steps 0 leaves nothing to do"),
        ({"steps": 10**20}, "--steps 10{20} is more than any training takes; give at most 1,000,000,000"),
        ({"steps_total": 10**9 + 1}, "--steps-total 1000000001 is more than any training takes"),
        ({"steps_total": 7}, "7 steps for 4 candidates in 2 rounds leave some without a step; give at least 8"),
        ({"steps_total": 3, "halving": None}, "--steps-total 3 leaves some of 4 candidates without a step"),
        ({"steps_total": 9, "steps": 9}, "--steps and --steps-total both say how long candidates train"),
        ({"storage": "postgrsql://host/name"}, "Unknown storage 'postgrsql'. Did you mean 'postgresql'"),
    ],
    ids=str,
)
def test_mistakes_in_what_is_asked(recipe, raced, tmp_path, options, message):
    with pytest.raises(RecipeError, match=message) as caught:
        search_teacher_layer(make_request(recipe, tmp_path / "out", **options))
    assert "\n" not in str(caught.value) and not raced


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["stages.0.method=tinybert"],
            "'tinybert' reads no teacher layer by number; methods that do are direct_minilm, minilmv2",
        ),
        (["student.shape=6x8h4"], "The student has 6 layers and its teacher 4; give student.shape at most 4"),
        (["stages=[]"], "The recipe has no stages, so no teacher layer is read"),
        (["stages=[{name: a, method: minilmv2}, {name: b, method: direct_minilm}]"], "The stages a, b each read a"),
        (
            ["stages=[{name: a, method: minilmv2}, {name: b, method: hidden_states}]"],
            "has 2 stages, and candidates are stopped early only where it has one; give --no-halving",
        ),
        (["stages.0.training={}"], "The recipe counts epochs, .*give --steps, or --no-halving"),
        (["corpus.held_out=0"], "No text is held out"),
    ],
    ids=str,
)
def test_recipes_that_cannot_be_searched(recipe, tmp_path, changes, message):
    with pytest.raises(LimbeckError, match=message):
        search_teacher_layer(make_request(load_recipe(recipe, changes), tmp_path / "out"))


def test_methods_that_can_be_searched_read_one_teacher_layer():
    known = methods_with("teacher_layer")
    assert {"minilmv2", "direct_minilm"} <= set(known)
    assert all("teacher_layer" in METHODS[name].options.model_fields for name in known)


def test_a_study_of_something_else_is_refused(recipe, raced, tmp_path):
    search_teacher_layer(make_request(recipe, tmp_path / "out"))
    for changed, options, key in (
        ({**recipe, "seed": 4}, {}, "seed"),
        (recipe, {"layers": (2, 3)}, r"stages\.0\.training\.max_steps|layers"),
        (recipe, {"steps": 30}, r"stages\.0\.training\.max_steps"),
    ):
        with pytest.raises(OutputError, match=f"was made for another ({key})"):
            search_teacher_layer(make_request(changed, tmp_path / "out", **options))
    with pytest.raises(OutputError, match="holds the search teacher-layer 'teacher-layer', not teacher-layer 'other'"):
        search_teacher_layer(make_request(recipe, tmp_path / "out", name="other"))
    assert len(raced) == 1


def test_without_enough_held_out_text_nothing_is_trained(recipe, tmp_path):
    with pytest.raises(CorpusError, match="No text is held out"):
        search_teacher_layer(make_request(load_recipe(recipe, ["corpus.held_out=0"]), tmp_path / "out"))
    # There is no study yet that other text would not fit.
    assert get_all_study_names(open_storage(tmp_path / "out" / "search.journal")) == []
