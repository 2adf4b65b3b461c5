import pytest

from lucid_train import ConfigError, FitConfig, find_run, load_config
from lucid_train.run_folder import new_run_folder, require_same


def test_runs_are_numbered_under_the_root(tmp_path):
    config = load_config("detect")
    first, second = new_run_folder(config, tmp_path), new_run_folder(config, tmp_path)
    assert [first.name, second.name] == ["detect-n-1", "detect-n-2"]


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    config = load_config("detect", {"run.output": str(tmp_path)})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    with pytest.raises(ConfigError, match="already holds a run"):
        new_run_folder(config)


def test_last_without_a_run_says_so(tmp_path):
    with pytest.raises(ConfigError, match="no run"):
        find_run(None, "last", tmp_path)
    with pytest.raises(ConfigError, match="no run"):
        find_run(tmp_path / "missing", "last", tmp_path)


def test_a_missing_checkpoint_says_so(tmp_path):
    with pytest.raises(ConfigError, match="no such checkpoint"):
        find_run(None, str(tmp_path / "x.ckpt"))


def test_last_finds_the_newest_run_and_its_checkpoint(tmp_path):
    import os

    for number in (1, 2):
        run = tmp_path / f"detect-n-{number}"
        (run / "checkpoints").mkdir(parents=True)
        (run / "config.yaml").write_text("{}")
        os.utime(run / "config.yaml", (number, number))
    (tmp_path / "detect-n-2" / "checkpoints" / "last.ckpt").write_bytes(b"")
    assert find_run(None, "last", tmp_path) == (
        tmp_path / "detect-n-2",
        tmp_path / "detect-n-2" / "checkpoints" / "last.ckpt",
    )
    assert find_run(tmp_path / "detect-n-1", "last", tmp_path)[1] is None


@pytest.mark.parametrize("resume", ["last", "checkpoint"])
def test_a_run_that_was_moved_continues_where_it_is(tmp_path, resume):
    run = tmp_path / "moved"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("{}")
    last = run / "checkpoints" / "last.ckpt"
    last.write_bytes(b"")
    if resume == "last":
        assert find_run(None, "last", tmp_path) == (run, last)
    else:
        assert find_run(None, str(last)) == (run, last)
        with pytest.raises(ConfigError, match="leave --output"):
            find_run(tmp_path / "elsewhere", str(last))


def test_a_checkpoint_outside_a_run_is_no_resume_point(tmp_path):
    (tmp_path / "x.ckpt").write_bytes(b"")
    with pytest.raises(ConfigError, match="--init"):
        find_run(None, str(tmp_path / "x.ckpt"))


OTHER = {str: "other", int: 7, float: 0.123, type(None): 3, tuple: ("other",)}
# what changes how fast a run is and not a byte of what it learns
SWITCHES = {
    ("data", "device_hsv"),
    ("data", "fused_hsv"),
    ("data", "epoch_prefetch"),
    ("data", "cache_train_images"),
    ("data", "cache_prepared_train_images"),
    ("loss", "fused_assignment"),
    *(
        ("replay", key)
        for key in FitConfig.model_fields["replay"].annotation.model_fields
        if key != "compile_step"
    ),
}
FREE = {
    ("data", "path"),
    ("data", "workers"),
    ("run", "output"),
    ("run", "checkpoint_steps"),
    ("run", "fingerprint"),
    ("run", "loggers"),
    ("optimizer", "skip_nonfinite"),
    *SWITCHES,
}
SETTINGS = [
    (section, key)
    for section, field in FitConfig.model_fields.items()
    for key in field.annotation.model_fields
    if (section, key) not in FREE
]


@pytest.mark.parametrize(("section", "key"), SETTINGS)
def test_every_other_setting_must_stay_as_it_was(section, key):
    stored = FitConfig()
    inside = getattr(stored, section)
    value = getattr(inside, key)
    changed = inside.model_copy(update={key: not value if isinstance(value, bool) else OTHER[type(value)]})
    with pytest.raises(ConfigError, match=rf"{section}\.{key} = "):
        require_same(stored, stored.model_copy(update={section: changed}))


@pytest.mark.parametrize(("section", "key"), sorted(SWITCHES))
def test_a_run_goes_on_with_another_switch(section, key):
    stored = FitConfig()
    inside = getattr(stored, section)
    value = getattr(inside, key)
    other = {"mode": "step", "backend": "tape"}.get(key, not value)
    require_same(stored, stored.model_copy(update={section: inside.model_copy(update={key: other})}))


def test_a_resumed_run_may_move_and_change_its_workers_only():
    stored = load_config("detect", {"data.path": "a", "data.workers": "2"})
    require_same(stored, load_config("detect", {"data.path": "b", "data.workers": "0"}))
    with pytest.raises(ConfigError, match=r"run\.epochs = 99"):
        require_same(stored, load_config("detect", {"data.path": "a", "run.epochs": "99"}))
