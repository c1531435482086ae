"""Small text files of the user, such as a list of sentences to compare, which are read as a whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TextIO

from limbeck.errors import CorpusError


def read_plain_lines(path: Path) -> list[str]:
    """Read the lines of a small UTF-8 file of the user, without their ends.

    Raises:
        CorpusError: if it is missing, a folder, not readable, or not in UTF-8.
    """
    with _plain_text(path) as file:
        return file.read().splitlines()


def read_texts(path: Path, most: int | None = None) -> list[str]:
    """Read a small UTF-8 file of the user with a text a line; blank lines are skipped.

    Args:
        path: The file.
        most: Most texts to read; None reads all.

    Raises:
        CorpusError: if it cannot be read, or holds no text.
    """
    with _plain_text(path) as file:
        lines = map(str.strip, file)
        texts = list(islice(filter(None, lines), most))
    if not texts:
        raise CorpusError(f"'{path}' holds no text; give a file with one sentence or paragraph per line.")
    return texts


@contextmanager
def _plain_text(path: Path) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        raise CorpusError(f"'{path}' is not in UTF-8 (byte {error.start}); convert the file to UTF-8 first.") from error
    except OSError as error:
        raise CorpusError(f"Cannot read '{path}': {error.strerror}; give a text file.") from error
