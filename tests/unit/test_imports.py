"""What an import brings along: the codec nothing of ours, a sender process nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(ran.stdout))


def test_the_codec_imports_nothing_of_ours() -> None:
    ours = {name for name in modules_after("import ctrlchan._codec") if name.split(".")[0] == "ctrlchan"}
    assert ours == {"ctrlchan", "ctrlchan._codec"}


@pytest.mark.parametrize("heavy", ["numpy", "pyarrow", "rich", "typer", "kio", "kazoo", "psutil"])
def test_a_sender_is_small(heavy: str) -> None:
    assert heavy not in modules_after("import ctrlchan.channel.senders.sender")


def test_a_sender_imports_of_ours_only_what_it_shares_with_the_parent() -> None:
    senders, wire = "ctrlchan.channel.senders", "ctrlchan.channel.wire"
    statement = f"import {senders}.fork_server, {senders}.tls, {wire}.keystore"
    ours = {name for name in modules_after(statement) if name.split(".")[0] == "ctrlchan"}
    shared = {name for name in ours if name.startswith((senders, wire))}
    assert ours - shared == {"ctrlchan", "ctrlchan.channel"}


def test_every_public_name_loads() -> None:
    import ctrlchan

    for name in ctrlchan.__all__:
        assert getattr(ctrlchan, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = ctrlchan.nothing_like_this
