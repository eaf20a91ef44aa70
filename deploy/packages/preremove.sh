#!/bin/sh
# On removal, which dpkg calls "remove" and rpm calls 0, nothing goes on running; on an upgrade it does.
set -e
case "${1:-}" in
remove | 0)
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now kubeweir-gateway.service kubeweir-standalone.service || true
	fi
	;;
esac
