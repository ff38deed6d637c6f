"""A server whose children are tiny: the supervisor is real, what it supervises is not.

Run as a script: `stand_in.py serve DATA_DIR PORT WORKERS [EMBEDDED_PORT]` is the server; it starts
itself again as worker, engine and preparation. Files in the data directory change what they do:
`deaf` stops a worker's beats, `broken-engine` and `broken-worker` let those end at once,
`no-catalogue` fails.
Each start and orderly end is a line in `events`.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from ingest.lifeline import Lifeline

KEY = "first_key-123"


def note(data_dir, text):
    with Path(data_dir, "events").open("a") as file:
        file.write(f"{text} {os.getpid()}\n")


async def child(name, lifeline, data_dir, host, port, *, shared):
    note(data_dir, f"start {name}")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    lifeline.when_orphaned(stop.set)

    async def answer(reader, writer):
        await reader.readline()
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{os.getpid()}".encode())
        writer.close()

    server = await asyncio.start_server(answer, host, port, reuse_port=shared)
    lifeline.ready(port=port)
    beat = asyncio.create_task(lifeline.beat())
    while not stop.is_set():
        if Path(data_dir, "deaf").exists() and name == "worker 0":
            Path(data_dir, "deaf").unlink()
            beat.cancel()
        try:
            async with asyncio.timeout(0.05):
                await stop.wait()
        except TimeoutError:
            pass
    beat.cancel()
    server.close()
    note(data_dir, f"end {name}")


def worker():
    lifeline = Lifeline.take()
    config = lifeline.config
    settings = config["settings"]
    if Path(config["data_dir"], "broken-worker").exists():
        note(config["data_dir"], "broken worker")
        raise SystemExit("the log cannot be read")
    coroutine = child(
        f"worker {config['slot']}",
        lifeline,
        config["data_dir"],
        settings["host"],
        settings["port"],
        shared=True,
    )
    asyncio.run(coroutine)


def engine():
    lifeline = Lifeline.take()
    data_dir = Path(lifeline.config["path"]).parent
    if (data_dir / "broken-engine").exists():
        note(data_dir, "broken engine")
        raise SystemExit(3)
    asyncio.run(
        child(
            "engine",
            lifeline,
            data_dir,
            lifeline.config["host"],
            lifeline.config["port"],
            shared=False,
        )
    )


def prepare():
    config = json.loads(sys.stdin.buffer.readline())
    if config["task"] == "tables":
        answer = {"applied": []}
    else:
        data_dir = Path(config["url"].partition("///")[2]).parent
        note(data_dir, "prepare catalogue")
        if (data_dir / "no-catalogue").exists():
            answer = {"error": "the disk is full: make room"}
        else:
            answer = {"key": KEY if not (data_dir / "has-key").exists() else None}
            (data_dir / "has-key").touch()
    print(json.dumps(answer))


def main():
    mode, *arguments = sys.argv[1:]
    if mode != "serve":
        {"worker": worker, "engine": engine, "prepare": prepare}[mode]()
        return
    # Here, so that the children start quickly.
    from ingest.programs import Commands
    from ingest.settings import load_settings
    from ingest.supervisor import serve

    data_dir, port, workers, embedded_port = arguments
    command = {name: (sys.executable, __file__, name) for name in ("worker", "engine", "prepare")}
    settings = load_settings(
        data_dir=data_dir, port=port, workers=workers, embedded_port=embedded_port
    )
    serve(settings, commands=Commands(**command, beat_seconds_max=4.0))


if __name__ == "__main__":
    main()
