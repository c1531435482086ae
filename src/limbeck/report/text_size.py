"""How much text a run has: what it trains on or fits to, and what is held out, each with its own number."""

from limbeck.core import records
from limbeck.core.blocks import counted_rows
from limbeck.corpus.building.splitting import REPEATED


def trained_size(run: records.Run) -> str:
    """Return the number of documents, rows or queries that are trained on, in words; empty where it is not known."""
    text = run.corpus
    if text is None:
        return ""
    trained = text.trained_documents
    queries = text.trained_queries
    if trained is None and text.documents is not None:
        # Older records have the number of all documents, with those that are not trained on.
        trained = text.documents - _not_trained_on(run, text)
        queries = None
    if trained is None:
        return ""
    return counted_rows(trained, queries, name_of_unit(text))


def fitted_size(run: records.Run, tokens: str) -> str:
    """Return how much of its text a run without training read for the fit of its student, in words.

    It is empty for a run that trains, and where no fit is recorded.

    Args:
        run: The record of the run.
        tokens: The number of all tokens of the text in words, such as `4.57 M tokens`.
    """
    start = run.student.initialisation
    if run.stages or run.recipe.stages or not isinstance(start, records.Initialisation):
        return ""
    if start.fit is None or start.fit.tokens is None or run.corpus is None:
        return ""
    size = f"{start.fit.tokens:,.0f}"
    if run.corpus.tokens is not None and start.fit.tokens < run.corpus.tokens:
        size += f" of {tokens}"
    else:
        size += " tokens"
    documents = trained_size(run)
    return f"{size} ({documents})" if documents else size


def held_out_size(run: records.Run) -> str:
    """Return the number of held-out documents, rows or queries, in words; empty where it is not known."""
    text = run.corpus
    if text is None or text.held_out_documents is None:
        return ""
    unit = "development row" if has_development_rows(run) else name_of_unit(text)
    return counted_rows(text.held_out_documents, text.held_out_queries, unit)


def name_of_unit(text: records.CorpusText) -> str:
    """Return what the numbers of a text count: rows of a task, or documents."""
    is_labelled = any(view.unit == "row" for view in text.views[:1])
    return "row" if is_labelled else "document"


def has_development_rows(run: records.Run) -> bool:
    """Return whether the first stage was evaluated on development rows, not on held-out rows to train on."""
    if not run.recipe.stages:
        return False
    first_stage = run.recipe.stages[0]
    corpus = first_stage.corpus or run.recipe.corpus
    if corpus is not None and corpus.development:
        return True
    # The recipe does not name the development rows that a task brings along: only the scores have them.
    evaluation = run.evaluation or records.RunEvaluation()
    return any(scores.stage and scores.stage == first_stage.title for scores in evaluation.development)


def _not_trained_on(run: records.Run, text: records.CorpusText) -> float:
    """Return how many of a text's documents are not trained on.

    Development rows are not among the rows of the sources, and those that repeat one are left out.
    """
    if has_development_rows(run):
        return text.report.counts.get(REPEATED, 0)
    return text.held_out_documents or 0
