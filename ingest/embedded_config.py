"""What the engine is told at start: its size, and what a client may do.

chDB reads ClickHouse's own configuration files, access rights and constraints on settings included,
so what is refused to clients is refused by the engine itself. The front (`embedded_statement`) adds
what no right covers.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

CONFIG_FILE: Final = "charon-engine.xml"
USERS_FILE: Final = "charon-users.xml"

RIGHTS: Final = (
    (
        "GRANT SHOW, SELECT, INSERT, ALTER, CHECK, CREATE DATABASE, CREATE TABLE, CREATE VIEW, "
        "CREATE TEMPORARY TABLE, DROP, UNDROP TABLE, TRUNCATE, OPTIMIZE, KILL QUERY, "
        "SYSTEM MERGES, SYSTEM TTL MERGES, SYSTEM FLUSH, SYSTEM DROP CACHE, SYSTEM VIEWS ON *.*"
    ),
    # chDB's `default` shows files of the machine as tables.
    "REVOKE SHOW TABLES, SELECT, INSERT, CREATE TABLE, CREATE VIEW ON default.*",
)
"""Everything that works on tables; none of the sources (FILE, URL, REMOTE, S3, MYSQL and the like),
no dictionary, function, user, named collection or backup, no SYSTEM SHUTDOWN. What is not granted
is refused, whatever the next version invents."""

FIXED_SETTINGS: Final = (
    # They name a file that an answer or an error would show, or that would be written.
    "format_schema",
    "format_template_row",
    "format_template_resultset",
    "input_format_record_errors_file_path",
    "into_outfile_create_parent_directories",
    # They open a connection.
    "format_avro_schema_registry_url",
    "url_base",
    # They would let a text say what this front cannot read in it.
    "allow_experimental_eval_table_function",
    "implicit_select",
    "dialect",
)

MERGE_FACTOR: Final = 16
"""Parts of like size that are merged into one; ClickHouse's own default is 5. Merging was half of
the engine's CPU: 8,400,000 rows in 43 inserts were rewritten 0.7 times instead of 2.3, and 5,000
requests/s of 100 points took 102 instead of 142 µs each. A model of the engine's choices has 2.8
instead of 5.0 after an hour of inserts a second, with 18 parts at a time instead of 12; reads of
one run took as long. The engine lowers it by itself from 10 parts on, to 2 at 50."""
MERGE_NICE: Final = 19
"""Of the threads that merge: what they do can wait, and a long merge would else take a third of two
busy cores for as long as it lasts. 5,000 requests/s for 42 s, the engine at 5: P95 57 instead of
404 and 578 ms, with no more parts than without. Beside two workers that clients saturated for 50 s
there were 122 parts instead of 61 (inserts are slowed from 1,000), and 26 % more was delivered.
The engine sets it for each merge, and only with CAP_SYS_NICE; without, merges are like inserts."""
_NICE_AFTERWARDS: Final = 0
"""What the engine gives a thread back to when its merge is done."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of the engine, chosen for a machine that it shares with the workers."""

    memory_bytes_max: int
    query_memory_bytes_max: int
    read_seconds: int = 60
    read_seconds_max: int = 3_600
    threads_max: int = 2


def limits_of_this_machine() -> EngineLimits:
    """Half of the memory, at most 4 GiB, for the whole engine; two thirds of that for one query."""
    total = min(4 * 2**30, memory_bytes() // 2)
    return EngineLimits(memory_bytes_max=total, query_memory_bytes_max=total * 2 // 3)


def memory_bytes(
    own: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")
) -> int:
    """The machine's memory, or less where a container or a service manager allows less.

    Args:
        own: names the process's control group.
        groups: where control groups are mounted; both versions are read.
    """
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return found[0]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        # Inside a container the path may be the host's, and its own group the top that it sees.
        group = top / path.lstrip("/")
        for place in (group, *group.parents):
            if place == top or top in place.parents:
                found += _limit(place / name)
    return min(found)


def _limit(file: Path) -> list[int]:
    """What it allows; nothing for no limit (`max`) and for no file."""
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdecimal() and int(text) else []


def may_set_nice() -> bool:
    """Whether a thread of this process may become nice and come back, as one that merges does.

    Having CAP_SYS_NICE is not enough: in a user namespace (rootless and unprivileged containers) it
    is one that the kernel does not heed, and a filter of system calls may refuse. Where the way
    back fails, the engine aborts at its first merge, and again after each start.
    """
    allowed = []

    def there_and_back() -> None:
        try:
            for value in (MERGE_NICE, _NICE_AFTERWARDS):
                os.setpriority(os.PRIO_PROCESS, 0, value)  # in Linux: of this thread alone
        except OSError:
            return
        allowed.append(True)

    thread = threading.Thread(target=there_and_back, name="nice")  # it may stay nice, and ends
    thread.start()
    thread.join()
    return bool(allowed)


def write_config(path: Path, limits: EngineLimits) -> Path:
    """Writes both files into the engine's directory; returns the one to be named to chDB."""
    users = path / USERS_FILE
    users.write_text(_users_xml(limits))
    config = path / CONFIG_FILE
    config.write_text(_config_xml(users, path, limits))
    return config


def _config_xml(users: Path, path: Path, limits: EngineLimits) -> str:
    # The defaults are those of a server with hundreds of gigabytes; these suit two cores. Fewer
    # merges at once than two threads' would let one long merge hold up the small ones. (Pools of
    # the process, such as the one that removes merged parts with 128 threads, are made by `import
    # chdb` before any configuration is read; they cost idle threads, and no memory to speak of.)
    numbers = {
        "max_server_memory_usage": limits.memory_bytes_max,
        "background_pool_size": 2,
        "os_threads_nice_value_merge_mutate": MERGE_NICE if may_set_nice() else 0,
        "background_merges_mutations_concurrency_ratio": 2,
        "background_schedule_pool_size": 4,
        "background_common_pool_size": 2,
        "background_move_pool_size": 1,
        "background_fetches_pool_size": 1,
        "background_message_broker_schedule_pool_size": 1,
        "background_distributed_schedule_pool_size": 1,
        "mark_cache_size": 32 * 2**20,
        "uncompressed_cache_size": 0,
        "index_mark_cache_size": 8 * 2**20,
        "index_uncompressed_cache_size": 0,
        "primary_index_cache_size": 16 * 2**20,
        "mmap_cache_size": 64,
        "compiled_expression_cache_size": 16 * 2**20,
        "query_condition_cache_size": 8 * 2**20,
    }
    lines = "".join(f"  <{name}>{value}</{name}>\n" for name, value in numbers.items())
    return (
        "<clickhouse>\n"
        f"  <users_config>{escape(str(users))}</users_config>\n"
        f"  <user_files_path>{escape(str(path / 'user_files'))}/</user_files_path>\n"
        f"{lines}"
        f"  <merge_tree><merge_selector_base>{MERGE_FACTOR}</merge_selector_base></merge_tree>\n"
        "</clickhouse>\n"
    )


def _users_xml(limits: EngineLimits) -> str:
    fixed = "".join(f"   <{name}><const/></{name}>\n" for name in FIXED_SETTINGS)
    rights = "".join(f"   <query>{right}</query>\n" for right in RIGHTS)
    return f"""<clickhouse>
 <profiles><default>
  <max_threads>{limits.threads_max}</max_threads>
  <max_execution_time>{limits.read_seconds_max}</max_execution_time>
  <max_insert_threads>1</max_insert_threads>
  <async_insert>0</async_insert>
  <implicit_select>0</implicit_select>
  <max_memory_usage>{limits.query_memory_bytes_max}</max_memory_usage>
  <allow_introspection_functions>0</allow_introspection_functions>
  <constraints>
   <max_memory_usage><min>1</min><max>{limits.query_memory_bytes_max}</max></max_memory_usage>
   <max_execution_time><min>1</min><max>{limits.read_seconds_max}</max></max_execution_time>
   <max_threads><min>1</min><max>{limits.threads_max * 2}</max></max_threads>
{fixed}  </constraints>
 </default></profiles>
 <quotas><default/></quotas>
 <users><default>
  <password/>
  <networks><ip>::/0</ip></networks>
  <profile>default</profile>
  <quota>default</quota>
  <grants>
{rights}  </grants>
 </default></users>
</clickhouse>
"""
