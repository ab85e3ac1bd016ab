"""Files that nothing reaches, planted below a table, and what an orphan scan has to make of them."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint_tests.qualification.program.maintainer import HOUR_MS, Keeper
from iceberg_maint_tests.qualification.program.wide import Wide

_PLACES = ("data/{}.parquet", "data/p=1/{}.parquet", "metadata/{}-m0.avro", "metadata/snap-{}.avro")


@dataclass
class Planted:
    """One table's orphans: at their place, in the trash since some time, or gone for good."""

    keeper: Keeper
    twin: Wide
    at_place: dict[Path, bytes] = field(default_factory=dict)
    marked_ms: dict[str, int] = field(default_factory=dict)

    def plant(self, rng: random.Random) -> str:
        """A file of some age, half an hour from every threshold; what it is called."""
        name = f"orphan{len(self.at_place) + len(self.marked_ms)}-{rng.randrange(10**6)}"
        path = self.keeper.folder(self.twin) / rng.choice(_PLACES).format(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
        hours = rng.choice([0, 5, 20, 30, 50, 80, 300])
        at_ns = (self.keeper.time.now_ms() - hours * HOUR_MS - HOUR_MS // 2) * 1_000_000
        os.utime(path, ns=(at_ns, at_ns))
        self.keeper.timed(path)
        self.at_place[path] = path.read_bytes()
        return f"{path.parent.name}/{path.name}, {hours} h old"

    def check(self, policy: RemoveOrphanFilesPolicy) -> tuple[int, int]:
        """After a pass that ended well, whose sweep was allowed: each file is where its age has it, and
        no other old file is left that no snapshot needs. How many went into the trash, and for good."""
        now_ms, trash = self.keeper.time.now_ms(), self.keeper.trash(self.twin)
        swept = 0
        for name, since_ms in list(self.marked_ms.items()):
            held = now_ms - since_ms < policy.delete_after_seconds * 1000
            assert (name in trash) == held, f"{name}: in the trash for {(now_ms - since_ms) // HOUR_MS} h"
            if not held:
                del self.marked_ms[name]
                swept += 1
        moved = [p for p in self.at_place if not p.exists()]
        for path, content in list(self.at_place.items()):
            if path in moved:
                assert path.name in trash
                del self.at_place[path]
                self.marked_ms[path.name] = now_ms
                continue
            assert path.read_bytes() == content
            assert self.keeper.age_ms(path) < policy.older_than_seconds * 1000, f"{path} stayed"
        for path in moved:
            # It kept its time in the trash.
            (found,) = (p for p in self.keeper.trashed(self.twin) if p.name == path.name)
            assert self.keeper.age_ms(found) >= policy.older_than_seconds * 1000, f"{path} was young"
        self._check_others(policy)
        return len(moved), swept

    def _check_others(self, policy: RemoveOrphanFilesPolicy) -> None:
        location = self.twin.location()
        reached = {str(Path(p.removeprefix("file:"))) for p in self.twin.witness.reached(location)}
        missing = [p for p in reached if not Path(p).exists()]
        assert not missing, f"needed and gone: {missing}"
        for path in self.keeper.files(self.twin):
            if str(path) in reached or path in self.at_place or path.suffix == ".json":
                continue
            age_ms = self.keeper.age_ms(path)
            assert age_ms < policy.older_than_seconds * 1000, f"{path} stayed, {age_ms // HOUR_MS} h old"
