"""The registry of formats.

Example:
    ```python
    @register_as_format()
    class Weights(Safetensors):
        name = "weights"
        title = "weights alone"
    ```
"""

from collections.abc import Callable
from typing import TypeVar

from limbeck.core.registry import PluginPoint, Registry
from limbeck.export.format import Format
from limbeck.export.format_onnx import Onnx, OnnxInt8
from limbeck.export.format_router import Router
from limbeck.export.format_safetensors import Safetensors
from limbeck.export.format_sentence_transformers import SentenceTransformers

OWN_FORMATS: tuple[Format, ...] = (Onnx(), OnnxInt8(), SentenceTransformers(), Router(), Safetensors())
"""The package's formats, which help and diagnosis name."""


def _problem(item: Format) -> str | None:
    """Return why a format cannot be added, as the end of a sentence; None where it can."""
    if item.title and item.dtypes:
        return None
    return "it needs a title and dtypes"


_POINT: PluginPoint[Format] = PluginPoint(
    group="limbeck.formats",
    expected=Format,  # type: ignore[type-abstract]  # Items are instances of its subclasses.
    decorator="register_as_format",
    problem=_problem,
    code=type,
    separators="_-",
)
FORMATS: Registry[Format] = Registry(
    "format", plugins=_POINT, source=lambda: ((item.name, item) for item in OWN_FORMATS)
)
"""Name to format."""

FormatType = TypeVar("FormatType", bound=type[Format])


def register_as_format(*, replace: bool = False) -> Callable[[FormatType], FormatType]:
    """Return a decorator that adds a format of exports, and returns its class as it is.

    Args:
        replace: Take the place of one that was registered before, as when a notebook's cell runs again.

    Raises:
        PluginError: one line, if the name is taken.
    """

    def register(cls: FormatType) -> FormatType:
        FORMATS.add(cls.name, cls(), replace=replace)
        return cls

    return register
