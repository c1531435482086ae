"""Every task is whole: its splits, sources, metrics and references fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.metrics import METRICS
from limbeck.evaluation.tasks import DEFINITIONS, METRIC_NAMES, TASK_GROUPS, TASKS, parse_tasks


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
