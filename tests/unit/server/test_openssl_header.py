"""Our declarations of OpenSSL are those of the real headers, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import ctrlchan.server

HEADER = Path(ctrlchan.server.__file__).parent / "_loop" / "openssl.h"
CHECK = """
#include <stdint.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#define CTRLCHAN_REAL_OPENSSL
#include "{header}"

#define CONSTANT(name, value) _Static_assert((name) == (value), #name);
#define FUNCTION(result, name, arguments) result(*check_##name) arguments = (name);
OPENSSL_CONSTANTS(CONSTANT)
OPENSSL_FUNCTIONS(FUNCTION)
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
OPENSSL_3_CONSTANTS(CONSTANT)
OPENSSL_3_FUNCTIONS(FUNCTION)
#else
OPENSSL_1_FUNCTIONS(FUNCTION)
#endif
"""


def compile_check(folder: Path, source: str) -> str:
    """Return what a compiler says about a source; empty: it accepts it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    file = folder / "check.c"
    file.write_text("#include <openssl/ssl.h>\n")
    if subprocess.run([compiler, "-fsyntax-only", str(file)], capture_output=True).returncode:
        pytest.skip("OpenSSL's headers are not installed")
    file.write_text(source)
    command = [compiler, "-fsyntax-only", "-Wall", "-Werror", "-Wno-deprecated-declarations", str(file)]
    return subprocess.run(command, capture_output=True, text=True).stderr


def test_the_declarations_are_those_of_the_headers(tmp_path: Path) -> None:
    assert compile_check(tmp_path, CHECK.format(header=HEADER)) == ""


@pytest.mark.parametrize(
    ("ours", "wrong"),
    [
        ("C(SSL_CTRL_MODE, 33)", "C(SSL_CTRL_MODE, 34)"),
        ("F(int, SSL_read, (SSL *, void *, int))", "F(int, SSL_read, (SSL *, void *, long))"),
    ],
)
def test_a_wrong_declaration_is_found(tmp_path: Path, ours: str, wrong: str) -> None:
    text = HEADER.read_text()
    assert ours in text
    header = tmp_path / "wrong.h"
    header.write_text(text.replace(ours, wrong))
    assert "error" in compile_check(tmp_path, CHECK.format(header=header))
