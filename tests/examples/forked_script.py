"""Run scripts in forks of this process, which has imported what they import: a start takes no seconds.

Each line of the input is a job, {"argv": ["script.py", ...], "output": "file"}. For each, one line says the
process id as soon as it runs, and one the exit code when it has ended.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import datasets  # noqa: F401
import torch._dynamo  # noqa: F401
import transformers.models.byt5  # noqa: F401
from transformers import get_cosine_schedule_with_warmup  # noqa: F401

from tdstream import loader  # noqa: F401


def run(argv: list[str], output: str) -> int:
    """Run a script as Python does, all that it prints going into a file; return its exit code."""
    with Path(output).open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    sys.argv, sys.path[0] = argv, str(Path(argv[0]).parent)
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Do the jobs, one after another."""
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            code = run(**job)
            sys.stdout.flush()
            os._exit(code)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # to take down what was imported would take as long as a start
