"""The plan is what runs: the same JSON before and after, and the collectives that a layout costs."""
import json

from equivalence import COLUMNS_THEN_ROWS, MESHES, ROWS_THEN_COLUMNS, mixed_config
from support import expect, mlp_data, model_parallel, sequential


def plan(bench, config, ranks, rank=0):
    done = bench.command(1, "plan", "--config", bench.write_config(config), "--ranks", ranks, "--rank", rank,
                         "--format", "json")
    return json.loads(done.expect_status(0).stdout)


def pair_config(bench, distribution, trainable=(True, True)):
    """Two Dense layers and an output layer that stays whole."""
    names = ("wide", "narrow")
    layers = [("Dense", {"name": name, "units": units, "activation": "relu", "trainable": learns})
              for name, units, learns in zip(names, (16, 6), trainable)]
    return {
        "model": sequential("pair", [6], *layers, ("Dense", {"name": "classes", "units": 3})),
        "distribution": distribution,
        "compile": {"optimizer": "sgd", "loss": {"class_name": "SparseCategoricalCrossentropy",
                                                 "config": {"from_logits": True}}},
        "data": {"train": {"format": "safetensors", "path": mlp_data(bench)}},
        "fit": {"epochs": 1, "batch_size": 8, "verbose": 0},
    }


PAIR = {"pair/wide/kernel": [None, "model"], "pair/wide/bias": ["model"], "pair/narrow/kernel": ["model", None]}


def of_phase(plan_json, phase):
    return [c for c in plan_json["collectives"] if c["phase"] == phase]


def check_same_plan(bench):
    """plan.json of a run equals what trainer plan printed before, on one rank and on meshes, with ZeRO and without"""
    zero = {"class_name": "DataParallel", "config": {"zero": {"stage": 2, "axis": "batch"}}}
    for ranks, distribution in ((1, None), (3, None), (2, zero), (4, model_parallel([2, 2], COLUMNS_THEN_ROWS)),
                                (3, model_parallel([1, 3], ROWS_THEN_COLUMNS))):
        config = mixed_config(bench, distribution)
        before = plan(bench, config, ranks)
        run = bench.train(config, ranks, environment={"TESSERA_CHECK": "1"})
        ran = run.json("plan.json")
        differing = [key for key in before.keys() | ran.keys() if before.get(key) != ran.get(key)]
        expect(not differing, f"{ranks} ranks, {distribution}: {differing} differ between plan and run")


def check_hash(bench):
    """All ranks of a job have the same plan hash; another mesh and another batch have others"""
    config = mixed_config(bench, model_parallel([2, 3], COLUMNS_THEN_ROWS))
    hashes = {plan(bench, config, 6, rank)["hash"] for rank in range(6)}
    expect(len(hashes) == 1, f"the six ranks have the hashes {hashes}")
    others = {plan(bench, mixed_config(bench, model_parallel([3, 2], COLUMNS_THEN_ROWS)), 6)["hash"]}
    config["fit"]["batch_size"] = 12
    others.add(plan(bench, config, 6)["hash"])
    expect(len(others - hashes) == 2, "another mesh or another batch size has the same hash")


def check_parts_cover(bench):
    """The parts of a variable that the ranks' plans list cover it exactly once per replica"""
    for shape, layouts in MESHES[1:4]:
        ranks = shape[0] * shape[1]
        config = mixed_config(bench, model_parallel(shape, layouts))
        plans = [plan(bench, config, ranks, rank) for rank in range(ranks)]
        for index, variable in enumerate(plans[0]["variables"]):
            parts = [p["variables"][index] for p in plans]
            boxes = {(tuple(part["offset"]), tuple(part["local_shape"])) for part in parts}
            held = sum(volume(box[1]) for box in boxes)
            expect(held == volume(variable["shape"]), f"{variable['path']} on {shape}: parts {sorted(boxes)}")


def volume(shape):
    product = 1
    for size in shape:
        product *= size
    return product


def check_pair_costs_one_all_reduce(bench):
    """A column-then-row pair of Dense layers costs exactly one forward all-reduce"""
    got = of_phase(plan(bench, pair_config(bench, model_parallel([1, 2], PAIR)), 2), "forward")
    expect([(c["kind"], c["axes"]) for c in got] == [("all_reduce", ["model"])], f"forward collectives: {got}")
    expect(got[0]["elements"] == 8 * 6, f"it carries {got[0]['elements']} elements, the output has 8 x 6")


def check_frozen_variables_cost_nothing(bench):
    """Frozen variables take part in no collective of the backward phase, trainable ones in one each"""
    data_parallel = {"class_name": "DataParallel", "config": {}}
    for trainable in ((True, True), (False, True), (False, False)):
        got = of_phase(plan(bench, pair_config(bench, data_parallel, trainable), 4), "backward")
        named = sorted(path for c in got for path in c["for"])
        learning = [n for n, learns in zip(("wide", "narrow"), trainable) if learns] + ["classes"]
        want = sorted(f"pair/{name}/{part}" for name in learning for part in ("kernel", "bias"))
        expect(named == want, f"trainable {trainable}: the backward phase reduces {named}, expected {want}")
        sizes = {"wide": 6 * 16 + 16, "narrow": 16 * 6 + 6, "classes": 6 * 3 + 3}
        elements = sum(c["elements"] for c in got)
        expect(elements == sum(sizes[name] for name in learning), f"trainable {trainable}: {elements} elements")


def check_column_only_backward(bench):
    """Frozen cut layers cost no backward collective of their own on a mesh of models"""
    got = of_phase(plan(bench, pair_config(bench, model_parallel([1, 2], PAIR), (False, False)), 2), "backward")
    expect(got == [], f"backward collectives: {got}")
