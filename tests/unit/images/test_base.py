"""Images of this host with which a build begins."""

from container_engine.images.pack.base import Base

MINE = Base("./x.sqsh", "/home/me/x.sqsh", "sha256:ab", b"{}", 1000)


def test_a_base_is_the_same_under_another_name() -> None:
    assert MINE._replace(name="x:1", path="/home/me/y.sqsh").tag == MINE.tag


def test_a_file_does_not_take_the_place_of_another_users_with_the_digest_that_it_claims() -> None:
    tags = {MINE.tag, MINE._replace(owner=1001).tag, MINE._replace(digest="sha256:cd").tag}
    assert len({*tags, MINE._replace(configuration=b'{"os":"linux"}').tag}) == 4
