"""The ``zerolayer`` command: arguments only. Each command calls one function, imported when it is needed.

Exit codes: 0 done, 1 failed, 2 wrong usage or contract, 130 interrupted; those of ``pulse``: docs/pulse.md.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerolayer.argument_types import Commands, port

if TYPE_CHECKING:
    from zerolayer.contract import Effective

# Flags of `serve` and `contract`: (name, placeholder, help). Defaults are the contract's, so none is repeated here.
_FLAGS = (
    ("model", "PATH", "GGUF file, model folder, bundled model (smollm2) or hub name (org/name)"),
    ("host", "ADDRESS", "address to listen on; other than loopback needs --key-set, --client-ca or --insecure"),
    ("port", "PORT", "port of the API"),
    ("admin", "HOST:PORT", "address of /metrics, loopback only"),
    ("admin-unix", "PATH", "the admin's socket, which only this user may connect to; off = none"),
    ("slots", "N", "requests that run at once"),
    ("slot-tokens", "N", "tokens of prompt and answer together, per request"),
    ("engine", "KIND", "native, or mock:step_us=5000"),
    ("threads", "N", "compute threads; 0 = what affinity and the cgroup allow"),
    ("devices", "CORES", "sets of cores, as in 0-3,4-7; each further one is a node of its own"),
    ("peers", "URLS", "where other nodes are: http://host:port, dns://, dns+srv://, k8s:// or consul://, by commas"),
    ("address", "URL", "under which other nodes and clients reach this one"),
    ("node", "URL", "which of tenants.nodes, that share limits, this one is"),
    ("key-set", "FILE", "keyset.json of `zerolayer keys new`; with it every request needs a key"),
    ("node-key", "FILE", "a key of `zerolayer keys issue --node`, that lets this node in with others"),
    ("ledger", "FOLDER", "where a record of every request goes; off = nowhere"),
    ("traces", "URL", "OTLP collector that gets a span of each request, as in http://127.0.0.1:4318"),
    ("log-format", "FORMAT", "text or json, on stderr"),
    ("certificate", "FILE", "PEM certificate chain; with it the port speaks TLS 1.3 only"),
    ("key", "FILE", "PEM private key of the certificate"),
    ("client-ca", "FILE", "PEM authority; only clients whose certificate it signed may come"),
    ("unix", "PATH", "path of a further, local socket that only this user may connect to"),
    ("weights", "KIND", "exact = as in the file, int8 = one scale an output, auto = what suits file and processor"),
    ("cors", "ORIGIN", "browser origin that may call, as in https://example.org; may be repeated"),
)
_SWITCHES = ("insecure", "access-log")
_DEFAULTS = "Defaults, and settings without a flag: `zerolayer contract` prints them, docs/contract.md explains them."


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse ``arguments`` (default: the process's) and run the command; the exit code."""
    options = _parser().parse_args(arguments)
    from zerolayer.errors import ContractError, UsageError, ZerolayerError

    try:
        return int(options.run(options))
    except ZerolayerError as error:
        from zerolayer.observe.logs import escaped

        # A server's own words may be among it, and must not steer the terminal.
        print(f"zerolayer: {escaped(error.message)}\nzerolayer: more in {error.help}", file=sys.stderr)
        return 2 if isinstance(error, (ContractError, UsageError)) else 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output left, as in `zerolayer contract | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="zerolayer",
        description="An LLM inference server: from a client's bytes straight to the arithmetic.",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve = commands.add_parser(
        "serve", help="start the server", description="Start the server.", epilog=_DEFAULTS, allow_abbrev=False
    )
    _add_contract_flags(serve)
    serve.add_argument(
        "--takeover",
        metavar="PATH",
        nargs="?",
        const="",
        help="take the service over from the running server whose admin socket this is; default: that of --port",
    )
    serve.set_defaults(run=_serve)
    chat = commands.add_parser(
        "chat", help="ask a running server", description="Ask a running server.", allow_abbrev=False
    )
    _add_chat(chat)
    contract = commands.add_parser(
        "contract",
        help="print the effective contract",
        allow_abbrev=False,
        description="Print the effective contract as TOML, every value with its origin.",
        epilog="docs/contract.md explains each.",
    )
    _add_contract_flags(contract)
    contract.add_argument("--json", action="store_true", help="print JSON instead")
    contract.set_defaults(run=_contract)
    from zerolayer.check.arguments import add_checks

    add_checks(commands)
    _add_dashboards(commands)
    from zerolayer.cluster.k8s_command import add_k8s

    add_k8s(commands)
    from zerolayer.cluster.ray_command import add_ray

    add_ray(commands)
    from zerolayer.guard.auth.arguments import add_keys

    add_keys(commands)
    from zerolayer.guard.ledger.arguments import add_usage

    add_usage(commands)
    _add_deploy(commands)
    return parser


def _add_contract_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--contract", metavar="FILE", help="contract file; default contract.toml if it exists [ZEROLAYER_CONTRACT]"
    )
    for name, placeholder, text in _FLAGS:
        twin = "ZEROLAYER_" + name.upper().replace("-", "_")
        action = "append" if name == "cors" else "store"
        parser.add_argument(f"--{name}", metavar=placeholder, action=action, help=f"{text} [{twin}]")
    parser.add_argument(
        "--insecure", action="store_true", help="serve other machines without keys [ZEROLAYER_INSECURE]"
    )
    parser.add_argument(
        "--access-log", action="store_true", help="a line on stderr for each request [ZEROLAYER_ACCESS_LOG]"
    )


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="?", help="what to ask; without it, a conversation")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help="address of the server [ZEROLAYER_URL]; default http://127.0.0.1:PORT")
    where.add_argument("--port", type=port, help="port of a server on this machine; default 8000 [ZEROLAYER_PORT]")
    parser.add_argument(
        "--key-env",
        metavar="VARIABLE",
        default="ZEROLAYER_API_KEY",
        help="variable with the key; default ZEROLAYER_API_KEY",
    )
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="longest answer in tokens")
    parser.add_argument("--temperature", metavar="T", type=float, help="0 = always the likeliest token")
    parser.add_argument("--json", action="store_true", help="print one JSON object an answer, with the stages' times")
    parser.set_defaults(run=_chat)


def _add_dashboards(commands: Commands) -> None:
    text = "Write a Grafana dashboard, Prometheus recording and alert rules, and the rules' tests."
    dashboards = commands.add_parser(
        "dashboards", help="write dashboards and alerts", description=text, allow_abbrev=False
    )
    dashboards.add_argument("--out", metavar="FOLDER", default="deploy", help="where to; default deploy")
    dashboards.add_argument("--json", action="store_true", help="print the files' paths as JSON")
    dashboards.set_defaults(run=_dashboards)


def _add_deploy(commands: Commands) -> None:
    text = (
        "Put another model in the place of the one that a running server serves. It is loaded beside the old one in "
        "the same process; streams that run end on the old one. Exit code 1: the old one is served on, and why is told."
    )
    deploy = commands.add_parser("deploy", help="serve another model", description=text, allow_abbrev=False)
    names = "GGUF file, model folder, bundled model or hub name (org/name)"
    deploy.add_argument("--model", metavar="PATH", required=True, help=names)
    where = deploy.add_mutually_exclusive_group()
    where.add_argument("--port", metavar="PORT", help="port of the server; default 8000 [ZEROLAYER_PORT]")
    where.add_argument(
        "--socket", metavar="PATH", type=Path, help="its admin's Unix socket; default: found by the port"
    )
    deploy.add_argument("--contract", metavar="FILE", help="contract file; default contract.toml if it exists")
    deploy.add_argument("--json", action="store_true", help="print a JSON object a line, as things happen")
    deploy.set_defaults(run=_deploy)


def _given(options: argparse.Namespace) -> dict[str, str]:
    """The flags that have a value, by name."""
    flags = {name: getattr(options, name.replace("-", "_")) for name, _, _ in _FLAGS}
    flags["cors"] = None if options.cors is None else ",".join(options.cors)
    return {name: value for name, value in flags.items() if value is not None}


def _effective(options: argparse.Namespace) -> Effective:
    """The contract that these flags, this environment and the contract file make; warnings go to stderr."""
    from zerolayer.contract import find_file, load

    switches = {name: "true" for name in _SWITCHES if getattr(options, name.replace("-", "_"))}
    given = {**_given(options), **switches}
    effective = load(find_file(options.contract, os.environ, Path()), os.environ, given)
    for warning in effective.warnings:
        print(f"zerolayer: warning: {warning}", file=sys.stderr)
    return effective


def _serve(options: argparse.Namespace) -> int:
    effective = _effective(options)
    if len(effective.contract.engine.devices) > 1:
        if options.takeover is not None:
            from zerolayer.errors import UsageError

            raise UsageError("--takeover replaces one node; of several --devices, take over or restart each by itself.")
        from zerolayer.serve.parent import main as parent

        given = _given(options) | ({"contract": options.contract} if options.contract else {})
        return parent(effective, given, [f"--{name}" for name in _SWITCHES if getattr(options, name.replace("-", "_"))])
    from zerolayer.serve.command import main as serve

    return serve(effective, takeover=options.takeover)


def _contract(options: argparse.Namespace) -> int:
    from zerolayer.contract import to_json, to_toml

    effective = _effective(options)
    print(to_json(effective).decode() if options.json else to_toml(effective), end="\n" if options.json else "")
    return 0


def _chat(options: argparse.Namespace) -> int:
    from zerolayer.client.terminal import ChatOptions, chat

    return chat(
        ChatOptions(
            url=_server_url(options, os.environ),
            text=options.text,
            system=options.system,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            json=options.json,
            key=os.environ.get(options.key_env, ""),
        )
    )


def _deploy(options: argparse.Namespace) -> int:
    from zerolayer.serve.deploy.command import admin_of, deploy

    place = options.socket or admin_of(options.contract, options.port)
    return deploy(options.model, place, as_json=options.json)


def _dashboards(options: argparse.Namespace) -> int:
    from zerolayer.observe.dashboard_files import as_json, write

    told = write(options.out)
    print(as_json(options.out) if options.json else "\n".join(told))
    return 0


def _server_url(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Flags before environment; within each, the URL before the port."""
    if options.url or options.port:
        return str(options.url or f"http://127.0.0.1:{options.port}")
    return environ.get("ZEROLAYER_URL") or f"http://127.0.0.1:{environ.get('ZEROLAYER_PORT') or 8000}"


class _Parser(argparse.ArgumentParser):
    """Commands have it too: each names what it does not know itself, and what is like it."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Nothing unknown is left over; whoever names no command where there are some gets the list of them."""
        given = list(sys.argv[1:] if args is None else args)
        if not given and self._subparsers is not None:
            self.print_help(sys.stderr)
            self.exit(2)
        found, strangers = super().parse_known_args(given, namespace)
        if strangers:
            word = strangers[0].partition("=")[0]
            near = difflib.get_close_matches(word, self._option_string_actions, n=1)
            self.error(f"it does not take {word}" + (f"; did you mean {near[0]}?" if near else ""))
        return found, []


class _Help(argparse.HelpFormatter):
    """Of the commands no name has a line of its own: argparse forgets that they are indented."""

    def add_argument(self, action: argparse.Action) -> None:
        """With room for one indent more."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - see argument_types.Commands
            self._action_max_length += 2


class _Version(argparse.Action):
    """``--version``, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import zerolayer

        print(f"zerolayer {zerolayer.__version__}")
        parser.exit()
