"""Repeats images of rare classes: repeat-factor sampling.

Source: Gupta, Dollar and Girshick, "LVIS", CVPR 2019 (arXiv:1908.03195), section 5: a class in a share f of the images
asks for sqrt(t / f) repetitions of each of them, at least one; an image is repeated as its most demanding class asks.
"""

import math
import random
from collections import Counter

from lucid_data import Catalog


def repeat_factors(labels: list[set[int]], threshold: float) -> list[float]:
    """Return each image's repetitions, 1 or more, from its classes.

    Example:
        >>> repeat_factors([{0}, {0}, {0}, {0, 1}], threshold=1.0)
        [1.0, 1.0, 1.0, 2.0]
    """
    images = Counter(label for present in labels for label in present)
    wanted = {label: max(1.0, math.sqrt(threshold * len(labels) / n)) for label, n in images.items()}
    return [max((wanted[label] for label in present), default=1.0) for present in labels]


def balanced(catalog: Catalog, threshold: float, seed: int) -> Catalog:
    """Return the catalog with images of rare classes repeated; fractions are rounded up or down by chance of the seed.

    Args:
        catalog: the training images.
        threshold: t in (0, 1]; classes in a smaller share of the images are shown more often.
        seed: of the rounding, drawn once per image.
    """
    labels = [set(catalog.targets(index).labels.tolist()) for index in range(len(catalog))]
    positions: list[int] = []
    for index, factor in enumerate(repeat_factors(labels, threshold)):
        more = random.Random(f"repeat {seed} {index}").random() < factor % 1
        positions += [index] * (int(factor) + more)
    return catalog.subset(positions)
