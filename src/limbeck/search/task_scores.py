"""The scores of candidates on proxy tasks, on which they are fine-tuned.

Source: ELM (arXiv 2012.06153) sections 4.3 and 5.2.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from limbeck.comparison.student_evaluation import check_tasks, evaluate_students
from limbeck.core.paths import STUDENT
from limbeck.core.progress_bars import ProgressBar
from limbeck.errors import CorpusError, TrainingError
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.recipe.plan import RunPlan
from limbeck.search.scores import Scores
from limbeck.training.learned_maps import Learned
from limbeck.training.proxy import Proxy
from limbeck.training.student_folder import save_student


def describe_tasks(spec: MeasuresSpec) -> dict[str, Any]:
    """Check proxy tasks before any student is trained, and return the settings that their scores depend on.

    Args:
        spec: The tasks, the folder of their files, and how students are fine-tuned on them.

    Returns:
        Plain values: `tasks`, the name of each with the fingerprint of its rows, and `preset`, `seeds` and `settings`
        of the fine-tuning.

    Raises:
        RecipeError: for an unknown task or setting.
        CorpusError: for a task whose rows are not there, cannot be read, or have no labels to score by.
    """
    fingerprints = {}
    for planned in check_tasks(spec, read=True):
        task = planned.task
        if not task.scored:
            raise CorpusError(
                f"{task.title} has no labelled split to score, so it cannot be a proxy task; leave this task out."
            )
        # `data` is a fingerprint of the rows.
        fingerprints[task.name] = planned.data
    return {"tasks": fingerprints, "preset": spec.preset, "seeds": spec.seeds, "settings": spec.settings}


class TaskScores:
    """Scores students by fine-tuning them on proxy tasks; a score is the main figure of a task, in percent.

    The main figure is that of the task's first column: accuracy of SST-2, matched accuracy of MNLI, F1 of SQuAD 1.1.

    Args:
        proxy: The proxy that has trained the students.
        spec: The tasks and their protocol, as `describe_tasks` has checked them.
        names: Names of the tasks, as it returned them.
        folder: Folder for the student that is fine-tuned, one at a time; it is removed afterwards.
    """

    def __init__(self, proxy: Proxy, spec: MeasuresSpec, names: Sequence[str], folder: Path) -> None:
        # Students are compared with each other, so no teacher is evaluated beside them.
        self._spec = spec.model_copy(update={"teacher": False})
        self._tokenizer = proxy.tokenizer
        self._console = proxy.console
        self._folder = folder
        self.names = tuple(names)

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str, learned: Learned | None = None) -> Scores:
        """Score a student.

        Args:
            student: Trained; left as it is.
            plan: The plan of the student's run.
            name: Name of the candidate, fit for the name of a file.
            learned: Learned maps of the stage that taught its sentence vectors, see `Trained`.

        Raises:
            TrainingError: if it cannot be scored.
        """
        folder = self._folder / name
        # A worker that was killed may have left files of the same candidate.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            path = folder / STUDENT
            save_student(
                path,
                student,
                self._tokenizer,
                plan.student_plan,
                sentence=plan.student_sentence,
                learned=learned,
            )
            with ProgressBar(self._console) as bar:
                outcome = evaluate_students(self._spec, folder, teacher="", students=[path], report=bar)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            # The folder above is not empty where another worker fine-tunes in it.
            with suppress(OSError):
                self._folder.rmdir()

        # The summary has one model, the student. The first column of a task that has a figure is its main figure.
        figures = outcome.summary.models[0].columns
        scores: Scores = {}
        for column in outcome.summary.columns:
            task = str(column.task)
            if column.key in figures and task not in scores:
                scores[task] = figures[column.key].mean
        missing = [task for task in self.names if task not in scores]
        if missing:
            raise TrainingError(f"No score of {', '.join(missing)}: {' '.join(outcome.summary.notes)}")
        return {task: scores[task] for task in self.names}
