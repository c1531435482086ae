"""The fields of a run's record (`run.json`) that the model card reads.

Every field may be missing: the card leaves out what is not there. Fields that are not named here are ignored.
"""

from __future__ import annotations

from typing import Any, TypedDict


class TeacherFields(TypedDict, total=False):
    """The teacher: name or path, whether that is a `folder`, a `package` or on the `hub`, its name on the Hub if it has
    one, shape in words, and what its own card says of licence and language."""

    name_or_path: str
    kind: str
    hub_id: str | None
    card: dict[str, str]
    shape: str


class StudentFields(TypedDict, total=False):
    """The student: shape in words, head if it has one, parameters, and what it started from (words, or a dict's
    `summary`)."""

    shape: str
    head: str | None
    parameters: int
    initialisation: str | dict[str, Any]


class CorpusFields(TypedDict, total=False):
    """The text: source strings (`hub:` ones become data sets), counts, and what reading passed over."""

    sources: list[str]
    documents: int
    held_out_documents: int
    tokens: int
    report: dict[str, Any]


class CitationFields(TypedDict, total=False):
    """Where a method comes from."""

    title: str
    authors: str
    url: str
    bibtex: str


class LayerFields(TypedDict, total=False):
    """What layers of the student learn from which of the teacher, in which terms of the loss."""

    student: list[int]
    teacher: list[int]
    terms: list[str]


class StageFields(TypedDict, total=False):
    """One finished stage; `untrained` are the student's parameters that this stage did not train."""

    name: str
    method: str
    citation: CitationFields
    steps: int
    tokens: int
    seconds: float
    device: str
    precision: str
    layers: list[LayerFields]
    final_terms: dict[str, float]
    untrained: list[str]
    teacher: str
    teacher_facts: TeacherFields
    student: dict[str, Any]


class UntrainedFields(TypedDict, total=False):
    """Parameters that no stage trained, and what they hold: `random` or `teacher`."""

    policy: str
    names: list[str]
    from_teacher: list[str]


class RunFields(TypedDict, total=False):
    """A run's record, as far as the card reads it; `evaluation` is `Comparison.to_dict()`."""

    name: str
    created: str
    language: str
    license: str
    recipe: dict[str, Any]
    teacher: TeacherFields
    student: StudentFields
    corpus: CorpusFields
    stages: list[StageFields]
    untrained: UntrainedFields
    evaluation: dict[str, Any]
    versions: dict[str, str]
    git_commit: str
    hardware: dict[str, Any]
    seeds: dict[str, int]
    timings: dict[str, float]
    peak_memory_bytes: int
