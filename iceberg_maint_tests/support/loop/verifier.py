"""A verifier that judges commits by given evidence."""

from __future__ import annotations

from dataclasses import dataclass, field

from iceberg_maint.core.outcomes.verification import (
    Evidence,
    MaintenanceCommit,
    Verification,
    judge_commit,
    unprovable,
)
from iceberg_maint.errors import RefusedError


@dataclass
class SetVerifier:
    """Judges every commit by the given evidence, or raises. `asked` are the commits."""

    evidence: Evidence | None
    error: RefusedError | None = None
    asked: list[MaintenanceCommit] = field(default_factory=list)

    def verify(self, commit: MaintenanceCommit) -> Verification:
        self.asked.append(commit)
        if self.error is not None:
            raise self.error
        if self.evidence is None:
            return unprovable(commit, "snapshot 7 has been expired just now")
        return judge_commit(commit, self.evidence)
