"""Student blueprints: what shape a student has, from a short string, a preset's name or fields by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from limbeck.errors import ModelError, suggestion
from limbeck.models.families import Shape
from limbeck.models.presets import presets

# Papers' students have 12 heads whatever their width; widths that 12 does not divide get heads of 64.
USUAL_HEADS = 12
USUAL_HEAD_SIZE = 64
FFN_RATIO = 4
MAX_LAYERS = 256
MAX_WIDTH = 32_768

_SIZE = re.compile(r"([0-9]{1,9})\s*[x×]\s*([0-9]{1,9})(?:h([0-9]{1,9}))?", re.IGNORECASE)
_HOW = "write LAYERSxHIDDEN like '6x384' or '6x384h6', a preset, or the fields layers, hidden, heads, ffn, embedding"


class StudentBlueprint(BaseModel):
    """A student's shape. Everything else (vocabulary, positions, activation, …) is the teacher's.

    `heads` must divide `hidden`. The feed-forward width is never taken from the teacher.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(ge=1, le=MAX_LAYERS, strict=True, description="Number of blocks.")
    hidden: int = Field(ge=1, le=MAX_WIDTH, strict=True, description="Width of the hidden states.")
    heads: int = Field(ge=1, le=MAX_WIDTH, strict=True, description="Attention heads of a block; divides hidden.")
    ffn: int = Field(ge=1, le=4 * MAX_WIDTH, strict=True, description="Inner width of the feed-forward part.")
    embedding: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WIDTH,
        strict=True,
        description="Width of factorised word embeddings; unset: hidden, or the teacher's if factorised.",
    )
    dropout: float | None = Field(
        default=None, ge=0.0, lt=1.0, description="All dropout rates of the student; unset: the teacher's."
    )

    def __str__(self) -> str:
        factorised = f", embedding {self.embedding}" if self.embedding else ""
        return f"{self.layers}x{self.hidden}, {self.heads} heads, FFN {self.ffn}{factorised}"


BlueprintSource: TypeAlias = str | Mapping[str, Any] | StudentBlueprint


def parse_blueprint(source: BlueprintSource) -> StudentBlueprint:
    """Read a student's shape.

    Args:
        source: `"6x384"` (layers x hidden) or `"6x384h6"` (with 6 heads), a preset's name (see `presets`), or a
            mapping with `layers` and `hidden` and any other field of `StudentBlueprint`. Unset heads are 12 where
            that divides hidden, else hidden / 64; an unset feed-forward width is 4 x hidden.

    Raises:
        ModelError: for text that is neither, unknown or missing fields, sizes out of range, heads that do not
            divide hidden, or a width for which no number of heads can be guessed.
    """
    if isinstance(source, StudentBlueprint):
        return _check_heads(source)
    if isinstance(source, str):
        return _parse_text(source.strip())
    return _complete(dict(source))


def blueprint_like(shape: Shape, layers: int) -> StudentBlueprint:
    """Return the blueprint of a model with `shape` but another depth, for example of a truncated teacher."""
    return StudentBlueprint(
        layers=layers,
        hidden=shape.hidden,
        heads=shape.heads,
        ffn=shape.ffn,
        embedding=shape.embedding if shape.embedding != shape.hidden else None,
    )


def _parse_text(text: str) -> StudentBlueprint:
    if text in presets:
        preset = presets[text]
        return _complete(
            {
                "layers": preset.layers,
                "hidden": preset.hidden,
                "heads": preset.heads,
                "ffn": preset.ffn,
                "embedding": preset.embedding,
            }
        )
    size = _SIZE.fullmatch(text)
    if size is None:
        raise ModelError(f"Cannot read the student '{text[:80]}': {_HOW}.{suggestion(text, presets)}")
    layers, hidden = int(size[1]), int(size[2])
    if layers > MAX_LAYERS and 1 <= hidden <= MAX_LAYERS:
        raise ModelError(f"The student '{text}' would have {layers} layers; layers come first: '{hidden}x{layers}'?")
    return _complete({"layers": layers, "hidden": hidden, "heads": None if size[3] is None else int(size[3])})


def _complete(fields: dict[str, Any]) -> StudentBlueprint:
    """Fill in the heads and the feed-forward width by the rules, and check the whole."""
    known = list(StudentBlueprint.model_fields)
    for name in fields:
        if name not in known:
            raise ModelError(f"A student has no field '{name}'.{suggestion(str(name), known)}")
    for name in ("layers", "hidden"):
        if fields.get(name) is None:
            raise ModelError(f"The student lacks '{name}': {_HOW}.")
    # Range errors of hidden belong to the model below; a guess only makes sense for a sane width.
    hidden = fields["hidden"]
    if isinstance(hidden, int) and 1 <= hidden <= MAX_WIDTH:
        if fields.get("heads") is None:
            fields["heads"] = _usual_heads(hidden)
        if fields.get("ffn") is None:
            fields["ffn"] = FFN_RATIO * hidden
    else:
        fields |= {"heads": fields.get("heads") or 1, "ffn": fields.get("ffn") or 1}
    try:
        blueprint = StudentBlueprint(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ModelError(f"The student's {name} cannot be {_shown(first['input'])}: {_rule(first['msg'])}.") from error
    return _check_heads(blueprint)


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80]
    except ValueError:  # An integer of more digits than Python writes.
        return "so long a number"


def _rule(message: str) -> str:
    return message[:1].lower() + message[1:]


def _usual_heads(hidden: int) -> int:
    if hidden % USUAL_HEADS == 0:
        return USUAL_HEADS
    if hidden % USUAL_HEAD_SIZE == 0:
        return hidden // USUAL_HEAD_SIZE
    raise ModelError(
        f"Neither {USUAL_HEADS} heads nor heads of {USUAL_HEAD_SIZE} divide hidden {hidden}; "
        f"say how many, for example {{layers: …, hidden: {hidden}, heads: {_nearest_heads(hidden)}}}."
    )


def _check_heads(blueprint: StudentBlueprint) -> StudentBlueprint:
    if blueprint.hidden % blueprint.heads:
        raise ModelError(
            f"{blueprint.heads} heads do not divide the student's hidden width {blueprint.hidden}; "
            f"{_nearest_heads(blueprint.hidden, blueprint.heads)} would."
        )
    return blueprint


def _nearest_heads(hidden: int, wanted: int | None = None) -> int:
    """Return the divisor of hidden nearest to the wanted number of heads, or to heads of 64."""
    aim = wanted or max(1, hidden // USUAL_HEAD_SIZE)
    divisors = [n for n in range(1, hidden + 1) if hidden % n == 0]
    return min(divisors, key=lambda n: (abs(n - aim), n))
