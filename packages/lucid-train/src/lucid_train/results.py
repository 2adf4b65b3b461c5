"""From predictions on the original images to scored results, over all processes of a run."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from lucid_data import Batch, Catalog, CocoReport, RotatedReport, score_coco, score_rotated
from lucid_geometry import Letterbox
from lucid_models import HeadOutput, Predictions, decode_each, end_to_end, with_nms
from lucid_train.config import ConfigError
from lucid_train.processes import at_first, from_first
from lucid_train.tasks import task_row

Rows = list[dict[str, Any]]
DecodingPath = Literal["e2e", "nms"]
Scorer = Callable[[Catalog, Rows, str], CocoReport | RotatedReport]

_SMALLEST: Mapping[str, Any] = {
    "images": [{"id": 1, "width": 8, "height": 8}],
    "categories": [{"id": 1, "name": "a"}],
    "annotations": [],
}


class ResultCollector:
    """Collects the predictions of a catalog's images and scores them by the task's protocols.

    Args:
        catalog: the images of the run.
        shard: their positions in the catalog, when this process predicts some of them; indices count within these.
        engine: what computes the COCO protocol; :func:`scoring_backend` says whether it is here.
    """

    def __init__(
        self, catalog: Catalog, shard: Sequence[int] | None = None, *, engine: str = "pycocotools"
    ) -> None:
        self.catalog = catalog
        self.engine = engine
        # results carry the source's own ids, which may be text
        ids: list[Any] = list(catalog.image_ids)
        self._place = {image_id: position for position, image_id in enumerate(ids)}
        self._ids = ids if shard is None else [ids[position] for position in shard]
        row = task_row(catalog.task)
        self.scores, self.least_score = row.scores, row.least_score
        self.results: Rows = []
        self.images: set[int] = set()

    def add(self, predictions: Iterable[Predictions], indices: Iterable[int]) -> None:
        """Take in one batch: predictions on the original images, and those images' positions.

        An image that comes twice counts once. Masks are kept as run lengths.
        """
        for found, index in zip(predictions, indices, strict=True):
            if index in self.images:
                continue
            self.images.add(index)
            self.results += found.to_coco(self._ids[index], self.catalog.category_ids)
            if found.rboxes is not None:
                rows = self.results[len(self.results) - len(found) :]
                for row, rbox, label in zip(rows, found.rboxes.tolist(), found.labels.tolist(), strict=True):
                    row |= {"rbox": rbox, "label": label}

    def add_output(
        self,
        path: DecodingPath,
        output: HeadOutput,
        points: Tensor,
        strides: Tensor,
        batch: Batch,
        names: tuple[str, ...],
    ) -> None:
        """Take in a batch as one of the network's two branches sees it, decoded onto the original images.

        Args:
            path: ``e2e``, the one-to-one branch as it is, or ``nms``, the one-to-many branch suppressed.
            output: what the network says at every anchor point, of B images.
            points: (A, 2) float32 anchor points of the batch's canvas, as ``make_points`` gives them.
            strides: (A,) float32.
            batch: the images' canvas, original sizes and positions.
            names: class names of the detector.
        """
        branch, decoder = (output.o2o, end_to_end) if path == "e2e" else (output.o2m, with_nms)
        height, width = batch.images.shape[-2:]
        frames = [Letterbox(h, w, height, width) for h, w in batch.sizes.tolist()]
        found = decode_each(
            branch, points, strides, frames, names, decoder=decoder, confidence=self.least_score
        )
        self.add(found, batch.indices.tolist())

    def score(self) -> dict[str, Any]:
        """Return the report over the results of all processes, in each of them; -1 where a number is undefined.

        Numbers of the task's second protocol carry its prefix, such as ``segm_map``. Rank 0 gathers and scores, the
        others are told.
        """
        shards = at_first(self.results)
        report: dict[str, Any] = {}
        if shards is not None:
            found = self._reports(merged(shards, self._place))
            report = {
                self.scores[kind] + name: value
                for kind, one in found.items()
                for name, value in one.to_dict().items()
            }
        return from_first(report)

    def reports(self) -> dict[str, CocoReport | RotatedReport]:
        """Return the scorers' own reports by kind, curves and all, over the results of this process."""
        return self._reports(self.results)

    def _reports(self, rows: Rows) -> dict[str, CocoReport | RotatedReport]:
        return {kind: _SCORERS[kind](self.catalog, rows, self.engine) for kind in self.scores}


def _coco(kind: str) -> Scorer:
    return lambda catalog, rows, engine: score_coco(catalog.to_coco(), rows, kind=kind, engine=engine)


def _rotated(catalog: Catalog, rows: Rows, _engine: str) -> RotatedReport:
    by_image: defaultdict[Any, Rows] = defaultdict(list)
    for row in rows:
        by_image[row["image_id"]].append(row)
    predictions = []
    for image_id in catalog.image_ids:
        mine = by_image[image_id]
        boxes = torch.tensor([row["rbox"] for row in mine], dtype=torch.float32).view(-1, 5)
        scores = torch.tensor([row["score"] for row in mine], dtype=torch.float32)
        predictions.append((boxes, scores, torch.tensor([row["label"] for row in mine], dtype=torch.int64)))
    truths = [catalog.targets(index) for index in range(len(catalog))]
    return score_rotated(predictions, truths, catalog.class_names)


_SCORERS: Mapping[str, Scorer] = {
    "bbox": _coco("bbox"),
    "segm": _coco("segm"),
    "keypoints": _coco("keypoints"),
    "rotated": _rotated,
}


def scoring_backend(task: str, engine: str = "pycocotools") -> str:
    """Return what scores a task: an engine of the COCO protocol, or ``rotated``, which has one form.

    Raises:
        ConfigError: an engine was chosen for a task that has none.
        ValueError: there is no such engine.
        ImportError: it is not installed.

    Example:
        >>> scoring_backend("detect"), scoring_backend("obb")
        ('pycocotools', 'rotated')
    """
    if "rotated" in task_row(task).scores:
        if engine != "pycocotools":
            raise ConfigError(
                f"engine {engine}: it computes the COCO protocol, and {task} has a scorer of its own; leave it out"
            )
        return "rotated"
    # an engine that is not here is noticed before the work, not after it
    score_coco(_SMALLEST, [], engine=engine)
    return engine


def merged(shards: Sequence[Rows], place: Mapping[Any, int]) -> Rows:
    """Return the rows of several processes as one process would have them: by image, each image's from one process.

    Example:
        >>> shards = [[{"image_id": 2}], [{"image_id": 1}, {"image_id": 2}]]
        >>> merged(shards, {1: 0, 2: 1})
        [{'image_id': 1}, {'image_id': 2}]
    """
    if len(shards) == 1:
        return shards[0]
    seen: set[Any] = set()
    rows: Rows = []
    for shard in shards:
        fresh = {row["image_id"] for row in shard} - seen
        rows += [row for row in shard if row["image_id"] in fresh]
        seen |= fresh
    return sorted(rows, key=lambda row: place[row["image_id"]])
