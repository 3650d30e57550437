# SPDX-License-Identifier: MIT
"""A Dask cluster of two workers decodes and merges to the very same files as this machine alone, from folders and from
an S3-compatible store."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from ptweave.cli import main
from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks
from ptweave.data.store import bundle_at, matching
from ptweave.decode.cluster import connect
from ptweave.decode.flow import decode_flow
from support.command import ptweave
from support.random_program import random_run
from support.recorded import files, pipeline
from support.trace_bundle import TraceBundle

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "s3://runs"
SECRET = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A store, reached by what is in the environment, by us and by workers."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SECRET, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        system = fsspec.filesystem("s3")
        system.mkdir(BUCKET)
        yield system
    server.stop()


@pytest.fixture(scope="module")
def address(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                                  memory_limit=0, local_directory=str(tmp_path_factory.mktemp("dask"))) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipeline(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def local(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same run decoded and merged here."""
    bundle = tmp_path_factory.mktemp("local") / "run.ptw"
    shutil.copytree(recorded, bundle)
    assert main(["decode", "-q", "-j", "1", str(bundle)]) == 0 and main(["merge", "-q", str(bundle)]) == 0
    found = files(bundle)
    assert len(found) > 12
    return found


def test_tasks_of_one_run_give_the_same_tables(address: str, tmp_path: Path) -> None:
    """Cut so small that there are many tasks and parts."""
    machine = random_run(2003, tmp_path, steps=3000)
    found = []
    with connect(address) as client:
        for name, cluster in (("a", None), ("b", client)):
            made = TraceBundle(tmp_path / f"{name}.ptw").map(machine.code.data, machine.code.base, name="code")
            bundle = made.thread(machine.packets.data).write()
            report = decode_flow(bundle, size=300, part_rows=100, cluster=cluster)
            found.append(files(bundle.path))
            assert report.tasks > 4
    assert found[0] == found[1] and any("flow/3.parquet" in name for name in found[0])
    decode_flow(bundle, size=300, part_rows=1 << 20)
    assert files(bundle.path) != found[0], "what is compared does not see a difference"


def test_a_folder_comes_to_the_same_files(address: str, recorded: Path, local: dict[str, str], tmp_path: Path,
                                          capfd: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "run.ptw"
    shutil.copytree(recorded, bundle)
    for step in ("decode", "merge"):
        assert main([step, "--cluster", address, str(bundle)]) == 0
        assert "nothing lost" in capfd.readouterr().err
    assert files(bundle) == local


def test_runs_in_a_store_come_to_the_same_files(address: str, store: Any, recorded: Path, local: dict[str, str],
                                                tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        store.put(str(recorded), f"{BUCKET}/{name}.ptw", recursive=True)
    store.pipe_file(f"{BUCKET}/a.ptw/tables/flow/7.parquet", b"of an earlier decode")
    store.pipe_file(f"{BUCKET}/none.ptw/trace/0.pt", b"x")
    for step in ("decode", "merge"):
        assert main([step, "--cluster", address, f"{BUCKET}/*.ptw"]) == 2
        told = capfd.readouterr().err
        assert told.count("nothing lost") == 2 and "is not a run bundle" in told
        assert len(told.splitlines()) == 3
    for name in ("a", "b"):
        store.invalidate_cache()
        store.get(f"{BUCKET}/{name}.ptw", str(tmp_path / name), recursive=True)
        assert files(tmp_path / name) == local
        assert Bundle.open(tmp_path / name).manifest.steps.keys() >= {"decode", "merge"}


def test_what_fails_leaves_the_store_as_it_was(store: Any, recorded: Path) -> None:
    store.put(str(recorded), f"{BUCKET}/kept.ptw", recursive=True)
    before = store.find(f"{BUCKET}/kept.ptw", detail=True)
    with pytest.raises(RuntimeError), bundle_at(f"{BUCKET}/kept.ptw") as bundle:
        (bundle.path / "run.json").write_text("{}")
        raise RuntimeError
    store.invalidate_cache()
    assert store.find(f"{BUCKET}/kept.ptw", detail=True) == before


def test_a_name_that_leads_out_of_the_bundle_is_refused(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe_file("/x.ptw/run.json", b"{}")
    system.store["/x.ptw/../../escaped"] = system.store["/x.ptw/run.json"]
    try:
        with pytest.raises(BadInput, match="leads out"), bundle_at("memory://x.ptw"):
            pass
    finally:
        system.store.clear()


@pytest.mark.parametrize("step", ["decode", "merge"])
def test_a_store_without_credentials_is_one_line_that_says_what_to_do(step: str) -> None:
    nobody = {**SECRET, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true",
              "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    done = ptweave(step, "--cluster", "tcp://127.0.0.1:9", "s3://runs/2026-*/*.ptw", env=nobody)
    assert done.status == 3
    assert done.err == ("ptweave: s3://runs/2026-*/*.ptw: cannot be read or written (Unable to locate credentials): "
                        "look at the store's address, your credentials and rights\n")


class _Refused(Exception):
    """As stores' libraries have them: no OSError."""


@pytest.mark.parametrize("call", ["glob", "find", "get_file", "put_file", "rm_file"])
def test_whatever_a_store_s_library_raises_is_an_error_that_names_the_run(call: str, tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    made = TraceBundle(tmp_path / "x.ptw").write().path
    system.put(f"{made}/", "/x.ptw/", recursive=True)
    system.pipe_file("/x.ptw/images/gone", b"x")

    def change() -> None:
        for url in matching("memory://x.pt?"):
            with bundle_at(url) as bundle:
                (bundle.path / "images/gone").unlink()
                (bundle.path / "images/new").write_bytes(b"y")

    def refuse(*_: object, **__: object) -> None:
        raise _Refused("no entry")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(type(system), call, refuse)
            with pytest.raises(MachineLacks, match=r"memory://.*x\.pt.: cannot be read or written \(no entry\)"):
                change()
        change()
        assert system.exists("/x.ptw/images/new") and not system.exists("/x.ptw/images/gone")
    finally:
        system.store.clear()


def clients() -> set[int]:
    """Dask's clients that there are."""
    return {id(one) for one in gc.get_objects() if type(one) is distributed.Client}


def test_a_cluster_that_is_not_there_is_one_line(recorded: Path, capfd: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptweave.decode.cluster.SECONDS", 1)
    with pytest.raises(MachineLacks, match="no Dask scheduler answers"):
        connect("tcp://127.0.0.1:9")
    assert main(["merge", "--cluster", "nonsense://x", str(recorded)]) == 2
    assert len([line for line in capfd.readouterr().err.splitlines() if line.startswith("ptweave: ")]) == 1


@pytest.mark.parametrize("there, error", [("tcp://127.0.0.1:9", MachineLacks), ("nonsense://x", BadInput)])
def test_a_client_that_cannot_connect_is_gone_at_once(there: str, error: type[Exception],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to be collected whenever that may be, it closes itself while the next one begins, and both wait for ever."""
    monkeypatch.setattr("ptweave.decode.cluster.SECONDS", 1)
    gc.collect()
    gc.disable()
    try:
        before = clients()
        with pytest.raises(error):
            connect(there)
        assert clients() <= before
    finally:
        gc.enable()


def test_control_dask_leaves_a_client_that_cannot_connect() -> None:
    gc.collect()
    gc.disable()
    try:
        before = clients()
        with pytest.raises(OSError):
            distributed.Client("tcp://127.0.0.1:9", timeout=1, set_as_default=False)
        assert len(clients() - before) == 1
    finally:
        gc.enable()
        gc.collect()


def test_a_run_that_is_not_decoded_is_not_merged_by_a_cluster(address: str, recorded: Path,
                                                             capfd: pytest.CaptureFixture[str]) -> None:
    """What a worker fetches to merge is without packets."""
    assert main(["merge", "--cluster", address, str(recorded)]) == 2
    assert "is not decoded yet: run ptweave decode" in capfd.readouterr().err


def test_a_run_in_a_store_needs_a_cluster(capfd: pytest.CaptureFixture[str]) -> None:
    for step in ("decode", "merge"):
        assert main([step, "memory://runs/a.ptw"]) == 2
        err = capfd.readouterr().err
        assert "memory://runs/a.ptw: is in a store: " in err and "--cluster" in err


def test_several_runs_need_a_cluster(recorded: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for step in ("decode", "merge"):
        assert main([step, str(recorded), str(recorded)]) == 2
        assert "several go with --cluster" in capfd.readouterr().err


