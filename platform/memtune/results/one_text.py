"""The text that results are compared on: a corpus may be imported again with another text under its name."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from memtune.corpora import Corpus, open_corpus
from memtune.errors import CorpusError, MissingCorpusError, StorageError
from memtune.settings import Settings
from memtune.tracking import RegisteredVersion

T = TypeVar("T")
log = logging.getLogger(__name__)


def open_stored(corpus: str, settings: Settings) -> Corpus | None:
    """The corpus of a name; None where the store lacks it, and with a warning where it cannot be read."""
    if not corpus:
        return None
    try:
        return open_corpus(corpus, settings.corpus_store)
    except MissingCorpusError:
        return None
    except (CorpusError, StorageError) as error:
        log.warning("corpus %s is not used: %s", corpus, error)
        return None


def select_text(
    found: Sequence[T],
    has_read: Callable[[T, str], bool],
    stored: Corpus | None,
    champions: Iterable[RegisteredVersion],
    others: Iterable[str] = (),
) -> tuple[list[T], str | None]:
    """What has read one text, and its digest: that of the store, else of a champion, else one of `others`.

    All of `found` and None where they have read none of these.
    """
    digests = [champion.corpus_digest for champion in champions]
    for digest in [*([stored.digest] if stored else []), *digests, *others]:
        if kept := [each for each in found if has_read(each, digest)]:
            return kept, digest
    return list(found), None
