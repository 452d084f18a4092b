"""Runs the tests for scripts/test, which says what the parts are, and counts them."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TESSERA_BUILD", "build"))
TRAINER = BUILD / "trainer/trainer"
CORES = len(os.sched_getaffinity(0))

# Acceptance groups, and the layers that the trainer does not have: cases with these are left out.
GROUPS = ["core", "layers", "optimizers", "losses", "schedules", "metrics", "regularizers_constraints", "callbacks",
          "parallel", "layoutmap", "distribution", "config", "data", "weights", "console", "mixed"]
WITHOUT = "Conv|Pool|Attention|RNN|LSTM|GRU|Bidirectional|TimeDistributed|UpSampling|ZeroPadding|Cropping"


class Tally:
    """What has passed and failed so far."""

    def __init__(self):
        self.passed, self.failed = 0, []

    def add(self, name, passed, failed=0, detail=""):
        self.passed += passed
        self.failed += [name] * failed
        counts = f": {passed} passed, {failed} failed" if passed + failed != 1 else ""
        print(f"{'FAIL' if failed else 'ok  '} {name}{counts}", flush=True)
        if failed and detail:
            print("     " + detail.strip()[-4000:].replace("\n", "\n     "), flush=True)

    def check(self, name, good, detail=""):
        self.add(name, int(good), int(not good), detail)


def run(command, seconds=600, **more):
    """Output and exit status of a command; 124 when it ran too long."""
    try:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=seconds, **more)
        return done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        return f"no end within {seconds} s\n{error.stdout or ''}", 124


def counted(tally, name, output, status):
    """Adds what a program counted that ends with "N passed, N failed"; lines of what passed begin with "ok "."""
    counts = re.search(r"^(\d+) passed, (\d+) failed\n$", output, re.M)
    passed, failed = (int(n) for n in counts.groups()) if counts else (0, 1)
    lines = [line for line in output.splitlines() if not line.startswith("ok ")]
    tally.add(name, passed, failed or int(status != 0), "\n".join(lines))


def build(folder, targets=()):
    """Builds targets, or all."""
    print(f"building {folder}", flush=True)
    if not (ROOT / folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(folder), "--buildtype=release"], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", str(folder), "--quiet", *targets], cwd=ROOT, check=True)


def count_cases(output):
    """(test cases, failed ones) of what Catch2 printed; the ranks of one job run the same cases."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)  # mpirun's ranks have terminals, and so colours
    all_good = [int(n) for n in re.findall(r"All tests passed \(.* in (\d+) test cases?\)", output)]
    mixed = re.findall(r"^test cases: +(\d+) \|(.*)$", output, re.M)
    failed = [int(n) for _, rest in mixed for n in re.findall(r"(\d+) failed", rest)]
    return max(all_good + [int(n) for n, _ in mixed], default=0), max(failed, default=0)


def meson_tests(tally, folder, selection, prefix="", environment=()):
    """Runs meson's tests and counts the test cases inside them; a program that prints none counts as one."""
    log = ROOT / folder / "meson-logs/counted.json"
    log.unlink(missing_ok=True)
    output, _ = run(["meson", "test", "-C", folder, "--no-rebuild", "--num-processes", CORES, "--logbase", "counted",
                     "--timeout-multiplier", 4, *selection], 1500, env={**os.environ, **dict(environment)})
    if not log.exists():
        tally.check(prefix + "meson test", False, output)
        return
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        text = entry.get("stdout", "") + entry.get("stderr", "")
        cases, failed = count_cases(text)
        if entry["result"] != "OK" or "No tests ran" in text:
            failed = max(failed, 1)
        tally.add(prefix + entry["name"], max(cases, 1) - failed, failed, text)


def unit(tally):
    build(BUILD)
    meson_tests(tally, BUILD, [])
    counted(tally, "includes", *run(["scripts/check_includes"]))


def without_comments(text):
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda m: m.group(1) or "", text)


def configs(tally):
    build(BUILD, ["trainer/trainer"])
    import jsonschema
    text, status = run([TRAINER, "schema"])
    tally.check("schema is printed", status == 0, text)
    validator = jsonschema.Draft7Validator(json.loads(text))
    jsonschema.Draft7Validator.check_schema(validator.schema)
    wrong = {"model": "m.json", "fit": {"epoch": 1}, "compile": {"loss": 3}}
    tally.check("schema refuses what is wrong", len(list(validator.iter_errors(wrong))) == 2)
    text, _ = run([TRAINER, "schema", "--format", "markdown"])
    tally.check("docs/config.md is what the trainer prints", text == (ROOT / "docs/config.md").read_text(),
                "Run: trainer schema --format markdown > docs/config.md")
    quoted_plans(tally)
    for file in sorted([*ROOT.glob("configs/*.json"), *ROOT.glob("scripts/bench_configs/*.json")]):
        config = json.loads(without_comments(file.read_text()))
        found = "\n".join(f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(config))
        tally.check(f"{file.relative_to(ROOT)} follows the schema", not found, found)
    for file in sorted(ROOT.glob("configs/*.json")):
        name = file.relative_to(ROOT)
        text, status = run([TRAINER, "plan", "--config", file, "--ranks", 4])
        tally.check(f"{name} is planned for 4 ranks", status == 0, text)
        with tempfile.TemporaryDirectory() as folder:
            text, status = run(["mpirun", "-np", 2, TRAINER, "--config", file, "--output", folder + "/run",
                                "--set", "fit.epochs=1"], 120)
            good = status == 0 and "loss: " in text and Path(folder, "run/weights.safetensors").exists()
            tally.check(f"{name} runs on 2 ranks", good, text)


def quoted_plans(tally):
    """What README.md and docs/ show of a plan is what the trainer prints, but for the hash and for what "..." leaves out."""
    text, _ = run([TRAINER, "plan", "--config", "configs/digits_model_parallel.json", "--ranks", 4])
    printed = re.sub(r"^plan \w{16}", "plan HASH", text).splitlines()
    for name in ("README.md", "docs/distribution.md"):
        blocks = re.findall(r"^```\n(?:\$ \S*trainer plan .*\n)?((?:plan \w{16}:|collectives of|memory of rank)[^`]*)```$",
                            (ROOT / name).read_text(), re.M)
        lines = [re.sub(r"^plan \w{16}", "plan HASH", line) for line in "".join(blocks).splitlines() if line.strip() != "..."]
        strange = [line for line in lines if line not in printed
                   and not (line.endswith(" ...") and any(p.startswith(line[:-3]) for p in printed))]
        tally.check(f"{name} shows the plan that is printed", bool(lines) and not strange, "\n".join(strange) or "no plan found")


def examples(tally):
    build(BUILD)
    programs = sorted(file.stem for file in ROOT.glob("examples/*.cpp"))
    tally.check("there are example programs", bool(programs))
    for name in programs:
        for ranks in (1, 2, 4):
            text, status = run(["mpirun", "-np", ranks, BUILD / "examples" / name], 120)
            tally.check(f"example {name} on {ranks} ranks", status == 0 and bool(text), text)


def acceptance(tally):
    build(BUILD, ["trainer/trainer"])
    for group in GROUPS:
        text, status = run(["tests/acceptance/accept", f"tests/acceptance/{group}", "--trainer", TRAINER,
                            "--without", WITHOUT, "--jobs", min(2, CORES)], 1500)
        counted(tally, f"acceptance {group}", text, status)


def system(tally):
    build(BUILD, ["trainer/trainer"])
    counted(tally, "system", *run(["python3", "tests/system/run.py", "--trainer", TRAINER], 1200))


def sanitize(tally):
    folder = Path(f"{BUILD}-sanitize")
    subprocess.run(["scripts/setup_instrumented", folder], cwd=ROOT, check=True)
    tests = json.loads((ROOT / folder / "meson-info/intro-tests.json").read_text())
    programs = {Path(t["cmd"][0]) for t in tests if not any(s.endswith(":mpi") for s in t["suite"])}
    build(folder, sorted(str(p.relative_to(ROOT / folder)) for p in programs))
    # Looking for uses of the stack after return doubles the time; long traces of allocations take a third of it.
    meson_tests(tally, folder, ["--no-suite", "mpi"], "sanitized ",
                {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0:malloc_context_size=5",
                 "UBSAN_OPTIONS": "print_stacktrace=1"}.items())


def fuzz(tally):
    seconds = os.environ.get("TESSERA_FUZZ_SECONDS", "20")
    text, status = run(["scripts/fuzz", seconds], 1200)
    passed = len(re.findall(r"\bfuzz: \w+: \d+ inputs", text))
    failed = max(len(re.findall(r"\bfuzz: \w+: FAILED", text)), int(status != 0 or passed == 0))
    tally.add(f"fuzz, {seconds} s each", passed, failed, text)


PARTS = {part.__name__: part for part in (unit, configs, examples, acceptance, system, sanitize, fuzz)}


def main(names):
    unknown = [name for name in names if name not in PARTS and name != "all"]
    if unknown:
        print(f"scripts/test: unknown part {unknown[0]}; there are {', '.join(PARTS)}, all", file=sys.stderr)
        return 2
    tally = Tally()
    for name, part in PARTS.items():
        if name not in names and "all" not in names:
            continue
        print(f"== {name}", flush=True)
        start = time.monotonic()
        try:
            part(tally)
        except (subprocess.CalledProcessError, OSError, ValueError) as error:
            tally.check(name, False, str(error))
        print(f"-- {name}: {time.monotonic() - start:.0f} s", flush=True)
    if tally.failed:
        print("failed: " + ", ".join(dict.fromkeys(tally.failed)))
    print(f"{tally.passed} passed, {len(tally.failed)} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
