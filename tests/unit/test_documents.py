"""README and the guides are true: examples run, commands exist, the reference has every public name."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import ctrlchan
from ctrlchan import errors

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "quickstart").glob("*.md")])
RESULTS = ROOT / "bench" / "RESULTS.md"
#: What each suite measures and what profiles showed.
NOTES = sorted((ROOT / "bench" / "notes").glob("*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), RESULTS, *NOTES])
#: Columns of a line of a document, or of a cell of a table.
WIDTH = 110
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
COMMANDS = sorted(
    {
        command
        for document in (README, *GUIDES)
        for command in re.findall(
            r"\bctrlchan ((?:snapshot |pipeline )?[a-z]+(?:-[a-z]+)*)",
            "\n".join(re.findall(r"^    .*|`ctrlchan .*?`", document.read_text(), re.MULTILINE)),
        )
    }
)


def test_the_readme_example_runs(tmp_path: Path) -> None:
    (example,) = PYTHON_BLOCKS
    script = tmp_path / "example.py"
    script.write_text(example)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert [line.split(",")[0] for line in sorted(lines)] == [f"broker {b}: acknowledged" for b in (1, 2, 3)]


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_commands_have_help(command: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ctrlchan", *command.split(), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert "ctrlchan" in ran.stdout


def test_the_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 500


def test_the_changelog_is_short() -> None:
    # It says what a version brings to its users, not how.
    assert len((ROOT / "CHANGELOG.md").read_text().split()) <= 400


def test_the_results_are_short() -> None:
    """The page has the rest: fewer questions in ``bench/measures/answers.py``, or shorter causes."""
    words = [word for word in RESULTS.read_text().split() if re.search(r"\w", word)]
    assert len(words) <= 1_200


@pytest.mark.parametrize("guide", [*GUIDES, *NOTES], ids=lambda guide: guide.stem)
def test_guides_are_short(guide: Path) -> None:
    # Three screens of 50 lines.
    assert len(guide.read_text().splitlines()) <= 150


def too_wide(document: Path) -> list[str]:
    """Return the lines and the cells of tables that have more than 110 columns, links left out."""
    found = []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        parts = line.strip("|").split(" | ") if line.startswith("|") else [line]
        found += [
            f"{document.relative_to(ROOT)}:{number}: {part.strip()}"
            for part in parts
            if len(re.sub(r"\]\([^)]*\)|https?://\S+", "", part).strip()) > WIDTH
        ]
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_no_line_and_no_cell_is_too_wide(document: Path) -> None:
    assert too_wide(document) == []


def test_links_between_documents_lead_to_files() -> None:
    missing = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in (*ROOT.glob("*.md"), *GUIDES, RESULTS, *NOTES)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not missing


def test_every_public_name_is_in_the_reference() -> None:
    reference = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    documented = set(
        re.findall(r"^\.\. auto(?:class|function|data)::\s+(ctrlchan\.\S+)", reference, re.MULTILINE)
    )
    if ".. automodule:: ctrlchan.errors" in reference:
        documented |= {f"ctrlchan.{name}" for name in ctrlchan.__all__ if hasattr(errors, name)}
    public = {f"ctrlchan.{name}" for name in ctrlchan.__all__ if not name.startswith("__")}
    public |= {f"ctrlchan.pipeline.{name}" for name in _names_of_the_pipeline()}
    assert documented == public


def public_docstrings() -> dict[str, str]:
    """Return the docstring of each public name, and of each public method of its classes."""
    named = {name: getattr(ctrlchan, name) for name in ctrlchan.__all__ if not name.startswith("__")}
    for name, value in list(named.items()):
        if inspect.isclass(value):
            members = {one: inspect.getattr_static(value, one) for one in dir(value) if one[0] != "_"}
            named |= {f"{name}.{one}": member for one, member in members.items() if _is_ours(member)}
    return {name: inspect.getdoc(value) or "" for name, value in named.items()}


def _is_ours(member: object) -> bool:
    return callable(member) and str(getattr(member, "__module__", "")).startswith("ctrlchan")


@pytest.mark.parametrize(("name", "text"), public_docstrings().items(), ids=public_docstrings())
def test_the_reference_has_code_blocks_and_lists(name: str, text: str) -> None:
    paragraphs = text.split("\n\n")
    for before, paragraph in pairwise(["", *paragraphs]):
        # Else an example would be a quotation.
        assert not paragraph.startswith("    ") or before.endswith("::") or before.startswith(("    ", "- "))
        if not paragraph.startswith("- "):
            assert len(re.findall(r"(?:^|[.;] )(?:``\w+``(?:, )?)+:", " ".join(paragraph.split()))) < 3


def _names_of_the_pipeline() -> list[str]:
    """Read ``__all__`` without importing PySpark."""
    tree = ast.parse((ROOT / "ctrlchan" / "pipeline" / "__init__.py").read_text())
    [names] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    value: list[str] = ast.literal_eval(names)
    return value


def test_files_named_in_the_design_exist() -> None:
    files = [
        f"/{path.relative_to(ROOT)}"
        for room in ("bench", "ctrlchan", "tests")
        for path in (ROOT / room).rglob("*.*")
    ]
    design = (ROOT / "DESIGN.md").read_text()
    named = re.findall(r"`([\w/]+\.(?:pyx|pxd|pxi|py|h))`", design)
    assert named
    assert not [name for name in named if not any(file.endswith(f"/{name}") for file in files)]
    rooms = re.findall(r"`([a-z]\w*(?:/\w+)*)/`", design)
    assert rooms
    assert not [room for room in rooms if not any(f"/{room}/" in file for file in files)]


def entries_of_the_file_map() -> list[tuple[list[str], str]]:
    """Return (places below ``ctrlchan`` or the root, text) of each entry of DESIGN.md's file map."""
    file_map = (ROOT / "DESIGN.md").read_text().split("## File map")[1].split("\nArrows,")[0]
    entries = []
    for entry in file_map.split("\n- ")[1:]:
        names, text = re.match(r"((?:`[^`]+`(?:, | and )?)+): (.*)", " ".join(entry.split())).groups()  # type: ignore[union-attr]
        first, *others = re.findall(r"`([^`]+)`", names)
        first = first.removeprefix("ctrlchan/")
        # In ``pipeline/sessions.py``, ``source/`` the second place is beside the first.
        beside = f"{first.rstrip('/').rpartition('/')[0]}/".lstrip("/")
        entries.append(([first, *(f"{beside}{one}" for one in others)], text))
    return entries


def place(name: str) -> Path:
    inside = ROOT / "ctrlchan" / name
    return inside if inside.exists() else ROOT / name


def test_the_file_map_has_every_room() -> None:
    named = {one.rstrip("/") for places, _ in entries_of_the_file_map() for one in places}
    # Rooms that are described in the entry of the room around them.
    named |= {
        f"{one.rstrip('/')}/{inner}"
        for places, text in entries_of_the_file_map()
        for one in places
        for inner in re.findall(r"`([\w/]+)/`", text)
    }
    package = ROOT / "ctrlchan"
    rooms = {str(file.parent.relative_to(package)) for file in package.rglob("__init__.py")} - {"."}
    # The map names the rooms around these.
    described = ("cli/", "controller/server/", "pipeline/jobs/")
    rooms = {room for room in rooms if not room.startswith(described)}
    files = {file.name for file in package.glob("[!_]*.py")}
    assert (rooms | files) - named - {"pipeline"} == set()


@pytest.mark.parametrize(("places", "text"), entries_of_the_file_map(), ids=lambda value: str(value)[:40])
def test_files_of_the_file_map_are_in_their_rooms(places: list[str], text: str) -> None:
    assert [one for one in places if not place(one).exists()] == []
    rooms = [place(one) for one in places if place(one).is_dir()]
    rooms += [inner for room in rooms for inner in room.iterdir() if inner.is_dir()]
    named = re.findall(r"`([\w/]+\.(?:pyx|pxd|py|h))`", text)
    beyond = [ROOT / "ctrlchan", *(place(one).parent for one in places)]
    assert [name for name in named if not any((room / name).exists() for room in (*rooms, *beyond))] == []
