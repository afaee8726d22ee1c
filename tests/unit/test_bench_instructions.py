"""Instruction counts: callgrind's output, the comparison with the baseline, and one real run."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from bench.instructions import __main__ as command
from bench.instructions import things
from bench.instructions.baseline import FILE, Baseline
from bench.instructions.comparison import State, compare, problems, table
from bench.instructions.counts import Count, Measurement, measure, missing_tools
from bench.instructions.environment import compiler_of, differences, kind_of
from bench.instructions.profiles import parse, readable

ENVIRONMENT: Final = {
    "compiler": "gcc 12.2.0",
    "python": "3.11.7, without PGO",
    "machine": "x86_64",
    "cpu": "avx avx2",
    "numpy": "2.4.6",
}
KIND: Final = "gcc 12; Python 3.11.7, without PGO; x86_64 with AVX2"
DUMP: Final = """\
# callgrind format
version: 1
desc: Timerange: Basic block 0 - 469716
desc: Trigger: Client Request: encode x2

positions: line
events: Ir
summary: 140

ob=/a/_codec.so
fl=???
fn=__pyx_f_8ctrlchan_6_codec_column_size
0 40
cob=/lib/libc.so.6
cfn=memcpy
calls=3 0
0 60
fn=__pyx_f_8ctrlchan_6_codec_column_size.part.0
7 10

ob=/lib/libc.so.6
fl=memcpy.c
fn=memcpy
12 50
fn=0x0000000000241c80
0 3
fn=0x0000000000052db0
0 4

fn=eval'2
0 33
cfn=eval'2
calls=1 0
0 30

totals: 140
"""


def count(instructions: float, **functions: float) -> Count:
    return Count(instructions, functions)


# -- callgrind's output


def test_a_function_has_its_own_instructions_and_not_those_of_its_calls() -> None:
    label, functions = parse(DUMP.splitlines(keepends=True))
    assert label == "encode x2"
    assert functions == {"ctrlchan._codec.column_size": 50, "memcpy": 50, "in libc.so.6": 7, "eval": 33}


@pytest.mark.parametrize("text", ["", "nothing of callgrind\n", DUMP.replace("12 50", "12 49")])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an output of callgrind"):
        parse(text.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__pyx_f_8ctrlchan_6server_10_processor_take_turn", "ctrlchan.server._processor.take_turn"),
        (
            "__pyx_pw_8ctrlchan_6server_10_processor_12TakenRequest_13skip",
            "ctrlchan.server._processor.TakenRequest.skip",
        ),
        (
            "__pyx_pf_8ctrlchan_6server_10_processor_16PlainTimingWheel_8advance",
            "ctrlchan.server._processor.PlainTimingWheel.advance",
        ),
        (
            "__pyx_f_8ctrlchan_6_codec_15PartitionFiller_list_column.constprop.0.isra.0",
            "ctrlchan._codec.PartitionFiller.list_column",
        ),
        ("__pyx_tp_dealloc_8ctrlchan_6_codec_SharedBody", "ctrlchan._codec.SharedBody"),
        ("_PyEval_EvalFrameDefault'2", "_PyEval_EvalFrameDefault"),
        ("put_rows.part.0.cold", "put_rows"),
        ("__pyx_pyframe_localsplus", "__pyx_pyframe_localsplus"),
    ],
)
def test_names_are_those_of_the_sources(symbol: str, name: str) -> None:
    assert readable(symbol) == name


# -- the comparison


def test_a_tenth_more_is_allowed() -> None:
    (row,) = compare({"fetch": count(1090)}, {"fetch": count(1000)})
    assert row.ratio == 1.09
    assert row.state is State.SAME
    assert problems([row]) == []


def test_what_grows_by_more_fails_with_the_functions_that_grew_most() -> None:
    now = count(1110, reads=500, writes=300, waits=10, wastes=100)
    (row,) = compare({"fetch": now}, {"fetch": count(1000, reads=490, writes=300, waits=20)})
    assert row.state is State.GROWN
    (text,) = problems([row])
    first, *functions = text.splitlines()
    assert first == "fetch: 11.0 % more instructions than the baseline"
    assert [line.split()[1] for line in functions] == ["wastes", "reads"]
    assert "+100.0" in functions[0]
    assert "MORE" in table([row])


def test_what_is_new_and_what_is_missing_is_named() -> None:
    rows = compare({"same": count(5), "new": count(7)}, {"gone": count(9), "same": count(5)})
    assert {row.name: row.state for row in rows} == {
        "same": State.SAME,
        "new": State.NEW,
        "gone": State.MISSING,
    }
    assert problems(rows) == [
        "new: has no baseline",
        "gone: is in the baseline, and was not measured",
    ]
    assert len(table(rows).splitlines()) == 4


def test_less_is_no_problem_and_worth_a_new_baseline() -> None:
    rows = compare({"fetch": count(900)}, {"fetch": count(1000)})
    assert problems(rows) == []
    assert "renew the baseline" in table(rows)


# -- the baseline


def test_a_baseline_is_for_one_kind_of_machine(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    baseline = Baseline(file)
    assert baseline.kinds == []
    assert kind_of(ENVIRONMENT) == KIND
    baseline.write(KIND, {"fetch": Measurement({"Fetch": count(5, reads=3)}, ENVIRONMENT)})
    other = ENVIRONMENT | {"compiler": "gcc 13.1.0"}
    Baseline(file).write(kind_of(other), {"tls": Measurement({"TLS": count(6)}, other)})
    read = Baseline(file)
    assert read.kinds == [KIND, KIND.replace("gcc 12", "gcc 13")]
    assert read.counts(KIND, "fetch") == {"Fetch": count(5, reads=3)}
    assert read.counts(KIND, "tls") == {}
    assert read.environment(KIND) == ENVIRONMENT
    # Some things only: the others stay.
    read.write(KIND, {"tls": Measurement({"TLS": count(7)}, ENVIRONMENT)})
    assert Baseline(file).counts(KIND, "fetch") == {"Fetch": count(5, reads=3)}


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"compiler": "gcc 12.3.1"}, True),
        ({"numpy": "2.5"}, True),
        ({"compiler": "clang 12.2.0"}, False),
        ({"python": "3.12.1, with PGO"}, False),
        ({"cpu": "avx"}, False),
        ({"machine": "aarch64"}, False),
    ],
)
def test_which_machines_have_the_same_counts(change: dict[str, str], is_same: bool) -> None:
    now = ENVIRONMENT | change
    assert (kind_of(now) == KIND) is is_same
    (line,) = differences(ENVIRONMENT, now)
    (name,) = change
    assert line == f"{name}: the baseline has {ENVIRONMENT[name]}, this is {change[name]}"


def test_the_compiler_is_the_one_that_has_made_the_extension() -> None:
    assert compiler_of(b"\0GCC: (Debian 12.2.0-14+deb12u1) 12.2.0\0") == "gcc 12.2.0"
    assert compiler_of(b"\0Debian clang version 14.0.6\0") == "clang 14.0.6"
    assert compiler_of(b"\0") == "unknown"


@pytest.mark.parametrize(("is_ci", "status"), [(True, 1), (False, 0)])
def test_without_a_baseline_for_the_machine_only_ci_fails(
    is_ci: bool,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("CI", "true" if is_ci else "")
    baseline = Baseline(tmp_path / "baseline.json")
    baseline.write(KIND, {"fetch": Measurement({"Fetch": count(5)}, ENVIRONMENT)})
    monkeypatch.setattr(command, "Baseline", lambda: baseline)
    other = ENVIRONMENT | {"compiler": "gcc 13.1.0"}
    found = {"fetch": Measurement({"Fetch": count(50)}, other)}
    assert command._report(found, writes=False) == status
    said = capsys.readouterr().out
    assert f"no baseline for this machine, but for: {KIND}." in said
    assert "50.0" in said
    # On the machine of the baseline it fails with or without CI.
    assert command._report({"fetch": Measurement({"Fetch": count(6)}, ENVIRONMENT)}, writes=False) == 1
    assert "Fetch: 20.0 % more" in capsys.readouterr().out


def test_every_thing_is_measured_and_in_the_committed_baseline() -> None:
    (folder,) = things.__path__
    files = {file.stem for file in Path(folder).glob("*.py")} - {"__init__"}
    assert files == set(command.THINGS)
    baseline = Baseline(FILE)
    assert baseline.kinds
    for kind in baseline.kinds:
        assert kind_of(baseline.environment(kind)) == kind
        assert all(baseline.counts(kind, thing) for thing in command.THINGS)


# -- valgrind


def test_a_real_count() -> None:
    why = missing_tools()
    if why is not None:
        assert not os.environ.get("CI"), why
        pytest.skip(why)
    measurement = measure("codec")
    assert kind_of(measurement.environment)
    assert set(measurement.counts) == {
        f"{direction} {api}"
        for direction in ("encode", "decode")
        for api in ("UpdateMetadata", "LeaderAndIsr", "StopReplica")
    }
    for name, one in measurement.counts.items():
        # 2,000 partitions.
        assert one.instructions > 2_000, name
        own = Counter(one.functions)
        assert any(function.startswith("ctrlchan._codec.") for function in own), name
        assert 0.5 * one.instructions < own.total() <= one.instructions * 1.001, name
