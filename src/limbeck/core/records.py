"""Records: the JSON files in which a run and its stages say how they were made, typed.

`limbeck.core.recording` says how records are read and written. `limbeck.core.studies` holds the records of comparisons,
searches, evaluations and inspections, `limbeck.core.exports` that of exports.

The modules are used by their names: `records.Run`, `studies.Comparison`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from limbeck.core.files import read_json
from limbeck.core.recording import MOST_BYTES as MOST_BYTES
from limbeck.core.recording import File as File
from limbeck.core.recording import Number as Number
from limbeck.core.recording import Record as Record
from limbeck.core.recording import flat as flat
from limbeck.core.recording import load as load
from limbeck.core.recording import plain as plain
from limbeck.core.recording import save as save
from limbeck.core.recording import text_of as text_of
from limbeck.core.recording import timestamp as timestamp

STAGES, RUN_STUDENT, INPUTS = "stages", "student", "inputs"
"""Folders of a run: of its stages, and of its student, which a stage with a separate one has too."""


def last_part(name: str) -> str:
    """Return the last part of a model's name; of the model in the folder of a run or a fine-tuning, the folder's."""
    parts = [part for part in name.removeprefix("package:").rstrip("/").split("/") if part]
    return parts[-2] if len(parts) > 1 and parts[-1] in (RUN_STUDENT, "model") else parts[-1] if parts else name


def run_of(student: Path) -> Path | None:
    """Return the folder of the run that made a student; None where no run did.

    Args:
        student: The student's folder, in the run's folder or in that of a stage.
    """
    student = student.resolve()
    if student.name != RUN_STUDENT or len(student.parents) < 3:
        return None
    run = student.parents[2] if student.parents[1].name == STAGES else student.parent
    return run if (run / Run.FILE).is_file() else None


def record_damage(folder: Path) -> str | None:
    """Return a line where the record of a run is there and cannot be read; None where all is well, or there is none."""
    path = folder / Run.FILE
    # A record that is whole is never empty.
    if not path.is_file() or read_json(path):
        return None
    return f"'{path}' is damaged and cannot be read, so it does not say what the run was or how it ended."


# A run: `run.json` and `heartbeat.json` in its folder.


class CardFields(Record):
    """Licence and language of a model, as its card says them."""

    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    language: str | list[str] | None = None


class Teacher(Record):
    """A teacher: its name or path, whether that is a `folder`, a `package` or on the `hub`, and its shape in words.

    Attributes:
        weights: Hash of its weights, configuration and tokenizer, wherever they lie.
    """

    name_or_path: str = ""
    shape: str = ""
    weights: str | None = None
    kind: str | None = None
    hub_id: str | None = None
    card: CardFields | None = None


class Initialisation(Record):
    """How a student started: a sentence, the teacher's layers, and the share of variance that narrowing kept.

    `copied` and `projected` are the tensors that were made of the teacher's, by their names in the base model.
    """

    summary: str = ""
    layers: list[int] = Field(default_factory=list)
    embeddings: str | None = None
    explained: Number | None = None
    copied: list[str] = Field(default_factory=list)
    projected: list[str] = Field(default_factory=list)

    def took(self, name: str) -> bool:
        """Return whether a tensor started with the teacher's values, by its name in the student."""
        return any(name == one or name.endswith(f".{one}") for one in (*self.copied, *self.projected))


class Student(Record):
    """A student: its shape in words, its head if it has one, its parameters, and how it started."""

    shape: str = ""
    head: str | None = None
    parameters: Number | None = None
    initialisation: Initialisation | str | None = None

    @property
    def start(self) -> str:
        """How it started, in a sentence; empty where that is not known."""
        found = self.initialisation
        return found.summary if isinstance(found, Initialisation) else found or ""


class CorpusView(Record):
    """The text of a stage: its unit, longest block in tokens, extent and fingerprint.

    Attributes:
        fingerprint: Name of its cache, which follows from paths and dates.
        content: A hash of what each source gave, wherever it lies; empty where an earlier version wrote none.
        roles: Share of each role in what is trained on; None where no source has one.
        pieces: Rows to train on by the unit that they are, of a stream those of its beginning; None without `units`.
    """

    stage: str | None = None
    unit: str | None = None
    length: Number | None = None
    streamed: bool | None = None
    blocks: Number | None = None
    tokens: Number | None = None
    shares: dict[str, Number] | None = None
    fingerprint: str | None = None
    content: list[str] = Field(default_factory=list)
    roles: dict[str, Number] | None = None
    pieces: dict[str, Number] | None = None


class SourceNotes(Record):
    """What reading text skipped or repaired: counts and examples by kind."""

    counts: dict[str, Number] = Field(default_factory=dict)
    examples: dict[str, Any] = Field(default_factory=dict)


class CorpusText(Record):
    """The text of a run: sources, counts (None of a stream), what reading skipped, and each stage's view.

    Attributes:
        mixed: Stage to what the shares of its sources follow; the shares are in its view.
    """

    sources: list[str] = Field(default_factory=list)
    documents: Number | None = None
    held_out_documents: Number | None = None
    tokens: Number | None = None
    report: SourceNotes = Field(default_factory=SourceNotes)
    views: list[CorpusView] = Field(default_factory=list)
    mixed: dict[str, str] = Field(default_factory=dict)


class Citation(Record):
    """Where a method is from."""

    title: str = ""
    authors: str = ""
    url: str = ""
    bibtex: str | None = None


class LayerLink(Record):
    """Layers of the student, the layers of the teacher they learn from, and the terms of the loss that join them.

    Attributes:
        vectors: Whether a term brings the student's sentence vectors to the teacher's place; older records have none.
    """

    student: list[int] = Field(default_factory=list)
    teacher: list[int] = Field(default_factory=list)
    terms: list[str] = Field(default_factory=list)
    vectors: bool | None = None

    @property
    def aligns_vectors(self) -> bool:
        """Whether the student's sentence vectors are in the teacher's space; of older records by a term's name."""
        return bool(self.vectors) or (self.vectors is None and "pooled_cosine" in self.terms)


class Drawn(Record):
    """The rows of each source that a stage trained on, their shares, and what a stream skipped."""

    rows: dict[str, Number] = Field(default_factory=dict)
    shares: dict[str, Number] = Field(default_factory=dict)
    report: SourceNotes | None = None


RANGES = r"^(\d+(-\d+)?(,\d+(-\d+)?)*)?$"
Ranges: TypeAlias = Annotated[str, Field(pattern=RANGES)]
"""Rows of a table in order, such as `0-98,103`."""


class Stage(File):
    """A finished stage: `stage.json`, and an entry of `run.json`; the latter has what the plan adds, from `layers`.

    Attributes:
        drawn: None where sources are not mixed.
        lengths: Of a schedule, in its order: each `length`, with the `steps` and `tokens` that were trained at it.
        final_terms: The last logged loss of each term.
        held_out: The loss and its terms on held-out text.
        weights: Size and hash of its file of weights.
        untrained: The student's parameters that this stage did not train.
        unread: Of its embedding tables, the rows that this stage did not train; older records have none.
        teacher_precision: `int8` where the teacher's linear maps were quantised.
        student: Of a stage with a separate student.
        teacher: Of a stage with a separate teacher; `teacher_facts` where no stage trained it.
    """

    FILE = "stage.json"

    name: str = ""
    method: str = ""
    steps: Number | None = None
    rows_a_step: Number | None = None
    tokens: Number | None = None
    seconds: Number | None = None
    tokens_per_second: Number | None = None
    drawn: Drawn | None = None
    lengths: list[dict[str, Number]] = Field(default_factory=list)
    padding_share: Number | None = None
    precision: str | None = None
    device: str | None = None
    skipped_steps: Number | None = None
    rows_of_a_piece: Number | None = None
    final_loss: Number | None = None
    final_terms: dict[str, Number | None] = Field(default_factory=dict)
    held_out: dict[str, Number | None] = Field(default_factory=dict)
    untrained: list[str] = Field(default_factory=list)
    frozen: list[str] = Field(default_factory=list)
    unread: dict[str, Ranges] = Field(default_factory=dict)
    weights: dict[str, Any] | None = None
    teacher_precision: str | None = None
    layers: list[LayerLink] = Field(default_factory=list)
    student: Student | None = None
    teacher: str | None = None
    teacher_facts: Teacher | None = None
    citation: Citation | None = None


class UnreadRows(Record):
    """Rows of an embedding table that no stage trained, since no batch read them.

    Attributes:
        table: The parameter.
        kind: What a row stands for: `tokens`, `positions` or `segments`.
        rows: Rows of the table.
        unread: How many were not trained.
        first: The first of them; all are in the records of the stages.
        from_teacher: Whether they were given the teacher's values after training.
    """

    table: str = ""
    kind: str = ""
    rows: Number | None = None
    unread: Number | None = None
    first: str = ""
    from_teacher: bool = False

    def __str__(self) -> str:
        return f"{self.unread or 0:,.0f} of {self.rows or 0:,.0f} {self.kind.removesuffix('s')} embeddings"


class Untrained(Record):
    """Parameters that no stage trained; those of `from_teacher` were given the teacher's values after training."""

    policy: str | None = None
    names: list[str] = Field(default_factory=list)
    from_teacher: list[str] = Field(default_factory=list)
    frozen: list[str] = Field(default_factory=list)
    rows: list[UnreadRows] = Field(default_factory=list)


def modules_of(names: Sequence[str]) -> list[str]:
    """Name the modules two levels above tensors, each once: `encoder.layer.2.output` says enough of its weights."""
    return list(dict.fromkeys(".".join(name.split(".")[:-2]) or name for name in names))


def read_by_student(names: Iterable[str], folder: Path) -> list[str]:
    """Leave out the pooler of a student whose sentence vectors are made without it.

    Args:
        names: Of tensors.
        folder: The student's, with `modules.json` in it where its vectors are a mean or a first token's.
    """
    is_pooled = (folder / "modules.json").is_file()
    return [name for name in names if not (is_pooled and name.startswith("pooler."))]


class Hardware(Record):
    """The machine."""

    device: str | None = None
    accelerators: list[str] = Field(default_factory=list)
    cpu: str | None = None
    cores: Number | None = None
    memory_bytes: Number | None = None
    threads: Number | None = None
    platform: str | None = None


class PlannedCorpus(Record):
    """The text of a recipe, as far as records are read for it."""

    sources: list[str] = Field(default_factory=list)
    task: dict[str, Any] | None = None
    development: Any = None

    @property
    def task_kind(self) -> str:
        """The kind of its rows' labels; `text` of none."""
        found = (self.task or {}).get("kind")
        return str(found) if found else "text"


class PlannedTeacher(Record):
    """A teacher of a recipe: a model, or the student of a stage."""

    model: str | None = None
    revision: str | None = None
    name: str | None = None
    stage: str | None = None


class PlannedStage(Record):
    """A stage of a recipe; `method` is its name and options."""

    name: str | None = None
    method: dict[str, Any] = Field(default_factory=dict)
    corpus: PlannedCorpus | None = None
    teacher: PlannedTeacher | None = None
    student: dict[str, Any] | None = None

    @property
    def method_name(self) -> str:
        """The name of its method; empty where there is none."""
        return str(self.method.get("name") or "")


class PlannedRun(Record):
    """The recipe of a run, as a record holds it."""

    name: str | None = None
    seed: int | None = None
    teacher: PlannedTeacher = Field(default_factory=PlannedTeacher)
    corpus: PlannedCorpus | None = None
    stages: list[PlannedStage] = Field(default_factory=list)


class Made(File):
    """The base of the records of runs, comparisons and searches: name, status, times and the machine."""

    name: str | None = None
    status: str | None = None
    created: str | None = None
    updated: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
    hardware: Hardware = Field(default_factory=Hardware)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.status == "finished"


# The evaluation of a run: teacher beside student.


class Times(Record):
    """Milliseconds of a pass."""

    median_ms: Number | None = None
    p10_ms: Number | None = None
    p90_ms: Number | None = None


class BatchLatency(Record):
    """Times and speedups of teacher and student at one batch size.

    Attributes:
        batch_size: Texts per pass.
        rounds: Timed passes of each model.
        teacher: Times of the teacher's whole encoder.
        student: Times of the student's whole encoder.
        teacher_transformer: Times of the teacher's blocks.
        student_transformer: Times of the student's blocks.
        speedup: Median over rounds of teacher time / student time, whole encoder.
        transformer_speedup: The same of the blocks.
    """

    batch_size: int | None = None
    rounds: Number | None = None
    teacher: Times = Field(default_factory=Times)
    student: Times = Field(default_factory=Times)
    teacher_transformer: Times = Field(default_factory=Times)
    student_transformer: Times = Field(default_factory=Times)
    speedup: Number | None = None
    transformer_speedup: Number | None = None


class Latency(Record):
    """Latency of a teacher and its student on one machine.

    Attributes:
        device: Kind of device, and its name where there is one.
        threads: PyTorch's threads.
        dtype: Of weights and activations.
        length: Tokens per text, all of them real (no padding).
        batches: One entry a batch size.
    """

    device: str | None = None
    threads: Number | None = None
    dtype: str | None = None
    length: Number | None = None
    batches: list[BatchLatency] = Field(default_factory=list)


class Parameters(Record):
    """Parameters by place."""

    embedding: Number | None = None
    transformer: Number | None = None
    pooler: Number | None = None
    head: Number | None = None
    total: Number | None = None


class Retrieval(Record):
    """Share of summaries that find their bodies.

    Attributes:
        mrr_at_10: Mean over summaries of 1/rank of the right body, 0 where the rank is above 10.
        recall_at_1: Share of summaries whose right body comes first.
        pool: Number of pairs: each summary searches this many bodies.
        interval: 95 % interval of `mrr_at_10` (normal approximation over summaries).
        ndcg_at_10: Mean over summaries of 1 / log2(1 + rank) of the right body, 0 where the rank is above 10.
        recall_at_10: Share of summaries whose right body is among the first ten.
        intervals: Those of `ndcg_at_10` and `recall_at_10`, by name.
    """

    mrr_at_10: Number | None = None
    recall_at_1: Number | None = None
    pool: Number | None = None
    interval: list[Number | None] | None = None
    ndcg_at_10: Number | None = None
    recall_at_10: Number | None = None
    intervals: dict[str, list[Number | None]] = Field(default_factory=dict)


class ModelFigures(Record):
    """The figures of one model.

    Attributes:
        parameters: By place.
        megabytes: Of its weights.
        megabytes_of: "files" where a folder was given, else "tensors": as the model is in memory.
        retrieval: Its retrieval figures, or None.
    """

    parameters: Parameters = Field(default_factory=Parameters)
    megabytes: Number | None = None
    megabytes_of: str | None = None
    retrieval: Retrieval | None = None


class Agreement(Record):
    """Spearman agreement of a student with its teacher.

    Attributes:
        spearman: Over all pairs; depends on the mixture of kinds, so compare it only between equal pair sets.
        interval: Its 95 % interval, by resampling documents; None of fewer than five.
        pairs: Number of pairs.
        documents: Number of documents they are from.
        by_kind: The same within each kind of pair, undefined (NaN, in files None) where there is none.
        seed: Of the choice of pairs and of the resampling.
        examples: The pairs whose places in the two orders are furthest apart, as shares of all pairs.
    """

    spearman: Number | None = None
    interval: list[Number | None] | None = None
    pairs: Number | None = None
    documents: Number | None = None
    by_kind: dict[str, Number | None] = Field(default_factory=dict)
    seed: int | None = None
    examples: list[Disagreement] = Field(default_factory=list)


class CutVectors(Record):
    """Figures of sentence vectors of both models that are cut to their first components, and scaled to length one.

    Attributes:
        width: Components that are left.
        agreement: Of the student's similarities with those of the teacher's whole vectors.
        teacher: The teacher's retrieval.
        student: The student's retrieval.
        asymmetric: Retrieval of the student's queries in the teacher's documents.
    """

    width: int = 0
    agreement: Agreement | None = None
    teacher: Retrieval | None = None
    student: Retrieval | None = None
    asymmetric: Retrieval | None = None


class TaskFigures(Record):
    """Scores of both models on the same held-out rows of a task.

    Attributes:
        task: A key of `limbeck.evaluation.held_out_scores.METRICS`.
        metric: Its value there; 0 to 1, or -1 to 1 for a correlation.
        rows: Number of rows (windows for question answering).
        teacher: The teacher's score; None without a teacher, as is a correlation with constant values.
        student: The student's score.
        agreement: The same metric with the teacher's predictions in place of the labels.
        only_answer: Whether the student gives one answer to all rows.
        stage: The stage that the task is from.
        teacher_name: The teacher.
        unavailable: Why there are no scores.
    """

    task: str | None = None
    metric: str | None = None
    rows: Number | None = None
    teacher: Number | None = None
    student: Number | None = None
    agreement: Number | None = None
    only_answer: bool | None = None
    stage: str | None = None
    teacher_name: str | None = None
    unavailable: str | None = None


class LabelFigures(Record):
    """F1 of both models on one class, label or type of entity, 0 to 1; `rows` is how often the labels have it."""

    label: str = ""
    rows: Number | None = None
    teacher: Number | None = None
    student: Number | None = None


class Disagreement(Record):
    """A row to which teacher and student give different answers, all of them in words.

    Attributes:
        text: The row's text, or the passage of a question, as far as it is shown.
        pair: Its second text, or the question; empty where there is none.
        label: The row's label.
        teacher: The teacher's answer.
        student: The student's answer.
        distance: How far apart the answers are: half the sum of the differences of their probabilities (0 to 1) where
            there are classes, the largest of them where a row may have several, the difference of values, 1 - F1 of
            answers, the share of words with another tag, the difference of ranks as a share of all pairs of sentences.
    """

    text: str = ""
    pair: str = ""
    label: str = ""
    teacher: str = ""
    student: str = ""
    distance: Number | None = None


class DevelopmentFigures(Record):
    """Scores of both models, as they are, on the development rows of a task; none of them was trained on.

    Attributes:
        task: The task's name.
        kind: Of its labels.
        stage: The stage that it is from; None where it is the evaluation's.
        split: The scored split, or the file of the development rows.
        rows: How many there are.
        teacher: Metric to score, the main one first, as `limbeck.evaluation.metrics` has them; empty without a teacher.
        student: The student's.
        only_answer: The one answer that the student gives to all rows; None where it gives several.
        intervals: 95 % intervals of the student's scores over the rows, by metric, where there is one.
        teacher_name: The teacher.
        labels: Names of the classes, in the order of `confusion`.
        confusion: Rows of each class (a list each) by the class that the student gives them; empty without classes.
        by_label: Classes, labels or types of entities, one by one.
        disagreements: On how many rows the answers differ; None without a teacher.
        examples: The furthest apart of these, ten at most, the furthest first.
        unavailable: Why there are no scores.
    """

    task: str = ""
    kind: str = ""
    stage: str | None = None
    split: str = ""
    rows: Number | None = None
    teacher: dict[str, Number | None] = Field(default_factory=dict)
    student: dict[str, Number | None] = Field(default_factory=dict)
    intervals: dict[str, list[Number]] = Field(default_factory=dict)
    only_answer: str | None = None
    teacher_name: str | None = None
    labels: list[str] = Field(default_factory=list)
    confusion: list[list[Number]] = Field(default_factory=list)
    by_label: list[LabelFigures] = Field(default_factory=list)
    disagreements: Number | None = None
    examples: list[Disagreement] = Field(default_factory=list)
    unavailable: str | None = None

    @property
    def metric(self) -> str:
        """The main metric; empty where nothing was scored."""
        return next(iter(self.student), "")


class MeasuredWith(Record):
    """Settings of a run's evaluation; `student_pooling` where it is another than the teacher's.

    `reduced` are those defaults that had no time, by the recipe's keys, and `budget_seconds` is the time they were
    measured to fit into.
    """

    pooling: str | None = None
    student_pooling: str | None = None
    max_length: Number | None = None
    pairs: Number | None = None
    retrieval_pairs: Number | None = None
    held_out_documents: Number | None = None
    dtype: str | None = None
    seed: int | None = None
    budget_seconds: Number | None = None
    reduced: list[str] = Field(default_factory=list)


class RunEvaluation(Record):
    """A teacher beside its student.

    Attributes:
        teacher: The teacher's own figures.
        student: The student's own figures.
        latency: Both models' latency, or None.
        agreement: Agreement of the student's similarities with the teacher's, or None.
        unavailable: Figure -> the reason why there is none; one that was not asked for is None without a reason.
        settings: Pooling, lengths, sizes, dtype and seed of the request.
        seconds: Measure -> its wall time.
        task: Scores on held-out rows of the task that the student was distilled for, which the teacher may have been
            trained on.
        development: Scores of both models as they are, on development rows; one a task.
        asymmetric: Retrieval of the student's queries in the teacher's documents, of students that learned the
            teacher's sentence vectors.
        cut: The same of shorter vectors, a width each, the widest first.
    """

    teacher: ModelFigures = Field(default_factory=ModelFigures)
    student: ModelFigures = Field(default_factory=ModelFigures)
    latency: Latency | None = None
    agreement: Agreement | None = None
    unavailable: dict[str, str] = Field(default_factory=dict)
    settings: MeasuredWith = Field(default_factory=MeasuredWith)
    seconds: dict[str, Number | None] = Field(default_factory=dict)
    task: TaskFigures | None = None
    development: list[DevelopmentFigures] = Field(default_factory=list)
    asymmetric: Retrieval | None = None
    cut: list[CutVectors] = Field(default_factory=list)

    @property
    def batches(self) -> list[BatchLatency]:
        """The latency at each batch size; none where it was not measured."""
        return self.latency.batches if self.latency is not None else []

    @property
    def first_batch(self) -> BatchLatency:
        """The latency at the first batch size."""
        return self.batches[0] if self.batches else BatchLatency()


class Run(Made, CardFields):
    """A run: `run.json`, written at every turn.

    Attributes:
        problem: Why it failed or stopped.
        timings: Seconds of each part, and of all in `total`.
        license: Of the student, as the language, where somebody wrote it into the record.
        stage_teachers: Hash of the teacher of each stage that has a separate one, see `Teacher.weights`.
        teacher_vectors: Teacher whose sentence vectors are taught, to their largest difference from those of
            sentence-transformers, None where that does not load the model; empty where it is not installed.
    """

    FILE = "run.json"

    timings: dict[str, Number] = Field(default_factory=dict)
    stages: list[Stage] = Field(default_factory=list)
    recipe: PlannedRun = Field(default_factory=PlannedRun)
    seeds: dict[str, int] = Field(default_factory=dict)
    plugins: list[Any] = Field(default_factory=list)
    processes: int | None = None
    problem: str | None = None
    peak_memory_bytes: int | None = None
    peak_device_memory_bytes: int | None = None
    teacher: Teacher = Field(default_factory=Teacher)
    stage_teachers: dict[str, str] = Field(default_factory=dict)
    teacher_vectors: dict[str, Number | None] = Field(default_factory=dict)
    student: Student = Field(default_factory=Student)
    corpus: CorpusText | None = None
    untrained: Untrained | None = None
    evaluation: RunEvaluation | None = None

    def holds_teachers(self, untrained: str | UnreadRows) -> bool:
        """Return whether a tensor that no stage trained, or rows of one, hold the teacher's values.

        They were given them after training, or started with them.
        """
        start = self.student.initialisation
        name = untrained if isinstance(untrained, str) else untrained.table
        given = name in (self.untrained or Untrained()).from_teacher or getattr(untrained, "from_teacher", False)
        return given or (isinstance(start, Initialisation) and start.took(name))

    @property
    def on_task(self) -> bool:
        """Whether a stage was distilled on labelled rows."""
        corpora = (stage.corpus or self.recipe.corpus for stage in self.recipe.stages)
        return any(corpus is not None and corpus.task is not None for corpus in corpora)


class Heartbeat(File):
    """A run's sign of life: `heartbeat.json`."""

    FILE = "heartbeat.json"

    time: str | None = None
    activity: str | None = None
    stage: str | None = None
    stage_number: int | None = None
    stages: int | None = None
    step: int | None = None
    steps: int | None = None
    checkpoint: int | None = None
    checkpoint_time: str | None = None
    seconds_left: Number | None = None
    loss: Number | None = None
    tokens_per_second: Number | None = None
