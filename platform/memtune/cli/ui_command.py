"""`memtune ui`: MLflow's pages over the records of the user."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from memtune.cli.terminal import out
from memtune.errors import MemtuneError

if TYPE_CHECKING:
    from memtune.tracking import CorpusPages, ServedPages


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000) -> None:
    """Serve MLflow's pages over the records of your searches, for you alone, on this machine.

    Each corpus has a table of its trials, their charts, and charts of the best trial of each family. The
    printed address holds a token, which is new at each start; requests without it are refused.

    Example: memtune ui --port 5001
    """
    # Imported here: pydantic and MLflow take up to a second, and help needs neither.
    from memtune.settings import Settings
    from memtune.tracking import link_corpora, serve_pages

    settings = Settings.from_environment()
    with serve_pages(port, settings) as pages:
        try:
            _print_links(pages, link_corpora(settings.tracking_uri, pages.url))
            code = pages.process.wait()
        except KeyboardInterrupt:
            return  # also while the links are made, which takes seconds
    raise MemtuneError(f"MLflow's server ended with exit code {code}; its own message is above")


def _print_links(pages: "ServedPages", corpora: "Sequence[CorpusPages]") -> None:
    # A token in a log file would be readable to whoever reads the log.
    add_token = pages.add_token if out.is_terminal else str
    address = pages.address if out.is_terminal else f"the address in {pages.address_file}"
    out.print(f"open {address}", soft_wrap=True)
    if corpora and not out.is_terminal:
        out.print("the browser needs that address first; then these open")
    for corpus in corpora:
        answer = f": {corpus.answer}" if corpus.answer else ""
        out.print(f"corpus {corpus.corpus}{answer}", soft_wrap=True)
        for title, link in corpus.list_titled_links():
            out.print(f"  {title}: {add_token(link)}", soft_wrap=True)
    out.print("MLflow takes some seconds to start; stop it with Ctrl-C")
