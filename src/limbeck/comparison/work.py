"""`ComparisonWork`, the work of a comparison in its folder: distil what is missing, measure the students, summarise."""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from transformers import PreTrainedTokenizerBase

from limbeck.benchmark.costs import measure_costs
from limbeck.comparison.cells import Cell
from limbeck.comparison.checks import CheckedPlan
from limbeck.comparison.held_out import HeldOutText
from limbeck.comparison.student_evaluation import evaluate_students
from limbeck.comparison.summary import summarise_comparison
from limbeck.core import blocks, devices, paths, records, studies
from limbeck.core.progress import Count
from limbeck.core.progress_bars import ProgressBar, print_plain
from limbeck.corpus import Corpus
from limbeck.errors import Interrupted, describe_error
from limbeck.models.families import shape_of
from limbeck.models.loading import load_config
from limbeck.models.quiet import quiet
from limbeck.recipe.facts import load_checked
from limbeck.recipe.plan import plan_checked
from limbeck.training.distil import WriteCards, distil
from limbeck.training.teaching.models import load_teacher_model

_TEACHER = "teacher"
"""Folder of the teacher's figures in that of the comparison."""


def with_message(error: BaseException, message: str) -> Interrupted:
    """Return a stop with another message; a stop by SIGTERM keeps its type, which has its own exit status."""
    if isinstance(error, Interrupted):
        return type(error)(message)
    return Interrupted(message)


def _is_distilled(run: Path) -> bool:
    """Whether a run is finished, and its student is there."""
    has_student = (run / paths.STUDENT / "config.json").is_file()
    return has_student and records.load(records.Run, run).is_finished


@dataclass(frozen=True)
class ComparisonWork:
    """The work of a checked plan in its folder.

    Attributes:
        checked: The plan.
        folder: Of the comparison.
        corpus: Its text.
        tokenizer: Of all models.
        cells: Its runs, seed by seed.
        record: The record, which is filled in, and written after every step.
        console: Where progress goes.
        write_cards: Writes the cards of each run; None writes none.
    """

    checked: CheckedPlan
    folder: Path
    corpus: Corpus
    tokenizer: PreTrainedTokenizerBase
    cells: Sequence[Cell]
    record: studies.Comparison
    console: Console
    write_cards: WriteCards | None

    def __post_init__(self) -> None:
        self.record.cells = [self._describe(cell) for cell in self.cells]

    def carry_out(self) -> int:
        """Distil, measure and summarise; return the number of runs and fine-tunings that gave nothing.

        Raises:
            Interrupted: on Ctrl-C or SIGTERM.
        """
        self._save("running")
        self._distil_missing()
        if self.checked.plan.evaluation.held_out.enabled:
            self._measure_held_out()
        evaluation, failed_fine_tunings = self._evaluate()
        costs = self._measure_costs()
        failed = failed_fine_tunings + len(self.cells) - len(self._finished)

        # Cells are planned seed by seed; the table has the seeds of a combination side by side.
        combinations = len(self.checked.runs)
        ordered_cells: list[studies.ComparisonCell] = []
        for first in range(combinations):
            ordered_cells += self.record.cells[first::combinations]
        self.record.summary = summarise_comparison(ordered_cells, self.record.teacher, evaluation, costs)
        self.record.costs = costs
        status = "failed" if failed else "finished"
        self._save(status)
        return failed

    def note_interruption(self) -> None:
        """Write down how far it came."""
        for index, cell in enumerate(self.cells):
            entry = self.record.cells[index]
            if entry.status != "finished":
                self.record.cells[index] = self._describe(cell, entry.problem)
        self._save("interrupted")

    def _save(self, status: str) -> None:
        """Write the record."""
        self.record.status = status
        self.record.updated = records.timestamp()
        records.save(self.record, self.folder)

    @property
    def _finished(self) -> list[studies.ComparisonCell]:
        """The entries of the runs that are finished."""
        return [cell for cell in self.record.cells if cell.status == "finished"]

    def _distil_missing(self) -> None:
        """Distil the cells that are not finished, one by one; a cell that fails stops no other.

        Raises:
            Interrupted: on Ctrl-C; the run that it met goes on from its checkpoint.
        """
        missing = [index for index, cell in enumerate(self.cells) if not _is_distilled(cell.folder(self.folder))]
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
                self._distil(cell)
            except (Interrupted, KeyboardInterrupt) as error:
                done = len(self.cells) - len(missing) + number
                message = (
                    f"Stopped at {cell.title}; {done} of {len(self.cells)} runs are done and kept in '{self.folder}'; "
                    "the same command continues from there."
                )
                raise with_message(error, message) from None
            except Exception as error:
                # A fault in one run must not take the others with it.
                problem = describe_error(error)
                print_plain(self.console, f"  failed: {problem}", "red")
            # A trainer holds itself in circles; two runs' models would be in memory at once.
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.record.cells[index] = self._describe(cell, problem)
            self._save("running")

    def _distil(self, cell: Cell) -> None:
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
        if _is_distilled(run):
            status = "finished"
        elif problem:
            status = "failed"
        else:
            status = record.status or "missing"
        if problem is None and status == "failed":
            problem = record.problem
        steps_taken = [int(stage.steps or 0) for stage in record.stages]
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
            steps=steps_taken or list(cell.steps),
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
        """Measure the teacher and all students on held-out text."""
        plan = self.checked.plan
        finished = self._finished
        with quiet(), ProgressBar(self.console) as bar:
            load_teacher = partial(load_teacher_model, plan.teacher)
            text = HeldOutText(
                teacher=load_teacher().to(devices.choose_device("auto")).eval(),
                tokenizer=self.tokenizer,
                corpus=self.corpus,
                spec=plan.evaluation.held_out,
                pooling=self.checked.with_vectors.vectors(),
                students=[cell.shape for cell in self.cells],
            )
            bar(0.0, "held-out text: teacher", Count(0, "models"))
            teacher_folder = self.folder / _TEACHER
            teacher_folder.mkdir(exist_ok=True)
            self.record.teacher.held_out = text.measure_once(teacher_folder, load_teacher).figures
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
        folder_of_student: dict[str, str] = {}
        for cell in self._finished:
            folder_of_student.setdefault(cell.student, cell.model)
        if not spec.enabled or not folder_of_student:
            return None

        measurement = spec.model_dump(exclude={"enabled"})
        measurement["teacher"] = teacher
        measurement["students"] = {title: str(shape_of(load_config(path))) for title, path in folder_of_student.items()}
        saved = records.load(studies.MeasuredCosts, self.folder)
        if saved.asked == measurement:
            return saved.costs

        with ProgressBar(self.console) as bar:
            measured = measure_costs(
                [teacher, *folder_of_student.values()],
                batch_sizes=spec.batch_sizes,
                lengths=spec.lengths,
                seconds=spec.seconds,
                device=devices.choose_device(spec.device),
                report=bar,
            )
        costs = studies.Costs.read(measured)
        title_of_folder = {path: title for title, path in folder_of_student.items()}
        rows: list[studies.ModelSize | studies.Timing] = [*costs.models, *costs.timings]
        for row in rows:
            row.model = title_of_folder.get(row.model, row.model)
        records.save(studies.MeasuredCosts(asked=measurement, costs=costs), self.folder)
        return costs
