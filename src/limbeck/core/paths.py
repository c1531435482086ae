"""Names of the files and folders that limbeck writes, and the folders that follow from them."""

import os
from pathlib import Path

# In the folder of a run.
RUN_RECORD = "run.json"
HEARTBEAT = "heartbeat.json"
RECIPE = "recipe.yaml"
LOG = "log.jsonl"
LAYER_COSINES = "layer_cosines.json"
STAGES = "stages"
"""Folder of a run with a folder for each stage."""
STUDENT = "student"
"""Folder of a run with its student, and of a stage that has a separate one."""
INPUTS = "inputs"
"""Folder of a run with the objects that it was given in place of names, as files."""

# In the folder of a stage.
STAGE_RECORD = "stage.json"

# In the folder of an evaluation on tasks.
EVALUATION_REQUEST = "evaluation.json"
EVALUATION_TABLE = "evaluation_table.json"
EVALUATION_COSTS = "costs.json"
RESULTS = "results.jsonl"
PREDICTIONS = "predictions"
KEPT_WEIGHTS = "weights"
"""Folder of an evaluation with a model folder for each fine-tuning whose weights are kept."""
FINE_TUNED = "model"
"""Folder with the model of a fine-tuning."""

# In the folders of other work.
COMPARISON_RECORD = "comparison.json"
HELD_OUT_RECORD = "held_out.json"
SEARCH_RECORD = "search.json"
INSPECTION_RECORD = "inspection.json"
EXPORT_RECORD = "export.json"
TRIM_RECORD = "trim.json"
REPORT_PAGE = "report.html"
MODEL_CARD = "README.md"

# In a folder of the cache, and in a checkpoint.
MANIFEST = "manifest.json"

# In every output folder.
LOCK = ".run.lock"
PROCESS_NOTE = ".process.json"
"""In the folder of an evaluation while it runs: which process it is."""


def default_cache_dir() -> Path:
    """Return `$LIMBECK_CACHE`, or `~/.cache/limbeck`."""
    named = os.environ.get("LIMBECK_CACHE")
    if named:
        return Path(named).expanduser()
    return Path.home() / ".cache" / "limbeck"


def short_model_name(name: str) -> str:
    """Return the last part of a model's name or path.

    A model in the folder of a run or a fine-tuning (`runs/a/student`, `runs/b/model`) is named after that folder.
    `package:NAME` is a model inside an installed Python package.
    """
    parts = [part for part in name.removeprefix("package:").rstrip("/").split("/") if part]
    if not parts:
        return name
    if len(parts) > 1 and parts[-1] in (STUDENT, FINE_TUNED):
        return parts[-2]
    return parts[-1]


def run_of_student(student: Path) -> Path | None:
    """Return the folder of the run that made a student, or None where no run did.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    student = student.resolve()
    if student.name != STUDENT:
        return None
    # The student of a run lies in RUN/student, and that of a stage in RUN/stages/STAGE/student.
    run = student.parent
    folder_above = run.parent
    if folder_above.name == STAGES:
        run = folder_above.parent
    if not (run / RUN_RECORD).is_file():
        return None
    return run
