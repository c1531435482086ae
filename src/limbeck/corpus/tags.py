"""Tags of words: the entities that they mark, as seqeval finds them, and where they contradict their own scheme."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from limbeck.errors import CorpusError

OUTSIDE = "O"
"""The tag of a word in no entity."""

# The part of an entity that a word is: its begin, its inside, its end, all of it. IOB, BIOES, BILOU and BMES agree on
# these but for the letters.
_PARTS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}


class Entity(NamedTuple):
    """Some words of one type.

    Attributes:
        type: What follows the first hyphen of their tags.
        start: The first word, from 0.
        end: The word after the last.
    """

    type: str
    start: int
    end: int


@cache
def split_tag(tag: str) -> tuple[str, str]:
    """Return the part of an entity that a word with this tag is (B, I, E, S, or O for none) and the entity's type."""
    part, _, kind = tag.partition("-")
    return (OUTSIDE, "") if tag == OUTSIDE else (_PARTS.get(part, ""), kind)


def marks_entities(tags: Sequence[str]) -> bool:
    """Whether a set of tags is one of entities or chunks (`O`, `B-PER`, `I-PER` …), rather than of parts of speech."""
    return OUTSIDE in tags and len(tags) > 1 and all("-" in tag and split_tag(tag)[0] for tag in {*tags} - {OUTSIDE})


def check_tags(tags: Sequence[str]) -> None:
    """Refuse a set of tags of entities with one that names no type.

    Raises:
        CorpusError: naming it.
    """
    for tag in tags if marks_entities(tags) else ():
        if tag != OUTSIDE and not split_tag(tag)[1].strip():
            raise CorpusError(f"The tag '{tag}' names no type of entity: write it behind the hyphen, as in B-PER.")


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order.

    An entity goes on where a tag says so (I, E) and the tag before it is of the same type and does not end it (B, I);
    each other tag but O begins a new one, so that those of an inconsistent sentence are found too. It is
    what conlleval and seqeval count by default.

    Args:
        tags: Of its words.
    """
    found: list[Entity] = []
    for place, (before, tag) in enumerate(pairwise([OUTSIDE, *tags])):
        kind = split_tag(tag)[1]
        if _goes_on(before, tag):
            found[-1] = found[-1]._replace(end=place + 1)
        elif tag != OUTSIDE:
            found.append(Entity(kind, place, place + 1))
    return found


@cache
def _goes_on(before: str, tag: str) -> bool:
    (earlier, of_earlier), (part, kind) = split_tag(before), split_tag(tag)
    return part in ("I", "E") and earlier in ("B", "I") and kind == of_earlier


def inconsistencies(tags: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Find what a sentence's tags contradict: an entity that goes on without a begin, or has no end.

    Args:
        tags: Of its words.
        known: All tags of the data: where none is for the end of entities (E, L, S, U) none is missed.

    Yields:
        What is wrong, and the tags between which it is.
    """
    has_ends = any(split_tag(tag)[0] in ("E", "S") for tag in known)
    for before, tag in pairwise([OUTSIDE, *tags, OUTSIDE]):
        if _goes_on(before, tag):
            continue
        if split_tag(tag)[0] in ("I", "E"):
            yield "tag that continues an entity that no tag begins", f"{tag} after {before}"
        if has_ends and split_tag(before)[0] in ("B", "I"):
            yield "tag of an entity that no tag ends", f"{tag} after {before}"
