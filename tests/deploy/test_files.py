"""deploy/ agrees with itself, with the settings and with the programs that read it.

Images cannot be built everywhere; what the files describe runs in tests/cluster. `make lint` has
hadolint look at the Dockerfile, and holds compose.yaml against the compose specification.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ingest.programs import ENGINE_STOP_SECONDS_MAX, WORKER_STOP_MARGIN_SECONDS
from ingest.settings import Settings, unknown_variables

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
NGINX = (DEPLOY / "nginx" / "nginx.conf").read_text()
REPLICAS = (DEPLOY / "nginx" / "replicas.conf").read_text()
UNIT = (DEPLOY / "systemd" / "charon.service").read_text()
DEFAULTS = {name: field.get_default() for name, field in Settings.model_fields.items()}


@pytest.fixture(scope="module")
def services():
    """Of compose.yaml, with what they take from each other filled in."""
    return YAML(typ="safe").load(DEPLOY / "compose.yaml")["services"]


def variables(path):
    return dict(re.findall(r"^([A-Z_]+)=(.*)$", path.read_text(), re.MULTILINE))


def seconds(text):
    return float(re.fullmatch(r"([\d.]+)(?:s|)", str(text))[1])


def test_there_is_no_python_in_deploy():
    assert not list(DEPLOY.rglob("*.py"))


def test_the_image_says_the_version_that_it_holds():
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert f"ARG VERSION={project['version']}" in DOCKERFILE
    packages = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    listed = {name.split(".")[0] for name in packages["tool"]["setuptools"]["packages"]}
    assert set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE)) == listed
    kept = re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert set(kept) == listed | {"pyproject.toml", "README.md", "LICENSE"}


def test_the_last_stage_has_no_root_no_shell_before_charon_and_asks_readiness():
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.search(r"^USER \d+$", last, re.MULTILINE)
    assert 'ENTRYPOINT ["charon"]' in last
    assert "/health/ready" in last
    assert "apt-get" not in DOCKERFILE
    assert "pip install" not in last


def test_every_variable_that_deploy_names_is_a_setting(services):
    named = set(variables(DEPLOY / "systemd" / "charon.env.example"))
    named |= set(re.findall(r"^ +(CHARON_\w+)=", DOCKERFILE, re.MULTILINE))
    named |= set(re.findall(r"^Environment=(CHARON_\w+)=", UNIT, re.MULTILINE))
    for service in services.values():
        named |= {name for name in service.get("environment", {}) if name.startswith("CHARON_")}
    assert len(named) > 10
    assert unknown_variables(named) == []


def test_every_variable_that_compose_takes_is_in_the_example_or_has_a_default():
    text = (DEPLOY / "compose.yaml").read_text()
    example = variables(DEPLOY / "env.example")
    for name, rest in re.findall(r"\$\{(\w+)([^}]*)\}", text):
        assert rest.startswith((":-", ":?")), name
        if rest.startswith(":?"):
            assert example[name] == "", f"{name} is a secret: the example gives none"
    assert set(example) <= set(re.findall(r"\$\{(\w+)", text))


def test_each_replica_has_a_log_of_its_own_and_nginx_knows_each(services):
    replicas = [name for name, one in services.items() if one.get("command") == ["serve"]]
    assert len(replicas) >= 2
    volumes = [volume for name in replicas for volume in services[name]["volumes"]]
    assert sorted(volumes) == sorted(f"{name}:/var/lib/charon" for name in replicas)
    assert re.findall(r"^    server (\S+):3003 ", REPLICAS, re.MULTILINE) == replicas
    for name in replicas:
        waits = services[name]["depends_on"]
        assert waits == {"migrate": {"condition": "service_completed_successfully"}}
        assert services["nginx"]["depends_on"][name] == {"condition": "service_healthy"}


def test_a_stop_is_given_the_time_that_it_may_take(services):
    environment = services["charon-1"]["environment"]
    drain = float(environment["CHARON_DRAIN_DELAY_SECONDS"])
    patience = drain + float(environment["CHARON_GRACE_SECONDS"]) + WORKER_STOP_MARGIN_SECONDS
    assert seconds(services["charon-1"]["stop_grace_period"]) > patience
    example = variables(DEPLOY / "systemd" / "charon.env.example")
    unit = float(re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[1])
    patience = float(example["CHARON_DRAIN_DELAY_SECONDS"]) + float(example["CHARON_GRACE_SECONDS"])
    assert unit >= patience + WORKER_STOP_MARGIN_SECONDS + ENGINE_STOP_SECONDS_MAX
    # A replica that is back must be known to be before the other one refuses.
    (excluded,) = set(re.findall(r"fail_timeout=(\d+)s", REPLICAS))
    assert float(excluded) < drain


def nginx(name):
    return re.search(rf"^ +{name} (\S+);$", NGINX, re.MULTILINE)[1]


def test_nginx_leaves_limits_and_holds_to_charon():
    mebibytes = int(nginx("client_max_body_size").removesuffix("m"))
    assert mebibytes * 2**20 > DEFAULTS["body_bytes_max"]
    held = DEFAULTS["room_seconds_max"] * 1.2
    assert seconds(nginx("proxy_read_timeout")) > max(held, 30)
    # One that was held for room is not sent to be held again.
    assert seconds(nginx("proxy_next_upstream_timeout")) < DEFAULTS["room_seconds_max"] * 0.8
    assert nginx("proxy_request_buffering") == "on"  # else nothing can be sent to the other one
    idle = seconds(re.search(r"keepalive_timeout (\S+);", REPLICAS)[1])
    assert idle < DEFAULTS["idle_seconds_max"]


@pytest.mark.parametrize("name", ["system-logs.xml", "memory.xml", "queries.xml"])
def test_the_clickhouse_files_are_xml(name):
    assert ET.parse(DEPLOY / "clickhouse" / name).getroot().tag == "clickhouse"


def test_system_logs_are_off_or_end_by_themselves_and_memory_has_a_cap(services):
    # F43: in a day, ClickHouse's logs of itself fill disk and memory.
    root = ET.parse(DEPLOY / "clickhouse" / "system-logs.xml").getroot()
    logs = {element.tag: element for element in root if element.tag.endswith("_log")}
    for element in logs.values():
        ttl = element.findtext("ttl") or ""
        assert element.get("remove") == "1" or re.fullmatch(
            r"event_date \+ INTERVAL \d+ DAY DELETE", ttl
        ), element.tag
    # Those that a server as shipped writes without being asked.
    assert set(logs) >= {
        *("query_log", "part_log", "metric_log", "asynchronous_metric_log", "trace_log"),
        *("text_log", "query_thread_log", "query_views_log", "processors_profile_log"),
        *("error_log", "latency_log", "query_metric_log", "opentelemetry_span_log"),
    }
    memory = ET.parse(DEPLOY / "clickhouse" / "memory.xml").getroot()
    assert float(memory.findtext("max_server_memory_usage_to_ram_ratio")) < 0.9
    assert services["clickhouse"]["mem_limit"]
    mounted = {volume.split(":")[0] for volume in services["clickhouse"]["volumes"]}
    assert {f"./clickhouse/{path.name}" for path in (DEPLOY / "clickhouse").iterdir()} < mounted
    for service in services.values():
        assert service.get("ulimits", {}).get("nofile", {"soft": 0})["soft"] >= 65_536


def test_systemd_takes_the_unit_as_it_is(tmp_path):
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("no systemd here")
    unit = tmp_path / "charon.service"
    # Whether the program is installed where the unit says is not asked here.
    unit.write_text(UNIT.replace("/opt/charon/bin/charon", "/bin/true"))
    done = subprocess.run(
        [systemd, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "charon" in line]
    assert not ours
    assert done.returncode == 0, done.stderr
