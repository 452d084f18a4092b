"""The other commands, standard input, --set, streams: on one rank and on several."""
import json
import re
import subprocess

from equivalence import FEATURES, mixed_config, reference
from support import difference, expect, mlp_data, read_npy, sequential


def small_config(bench, **fit):
    return {
        "seed": 3,
        "model": sequential("small", [FEATURES], ("Dense", {"name": "hidden", "units": 8, "activation": "relu"}),
                            ("Dense", {"name": "classes", "units": 3, "activation": "softmax"})),
        "compile": {"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]},
        "data": {"train": {"format": "safetensors", "path": mlp_data(bench)}},
        "fit": {"epochs": 2, "batch_size": 16, **fit},
        "runtime": {"threads": 1},
    }


def check_standard_input(bench):
    """A config on standard input trains as the same file does, on one rank and on two"""
    config = small_config(bench, verbose=0)
    want = bench.train(config)
    for ranks in (1, 2):
        folder = bench.new_path("run")
        run = bench.command(ranks, "--config", "-", "--output", folder, stdin=json.dumps(config), folder=folder)
        run.expect_status(0)
        got = run.json("history.json")["loss"]
        expect(max(map(difference, got, want.json("history.json")["loss"])) < 1e-5, f"{ranks} ranks: {got}")


def check_set(bench):
    """--set replaces numbers, strings and whole objects, and a wrong one is placed at --set"""
    config = small_config(bench, verbose=0)
    run = bench.train(config, 1, "--set", "fit.epochs=3", "--set", "compile.optimizer="
                      '{"class_name": "SGD", "config": {"learning_rate": 0.25}}', "--set", "seed=9")
    in_force = run.json("config.json")
    expect(in_force["fit"]["epochs"] == 3 and in_force["seed"] == 9, "config.json lacks the numbers that were set")
    expect(in_force["compile"]["optimizer"]["config"] == {"learning_rate": 0.25}, "config.json lacks the object")
    expect(len(run.json("history.json")["loss"]) == 3, "not 3 epochs")
    again = bench.train({**config, "seed": 9, "fit": {**config["fit"], "epochs": 3}, "compile": {
        **config["compile"], "optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.25}}}})
    expect(run.weights_bytes() == again.weights_bytes(), "other weights than with the same values in the file")
    wrong = bench.try_train(config, 2, "--set", "fit.epoch=3").expect_status(2)
    expect(re.match(r'--set fit\.epoch: .*did you mean "epochs"', wrong.stderr), wrong.describe())


def check_verbose(bench):
    """verbose 2 and 1 print Keras's lines without control codes where the output is no terminal; 0 prints nothing"""
    line = r"3/3 - \d+s - \d+(?:ms|us)/step - accuracy: \d\.\d{4} - loss: \d\.\d{4}\n"
    wanted = {0: r"", 1: None, 2: f"Epoch 1/2\n{line}Epoch 2/2\n{line}"}
    for ranks in (1, 2):
        for verbose, pattern in wanted.items():
            run = bench.train(small_config(bench, verbose=verbose), ranks)
            expect(not re.search(r"[\x1b\x08\r]", run.stdout + run.stderr), f"verbose {verbose}: control codes")
            if pattern is None:
                expect(run.stdout.count("Epoch ") == 2 and run.stdout.count("3/3") == 2, f"verbose 1: {run.stdout!r}")
            else:
                expect(re.fullmatch(pattern, run.stdout), f"verbose {verbose} on {ranks} ranks: {run.stdout!r}")


def check_evaluate_and_predict(bench):
    """evaluate and predict give on 1 and 3 ranks what training's validation said, samples in order, ragged last batch"""
    trained = reference(bench)
    config = bench.write_config(mixed_config(bench))
    weights = trained.folder / "weights.safetensors"
    history = trained.json("history.json")
    predictions = []
    for ranks in (1, 3):
        run = bench.command(ranks, "evaluate", "--config", config, "--weights", weights).expect_status(0)
        numbers = {name: float(value) for name, value in re.findall(r"(\w+): ([-+.e\d]+)", run.stdout)}
        last = {name[4:]: values[-1] for name, values in history.items() if name.startswith("val_")}
        expect(numbers.keys() == last.keys(), f"evaluate prints {run.stdout!r}, validation had {sorted(last)}")
        for name, value in last.items():
            expect(difference(numbers[name], value) < 2e-5, f"{ranks} ranks: {name} is {numbers[name]}, not {value}")
        out = bench.new_path("predictions.npy")
        bench.command(ranks, "predict", "--config", config, "--weights", weights, "--out", out).expect_status(0)
        shape, values = read_npy(out)
        expect(shape == [35, 1], f"predictions have the shape {shape}")
        predictions.append(values)
    expect(len(set(predictions[0])) > 30, "predictions are alike: their order shows nothing")
    worst = max(map(difference, *predictions))
    expect(worst < 1e-5, f"predictions on 1 and 3 ranks differ by {worst}")
    # A batch of one sample at a time cannot mix samples up.
    single = bench.new_path("single.npy")
    bench.command(1, "predict", "--config", config, "--weights", weights, "--out", single, "--set",
                  "fit.batch_size=1").expect_status(0)
    worst = max(map(difference, predictions[1], read_npy(single)[1]))
    expect(worst < 1e-5, f"predictions by batch and one by one differ by {worst}")


def check_printing_commands(bench):
    """summary, devices and schema print once on 1 rank and on 2: the same but for the mesh and the list of ranks"""
    config = bench.write_config(small_config(bench))
    for arguments, once in ((["summary", "--config", config], "Total params"), (["schema"], '"title": "Tessera run"'),
                            (["devices"], "rank +host")):
        outputs = []
        for ranks in (1, 2):
            run = bench.command(ranks, *arguments).expect_status(0)
            expect(len(re.findall(once, run.stdout)) == 1, f"{arguments[0]} on {ranks} ranks prints: {run.stdout[:500]}")
            outputs.append(run.stdout)
        if arguments[0] == "devices":
            lines = [output.splitlines()[1:] for output in outputs]
            expect([len(ranks) for ranks in lines] == [1, 2], f"devices lists {lines}")
        else:
            expect(outputs[0] == outputs[1].replace("on the mesh [2]", "on the mesh [1]"), f"{arguments[0]} prints other text on 2 ranks")
    expect(json.loads(bench.command(2, "schema").stdout)["type"] == "object", "the schema is no JSON object")


def check_help_prints_once(bench):
    """--help and usage errors are printed once on several ranks, with the same status"""
    run = bench.command(3, "--help").expect_status(0)
    expect(run.stdout.count("Usage: ") == 1, f"--help prints: {run.stdout}")
    run = bench.command(3, "train", "--confg", "x").expect_status(2)
    expect(run.stderr.count('did you mean "--config"') == 1, run.describe())


def check_lone_ranks(bench):
    """Processes that a foreign launcher started are refused with a remedy instead of training N times alone"""
    for variables in ({"OMPI_COMM_WORLD_SIZE": "2"}, {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"},
                      {"PMI_SIZE": "4", "PMI_RANK": "0"}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}):
        run = bench.try_train(small_config(bench), 1, environment=variables).expect_status(7)
        expect("srun --mpi=pmix" in run.stderr, f"{variables}: no remedy: {run.stderr}")
        expect(not run.folder.exists(), f"{variables}: a folder was written")


def check_version(bench):
    """--version and the help of a subcommand name the program; a config without --config gets the flag as remedy"""
    run = bench.command(1, "--version").expect_status(0)
    expect(re.fullmatch(r"trainer \d+\.\d+\.\d+\n", run.stdout), f"--version prints {run.stdout!r}")
    expect("Usage: trainer plan " in bench.command(1, "plan", "--help").stdout, "plan --help lacks its usage")
    for words in (["c.json"], ["train", "c.json"]):
        run = bench.command(1, *words).expect_status(2)
        expect("--config c.json" in run.stderr, run.describe())


def check_refused_early(bench):
    """plan refuses initial weights that do not fit; predict refuses before any work what it could not write to"""
    config = small_config(bench, verbose=0)
    weights = bench.train(config).folder / "weights.safetensors"
    file = bench.write_config({**config, "initial_weights": str(weights)})
    bench.command(1, "plan", "--config", file, "--ranks", 2).expect_status(0)
    config["model"] = sequential("other", [FEATURES], ("Dense", {"name": "classes", "units": 3}))
    for given, wanted in ((str(weights), 'lacks "other/classes/kernel"'), ("w.weights.h5", "np.savez"),
                          ("none.npz", "none.npz")):
        misfit = bench.write_config({**config, "initial_weights": given})
        run = bench.command(1, "plan", "--config", misfit).expect_status(4)
        expect(wanted in run.stderr, run.describe())
    partial = bench.write_config({**config, "initial_weights": {"path": str(weights), "partial": True}})
    bench.command(1, "plan", "--config", partial).expect_status(0)
    run = bench.command(1, "plan", "--config", bench.write_config({**config, "model": "m.keras"})).expect_status(2)
    expect("model.to_json()" in run.stderr, run.describe())

    for out, wanted in (("y.npz", ".npy"), ("nowhere/y.npy", "no folder nowhere")):
        run = bench.command(1, "predict", "--config", file, "--out", out).expect_status(2)
        expect(wanted in run.stderr, run.describe())


def check_standard_output(bench):
    """Results that standard output does not take are exit 1; where it is closed, its lines land in no file of the run"""
    config = mixed_config(bench)
    file = bench.write_config(config)
    run = bench.new_path("run")

    def shell(arguments, redirection):
        line = " ".join([bench.trainer, *map(str, arguments), redirection])
        return subprocess.run(line, shell=True, env=bench.environment(), stderr=subprocess.PIPE, text=True, timeout=60)
    done = shell(["plan", "--config", file], ">/dev/full")
    expect(done.returncode == 1 and "No space left" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    done = shell(["--config", file, "--output", run, "--set", "fit.verbose=2"], ">&-")
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    found = [path.name for path in run.rglob("*") if path.is_file() and b"Epoch 1" in path.read_bytes()]
    expect(not found, f"lines of the console in {found}")
