"""Hostile corpus stores: altered manifests, shards, vocabularies and tables, with digests that agree.

    python -m tests.fuzz.store --inputs 100000

A store may be refused with a MemtuneError or opened; nothing else may happen, within the limits of
`time_limit`. The inputs run in a process of their own, since a reader that follows a wrong length crashes its
process.
"""

import argparse
import json
import os
import struct
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st

from memtune.corpora import describe_corpus, list_corpora, open_corpus, verify_corpus
from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol, TreeProtocol
from memtune.corpora.batching.tree_protocol import Treebank
from memtune.errors import MemtuneError
from tests.crafted_store import NAME, create_corpus, list_records, replace_content
from tests.fuzz.time_limit import limit_time

__all__ = ["TARGETS", "run_inputs"]

NUMBERS = [0, 1, -1, 7, 255, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
JSON_TEXTS = ["[" * 100_000, "1" * 5_000, '"\\ud800"', "1e999", "NaN", '"' + "x" * 10_000 + '"', "-0", "{}"]
JSON_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, "", "../x", "/etc/passwd", "a/b", [], {}, 1.5, *NUMBERS]),
    st.text(max_size=20),
)


class Corpus:
    """The corpus that every input alters, restored after each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus = create_corpus(folder)
        self.files = {path: path.read_bytes() for path in self.corpus.rglob("*") if path.is_file()}
        self.manifest = json.loads(self.files[self.corpus / "manifest.json"])

    def restore(self) -> None:
        """Undo what an input did."""
        for path, content in self.files.items():
            if path.read_bytes() != content:
                path.unlink()  # the altered file may still be memory-mapped
                path.write_bytes(content)

    def use(self) -> bool:
        """Read everything that a command would read; whether the corpus was accepted."""
        store = self.folder / "store"
        list_corpora(store, lambda error: None)
        with suppress(MemtuneError):
            verify_corpus(NAME, store)
        try:
            describe_corpus(NAME, store)
            self._read_batches(store)
        except MemtuneError as error:
            str(error).encode()
            return False
        return True

    def _read_batches(self, store: Path) -> None:
        corpus = open_corpus(NAME, store)
        for name, split in corpus.splits.items():
            for protocol in (SentenceProtocol(), StreamProtocol()):
                for plan in (protocol.training_plan(split, 0, 0), protocol.evaluation_plan(split)):
                    for index in range(min(len(plan), 3)):
                        plan.batch(index)
            trees = Treebank.from_corpus(corpus, name)
            TreeProtocol().evaluation_plan(trees).batch(0)
        corpus.vocabulary.decode(corpus["train"].read_tokens(0, corpus["train"].token_count).tolist())


def alter_manifest_value(corpus: Corpus, data: st.DataObject) -> None:
    """Replace the value at one place of the manifest."""
    manifest = json.loads(json.dumps(corpus.manifest))
    node: Any = manifest
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.integers(0, 9)) == 0:
            break
        node = node[key]
    node[key] = data.draw(JSON_VALUES)
    (corpus.corpus / "manifest.json").write_text(json.dumps(manifest))


def alter_manifest_text(corpus: Corpus, data: st.DataObject) -> None:
    """Replace a piece of the text of the manifest, or the whole text."""
    text = json.dumps(corpus.manifest)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    piece = data.draw(st.sampled_from(JSON_TEXTS) | st.text(max_size=10))
    whole = data.draw(st.booleans())
    content = piece if whole else text[:start] + piece + text[stop:]
    (corpus.corpus / "manifest.json").write_bytes(content.encode("utf-8", "surrogatepass"))


def alter_arrow_file(corpus: Corpus, data: st.DataObject) -> None:
    """Numbers of an Arrow file replaced or the file cut, with a digest that agrees."""
    record = data.draw(st.sampled_from(list_records(corpus.manifest)))
    content = bytearray(corpus.files[corpus.corpus / record["path"]])
    for _ in range(data.draw(st.integers(1, 3))):
        size, kind = data.draw(st.sampled_from([(8, "<q"), (4, "<i"), (1, "<b")]))
        place = data.draw(st.integers(0, (len(content) - size) // size)) * size
        number = data.draw(st.sampled_from(NUMBERS) | st.integers(-128, 127))
        content[place : place + size] = struct.pack(kind, wrap(number, 8 * size))
    if data.draw(st.integers(0, 9)) == 0:
        content = content[: data.draw(st.integers(0, len(content)))]
    replace_content(corpus.corpus, record["path"], bytes(content))


def alter_length(corpus: Corpus, data: st.DataObject) -> None:
    """An existing length, offset or id of the file, replaced at every place."""
    record = data.draw(st.sampled_from(list_records(corpus.manifest)))
    content = corpus.files[corpus.corpus / record["path"]]
    kind = data.draw(st.sampled_from(["<i8", "<i4", "<u2"]))
    numbers = np.frombuffer(content[: len(content) // 8 * 8], kind)
    old = data.draw(st.sampled_from(sorted({int(number) for number in numbers if 0 < number < 10_000})))
    new = data.draw(st.sampled_from(NUMBERS))
    bits = 8 * np.dtype(kind).itemsize
    altered = numbers.copy()
    altered[numbers == old] = new % 2**bits if kind == "<u2" else wrap(new, bits)
    rest = content[len(content) // 8 * 8 :]
    replace_content(corpus.corpus, record["path"], altered.tobytes() + rest)


def exchange_files(corpus: Corpus, data: st.DataObject) -> None:
    """Replace the content of one file by that of another."""
    paths = [record["path"] for record in list_records(corpus.manifest)]
    target, source = (data.draw(st.sampled_from(paths)) for _ in range(2))
    replace_content(corpus.corpus, target, corpus.files[corpus.corpus / source])


def wrap(number: int, bits: int) -> int:
    """The number as a signed integer of so few bits."""
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


TARGETS = {
    action.__name__: action
    for action in (alter_manifest_value, alter_manifest_text, alter_arrow_file, alter_length, exchange_files)
}


def run_inputs(target: str, inputs: int, seed: int | None = None) -> tuple[int, int]:
    """Run inputs of one target in this process; (inputs, accepted inputs).

    Without a seed the inputs are the same in every run. Raises what an input raises.
    """
    counts = [0, 0]
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, MEMTUNE_CACHE=f"{folder}/cache"):
        corpus = Corpus(Path(folder))

        @settings(
            max_examples=inputs,
            deadline=None,
            database=None,
            derandomize=seed is None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def run(data: st.DataObject) -> None:
            corpus.restore()
            TARGETS[target](corpus, data)
            with limit_time():
                counts[1] += corpus.use()
            counts[0] += 1

        (run if seed is None else with_seed(seed)(run))()
    return counts[0], counts[1]


def main() -> None:
    """Run a number of inputs, divided among the targets, each target in a process of its own."""
    parser = argparse.ArgumentParser(description="Open altered corpora; exit with 1 for a crash or a hang.")
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, help="other inputs than those of the test")
    chosen = parser.parse_args()
    start = time.monotonic()
    codes = {}
    for target in TARGETS:
        # Forked: importing torch takes longer than hundreds of inputs.
        process = get_context("fork").Process(
            target=report_inputs, args=(target, -(-chosen.inputs // len(TARGETS)), chosen.seed)
        )
        process.start()
        process.join()
        codes[target] = process.exitcode
    print(f"{time.monotonic() - start:.0f} s, exit codes {codes}")
    sys.exit(any(codes.values()))


def report_inputs(target: str, inputs: int, seed: int | None) -> None:
    """Run inputs of one target and print their numbers."""
    found, accepted = run_inputs(target, inputs, seed)
    print(f"{target}: {found} inputs, {accepted} accepted", flush=True)


if __name__ == "__main__":
    main()
