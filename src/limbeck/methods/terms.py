"""The terms that layer-wise methods share: hidden states, embeddings, attention scores."""

from __future__ import annotations

from typing import Literal, TypeAlias

from limbeck.errors import RecipeError
from limbeck.methods.composition import LearnedMap, Pairing, Rows, Term
from limbeck.methods.layer_mapping import LayerMapping, stream_width
from limbeck.models.streams import StreamKey


def learned_map(pairing: Pairing, kind: str = "hidden") -> LearnedMap:
    """Make the map between the two models' streams of a kind."""
    return LearnedMap(stream_width(pairing.student, kind), stream_width(pairing.teacher, kind))


def hidden_terms(pairing: Pairing, mapping: LayerMapping, weight: float) -> list[Term]:
    """Make one `hidden_mse` for each pair of layers, each with a learned map of its own."""
    return [
        Term(
            name=f"hidden_{layer}_{target}",
            objective="hidden_mse",
            student=(StreamKey("hidden", layer),),
            teacher=(StreamKey("hidden", target),),
            weight=weight,
            learned_map=learned_map(pairing),
        )
        for layer, targets in mapping.items()
        for target in targets
    ]


def attention_score_terms(pairing: Pairing, mapping: LayerMapping, weight: float, method: str) -> list[Term]:
    """Make one `attention_score_mse` for each pair of layers.

    Raises:
        RecipeError: if the models have different numbers of attention heads.
    """
    heads = equal_heads(pairing, method, "set attention_weight: 0")
    parts = ("query", "key")
    return [
        Term(
            name=f"attention_{layer}_{target}",
            objective="attention_score_mse",
            student=tuple(StreamKey(part, layer) for part in parts),
            teacher=tuple(StreamKey(part, target) for part in parts),
            weight=weight,
            options={"heads": heads},
        )
        for layer, targets in mapping.items()
        for target in targets
    ]


def embedding_term(pairing: Pairing, weight: float) -> Term:
    """Make the `hidden_mse` between the embedding outputs, with a learned map."""
    key = (StreamKey("embedding", 0),)
    return Term("embedding", "hidden_mse", key, key, weight, learned_map=learned_map(pairing))


def equal_heads(pairing: Pairing, method: str, otherwise: str = "") -> int:
    """Return the number of attention heads that both models have.

    Args:
        pairing: The two models.
        method: Who needs it, for the message.
        otherwise: Another way out beside minilmv2, for the message.

    Raises:
        RecipeError: if the numbers differ, or keys are shared between heads in one model only.
    """
    student, teacher = pairing.student, pairing.teacher
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


def kept(terms: list[Term], method: str) -> list[Term]:
    """Leave out the terms of weight 0.

    Raises:
        RecipeError: if none is left.
    """
    found = [term for term in terms if term.weight > 0]
    if not found:
        raise RecipeError(f"{method} has only weights of 0; give at least one of them a value above 0.")
    return found


# The terms on output scores, as the task has them: vocabulary, classes, a value, or answer positions.


Positions: TypeAlias = Literal["masked", "all"]


def soft_label_term(pairing: Pairing, weight: float, temperature: float = 1.0, positions: Positions = "masked") -> Term:
    """Make the term that teaches the teacher's scores.

    Text: the vocabulary's distribution at the masked or at all positions. Classification: the distribution over
    classes. Question answering: the distributions of start and end over the tokens. Regression: the squared error of
    the value, for which a temperature means nothing.

    Args:
        pairing: The two models and the task.
        weight: Coefficient.
        temperature: T, above 0.
        positions: For text only.
    """
    keys = _logits(pairing)
    if pairing.task == "regression":
        return Term("soft_label", "soft_label_mse", *keys, weight)
    on_text: Rows = "label" if positions == "masked" else "token"
    rows: Rows = on_text if pairing.task == "text" else "sample"
    return Term("soft_label", "soft_label_kl", *keys, weight, {"temperature": temperature}, rows=rows)


def hard_label_term(pairing: Pairing, weight: float) -> Term:
    """Make the term that teaches the labels: masked tokens, classes, values, or answer positions."""
    objective = {"text": "masked_lm_ce", "regression": "hard_label_mse"}.get(pairing.task, "hard_label_ce")
    rows: Rows = "label" if pairing.task == "text" else "sample"
    return Term("hard_label", objective, _logits(pairing)[0], (), weight, rows=rows)


def _logits(pairing: Pairing) -> tuple[tuple[StreamKey], tuple[StreamKey]]:
    return (StreamKey("logits", pairing.student.layers),), (StreamKey("logits", pairing.teacher.layers),)
