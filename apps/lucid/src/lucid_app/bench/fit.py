"""``lucid bench fit``: two configurations beside each other in alternating pairs of fresh processes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lucid_app.bench.pairs import LIBRARIES, Pair, Plan, arm_order, measure_pairs
from lucid_app.bench.record import Record, check_result, command_line, finish, machine, save, today
from lucid_app.bench.verdict import bytes_table, compared_bytes, reduction, runs_table, summary, verdict
from lucid_app.checks import check_at_least, check_data, check_file_target, check_folder_target
from lucid_app.console import err
from lucid_app.fit import split_setting
from lucid_train import ConfigError, FitConfig, load_config

HELP = """Measure two configurations of a fit in alternating pairs of fresh processes.

After a warm-up pair that is not counted, every pair fits both configurations, each in a process of its own, and the
order alternates. Every run leaves SHA-256 digests of losses, model, optimizer, scheduler, average and metrics: the
baseline must repeat itself before anything is claimed, and the last line says what was measured and no more. No run is
dropped for being slow. A last pair at a larger batch is always shown.

A measurement that was interrupted continues where it stopped when it is started again with the same --output.

Examples:

    lucid bench fit --baseline plain.yaml --candidate cached.yaml --data ~/photos --output cached-bench
"""


def fit(
    context: typer.Context,
    baseline: Annotated[Path, typer.Option(help="Configuration (YAML) to compare with.")],
    candidate: Annotated[Path, typer.Option(help="Configuration (YAML) that may be faster.")],
    pairs: Annotated[int, typer.Option(help="Counted pairs; a claim needs five.")] = 5,
    screen_batch: Annotated[
        int | None, typer.Option(help="Batch of the last pair; four times the baseline's when absent.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder of both, in place of their own.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value for both; repeat as needed.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder of the measurement: every pair, and the result.")
    ] = Path("bench-fit"),
    result: Annotated[
        Path | None, typer.Option(help="Write the result to this .json too, and as Markdown beside it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Measure two configurations of a fit in alternating pairs of fresh processes."""
    check_at_least("--pairs", pairs, 1)
    check_at_least("--screen-batch", screen_batch, 1)
    check_folder_target("--output", output)
    check_result(result, "--result")
    check_file_target("--result", result)
    configs = {
        "baseline": read_config(baseline, data, settings),
        "candidate": read_config(candidate, data, settings),
    }
    batch = screen_batch or 4 * max(stated_batch(arm, config) for arm, config in configs.items())
    plan = Plan({"baseline": str(baseline), "candidate": str(candidate)}, configs, batch)
    output.mkdir(parents=True, exist_ok=True)
    found, screen = measure_pairs(plan, pairs, output, lambda line: None if quiet else err.print(line))
    record = Record(
        "fit",
        command_line(context),
        machine(plan.device, LIBRARIES),
        {
            "What differs": plan.differences() or [{"setting": "nothing: this is the noise of the machine"}],
            "Summary": summary(found),
            "Every run": runs_table(found, [arm_order(str(n)) for n in range(1, pairs + 1)]),
            "Bytes": bytes_table(found, compared_bytes(found)),
            "Larger batch": [{"batch": batch} | larger_batch(screen)],
        },
        (verdict(found, screen, scope(plan), batch),),
        today(),
    )
    save(record, output / "result.json")
    finish(record, as_json, result)


fit.__doc__ = HELP


def stated_batch(arm: str, config: FitConfig) -> int:
    """Return the batch of an arm.

    Raises:
        ConfigError: it is left to be found, which two runs could do differently.
    """
    if config.data.batch is None:
        raise ConfigError(
            f"--{arm}: data.batch is chosen by the run; state a number, so that both arms have one"
        )
    return config.data.batch


def larger_batch(screen: Pair | str) -> dict[str, Any]:
    """Return the columns of the pair at the larger batch, or why there is none."""
    if isinstance(screen, str):
        return {"not run": screen}
    before, after = (screen[arm]["fit_s"] for arm in ("baseline", "candidate"))
    return {
        "baseline, s": round(before, 2),
        "candidate, s": round(after, 2),
        "reduction, %": round(reduction(before, after), 2),
    }


def read_config(file: Path, data: Path | None, settings: list[str] | None) -> FitConfig:
    """Return the configuration of one arm.

    Raises:
        ConfigError: no such file, a key or value that cannot be used, or data that is not named or not there.
    """
    if not file.is_file():
        raise ConfigError(
            f"{file}: no such configuration; give a YAML file, such as the config.yaml of a run"
        )
    overrides = {} if data is None else {"data.path": data}
    config = load_config(file, overrides, settings=dict(split_setting(one) for one in settings or ()))
    if config.data.path is None:
        raise ConfigError(f"{file}: data.path is not set; set it there, or for both with --data DIR")
    check_data(config.data.path, key="data.path")
    return config


def scope(plan: Plan) -> str:
    """Return on what the figures were measured."""
    config = plan.configs["baseline"]
    side = f"{config.data.image_size} px" if config.data.image_size else "its own canvas"
    epochs = f"{config.run.epochs} epoch{'s' if config.run.epochs > 1 else ''}"
    where = machine(plan.device).get("device", "this processor")
    data = config.data.path.name if config.data.path else ""
    return (
        f"{config.model.task} {config.model.size} at {side}, batch {config.data.batch}, precision "
        f"{config.run.precision}, {epochs} of {data}, seed {config.run.seed}, on {where}; "
        "other workloads and machines may differ"
    )
