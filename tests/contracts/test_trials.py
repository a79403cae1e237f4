"""What holds for every file in jobs/trials/. A new file is picked up by its name alone."""

from pathlib import Path

import pytest

from memtune.execution.single import load_trial
from memtune.reports.parameter_counts import PAIRS, PUBLISHED, TRIALS, parameter_counts_page, readings

FILES = sorted(TRIALS.glob("*.toml"))
CORPORA = {"ptb", "grammar", "sst", "snli", "snli_dev", "ud", "linzen", "ewt", "novels"}
LABELLED = {"grammar_sentiment", "grammar_inference"}
QUESTIONS = {"ewt_questions", "grammar_questions", "holmes"}
PAPERS = ("zaremba2014", "benes2017", "yogatama2018", "merity2017")
PAGE = Path(__file__).parents[2] / "docs" / "parameter_counts.md"

each_count = pytest.mark.parametrize(
    "published", PUBLISHED, ids=lambda published: f"{published.trial}-{published.printed}M"
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_trial_asks_a_question_and_is_a_configuration(file):
    loaded = load_trial(file)
    assert file.read_text().startswith('question = "')
    assert loaded.question.endswith("?")
    assert set(loaded.corpus.split("+")) <= CORPORA | LABELLED | QUESTIONS


@pytest.mark.parametrize("published", PAIRS, ids=lambda published: published.trial)
def test_pairs_have_the_sizes_in_print_with_one_reader_alone_or_are_known_not_to(published):
    assert published.agrees() == published.given
    assert published.count(shared_reader=False) > 1.5 * published.count()


@each_count
def test_sizes_are_those_in_print_or_known_not_to_be(published):
    assert published.agrees() == published.given


@pytest.mark.parametrize(
    "published", [published for published in PUBLISHED if not published.given], ids=lambda each: each.printed
)
def test_no_other_reading_gives_the_counts_that_ours_do_not(published):
    for name, count in readings(published).items():
        assert abs(count / 1e6 - float(published.printed)) > 0.5, name


def test_every_paper_preset_but_one_whose_size_is_not_in_print_is_held_to_its_size():
    presets = {file.stem for file in FILES if file.stem.startswith(PAPERS)}
    assert presets - {published.trial for published in PUBLISHED} == {"zaremba2014_ptb_small"}


def test_the_page_of_counts_is_the_one_the_code_writes():
    assert PAGE.read_text() == parameter_counts_page(), (
        "python -m memtune.reports.parameter_counts > docs/parameter_counts.md"
    )
