"""Places are settings and may be shown; a password in one would be shown too, so none may hold one."""

from urllib.parse import parse_qsl, urlsplit

from memtune.errors import ConfigurationError

__all__ = ["refuse_password"]

SECRET_PARAMETERS = {"password", "sslpassword", "access_key", "secret_key", "session_token", "token"}
"""What PostgreSQL and pyarrow's file systems read from the part of a URI after "?"."""
WAYS_OUT = {
    "postgres": "write postgresql://user@host/name and keep the password in ~/.pgpass",
    "http": "write http://host:port and keep user and password in ~/.mlflow/credentials",
    "s3": "write s3://bucket/folder and keep the keys in ~/.aws/credentials, or use the machine's role",
}


def refuse_password(name: str, uri: str) -> None:
    """Raise ConfigurationError, without repeating it, when a setting's URI holds a password or a key."""
    parts = urlsplit(uri) if "://" in uri else None
    if parts is None:
        return
    parameters = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if ":" in parts.netloc.rpartition("@")[0] or parameters & SECRET_PARAMETERS:
        ways = (way for scheme, way in WAYS_OUT.items() if parts.scheme.startswith(scheme))
        way_out = next(ways, "leave it out of the URI")
        raise ConfigurationError(
            f"{name} holds a password, which logs and pages would show; {way_out} (mode 0600)"
        )
