"""The interval of an accuracy against the normal approximation, which is close for 400 questions."""

import math

import numpy as np
import pytest

from memtune.tasks.questions import Answers


def test_the_interval_covers_95_percent() -> None:
    """The tolerance of 0.005 is a quarter of the distance to an interval at 80 %, and two answers of 400."""
    questions, correct = 400, 300
    costs_QC = np.ones((questions, 2))
    costs_QC[:correct, 0] = costs_QC[correct:, 1] = 0.0
    answers = Answers(
        "agreement",
        tuple(str(number) for number in range(questions)),
        costs_QC,
        np.zeros(questions, dtype=np.int64),
        np.ones(questions, dtype=bool),
        np.zeros(questions, dtype=np.int64),
    )
    margin = 1.96 * math.sqrt(0.75 * 0.25 / questions)
    assert answers.compute_confidence_interval() == pytest.approx((0.75 - margin, 0.75 + margin), abs=0.005)
