"""Small trials that share one GPU: predicted tokens per second of 1 to 16 processes.

Every process trains an LSTM of width 128 on drawn text, 20 x 35 words a step, as a trial does. All wait for
each other before the measurement. Processes take turns on a GPU; under MPS (`nvidia-cuda-mps-control -d`),
which this program uses where it runs, their kernels run at the same time.

    python -m benchmarks.shared_gpu [--family lstm] [--processes 1 2 4 8 16] [--seconds 5]
"""

import argparse
import multiprocessing
import time
from multiprocessing.synchronize import Barrier as ProcessBarrier
from queue import Queue

import torch

from benchmarks.cuda_speed import make_step
from memtune.models import MODELS
from memtune.training import open_device

ROWS, WORDS, WIDTH = 20, 35, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--family", default="lstm")
    parser.add_argument("--processes", nargs="*", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    alone = 0.0
    for count in arguments.processes:
        speed = measure(arguments.family, count, arguments.seconds)
        alone = alone or speed / count
        print(
            f"{arguments.family}, {count} processes: {speed:,.0f} tokens/s, {speed / alone:.2f} x one",
            flush=True,
        )


def measure(family: str, count: int, seconds: float) -> float:
    """Tokens per second of all processes together."""
    context = multiprocessing.get_context("spawn")
    barrier, speeds = context.Barrier(count), context.Queue()
    workers = [context.Process(target=train, args=(family, seconds, barrier, speeds)) for _ in range(count)]
    for worker in workers:
        worker.start()
    found = [speeds.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    return sum(found)


def train(family: str, seconds: float, barrier: ProcessBarrier, speeds: "Queue[float]") -> None:
    """Train until the time is over, and put the tokens per second."""
    torch.set_num_threads(1)
    device = open_device("cuda")
    config = MODELS[family].model_validate({"width": WIDTH}).require_network("the benchmark")
    step = make_step(config, device, "graph", ROWS, WORDS)
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    barrier.wait(120)
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        steps += 10
    speeds.put(steps * ROWS * WORDS / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
