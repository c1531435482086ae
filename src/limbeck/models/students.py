"""A student's configuration, derived from its teacher's, and the student with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from limbeck.errors import ModelError
from limbeck.models.blueprint import StudentBlueprint
from limbeck.models.families import Shape, family_of, shape_of
from limbeck.models.family_table import families, families_with_factorised_embeddings
from limbeck.models.layer_lists import fit_layer_lists
from limbeck.models.pooler import pooler_option
from limbeck.models.sentences import TRAINED_WIDTHS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from limbeck.models.heads import Head

# Fields that a student does not take over, since they are about the teacher's saved model. The dtype is one of them: a
# teacher saved in bfloat16 must not make the student train in bfloat16 weights.
_NOT_INHERITED = (
    "architectures",
    "_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "model_type",
    TRAINED_WIDTHS,
)


def student_config(
    blueprint: StudentBlueprint,
    teacher_config: PreTrainedConfig,
    *,
    source_layers: Sequence[int] | None = None,
    vocabulary: int | None = None,
) -> PreTrainedConfig:
    """Derive a student's configuration: the teacher's with only the shape changed.

    The family, vocabulary, positions, special ids, activation and dropout stay. A student of a BERT teacher that
    has factorised embeddings is an ELECTRA, whose encoder is BERT's with a map after the embeddings.

    Args:
        blueprint: The shape.
        teacher_config: The teacher's configuration; not changed.
        source_layers: The teacher layers (1-based, one for each student layer) that the student's blocks will
            be copied from. Where layers differ in kind (ModernBERT's global and local attention) each keeps
            the kind of its source. Without them (or empty, as for random layers) the teacher's pattern starts anew.
        vocabulary: Number of tokens; None is the teacher's.

    Raises:
        ModelError: for an unknown family, or factorised embeddings in a family that has none.
    """
    teacher_shape = shape_of(teacher_config)
    family = family_of(teacher_config)
    config_class = type(teacher_config)
    factorises = blueprint.embedding is not None and blueprint.embedding != blueprint.hidden
    if factorises and family.fields.embedding is None:
        if family.model_type != "bert":
            known = families_with_factorised_embeddings()
            raise ModelError(
                f"A {family.model_type} student cannot have factorised embeddings (embedding "
                f"{blueprint.embedding}, hidden {blueprint.hidden}): those of bert (as ELECTRA), "
                f"{', '.join(known[:-1])} and {known[-1]} can; leave 'embedding' out."
            )
        from transformers import ElectraConfig

        family = families["electra"]
        config_class = ElectraConfig

    # The teacher's settings, with the student's numbers under the names that the family has for them.
    inherited = teacher_config.to_dict()
    values: dict[str, Any] = {key: value for key, value in inherited.items() if key not in _NOT_INHERITED}
    fields = family.fields
    values[fields.layers] = blueprint.layers
    values[fields.hidden] = blueprint.hidden
    values[fields.heads] = blueprint.heads
    values[fields.ffn] = blueprint.ffn
    if fields.embedding is not None:
        width = _embedding_width(blueprint, teacher_shape)
        # DeBERTa has the field only where the embeddings are factorised.
        if width != blueprint.hidden or fields.embedding in values:
            values[fields.embedding] = width
    if vocabulary is not None:
        values["vocab_size"] = vocabulary
    if blueprint.dropout is not None:
        for field in fields.dropouts:
            values[field] = blueprint.dropout
    _fit_attention(values, blueprint, teacher_shape)
    _fit_layers(values, blueprint.layers, teacher_shape.layers, source_layers)
    return config_class(**values)


def _embedding_width(blueprint: StudentBlueprint, teacher: Shape) -> int:
    """Return the width of a student's word embeddings, in a family where these may be factorised."""
    if blueprint.embedding is not None:
        return blueprint.embedding
    # A factorised teacher's embedding width is worth keeping; a plain one follows the student's hidden width.
    if teacher.embedding != teacher.hidden:
        return teacher.embedding
    return blueprint.hidden


def _fit_attention(values: dict[str, Any], blueprint: StudentBlueprint, teacher: Shape) -> None:
    """Fit the numbers of key heads and the width of heads to the student's number of heads, in place.

    Args:
        values: The configuration; a family without these numbers is left as it is.
        blueprint: The student's shape.
        teacher: The teacher's shape.
    """
    if values.get("num_key_value_heads") is not None:
        # As many query heads share a key head as in the teacher, if their number divides the student's heads.
        # Otherwise each has its own.
        queries_of_a_key = max(1, teacher.heads // teacher.key_value_heads)
        key_heads = blueprint.heads
        if blueprint.heads % queries_of_a_key == 0:
            key_heads = blueprint.heads // queries_of_a_key
        values["num_key_value_heads"] = key_heads
    has_teachers_heads = blueprint.hidden == teacher.hidden and blueprint.heads == teacher.heads
    if values.get("head_dim") is not None and not has_teachers_heads:
        values["head_dim"] = blueprint.hidden // blueprint.heads


def _fit_layers(values: dict[str, Any], layers: int, teacher_layers: int, source_layers: Sequence[int] | None) -> None:
    """Fit what a configuration says of single layers to the student's depth, in place.

    These are lists with a value for each layer, ALBERT's number of groups of layers, and the number of layers from
    which a window of attention is used.

    Args:
        values: The configuration.
        layers: The student's number of layers.
        teacher_layers: The teacher's number of layers.
        source_layers: The teacher's layer of each student layer, counted from 1; none for random layers.
    """
    if source_layers:
        sources = [layer - 1 for layer in source_layers]
    else:
        # The teacher's pattern of layer types, such as every third layer with global attention, is repeated from its
        # beginning. Without types the pattern is all of the teacher's layers.
        types = values.get("layer_types")
        period = teacher_layers
        if types:
            period = _period(types)
        sources = [layer % period for layer in range(layers)]
    fit_layer_lists(values, teacher_layers, sources)
    if "num_hidden_groups" in values:
        values["num_hidden_groups"] = min(int(values["num_hidden_groups"]), layers)
    if "max_window_layers" in values:
        values["max_window_layers"] = min(int(values["max_window_layers"]), max(layers, teacher_layers))


def _period(types: Sequence[str]) -> int:
    """Return the length of the shortest pattern that the types of layers repeat."""
    for period in range(1, len(types)):
        if all(types[layer] == types[layer % period] for layer in range(len(types))):
            return period
    return len(types)


def build_student(config: PreTrainedConfig, *, seed: int, head: Head | None = None) -> PreTrainedModel:
    """Build a student with random weights in float32, in eval mode, without a pooler where the class allows.

    Args:
        config: Its configuration, see `student_config`; not changed.
        seed: Decides every weight; the global random state is left as it was.
        head: The task whose head it gets, or None.

    Raises:
        ModelError: for an unknown family, or heads that do not divide the hidden width.
    """
    import torch

    from limbeck.models.heads import model_class
    from limbeck.models.quiet import quiet

    shape = shape_of(config)
    if getattr(config, "head_dim", None) is None and shape.hidden % shape.heads:
        raise ModelError(
            f"{shape.heads} heads do not divide the student's hidden width {shape.hidden}; choose a number of "
            "heads that does."
        )
    loader = model_class(config, head)
    # Building a model may change its configuration.
    own_config = type(config)(**config.to_dict())
    # Only the CPU generator is forked and seeded: the model is made on the CPU, and CUDA is left alone.
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = loader._from_config(own_config, dtype=torch.float32, **pooler_option(loader))
    return model.eval()
