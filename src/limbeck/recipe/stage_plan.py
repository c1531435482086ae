"""What a stage comes to: its terms, its text and its models, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import ValidationError

from limbeck.corpus import CorpusSettings, LabelledSettings
from limbeck.errors import LimbeckError, ModelError, RecipeError
from limbeck.methods.composition import Pairing, Task, Term
from limbeck.methods.registry import METHODS
from limbeck.models.heads import Head, check_has_head, head_class
from limbeck.models.vocabulary import check_same_vocabulary, load_tokenizer
from limbeck.recipe.corpus_plan import check_source, check_stream, corpus_settings
from limbeck.recipe.explaining import explain
from limbeck.recipe.model_plan import StudentChoice, TeacherChoice, choose_student, choose_teacher, needed_head
from limbeck.recipe.schema import Recipe, StageSpec
from limbeck.recipe.training_arguments import build_arguments, check_training

MASKED_SHARE = 0.15
"""Share of tokens that BERT masks (arXiv 1810.04805, section 3.1)."""
_LEAST_MASKED = 0.01


@dataclass(frozen=True)
class StageChoice:
    """One stage, with what its options come to for these two models.

    Args:
        spec: The recipe's stage.
        terms: The weighted terms.
        corpus: What its text or rows are, and how they are cut.
        pooling: How `pooled` streams are made.
        pairing: What the method was composed for.
        teacher: The stage's teacher.
        student: The student of this stage alone; None for the recipe's.
        student_head: The head that its student needs, or None.
        teacher_head: The head that its teacher needs, or None.
        mask_tokens: Share of tokens to mask.
    """

    spec: StageSpec
    terms: list[Term]
    corpus: CorpusSettings | LabelledSettings
    pooling: str
    pairing: Pairing
    teacher: TeacherChoice
    student: StudentChoice | None
    student_head: Head | None
    teacher_head: Head | None
    mask_tokens: float

    @property
    def measures_layers(self) -> bool:
        """Whether the layer mapping depends on what the teacher does to its text."""
        return self.spec.method.get("mapping") == "contribution"

    def with_layer_cosines(self, cosines: tuple[float, ...]) -> StageChoice:
        """Compose anew for measured layers.

        Args:
            cosines: For each teacher layer the mean cosine between its input and its output.
        """
        pairing = replace(self.pairing, layer_cosines=cosines)
        return replace(self, pairing=pairing, terms=_compose(self.spec, pairing, self.spec.title))


def plan_stage(
    index: int, recipe: Recipe, teacher: TeacherChoice, student: StudentChoice, earlier: list[StageChoice]
) -> StageChoice:
    """Check a stage and work out what it does.

    Args:
        index: Which stage of the recipe.
        recipe: The recipe.
        teacher: The recipe's teacher.
        student: The recipe's student.
        earlier: The stages before it, which may teach here.

    Raises:
        LimbeckError: one line for the first contradiction, with its place in the recipe.
    """
    stage, place = recipe.stages[index], f"stages.{index}"
    taught_by = _stage_teacher(stage, place, teacher, earlier)
    try:
        own = choose_student(stage.student, taught_by) if stage.student is not None else None
    except LimbeckError as error:
        raise type(error)(f"{place}.student: {error}") from None
    learns = own or student
    corpus = stage.corpus or recipe.corpus
    assert corpus is not None
    task: Task = corpus.task.kind if corpus.task is not None else "text"
    pairing = Pairing(learns.shape, taught_by.shape, task)
    terms = _compose(stage, pairing, place)
    heads = needed_head(terms, task, "student"), needed_head(terms, task, "teacher")
    try:
        _check_heads(heads, learns, taught_by, earlier)
    except LimbeckError as error:
        raise type(error)(f"{place}: {error}") from None
    _check_training(stage, place, recipe.seed, terms)
    check_stream(corpus, stage, place)
    settings = corpus_settings(corpus, stage, taught_by)
    key = f"{place}.text.length" if stage.text.length else f"{place}.corpus.length" if stage.corpus else "corpus.length"
    for owner, shape in (("teacher", taught_by.shape), ("student", learns.shape)):
        if shape.positions is not None and settings.length > shape.positions:
            raise RecipeError(
                f"{key} {settings.length} is longer than the {owner}'s {shape.positions} positions; "
                f"use {shape.positions} or less."
            )
    for source in corpus.sources:
        check_source(source)
    return StageChoice(
        spec=stage,
        terms=terms,
        corpus=settings,
        pooling=stage.method.get("pooling", "mean"),
        pairing=pairing,
        teacher=taught_by,
        student=own,
        student_head=heads[0],
        teacher_head=heads[1],
        mask_tokens=_masked_share(stage, terms, task, place),
    )


def _stage_teacher(stage: StageSpec, place: str, teacher: TeacherChoice, earlier: list[StageChoice]) -> TeacherChoice:
    """The stage's teacher: its own, an earlier stage's student, or the recipe's."""
    if stage.teacher is None:
        return teacher
    if stage.teacher.stage is not None:
        assistant = next(choice for choice in earlier if choice.spec.title == stage.teacher.stage)
        assert assistant.student is not None
        return TeacherChoice(stage.teacher, assistant.student.config, assistant.student.shape, stage.teacher.stage)
    found = choose_teacher(stage.teacher)
    try:
        check_same_vocabulary(load_tokenizer(teacher.spec.model), load_tokenizer(stage.teacher.model))
    except ModelError:
        raise RecipeError(
            f"{place}.teacher '{stage.teacher.model}' has another vocabulary than the recipe's teacher "
            f"'{teacher.spec.model}', and a student has one; choose a teacher with the same tokenizer."
        ) from None
    return found


def _compose(stage: StageSpec, pairing: Pairing, place: str) -> list[Term]:
    method = METHODS[stage.method["name"]]
    try:
        options = method.options.model_validate({k: v for k, v in stage.method.items() if k != "name"})
    except ValidationError as error:
        raise RecipeError(f"{place}.method.{explain(error)}") from None
    if pairing.task not in method.tasks:
        raise RecipeError(
            f"{place}.method: {method.name} is made for {', '.join(method.tasks)}, not for {pairing.task}; leave out "
            "corpus.task or choose another method (`limbeck methods` lists them)."
        )
    try:
        return method.compose(options, pairing)
    except LimbeckError as error:
        raise type(error)(f"{place}.method: {error}") from None


def _check_heads(
    heads: tuple[Head | None, Head | None], student: StudentChoice, teacher: TeacherChoice, earlier: list[StageChoice]
) -> None:
    """Refuse a teacher without the head that is read, and families that have none."""
    of_student, of_teacher = heads
    if of_student is not None:
        head_class(student.config, of_student)
    if of_teacher is None:
        return
    if teacher.stage is None:
        check_has_head(teacher.title, teacher.config, of_teacher)
        return
    trained = next(choice for choice in earlier if choice.spec.title == teacher.stage).student_head
    if trained != of_teacher:
        raise RecipeError(
            f"{teacher.title} has no {of_teacher} head, since that stage reads no scores; give that stage a method "
            "that trains it, or take another teacher."
        )


def _check_training(stage: StageSpec, place: str, seed: int, terms: list[Term]) -> None:
    training = check_training(stage.training, f"{place}.training")
    try:
        build_arguments(training, output="", seed=seed, evaluates=True)
    except RecipeError as error:
        raise RecipeError(f"{place}.{error}") from None
    coupled = [term.name for term in terms if term.batch_coupled]
    if coupled and training.get("gradient_accumulation_steps", 1) > 1:
        raise RecipeError(
            f"{place}: the term '{coupled[0]}' relates the samples of a batch, so it cannot be accumulated over "
            "several; set training.gradient_accumulation_steps to 1 and raise per_device_train_batch_size, or give "
            "the term the weight 0."
        )
    if coupled and stage.guard.on_out_of_memory == "split":
        raise RecipeError(
            f"{place}: the term '{coupled[0]}' relates the samples of a batch, so a batch that does not fit cannot be "
            "run in pieces; leave out guard.on_out_of_memory and lower per_device_train_batch_size, or give the term "
            "the weight 0."
        )


def _masked_share(stage: StageSpec, terms: list[Term], task: Task, place: str) -> float:
    """Share of tokens to mask: what the stage says, else BERT's where a term reads masked positions."""
    asked = stage.augment.mask_tokens
    reads_masked = task == "text" and any(term.unit == "label" for term in terms)
    if task != "text":
        if asked:
            raise RecipeError(f"{place}.augment.mask_tokens is for text without labels; leave it out.")
        if stage.augment.replace_tokens and any(term.unit == "label" or not term.teacher for term in terms):
            raise RecipeError(
                f"{place}.augment.replace_tokens changes what a row says, and a term of this method learns the row's "
                "label; leave it out, or give the hard labels the weight 0."
            )
        return 0.0
    if asked is not None and 0 < asked < _LEAST_MASKED:
        raise RecipeError(
            f"{place}.augment.mask_tokens {asked} masks next to nothing; use {_LEAST_MASKED} or more (BERT has "
            f"{MASKED_SHARE}), or 0."
        )
    if asked is None:
        return MASKED_SHARE if reads_masked else 0.0
    if asked == 0 and reads_masked:
        raise RecipeError(
            f"{place}.augment.mask_tokens is 0, but this method reads masked positions; leave it out, or choose "
            "positions: all and a weight of 0 for the hard labels."
        )
    return asked
