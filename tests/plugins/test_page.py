"""The commands of docs/extending.md run as they stand, on its file; test_entry_points.py installs its package."""

from pathlib import Path

import pytest

from limbeck.evaluation.evaluators.evaluator import EVALUATORS
from limbeck.export.formats import FORMATS
from limbeck.kinds.registry import KINDS
from limbeck.models.start import STARTS
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
        assert FORMATS["half_weights"].dtypes == ("float16",)
    assert "grades" not in KINDS
