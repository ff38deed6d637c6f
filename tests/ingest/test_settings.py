"""The sources of settings, their order, and what is said when one cannot be used."""

import json

import pytest
from pydantic import SecretStr

from catalog.engine import parse_url
from ingest.settings import Settings, SettingsError, load_settings, reveal, unknown_variables


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    for name in (
        "CLICKHOUSE_URL",
        "CLICKHOUSE_USER",
        "CLICKHOUSE_PASSWORD",
        "DATABASE_URL",
        "DATABASE_DIRECT_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_arguments_override_environment_and_file(monkeypatch, tmp_path):
    (tmp_path / "charon.toml").write_text("port = 1\nworkers = 2\ngrace_seconds = 3\n")
    monkeypatch.setenv("CHARON_PORT", "4")
    monkeypatch.setenv("CHARON_WORKERS", "5")
    settings = load_settings(port=6, host=None)
    assert (settings.port, settings.workers, settings.grace_seconds) == (6, 5, 3)
    assert settings.host == "127.0.0.1"


def test_the_reference_deployments_names_are_aliases_and_ours_win(monkeypatch):
    monkeypatch.setenv("CLICKHOUSE_URL", "http://reference:8123")
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", "reference-secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://reference/db")
    settings = load_settings()
    assert settings.clickhouse_url == "http://reference:8123"
    assert settings.clickhouse_password.get_secret_value() == "reference-secret"
    assert settings.database_url == SecretStr("postgresql://reference/db")
    assert not settings.is_embedded
    monkeypatch.setenv("CHARON_CLICKHOUSE_URL", "http://ours:8123")
    assert load_settings().clickhouse_url == "http://ours:8123"
    assert load_settings(clickhouse_url="http://flag:1").clickhouse_url == "http://flag:1"


def test_the_file_sets_what_has_an_alias_too(monkeypatch, tmp_path):
    (tmp_path / "charon.toml").write_text(
        'clickhouse_url = "http://file:8123"\nclickhouse_user = "f"\n'
    )
    assert load_settings().clickhouse_url == "http://file:8123"
    monkeypatch.setenv("CLICKHOUSE_USER", "e")
    assert load_settings().clickhouse_user == "e"


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch):
    monkeypatch.setenv("CLICKHOUSE_URL", "")
    assert load_settings().is_embedded


def test_no_secret_is_shown_by_repr_str_or_dump(monkeypatch):
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", "open-sesame")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:open-sesame@h/db")
    settings = load_settings()
    assert "open-sesame" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_revealed_settings_make_an_equal_object_whatever_the_environment_holds(
    monkeypatch, tmp_path
):
    settings = load_settings(
        clickhouse_password="open-sesame",
        database_url="sqlite:///x",
        retention_days=7,
        data_dir=tmp_path,
    )
    values = json.loads(json.dumps(reveal(settings)))
    assert values["clickhouse_password"] == "open-sesame"
    monkeypatch.setenv("CLICKHOUSE_URL", "http://elsewhere:8123")
    monkeypatch.setenv("CHARON_PORT", "1")
    monkeypatch.setenv("CHARON_CONFIG", "/nowhere/charon.toml")
    assert Settings.model_validate(values) == settings


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"port": 70_000}, ["port", "--port", "65535"]),
        ({"workers": 0}, ["workers", "greater than or equal to 1"]),
        ({"clickhouse_url": "ch:9000"}, ["clickhouse_url", "http://host:8123"]),
        ({"clickhouse_url": "http://user:pass@ch:8123"}, ["must not hold a user or password"]),
        ({"body_bytes_max": 2**40}, ["body_bytes_max", "inflight_bytes_max"]),
        ({"segment_bytes_max": 2**34}, ["log_bytes_max", "segment_bytes_max"]),
        ({"clickhouse_cluster": "c"}, ["clickhouse_cluster", "clickhouse_url"]),
        ({"clickhouse_database": "a b"}, ["clickhouse_database"]),
        ({"clickhouse_ca": "/nowhere.pem", "clickhouse_url": "https://h"}, ["/nowhere.pem"]),
        ({"log_level": "loud"}, ["log_level", "debug"]),
        ({"nonsense": 1}, ["nonsense"]),
    ],
)
def test_a_bad_value_is_named_with_its_origin(arguments, words):
    with pytest.raises(SettingsError) as caught:
        load_settings(**arguments)
    for word in words:
        assert word in str(caught.value)


def test_a_bad_variable_is_named_and_its_value_is_not_repeated(monkeypatch):
    monkeypatch.setenv("CHARON_PORT", "open-sesame")
    with pytest.raises(SettingsError, match=r"port \(set by CHARON_PORT\)") as caught:
        load_settings()
    assert "open-sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = x\n", ["charon.toml", "not TOML", "line 1"]),
        ("prot = 1", ["charon.toml", "'prot'", "did you mean port?"]),
        ("[clickhouse]\nurl = 'x'", ["charon.toml", "clickhouse must be one value", "section"]),
        ("[port]\nx = 1", ["port must be one value"]),
        ("port = 'x'", ["port (set in charon.toml)"]),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, text, words):
    (tmp_path / "charon.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    for word in words:
        assert word in str(caught.value)


def test_a_named_file_that_is_missing_is_an_error_and_not_a_silent_default(monkeypatch):
    monkeypatch.setenv("CHARON_CONFIG", "elsewhere.toml")
    with pytest.raises(SettingsError, match=r"elsewhere\.toml.*CHARON_CONFIG.*No such file"):
        load_settings()


def test_a_file_that_is_not_text_is_an_error(tmp_path):
    (tmp_path / "charon.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings()


@pytest.mark.parametrize(
    "url",
    [
        "garbage",
        "mysql://u:geheim@db/x",
        "sqlite://",
        "postgres://",
        "postgresql://u:geheim@db:port/x",
    ],
)
def test_a_catalogue_of_another_kind_is_refused_at_once_and_not_repeated(monkeypatch, url):
    """Every worker would fail at it, again and again."""
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(SettingsError, match=r"DATABASE_URL.*postgresql://") as caught:
        load_settings()
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@h/x",
        "postgres://h/x",
        "postgresql+asyncpg://h/x",
        "postgresql://u:p[/?x@[::1]:5432/x?sslmode=require",
        "postgresql:///x?host=/run",
        "sqlite:////a/b.sqlite",
    ],
)
def test_each_spelling_that_the_catalogue_takes_is_taken(url):
    value = load_settings(database_url=url).database_url
    assert value is not None
    assert value.get_secret_value() == url
    assert parse_url(url)


def test_variables_that_no_setting_has_are_found():
    names = ["CHARON_PORT", "CHARON_CONFIG", "CHARON_WORKRS", "CHARON_DATABASE_URL", "HOME"]
    assert unknown_variables(names) == ["CHARON_WORKRS"]


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ({}, "http://127.0.0.1:3003"),
        ({"host": "0.0.0.0", "port": 80}, "http://127.0.0.1:80"),
        ({"host": "::"}, "http://[::1]:3003"),
        ({"public_url": "https://charon.example/"}, "https://charon.example"),
    ],
)
def test_the_address_is_one_that_a_client_can_use(arguments, address):
    assert load_settings(**arguments).address == address


@pytest.mark.parametrize("value", ["10.0.0.0/8, ::1", "10.0.0.0/8 ::1", " 10.0.0.0/8,::1 "])
def test_trusted_proxies_are_words_in_a_variable_and_a_list_in_the_file(
    monkeypatch, tmp_path, value
):
    assert load_settings().trusted_proxies == ()
    (tmp_path / "charon.toml").write_text('trusted_proxies = ["192.0.2.1"]\n')
    assert load_settings().trusted_proxies == ("192.0.2.1",)
    monkeypatch.setenv("CHARON_TRUSTED_PROXIES", value)
    settings = load_settings()
    assert settings.trusted_proxies == ("10.0.0.0/8", "::1")
    assert Settings.model_validate(json.loads(json.dumps(reveal(settings)))) == settings


def test_a_proxy_that_is_no_network_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("CHARON_TRUSTED_PROXIES", "10.0.0.0/8, nginx")
    with pytest.raises(SettingsError, match="trusted_proxies: 'nginx' is no address"):
        load_settings()


def test_the_role_ingest_needs_the_postgres_and_the_clickhouse_of_a_pluto():
    with pytest.raises(SettingsError, match=r"role ingest .* set database_url"):
        load_settings(role="ingest", clickhouse_url="http://c:8123")
    with pytest.raises(SettingsError, match=r"role ingest .* set database_url"):
        load_settings(role="ingest", database_url="sqlite:///x", clickhouse_url="http://c:8123")
    with pytest.raises(SettingsError, match=r"role ingest .* set clickhouse_url"):
        load_settings(role="ingest", database_url="postgresql://p/x")
    settings = load_settings(
        role="ingest", database_url="postgres://p/x", clickhouse_url="http://c:8123"
    )
    assert settings.role == "ingest"


def test_other_endpoints_are_addresses_beside_a_first_one(monkeypatch):
    monkeypatch.setenv("CHARON_CLICKHOUSE_OTHER_URLS", "http://b:8123, http://c:8123")
    with pytest.raises(SettingsError, match="set clickhouse_url too"):
        load_settings()
    monkeypatch.setenv("CHARON_CLICKHOUSE_URL", "http://a:8123")
    assert load_settings().clickhouse_other_urls == ("http://b:8123", "http://c:8123")
    with pytest.raises(SettingsError, match="clickhouse_other_urls"):
        load_settings(clickhouse_other_urls=("b:8123",))
