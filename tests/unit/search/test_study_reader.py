"""Studies as another process reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from memtune.errors import StudyError
from memtune.search import Proposals, StudyReader
from memtune.search.trial_store import CONFIGURATION_KEY, read_outcome
from memtune.usage import NodeSeconds, Usage
from memtune.values import digest

OpenStudy = Callable[..., Proposals]


def complete_one(proposals: Proposals, value: float) -> Any:
    """Complete one trial; return its configuration."""
    proposal = proposals.ask()
    assert proposal is not None
    proposals.complete(proposal.number, value)
    return proposal.configuration


def test_a_study_is_read_with_its_repeats(open_study: OpenStudy, storage: str) -> None:
    configuration = complete_one(open_study(), 4.0)
    complete_one(open_study(name="s-repeats"), 5.0)
    study = StudyReader(storage).read("s")
    assert [(each.configuration, each.value) for each in study.outcomes] == [(configuration, 4.0)]
    assert [each.value for each in study.repeats] == [5.0]
    assert study.last_activity is not None


def test_repeats_and_queues_of_drivers_are_not_listed(open_study: OpenStudy, storage: str) -> None:
    for name in ("s", "s-repeats", "s.drivers", "other"):
        open_study(name=name)
    assert StudyReader(storage).list_ids() == ["s", "other"]


@pytest.mark.parametrize("prefix", ["journal://", "sqlite:///"])
def test_a_read_creates_no_database_and_later_finds_it(
    open_study: OpenStudy, storage: str, prefix: str, tmp_path: Path
) -> None:
    reader = StudyReader(f"{prefix}{tmp_path}/home/studies")
    assert reader.list_ids() == []
    assert not reader.has_begun("s")
    assert reader.list_trained_identities() == set()
    with pytest.raises(StudyError, match=r'no study "s" in .*; there are none'):
        reader.read("s")
    assert [*tmp_path.iterdir()] == []
    later = StudyReader(storage)
    open_study(name="s")
    assert later.list_ids() == ["s"]


def test_an_unknown_study_is_refused_with_the_nearest_name(open_study: OpenStudy, storage: str) -> None:
    open_study(name="layers")
    with pytest.raises(StudyError, match=r'no study "layer" .*layers'):
        StudyReader(storage).read("layer")


def test_a_deleted_study_is_gone_with_its_repeats(open_study: OpenStudy, storage: str) -> None:
    for name in ("s", "s-repeats", "other"):
        complete_one(open_study(name=name), 4.0)
    reader = StudyReader(storage)
    reader.delete("s")
    assert reader.list_ids() == ["other"]
    complete_one(open_study(name="s"), 3.0)
    assert reader.read("s").repeats == []


def test_the_time_and_the_usage_that_drivers_stored_are_read(open_study: OpenStudy, storage: str) -> None:
    proposals = open_study()
    proposal = proposals.ask()
    assert proposal is not None
    usage = Usage(tokens=900, nodes={"": NodeSeconds(cpu=2.5)})
    proposals.store_usage(proposal.number, Usage(tokens=300))
    proposals.store_usage(proposal.number, usage)
    proposals.store_seconds_spent(12.5)
    assert open_study().read_seconds_spent() == 12.5
    study = StudyReader(storage).read("s")
    assert study.seconds == 12.5
    assert study.outcomes[0].usage == usage


@pytest.mark.parametrize("begin", [Proposals.ask, lambda proposals: proposals.store_seconds_spent(1.0)])
def test_a_study_has_begun_with_a_trial_or_with_time_spent_on_it(
    open_study: OpenStudy, storage: str, begin: Callable[[Proposals], object]
) -> None:
    reader = StudyReader(storage)
    assert not reader.has_begun("s")
    proposals = open_study()
    assert not reader.has_begun("s")
    begin(proposals)
    assert reader.has_begun("s")


def test_an_end_that_was_written_before_an_outage_is_not_written_again(open_study: OpenStudy) -> None:
    """The answer to the write may be lost after the storage has the end."""
    proposals = open_study()
    proposal = proposals.ask()
    assert proposal is not None
    proposals.complete(proposal.number, 4.0)
    proposals.complete(proposal.number, 4.0)
    with pytest.raises(StudyError, match="has ended"):
        proposals.complete(proposal.number, 5.0)


def test_an_end_whose_answer_was_lost_is_sent_again_without_an_error(
    open_study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposals = open_study()
    proposal = proposals.ask()
    assert proposal is not None
    write_end = proposals._store.write_end

    def lose_first_answer(number: int, ending: dict[str, Any]) -> None:
        monkeypatch.setattr(proposals._store, "write_end", write_end)
        write_end(number, ending)
        raise OperationalError("COMMIT", {}, Exception("connection lost"))

    monkeypatch.setattr(proposals._store, "write_end", lose_first_answer)
    proposals.complete(proposal.number, 4.0)
    proposals.flush()
    assert [outcome.value for outcome in proposals.list_outcomes()] == [4.0]


def test_a_trial_of_another_version_is_named_with_what_it_lacks(open_study: OpenStudy, storage: str) -> None:
    proposals = open_study()
    complete_one(proposals, 4.0)
    trial = proposals._store._study.trials[0]
    del trial.user_attrs[CONFIGURATION_KEY]
    with pytest.raises(StudyError, match=rf"trial 0 is stored as .* \('{CONFIGURATION_KEY}'\)"):
        read_outcome(trial)


def test_a_refused_configuration_is_listed_with_its_identity(open_study: OpenStudy, storage: str) -> None:
    proposals = open_study("four points", refuse=lambda configuration: "too large")
    assert proposals.ask() is None
    refused = StudyReader(storage).read("s").refused
    assert {each.identity for each in refused} == {digest(each.configuration)[:16] for each in refused}
