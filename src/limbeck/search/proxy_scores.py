"""What a candidate is worth: proxy tasks after fine-tuning, or held-out text, where no labels are needed."""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.comparison.plan import MeasuresSpec
from limbeck.comparison.run import check_tasks, evaluate_students
from limbeck.core.progress import ProgressBar
from limbeck.errors import CorpusError, TrainingError
from limbeck.evaluation.cell import data_fingerprint
from limbeck.evaluation.task_files import load_task
from limbeck.recipe.plan import RunPlan
from limbeck.training.students import dropouts, save_student

Scores = dict[str, float]
"""By name, in percent; more is better."""


class ProxyScores(Protocol):
    """Scores the students of candidates, all by the same measure."""

    @property
    def names(self) -> Sequence[str]:
        """The scores, in order."""

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str) -> Scores:
        """Score a student.

        Args:
            student: Trained; left as it is.
            plan: Of its run.
            name: Of the candidate, as a file may be called.

        Raises:
            TrainingError: if it cannot be scored.
        """


def fitness_of(scores: Mapping[str, float]) -> float:
    """Return the mean of all scores; NaN if one is. Source: ELM (arXiv 2012.06153) section 4.4."""
    values = list(scores.values())
    return statistics.fmean(values) if all(map(math.isfinite, values)) else math.nan


def describe_tasks(spec: MeasuresSpec) -> dict[str, Any]:
    """Check proxy tasks, before any student is trained, and say what tells them from others.

    Args:
        spec: Tasks, protocol, settings and the folder of their files.

    Returns:
        Plain values: what a study's fitness is. `tasks` has the name and the rows' fingerprint of each.

    Raises:
        RecipeError: for an unknown task or setting.
        CorpusError: for a task whose rows are not there, cannot be read, or have no labels to score by.
    """
    names = check_tasks(spec, read=True)
    folder = None if spec.data is None or spec.data.lower() == "hub" else Path(spec.data).expanduser()
    rows: dict[str, str] = {}
    for name in names:
        found = load_task(name, data=folder)
        if not found.task.scored:
            raise CorpusError(
                f"{found.task.title} has no labelled split to score, so it is no proxy task; leave it out."
            )
        rows[found.task.name] = data_fingerprint(found)
    return {"tasks": rows, "preset": spec.preset, "seeds": spec.seeds, "settings": spec.settings}


class TaskScores:
    """Fine-tunes students on proxy tasks: of each task its main figure, in percent.

    The main figure is that of the task's first column: accuracy of SST-2, matched accuracy of MNLI, F1 of SQuAD 1.1.

    Args:
        spec: What `describe_tasks` has checked.
        names: Of the tasks, as it returned them.
        tokenizer: Of all students.
        folder: For the student that is fine-tuned, one at a time; it is removed afterwards.
        console: Where progress goes; nowhere by default.

    Source:
        ELM (arXiv 2012.06153) sections 4.3 and 5.2.
    """

    def __init__(
        self,
        spec: MeasuresSpec,
        names: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        folder: Path,
        console: Console | None = None,
    ) -> None:
        # Students are compared with each other, so no teacher is evaluated beside them.
        self._spec = spec.model_copy(update={"teacher": False})
        self._tokenizer = tokenizer
        self._folder = folder
        self._console = console if console is not None else Console(quiet=True)
        self.names = tuple(names)

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str) -> Scores:
        """Score a student; see `ProxyScores`."""
        place = self._folder / name
        # A worker that was killed may have left a part of it.
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            path = place / "student"
            save_student(path, student, self._tokenizer, dropouts=dropouts(plan.student_choice), sentence=plan.sentence)
            with ProgressBar(self._console) as bar:
                outcome = evaluate_students(self._spec, place, teacher="", students=[path], report=bar)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            with suppress(OSError):  # Another worker fine-tunes in it.
                self._folder.rmdir()
        assert outcome is not None
        found = _main_figures(outcome.summary)
        if missing := [task for task in self.names if task not in found]:
            raise TrainingError(f"No score of {', '.join(missing)}: {' '.join(outcome.summary['notes'])}")
        return {task: found[task] for task in self.names}


def _main_figures(summary: Mapping[str, Any]) -> Scores:
    """The first column of each task, of the only model."""
    cells = summary["models"][0]["columns"]
    found: Scores = {}
    for column in summary["columns"]:
        if column["key"] in cells:
            found.setdefault(column["task"], cells[column["key"]]["mean"])
    return found
