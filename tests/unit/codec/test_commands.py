"""Tests of ``ctrlchan decode`` and ``ctrlchan encode`` as processes: pipes, files, statuses, signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from ctrlchan.cli import main; main()"]
LINE = {"api": "UpdateMetadataResponse", "version": 8, "hex": "000000"}
READ = {"api": "UpdateMetadataResponse", "version": 8, "json": {"errorCode": 0}}


def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], input=given, capture_output=True, text=True, check=False, timeout=60
    )


def test_decoding_and_encoding_again() -> None:
    text = (json.dumps(LINE) + "\n") * 3
    decoded = run("decode", given=text)
    assert (decoded.returncode, decoded.stderr) == (0, "")
    assert [json.loads(line) for line in decoded.stdout.splitlines()] == [READ] * 3
    assert run("encode", given=decoded.stdout).stdout == text


def test_a_bad_line_gives_status_1_and_the_others_are_read() -> None:
    result = run("decode", given=f"{json.dumps(LINE)}\nwhat?\n{json.dumps(LINE)}\n")
    assert result.returncode == 1
    first, second, third = map(json.loads, result.stdout.splitlines())
    assert (first, third) == (READ, READ)
    assert second["line"] == 2
    assert result.stderr == ""


def test_files_and_frames(tmp_path: Path) -> None:
    file = tmp_path / "frames.jsonl"
    file.write_text('{"direction": "response", "api": 6, "version": 8, "hex": "00000021 00 000000"}\n')
    result = run("decode", "--frames", str(file))
    assert result.returncode == 0
    assert json.loads(result.stdout)["header"] == {"correlationId": 33}


def test_wrong_usage() -> None:
    assert run("decode", "/no/such/file").returncode == 2
    assert run("decode", "--what").returncode == 2


@pytest.mark.parametrize("command", ["decode", "encode"])
def test_help_has_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.returncode == 0
    assert f"ctrlchan {command}" in result.stdout


@pytest.fixture
def decoding() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, "decode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(LINE) + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_each_line_is_answered_before_the_next_is_read(decoding: subprocess.Popen[str]) -> None:
    for _ in range(3):
        assert json.loads(ask(decoding)) == READ
    _, errors = decoding.communicate(timeout=30)
    assert (decoding.returncode, errors) == (0, "")


def test_control_c_ends_it_without_a_traceback(decoding: subprocess.Popen[str]) -> None:
    assert ask(decoding)
    decoding.send_signal(signal.SIGINT)
    _, errors = decoding.communicate(timeout=30)
    assert decoding.returncode == 130
    assert "Traceback" not in errors


def test_a_closed_output_ends_it_without_a_traceback(decoding: subprocess.Popen[str]) -> None:
    assert ask(decoding)
    assert decoding.stdin is not None
    assert decoding.stdout is not None
    decoding.stdout.close()
    decoding.stdin.write((json.dumps(LINE) + "\n") * 2)
    decoding.stdin.flush()
    assert decoding.wait(timeout=30) != 0
    assert decoding.stderr is not None
    assert "Traceback" not in decoding.stderr.read()
