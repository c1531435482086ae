"""What a training step is measured for: from a recipe's stage, or from two shapes and a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from limbeck.benchmark.limits import check_length, check_memory, least_training_bytes
from limbeck.benchmark.models import names_shape, read_config
from limbeck.core.machine import choose_device
from limbeck.corpus import IGNORED_LABEL, LabelKind
from limbeck.errors import RecipeError
from limbeck.methods.composition import Pairing, Task, Term
from limbeck.methods.registry import METHODS
from limbeck.models.blueprint import parse_blueprint, student_config
from limbeck.models.families import Shape, family_of, shape_of
from limbeck.models.heads import Head, head_class
from limbeck.models.loading import as_dtype
from limbeck.recipe.load import load_recipe
from limbeck.recipe.method_recipe import stages_of
from limbeck.recipe.plan import MASKED_SHARE, needed_head, plan_run
from limbeck.recipe.training_arguments import DEFAULTS, bf16_is_fast
from limbeck.training.run import label_kind

_LABELS: dict[Task, LabelKind] = {"classification": "class", "regression": "value", "question_answering": "span"}


@dataclass(frozen=True)
class StepRequest:
    """What is asked for; every field is fit for JSON.

    Attributes:
        recipe: Path of a recipe; without one `teacher`, `student` and `method` count.
        overrides: `path=value` each, for the recipe.
        stage: Which stage of the recipe or the method, from 1.
        teacher: A shape such as `"12x768"` (of a BERT), or a saved model, of which the configuration alone is read.
        student: A shape.
        method: A method, with its own defaults.
        batch: Samples of a micro-batch; None is the recipe's, or 8.
        length: Tokens of the longest sample; None is the recipe's, or 128.
        ragged: Draw lengths from [L/2, L] instead of L for all.
        dtype: `"auto"` (as training chooses), `"float32"` or `"bfloat16"`.
        device: As in `choose_device`.
        seed: Of weights and tokens.
    """

    recipe: str | None = None
    overrides: Sequence[str] = ()
    stage: int = 1
    teacher: str = "12x768"
    student: str = "6x384"
    method: str = "minilmv2"
    batch: int | None = None
    length: int | None = None
    ragged: bool = False
    dtype: str = "auto"
    device: str = "auto"
    seed: int = 0


@dataclass(frozen=True)
class StepSetup:
    """A request, checked against configurations: everything that decides what a step does.

    Attributes:
        teacher: Configuration of the teacher.
        student: Configuration of the student, dropout included.
        terms: What is distilled.
        method: Name of the method.
        teacher_head: The head whose scores the teacher gives, or None.
        student_head: The same of the student.
        pooling: How `pooled` streams are made.
        labels: What labels a batch has, as `PadCollator` names it.
        masked: Share of tokens with a label, where labels are tokens.
        freeze_embeddings: Keep the student's embeddings as they are.
        training: The training arguments, as a recipe gives them.
        teacher_dtype: Of the teacher's weights.
        length: Tokens of the longest sample.
        ragged: Draw lengths from [L/2, L].
        seed: Of weights and tokens.
    """

    teacher: PreTrainedConfig
    student: PreTrainedConfig
    terms: Sequence[Term]
    method: str
    teacher_head: Head | None
    student_head: Head | None
    pooling: str
    labels: LabelKind
    masked: float
    freeze_embeddings: bool
    training: dict[str, Any] = field(hash=False)
    teacher_dtype: torch.dtype
    length: int
    ragged: bool
    seed: int

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
    if choose_device(request.device).index:
        raise RecipeError(
            f"A step is taken on the first device that is visible, not on '{request.device}'; say which that is with "
            "CUDA_VISIBLE_DEVICES."
        )
    setup = _from_recipe(request) if request.recipe is not None else _from_shapes(request)
    for owner, shape in zip(("student", "teacher"), setup.shapes, strict=True):
        if shape.positions is not None and setup.length > shape.positions:
            raise RecipeError(
                f"--length {setup.length} is longer than the {owner}'s {shape.positions} positions; use "
                f"{shape.positions} or less."
            )
    tokens = setup.batch * setup.length // (2 if setup.ragged else 1)
    needed = least_training_bytes(setup.shapes[0], tokens, torch.bfloat16.itemsize)
    check_memory(f"--batch {setup.batch} and --length {setup.length}", needed, choose_device(request.device))
    return setup


def _from_recipe(request: StepRequest) -> StepSetup:
    assert request.recipe is not None
    plan = plan_run(load_recipe(request.recipe, request.overrides))
    choice = plan.stages[_index(request.stage, len(plan.stages), "The recipe")]
    student = choice.student or plan.student_choice
    config = type(student.config)(**student.config.to_dict())
    if student.spec.dropout is not None:
        for name in family_of(config).fields.dropouts:
            setattr(config, name, student.spec.dropout)
    training = _training(request, choice.spec.training)
    return StepSetup(
        teacher=choice.teacher.config,
        student=config,
        terms=choice.terms,
        method=str(choice.spec.method["name"]),
        teacher_head=choice.teacher_head,
        student_head=choice.student_head,
        pooling=choice.pooling,
        labels=label_kind(choice),
        masked=choice.mask_tokens,
        freeze_embeddings="embeddings" in choice.spec.freeze,
        training=training,
        teacher_dtype=_teacher_dtype(request, training, choice.teacher.spec.dtype),
        length=request.length or choice.corpus.length,
        ragged=request.ragged,
        seed=request.seed,
    )


def _from_shapes(request: StepRequest) -> StepSetup:
    method = METHODS[request.method]
    stages = stages_of(method)
    stage = stages[_index(request.stage, len(stages), f"The method {request.method}")]
    part = METHODS[stage["name"]]
    length = request.length or 128
    if names_shape(request.teacher):
        check_length("--length", [length])
    teacher = read_config(request.teacher, length)
    student = student_config(parse_blueprint(request.student), teacher)
    task = part.tasks[0]
    if task == "regression":
        teacher.num_labels = student.num_labels = 1
    options = part.options(**{key: value for key, value in stage.items() if key != "name"})
    terms = part.compose(options, Pairing(shape_of(student), shape_of(teacher), task))
    heads = needed_head(terms, task, "student"), needed_head(terms, task, "teacher")
    for config, head in zip((student, teacher), heads, strict=True):
        if head is not None:
            head_class(config, head)
    masked = MASKED_SHARE if task == "text" and any(term.unit == "label" for term in terms) else 0.0
    training = _training(request, {"per_device_train_batch_size": 8})
    return StepSetup(
        teacher=teacher,
        student=student,
        terms=terms,
        method=request.method,
        teacher_head=heads[1],
        student_head=heads[0],
        pooling=str(getattr(options, "pooling", "mean")),
        labels=_LABELS.get(task, "token" if masked else "none"),
        masked=masked,
        freeze_embeddings=False,
        training=training,
        teacher_dtype=_teacher_dtype(request, training, "auto"),
        length=length,
        ragged=request.ragged,
        seed=request.seed,
    )


def make_batch(setup: StepSetup, index: int = 0) -> dict[str, Tensor]:
    """Draw a batch of random tokens as a collator would give it, padded on the right; on the CPU.

    Args:
        setup: What for.
        index: Which of the step's micro-batches.
    """
    generator = torch.Generator().manual_seed(setup.seed + index)
    rows, length = setup.batch, setup.length
    lengths = torch.full((rows, 1), length)
    if setup.ragged:
        lengths = torch.randint(max(1, length // 2), length + 1, (rows, 1), generator=generator)
        length = int(lengths.max())
    valid = torch.arange(length) < lengths
    vocabulary = min(shape.vocabulary for shape in setup.shapes)
    ids = torch.randint(0, vocabulary, (rows, length), generator=generator)
    batch = {
        "input_ids": ids.masked_fill(~valid, int(getattr(setup.student, "pad_token_id", None) or 0)),
        "attention_mask": valid.long(),
    }
    if setup.labels == "token":
        chosen = valid & (torch.rand(rows, length, generator=generator) < setup.masked)
        chosen[0, 0] = True
        batch["labels"] = ids.masked_fill(~chosen, IGNORED_LABEL)
    elif setup.labels == "class":
        batch["labels"] = torch.randint(0, int(setup.teacher.num_labels), (rows,), generator=generator)
    elif setup.labels == "value":
        batch["labels"] = torch.rand(rows, generator=generator)
    elif setup.labels == "span":
        batch["labels"] = (torch.rand(rows, 2, generator=generator) * lengths).long().sort(-1).values
    return batch


def _training(request: StepRequest, training: dict[str, Any]) -> dict[str, Any]:
    """Lay the request over the training arguments of a recipe."""
    changed = {**training, "report_to": "none"}
    if request.batch is not None:
        changed["per_device_train_batch_size"] = request.batch
    if choose_device(request.device).type == "cpu" and torch.accelerator.is_available():
        changed["use_cpu"] = True
        changed.setdefault("bf16", False)  # What is fast on the accelerator may not be here.
    if request.dtype != "auto":
        if as_dtype(request.dtype) not in (torch.float32, torch.bfloat16):
            raise RecipeError(f"A step in {request.dtype} is not measured; give float32 or bfloat16, or leave it out.")
        changed |= {"bf16": as_dtype(request.dtype) == torch.bfloat16, "fp16": False}
    return changed


def _teacher_dtype(request: StepRequest, training: dict[str, Any], asked: str) -> torch.dtype:
    """The teacher's format as a run chooses it: bfloat16 where training uses that."""
    if request.dtype == "auto" and asked != "auto":
        return as_dtype(asked)
    low = training.get("bf16", bf16_is_fast() and not training.get("fp16"))
    return torch.bfloat16 if low else torch.float32


def _index(stage: int, stages: int, owner: str) -> int:
    if not 1 <= stage <= stages:
        raise RecipeError(f"{owner} has {stages} stage{'s'[: stages != 1]}, and --stage is {stage}; count from 1.")
    return stage - 1
