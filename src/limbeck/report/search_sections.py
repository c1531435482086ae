"""Sections of a search; of an unfinished one the results of its study so far, and its progress."""

import json
from collections.abc import Iterator

import yaml

from limbeck.core.blocks import (
    DAMAGED,
    NOTHING,
    AnyCell,
    Block,
    Code,
    Facts,
    Notes,
    Paragraph,
    Steps,
    Table,
    duration,
)
from limbeck.core.studies import MappingSearch
from limbeck.report.names import without_path
from limbeck.report.provenance import search_provenance
from limbeck.report.search import VIEWS
from limbeck.report.sections import Summary, facts, section, summary
from limbeck.report.subjects import SearchFolder

_MOST_LETTERS = 200
_CONTINUED = "the same command continues it"
_RESTARTED = "the same command restarts the training of its candidates"
_STATUSES = {
    "running": "is still in progress",
    "interrupted": "was stopped; {continued}",
    "dead": "is not finished, and its workers vanished without recording an end; {continued}",
    "not finished": "is not finished; {continued}",
}


def result_of(search: SearchFolder) -> str:
    """Return the result of a search in one line, or "" where there is none.

    An unfinished search gives the best it has found so far. A damaged record gives "": another section of the page
    names the damage.
    """
    view = VIEWS.get(search.record.kind or "")
    result = ""
    if view is not None:
        try:
            result = view.result(search.content)
        except DAMAGED:
            return ""
    if search.so_far is not None:
        return f"{result}, so far" if result else ""
    # A search whose study could not be read has nothing to give yet.
    if not search.record.is_finished:
        return ""
    return result or "no result"


@summary(SearchFolder)
def search_summary(search: SearchFolder) -> Summary:
    """Describe a search in short."""
    return Summary(f"{search.record.kind or ''} search".strip(), search.status, result_of(search))


@facts(SearchFolder)
def search_facts(search: SearchFolder) -> Iterator[str]:
    """Yield the result of a finished search, or the best result so far of another."""
    if not search.record.is_finished:
        best_so_far = result_of(search)
        if best_so_far:
            yield f"Not finished: {best_so_far}."
        return
    # A newer version may have recorded a kind of search without a view here; the section "Search" warns of it.
    view = VIEWS.get(search.record.kind or "")
    if view is not None:
        line = view.result_line(search.record)
        if line:
            yield line


@section(SearchFolder, "Overview")
def overview(search: SearchFolder) -> Iterator[Block]:
    """Show the steps of a finished search, or the progress of another."""
    record = search.record
    if not record.is_finished:
        yield from _progress(search)
        return
    worker_time = duration(record.cost.all_seconds)
    steps = {
        "Teacher": f"{without_path(record.teacher.name)}, {record.teacher.shape}",
        "Student": record.student.shape or "chosen by the search",
        "Proxy": f"{' and '.join(record.methods)} on {record.share or 0:.0%} of the text",
        "Search": f"{record.kind}, {worker_time} of worker time",
        "Result": result_of(search),
    }
    yield Steps(tuple(steps.items()))
    warnings = list(search.problems)
    if isinstance(record, MappingSearch):
        warnings += [f"Given up: {mapping.mapping}: {mapping.problem}" for mapping in record.given_up]
    yield Notes(tuple(warnings), warning=True)


def _progress(search: SearchFolder) -> Iterator[Block]:
    """Show the progress of an unfinished search, and the settings that its trials are bound to."""
    warnings = list(search.problems)
    # Where the record cannot be read, the problems alone say so.
    if not search.record.is_empty:
        warnings.append(_status_line(search))
    yield Notes(tuple(warnings), warning=True)
    if search.progress:
        yield Facts(search.progress)
    if search.so_far is not None and search.so_far.identity:
        rows: list[tuple[AnyCell, ...]] = [(key, _brief(value)) for key, value in search.so_far.identity.items()]
        yield Table("Identity", ("", "Value"), tuple(rows), words=(1,), folded=True)


def _status_line(search: SearchFolder) -> str:
    """Return the status of an unfinished search, how to continue it, and where its results so far are."""
    name = search.record.kind or ""
    # A search of teacher layers trains all its candidates at once, and saves none of them on the way.
    continued = _RESTARTED if name == "teacher-layer" else _CONTINUED
    status = _STATUSES.get(search.status, _STATUSES["not finished"]).format(continued=continued)
    if search.progress:
        results = "The following is its result so far."
    else:
        results = "Its folder has no trials: there are none yet, or they are kept in another storage (--storage)."
    return f"The search '{search.title}' ({name or 'of an unknown kind'}) {status}. {results}"


def _brief(value: object) -> str:
    """Return a setting as a short text: as it is, or as JSON."""
    if value is None:
        return NOTHING
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > _MOST_LETTERS:
        return f"{text[: _MOST_LETTERS - 1]}…"
    return text


def _register_results(name: str) -> None:
    """Register the section with the results of one type of search."""
    view = VIEWS[name]

    @section(SearchFolder, view.SECTION)
    def results(search: SearchFolder) -> Iterator[Block]:
        if search.record.kind != name:
            return
        if search.record.is_finished:
            yield from view.page_blocks(search.record, "")
        elif search.so_far is not None:
            yield from view.page_blocks(search.so_far, " so far")


for _name in VIEWS:
    _register_results(_name)


@section(SearchFolder, "Search")
def unknown_search(search: SearchFolder) -> Iterator[Block]:
    """Warn of a search that this version does not know."""
    if search.record.is_finished and search.record.kind not in VIEWS:
        yield Notes((f"Unknown kind of search: '{search.record.kind or ''}'.",), warning=True)


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
