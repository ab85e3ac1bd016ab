"""The JVM of a Spark session: the bridge to it, and the loops that run inside it."""
