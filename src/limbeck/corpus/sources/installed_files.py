"""The files of installed packages and programs: those below some folders, chosen by their names."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path


def walk_files(
    roots: Iterable[Path], passed_over: Collection[str], is_wanted: Callable[[str], bool]
) -> Iterator[tuple[Path, str]]:
    """Iterate over the wanted files below each root, folder by folder, sorted.

    Hidden folders are not entered, and links to folders are not followed. Only regular files are given, and no links
    that lead nowhere or pipes. A folder below two roots is read once.

    Args:
        roots: The folders to begin with.
        passed_over: Names of folders that are not entered.
        is_wanted: Returns whether a file with a given name is wanted.

    Yields:
        The root, and the path of a file.
    """
    walked: set[str] = set()
    for root in roots:
        for folder, names, files in os.walk(root):
            # `os.walk` enters the folders that are left in the list.
            names[:] = sorted(name for name in names if name not in passed_over and not name.startswith("."))
            if folder in walked:
                continue
            walked.add(folder)
            for name in sorted(filter(is_wanted, files)):
                path = os.path.join(folder, name)  # noqa: PTH118
                if os.path.isfile(path):  # noqa: PTH113
                    yield root, path
