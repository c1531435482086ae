"""`Proxy`: candidates of a search, trained side by side under one teacher, on a share of the text."""

import copy
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.memory import keep_freed_memory
from limbeck.core.ranks import (
    broadcast_task,
    main_rank_first,
    on_all_ranks,
    on_main_rank,
    raised_on_all_ranks,
    run_broadcast_tasks,
    running_task,
)
from limbeck.core.records import Stage
from limbeck.corpus import CorpusSettings
from limbeck.errors import RecipeError
from limbeck.inspection.layer_cosines import measure_layer_cosines
from limbeck.models.quiet import quiet
from limbeck.models.vector_check import check_vectors
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
from limbeck.training.run import load_tokenizer_of
from limbeck.training.stage import prepare_student
from limbeck.training.stage_rows import stage_rows
from limbeck.training.student_maker import StudentMaker
from limbeck.training.teaching.models import TeacherModels, teacher_dtype


@dataclass(frozen=True)
class Trained:
    """A candidate after its training.

    Args:
        student: Trained in place, in float32 and evaluation mode, an ordinary model; worthless if it diverged.
        held_out: Held-out value of every term of its last stage, and `loss`, their weighted sum; empty without
            held-out text, or if it diverged.
        steps: Steps that it trained; fewer than the others if it was cut.
        diverged: Whether a term or a weight became infinite or no number.
        learned: Of the stage that taught finished sentence vectors, if one did: the student may keep a map.
    """

    student: PreTrainedModel
    held_out: dict[str, float]
    steps: int
    diverged: bool
    learned: Learned | None = None


class Outcome(NamedTuple):
    """One student after one stage: the record of its parameters, and the fields of `Trained`."""

    stage: Stage
    held_out: dict[str, float]
    steps: int
    diverged: bool


def make_students(makers: Sequence[StudentMaker]) -> list[PreTrainedModel]:
    """Make the students; equal plans have copies of one student."""
    originals: list[tuple[StudentMaker, PreTrainedModel]] = []
    students = []
    for maker in makers:
        original: PreTrainedModel | None = None
        for earlier, student in originals:
            if earlier.choice == maker.choice and earlier.head == maker.head:
                original = student
                break
        if original is None:
            original, _ = maker.make()
            originals.append((maker, original))
        students.append(copy.deepcopy(original))
    return students


def read_outcomes(trainer: CohortTrainer, stages: Sequence[Stage]) -> list[Outcome]:
    """Evaluate every student on held-out rows, including stopped ones; return one outcome each."""
    cohort = trainer.cohort
    cohort.read_rows.merge()
    trainer.diverged.check()
    broken = set(trainer.diverged.indices)
    for index in range(len(stages)):
        if not _is_finite(cohort.member(index).student):
            broken.add(index)
    cohort.active = [index for index in range(len(stages)) if index not in broken]
    metrics: dict[str, float] = {}
    if cohort.active and trainer.eval_dataset is not None:
        metrics = trainer.evaluate()

    outcomes = []
    for index, stage in enumerate(stages):
        values: dict[str, float] = {}
        stage.unread = cohort.member(index).unread_rows()
        if metrics and index not in broken:
            terms = cohort.member(index).terms
            values = {term.name: metrics[f"eval_{index}/{term.name}"] for term in terms}
            values["loss"] = sum(term.weight * values[term.name] for term in terms)
        outcomes.append(Outcome(stage, values, trainer.steps[index], index in broken))
    return outcomes


def finish(
    maker: StudentMaker, student: PreTrainedModel, outcomes: Sequence[Outcome], learned: Sequence[Learned]
) -> Trained:
    """Fill what no stage trained, as a run does, and gather the outcomes of all stages."""
    whole, _ = maker.finish(student, [outcome.stage for outcome in outcomes])
    diverged = any(outcome.diverged for outcome in outcomes)
    # The last stage that teaches vectors says how the student makes them.
    learned_of_vectors: Learned | None = None
    for stage, learned_of_stage in zip(maker.stages, learned, strict=True):
        if stage.teaches_vectors:
            learned_of_vectors = learned_of_stage
    return Trained(
        student=whole.eval(),
        held_out={} if diverged else outcomes[-1].held_out,
        steps=sum(outcome.steps for outcome in outcomes),
        diverged=diverged,
        learned=learned_of_vectors,
    )


def _is_finite(student: PreTrainedModel) -> bool:
    return all(bool(parameter.isfinite().all()) for parameter in student.parameters())


class Proxy:
    """Trains candidates of one recipe side by side, each as it would be trained alone.

    Candidates differ in their terms (layer mapping, teacher layer) or in shape. The text is built and read
    once, the teacher runs once a batch, and candidates of one shape start from one student. Under a launcher of several
    processes the main one makes a proxy and the others `follow_proxy`; they share every batch.

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
            raise RecipeError(f"A share of {share} of the corpus is not possible; give more than 0 and at most 1.")
        _check_stages(plan)
        keep_freed_memory()
        self.plan = plan
        self.console = console
        self._teachers = TeacherModels(plan.teacher_info)
        broadcast_task(None)
        self.tokenizer: PreTrainedTokenizerBase = on_all_ranks(partial(load_tokenizer_of, plan))
        on_main_rank(partial(check_vectors, plan.vector_teachers))
        self.corpora = main_rank_first(lambda: build_corpora(plan, self.tokenizer, console))
        if share < 1:
            for corpus in self.corpora:
                for view in corpus.views:
                    _keep_share(view, share, plan.recipe.seed)

    def load_teacher(self, **options: Any) -> PreTrainedModel:
        """Load a whole teacher; options as of `load_model`."""
        return self._teachers.load(**options)

    def train(self, plans: Sequence[RunPlan], *, cuts: Mapping[int, Cut] | None = None) -> list[Trained]:
        """Train candidates.

        Args:
            plans: One for each candidate, of as many stages as the base recipe, on the same text.
            cuts: After how many steps who goes on is asked; for recipes of one stage.

        Raises:
            RecipeError: for plans of another number of stages, and for cuts of a recipe of several.
        """
        stages = len(self.plan.stages)
        if any(len(plan.stages) != stages for plan in plans) or (cuts and stages > 1):
            raise RecipeError(
                f"Candidates have the {stages} stages of their recipe, but can be dropped early only where it has "
                "one; leave the other stages out of the recipe."
            )
        broadcast_task((tuple(plans), tuple(cuts or ())))
        return self.take_part(plans, cuts or {})

    def take_part(self, plans: Sequence[RunPlan], cuts: Mapping[int, Cut]) -> list[Trained]:
        """Train candidates that the main process asked for; every process has its part in them."""
        with running_task():
            return on_all_ranks(lambda: self._train(plans, cuts))

    def _train(self, plans: Sequence[RunPlan], cuts: Mapping[int, Cut]) -> list[Trained]:
        load = cache(self.load_teacher)  # Students start from it and are filled up from it; neither changes it.
        makers = [
            StudentMaker(plan.student_plan, plan.head, plan.own_stages, plan.teacher_info, load, plan.recipe.seed)
            for plan in plans
        ]
        with quiet():
            students = make_students(makers)
            outcomes: list[list[Outcome]] = [[] for _ in plans]
            learned: list[list[Learned]] = [[] for _ in plans]
            for index in range(len(self.plan.stages)):
                choices = [self._settled(plan.stages[index], index) for plan in plans]
                outcomes_of_stage = self._train_stage(index, choices, students, cuts, learned)
                for outcomes_of_student, outcome in zip(outcomes, outcomes_of_stage, strict=True):
                    outcomes_of_student.append(outcome)
            candidates = zip(makers, students, outcomes, learned, strict=True)
            return [finish(*candidate) for candidate in candidates]

    def _settled(self, choice: StagePlan, index: int) -> StagePlan:
        """Compose a stage by what is measured, where it asks for that: contributions of layers, balanced classes."""
        if choice.measures_layers:
            teacher = self.load_teacher(dtype=teacher_dtype(choice))
            choice = choice.with_layer_cosines(measure_layer_cosines(teacher, self.corpora[index], self.tokenizer))
        return weigh_classes(choice, self.corpora[index])

    def _train_stage(
        self,
        index: int,
        choices: Sequence[StagePlan],
        students: Sequence[PreTrainedModel],
        cuts: Mapping[int, Cut],
        learned: Sequence[list[Learned]],
    ) -> list[Outcome]:
        """Train all students for a stage; what each has learned beside itself goes on from `learned`, and joins it."""
        first = choices[0]
        seed = self.plan.recipe.seed + index
        for student in students:
            prepare_student(student, first)
        stages = [Stage(frozen=untrained_names(student)) for student in students]
        rows = stage_rows(first, self.corpora[index], self.tokenizer, seed)
        heads = [choice.sentence_heads()[0] for choice in choices]
        terms = [choice.terms for choice in choices]
        teaching = self._teachers.open(first, [term for terms_of_student in terms for term in terms_of_student])
        cohort = StudentCohort(students, teaching, terms, heads=heads)
        for index_of_student, earlier_stages in enumerate(learned):
            for learned_of_stage in earlier_stages:
                cohort.member(index_of_student).take_learned(learned_of_stage)
        progress = ProgressReporter(f"{len(students)} students", self.console)
        try:
            for i, stage in enumerate(stages):
                stage.untrained = freeze_unreached(cohort.member(i), rows.probe())
            training = first.spec.training | {"save_strategy": "no", "eval_strategy": "no"}
            # The loop wants a folder that is there; nothing is written, so that a search that is killed leaves none.
            nowhere = tempfile.gettempdir()
            trainer = CohortTrainer(
                cohort,
                cuts=cuts,
                args=build_arguments(training, output=nowhere, seed=seed, evaluates=False),
                callbacks=[progress],
                **rows.arguments(),
            )
            progress.work_until = trainer.loader.work_until
            trainer.start_maps()
            trainer.train()
            for i, earlier in enumerate(learned):
                earlier.append(cohort.member(i).learned())
            return read_outcomes(trainer, stages)
        finally:
            progress.close()
            cohort.close()


def _keep_share(corpus: AnyCorpus, share: float, seed: int) -> None:
    """Leave a random share of a corpus to train on; it is changed in place.

    Raises:
        RecipeError: if a source of a mix has no block left.
    """
    count = max(1, round(share * len(corpus.train)))
    order = np.random.default_rng(seed).permutation(len(corpus.train))
    chosen = np.sort(order[:count])
    corpus.train = corpus.train.select(chosen)
    if corpus.mix is None:
        return
    # The rows of a source stand together.
    ends = np.cumsum([0, *corpus.manifest["source_rows"]])
    rows_left = np.diff(np.searchsorted(chosen, ends)).tolist()
    if 0 in rows_left:
        name = corpus.titles[rows_left.index(0)]
        raise raised_on_all_ranks(
            RecipeError(f"A share of {share} has no block of the source '{name}'; give a larger one.")
        )
    corpus.manifest["source_rows"] = rows_left


def follow_proxy(plan: RunPlan, *, share: float) -> None:
    """Take part in what the main process does with a proxy; arguments as of `Proxy`."""
    proxies: list[Proxy] = []

    def carry_out(candidates: tuple[Sequence[RunPlan], Sequence[int]] | None) -> None:
        if candidates is None:
            proxies.append(Proxy(plan, share=share, console=Console(quiet=True)))
            return
        plans, cuts = candidates
        proxies[-1].take_part(plans, {step: lambda _: [] for step in cuts})  # The main process alone is asked.

    run_broadcast_tasks(carry_out)


def _check_stages(plan: RunPlan) -> None:
    if not plan.stages:
        raise RecipeError("The recipe has no stages, so candidates would learn nothing; give it one.")
    for choice in plan.stages:
        place = f"Stage '{choice.spec.title}'"
        if choice.student is not None or choice.spec.teacher is not None:
            raise RecipeError(
                f"{place} has a {'student' if choice.student is not None else 'teacher'} of its own; a search trains "
                "one student by the recipe's teacher, so leave that stage out."
            )
        if isinstance(choice.corpus, CorpusSettings) and choice.corpus.streaming:
            raise RecipeError(
                f"{place} streams its text, but a search cannot take a share of a stream; leave out "
                "corpus.streaming, and limit the text by corpus.max_documents."
            )
        if choice.spec.training.get("fp16"):
            raise RecipeError(
                f"{place}: float16 scales the loss of all candidates together, so one would change the others; use "
                "training.bf16 or float32 for a search."
            )
