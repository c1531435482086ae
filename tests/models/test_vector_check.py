"""A teacher's sentence vectors are compared with those of sentence-transformers, and wrong ones are not taught."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import limbeck
from limbeck.diagnosis.sentence_vectors import find_vectors
from limbeck.errors import ModelError
from limbeck.models import vector_check
from limbeck.models.vector_check import NotLoadedError, check_vectors, compare_with_sentence_transformers, sample_texts
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.proxy import Proxy
from limbeck.training.record import RunRecord
from limbeck.training.vector_checks import compare_once
from tests.support.commands import assert_one_line_error
from tests.support.models import make_embedding, make_teacher
from tests.support.recipes import recipe_of
from tests.support.students import sentence_student

PROMPTS = {"prompts": {"query": "the river : ", "passage": "old stone : "}, "default_prompt_name": "passage"}


@pytest.fixture
def teacher(tmp_path):
    """A teacher with prompts, whose tokens are not pooled, and vectors that are not of length one."""
    folder = sentence_student(tmp_path, normalize=False, max_length=24)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    return folder


@pytest.fixture
def recipe(teacher, text_folder, tmp_path):
    made = recipe_of(teacher, text_folder, {"name": "sentence_embedding"}, output=str(tmp_path / "run"))
    made["student"] = {"shape": {"layers": 1, "hidden": 48, "heads": 4, "ffn": 96}}
    made["stages"][0]["training"]["max_steps"] = 1
    return made


@pytest.fixture
def compared(monkeypatch):
    """The models that were compared, by a comparison that finds limbeck's vectors wrong by `error`."""
    right, found = vector_check.own_vectors, SimpleNamespace(error=0.0, models=[])

    def vectors(source, texts):
        found.models.append(source.name)
        return right(source, texts) + found.error

    monkeypatch.setattr(vector_check, "own_vectors", vectors)
    return found


def test_vectors_of_every_role_and_length_are_those_of_the_library(teacher):
    texts = sample_texts()
    assert len(texts) == 32 and {role for _, role in texts} == {None, "query", "document"}
    assert ("", None) in texts and max(len(text) for text, _ in texts) > 5000
    assert 0 < compare_with_sentence_transformers(teacher) < 1e-5


@pytest.mark.parametrize("changed", [{"default_prompt_name": None}, {"prompts": {}, "default_prompt_name": None}])
def test_a_prompt_that_only_one_of_them_reads_is_a_difference(teacher, monkeypatch, changed):
    load = vector_check.load_in_library

    def other(folder):
        (folder / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS | changed))
        return load(folder)

    monkeypatch.setattr(vector_check, "load_in_library", other)
    assert compare_with_sentence_transformers(teacher) > vector_check.LARGEST_DIFFERENCE


def test_without_the_library_or_vectors_nothing_is_compared(teacher, tmp_path, monkeypatch):
    assert compare_with_sentence_transformers(make_teacher(tmp_path / "plain", layers=1)) is None
    monkeypatch.setattr(vector_check.importlib.util, "find_spec", lambda name: None)
    assert compare_with_sentence_transformers(teacher) is None


def test_vectors_that_change_with_the_texts_beside_them_are_refused(recipe, teacher, limbeck, tmp_path):
    tokenizer = json.loads((teacher / "tokenizer_config.json").read_text())
    (teacher / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"padding_side": "left"}))
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    assert_one_line_error(limbeck("validate", path), 2, "pads texts on the left, so a text's vector")
    done = limbeck("doctor", "--teacher", teacher, "--quiet")
    *_, finding, end = done.stdout.splitlines()
    assert done.returncode == 1 and "set padding_side to right in its tokenizer_config.json" in finding
    assert end == "limbeck works here, but this teacher's sentence vectors are not confirmed."
    assert "prompt" not in done.stderr, "what the library says of a default prompt is not limbeck's to say"


def test_a_model_that_reads_padding_is_refused_with_the_reason_and_not_as_a_fault(tmp_path):
    """ConvBERT's convolutions mix the padding of a batch into its tokens, whoever runs the model."""
    folder = make_embedding(tmp_path, "convbert")
    with pytest.raises(ModelError, match="reads the padding of a batch, so .* distil hidden states of a copy of"):
        compare_with_sentence_transformers(folder)


def test_a_run_compares_its_teacher_once(recipe, compared, teacher):
    difference = limbeck.distill(recipe).record["teacher_vectors"][str(teacher)]
    assert 0 < difference < 1e-5
    begun = RunRecord(Path(recipe["output"]), {})
    compare_once(plan_run(load_recipe(recipe)).vector_teachers, begun, Console(quiet=True))  # As when it is resumed.
    assert compared.models == [str(teacher)]


def test_a_model_that_the_library_does_not_load_is_taught_and_said_so(recipe, teacher, monkeypatch):
    monkeypatch.setattr(vector_check, "load_in_library", lambda folder: [][0])
    found = check_vectors(plan_run(load_recipe(recipe)).vector_teachers)
    assert found == {str(teacher): None}
    assert vector_check.describe_difference(None).startswith("not compared, since the installed sentence-transformers")
    with pytest.raises(NotLoadedError, match="sentence-transformers cannot load '.*list index out of range"):
        compare_with_sentence_transformers(teacher)


def test_wrong_vectors_are_not_taught(recipe, compared, limbeck, tmp_path):
    compared.error, path = 1.0, tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    for command in ("distill", "validate"):
        done = limbeck(command, path)
        # A random start says what it costs before.
        done = done._replace(stderr=done.stderr.splitlines()[-1])
        assert_one_line_error(done, 2, "from those of sentence-transformers, but only 0.001 is allowed")
    with pytest.raises(ModelError, match=r"up to 0.3\d? from those"):
        Proxy(plan_run(load_recipe(recipe)), console=Console(quiet=True))
    recipe["stages"][0]["method"] = {"name": "minilmv2", "relation_heads": 4}
    assert plan_run(load_recipe(recipe)).vector_teachers == {}


def test_validate_and_doctor_say_how_far_they_are(recipe, compared, limbeck, tmp_path, teacher):
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    (said,) = [line for line in limbeck.shown("validate", path).splitlines() if line.startswith("sentence vectors of")]
    assert re.search(r": at most \d\.\de-0[67] from those of sentence-transformers, on 32 texts$", said)
    (good,) = find_vectors(str(teacher))
    compared.error = 1.0
    (bad,) = find_vectors(str(teacher))
    assert (good.status, bad.status) == ("ok", "failed") and "at most 3.1e-01 from" in bad.text
    (none,) = find_vectors(str(make_teacher(tmp_path / "plain", layers=1)))
    assert none.status == "absent"
    (teacher / "model.safetensors").unlink()
    assert "sentence vectors of" not in limbeck.shown("validate", path), "a recipe can be planned without weights"
