"""Comparison of a corpus's trials, of corpora with different tokens by bits per byte, and the champions."""

import math
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from memtune.arguments import CORPUS_NAME, check_type
from memtune.corpora import Corpus, count_text_units, open_corpus
from memtune.data_frames import ResultList, make_frame, render_table
from memtune.errors import TrackingError, did_you_mean, refuse_shared_name, suggest_nearest
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.one_text import open_stored, select_text
from memtune.results.study.ranking import LENGTH_TOLERANCE, make_curve_frame, rank_trials
from memtune.settings import Settings
from memtune.tracking import (
    NO_STUDY,
    CorpusPages,
    LeaderboardRow,
    RegisteredVersion,
    count_test_accesses,
    link_corpora,
    link_corpus,
    list_champions,
    read_leaderboard,
)
from memtune.trial_state import TrialState
from memtune.values import Value


@dataclass(frozen=True)
class Comparison:
    """The trials of one text of a corpus under one protocol, best first."""

    rows: list[LeaderboardRow]
    """Configurations of full length by their mean cost, then those that lack seeds, then shorter trials."""
    protocol: str
    ideal_perplexity: float | None
    """The validation perplexity no model can beat, where it is known and the trials compare by perplexity."""
    figure_path: Path
    """The path of the figure, which is not written yet: one for the corpus, one for each study and for each
    protocol that was asked for."""
    pages: CorpusPages
    """The same trials in MLflow's pages."""
    other_protocols: tuple[str, ...] = ()
    """The protocols of this corpus's other trials, whose figures do not compare with these."""
    test_accesses: int = 0
    """How often models of this corpus have read a test split."""
    champion: RegisteredVersion | None = None
    """The registered best model of this text under this protocol."""
    text_remark: str = ""
    """Which trials under this protocol read another text of this name, in words; empty for none."""

    @property
    def remarks(self) -> list[str]:
        """What is left out, and which studies come last whatever their figures, as others trained longer."""
        remarks, budgets = [self.text_remark] if self.text_remark else [], dict[str, int]()
        for row in self.rows:
            if row.state is TrialState.COMPLETE and row.planned_tokens:
                study = "no study" if row.study == NO_STUDY else row.study
                budgets[study] = max(budgets.get(study, 0), round(row.planned_tokens))
        longest = max(budgets.values(), default=0)
        if any(budget < (1 - LENGTH_TOLERANCE) * longest for budget in budgets.values()):
            named = ", ".join(f"{study} {budget:,}" for study, budget in budgets.items())
            remarks.append(
                f"the studies trained on unequal numbers of tokens ({named}): trials below {longest:,} "
                "tokens are not ranked and come last, whatever their figure"
            )
        return remarks

    @property
    def best(self) -> LeaderboardRow | None:
        """The trial of the best configuration; None where none has full length."""
        return next((row for row in self.rows if row.place == 1), None)

    def select_top(self, count: int) -> list[LeaderboardRow]:
        """The rows of the first `count` configurations, each with all its seeds."""
        first = set(islice(dict.fromkeys(map(_identify_configuration, self.rows)), count))
        return [row for row in self.rows if _identify_configuration(row) in first]

    def count_configurations(self) -> int:
        """Those of one study are one each, whatever their seeds."""
        return len(set(map(_identify_configuration, self.rows)))

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each trial, the columns of `memtune compare --csv`."""
        return make_frame({**describe_row(row, self.ideal_perplexity), **row.parameters} for row in self.rows)

    def curves(self) -> Any:
        """A pandas data frame with a row for each report: trial, tokens, and its validation.

        Trainings without a study may have equal names; their run_id tells them apart.
        """
        return make_curve_frame(self.rows, self.rows[0].objective, "study", "run_id")

    def __repr__(self) -> str:
        return f"Comparison({self.title})"

    def _repr_html_(self) -> str:
        names = ["place", "name", "alternative", "study", "state", "figure"]
        names += ["ranked_figure", "low", "high", "seeds", "tokens", "hours"]
        frame = make_frame(
            {
                **{name: describe_row(row, None)[name] for name in names},
                "parameters": row.parameter_count,
                "carried_state": row.carried_state,
            }
            for row in self.rows
        )
        ideal = f", ideal {self.ideal_perplexity:.3f}" if self.ideal_perplexity else ""
        about = f"validation {self.rows[0].objective}{ideal}"
        return render_table(f"{self.title}: {'; '.join([about, *self.remarks])}", frame)

    @property
    def title(self) -> str:
        """The corpus, the protocol and the number of trials."""
        return f"{self.pages.corpus}, protocol {self.protocol}, {format_count(len(self.rows), 'trial')}"


def _identify_configuration(row: LeaderboardRow) -> tuple[str, str]:
    return row.study, row.configuration or row.run_id  # earlier versions recorded no configuration


def describe_row(row: LeaderboardRow, ideal: float | None) -> dict[str, Any]:
    """The columns of a trial in tables for programs; its model's sizes are among the recorded parameters.

    `figure` is the trial's own validation perplexity (lower is better) or accuracy (higher is better).
    `ranked_figure` is the one that ranks it, where it has a place the mean over the `seeds` of its
    configuration, `low` and `high` the ends of its 95 % interval, `above_ideal` its relative distance from a
    known ideal. A value that a trial lacks is None.
    """
    figure, (low, high) = row.ranked_figure, row.interval or (None, None)
    above = {"above_ideal": None if figure is None else figure / ideal - 1} if ideal else {}
    return {
        "place": row.place,
        "name": row.name,
        "family": row.family,
        "alternative": row.alternative,
        "study": row.study,
        "run_id": row.run_id,
        "state": row.state.label,
        "protocol": row.protocol,
        "objective": row.objective,
        "figure": row.figure,
        "ranked_figure": figure,
        "low": low,
        "high": high,
        "seeds": row.estimate.seeds if row.estimate else None,
        **above,
        "tokens": row.tokens,
        "hours": row.hours,
        "peak_memory_bytes": row.peak_memory_bytes,
        "test_accesses": row.test_accesses,
        "note": row.note,
    }


def compare(
    corpus: str,
    protocol: str | None = None,
    study: str | None = None,
    settings: Settings | None = None,
) -> Comparison:
    """The trials of a corpus under `protocol`, or that of the champion, or that of most trials.

    They are those of the text in the store, else of the champion's text, else of that of the best trial.
    Protocols are labels as in the rows, with the task; without the task, the only one of that protocol.
    `study`, a study's id or its name before the digest, keeps that study's trials. Raises TrackingError when
    nothing was recorded for the corpus under that protocol or study.
    """
    check_type("corpus", corpus, str, CORPUS_NAME)
    settings = Settings.resolve(settings)
    rows = read_leaderboard(settings.tracking_uri, corpus)
    if not rows:
        recorded = (pages.corpus for pages in link_corpora(settings.tracking_uri))
        near = suggest_nearest(corpus, recorded)
        raise TrackingError(
            f'no trials are recorded for corpus "{corpus}" in {settings.tracking_uri}; '
            + (near or "run: memtune search STUDY.toml, or set MEMTUNE_HOME to where one has run")
        )
    rows = _select_study(rows, corpus, study)
    champions = list_champions(settings.tracking_uri, corpus)
    labels = [row.protocol for row in rows]
    asked = None if protocol is None else _resolve_label(protocol, labels, corpus)
    stored = open_stored(corpus, settings)
    same_text, digest = select_text(
        [row for row in rows if asked in (None, row.protocol)],
        LeaderboardRow.has_read,
        stored,
        champions,
        [row.corpus_digest for row in rows if row.corpus_digest],
    )
    own = [row.protocol for row in same_text]
    main = next((champion.protocol for champion in champions), None)
    chosen = asked or (main if main in own else max(own, key=own.count))
    kept = [row for row in same_text if row.protocol == chosen]
    named = kept[0].study if study else None
    pages = link_corpus(settings.tracking_uri, corpus, chosen, named)
    ideal = None
    if kept[0].objective.has_ideal and stored is not None and stored.digest == digest:
        ideal = (stored.manifest.ideal or {}).get("valid")
    label = re.sub(r"[^A-Za-z0-9._]+", "_", chosen) if protocol else None
    scope = "-".join(filter(None, [corpus, named, label]))
    champion = next((c for c in champions if c.protocol == chosen and c.corpus_digest == digest), None)
    left_out = labels.count(chosen) - len(kept)
    remarks = []
    if left_out:
        remarks.append(
            f'{format_count(left_out, "trial")} that read another text named "{corpus}" are left out'
        )
    if stored is not None and digest not in (None, stored.digest):
        remarks.append(f'the trials read another text named "{corpus}" than the store has')
    return Comparison(
        rank_rows(kept),
        chosen,
        ideal,
        settings.home / "figures" / f"{scope}.png",
        pages,
        other_protocols=tuple(sorted({*labels} - {chosen})),
        test_accesses=count_test_accesses(settings.tracking_uri, corpus),
        champion=champion,
        text_remark="; ".join(remarks),
    )


def rank_rows(rows: Sequence[LeaderboardRow]) -> list[LeaderboardRow]:
    """The rows in the order of their ranking, with their places, estimates and notes."""
    ranking, ordered = rank_trials(rows), dict[str, LeaderboardRow]()

    def add(row: LeaderboardRow, **change: Any) -> None:
        ordered[row.run_id] = row.model_copy(update=change)

    for found in ranking.configurations if ranking else ():
        why = found.explain()
        add(found.best, estimate=found.estimate, note=why and f"not ranked: {why}", place=found.place)
        for row in found.trials[1:]:
            add(row, note=f"a seed of {found.title}")
    for short in ranking.short if ranking else ():
        add(short.best, note=f"not ranked: {short.explain()}")
    return [*ordered.values(), *(row for row in rows if row.run_id not in ordered)]


def _resolve_label(protocol: str, labels: Collection[str], corpus: str) -> str:
    """The label itself, or the only label of that protocol with some task."""
    known = sorted(set(labels))
    meant = [label for label in known if label.startswith(f"{protocol}, ")]
    if protocol in known:
        return protocol
    if len(meant) == 1:
        return meant[0]
    subject = "several tasks are" if meant else "no trials are"
    options = " or ".join(f"--protocol {shlex.quote(label)}" for label in meant or known)
    raise TrackingError(f'{subject} recorded for "{corpus}" under protocol "{protocol}"; write {options}')


def _select_study(rows: list[LeaderboardRow], corpus: str, study: str | None) -> list[LeaderboardRow]:
    """The rows of one study, by its id or, where that names one study only, by its name."""
    if study is None:
        return rows
    known = sorted({row.study for row in rows})
    named = [name for name in known if study in (name, name.rpartition("-")[0])]
    if len(named) == 1:
        return [row for row in rows if row.study == named[0]]
    if named:
        raise TrackingError(refuse_shared_name(study, named))
    raise TrackingError(f'no study "{study}" on corpus "{corpus}"; {did_you_mean(study, known)}')


def find_champions(
    corpus: str | None = None, settings: Settings | None = None
) -> ResultList[RegisteredVersion]:
    """The champion of each label of a corpus, or of every corpus, that of the main label first.

    Raises TrackingError when there is none.
    """
    check_type("corpus", corpus, (str, type(None)), f"{CORPUS_NAME}, or None for all")
    settings = Settings.resolve(settings)
    found = list_champions(settings.tracking_uri, corpus)
    if not found:
        of = f' of "{corpus}"' if corpus else ""
        raise TrackingError(
            f"no champion{of} in {settings.tracking_uri} yet; run: memtune search STUDY.toml, or set "
            "MEMTUNE_HOME to where one has run"
        )
    return ResultList(found, "the best model of each protocol and task", RegisteredVersion.list_columns)


class TokenisationRow(Value):
    """The best trial of one corpus, in units that do not depend on its tokens."""

    corpus: str
    tokens: str
    """What its tokens are: words, characters, bpe:8000."""
    vocabulary: int
    name: str
    family: str
    parameters: int | None
    carried_state: int | None
    token_perplexity: float
    word_perplexity: float
    byte_perplexity: float
    bits_per_byte: float
    """Lower is better."""
    lost_share: float
    """Share of the tokens that are `<unk>` for other words; above 0 the other figures are lower bounds."""


def compare_tokenisations(
    corpora: Sequence[str], protocol: str | None = None, settings: Settings | None = None
) -> list[TokenisationRow]:
    """The best trial of each corpus, fewest bits per byte first; those with lost words come last.

    Raises TrackingError where the corpora have different validation texts, or their trials another objective
    or protocols.
    """
    settings = Settings.resolve(settings)
    opened = [open_corpus(name, settings.corpus_store) for name in corpora]
    _require_one_text(opened)
    found = [compare(name, protocol, None, settings) for name in corpora]
    labels = sorted({comparison.protocol for comparison in found})
    if len(labels) > 1 or found[0].rows[0].objective is not Objective.PERPLEXITY:
        raise TrackingError(
            "bits per byte compare for language models under one protocol; the trials have "
            f"{' and '.join(labels)}"
        )
    rows = [_make_row(corpus, comparison.rows[0]) for corpus, comparison in zip(opened, found, strict=True)]
    return sorted(rows, key=lambda row: (row.lost_share > 0, row.bits_per_byte))


def _make_row(corpus: Corpus, best: LeaderboardRow) -> TokenisationRow:
    figure = best.ranked_figure
    if figure is None:
        raise TrackingError(f'no trial on corpus "{corpus.name}" has a validation yet')
    if not best.has_read(corpus.digest):
        raise TrackingError(
            f'the trials of "{corpus.name}" read another text of this name; import that text again'
        )
    loss, units = math.log(figure), count_text_units(corpus, "valid")
    return TokenisationRow(
        corpus=corpus.name,
        tokens=corpus.manifest.options.tokens,
        vocabulary=len(corpus.vocabulary),
        name=best.name,
        family=best.family,
        parameters=best.parameter_count,
        carried_state=best.carried_state,
        token_perplexity=Objective.PERPLEXITY.compute_figure(loss),
        **units.compute_figures(loss),
    )


def _require_one_text(corpora: Sequence[Corpus]) -> None:
    """Raise TrackingError unless the validation splits were made of one text, spelled in one way."""
    texts = set()
    for corpus in corpora:
        source = corpus.manifest.sources.get("valid")
        options = corpus.manifest.options
        spelling = (options.lower_case, options.unescape, options.normalise)
        texts.add((source and (source.sha256, source.division), spelling))
    if len(texts) > 1 or None in {text[0] for text in texts}:
        names = " and ".join(f'"{corpus.name}"' for corpus in corpora)
        raise TrackingError(
            f"{names} have different validation texts or spellings, so that no unit makes their figures "
            "comparable; import one text with different --tokens"
        )
