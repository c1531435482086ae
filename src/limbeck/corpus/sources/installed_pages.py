"""The prose of pages that come with packages and programs: read-me files, news, change logs and licences."""

import gzip
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from limbeck.corpus.sources.docstrings import FileProse
from limbeck.corpus.sources.installed_files import walk_files
from limbeck.corpus.text.documents import clean_text
from limbeck.corpus.text.prose import Prose, extract_prose

PAGE_BEGINNING = 50_000
"""Number of bytes of a page that are read."""

MOST_PARAGRAPHS = 40
"""Most paragraphs of a page. The change log of thirty years would be more text than all other pages together."""

MOST_PAGES = 20
"""Most pages of a program. Some programs have hundreds of similar pages."""

# The name of a page, such as README.md or changelog.gz. Debian's own change logs are about packaging, and are left out.
_PAGE = re.compile(
    r"""
    (?!changelog\.debian)
    (?:
        (?:
            read-?me | news | faq | todo | hacking | contributing | history | changes | change-?log | copyright
            | licen[cs]e | copying | notice | install
        )
        (?:[-.]\w+)? (?:\.(?:txt|md|rst))? (?:\.gz)?
        | [\w+-]+ \.(?:md|rst) (?:\.gz)?
        | metadata
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The name of a translation, which ends with its language (README.de). Only English pages are read.
_TRANSLATED = re.compile(r"[-._](?!md|gz)[a-z]{2}(?:[-_][a-z]{2})?(?:\.(?:txt|md|rst|gz))*\Z", re.IGNORECASE)
# Debian's files of copyrights have a full stop alone on lines between paragraphs.
_BLANK_LINE = re.compile(r"^ *\.$", re.MULTILINE)


def read_page(path: str) -> FileProse:
    """Read the prose at the beginning of a page; of a package's METADATA file only the description."""
    try:
        is_compressed = path.endswith(".gz")
        with gzip.open(path) if is_compressed else Path(path).open("rb") as file:
            content = file.read(PAGE_BEGINNING)
    except (OSError, EOFError, zlib.error) as error:
        return FileProse([], f"unreadable page: {getattr(error, 'strerror', None) or 'damaged'}")

    text = clean_text(content.decode("utf-8", "replace"))
    if path.endswith("METADATA"):
        # The description stands behind the first blank line.
        _, _, text = text.partition("\n\n")
    else:
        text = _BLANK_LINE.sub("", text)

    # U+FFFD stands for bytes that are not UTF-8.
    readable = [paragraph for paragraph in extract_prose(text).paragraphs if "\ufffd" not in paragraph]
    if not readable:
        return FileProse([])
    return FileProse([Prose(readable[:MOST_PARAGRAPHS], has_summary=False)])


def page_roots() -> list[Path]:
    """Return the folders in which programs of this machine install documentation and licences."""
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix, "/usr", "/usr/local", "/opt/homebrew"))
    folders = [Path(prefix, "share", name) for prefix in prefixes for name in ("doc", "common-licenses")]
    return list(dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir()))


def page_files(roots: Iterable[Path]) -> Iterator[str]:
    """Iterate over the English pages below each root, sorted, at most `MOST_PAGES` of a program.

    Each page once; links to folders are not followed.
    """
    pages_by_program: Counter[str] = Counter()
    for root, path in walk_files(roots, (), _is_page):
        # Below a root every folder is a program's; pages at the root itself count together.
        folder = os.path.relpath(os.path.dirname(path), root)  # noqa: PTH120
        program, _, _ = folder.partition(os.sep)
        program_folder = f"{root}/{program}"
        pages_by_program[program_folder] += 1
        if pages_by_program[program_folder] <= MOST_PAGES:
            yield path


def _is_page(name: str) -> bool:
    return _PAGE.fullmatch(name) is not None and _TRANSLATED.search(name) is None
