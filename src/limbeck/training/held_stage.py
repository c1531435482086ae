"""`HeldStage`: a stage of a plan in memory, with its module, its batches and its loss, without a run's folder."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from rich.console import Console
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from limbeck.core.corpus_progress import CorpusProgress
from limbeck.corpus import Tokenizers
from limbeck.corpus.batches.batch import without_marks
from limbeck.errors import RecipeError
from limbeck.models.packing import send_batch
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.class_counts import weigh_classes
from limbeck.training.corpora import build_corpus_of
from limbeck.training.division import divide_loss
from limbeck.training.freezing import freeze_unreached
from limbeck.training.module import DistillationModule
from limbeck.training.rows import AnyCorpus
from limbeck.training.run_tokenizers import RunTokenizers, load_tokenizers
from limbeck.training.stage import prepare_student
from limbeck.training.stage_rows import StageRows, stage_rows
from limbeck.training.start_text import reader_of
from limbeck.training.student_maker import StudentMaker
from limbeck.training.teaching.models import TeacherModels
from limbeck.training.teaching.taught_texts import sample_text
from limbeck.training.trainer import DistillationTrainer
from limbeck.training.units import count_units


class HeldStage:
    """A stage of a plan in memory, to look at and to train by hand.

    Only the cache of the text is written. The student is as it starts. Each part is made when you first ask for it.

    Args:
        plan: The checked recipe.
        index: The number of the stage, from 0.
        console: Where progress goes; quiet by default.

    Raises:
        RecipeError: for a stage that the plan does not have, or one that needs the result of an earlier one.

    Example:
        >>> stage = HeldStage(plan)
        >>> batch = next(iter(stage.batches()))
        >>> stage.loss(batch).backward()
    """

    def __init__(self, plan: RunPlan, index: int = 0, console: Console | None = None) -> None:
        count = len(plan.stages)
        if not 0 <= index < count:
            raise RecipeError(
                f"The plan has {count} stages, numbered from 0, so there is no stage {index}; give a number up to "
                f"{count - 1}."
            )
        stage_plan = plan.stages[index]
        # Nothing is trained or measured before a held stage, so neither a student of an earlier stage can teach it, nor
        # can its layer mapping follow from a measurement of the teacher.
        has_student_as_teacher = stage_plan.teacher.stage is not None
        if has_student_as_teacher or stage_plan.measures_layers:
            raise RecipeError(
                f"Stage '{stage_plan.spec.title}' needs the result of an earlier training or a measurement, so it "
                "cannot be loaded alone; distil the whole recipe, or choose another stage."
            )
        self._run_plan = plan
        self._checked_plan = stage_plan
        self._seed = plan.recipe.seed + index
        self._console = Console(quiet=True) if console is None else console

        self.plan: StagePlan = stage_plan
        """Plan of the stage, with the weights of its classes."""
        if stage_plan.class_weights is not None:
            # Classes are weighed by their numbers of rows, so the corpus is built here already.
            self.plan = weigh_classes(stage_plan, self.corpus)

    @cached_property
    def _run_tokenizers(self) -> RunTokenizers:
        """The tokenizers of all models of the plan."""
        return load_tokenizers(self._run_plan)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of student and teacher."""
        return self._run_tokenizers.of_stage(self._checked_plan)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the student, and of the teacher where both read the same tokens."""
        tokenizer: PreTrainedTokenizerBase = self.tokenizers.student
        return tokenizer

    @cached_property
    def corpus(self) -> AnyCorpus:
        """The text of the stage, built or from the cache."""
        with CorpusProgress(self._console) as progress:
            return build_corpus_of(self._checked_plan, self.tokenizers, progress)

    @cached_property
    def rows(self) -> StageRows:
        """The rows to train on and the held-out ones, with the collator that makes batches of them."""
        return stage_rows(self.plan, self.corpus, self.tokenizers, self._seed)

    @cached_property
    def module(self) -> DistillationModule:
        """Student, learned maps, teaching and terms; parameters that no term reaches are frozen."""
        teachers = TeacherModels(self._run_plan.teacher_info, piece_ids=self._run_tokenizers.piece_ids)
        student, _ = self._student_maker(teachers).make()
        prepare_student(student, self.plan)
        student_head, _ = self.plan.sentence_heads()
        teaching = teachers.open(self.plan, self.plan.terms)
        # A held stage has no folder that could keep what the teaching learns of the text.
        teaching.prepare(None, partial(sample_text, self.corpus, self.tokenizers))
        module = DistillationModule(student, teaching, self.plan.terms, pooling=student_head)
        freeze_unreached(module, self.rows.probe())
        return module

    def _student_maker(self, teachers: TeacherModels) -> StudentMaker:
        """Return the maker of the stage's own student, or of the recipe's where the stage has none."""
        run = self._run_plan
        stage = self.plan
        student = run.student_plan
        head = run.head
        # The stages that train the recipe's student: those without a student of their own.
        stages_of_student = run.own_stages
        if stage.student is not None:
            student = stage.student
            head = stage.student_head
            stages_of_student = [stage]
        return StudentMaker(
            plan=student,
            head=head,
            stages=stages_of_student,
            source=student.source,
            load_teacher=partial(teachers.load, student.source),
            seed=run.recipe.seed,
            # The batches are read with the tokenizers of the stage. The maker may also need others of the run: that of
            # a student with a vocabulary of its own, and that of the model which the student starts from.
            read_batches=reader_of(stage, self.corpus, self.tokenizers, student.source),
            tokenizers=self._run_tokenizers,
        )

    @cached_property
    def trainer(self) -> DistillationTrainer:
        """The trainer of a run's stage; it saves nothing."""
        training = self.plan.spec.training | {"save_strategy": "no", "eval_strategy": "no"}
        # The loop demands a folder that exists, though nothing is written there.
        folder = tempfile.gettempdir()
        arguments = build_arguments(training, output=folder, seed=self._seed, evaluates=False)
        return DistillationTrainer(self.module, args=arguments, **self.rows.arguments())

    def batches(self) -> Iterator[dict[str, Any]]:
        """Iterate over the batches of an epoch as a run reads them, on the device of the module.

        Batches of a stream have no end.
        """
        batches: Iterable[Mapping[str, Any]] = self.trainer.get_train_dataloader()
        for batch in batches:
            yield send_batch(batch, self.trainer.args.device)

    def loss(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the loss of a batch: the weighted sum of the means of its terms.

        Args:
            batch: The columns of a batch, as `batches` yields them.
        """
        self.module.to(self.trainer.args.device)
        outputs = self.module(**without_marks(batch))
        units = count_units(batch).to(self.trainer.args.device)
        return divide_loss(self.plan.terms, outputs, units).loss

    def close(self) -> None:
        """Take the taps off the models."""
        self.module.close()
