"""Random EDFs: CE_FUZZ_EXAMPLES of each kind, which `make fuzz` raises to minutes."""

import os

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from container_engine.edf.expand import ExpandError, Scope, expand
from container_engine.edf.model import escape
from tests.unit.edf.cases import ENV, is_deferred
from tests.unit.edf.documents import BYTES, DOCUMENTS, VALUES, comes_to_something
from tests.unit.edf.watching import nothing_started

COUNT = settings(
    max_examples=int(os.environ.get("CE_FUZZ_EXAMPLES", "400")),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@COUNT
@given(BYTES)
def test_any_bytes_come_to_something(content: bytes) -> None:
    comes_to_something(content)


@COUNT
@given(DOCUMENTS)
def test_any_document_comes_to_something(text: str) -> None:
    comes_to_something(text.encode("utf-8", "replace"))


@COUNT
@given(st.one_of(VALUES, st.text(alphabet="${}:-+?\\`()Ab_!@#%/ ", max_size=60)))
def test_any_text_expands_or_is_refused(text: str) -> None:
    scope = Scope(ENV, {"EDF_DIR": "/edf"}, is_deferred)
    with nothing_started():
        try:
            result = expand(text, scope)
        except ExpandError:
            return
        assert expand(escape(result), scope) == result
