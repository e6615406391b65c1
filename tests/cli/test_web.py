"""`interleave web` as a user meets it."""

from __future__ import annotations

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.conftest import Call, Outcome
from tests.cli.server import GivenOrchestrator, served


def ask(call: Call, page: pb.OpenPageReply) -> Outcome:
    given = GivenOrchestrator()
    given.page = page
    with served(given) as address:
        return call(main, "web", "--address", address)


def test_the_link_alone_is_on_stdout_and_how_to_get_there_beside_it(call: Call) -> None:
    outcome = ask(call, pb.OpenPageReply(url="http://127.0.0.1:9104/s3cret/", until=1.75e9, loopback=True))

    assert (outcome.status, outcome.out) == (0, "http://127.0.0.1:9104/s3cret/\n")
    assert outcome.err.startswith("good until 2025-06-15T")
    assert "ssh -L 9104:127.0.0.1:9104 HOST" in outcome.err


def test_behind_a_proxy_there_is_nothing_more_to_say(call: Call) -> None:
    outcome = ask(call, pb.OpenPageReply(url="https://head/il/s3cret/", until=1.75e9))

    assert outcome.out == "https://head/il/s3cret/\n"
    assert "ssh" not in outcome.err


def test_where_there_is_no_page_one_line_says_who_can_change_that(call: Call) -> None:
    outcome = ask(call, pb.OpenPageReply())

    assert outcome.status == 1
    assert outcome.err == (
        "interleave: error: interleaved serves no web page here; an administrator can set [web] listen\n"
    )
