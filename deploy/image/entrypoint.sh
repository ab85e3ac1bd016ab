#!/usr/bin/env bash
# `executor`: an executor of Spark on Kubernetes, with the settings that Spark's driver put into the environment.
# Anything else is a command.
set -euo pipefail

if [ "${1:-}" != executor ]; then
  exec "$@"
fi

# Spark numbers its Java options: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, and so on.
options=()
while IFS= read -r name; do
  options+=("${!name}")
done < <(compgen -e | grep '^SPARK_JAVA_OPT_' | sort -t _ -k 4 -n)

exec "${JAVA_HOME:-/usr}/bin/java" "${options[@]}" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
