"""Writes docs/api/settings.md: Kafka's settings that have no effect here, with the reasons.

python tools/settings_table.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ctrlchan.config.without_effect import WITHOUT_EFFECT

PAGE: Final = Path(__file__).parents[1] / "docs" / "api" / "settings.md"
_HEAD: Final = """# Settings without effect

Brokers act on Kafka's settings, except for these. They are taken, and their values are checked; a line of the
log says of each that has not its default that it has no effect. What would make another broker of this one
(KRaft, tiered storage, the new coordinators) is refused when it is switched on. `python
tools/settings_table.py` writes this page.

| setting | default | why |
| --- | --- | --- |
"""


def page() -> str:
    """Return the text of the page."""
    rows = []
    for name, (setting, reason) in sorted(WITHOUT_EFFECT.items()):
        # Cells are no wider than a line of the page.
        default = (setting.default or "").replace(",", ", ")
        rows.append(f"| `{name}` | {default[:100] or '–'} | {reason} |")
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
