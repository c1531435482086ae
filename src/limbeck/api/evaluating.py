"""`evaluate` models, `finetune` one, `compare` methods side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.given import refuse_unknown
from limbeck.api.objects import Objects, listed
from limbeck.api.showing import ModelResult, Result, chosen_console
from limbeck.core import studies
from limbeck.core.blocks import Block, Notes
from limbeck.core.devices import check_device, choose_device
from limbeck.core.progress import ProgressBar
from limbeck.core.studies import FAILED
from limbeck.errors import TrainingError
from limbeck.evaluation.request import FINE_TUNING_PRESET, EvaluationRequest, fine_tuned_task

if TYPE_CHECKING:
    from limbeck.comparison.plan import ComparisonPlan


@dataclass(frozen=True, repr=False)
class EvaluationResult(Result):
    """What an evaluation leaves.

    Args:
        summary: The content of its tables: columns, models, averages, retention, published rows.
        costs: What the models cost; None where it was not asked for.
        failed: How many cells gave nothing; the summary's notes say why.
        files: Tables, and files for leaderboards.
    """

    summary: dict[str, Any]
    costs: dict[str, Any] | None
    failed: int
    files: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        """The evaluation's folder."""
        return self.files[0].parent

    def _blocks(self) -> Iterator[Block]:
        from limbeck.report.evaluation import evaluation_blocks

        yield from evaluation_blocks(self.summary, self.costs)

    def _csv(self) -> str:
        from limbeck.report.evaluation import evaluation_csv

        return evaluation_csv(self.summary)


def _score_tables(summary: Mapping[str, Any]) -> Iterator[Block]:
    from limbeck.report.evaluation import scores_table

    record = studies.Evaluation.read(summary)
    if record.columns:
        yield scores_table(record)
    yield Notes(tuple(record.notes_in_short))


@refuse_unknown
def evaluate(
    models: Any,
    tasks: str | Sequence[str | Path] = "",
    *,
    output: str | Path,
    data: str | Path | None = None,
    as_is: bool = False,
    classes: Mapping[str, str] | None = None,
    preset: str | None = None,
    average: str | None = None,
    seeds: int | None = None,
    teacher: Any = None,
    names: Sequence[str] = (),
    workers: int = 1,
    overrides: str | Sequence[str] = (),
    keep_weights: str | None = None,
    speed: bool = False,
    batch_sizes: Sequence[int] = (1, 16, 32, 64),
    lengths: Sequence[int] = (128,),
    device: str = "auto",
    seconds: float = 60.0,
    console: Console | None = None,
) -> EvaluationResult:
    """Score models on tasks, fine-tuned by a paper's protocol or as they are, and measure their costs.

    Every cell (a model on a task, at a grid point, with a seed) is on disk as soon as it is finished; the same call
    goes on where an earlier one stopped, and more models, tasks or seeds leave the finished ones as they are.

    Args:
        models: Folders, `package:NAME` or Hub names; models of transformers or sentence-transformers, which are kept in
            the folder's `inputs`; results of `distill` and `finetune`. Several in a list, or one alone.
        tasks: Names of tasks and groups, and paths of task files, in a list or by commas; may be empty with `speed`.
        output: The evaluation's folder.
        data: Folder with the tasks' files; None or `"hub"` for the Hub.
        as_is: Score the models by their heads as they are; nothing is trained.
        classes: For `as_is`, names of a model's classes to the task's names of them, such as `LABEL_0` to `entailment`.
        preset: Name of a protocol, see `limbeck.evaluation.protocols`; None for `minilmv2`, or, of models as they are,
            `mlkd_bert`, whose students were scored so.
        average: Table of the preset's paper to average as; None for the preset's usual average.
        seeds: Runs of every grid point; None leaves it to the protocol.
        teacher: What the others are compared with, given as they are; None for the first model. It is evaluated too.
        names: Names of the models in tables, in their order, then the teacher's; for those without one it is the last
            part of their own.
        workers: Processes that run cells. With more than one, a script has to call this under its main guard.
        overrides: `setting=value` or `task.setting=value` each, or one alone.
        keep_weights: `"best"` keeps the best fine-tuned model of each model and task, `"all"` that of every cell; they
            lie in the folder `weights`. None keeps none.
        speed: Measure sizes, operations and latency too.
        batch_sizes: Texts a pass, for the latency.
        lengths: Tokens a text, for the latency.
        device: Where the latency is measured: `"auto"`, `"cpu"`, `"cuda"` …
        seconds: For all latencies together.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`. A cell that fails raises nothing: see `failed`.
    """
    console, objects = chosen_console(console), Objects(output)
    tasks, settings = ",".join(map(str, listed(tasks))), tuple(listed(overrides))
    preset = preset or ("mlkd_bert" if as_is else "minilmv2")
    request = EvaluationRequest(
        models=tuple(objects.models(models)),
        tasks=tasks,
        output=Path(output),
        data=_folder_of(data),
        preset=preset,
        average=average,
        seeds=seeds,
        teacher=None if teacher is None else objects.model(teacher, "teacher"),
        workers=workers,
        overrides=settings,
        as_is=as_is,
        classes=classes or {},
        keep_weights=keep_weights,
    )
    check_device(device)
    if tasks or not speed:
        request.task_names()  # Of nothing to measure.
    titles = request.titles(listed(names))
    request.check()
    # Torch is imported from here on, which takes seconds.
    from limbeck.benchmark.model import measure_costs
    from limbeck.evaluation.grid import run_evaluation
    from limbeck.evaluation.output_folder import prepare_folder
    from limbeck.report.evaluation import write_evaluation

    chosen = choose_device(device)
    summary: dict[str, Any] = {"preset": preset, "columns": [], "models": [], "published": [], "notes": []}
    failed, folder, costs = 0, Path(output).expanduser(), None
    files: tuple[Path, ...] = ()
    if tasks or not speed:
        with ProgressBar(console, at_once=True) as bar:
            outcome = run_evaluation(request, bar)
        for model in outcome.summary.models:
            model.title = titles[model.name]
        summary, failed, files = outcome.summary.to_dict(), outcome.failed, outcome.submissions
    else:
        prepare_folder(folder, preset=preset, overrides=sorted(settings), as_is=as_is)
    if speed:
        with ProgressBar(console) as bar:
            costs = measure_costs(
                list(titles), device=chosen, batch_sizes=batch_sizes, lengths=lengths, seconds=seconds, report=bar
            )
        for row in costs["models"]:
            row["title"] = titles[row["model"]]
    return EvaluationResult(summary, costs, failed, (*write_evaluation(summary, folder, costs), *files))


def _folder_of(data: str | Path | None) -> Path | None:
    return None if data is None or str(data).lower() == "hub" else Path(data).expanduser()


@dataclass(frozen=True, repr=False)
class FineTuningResult(ModelResult):
    """What a fine-tuning leaves.

    Args:
        model: The folder of the fine-tuned model, with its card.
        scores: Of this model, by split and metric, 0 to 1 (correlations -1 to 1).
        summary: The content of the evaluation's tables, over all seeds of the chosen grid point.
        failed: How many runs gave nothing; the summary's notes say why.
        files: The tables, and files for leaderboards.
    """

    model: Path
    scores: dict[str, dict[str, float | None]]
    summary: dict[str, Any]
    failed: int
    files: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        """The fine-tuning's folder."""
        return self.files[0].parent

    @property
    def _model(self) -> Path:
        return self.model

    def _blocks(self) -> Iterator[Block]:
        yield from _score_tables(self.summary)

    def _csv(self) -> str:
        from limbeck.report.evaluation import evaluation_csv

        return evaluation_csv(self.summary)


@refuse_unknown
def finetune(
    model: Any,
    task: str | Path,
    *,
    output: str | Path,
    data: str | Path | None = None,
    preset: str = FINE_TUNING_PRESET,
    seeds: int | None = None,
    workers: int = 1,
    overrides: str | Sequence[str] = (),
    console: Console | None = None,
) -> FineTuningResult:
    """Fine-tune a model on a task and keep it: the best run of a protocol's grid on the task's development rows.

    It is an evaluation of one model on one task that keeps its best weights; see `evaluate`. The same call goes on
    where an earlier one stopped.

    Args:
        model: A folder, `package:NAME` or a Hub name; or a model of transformers, with its tokenizer as (model,
            tokenizer) where that is not found where it was loaded from.
        task: Name of a task, or path of a task file.
        output: The folder; the model is `model` in it.
        data: Folder with the task's files; None or `"hub"` for the Hub.
        preset: Name of a protocol, see `limbeck.evaluation.protocols`.
        seeds: Runs of every grid point; None leaves it to the protocol.
        workers: Processes that train. With more than one, a script has to call this under its main guard.
        overrides: `setting=value` each, or one alone; one learning rate and one number of epochs are one grid point.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`. A run that fails raises nothing while another is finished.
    """
    console, folder = chosen_console(console), Path(output).expanduser()
    request = EvaluationRequest(
        models=(Objects(folder).model(model),),
        tasks=str(task),
        output=folder,
        data=_folder_of(data),
        preset=preset,
        seeds=seeds,
        workers=workers,
        overrides=tuple(listed(overrides)),
        keep_weights="best",
    )
    definition = fine_tuned_task(request)
    # Torch is imported from here on, which takes seconds.
    from limbeck.evaluation.grid import run_evaluation
    from limbeck.evaluation.grid_plan import check_fine_tuned
    from limbeck.evaluation.kept_weights import place_model
    from limbeck.evaluation.results_file import ResultsFile
    from limbeck.report.evaluation import write_evaluation
    from limbeck.report.fine_tuned_card import write_fine_tuned_card

    check_fine_tuned(request.models, definition)
    with ProgressBar(console, at_once=True) as bar:
        outcome = run_evaluation(request, bar)
    choice = next(iter(outcome.choices.values()), None)
    if choice is None:
        errors = [cell.error for cell in ResultsFile(folder).read() if cell.status == FAILED]
        raise TrainingError(f"Nothing was fine-tuned: {errors[-1]}")
    write_card = partial(write_fine_tuned_card, choice.best, definition, outcome.summary)
    place = place_model(folder, choice.best, write_card)
    outcome.summary.models[0].chosen[definition.name].weights = place.name
    summary = outcome.summary.to_dict()
    files = (*write_evaluation(summary, folder), *outcome.submissions)
    return FineTuningResult(place, choice.best.scores, summary, outcome.failed, files)


@dataclass(frozen=True, repr=False)
class ComparisonResult(Result):
    """What a comparison leaves.

    Args:
        record: As in `comparison.json`; its `summary` is the content of the tables.
        failed: How many runs and fine-tunings gave nothing; the summary's notes say why.
        files: The tables.
    """

    record: dict[str, Any]
    failed: int
    files: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        """The comparison's folder."""
        return self.files[0].parent

    def _blocks(self) -> Iterator[Block]:
        from limbeck.report.comparison import comparison_blocks

        yield from comparison_blocks(self.record)

    def _csv(self) -> str:
        from limbeck.report.comparison import methods_csv

        return methods_csv(self.record)


@refuse_unknown
def compare(
    plan: ComparisonPlan | Mapping[str, Any] | str | Path,
    overrides: str | Sequence[str] = (),
    *,
    output: str | Path,
    data: str | Path | None = None,
    console: Console | None = None,
) -> ComparisonResult:
    """Distil students by several methods under one token budget, and evaluate them side by side.

    Args:
        plan: A `ComparisonPlan`, a dict (with objects in the places of names), or the path of a YAML file.
        overrides: `path.to.key=value` each, or one alone.
        output: The comparison's folder; what is finished in it is not done again.
        data: Folder with the tasks' files, or `"hub"`; wins over the plan's.
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`. A run that fails raises nothing: see `failed`.
    """
    from limbeck.api.distilling import write_cards_of_run
    from limbeck.comparison.folder import check_places
    from limbeck.comparison.plan import load_plan

    console, folder = chosen_console(console), Path(output).expanduser()
    named = Objects(folder).document(plan) if isinstance(plan, Mapping) else plan
    checked = load_plan(named, overrides, data=data)
    check_places(checked, folder)
    # Torch is imported from here on, which takes seconds.
    from limbeck.comparison.run import run_comparison
    from limbeck.report.comparison import write_comparison

    outcome = run_comparison(checked, folder, console, write_cards_of_run)
    record = outcome.record.to_dict()
    return ComparisonResult(record, outcome.failed, tuple(write_comparison(record, folder)))
