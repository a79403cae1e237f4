"""pause_gc pauses the garbage collector during imports and restores its state."""

import gc
import sys
from types import ModuleType
from typing import Any

import pytest

from memtune.gc_pause import pause_gc


def is_enabled_inside() -> bool:
    with pause_gc():
        return gc.isenabled()


def test_the_collector_is_disabled_during_the_block() -> None:
    assert not is_enabled_inside()
    assert gc.isenabled()


def test_a_nested_block_does_not_enable_the_collector() -> None:
    with pause_gc():
        is_enabled_inside()
        assert not gc.isenabled()


def test_a_failed_import_enables_the_collector() -> None:
    with pytest.raises(ModuleNotFoundError), pause_gc():
        import memtune.nothing  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


@pytest.mark.parametrize("imports", [True, False])
def test_objects_of_a_block_that_imports_are_frozen(imports: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_freeze_count()
    with pause_gc():
        created: list[Any] = [{}]
        if imports:
            monkeypatch.setitem(sys.modules, "memtune.imported_now", ModuleType("imported_now"))
    try:
        assert (gc.get_freeze_count() > before) is imports
        assert any(tracked is created for tracked in gc.get_objects()) is not imports
    finally:
        gc.unfreeze()
