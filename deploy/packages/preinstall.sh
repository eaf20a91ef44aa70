#!/bin/sh
# Before the files of the package are there: the user whom some of them belong to.
set -e
if [ -n "${DPKG_ROOT:-}" ]; then
	grep -q '^kubeweir:' "$DPKG_ROOT/etc/passwd" && exit 0
elif getent passwd kubeweir >/dev/null; then # from a directory, perhaps
	exit 0
fi
useradd ${DPKG_ROOT:+--prefix "$DPKG_ROOT"} --system --user-group --no-create-home \
	--home-dir /var/lib/kubeweir --shell /usr/sbin/nologin --comment kubeweir kubeweir
