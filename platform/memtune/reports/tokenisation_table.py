"""The table of corpora with different tokens."""

from collections.abc import Sequence

from rich.table import Table

from memtune.results.tokenisation_comparison import TokenisationRow

__all__ = ["make_tokenisation_table"]


def make_tokenisation_table(rows: Sequence[TokenisationRow]) -> Table:
    """One row per corpus: its best trial in bits per byte, per word and per token."""
    table = Table(title="validation, bits per byte compare; perplexities per token do not")
    for name in (
        "corpus",
        "tokens",
        "vocabulary",
        "best trial",
        "bits per byte",
        "per byte",
        "per word",
        "per token",
    ):
        is_number = name in ("vocabulary", "bits per byte", "per byte", "per word", "per token")
        table.add_column(name, justify="right" if is_number else "left")
    for row in rows:
        bound = "at least " if row.lost_share else ""
        table.add_row(
            row.corpus,
            row.tokens,
            f"{row.vocabulary:,}",
            f"{row.family} {row.name.removeprefix(f'{row.family} ')}",
            f"{bound}{row.bits_per_byte:.4f}",
            f"{row.byte_perplexity:.3f}",
            f"{row.word_perplexity:.2f}",
            f"{row.token_perplexity:.3f}",
        )
    if any(row.lost_share for row in rows):
        table.caption = "at least: words that became <unk> are counted as bytes, but not predicted"
    return table
