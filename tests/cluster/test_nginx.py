"""What the shipped nginx does with answers, with none, and with what clients say of themselves.

The replicas are stand-ins here, each with one habit; real ones are in test_cluster.py.
"""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cluster.nginx import Nginx


@contextmanager
def stand_in(habit):
    """A server on a port of its own that does this with each request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            habit(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(status, body=b"", **headers):
    def habit(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return habit


def hang_up(handler):
    """Read all of the request, answer nothing: it may have been stored."""
    handler.close_connection = True


def show(handler):
    """The headers that arrived, as JSON."""
    answer(200, json.dumps(dict(handler.headers)).encode())(handler)


@pytest.fixture(scope="module")
def nginx():
    nginx = Nginx()
    with stand_in(show) as port:
        nginx.upstream([port])
        nginx.start()
    yield nginx
    nginx.close()


def post(nginx, path="/ingest/metrics", body=b"{}", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=20)
    try:
        connection.request("POST", path, body, headers)
        got = connection.getresponse()
        return got.status, dict(got.headers), got.read()
    finally:
        connection.close()


def test_the_refusals_of_two_full_replicas_reach_the_client_as_they_are(nginx):
    # Never a 502 for want of a replica: that would come at once, where Charon holds for room.
    with (
        stand_in(answer(503, b"full", Retry_After="7")) as one,
        stand_in(answer(503, b"full", Retry_After="7")) as two,
    ):
        nginx.upstream([one, two])
        for _ in range(20):
            status, headers, body = post(nginx)
            assert (status, headers["Retry-After"], body) == (503, "7", b"full")


def test_a_request_that_was_sent_and_not_answered_goes_to_the_other_replica(nginx):
    with stand_in(hang_up) as one, stand_in(answer(200)) as two:
        nginx.upstream([one, two])
        assert {post(nginx, body=b"x" * 2_000_000)[0] for _ in range(10)} == {200}


def test_a_request_that_nobody_answers_is_a_502_after_two_tries(nginx):
    with stand_in(hang_up) as one, stand_in(hang_up) as two:
        nginx.upstream([one, two])
        assert post(nginx)[0] == 502


def test_a_replica_hears_who_the_client_is_and_not_who_it_says_it_is(nginx):
    with stand_in(show) as one:
        nginx.upstream([one])
        claims = {"X-Forwarded-For": "10.9.8.7", "Authorization": "Bearer mlps_x"}
        _, _, body = post(nginx, **claims)
        heard = json.loads(body)
        assert heard["X-Forwarded-For"] == "127.0.0.1"
        assert heard["Authorization"] == "Bearer mlps_x"
        assert heard["Host"] == f"127.0.0.1:{nginx.port}"


def test_a_body_too_large_for_charon_is_left_for_charon_to_refuse(nginx):
    with stand_in(answer(413, b"the limit, by name")) as one:
        nginx.upstream([one])
        assert post(nginx, body=bytes(64 * 2**20 + 1))[2] == b"the limit, by name"


def test_no_balancer_shows_the_numbers_of_one_replica_as_if_they_were_all(nginx):
    with stand_in(answer(200)) as one:
        nginx.upstream([one])
        assert post(nginx, "/metrics")[0] == 404
