"""Inline markup of reStructuredText, Markdown and epytext, unwrapped to the words a reader sees."""

from __future__ import annotations

import re

# What none of the patterns below can match without; most paragraphs hold none and are done at once.
_ANY_MARKUP = re.compile(r"[`*|\[\\<_{]|::|&")

# Texts come from anywhere: no pattern may try a long stretch again from each of its characters.
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
_LINK = re.compile(r"\[([^\[\]]+)\]\((?:[^()]|\([^()]*\))*+\)")
_EPYTEXT = re.compile(r"\b[A-Z]\{([^{}]*)\}")
# :role:`text <target>`, :role:`~a.b`, :role:`!x`
_ROLE = re.compile(r":[a-zA-Z][\w+.:-]{0,60}:`([^`]+)`")
_LITERAL = re.compile(r"``(.+?)``")
_QUOTED = re.compile(r"`([^`\n]+)`_{0,2}")
_TARGET = re.compile(r"(?<!\s)\s*<[^<>]*>\Z")
_STRONG = re.compile(r"(?<![\w*])\*\*(?=\S)((?:[^*]|\*(?!\*))+?)(?<=\S)\*\*(?![\w*])")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])")
_SUBSTITUTION = re.compile(r"(?<![\w|])\|(\w[^|\n]*?)\|_{0,2}(?![\w|])")
_FOOTNOTE = re.compile(r"(?<!\s)\s*\[(?:\d+|#\w*|\*|[A-Z][\w.-]*)\]_")
# HF and Google styles write cross-references as [`Name`]; the backquotes are gone by then.
_BRACKETED = re.compile(r"\[~?([A-Za-z_][\w.]*(?:\(\))?)\](?![\w(\[])")
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>")
_REFERENCE = re.compile(r"(?<=\w)__?(?=[\s.,;:)]|\Z)")
_ESCAPE = re.compile(r"\\([^\w\s])|\\\s")
_SPACES = re.compile(r"\s+")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&nbsp;": " "}


def unwrap_markup(text: str) -> str:
    """Return `text` with inline markup unwrapped and runs of white space made one space.

    For example ``:class:`~torch.nn.Linear` `` becomes ``Linear``, ``[a link](http://x)`` becomes ``a link``
    and ``**bold**`` becomes ``bold``.
    """
    if _ANY_MARKUP.search(text):
        text = _unwrap(text)
    return _SPACES.sub(" ", text).strip()


def _unwrap(text: str) -> str:
    if "](" in text:
        text = _IMAGE.sub("", text)
        text = _LINK.sub(r"\1", text)
    if "{" in text:
        text = _EPYTEXT.sub(r"\1", text)
    if "`" in text:
        text = _ROLE.sub(_role_text, text)
        text = _LITERAL.sub(r"\1", text)
        text = _QUOTED.sub(_quoted_text, text)
    if "*" in text:
        text = _STRONG.sub(r"\1", text)
        text = _EMPHASIS.sub(r"\1", text)
    if "|" in text:
        text = _SUBSTITUTION.sub(r"\1", text)
    if "[" in text:
        text = _FOOTNOTE.sub("", text)
        text = _BRACKETED.sub(r"\1", text)
    if "<" in text:
        text = _TAG.sub("", text)
    if "_" in text:
        text = _REFERENCE.sub("", text)
    if "\\" in text:
        text = _ESCAPE.sub(r"\1", text)
    if "&" in text:
        for entity, character in _ENTITIES.items():
            text = text.replace(entity, character)
    return re.sub(r"::(?=\s|\Z)", ":", text)


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
