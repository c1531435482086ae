"""What decides a training step to be measured: a request, checked against configurations, and its random batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from limbeck.benchmark import limits
from limbeck.benchmark.model import read_config
from limbeck.core import IGNORED_LABEL
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
        vocabulary: Words of both models; None is the teacher's.
        batch: Samples of a micro-batch; None is the recipe's, or 8.
        length: Tokens of the longest sample; None is the recipe's, or 128.
        ragged: Draw lengths from [L/2, L] instead of L for all.
        dtype: `"auto"` (as training chooses), `"float32"` or `"bfloat16"`.
        device: As in `choose_device`.
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
        teacher_head: The head whose scores the teacher gives, or None.
        student_head: The same of the student.
        sentence_heads: What makes sentence vectors of the student and of the teacher.
        labels: What labels a batch has, as `PadCollator` names it.
        masked: Share of tokens with a label, where labels are tokens.
        freeze_embeddings: Keep the student's embeddings as they are.
        training: The training arguments, as a recipe gives them.
        teacher_dtype: Of the teacher's weights.
        length: Tokens of the longest sample.
        ragged: Draw lengths from [L/2, L].
    """

    teacher: PreTrainedConfig
    student: PreTrainedConfig
    terms: Sequence[Term]
    method: str
    teacher_head: Head | None
    student_head: Head | None
    sentence_heads: tuple[SentenceHead, SentenceHead]
    labels: LabelKind
    masked: float
    freeze_embeddings: bool
    training: dict[str, Any] = field(hash=False)
    teacher_dtype: torch.dtype
    length: int
    ragged: bool

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        """Shapes of student and teacher."""
        return shape_of(self.student), shape_of(self.teacher)

    @property
    def batch(self) -> int:
        """Samples of a micro-batch."""
        return int(self.training.get("per_device_train_batch_size", DEFAULTS["per_device_train_batch_size"]))

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an optimizer step."""
        return int(self.training.get("gradient_accumulation_steps", 1))


def set_up_step(request: StepRequest) -> StepSetup:
    """Check a request; no weight and no text is read.

    Raises:
        LimbeckError: for everything that a recipe's check refuses; an unknown stage, dtype or device; a length beyond
            the models' positions; a batch that cannot fit into memory.
    """
    device = choose_device(request.device)
    if device.index:
        raise RecipeError(
            f"Steps run on the first visible device, not on '{request.device}'; choose it with CUDA_VISIBLE_DEVICES."
        )
    setup = _from_shapes(request) if request.recipe is None else _from_recipe(request, request.recipe)
    student, teacher = setup.shapes
    _check_positions("student", student, setup.length)
    _check_positions("teacher", teacher, setup.length)

    tokens = setup.batch * setup.length
    if setup.ragged:
        tokens //= 2  # Every length is at least half of the longest.
    needed = limits.least_training_bytes(student, tokens, torch.bfloat16.itemsize)
    limits.check_memory(f"--batch {setup.batch} and --length {setup.length}", needed, device)
    return setup


def _check_positions(owner: str, shape: Shape, length: int) -> None:
    if shape.positions is not None and length > shape.positions:
        raise RecipeError(
            f"--length {length} is longer than the {owner}'s {shape.positions} positions; use {shape.positions} or "
            "less."
        )


def _from_recipe(request: StepRequest, recipe: str) -> StepSetup:
    """Set up a stage of a recipe as its run would."""
    plan = plan_run(load_recipe(recipe, request.overrides))
    stage = plan.stages[_index(request.stage, len(plan.stages), "The recipe")]
    student = stage.student or plan.student_plan
    config = type(student.config)(**student.config.to_dict())
    if student.spec.dropout is not None:
        for name in family_of(config).fields.dropouts:
            setattr(config, name, student.spec.dropout)

    training = _training_arguments(request, stage.spec.training)
    return StepSetup(
        teacher=stage.teacher.config,
        student=config,
        terms=stage.terms,
        method=str(stage.spec.method["name"]),
        teacher_head=stage.teacher_head,
        student_head=stage.student_head,
        sentence_heads=stage.sentence_heads(),
        labels=label_kind(stage),
        masked=stage.mask_tokens,
        freeze_embeddings="embeddings" in stage.spec.freeze,
        training=training,
        teacher_dtype=_teacher_dtype(request, training, stage.teacher.spec.dtype),
        length=request.length or stage.corpus.length,
        ragged=request.ragged,
    )


def _from_shapes(request: StepRequest) -> StepSetup:
    """Set up a stage of a method with its own defaults, on models of these shapes."""
    stages = stages_of(METHODS[request.method])
    stage = stages[_index(request.stage, len(stages), f"The method {request.method}")]
    method, options = read_method(stage)
    length = request.length or 128
    if names_shape(request.teacher):
        limits.check_length("--length", [length])
    teacher = read_config(request.teacher, length)
    if request.vocabulary is not None:
        teacher.vocab_size = request.vocabulary
    student = student_config(parse_blueprint(request.student, shape_of(teacher)), teacher)

    # Of a method for several tasks the first stands for all.
    task = method.tasks[0]
    if kind_of(task).has_value:
        teacher.num_labels = student.num_labels = 1
    pairing = Pairing(shape_of(student), facts_of_shape(shape_of(teacher)), task)
    terms = method.compose(options, pairing)
    student_head = needed_head(terms, pairing, "student")
    teacher_head = needed_head(terms, pairing, "teacher")
    # Both families have a class with the head, or this refuses them.
    model_class(student, student_head)
    model_class(teacher, teacher_head)

    masked = 0.0
    labels = pairing.label
    reads_masked_tokens = any(term.unit == "label" for term in terms)
    if reads_masked_tokens and not pairing.has_labels:
        masked = MASKED_SHARE
        labels = "token"
    pooling = SentenceHead(getattr(options, "pooling", None) or "mean")
    training = _training_arguments(request, {"per_device_train_batch_size": 8})
    return StepSetup(
        teacher=teacher,
        student=student,
        terms=terms,
        method=request.method,
        teacher_head=teacher_head,
        student_head=student_head,
        sentence_heads=(pooling, pooling),
        labels=labels,
        masked=masked,
        freeze_embeddings=False,
        training=training,
        teacher_dtype=_teacher_dtype(request, training, "auto"),
        length=length,
        ragged=request.ragged,
    )


def _training_arguments(request: StepRequest, training: dict[str, Any]) -> dict[str, Any]:
    """Lay the request over the training arguments of a recipe.

    Raises:
        RecipeError: for a format that training does not have.
    """
    arguments = {**training, "report_to": "none"}
    if request.batch is not None:
        arguments["per_device_train_batch_size"] = request.batch
    if choose_device(request.device).type == "cpu" and torch.accelerator.is_available():
        arguments["use_cpu"] = True
        arguments.setdefault("bf16", False)  # The format that is fast on the accelerator may not be fast here.
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
    """Choose the format of the teacher's weights as a run does; a format that was asked for holds for both models."""
    if request.dtype == "auto" and planned != "auto":
        return as_dtype(planned)
    is_in_bf16 = training.get("bf16", bf16_is_fast() and not training.get("fp16"))
    return torch.bfloat16 if is_in_bf16 else torch.float32


def _index(stage: int, stages: int, owner: str) -> int:
    if not 1 <= stage <= stages:
        raise RecipeError(f"{owner} has {counted(stages, 'stage')}, but --stage is {stage}; count from 1.")
    return stage - 1


def make_batch(setup: StepSetup, index: int = 0) -> dict[str, Tensor]:
    """Draw a batch of random tokens as a collator would give it, padded on the right; on the CPU.

    Args:
        setup: The step that reads it.
        index: The number of the micro-batch in the step.
    """
    generator = torch.Generator().manual_seed(index)
    rows = setup.batch
    longest = setup.length
    lengths = torch.full((rows, 1), longest)
    if setup.ragged:
        lengths = torch.randint(max(1, longest // 2), longest + 1, (rows, 1), generator=generator)
        longest = int(lengths.max())
    valid = torch.arange(longest) < lengths
    vocabulary = min(shape.vocabulary for shape in setup.shapes)
    ids = torch.randint(0, vocabulary, (rows, longest), generator=generator)
    padding = int(getattr(setup.student, "pad_token_id", None) or 0)
    batch = {"input_ids": ids.masked_fill(~valid, padding), "attention_mask": valid.long()}
    if setup.labels == "relevance":
        batch["groups"] = torch.arange(rows) // 2
    elif setup.labels != "none":
        batch["labels"] = _random_labels(setup, ids, valid, generator)
    return batch


def _random_labels(setup: StepSetup, ids: Tensor, valid: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the labels of a batch.

    Args:
        setup: The step that reads them.
        ids: Tokens [rows, length].
        valid: Tokens that are no padding [rows, length].
        generator: Of the random numbers.
    """
    rows, length = ids.shape
    classes = int(setup.teacher.num_labels)
    if setup.labels == "token" and setup.masked:
        chosen = valid & (torch.rand(rows, length, generator=generator) < setup.masked)
        chosen[0, 0] = True
        return ids.masked_fill(~chosen, IGNORED_LABEL)
    if setup.labels == "token":  # Tagged words, of a token each.
        tags = torch.randint(0, classes, (rows, length), generator=generator)
        return tags.masked_fill(~valid, IGNORED_LABEL)
    if setup.labels == "class":
        return torch.randint(0, classes, (rows,), generator=generator)
    if setup.labels == "classes":
        return torch.randint(0, 2, (rows, classes), generator=generator).float()
    if setup.labels == "value":
        return torch.rand(rows, generator=generator)
    # The first and the last token of an answer, in order.
    lengths = valid.sum(1, keepdim=True)
    return (torch.rand(rows, 2, generator=generator) * lengths).long().sort(-1).values
