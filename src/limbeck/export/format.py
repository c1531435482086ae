"""`Format`: how a model is written into a folder, how that folder is run again, and what messages call it.

The *source* is the model that is exported, and the *record* the file with the facts of the export. Nothing heavy is
imported, so that commands can name the formats at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from limbeck.core.progress import Report, no_progress

if TYPE_CHECKING:
    from pathlib import Path

    from limbeck.core.exports import Differences
    from limbeck.export.batches import Runner
    from limbeck.models.loaded import LoadedModel
    from limbeck.models.sample_texts import Text

FLOATS = ("float32", "float16", "bfloat16")
"""Number formats of weights that PyTorch computes with."""


@dataclass(frozen=True)
class FormatOptions:
    """The options of an export.

    Attributes:
        dtype: Number format of the weights.
        texts: Sample text. On it the export, and for int8 also the float32 graph that it is made of, is compared with
            the source.
        opset: Operator set of ONNX; None is the default.
        documents: The model for documents of a router; None takes the teacher that the student's run names.
        seconds: Time for measuring the latencies of int8.
        report: Receives progress.
    """

    dtype: str
    texts: Sequence[Text] = ()
    opset: int | None = None
    documents: str | None = None
    seconds: float = 20.0
    report: Report = no_progress


class Format(ABC):
    """A format of an export.

    A format imports torch and its packages inside of its methods alone.

    Attributes:
        name: The name that users write.
        title: Its name in sentences: "… as {title}".
        needs: Packages that it imports, by the names that Python imports them by.
        dtypes: Number formats of the weights; the first is the default.
        refused_dtypes: Error messages by number format, for those that a user may expect.
        options: Names of the options that not every format has: `"opset"`, `"documents"`.
        tags: Tags of a model card.
        reads_text: Whether an export is run on text, which its library tokenises and pads on the right, and not on
            token ids.
        tokenizer_folder: The folder of the tokenizer, below the export's.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    refused_dtypes: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[tuple[str, ...]] = ()
    tags: ClassVar[tuple[str, ...]] = ()
    reads_text: ClassVar[bool] = False
    tokenizer_folder: ClassVar[str] = ""

    def check_options(self, options: FormatOptions) -> None:  # noqa: B027 - optional
        """Refuse values of options that are wrong whatever the model is.

        Raises:
            RecipeError: with what can be given.
        """

    def open(self, name: str, options: FormatOptions) -> LoadedModel:
        """Load the model to export, with the head and the sentence vectors that the export has; see `open_model`.

        Raises:
            ModelError: for a source that the format does not take.
        """
        from limbeck.models.loaded import open_model

        return open_model(name)

    @abstractmethod
    def write(self, source: LoadedModel, folder: Path, options: FormatOptions) -> dict[str, Any]:
        """Write the files, and return the facts for the record that only this format has; often none."""

    def reference(self, source: LoadedModel) -> Runner:
        """Return a function that runs the source on batches, with the outputs that `runner` has."""
        from limbeck.export.outputs import OutputModule, module_runner

        return module_runner(OutputModule(source))

    @abstractmethod
    def runner(self, source: LoadedModel, folder: Path) -> Runner:
        """Return a function that runs the export in a folder on batches, as its users would."""

    def check(self, differences: Differences, dtype: str, *, strict: bool) -> None:
        """Refuse an export that is too far from its source.

        Args:
            differences: The measured differences.
            dtype: Number format of the exported weights.
            strict: Whether to refuse a low quality of int8, which is only measured otherwise.

        Raises:
            ExportMismatchError: with the difference and the bound.
        """
        from limbeck.export.differences import check_differences

        check_differences(differences, dtype)

    def note(self, dtype: str) -> str | None:
        """Return a sentence on the use of an export of a dtype, for cards; None where none is needed."""
        return None
