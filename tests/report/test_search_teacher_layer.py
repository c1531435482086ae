"""The picture of a search of teacher layers shows the numbers of its record."""

import pytest

from limbeck.report.search_teacher_layer_figures import teacher_layer_picture
from tests.support.reports import layer_search_record


@pytest.fixture
def record():
    return layer_search_record()


def test_the_picture_has_a_line_for_every_rung(record):
    picture = teacher_layer_picture(record)
    lines = {line.get_label(): line for line in picture.figure.axes[0].get_lines()}
    assert list(lines["after 10 steps"].get_xdata()) == [10, 11, 12]
    assert list(lines["after 10 steps"].get_ydata()) == [40.0, 39.0, 41.0]
    assert list(lines["after 30 steps"].get_xdata()) == [10, 12]
    star = lines["recommended"]
    assert list(star.get_xdata()) == [10] and list(star.get_ydata()) == [50.0]
    assert "after 30 steps layer 10 50.00, layer 12 49.00" in picture.description
    assert picture.description.endswith("Recommended: layer 10.")


def test_scores_that_are_none_are_left_out(record):
    record["layers"][2]["scores"] = [{"step": 10, "score": None, "agreement": None, "explained": 3.0}]
    lines = {line.get_label(): line for line in teacher_layer_picture(record).figure.axes[0].get_lines()}
    assert list(lines["after 10 steps"].get_xdata()) == [10, 12]
