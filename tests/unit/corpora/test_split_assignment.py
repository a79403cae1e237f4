"""One text divided into splits: each item goes to one split, whole and with its annotations."""

from collections import Counter
from itertools import chain
from math import inf, nan
from pathlib import Path

import pytest

from memtune.corpora import (
    DataSet,
    Division,
    ImportOptions,
    TextFile,
    import_corpus,
    open_corpus,
    verify_corpus,
)
from memtune.corpora.importing.division import divide_block
from memtune.corpora.text_blocks import Example, make_blocks
from memtune.errors import CorpusError
from tests.unit.corpora.formats.conftest import read_sentences

PAIRS = "".join(f"premise {n // 3}\thypothesis {n}\t{n % 3}\n" for n in range(900))


@pytest.fixture
def import_divided(store, cache, tmp_path):
    """Imports a divided text and opens the corpus."""

    def run(text, kind="text", name="small", **keywords):
        path = tmp_path / "text"
        path.write_text(text)
        division = Division(TextFile(path, kind), **keywords)
        import_corpus(name, division, store, ImportOptions(vocabulary="all"), cache=cache, replace=True)
        return open_corpus(name, store, cache)

    return run


def read_pairs(corpus, split):
    found = read_sentences(corpus, split)
    rows = corpus.annotations["inference"][split].to_pylist()
    return [(found[row["premise"]], found[row["hypothesis"]], row["label"]) for row in rows]


def test_every_sentence_goes_to_one_split_in_its_order(import_divided):
    corpus = import_divided("".join(f"sentence {n}\n" for n in range(1000)))
    numbers = {name: [int(s.split()[1]) for s in read_sentences(corpus, name)] for name in corpus.splits}
    assert sorted(chain(*numbers.values())) == list(range(1000))
    assert all(found == sorted(found) for found in numbers.values())


def test_split_sizes_match_the_shares_in_expectation(import_divided):
    corpus = import_divided(
        "".join(f"sentence {n}\n" for n in range(4000)), shares={"train": 6, "valid": 3, "test": 1}
    )
    counts = [corpus[name].sentence_count for name in ("train", "valid", "test")]
    assert counts == pytest.approx([2400, 1200, 400], abs=120)  # four standard deviations


def test_labels_stay_with_their_pairs(import_divided, store):
    corpus = import_divided(PAIRS, "snli-tsv")
    expected = [tuple(line.split("\t")) for line in PAIRS.splitlines()]
    found = [
        (premise, hypothesis, str(label))
        for name in corpus.splits
        for premise, hypothesis, label in read_pairs(corpus, name)
    ]
    assert Counter(found) == Counter(expected)
    assert all(corpus[name].sentence_count == 2 * len(read_pairs(corpus, name)) for name in corpus.splits)
    assert verify_corpus("small", store) == []


def test_pairs_with_one_premise_share_a_split(import_divided):
    corpus = import_divided(PAIRS, "snli-tsv")
    premises = [{premise for premise, *_ in read_pairs(corpus, name)} for name in corpus.splits]
    assert sum(map(len, premises)) == 300


def test_only_the_seed_determines_the_splits(import_divided):
    first, again, other = (import_divided(PAIRS, "snli-tsv", seed=seed).digest for seed in (0, 0, 1))
    assert first == again != other


def test_candidates_of_a_question_and_their_annotations_stay_together():
    examples = [
        Example([[f"a{n}", word] for word in "xyz"], {"completion": [(0, 3, 1, n % 3, str(n))]})
        for n in range(60)
    ]
    (block,) = make_blocks(examples)
    seen = []
    for _, part in divide_block(block, Division(TextFile(Path("x")))):
        words = part.words.to_pylist()
        for row in part.annotations["completion"].to_pylist():
            start = int(part.lengths[: row["first"]].sum())
            number = row["question"]
            assert words[start : start + 9 : 3] == [f"a{number}"] * 3
            assert row["answer"] == int(number) % 3
            seen.append(number)
    assert sorted(map(int, seen)) == list(range(60))


def test_trees_go_with_their_sentences(import_divided):
    text = "".join(f"1\tw{n}\t_\t_\t_\t_\t0\tr{n % 7}\t_\t_\n\n" for n in range(200))
    corpus = import_divided(text, "conllu")
    labels = corpus.manifest.annotations["trees"].labels
    for name in corpus.splits:
        relations = [labels[row["relations"][0]] for row in corpus.annotations["trees"][name].to_pylist()]
        assert relations == [f"r{int(sentence[1:]) % 7}" for sentence in read_sentences(corpus, name)]


def test_each_source_record_describes_its_division(import_divided):
    sources = import_divided(PAIRS, "snli-tsv").manifest.sources
    assert [sources[name].division for name in ("train", "valid")] == [
        "0.8 of it, seed 0",
        "0.1 of it, seed 0",
    ]


def test_splits_of_one_text_do_not_count_as_the_same_text(store, cache, tmp_path):
    (tmp_path / "text").write_text("".join(f"sentence {n % 7} of {n}\n" for n in range(500)))
    imported = import_corpus("small", Division(TextFile(tmp_path / "text")), store, cache=cache)
    assert not any("split is the training text" in warning for warning in imported.warnings)


def test_a_data_set_is_divided_as_a_file_with_the_same_lines(import_divided, store, cache):
    lines = [f"sentence {n}" for n in range(300)]
    digest = import_divided("\n".join(lines)).digest
    division, options = Division(DataSet(lines)), ImportOptions(vocabulary="all")
    import_corpus("small", division, store, options, cache=cache)
    assert open_corpus("small", store, cache).digest == digest
    with pytest.raises(CorpusError, match='the data set: record 300: "text" is int'):
        import_corpus("other", Division(DataSet([*lines, 3])), store, options, cache=cache)


@pytest.mark.parametrize(
    "shares",
    [{"train": 1, "valid": 1}, *({"train": 1, "valid": share, "test": 1} for share in (0, nan, inf))],
)
def test_shares_that_are_not_positive_are_refused(shares):
    with pytest.raises(CorpusError, match="divided into train, valid, test by shares above 0"):
        Division(TextFile(Path("x")), shares)


def test_a_text_too_short_to_divide_is_refused(import_divided):
    reason = r"empty: with seed 0 it got none .* equal ones share a split; .*larger share.*--format prose"
    with pytest.raises(CorpusError, match=reason):
        import_divided("one line\n")


def test_a_text_without_words_is_refused_as_such(import_divided):
    with pytest.raises(CorpusError, match="the train split is empty: no word in"):
        import_divided("\n\n")
