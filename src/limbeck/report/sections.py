"""The sections of a page, registered by the kind of folder that they are about.

A new section is a function with the decorator `section`, in the file of its kind of folder. `summary`, `highlights`
and `facts` register a kind of folder in short. A plugin (`--plugin FILE`) may register sections too.

Example:
    @section(RunFolder, "Memory", after="Training")
    def memory(run: RunFolder) -> Iterator[Block]:
        yield Facts((("Peak", f"{run.record.peak_memory_bytes} bytes"),))
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from limbeck.core.blocks import DAMAGED, Block, Section, build_sections
from limbeck.core.registry import is_built_in
from limbeck.errors import PluginError
from limbeck.report.subjects import Subject

S = TypeVar("S", bound=Subject)
T = TypeVar("T")
MOST_HIGHLIGHTS = 5
"""Most highlights of a folder: so many stand in one row."""
# What is registered for each kind of folder: its sections by their titles, its summary, its highlights and its facts.
_SECTIONS: dict[type[Subject], dict[str, "_Registered"]] = {}
_SUMMARIES: dict[type[Subject], Callable[[Any], "Summary"]] = {}
_HIGHLIGHTS: dict[type[Subject], Callable[[Any], Iterable["Highlight"]]] = {}
_FACTS: dict[type[Subject], Callable[[Any], Iterable[str]]] = {}


@dataclass(frozen=True)
class _Registered:
    """The function that makes the blocks of a section, and the title of the section that it follows; empty for none."""

    build: Callable[[Any], Iterable[Block]]
    after: str


@dataclass(frozen=True)
class Summary:
    """A folder in short.

    Args:
        kind: Such as `run` or `mapping search`.
        status: Such as `finished`, or `finished, ended early at step 30 of 60 of stage 'vectors'`.
        result: In a few words; empty where there is none.
        subject: Its models, for the line below the title; empty where the title says enough.
    """

    kind: str
    status: str
    result: str = ""
    subject: str = ""


@dataclass(frozen=True)
class Highlight:
    """A figure that is set large at the top of a page.

    Args:
        value: The figure, with its unit: `0.434`, `2.00x`.
        label: The quantity, in a few words.
        detail: How certain the figure is, or what it is compared with; empty for nothing.
    """

    value: str
    label: str
    detail: str = ""


def section(
    of: type[S], title: str, *, after: str = ""
) -> Callable[[Callable[[S], Iterable[Block]]], Callable[[S], Iterable[Block]]]:
    """Register a function that makes the blocks of a section; sections stand in the order of their registration.

    Sections of a plugin come after limbeck's own, unless they are to follow one of them.

    Args:
        of: The kind of folder.
        title: Of the section; without blocks there is no section.
        after: The title of the section that it follows; by default it is the last. Sections that follow the same
            one stand in the order of their registration. `sections_of` refuses a title that no section has.
    """

    def register(build: Callable[[S], Iterable[Block]]) -> Callable[[S], Iterable[Block]]:
        _SECTIONS.setdefault(of, {})[title] = _Registered(build, after)
        return build

    return register


def summary(of: type[S]) -> Callable[[Callable[[S], Summary]], Callable[[S], Summary]]:
    """Register the function that describes a kind of folder in short."""

    def register(describe: Callable[[S], Summary]) -> Callable[[S], Summary]:
        _SUMMARIES[of] = describe
        return describe

    return register


def highlights(
    of: type[S],
) -> Callable[[Callable[[S], Iterable[Highlight]]], Callable[[S], Iterable[Highlight]]]:
    """Register the function that yields the figures at the top of a page, the most important first."""

    def register(describe: Callable[[S], Iterable[Highlight]]) -> Callable[[S], Iterable[Highlight]]:
        _HIGHLIGHTS[of] = describe
        return describe

    return register


def facts(of: type[S]) -> Callable[[Callable[[S], Iterable[str]]], Callable[[S], Iterable[str]]]:
    """Register the function that yields what a reader must know beside the highlights, a plain sentence each."""

    def register(describe: Callable[[S], Iterable[str]]) -> Callable[[S], Iterable[str]]:
        _FACTS[of] = describe
        return describe

    return register


def sections_of(subject: Subject) -> list[Section]:
    """Return the sections of a folder, as far as its record allows.

    Raises:
        PluginError: for a section that follows another that there is not.
    """
    registered = _SECTIONS[type(subject)]
    # A plugin may have been loaded before the modules of limbeck's own sections.
    own_first = sorted(registered.items(), key=lambda item: not is_built_in(item[1].build))
    # For each title, those of the sections that are registered to follow it. Sections without `after` follow "".
    followers: dict[str, list[str]] = {}
    for title, entry in own_first:
        followers.setdefault(entry.after, []).append(title)
    ordered_titles = _titles_after("", followers)
    # A section that follows one that there is not, or that itself follows this section, has no place in the order.
    for title, entry in registered.items():
        if title not in ordered_titles:
            raise PluginError(
                f"The section '{title}' of a report is to follow '{entry.after}', but no section before it has "
                f"that title; the sections are {', '.join(ordered_titles)}."
            )
    return build_sections(subject, {title: registered[title].build for title in ordered_titles})


def _titles_after(title: str, followers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the titles of all sections between a section and the next one that does not follow it.

    Behind each title that follows directly stand those that follow it in turn. For "" these are all sections of a page.
    """
    titles: list[str] = []
    for follower in followers.get(title, ()):
        titles += [follower, *_titles_after(follower, followers)]
    return titles


def summary_of(subject: Subject) -> Summary:
    """Return a folder in short."""
    return _SUMMARIES[type(subject)](subject)


def highlights_of(subject: Subject) -> list[Highlight]:
    """Return the highlights of a folder, as far as its record allows."""
    return list(islice(_undamaged(_HIGHLIGHTS, subject), MOST_HIGHLIGHTS))


def facts_of(subject: Subject) -> Iterator[str]:
    """Yield the facts that head the page of a folder, as far as its record allows."""
    return _undamaged(_FACTS, subject)


def _undamaged(registered: Mapping[type[Subject], Callable[[Any], Iterable[T]]], subject: Subject) -> Iterator[T]:
    """Yield what is registered for a folder, up to the first damage; a section of the page names the damage."""
    describe = registered.get(type(subject))
    if describe is None:
        return
    try:
        yield from describe(subject)
    except DAMAGED:
        return
