"""Corpora are imported, stored and verified without torch; files are hashed in one module."""

import subprocess
import sys

from tests.architecture.source import PATHS, SOURCE, find_imported_names

HASHING = {"storage/digests.py", "values.py", "corpora/importing/division.py"}
"""The digest of values lies below storage; the division of a text into splits hashes lines with BLAKE2."""


def test_only_batching_imports_torch() -> None:
    modules = sorted(
        ".".join(("memtune", *path.relative_to(SOURCE).with_suffix("").parts))
        for folder in (SOURCE / "corpora", SOURCE / "storage")
        for path in folder.rglob("*.py")
        if "batching" not in path.parts and path.name != "__init__.py"
    )
    program = "import importlib, sys\nsys.modules['torch'] = None\n" + "".join(
        f"importlib.import_module({name!r})\n" for name in modules
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=SOURCE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_files_are_hashed_in_one_module() -> None:
    users = {str(path.relative_to(SOURCE)) for path in PATHS if "hashlib" in find_imported_names(path)}
    assert users == HASHING
