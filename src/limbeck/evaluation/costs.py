"""Sizes of models: parameters by their place in the model, megabytes, and the work of two models by their shapes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from limbeck.errors import ModelError
from limbeck.models.inference import encoder_of

BYTES_PER_MEGABYTE = 1_000_000
_WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")
"""Patterns of the files of weights; only the first kind that is there counts."""
_EMBEDDING_NAMES = ("embed", "emb_", "wte", "wpe", "word_emb", "position_emb")
"""Beginnings of the names of embeddings, in all families."""


@dataclass(frozen=True)
class ParameterCounts:
    """Where a model's parameters are; a tensor that is shared (tied output embeddings) counts once.

    Attributes:
        embedding: Word, position and type tables, their normalisation, and a factorised table's projection.
        transformer: The blocks, shared ones once, and what belongs to them (final norm, relative position
            tables).
        pooler: The pooler over the first token, which sentence vectors do not use.
        head: Everything outside the encoder: task heads.
    """

    embedding: int
    transformer: int
    pooler: int
    head: int

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embedding + self.transformer + self.pooler + self.head


def count_parameters(model: nn.Module) -> ParameterCounts:
    """Count a model's parameters by place."""
    counts = {"embedding": 0, "transformer": 0, "pooler": 0, "head": 0}
    encoder_parameters = set()
    for name, parameter in encoder_of(model).named_parameters():
        counts[_part_of_encoder(name)] += parameter.numel()
        encoder_parameters.add(id(parameter))
    for parameter in model.parameters():
        if id(parameter) not in encoder_parameters:
            counts["head"] += parameter.numel()
    return ParameterCounts(**counts)


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """Return the list of Transformer blocks: the outermost module list with the most parameters.

    For ALBERT that is the list of shared layer groups, each of which is called many times.

    Raises:
        ModelError: if the model has no module list.
    """
    module_lists = [module for module in encoder_of(model).modules() if isinstance(module, nn.ModuleList)]
    filled_lists = [modules for modules in module_lists if len(modules) > 0]
    if not filled_lists:
        raise ModelError(
            f"{type(model).__name__} has no list of blocks (torch.nn.ModuleList) that could be measured; choose "
            "another model."
        )
    # `max` keeps the first of equals, and `modules` goes from the outside in.
    return max(filled_lists, key=_parameter_count)


def work_ratio(teacher: nn.Module, student: nn.Module, input_ids: Tensor) -> float | None:
    """Return how many times as much the teacher's blocks have to do as the student's, by their shapes.

    It is the larger of two ratios: of the parameters that a pass multiplies with, and of the blocks that it runs one
    after another. A block that runs many times, as in ALBERT, counts each time. The products of attention need no
    count of their own: their ratio is between these two.

    Args:
        teacher: An encoder in evaluation mode.
        student: Another one, on the same device.
        input_ids: `[B, L]` int64 on that device.

    Returns:
        The ratio; None where the blocks are of different architectures, whose parameters cost differently.
    """
    teacher_blocks = _blocks_of_pass(teacher, input_ids)
    student_blocks = _blocks_of_pass(student, input_ids)
    kinds = {type(block) for block in teacher_blocks + student_blocks}
    if len(kinds) > 1 or not teacher_blocks or not student_blocks:
        return None
    teacher_parameters = sum(_parameter_count(block) for block in teacher_blocks)
    student_parameters = sum(_parameter_count(block) for block in student_blocks)
    return max(teacher_parameters / student_parameters, len(teacher_blocks) / len(student_blocks))


def _blocks_of_pass(model: nn.Module, input_ids: Tensor) -> list[nn.Module]:
    """Return the blocks that a forward pass runs, in their order; a block is there as often as it runs."""
    blocks_run: list[nn.Module] = []

    def note_block(block: nn.Module, _: object) -> None:
        blocks_run.append(block)

    hooks = [block.register_forward_pre_hook(note_block) for block in find_blocks(model)]
    try:
        with torch.inference_mode():
            model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids))
    finally:
        for hook in hooks:
            hook.remove()
    return blocks_run


def weights_megabytes(folder: Path | str) -> float:
    """Return the size of a model folder's weight files in megabytes (10⁶ bytes): safetensors, else `.bin`.

    Raises:
        ModelError: if the folder has none.
    """
    for pattern in _WEIGHT_FILES:
        sizes = [path.stat().st_size for path in Path(folder).glob(pattern)]
        if sizes:
            return sum(sizes) / BYTES_PER_MEGABYTE
    raise ModelError(f"No weight files in {folder}: give the folder that holds model.safetensors.")


def tensors_megabytes(model: nn.Module) -> float:
    """Return the size of the model's parameters in their present dtype, in megabytes (10⁶ bytes)."""
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return size / BYTES_PER_MEGABYTE


def model_megabytes(model: nn.Module, folder: Path | str | None) -> tuple[float, str]:
    """Return a model's size and its source: the `"files"` of its folder, or its `"tensors"` where it has none there."""
    if folder is not None:
        with suppress(ModelError):
            return weights_megabytes(folder), "files"
    return tensors_megabytes(model), "tensors"


def _parameter_count(module: nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def _part_of_encoder(name: str) -> str:
    """Return the part of the encoder (a field of `ParameterCounts`) that a parameter belongs to, by its dotted name."""
    words = name.split(".")
    if any(word.startswith("pooler") for word in words):
        return "pooler"
    # Projections of a narrow embedding table to the hidden width count as embeddings too:
    # `encoder.embedding_hidden_mapping_in` (ALBERT), `embeddings_project` (ELECTRA). But a name with a number, such as
    # `encoder.layer.3.…`, is inside of a block. It counts as the Transformer's even if it is called an embedding, as
    # tables of relative positions are.
    is_in_block = any(word.isdigit() for word in words)
    is_embedding = any(word.startswith(_EMBEDDING_NAMES) for word in words)
    if is_embedding and not is_in_block:
        return "embedding"
    return "transformer"
