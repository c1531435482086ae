"""The reference of tasks is made of their YAML files, and of the model that reads them: what each has, what keys mean.

`python docs/hooks/task_reference.py` writes it into `docs/reference/tasks.md`, below the line that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from limbeck.core.kinds import KINDS
from limbeck.core.strict import descriptions
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.registry import TASK_GROUPS, TASKS
from limbeck.kinds.task import Task

PAGE = Path(__file__).parents[1] / "reference/tasks.md"
PLACE = "<!-- limbeck.evaluation.tasks: made of their files by `make references` -->\n"
_FILES = Path(__file__).parents[2] / "src/limbeck/evaluation/data/tasks"


def with_reference(text: str) -> str:
    """Put the reference below its line in the page."""
    written, place, _ = text.partition(PLACE)
    assert place, "the page has a place for the reference"
    sections = [_groups(), _keys(), _metrics(), *(_task(name, task) for name, task in TASKS.items())]
    return f"{written}{place}\n" + "\n\n".join(sections) + "\n"


def _groups() -> str:
    rows = [f"| `{group}` | {_codes(names)} |" for group, names in TASK_GROUPS.items()]
    return "\n".join(["## Groups", "", "| group | tasks |", "|---|---|", *rows])


def _keys() -> str:
    """Every key of a task file, from the descriptions of the model's fields."""
    fields = TaskDefinition.model_fields.items()
    known = {key: "*needed*" if field.is_required() else field.default for key, field in fields}
    shown = {key: value if isinstance(value, str) else "" for key, value in known.items()}
    defaults = {key: value if value in ("", "*needed*") else f"`{value}`" for key, value in shown.items()}
    rows = [
        f"| `{key}` | {' '.join(text.split())} | {defaults[key]} |"
        for key, text in descriptions(TaskDefinition).items()
    ]
    return "\n".join(["## Keys of a task file", "", "| key | meaning | default |", "|---|---|---|", *rows])


def _metrics() -> str:
    """The metrics of each type, and those of a task file that names none."""
    rows = [
        f"| `{kind}` | {_codes(facts.metrics)} | {_codes(facts.default_metrics(positive=None))} |"
        for kind, facts in KINDS.items()
    ]
    head = ["| type | metrics | by default, the main one first |", "|---|---|---|"]
    note = "`f1` is that of the class `positive`. A task that names this class has it by default too."
    return "\n".join(["## Metrics", "", *head, *rows, "", note])


def _task(name: str, task: Task) -> str:
    written = yaml.safe_load((_FILES / f"{name}.yaml").read_text(encoding="utf-8"))
    facts = [f"- type: `{written['type']}`; metrics, main first: {_codes(task.metrics)}"]
    if task.positive is not None:
        facts.append(f"- `f1` is that of the class {task.positive}")
    if task.labels:
        facts.append(f"- classes, in the order of their numbers: {', '.join(task.labels)}")
    facts += [f"- columns: {_columns(written['columns'])}"] if "columns" in written else []
    facts += [f"- folders: {_codes([place for place in written['folders'] if place])}"] if "folders" in written else []
    facts += list(_hub(written["hub"])) if "hub" in written else ["- not on the Hub"]
    for key, whose in (("trained", task.train), ("chosen", task.select)):
        facts += [f"- {key} on `{whose}`"] if whose is not None and ":" in whose else []
    facts += [f"- `{made}` is {_codes(parts)} together" for made, parts in written.get("parts", {}).items()]
    facts += [f"- {key}: {', '.join(values)}" for key, values in written.get("each", {}).items()]
    instead = _codes(written.get("second_choice", ()))
    facts += [f"- scored where no other is there: {instead}"] if instead else []
    rows = {split: f"{count:,}" for split, count in written.get("rows", {}).items()}
    table = [_row(split, files, rows.pop(split, ""), task, written) for split, files in written["files"].items()]
    if rows:
        facts.append(f"- published rows: {', '.join(f'{split} {count}' for split, count in rows.items())}")
    head = ["| split | published rows | files | use | leaderboard's file |", "|---|---:|---|---|---|"]
    return "\n".join([f"## {name}", "", f"**{task.title}**", "", *facts, "", *head, *table])


def _row(split: str, files: Any, count: str, task: Task, written: Mapping[str, Any]) -> str:
    submission = written.get("submissions", {}).get(split, {})
    cells = [f"`{split}`", count, "; or ".join(_files(files)), ", ".join(_uses(split, task))]
    return "| " + " | ".join([*cells, f"`{submission['file']}`" if submission else ""]) + " |"


def _uses(split: str, task: Task) -> Iterator[str]:
    pattern = re.compile(re.sub(r"\\{\w+\\}", r"[^.]+", re.escape(split)))
    chosen = None if task.select in task.scored and split == "test" else task.select  # Then on rows of the train split.
    roles = {"trained on": [task.train], "chosen on": [chosen], "scored": task.scored, "predicted": task.predicted}
    for use, splits in roles.items():
        if any(name is not None and pattern.fullmatch(name) for name in splits):
            yield use


def _files(given: Any) -> Iterator[str]:
    """Each of a split's files with the names that it may have, and its layout where that is not the task's."""
    if isinstance(given, str) or (isinstance(given, list) and isinstance(given[0], str)):
        given = {"path": given}
    for file in [given] if isinstance(given, dict) else given:
        if "parallel" in file:
            yield " and ".join(f"`{path}`" for path in file["parallel"].values())
            continue
        names = [file["path"]] if isinstance(file["path"], str) else file["path"]
        header = f", no header: {', '.join(file['header'])}" if "header" in file else ""
        columns = f", columns {_columns(file['columns'])}" if "columns" in file else ""
        texts = "".join(f", {key} `{_path(file[key])}`" for key in ("queries", "documents") if key in file)
        yield _codes(names) + header + columns + texts


def _path(given: Any) -> str:
    return str(given if isinstance(given, str) else given["path"])


def _hub(hub: Mapping[str, Any]) -> Iterator[str]:
    parts = [f"- Hub: `{hub['name']}`", *(f"{key} `{hub[key]}`" for key in ("config", "revision") if key in hub)]
    configs = dict.fromkeys(place["config"] for place in hub.get("splits", {}).values() if isinstance(place, dict))
    parts += [f"configurations {_codes(configs)}"] if configs else []
    parts += [f"columns {_columns(hub['columns'])}"] if "columns" in hub else []
    parts += (
        [f"rows {', '.join(f'{split} {count:,}' for split, count in hub['rows'].items())}"] if "rows" in hub else []
    )
    yield "; ".join(parts)


def _columns(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{role} `{column}`" for role, column in columns.items())


def _codes(names: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
