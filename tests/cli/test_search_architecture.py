"""`limbeck search architecture` as a user types it."""

import json

import pytest
import yaml

from limbeck.cli.options import parse_multiples
from limbeck.errors import RecipeError
from limbeck.recipe.load import load_recipe, read_recipe
from limbeck.recipe.plan import plan_run
from tests.support.commands import assert_one_line_error
from tests.support.corpora import write_text
from tests.support.shape_search import recipe_data, write_teacher

SIZES = ["--layers", "1,2", "--hidden", "8,16", "--heads", "2", "--ffn", "1.5,2"]
QUICK = [
    "--trials",
    3,
    "--batch",
    3,
    "--steps",
    4,
    "--device",
    "cpu",
    "--measure-length",
    16,
    "--measure-seconds",
    0.05,
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shape-command")
    return write_teacher(folder), write_text(folder / "text", 30)


@pytest.fixture
def recipe(files, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_data(*files)), encoding="utf-8")
    return path


def test_from_a_recipe_to_the_recipe_of_the_best_shape(limbeck, recipe, tmp_path):
    output = tmp_path / "out"
    command = ["search", "architecture", recipe, *SIZES, *QUICK, "--max-parameters", "1M", "--max-latency-share", 99,
               "--output", output, "--quiet"]  # fmt: skip
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in ("Found: ", "Front of loss and latency", "Limits: 1,000,000 parameters and 99", "Recipe: "):
        assert part in done.stdout
    record = json.loads((output / "search.json").read_text(encoding="utf-8"))
    found = load_recipe(read_recipe(output / "recipe.yaml"))
    best = record["best"]
    student = plan_run(found).student
    assert [student.layers, student.hidden, student.heads, student.ffn] == [
        best[name] for name in ("layers", "hidden", "heads", "ffn")
    ]
    assert found.stages[0].training["max_steps"] == 30, "the steps were the proxy's"
    for name in ("search.md", "shapes.csv", "loss_and_latency.svg", "loss_and_latency.png", "search.journal"):
        assert (output / name).stat().st_size
    again = limbeck(*command, "--json")
    content = json.loads(again.stdout)
    assert content["shapes"] == record["shapes"] and len(content["files"]) == 6


def test_options_alone_are_enough(limbeck, files, tmp_path):
    done = limbeck(
        "search", "architecture", "--teacher", files[0], "--corpus", files[1], "--method", "hidden_states",
        "--layers", "1", "--hidden", "8,16", "--heads", "2", *QUICK, "--batch-size", 8, "--length", 24, "--set",
        "corpus.held_out=0.3", "--set", "stages.0.training.bf16=false", "--no-prune", "--output", tmp_path / "out",
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert {(one["layers"], one["hidden"], one["ffn"]) for one in record["shapes"]} == {(1, 8, 32), (1, 16, 64)}
    assert record["recipe"]["output"] == str(tmp_path / "out" / "run")
    assert "Corpus: " in done.stderr


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--layers", "3,x"], ["--layers '3,x' has to be whole numbers from 1 to"]),
        (["--ffn", "two"], ["--ffn 'two' has to be numbers above 0"]),
        (["--heads", "3"], ["No shape of these sizes can be trained: 3 heads do not divide"]),
        (["--heads", "2,3"], ["--heads 3 is in no shape that can be trained: 3 heads do not divide"]),
        (["--layers", "3,4"], ["--layers 4 is in no shape that can be trained", "the student has 4 layers"]),
        (["--max-parameters", "lots"], ["--max-parameters 'lots' is no number of parameters; write it like 30M"]),
        (["--max-parameters", "1k"], ["No shape has at most 1,000 parameters: the smallest, 1x8"]),
        (["--max-latency-share", "0.0001"], ["No shape is within --max-latency-share 0.0001: the smallest, 1x8"]),
        (["--sampler", "tpee"], ["Unknown sampler 'tpee'. Did you mean 'tpe'?"]),
        (["--storage", "mysqll://u:secret@h/d"], ["Unknown storage 'mysqll'. Did you mean 'mysql'?"]),
        (["--storage", "sqlite:////nowhere/s.db"], ["Storage sqlite:////nowhere/s.db cannot be reached"]),
        (["--device", "tpu9"], ["There is no device 'tpu9' here; use cpu"]),
        (["--trials", "0"], ["--trials 0 leaves nothing to do"]),
    ],
    ids=str,
)
def test_mistakes_are_said_in_one_line(limbeck, recipe, tmp_path, options, parts):
    done = limbeck("search", "architecture", recipe, *SIZES, *QUICK, *options, "--output", tmp_path / "out", "-q")
    line = assert_one_line_error(done, 2, *parts)
    assert "secret" not in line


def test_a_study_of_another_recipe_is_refused(limbeck, recipe, tmp_path):
    command = ["search", "architecture", recipe, *SIZES, *QUICK, "--output", tmp_path / "out", "-q", "--no-prune"]
    assert limbeck(*command, "--trials", 1).returncode == 0
    done = limbeck(*command, "--seed", 9)
    assert_one_line_error(done, 2, "was made for another seed: 3, not 9; continue it as it was made")


def test_multiples_are_whole_or_not():
    assert parse_multiples("--ffn", "2, 4,2.5") == [2, 4, 2.5]
    assert [type(number) for number in parse_multiples("--ffn", "2,2.5")] == [int, float]
    for text in ("", "0", "-1", "nan", "inf", "2;4"):
        with pytest.raises(RecipeError, match="--ffn '.*' has to be numbers above 0"):
            parse_multiples("--ffn", text)
