"""`finetune`: a model fine-tuned on a task, and kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.api.calls import python_call
from limbeck.api.evaluating import data_folder
from limbeck.api.model_folder import ModelFolder
from limbeck.api.objects import Objects
from limbeck.api.progress import progress_console
from limbeck.api.requests.finetune import FinetuneRequest
from limbeck.api.results import ModelResult
from limbeck.core import studies
from limbeck.core.blocks import Block
from limbeck.core.progress_bars import ProgressBar
from limbeck.core.studies import FAILED
from limbeck.errors import TrainingError
from limbeck.evaluation.plan.request import EVALUATION, EvaluationRequest, fine_tuned_task

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class FineTuningResult(ModelResult):
    """The result of a fine-tuning.

    Args:
        model: The folder of the fine-tuned model, with its card.
        scores: Scores of this model, by split and metric, 0 to 1 (correlations -1 to 1).
        evaluation: The record of the evaluation's tables, over all seeds of the chosen grid point.
        failed: Number of runs that gave nothing; the record's notes say why.
        files: The tables, and files for leaderboards.
    """

    model: Path
    scores: dict[str, dict[str, float | None]]
    evaluation: studies.Evaluation
    failed: int
    files: tuple[Path, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """The record of the tables as plain values, as in `evaluation_table.json`."""
        return self.evaluation.to_dict()

    @property
    def folder(self) -> Path:
        """The fine-tuning's folder."""
        return self.files[0].parent

    @property
    def _model(self) -> Path:
        """The folder of the model."""
        return self.model

    def blocks(self) -> Iterator[Block]:
        """Yield the table of scores and its notes."""
        from limbeck.report.evaluation import evaluation_blocks

        yield from evaluation_blocks(self.evaluation)

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        from limbeck.report.evaluation import evaluation_csv

        return evaluation_csv(self.evaluation)

    def to_pandas(self) -> "DataFrame":
        """Return its figures as a table of pandas, unrounded, a row each, with their units."""
        from limbeck.api.figure_units import add_units

        return add_units(super().to_pandas(), "column")


def carry_out_fine_tuning(request: FinetuneRequest) -> FineTuningResult:
    """Fine-tune a model on a task and keep it: the best run of a protocol's grid on the task's development rows.

    It is an evaluation of one model on one task that keeps its best weights; see `evaluate`. The same call goes on
    where an earlier one stopped.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`. A run that fails raises nothing while another is finished.

    Example:
        >>> result = limbeck.finetune("runs/e5/student", "rte", data="data", preset="quick", output="runs/rte")
        >>> result.model.name
        'model'
    """
    console = progress_console(request.console)
    folder = Path(request.output).expanduser()
    objects = Objects(folder, partial(EVALUATION.look, folder))
    evaluation_request = EvaluationRequest(
        models=(objects.model(request.model),),
        tasks=str(request.task),
        output=folder,
        data=data_folder(request.data),
        preset=request.preset,
        seeds=request.seeds,
        workers=request.workers,
        overrides=tuple(request.overrides),
        keep_weights="best",
    )
    task = fine_tuned_task(evaluation_request)
    # Torch is imported from here on, which takes seconds.
    from limbeck.evaluation.run.evaluation import run_evaluation
    from limbeck.evaluation.run.kept_weights import place_model
    from limbeck.evaluation.run.results_file import ResultsFile
    from limbeck.report.evaluation import write_evaluation
    from limbeck.report.fine_tuned_card import write_fine_tuned_card
    from limbeck.report.scores import weak_score_notes

    with ProgressBar(console, at_once=True) as bar:
        outcome = run_evaluation(evaluation_request, bar)
    # One model and one task were asked for, so that there is at most one choice; none where all runs failed.
    choice = next(iter(outcome.choices.values()), None)
    if choice is None:
        errors = [cell.error for cell in ResultsFile(folder).read() if cell.status == FAILED]
        raise TrainingError(f"Nothing was fine-tuned: {errors[-1]}")

    # A model is fine-tuned to be a teacher. The tables and its card say if its score is weak.
    notes_on_teacher = weak_score_notes(outcome.summary)
    outcome.summary.notes += notes_on_teacher
    outcome.summary.notes_in_short += notes_on_teacher
    (task_name,) = evaluation_request.task_names()
    write_card = partial(write_fine_tuned_card, choice.best, task, outcome.summary, task_name=task_name)
    model_folder = place_model(folder, choice.best, write_card)
    # The tables name the folder in which the weights are kept.
    outcome.summary.models[0].chosen[task.name].weights = model_folder.name
    files = write_evaluation(outcome.summary, folder)
    return FineTuningResult(
        model=ModelFolder(model_folder),
        scores=choice.best.scores,
        evaluation=outcome.summary,
        failed=outcome.failed,
        files=(*files, *outcome.submissions),
    )


finetune = python_call("finetune", FinetuneRequest, carry_out_fine_tuning)
