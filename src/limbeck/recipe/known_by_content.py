"""A recipe without the places of its teacher and text, for the identity of a run.

A run identifies its teacher and text by hashes of their content, so that it can be continued after they were moved. Its
recipe is compared without their paths: fixed words replace them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.blocks import counted
from limbeck.core.fields import NONE
from limbeck.evaluation.tasks.registry import is_own_task
from limbeck.targets.target_file import ARRAY


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
    targets = teacher.get("targets")
    if targets:
        document["targets"] = "a file of targets"
        # The texts of an array are in another file. Of a table, `text` is a column, which still counts.
        if Path(targets).suffix == ARRAY and teacher.get("text"):
            document["text"] = "a file of texts"
    return document


def _corpus_without_places(corpus: Mapping[str, Any]) -> dict[str, Any]:
    """Return a corpus with fixed words in place of its paths.

    All that decides what is read still counts: which keys have a value, how many paths a list has, and the keys beside
    the path of each source, such as its share and its unit.
    """
    document = dict(corpus)
    sources = corpus.get("sources")
    if sources:
        # A source is either a path alone, or a mapping with the path under the key `source` and further keys. The
        # number of sources stands for their paths.
        document["sources"] = counted(len(sources), "source")
        # The further keys still count. The key `uses`, which no recipe has, keeps them, one mapping for each source.
        if any(isinstance(source, Mapping) for source in sources):
            document["uses"] = [_keys_beside_path(source) for source in sources]

    if corpus.get("development"):
        number_of_paths = len(corpus["development"])
        document["development"] = f"{number_of_paths} with development rows"
    if corpus.get("data"):
        document["data"] = "a folder"

    # A task is named by the path of its file, unless it is one that limbeck knows.
    task = corpus.get("task")
    if isinstance(task, Mapping) and is_own_task(str(task.get("name"))):
        document["task"] = {**task, "name": "a task file"}

    # A mix may find its sources by a pattern of their paths.
    mix = corpus.get("mix")
    if isinstance(mix, Mapping) and mix.get("by"):
        document["mix"] = {**mix, "by": "a pattern"}

    augment = corpus.get("augment")
    if isinstance(augment, Mapping):
        document["augment"] = _augment_without_places(augment)
    return document


def _keys_beside_path(source: Any) -> dict[str, Any]:
    """Return the keys beside the path of a source, such as its role; an empty mapping for a source without any."""
    if not isinstance(source, Mapping):
        return {}
    keys = {key: value for key, value in source.items() if key != "source"}
    parallel = keys.get("parallel")
    if isinstance(parallel, Mapping):
        # Of parallel text the languages count, in their order, since the teacher reads the first. They are the keys of
        # `files`, or a list beside one file of all, or the keys of the short form `{en: FILE, de: FILE}`.
        keys["parallel"] = list(parallel.get("files") or parallel.get("languages") or parallel)
    return keys


def _augment_without_places(augment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of augmentation with fixed words in place of the places of its files.

    The files are a model, word vectors and stop words. A run knows them by hashes of their content.
    """
    document = dict(augment)
    for key in ("masked_lm", "word_vectors"):
        if augment.get(key) not in (None, NONE):
            document[key] = "a place"
    # Stop words are a list of words, `english`, `none`, or the path of a file.
    stop_words = augment.get("stop_words")
    if isinstance(stop_words, str) and stop_words not in ("english", NONE):
        document["stop_words"] = "a place"
    return document
