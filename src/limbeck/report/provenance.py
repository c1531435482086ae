"""How a result was made: versions, commit, hardware, seeds, text."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from limbeck.core import records, studies
from limbeck.core.blocks import AnyCell, Block, Cell, Code, Facts, Table, duration, number
from limbeck.report.names import without_path

_DIRTY = "-dirty"


def run_provenance(run: records.Run, folder: Path) -> Iterator[Block]:
    """Describe how a run was made, and the text of its stages."""
    seeds = [f"{name} {seed}" for name, seed in run.seeds.items()]
    times = [f"{name} {duration(seconds)}" for name, seconds in run.timings.items()]
    facts = made_by(run, folder, seeds=", ".join(seeds))
    facts["Peak memory"] = gibibytes(run.peak_memory_bytes, 2)
    facts["Peak memory on the device"] = gibibytes(run.peak_device_memory_bytes, 2)
    facts["Time"] = ", ".join(times)
    yield facts_block(facts)
    if run.corpus is not None and run.corpus.views:
        yield _fingerprints(run.corpus.views)
        yield from _mixtures(run, run.corpus)
        yield from rows_by_role_and_unit(run.corpus)


def comparison_provenance(comparison: studies.Comparison, folder: Path) -> Iterator[Block]:
    """Describe how a comparison was made, and what it is bound to."""
    seeds = ", ".join(map(str, comparison.plan.seeds))
    yield facts_block(made_by(comparison, folder, seeds))
    if comparison.fixed:
        yield identity_block(comparison.fixed)


def search_provenance(search: studies.Search, folder: Path) -> Iterator[Block]:
    """Describe how a search was made, and what it is bound to."""
    seed = search.identity.get("seed")
    seeds = "" if seed is None else f"seed {seed}"
    yield facts_block(made_by(search, folder, seeds))
    if search.identity:
        yield identity_block(search.identity)


def made_by(record: records.Made, folder: Path, seeds: str = "") -> dict[str, str | None]:
    """Return the facts of a result's making that every record has, by name; empty or None where one is not recorded."""
    hardware = record.hardware
    # git's mark of a working tree that differs from the commit.
    commit = record.git_commit or ""
    if commit.endswith(_DIRTY):
        commit = f"{commit.removesuffix(_DIRTY)} with local changes"
    packages = [f"{name} {version}" for name, version in record.versions.items() if name != "limbeck"]
    processor = hardware.cpu or ""
    if hardware.cores is not None:
        cores = f"{hardware.cores} cores"
        processor = f"{processor}, {cores}" if processor else cores
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
        "Processor": processor,
        "Threads": "" if hardware.threads is None else str(hardware.threads),
        "Memory": gibibytes(hardware.memory_bytes, 1),
        "Platform": hardware.platform,
    }


def facts_block(facts: dict[str, str | None]) -> Facts:
    """Return the facts that are known as a block."""
    return Facts(tuple((name, value) for name, value in facts.items() if value))


def identity_block(identity: dict[str, object]) -> Code:
    """Return the settings that a result is bound to as a block."""
    return Code("Identity", yaml.safe_dump(identity, sort_keys=False, allow_unicode=True), "yaml")


def gibibytes(size: float | None, digits: int) -> str:
    """Return a size in bytes as GiB; empty where it is not known."""
    if size is None:
        return ""
    return f"{size / 2**30:.{digits}f} GiB"


def _fingerprints(views: list[records.CorpusView]) -> Table:
    headings = ("Stage", "Unit", "Longest block, tokens", "Blocks", "Tokens", "Fingerprint")
    rows = tuple(map(_fingerprint_cells, views))
    return Table("Text fingerprints", headings, rows, words=(1, 5))


def _fingerprint_cells(view: records.CorpusView) -> tuple[Cell, ...]:
    return (
        Cell(view.stage or None),
        Cell(view.unit or None),
        Cell(view.length, "{:.0f}"),
        number(view.blocks),
        number(view.tokens),
        Cell(view.fingerprint or None),
    )


def _mixtures(run: records.Run, text: records.CorpusText) -> Iterator[Block]:
    """Show the shares of mixed sources, a table a stage, with the rows that finished stages drew from each."""
    rows_drawn_by_stage = {stage.name: stage.drawn.rows for stage in run.stages if stage.drawn is not None}
    for stage_name, rule in text.mixed.items():
        # A stage whose blocks grow reads the text at several lengths, each with shares of its own.
        views = [view for view in text.views if view.stage == stage_name]
        headings = ["Share"]
        if len(views) > 1:
            headings = [f"Share at {view.length} tokens" for view in views]
        shares_by_view = [view.shares or {} for view in views]
        # The rows drawn are counted over all lengths.
        rows_drawn = rows_drawn_by_stage.get(stage_name, {})

        rows: list[tuple[AnyCell, ...]] = []
        for source in shares_by_view[0] if shares_by_view else ():
            share_cells = [Cell(shares.get(source), "{:.2%}") for shares in shares_by_view]
            rows.append((without_path(source), *share_cells, number(rows_drawn.get(source))))
        caption = f"Sources of {stage_name}, mixed by {rule}"
        yield Table(caption, ("Source", *headings, "Rows drawn"), tuple(rows), folded=True)


def rows_by_role_and_unit(text: records.CorpusText) -> Iterator[Block]:
    """Show the shares of rows by their role and by their unit, a table a stage."""
    for view in text.views:
        rows: list[tuple[AnyCell, ...]] = []
        for role, share in (view.roles or {}).items():
            rows.append((role, Cell(share, "{:.2%}")))
        # Roles are recorded as shares, units as numbers of rows.
        row_count_by_unit = view.pieces or {}
        total = sum(row_count_by_unit.values()) or 1
        for unit, count in row_count_by_unit.items():
            rows.append((unit, Cell(count / total, "{:.2%}")))
        if rows:
            yield Table(f"Rows of {view.stage}, by role and unit", ("Kind", "Share"), tuple(rows))
