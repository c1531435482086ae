"""`limbeck search` as a user types it, with real students: tables, files, going on, one-line errors."""

import json
from pathlib import Path

import pytest
import yaml

from limbeck.cli.search import KINDS, base_recipe, parse_layers, parse_multiples
from limbeck.errors import RecipeError
from limbeck.recipe.load import load_recipe, read_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search.requests import make_request, options_of
from tests.support import mapping_search, shape_search, teacher_layer_search
from tests.support.commands import assert_one_line_error
from tests.support.corpora import write_text
from tests.support.task_files import write_tasks

MAPPING = ("--steps", 2, "--share", 1, "--generations", 2, "--population", 3)
SIZES = ("--layers", "1,2", "--hidden", "8,16", "--heads", "2", "--ffn", "1.5,2")
MEASURING = ("--device", "cpu", "--measure-length", 16, "--measure-seconds", 0.05)
SHAPES = ("--trials", 3, "--batch", 3, "--steps", 4, *MEASURING)
PLAIN = ("--set", "stages.0.training.bf16=false", "--set", "corpus.held_out=0.3")
MAPPING_FILES = [
    "search.json", "recipe.yaml", "search.md", "generations.csv", "candidates.csv", "evolution.svg", "evolution.png",
    "distribution.svg", "distribution.png",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The teacher of each kind, text and tasks."""
    folder = tmp_path_factory.mktemp("search")
    teachers = {
        "mapping": mapping_search.write_teacher(folder / "mapping", layers=4),
        "architecture": shape_search.write_teacher(folder / "architecture"),
        "teacher-layer": teacher_layer_search.write_teacher(folder / "teacher-layer"),
    }
    return teachers, write_text(folder / "text", 30), write_tasks(folder / "tasks")


@pytest.fixture
def recipe(files, tmp_path):
    """Writes the recipe of a kind of search."""
    shape = {"shape": {"layers": 2, "hidden": 12, "heads": 2, "ffn": 16}}
    makers = {"mapping": mapping_search, "architecture": shape_search, "teacher-layer": teacher_layer_search}

    def write(kind) -> Path:
        changes = {"student": shape} if kind == "mapping" else {}
        path = tmp_path / f"{kind}.yaml"
        path.write_text(yaml.safe_dump(makers[kind].recipe_data(files[0][kind], files[1], **changes)), encoding="utf-8")
        return path

    return write


def found_in(output):
    record = json.loads((output / "search.json").read_text(encoding="utf-8"))
    return record, load_recipe(read_recipe(output / "recipe.yaml"))


def test_a_mapping_search_leaves_its_table_and_a_recipe_to_distil(limbeck, recipe, tmp_path):
    output = tmp_path / "out"
    command = ["search", "mapping", recipe("mapping"), *MAPPING, "--quiet", "--output", output]
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "Optuna says nothing of its own"
    record, found = found_in(output)
    assert sorted(path.name for path in output.iterdir()) == sorted([*MAPPING_FILES, "search.journal"])
    for row in record["generations"]:
        assert row["best_gene"] in done.stdout and f"{row['maximum']:.2f}" in done.stdout
    assert f"Recipe: {output / 'recipe.yaml'}" in done.stdout
    assert found.stages[0].method["mapping"] == record["best"]["mapping"]
    assert found.stages[0].training["max_steps"] == 50 and found.output == "run"
    assert limbeck("validate", output / "recipe.yaml").returncode == 0
    printed = json.loads(limbeck(*command, "--generations", 3, "--json").stdout)
    assert printed["generations"][:2] == record["generations"] and len(printed["generations"]) == 3
    assert [Path(path).name for path in printed["files"]] == MAPPING_FILES


def test_a_search_of_shapes_leaves_its_table_and_a_recipe_to_distil(limbeck, recipe, tmp_path):
    output = tmp_path / "out"
    command = ["search", "architecture", recipe("architecture"), *SIZES, *SHAPES, "--max-parameters", "1M",
               "--max-latency-share", 99, "--output", output, "--quiet"]  # fmt: skip
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in ("Found: ", "Front of loss and latency", "Limits: 1,000,000 parameters and 99", "Recipe: "):
        assert part in done.stdout
    record, found = found_in(output)
    student = plan_run(found).student
    assert all(getattr(student, name) == record["best"][name] for name in ("layers", "hidden", "heads", "ffn"))
    assert found.stages[0].training["max_steps"] == 30, "the steps were the candidates'"
    for name in ("search.md", "shapes.csv", "loss_and_latency.svg", "loss_and_latency.png", "search.journal"):
        assert (output / name).stat().st_size
    content = json.loads(limbeck(*command, "--json").stdout)
    assert content["shapes"] == record["shapes"] and len(content["files"]) == 6
    assert_one_line_error(limbeck(*command, "--seed", 9), 2, "was made for another seed: 3, not 9")


def test_a_search_of_layers_leaves_its_table_and_a_recipe_to_distil(limbeck, recipe, tmp_path):
    output = tmp_path / "out"
    command = ["search", "teacher-layer", recipe("teacher-layer"), "--layers", "1-3,4", "--steps", 6, "--output",
               output, "--quiet"]  # fmt: skip
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in ("Recommended: teacher layer ", "Step 2", "Step 6", "Successive halving: 4 to step 2, 2 to step 6"):
        assert part in done.stdout
    record, found = found_in(output)
    assert found.stages[0].method["teacher_layer"] == record["best"]["layer"]
    for name in ("search.md", "layers.csv", "layers.svg", "layers.png", "search.journal"):
        assert (output / name).stat().st_size
    content = json.loads(limbeck(*command, "--json").stdout)
    assert content["layers"] == record["layers"] and content["created"] == record["created"]


@pytest.mark.parametrize(
    ("kind", "options", "wanted"),
    [
        ("mapping",
         ["--student", "2x24", *MAPPING, "--tasks", "rte", "--data", "tasks", "--set-task", "length=32", "--set-task",
          "epochs=1", "--teacher-layers", "1-3"],
         {"teacher_layers": (1, 2, 3), "generations": 2}),
        ("architecture", [*SIZES, *SHAPES, "--no-prune"], {"trials": 3, "prune": False}),
        ("teacher-layer", ["--student", "2x8h4", "--layers", "3,4", "--steps-total", 6, "--no-halving"],
         {"layers": (3, 4), "halving": None}),
    ],
    ids=KINDS,
)  # fmt: skip
def test_a_run_is_described_by_options_alone(limbeck, files, tmp_path, monkeypatch, kind, options, wanted):
    asked = []
    monkeypatch.setattr("limbeck.cli.search._runner", lambda name: lambda request, console: asked.append(request))
    method = "direct_minilm" if kind == "teacher-layer" else "hidden_states"
    done = limbeck(
        "search", kind, "--teacher", files[0][kind], "--corpus", files[1], "--method", method, "--length", 24,
        "--batch-size", 8, "--seed", 5, *PLAIN, *options, "--output", tmp_path / "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [request] = asked
    recipe = request.proxy.recipe
    assert recipe.output == str(tmp_path / "out" / "run") and recipe.seed == 5 and recipe.corpus.held_out == 0.3
    assert recipe.stages[0].method["name"] == method
    assert recipe.stages[0].training["per_device_train_batch_size"] == 8 and recipe.corpus.length == 24
    if kind == "architecture":
        assert recipe.student.shape == "1x8h2", "one of the searched shapes stands in"
    assert wanted.items() <= vars(request).items()


@pytest.mark.slow
def test_two_workers_find_what_one_finds(limbeck, recipe, tmp_path):
    records = []
    for workers in (1, 2):
        output = tmp_path / f"out-{workers}"
        command = ["search", "mapping", recipe("mapping"), *MAPPING, "--quiet", "--workers", workers]
        done = limbeck(*command, "--output", output)
        assert done.returncode == 0, done.stderr
        records.append(json.loads((output / "search.json").read_text()))
    one, two = records
    assert [row["members"] for row in one["generations"]] == [row["members"] for row in two["generations"]]
    for mine, other in zip(one["generations"], two["generations"], strict=True):
        assert mine["mean"] == pytest.approx(other["mean"], abs=0.01)


@pytest.mark.parametrize(
    ("kind", "options", "parts"),
    [
        ("mapping", ["--parents", "bets"], ["Unknown parents 'bets'", "Did you mean 'best'?"]),
        ("mapping", ["--flip", "2"], ["flip 2.0", "0 to 1"]),
        ("mapping", ["--teacher-layers", "3-1"], ["--teacher-layers '3-1'", "1-8,10"]),
        ("mapping", ["--tasks", "sst2", "--data", "/nowhere"], ["'/nowhere' does not exist"]),
        ("mapping", ["--set", "student.shape.layers=5"], ["5", "4"]),
        ("mapping", ["--method", "minilmv2"], ["'minilmv2' takes no layer mapping", "elm"]),
        ("mapping", ["--generations", "0"], ["--generations 0"]),
        ("architecture", ["--layers", "3,x"], ["--layers '3,x' has to be whole numbers from 1 to"]),
        ("architecture", ["--ffn", "two"], ["--ffn 'two' has to be numbers above 0"]),
        ("architecture", ["--heads", "3"], ["No shape of these sizes can be trained: 3 heads do not divide"]),
        ("architecture", ["--max-parameters", "lots"], ["--max-parameters 'lots' is no number of parameters"]),
        ("architecture", ["--max-latency-share", "0.0001"], ["No shape is within --max-latency-share 0.0001"]),
        ("architecture", ["--sampler", "tpee"], ["Unknown sampler 'tpee'. Did you mean 'tpe'?"]),
        ("architecture", ["--storage", "mysqll://u:secret@h/d"], ["Unknown storage 'mysqll'. Did you mean 'mysql'?"]),
        ("architecture", ["--device", "tpu9"], ["There is no device 'tpu9' here; use cpu"]),
        ("teacher-layer", ["--layers", "4-3"], ["--layers '4-3' cannot be read"]),
        ("teacher-layer", ["--layers", "3-9"], ["--layers names layer 5, but this teacher has layers 1 to 4"]),
        ("teacher-layer", ["--halving", "100", "--no-halving"], ["--halving 100 and --no-halving contradict each"]),
        ("teacher-layer", ["--set", "corpus.held_out=0"], ["No text is held out"]),
    ],
    ids=str,
)
def test_mistakes_are_said_in_one_line(limbeck, recipe, tmp_path, kind, options, parts):
    usual = {"mapping": MAPPING, "architecture": (*SIZES, *SHAPES), "teacher-layer": ()}[kind]
    done = limbeck("search", kind, recipe(kind), *usual, *options, "--output", tmp_path / "out", "-q")
    assert "secret" not in assert_one_line_error(done, 2, *parts)


def test_without_a_recipe_the_run_has_to_be_described(limbeck, tmp_path):
    done = limbeck("search", "mapping", "--output", tmp_path / "out")
    assert_one_line_error(done, 2, "--teacher, --student, --corpus, --method")


@pytest.mark.parametrize("name", KINDS)
def test_every_option_reaches_the_request(name):
    kind = KINDS[name].request
    options = options_of(kind)
    usual = {key: option.given for key, option in options.items()} | {"recipe": None, "tasks": "sst2", "settings": []}
    texts = {"tasks": "mnli", "preset": "minilm", "parents": "best", "settings": ["epochs=3"]}
    request = make_request(kind, usual)
    for key, option in options.items():
        other = texts.get(key) or {int: 3, float: 0.5, bool: not option.given, str: "other"}.get(option.kind, "other")
        assert make_request(kind, usual | {key: other}) != request, key


def test_layers_and_multiples_are_read():
    assert parse_layers("--teacher-layers", "1-4, 7,4,12") == [1, 2, 3, 4, 7, 12]
    for text in ("", "a", "1-", "-3", "4-2", "1,,2", "1-99999999999", "1.5", "²"):
        with pytest.raises(RecipeError, match="cannot be read"):
            parse_layers("--teacher-layers", text)
    assert parse_multiples("--ffn", "2, 4,2.5") == [2, 4, 2.5]
    assert [type(number) for number in parse_multiples("--ffn", "2,2.5")] == [int, float]
    for text in ("", "0", "-1", "nan", "inf", "2;4"):
        with pytest.raises(RecipeError, match="--ffn '.*' has to be numbers above 0"):
            parse_multiples("--ffn", text)


def test_the_searched_run_keeps_its_own_output(recipe, tmp_path):
    path = recipe("mapping")
    assert base_recipe(path, None, output=tmp_path / "out")["output"] == "run"
    data = yaml.safe_load(path.read_text())
    del data["output"]
    path.write_text(yaml.safe_dump(data))
    own = {"output": str(tmp_path / "out" / "run"), "seed": 9}
    assert base_recipe(path, ["seed=9"], output=tmp_path / "out") == data | own
