"""Sections of the inspections in a folder."""

from collections.abc import Iterator

from limbeck.core.blocks import Block, Notes, Paragraph, counted
from limbeck.report.inspection_figures import (
    contribution_figure,
    divergence_figure,
    map_figures,
    phrases_figure,
    similarity_figure,
)
from limbeck.report.sections import Summary, section, summary
from limbeck.report.subjects import InspectionFolder

_MOST_CELLS = 16_000
"""Of all attention maps of a page; more would make it slow."""
_MOST_TOKENS = 100


@summary(InspectionFolder)
def inspection_summary(inspections: InspectionFolder) -> Summary:
    """Describe inspections in short."""
    return Summary("inspection", "finished", ", ".join(inspections.results))


@section(InspectionFolder, "Damaged files")
def damaged_files(inspections: InspectionFolder) -> Iterator[Block]:
    """Warn of files that could not be read."""
    yield Notes(inspections.problems, warning=True)


@section(InspectionFolder, "Attention")
def attention(inspections: InspectionFolder) -> Iterator[Block]:
    """Draw the divergence of attention, then the maps of a sentence as far as a page can hold them."""
    result = inspections.results.get("attention")
    if result is None:
        return
    if result["divergence"] is not None:
        yield divergence_figure(result["divergence"])
    maps = result["maps"]
    tokens = [str(token) for token in maps["tokens"]]
    if len(tokens) > _MOST_TOKENS:
        line = f"The maps of {len(tokens)} tokens are too large for a page; `limbeck inspect --output` draws them."
        yield Notes((line,))
        return

    yield Paragraph(f"Maps of the sentence: {' '.join(tokens)}")
    figures = map_figures(maps)
    most = max(2, _MOST_CELLS // max(1, len(tokens) ** 2))
    yield from figures[:most]
    if len(figures) > most:
        left_out = counted(len(figures) - most, "more map")
        yield Notes((f"{left_out} not shown; `limbeck inspect --output` draws all.",))


@section(InspectionFolder, "Similarity of layers")
def similarity(inspections: InspectionFolder) -> Iterator[Block]:
    """Draw the similarity of layers."""
    if "similarity" in inspections.results:
        yield similarity_figure(inspections.results["similarity"])


@section(InspectionFolder, "Contribution of layers")
def contribution(inspections: InspectionFolder) -> Iterator[Block]:
    """Draw how much each layer keeps of its input."""
    if "contribution" in inspections.results:
        yield contribution_figure(inspections.results["contribution"])


@section(InspectionFolder, "Phrases")
def phrases(inspections: InspectionFolder) -> Iterator[Block]:
    """Draw what each layer knows about phrases."""
    if "phrases" in inspections.results:
        yield phrases_figure(inspections.results["phrases"])
