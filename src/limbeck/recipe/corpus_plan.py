"""What a recipe's corpus comes to for a stage: settings of text, of a stream, or of labelled rows."""

from __future__ import annotations

from glob import has_magic, iglob
from pathlib import Path
from typing import Any

from limbeck.corpus import CorpusSettings, LabelledSettings, Mix
from limbeck.corpus.documents import one_line
from limbeck.corpus.sources import INSTALLED_DOCS, PREFIX, is_hub_name
from limbeck.errors import CorpusError, RecipeError
from limbeck.recipe.corpus_specs import CorpusSpec
from limbeck.recipe.model_plan import TeacherChoice
from limbeck.recipe.schema import StageSpec

_LENGTH = 128
_SUFFIXES = (".txt", ".md", ".jsonl", ".json", ".csv", ".tsv", ".parquet", ".gz", ".zst")
_TEXT_DEFAULTS = {"unit": "document", "length": _LENGTH, "join": False, "minimum_tokens": 4}


def corpus_settings(corpus: CorpusSpec, stage: StageSpec, teacher: TeacherChoice) -> CorpusSettings | LabelledSettings:
    """Join the corpus with what a stage says of its text, the stage's word being the last."""
    if corpus.task is not None:
        return _labelled_settings(corpus, stage, teacher)
    text: dict[str, Any] = dict(_TEXT_DEFAULTS)
    reading: dict[str, Any] = {"streaming": corpus.streaming}
    if corpus.shuffle_buffer is not None:
        reading["shuffle_buffer"] = corpus.shuffle_buffer
    if corpus.mix is not None:
        reading["mix"] = Mix(corpus.mix.weights, corpus.mix.exponent)
    for layer in (corpus, stage.text):
        text.update({key: value for key in text if (value := getattr(layer, key)) is not None})
    return CorpusSettings(
        sources=tuple(corpus.sources),
        text_column=corpus.text_column,
        held_out=corpus.held_out,
        max_documents=corpus.max_documents,
        **reading,
        **text,
    )


def check_stream(corpus: CorpusSpec, stage: StageSpec, place: str) -> None:
    """Refuse a stream without a number of steps: it has no end, so that of the training has to be said."""
    steps = stage.training.get("max_steps", -1)
    if corpus.streaming and not (isinstance(steps, int) and steps > 0):
        raise RecipeError(
            f"{place}.training.max_steps is missing: a stream has no end and no epochs, so say how many steps to train."
        )


def _labelled_settings(corpus: CorpusSpec, stage: StageSpec, teacher: TeacherChoice) -> LabelledSettings:
    assert corpus.task is not None
    for name in ("unit", "join", "minimum_tokens"):
        if getattr(stage.text, name) is not None:
            raise RecipeError(f"Stage '{stage.title}': text.{name} is for text without labels; leave it out.")
    spec = corpus.task
    length = stage.text.length or corpus.length or _LENGTH
    if spec.kind == "question_answering" and spec.stride > length // 2:
        raise RecipeError(
            f"corpus.task.stride {spec.stride} leaves little room in windows of {length} tokens; use {length // 2} or "
            "less, or longer windows (corpus.length)."
        )
    return LabelledSettings(
        task=spec.kind,
        sources=tuple(corpus.sources),
        length=length,
        text_column=corpus.text_column,
        pair_column=spec.pair_column,
        label_column=spec.label_column,
        question_column=spec.question_column,
        context_column=spec.context_column,
        answers_column=spec.answers_column,
        labels=class_names(teacher) if spec.kind == "classification" else (),
        stride=spec.stride,
        held_out=corpus.held_out,
        max_rows=corpus.max_documents,
    )


def class_names(teacher: TeacherChoice) -> tuple[str, ...]:
    """Return the names of a classifier's classes, in the order of their ids."""
    names = teacher.config.id2label or {}
    return tuple(str(names[key]) for key in sorted(names))


def check_source(source: str) -> None:
    """Refuse a path that is not there before models are loaded; other kinds are checked when they are read."""
    if "://" in source or source.startswith(PREFIX) or source == INSTALLED_DOCS:
        return
    try:
        found = _may_be_there(source)
    except (OSError, RuntimeError, ValueError):  # A name too long, of a user without a home, or with a NUL.
        found = False
    if not found:
        way_out = "give a file, a folder, a glob, hub:owner/name or installed-docs"
        raise CorpusError(f"Corpus source '{one_line(source)}' does not exist; {way_out}.")


def _may_be_there(source: str) -> bool:
    path = Path(source.removeprefix(f"{INSTALLED_DOCS}:")).expanduser()
    # Path.glob would raise for patterns that are refused in one line when they are read.
    if path.exists() or (has_magic(source) and any(iglob(str(path), recursive=True))):  # noqa: PTH207
        return True
    names_a_file = path.suffix in _SUFFIXES or source.startswith(("/", "./", "../", "~"))
    return is_hub_name(source) and not names_a_file and not path.parent.is_dir()
