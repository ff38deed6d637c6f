"""Load, and the proof that it was stored: what was acknowledged against what ClickHouse holds.

``run`` sends a scenario on an open schedule, by ``locustfile`` or ``sockets``, and audits it
(``stored``); ``sampling``, ``visibility`` and ``backlog`` look on meanwhile. ``bench`` measures
parts, and a whole server in a ``closed_loop`` with wrk, ``peers`` beside VictoriaMetrics;
``bench_all`` all of docs/benchmarks.md. ``throwaway`` is the server that they start.
``oracle`` writes rows whose every value follows from their place, and audits the tables row by row.
``demo`` is a small training run, logged by the real SDK and read back.
"""
