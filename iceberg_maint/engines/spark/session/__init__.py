"""Spark sessions: Java, jars, settings and executor memory."""
