"""The answer of a report, in sentences: differences, what was not found, tails, emulation."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from report_summaries import manifest, small, source, summary

from vicinal.labs.report import answer
from vicinal.labs.report.answer import answers, reservation
from vicinal.labs.report.content import Source
from vicinal.labs.report.making import write_report
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.summary import ControlFound, Summary, Verdict
from vicinal.labs.study.file.model import Comparison, Quantity, Statistic, Study

pytest_plugins = ("report_fixture",)

SIZES = (8, 4096, 2 << 20)


def of_latency(*statistics: Statistic, comparisons: Sequence[Comparison] = ()) -> Study:
    """Latency at three sizes, of containers with a region beside their network."""
    latency = replace(small().workload("latency"), sizes=SIZES, statistics=statistics)
    about = replace(small(), workloads=(latency,), unavailable={})
    asked = tuple(comparisons) or (Comparison("network", "region"),)
    return replace(about, design=replace(about.design, comparisons=asked))


def judged(
    made: Summary,
    verdict: Verdict,
    ratio: Estimate | None,
    statistic: Statistic = Statistic.MEDIAN,
    size: int | None = None,
) -> Summary:
    """With a verdict and a ratio for a statistic, at one size or at all."""
    return replace(
        made,
        compared=tuple(
            replace(each, verdict=verdict, ratio=ratio, gain=0)
            if each.statistic == statistic and size in (None, each.size)
            else each
            for each in made.compared
        ),
    )


def figures(made: Summary, base: float, test: float) -> Summary:
    """With these absolute values everywhere."""
    sides = [Estimate(value, value, value, 0.95) for value in (base, test)]
    changed = (replace(each, base=sides[0], test=sides[1]) for each in made.compared)
    return replace(made, compared=tuple(changed))


def plain(sentences: Sequence[str]) -> list[str]:
    return [re.sub("[\xa0\u202f]", " ", each) for each in sentences]


def test_an_answer_names_both_figures_the_factor_and_its_interval() -> None:
    made = figures(summary(of_latency(Statistic.MEDIAN)), 7.9, 0.95)
    made = judged(made, Verdict.BETTER, Estimate(0.12, 0.114, 0.121, 0.95))
    (found,) = answers(replace(made, cells=()))
    assert found.title == "Containers with the region beside Containers over TCP"
    assert plain(found.sentences) == [
        "“Containers with the region”: MPI latency at 8 B 0.950 µs (median), 7.90 µs in"
        " “Containers over TCP”: 8.33 times faster (95 % interval 8.26 to 8.77)",
        "Of 3 comparisons (each workload, size and statistic), all are better",
    ]


@pytest.mark.parametrize(
    ("quantity", "ratio", "words"),
    [
        (Quantity.LATENCY, (0.77, 0.76, 0.82), "23 % lower latency (95 % interval 18.0 % lower to"),
        (Quantity.TIME, (1.25, 1.21, 1.3), "25 % more time (95 % interval 21 % more to 30 % more)"),
        (Quantity.TIME, (0.95, 0.9, 1.01), "5.0 % less time (95 % interval 1.0 % more to 10.0 %"),
        (Quantity.LATENCY, (4.0, 3.5, 5.0), "4.00 times slower (95 % interval 3.50 to 5.00)"),
        (Quantity.BANDWIDTH, (2.5, 2.4, 2.6), "2.50 times the bandwidth (95 % interval 2.40 to"),
        (Quantity.BANDWIDTH, (0.25, 0.2, 0.5), "the bandwidth is divided by 4.00 (95 % interval"),
        (Quantity.PERFORMANCE, (1.1, 1.05, 1.2), "10.0 % higher performance (95 % interval 5.0 %"),
    ],
)
def test_changes_are_said_in_words(
    quantity: Quantity, ratio: tuple[float, float, float], words: str
) -> None:
    (said,) = plain([answer.change(quantity, Estimate(*ratio, 0.95))])
    assert said.startswith(words)


def test_what_has_no_interval_says_so() -> None:
    (said,) = plain([answer.change(Quantity.LATENCY, Estimate(4.0, 4.0, 4.0, 0.0))])
    assert said == "4.00 times slower (no interval)"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (
            Verdict.OPEN,
            "no difference was found: the ratio is 0.980 (95 % interval 0.900 to 1.07).",
        ),
        (Verdict.EQUIVALENT, "equivalent within ±3.0 %: the ratio is 0.980 (95 % interval 0.900"),
        (Verdict.TOO_FEW, "too few trials for a claim (9 pairs)"),
    ],
)
def test_what_was_not_established_is_not_claimed(verdict: Verdict, words: str) -> None:
    made = judged(summary(of_latency(Statistic.MEDIAN)), verdict, Estimate(0.98, 0.9, 1.07, 0.95))
    (found,) = answers(made)
    text = " ".join(plain(found.sentences))
    assert words in text
    assert not re.search("faster|slower|lower latency|higher latency|largest", text)


def test_all_verdicts_are_counted() -> None:
    found = source().summary
    said = next(each for each in answers(found) if each.title.startswith("Containers with"))
    compared = [each for each in found.compared if each.comparison == said.comparison]
    text = " ".join(plain(said.sentences))
    assert f"Of {len(compared)} comparisons" in text
    for verdict, words in ((Verdict.BETTER, "are better"), (Verdict.WORSE, "are worse")):
        count = sum(each.verdict == verdict for each in compared)
        assert count > 1
        assert f"{count} {words}" in text


def test_of_many_workloads_the_largest_gain_and_cost_are_said() -> None:
    found = source().summary
    said = next(each for each in answers(found) if each.title.startswith("Containers with"))
    gain, cost = (each for each in said.sentences if each.startswith("The largest"))
    assert gain.startswith("The largest gain: “Containers with the region”: Barrier")
    assert "lower latency" in gain
    assert cost.startswith("The largest cost")
    assert sum("beside" in each or " in “" in each for each in said.sentences) >= 2


def test_no_ratio_is_said_without_both_figures() -> None:
    for said in answers(source().summary):
        for sentence in said.sentences:
            if "interval" in sentence:
                figures = re.findall(r"(?:beside|,) [\d.\u202f]+\xa0(?:µs|MB/s|s|GFLOPS)", sentence)
                assert figures, sentence


def test_a_tested_tail_that_tells_another_story_is_said() -> None:
    made = summary(of_latency(Statistic.MEDIAN, Statistic.P99))
    made = judged(made, Verdict.BETTER, Estimate(0.12, 0.11, 0.13, 0.95))
    alike = judged(made, Verdict.BETTER, Estimate(0.14, 0.12, 0.2, 0.95), Statistic.P99)
    assert "tail" not in " ".join(answers(alike)[0].sentences)
    open_ = judged(alike, Verdict.OPEN, Estimate(1.01, 0.9, 1.1, 0.95), Statistic.P99, 4096)
    (said,) = plain([each for each in answers(open_)[0].sentences if "tail" in each])
    assert said.startswith(
        "The tail tells another story than the median, at 1 of 3 sizes: MPI latency at 4 KiB "
    )
    assert "(P99), beside" in said
    assert "no difference was found: the ratio is 1.01 (95 % interval 0.900 to 1.10)" in said
    assert "8.33 times faster" in said.partition("The median: ")[2]
    less = judged(alike, Verdict.BETTER, Estimate(0.7, 0.6, 0.8, 0.95), Statistic.P99)
    assert "at 3 of 3 sizes" in " ".join(answers(less)[0].sentences)


def pooled_tail(made: Summary, environment: str, p99: float) -> Summary:
    """With a P99 of all samples of an environment."""
    cells = []
    for cell in made.cells:
        if cell.environment == environment and cell.pooled is not None:
            percentiles = cell.pooled.percentiles | {"P99": Estimate(p99, p99, p99, 0.95)}
            cell = replace(cell, pooled=replace(cell.pooled, percentiles=percentiles))
        cells.append(cell)
    return replace(made, cells=tuple(cells))


def test_a_tail_that_was_not_compared_is_said_without_a_claim() -> None:
    made = summary(of_latency(Statistic.MEDIAN))
    made = judged(made, Verdict.BETTER, Estimate(0.12, 0.11, 0.13, 0.95))
    alike = pooled_tail(pooled_tail(made, "network", 80.0), "region", 9.0)
    assert "tail" not in " ".join(answers(alike)[0].sentences)
    other = pooled_tail(alike, "region", 81.0)
    (said,) = plain([each for each in answers(other)[0].sentences if "tail" in each])
    assert "81.0 µs (P99 of all samples), beside 80.0 µs. The median: " in said
    assert said.endswith("This study did not test the tail")


def test_emulated_answers_are_last_and_say_so() -> None:
    asked = (Comparison("native", "guests"), Comparison("network", "region"))
    made = replace(summary(of_latency(Statistic.MEDIAN, comparisons=asked)), emulated=("guests",))
    first, last = answers(made)
    assert (first.emulated, last.emulated) == (False, True)
    assert last.comparison == asked[0]
    assert "say nothing about virtual machines on real hardware" in last.sentences[-1]
    assert "emulated" not in " ".join(first.sentences)


def test_a_control_that_differs_qualifies_all_answers() -> None:
    made = summary(small())
    assert reservation(made).startswith("Be careful with all answers")
    assert reservation(replace(made, control=ControlFound("native", 3, (), 0.1))) == ""
    assert reservation(replace(made, control=None)) == ""


def test_what_could_not_be_compared_says_why() -> None:
    asked = (Comparison("native", "card"),)
    about = of_latency(Statistic.MEDIAN, comparisons=asked)
    card = replace(about.environments[0], name="card", title="A card")
    about = replace(
        about, environments=(*about.environments, card), unavailable={"card": "there is no card"}
    )
    made = replace(summary(of_latency(Statistic.MEDIAN)), study=about, compared=())
    (found,) = answers(made)
    assert found.sentences == (
        "“A card” was not compared with “Native, own shared memory”: no workload has values of both"
        " (card: there is no card)",
    )
    nothing = replace(about, design=replace(about.design, comparisons=()))
    (found,) = answers(replace(made, study=nothing))
    assert found.sentences == ("This study compares nothing: it shows what was measured",)


@pytest.mark.usefixtures("no_png")
def test_answers_are_on_the_page_and_in_markdown(tmp_path: Path) -> None:
    asked = (Comparison("network", "region"), Comparison("native", "guests"))
    made = replace(summary(of_latency(Statistic.MEDIAN, comparisons=asked)), emulated=("guests",))
    page = write_report([Source(made, manifest(), "x")], tmp_path).read_text()
    markdown = (tmp_path / "report.md").read_text()
    for each in answers(made):
        assert f"### {each.title}\n" in markdown
        for sentence in each.sentences:
            assert f"<p>{sentence}.</p>" in page
        for sentence in plain(each.sentences):
            assert f"- {sentence}." in markdown
    assert page.count('<article class="emulated">') == 1
