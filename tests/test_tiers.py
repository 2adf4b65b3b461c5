"""The dependency table is law: a package imports lower tiers and declared dependencies, nothing else."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TIERS = {
    "lucid_geometry": set(),
    "lucid_capture": set(),
    "lucid_optim": {"lucid_capture"},
    "lucid_data": {"lucid_geometry"},
    "lucid_models": {"lucid_geometry", "lucid_capture"},
    "lucid_train": {"lucid_geometry", "lucid_capture", "lucid_optim", "lucid_data", "lucid_models"},
    "lucid_viz": {"lucid_geometry", "lucid_data", "lucid_models"},
    "lucid_app": {
        "lucid_geometry",
        "lucid_capture",
        "lucid_optim",
        "lucid_data",
        "lucid_models",
        "lucid_train",
        "lucid_viz",
    },
}
ONLY_IN = {"matplotlib": "lucid_viz", "lightning": "lucid_train", "typer": "lucid_app"}
IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)


def imports(folder: Path) -> set[str]:
    return {name for file in folder.rglob("*.py") for name in IMPORT.findall(file.read_text())}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True)


def lint_imports(cwd: Path) -> subprocess.CompletedProcess:
    code = (
        "import sys; from importlinter.cli import lint_imports_command as c; sys.argv=['lint-imports']; c()"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)


def test_members_import_only_the_members_their_tier_allows(members):
    for module, folder in members.items():
        used = {name.split(".")[0] for name in imports(folder / "src")} & set(TIERS)
        assert used - {module} <= TIERS[module], module


def test_members_use_each_other_through_top_level_names_only(members):
    for module, folder in members.items():
        deep = {name for name in imports(folder / "src") if name.split(".")[0] in TIERS and "." in name}
        assert {name for name in deep if name.split(".")[0] != module} == set(), module


def test_matplotlib_lightning_and_typer_each_have_one_home(members):
    for module, folder in members.items():
        used = {name.split(".")[0] for name in imports(folder / "src")}
        for library, home in ONLY_IN.items():
            assert library not in used or module == home, f"{module} imports {library}"


def test_members_require_each_other_by_exact_version(members):
    for folder in members.values():
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for requirement in project["dependencies"]:
            if requirement.startswith("lucid-"):
                assert requirement.endswith(f"=={project['version']}"), requirement


def test_the_import_linter_accepts_the_tree(root):
    result = lint_imports(root)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def copy_of_the_tree(root, tmp_path):
    ignore = shutil.ignore_patterns("__pycache__", "tests", "docs")
    for folder in ("packages", "apps"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=ignore)
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def lint_copy(tree: Path) -> subprocess.CompletedProcess:
    """Run the import linter on a copy: its sources come before the installed ones."""
    paths = [str(path) for path in sorted(tree.glob("packages/*/src")) + sorted(tree.glob("apps/*/src"))]
    code = (
        f"import sys; sys.path[:0] = {paths!r}; sys.argv=['lint-imports', '--no-cache'];"
        "from importlinter.cli import lint_imports_command as c; c()"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True)


def test_the_import_linter_rejects_an_import_of_a_higher_tier(copy_of_the_tree):
    file = copy_of_the_tree / "packages/lucid-geometry/src/lucid_geometry/boxes.py"
    assert lint_copy(copy_of_the_tree).returncode == 0
    file.write_text(file.read_text() + "\nimport lucid_train\n")
    result = lint_copy(copy_of_the_tree)
    assert result.returncode != 0
    assert "lucid_geometry" in result.stdout


def test_the_dependency_check_rejects_an_undeclared_import(copy_of_the_tree):
    member = copy_of_the_tree / "packages/lucid-geometry"
    assert run("deptry", "src", cwd=member).returncode == 0
    file = member / "src/lucid_geometry/boxes.py"
    file.write_text(file.read_text() + "\nimport rich\n")
    result = run("deptry", "src", cwd=member)
    assert result.returncode != 0
    assert "rich" in result.stdout + result.stderr


def test_the_dependency_check_rejects_a_dependency_that_is_not_used(copy_of_the_tree):
    member = copy_of_the_tree / "packages/lucid-geometry"
    project = member / "pyproject.toml"
    project.write_text(project.read_text().replace("dependencies = [", 'dependencies = [\n  "rich>=13",', 1))
    assert run("deptry", "src", cwd=member).returncode != 0
