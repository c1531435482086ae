"""Reading a run's folder: its record, its stages finished or not, and how it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

from limbeck.core.files import RECORD, read_json, read_record
from limbeck.report.page.findings import Found, Record, RunFound, StageFound
from limbeck.report.page.plain_values import entries, mapping, text
from limbeck.report.page.stage_log import StageLog, read_stage_log
from limbeck.report.titles import title_of
from limbeck.training.output_folder import RECIPE
from limbeck.training.record import status_of
from limbeck.training.run import STAGES
from limbeck.training.stage import DONE

_COSINES = "layer_cosines.json"
_NUMBERED = re.compile(r"(\d{1,4})-(.+)")


def collect_run(folder: Path, inside: tuple[Found, ...]) -> RunFound:
    """Read a run.

    Args:
        folder: Its folder.
        inside: What else is in it.
    """
    record = read_record(folder)
    problems = [] if record else [f"'{RECORD}' is missing or damaged; what is shown is from the other files."]
    try:
        recipe = (folder / RECIPE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        recipe = ""
        problems.append(f"'{RECIPE}' cannot be read.")
    title = title_of(record.get("name"), folder)
    return RunFound(folder, title, record, status_of(folder), _stages(folder, record), recipe, tuple(problems), inside)


def _stages(folder: Path, record: Record) -> tuple[StageFound, ...]:
    """Gather the stages from the plan, the record and the folders: any of them may lack some."""
    plans, records = entries(record, "recipe", "stages"), entries(record, "stages")
    folders = _folders(folder / STAGES)
    found = []
    for index in sorted({*range(len(plans)), *range(len(records)), *(number - 1 for number in folders)}):
        plan: Record = plans[index] if index < len(plans) else {}
        own = folders.get(index + 1)
        done: Record = records[index] if index < len(records) else {}
        if not done and own is not None:
            done = read_json(own / DONE)
        named = _NUMBERED.fullmatch(own.name) if own is not None else None
        title = (
            text(done, "name") or text(plan, "name") or (named[2] if named else text(mapping(plan, "method"), "name"))
        )
        log = read_stage_log(own) if own is not None else StageLog()
        found.append(StageFound(title or f"stage {index + 1}", done, plan, log, _layer_cosines(own)))
    return tuple(found)


def _folders(stages: Path) -> dict[int, Path]:
    """The stages' folders by their numbers."""
    try:
        names = sorted(path for path in stages.iterdir() if path.is_dir())
    except OSError:
        return {}
    return {int(found[1]): path for path in names if (found := _NUMBERED.fullmatch(path.name))}


def _layer_cosines(folder: Path | None) -> tuple[float, ...]:
    try:
        found = json.loads((folder / _COSINES).read_text(encoding="utf-8")) if folder is not None else []
        return tuple(map(float, found))
    except (OSError, ValueError, TypeError, RecursionError):
        return ()
