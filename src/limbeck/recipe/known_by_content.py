"""A recipe without the places of its teacher and text, for the identity of a run.

A run identifies its teacher and text by hashes of their content, so that it can be continued after they were moved. Its
recipe is compared without their paths: fixed words replace them.
"""

from collections.abc import Mapping
from typing import Any

from limbeck.core.blocks import counted
from limbeck.core.fields import NONE
from limbeck.evaluation.tasks.registry import is_own_task


def without_places(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe, a stage or a plan without the places of its teacher and text.

    Args:
        part: The part as a document has it, with every default.
    """
    document = dict(part)
    if "teacher" in document:
        document["teacher"] = _teacher_without_places(document["teacher"])
    if isinstance(document.get("teachers"), Mapping):
        teachers = document["teachers"]
        document["teachers"] = {name: _teacher_without_places(teacher) for name, teacher in teachers.items()}
    corpus = document.get("corpus")
    if isinstance(corpus, Mapping):
        document["corpus"] = _corpus_without_places(corpus)
    return document


def _teacher_without_places(teacher: Any) -> Any:
    """Return a teacher with fixed words in place of its folders; what is no teacher with a model stays as it is."""
    if not isinstance(teacher, Mapping) or not teacher.get("model"):
        return teacher
    document = {**teacher, "model": "a model"}
    if teacher.get("stored"):
        document["stored"] = "a store"
    return document


def _corpus_without_places(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a corpus with fixed words in place of its paths.

    All that decides what is read still counts: which keys have a value, how many paths a list has, and the keys beside
    the path of each source, such as its share and its unit.
    """
    corpus = dict(part)
    sources = corpus.get("sources")
    if sources:
        # A source is a path alone, or a mapping of a path and further keys. The count below replaces the paths, and the
        # further keys get a place of their own, `uses`. A corpus of paths alone does not need one.
        if any(isinstance(source, Mapping) for source in sources):
            corpus["uses"] = [_keys_beside_source(source) for source in sources]
        corpus["sources"] = counted(len(sources), "source")
    # The development rows are a list of paths.
    if corpus.get("development"):
        corpus["development"] = f"{len(corpus['development'])} with development rows"
    if corpus.get("data"):
        corpus["data"] = "a folder"
    task = corpus.get("task")
    if isinstance(task, Mapping) and is_own_task(str(task.get("name"))):
        corpus["task"] = {**task, "name": "a task file"}
    mix = corpus.get("mix")
    if isinstance(mix, Mapping) and mix.get("by"):
        corpus["mix"] = {**mix, "by": "a pattern"}
    augment = corpus.get("augment")
    if isinstance(augment, Mapping):
        corpus["augment"] = dict(augment)
        for key in ("masked_lm", "word_vectors"):
            if augment.get(key) not in (None, NONE):
                corpus["augment"][key] = "a place"
        if isinstance(augment.get("stop_words"), str) and augment["stop_words"] not in ("english", NONE):
            corpus["augment"]["stop_words"] = "a place"
    return corpus


def _keys_beside_source(source: Any) -> dict[str, Any]:
    """Return the keys beside the name of a source, such as its role; an empty mapping for a source without any."""
    if not isinstance(source, Mapping):
        return {}
    keys = {key: value for key, value in source.items() if key != "source"}
    parallel = keys.get("parallel")
    if isinstance(parallel, Mapping):
        # Of parallel text the languages count, in their order, since the teacher reads the first.
        keys["parallel"] = list(parallel.get("files") or parallel.get("languages") or parallel)
    return keys
