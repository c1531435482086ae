"""`ParallelSpec`: parallel text as recipes and task files name it: sentences and their translations."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from limbeck.core.fields import Count, Grown, Name, Place

_LONGEST_SHOWN = 40
"""Most characters of a wrong code of a language in a message."""

PARALLEL_PREFIX = "parallel:"
"""How a string begins that names one language of parallel text as a source, see `place_of`."""

_LANGUAGE_CODE = r"^[A-Za-z][A-Za-z0-9_-]{0,29}$"


def _check_language(value: Any) -> Any:
    """Refuse what is no code of a language, in words that say what to write."""
    if isinstance(value, bool):
        raise ValueError(
            f"{str(value).lower()} is not the code of a language, because YAML reads codes such as no as true or "
            'false: put the code in quotation marks, as in "no"'
        )
    if isinstance(value, str) and re.fullmatch(_LANGUAGE_CODE, value) is None:
        raise ValueError(
            f"{value[:_LONGEST_SHOWN]!r} is not the code of a language: give up to 30 letters, digits, - and _, "
            "such as de or zh-Hans"
        )
    return value


Language: TypeAlias = Annotated[str, Field(pattern=_LANGUAGE_CODE), BeforeValidator(_check_language)]
"""A code of a language, such as `en`, `deu` or `zh-Hans`."""


class ParallelSpec(Grown):
    """Sentences in several languages: a text file of each language, `{en: FILE, de: FILE}`, or one file of all."""

    files: dict[Language, Place] | None = None
    """A text file of each language; line n of each has the same sentence."""
    file: Place | None = None
    """In place of `files`, a table or a TMX file that has all languages."""
    languages: list[Language] | None = None
    """The languages of `file`."""
    columns: list[Name] | list[Count] | None = Field(
        None,
        description="The column of each language in a table: its name, or the number of its field if the table has no "
        "header; default: the columns are named like the languages.",
    )
    added = frozenset({"files", "file", "languages", "columns"})

    @model_validator(mode="after")
    def _is_whole(self) -> ParallelSpec:
        """Check that the keys describe either several files or a single one, with two languages or more."""
        has_several_files = self.files is not None
        has_one_file = self.file is not None
        if has_several_files == has_one_file:
            raise ValueError(
                "give either a file for each language, as in {en: FILE, de: FILE}, or one 'file' with its 'languages'"
            )
        if self.files is not None and (self.languages or self.columns):
            raise ValueError(
                "'languages' and 'columns' apply only to a single 'file' of all languages, but each language has "
                "a file here: leave both keys out"
            )
        if self.file is not None and self.languages is None:
            raise ValueError("'languages' is missing: name the languages of 'file', as in [en, de]")
        languages_differ = len(set(self.all_languages)) == len(self.all_languages)
        if not languages_differ or len(self.all_languages) < 2:
            raise ValueError("parallel text needs at least two languages, and each only once: name another language")
        if self.columns is not None and len(self.columns) != len(self.all_languages):
            raise ValueError(
                f"'columns' names {len(self.columns)} columns for {len(self.all_languages)} languages: name one "
                "column for each language"
            )
        return self

    @property
    def all_languages(self) -> tuple[str, ...]:
        """The languages, in their order."""
        return tuple(self.files or self.languages or ())

    @property
    def places(self) -> tuple[str, ...]:
        """A file of each language, or the one of all."""
        if self.files is not None:
            return tuple(self.files.values())
        assert self.file is not None
        return (self.file,)


def _files_of_languages(value: Any) -> Any:
    """The keys of parallel text that is given by a file of each language alone."""
    if not isinstance(value, dict) or {"files", "file", "languages"} & set(value):
        return value
    return {"files": value}


Parallel: TypeAlias = Annotated[
    ParallelSpec, BeforeValidator(_files_of_languages, json_schema_input_type=ParallelSpec | dict[str, Place])
]
"""Parallel text, as users write it."""


def place_of(parallel: ParallelSpec, language: str) -> str:
    """Return the string that names one language as a source: `parallel:de {"files": {"en": FILE, "de": FILE}}`."""
    document = json.dumps(parallel.model_dump(mode="json"), ensure_ascii=False)
    return f"{PARALLEL_PREFIX}{language} {document}"


def describe_place(place: str) -> str:
    """Return a source as people read it: the files of parallel text and its language, any other source as it is."""
    if not names_parallel_text(place):
        return place
    language, _, document = place.removeprefix(PARALLEL_PREFIX).partition(" ")
    parallel = ParallelSpec.model_validate_json(document)
    return f"{' and '.join(parallel.places)} ({language})"


def names_parallel_text(text: str) -> bool:
    """Whether a string names one language of parallel text as a source."""
    return text.startswith(PARALLEL_PREFIX)
