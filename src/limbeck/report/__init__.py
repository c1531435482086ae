"""Reports: pages of runs and searches, the teacher-beside-student table, and the student's model card."""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used

if TYPE_CHECKING:
    from limbeck.report.model_card import model_card, write_model_card
    from limbeck.report.page import WrittenReport, write_report
    from limbeck.report.quality import (
        Row,
        comparison_csv,
        comparison_markdown,
        comparison_notes,
        comparison_rows,
        comparison_table,
        write_tables,
    )

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "model_card": "model_card write_model_card",
        "page": "WrittenReport write_report",
        "quality": (
            "Row comparison_csv comparison_markdown comparison_notes comparison_rows comparison_table write_tables"
        ),
    },
)

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
