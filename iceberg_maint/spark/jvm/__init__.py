"""The JVM of a Spark session: the bridge to it, and loops that run inside it."""
