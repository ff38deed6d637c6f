"""The one settings object; nothing else reads the environment or the configuration file.

Sources, strongest first: arguments of the command line, environment (`CHARON_*`, then the names that the
reference deployment uses), the TOML file named by `CHARON_CONFIG` (default `charon.toml` in the working directory,
where there is one), the defaults below. Each default says why.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

CONFIG_VARIABLE = "CHARON_CONFIG"
CONFIG_FILE = "charon.toml"

Bytes = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]


def _also(*names: str) -> AliasChoices:
    """The field's own name in a file or argument, its CHARON_ variable, and the reference's names."""
    return AliasChoices(*names)


class Settings(BaseSettings):
    """All that can be set. Frozen; secrets show as asterisks in every repr, log line and error."""

    model_config = SettingsConfigDict(
        env_prefix="CHARON_",
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    # Where it listens and what runs.
    host: str = "127.0.0.1"
    """Loopback: a service with a key printed to a terminal is not offered to a network by accident."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 3003
    """The reference's ingest port. 0 takes a free one and says which."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    data_dir: Path = Path("charon-data")
    public_url: str | None = None
    """The address that clients are told (a run's `url`, the pasted lines); default `http://host:port`."""

    # ClickHouse. No URL: the embedded engine.
    clickhouse_url: str | None = Field(
        default=None,
        validation_alias=_also("clickhouse_url", "CHARON_CLICKHOUSE_URL", "CLICKHOUSE_URL"),
    )
    clickhouse_user: str = Field(
        default="default",
        validation_alias=_also("clickhouse_user", "CHARON_CLICKHOUSE_USER", "CLICKHOUSE_USER"),
    )
    clickhouse_password: SecretStr = Field(
        default=SecretStr(""),
        validation_alias=_also("clickhouse_password", "CHARON_CLICKHOUSE_PASSWORD", "CLICKHOUSE_PASSWORD"),
    )
    clickhouse_database: str = Field(
        default="charon",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        validation_alias=_also("clickhouse_database", "CHARON_CLICKHOUSE_DATABASE", "CLICKHOUSE_DATABASE"),
    )
    clickhouse_ca: Path | None = None
    """A CA bundle for https; default: the system's."""
    clickhouse_cluster: str | None = None
    """With a name, tables are replicated and made `ON CLUSTER`."""
    clickhouse_timeout_seconds: Seconds = 60.0
    embedded_port: Annotated[int, Field(ge=0, le=65_535)] = 8123
    """ClickHouse's usual port on loopback; a taken one is replaced by a free one, and the log says which."""
    retention_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """Off: rows stay for ever."""

    # Catalogue. No URL: SQLite in the data directory.
    database_url: SecretStr | None = Field(
        default=None, validation_alias=_also("database_url", "CHARON_DATABASE_URL", "DATABASE_URL")
    )
    database_direct_url: SecretStr | None = Field(
        default=None,
        validation_alias=_also("database_direct_url", "CHARON_DATABASE_DIRECT_URL", "DATABASE_DIRECT_URL"),
    )
    """Used for migrations where DATABASE_URL goes through a pooler."""

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
    auth_refresh_seconds: Seconds = 2.0
    """A cached key is looked up again at this age, so that a revocation takes effect promptly."""

    # The log; see buffer.options for the reasons.
    segment_bytes_max: Bytes = 64 * 2**20
    log_bytes_max: Bytes = 16 * 2**30
    disk_free_bytes_min: Annotated[int, Field(ge=0)] = 2 * 2**30
    batch_rows_max: Annotated[int, Field(ge=1, le=1_000_000)] = 200_000
    batch_bytes_max: Bytes = 32 * 2**20
    batch_age_seconds_max: Seconds = 1.0
    repeat_seconds: Seconds = 600.0
    quarantine_bytes_max: Bytes = 2**30

    # Stopping.
    drain_delay_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Behind a load balancer 5 s or more: readiness is off, service goes on until the balancer has noticed."""
    grace_seconds: Seconds = 30.0

    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
    log_format: Annotated[str, Field(pattern="^(console|json)$")] = "console"

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
        file = Path(os.environ.get(CONFIG_VARIABLE, CONFIG_FILE))
        sources: list[Any] = [init_settings, env_settings]
        if CONFIG_VARIABLE in os.environ or file.is_file():
            sources.append(TomlConfigSettingsSource(settings_cls, file))
        return tuple(sources)

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.body_bytes_max > self.inflight_bytes_max:
            raise ValueError(
                f"body_bytes_max ({self.body_bytes_max}) is above inflight_bytes_max "
                f"({self.inflight_bytes_max}): no such body could ever be read; raise the latter"
            )
        if self.clickhouse_url is not None:
            parts = urlsplit(self.clickhouse_url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError(
                    "clickhouse_url must be the address of ClickHouse's HTTP interface, "
                    "like http://host:8123 or https://host:8443"
                )
            if parts.username or parts.password:
                raise ValueError(
                    "clickhouse_url must not hold a user or password: set clickhouse_user and clickhouse_password"
                )
        return self

    @property
    def is_embedded(self) -> bool:
        """Whether ClickHouse runs inside `charon serve`."""
        return self.clickhouse_url is None
