"""The shipped cluster files, filled in as a user would, in a project of their own."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[4]
SHIPPED = {"aws": "cluster.yaml", "gcp": "clusters/gcp.yaml", "onprem": "clusters/onprem.yaml"}

Break = Callable[[dict[str, Any]], object]


def filled(text: str) -> str:
    """A shipped file with every placeholder replaced."""
    return re.sub(r"EDIT-([\w-]+)", r"my-\1", text).replace("192.0.2.", "10.0.0.")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's folder with the files that the shipped cluster files mount."""
    (tmp_path / "platform" / "memtune").mkdir(parents=True)
    (tmp_path / "clusters").mkdir()
    shutil.copy(ROOT / "clusters" / "requirements.txt", tmp_path / "clusters" / "requirements.txt")
    return tmp_path


@pytest.fixture
def write(project: Path) -> Callable[[str, Break], Path]:
    """Write one of the shipped files, filled in and then broken in one place; its path."""

    def written(kind: str, broken: Break) -> Path:
        config = yaml.safe_load(filled((ROOT / SHIPPED[kind]).read_text()))
        broken(config)
        path = project / "broken.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    return written
