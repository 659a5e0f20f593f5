"""Hiding of secret values, and only of those."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.base.secrecy import HIDDEN, Secrecy, is_secret_name

TOKEN = "hf_" + "a1B2" * 8
OTHER_TOKENS = (
    *("pypi-AgEIcHlwaS5vcmcCJ", "npm_" + "a1B2" * 9, "AIza" + "Sy-_1" * 7, "glrt-" + "aB3-" * 5),
    *("GR1348941" + "aB3_" * 5, "wandb_v1_" + "aB3_" * 6, "hvs." + "aB3_" * 6, "ASIA" + "Q7" * 8),
)
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
        ("api_key: |\n  ab\n\n  cd\nnext: 1", f"api_key: {HIDDEN}\nnext: 1"),
        ("token: >-\n  ab cd", f"token: {HIDDEN}"),
        ("machine h login me password ab\n", f"machine h login me password {HIDDEN}\n"),
        ("login me\n  password ab", f"login me\n  password {HIDDEN}"),
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
        *((f"pip: {token} x", f"pip: {HIDDEN} x") for token in OTHER_TOKENS),
        ("curl -H 'Authorization: Bearer x1'", f"curl -H 'Authorization: Bearer {HIDDEN}'"),
        ("authorization: basic eDp5", f"authorization: basic {HIDDEN}"),
        ("authorization: denied by the site", "authorization: denied by the site"),
        ("Bearer " + "aB3-" * 5, f"Bearer {HIDDEN}"),
        ("PRIVATE-TOKEN: x1", f"PRIVATE-TOKEN: {HIDDEN}"),
        ("x --password ab'c", f"x --password {HIDDEN}'c"),
        ("x --password 'a b' y", f"x --password {HIDDEN} y"),
        ("x --api-key abc", f"x --api-key {HIDDEN}"),
        ("x --password-stdin host", "x --password-stdin host"),
        ("x --password --verbose", "x --password --verbose"),
        ("x --tokenizer abc", "x --tokenizer abc"),
        ("skopeo copy --src-creds me:x1 a", f"skopeo copy --src-creds me:{HIDDEN} a"),
        ("curl -u me:x1 host", f"curl -u me:{HIDDEN} host"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        ("docker login -u me -p x1 host", f"docker login -u me -p {HIDDEN} host"),
        ("mkdir -p x1", "mkdir -p x1"),
        ("password: x1\nuser: me", f"password: {HIDDEN}\nuser: me"),
        ("'api_key': 'x1'", f"'api_key': {HIDDEN}"),
        ("env.HF_TOKEN: must be a string", "env.HF_TOKEN: must be a string"),
        ("robot$group+name:x1", f"robot$group+name:{HIDDEN}"),
        ('{"auths": {"r": {"auth": "eDp5"}}}', f'{{"auths": {{"r": {{"auth": "{HIDDEN}"}}}}}}'),
        ('{"api_key": "x1"}', f'{{"api_key": "{HIDDEN}"}}'),
        ("A=1 TOKENIZERS_PARALLELISM=false", "A=1 TOKENIZERS_PARALLELISM=false"),
        # the value on another line than its name
        ("token:\n  ab cd\nuser: me", f"token:\n  {HIDDEN}\nuser: me"),
        ("  token:\n    ab\n    cd\n  user: me", f"  token:\n    {HIDDEN}\n  user: me"),
        ("token:\r\n\tab\r\nx", f"token:\r\n\t{HIDDEN}\r\nx"),
        ("Your access token:\n\nab12cd34\nKeep it", f"Your access token:\n\n{HIDDEN}\nKeep it"),
        ("HF_TOKEN:\nab12cd34", f"HF_TOKEN:\n{HIDDEN}"),
        ("credentials:\n  - ab12\n  - cd34\nx: 1", f"credentials:\n  {HIDDEN}\nx: 1"),
        ("password:\nuser: me", "password:\nuser: me"),
        ("credentials:\n  user: me", "credentials:\n  user: me"),
        ("no such token:\nsee the list of tokens", "no such token:\nsee the list of tokens"),
        ('{"api_key":\n  "x1"}', f'{{"api_key":\n  "{HIDDEN}"}}'),
        ('{"auth":\n "eDp5"}', f'{{"auth":\n "{HIDDEN}"}}'),
        ("A_KEY=\\\nab", f"A_KEY=\\\n{HIDDEN}"),
        ("x --token \\\n  ab y", f"x --token \\\n  {HIDDEN} y"),
        ("x --token \\\n  --verbose", "x --token \\\n  --verbose"),
        ("- --token\n- ab\n- x", f"- --token\n- {HIDDEN}\n- x"),
        ("--token\nab\n", f"--token\n{HIDDEN}\n"),
        ('["--token", "ab", "x"]', f'["--token", {HIDDEN}, "x"]'),
        ("PRIVATE-TOKEN:\n x1", f"PRIVATE-TOKEN:\n {HIDDEN}"),
        ("Authorization:\n Bearer x1", f"Authorization:\n Bearer {HIDDEN}"),
        ("Authorization: Bearer\r\n x1", f"Authorization: Bearer\r\n {HIDDEN}"),
        ("-H 'Authorization: Basic \\\neDp5'", f"-H 'Authorization: Basic \\\n{HIDDEN}'"),
        ("Bearer\n" + "aB3-" * 5, f"Bearer\n{HIDDEN}"),
        ("curl -u \\\n me:x1 host", f"curl -u \\\n me:{HIDDEN} host"),
        ("docker login \\\n -u me -p \\\n x1 h", f"docker login \\\n -u me -p \\\n {HIDDEN} h"),
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


@pytest.mark.parametrize(
    "part",
    [
        "a=",
        "a-",
        "--a ",
        "a: ",
        "token: |\n",
        "token:\n",
        "token:\n  a\n",
        "token:\n\n",
        "--token\n",
        "--token \\\n",
        "a=\\\n",
        "Bearer \\\n",
        "authorization:\n",
        "login \\\n",
        "login a ",
        "login ",
        "login -p",
        "Bearer ",
        "-u a:",
        "robot$",
        '"auth" ',
    ],
)
def test_no_text_takes_long(part: str) -> None:
    assert len(Secrecy().text(part * 50_000)) > 50_000


@pytest.mark.parametrize(
    "text", ["device '/etc/passwd': not a device", "/run/secret: no such file", "my.token: missing"]
)
def test_the_last_part_of_a_path_is_no_name_of_a_secret(text: str) -> None:
    assert Secrecy().text(text) == text
