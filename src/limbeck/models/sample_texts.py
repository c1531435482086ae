"""Sample texts on which two ways of running a model are compared."""

from pathlib import Path
from typing import TypeAlias

from limbeck.core.yaml import read_document

Text: TypeAlias = str | tuple[str, str]
"""One text, or two that the model reads together."""


def built_in_texts(*, pairs: bool) -> list[Text]:
    """Return a few texts in several languages and scripts, from an empty one to one that is longer than most models.

    Args:
        pairs: Add pairs of texts, which models of sentence vectors do not read.
    """
    path = Path(__file__).with_name("sample_texts.yaml")
    document = read_document(path, f"'{path}'", "install limbeck again.")
    paragraph = document["paragraph"] + " "
    texts: list[Text] = [*document["sentences"], paragraph, 3 * paragraph, 20 * paragraph]
    if pairs:
        for first, second in document["pairs"]:
            texts.append((first, second))
        texts.append((document["question"], paragraph))
    return texts
