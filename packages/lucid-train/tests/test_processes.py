"""Two processes train one model: equal bytes in both, one set of files, exact metrics, one end for all."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from lucid_data import synthetic, train_loader
from lucid_models import describe
from lucid_train import DetectionDataModule, evaluate, fit, load_config
from lucid_train.processes import loader_workers
from lucid_train.results import merged

# Plays torchrun for one scenario after the other: forks two ranks that have imported everything already.
RANKS = """
import json, os, signal, socket, sys, traceback
from pathlib import Path
import lightning, torch
torch.set_num_threads(1)
from lucid_geometry import Letterbox
from lucid_models import to_predictions
from lucid_train import DetectionDataModule, DetectionLitModule, Interrupted, fit, load_config
from lucid_train.auto import resolve
from lucid_train.assembly import build_module
from lucid_train.fit import run_length
from lucid_train.processes import joined
from lucid_train.results import ResultCollector
from lucid_data import open_catalog, train_loader

root = Path(sys.argv[1])
config = load_config(root / "config.yaml")

def train(rank, **arguments):
    return fit(**{"config": config, **arguments}).fingerprint

def whole(rank):
    return train(rank, config=config.updated(run={"output": root / "whole"}))

def stopped(rank):
    seen = []
    def stop(trainer, module, *_):
        seen.append(1)
        if rank == 1 and len(seen) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
    DetectionLitModule.on_train_batch_end = stop
    try:
        train(rank, config=config.updated(run={"output": root / "stopped"}))
    except Interrupted as stop:
        return [len(seen), str(stop.checkpoint)]

def resumed(rank):
    replay = {"mode": "step", "backend": "tape"}
    return train(rank, config=config.updated(run={"output": root / "stopped"}, replay=replay), resume="last")

def broken(rank):
    whole = DetectionLitModule._shared_step
    def step(self, batch, stage):
        loss = whole(self, batch, stage)
        if rank == 1:
            self.latest_parts["train/loss"] *= float("nan")
        return loss
    DetectionLitModule._shared_step = step
    try:
        train(rank, config=config.updated(run={"output": root / "broken"}))
    except ValueError as error:
        return str(error)

def skipping(rank):
    whole, seen = DetectionLitModule._forward, []
    def forward(self, batch, stage):
        output, result, grid = whole(self, batch, stage)
        seen.append(stage)
        if rank == 1 and len(seen) == 1:
            result = result._replace(total=result.total * float("nan"))
        return output, result, grid
    DetectionLitModule._forward = forward
    run, optimizer = {"epochs": 1, "output": root / "skipping"}, {"skip_nonfinite": 1}
    return train(rank, config=config.updated(run=run, optimizer=optimizer))

def gradients(rank, task):
    kept = {}
    def keep(self, optimizer):
        if not kept:
            kept.update({name: p.grad.clone() for name, p in self.detector.named_parameters()})
    DetectionLitModule.on_before_optimizer_step = keep  # what processes sent each other, not clipped yet
    fit(load_config(root / f"{task}.yaml", {"run.output": str(root / f"{task}-run")}))
    torch.save(kept, root / f"{task}-gradients-{rank}.pt")

def detect(rank):
    gradients(rank, "detect")

def obb(rank):
    gradients(rank, "obb")

def mean_of_shards(task):
    config = load_config(root / f"{task}.yaml")
    data = DetectionDataModule(config)
    config = resolve(config, run_length(config, len(data.train_catalog)))
    data.use(config)
    lightning.seed_everything(config.run.seed, verbose=False)
    module = build_module(config, data).to(memory_format=torch.channels_last).train()
    module.alpha = config.loss.alpha_initial
    for rank in range(2):
        loader = train_loader(data.train_pipeline(), 2, workers=0, seed=config.run.seed, rank=rank, world_size=2)
        (module.objective(next(iter(loader))).total / 2).backward()
    return {name: p.grad for name, p in module.detector.named_parameters()}

def collected(shard):
    catalog = open_catalog(root / "boxes", "val", "detect")
    collector = ResultCollector(catalog, shard)
    for at, index in enumerate(shard):
        targets = catalog.targets(index)
        # equal scores everywhere: the order of images decides
        rows = [targets.boxes + 2 * (index % 3), torch.full((len(targets), 1), 0.5), targets.labels[:, None]]
        frame = Letterbox(*catalog.sizes[index].tolist(), 64, 64)
        collector.add(to_predictions(torch.cat(rows, dim=1)[None], [frame], catalog.class_names), [at])
    return collector

def scored(rank):
    shard = [(0, 2, 4), (1, 3, 5, 0)][rank]  # an image that comes twice counts once
    with joined("cpu"):
        return collected(shard).score()

(root / "alone.json").write_text(json.dumps(collected(range(6)).score()))
for scenario in (whole, stopped, resumed, broken, skipping, detect, obb, scored):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        if (pid := os.fork()) == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            status = 1
            try:
                (root / f"{scenario.__name__}-{rank}.json").write_text(json.dumps(scenario(rank)))
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        ranks.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in ranks):
        sys.exit(f"{scenario.__name__} failed")
# a backward pass starts threads that a fork would not survive where there are GPUs
for task in ("detect", "obb"):
    torch.save(mean_of_shards(task), root / f"{task}-gradients.pt")
"""


def scenes_of(root, task, **more):
    """Write seven training scenes in two shards, no object in rank 1's first batch, and return the configuration."""
    synthetic.write_coco(root / task, splits={"train": 7, "val": 6}, size=64, seed=3, task=task)
    settings = {
        "data.path": str(root / task),
        "data.image_size": 64,
        "data.batch": 2,
        "data.workers": 0,
        "augment.mosaic": 0.0,
        "augment.mixup": 0.0,
        "run.device": "cpu",
        "run.devices": 2,
        "run.fingerprint": True,
    }
    config = load_config(task, settings | more)
    data = DetectionDataModule(config)
    loader = train_loader(data.train_pipeline(), 2, workers=0, seed=config.run.seed, rank=1, world_size=2)
    emptied = {data.train_catalog.image_ids[index] for index in next(iter(loader)).indices.tolist()}
    (file,) = (root / task / "annotations").glob("*_train.json")
    document = json.loads(file.read_text())
    document["annotations"] = [one for one in document["annotations"] if one["image_id"] not in emptied]
    file.write_text(json.dumps(document))
    return config


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    """A folder and the configuration of its scenes with keypoints, with those of other tasks beside them."""
    root = tmp_path_factory.mktemp("ranks")
    config = scenes_of(root, "pose", **{"run.epochs": 2, "run.validate_every": 2})
    (root / "config.yaml").write_text(config.to_yaml())
    for task in ("detect", "obb"):
        shorter = scenes_of(root, task, **{"run.epochs": 1})
        (root / f"{task}.yaml").write_text(shorter.to_yaml())
    synthetic.write_coco(root / "boxes", splits={"val": 6}, size=64, seed=3)
    return root, config


@pytest.fixture(scope="module")
def ranks(setting):
    """What each scenario told, by name, one answer per rank."""
    root, _ = setting
    child = subprocess.run(
        [sys.executable, "-c", RANKS, str(root)], capture_output=True, text=True, timeout=600
    )
    assert child.returncode == 0, child.stderr[-3000:]
    names = ("whole", "stopped", "resumed", "broken", "skipping", "scored")
    return {
        name: [json.loads((root / f"{name}-{rank}.json").read_text()) for rank in (0, 1)] for name in names
    }


@pytest.mark.parametrize("task", ["detect", "obb"])
def test_a_step_of_both_is_the_mean_of_their_batches_in_one_process(ranks, setting, task):
    expected, *found = (torch.load(setting[0] / f"{task}-gradients{which}.pt") for which in ("", "-0", "-1"))
    for gradients in found:
        torch.testing.assert_close(gradients, expected, rtol=0, atol=0)
    # a level of the pyramid without positives has a box stem whose gradients are zeros
    assert sum(bool(value.any()) for value in expected.values()) > 0.8 * len(expected)


def test_weights_statistics_averages_and_metrics_are_the_same_bytes_in_both(ranks):
    one, other = ranks["whole"]
    assert one == other
    assert set(one) == {"model", "optimizer", "scheduler", "ema", "losses", "metrics", "all"}


def test_files_are_written_once_and_serve_alone(ranks, setting):
    folder = setting[0] / "whole"
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert describe(folder / "checkpoints" / "last.ckpt").task == "pose"
    assert len((folder / "metrics.csv").read_text().splitlines()) == 3
    assert json.loads((folder / "fingerprint.json").read_text()) == ranks["whole"][0]


def test_the_metrics_of_shards_are_those_of_one_process(ranks, setting):
    alone = json.loads((setting[0] / "alone.json").read_text())
    assert ranks["scored"] == [alone, alone]
    assert 0 < alone["map"] < 1


def test_the_last_validation_is_an_evaluation_of_the_last_checkpoint(ranks, setting):
    folder = setting[0] / "whole"
    report = evaluate(folder / "checkpoints" / "last.ckpt", setting[1].data.path, path="e2e", workers=0)
    header, *_, last = (line.split(",") for line in (folder / "metrics.csv").read_text().splitlines())
    row = dict(zip(header, last, strict=True))
    assert float(row["val/mAP"]) == pytest.approx(report["report"]["e2e"]["map"], abs=1e-6)


def test_a_signal_to_one_process_stops_both_after_the_same_step(ranks, setting):
    saved = str(setting[0] / "stopped" / "checkpoints" / "last.ckpt")
    assert ranks["stopped"] == [[2, saved], [2, saved]]


def test_a_stopped_run_continues_to_the_bytes_of_an_uninterrupted_one(ranks):
    assert ranks["resumed"] == ranks["whole"]


def test_switches_that_cannot_stay_on_are_native_and_counted(ranks, setting):
    options = json.loads((setting[0] / "stopped" / "replay.json").read_text())["options"]
    assert {"capture_network", "capture_loss", "capture_updates", "capture_gradient_norm"} <= set(options)
    regions = [region for found in options.values() for region in found]
    assert all(region["replayed"] == 0 for region in regions)
    assert all(region["native"] for region in regions if region["name"] != "orthogonalization")
    assert {region["retired_by"] for region in regions if region["native"]} <= {"unsupported", None}
    assert any(region["retired_by"] == "unsupported" for region in regions)


def test_a_loss_that_is_not_finite_in_one_process_ends_both_and_names_all_files(ranks, setting):
    one, other = ranks["broken"]
    assert one == other
    assert "the loss is nan" in one
    images = {path.name for path in setting[1].data.path.rglob("*.png")}
    assert len(set(one.partition("the batch: ")[2].split(", ")) & images) == 4


def test_a_loss_that_is_not_finite_in_one_process_is_left_out_by_both_where_asked(ranks, setting):
    one, other = ranks["skipping"]
    assert one == other
    header, row = (
        line.split(",") for line in (setting[0] / "skipping" / "metrics.csv").read_text().splitlines()
    )
    assert dict(zip(header, row, strict=True))["skipped"] == "1"


def test_one_command_starts_the_other_process_and_learns_the_same(ranks, setting):
    root, config = setting
    seen = []
    result = fit(config.updated(run={"output": root / "started"}), observer=seen.append)
    assert result.fingerprint == ranks["whole"][0]
    assert [progress.phase for progress in seen].count("epoch") == 2
    assert "RANK" not in os.environ


def test_a_process_that_ends_before_it_begins_is_told(setting, monkeypatch):
    root, config = setting
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ChildProcessError, match="process 1 of the run ended"):
        fit(config.updated(run={"output": root / "never"}))
    assert not (root / "never").exists()


def test_rows_of_several_processes_are_in_the_order_of_one():
    shards = [[{"image_id": "c", "n": 1}, {"image_id": "a", "n": 2}], [{"image_id": "b", "n": 3}]]
    shards[1] += [{"image_id": "a", "n": 4}, {"image_id": "b", "n": 5}]
    assert [row["n"] for row in merged(shards, {"a": 0, "b": 1, "c": 2})] == [2, 3, 5, 1]


def test_loaders_share_the_processors(monkeypatch):
    monkeypatch.setattr("lucid_train.processes.world_size", lambda: 4)
    monkeypatch.setattr("lucid_train.processes.available_cpus", lambda: 16)
    assert (loader_workers(None), loader_workers(5)) == (2, 5)


def test_every_validation_image_is_one_process_s_and_none_has_no_images(small_config, monkeypatch):
    data = DetectionDataModule(small_config())
    shards = []
    for size, rank in ((2, 0), (2, 1), (8, 7)):
        monkeypatch.setattr("lucid_train.datamodule.world_size", lambda size=size: size)
        monkeypatch.setattr("lucid_train.datamodule.rank", lambda rank=rank: rank)
        shards.append(data.val_shard())
    assert shards == [(0, 2, 4), (1, 3, 5), (1,)]


def test_signals_are_left_as_they_were(setting):
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
