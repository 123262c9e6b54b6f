"""The process of the service: connections, waiting requests, processes that compute, other versions, signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import uvicorn

from children import LIMIT, child, wait_until
from helpers import label_settings, label_store
from mlcl.cli import serve as verb
from mlcl.cli.main import main
from mlcl.errors import InputError
from mlcl.integrations.serving import server, workers
from mlcl.integrations.serving.app import Door
from mlcl.integrations.serving.limits import Limits, Refusal
from mlcl.integrations.serving.server import Entrance, Patient, Seldom, bound
from mlcl.integrations.serving.workers import AHEAD, HEAVY, LARGE, Answer, Gone, Workers
from mlcl.runs.run import run
from mlcl.runs.versions import rollback
from mlcl.taggers import load

JSON = {"Content-Type": "application/json"}
ROW = json.dumps({"vector": [0.5] * 8}).encode()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    base = tmp_path_factory.mktemp("stores")
    return {
        name: label_store(base, name, ids, images=False)
        for name, ids in (("old", [0, 1, 2]), ("new", [1, 3]))
    }


@pytest.fixture(scope="module")
def tagger(stores, tmp_path_factory):
    train = {"epochs": 1, "batch_size": 16, "lr": 0.1}
    settings = label_settings(stores["old"], "er", images=False, train=train)
    return run(settings, out=tmp_path_factory.mktemp("tagger") / "run").folder


class Fake(workers.Worker):
    """A process that answers when it is let."""

    def __init__(self, settings):
        super().__init__(self, None, None, light=settings["light"])
        self.folder, self.about = Path(settings["folder"]), {"fingerprint": "1"}
        self.returncode = None
        self.asked, self.go, self.status = [], asyncio.Event(), 200

    def send(self, kind, body, *, seconds):
        self.asked.append(body)

    async def receive(self, seconds):
        await self.go.wait()
        await asyncio.sleep(0)
        if self.status == "gone":
            self.kill()
            raise Gone
        return Answer(self.status if self.light else 200, self.about["fingerprint"].encode())

    async def wait(self):
        await asyncio.Event().wait()

    async def end(self):
        self.ended = True

    def kill(self):
        self.ended = True


@pytest.fixture
def started(monkeypatch):
    """Fakes in the order they are started."""
    found: list[Fake] = []

    async def start(settings):
        found.append(Fake(settings))
        return found[-1]

    monkeypatch.setattr(workers.Worker, "start", start)
    return found


async def here():
    return False


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def test_as_many_wait_as_can_be_answered_in_time(started):
    async def play():
        crew = Workers("run", limits=Limits(wait=5.0, seconds=LIMIT))
        await crew.start()
        asked = []
        for k in range(AHEAD + 3):
            asked.append(asyncio.create_task(crew.ask("item", b"%d" % k, gone=here)))
            await settle()
        crew._light.measure(0.2)
        assert started[0].asked == [b"%d" % k for k in range(AHEAD)]
        assert (crew.waiting, crew.wait(), crew.ready) == (
            3,
            pytest.approx(7.0),
            False,
        )  # those that were sent wait as well
        with pytest.raises(Refusal) as error:
            await crew.ask("item", b"", gone=here)
        assert (error.value.status, error.value.headers) == (503, {"Retry-After": "7"})
        with pytest.raises(Refusal):
            crew.check("item", 100)
        crew.check("batch", 100)  # others wait for other things
        started[0].go.set()
        assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * len(asked)
        assert crew.ready
        assert crew._light.seconds < 0.2  # it follows what is measured
        await crew.stop()

    asyncio.run(play())


def test_heavy_requests_have_a_process_of_their_own(started):
    async def play():
        crew = Workers("run", limits=Limits(seconds=LIMIT))
        await crew.start()
        light, heavy = started
        assert (light.light, heavy.light) == (True, False)
        light.go.set()
        light.status = HEAVY  # what turns out to be heavy goes to the other one as well
        asked = [
            asyncio.create_task(crew.ask(kind, body, gone=here))
            for kind, body in (("batch", b"b"), ("image", b"x" * LARGE + b"x"), ("image", b"bomb"))
        ]
        await settle()
        light.status = 200
        assert (await crew.ask("image", b"small", gone=here)).status == 200
        assert light.asked == [b"bomb", b"small"]
        heavy.go.set()
        assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
        assert [body[:4] for body in heavy.asked] == [b"b", b"xxxx", b"bomb"]
        await crew.stop()
        assert light.ended
        assert heavy.ended

    asyncio.run(play())


def test_nothing_is_computed_for_clients_that_have_gone(started, monkeypatch):
    monkeypatch.setattr(workers, "LOOK", -1.0)

    async def away():
        return True

    async def play():
        crew = Workers("run", limits=Limits(seconds=0.01))
        await crew.start()
        for _ in range(AHEAD):
            with pytest.raises(Refusal, match="no answer within"):
                await crew.ask("item", b"first", gone=here)
        crew.limits = Limits(seconds=LIMIT)
        asked = asyncio.create_task(crew.ask("item", b"second", gone=away))
        await settle()
        started[0].go.set()
        with pytest.raises(Refusal, match="has gone"):
            await asked
        assert started[0].asked == [b"first"] * AHEAD
        await crew.stop()

    asyncio.run(play())


def test_a_process_that_ends_is_replaced(started, monkeypatch):
    monkeypatch.setattr(workers, "BACKOFF", (0.0, 0.0))
    said = []

    async def play():
        crew = Workers("run", limits=Limits(seconds=LIMIT), report=said.append)
        await crew.start()
        started[0].go.set()
        started[0].status = "gone"
        bad, good = (asyncio.create_task(crew.ask("item", body, gone=here)) for body in (b"bad", b"good"))
        with pytest.raises(Refusal) as error:
            await bad
        assert error.value.status == 500
        await settle()
        assert len(started) == 3
        assert started[0].asked == [b"bad", b"good"]
        started[2].go.set()
        assert (await good).status == 200
        assert started[2].asked == [b"good"]
        assert (crew.restarts, said) == (1, ["a process that computes has ended; another one is started"])
        await crew.stop()

    asyncio.run(play())


def test_another_model_is_used_at_once_and_what_was_begun_ends_on_the_old_one(started):
    async def play():
        crew = Workers("run", limits=Limits(seconds=LIMIT))
        await crew.start()
        begun = [asyncio.create_task(crew.ask("item", b"begun", gone=here)) for _ in range(AHEAD)]
        await settle()
        waits = asyncio.create_task(crew.ask("item", b"waits", gone=here))
        await settle()
        await crew._reload()
        for fake in started[2:]:
            fake.about["fingerprint"] = "2"
            fake.go.set()
        assert (await waits).body == b"2"
        assert not any(one.done() for one in begun)
        started[0].go.set()
        assert [answer.body for answer in await asyncio.gather(*begun)] == [b"1"] * AHEAD
        await settle()
        assert [fake.ended for fake in started] == [True, True, False, False]
        await crew.stop()

    asyncio.run(play())


def test_processes_that_disagree_are_not_used(started, monkeypatch):
    real = workers.Worker.start

    async def start(settings):
        found = await real(settings)
        found.about = {"fingerprint": str(len(started))}
        return found

    monkeypatch.setattr(workers.Worker, "start", start)
    with pytest.raises(InputError, match="changed while it was loaded"):
        asyncio.run(Workers("run").start())
    assert all(fake.ended for fake in started)


@contextlib.contextmanager
def entrance(door=None, most=8):
    """An entrance, its port, and the connections that it let in."""
    entered: list[socket.socket] = []
    with bound("127.0.0.1", 0) as place:
        place.listen()
        found = Entrance(place, door or Door(), entered.append, most=most)
        port = place.getsockname()[1]
        found.start()
        try:
            yield port, entered
        finally:
            found.stop()
            for client in entered:
                client.close()


def sent(port, data):
    client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
    client.sendall(data)
    return client


def test_the_entrance_answers_whether_the_service_is_up_by_itself():
    door = Door(prefix="/tagger")
    with entrance(door) as (port, entered):
        for path in (b"/live", b"/health", b"/tagger/live"):
            with sent(port, b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\n\r\n") as client:
                head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK")
                assert int(re.search(rb"Content-Length: (\d+)", head)[1]) == len(body)
                assert json.loads(body) == {"status": "ok"}
        with sent(port, b"HEAD /live HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
            assert client.makefile("rb").read().endswith(b"\r\n\r\n")
        assert not entered
        for data in (
            b"GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
            b"GET /live HTTP/1.1\r\nHost: localhost\r\n",
            b"POST /live HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\0",
        ):
            before = len(entered)
            with sent(port, data):
                wait_until(lambda before=before: len(entered) > before)
                assert entered[-1].recv(4096) == data  # nothing of it was taken
    assert 'mlcl_requests_total{route="/live",status="200"} 3' in door.counters.text()


def test_connections_that_say_nothing_make_room(monkeypatch):
    with entrance(most=3) as (port, _):
        silent = [sent(port, b"") for _ in range(5)]
        for client in silent[:2]:
            assert client.recv(1) == b""
        with sent(port, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
            assert client.recv(15) == b"HTTP/1.1 200 OK"
        monkeypatch.setattr(server, "HEAD", 0.05)
        for client in silent[2:]:
            assert client.recv(1) == b""
        for client in silent:
            client.close()


async def nothing(scope, receive, send):
    """An application that reads no body."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@contextlib.asynccontextmanager
async def patient(app=nothing):
    """A server of patient connections; a function that opens one."""
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_level="critical", timeout_keep_alive=int(LIMIT)
    )
    running = uvicorn.Server(config)
    config.load()
    made = asyncio.get_running_loop().create_server(
        lambda: Patient(config, running.server_state, {}), "127.0.0.1", 0
    )
    async with await made as place:
        port = place.sockets[0].getsockname()[1]
        yield lambda: asyncio.open_connection("127.0.0.1", port)


async def closed(reader):
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), LIMIT)


def test_a_client_that_is_too_slow_is_left(monkeypatch):
    """Nothing at all, half a line, a byte now and then, half a body; whole requests are answered meanwhile."""

    async def talk():
        async with patient() as connect:
            drip, body = await connect(), await connect()
            for _ in range(2):
                drip[1].write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
                assert (await drip[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            monkeypatch.setattr(server, "HEAD", 0.2)
            silent, half = await connect(), await connect()
            half[1].write(b"GET / HT")
            body[1].write(
                b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nabc"
            )  # refused, and not drained
            drip[1].write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\nGET")
            for reader, _ in (silent, half, body, drip):
                await closed(reader)

    monkeypatch.setattr(server, "HEAD", LIMIT)
    asyncio.run(talk())


def test_a_client_that_takes_no_answer_is_left(monkeypatch):
    lost = []

    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not lost:
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"x" * 10**6, "more_body": True})

    async def talk():
        async with patient(endless) as connect:
            _, writer = await connect()
            writer.transport.pause_reading()
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            async with asyncio.timeout(LIMIT):
                while not lost:
                    await asyncio.sleep(0.01)
            writer.close()

    monkeypatch.setattr(server, "BODY", 0.1)
    monkeypatch.setattr(Patient, "connection_lost", _noted(Patient.connection_lost, lost))
    asyncio.run(talk())


def _noted(method, seen):
    def call(self, exc):
        seen.append(self)
        method(self, exc)

    return call


def test_where_there_are_too_many_the_one_that_waited_longest_makes_room(monkeypatch):
    monkeypatch.setattr(Patient, "most", 2)
    at_work = asyncio.Event()

    async def slow(scope, receive, send):
        await at_work.wait()
        await nothing(scope, receive, send)

    async def talk():
        async with patient(slow) as connect:
            busy = await connect()
            busy[1].write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            half = await connect()
            half[1].write(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nabc")
            await asyncio.sleep(0.05)
            late = await connect()
            await closed(half[0])  # though another one is older: that one has done its part
            at_work.set()
            assert (await busy[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            late[1].write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert (await late[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")

    asyncio.run(talk())


def test_small_answers_are_sent_at_once():
    """asyncio sets TCP_NODELAY on the connections of a socket whose protocol says TCP, and on no other."""
    with bound("127.0.0.1", 0) as place:
        assert place.proto == socket.IPPROTO_TCP
        place.listen()
        with pytest.raises(InputError, match="cannot be listened on"):
            bound("127.0.0.1", place.getsockname()[1])


def test_messages_about_requests_are_few(monkeypatch):
    seldom = Seldom()
    record = logging.LogRecord("x", logging.ERROR, "", 0, "a request failed", None, None)
    assert sum(seldom.filter(record) for _ in range(1000)) == server.LOGGED[0]
    monkeypatch.setattr(server, "LOGGED", (server.LOGGED[0], -1.0))
    assert seldom.filter(record)
    assert record.getMessage() == "995 messages were left out; a request failed"


def test_bad_arguments_are_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(verb.TOKEN, raising=False)
    here, secret = str(tmp_path), tmp_path / "token"
    secret.write_text("")
    for arguments, words in (
        ([], "holds no run"),
        (["--port", "99999"], "65535"),
        (["--workers", "0"], "--workers"),
        (["--prefix", "tagger/"], "a path such as /tagger"),
        (["--prefix", "//evil.example"], "a path such as /tagger"),
        (["--host", "0.0.0.0"], "--no-token"),
        (["--host", "::"], "--no-token"),
        (["--token", "a", "--no-token"], "expected one of them"),
        (["--token", ""], "--token is empty"),
        (["--token", "a b"], "--token is empty, or"),
        (["--token", f"@{secret}"], "--token is empty"),
        (["--token", f"@{secret}-absent"], "expected a token"),
    ):
        assert main(["serve", here, *arguments]) == 2
        assert words in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'mlcl\[serve\]'"):
        verb.require_serve()


def test_a_token_comes_from_the_command_a_file_or_the_environment(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("of-a-file\n")
    monkeypatch.setenv(verb.TOKEN, "of-the-environment")
    assert verb.find_token("given") == "given"
    assert verb.find_token(f"@{tmp_path / 'token'}") == "of-a-file"
    assert verb.find_token(None) == "of-the-environment"
    verb.check_reach("0.0.0.0", "given", without=False)
    verb.check_reach("0.0.0.0", None, without=True)
    verb.check_reach("127.0.0.1", None, without=False)


@contextlib.contextmanager
def serving(folder, *options, **settings):
    """A service as a process, and its address."""
    command = [sys.executable, "-m", "mlcl", "serve", str(folder), "--port", "0", *options]
    with child(command, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, **settings) as process:
        for line in process.stderr:
            if found := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                break
        yield process, int(found[1])


def ask(port, path, data=None, headers=JSON):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def children_of(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.slow
def test_a_service_survives_nonsense_a_killed_process_and_ends_on_sigterm(tagger, capsys):
    with serving(tagger, "--token", "open") as (process, port):
        headers = {**JSON, "Authorization": "Bearer open"}
        status, first = ask(port, "/predict", ROW, headers)
        assert status == 200
        assert ask(port, "/predict", ROW)[0] == 401
        rng = np.random.default_rng(0)
        for _ in range(50):  # what is no HTTP at all
            with sent(port, rng.bytes(300) + b"\r\n\r\n") as raw:
                assert raw.recv(12) == b"HTTP/1.1 400"
        assert main(["serve", str(tagger), "--port", str(port)]) == 2
        assert "cannot be listened on" in capsys.readouterr().err
        if sys.platform == "linux":
            for pid in children_of(process):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: ask(port, "/predict", ROW, headers) == (200, first))
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(LIMIT) == 0
        assert "Traceback" not in rest
        assert len(rest) < 2000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_processes_end_with_the_one_that_started_them(tagger):
    with serving(tagger) as (process, _):
        inside = children_of(process)
        assert len(inside) == 2
        process.kill()
        for pid in inside:
            wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))


def _is_zombie(pid):
    with contextlib.suppress(OSError):
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    return True


@pytest.mark.slow
def test_a_new_version_is_used_without_a_restart_and_a_broken_one_is_not(tagger, stores, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(tagger, folder)
    with serving(folder, "--follow") as (process, port):
        labels = ask(port, "/version")[1]["labels"]
        load(folder).update(stores["new"])
        wait_until(lambda: len(ask(port, "/version")[1]["labels"]) > len(labels), process)
        assert len(ask(port, "/predict", ROW)[1]["probabilities"]) > len(labels)
        weights = folder / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:-9])
        rollback(folder, to=1)
        for line in process.stderr:
            if "what was loaded stays in use" in line:
                break
        assert len(ask(port, "/predict", ROW)[1]["probabilities"]) > len(labels)
        assert ask(port, "/ready")[0] == 200
        shutil.copy(tagger / "weights.safetensors", weights)
        wait_until(lambda: ask(port, "/version")[1]["labels"] == labels, process)
        assert list(ask(port, "/predict", ROW)[1]["probabilities"]) == labels


@pytest.mark.slow
def test_idle_connections_beyond_all_files_keep_nobody_out_and_fill_no_log(tagger):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    with contextlib.ExitStack() as stack:
        process, port = stack.enter_context(serving(tagger, preexec_fn=few))
        half = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"
        for number in range(400):
            stack.enter_context(sent(port, half if number % 2 else b""))
        assert ask(port, "/live")[0] == 200
        assert ask(port, "/predict", ROW)[0] == 200
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(LIMIT) == 0
        assert len(rest) < 2000
