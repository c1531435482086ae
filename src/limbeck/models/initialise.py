"""Starting a student from its teacher: layers, embeddings, and the record of every tensor's origin."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from limbeck.core.records import Initialisation
from limbeck.errors import ModelError
from limbeck.models import narrowing, students
from limbeck.models.families import Shape, base_model, block_list, blocks, family_of, shape_of
from limbeck.models.layer_selection import LayerStrategy, selected_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NarrowBy: TypeAlias = Literal["weights", "activations"]
# The numbers that decide the tensors of a block, and the places of its heads in them.
_BLOCK_NUMBERS = ("hidden", "heads", "key_value_heads", "head_size", "ffn")


@dataclass(frozen=True)
class InitialisationPlan:
    """The initialisation of a student, known from the two shapes alone.

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
            than its source, or heads that would be cut.
    """
    sources = selected_layers(layers, student.layers, teacher.layers)
    mode = narrowing.embedding_mode(embeddings, student, teacher)
    # ELECTRA's encoder is BERT's with a map after the embeddings.
    types = (student.model_type, teacher.model_type)
    if (sources or mode != "random") and student.model_type != teacher.model_type and types != ("electra", "bert"):
        raise ModelError(
            f"A {student.model_type} student cannot start from a {teacher.model_type} teacher, whose tensors are "
            "laid out differently; set layers: random and embeddings: random, or derive the student from the "
            "teacher."
        )
    if mode != "random" and student.vocabulary != teacher.vocabulary:
        raise ModelError(
            f"The student's vocabulary has {student.vocabulary} tokens and the teacher's "
            f"{teacher.vocabulary}; use the teacher's tokenizer, or set embeddings: random."
        )
    exact = all(getattr(student, number) == getattr(teacher, number) for number in _BLOCK_NUMBERS)
    if sources and not exact:
        narrowing.check_narrowing(student, teacher)
    return InitialisationPlan(tuple(sources), mode, exact)


@torch.no_grad()
def initialise_student(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    *,
    layers: LayerStrategy = "random",
    embeddings: str = "auto",
    narrow_by: NarrowBy = "weights",
    seed: int,
) -> Initialisation:
    """Set the student's weights from the teacher's, in place.

    At equal widths tensors are exact copies. In a narrower student the word, position and type embeddings are
    projected onto the leading principal directions of the teacher's word embeddings, or of its hidden states, and a
    block's maps follow by their role (see `narrow_block`). A task head and a pooler are left alone. The teacher is
    not changed.

    Args:
        student: From `build_student`; with or without a head.
        teacher: Whole: before any of its blocks is dropped.
        layers: See `selected_layers`.
        embeddings: `"copied"` (equal widths), `"projected"` (narrower), `"random"`, or `"auto"`: whichever of
            these the widths allow.
        narrow_by: What decides which directions, heads and neurons copied layers keep in a narrower student: the
            teacher's `"weights"`, or its `"activations"` on random tokens, which norms are then scaled and shifted
            for too. The latter costs one forward pass over 2,048 tokens.
        seed: Of the random tokens, and of the random tensors, which are exactly those that
            `build_student(student.config, seed=seed)` draws.

    Returns:
        Its start for the run's record, with the origin of every tensor: the names of those that are `copied`,
        `projected`, `reset` (norms, to scale 1 and shift 0) and `random`.

    Raises:
        ModelError: see `plan_initialisation`.
    """
    ours, theirs = shape_of(student.config), shape_of(teacher.config)
    plan = plan_initialisation(ours, theirs, layers=layers, embeddings=embeddings)
    target, source = base_model(student), base_model(teacher)
    bases = find_bases(student, teacher, layers=layers, embeddings=embeddings, narrow_by=narrow_by, seed=seed)
    all_taught = plan.layers and plan.embeddings != "random"
    fresh = None if all_taught else students.build_student(student.config, seed=seed)

    transfer = narrowing.Transfer()
    if plan.embeddings != "random":
        narrowing.transfer_embeddings(transfer, target, source, bases)
    elif fresh is not None:
        transfer.take(narrowing.embedding_paths(target), target, fresh, transfer.random)
    if plan.layers:
        _transfer_blocks(transfer, target, source, plan, bases)
    elif fresh is not None:
        transfer.take([family_of(target.config).blocks, *_around_blocks(target)], target, fresh, transfer.random)
    explained = bases.explained if plan.embeddings == "projected" else None
    started = f"teacher layers {', '.join(map(str, plan.layers))}" if plan.layers else "random layers"
    by_states = bases.measured is not None and bases.hidden is not None
    kept = f" (keeping {explained:.0%} of their variance)" if explained is not None and not by_states else ""
    if bases.measured is not None:
        share = f" (keeping {bases.explained:.0%} of the hidden states)" if by_states else ""
        kept += f", narrowed by activations{share}"
    summary = f"Starts from {started} and {plan.embeddings} embeddings{kept}."
    chosen = {"layers": list(plan.layers), "embeddings": plan.embeddings, "explained": explained}
    return Initialisation.read({"summary": summary, **chosen, **asdict(transfer)})


def find_bases(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    *,
    layers: LayerStrategy = "random",
    embeddings: str = "auto",
    narrow_by: NarrowBy = "weights",
    seed: int = 0,
) -> narrowing.Bases:
    """Return the directions that a narrower student keeps, see `initialise_student`; none at equal widths.

    Args:
        student: For its shape.
        teacher: Whole.
        layers: See `selected_layers`.
        embeddings: See `embedding_mode`.
        narrow_by: What decides.
        seed: Of the random tokens.
    """
    ours, theirs = shape_of(student.config), shape_of(teacher.config)
    plan = plan_initialisation(ours, theirs, layers=layers, embeddings=embeddings)
    copies_narrower = bool(plan.layers) and not plan.exact
    if narrow_by == "activations" and copies_narrower:
        return narrowing.find_active_bases(base_model(teacher), ours, theirs, plan.layers, seed)
    if plan.embeddings == "projected" or copies_narrower:
        return narrowing.find_bases(base_model(teacher), ours, theirs)
    return narrowing.Bases()


def _transfer_blocks(
    transfer: narrowing.Transfer,
    target: PreTrainedModel,
    source: PreTrainedModel,
    plan: InitialisationPlan,
    bases: narrowing.Bases,
) -> None:
    family, theirs = family_of(target.config), blocks(source)
    # A shared block serves several layers; it starts from the source of the first.
    first_layer = {block: index for index, block in reversed(list(enumerate(blocks(target))))}
    shapes = (shape_of(target.config), shape_of(source.config))
    for position, block in enumerate(block_list(target)):
        layer = plan.layers[first_layer[block]]
        name, taught_by = f"{family.blocks}.{position}", theirs[layer - 1]
        if plan.exact:
            transfer.write(name, block, taught_by.state_dict(), transfer.copied)
        else:
            measured = None if bases.measured is None else bases.measured[layer]
            narrowing.narrow_block(transfer, name, block, taught_by, shapes, bases.hidden, measured)
    transfer.take(_around_blocks(target), target, source, transfer.copied)


def _around_blocks(model: PreTrainedModel) -> list[str]:
    """Return the modules beside the blocks that go with them: the final norm, shared relative positions."""
    family = family_of(model.config)
    return [*([family.final_norm] if family.final_norm else []), *family.extras]
