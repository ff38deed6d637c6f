"""Load, and the proof that it was stored: what was acknowledged against what ClickHouse holds.

``oracle`` writes rows whose every value follows from their place, and audits the tables row by row.
``closed_loop`` measures requests a second, CPU a request and latency with wrk.
``demo`` is a small training run, logged by the real SDK and read back.
"""
