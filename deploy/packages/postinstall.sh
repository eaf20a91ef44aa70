#!/bin/sh
# The services are neither enabled nor started, because they need configuration by the administrator. A running service is
# restarted with the new program.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart kubeweir-gateway.service kubeweir-standalone.service || true
fi
