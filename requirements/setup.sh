#!/usr/bin/env bash
# Makes the environment: a virtual environment from the hashed lock, a Java, the jars. Usage: setup.sh VENV CACHE
# Without CACHE it is that of the fast tests, which needs neither Java nor jars.
# Safe to run again: what is there and right is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$1 cache=${2:-}
say() { printf '==> %s\n' "$*" >&2; }

# ensurepip is asked for because some distributions ship Python without it.
usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    usable "$PYTHON" && { echo "$PYTHON"; return; }
    say "PYTHON=$PYTHON is not a Python of version 3.11 or later with venv."
    return 1
  fi
  for candidate in python3.11 python3.12 python3.13 python3 python; do
    usable "$candidate" && { echo "$candidate"; return; }
  done
  say "No Python of version 3.11 or later (with venv and ensurepip) found on PATH."
  say "Install one (Debian and Ubuntu: apt-get install python3 python3-venv), or name it: make setup PYTHON=/path/to/python3.11"
  return 1
}

pip() { PYTHONWARNINGS=ignore "$venv/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"; }
# The lock is complete, so nothing is resolved here; what comes as source is built with the locked tools.
install() { pip install --require-hashes --no-deps --no-build-isolation -r "$1"; }

if ! usable "$venv/bin/python"; then
  python=$(find_python)
  say "Making $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi

if [ -z "$cache" ]; then
  say "Installing the packages of the fast tests"
  install requirements/build.txt
  install requirements/fast.txt
  exit
fi

say "Installing packages (about 1.5 GB unpacked; minutes when nothing is cached)"
install requirements/build.txt
install requirements/dev.txt
pip install --no-deps --no-build-isolation --no-index -e .
pip check

if ! "$venv/bin/python" -m iceberg_maint.engines.spark.session.java --cache "$cache" >/dev/null 2>&1; then
  say "No Java of version 17 to 23 found: installing one into $venv"
  install requirements/java.txt
fi
say "Java: $("$venv/bin/python" -m iceberg_maint.engines.spark.session.java --cache "$cache")"

say "Fetching jars into $cache/jars (checked against their sha256)"
"$venv/bin/python" -m iceberg_maint.engines.spark.session.jars --cache "$cache"
say "Ready."
