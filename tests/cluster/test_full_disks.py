"""Full disks and a damaged corpus: the error names the cause, and the study resumes after a repair."""

import re
import shutil
from pathlib import Path

import pytest

from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.search import Outcome
from memtune.trial_state import TrialState
from tests.cluster.disks import Disk, MountDisk
from tests.cluster.drivers import Driver, run_driver
from tests.cluster.fault_table import RecordFault
from tests.cluster.study_setup import EARLY_STOPPING_TOML, StudySetup, describe_outcomes
from tests.conftest import SPACE_TOML

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_locations")]


def test_a_full_disk_ends_the_trial_that_fills_it_and_no_other(
    study_setup: StudySetup, mount_disk: MountDisk, record_fault: RecordFault
) -> None:
    mount_disk(Path(study_setup.settings.studies_folder), 600)
    study_setup.study_file.write_text(study_setup.study_file.read_text().replace("trials = 6", "trials = 3"))
    study_setup.study_file.with_name("space.toml").write_text(
        SPACE_TOML.replace("[4, 8]", "[4, 5, 150]")
        .replace("{ int = [1, 2] }", "1")
        .replace("{ float = [0.1, 1.0], log = true }", "0.5")
    )
    study_setup.study_file.write_text(study_setup.study_file.read_text().replace(EARLY_STOPPING_TOML, ""))
    with run_driver(study_setup.study_file, environment=study_setup.environment) as driver:
        out = driver.wait_for_success()
    ended = {each.configuration["model"]["width"]: each for each in study_setup.read_outcomes()}
    assert {width: each.state for width, each in ended.items()} == {
        4: TrialState.COMPLETE,
        5: TrialState.COMPLETE,
        150: TrialState.FAILED,
    }
    assert "No space left on device" in str(ended[150].end)
    assert study_setup.list_checkpoints(ended[150].identity) == []
    assert "new champion models:/tiny@champion" in out
    record_fault(
        "disk full",
        1,
        0,
        "checkpoints on a disk of 600 kB: a trial whose first checkpoint does not fit failed with "
        '"No space left on device" and left no file; the others completed',
    )


@pytest.mark.long
def test_a_full_cache_and_a_damaged_corpus_are_named_and_no_trial_is_blamed(
    study_setup: StudySetup,
    mount_disk: MountDisk,
    tmp_path: Path,
    undisturbed: list[Outcome],
    record_fault: RecordFault,
) -> None:
    """The faults occur one after the other; each is repaired before the study resumes.

    The cache is that of the workers: the driver has another one, as on another machine.
    """
    environment = study_setup.environment | {"MEMTUNE_CACHE": str(tmp_path / "cache")}
    disk = fill_cache(mount_disk, tmp_path / "copy")
    with run_driver(study_setup.study_file, environment=environment) as driver:
        assert_stopped(
            driver,
            study_setup.study_file,
            rf"cannot write to the cache {disk.folder}: .*No space left.*free space",
        )
    assert {path.suffix for path in (disk.folder / "verified").iterdir()} == {".lock"}
    disk.release()

    damaged_files = list_damaged_files(Path(study_setup.settings.corpus_store) / "tiny")
    for path, content, pattern in damaged_files:
        whole = path.read_bytes()
        with run_driver(study_setup.study_file, "--resume", environment=environment) as driver:
            driver.wait_for_line("running")
            replace(path, content)
            assert_stopped(driver, study_setup.study_file, pattern)
        replace(path, whole)
    with run_driver(study_setup.study_file, "--resume", environment=environment) as driver:
        driver.wait_for_success()
    assert describe_outcomes(study_setup.read_outcomes()) == describe_outcomes(undisturbed)
    record_fault(
        "disk full",
        1,
        0,
        "no space in the workers' cache: the study stopped with this reason and left no file; after "
        "space was freed, it ended like an undisturbed one",
    )
    record_fault(
        "files damaged",
        len(damaged_files),
        0,
        "a byte of a shard altered, then the manifest truncated, while the study ran: the study stopped and "
        "named the file, no trial failed, and after the repair it ended like an undisturbed one",
    )


def fill_cache(mount_disk: MountDisk, copy: Path) -> Disk:
    """A full disk with what workers read from the cache, except the records of verified corpora."""
    shutil.copytree(resolve_cache_folder(), copy, ignore=shutil.ignore_patterns("verified", "vega"))
    disk = mount_disk(resolve_cache_folder(), 256)
    shutil.copytree(copy, disk.folder, dirs_exist_ok=True)
    disk.fill()
    return disk


def list_damaged_files(folder: Path) -> list[tuple[Path, bytes, str]]:
    """Files of a corpus, their damaged contents, and a pattern of the error."""
    shard, manifest = next(folder.rglob("train*.arrow")), folder / "manifest.json"
    tokens = shard.read_bytes()
    middle = len(tokens) // 2
    altered = tokens[:middle] + bytes([tokens[middle] ^ 1]) + tokens[middle + 1 :]
    return [
        (shard, altered, f"{shard.name} has another SHA-256 .* altered"),
        (manifest, manifest.read_bytes()[:-10], r"tiny/manifest.json: not a manifest"),
    ]


def replace(path: Path, content: bytes) -> None:
    """Replace a file by a new one, because the old one may be mapped into memory."""
    path.with_suffix(".copy").write_bytes(content)
    path.with_suffix(".copy").replace(path)


def assert_stopped(driver: Driver, study: Path, pattern: str) -> None:
    """The driver failed with the cause and the command that resumes the study."""
    code, out, err = driver.wait_for_exit()
    assert code == 1, out
    assert re.search(pattern, out), out
    assert f"memtune search {study} --resume" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.long), "journal"])
def test_a_driver_waits_while_the_disk_of_the_study_database_is_full(
    kind: str,
    study_setup: StudySetup,
    mount_disk: MountDisk,
    tmp_path: Path,
    undisturbed: list[Outcome],
    record_fault: RecordFault,
) -> None:
    disk = mount_disk(tmp_path / "disk", 2048)
    url = f"{kind}:///{disk.folder}/proposals"
    study_setup.settings = study_setup.settings.model_copy(update={"study_database": url})
    environment = study_setup.environment | {"MEMTUNE_PROPOSALS": url}
    disk.fill()
    with run_driver(study_setup.study_file, environment=environment) as driver:
        code, _, err = driver.wait_for_exit()
    assert code == 1
    assert f"error: the study's storage {url}" in err
    assert "Traceback" not in err
    disk.release()
    with run_driver(study_setup.study_file, environment=environment) as driver:
        driver.wait_for_line("running .* tokens", 2)
        disk.fill()
        driver.wait_for_error_line("is unavailable; training continues")
        disk.release()
        driver.wait_for_success()
    assert describe_outcomes(study_setup.read_outcomes()) == describe_outcomes(undisturbed)
    study_setup.check_records()
    record_fault(
        "disk full",
        2,
        0,
        f"{kind} of the proposals on a full disk: a starting driver ends with an error; a running one "
        "continued once there was space, and all figures are those of an undisturbed run",
    )
