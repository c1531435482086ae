"""The record of a run, of its stages, and its heartbeat.

A field is None or empty where an older version did not write it, or where it does not apply.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from limbeck.core import paths
from limbeck.core.files import read_json
from limbeck.core.records.base import File, Number, Record
from limbeck.core.records.run_evaluation import RunEvaluation


def record_damage(folder: Path) -> str | None:
    """Return a message where a folder has a record of a run that cannot be read; None without a record or damage."""
    path = folder / Run.FILE
    # `read_json` returns an empty mapping for a damaged file; the record of a run is never empty.
    if not path.is_file() or read_json(path):
        return None
    return f"'{path}' is damaged and cannot be read, so it does not say what the run was or how it ended."


class CardFields(Record):
    """Licence and language of a model, as its card says them."""

    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    language: str | list[str] | None = None


class Endpoint(Record):
    """A server of embeddings that a teacher's vectors came from: its address, and the model's name there.

    Attributes:
        terms: Its terms of use, as the user wrote them; None where they did not.
        cut_to: What the texts were cut to before they were sent; None for whole texts.
    """

    url: str = ""
    model: str = ""
    terms: str | None = None
    cut_to: str | None = None


class Teacher(Record):
    """A teacher: its name or path, whether that is a `folder`, a `package` or on the `hub`, and its shape in words.

    Attributes:
        weights: Hash of its weights, configuration and tokenizer, which does not depend on their place.
        endpoint: The server that its vectors came from; None for any other teacher.
    """

    name_or_path: str = ""
    shape: str = ""
    weights: str | None = None
    kind: str | None = None
    hub_id: str | None = None
    card: CardFields | None = None
    endpoint: Endpoint | None = None


class RunTeacher(Record):
    """One of several teachers of a run.

    Attributes:
        name: Its name in the recipe.
        title: Its model, or the stored outputs.
        weight: How much it counted beside the others, as a share.
        weights: Hash as in `Teacher`.
        taught: What it taught: the streams that terms read of it, by the title of the stage.
        endpoint: The server that its vectors came from; None for any other teacher.
    """

    name: str = ""
    title: str = ""
    weight: Number | None = None
    weights: str | None = None
    taught: dict[str, list[str]] = Field(default_factory=dict)
    endpoint: Endpoint | None = None


class FittedStart(Record):
    """A fit of a student's layers to hidden states of its teacher, in closed form and before any training.

    Attributes:
        targets: The teacher's layer that each layer of the student was fitted to.
        tokens: Tokens of text that were fitted to.
        ridge: How strongly the layers were held at their copied weights.
        error: Squared error of the last layer on text that was not fitted to, as a share of its target's variance.
        error_as_copied: The same of the layers as they were copied.
        used: Whether the fit was kept: it was not where it made the error no smaller.
    """

    targets: list[int] = Field(default_factory=list)
    tokens: Number | None = None
    ridge: Number | None = None
    error: Number | None = None
    error_as_copied: Number | None = None
    used: bool = True

    def __str__(self) -> str:
        """What the fit of the copied layers did to the student's error, or that it was left out."""
        tokens = f"{self.tokens or 0:,} tokens"
        error = _written_error(self.error)
        error_as_copied = _written_error(self.error_as_copied)
        if not self.used:
            return (
                f"A fit of the copied layers on {tokens} was left out: on text that it had not read, its error was "
                f"{error} of the variance, and without it {error_as_copied}."
            )
        targets = ", ".join(map(str, self.targets))
        return (
            f"The copied layers were fitted to the outputs of the teacher's layers {targets} by linear equations, on "
            f"{tokens} of text. There was no training. On text that the fit had not read, the error of the last layer "
            f"is {error} of the variance; without the fit it is {error_as_copied}. On text of another kind, the "
            "student may be worse than the same layers without a fit."
        )


def _written_error(error: Number | None) -> str:
    """An error for a sentence."""
    return "unknown" if error is None else f"{error:.3f}"


class StartedHead(Record):
    """The head of a student at its start.

    Attributes:
        kind: The name of the head.
        copied: The parameters of it, and of the pooler below it, that another model gave; others are random.
    """

    kind: str = ""
    copied: list[str] = Field(default_factory=list)


class Initialisation(Record):
    """The start of a student: a sentence on it, and what it took over from the teacher.

    Attributes:
        layers: The teacher's layers that its layers were copied from.
        explained: Share of the variance that is left after copied layers were narrowed.
        copied: Tensors that were copied from the teacher, by their names in the base model.
        projected: Tensors that were made from the teacher's by a projection or a fit, by the same names.
        fit: The fit of the layers on text, if there was one.
        head: What its head took over; None without a head.
        trained_model: The trained model that it goes on from, a folder or a name on the Hub; None for another start.
    """

    summary: str = ""
    layers: list[int] = Field(default_factory=list)
    embeddings: str | None = None
    explained: Number | None = None
    copied: list[str] = Field(default_factory=list)
    projected: list[str] = Field(default_factory=list)
    fit: FittedStart | None = None
    head: StartedHead | None = None
    trained_model: str | None = None

    def took(self, name: str) -> bool:
        """Return whether a tensor started with the teacher's values, by its name in the student."""
        tensors = [*self.copied, *self.projected]
        # A head that starts as a copy of the teacher's is recorded apart from the base model.
        if self.head is not None:
            tensors += self.head.copied
        # The names are those in the base model; a student with a head has a prefix before them.
        return any(name == tensor or name.endswith(f".{tensor}") for tensor in tensors)


class Student(Record):
    """A student: its shape in words, its head if it has one, its parameters, and how it started."""

    shape: str = ""
    head: str | None = None
    parameters: Number | None = None
    initialisation: Initialisation | str | None = None

    @property
    def start(self) -> str:
        """How it started, in a sentence; empty where that is not known."""
        start = self.initialisation
        if isinstance(start, Initialisation):
            return start.summary
        return start or ""


class LanguageRows(Record):
    """The rows of a language that a stage trains on.

    Attributes:
        language: Its code.
        rows: Their number; None of a stream.
        share: Their share of all rows that are trained on, 0 to 1.
    """

    language: str = ""
    rows: Number | None = None
    share: Number | None = None


class CorpusView(Record):
    """The text of a stage: its unit, longest block in tokens, extent and fingerprint.

    Attributes:
        fingerprint: Name of its folder in the cache, which depends on paths and dates of the files.
        content: Hashes of content, which do not depend on places: one of each source, one of the development rows where
            there are any, and one of the tokenizer's output. Empty in records of earlier versions.
        roles: Share of each role (query, document) in the training text; None where no source has a role.
        pieces: Number of rows to train on of each unit, such as sentences and documents; for a stream, only those at
            its beginning are counted. None where the corpus has no `units`.
        labelled: False for rows of a task that have no labels; None for any other text.
        languages: The rows of each language; None where no source has a language.
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
    labelled: bool | None = None
    languages: list[LanguageRows] | None = None


class SourceNotes(Record):
    """What reading text skipped or repaired: counts and examples by kind."""

    counts: dict[str, Number] = Field(default_factory=dict)
    examples: dict[str, Any] = Field(default_factory=dict)


class CorpusText(Record):
    """The text of a run: sources, counts (None of a stream), what reading skipped, and each stage's view.

    Attributes:
        sources: The sources of all stages, without those of which no document was read.
        documents: All documents or rows of the sources.
        trained_documents: Those that are trained on: neither held out, nor left out since a development row repeats
            them, or since they are too short. None of a stream, and in older records.
        held_out_documents: Held-out documents or rows, or the development rows.
        queries: Number of queries whose documents are the rows of a ranking; None for other text.
        trained_queries: The number of those that are trained on.
        held_out_queries: The number of those that are held out.
        mixed: Stage to the rule of the shares of its sources; the shares are in the view of the stage.
        stage: The first stage, where another one reads other text: the numbers and the report are those of this stage.
            None where all stages read the same text, and in older records.
    """

    sources: list[str] = Field(default_factory=list)
    documents: Number | None = None
    trained_documents: Number | None = None
    held_out_documents: Number | None = None
    queries: Number | None = None
    trained_queries: Number | None = None
    held_out_queries: Number | None = None
    tokens: Number | None = None
    report: SourceNotes = Field(default_factory=SourceNotes)
    views: list[CorpusView] = Field(default_factory=list)
    mixed: dict[str, str] = Field(default_factory=dict)
    stage: str | None = None

    @property
    def has_pairs(self) -> bool:
        """Whether the rows are those of a ranking: pairs of a query and a document."""
        return self.queries is not None


class Citation(Record):
    """Where a method is from."""

    title: str = ""
    authors: str = ""
    url: str = ""
    bibtex: str | None = None


class LayerLink(Record):
    """Layers of the student, the layers of the teacher they learn from, and the terms of the loss that join them.

    Attributes:
        vectors: Whether a term moves the student's sentence vectors into the teacher's space; None in older records.
        turned: Whether a term compares queries or keys that rotary positions turn; None in any other link.
    """

    student: list[int] = Field(default_factory=list)
    teacher: list[int] = Field(default_factory=list)
    terms: list[str] = Field(default_factory=list)
    vectors: bool | None = None
    turned: bool | None = None

    @property
    def aligns_vectors(self) -> bool:
        """Whether the student's sentence vectors are in the teacher's space."""
        # Older records do not say so: only the term `pooled_cosine` did it then.
        return bool(self.vectors) or (self.vectors is None and "pooled_cosine" in self.terms)


class Drawn(Record):
    """The rows of each source that a stage trained on, their shares, and what a stream skipped."""

    rows: dict[str, Number] = Field(default_factory=dict)
    shares: dict[str, Number] = Field(default_factory=dict)
    report: SourceNotes | None = None


RANGES = r"^(\d+(-\d+)?(,\d+(-\d+)?)*)?$"

Ranges: TypeAlias = Annotated[str, Field(pattern=RANGES)]
"""Rows of a table in order, such as `0-98,103`."""


class ScoredByStep(Record):
    """The development rows that a student is scored on in training, where they are fewer than all.

    Attributes:
        rows: How many they are; of a ranking, how many queries.
        all_rows: How many development rows or queries there are.
        name: Their name in the plural: `rows` or `queries`.
    """

    rows: int = 0
    all_rows: int = 0
    name: str = "rows"

    def __str__(self) -> str:
        """The two numbers: `1,000 of the 9,815 development rows`."""
        return f"{self.rows:,} of the {self.all_rows:,} development {self.name}"


class BestStep(Record):
    """The step whose student a stage kept, since its measurement was the best.

    Attributes:
        step: The step.
        metric: The metric that chose it: `loss`, a term of the loss, or a metric of the task.
        value: Its value at that step.
        scored_by_step: The development rows that the value is over; None where it is over all, and in older records.
        on_development: Whether development rows chose it; else rows or text held out from training did.
        task: The task of these development rows; empty in older records.
        split: Their split, or the names of their files; empty in older records.
        stopped_at: The step that the stage ended at.
        planned_steps: The steps that it was to take.
    """

    step: int = 0
    metric: str = ""
    value: Number | None = None
    scored_by_step: ScoredByStep | None = None
    on_development: bool = False
    task: str = ""
    split: str = ""
    stopped_at: int = 0
    planned_steps: int = 0

    def __str__(self) -> str:
        """A sentence without a full stop."""
        rows = "development rows" if self.on_development else "the held-out part"
        sentence = f"The student is that of step {self.step:,}, which {rows} chose by the metric '{self.metric}'"
        if self.value is not None:
            value = f"{self.value:.4g}"
            if self.scored_by_step is not None:
                value += f" on {self.scored_by_step}"
            sentence += f" ({value})"
        if self.stopped_at < self.planned_steps:
            sentence += f"; early stopping ended the stage at step {self.stopped_at:,} of {self.planned_steps:,}"
        return f"{sentence}. Scores on rows that chose the step flatter the student, and are not in its card"


class Stage(File):
    """A finished stage: `stage.json`, and an entry of `run.json`, which also has the fields from `layers` on.

    Attributes:
        seconds: Time of its steps, without measurements and checkpoints. A resumed stage counts the time before too.
        drawn: The rows that were drawn from each source; None where sources are not mixed.
        lengths: For a schedule of lengths: each `length` in its order, with the `steps` and `tokens` trained at it.
        final_terms: The last logged loss of each term.
        held_out: The loss and its terms on held-out text.
        held_out_by_language: The same on the held-out text of each language, where languages are known.
        weights: Size and hash of its file of weights.
        untrained: The student's parameters that this stage did not train.
        unread: Embedding table to the rows that this stage did not train; older records have none.
        teacher_precision: `int8` where the teacher's linear layers were quantised.
        student: The student of a stage that has its own.
        teacher: The teacher of a stage that has its own.
        teacher_facts: More on this teacher, unless it is the student of an earlier stage.
        planned_steps: Steps that it was to take, where it was ended early.
        ended_early: Whether `limbeck finish` ended it before its last step, and not a callback.
        best: The step that measurements chose; None where the student is that of the last step.
        scored_by_step: The development rows that the scores in its log are over; None where they are over all, and in
            older records.
    """

    FILE = paths.STAGE_RECORD

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
    held_out_by_language: dict[str, dict[str, Number | None]] = Field(default_factory=dict)
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
    planned_steps: Number | None = None
    ended_early: bool | None = None
    best: BestStep | None = None
    scored_by_step: ScoredByStep | None = None

    @property
    def compares_turned(self) -> bool:
        """Whether a term compares queries or keys that rotary positions turn."""
        return any(link.turned for link in self.layers)


class EarlyEnd(Record):
    """The end of a run before its last step.

    Attributes:
        stage: The last stage that was trained.
        step: The steps that it took; None where it took all, and only later stages were skipped.
        planned_steps: The steps that it was to take.
        skipped: The stages that were not trained.
        of_checkpoint: Whether this is the student of a checkpoint alone, and not the end of the run itself.
    """

    stage: str = ""
    step: Number | None = None
    planned_steps: Number | None = None
    skipped: list[str] = Field(default_factory=list)
    of_checkpoint: bool = False

    @property
    def title(self) -> str:
        """Two words for the sentence."""
        return "A checkpoint" if self.of_checkpoint else "Ended early"

    @property
    def short(self) -> str:
        """Where the run was ended early, in a few words such as "ended early at step 23 of 60 of stage 'vectors'"."""
        words = self.title.lower()
        if self.step is None:
            return f"{words} after stage '{self.stage}'"
        words += f" at step {self.step:,.0f}"
        if self.planned_steps is not None:
            words += f" of {self.planned_steps:,.0f}"
        return f"{words} of stage '{self.stage}'"

    def __str__(self) -> str:
        """Where the run was ended early, as a sentence without a full stop."""
        sentence = "The run was ended early"
        if self.of_checkpoint:
            sentence = "This student is that of a checkpoint"
        if self.step is None:
            sentence += f", after stage '{self.stage}'"
        else:
            sentence += f", at step {self.step:,.0f} of stage '{self.stage}'"
            if self.planned_steps is not None:
                sentence += f", which was to take {self.planned_steps:,.0f}"
        if self.skipped:
            noun = "stage" if len(self.skipped) == 1 else "stages"
            names = ", ".join(f"'{title}'" for title in self.skipped)
            sentence += f"; {noun} {names} skipped"
        return sentence


class StepsChange(Record):
    """A change of a stage's number of steps after it had begun.

    Attributes:
        stage: The stage.
        step: The step that it had reached.
        before: Its steps before the change.
        after: Its steps since then.
        schedule: The schedule of the learning rate.
        as_from_start: Whether the steps that were done are those of a run with the new number of steps from the start.
    """

    stage: str = ""
    step: int = 0
    before: int = 0
    after: int = 0
    schedule: str = ""
    as_from_start: bool = False

    @property
    def title(self) -> str:
        """A word or two for the sentence."""
        return "Extended" if self.after > self.before else "Shortened"

    def __str__(self) -> str:
        """By how many steps a stage was lengthened or shortened, as a sentence without a full stop."""
        sentence = (
            f"Stage '{self.stage}' was {self.title.lower()} at step {self.step:,} from {self.before:,} to "
            f"{self.after:,} steps"
        )
        if self.as_from_start:
            return sentence
        # The steps that were done followed the schedule of the old number of steps.
        return (
            f"{sentence}; a run of {self.after:,} steps from its start would give another student, since the schedule "
            f"'{self.schedule}' follows the number of steps"
        )


class UnreadRows(Record):
    """Rows of an embedding table that no stage trained, since no batch read them.

    Attributes:
        table: The parameter.
        kind: What a row stands for: `tokens`, `positions` or `segments`.
        rows: Rows of the table.
        unread: How many were not trained.
        first: The first of the rows that were not trained; the records of the stages have all.
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
    """Parameters that no stage trained; those of `from_teacher` were given the teacher's values after training.

    Attributes:
        from_checkpoint: The pooler's, where it is that of the checkpoint that the student started from; None otherwise.
    """

    policy: str | None = None
    names: list[str] = Field(default_factory=list)
    from_teacher: list[str] = Field(default_factory=list)
    from_checkpoint: list[str] | None = None
    frozen: list[str] = Field(default_factory=list)
    rows: list[UnreadRows] = Field(default_factory=list)


def modules_of(names: Sequence[str]) -> list[str]:
    """Return the modules two levels above tensors, each once.

    For example `encoder.layer.2.output` for `encoder.layer.2.output.dense.weight`.
    """
    modules: list[str] = []
    for name in names:
        parents = name.split(".")[:-2]
        # A name of two parts or fewer has no module above it, and stands for itself.
        modules.append(".".join(parents) or name)
    return list(dict.fromkeys(modules))


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

    @property
    def title(self) -> str:
        """Its name in logs, folders and other records, as `StageSpec.title`."""
        return self.name or self.method_name


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


class Run(Made, CardFields):
    """A run: `run.json`, which is written again whenever its status or content changes.

    Attributes:
        problem: The reason why it failed or stopped.
        timings: Seconds of each part, and of all together in `total`.
        license: Licence of the student, where somebody wrote it into the record; so for the language.
        teachers: The teachers, where there were several; `teacher` is then the first.
        stage_teachers: Hash of the teacher of each stage that has a separate one, see `Teacher.weights`.
        teacher_vectors: Teacher whose sentence vectors are taught, to the largest difference of these from those that
            sentence-transformers computes; None where that library does not load the model. Empty where it is not
            installed.
        ended_early: Where it was ended before its last step, see `limbeck finish`.
        steps_changes: Changes of the number of steps of a stage that had begun.
    """

    FILE = paths.RUN_RECORD

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
    teachers: list[RunTeacher] = Field(default_factory=list)
    stage_teachers: dict[str, str] = Field(default_factory=dict)
    teacher_vectors: dict[str, Number | None] = Field(default_factory=dict)
    student: Student = Field(default_factory=Student)
    corpus: CorpusText | None = None
    untrained: Untrained | None = None
    evaluation: RunEvaluation | None = None
    ended_early: EarlyEnd | None = None
    steps_changes: list[StepsChange] = Field(default_factory=list)

    def way_on(self, student: str | Path) -> str:
        """Sentences for a user who wants to continue a finished run, which is not possible.

        Args:
            student: The folder of the run's student.
        """
        end = "The run is finished"
        if self.ended_early is not None:
            end = str(self.ended_early)
        return (
            f"{end}. It cannot be continued. To train its student further, start a run in another folder with "
            f"--student {shlex.quote(str(student))}"
        )

    def holds_teachers(self, untrained: str | UnreadRows) -> bool:
        """Whether a part of the student that was not trained has the teacher's values.

        The student either started with these values, or was given them after training.

        Args:
            untrained: The part: the name of a tensor, or rows of an embedding table.
        """
        if isinstance(untrained, UnreadRows):
            name = untrained.table
            was_given = untrained.from_teacher
        else:
            name = untrained
            was_given = False
        if self.untrained is not None and name in self.untrained.from_teacher:
            was_given = True
        start = self.student.initialisation
        started_with_them = isinstance(start, Initialisation) and start.took(name)
        return was_given or started_with_them

    @property
    def splits_that_chose(self) -> set[tuple[str, str]]:
        """The task and the split of all development rows that chose the step whose student was kept."""
        splits = set()
        for stage in self.stages:
            # A stage with a student of its own has not chosen the run's.
            if stage.best is not None and stage.best.on_development and stage.student is None:
                splits.add((stage.best.task, stage.best.split))
        # In older records the scores alone tell of it.
        evaluation = self.evaluation or RunEvaluation()
        for scores in evaluation.development:
            if scores.chose_step:
                splits.add((scores.task, scores.split))
        return splits

    @property
    def citations(self) -> list[Citation]:
        """The papers of the methods of its stages, each once."""
        citations: list[Citation] = []
        for stage in self.stages:
            if stage.citation is not None and stage.citation not in citations:
                citations.append(stage.citation)
        return citations

    @property
    def on_task(self) -> bool:
        """Whether a stage was distilled on labelled rows."""
        for stage in self.recipe.stages:
            corpus = stage.corpus or self.recipe.corpus
            if corpus is not None and corpus.task is not None:
                return True
        return False


class Heartbeat(File):
    """The heartbeat of a run, `heartbeat.json`: a running process writes its progress to it again and again.

    Attributes:
        part: The current part of an activity that has several, as the lines of its progress name it.
        share: The share of that part that is done, 0 to 1.
    """

    FILE = paths.HEARTBEAT

    time: str | None = None
    activity: str | None = None
    part: str | None = None
    share: Number | None = None
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
