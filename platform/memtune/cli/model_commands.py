"""`memtune model ...`: the model families, the checks of a family of your own, and models as folders."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from memtune.cli.terminal import AsJson, ModelName, TrustCode, out
from memtune.number_format import format_count, format_parameters
from memtune.reports.text_console import make_table

app = typer.Typer(
    help="Model families: list, show, start and check one of your own; export a trained model.",
    no_args_is_help=True,
)
Family = Annotated[
    str,
    typer.Argument(help="A family, a mixer (mixer=lstm if a family has its name), or a Python file of one."),
]


@app.command("list")
def list_families(json: AsJson = False) -> None:
    """List the model families, built in and of installed packages.

    Example: memtune model list
    """
    # Imported here: torch takes seconds, and help does not need it.
    from memtune.model_checks import list_entries

    entries = list_entries()
    if json:
        out.print_json(data=entries)
        return
    rows = ((entry.name, Text(entry.problem or entry.title), entry.origin) for entry in entries)
    out.print(make_table("", ("family", "description", "from"), rows))


@app.command()
def show(
    family: Family,
    width: Annotated[int | None, typer.Option(min=1, help="Width; default: that of the family.")] = None,
    words: Annotated[int, typer.Option(min=2, help="Words of the vocabulary.")] = 10_000,
    json: AsJson = False,
) -> None:
    """Show a family or a mixer: the source of its equations, its fields, and its sizes at a width.

    Example: memtune model show lstm --width 256
    """
    from memtune.model_checks import describe_family, find_family

    found = describe_family(find_family(family), width, words)
    if json:
        out.print_json(data=found)
        return
    out.print_line(Text(f"{found.name} ({found.origin})", "bold"))
    out.print_line(Text(f"{found.title}\n\n{found.equations}\n"))
    columns = ("field", "type", "default", "description")
    rows = ([Text(str(getattr(field, name))) for name in ("name", *columns[1:])] for field in found.fields)
    out.print(make_table("", columns, rows))
    sizes = found.sizes
    shown = "the defaults" if width is None else f"width {width}"
    cost = f", {sizes.multiply_adds:,} multiply-adds per token" if sizes.parameters else ""
    out.print_line(
        f"with {shown} and {sizes.words:,} words: {format_parameters(sizes.parameters)}{cost}, a state of "
        f"{format_count(sizes.state, 'number')}{' after a mean sentence' if sizes.state_grows else ''}"
    )
    if found.mixers:
        out.print_line(f"mixers, each shown by memtune model show: {', '.join(found.mixers)}")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the family, such as my_memory.")],
    folder: Annotated[Path, typer.Option(help="Where the files are written.")] = Path(),
    built_in: Annotated[
        bool, typer.Option("--built-in", help="Add the family to the clone of memtune that runs.")
    ] = False,
) -> None:
    """Write the files of a new family: a small network that passes every check, to be changed.

    Example: memtune model new my_memory
    """
    from memtune.library import LIBRARY_ROOT
    from memtune.model_checks import write_built_in_family, write_new_family

    written = write_built_in_family(name, LIBRARY_ROOT) if built_in else write_new_family(name, folder)
    for path in written:
        out.print_line(f"wrote {path}")
    if not built_in:
        out.print_line(f"check it with: memtune model check {folder / name}.py")


@app.command()
def check(
    family: Family,
    oracle: Annotated[
        Path | None,
        typer.Option(
            help="Its equations once more; default: FILE_oracle.py next to FILE.py, if it is there."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Check a family or a mixer against the contract of all families; the exit code is 1 if a check fails.

    Example: memtune model check my_memory.py
    """
    from memtune.model_checks import check_family, find_family, load_oracle

    table = find_family(family)
    nearby = Path(family).with_name(f"{Path(family).stem}_oracle.py")
    if oracle is None and family.endswith(".py") and nearby.is_file():
        oracle = nearby
    loaded = None if oracle is None else load_oracle(oracle)
    failed, verdicts = 0, []
    for verdict in check_family(table, loaded):
        failed += verdict.problem is not None
        verdicts.append({"topic": verdict.topic, "sentence": verdict.sentence, "problem": verdict.problem})
        if not json:
            mark = Text("ok  ", "green") if verdict.problem is None else Text("FAIL", "bold red")
            problem = "" if verdict.problem is None else f" {verdict.problem}"
            out.print_line(Text.assemble(mark, f"  {verdict.topic}: {verdict.sentence}{problem}"))
    if json:
        out.print_json(data=verdicts)
    elif loaded is None:
        out.print_line("no oracle: the equations themselves were not checked")
    if failed:
        if not json:
            out.print_line(f"{family}: {format_count(failed, 'check')} of {len(verdicts)} failed")
        raise typer.Exit(1)


@app.command()
def export(
    model: ModelName,
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    trust_code: TrustCode = False,
) -> None:
    """Write a registered model or a trial to a folder, which MLflow's commands read as a model.

    Example: memtune model export "ptb_recurrent_memory#7" lstm_model
    """
    from memtune.results.registration import export_model
    from memtune.tracking import read_package

    export_model(model, folder, trust_code=trust_code)
    mlflow = f"mlflow models predict -m {folder} --env-manager local --content-type json -i sentences.json"
    # MLflow's loader has no way to consent to the source of a user's family.
    has_sources = read_package(folder).sources
    command = f"memtune evaluate {folder} --sentences FILE --trust-code" if has_sources else mlflow
    out.print_line(f"wrote {folder}; score sentences with: {command}")
