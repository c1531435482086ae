"""Pictures of what an inspection found, from its results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from limbeck.inspection import AttentionDivergence, Contribution, LayerSimilarity, PhraseClustering
from limbeck.report.drawing import Line, Picture, draw_heat, draw_lines, heat_figure, label_cells, short_name

ROLES = ("student", "teacher")


def phrase_picture(found: PhraseClustering) -> Picture:
    """Draw the normalised mutual information of each layer, one line a model, with its deviation over the seeds."""
    labels = name_roles([model.name for model in found.models])
    lines = [Line(label, 0, model.means, model.deviations) for label, model in zip(labels, found.models, strict=True)]
    title = f"Phrase clustering: {found.clusters} clusters of {sum(found.labels.values()):,} spans"
    figure = draw_lines(lines, title=title, label="normalised mutual information")
    figure.axes[0].set_ylim(bottom=0)
    described = ". ".join(line.describe(max) for line in lines)
    return Picture(figure, title, f"Normalised mutual information of clusters and chunk labels. {described}.")


def contribution_picture(found: Sequence[Contribution]) -> Picture:
    """Draw the mean cosine between the input and the output of each layer, one line a model."""
    labels = name_roles([model.name for model in found])
    lines = [Line(label, 1, model.cosines) for label, model in zip(labels, found, strict=True)]
    title = "How much each layer keeps of its input"
    figure = draw_lines(lines, title=title, label="cosine of input and output (low: changes much)")
    described = ". ".join(line.describe(min) for line in lines)
    return Picture(figure, title, f"Mean cosine between the input and the output of each layer. {described}.")


def similarity_picture(found: LayerSimilarity) -> Picture:
    """Draw the similarity of every pair of layers as a heat map from 0 to 1."""
    values = np.array(found.values)
    title = "Similarity of layers (linear CKA)"
    figure = heat_figure(*values.shape)
    axes = figure.subplots()
    image = draw_heat(axes, values, Normalize(0, 1))
    label_cells(axes, range(values.shape[1]), range(values.shape[0]))
    _name_axes(axes, found.student, found.teacher)
    axes.set_title(title, fontsize=11)
    figure.colorbar(image, ax=axes, label="linear CKA")
    nearest = "; ".join(
        f"student layer {layer} and teacher layer {near} ({found.values[layer][near]:.2f})"
        for layer, near in enumerate(found.nearest)
    )
    described = f"Linear CKA of the layers of {short_name(found.student)} (student) and {short_name(found.teacher)}"
    return Picture(figure, title, f"{described} (teacher). Most alike: {nearest}.")


def divergence_picture(found: AttentionDivergence) -> Picture:
    """Draw the mean divergence of every pair of layers and, where heads are compared, of each head, on one scale.

    The heads of a student layer are shown against the teacher layer that is nearest to it.
    """
    means = np.array(found.means)
    students, teachers = means.shape
    heads = np.array([found.values[s][near - 1] for s, near in enumerate(found.nearest)])
    drawn = np.concatenate([means.ravel(), heads.ravel()])
    scale = Normalize(0, max(float(drawn[np.isfinite(drawn)].max(initial=0.0)), 1e-6))
    title = "Divergence of attention, KL(teacher ‖ student)"
    widths = [teachers, heads.shape[1]] if found.by_head else [teachers]
    figure = heat_figure(students, sum(widths) + (2 if found.by_head else 0))
    panels = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    image = draw_heat(panels[0], means, scale)
    label_cells(panels[0], range(1, teachers + 1), range(1, students + 1))
    _name_axes(panels[0], found.student, found.teacher)
    panels[0].set_title("mean over heads" if found.by_head else "maps averaged over heads", fontsize=10)
    if found.by_head:
        draw_heat(panels[1], heads, scale)
        label_cells(
            panels[1], range(1, heads.shape[1] + 1), [f"{s} : {t}" for s, t in enumerate(found.nearest, start=1)]
        )
        panels[1].set_xlabel("head")
        panels[1].set_ylabel("student : nearest teacher")
        panels[1].set_title("each head, nearest layers", fontsize=10)
    figure.suptitle(title, fontsize=11)
    figure.colorbar(image, ax=list(panels), label="nats (0: alike)")
    words = "; ".join(
        f"student layer {layer} to teacher layer {near} ({means[layer - 1, near - 1]:.2f})"
        for layer, near in enumerate(found.nearest, start=1)
    )
    described = f"Mean divergence, in nats, of the attention of {short_name(found.student)} (student) from that of "
    return Picture(figure, title, f"{described}{short_name(found.teacher)} (teacher). Nearest: {words}.")


def name_roles(names: Sequence[str]) -> list[str]:
    """Return what to call one model, or a student and a teacher."""
    if len(names) == 1:
        return [short_name(names[0])]
    return [f"{role}: {short_name(name)}" for role, name in zip(ROLES, names, strict=True)]


def _name_axes(axes: Axes, student: str, teacher: str) -> None:
    """Name the layers' owners: the teacher's are the columns."""
    one = student == teacher
    axes.set_xlabel(f"layer of {short_name(teacher)}" if one else f"teacher layer ({short_name(teacher)})")
    axes.set_ylabel(f"layer of {short_name(student)}" if one else f"student layer ({short_name(student)})")
