"""Names from outside: what is allowed, and that the documents say the same as the code."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import BadName
from slurm_interleave.client.core.names import (
    GROUP_NAME,
    GROUP_NAME_RULE,
    PHASE_MAX,
    parse_group_name,
    parse_job_id,
    parse_phase,
)

ROOT = Path(__file__).parents[1]
LETTERS_AND_DIGITS = string.ascii_letters + string.digits


def allowed_by_the_words(text: str) -> bool:
    """The rule as the refusal words it, spelled out anew."""
    return (
        1 <= len(text) <= 63
        and all(c in LETTERS_AND_DIGITS + "._-" for c in text)
        and text[0] in LETTERS_AND_DIGITS
    )


@given(st.text(st.sampled_from("aZ09._-"), max_size=66) | st.text(max_size=66))
def test_a_group_name_is_allowed_as_the_rule_words_it(text: str) -> None:
    if allowed_by_the_words(text):
        assert parse_group_name(text) == text
    else:
        with pytest.raises(BadName, match=re.escape(GROUP_NAME_RULE)):
            parse_group_name(text)


@pytest.mark.parametrize(
    "text", ["", "-a", ".a", "_a", "a b", "a\n", "ä", "٣", "a" * 64, "a;b", "a,b", "a/b"]
)
def test_a_bad_group_name_is_shown_with_what_is_allowed(text: str) -> None:
    with pytest.raises(BadName) as caught:
        parse_group_name(text)

    assert repr(text) in str(caught.value)
    assert GROUP_NAME_RULE in str(caught.value)


def test_no_group_name_can_break_a_file_name_or_an_admin_comment() -> None:
    longest = "a" * 63

    assert GROUP_NAME.fullmatch(longest)
    for separator in "/;=,\0\n %$`'\"\\":
        assert not GROUP_NAME.fullmatch(f"a{separator}b")
    assert not GROUP_NAME.fullmatch("..")


@pytest.mark.parametrize("text", ["17", "17_3", "17+1", "demo-1", "a.b"])
def test_job_ids_of_slurm_and_others_are_allowed(text: str) -> None:
    assert parse_job_id(text) == text


@pytest.mark.parametrize("text", ["", " 17", "17\n", "../17", "17;id", "a" * 129, "-17"])
def test_a_job_id_that_could_be_a_path_or_an_option_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        parse_job_id(text)


@given(st.text(max_size=300))
def test_a_phase_is_any_printable_text_cut_to_its_length(text: str) -> None:
    phase = parse_phase(text)

    assert len(phase) == min(len(text), PHASE_MAX)
    assert phase.isprintable()
    assert parse_phase(phase) == phase


def test_documents_that_word_the_rule_word_it_as_the_code_does() -> None:
    said = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
        for line in path.read_text().splitlines()
        if "to 63 characters" in line and GROUP_NAME_RULE not in " ".join(line.split())
    ]

    assert said == []
