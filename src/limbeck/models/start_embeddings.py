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
            student and starts a wider one at random. `"averaged"` is for a student with a vocabulary of its own: each
            of its words is the mean of the source's pieces of it, projected in a narrower student.
        student: The student's shape.
        source: The source's shape.

    Raises:
        ModelError: for an unknown strategy, or one that the widths do not allow.
    """
    if strategy not in EMBEDDING_STRATEGIES:
        raise ModelError(f"Unknown embeddings '{strategy}'.{suggestion(strategy, EMBEDDING_STRATEGIES)}")
    if strategy == "random":
        return strategy
    possible = _possible_mode(student, source)
    if strategy == "averaged" and possible != "random":
        return strategy
    if strategy not in ("auto", possible):
        raise ModelError(
            f"Embeddings cannot be {strategy}: the student's are {_widths(student)} wide and the teacher's "
            f"{_widths(source)}; set embeddings: {possible}, or auto."
        )
    return possible


def _possible_mode(student: Shape, source: Shape) -> str:
    """Return the start that takes over the most, of those that the widths allow."""
    has_same_widths = student.embedding == source.embedding and student.hidden == source.hidden
    row = row_of(student.model_type)
    is_plain = student.embedding == student.hidden
    # In a family outside of the table it is not known which matrices are tables of embeddings, so none is projected,
    # but for the families whose factorised embeddings are known.
    knows_tables = row.embeddings or (row.embedding_projection is not None and not is_plain)
    if not knows_tables and not has_same_widths:
        return "random"
    # A plain student of such a family has no map after its embeddings, which those of a factorised source need.
    if row.plain_drops_projection and is_plain and source.embedding < source.hidden:
        return "random"
    if student.embedding > source.embedding or student.hidden > source.hidden:
        return "random"
    return "copied" if has_same_widths else "projected"


def _widths(shape: Shape) -> str:
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
    words = f"{embedding_tables(source)['tokens'].name}.weight"
    path_of_map = str(family.embedding_projection)
    map_values = _map_values(student, source, bases)
    origin: Origin = "copied" if bases.embedding is None else "projected"
    for path in family.embeddings:
        module = source.get_submodule(path)
        target = student.get_submodule(path)
        tensors = module.state_dict()
        name_of_words = words.removeprefix(f"{path}.")
        if start.embeddings == "averaged" and name_of_words in tensors:
            tensors[name_of_words] = _averaged_words(start, tensors[name_of_words])
        values = _narrowed_tables(tensors, target, bases.embedding)
        if bases.embedding is not None and bases.measured is not None and bases.hidden is bases.embedding:
            values |= _narrow_norms(module, bases.measured[1].inputs, bases.embedding)
        if _holds_map(family, path):
            prefix = path_of_map.removeprefix(f"{path}.")
            values |= {f"{prefix}.{name}": value for name, value in map_values.items()}
        start.transfer.write(path, target, values, origin)

    # Tensors that are no copies may be in a module of copies.
    if start.embeddings == "averaged":
        start.transfer.note_changed([words])
    is_map_copied = bases.hidden is None and bases.embedding is None
    has_map_inside = any(_holds_map(family, path) for path in family.embeddings)
    if has_map_inside and not is_map_copied:
        start.transfer.note_changed(f"{path_of_map}.{name}" for name in map_values)
    if map_values and not has_map_inside:
        origin = "copied" if is_map_copied else "projected"
        start.transfer.write(path_of_map, student.get_submodule(path_of_map), map_values, origin)


def _narrowed_tables(tensors: Mapping[str, Tensor], target: nn.Module, basis: Tensor | None) -> dict[str, Tensor]:
    """Return the tables and norms of a module of embeddings, as far as they have values in the student.

    Tables are projected without taking off their mean, so that a padding row of zeros stays zero. A norm of another
    width gets a value only by activations; `Transfer.write` resets one without.

    Args:
        tensors: The tensors of the source's module, by their names in it.
        target: The student's module.
        basis: The basis of the embeddings; None where they have one width.
    """
    shapes = {name: tensor.shape for name, tensor in target.state_dict().items()}
    values = {}
    for name, tensor in tensors.items():
        is_table = tensor.dim() == 2
        if is_table and basis is not None:
            values[name] = tensor.double() @ basis
        elif is_table or tensor.shape == shapes.get(name):
            values[name] = tensor
    return values


def _averaged_words(start: Start, table: Tensor) -> Tensor:
    """The mean of the source's rows of each student token's pieces, `[tokens, source's width]`.

    A token without any piece gets the mean of the whole table.

    Args:
        start: The start.
        table: The source's word embeddings.
    """
    if start.pieces is None:
        raise ModelError(
            "Averaged embeddings are means of the pieces of each token, which need the tokenizers of the student and "
            "of the model that it starts from; set embeddings: random."
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
    e -> diag(γ) P e √(H / E) + β. The student's own norm comes before the map, and gives vectors of length √E where the
    source's norm gives √H before its scale. Where the norm comes behind the map (DeBERTa), it is the source's, and the
    map is e -> P e.
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
