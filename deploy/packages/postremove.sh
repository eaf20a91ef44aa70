#!/bin/sh
# dpkg --purge also removes the state: objects of the standalone, generated certificates, logs. rpm --erase leaves the
# state. Other files in /etc/kubeweir remain. The user remains, so that no other user gets its UID and with it files that
# it left elsewhere.
set -e
if [ "${1:-}" = purge ]; then
	rm -rf "${DPKG_ROOT:-}/var/lib/kubeweir" "${DPKG_ROOT:-}/var/log/kubeweir"
fi
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
