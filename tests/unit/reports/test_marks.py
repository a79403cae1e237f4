"""Marks are told apart without colours, and their colours are seen on light and dark pages."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.path import Path as MatplotlibPath

from memtune.reports.marks import DARK_COLOURS, SHAPES, assign_marks
from memtune.tracking.runs.run_tags import COLOURS

MIN_DIFFERENCE = 0.15
"""Share of the joint area of two shapes that only one of them covers: disc and square have 0.16."""
MIN_DISTANCE = 50.0
"""Of two colours in RGB: the nearest two of Okabe and Ito, vermilion and the darkened orange, have 50.1."""
MIN_CONTRAST = 3.0
"""WCAG 2.2, criterion 1.4.11, of graphics."""
LIGHT_PAPER, DARK_PAPER = "#ffffff", "#14171b"


def test_twenty_shapes_differ() -> None:
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 60)] * 2), -1).reshape(-1, 2)
    areas = {name: MatplotlibPath(shape).contains_points(grid) for name, shape in SHAPES.items()}
    assert len(areas) == 20
    for first, second in combinations(areas, 2):
        difference = (areas[first] ^ areas[second]).sum() / (areas[first] | areas[second]).sum()
        assert difference > MIN_DIFFERENCE, (first, second)


def test_shapes_lie_within_the_square_that_figures_scale() -> None:
    for name, shape in SHAPES.items():
        assert np.abs(np.array(shape)).max() <= 1.0001, name


@pytest.mark.parametrize(("colours", "paper"), [(COLOURS, LIGHT_PAPER), (DARK_COLOURS, DARK_PAPER)])
def test_colours_have_contrast(colours: tuple[str, ...], paper: str) -> None:
    for colour in colours:
        light, dark = sorted((luminance(colour), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= MIN_CONTRAST, colour


@pytest.mark.parametrize("colours", [COLOURS, DARK_COLOURS])
def test_the_colours_of_eleven_alternatives_differ(colours: tuple[str, ...]) -> None:
    assert len(colours) == 11
    for first, second in combinations(colours, 2):
        parts = np.array(
            [[int(each[place : place + 2], 16) for place in (1, 3, 5)] for each in (first, second)]
        )
        assert np.linalg.norm(parts[0] - parts[1]) > MIN_DISTANCE, (first, second)


def test_lines_differ_in_colour_or_dash_where_shapes_do() -> None:
    marks = assign_marks(f"width {number}" for number in range(len(SHAPES)))
    assert len({(mark.colour, mark.dash) for mark in marks.values()}) == len(SHAPES)


def luminance(colour: str) -> float:
    """The relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_a_mark_is_the_same_shape_for_matplotlib_and_for_vega() -> None:
    mark = assign_marks(["lstm"])["lstm"]
    corners = [tuple(map(float, corner.split(","))) for corner in mark.path[1:-2].split(" L")]
    assert [(x, -y) for x, y in corners] == [pytest.approx(corner, abs=5e-3) for corner in mark.marker[:-1]]


def test_marks_depend_on_the_names_alone() -> None:
    assert assign_marks(["rnn", "lstm"]) == assign_marks(["lstm", "rnn", "lstm"])
