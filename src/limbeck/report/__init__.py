"""Reports: pages of runs and searches, the teacher-beside-student table, and the student's model card.

A *figure* is a measured value in tables and records. As a block of a page it is a drawing, which `figures`, `plots` and
`pictures` make. A *comparison* is a folder of runs by several methods. The public functions `comparison_…` are about
one run: they lay out a `limbeck.evaluation.Comparison`, which is a teacher beside its student.

The modules by subject:

- Writing a page: `writing` calls `collect` and `collect_runs`, which read folders as `subjects` (with `logs`), then
  `page`, which asks `sections` for what is on it, then `rendering` and `pictures`.
- Sections of a run: `run`, `run_quality`, `run_warnings`, `development`, `runs_beside`; of other folders:
  `comparison_sections`, `evaluation_sections`, `search_sections`, `inspection_sections`. They share `statuses`,
  `warning_notes`, `provenance`, `layers`, `languages`, `text_notes` and `text_size`.
- Figures: `plots` declares plots, and `point_names` places names on them; `figures`, `curves` and `inspection_figures`
  make figures of them.
- Teacher beside student (`comparison_…`): `quality`, `quality_notes`, `gains`, `scored_rows`, `reliable`, `same_text`.
- Comparisons of methods (`methods_…`): `comparison`, `methods_notes`.
- Evaluations on tasks: `evaluation`, `evaluation_tables`, `scores`. Costs of either: `costs`.
- Searches: `search`, with a `search_view` for each kind: `search_mapping`, `search_architecture` and
  `search_teacher_layer`. Inspections: `inspection`.
- Model cards: `card` and `card_templates`; of students `student_card`, `student_results`, `task_scores` and
  `run_cards`, of fine-tuned models `fine_tuned_card`, of exports `export_card` and `export_text`, of
  cut vocabularies `trim_text`.
- Shared by all: `chance`, `names` and `output_files`.
"""

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
