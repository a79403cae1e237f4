"""Hostile spaces, studies, trial files, tables of papers, checkpoints and packages of registered models.

    python -m tests.fuzz.training --inputs 100000

An input may be accepted or refused with a MemtuneError. Any other exception fails, and so does an input that
exceeds the limits of `time_limit`.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st

from memtune.corpora import Corpus
from memtune.errors import MemtuneError
from memtune.experiments.published_tables import load_paper
from memtune.experiments.single_trial import load_trial
from memtune.spaces import RandomChooser, SizeKind, Space, override_space, read_space
from memtune.storage.digests import hash_file
from memtune.studies.definition.study_loader import check_spaces, load_study
from memtune.studies.definition.trial_limits import make_trial_config
from memtune.tracking.registry.model_package import (
    CARD_FILE,
    check_package,
    read_sources,
    read_text_rules,
    read_vocabulary,
    write_run_package,
)
from memtune.tracking.registry.text_rules import TextRules
from memtune.training import (
    GradientTrainer,
    TrialConfig,
    load_model,
    read_checkpoint,
    restore_trainer,
    save_model,
)
from memtune.training.checkpoint import RECORD_FILE
from memtune.values import digest
from tests.fuzz.time_limit import limit_time
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.unit.tracking.registered_models import make_result
from tests.unit.training.conftest import make_small_trial

__all__ = ["TARGETS", "run_inputs"]

ROOT = Path(__file__).parents[2]
SPACE_FILES = sorted((ROOT / "search_spaces").glob("*.toml"))
STUDY_FILES, TRIAL_FILES, PAPER_FILES = (
    sorted((ROOT / "jobs" / kind).glob("*.toml")) for kind in ("studies", "trials", "papers")
)
VOCABULARY_SIZE = 100
TOML_TOKENS = [
    *("0", "-1", "1", "2", "1e308", "-1e308", "5e-324", "inf", "nan", "9" * 18, "9" * 19, "9" * 4400),
    *("true", "{}", "[]", '""', '"lstm"', '"kneser_ney"', '"\\u0000"', "1979-05-27", "0x7fffffffffffffff"),
    *("{ int = [1, 3] }", "{ int = [-5, 5], step = 3 }", "{ float = [-1e308, 1e308], step = 1e-300 }"),
    *("{ float = [1e-300, 1e300], log = true }", '{ choice = ["a", 1, true] }', "{ fit_parameters = 5 }"),
    *("{ int = [0, 9223372036854775807], log = false }", '{ one_of = "kind" }', "[" * 600, "{a=" * 600),
    *("one_of", "int", "float", "choice", "log", "step", "fit_parameters", "spaces", "model", "training"),
    *("a." * 3000, "=", ",", "\n", "[", "]", "[[", "]]", "{", "}", '"', "'''", "\r", "\x00", "\ufeff", "#"),
]
JSON_VALUES = st.one_of(
    st.sampled_from([None, True, -1, 0, 1.5, 2**31, 2**63 - 1, 10**30, "", "x", "../../x", [], {}, [[]]]),
    st.sampled_from([float("inf"), float("nan"), -1e308, {"a": {"b": 1}}, ["x"] * 3, "\ud800"]),
)
EDITS = st.lists(
    st.tuples(
        st.integers(0, 10**6), st.sampled_from(["replace", "insert", "delete"]), st.sampled_from(TOML_TOKENS)
    ),
    min_size=1,
    max_size=4,
)


def edit_toml(text: str, edits: list[tuple[int, str, str]]) -> str:
    """The text with some of its words, numbers and punctuation marks replaced."""
    tokens = re.findall(r"\w+(?:\.\d+)?|\s+|[^\w\s]", text)
    for number, kind, token in edits:
        place = number % len(tokens)
        tokens[place : place + (kind != "insert")] = [] if kind == "delete" else [token]
        tokens = tokens or ["#"]
    return "".join(tokens)


SPACES, STUDIES, TRIALS, PAPERS = (
    st.builds(edit_toml, st.sampled_from([file.read_text() for file in files]), EDITS)
    for files in (SPACE_FILES, STUDY_FILES, TRIAL_FILES, PAPER_FILES)
)

T = TypeVar("T")


class Target:
    """What one kind of input needs: a folder of its own, and a tiny corpus for checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus: Corpus = make_tiny_corpus(folder / "corpus", train=20)
        trainer = GradientTrainer(
            make_small_trial({"family": "lstm", "width": 3}, optimiser={"kind": "adam"}, epochs=2),
            self.corpus,
        )
        trainer.advance()
        trainer.train_for(0)
        trainer.save(folder / "original")
        self._write_package(trainer)

    def _write_package(self, trainer: GradientTrainer) -> None:
        save_model(trainer.model, self.folder / "model")
        tokens = self.corpus.vocabulary.tokens
        write_run_package(
            self.folder / "package", "run", make_result(5.0), self.folder / "model", tokens, TextRules(), ()
        )

    def read_space(self, text: str) -> None:
        """Read a space and use everything of it: values, sizes, and samples as trials of a study's budget."""
        space = read_space(text, "space")
        for parameter in space.parameters():
            parameter.leaf.test_values()
        space.describe(), space.size(), space.family
        # Counting families refuse a budget of training, and networks need one.
        _try_each(
            [partial(_sample_trial, space, entries) for entries in ({}, {"training": {"tokens": 1000}})]
        )

    def read_study(self, text: str) -> None:
        """Read a study and check its spaces."""
        path = self.folder / "text.toml"
        self._read_file(text, lambda: check_spaces(path, load_study(path), VOCABULARY_SIZE))

    def read_trial(self, text: str) -> None:
        """Read a trial file and count the parameters of its model."""
        path = self.folder / "text.toml"
        read = self._read_file(text, lambda: load_trial(path))
        read.trial.parameter_count(VOCABULARY_SIZE)  # whose errors are about the corpus, too

    def read_paper(self, text: str) -> None:
        """Read a table of a paper."""
        self._read_file(text, lambda: load_paper(str(self.folder / "text.toml")))

    def _read_file(self, text: str, read: Callable[[], T]) -> T:
        """Read a file of this text; an error names the file."""
        (self.folder / "text.toml").write_bytes(text.encode("utf-8", "replace"))
        try:
            return read()
        except MemtuneError as error:
            if "text.toml" in str(error):
                raise
            raise AssertionError("an error that does not name the file") from error

    def read_checkpoint(self, alterations: list[tuple[int, str, int, Any, bool]]) -> None:
        """Read an altered checkpoint in every way, and resume from it."""
        checkpoint = read_checkpoint(self._copy_altered("original", alterations, _seal))
        _try_each([checkpoint.build_best_model, partial(restore_trainer, checkpoint, self.corpus)])

    def read_package(self, alterations: list[tuple[int, str, int, Any, bool]]) -> None:
        """Read an altered package of a registered model as a download of it is read, and load the model."""
        folder = self._copy_altered("package", alterations, _seal_package)
        check_package(folder)
        read_vocabulary(folder), read_text_rules(folder), read_sources(folder)
        load_model(folder)

    def _copy_altered(
        self,
        original: str,
        alterations: list[tuple[int, str, int, Any, bool]],
        seal: Callable[[Path], None],
    ) -> Path:
        folder = self.folder / "altered"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / original, folder)
        for file, kind, number, value, is_sealed in alterations:
            _alter(sorted(folder.iterdir())[file % len(sorted(folder.iterdir()))], kind, number, value)
            if is_sealed:
                with suppress(OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError):
                    seal(folder)
        return folder


ALTERATION_KINDS = [
    *("value", "value", "value", "truncate", "flip", "append", "fifo", "zero", "folder", "huge", "deep"),
    *("remove", "outside", "digits"),
]
ALTERATIONS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(ALTERATION_KINDS),
        st.integers(0, 10**6),
        JSON_VALUES,
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Target, Any], None]]] = {
    "spaces": (SPACES, Target.read_space),
    "studies": (STUDIES, Target.read_study),
    "trials": (TRIALS, Target.read_trial),
    "papers": (PAPERS, Target.read_paper),
    "checkpoints": (ALTERATIONS, Target.read_checkpoint),
    "packages": (ALTERATIONS, Target.read_package),
}


def _try_each(actions: list[Callable[[], object]]) -> None:
    """Run every action; raise the last MemtuneError when all actions raise one."""
    errors: list[MemtuneError] = []
    for action in actions:
        try:
            action()
        except MemtuneError as error:
            errors.append(error)
    if len(errors) == len(actions):
        raise errors[-1]


def _sample_trial(space: Space, entries: dict[str, Any]) -> int:
    sampled = override_space(space, entries).sample(RandomChooser(0), _measure_size)
    return make_trial_config(sampled).parameter_count(VOCABULARY_SIZE)


def _measure_size(sampled: Any, kind: SizeKind) -> int:
    return make_trial_config(sampled).measure_size(kind, VOCABULARY_SIZE)


def _alter(path: Path, kind: str, number: int, value: Any) -> None:
    content = path.read_bytes() if _is_small(path) else b"{}"
    if kind == "value":
        if path.suffix == ".json":
            _replace_value(path, content, number, value)
        return
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    place = number % (len(content) + 1)
    if kind in ("truncate", "flip", "append", "deep", "digits"):
        changed = {
            "truncate": content[:place],
            "flip": content[:place] + bytes([number % 256]) + content[place + 1 :],
            "append": content + b"\0" * (number % 100),
            "deep": b"[" * 100_000,
            "digits": b'{"schema_version": ' + b"1" * 5000 + b"}",
        }
        path.write_bytes(changed[kind])
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind in ("zero", "outside"):
        path.symlink_to("/dev/zero" if kind == "zero" else "/proc/self/status")
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(2 ** (30 + number % 12))
    elif len(list(path.parent.iterdir())) == 0:
        path.touch()


def _replace_value(path: Path, content: bytes, number: int, value: Any) -> None:
    """Replace one value of a document, chosen by number; the digests no longer agree."""
    with suppress(ValueError, RecursionError):
        document = json.loads(content)
        places = list(_iterate_places(document))
        if places:
            parent, key = places[number % len(places)]
            parent[key] = value
            path.write_text(json.dumps(document))


def _iterate_places(node: Any) -> Iterator[tuple[Any, Any]]:
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(pairs):
        yield node, key
        yield from _iterate_places(value)


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size < 2**20


def _seal(folder: Path) -> None:
    """Make the digests of an altered checkpoint agree with its files again, as an attacker would."""
    path = folder / RECORD_FILE
    if not _is_small(path):
        return
    sealed = json.loads(path.read_bytes())
    for name in sealed["files"]:
        if _is_small(folder / name):
            sealed["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    config = TrialConfig.model_validate(sealed["record"]["config"])
    sealed["record"]["identity"] = config.identity(sealed["record"]["corpus_digest"])
    sealed["digest"] = digest({name: value for name, value in sealed.items() if name != "digest"})
    path.write_text(json.dumps(sealed))


def _seal_package(folder: Path) -> None:
    """Make the digests of an altered package agree with its files again."""
    path = folder / CARD_FILE
    if not _is_small(path):
        return
    card = json.loads(path.read_bytes())
    for name in card["files"]:
        if _is_small(folder / name):
            card["files"][name] = hash_file(folder / name)
    path.write_text(json.dumps(card))


def run_inputs(target: str, inputs: int, seed: int, folder: Path) -> tuple[int, int]:
    """(inputs, accepted inputs) of a target under a fixed seed.

    Raises what an input raises besides MemtuneError.
    """
    strategy, run = TARGETS[target]
    state = Target(folder)
    counts = [0, 0]

    @with_seed(seed)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def check(value: Any) -> None:
        counts[0] += 1
        with limit_time(), suppress(MemtuneError):
            run(state, value)
            counts[1] += 1

    check()
    return counts[0], counts[1]


def main() -> None:
    """Run inputs of every target, or of those named."""
    parser = argparse.ArgumentParser(description="Hostile files of users, checkpoints and packages")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help=f"default: {' '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=1000, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for target in arguments.targets:
        with tempfile.TemporaryDirectory() as folder:
            count, accepted = run_inputs(target, arguments.inputs, arguments.seed, Path(folder))
        print(
            f"{target}: {count:,} inputs under seed {arguments.seed}, {accepted:,} accepted, no failure",
            flush=True,
        )


if __name__ == "__main__":
    main()
