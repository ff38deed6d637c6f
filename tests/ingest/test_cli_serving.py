"""The command line beside a real server with everything embedded."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from loadtest.throwaway import COMMAND, TREE, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    one = Server(tmp_path_factory.mktemp("serving") / "data")
    try:
        one.start()
        yield one
    finally:
        if one.process is not None and one.process.poll() is None:
            assert one.stop() == 0


def charon(server, *arguments, status=0):
    """Runs a command on the server's data; gives what it printed and said."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("CHARON_", "CLICKHOUSE_"))}
    done = subprocess.run(
        [*COMMAND, *arguments, "--data-dir", str(server.data_dir)],
        env=kept | {"PYTHONPATH": str(TREE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def answer_to(server, key):
    """The status of an ingest request with that key."""
    request = urllib.request.Request(
        f"{server.url}/ingest/metrics",
        data=b'{"time":1764423221123,"step":1,"data":{"loss":0.5}}\n',
        headers={
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/x-ndjson",
            "X-Run-Id": "1",
            "X-Run-Name": "r",
            "X-Project-Name": "p",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_key_works_as_soon_as_it_is_made_and_stops_soon_after_it_is_revoked(server):
    assert answer_to(server, "mlps_neverMade0000000000000000") == 401
    made = json.loads(charon(server, "keys", "create", "new", "--json")[0])
    assert answer_to(server, made["key"]) == 200
    charon(server, "keys", "revoke", made["id"])
    end = time.monotonic() + 10
    while answer_to(server, made["key"]) != 401:
        assert time.monotonic() < end, "a revoked key is still taken"
        time.sleep(0.2)
    assert made["key"] not in server.log_path.read_text()


def test_sql_shows_a_table_json_or_the_querys_own_format(server):
    out, _ = charon(server, "sql", "SELECT 1 AS one, 'a' AS word, nan AS missing")
    assert all(word in out for word in ("one", "word", "nan", "1 row\n"))
    out, _ = charon(server, "sql", "SELECT toUInt64(18446744073709551615) AS n, inf", "--json")
    assert json.loads(out) == {
        "columns": [["n", "UInt64"], ["inf", "Float64"]],
        "rows": [[18446744073709551615, "inf"]],
    }
    assert charon(server, "sql", "SELECT 1, 2 FORMAT CSV")[0] == "1,2\n"
    assert charon(server, "sql", "SELECT name FROM system.tables WHERE 0")[0].endswith("0 rows\n")
    _, err = charon(server, "sql", "SELECT * FROM no_such_table", status=1)
    assert "no_such_table" in err
    assert err.startswith("charon: ")


def test_sql_only_reads_unless_it_is_told_to_write(server):
    _, err = charon(server, "sql", "TRUNCATE TABLE mlop_files", status=1)
    assert "--write" in err
    assert charon(server, "sql", "--write", "TRUNCATE TABLE mlop_files")[0] == "done\n"
    # What a script reads of no rows is nothing.
    assert charon(server, "sql", "SELECT 1 WHERE 0 FORMAT TSV")[0] == ""


def test_a_mistyped_query_gets_one_line_and_not_all_of_the_grammar(server):
    _, err = charon(server, "sql", "SELEC 1", status=1)
    assert "Maybe you meant: SELECT" in err
    assert len(err) < 200


def test_a_table_that_somebody_dropped_is_made_again_by_migrate(server):
    charon(server, "sql", "--write", "DROP TABLE mlop_data SYNC")
    found = json.loads(charon(server, "doctor", "--json", status=1)[0])
    advice = [one["advice"] for one in found if "mlop_data" in one["found"]]
    assert advice
    assert all("charon migrate" in one for one in advice)
    made = json.loads(charon(server, "migrate", "--json")[0])["tables"]
    assert made == ["0003 create mlop_data", "0007 denser columns of mlop_data"]
    charon(server, "doctor")


def test_doctor_finds_a_running_server_in_good_health(server):
    found = json.loads(charon(server, "doctor", "--json")[0])
    assert not [one for one in found if one["state"] in {"warning", "error"}], found
    assert any(f"pid {server.facts()['pid']}" in one["found"] for one in found)
    assert any("clock differs" in one["found"] for one in found)
    assert any("as they should be" in one["found"] for one in found)


def test_what_doctor_prints_is_enough_to_reach_the_engine(server):
    facts = json.loads(charon(server, "doctor", "--connect", "--json")[0])
    password = Path(facts["password_file"]).read_text().strip()
    out, _ = charon(server, "doctor", "--connect")
    assert password not in out
    request = urllib.request.Request(
        f"{facts['url']}/?database={facts['database']}",
        data=b"SELECT count() > 0 FROM system.tables WHERE database = currentDatabase()",
        headers={"X-ClickHouse-User": facts["user"], "X-ClickHouse-Key": password},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.read() == b"1\n"


def test_migrate_beside_a_running_server_finds_nothing_to_do(server):
    done = json.loads(charon(server, "migrate", "--json")[0])
    assert done == {"catalogue": [], "tables": []}


def test_a_taken_directory_and_a_taken_port_are_each_named_with_what_to_do(server, tmp_path):
    _, err = charon(server, "serve", "--port", "0", status=1)
    assert err.count("\n") == 1
    assert f"in use by another server, pid {server.facts()['pid']}" in err
    port = server.facts()["port"]
    done = subprocess.run(
        [*COMMAND, "serve", "--port", str(port), "--data-dir", str(tmp_path / "other")],
        env=os.environ | {"PYTHONPATH": str(TREE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert "--port" in done.stderr


def test_no_secret_is_in_the_servers_log_or_any_argument_list(server):
    """F42."""
    password = server.clickhouse_password
    text = server.log_path.read_text()
    assert password not in text
    for pid in [server.facts()["pid"], server.engine_pid(), *server.worker_pids()]:
        process = Path(f"/proc/{pid}")
        seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        assert password.encode() not in seen
        assert server.key.encode() not in seen
