"""An export in words: its size, the differences from its source, and the gains and losses of int8.

An *export* is a model in another format, such as ONNX, made from a *source*. In int8 its weights are quantised, which
makes it smaller and usually faster, and changes its outputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from limbeck.core import timing
from limbeck.core.blocks import NOTHING, Block, Layout, Notes, Paragraph, Table, counted
from limbeck.core.escaping import escape_markdown
from limbeck.core.exports import Differences, Export, Int8, Int8Latency
from limbeck.core.intervals import of_share
from limbeck.core.markdown import plain_table
from limbeck.export.formats import FORMATS
from limbeck.report.quality import speed_words

ExportRecord: TypeAlias = Mapping[str, Any] | Export
"""The record of an export, typed or as plain values."""
_SLOWER = "int8 is slower"
"""Beginning of the line that is shown as a warning."""
_SAME_SPEED = 0.03
"""Speeds that differ by no more than this share are called the same."""


def export_title(record: ExportRecord) -> str:
    """Return an export in a few words: `ONNX in float32, operator set 17`."""
    export = Export.read(record)
    # The format may be that of a plugin which is not installed here.
    title = FORMATS[export.format].title if export.format in FORMATS else export.format
    if export.dtype != "int8":
        title += f" in {export.dtype}"
    if export.opset:
        title += f", operator set {export.opset}"
    return title


def export_blocks(export: Export) -> Iterator[Block]:
    """Yield an export, its measurements, and the latencies of int8 as blocks."""
    yield Paragraph(f"{export.source} as {export_title(export)}")
    for line in export_lines(export):
        yield Notes((line,), warning=line.startswith(_SLOWER))
    if export.int8 is not None:
        yield latency_table(export.int8.latency)


def export_part(export: Export) -> str:
    """Return the section of a card on an export: its format, how far from its source, and what int8 gains or costs."""
    lines = [f"This folder holds {escape_markdown(export.source)} as {escape_markdown(export_title(export))}.", ""]
    lines += [f"- {escape_markdown(line)}" for line in export_lines(export)]
    if export.int8 is not None:
        lines += ["", plain_table(latency_table(export.int8.latency))]
    return "\n".join(lines)


def export_lines(record: ExportRecord) -> list[str]:
    """Return the measurements of an export, a plain sentence an entry."""
    export = Export.read(record)
    lines = []
    if export.int8 is None:
        lines.append(f"Weights: {export.megabytes:.1f} MB.")
    if export.documents:
        lines.append(f"Queries are encoded by {export.source}, documents by {export.documents}.")
    if export.found is not None:
        share = f"{export.found:.0%} of the sample texts"
        lines.append(f"As queries, {share} have their own document vector as nearest neighbour.")

    # In float32 the outputs differ from the source's only by rounding, so their quality needs no lines.
    lines.append(_largest_difference(export.differences))
    if export.dtype != "float32":
        # Decisions on a few sample texts would seem to contradict those on held-out rows, which count more.
        lines += _quality_lines(export.differences, with_decisions=export.development is None)
    if export.development is not None:
        lines.append(_held_out_line(export.development))
    if export.int8 is not None:
        lines += _int8_lines(export.int8, export.weight_bits)
    note = FORMATS[export.format].note(export.dtype) if export.format in FORMATS else None
    if note is not None:
        lines.append(note)
    if export.verified is not None:
        verified = export.verified
        lines.append(f"Verified in a fresh process on {verified.texts} texts in {verified.batches} batches.")
    return lines


def _largest_difference(differences: Differences) -> str:
    """Return a line with the largest difference in each output of the model, and the texts that were compared."""
    outputs = []
    for name, value in differences.largest.items():
        if value is None:
            outputs.append(f"none in {name}")
        else:
            outputs.append(f"{value:.2g} in {name} (largest value {differences.scale[name]:.2g})")
    # Anybody may have written the record, so that it may lack a number.
    texts = counted(differences.texts or 0, "sample text")
    batches = counted(differences.batches or 0, "batch")
    tokens = counted(differences.tokens or 0, "token")
    return f"Largest difference from the source, on {texts} in {batches} of up to {tokens}: {', '.join(outputs)}."


def _quality_lines(differences: Differences, *, with_decisions: bool) -> Iterator[str]:
    """Yield lines on the closeness of sentence vectors and of decisions to the source's, as far as it has them.

    Args:
        differences: The differences on sample texts.
        with_decisions: Give the decisions on these texts.
    """
    cosine = differences.cosine
    if cosine:
        yield f"Cosine with the source's vectors: {cosine['mean']:.4f} on average, {cosine['lowest']:.4f} at worst."
    if with_decisions and differences.equal_decisions is not None:
        yield (
            f"Decisions equal to the source's: {_share_of_equal(differences)}. The KL divergence of the "
            f"probabilities is {differences.mean_kl:.2g} nats."
        )


def _held_out_line(differences: Differences) -> str:
    """Return a line on the decisions on the labelled rows that the student's run did not train on."""
    rows = counted(differences.texts or 0, "held-out row")
    return (
        f"On {rows} of the run, decisions equal to the source's: {_share_of_equal(differences)}. The KL divergence of "
        f"the probabilities is {differences.mean_kl:.2g} nats."
    )


def _share_of_equal(differences: Differences) -> str:
    """Return the share of equal decisions with their number, such as `100.0% of 23 (95 %: 85.7% to 100.0%)`.

    The number is followed by the thing that is decided on, such as `words`, where that is not a text by itself. There
    is no interval where a text has several decisions, such as those on its words, since they are not independent.
    """
    share = differences.equal_decisions or 0.0
    words = f"{share:.1%}"
    # Older records lack the number of decisions.
    if not differences.decisions:
        return words
    words += f" of {differences.decisions:,.0f}"
    if differences.decided is not None:
        words += f" {differences.decided}"
    if differences.decisions != differences.texts:
        return words
    low, high = of_share(share, int(differences.decisions))
    return f"{words} (95 %: {low:.1%} to {high:.1%})"


def _int8_lines(int8: Int8, weight_bits: int | None) -> Iterator[str]:
    """Yield lines on the size of an int8 graph, on batches at which it is slower, and on its number of bits."""
    yield f"Size: {int8.megabytes['int8']:.1f} MB, float32 {int8.megabytes['float32']:.1f} MB."
    # Batches at which int8 was clearly slower; doubtful measurements are no reason to choose another format.
    slower = [row for row in int8.latency if row.speedup < 1 - _SAME_SPEED and _has_speed(row)]
    if slower:
        sizes = ", ".join(f"{_size_of(row)} ({1 / row.speedup:.2f}x slower)" for row in slower)
        yield f"{_SLOWER} than float32 here, in texts x tokens: {sizes}. Use --format onnx for such batches."
    busy = busy_line(int8.latency)
    if busy:
        yield busy
    if weight_bits == 7:
        yield (
            "The weights have 7 bits, because the processor that exported them has no VNNI instructions, without "
            "which sums of 8-bit weights could overflow."
        )
    else:
        yield (
            "The weights have 8 bits. On an x86 processor without VNNI instructions, their sums may overflow. To "
            "use the model on such a processor, export it there."
        )


def latency_table(latencies: Sequence[Int8Latency]) -> Table:
    """Lay out the latencies of float32 and int8, medians with the 10th and 90th percentile in brackets."""
    headings = ("Texts x tokens", "Rounds", "float32, ms (10th–90th)", "int8, ms (10th–90th)", "int8 is")
    rows = []
    for row in latencies:
        float32 = _milliseconds(row.float32_ms, row.float32_p10_ms, row.float32_p90_ms)
        int8 = _milliseconds(row.int8_ms, row.int8_p10_ms, row.int8_p90_ms)
        rows.append((_size_of(row), str(row.rounds), float32, int8, speed_of(row)))
    table = Table("", headings, tuple(rows), layout=Layout(collapsed=False))
    return table.with_words("Texts x tokens", "int8 is")


def _milliseconds(median: float, low: float | None, high: float | None) -> str:
    """Write a median and its range: `9.71 (3.26–9.9)`."""
    return f"{_three_digits(median)} ({_three_digits(low)}–{_three_digits(high)})"


def _three_digits(value: float | None) -> str:
    """Write a number in three digits; in more where its whole part has more."""
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def speed_of(row: Int8Latency) -> str:
    """Return the speed of int8 against float32 in words, and whether the machine was busy.

    It is a dash where the speed is not known; see `busy_line`.
    """
    if not _has_speed(row):
        words = NOTHING
    elif abs(row.speedup - 1) <= _SAME_SPEED:
        words = "as fast"
    else:
        words = speed_words(row.speedup)
    return f"{words}; busy machine" if _was_busy(row) else words


def _was_busy(row: Int8Latency) -> bool:
    """Return whether the machine was busy, so that the milliseconds are too long."""
    times = ((row.float32_p10_ms, row.float32_p90_ms), (row.int8_p10_ms, row.int8_p90_ms))
    return any(timing.is_unsteady(p10_ms, p90_ms, load=row.load, demand=row.demand) for p10_ms, p90_ms in times)


def busy_line(rows: Sequence[Int8Latency]) -> str:
    """Return a line that names the batches without a speed, and the reason; empty if all have one."""
    without_speed = [row for row in rows if not _has_speed(row)]
    if not without_speed:
        return ""
    sizes = ", ".join(_size_of(row) for row in without_speed)
    reasons = []
    advice = "Export again on an idle machine"
    if any(row.rounds < timing.FEWEST_ROUNDS for row in without_speed):
        reasons.append(f"there were fewer than {timing.FEWEST_ROUNDS} rounds")
        advice += ", with a larger --seconds"
    if any(_was_busy(row) for row in without_speed):
        reasons.append("the times differ widely, or more programs ran than the machine has cores")
    if any(row.rounds >= timing.FEWEST_ROUNDS and _is_doubtful(row) for row in without_speed):
        reasons.append("the median ratio and the ratio of medians differ")
    return (
        f"No speedup is given ({NOTHING}) at {sizes} tokens, because the machine was too busy to measure it: "
        f"{', or '.join(reasons)}. {advice}."
    )


def _size_of(row: Int8Latency) -> str:
    """Return the size of the measured batch as texts x tokens: `32 x 128`."""
    return f"{row.batch} x {row.length}"


def _is_doubtful(row: Int8Latency) -> bool:
    """Return whether the machine was too busy, or the rounds too few, to trust the speedup."""
    return timing.is_doubtful(row.float32_ms, row.int8_ms, row.speedup, row.rounds)


def _has_speed(row: Int8Latency) -> bool:
    """Return whether the speedup can be trusted: the rounds agree with each other, and the machine was not busy.

    On a busy machine other programs may slow down one of the two graphs more often. Between a teacher and its student
    the shapes bound the speedup, so that an impossible one is known. The speedup of int8 has no bound.
    """
    return not _is_doubtful(row) and not _was_busy(row)
