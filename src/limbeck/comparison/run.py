"""`run_comparison`: from a plan to its table and its record, run by run, resumable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.benchmark.model import measure_costs
from limbeck.comparison.cells import Cell, CheckedPlan, check_plan, steps_of_stages
from limbeck.comparison.distilling import (
    COMPARISON,
    ComparisonRecord,
    Distil,
    check_fixed,
    describe_cell,
    describe_impossible,
    distil_cells,
)
from limbeck.comparison.held_out import HeldOutText, check_held_out
from limbeck.comparison.plan import ComparisonPlan, MeasuresSpec, SpeedSpec
from limbeck.comparison.summary import summarise_comparison
from limbeck.core.files import atomic_text, default_cache_dir
from limbeck.core.folders import claim
from limbeck.core.machine import choose_device
from limbeck.core.progress import Count, ProgressBar, Report
from limbeck.corpus import Corpus
from limbeck.errors import CorpusError, Interrupted
from limbeck.evaluation.cell import model_fingerprint
from limbeck.evaluation.grid import EvaluationOutcome, run_evaluation
from limbeck.evaluation.grid_plan import EvaluationRequest, Planner, parse_overrides
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.models.families import shape_of
from limbeck.models.loading import load_config, load_model, quiet
from limbeck.models.vocabulary import load_tokenizer
from limbeck.training.run import build_corpora

# Evaluating the students of a comparison on its tasks, by `limbeck evaluate`'s own cells, and what they cost.


EVALUATION = "evaluation"
COSTS = "costs.json"


def request_evaluation(
    spec: MeasuresSpec, folder: Path, *, teacher: str | None, students: Sequence[Path]
) -> EvaluationRequest:
    """Return what is asked of `limbeck evaluate`.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The model to compare with, if it is evaluated.
        students: The students' folders.
    """
    data = None if spec.data is None or spec.data.lower() == "hub" else Path(spec.data).expanduser()
    return EvaluationRequest(
        models=tuple(map(str, students)),
        tasks=",".join(spec.tasks),
        output=folder / EVALUATION,
        data=data,
        preset=spec.preset,
        seeds=spec.seeds,
        teacher=teacher,
        workers=spec.workers,
        overrides=spec.overrides,
    )


def check_tasks(spec: MeasuresSpec, *, read: bool) -> list[str]:
    """Check tasks and settings, before hours go into students that could not be evaluated.

    Args:
        spec: The plan's.
        read: Read the tasks' rows too; where they are in a folder they are in any case.

    Returns:
        The tasks' names, groups expanded.

    Raises:
        RecipeError: for an unknown task or setting.
        CorpusError: for a task whose rows are not there, or cannot be read.
    """
    if not spec.tasks:
        return []
    request = request_evaluation(spec, Path(), teacher=None, students=[])
    names = request.task_names()
    overrides = parse_overrides(request.overrides, request.short_names())
    if request.data is not None and not request.data.is_dir():
        raise CorpusError(f"The data folder '{request.data}' does not exist.")
    planner = Planner(
        models=(),
        protocol=PROTOCOLS[spec.preset],
        overrides=overrides,
        seeds=spec.seeds,
        data=request.data,
        cache_dir=default_cache_dir(),
        bf16=False,
        finished=(),
    )
    for name in names if read or request.data is not None else ():
        planner.plan(name)
    return names


def evaluate_students(
    spec: MeasuresSpec, folder: Path, *, teacher: str, students: Sequence[Path], report: Report
) -> EvaluationOutcome | None:
    """Evaluate students on the plan's tasks; cells that are finished are not run again.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The teacher.
        students: The students' folders.
        report: Is told how far it is.

    Returns:
        None without tasks or students.
    """
    if not spec.tasks or not students:
        return None
    compared = teacher if spec.teacher else None
    return run_evaluation(request_evaluation(spec, folder, teacher=compared, students=students), report)


def measure_costs_once(
    spec: SpeedSpec, folder: Path, *, teacher: str, students: Mapping[str, Path], report: Report
) -> dict[str, Any] | None:
    """Measure the teacher and a student of each shape, unless that has been done.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The teacher; speedups refer to it.
        students: A student's folder for each title.
        report: Is told how far it is.

    Returns:
        As `measure_costs`, with the students' titles in place of their folders; None where it was not asked for.
    """
    if not spec.enabled or not students:
        return None
    shapes = {title: str(shape_of(load_config(path))) for title, path in students.items()}
    asked = {**spec.model_dump(exclude={"enabled"}), "teacher": teacher, "students": shapes}
    path = folder / COSTS
    if path.is_file():
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if saved["asked"] == asked:
            return saved["costs"]
    found = measure_costs(
        [teacher, *map(str, students.values())],
        device=choose_device(spec.device),
        batch_sizes=spec.batch_sizes,
        lengths=spec.lengths,
        seconds=spec.seconds,
        report=report,
    )
    titles = {str(path): title for title, path in students.items()}
    for row in (*found["models"], *found["timings"]):
        row["model"] = titles.get(row["model"], row["model"])
    atomic_text(path, json.dumps({"asked": asked, "costs": found}, indent=2) + "\n")
    return found


TEACHER = "teacher"


@dataclass(frozen=True)
class ComparisonOutcome:
    """What a comparison leaves.

    Attributes:
        record: As in `comparison.json`; its `summary` is the content of the tables.
        failed: How many runs and fine-tunings gave nothing; the summary's notes say why.
    """

    record: dict[str, Any]
    failed: int


def run_comparison(plan: ComparisonPlan, folder: Path, distil: Distil, console: Console) -> ComparisonOutcome:
    """Distil every combination with every seed, measure the students, and gather the figures.

    What is finished in the folder is not done again, and a run that was stopped goes on from its checkpoint.

    Args:
        plan: The plan.
        folder: Of the comparison.
        distil: Carries out one recipe in its `output`, going on where an earlier run of it stopped.
        console: Where progress goes.

    Raises:
        LimbeckError: for a plan that cannot be carried out, before anything runs; a run that fails raises nothing.
        OutputError: for a folder that cannot be used, or holds a comparison of something else.
        Interrupted: if the user stopped it; what was finished is kept.
    """
    checked = check_plan(plan)
    check_tasks(plan.evaluation, read=True)
    fixed = _fixed(plan)
    saved = claim(folder, COMPARISON, fixed)
    with quiet():
        corpus = build_corpora(checked.with_text, _tokenizer(plan), console)[0]
    check_held_out(corpus, plan.evaluation.held_out)
    fixed |= {"teacher_weights": model_fingerprint(plan.teacher.model), "text": corpus.path.name}
    check_fixed(folder, saved, fixed)
    cells = plan_cells(checked, corpus)
    record = ComparisonRecord(
        folder,
        saved,
        {
            "name": plan.name,
            "plan": plan.model_dump(mode="json"),
            "fixed": {**saved.get("fixed", {}), **fixed},
            "corpus": {"tokens": corpus.tokens, "rows": len(corpus.train), "held_out_rows": len(corpus.held_out)},
            "teacher": {
                "name": plan.teacher.model,
                "title": plan.teacher.name or plan.teacher.model,
                "shape": str(checked.with_text.teacher),
                "held_out": None,
            },
            "impossible": describe_impossible(checked.impossible),
        },
    )
    comparison = _Comparison(checked, folder, corpus, cells, record, console)
    try:
        return comparison.carry_out(distil)
    except (Interrupted, KeyboardInterrupt) as error:
        comparison.note_interruption()
        message = str(error) or f"Stopped; what is done is kept in '{folder}'; the same command goes on from there."
        raise (type(error) if isinstance(error, Interrupted) else Interrupted)(message) from None


def plan_cells(checked: CheckedPlan, corpus: Corpus) -> list[Cell]:
    """Return all runs, seed by seed, so that a first table of all methods is there early.

    Raises:
        RecipeError: if the budget is too small for a stage.
    """
    plan, tokens_per_row = checked.plan, corpus.tokens / len(corpus.train)
    cells = []
    for seed in plan.seeds:
        for combination in checked.combinations:
            variant = combination.variant
            trainings = [{**plan.training, **stage["training"]} for stage in variant.stages]
            steps = steps_of_stages(plan.budget.tokens, variant.shares, trainings, tokens_per_row)
            cells.append(Cell(combination, seed, steps, combination.recipe(plan, seed, steps)))
    return cells


class _Comparison:
    """Carries a checked plan out in its folder."""

    def __init__(
        self,
        checked: CheckedPlan,
        folder: Path,
        corpus: Corpus,
        cells: Sequence[Cell],
        record: ComparisonRecord,
        console: Console,
    ) -> None:
        self._checked = checked
        self._plan = checked.plan
        self._folder = folder
        self._corpus = corpus
        self._cells = cells
        self._record = record
        self._console = console
        self._shapes = {id(combination): run.student for combination, run in checked.runs}
        self._entries = [self._describe(cell, None) for cell in cells]

    def carry_out(self, distil: Distil) -> ComparisonOutcome:
        """Distil, measure, summarise."""
        self._record.set("running", cells=self._entries)
        settled = distil_cells(self._cells, self._folder, distil, self._console)
        for index, (cell, problem) in enumerate(settled):
            self._entries[index] = self._describe(cell, problem)
            self._record.set("running")
        if self._plan.evaluation.held_out.enabled:
            self._measure_held_out()
        evaluation, failed = self._evaluate()
        costs = self._measure_costs()
        failed += sum(entry["status"] != "finished" for entry in self._entries)
        summary = summarise_comparison(self._by_combination(), self._record.fields["teacher"], evaluation, costs)
        self._record.set("failed" if failed else "finished", summary=summary, costs=costs)
        return ComparisonOutcome(self._record.fields, failed)

    def note_interruption(self) -> None:
        """Write down how far it came."""
        for index, (cell, entry) in enumerate(zip(self._cells, self._entries, strict=True)):
            if entry["status"] != "finished":
                self._entries[index] = self._describe(cell, entry["problem"])
        self._record.set("interrupted")

    @property
    def _finished(self) -> list[dict[str, Any]]:
        return [entry for entry in self._entries if entry["status"] == "finished"]

    def _describe(self, cell: Cell, problem: str | None) -> dict[str, Any]:
        return describe_cell(cell, str(self._shapes[id(cell.combination)]), self._folder, problem)

    def _by_combination(self) -> list[dict[str, Any]]:
        """The runs in the order of the table: student by student as planned, seeds innermost."""
        order = {id(combination): index for index, combination in enumerate(self._checked.combinations)}
        pairs = sorted(zip(self._cells, self._entries, strict=True), key=lambda pair: order[id(pair[0].combination)])
        return [entry for _, entry in pairs]

    def _measure_held_out(self) -> None:
        plan, finished = self._plan, self._finished
        with quiet(), ProgressBar(self._console) as bar:
            load_teacher = partial(load_model, plan.teacher.model, revision=plan.teacher.revision)
            text = HeldOutText(
                load_teacher().to(choose_device("auto")).eval(),
                _tokenizer(plan),
                self._corpus,
                plan.evaluation.held_out,
                pooling=self._checked.with_text.pooling,
                students=list(self._shapes.values()),
            )
            bar(0.0, "held-out text: teacher", Count(0, "models"))
            (self._folder / TEACHER).mkdir(exist_ok=True)
            own = text.measure_once(self._folder / TEACHER, load_teacher)
            self._record.fields[TEACHER]["held_out"] = own["figures"]
            for number, entry in enumerate(finished):
                done = number + 1
                bar(done / (len(finished) + 1), f"held-out text: {entry['title']}", Count(done, "models"))
                found = text.measure_once(self._folder / entry["folder"])
                entry |= {"held_out": found["figures"], "unavailable": found["unavailable"]}
        self._record.set("running")

    def _evaluate(self) -> tuple[dict[str, Any] | None, int]:
        finished = self._finished
        students = [Path(entry["model"]) for entry in finished]
        with ProgressBar(self._console) as bar:
            outcome = evaluate_students(
                self._plan.evaluation, self._folder, teacher=self._plan.teacher.model, students=students, report=bar
            )
        if outcome is None:
            return None, 0
        columns = {model["name"]: model["columns"] for model in outcome.summary["models"]}
        for entry in finished:
            scores = columns.get(entry["model"], {})
            entry["scores"] = {key: cell["mean"] for key, cell in scores.items()}
        self._record.set("running")
        return outcome.summary, outcome.failed

    def _measure_costs(self) -> dict[str, Any] | None:
        """Methods change weights only: one student of each shape stands for all."""
        students: dict[str, Path] = {}
        for entry in self._finished:
            students.setdefault(entry["student"], Path(entry["model"]))
        spec = self._plan.evaluation.speed
        with ProgressBar(self._console) as bar:
            return measure_costs_once(
                spec, self._folder, teacher=self._plan.teacher.model, students=students, report=bar
            )


def _fixed(plan: ComparisonPlan) -> dict[str, Any]:
    """What all runs of a folder share, as plain values."""
    fixed: dict[str, Any] = {
        "teacher": plan.teacher.model_dump(mode="json"),
        "corpus": plan.corpus.model_dump(mode="json"),
        "budget": plan.budget.model_dump(mode="json"),
        "training": plan.training,
    }
    if plan.evaluation.tasks:
        fixed["evaluation"] = {"preset": plan.evaluation.preset, "settings": plan.evaluation.settings}
    plain: dict[str, Any] = json.loads(json.dumps(fixed))
    return plain


def _tokenizer(plan: ComparisonPlan) -> Any:
    return load_tokenizer(plan.teacher.model, revision=plan.teacher.revision)
