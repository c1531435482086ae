"""Sections of the inspections in a folder; an *inspection* is a measurement of a model's layers, as of attention."""

from collections.abc import Iterator

from limbeck.core.blocks import Block, Notes
from limbeck.inspection.results import read_result
from limbeck.report.inspection_figures import inspection_pictures
from limbeck.report.sections import Summary, section, summary
from limbeck.report.subjects import InspectionFolder

_MOST_CELLS = 50_000
"""Most cells of all attention maps together, tokens x tokens in each; more would make a page slow."""


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
    """Draw the maps of a sentence, unless they are too large, and the divergence of attention."""
    if "attention" not in inspections.results:
        return
    result = read_result("attention", inspections.results["attention"])
    pictures = inspection_pictures("attention", result)
    maps = result["maps"]
    token_count = len(maps.tokens)
    map_count = len(maps.pairs)
    if maps.teacher is not None:
        # Each map of the student has one of the teacher beside it.
        map_count *= 2
    if map_count * token_count**2 > _MOST_CELLS:
        # Pictures are named by the end of their file's name, which is empty for the maps. The other picture, if there
        # is one, is of the divergence.
        del pictures[""]
        sizes = f"{map_count} maps of {token_count} tokens"
        yield Notes((f"{sizes} are too large for a page; `limbeck inspect --output` draws them.",))
    yield from pictures.values()


@section(InspectionFolder, "Similarity of layers")
def similarity(inspections: InspectionFolder) -> Iterator[Block]:
    """Draw the similarity of layers."""
    yield from _single_figure(inspections, "similarity")


@section(InspectionFolder, "Contribution of layers")
def contribution(inspections: InspectionFolder) -> Iterator[Block]:
    """Draw how much each layer keeps of its input."""
    yield from _single_figure(inspections, "contribution")


@section(InspectionFolder, "Phrases")
def phrases(inspections: InspectionFolder) -> Iterator[Block]:
    """Draw what each layer knows about phrases."""
    yield from _single_figure(inspections, "phrases")


def _single_figure(inspections: InspectionFolder, name: str) -> Iterator[Block]:
    """Yield the figure of an inspection that has only one, if it was made."""
    if name in inspections.results:
        yield from inspection_pictures(name, read_result(name, inspections.results[name])).values()
