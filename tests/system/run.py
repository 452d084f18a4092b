#!/usr/bin/env python3
"""Runs the trainer as a user does, under mpirun, and checks what comes out: run.py --trainer PATH [--only TEXT].

A check is a function with a docstring: its name in the list. --only runs those whose name or function contains TEXT.
"""
import argparse
import inspect
import sys
import time
import traceback

import commands
import equivalence
import faults
import memory
import plans
import resume
from support import Bench, Failed

MODULES = [commands, equivalence, plans, resume, faults, memory]


def checks():
    for module in MODULES:
        for name, function in vars(module).items():
            if name.startswith("check_") and inspect.isfunction(function):
                yield f"{module.__name__}.{name[6:]}", function


def run_check(function, bench):
    """The reason of a failure, or nothing."""
    try:
        function(bench)
        return None
    except Failed as failure:
        return str(failure)
    except Exception:  # a check that breaks is a check that fails, and the others still run
        return traceback.format_exc()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", required=True, help="the program to test")
    parser.add_argument("--only", default="", help="part of the name of the checks to run")
    options = parser.parse_args()
    passed = failed = 0
    bench = Bench(options.trainer)
    try:
        for name, function in checks():
            about = " ".join(function.__doc__.split())
            if options.only not in name and options.only not in about:
                continue
            begin = time.monotonic()
            reason = run_check(function, bench)
            seconds = time.monotonic() - begin
            print(f"{'ok' if reason is None else 'FAILED'} {name} ({seconds:.1f} s): {about}", flush=True)
            if reason is not None:
                print("    " + reason.replace("\n", "\n    "), flush=True)
            passed, failed = passed + (reason is None), failed + (reason is not None)
    finally:
        bench.close()
    if passed + failed == 0:
        print(f'no check is named "{options.only}"', file=sys.stderr)
        return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
