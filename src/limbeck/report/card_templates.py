"""The templates of model cards, and the filters that the templates apply to values of a record.

A filter escapes a value, since anybody may have written the record, or puts it into words.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader

from limbeck.core.blocks import interval, mean
from limbeck.core.escaping import code_block, escape_markdown, inline_code, one_line
from limbeck.core.exports import Export
from limbeck.core.records import modules_of
from limbeck.kinds.registry import KINDS
from limbeck.kinds.usage import MASKED_LM, HeadUsage
from limbeck.report.export_text import export_part
from limbeck.report.layers import layer_rows
from limbeck.report.names import folder_name, metric_of_column, without_path
from limbeck.report.quality import format_count
from limbeck.report.run_warnings import initial_tensors, resembling_rows, untrained_rows, untrained_values
from limbeck.report.text_notes import changed_text, list_notes, skipped_text


@cache
def card_templates() -> Environment:
    """Return the environment of the templates of cards, with the filters by the names that templates use."""
    environment = Environment(
        loader=PackageLoader("limbeck.report"), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "text": escape_markdown,
        "code": inline_code,
        "block": code_block,
        "link": web_address,
        "count": format_count,
        "short": name_in_card,
        "mean": mean,
        "interval": interval,
        "metric_of": metric_of_column,
        "usage": usage_of,
        "exported": export_part,
        "graph_usage": onnx_usage,
        "initial_tensors": initial_tensors,
        "router_usage": router_usage,
        "layer_rows": layer_rows,
        "modules": modules_of,
        "changed_text": changed_text,
        "list_notes": list_notes,
        "resembling_rows": resembling_rows,
        "skipped_text": skipped_text,
        "untrained_rows": untrained_rows,
        "untrained_values": untrained_values,
    }
    return environment


def usage_of(head: str | None) -> HeadUsage | None:
    """Return the example code of a head; None without a head, and for a kind that is not installed.

    Args:
        head: `"masked_lm"`, or the name of a kind of task.
    """
    if head == "masked_lm":
        return MASKED_LM
    if head is None or head not in KINDS:
        return None
    return KINDS[head].usage


def onnx_usage(export: Export, reads_pairs: bool | None = None) -> str:
    """Return Python that runs an exported graph on a line of text, by its outputs.

    Args:
        export: The export.
        reads_pairs: Whether a model with a head reads pairs of texts; None where it cannot be known.
    """
    template = card_templates().get_template("onnx_usage.py.j2")
    return template.render(export=export, reads_pairs=reads_pairs).rstrip()


def router_usage(export: Export) -> str:
    """Return how a router is used, as Markdown: queries, documents, and an index that is there already."""
    return card_templates().get_template("router_usage.md.j2").render(export=export).strip()


def web_address(value: Any) -> str:
    """Return an address of the web for a Markdown link; empty for a value that is no such address.

    Characters that would end the link, such as `)`, are percent-encoded.
    """
    line = one_line(value)
    if not re.match(r"https?://[^/\s]", line):
        return ""
    return quote(line, safe=":/?#@!$&=+,;%~-._")


def name_in_card(value: Any) -> str:
    """Return a name in one line as `without_path` gives it; a card also shortens relative paths that exist here."""
    line = one_line(value)
    name = without_path(line)
    # A relative path with one slash looks like a name on the Hub, unless it exists here.
    if name == line and Path(line).exists():
        return folder_name(line)
    return name
