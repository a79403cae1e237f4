"""The shipped cluster files with replaced placeholders, in a temporary project."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[4]
SHIPPED = {"aws": "cluster.yaml", "gcp": "clusters/gcp.yaml", "onprem": "clusters/onprem.yaml"}

SSH_PROGRAM = "platform/memtune/ray_backend/clusters/bin/ssh"

AddFault = Callable[[dict[str, Any]], object]


def fill_placeholders(text: str) -> str:
    """A shipped file with every placeholder replaced."""
    return re.sub(r"EDIT-([\w-]+)", r"my-\1", text).replace("192.0.2.", "10.0.0.")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with the files that the shipped cluster files mount."""
    (tmp_path / "platform" / "memtune").mkdir(parents=True)
    (tmp_path / "clusters").mkdir()
    for name in ("clusters/requirements.txt", "clusters/install_uv.sh", SSH_PROGRAM):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def write(project: Path) -> Callable[[str, AddFault], Path]:
    """Write a shipped file with filled placeholders and one fault; returns its path."""

    def write_file(kind: str, add_fault: AddFault) -> Path:
        config = yaml.safe_load(fill_placeholders((ROOT / SHIPPED[kind]).read_text()))
        if "ssh_private_key" in config["auth"]:
            config["auth"]["ssh_private_key"] = "my-key"
            (project / "my-key").touch()
        add_fault(config)
        path = project / "broken.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    return write_file
