"""The start of a student's layers: copies of the source's, whole or narrowed by the role of each linear map.

The *source* is the model that the student starts from, usually its teacher. A *block* is the module of a layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limbeck.errors import ModelError
from limbeck.models.block_narrowing import Narrowing, narrow_block
from limbeck.models.families import Shape, base_model, block_list, blocks, family_of, same_blocks, shape_of
from limbeck.models.family_table import row_of
from limbeck.models.layer_selection import selected_layers
from limbeck.models.start_step import Start, StartSettings, StartStep

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Layers(StartStep):
    """The blocks, and the modules beside them that go with them."""

    name = "layers"
    place = "layers"

    def check(self, student: Shape, source: Shape, settings: StartSettings) -> None:
        """Refuse layers that cannot be narrowed."""
        layers = selected_layers(settings.layers, student.layers, source.layers)
        if layers and not same_blocks(student, source):
            check_narrowing(student, source)

    def apply(self, start: Start) -> None:
        """Copy or narrow the chosen layers of the source; without chosen layers, draw all of them."""
        student = base_model(start.student)
        source = base_model(start.source)
        paths_around = _paths_around_blocks(student)
        if start.layers:
            _transfer_blocks(start, student, source)
            start.transfer.take(paths_around, student, source, "copied")
        else:
            paths = [family_of(student.config).blocks, *paths_around]
            start.transfer.take(paths, student, start.fresh, "random")


def _transfer_blocks(start: Start, student: PreTrainedModel, source: PreTrainedModel) -> None:
    """Copy or narrow every block of the student from the source's layer that it starts from."""
    path_of_blocks = family_of(student.config).blocks
    student_shape = shape_of(student.config)
    source_shape = shape_of(source.config)
    are_copies = same_blocks(student_shape, source_shape)
    narrowing = Narrowing(student=student_shape, source=source_shape, basis=start.bases.hidden)
    measured = start.bases.measured
    source_blocks = blocks(source)
    # A block that serves several layers (ALBERT) starts from the source layer of the first of them.
    source_layer_of: dict[object, int] = {}
    for block, source_layer in zip(blocks(student), start.layers, strict=True):
        if block not in source_layer_of:
            source_layer_of[block] = source_layer

    for position, block in enumerate(block_list(student)):
        name = f"{path_of_blocks}.{position}"
        layer = source_layer_of[block]
        source_block = source_blocks[layer - 1]
        if are_copies:
            start.transfer.write(name, block, source_block.state_dict(), "copied")
        else:
            activations = None if measured is None else measured[layer]
            narrow_block(start.transfer, name, block, source_block, narrowing, activations)


def _paths_around_blocks(model: PreTrainedModel) -> list[str]:
    """The paths of the modules beside the blocks that go with them: the final norm, shared relative positions."""
    family = family_of(model.config)
    paths = list(family.extras)
    if family.final_norm:
        paths.insert(0, family.final_norm)
    return paths


_COMPARED_NUMBERS = {"hidden": "hidden width", "heads": "heads", "ffn": "FFN width"}
"""Options of a student's shape that must not exceed the source's, with their words."""


def check_narrowing(student: Shape, source: Shape) -> None:
    """Refuse to copy blocks between shapes that cannot be matched head by head.

    Raises:
        ModelError: naming the numbers, the reason and what would work.
    """
    way_out = "or set layers: random"
    family = row_of(student.model_type)
    if family.roles is None:
        raise ModelError(
            f"Blocks of {student.model_type} can only be copied between equal shapes, because "
            f"{family.roles_missing}; the student is {student}, the teacher {source}: give the student the "
            f"teacher's shape, {way_out}."
        )
    for option, words in _COMPARED_NUMBERS.items():
        student_number = getattr(student, option)
        source_number = getattr(source, option)
        if student_number > source_number:
            raise ModelError(
                f"The student's {words} {student_number} exceeds the teacher's {source_number}, so its layers cannot "
                f"be copied; set {option} to at most {source_number}, {way_out}."
            )
    if student.head_size > source.head_size:
        # The advice is as many heads as the source has. The width is then the largest one up to the student's that
        # these heads divide, or at least one number for each head.
        change = f"heads to {source.heads}"
        width = student.hidden - student.hidden % source.heads
        if width == 0:
            width = source.heads
        if width != student.hidden:
            change = f"hidden to {width} and {change}"
        raise ModelError(
            f"The student's heads are {student.head_size} wide and the teacher's {source.head_size}, so a "
            f"copy would cut across heads; set {change}, {way_out}."
        )
    if source.embedding < student.hidden < source.hidden:
        raise ModelError(
            f"The teacher's word embeddings span only {source.embedding} directions, too few to tell which "
            f"{student.hidden} of its {source.hidden} to keep; set hidden to {source.hidden}, {way_out}."
        )
