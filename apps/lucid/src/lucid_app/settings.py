"""The options of ``lucid fit`` that set a key of the configuration, which says their defaults and their words."""

from collections.abc import Mapping
from typing import Any

import typer

from lucid_app.keys import KEYS
from lucid_app.options import choice, words_of
from lucid_train import REPLAY_SWITCHES, FitConfig, load_config

_DEFAULTS = load_config().model_dump(mode="json")


def setting(name: str, help: str, panel: str | None = None, more: str = "") -> Any:
    """Return the option of a parameter in ``KEYS``: the default is shown, and words are those of the key.

    ``more`` follows the list of words. An option that is not given stays None, and the recipe decides.
    """
    section, _, key = KEYS[name].partition(".")
    annotation: Any = FitConfig.model_fields[section].annotation
    words = words_of(annotation.model_fields[key].annotation)
    value = _DEFAULTS[section][key]
    if value is False or (value is None and name in REPLAY_SWITCHES):
        value = "off"
    default = "" if value is None or value == [] else f" [default: {value}]"
    if words:
        return choice(help, words, more=more + default, panel=panel)
    return typer.Option(help=help + default, rich_help_panel=panel)


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command line by key of the configuration, without those that were not given."""
    named = {KEYS[name]: value for name, value in parameters.items() if name in KEYS}
    # a flag that was not given, and an option that may be given again and was not
    return {key: value for key, value in named.items() if value is not None and value != []}
