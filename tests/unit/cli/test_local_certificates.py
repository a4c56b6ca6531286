"""The authority of a folder of certificates, if its files are incomplete."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.cli.access.local_certificates import make_certificates


def test_certificate_of_an_authority_without_its_key_gets_no_other_key(tmp_path: Path) -> None:
    """The key was moved to a safe place: another one would sign what no peer accepts."""
    files = make_certificates(tmp_path, hosts=(), clients=["alice"])
    files.authority_key.unlink()
    for _ in range(2):
        with pytest.raises(FileExistsError, match=r"ca.pem exists without its key"):
            make_certificates(tmp_path, hosts=(), clients=["bob"])
    assert not files.authority_key.exists()


def test_key_of_another_authority_signs_nothing(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "one", hosts=(), clients=["alice"])
    other = make_certificates(tmp_path / "other", hosts=(), clients=["alice"])
    files.authority_key.write_bytes(other.authority_key.read_bytes())
    with pytest.raises(ValueError, match=r"ca.pem is not the certificate of the key"):
        make_certificates(tmp_path / "one", hosts=(), clients=["bob"])
    assert not (tmp_path / "one" / "client-bob.pem").exists()
