"""Every planted bug finds the lines that it changes; `make mutants` sees each of them noticed."""

from __future__ import annotations

import subprocess
import sys

from support.mutation import LISTS, ROOT, mutants


def test_every_mutant_can_be_planted_in_the_rules_as_they_are() -> None:
    # In a process of its own: this one goes on with rules that are right.
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, 'tests'); "
            "from support.mutation import plant_all; print(plant_all())",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-1_000:]
    assert int(ran.stdout) == sum(len(mutants(path)) for path in LISTS) > 100
