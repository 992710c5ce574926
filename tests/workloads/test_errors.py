from __future__ import annotations

import pytest

from tensorese.workloads.errors import first_line

pytestmark = pytest.mark.null


def test_foreign_errors_are_cut_to_what_they_say() -> None:
    spelled = 'ir.Op(span=None, name="relax.cos", arguments=(x,\n), support_level=10) needs a float'
    assert first_line(TypeError(spelled)) == "relax.cos needs a float"
    assert first_line(ValueError("\n  first \nsecond")) == "first"
    assert first_line(KeyError()) == "KeyError"
