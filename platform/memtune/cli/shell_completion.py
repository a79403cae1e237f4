"""Completion of names in the shell: corpora, studies and models of this home, and packaged files.

`memtune --install-completion` installs it. A key press waits for these functions, so they import nothing that
takes long: no settings, no MLflow. They read what is stored on this machine; a store on a server, or one that
is missing or damaged, completes nothing.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

from memtune.library import FileKind, list_packaged
from memtune.storage.uris import SQLITE_PREFIX, find_path, make_path_uri

ALIASES = "SELECT 'models:/' || name || '@' || alias FROM registered_model_aliases"
TRIALS = """
SELECT study.value || '#' || number.value FROM tags AS study JOIN tags AS number USING (run_uuid)
WHERE study.key = 'memtune.study' AND number.key = 'memtune.number'
"""
WORD_BREAKS = (":", "@", "=")
"""Characters at which bash splits words, and which names of models have."""


def answer_bash(answer: Callable[[], object]) -> None:
    """Let `answer` complete the command line of bash, and print what bash puts in place of its last word.

    Bash splits words at characters that names of models have: models:/ptb@champion is five of its words.
    """
    words, position = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    joined, at, left_out = join_words_of_bash(words, position)
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(at)}
    found = StringIO()
    with redirect_stdout(found), suppress(SystemExit):
        answer()
    for line in found.getvalue().splitlines():
        print(line[left_out:])


def join_words_of_bash(words: list[str], position: int) -> tuple[list[str], int, int]:
    """The words of a command line, each in one piece.

    Returns the words, the position of the word under the cursor, and the number of its first characters that
    bash keeps whatever the completion is.
    """
    joined, at, left_out = list[str](), 0, 0
    is_joined = False
    for place, word in enumerate(words):
        if word == "=" and joined and joined[-1].startswith("-"):  # the value of an option is another word
            is_joined, before = False, 0
            if place == position:
                joined.append("")
        elif joined and (word in WORD_BREAKS or is_joined):
            before = len(joined[-1]) + (len(word) if word in WORD_BREAKS else 0)
            joined[-1] += word
            is_joined = word in WORD_BREAKS
        else:
            before = 0
            joined.append(word)
        if place == position:
            at, left_out = len(joined) - 1, before
    return joined, at, left_out


def _make_completer(list_names: Callable[[str], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function that completes a word by the names that begin with it: none where they cannot be read."""

    def complete(incomplete: str) -> list[str]:
        try:
            return sorted(name for name in list_names(incomplete) if name.startswith(incomplete))
        except (OSError, sqlite3.Error):
            return []

    return complete


def _find_home() -> Path:
    """The home of memtune.settings, which this module does not import and which would create it."""
    return Path(os.environ.get("MEMTUNE_HOME") or ".memtune").expanduser()


def _list_folders(variable: str, default: str, file: str) -> Iterator[str]:
    """The folders of a local store that hold a file."""
    store = os.environ.get(variable) or str(_find_home() / default)
    if "://" in store:
        return
    for folder in Path(store).expanduser().iterdir():
        if (folder / file).is_file():
            yield folder.name


def _list_corpora(incomplete: str) -> Iterator[str]:
    """Names of corpora; of a joined corpus, such as text+questions, the last one is completed."""
    joined, plus, _ = incomplete.rpartition("+")
    for name in _list_folders("MEMTUNE_STORE", "corpora", "manifest.json"):
        yield f"{joined}{plus}{name}"


def _list_files(incomplete: str, kind: FileKind) -> Iterator[str]:
    """The packaged names of a kind, and the TOML files and folders at the begun path."""
    yield from list_packaged(kind)
    begun, slash, _ = incomplete.rpartition("/")
    for path in Path(f"{begun}{slash}" or ".").expanduser().iterdir():
        if path.is_dir() and not path.name.startswith("."):
            yield f"{begun}{slash}{path.name}/"
        elif path.suffix == ".toml":
            yield f"{begun}{slash}{path.name}"


def _query_records(*queries: str) -> Iterator[str]:
    """The answers to queries of MLflow's file, without MLflow."""
    default = make_path_uri(SQLITE_PREFIX, _find_home().absolute() / "mlflow.db")
    path = find_path(os.environ.get("MLFLOW_TRACKING_URI") or default, SQLITE_PREFIX)
    if path is None or not path.is_file():
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.1)) as database:
        for query in queries:
            for (name,) in database.execute(query):
                yield name


complete_corpus = _make_completer(_list_corpora)
complete_study = _make_completer(lambda _: _list_folders("MEMTUNE_STUDIES", "studies", "study.json"))
complete_model = _make_completer(lambda _: _query_records(ALIASES, TRIALS))
"""Registered models by their aliases, and trials of studies."""
complete_paper = _make_completer(lambda _: list_packaged(FileKind.PAPER))
complete_packaged_study = _make_completer(lambda _: list_packaged(FileKind.STUDY))
complete_study_file = _make_completer(lambda incomplete: _list_files(incomplete, FileKind.STUDY))
"""TOML files, and packaged studies."""
complete_trial_file = _make_completer(lambda incomplete: _list_files(incomplete, FileKind.TRIAL))
"""TOML files, and packaged trials."""
