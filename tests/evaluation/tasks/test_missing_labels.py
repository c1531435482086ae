"""A task file without labels: the error has the line with those of its training file."""

import pytest
import yaml

from limbeck.errors import RecipeError
from limbeck.evaluation.tasks.registry import read_own_task
from tests.support.task_files import CHUNKS, write_table

TAGS = '["O", "B-NP", "B-PP", "B-VP", "I-NP"]'


def error_of(folder, **content):
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", "files": {"train": "train.tsv"}, **content}))
    with pytest.raises(RecipeError) as caught:
        read_own_task(path)
    return str(caught.value), path, content


def test_the_line_has_the_labels_of_the_training_file_and_completes_the_task(tmp_path):
    (tmp_path / "train.tsv").write_text(CHUNKS)
    message, path, _ = error_of(tmp_path, type="token_classification")
    beginning, _, line = message.partition(" Its training file has these, so add the line: ")
    assert beginning.endswith("labels is missing: name two classes or more, in the order of their numbers.")
    assert line == f"labels: {TAGS}"
    path.write_text(f"{path.read_text()}{line}\n")
    assert read_own_task(path).labels == tuple(yaml.safe_load(TAGS))

    write_table(tmp_path / "train.tsv", ("review", "stars"), [("fine", "yes"), ("bad", "no")] * 3)
    columns = {"text": "review", "label": "stars"}
    message, *_ = error_of(tmp_path, type="classification", columns=columns)
    assert message.endswith('add the line: labels: ["no", "yes"]')
    # A file without a header has the names of its fields in the task file.
    write_table(tmp_path / "train.tsv", None, [("fine", "yes"), ("bad", "no")] * 3)
    files = {"train": {"path": "train.tsv", "header": ["review", "stars"]}}
    message, *_ = error_of(tmp_path, type="classification", columns=columns, files=files)
    assert message.endswith('add the line: labels: ["no", "yes"]')


@pytest.mark.parametrize("rows", [None, [], [("fine", "yes")], [("fine", f"id {number}") for number in range(200)]])
def test_without_such_labels_the_error_stands_alone(tmp_path, rows):
    if rows is not None:
        write_table(tmp_path / "train.tsv", ("text", "label"), rows)
    message, *_ = error_of(tmp_path, type="classification", columns={"text": "text", "label": "label"})
    assert message.endswith("in the order of their numbers.")
