"""What the system tests share: launching the trainer, small models and data, comparing what runs wrote."""
import array
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

# Containers run as root and have fewer cores than a test has ranks.
MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
PATIENCE = 120  # seconds after which a run counts as hanging
FLOAT = "F32"
INTEGER = "I32"
TYPE_CODES = {FLOAT: "f", INTEGER: "i", "I64": "q", "F64": "d", "U8": "B"}


class Failed(Exception):
    """A check that does not hold; the text says why."""


def expect(condition, message):
    if not condition:
        raise Failed(message)


class Result:
    """What one command left: status, output, seconds, folder of the run."""

    def __init__(self, status, stdout, stderr, seconds, folder):
        self.status, self.stdout, self.stderr = status, stdout, stderr
        self.seconds, self.folder = seconds, folder

    def last_lines(self, count=20):
        return "\n".join(self.stderr.splitlines()[-count:])

    def describe(self):
        return f"exit {self.status} after {self.seconds:.1f} s; stderr ends:\n{self.last_lines()}"

    def expect_status(self, *statuses):
        expect(self.status in statuses, f"expected exit {' or '.join(map(str, statuses))}, got {self.describe()}")
        return self

    def json(self, name):
        return json.loads((self.folder / name).read_text())

    def weights(self):
        return read_safetensors(self.folder / "weights.safetensors")

    def weights_bytes(self):
        return (self.folder / "weights.safetensors").read_bytes()

    def events(self, kind):
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]


class Bench:
    """A temporary folder and the trainer: what each check gets."""

    def __init__(self, trainer):
        self.trainer = str(Path(trainer).resolve())
        self.folder = Path(tempfile.mkdtemp(prefix="tessera-system-"))
        self.counter = 0
        self.cache = {}

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_path(self, name):
        self.counter += 1
        return self.folder / f"{self.counter:03d}_{name}"

    def write_config(self, config):
        path = self.new_path("config.json")
        path.write_text(json.dumps(config))
        return path

    def argv(self, ranks, arguments):
        launcher = ["mpirun", "-np", str(ranks)] if ranks > 1 else []
        return launcher + [self.trainer] + [str(a) for a in arguments]

    def environment(self, more=None):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "SLURM_", "TESSERA_"))}
        return {**inherited, **MPI_SETTINGS, "NO_COLOR": "1", **(more or {})}

    def command(self, ranks, *arguments, environment=None, stdin=None, folder=None):
        """Runs one command to its end."""
        begin = time.monotonic()
        process = subprocess.Popen(self.argv(ranks, arguments), env=self.environment(environment), text=True,
                                   stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder)
        try:
            texts = process.communicate(stdin, PATIENCE)
        except subprocess.TimeoutExpired as error:
            where = self.stacks()
            self.kill(process)
            texts = process.communicate()
            raise Failed(f"{' '.join(map(str, arguments))} on {ranks} ranks: no end within {PATIENCE} s\n{texts}\n"
                         f"{where}") from error
        return Result(process.returncode, *texts, time.monotonic() - begin, folder)

    def train(self, config, ranks=1, *arguments, output=None, environment=None):
        """Trains a config (an object) in a folder of its own and expects success."""
        return self.try_train(config, ranks, *arguments, output=output, environment=environment).expect_status(0)

    def try_train(self, config, ranks=1, *arguments, output=None, environment=None):
        folder = output or self.new_path("run")
        return self.command(ranks, "train", "--config", self.write_config(config), "--output", folder, *arguments,
                            environment=environment, folder=folder)

    def start(self, config, ranks, *arguments, output=None):
        """Starts a training and returns (process, folder); its streams go to files in that folder's name."""
        folder = output or self.new_path("run")
        argv = self.argv(ranks, ["train", "--config", self.write_config(config), "--output", folder, *arguments])
        streams = [open(f"{folder}.{name}", "w") for name in ("stdout", "stderr")]
        process = subprocess.Popen(argv, env=self.environment(), stdin=subprocess.DEVNULL, stdout=streams[0],
                                   stderr=streams[1], cwd=self.folder)
        for stream in streams:
            stream.close()
        return process, folder

    def finish(self, process, folder, patience=PATIENCE):
        """Waits for a process of `start`."""
        begin = time.monotonic()
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired as error:
            where = self.stacks()
            self.kill(process)
            raise Failed(f"the job did not end within {patience} s\n{where}") from error
        texts = [Path(f"{folder}.{name}").read_text() for name in ("stdout", "stderr")]
        return Result(status, *texts, time.monotonic() - begin, folder)

    def processes(self):
        """Ids of the trainers that run out of this test's folder, in the order of their ranks."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if arguments[0].decode() != self.trainer or not any(str(self.folder) in a.decode() for a in arguments):
                    continue
                environment = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
            except (OSError, UnicodeDecodeError):
                continue
            found.append((int(environment.get(b"OMPI_COMM_WORLD_RANK", b"0")), int(entry.name)))
        return [pid for _, pid in sorted(found)]

    def kill(self, process):
        """Ends a launcher and its ranks at once."""
        for pid in self.processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        process.kill()
        process.wait()

    def stacks(self):
        """Where the ranks of a job that hangs are, as far as a debugger is there to tell."""
        if not shutil.which("gdb"):
            return "(gdb is not installed)"
        commands = [["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 20"] for pid in self.processes()]
        return "\n".join(subprocess.run(c, capture_output=True, text=True).stdout for c in commands)

    def expect_no_processes(self):
        deadline = time.monotonic() + 3
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        expect(not self.processes(), f"processes left behind: {self.processes()}")


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < deadline, f"waited {seconds} s for {what}")
        time.sleep(0.02)


# ---- files ----

def read_safetensors(path):
    """{name: (shape, values)}."""
    raw = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = array.array(TYPE_CODES[entry["dtype"]])
        values.frombytes(raw[8 + size + begin:8 + size + end])
        tensors[name] = (entry["shape"], values)
    return tensors


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, values)}."""
    header, body = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        data = array.array(TYPE_CODES[dtype], values).tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_npy(path):
    raw = Path(path).read_bytes()
    (size,) = struct.unpack("<H", raw[8:10])
    header = raw[10:10 + size].decode()
    expect("'<f4'" in header, f"{path}: not float32: {header}")
    shape = [int(n) for n in header.split("(")[1].split(")")[0].split(",") if n.strip()]
    values = array.array("f")
    values.frombytes(raw[10 + size:])
    return shape, values


# ---- comparisons ----

def difference(got, want):
    """The largest |got - want| / (1 + |want|); None against None is 0."""
    if (got is None) != (want is None):
        return float("inf")
    return 0.0 if got is None else abs(got - want) / (1 + abs(want))


def expect_same_weights(got, want, tolerance):
    expect(got.keys() == want.keys(), f"other variables: {sorted(got.keys() ^ want.keys())}")
    for name, (shape, values) in want.items():
        expect(got[name][0] == shape, f"{name}: shape {got[name][0]}, expected {shape}")
        worst = max((difference(g, w) for g, w in zip(got[name][1], values)), default=0.0)
        expect(worst <= tolerance, f"{name}: differs by {worst:.2e}, at most {tolerance:g}")


def expect_same_history(got, want, tolerance):
    expect(got.keys() == want.keys(), f"history has {sorted(got)}, expected {sorted(want)}")
    for name, values in want.items():
        expect(len(got[name]) == len(values), f"{name}: {len(got[name])} epochs, expected {len(values)}")
        worst = max(difference(g, w) for g, w in zip(got[name], values))
        expect(worst <= tolerance, f"{name}: {got[name]}, expected {values} within {tolerance:g}")


# ---- models and data ----

class Graph:
    """Builds the JSON of a Functional model, layer by layer."""

    def __init__(self, name="net"):
        self.name, self.layers, self.inputs, self.outputs = name, [], [], []

    def input(self, name, shape, dtype="float32"):
        self.layers.append({"class_name": "InputLayer", "name": name, "inbound_nodes": [],
                            "config": {"name": name, "batch_shape": [None, *shape], "dtype": dtype}})
        self.inputs.append([name, 0, 0])
        return name

    def layer(self, class_name, name, source, **config):
        def tensor(node):
            return {"class_name": "__keras_tensor__", "config": {"keras_history": [node, 0, 0]}}
        arguments = [[tensor(s) for s in source]] if isinstance(source, list) else [tensor(source)]
        self.layers.append({"class_name": class_name, "name": name, "config": {"name": name, **config},
                            "inbound_nodes": [{"args": arguments, "kwargs": {}}]})
        return name

    def output(self, name):
        self.outputs.append([name, 0, 0])
        return self

    def json(self):
        return {"class_name": "Functional",
                "config": {"name": self.name, "layers": self.layers, "input_layers": self.inputs,
                           "output_layers": self.outputs}}


def sequential(name, inputs, *layers):
    """layers: (class_name, config) pairs."""
    first = {"class_name": "InputLayer", "config": {"name": "input", "batch_shape": [None, *inputs], "dtype": "float32"}}
    rest = [{"class_name": class_name, "config": config} for class_name, config in layers]
    return {"class_name": "Sequential", "config": {"name": name, "layers": [first, *rest]}}


def mlp_data(bench, rows=35, features=6, classes=3, seed=5):
    """Blobs: one a class. The path of a safetensors file with x and y."""
    key = ("mlp_data", rows, features, classes, seed)
    if key not in bench.cache:
        source = random.Random(seed)
        labels = [source.randrange(classes) for _ in range(rows)]
        x = [source.gauss((label == f % classes) * 1.5, 1.0) for label in labels for f in range(features)]
        path = bench.new_path("data.safetensors")
        write_safetensors(path, {"x": (FLOAT, [rows, features], x), "y": (INTEGER, [rows], labels)})
        bench.cache[key] = str(path)
    return bench.cache[key]


def model_parallel(shape, layout_map, **more):
    return {"class_name": "ModelParallel",
            "config": {"device_mesh": {"shape": shape, "axis_names": ["batch", "model"]}, "layout_map": layout_map,
                       "batch_dim_name": "batch", **more}}
