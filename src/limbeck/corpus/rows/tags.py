"""Tags of words: the entities that they mark, as seqeval finds them, and where they contradict their own scheme."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from limbeck.errors import CorpusError

OUTSIDE = "O"
"""The tag of a word in no entity."""

# The part of an entity that a word is: its begin (B), its inside (I), its end (E), or all of it (S). The schemes IOB,
# BIOES, BILOU and BMES agree on these but for the letters.
_PARTS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}


class TagParts(NamedTuple):
    """What a tag says of its word.

    Args:
        part: The part of an entity that the word is: B, I, E, S, `OUTSIDE` for none, or empty for an unknown letter.
        type: Type of the entity.
    """

    part: str
    type: str


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
def split_tag(tag: str) -> TagParts:
    """Return the parts of a tag."""
    if tag == OUTSIDE:
        return TagParts(OUTSIDE, "")
    letter, _, entity_type = tag.partition("-")
    return TagParts(_PARTS.get(letter, ""), entity_type)


def marks_entities(tags: Sequence[str]) -> bool:
    """Whether a set of tags is one of entities or chunks (`O`, `B-PER`, `I-PER` …), rather than of parts of speech."""
    if OUTSIDE not in tags or len(tags) == 1:
        return False
    tags_of_entities = [tag for tag in tags if tag != OUTSIDE]
    return all("-" in tag and split_tag(tag).part for tag in tags_of_entities)


def check_tags(tags: Sequence[str]) -> None:
    """Refuse a set of tags of entities with one that names no type.

    Raises:
        CorpusError: naming it.
    """
    if not marks_entities(tags):
        return
    for tag in tags:
        if tag != OUTSIDE and not split_tag(tag).type.strip():
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
            entities.append(Entity(split_tag(tag).type, start=word, end=word + 1))
    return entities


@cache
def _goes_on(tag_before: str, tag: str) -> bool:
    """Whether a tag continues the entity of the tag before it."""
    before = split_tag(tag_before)
    after = split_tag(tag)
    is_open = before.part in ("B", "I")
    return is_open and after.part in ("I", "E") and after.type == before.type


def inconsistencies(tags: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Find what a sentence's tags contradict: an entity that goes on without a begin, or has no end.

    Args:
        tags: Of its words.
        known: All tags of the data: where none is for the end of entities (E, L, S, U) none is missed.

    Yields:
        What is wrong, and the tags between which it is.
    """
    has_ends = any(split_tag(tag).part in ("E", "S") for tag in known)
    for tag_before, tag in pairwise([OUTSIDE, *tags, OUTSIDE]):
        if _goes_on(tag_before, tag):
            continue
        if split_tag(tag).part in ("I", "E"):
            yield "tag that continues an entity that no tag begins", f"{tag} after {tag_before}"
        if has_ends and split_tag(tag_before).part in ("B", "I"):
            yield "tag of an entity that no tag ends", f"{tag} after {tag_before}"
