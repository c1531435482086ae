"""Reports: pages of runs and searches, the teacher-beside-student table, and the student's model card."""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used
from limbeck.core.callable_packages import make_callable

if TYPE_CHECKING:
    from limbeck.report.quality import (
        Row,
        comparison_csv,
        comparison_markdown,
        comparison_rows,
        comparison_table,
        write_tables,
    )
    from limbeck.report.quality_notes import comparison_notes
    from limbeck.report.student_card import model_card, write_model_card
    from limbeck.report.writing import WrittenReport, write_report

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "quality": ("Row comparison_csv comparison_markdown comparison_rows comparison_table write_tables"),
        "quality_notes": "comparison_notes",
        "student_card": "model_card write_model_card",
        "writing": "WrittenReport write_report",
    },
)

make_callable(__name__)  # `limbeck.report(...)`

__all__ = [
    "Row",
    "WrittenReport",
    "comparison_csv",
    "comparison_markdown",
    "comparison_notes",
    "comparison_rows",
    "comparison_table",
    "model_card",
    "write_model_card",
    "write_report",
    "write_tables",
]
