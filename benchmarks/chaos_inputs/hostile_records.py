"""Records whose words are markup, links, control codes or formulas: every page, table and card shows them as text."""

from __future__ import annotations

import csv
import io
import json
import re
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import COUNTED, SILENT, Trial
from markdown_it import MarkdownIt

from limbeck.core import blocks, console_blocks
from limbeck.core.escaping import TerminalConsole
from limbeck.core.records import Run, RunEvaluation
from limbeck.core.studies import Evaluation
from limbeck.report.evaluation import evaluation_csv, evaluation_markdown, evaluation_table
from limbeck.report.quality import comparison_csv, comparison_markdown, comparison_table
from limbeck.report.rendering import MARKDOWN_MARK
from limbeck.report.student_card import model_card
from limbeck.report.writing import write_report
from limbeck.version import __version__

_PAYLOADS = (
    "<svg/onload=alert(1)>", "<script>x</script>", "</td></tr></table>", "[x](javascript:alert(1))", "![x](http://e/p)",
    "[x]: javascript:y", "\x1b]0;pwn\x07", "\x1b[2J", "\x9b31m", "\u202egnp", "\u2066x", "=HYPERLINK(1)",
    "+1+cmd|'/c'!A", "@SUM(1)", "-2+3", "\n# Heading\n", "---\nlicense: mit\n---", "| a | b |", "```\n", "`x`", "`",
    "{{ 7*7 }}", "{% x %}", "\0", "javascript:alert(1)", "data:text/html,x", "&lt;b&gt;", "]]>", "<!--", "\r\n",
)  # fmt: skip
_LIVE = {"html_inline", "html_block", "image"}
_OUR_TAGS = {"details", "summary"}


def _payload(random: Random) -> str:
    return garbage.word(random, 0, 3) * random.randint(0, 1) + "".join(
        random.choices(_PAYLOADS, k=random.randint(1, 3))
    )


def poisoned(random: Random, value: Any) -> Any:
    """Return plain values with words in them, keys of mappings among them, made hostile here and there."""
    if isinstance(value, dict):
        return {_payload(random) if random.random() < 0.05 else k: poisoned(random, v) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(random, item) for item in value]
    often = 0.5 if isinstance(value, str) else 0.05
    return _payload(random) if random.random() < often else value


def _is_plain(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def _live(markdown: str) -> list[str]:
    """List what a Markdown text makes beyond text: tags and pictures of anybody's, links that are no web address."""
    body = markdown.split("\n---\n", 1)[1] if markdown.startswith("---\n") else markdown
    tokens = [
        t for token in MarkdownIt("commonmark").enable("table").parse(body) for t in (token, *(token.children or ()))
    ]
    found = [t.content or t.type for t in tokens if t.type in _LIVE and not _is_ours(t)]
    links = [str(t.attrs.get("href", "")) for t in tokens if t.type == "link_open"]
    return found + [link for link in links if not link.startswith(("https://", "http://"))]


def _is_ours(token: Any) -> bool:
    if token.type == "image":
        return re.fullmatch(r"[\w%.-]+/[\w.-]+\.svg", str(token.attrs.get("src", ""))) is not None
    # The first line of a report says that limbeck made it.
    is_mark = token.content.strip() == f"{MARKDOWN_MARK}{__version__} -->"
    return is_mark or set(re.findall(r"<\s*/?\s*([\w!-]+)", token.content)) <= _OUR_TAGS


def _shown(*parts: Any) -> str:
    console = TerminalConsole(file=io.StringIO(), force_terminal=True, width=100)
    for part in parts:
        console.print(part, markup=False, highlight=False)
    return re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())


def _has_formula(text: str) -> bool:
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    return any(
        cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not re.fullmatch(r"[+-]?[\d.e+-]+", cell)
        for cell in cells
    )


def _verdict(found: dict[str, Any]) -> str:
    return SILENT if any(found.values()) else COUNTED


def card(random: Random, scene: Scene, folder: Path) -> Trial:
    """The model card of a run whose record is anybody's."""
    record = json.loads((scene.run / "run.json").read_text(encoding="utf-8"))
    record["evaluation"] = _EVALUATED
    record["corpus"] = {**(record.get("corpus") or {}), "report": {"counts": {"damaged file": 2}}}
    values = poisoned(random, record)

    def act() -> dict[str, Any]:
        text = model_card(Run.read(values), folder)
        return {"live": _live(text), "control": not _is_plain(text)}

    return Trial("model card", act, (), _verdict)


_EVALUATED: dict[str, Any] = {
    "teacher": {"megabytes": 3.0}, "student": {"megabytes": 1.0, "megabytes_of": "tensors"},
    "task": {"metric": "accuracy", "teacher": 0.9, "student": 0.8, "rows": 50, "stage": "a", "teacher_name": "t"},
    "unavailable": {"latency": "no time"},
}  # fmt: skip


def quality(random: Random, scene: Scene, folder: Path) -> Trial:
    """The table of teacher and student in each of its forms."""
    found = RunEvaluation.read(poisoned(random, _EVALUATED))

    def act() -> dict[str, Any]:
        text, rows = comparison_markdown(found), comparison_csv(found)
        return {
            "live": _live(text), "control": not (_is_plain(text) and _is_plain(_shown(comparison_table(found)))),
            "formula": _has_formula(rows),
        }  # fmt: skip

    return Trial("quality table", act, (), _verdict)


def scores(random: Random, scene: Scene, folder: Path) -> Trial:
    """The tables of an evaluation whose models, columns and notes are anybody's."""
    columns = [{"key": "sst2", "title": "SST-2", "task": "sst2", "kind": "classification", "metric": "accuracy"}]
    model = {"name": "m", "columns": {"sst2": {"mean": 80.0, "runs": 1}}, "chosen": {"sst2": "rate 1e-05"}}
    values = {"preset": "minilm", "columns": columns, "models": [model, {**model, "name": "n"}], "notes": ["a", "b"],
              "notes_in_short": ["a"]}  # fmt: skip
    found = Evaluation.read(poisoned(random, values))

    def act() -> dict[str, Any]:
        text = evaluation_markdown(found)
        plain = _is_plain(text) and _is_plain(_shown(evaluation_table(found)))
        return {"live": _live(text), "control": not plain, "formula": _has_formula(evaluation_csv(found))}

    return Trial("evaluation tables", act, (), _verdict)


class _Tags(HTMLParser):
    """Gathers what a page would run, load or go to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        source = dict(attrs).get("src") or ""
        if tag == "img" and source.startswith("data:image/svg+xml;base64,"):
            # A figure of ours; scripts in it would not run, and it can load nothing.
            attrs = [(name, value) for name, value in attrs if name != "src"]
        elif tag in ("script", "img", "iframe", "object", "embed", "link", "image", "form"):
            self.found.append(tag)
        self.found += [
            f"{tag} {name}={value}" for name, value in attrs
            if name.startswith("on") or (name.endswith(("href", "src")) and not (value or "").startswith(("#", "https://")))
        ]  # fmt: skip


def page(random: Random, scene: Scene, folder: Path) -> Trial:
    """The report of a run whose record and log are anybody's, as HTML, as Markdown and on the terminal."""
    run = scene.copy_of(scene.run, folder)
    path = run / "run.json"
    path.write_text(json.dumps(poisoned(random, json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    return Trial("report", partial(_report, run, folder), (), _verdict)


def _report(run: Path, folder: Path) -> dict[str, Any]:
    written = write_report([run], folder / "page.html", markdown=True)
    html, tags = written.html.read_text(encoding="utf-8"), _Tags()
    tags.feed(html)
    markdown = (folder / "page.md").read_text(encoding="utf-8")
    warnings = _shown(*written.page.warnings(), console_blocks.console(blocks.Notes(tuple(written.page.warnings()))))
    return {
        "tags": tags.found, "live": _live(markdown),
        "control": not all(map(_is_plain, (html.replace("\t", " "), markdown.replace("\t", " "), warnings))),
    }  # fmt: skip


MAKERS = {make.__name__: make for make in (card, quality, scores, page)}
