"""A cut vocabulary in words and tables: sizes before and after, what texts cost, and the card of the model."""

from collections.abc import Iterator
from pathlib import Path

from limbeck.core.blocks import Block, Cell, Layout, Notes, Paragraph, Table, counted, number, to_csv
from limbeck.core.files import atomic_text, writing
from limbeck.core.markdown import escaped_blocks
from limbeck.core.paths import MODEL_CARD
from limbeck.core.trims import OutputDifferences, SourceCosts, Trim
from limbeck.report.card import fields_without_results, front_matter, new_heading, own_card_and_hub_name


def trim_blocks(trim: Trim) -> Iterator[Block]:
    """Yield sizes before and after, what texts cost by source, and the differences of outputs."""
    yield Paragraph(
        f"{trim.source} with {trim.pieces:,} of its {trim.pieces_before:,} pieces ({trim.kind}; {trim.staying:,} "
        "always stay)"
    )
    yield _sizes(trim)
    if any(costs.texts for costs in trim.costs):
        yield _costs(trim)
    if trim.differences is not None:
        yield Notes(tuple(_difference_lines(trim.differences)))


def _sizes(trim: Trim) -> Table:
    """The table of sizes."""
    rows = (
        ("pieces", number(trim.pieces_before), number(trim.pieces)),
        ("parameters", number(trim.parameters_before), number(trim.parameters)),
        ("megabytes", number(trim.megabytes_before, 1), number(trim.megabytes, 1)),
    )
    return Table("Size", ("", "before", "after"), rows, layout=Layout(collapsed=False))


def _costs(trim: Trim) -> Table:
    """The table of what held-out texts cost, with a row for each source."""
    rows = []
    for costs in trim.costs:
        tokens_before = None
        tokens_after = None
        # A source of few texts has none that is held out.
        if costs.texts:
            tokens_before = costs.tokens_before / costs.texts
            tokens_after = costs.tokens_after / costs.texts
        cells = (
            costs.source,
            number(costs.counted),
            number(costs.texts),
            number(tokens_before, 1),
            number(tokens_after, 1),
            _share_cut_more(costs),
        )
        rows.append(cells)
    headings = (
        "source",
        "texts counted",
        "held out",
        "tokens a text\nbefore",
        "tokens a text\nafter",
        "words cut into more pieces",
    )
    return Table("What held-out texts cost", headings, tuple(rows), layout=Layout(collapsed=False))


def _share_cut_more(costs: SourceCosts) -> Cell:
    """The share of words that are cut into more pieces than before."""
    if costs.words == 0:
        return Cell(None)
    return Cell(100 * costs.words_cut_more / costs.words, "{:.2f} %")


def _difference_lines(differences: OutputDifferences) -> Iterator[str]:
    """Yield a sentence on the held-out texts that both tokenizers cut alike, and one on the others."""
    if differences.same_texts:
        largest = ", ".join(f"{value:g} in {name}" for name, value in differences.same.items())
        yield (
            f"{differences.same_texts:,} of {counted(differences.texts, 'held-out text')} are cut as before: the "
            f"largest difference is {largest}."
        )
    # Texts that are cut differently have other tokens. So only outputs for a whole text can be compared, such as its
    # vector, which not every model has.
    other_texts = differences.texts - differences.same_texts
    if differences.others:
        largest = ", ".join(f"{value:.3g} in {name}" for name, value in differences.others.items())
        yield f"{counted(other_texts, 'text')} are cut differently: the largest difference is {largest}."
    elif other_texts:
        yield f"{counted(other_texts, 'text')} are cut differently, so that their tokens cannot be compared."


def costs_csv(trim: Trim) -> str:
    """The costs of texts as CSV, a row for each source."""
    return to_csv(list(SourceCosts.model_fields), [costs.to_dict() for costs in trim.costs])


def write_trim_card(located: str, folder: Path, trim: Trim) -> None:
    """Write the card of a model whose vocabulary was cut: the model's own, with a section on the vocabulary.

    Args:
        located: Folder or name of the whole model, as `locate_model` returns it.
        folder: The smaller model's folder.
        trim: Its record.
    """
    # A model without a card of its own gets a new one: a heading, and the model's name on the Hub if it is from there.
    own_card, hub_name = own_card_and_hub_name(located)
    if own_card is not None:
        text = own_card.text.strip()
        # The scores in the card are those of the whole vocabulary.
        fields = fields_without_results(own_card)
    else:
        text = new_heading(trim.source)
        fields = {} if hub_name is None else {"base_model": hub_name}
    parts = [f"{front_matter(fields)}\n{text}", "## Vocabulary", *escaped_blocks(trim_blocks(trim), figures="")]
    path = folder / MODEL_CARD
    with writing(path):
        atomic_text(path, "\n\n".join(parts) + "\n")
