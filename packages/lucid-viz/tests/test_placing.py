"""Captions stand inside the picture and apart from each other, on axes and in pixels alike."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure

from lucid_data import Targets
from lucid_models import Predictions
from lucid_viz import RenderOptions, burn_predictions, draw_ground_truth, draw_predictions, raster, show_image
from lucid_viz.placing import beside, outlines, place

WHOLE = st.integers(-30, 130).map(float)


def overlap(one, other):
    (left, top, wide, high), (x, y, width, height) = one, other
    across = min(left + wide, x + width) - max(left, x)
    down = min(top + high, y + height) - max(top, y)
    return max(across, 0) * max(down, 0)


def slow(sizes, places, picture):
    """The rule of ``place`` in words, one plate, one place and one earlier plate at a time."""
    chosen = []
    for (width, height), choices in zip(sizes, places, strict=True):
        best = None
        for x, y in choices:
            x = max(0.0, min(x, picture[0] - width))
            y = max(0.0, min(y, picture[1] - height))
            hidden = sum(overlap((x, y, width, height), one) for one in chosen)
            if best is None or hidden < best[0]:
                best = hidden, (x, y, width, height)
        chosen.append(best[1])
    return [list(one[:2]) for one in chosen]


@st.composite
def scenes(draw):
    n = draw(st.integers(1, 12))
    sizes = draw(arrays(np.float64, (n, 2), elements=st.integers(1, 60).map(float)))
    places = draw(arrays(np.float64, (n, draw(st.integers(1, 4)), 2), elements=WHOLE))
    return sizes, places, (draw(st.integers(20, 100)), draw(st.integers(20, 100)))


@given(scenes())
def test_places_are_those_of_the_rule_in_words(scene):
    assert place(*scene).tolist() == slow(*scene)


@given(scenes())
def test_a_plate_that_fits_is_inside_and_hides_none_where_a_place_is_free(scene):
    sizes, places, picture = scene
    chosen = np.concatenate([place(*scene), sizes], 1).tolist()
    for n, (plate, choices) in enumerate(zip(chosen, places.tolist(), strict=True)):
        x, y, width, height = plate
        assert min(x, y) >= 0
        assert x + width <= picture[0] or x == 0
        assert y + height <= picture[1] or y == 0
        inside = [
            (max(0, min(a, picture[0] - width)), max(0, min(b, picture[1] - height)), width, height)
            for a, b in choices
        ]
        if any(not any(overlap(one, before) for before in chosen[:n]) for one in inside):
            assert not any(overlap(plate, before) for before in chosen[:n])


def test_places_beside_an_upright_box_touch_its_corners():
    (found,) = beside(outlines([[10, 20, 50, 60]]), np.array([[30.0, 8.0]])).tolist()
    assert found == [
        [10, 12],
        [10, 20],
        [10, 60],
        [10, 52],
        [20, 12],
        [20, 20],
        [20, 60],
        [20, 52],
        [50, 20],
        [-20, 20],
    ]


def test_places_beside_a_turned_box_touch_its_outermost_corners():
    turned = np.array([[[30.0, 10], [50, 30], [30, 50], [10, 30]]])
    (found,) = beside(turned, np.array([[6.0, 4.0]])).tolist()
    assert found == [
        [30, 6],
        [30, 10],
        [30, 50],
        [30, 46],
        [24, 6],
        [24, 10],
        [24, 50],
        [24, 46],
        [50, 30],
        [4, 30],
    ]


H, W = 240, 400
CORNERED = [
    [340, 0, 400, 30],
    [2, 200, 40, 240],
    [0, 100, 20, 130],
    [180, 100, 230, 150],
    [182, 102, 232, 152],
]


def found(boxes, **fields) -> Predictions:
    scores = torch.linspace(0.9, 0.5, len(boxes))
    labels = torch.arange(len(boxes)) % 2
    return Predictions(torch.tensor(boxes).float(), scores, labels, ("a long name", "dog"), (H, W), **fields)


def plates_on_axes(predictions, draw=draw_predictions):
    """Left, top, width and height of the plates, in pixels from the picture's left upper corner, and its size."""
    figure = Figure(figsize=(5, 3))
    ax = figure.subplots()
    show_image(ax, torch.zeros(3, H, W, dtype=torch.uint8))
    draw(ax, predictions)
    FigureCanvasAgg(figure).draw()
    return extents(ax)


def extents(ax):
    frame = ax.bbox
    boxes = [text.get_bbox_patch().get_window_extent() for text in ax.texts]
    return [(b.x0 - frame.x0, frame.y1 - b.y1, b.width, b.height) for b in boxes], frame.size


class Recorder(RendererAgg):
    """Notes the texts that are drawn."""

    def __init__(self, figure):
        super().__init__(*figure.bbox.size, figure.dpi)
        self.texts = []

    def draw_text(self, gc, x, y, s, *rest, **options):
        self.texts.append(s)


def written_on(figure):
    """The texts that are drawn, in order."""
    recorder = Recorder(figure)
    figure.draw(recorder)
    return recorder.texts


def plates_in_pixels(predictions, monkeypatch):
    put = []

    def note(sizes, places, picture):
        put.append((sizes, place(sizes, places, picture), picture))
        return put[0][1]

    monkeypatch.setattr(raster, "place", note)
    drawn = burn_predictions(torch.zeros(3, H, W, dtype=torch.uint8), predictions)
    ((sizes, starts, picture),) = put
    return np.concatenate([starts, sizes], 1).tolist(), picture, drawn


def require_readable(plates, size):
    for n, (x, y, width, height) in enumerate(plates):
        assert min(x, y) >= -0.01
        assert x + width <= size[0] + 0.01
        assert y + height <= size[1] + 0.01
        for other in plates[:n]:
            assert overlap(plates[n], other) < 0.01


def test_captions_on_axes_are_inside_the_picture_and_apart():
    plates, size = plates_on_axes(found(CORNERED))
    assert len(plates) == 5
    require_readable(plates, size)


def test_captions_of_labels_are_inside_the_picture_and_apart():
    targets = Targets.of(torch.tensor(CORNERED).float(), torch.arange(5) % 2)
    plates, size = plates_on_axes(
        targets, lambda ax, t: draw_ground_truth(ax, t, names=("a long name", "dog"))
    )
    assert len(plates) == 5
    require_readable(plates, size)


def test_captions_in_pixels_are_inside_the_picture_and_apart(monkeypatch):
    plates, size, drawn = plates_in_pixels(found(CORNERED), monkeypatch)
    assert size == (W, H)
    require_readable(plates, size)
    # every plate is whole: nothing is drawn over its rim
    for (x, y, width, height), label in zip(plates, (0, 1, 0, 1, 0), strict=True):
        rim = drawn[:, int(y), int(x) : int(x + width)].flatten(1).T.tolist()
        rim += drawn[:, int(y + height) - 1, int(x) : int(x + width)].T.tolist()
        assert {tuple(pixel) for pixel in rim} == {((230, 159, 0), (86, 180, 233))[label]}


def test_both_routes_choose_the_same_places(monkeypatch):
    """Above, inside the top where that is the picture's, and below where a surer caption stands above."""
    boxes = [[100, 100, 300, 200], [104, 100, 300, 190], [0, 0, 350, 90]]
    on_axes, size = plates_on_axes(found(boxes))
    in_pixels, _, _ = plates_in_pixels(found(boxes), monkeypatch)
    scale = size[0] / W
    for plates, unit in ((on_axes[::-1], scale), (in_pixels, 1.0)):
        (x, y, _, height), (x2, y2, _, _), (x3, y3, _, _) = plates
        assert (x, y + height) == pytest.approx((100 * unit, 100 * unit), abs=0.1)
        assert (x2, y2) == pytest.approx((104 * unit, 100 * unit), abs=0.1)
        assert (x3, y3) == pytest.approx((0, 0), abs=0.1)


def test_captions_follow_the_view():
    figure = Figure(figsize=(5, 3))
    ax = figure.subplots()
    show_image(ax, torch.zeros(3, H, W, dtype=torch.uint8))
    draw_predictions(ax, found([[10, 10, 40, 40], [200, 100, 260, 160]]))
    ax.set_xlim(150, 350)
    ax.set_ylim(220, 90)
    assert written_on(figure) == ["dog 0.50"]
    ax.set_xlim(0, W)
    ax.set_ylim(H, 0)
    assert written_on(figure) == ["dog 0.50", "a long name 0.90"]


@pytest.mark.parametrize("take_away", [lambda text: text.remove(), lambda text: text.set_visible(False)])
def test_captions_taken_away_by_the_owner_of_the_axes_stay_away_and_take_no_place(take_away):
    def drawn(boxes):
        figure = Figure(figsize=(5, 3))
        ax = figure.subplots()
        show_image(ax, torch.zeros(3, H, W, dtype=torch.uint8))
        draw_predictions(ax, found(boxes))
        return figure, ax

    figure, ax = drawn([[180, 100, 230, 150]] * 2)
    dog, cat = ax.texts
    take_away(cat)
    for _ in range(2):
        assert written_on(figure) == ["dog 0.50"]
    alone, its_ax = drawn([[180, 100, 230, 150]])
    written_on(alone)
    assert dog.get_position() == pytest.approx(its_ax.texts[0].get_position())


def test_captions_take_no_part_in_the_layout():
    """Before it is placed, the caption at the picture's right end sticks out of it."""
    places = []
    for shown in (True, False):
        figure = Figure(figsize=(4, 2), layout="constrained")
        ax = figure.subplots()
        show_image(ax, torch.zeros(3, H, W, dtype=torch.uint8))
        draw_predictions(ax, found([[390, 0, 400, 30]]), RenderOptions(show_labels=shown))
        FigureCanvasAgg(figure).draw()
        places.append(ax.get_position().bounds)
    assert places[0] == places[1]


def test_a_caption_that_is_longer_than_the_picture_ends_with_it():
    figure = Figure(figsize=(4, 2))
    ax = figure.add_axes((0.25, 0.25, 0.25, 0.5))
    show_image(ax, torch.zeros(3, H, W, dtype=torch.uint8))
    draw_predictions(ax, found([[20, 100, 60, 130]]), RenderOptions(font_size=20))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (plate,), size = extents(ax)
    assert plate[2] > size[0]
    beside = np.asarray(canvas.buffer_rgba())[:, int(ax.bbox.x1) + 2 :, :3]
    assert (beside == 255).all()


def test_captions_written_later_keep_clear_of_those_before():
    figure = Figure(figsize=(5, 3))
    ax = figure.subplots()
    show_image(ax, torch.zeros(3, H, W, dtype=torch.uint8))
    one = found([[180, 100, 230, 150]])
    draw_predictions(ax, one)
    draw_predictions(ax, one, RenderOptions(confidence=0.1))
    FigureCanvasAgg(figure).draw()
    require_readable(*extents(ax))


def test_where_no_place_is_free_the_surest_caption_is_on_top():
    """A picture of one line of text: every caption stands on the first."""
    low = Predictions(
        torch.tensor([[0.0, 0, 60, 14]] * 12),
        torch.linspace(0.9, 0.5, 12),
        torch.tensor([0] + [1] * 11),
        ("cat", "dog"),
        (14, 60),
    )
    drawn = burn_predictions(torch.zeros(3, 14, 60, dtype=torch.uint8), low)
    assert drawn[:, 0, :40].T.unique(dim=0).tolist() == [[230, 159, 0]]
    ax = Figure().subplots()
    draw_predictions(ax, low)
    assert ax.texts[-1].get_text() == "cat 0.90"
