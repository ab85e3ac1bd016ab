"""Writes a Java trust store from a PEM bundle, for a Java that lacks the certificates that the machine trusts.

Java does not read a PEM file as a trust store. Small Java runtimes lack the tool that converts one. The JKS format is
simple enough to write here.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from pathlib import Path

_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_CERTIFICATE_TYPE = b"X.509"
# Java's constant. The digest protects against accidents, not attackers, and a trust store contains no secret.
_WHITENER = b"Mighty Aphrodite"
PASSWORD = "changeit"  # noqa: S105 - the customary password of public trust stores

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def write_trust_store(pem: Path, store: Path) -> int:
    """Writes the certificates of the bundle `pem` as a JKS trust store (password `PASSWORD`). Returns their number.


    Format: sun.security.provider.JavaKeyStore, version 2.
    """
    blocks = _PEM.findall(pem.read_text(encoding="utf-8", errors="replace"))
    content = bytearray(struct.pack(">III", _MAGIC, _VERSION, len(blocks)))
    for number, block in enumerate(blocks):
        alias = f"certificate-{number}".encode()
        certificate = ssl.PEM_cert_to_DER_cert(block)
        content += struct.pack(">IH", _TRUSTED_CERTIFICATE, len(alias)) + alias
        content += struct.pack(">QH", 0, len(_CERTIFICATE_TYPE)) + _CERTIFICATE_TYPE
        content += struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + _WHITENER + content)  # noqa: S324 - the format's digest
    store.write_bytes(bytes(content) + digest.digest())
    return len(blocks)
