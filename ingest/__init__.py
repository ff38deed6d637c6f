"""The server: its processes, its HTTP interfaces, and the command line.

Processes, all started by exec::

    charon serve ──▶ supervisor ──▶ embedded     ClickHouse, where no address of one is set
                                ──▶ prepare      catalogue and tables brought up to date, once
                                ──▶ workers      one port, a shard and an event loop each

``settings`` is read by the command alone and handed on; ``parts`` puts a worker together, and says
in which order its parts are closed.

A request's way through a worker::

    connection ─▶ lane ─▶ lane_receiving ──────────────▶ decode ─▶ storing ─▶ buffer
               └▶ aiohttp ─▶ app ─▶ receiving ─▶ intake ─┘

``lane`` is the short way of plain requests; all others go through aiohttp. Keys (``auth``), memory
(``admission``), runs (``runs_directory``), refusals and counters are objects that both ways share,
and ``answers`` is the one table from error to HTTP status.

The run API is ``api_*``: an endpoint is one value (``api_endpoints``), from which its route and its
description follow. The embedded engine is ``embedded*``, the commands are ``cli*``.
``beside_pluto`` is what the role `ingest` has instead of a catalogue.
"""
