"""`StudentMaker`: a run's students, built, started from their teacher, and finished after training.

The *start* of a student are the weights that it has before training, taken from its teacher, from a checkpoint or at
random. A *head* is the part of a model that gives the scores of a task. *Finishing* a student gives values to
parameters that no stage trained, and adds a pooler if its architecture has one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from limbeck.core.progress import Tick, no_tick
from limbeck.core.records import Initialisation, Stage, Untrained
from limbeck.models import families, heads, students
from limbeck.models.loading import load_model
from limbeck.models.start import read_text, start_student
from limbeck.models.start_checkpoint import load_checkpoint
from limbeck.models.start_head import may_take_head, names_of_head
from limbeck.models.start_pooler import add_pooler
from limbeck.models.start_step import StartSettings
from limbeck.models.token_pieces import pieces_of_tokens
from limbeck.models.vocabulary_rows import cut_config
from limbeck.recipe.chosen_models import trained_model_of
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, start_settings
from limbeck.recipe.shared_reading import describe_shared_reading
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.run_tokenizers import RunTokenizers
from limbeck.training.start_text import ReadBatches
from limbeck.training.untrained import (
    describe_rows,
    fill_from_teacher,
    fill_rows,
    never_read,
    never_trained,
)

LoadTeacher = Callable[..., PreTrainedModel]
"""Loads the whole teacher, with all of its layers; keywords as in `load_model`."""
NO_HEAD_TO_START_WITH = "The student cannot start with its teacher's head, and a random head knows nothing of the task."


@dataclass(frozen=True)
class _AddedPooler:
    """A student with its pooler.

    Args:
        student: The student to save.
        names: The names of the pooler's parameters; none where its architecture has no pooler.
        names_from_teacher: Those of `names` that have the teacher's values.
        is_of_checkpoint: Whether the values are those of the checkpoint that the student started from.
    """

    student: PreTrainedModel
    names: list[str]
    names_from_teacher: list[str]
    is_of_checkpoint: bool


def make_student(
    plan: StudentPlan,
    load_teacher: LoadTeacher,
    *,
    seed: int,
    head: heads.Head | None = None,
    teacher_head: heads.Head | None = None,
    read_batches: ReadBatches | None = None,
    no_text: str = "",
    tokenizers: RunTokenizers | None = None,
    tick: Tick = no_tick,
) -> tuple[PreTrainedModel, Initialisation]:
    """Build a student and give it its start.

    Args:
        plan: The plan of the student.
        load_teacher: Loads the teacher that it starts from.
        seed: Decides what is random.
        head: The head that the student gets; None for none.
        teacher_head: The head that its teacher is known to have, from which the student's starts where shapes allow.
        read_batches: Reads text, for starts that look at activations of the teacher.
        no_text: The reason why there is none to read, as a sentence about the start; see `start_student`.
        tokenizers: Loads tokenizers, for a student with a vocabulary of its own.
        tick: Receives the progress of a start that takes long.

    Returns:
        The student, and the description of its start for the record.
    """
    # The teacher's pieces that a cut vocabulary keeps; None for a vocabulary that is not cut.
    piece_ids = None
    if tokenizers is not None:
        piece_ids = tokenizers.piece_ids(plan.tokenizer)
    student = students.build_student(_config_to_build(plan, piece_ids), seed=seed, head=head)
    start = plan.spec.initialise
    if start.checkpoint is not None:
        names = load_checkpoint(student, start.checkpoint)
        facts: dict[str, Any] = {
            "summary": f"Starts from the model '{start.checkpoint}'.",
            "checkpoint": start.checkpoint,
        }
        if head is not None:
            facts["head"] = {"kind": head, "copied": [name for name in names_of_head(student) if name in names]}
        return student, Initialisation.read(facts)

    teacher = load_teacher(head=teacher_head)
    settings = start_settings(start, seed=seed, cut=plan.tokenizer.cut, piece_ids=piece_ids)
    texts = None
    if read_batches is not None:
        texts = read_text(teacher, read_batches)
    # The embedding of a new token may start as the mean of those of the teacher's pieces that its text falls into.
    pieces = None
    averages_pieces = settings.embeddings == "averaged"
    if averages_pieces and tokenizers is not None and plan.source.tokenizer is not None:
        pieces = pieces_of_tokens(tokenizers.load(plan.tokenizer), tokenizers.load(plan.source.tokenizer))
    initialisation = start_student(
        student,
        teacher,
        settings,
        head=head,
        source_head=teacher_head,
        texts=texts,
        no_text=no_text,
        pieces=pieces,
        source_name=start.from_ or "",
        tick=tick,
    )
    trained_words = plan.tokenizer.trained_words
    if trained_words:
        initialisation.summary += f" Its vocabulary is {trained_words:,} WordPieces that were trained on its text."
    if piece_ids is not None:
        initialisation.summary += (
            f" Its vocabulary is the {len(piece_ids):,} of the {plan.source.shape.vocabulary:,} pieces that text uses "
            "most."
        )
    return student, initialisation


def _config_to_build(plan: StudentPlan, piece_ids: Sequence[int] | None) -> PreTrainedConfig:
    """Return a copy of a student's configuration with its cut vocabulary, and with the dropout of its training."""
    config = type(plan.config)(**plan.config.to_dict())
    if piece_ids is not None:
        config = cut_config(config, piece_ids)
    if plan.spec.dropout is not None:
        for name in families.family_of(config).fields.dropouts:
            setattr(config, name, plan.spec.dropout)
    return config


@dataclass(frozen=True)
class StudentMaker:
    """Makes a student, and after training fills the parameters that no stage trained.

    Args:
        plan: The plan of the student.
        head: The head that it gets.
        stages: The stages that train it.
        source: The teacher that it starts from.
        load_teacher: Loads that teacher.
        seed: Decides what is random.
        read_batches: Reads text for starts that need some.
        no_text: The reason why there is none to read.
        tokenizers: Loads tokenizers, for a student with a vocabulary of its own.
        tick: Receives the progress of a start that takes long.
    """

    plan: StudentPlan
    head: heads.Head | None
    stages: Sequence[StagePlan]
    source: TeacherInfo
    load_teacher: LoadTeacher
    seed: int
    read_batches: ReadBatches | None = None
    no_text: str = ""
    tokenizers: RunTokenizers | None = None
    tick: Tick = no_tick

    def make(self) -> tuple[PreTrainedModel, Initialisation]:
        """Build the student and give it its start; see `make_student`."""
        student, initialisation = make_student(
            self.plan,
            self.load_teacher,
            seed=self.seed,
            head=self.head,
            teacher_head=self._head_of_source(),
            read_batches=self.read_batches,
            no_text=self.no_text,
            tokenizers=self.tokenizers,
            tick=self.tick,
        )
        initialisation.trained_model = trained_model_of(self.plan)
        if initialisation.trained_model is not None:
            initialisation.summary = (
                f"Starts from the model '{initialisation.trained_model}', which is trained already."
            )
        # Where a teacher reads the cut vocabulary of its student, the summary says so, a sentence for each fact.
        if any(stage.whole_tokenizer is not None for stage in self.stages):
            for clause in describe_shared_reading(self.stages):
                sentence = f"{clause[:1].upper()}{clause[1:]}."
                initialisation.summary += f" {sentence}"
        return student, initialisation

    def may_copy_head(self) -> bool:
        """Whether the student may start with the head of its source, by what is known before any model is loaded."""
        start = self.plan.spec.initialise
        # What a checkpoint holds is known once it is loaded. A model that cannot be loaded has an error of its own.
        if start.checkpoint is not None or not self.source.is_known_model:
            return True
        if self._head_of_source() is None:
            return False
        return may_take_head(self.plan.shape, self.source.shape, start.embeddings)

    def finish(self, student: PreTrainedModel, records: Sequence[Stage]) -> tuple[PreTrainedModel, Untrained]:
        """Give values to parameters that no stage trained, as `student.untrained` says, and list them.

        With `teacher` they get the teacher's values where shapes allow; with `random` they keep the values of their
        start.

        Args:
            student: The student, trained.
            records: The records of its stages.

        Returns:
            The student to save, and its untrained parameters for the record.
        """
        policy = self.plan.spec.untrained
        names, frozen = never_trained(records)
        # The rows of embedding tables that no batch read, as a mask by kind of table.
        unread_rows = never_read(records, student)
        filled_names: list[str] = []
        filled_tables: list[str] = []
        has_untrained = bool(names or unread_rows)
        if has_untrained and policy == "teacher":
            # The terms say which layers of the teacher taught which of the student.
            terms = [term for stage in self.stages for term in stage.terms]
            source = self.load_teacher()
            filled_names = fill_from_teacher(student, source, names, terms)
            start_by_activations = self._start_by_activations()
            filled_tables = fill_rows(student, source, unread_rows, start_by_activations)

        # A student without a head is trained without a pooler. If its architecture has one, the pooler is added now,
        # and the names of its parameters are listed beside those above.
        pooler = self._add_pooler(student)

        described_rows = []
        for kind, mask in unread_rows.items():
            described_rows.append(describe_rows(student, kind, mask, from_teacher=kind in filled_tables))
        untrained = Untrained(
            policy=policy,
            names=[*names, *pooler.names],
            from_teacher=[*filled_names, *pooler.names_from_teacher],
            frozen=frozen,
            rows=described_rows,
        )
        if pooler.is_of_checkpoint:
            # Records have the field only where a checkpoint gave the pooler.
            untrained.from_checkpoint = pooler.names
        return pooler.student, untrained

    def _head_of_source(self) -> heads.Head | None:
        """Return the student's head where its source is known to have it too; else None."""
        # A student starts from its teacher, which is known to have a head if one of the stages reads its scores, or
        # from another model, which has the head that its configuration names.
        if self.plan.spec.initialise.from_ is None:
            heads_of_source = {stage.teacher_head for stage in self.stages if stage.teacher is self.source}
        else:
            heads_of_source = {heads.head_of(self.source.config)}
        if self.head in heads_of_source:
            return self.head
        return None

    def _add_pooler(self, student: PreTrainedModel) -> _AddedPooler:
        """Add a pooler, which is a layer behind the first token, if the student's architecture has one.

        Its values are those of the checkpoint that the student started from, else those of its teacher, else random.
        """
        checkpoint = self._checkpoint_with_pooler()
        if checkpoint is not None:
            whole, names = add_pooler(student, checkpoint, self.seed)
            return _AddedPooler(whole, names, names_from_teacher=[], is_of_checkpoint=True)
        if self._copies_pooler:
            teacher = self.load_teacher(pooler=True)
            whole, names = add_pooler(student, teacher, self.seed)
            names_of_teacher = teacher.state_dict().keys()
            shared_names = [name for name in names if name in names_of_teacher]
            return _AddedPooler(whole, names, names_from_teacher=shared_names, is_of_checkpoint=False)
        whole, names = add_pooler(student, None, self.seed)
        return _AddedPooler(whole, names, names_from_teacher=[], is_of_checkpoint=False)

    def _checkpoint_with_pooler(self) -> PreTrainedModel | None:
        """Load the checkpoint that the student started from with its pooler; None where there is none.

        A head is loaded with what lies below it, so that only a student without one gets its pooler here.
        """
        name = self.plan.spec.initialise.checkpoint
        if name is None or self.head is not None:
            return None
        checkpoint = load_model(name, pooler=True)
        has_pooler = any(tensor.startswith("pooler.") for tensor in checkpoint.state_dict())
        return checkpoint if has_pooler else None

    @property
    def _copies_pooler(self) -> bool:
        """Whether the student's pooler is a copy of its teacher's, and not a random one.

        It is if the student started from the teacher's layers or gets the teacher's values where no stage trained it,
        and both models have the same width.
        """
        spec = self.plan.spec
        takes_from_teacher = spec.untrained == "teacher" or spec.initialise.layers != "random"
        return takes_from_teacher and self.plan.shape.hidden == self.source.shape.hidden

    def _start_by_activations(self) -> StartSettings | None:
        """Return the settings of a start that chose the student's coordinates by activations; None for other starts."""
        start = self.plan.spec.initialise
        is_cut = start.layers != "random" and start.checkpoint is None
        if start.narrow_by == "activations" and is_cut:
            return start_settings(start, seed=self.seed)
        return None
