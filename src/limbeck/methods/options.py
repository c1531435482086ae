"""The options of methods: their base class, and the types that several of them share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from limbeck.core.strict import Strict


class MethodOptions(Strict):
    """Base of every method's options. An unknown option is refused, with the nearest name in the message."""

    added: ClassVar[frozenset[str]] = frozenset()
    """Names of options that were added after the method was released.

    At their defaults they are left out of the identity of a run, so that a run that was begun before can be resumed.
    """

    @property
    def unread_options(self) -> frozenset[str]:
        """Names of options that have no effect beside the others; a recipe that is written out leaves them out."""
        return frozenset()

    def deciding(self) -> dict[str, Any]:
        """Return the options that results depend on, as JSON has them, without options in `added` at their defaults."""
        at_default = {name for name in self.added if not self._is_changed(name)}
        return self.model_dump(mode="json", exclude=at_default)

    def is_default(self, name: str) -> bool:
        """Return whether an option is at its default."""
        return not self._is_changed(name)

    def _refuse_unless_random(self, mapping: str, *names: str) -> None:
        """Refuse options of a random mapping beside another mapping; for validators.

        Args:
            mapping: Name of the option that may be `random`.
            names: Names of the options that only a random mapping reads.

        Raises:
            ValueError: for one that is not at its default.
        """
        chosen = getattr(self, mapping)
        if chosen == "random":
            return
        for name in names:
            if self._is_changed(name):
                raise ValueError(
                    f"{name} {getattr(self, name)!r} applies only to {mapping}: random, but {mapping} is "
                    f"{chosen!r}: leave {name} out"
                )

    def _is_changed(self, name: str) -> bool:
        """Return whether an option is not at its default."""
        default = type(self).model_fields[name].default
        return bool(getattr(self, name) != default)


MAPPING_FORMS = (
    "a strategy by name (single, last, uniform, uniform_consecutive, uniform_last, contribution), a teacher layer for "
    "each student layer such as [0, 0, 5, 10] where 0 is none, or student layer to teacher layers such as {3: 5, 4: "
    "[9, 10]}"
)


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number; true and false are none here."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_mapping(value: Any) -> Any:
    """Refuse what is no layer mapping; for validators."""
    if _is_mapping(value):
        return value
    raise ValueError(f"{str(value)[:80]!r} is not a layer mapping; give {MAPPING_FORMS}")


def _is_mapping(value: Any) -> bool:
    """Whether a value has one of the forms of `MAPPING_FORMS`; its layers are checked once the models are known."""
    if isinstance(value, str):
        return True
    if isinstance(value, list):
        return all(map(_is_whole, value))
    if not isinstance(value, dict):
        return False
    for layer, targets in value.items():
        target_list = targets if isinstance(targets, list) else [targets]
        if not _is_whole(layer) or not all(map(_is_whole, target_list)):
            return False
    return True


def _check_layer(value: Any) -> Any:
    """Refuse what is no layer; for validators."""
    if _is_whole(value) or value in ("last", "auto"):
        return value
    forms = "a number (1 is the first block, -1 the last), 'last' or 'auto'"
    raise ValueError(f"{str(value)[:80]!r} is not a layer; give {forms}")


def _check_count(value: Any) -> Any:
    """Refuse what is no number of heads; for validators."""
    if (_is_whole(value) and value >= 1) or value == "auto":
        return value
    raise ValueError(f"{str(value)[:80]!r} is not a number of heads; give a whole number, 1 or more, or 'auto'")


MappingChoice: TypeAlias = Annotated[str | list[int] | dict[int, int | list[int]], BeforeValidator(_check_mapping)]
LayerChoice: TypeAlias = Annotated[int | Literal["last", "auto"], BeforeValidator(_check_layer)]
Weight: TypeAlias = Annotated[float, Field(ge=0)]
Temperature: TypeAlias = Annotated[float, Field(gt=0)]
HeadCount: TypeAlias = Annotated[int | Literal["auto"], BeforeValidator(_check_count)]
