#!/usr/bin/env bash
# Installs the services that tests start by themselves. Where that cannot be done it says so and
# ends well: the tests that need them skip, and say so too.
set -euo pipefail

packages=()
need() { # PROGRAM PACKAGE...
    if [[ -z $(PATH="$PATH:/usr/sbin:/sbin" command -v "$1") ]]; then packages+=("${@:2}"); fi
}
need mosquitto mosquitto mosquitto-clients
need openssl openssl
need chromium chromium
for program in munged slurmctld slurmd sbatch; do
    need "$program" munge slurm-wlm slurmctld slurmd slurm-client slurm-wlm-basic-plugins
done

mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u | sed '/^$/d')
if ((${#packages[@]} == 0)); then
    exit 0
fi
if ! command -v apt-get >/dev/null || ((EUID != 0)); then
    echo "services: not installed (needs root and apt-get): ${packages[*]}" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install -y -q --no-install-recommends "${packages[@]}")
# Debian starts services of its own otherwise, a broker on 1883; an answer of 101 forbids that.
if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
if ! { apt-get update -q && "${install[@]}"; } >/dev/null; then
    echo "services: apt-get could not install: ${packages[*]}" >&2
fi
