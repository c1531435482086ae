"""`overwrite` removes a run, but never what the new run needs."""

import shutil

import pytest

from limbeck.core.paths import INPUTS, RECIPE
from limbeck.errors import OutputError
from limbeck.recipe.load import load_recipe
from limbeck.training.output_folder import check_output
from tests.training.conftest import make_recipe


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    """The folder of a run, in the working directory, in which the user keeps text."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    (folder / "text").mkdir(parents=True)
    (folder / RECIPE).write_text("name: run\n")
    (folder / "text" / "a.jsonl").write_text('{"text": "One."}\n')
    return folder


def check_overwrite(teacher, text):
    check_output(load_recipe(make_recipe(teacher, text, "run")), resume=False, overwrite=True)


@pytest.mark.parametrize("pattern", ["run/text/*.jsonl", "run/*/a.jsonl", "r?n/text/[a-c].jsonl", "**/text"])
def test_a_pattern_that_matches_in_the_folder_is_refused(run_folder, bert_folder, pattern):
    with pytest.raises(OutputError, match="--overwrite would remove"):
        check_overwrite(bert_folder, pattern)


def test_a_pattern_that_matches_elsewhere_is_allowed(run_folder, bert_folder):
    shutil.copytree(run_folder / "text", "text")
    check_overwrite(bert_folder, "text/*.jsonl")
    check_overwrite(bert_folder, "run/nothing/*.jsonl")


def test_a_pattern_of_inputs_that_would_be_removed_is_refused(run_folder, bert_folder):
    shutil.move(run_folder / "text", run_folder / INPUTS)
    # This input is kept, because the recipe has its name.
    check_overwrite(bert_folder, "run/inputs/a.jsonl")
    with pytest.raises(OutputError, match="--overwrite would remove"):
        check_overwrite(bert_folder, "run/inputs/*.jsonl")


def test_a_link_in_the_folder_is_removed_wherever_it_leads(run_folder, bert_folder, text_folder):
    (run_folder / "teacher").symlink_to(bert_folder)
    with pytest.raises(OutputError, match="--overwrite would remove 'run/teacher'"):
        check_overwrite("run/teacher", text_folder)


def test_a_link_into_the_folder_does_not_keep_its_text(run_folder, bert_folder, tmp_path):
    (tmp_path / "link").symlink_to(run_folder / "text")
    with pytest.raises(OutputError, match="--overwrite would remove 'link'"):
        check_overwrite(bert_folder, "link")
