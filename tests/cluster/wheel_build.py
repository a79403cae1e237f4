"""memtune's wheel, built in a copy of its sources, and commands outside of the source tree."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["build_wheel", "run_outside"]

ROOT = Path(__file__).parents[2]
SOURCES = ("platform/memtune", "search_spaces", "jobs", "pyproject.toml", "README.md", "LICENSE")


def run_outside(*command: str | Path, folder: Path) -> str:
    """The output of a command in a folder, without the variables that name the source tree or a home."""
    hidden = ("PYTHONPATH", "RAY_ADDRESS", "MLFLOW_TRACKING_URI")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not name.startswith("MEMTUNE_")
    }
    environment["MEMTUNE_CACHE"] = str(folder / "cache")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder, with the build tools of this environment."""
    for name in SOURCES:
        source, target = ROOT / name, folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run_outside(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "./source", folder=folder)
    shutil.rmtree(folder / "source")
    (wheel,) = folder.glob("*.whl")
    return wheel
