"""The reference page says what the registry says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.tasks import DEFINITIONS, TASK_GROUPS, TASKS, TaskDescription
from tests.support.command_tree import root

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
