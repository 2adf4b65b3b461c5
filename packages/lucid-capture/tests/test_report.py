import json

import torch

from lucid_capture import GuardedRegion, ReplayReport, TapeBackend


def regions() -> list[GuardedRegion]:
    used = GuardedRegion("double", lambda x: x * 2, backend=TapeBackend())
    for _ in range(5):
        used(torch.ones(2))
    used(torch.ones(3))
    return [used, GuardedRegion("idle one", lambda x: x)]


def test_the_table_lists_replays_and_native_calls_by_reason() -> None:
    header, double, idle = ReplayReport.of(regions()).table().splitlines()
    assert header.split() == [
        "region",
        "state",
        "recorded",
        "replayed",
        "forward",
        "backward",
        "bytes",
        "native",
    ]
    assert double.split(maxsplit=7) == [
        "double",
        "active",
        "1",
        "4",
        "4",
        "0",
        "16",
        "1 first_sighting, 1 signature",
    ]
    assert idle.endswith("-")


def test_the_json_holds_the_same_numbers() -> None:
    double, idle = json.loads(ReplayReport.of(regions()).to_json())
    assert double["native"] == {"first_sighting": 1, "signature": 1}
    assert double["replayed"] == 4
    assert idle["retired_by"] is None
