"""Foreign text is shown by every form of output, and obeyed by none."""

import csv
import io
import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from limbeck.core import blocks, escaping, markdown
from limbeck.core.blocks import Cell, Notes, Paragraph, Section, Table
from limbeck.core.console_blocks import console as shown_on_console
from limbeck.core.escaping import TerminalConsole

PARTS = st.sampled_from(
    ["<svg onload=x>", "[a](javascript:x)", "[b]: javascript:x", "![c][b]", "\u202e", "\x1b]0;t\x07", "\x1b[2J",
     "\x9b31m", "=HYPERLINK(1)", "@SUM(1)", "`", "``", "`<b>`", "|", "\\", "]", "(", "*", "_", "\n", "\n\n# h", "- x",
     "a", " ", "é", "\t"]
)  # fmt: skip
HOSTILE = st.lists(PARTS, min_size=1, max_size=8).map("".join)
LIVE = {"html_inline", "html_block", "link_open", "image"}


def live(text: str) -> set[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return {t.type for token in tokens for t in (token, *(token.children or ()))} & LIVE


@given(HOSTILE)
def test_markdown_files_hold_no_link_tag_or_second_row(text: str):
    table = Table(text, ("name", text), ((text, Cell(text, mark="bold")),), words=(0, 1))
    page = markdown.markdown_file(text, [Section("Part", (Paragraph(text), table, Notes((text,))))])
    assert not live(page) and page.replace("\n", "").isprintable()
    assert len([line for line in page.splitlines() if re.match(r"\| .* \|$", line)]) == 2
    escaped = "\n\n".join(markdown.escaped_blocks([Paragraph(text), table, Notes((text,), warning=True)]))
    assert not live(escaped) and escaped.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["hidden_states", "6x384 *best*", "[why] 2 of 3", "a-b/c.d", "x~y #2 $z {w}"])
def test_ordinary_names_stay_as_they_were_given(name: str):
    assert escaping.escape_links_and_tags(name) == name


@given(HOSTILE)
def test_a_terminal_is_sent_no_foreign_control_codes(text: str):
    console = TerminalConsole(file=io.StringIO(), force_terminal=True, width=60)
    table = Table(text, (text, "b"), ((text, Cell(text, mark="bold")),))
    blocks_shown = shown_on_console(Paragraph(text), Notes((text,), warning=True), table)
    console.print(blocks_shown, text, style="red", markup=False)
    shown = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    assert "\x1b[" in console.file.getvalue(), "its own colours stay"


@given(HOSTILE)
def test_json_holds_the_same_text_in_printable_characters(text: str):
    written = escaping.escape_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(written) == {text: [text]} and written.replace("\n", "").isprintable()


@given(HOSTILE)
def test_yaml_holds_printable_text(text: str):
    written = yaml.safe_dump(escaping.printable_values({text: [text, 3, None]}), allow_unicode=True)
    assert written.replace("\n", "").isprintable()
    assert yaml.safe_load(written) == {escaping.printable(text): [escaping.printable(text), 3, None]}


@given(HOSTILE)
def test_csv_holds_no_formula(text: str):
    (row,) = csv.DictReader(io.StringIO(blocks.to_csv(("model", "mean"), [{"model": text, "mean": -1.5}])))
    assert not row["model"].startswith(tuple("=+-@\t\r\n")) and row["mean"] == "-1.5"
    assert row["model"].lstrip("'") == escaping.printable(text).lstrip("'")
    assert escaping.escape_csv("-0.5") == "-0.5", "a number"
    (heading,) = csv.reader(io.StringIO(blocks.to_csv((text,), [])))
    assert heading == [row["model"]], "headings may be anybody's too"
