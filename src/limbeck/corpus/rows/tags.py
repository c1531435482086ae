"""Tags of words: the entities that they mark, and tags that contradict their own scheme.

An *entity* is a name of several words, and a tag says which part of it a word is, and of which type the entity is: in
"Ada Lovelace smiled" the tags `B-PER I-PER O` mark one entity of the type PER.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from limbeck.errors import CorpusError

OUTSIDE = "O"
"""The tag of a word in no entity."""

# Letter of a tag → the part of an entity that the word is: its begin (B), its inside (I), its end (E), or all (S).
# The schemes IOB, BIOES, BILOU and BMES have the same parts, and different letters for them.
_PARTS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}
# The spellings of tags, the most usual first: B-PER, B_PER, PER-B, PER_B, B, B:PER, PER:B. All tags of a data set have
# the same. In place of the colon may stand a slash or a dash.
_LETTERS = "".join(_PARTS)
_PART = f"(?P<part>[{_LETTERS}{_LETTERS.lower()}])"
_SPELLINGS = (
    re.compile(f"{_PART}-(?P<type>.*)"),
    re.compile(f"{_PART}_(?P<type>.+)"),
    re.compile(f"(?P<type>.+)-{_PART}"),
    re.compile(f"(?P<type>.+)_{_PART}"),
    re.compile(_PART),
    re.compile(f"{_PART}[:/\u2013\u2014](?P<type>.+)"),
    re.compile(f"(?P<type>.+)[:/\u2013\u2014]{_PART}"),
)


class TagParts(NamedTuple):
    """The two parts of a tag such as `B-PER`.

    Args:
        part: The part of an entity that the word is: B, I, E or S; `OUTSIDE` for a word in no entity, and empty for an
            unknown letter.
        type: Type of the entity.
    """

    part: str
    type: str


class Entity(NamedTuple):
    """Words of a sentence that are one entity.

    Attributes:
        type: Its type, the part of their tags behind the first hyphen.
        start: The first word, from 0.
        end: The word after the last.
    """

    type: str
    start: int
    end: int


@cache
def entity_tags(tags: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return tags of entities in their usual spelling (`O`, `B-PER`, `I-PER`); None if the tags mark no entities.

    The part may stand in front of the type or behind it, with a hyphen or an underscore between them, in upper or lower
    case. Without types (`B`, `I`, `O`) all entities have the type "entity". Parts of speech (`NOUN`) mark no entities.
    Without `O`, every word is in an entity, as where `B`, `M`, `E` and `S` divide a Chinese text into words.

    Args:
        tags: All tags of the data.
    """
    if len(tags) < 2:
        return None
    for spelling in _SPELLINGS:
        usual = [_usual_tag(tag, spelling) for tag in tags]
        if None in usual:
            continue
        usual_tags = tuple(tag for tag in usual if tag is not None)
        # Other tags, such as `S` and `B` among parts of speech, may look like parts of entities by accident.
        if OUTSIDE in usual_tags or _go_on(usual_tags):
            return usual_tags
    return None


def tags_without_part(tags: Sequence[str]) -> list[str]:
    """Return the tags beside `O` of a data set whose tags name types of entities, and not their parts: `PER`.

    Where one entity ends and the next begins is not known of them. The result is empty where the tags mark entities,
    where some of them are odd, and where there is no `O`, as among parts of speech.
    """
    has_outside = any(tag.upper() == OUTSIDE for tag in tags)
    if not has_outside or entity_tags(tuple(tags)) is not None or odd_tags(tags):
        return []
    return [tag for tag in tags if tag.upper() != OUTSIDE]


def odd_tags(tags: Sequence[str]) -> list[str]:
    """Return the few tags by which a set of tags does not mark entities, such as a misspelt one.

    They are the tags that do not fit the spelling which most tags fit. The result is empty where the tags mark
    entities, and where more than half of them do not fit, since the set was not meant to mark entities then.
    """
    if entity_tags(tuple(tags)) is not None:
        return []
    fewest_misfits = list(tags)
    for spelling in _SPELLINGS:
        misfits = [tag for tag in tags if _usual_tag(tag, spelling) is None]
        if len(misfits) < len(fewest_misfits):
            fewest_misfits = misfits
    are_few = 2 * len(fewest_misfits) <= len(tags)
    return fewest_misfits if are_few else []


def check_tags(tags: Sequence[str]) -> None:
    """Refuse tags of entities of which one has no type, such as `B-`.

    Raises:
        CorpusError: if a tag has no type.
    """
    # The tags in their usual spelling (`B-PER`), one for each. Tags that mark no entities are not checked.
    usual_tags = entity_tags(tuple(tags))
    if usual_tags is None:
        return
    for tag, usual in zip(tags, usual_tags, strict=True):
        if usual != OUTSIDE and not _split_tag(usual).type.strip():
            raise CorpusError(
                f"The tag '{tag}' names no type of entity: write the type behind the hyphen, as in B-PER."
            )


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order.

    An entity goes on where the tag is I or E, and the tag before it is B or I with the same type. Every other tag but O
    begins a new entity, even where that contradicts the scheme. conlleval and seqeval count entities in the same way by
    default.

    Args:
        tags: Tags of the sentence's words, as `entity_tags` spells them.
    """
    entities: list[Entity] = []
    for word, (tag_before, tag) in enumerate(pairwise([OUTSIDE, *tags])):
        if _goes_on(tag_before, tag):
            entities[-1] = entities[-1]._replace(end=word + 1)
        elif tag != OUTSIDE:
            entities.append(Entity(_split_tag(tag).type, start=word, end=word + 1))
    return entities


def inconsistencies(tags: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Find tags of a sentence that contradict their scheme: an entity without a begin, or one without an end.

    Args:
        tags: Tags of the sentence's words, as `entity_tags` spells them.
        known: All tags of the data. If no tag stands for the end of an entity (E, S), the scheme marks no ends, and
            entities without an end are no contradiction.

    Yields:
        The problem, and the two neighbouring tags that show it.
    """
    has_ends = any(_split_tag(tag).part in ("E", "S") for tag in known)
    # The words around the sentence are in no entity.
    for tag_before, tag in pairwise([OUTSIDE, *tags, OUTSIDE]):
        if _goes_on(tag_before, tag):
            continue
        if _split_tag(tag).part in ("I", "E"):
            yield "tag that continues an entity that no tag begins", f"{tag} after {tag_before}"
        if has_ends and _split_tag(tag_before).part in ("B", "I"):
            yield "tag of an entity that no tag ends", f"{tag} after {tag_before}"


def _go_on(tags: Sequence[str]) -> bool:
    """Whether every type of entity has a tag that begins it and one that continues it."""
    parts_of_types: dict[str, set[str]] = {}
    for tag in tags:
        part, entity_type = _split_tag(tag)
        parts_of_types.setdefault(entity_type, set()).add(part)
    return all("B" in parts and parts & {"I", "E"} for parts in parts_of_types.values())


def _usual_tag(tag: str, spelling: re.Pattern[str]) -> str | None:
    """Return a tag as `B-PER`; None where it does not have the given spelling."""
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


@cache
def _goes_on(tag_before: str, tag: str) -> bool:
    """Whether a tag continues the entity of the tag before it."""
    before = _split_tag(tag_before)
    after = _split_tag(tag)
    is_open = before.part in ("B", "I")
    return is_open and after.part in ("I", "E") and after.type == before.type
