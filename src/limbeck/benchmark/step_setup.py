"""The setup of a training step to be measured: a request, checked against configurations alone.

A request names a recipe, of which one *stage* of training is measured, or a method with the shapes of two models. A
*method*, such as MiniLMv2, has one or more stages; in each, it gives the *terms* of the loss. Models are described by
configurations of transformers: no weights are loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedConfig

from limbeck.benchmark import limits
from limbeck.benchmark.model import read_config
from limbeck.core.blocks import counted
from limbeck.core.devices import bf16_is_fast, choose_device
from limbeck.core.kinds import LabelKind, kind_of
from limbeck.errors import RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import METHODS, read_method
from limbeck.methods.term import Term
from limbeck.models.blueprint import names_shape, parse_blueprint
from limbeck.models.families import Shape, family_of, shape_of
from limbeck.models.heads import Head, model_class
from limbeck.models.loading import as_dtype
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.students import student_config
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.recipe.load import load_recipe
from limbeck.recipe.method_recipe import stages_of
from limbeck.recipe.plan import plan_run
from limbeck.recipe.stage_checks import MASKED_SHARE
from limbeck.recipe.stage_terms import needed_head
from limbeck.recipe.training_fields import DEFAULTS
from limbeck.training.stage_rows import label_kind

_USUAL_LENGTH = 128
_USUAL_BATCH = 8


@dataclass(frozen=True)
class StepRequest:
    """A request to measure a step; every field is fit for JSON.

    Attributes:
        recipe: Path of a recipe; without one `teacher`, `student` and `method` count.
        overrides: `path=value` each, for the recipe.
        stage: Which stage of the recipe or the method, from 1.
        teacher: A shape such as `"12x768"` (of a BERT), or a saved model, of which the configuration alone is read.
        student: A shape.
        method: A method, with its own defaults.
        vocabulary: Size of the vocabulary of both models; None is the teacher's. It counts without a recipe only.
        batch: Samples of a micro-batch; None is the recipe's number, or 8 without a recipe.
        length: Tokens L of the longest sample; None is the recipe's length, or 128 without a recipe.
        ragged: Draw the lengths of samples from [L/2, L], instead of L for all.
        dtype: `"auto"` (as training chooses), `"float32"` or `"bfloat16"`.
        device: Name of the device, as in `choose_device`.
    """

    recipe: str | None = None
    overrides: Sequence[str] = ()
    stage: int = 1
    teacher: str = "12x768"
    student: str = "6x384"
    method: str = "minilmv2"
    vocabulary: int | None = None
    batch: int | None = None
    length: int | None = None
    ragged: bool = False
    dtype: str = "auto"
    device: str = "auto"


@dataclass(frozen=True)
class StepSetup:
    """A request, checked against configurations: everything that decides what a step does.

    Attributes:
        teacher: Configuration of the teacher.
        student: Configuration of the student, dropout included.
        terms: The terms of the stage.
        method: Name of the method.
        teacher_head: The head whose scores the loss reads of the teacher, or None if it reads no scores.
        student_head: The head whose scores the loss reads of the student, or None.
        student_sentence_head: Makes sentence vectors of the student's token vectors, for example by their mean.
        teacher_sentence_head: Makes sentence vectors of the teacher's token vectors.
        labels: The kind of the labels of a batch, as `PadCollator` names it.
        masked: Share of tokens that a masked language model has to predict; 0 where labels are no tokens.
        freeze_embeddings: Keep the student's embeddings as they are.
        training: The training arguments, as a recipe gives them.
        teacher_dtype: Number format of the teacher's weights.
        length: Tokens L of the longest sample.
        ragged: Draw the lengths of samples from [L/2, L], instead of L for all.
    """

    teacher: PreTrainedConfig
    student: PreTrainedConfig
    terms: Sequence[Term]
    method: str
    teacher_head: Head | None
    student_head: Head | None
    student_sentence_head: SentenceHead
    teacher_sentence_head: SentenceHead
    labels: LabelKind
    masked: float
    freeze_embeddings: bool
    training: dict[str, Any] = field(hash=False)
    teacher_dtype: torch.dtype
    length: int
    ragged: bool

    @property
    def student_shape(self) -> Shape:
        """The student's shape."""
        return shape_of(self.student)

    @property
    def teacher_shape(self) -> Shape:
        """The teacher's shape."""
        return shape_of(self.teacher)

    @property
    def batch(self) -> int:
        """Samples of a micro-batch."""
        return int(self.training.get("per_device_train_batch_size", DEFAULTS["per_device_train_batch_size"]))

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an optimizer step."""
        return int(self.training.get("gradient_accumulation_steps", 1))


def set_up_step(request: StepRequest) -> StepSetup:
    """Check a request, and return the setup of its step. No weights and no text are read.

    Raises:
        LimbeckError: for everything that a recipe's check refuses; an unknown stage, dtype or device; a length beyond
            the models' positions; a batch that cannot fit into memory.
    """
    device = choose_device(request.device)
    # The trainer computes on the first device, whatever the request says. An index of None or 0 is the first device.
    if device.index:
        raise RecipeError(
            f"'{request.device}' cannot be chosen, because steps always run on the first visible device; set "
            "CUDA_VISIBLE_DEVICES to make another one the first."
        )
    setup = _from_shapes(request) if request.recipe is None else _from_recipe(request, request.recipe)
    _check_positions("student", setup.student_shape, setup.length)
    _check_positions("teacher", setup.teacher_shape, setup.length)

    least_tokens = setup.batch * setup.length
    if setup.ragged:
        # Every length is at least half of the longest.
        least_tokens //= 2
    # The bound holds for float32 and for mixed precision, where most activations are in a 16-bit format.
    least_bytes = limits.least_training_bytes(setup.student_shape, least_tokens, torch.bfloat16.itemsize)
    limits.check_memory(f"--batch {setup.batch} and --length {setup.length}", least_bytes, device)
    return setup


def _check_positions(owner: str, shape: Shape, length: int) -> None:
    """Refuse texts that are longer than a model can take.

    Args:
        owner: `student` or `teacher`, for the message.
        shape: The model's shape.
        length: Tokens of the longest text.

    Raises:
        RecipeError: with both numbers.
    """
    if shape.positions is not None and length > shape.positions:
        raise RecipeError(
            f"--length {length} is longer than the {owner}'s {shape.positions} positions; use {shape.positions} or "
            "less."
        )


def _from_recipe(request: StepRequest, recipe: str) -> StepSetup:
    """Set up a stage of a recipe as its run would.

    Args:
        request: The request.
        recipe: Path of the recipe.
    """
    plan = plan_run(load_recipe(recipe, request.overrides))
    stage = plan.stages[_index(request.stage, len(plan.stages), owner="The recipe")]
    # A stage may train a student of its own, such as a teacher assistant; others train the student of the run.
    student_plan = stage.student or plan.student_plan
    # The dropout of the recipe is set on a copy of the configuration, since the plan's own one must not change. A
    # family may have several fields of dropout, for example of attention and of hidden vectors.
    student = type(student_plan.config)(**student_plan.config.to_dict())
    if student_plan.spec.dropout is not None:
        for name in family_of(student).fields.dropouts:
            setattr(student, name, student_plan.spec.dropout)

    # If the student's vocabulary was cut out of the teacher's, the teacher keeps the rows of the same tokens alone.
    teacher = stage.teacher.config
    if stage.whole_tokenizer is not None:
        teacher = type(teacher)(**teacher.to_dict())
        teacher.vocab_size = student.vocab_size

    training = _training_arguments(request, stage.spec.training)
    student_sentence_head, teacher_sentence_head = stage.sentence_heads()
    return StepSetup(
        teacher=teacher,
        student=student,
        terms=stage.terms,
        method=str(stage.spec.method["name"]),
        teacher_head=stage.teacher_head,
        student_head=stage.student_head,
        student_sentence_head=student_sentence_head,
        teacher_sentence_head=teacher_sentence_head,
        labels=label_kind(stage),
        masked=stage.mask_tokens,
        freeze_embeddings="embeddings" in stage.spec.freeze,
        training=training,
        teacher_dtype=_teacher_dtype(request, training, stage.teacher.spec.dtype),
        length=stage.corpus.length if request.length is None else request.length,
        ragged=request.ragged,
    )


def _from_shapes(request: StepRequest) -> StepSetup:
    """Set up a stage of the request's method with its own defaults, on models of the request's shapes."""
    # A method of several stages gives the settings of each; another method is a single stage.
    stages = stages_of(METHODS[request.method])
    stage = stages[_index(request.stage, len(stages), owner=f"The method {request.method}")]
    method, options = read_method(stage)
    length = _USUAL_LENGTH if request.length is None else request.length
    if names_shape(request.teacher):
        limits.check_length("--length", [length])
    teacher = read_config(request.teacher, length)
    if request.vocabulary is not None:
        teacher.vocab_size = request.vocabulary
    student = student_config(parse_blueprint(request.student, shape_of(teacher)), teacher)

    # A method may be for several kinds of tasks. The first one is measured.
    task = method.tasks[0]
    # A task whose label is a number, such as a similarity, has a head with one output.
    if kind_of(task).has_value:
        teacher.num_labels = 1
        student.num_labels = 1
    pairing = Pairing(shape_of(student), facts_of_shape(shape_of(teacher)), task)
    terms = method.compose(options, pairing)
    student_head = needed_head(terms, pairing, "student")
    teacher_head = needed_head(terms, pairing, "teacher")
    # `model_class` raises an error for a family that has no model with the head.
    model_class(student, student_head)
    model_class(teacher, teacher_head)

    # Terms over labels, of a method for text without labels, are those of a masked language model: the labels are the
    # tokens that it has to predict.
    masked = 0.0
    labels = pairing.label
    has_label_terms = any(term.unit == "label" for term in terms)
    if has_label_terms and not pairing.has_labels:
        masked = MASKED_SHARE
        labels = "token"
    # Methods on sentence vectors have an option for their pooling.
    sentence_head = SentenceHead(getattr(options, "pooling", None) or "mean")
    training = _training_arguments(request, {"per_device_train_batch_size": _USUAL_BATCH})
    return StepSetup(
        teacher=teacher,
        student=student,
        terms=terms,
        method=request.method,
        teacher_head=teacher_head,
        student_head=student_head,
        student_sentence_head=sentence_head,
        teacher_sentence_head=sentence_head,
        labels=labels,
        masked=masked,
        freeze_embeddings=False,
        training=training,
        teacher_dtype=_teacher_dtype(request, training, "auto"),
        length=length,
        ragged=request.ragged,
    )


def _training_arguments(request: StepRequest, training: dict[str, Any]) -> dict[str, Any]:
    """Return training arguments in which the request's batch size, device and format take precedence.

    Args:
        request: The request.
        training: The training arguments of the recipe, or defaults.

    Raises:
        RecipeError: for a number format that training does not have.
    """
    arguments = {**training, "report_to": "none"}
    if request.batch is not None:
        arguments["per_device_train_batch_size"] = request.batch
    # The trainer would compute on the accelerator. Without a request, its format would be chosen by the accelerator
    # too, and bfloat16 may be slow on the CPU.
    avoids_accelerator = choose_device(request.device).type == "cpu" and torch.accelerator.is_available()
    if avoids_accelerator:
        arguments["use_cpu"] = True
        arguments.setdefault("bf16", False)
    if request.dtype != "auto":
        dtype = as_dtype(request.dtype)
        if dtype not in (torch.float32, torch.bfloat16):
            raise RecipeError(
                f"Steps in {request.dtype} cannot be measured; give float32 or bfloat16, or leave --dtype out."
            )
        arguments["bf16"] = dtype == torch.bfloat16
        arguments["fp16"] = False
    return arguments


def _teacher_dtype(request: StepRequest, training: dict[str, Any], planned: str) -> torch.dtype:
    """Choose the format of the teacher's weights as a run does.

    A format in the request takes precedence over the recipe's, and holds for both models.

    Args:
        request: The request.
        training: Training arguments after `_training_arguments`, so with the request's format.
        planned: The recipe's format of the teacher's weights; "auto" where it leaves the choice to the run.
    """
    if request.dtype == "auto" and planned != "auto":
        return as_dtype(planned)
    # Then the teacher computes in bfloat16 if the student does, which is the default where that is fast.
    default_is_bf16 = bf16_is_fast() and not training.get("fp16")
    is_in_bf16 = training.get("bf16", default_is_bf16)
    return torch.bfloat16 if is_in_bf16 else torch.float32


def _index(stage: int, stages: int, owner: str) -> int:
    """Return the index of a stage, counted from 0.

    Args:
        stage: Counted from 1, as the user counts.
        stages: Number of stages.
        owner: The recipe or method that has the stages, for the message.

    Raises:
        RecipeError: if there is no stage of this number.
    """
    if not 1 <= stage <= stages:
        raise RecipeError(
            f"{owner} has {counted(stages, 'stage')}, but --stage is {stage}; give a number from 1 to {stages}."
        )
    return stage - 1
