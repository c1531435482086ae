"""Every task is whole, and the reference page says what the registry says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.metrics import METRICS
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.tasks import DEFINITIONS, METRIC_NAMES, TASK_GROUPS, TASKS, TaskDescription, parse_tasks
from tests.support.command_tree import root


@pytest.mark.parametrize("name", list(TASKS))
def test_a_task_fits_together(name: str) -> None:
    definition, task = DEFINITIONS[name], TASKS[name]
    assert definition.task is task and task.name == name
    for reference in (key for key in (task.train, task.select) if key is not None):
        other, _, split = reference.rpartition(":")
        assert split in TASKS[other or name].splits
        assert TASKS[other or name].labels == task.labels
    for source in definition.sources.values():
        assert source.files or source.parts


def test_no_two_splits_of_a_task_have_a_file_in_common() -> None:
    for name, definition in DEFINITIONS.items():
        paths = [
            (file.path, *sorted(file.only.items())) for source in definition.sources.values() for file in source.files
        ]
        assert len(paths) == len(set(paths)), name


def test_every_metric_is_of_some_kind_of_task() -> None:
    assert {name for names in METRIC_NAMES.values() for name in names} == set(METRICS)


def test_groups_hold_known_tasks() -> None:
    groups = dict(TASK_GROUPS.items())
    assert {name for names in groups.values() for name in names} | {"ocnli"} == set(TASKS)
    assert all(set(TASKS[name].submissions) == set(TASKS[name].predicted) for name in groups["glue_leaderboard"])


def test_a_list_of_names(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("")
    assert parse_tasks(f" squad, glue,sst2 ,{own}") == ["squad", *TASK_GROUPS["glue"], str(own)]
    with pytest.raises(RecipeError, match=r"Unknown task 'mlni'\. Did you mean 'mnli'\?"):
        parse_tasks("sst2,mlni")
    with pytest.raises(RecipeError, match="names no task"):
        parse_tasks(" , ")
    with pytest.raises(CorpusError, match=r"task file 'gone\.yaml' does not exist"):
        parse_tasks("gone.yaml")


DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "evaluation_tasks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(TASKS))
def test_counts_and_names_are_on_the_page(name: str) -> None:
    # The tasks of many languages have a paragraph or a table of their own.
    whole = name in TASK_GROUPS["cross_lingual"]
    lines = [line for line in PAGE.splitlines() if whole or f"`{name}`" in line]
    numbers = {number.strip(",") for line in lines for number in re.findall(r"[\d,]+", line)}
    text = "\n".join(lines)
    for split, facts in TASKS[name].splits.items():
        if facts.published_rows is not None:
            assert f"{facts.published_rows:,}" in numbers, split
    for source in DEFINITIONS[name].sources.values():
        if source.hub is not None:
            assert f"`{source.hub.name}`" in (PAGE if name in TASK_GROUPS["glue_leaderboard"] else text)
    assert all(label in PAGE for label in TASKS[name].labels)


def test_groups_are_on_the_page() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.split("## GLUE")[0], re.MULTILINE))
    assert set(rows) == set(TASK_GROUPS)
    for group, names in TASK_GROUPS.items():
        mentioned = set(re.findall(r"`(\w+)`", rows[group]))
        assert set(names) - mentioned == (set(TASK_GROUPS["glue"]) if group == "glue_leaderboard" else set())


def test_presets_are_on_their_page_and_in_the_help() -> None:
    page = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|.*\| \d \|$", page, re.MULTILINE)) == set(PROTOCOLS)
    command = root().commands["evaluate"]
    (preset,) = (option for option in command.params if option.name == "preset")
    assert all(name in preset.help for name in PROTOCOLS)


def test_the_descriptions_on_the_page_are_understood() -> None:
    found = [
        TaskDescription.model_validate(yaml.safe_load(text))
        for text in re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    ]
    assert [described.name for described in found] == ["reviews", "titles"]
    keys = set(re.findall(r"^\| `(\w+)` \|", PAGE.split("## A task of your own")[1], re.MULTILINE))
    assert keys == set(TaskDescription.model_fields)
