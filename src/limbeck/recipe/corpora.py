"""What a recipe's corpus comes to for a stage: settings of text, of a stream, or of labelled rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError
from transformers import PreTrainedConfig

from limbeck.core.kinds import KINDS
from limbeck.core.mistakes import explain
from limbeck.corpus import Augmentation, CorpusSettings, LabelledSettings, Mix
from limbeck.corpus.settings import ModelName, SourceUse
from limbeck.corpus.sources import local_files
from limbeck.corpus.store import FirstRows, read_first_rows
from limbeck.errors import CorpusError, ModelError, RecipeError
from limbeck.evaluation.head_match import match_head
from limbeck.evaluation.task_files import TRAIN
from limbeck.evaluation.task_rows import TaskRows
from limbeck.evaluation.tasks import Columns, TaskDefinition
from limbeck.models.heads import check_has_head
from limbeck.models.loading import load_config
from limbeck.models.locating import check_not_pickled
from limbeck.models.sentences import SentencePooling
from limbeck.recipe.schema import (
    NONE,
    TEXT_ALONE,
    CorpusSpec,
    RowAugmentationSpec,
    SourceSpec,
    StageSpec,
    TaskSpec,
    TextSpec,
)


class Classifier(Protocol):
    """A teacher, as far as its classes go."""

    @property
    def title(self) -> str:
        """What messages call it."""

    @property
    def config(self) -> PreTrainedConfig:
        """Its configuration."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its classes."""


_WAY_OUT = "rename the teacher's with teacher.classes"


def corpus_settings(
    corpus: CorpusSpec,
    stage: StageSpec,
    teacher: Classifier,
    *,
    reads_scores: bool = True,
    sentence: SentencePooling | None = None,
) -> CorpusSettings | LabelledSettings:
    """Join the corpus with what a stage says of its text, the stage's word being the last.

    Args:
        corpus: The recipe's corpus, or the stage's.
        stage: The stage.
        teacher: Its teacher, whose classes number the rows.
        reads_scores: Whether the teacher is one of the task.
        sentence: How the teacher makes sentence vectors, whose prompts are put before texts; None where none are
            taught, or nobody says.

    Raises:
        LimbeckError: for keys that do not fit, a task without its files, and other classes than the teacher's.
    """
    given: dict[str, Any] = {key: getattr(corpus, key) for key in ("text_column", "held_out")}
    given["sources"] = corpus.places
    assert corpus.task is not None or corpus.held_out is not None
    for layer in (corpus, stage.text):
        said = {key: value for key in TextSpec.model_fields if (value := getattr(layer, key)) is not None}
        for one, other in (("unit", "units"), ("units", "unit")):
            if one in said:
                given.pop(other, None)
        given |= said
    if stage.text.schedule is not None:
        given["length"] = stage.text.schedule.lengths[-1]
    if corpus.task is not None:
        return _labelled_settings(corpus, corpus.task, stage, given, teacher, reads_scores=reads_scores)
    if corpus.shuffle_buffer is not None:
        given["shuffle_buffer"] = corpus.shuffle_buffer
    mix = None if corpus.mix is None else Mix(**corpus.mix.model_dump())
    if any(shares := [each.share for each in corpus.described_sources]):
        mix = Mix(weights=shares)
    given |= _uses(corpus, given, sentence, teacher)
    return CorpusSettings(**given, max_documents=corpus.max_documents, streaming=corpus.streaming, mix=mix)


def _uses(
    corpus: CorpusSpec, given: dict[str, Any], sentence: SentencePooling | None, teacher: Classifier
) -> dict[str, Any]:
    """Return how each source is read, as settings; nothing where all are alike and plain.

    Args:
        corpus: The corpus.
        given: Its settings so far, of which `units` and `student_prompts` are taken out.
        sentence: Whose prompts are put before texts.
        teacher: What messages call it.
    """
    units, reading = given.pop("units", ()), given.pop("student_prompts", "teacher")
    uses = tuple(
        SourceUse(each.role, sentence.prompt(each.role) if sentence is not None else "", tuple(each.units or units))
        for each in corpus.described_sources or [SourceSpec(source="those of mix.by")]
    )
    if reading == NONE and not any(use.prompt for use in uses):
        raise RecipeError(
            f"corpus.student_prompts is none, but the files of '{teacher.title}' put no prompt before these texts: "
            "leave it out."
        )
    if all(use == SourceUse() for use in uses):
        return {}
    return {"uses": uses, "student_prompts": reading != NONE}


def _labelled_settings(
    corpus: CorpusSpec,
    task: TaskSpec,
    stage: StageSpec,
    given: dict[str, Any],
    teacher: Classifier,
    *,
    reads_scores: bool,
) -> LabelledSettings:
    for name in TEXT_ALONE:
        if name in given:
            raise RecipeError(f"Stage '{stage.title}': text.{name} is for text without labels; leave it out.")
    rows = development = None
    labels = teacher.labels if KINDS[task.kind].has_classes else ()
    if task.name is not None:
        rows, development = _named_rows(corpus, task)
        if not reads_scores:
            labels = rows.definition.classes
        given |= {"sources": rows.places(), "pair_column": rows.pair_column}
    elif corpus.development is not None:
        development = _described_rows(corpus, task, labels)
    settings = LabelledSettings(
        task=task.kind,
        labels=labels,
        max_rows=corpus.max_documents,
        rows=rows,
        development=development,
        header=task.columns or (),
        **given,
        **task.model_dump(exclude={"kind", "name", "columns", "class_weights"}, exclude_none=True),
    )
    if reads_scores and rows is not None:
        settings = labelled_by(settings, teacher)
    if KINDS[task.kind].has_answers and task.stride > settings.length // 2:
        raise RecipeError(
            f"corpus.task.stride {task.stride} leaves little room in windows of {settings.length} tokens; use "
            f"{settings.length // 2} or less, or longer windows (corpus.length)."
        )
    return settings


def _named_rows(corpus: CorpusSpec, task: TaskSpec) -> tuple[TaskRows, TaskRows | None]:
    """Return the rows of a task that is known by name, and its development rows as far as there are any.

    Args:
        corpus: Where they are.
        task: Its name.
    """
    assert task.name is not None
    data = None if corpus.data is None else Path(corpus.data).expanduser()
    rows = TaskRows.of_task(task.name, TRAIN, data)
    if rows.definition.kind != task.kind:
        raise RecipeError(
            f"corpus.task: '{task.name}' is now of the kind {rows.definition.kind}, but this recipe says "
            f"{task.kind}; leave out kind."
        )
    definition, files = rows.definition, tuple(corpus.development or ())
    split = definition.development or (files and (definition.task.select or "validation")) or ""
    development = replace(rows, split=split, files=files)
    return rows, development if not corpus.held_out and development.is_there else None


def _described_rows(corpus: CorpusSpec, task: TaskSpec, labels: tuple[str, ...]) -> TaskRows:
    """Return the development rows of a task that the recipe itself describes."""
    columns: dict[str, Any] = {"text": corpus.text_column} | {
        name: column
        for name in Columns.model_fields
        if isinstance(column := getattr(task, f"{name}_column", None), str)
    }
    if task.document_columns is not None:
        columns["documents"] = tuple(task.document_columns)
    columns["label_columns"] = tuple(task.label_columns or ())
    try:
        definition = TaskDefinition(
            name="development",
            type=task.kind,
            columns=Columns(**columns),
            labels=labels,
            files={"train": "rows", "validation": "rows"},  # Those of the corpus are read in their place.
            no_answers=True,
        )
    except ValidationError as error:
        raise RecipeError(f"corpus.development: {explain(error)}") from None
    header = tuple(task.columns or ())
    return TaskRows(definition, "validation", files=tuple(corpus.development or ()), header=header)


def check_rows(settings: LabelledSettings, place: str, *, classes: bool = False, queries: bool = False) -> FirstRows:
    """Refuse development rows that are trained on, and files without the columns of the task, by their first rows.

    Args:
        settings: Of labelled rows.
        place: Of the corpus in the recipe.
        classes: See `read_first_rows`.
        queries: See `read_first_rows`.

    Raises:
        LimbeckError: for either.
    """
    development = settings.development
    if isinstance(development, TaskRows):
        ours = set(local_files(development.places()))
        if both := [str(file) for file in local_files(settings.sources) if file in ours]:
            raise RecipeError(
                f"{place}.development: '{both[0]}' has the same rows as the training set; give other rows, or "
                "leave it out."
            )
    for rows in (settings.rows, development):
        if isinstance(rows, TaskRows):
            rows.check()
    return FirstRows() if settings.rows is not None else read_first_rows(settings, classes=classes, queries=queries)


def labelled_by(settings: LabelledSettings, teacher: Classifier) -> LabelledSettings:
    """Return the settings with the classes of a teacher, which number the rows.

    Raises:
        ModelError: if these are not the classes of the task that the rows are of.
    """
    labels = teacher.labels if KINDS[settings.task].has_classes else ()
    rows, development = settings.rows, settings.development
    if isinstance(rows, TaskRows):
        classes = match_head(teacher.title, teacher.config, rows.definition.task, way_out=_WAY_OUT).classes or ()
        rows = replace(rows, classes=classes)
        development = replace(development, classes=classes) if isinstance(development, TaskRows) else None
    elif isinstance(development, TaskRows):
        # Its rows are numbered as those to train on: by the teacher's own names.
        development = replace(development, definition=development.definition.model_copy(update={"labels": labels}))
    return replace(settings, labels=labels, rows=rows, development=development)


# What a recipe says of augmented rows, with the models that it names or leaves to the teacher.


_VECTOR_FILES = (".txt", ".vec", ".gz", ".xz", ".zst")


def augmentation(spec: RowAugmentationSpec, title: str, teacher: ModelName | None, seed: int) -> Augmentation:
    """Return how rows are copied; no weight is read.

    Args:
        spec: What the corpus says.
        title: What messages call the stage's teacher.
        teacher: It; None where the run makes it.
        seed: Of the run.

    Raises:
        LimbeckError: if a model or file is missing, or the model has no masked language model's head.
    """
    values = spec.model_dump(exclude={"method"}) | {"seed": seed if spec.seed is None else spec.seed}
    for key in ("masked_lm", "word_vectors"):
        given, where = values[key], f"corpus.augment.{key}"
        if given in (None, "teacher"):
            if teacher is None:
                raise RecipeError(f"{where} would be {title}, which this run makes: name a model, or {NONE}.")
            values[key] = teacher
        elif given == NONE:
            values[key] = None
        elif key == "word_vectors" and ((file := Path(given).expanduser()).is_file() or file.suffix in _VECTOR_FILES):
            if not file.is_file():
                raise RecipeError(f"{where}: there is no file '{given}'; give a text file of word vectors, or a model.")
            values[key] = str(file)
        else:
            check_not_pickled(given)
            values[key] = (given, None)
    models = {key: value for key, value in values.items() if isinstance(value, tuple)}
    for key, (name, revision) in models.items():
        try:
            config = load_config(name, revision)
            if key == "masked_lm":
                check_has_head(name, config, "masked_lm")
        except ModelError as error:
            if spec.masked_lm is not None or key != "masked_lm":
                raise RecipeError(f"corpus.augment.{key}: {error}") from None
            raise RecipeError(
                f"corpus.augment.masked_lm is missing, and the teacher '{title}' has no masked language model "
                f"head: name a model with one, such as the model that the teacher was fine-tuned from, or {NONE} "
                "to use only neighbours in word vectors."
            ) from None
    try:
        return Augmentation(**values)
    except CorpusError as error:
        raise RecipeError(f"corpus.augment: {error}") from None


def summarise_copies(settings: CorpusSettings | LabelledSettings, *, labels: bool) -> str:
    """Say how rows are augmented; empty where they are not.

    Args:
        settings: Of the rows.
        labels: Whether their labels are learned.
    """
    chosen = settings.augment if isinstance(settings, LabelledSettings) else None
    if chosen is None:
        return ""
    model, vectors = chosen.masked_lm, chosen.word_vectors
    by = [] if model is None else [f"proposals of {model[0]}"]
    by += [] if vectors is None else [f"neighbours in {vectors if isinstance(vectors, str) else vectors[0]}"]
    said = (
        f"{chosen.copies} copies of each, words replaced with probability {chosen.probability:g} by {' and '.join(by)}"
    )
    if labels:
        said += (
            "; each copy keeps the label of its row, which this stage learns, though its new words may not fit "
            "that label"
        )
    return said
