"""`ComparisonWork`, the work of a comparison in its folder: distil what is missing, measure the students, summarise.

A comparison distils students by several methods from one teacher. A *cell* is one of its runs: a student, a method, a
layer mapping and a seed. Each run has a folder, and the comparison has a *record*, a file with an entry for each cell.
"""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.plan import plan_checked
from limbeck.training.distil import WriteCards, distil
from limbeck.training.teaching.models import load_teacher_model

_TEACHER = "teacher"
"""Name of the folder in the comparison's folder that holds the teacher's figures on held-out text."""


def with_message(error: BaseException, message: str) -> Interrupted:
    """Return an `Interrupted` with another message; a stop by SIGTERM keeps its type, which has its own exit status."""
    if isinstance(error, Interrupted):
        return type(error)(message)
    return Interrupted(message)


def _free_memory() -> None:
    """Free the memory of the run that has ended, so that the models of two runs are not in memory at once."""
    # A trainer is part of reference cycles, which only the garbage collector frees.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _is_distilled(run: Path) -> bool:
    """Whether a run is finished, and its student is there."""
    has_student = (run / paths.STUDENT / "config.json").is_file()
    return has_student and records.load(records.Run, run).is_finished


@dataclass(frozen=True)
class ComparisonWork:
    """The work of a checked plan in its folder.

    Attributes:
        checked: The plan.
        folder: The folder of the comparison.
        corpus: The text that students are distilled on.
        tokenizer: The tokenizer, the same for all models.
        cells: The runs: all of the first seed, then all of the second, and so on.
        record: The record of the comparison. Its entries have the order of `cells`; they are filled in as the work goes
            on, and the record is written after every step.
        console: The console for lines of progress.
        write_cards: Writes the model card of each run; None writes no cards.
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

        # Cells are ordered by seed, but the table has the seeds of a combination (student and method) side by side. The
        # cells of one combination stand at an equal distance from each other: one for each seed.
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
        """Write the state of each run to the record after the work was interrupted."""
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
    def _teacher(self) -> TeacherInfo:
        """The teacher of all runs."""
        return self.checked.with_text.teacher_info

    @property
    def _finished(self) -> list[studies.ComparisonCell]:
        """The entries of the runs that are finished."""
        return [cell for cell in self.record.cells if cell.status == "finished"]

    def _distil_missing(self) -> None:
        """Distil the cells that are not finished, one by one; a cell that fails stops no other.

        Raises:
            Interrupted: on Ctrl-C; the run that it met goes on from its checkpoint.
        """
        # Indices of cells; the entry of a cell in the record has the same index.
        missing = [index for index, cell in enumerate(self.cells) if not _is_distilled(cell.folder(self.folder))]
        done_before = len(self.cells) - len(missing)
        started = time.monotonic()
        for done_now, index in enumerate(missing):
            cell = self.cells[index]
            line = f"Run {done_now + 1} of {len(missing)}: {cell.title}"
            if done_now > 0:
                seconds_per_run = (time.monotonic() - started) / done_now
                seconds_left = seconds_per_run * (len(missing) - done_now)
                line += f" (about {blocks.duration(seconds_left)} for this and the rest)"
            print_plain(self.console, line)

            problem: str | None = None
            try:
                self._distil(cell)
            except (Interrupted, KeyboardInterrupt) as error:
                done = done_before + done_now
                message = (
                    f"Stopped at {cell.title}; {done} of {len(self.cells)} runs are done and kept in '{self.folder}'; "
                    "the same command continues from there."
                )
                raise with_message(error, message) from None
            except Exception as error:
                # A fault in one run must not take the others with it.
                problem = describe_error(error)
                print_plain(self.console, f"  failed: {problem}", "red")
            _free_memory()
            self.record.cells[index] = self._describe(cell, problem)
            self._save("running")

    def _distil(self, cell: Cell) -> None:
        """Distil one cell in its folder, going on where an earlier run of it stopped."""
        recipe = load_checked({**cell.recipe, "output": str(cell.folder(self.folder))})
        distil(plan_checked(recipe), console=self.console, resume=True, write_cards=self.write_cards)

    def _describe(self, cell: Cell, problem: str | None = None) -> studies.ComparisonCell:
        """Return the comparison's entry of a run, by the files in the run's folder.

        Args:
            cell: The run.
            problem: The reason for which the run failed in this process; None where it did not fail or did not start.
        """
        run = cell.folder(self.folder)
        # The record that the distillation itself wrote; an empty one where it was never started.
        record = records.load(records.Run, run)
        if _is_distilled(run):
            status = "finished"
        elif problem:
            status = "failed"
        else:
            status = record.status or "missing"

        # A run that failed in an earlier process has its reason in its own record.
        if problem is None and status == "failed":
            problem = record.problem
        # The record of a run that was never started has no stages: the planned steps are shown.
        steps_taken = [int(stage.steps or 0) for stage in record.stages]
        return studies.ComparisonCell(
            **cell.combination.parts,  # Titles of student, method and mapping.
            title=cell.title,
            seed=cell.seed,
            id=cell.id,
            shape=str(cell.shape),
            status=status,
            problem=problem,
            folder=str(run.relative_to(self.folder)),
            model=str(run / paths.STUDENT),
            steps=steps_taken or list(cell.steps),
            ended_early=record.ended_early if status == "finished" else None,
            tokens=sum(stage.tokens or 0 for stage in record.stages),
            seconds=record.timings.get("total", 0.0),
            # Measured later, once all runs are distilled.
            held_out=None,
            unavailable={},
            scores={},
            versions=record.versions or None,
            git_commit=record.git_commit,
            device=record.hardware.device,
        )

    def _measure_held_out(self) -> None:
        """Measure the teacher and all students on held-out text; a teacher whose outputs are stored has no figures."""
        plan = self.checked.plan
        finished = self._finished
        device = devices.choose_device("auto")
        load_teacher = partial(load_teacher_model, plan.teacher)
        # What gives the stored outputs of a teacher; None for a teacher that is a model.
        teaching = self._teacher.teaching
        with quiet(), ProgressBar(self.console) as bar:
            teacher: PreTrainedModel | None = None
            if teaching is None:
                teacher = load_teacher().to(device).eval()
            text = HeldOutText(
                teacher=teacher,
                tokenizer=self.tokenizer,
                corpus=self.corpus,
                spec=plan.evaluation.held_out,
                pooling=self.checked.with_vectors.vectors(),
                students=[cell.shape for cell in self.cells],
                teaching=teaching,
            )
            # The teacher's own figures stand beside those of the students. They are measured like a student's, with a
            # second copy of the teacher in the place of the student; see `HeldOutText.measure_once`.
            if teaching is None:
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
        """Evaluate the students on the plan's tasks.

        Returns:
            The summary, None where the plan has no tasks or no student is finished; and the number of cells of the
            evaluation that failed.
        """
        plan = self.checked.plan
        students = [Path(cell.model) for cell in self._finished]
        if not plan.evaluation.tasks or not students:
            return None, 0
        # A teacher whose outputs are stored has no weights that could be evaluated.
        teacher: str | None = None
        if self._teacher.has_weights:
            teacher = plan.teacher.model
        with ProgressBar(self.console) as bar:
            outcome = evaluate_students(plan.evaluation, self.folder, teacher=teacher, students=students, report=bar)
        models = {model.name: model for model in outcome.summary.models}
        for cell in self._finished:
            cell.scores = {}
            if cell.model in models:
                cell.scores = {key: figure.mean for key, figure in models[cell.model].columns.items()}
        self._save("running")
        return outcome.summary, outcome.failed

    def _measure_costs(self) -> studies.Costs | None:
        """Measure the sizes and speeds of the teacher and of the students, unless that was done before.

        Methods change the weights of a student and not its shape, so one run of each student is measured.

        Returns:
            The costs, in which students have their titles rather than their folders; None where the plan measures no
            speed or no student is finished.
        """
        spec = self.checked.plan.evaluation.speed
        # The folder of the model of each student's first finished run, by the student's title.
        folder_by_title: dict[str, str] = {}
        for cell in self._finished:
            if cell.student not in folder_by_title:
                folder_by_title[cell.student] = cell.model
        if not spec.enabled or not folder_by_title:
            return None

        # Everything that the figures depend on: equal measurements are not repeated.
        measurement = spec.model_dump(exclude={"enabled"})
        measurement["teacher"] = self.checked.plan.teacher.model
        measurement["students"] = {title: str(shape_of(load_config(path))) for title, path in folder_by_title.items()}
        earlier = records.load(studies.MeasuredCosts, self.folder)
        if earlier.asked == measurement:
            return earlier.costs

        costs = self._costs_of_models(list(folder_by_title.values()))
        # The costs name students by their folders, but tables show titles. The teacher keeps its name.
        title_by_folder = {path: title for title, path in folder_by_title.items()}
        rows: list[studies.ModelSize | studies.Timing] = [*costs.models, *costs.timings]
        for row in rows:
            row.model = title_by_folder.get(row.model, row.model)
        records.save(studies.MeasuredCosts(asked=measurement, costs=costs), self.folder)
        return costs

    def _costs_of_models(self, students: list[str]) -> studies.Costs:
        """Measure the sizes and speeds of the teacher and of students, which are given by their folders.

        Speedups refer to the teacher. A teacher whose outputs are stored cannot be measured, so there are none then.
        """
        spec = self.checked.plan.evaluation.speed
        has_teacher = self._teacher.has_weights
        models = students
        if has_teacher:
            models = [self.checked.plan.teacher.model, *students]
        with ProgressBar(self.console, is_even=False) as bar:
            measured = measure_costs(
                models,
                batch_sizes=spec.batch_sizes,
                lengths=spec.lengths,
                seconds=spec.seconds,
                device=devices.choose_device(spec.device),
                report=bar,
            )
        costs = studies.Costs.read(measured)
        if not has_teacher:
            # `measure_costs` refers speedups to the first model, which is a student here.
            for timing in costs.timings:
                timing.speedup = None
                timing.note = None
        return costs
