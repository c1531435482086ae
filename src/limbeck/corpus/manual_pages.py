"""Manual pages as plain text: what `man` would print, without its layout.

Enough of the two macro packages, `man` (GNU/Linux) and `mdoc` (BSD, macOS), for running text: their headings,
paragraphs and inline macros. Examples, tables and definitions of macros are left out, and no macro is carried out, so a
page can do no more than give text.
"""

import re
from collections.abc import Iterator

# Macros, by what their line does to the text.
_HEADINGS = frozenset(["SH", "SS", "Sh", "Ss"])
_BREAKS = frozenset(["PP", "P", "LP", "HP", "IP", "TP", "TQ", "RS", "RE", "sp", "Pp", "It", "Bl", "El", "IX"])
_BEGINS = {"nf": "fi", "EX": "EE", "TS": "TE", "de": ".", "ig": ".", "de1": ".", "am": ".", "Bd": "Ed", "SY": "YS"}
"""Macro that begins what is no running text → the one that ends it."""
_SPACED = frozenset(["B", "I", "SM", "SB", "R"])
_ALTERNATING = frozenset(["BI", "BR", "IB", "IR", "RB", "RI"])
_INLINE = (
    "Ad An Ao Ap Aq Ar Bo Bq Brq Bx Cd Cm Dl Do Dq Dv Em Er Ev Fa Fl Fn Ft Ic Lb Li Lk Ms Mt Nd Nm No Ns Oo Op Ox Pa "
    "Pf Po Pq Ql Qo Qq Sm So Sq Sx Sy Ta Tn Va Vt Xo Xr Ac Bc Dc Oc Pc Qc Sc Xc Brc"
)
_MDOC = frozenset(_INLINE.split())
"""Macros of `mdoc` within a paragraph; they may follow each other on a line."""
_ARGUMENT = re.compile(r'"([^"]*)"?|(\S+)')
_ESCAPE = re.compile(
    r"""\\(?:
        [fFmMkngYV](?:\[[^]]{0,40}]|\(..|.) | s[-+]?(?:\[[^]]{0,40}]|\(..|\d{1,2}) | [hvwXbDoLlNS]'[^']{0,80}'
        | \*(?:\[(?P<string>[^]]{0,40})]|\((?P<pair>..)|(?P<letter>.))
        | \[(?P<long>[^]]{0,40})] | \((?P<short>..) | (?P<one>.)
    )""",
    re.VERBOSE,
)
_CHARACTERS = {
    "aq": "'", "cq": "'", "oq": "'", "dq": '"', "lq": '"', "rq": '"', 'L"': '"', 'R"': '"', "C'": "'", "C`": "'",
    "em": " - ", "en": "-", "hy": "-", "mi": "-", "bu": "*", "co": "©", "rg": "®", "ha": "^", "ti": "~", "rs": "\\",
    "-": "-", "e": "\\", " ": " ", "~": " ", "0": " ", "'": "'", "`": "`", ".": ".", "--": " - ", "->": "->",
}  # fmt: skip
"""Escaped character, or string that the macro packages define → text; all others print nothing."""
_NAMES = re.compile(r".*?\s(?:--?|[–—])\s+")
"""What stands before the description, matched at the beginning of a line alone: it may be tried once only."""
_BEFORE_PUNCTUATION = re.compile(r" ([.,:;!?)\]])(?= |\Z)")


def manual_text(source: str) -> str:
    """Return the text of a manual page: paragraphs between blank lines, headings underlined.

    The section NAME gives the description alone: `list directory contents` of `ls - list directory contents`.

    Args:
        source: The page in roff, with the macros of `man` or `mdoc`.
    """
    return "\n".join(_Page().lines(source))


class _Page:
    """Goes once through the lines of a page."""

    def __init__(self) -> None:
        self._end = ""  # The macro that ends what is being skipped.
        self._depth = 0  # Braces of conditions that are open.
        self._in_name = False
        self._tag = False  # The next line is the tag of a paragraph, and no sentence.
        self._command = ""

    def lines(self, source: str) -> Iterator[str]:
        for line in source.split("\n"):
            macro, rest = _split(line)
            if self._end:
                self._end = "" if macro == self._end else self._end
            elif self._depth or macro in ("if", "ie", "el"):
                self._depth = max(self._depth + line.count("\\{") - line.count("\\}"), 0)
            elif macro in _BEGINS:
                self._end = _BEGINS[macro]
                yield ""
            else:
                yield from self._line(macro, rest)

    def _line(self, macro: str | None, rest: str) -> Iterator[str]:
        if macro in _HEADINGS:
            heading = _unescape(" ".join(_arguments(rest)))
            self._in_name = heading.upper() == "NAME"
            yield from ("", heading, "=" * max(len(heading), 3), "")
        elif macro in _BREAKS:
            self._tag = macro in ("TP", "TQ")
            yield ""
        else:
            text = _unescape(rest) if macro is None else self._inline(macro, rest)
            if text is not None and self._tag:
                self._tag = False
                yield ""
            elif text is not None:
                names = _NAMES.match(text) if self._in_name else None
                yield text[names.end() :] if names else text.strip()

    def _inline(self, macro: str, rest: str) -> str | None:
        """Return the text of a macro within a paragraph, or `None` for any other."""
        words = [_unescape(word) for word in _arguments(rest)]
        if macro in _SPACED:
            return " ".join(words)
        if macro in _ALTERNATING:
            return "".join(words)
        if macro not in _MDOC:
            return None
        if macro == "Nm":
            self._command = self._command or " ".join(words[:1])
            words = words if words and words[0] not in ".,:;)" else [self._command, *words]
            if self._in_name:
                return ""
        if macro == "Fl" and words:
            words[0] = f"-{words[0]}"
        return _BEFORE_PUNCTUATION.sub(r"\1", " ".join(word for word in words if word not in _MDOC))


def _split(line: str) -> tuple[str | None, str]:
    """Return the macro of a line and what follows it; of a line of text `None` and the line."""
    if not line.startswith((".", "'")):
        return None, line
    content = line[1:].lstrip()
    if content.startswith(('\\"', '"')):
        return "", ""
    name = re.match(r"\S*", content)
    macro = name.group() if name else ""
    return macro, content[len(macro) :].strip()


def _arguments(text: str) -> list[str]:
    """Split the arguments of a macro, between white space or in double quotes."""
    return [quoted or plain for quoted, plain in _ARGUMENT.findall(text)]


def _unescape(text: str) -> str:
    """Return text with its escapes as the characters that they print."""
    if "\\" not in text:
        return text
    text = re.sub(r"\\[\"#].*", "", text)
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    name = next((value for value in match.groupdict().values() if value is not None), "")
    return _CHARACTERS.get(name, "")
