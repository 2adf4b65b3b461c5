"""What can be wrong with a box once its numbers are read."""

from __future__ import annotations

from pathlib import Path

from lucid_data.doctor.findings import Findings


def check_box(
    box: tuple[float, float, float, float],
    size: tuple[int, int] | None,
    prefix: str,
    file: Path,
    where: str,
    found: Findings,
) -> None:
    """Add findings about x1 y1 x2 y2 in a picture of ``size`` (height, width; None when unknown)."""
    x1, y1, x2, y2 = box
    text = f"({x1:g}, {y1:g})-({x2:g}, {y2:g})"
    if x2 <= x1 or y2 <= y1:
        message = f"box {text} has no area (width {x2 - x1:g}, height {y2 - y1:g})"
        found.add(
            f"{prefix}-box-no-area", "warning", file, where, message, "delete or redraw it; it is left out"
        )
        return
    if size is not None:
        height, width = size
        if x1 >= width or y1 >= height or x2 <= 0 or y2 <= 0:
            message = f"box {text} lies wholly outside the {width} x {height} picture"
            found.add(f"{prefix}-box-outside", "warning", file, where, message, "delete it; it is left out")
            return
        # exporters round, so a pixel over the border is nothing
        if x1 < -1 or y1 < -1 or x2 > width + 1 or y2 > height + 1:
            message = f"box {text} reaches over the border of the {width} x {height} picture"
            found.add(
                f"{prefix}-box-over-border", "warning", file, where, message, "nothing to do: it is cut there"
            )
        x1, y1, x2, y2 = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
    if min(x2 - x1, y2 - y1) < 1:
        message = f"box {text} is under one pixel"
        found.add(f"{prefix}-box-tiny", "warning", file, where, message, "delete it; it is left out")
