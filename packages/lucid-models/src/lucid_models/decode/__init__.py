"""From dense outputs to detections on the canvas."""

from lucid_models.decode.nms import with_nms
from lucid_models.decode.topk import end_to_end

__all__ = ["end_to_end", "with_nms"]
