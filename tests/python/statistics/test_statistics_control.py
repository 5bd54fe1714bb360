"""The A/A control on simulated machines that do or do not differ from themselves."""

import json

import numpy as np
import pytest
from scipy import stats
from statistics_hosts import SimulatedHost, noisy, quiet

from vicinal.labs.statistics.control import control
from vicinal.labs.statistics.correct import correct
from vicinal.labs.statistics.samples import TooFewTrialsError
from vicinal.labs.statistics.signed_rank import signed_rank, signed_rank_p_values

BLOCKS = 15


@pytest.mark.parametrize("host", [quiet, noisy])
def test_a_host_without_difference_shows_none_in_95_of_100_seeds(host: SimulatedHost) -> None:
    silent = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        first, second = host(random, 1, BLOCKS)
        order = (random.random(BLOCKS) < 0.5).tolist()
        found = control(first[0], second[0], first_ran_first=order)
        silent += not found.differs
    assert silent >= 95


@pytest.mark.parametrize("host", [quiet, noisy])
def test_a_whole_family_claims_falsely_no_more_often_than_it_may(host: SimulatedHost) -> None:
    # Each study has four comparisons of equal sides, at 0.05 with Holm's correction.
    studies, members = 1000, 4
    ours, theirs = host(np.random.default_rng(23), studies * members, BLOCKS)
    every = signed_rank_p_values(np.log(ours / theirs)).reshape(studies, members)
    claiming = 0
    for row in every:
        family = correct({str(number): p_value for number, p_value in enumerate(row)})
        claiming += any(claim.claimed for claim in family.claims.values())
    assert stats.binomtest(claiming, studies, 0.05, alternative="greater").pvalue > 0.01
    # Without the correction, about four times as many studies claim: this test can fail.
    assert (every <= 0.05).any(axis=1).mean() > 0.12


def test_a_host_that_differs_from_itself_is_found_out() -> None:
    first, second = quiet(np.random.default_rng(1), 1, BLOCKS)
    found = control(first[0], second[0] * 1.1)
    assert found.differs
    assert found.ratio.value == pytest.approx(1 / 1.1, rel=0.03)
    assert found.warnings[0].startswith("the same environment measured twice differs from itself")
    assert found.floor > 0.08
    assert found.order_p_value is None


def test_an_order_that_matters_is_found_out_even_where_it_was_drawn() -> None:
    random = np.random.default_rng(2)
    first, second = (side[0] for side in quiet(random, 1, 24))
    ran_first = random.permutation(np.arange(24) < 12)
    found = control(
        np.where(ran_first, 1.2 * first, first),
        np.where(ran_first, second, 1.2 * second),
        first_ran_first=list(ran_first),
    )
    assert found.labels_p_value > 0.01
    assert found.order_p_value is not None
    assert found.order_p_value < 0.001
    assert "what runs first in its block differs" in found.warnings[0]
    assert json.loads(json.dumps(found.to_dict()))["warnings"] == list(found.warnings)


def test_what_is_above_the_floor_is_found_in_the_same_noise() -> None:
    first, second = (side[0] for side in noisy(np.random.default_rng(3), 1, 30))
    floor = control(first, second).floor
    assert 0 < floor < 0.1
    assert signed_rank(first * (1 + 2 * floor), second).p_value < 0.05


def test_a_control_needs_enough_trials_for_its_level() -> None:
    with pytest.raises(TooFewTrialsError, match=r"A/A control at 0\.01, which needs 8"):
        control([1.0] * 7, [1.0] * 7)
    with pytest.raises(TooFewTrialsError, match="which needs 9"):
        control([1.0] * 8, [1.0] * 8, first_ran_first=[True] * 8)
    with pytest.raises(ValueError, match="10 blocks have an order, 12 have trials"):
        control([1.0] * 12, [1.0] * 12, first_ran_first=[True] * 10)
