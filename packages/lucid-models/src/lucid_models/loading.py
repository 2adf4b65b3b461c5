"""From a checkpoint to a detector, as it is or adapted to other classes, keypoints or canvases."""

import logging
from collections.abc import Sequence
from os import PathLike, fspath

import torch

from lucid_models.checkpoint import key_problem, read_checkpoint
from lucid_models.detector import Detector, build_detector
from lucid_models.transfer import load_weights

log = logging.getLogger("lucid")


def load(
    path: str | PathLike[str],
    device: str | torch.device = "cpu",
    *,
    num_classes: int | None = None,
    names: Sequence[str] | None = None,
    num_keypoints: int | None = None,
    image_size: int | None = None,
) -> Detector:
    """Return the `Detector` of the checkpoint at ``path`` on ``device``, in evaluation mode.

    What is given beside the path replaces what the checkpoint says: the detector then is a fresh one of the
    same task and size that takes over every tensor of equal name and shape, and the account of
    `load_weights` goes to the logger "lucid" at level INFO. Names alone rename the classes. Nothing in the file
    is executed. Raises FileNotFoundError when there is no file, ValueError in one line when it is no checkpoint of
    this kind, would have to execute code, lacks or mis-shapes weights, or when `build_detector` refuses the values.

    >>> import tempfile
    >>> from lucid_models import checkpoint_header
    >>> path = f"{tempfile.mkdtemp()}/pets.ckpt"
    >>> torch.save({"lucid": checkpoint_header(build_detector("detect", "n", names=["cat", "dog"]))}, path)
    >>> load(path).names, load(path, names=["cat", "dog", "horse"]).num_classes
    (('cat', 'dog'), 3)
    """
    info, weights = read_checkpoint(path)
    given = (num_classes, names, num_keypoints, image_size)
    adapted = any(value is not None for value in given)
    if names is None:
        num_classes = info.num_classes if num_classes is None else num_classes
        names = info.names if num_classes == info.num_classes else None
    try:
        # on the meta device no random numbers are drawn for weights that are replaced at once
        with torch.device("cpu" if adapted else "meta"):
            detector = build_detector(
                info.task,
                info.size,
                names=names,
                num_classes=num_classes,
                num_keypoints=info.num_keypoints if num_keypoints is None else num_keypoints,
                image_size=info.image_size if image_size is None else image_size,
            )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{fspath(path)}: {error}") from None
    if adapted:
        log.info("%s", load_weights(detector, weights))
        return detector.to(device).eval()
    if problem := key_problem(detector.state_dict(), weights):
        raise ValueError(f"{fspath(path)}: weights do not fit detector {info.task}-{info.size}: {problem}")
    detector.load_state_dict(
        {key: value.float() if value.is_floating_point() else value for key, value in weights.items()},
        assign=True,
    )
    return detector.to(device).eval()
