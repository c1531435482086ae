"""`run_comparison`: from a plan to its table and its record, run by run, resumable."""

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from limbeck.benchmark.costs import measure_costs
from limbeck.comparison import held_out, summary
from limbeck.comparison.cells import Cell, steps_of_stages
from limbeck.comparison.checks import CheckedPlan, check_plan
from limbeck.comparison.folder import COMPARISON, check_fixed, fixed_at_first, known_teacher, request_evaluation
from limbeck.comparison.plan import ComparisonPlan
from limbeck.core import blocks, devices, folders, machine, paths, records, studies
from limbeck.core.progress import Count, ProgressBar, Report, print_plain
from limbeck.corpus import Corpus
from limbeck.errors import Interrupted, describe_error
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.evaluation.plan.planning import PlannedTask, Planner
from limbeck.evaluation.run.evaluation import EvaluationOutcome, run_evaluation
from limbeck.models.families import shape_of
from limbeck.models.fingerprint import fingerprint_beside
from limbeck.models.loading import load_config
from limbeck.models.quiet import quiet
from limbeck.models.tokenizers import load_tokenizer
from limbeck.recipe.facts import load_checked
from limbeck.recipe.plan import plan_checked
from limbeck.training.corpora import build_corpora
from limbeck.training.distil import WriteCards, distil
from limbeck.training.teaching.models import load_teacher_model

TEACHER = "teacher"


def is_distilled(run: Path) -> bool:
    """Whether a run is finished, and its student is there."""
    return records.load(records.Run, run).is_finished and (run / paths.STUDENT / "config.json").is_file()


def check_tasks(spec: MeasuresSpec, *, read: bool) -> list[PlannedTask]:
    """Check tasks and settings, before hours go into students that could not be evaluated.

    Args:
        spec: The plan's.
        read: Read the tasks' rows too; where they are in a folder they are in any case.

    Returns:
        The tasks whose rows were read, groups expanded.

    Raises:
        RecipeError: for an unknown task or setting.
        CorpusError: for a task whose rows are not there, or cannot be read.
    """
    if not spec.tasks:
        return []
    request = request_evaluation(spec, Path(), teacher=None, students=[])
    request.check_tasks()
    planner = Planner(request)
    return [planner.plan(name) for name in planner.names if read or request.data is not None]


def evaluate_students(
    spec: MeasuresSpec, folder: Path, *, teacher: str, students: Sequence[Path], report: Report
) -> EvaluationOutcome:
    """Evaluate students on the plan's tasks, of each at least one; cells that are finished are not run again.

    Args:
        spec: The plan's.
        folder: Of the comparison.
        teacher: The teacher.
        students: The students' folders.
        report: Where progress goes.
    """
    compared = teacher if spec.teacher else None
    return run_evaluation(request_evaluation(spec, folder, teacher=compared, students=students), report)


@dataclass(frozen=True)
class ComparisonOutcome:
    """The result of a comparison.

    Attributes:
        record: `comparison.json`; its `summary` is the content of the tables.
        failed: How many runs and fine-tunings gave nothing; the summary's notes say why.
    """

    record: studies.Comparison
    failed: int


def run_comparison(
    plan: ComparisonPlan, folder: Path, console: Console, write_cards: WriteCards | None = None
) -> ComparisonOutcome:
    """Distil every combination with every seed, measure the students, and gather the figures.

    What is finished in the folder is not done again, and a run that was stopped goes on from its checkpoint.

    Args:
        plan: The plan.
        folder: Of the comparison.
        console: Where progress goes.
        write_cards: Writes the cards of each run.

    Raises:
        LimbeckError: for a plan that cannot be carried out, before anything runs; a run that fails raises nothing.
        OutputError: for a folder that cannot be used, or holds a comparison of something else.
        Interrupted: if the user stopped it; what was finished is kept.
    """
    checked = check_plan(plan)
    check_tasks(plan.evaluation, read=True)
    fixed = _fixed(plan)
    saved = folders.claim(folder, COMPARISON, fixed)
    began = fixed_at_first(saved)
    with quiet():
        corpus = build_corpora(checked.with_text, _tokenizer(plan), console)[0]
    held_out.check_held_out(corpus, plan.evaluation.held_out)

    # New runs are compared with those of the folder, so models and text have to be the same.
    fixed["teacher_weights"] = fingerprint_beside(known_teacher(saved), plan.teacher.model)
    fixed["content"] = corpus.identity
    if began:
        check_fixed(folder, saved, fixed)
    else:
        # A comparison that does not know its text by content may know it by its folder in the cache.
        check_fixed(folder, saved, {**fixed, "text": corpus.path.name})
    fixed |= began

    earlier = studies.Comparison.read(saved)
    record = studies.Comparison(
        created=earlier.created or records.timestamp(),
        name=plan.name,
        plan=studies.PlannedComparison.read(plan.model_dump(mode="json")),
        fixed={**earlier.fixed, **fixed},
        corpus=studies.ComparedText(tokens=corpus.tokens, rows=len(corpus.train), held_out_rows=len(corpus.held_out)),
        teacher=studies.ComparedTeacher(
            name=plan.teacher.model,
            title=plan.teacher.name or plan.teacher.model,
            shape=str(checked.with_text.teacher),
            held_out=None,
        ),
        impossible=list(checked.impossible),
        versions=machine.versions(),
        git_commit=machine.git_commit(),
        hardware=records.Hardware.read(machine.hardware()),
    )
    cells = plan_cells(checked, corpus, began)
    comparison = _Comparison(checked, folder, corpus, cells, record, console, write_cards)
    try:
        return comparison.carry_out()
    except (Interrupted, KeyboardInterrupt) as error:
        comparison.note_interruption()
        message = str(error) or f"Stopped; finished work is kept in '{folder}'; the same command continues from there."
        raise _interruption(error, message) from None


def _interruption(error: BaseException, message: str) -> Interrupted:
    """Return a stop with another message; a stop by SIGTERM keeps its type, which has its own exit status."""
    if isinstance(error, Interrupted):
        return type(error)(message)
    return Interrupted(message)


def plan_cells(checked: CheckedPlan, corpus: Corpus, began: Mapping[str, Any] | None = None) -> list[Cell]:
    """Return all runs, seed by seed, so that a first table of all methods is there early.

    Args:
        checked: The plan.
        corpus: Its text.
        began: Teacher and corpus as the comparison began with them, if they have moved since.

    Raises:
        RecipeError: if the budget is too small for a stage.
    """
    plan = checked.plan
    tokens_per_row = corpus.tokens / len(corpus.train)
    cells = []
    for seed in plan.seeds:
        for combination, run in checked.runs:
            variant = combination.variant
            trainings = [{**plan.training, **stage["training"]} for stage in variant.stages]
            steps = steps_of_stages(plan.budget.tokens, variant.shares, trainings, tokens_per_row)
            recipe = combination.recipe(plan, seed, steps)
            cells.append(Cell(combination, run.student, seed, steps, recipe, began or {}))
    return cells


@dataclass(frozen=True)
class _Comparison:
    """Carries a checked plan out in its folder."""

    checked: CheckedPlan
    folder: Path
    corpus: Corpus
    cells: Sequence[Cell]
    record: studies.Comparison
    console: Console
    write_cards: WriteCards | None

    def __post_init__(self) -> None:
        self.record.cells = [self._describe(cell) for cell in self.cells]

    def carry_out(self) -> ComparisonOutcome:
        """Distil, measure, summarise."""
        self._save("running")
        self._distil()
        if self.checked.plan.evaluation.held_out.enabled:
            self._measure_held_out()
        evaluation, failed = self._evaluate()
        costs = self._measure_costs()
        failed += len(self.cells) - len(self._finished)

        # Cells are planned seed by seed; the table has the seeds of a combination side by side.
        combinations = len(self.checked.runs)
        ordered: list[studies.ComparisonCell] = []
        for first in range(combinations):
            ordered += self.record.cells[first::combinations]
        self.record.summary = summary.summarise_comparison(ordered, self.record.teacher, evaluation, costs)
        self.record.costs = costs
        self._save("failed" if failed else "finished")
        return ComparisonOutcome(self.record, failed)

    def note_interruption(self) -> None:
        """Write down how far it came."""
        for index, (cell, entry) in enumerate(zip(self.cells, self.record.cells, strict=True)):
            if entry.status != "finished":
                self.record.cells[index] = self._describe(cell, entry.problem)
        self._save("interrupted")

    def _save(self, status: str) -> None:
        self.record.status = status
        self.record.updated = records.timestamp()
        records.save(self.record, self.folder)

    @property
    def _finished(self) -> list[studies.ComparisonCell]:
        return [cell for cell in self.record.cells if cell.status == "finished"]

    def _distil(self) -> None:
        """Distil the cells that are not finished, one by one; a cell that fails stops no other.

        Raises:
            Interrupted: on Ctrl-C; the run that it met goes on from its checkpoint.
        """
        missing = [index for index, cell in enumerate(self.cells) if not is_distilled(cell.folder(self.folder))]
        started = time.monotonic()
        for number, index in enumerate(missing):
            cell = self.cells[index]
            line = f"Run {number + 1} of {len(missing)}: {cell.title}"
            if number > 0:
                seconds_a_run = (time.monotonic() - started) / number
                seconds_left = seconds_a_run * (len(missing) - number)
                line += f" (about {blocks.duration(seconds_left)} for this and the rest)"
            print_plain(self.console, line)
            problem: str | None = None
            try:
                self._distil_cell(cell)
            except (Interrupted, KeyboardInterrupt) as error:
                done = len(self.cells) - len(missing) + number
                raise _interruption(
                    error,
                    f"Stopped at {cell.title}; {done} of {len(self.cells)} runs are done and kept in '{self.folder}'; "
                    "the same command continues from there.",
                ) from None
            except Exception as error:  # A fault in one run must not take the others with it.
                problem = describe_error(error)
                print_plain(self.console, f"  failed: {problem}", "red")
            gc.collect()  # A trainer holds itself in circles; two runs' models would be in memory at once.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.record.cells[index] = self._describe(cell, problem)
            self._save("running")

    def _distil_cell(self, cell: Cell) -> None:
        """Distil one cell in its folder, going on where an earlier run of it stopped."""
        recipe = load_checked({**cell.recipe, "output": str(cell.folder(self.folder))})
        distil(plan_checked(recipe), console=self.console, resume=True, write_cards=self.write_cards)

    def _describe(self, cell: Cell, problem: str | None = None) -> studies.ComparisonCell:
        """Describe a run by the files in its folder.

        Args:
            cell: The run.
            problem: Why it failed in this call; None where it did not.
        """
        run = cell.folder(self.folder)
        record = records.load(records.Run, run)
        if is_distilled(run):
            status = "finished"
        elif problem:
            status = "failed"
        else:
            status = record.status or "missing"
        if problem is None and status == "failed":
            problem = record.problem
        return studies.ComparisonCell(
            **cell.combination.parts,
            title=cell.title,
            seed=cell.seed,
            id=cell.id,
            shape=str(cell.shape),
            status=status,
            problem=problem,
            folder=str(run.relative_to(self.folder)),
            model=str(run / paths.STUDENT),
            steps=[int(stage.steps or 0) for stage in record.stages] or list(cell.steps),
            tokens=sum(stage.tokens or 0 for stage in record.stages),
            seconds=record.timings.get("total", 0.0),
            held_out=None,
            unavailable={},
            scores={},
            versions=record.versions or None,
            git_commit=record.git_commit,
            device=record.hardware.device,
        )

    def _measure_held_out(self) -> None:
        plan = self.checked.plan
        finished = self._finished
        with quiet(), ProgressBar(self.console) as bar:
            load_teacher = partial(load_teacher_model, plan.teacher)
            text = held_out.HeldOutText(
                teacher=load_teacher().to(devices.choose_device("auto")).eval(),
                tokenizer=_tokenizer(plan),
                corpus=self.corpus,
                spec=plan.evaluation.held_out,
                pooling=self.checked.with_vectors.vectors(),
                students=[cell.shape for cell in self.cells],
            )
            bar(0.0, "held-out text: teacher", Count(0, "models"))
            (self.folder / TEACHER).mkdir(exist_ok=True)
            self.record.teacher.held_out = text.measure_once(self.folder / TEACHER, load_teacher).figures
            for done, cell in enumerate(finished, start=1):
                bar(done / (len(finished) + 1), f"held-out text: {cell.title}", Count(done, "models"))
                measured = text.measure_once(self.folder / cell.folder)
                cell.held_out = measured.figures
                cell.unavailable = measured.unavailable
        self._save("running")

    def _evaluate(self) -> tuple[studies.Evaluation | None, int]:
        """Evaluate the students on the plan's tasks; return the summary, and the number of failed fine-tunings."""
        plan = self.checked.plan
        students = [Path(cell.model) for cell in self._finished]
        if not plan.evaluation.tasks or not students:
            return None, 0
        with ProgressBar(self.console) as bar:
            outcome = evaluate_students(
                plan.evaluation, self.folder, teacher=plan.teacher.model, students=students, report=bar
            )
        models = {model.name: model for model in outcome.summary.models}
        for cell in self._finished:
            cell.scores = {}
            if cell.model in models:
                cell.scores = {key: figure.mean for key, figure in models[cell.model].columns.items()}
        self._save("running")
        return outcome.summary, outcome.failed

    def _measure_costs(self) -> studies.Costs | None:
        """Measure the teacher and a student of each shape, unless that has been done.

        Methods change weights only, so that one student stands for all of its shape. Speedups refer to the teacher.

        Returns:
            With the students' titles in place of their folders; None where it was not asked for.
        """
        spec = self.checked.plan.evaluation.speed
        teacher = self.checked.plan.teacher.model
        students: dict[str, str] = {}
        for cell in self._finished:
            students.setdefault(cell.student, cell.model)
        if not spec.enabled or not students:
            return None
        shapes = {title: str(shape_of(load_config(path))) for title, path in students.items()}
        measurement = {**spec.model_dump(exclude={"enabled"}), "teacher": teacher, "students": shapes}
        saved = records.load(studies.MeasuredCosts, self.folder)
        if saved.asked == measurement:
            return saved.costs
        settings = spec.model_dump(include={"batch_sizes", "lengths", "seconds"})
        with ProgressBar(self.console) as bar:
            measured = measure_costs(
                [teacher, *students.values()], device=devices.choose_device(spec.device), **settings, report=bar
            )
        costs = studies.Costs.read(measured)
        titles = {path: title for title, path in students.items()}
        rows: list[studies.ModelSize | studies.Timing] = [*costs.models, *costs.timings]
        for row in rows:
            row.model = titles.get(row.model, row.model)
        records.save(studies.MeasuredCosts(asked=measurement, costs=costs), self.folder)
        return costs


def _fixed(plan: ComparisonPlan) -> dict[str, Any]:
    """What all runs of a folder share, as plain values."""
    fixed = plan.model_dump(mode="json", include={"teacher", "corpus", "budget", "training"})
    if plan.evaluation.tasks:
        fixed["evaluation"] = plan.evaluation.model_dump(mode="json", include={"preset", "settings"})
    return fixed


def _tokenizer(plan: ComparisonPlan) -> Any:
    return load_tokenizer(plan.teacher.model, revision=plan.teacher.revision)
