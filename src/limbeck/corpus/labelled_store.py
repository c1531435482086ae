"""Labelled rows on disk: read from their sources and checked once, shared by every tokenizer and length."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from limbeck.core.files import build_once, fingerprint
from limbeck.corpus.document import Document
from limbeck.corpus.document_reading import Progress
from limbeck.corpus.labelled_examples import Example, example_reader
from limbeck.corpus.labelled_settings import LabelledSettings, LabelledTask
from limbeck.corpus.labelled_sources import RowSource, open_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

ROW_FORMAT = 1
"""Raise it when the same sources would give other rows: older caches are then built anew."""

# Characters of one file: the piece of work of one tokenising process.
SHARD_CHARACTERS = 4_000_000
_BATCH_ROWS = 1000

LABEL_TYPES: dict[LabelledTask, pa.DataType] = {
    "classification": pa.int64(),
    "regression": pa.float64(),
    "question_answering": pa.list_(pa.int64(), 2),
}


def store_rows(
    settings: LabelledSettings, cache_dir: Path, *, progress: Progress | None = None
) -> tuple[Path, dict[str, Any]]:
    """Read all rows of some sources into a cached folder of Arrow files, unless it is there already.

    Args:
        settings: Sources, columns and class names.
        cache_dir: Root of the cache.
        progress: Told how reading advances.

    Returns:
        The folder and its manifest.

    Raises:
        CorpusError: if a source cannot be read or gives no row, or a row has no label of the task.
    """
    example_reader(settings)  # Refuses settings that cannot be met before anything is read.
    sources = [(name, open_rows(name)) for name in settings.sources]
    states = [source.fingerprint() for _, source in sources]
    choices = [settings.task, settings.columns, settings.labels, settings.max_rows]
    folder = cache_dir / "rows" / fingerprint([ROW_FORMAT, choices, states])

    def build(aside: Path) -> dict[str, Any]:
        report = SourceReport()
        per_source: dict[str, int] = {}
        # Closed at max_rows, so that the report of a source that was left in the middle is there.
        with closing(_read(sources, settings, per_source, report, progress)) as examples:
            counts = _write(islice(examples, settings.max_rows), settings.task, aside)
        return {"format": ROW_FORMAT, "sources": per_source, **counts, "report": report.to_dict()}

    return folder, build_once(folder, build)


def row_files(folder: Path) -> list[Path]:
    """Return the files that hold the rows of a folder, in order."""
    return sorted(folder.glob("rows-*.arrow"))


def read_examples(path: Path) -> Iterator[tuple[list[Example], npt.NDArray[np.uint64]]]:
    """Iterate over one file: some rows, and the key of each row's text."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            columns = (batch.column(name).to_pylist() for name in ("text", "pair", "label"))
            yield list(map(Example, *columns)), batch.column("key").to_numpy()


def _read(
    sources: Sequence[tuple[str, RowSource]],
    settings: LabelledSettings,
    per_source: dict[str, int],
    report: SourceReport,
    progress: Progress | None,
) -> Generator[Example, None, None]:
    read_example = example_reader(settings)
    for name, source in sources:
        per_source[name] = 0
        own = SourceReport()
        step = None if progress is None else partial(progress, f"reading {name}")
        try:
            for row in source.rows(own, step):
                example = read_example(row, own)
                if example is not None:
                    per_source[name] += 1
                    yield example
        finally:
            report.merge(own)
        if per_source[name] == 0:
            why = f": {'; '.join(own.lines())}" if own.lines() else ""
            raise CorpusError(f"The source '{name}' holds no labelled row{why}.")


def _write(examples: Iterator[Example], task: LabelledTask, folder: Path) -> dict[str, int]:
    """Write rows to `rows-00000.arrow` and so on; return the counts of rows, distinct texts and characters."""
    columns = [("text", pa.large_string()), ("pair", pa.large_string()), ("label", LABEL_TYPES[task])]
    schema = pa.schema([*columns, ("key", pa.uint64())])
    texts: set[int] = set()
    rows = characters = shard = 0
    batch = list(islice(examples, _BATCH_ROWS))
    while batch:
        in_shard = 0
        path = folder / f"rows-{shard:05d}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            while batch and in_shard < SHARD_CHARACTERS:
                keys = [Document(example.text).key for example in batch]
                content = [list(column) for column in zip(*batch, strict=True)]
                writer.write_batch(pa.record_batch([*content, keys], schema=schema))
                texts.update(keys)
                rows += len(batch)
                in_shard += sum(len(example.text) + len(example.pair or "") for example in batch)
                batch = list(islice(examples, _BATCH_ROWS))
        characters += in_shard
        shard += 1
    return {"rows": rows, "texts": len(texts), "characters": characters}
