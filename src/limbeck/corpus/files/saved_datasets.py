"""Folders that `save_to_disk` of `datasets` writes, and the Arrow files in them, as texts and labelled rows.

A saved `Dataset` is a folder with Arrow files and a list of them, `state.json`. A saved `DatasetDict` is a folder with
a saved data set for each split.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.core.files import read_json
from limbeck.corpus.files import guarded_stream, parquet_files
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow
from limbeck.corpus.messages import safe_name
from limbeck.corpus.text import documents
from limbeck.corpus.text.cursor import FoundText
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

_STATE = "state.json"
_INFO = "dataset_info.json"
_SPLITS = "dataset_dict.json"
_USUAL_SPLIT = "train"
# The first bytes of Arrow's format for random access. `datasets` writes the format for streams, which has none.
_MAGIC = b"ARROW1"


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote a folder."""
    return (folder / _SPLITS).is_file() or ((folder / _STATE).is_file() and (folder / _INFO).is_file())


def is_saved_split(folder: Path, data_set: str, config: str | None) -> bool:
    """Whether `save_to_disk` wrote a folder with a single split, and it is not known to be of another configuration.

    Configurations of a data set, such as RTE and WNLI of GLUE, may have the same columns and classes.

    Args:
        folder: The folder.
        data_set: Name of the Hub data set, without its owner.
        config: Name of its configuration; None where it has only one.
    """
    if not ((folder / _STATE).is_file() and (folder / _INFO).is_file()):
        return False
    # A data set that was not loaded from the Hub has no names, or those of a mere format.
    info = read_json(folder / _INFO)
    is_same_data_set = info.get("dataset_name") == data_set
    return config is None or not is_same_data_set or info.get("config_name") == config


def saved_files(folder: Path) -> list[Path]:
    """Return the Arrow files of a saved data set in their order; of several splits those of `train`.

    Args:
        folder: A folder that `save_to_disk` wrote.

    Raises:
        CorpusError: if the folder has no split `train`, or its list of files is damaged, or one of them is missing.
    """
    if (folder / _SPLITS).is_file():
        return saved_files(_split_to_read(folder))

    # The list has the form [{"filename": NAME}, …], which a foreign file need not keep.
    entries = read_json(folder / _STATE).get("_data_files")
    if not isinstance(entries, list) or not entries:
        raise _damaged(folder, f"{_STATE} does not list its files")
    files: list[Path] = []
    for entry in entries:
        name = entry.get("filename") if isinstance(entry, dict) else None
        # A path in the place of a name could lead anywhere.
        if not isinstance(name, str) or Path(name).name != name:
            raise _damaged(folder, f"{_STATE} does not list its files")
        if not (folder / name).is_file():
            raise _damaged(folder, f"its file '{safe_name(name)}' is missing")
        files.append(folder / name)
    return files


def read_arrow(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over the strings of the text column."""
    rows_before = file.start.position
    reader = _open_arrow(file)
    if not parquet_files.is_text_column(reader.schema, file):
        # Where reading resumes, the problem has been reported before.
        if rows_before == 0:
            rows = sum(batch.num_rows for batch in _batches(reader))
            parquet_files.note_other_column(reader.schema, rows, file)
        return

    column_number = reader.schema.get_field_index(file.text_column)
    row = 0
    for batch in _batches(reader):
        # Where reading resumes, whole batches of rows are passed over, and then single rows.
        if row + batch.num_rows <= rows_before:
            row += batch.num_rows
            continue
        for scalar in batch.column(column_number):
            row += 1
            if row <= rows_before:
                continue
            where = f"{file.path}:{row}"
            value = parquet_files.decode_string(scalar, where, file.report)
            text = documents.text_value(value, where, file.text_column, file.report)
            if text is not None:
                yield FoundText(text, position=row, line=row)


def read_arrow_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of an Arrow file."""
    from datasets import Features

    reader = _open_arrow(file)
    names = parquet_files.class_names(Features.from_arrow_schema(reader.schema))
    yield from parquet_files.placed_rows(_batches(reader), names, file)


def _split_to_read(folder: Path) -> Path:
    """Return the folder of the split `train` of a saved `DatasetDict`."""
    splits = read_json(folder / _SPLITS).get("splits")
    if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
        raise _damaged(folder, f"{_SPLITS} does not list its splits")
    if _USUAL_SPLIT not in splits:
        shown = ", ".join(map(safe_name, splits)) or "none"
        raise CorpusError(
            f"'{safe_name(folder)}' has no split '{_USUAL_SPLIT}'; its splits are {shown}: give the folder of one "
            "split."
        )
    split = folder / _USUAL_SPLIT
    if not (split / _STATE).is_file():
        raise _damaged(folder, f"its split '{_USUAL_SPLIT}' is missing")
    return split


def _damaged(folder: Path, problem: str) -> CorpusError:
    return CorpusError(
        f"'{safe_name(folder)}' was written by `save_to_disk` and is damaged: {problem}; save the data set again."
    )


def _open_arrow(file: OpenFile) -> Any:
    """Open an Arrow file in either of its formats: with an index of its batches, or as a stream."""
    import pyarrow as pa

    content = parquet_files.seekable_content(file)
    beginning = content.read(len(_MAGIC))
    content.seek(0)
    if beginning == _MAGIC:
        return pa.ipc.open_file(content)
    return pa.ipc.open_stream(content)


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    """Iterate over the batches of either format."""
    import pyarrow as pa

    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
        return
    try:
        yield from reader
    except pa.ArrowInvalid as error:
        raise guarded_stream.DamagedError(str(error)) from error
