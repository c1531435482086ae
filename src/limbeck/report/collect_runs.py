"""Reading the folders of runs and of comparisons: their records, stages, logs and statuses."""

import re
from pathlib import Path

from limbeck.core.paths import RECIPE, RUN_RECORD, STAGES
from limbeck.core.records import PlannedStage, Run, Stage, load
from limbeck.core.run_status import status_of
from limbeck.core.studies import Comparison
from limbeck.report.logs import StageLog, read_stage_log
from limbeck.report.names import title_of
from limbeck.report.subjects import ComparisonFolder, RunFolder, StageFolder, Subject

_NUMBERED_STAGE = re.compile(r"(?P<number>\d{1,4})-(?P<name>.+)")
"""The name of a stage's folder, such as `1-minilmv2`."""


def read_run(folder: Path, inside: tuple[Subject, ...] = ()) -> RunFolder:
    """Read a run as far as its files allow.

    Args:
        folder: The run's folder.
        inside: Evaluations, searches and inspections in the folder, which are reported with the run.
    """
    record = load(Run, folder)
    problems = list(record.damage)
    if record.is_empty:
        problems = [f"'{RUN_RECORD}' is missing or damaged; the report is made from the other files."]
    recipe = ""
    try:
        recipe = (folder / RECIPE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        problems.append(f"'{RECIPE}' cannot be read.")
    return RunFolder(
        folder=folder,
        title=title_of(record.name, folder),
        problems=tuple(problems),
        record=record,
        status=status_of(folder),
        stages=_read_stages(folder, record),
        recipe=recipe,
        inside=inside,
    )


def _read_stages(folder: Path, run: Run) -> tuple[StageFolder, ...]:
    """Gather the stages of a run from the recipe, the run's record, and the stages' own folders.

    In an unfinished or damaged run, each of these may lack stages. They are matched by their numbers, from 1, with
    which the names of the folders begin.
    """
    plan_by_number = dict(enumerate(run.recipe.stages, start=1))
    record_by_number = dict(enumerate(run.stages, start=1))
    folder_by_number = _stage_folders(folder / STAGES)
    stages = []
    for number in sorted({*plan_by_number, *record_by_number, *folder_by_number}):
        plan = plan_by_number.get(number, PlannedStage())
        record = record_by_number.get(number, Stage())
        name_of_folder = ""
        log = StageLog()
        stage_folder = folder_by_number.get(number)
        if stage_folder is not None:
            _, _, name_of_folder = stage_folder.name.partition("-")
            log = read_stage_log(stage_folder)
            # The run's record gets its stages when the run ends; until then a finished stage has its own record.
            if record.is_empty:
                record = load(Stage, stage_folder)
        # The first of these names that is known.
        title = record.name or plan.name or name_of_folder or plan.method_name or f"stage {number}"
        stages.append(StageFolder(title, record, plan, log))
    return tuple(stages)


def _stage_folders(folder: Path) -> dict[int, Path]:
    """Return the stages' folders by their numbers."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return {}
    folders = {}
    for path in paths:
        match = _NUMBERED_STAGE.fullmatch(path.name)
        if match is not None:
            folders[int(match["number"])] = path
    return folders


def read_comparison(folder: Path) -> ComparisonFolder:
    """Read a comparison, with one run of each combination of student, method and mapping: a finished one, if any is.

    A *cell* of a comparison is a run: a combination with one seed. Runs of other seeds are not shown one by one.
    """
    record = load(Comparison, folder)
    # The folders of the runs, each once and in order: the keys of a dictionary are a set that keeps the order.
    run_folders: dict[Path, None] = {}
    folder_by_combination: dict[str, Path] = {}
    finished_combinations = set()
    for cell in record.cells:
        run_folder = folder / cell.folder
        # Anybody may have written the record, so folders that it names elsewhere are not read.
        is_below = run_folder.resolve().is_relative_to(folder.resolve())
        if not is_below or not (run_folder / RUN_RECORD).is_file():
            continue
        run_folders[run_folder] = None
        combination = f"{cell.label} on {cell.student}"
        if cell.status == "finished" and combination not in finished_combinations:
            folder_by_combination[combination] = run_folder
            finished_combinations.add(combination)
        folder_by_combination.setdefault(combination, run_folder)
    # A status costs a look at locks and processes, which a finished comparison does not need.
    unfinished = []
    if not record.is_finished:
        statuses = [status_of(run_folder) for run_folder in run_folders]
        unfinished = [status for status in statuses if status.status != "finished"]
    return ComparisonFolder(
        folder=folder,
        title=record.name or folder.name,
        problems=record.damage,
        record=record,
        run_by_combination={combination: read_run(path) for combination, path in folder_by_combination.items()},
        unfinished=tuple(unfinished),
    )
