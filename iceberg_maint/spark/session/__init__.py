"""Spark sessions: Java, jars, settings and memory."""
