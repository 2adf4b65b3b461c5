import pytest
import yaml

from lucid_train import ConfigError, FitConfig, load_config, recipes


def test_every_packaged_recipe_loads():
    assert {"detect", "demo", "overfit"} <= set(recipes())
    for name in recipes():
        assert isinstance(load_config(name), FitConfig)


def test_there_is_a_recipe_for_each_task_size_and_purpose():
    for task in ("detect", "segment", "pose", "obb"):
        assert load_config(task).model.task == task
    epochs = [load_config(f"long-{size}") for size in "nsmlx"]
    assert [config.model.size for config in epochs] == list("nsmlx")
    assert all(config.run.epochs >= 300 for config in epochs)
    overfit = load_config("overfit", {"model.task": "segment"})
    assert overfit.data.train_split == overfit.data.val_split == "train"
    assert load_config("finetune").run.both_heads


def test_a_recipe_is_found_with_and_without_its_suffix():
    assert load_config("detect") == load_config("detect.yaml")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("data.image_size", 100, "data.image_size = 100: must be a multiple of 32"),
        ("data.batch", "many", "data.batch = 'many': must be a whole number, or auto"),
        ("data.batch", 0, "data.batch = 0: must be greater than or equal to 1"),
        ("run.epochs", 2.5, "run.epochs = 2.5: must be a whole number"),
        ("optimizer.lr", "big", "optimizer.lr = 'big': must be a number"),
        ("run.both_heads", "perhaps", "run.both_heads = 'perhaps': must be true or false"),
        ("run.precision", "fp8", "must be '32', '16-mixed' or 'bf16-mixed'"),
        ("model.freeze", 3, "model.freeze = 3: must be a list"),
        ("data.path", 3, "data.path = 3: must be a path"),
    ],
)
def test_what_was_expected_of_a_value_is_said_in_plain_words(key, value, said):
    with pytest.raises(ConfigError) as refused:
        load_config("detect", {key: value})
    assert str(refused.value).endswith(said)


def test_written_yaml_reads_back_unchanged(tmp_path):
    config = load_config(
        "detect", {"run.epochs": 7, "run.precision": "bf16-mixed", "data.path": "some where/ü"}
    )
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(file) == config


def test_settings_are_read_as_yaml():
    config = load_config(
        "detect", None, {"optimizer.lr": "5e-3", "ema.enabled": "false", "optimizer.clip_norm": "null"}
    )
    assert config.optimizer.lr == 0.005
    assert config.ema.enabled is False
    assert config.optimizer.clip_norm is None


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"run.epoch": "3"}, ["run.epoch", "did you mean run.epochs?"]),
        ({"optimiser.lr": "1"}, ["optimiser", "did you mean optimizer?"]),
        ({"epochs": "3"}, ["section.key=value"]),
        ({"run.epochs": "0"}, ["run.epochs", "0"]),
        ({"data.image_size": "100"}, ["data.image_size", "100", "32"]),
        ({"model.size": "q"}, ["model.size", "'q'"]),
        ({"run.precision": "64"}, ["run.precision"]),
        ({"optimizer.lr": "-1"}, ["optimizer.lr", "-1"]),
    ],
)
def test_a_wrong_override_names_key_value_and_remedy(overrides, words):
    with pytest.raises(ConfigError) as caught:
        load_config("detect", overrides)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(ConfigError, match="did you mean detect"):
        load_config("detct")


def test_yaml_that_would_run_code_is_refused(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("run: !!python/object/apply:os.system ['touch /tmp/never']\n")
    with pytest.raises(ConfigError, match="not readable as YAML"):
        load_config(file)


def test_a_slip_in_yaml_is_named_with_its_place(tmp_path):
    file = tmp_path / "slip.yaml"
    file.write_text("run:\n  epochs: 3\n bad: [\n")
    with pytest.raises(ConfigError, match=r"slip\.yaml:3:\d+: not readable as YAML: [^\n]+$"):
        load_config(file)


@pytest.mark.parametrize("text", ["2024", "a: b", "a #1", "null", "[x"])
def test_overrides_are_taken_as_they_are(text):
    assert str(load_config("detect", {"data.path": text}).data.path) == text


@pytest.mark.parametrize(("recipe", "words"), [("run:\n", None), ("run: 3\n", "run"), ("run: [\n", "YAML")])
def test_sections_that_hold_no_keys_are_empty_or_named(tmp_path, recipe, words):
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe)
    if words is None:
        assert load_config(file, {"run.epochs": 2}).run.epochs == 2
    else:
        with pytest.raises(ConfigError, match=words):
            load_config(file, {"run.epochs": 2})


def test_settings_that_are_no_yaml_name_their_key():
    with pytest.raises(ConfigError, match=r"--set run\.output"):
        load_config("detect", None, {"run.output": "[1"})


def test_infinite_settings_and_seeds_out_of_range_are_refused():
    for key, value in (("optimizer.lr", float("inf")), ("optimizer.lr", float("nan")), ("run.seed", 2**32)):
        with pytest.raises(ConfigError, match=key):
            load_config("detect", {key: value})


def test_a_binary_recipe_is_named(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"x\.yaml"):
        load_config(tmp_path / "x.yaml")


def test_a_recipe_that_is_no_mapping_is_refused(tmp_path):
    file = tmp_path / "list.yaml"
    file.write_text("- 1\n")
    with pytest.raises(ConfigError, match="expected a mapping"):
        load_config(file)


def test_configurations_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        load_config("detect").run.epochs = 3


def test_the_precision_written_as_a_number_in_yaml_is_read_as_text(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"run": {"precision": "32"}}))
    assert load_config(file).run.precision == "32"
