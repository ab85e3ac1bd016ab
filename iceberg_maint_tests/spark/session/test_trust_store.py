"""The trust store Java gets when it does not know the machine's certificates."""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

from iceberg_maint.engines.spark.session.java import write_trust_store

CERTIFICATES = [b"first certificate", b"second"]


def test_trust_store_holds_every_certificate_of_the_bundle_in_javas_format(tmp_path: Path) -> None:
    blocks = [ssl.DER_cert_to_PEM_cert(certificate) for certificate in CERTIFICATES]
    (tmp_path / "bundle.pem").write_text("a comment\n" + "\nanother\n".join(blocks))
    assert write_trust_store(tmp_path / "bundle.pem", tmp_path / "store") == 2

    content = (tmp_path / "store").read_bytes()
    assert struct.unpack_from(">III", content) == (0xFEEDFEED, 2, 2)
    at = 12
    for number, certificate in enumerate(CERTIFICATES):
        entry = struct.pack(">IH", 2, 13) + f"certificate-{number}".encode() + bytes(8)
        entry += struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate
        assert content[at : at + len(entry)] == entry
        at += len(entry)
    secret = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"
    assert content[at:] == hashlib.sha1(secret + content[:at]).digest()


def test_trust_store_of_a_bundle_without_certificates_is_empty(tmp_path: Path) -> None:
    (tmp_path / "bundle.pem").write_text("nothing here")
    assert write_trust_store(tmp_path / "bundle.pem", tmp_path / "store") == 0
