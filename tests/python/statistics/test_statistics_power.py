"""The stated power, compared with simulated studies that contain a planted difference."""

import json

import numpy as np
import pytest
from scipy import stats
from statistics_hosts import SimulatedHost, noisy, quiet

from vicinal.labs.statistics.power import (
    MOST_TRIALS,
    Noise,
    difference_found,
    noise_of,
    power_of,
    trials_for,
)
from vicinal.labs.statistics.samples import TooFewTrialsError
from vicinal.labs.statistics.signed_rank import signed_rank_p_values


def found_in(host: SimulatedHost, difference: float, trials: int, alpha: float = 0.05) -> float:
    """The share of 4000 simulated studies that find a planted difference."""
    ours, theirs = host(np.random.default_rng(31), 4000, trials)
    ratios = np.log(ours * (1 + difference) / theirs)
    return float((signed_rank_p_values(ratios) <= alpha).mean())


@pytest.mark.parametrize("trials", [10, 15, 20])
def test_a_planted_3_percent_is_found_with_the_stated_power(trials: int) -> None:
    stated = power_of(trials, difference=0.03, noise=0.04).power
    # Both figures are simulated, with standard errors of 0.5 and of 0.8 percentage points.
    assert found_in(quiet, 0.03, trials) == pytest.approx(stated, abs=0.03)
    assert 0.4 < stated < 0.9


def test_a_pilot_tells_the_power_on_a_disturbed_host() -> None:
    ours, theirs = noisy(np.random.default_rng(37), 20, 60)
    pilots = [noise_of(left, right) for left, right in zip(ours, theirs, strict=True)]
    stated = [power_of(15, difference=0.03, noise=pilot).power for pilot in pilots]
    assert np.mean(stated) == pytest.approx(found_in(noisy, 0.03, 15), abs=0.08)
    # A planner who assumes that this noise is normal computes far too little power, because ranks
    # tolerate interruptions.
    normal = [power_of(15, difference=0.03, noise=pilot.deviation.value).power for pilot in pilots]
    assert np.mean(normal) < np.mean(stated) - 0.25


def test_power_is_close_to_students_where_noise_is_normal() -> None:
    # With normal noise, Wilcoxon's test has an efficiency of 3 / pi (95 %) relative to the t-test.
    trials, effect = 20, np.log(1.03) / 0.04
    critical = stats.t.isf(0.025, trials - 1)
    shift = effect * np.sqrt(trials)
    student = stats.nct.sf(critical, trials - 1, shift) + stats.nct.cdf(
        -critical, trials - 1, shift
    )
    stated = power_of(trials, difference=0.03, noise=0.04).power
    assert student - 0.05 < stated < student + 0.01


def test_without_a_difference_the_power_is_the_level() -> None:
    assert power_of(15, difference=0.0, noise=0.04).power == pytest.approx(0.048, abs=0.008)


def test_the_trials_that_are_enough_are_the_least_that_are() -> None:
    enough = trials_for(0.03, noise=0.04, power=0.8)
    assert enough.power >= 0.8
    assert power_of(enough.trials - 1, difference=0.03, noise=0.04).power < 0.8
    assert trials_for(0.82, noise=0.04).trials == 6  # the minimum of the test
    family = trials_for(0.03, noise=0.04, power=0.8, comparisons=9)
    assert family.trials > enough.trials
    assert family.alpha == pytest.approx(0.05 / 9)


def test_the_difference_that_is_found_is_found() -> None:
    found = difference_found(15, noise=0.04, power=0.9)
    assert found.power == pytest.approx(0.9, abs=0.005)
    assert found_in(quiet, found.difference, 15) == pytest.approx(0.9, abs=0.03)


def test_noise_of_a_pilot_is_known_as_well_as_its_interval_says() -> None:
    random = np.random.default_rng(41)
    ours, theirs = quiet(random, 500, 10)
    pilots = [noise_of(left, right) for left, right in zip(ours, theirs, strict=True)]
    held = np.mean([pilot.deviation.holds(0.04) for pilot in pilots])
    assert held == pytest.approx(0.95, abs=0.03)
    assert pilots[0].deviation.high / pilots[0].deviation.low == pytest.approx(2.7, abs=0.1)
    assert len(json.loads(json.dumps(pilots[0].to_dict()))["residuals"]) == 10
    assert isinstance(pilots[0], Noise)


def test_what_cannot_be_planned_is_an_error() -> None:
    with pytest.raises(TooFewTrialsError, match="needs 6"):
        power_of(5, difference=0.5, noise=0.01)
    with pytest.raises(ValueError, match=f"more than {MOST_TRIALS} trials"):
        trials_for(0.001, noise=0.2)
    with pytest.raises(ValueError, match="noise of 0"):
        power_of(10, difference=0.1, noise=0)
    with pytest.raises(ValueError, match="leaves nothing"):
        power_of(10, difference=-1, noise=0.1)
    with pytest.raises(ValueError, match="power of 2"):
        difference_found(10, noise=0.1, power=2)
    with pytest.raises(ValueError, match="no noise"):
        noise_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
