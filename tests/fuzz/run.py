"""``make fuzz``: atheris (libFuzzer for Python) on every target, each in a process of its own, its corpus kept.

    make fuzz ARGS="http1 protobuf --seconds 600"

Inputs that reach new code stay in ``.fuzz/<target>``, from where the next run goes on; an input that fails is left in
``.fuzz`` with libFuzzer's name for it. The seeds of ``corpus/`` are never changed. ``tally.json`` sums up, over all
runs, how many inputs each target has had. ``--keep`` packs what is in ``.fuzz`` into ``found/<target>.tar.xz``, with
which the first run elsewhere begins.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).parent
WORK = HERE.parents[1] / ".fuzz"
TALLY = HERE / "tally.json"
FOUND = HERE / "found"
_LONGEST = 4096
# Targets that look at each byte several times in Python: what they do with long inputs they do with short ones.
_SHORTER = {"calls": 256, "dump": 512, "heads": 512, "hpack": 256, "http1": 1024, "http2": 1024}
_MEMORY_MB = 2048
_TIMEOUT_S = 60  # by the wall clock: a starved process is no find, a hang is one after a minute as well
_INPUTS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the parsers.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all of them")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--runs", type=int, default=-1, help="inputs for each target, if they come before the seconds")
    parser.add_argument("--keep", action="store_true", help="no run: pack what was found into found/")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        fuzz(options.targets[0], options.seconds, options.runs)
    names = options.targets or sorted(path.name for path in (HERE / "corpus").iterdir())
    if options.keep:
        for name in names:
            print(f"{name:12} {keep(name):6,} inputs kept", flush=True)
        return 0
    failed = []
    for name in names:
        print(f"--- {name}", flush=True)
        failed += [] if watch(name, options.seconds, options.runs) else [name]
    tally = read_tally()
    for name in names:
        print(f"{name:12} {tally.get(name, 0):12,} inputs so far")
    print("failed: " + ", ".join(failed) if failed else f"{len(names)} targets, no find", flush=True)
    return 1 if failed else 0


def watch(name: str, seconds: int, runs: int) -> bool:
    """Run one target in a process of its own, show what it says and count its inputs. False when it found something."""
    command = [sys.executable, __file__, name, "--inside", f"--seconds={seconds}", f"--runs={runs}"]
    inputs = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            found = _INPUTS.match(line)
            inputs = int(found[1]) if found else inputs
    tally = read_tally()
    write_tally({**tally, name: tally.get(name, 0) + inputs})
    return run.returncode == 0


def found(name: str) -> dict[str, bytes]:
    """What earlier runs found, by libFuzzer's names."""
    archive = FOUND / f"{name}.tar.xz"
    if not archive.exists():
        return {}
    with tarfile.open(archive) as kept:
        return {entry.name: kept.extractfile(entry).read() for entry in kept}


def keep(name: str) -> int:
    """Pack the inputs of ``.fuzz/<name>`` that libFuzzer has left there, and those packed before; how many."""
    inputs = found(name) | {path.name: path.read_bytes() for path in (WORK / name).glob("*")}
    FOUND.mkdir(exist_ok=True)
    with tarfile.open(FOUND / f"{name}.tar.xz", "w:xz") as kept:
        for entry in sorted(inputs):
            about = tarfile.TarInfo(entry)
            about.size = len(inputs[entry])
            kept.addfile(about, io.BytesIO(inputs[entry]))
    return len(inputs)


def read_tally() -> dict[str, int]:
    """Target -> inputs of all runs."""
    return json.loads(TALLY.read_text()) if TALLY.exists() else {}


def write_tally(tally: Mapping[str, int]) -> None:
    TALLY.write_text(json.dumps(tally, indent=1, sort_keys=True) + "\n")


def compiled_modules() -> list[str]:
    """What of this package is no Python, as it is installed."""
    files = distribution("zerolayer").files or []
    return [".".join([*file.parent.parts, file.name.partition(".")[0]]) for file in files if file.suffix == ".so"]


def fuzz(name: str, seconds: int, runs: int) -> None:
    """Run one target; ends the process."""
    import atheris

    # Plain files only, but for what is compiled: atheris does not see into what an editable install's finder loads.
    compiled = {name: importlib.import_module(name) for name in compiled_modules()}
    for loaded in [module for module in sys.modules if module.partition(".")[0] == "zerolayer"]:
        del sys.modules[loaded]
    sys.modules.update(compiled)
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
    sys.path[:0] = [str(HERE.parents[1] / "src"), str(HERE.parent)]
    with atheris.instrument_imports(include=["zerolayer"]):
        from fuzz import targets
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    for entry, data in found(name).items():
        (folder / entry).write_bytes(data)
    arguments = [sys.argv[0], str(folder), str(HERE / "corpus" / name)]
    arguments += [f"-max_total_time={seconds}", f"-runs={runs}"]
    arguments += [
        f"-max_len={_SHORTER.get(name, _LONGEST)}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-timeout={_TIMEOUT_S}",
        "-print_final_stats=1",
    ]
    atheris.Setup([*arguments, f"-artifact_prefix={WORK}/{name}-"], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
