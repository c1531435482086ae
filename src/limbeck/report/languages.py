"""The table of languages of a run: how much of each is trained on, its held-out loss, agreement and translations."""

from limbeck.core.blocks import AnyCell, Cell, Table, number
from limbeck.core.records import LanguageFigures, LanguageRows, Run, RunEvaluation
from limbeck.core.records.run_evaluation import FEWEST_QUERIES
from limbeck.report.reliable import has_enough_texts

CAPTION = "Languages: text, and figures on held-out text"
NOTE = (
    "The agreement is Spearman's correlation of the similarities of all pairs of held-out texts with the teacher's, "
    "which reads translations in its own language. Most of these pairs are far apart, so it cannot be compared with an "
    "agreement from far to near. The last two columns are the shares of sentences whose nearest sentence in the "
    "teacher's language is their translation, and the other way round. The search is among the held-out texts of the "
    "language alone, and finds fewer among more texts."
)
"""What the columns of the table are."""
FEW_TEXTS = f"Figures of fewer than {FEWEST_QUERIES} held-out texts of a language are rough"
"""The beginning of the note on figures that are not reliable."""


def languages_table(run: Run, evaluation: RunEvaluation) -> Table | None:
    """Lay out the figures of each language; None where the languages of the text are not known.

    Rows and shares are of the first stage whose languages are known, and the held-out loss is of the last one.

    Args:
        run: The record of the run.
        evaluation: The figures of its evaluation that may be shown.
    """
    # A view is the text of a stage. The first view with languages counts.
    rows_by_language: dict[str, LanguageRows] = {}
    views = [] if run.corpus is None else run.corpus.views
    for view in views:
        if view.languages:
            rows_by_language = {rows.language: rows for rows in view.languages}
            break
    # The last stage with losses of languages counts: it replaces those of earlier stages.
    loss_by_language: dict[str, float | None] = {}
    for stage in run.stages:
        if stage.held_out_by_language:
            loss_by_language = {language: terms.get("loss") for language, terms in stage.held_out_by_language.items()}
    figures_by_language = {figures.language: figures for figures in evaluation.languages}

    # Each language once, in the order of coming.
    languages = dict.fromkeys([*rows_by_language, *loss_by_language, *figures_by_language])
    table_rows: list[tuple[AnyCell, ...]] = []
    for language in languages:
        rows = rows_by_language.get(language, LanguageRows())
        figures = figures_by_language.get(language, LanguageFigures())
        cells = (
            number(rows.rows),
            Cell(rows.share, "{:.1%}"),
            Cell(loss_by_language.get(language), "{:.4g}"),
            number(figures.texts),
            Cell(figures.agreement, "{:.3f}"),
            Cell(figures.to_teacher_language, "{:.1%}"),
            Cell(figures.from_teacher_language, "{:.1%}"),
        )
        table_rows.append((language, *cells))
    if not table_rows:
        return None
    headings = (
        "Language",
        "Rows",
        "Share",
        "Held-out loss",
        "Held-out texts",
        "Agreement with the teacher",
        "Finds its translation",
        "Is found by it",
    )
    return Table(CAPTION, headings, tuple(table_rows))


def has_rough_figures(evaluation: RunEvaluation) -> bool:
    """Return whether the figures of a language are over too few texts; see `limbeck.report.reliable`."""
    return any(figures.is_measured and not has_enough_texts(figures) for figures in evaluation.languages)
