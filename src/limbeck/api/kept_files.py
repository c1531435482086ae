"""Files of objects: models, texts and tables that a call is given are saved in a folder.

The name of each file has a hash of its content, so that the same object always has the same file. The hash is known
only after writing: files are written under a temporary name (`unnamed`) and then renamed.
"""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from limbeck.api.classes import class_name
from limbeck.core.files import atomic_folder, remove
from limbeck.core.folders import writing
from limbeck.core.paths import INPUTS, default_cache_dir
from limbeck.errors import RecipeError, shorten_error

if TYPE_CHECKING:
    from pyarrow import Schema

_SHORT = 12
"""Characters of the hash in the name of a file."""


class KeptFiles:
    """A folder of files that are made of objects, each under a name that follows from its content.

    Args:
        output: The folder of a run or evaluation, where they are kept in `inputs`; None is a folder of limbeck's cache.
        before: Called before something is kept; it may refuse to write into the folder.

    Attributes:
        notes: A sentence for every object, by the key of the recipe whose value it is.
    """

    def __init__(self, output: str | Path | None, before: Callable[[], object]) -> None:
        parent = default_cache_dir() if output is None else Path(output).expanduser()
        self._folder = parent / INPUTS
        self._before = before
        self.notes: dict[str, str] = {}

    def keep_model(self, class_name: str, save: Callable[[Path], None], place: str) -> Path:
        """Keep a model.

        Args:
            class_name: Name of its class.
            save: Saves it to a folder.
            place: Key of the recipe, for messages.

        Returns:
            The model's folder.

        Raises:
            RecipeError: for a model that cannot be saved.
        """
        from limbeck.models.fingerprint import model_fingerprint
        from limbeck.models.quiet import quiet

        # The folder's name has the hash of its content, which is known only once it is written.
        with self._writing(), quiet():
            unnamed = self._folder / f"{class_name}.{os.getpid()}"
            try:
                with atomic_folder(unnamed) as partial:
                    try:
                        save(partial)
                    except (RuntimeError, TypeError, ValueError) as error:
                        # The class of the model may be anyone's, and fail in any way.
                        raise RecipeError(
                            f"{place}: the {class_name} cannot be saved ({shorten_error(error)})."
                        ) from error
                fingerprint = model_fingerprint(str(unnamed))
                folder = self._folder / f"{class_name}-{fingerprint[:_SHORT]}"
                if not folder.is_dir():
                    unnamed.rename(folder)
            finally:
                remove(unnamed)
        self._note(place, f"a {class_name}, given as an object", folder, fingerprint)
        return folder

    def keep_lines(self, values: Iterable[Any], place: str) -> str:
        """Keep texts or rows as a file of JSON lines.

        Args:
            values: Texts, or rows as mappings of columns; all of the same type.
            place: Key of the recipe, for messages.

        Returns:
            The file.

        Raises:
            RecipeError: for no value, values of several types, and rows that JSON cannot hold.
        """
        iterator = iter(values)
        first = next(iterator, None)
        if first is None:
            raise RecipeError(f"{place} is empty: give a file, folder, texts or a data set.")
        lines_cls = _RowLines if isinstance(first, Mapping) else _TextLines
        lines = lines_cls(chain([first], iterator), place)
        path, digest = self._keep_file(lines, lines.noun, ".jsonl")
        # The lines were counted as they were written.
        self._note(place, f"{lines.count:,} {lines.noun}, given as objects", path, digest)
        return str(path)

    def keep_table(self, tables: Iterable[Any], place: str) -> str:
        """Keep tables of Arrow, one after the other, as one file of Parquet.

        Args:
            tables: The tables; all have the columns of the first.
            place: Key of the recipe, for messages.

        Returns:
            The file.

        Raises:
            RecipeError: for tables without any row.
        """
        pieces = _ParquetPieces(tables, place)
        path, digest = self._keep_file(pieces, "rows", ".parquet")
        self._note(place, f"{pieces.count:,} rows, given as an object", path, digest)
        return str(path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Make the folder, unless `before` refuses, and turn errors of writing in the block into `OutputError`."""
        self._before()
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            yield

    def _keep_file(self, pieces: Iterable[bytes], noun: str, suffix: str) -> tuple[Path, str]:
        """Write a file, and return it with the hash of its content.

        Args:
            pieces: The content.
            noun: The beginning of the file's name.
            suffix: The end of the file's name.
        """
        digest = hashlib.blake2b(digest_size=12)
        with self._writing():
            unnamed = self._folder / f"{noun}.{os.getpid()}.partial"
            try:
                with unnamed.open("wb") as file:
                    for piece in pieces:
                        digest.update(piece)
                        file.write(piece)
                path = self._folder / f"{noun}-{digest.hexdigest()[:_SHORT]}{suffix}"
                unnamed.replace(path)
            finally:
                unnamed.unlink(missing_ok=True)
        return path, digest.hexdigest()

    def _note(self, place: str, description: str, path: Path, digest: str) -> None:
        """Note an object, by the key of the recipe."""
        self.notes[place] = f"{description}, kept as '{path}' (hash of its content: {digest})"


class _Lines(ABC):
    """Values of one type as lines of JSON, which are counted while they are written.

    Args:
        values: The values.
        place: Key of the recipe, for messages.

    Attributes:
        noun: The noun for the values.
        cls: Their type.
        type_in_words: Their type, for messages.
    """

    noun: ClassVar[str]
    cls: ClassVar[type]
    type_in_words: ClassVar[str]

    def __init__(self, values: Iterable[Any], place: str) -> None:
        self._values = values
        self._place = place
        self.count = 0

    @abstractmethod
    def row_of(self, value: Any) -> Any:
        """Return the columns of a value."""

    def __iter__(self) -> Iterator[bytes]:
        """Write the values as JSON, a line each."""
        for value in self._values:
            self.count += 1
            self._check(value)
            try:
                row = self.row_of(value)
                line = json.dumps(row, ensure_ascii=False, default=_plain_value)
                # Half of a character (a lone surrogate) has no bytes in UTF-8. Written as an escape, it is replaced and
                # counted when the file is read, as in every other file.
                if _has_surrogates(line):
                    line = json.dumps(row, default=_plain_value)
            except (TypeError, ValueError) as error:
                reason = shorten_error(error)
                raise RecipeError(f"{self._place}: row {self.count} cannot be written ({reason}).") from error
            yield line.encode() + b"\n"

    def _check(self, value: Any) -> None:
        """Refuse a value of another type than the first."""
        if isinstance(value, self.cls):
            return
        actual = "None" if value is None else f"of the type {class_name(value)}"
        raise RecipeError(
            f"{self._place}: item {self.count} is {actual} among {self.type_in_words}; give values of one type only."
        )


class _TextLines(_Lines):
    """Texts, each the one column of a row."""

    noun = "texts"
    cls = str
    type_in_words = "text"

    def row_of(self, value: Any) -> Any:
        """Return a row with the text alone."""
        return {"text": value}


class _RowLines(_Lines):
    """Rows, as mappings of columns."""

    noun = "rows"
    cls = Mapping
    type_in_words = "mappings of columns"

    def row_of(self, value: Any) -> Any:
        """Return the row as it is."""
        return value


class _ParquetPieces:
    """Tables of Arrow as the bytes of one Parquet file, whose rows are counted while they are written."""

    def __init__(self, tables: Iterable[Any], place: str) -> None:
        self._tables = tables
        self._place = place
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        """Write the tables as one Parquet file, part by part."""
        from pyarrow.parquet import ParquetWriter

        buffer = BytesIO()
        writer = None
        for table in self._tables:
            # Metadata of the schema, such as that of `datasets`, may differ for the same content. The names of its
            # class numbers are content.
            plain = table.replace_schema_metadata(_names_of_classes(table.schema))
            if writer is None:
                writer = ParquetWriter(buffer, plain.schema)
            writer.write_table(plain.cast(writer.schema))
            self.count += plain.num_rows
            # Hand on what was written so far, and empty the buffer.
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
        if writer is None or not self.count:
            raise RecipeError(f"{self._place} has no rows: give a data set with rows.")
        writer.close()
        yield buffer.getvalue()


def _names_of_classes(schema: "Schema") -> dict[bytes, bytes] | None:
    """Return the metadata that name the class numbers of a data set's columns; None where no column has such names."""
    if b"huggingface" not in (schema.metadata or {}):
        return None
    from datasets import Features

    from limbeck.corpus.files.parquet_files import class_names

    features = Features.from_arrow_schema(schema)
    # A schema of these columns alone has metadata of them alone.
    columns_with_names = class_names(features)
    features_with_names = Features({column: features[column] for column in columns_with_names})
    if not features_with_names:
        return None
    return dict(features_with_names.arrow_schema.metadata)


def _has_surrogates(text: str) -> bool:
    """Whether a text has halves of characters, which stand in no file."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _plain_value(value: Any) -> Any:
    """Return a number or list of another library as Python has it, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{class_name(value)} among its values")
