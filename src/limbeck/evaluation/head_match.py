"""Whether the head of a model fits a task, and which of its classes are the task's: by its configuration alone."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from limbeck.core.kinds import KINDS, are_made_up, kind_of
from limbeck.errors import ModelError, RecipeError, suggestion
from limbeck.evaluation.tasks import Task
from limbeck.models import heads

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_SHOWN = 6


@dataclass(frozen=True)
class HeadMatch:
    """How the head of a model fits a task.

    Attributes:
        classes: Which of its outputs each class of the task is, in their order; None where there are none.
        notes: What was taken for granted, for the user to read.
    """

    classes: tuple[int, ...] | None
    notes: tuple[str, ...] = ()


def names_of_classes(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the names of a head's classes, in the order of its outputs."""
    names = config.id2label or {}
    return tuple(str(names[number]) for number in sorted(names))


def rename_classes(config: PreTrainedConfig, renamed: Mapping[str, str], origin: str) -> PreTrainedConfig:
    """Copy a configuration with other names for the classes of its head.

    Args:
        config: Left as it is.
        renamed: Names in the configuration to the new names.
        origin: What says so, for messages.

    Raises:
        RecipeError: for a name that is none of its classes, or two classes with one name.
    """
    own = names_of_classes(config)
    if unknown := [name for name in renamed if name not in own]:
        raise RecipeError(
            f"{origin} has '{unknown[0]}', which is not a class of that model.{suggestion(unknown[0], own)}"
        )
    names = [renamed.get(name, name) for name in own]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RecipeError(f"{origin} gives the name '{twice}' to two classes: give each its own.")
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
    """Match the head of a model with a task; nothing is assumed of classes that have names.

    The task's names in any order, upper and lower case and spaces and hyphens apart, say which output is which class.
    Outputs without names (`LABEL_0`, `LABEL_1` …, or `0`, `1` …) are taken in the task's order, which a note says.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        task: The task.
        renamed: Names of classes in the configuration to the task's names of them.
        way_out: How classes of other names are named, for the message; by default by an option.

    Raises:
        ModelError: if it was saved without such a head, or its outputs are not as many as the task's classes, or are
            other classes.
    """
    kind, own = KINDS[task.kind], names_of_classes(config)
    number = len(task.labels) if kind.has_classes else 1 if kind.has_value else None
    saved = kind_of(heads.head_of(config))
    fits = number in (None, config.num_labels)
    if fits or saved.head != kind.head:
        heads.check_has_head(name, config, cast(heads.Head, task.kind))
    if not fits:
        wanted = f"has {number} classes ({_few(task.labels)})" if kind.has_classes else "needs one value"
        raise ModelError(
            f"'{name}' has {len(own)} output{'' if len(own) == 1 else 's'} ({_few(own)}), but {task.title} {wanted}; "
            "give a model that was fine-tuned on it."
        )
    if not kind.has_classes:
        return HeadMatch(None)
    return _match_classes(name, own, task, renamed, way_out or f"name them with --classes {own[0]}={task.labels[0]},…")


def _match_classes(name: str, own: Sequence[str], task: Task, renamed: Mapping[str, str], way_out: str) -> HeadMatch:
    in_order = tuple(range(len(own)))
    for spelt in (str, _folded):
        named, wanted = [spelt(renamed.get(one, one)) for one in own], list(map(spelt, task.labels))
        if sorted(named) == sorted(wanted) and len(set(named)) == len(named):
            classes = tuple(map(named.index, wanted))
            turned = f"'{name}' has its classes in another order ({_few(own)}), which is turned into the task's"
            return HeadMatch(classes, () if classes == in_order else (f"{task.title}: {turned}",))
    if are_made_up(own) and not set(own) & set(renamed):
        taken = f"taken in the task's order: {_few(task.labels)}"
        return HeadMatch(in_order, (f"{task.title}: the classes of '{name}' have no names ({_few(own)}); {taken}",))
    own = [f"{one} (named {renamed[one]})" if one in renamed else one for one in own]
    raise ModelError(
        f"'{name}' has the classes {_few(own)}, but {task.title} has {_few(task.labels)}; {way_out}, or "
        "give a model that was fine-tuned on it."
    )


def _folded(label: str) -> str:
    return re.sub(r"[\s_-]+", "_", label.strip()).casefold()


def _few(labels: Sequence[str]) -> str:
    shown = ", ".join(label[:40] for label in labels[:_SHOWN])
    return shown + (" …" if len(labels) > _SHOWN else "")
