"""The request of an export: the model, the format and the folder, with the checks that need no model.

Nothing heavy is imported, so that a mistake is reported at once; `limbeck.export.exporting` carries a request out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from limbeck.core import exports
from limbeck.errors import OutputError, RecipeError, suggestion
from limbeck.export.format import Format, FormatOptions
from limbeck.export.formats import FORMATS
from limbeck.models.hub_files import check_there
from limbeck.models.locating import PACKAGE_PREFIX, locate_model

if TYPE_CHECKING:
    from limbeck.models.sample_texts import Text


@dataclass(frozen=True)
class ExportRequest:
    """The request of an export.

    Attributes:
        student: A run's folder, a model's folder, `package:NAME` or a Hub name.
        format: A name of `FORMATS`.
        output: The folder; None is beside the model's, see `default_output`.
        dtype: Number format of the weights; None is the format's own.
        opset: Operator set of ONNX; None is the default.
        texts: Sample text to compare on; None is the built-in one.
        held_out: Texts of the labelled rows that the student's run did not train on; the decisions of weights with
            fewer bits are compared on them too.
        verify: Whether to compare a second time, in a new process and on all of the text.
        overwrite: Whether to replace an earlier export.
        seconds: Time for measuring the latencies of int8.
        read_pickled: Whether the weights are pickles, of which `limbeck.export.safe_copies.safe_copy` makes a safe
            copy.
        documents: The model for documents of a router; None takes the teacher that the student's run names.
    """

    student: str
    format: str
    output: Path | None = None
    dtype: str | None = None
    opset: int | None = None
    texts: Sequence[Text] | None = None
    held_out: Sequence[Text] = ()
    verify: bool = False
    overwrite: bool = False
    seconds: float = 20.0
    read_pickled: bool = False
    documents: str | None = None

    @property
    def format_options(self) -> FormatOptions:
        """The options as the format takes them."""
        return FormatOptions(
            dtype=self.dtype or FORMATS[self.format].dtypes[0],
            texts=self.texts or (),
            opset=self.opset,
            documents=self.documents,
            seconds=self.seconds,
        )

    def check(self) -> None:
        """Refuse wrong names, options and places, without reading the model or importing torch.

        Raises:
            RecipeError: for an unknown format or dtype, and a model for documents that the format does not take.
            ModelError: for a model that is nowhere.
            OutputError: if the folder must not be written.
        """
        export_format = FORMATS[self.format]
        check_dtype(export_format, self.dtype)
        # Options that not every format has.
        for option, value in (("opset", self.opset), ("documents", self.documents)):
            if value is not None and option not in export_format.options:
                formats_with_option = [name for name, item in FORMATS.items() if option in item.options]
                raise RecipeError(
                    f"--{option} applies only to --format {' or '.join(formats_with_option)}, not to --format "
                    f"{self.format}; leave --{option} out."
                )
        export_format.check_options(self.format_options)

        located = locate_model(self.student)
        output = self.output or default_output(located, self.format)
        check_output(output.expanduser(), located, overwrite=self.overwrite)
        models = [located]
        if self.documents is not None:
            models.append(self.documents)
        check_there(*models)


def check_dtype(export_format: Format, name: str | None) -> None:
    """Refuse a dtype that a format does not have.

    Raises:
        RecipeError: with the reason where it is not obvious.
    """
    if name is None or name in export_format.dtypes:
        return
    if name in export_format.refused_dtypes:
        raise RecipeError(export_format.refused_dtypes[name])
    hint = suggestion(name, export_format.dtypes)
    raise RecipeError(f"--dtype '{name}' is not possible with --format {export_format.name}.{hint}")


def default_output(located: str, format_name: str) -> Path:
    """Return the default folder of an export: beside the model's, or in the current one for a package or a Hub name.

    Args:
        located: The model, as `locate_model` gives it.
        format_name: Name of the format.
    """
    folder = Path(located).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        return folder.with_name(f"{folder.name}-{format_name}")
    name = located.removeprefix(PACKAGE_PREFIX).replace("/", "-")
    return Path(f"{name}-{format_name}")


def check_output(output: Path, source: str, *, overwrite: bool) -> None:
    """Refuse a folder that must not be written, before anything is computed.

    Args:
        output: The export's folder.
        source: The model, as `locate_model` gives it; its folder is never replaced.
        overwrite: An earlier export may be replaced.

    Raises:
        OutputError: for a file, a folder that holds something, or one that the source is in.
    """
    output = output.expanduser()
    if output.exists() and not output.is_dir():
        raise OutputError(f"Output '{output}' is a file; give a folder.")
    origin = Path(source).expanduser().resolve()
    if origin.is_dir() and origin.is_relative_to(output.resolve()):
        raise OutputError(f"Output '{output}' holds the model that is exported; choose another folder.")
    is_empty = not output.is_dir() or not any(output.iterdir())
    if is_empty:
        return
    if not (output / exports.Export.FILE).is_file():
        raise OutputError(f"Output folder '{output}' is not empty and holds no export; choose an empty or new folder.")
    if not overwrite:
        raise OutputError(
            f"Output folder '{output}' already holds an export; replace that export with --overwrite, or choose "
            "another folder."
        )
