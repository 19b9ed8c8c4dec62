#!/bin/sh
# The user of the daemons. Nothing is enabled or started: there is no configuration yet, and
# a daemon that runs goes on with the program that it has until `leafd upgrade` (docs/upgrade.md).
set -e
systemd-sysusers /usr/lib/sysusers.d/loom.conf
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
