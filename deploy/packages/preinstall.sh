#!/bin/sh
# Creates the user that owns some of the files, before they are unpacked.
set -e
if [ -n "${DPKG_ROOT:-}" ]; then
	grep -q '^kubeweir:' "$DPKG_ROOT/etc/passwd" && exit 0
elif getent passwd kubeweir >/dev/null; then # for example from a directory service
	exit 0
fi
useradd ${DPKG_ROOT:+--prefix "$DPKG_ROOT"} --system --user-group --no-create-home \
	--home-dir /var/lib/kubeweir --shell /usr/sbin/nologin --comment kubeweir kubeweir
