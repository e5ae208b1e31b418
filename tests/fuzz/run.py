"""``make fuzz``: atheris (libFuzzer for Python) on every target, each in a process of its own, its corpus kept.

    make fuzz ARGS="http1 protobuf --seconds 600"

Inputs that reach new code stay in ``.fuzz/<target>``, from where the next run goes on; an input that fails is left in
``.fuzz`` with libFuzzer's name for it. The seeds of ``corpus/`` are never changed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
WORK = HERE.parents[1] / ".fuzz"
_LONGEST = 4096
_MEMORY_MB = 2048
_TIMEOUT_S = 10


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the parsers.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all of them")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--runs", type=int, default=-1, help="inputs for each target, if they come before the seconds")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        fuzz(options.targets[0], options.seconds, options.runs)
    names = options.targets or sorted(path.name for path in (HERE / "corpus").iterdir())
    failed = []
    for name in names:
        print(f"--- {name}", flush=True)
        command = [sys.executable, __file__, name, "--inside"]
        given = [f"--seconds={options.seconds}", f"--runs={options.runs}"]
        if subprocess.run([*command, *given], check=False).returncode:
            failed.append(name)
    print("failed: " + ", ".join(failed) if failed else f"{len(names)} targets, no find", flush=True)
    return 1 if failed else 0


def fuzz(name: str, seconds: int, runs: int) -> None:
    """Run one target; ends the process."""
    import atheris

    # Plain files only: atheris does not see into modules that an editable install's own finder loads.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
    sys.path[:0] = [str(HERE.parents[1] / "src"), str(HERE)]
    with atheris.instrument_imports(include=["zerolayer"]):
        import targets
    kept = WORK / name
    kept.mkdir(parents=True, exist_ok=True)
    arguments = [sys.argv[0], str(kept), str(HERE / "corpus" / name), f"-max_total_time={seconds}", f"-runs={runs}"]
    arguments += [
        f"-max_len={_LONGEST}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-timeout={_TIMEOUT_S}",
        "-print_final_stats=1",
    ]
    atheris.Setup([*arguments, f"-artifact_prefix={WORK}/{name}-"], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
