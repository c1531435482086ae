"""Notes on a comparison: the rule of its ranks, untrained baselines, meaningless scores, combinations left out."""

from collections.abc import Iterator, Sequence

from limbeck.core.blocks import number, rounded
from limbeck.core.studies import ComparedRow, Comparison, ComparisonCell, ComparisonSummary, MainFigure
from limbeck.report.scores import is_meaningless, one_answer_lines

_CHANCE = "With one seed, differences between rows may be due to chance, so nothing is ranked."
_RANKS = (
    "Ranked by {title}: a rank is one more than the number of rows that are better beyond chance, by the 95 % interval "
    "of the differences per seed (Student's t). Rows of rank 1, in bold, cannot be told apart from the best."
)


def has_one_seed(summary: ComparisonSummary) -> bool:
    """Return whether no row has more than one finished seed; False where no run has finished."""
    # `finished` counts the runs of a row that are done; each run has another seed.
    seed_counts = [row.finished for block in summary.blocks for row in block.rows]
    return max(seed_counts, default=0) == 1


def main_digits(main: MainFigure) -> int:
    """Return the number of decimals of the main figure: one for scores in percent, else as its measure has it."""
    is_held_out_measure = main.kind == "held_out"
    if is_held_out_measure and main.digits is not None:
        return main.digits
    return 1


def range_words(values: Sequence[float], digits: int) -> str:
    """Return the lowest and the highest value in words, `70.1 to 73.4`, or one value if both are printed alike."""
    return _low_to_high(rounded(min(values), digits), rounded(max(values), digits))


def _low_to_high(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def methods_notes(comparison: Comparison) -> list[str]:
    """Return the notes on ranks, meaningless scores and combinations left out, then those of the record."""
    summary = comparison.summary
    notes: list[str] = []
    if summary.main is not None:
        notes += _ranking_notes(summary, summary.main)
    named_rows = [(row.label, row) for block in summary.blocks for row in block.rows]
    notes += one_answer_lines(summary.columns, named_rows)
    for variant in comparison.impossible:
        notes.append(f"Left out: {variant.label} on {variant.student}: {variant.reason}")
    notes += early_end_lines(comparison.cells)
    return notes + summary.notes


def early_end_lines(cells: Sequence[ComparisonCell]) -> list[str]:
    """Return a line for each run that was ended early: it has read fewer tokens than the plan gives to each run."""
    return [f"{cell.title}: {cell.ended_early}." for cell in cells if cell.ended_early is not None]


def one_seed_lines(summary: ComparisonSummary, main: MainFigure) -> Iterator[str]:
    """Yield the warning of a single seed, then compare the trained rows with the rows that train nothing.

    A student that was not trained is the baseline that every method has to beat. Meaningless scores are left out.
    """
    yield _CHANCE
    digits = main_digits(main)
    for block in summary.blocks:
        trained_scores = []
        baselines = []
        for row in block.rows:
            if row.main is None or is_meaningless(main.key, row):
                continue
            if _trains_nothing(row):
                baselines.append((row.label, row.main.mean))
            else:
                trained_scores.append(row.main.mean)
        if not trained_scores:
            continue
        for label, score in baselines:
            yield (
                f"On {block.student}, `{label}`, which trains nothing, scored {rounded(score, digits)}; the trained "
                f"methods scored {range_words(trained_scores, digits)}."
            )


def setting_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the settings that all runs share, and the meaning of the deviations."""
    summary = comparison.summary
    plan = comparison.plan
    seeds = ", ".join(map(str, plan.seeds))
    yield f"Teacher {summary.teacher.title} ({summary.teacher.shape})."
    yield f"{plan.budget.tokens:,} tokens per run from a corpus of {comparison.corpus.tokens:,}; seeds {seeds}."
    if summary.preset is not None:
        yield f"Task scores with the preset '{summary.preset}', in percent."

    # Methods may stop at different steps of the same budget.
    token_counts = _token_counts_of_trained_runs(summary)
    if token_counts:
        tokens = _low_to_high(str(number(min(token_counts))), str(number(max(token_counts))))
        yield f"Runs read {tokens} tokens."
    if _has_figure_of_several_runs(summary):
        # The score of one distilled student can still be of several runs: it may be fine-tuned with several seeds.
        repetitions = "fine-tuning runs" if has_one_seed(summary) else "distillation seeds"
        yield f"± is the sample standard deviation over {repetitions}."


def _ranking_notes(summary: ComparisonSummary, main: MainFigure) -> Iterator[str]:
    """Yield the rule of the ranks, or the reason for their absence."""
    # Ranks compare differences between seeds, so each of two rows needs several. Here no row has.
    if has_one_seed(summary):
        yield from one_seed_lines(summary, main)
        yield f"Give the plan three or more `seeds` to rank the rows by {main.title}."
        return
    # Only rows of several seeds have a place in the ranking, and only those whose score has a meaning.
    rows = [row for block in summary.blocks for row in block.rows]
    has_ranked_row = any(row.place is not None for row in rows)
    has_meaningless_row = any(is_meaningless(main.key, row) and row.finished > 1 for row in rows)
    if not has_ranked_row:
        condition = "several seeds and a score that has a meaning" if has_meaningless_row else "several seeds"
        yield f"Fewer than two rows have {condition}, so nothing is ranked."
        return
    yield _RANKS.format(title=main.title)
    if has_meaningless_row:
        yield f"Rows whose {main.title} is meaningless (‡) are not ranked."


def _trains_nothing(row: ComparedRow) -> bool:
    """Return whether the students of a row are as initialised: its finished runs read no tokens."""
    # Without a finished run, nothing is known.
    if row.tokens is None or not row.tokens.runs:
        return False
    # One count of tokens for each finished run.
    return not any(row.tokens.runs)


def _token_counts_of_trained_runs(summary: ComparisonSummary) -> list[float]:
    """Return the tokens that each run read; runs without training, which read none, are left out."""
    token_counts: list[float] = []
    for block in summary.blocks:
        for row in block.rows:
            if row.tokens is not None:
                token_counts += [count for count in row.tokens.runs if count]
    return token_counts


def _has_figure_of_several_runs(summary: ComparisonSummary) -> bool:
    """Return whether any figure of a row is a mean over several runs."""
    for block in summary.blocks:
        for row in block.rows:
            for figure in row.figures.values():
                if figure is not None and len(figure.runs) > 1:
                    return True
    return False
