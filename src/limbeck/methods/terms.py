"""Terms and checks that methods share: pairs of layers, embeddings, scores of the task; heads and widths that fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from limbeck.errors import RecipeError
from limbeck.methods.layer_mapping import LayerMapping, resolve_layer, resolve_mapping, stream_width, without_last
from limbeck.methods.options import MappingChoice, MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import LearnedMap, Rows, Term
from limbeck.methods.transforms import AnnealedScores, AttendedLayers, DrawnLayer, Transform
from limbeck.models.streams import StreamKey

if TYPE_CHECKING:
    from limbeck.kinds.kind import Kind


def learned_map(pairing: Pairing, kind: str = "hidden", *, shared: bool = False) -> LearnedMap:
    """Make the map between the two models' streams of a kind; a shared one serves all terms on that kind."""
    widths = stream_width(pairing.student, kind), stream_width(pairing.teacher_shape, kind)
    return LearnedMap(*widths, name=kind if shared else None)


def layer_terms(
    name: str, objective: str, kinds: Sequence[str], mapping: LayerMapping, weight: float, **further: Any
) -> list[Term]:
    """Make one term for each pair of layers, `NAME_LAYER_TARGET`, on streams of the same kinds in both models.

    Args:
        name: First part of the terms' names.
        objective: Name in the registry of objectives.
        kinds: Kinds of streams, in the objective's order.
        mapping: Student layer to teacher layers.
        weight: Coefficient of each.
        **further: Further fields of each `Term`.
    """
    return [
        Term(
            f"{name}_{layer}_{target}",
            objective,
            tuple(StreamKey(kind, layer) for kind in kinds),
            tuple(StreamKey(kind, target) for kind in kinds),
            weight,
            **further,
        )
        for layer, targets in mapping.items()
        for target in targets
    ]


class MappedOptions(MethodOptions):
    """Base of the options of methods whose mapping may read all teacher layers: drawn at random, or by attention."""

    added = frozenset({"mapping_draw", "mapping_seed"})

    mapping: MappingChoice
    mapping_draw: Literal["epoch", "once"] = Field(
        "epoch", description="Whether mapping: random is drawn anew in every epoch, or once."
    )
    mapping_seed: int = Field(0, ge=0, description="Seed of mapping: random.")

    @model_validator(mode="after")
    def _draw_of_a_drawn_mapping(self) -> MappedOptions:
        self._refuse_unless_random("mapping", "mapping_draw", "mapping_seed")
        return self


# Mappings that read every teacher layer, and make one of them a target in training.
_OF_ALL_LAYERS = ("random", "attention")


def mapped_terms(
    name: str,
    objective: str,
    kind: str,
    options: MappedOptions,
    pairing: Pairing,
    weight: float,
    *,
    intermediate: bool = False,
    learned: LearnedMap | None = None,
) -> list[Term]:
    """Make one term for each pair of layers; with `random` and `attention` one for each student layer.

    Args:
        name: First part of the terms' names.
        objective: Name in the registry of objectives; of one stream.
        kind: Of the streams.
        options: The mapping and, for `random`, when and with which seed it is drawn.
        pairing: The two models.
        weight: Coefficient of each.
        intermediate: Leave out the student's last layer; `random` then leaves out the teacher's too.
        learned: The map of each term.

    Raises:
        RecipeError: for a mapping that cannot be, or more student layers than can be drawn.
    """
    if options.mapping not in _OF_ALL_LAYERS:
        mapping = resolve_mapping(options.mapping, pairing, _OF_ALL_LAYERS)
        if intermediate:
            mapping = without_last(mapping, pairing.student.layers)
        return layer_terms(name, objective, [kind], mapping, weight, learned_map=learned)

    student_layers = pairing.student.layers
    teacher_layers = pairing.teacher_shape.layers
    if intermediate:
        student_layers -= 1
    if options.mapping == "random":
        if intermediate:
            teacher_layers -= 1
        if student_layers > teacher_layers:
            raise RecipeError(
                f"mapping 'random' draws a different teacher layer for each of {student_layers} student layers, but "
                f"only {teacher_layers} can be drawn; use 'uniform' or a shallower student."
            )

    all_layers = tuple(StreamKey(kind, layer) for layer in range(1, teacher_layers + 1))
    terms = []
    for layer in range(1, student_layers + 1):
        transform: Transform
        if options.mapping == "random":
            each_epoch = options.mapping_draw == "epoch"
            transform = DrawnLayer(layer - 1, student_layers, options.mapping_seed, each_epoch)
        else:
            transform = AttendedLayers()
        student = (StreamKey(kind, layer),)
        term = Term(f"{name}_{layer}", objective, student, all_layers, weight, learned_map=learned, transform=transform)
        terms.append(term)
    return terms


def hidden_terms(pairing: Pairing, mapping: LayerMapping, weight: float, *, one_map: bool = False) -> list[Term]:
    """Make one `hidden_mse` for each pair of layers; each learns its map, or all learn one."""
    learned = learned_map(pairing, shared=one_map)
    return layer_terms("hidden", "hidden_mse", ["hidden"], mapping, weight, learned_map=learned)


def sentence_hidden_terms(
    pairing: Pairing, last_weight: float, mapping: Mapping[int, int], layer_weight: float
) -> list[Term]:
    """Make the `hidden_mse` of the last hidden states, and of layers below, for methods of sentence vectors.

    Where widths differ each has its own learned map.

    Args:
        pairing: The two models.
        last_weight: Of the last hidden states.
        mapping: Student layer to teacher layer; negative ones count from the end.
        layer_weight: Of each pair in it.

    Raises:
        RecipeError: for a layer that a model does not have.
    """
    student, teacher = pairing.student, pairing.teacher_shape
    widths = learned_map(pairing) if student.hidden != teacher.hidden else None
    pairs = [("hidden_mse", student.layers, teacher.layers, last_weight)]
    for own, other in sorted(mapping.items()):
        layer = resolve_layer(own, student, "student")
        pairs.append((f"hidden_mse_{layer}", layer, resolve_layer(other, teacher, "teacher"), layer_weight))
    return [
        Term(name, "hidden_mse", (StreamKey("hidden", own),), (StreamKey("hidden", other),), weight, learned_map=widths)
        for name, own, other, weight in pairs
    ]


def attention_score_terms(pairing: Pairing, mapping: LayerMapping, weight: float, method: str) -> list[Term]:
    """Make one `attention_score_mse` for each pair of layers.

    Raises:
        RecipeError: if the models have different numbers of attention heads.
    """
    heads = {"heads": equal_heads(pairing, method, "set attention_weight: 0")}
    return layer_terms("attention", "attention_score_mse", ["query", "key"], mapping, weight, options=heads)


def embedding_term(pairing: Pairing, weight: float) -> Term:
    """Make the `hidden_mse` between the embedding outputs, with a learned map."""
    key = (StreamKey("embedding", 0),)
    return Term("embedding", "hidden_mse", key, key, weight, learned_map=learned_map(pairing))


def equal_heads(pairing: Pairing, method: str, otherwise: str = "") -> int:
    """Return the number of attention heads that both models have.

    Args:
        pairing: The two models.
        method: Name of the method, for the message.
        otherwise: Another way out beside minilmv2, for the message.

    Raises:
        RecipeError: if the numbers differ, or keys are shared between heads in one model only.
    """
    student, teacher = pairing.student, pairing.teacher_shape
    instead = f"{otherwise}, or use minilmv2" if otherwise else "use minilmv2, which needs no equal heads"
    if student.heads != teacher.heads:
        raise RecipeError(
            f"{method} compares attention head by head, so the student needs the teacher's {teacher.heads} heads, not "
            f"{student.heads}; set student.shape.heads: {teacher.heads}, or {instead}."
        )
    for owner, shape in (("student", student), ("teacher", teacher)):
        if shape.key_value_heads != shape.heads:
            raise RecipeError(
                f"{method} compares attention head by head, but the {owner}'s {shape.heads} query heads share "
                f"{shape.key_value_heads} key heads; {instead}."
            )
    return teacher.heads


def check_equal_widths(pairing: Pairing, method: str, compared: str, otherwise: str) -> None:
    """Refuse a student of another width, for methods that compare vectors without a map.

    Args:
        pairing: The two models.
        method: Name of the method, for the message.
        compared: The vectors, for the message.
        otherwise: Another way out, for the message.

    Raises:
        RecipeError: if the widths differ.
    """
    if pairing.student.hidden != pairing.teacher.width:
        raise RecipeError(
            f"{method} compares {compared} without a map, so the student must be {pairing.teacher.width} wide, as "
            f"the teacher is, not {pairing.student.hidden}; change student.shape or {otherwise}."
        )


def check_relation_heads(pairing: Pairing, heads: int, kinds: Iterable[str], example: str = "") -> None:
    """Refuse relation heads that do not divide the streams of both models.

    Args:
        pairing: The two models.
        heads: Relation heads.
        kinds: Streams, such as `"query"`.
        example: A number that fits, for the message.

    Raises:
        RecipeError: naming the first stream that they do not divide.
    """
    for owner, shape in (("student", pairing.student), ("teacher", pairing.teacher_shape)):
        for kind in kinds:
            width = stream_width(shape, kind)
            if heads < 1 or width % heads:
                raise RecipeError(
                    f"relation_heads {heads} does not divide the width {width} of the {owner}'s {kind}; "
                    f"use a divisor of both models' widths{example}, or 'auto'."
                )


def weighted_terms(terms: list[Term], method: str) -> list[Term]:
    """Leave out the terms of weight 0.

    Raises:
        RecipeError: if none is left.
    """
    weighted = [term for term in terms if term.weight > 0]
    if not weighted:
        raise RecipeError(f"{method} has only weights of 0; give at least one of them a value above 0.")
    return weighted


Positions: TypeAlias = Literal["masked", "all"]


def soft_label_term(pairing: Pairing, weight: float, temperature: float = 1.0, positions: Positions = "masked") -> Term:
    """Make the term that teaches the teacher's scores.

    Text: the vocabulary's distribution at the masked or at all positions. Labelled rows: the `soft_label` of their
    kind, such as the distribution over classes, or the squared error of a value, for which a temperature means nothing.

    Args:
        pairing: The two models and the task.
        weight: Coefficient.
        temperature: T, above 0.
        positions: For text only.
    """
    student, teacher = _logits(pairing)
    if not pairing.has_labels:
        rows: Rows = "label" if positions == "masked" else "token"
        return Term("soft_label", "soft_label_kl", student, teacher, weight, {"temperature": temperature}, rows=rows)
    label = _kind(pairing.task).soft_label()
    options = {"temperature": temperature} if label.has_temperature else {}
    return Term("soft_label", label.objective, student, teacher, weight, options, rows=label.rows)


def annealed_score_term(pairing: Pairing, weight: float, highest: int) -> Term:
    """Make the term that teaches the teacher's scores themselves, scaled by a temperature that falls.

    Args:
        pairing: The two models and the task.
        weight: Coefficient.
        highest: The first temperature, τ_max.

    Raises:
        RecipeError: where scores are neither of classes nor a value.
    """
    if pairing.label not in ("class", "classes", "value"):
        raise RecipeError(
            f"annealing teaches the scores of classes or a value, but this corpus is for {pairing.task}; leave it out."
        )
    return Term("soft_label", "soft_label_mse", *_logits(pairing), weight, transform=AnnealedScores(highest))


def hard_label_term(pairing: Pairing, weight: float) -> Term:
    """Make the term that teaches the labels: masked tokens of text, else the `hard_label` of the rows' kind.

    Raises:
        RecipeError: for a kind whose students do not learn from labels, such as rankings, unless it has no weight.
    """
    student, _ = _logits(pairing)
    if not pairing.has_labels:
        return Term("hard_label", "masked_lm_ce", student, (), weight, rows="label")
    label = _kind(pairing.task).hard_label()
    if label is None:
        if weight > 0:
            raise RecipeError(
                "hard labels do not apply to rankings, which learn the teacher's scores; give them the weight 0."
            )
        return Term("hard_label", "hard_label_ce", student, (), weight, rows="sample")
    return Term("hard_label", label.objective, student, (), weight, rows=label.rows)


def _kind(name: str) -> Kind:
    """Return a kind of task. Kinds import NumPy, which a list of methods need not wait for."""
    from limbeck.kinds.registry import KINDS

    return KINDS[name]


def _logits(pairing: Pairing) -> tuple[tuple[StreamKey], tuple[StreamKey]]:
    return (StreamKey("logits", pairing.student.layers),), (StreamKey("logits", pairing.teacher.output_layer),)
