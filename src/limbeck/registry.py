"""A typed registry: names to things, refusing collisions and suggesting on a miss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from limbeck.errors import LimbeckError, RecipeError, suggestion

T = TypeVar("T")


class Registry(Generic[T]):
    """Holds named items of one kind, in the order of registration.

    Args:
        kind: What is held, as it appears in messages, for example `"method"`.
        error: The exception raised for an unknown name.
    """

    def __init__(self, kind: str, error: type[LimbeckError] = RecipeError) -> None:
        self.kind = kind
        self._error = error
        self._items: dict[str, T] = {}

    def register(self, name: str, item: T) -> T:
        """Add `item` under `name`.

        Raises:
            ValueError: if the name is taken; a registration never silently replaces another.
        """
        if name in self._items:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self._items[name] = item
        return item

    def __getitem__(self, name: str) -> T:
        if name not in self._items:
            raise self._error(f"Unknown {self.kind} '{name}'.{suggestion(name, self._items)}")
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        """Iterate over (name, item)."""
        return iter(self._items.items())
