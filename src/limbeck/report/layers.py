"""Which layers a stage joins: as its record has them, or as its method is composed again for the recorded shapes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError

from limbeck.core import records
from limbeck.core.blocks import Figure, Table, counted, slug
from limbeck.errors import LimbeckError
from limbeck.methods import composition, registry
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.report.plots import SCORES, LinkGroup, Links, layer_name
from limbeck.report.subjects import RunFolder, StageFolder

Pairs: TypeAlias = dict[tuple[int, int], None]
"""Layers of student and teacher, each pair once and in order."""
_MOST_PAIRS_IN_WORDS = 40
_MOST_LAYERS = 200
_SHAPE = re.compile(r"(\S+) (\d+)x(\d+), (\d+) heads, FFN (\d+)(?:, embedding (\d+))?")
_LAYER_NUMBERS = re.compile(r"(_\d+)+$")


@dataclass(frozen=True)
class LayerLinks:
    """The layers that the terms of a stage join.

    Args:
        drawing: Both depths, and the pairs of layers by what joins them. A depth that is not known is the highest layer
            that is read.
        terms: A row each.
        has_depths: Whether both depths are known.
    """

    drawing: Links
    terms: Table
    has_depths: bool = True

    @property
    def joins(self) -> bool:
        """Whether any layers are joined."""
        return any(group.pairs for group in self.drawing.groups)

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """The pairs of numbered layers, without scores."""
        return {pair for group in self.drawing.groups for pair in group.pairs if SCORES not in pair}


def links_of_stage(run: RunFolder, stage: StageFolder) -> LayerLinks | None:
    """Find the layers that a stage joins.

    A record has the joined layers alone. Composing the stage's method again also gives weights and terms without
    layers, so it is shown wherever it agrees with the record.
    """
    student = _student_shape(run, stage)
    teacher = _teacher_shape(run, stage)
    corpus = stage.plan.corpus or run.record.recipe.corpus or records.PlannedCorpus()
    composed = composed_links(stage.plan.method, student, teacher, corpus.task_kind, stage.layer_cosines)
    recorded = recorded_links(stage.record.layers, student, teacher)
    if recorded is None:
        return composed
    if composed is not None and composed.pairs == recorded.pairs:
        return composed
    # The record wins where both disagree: it is what was trained.
    return recorded


def _student_shape(run: RunFolder, stage: StageFolder) -> str:
    """Return the shape of a stage's student; empty where it is not known yet."""
    # An unfinished stage that makes a student of its own has no record of it yet.
    if stage.plan.student is not None and not stage.is_finished:
        return ""
    if stage.record.student is not None and stage.record.student.shape:
        return stage.record.student.shape
    return run.record.student.shape


def _teacher_shape(run: RunFolder, stage: StageFolder) -> str:
    """Return the shape of a stage's teacher; empty where only its name is recorded."""
    planned = stage.plan.teacher
    recipe_model = run.record.recipe.teacher.model or ""
    if planned is None or (recipe_model and planned.model == recipe_model):
        return run.record.teacher.shape
    # The teacher may be the student of an earlier stage.
    for earlier in run.stages:
        if earlier.title == planned.stage:
            return earlier.record.student.shape if earlier.record.student else ""
    return ""


def composed_links(
    method: Mapping[str, Any], student: str, teacher: str, task: str = "text", layer_cosines: Sequence[float] = ()
) -> LayerLinks | None:
    """Compose a method for a student and a teacher of recorded shapes.

    Args:
        method: As a recipe's stage has it: its name and options.
        student: The shape of the student, as records write it.
        teacher: The shape of its teacher.
        task: The kind of the stage's labels, or "text".
        layer_cosines: Measured for the mapping "contribution".

    Returns:
        None where a shape cannot be read, or where no method takes the recorded options.
    """
    student_shape = _read_shape(student)
    teacher_shape = _read_shape(teacher)
    if student_shape is None or teacher_shape is None or not isinstance(method.get("name"), str):
        return None
    labels: Any = task if task in composition.LABELLED_TASKS else "text"
    pairing = composition.Pairing(student_shape, facts_of_shape(teacher_shape), labels, tuple(layer_cosines) or None)
    try:
        chosen, options = registry.read_method(method)
        terms = chosen.compose(options, pairing)
    except (LimbeckError, ValidationError):
        return None

    # Terms of one objective on the same streams share a colour.
    pairs_by_label: dict[str, Pairs] = {}
    rows = []
    for term in terms:
        streams = dict.fromkeys(key.kind for key in term.student)
        pairs = pairs_by_label.setdefault(f"{term.objective} ({', '.join(streams)})", {})
        for student_key in term.student:
            for teacher_key in term.teacher:  # A term without a teacher joins nothing.
                pairs[_layer_of(student_key), _layer_of(teacher_key)] = None
        student_streams = describe_streams(term.student)
        teacher_streams = describe_streams(term.teacher) or "labels"
        rows.append((term.name, term.objective, f"{term.weight:g}", student_streams, teacher_streams))
    headings = ("Term", "Objective", "Weight", "Student", "Teacher")
    table = Table("Terms", headings, tuple(rows), words=(1, 3, 4))
    return LayerLinks(Links(student_shape.layers, teacher_shape.layers, _groups(pairs_by_label)), table)


def recorded_links(layers: Sequence[records.LayerLink], student: str, teacher: str) -> LayerLinks | None:
    """Read the layers that a stage joined from its record.

    Args:
        layers: Of the stage's record.
        student: The shape of the student, as records write it; empty if it is not known.
        teacher: The shape of its teacher, likewise.

    Returns:
        None where nothing that can be drawn is recorded.
    """
    pairs_by_label: dict[str, Pairs] = {}
    rows = []
    for link in layers:
        student_layers = [layer for layer in link.student if 0 <= layer <= _MOST_LAYERS]
        teacher_layers = [layer for layer in link.teacher if 0 <= layer <= _MOST_LAYERS]
        for term in link.terms:
            pairs = pairs_by_label.setdefault(without_layers(term), {})
            for student_layer in student_layers:
                for teacher_layer in teacher_layers:
                    pairs[student_layer, teacher_layer] = None
            rows.append((term, ", ".join(map(str, student_layers)), ", ".join(map(str, teacher_layers))))
    all_pairs = [pair for pairs in pairs_by_label.values() for pair in pairs]
    if not all_pairs:
        return None

    # Without a shape, the highest layer in use stands for the depth.
    student_depth = max(layer for layer, _ in all_pairs)
    teacher_depth = max(layer for _, layer in all_pairs)
    student_shape = _read_shape(student)
    teacher_shape = _read_shape(teacher)
    if student_shape is not None:
        student_depth = max(student_depth, student_shape.layers)
    if teacher_shape is not None:
        teacher_depth = max(teacher_depth, teacher_shape.layers)
    table = Table("Terms", ("Term", "Student", "Teacher"), tuple(rows), words=(1, 2))
    has_depths = student_shape is not None and teacher_shape is not None
    return LayerLinks(Links(student_depth, teacher_depth, _groups(pairs_by_label)), table, has_depths)


def _groups(pairs_by_label: Mapping[str, Pairs]) -> list[LinkGroup]:
    return [LinkGroup(label, tuple(pairs)) for label, pairs in pairs_by_label.items()]


def _layer_of(key: StreamKey) -> int:
    return SCORES if key.kind == "logits" else key.layer


def without_layers(term: str) -> str:
    """Return the name that terms share which differ in their layers only: `hidden` of `hidden_1_2`."""
    return _LAYER_NUMBERS.sub("", term) or term


def describe_streams(keys: Sequence[StreamKey]) -> str:
    """Name streams by kind and layer, long lists of one kind by their ends."""
    layers_by_kind: dict[str, set[int]] = {}
    for key in keys:
        layers_by_kind.setdefault(key.kind, set()).add(key.layer)
    parts = []
    for kind, numbers in layers_by_kind.items():
        layers = sorted(numbers)
        shown = ", ".join(map(str, layers))
        if len(layers) > 3:
            shown = f"{layers[0]}–{layers[-1]}"
        parts.append(f"{kind} {shown}")
    return "; ".join(parts)


def _read_shape(text: str) -> Shape | None:
    """Read a shape as it writes itself; key heads are taken to be as many as query heads."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        return None
    layers, hidden, heads, ffn = (int(match[group]) for group in (2, 3, 4, 5))
    if not 0 < layers <= _MOST_LAYERS or not heads or hidden % heads:
        return None
    return Shape(
        model_type=match[1],
        layers=layers,
        hidden=hidden,
        heads=heads,
        key_value_heads=heads,
        head_size=hidden // heads,
        ffn=ffn,
        vocabulary=0,
        embedding=int(match[6] or hidden),
        positions=None,
    )


def layers_figure(title: str, links: LayerLinks, caption: str = "") -> Figure:
    """Draw which layers of the student learn from which layers of the teacher, and list the terms."""
    depths = f"Student of {counted(links.drawing.student, 'layer')}, teacher of {links.drawing.teacher}"
    if not links.has_depths:
        depths += " or more"
        unknown = "The depth of the models is not recorded: layers above the highest one in use are not drawn."
        caption = f"{caption} {unknown}".strip()
    groups = " ".join(_describe_group(group) for group in links.drawing.groups)
    return Figure(slug(title), title, caption, f"{depths}. {groups}", links.drawing, links.terms)


def _describe_group(group: LinkGroup) -> str:
    if not group.pairs:
        return f"{group.label}: uses no teacher."
    shown = group.pairs[:_MOST_PAIRS_IN_WORDS]
    pairs = ", ".join(f"{layer_name(student)} from {layer_name(teacher)}" for student, teacher in shown)
    left_out = len(group.pairs) - len(shown)
    more = f" and {left_out} more" if left_out else ""
    return f"{group.label}: {pairs}{more}."
