"""The start of a student's embeddings: copied from the source, projected onto its principal directions, or averaged.

*Factorised* embeddings are narrower than the hidden states, with a map between the two (`embedding_projection`);
*plain* ones are as wide. A *basis* `[T, S]` maps the source's width T to the student's S, see `bases.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn

from limbeck.errors import ModelError, suggestion
from limbeck.models.bases import Bases, embedding_projection
from limbeck.models.block_narrowing import narrow_norm
from limbeck.models.families import Shape, base_model, embedding_tables, family_of
from limbeck.models.family_table import Family, row_of
from limbeck.models.start_step import Start, StartSettings, StartStep
from limbeck.models.token_pieces import mean_rows
from limbeck.models.transfer import Origin

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EMBEDDING_STRATEGIES = ("auto", "copied", "projected", "averaged", "random")


class Embeddings(StartStep):
    """Word, position and segment embeddings, and the map behind factorised ones."""

    name = "embeddings"
    place = "embeddings"

    def check(self, student: Shape, source: Shape, settings: StartSettings) -> None:
        """Refuse embeddings of another vocabulary."""
        mode = embedding_mode(settings.embeddings, student, source)
        takes_rows = mode in ("copied", "projected")
        if takes_rows and student.vocabulary != source.vocabulary:
            raise ModelError(
                f"The student's vocabulary has {student.vocabulary} tokens and the teacher's "
                f"{source.vocabulary}; use the teacher's tokenizer, or set embeddings: random."
            )

    def apply(self, start: Start) -> None:
        """Copy, project, average or draw the embeddings."""
        student = base_model(start.student)
        if start.embeddings == "random":
            start.transfer.take(_embedding_paths(student), student, start.fresh, "random")
            return
        source = base_model(start.source)
        _transfer_tables(start, student, source)


def embedding_mode(strategy: str, student: Shape, source: Shape) -> str:
    """Return how the embeddings start: `"copied"`, `"projected"`, `"averaged"` or `"random"`.

    Args:
        strategy: One of `EMBEDDING_STRATEGIES`; `"auto"` copies at equal widths, projects into a narrower
            student and starts a wider one at random. `"averaged"` is for a student with a vocabulary of its own: the
            row of each of its words is the mean of the rows of the source's pieces of that word, and is projected in a
            narrower student.
        student: The student's shape.
        source: The source's shape.

    Raises:
        ModelError: for an unknown strategy, or one that the widths do not allow.
    """
    if strategy not in EMBEDDING_STRATEGIES:
        raise ModelError(f"Unknown embeddings '{strategy}'.{suggestion(strategy, EMBEDDING_STRATEGIES)}")
    if strategy == "random":
        return strategy
    automatic = _automatic_mode(student, source)
    # Rows can be averaged wherever they can be copied or projected.
    if strategy == "averaged" and automatic != "random":
        return strategy
    if strategy not in ("auto", automatic):
        raise ModelError(
            f"Embeddings cannot be {strategy}: the student's are {_widths(student)} wide and the teacher's "
            f"{_widths(source)}; set embeddings: {automatic}, or embeddings: auto."
        )
    return automatic


def _automatic_mode(student: Shape, source: Shape) -> str:
    """Return how the embeddings start by `"auto"`: `"copied"` or `"projected"` where that is possible, else `"random"`.

    A strategy that copies or projects is possible only if it is the one returned here.
    """
    row = row_of(student.model_type)
    has_same_widths = student.embedding == source.embedding and student.hidden == source.hidden
    is_wider = student.embedding > source.embedding or student.hidden > source.hidden
    is_plain = student.embedding == student.hidden
    is_source_factorised = source.embedding < source.hidden

    # A table can be projected only if it is known which matrices are tables of embeddings. Outside of the table of
    # families this is known of some families' factorised embeddings alone.
    knows_factorised = row.embedding_projection is not None and not is_plain
    knows_tables = bool(row.embeddings) or knows_factorised
    # The embeddings of a factorised source need the map behind them, which plain students of some families lack.
    lacks_map = row.plain_drops_projection and is_plain and is_source_factorised
    if is_wider or lacks_map:
        return "random"
    if has_same_widths:
        return "copied"
    return "projected" if knows_tables else "random"


def _widths(shape: Shape) -> str:
    """The width of the embeddings, with that of the hidden states where it is another."""
    if shape.embedding == shape.hidden:
        return str(shape.hidden)
    return f"{shape.embedding} (hidden {shape.hidden})"


def _transfer_tables(start: Start, student: PreTrainedModel, source: PreTrainedModel) -> None:
    """Copy or project the tables of embeddings, the norms beside them, and the map from factorised embeddings.

    Args:
        start: The start.
        student: The student's base model.
        source: The source's base model.
    """
    bases = start.bases
    family = family_of(student.config)
    # Empty for a student without factorised embeddings.
    map_values = _map_values(student, source, bases)
    origin: Origin = "copied" if bases.embedding is None else "projected"
    for path in family.embeddings:
        target = student.get_submodule(path)
        values = _module_values(start, path, source, target)
        if _holds_map(family, path):
            # The map is a part of this module, so it is written with it.
            path_in_module = str(family.embedding_projection).removeprefix(f"{path}.")
            for name, value in map_values.items():
                values[f"{path_in_module}.{name}"] = value
        start.transfer.write(path, target, values, origin)
    if start.embeddings == "averaged":
        # Means of rows are no copies, even in a module that else is copied.
        start.transfer.note_changed([_name_of_words(source)])
    if map_values:
        _transfer_map(start, student, family, map_values)


def _transfer_map(start: Start, student: PreTrainedModel, family: Family, values: Mapping[str, Tensor]) -> None:
    """Write the map from factorised embeddings, or note its origin where it was written as a part of another module.

    Args:
        start: The start.
        student: The student's base model.
        family: The student's family.
        values: The tensors of the map, by their names in it.
    """
    path_of_map = str(family.embedding_projection)
    is_copied = start.bases.hidden is None and start.bases.embedding is None
    was_written = any(_holds_map(family, path) for path in family.embeddings)
    if not was_written:
        origin: Origin = "copied" if is_copied else "projected"
        start.transfer.write(path_of_map, student.get_submodule(path_of_map), values, origin)
    elif not is_copied:
        # It was noted by the origin of the module that it is a part of.
        start.transfer.note_changed(f"{path_of_map}.{name}" for name in values)


def _module_values(start: Start, path: str, source: PreTrainedModel, target: nn.Module) -> dict[str, Tensor]:
    """Return the values of the tables and norms in a module of embeddings, by their names in the module.

    Args:
        start: The start.
        path: The module's path in the base model.
        source: The source's base model.
        target: The student's module.
    """
    bases = start.bases
    module = source.get_submodule(path)
    tensors = module.state_dict()
    words = _name_of_words(source).removeprefix(f"{path}.")
    if start.embeddings == "averaged" and words in tensors:
        tensors[words] = _averaged_words(start, tensors[words])
    values = _narrowed_tables(tensors, target, bases.embedding)
    if bases.measured is None or bases.embedding is None:
        return values
    # Plain embeddings lie in the space of the hidden states, and share their basis. Then the norms are narrowed by the
    # measured input of layer 1, which is the output of the embeddings.
    if bases.embedding is bases.hidden:
        values |= _narrow_norms(module, bases.measured[1].inputs, bases.embedding)
    return values


def _name_of_words(source: PreTrainedModel) -> str:
    """The name of the table of words in the source's base model."""
    return f"{embedding_tables(source)['tokens'].name}.weight"


def _narrowed_tables(tensors: Mapping[str, Tensor], target: nn.Module, basis: Tensor | None) -> dict[str, Tensor]:
    """Return the values in the student of the tables and norms of a module of embeddings.

    Tables are projected without taking off their mean, so that a padding row of zeros stays zero. A norm whose width
    changes gets no value here: it is reset by `Transfer.write`, unless activations tell its value.

    Args:
        tensors: The tensors of the source's module, by their names in it.
        target: The student's module.
        basis: The basis of the embeddings; None where source and student have the same width.
    """
    student_shapes = {name: tensor.shape for name, tensor in target.state_dict().items()}
    values = {}
    for name, tensor in tensors.items():
        is_table = tensor.dim() == 2
        has_same_shape = tensor.shape == student_shapes.get(name)
        if is_table and basis is not None:
            values[name] = tensor.double() @ basis
        elif is_table or has_same_shape:
            # `Transfer.write` refuses a table of another shape.
            values[name] = tensor
    return values


def _averaged_words(start: Start, table: Tensor) -> Tensor:
    """The rows of the student's tokens: means of the source's rows of each token's pieces, `[tokens, source's width]`.

    A token without any piece gets the mean of the whole table.

    Args:
        start: The start.
        table: The source's word embeddings.
    """
    if start.pieces is None:
        raise ModelError(
            "'embeddings: averaged' needs the tokenizers of the student and of the model that it starts from, but "
            "one of them is missing; set embeddings: random."
        )
    return mean_rows(table, start.pieces)


def _map_values(student: PreTrainedModel, source: PreTrainedModel, bases: Bases) -> dict[str, Tensor]:
    """Return the tensors of the map from factorised embeddings to the hidden width; none for a student without it.

    Args:
        student: The student's base model.
        source: The source's base model.
        bases: See `Start.bases`.
    """
    target = embedding_projection(student)
    if target is None:
        return {}
    projection = embedding_projection(source)
    if projection is None:
        # The source is plain, and the student's embeddings are factorised.
        values = _unfold(source, bases)
    else:
        values = {name: tensor.double() for name, tensor in projection.state_dict().items()}
        if bases.embedding is not None:
            values["weight"] = values["weight"] @ bases.embedding
    if bases.hidden is not None:
        values = {name: bases.hidden.T @ tensor for name, tensor in values.items()}
    return values


def _holds_map(family: Family, path: str) -> bool:
    """Whether the map from factorised embeddings is a part of the module at a path."""
    return family.embedding_projection is not None and family.embedding_projection.startswith(f"{path}.")


def _narrow_norms(embeddings: nn.Module, outputs: Tensor, basis: Tensor) -> dict[str, Tensor]:
    """Return the scale and shift of the norm at the end of the embeddings, by their names in the embeddings.

    Args:
        embeddings: The source's module.
        outputs: The moment of its output, see `activations.py`.
        basis: The basis of hidden states and embeddings.
    """
    values = {}
    for name, module in embeddings.named_modules():
        if isinstance(module, nn.LayerNorm):
            for key, value in narrow_norm(module, outputs, basis).items():
                values[f"{name}.{key}"] = value
    return values


def _embedding_paths(model: PreTrainedModel) -> list[str]:
    """Return the paths of the embeddings, and of the map after factorised ones."""
    family = family_of(model.config)
    paths = list(family.embeddings)
    has_map_beside = not any(_holds_map(family, path) for path in paths)
    if has_map_beside and embedding_projection(model) is not None:
        paths.append(str(family.embedding_projection))
    return paths


def _unfold(source: PreTrainedModel, bases: Bases) -> dict[str, Tensor]:
    """Return the map from a student's factorised embeddings to the input of a plain source's blocks.

    With P `[H, E]` the basis of the embeddings, and γ and β the scale and shift of the source's embedding norm, it is
    e -> diag(γ) P e √(H / E) + β, which makes up for what the norms do. A norm gives vectors of length √width, then
    scales and shifts them. The student's norm comes before the map, so that its vectors have length √E, where those of
    the source have √H. Where the norm comes behind the map (DeBERTa), it is the source's, and the map is e -> P e.
    """
    assert bases.embedding is not None
    if family_of(source.config).norm_behind_projection:
        return {"weight": bases.embedding}
    norm = source.get_submodule("embeddings.LayerNorm")
    assert isinstance(norm, nn.LayerNorm)
    hidden_width, embedding_width = bases.embedding.shape
    # [H, E].
    weight = norm.weight.double()[:, None] * bases.embedding * math.sqrt(hidden_width / embedding_width)
    return {"weight": weight, "bias": norm.bias.double()}
