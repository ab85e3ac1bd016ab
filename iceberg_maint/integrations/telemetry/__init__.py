"""Telemetry: the numbers of runs and tables for Prometheus, OTLP, DogStatsD and CloudWatch."""
