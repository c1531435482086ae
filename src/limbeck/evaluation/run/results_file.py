"""`ResultsFile`: `results.jsonl`, to which an evaluation appends a line for each cell that has run.

A *cell* is one model on one task, at one grid point and with one seed. A cell that failed and was run again has several
lines. The process may be killed while it writes, so the last line may be incomplete.
"""

import json
import os
from pathlib import Path

from limbeck.core.paths import RESULTS
from limbeck.core.studies import FINISHED, EvaluationCell
from limbeck.errors import OutputError
from limbeck.evaluation.run.score_range import find_score_out_of_range


class ResultsFile:
    """The rows of all cells that ever ran in a folder.

    Args:
        folder: The folder of the evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS

    def read(self) -> list[EvaluationCell]:
        """Return the rows, in order; a line that was not written to its end is skipped.

        Raises:
            OutputError: if the file cannot be read.
        """
        if not self._path.exists():
            return []
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be read: {error.strerror}.") from None
        cells = [_parse(line) for line in lines]
        return [cell for cell in cells if cell.id]

    def finished(self) -> dict[str, EvaluationCell]:
        """Return the finished cells by their identity."""
        return {cell.id: cell for cell in self.read() if cell.status == FINISHED}

    def append(self, cell: EvaluationCell) -> None:
        """Write a row and wait until it is on disk.

        Raises:
            OutputError: if it cannot be written.
        """
        line = json.dumps(cell.to_dict(), ensure_ascii=False, allow_nan=False).encode()
        try:
            with self._path.open("a+b") as file:
                # If a killed process left its last line without an end, the row must not continue that line.
                if file.tell() > 0:
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = b"\n" + line
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be written: {error.strerror}.") from None


def _parse(line: bytes) -> EvaluationCell:
    """Return the row of a line; an empty row without an `id` for a line that is incomplete or was changed by hand."""
    try:
        cell = EvaluationCell.read(json.loads(line), RESULTS)
    except (ValueError, RecursionError):
        return EvaluationCell()
    if find_score_out_of_range(cell.scores) is not None:
        return EvaluationCell()
    return cell
