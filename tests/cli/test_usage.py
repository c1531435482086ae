"""Mistakes in a call: one line on standard error, the exit code 2, and where to look."""

import shlex
from pathlib import Path

import pytest
import yaml

from tests.support import mapping_search, shape_search, teacher_layer_search
from tests.support.commands import assert_one_line_error
from tests.support.comparisons import mixed_plan, write_teacher
from tests.support.models import make_teacher
from tests.support.recipes import recipe_of
from tests.support.task_files import CHUNKS, write_tasks
from tests.support.training import interrupt

TABLE = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
REFUSED = [(command.replace("{}", call), parts) for command, rows in TABLE.items() for call, *parts in rows]
LONG = [
    (f"benchmark loss --lengths {'9' * 5000}", ["--lengths '999", "…'"]),
    (f"inspect attention {{teacher}} --sentence '{'text ' * 130}' --json", ["132 tokens", "takes at most 128"]),
]


@pytest.fixture(scope="module")
def places(bert_folder, text_folder, tmp_path_factory):
    """Files and folders that calls name."""
    folder = tmp_path_factory.mktemp("places")
    contents = {
        "recipe": recipe_of(bert_folder, text_folder, output=str(folder / "run")),
        "plan": mixed_plan(write_teacher(folder / "compared"), text_folder),
    }
    for search in (mapping_search, shape_search, teacher_layer_search):
        teacher = search.write_teacher(folder / search.NAME)
        contents[search.NAME.replace("-", "_")] = search.recipe_data(teacher, text_folder)
    found = {name: folder / f"{name}.yaml" for name in contents} | {"folder": folder, "teacher": bert_folder}
    for name, content in contents.items():
        found[name].write_text(yaml.safe_dump(content), encoding="utf-8")
    for name, text in {"texts": "A text.\n" * 16, "chunks": CHUNKS * 10}.items():
        found[name] = folder / f"{name}.txt"
        found[name].write_text(text, encoding="utf-8")
    return found | {"tasks": write_tasks(folder / "tasks"), "mpnet": make_teacher(folder, "mpnet")}


@pytest.mark.parametrize(("call", "parts"), [*REFUSED, *LONG], ids=lambda value: str(value)[-60:])
def test_one_line(limbeck, places, tmp_path, call, parts):
    done = limbeck(*shlex.split(call.format(**places, out=tmp_path / "out")))
    assert "secret" not in assert_one_line_error(done, 2, *parts)
    assert done.stdout == ""
    assert not (call.startswith(("compare", "export")) and (tmp_path / "out").exists()), "the call is checked before"


@pytest.mark.parametrize("command", ["validate", "distill"])
def test_mistakes_of_a_recipe_have_a_line_each(limbeck, places, tmp_path, command):
    recipe = yaml.safe_load(places["recipe"].read_text(encoding="utf-8"))
    recipe["sed"], recipe["student"] = 1, "6by384"
    recipe["corpus"] |= {"held_out": "many", "sources": ["./nowhere.txt", "./never.txt"]}
    recipe["stages"][0]["method"] = "minilm2"
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    done = limbeck(command, path)
    assert (done.returncode, done.stdout) == (2, "")
    beginnings = (
        "recipe: unknown key 'sed'. Did you mean 'seed'?", "corpus.held_out is 'many'; give a number.",
        "stages.0.method: Unknown method 'minilm2'. Did you mean 'minilmv2'?", "Cannot read the student '6by384'",
        "Corpus source './nowhere.txt' does not exist", "Corpus source './never.txt' does not exist",
    )  # fmt: skip
    for line, beginning in zip(done.stderr.splitlines(), beginnings, strict=True):
        assert line.startswith(f"error: {beginning}")


@pytest.mark.parametrize("command", ["validate", "distill"])
def test_mistakes_of_training_arguments_have_a_line_each(limbeck, places, tmp_path, command):
    """They are told once the others are mended: their types come from a class that imports torch."""
    recipe = yaml.safe_load(places["recipe"].read_text(encoding="utf-8"))
    recipe["stages"][0]["training"] = {"learning_rate": "fast", "max_stepz": 4}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    done = limbeck(command, path)
    assert (done.returncode, done.stdout) == (2, "")
    rate, steps = done.stderr.splitlines()
    assert rate.startswith("error: stages.0.training.learning_rate is 'fast'")
    assert "max_stepz" in steps and "max_steps" in steps


@pytest.mark.parametrize("arguments", [[], ["benchmark"], ["search"], ["inspect"]])
def test_a_group_alone_shows_its_help(limbeck, arguments):
    done = limbeck(*arguments)
    assert "Usage: " in done.stdout + done.stderr
    assert "error:" not in done.stderr
    assert done.returncode == 2


def test_ctrl_c_stops_with_130(limbeck, monkeypatch):
    monkeypatch.setattr("limbeck.recipe.shipped.read_shipped", interrupt)
    assert limbeck("recipe", "--example") == (130, "", "Stopped.\n")
