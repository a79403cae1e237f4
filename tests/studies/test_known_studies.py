"""Studies whose truth is known get the right answer on every surface, or the caveat that says why not."""

from pathlib import Path

import pytest

from tests.conftest import open_home
from tests.studies.known_studies import STUDIES, Known
from tests.studies.properties import list_answers, list_faults
from tests.studies.surfaces import Surfaces, add_rows, prepare_home, run


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> dict[str, Surfaces]:
    """What the surfaces say of each study, by its truth."""
    with open_home(tmp_path_factory.mktemp("known"), empty_store) as home:
        prepare_home(home)
        found = add_rows([run(known.drawn, home, is_thorough=False) for known in STUDIES], home)
        return {known.truth: each for known, each in zip(STUDIES, found, strict=True)}


@pytest.mark.parametrize("known", STUDIES, ids=[known.truth for known in STUDIES])
def test_a_study_of_known_truth_gets_its_answer_or_its_caveat(
    known: Known, surfaces: dict[str, Surfaces]
) -> None:
    found = surfaces[known.truth]
    assert not list_faults(found)
    for surface, text in list_answers(found).items():
        for part in known.says:
            assert part in text, (surface, part)
    verdict = found.detail["verdict"]
    (winner,) = {
        trial["alternative"]
        for trial in found.detail["trials"]
        if trial["name"].partition(" seed")[0] == verdict["winner"]
    }
    assert not known.best or winner == known.best or verdict["is_undecided"] or verdict["caveats"]
