#!/usr/bin/env bash
# Makes a folder from which mosquitto can be started: an authority of the federation's own, a server
# certificate, the configuration, and a password for every user.
#
#   ./prepare.sh FOLDER HOST USER...
#   ./prepare.sh broker broker.example.org north south dashboard
#
# HOST is the name or the IP address by which the centers reach the broker. Needs openssl and
# mosquitto_passwd. Run again with more users later: what is there stays as it is.
set -euo pipefail
umask 077

if (($# < 3)); then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
folder=$1 host=$2
shift 2
example=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$folder/users"
cd "$folder"

if [[ ! -e ca.key ]]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -days 3650 \
        -subj "/CN=authority of the federation's broker" \
        -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" \
        -keyout ca.key -out ca.crt 2>/dev/null
fi
if [[ ! -e server.key ]]; then
    kind=DNS
    if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then kind=IP; fi
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 \
        -subj "/CN=$host" -keyout server.key -out server.csr 2>/dev/null
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 825 -sha256 \
        -extfile <(printf '%s\n' "subjectAltName=$kind:$host" "extendedKeyUsage=serverAuth" \
            "subjectKeyIdentifier=hash" "authorityKeyIdentifier=keyid") \
        -out server.crt 2>/dev/null
    rm server.csr
fi
for file in mosquitto.conf acl; do
    [[ -e $file ]] || cp "$example/$file" "$file"
done
touch passwords
for user in "$@"; do
    if [[ ! -e users/$user.password ]]; then
        openssl rand -hex 24 >"users/$user.password"
        printf '%s:%s\n' "$user" "$(<"users/$user.password")" >new
        mosquitto_passwd -U new
        cat new >>passwords
        rm new
    fi
done
chmod 644 ca.crt
