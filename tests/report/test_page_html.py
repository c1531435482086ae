"""The page is whole, needs nothing beside it, says in words what it shows, and shows no text as code."""

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from limbeck.report.collect import collect
from limbeck.report.html import render_html
from limbeck.report.page import build_page, write_report
from limbeck.report.plots import THEMES
from tests.support.page_document import Document

KINDS = ("run_folder", "comparison_folder", "mapping_folder", "inspection_folder", "search_folder")
HOSTILE = "</svg></title><script>alert('x')</script><img src=x onerror=y>\u202e\u200f]]>{{ 7*7 }}"


def rendered(*folders):
    return render_html(build_page(collect(folders)))


@pytest.fixture(params=[*KINDS, "all"])
def html(request):
    names = KINDS if request.param == "all" else [request.param]
    return rendered(*(request.getfixturevalue(name) for name in names))


def test_the_document_is_whole_and_every_reference_is_met(html):
    document = Document(html)
    assert html.startswith("<!DOCTYPE html>") and len(document.all("h1")) == 1
    assert len(document.ids) == len(set(document.ids))
    for attributes, _ in document.all("a"):
        if attributes["href"].startswith("#"):
            assert attributes["href"][1:] in document.ids
    for _, attributes, _ in document.elements:
        for name in attributes.get("aria-labelledby", "").split():
            assert name in document.ids
    levels = [int(tag[1]) for tag, _, _ in document.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in pairwise(levels))


def test_nothing_is_fetched_and_nothing_is_run(html):
    document = Document(html)
    assert not {tag for tag, _, _ in document.elements} & {"script", "link", "img", "iframe", "object", "image", "use"}
    for tag, attributes, _ in document.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert not {"src", "srcset", "action", "xlink:href"} & set(attributes)
        if "href" in attributes:
            assert tag == "a" and attributes["href"].startswith(
                ("#", "https://arxiv.org/", "https://aclanthology.org/")
            )
    style = document.all("style")[0][1]
    assert "url(" not in style and "@import" not in style
    policy = [a["content"] for a, _ in document.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_every_figure_has_words_and_numbers(html):
    document = Document(html)
    figures = document.all("figure")
    drawings = document.all("svg")
    assert len(drawings) == len(figures) > 0
    assert all(
        attributes["role"] == "img" and len(attributes["aria-labelledby"].split()) == 2 for attributes, _ in drawings
    )
    words = [text for _, text in document.all("desc")]
    assert len(words) == len(figures) and all(re.search(r"\d", text) for text in words)
    assert len(document.all("figcaption")) == len(figures)
    assert len(document.all("table", within="figure")) == len(figures)


def test_tables_are_reached_by_the_keyboard_and_named(html):
    document = Document(html)
    regions = [attributes for attributes, _ in document.all("div") if attributes.get("role") == "region"]
    assert len(regions) == len(document.all("table")) > 0
    assert all(attributes["tabindex"] == "0" and attributes["aria-label"] for attributes in regions)
    assert len(document.all("caption")) == len(regions)
    assert all(attributes["scope"] in ("col", "row") for attributes, _ in document.all("th"))
    assert document.all("a")[0][0] == {"class": "skip", "href": "#content"} and "content" in document.ids


def test_a_page_says_what_the_record_says(run_folder):
    record = json.loads((run_folder / "run.json").read_text())
    text = "".join(Document(rendered(run_folder)).elements[0][2])
    stage = record["stages"][0]
    for part in (
        "somebody/a-teacher", record["student"]["shape"], f"{stage['tokens']:,}", f"{stage['padding_share']:.1%}",
        record["corpus"]["views"][0]["fingerprint"], record["versions"]["torch"], "run 1", "relations",
    ):  # fmt: skip
        assert part in text, part
    for name, value in stage["held_out"].items():
        assert f"{value:.5g}" in text, name


def test_text_from_folders_stays_text(copied_run, change_record, inspection_folder, tmp_path):
    folder = copied_run()

    def spoil(record):
        record["name"] = record["teacher"]["name_or_path"] = record["stages"][0]["name"] = HOSTILE
        record["stages"][0]["citation"] = {"title": HOSTILE, "authors": HOSTILE, "url": "javascript:alert(1)"}
        record["stages"][0]["final_terms"] = {HOSTILE: 1.0}
        record["versions"] = {HOSTILE: HOSTILE}

    change_record(folder / "run.json", spoil)
    (folder / "recipe.yaml").write_text(f"name: '{HOSTILE}'\n")
    log = folder / "stages" / "1-layers" / "log.jsonl"
    log.write_text(json.dumps({"step": 1, "loss": 1.0, f"loss_{HOSTILE}": 1.0, "loss_b": 2.0}) + "\n")
    look = tmp_path / "look"
    look.mkdir()
    spoiled = json.loads((inspection_folder / "attention.json").read_text())
    spoiled["result"]["maps"]["tokens"][0] = HOSTILE
    (look / "attention.json").write_text(json.dumps(spoiled))
    html = rendered(folder, look)
    assert_all_is_text(html)
    assert "<script>alert('x')</script>" in Document(html).all("h1")[0][1], "shown as it is, as text"


def assert_all_is_text(html):
    document = Document(html)
    assert not {tag for tag, _, _ in document.elements} & {"script", "img"}
    assert "\u202e" not in html and "\u200f" not in html and "49" not in document.all("h1")[0][1]
    assert all(not a["href"].startswith("javascript") for a, _ in document.all("a"))


def test_text_of_what_is_not_finished_stays_text(copied_run, change_record, mapping_folder, tmp_path):
    folder = copied_run()

    def spoil(record):
        record["status"], record["problem"] = "failed", HOSTILE
        record["recipe"]["stages"][1]["teacher"] = {"model": HOSTILE}
        record["stages"][1]["layers"] = [{"student": [2], "teacher": [3], "terms": [HOSTILE, f"b_{HOSTILE}"]}]

    change_record(folder / "run.json", spoil)
    (folder / "stages" / "1-layers" / "stage.json").unlink()
    beat = {"activity": "training", "stage": HOSTILE, "stage_number": HOSTILE, "stages": 2, "step": 1, "steps": 2}
    (folder / "heartbeat.json").write_text(json.dumps(beat))
    search = tmp_path / "search"
    search.mkdir()
    (search / "search.json").write_text(json.dumps({"kind": "mapping", "name": "mapping", "status": HOSTILE}))
    journal = (mapping_folder / "search.journal").read_text()
    (search / "search.journal").write_text(journal.replace('"share":', f"{json.dumps(HOSTILE)}:"))
    unknown = tmp_path / "unknown"
    unknown.mkdir()
    (unknown / "search.json").write_text(json.dumps({"kind": HOSTILE, "name": HOSTILE, "status": "running"}))
    html = rendered(folder, search, unknown)
    assert_all_is_text(html)
    text = "".join(Document(html).elements[0][2])
    assert text.count("<script>alert('x')</script>") >= 5, (
        "stage, problem, terms, what the search is bound to, its name"
    )
    report = write_report([folder, search], tmp_path / "all.html", markdown=True, figures=tmp_path / "figures")
    for path in (tmp_path / "figures").glob("*.svg"):
        ElementTree.parse(path)
    assert report.figures


def test_a_table_that_scrolls_shows_it_and_is_set_closer_on_a_phone(run_folder):
    style = rendered(run_folder).partition("</style>")[0]
    edges = style.partition(".scroll{")[2].partition("}")[0]
    assert edges.count("no-repeat local") == edges.count("no-repeat scroll") == 2
    narrow = style.partition("@media (max-width:30rem){")[2]
    assert "th,td{padding:" in narrow and style.index("@media (max-width:30rem)") > style.index("\nth,td{")


def test_both_themes_and_print_are_in_the_style(run_folder):
    style = Document(rendered(run_folder)).all("style")[0][1]
    assert "prefers-color-scheme:dark" in style and "@media print" in style and ":focus-visible" in style
    for theme in THEMES.values():
        assert all(f"--{role}:{colour};" in style for role, colour in theme.items())
