"""What a result was made with: versions, commit, hardware, seeds, text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from limbeck.report.page.content import NOTHING, Block, Code, Facts, Table
from limbeck.report.page.plain_values import entries, entry, mapping, number, text
from limbeck.report.search_grid import duration

_DIRTY = "-dirty"


def provenance_blocks(record: Mapping[str, Any], folder: Path) -> Iterator[Block]:
    """Say what a record knows of how it was made; the fields are those that all records have in common."""
    hardware = mapping(record, "hardware")
    memory = number(hardware, "memory_bytes")
    peak, device_peak = number(record, "peak_memory_bytes"), number(record, "peak_device_memory_bytes")
    cores, threads = text(hardware, "cores"), text(hardware, "threads")
    pairs = [
        ("Folder", str(folder)),
        ("Status", text(record, "status")),
        ("Begun", text(record, "created")),
        ("Last change", text(record, "updated")),
        ("Seeds", _seeds(record)),
        ("limbeck", text(record, "versions", "limbeck")),
        ("Commit", _commit(text(record, "git_commit"))),
        ("Versions", _versions(record)),
        ("Device", text(hardware, "device")),
        ("Processor", ", ".join(filter(None, [text(hardware, "cpu"), f"{cores} cores" if cores else ""]))),
        ("Threads", threads),
        ("Memory", "" if memory is None else f"{memory / 2**30:.1f} GiB"),
        ("Most memory in use", "" if peak is None else f"{peak / 2**30:.2f} GiB"),
        ("Most memory on the device", "" if device_peak is None else f"{device_peak / 2**30:.2f} GiB"),
        ("Platform", text(hardware, "platform")),
        ("Time", _times(record)),
    ]
    yield Facts(tuple((name, value) for name, value in pairs if value))
    if views := entries(record, "corpus", "views"):
        headings = ("Stage", "Unit", "Longest block, tokens", "Blocks", "Tokens", "Fingerprint")
        yield Table("Text, by its fingerprints", headings, tuple(map(_view, views)), words=(1, 5))
    if identity := mapping(record, "identity") or mapping(record, "fixed"):
        yield Code("What it is bound to", yaml.safe_dump(dict(identity), sort_keys=False, allow_unicode=True), "yaml")


def _view(view: Mapping[str, Any]) -> tuple[str, ...]:
    counts = [number(view, name) for name in ("blocks", "tokens")]
    shown = [NOTHING if count is None else f"{count:,.0f}" for count in counts]
    named = [text(view, name) or NOTHING for name in ("stage", "unit", "length")]
    return (*named, *shown, text(view, "fingerprint") or NOTHING)


def _seeds(record: Mapping[str, Any]) -> str:
    seeds = {**mapping(record, "seeds")} or {"seed": entry(record, "identity", "seed")}
    planned = entry(record, "plan", "seeds")
    if isinstance(planned, list):
        return ", ".join(map(str, planned))
    return ", ".join(f"{name} {seed}" for name, seed in seeds.items() if seed is not None)


def _commit(commit: str) -> str:
    changed = " with local changes" if commit.endswith(_DIRTY) else ""
    return commit.removesuffix(_DIRTY) + changed


def _versions(record: Mapping[str, Any]) -> str:
    found = mapping(record, "versions")
    return ", ".join(f"{name} {version}" for name, version in found.items() if name != "limbeck")


def _times(record: Mapping[str, Any]) -> str:
    found = {name: number(record, "timings", str(name)) for name in mapping(record, "timings")}
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in found.items() if seconds is not None)
