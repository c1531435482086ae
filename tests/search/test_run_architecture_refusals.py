"""What a search of shapes refuses: one line each, before anything is trained."""

from pathlib import Path

import pytest
from optuna.study import get_all_study_names

from limbeck.errors import CorpusError, LimbeckError, OutputError, RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.search.architecture import ArchitectureSearch, MeasuringRequest, search_architecture
from limbeck.search.shape_space import ShapeLimits, ShapeSizes
from limbeck.search.study import open_storage
from tests.support import shape_search
from tests.support.corpora import write_text
from tests.support.models import make_teacher
from tests.support.shape_search import make_request, recipe_data


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    return recipe_data(shape_search.write_teacher(folder), write_text(folder / "text"))


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    found = shape_search.install(monkeypatch)
    yield found
    assert not found.batches


def sizes(**changes):
    usual = {"layers": (1, 2), "hidden": (8, 16), "heads": (2,), "ffn": (2,)}
    return ShapeSizes(**{**usual, **changes})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "--trials 0 leaves nothing to do; give 1 or more"),
        ({"batch": 0}, "--batch 0 leaves nothing to do"),
        ({"workers": -1}, "--workers -1 leaves nothing to do"),
        ({"steps": 0}, "--steps 0 leaves nothing to do"),
        ({"steps": 10**20}, "--steps 10{20} is more than any training takes; give at most 1,000,000,000"),
        ({"name": " "}, "--name is empty"),
        ({"sampler": "cmaes"}, r"Unknown sampler 'cmaes'\. Known: gp, nsga2, random, tpe"),
        ({"limits": ShapeLimits(parameters=100)}, "No shape has at most 100 parameters: the smallest, 1x8"),
        ({"limits": ShapeLimits(latency_share=0.0)}, "--max-latency-share 0 is no share"),
        ({"limits": ShapeLimits(latency_share=float("nan"))}, "--max-latency-share nan is no share"),
        ({"workers": 1025}, "--workers 1025 is more than any search takes; give at most 1,024"),
        ({"limits": ShapeLimits(latency_share=0.01)}, "No shape is within --max-latency-share 0.01: the smallest"),
        ({"measuring": MeasuringRequest("gpu")}, "There is no device 'gpu' here"),
        ({"measuring": MeasuringRequest("cpu", length=129)}, "--measure-length 129 is longer than the 128 tokens"),
        ({"measuring": MeasuringRequest("cpu", batch=0)}, "--measure-batch 0 leaves nothing to do"),
        ({"sizes": sizes(heads=(2, 7))}, "--heads 7 is in no shape that can be trained: 7 heads do not divide"),
        ({"sizes": sizes(layers=(2, 6))}, "--layers 6 is in no shape .*the student has 6 layers and the teacher 3"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_in_what_is_asked(recipe, tmp_path, options, message):
    with pytest.raises(RecipeError, match=message) as caught:
        search_architecture(make_request(recipe, tmp_path / "out", **{"sizes": sizes(), **options}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (["stages.0.training={num_train_epochs: 1}"], {"prune": True}, "The recipe counts epochs, .*--no-prune"),
        (
            ["stages=[{name: a, method: hidden_states}, {name: b, method: minilmv2}]"],
            {"prune": True},
            "The recipe has 2 stages, and candidates are stopped early only where it has one; give --no-prune",
        ),
        (["stages=[]"], {}, "The recipe has no stages"),
        (["stages.0.student={shape: 2x16h2}"], {}, "no stage trains the recipe's student"),
        (["student.initialise.checkpoint=elsewhere"], {}, "checkpoint is a model of one shape"),
        (["corpus.held_out=0"], {}, "0 blocks are held out, and students are compared on 3 or more"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_recipes_that_cannot_be_searched(recipe, tmp_path, changes, options, message):
    with pytest.raises(LimbeckError, match=message):
        changed = load_recipe(recipe, changes)
        search_architecture(make_request(changed, tmp_path / "out", **{"sizes": sizes(), **options}))


def test_students_deeper_than_the_teacher_are_refused(recipe, tmp_path):
    # The usual mapping of this method would take any depth.
    stage = {**recipe["stages"][0], "method": {"name": "minilmv2", "relation_heads": 4}}
    request = make_request({**recipe, "stages": [stage]}, tmp_path / "out", sizes=sizes(layers=(2, 3, 6)))
    with pytest.raises(RecipeError, match="^--layers 6 is deeper than the teacher, which has 3 layers; list at most 3"):
        search_architecture(request)


def test_texts_are_as_long_as_the_teacher_takes_where_no_length_is_given(recipe, tmp_path):
    short = make_teacher(tmp_path, "bert", layers=3, hidden=16, heads=4, ffn=32, max_position_embeddings=64)
    for teacher, length in ((short, 64), (recipe["teacher"]["model"], 128)):
        changed = recipe | {"teacher": {"model": str(teacher)}}
        request = make_request(changed, tmp_path / "out", sizes=sizes(), measuring=MeasuringRequest("cpu"))
        assert ArchitectureSearch(request).latency.length == length


def test_labelled_rows_are_refused(recipe, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "some text,0\nother text,1\n" * 10, encoding="utf-8")
    corpus = {"sources": [str(rows)], "length": 24, "task": {"kind": "regression", "label_column": "label"}}
    changed = {**recipe, "corpus": corpus, "stages": [{"method": "hidden_states", "training": {"max_steps": 2}}]}
    with pytest.raises(RecipeError, match=r"learns from labelled rows \(regression\)"):
        search_architecture(make_request(changed, tmp_path / "out", sizes=sizes()))


def test_storages_that_cannot_be_used(recipe, tmp_path):
    with pytest.raises(RecipeError, match=r"Unknown storage 'postgrsql'\. Did you mean 'postgresql'"):
        search_architecture(make_request(recipe, tmp_path / "out", sizes=sizes(), storage="postgrsql://host/name"))
    with pytest.raises(OutputError, match="Storage sqlite:////nowhere/at/all.db cannot be reached"):
        search_architecture(
            make_request(recipe, tmp_path / "out", sizes=sizes(), storage="sqlite:////nowhere/at/all.db")
        )


def test_folders_that_hold_something_else_are_left_as_they_are(recipe, tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="holds no search; choose an empty or new folder"):
        search_architecture(make_request(recipe, tmp_path, sizes=sizes()))
    assert [path.name for path in Path(tmp_path).iterdir()] == ["notes.txt"]


def test_a_corpus_without_held_out_text_is_refused_before_there_is_a_study(recipe, tmp_path):
    with pytest.raises(CorpusError, match=r"raise corpus\.held_out"):
        search_architecture(make_request(load_recipe(recipe, ["corpus.held_out=0"]), tmp_path / "out", sizes=sizes()))
    assert get_all_study_names(open_storage(tmp_path / "out" / "search.journal")) == []
