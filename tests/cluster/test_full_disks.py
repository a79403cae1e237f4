"""Full disks and a damaged corpus: the error names the cause, and the study resumes after a repair."""

import re
import shutil
from pathlib import Path

import pytest

from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.search import StoredTrial
from memtune.trial_state import TrialState
from tests.cluster.disks import Disk, MountDisk
from tests.cluster.drivers import Driver, run_command, run_driver, start_ray_nodes
from tests.cluster.fault_table import RecordFault
from tests.cluster.study_setup import EARLY_STOPPING_TOML, StudySetup, describe_outcomes
from tests.conftest import SENTENCES, SPACE_TOML

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_locations")]


def test_a_full_disk_stops_the_study_and_fails_no_trial(
    study_setup: StudySetup, mount_disk: MountDisk, record_fault: RecordFault
) -> None:
    disk = mount_disk(Path(study_setup.settings.studies_folder), 600)
    study_setup.study_file.write_text(study_setup.study_file.read_text().replace("trials = 6", "trials = 3"))
    study_setup.study_file.with_name("space.toml").write_text(
        SPACE_TOML.replace("[4, 8]", "[4, 5, 150]")
        .replace("{ int = [1, 2] }", "1")
        .replace("{ float = [0.1, 1.0], log = true }", "0.5")
    )
    keep_all = '[early_stopping]\nkind = "none"\n'
    study_setup.study_file.write_text(
        study_setup.study_file.read_text().replace(EARLY_STOPPING_TOML, keep_all)
    )
    with run_driver(study_setup.study_file, environment=study_setup.environment) as driver:
        code, out, err = driver.wait_for_exit()
    assert code == 1, out
    folder = re.escape(study_setup.settings.studies_folder)
    assert re.search(
        rf"no trial can run: on \S+: cannot write to {folder}\S+: No space .*; free space", err
    ), err
    assert f"memtune search {study_setup.study_file} --resume" in err
    assert "budget.trials is reached" not in out
    before = study_setup.read_outcomes()
    assert TrialState.FAILED not in {each.state for each in before}
    (stopped,) = [each for each in before if each.state is not TrialState.COMPLETE]
    assert study_setup.list_checkpoints(stopped.identity) == []
    disk.grow(60_000)
    with run_driver(study_setup.study_file, "--resume", environment=study_setup.environment) as driver:
        out = driver.wait_for_success()
    ended = study_setup.read_outcomes()
    assert [each.state for each in ended] == 3 * [TrialState.COMPLETE]
    assert {each.identity for each in before} <= {each.identity for each in ended}
    assert "new champion models:/tiny@champion" in out
    study_setup.check_records()
    record_fault(
        "disk full",
        1,
        0,
        "checkpoints on a disk of 600 kB: when one did not fit, the study stopped with the folder and the "
        "fix, and no trial failed; after the disk had grown, it ended with all of its trials",
    )


def test_a_node_with_a_full_disk_gives_its_trials_to_another(
    study_setup: StudySetup, mount_disk: MountDisk, tmp_path: Path, record_fault: RecordFault
) -> None:
    disk = mount_disk(tmp_path / "full", 64)
    disk.fill()
    study = study_setup.study_file.read_text().replace("max_concurrent = 1", "cpus_per_trial = 1")
    # So long that the full node's worker starts before the other one has trained every trial.
    study = study.replace("tokens = 900", "tokens = 30_000")
    study_setup.study_file.write_text(study.replace("report_every = 300", "report_every = 10_000"))
    healthy, full = {"MEMTUNE_CACHE": str(tmp_path / "cache")}, {"MEMTUNE_CACHE": str(disk.folder)}
    with (
        start_ray_nodes(healthy, full) as ray,
        run_driver(study_setup.study_file, environment=study_setup.environment | ray.environment) as driver,
    ):
        out = driver.wait_for_success()
    faults = re.findall(rf"on \S+: cannot write to the cache {disk.folder}", out)
    assert 1 <= len(faults) <= 3, out
    assert {each.state for each in study_setup.read_outcomes()} <= {TrialState.COMPLETE, TrialState.STOPPED}
    assert len(study_setup.read_outcomes()) == 6
    study_setup.check_records()
    record_fault(
        "disk full",
        len(faults),
        0,
        "no space in the cache of one of two nodes: its trials continued on the other, and the study ended",
    )


def test_an_import_that_fills_the_disk_leaves_no_corpus(mount_disk: MountDisk, tmp_path: Path) -> None:
    disk = mount_disk(tmp_path / "home", 16)
    (tmp_path / "train.txt").write_text("".join(f"{sentence}\n" for sentence in SENTENCES * 20))
    splits = [
        word for split in ("train", "valid", "test") for word in (f"--{split}", str(tmp_path / "train.txt"))
    ]
    command = ["corpus", "import", "tiny", *splits]
    environment = {"MEMTUNE_HOME": str(disk.folder)}
    code, _, err = run_command(command, environment)
    assert code == 1
    assert "No space left on device; free space there" in err
    assert "Traceback" not in err
    assert [path.name for path in (disk.folder / "corpora").iterdir() if not path.name.startswith(".")] == []
    disk.grow(1024)
    code, out, err = run_command(command, environment)
    assert code == 0, out + err


@pytest.mark.long
def test_a_registration_that_fills_the_disk_is_repeated_by_a_resume(
    study_setup: StudySetup, mount_disk: MountDisk, tmp_path: Path
) -> None:
    """The report goes to a full disk afterwards: the file that is there stays."""
    disk = mount_disk(study_setup.home / "artifacts", 400)
    study_setup.study_file.write_text(study_setup.study_file.read_text().replace("trials = 6", "trials = 1"))
    space = SPACE_TOML.replace("[4, 8]", "[150]")  # its weights take more than the disk
    study_setup.study_file.with_name("space.toml").write_text(space)
    with run_driver(study_setup.study_file, environment=study_setup.environment) as driver:
        code, out, err = driver.wait_for_exit()
    assert code == 1, out
    assert re.search(rf"error: .*{disk.folder}\S*: No space left on device; free space .* --resume", err), err
    assert "Traceback" not in err
    disk.grow(60_000)
    with run_driver(study_setup.study_file, "--resume", environment=study_setup.environment) as driver:
        assert "new champion models:/tiny@champion" in driver.wait_for_success()
    study_setup.check_records()

    other = mount_disk(tmp_path / "reports", 16)
    (page := other.folder / "report.html").write_text("an earlier report")
    code, _, err = run_command(["report", "layers", "--out", str(page)], study_setup.environment)
    assert code == 1
    assert f"{page} cannot be written: No space left on device; choose another place" in err
    assert [path.name for path in other.folder.iterdir()] == ["report.html"]
    assert page.read_text() == "an earlier report"


@pytest.mark.long
def test_a_report_that_fills_the_disk_is_recorded_once_there_is_space(
    study_setup: StudySetup, mount_disk: MountDisk
) -> None:
    disk = mount_disk(study_setup.home / "artifacts", 600)  # the registered model fits, the page does not
    study_setup.study_file.write_text(study_setup.study_file.read_text().replace("trials = 6", "trials = 1"))
    with run_driver(study_setup.study_file, environment=study_setup.environment) as driver:
        driver.wait_for_error_line(
            rf"tracking is unavailable.*{disk.folder}/\S+: No space left on device; free space there"
        )
        disk.grow(60_000)
        assert "new champion models:/tiny@champion" in driver.wait_for_success()
    (page,) = disk.folder.rglob("report.html")
    assert page.stat().st_size > 600_000
    study_setup.check_records()


@pytest.mark.long
def test_a_full_cache_and_a_damaged_corpus_are_named_and_no_trial_is_blamed(
    study_setup: StudySetup,
    mount_disk: MountDisk,
    tmp_path: Path,
    undisturbed: list[StoredTrial],
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
    undisturbed: list[StoredTrial],
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
    assert f"error: the study database {url}" in err
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
