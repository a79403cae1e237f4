"""Models of words, characters and subwords of one text: evaluated, compared, asked to write and to score."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import memtune
from memtune.api import run_search
from memtune.cli.command_line import app
from memtune.corpora import ImportOptions, TextFile, import_corpus
from memtune.results.loaded_models import write_tokens
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.conftest import SENTENCES, SPACE_TOML, STUDY_TOML, open_home

pytestmark = pytest.mark.usefixtures("without_report")

TOKENS = {"words": "words", "letters": "characters", "pieces": "bpe:300"}
"""The choice of tokens by corpus; all three hold the same text."""
SUBWORDS = ("letters", "pieces")
runner = CliRunner()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Settings]:
    """A home with a champion of each corpus."""
    folder = tmp_path_factory.mktemp("tokenised")
    with open_home(folder, empty_store) as settings:
        text = folder / "text.txt"
        text.write_text("\n".join(map(" ".join, SENTENCES * 20)) + "\n")
        (folder / "space.toml").write_text(SPACE_TOML)
        for corpus, tokens in TOKENS.items():
            sources = dict.fromkeys(("train", "valid", "test"), TextFile(text))
            import_corpus(corpus, sources, settings.corpus_store, ImportOptions(tokens=tokens))
            study = folder / f"study_{corpus}.toml"
            study.write_text(STUDY_TOML.replace('"tiny"', f'"{corpus}"').replace("trials = 4", "trials = 1"))
            run_search(study, settings=settings, executor=InProcessExecutor())
        yield settings


def run(*arguments: str) -> str:
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.output


@pytest.mark.parametrize("corpus", TOKENS)
def test_the_tokens_of_a_word_have_its_number_and_their_sum_is_the_loss(
    home: Settings, corpus: str, tmp_path: Path
) -> None:
    file = tmp_path / "words.parquet"
    found = json.loads(run("evaluate", f"models:/{corpus}@champion", "--words", str(file), "--json"))
    rows = pq.read_table(file).to_pylist()
    sentences = dict.fromkeys(row["sentence"] for row in rows)
    assert len(sentences) == 60
    # Every sentence has its words and the end of the sentence, in whatever number of tokens.
    for number, words in zip(sentences, SENTENCES, strict=False):
        own = [row for row in rows if row["sentence"] == number]
        assert sorted({row["word"] for row in own}) == list(range(len(words) + 1))
        for place, word in enumerate(words):
            spelled = "".join(row["token"] for row in own if row["word"] == place)
            assert spelled.lstrip("_Ġ▁") == word
    mean = -math.fsum(row["log_probability"] for row in rows) / len(rows)
    assert mean == pytest.approx(found["loss"], rel=1e-5)


def test_models_of_different_tokens_compare_by_bits_per_byte_of_their_text(home: Settings) -> None:
    rows = json.loads(run("compare", "--corpus", ",".join(TOKENS), "--json"))
    assert {row["corpus"]: row["tokens"] for row in rows} == TOKENS
    bits = [row["bits_per_byte"] for row in rows]
    assert bits == sorted(bits)
    for row in rows:
        assert row["byte_perplexity"] == pytest.approx(2 ** row["bits_per_byte"])
    (of_words,) = [row for row in rows if row["corpus"] == "words"]
    assert of_words["word_perplexity"] == pytest.approx(of_words["token_perplexity"])


@pytest.mark.parametrize("letters", [16, 50])
def test_a_text_has_a_perplexity_per_word_unless_its_words_are_as_long_as_sentences(
    home: Settings, letters: int, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text(f"{'ted' * letters}"[:letters] + "\n")
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(tmp_path / "text"))
    import_corpus(f"of_{letters}", sources, home.corpus_store, ImportOptions(tokens="characters"))
    printed = run("evaluate", "models:/letters@champion", "--corpus", f"of_{letters}")
    assert ("per word" in printed) == (letters == 16)
    assert "bits per byte" in printed


@pytest.mark.parametrize("corpus", SUBWORDS)
def test_a_model_of_parts_of_words_writes_words(home: Settings, corpus: str) -> None:
    options = ("--prompt", "the dog", "--tokens", "40", "--seed", "3")
    written = run("generate", f"models:/{corpus}@champion", *options)
    assert written.startswith("the dog")
    assert len(written.split()) > 2
    assert not set("_Ġ▁") & set(written)
    assert written == run("generate", f"models:/{corpus}@champion", *options)


@pytest.mark.parametrize("corpus", TOKENS)
def test_generated_words_joined_by_blanks_are_the_text_of_the_tokens(home: Settings, corpus: str) -> None:
    model = memtune.load(f"models:/{corpus}@champion", settings=home)
    options = memtune.GenerationOptions(tokens=60, seed=3)
    sentences: list[list[str]] = [[]]
    for token in write_tokens(model, "", options):
        sentences += [[]] if token == "<eos>" else []
        sentences[-1] += [] if token == "<eos>" else [token]
    expected = " <eos> ".join(map(model.reader.join, sentences))
    assert " ".join(memtune.generate(model, "", options)).split() == expected.split()


@pytest.mark.filterwarnings(
    "ignore:.*Any type hint is inferred as AnyType:UserWarning"
)  # MLflow's own import
@pytest.mark.parametrize("corpus", TOKENS)
def test_mlflow_scores_sentences_in_the_tokens_of_the_model(
    home: Settings, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The score of a sentence is the sum over its tokens as `evaluate --words` has them."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", home.tracking_uri)
    file = tmp_path / "words.parquet"
    run("evaluate", f"models:/{corpus}@champion", "--words", str(file), "--json")
    rows = pq.read_table(file).to_pylist()
    sums = [
        math.fsum(row["log_probability"] for row in rows if row["sentence"] == number) for number in range(3)
    ]
    scorer = mlflow.pyfunc.load_model(f"models:/{corpus}@champion")
    texts = [" ".join(words) for words in SENTENCES]
    predicted = scorer.predict(texts)
    # The model reads a sentence alone in place of in a batch.
    assert predicted == pytest.approx(sums, rel=1e-4)
    scored = memtune.score(memtune.load(f"models:/{corpus}@champion", settings=home), texts)
    assert [each.log_probability for each in scored] == pytest.approx(predicted)
    assert [each.words for each in scored] == [(*words, "<eos>") for words in SENTENCES]
    (tmp_path / "own.txt").write_text("\n".join(texts))
    printed = json.loads(
        run("evaluate", f"models:/{corpus}@champion", "--sentences", str(tmp_path / "own.txt"), "--json")
    )
    assert [each["log_probability"] for each in printed] == pytest.approx(predicted)
    assert [each["log_probabilities"] for each in printed] == [
        list(each.log_probabilities) for each in scored
    ]
