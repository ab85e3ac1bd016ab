#!/usr/bin/env bash
# Compiles requirements/*.in into hashed locks for Python 3.11 and later. Usage: lock.sh CACHE
set -euo pipefail
cache=$1
cd "$(dirname "${BASH_SOURCE[0]}")"
[ -x "../$cache/lock/bin/uv" ] || { python3 -m venv "../$cache/lock" && "../$cache/lock/bin/pip" install -q uv; }
compile() {
  "../$cache/lock/bin/uv" pip compile --quiet "$@" --generate-hashes --universal \
    --python-version 3.11 --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
}
for name in build runtime dev java screenshots flink spark35 surroundings docs kubernetes deploy readers airflow dbt component platform; do
  compile --upgrade "$name.in" -o "$name.txt"
done
for name in fast engines; do
  compile "$name.in" -c dev.txt -o "$name.txt"  # the versions of dev.txt
done
