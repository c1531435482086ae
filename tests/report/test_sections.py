"""Sections: a function with a decorator is a section of the pages of its kind of folder."""

from pathlib import Path

import pytest

from limbeck.core.blocks import Notes, Paragraph
from limbeck.errors import PluginError
from limbeck.report.sections import (
    MOST_HIGHLIGHTS,
    Highlight,
    Summary,
    facts,
    facts_of,
    highlights,
    highlights_of,
    section,
    sections_of,
    summary,
    summary_of,
)
from limbeck.report.subjects import Subject


@pytest.fixture
def folder():
    """A folder of a kind of its own, so that no page of another kind changes."""

    class OwnFolder(Subject):
        pass

    return OwnFolder(folder=Path(), title="own")


def titles(folder):
    return [section.title for section in sections_of(folder)]


def register(cls, *names, **after):
    for name in (*names, *after):
        section(cls, name, after=after.get(name, ""))(lambda folder, name=name: [Paragraph(name)])


def test_sections_stand_in_the_order_of_their_registration_or_behind_another(folder):
    register(type(folder), "Overview", "Recipe", Memory="Overview", Cores="Memory", Disk="Overview")
    assert titles(folder) == ["Overview", "Memory", "Cores", "Disk", "Recipe"]


@pytest.mark.parametrize("after", [{"Memory": "Overveiw"}, {"Memory": "Cores", "Cores": "Memory"}])
def test_a_section_that_follows_none_is_refused(folder, after):
    register(type(folder), "Overview", **after)
    with pytest.raises(
        PluginError, match=r"section 'Memory' .* no section before it has that title; the sections are Overview"
    ):
        sections_of(folder)


def test_a_section_without_blocks_is_left_out_and_damage_is_named(folder):
    section(type(folder), "Nothing")(lambda folder: [Notes(())])

    @section(type(folder), "Damaged")
    def damaged(folder):
        yield Paragraph("before")
        raise KeyError("loss")

    [built] = sections_of(folder)
    assert built.title == "Damaged" and built.blocks[0] == Paragraph("before")
    assert built.blocks[1].warning and "incomplete or damaged (KeyError: 'loss')" in built.blocks[1].lines[0]


def test_facts_go_as_far_as_the_record_allows(folder):
    assert list(facts_of(folder)) == []

    @facts(type(folder))
    def own_facts(folder):
        yield "One fact."
        raise TypeError

    assert list(facts_of(folder)) == ["One fact."]


def test_highlights_go_as_far_as_the_record_allows_and_stand_in_one_row(folder):
    assert highlights_of(folder) == []

    @highlights(type(folder))
    def own_highlights(folder):
        yield from (Highlight(str(number), "tries") for number in range(3))
        raise ValueError

    assert [highlight.value for highlight in highlights_of(folder)] == ["0", "1", "2"]
    highlights(type(folder))(lambda folder: [Highlight(str(number), "tries") for number in range(12)])
    assert len(highlights_of(folder)) == MOST_HIGHLIGHTS


def test_a_kind_of_folder_is_described_in_short(folder):
    summary(type(folder))(lambda folder: Summary("own kind", "finished", "a result"))
    assert (summary_of(folder).kind, summary_of(folder).result) == ("own kind", "a result")
