"""`open_file`: a local or remote file opened at any position, unpacked and guarded against hostile content."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from limbeck.corpus.files import limits
from limbeck.corpus.files.addresses import FilePath, as_path, compression_of, is_remote
from limbeck.corpus.files.guarded_stream import GuardedStream, NotTextError, damages, is_refusal
from limbeck.corpus.files.unpacking import UnpackedFile
from limbeck.corpus.messages import first_line, safe_name
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

NOT_TEXT = "file not in UTF-8, skipped"
DAMAGED = "damaged file, read up to the damage"
BUFFER_BYTES = 2 * limits.JUDGED_BYTES
"""Size of the buffer of an open text file, whose first bytes can be peeked at."""
_SKIPPED_AT_ONCE = 2**20


@contextmanager
def open_file(
    path: FilePath, report: SourceReport, position: int = 0, *, is_binary: bool = False
) -> Iterator[BinaryIO]:
    """Open a file, unpacked; damage ends the reading inside the `with` and is noted.

    Args:
        path: The file.
        report: Receives the damage.
        position: Where to begin, in bytes of the unpacked content. A compressed file is unpacked up to there; in other
            files the reader jumps there.
        is_binary: Whether the content is not text. The stream can then seek, unless the file is compressed.

    Raises:
        CorpusError: if the file cannot be read at all.
    """
    compression = compression_of(path)
    # A stored binary file is given as it is, without a guard, since its reader seeks in it.
    is_given_as_stored = is_binary and not compression
    guard: GuardedStream | None = None
    try:
        with _open_stored(path, buffered=is_binary or bool(compression)) as stored:
            if is_given_as_stored:
                yield stored
            else:
                guard = _guard(stored, compression, position, is_text=not is_binary)
                with io.BufferedReader(guard, buffer_size=BUFFER_BYTES) as stream:
                    if compression:
                        _skip(stream, position)
                    yield stream
    except GeneratorExit:
        # The reader stopped early. When that happens at the end of the interpreter, the names used below are gone.
        raise
    except NotTextError as error:
        report.note(NOT_TEXT, f"{path}: {error}")
    except damages() as error:
        if isinstance(error, OSError) and is_refusal(error):
            raise CorpusError(f"Cannot read '{safe_name(path)}': {error.strerror}.") from error
        # A parser that finds the end too early raises an error; the guard knows what has ended the content.
        damage = _damage_of_guard(guard)
        _note_damage(path, report, error if damage is None else damage)
    else:
        # A reader of lines finds the end of the content at the damage, without an error.
        damage = _damage_of_guard(guard)
        if damage is not None:
            _note_damage(path, report, damage)


def _damage_of_guard(guard: GuardedStream | None) -> Exception | None:
    """Return the error that ended the content of a file before its end; None without damage, and without a guard."""
    return None if guard is None else guard.damage


def _note_damage(path: FilePath, report: SourceReport, damage: Exception) -> None:
    """Note that a file was read up to its damage."""
    report.note(DAMAGED, f"{path}: {first_line(damage)}")


def damage_of(stream: BinaryIO) -> Exception | None:
    """Return the error that ended the content of an open file before its end, if there is one."""
    return getattr(getattr(stream, "raw", None), "damage", None)


def read_whole(stream: BinaryIO, path: FilePath) -> bytes:
    """Read a file that can only be understood as a whole.

    Raises:
        CorpusError: if it has more than `limits.LARGEST_WHOLE` bytes.
    """
    content = stream.read(limits.LARGEST_WHOLE + 1)
    if len(content) > limits.LARGEST_WHOLE:
        raise CorpusError(
            f"'{safe_name(path)}' can only be read as a whole, but holds more than {limits.LARGEST_WHOLE:,} bytes; "
            "split it, or give it as .jsonl or uncompressed .parquet."
        )
    return content


def _open_stored(path: FilePath, *, buffered: bool) -> BinaryIO:
    """Open a file as it is stored."""
    if not is_remote(path):
        return as_path(path).open("rb", buffering=-1 if buffered else 0)
    try:
        import fsspec  # type: ignore[import-untyped]

        return cast(BinaryIO, fsspec.open(path, "rb", compression=None).open())
    except Exception as error:  # Each file system raises other kinds.
        raise CorpusError(f"Cannot read '{safe_name(path)}': {safe_name(first_line(error))}.") from error


def _guard(stored: BinaryIO, compression: str, position: int, *, is_text: bool) -> GuardedStream:
    """Return the guarded content of a stored file: of a compressed file from its beginning, else from `position`."""
    if compression:
        content: Any = UnpackedFile(stored, compression)
        return GuardedStream(content, packed=stored, is_text=is_text)
    stored.seek(position)
    return GuardedStream(stored, is_text=is_text, from_start=position == 0)


def _skip(stream: BinaryIO, size: int) -> None:
    """Read and forget the first bytes of a stream."""
    while size > 0:
        skipped = stream.read(min(size, _SKIPPED_AT_ONCE))
        if not skipped:
            return
        size -= len(skipped)
