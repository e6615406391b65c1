"""The keys of section [pairing] are the rules by which jobs are paired."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.pairing.config import PairingConfig


def test_a_site_says_how_much_slower_and_how_many_and_else_it_is_a_tenth_and_four() -> None:
    made = [config.rules for config in (PairingConfig(), PairingConfig(epsilon=0.3, members=2))]

    assert [(rules.epsilon, rules.members) for rules in made] == [(0.1, 4), (0.3, 2)]


@pytest.mark.parametrize(
    ("share", "pairs"),
    [
        ((), set()),
        (("*",), {"ml art", "art physics", "ml physics", " ml"}),
        (("ml+art",), {"ml art"}),
        (("ml + art", "art+physics"), {"ml art", "art physics"}),
        (("ml+art+physics",), {"ml art", "art physics", "ml physics"}),
        (("ml",), set()),
    ],
)
def test_accounts_share_that_are_named_together_and_each_with_itself(
    share: tuple[str, ...], pairs: set[str]
) -> None:
    may_share = PairingConfig(share=share).rules.may_share

    for pair in ("ml art", "art physics", "ml physics", " ml"):
        one, _, other = pair.partition(" ")
        assert may_share(one, other) == may_share(other, one) == (pair in pairs)
        assert may_share(one, one)


def test_no_more_members_are_planned_than_can_sit_on_a_device_but_two_at_least() -> None:
    assert [PairingConfig(members=3).seated(seats).members for seats in (1, 2, 3, 8)] == [2, 2, 3, 3]


@pytest.mark.parametrize(
    "wrong",
    [{"members": 1}, {"members": 5}, {"epsilon": -0.1}, {"epsilon": 100.0}, {"epsilon": float("nan")}],
)
def test_rules_that_mean_nothing_are_refused_with_the_value(wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()

    with pytest.raises(ConfigError, match=rf"\[pairing\].*{name} {value}"):
        PairingConfig(**wrong)
