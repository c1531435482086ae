"""Descriptions of own tasks from anywhere: they read nothing elsewhere, write nothing elsewhere, and are plain YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import read_own_task

GOOD: dict[str, Any] = {
    "name": "mine", "type": "classification", "labels": ["no", "yes"], "columns": {"text": "text"},
    "files": {"train": "train.jsonl", "validation": "dev.jsonl"},
}  # fmt: skip


def write(folder: Path, **changes: Any) -> Path:
    for split in ("train", "dev"):
        (folder / f"{split}.jsonl").write_text(json.dumps({"text": "a text", "label": "no"}))
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": {"train": "train.jsonl", "validation": "../dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "/etc/passwd", "validation": "dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "a/../../x", "validation": "dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "", "validation": "dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "a\0b", "validation": "dev.jsonl"}}, "has to lie beside"),
        ({"files": {"train": "train.jsonl", "../../x": "dev.jsonl"}}, "has to be named by letters"),
        ({"files": {"train": "train.jsonl", "a/b": "dev.jsonl"}}, "has to be named by letters"),
        ({"files": {"train": "train.jsonl", "a\nb": "dev.jsonl"}}, "has to be named by letters"),
        ({"files": None, "hub": {"name": "../..", "splits": {"train": "train"}}}, "hub.name"),
        ({"files": None, "hub": {"name": "a/../b", "splits": {"train": "train"}}}, "hub.name"),
        ({"train": "a:b:c"}, "of no task"),
        ({"labels": ["no", "yes", "no"]}, "have to differ"),
        ({"labels": ["no", " "]}, "none may be empty"),
        ({"title": "a\x1b[2Jb"}, "no line of 1 to 200"),
        ({"title": ""}, "no line of 1 to 200"),
        ({"name": "x" * 200}, "name"),
    ],
)
def test_descriptions_that_cannot_be_meant(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(RecipeError, match=message) as caught:
        read_own_task(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    ["name: mine\nname: other", "name: !!python/name:os.system", "name: &a [*a]", "name: 2020-13-01", "[" * 60],
)
def test_descriptions_that_are_no_plain_yaml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(text)
    with pytest.raises(LimbeckError, match=r"task\.yaml"):
        read_own_task(path)


@pytest.mark.parametrize("start", [4.7, float("inf"), float("nan"), "x", None, [4]])
def test_answers_that_stand_nowhere(tmp_path: Path, start: Any) -> None:
    row = {"question": "q", "context": "the student", "answers": {"text": ["student"], "answer_start": [start]}}
    path = write(tmp_path, type="question_answering", labels=[], columns={})
    (tmp_path / "dev.jsonl").write_text(json.dumps(row))
    (tmp_path / "train.jsonl").write_text(json.dumps({**row, "answers": {"text": ["student"], "answer_start": [4]}}))
    with pytest.raises(CorpusError, match="not as SQuAD has them"):
        load_task(str(path), data=None)
