"""Starting a student from its teacher: layers, embeddings, and the record of what came from where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from limbeck.errors import ModelError
from limbeck.models.building import build_student
from limbeck.models.embedding_transfer import (
    Bases,
    embedding_mode,
    find_bases,
    redraw_embeddings,
    transfer_embeddings,
)
from limbeck.models.families import Shape, base_model, block_list, blocks, family_of, shape_of
from limbeck.models.layer_selection import LayerStrategy, selected_layers
from limbeck.models.narrowing import check_narrowing, narrow_block
from limbeck.models.transfer import Transfer


@dataclass(frozen=True)
class InitialisationReport:
    """What a student started from, for the run's record. Tensor names are those in the base model.

    Attributes:
        layers: The teacher layer of each student layer, counted from 1; empty for random layers.
        embeddings: `"copied"`, `"projected"` or `"random"`.
        explained: Share of the variance of the teacher's word embeddings that was kept; None unless
            projected.
        copied: Tensors that equal the teacher's.
        projected: Tensors worked out from the teacher's.
        reset: Norm tensors set to scale 1 and shift 0.
        random: Tensors drawn at random.
    """

    layers: tuple[int, ...]
    embeddings: str
    explained: float | None
    copied: tuple[str, ...]
    projected: tuple[str, ...]
    reset: tuple[str, ...]
    random: tuple[str, ...]

    def summary(self) -> str:
        """Return one sentence for people."""
        layers = f"teacher layers {', '.join(map(str, self.layers))}" if self.layers else "random layers"
        kept = f" (keeping {self.explained:.0%} of their variance)" if self.explained is not None else ""
        return f"Starts from {layers} and {self.embeddings} embeddings{kept}."

    def as_record(self) -> dict[str, Any]:
        """Return plain lists, strings and numbers for `run.json`."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


@dataclass(frozen=True)
class InitialisationPlan:
    """What `initialise_student` will do, known from the two shapes alone.

    Attributes:
        layers: The teacher layer of each student layer, counted from 1; empty for random layers.
        embeddings: `"copied"`, `"projected"` or `"random"`.
        exact: Whether blocks have equal numbers, so that they are copied bit for bit.
    """

    layers: tuple[int, ...]
    embeddings: str
    exact: bool


def plan_initialisation(
    student: Shape, teacher: Shape, *, layers: LayerStrategy = "random", embeddings: str = "auto"
) -> InitialisationPlan:
    """Check an initialisation without loading any weight.

    Args:
        student: The student's shape.
        teacher: The teacher's shape.
        layers: See `selected_layers`.
        embeddings: See `embedding_mode`.

    Raises:
        ModelError: for another family, vocabulary or strategy than can be matched, a student that is wider
            than what it should copy, or heads that would be cut.
    """
    sources = selected_layers(layers, student.layers, teacher.layers)
    mode = embedding_mode(embeddings, student, teacher)
    if sources or mode != "random":
        _check_family(student, teacher)
    if mode != "random" and student.vocabulary != teacher.vocabulary:
        raise ModelError(
            f"The student's vocabulary has {student.vocabulary} tokens and the teacher's "
            f"{teacher.vocabulary}; use the teacher's tokenizer, or set embeddings: random."
        )
    exact = _block_numbers(student) == _block_numbers(teacher)
    if sources and not exact:
        check_narrowing(student, teacher)
    return InitialisationPlan(tuple(sources), mode, exact)


@torch.no_grad()
def initialise_student(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    *,
    layers: LayerStrategy = "random",
    embeddings: str = "auto",
    seed: int,
) -> InitialisationReport:
    """Set the student's weights from the teacher's, in place.

    At equal widths tensors are exact copies. In a narrower student the word, position and type embeddings are
    projected onto the leading principal directions of the teacher's word embeddings, and a block's maps
    follow by their role (see `narrow_block`). A task head and a pooler are left alone. The teacher is not
    changed.

    Args:
        student: From `build_student`; with or without a head.
        teacher: Whole: before any of its blocks is dropped.
        layers: See `selected_layers`.
        embeddings: `"copied"` (equal widths), `"projected"` (narrower), `"random"`, or `"auto"`: whichever of
            these the widths allow.
        seed: Decides what is random: exactly what `build_student(student.config, seed=seed)` draws.

    Returns:
        What every tensor started from.

    Raises:
        ModelError: see `plan_initialisation`.
    """
    ours, theirs = shape_of(student.config), shape_of(teacher.config)
    plan = plan_initialisation(ours, theirs, layers=layers, embeddings=embeddings)
    target, source = base_model(student), base_model(teacher)
    narrowing = plan.embeddings == "projected" or (plan.layers and not plan.exact)
    bases = find_bases(source, ours, theirs) if narrowing else Bases()
    all_taught = plan.layers and plan.embeddings != "random"
    fresh = None if all_taught else build_student(student.config, seed=seed)

    transfer = Transfer()
    if plan.embeddings != "random":
        transfer_embeddings(transfer, target, source, bases)
    elif fresh is not None:
        redraw_embeddings(transfer, target, fresh)
    if plan.layers:
        _transfer_blocks(transfer, target, source, plan, bases)
    elif fresh is not None:
        path = family_of(target.config).blocks
        transfer.redraw(path, target.get_submodule(path), fresh.get_submodule(path))
        for path in _around_blocks(target):
            transfer.redraw(path, target.get_submodule(path), fresh.get_submodule(path))
    return InitialisationReport(
        layers=plan.layers,
        embeddings=plan.embeddings,
        explained=bases.explained if plan.embeddings == "projected" else None,
        copied=tuple(transfer.copied),
        projected=tuple(transfer.projected),
        reset=tuple(transfer.reset),
        random=tuple(transfer.random),
    )


def _transfer_blocks(
    transfer: Transfer,
    target: PreTrainedModel,
    source: PreTrainedModel,
    plan: InitialisationPlan,
    bases: Bases,
) -> None:
    family, theirs = family_of(target.config), blocks(source)
    # A shared block serves several layers; the first of them decides what it starts from.
    first_layer = {block: index for index, block in reversed(list(enumerate(blocks(target))))}
    shapes = (shape_of(target.config), shape_of(source.config))
    for position, block in enumerate(block_list(target)):
        name, taught_by = f"{family.blocks}.{position}", theirs[plan.layers[first_layer[block]] - 1]
        if plan.exact:
            transfer.copy(name, block, taught_by)
        else:
            narrow_block(transfer, name, block, taught_by, shapes, bases.hidden)
    for path in _around_blocks(target):
        transfer.copy(path, target.get_submodule(path), source.get_submodule(path))


def _around_blocks(model: PreTrainedModel) -> list[str]:
    """Return the modules beside the blocks that go with them: the final norm, shared relative positions."""
    family = family_of(model.config)
    return [*([family.final_norm] if family.final_norm else []), *family.extras]


def _block_numbers(shape: Shape) -> tuple[int, ...]:
    """Return what decides the tensors of a block, and where its heads lie in them."""
    return (shape.hidden, shape.heads, shape.key_value_heads, shape.head_size, shape.ffn)


def _check_family(student: Shape, teacher: Shape) -> None:
    # ELECTRA's encoder is BERT's with a map after the embeddings.
    if student.model_type == teacher.model_type or (student.model_type, teacher.model_type) == (
        "electra",
        "bert",
    ):
        return
    raise ModelError(
        f"A {student.model_type} student cannot start from a {teacher.model_type} teacher, whose tensors are "
        "laid out differently; set layers: random and embeddings: random, or derive the student from the "
        "teacher."
    )
