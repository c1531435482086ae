"""The page is whole, needs nothing beside it, says in words what it shows, and shows no text as code."""

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from limbeck.report.collect import collect
from limbeck.report.page import build_page, render_html, write_report
from limbeck.report.plots import THEMES
from tests.support.page_document import Document

KINDS = ("finished", "comparison-with-costs", "search-mapping", "evaluation-with-costs", "inspections")
HOSTILE = "</svg></title><script>alert('x')</script><img src=x onerror=y>\u202e\u200f]]>{{ 7*7 }}"


@pytest.fixture(params=[("search-teacher-layer",), KINDS], ids=["one", "all"])
def html(request, rendered):
    return rendered(*request.param)


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
        place = attributes.get("href", "#")
        assert place.startswith(("#", "https://arxiv.org/", "https://aclanthology.org/")), place
    style = document.all("style")[0][1]
    assert "url(" not in style and "@import" not in style
    policy = [a["content"] for a, _ in document.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_every_figure_has_words_and_numbers(html):
    document = Document(html)
    figures, drawings = document.all("figure"), document.all("svg")
    assert len(drawings) == len(figures) > 0
    assert all(one["role"] == "img" and len(one["aria-labelledby"].split()) == 2 for one, _ in drawings)
    words = [text for _, text in document.all("desc")]
    assert len(words) == len(figures) and all(re.search(r"\d", text) for text in words)
    assert len(document.all("figcaption")) == len(document.all("table", within="figure")) == len(figures)


def test_tables_are_reached_by_the_keyboard_and_named(html):
    document = Document(html)
    regions = [attributes for attributes, _ in document.all("div") if attributes.get("role") == "region"]
    assert len(regions) == len(document.all("table")) > 0
    assert all(attributes["tabindex"] == "0" and attributes["aria-label"] for attributes in regions)
    assert len(document.all("caption")) == len(regions)
    assert all(attributes["scope"] in ("col", "row") for attributes, _ in document.all("th"))
    assert document.all("a")[0][0] == {"class": "skip", "href": "#content"} and "content" in document.ids


def test_text_from_folders_stays_text(copied, change_record, tmp_path):
    folder, unfinished, look = copied(), copied(name="unfinished"), copied("inspections", "look")
    search, unknown = copied("search-killed", "search"), tmp_path / "unknown"

    def spoil(record):
        record["name"] = record["teacher"]["name_or_path"] = record["stages"][0]["name"] = HOSTILE
        record["stages"][0]["citation"] = {"title": HOSTILE, "authors": HOSTILE, "url": "javascript:alert(1)"}
        record["stages"][0]["final_terms"] = {HOSTILE: 1.0}
        record["versions"] = {HOSTILE: HOSTILE}

    def spoil_unfinished(record):
        record["status"], record["problem"] = "failed", HOSTILE
        record["recipe"]["stages"][1]["teacher"] = {"model": HOSTILE}
        record["stages"][1]["layers"] = [{"student": [2], "teacher": [3], "terms": [HOSTILE, f"b_{HOSTILE}"]}]

    change_record(folder / "run.json", spoil)
    change_record(unfinished / "run.json", spoil_unfinished)
    (folder / "recipe.yaml").write_text(f"name: '{HOSTILE}'\n")
    log = folder / "stages" / "1-minilmv2" / "log.jsonl"
    log.write_text(json.dumps({"step": 1, "loss": 1.0, f"loss_{HOSTILE}": 1.0, "loss_b": 2.0}) + "\n")
    change_record(look / "attention.json", lambda record: record["result"]["maps"]["tokens"].__setitem__(0, HOSTILE))
    beat = {"activity": "training", "stage": HOSTILE, "stage_number": HOSTILE, "stages": 2, "step": 1, "steps": 2}
    (unfinished / "heartbeat.json").write_text(json.dumps(beat))
    journal = (search / "search.journal").read_text()
    (search / "search.journal").write_text(journal.replace('"share":', f"{json.dumps(HOSTILE)}:"))
    unknown.mkdir()
    (unknown / "search.json").write_text(json.dumps({"kind": HOSTILE, "name": HOSTILE, "status": "running"}))
    html = render_html(build_page(collect([folder, unfinished, look, search, unknown])))
    document = Document(html)
    assert not {tag for tag, _, _ in document.elements} & {"script", "img"}
    assert "\u202e" not in html and "\u200f" not in html and "49" not in document.all("h1")[0][1]
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
    for theme in THEMES.values():
        assert all(f"--{role}:{colour};" in style for role, colour in theme.items())
    edges = style.partition(".scroll{")[2].partition("}")[0]
    assert edges.count("no-repeat local") == edges.count("no-repeat scroll") == 2, "a table that scrolls shows it"
    narrow = style.partition("@media (max-width:30rem){")[2]
    assert "th,td{padding:" in narrow and style.index("@media (max-width:30rem)") > style.index("\nth,td{")


def test_a_page_is_no_larger_than_its_folders_ask_for(rendered):
    assert 20_000 < len(rendered("search-teacher-layer")) < 200_000
