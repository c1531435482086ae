"""Terms over layers that methods share: embeddings, hidden states and attention scores of mapped layers.

A *layer mapping* says for each layer of the student which layers of the teacher it learns from; a pair of such layers
makes a term. Layers are counted from 1. A mapping is one of two sorts:

- A *fixed* one names the teacher layers of each student layer before the training, such as `uniform` or a list.
- The mappings `random` and `attention` are over all teacher layers. Each student layer has one term, which reads the
  streams of all of them, and in training makes one target of these: a layer drawn at random, or a mean of all layers
  weighted by their likeness to the student's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from limbeck.errors import RecipeError
from limbeck.methods.checks import equal_heads
from limbeck.methods.layer_mapping import LayerMapping, resolve_layer, resolve_mapping, stream_width, without_last
from limbeck.methods.options import MappingChoice, MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import LearnedMap, Term, stream_keys
from limbeck.methods.transforms import AttendedLayers, DrawnLayer, Transform
from limbeck.models.streams import StreamKey

# Names of the mappings over all teacher layers.
_OF_ALL_LAYERS = ("random", "attention")


class MappedOptions(MethodOptions):
    """Base of the options of methods whose mapping may also be `random` or `attention`."""

    added = frozenset({"mapping_draw", "mapping_seed"})
    """Options that came after the first release; see `MethodOptions.added`."""

    mapping: MappingChoice
    mapping_draw: Literal["epoch", "once"] = Field(
        "epoch", description="Whether mapping: random is drawn anew in every epoch, or once."
    )
    mapping_seed: int = Field(0, ge=0, description="Seed of mapping: random.")

    @model_validator(mode="after")
    def _draw_of_a_drawn_mapping(self) -> MappedOptions:
        """Refuse options of the draw where no layer is drawn."""
        self._refuse_unless_random("mapping", "mapping_draw", "mapping_seed")
        return self


def mapped_terms(
    options: MappedOptions,
    pairing: Pairing,
    *,
    name: str,
    objective: str,
    stream: str,
    weight: float,
    intermediate: bool = False,
    learned: LearnedMap | None = None,
) -> list[Term]:
    """Make one term for each pair of layers of a fixed mapping; else one for each student layer.

    Args:
        options: The mapping and, for `random`, when and with which seed it is drawn.
        pairing: The two models.
        name: First part of the terms' names.
        objective: Name in the registry of objectives, of one that takes one stream of each model.
        stream: Name of the stream.
        weight: Coefficient of each term.
        intermediate: Teach intermediate layers alone: the student's last layer gets no term. With `random` the
            teacher's last layer is not drawn either.
        learned: The learned map of each term.

    Raises:
        RecipeError: for a mapping that is not possible, or more student layers than teacher layers to draw from.
    """
    # With `random` or `attention` a student layer reads all teacher layers, and learns from those that are drawn or
    # attended to.
    if options.mapping in _OF_ALL_LAYERS:
        return _terms_over_all_layers(
            options,
            pairing,
            name=name,
            objective=objective,
            stream=stream,
            weight=weight,
            intermediate=intermediate,
            learned=learned,
        )
    mapping = resolve_mapping(options.mapping, pairing, _OF_ALL_LAYERS)
    if intermediate:
        mapping = without_last(mapping, pairing.student.layers)
    return layer_terms(mapping, name=name, objective=objective, streams=[stream], weight=weight, learned_map=learned)


def _terms_over_all_layers(
    options: MappedOptions,
    pairing: Pairing,
    *,
    name: str,
    objective: str,
    stream: str,
    weight: float,
    intermediate: bool,
    learned: LearnedMap | None,
) -> list[Term]:
    """Make one term for each student layer, which reads all teacher layers; arguments as of `mapped_terms`."""
    is_drawn = options.mapping == "random"
    student_layers = pairing.student.layers
    teacher_layers = pairing.teacher_shape.layers
    if intermediate:
        # Here layers are counted, not listed in a mapping: one layer fewer leaves the last one out.
        student_layers -= 1
    if intermediate and is_drawn:
        # RAIL-KD draws from the teacher's intermediate layers. An attention may fall on the last one too.
        teacher_layers -= 1
    if is_drawn and student_layers > teacher_layers:
        raise RecipeError(
            f"mapping 'random' draws a different teacher layer for each of {student_layers} student layers, but "
            f"only {teacher_layers} can be drawn; use 'uniform' or a shallower student."
        )

    terms = []
    for layer in range(1, student_layers + 1):
        transform: Transform
        if is_drawn:
            transform = DrawnLayer(
                place=layer - 1,
                count=student_layers,
                seed=options.mapping_seed,
                each_epoch=options.mapping_draw == "epoch",
            )
        else:
            transform = AttendedLayers()
        term = Term(
            name=f"{name}_{layer}",
            objective=objective,
            student=stream_keys(stream, layer=layer),
            teacher=tuple(StreamKey(stream, teacher_layer) for teacher_layer in range(1, teacher_layers + 1)),
            weight=weight,
            learned_map=learned,
            transform=transform,
        )
        terms.append(term)
    return terms


def layer_terms(
    mapping: LayerMapping, *, name: str, objective: str, streams: Sequence[str], weight: float, **fields: Any
) -> list[Term]:
    """Make one term for each pair of layers of a mapping, on the same streams of both models.

    The terms are named by both layers: `hidden_2_6` is the term `hidden` of student layer 2 and teacher layer 6.

    Args:
        mapping: Student layer to teacher layers.
        name: First part of the terms' names.
        objective: Name in the registry of objectives.
        streams: Names of the streams, in the order in which the objective takes them.
        weight: Coefficient of each term.
        **fields: Further fields of each `Term`.
    """
    terms = []
    for layer, teacher_layers in mapping.items():
        for teacher_layer in teacher_layers:
            term = Term(
                name=f"{name}_{layer}_{teacher_layer}",
                objective=objective,
                student=stream_keys(*streams, layer=layer),
                teacher=stream_keys(*streams, layer=teacher_layer),
                weight=weight,
                **fields,
            )
            terms.append(term)
    return terms


def embedding_term(pairing: Pairing, *, weight: float) -> Term:
    """Make the `hidden_mse` between the embedding outputs, with a learned map."""
    # The embedding's output counts as layer 0.
    key = stream_keys("embedding", layer=0)
    return Term(
        name="embedding",
        objective="hidden_mse",
        student=key,
        teacher=key,
        weight=weight,
        learned_map=learned_map(pairing),
    )


def hidden_terms(pairing: Pairing, mapping: LayerMapping, *, weight: float, one_map: bool = False) -> list[Term]:
    """Make one `hidden_mse` for each pair of layers.

    Args:
        pairing: The two models.
        mapping: Student layer to teacher layers.
        weight: Coefficient of each term.
        one_map: All terms share one learned map; else each has its own.
    """
    return layer_terms(
        mapping,
        name="hidden",
        objective="hidden_mse",
        streams=["hidden"],
        weight=weight,
        learned_map=learned_map(pairing, shared=one_map),
    )


def attention_score_terms(pairing: Pairing, mapping: LayerMapping, *, weight: float, method: str) -> list[Term]:
    """Make one `attention_score_mse` for each pair of layers.

    Args:
        pairing: The two models.
        mapping: Student layer to teacher layers.
        weight: Coefficient of each term.
        method: Name of the method, for the message.

    Raises:
        RecipeError: if the models have different numbers of attention heads.
    """
    heads = equal_heads(pairing, method=method, otherwise="set attention_weight: 0")
    return layer_terms(
        mapping,
        name="attention",
        objective="attention_score_mse",
        streams=["query", "key"],
        weight=weight,
        options={"heads": heads},
    )


def sentence_hidden_terms(
    pairing: Pairing, mapping: Mapping[int, int], *, last_weight: float, layer_weight: float
) -> list[Term]:
    """Make the `hidden_mse` of the last hidden states, and of layers below, for methods of sentence vectors.

    Where the widths of the models differ, each term has a learned map of its own.

    Args:
        pairing: The two models.
        mapping: Student layer (below the last) to teacher layer; negative numbers count from the end.
        last_weight: Coefficient of the last hidden states.
        layer_weight: Coefficient of each pair of the mapping.

    Raises:
        RecipeError: for a layer that a model does not have.
    """
    student = pairing.student
    teacher = pairing.teacher_shape
    learned = learned_map(pairing) if student.hidden != teacher.hidden else None
    last = Term(
        name="hidden_mse",
        objective="hidden_mse",
        student=stream_keys("hidden", layer=student.layers),
        teacher=stream_keys("hidden", layer=teacher.layers),
        weight=last_weight,
        learned_map=learned,
    )
    terms = [last]
    for student_choice, teacher_choice in sorted(mapping.items()):
        layer = resolve_layer(student_choice, student, "student")
        teacher_layer = resolve_layer(teacher_choice, teacher, "teacher")
        term = Term(
            name=f"hidden_mse_{layer}",
            objective="hidden_mse",
            student=stream_keys("hidden", layer=layer),
            teacher=stream_keys("hidden", layer=teacher_layer),
            weight=layer_weight,
            learned_map=learned,
        )
        terms.append(term)
    return terms


def learned_map(pairing: Pairing, stream: str = "hidden", *, shared: bool = False) -> LearnedMap:
    """Describe the map from the student's to the teacher's stream of a name.

    Args:
        pairing: The two models.
        stream: Name of the stream.
        shared: One map serves all terms on this stream; else each term has its own.
    """
    # Terms whose maps have the same name share one map.
    return LearnedMap(
        inputs=stream_width(pairing.student, stream),
        outputs=stream_width(pairing.teacher_shape, stream),
        name=stream if shared else None,
    )
