"""Tags of words: the entities that they mark, as seqeval finds them, and where they contradict their own scheme."""

import re
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
# The spellings of a set of tags, the most usual first: B-PER, B_PER, PER-B, PER_B, B.
_PART = "(?P<part>[BIMELSUbimelsu])"
_SPELLINGS = (
    re.compile(f"{_PART}-(?P<type>.*)"),
    re.compile(f"{_PART}_(?P<type>.+)"),
    re.compile(f"(?P<type>.+)-{_PART}"),
    re.compile(f"(?P<type>.+)_{_PART}"),
    re.compile(_PART),
)


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
def entity_tags(tags: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return tags of entities or chunks in their usual spelling (`O`, `B-PER`, `I-PER`); None of others.

    The part may stand in front of the type or behind it, after a hyphen or an underscore, in either case; without types
    (`B`, `I`, `O`) all entities have the type "entity". Tags of parts of speech mark no entities.

    Args:
        tags: All tags of the data.
    """
    if len(tags) < 2 or not any(tag.upper() == OUTSIDE for tag in tags):
        return None
    for spelling in _SPELLINGS:
        usual = [_usual_tag(tag, spelling) for tag in tags]
        if None not in usual:
            return tuple(tag for tag in usual if tag is not None)
    return None


def odd_tags(tags: Sequence[str]) -> list[str]:
    """Return the tags that keep others from being tags of entities, at most half of them; else none."""
    if entity_tags(tuple(tags)) is not None:
        return []
    odd = list(tags)
    for spelling in _SPELLINGS:
        others = [tag for tag in tags if _usual_tag(tag, spelling) is None]
        if len(others) < len(odd):
            odd = others
    return odd if 2 * len(odd) <= len(tags) else []


def _usual_tag(tag: str, spelling: re.Pattern[str]) -> str | None:
    """Return a tag as `B-PER`, by the spelling of its set; None where it is of another."""
    if tag.upper() == OUTSIDE:
        return OUTSIDE
    match = spelling.fullmatch(tag)
    if match is None:
        return None
    entity_type = match.groupdict().get("type", "entity")
    return f"{match['part'].upper()}-{entity_type}"


@cache
def _split_tag(tag: str) -> TagParts:
    """Return the parts of a tag in its usual spelling."""
    if tag == OUTSIDE:
        return TagParts(OUTSIDE, "")
    letter, _, entity_type = tag.partition("-")
    return TagParts(_PARTS.get(letter, ""), entity_type)


def check_tags(tags: Sequence[str]) -> None:
    """Refuse a set of tags of entities with one that names no type.

    Raises:
        CorpusError: naming it.
    """
    usual_tags = entity_tags(tuple(tags)) or ()
    for tag, usual in zip(tags, usual_tags, strict=False):
        if usual != OUTSIDE and not _split_tag(usual).type.strip():
            raise CorpusError(f"The tag '{tag}' names no type of entity: write it behind the hyphen, as in B-PER.")


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order.

    An entity goes on where a tag says so (I, E) and the tag before it is of the same type and does not end it (B, I).
    Every other tag but O begins a new entity, also in an inconsistent sentence. conlleval and seqeval count entities in
    the same way by default.

    Args:
        tags: Of its words, as `entity_tags` spells them.
    """
    entities: list[Entity] = []
    for word, (tag_before, tag) in enumerate(pairwise([OUTSIDE, *tags])):
        if _goes_on(tag_before, tag):
            entities[-1] = entities[-1]._replace(end=word + 1)
        elif tag != OUTSIDE:
            entities.append(Entity(_split_tag(tag).type, start=word, end=word + 1))
    return entities


@cache
def _goes_on(tag_before: str, tag: str) -> bool:
    """Whether a tag continues the entity of the tag before it."""
    before = _split_tag(tag_before)
    after = _split_tag(tag)
    is_open = before.part in ("B", "I")
    return is_open and after.part in ("I", "E") and after.type == before.type


def inconsistencies(tags: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Find what a sentence's tags contradict: an entity that goes on without a begin, or has no end.

    Args:
        tags: Of its words, as `entity_tags` spells them.
        known: All tags of the data: where none is for the end of entities (E, L, S, U) none is missed.

    Yields:
        What is wrong, and the tags between which it is.
    """
    has_ends = any(_split_tag(tag).part in ("E", "S") for tag in known)
    for tag_before, tag in pairwise([OUTSIDE, *tags, OUTSIDE]):
        if _goes_on(tag_before, tag):
            continue
        if _split_tag(tag).part in ("I", "E"):
            yield "tag that continues an entity that no tag begins", f"{tag} after {tag_before}"
        if has_ends and _split_tag(tag_before).part in ("B", "I"):
            yield "tag of an entity that no tag ends", f"{tag} after {tag_before}"
