"""`read_held_out_rows`: the labelled rows that a corpus keeps out of the training, as they were read."""

from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.building.splitting import HELD_OUT, hold_out, rows_with_roles
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.rows.row_kind import RowKind
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import read_rows, row_files
from limbeck.corpus.stored.stored_rows import store_development, store_rows


class HeldOutRows(NamedTuple):
    """The held-out rows of a corpus.

    Args:
        rows: The rows.
        content: Hashes of what was read, with which `content` of the corpus begins.
    """

    rows: list[LabelledRow]
    content: list[str]


def read_held_out_rows(
    settings: LabelledSettings, kind: RowKind, *, cache_dir: str | Path | None = None
) -> HeldOutRows:
    """Return the development rows of a corpus; without any, the rows that are held out of the training rows.

    They are the rows of `held_out` of a `LabelledCorpus` with these settings, before they are made into tokens.

    Args:
        settings: The settings of the corpus.
        kind: The kind of its task, `limbeck.kinds.KINDS[settings.task]`.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, or a row has no label of the task.
    """
    cache = cache_root(cache_dir)
    folder, manifest = store_rows(settings, kind, cache)
    development = store_development(settings, kind, cache)
    content = [*manifest["content"], *development.content]
    if development.files:
        rows: list[LabelledRow] = []
        for path in development.files:
            for batch in read_rows(path):
                rows += batch.rows
        return HeldOutRows(rows, content)
    roles = hold_out(row_files(folder), settings.held_out, SourceReport())
    held_out = [stored_row.row for stored_row in rows_with_roles(roles) if stored_row.role == HELD_OUT]
    return HeldOutRows(held_out, content)
