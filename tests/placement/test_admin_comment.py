from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import BadName
from slurm_interleave.client.core.names import GROUP_NAME, GroupName
from slurm_interleave.orchestrator.placement.admin_comment import AdminComment, format_comment, parse_comment
from slurm_interleave.orchestrator.placement.plan import Placement

comments = st.builds(
    AdminComment,
    group=st.from_regex(GROUP_NAME, fullmatch=True).map(GroupName),
    nodes=st.integers(1, 999),
    devices=st.integers(1, 16),
    role=st.sampled_from(["", "trainer", "sampler"]),
    backend=st.sampled_from(["", "cuda", "app_channel+cuda"]),
    max_wait_s=st.integers(0, 9999),
    profile=st.sampled_from(["", "math-7B"]),
    max_slowdown=st.none() | st.integers(0, 1000),
)


@given(comments)
def test_a_comment_survives_being_written_and_read(comment: AdminComment) -> None:
    assert parse_comment(format_comment(comment)) == comment


def test_the_held_form_is_what_job_submit_writes() -> None:
    begin = "interleave:v1;group=demo;nodes=2;devices=8;role=trainer;"
    short = AdminComment(GroupName("demo"), 2, 8, "trainer")

    for text, comment in (
        (f"{begin}state=held", short),
        (f"{begin}backend=cuda;max_wait=600;state=held", replace(short, backend="cuda", max_wait_s=600)),
        (f"{begin}profile=math;max_slowdown=0;state=held", replace(short, profile="math", max_slowdown=0)),
    ):
        assert parse_comment(text) == comment
        assert format_comment(comment) == text


def test_a_placed_comment_names_lane_and_indices() -> None:
    placement = Placement("1", "demo", "", ("n1",), (0, 3), "ilva")
    comment = AdminComment(GroupName("demo"), 1, 2).placed(placement)

    text = format_comment(comment)

    assert text == "interleave:v1;group=demo;nodes=1;devices=2;role=;lane=ilva;indices=0,3;state=placed"
    assert parse_comment(text) == comment


@pytest.mark.parametrize("text", ["", "please run soon", "interleave:v2;group=demo"])
def test_a_comment_of_somebody_else_is_not_ours(text: str) -> None:
    assert parse_comment(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "group=demo;nodes=1;devices=1;role=",
        "group=de mo;nodes=1;devices=1;role=;state=held",
        "group=demo;nodes=x;devices=1;role=;state=held",
        "group=demo;nodes=0;devices=1;role=;state=held",
        "group=demo;nodes=1;devices=-1;role=;state=held",
        "",
    ],
)
def test_an_unusable_comment_of_ours_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(BadName, match="cannot be used"):
        parse_comment(f"interleave:v1;{text}")
