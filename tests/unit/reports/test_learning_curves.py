"""The figures of a trial: a short trial has none, and values that no axis can show are left out."""

from memtune.objective import Objective
from memtune.reports import learning_curves
from memtune.reports.learning_curves import MIN_DRAWN_POINTS, draw_trial_figures

PNG = b"\x89PNG"
POINTS = [(100 * number, 1 / number) for number in range(1, MIN_DRAWN_POINTS + 1)]


def test_a_trial_without_a_point_to_draw_has_an_empty_page() -> None:
    learning_curves._prepare_figure.cache_clear()
    points = [(tokens, 1.8e308) for tokens, _ in POINTS]  # diverged
    metrics = {"train_perplexity": points, "valid_perplexity": points}
    (figure,) = draw_trial_figures("trial", Objective.PERPLEXITY, metrics).values()
    assert figure.startswith(PNG)


def test_a_trial_has_a_learning_curve_once_it_has_enough_reports() -> None:
    (figure,) = draw_trial_figures("trial", Objective.PERPLEXITY, {"train_perplexity": POINTS}).items()
    assert figure[0] == "learning_curve.png"
    assert figure[1].startswith(PNG)
    assert draw_trial_figures("trial", Objective.PERPLEXITY, {"train_perplexity": POINTS[1:]}) == {}


def test_a_title_is_drawn_literally() -> None:
    """A trial is named after its file, and a file's name may hold what matplotlib reads as a formula."""
    metrics = {"valid_accuracy": POINTS}
    (figure,) = draw_trial_figures("$\\frac{$ \x1b[31m", Objective.ACCURACY, metrics).values()
    assert figure.startswith(PNG)
