"""The page is whole, needs nothing beside it, shows no text as code, and has a twin in Markdown with figure files."""

import json
import re
from base64 import b64decode
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from PIL import Image

import limbeck.report
from limbeck.core.blocks import Code, Figure, Notes, Paragraph, Section, Table
from limbeck.core.escaping import escape_markdown
from limbeck.errors import OutputError, RecipeError
from limbeck.report.collect import collect
from limbeck.report.page import Page, Part, build_page
from limbeck.report.plots import Lines, Panels, Series, ValueRow, ValueRows
from limbeck.report.rendering import read_themes, render_html, render_markdown
from limbeck.report.writing import write_report
from tests.golden.committed import FOLDERS
from tests.support.commands import assert_one_line_error
from tests.support.page_document import Document

KINDS = ("finished", "comparison-with-costs", "search-mapping", "evaluation-with-costs", "inspections")
HOSTILE = "</svg></title><script>alert('x')</script><img src=x onerror=y>\u202e\u200f]]>{{ 7*7 }}"
SEARCHED = FOLDERS["search-teacher-layer"]
SIMILARITY = FOLDERS["inspections"] / "similarity.json"


@pytest.fixture(params=[("search-teacher-layer",), KINDS], ids=["one", "all"])
def html(request, rendered):
    return rendered(*request.param)


def test_the_document_is_whole_and_every_reference_is_met(html):
    document = Document(html)
    assert html.startswith("<!DOCTYPE html>") and len(document.all("h1")) == 1
    assert len(document.ids) == len(set(document.ids))
    inside = {a["href"][1:] for a, _ in document.all("a") if a["href"].startswith("#")}
    labelled = {name for _, a, _ in document.elements for name in a.get("aria-labelledby", "").split()}
    assert inside | labelled <= set(document.ids)
    levels = [int(tag[1]) for tag, _, _ in document.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in pairwise(levels))


def test_a_phone_has_narrower_plots_with_larger_letters(html):
    pictures = re.findall(r'<source media="\(max-width:30rem\)" srcset="data:image/svg\+xml;base64,([^"]*)">', html)
    widths = [re.search(rb'width="([\d.]+)pt"', b64decode(picture)).group(1) for picture in pictures]
    assert widths and set(widths) == {b"302.4"}, "4.2 inches"


def test_nothing_is_fetched_and_nothing_is_run(html):
    document = Document(html)
    assert not {tag for tag, _, _ in document.elements} & {"script", "link", "iframe", "object", "image", "use", "svg"}
    for tag, attributes, _ in document.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert not {"action", "xlink:href"} & set(attributes)
        for name in ("src", "srcset"):
            assert attributes.get(name, "data:image/svg+xml").startswith("data:image/svg+xml")
            assert " " not in attributes.get(name, "")
        place = attributes.get("href", "#")
        assert place.startswith(("#", "https://arxiv.org/", "https://aclanthology.org/")), place
    style = document.all("style")[0][1]
    assert "url(" not in style and "@import" not in style
    policy = [a["content"] for a, _ in document.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_every_figure_has_words_and_numbers(html):
    document = Document(html)
    figures, pictures = document.all("figure"), document.all("img")
    assert len(pictures) == len(figures) > 0
    assert all(re.search(r"\d", attributes["alt"]) for attributes, _ in pictures)
    assert len(document.all("figcaption")) == len(figures) >= len(document.all("table", within="figure")) > 0


def test_tables_are_reached_by_the_keyboard_and_named(html):
    document = Document(html)
    regions = [attributes for attributes, _ in document.all("div") if attributes.get("role") == "region"]
    assert len(regions) == len(document.all("table")) > 0
    assert all(attributes["tabindex"] == "0" and attributes["aria-label"] for attributes in regions)
    assert len(document.all("caption")) == len(regions)
    assert all(attributes["scope"] in ("col", "row") for attributes, _ in document.all("th"))
    assert document.all("a")[0][0] == {"class": "skip", "href": "#content"} and "content" in document.ids


def test_text_from_folders_stays_text(copied, tmp_path):
    cited = {"title": HOSTILE, "authors": HOSTILE, "url": "javascript:alert(1)"}
    names = dict.fromkeys(("name", "teacher.name_or_path", "stages.0.name"), HOSTILE)
    by_name = {"stages.0.final_terms": {HOSTILE: 1.0}, "versions": {HOSTILE: HOSTILE}}
    folder = copied(edit={**names, **by_name, "stages.0.citation": cited})
    layers = [{"student": [2], "teacher": [3], "terms": [HOSTILE, f"b_{HOSTILE}"]}]
    another = {"recipe.stages.1.teacher": {"model": HOSTILE}, "stages.1.layers": layers}
    unfinished = copied(name="unfinished", edit={"status": "failed", "problem": HOSTILE, **another})
    look = copied("inspections", "look", {"result.maps.tokens.0": HOSTILE})
    search, unknown = copied("search-killed", "search"), tmp_path / "unknown"
    (folder / "recipe.yaml").write_text(f"name: '{HOSTILE}'\n")
    log = folder / "stages" / "1-minilmv2" / "log.jsonl"
    log.write_text(json.dumps({"step": 1, "loss": 1.0, f"loss_{HOSTILE}": 1.0, "loss_b": 2.0}) + "\n")
    beat = {"activity": "training", "stage": HOSTILE, "stage_number": HOSTILE, "stages": 2, "step": 1, "steps": 2}
    (unfinished / "heartbeat.json").write_text(json.dumps(beat))
    journal = (search / "search.journal").read_text()
    (search / "search.journal").write_text(journal.replace('"share":', f"{json.dumps(HOSTILE)}:"))
    unknown.mkdir()
    (unknown / "search.json").write_text(json.dumps({"kind": HOSTILE, "name": f"{HOSTILE} 2", "status": "running"}))
    html = render_html(build_page(collect([folder, unfinished, look, search, unknown])))
    document = Document(html)
    assert "script" not in {tag for tag, _, _ in document.elements}
    assert "\u202e" not in html and "\u200f" not in html
    # 49 would be an expression of the template that was computed; the folder of the test may have it in its name.
    assert "49" not in document.all("h1")[0][1].replace(str(tmp_path), "")
    assert all(not a["href"].startswith("javascript") for a, _ in document.all("a"))
    assert "<script>alert('x')</script>" in document.all("h1")[0][1], "shown as it is, as text"
    shown = "".join(document.elements[0][2]).count("<script>alert('x')</script>")
    assert shown >= 10, "names, terms, sources, a problem, what a search is bound to"
    report = write_report([unfinished, search], tmp_path / "all.html", markdown=True, figures=tmp_path / "figures")
    assert report.figures
    for path in (tmp_path / "figures").glob("*.svg"):
        ElementTree.parse(path)


def test_both_themes_phones_and_print_are_in_the_style(rendered):
    style = Document(rendered("search-teacher-layer")).all("style")[0][1]
    assert "prefers-color-scheme:dark" in style and "@media print" in style and ":focus-visible" in style
    for theme in read_themes().values():
        assert all(f"--{role}:{colour};" in style for role, colour in theme.items())
    edges = style.partition(".scroll,.picture{")[2].partition("}")[0]
    assert edges.count("no-repeat local") == edges.count("no-repeat scroll") == 2, "a table that scrolls shows it"
    narrow = style.partition("@media screen and (max-width:30rem){")[2]
    assert "th,td{padding:" in narrow and style.index("@media screen and (max-width:30rem)") > style.index("\nth,td{")


def test_figures_that_stand_side_by_side_are_equally_high():
    low = Lines([Series("a", [(1, 2), (2, 3)])], "x", "y")
    high = ValueRows([ValueRow(f"row {n}", n) for n in range(20)], "score")
    wide = Panels([("a", low), ("b", low)], 2)
    figures = [Figure(f"f{n}", "t", "", "1", drawing) for n, drawing in enumerate((low, high, wide, low))]
    html = render_html(Page("t", (Part("t", "s", (Section("s", tuple(figures)),)),)))
    heights = []
    for address, _ in Document(html).all("img"):
        svg = b64decode(address["src"].partition("base64,")[2]).decode()
        heights.append(float(re.search(r'height="([\d.]+)pt"', svg)[1]) / 72)
    assert heights[0] == heights[1] == pytest.approx(high.size[1]) and high.size[1] > low.size[1]
    assert heights[2:] == [pytest.approx(wide.size[1]), pytest.approx(low.size[1])], "rows of their own"


def test_a_plot_of_a_single_point_is_its_table(copied, change, page_of):
    def keep_one_generation(record):
        record["generations"] = record["generations"][:1]

    page = page_of(copied("search-mapping", edit=keep_one_generation))
    assert list(page.figures()) == []
    tables = [block for block in page.parts[0].sections[1].blocks if isinstance(block, Table)]
    assert tables[0].caption == "Evolution of fitness" and tables[0].headings[0] == "generation"
    run = copied(name="run")
    for log in (run / "stages").glob("*/log.jsonl"):
        log.write_text('{"step": 3, "loss": 2.0, "loss_a": 1.0, "loss_b": 1.0}\n{"step": 3, "eval_loss": 2.5}\n')
    page = page_of(run)
    assert list(page.figures()) == []
    assert "curve" not in render_markdown(page, "figures"), "there is no curve to speak of"


def test_several_folders_open_with_a_table_of_links_and_are_folded(rendered):
    document = Document(rendered(*KINDS))
    first, *_ = document.all("table")
    links = [attributes["href"] for attributes, _ in document.all("a", within="table")]
    assert links == [f"#part-{number}" for number in range(2, len(KINDS) + 2)]
    assert "Folders in this report" in first[1] and "Parameters" in first[1]
    parts = [attributes for attributes, _ in document.all("details") if attributes.get("class") == "part"]
    assert len(parts) == len(KINDS) and not any("open" in attributes for attributes in parts)
    # A link opens what is folded only if it leads into it, and not to its heading.
    for place, (_, attributes, _) in enumerate(document.elements):
        if attributes.get("class") == "inside":
            above = [document.elements[parent][0] for parent in document.parents[place]]
            assert above[-1] == "details" and "summary" not in above and attributes["id"].startswith("part-")


def test_a_single_folder_is_not_folded_and_begins_with_its_highlights(rendered):
    document = Document(rendered("search-teacher-layer"))
    assert not [a for a, _ in document.all("details") if a.get("class") == "part"]
    [(_, cards)] = [(a, text) for a, text in document.all("dl") if a.get("class") == "cards"]
    assert "best teacher layer" in cards


def test_a_page_is_no_larger_than_its_folders_ask_for(rendered):
    assert 20_000 < len(rendered("search-teacher-layer")) < 200_000


# Markdown, and figures as files.


def test_figures_are_linked_with_words_and_are_there(tmp_path):
    written = write_report([SEARCHED, SIMILARITY], tmp_path / "all.html", markdown=True)
    links = re.findall(r"!\[(.+)\]\((all-figures/([a-z0-9-]+)\.svg)\)", written.markdown.read_text())
    figures = {figure.name: figure for figure in written.page.figures()}
    assert [name for _, _, name in links] == list(figures)
    for words, path, name in links:
        assert words == escape_markdown(figures[name].description)
        svg = (tmp_path / path).read_text()
        assert "<svg" in svg and "<text" in svg, "text stays text, for a paper's own fonts"
        picture = Image.open((tmp_path / path).with_suffix(".png"))
        assert min(picture.size) > 200 and len(picture.convert("L").getcolors()) > 5


def test_markdown_shows_hostile_text_as_text():
    bad = "<script>x</script> | `tick` ](javascript:y) # _em_\n# head"
    table, code = Table(bad, (bad, bad), ((bad, bad),)), Code(bad, "```\n<b>\n```", "yaml")
    blocks = (table, Paragraph(bad), Notes((bad,), warning=True), code)
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


def test_a_report_tells_which_figures_it_draws(tmp_path):
    told = []

    def report(share, what, count=None):
        told.append((share, what))

    written = write_report([SEARCHED], tmp_path / "page.html", figures=tmp_path / "figures", report=report)
    count = len(list(written.page.figures()))
    assert count > 0
    assert [what for _, what in told] == ["reading the folders", *["drawing"] * count, *["writing the figures"] * count]
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[-1] < 1


def test_figures_go_where_they_are_asked_for(tmp_path):
    written = write_report([SEARCHED], tmp_path / "p" / "a.html", figures=tmp_path / "paper", markdown=True)
    names = {f"{figure.name}{suffix}" for figure in written.page.figures() for suffix in (".svg", ".png")}
    assert {path.name for path in (tmp_path / "paper").iterdir()} == names
    assert "](../paper/layers.svg)" in written.markdown.read_text()


def test_what_is_not_a_report_is_not_replaced(tmp_path):
    mine = tmp_path / "index.html"
    mine.write_text("<h1>My page about limbeck</h1>")
    for folders, output, error, words in (
        ([SEARCHED], mine, OutputError, "is not a limbeck report"),
        ([SEARCHED], tmp_path, RecipeError, "end with .html"),
        ([SEARCHED], tmp_path / "report.pdf", RecipeError, "end with .html"),
        ([SIMILARITY], mine / "report.html", OutputError, "cannot be written"),
        ([], None, RecipeError, "needs at least one folder"),
    ):
        with pytest.raises(error, match=words):
            write_report(folders, output)
    assert mine.read_text() == "<h1>My page about limbeck</h1>"


def test_markdown_and_pictures_that_are_not_of_a_report_are_not_replaced(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("# My project\n")
    with pytest.raises(OutputError, match=r"README.md' exists and is not a limbeck report"):
        write_report([SEARCHED], tmp_path / "README.html", markdown=True)
    assert readme.read_text() == "# My project\n" and list(tmp_path.iterdir()) == [readme]
    write_report([SEARCHED], tmp_path / "README.html")

    picture = tmp_path / "mine-figures" / "layers.svg"
    picture.parent.mkdir()
    picture.write_text("my own")
    with pytest.raises(OutputError, match=r"mine-figures', already has files of something else .there is no 'mine.md'"):
        write_report([SEARCHED], tmp_path / "mine.html", markdown=True)
    assert picture.read_text() == "my own"
    (tmp_path / "file-figures").write_text("a file")
    with pytest.raises(OutputError, match=r"file-figures' is a file"):
        write_report([SEARCHED], tmp_path / "file.html", markdown=True)

    written = write_report([SEARCHED], tmp_path / "new.html", markdown=True)
    assert write_report([SEARCHED], tmp_path / "new.html", markdown=True) == written, "a report may be made again"


# `limbeck report` as a user types it.


def test_paths_sections_and_warnings_are_printed(limbeck, tmp_path):
    (tmp_path / "search.json").write_text('{"kind": "mapping", "name": "slow", "status": "running"}')
    process = limbeck("report", SEARCHED, tmp_path, "--output", tmp_path / "two.html", "--markdown", "--json")
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["html"] == str(tmp_path / "two.html") and report["markdown"] == str(tmp_path / "two.md")
    assert "Side by side" in report["sections"] and any("The search 'slow'" in line for line in report["warnings"])
    assert len(report["figures"]) % 2 == 0
    assert all(path.startswith(str(tmp_path / "two-figures")) for path in report["figures"])
    process = limbeck("report", tmp_path)
    assert process.returncode == 0 and "warning: The search 'slow'" in process.stdout
    assert f"Report: {tmp_path / 'report.html'}" in process.stdout
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "Made the folder" not in process.stdout
    process = limbeck("report", tmp_path, "--output", tmp_path / "new" / "page.html")
    assert f"Made the folder '{tmp_path / 'new'}'." in process.stdout.splitlines()


def test_mistakes_are_one_line(limbeck, tmp_path):
    assert_one_line_error(limbeck("report", tmp_path), 2, "is not the folder of a run", "run.json")
    assert_one_line_error(limbeck("report", SEARCHED, "--output", tmp_path / "x.pdf"), 2, "end with .html")
    assert limbeck("report").returncode == 2
    (tmp_path / "taken").write_text("")
    for place in ("taken", "taken/below"):
        process = limbeck("report", SEARCHED, "--output", tmp_path / "x.html", "--figures", tmp_path / place)
        assert_one_line_error(process, 2, "must be a folder", "taken' is a file")
    assert not (tmp_path / "x.html").exists()
