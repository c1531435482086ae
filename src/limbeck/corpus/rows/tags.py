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
    if tag == OUTSIDE:
        return OUTSIDE, ""
    part, _, entity_type = tag.partition("-")
    return _PARTS.get(part, ""), entity_type


def marks_entities(tags: Sequence[str]) -> bool:
    """Whether a set of tags is one of entities or chunks (`O`, `B-PER`, `I-PER` …), rather than of parts of speech."""
    if OUTSIDE not in tags or len(tags) == 1:
        return False
    inside = [tag for tag in tags if tag != OUTSIDE]
    return all("-" in tag and split_tag(tag)[0] for tag in inside)


def check_tags(tags: Sequence[str]) -> None:
    """Refuse a set of tags of entities with one that names no type.

    Raises:
        CorpusError: naming it.
    """
    if not marks_entities(tags):
        return
    for tag in tags:
        if tag != OUTSIDE and not split_tag(tag)[1].strip():
            raise CorpusError(f"The tag '{tag}' names no type of entity: write it behind the hyphen, as in B-PER.")


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order.

    An entity goes on where a tag says so (I, E) and the tag before it is of the same type and does not end it (B, I).
    Every other tag but O begins a new entity, also in an inconsistent sentence. conlleval and seqeval count entities in
    the same way by default.

    Args:
        tags: Of its words.
    """
    entities: list[Entity] = []
    for word, (tag_before, tag) in enumerate(pairwise([OUTSIDE, *tags])):
        if _goes_on(tag_before, tag):
            entities[-1] = entities[-1]._replace(end=word + 1)
        elif tag != OUTSIDE:
            _, entity_type = split_tag(tag)
            entities.append(Entity(entity_type, word, word + 1))
    return entities


@cache
def _goes_on(tag_before: str, tag: str) -> bool:
    """Whether a tag continues the entity of the tag before it."""
    part_before, type_before = split_tag(tag_before)
    part, entity_type = split_tag(tag)
    is_open = part_before in ("B", "I")
    return is_open and part in ("I", "E") and entity_type == type_before


def inconsistencies(tags: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Find what a sentence's tags contradict: an entity that goes on without a begin, or has no end.

    Args:
        tags: Of its words.
        known: All tags of the data: where none is for the end of entities (E, L, S, U) none is missed.

    Yields:
        What is wrong, and the tags between which it is.
    """
    has_ends = any(split_tag(tag)[0] in ("E", "S") for tag in known)
    for tag_before, tag in pairwise([OUTSIDE, *tags, OUTSIDE]):
        if _goes_on(tag_before, tag):
            continue
        part_before, _ = split_tag(tag_before)
        part, _ = split_tag(tag)
        if part in ("I", "E"):
            yield "tag that continues an entity that no tag begins", f"{tag} after {tag_before}"
        if has_ends and part_before in ("B", "I"):
            yield "tag of an entity that no tag ends", f"{tag} after {tag_before}"
