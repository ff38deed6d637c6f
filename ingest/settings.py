"""The one settings object; nothing else reads the environment or the configuration file.

Sources, strongest first: arguments of the command line; environment (`CHARON_*`, then the names
that the reference deployment uses); the TOML file named by `CHARON_CONFIG` (default `charon.toml`
in the working directory, where there is one); the defaults below. Each default says why.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError

from ingest.auth_addresses import network_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONFIG_VARIABLE = "CHARON_CONFIG"
CONFIG_FILE = "charon.toml"


class SettingsError(ValueError):
    """A setting cannot be used; one line each, saying which, where it was set and what would do."""


_POSTGRES_URL = re.compile(r"postgres(ql)?(\+\w+)?://.")
# As SQLAlchemy reads it, which is loaded where it is needed.
_DATABASE_URL = re.compile(
    r"postgres(ql)?(\+\w+)?://(?=.)([^:/]*(:[^@]*)?@)?(\[[^/?]+\]|[^/:?]*)(:[0-9]{0,5})?([/?]|$)"
    r"|sqlite(\+\w+)?:///."
)

Bytes = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]
Words = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(
        lambda value: value.replace(",", " ").split() if isinstance(value, str) else value
    ),
]
"""A list in TOML; in a variable or an option, words with commas or spaces between them."""


def _check_clickhouse(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(
            "clickhouse_url must be the address of ClickHouse's HTTP interface, "
            "like http://host:8123 or https://host:8443; so must clickhouse_other_urls"
        )
    if parts.username or parts.password:
        raise ValueError(
            "clickhouse_url must not hold a user or password: "
            "set clickhouse_user and clickhouse_password"
        )


def _also(*names: str) -> AliasChoices:
    """A field's variables, strongest first. Not its own name: variables are matched in any case."""
    return AliasChoices(*names)


class Settings(BaseSettings):
    """All that can be set. Frozen; secrets show as asterisks in every repr, log line and error."""

    model_config = SettingsConfigDict(
        env_prefix="CHARON_",
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        env_ignore_empty=True,  # compose files pass on variables that nobody set as empty ones
    )

    # Where it listens and what runs.
    host: str = "127.0.0.1"
    """Loopback: what prints a key to a terminal is not offered to a network by accident."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 3003
    """The reference's ingest port. 0 takes a free one and says which."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    data_dir: Path = Path("charon-data")
    public_url: str | None = None
    """The address that clients are told (a run's `url`, the pasted lines); default `http://host:port`."""

    # ClickHouse. No URL: the embedded engine.
    clickhouse_url: str | None = Field(
        default=None,
        validation_alias=_also("CHARON_CLICKHOUSE_URL", "CLICKHOUSE_URL"),
    )
    clickhouse_other_urls: Words = ()
    """Other endpoints of the same cluster, for replicated tables alone."""
    clickhouse_user: str = Field(
        default="default",
        validation_alias=_also("CHARON_CLICKHOUSE_USER", "CLICKHOUSE_USER"),
    )
    clickhouse_password: SecretStr = Field(
        default=SecretStr(""),
        validation_alias=_also("CHARON_CLICKHOUSE_PASSWORD", "CLICKHOUSE_PASSWORD"),
    )
    clickhouse_database: str = Field(
        default="charon",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        validation_alias=_also("CHARON_CLICKHOUSE_DATABASE", "CLICKHOUSE_DATABASE"),
    )
    clickhouse_ca: Path | None = None
    """A CA bundle for https; default: the system's."""
    clickhouse_cluster: str | None = None
    """With a name, tables are replicated and made `ON CLUSTER`."""
    clickhouse_timeout_seconds: Seconds = 60.0
    embedded_port: Annotated[int, Field(ge=0, le=65_535)] = 8123
    """ClickHouse's usual port, on loopback; where it is taken, a free one that the log names."""
    retention_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """Off: rows stay for ever."""

    # Catalogue. No URL: SQLite in the data directory.
    database_url: SecretStr | None = Field(
        default=None, validation_alias=_also("CHARON_DATABASE_URL", "DATABASE_URL")
    )
    database_direct_url: SecretStr | None = Field(
        default=None,
        validation_alias=_also("CHARON_DATABASE_DIRECT_URL", "DATABASE_DIRECT_URL"),
    )
    """Past a pooler: for migrations, locks and notices of changes; default: database_url."""
    role: Literal["all", "ingest"] = "all"
    """`ingest`: beside an existing Pluto, whose keys and tables are used and none of ours made."""

    # Bounds of a request.
    body_bytes_max: Bytes = 64 * 2**20
    """Counted after decompression."""
    inflight_bytes_max: Bytes = 128 * 2**20
    """Bodies under way in one worker."""
    header_seconds_max: Seconds = 10.0
    body_seconds_max: Seconds = 60.0
    """Absolute deadlines: a client that drips bytes does not hold a connection for ever."""
    idle_seconds_max: Seconds = 75.0
    room_seconds_max: Annotated[float, Field(ge=0)] = 20.0
    """How long a request is held for room in the log before it is refused (± 20 %)."""
    room_requests_max: int = 1_000
    fast_lane: bool = True
    """Off, aiohttp serves plain ingest requests as well, at several times the CPU time."""
    auth_refresh_seconds: Seconds = 1.0
    """Keys in use are looked up again so often, by one query: a revocation takes effect in two."""
    key_outage_seconds: Annotated[float, Field(ge=0)] = 900.0
    """For so long a known key is taken while the catalogue cannot be asked."""
    key_failures_per_minute_max: Annotated[int, Field(ge=1)] = 60
    """Keys that do not exist which one address may try at one worker; then 429."""
    trusted_proxies: Words = ()
    """Addresses and networks of proxies; from them `X-Forwarded-For` is believed."""

    # The log; see buffer.options for the reasons.
    segment_bytes_max: Bytes = 64 * 2**20
    log_bytes_max: Bytes = 16 * 2**30
    disk_free_bytes_min: Annotated[int, Field(ge=0)] = 2 * 2**30
    batch_rows_max: Annotated[int, Field(ge=1, le=1_000_000)] = 200_000
    batch_bytes_max: Bytes = 32 * 2**20
    batch_age_seconds_max: Seconds = 1.0
    repeat_seconds: Seconds = 600.0
    quarantine_bytes_max: Bytes = 2**30

    # Runs that fall silent; `serve` marks them FAILED.
    heartbeat_grace_seconds: Annotated[float, Field(ge=10)] = 150.0
    """Of a run that has sent heartbeats; the SDK sends one in 4 s."""
    silence_grace_seconds: Annotated[float, Field(ge=10)] = 1_800.0
    """Of a run that never has."""
    reaper_interval_seconds: Seconds = 60.0

    # Stopping.
    drain_delay_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Behind a load balancer 5 s or more: service goes on until it has seen readiness go."""
    grace_seconds: Seconds = 30.0

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, environment, TOML; no .env file, so that what counts can be seen."""
        given = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        if all(
            not given.keys().isdisjoint({field, *variables_of(field)})
            for field in settings_cls.model_fields
        ):
            # A whole set stands by itself: a worker takes the supervisor's values as they are.
            return (init_settings,)
        return (init_settings, env_settings, InitSettingsSource(settings_cls, _file_values()))

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.body_bytes_max > self.inflight_bytes_max:
            raise ValueError(
                f"body_bytes_max ({self.body_bytes_max}) is above inflight_bytes_max "
                f"({self.inflight_bytes_max}): no such body could ever be read; raise the latter"
            )
        if self.clickhouse_url is not None:
            for url in (self.clickhouse_url, *self.clickhouse_other_urls):
                _check_clickhouse(url)
        elif self.clickhouse_other_urls:
            raise ValueError(
                "clickhouse_other_urls are further endpoints of clickhouse_url's cluster: "
                "set clickhouse_url too"
            )
        elif self.clickhouse_cluster is not None:
            raise ValueError(
                "clickhouse_cluster names a cluster, and the embedded engine has none: "
                "set clickhouse_url too"
            )
        if self.log_bytes_max < 2 * self.segment_bytes_max:
            raise ValueError(
                f"log_bytes_max ({self.log_bytes_max}) must hold at least two segments of "
                f"segment_bytes_max ({self.segment_bytes_max}): raise the one or lower the other"
            )
        for name in ("database_url", "database_direct_url"):
            url = getattr(self, name)
            # The message does not repeat it: it may hold a password.
            if url is not None and not _DATABASE_URL.match(url.get_secret_value()):
                raise ValueError(
                    f"{name} ({' or '.join(variables_of(name))}) must be postgresql://… "
                    "or a file, sqlite:///path/to/catalog.sqlite"
                )
        if self.clickhouse_ca is not None and not self.clickhouse_ca.is_file():
            raise ValueError(f"clickhouse_ca: there is no file {self.clickhouse_ca}")
        return self

    @model_validator(mode="after")
    def _agree_on_access(self) -> Settings:
        if self.role == "ingest":
            if self.database_url is None or not _POSTGRES_URL.match(
                self.database_url.get_secret_value()
            ):
                raise ValueError(
                    "role ingest takes its keys from an existing Pluto: set database_url "
                    "(CHARON_DATABASE_URL or DATABASE_URL) to the postgresql://… of that"
                )
            if self.clickhouse_url is None:
                raise ValueError(
                    "role ingest writes to the tables of an existing Pluto: set clickhouse_url, "
                    "clickhouse_user, clickhouse_password and clickhouse_database"
                )
        for proxy in self.trusted_proxies:
            try:
                network_of(proxy)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}") from None
        return self

    @property
    def is_embedded(self) -> bool:
        """Whether ClickHouse runs inside `charon serve`."""
        return self.clickhouse_url is None

    @property
    def address(self) -> str:
        """What clients are told: `public_url`, or where it listens. No slash at the end."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def load_settings(**overrides: Any) -> Settings:  # noqa: ANN401 - checked by Settings
    """The settings from all sources.

    Args:
        overrides: the command line's; None means not given.

    Raises:
        SettingsError: a value, a name or the file cannot be used. It repeats no value, which may
            be a secret.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(error, given))) from None
    except SourceError as error:  # a variable that should hold JSON and does not
        raise SettingsError(str(error)) from None


def reveal(settings: Settings) -> dict[str, Any]:
    """All values as JSON types, secrets in clear: for the pipe to a child process and nothing else.

    Returns:
        What `Settings.model_validate` turns into an equal object, whatever the environment holds.
    """
    values = settings.model_dump(mode="json")
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            values[name] = value.get_secret_value()
    return values


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """The CHARON_ variables that no setting has: a typing error that would else go unnoticed."""
    known = {name for field in Settings.model_fields for name in variables_of(field)}
    known.add(CONFIG_VARIABLE)
    return sorted(name for name in environment if name.startswith("CHARON_") and name not in known)


def variables_of(field: str) -> list[str]:
    """The environment variables that set a field, strongest first."""
    alias = Settings.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices if str(choice).isupper()]
    return [f"CHARON_{field.upper()}"]


def _file_values() -> dict[str, Any]:
    named = os.environ.get(CONFIG_VARIABLE)
    file = Path(named or CONFIG_FILE)
    if named is None and not file.is_file():
        return {}
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file} (named by {CONFIG_VARIABLE}): {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not TOML: {error}") from error
    for name, value in values.items():
        if isinstance(value, dict):
            raise SettingsError(
                f"{file}: {name} must be one value, not a table; no setting is in a section"
            )
        if name not in Settings.model_fields:
            raise SettingsError(f"{file}: there is no setting {name!r}{_suggestion(name)}")
    return values


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), Settings.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _explain(error: ValidationError, given: Mapping[str, Any]) -> Iterable[str]:
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        message = detail["msg"].removeprefix("Value error, ")
        name = str(detail["loc"][0]) if detail["loc"] else ""
        field = next(
            (field for field in Settings.model_fields if name in {field, *variables_of(field)}),
            None,
        )
        if field is None:
            yield f"{name}: {message}" if name else message
        else:
            yield f"{field} ({_origin(field, given)}): {message[:1].lower()}{message[1:]}"


def _origin(field: str, given: Mapping[str, Any]) -> str:
    if field in given:
        return "set by --" + field.replace("_", "-")
    for variable in variables_of(field):
        if os.environ.get(variable):
            return f"set by {variable}"
    return f"set in {os.environ.get(CONFIG_VARIABLE, CONFIG_FILE)}"
