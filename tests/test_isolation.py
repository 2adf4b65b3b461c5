"""Every member stands alone: its wheel, its declared dependencies, its own tests, nothing else."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.isolation
ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [*sorted((ROOT / "packages").iterdir()), ROOT / "apps" / "lucid"]


def uv(*arguments: str, cwd: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    result = subprocess.run(["uv", *arguments], cwd=cwd, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Distribution name to built wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    uv("build", "--wheel", "--all-packages", "--out-dir", str(folder), "--quiet")
    return {wheel.name.split("-")[0].replace("_", "-"): wheel for wheel in folder.glob("*.whl")}


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def needed(name: str) -> set[str]:
    """The members that a member requires, itself included."""
    folder = next(folder for folder in FOLDERS if project(folder)["project"]["name"] == name)
    found = {name}
    for requirement in project(folder)["project"]["dependencies"]:
        if requirement.startswith("lucid-"):
            found |= needed(requirement.split("==")[0])
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_wheel_alone_passes_its_own_tests(folder, wheels, tmp_path):
    table = project(folder)
    name = table["project"]["name"]
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(uv("export", "--frozen", "--no-hashes", "--no-emit-workspace", "--quiet"))
    environment = tmp_path / "environment"
    uv("venv", "--quiet", str(environment))
    python = environment / "bin" / "python"
    uv(
        *("pip", "install", "--quiet", "--python", str(python), "--constraint", str(constraints)),
        *(str(wheels[member]) for member in sorted(needed(name))),
        *table["dependency-groups"]["dev"],
    )
    copied = tmp_path / "tests"
    shutil.copytree(folder / "tests", copied, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    module = table["tool"]["uv"]["build-backend"]["module-name"]
    where = subprocess.run(
        [python, "-c", f"import {module}; print({module}.__file__)"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert str(environment) in where.stdout, where.stderr
    shared = os.environ.get("LUCID_SHARED", str(ROOT.parent / "shared"))
    result = subprocess.run(
        [python, "-m", "pytest", "-q", str(copied)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "LUCID_SHARED": shared},
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
