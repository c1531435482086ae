"""The commands of docs/extending.md run as they stand, on its file; test_entry_points.py installs its package."""

from pathlib import Path

import pytest

import limbeck
from limbeck.errors import RecipeError
from limbeck.evaluation.evaluators.evaluator import EVALUATORS
from limbeck.export.formats import FORMATS
from limbeck.kinds.registry import KINDS
from limbeck.models.start import STARTS
from limbeck.recipe.json_schema import recipe_schema
from tests.docs.shell import commands
from tests.support.models import make_teacher
from tests.support.plugins import PAGE, PAGE_CODE, PAGE_PARTS, forgetting

SMALL = ("--steps", "2", "--batch-size", "4", "--length", "32", "--set", "evaluation.enabled=false")


@pytest.fixture
def folder(tmp_path, monkeypatch, text_folder):
    """The file, the teacher and the texts that the page names."""
    (tmp_path / "my_method.py").write_text(PAGE_CODE, encoding="utf-8")
    (tmp_path / "google-bert").mkdir()
    make_teacher(tmp_path, "bert").rename(tmp_path / "google-bert" / "bert-base-uncased")
    (tmp_path / "texts").symlink_to(text_folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_commands_run_one_after_the_other(folder, limbeck):
    (shell,) = (block for block in PAGE.blocks if block.language == "sh")
    lines = [list(command.words[1:]) for command in commands(shell.text)]
    assert [words[2] for words in lines] == ["methods", "distill", "distill"]
    lines[1] = ["2x24" if word == "6x384" else word for word in lines[1]] + list(SMALL)
    with forgetting():
        done = [limbeck(*words) for words in lines]
    assert [each.returncode for each in done] == [0, 0, 0], [each.stderr for each in done]
    printed = "".join(each.stdout for each in done)
    assert "Last hidden states under the absolute error" in printed
    assert "1 x absolute_error(hidden@6 <- hidden@12)" in printed
    assert Path("runs/mine/student/model.safetensors").is_file()
    for words in (lines[0], lines[2]):  # Without the file.
        refused = limbeck(*words[2:])
        assert refused.returncode == 2
        assert "Unknown method 'absolute_hidden_states'" in refused.stderr
        assert "--plugin FILE" in " ".join(refused.stderr.split())


def test_its_other_parts_are_registered():
    with forgetting():
        exec(PAGE_PARTS, {"__name__": "my_parts"})
        assert KINDS["grades"].facts.metrics == ("accuracy",)
        assert EVALUATORS["depth"].metrics == ("share_of_twelve",)
        assert STARTS["scaled"].place == "fit"
        assert FORMATS["half-weights"].dtypes == ("float16",)
    assert "grades" not in KINDS


def test_a_kind_of_a_plugin_is_distilled_by_a_recipe(tmp_path):
    teacher = make_teacher(tmp_path, head="classification", num_labels=2)
    rows = [f"the model {number}\t{number % 2}" for number in range(20)]
    (tmp_path / "essays.tsv").write_text("\n".join(["text\tlabel", *rows]), encoding="utf-8")
    recipe = {
        "output": str(tmp_path / "run"),
        "teacher": str(teacher),
        "student": "1x24",
        "corpus": {"sources": str(tmp_path / "essays.tsv"), "length": 16, "task": {"kind": "grades"}},
        "stages": [{"method": "output_distribution", "training": {"max_steps": 1}}],
        "evaluation": {"enabled": False},
    }
    with pytest.raises(
        RecipeError, match=r"corpus\.task\.kind: Unknown kind 'grades'\..*Known: classification, .*--plugin"
    ):
        limbeck.validate(recipe)
    with forgetting():
        exec(PAGE_PARTS, {"__name__": "my_parts"})
        assert "grades" in recipe_schema()["$defs"]["TaskSpec"]["properties"]["kind"]["enum"]
        student = limbeck.distill(recipe).student
        assert "pipeline_tag: text-classification" in (student / "README.md").read_text(encoding="utf-8")
