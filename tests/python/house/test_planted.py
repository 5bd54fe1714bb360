"""Planted faults (tests/planted) still fit the source, so `make check-planted` can try each."""

import ast
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from planted.faults import Fault, FaultError, Sources, read_faults
from planted.sources import c_functions, python_functions
from planted.suites import read_suites

CHECKOUT = Path(__file__).resolve().parents[3]
AREAS = {
    *("provider", "region", "launch", "cluster", "slurm"),
    *("opennebula", "study", "tune", "statistics", "host"),
}


@pytest.fixture(scope="module")
def faults() -> list[Fault]:
    return read_faults(CHECKOUT / "tests" / "planted")


def test_every_fault_can_be_planted(faults: list[Fault]) -> None:
    sources = Sources(CHECKOUT)
    wrong = []
    for fault in faults:
        try:
            file, text = sources.planted(fault)
            if fault.language == "python":
                ast.parse(text)
        except FaultError as error:
            wrong.append(str(error))
        except SyntaxError as error:
            wrong.append(f"{fault.id}: {file.name} with this fault is no Python: {error}")
    assert not wrong, "\n".join(wrong)


def test_every_area_has_faults(faults: list[Fault]) -> None:
    count = Counter(fault.area for fault in faults)
    assert len(faults) >= 40
    assert set(count) >= AREAS
    assert min(count.values()) >= 2, count


def test_every_fault_names_suites_that_there_are(faults: list[Fault]) -> None:
    suites = read_suites(CHECKOUT)
    for fault in faults:
        assert fault.suites, fault.id
        assert set(fault.suites) <= set(suites), fault.id
        assert fault.near, f"{fault.id}: name the tests that are near it"
        assert set(fault.near) <= set(fault.suites), fault.id
        assert fault.effect.endswith("."), fault.id


def test_a_replacement_changes_something(faults: list[Fault]) -> None:
    for fault in faults:
        assert fault.expression.split() != fault.replacement.split(), fault.id


def fault_in(language: str, function: str, expression: str, replacement: str = "x") -> Fault:
    return Fault("id", "area", language, function, expression, replacement, "Bad.", ())


def test_expressions_are_found_whatever_their_white_space_is(tmp_path: Path) -> None:
    tree = tmp_path / "src"
    tree.mkdir()
    (tree / "a.py").write_text(
        "class One:\n    def run(self):\n        if (a +\n                b):\n            c()\n"
        "class Two:\n    def run(self):\n        c()\n"
    )
    sources = Sources(tmp_path)
    _, text = sources.planted(fault_in("python", "One.run", "(a + b)", "\na\n"))
    assert "if a:\n" in text
    for name, expression in (("run", "c()"), ("One.run", "d()"), ("Three.run", "c()")):
        with pytest.raises(FaultError, match="instead of once"):
            sources.planted(fault_in("python", name, expression))
    _, text = sources.planted(fault_in("python", "Two.run", "c()", "d()\ne()"))
    assert text.endswith(textwrap.indent("d()\ne()\n", " " * 8))


def test_functions_of_c_are_told_from_all_else() -> None:
    text = """
    #define LOOP(x) do { x } while (0)
    struct s { int a; };
    static const int values[] = {1, 2};
    int declared(int a);
    /* not(this) { */
    static __attribute__((noinline)) int one(int (*call)(void), char c)
    {
        if (c == '{') { return call(); }
        return puts("}") /* } */;
    }
    bool two(void) { return false; }
    """
    found = {each.name: text[each.start : each.end] for each in c_functions(text)}
    assert set(found) == {"one", "two"}
    assert found["one"].endswith("/* } */;\n    }")


def test_functions_of_python_have_the_names_of_what_is_around_them() -> None:
    text = "class A:\n    @property\n    def b(self):\n        def c():\n            pass\n"
    assert [each.name for each in python_functions(text)] == ["A.b", "A.b.c"]
    assert text[next(python_functions(text)).start :].startswith("    @property")
