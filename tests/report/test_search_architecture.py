"""The picture of a search of shapes shows the numbers of its record."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from limbeck.report.search_architecture_figures import architecture_picture
from tests.support.reports import searched_shape as shape
from tests.support.reports import shape_search_record


@pytest.fixture
def record():
    return shape_search_record()


def test_the_picture_has_every_trained_shape_the_front_and_the_limit(record):
    picture = architecture_picture(record)
    lines = {line.get_label(): line for line in picture.figure.axes[0].get_lines()}
    assert list(lines["shape"].get_xdata()) == pytest.approx([0.3, 0.6, 0.4])
    assert list(lines["shape"].get_ydata()) == pytest.approx([0.5, 0.2, 0.6])
    assert list(lines["front"].get_xdata()) == pytest.approx([0.3, 0.6])
    assert list(lines["best reward"].get_xdata()) == pytest.approx([0.6])
    assert list(lines["limit"].get_xdata()) == [1.0, 1.0]
    assert "3x384, 12 heads, FFN 1536: 0.300 of the latency, loss 0.5000" in picture.description
    record["limits"]["latency_share"] = None
    labels = [line.get_label() for line in architecture_picture(record).figure.axes[0].get_lines()]
    assert "limit" not in labels


def test_the_front_is_numbered_and_its_shapes_are_named_in_full_without_overlap(record):
    record["shapes"] = [shape(n, 3, heads=n, latency_share=0.3 + 0.004 * n, loss=0.5 - 0.003 * n) for n in range(1, 25)]
    record |= {"front": list(range(1, 25)), "best": record["shapes"][0]}
    figure = architecture_picture(record).figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    [names] = figure.legends
    assert [text.get_text() for text in names.get_texts()] == [f"3x384, {n} heads, FFN 1536" for n in range(1, 25)]
    numbers = figure.axes[0].texts
    assert [text.get_text() for text in numbers] == [str(n) for n in range(1, 25)]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in numbers]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert figure.bbox.y0 <= names.get_window_extent().y0 and names.get_window_extent().x1 <= figure.bbox.x1
