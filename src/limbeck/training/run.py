"""A run: from a plan to a student's folder, stage by stage, resumable.

A *stage* trains a student by a method on a text. Most stages train the recipe's student. A stage may name a student of
its own, which later stages can have as their teacher. A stage is *settled* once all that it leaves to a measurement,
such as a layer mapping by contribution, has been measured.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from limbeck.core import devices, memory, paths, progress_bars, ranks, records
from limbeck.core.blocks import counted
from limbeck.core.corpus_progress import CorpusProgress
from limbeck.core.files import atomic_text
from limbeck.core.progress import Tick, no_tick
from limbeck.core.progress_bars import ProgressBar
from limbeck.corpus import CorpusSettings, Tokenizers
from limbeck.corpus.batches.batch import read_batch
from limbeck.errors import ModelError, OutputError
from limbeck.inspection.layer_cosines import measure_layer_cosines
from limbeck.methods.registry import METHODS
from limbeck.methods.teaching import Teaching
from limbeck.models.heads import Head
from limbeck.models.sentences import SentencePooling
from limbeck.models.tokenizers import pads_against_positions
from limbeck.recipe.chosen_models import missing_fit, trained_model_of, untrained_plans
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_fields import DEFAULTS
from limbeck.training.callbacks import ProgressReporter
from limbeck.training.class_counts import weigh_classes
from limbeck.training.compared_text import warning_of_little_text
from limbeck.training.corpora import (
    build_corpora,
    build_corpus_of,
    build_text_alone,
    describe_corpora,
    describe_text,
)
from limbeck.training.disk_needs import check_disk
from limbeck.training.finished_stage import learned_in, load_finished
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.kept_recipe import keep_recipe
from limbeck.training.layer_links import describe_layers
from limbeck.training.learned_maps import Learned
from limbeck.training.measured_steps import MeasuredSteps
from limbeck.training.rate import measure_steps
from limbeck.training.record import RunRecord
from limbeck.training.resuming import TeacherHashes, check_same_teachers, check_same_text
from limbeck.training.rows import AnyCorpus
from limbeck.training.run_checkpoints import has_state
from limbeck.training.run_tokenizers import RunTokenizers, load_tokenizers
from limbeck.training.seals import sync_tree
from limbeck.training.stage import StageTraining
from limbeck.training.stage_rows import pad_collator
from limbeck.training.start_text import ReadBatches, read_spread_rows, reader_of
from limbeck.training.student_folder import save_student
from limbeck.training.student_maker import NO_HEAD_TO_START_WITH, StudentMaker
from limbeck.training.teacher_records import describe_source, describe_teachers
from limbeck.training.teaching.models import TeacherModels
from limbeck.training.teaching.taught_texts import check_texts_taught, print_teachings, sample_text
from limbeck.training.teaching.teacher_dtype import teacher_dtype
from limbeck.training.untrained_students import UntrainedStudents, make_untrained
from limbeck.training.vector_checks import compare_once
from limbeck.training.warn import warn


class Run:
    """Carries a plan out in its folder, in every process of it; one of them writes there.

    Args:
        plan: The checked recipe.
        folder: The run's folder, claimed.
        record: The run's record.
        console: Where progress goes.
        callbacks: Callbacks of the user for the trainer of every stage.
        ends_early: Train nothing: the student is that of the newest checkpoint, and later stages are skipped.

    Attributes:
        tokenizers: The tokenizers of teachers and students.
        teachers: Loads the models that teach.
        corpora: The text of each stage, once it is built.
        student_folder: The folder that the student is saved in.
        heartbeat: Shows that the run makes progress.
    """

    def __init__(
        self,
        plan: RunPlan,
        folder: Path,
        record: RunRecord,
        console: Console,
        callbacks: Sequence[TrainerCallback | type[TrainerCallback]] = (),
        *,
        ends_early: bool = False,
    ) -> None:
        self.plan = plan
        self.ends_early = ends_early
        self.folder = folder
        self.student_folder = folder / paths.STUDENT
        self.record = record
        self.console = console
        self.callbacks = callbacks
        # One process writes the sign of life.
        self.heartbeat = Heartbeat(folder if ranks.is_main() else None)
        self.corpora: list[AnyCorpus] = []
        self.tokenizers: RunTokenizers = ranks.on_all_ranks(partial(load_tokenizers, plan))
        self.teachers = TeacherModels(plan.teacher_info, self._student_of, self.tokenizers.piece_ids)
        self._warn = partial(warn, console)
        # The finished stages, settled, in the order of training; `_train_or_restore` appends to them.
        self._trained: list[StagePlan] = []

    def train(self) -> PreTrainedModel:
        """Build the corpora, make the student, run the stages, and save the student.

        Returns:
            The trained student, in float32, without taps.
        """
        memory.keep_freed_memory()
        plan = self.plan
        stages = ranks.on_main_rank(self._stages_to_run)
        if not self.ends_early:
            ranks.on_main_rank(partial(check_disk, plan, self.folder))
        with self.activity("reading the teacher's weights"):
            hashes = self._check_teachers()
        self._warn_of_idle_devices()
        ranks.on_main_rank(partial(print_teachings, plan, self.console))
        # A run that teaches no sentence vectors has none to compare.
        if plan.vector_teachers:
            with self.activity("comparing the teacher's sentence vectors with those of sentence-transformers"):
                ranks.on_main_rank(partial(compare_once, plan.vector_teachers, self.record, self.console))

        self._build_text()
        # A resumed run writes its recipe only after its teachers and text were found to be those that it began with.
        ranks.on_main_rank(partial(keep_recipe, self.folder, plan.recipe))

        self.heartbeat.begin("models")
        with self.record.timed("models"), self.activity("making the student") as tick:
            maker = self._maker(plan.student_plan, plan.head, plan.own_stages, tick)
            student, initialisation = ranks.on_all_ranks(maker.make)
        self._describe_models(hashes, student, initialisation)

        finished: list[records.Stage] = []
        for index, stage in enumerate(stages):
            with self.record.timed("training"):
                finished.append(self._run_stage(index, stage, student))
            self.record.set("running", stages=[_without_lists(record) for record in finished])

        # The records of the stages that trained the recipe's student. Stages with a student of their own have saved it.
        records_of_student: list[records.Stage] = []
        for record, stage in zip(finished, stages, strict=True):
            if stage.student is None:
                records_of_student.append(record)
        early_end = _early_end(finished, plan.stages)
        if early_end is not None:
            self.record.set("running", ended_early=early_end)
        with self.activity("saving the student"):
            return self._save(maker, student, records_of_student, self.student_folder)

    @contextmanager
    def activity(self, what: str) -> Iterator[Tick]:
        """Show work of the run which may take long and is not a step of a stage.

        Args:
            what: The work in words.

        Yields:
            A function that shows how much is done, and writes a sign of life.
        """
        self.heartbeat.beat(now=True)
        with progress_bars.activity(self.console, what) as tick:
            yield self.heartbeat.with_beats(tick)

    def _stages_to_run(self) -> Sequence[StagePlan]:
        """Return the stages of the plan; of a run that ends early those that have begun.

        Raises:
            OutputError: for a run that ends early before its student was trained.
        """
        if not self.ends_early:
            return self.plan.stages
        begun = [stage for stage in self.plan.stages if has_state(self._stage_folder(stage.spec.title))]
        if all(stage.student is not None for stage in begun):
            raise OutputError(
                f"No stage of '{self.folder}' has trained its student yet, so there is nothing to finish; continue "
                f"the training: limbeck distill --resume --output {shlex.quote(str(self.folder))}"
            )
        return begun

    def _check_teachers(self) -> TeacherHashes:
        """Hash the teachers, and refuse to go on with others than the run began with."""
        before = TeacherHashes.of_record(self.record.run)
        hashes = ranks.on_main_rank(partial(TeacherHashes.of_plan, self.plan, before))

        def check() -> None:
            if self._is_begun:
                check_same_teachers(self.folder, self.plan, before=before, now=hashes)

        ranks.on_all_ranks(check)
        return hashes

    def _build_text(self) -> None:
        """Build the text of every stage, and check that it is the one to train on."""
        self.heartbeat.begin("corpus")
        with self.record.timed("corpus"):
            build = partial(build_corpora, self.plan, self.tokenizers.of_stage, self.console, self._beat_corpus)
            self.corpora = ranks.main_rank_first(build)
        ranks.on_all_ranks(self._check_text)
        ranks.on_main_rank(partial(check_texts_taught, self.plan, self.corpora, self.tokenizers))
        ranks.on_main_rank(self._warn_of_little_text)

    def _warn_of_little_text(self) -> None:
        """Warn of held-out text that is too little to judge the student, before time goes into its training."""
        line = warning_of_little_text(self.plan, self.corpora, self.tokenizers.student, self.console)
        if line:
            self._warn(f"  {line}")

    def _check_text(self) -> None:
        """Refuse to go on with other text than the run began with."""
        if self._is_begun:
            text = describe_corpora(self.plan, self.corpora)
            check_same_text(self.folder, self.plan, before=self.record.run.corpus, now=text)

    @property
    def _is_begun(self) -> bool:
        """Whether an earlier process began to train in this folder; before that, teachers and text may change."""
        return (self.folder / paths.STAGES).is_dir()

    def _warn_of_idle_devices(self) -> None:
        """Warn of GPUs that a single process leaves unused."""
        # Some releases of PyTorch with CUDA fail to count devices where there is no driver.
        device_count = torch.accelerator.device_count() if devices.has_accelerator() else 0
        if ranks.process_count() == 1 and device_count > 1:
            self._warn(
                f"  only one of {device_count} devices is used; start limbeck with torchrun to use all "
                "(docs/scaling.md)"
            )

    def _beat_corpus(self, step: str, done: int, total: int | None) -> None:
        """Write the progress of building a corpus into the heartbeat."""
        self.heartbeat.beat(step_of_corpus=step, done=done, total=total)

    def _describe_models(
        self, hashes: TeacherHashes, student: PreTrainedModel, initialisation: records.Initialisation
    ) -> None:
        """Write teacher, student and text into the record, and print whether the student's start was fitted."""
        plan = self.plan
        text = describe_corpora(plan, self.corpora)
        # A *fit* adjusts copied layers to hidden states of the teacher on some text, before any training.
        fit = initialisation.fit
        if fit is not None:
            # Without stages the text of the run is the one that was read for the fit.
            if plan.text_alone is not None:
                assert self.text_alone is not None
                text = describe_text(plan.text_alone.places, self.text_alone)
            elif plan.start_rows.reading is not None:
                stage = plan.start_rows.reading
                has_development = stage.development is not None
                text = describe_text(stage.corpus.places, self.start_rows, has_development=has_development)
            if fit.used:
                self.console.print(f"  {fit}", style="dim", highlight=False)
            else:
                self._warn(f"  {fit}")
        # Of several teachers this is the first, from which the student starts.
        first_teacher = plan.teacher_info.members[0]
        teacher = {
            "name_or_path": first_teacher.title,
            "shape": first_teacher.description,
            "weights": hashes.recipe,
            **describe_source(first_teacher),
        }
        self.record.set(
            "running",
            teacher=records.Teacher.read(teacher),
            teachers=describe_teachers(plan),
            stage_teachers=dict(hashes.by_stage),
            student=records.Student(
                shape=str(plan.student),
                head=plan.head,
                parameters=sum(parameter.numel() for parameter in student.parameters()),
                initialisation=initialisation,
            ),
            corpus=text,
        )

    def _maker(
        self, student: StudentPlan, head: Head | None, stages: list[StagePlan], tick: Tick = no_tick
    ) -> StudentMaker:
        """Return the maker of a student.

        Args:
            student: The plan of the recipe's student, or of a stage's.
            head: The head that it gets.
            stages: The stages that train it; the student of a stage is trained by that stage alone.
            tick: Receives the progress of a start that takes long.
        """
        source = student.source
        read_batches = self._reader_of_text(stages, source)
        no_text = self._why_no_text(stages) if read_batches is None else ""
        # A run that trains nothing takes over the head that a stage on its rows would teach.
        if not self.plan.stages and self.plan.start_rows.stage is not None:
            stages = [self.plan.start_rows.stage]
        return StudentMaker(
            plan=student,
            head=head,
            stages=stages,
            source=source,
            load_teacher=partial(self.teachers.load, source),
            seed=self.plan.recipe.seed,
            read_batches=read_batches,
            no_text=no_text,
            tokenizers=self.tokenizers,
            tick=tick,
        )

    def make_untrained(self, head: Head | None = None, tick: Tick = no_tick) -> UntrainedStudents:
        """Make the students of the recipe's shape that the trained one is compared with; see `untrained_plans`.

        Args:
            head: The head that it gets, from its teacher where shapes allow. None where only its sentence vectors are
                compared.
            tick: Receives the progress of a start that takes long.

        Raises:
            ModelError: if it cannot start with that head, or a model cannot be loaded.
        """
        # A fit takes minutes, so a start that would lack its head is refused before it.
        if not self.may_make_untrained(head):
            raise ModelError(NO_HEAD_TO_START_WITH)
        tokens = self._trained_tokens
        plans = untrained_plans(self.plan.student_plan, trained_tokens=tokens)
        beat_and_tick = self.heartbeat.with_beats(tick)
        makers = [self._maker(plan, head=head, stages=self.plan.own_stages, tick=beat_and_tick) for plan in plans]
        students = make_untrained(makers)
        # The start of a student that began at random is made of a model too, but the student did not go on from it.
        students.record.trained_model = trained_model_of(self.plan.student_plan)
        reason = missing_fit(plans[-1], trained_tokens=tokens)
        if reason:
            students.record.summary += f" {reason}"
        if not self.plan.stages:
            students.record.gain_of = "fit"
        return students

    def may_make_untrained(self, head: Head | None) -> bool:
        """Whether the untrained students may start with a head, by what is known before any model is loaded."""
        if head is None:
            return True
        first_plan = untrained_plans(self.plan.student_plan, trained_tokens=self._trained_tokens)[0]
        return self._maker(first_plan, head=head, stages=self.plan.own_stages).may_copy_head()

    @property
    def _trained_tokens(self) -> int:
        """The tokens that the stages so far have trained on."""
        return sum(int(stage.tokens or 0) for stage in self.record.run.stages)

    @cached_property
    def text_alone(self) -> AnyCorpus | None:
        """The recipe's text where there are no stages; None otherwise."""
        settings = self.plan.text_alone
        if settings is None:
            return None
        return build_text_alone(settings, self.tokenizers.student, self.console)

    @cached_property
    def start_rows(self) -> AnyCorpus:
        """The recipe's labelled rows where there are no stages, for a start that reads them."""
        stage = self.plan.start_rows.reading
        assert stage is not None
        with CorpusProgress(self.console) as progress:
            return build_corpus_of(stage, self.tokenizers.of_stage(stage), progress)

    def _reader_of_text(self, stages: Sequence[StagePlan], source: TeacherInfo) -> ReadBatches | None:
        """Return a function that reads the text of a student's first stage, for a start that runs a model on text.

        Args:
            stages: The stages that train the student; without any its text is that of the recipe.
            source: The model that the student starts from, which is run on the text.

        Returns:
            The function. None without text, for a stream, and for a model whose tokens the text does not have.
        """
        if stages:
            stage = stages[0]
            corpus = self.corpora[self._index_of(stage.spec.title)]
            return reader_of(stage, corpus, self.tokenizers.of_stage(stage), source)
        stage_of_rows = self.plan.start_rows.reading
        if stage_of_rows is not None:
            return reader_of(stage_of_rows, self.start_rows, self.tokenizers.of_stage(stage_of_rows), source)
        settings = self.plan.text_alone
        has_rows = settings is not None and not settings.streaming
        if not has_rows or source.tokenizer != self.plan.student_plan.tokenizer:
            return None
        return self._read_text_alone

    def _why_no_text(self, stages: Sequence[StagePlan]) -> str:
        """Say why a start has no text to read, and the way out; see `_reader_of_text`."""
        text = stages[0].corpus if stages else self.plan.text_alone
        if text is None and self.plan.start_rows.reading is None:
            return "the recipe has no corpus that it can read; give one, or leave the start out."
        if isinstance(text, CorpusSettings) and text.streaming:
            return (
                "a streamed corpus has no text before its stage begins; set corpus.streaming: false, or leave the "
                "start out."
            )
        return "the text has no tokens of the model that the student starts from; leave the start out."

    def _read_text_alone(self, *, tokens: int | None = None, held_out: bool = False) -> Iterator[Mapping[str, Tensor]]:
        """Read the recipe's text, which is built only if a start reads it."""
        assert self.text_alone is not None
        collate = pad_collator(Tokenizers(self.tokenizers.student))
        for columns in read_spread_rows(self.text_alone, collate, tokens=tokens, held_out=held_out):
            yield read_batch(columns).student

    def _run_stage(self, index: int, stage: StagePlan, student: PreTrainedModel) -> records.Stage:
        """Run a stage, or restore a finished one.

        Args:
            index: The number of the stage, from 0.
            stage: The stage.
            student: The recipe's student, trained in place.

        Returns:
            The record of the stage.
        """
        if stage.student is None:
            return self._train_or_restore(index, stage, student)

        # A stage that names a student makes it, trains it alone and leaves it in its own folder.
        with self.activity("making the student of the stage") as tick:
            maker = self._maker(stage.student, stage.student_head, [stage], tick)
            student_of_stage, initialisation = ranks.on_all_ranks(maker.make)
        record = self._train_or_restore(index, stage, student_of_stage)
        record.student = records.Student(shape=str(stage.student.shape), initialisation=initialisation)
        folder = self._student_of(stage.spec.title)
        if not ranks.on_main_rank(folder.is_dir):
            # Parameters that were not trained are filled from the teacher layers that the terms map. These are known
            # only for the settled stage, which is the last that was trained.
            settled = self._trained[-1]
            maker = self._maker(stage.student, stage.student_head, [settled])
            self._save(maker, student_of_stage, [record], folder)
        return record

    def _train_or_restore(self, index: int, stage: StagePlan, student: PreTrainedModel) -> records.Stage:
        """Train a student for a stage, or give it the weights of a finished stage; return the stage's record.

        Args:
            index: The number of the stage, from 0.
            stage: The stage.
            student: The student, changed in place.
        """
        folder = self._stage_folder(stage.spec.title)
        # The plan with what is known only now: a measured layer mapping, weights of classes, and measured steps.
        settled = self._settle(index, stage, student, folder)
        limit = stage.spec.training.get("save_total_limit", DEFAULTS["save_total_limit"])
        record = load_finished(folder, student, self._warn, limit=limit)
        if record is None:
            record = self._train_stage(index, settled, student)
        self._trained.append(settled)
        _describe_stage(record, settled)
        return record

    def _settle(self, index: int, stage: StagePlan, student: PreTrainedModel, folder: Path) -> StagePlan:
        """Measure what the plan of a stage leaves open, and return the plan with it.

        These are a layer mapping by contribution, weights of classes by their numbers of rows, and the number of steps
        of a stage that is given minutes.
        """
        settled = stage
        if stage.measures_layers:
            with self.activity(f"{stage.spec.title}: measuring the teacher's layers"):
                settled = self._measure_layers(stage, index, folder)
        settled = weigh_classes(settled, self.corpora[index])
        return self._measure_steps(settled, index, folder, student)

    def _train_stage(self, index: int, stage: StagePlan, student: PreTrainedModel) -> records.Stage:
        """Train a stage, taking over the learned maps of earlier stages of the same student and teacher."""
        earlier: list[Learned] = []
        for trained_stage in self._trained:
            # `student` is None for every stage that trains the recipe's student.
            has_same_student = trained_stage.student is stage.student
            if has_same_student and trained_stage.teacher == stage.teacher:
                earlier.append(learned_in(self._stage_folder(trained_stage.spec.title), trained_stage))
        with self.activity(f"{stage.spec.title}: loading the teacher"):
            training = StageTraining(
                stage,
                student,
                teaching=self._open_teaching(stage, index),
                tokenizers=self.tokenizers.of_stage(stage),
                corpus=self.corpora[index],
                folder=self._stage_folder(stage.spec.title),
                seed=self.plan.recipe.seed + index,
                console=self.console,
                progress=ProgressReporter(
                    stage.spec.title,
                    self.console,
                    self.heartbeat,
                    stage_number=index + 1,
                    stages=len(self.plan.stages),
                ),
                callbacks=self.callbacks,
                ends_early=self.ends_early,
                earlier=earlier,
            )
        return training.run()

    def _open_teaching(self, stage: StagePlan, index: int) -> Teaching:
        """Open the teaching of a stage, and let it learn what it needs of the text."""
        teaching = ranks.on_all_ranks(partial(self.teachers.open, stage, stage.terms))
        teaching.prepare(self.folder, partial(sample_text, self.corpora[index], self.tokenizers.of_stage(stage)))
        return teaching

    def _measure_layers(self, stage: StagePlan, index: int, folder: Path) -> StagePlan:
        """Return a stage whose layer mapping follows from a measurement of the teacher's layers.

        The measurement, one cosine for each layer, is kept in the stage's folder: a resumed run must have the same
        mapping.
        """
        cosines = ranks.on_main_rank(partial(self._read_or_measure_cosines, stage, index, folder))
        composed = stage.with_layer_cosines(cosines)
        layers: set[int] = set()
        for term in composed.terms:
            layers.update(key.layer for key in term.teacher if key.layer > 0)
        line = f"  teacher layers that contribute most: {sorted(layers)}"
        self.console.print(line, style="dim", highlight=False)
        return composed

    def _read_or_measure_cosines(self, stage: StagePlan, index: int, folder: Path) -> tuple[float, ...]:
        """Read the cosines of the teacher's layers from a stage's folder, or measure them and keep them there.

        Args:
            stage: The stage.
            index: The number of the stage, from 0.
            folder: The stage's folder.
        """
        file = folder / paths.LAYER_COSINES
        if not file.is_file():
            teacher = self.teachers.load_for(stage, dtype=teacher_dtype(stage))
            tokenizer = self.tokenizers.of_stage(stage).student
            cosines = measure_layer_cosines(teacher, self.corpora[index], tokenizer)
            folder.mkdir(parents=True, exist_ok=True)
            atomic_text(file, json.dumps(cosines))
        # A run that has just measured reads the file too, so that it goes by the same digits as a resumed one.
        return tuple(json.loads(file.read_text(encoding="utf-8")))

    def _measure_steps(self, stage: StagePlan, index: int, folder: Path, student: PreTrainedModel) -> StagePlan:
        """Return a stage whose number of steps follows from the measured rate, where it has minutes.

        The number is kept in the stage's folder and in the run's recipe: a resumed run must take as many.
        """
        if "max_minutes" not in stage.spec.training:
            return stage
        measured = ranks.on_main_rank(partial(MeasuredSteps.read, folder))
        if measured is None:
            # Otherwise `limbeck status` would go on showing the models that were made before.
            self.heartbeat.begin("measuring the rate")
            with ProgressBar(self.console, at_once=True) as bar:
                measured = measure_steps(
                    stage,
                    student,
                    self._open_teaching(stage, index),
                    self.tokenizers.of_stage(stage),
                    self.corpora[index],
                    seed=self.plan.recipe.seed + index,
                    report=self.heartbeat.report_with_beats(bar),
                )
            ranks.on_main_rank(partial(measured.write, folder))
            ranks.on_main_rank(partial(keep_recipe, self.folder, self.plan.recipe))
        line = f"  {counted(measured.max_steps, 'step')}: {measured}"
        self.console.print(line, style="dim", highlight=False)
        return stage.with_steps(measured.max_steps)

    def _save(
        self, maker: StudentMaker, student: PreTrainedModel, trained: list[records.Stage], folder: Path
    ) -> PreTrainedModel:
        """Fill a student's untrained parameters and write its folder.

        Args:
            maker: The maker of the student.
            student: The student, trained.
            trained: The records of its stages.
            folder: The folder to write.

        Returns:
            The student as it was saved.
        """
        whole, untrained = maker.finish(student, trained)
        tokenizer = self.tokenizers.load(maker.plan.tokenizer)
        ranks.on_main_rank(partial(self._write_student, folder, whole, tokenizer, maker.plan))
        if maker.plan is self.plan.student_plan:
            self.record.set("running", untrained=untrained)
        return whole

    def _write_student(
        self, folder: Path, student: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, plan: StudentPlan
    ) -> None:
        """Write a student's folder, in the main process.

        Args:
            folder: The folder to write.
            student: The student as it is saved.
            tokenizer: Its tokenizer.
            plan: The plan of the recipe's student, or of a stage's.
        """
        sentence: SentencePooling | None = None
        learned: Learned | None = None
        widths: list[int] = []
        # A student of a stage only serves as a teacher of later stages, which needs no files for sentence vectors.
        is_student_of_recipe = plan is self.plan.student_plan
        if is_student_of_recipe and self.plan.student_sentence is not None:
            sentence = self.plan.student_sentence
            learned = self._learned_with_vectors()
            widths = self.plan.trained_widths
        if pads_against_positions(tokenizer, student.config):
            self._warn(
                "  the teacher's tokenizer pads texts on the left, which moves their positions, but the student's "
                "pads on the right"
            )
        save_student(folder, student, tokenizer, plan, sentence=sentence, learned=learned, widths=widths)
        sync_tree(folder)

    def _learned_with_vectors(self) -> Learned | None:
        """Read the maps that were learned in the stage that taught the student finished sentence vectors.

        Returns:
            The maps, one of which the student may keep. None where no stage taught such vectors, and where a run that
            was ended early has skipped that stage.
        """
        stage = self.plan.aligned_stage
        if stage is None:
            return None
        folder = self._stage_folder(stage.spec.title)
        if not has_state(folder):
            return None
        return learned_in(folder, stage)

    def _student_of(self, title: str) -> Path:
        """Return the folder of a stage's student, by the title of the stage."""
        return self._stage_folder(title) / paths.STUDENT

    def _stage_folder(self, title: str) -> Path:
        """Return the folder of a stage, such as `stages/1-minilmv2`."""
        return self.folder / paths.STAGES / f"{self._index_of(title) + 1}-{title}"

    def _index_of(self, title: str) -> int:
        """Return the index of a stage, from 0; titles are unique."""
        titles = [stage.spec.title for stage in self.plan.stages]
        return titles.index(title)


def _early_end(finished: Sequence[records.Stage], stages: Sequence[StagePlan]) -> records.EarlyEnd | None:
    """Return where a run was ended early; None for a run that was not.

    Args:
        finished: The records of the stages that were trained, in their order.
        stages: All stages of the plan.
    """
    # A recipe without stages trains nothing: its student is as it was initialised.
    if not finished:
        return None
    last = finished[-1]
    skipped = [stage.spec.title for stage in stages[len(finished) :]]
    # A stage's record has its planned steps only where it was ended before them.
    if last.planned_steps is None and not skipped:
        return None
    early_end = records.EarlyEnd(stage=last.name, planned_steps=last.planned_steps, skipped=skipped)
    if last.planned_steps is not None:
        early_end.step = last.steps
    return early_end


def _without_lists(stage: records.Stage) -> records.Stage:
    """Return a stage's record as the run's record has it: without the list of unread rows, which may be long.

    The list stays in the stage's own file.
    """
    fields = stage.to_dict()
    fields.pop("unread", None)
    return records.Stage.read(fields)


def _describe_stage(record: records.Stage, stage: StagePlan) -> None:
    """Add the facts of a stage's plan to its record: layers, teacher and citation."""
    # Outputs without a model have no queries and keys.
    teacher_shape = stage.pairing.teacher.shape
    teacher_has_rotary_positions = teacher_shape is not None and teacher_shape.rotary
    has_rotary_positions = stage.pairing.student.rotary or teacher_has_rotary_positions
    record.layers = describe_layers(stage.terms, rotary=has_rotary_positions)

    # The run's record names the recipe's teacher model already, so the stage names any other: a source of outputs in
    # place of a model, such as vectors in a file, and a teacher of the stage's own.
    teacher = stage.teacher
    if teacher.teaching is not None:
        record.teacher = teacher.facts.title
    elif stage.spec.teacher is not None:
        record.teacher = teacher.title
    # A teacher that is the student of an earlier stage has no origin outside of the run.
    is_student_of_run = teacher.stage is not None
    if stage.spec.teacher is not None and not is_student_of_run:
        source = describe_source(teacher)
        if source:
            record.teacher_facts = records.Teacher.read(source)

    citation = METHODS[record.method].citation
    if citation is not None:
        # Records leave some fields of a citation out.
        known = records.Citation.model_fields
        fields = {name: value for name, value in asdict(citation).items() if name in known}
        record.citation = records.Citation.read(fields)
