"""From dense outputs to detections, on the canvas and on the original images."""

from lucid_models.decode.keypoints import decode_keypoints
from lucid_models.decode.masks import canvas_masks, canvas_to_image, image_masks
from lucid_models.decode.nms import with_nms
from lucid_models.decode.results import Decoder, decode_batch, decode_each, place_on_image, to_predictions
from lucid_models.decode.topk import end_to_end

__all__ = [
    "Decoder",
    "canvas_masks",
    "canvas_to_image",
    "decode_batch",
    "decode_each",
    "decode_keypoints",
    "end_to_end",
    "image_masks",
    "place_on_image",
    "to_predictions",
    "with_nms",
]
