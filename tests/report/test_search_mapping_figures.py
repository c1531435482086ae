"""The pictures of a mapping search show the numbers of its record, at the right generations."""

import warnings

import numpy as np
import pytest

from limbeck.report.search_mapping_figures import distribution_picture, evolution_picture, mapping_pictures
from tests.support.reports import mapping_search_record


def draw(picture):
    """Draw it, as saving does, so that ticks and labels are what a reader sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture.figure.canvas.draw()
    return picture.figure.axes


def ticks(axes):
    low, high = axes.get_xlim()
    shown = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    return {label.get_text(): float(place) for place, label in shown if low <= place <= high}


def test_the_evolution_has_every_generation_and_member():
    [axes] = draw(evolution_picture(mapping_search_record()))
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines["highest"].get_xdata()) == [1, 2] and list(lines["highest"].get_ydata()) == [81.41, 82.02]
    assert list(lines["mean, with deviation"].get_ydata()) == [80.16, 81.715]
    assert list(lines["lowest"].get_ydata()) == [78.91, 81.41]
    dots = sorted(value for line in axes.get_lines() if line.get_marker() == "." for value in line.get_ydata())
    assert dots == pytest.approx([78.91, 81.41, 81.41, 82.02])
    assert ticks(axes) == {"1": 1.0, "2": 2.0}


def test_the_band_is_a_deviation_wide():
    [axes] = draw(evolution_picture(mapping_search_record()))
    [band] = axes.collections
    edges = band.get_paths()[0].vertices
    at_first = edges[np.isclose(edges[:, 0], 1), 1]
    assert (at_first.min(), at_first.max()) == pytest.approx((80.16 - 1.25, 80.16 + 1.25))


def test_every_score_has_its_own_panel_of_generations():
    panels = draw(distribution_picture(mapping_search_record()))
    assert [axes.get_title() for axes in panels] == ["fitness", "sst2", "squad"]
    squad = panels[2]
    dots = [list(line.get_ydata()) for line in squad.get_lines() if line.get_marker() == "."]
    assert dots == [[75.82, 72.82], [76.04, 75.82]]
    assert ticks(squad) == {"1": 1.0, "2": 2.0}
    # Whiskers reach the extremes of each generation.
    reached = {value for line in squad.get_lines() for value in np.round(line.get_ydata(), 6)}
    assert {72.82, 75.82, 76.04} <= reached


def test_one_score_is_the_fitness_and_needs_no_second_panel():
    found = mapping_search_record()
    found["scores"] = ["sst2"]
    for candidate in found["candidates"]:
        candidate["scores"] = {"sst2": candidate["fitness"]}
    assert [axes.get_title() for axes in draw(distribution_picture(found))] == ["fitness"]


def test_many_scores_are_laid_out_in_rows():
    found = mapping_search_record()
    found["scores"] = list("abcd")
    for candidate in found["candidates"]:
        candidate["scores"] = dict.fromkeys("abcd", candidate["fitness"])
    panels = draw(distribution_picture(found))
    assert [axes.get_title() for axes in panels if axes.get_visible()] == ["fitness", *"abcd"]


def test_pictures_say_what_they_show():
    pictures = mapping_pictures(mapping_search_record())
    assert "generation 2: highest 82.02, mean 81.72, lowest 81.41" in pictures["evolution"].description
    assert "sst2: medians 86.00, 87.50" in pictures["distribution"].description


def test_a_single_member_and_a_single_generation_can_be_drawn():
    found = mapping_search_record()
    found["generations"] = found["generations"][:1]
    found["generations"][0]["members"] = found["generations"][0]["members"][:1]
    for picture in mapping_pictures(found).values():
        draw(picture)


def test_nothing_is_drawn_of_nothing():
    assert mapping_pictures(mapping_search_record() | {"generations": []}) == {}
