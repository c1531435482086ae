"""Other formats of a student: ONNX, int8, sentence-transformers, half precision.

The flow: a `Format` loads the model (`open_model`), writes a folder and runs it; `compare_folder` runs the folder
beside its source; `export_model` does all three. `push_folder` uploads the result.
"""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used
from limbeck.core.callable_packages import make_callable
from limbeck.core.exports import Differences

if TYPE_CHECKING:
    from limbeck.export.differences import ExportMismatchError
    from limbeck.export.exporting import Export, export_model
    from limbeck.export.pushing import push_folder
    from limbeck.export.request import ExportRequest
    from limbeck.models.sentence_files import write_sentence_transformers_files

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "differences": "ExportMismatchError",
        "exporting": "Export export_model",
        "small_files": "write_sentence_transformers_files",
        "pushing": "push_folder",
        "request": "ExportRequest",
    },
)

make_callable(__name__)  # `limbeck.export(...)`

__all__ = [
    "Differences",
    "Export",
    "ExportMismatchError",
    "ExportRequest",
    "export_model",
    "push_folder",
    "write_sentence_transformers_files",
]
