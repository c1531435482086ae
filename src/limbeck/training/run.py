"""A run: from a recipe to a student's folder, stage by stage, resumable."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path

import torch
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from limbeck.core import devices, memory, paths, ranks, records
from limbeck.core.files import atomic_text
from limbeck.corpus import LabelledSettings, StreamedCorpus
from limbeck.errors import OutputError
from limbeck.inspection.layer_cosines import measure_layer_cosines, spread_batches
from limbeck.methods.registry import METHODS
from limbeck.models.card_facts import teacher_facts
from limbeck.models.fingerprint import fingerprint_beside
from limbeck.models.heads import Head
from limbeck.models.locating import fetch_weights
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import check_fits_model
from limbeck.recipe.model_plans import StudentPlan
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.callbacks import ProgressReporter
from limbeck.training.class_counts import weigh_classes
from limbeck.training.corpora import build_corpora, describe_corpora
from limbeck.training.finished_stage import learned_in, load_finished
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.layer_links import describe_layers
from limbeck.training.output_folder import keep_recipe
from limbeck.training.record import RunRecord
from limbeck.training.rows import AnyCorpus
from limbeck.training.seals import sync_tree
from limbeck.training.stage import StageTraining
from limbeck.training.student_folder import save_student
from limbeck.training.student_maker import StudentMaker
from limbeck.training.teaching.models import TeacherModels, teacher_dtype
from limbeck.training.vector_checks import compare_once
from limbeck.training.warn import warn


def load_tokenizer_of(plan: RunPlan) -> PreTrainedTokenizerBase:
    """Load the tokenizer, and see that teacher and tokenizer are whole, before minutes go into the text."""
    spec = plan.recipe.teacher
    tokenizer = load_tokenizer(spec.model, revision=spec.revision)
    check_fits_model(tokenizer, plan.teacher.vocabulary)
    fetch_weights(spec.model, spec.revision)
    return tokenizer


class Run:
    """Carries a plan out in its folder, in every process of it; one of them writes there.

    Args:
        plan: The checked recipe.
        folder: The run's folder, prepared.
        record: The run's record.
        console: Where progress goes.
        callbacks: Further ones for the trainer of every stage.
    """

    def __init__(
        self,
        plan: RunPlan,
        folder: Path,
        record: RunRecord,
        console: Console,
        callbacks: Sequence[TrainerCallback | type[TrainerCallback]] = (),
    ) -> None:
        self.plan = plan
        self.folder, self.student_folder = folder, folder / paths.STUDENT
        self.record = record
        self.callbacks = callbacks
        self.teachers = TeacherModels(plan.teacher_info, self._student_of)
        self._trained: list[StagePlan] = []
        self.console = console
        self._warn = partial(warn, console)
        self.heartbeat = Heartbeat(folder if ranks.is_main() else None)
        self.corpora: list[AnyCorpus] = []
        self.tokenizer: PreTrainedTokenizerBase = ranks.on_all_ranks(partial(load_tokenizer_of, plan))

    def train(self) -> PreTrainedModel:
        """Build the corpora, make the student, run the stages, and save the student.

        Returns:
            The trained student, in float32, without taps.
        """
        memory.keep_freed_memory()
        plan = self.plan
        teachers = ranks.on_main_rank(self._teacher_hashes)
        ranks.on_all_ranks(partial(self._check_same_teachers, teachers))
        # Some releases of PyTorch with CUDA fail here where there is no driver.
        device_count = torch.accelerator.device_count() if devices.has_accelerator() else 0
        if ranks.process_count() == 1 and device_count > 1:
            self._warn(f"  one of {device_count} devices is used; torchrun uses them all (docs/scaling.md)")
        ranks.on_main_rank(partial(compare_once, plan.vector_teachers, self.record, self.console))
        self.heartbeat.begin("corpus")
        with self.record.timed("corpus"):
            build = partial(build_corpora, plan, self.tokenizer, self.console, self._beat_corpus)
            self.corpora = ranks.main_rank_first(build)
        ranks.on_all_ranks(self._check_same_text)
        ranks.on_main_rank(partial(keep_recipe, self.folder, plan.recipe))
        self.heartbeat.begin("models")
        with self.record.timed("models"):
            maker = self._maker(plan.student_plan, plan.head, plan.own_stages)
            student, initialisation = ranks.on_all_ranks(maker.make)
        facts = teacher_facts(plan.recipe.teacher.model, plan.recipe.teacher.name)
        name_and_shape = {"name_or_path": plan.teacher_info.title, "shape": str(plan.teacher)}
        self.record.set(
            "running",
            teacher=records.Teacher.read({**name_and_shape, **facts, "weights": teachers.pop("")}),
            stage_teachers=teachers,
            student=records.Student(
                shape=str(plan.student),
                head=plan.head,
                parameters=sum(parameter.numel() for parameter in student.parameters()),
                initialisation=initialisation,
            ),
            corpus=describe_corpora(plan, self.corpora),
        )
        stages: list[records.Stage] = []
        for index, choice in enumerate(plan.stages):
            with self.record.timed("training"):
                stages.append(self._run_stage(index, choice, student))
            # Their lists of rows, which may be long, stay in their own records.
            listed = [{key: value for key, value in stage.to_dict().items() if key != "unread"} for stage in stages]
            self.record.set("running", stages=list(map(records.Stage.read, listed)))
        trained = [record for record, choice in zip(stages, plan.stages, strict=True) if choice.student is None]
        return self._save(maker, student, trained, self.student_folder)

    def _beat_corpus(self, step: str, done: int, total: int | None) -> None:
        self.heartbeat.beat(step_of_corpus=step, done=done, total=total)

    def _teacher_hashes(self) -> dict[str, str]:
        """Return the hash of the recipe's teacher, by an empty name, and those of stages' own ones by the stage."""
        own = {choice.spec.title: choice.teacher for choice in self.plan.stages if choice.spec.teacher is not None}
        teachers = {"": self.plan.teacher_info, **own}
        specs = {stage: one.spec for stage, one in teachers.items() if one.stage is None}
        before = self._teachers_before
        return {
            stage: fingerprint_beside(before.get(stage), spec.model, spec.revision) for stage, spec in specs.items()
        }

    @property
    def _teachers_before(self) -> dict[str, str | None]:
        """The hashes of `_teacher_hashes` with which the run was begun."""
        return {"": self.record.run.teacher.weights, **self.record.run.stage_teachers}

    def _check_same_teachers(self, now: Mapping[str, str]) -> None:
        """Refuse to go on with a run under another teacher than it began with."""
        before = self._teachers_before
        for stage, found in now.items():
            if self._is_begun and before.get(stage) not in (None, found):
                where = f"stages.{[choice.spec.title for choice in self.plan.stages].index(stage)}." if stage else ""
                raise OutputError(
                    f"The teacher{f' of stage {stage!r}' if stage else ''} is not the one with which the run in "
                    f"'{self.folder}' was started: its weights, configuration or tokenizer differ. Give that one with "
                    f"--set {where}teacher.model=PLACE, or start again with --overwrite."
                )

    @property
    def _is_begun(self) -> bool:
        return (self.folder / paths.STAGES).is_dir()

    def _check_same_text(self) -> None:
        """Refuse to go on with a run on other text than it began with, wherever that lies now."""
        before, now = self.record.run.corpus, describe_corpora(self.plan, self.corpora)
        if not self._is_begun or before is None or now is None:
            return
        read = [(choice, settings) for choice in self.plan.stages for settings in choice.corpora]
        for old, new, (choice, settings) in zip(before.views, now.views, read, strict=False):
            if old.content:
                what = [f"The text of the source '{source}'" for source in settings.places]
                if choice.development is not None:
                    what.append(f"The text of the development rows '{choice.development.title}'")
                pairs = zip_longest([*what, "The tokenizer's output for the text"], old.content, new.content)
                changed = next((name or "The text" for name, one, other in pairs if one != other), None)
                corpus = choice.spec.corpus or self.plan.recipe.corpus
                key = "sources=[PLACE]" if corpus is None or corpus.sources else "mix.by=PATTERN"
                if isinstance(settings, LabelledSettings) and settings.rows is not None:
                    key = "data=DIR"
                owner = "" if choice.spec.corpus is None else f"stages.{self.plan.stages.index(choice)}."
                way_out = f"put it back, give its place with --set {owner}corpus.{key}"
            else:
                # An earlier version wrote down no more than this.
                changed = None if old.fingerprint == new.fingerprint else "The text, or its path or date,"
                way_out = "put it back where it was, with its dates"
            if changed is not None:
                raise OutputError(
                    f"{changed} has changed since the run in '{self.folder}' was started, so it cannot be "
                    "resumed to the "
                    f"same result; {way_out}, or start again with --overwrite."
                )

    def _maker(self, choice: StudentPlan, head: Head | None, stages: list[StagePlan]) -> StudentMaker:
        """Return the maker of a student, which starts from the recipe's teacher or that of its only stage."""
        source = self.plan.teacher_info if choice is self.plan.student_plan else stages[0].teacher
        read_batches = None
        for corpus, stage in zip(self.corpora, self.plan.stages, strict=False):
            if stages and stage is stages[0] and not isinstance(corpus, StreamedCorpus):
                read_batches = partial(spread_batches, corpus, self.tokenizer, torch.device("cpu"))
        load = partial(self.teachers.load, source)
        return StudentMaker(choice, head, stages, source, load, self.plan.recipe.seed, read_batches)

    def _run_stage(self, index: int, choice: StagePlan, student: PreTrainedModel) -> records.Stage:
        """Run a stage, or restore a finished one; a stage that names its student leaves it in its folder."""
        folder = self._stage_folder(choice.spec.title)
        initialisation: records.Initialisation | None = None
        if choice.student is not None:
            maker = self._maker(choice.student, choice.student_head, [choice])
            student, initialisation = ranks.on_all_ranks(maker.make)
        if choice.measures_layers:
            choice = self._measure_layers(choice, index, folder)
        choice = weigh_classes(choice, self.corpora[index])
        finished = load_finished(folder, student, self._warn)
        if finished is None:
            teaching = ranks.on_all_ranks(partial(self.teachers.open, choice, choice.terms))
            place = {"stage_number": index + 1, "stages": len(self.plan.stages)}
            progress = ProgressReporter(choice.spec.title, self.console, self.heartbeat, **place)
            finished = StageTraining(
                choice,
                student,
                teaching,
                self.tokenizer,
                self.corpora[index],
                folder=folder,
                seed=self.plan.recipe.seed + index,
                console=self.console,
                progress=progress,
                callbacks=self.callbacks,
                earlier=[
                    learned_in(self._stage_folder(before.spec.title), before)
                    for before in self._trained
                    if before.student is choice.student and before.teacher == choice.teacher
                ],
            ).run()
        self._trained.append(choice)
        finished.layers = describe_layers(choice.terms)
        if choice.student is not None:
            finished.student = records.Student(shape=str(choice.student.shape), initialisation=initialisation)
            if not ranks.on_main_rank((folder / paths.STUDENT).is_dir):
                maker = self._maker(choice.student, choice.student_head, [choice])
                self._save(maker, student, [finished], folder / paths.STUDENT)
        if choice.teacher.teaching is not None:
            finished.teacher = choice.teacher.facts.title
        elif choice.spec.teacher is not None:
            finished.teacher = choice.teacher.title
            if choice.teacher.stage is None:
                facts = teacher_facts(choice.teacher.spec.model, choice.teacher.spec.name)
                finished.teacher_facts = records.Teacher.read(facts)
        citation = METHODS[finished.method].citation
        if citation is not None:
            wanted = records.Citation.model_fields
            finished.citation = records.Citation.read({k: v for k, v in asdict(citation).items() if k in wanted})
        return finished

    def _measure_layers(self, choice: StagePlan, index: int, folder: Path) -> StagePlan:
        """Compose a stage by the contributions of the teacher's layers; a resumed stage keeps its measurement."""

        def cosines() -> tuple[float, ...]:
            kept = folder / paths.LAYER_COSINES
            if not kept.is_file():
                teacher = self.teachers.load(choice.teacher, dtype=teacher_dtype(choice))
                found = measure_layer_cosines(teacher, self.corpora[index], self.tokenizer)
                folder.mkdir(parents=True, exist_ok=True)
                atomic_text(kept, json.dumps(found))
            return tuple(json.loads(kept.read_text(encoding="utf-8")))

        composed = choice.with_layer_cosines(ranks.on_main_rank(cosines))
        layers = sorted({key.layer for term in composed.terms for key in term.teacher if key.layer > 0})
        self.console.print(f"  teacher layers that contribute most: {layers}", style="dim", highlight=False)
        return composed

    def _save(
        self, maker: StudentMaker, student: PreTrainedModel, trained: list[records.Stage], folder: Path
    ) -> PreTrainedModel:
        """Settle a student's untrained parameters and write its folder."""
        whole, untrained = maker.finish(student, trained)
        is_own = maker.choice is self.plan.student_plan
        sentence, aligned = (self.plan.student_sentence, self.plan.aligned_stage) if is_own else (None, None)

        def write() -> None:
            learned = learned_in(self._stage_folder(aligned.spec.title), aligned) if aligned is not None else None
            save_student(
                folder, whole, self.tokenizer, maker.choice,
                sentence=sentence, learned=learned, widths=() if sentence is None else self.plan.trained_widths,
            )  # fmt: skip
            sync_tree(folder)

        ranks.on_main_rank(write)
        if is_own:
            self.record.set("running", untrained=untrained)
        return whole

    def _student_of(self, title: str) -> Path:
        return self._stage_folder(title) / paths.STUDENT

    def _stage_folder(self, title: str) -> Path:
        index = next(i for i, choice in enumerate(self.plan.stages) if choice.spec.title == title)
        return self.folder / paths.STAGES / f"{index + 1}-{title}"
