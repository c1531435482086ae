"""The picture of attention maps: the teacher's to the left of the student's, one colour scale for all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from limbeck.inspection import MEAN_HEAD, AttentionMap, AttentionMaps
from limbeck.report.drawing import COLOUR_MAP, Picture, short_name

_NAMED_TOKENS = 40


def attention_picture(found: AttentionMaps) -> Picture:
    """Draw the attention maps of a sentence; every row of a map is a token that looks."""
    panels = [[ours] if theirs is None else [theirs, ours] for ours, theirs in found.pairs]
    beside = 1 if len(panels) <= 2 else 2 if len(panels) <= 8 else 3
    rows, columns = math.ceil(len(panels) / beside), beside * len(panels[0])
    named = len(found.tokens) <= _NAMED_TOKENS
    side = max(2.4, 0.16 * len(found.tokens)) if named else 3.2
    figure = Figure(figsize=(side * columns + 1.8, (side + 0.3) * rows + 1.2), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    shown = [attention for pair in panels for attention in pair]
    scale = Normalize(0, max(max(row) for attention in shown for row in attention.values))
    image = None
    for place, (axes, attention) in enumerate(zip(grid.flat, shown, strict=False)):
        image = axes.imshow(attention.values, cmap=COLOUR_MAP, norm=scale, interpolation="nearest")
        axes.set_title(_name(attention), fontsize=9)
        _label(axes, found.tokens if named else None, left=place % columns == 0, below=place + columns >= len(shown))
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_visible(False)
    title = f"Attention of {short_name(found.student)}"
    if found.teacher is not None:
        title += f" (student) beside {short_name(found.teacher)} (teacher)"
    figure.suptitle(title, fontsize=10)
    assert image is not None
    figure.colorbar(image, ax=list(grid.flat), label="attention (a row sums to 1)", shrink=min(1.0, 2 / rows))
    names = "; ".join(_name(attention) for attention in shown)
    description = (
        f"Attention maps, a row for each token that looks and a column for each that is looked at: {names}. "
        f"Tokens: {' '.join(found.tokens)}"
    )
    return Picture(figure, title, description)


def _name(attention: AttentionMap) -> str:
    head = "mean of heads" if attention.head == MEAN_HEAD else f"head {attention.head}"
    owner = "" if attention.role == "model" else f"{attention.role}, "
    return f"{owner}layer {attention.layer}, {head}"


def _label(axes: Axes, tokens: Sequence[str] | None, *, left: bool, below: bool) -> None:
    """Name the tokens at the outer panels; in the others their names would take the room of the maps."""
    if tokens is None:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    else:
        axes.set_xticks(range(len(tokens)), tokens if below else [""] * len(tokens), rotation=90, fontsize=7)
        axes.set_yticks(range(len(tokens)), tokens if left else [""] * len(tokens), fontsize=7)
    unit = " (token number)" if tokens is None else ""
    if below:
        axes.set_xlabel(f"is looked at{unit}", fontsize=8)
    if left:
        axes.set_ylabel(f"looks{unit}", fontsize=8)
