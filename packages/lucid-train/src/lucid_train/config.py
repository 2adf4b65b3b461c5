"""The typed configuration of a fit: sections, recipes, overrides.

A value of ``None`` means "choose for me"; :func:`lucid_train.auto.resolve` replaces every such value once the
data set is open, and the resolved configuration is what ``config.yaml`` of a run holds.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Task = Literal["detect", "segment", "pose", "obb"]
Size = Literal["n", "s", "m", "l", "x"]
Precision = Literal["32", "16-mixed", "bf16-mixed"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Layout = Literal["coco", "yolo", "voc", "dota"]

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Setting:
    """A key of the configuration where a message names it, with its value (Ellipsis: the key alone).

    Example:
        >>> str(Setting("run.precision", "16-mixed")), str(Setting("model.freeze"))
        ("run.precision = '16-mixed'", 'model.freeze')
    """

    key: str
    value: Any = ...

    def __str__(self) -> str:
        """Return key and value, text in quotes as YAML can tell it from a number, and the key alone without one."""
        shown = repr(self.value) if isinstance(self.value, str) else self.value
        return self.key if self.value is ... else f"{self.key} = {shown}"


class ConfigError(ValueError):
    """A configuration key or value that cannot be used; the message names the key and the remedy.

    Its arguments are the message in pieces. A key is a :class:`Setting` among them, so that a command line can name the
    option that was written in its place.

    Example:
        >>> str(ConfigError(Setting("run.epochs", 0), ": too few"))
        'run.epochs = 0: too few'
    """

    def __str__(self) -> str:
        """Return the message."""
        return "".join(map(str, self.args))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class DataConfig(_Section):
    """Where the images come from and how they are batched.

    ``batch`` null (or ``auto``) is the largest power of two of images, up to 64, that this device holds.
    ``multi_scale`` 0.5 trains each step on a canvas of half to one and a half times the size, in steps of 32 pixels;
    the size is a function of seed, epoch and step. ``balance`` t repeats images of classes that are in less than this
    share of the images, sqrt(t / share) times.

    The last five change how fast batches come, not a byte of what is learned: ``device_hsv`` leaves colour to the
    training device, ``fused_hsv`` has Numba compile it for the CPU, ``epoch_prefetch`` has the workers begin the next
    epoch while validation runs, and the two caches keep training images in shared memory, as decoded or as fitted to
    the canvas.
    """

    path: Path | None = None
    layout: Layout | None = None
    label_store: Path | None = None
    train_split: str | None = None
    val_split: str | None = None
    image_size: Annotated[int, Field(ge=32, multiple_of=32)] | None = None
    multi_scale: Annotated[float, Field(ge=0, lt=1)] = 0.0
    balance: Annotated[float, Field(gt=0, le=1)] | None = None
    batch: Annotated[int, Field(ge=1)] | None = 16
    workers: Annotated[int, Field(ge=0)] | None = None
    device_hsv: bool = False
    fused_hsv: bool = False
    epoch_prefetch: bool = False
    cache_train_images: bool = False
    cache_prepared_train_images: bool = False

    @field_validator("batch", mode="before")
    @classmethod
    def _auto(cls, value: object) -> object:
        return None if value == "auto" else value


class AugmentConfig(_Section):
    """Overrides of the augmentation policy of the size and task; ``None`` keeps the policy's value."""

    mosaic: Fraction | None = None
    mixup: Fraction | None = None
    copy_paste: Fraction | None = None
    scale: Annotated[float, Field(ge=0, lt=1)] | None = None
    translate: Fraction | None = None
    degrees: NonNegative | None = None
    shear: NonNegative | None = None
    hue: Fraction | None = None
    saturation: Fraction | None = None
    value: Fraction | None = None
    flip_horizontal: Fraction | None = None
    flip_vertical: Fraction | None = None
    close_mosaic: Annotated[int, Field(ge=0)] | None = None


class ModelConfig(_Section):
    """Which detector, the weights it starts from, and the stages that keep them.

    ``freeze`` names stages (``backbone``, ``neck``, ``head``) that learn nothing, statistics included.
    """

    task: Task = "detect"
    size: Size = "n"
    init: Path | None = None
    freeze: tuple[Literal["backbone", "neck", "head"], ...] = ()


class OptimizerConfig(_Section):
    """MuSGD and its learning-rate schedule.

    ``skip_nonfinite`` is how many steps in a row may be left out because a loss of theirs is not finite; with 0 the
    first one ends the run.
    """

    lr: Positive | None = None
    final_factor: Annotated[float, Field(gt=0, le=1)] = 0.01
    warmup_epochs: NonNegative | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    weight_decay: NonNegative = 5e-4
    w_muon: NonNegative = 0.5
    w_sgd: NonNegative = 0.5
    ns_steps: Annotated[int, Field(ge=1)] = 5
    clip_norm: Positive | None = 10.0
    accumulate: Annotated[int, Field(ge=1)] = 1
    skip_nonfinite: Annotated[int, Field(ge=0)] = 0


class LossConfig(_Section):
    """Gains of the objective, those of other tasks unused, and the progressive branch weight.

    ``paired_density`` (pose) evaluates the density of both branches in one call, which changes rounding.
    ``fused_assignment`` assigns labels by kernels with the same bytes, on an NVIDIA device with Triton.
    """

    box_gain: NonNegative = 7.5
    class_gain: NonNegative | None = None
    l1_gain: NonNegative = 6.0
    mask_gain: NonNegative = 2.5
    semantic_gain: NonNegative = 0.5
    angle_gain: NonNegative = 0.25
    rle_gain: NonNegative = 1.0
    oks_gain: NonNegative = 24.0
    visibility_gain: NonNegative = 1.0
    paired_density: bool = False
    fused_assignment: bool = False
    alpha_initial: Fraction = 0.8
    alpha_final: Fraction = 0.1


class ReplayConfig(_Section):
    """What is recorded once and replayed; nothing here but ``compile_step`` changes a byte of what is learned.

    ``mode`` ``step`` turns on every switch that fits the run and is not off, ``auto`` keeps them only where they are
    faster; with ``none`` a switch that is null is off. The tape is a CPU's stand-in for CUDA graphs: slower, for
    following what a recording does. ``capture_step`` (detect, obb) records network, assignment and loss as one;
    ``compile_step`` (detect) compiles them, with the tape it only traces them. These two are on when set to true,
    whatever the mode.
    """

    mode: Literal["none", "auto", "step"] = "none"
    backend: Literal["auto", "cuda", "tape"] = "auto"
    capture_network: bool | None = None
    capture_segment_heads: bool | None = None
    capture_loss: bool | None = None
    capture_orthogonalization: bool | None = None
    capture_updates: bool | None = None
    capture_gradient_norm: bool | None = None
    capture_step: bool | None = None
    compile_step: bool | None = None


class EmaConfig(_Section):
    """The weight average that is evaluated and deployed."""

    enabled: bool = True
    decay: Annotated[float, Field(ge=0, lt=1)] | None = None
    tau: Positive | None = None


class RunConfig(_Section):
    """Length, place, hardware and bookkeeping of the run.

    ``patience`` ends the run after this many validations without a higher headline metric. ``loggers`` names those
    besides ``metrics.csv``: ``tensorboard``, ``wandb``, ``mlflow``. ``both_heads`` scores the one-to-many branch with
    suppression too, in columns ``val/nms_…``.
    """

    output: Path | None = None
    epochs: Annotated[int, Field(ge=1)] = 50
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    device: Device = "auto"
    devices: Annotated[int, Field(ge=1)] = 1
    precision: Precision = "32"
    validate_every: Annotated[int, Field(ge=1)] = 1
    both_heads: bool = False
    patience: Annotated[int, Field(ge=1)] | None = None
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    checkpoint_steps: Annotated[int, Field(ge=1)] | None = None
    fingerprint: bool = False


class FitConfig(_Section):
    """Everything a fit depends on.

    Example:
        >>> FitConfig().run.epochs
        50
    """

    data: DataConfig = DataConfig()
    augment: AugmentConfig = AugmentConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loss: LossConfig = LossConfig()
    ema: EmaConfig = EmaConfig()
    replay: ReplayConfig = ReplayConfig()
    run: RunConfig = RunConfig()

    def updated(self, **sections: Mapping[str, Any]) -> "FitConfig":
        """Return a validated copy with the given keys of the given sections replaced."""
        document = self.model_dump()
        for section, values in sections.items():
            document[section].update(values)
        return parse_config(document, "the configuration")

    def to_yaml(self) -> str:
        """Return the configuration as YAML text that :func:`load_config` reads back unchanged."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def recipes() -> tuple[str, ...]:
    """Return the names of the packaged recipes, sorted.

    Example:
        >>> "detect" in recipes()
        True
    """
    folder = resources.files("lucid_train") / "recipes"
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_config(
    recipe: str | Path = "detect",
    overrides: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
) -> FitConfig:
    """Return the configuration of a recipe with values replaced.

    Args:
        recipe: a packaged recipe's name (with or without ``.yaml``) or the path of a YAML file.
        overrides: ``"section.key"`` to value, taken as it is.
        settings: ``"section.key"`` to text that is read as YAML, so ``"3"`` is a number; applied last.

    Raises:
        ConfigError: unknown recipe, unreadable YAML, unknown key or unusable value.

    Example:
        >>> load_config("detect", {"run.epochs": 3}, {"ema.enabled": "false"}).run.epochs
        3
    """
    text, source = _recipe_text(str(recipe))
    document = _parsed(text, source) or {}
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: expected a mapping of sections, got {type(document).__name__}")
    stated: dict[str, str | Setting] = {}  # what was written where a value is not the recipe's
    for dotted, value in (overrides or {}).items():
        _put(document, dotted, value, source)
        stated[dotted] = Setting(dotted, value)
    for dotted, words in (settings or {}).items():
        _put(document, dotted, _parsed(words, f"--set {dotted}"), source)
        stated[dotted] = f"--set {dotted}={words}"
    return parse_config(document, source, stated)


def _parsed(text: str, source: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark
        place = f"{source}:{at.line + 1}:{at.column + 1}" if at and "\n" in text else source
        raise ConfigError(f"{place}: not readable as YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not readable as YAML: {' '.join(str(error).split())}") from error


def _put(document: dict[str, Any], dotted: str, value: object, source: str) -> None:
    section, dot, key = dotted.partition(".")
    if not dot or not key:
        raise ConfigError(f"--set {dotted}: write it as section.key=value, for example run.epochs=50")
    _reject_unknown(dotted, "--set")
    if document.get(section) is None:
        document[section] = {}
    if not isinstance(document[section], dict):
        raise ConfigError(f"{source}: section {section!r} must hold keys, got {document[section]!r}")
    document[section][key] = value


def parse_config(
    document: Mapping[str, Any], source: str, stated: Mapping[str, str | Setting] | None = None
) -> FitConfig:
    """Return the validated configuration of a nested mapping.

    Args:
        document: values by section and key.
        source: where they come from.
        stated: ``"section.key"`` to what a message says in place of source, key and value.

    Raises:
        ConfigError: one line naming ``source``, the key, the value and what was expected.
    """
    document = {section: {} if values is None else values for section, values in document.items()}
    for section, values in document.items():
        _reject_unknown(str(section), source)
        for key in values if isinstance(values, Mapping) else ():
            _reject_unknown(f"{section}.{key}", source)
    try:
        return FitConfig.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        parts = [str(part) for part in first["loc"]]
        # of a list, the place is that of the item
        said = (stated or {}).get(".".join(parts[:2]))
        where = (said,) if said else (f"{source}: ", Setting(".".join(parts), first["input"]))
        raise ConfigError(*where, f": {_expected(first)}") from error


_EXPECTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    "tuple_type": "must be a list",
    "path_type": "must be a path",
}


def _expected(found: Mapping[str, Any]) -> str:
    """Return what was expected of a value, from one of pydantic's errors."""
    said = _EXPECTED.get(found["type"], str(found["msg"]).replace("Input should be", "must be", 1))
    # the one number that may be chosen by the machine
    return f"{said}, or auto" if found["loc"] == ("data", "batch") and said in _EXPECTED.values() else said


def _recipe_text(recipe: str) -> tuple[str, str]:
    path = Path(recipe)
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8"), str(path)
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: not a text file, so no recipe ({error.reason})") from error
    packaged = resources.files("lucid_train") / "recipes" / f"{recipe.removesuffix('.yaml')}.yaml"
    if path.name == recipe and packaged.is_file():
        return packaged.read_text(encoding="utf-8"), f"recipe {recipe}"
    hint = f"; did you mean {close[0]}?" if (close := difflib.get_close_matches(recipe, recipes())) else ""
    raise ConfigError(
        f"recipe {recipe!r}: neither a file nor a packaged recipe ({', '.join(recipes())}){hint}"
    )


def _reject_unknown(dotted: str, source: str) -> None:
    section, _, key = dotted.partition(".")
    known = FitConfig.model_fields
    if section not in known:
        raise ConfigError(f"{source}: unknown section {section!r}{_suggest(section, list(known))}")
    inside = known[section].annotation
    assert isinstance(inside, type)
    assert issubclass(inside, BaseModel)
    if key and key not in inside.model_fields:
        raise ConfigError(
            f"{source}: unknown key {dotted!r}{_suggest(key, list(inside.model_fields), section)}"
        )


def _suggest(word: str, known: list[str], section: str = "") -> str:
    prefix = f"{section}." if section else ""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    return f"; known: {', '.join(prefix + name for name in known)}"
