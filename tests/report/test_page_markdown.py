"""The Markdown is the page's twin, and its figures are files."""

import re

import pytest
from PIL import Image

import limbeck.report
from limbeck.core.blocks import Code, Notes, Paragraph, Section, Table
from limbeck.core.markdown import escape_markdown
from limbeck.errors import OutputError, RecipeError
from limbeck.report.page import Page, Part, render_html, render_markdown, write_report
from tests.golden.committed import FOLDERS


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    folders = [FOLDERS["finished"], FOLDERS["search-teacher-layer"], FOLDERS["inspections"] / "similarity.json"]
    return write_report(folders, folder / "all.html", markdown=True)


def test_figures_are_linked_with_words_and_are_there(written):
    links = re.findall(r"!\[(.+)\]\((all-figures/([a-z0-9-]+)\.svg)\)", written.markdown.read_text())
    figures = {figure.name: figure for figure in written.page.figures()}
    assert [name for _, _, name in links] == list(figures)
    for words, path, name in links:
        assert words == escape_markdown(figures[name].description)
        svg = (written.markdown.parent / path).read_text()
        assert "<svg" in svg and "<text" in svg, "text stays text, for a paper's own fonts"
        picture = Image.open((written.markdown.parent / path).with_suffix(".png"))
        assert min(picture.size) > 200 and len(picture.convert("L").getcolors()) > 5


def test_markdown_shows_hostile_text_as_text():
    bad = "<script>x</script> | `tick` ](javascript:y) # _em_\n# head"
    blocks = (
        Table(bad, (bad, bad), ((bad, bad),)),
        Paragraph(bad),
        Notes((bad,), warning=True),
        Code(bad, "```\n<b>\n```", "yaml"),
    )
    page = Page(bad, (Part(bad, bad, (Section(bad, blocks),)),))
    text = render_markdown(page, "figures")
    assert not re.search(r"(?<!\\)(<script|\]\(|_em)", text) and "\n# head" not in text
    assert "````yaml\n```\n<b>\n```\n````" in text, "a fence that nothing inside can close"
    assert "&lt;script&gt;" in render_html(page)


def test_code_between_backticks_is_code_in_both():
    page = Page("t", (Part("t", "s", (Section("s", (Paragraph("run `limbeck report <x>` again_now"),)),)),))
    assert r"run `limbeck report <x>` again\_now" in render_markdown(page, "f")
    assert "run <code>limbeck report &lt;x&gt;</code> again_now" in render_html(page)


def test_the_page_goes_into_the_folder_and_may_be_made_again(copied):
    folder = copied("search-teacher-layer")
    first = limbeck.report.write_report([folder])
    assert first.html == folder / "report.html" and first.markdown is None and first.figures == ()
    before = first.html.read_text()
    assert write_report([folder]).html.read_text() == before, "the same folder gives the same page"


def test_figures_go_where_they_are_asked_for(tmp_path):
    folder = FOLDERS["search-teacher-layer"]
    done = write_report([folder], tmp_path / "p" / "a.html", figures=tmp_path / "paper", markdown=True)
    names = {f"{figure.name}{suffix}" for figure in done.page.figures() for suffix in (".svg", ".png")}
    assert {path.name for path in (tmp_path / "paper").iterdir()} == names
    assert "](../paper/students-of-the-layers-of-the-teacher.svg)" in done.markdown.read_text()


def test_what_is_not_a_report_is_not_replaced(tmp_path):
    mine, folder = tmp_path / "index.html", FOLDERS["finished"]
    mine.write_text("<h1>My page about limbeck</h1>")
    with pytest.raises(OutputError, match="is not a report of limbeck"):
        write_report([folder], mine)
    assert mine.read_text() == "<h1>My page about limbeck</h1>"
    for output in (tmp_path, tmp_path / "report.pdf"):
        with pytest.raises(RecipeError, match="ends with .html"):
            write_report([folder], output)
    with pytest.raises(OutputError, match="cannot be written"):
        write_report([FOLDERS["inspections"] / "similarity.json"], mine / "report.html")
    with pytest.raises(RecipeError, match="one folder or more"):
        write_report([])
