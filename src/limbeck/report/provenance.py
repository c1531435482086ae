"""How a result was made: versions, commit, hardware, seeds, and the text that was read.

A *result* is a run, a comparison or a search. Its *identity* holds the settings that decide the result, so a result
with other settings is another result. A *view* is the text as one stage reads it: cut into rows of some length.
"""

from collections.abc import Iterator
from pathlib import Path

import yaml

from limbeck.core import records, studies
from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Code, Facts, Table, duration, number
from limbeck.core.run_status import RunStatus
from limbeck.report.names import without_path

_DIRTY = "-dirty"
"""git's mark of a working tree that differs from its commit."""


def run_provenance(run: records.Run, folder: Path, status: RunStatus) -> Iterator[Block]:
    """Show how a run was made, then the text of its stages: fingerprints, mixed sources, and kinds of rows.

    Args:
        run: The run's record.
        folder: Its folder.
        status: Its status. Until the run has recorded its end, its record is older than its last sign of life, so its
            times are left out.
    """
    # Each part of a run has a seed and a time, by its name: `training 42`, `total 3 h 20 min`.
    seeds = [f"{name} {seed}" for name, seed in run.seeds.items()]
    times = [f"{name} {duration(seconds)}" for name, seconds in run.timings.items()]
    facts = made_by(run, folder, seeds=", ".join(seeds))
    facts["Peak memory"] = _gibibytes(run.peak_memory_bytes, digits=2)
    facts["Peak memory on the device"] = _gibibytes(run.peak_device_memory_bytes, digits=2)
    facts["Time"] = ", ".join(times)
    facts["Status"] = status.shown
    if not status.has_recorded_end:
        del facts["Last updated"]
        del facts["Time"]
    yield facts_block(facts)
    if run.corpus is not None:
        yield from _fingerprints(run.corpus)
        yield from _mixtures(run, run.corpus)
        yield from _rows_by_role_and_unit(run.corpus)


def comparison_provenance(comparison: studies.Comparison, folder: Path) -> Iterator[Block]:
    """Show how a comparison was made, and the settings that it cannot change any more."""
    seeds = ", ".join(map(str, comparison.plan.seeds))
    yield facts_block(made_by(comparison, folder, seeds))
    # Settings that were fixed when the comparison began, since its runs compare only with the same ones.
    if comparison.fixed:
        yield identity_block(comparison.fixed)


def search_provenance(search: studies.Search, folder: Path) -> Iterator[Block]:
    """Show how a search was made, and the settings that it cannot change any more."""
    seed = search.identity.get("seed")
    seeds = "" if seed is None else f"seed {seed}"
    yield facts_block(made_by(search, folder, seeds))
    if search.identity:
        yield identity_block(search.identity)


def made_by(record: records.Made, folder: Path, seeds: str = "") -> dict[str, str | None]:
    """Return the facts about the making of a result, by name; a fact that is not recorded is empty or None.

    Args:
        record: The result's record.
        folder: The result's folder.
        seeds: The seeds as text, since every kind of record keeps them in another form.
    """
    hardware = record.hardware
    commit = record.git_commit or ""
    if commit.endswith(_DIRTY):
        commit = f"{commit.removesuffix(_DIRTY)} with local changes"
    packages = [f"{name} {version}" for name, version in record.versions.items() if name != "limbeck"]
    return {
        "Folder": str(folder),
        "Status": record.status,
        "Started": record.created,
        "Last updated": record.updated,
        "Seeds": seeds,
        "limbeck": record.versions.get("limbeck"),
        "Commit": commit,
        "Versions": ", ".join(packages),
        "Device": hardware.device,
        "Processor": hardware.cpu,
        "Cores": str(number(hardware.cores)),
        "Threads": str(number(hardware.threads)),
        "Memory": _gibibytes(hardware.memory_bytes, digits=1),
        "Platform": hardware.platform,
    }


def facts_block(facts: dict[str, str | None]) -> Facts:
    """Return a block of the facts that are known; those that are empty, None or a dash are left out."""
    return Facts(tuple((name, value) for name, value in facts.items() if value and value != NOTHING))


def identity_block(identity: dict[str, object]) -> Code:
    """Return a block of the settings that decide a result, as YAML."""
    return Code("Identity", yaml.safe_dump(identity, sort_keys=False, allow_unicode=True), "yaml")


def _gibibytes(size: float | None, *, digits: int) -> str:
    """Return a size in bytes as GiB; empty where it is not known."""
    if size is None:
        return ""
    return f"{size / 2**30:.{digits}f} GiB"


def _fingerprints(text: records.CorpusText) -> Iterator[Table]:
    """Show the size of the text of each stage, and its fingerprint: a hash by which equal text is recognised."""
    rows: list[tuple[AnyCell, ...]] = []
    for view in text.views:
        cells = (
            Cell(view.stage or None),
            Cell(view.unit or None),
            Cell(view.length, "{:.0f}"),
            number(view.blocks),
            number(view.tokens),
            Cell(view.fingerprint or None),
        )
        rows.append(cells)
    if rows:
        headings = ("Stage", "Unit", "Longest block, tokens", "Blocks", "Tokens", "Fingerprint")
        yield Table("Text fingerprints", headings, tuple(rows)).with_words("Unit", "Fingerprint")


def _mixtures(run: records.Run, text: records.CorpusText) -> Iterator[Table]:
    """Show the share of each source in stages that mix sources, and the rows that were drawn from it.

    Only finished stages have recorded the rows that they drew.
    """
    drawn_by_stage = {stage.name: stage.drawn.rows for stage in run.stages if stage.drawn is not None}
    rows: list[tuple[AnyCell, ...]] = []
    # A stage whose blocks grow during training has several views, one for each length, with their own shares.
    for view in text.views:
        # `mixed` gives for each stage that mixes sources the rule of the shares in words, such as sizes to a power.
        if view.stage not in text.mixed:
            continue
        rule = text.mixed[view.stage]
        rows_by_source = drawn_by_stage.get(view.stage, {})
        for source, share in (view.shares or {}).items():
            cells = (
                view.stage,
                without_path(source),
                rule,
                Cell(view.length, "{:.0f}"),
                Cell(share, "{:.2%}"),
                number(rows_by_source.get(source)),
            )
            rows.append(cells)
    if rows:
        headings = ("Stage", "Source", "Mixed by", "Longest block, tokens", "Share", "Rows drawn, of all lengths")
        yield Table("Mixed sources", headings, tuple(rows), folded=True).with_words("Source", "Mixed by")


def _rows_by_role_and_unit(text: records.CorpusText) -> Iterator[Table]:
    """Show the shares of each stage's rows by their role and by their unit.

    The *role* of a row is query or document. Its *unit* is the piece of text that it holds, such as a sentence.
    """
    rows: list[tuple[AnyCell, ...]] = []
    for view in text.views:
        stage = view.stage or NOTHING
        for role, share in (view.roles or {}).items():
            rows.append((stage, role, Cell(share, "{:.2%}")))
        # The record calls units pieces, and has their numbers of rows in place of shares.
        row_count_by_unit = view.pieces or {}
        total = sum(row_count_by_unit.values())
        for unit, row_count in row_count_by_unit.items():
            share_of_unit = row_count / total if total else 0.0
            rows.append((stage, unit, Cell(share_of_unit, "{:.2%}")))
    if rows:
        table = Table("Rows by role and unit", ("Stage", "Role or unit", "Share"), tuple(rows))
        yield table.with_words("Role or unit")
