"""What is asked of Kubernetes."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from zerolayer import cli
from zerolayer.cluster.manifests import KEY_FILES, Fleet, manifests
from zerolayer.cluster.sources import sources
from zerolayer.cluster.yaml_text import documents
from zerolayer.contract import load
from zerolayer.errors import UsageError
from zerolayer.serve.fleet import node_key

IMAGE = "registry.example/zerolayer:1"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["k8s", "--image", IMAGE, *arguments]) == 0
    return capsys.readouterr().out


def stateful_set(text: str) -> dict:
    return next(each for each in yaml.safe_load_all(text) if each["kind"] == "StatefulSet")


def test_a_headless_service_names_the_pods_that_the_stateful_set_makes(capsys) -> None:
    service, budget, nodes = yaml.safe_load_all(printed(capsys))
    assert service["spec"]["clusterIP"] == "None"
    assert nodes["spec"]["serviceName"] == service["metadata"]["name"]
    labels = nodes["spec"]["template"]["metadata"]["labels"]
    assert labels == service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"]
    assert nodes["spec"]["selector"]["matchLabels"] == labels


def test_yaml_and_json_say_the_same(capsys) -> None:
    listed = json.loads(printed(capsys, "--json"))
    assert (listed["kind"], listed["items"]) == ("List", list(yaml.safe_load_all(printed(capsys))))


def test_flags_reach_every_place_that_they_concern(capsys) -> None:
    flags = ["--name", "llm", "--namespace", "prod", "--replicas", "2", "--port", "9000", "--cpu", "500m"]
    text = printed(capsys, *flags, "--memory", "2Gi", "--model", "smollm2", "--slots", "4")
    service, _, nodes = yaml.safe_load_all(text)
    container = nodes["spec"]["template"]["spec"]["containers"][0]
    assert {each["metadata"]["namespace"] for each in (service, nodes)} == {"prod"}
    assert nodes["spec"]["replicas"] == 2
    assert service["spec"]["ports"][0]["port"] == container["ports"][0]["containerPort"] == 9000
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "2Gi"}
    assert container["args"][-4:] == ["--model", "smollm2", "--slots", "4"]
    assert "dns://llm.prod.svc:9000" in container["args"]
    assert "http://$(POD).llm.prod.svc:9000" in container["args"]
    assert '["http://llm-0.llm.prod.svc:9000", "http://llm-1.llm.prod.svc:9000"]' in text


def test_the_server_accepts_the_arguments_that_its_container_gets(capsys) -> None:
    text = printed(capsys, "--port", "9000", "--slots", "4")
    command, *arguments = stateful_set(text)["spec"]["template"]["spec"]["containers"][0]["args"]
    filled = [argument.replace("$(POD)", "zerolayer-0") for argument in arguments]  # by Kubernetes
    given = {flag.removeprefix("--"): value for flag, value in zip(filled[::2], filled[1::2], strict=True)}
    contract = load(None, {}, given).contract
    assert command == "serve"
    assert (contract.listen.host, contract.listen.port, contract.context.slots) == ("0.0.0.0", 9000, 4)
    assert sources(contract.cluster.peers)
    assert json.dumps(contract.cluster.address) in text  # the list for clients has the names that nodes go by


def test_every_request_needs_a_key_of_the_secret_unless_told_otherwise(capsys) -> None:
    text = printed(capsys, "--name", "llm")
    pod = stateful_set(text)["spec"]["template"]["spec"]
    (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "keys"]
    arguments = pod["containers"][0]["args"]
    assert (secret, mount["readOnly"]) == ("llm-keys", True)
    assert f"{mount['mountPath']}/keyset.json" in arguments
    assert "--insecure" not in arguments
    assert "create secret generic llm-keys" in text
    assert "signing.key" not in text.split("signing.key stays with you")[1]

    open_to_all = stateful_set(printed(capsys, "--insecure"))["spec"]["template"]["spec"]
    assert "--insecure" in open_to_all["containers"][0]["args"]
    assert "keys" not in json.dumps(open_to_all)


def test_the_commands_that_make_the_secret_make_what_the_nodes_read(capsys, tmp_path, monkeypatch) -> None:
    """The lines before kubectl are run as they are printed."""
    monkeypatch.chdir(tmp_path)
    (line,) = [line for line in printed(capsys).splitlines() if line.startswith("# zerolayer keys")]
    new, issue = line.removeprefix("# ").split(" > ")[0].split(" && ")
    cli.main(new.split()[1:])
    capsys.readouterr()
    cli.main(issue.split()[1:])
    (tmp_path / "keys" / "node.key").write_text(capsys.readouterr().out)
    assert all((tmp_path / "keys" / file).is_file() for file in KEY_FILES)
    contract = load(None, {}, {"key-set": "keys/keyset.json", "node-key": "keys/node.key"}).contract
    assert node_key(contract.tenants).startswith("sk-zl1-")


def test_every_node_gets_one_device_of_the_plugin(capsys) -> None:
    container = stateful_set(printed(capsys, "--device", "nvidia.com/gpu"))["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["resources"]["requests"] == container["resources"]["limits"]


def test_pods_have_longer_to_end_than_the_server_takes_to_drain(capsys) -> None:
    from zerolayer.serve.server import GRACE_S

    assert stateful_set(printed(capsys))["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > GRACE_S


@pytest.mark.parametrize(
    "flags",
    [
        ["--name", "Upper"],
        ["--name", "a\nb"],
        ["--namespace", ""],
        ["--cpu", "0"],
        ["--memory", "8 GB"],
        ["--replicas", "0"],
        ["--port", "0"],
        ["--device", "gpu"],
        ["--device", "nvidia.com/gpu=1"],
    ],
)
def test_what_kubernetes_would_refuse_is_a_usage_error(flags, capsys) -> None:
    assert cli.main(["k8s", "--image", IMAGE, *flags]) == 2
    assert flags[0] in capsys.readouterr().err


@given(st.text(max_size=20))
def test_no_name_makes_other_objects_than_those_asked_for(text) -> None:
    try:
        objects = manifests(Fleet(text, name=text))
    except UsageError:
        return
    assert list(yaml.safe_load_all(documents(objects))) == objects


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="ascii")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_is_read_back_from_its_yaml(value) -> None:
    assert yaml.safe_load(documents([value])) == value
