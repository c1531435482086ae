"""A recipe's corpus as a stage reads it: its settings, joined with what is known of the stage's teacher.

Text without labels gets the prompts of a sentence-embedding teacher, such as "query: ". A *role* of a source (query or
document) chooses one of them. Labelled rows get the classes of a classifier, whose order numbers them.
"""

from __future__ import annotations

from typing import Any, get_args

from limbeck.core.kinds import KINDS
from limbeck.corpus.settings import (
    CorpusSettings,
    CorpusSpec,
    LabelledSettings,
    Role,
    StageTextSpec,
    TaskSpec,
)
from limbeck.errors import RecipeError
from limbeck.models.sentences import SentencePooling
from limbeck.recipe.labelled_rows import Classifier, described_development, named_rows, with_classes_of
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_checks import check_text_unchanged


def corpus_settings(
    corpus: CorpusSpec,
    text: StageTextSpec,
    teacher: Classifier,
    *,
    reads_scores: bool = True,
    sentence: SentencePooling | None = None,
) -> CorpusSettings | LabelledSettings:
    """Merge a stage's text options into the corpus, and add what its teacher says of classes and prompts.

    Args:
        corpus: The recipe's corpus, or the stage's.
        text: The stage's options of text, which take precedence over the corpus.
        teacher: Its teacher, whose classes number the rows.
        reads_scores: Whether the stage learns the teacher's scores, so that rows must have the teacher's classes.
        sentence: How the teacher makes sentence vectors; its prompts are put before texts. None where the stage teaches
            no sentence vectors, or the teacher's files do not say how they are made.

    Raises:
        LimbeckError: for keys that do not fit, a task without its files, and other classes than the teacher's.
    """
    merged = corpus.merged(text)
    if merged.task is not None:
        return _labelled_settings(merged, merged.task, teacher, reads_scores=reads_scores)

    settings = CorpusSettings.of(merged, _prompts_of(sentence))
    # `student_prompts: none` means that only the teacher reads its prompts, so that there have to be some.
    if not settings.student_reads_prompts and not settings.source_prompts:
        raise RecipeError(
            f"'corpus.student_prompts: none' has no effect, because '{teacher.title}' reads no prompt before these "
            "texts: leave corpus.student_prompts out."
        )
    return settings


def plain_text_settings(recipe: Recipe, sentence: SentencePooling, title: str) -> list[CorpusSettings]:
    """Return the text of each stage of a recipe, for a teacher that is no model and reads each text as a whole.

    Args:
        recipe: The recipe. Its own teacher is not looked at.
        sentence: The prompts that the teacher reads before texts.
        title: The name of its outputs, for messages.

    Raises:
        LimbeckError: for labelled rows, text that changes while it is read, and text without an end.
    """
    all_settings = []
    for index, stage in enumerate(recipe.stages):
        corpus = stage.corpus or recipe.corpus
        assert corpus is not None  # A recipe with stages has text, as its schema checks.
        place = f"stages.{index}"
        if corpus.task is not None:
            raise RecipeError(
                f"{place}: {title} belong to texts without labels, but this corpus has labelled rows; leave out "
                "corpus.task."
            )
        settings = CorpusSettings.of(corpus.merged(stage.text), _prompts_of(sentence))
        check_text_unchanged(stage, place, settings, title)
        all_settings.append(settings)
    return all_settings


def _prompts_of(sentence: SentencePooling | None) -> dict[str, str]:
    """Return the prompt of each role; under "" that of sources without a role. Without `sentence` there are none."""
    prompts: dict[str, str] = {}
    if sentence is not None:
        prompts[""] = sentence.prompt(None)
        for role in get_args(Role):
            prompts[role] = sentence.prompt(role)
    return prompts


def _labelled_settings(
    corpus: CorpusSpec, task: TaskSpec, teacher: Classifier, *, reads_scores: bool
) -> LabelledSettings:
    """The settings of labelled rows: the keys of the corpus and of its task, and rows of a task known by name."""
    labels: tuple[str, ...] = ()
    if KINDS[task.kind].has_classes:
        labels = teacher.labels
    # The keys of the task that say how its rows are read; the others are read elsewhere.
    keys: dict[str, Any] = task.model_dump(exclude={"name", "class_weights", "metric", "positive"}, exclude_none=True)
    keys["sources"] = corpus.places
    keys["text_column"] = corpus.text_column
    keys["held_out"] = corpus.held_out
    keys["max_rows"] = corpus.max_documents
    keys["labels"] = labels
    if corpus.length is not None:
        keys["length"] = corpus.length
    keys["student_length"] = corpus.student_length

    # A task that is known by name has rows of its own, which take the place of what the recipe describes.
    if task.name is not None:
        rows, development = named_rows(corpus, task)
        keys["rows"] = rows
        keys["development"] = development
        keys["sources"] = rows.places()
        keys["pair_column"] = rows.pair_column
        if not reads_scores:
            # The teacher need not be a classifier: the task's own classes number the rows.
            keys["labels"] = rows.definition.classes
    elif corpus.development is not None:
        keys["development"] = described_development(corpus, task, labels)

    settings = LabelledSettings(**keys)
    # Where scores are learned, the rows of a task are numbered in the order of the teacher's scores.
    if reads_scores and settings.rows is not None:
        settings = with_classes_of(settings, teacher)
    return settings
