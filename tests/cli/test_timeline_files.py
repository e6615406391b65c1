"""The timeline as the files that people open: a page in a real browser, pictures, a trace."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from google.protobuf import json_format

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.timeline import FORMS, Work, form_of, write_timeline
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.browser import Page, chromium, needs_chromium
from tests.cli.turns import BEGAN, two_jobs

EVIL = "</script><script>window.evil=1</script><img src=x onerror=window.evil=1>'\"]}"
LABELS = "[...document.querySelectorAll('.role-axis-label text')].map(label => label.textContent)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def opened(browser: Page) -> Iterator[Page]:
    """A page, with the promise that at the end nothing was asked for but the file, and nothing went wrong."""
    browser.complaints.clear()
    browser.asked.clear()
    yield browser
    assert browser.complaints == []
    assert len(browser.asked) == 1


def show(page: Page, file: Path) -> None:
    page.open(file.as_uri())
    page.until("!!window.chart")


def middle(page: Page, selector: str) -> tuple[float, float]:
    """Return where the first element is that *selector* names."""
    box = page.value(
        "(box => [box.x + box.width / 2, box.y + box.height / 2])"
        f"(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    return box[0], box[1]


def bar(what: str) -> str:
    return f'path[aria-label="{what}"]'


@needs_chromium
def test_the_page_shows_a_lane_for_each_device_and_each_job(opened: Page, tmp_path: Path) -> None:
    slices, work = two_jobs()
    write_timeline(tmp_path / "run.html", slices, work, "A run")

    show(opened, tmp_path / "run.html")

    assert opened.value("document.title") == "A run"
    lanes = [label for label in opened.value(LABELS) if not label.replace(".", "").isdecimal()]
    assert lanes[::-1] == [
        "n1/0computes 85%",
        "n1/1computes 85%",
        "17 grpo-a4 turns, 3 switches",
        "18 grpo-b4 turns, 4 switches",
    ]
    assert opened.value(f"document.querySelectorAll({bar('job 17 grpo-a: holds')!r}).length") == 12
    opened.screenshot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000


@needs_chromium
def test_whoever_points_at_a_bar_sees_its_figures(opened: Page, tmp_path: Path) -> None:
    slices, work = two_jobs()
    write_timeline(tmp_path / "run.html", slices, work)
    show(opened, tmp_path / "run.html")

    opened.mouse("mouseMoved", *middle(opened, bar("job 18 grpo-b: switch: restore")))

    tip = opened.until("(document.querySelector('#vg-tooltip-element.visible') || {}).innerText")
    assert "job 18 grpo-b: switch: restore" in tip
    assert "0.070" in tip
    assert "phase train, group demo, lease 4, YIELDED" in tip
    assert "snapshot 0.090 s, restore 0.070 s, handover 0.004 s; 48.0 MiB" in tip


@needs_chromium
def test_the_wheel_looks_closer_and_a_double_click_goes_back(opened: Page, tmp_path: Path) -> None:
    slices, work = two_jobs()
    write_timeline(tmp_path / "run.html", slices, work)
    show(opened, tmp_path / "run.html")
    shown = "window.chart.view.scale('x').domain()"
    before, at = opened.value(shown), middle(opened, bar("job 17 grpo-a: holds"))

    opened.mouse("mouseWheel", *at, deltaX=0, deltaY=-400)
    closer = opened.until(f"(now => now[1] - now[0] < {before[1] * 0.9} && now)({shown})")
    for kind, clicks in (
        ("mousePressed", 1),
        ("mouseReleased", 1),
        ("mousePressed", 2),
        ("mouseReleased", 2),
    ):
        opened.mouse(kind, *at, button="left", clickCount=clicks)
    again = opened.until(f"(now => now[1] - now[0] > {before[1] * 0.99} && now)({shown})")

    assert before[0] <= closer[0] < closer[1] <= before[1]
    assert again == pytest.approx(before)


@needs_chromium
def test_what_users_have_named_is_shown_as_text(opened: Page, tmp_path: Path) -> None:
    slices, _ = two_jobs()
    for item in slices:
        item.job_name = item.phase = item.group = EVIL
    write_timeline(tmp_path / "run.html", slices, [Work(BEGAN, BEGAN + 1, "17", EVIL, "n1/0")], title=EVIL)

    show(opened, tmp_path / "run.html")
    opened.mouse("mouseMoved", *middle(opened, ".mark-rect path"))
    tip = opened.until("(document.querySelector('#vg-tooltip-element.visible') || {}).innerText")

    assert "<script>window.evil" in tip
    assert opened.value("[window.evil, document.images.length, document.title]") == [None, 0, EVIL]


@needs_chromium
@pytest.mark.parametrize("slices", [[], [pb.Slice(job_id="1", requested=BEGAN, state="WAITING")]])
def test_nothing_yet_can_be_drawn(opened: Page, tmp_path: Path, slices: list[pb.Slice]) -> None:
    write_timeline(tmp_path / "run.html", slices)

    show(opened, tmp_path / "run.html")

    assert opened.value("document.querySelectorAll('#chart svg.marks').length") == 1


@needs_chromium
def test_a_page_of_thousands_of_turns_is_drawn_as_pixels(opened: Page, tmp_path: Path) -> None:
    slices, work = two_jobs(100)
    write_timeline(tmp_path / "run.html", slices, work)

    show(opened, tmp_path / "run.html")

    assert opened.value("document.querySelectorAll('#chart canvas.marks').length") == 1


def test_the_picture_for_papers_has_the_lanes_and_the_phases_as_text(tmp_path: Path) -> None:
    slices, work = two_jobs()

    write_timeline(tmp_path / "run.svg", slices, work, "A run", form="svg")

    texts = [(part.text or "").strip() for part in ElementTree.parse(tmp_path / "run.svg").iter()]  # noqa: S314
    assert {"A run", "n1/0", "n1/1", "17 grpo-a", "18 grpo-b", "switch: snapshot"} <= set(texts)
    # The names of phases on two devices and one job for each turn.
    assert texts.count("rollout") == texts.count("train") == 4 * 3


def test_a_title_that_is_no_text_is_refused_in_one_short_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.json").write_text(
        "\n".join(json_format.MessageToJson(i, indent=None) for i in two_jobs()[0])
    )
    given = ["--from-json", str(tmp_path / "s.json"), "-S", "2025-01-01"]

    status = main(["timeline", *given, "--title", "a \udcff", "-o", str(tmp_path / "run.html")])

    err = capsys.readouterr().err
    assert (status, err.count("\n")) == (1, 1)
    assert "is no text" in err
    assert len(err) < 200


def test_a_png_has_twice_the_pixels_of_the_screen(tmp_path: Path) -> None:
    slices, work = two_jobs()

    write_timeline(tmp_path / "run.png", slices, work, form="png")

    head = (tmp_path / "run.png").read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", head[16:])[0] > 2000


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("run.html", "html"),
        ("run.SVG", "svg"),
        ("run.png", "png"),
        ("run.pftrace", "perfetto"),
        ("run.perfetto-trace", "perfetto"),
        ("run", "html"),
        ("run.2.html", "html"),
    ],
)
def test_the_name_of_the_file_says_its_form(name: str, form: str) -> None:
    assert form_of(Path(name)) == form
    assert form in FORMS


@pytest.mark.parametrize("name", ["run.pdf", "run.html.txt", "run.svg.gz"])
def test_a_form_that_there_is_not_is_refused_and_not_written_as_a_page(name: str) -> None:
    with pytest.raises(BadArgument, match=r"known are \.html, .*; or say --format"):
        form_of(Path(name))


def read_trace(path: Path) -> tuple[dict[int, Any], dict[str, list[tuple[str, float, float]]]]:
    """Return the descriptors of a trace, and (name, begin, end) of each slice by path of its track's names.

    Holds the trace to what Perfetto needs: it parses as a Trace of the published protos, each event is on a
    track that was described before it, the ends on a track fit the begins, and time does not go back there.
    """
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    tracks: dict[int, Any] = {}
    found = defaultdict[str, list[tuple[str, float, float]]](list)
    open_: dict[int, list[tuple[str, int]]] = defaultdict(list)
    last: dict[int, int] = {}
    trace = Trace.FromString(path.read_bytes())
    assert trace.SerializeToString() == path.read_bytes()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks
            assert not track.HasField("parent_uuid") or track.parent_uuid in tracks
            tracks[track.uuid] = track
            continue
        event, at = packet.track_event, packet.timestamp
        assert packet.trusted_packet_sequence_id
        assert at >= last.get(event.track_uuid, 0)
        last[event.track_uuid] = at
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not open_[event.track_uuid], "slices of one track overlap"
            open_[event.track_uuid].append((event.name, at))
        else:
            assert event.type == event.TYPE_SLICE_END
            name, begun = open_[event.track_uuid].pop()
            found[named(tracks, event.track_uuid)].append((name, begun / 1e9 - BEGAN, at / 1e9 - BEGAN))
    assert not any(open_.values())
    return tracks, found


def named(tracks: dict[int, Any], number: int) -> str:
    track = tracks[number]
    above = f"{named(tracks, track.parent_uuid)}/" if track.HasField("parent_uuid") else ""
    return above + track.name.replace("/", ":")


def test_the_trace_has_each_turn_on_the_tracks_of_its_devices_and_job(tmp_path: Path) -> None:
    slices, work = two_jobs()

    write_timeline(tmp_path / "run.pftrace", slices, work, "A run", form="perfetto")

    _, found = read_trace(tmp_path / "run.pftrace")
    assert set(found) == {
        "A run/device n1:0",
        "A run/device n1:1",
        "A run/job 17 grpo-a",
        "A run/job 17 grpo-a: state",
        "A run/job 18 grpo-b",
        "A run/job 18 grpo-b: state",
        "A run/device 0 computes",
        "A run/device 1 computes",
    }
    held = [one for one in found["A run/device n1:0"] if one[0] in ("17 rollout", "18 train")]
    ours = [i for i in slices if (i.job_id, i.phase) in (("17", "rollout"), ("18", "train"))]
    assert held == [
        (f"{i.job_id} {i.phase}", pytest.approx(i.start - BEGAN), pytest.approx(i.end - BEGAN)) for i in ours
    ]
    assert [name for name, _, _ in found["A run/job 18 grpo-b"]][:4] == [
        "waiting",
        "snapshot",
        "handover",
        "18 rollout",
    ]


def test_turns_of_one_job_that_overlap_are_on_tracks_of_one_name(tmp_path: Path) -> None:
    slices = [
        pb.Slice(job_id="1", role=role, phase=role, devices=[device], requested=BEGAN + at, start=BEGAN + at)
        for role, device, at in (("trainer", "n1/0", 0), ("sampler", "n1/1", 1))
    ]

    write_timeline(tmp_path / "run.pftrace", slices, form="perfetto", now=BEGAN + 3)

    tracks, found = read_trace(tmp_path / "run.pftrace")
    assert found["interleave/job 1"] == [("1 trainer", 0, 3), ("1 sampler", 1, 3)]
    assert sum(track.name == "job 1" for track in tracks.values()) == 2
