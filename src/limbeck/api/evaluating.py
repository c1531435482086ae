"""`evaluate`: models scored on tasks, and their costs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.calls import python_call
from limbeck.api.checkpoint_students import checkpoints_of_student, folder_name, make_student
from limbeck.api.objects import Objects
from limbeck.api.progress import progress_console
from limbeck.api.requests.evaluate import EvaluateRequest
from limbeck.api.requests.values import as_list, with_commas
from limbeck.api.results import Result
from limbeck.core import studies
from limbeck.core.blocks import Block
from limbeck.core.devices import check_device, choose_device
from limbeck.core.paths import INPUTS
from limbeck.core.progress_bars import ProgressBar
from limbeck.evaluation.plan.request import EVALUATION, EvaluationRequest

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class EvaluationResult(Result):
    """The result of an evaluation.

    Args:
        evaluation: The record of its tables: columns, models, averages, retention, published rows.
        measured_costs: The record of the models' costs; None where they were not asked for.
        failed: Number of cells that gave nothing; the record's notes say why.
        files: Tables, and files for leaderboards.
    """

    evaluation: studies.Evaluation
    measured_costs: studies.Costs | None
    failed: int
    files: tuple[Path, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """The record of the tables as plain values, as in `evaluation_table.json`."""
        return self.evaluation.to_dict()

    @property
    def costs(self) -> dict[str, Any] | None:
        """The record of the costs as plain values."""
        return None if self.measured_costs is None else self.measured_costs.to_dict()

    @property
    def folder(self) -> Path:
        """The evaluation's folder."""
        return self.files[0].parent

    def blocks(self) -> Iterator[Block]:
        """Yield the tables of scores and costs, with their notes."""
        from limbeck.report.evaluation import evaluation_blocks

        yield from evaluation_blocks(self.evaluation, self.measured_costs)

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        from limbeck.report.evaluation import evaluation_csv

        return evaluation_csv(self.evaluation)

    def to_pandas(self) -> "DataFrame":
        """Return its figures as a table of pandas, unrounded, a row each, with their units."""
        from limbeck.api.figure_units import add_units

        return add_units(super().to_pandas(), "column")


def carry_out_evaluation(request: EvaluateRequest) -> EvaluationResult:
    """Score models on tasks, fine-tuned by a paper's protocol or as they are, and measure their costs.

    Every cell (a model on a task, at a grid point, with a seed) is on disk as soon as it is finished; the same call
    goes on where an earlier one stopped, and more models, tasks or seeds leave the finished ones as they are.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`. A cell that fails raises nothing: see `failed`.

    Example:
        >>> result = limbeck.evaluate("runs/e5/student", "rte", data="data", preset="quick", output="runs/scores")
        >>> result.failed
        0
    """
    console = progress_console(request.console)
    folder = Path(request.output).expanduser()
    evaluation_request = _evaluation_request(request)
    check_device(request.device)
    has_scores = bool(evaluation_request.tasks) or not request.speed
    if has_scores:
        # Called for its error: it refuses a request without tasks, which without `speed` has nothing to measure.
        evaluation_request.task_names()
    titles_of_students: dict[str, str] = {}
    if request.checkpoints is not None:
        # Making the students takes a while, so that wrong names of tasks are refused before.
        if has_scores:
            evaluation_request.check_tasks()
        titles_of_students = _make_students_by_step(Path(request.checkpoints).expanduser(), folder, request.console)
        models = (*evaluation_request.models, *titles_of_students)
        evaluation_request = replace(evaluation_request, models=models)
    titles = evaluation_request.titles(as_list(request.names)) | titles_of_students
    evaluation_request.check()
    # Torch is imported from here on, which takes seconds.
    from limbeck.evaluation.run.evaluation import run_evaluation
    from limbeck.evaluation.run.output_folder import prepare_folder
    from limbeck.report.evaluation import write_evaluation

    device = choose_device(request.device)
    failed = 0
    submissions: tuple[Path, ...] = ()
    if has_scores:
        with ProgressBar(console, at_once=True) as bar:
            outcome = run_evaluation(evaluation_request, bar)
        evaluation = outcome.summary
        for model in evaluation.models:
            model.title = titles[model.name]
        failed = outcome.failed
        submissions = outcome.submissions
    else:
        # Costs alone are measured: the table of scores is empty.
        preset = evaluation_request.preset
        prepare_folder(folder, preset=preset, overrides=sorted(evaluation_request.overrides), as_is=request.as_is)
        nothing: dict[str, Any] = {"columns": [], "models": [], "published": [], "notes": []}
        evaluation = studies.Evaluation.read({"preset": preset, **nothing})

    costs = None
    if request.speed:
        with ProgressBar(console, is_even=False) as bar:
            costs = _measure_costs(titles, request, device, bar)
    files = write_evaluation(evaluation, folder, costs)
    return EvaluationResult(evaluation, costs, failed, (*files, *submissions))


def _evaluation_request(request: EvaluateRequest) -> EvaluationRequest:
    """Turn a call into the request of the evaluation, with names in the place of the call's objects."""
    folder = Path(request.output).expanduser()
    objects = Objects(folder, partial(EVALUATION.look, folder))
    preset = request.preset
    # `minilmv2` says how models are fine-tuned; models that are scored as they are have been fine-tuned already.
    if not preset:
        preset = "mlkd_bert" if request.as_is else "minilmv2"
    teacher = None
    if request.teacher is not None:
        teacher = objects.model(request.teacher, "teacher")
    return EvaluationRequest(
        models=tuple(objects.models(request.models)),
        tasks=with_commas(request.tasks),
        output=Path(request.output),
        data=data_folder(request.data),
        preset=preset,
        average=request.average,
        seeds=request.seeds,
        teacher=teacher,
        workers=request.workers,
        overrides=tuple(request.overrides),
        as_is=request.as_is,
        classes=request.classes or {},
        keep_weights=request.keep_weights,
    )


def _make_students_by_step(run: Path, output: Path, console: Console | None) -> dict[str, str]:
    """Make the student of each checkpoint of a run, and return the title of each by its folder.

    The students stay in the folder of the evaluation, so that the same call finds them again.

    Args:
        run: The run's folder.
        output: The evaluation's folder.
        console: Where progress goes.
    """
    # A folder with other files than those of an evaluation is refused before a student is written there.
    EVALUATION.look(output)
    checkpoints = checkpoints_of_student(run)
    has_stages = len({checkpoint.stage_number for checkpoint in checkpoints}) > 1
    titles = {}
    for checkpoint in checkpoints:
        student = make_student(checkpoint, output / INPUTS / folder_name(checkpoint), console)
        title = f"step {checkpoint.step:,}"
        if has_stages:
            title = f"{checkpoint.stage}, {title}"
        titles[str(student)] = title
    return titles


def _measure_costs(titles: dict[str, str], request: EvaluateRequest, device: Any, bar: ProgressBar) -> studies.Costs:
    """Measure sizes, operations and latencies.

    Args:
        titles: The models, with their names in tables.
        request: The request, with the sizes of the texts.
        device: The device that is measured.
        bar: Receives the progress.
    """
    from limbeck.benchmark.costs import measure_costs

    costs = measure_costs(
        list(titles),
        device=device,
        batch_sizes=request.batch_sizes,
        lengths=request.lengths,
        seconds=request.seconds,
        report=bar,
    )
    for row in costs["models"]:
        row["title"] = titles[row["model"]]
    return studies.Costs.read(costs)


def data_folder(data: str | Path | None) -> Path | None:
    """Return the folder with tasks' files; None for the Hub."""
    if data is None or str(data).lower() == "hub":
        return None
    return Path(data).expanduser()


evaluate = python_call("evaluate", EvaluateRequest, carry_out_evaluation)
