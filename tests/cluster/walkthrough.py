"""The steps of docs/cluster.md, executed on two hosts, and their output at the end of that page.

    python -m tests.cluster.walkthrough

launches a cluster on premises and its services, imports a corpus to S3, submits a study, kills a worker and
then the head during the study, resumes it, compares the trials, and stops the cluster. The page omits Ray's
log lines and the names of this machine. docs/results gets a screenshot of the comparison.
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

from tests.cluster.browser import take_screenshot
from tests.cluster.drivers import Driver
from tests.cluster.hosts import Host, Hosts, find_missing_requirements
from tests.cluster.on_premises_cluster import (
    CLUSTER_FILE,
    TIMEOUT_SECONDS,
    TRIAL_PROCESS_TITLE,
    OnPremisesCluster,
)
from tests.cluster.poll import poll_until
from tests.cluster.servers import (
    MlflowServer,
    ObjectStore,
    Postgres,
    Secrets,
    find_postgres_programs,
    find_unprivileged_user,
    make_private_folder,
    make_secrets,
)

ROOT = Path(__file__).parents[2]
PAGE_PATH = ROOT / "docs" / "cluster.md"
SCREENSHOT_PATH = ROOT / "docs" / "results" / "cluster_walkthrough.png"
SECTION_HEADING = "## A complete example on two hosts"
STUDY_TOML = """question = "Does a memory of recent words help a small LSTM?"

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
NOISE_LINE = re.compile(
    r"(?:\x1b\[\d*m)*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\s|Shared connection| To ensure this mount|bash: "
    r"|Warning: Permanently|sending incremental|sent \d|total size| *\d\d:\d\d:\d\d up |\S*(txt|token|key)$"
    r"|\S*(bootstrap|credentials|pgpass)|\d/\d stopped|Did not find|\[.*network_util|Local node IP|-+$|grep: "
    r"|Ray runtime started|Next steps|  (?!  memtune cluster dashboard)"
    r"|To (add|connect|submit|terminate|view|monitor) "
    r"|See https|\(raylet\)|Usage stats|Stopped only|You can also"
)
"""Lines that Ray's commands print about their steps."""


@dataclass
class Services:
    """The services that outlive the cluster, on a machine that the hosts reach."""

    secrets: Secrets
    postgres: Postgres
    object_store: ObjectStore
    mlflow: MlflowServer

    def build_user_environment(self) -> dict[str, str]:
        """The variables that the user exports; none contains a password."""
        return {
            "MEMTUNE_STORE": "s3://memtune/corpora",
            "MEMTUNE_STUDIES": "s3://memtune/studies",
            "MEMTUNE_PROPOSALS": self.postgres.url,
            "MLFLOW_TRACKING_URI": self.mlflow.uri,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.object_store.address,
        }

    def install_passwords(self, home: Path) -> None:
        """Write the password files of the user and the nodes, with mode 0600."""
        self.secrets.install(home, self.postgres.port)
        keys = home / ".aws" / "credentials"
        keys.parent.mkdir()
        keys.touch(mode=0o600)
        pairs = [f"{name.lower()} = {value}" for name, value in self.object_store.credentials.items()]
        keys.write_text("\n".join(["[default]", *pairs, ""]))


def start_services(stack: ExitStack, folder: Path, address: str) -> Services:
    """PostgreSQL, an object store with a bucket, and MLflow's server over both."""
    programs = find_postgres_programs()
    if programs is None:
        sys.exit("PostgreSQL is not installed: apt install postgresql")
    secrets = make_secrets(folder / "secrets")
    reachable = stack.enter_context(make_private_folder(find_unprivileged_user()))
    postgres = Postgres(reachable, programs, secrets.database_password, address)
    postgres.start()
    stack.callback(postgres.stop)
    postgres.make_databases()
    store = stack.enter_context(ObjectStore(folder / "s3.log", address).serve())
    bucket = fs.S3FileSystem(
        endpoint_override=urlsplit(store.address).netloc,
        scheme="http",
        access_key=store.credentials["AWS_ACCESS_KEY_ID"],
        secret_key=store.credentials["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        allow_bucket_creation=True,
    )
    bucket.create_dir("memtune")
    variables = store.build_client_environment() | {"PATH": os.environ["PATH"], "HOME": str(folder)}
    mlflow = MlflowServer(folder, secrets, postgres, "s3://memtune/models", variables, address)
    mlflow.start()
    stack.callback(mlflow.kill)
    return Services(secrets, postgres, store, mlflow)


@dataclass
class Transcript:
    """The commands and their output, as Markdown."""

    cluster: OnPremisesCluster
    environment: dict[str, str]
    replacements: dict[str, str]
    """Stand-ins for the names and addresses of this machine."""
    parts: list[str] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        """Add a sentence between the commands."""
        for name, stand_in in self.replacements.items():
            text = text.replace(name, stand_in)
        self.parts.append(text)
        print(text, "\n", flush=True)

    def run_command(self, command: str, *, first: int = 6, last: int = 18) -> str:
        """Run a command as a user types it, and add its output."""
        output = self.cluster.run(*command.split(), variables=self.environment)
        self.add_command(command, output, first, last)
        return output

    def add_command(self, command: str, output: str, first: int = 6, last: int = 18) -> None:
        """Add a command and its output, without the middle of a long one."""
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", output)
        lines = [line.rstrip() for line in plain.splitlines() if line.strip() and not NOISE_LINE.match(line)]
        if len(lines) > first + last + 1:
            lines = [*lines[:first], "...", *lines[-last:]]
        self.add_text("\n".join(["```", f"$ {command}", *lines, "```"]))

    def follow_job(self, job: str, has_enough: Callable[[Driver], bool]) -> None:
        """Run `memtune jobs logs JOB --follow` until `has_enough`."""
        command = f"memtune jobs logs {job} --follow"
        follower = Driver(command.split(), self.cluster.environment | self.environment, self.cluster.project)
        try:
            poll_until(lambda: has_enough(follower), f"output of {command}", TIMEOUT_SECONDS)
        finally:
            follower.process.send_signal(signal.SIGINT)
            follower.kill_session()
        self.add_command(command, "".join(follower.lines), first=4, last=8)


def find_trials_in_state(follower: Driver, state: str) -> set[str]:
    """The trials that a followed log reported in a state."""
    return set(re.findall(rf"trial +(\d+)  {state} ", "".join(follower.lines)))


def run_walkthrough(
    cluster: OnPremisesCluster, environment: dict[str, str], replacements: dict[str, str], picture: Path
) -> list[str]:
    """Execute all steps; returns the parts of the page."""
    transcript = Transcript(cluster, environment, replacements)
    launch_cluster(transcript)
    with cluster.forward_dashboard() as address:
        transcript.environment["RAY_API_SERVER_ADDRESS"] = address
        transcript.replacements[urlsplit(address).netloc] = "127.0.0.1:8265"
        job = submit_study(transcript)
        started_trials = kill_worker(transcript, job, cluster.workers[0])
    kill_head(transcript, started_trials + 3)
    compare_trials(transcript, picture)
    transcript.add_text("Stop the cluster; the study, its models and the services remain.")
    transcript.run_command(f"memtune cluster down {CLUSTER_FILE} --yes", last=4)
    return transcript.parts


def launch_cluster(transcript: Transcript) -> None:
    """Check the file, launch the cluster and import the corpus."""
    transcript.add_text(
        f"`{CLUSTER_FILE}` names the two hosts; the passwords' mounts are uncommented. Launch the cluster:"
    )
    transcript.run_command(f"memtune cluster check {CLUSTER_FILE}")
    transcript.run_command(f"memtune cluster up {CLUSTER_FILE} --yes", last=4)
    transcript.run_command(f"memtune cluster status {CLUSTER_FILE}")
    transcript.add_text("PostgreSQL, MLflow's server and an S3 endpoint run on another machine:")
    transcript.add_text(
        "\n".join(
            ["```", *(f"export {name}={value}" for name, value in transcript.environment.items()), "```"]
        )
    )
    transcript.add_text("The corpus is imported to S3, where the nodes read it:")
    transcript.run_command("memtune corpus demo")


def submit_study(transcript: Transcript) -> str:
    """Submit the study; returns the id of the job."""
    (transcript.cluster.project / "jobs" / "studies" / "walk.toml").write_text(STUDY_TOML)
    transcript.add_text(f"A study with trials that each use a whole host:\n\n```toml\n{STUDY_TOML}```")
    transcript.add_text(
        f"With `memtune cluster dashboard {CLUSTER_FILE}` running in another terminal, it is submitted:"
    )
    output = transcript.run_command("memtune submit jobs/studies/walk.toml --detach")
    (job,) = set(re.findall(r"submitted (\S+) to", output))
    transcript.follow_job(
        job, lambda log: len(find_trials_in_state(log, "running")) > 1 and log.lines[-1].count("tokens") > 0
    )
    transcript.run_command("memtune jobs")
    return str(job)


def kill_worker(transcript: Transcript, job: str, worker: Host) -> int:
    """Kill a worker during training and start it again; returns how many trials have started."""
    poll_until(lambda: worker.find_processes(TRIAL_PROCESS_TITLE), "a trial on the worker", TIMEOUT_SECONDS)
    worker.kill()
    transcript.add_text(
        "The second host is killed during a trial, which waits and then continues on the other host:"
    )
    transcript.follow_job(
        job, lambda log: bool(find_trials_in_state(log, "waiting") & find_trials_in_state(log, "complete"))
    )
    worker.start()
    transcript.add_text("The host is started again and joins the cluster by itself:")
    transcript.run_command(f"memtune cluster up {CLUSTER_FILE} --yes", first=1, last=2)
    log = transcript.cluster.run("memtune", "jobs", "logs", job, variables=transcript.environment)
    return 1 + max(int(number) for number in re.findall(r"trial +(\d+)  running", log))


def kill_head(transcript: Transcript, trials: int) -> None:
    """Kill the head, launch again, and resume the study up to `trials` trials."""
    head = transcript.cluster.head
    poll_until(lambda: head.find_processes(TRIAL_PROCESS_TITLE), "a trial on the head", TIMEOUT_SECONDS)
    head.kill()
    head.start()
    transcript.add_text(
        "Then the head is killed, and with it the driver and Ray's list of jobs. Launch again:"
    )
    transcript.run_command(f"memtune cluster up {CLUSTER_FILE} --yes", last=4)
    with transcript.cluster.forward_dashboard() as address:
        transcript.environment["RAY_API_SERVER_ADDRESS"] = address
        transcript.replacements[urlsplit(address).netloc] = "127.0.0.1:8265"
        transcript.add_text(
            "The study resumes from PostgreSQL and S3; open trials continue from their checkpoints:"
        )
        transcript.run_command(f"memtune submit jobs/studies/walk.toml --resume --trials {trials}", first=8)


def compare_trials(transcript: Transcript, picture: Path) -> None:
    """Print the table of the trials, and take a screenshot of MLflow's page."""
    transcript.add_text("All trials, each trained once:")
    output = transcript.run_command("memtune compare --corpus grammar", first=30, last=30)
    (link,) = re.findall(r"https?://\S+", output)
    name, password = re.findall(
        r"= *(\S+)", (transcript.cluster.home / ".mlflow" / "credentials").read_text()
    )
    take_screenshot(link, name, password, picture)
    where = picture.relative_to(PAGE_PATH.parent)
    transcript.add_text(
        f"The link opens MLflow's page of the same trials:\n\n![MLflow's table of the trials]({where})"
    )


def main() -> None:
    """Execute all steps and write their output to the end of docs/cluster.md."""
    if missing := find_missing_requirements():
        sys.exit(f"hosts on this machine need {', '.join(missing)}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="memtune-walk-")))
        for name in ("hosts", "client"):
            (folder / name).mkdir()
        hosts = stack.enter_context(Hosts(folder / "hosts", 2))
        cluster = OnPremisesCluster(hosts, folder / "client")
        services = start_services(stack, folder, hosts.address)
        services.install_passwords(cluster.home)
        file = cluster.project / CLUSTER_FILE
        file.write_text(file.read_text().replace('\n  # "~/', '\n  "~/'))
        names = {
            services.mlflow.uri: "http://10.0.0.5:5000",
            services.object_store.address: "http://10.0.0.5:9000",
            f"{hosts.address}:{services.postgres.port}": "10.0.0.5",
            f"{cluster.project}/": "",
            str(cluster.home): "~",
            **{host.address: f"10.0.0.{10 + place}" for place, host in enumerate(hosts.hosts)},
            **{host.name: f"host-{10 + place}" for place, host in enumerate(hosts.hosts)},
        }
        parts = run_walkthrough(cluster, services.build_user_environment(), names, SCREENSHOT_PATH)
    today = time.strftime("%Y-%m-%d")
    before = PAGE_PATH.read_text().partition(SECTION_HEADING)[0].rstrip()
    origin = (
        f"The output of `python -m tests.cluster.walkthrough` on {today}, on two hosts made of namespaces."
    )
    PAGE_PATH.write_text("\n\n".join([before, SECTION_HEADING, origin, *parts]) + "\n")


if __name__ == "__main__":
    main()
