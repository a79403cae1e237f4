#!/bin/bash
# A Ray cluster inside a Slurm allocation, and a study on it. docs/cluster/slurm.md explains each step. In an activated
# environment with memtune, from the folder with the study:
#
#     sbatch clusters/slurm.sh STUDY                        # submit the study; the allocation ends with it
#     sbatch --nodes=4 --gpus-per-node=2 clusters/slurm.sh STUDY --resume     # options of sbatch, and of memtune submit
#     sbatch clusters/slurm.sh                              # no study: wait for `memtune submit` until the time is up
#
# The folders of the environment, of the study and of MEMTUNE_HOME have to be on storage that all nodes share.
#
#SBATCH --job-name=memtune
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=08:00:00
#SBATCH --output=memtune-%j.log
# A node that fails ends its trials only; they continue on the other nodes from their checkpoints.
#SBATCH --no-kill
# Three minutes before its time is up, this script stops the study, which stores a checkpoint of each trial.
#SBATCH --signal=B:TERM@180
set -euo pipefail
umask 077

environment=${VIRTUAL_ENV:-${CONDA_PREFIX:-$PWD/.venv}}
if [ ! -x "$environment/bin/memtune" ]; then
  echo "no memtune in $environment: activate the environment that has it, then run sbatch again" >&2
  exit 1
fi
export PATH="$environment/bin:$PATH"

# Every process reads the token from a file that its owner alone can read. No command line or log contains it.
unset RAY_AUTH_TOKEN
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}"

create_token() {
  local new
  mkdir -p "$(dirname "$RAY_AUTH_TOKEN_PATH")"
  if [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then
    new=$(mktemp "$RAY_AUTH_TOKEN_PATH.XXXXXX")
    head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$new"
    # A link, because two jobs that start together must use one token.
    ln "$new" "$RAY_AUTH_TOKEN_PATH" 2> /dev/null || true
    rm "$new"
  fi
  chmod 600 "$RAY_AUTH_TOKEN_PATH"
}

# Prints the address by which this node reaches another one, and free ports. Connecting a datagram socket sends nothing.
# The ports are below those that the kernel gives to connections, which could take one of them before Ray does.
FIND_ENDPOINTS='
import random, socket, sys

def can_listen(port):
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect((sys.argv[1], 9))
    address = probe.getsockname()[0]
candidates = filter(can_listen, random.sample(range(20_000, 32_768), 1_000))
print(address, *(next(candidates) for _ in range(int(sys.argv[2]))))
'
# Returns when the job server answers.
AWAIT_JOB_SERVER='
import os, time, urllib.request
from pathlib import Path

token = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text().strip()
address = os.environ["RAY_API_SERVER_ADDRESS"] + "/api/jobs/"
request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
while True:
    try:
        urllib.request.urlopen(request, timeout=5).close()
        break
    except OSError:
        time.sleep(0.5)
'

# Runs Ray on one node until SIGTERM. Its folder has a short path, because unix sockets are in it. Ray gives the folder
# of --temp-dir mode 0777; no other user may enter the one above it.
run_node() {
  ulimit -n "$(ulimit -Hn)"
  folder=$(mktemp -d /tmp/memtune-XXXXXX)
  trap 'rm -rf "$folder"' EXIT
  read -r _ own_port < <(python -c "$FIND_ENDPOINTS" "$MEMTUNE_HEAD" 1)
  options=(
    --block --disable-usage-stats --temp-dir="$folder/ray" --min-worker-port=0 --max-worker-port=0
    --dashboard-agent-listen-port="$own_port" --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}"
  )
  if [ "$SLURM_NODEID" = 0 ]; then
    options+=(
      --head --node-ip-address="$MEMTUNE_HEAD" --port="$MEMTUNE_HEAD_PORT" --dashboard-host=127.0.0.1
      --dashboard-port="$MEMTUNE_JOB_PORT" --ray-client-server-port="$MEMTUNE_CLIENT_PORT"
    )
  else
    until (: < "/dev/tcp/$MEMTUNE_HEAD/$MEMTUNE_HEAD_PORT") 2> /dev/null; do sleep 1; done
    options+=(--address="$MEMTUNE_HEAD:$MEMTUNE_HEAD_PORT")
  fi
  # A node that does not answer for 24 seconds is removed. Nothing is left to drain when this script ends Ray.
  RAY_health_check_timeout_ms=5000 RAY_health_check_failure_threshold=3 RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 \
    ray start "${options[@]}" &> "$folder/output" &
  ray=$! ended_by_us=''
  trap 'ended_by_us=yes; kill -TERM "$ray"' TERM
  wait "$ray" || wait "$ray" || true
  if [ -z "$ended_by_us" ]; then
    echo "Ray ended on $(hostname):" >&2
    cat "$folder/output" >&2
    exit 1
  fi
}

wait_for_job_server() {
  python -c "$AWAIT_JOB_SERVER" &
  local waiting=$!
  wait -n "$waiting" "$nodes" || true
  if ! kill -0 "$nodes" 2> /dev/null; then
    kill "$waiting"
    echo "Ray did not start; its output is above" >&2
    exit 1
  fi
}

# On SIGTERM: each job stores a checkpoint of its trials and ends. A client that has not submitted its study yet ends.
STOP_JOBS='
import sys
from memtune.ray_backend.jobs.job_server import JobServer, resolve_server_address

server = JobServer(resolve_server_address(None))
running = [job.id for job in server.list_jobs() if not job.has_ended]
for job in running:
    server.stop(job)
for job in running:
    server.follow_log(job, lambda piece: None)
sys.exit(not running)
'
stop() {
  trap '' TERM
  echo "SIGTERM: the study stops; to continue it, run sbatch with the same words and --resume"
  if ! python -c "$STOP_JOBS" && [ -n "$client" ]; then kill -TERM "$client" 2> /dev/null || true; fi
  stopped=yes
}

create_token
other_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n 1)
read -r MEMTUNE_HEAD MEMTUNE_HEAD_PORT MEMTUNE_JOB_PORT MEMTUNE_CLIENT_PORT \
  < <(python -c "$FIND_ENDPOINTS" "$other_node" 3)
export MEMTUNE_HEAD MEMTUNE_HEAD_PORT MEMTUNE_JOB_PORT MEMTUNE_CLIENT_PORT FIND_ENDPOINTS

# One task per node; Slurm copies this script to the first node only, so the tasks receive the function as text.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
  --cpus-per-task="$SLURM_CPUS_PER_TASK" --no-kill --kill-on-bad-exit=0 --label \
  bash -c "set -euo pipefail; $(declare -f run_node); run_node" &
nodes=$! client='' stopped=''
trap 'kill -TERM "$nodes" 2> /dev/null && wait "$nodes" || true' EXIT
export RAY_API_SERVER_ADDRESS="http://127.0.0.1:$MEMTUNE_JOB_PORT"
wait_for_job_server
echo "the job server listens on 127.0.0.1 of $(hostname); to reach it from a login node, keep this running there:"
echo "    ssh -N -L 8265:127.0.0.1:$MEMTUNE_JOB_PORT $(hostname)"

trap stop TERM
if [ $# -gt 0 ]; then
  memtune submit "$@" &
  client=$!
fi
wait "${client:-$nodes}" && code=0 || code=$?
if [ -n "$stopped" ] && [ -n "$client" ]; then wait "$client" && code=0 || code=$?; fi
exit "$code"
