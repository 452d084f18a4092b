"""The memory that a plan promises is the memory that the process takes."""
import json
import re
import subprocess
import sys

from support import FLOAT, INTEGER, expect, sequential, write_safetensors

MIB = 1 << 20


def wide_config(bench, width, optimizer):
    if "memory_data" not in bench.cache:
        rows, features = 128, 256
        path = bench.new_path("wide.safetensors")
        values = [((i * 2654435761) % 1000) / 500 - 1 for i in range(rows * features)]
        write_safetensors(path, {"x": (FLOAT, [rows, features], values),
                                 "y": (INTEGER, [rows], [i % 10 for i in range(rows)])})
        bench.cache["memory_data"] = str(path)
    return {
        "model": sequential("wide", [256], ("Dense", {"name": "first", "units": width, "activation": "relu"}),
                            ("Dense", {"name": "second", "units": width, "activation": "relu"}),
                            ("Dense", {"name": "classes", "units": 10, "activation": "softmax"})),
        "compile": {"optimizer": optimizer, "loss": "sparse_categorical_crossentropy"},
        "data": {"train": {"format": "safetensors", "path": bench.cache["memory_data"]}},
        "fit": {"epochs": 1, "batch_size": 64, "verbose": 0},
        "runtime": {"threads": 1},
    }


def high_water(bench, config):
    """VmHWM of a training on one rank, in bytes."""
    # The process itself is asked, so that a child or the interpreter does not count: the shell's last words.
    script = bench.new_path("peak.py")
    script.write_text(
        "import os, resource, sys\n"
        "pid = os.fork()\n"
        "if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n"
        "_, status, usage = os.wait4(pid, 0)\n"
        "print('peak', usage.ru_maxrss * 1024)\n"
        "sys.exit(os.waitstatus_to_exitcode(status))\n")
    done = subprocess.run([sys.executable, str(script), bench.trainer, "train", "--config",
                           str(bench.write_config(config)), "--output", str(bench.new_path("run"))],
                          env=bench.environment(), capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}")
    return int(re.search(r"peak (\d+)", done.stdout).group(1))


def planned(bench, config):
    run = bench.command(1, "plan", "--config", bench.write_config(config), "--ranks", 1, "--format", "json")
    return json.loads(run.expect_status(0).stdout)["memory"]


def check_peak(bench):
    """The process of an MLP with 60 MB of parameters takes what its plan says, within 3% and 16 MiB"""
    for optimizer, copies in (("sgd", 1), ("adam", 3)):
        large, small = wide_config(bench, 3800, optimizer), wide_config(bench, 8, optimizer)
        memory = planned(bench, large)
        expect(memory["parameters"] + memory["optimizer"] >= copies * 60e6, f"the model is too small: {memory}")
        expect(memory["peak"] >= memory["parameters"] + memory["optimizer"], f"the peak leaves parts out: {memory}")
        taken = high_water(bench, large) - high_water(bench, small)
        promised = memory["peak"] - planned(bench, small)["peak"]
        allowed = 0.03 * promised + 16 * MIB
        expect(abs(taken - promised) <= allowed,
               f"{optimizer}: the plan says {promised / MIB:.1f} MiB, the process took {taken / MIB:.1f} MiB: {memory}")
