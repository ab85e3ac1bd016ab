-- The image creates the database `ledger`. Dagster's storage has its own.
CREATE DATABASE dagster;
