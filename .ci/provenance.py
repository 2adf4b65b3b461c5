"""Writes docs/provenance.md: the papers that each module cites, and the licence of every library it brings along.

    uv run python .ci/provenance.py

A test holds the page against the sources and against the metadata of what is installed.
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "provenance.md"
MEMBERS = ("geometry", "capture", "optim", "data", "models", "train", "viz", "app")

PAPERS = {
    "1405.0312": "Lin et al., Microsoft COCO: Common Objects in Context, 2014",
    "1406.4729": "He et al., Spatial Pyramid Pooling in Deep Convolutional Networks, 2014",
    "1605.08803": "Dinh et al., Density Estimation using Real NVP, 2017",
    "1706.03762": "Vaswani et al., Attention Is All You Need, 2017",
    "1708.02002": "Lin et al., Focal Loss for Dense Object Detection, 2017",
    "1710.09412": "Zhang et al., mixup: Beyond Empirical Risk Minimization, 2017",
    "1803.01534": "Liu et al., Path Aggregation Network for Instance Segmentation, 2018",
    "1904.02689": "Bolya et al., YOLACT: Real-time Instance Segmentation, 2019",
    "1908.03195": "Gupta et al., LVIS: A Dataset for Large Vocabulary Instance Segmentation, 2019",
    "1911.08287": "Zheng et al., Distance-IoU Loss, 2019",
    "2004.10934": "Bochkovskiy et al., YOLOv4: Optimal Speed and Accuracy of Object Detection, 2020",
    "2005.03572": "Zheng et al., Enhancing Geometric Factors in Model Learning and Inference, 2020",
    "2012.07177": "Ghiasi et al., Simple Copy-Paste is a Strong Data Augmentation Method, 2020",
    "2106.06072": "Llerena et al., Gaussian Bounding Boxes and Probabilistic Intersection-over-Union, 2021",
    "2107.11291": "Li et al., Human Pose Regression with Residual Log-likelihood Estimation, 2021",
    "2108.07755": "Feng et al., TOOD: Task-aligned One-stage Object Detection, 2021",
    "2204.13317": "Zhou et al., MMRotate: A Rotated Object Detection Benchmark using PyTorch, 2022",
    "2405.14458": "Wang et al., YOLOv10: Real-Time End-to-End Object Detection, 2024",
    "2501.13400": "Hidayatullah and Tubagus, YOLOv8 to YOLO11, 2025",
    "2502.16982": "Liu et al., Muon is Scalable for LLM Training, 2025",
    "2505.16932": "Amsel et al., The Polar Express: Optimal Matrix Sign Methods, 2025",
    "2602.14582": "Hidayatullah and Tubagus, YOLO26: A Comprehensive Architecture Overview, 2026",
    "2606.03748": "Jocher et al., YOLO26: Unified Real-Time End-to-End Vision Models, 2026",
}
# not on arXiv: what a docstring says, and what it means
ELSEWHERE = {
    '"TIDE"': "Bolya et al., TIDE: A General Toolbox for Identifying Object Detection Errors, ECCV 2020",
    "Xia et al., CVPR 2018": "Xia et al., DOTA: A Large-scale Dataset for Object Detection in Aerial Images, CVPR 2018",
    "Jordan et al.": "Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024",
}
# read in the distribution where its metadata say nothing; the toolkit is an empty shell around NVIDIA's libraries
STATED = {"cuda-toolkit": "LicenseRef-NVIDIA-Proprietary", "faster-coco-eval": "Apache-2.0"}
VENDOR = "NVIDIA"
"""Licences with this word are those of the driver's own libraries, which torch's CUDA builds bring along."""


def papers() -> list[tuple[str, str]]:
    """Return (module, cited papers) for every module that cites one, in order of packages and names."""
    rows = []
    for member in MEMBERS:
        root = (
            ROOT / (f"packages/lucid-{member}" if member != "app" else "apps/lucid") / f"src/lucid_{member}"
        )
        for file in sorted(root.rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            found = set(re.findall(r"arXiv[: ]\s*(\d{4}\.\d{4,5})", text))
            cited = [f"[{PAPERS[one]}](https://arxiv.org/abs/{one})" for one in sorted(found)]
            cited += [name for words, name in ELSEWHERE.items() if words in text]
            if cited:
                name = ".".join(file.relative_to(root.parent).with_suffix("").parts)
                rows.append((name, "; ".join(cited)))
    return rows


def canonical(name: str) -> str:
    """Return a distribution's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(found: Distribution) -> str:
    """Return what a distribution's metadata say of its licence: expression, else classifiers, else the plain field."""
    metadata = found.metadata
    expression = metadata.get("License-Expression")
    classifiers = [
        c.split(" :: ")[-1] for c in metadata.get_all("Classifier") or [] if c.startswith("License ::")
    ]
    said = expression or "; ".join(classifiers) or (metadata.get("License") or "").split("\n")[0]
    return said or STATED.get(canonical(metadata["Name"]), "")


def needed() -> dict[str, Distribution]:
    """Return every distribution that the members or their extras bring into this environment, by name."""
    found: dict[str, Distribution] = {}
    open_names = [
        (f"lucid-{member}", ("triton", "numba", "onnx", "safetensors", "fast-eval", "bench"))
        for member in MEMBERS
    ]
    seen = set()
    while open_names:
        name, extras = open_names.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = one
        for line in one.requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                open_names.append((canonical(requirement.name), tuple(sorted(requirement.extras))))
    return {name: found[name] for name in sorted(found) if not name.startswith("lucid-")}


def page() -> str:
    """Return the text of the page."""
    modules = "\n".join(f"| `{name}` | {cited} |" for name, cited in papers())
    licences = [(name, licence(one)) for name, one in needed().items()]
    rows = "\n".join(f"| {name} | {said} |" for name, said in licences if VENDOR not in said)
    vendor = ", ".join(name for name, said in licences if VENDOR in said)
    return f"""# Provenance

lucid is an independent implementation under Apache-2.0, written from published papers and file-format documents. It
ships no weights, no data set and no code of another detector; what `lucid data download` fetches comes from its
publisher under the publisher's terms.

This page is generated by `.ci/provenance.py`, and a test holds it against the sources and against the metadata of what
is installed.

## Papers, by module

| module | cites |
|---|---|
{modules}

## Licences of what is installed with it

Every library that the packages or their extras bring along on Linux, as its own metadata state it. None of them is
copyleft beyond its own files, but for the GEOS library (LGPL-2.1) inside shapely's wheel, which only `lucid bench
geometry` and tests use, as a judge.

| library | licence |
|---|---|
{rows}

torch's CUDA builds for Linux also bring NVIDIA's own libraries, under NVIDIA's terms: {vendor}. The CPU builds do
without.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
