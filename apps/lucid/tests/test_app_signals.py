"""A command that is stopped in the middle leaves nothing half-written."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lucid_data import synthetic

# a minute's work, so that the signal comes in the middle of it
SLOW = """
import signal, time
from PIL import Image
from lucid_app.main import main
Image.Image.save = lambda *_, **__: time.sleep(0.1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
main()
"""


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 0), (signal.SIGTERM, 2)])
def test_a_stopped_tile_takes_its_part_away(tmp_path, number, workers):
    data = synthetic.write_coco(tmp_path / "data", splits={"train": 24}, size=128)
    (tmp_path / "out").mkdir()
    words = ["data", "tile", data, tmp_path / "out" / "tiles", "--task", "detect", "--patch", "32"]
    words += ["--overlap", "8", "--workers", str(workers)]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *map(str, words)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (parts := list((tmp_path / "out").iterdir())) and process.poll() is None:
        time.sleep(0.01)
    assert parts, process.stderr.read()
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said
    assert not list((tmp_path / "out").iterdir())
