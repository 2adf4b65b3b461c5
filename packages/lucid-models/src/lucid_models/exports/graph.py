"""The graph that is exported: from canvases to final rows, selection included and nothing suppressed."""

from torch import Tensor, nn

from lucid_models.assign import make_points, rows_at
from lucid_models.decode import canvas_masks, decode_keypoints, end_to_end
from lucid_models.deploy import fuse
from lucid_models.detector import Detector
from lucid_models.registry import TASKS


class ExportGraph(nn.Module):
    """The folded one-to-one branch with its decoder, for one canvas size.

    Raises ValueError when the task predicts masks and the canvas has fewer anchor points than detections.

    >>> import torch
    >>> from lucid_models import build_detector
    >>> graph = ExportGraph(build_detector("detect", "n", num_classes=2), 64, max_detections=10)
    >>> [output.shape for output in graph(torch.zeros(1, 3, 64, 64))]
    [torch.Size([1, 10, 6])]
    """

    points: Tensor
    strides: Tensor

    def __init__(self, detector: Detector, image_size: int, max_detections: int) -> None:
        super().__init__()
        points, strides = make_points(image_size, image_size, detector.strides)
        if TASKS[detector.task].masks and len(points) < max_detections:
            raise ValueError(
                f"a canvas of {image_size} px has {len(points)} anchor points for max_detections="
                f"{max_detections} masks; lower it or enlarge the canvas"
            )
        self.image_size = image_size
        self.max_detections = max_detections
        self.network = fuse(detector).cpu()
        # the shared grid is cached, a module's buffers may be moved
        self.register_buffer("points", points.clone(), persistent=False)
        self.register_buffer("strides", strides.clone(), persistent=False)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return detections (B, k, 6), or (B, k, 7) of an oriented task, and what else the task predicts.

        That is masks (B, k, S, S) bool on the canvas, or keypoints (B, k, K, 3) as rows of x, y and the
        probability that the point is visible. ``images`` (B, 3, S, S) float32 in [0, 1].
        """
        output = self.network(images)
        detections, anchors = end_to_end(output, self.points, self.strides, self.max_detections)
        if output.keypoints is not None:
            return detections, decode_keypoints(output, self.points, self.strides, anchors)
        if output.coeff is not None and output.prototypes is not None:
            coeff, side = rows_at(output.coeff, anchors), self.image_size
            return detections, canvas_masks(coeff, output.prototypes, detections[..., :4], side, side)
        return (detections,)
