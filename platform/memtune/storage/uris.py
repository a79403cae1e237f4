"""URIs: of databases that are local files, and locations without credentials.

A path may hold characters that mean something in a URI: `?` begins a query, `#` a fragment, and `%41` is a
letter. These three are quoted; blanks and letters of all languages are left as they are.

Locations are settings that logs and pages show, so no location may hold a credential. A credential stands in
one of three places: before the "@" of the host, in a parameter after "?", "#", ";" or "&", or in a URI that
is itself the value of a parameter.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from memtune.errors import ConfigurationError

SQLITE_PREFIX = "sqlite:///"
JOURNAL_PREFIX = "journal://"


def make_path_uri(prefix: str, path: Path) -> str:
    """The URI of a path, below `prefix`.

    >>> make_path_uri(SQLITE_PREFIX, Path("/tmp/50%25 done?/mlflow.db"))
    'sqlite:////tmp/50%2525 done%3F/mlflow.db'
    """
    return prefix + re.sub("[%?#]", lambda sign: f"%{ord(sign[0]):02X}", str(path))


def make_sqlite_uri(folder: Path) -> str:
    """The URI of MLflow's store in a home, used when no server is named."""
    return make_path_uri(SQLITE_PREFIX, folder.absolute() / "mlflow.db")


def find_path(uri: str, prefix: str) -> Path | None:
    """The path of a URI with this prefix, without its query; None for any other URI."""
    if not uri.startswith(prefix):
        return None
    return Path(unquote(uri.removeprefix(prefix).partition("?")[0]))


def find_sqlite_path(uri: str) -> Path | None:
    """The file behind a sqlite URI, or None for any other store."""
    return find_path(uri, SQLITE_PREFIX)


SECRET_WORDS = (
    "password", "passwd", "passphrase", "secret", "token", "accesskey", "apikey", "accountkey", "sharedkey",
    "clientkey", "privatekey", "credential", "signature", "sessionid", "bearer",
)  # fmt: skip
"""A parameter whose name holds one of these, without regard to case, "_" and "-", is a credential."""
SECRET_NAMES = {"pwd", "pass", "pat", "sig", "key", "auth", "sas", "jwt", "code", "session", "cookie"}
"""Whole names of parameters that are credentials; `sig` and `code` are those of Azure."""
USER_SCHEMES = {
    "postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle", "cockroachdb", "hdfs", "viewfs", "abfs",
    "abfss", "ssh", "sftp", "scp",
}  # fmt: skip
"""Schemes in which the part before "@" is the name of a user or a container, which is not a secret. For the
others, such as s3 and https, it is a key or a token."""
PUBLIC_USERS = {"gs": "anonymous", "gcs": "anonymous"}
"""pyarrow reads gs://anonymous@bucket as access without credentials."""
CREDENTIAL_ADVICE = {
    "postgres": "write postgresql://user@host/name and keep the password in ~/.pgpass",
    "http": "write http://host:port and keep user and password in ~/.mlflow/credentials",
    "s3": "write s3://bucket/folder and keep the keys in ~/.aws/credentials, or use the machine's role",
}
MAX_DECODINGS = 3
"""Rounds of percent-decoding: a URI within a parameter of a URI is encoded twice."""
_USER_PATTERN = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?/{0,2}[^/\s:@]+:[^/@]+@")
"""A user and a password without a scheme or without "//": as for ssh, or mistyped."""
_PARAMETER_PATTERN = re.compile(r"(?:^|[?&;#\s])([^?&;#=:/\s]+)[=:]")


def refuse_credentials(name: str, uri: str) -> None:
    """Raise ConfigurationError, without repeating the URI, when a setting's URI holds a credential."""
    texts = [uri]
    for _ in range(MAX_DECODINGS - 1):
        texts.append(unquote(texts[-1]))
    if any(map(_holds_credentials, texts)):
        scheme = uri.partition(":")[0].lower()
        advice = next(
            (text for start, text in CREDENTIAL_ADVICE.items() if scheme.startswith(start)),
            "keep it in a file that only you can read",
        )
        raise ConfigurationError(
            f"{name} holds a password, key or token, which logs and pages would show; {advice} (mode 0600)"
        )


def redact_uri(uri: str) -> str:
    """The URI without credentials and parameters, for messages."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri
    if _authority_holds_credentials(uri):
        rest = rest.rpartition("@")[2] if "@" in rest else "..."
    return f"{scheme}://{re.split('[?#;]', rest, maxsplit=1)[0]}"


def _holds_credentials(uri: str) -> bool:
    for key in _PARAMETER_PATTERN.findall(uri):
        plain = re.sub("[^a-z0-9]", "", key.lower())
        if plain in SECRET_NAMES or any(word in plain for word in SECRET_WORDS):
            return True
    if "://" not in uri:
        return bool(_USER_PATTERN.match(uri))
    starts = [match.start() for match in re.finditer(r"[A-Za-z][A-Za-z0-9+.-]*://", uri)]
    return any(_authority_holds_credentials(uri[start:]) for start in starts)


def _authority_holds_credentials(uri: str) -> bool:
    """Whether a URI names a password, or a user where the scheme has none."""
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018 - raises ValueError for a port that is not a number
    except ValueError:
        # A key with "/" in it ends the host early: s3://ID:KEY/REST@bucket has "KEY" in place of a port.
        return "@" in uri or ":" in uri.partition("://")[2].partition("/")[0].rpartition("]")[2]
    scheme = parts.scheme.partition("+")[0]
    user, at, _ = parts.netloc.rpartition("@")
    if scheme in ("s3", "s3a", "gs", "gcs") and ":" in parts.netloc:
        return True  # a bucket has no port
    if not at or user == PUBLIC_USERS.get(scheme):
        return False
    return ":" in user or scheme not in USER_SCHEMES
