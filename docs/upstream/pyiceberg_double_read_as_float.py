"""The compiled Avro decoder rounds a double to a float

Versions: PyIceberg 0.12.0.

Expected: CythonBinaryDecoder.read_double returns the value that was written, as StreamingBinaryDecoder does.

Spec: "a double is written as 8 bytes. The double is converted into a 64-bit integer using a method equivalent to Java's
doubleToRawLongBits" (Avro Specification, Binary Encoding);
"64-bit IEEE 754 floating point" (Table Spec, Primitive Types, double)

Actual: the decoder reads 8 bytes and returns them as a C float: 0.1 is 0.10000000149011612, 1e300 is infinite. A partition
value of type double is another one than in the manifest.
"""

import struct

import pyiceberg
from pyiceberg.avro.decoder import new_decoder


def reproduce():
    wrong = {value: new_decoder(struct.pack("<d", value)).read_double() for value in (0.1, 1e300)}
    wrong = {value: read for value, read in wrong.items() if value != read}
    return f"values and what is read of them: {wrong}" if wrong else None


print("PyIceberg", pyiceberg.__version__)
fault = reproduce()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
