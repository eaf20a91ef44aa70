#!/bin/sh
# dpkg --purge takes the state, too: the standalone's objects, certificates that were generated, logs. What others have
# put into /etc/kubeweir stays, as dpkg says, and after rpm --erase, the state. The user stays, so that
# no other gets its number, and with it whatever files it has left elsewhere.
set -e
if [ "${1:-}" = purge ]; then
	rm -rf "${DPKG_ROOT:-}/var/lib/kubeweir" "${DPKG_ROOT:-}/var/log/kubeweir"
fi
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
