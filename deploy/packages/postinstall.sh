#!/bin/sh
# The services are neither enabled nor started: each needs something that only the administrator has. One that runs is
# restarted with the new program.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart kubeweir-gateway.service kubeweir-standalone.service || true
fi
