"""Hiding of secret values, and only of those."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.secrecy import HIDDEN, Secrecy, is_secret_name

TOKEN = "hf_" + "a1B2" * 8
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln_bmF0-dXJl"


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "token", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD"),
        *("MY_APIKEY", "OPENAIAPIKEY", "GIT_CREDENTIALS", "TOKEN_FILE", "SSH_KEY"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert Secrecy().value(name, "x") == HIDDEN


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "KEYBOARD", "PATH", "MONKEY", "NCCL_NET", "SECRETARY", ""]
)
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)
    assert Secrecy().value(name, "x") == "x"


def test_a_site_says_which_words_these_are() -> None:
    secrecy = Secrecy(("SITE_LIC*",))
    assert secrecy.value("MY_SITE_LICENSE", "x") == HIDDEN
    assert secrecy.value("HF_TOKEN", "x") == "x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"--token {TOKEN}", f"--token {HIDDEN}"),
        ("export HF_TOKEN=abc; run", f"export HF_TOKEN={HIDDEN}; run"),
        ("export A_KEY='a b' B=1", f"export A_KEY={HIDDEN} B=1"),
        ('DB_PASSWORD="a b"', f"DB_PASSWORD={HIDDEN}"),
        ("export HF_TOKEN=$OTHER", "export HF_TOKEN=$OTHER"),
        ("https://me:pw@host/x", f"https://me:{HIDDEN}@host/x"),
        ("user@reg.example#a/b:1", "user@reg.example#a/b:1"),
        ("docker://user@reg.example#a/b:1", "docker://user@reg.example#a/b:1"),
        ("https://:tok@host/x", f"https://:{HIDDEN}@host/x"),
        ("https://tok@host/x", f"https://{HIDDEN}@host/x"),
        ("https://host/a@b", "https://host/a@b"),
        ("docker login -p dckr_pat_" + "aB3-_" * 5, f"docker login -p {HIDDEN}"),
        (f"got {JWT}.", f"got {HIDDEN}."),
        ("https://host/b?se=1&sig=a%2Fb%3D&sv=2", f"https://host/b?se=1&sig={HIDDEN}&sv=2"),
        ("https://h/b?X-Amz-Signature=12ab&x=1", f"https://h/b?X-Amz-Signature={HIDDEN}&x=1"),
        ("https://h/b?X-Amz-Security-Token=1", f"https://h/b?X-Amz-Security-Token={HIDDEN}"),
        ("https://h/b?signal=9&design=1", "https://h/b?signal=9&design=1"),
        (r'DB_PASSWORD = "a\"b" # mine', f"DB_PASSWORD = {HIDDEN} # mine"),
        ("""'A_KEY' = 'abc'""", f"'A_KEY' = {HIDDEN}"),
        ('A_KEY = """\na "b"\nc"""\nB = 1', f"A_KEY = {HIDDEN}\nB = 1"),
        ("A_KEY = '''a\nb", f"A_KEY = {HIDDEN}"),
        (r'{"A_KEY": "a\"b", "B": "c"}', f'{{"A_KEY": "{HIDDEN}", "B": "c"}}'),
        ("Comment=A_KEY=abc B=1", f"Comment=A_KEY={HIDDEN} B=1"),
        ('cmd = "run A_KEY=abc x"', f'cmd = "run A_KEY={HIDDEN} x"'),
        ("unknown key: 'foo'", "unknown key: 'foo'"),
        ("A=1 TOKENIZERS_PARALLELISM=false", "A=1 TOKENIZERS_PARALLELISM=false"),
    ],
)
def test_secrets_in_a_text_are_hidden(text: str, shown: str) -> None:
    assert Secrecy().text(text) == shown
    assert Secrecy(shows=True).text(text) == text


def test_a_secret_of_the_environment_is_hidden_wherever_it_was_expanded() -> None:
    secrecy = Secrecy().knowing({"HF_TOKEN": "very secret", "A_KEY": "1", "B": "plain"}.items())
    assert secrecy.text("/data/very secret/1/plain") == f"/data/{HIDDEN}/1/plain"


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_has_an_answer_and_a_known_secret_is_not_in_it(text: str) -> None:
    secrecy = Secrecy().knowing([("A_TOKEN", "Zq9!Zq9!Zq9!")])
    assert "Zq9!Zq9!Zq9!" not in secrecy.text(f"{text}Zq9!Zq9!Zq9!{text}")


def test_settings_within_settings_have_no_limit() -> None:
    assert Secrecy().text("a=" * 100_000) == "a=" * 100_000
