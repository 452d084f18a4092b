"""One model, one result: weights, history and random numbers do not depend on the mesh."""
import random

from support import (FLOAT, INTEGER, Graph, expect, expect_same_history, expect_same_weights, model_parallel, sequential,
                     write_safetensors)

ROWS = 35  # with batches of 16 the last one has 3 rows: fewer than the ranks of several meshes
FEATURES = 6
WORDS = 11
COLUMNS_THEN_ROWS = {
    "words/embeddings": ["model"],
    "hidden/kernel": [None, "model"],
    "hidden/bias": ["model"],
    "centred/.*": ["model"],
    "second/kernel": ["model"],
    "scaled/.*": [],
    "probability/kernel": ["model"],
}
ROWS_THEN_COLUMNS = {
    "words/embeddings": [None, "model"],
    "hidden/kernel": ["model", None],
    "second/kernel": [None, "model"],
    "scaled/.*": ["model"],
    "probability/kernel": ["batch", None],
}
MESHES = [
    ([1, 2], COLUMNS_THEN_ROWS), ([1, 3], ROWS_THEN_COLUMNS), ([2, 2], COLUMNS_THEN_ROWS), ([2, 3], ROWS_THEN_COLUMNS),
    ([2, 4], COLUMNS_THEN_ROWS), ([4, 2], ROWS_THEN_COLUMNS),
]
RANKS = [2, 3, 5, 8]


def mixed_model():
    """Embeddings and features through dropout and both kinds of normalisation to one probability."""
    graph = Graph()
    words = graph.layer("Embedding", "words", graph.input("tokens", [3], "int32"), input_dim=WORDS, output_dim=5)
    flat = graph.layer("Flatten", "flat", words)
    joined = graph.layer("Concatenate", "joined", [flat, graph.input("features", [FEATURES])], axis=-1)
    hidden = graph.layer("Dense", "hidden", joined, units=13, activation="tanh",
                         kernel_regularizer={"class_name": "L2", "config": {"l2": 0.01}})
    centred = graph.layer("LayerNormalization", "centred", hidden)
    dropped = graph.layer("Dropout", "dropped", centred, rate=0.3)
    # No bias before batch normalization: its gradient is nothing but rounding, which Adam would blow up.
    second = graph.layer("Dense", "second", dropped, units=9, use_bias=False)
    scaled = graph.layer("BatchNormalization", "scaled", second, momentum=0.8)
    active = graph.layer("Activation", "active", scaled, activation="gelu")
    return graph.output(graph.layer("Dense", "probability", active, units=1, activation="sigmoid")).json()


def mixed_data(bench):
    if "mixed_data" not in bench.cache:
        source = random.Random(11)
        tokens = [source.randrange(WORDS) for _ in range(ROWS * 3)]
        features = [source.gauss(0, 1) for _ in range(ROWS * FEATURES)]
        labels = [float(features[row * FEATURES] + tokens[row * 3] / WORDS > 0.4) for row in range(ROWS)]
        path = bench.new_path("mixed.safetensors")
        write_safetensors(path, {"tokens": (INTEGER, [ROWS, 3], tokens), "features": (FLOAT, [ROWS, FEATURES], features),
                                 "y": (FLOAT, [ROWS, 1], labels)})
        bench.cache["mixed_data"] = str(path)
    return bench.cache["mixed_data"]


def mixed_config(bench, distribution=None, learning_rate=0.01):
    source = {"format": "safetensors", "path": mixed_data(bench), "x": {"tokens": "tokens", "features": "features"}}
    config = {
        "seed": 77,
        "model": mixed_model(),
        "compile": {
            "optimizer": {"class_name": "Adam", "config": {"learning_rate": learning_rate, "global_clipnorm": 0.5}},
            "loss": "binary_crossentropy",
            "metrics": ["accuracy", "AUC", {"class_name": "Precision", "config": {}}, "mean_absolute_error"],
        },
        "data": {"train": source, "validation": source, "test": source},
        "fit": {"epochs": 3, "batch_size": 16, "verbose": 0},
        "output": {"log_steps": 1},
        "runtime": {"threads": 1},
    }
    if distribution is not None:
        config["distribution"] = distribution
    return config


def reference(bench):
    """The run on one rank that the others are compared with."""
    if "reference" not in bench.cache:
        bench.cache["reference"] = bench.train(mixed_config(bench))
    return bench.cache["reference"]


def expect_same_run(run, want):
    expect_same_weights(run.weights(), want.weights(), 1e-4)
    expect_same_history(run.json("history.json"), want.json("history.json"), 1e-5)


def run_all(bench, cases, environment=None):
    """cases: (name, ranks, distribution). TESSERA_CHECK asserts that what runs is what the plan lists."""
    want = reference(bench)
    failures = []
    for name, ranks, distribution in cases:
        run = bench.try_train(mixed_config(bench, distribution), ranks,
                              environment={"TESSERA_CHECK": "1", **(environment or {})})
        try:
            run.expect_status(0)
            expect_same_run(run, want)
        except Exception as failure:
            failures.append(f"{name}: {failure}")
    expect(not failures, "\n".join(failures))


def check_data_parallel(bench):
    """The same weights and history after 3 epochs on 2, 3, 5 and 8 data-parallel ranks as on one"""
    run_all(bench, [(f"{ranks} ranks", ranks, None) for ranks in RANKS])


def check_meshes(bench):
    """The same weights and history on meshes 1x2, 1x3, 2x2, 2x3, 2x4 and 4x2 with kernels, biases and
    embeddings cut"""
    run_all(bench, [("x".join(map(str, shape)), shape[0] * shape[1], model_parallel(shape, layouts))
                    for shape, layouts in MESHES])


def check_messages(bench):
    """The same weights and history where ranks exchange messages, as between nodes, instead of sharing memory"""
    zero = {"class_name": "DataParallel", "config": {"zero": {"stage": 3, "axis": "batch"}}}
    run_all(bench, [("3 ranks", 3, None), ("ZeRO 3 on 3 ranks", 3, zero),
                    ("2x2", 4, model_parallel([2, 2], ROWS_THEN_COLUMNS))], {"TESSERA_COMM": "mpi"})


def check_zero(bench):
    """The same weights and history under ZeRO 1, 2 and 3 on 2 and 3 ranks, and under ZeRO 3 on a mesh 2x2"""
    cases = [(f"stage {stage} on {ranks} ranks", ranks,
              {"class_name": "DataParallel", "config": {"zero": {"stage": stage, "axis": "batch"}}})
             for stage in (1, 2, 3) for ranks in (2, 3)]
    cases.append(("stage 3 on 2x2", 4, model_parallel([2, 2], COLUMNS_THEN_ROWS, zero={"stage": 3, "axis": "batch"})))
    run_all(bench, cases)


def check_twice(bench):
    """Two runs on one mesh write the same bytes of weights and the same numbers, checked or not"""
    for distribution, ranks in ((None, 3), (model_parallel([2, 2], COLUMNS_THEN_ROWS), 4)):
        config = mixed_config(bench, distribution)
        first = bench.train(config, ranks)
        second = bench.train(config, ranks, environment={"TESSERA_CHECK": "1"})
        expect(first.weights_bytes() == second.weights_bytes(), f"on {ranks} ranks the weights differ in bytes")
        expect(first.json("history.json") == second.json("history.json"), f"on {ranks} ranks the histories differ")
        losses = [[event["loss"] for event in run.events("step")] for run in (first, second)]
        expect(losses[0] == losses[1], f"on {ranks} ranks the losses of the steps differ: {losses}")


def initial_config(bench, distribution):
    """Keeps the initial weights: with inference's statistics and without a step they stay what they were."""
    config = mixed_config(bench, distribution, learning_rate=0.0)
    config["fit"]["epochs"] = 1
    for layer in config["model"]["config"]["layers"]:
        if layer["class_name"] == "BatchNormalization":
            layer["config"]["trainable"] = False
    return config


def check_initial_weights(bench):
    """Initial weights are the same bytes on every mesh"""
    want = bench.train(initial_config(bench, None)).weights_bytes()
    for shape, layouts in MESHES[:4]:
        ranks = shape[0] * shape[1]
        got = bench.train(initial_config(bench, model_parallel(shape, layouts)), ranks).weights_bytes()
        expect(got == want, f"mesh {shape}: other initial weights than on one rank")
    zero = {"class_name": "DataParallel", "config": {"zero": {"stage": 3, "axis": "batch"}}}
    expect(bench.train(initial_config(bench, zero), 3).weights_bytes() == want, "ZeRO 3 on 3 ranks: other initial weights")


def check_dropout_masks(bench):
    """Dropout draws the same mask bit for bit on every mesh: seen through a gradient that is the mask"""
    # y = w * dropout(1) per element with SGD: the weights count how often each element was kept.
    width, rows = 24, 7
    path = bench.new_path("ones.safetensors")
    write_safetensors(path, {"x": (FLOAT, [rows, width], [1.0] * (rows * width)),
                             "y": (FLOAT, [rows, width], [float(1 << row) for row in range(rows) for _ in range(width)])})
    model = sequential("masks", [width], ("Dropout", {"name": "dropped", "rate": 0.5}),
                       ("Dense", {"name": "sum", "units": width, "use_bias": False, "kernel_initializer": "zeros"}))
    config = {
        "seed": 5,
        "model": model,
        "compile": {"optimizer": {"class_name": "SGD", "config": {"learning_rate": 1.0}}, "loss": "mean_squared_error"},
        "data": {"train": {"format": "safetensors", "path": str(path)}},
        "fit": {"epochs": 1, "batch_size": rows, "verbose": 0, "shuffle": False},
        "output": {"log_steps": 1},
    }
    # Row r has the target 2^r, so that the step of w[i][j] is 2/(rows*width) * sum of 2^(r+1) over rows that keep i.
    want = bench.train(config)
    _, kernel = want.weights()["masks/sum/kernel"]
    masks = [round(kernel[i * width] * rows * width / 4) for i in range(width)]
    kept = sum(bin(mask).count("1") for mask in masks)
    expect(len(set(masks)) > width // 2 and 0.3 < kept / (rows * width) < 0.7, f"these are no masks: {masks}")
    for ranks, distribution in ((3, None), (2, model_parallel([1, 2], {"masks/sum/kernel": ["model", None]})),
                                (4, model_parallel([2, 2], {"masks/sum/kernel": [None, "model"]})),
                                (3, model_parallel([1, 3], {"masks/dropped/output": [None, "model"]}))):
        run = bench.train({**config, **({"distribution": distribution} if distribution else {})}, ranks)
        _, other = run.weights()["masks/sum/kernel"]
        got = [round(other[i * width] * rows * width / 4) for i in range(width)]
        expect(got == masks, f"{ranks} ranks, {distribution}: rows that keep an element are {got}, on one rank {masks}")
