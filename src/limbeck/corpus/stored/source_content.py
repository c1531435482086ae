"""`name_of_build`: the name of a cache folder that holds what was read from sources.

Sources are known by path, size and time of change of their files. A file can be replaced by another one of equal size
and time, as archives with fixed times, `cp -p` and `rsync -t` do. So a *note* beside the cache says which content each
folder was built from. The *content* is a hash of all bytes of the files. To read them only once, the note also has the
content that belongs to a *state* of the files, which changes when one of them is replaced (`FileState`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.core.files import FileState, atomic_text, change_state, read_json
from limbeck.core.hashing import fingerprint, hash_file
from limbeck.corpus.digests import digest_of
from limbeck.corpus.files.addresses import file_size, is_remote
from limbeck.corpus.messages import safe_name
from limbeck.corpus.progress import Progress, step_progress
from limbeck.corpus.sources.source_kinds import files_of
from limbeck.errors import CorpusError

_NOTES = "sources"
"""Folder of the cache with a note for each name."""
_BYTES_THAT_TAKE_LONG = 2**31
"""Files of so many bytes together take seconds to hash, which is reported."""


def name_of_build(
    cache_dir: Path,
    identity: Any,
    sources: Iterable[Any],
    *,
    is_cheap: bool = True,
    progress: Progress | None = None,
) -> str:
    """Return the name of the cache folder for an identity, and another one for each other content of its files.

    The first content that an identity is seen with has the identity's own fingerprint as its name. What is built from
    such a folder is named after it, so everything that depends on replaced files is built anew.

    Args:
        cache_dir: Root of the cache.
        identity: Plain JSON values that decide what is built, with the fingerprints of the sources.
        sources: The sources. Those that have no files are known by their fingerprints alone.
        is_cheap: Whether hashing the files takes little time beside what is built. Without it they are not hashed, and
            a hash of their state serves as their content: a file that was only touched then counts as another one.
        progress: Called while many bytes are hashed.

    Raises:
        CorpusError: if a file cannot be read.
    """
    name = fingerprint(identity)
    files: list[Path] = []
    for source in sources:
        # A remote file has a key of its version in its fingerprint.
        files += [Path(file) for file in files_of(source) if not is_remote(file)]
    if not files:
        return name

    note = _Note.read(cache_dir / _NOTES / f"{name}.json")
    content = _content_of(files, note, is_cheap=is_cheap, progress=progress)
    if content == note.first_content:
        return name
    return fingerprint([identity, content])


def _content_of(files: Sequence[Path], note: _Note, *, is_cheap: bool, progress: Progress | None) -> str:
    """Return the content of files: from the note, where it knows their state, or by reading them.

    A content that was not in the note is written into it. The first content that a note gets becomes `first_content`.

    Args:
        files: The files.
        note: The note of their identity.
        is_cheap: Whether the files are hashed; otherwise their state serves as their content.
        progress: Called while many bytes are hashed.
    """
    start_of_reading = time.time_ns()
    states = [_state_of(file) for file in files]
    # Notes of earlier versions have hashes of plain tuples, so states are written as these.
    state = digest_of(str(tuple(file_state)) for file_state in states)
    noted_content = note.content_by_state.get(state)
    if noted_content is not None:
        return noted_content

    content = state
    if is_cheap:
        content = _hash_files(files, progress)
    is_first = note.first_content is None
    if is_first:
        note.first_content = content
    # A file that was changed just now may change again without another state. Its state is not noted, so that the
    # files are hashed again the next time.
    are_settled = all(file_state.is_settled(start_of_reading) for file_state in states)
    if are_settled:
        note.content_by_state[state] = content
    if is_first or are_settled:
        note.write()
    return content


@dataclass
class _Note:
    """The contents that the files of an identity were seen with.

    Args:
        path: The file of the note.
        first_content: The content that the identity was first seen with; None before it is known.
        content_by_state: The content of the files in each state, by a hash of the state.
    """

    path: Path
    first_content: str | None
    content_by_state: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> _Note:
        """Read a note; an empty one where there is none, or none that can be read."""
        values = read_json(path)
        first = values.get("first")
        contents = values.get("contents")
        if isinstance(first, str) and isinstance(contents, dict):
            return cls(path, first, contents)
        return cls(path, None, {})

    def write(self) -> None:
        """Write the note; a cache that can only be read is used without it."""
        text = json.dumps({"first": self.first_content, "contents": self.content_by_state}, indent=1)
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_text(self.path, f"{text}\n", durable=False, shared=True)


def _state_of(file: Path) -> FileState:
    try:
        return change_state(file.stat())
    except OSError as error:
        raise CorpusError(f"Cannot read '{safe_name(file)}': {error.strerror}.") from error


def _hash_files(files: Sequence[Path], progress: Progress | None) -> str:
    """Return a hash of the content of all files."""
    total = sum(file_size(file) for file in files)
    step = None
    if total >= _BYTES_THAT_TAKE_LONG:
        step = step_progress(progress, "hashing the sources")

    hashes: list[str] = []
    done = 0
    for file in files:
        if step is not None:
            step(done, total, "bytes")
        try:
            hashes.append(hash_file(file))
        except OSError as error:
            raise CorpusError(f"Cannot read '{safe_name(file)}': {error.strerror}.") from error
        done += file_size(file)
    return digest_of(hashes)
