"""Sources of a task's rows, as its description names them: files with their layout, and data sets of the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, field_validator, model_validator

from limbeck.core.strict import Strict
from limbeck.corpus.settings.parallel import Parallel, ParallelSpec
from limbeck.kinds.columns import Columns, Names


class TextFile(Strict):
    """A file of queries or documents by their ids, as BEIR has them by default.

    Attributes:
        path: Names that it may have, below the data folder or one of its subfolders.
        id: The column that the rows of a split name.
        text: Columns of the text; those of several that are not empty are joined by a space.
    """

    path: Names = Field(min_length=1)
    id: str = "_id"
    text: Names = Field(("text",), min_length=1)


def _file_of_names(value: Any) -> Any:
    """Return the description of a file for its name, or its names, alone; other values as they are."""
    if isinstance(value, str | list):
        return {"path": value}
    return value


Texts = Annotated[TextFile | None, BeforeValidator(_file_of_names)]


class FileSource(Strict):
    """A file of a split, and its layout.

    Attributes:
        path: Names that the file may have, below the data folder or one of its subfolders. A name with `*` stands for
            the only file in the data folder itself that it matches.
        columns: The columns that a row is made of, where they are not the task's.
        header: Names of the fields of a table without a header; further fields are skipped.
        only: Fields and the values that a row must have in them to belong to the split.
        queries: File of the queries that its rows name by their ids, where it is not the task's.
        documents: The same of documents.
        parallel: In place of all others, a sentence in two languages a row: those of the first language look for their
            translations among all of the second.
    """

    path: Names = Field(min_length=1)
    columns: Columns | None = None
    header: tuple[str, ...] = ()
    only: dict[str, str] = Field({})
    queries: Texts = None
    documents: Texts = None
    parallel: Parallel | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_a_parallel_file(cls, data: Any) -> Any:
        """Name the file and the columns of parallel text, which follow from it."""
        is_parallel = isinstance(data, dict) and data.get("parallel") is not None
        if not is_parallel or "path" in data:
            return data
        try:
            parallel = TypeAdapter(Parallel).validate_python(data["parallel"])
        except ValidationError:
            # The mistake is reported where the field `parallel` itself is read. With any path, none is reported as
            # missing beside it.
            return {**data, "path": "parallel"}
        query, *documents = parallel.all_languages
        return {**data, "path": parallel.places[0], "columns": {"query": query, "documents": documents}}

    @field_validator("parallel")
    @classmethod
    def _has_two_languages(cls, value: ParallelSpec | None) -> ParallelSpec | None:
        if value is not None and len(value.all_languages) > 2:
            raise ValueError(
                "a split of parallel text has exactly two languages: name further languages in the task's own key "
                "'parallel'"
            )
        return value


class PossibleFile(NamedTuple):
    """A name that a file may have, below one of the folders that it is looked for in, and the layout of that file."""

    name: str
    source: FileSource


class HubSplit(Strict):
    """A split of a Hub data set."""

    split: str
    config: str | None = None


def _split_of_name(value: Any) -> Any:
    """Return the description of a split for its name alone; other values as they are."""
    if isinstance(value, str):
        return {"split": value}
    return value


class HubSource(Strict):
    """A Hub data set, and which of its splits are which of the task's; by default those of the same names.

    Attributes:
        name: `owner/name`.
        config: Of the data set.
        revision: Of the data set; None is the newest.
        columns: Those that a row is made of, where they are not the task's.
        splits: The data set's splits, by the task's.
        rows: Numbers of rows of this copy, where they are not the published ones.
    """

    name: str = Field(pattern=r"^\w[\w.-]*(/\w[\w.-]*)?$")
    config: str | None = None
    revision: str | None = None
    columns: Columns | None = None
    splits: dict[str, Annotated[HubSplit, BeforeValidator(_split_of_name)]] = Field({})
    rows: dict[str, int] = Field({})


class HubPlace(NamedTuple):
    """A place on the Hub from which a split of a task is read.

    Attributes:
        data_set: The data set.
        hub_split: The data set's split, with its configuration.
    """

    data_set: HubSource
    hub_split: HubSplit

    @property
    def address(self) -> str:
        """The split as the sources of a corpus name it: `hub:owner/name:config@split#revision`."""
        address = f"hub:{self.data_set.name}"
        if self.hub_split.config:
            address += f":{self.hub_split.config}"
        address += f"@{self.hub_split.split}"
        if self.data_set.revision:
            address += f"#{self.data_set.revision}"
        return address

    def saved_names(self, folders: Sequence[str]) -> list[str]:
        """Return the names that the split may have below a data folder, where `save_to_disk` of `datasets` wrote it.

        Args:
            folders: The folders that files of the task may lie in; "" is the data folder itself.
        """
        _, _, name_of_data_set = self.data_set.name.rpartition("/")
        split = self.hub_split.split
        # A split with a configuration of its own, such as a language of XNLI, lies in a folder of that name.
        has_own_config = self.hub_split.config is not None and self.hub_split.config != self.data_set.config
        if has_own_config:
            split = f"{self.hub_split.config}/{split}"
        folder_of_data_set = self.data_set.config or name_of_data_set
        possible_folders = dict.fromkeys([*folders, folder_of_data_set, ""])
        return [f"{folder}/{split}".removeprefix("/") for folder in possible_folders]


def _files_of_split(value: Any) -> Any:
    """Return the descriptions of the files that a split may be read from, as a list of mappings.

    Args:
        value: The value of a split's key. A text is the name of one file. A list of texts is one file too: these are
            names that it may have. A mapping describes one file, and a list of mappings describes several, each with a
            layout of its own. Of all names and files the first that exists is read.
    """
    if isinstance(value, str):
        return [{"path": value}]
    if isinstance(value, dict):
        return [value]
    is_list_of_names = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if is_list_of_names:
        # An empty list is refused as a path without a name.
        return [{"path": value}]
    # A list of mappings stays as it is. Anything else is refused by the schema.
    return value


def _empty_for_null(value: Any) -> Any:
    """Return no files for a key without a value, which YAML reads as null."""
    return {} if value is None else value


Files = Annotated[
    dict[str, Annotated[tuple[FileSource, ...], BeforeValidator(_files_of_split)]],
    BeforeValidator(_empty_for_null),
]
"""Split to the files that it may be read from."""
