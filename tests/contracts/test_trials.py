"""The contract of every file in jobs/trials/; the tests find new files themselves."""

import pytest

from docs.generators.parameter_counts import (
    PUBLISHED_COUNTS,
    PUBLISHED_PAIR_COUNTS,
    TRIALS_FOLDER,
    count_under_alternatives,
)
from memtune.experiments.published_tables import is_rounded_or_cut_off
from memtune.experiments.single_trial import load_trial

FILES = sorted(TRIALS_FOLDER.glob("*.toml"))
CORPORA = {"ptb", "grammar", "sst", "sst_glove", "snli", "snli_dev", "ud", "linzen", "ewt", "novels_trees"}
LABELLED = {"grammar_sentiment", "grammar_inference"}
QUESTIONS = {"ewt_questions", "grammar_questions", "holmes_trees"}
PAPERS = ("zaremba2014", "benes2017", "yogatama2018", "merity2017")

each_count = pytest.mark.parametrize(
    "published", PUBLISHED_COUNTS, ids=lambda published: f"{published.trial}-{published.printed_count}M"
)


@pytest.mark.parametrize(
    ("count", "is_printed"),
    [
        (10_499_999, False),
        (10_500_000, True),
        (10_999_999, True),
        (11_000_000, True),
        (11_999_999, True),
        (12_000_000, False),
    ],
)
def test_a_printed_count_is_rounded_or_cut_off(count, is_printed):
    assert is_rounded_or_cut_off(count, 11_000_000, 1_000_000) == is_printed


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_trial_file_has_a_question_and_loads(file):
    loaded = load_trial(file)
    assert file.read_text().startswith('question = "')
    assert loaded.question.endswith("?")
    assert set(loaded.corpus.split("+")) <= CORPORA | LABELLED | QUESTIONS


@pytest.mark.parametrize("published", PUBLISHED_PAIR_COUNTS, ids=lambda published: published.trial)
def test_pairs_have_the_printed_sizes_with_one_reader_unless_marked_as_not_derivable(published):
    assert published.is_as_printed() == published.is_derivable
    assert published.count_parameters(shared_reader=False) > 1.5 * published.count_parameters()


@each_count
def test_models_have_the_printed_sizes_unless_marked_as_not_derivable(published):
    assert published.is_as_printed() == published.is_derivable


@pytest.mark.parametrize(
    "published",
    [published for published in PUBLISHED_COUNTS if not published.is_derivable],
    ids=lambda each: each.printed_count,
)
def test_no_alternative_model_has_a_printed_size_that_is_not_derivable(published):
    for name, count in count_under_alternatives(published).items():
        assert abs(count / 1e6 - float(published.printed_count)) > 0.5, name


def test_every_paper_preset_is_compared_with_its_printed_size_except_one_without():
    presets = {file.stem for file in FILES if file.stem.startswith(PAPERS)}
    assert presets - {published.trial for published in PUBLISHED_COUNTS} == {"zaremba2014_ptb_small"}
