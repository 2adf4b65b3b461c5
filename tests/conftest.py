import os
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def members() -> dict[str, Path]:
    """Module name to folder of every member."""
    folders = [*sorted((ROOT / "packages").iterdir()), ROOT / "apps" / "lucid"]
    found = {}
    for folder in folders:
        table = tomllib.loads((folder / "pyproject.toml").read_text())
        found[table["tool"]["uv"]["build-backend"]["module-name"]] = folder
    return found


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it are skipped without."""
    folder = Path(os.environ.get("LUCID_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip("the real data sets (../shared/data) are not here")
    return folder
