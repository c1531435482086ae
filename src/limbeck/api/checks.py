"""Checks of arguments that need no torch, whose import takes seconds."""

from collections.abc import Iterable
from pathlib import Path

from limbeck.errors import RecipeError, suggestion


def check_models(*names: str | None, shapes: bool = False) -> None:
    """Refuse models that are nowhere.

    Args:
        names: Folders, `package:NAME` or Hub names; None is no model.
        shapes: Whether a shape such as `12x768`, or the name of a preset, may stand for a model.

    Raises:
        ModelError: for the first.
    """
    from limbeck.models.blueprint import names_shape
    from limbeck.models.hub_files import check_there

    models = [name for name in names if name is not None]
    if shapes:
        models = [name for name in models if not names_shape(name)]
    check_there(*models)


def check_text(texts: object) -> None:
    """Refuse a file of texts that is not there; texts themselves, and None, are no file.

    Raises:
        CorpusError: for such a path.
    """
    if not isinstance(texts, str | Path) or Path(texts).is_file():
        return
    from limbeck.corpus.files.small_files import read_texts

    read_texts(Path(texts), 1)


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Refuse an unknown name.

    Args:
        what: The thing that is named, for the message.
        name: The name.
        known: The known names.

    Raises:
        RecipeError: with the nearest known name.
    """
    names = sorted(known)
    if name not in names:
        raise RecipeError(f"Unknown {what} '{name}'.{suggestion(name, names)}")
