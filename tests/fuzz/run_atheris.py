"""Runs a target under atheris, which is no dependency of ours: `pip install atheris` first.

python tests/fuzz/run_atheris.py decoder|encodings|frames [libFuzzer's arguments]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["ingest", "buffer", "schema"]):
    from tests.fuzz import targets


def decoder(data: bytes) -> None:
    head, body = data[:4], data[4:]
    targets.decoder_agrees_with_itself(body, head[:3], targets.KINDS[sum(head[3:]) % 3])


def frames(data: bytes) -> None:
    if len(data) >= 12:
        damage = [(int.from_bytes(data[at : at + 2], "big"), 1 + data[at] % 255) for at in (0, 2)]
        targets.planted_frames_stay_values([data[4:12]], damage, data[12:])


if __name__ == "__main__":
    name = sys.argv.pop(1)
    chosen = {"decoder": decoder, "encodings": targets.encodings_end, "frames": frames}[name]
    atheris.Setup(sys.argv, chosen)
    atheris.Fuzz()
