"""The way of docs/cluster.md, walked on two hosts, and the page that shows what was printed on it.

    python -m tests.cluster.walkthrough

launches a cluster on premises with its services beside it, imports a corpus to S3, submits a study, takes the
power from a worker and then from the head in the middle of it, goes on, compares, and ends the cluster. What
the commands print goes to the end of docs/cluster.md: Ray's logging of each step is left out, and so are the
names of this machine. A picture of the comparison lies beside the results.
"""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from pyarrow import fs

from tests.cluster.browser import photograph
from tests.cluster.drivers import Driver, eventually
from tests.cluster.hosts import Host, Hosts, missing
from tests.cluster.premises import FILE, PATIENCE, TRIAL, Premises
from tests.cluster.servers import (
    MlflowServer,
    ObjectStore,
    Postgres,
    Secrets,
    free_user,
    make_secrets,
    postgres_programs,
    private_folder,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cluster.md"
PICTURE = ROOT / "docs" / "results" / "cluster_walkthrough.png"
BEGINNING = "## The whole way, walked on two hosts"
STUDY = """question = "Does a memory of recent words help a small LSTM?"

corpus = "grammar"
spaces = ["lstm", "recurrent_memory"]

[model]
width = 16
layers = 1
dropout = 0.0
tie_output = false

[training]
tokens = 60_000
report_every = 20_000

[resources]
cpus_per_trial = 2

[budget]
trials = 40
"""
NOISE = re.compile(
    r"(?:\x1b\[\d*m)*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\s|Shared connection| To ensure this mount|bash: "
    r"|Warning: Permanently|sending incremental|sent \d|total size| *\d\d:\d\d:\d\d up |\S*(txt|token|key)$"
    r"|\S*(bootstrap|credentials|pgpass)|\d/\d stopped|Did not find|\[.*network_util|Local node IP|-+$|grep: "
    r"|Ray runtime started|Next steps|  (?!  ray dashboard)|To (add|connect|submit|terminate|view|monitor) "
    r"|See https|\(raylet\)|Usage stats|Stopped only|You can also"
)
"""What Ray's commands say of each of their steps."""


@dataclass
class Services:
    """What outlives the cluster, on a machine that the hosts reach."""

    secrets: Secrets
    postgres: Postgres
    store: ObjectStore
    mlflow: MlflowServer

    def environment(self) -> dict[str, str]:
        """What the user exports; no password is among it."""
        return {
            "MEMTUNE_STORE": "s3://memtune/corpora",
            "MEMTUNE_STUDIES": "s3://memtune/studies",
            "MEMTUNE_PROPOSALS": self.postgres.url,
            "MLFLOW_TRACKING_URI": self.mlflow.uri,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.store.address,
        }

    def install_passwords(self, home: Path) -> None:
        """The files of mode 0600 in which the user's programs, and the nodes', find them."""
        self.secrets.install(home, self.postgres.port)
        keys = home / ".aws" / "credentials"
        keys.parent.mkdir()
        keys.touch(mode=0o600)
        pairs = [f"{name.lower()} = {value}" for name, value in self.store.keys.items()]
        keys.write_text("\n".join(["[default]", *pairs, ""]))


def started(stack: ExitStack, folder: Path, address: str) -> Services:
    """PostgreSQL, an object store with a bucket, and MLflow's server over both."""
    programs = postgres_programs()
    if programs is None:
        sys.exit("no PostgreSQL here: apt install postgresql")
    secrets = make_secrets(folder / "secrets")
    reachable = stack.enter_context(private_folder(free_user()))
    postgres = Postgres(reachable, programs, secrets.database, address)
    postgres.start()
    stack.callback(postgres.stop)
    postgres.make_databases()
    store = stack.enter_context(ObjectStore(folder / "s3.log", address).running())
    bucket = fs.S3FileSystem(
        endpoint_override=urlsplit(store.address).netloc,
        scheme="http",
        access_key=store.keys["AWS_ACCESS_KEY_ID"],
        secret_key=store.keys["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        allow_bucket_creation=True,
    )
    bucket.create_dir("memtune")
    variables = store.environment() | {"PATH": os.environ["PATH"], "HOME": str(folder)}
    mlflow = MlflowServer(folder, secrets, postgres, "s3://memtune/models", variables, address)
    mlflow.start()
    stack.callback(mlflow.kill)
    return Services(secrets, postgres, store, mlflow)


@dataclass
class Walk:
    """What was done and printed, as Markdown."""

    cluster: Premises
    environment: dict[str, str]
    names: dict[str, str]
    """What of this machine is written as something else."""
    parts: list[str] = field(default_factory=list)

    def tell(self, words: str) -> None:
        """A sentence between the commands."""
        for name, stand_in in self.names.items():
            words = words.replace(name, stand_in)
        self.parts.append(words)
        print(words, "\n", flush=True)

    def run(self, command: str, *, first: int = 6, last: int = 18) -> str:
        """Run a command as a user types it, and keep what it printed."""
        said = self.cluster.run(*command.split(), **self.environment)
        self.show(command, said, first, last)
        return said

    def show(self, command: str, said: str, first: int = 6, last: int = 18) -> None:
        """Keep a command and what it printed, the middle of much left out."""
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", said)
        lines = [line.rstrip() for line in plain.splitlines() if line.strip() and not NOISE.match(line)]
        if len(lines) > first + last + 1:
            lines = [*lines[:first], "...", *lines[-last:]]
        self.tell("\n".join(["```", f"$ {command}", *lines, "```"]))

    def follow(self, job: str, enough: Callable[[Driver], bool]) -> None:
        """`memtune jobs logs JOB --follow`, until there is enough to see."""
        command = f"memtune jobs logs {job} --follow"
        follower = Driver(command.split(), self.cluster.environment | self.environment, self.cluster.project)
        try:
            eventually(lambda: enough(follower), f"enough of {command}", PATIENCE)
        finally:
            follower.process.send_signal(signal.SIGINT)
            follower.end()
        self.show(command, "".join(follower.lines), first=4, last=8)


def told(follower: Driver, state: str) -> set[str]:
    """The trials that a followed log has told to be in a state."""
    return set(re.findall(rf"trial +(\d+)  {state} ", "".join(follower.lines)))


def walk(cluster: Premises, environment: dict[str, str], names: dict[str, str], picture: Path) -> list[str]:
    """Walk it; the page's parts."""
    the = Walk(cluster, environment, names)
    launch(the)
    with cluster.dashboard() as address:
        the.environment["RAY_API_SERVER_ADDRESS"] = address
        the.names[urlsplit(address).netloc] = "127.0.0.1:8265"
        job = submit(the)
        begun = lose_worker(the, job, cluster.workers[0])
    lose_head(the, begun + 3)
    compare(the, picture)
    the.tell("And the end of the cluster; the study, its models and the services stay.")
    the.run(f"memtune cluster down {FILE} --yes", last=4)
    return the.parts


def launch(the: Walk) -> None:
    """Check the file, launch the cluster, import the corpus."""
    the.tell(f"`{FILE}` names two hosts here; the passwords' mounts are uncommented. The cluster comes up:")
    the.run(f"memtune cluster check {FILE}")
    the.run(f"memtune cluster up {FILE} --yes", last=4)
    the.run(f"memtune cluster status {FILE}")
    the.tell("PostgreSQL, MLflow's server and an S3 endpoint run on a machine beside it:")
    the.tell(
        "\n".join(["```", *(f"export {name}={value}" for name, value in the.environment.items()), "```"])
    )
    the.tell("A corpus goes straight to S3, and nodes read it from there:")
    the.run("memtune corpus demo")


def submit(the: Walk) -> str:
    """Send the study; the job's id."""
    (the.cluster.project / "jobs" / "studies" / "walk.toml").write_text(STUDY)
    the.tell(f"A study whose trials each fill a host:\n\n```toml\n{STUDY}```")
    the.tell(f"With `ray dashboard {FILE}` running in another terminal, it is submitted:")
    said = the.run("memtune submit jobs/studies/walk.toml --detach")
    (job,) = set(re.findall(r"submitted (\S+) to", said))
    the.follow(job, lambda log: len(told(log, "running")) > 1 and log.lines[-1].count("tokens") > 0)
    the.run("memtune jobs")
    return str(job)


def lose_worker(the: Walk, job: str, worker: Host) -> int:
    """Take a worker's power while it trains, and give it back; how many trials have begun."""
    eventually(lambda: worker.processes(TRIAL), "a trial on the worker", PATIENCE)
    worker.kill()
    the.tell(
        "Now the second host loses its power in the middle of a trial, which waits, and goes on elsewhere:"
    )
    the.follow(job, lambda log: bool(told(log, "waiting") & told(log, "done")))
    worker.start()
    the.tell("With its power back the host is taken in again; nothing has to be restarted:")
    the.run(f"memtune cluster up {FILE} --yes", first=1, last=2)
    log = the.cluster.run("memtune", "jobs", "logs", job, **the.environment)
    return 1 + max(int(number) for number in re.findall(r"trial +(\d+)  running", log))


def lose_head(the: Walk, trials: int) -> None:
    """Take the head's power, launch again, resume the study up to so many trials."""
    head = the.cluster.head
    eventually(lambda: head.processes(TRIAL), "a trial on the head", PATIENCE)
    head.kill()
    head.start()
    the.tell(
        "Then the head loses its power, and the driver and Ray's memory of its jobs with it. Launched again:"
    )
    the.run(f"memtune cluster up {FILE} --yes", last=4)
    with the.cluster.dashboard() as address:
        the.environment["RAY_API_SERVER_ADDRESS"] = address
        the.names[urlsplit(address).netloc] = "127.0.0.1:8265"
        the.tell("The study resumes from PostgreSQL and S3; open trials go on from their checkpoints:")
        the.run(f"memtune submit jobs/studies/walk.toml --resume --trials {trials}", first=8)


def compare(the: Walk, picture: Path) -> None:
    """The table of the trials, and MLflow's own page of them."""
    the.tell("Everything that was trained, none of it twice:")
    said = the.run("memtune compare --corpus grammar", first=30, last=30)
    (link,) = re.findall(r"https?://\S+", said)
    name, password = re.findall(r"= *(\S+)", (the.cluster.home / ".mlflow" / "credentials").read_text())
    photograph(link, name, password, picture)
    where = picture.relative_to(PAGE.parent)
    the.tell(
        f"The link leads to MLflow's page of the same trials:\n\n![MLflow's table of the trials]({where})"
    )


def main() -> None:
    """Walk, and put what was printed at the end of docs/cluster.md."""
    if lacking := missing():
        sys.exit(f"no hosts on this machine without {', '.join(lacking)}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="memtune-walk-")))
        for name in ("hosts", "client"):
            (folder / name).mkdir()
        hosts = stack.enter_context(Hosts(folder / "hosts", 2))
        cluster = Premises(hosts, folder / "client")
        services = started(stack, folder, hosts.address)
        services.install_passwords(cluster.home)
        file = cluster.project / FILE
        file.write_text(file.read_text().replace('\n  # "~/', '\n  "~/'))
        names = {
            services.mlflow.uri: "http://10.0.0.5:5000",
            services.store.address: "http://10.0.0.5:9000",
            f"{hosts.address}:{services.postgres.port}": "10.0.0.5",
            f"{cluster.project}/": "",
            str(cluster.home): "~",
            **{host.address: f"10.0.0.{10 + place}" for place, host in enumerate(hosts.hosts)},
            **{host.name: f"host-{10 + place}" for place, host in enumerate(hosts.hosts)},
        }
        parts = walk(cluster, services.environment(), names, PICTURE)
    today = time.strftime("%Y-%m-%d")
    before = PAGE.read_text().partition(BEGINNING)[0].rstrip()
    origin = (
        f"What `python -m tests.cluster.walkthrough` did and saw on {today}, on two hosts made of namespaces."
    )
    PAGE.write_text("\n\n".join([before, BEGINNING, origin, *parts]) + "\n")


if __name__ == "__main__":
    main()
