"""`limbeck search` as a user types it, with real students: tables, files, options."""

import json
from pathlib import Path

import pytest
import yaml

from limbeck.api.calls import make_request
from limbeck.api.requests.fields import options_of
from limbeck.api.requests.search import SEARCHES, SearchRequest
from limbeck.api.searching import planned_search
from limbeck.core.lists import parse_layers, parse_multiples
from limbeck.errors import RecipeError
from limbeck.recipe.load import load_recipe, read_recipe
from limbeck.recipe.plan import plan_run
from tests.support import mapping_search, shape_search, teacher_layer_search

MAPPING = ("--steps", 2, "--share", 1, "--generations", 2, "--population", 3)
SIZES = ("--layers", "1,2", "--hidden", "8,16", "--heads", "2", "--ffn", "1.5,2")
SHAPES = ("--trials", 3, "--batch", 3, "--steps", 4, "--device", "cpu", "--measure-length", 16, "--measure-seconds",
          0.05)  # fmt: skip
PLAIN = ("--set", "stages.0.training.bf16=false", "--set", "corpus.held_out=0.3")


@pytest.fixture(scope="module")
def recipes(text_folder, tmp_path_factory):
    """The recipe of a run for each kind of search."""
    folder = tmp_path_factory.mktemp("search")
    shape = {"shape": {"layers": 2, "hidden": 12, "heads": 2, "ffn": 16}}
    found = {}
    for kind in (mapping_search, shape_search, teacher_layer_search):
        teacher = kind.write_teacher(folder / kind.NAME, **({"layers": 4} if kind is mapping_search else {}))
        changes = {"student": shape} if kind is mapping_search else {}
        found[kind.NAME] = folder / f"{kind.NAME}.yaml"
        found[kind.NAME].write_text(yaml.safe_dump(kind.recipe_data(teacher, text_folder, **changes)))
    return found


def written(output):
    return json.loads((output / "search.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("kind", "options", "words", "steps"),
    [
        (mapping_search, MAPPING, [], 50),
        (shape_search, (*SIZES, *SHAPES, "--max-parameters", "1M", "--max-latency-share", 99),
         ["Best candidate: ", "Shapes, highest reward first", "Limits: 1,000,000 parameters and 99"], 30),
        (teacher_layer_search, ("--layers", "1-3,4", "--steps", 6),
         ["Best candidate: teacher layer ", "Step 2", "Step 6", "Successive halving: 4 to step 2, 2 to step 6"], 6),
    ],
    ids=SEARCHES,
)  # fmt: skip
def test_a_search_leaves_its_table_and_a_recipe_to_distil(limbeck, recipes, tmp_path, kind, options, words, steps):
    output = tmp_path / "out"
    command = ["search", kind.NAME, recipes[kind.NAME], *options, "--quiet", "--output", output]
    done = limbeck(*command)
    assert (done.returncode, done.stderr) == (0, ""), "Optuna says nothing of its own"
    record, found = written(output), load_recipe(read_recipe(output / "recipe.yaml"))
    words = [*words, f"Recipe: {output / 'recipe.yaml'}", *(row["best_gene"] for row in record.get("generations", ()))]
    assert [word for word in words if word not in done.stdout] == []
    best, method, student = record["best"], found.stages[0].method, plan_run(found).student
    if kind is shape_search:
        assert all(getattr(student, name) == best[name] for name in ("layers", "hidden", "heads", "ffn"))
    else:
        assert method.get("mapping") == best.get("mapping") and method.get("teacher_layer") == best.get("layer")
    assert (found.stages[0].training["max_steps"], found.output) == (steps, "run"), "the steps were the candidates'"
    printed = limbeck.json(*command)
    assert kind.results(printed) == kind.results(record)
    names = {Path(path).name for path in printed["files"]}
    assert names | {"search.journal"} == {path.name for path in output.iterdir()}


@pytest.mark.parametrize(
    ("kind", "options", "wanted"),
    [
        ("mapping",
         ["--student", 2, *MAPPING, "--tasks", "rte", "--data", "tasks", "--set-task", "length=32", "--set-task",
          "epochs=1", "--teacher-layers", "1-3"],
         {"teacher_layers": (1, 2, 3), "generations": 2}),
        ("architecture", [*SIZES, *SHAPES, "--no-prune"], {"trials": 3, "prune": False}),
        ("teacher-layer", ["--student", "2x8h4", "--layers", "3,4", "--steps-total", 6, "--no-halving"],
         {"layers": (3, 4), "halving": None}),
    ],
    ids=SEARCHES,
)  # fmt: skip
def test_a_run_is_described_by_options_alone(
    limbeck, recipes, text_folder, tmp_path, monkeypatch, kind, options, wanted
):
    asked = []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks").mkdir()
    monkeypatch.setattr("limbeck.api.searching.carry_out_search", lambda kind, request: asked.append(request))
    method = "direct_minilm" if kind == "teacher-layer" else "hidden_states"
    teacher = yaml.safe_load(recipes[kind].read_text())["teacher"]["model"]
    limbeck.shown(
        "search", kind, "--teacher", teacher, "--corpus", text_folder, "--method", method, "--length", 24,
        "--batch-size", 8, "--learning-rate", 0.002, "--seed", 5, *PLAIN, *options, "--output", tmp_path / "out",
    )  # fmt: skip
    request = planned_search(asked[0])
    recipe = request.proxy.recipe
    assert recipe.output == str(tmp_path / "out" / "run") and recipe.seed == 5 and recipe.corpus.held_out == 0.3
    assert recipe.stages[0].method["name"] == method
    is_chosen = kind != "architecture"
    assert recipe.student.initialise.layers == ("ends" if is_chosen else "random")
    assert "starts from layers" in (recipe.reasons or {}).get("student", "") or not is_chosen
    assert recipe.stages[0].training["per_device_train_batch_size"] == 8 and recipe.corpus.length == 24
    training = recipe.stages[0].training
    assert (training.get("max_steps"), training["learning_rate"]) == (request.proxy.steps, 0.002), "as was asked for"
    if kind == "architecture":
        assert recipe.student.shape == "1x8h2", "one of the searched shapes stands in"
    assert wanted.items() <= vars(request).items()


@pytest.mark.slow
def test_two_workers_find_what_one_finds(limbeck, recipes, tmp_path):
    found = []
    for workers in (1, 2):
        output = tmp_path / f"out-{workers}"
        limbeck.shown("search", "mapping", recipes["mapping"], *MAPPING, "--workers", workers, "--output", output)
        found.append([(row["members"], row["mean"]) for row in written(output)["generations"]])
    assert found[0] == [(members, pytest.approx(mean, abs=0.01)) for members, mean in found[1]]


@pytest.mark.parametrize("name", SEARCHES)
def test_every_option_reaches_the_search(name, recipes, tmp_path):
    cls = SEARCHES[name]
    run = {*options_of(SearchRequest)} - {"steps", "share", "storage", "name"}
    usual = {"output": tmp_path / "out"}
    if name == "mapping":
        usual |= {"tasks": "sst2", "data": "tasks"}
    elif name == "architecture":
        usual |= {"layers": "3", "hidden": "8"}
    others = {"tasks": "mnli", "data": "others", "preset": "minilm", "parents": "best", "settings": ["epochs=3"],
              "teacher_layers": "1-3", "layers": "1,2", "hidden": "8,16", "heads": "2", "ffn": "1.5",
              "max_parameters": "1M", "name": "other", "storage": "other", "device": "cpu", "loss": "hidden_states",
              "sampler": "random", "no_halving": True, "prune": False}  # fmt: skip

    def planned(**changes):
        return planned_search(make_request(cls, (recipes[name],), usual | changes))

    for option in {*options_of(cls)} - run:
        default = options_of(cls)[option].default
        other = others.get(option, 0.5 if isinstance(default, float) else 3)
        assert planned(**{option: other}) != planned(), option


@pytest.mark.parametrize(
    ("read", "text", "found"),
    [
        (parse_layers, "1-4, 7,4,12", [1, 2, 3, 4, 7, 12]),
        (parse_multiples, "2, 4,2.5", [2, 4, 2.5]),
        *((parse_layers, text, None) for text in ("", "a", "1-", "-3", "4-2", "1,,2", "1-99999999999", "1.5", "²")),
        *((parse_multiples, text, None) for text in ("", "0", "-1", "nan", "inf", "2;4")),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_layers_and_multiples_are_read(read, text, found):
    if found is None:
        with pytest.raises(RecipeError, match="--x '.*' (cannot be read|must be numbers above 0)"):
            read("--x", text)
    else:
        assert repr(read("--x", text)) == repr(found), "whole numbers are"


def test_the_searched_run_keeps_its_own_output(recipes, tmp_path):
    def searched(data, changes):
        request = make_request(SEARCHES["mapping"], (data, changes), {"output": tmp_path / "out"})
        return planned_search(request).proxy.recipe

    data = read_recipe(recipes["mapping"])
    assert searched(data, []) == load_recipe(data) and data["output"] == "run"
    own = {"output": str(tmp_path / "out" / "run"), "seed": 9}
    for changes in (["seed=9", "output=null"], ["seed=9", f"output={own['output']}"]):
        assert searched(data, changes) == load_recipe(data | own)
    del data["output"]
    assert searched(data, "seed=9") == load_recipe(data | own)
