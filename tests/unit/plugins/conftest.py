"""A user's family as a file, and registries that forget after each test what it loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registries import isolate_registries
from tests.unit.plugins.user_files import write_family


@pytest.fixture(autouse=True)
def isolated_registries() -> Iterator[None]:
    with isolate_registries():
        yield


@pytest.fixture
def family_file(tmp_path: Path) -> Path:
    return write_family(tmp_path / "my_memory.py")
