"""`unwrap_markup`: inline markup of Markdown, reStructuredText and docstrings made plain text."""

import re
from collections.abc import Callable

# A sign of any markup. Most paragraphs have none, and need no further step.
_ANY_MARKUP = re.compile(r"[`*|\[\\<_{]|::|&")
# The target behind the text of a link or role: "text <target>".
_TARGET = re.compile(r"(?<!\s)\s*<[^<>]*>\Z")
_SPACES = re.compile(r"\s+")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&nbsp;": " "}


def unwrap_markup(text: str) -> str:
    """Return `text` with inline markup unwrapped and runs of white space made one space.

    For example ``:class:`~torch.nn.Linear` `` becomes ``Linear``, ``[a link](http://x)`` becomes ``a link``
    and ``**bold**`` becomes ``bold``.
    """
    if _ANY_MARKUP.search(text):
        for sign, pattern, shown in _MARKUP:
            if sign in text:
                text = pattern.sub(shown, text)
        for entity, character in _ENTITIES.items():
            text = text.replace(entity, character)
        text = re.sub(r"::(?=\s|\Z)", ":", text)
    return _SPACES.sub(" ", text).strip()


def _role_text(match: re.Match[str]) -> str:
    """Return the text that a role shows: of `text <target>` the text, of `~a.b` the last part, of `!x` the x."""
    content = match.group(1)
    shown = _TARGET.sub("", content)
    if shown and shown != content:
        return shown
    if content.startswith("~"):
        return content.rpartition(".")[2].lstrip("~")
    return content.lstrip("!.")


def _quoted_text(match: re.Match[str]) -> str:
    """Return the text between single backquotes: of `text <target>` the text, of `~a.b` the last part."""
    content = match.group(1)
    shown = _TARGET.sub("", content) or content
    if shown.startswith("~"):
        return shown.rpartition(".")[2].lstrip("~")
    return shown


# Each markup: a sign that every match contains, the pattern, and the text that replaces a match. They are replaced in
# this order. Texts come from anywhere, so no pattern may take quadratic time on a long stretch.
_MARKUP: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # An image, ![text](address), and a link, [text](address).
    ("](", re.compile(r"!\[[^\[\]]*\]\([^()]*\)"), ""),
    ("](", re.compile(r"\[([^\[\]]+)\]\((?:[^()]|\([^()]*\))*+\)"), r"\1"),
    # Markup of epytext: C{code}, L{link}.
    ("{", re.compile(r"\b[A-Z]\{([^{}]*)\}"), r"\1"),
    # A role of reStructuredText: :role:`text <target>`, :role:`~a.b`, :role:`!x`. Then ``code`` and `quoted`.
    ("`", re.compile(r":[a-zA-Z][\w+.:-]{0,60}:`([^`]+)`"), _role_text),
    ("`", re.compile(r"``(.+?)``"), r"\1"),
    ("`", re.compile(r"`([^`\n]+)`_{0,2}"), _quoted_text),
    # **strong**, *emphasis*, |substitution|, and a footnote or citation, [1]_.
    ("*", re.compile(r"(?<![\w*])\*\*(?=\S)((?:[^*]|\*(?!\*))+?)(?<=\S)\*\*(?![\w*])"), r"\1"),
    ("*", re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])"), r"\1"),
    ("|", re.compile(r"(?<![\w|])\|(\w[^|\n]*?)\|_{0,2}(?![\w|])"), r"\1"),
    ("[", re.compile(r"(?<!\s)\s*\[(?:\d+|#\w*|\*|[A-Z][\w.-]*)\]_"), ""),
    # HF and Google styles write cross-references as [`Name`]; the backquotes are gone by now.
    ("[", re.compile(r"\[~?([A-Za-z_][\w.]*(?:\(\))?)\](?![\w(\[])"), r"\1"),
    # A tag of HTML, the underscore behind the name of a link (name_), and an escaped character.
    ("<", re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>"), ""),
    ("_", re.compile(r"(?<=\w)__?(?=[\s.,;:)]|\Z)"), ""),
    ("\\", re.compile(r"\\([^\w\s])|\\\s"), r"\1"),
)
