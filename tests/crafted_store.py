"""Stores of an attacker: any content, with matching sizes and digests."""

import hashlib
import json
from pathlib import Path
from typing import Any

from memtune.corpora import Example, VectorFile, import_corpus

__all__ = ["create_corpus", "list_records", "replace_content"]

SENTENCES = [["the", "dog", "sees", "a", "cat"], ["a", "cat", "sleeps"], ["dogs", "sleep"]]
NAME = "small"


def create_corpus(folder: Path) -> Path:
    """A corpus with every kind of file, in a new store; returns the corpus's folder."""
    (folder / "vectors").write_text("a 1 2\ncat 3 4\n")
    examples = [
        Example(
            [sentence, sentence],
            {
                "completion": [(0, 2, 1, 1, "q1")],
                "agreement": [(0, 1, "dog", "dogs", 1)],
                "sentiment": [(0, 0, 2, 1, True)],
                "inference": [(0, 1, 2)],
                "trees": [([-1] + [0] * (len(sentence) - 1), ["root"] * len(sentence))] * 2,
            },
        )
        for sentence in SENTENCES
    ]
    sources = dict.fromkeys(("train", "valid", "test"), examples)
    vectors = VectorFile(folder / "vectors")
    import_corpus(NAME, sources, folder / "store", vectors=vectors, cache=folder / "cache")
    return folder / "store" / NAME


def list_records(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Every entry of a manifest that names a stored file."""
    found = [manifest["vocabulary"], manifest["vectors"]]
    found += [shard for split in manifest["splits"].values() for shard in split["shards"]]
    return found + [file for kind in manifest["annotations"].values() for file in kind["files"].values()]


def replace_content(corpus: Path, path: str, content: bytes) -> None:
    """Replace a stored file and make the manifest agree with it."""
    (corpus / path).unlink()
    (corpus / path).write_bytes(content)
    manifest = json.loads((corpus / "manifest.json").read_bytes())
    for record in list_records(manifest):
        if record["path"] == path:
            record |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (corpus / "manifest.json").write_text(json.dumps(manifest))
