"""`Teaching`: the source of the streams that a student learns, and the registry of teachings that recipes name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from limbeck.core.registry import PluginPoint, Registry
from limbeck.errors import RecipeError
from limbeck.models.streams import Streams
from limbeck.models.teaching_facts import TeachingFacts

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from limbeck.corpus.batches.batch import Batch


class Teaching(ABC):
    """Gives the streams that a student learns from, by running a model, reading vectors from a file, or in another way.

    A subclass has `facts`, which are read before anything is loaded, and `read`. It is registered by
    `register_as_teaching`, and a recipe names it under `teacher.teaching`.

    Example:
        >>> @register_as_teaching()
        ... class Zeros(Teaching):
        ...     facts = TeachingFacts("zeros", widths={"pooled": 8})
        ...
        ...     def read(self, batch, scored=None):
        ...         rows = len(batch.teacher["input_ids"])
        ...         return {StreamKey("pooled", 0): torch.zeros(rows, 8)}
    """

    facts: TeachingFacts
    from_hidden: bool = False
    """Whether `read` may give hidden vectors and the output layer in place of large scores over a vocabulary."""
    summary: str = ""
    """What it holds, in a line that is printed before a run trains; empty where there is nothing to tell."""
    remedy: str = "let a model teach, which reads any text"
    """What a user can do about texts that it says nothing of, for messages."""

    @abstractmethod
    def read(self, batch: Batch, scored: Tensor | None = None) -> Streams:
        """Return the streams of a batch, without gradient, on the device of the batch.

        Args:
            batch: The batch; `batch.teacher` are the teacher's inputs.
            scored: Bool `[B, L]`, the tokens that are scored over the vocabulary; None means all.
        """

    def missing(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which texts it says nothing of, by their keys, bool `[keys]`; a run is refused if there are any.

        Args:
            keys: The key of each text, see `limbeck.corpus.text.text_keys`.
        """
        return np.zeros(len(keys), dtype=np.bool_)

    def prepare(  # noqa: B027 - most need nothing of the text
        self, folder: Path | None, read_text: Callable[[], Iterable[Mapping[str, Tensor]]]
    ) -> None:
        """Learn from the text what it needs, before a stage trains; every process of a run calls this.

        Args:
            folder: The run's folder, for what is to be the same when the run is resumed; None without a run.
            read_text: Reads the columns of some batches, spread over the text of the stage.
        """

    def move(self, device: torch.device | str, *, pack: bool = True) -> None:  # noqa: B027 - many have nothing to move
        """Place the teaching on the device of the batches.

        Args:
            device: The device.
            pack: On a CPU, lay weights out for their products once.
        """

    def close(self) -> None:  # noqa: B027 - many have nothing to close
        """Release the resources of a stage."""


@dataclass(frozen=True)
class TeachingMaker:
    """A registered teaching.

    Args:
        name: Its name in recipes.
        make: Makes the teaching from its options; the class itself, or a function.
    """

    name: str
    make: Callable[..., Teaching]


MakeT = TypeVar("MakeT", bound=Callable[..., Teaching])


def _problem(maker: TeachingMaker) -> str | None:
    """Return why a recipe could not name a teaching; None where it can."""
    return None if callable(maker.make) else "its make is not a function"


_POINT: PluginPoint[TeachingMaker] = PluginPoint(
    "limbeck.teachings", TeachingMaker, "register_as_teaching()", _problem, lambda maker: maker.make
)
TEACHINGS: Registry[TeachingMaker] = Registry("teaching", plugins=_POINT)


def register_as_teaching(name: str | None = None, *, replace: bool = False) -> Callable[[MakeT], MakeT]:
    """Return a decorator that adds a teaching, and returns its class as it is.

    Args:
        name: Its name in recipes; None is the class' name in lower case.
        replace: Take the place of one that was registered before, as when a notebook's cell runs again.

    Raises:
        PluginError: one line, if the name is taken.
    """

    def register(make: MakeT) -> MakeT:
        """Add a teaching to the registry."""
        key = name if name is not None else getattr(make, "__name__", "").lower()
        TEACHINGS.add(key, TeachingMaker(key, make), replace=replace)
        return make

    return register


def make_teaching(spec: Mapping[str, Any]) -> Teaching:
    """Make the teaching that a recipe names; nothing large is loaded.

    Args:
        spec: The recipe's `teacher.teaching`: its `name`, and its options by name.

    Raises:
        RecipeError: if there is no such teaching, or it has no such options.
    """
    options = {key: value for key, value in spec.items() if key != "name"}
    maker = TEACHINGS[spec["name"]]
    try:
        return maker.make(**options)
    except TypeError as error:
        raise RecipeError(
            f"teacher.teaching '{maker.name}' does not take the options that are given: {error}."
        ) from error
