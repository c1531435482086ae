"""The text on which an export is compared with its source: built in, or a file of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from limbeck.errors import CorpusError

Text: TypeAlias = str | tuple[str, str]
"""One text, or two that the model reads together."""
MOST_TEXTS = 1000

_PARAGRAPH = (
    "A still separates what evaporates early from what stays behind. The liquid is heated, its vapour rises into the "
    "neck, cools there and runs down as drops. What is wanted goes first or last, depending on what was put in, and "
    "the rest is thrown away or distilled again. "
)
_SENTENCES = (
    "",
    "No.",
    "The student reads what the teacher reads.",
    "Is a smaller model always a faster one?",
    "It costs 3.50 euros (or 4,10 with milk) -- e.g. on 29/02/2024.",
    "Call f(x) = x**2 + 1, then print the result; it's 5 for x = 2.",
    "Der Lehrer zeigt dem Schüler, worauf es ankommt.",
    "L'élève apprend vite, mais il oublie aussi vite.",
    "El modelo pequeño cabe en un teléfono.",
    "Küçük bir model çoğu iş için yeterlidir.",
    "Маленькая модель работает быстрее большой.",
    "小さなモデルでも十分に役立ちます。",
    "小模型也能胜任这项工作。",
    "النموذج الصغير أسرع من الكبير.",
    "छोटा मॉडल तेज़ चलता है।",
    "Two sentences in a row. The second one says something else entirely.",
    "UPPER CASE, lower case, CamelCase and snake_case 😀",
    _PARAGRAPH,
    _PARAGRAPH * 3,
    _PARAGRAPH * 20,
)
_PAIRS = (
    ("Who reads?", "The student reads what the teacher reads."),
    ("A man plays the guitar.", "Somebody makes music."),
    ("What rises into the neck?", _PARAGRAPH),
)


def built_in_texts(*, pairs: bool) -> list[Text]:
    """Return a few texts in several languages and scripts, from an empty one to one that is longer than most models.

    Args:
        pairs: Add pairs of texts, which models of sentence vectors do not read.
    """
    return [*_SENTENCES, *(_PAIRS if pairs else ())]


def read_texts(file: Path, *, most: int = MOST_TEXTS) -> list[Text]:
    """Read a file with one text a line; empty lines are left out.

    Args:
        file: In UTF-8.
        most: Lines beyond these are not read.

    Raises:
        CorpusError: if it cannot be read, or holds no text.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            texts: list[Text] = []
            for line in lines:
                if text := line.strip():
                    texts.append(text)
                if len(texts) == most:
                    break
    except OSError as error:
        raise CorpusError(f"--text '{file}' cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CorpusError(f"--text '{file}' is not UTF-8 text; give a plain text file with a text a line.") from None
    if not texts:
        raise CorpusError(f"--text '{file}' holds no text; give a file with a text a line.")
    return texts
