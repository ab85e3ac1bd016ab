"""The compiled Avro decoder returns memory behind its buffer for a length that exceeds it

Versions: PyIceberg 0.12.0.

Expected: reading 64 bytes of a buffer that has two is an error, as for StreamingBinaryDecoder.

Spec: "bytes are encoded as a long followed by that many bytes of data" (Avro Specification, Binary Encoding)

Actual: read_bytes, read_int and read_double check no bounds. A manifest that was cut off or damaged yields values of other
memory of the process, without an error.
"""

import pyiceberg
from pyiceberg.avro.decoder import StreamingBinaryDecoder, new_decoder

TWO_BYTES_SAID_TO_BE_64 = b"\x80\x01" + b"xy"  # 64 as a zigzag varint, then two bytes


def reproduce():
    try:
        StreamingBinaryDecoder(TWO_BYTES_SAID_TO_BE_64).read_bytes()
    except EOFError as error:
        print("StreamingBinaryDecoder:", error)
    try:
        read = new_decoder(TWO_BYTES_SAID_TO_BE_64).read_bytes()
    except (EOFError, ValueError) as error:
        print("CythonBinaryDecoder:", error)
        return None
    return f"{len(read)} bytes were read of a buffer that has two: {read[:8]!r}..."


print("PyIceberg", pyiceberg.__version__)
fault = reproduce()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
