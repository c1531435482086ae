"""Translation memories in TMX (Translation Memory eXchange 1.4b), an XML format of sentences in several languages.

A *unit* (`tu`) has a *variant* (`tuv`) for each language, with its sentence as a *segment* (`seg`). Files from outside
may be hostile, so entities are refused and every size is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.parsers import expat

from limbeck.corpus.files import limits
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow
from limbeck.corpus.messages import safe_name
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

SEVERAL_VARIANTS = "translation unit with several texts of a language, of which a code without a region is the first"
_BYTES_AT_ONCE = 2**16
_DEEPEST = 100
"""Levels of elements within each other; a TMX file has six, and a few more within a segment."""
_CODES = ("bpt", "ept", "ph", "it", "ut")
"""Elements of a segment that hold codes of the original document, such as HTML tags. Text inside them is left out."""


def language_code(name: str) -> str:
    """Return the language of a name such as `en-US` or `EN`: `en`."""
    return name.replace("_", "-").partition("-")[0].lower()


def read_tmx_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the units of a TMX file as rows, with the sentence of each language under its code, such as `en`.

    A row has a sentence of `en-US` both as `en` and as `en-us`. Of several variants of one language, `en` is the first.
    Codes of the original document within a sentence (`bpt`, `ept`, `ph`, `it`, `ut`) are left out.

    Raises:
        CorpusError: for a file that is not XML, declares or uses an entity, or has a segment, a unit or a tag of
            unusual size.
    """
    units = _Units(file.path, file.report)
    fed_bytes = 0
    while block := file.stream.read(_BYTES_AT_ONCE):
        fed_bytes += len(block)
        units.feed(block, is_last=False)
        yield from units.take()
        # The parser keeps a tag or a comment in memory until its end.
        if fed_bytes - units.parsed_bytes > limits.LONGEST_LINE:
            raise _refusal(file.path, f"a tag or comment is longer than {limits.LONGEST_LINE:,} bytes")
    units.feed(b"", is_last=True)
    yield from units.take()


class _Units:
    """The units of a TMX file, as the parser of XML finds them.

    Args:
        path: The file.
        report: Receives units with several variants of a language.
    """

    def __init__(self, path: FilePath, report: SourceReport) -> None:
        self._path = path
        self._report = report
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._add_text
        # An entity may stand for gigabytes of text, or for a file of this machine. Translation memories need none: the
        # five of XML itself, such as &amp;, are not declared.
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity

        self._finished: list[PlacedRow] = []
        self._depth = 0
        # The unit and the variant that are being read.
        self._line = 0
        self._sentences: dict[str, str] = {}
        self._characters_of_unit = 0
        self._language = ""
        # The text of the segment that is being read, in pieces; None outside of segments.
        self._segment: list[str] | None = None
        # How many codes of the original document stand around the place, whose text is left out.
        self._open_codes = 0

    @property
    def parsed_bytes(self) -> int:
        """Number of bytes in front of the tag or text that the parser has not read to its end."""
        return max(self._parser.CurrentByteIndex, 0)

    def feed(self, block: bytes, *, is_last: bool) -> None:
        """Parse the next bytes.

        Raises:
            CorpusError: see `read_tmx_rows`.
        """
        try:
            self._parser.Parse(block, is_last)
        except (expat.ExpatError, ValueError, LookupError) as error:
            # The last two are about an encoding that is unknown or has several bytes a character.
            raise _refusal(self._path, str(error)) from error

    def take(self) -> list[PlacedRow]:
        """Return the units that were finished, and forget them."""
        finished = self._finished
        self._finished = []
        return finished

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element: a unit of translations (`tu`), a language of it (`tuv`), its text (`seg`), or a code."""
        self._depth += 1
        # Deep elements cost memory, and a hostile file may have millions.
        if self._depth > _DEEPEST:
            raise _refusal(self._path, f"elements stand within each other {_DEEPEST} times")
        if name == "tu":
            self._line = self._parser.CurrentLineNumber
            self._sentences = {}
            self._characters_of_unit = 0
        elif name == "tuv":
            # TMX 1.1 has the attribute without `xml:`.
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self._count_characters(self._language)
        elif name == "seg":
            self._segment = []
        elif name in _CODES:
            self._open_codes += 1

    def _end(self, name: str) -> None:
        """End an element; a unit that has ended becomes a row."""
        self._depth -= 1
        if name == "tu" and self._sentences:
            self._finished.append(PlacedRow(f"{self._path}:{self._line}", self._sentences))
        elif name == "seg" and self._segment is not None:
            self._add_sentence("".join(self._segment))
            self._segment = None
        elif name in _CODES:
            self._open_codes -= 1

    def _add_text(self, text: str) -> None:
        """Add text to the segment; text outside of segments and within codes is left out."""
        if self._segment is not None and self._open_codes == 0:
            self._count_characters(text)
            self._segment.append(text)

    def _add_sentence(self, sentence: str) -> None:
        """Add the sentence of a variant to its unit."""
        full_code = self._language.replace("_", "-").lower()
        code = language_code(self._language)
        if code in self._sentences:
            self._report.note(SEVERAL_VARIANTS, f"{self._path}:{self._line}")
        self._sentences.setdefault(full_code, sentence)
        self._sentences.setdefault(code, sentence)

    def _count_characters(self, text: str) -> None:
        """Refuse a unit that grows too long."""
        self._characters_of_unit += len(text)
        if self._characters_of_unit > limits.LONGEST_DOCUMENT:
            problem = f"a translation unit has more than {limits.LONGEST_DOCUMENT:,} characters"
            raise _refusal(self._path, f"{problem} (line {self._line})")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise _refusal(
            self._path, f"it has the entity '{safe_name(name)}', whose text is not known: replace it by its text"
        )


def _refusal(path: FilePath, problem: str) -> CorpusError:
    """Return the error for a file that is no usable TMX."""
    return CorpusError(f"'{safe_name(path)}' cannot be read as TMX: {problem}.")
