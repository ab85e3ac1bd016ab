"""Mutants of what keeps a file from being taken for an orphan, written by hand: each must turn a test red.

python -m iceberg_maint_tests.mutants orphans [NUMBER…]
"""

from __future__ import annotations

from iceberg_maint_tests.mutants.mutant import Mutant

_HERE = "iceberg_maint_tests/orphans"
SCAN, LAYOUTS, OPERATION = (f"{_HERE}/test_{name}.py" for name in ("scan", "layouts", "orphan_pass"))
SECOND, LINEAGE, OWNER = (
    f"{_HERE}/test_{name}.py" for name in ("second_catalog", "second_owner", "table_ownership")
)
VERSIONS = "iceberg_maint_tests/core/removal/test_unlogged_metadata.py"
TRASH = (f"{_HERE}/test_trash.py", f"{_HERE}/test_restore.py")
LOCATIONS = "iceberg_maint_tests/core/model/test_location.py"
REACHABLE = "iceberg_maint_tests/catalog/test_reachable_files.py"
UNRELIABLE = f"{_HERE}/test_unreliable_listing.py"
RELEASED, IN_PLACE, CORE_RELEASED, RELEASE = (
    f"{_HERE}/test_released.py",
    f"{_HERE}/test_in_place.py",
    "iceberg_maint_tests/core/removal/test_released_files.py",
    "iceberg_maint_tests/runner/test_release.py",
)
PENDING, CORE_PENDING = (
    f"{_HERE}/test_pending_manifests.py",
    "iceberg_maint_tests/core/removal/test_pending_manifests.py",
)

MUTANTS = (
    Mutant("a file's age does not matter", "orphans/scan.py", "file.modified_ms > youngest_ms", "False", (SCAN,)),
    Mutant("a file without time is old", "orphans/scan.py", "file.modified_ms is None or ", "file.modified_ms is not None and ", (SCAN,)),
    Mutant("ages by this machine's clock", "orphans/scan.py", "if abs(store_ms - now_ms) > MAX_CLOCK_SKEW_MS:", "if False:", (SCAN,)),
    Mutant("hidden files are files", "core/removal/orphans.py", "return Kept.HIDDEN", "pass", (SCAN,)),
    Mutant("metadata files may go", "core/removal/orphans.py", "return Kept.METADATA_FILE", "pass", (SCAN,)),
    Mutant("state of Flink jobs may go", "core/removal/orphans.py", "return Kept.FLINK_MANIFEST", "pass", (LAYOUTS,)),
    Mutant("files of pending manifests may go", "orphans/scan.py", "    add_pending(paths, store, reachability, pending, *_home(target))\n", "", (LAYOUTS, PENDING)),
    Mutant("pending manifests are read after the metadata", "orphans/scan.py", "    add_pending(paths, store, reachability, pending, *_home(target))\n    try:\n        paths.add_reached(target.in_flight, Kept.IN_FLIGHT)\n        paths.add_reached(reachability.paths(), Kept.REACHABLE)\n", "    try:\n        paths.add_reached(target.in_flight, Kept.IN_FLIGHT)\n        paths.add_reached(reachability.paths(), Kept.REACHABLE)\n        add_pending(paths, store, reachability, pending, *_home(target))\n", (PENDING,)),
    Mutant("pending manifests are where storage is listed only", "orphans/pending_manifests.py", "chain(paths.listed_flink_manifests(), in_other_folders)", "chain(paths.listed_flink_manifests(), ())", (PENDING,)),
    Mutant("a folder of another storage holds no manifest", "orphans/pending_manifests.py", "if parse_location(folder, same).is_local != home.is_local:", "if False:", (PENDING,)),
    Mutant("a manifest that names no file is read", "catalog/manifests/pending_files.py", "if not paths or None in paths", "if None in paths", (PENDING,)),
    Mutant("any format version is known", "catalog/manifests/pending_files.py", "if version not in _VERSIONS:", "if False:", (PENDING,)),
    Mutant("what is no manifest names nothing", "catalog/manifests/pending_files.py", "if not certain and not metadata", "if not metadata", (PENDING,)),
    Mutant("committed manifests are pending", "core/removal/pending_manifests.py", 'return int(numbers["checkpoint"]) <= checkpoint', "return False", (PENDING,)),
    Mutant("any snapshot commits a manifest", "core/removal/pending_manifests.py", "return [_ancestors(by_id, head) for head in heads]", "return [iter(state.snapshots[::-1])]", (CORE_PENDING,)),
    Mutant("one branch commits a manifest", "core/removal/pending_manifests.py", "min(c[writer] for c in of_branches)", "max(c[writer] for c in of_branches)", (CORE_PENDING,)),
    Mutant("manifests of dead jobs stay", "core/removal/pending_manifests.py", "modified_ms < self._before_ms", "False", (PENDING,)),
    Mutant("ages count from now where Kafka Connect writes", "orphans/scan.py", "youngest_ms = started_ms if since_ms is None else min(started_ms, since_ms)", "youngest_ms = started_ms", (PENDING,)),
    Mutant("the trash is listed", "core/removal/orphans.py", "return Kept.TRASH", "pass", TRASH),
    Mutant("files in flight may go", "orphans/scan.py", "paths.add_reached(target.in_flight, Kept.IN_FLIGHT)", "pass", (LAYOUTS,)),
    Mutant("what was put back may go", "orphans/scan.py", "paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)", "pass", TRASH),
    Mutant("only the head is walked", "catalog/reachable_files.py", "for snapshot in state.snapshots:", "for snapshot in [state.snapshot]:", (LAYOUTS,)),
    Mutant("statistics are not reached", "catalog/reachable_files.py", "yield from named_files(document)", "pass", (LAYOUTS,)),
    Mutant("delete files are not reached", "catalog/reachable_files.py", "if has_live_files(manifest):", "if has_live_files(manifest) and not manifest.is_deletes:", (LAYOUTS,)),
    Mutant("a replaced table is walked", "catalog/reachable_files.py", "if state.uuid != self._uuid:", "if False:", (REACHABLE,)),
    Mutant("the pointer is remembered", "catalog/reachable_files.py", "pointers = self._catalog.pointers([self._table])", "pointers = self.__dict__.setdefault('was', self._catalog.pointers([self._table]))", TRASH),
    Mutant("percent signs are literal", "core/model/location.py", 'or "%" in path', "", (LOCATIONS,)),
    Mutant("case matters", "core/model/location.py", "path = path.lower()", "pass", (LOCATIONS,)),
    Mutant("Unicode forms differ", "core/model/location.py", 'unicodedata.normalize("NFC", unicodedata.normalize("NFC", decoded).casefold())', "decoded", (LOCATIONS,)),
    Mutant("dot segments differ", "core/model/location.py", 'if "//" in path or "/." in path or path.endswith("/"):', "if False:", (LOCATIONS,)),
    Mutant("a prefix needs no slash", "core/model/location.py", 'below = outer.key.rstrip(b"/") + b"/"', 'below = outer.key.rstrip(b"/")', (LOCATIONS,)),
    Mutant("schemes need no mapping", "orphans/scan.py", "if mismatch := paths.other_store():", "if False:", (SCAN,)),
    Mutant("the start of a bucket's name is a folder", "orphans/path_index.py", 'if folder.endswith("/"):', "if False:", (f"{_HERE}/test_path_index.py",)),
    Mutant("files named elsewhere may go", "orphans/path_index.py", 'f" AND NOT {_NAMED_ELSEWHERE} ORDER BY path"', '" ORDER BY path"', (SCAN,)),
    Mutant("live files need not be listed", "orphans/scan.py", "if stored is None or stored.modified_ms is None or stored.modified_ms < started_ms:", "if False:", (SCAN,)),
    Mutant("one decoder is enough", "orphans/scan.py", "if counts.orphan_files:", "if False:", (SCAN,)),
    Mutant("a table below ours is none", "core/model/location.py", "if is_within(location, prefix) or is_within(prefix, location):", "if is_within(prefix, location):", (SCAN,)),
    Mutant("a table above ours is none", "core/model/location.py", "if is_within(location, prefix) or is_within(prefix, location):", "if is_within(location, prefix):", (SCAN,)),
    Mutant("metadata of tables in no catalog is none", "orphans/second_owner.py", "if version.owner != state.uuid:", "if False:", (SCAN,)),
    Mutant("a newer version in another catalog is none", "orphans/second_owner.py", "    if newer:\n        raise _newer", "    if False:\n        raise _newer", (SECOND,)),
    Mutant("a line of commits beside ours is none", "orphans/second_owner.py", "if before is not None:", "if False:", (SECOND, LINEAGE)),
    Mutant("what was committed since the listing is newer", "orphans/second_owner.py", "        log = reachability.log()\n        ours", "        ours", (LINEAGE,)),
    Mutant("a sequence number does not make a version newer", "core/removal/unlogged_metadata.py", " or (version.last_sequence_number or 0) > log.last_sequence_number", "", (VERSIONS,)),
    Mutant("a time does not make a version newer", "core/removal/unlogged_metadata.py", "updated_ms > log.last_updated_ms or ", "", (VERSIONS, SECOND)),
    Mutant("a number that is cut off is whole", "orphans/table_ownership.py", "(position < len(head) or isinstance(value, str))", "True", (OWNER,)),
    Mutant("a sweep does not ask for a second owner", "orphans/trash.py", "        if due:\n", "        if False:\n", (SECOND,)),
    Mutant("files elsewhere need no declaration", "orphans/scan.py", "if elsewhere := outside(claim_of(state), prefixes, target.same):", "if elsewhere := ():", (SCAN,)),
    Mutant("a whole bucket may be a table's", "orphans/scan.py", "if is_root(parse_location(prefix, target.same)):", "if False:", (SCAN,)),
    Mutant("the owner may not forbid it", "orphans/scan.py", "if not gc_enabled(state.properties):", "if False:", (SCAN,)),
    Mutant("the floor is no floor", "orphans/scan.py", "if seconds is not None and seconds < floor:", "if False:", (SCAN,)),
    Mutant("any share is normal", "orphans/trash.py", "if scan.needs_approval and approved != scan.digest:", "if False:", TRASH),
    Mutant("any digest approves", "orphans/orphan_pass.py", "if orphan_scan.digest != approved and", "if approved is None and", (OPERATION,)),
    Mutant("a live file waits in the trash for the hold", "orphans/trash.py", "                _put_back_of(header, reached[manifest_location(header)], store, holds, tell)\n", "                pass\n", (OPERATION,)),
    Mutant("a live file is put back without the lease", "orphans/trash.py", "                require_lease(holds)\n                restored", "                restored", TRASH),
    Mutant("the older of two files of one path is put back", "orphans/trash.py", "key=lambda m: m.marked_ms, reverse=True", "key=lambda m: m.marked_ms", TRASH),
    Mutant("the metadata is read once", "orphans/trash.py", "    read_reached(scan.paths, scan.target, store, reachability, scan.pending)\n    progress", "    progress", TRASH),
    Mutant("what is committed during the moves stays away", "orphans/trash.py", "        _put_back_reached(scan, store, reachability, progress)\n", "", TRASH),
    Mutant("a file is not looked at again", "orphans/trash.py", "if stored is None or (stored.size_bytes, stored.modified_ms) != (line.size_bytes, line.modified_ms):", "if stored is None:", TRASH),
    Mutant("the manifest comes after the moves", "orphans/trash.py", "store.create(manifest_location(header), manifest_lines", "list(manifest_lines(header, ())) and store.create(manifest_location(header) + 'x', manifest_lines", TRASH),
    Mutant("the lease does not matter", "orphans/trash.py", "if not holds():", "if False:", TRASH),
    Mutant("the lease is looked at once", "orphans/lease_guard.py", "not 0 <= now_ms - self._asked_ms < TRUSTED_MS", "False", (OPERATION,)),
    Mutant("the hold does not matter", "orphans/trash.py", ">= header.marked_ms + policy.hold_seconds * 1000", "> 0", TRASH),
    Mutant("a sweep does not prove again", "orphans/trash.py", "if is_reached or stored.size", "if stored.size", TRASH),
    Mutant("a sweep takes what lies there", "orphans/trash.py", "if is_reached or stored.size_bytes != line.size_bytes:", "if is_reached:", TRASH),
    Mutant("the trash of another table is ours", "orphans/trash.py", "if header.table_uuid != target.state.uuid:", "if False:", TRASH),
    Mutant("a manifest may name any file", "orphans/trash_manifest.py", 'if not file.path.startswith(f"{root}/") or file.trash_path != folder + file.path[len(root) :]:', "if False:", TRASH),
    Mutant("what is put back replaces what is there", "catalog/file_store.py", "if os.path.lexists(new):", "if False:", TRASH),
    Mutant("snapshots need not have expired", "orphans/orphan_pass.py", "deletes = sweep and self._scope.sweeps", "deletes = self._scope.sweeps", (OPERATION,)),
    Mutant("a neighbour has files where it writes only", "catalog/location_claims.py", "{}, pointer, folders)", "{}, pointer)", (OPERATION,)),
    Mutant("a neighbour that cannot be read has nothing", "catalog/location_claims.py", "                    raise RefusedError(", "                    return None\n                    raise RefusedError(", (OPERATION,)),
    Mutant("released files need no proof", "orphans/released.py", "    if paths.releases_manifests():\n        _read_current(paths, target, store, reachability, pending)\n", "", (RELEASED,)),
    Mutant("one decoder is enough for released files", "orphans/released.py", "        check_second_opinion(paths, target, reachability)\n", "", (RELEASED,)),
    Mutant("a released path is a file", "core/removal/released_files.py", "return same_size and modified_ms is not None and modified_ms <= self.committed_ms + MAX_SKEW_MS", "return True", (RELEASED, CORE_RELEASED)),
    Mutant("a released file of any time is the same", "core/removal/released_files.py", "return same_size and modified_ms is not None and modified_ms <= self.committed_ms + MAX_SKEW_MS", "return same_size", (RELEASED, CORE_RELEASED)),
    Mutant("released files have one owner", "orphans/released.py", "    check_folders(target.state, target.same, store, reachability, versions_memo(scratch, target.state))\n", "", (RELEASED,)),
    Mutant("restored files are released again", "orphans/released.py", "    paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)\n", "", (RELEASED,)),
    Mutant("what is registered during the moves of released files stays away", "orphans/released.py", "if paths.unreferenced() != before:", "if False:", (RELEASED,)),
    Mutant("a release ends before its files are moved", "orphans/released.py", '    paths = PathTables(scratch / f"released-', '    for location, _ in releases:\n        store.delete(location)\n    paths = PathTables(scratch / f"released-', (RELEASED,)),
    Mutant("lists go before what they name", "core/removal/released_files.py", "REMOVAL_ORDER = tuple(ReleasedKind)", "REMOVAL_ORDER = tuple(ReleasedKind)[::-1]", (RELEASED,)),
    Mutant("released files are orphans", "orphans/scan.py", "        paths.keep_released()\n", "", (RELEASED,)),
    Mutant("an expiry sweeps all trash", "orphans/trash.py", " and (m.released or not released_only)", "", (RELEASED,)),
    Mutant("manifests that stay are opened for candidates", "core/removal/released_files.py", "            if add((ReleasedFile(manifest.path, ReleasedKind.MANIFEST, size, number, at_ms),)):\n", "            add((ReleasedFile(manifest.path, ReleasedKind.MANIFEST, size, number, at_ms),))\n            if True:\n", (RELEASED, CORE_RELEASED)),
    Mutant("files held in place are proved once", "orphans/in_place_hold.py", "        self._read()\n        check_second_opinion(self._paths, self._target, self._reachability)\n", "        self._proved_at = self._reachability.metadata_location()\n", (IN_PLACE,)),
    Mutant("what is registered during the deletion in place is gone", "orphans/in_place_hold.py", "if self._reachability.metadata_location() != self._proved_at:", "if False:", (IN_PLACE,)),
    Mutant("one decoder is enough for files held in place", "orphans/in_place_hold.py", "        check_second_opinion(self._paths, self._target, self._reachability)\n", "", (IN_PLACE,)),
    Mutant("the hold in place does not matter", "orphans/in_place_hold.py", ">= m.header.marked_ms + hold_ms", "> 0", (IN_PLACE,)),
    Mutant("the older of two marks in place counts", "orphans/in_place_hold.py", "            self._paths.add_reached((f.path for f in listed_files(self._store, mark)), Kept.RELEASED)\n", "            pass\n", (IN_PLACE,)),
    Mutant("a release of this run does not hold its files", "orphans/in_place_hold.py", "        self._paths.keep_released()\n", "", (IN_PLACE,)),
    Mutant("files held in place go before a release is taken", "orphans/in_place_hold.py", "    if stored and not marks:\n        return\n", "", (IN_PLACE,)),
    Mutant("any file at a path held in place may go", "orphans/in_place_hold.py", "            and file.is_same(stored.size_bytes, stored.modified_ms)\n", "", (IN_PLACE,)),
    Mutant("files held in place are orphans", "orphans/scan.py", "            paths.add_released(listed_files(store, mark))\n", "            pass\n", (IN_PLACE,)),
    Mutant("files held in place have one owner", "orphans/in_place_hold.py", "        check_folders(target.state, target.same, store, reachability, memo, folders)\n", "", (IN_PLACE,)),
    Mutant("restored files are deleted in place", "orphans/in_place_hold.py", "            paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)\n", "", (IN_PLACE,)),
    Mutant("a mark in place that was cut off counts", "orphans/in_place_hold.py", "sum(1 for _ in listed_files(store, mark)) == mark.files", "True", (IN_PLACE,)),
    Mutant("a crash begins a second hold in place", "orphans/in_place_hold.py", "if not _is_marked(file, release, own)]", "]", (IN_PLACE,)),
    Mutant("one list of two is enough", "orphans/in_place_hold.py", "len(listing) >= max(mark.lists for mark in listing)", "True", (IN_PLACE,)),
    Mutant("a release ends before its list is written", "orphans/in_place_hold.py", "    if unmarked or due:\n        memo", "    for file, _ in stored:\n        store.delete(file.path)\n    if unmarked or due:\n        memo", (IN_PLACE,)),
    Mutant("a release is stored after the commit", "runner/execute.py", "    record_release(work, batch, policy, runtime)\n", "", (RELEASE,)),
    Mutant("files of a lost expiry may go", "runner/release.py", "    if runtime.ledger.history(state.uuid, str(state.table), expiry).of(WHOLE_TABLE).quarantined:\n        return False\n", "", (RELEASE,)),
    Mutant("files of an unsettled expiry may go", "runner/release.py", "        a.operation == expiry and a.attempt_id != own_attempt_id\n", "        False\n", (RELEASE,)),
    Mutant("pages that repeat are listed twice", "catalog/s3_store.py", "if first in self._begun:", "if False:", (UNRELIABLE,)),
    Mutant("a refused continuation ends the listing", "catalog/s3_store.py", 'if "ContinuationToken" not in query or status', "if True or status", (UNRELIABLE,)),
)  # fmt: skip
