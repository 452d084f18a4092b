"""A run that was cut short and resumed ends as one that was not: the same bytes on the same mesh."""
from equivalence import COLUMNS_THEN_ROWS, expect_same_run, mixed_config
from support import expect, mlp_data, model_parallel, sequential, wait_for


def everything_config(bench, policy="float32"):
    """Whatever has a state: dropout, order of samples, statistics, accumulation, callbacks, a ragged last batch."""
    layers = [("Dense", {"name": "hidden", "units": 12, "activation": "relu"}),
              ("Dropout", {"name": "dropped", "rate": 0.4}),
              ("BatchNormalization", {"name": "scaled"}),
              ("Dense", {"name": "classes", "units": 3, "activation": "softmax", "dtype": "float32"})]
    source = {"format": "safetensors", "path": mlp_data(bench)}
    return {
        "seed": 21,
        "dtype_policy": policy,
        "model": sequential("cut", [6], *layers),
        "compile": {
            "optimizer": {"class_name": "Adam", "config": {"learning_rate": 0.02, "gradient_accumulation_steps": 2}},
            "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]},
        "data": {"train": source, "validation": source},
        "fit": {"epochs": 8, "batch_size": 8, "verbose": 0},
        "callbacks": [
            {"class_name": "EarlyStopping", "config": {"monitor": "loss", "patience": 3, "restore_best_weights": True}},
            {"class_name": "ReduceLROnPlateau", "config": {"monitor": "val_loss", "patience": 0, "factor": 0.5,
                                                           "min_delta": 0.2}}],
        "output": {"log_steps": 1},
        "checkpoint": {"every_steps": 3, "keep": 100},
        "runtime": {"threads": 1},
    }


STEPS_OF_EPOCH = 5  # 35 samples in batches of 8


def losses(run):
    """{step: loss}; of a step that was made twice, the last."""
    return {event["step"]: event["loss"] for event in run.events("step")}


def epochs(run):
    return {event["epoch"]: event["logs"] for event in run.events("epoch")}


def expect_same_end(resumed, whole, what, logs=True):
    """logs: metrics.jsonl went on where the cut run's ended."""
    expect(resumed.weights_bytes() == whole.weights_bytes(), f"{what}: other bytes of weights than the uncut run's")
    expect(resumed.events("end")[-1]["status"] == "completed", f"{what}: no end event")
    if not logs:
        return
    expect(losses(resumed) == losses(whole), f"{what}: other losses of steps: {losses(resumed)}, {losses(whole)}")
    expect(epochs(resumed) == epochs(whole), f"{what}: other logs of epochs: {epochs(resumed)}, {epochs(whole)}")


def last_checkpoint(folder):
    """Step of the newest checkpoint; 0: there is none."""
    names = [entry.name.split("_")[1] for entry in (folder / "checkpoints").glob("step_*")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def kill_at_step(bench, config, ranks, step):
    """Trains, and kills the launcher and every rank once the checkpoint of `step` is there; the folder of the run."""
    process, folder = bench.start(config, ranks)
    wait_for(lambda: last_checkpoint(folder) >= step or process.poll() is not None, "a checkpoint")
    bench.kill(process)
    bench.expect_no_processes()
    return folder


def keep_until(folder, step):
    """Removes checkpoints after `step`, as if the kill had come then."""
    for entry in (folder / "checkpoints").iterdir():
        if int(entry.name.split("_")[1].split(".")[0]) > step:
            for file in entry.iterdir():
                file.unlink()
            entry.rmdir()


def check_each_checkpoint(bench):
    """From every checkpoint of a run, inside an epoch and at its end, the rest comes out the same to the last byte"""
    config = everything_config(bench)
    whole = bench.train(config)
    rates = {e["step"]: e["learning_rate"] for e in whole.events("step")}
    expect(len(set(rates.values())) > 2, f"the plateau never lowered the learning rate: {rates}")
    last = max(losses(whole))
    expect(last >= 20, f"only {last} steps: this shows little")
    for step in (3, 6, 15, last - last % 3):
        folder = whole.folder / "checkpoints" / f"step_{step}"
        resumed = bench.train(config, 1, "--resume", folder)
        expect(resumed.weights_bytes() == whole.weights_bytes(), f"from step {step}: other weights")
        want = {s: loss for s, loss in losses(whole).items() if s > step}
        expect(losses(resumed) == want, f"from step {step}: losses {losses(resumed)}, expected {want}")
        rest = {e: logs for e, logs in epochs(whole).items() if e * STEPS_OF_EPOCH >= step}
        got = epochs(resumed)
        expect(rest.items() >= got.items() and len(rest) - len(got) <= (step % STEPS_OF_EPOCH == 0),
               f"from step {step}: epochs {got}, expected {rest}")


def check_epochs_cut(bench):
    """Fewer epochs first and the rest with --resume auto end as one run, in float32 and mixed_bfloat16, on 1
    and 2 ranks"""
    for policy in ("float32", "mixed_bfloat16"):
        for ranks in (1, 2):
            config = everything_config(bench, policy)
            config["checkpoint"] = {"every_epochs": 1}
            whole = bench.train(config, ranks)
            part = bench.train({**config, "fit": {**config["fit"], "epochs": 3}}, ranks)
            expect(part.weights_bytes() != whole.weights_bytes(), "3 epochs end like all: this shows nothing")
            resumed = bench.train(config, ranks, "--resume", "auto", output=part.folder)
            expect_same_end(resumed, whole, f"{policy} on {ranks} ranks")
            expect(resumed.json("history.json") == whole.json("history.json"), f"{policy}, {ranks} ranks: other history")


def check_killed(bench):
    """A job killed with SIGKILL in the middle of an epoch goes on with --resume auto to the same bytes, on 1
    and 2 ranks"""
    for ranks in (1, 2):
        config = everything_config(bench)
        config["fit"]["epochs"], config["callbacks"] = 60, config["callbacks"][1:]
        config["checkpoint"] = {"every_steps": 7, "keep": 2}
        whole = bench.train(config, ranks)
        folder = kill_at_step(bench, config, ranks, 21)
        expect(not (folder / "weights.safetensors").exists(), "the job ended before it was killed")
        (folder / "checkpoints" / "step_28.0123abcd.tmp").mkdir(exist_ok=True)  # as a kill inside a save leaves it
        resumed = bench.train(config, ranks, "--resume", "auto", output=folder)
        expect_same_end(resumed, whole, f"{ranks} ranks")
        leftovers = [e.name for e in (folder / "checkpoints").iterdir() if e.name.endswith(".tmp")]
        expect(not leftovers, f"temporary folders stay: {leftovers}")


def check_other_ranks(bench):
    """A checkpoint of 2 ranks goes on under ZeRO 3 on 3 ranks, on a mesh 1x2 and on one rank, within 1e-4"""
    config = mixed_config(bench)
    config["checkpoint"] = {"every_steps": 4, "keep": 9}
    whole = bench.train(config, 2)
    zero = {"class_name": "DataParallel", "config": {"zero": {"stage": 3, "axis": "batch"}}}
    for ranks, distribution in ((1, None), (3, zero), (2, model_parallel([1, 2], COLUMNS_THEN_ROWS))):
        other = {**config, **({"distribution": distribution} if distribution else {})}
        resumed = bench.train(other, ranks, "--resume", whole.folder / "checkpoints" / "step_4")
        expect_same_run(resumed, whole)


def check_backup_and_restore(bench):
    """BackupAndRestore resumes by itself after a kill and ends with the uncut run's bytes"""
    config = everything_config(bench)
    config["fit"]["epochs"], config["callbacks"] = 100, []
    del config["checkpoint"]
    whole = bench.train(config)
    config["callbacks"] = [{"class_name": "BackupAndRestore", "config": {"backup_dir": str(bench.new_path("backup"))}}]
    process, folder = bench.start(config, 1)
    metrics = folder / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size > 5000 or process.poll() is not None, "training steps")
    process.kill()
    process.wait()
    expect(not (folder / "weights.safetensors").exists(), "the job ended before it was killed")
    resumed = bench.train(config, 1, "--overwrite", output=folder)
    expect_same_end(resumed, whole, "after the kill", logs=False)
    expect(resumed.json("history.json") == whole.json("history.json"), "other history than the uncut run's")


def check_resume_errors(bench):
    """--resume auto without a checkpoint starts afresh; a missing, damaged or foreign checkpoint is exit 4"""
    config = everything_config(bench)
    fresh = bench.train(config, 1, "--resume", "auto")
    expect(fresh.weights_bytes() == bench.train(config).weights_bytes(), "--resume auto without checkpoints: other weights")
    bench.try_train(config, 1, "--resume", bench.new_path("nothing")).expect_status(4)
    folder = fresh.folder / "checkpoints" / "step_6"
    foreign = {**config, "seed": 1}
    expect("seed" in bench.try_train(foreign, 1, "--resume", folder).expect_status(4).stderr, "the seed is not named")
    state = folder / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-5])
    run = bench.try_train(config, 2, "--resume", folder).expect_status(4)
    expect("state.safetensors" in run.stderr, run.describe())


def check_damaged_newest(bench):
    """--resume auto passes over a newest checkpoint that is damaged and goes on from the one before"""
    config = everything_config(bench)
    whole = bench.train(config)
    steps = sorted(int(e.name.split("_")[1]) for e in (whole.folder / "checkpoints").iterdir())
    keep_until(whole.folder, steps[3])
    state = whole.folder / "checkpoints" / f"step_{steps[3]}" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-5])
    want = whole.weights_bytes()
    resumed = bench.train(config, 1, "--resume", "auto", output=whole.folder)
    expect(resumed.weights_bytes() == want, "other bytes of weights than the uncut run's")


def steps_of(folder):
    return sorted(int(entry.name.split("_")[1]) for entry in (folder / "checkpoints").iterdir())


def check_overwritten_run(bench):
    """A run that overwrites a longer one keeps its own checkpoints, and --resume auto goes on from those"""
    config = everything_config(bench)
    config["callbacks"], config["checkpoint"] = [], {"every_epochs": 1, "keep": 2}
    folder = bench.train(config).folder
    short = {**config, "fit": {**config["fit"], "epochs": 3}}
    bench.train(short, 1, "--overwrite", output=folder)
    expect(steps_of(folder) == [10, 15], f"checkpoints of steps {steps_of(folder)}, expected 10 and 15")
    bench.train({**short, "checkpoint": None}, 1, "--overwrite", output=folder)
    expect(steps_of(folder) == [], f"checkpoints of an earlier run stay: {steps_of(folder)}")


def check_back_to_older(bench):
    """After going back to an older checkpoint, newer ones do not crowd out those that the run makes"""
    config = everything_config(bench)
    config["callbacks"], config["checkpoint"] = [], {"every_epochs": 1, "keep": 3}
    folder = bench.train(config).folder
    expect(steps_of(folder) == [30, 35, 40], f"checkpoints of steps {steps_of(folder)}")
    config["fit"]["epochs"] = 7
    bench.train(config, 1, "--resume", folder / "checkpoints" / "step_30", output=folder)
    expect(steps_of(folder) == [30, 35], f"checkpoints of steps {steps_of(folder)}, expected 30 and 35")
