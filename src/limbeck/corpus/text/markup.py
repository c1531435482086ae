"""`unwrap_markup`: inline markup of Markdown, reStructuredText and docstrings made plain text."""

import re
from collections.abc import Callable

# Most paragraphs hold none of these and are done at once.
_ANY_MARKUP = re.compile(r"[`*|\[\\<_{]|::|&")
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
    content = match.group(1)
    shown = _TARGET.sub("", content)
    if shown and shown != content:
        return shown
    if content.startswith("~"):
        return content.rpartition(".")[2].lstrip("~")
    return content.lstrip("!.")


def _quoted_text(match: re.Match[str]) -> str:
    content = match.group(1)
    shown = _TARGET.sub("", content) or content
    return shown.rpartition(".")[2].lstrip("~") if shown.startswith("~") else shown


# A sign that every match holds, the pattern, and the text in its place. Texts come from anywhere: no pattern may try a
# long stretch again from each of its characters.
_MARKUP: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    ("](", re.compile(r"!\[[^\[\]]*\]\([^()]*\)"), ""),
    ("](", re.compile(r"\[([^\[\]]+)\]\((?:[^()]|\([^()]*\))*+\)"), r"\1"),
    ("{", re.compile(r"\b[A-Z]\{([^{}]*)\}"), r"\1"),
    # :role:`text <target>`, :role:`~a.b`, :role:`!x`
    ("`", re.compile(r":[a-zA-Z][\w+.:-]{0,60}:`([^`]+)`"), _role_text),
    ("`", re.compile(r"``(.+?)``"), r"\1"),
    ("`", re.compile(r"`([^`\n]+)`_{0,2}"), _quoted_text),
    ("*", re.compile(r"(?<![\w*])\*\*(?=\S)((?:[^*]|\*(?!\*))+?)(?<=\S)\*\*(?![\w*])"), r"\1"),
    ("*", re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])"), r"\1"),
    ("|", re.compile(r"(?<![\w|])\|(\w[^|\n]*?)\|_{0,2}(?![\w|])"), r"\1"),
    ("[", re.compile(r"(?<!\s)\s*\[(?:\d+|#\w*|\*|[A-Z][\w.-]*)\]_"), ""),
    # HF and Google styles write cross-references as [`Name`]; the backquotes are gone by now.
    ("[", re.compile(r"\[~?([A-Za-z_][\w.]*(?:\(\))?)\](?![\w(\[])"), r"\1"),
    ("<", re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>"), ""),
    ("_", re.compile(r"(?<=\w)__?(?=[\s.,;:)]|\Z)"), ""),
    ("\\", re.compile(r"\\([^\w\s])|\\\s"), r"\1"),
)
