"""A student's start: the steps that give its tensors their first values, from a model that is its *source*.

A start runs the steps of `STARTS` in the order of their places: the vocabulary, the embeddings, the layers, a fit on
text, and the task head. Two parts of a student start later: its pooler, when the student is saved
(`start_pooler.py`), and the map that it keeps behind its pooling, on the first text that it is trained on
(`start_kept_map.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from limbeck.core.progress import Tick, no_tick
from limbeck.core.records import Initialisation
from limbeck.core.registry import PluginPoint, Registry
from limbeck.errors import ModelError
from limbeck.models.bases import Bases
from limbeck.models.families import Shape, shape_of
from limbeck.models.layer_selection import selected_layers
from limbeck.models.start_embeddings import Embeddings, embedding_mode
from limbeck.models.start_fit import Fit
from limbeck.models.start_head import TaskHead
from limbeck.models.start_layers import Layers
from limbeck.models.start_pieces import CutSource
from limbeck.models.start_step import PLACES, ReadText, SourceText, Start, StartSettings, StartStep
from limbeck.models.streams import StreamKey

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from limbeck.models.heads import Head
    from limbeck.models.token_pieces import Pieces

_OWN_STEPS: tuple[StartStep, ...] = (Embeddings(), Layers(), TaskHead())
"""Steps of every start."""
_FURTHER_STEPS: tuple[StartStep, ...] = (CutSource(), Fit())
"""Steps that run if `StartSettings.steps` names them, as those of plugins do."""


def _problem(step: StartStep) -> str | None:
    """Return the problem of a plugin's step; None where there is none."""
    if step.place in PLACES:
        return None
    return f"its place is {step.place!r}; give one of {', '.join(PLACES)}"


_POINT: PluginPoint[StartStep] = PluginPoint(
    "limbeck.starts",
    StartStep,  # type: ignore[type-abstract]  # Items are instances of its subclasses.
    "register_as_start",
    _problem,
    type,
)
STARTS: Registry[StartStep] = Registry(
    "start",
    error=ModelError,
    plugins=_POINT,
    source=lambda: ((step.name, step) for step in (*_OWN_STEPS, *_FURTHER_STEPS)),
)
"""Name to step."""

StepType = TypeVar("StepType", bound=type[StartStep])


def register_as_start(*, replace: bool = False) -> Callable[[StepType], StepType]:
    """Return a decorator that adds a step of students' starts, and returns its class as it is.

    Args:
        replace: Take the place of one that was registered before, as when a notebook's cell runs again.

    Example:
        ```python
        @register_as_start()
        class Scaled(StartStep):
            name = "scaled"
            place = "fit"

            def apply(self, start):
                factor = start.settings.steps["scaled"]["factor"]
                start.student.get_input_embeddings().weight.mul_(factor)
        ```

    Raises:
        PluginError: for a name that is taken, or a place that does not exist.
    """

    def register(step: StepType) -> StepType:
        STARTS.add(step.name, step(), replace=replace)
        return step

    return register


def steps_of(settings: StartSettings) -> list[StartStep]:
    """Return the steps that a start runs, in order.

    Raises:
        ModelError: for a step that does not exist.
    """
    steps = list(_OWN_STEPS)
    for name in settings.steps:
        step = STARTS[name]
        if step not in _OWN_STEPS:
            steps.append(step)
    # Sorting is stable: steps of one place keep their order.
    return sorted(steps, key=lambda step: PLACES.index(step.place))


def source_shape(source: Shape, settings: StartSettings) -> Shape:
    """Return the source's shape after all steps, some of which may change it, such as its vocabulary."""
    shape = source
    for step in steps_of(settings):
        shape = step.shape(shape, settings)
    return shape


def check_start(student: Shape, source: Shape, settings: StartSettings) -> None:
    """Refuse a start that cannot succeed, without loading any weight.

    Args:
        student: The student's shape.
        source: The source's shape.
        settings: The options.

    Raises:
        ModelError: for a family or vocabulary that does not match the source's, an unknown strategy, a student that is
            wider than its source, or heads that would be cut.
    """
    layers = selected_layers(settings.layers, student.layers, source.layers)
    source = source_shape(source, settings)
    mode = embedding_mode(settings.embeddings, student, source)
    takes_tensors = bool(layers) or mode != "random"
    # ELECTRA's encoder is BERT's with a map after the embeddings, so it can start from a BERT.
    is_electra_of_bert = student.model_type == "electra" and source.model_type == "bert"
    has_same_layout = student.model_type == source.model_type or is_electra_of_bert
    if takes_tensors and not has_same_layout:
        raise ModelError(
            f"A {student.model_type} student cannot start from a {source.model_type} teacher, whose tensors are "
            "laid out differently; set layers: random and embeddings: random, or choose a student of the "
            "teacher's family."
        )
    for step in steps_of(settings):
        step.check(student, source, settings)


@torch.no_grad()
def start_student(
    student: PreTrainedModel,
    source: PreTrainedModel,
    settings: StartSettings,
    *,
    head: Head | None = None,
    source_head: Head | None = None,
    texts: ReadText | None = None,
    no_text: str = "",
    pieces: Pieces | None = None,
    source_name: str = "",
    tick: Tick = no_tick,
) -> Initialisation:
    """Set the student's tensors by the steps of a start, in place.

    At equal widths tensors are exact copies. In a narrower student the word, position and type embeddings are
    projected onto the leading principal directions of the source's word embeddings, or of its hidden states, and a
    block's maps follow by their role (see `narrow_block`). A pooler is left alone, and so is a head of another kind
    than the source's.

    Args:
        student: From `build_student`; with or without a head.
        source: Whole: before any of its blocks is dropped. It is not changed.
        settings: The options.
        head: The student's head, or None.
        source_head: The head that the source was loaded with, or None.
        texts: Reads text with the source, for steps that need some; see `read_text`.
        no_text: The reason why there is no text, and the way out, for the error of a step that needs some.
        pieces: For averaged embeddings, the source's tokens of each token of the student; see `pieces_of_tokens`.
        source_name: Name of a source that is not the student's teacher, for the summary.
        tick: Receives the progress of a step that takes long.

    Returns:
        The start for the run's record, with the origin of every tensor: the names of those that are `copied`,
        `projected`, `reset` (norms, to scale 1 and shift 0) and `random`.

    Raises:
        ModelError: see `check_start`.
    """
    start = _begin(student, source, settings)
    start.head = head
    start.source_head = source_head
    start.texts = texts
    start.pieces = pieces
    start.tick = tick
    for step in steps_of(settings):
        if step.reads_text and texts is None:
            reason = no_text or "it has none; leave the start out."
            raise ModelError(f"The start '{step.name}' reads text before training, but {reason}")
        step.apply(start)

    facts: dict[str, Any] = {
        "summary": _summary(start, source_name),
        "layers": list(start.layers),
        "embeddings": start.embeddings,
        "explained": None,
    }
    # The names of tensors by their origin: `copied`, `projected`, `reset` and `random`.
    facts |= asdict(start.transfer)
    if start.embeddings in ("projected", "averaged"):
        facts["explained"] = start.bases.explained
    if head is not None:
        facts["head"] = {"kind": head, "copied": start.copied_head}
    initialisation = Initialisation.read(facts)
    if start.fit is not None:
        initialisation.fit = start.fit
    return initialisation


def _begin(student: PreTrainedModel, source: PreTrainedModel, settings: StartSettings) -> Start:
    """Check a start, choose the source's layers and the mode of the embeddings, and return it before its first step."""
    student_shape = shape_of(student.config)
    shape_of_source = shape_of(source.config)
    check_start(student_shape, shape_of_source, settings)
    layers = selected_layers(settings.layers, student_shape.layers, shape_of_source.layers)
    embeddings = embedding_mode(settings.embeddings, student_shape, source_shape(shape_of_source, settings))
    return Start(student, source, settings, layers=tuple(layers), embeddings=embeddings)


def _summary(start: Start, source_name: str) -> str:
    """Return the sentence that says what layers and embeddings start from.

    Args:
        start: The start, after all steps.
        source_name: Name of a source that is not the student's teacher; else empty.
    """
    numbers = ", ".join(map(str, start.layers))
    if not start.layers:
        layers = "random layers"
    elif source_name:
        layers = f"layers {numbers} of '{source_name}'"
    else:
        layers = f"teacher layers {numbers}"

    # `explained` is a share of the hidden states where activations chose the directions of these, and else a share of
    # the embeddings.
    bases = start.bases
    is_by_activations = bases.measured is not None
    has_share_of_hidden_states = is_by_activations and bases.hidden is not None
    is_projected = start.embeddings in ("projected", "averaged") and bases.explained is not None
    notes = ""
    if has_share_of_hidden_states:
        notes = f", narrowed by activations (keeping {bases.explained:.0%} of the hidden states)"
    else:
        if is_projected:
            notes += f" (keeping {bases.explained:.0%} of their variance)"
        if is_by_activations:
            notes += ", narrowed by activations"
    summary = f"Starts from {layers} and {start.embeddings} embeddings{notes}."
    if start.fit is None:
        return summary
    return f"{summary} {start.fit}"


def bases_of(student: PreTrainedModel, source: PreTrainedModel, settings: StartSettings) -> Bases:
    """Return the directions that a narrower student of a source keeps; see `Start.bases`."""
    return _begin(student, source, settings).bases


def read_text(source: PreTrainedModel, batches: Callable[..., Iterable[Mapping[str, torch.Tensor]]]) -> ReadText:
    """Return a function that runs the source on text, and yields each batch with the streams of the source.

    Args:
        source: The model that the student starts from; its mode is put back.
        batches: Iterates over batches of the text. Each has `input_ids`, `attention_mask` and what else the source
            takes, `[B, L]` on its device, and perhaps `skipped` (see `StreamTap`). It is called with `tokens` and
            `held_out`, see `ReadText`.
    """
    # Imported here, since a recipe's check, which imports this file, does without the models of transformers.
    from limbeck.models.evaluation_mode import evaluation_mode
    from limbeck.models.taps import StreamTap

    def read(keys: Iterable[StreamKey], *, tokens: int | None = None, held_out: bool = False) -> Iterator[SourceText]:
        with torch.no_grad(), evaluation_mode(source), StreamTap(source, keys) as tap:
            for columns in batches(tokens=tokens, held_out=held_out):
                # `skipped` says which tokens are a prompt's. It is read by the tap, and is no input of a model.
                inputs = {name: column for name, column in columns.items() if name != "skipped"}
                yield SourceText(inputs, tap(**columns))

    return read
