"""Student blueprints: the shape of a student, read from a short text such as `6x384`, a preset's name, or fields.

A *shape* is the number of layers, the widths and the number of heads. A *preset* is a published student's shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from limbeck.core.registry import Registry
from limbeck.errors import ModelError, suggestion
from limbeck.models.families import Shape, describe_size


@dataclass(frozen=True)
class Preset:
    """A published student's shape, and its source; numbers that are None follow the rules of `parse_blueprint`."""

    layers: int
    hidden: int
    source: str
    heads: int | None = None
    ffn: int | None = None
    embedding: int | None = None


_PRESETS = {
    "minilm-6x384": Preset(
        6, 384, "MiniLM (Wang et al. 2020), tables 3 and 4; also ELM §5.2 and the comparative study, table 1."
    ),
    "minilm-4x384": Preset(4, 384, "MiniLM (Wang et al. 2020), tables 3 and 4."),
    "minilm-3x384": Preset(3, 384, "MiniLM (Wang et al. 2020), tables 3 and 4."),
    "minilm-12x384": Preset(12, 384, "MiniLM (Wang et al. 2020), tables 4 and 8."),
    "minilm-6x768": Preset(6, 768, "MiniLM (Wang et al. 2020), table 2; the DistilBERT shape; MiniLMv2, table 1."),
    "minilmv2-12x384-e128": Preset(
        12, 384, "MiniLMv2 (Wang et al. 2021), table 4: 12x384 with 128-wide factorised embeddings.", embedding=128
    ),
    "tinybert-4x312": Preset(
        4, 312, "TinyBERT; ELM §5.2 and MLKD-BERT §4.2: M=4, d=312, d_i=1200, h=12.", heads=12, ffn=1200
    ),
    "nas-4x576": Preset(4, 576, "The comparative study, table 1: 4, 12, 576, 768, found by KD-NAS.", heads=12, ffn=768),
    "nas-3x384": Preset(
        3, 384, "The comparative study, table 1: 3, 12, 384, 1024, found by KD-NAS.", heads=12, ffn=1024
    ),
}
presets: Registry[Preset] = Registry("student preset", error=ModelError, source=_PRESETS.items)

# Papers' students have 12 heads whatever their width; widths that 12 does not divide get heads of 64.
USUAL_HEADS = 12
USUAL_HEAD_SIZE = 64
FFN_RATIO = 4
MAX_LAYERS = 256
MAX_WIDTH = 32_768

# Layers, hidden width and, optionally, heads.
_SIZE = re.compile(r"([0-9]{1,9})\s*[x×]\s*([0-9]{1,9})(?:h([0-9]{1,9}))?", re.IGNORECASE)
_HOW = (
    "write LAYERSxHIDDEN like '6x384' or '6x384h6', a number of the teacher's layers like '3', a preset, or in a "
    "recipe the fields layers, hidden, heads, ffn, embedding"
)
_DEPTH = re.compile(r"\s*[0-9]{1,9}\s*")


WHOLE = "all"
"""The shape of a student that has all layers of the model that it starts from, with its widths and heads."""

Width: TypeAlias = Annotated[int, Field(ge=1, le=MAX_WIDTH, strict=True)]


class StudentBlueprint(BaseModel):
    """A student's shape. Everything else (vocabulary, positions, activation, …) is the teacher's.

    `heads` must divide `hidden`. The feed-forward width is never taken from the teacher.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(ge=1, le=MAX_LAYERS, strict=True, description="Number of blocks.")
    hidden: Width = Field(description="Width of the hidden states.")
    heads: Width = Field(description="Attention heads of a block; a divisor of hidden.")
    ffn: int = Field(ge=1, le=4 * MAX_WIDTH, strict=True, description="Inner width of the feed-forward part.")
    embedding: Width | None = Field(
        default=None, description="Width of factorised word embeddings; unset: hidden, or the teacher's if factorised."
    )
    dropout: float | None = Field(
        default=None, ge=0.0, lt=1.0, description="All dropout rates of the student; unset: the teacher's."
    )

    def __str__(self) -> str:
        return describe_size(self.layers, self.hidden, self.heads, self.ffn, self.embedding)


BlueprintSource: TypeAlias = int | str | Mapping[str, Any] | StudentBlueprint


def names_shape(name: str) -> bool:
    """Whether text names a shape (`"12x768"`, `"12x768h6"`, a preset) and no saved model; an existing folder wins."""
    if Path(name).is_dir():
        return False
    return name in presets or _SIZE.fullmatch(name.strip()) is not None


def depth_alone(source: object) -> int | None:
    """Return the number of layers where a shape is nothing else, `3` or `"3"`; None for every other shape."""
    if isinstance(source, str) and _DEPTH.fullmatch(source):
        return int(source)
    # True and false are whole numbers in Python, but no depths.
    if isinstance(source, int) and not isinstance(source, bool):
        return source
    return None


def names_layers(source: int | str) -> bool:
    """Whether a shape is nothing but a number of layers of the model that the student starts from, or all of them."""
    return source == WHOLE or depth_alone(source) is not None


def parse_blueprint(source: BlueprintSource, teacher: Shape | None = None) -> StudentBlueprint:
    """Read a student's shape.

    Args:
        source: `"6x384"` (layers x hidden) or `"6x384h6"` (with 6 heads), a preset's name (see `presets`), or a
            mapping with `layers` and `hidden` and any other field of `StudentBlueprint`. Unset heads are 12 where
            that divides hidden, else hidden / 64; an unset feed-forward width is 4 x hidden. A number alone is that
            many of the teacher's layers, with its widths and heads, and `"all"` is all of them.
        teacher: The shape of the teacher, or of another model to start from; only a number alone and `"all"` read it.

    Raises:
        ModelError: for text of another form, unknown or missing fields, sizes out of range, heads that do not
            divide hidden, a width for which no number of heads can be guessed, or more layers than the teacher has.
    """
    if isinstance(source, StudentBlueprint):
        return _check_heads(source)
    depth = depth_alone(source)
    if source == WHOLE and teacher is not None:
        depth = teacher.layers
    if depth is not None and teacher is not None:
        return _part_of(teacher, depth)
    if isinstance(source, Mapping):
        return _complete(source)
    return _parse_text(str(source).strip())


def check_depth(layers: int, of: int, hidden: int) -> None:
    """Refuse a student of more of the teacher's layers than it has, or of none.

    Args:
        layers: Of the student.
        of: The teacher's.
        hidden: Width of the teacher.

    Raises:
        ModelError: with what can be given.
    """
    if 1 <= layers <= of:
        return
    problem = "would have no layer"
    if layers > of:
        problem = f"would keep {layers} of the teacher's layers, but the teacher has only {of}"
    raise ModelError(
        f"The student '{layers}' {problem}; give --student a number from 1 to {of}, or a shape such as "
        f"{max(1, min(layers, MAX_LAYERS))}x{hidden}."
    )


def _part_of(teacher: Shape, layers: int) -> StudentBlueprint:
    """Return the shape of a student of some of the teacher's layers."""
    check_depth(layers, teacher.layers, teacher.hidden)
    embedding = None
    if teacher.embedding != teacher.hidden:
        embedding = teacher.embedding
    return StudentBlueprint(
        layers=layers, hidden=teacher.hidden, heads=teacher.heads, ffn=teacher.ffn, embedding=embedding
    )


def _parse_text(text: str) -> StudentBlueprint:
    """Read a preset's name, or a shape such as 6x384h6."""
    if text in presets:
        fields = asdict(presets[text])
        del fields["source"]
        return _complete(fields)
    size = _SIZE.fullmatch(text)
    if size is None:
        raise ModelError(f"Cannot read the student '{text[:80]}': {_HOW}.{suggestion(text, presets)}")
    layers = int(size[1])
    hidden = int(size[2])
    heads = None if size[3] is None else int(size[3])
    if layers > MAX_LAYERS and 1 <= hidden <= MAX_LAYERS:
        raise ModelError(
            f"The student '{text}' would have {layers} layers, because layers come first; if the numbers are "
            f"swapped, write '{hidden}x{layers}'."
        )
    return _complete({"layers": layers, "hidden": hidden, "heads": heads})


def _complete(named_fields: Mapping[str, Any]) -> StudentBlueprint:
    """Fill in the heads and the feed-forward width by the rules, and check the whole."""
    fields = dict(named_fields)
    known = list(StudentBlueprint.model_fields)
    for name in fields:
        if name not in known:
            raise ModelError(f"A student has no field '{name}'.{suggestion(str(name), known)}")
    for name in ("layers", "hidden"):
        if fields.get(name) is None:
            raise ModelError(f"The student lacks '{name}': {_HOW}.")
    # The rules need a possible width. Beside any other width 1 is filled in, which is a valid number, so that the
    # validation below refuses the width.
    hidden = fields["hidden"]
    is_possible_width = isinstance(hidden, int) and 1 <= hidden <= MAX_WIDTH
    if fields.get("heads") is None:
        fields["heads"] = _usual_heads(fields["layers"], hidden) if is_possible_width else 1
    if fields.get("ffn") is None:
        fields["ffn"] = FFN_RATIO * hidden if is_possible_width else 1
    try:
        blueprint = StudentBlueprint(**fields)
    except ValidationError as error:
        # One field is enough for the message, which stays in a line.
        problem = error.errors()[0]
        field = problem["loc"][0]
        message = problem["msg"]
        rule = message[:1].lower() + message[1:]
        raise ModelError(f"The student's {field} cannot be {_shorten(problem['input'])}: {rule}.") from error
    return _check_heads(blueprint)


def _shorten(value: Any) -> str:
    """Return a value for a message, within 80 characters."""
    try:
        return repr(value)[:80]
    except ValueError:  # An integer of more digits than Python writes.
        return "such a long number"


def _usual_heads(layers: Any, hidden: int) -> int:
    """Return the heads of a student that names none.

    Args:
        layers: Its layers, for the message.
        hidden: Its width.

    Raises:
        ModelError: for a width that the rules do not cover.
    """
    if hidden % USUAL_HEADS == 0:
        return USUAL_HEADS
    if hidden % USUAL_HEAD_SIZE == 0:
        return hidden // USUAL_HEAD_SIZE
    example = f"{layers}x{hidden}h{_nearest_heads(hidden)}"
    raise ModelError(
        f"The hidden width {hidden} can be divided neither into {USUAL_HEADS} heads nor into heads of width "
        f"{USUAL_HEAD_SIZE}; give the number of heads behind the shape, as in {example}."
    )


def _check_heads(blueprint: StudentBlueprint) -> StudentBlueprint:
    """Return a blueprint as it is, whose heads divide its width.

    Raises:
        ModelError: for one whose heads do not.
    """
    if blueprint.hidden % blueprint.heads:
        raise ModelError(
            f"{blueprint.heads} heads do not divide the student's hidden width {blueprint.hidden}; give "
            f"{_nearest_heads(blueprint.hidden, blueprint.heads)} heads, which do."
        )
    return blueprint


def _nearest_heads(hidden: int, wanted: int | None = None) -> int:
    """Return the divisor of hidden nearest to the wanted number of heads, or to heads of 64."""
    aim = wanted
    if aim is None:
        aim = max(1, hidden // USUAL_HEAD_SIZE)
    divisors = [heads for heads in range(1, hidden + 1) if hidden % heads == 0]
    # The smaller of two that are as near.
    return min(divisors, key=lambda heads: (abs(heads - aim), heads))
