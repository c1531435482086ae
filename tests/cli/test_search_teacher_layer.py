"""`limbeck search teacher-layer` as a user types it."""

import json

import pytest
import yaml

from limbeck.recipe.load import load_recipe, read_recipe
from tests.support.commands import assert_one_line_error
from tests.support.corpora import write_text
from tests.support.models import make_teacher
from tests.support.shape_search import recipe_data


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layer-command")
    teacher = make_teacher(folder, "bert", layers=4, hidden=16, heads=4, ffn=32)
    return teacher, write_text(folder / "text", 30)


@pytest.fixture
def recipe(files, tmp_path):
    data = recipe_data(*files, student={"shape": "2x8h4"})
    data["stages"][0]["method"] = {"name": "minilmv2", "relation_heads": 4}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


def test_from_a_recipe_to_the_recipe_of_the_best_layer(limbeck, recipe, tmp_path):
    output = tmp_path / "out"
    command = ["search", "teacher-layer", recipe, "--layers", "1-3,4", "--steps", 6, "--output", output, "--quiet"]
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in ("Recommended: teacher layer ", "Step 2", "Step 6", "Successive halving: 4 to step 2, 2 to step 6"):
        assert part in done.stdout
    record = json.loads((output / "search.json").read_text(encoding="utf-8"))
    found = load_recipe(read_recipe(output / "recipe.yaml")).stages[0]
    assert found.method["teacher_layer"] == record["best"]["layer"] and found.training["max_steps"] == 30
    for name in ("search.md", "layers.csv", "layers.svg", "layers.png", "search.journal"):
        assert (output / name).stat().st_size
    again = limbeck(*command, "--json")
    content = json.loads(again.stdout)
    assert content["layers"] == record["layers"] and content["created"] == record["created"]


def test_without_halving_from_options_alone(limbeck, files, tmp_path):
    done = limbeck(
        "search", "teacher-layer", "--teacher", files[0], "--student", "2x8h4", "--corpus", files[1], "--method",
        "direct_minilm", "--layers", "3,4", "--steps-total", 6, "--no-halving", "--batch-size", 8, "--length", 24,
        "--set", "corpus.held_out=0.3", "--set", "stages.0.training.bf16=false", "--output", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert [row["steps"] for row in record["layers"]] == [3, 3]
    assert record["recipe"]["stages"][0]["method"]["teacher_layer"] == record["best"]["layer"]
    assert "2 teacher layers at once: 2 to step 3" in done.stderr


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--layers", "3-9"], ["--layers names layer 5, but this teacher has layers 1 to 4"]),
        (["--layers", "4-3"], ["--layers '4-3' cannot be read"]),
        (["--layers", "2"], ["1 candidate leaves nothing to choose"]),
        (["--set", "stages.0.method=tinybert"], ["'tinybert' reads no teacher layer by number; methods that do are"]),
        (["--steps-total", "4"], ["give at least 8"]),
        (["--halving", "1"], ["A halving factor of 1 drops no candidate"]),
        (["--halving", "100", "--no-halving"], ["--halving 100 and --no-halving contradict each other; give one"]),
        (["--storage", "sqlite:////nowhere/s.db"], ["Storage sqlite:////nowhere/s.db cannot be reached"]),
        (["--set", "corpus.held_out=0"], ["No text is held out"]),
    ],
    ids=str,
)
def test_mistakes_are_said_in_one_line(limbeck, recipe, tmp_path, options, parts):
    done = limbeck("search", "teacher-layer", recipe, *options, "--output", tmp_path / "out", "-q")
    assert_one_line_error(done, 2, *parts)
