"""How jobs end when something breaks: soon, with the right status, the first cause named, nothing left behind."""
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from support import FLOAT, INTEGER, expect, mlp_data, sequential, wait_for, write_safetensors

LAUNCHER_KILLED = 137  # what mpirun returns for a rank that SIGKILL ended


def endless_config(bench):
    """More epochs than any test waits for."""
    return {
        "model": sequential("endless", [6], ("Dense", {"name": "hidden", "units": 64, "activation": "relu"}),
                            ("Dense", {"name": "classes", "units": 3, "activation": "softmax"})),
        "compile": {"optimizer": "adam", "loss": "sparse_categorical_crossentropy"},
        "data": {"train": {"format": "safetensors", "path": mlp_data(bench)}},
        "fit": {"epochs": 10000000, "batch_size": 8, "verbose": 0},
        "output": {"log_steps": 1},
        "runtime": {"threads": 1, "watchdog_seconds": 5},
    }


def hurt(bench, ranks, victim, sent):
    """Trains and sends a signal to one rank in the middle; (result, seconds from the signal to the end)."""
    process, folder = bench.start(endless_config(bench), ranks)
    metrics = folder / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size > 2000 or process.poll() is not None, "training steps")
    pids = bench.processes()
    expect(len(pids) == ranks, f"{len(pids)} processes run, expected {ranks}")
    os.kill(pids[victim], sent)
    begin = time.monotonic()
    result = bench.finish(process, folder, 40)
    bench.expect_no_processes()
    return result, time.monotonic() - begin


def check_killed_rank(bench):
    """A rank that SIGKILL ends takes the job with it within 15 s, whichever rank it is, and is named"""
    for ranks, victim in ((2, 0), (3, 2)):
        result, seconds = hurt(bench, ranks, victim, signal.SIGKILL)
        expect(seconds <= 15, f"rank {victim} of {ranks}: {seconds:.1f} s")
        result.expect_status(LAUNCHER_KILLED, 7)
        expect(f"rank {victim}" in result.last_lines(), f"rank {victim} is not named: {result.describe()}")


def check_stopped_rank(bench):
    """A rank that SIGSTOP stops ends the job with exit 7 within 15 s and is named"""
    for ranks, victim in ((2, 1), (3, 0)):
        result, seconds = hurt(bench, ranks, victim, signal.SIGSTOP)
        expect(seconds <= 15, f"rank {victim} of {ranks}: {seconds:.1f} s")
        result.expect_status(7)
        expect(f"rank {victim}" in result.last_lines(), f"rank {victim} is not named: {result.describe()}")


def check_terminated_job(bench):
    """SIGTERM to the launcher ends all ranks and leaves no process behind"""
    process, folder = bench.start(endless_config(bench), 2)
    wait_for(lambda: (folder / "metrics.jsonl").exists() or process.poll() is not None, "training steps")
    process.terminate()
    result = bench.finish(process, folder, 15)
    expect(result.status != 0, "a job that was ended has exit 0")
    bench.expect_no_processes()


def check_error_on_one_rank(bench):
    """A value that one rank alone reads and refuses ends all ranks with exit 3, the row named"""
    rows = 64
    x = [1.0] * (rows * 4)
    x[(rows - 3) * 4] = float("nan")  # without shuffling, in the last rank's rows of the last batch
    path = bench.new_path("damaged.safetensors")
    write_safetensors(path, {"x": (FLOAT, [rows, 4], x), "y": (INTEGER, [rows], [0] * rows)})
    config = endless_config(bench)
    config["model"] = sequential("endless", [4], ("Dense", {"name": "classes", "units": 3, "activation": "softmax"}))
    config["data"]["train"]["path"] = str(path)
    config["fit"]["shuffle"] = False
    config["fit"]["batch_size"] = 16
    for ranks in (1, 2, 3):
        result = bench.try_train(config, ranks).expect_status(3)
        expect(result.seconds < 15, f"{ranks} ranks: {result.seconds:.1f} s")
        expect(f"row {rows - 3}" in result.last_lines(), f"{ranks} ranks: row {rows - 3} is not named: {result.describe()}")
        expect(path.name in result.last_lines(), f"the file is not named: {result.describe()}")
        bench.expect_no_processes()


def check_damaged_file(bench):
    """A truncated data file ends the job with exit 3 and its name, before a step, on 1 and 2 ranks"""
    path = bench.new_path("cut.safetensors")
    path.write_bytes(Path(mlp_data(bench)).read_bytes()[:-7])
    config = endless_config(bench)
    config["data"]["train"]["path"] = str(path)
    for ranks in (1, 2):
        result = bench.try_train(config, ranks).expect_status(3)
        expect(result.last_lines().count(path.name) == 1, f"the file is not named once: {result.describe()}")


def check_no_memory(bench):
    """A rank that may not have the memory that it needs ends the job with a message, not a crash"""
    config = endless_config(bench)
    config["model"] = sequential("wide", [6], ("Dense", {"name": "hidden", "units": 4000000}),
                                 ("Dense", {"name": "classes", "units": 3}))
    limited = bench.new_path("limited.sh")
    limited.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && ulimit -v 800000\nexec {bench.trainer} "$@"\n')
    limited.chmod(0o755)
    for ranks in (2,):
        argv = ["mpirun", "-np", str(ranks), str(limited), "train", "--config", str(bench.write_config(config)),
                "--output", str(bench.new_path("run"))]
        begin = time.monotonic()
        done = subprocess.run(argv, env=bench.environment(), capture_output=True, text=True, timeout=60)
        seconds = time.monotonic() - begin
        tail = "\n".join(done.stderr.splitlines()[-20:])
        expect(done.returncode == 1, f"exit {done.returncode}: {tail}")
        expect("memory" in tail and "[rank 1]" in tail, f"rank 1 and memory are not named: {tail}")
        expect(seconds < 30, f"{seconds:.1f} s")
        bench.expect_no_processes()


def check_output_folder(bench):
    """A folder that holds something is refused with exit 2 and stays as it was; an empty one is taken"""
    config = endless_config(bench)
    config["fit"]["epochs"] = 1
    folder = bench.new_path("taken")
    folder.mkdir()
    bench.train(config, output=folder)
    weights = (folder / "weights.safetensors").read_bytes()
    for ranks in (1, 2):
        result = bench.try_train(config, ranks, output=folder).expect_status(2)
        expect("--overwrite" in result.stderr, result.describe())
    expect((folder / "weights.safetensors").read_bytes() == weights, "the files changed")
    bench.train(config, 1, "--overwrite", output=folder)


def check_unwritable_output(bench):
    """An output folder that cannot be made is exit 1 with the path and the system's reason, on 1 and 2 ranks"""
    config = endless_config(bench)
    config["fit"]["epochs"] = 1
    file = bench.new_path("file")
    file.write_text("no folder")
    for ranks in (1, 2):
        for folder in (file / "run", Path("/proc/tessera/run")):
            result = bench.try_train(config, ranks, output=folder).expect_status(1)
            expect(str(folder) in result.last_lines(), f"{folder} is not named: {result.describe()}")
            expect(any(reason in result.last_lines() for reason in ("Not a directory", "No such file", "not permitted")),
                   f"no reason: {result.describe()}")


def check_full_disk(bench):
    """A disk that fills up ends the job with exit 1, the file and the reason named, and no weights half written"""
    folder = bench.new_path("small_disk")
    folder.mkdir()
    config = endless_config(bench)
    config["fit"]["epochs"] = 1
    config["model"] = sequential("large", [6], ("Dense", {"name": "hidden", "units": 60000}),
                                 ("Dense", {"name": "classes", "units": 3}))
    # Where no file system may be mounted, a limit on the size of files breaks the same write.
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tessera", str(folder)], capture_output=True).returncode == 0
    limit = "" if mounted else "trap '' XFSZ; ulimit -f 300; "
    limited = bench.new_path("limited.sh")
    limited.write_text(f'#!/bin/bash\n{limit}exec {bench.trainer} "$@"\n')
    limited.chmod(0o755)
    try:
        for ranks in (1, 2):
            run = folder / f"run_{ranks}"
            launcher = ["mpirun", "-np", "2"] if ranks == 2 else []
            done = subprocess.run(launcher + [str(limited), "train", "--config", str(bench.write_config(config)),
                                              "--output", str(run)],
                                  env=bench.environment(), capture_output=True, text=True, timeout=60)
            tail = "\n".join(done.stderr.splitlines()[-20:])
            expect(done.returncode == 1, f"{ranks} ranks: exit {done.returncode}: {tail}")
            reason = "No space left on device" if mounted else "File too large"
            expect("weights.safetensors" in tail and reason in tail, f"{ranks} ranks: {tail}")
            expect(not (run / "weights.safetensors").exists(), "weights that are not whole have the name of whole ones")
            shutil.rmtree(run)
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
    bench.expect_no_processes()


def start_uneven(bench, common, of_rank_1):
    """Starts 2 ranks of which rank 1 gets arguments of its own: (process, folder) for `bench.finish`."""
    script = bench.new_path("uneven.sh")
    words = [" ".join(f"'{word}'" for word in arguments) for arguments in (common, of_rank_1)]
    script.write_text(f'#!/bin/bash\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec {bench.trainer} {words[1]}\n'
                      f'exec {bench.trainer} {words[0]}\n')
    script.chmod(0o755)
    folder = bench.new_path("streams")
    with open(f"{folder}.stdout", "w") as output, open(f"{folder}.stderr", "w") as errors:
        process = subprocess.Popen(["mpirun", "-np", "2", str(script)], env=bench.environment(), cwd=bench.folder,
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
    return process, folder


def check_other_config_on_a_rank(bench):
    """A rank with another config or command than rank 0 ends the job with exit 7 before anything is computed"""
    config = endless_config(bench)
    config["fit"]["epochs"] = 1
    config["data"]["test"] = config["data"]["train"]
    weights = str(bench.train(config).folder / "weights.safetensors")
    file = str(bench.write_config(config))
    evaluate = ["evaluate", "--config", file, "--weights", weights]
    train = ["train", "--config", file, "--output", str(bench.new_path("run"))]
    for common, other in ((evaluate, [*evaluate, "--set", "fit.batch_size=9"]),
                          (train, [*train, "--set", "fit.epochs=2"]),
                          (train, [*train, "--resume", "auto"]),
                          (train, evaluate)):
        result = bench.finish(*start_uneven(bench, common, other), 40).expect_status(7)
        expect("rank(s) 1 were started with another command or config" in result.last_lines(), result.describe())
        expect(not result.stdout, f"something was computed: {result.stdout}")


def check_rank_that_never_joins(bench):
    """A rank that ends with status 0 before it joins the others ends the job: with exit 7 when the watchdog's time is
    over, or by the launcher where that saw another rank join first"""
    train = ["train", "--config", str(bench.write_config(endless_config(bench)))]
    begin = time.monotonic()
    result = bench.finish(*start_uneven(bench, train, ["--version"]), 40)
    seconds = time.monotonic() - begin
    expect(seconds <= 15, f"{seconds:.1f} s")
    by_launcher = result.status == 1 and 'did not call "init" before exiting' in result.stderr
    expect(by_launcher or (result.status == 7 and "not all ranks joined the job" in result.last_lines()), result.describe())
    bench.expect_no_processes()


def check_limit_on_files(bench):
    """A limit on the size of files is an error that names the file, exit 1, and leaves nothing half written"""
    config = endless_config(bench)
    config["fit"]["epochs"] = 1
    limited = bench.new_path("limited.sh")
    limited.write_text(f'#!/bin/bash\nulimit -f 1\nexec {bench.trainer} "$@"\n')
    limited.chmod(0o755)
    folder = bench.new_path("run")
    done = subprocess.run([str(limited), "train", "--config", str(bench.write_config(config)), "--output", str(folder)],
                          env=bench.environment(), capture_output=True, text=True, timeout=60)
    expect(done.returncode == 1, f"exit {done.returncode}: {done.stderr}")
    expect("File too large" in done.stderr and str(folder) in done.stderr, done.stderr)
    left = [path.name for path in folder.rglob("*.tmp")]
    expect(not left, f"left behind: {left}")
