"""Imports in one go leave the garbage collector as it was."""

import gc

import pytest

from memtune.imports import in_one_go


def importing() -> bool:
    with in_one_go():
        return gc.isenabled()


def test_the_collector_rests_while_much_is_imported() -> None:
    assert not importing()
    assert gc.isenabled()


def test_an_import_inside_of_another_does_not_wake_it() -> None:
    with in_one_go():
        importing()
        assert not gc.isenabled()


def test_an_import_that_fails_wakes_it() -> None:
    with pytest.raises(ModuleNotFoundError), in_one_go():
        import memtune.nothing  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_what_was_imported_is_never_looked_through_again() -> None:
    before = gc.get_freeze_count()
    with in_one_go():
        found = [{}]
    try:
        assert gc.get_freeze_count() > before
        assert not any(one is found for one in gc.get_objects())
    finally:
        gc.unfreeze()
