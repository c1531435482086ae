"""The key `parallel` of a task's description, which stands for two splits: each language looks for the other one."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from limbeck.corpus.settings.parallel import Parallel, ParallelSpec

METRICS_OF_TRANSLATIONS = ("accuracy_at_1", "mrr_at_10")
"""Metrics of parallel text, the main one first, where a description names none."""


def write_out_parallel(description: Any) -> Any:
    """Write a description of parallel text out as one of a retrieval.

    The first language is paired with each of the others, both ways: `en`, `de` and `zh` become the splits `test.en.de`,
    `test.de.en`, `test.en.zh` and `test.zh.en`. The split `test.de.en` has German queries and English documents.

    Args:
        description: Plain values, as YAML gives them. What is wrong with them, the schema refuses.
    """
    if not isinstance(description, dict) or description.get("parallel") is None:
        return description
    usual: dict[str, Any] = {"type": "retrieval", "metric": list(METRICS_OF_TRANSLATIONS)}
    try:
        parallel = TypeAdapter(Parallel).validate_python(description["parallel"])
    except ValidationError:
        # The schema reads the field `parallel` again, and refuses it. With the usual keys it misses nothing else.
        return {**usual, **description}

    files = {}
    language_of_split = {}
    first, *others = parallel.all_languages
    for other in others:
        for query, document in ((first, other), (other, first)):
            split = f"test.{query}.{document}"
            files[split] = {"parallel": _in_two_languages(parallel, query, document)}
            language_of_split[split] = query
    usual["language"] = language_of_split

    # What the description itself says takes precedence.
    written = {**usual, **description}
    files_of_description = description.get("files") or {}
    written["files"] = {**files, **files_of_description}
    return written


def _in_two_languages(parallel: ParallelSpec, query: str, document: str) -> dict[str, Any]:
    """Return the plain values of parallel text in two of its languages, in this order."""
    if parallel.files is not None:
        return {"files": {query: parallel.files[query], document: parallel.files[document]}}
    values: dict[str, Any] = {"file": parallel.file, "languages": [query, document]}
    if parallel.columns is not None:
        column_of_language = dict(zip(parallel.all_languages, parallel.columns, strict=True))
        values["columns"] = [column_of_language[query], column_of_language[document]]
    return values
