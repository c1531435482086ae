"""`match_head`: whether the head of a model fits a task, and which of its outputs is which class of the task.

All is decided by the model's configuration; no weights are loaded.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from limbeck.core.blocks import counted
from limbeck.core.kinds import KINDS as FACTS
from limbeck.core.kinds import are_made_up, kind_of
from limbeck.corpus.rows.labelled_rows import without_surrogates
from limbeck.errors import ModelError, RecipeError, suggestion
from limbeck.kinds.task import Task
from limbeck.models import heads

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_SHOWN_CLASSES = 6
_SHOWN_LETTERS = 40


@dataclass(frozen=True)
class HeadMatch:
    """How the head of a model fits a task.

    Attributes:
        classes: For each class of the task, in the task's order, the index of the model's output for it; None where the
            task has no classes.
        notes: What was taken for granted, for the user to read.
    """

    classes: tuple[int, ...] | None
    notes: tuple[str, ...] = ()


def names_of_classes(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the names of a head's classes, in the order of its outputs.

    Halves of characters become U+FFFD in them, as in the labels of rows.
    """
    names = config.id2label or {}
    return tuple(without_surrogates(str(names[number])) for number in sorted(names))


def rename_classes(config: PreTrainedConfig, renamed: Mapping[str, str], origin: str) -> PreTrainedConfig:
    """Copy a configuration with other names for the classes of its head.

    Args:
        config: Left as it is.
        renamed: Names in the configuration to the new names.
        origin: The place of the new names, for messages.

    Raises:
        RecipeError: for a name that is none of its classes, or two classes with one name.
    """
    classes = names_of_classes(config)
    for name in renamed:
        if name not in classes:
            raise RecipeError(f"{origin} has '{name}', which is not a class of that model.{suggestion(name, classes)}")
    names = [renamed.get(name, name) for name in classes]
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"{origin} gives the name '{name}' to two classes: give each class its own name.")
    copied = copy.deepcopy(config)
    copied.id2label = dict(enumerate(names))
    copied.label2id = {name: number for number, name in enumerate(names)}
    return copied


def match_head(
    name: str,
    config: PreTrainedConfig,
    task: Task,
    renamed: Mapping[str, str] = MappingProxyType({}),
    *,
    way_out: str | None = None,
) -> HeadMatch:
    """Find out which output of a model's head is which class of a task.

    Outputs are matched with classes by their names, in any order; upper and lower case, and spaces, hyphens and
    underscores make no difference. Outputs without real names (`LABEL_0`, `LABEL_1` …, or `0`, `1` …) are taken in the
    order of the task's classes, which a note tells the user. Other names are refused.

    Args:
        name: The model, as the user named it.
        config: The configuration of the model.
        task: The task.
        renamed: Names of classes in the configuration to the task's names of them.
        way_out: The end of the error for other names, which says how to map them; by default by an option.

    Raises:
        ModelError: if it was saved without such a head, or its outputs are not as many as the task's classes, or are
            other classes.
    """
    facts = FACTS[task.kind]
    classes = names_of_classes(config)
    # None where the number of outputs does not depend on the task, as for question answering.
    needed_outputs = facts.output_count(len(task.labels))
    has_needed_outputs = needed_outputs is None or needed_outputs == config.num_labels
    has_right_class = kind_of(heads.head_of(config)).head == facts.head
    only_size_is_wrong = has_right_class and not has_needed_outputs
    if not only_size_is_wrong:
        heads.check_has_head(name, config, task.kind)
    # If only the size is wrong, this error says more than that of `check_has_head`: it lists the classes.
    if not has_needed_outputs:
        needs = "needs one value"
        if facts.has_classes:
            needs = f"has {needed_outputs} classes ({_shown(task.labels)})"
        raise ModelError(
            f"'{name}' has {counted(len(classes), 'output')} ({_shown(classes)}), but {task.title} {needs}; give a "
            f"model that was fine-tuned on {task.title}."
        )
    if not facts.has_classes:
        return HeadMatch(classes=None)
    if way_out is None:
        way_out = f"name them with --classes {classes[0]}={task.labels[0]},…"
    return _match_classes(name, classes, task, renamed, way_out)


def _match_classes(
    name: str, classes: Sequence[str], task: Task, renamed: Mapping[str, str], way_out: str
) -> HeadMatch:
    """Return which output each class of a task is, by their names.

    Args:
        name: The model, as the user named it.
        classes: Names of the classes of its head, in the order of its outputs.
        task: The task.
        renamed: Names of classes to the task's names of them.
        way_out: How classes of other names are named, for the message.

    Raises:
        ModelError: for other classes than the task's.
    """
    in_order = tuple(range(len(classes)))
    names = [renamed.get(class_name, class_name) for class_name in classes]

    # Exact spellings come first, since two classes may differ only in upper and lower case.
    for spelling in (_exact, _folded):
        outputs = _places_of(task.labels, names, spelling)
        if outputs is None:
            continue
        if outputs == in_order:
            return HeadMatch(outputs)
        note = f"'{name}' has its classes in another order ({_shown(classes)}), which is turned into the task's"
        return HeadMatch(outputs, notes=(f"{task.title}: {note}",))

    # Names such as `LABEL_0` say nothing, so they are no other classes than the task's.
    is_any_renamed = any(class_name in renamed for class_name in classes)
    if are_made_up(classes) and not is_any_renamed:
        note = f"the classes of '{name}' have no names ({_shown(classes)}); taken in the task's order"
        return HeadMatch(in_order, notes=(f"{task.title}: {note}: {_shown(task.labels)}",))

    described = []
    for class_name in classes:
        if class_name in renamed:
            described.append(f"{class_name} (named {renamed[class_name]})")
        else:
            described.append(class_name)
    raise ModelError(
        f"'{name}' has the classes {_shown(described)}, but {task.title} has {_shown(task.labels)}; {way_out}, or "
        f"give a model that was fine-tuned on {task.title}."
    )


def _places_of(labels: Sequence[str], names: Sequence[str], spelling: Callable[[str], str]) -> tuple[int, ...] | None:
    """Return the place of each label among names; None where they are not the same, or a name comes twice."""
    spelt_names = [spelling(name) for name in names]
    spelt_labels = [spelling(label) for label in labels]
    has_twins = len(set(spelt_names)) < len(spelt_names)
    if has_twins or sorted(spelt_names) != sorted(spelt_labels):
        return None
    return tuple(spelt_names.index(label) for label in spelt_labels)


def _exact(label: str) -> str:
    """Return a label as it is."""
    return label


def _folded(label: str) -> str:
    """Return a label as it is compared: upper and lower case, spaces, hyphens and underscores are alike."""
    return re.sub(r"[\s_-]+", "_", label.strip()).casefold()


def _shown(labels: Sequence[str]) -> str:
    """Return the first few labels, cut to a readable length."""
    shown = ", ".join(label[:_SHOWN_LETTERS] for label in labels[:_SHOWN_CLASSES])
    return f"{shown} …" if len(labels) > _SHOWN_CLASSES else shown
