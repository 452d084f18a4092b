"""Times Tessera and its peers for scripts/bench: every entry once a round, in turn; medians over the rounds."""
import argparse
import hashlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ["TESSERA_BUILD"]
TRAINER = BUILD / "trainer/trainer"
PEERS = ROOT / "scripts/bench_peers"
CONFIGS = ROOT / "scripts/bench_configs"
PYTHONS = {
    "keras_jax.py": Path(os.environ.get("TESSERA_KERAS_PYTHON", PEERS / "keras-env/bin/python")),
    "pytorch_ddp.py": Path(os.environ.get("TESSERA_TORCH_PYTHON", PEERS / "torch-env/bin/python")),
}
# Settings of the user's that would steer one of the three and not the others.
STEERING = re.compile(r"OMP_|MKL_|KMP_|GOMP_|DNNL_|ONEDNN_|XLA_|OPENBLAS_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not STEERING.match(k)}
MLP_GFLOP = 30.1  # of a step of W2: scripts/bench_peers/README.md
W1_STEPS = 50  # steps of an epoch of W1 for each step of one of W2: they are that much shorter, and more


def descendants(pid):
    try:
        children = [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return children + [d for child in children for d in descendants(child)]


class MemoryWatch(threading.Thread):
    """Peak resident memory of the trainers under a process, in MB, summed over them."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peaks, self.over = pid, {}, threading.Event()

    def run(self):
        while not self.over.wait(0.2):  # what is read is a peak; reading it often takes time from the ranks
            for pid in [self.pid, *descendants(self.pid)]:
                try:
                    text = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                if text.startswith("Name:\ttrainer\n") and (peak := re.search(r"VmHWM:\s+(\d+) kB", text)):
                    self.peaks[pid] = int(peak.group(1)) / 1024

    def total(self):
        self.over.set()
        self.join()
        return sum(self.peaks.values())


def trainer(config, ranks, settings, folder, wait_for_step=False):
    """Runs the trainer: ms a step of each epoch and of each step that was written down (both without the first epoch, which
    holds the first touch of memory and files), seconds to the first step's line, whole seconds, peak MB."""
    command = ["mpirun", "-np", str(ranks)] if ranks > 1 else []
    command += [str(TRAINER), "--config", str(CONFIGS / config), "--output", str(folder), "--overwrite"]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    log, first = Path(folder) / "metrics.jsonl", None
    log.unlink(missing_ok=True)
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as job:
        watch = MemoryWatch(job.pid)
        if not wait_for_step:
            watch.start()
        while wait_for_step and job.poll() is None:
            if log.exists() and '"step"' in log.read_text():
                first = time.perf_counter() - start
                break
            time.sleep(0.001)
        status = job.wait()
    whole = time.perf_counter() - start
    if status != 0:
        sys.exit(f"bench: {' '.join(command)}: exit status {status}")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    epochs = [event for event in events if event["event"] == "epoch"]
    steps = epochs[0]["step"]
    return {"epochs": [1e3 * epoch["seconds"] / steps for epoch in epochs[1:]],
            "steps": [1e3 * event["seconds"] for event in events if event["event"] == "step" and event["epoch"] > 1],
            "first": first, "whole": whole, "memory": None if wait_for_step else watch.total() or None}


def ours(config, ranks, steps, epochs, dtype="float32"):
    """One measurement: steady time and memory from a long run, start-up and whole time from short ones."""
    batch = 16 if config == "w1.json" else 256
    settings = {"data.train.samples": batch * steps, "fit.epochs": epochs + 1, "dtype_policy": dtype}
    if config != "w1.json":
        settings["output.log_steps"] = 1
    with tempfile.TemporaryDirectory() as folder:
        steady = trainer(config, ranks, settings, folder)
        short = {"data.train.samples": batch, "fit.epochs": 1, "output.log_steps": 1, "dtype_policy": dtype}
        started = trainer(config, ranks, short, folder, wait_for_step=True)
        whole = trainer(config, ranks, {"dtype_policy": dtype}, folder)["whole"] if config == "w1.json" else None
    # As the peers' scripts count: PyTorch's times single steps; a step of W1 is too short for that.
    ms = statistics.median(steady["epochs"] if config == "w1.json" else steady["steps"])
    return {"ms": ms, "samples": 1e3 * batch / ms, "memory": steady["memory"], "start": started["first"], "whole": whole}


def peer(script, arguments, steps, epochs):
    words = [str(PYTHONS[script]), str(PEERS / script), *arguments, "--steps", str(steps)]
    words += ["--epochs", str(epochs)] if script == "keras_jax.py" else []
    done = subprocess.run(words, cwd=PEERS, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        print(f"bench: {' '.join(words)} failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    got = json.loads(lines[-1])
    return {"ms": got["steady_ms_per_step"], "samples": got["samples_per_s"], "memory": got["peak_rss_mb"],
            "start": got["import_to_first_step_s"], "whole": got.get("total_wall_s"), "version": got["version"]}


def entries(options):
    """(work, system, configuration, function that measures it once)."""
    found, epochs = [], options.epochs
    for ranks, name in ((1, "1 rank"), (2, "2 ranks, data parallel")):
        found.append(("W1", "Tessera", name, lambda r=ranks: ours("w1.json", r, W1_STEPS * options.steps, epochs)))
    for dtype in ("float32", "mixed_bfloat16"):
        for config, ranks, name in (("w2_data_parallel.json", 1, "1 rank"), ("w2_data_parallel.json", 2, "2 ranks, data parallel"),
                                    ("w2_model_parallel.json", 2, "2 ranks, model parallel")):
            found.append((f"W2 {dtype}", "Tessera", name,
                          lambda c=config, r=ranks, d=dtype: ours(c, r, options.steps, epochs, d)))
    for script, system in (("keras_jax.py", "Keras-JAX"), ("pytorch_ddp.py", "PyTorch")):
        if not PYTHONS[script].exists():
            print(f"bench: {system} is skipped: there is no {PYTHONS[script]}", file=sys.stderr)
            continue
        runs = [("W1", "1 device", ["--workload", "seed"]),
                ("W1", "2 devices, data parallel", ["--workload", "seed", "--devices", "2"])]
        for dtype, flag in (("float32", "fp32"), ("mixed_bfloat16", "bf16")):
            common = ["--workload", "mlp", "--dtype", flag]
            runs += [(f"W2 {dtype}", "1 device", common),
                     (f"W2 {dtype}", "2 devices, data parallel", [*common, "--devices", "2", "--parallel", "dp"]),
                     (f"W2 {dtype}", "2 devices, model parallel", [*common, "--devices", "2", "--parallel", "mp"])]
            if system == "PyTorch":
                runs.append((f"W2 {dtype}", "1 device, compiled", [*common, "--compile"]))
        for work, name, arguments in runs:
            steps = options.steps * (W1_STEPS if work == "W1" else 1)
            found.append((work, system, name, lambda s=script, a=arguments, n=steps: peer(s, a, n, epochs)))
    # Entries of one kind come one after another: what else the machine does then meets all of them alike.
    kinds = ("model parallel", "data parallel", "")
    order = sorted(found, key=lambda entry: (entry[0], next(i for i, kind in enumerate(kinds) if kind in entry[2])))
    return [entry for entry in order if entry[0].startswith(options.only or "")]


def measure(options):
    """Figures of every round: (work, system, configuration) -> one per round, None where it failed. Rounds are added to
    those of the same trainer in options.results, whole ones only: measuring can be stopped, and gone on with when the
    machine is idle."""
    todo, file = entries(options), Path(options.results)
    trainer_hash = hashlib.sha256(TRAINER.read_bytes()).hexdigest()
    known = json.loads(file.read_text()) if file.exists() else {}
    rounds = known["rounds"] if known.get("trainer") == trainer_hash else []
    for turn in range(options.rounds):
        figures = []
        for work, system, name, function in todo:
            print(f"round {turn + 1} of {options.rounds}: {work}, {system}, {name}", end=" ", flush=True)
            got = function()
            print(f"{got['ms']:.4f} ms a step" if got else "failed", flush=True)
            figures.append([work, system, name, got])
        rounds.append(figures)
        file.write_text(json.dumps({"trainer": trainer_hash, "rounds": rounds}))
    results = {}
    for turn, figures in enumerate(rounds):
        for *key, got in figures:
            results.setdefault(tuple(key), [None] * len(rounds))[turn] = got
    return results


def medians(results):
    """(work, system, configuration) -> medians over the rounds that did not fail."""
    found = {}
    for key, rounds in results.items():
        runs = [run for run in rounds if run]
        if runs:
            found[key] = {field: statistics.median(values) if isinstance(values[0], (int, float)) else values[0]
                          for field in runs[0] if (values := [run[field] for run in runs if run[field] is not None])}
    return found


def rounds_of(results):
    return max(len(rounds) for rounds in results.values())


def least(results, turn, field, work, systems, kind):
    """The least of a field in one round among the entries of some systems, of a kind of configuration."""
    values = [rounds[turn].get(field) for (w, system, name), rounds in results.items()
              if w == work and system in systems and kind in name and rounds[turn]]
    return min((v for v in values if v is not None), default=None)


def ratios(results, field, work, kind, peers_work=None, system=None):
    """Of every round, the best peer's figure by Tessera's best, of a kind of configuration."""
    peers = [system] if system else ["Keras-JAX", "PyTorch"]
    found = []
    for turn in range(rounds_of(results)):
        theirs = least(results, turn, field, peers_work or work, peers, kind)
        own = least(results, turn, field, work, ["Tessera"], kind)
        if theirs and own:
            found.append(theirs / own)
    return found


RATIOS = [  # what, field, work of ours, kind of configuration, work of the peers, one system
    ("W1, one process, time of a step against Keras-JAX", "ms", "W1", "1 ", None, "Keras-JAX"),
    ("W1, data parallel on 2, time of a step against Keras-JAX", "ms", "W1", "data parallel", None, "Keras-JAX"),
    ("W1, data parallel on 2, whole run", "whole", "W1", "data parallel", None, None),
    ("W2 float32, model parallel on 2, time of a step", "ms", "W2 float32", "model parallel", None, None),
    ("W2 float32, data parallel on 2, time of a step", "ms", "W2 float32", "data parallel", None, None),
    ("W2 float32, time of a step, the best of each in any configuration", "ms", "W2 float32", "", None, None),
    ("W2 mixed_bfloat16, the best of ours against the best float32 step of the peers", "ms", "W2 mixed_bfloat16", "",
     "W2 float32", None),
    ("W2 mixed_bfloat16, the best of each in any configuration", "ms", "W2 mixed_bfloat16", "", None, None),
    ("W2 float32, start to first step on 2, data parallel", "start", "W2 float32", "data parallel", None, None),
    ("W2 float32, peak memory, one process", "memory", "W2 float32", "1 ", None, None),
    ("W2 float32, peak memory, model parallel on 2", "memory", "W2 float32", "model parallel", None, None),
    ("W2 float32, peak memory, data parallel on 2", "memory", "W2 float32", "data parallel", None, None),
]


def ratio_lines(results):
    lines = ["| what | best peer / Tessera | least and most of a round |", "| --- | --- | --- |"]
    for what, field, work, kind, peers_work, system in RATIOS:
        found = ratios(results, field, work, kind, peers_work, system)
        if found:
            lines.append(f"| {what} | {statistics.median(found):.2f} | {min(found):.2f} to {max(found):.2f} |")
    return lines if len(lines) > 2 else []


def products(threads, times=5):
    """Products inside W2 by the kernel benchmark: (name, dtype, size) -> medians of GFLOP/s, of those of oneDNN alone in the
    same run, and of the share of one in the other."""
    pattern = re.compile(r"^(\S.*?) (f32 |bf16) +(\d+) x +(\d+) x +(\d+) .*?([\d.]+) GFLOP/s +oneDNN alone +([\d.]+)", re.M)
    found = {}
    for _ in range(times):
        text = subprocess.run([str(BUILD / "tests/ops/kernel_bench"), str(threads), "matmul"], env=ENVIRONMENT, text=True,
                              capture_output=True, check=True).stdout
        for name, dtype, m, n, k, own, alone in pattern.findall(text):
            if int(m) * int(n) * int(k) >= 2 ** 30 and "half" not in name:
                key = (name.strip(), dtype.strip(), f"{m} x {n} x {k}")
                found.setdefault(key, []).append((float(own), float(alone), float(own) / float(alone)))
    return {key: tuple(statistics.median(column) for column in zip(*runs)) for key, runs in found.items()}


def plan_seconds():
    """Seconds for the plan of W2 on 1,024 ranks."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([str(TRAINER), "plan", "--config", str(CONFIGS / "w2_model_parallel.json"), "--ranks", "1024"],
                       env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def shown(value, digits):
    return "" if value is None else f"{value:,.{digits}f}"


def table(work, results, peak):
    rows = {key: got for key, got in results.items() if key[0] == work}
    best = min((got["ms"] for (_, system, _), got in rows.items() if system != "Tessera"), default=None)
    lines = ["| system | configuration | ms a step | samples/s | best peer's time / this | share of GEMM peak | peak memory, MB "
             "| start to first step, s | whole run, s |", "|" + " --- |" * 9]
    for (_, system, name), got in rows.items():
        share = MLP_GFLOP / got["ms"] * 1e3 / peak if peak and work == "W2 float32" else None
        lines.append(f"| {system} | {name} | {shown(got['ms'], 4 if got['ms'] < 1 else 1)} | {shown(got['samples'], 0)} | "
                     f"{shown(best / got['ms'] if best else None, 2)} | {'' if share is None else f'{share:.0%}'} | "
                     f"{shown(got.get('memory'), 0)} | {shown(got.get('start'), 2)} | {shown(got.get('whole'), 2)} |")
    return lines


NOTES = "<!-- Written by hand from here on; scripts/bench keeps it. -->"
ABOUT = {
    "W1": "Dense(4 to 1), batch 16, SGD, binary cross-entropy, accuracy: a step that is all overhead. \"Whole run\" is "
          "4 epochs of 8 steps, from the start of the process (of `mpirun`, on 2 ranks) to its end.",
    "W2": "MLP 1024, 4096, 4096, 10, batch 256, Adam, sparse categorical cross-entropy. Memory is summed over ranks. "
          f"A step takes {MLP_GFLOP} GFLOP.",
}


def report(options, rounds):
    results = medians(rounds)
    cores = len(os.sched_getaffinity(0))
    info = Path("/proc/cpuinfo").read_text()
    cpu = re.search(r"^model name\s*: (.*)$", info, re.M)
    extras = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if re.search(rf"\b{flag}\b", info)]
    versions = sorted({f"{system} ({got['version']})" for (_, system, _), got in results.items() if "version" in got})
    lines = ["# Benchmarks", "",
             f"Written by `{' '.join(['scripts/bench', *sys.argv[1:]])}` on {time.strftime('%Y-%m-%d')}: "
             f"{cpu.group(1) if cpu else platform.machine()}, {cores} cores ({', '.join(extras)}). "
             f"Medians of {rounds_of(rounds)} rounds in which all entries were run in turn, {options.epochs} epochs of "
             f"{options.steps} steps each ({W1_STEPS * options.steps} of W1; PyTorch: one epoch).",
             "", f"Peers: {', '.join(versions) or 'none were installed'}."]
    if compared := ratio_lines(rounds):
        lines += ["", "## Against the best peer", "",
                  "Above 1 Tessera is faster or smaller. Each figure is the median over the rounds of the ratio within a round.",
                  "", *compared]
    gemm = products(cores)
    peak = max((alone for (_, dtype, _), (_, alone, _) in gemm.items() if dtype == "f32"), default=None)
    for work in dict.fromkeys(key[0] for key in results):
        lines += ["", f"## {work}", "", ABOUT[work[:2]], "", *table(work, results, peak)]
    lines += ["", f"## Matrix products inside W2, {cores} threads", "",
              "| product | dtype | m x n x k | Tessera, GFLOP/s | oneDNN alone, GFLOP/s | share |", "|" + " --- |" * 6]
    lines += [f"| {name} | {dtype} | {size} | {own:,.0f} | {alone:,.0f} | {share:.0%} |"
              for (name, dtype, size), (own, alone, share) in gemm.items()]
    lines += ["", "The share of the GEMM peak in the tables above is a step's arithmetic per second by the best float32 figure of "
              "oneDNN here.", "", "## Planning", "",
              f"`trainer plan` of W2 on 1,024 ranks (mesh 512 x 2): {plan_seconds():.3f} s, start of the process included."]
    output = Path(ROOT / options.output)
    notes = output.read_text().partition(NOTES)[2] if output.exists() else "\n"
    output.write_text("\n".join(lines) + f"\n\n{NOTES}{notes}")
    print(f"wrote {options.output}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="steps of an epoch")
    parser.add_argument("--epochs", type=int, default=5, help="timed epochs, after one that is not")
    parser.add_argument("--rounds", type=int, default=3, help="how often every entry is measured; 0 writes what there is")
    parser.add_argument("--only", choices=["W1", "W2"])
    parser.add_argument("--output", default="docs/benchmarks.md")
    parser.add_argument("--results", default=str(BUILD / "bench.json"), help="rounds so far; new ones are added to them")
    options = parser.parse_args()
    if min(options.steps, options.epochs) < 1 or options.rounds < 0:
        parser.error("--steps and --epochs must be at least 1, --rounds at least 0")
    if results := measure(options):
        report(options, results)


if __name__ == "__main__":
    main()
