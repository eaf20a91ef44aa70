#!/bin/sh
# Stops the services on removal ("remove" in dpkg, 0 in rpm), not on an upgrade.
set -e
case "${1:-}" in
remove | 0)
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now kubeweir-gateway.service kubeweir-standalone.service || true
	fi
	;;
esac
