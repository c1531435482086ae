"""Every task is whole, and the reference page says what the registry says."""

import re
from pathlib import Path

import pytest
import yaml

from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.metrics import METRICS
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import DEFINITIONS, METRIC_NAMES, TASK_GROUPS, TASKS, TaskDefinition, parse_tasks
from tests.support.command_tree import root


@pytest.mark.parametrize("name", list(TASKS))
def test_a_task_fits_together(name):
    definition, task = DEFINITIONS[name], TASKS[name]
    assert definition.task is task and task.name == name
    for reference in (key for key in (task.train, task.select) if key is not None):
        other, _, split = reference.rpartition(":")
        assert split in TASKS[other or name].splits
        assert TASKS[other or name].labels == task.labels
    assert all(definition.paths(split) or split in definition.parts for split in task.splits)
    # No two splits have a file in common.
    paths = [(path, *file.only.items()) for split in task.splits for path, file in definition.paths(split)]
    assert len(paths) == len(set(paths))


def test_groups_hold_known_tasks_and_kinds_of_task_known_metrics():
    groups = dict(TASK_GROUPS.items())
    assert {name for names in groups.values() for name in names} | {"ocnli", "squad_retrieval"} == set(TASKS)
    assert all(set(TASKS[name].submissions) == set(TASKS[name].predicted) for name in groups["glue_leaderboard"])
    assert {name for names in METRIC_NAMES.values() for name in names} == set(METRICS)


def test_a_list_of_names(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("")
    assert parse_tasks(f" squad, glue,sst2 ,{own}") == ["squad", *TASK_GROUPS["glue"], str(own)]
    for text, error, message in (
        ("sst2,mlni", RecipeError, r"Unknown task 'mlni'\. Did you mean 'mnli'\?"),
        (" , ", RecipeError, "names no task"),
        ("gone.yaml", CorpusError, r"task file 'gone\.yaml' does not exist"),
    ):
        with pytest.raises(error, match=message):
            parse_tasks(text)
    with pytest.raises(RecipeError, match=r"Unknown task 'sqad'\. Did you mean 'squad'\?"):
        load_task("sqad", data=tmp_path)


DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "evaluation_tasks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(TASKS))
def test_counts_and_names_are_on_the_page(name):
    # The tasks of many languages have a paragraph or a table each.
    whole = name in TASK_GROUPS["cross_lingual"]
    lines = [line for line in PAGE.splitlines() if whole or f"`{name}`" in line]
    numbers = {number.strip(",") for line in lines for number in re.findall(r"[\d,]+", line)}
    published = (facts.published_rows for facts in TASKS[name].splits.values())
    assert {f"{count:,}" for count in published if count is not None} <= numbers
    if (hub := DEFINITIONS[name].hub) is not None:
        assert f"`{hub.name}`" in (PAGE if name in TASK_GROUPS["glue_leaderboard"] else "\n".join(lines))
    assert all(label in PAGE for label in TASKS[name].labels)


def test_groups_are_on_the_page():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.split("## GLUE")[0], re.MULTILINE))
    assert set(rows) == set(TASK_GROUPS)
    for group, names in TASK_GROUPS.items():
        mentioned = set(re.findall(r"`(\w+)`", rows[group]))
        assert set(names) - mentioned == (set(TASK_GROUPS["glue"]) if group == "glue_leaderboard" else set())


def test_presets_are_on_their_page_and_in_the_help():
    page = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|.*\| \d \|$", page, re.MULTILINE)) == set(PROTOCOLS)
    (preset,) = (option for option in root().commands["evaluate"].params if option.name == "preset")
    assert all(name in preset.help for name in PROTOCOLS)


def test_the_descriptions_on_the_page_are_understood():
    texts = re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    names = [TaskDefinition.model_validate(yaml.safe_load(text)).name for text in texts]
    assert names == ["facts", "reviews", "panx_de", "titles"]
    keys = set(re.findall(r"^\| `(\w+)` \|", PAGE.split("## A task of your own")[1], re.MULTILINE))
    assert keys == set(TaskDefinition.model_fields)
