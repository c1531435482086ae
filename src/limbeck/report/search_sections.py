"""Sections of a search: of an unfinished one its progress, and the results of its study so far."""

from collections.abc import Iterator
from dataclasses import replace

import yaml

from limbeck.core.blocks import DAMAGED, Block, Code, Facts, Notes, Paragraph, duration
from limbeck.report.names import without_path
from limbeck.report.provenance import identity_block, search_provenance
from limbeck.report.search import VIEWS
from limbeck.report.search_view import ONE_SEED
from limbeck.report.sections import Highlight, Summary, facts, highlights, section, summary
from limbeck.report.subjects import SearchFolder

_CONTINUED = "the same command continues it"
_RESTARTED = "the same command restarts the training of its candidates"
_STATUSES = {
    "running": "is still in progress",
    "interrupted": "was stopped; {continued}",
    "dead": "is not finished, and its workers vanished without recording an end; {continued}",
    "not finished": "is not finished; {continued}",
}
"""What a sentence says of a search that is not finished, by its status. `{continued}` becomes what the same command
does: `_CONTINUED` or `_RESTARTED`."""


def _best_of(search: SearchFolder) -> str:
    """Return the best candidate of a search, or the best so far; empty where there is none.

    A damaged record gives "": another section of the page names the damage. So does a kind of search that a newer
    version recorded, and that has no view here.
    """
    view = VIEWS.get(str(search.record.kind))
    if view is None:
        return ""
    try:
        best = view.best(search.content)
    except DAMAGED:
        return ""
    if best and not search.record.is_finished:
        return f"{best}, so far"
    return best


@summary(SearchFolder)
def search_summary(search: SearchFolder) -> Summary:
    """Describe a search in short."""
    return Summary(f"{search.record.kind or ''} search".strip(), search.status, _best_of(search))


@highlights(SearchFolder)
def search_highlights(search: SearchFolder) -> Iterator[Highlight]:
    """Yield the figures of the best candidate; of an unfinished search those so far."""
    view = VIEWS.get(str(search.record.kind))
    if view is None:
        return
    for highlight in view.highlights(search.content):
        if search.record.is_finished:
            yield highlight
        else:
            yield replace(highlight, label=f"{highlight.label} so far")


@facts(SearchFolder)
def search_facts(search: SearchFolder) -> Iterator[str]:
    """Yield the caution on the scores of candidates, where one has a score."""
    if _best_of(search):
        yield ONE_SEED


@section(SearchFolder, "Overview")
def overview(search: SearchFolder) -> Iterator[Block]:
    """Show the settings of a finished search, or the progress of an unfinished one."""
    record = search.record
    warnings = list(search.problems)
    if record.is_finished:
        settings = {
            "Teacher": f"{without_path(record.teacher.name)}, {record.teacher.shape}",
            "Student": record.student.shape or "chosen by the search",
            "Proxy": f"{' and '.join(record.methods)} on {record.share or 0:.0%} of the text",
            "Search": f"{record.kind}, {duration(record.cost.all_seconds)} of worker time",
        }
        yield Facts(tuple(settings.items()))
        yield Notes(tuple(warnings), warning=True)
        return

    # If the record cannot be read, the status is unknown, and the problems say why.
    if not record.is_empty:
        warnings.append(_status_line(search))
    yield Notes(tuple(warnings), warning=True)
    if search.progress:
        yield Facts(search.progress)
    if search.so_far is not None and search.so_far.identity:
        yield identity_block(search.so_far.identity)


def _status_line(search: SearchFolder) -> str:
    """Return the status of an unfinished search, how to continue it, and where its results so far are."""
    kind = search.record.kind or ""
    # A search of teacher layers trains all its candidates at once, and saves none of them on the way.
    continued = _RESTARTED if kind == "teacher-layer" else _CONTINUED
    status = _STATUSES.get(search.status, _STATUSES["not finished"]).format(continued=continued)
    line = f"The search '{search.title}' ({kind or 'of an unknown kind'}) {status}."
    # The progress is read from the trials in the search's folder. Without any it is empty.
    if search.progress:
        return f"{line} The following is its result so far."
    # Trials that cannot be read are among the problems, which stand above this line.
    if search.problems:
        return line
    return f"{line} Its folder has no trials: there are none yet, or they are kept in another storage (--storage)."


@section(SearchFolder, "Results")
def results(search: SearchFolder) -> Iterator[Block]:
    """Draw and list the candidates; a search that is not finished has no notes, since its cost is not known yet."""
    record = search.record
    view = VIEWS.get(str(record.kind))
    if view is None:
        if record.is_finished:
            yield Notes((f"Unknown kind of search: '{record.kind or ''}'.",), warning=True)
    elif record.is_finished:
        yield from view.blocks(record)
        yield Notes(tuple(view.notes(record)))
    elif search.so_far is not None:
        yield from view.blocks(search.so_far)


@section(SearchFolder, "Recipe")
def recipe(search: SearchFolder) -> Iterator[Block]:
    """Show the recipe of the result."""
    if search.record.is_finished and search.record.recipe is not None:
        text = "`limbeck distill recipe.yaml` in the search's folder trains the candidate with the highest score."
        yield Paragraph(text)
        document = yaml.safe_dump(search.record.recipe.to_dict(), sort_keys=False, allow_unicode=True)
        yield Code("Recipe of the highest-scoring candidate", document, "yaml")


@section(SearchFolder, "Provenance")
def provenance(search: SearchFolder) -> Iterator[Block]:
    """Describe how a finished search was made."""
    if search.record.is_finished:
        yield from search_provenance(search.record, search.folder)
