"""URIs of the databases that are local files: how a path becomes a URI, and how it is found again.

A path may hold characters that mean something in a URI: `?` begins a query, `#` a fragment, and `%41` is a
letter. These three are quoted; blanks and letters of all languages are left as they are.
"""

import re
from pathlib import Path
from urllib.parse import unquote

SQLITE_PREFIX = "sqlite:///"
JOURNAL_PREFIX = "journal://"


def make_path_uri(prefix: str, path: Path) -> str:
    """The URI of a path, below `prefix`.

    >>> make_path_uri(SQLITE_PREFIX, Path("/tmp/50%25 done?/mlflow.db"))
    'sqlite:////tmp/50%2525 done%3F/mlflow.db'
    """
    return prefix + re.sub("[%?#]", lambda sign: f"%{ord(sign[0]):02X}", str(path))


def find_path(uri: str, prefix: str) -> Path | None:
    """The path of a URI with this prefix, without its query; None for any other URI."""
    if not uri.startswith(prefix):
        return None
    return Path(unquote(uri.removeprefix(prefix).partition("?")[0]))
