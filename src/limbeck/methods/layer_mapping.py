"""Layer mappings, from student layers to the teacher layers they learn from, and single layers by name or number.

S and T are the numbers of layers of student and teacher; layers are counted from 1. A *strategy* is a rule with a name
that makes a mapping of these numbers.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from limbeck.errors import RecipeError, suggestion
from limbeck.methods.options import MAPPING_FORMS, LayerChoice, MappingChoice
from limbeck.methods.pairing import Pairing
from limbeck.models.families import Shape
from limbeck.models.layer_selection import named_layers

LayerMapping: TypeAlias = dict[int, tuple[int, ...]]
"""Student layer to teacher layers, both counted from 1."""


def single(student: int, teacher: int) -> LayerMapping:
    """Map the last layer to the last: {S: T}. Source: comparative study (arXiv 2310.08797) section 4."""
    return {student: (teacher,)}


def last(student: int, teacher: int) -> LayerMapping:
    """Map onto the last S teacher layers: i to T - S + i. Source: comparative study section 4."""
    return _one_each(named_layers("last", student, teacher))


def uniform(student: int, teacher: int) -> LayerMapping:
    """Map onto every k-th teacher layer, k = ceil(T / S): i to min(k i, T).

    Source: comparative study section 4; the bound is ours, for depths that k does not divide.
    """
    return _one_each(named_layers("uniform", student, teacher))


def uniform_consecutive(student: int, teacher: int) -> LayerMapping:
    """Map onto neighbouring teacher layers: i to k (i - 1) up to k i, both included, within 1 to T; k = ceil(T / S).

    Source: comparative study section 4. Neighbouring student layers share the layer between them, as printed.
    """
    step = math.ceil(teacher / student)
    mapping = {}
    for layer in range(1, student + 1):
        first = max(1, step * (layer - 1))
        last_included = min(step * layer, teacher)
        # If S does not divide T, nothing may be left for the last student layers, which then learn from none.
        if first <= last_included:
            mapping[layer] = tuple(range(first, last_included + 1))
    return mapping


def uniform_last(student: int, teacher: int) -> LayerMapping:
    """Join `uniform` and `last`: up to two teacher layers for each. Source: comparative study section 4."""
    evenly = uniform(student, teacher)
    topmost = last(student, teacher)
    mapping = {}
    for layer in evenly:
        teacher_layers = {*evenly[layer], *topmost[layer]}
        mapping[layer] = tuple(sorted(teacher_layers))
    return mapping


def ends(student: int, teacher: int) -> LayerMapping:
    """Map onto evenly spaced teacher layers from the first to the last: i to 1 + ⌊(i - 1)(T - 1)/(S - 1)⌋; T for S = 1.

    A student that starts from the layers `ends` then learns from the layers that it has copied. Source: ours.
    """
    return _one_each(named_layers("ends", student, teacher))


def contribution(student: int, cosines: Sequence[float]) -> LayerMapping:
    """Map onto the S teacher layers that change their input most, in order.

    Args:
        student: The student's depth S.
        cosines: For each teacher layer the mean cosine between its input and its output.

    Source:
        ELM (Jiao et al. 2021) section 5.3.1, after Sajjad et al. 2020: the lower the cosine, the more important.
    """
    layers = range(1, len(cosines) + 1)
    # Of equal cosines the lower layer comes first, since sorting is stable.
    by_cosine = sorted(layers, key=lambda layer: cosines[layer - 1])
    return _one_each(sorted(by_cosine[:student]))


def _one_each(teacher_layers: Iterable[int]) -> LayerMapping:
    """Map each student layer, from 1, to one teacher layer."""
    return {layer: (teacher_layer,) for layer, teacher_layer in enumerate(teacher_layers, start=1)}


STRATEGIES: dict[str, Callable[[int, int], LayerMapping]] = {
    strategy.__name__: strategy for strategy in (single, last, uniform, uniform_consecutive, uniform_last, ends)
}
"""Strategies that go by the two depths S and T alone, by name."""
NAMES = (*STRATEGIES, "contribution")
_ONE_LAYER_EACH = ("last", "uniform_last", "contribution")
"""Strategies that need at least as many teacher layers as student layers."""


def resolve_mapping(choice: MappingChoice, pairing: Pairing, more_names: Sequence[str] = ()) -> LayerMapping:
    """Turn the option of a recipe into a layer mapping.

    The mapping `contribution` is known only once the teacher has been measured. Before that `last` is returned in its
    place, so that everything else can be checked.

    Args:
        choice: Name of a strategy; or a list with a teacher layer for each student layer, 0 for none; or student layer
            to teacher layer or layers.
        pairing: The two models.
        more_names: Further names that the method itself takes, for the message about an unknown one.

    Returns:
        Student layer to teacher layers, both counted from 1; student layers that learn from none are left out.

    Raises:
        RecipeError: for an unknown strategy, a layer that does not exist, a list of another length than the student's
            depth, or a mapping of nothing.
    """
    if isinstance(choice, str):
        return _by_name(choice, pairing, (*NAMES, *more_names))
    student_depth = pairing.student.layers
    teacher_depth = pairing.teacher_shape.layers
    listed = _read_list(choice, student_depth) if isinstance(choice, list) else _read_pairs(choice)
    for layer, teacher_layers in listed.items():
        _check_layer(layer, student_depth, "student", choice)
        for teacher_layer in teacher_layers:
            _check_layer(teacher_layer, teacher_depth, "teacher", choice)
        if len(set(teacher_layers)) < len(teacher_layers):
            raise RecipeError(
                f"mapping {choice} names a teacher layer twice for student layer {layer}; name each teacher layer once."
            )

    # A student layer that learns from none is left out.
    mapping = {layer: teacher_layers for layer, teacher_layers in sorted(listed.items()) if teacher_layers}
    if not mapping:
        raise RecipeError(f"mapping {choice} maps no layers; give {MAPPING_FORMS}.")
    return mapping


def _read_list(choice: list[int], student_depth: int) -> LayerMapping:
    """Read a list with a teacher layer for each student layer; a student layer with 0 learns from none."""
    if len(choice) != student_depth:
        raise RecipeError(
            f"mapping {choice} has {len(choice)} entries, but the student has {student_depth} layers; give one "
            "entry for each student layer: a teacher layer, or 0 for none."
        )
    mapping: LayerMapping = {}
    for layer, teacher_layer in enumerate(choice, start=1):
        mapping[layer] = () if teacher_layer == 0 else (teacher_layer,)
    return mapping


def _read_pairs(choice: Mapping[int, int | list[int]]) -> LayerMapping:
    """Read a mapping of student layers to a teacher layer or a list of them each."""
    mapping: LayerMapping = {}
    for layer, teacher_layers in choice.items():
        mapping[layer] = tuple(teacher_layers) if isinstance(teacher_layers, list) else (teacher_layers,)
    return mapping


def _by_name(name: str, pairing: Pairing, names: Sequence[str]) -> LayerMapping:
    """Compute the mapping of a strategy.

    Args:
        name: The strategy.
        pairing: The two models.
        names: All names that the method knows, for the message.

    Raises:
        RecipeError: for an unknown strategy, or a student that is too deep for it.
    """
    student = pairing.student.layers
    teacher = pairing.teacher_shape.layers
    if name not in NAMES:
        raise RecipeError(
            f"Unknown mapping '{name}'.{suggestion(name, names)} You can also list a teacher layer for each "
            "student layer, such as [2, 4, 6]."
        )
    if name in _ONE_LAYER_EACH and student > teacher:
        raise RecipeError(
            f"mapping '{name}' gives every student layer a different teacher layer, but the student has {student} "
            f"layers and the teacher {teacher}; use 'uniform' or a shallower student."
        )
    if name == "contribution":
        cosines = pairing.layer_cosines
        if cosines is None:
            # The teacher is not measured yet. `last` maps as many layers, so that a plan can be checked with it.
            return last(student, teacher)
        return contribution(student, cosines)
    return STRATEGIES[name](student, teacher)


def _check_layer(layer: int, depth: int, owner: str, choice: MappingChoice) -> None:
    """Refuse a layer that a model does not have."""
    if not 1 <= layer <= depth:
        raise RecipeError(
            f"mapping {choice} names {owner} layer {layer}, but the {owner} has only layers 1 to {depth}; choose "
            "one of these."
        )


def without_last(mapping: LayerMapping, student: int) -> LayerMapping:
    """Leave out the student's last layer, for methods that teach it by the predictions made from it (BERT-PKD).

    Args:
        mapping: Student layer to teacher layers.
        student: Number of the student's layers.
    """
    return {layer: teacher_layers for layer, teacher_layers in mapping.items() if layer != student}


# The layer that worked best of teachers of 24 layers, by type of model (MiniLMv2 section 3.2).
_LARGE_DEPTH = 24
_BEST_LARGE_LAYER = {"bert": 21, "roberta": 19, "xlm-roberta": 19}


def resolve_layer(choice: LayerChoice, shape: Shape, owner: str) -> int:
    """Turn the option of a recipe for a layer into the number of the layer, from 1.

    Args:
        choice: `last`; or a number, of which negative ones count from the end (-1 is the last layer); or `auto`, the
            last layer except for 24-layer BERT (21) and RoBERTa or XLM-R (19).
        shape: The model's shape.
        owner: `"teacher"` or `"student"`, for the message.

    Raises:
        RecipeError: if the model has no such layer.

    Source:
        MiniLMv2 (arXiv 2012.15828) section 3.2.
    """
    if choice == "last":
        return shape.layers
    if choice == "auto":
        if shape.layers != _LARGE_DEPTH:
            return shape.layers
        return _BEST_LARGE_LAYER.get(shape.model_type, shape.layers)
    # -1 is the last layer.
    layer = shape.layers + 1 + choice if choice < 0 else choice
    if not 1 <= layer <= shape.layers:
        raise RecipeError(
            f"{owner}_layer {choice} does not exist: this {owner} has {shape.layers} layers; "
            f"use 1 to {shape.layers}, -1 for the last, or 'last'."
        )
    return layer


def stream_width(shape: Shape, stream: str) -> int:
    """Return the width of a stream that has a vector for each token.

    Keys and values are narrower where several query heads share them (grouped-query attention).
    """
    if stream in ("key", "value"):
        return shape.key_value_heads * shape.head_size
    if stream in ("query", "context"):
        return shape.heads * shape.head_size
    return shape.hidden


def most_relation_heads(shape: Shape, stream: str) -> int:
    """Return the number that relation heads of a stream have to divide: the parts into which it may be cut.

    It is the width of the stream; but of queries and keys that are turned by their position, the number of attention
    heads. A rotary embedding turns two features of an attention head together, so that products of whole heads depend
    on the distance of two tokens alone. Cutting through a head parts the two, and the relation of the same words would
    depend on their place in the text.
    """
    if shape.rotary and stream == "query":
        return shape.heads
    if shape.rotary and stream == "key":
        return shape.key_value_heads
    return stream_width(shape, stream)
