"""Counts of entities among tagged words, and precision, recall and F1.

An entity is a run of words with a type, which the tags of the words describe, as in `B-PER I-PER O`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.rows.tags import Entity, entity_tags, find_entities
from limbeck.kinds.task import Task


class EntityCounts(NamedTuple):
    """Entities of one type, or of all.

    Attributes:
        right: Number of predicted entities with the same type and words as a gold one.
        predicted: Number of predicted entities.
        gold: Number of entities by the labels.
    """

    right: int
    predicted: int
    gold: int

    def figures(self) -> dict[str, float]:
        """Return precision, recall and F1, 0 where nothing is predicted or there."""
        return {
            "precision_entity": _share(self.right, self.predicted),
            "recall_entity": _share(self.right, self.gold),
            "f1_entity": _share(2 * self.right, self.predicted + self.gold),
        }


def count_entities(
    predictions: Sequence[Sequence[int]], rows: Sequence[LabelledRow], task: Task
) -> dict[str, EntityCounts]:
    """Count the entities of each type, by type in alphabetical order.

    Source: conlleval, the script of CoNLL's shared tasks, as seqeval counts by default; see
    `limbeck.corpus.rows.tags.find_entities`.

    Args:
        predictions: The number of each word's tag.
        rows: The rows with their tags.
        task: The names of the tags.
    """
    predicted_tags = [scored_words(numbers, row) for numbers, row in zip(predictions, rows, strict=True)]
    gold_tags = [scored_words(tags_of(row), row) for row in rows]
    return count_tags(predicted_tags, gold_tags, task.labels)


def count_tags(
    predicted_tags: Sequence[Sequence[int]], gold_tags: Sequence[Sequence[int]], names: tuple[str, ...]
) -> dict[str, EntityCounts]:
    """Count the entities of each type: the predicted ones, the gold ones, and those that are in both.

    Args:
        predicted_tags: For each sentence, the number of each scored word's predicted tag.
        gold_tags: The numbers of the tags by the labels.
        names: The names of the tags.
    """
    # The numbers of entities of each type.
    right: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    gold: Counter[str] = Counter()
    for predicted_numbers, gold_numbers in zip(predicted_tags, gold_tags, strict=True):
        predicted_entities = _entities_of(predicted_numbers, names)
        gold_entities = _entities_of(gold_numbers, names)
        right.update(entity.type for entity in predicted_entities & gold_entities)
        predicted.update(entity.type for entity in predicted_entities)
        gold.update(entity.type for entity in gold_entities)

    counts = {}
    for entity_type in sorted({*predicted, *gold}):
        counts[entity_type] = EntityCounts(right[entity_type], predicted[entity_type], gold[entity_type])
    return counts


def tags_of(row: LabelledRow) -> tuple[int, ...]:
    """Return the numbers of the words' tags; -100 for a word that is not scored."""
    return cast(tuple[int, ...], row.label)


def scored_words(numbers: Sequence[int], row: LabelledRow) -> list[int]:
    """Return the numbers of the words that are scored: all but those whose tag in the row is -100.

    The other words are taken out of both predictions and labels before entities are looked for, as in the examples of
    `transformers`.

    Args:
        numbers: A number for each word of the sentence.
        row: The sentence with its tags.
    """
    return [number for number, tag in zip(numbers, tags_of(row), strict=True) if tag != IGNORED_LABEL]


def entity_figures(predictions: Sequence[Sequence[int]], rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
    """Return precision, recall and F1 of the entities of all types together; the arguments are `count_entities`'."""
    return total_of(count_entities(predictions, rows, task)).figures()


def total_of(counts_of_types: Mapping[str, EntityCounts]) -> EntityCounts:
    """Return the counts of the entities of all types together."""
    return EntityCounts(
        right=sum(counts.right for counts in counts_of_types.values()),
        predicted=sum(counts.predicted for counts in counts_of_types.values()),
        gold=sum(counts.gold for counts in counts_of_types.values()),
    )


def _share(part: int, whole: int) -> float:
    """Return a share of a whole; 0 of nothing."""
    return part / whole if whole else 0.0


def _entities_of(numbers: Sequence[int], names: tuple[str, ...]) -> set[Entity]:
    """Return the entities of a sentence, by the numbers of its words' tags."""
    tags = entity_tags(names) or names
    return set(find_entities([tags[number] for number in numbers]))
