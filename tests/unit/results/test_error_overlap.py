"""The overlap of mistakes of any set of models."""

import numpy as np
import pytest

from memtune.errors import CorpusError
from memtune.reports.answer_tables import make_answers_table
from memtune.results.question_answers import ModelAnswers, OverlapRegion, count_overlap
from memtune.tasks import Answers


def make_answers(right: str, attractors: str = "", names: str = "") -> Answers:
    """Answers to questions, one per letter: "+" right, "-" wrong, "?" not asked."""
    nats = np.array([[1.0, 2.0] if sign == "+" else [2.0, 1.0] for sign in right])
    asked = np.array([sign != "?" for sign in right])
    groups = np.array([int(digit) for digit in attractors or "0" * len(right)])
    return Answers(
        "agreement",
        tuple(names or map(str, range(len(right)))),
        nats,
        np.zeros(len(right), int),
        asked,
        groups,
    )


def ask_one(
    model: str, family: str, answers: Answers, seed: int = 0, configuration: str = ""
) -> ModelAnswers:
    """A model of this home; without `configuration` no other model differs from it by the seed alone."""
    return ModelAnswers(model, family, answers, 0.25, "linzen", "valid", configuration or model, seed)


def test_a_mistake_is_in_the_region_of_all_models_that_make_it():
    regions = count_overlap(
        {"a": make_answers("+--+-"), "b": make_answers("+-+-+"), "c": make_answers("+-++-")}
    )
    assert {region.models: region.mistakes for region in regions} == {
        ("a", "b", "c"): 1,
        ("a", "c"): 1,
        ("a",): 1,
        ("b",): 1,
    }


def test_the_regions_with_most_mistakes_come_first():
    regions = count_overlap({"a": make_answers("---+"), "b": make_answers("+++-")})
    assert [(region.models, region.mistakes) for region in regions] == [(("a",), 3), (("b",), 1)]


def test_a_question_that_one_model_was_not_asked_counts_for_no_model():
    assert count_overlap({"a": make_answers("-?"), "b": make_answers("--")}) == [
        OverlapRegion(models=("a", "b"), mistakes=1)
    ]


def test_answers_to_different_questions_are_refused():
    with pytest.raises(CorpusError, match="ask all models in one call"):
        count_overlap({"a": make_answers("+-"), "b": make_answers("+-", names="xy")})


def test_answers_are_shown_by_attractors_five_and_more_together():
    table = make_answers_table(
        [ask_one("models:/m/1", "lstm", make_answers("+-++?", "00167"))],
        "asked",
    )
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    assert table.columns[2].header == "attractors"
    assert [row[2:5] for row in rows] == [
        ("all", "4", "1"),
        ("0", "2", "0"),
        ("1", "1", "0"),
        ("5+", "1", "1"),
    ]
    assert [row[6] for row in rows] == ["75.00%", "50.00%", "100.00%", "100.00%"]
    assert rows[0][8] == "25.00%"


def test_models_that_differ_by_their_seeds_alone_have_a_row_with_mean_and_deviation():
    """Not one of another width, and not a model that is named twice, as a version and as a trial."""
    models = [
        ask_one("models:/m/1", "lstm", make_answers("++--"), 1, "narrow"),
        ask_one("models:/m/2", "lstm", make_answers("+++-"), 2, "narrow"),
        ask_one("study#4 seed 2", "lstm", make_answers("+++-"), 2, "narrow"),
        ask_one("models:/m/3", "lstm", make_answers("----"), 2, "wide"),
    ]
    rows = list(zip(*(column.cells for column in make_answers_table(models, "").columns), strict=True))
    means = [row for row in rows if "mean" in row[0]]
    assert [(row[0], row[1], row[2], row[6]) for row in means] == [
        ("m, mean ± standard deviation of 2 seeds", "lstm", "all", "62.50% ± 17.68%"),
        ("m, mean ± standard deviation of 2 seeds", "lstm", "0", "62.50% ± 17.68%"),
    ]


def test_a_tie_is_a_mistake_with_probability_one_half():
    """Model "a" has a tie in the second question, so the mistake of "b" is shared with probability 1/2."""
    tied = make_answers("+-")
    tied.nats_QC[1] = [1.0, 1.0]
    regions = count_overlap({"a": tied, "b": make_answers("--")})
    assert {region.models: region.mistakes for region in regions} == {("b",): 1.5, ("a", "b"): 0.5}


def test_regions_of_a_model_add_up_to_its_mistakes():
    first, second = make_answers("+-+-"), make_answers("--++")
    first.nats_QC[2] = second.nats_QC[2] = [1.0, 1.0]
    regions = count_overlap({"a": first, "b": second})
    mistakes = {name: sum(one.mistakes for one in regions if name in one.models) for name in ("a", "b")}
    assert mistakes == {"a": 4 * (1 - first.accuracy), "b": 4 * (1 - second.accuracy)}


def test_the_table_of_answers_shows_the_number_of_ties():
    tied = make_answers("++")
    tied.nats_QC[1] = [1.0, 1.0]
    table = make_answers_table([ask_one("models:/m/1", "lstm", tied)], "asked")
    columns = {str(column.header): next(iter(column.cells)) for column in table.columns}
    assert (columns["ties"], columns["accuracy"]) == ("1", "75.00%")
