"""A manifest whose schema uses a named Avro type twice cannot be read

Versions: PyIceberg 0.12.0.

Expected: PyIceberg reads the manifests that Iceberg's Java library writes for a table with two partition fields of equal
uuid, fixed or decimal type. Java defines the Avro type once and names it the second time.

Spec: "A schema or protocol may not contain multiple definitions of a fullname. Further, a name must be defined before it is
used" (Avro Specification, Names)

Actual: the conversion of the schema knows no names that it has defined: TypeError.
"""

import pyiceberg
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

FIXED = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
FIELDS = [
    {"name": "a", "type": FIXED, "field-id": 1000},
    {"name": "b", "type": "uuid_fixed", "field-id": 1001},
]
SCHEMA = {"type": "record", "name": "r102", "fields": FIELDS}


def reproduce():
    try:
        schema = AvroSchemaConversion().avro_to_iceberg(SCHEMA)
    except TypeError as error:
        return f"the schema cannot be read: TypeError: {error}"
    print(schema)
    return None


print("PyIceberg", pyiceberg.__version__)
fault = reproduce()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
