"""Counts of entities among tagged words, and precision, recall and F1."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.rows.tags import find_entities
from limbeck.kinds.task import Task


class EntityCounts(NamedTuple):
    """Entities of one type, or of all.

    Attributes:
        right: Predicted entities of which type and words are those of a gold one.
        predicted: All that are predicted.
        gold: All that are there.
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


def _share(part: int, whole: int) -> float:
    """Return a share of a whole; 0 of nothing."""
    return part / whole if whole else 0.0


def count_entities(
    predictions: Sequence[Sequence[int]], rows: Sequence[LabelledRow], task: Task
) -> dict[str, EntityCounts]:
    """Count the entities of each type, by type in alphabetical order.

    Source: conlleval, the script of CoNLL's shared tasks, as seqeval counts by default; see
    `limbeck.corpus.rows.tags.find_entities`.

    Args:
        predictions: The number of each word's tag.
        rows: With their tags.
        task: The names of the tags.
    """
    counts: dict[str, list[int]] = {}  # Type to right, predicted and gold entities.
    for numbers, row in zip(predictions, rows, strict=True):
        predicted = set(find_entities([task.labels[number] for number in numbers]))
        gold = set(find_entities([task.labels[number] for number in cast(Sequence[int], row.label)]))
        for place, entities in enumerate((predicted & gold, predicted, gold)):
            for entity in entities:
                counts.setdefault(entity.type, [0, 0, 0])[place] += 1
    return {entity_type: EntityCounts(*counts[entity_type]) for entity_type in sorted(counts)}


def entity_figures(predictions: Sequence[Sequence[int]], rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
    """Return precision, recall and F1 of the entities of all types together; the arguments are `count_entities`'."""
    counts_of_types = count_entities(predictions, rows, task).values()
    total = EntityCounts(
        right=sum(counts.right for counts in counts_of_types),
        predicted=sum(counts.predicted for counts in counts_of_types),
        gold=sum(counts.gold for counts in counts_of_types),
    )
    return total.figures()
