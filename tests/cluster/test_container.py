"""The container image of memtune: the steps of its Dockerfile, and what a pod does in it."""

import shlex
import shutil
from pathlib import Path

import pytest

from tests.cluster.image_build import ImageBuild, find_missing_rights

pytestmark = [pytest.mark.cluster, pytest.mark.long]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> ImageBuild:
    if missing := find_missing_rights():
        pytest.skip(f"the steps of a Dockerfile need {missing}")
    context = tmp_path_factory.mktemp("context")
    for source, target in ((ROOT / "clusters" / "requirements.txt", "clusters"), (wheel, "dist")):
        (context / target).mkdir()
        shutil.copy(source, context / target)
    built = ImageBuild(tmp_path_factory.mktemp("image"), context)
    built.run_dockerfile(ROOT / "clusters" / "container" / "Dockerfile")
    return built


def test_the_image_starts_memtune_from_its_wheel(image: ImageBuild) -> None:
    assert "Usage: memtune" in image.run(shlex.join(image.command))
    place = image.run("python -c 'import memtune; print(memtune.__file__)'")
    assert place.startswith("/opt/environment/lib/")


def test_a_pod_runs_without_the_rights_of_root_and_writes_to_its_home_and_its_volume(
    image: ImageBuild,
) -> None:
    assert image.run("id --user").strip() == "1000"
    assert "demo.toml" in image.run("memtune study new demo; ls; touch $MEMTUNE_HOME/here")
