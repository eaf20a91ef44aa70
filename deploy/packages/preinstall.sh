#!/bin/sh
# Before the files of the package are there: the user whom some of them belong to.
set -e
grep -q '^kubeweir:' "${DPKG_ROOT:-}/etc/passwd" && exit 0
useradd ${DPKG_ROOT:+--prefix "$DPKG_ROOT"} --system --user-group --no-create-home \
	--home-dir /var/lib/kubeweir --shell /usr/sbin/nologin --comment kubeweir kubeweir
