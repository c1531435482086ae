"""Teachings that are no model: a dictionary of vectors teaches a student, and what it cannot give is refused."""

import json
import sys
from importlib import util
from pathlib import Path

import pytest
import torch
from rich.console import Console

import limbeck
from limbeck.corpus.batches.batch import read_batch
from limbeck.errors import RecipeError
from limbeck.models.streams import StreamKey
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.corpora import build_corpora
from limbeck.training.held_stage import HeldStage
from limbeck.training.run_tokenizers import load_tokenizers
from limbeck.training.teaching.models import TeacherModels
from tests.support.recipes import recipe_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_teaching.py"
WIDTH = 6


@pytest.fixture(scope="module", autouse=True)
def example():
    """The module of the example, which registers its teaching: once in a process, since the name is taken then."""
    if "own_teaching" in sys.modules:
        return sys.modules["own_teaching"]
    spec = util.spec_from_file_location("own_teaching", EXAMPLE)
    module = util.module_from_spec(spec)
    sys.modules["own_teaching"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path):
    """A recipe that is taught sentence vectors by a dictionary of all its texts."""
    method = {"name": "sentence_embedding", "pooling": "mean", "hidden_weight": 0}
    recipe = recipe_of(bert_folder, text_folder, method, output=str(tmp_path / "run"))
    plan = plan_run(load_recipe(recipe))
    (corpus,) = build_corpora(plan, load_tokenizers(plan).of_stage, Console(quiet=True))
    generator = torch.Generator().manual_seed(0)
    vectors = {}
    for rows in (corpus.train, corpus.held_out):
        for row in rows:
            key = " ".join(map(str, row["input_ids"]))
            vectors[key] = torch.randn(WIDTH, generator=generator).tolist()
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(vectors))
    recipe["teacher"]["teaching"] = {"name": "dictionary", "path": str(path)}
    return recipe


def test_a_dictionary_teaches_a_student(recipe):
    result = limbeck.distill(recipe)
    stage = result.record["stages"][0]
    assert stage["teacher"] == "vectors of a dictionary"
    assert 0 < stage["final_loss"] < 2


def test_a_model_is_loaded_only_where_it_teaches(recipe, monkeypatch):
    monkeypatch.setattr("limbeck.training.teaching.models.load_model", lambda *_, **__: pytest.fail("loaded"))
    plan = plan_run(load_recipe(recipe))
    (stage,) = plan.stages
    teaching = TeacherModels(plan.teacher_info).open(stage, stage.terms)
    assert teaching.facts.widths == {"pooled": WIDTH}


def test_what_it_cannot_give_is_refused(recipe):
    recipe["stages"][0]["method"] = {"name": "minilmv2"}
    with pytest.raises(RecipeError, match="vectors of a dictionary' has none; choose a method on sentence vectors"):
        limbeck.distill(recipe)
    recipe["stages"][0]["method"] = {"name": "sentence_embedding", "hidden_weight": 1.0}
    with pytest.raises(RecipeError, match="reads the layers of a model"):
        limbeck.distill(recipe)


def test_an_unknown_teaching_and_unknown_options_are_refused(recipe):
    recipe["teacher"]["teaching"] = {"name": "dictionaries"}
    with pytest.raises(RecipeError, match="Unknown teaching 'dictionaries'. Did you mean 'dictionary'"):
        limbeck.distill(recipe)
    recipe["teacher"]["teaching"] = {"name": "dictionary", "file": "x"}
    with pytest.raises(RecipeError, match="does not take the options"):
        limbeck.distill(recipe)


def test_a_stage_is_held_without_a_folder(recipe, tmp_path):
    stage = HeldStage(plan_run(load_recipe(recipe)))
    batch = next(iter(stage.batches()))
    streams = stage.module.teaching.read(read_batch(batch))
    assert streams[StreamKey("pooled", 0)].shape == (len(batch["input_ids"]), WIDTH)
    loss = stage.loss(batch)
    loss.backward()
    assert loss.isfinite()
    assert any(parameter.grad is not None for parameter in stage.module.student.parameters())
    stage.close()
    assert not (tmp_path / "run").exists()
