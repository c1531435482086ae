"""`Proxy`: candidates of a search, trained side by side under one teacher, on a share of the text.

A *candidate* is a variant of one recipe, with another layer mapping, teacher layer or shape of the student. A search
compares candidates by a short training of each, which stands for a whole one. A *cut* drops candidates early.
"""

import copy
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.memory import keep_freed_memory
from limbeck.core.rank_tasks import broadcast_task, run_broadcast_tasks, running_task
from limbeck.core.ranks import main_rank_first, on_all_ranks, on_main_rank, raised_on_all_ranks
from limbeck.core.records import Stage
from limbeck.corpus import CorpusSettings
from limbeck.errors import RecipeError
from limbeck.inspection.layer_cosines import measure_layer_cosines
from limbeck.models.quiet import quiet
from limbeck.models.vector_check import check_vectors
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.callbacks import ProgressReporter
from limbeck.training.class_counts import weigh_classes
from limbeck.training.cohort import StudentCohort
from limbeck.training.cohort_trainer import CohortTrainer, Cut
from limbeck.training.corpora import build_corpora
from limbeck.training.freezing import freeze_unreached, untrained_names
from limbeck.training.learned_maps import Learned
from limbeck.training.rows import AnyCorpus
from limbeck.training.run_tokenizers import RunTokenizers, load_tokenizers
from limbeck.training.stage import prepare_student
from limbeck.training.stage_rows import stage_rows
from limbeck.training.start_text import reader_of
from limbeck.training.student_maker import StudentMaker
from limbeck.training.teaching.models import TeacherModels
from limbeck.training.teaching.taught_texts import check_texts_taught
from limbeck.training.teaching.teacher_dtype import teacher_dtype


@dataclass(frozen=True)
class Trained:
    """A candidate after its training.

    Args:
        student: The student, in float32 and evaluation mode, an ordinary model; worthless if it diverged.
        held_out: Held-out value of every term of its last stage, and `loss`, their weighted sum; empty without
            held-out text, or if it diverged.
        steps: Steps that it trained; fewer than the others if it was cut.
        diverged: Whether a term or a weight became infinite or no number.
        learned: Maps of the stage that taught finished sentence vectors, if one did: the student may keep one.
    """

    student: PreTrainedModel
    held_out: dict[str, float]
    steps: int
    diverged: bool
    learned: Learned | None = None


class StageOutcome(NamedTuple):
    """One student after one stage: the record of its parameters, and the fields of `Trained`."""

    record: Stage
    held_out: dict[str, float]
    steps: int
    diverged: bool


@dataclass
class _Candidate:
    """A candidate in training, and what its stages left so far.

    Attributes:
        maker: The maker of its student.
        student: The student.
        outcomes: The outcome of each stage.
        learned: The learned maps of each stage, which later stages take over.
    """

    maker: StudentMaker
    student: PreTrainedModel
    outcomes: list[StageOutcome] = field(default_factory=list)
    learned: list[Learned] = field(default_factory=list)


class Proxy:
    """Trains candidates of one recipe side by side, each as it would be trained alone.

    Candidates differ in their terms (layer mapping, teacher layer) or in shape. The text is built and read once, the
    teacher runs once a batch, and candidates of one shape start as copies of one student. Under a launcher of several
    processes the main process makes a proxy, while the others call `follow_proxy`; they share every batch.

    Args:
        plan: The recipe that the candidates are variants of.
        share: Share of the text to train on, a fixed random part of its blocks; in (0, 1].
        console: Where progress goes.

    Raises:
        RecipeError: for a share out of range or without a block of a source of a mix, or a recipe that cannot be
            trained side by side: without stages, with a stage that names its teacher or student, or in float16, whose
            loss scale couples the students.
    """

    def __init__(self, plan: RunPlan, *, share: float = 1.0, console: Console) -> None:
        if not 0 < share <= 1:
            raise RecipeError(f"The share of the corpus is {share}, but it must be above 0, up to 1; change the share.")
        _check_stages(plan)
        keep_freed_memory()
        self.plan = plan
        self.console = console
        self._teachers = TeacherModels(plan.teacher_info)
        # Tell the processes in `follow_proxy` to make a proxy too; None is the task that means this.
        broadcast_task(None)
        self.tokenizers: RunTokenizers = on_all_ranks(partial(load_tokenizers, plan))
        on_main_rank(partial(check_vectors, plan.vector_teachers))
        self.corpora = main_rank_first(lambda: build_corpora(plan, self.tokenizers.of_stage, console))
        on_main_rank(partial(check_texts_taught, plan, self.corpora, self.tokenizers))
        if share < 1:
            for corpus in self.corpora:
                for view in corpus.views:
                    _reduce_to_share(view, share, plan.recipe.seed)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the candidates and their teacher."""
        return self.tokenizers.student

    def load_teacher(self, teacher: TeacherInfo | None = None, **options: Any) -> PreTrainedModel:
        """Load a whole teacher, by default the recipe's; options as of `load_model`."""
        return self._teachers.load(teacher, **options)

    def train(self, plans: Sequence[RunPlan], *, cuts: Mapping[int, Cut] | None = None) -> list[Trained]:
        """Train candidates.

        Args:
            plans: One for each candidate, of as many stages as the base recipe, on the same text.
            cuts: Number of steps to the cut that is due after them: the function that chooses which candidates go on.
                Only for recipes of one stage.

        Raises:
            RecipeError: for plans of another number of stages, and for cuts of a recipe of several.
        """
        cuts = {} if cuts is None else cuts
        count = len(self.plan.stages)
        has_other_count = any(len(plan.stages) != count for plan in plans)
        if has_other_count or (cuts and count > 1):
            raise RecipeError(
                "Candidates can be dropped early only if their recipe has a single stage, but this recipe has "
                f"{count}; leave the other stages out."
            )
        broadcast_task((tuple(plans), tuple(cuts)))
        return self.take_part(plans, cuts)

    def take_part(self, plans: Sequence[RunPlan], cuts: Mapping[int, Cut]) -> list[Trained]:
        """Train candidates that the main process asked for; every process trains on its part of the batches."""
        with running_task():
            return on_all_ranks(lambda: self._train(plans, cuts))

    def _train(self, plans: Sequence[RunPlan], cuts: Mapping[int, Cut]) -> list[Trained]:
        """Train candidates side by side, through all stages; see `train`."""
        # Making and finishing a student reads the teacher and does not change it, so one loaded teacher serves all.
        load_once = cache(partial(self._teachers.load, self.plan.student_plan.source))
        # Starts that look at text read that of the first stage; `_check_stages` has refused a recipe without stages.
        first_stage = self.plan.stages[0]
        tokenizers = self.tokenizers.of_stage(first_stage)
        read_batches = reader_of(first_stage, self.corpora[0], tokenizers, self.plan.student_plan.source)
        makers = [
            StudentMaker(
                plan=plan.student_plan,
                head=plan.head,
                stages=plan.own_stages,
                source=plan.student_plan.source,
                load_teacher=load_once,
                seed=plan.recipe.seed,
                read_batches=read_batches,
            )
            for plan in plans
        ]
        with quiet():
            candidates = _make_candidates(makers)
            for index in range(len(self.plan.stages)):
                stages = [self._with_measurements(plan.stages[index], index) for plan in plans]
                # The member of the cohort and the outcome of a candidate have its index among the candidates.
                cohort = self._make_cohort(stages, candidates)
                outcomes = self._train_stage(index, stages[0], cohort, cuts)
                for number, candidate in enumerate(candidates):
                    candidate.outcomes.append(outcomes[number])
                    candidate.learned.append(cohort.member(number).learned())
            return [_finish(candidate) for candidate in candidates]

    def _with_measurements(self, stage: StagePlan, index: int) -> StagePlan:
        """Complete a stage by the measurements that it needs, for a layer mapping by contribution or class weights."""
        if stage.measures_layers:
            teacher = self.load_teacher(dtype=teacher_dtype(stage))
            tokenizer = self.tokenizers.of_stage(stage).student
            stage = stage.with_layer_cosines(measure_layer_cosines(teacher, self.corpora[index], tokenizer))
        return weigh_classes(stage, self.corpora[index])

    def _make_cohort(self, stages: Sequence[StagePlan], candidates: Sequence[_Candidate]) -> StudentCohort:
        """Tap the students and their teacher for a stage, and take over what earlier stages have learned.

        Args:
            stages: The stage of each candidate; all have the same teacher and text.
            candidates: The candidates.
        """
        students = [candidate.student for candidate in candidates]
        for student in students:
            prepare_student(student, stages[0])
        all_terms = [term for stage in stages for term in stage.terms]
        heads = []
        for stage in stages:
            student_head, _ = stage.sentence_heads()
            heads.append(student_head)
        teaching = self._teachers.open(stages[0], all_terms)
        cohort = StudentCohort(students, teaching, [stage.terms for stage in stages], heads=heads)
        for number, candidate in enumerate(candidates):
            for earlier in candidate.learned:
                cohort.member(number).take_learned(earlier)
        return cohort

    def _train_stage(
        self, index: int, stage: StagePlan, cohort: StudentCohort, cuts: Mapping[int, Cut]
    ) -> list[StageOutcome]:
        """Train all students for a stage, and take off the taps that read their streams.

        Args:
            index: Number of the stage, from 0.
            stage: The stage of the first candidate: its rows and training arguments are those of all.
            cohort: The students.
            cuts: See `train`.
        """
        seed = self.plan.recipe.seed + index
        members = [cohort.member(number) for number in range(len(cohort.members))]
        progress = ProgressReporter(f"{len(members)} students", self.console)
        try:
            rows = stage_rows(stage, self.corpora[index], self.tokenizers.of_stage(stage), seed)
            stage_records = []
            for member in members:
                frozen = untrained_names(member.student)
                untrained = freeze_unreached(member, rows.probe())
                stage_records.append(Stage(frozen=frozen, untrained=untrained))

            training = stage.spec.training | {"save_strategy": "no", "eval_strategy": "no"}
            # The loop demands a folder that exists, though nothing is written there.
            folder = tempfile.gettempdir()
            trainer = CohortTrainer(
                cohort,
                cuts=cuts,
                args=build_arguments(training, output=folder, seed=seed, evaluates=False),
                callbacks=[progress],
                **rows.arguments(),
            )
            progress.work_until = trainer.loader.work_until
            trainer.start_maps()
            trainer.train()
            return _read_outcomes(trainer, stage_records)
        finally:
            progress.close()
            cohort.close()


def follow_proxy(plan: RunPlan, *, share: float) -> None:
    """Carry out the tasks that the main process' `Proxy` broadcasts, in another process; arguments as of `Proxy`."""
    proxy: Proxy | None = None

    def carry_out(task: tuple[Sequence[RunPlan], Sequence[int]] | None) -> None:
        """Carry out a task: None says that the main process makes a proxy, else it trains plans with cuts at steps."""
        nonlocal proxy
        if task is None:
            proxy = Proxy(plan, share=share, console=Console(quiet=True))
            return
        plans, steps_of_cuts = task
        # Only the steps count here: the main process chooses the candidates that go on, and sends its choice.
        cuts = dict.fromkeys(steps_of_cuts, _never_called)
        assert proxy is not None, "The first task makes the proxy."
        proxy.take_part(plans, cuts)

    run_broadcast_tasks(carry_out)


def _never_called(*_: object) -> list[int]:
    """Stand for a cut in a process whose cuts are chosen by another one."""
    raise AssertionError("Only the main process chooses the candidates that go on.")


def _make_candidates(makers: Sequence[StudentMaker]) -> list[_Candidate]:
    """Make the students of all candidates; equal plans have copies of one student."""
    originals: list[_Candidate] = []
    candidates = []
    for maker in makers:
        original: PreTrainedModel | None = None
        for earlier in originals:
            if earlier.maker.plan == maker.plan and earlier.maker.head == maker.head:
                original = earlier.student
                break
        if original is None:
            original, _ = maker.make()
            originals.append(_Candidate(maker, original))
        candidates.append(_Candidate(maker, copy.deepcopy(original)))
    return candidates


def _read_outcomes(trainer: CohortTrainer, stage_records: Sequence[Stage]) -> list[StageOutcome]:
    """Measure every student on held-out rows, also students that were cut; return the outcome of each.

    Args:
        trainer: The trainer, after the last step.
        stage_records: A record of the stage for each student; its field `unread` is set here.
    """
    cohort = trainer.cohort
    # Rows of embedding tables that another process has read were trained too.
    cohort.read_rows.merge()
    # A student has diverged if one of its terms or of its weights is infinite or no number.
    trainer.diverged.check()
    diverged = set(trainer.diverged.indices)
    for index in range(len(stage_records)):
        if not _is_finite(cohort.member(index).student):
            diverged.add(index)
    # Only active students are measured, so those that were cut are active again.
    cohort.active = [index for index in range(len(stage_records)) if index not in diverged]
    metrics: dict[str, float] = {}
    if cohort.active and trainer.eval_dataset is not None:
        metrics = trainer.evaluate()

    outcomes = []
    for index, record in enumerate(stage_records):
        member = cohort.member(index)
        record.unread = member.unread_rows()
        held_out: dict[str, float] = {}
        if metrics and index not in diverged:
            for term in member.terms:
                # A cohort calls the term of a student by the student's index and the name of the term.
                held_out[term.name] = metrics[f"eval_{index}/{term.name}"]
            held_out["loss"] = sum(term.weight * held_out[term.name] for term in member.terms)
        outcomes.append(StageOutcome(record, held_out, steps=trainer.steps[index], diverged=index in diverged))
    return outcomes


def _is_finite(student: PreTrainedModel) -> bool:
    return all(bool(parameter.isfinite().all()) for parameter in student.parameters())


def _finish(candidate: _Candidate) -> Trained:
    """Fill the parameters that no stage trained, as a run does, and gather the outcomes of all stages."""
    outcomes = candidate.outcomes
    # A run would write the list of the parameters that no stage trained into its record.
    student, _ = candidate.maker.finish(candidate.student, [outcome.record for outcome in outcomes])
    diverged = any(outcome.diverged for outcome in outcomes)
    # The maps behind the student's vectors are those of the last stage that teaches vectors.
    learned_maps: Learned | None = None
    for stage, maps_of_stage in zip(candidate.maker.stages, candidate.learned, strict=True):
        if stage.teaches_vectors:
            learned_maps = maps_of_stage
    held_out: dict[str, float] = {}
    if not diverged:
        held_out = outcomes[-1].held_out
    return Trained(
        student=student.eval(),
        held_out=held_out,
        steps=sum(outcome.steps for outcome in outcomes),
        diverged=diverged,
        learned=learned_maps,
    )


def _reduce_to_share(corpus: AnyCorpus, share: float, seed: int) -> None:
    """Leave only a random share of the blocks of a corpus to train on; the corpus is changed in place.

    A block is a row of tokens. In a mix the blocks of all sources lie one behind the other.

    Raises:
        RecipeError: if a source of a mix has no block left.
    """
    count = max(1, round(share * len(corpus.train)))
    order = np.random.default_rng(seed).permutation(len(corpus.train))
    chosen = np.sort(order[:count])
    corpus.train = corpus.train.select(chosen)
    if corpus.mix is None:
        return
    # Count the chosen blocks of each source. Sources with 3 and 2 blocks have the bounds 0, 3 and 5. Among the sorted
    # chosen blocks 1, 2 and 4 these bounds stand at the places 0, 2 and 3, so 2 and 1 blocks are left.
    bounds = np.cumsum([0, *corpus.manifest["source_rows"]])
    rows_left = np.diff(np.searchsorted(chosen, bounds)).tolist()
    if 0 in rows_left:
        name = corpus.titles[rows_left.index(0)]
        raise raised_on_all_ranks(
            RecipeError(f"A share of {share} has no block of the source '{name}'; give a larger one.")
        )
    corpus.manifest["source_rows"] = rows_left


def _check_stages(plan: RunPlan) -> None:
    """Refuse a recipe whose candidates cannot be trained side by side."""
    if not plan.stages:
        raise RecipeError("The recipe has no stages, so candidates would learn nothing; give the recipe a stage.")
    if plan.teacher_info.combination is not None:
        raise RecipeError(
            "A search trains candidates by one teacher, but the recipe has several; give only one of them, as "
            "'teacher'."
        )
    if plan.student_plan.tokenizer.cut is not None:
        raise RecipeError(
            "student.vocabulary cuts a vocabulary for one student, but a search makes many; first cut the model "
            "that they start from with `limbeck trim`, and name the result in the recipe."
        )
    for stage in plan.stages:
        place = f"Stage '{stage.spec.title}'"
        if stage.student is not None:
            raise _own_model_error(place, "student")
        if stage.spec.teacher is not None:
            raise _own_model_error(place, "teacher")
        if stage.teacher_tokenizer is not None:
            raise RecipeError(
                f"{place}: the student reads other tokens than its teacher, but a search compares candidates with the "
                "teacher token by token; start from a model with the teacher's tokenizer."
            )
        if isinstance(stage.corpus, CorpusSettings) and stage.corpus.streaming:
            raise RecipeError(
                f"{place} streams its text, but a search trains on a share of the text, and a stream has no "
                "shares; leave out corpus.streaming, and limit the text by corpus.max_documents."
            )
        if stage.spec.training.get("fp16"):
            raise RecipeError(
                f"{place}: float16 scales the loss of all candidates together, so one would change the others; use "
                "training.bf16 or float32 for a search."
            )


def _own_model_error(place: str, model: str) -> RecipeError:
    return RecipeError(
        f"{place} has a {model} of its own; a search trains one student by the recipe's teacher, so leave that stage "
        "out."
    )
