"""Hostile and mutated inputs for every importer, drawn by hypothesis.

An import of any input ends in a corpus or in a MemtuneError, within the limits of `limit_time`, and a
refused import leaves no file in the store. `python -m tests.fuzz.importers --inputs 100000` draws that many
inputs, the same number for each format. The tests of test_importers.py draw a few hundred for each.
"""

import argparse
import bz2
import gzip
import io
import lzma
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from memtune.corpora import (
    FORMATS,
    CorpusStore,
    Division,
    ImportOptions,
    TextFile,
    VectorFile,
    import_corpus,
    verify_corpus,
)
from memtune.errors import MemtuneError
from tests.fuzz.time_limit import limit_time

CONLLU_WORD = "{}\t{}\t_\tNOUN\t_\t_\t{}\t{}\t_\t_\n"
TABLE = pa.table({"text": ["the cat sees", "the dog\nsleeps", "a cat"], "id": [1, 2, 3]})


def write_parquet() -> bytes:
    """A small table as Parquet."""
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=2)
    return sink.getvalue()


def write_arrow() -> bytes:
    """The same table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return sink.getvalue()


SEEDS: Mapping[str, Mapping[str, str | bytes]] = {
    "text": {"text": "the cat sees the dog\n\nthe dog sleeps\n"},
    "ptb": {"text": "the <unk> sees N dogs\nthe dog sleeps\n"},
    "wikitext": {"text": " = Cats = \n\n the cat @-@ like dog \n"},
    "prose": {"text": "Mr. J. B. Cat's dog\nsleeps. Go-\non!\n\nIt rains.\n"},
    "jsonl": {"text": '{"text": "the cat\\nsleeps", "id": 1}\n{"text": ["a", "dog"]}\n{"text": null}\n'},
    "csv": {"text": 'id,text\n1,the cat\n2,"a ""dog"",\nsleeps"\n'},
    "raw": {"text": "the  cat\n\nsleeps_here é\n"},
    "parquet": {"text": write_parquet()},
    "arrow": {"text": write_arrow()},
    "gutenberg": {
        "text": "By hand\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n"
        "Mr. J. B. Cat's dog\nsleeps. Go-\non!\n\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK ***\n"
    },
    "msr-completion": {
        "questions.txt": "1a) the girl's [cat] sleeps.\n1b) the girl's [dog] sleeps.\n",
        "answers.txt": "1b) the girl's [dog] sleeps.\n",
        "trees": "".join(
            "".join(
                CONLLU_WORD.format(place, word, place - 1, "punct" if word == "." else "dep")
                for place, word in enumerate(("the", "girl's", candidate, "sleeps", "."), start=1)
            )
            + "\n"
            for candidate in ("cat", "dog")
        ),
    },
    "agreement": {
        "x.text": "the dog sleeps <eos>\nthe dogs run off\n",
        "x.gold": "2\tsleeps\tsleep\t0\nR!A\t1\t2\t2\tVERB\tX\tsleep\tsleeps\t_\t1\tNOUN\tA_B\n",
        "x.tab": "form\tclass\tn_attr\nsleep\tcorrect\t1\nsleeps\twrong\t1\n",
    },
    "agreement-prefix": {"text": "VBZ\tthe dog of the cats\nplur\tthe dogs\n"},
    "linzen-tsv": {
        "text": "orig_sentence\tpos_sentence\tverb\tverb_index\tn_diff_intervening\n"
        'the "dog" sleeps\tDT NN VBZ\tsleeps\t3\t1\nthey sleep\tPRP VBP\tsleep\t2\t0\n',
        "forms": "sleeps\tsleep\nist\tsind\n",
    },
    "sst": {"text": "(3 (2 A) (4 (3 good) (2 -LRB-)))\n(1 no)\n"},
    "snli": {
        "text": '{"gold_label": "neutral", "sentence1_binary_parse": "( a cat )", '
        '"sentence2_binary_parse": "( it sleeps )"}\n{"gold_label": "-"}\n'
    },
    "snli-tsv": {"text": "a cat sleeps\tit sleeps\t1\n"},
    "conllu": {
        "text": "# text = cats\n"
        + CONLLU_WORD.format(1, "a", 2, "det")
        + CONLLU_WORD.format(2, "cat", 0, "root")
        + "\n"
    },
}
"""By format, the files of a small valid text; the first one is the text itself."""

OPTIONS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "gutenberg": ({"final": "drop", "clitics": "split"},),
    "msr-completion": ({"final": "drop", "clitics": "split"}, {"trees": "trees", "punctuation": "drop"}),
    "prose": ({"paragraphs": "lines", "final": "drop", "clitics": "split"},),
    "jsonl": ({"content": "prose"},),
    "csv": ({"content": "prose"},),
    "parquet": ({"content": "prose"},),
    "linzen-tsv": ({"forms": "forms"},),
    "conllu": ({"punctuation": "drop", "subtypes": "strip"},),
}
"""Options to import with besides none; a value that names a file of the format is the path of that file."""

FRAGMENTS = (
    *("\n", "\t", " ", "\r", "\r\n", "\r\r\n", "\0", "\ufeff", "\u2028", "\x85", "\x1c", "\u00a0", "\u200b"),
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        "\\",
        "\\ud800",
        "\\u0000",
        "<eos>",
        "<unk>",
        "-LRB-",
        "-",
        ".",
    ),
    *(
        "0",
        "1",
        "-1",
        "4",
        "127",
        "128",
        "2147483647",
        "2147483648",
        "9" * 20,
        "1" * 5_000,
        "1e9",
        "nan",
        "٣",
    ),
    *("[" * 5_000, "(" * 5_000, "(3 " * 3_000, "a" * 140_000, "Mr. " * 2_000, "a." * 3_000, " " * 20_000),
    *("é", "İ", "ß", "\U0001f600", "1a) a [b]\n", "VBZ\t", "NaN", "null", "true", "{}", "*** START OF"),
)
RAW = (b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\x1f\x8b\x08", b"PK\x03\x04", b"PAR1", b"\xff\xfe", b"\x80")


@dataclass(frozen=True)
class Attack:
    """One import to try: the files, the first of them the text, and how to import it."""

    format: str
    files: Mapping[str, bytes]
    options: Mapping[str, str]
    skip_bad: bool
    divided: bool
    every_word: bool
    vectors: bytes | None
    tokens: str = "words"
    normalise: Literal["NFC", "NFKC"] | None = None


def cut(data: bytes, place: float) -> int:
    """A position in the data, from a share of its length."""
    return int(place * len(data))


EDITS: tuple[Callable[[bytes, float, float, bytes], bytes], ...] = (
    lambda data, place, _, piece: data[: cut(data, place)] + piece + data[cut(data, place) :],
    lambda data, place, stop, piece: (
        data[: cut(data, min(place, stop))] + piece + data[cut(data, max(place, stop)) :]
    ),
    lambda data, place, stop, _: data[: cut(data, min(place, stop))] + data[cut(data, max(place, stop)) :],
    lambda data, place, stop, _: data + data[cut(data, min(place, stop)) : cut(data, max(place, stop))],
    lambda data, place, _, __: data[: cut(data, place)],
    lambda data, _, __, piece: data.replace(b"\n", piece + b"\n"),
    lambda data, _, __, piece: data.replace(b"\t", piece),
)
"""Insert, replace, delete, repeat, truncate, change every line end, change every TAB."""

RAW_TOKENS = ("characters", "bytes")
TOKENS = (*["words"] * 8, *RAW_TOKENS, "bpe:300", "unigram:300")
PIECES = st.one_of(
    st.sampled_from([fragment.encode() for fragment in FRAGMENTS]),
    st.sampled_from(RAW),
    st.binary(max_size=8),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(str.encode),
)
PLACES = st.floats(0, 1)
COMPRESSIONS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    bz2.compress,
    lzma.compress,
    lambda data: pa.compress(data, codec="zstd", asbytes=True),
)
EARLY_COMPRESSIONS = st.sampled_from((*[bytes] * 28, *COMPRESSIONS))
LATE_COMPRESSIONS = st.sampled_from((*[bytes] * 12, *COMPRESSIONS))


def as_bytes(text: str | bytes) -> bytes:
    """The content of a seed file."""
    return text if isinstance(text, bytes) else text.encode()


@st.composite
def mutated_texts(draw: st.DrawFn, text: str | bytes) -> bytes:
    """A valid text after some edits, sometimes compressed before or after them, or sometimes random bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = draw(EARLY_COMPRESSIONS)(as_bytes(text))
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2, 4)))):
        data = draw(st.sampled_from(EDITS))(data, draw(PLACES), draw(PLACES), draw(PIECES))
    return draw(LATE_COMPRESSIONS)(data)


@st.composite
def attacks(draw: st.DrawFn, format: str) -> Attack:
    """An import of mutated files of a format."""
    seeds = SEEDS[format]
    # Not always all of several files: hardly any three mutated files make a corpus.
    mutated = draw(st.sets(st.sampled_from(list(seeds)), min_size=1))
    files = {
        name: draw(mutated_texts(text)) if name in mutated else as_bytes(text) for name, text in seeds.items()
    }
    vectors = draw(mutated_texts("the 1 2 3\ncat 0.5 -1e3 2\n")) if draw(st.integers(0, 9)) == 0 else None
    return Attack(
        format,
        files,
        draw(st.sampled_from(({}, *OPTIONS.get(format, ())))),
        skip_bad=draw(st.booleans()),
        divided=draw(st.integers(0, 4)) == 0,
        every_word=draw(st.booleans()),
        vectors=vectors,
        tokens=draw(st.sampled_from(RAW_TOKENS if format == "raw" else TOKENS)),
        normalise=draw(st.sampled_from((None, None, None, "NFC", "NFKC"))),
    )


def list_remaining_files(store: Path) -> list[str]:
    """All files of a store except locks."""
    return [str(path) for path in store.rglob("*") if path.is_file() and path.suffix != ".lock"]


def try_import(attack: Attack, folder: Path) -> bool:
    """Imports the files of an attack into a new store below `folder`; returns whether it became a corpus.

    Raises AssertionError when a refused import leaves files in the store or an imported corpus is invalid.
    Errors of the import other than MemtuneError are raised.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in attack.files.items():
        (folder / name).write_bytes(data)
    options = {
        name: str(folder / value) if value in attack.files else value
        for name, value in attack.options.items()
    }
    source = TextFile(folder / next(iter(attack.files)), attack.format, options)
    vectors = None
    if attack.vectors is not None:
        (folder / "vectors").write_bytes(attack.vectors)
        vectors = VectorFile(folder / "vectors")
    sources = Division(source) if attack.divided else dict.fromkeys(("train", "valid", "test"), source)
    chosen = ImportOptions(
        skip_bad=attack.skip_bad,
        vocabulary="all" if attack.every_word else "train",
        tokens=attack.tokens,
        normalise=attack.normalise,
    )
    store = CorpusStore.open(folder / "store")
    refusal = None
    try:
        with limit_time():
            import_corpus("any", sources, store, chosen, vectors=vectors, cache=folder / "cache")
    except MemtuneError as error:
        refusal = str(error)
    if refusal is not None:
        assert refusal.encode(), "a refusal without a message, or with lone surrogates"
        assert list_remaining_files(folder / "store") == []
        return False
    assert verify_corpus("any", store) == []
    return True


def fuzz(format: str, inputs: int, number: int = 0) -> int:
    """Tries a number of inputs of a format, the same ones for a seed; returns how many became corpora."""
    # In memory where Linux offers it: an import waits for the disk several times.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        return _run(format, inputs, Path(folder) / "fuzz", number)


def _run(format: str, inputs: int, folder: Path, number: int) -> int:
    imported = 0

    @seed(number)
    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(attacks(format))
    def run(attack: Attack) -> None:
        nonlocal imported
        imported += try_import(attack, folder)

    run()
    return imported


def main() -> None:
    """Draws inputs for every format and prints how many became corpora."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000, help="of all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="*", choices=list(FORMATS), default=list(FORMATS))
    given_options = parser.parse_args()
    for format in given_options.formats:
        started, count = time.monotonic(), -(-given_options.inputs // len(given_options.formats))
        imported = fuzz(format, count, given_options.seed)
        seconds = time.monotonic() - started
        print(f"{format}: {count:,} inputs, {imported:,} corpora, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
