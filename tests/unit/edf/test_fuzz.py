"""A few seconds of the fuzzing that `make fuzz` does for minutes."""

from hypothesis import HealthCheck, given, settings

from tests.unit.edf.documents import BYTES, DOCUMENTS, comes_to_something

COUNT = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@COUNT
@given(BYTES)
def test_any_bytes_come_to_something(content: bytes) -> None:
    comes_to_something(content)


@COUNT
@given(DOCUMENTS)
def test_any_document_comes_to_something(text: str) -> None:
    comes_to_something(text.encode("utf-8", "replace"))
