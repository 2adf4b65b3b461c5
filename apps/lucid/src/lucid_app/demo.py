"""``lucid demo``: the main job on scenes made on the spot."""

from pathlib import Path
from typing import Annotated

import typer

from lucid_app.checks import check_folder_target
from lucid_app.console import Quiet, counting, err, out, print_json
from lucid_app.fit import run_fit, split_setting
from lucid_app.keys import naming_options
from lucid_data import synthetic
from lucid_train import ConfigError, chosen_device, evaluate, load_config


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the scenes and the run.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of scenes, weights and order.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Quiet = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value; repeat as needed.")
    ] = None,
) -> None:
    """Make a small labelled set of drawn scenes, train on it, score held-out scenes and draw predictions.

    Needs no data and, on two CPU cores, under four minutes.

    Example:
        lucid demo --output /tmp/demo
    """
    scenes = output / "scenes"
    if (output / "run" / "config.yaml").exists():
        raise ConfigError(f"{output} already holds a demo; choose another --output or remove it")
    overrides = {"data.path": scenes, "run.output": output / "run", "run.seed": seed}
    asked = dict(split_setting(one) for one in settings or ())
    with naming_options({"run.seed"} - asked.keys()):
        config = load_config("demo", overrides, settings=asked)
    chosen_device(config.run.device)
    check_folder_target("--output", output)
    err.print(f"drawing scenes into {scenes}", soft_wrap=True)
    synthetic.write_coco(scenes, splits={"train": 480, "val": 96}, size=128, seed=seed)
    result = run_fit(config, quiet=quiet or as_json)
    with counting("scoring", quiet=quiet or as_json) as observe:
        report = evaluate(result.last_checkpoint, scenes, split="val", path="e2e", observer=observe)
    numbers = report["report"]["e2e"]
    if as_json:
        print_json({**result.to_dict(), "report": report})
        return
    out.print(f"held-out scenes: box AP50-95 {numbers['map']:.4f}  AP50 {numbers['map_50']:.4f}")
    out.print(f"curves and predictions: {result.run / 'plots'}", soft_wrap=True)
    best = result.best_checkpoint or result.last_checkpoint
    out.print(f"next: lucid predict {best} {scenes}/val --draw", soft_wrap=True)
