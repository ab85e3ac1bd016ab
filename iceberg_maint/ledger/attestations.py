"""How far the commits of each table are attested."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.outcomes.attestation import Attestation
from iceberg_maint.ledger.database import Part
from iceberg_maint.ledger.schema import attestation, db_now_ms


class SqlAttestations(Part):
    """Attestations by table; see `ports.ledger.Attestations`."""

    def get(self, table_uuid: str) -> Attestation | None:
        """Returns the attestation of the table."""
        with self._read() as conn:
            query = select(attestation.c.body).where(attestation.c.table_uuid == table_uuid)
            body = conn.scalar(query)
        return None if body is None else loads(Attestation, body)

    def put(self, table_uuid: str, attested: Attestation) -> None:
        """Stores the attestation in place of an earlier one."""
        with self._write(table_uuid) as conn:
            conn.execute(delete(attestation).where(attestation.c.table_uuid == table_uuid))
            conn.execute(
                insert(attestation).values(table_uuid=table_uuid, body=dumps(attested), judged_ms=db_now_ms())
            )
