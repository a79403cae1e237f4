"""Figures of inspected models show the numbers of their values, and differ without colour."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from memtune.errors import ConfigurationError
from memtune.objective import Objective
from memtune.reports.answer_tables import draw_mistakes
from memtune.reports.figure_files import make_figure, save_figure
from memtune.reports.inspection.attention_views import (
    draw_dependencies,
    draw_examples,
    draw_link_arcs,
    draw_link_matrix,
    draw_pair_counts,
    draw_positions,
)
from memtune.reports.inspection.curve_views import draw_accuracies, draw_parameter, draw_trajectories
from memtune.reports.inspection.stack_views import draw_sentence_stack
from memtune.reports.inspection.word_views import MIN_INFLUENCE, draw_groups, draw_influence
from memtune.results.inspection.attention_weights import AttentionPositions, PositionMean
from memtune.results.inspection.parameter_curves import ParameterCurves, ParameterTrial, TrialReports
from memtune.results.inspection.stack_use import ActionProbability, SentenceStackUse, StackStep
from memtune.results.inspection.word_groups import GroupedModel, GroupFigure, WordGroup, WordGroups
from memtune.results.inspection.word_influence import DistanceInfluence, WordInfluence
from memtune.results.inspection.word_pairs import (
    AttendedPairs,
    DependencyAttention,
    DistanceMean,
    Link,
    PathAttention,
    SentenceLinks,
)
from memtune.results.question_answers import McNemarTest, ModelMistakes, OverlapRegion, SharedMistakes
from memtune.training import Report


def list_axes(figure: Figure) -> list[Any]:
    """The axes of a figure; matplotlib's types do not say what was drawn on them."""
    return list(figure.axes)


def make_point(tokens: int, train: float, valid: float, accuracy: float | None = None) -> Report:
    return Report(tokens=tokens, train_perplexity=train, valid_perplexity=valid, valid_accuracy=accuracy)


def make_parameter_trial(value: float, best: float, state: str = "complete") -> ParameterTrial:
    return ParameterTrial(
        value=value,
        family="lstm",
        number=int(best),
        seed=0,
        state=state,
        tokens=10,
        best=best,
        reports=(make_point(5, best, best + 5), make_point(10, best - 5, best)),
    )


def make_curves(*trials: ParameterTrial) -> ParameterCurves:
    return ParameterCurves(
        study="s-1", question="", parameter="model.phi", objective=Objective.PERPLEXITY, trials=trials
    )


def test_bars_have_the_means_with_the_nearest_word_on_the_right() -> None:
    positions = [PositionMean(distance=d, mean=m, share=m, predictions=3) for d, m in ((2, 0.25), (1, 0.75))]
    found = AttentionPositions(
        model="m", family="f", layer=2, predictions=3, positions=tuple(positions), share_without_word=0
    )
    (axes,) = list_axes(draw_positions([found]))
    assert axes.get_title() == "m: f, layer 2, 3 predictions"
    assert [bar.get_height() for bar in axes.patches] == [0.25, 0.75]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "1"]


def test_cells_without_a_pair_have_no_number() -> None:
    bins = (
        DistanceMean(first=1, last=1, mean=0.5, pairs=2),
        DistanceMean(first=2, last=3, mean=None, pairs=0),
    )
    path = PathAttention(path="→obj", pairs=2, mean=0.5, by_distance=bins)
    found = DependencyAttention(model="m", family="f", sentences=1, everything=path, paths=(path,))
    axes = list_axes(draw_dependencies(found))[0]
    assert [text.get_text() for text in axes.texts] == ["0.50", "0.50"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2 to 3", "1"]


def test_arcs_join_the_words_of_strong_links_and_are_thicker_for_stronger_ones() -> None:
    links = (
        Link(layer=1, word=1, attended=0, weight=0.3),
        Link(layer=1, word=2, attended=0, weight=0.9),
        Link(layer=1, word=2, attended=1, weight=0.1),
    )
    sentence = SentenceLinks(model="m", family="f", number=0, words=("a", "bb", "ccc"), layers=1, links=links)
    (axes,) = list_axes(draw_link_arcs(sentence))
    weak, strong = axes.patches
    centres = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert weak.get_linewidth() < strong.get_linewidth()
    assert strong.width == pytest.approx(centres["ccc"] - centres["a"])
    assert strong.center[0] == pytest.approx((centres["ccc"] + centres["a"]) / 2)


def test_figures_name_their_sentence_and_their_unit() -> None:
    sentence = SentenceLinks(model="m", family="f", number=7, words=("a", "bb"), layers=1, links=())
    for figure in (draw_link_arcs(sentence), draw_link_matrix(sentence)):
        assert "sentence 7" in figure.get_suptitle()
    action = ActionProbability(action="push_0", pops=0, is_push=True, probability=1.0)
    step = StackStep(word="a", next_word="b", actions=(action,), contribution=1.0, entropy=2.0)
    use = SentenceStackUse(model="m", number=0, steps=(step,))
    assert "H: entropy of the next word in nats" in draw_sentence_stack(use).get_suptitle()


def test_trials_that_ended_early_are_hollow_and_not_in_the_mean() -> None:
    found = make_curves(
        make_parameter_trial(1, 100), make_parameter_trial(1, 110), make_parameter_trial(2, 300, "stopped")
    )
    (axes,) = list_axes(draw_parameter(found))
    complete, early = axes.collections
    assert complete.get_offsets().tolist() == [[1, 100], [1, 110]]
    assert early.get_offsets().tolist() == [[2, 300]]
    assert len(early.get_facecolors()) == 0
    (mean,) = axes.lines
    assert list(mean.get_xdata()) == [1]
    assert list(mean.get_ydata()) == [pytest.approx((100 * 110) ** 0.5)]


def test_each_family_has_a_line_of_means_in_which_a_configuration_counts_once_over_its_repeats() -> None:
    """Without the trial that they repeat, and as the mean of costs: as in the ranking."""
    first = make_parameter_trial(1, 100)
    again = first.model_copy(update={"seed": 1, "best": 120, "is_repeat": True})
    other = make_parameter_trial(1, 50).model_copy(update={"family": "rnn"})
    (axes,) = list_axes(draw_parameter(make_curves(first, again, make_parameter_trial(1, 200), other)))
    assert [(line.get_label(), list(line.get_ydata())) for line in axes.lines] == [
        ("mean over configurations of lstm", [pytest.approx((120 * 200) ** 0.5)]),
        ("mean over configurations of rnn", [pytest.approx(50)]),
    ]


def test_a_trial_that_diverged_is_a_cross_above_the_others_and_does_not_stretch_the_axis() -> None:
    ended = {"number": 2, "has_diverged": True, "best": None}
    diverged = make_parameter_trial(2, 100).model_copy(update=ended)
    (axes,) = list_axes(draw_parameter(make_curves(make_parameter_trial(1, 100), diverged)))
    complete, cross = axes.collections
    assert complete.get_offsets().tolist() == [[1, 100]]
    ((place, height),) = cross.get_offsets().tolist()
    assert place == 2
    assert 100 < height < 120
    (mean,) = axes.lines
    assert list(mean.get_xdata()) == [1]


def test_a_few_values_have_a_tick_each() -> None:
    found = make_curves(*(make_parameter_trial(value, 100) for value in (1, 2, 7)))
    (axes,) = list_axes(draw_parameter(found))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "7"]


@pytest.mark.parametrize("factor", [1.03, 1.3])
def test_the_labels_of_many_values_do_not_overlap(factor: float) -> None:
    """28 values on a linear axis and on a logarithmic one."""
    figure = draw_parameter(
        make_curves(*(make_parameter_trial(2e-3 * factor**place, 100) for place in range(28)))
    )
    (axes,) = list_axes(figure)
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    boxes = [
        label.get_window_extent()
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high and label.get_text()
    ]
    assert len(boxes) >= 2 + (factor > 1.1)
    assert axes.get_xlabel() == ("model.phi, log scale" if factor > 1.1 else "model.phi")
    assert all(first.x1 < second.x0 for first, second in pairwise(sorted(boxes, key=lambda box: box.x0)))


def test_a_trajectory_joins_the_reports_of_a_trial() -> None:
    figure = draw_trajectories(make_curves(make_parameter_trial(1e-3, 100), make_parameter_trial(1e-4, 200)))
    (axes,) = list_axes(figure)
    first, ring, *_ = axes.lines
    assert (list(first.get_xdata()), list(first.get_ydata())) == ([100, 95], [105, 100])
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([95], [100])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0.001", "0.0001"]


def test_a_logarithmic_axis_of_a_small_ratio_has_labels_too() -> None:
    (axes,) = list_axes(draw_trajectories(make_curves(make_parameter_trial(1e-3, 104))))
    assert axes.get_ylabel().endswith(", log scale")
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["104", "105", "106", "107", "108", "109"]


def test_accuracy_is_drawn_against_perplexity_for_reports_that_have_both() -> None:
    points = (make_point(1, 9, 100, 0.5), make_point(2, 8, 90), make_point(3, 7, 80, 0.6))
    found = TrialReports(model="m", family="f", protocol="sentence", points=points)
    (axes,) = list_axes(draw_accuracies([found]))
    assert (list(axes.lines[0].get_xdata()), list(axes.lines[0].get_ydata())) == ([100, 80], [0.5, 0.6])


def test_mistakes_have_the_families_their_totals_and_tests_and_the_questions() -> None:
    models = [ModelMistakes(name=name, model=name, mistakes=count) for name, count in (("a", 5), ("b", 3.5))]
    test = McNemarTest(first="a", second="b", first_only=1, second_only=3, ties=2, p=0.625)
    found = SharedMistakes(
        corpus="linzen",
        split="valid",
        questions=10,
        correct_for_all=4,
        models=tuple(models),
        regions=(OverlapRegion(models=("a",), mistakes=2.5), OverlapRegion(models=("a", "b"), mistakes=3.5)),
        tests=(test,),
    )
    figure = draw_mistakes(found)
    bars, sets = list_axes(figure)
    assert [bar.get_height() for bar in bars.patches] == [2.5, 3.5]
    assert [label.get_text() for label in sets.get_yticklabels()] == ["a: 5", "b: 3.5"]
    assert figure.get_suptitle() == "10 questions of linzen, valid, 4 answered correctly by all"
    assert figure.get_supxlabel().splitlines()[1:] == ["a and b: p = 0.625"]


def test_groups_of_words_name_the_compared_model_and_no_legend_hides_a_mark() -> None:
    names = [f"ptb_recurrent_memory-0123abcd#{number} seed 2" for number in range(4)]
    interval = (-20.0, 20.0)
    figures = [
        GroupFigure(perplexity=9, interval=None, change=change, change_interval=interval)
        for change in (-15.0, 15.0)
    ]
    models = [
        GroupedModel(model=name, memory="recurrent_memory", figures=tuple(2 * figures)) for name in names
    ]
    groups = [WordGroup(name=f"group {number}", predictions=5, share=0.25) for number in range(4)]
    figure = draw_groups(WordGroups(split="valid", groups=tuple(groups), models=tuple(models)))
    (axes,) = list_axes(figure)
    figure.draw_without_rendering()
    (legend,), page = figure.legends, figure.bbox
    assert [text.get_text() for text in legend.get_texts()] == [
        f"{name}: recurrent_memory" for name in names[1:]
    ]
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    title = figure.get_suptitle()
    assert f"against {names[0]}: recurrent_memory" in title
    assert "95 % intervals over sentences" in title
    texts = [axes.xaxis.label, *figure.texts]
    assert all(page.x0 <= box.x0 and box.x1 <= page.x1 for box in (t.get_window_extent() for t in texts))


def test_an_influence_that_may_be_rounding_is_at_the_lower_edge() -> None:
    """At two distances the model does not depend on the words that it reads."""
    means = {1: 0.5, 2: MIN_INFLUENCE / 10, 3: 0.0}
    distances = [
        DistanceInfluence(distance=d, mean=mean, interval=(mean / 2, mean * 2), predictions=9)
        for d, mean in means.items()
    ]
    found = WordInfluence(model="m", memory="lstm", predictions=27, distances=tuple(distances))
    (axes,) = list_axes(draw_influence([found]))
    (line,) = axes.lines
    assert list(line.get_ydata()) == [0.5, MIN_INFLUENCE, MIN_INFLUENCE]
    assert axes.get_ylim()[0] == MIN_INFLUENCE
    assert "0.00001 and less" in axes.get_title()


def test_figures_without_anything_to_show_are_drawn(tmp_path: Path) -> None:
    nothing = AttendedPairs(model="m", family="f", window=7, by_distance=(), pairs=())
    for place, figure in enumerate(
        (
            draw_examples([], "t"),
            draw_pair_counts(nothing),
            draw_accuracies([]),
            draw_trajectories(make_curves()),
        )
    ):
        save_figure(figure, tmp_path / f"{place}.svg")
        assert "</svg>" in (tmp_path / f"{place}.svg").read_text()


def test_equal_figures_are_equal_files_of_the_named_format(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        figure = make_figure(3, 2)
        figure.add_subplot().plot([1, 2])
        save_figure(figure, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(ConfigurationError, match=r'no figure format ".bmp"'):
        save_figure(figure, tmp_path / "a.bmp")


def test_other_fonts_draw_what_the_first_lacks_and_one_warning_names_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fonts = {font.name: font for font in fontManager.ttflist}
    uninstalled = replace(fonts["STIXGeneral"], fname=str(tmp_path / "gone.ttf"), name="Gone")
    monkeypatch.setattr(fontManager, "ttflist", [fonts["DejaVu Sans"], uninstalled])
    installed = [fonts["STIXGeneral"].fname]  # since matplotlib listed the fonts
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: installed)
    figure = make_figure(2, 2)
    title = figure.suptitle("a \u210a 日")  # STIX has the second letter, neither the third
    save_figure(figure, tmp_path / "figure.png")
    assert title.get_fontfamily() == ["sans-serif", "DejaVu Sans", "STIXGeneral"]
    assert [record.getMessage() for record in caplog.records] == [
        'no font of this machine has "日", drawn as boxes; install one that has them (Noto Sans CJK)'
    ]
