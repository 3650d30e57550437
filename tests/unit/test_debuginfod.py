# SPDX-License-Identifier: MIT
"""debuginfod: only what was asked for is believed, and no server can take more than its share."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptweave.data.errors import BadInput
from ptweave.decode.debug_files import DebugFiles
from ptweave.decode.debug_servers import is_safe, servers_of
from ptweave.decode.debuginfod import Debuginfod, cache_folder
from ptweave.decode.elf import Elf
from ptweave.decode.naming import read_names
from support.elf_writer import ElfWriter

ID = bytes(range(20))
BUILD_ID = ID.hex()
DEBUG = ElfWriter().segment(0, 0x1000, 0x1000).build_id(ID).symbols([("hidden", 0x1000, 16, 2)]).data()

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Server:
    """An HTTP server on this machine that answers as a test says."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def sends(data: bytes) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(data)
    return answer


def says(status: int, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
    return answer


def drips(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b"x")
        time.sleep(0.05)


def drips_headers(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
    for _ in range(200):
        handler.wfile.write(b"x")
        time.sleep(0.05)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    servers: list[Server] = []

    def start(answer: Answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Serve = Callable[[Answer], Server]


def test_a_file_is_fetched_once_and_kept(tmp_path: Path, serve: Serve) -> None:
    server = serve(sends(DEBUG))
    client = Debuginfod([server.url + "/"], tmp_path / "cache")
    for _ in range(2):
        found = client.fetch(BUILD_ID)
        assert found is not None
        assert found.read_bytes() == DEBUG
    assert server.asked == [f"/buildid/{BUILD_ID}/debuginfo"]
    assert client.problems == []
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [f"{BUILD_ID}.debug"]


def test_names_come_from_the_fetched_file(tmp_path: Path, serve: Serve) -> None:
    import numpy as np

    server = serve(sends(DEBUG))
    elf = Elf(ElfWriter().segment(0, 0x1000, 0x1000).build_id(ID).data())
    named = read_names(elf, None, DebugFiles([], Debuginfod([server.url], tmp_path)))
    assert named.functions is not None
    assert named.functions.name(int(named.functions.find(np.array([0x1004], np.uint64))[0])) == "hidden"
    assert named.debug == str(tmp_path / f"{BUILD_ID}.debug")
    alone = read_names(elf, None).functions
    assert alone is not None
    assert len(alone) == 0


def test_another_build_is_thrown_away(tmp_path: Path, serve: Serve) -> None:
    server = serve(sends(ElfWriter().build_id(bytes(20)).data()))
    client = Debuginfod([server.url], tmp_path)
    assert client.fetch(BUILD_ID) is None
    assert len(client.problems) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_cached_file_of_another_build_is_fetched_again(tmp_path: Path, serve: Serve) -> None:
    server = serve(sends(DEBUG))
    (tmp_path / f"{BUILD_ID}.debug").write_bytes(b"damaged")
    assert Debuginfod([server.url], tmp_path).fetch(BUILD_ID) is not None
    assert len(server.asked) == 1


def test_a_server_that_does_not_have_it_is_no_problem_and_the_next_is_asked(tmp_path: Path, serve: Serve) -> None:
    none, has = serve(says(404)), serve(sends(DEBUG))
    client = Debuginfod([none.url, has.url], tmp_path)
    assert client.fetch(BUILD_ID) is not None
    assert client.problems == []
    assert client.fetch("00" * 20) is None
    assert len(none.asked) == 2


@pytest.mark.parametrize("answer", [says(500), says(302, Location="http://example.com/x"),
                                    says(302, Location="file:///etc/passwd"), sends(b"x" * 100000), drips,
                                    drips_headers, lambda handler: handler.wfile.write(b"noise\r\n\r\n")])
def test_a_server_that_misbehaves_is_said_once_and_not_asked_again(tmp_path: Path, serve: Serve,
                                                                   answer: Answer) -> None:
    server = serve(answer)
    client = Debuginfod([server.url], tmp_path, max_bytes=50000, max_seconds=0.5)
    began = time.perf_counter()
    assert client.fetch(BUILD_ID) is None
    assert client.fetch("11" * 20) is None
    assert time.perf_counter() - began < 5
    assert (len(server.asked), len(client.problems)) == (1, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_to_the_same_machine_is_followed(tmp_path: Path, serve: Serve) -> None:
    has = serve(sends(DEBUG))
    leads = serve(says(302, Location=f"{has.url}/elsewhere"))
    assert Debuginfod([leads.url], tmp_path).fetch(BUILD_ID) is not None


def test_nobody_there_is_said(tmp_path: Path, serve: Serve) -> None:
    server = serve(says(404))
    url = server.url
    server.close()
    client = Debuginfod([url], tmp_path)
    assert client.fetch(BUILD_ID) is None
    assert len(client.problems) == 1


@pytest.mark.parametrize("build_id", ["", "../../etc/passwd", "AB" * 20, "0" * 7, "xy" * 20, "00" * 20 + "\n"])
def test_what_is_no_build_id_is_not_asked_for(tmp_path: Path, serve: Serve, build_id: str) -> None:
    server = serve(sends(DEBUG))
    assert Debuginfod([server.url], tmp_path).fetch(build_id) is None
    assert server.asked == []


@pytest.mark.parametrize(("url", "safe"), [
    ("https://debuginfod.debian.net", True), ("http://127.0.0.1:8000", True), ("http://localhost/x", True),
    ("http://[::1]:80", True), ("http://debuginfod.debian.net", False), ("http://127.0.0.1.example.com", False),
    ("file:///etc", False), ("ftp://127.0.0.1", False), ("https://", False), ("", False), ("http://[", False)])
def test_only_https_and_this_machine_are_safe(url: str, safe: bool) -> None:
    assert is_safe(url) == safe


def test_servers_come_from_the_environment_and_must_be_there() -> None:
    assert servers_of({"DEBUGINFOD_URLS": "https://a.example https://b.example/x"}) == [
        "https://a.example", "https://b.example/x"]
    for environment in ({}, {"DEBUGINFOD_URLS": " "}, {"DEBUGINFOD_URLS": "https://a.example http://b.example"}):
        with pytest.raises(BadInput):
            servers_of(environment)


def test_the_cache_is_our_own() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/ptweave/debuginfod")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/ptweave/debuginfod")
