"""What there is to compare: a corpus's trials under one protocol, and the champions."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from memtune.corpora import open_corpus
from memtune.errors import CorpusError, TrackingError, did_you_mean
from memtune.execution.settings import Settings
from memtune.tracking import Champion, Row, best, experiment_link, is_server, leaderboard, list_champions

__all__ = ["PAGES", "Comparison", "champions", "compare"]

PAGES = "http://127.0.0.1:5000"
COLUMNS = ("model.family", "parameters", "model.width", "model.layers", "model.memory_size")


@dataclass(frozen=True)
class Comparison:
    """A corpus's trials under one protocol, best first."""

    rows: list[Row]
    protocol: str
    ideal: float | None
    """The validation perplexity no model can beat, where it is known and the trials compare by perplexity."""
    figure: Path
    """Where the figure goes."""
    link: str
    """The table in MLflow's pages."""
    others: tuple[str, ...] = ()
    """The protocols of this corpus's other trials, which these do not compare with."""


def compare(
    corpus: str,
    protocol: str | None = None,
    study: str | None = None,
    settings: Settings | None = None,
) -> Comparison:
    """The trials of a corpus under `protocol`, or that of the champion, or that of most trials.

    Protocols are labels as in the rows, with the task; without it one is found where no other begins with it.
    `study`, a study's id or its name before the digest, keeps that study's trials. Raises TrackingError when
    nothing was recorded for the corpus under that protocol or study.
    """
    settings = settings or Settings.read()
    rows = leaderboard(settings.tracking, corpus)
    if not rows:
        raise TrackingError(
            f'no trials are recorded for corpus "{corpus}" in {settings.tracking}; run: memtune search '
            "STUDY.toml, or set MEMTUNE_HOME to where one has run"
        )
    rows = _of_study(rows, corpus, study)
    champion = best(settings.tracking, corpus)
    labels = [row.protocol for row in rows]
    usual = champion.protocol if champion and champion.protocol in labels else max(labels, key=labels.count)
    chosen = usual if protocol is None else _label(protocol, labels, corpus)
    kept = [row for row in rows if row.protocol == chosen]
    base = None if is_server(settings.tracking) else PAGES
    studies = {row.study for row in kept} if study else set()
    link = experiment_link(
        settings.tracking, corpus, COLUMNS, next(iter(studies), None), base, kept[0].objective
    )
    ideal = _ideal(corpus, settings) if kept[0].objective == "perplexity" else None
    figure = settings.home / "figures" / f"{corpus}.png"
    return Comparison(kept, chosen, ideal, figure, link, tuple(sorted({*labels} - {chosen})))


def _label(protocol: str, labels: Collection[str], corpus: str) -> str:
    """The label that is meant: itself, or the only one of that protocol under some task."""
    known = sorted(set(labels))
    meant = [label for label in known if label.startswith(f"{protocol}, ")]
    if protocol in known:
        return protocol
    if len(meant) == 1:
        return meant[0]
    under = "several tasks are" if meant else "no trials are"
    options = " or ".join(f"--protocol {shlex.quote(label)}" for label in meant or known)
    raise TrackingError(f'{under} recorded for "{corpus}" under protocol "{protocol}"; write {options}')


def _of_study(rows: list[Row], corpus: str, study: str | None) -> list[Row]:
    """The rows of one study, by its id or, where that names one study only, by its name."""
    if study is None:
        return rows
    known = sorted({row.study for row in rows})
    named = [name for name in known if study in (name, name.rpartition("-")[0])]
    if len(named) == 1:
        return [row for row in rows if row.study == named[0]]
    way_out = f"several have that name: {', '.join(named)}" if named else did_you_mean(study, known)
    raise TrackingError(f'no one study "{study}" on corpus "{corpus}"; {way_out}')


def _ideal(corpus: str, settings: Settings) -> float | None:
    try:
        manifest = open_corpus(corpus, settings.store).manifest
    except CorpusError:
        return None
    return manifest.ideal.get("valid") if manifest.ideal else None


def champions(corpus: str | None = None, settings: Settings | None = None) -> list[Champion]:
    """The champion of a corpus, or of every corpus. Raises TrackingError when there is none."""
    settings = settings or Settings.read()
    if corpus is None:
        found = list_champions(settings.tracking)
    else:
        found = [champion for champion in [best(settings.tracking, corpus)] if champion is not None]
    if not found:
        of = f' of "{corpus}"' if corpus else ""
        raise TrackingError(
            f"no champion{of} in {settings.tracking} yet; run: memtune search STUDY.toml, or set "
            "MEMTUNE_HOME to where one has run"
        )
    return found
