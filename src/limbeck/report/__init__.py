"""Reports: pages of runs and searches, the teacher-beside-student table, and the student's model card."""

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
