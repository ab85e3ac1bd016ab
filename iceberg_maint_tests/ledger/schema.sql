-- version 1

CREATE TABLE icm_alert (
  incident_id VARCHAR(255) NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (incident_id)
)

CREATE TABLE icm_attestation (
  table_uuid VARCHAR(64) NOT NULL,
  body TEXT NOT NULL,
  judged_ms BIGINT NOT NULL,
  PRIMARY KEY (table_uuid)
)

CREATE TABLE icm_batch (
  batch_id VARCHAR(64) NOT NULL,
  table_uuid VARCHAR(64) NOT NULL,
  operation VARCHAR(64) NOT NULL,
  plan_id VARCHAR(64) NOT NULL,
  ordinal BIGINT NOT NULL,
  status VARCHAR(16) NOT NULL,
  body TEXT NOT NULL,
  updated_ms BIGINT NOT NULL,
  PRIMARY KEY (batch_id)
)

CREATE INDEX icm_batch_open ON icm_batch (table_uuid, operation, status, ordinal)

CREATE TABLE icm_clock (
  boot VARCHAR(64) NOT NULL,
  booted_ms BIGINT,
  newest_ms BIGINT NOT NULL,
  PRIMARY KEY (boot)
)

CREATE TABLE icm_cursor (
  table_uuid VARCHAR(64) NOT NULL,
  operation VARCHAR(64) NOT NULL,
  batch_id VARCHAR(64) NOT NULL,
  snapshot_id BIGINT,
  fence BIGINT NOT NULL,
  advanced_ms BIGINT NOT NULL,
  PRIMARY KEY (table_uuid, operation)
)

CREATE TABLE icm_fleet_wait (
  table_uuid VARCHAR(64) NOT NULL,
  partition TEXT NOT NULL,
  since_ms BIGINT NOT NULL,
  until_ms BIGINT NOT NULL,
  decided_ms BIGINT NOT NULL,
  PRIMARY KEY (table_uuid, partition)
)

CREATE TABLE icm_health (
  table_uuid VARCHAR(64) NOT NULL,
  table_name TEXT NOT NULL,
  sequence_number BIGINT NOT NULL,
  pointer TEXT NOT NULL,
  observed_ms BIGINT NOT NULL,
  form VARCHAR(16) NOT NULL,
  head TEXT NOT NULL,
  partitions BYTEA NOT NULL,
  PRIMARY KEY (table_uuid),
  CONSTRAINT icm_health_name UNIQUE (table_name)
)

CREATE INDEX icm_health_form ON icm_health (form)

CREATE TABLE icm_health_day (
  table_uuid VARCHAR(64) NOT NULL,
  day INTEGER NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (table_uuid, day)
)

CREATE TABLE icm_installation (
  id VARCHAR(64) NOT NULL,
  PRIMARY KEY (id)
)

CREATE TABLE icm_lease (
  table_uuid VARCHAR(64) NOT NULL,
  table_name TEXT NOT NULL,
  owner TEXT,
  fence BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  PRIMARY KEY (table_uuid)
)

CREATE TABLE icm_location_owner (
  table_key VARCHAR(64) NOT NULL,
  catalog TEXT NOT NULL,
  table_name TEXT NOT NULL,
  pointer TEXT NOT NULL,
  form VARCHAR(16) NOT NULL,
  body TEXT NOT NULL,
  current_ms BIGINT NOT NULL,
  PRIMARY KEY (table_key)
)

CREATE TABLE icm_partition_history (
  table_uuid VARCHAR(64) NOT NULL,
  operation VARCHAR(64) NOT NULL,
  partition TEXT NOT NULL,
  ineffective INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  environment_failures INTEGER NOT NULL,
  not_before_ms BIGINT,
  quarantined BOOLEAN NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (table_uuid, operation, partition)
)

CREATE TABLE icm_partition_missing (
  table_uuid VARCHAR(64) NOT NULL,
  partition TEXT NOT NULL,
  misses INTEGER NOT NULL,
  since_ms BIGINT NOT NULL,
  PRIMARY KEY (table_uuid, partition)
)

CREATE TABLE icm_pause (
  table_name TEXT NOT NULL,
  table_uuid VARCHAR(64),
  note TEXT NOT NULL,
  paused_by TEXT NOT NULL,
  paused_ms BIGINT NOT NULL,
  PRIMARY KEY (table_name)
)

CREATE TABLE icm_reader (
  table_uuid VARCHAR(64) NOT NULL,
  name VARCHAR(255) NOT NULL,
  snapshot_id BIGINT NOT NULL,
  seen_ms BIGINT NOT NULL,
  PRIMARY KEY (table_uuid, name)
)

CREATE TABLE icm_record (
  ordinal BIGSERIAL NOT NULL,
  record_id VARCHAR(64) NOT NULL,
  table_uuid VARCHAR(64) NOT NULL,
  table_name TEXT NOT NULL,
  run_id TEXT COLLATE "C" NOT NULL,
  body TEXT NOT NULL,
  appended_ms BIGINT NOT NULL,
  PRIMARY KEY (ordinal),
  UNIQUE (record_id)
)

CREATE INDEX icm_record_run ON icm_record (run_id)

CREATE INDEX icm_record_table ON icm_record (table_name, ordinal)

CREATE INDEX icm_record_uuid ON icm_record (table_uuid, ordinal)

CREATE TABLE icm_recorded (
  table_uuid VARCHAR(64) NOT NULL,
  operation VARCHAR(64) NOT NULL,
  run_id TEXT NOT NULL,
  through BIGINT NOT NULL,
  PRIMARY KEY (table_uuid, operation, run_id)
)

CREATE TABLE icm_run (
  run_id VARCHAR(64) NOT NULL,
  beat_ms BIGINT NOT NULL,
  PRIMARY KEY (run_id)
)

CREATE TABLE icm_schema_version (
  version INTEGER NOT NULL,
  PRIMARY KEY (version)
)

CREATE TABLE icm_attempt (
  ordinal BIGSERIAL NOT NULL,
  attempt_id VARCHAR(64) NOT NULL,
  batch_id VARCHAR(64) NOT NULL,
  table_uuid VARCHAR(64) NOT NULL,
  operation VARCHAR(64) NOT NULL,
  run_id TEXT NOT NULL,
  fence BIGINT NOT NULL,
  token VARCHAR(128) NOT NULL,
  partitions TEXT NOT NULL,
  started_ms BIGINT NOT NULL,
  PRIMARY KEY (ordinal),
  UNIQUE (attempt_id),
  FOREIGN KEY(batch_id) REFERENCES icm_batch (batch_id),
  UNIQUE (token)
)

CREATE INDEX icm_attempt_batch ON icm_attempt (batch_id)

CREATE INDEX icm_attempt_started ON icm_attempt (started_ms)

CREATE INDEX icm_attempt_table ON icm_attempt (table_uuid, run_id)

CREATE TABLE icm_intent (
  attempt_id VARCHAR(64) NOT NULL,
  files TEXT NOT NULL,
  proof TEXT NOT NULL,
  batch_digest VARCHAR(64) NOT NULL,
  recorded_ms BIGINT NOT NULL,
  PRIMARY KEY (attempt_id),
  FOREIGN KEY(attempt_id) REFERENCES icm_attempt (attempt_id)
)

CREATE TABLE icm_outcome (
  ordinal BIGSERIAL NOT NULL,
  attempt_id VARCHAR(64) NOT NULL,
  table_uuid VARCHAR(64) NOT NULL,
  operation VARCHAR(64) NOT NULL,
  status VARCHAR(16) NOT NULL,
  settled BOOLEAN NOT NULL,
  partitions TEXT NOT NULL,
  input_bytes BIGINT NOT NULL,
  body TEXT NOT NULL,
  recorded_ms BIGINT NOT NULL,
  PRIMARY KEY (ordinal),
  FOREIGN KEY(attempt_id) REFERENCES icm_attempt (attempt_id)
)

CREATE INDEX icm_outcome_attempt ON icm_outcome (attempt_id)

CREATE INDEX icm_outcome_hour ON icm_outcome (table_uuid, operation, recorded_ms)

CREATE INDEX icm_outcome_recorded ON icm_outcome (recorded_ms)

CREATE INDEX icm_outcome_status ON icm_outcome (table_uuid, operation, status, recorded_ms)

CREATE TABLE icm_try (
  attempt_id VARCHAR(64) NOT NULL,
  position INTEGER NOT NULL,
  base_snapshot_id BIGINT NOT NULL,
  metadata_location TEXT NOT NULL,
  recorded_ms BIGINT NOT NULL,
  PRIMARY KEY (attempt_id, position),
  FOREIGN KEY(attempt_id) REFERENCES icm_intent (attempt_id)
)
